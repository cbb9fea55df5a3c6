import sys

from bench import framework

rows = framework.run(sys.argv[1:])
framework.show(rows)
sys.exit(0 if all(row.met is not False for row in rows) else 2)

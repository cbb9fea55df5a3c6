"""What every file of hw is tried by: testpoints, mutants and claims, for the site's page of units."""

from tests.mutants.operators import changes, files
from tests.mutants.test_mutants import UNITS
from verif import testpoints
from verif.formal.prove import claims
from verif.units import Evidence


def evidence() -> dict[str, Evidence]:
    """Of every file of hw that has any."""
    points: dict[str, str] = {}
    for name, unit in testpoints.collect().items():
        quick = sum(any(test.quick for test in tests) for tests in unit.tests.values())
        shown = f"{len(unit.tests)}, {quick} in `make test`" + (f", {len(unit.waived)} waived" if unit.waived else "")
        points.setdefault(f"hw/{name.partition(':')[0]}.py", shown)
    listed = {unit.file: len(unit.mutants) for unit in UNITS}
    drawn = {file: len(changes(file)) for file in files()}
    proven = claims()
    return {file: Evidence(points.get(file, ""), f"{listed.get(file, 0)}, {drawn.get(file, 0)} drawn from",
                           str(len(proven.get(file, ()))))
            for file in points.keys() | listed.keys() | drawn.keys() | proven.keys()}

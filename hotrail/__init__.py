"""The `hotrail` command."""

import os
import signal
import sys

if os.path.basename(sys.argv[0]) in ("hotrail", "-m"):
    # As a command: an interrupt ends the process at once, as long as it does no more than import.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

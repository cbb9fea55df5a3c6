"""cocotb benches that hold the hardware against the oracle."""

import atexit
import gc
import os
import sys
from types import SimpleNamespace

if "COCOTB_TEST_MODULES" in os.environ:
    # A simulation. There are hundreds, and half a second of each goes into imports: what stays is not searched for
    # garbage again and again, nor at the end, and Amaranth does not validate the JSON schemas of its own metadata,
    # which nobody reads.
    gc.set_threshold(100_000, 50, 50)
    atexit.register(gc.freeze)
    sys.modules["jschon"] = SimpleNamespace(  # type: ignore[assignment]
        JSONSchemaError=ValueError, create_catalog=lambda version: None,
        JSONSchema=lambda schema, catalog: SimpleNamespace(validate=lambda: SimpleNamespace(valid=True)))

"""Primitives of the part that the Verilog instantiates: how they behave, for simulators, and their ports, for lint.

Synthesis has them itself. `<primitive>.v` beside this file models each as the units instantiate it.
"""

from collections.abc import Mapping
from pathlib import Path

from gen.rtl.verilog import children

FILES = {file.stem: file for file in Path(__file__).parent.glob("*.v")}


def models(texts: Mapping[str, str]) -> dict[str, str]:
    """Verilog, by file name, of the primitives that Verilog texts instantiate."""
    used = {name for text in texts.values() for name in children(text, FILES)}
    return {FILES[name].name: FILES[name].read_text("utf-8") for name in sorted(used)}

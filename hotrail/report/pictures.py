"""The pictures of the documentation that are drawn from the hardware.

    python -m hotrail.report.pictures           # docs/pictures anew: blocks-*.svg, waves-*.svg
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gen.rtl import config as presets
from gen.rtl import waveform
from gen.rtl.cores import CORES
from gen.rtl.hierarchy import diagram
from hotrail.report import blocks, waves

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
PRESET = "tiny"


def _blocks(core: str) -> str:
    unit = CORES[core].unit(presets.load(PRESET).cores[core])
    return blocks.svg(diagram(unit, core), f" in the preset {PRESET}")


def _skid_buffer() -> str:
    return waves.svg("A stream through a skid buffer, cycle by cycle", waveform.skid_buffer(),
                     valid={"i.payload": "i.valid", "o.payload": "o.valid"}, shown=lambda _, value: f"{value:02X}")


def _pooling() -> str:
    found = waveform.pooling()
    return waves.svg("Two bags by turns through the pooling unit, cycle by cycle", found, shown=lambda name, value: (
        f"{waveform.number(value):g}" if name.endswith("words") else str(value)), valid={
            name: f"{name[0]}_valid" for name in found if "." in name})


#: Name of the file without its ending, and what makes it.
PICTURES: dict[str, Callable[[], str]] = {
    **{f"blocks-{core}": partial(_blocks, core) for core in ("tt", "emb", "mlp", "hotline")},
    "waves-skid-buffer": _skid_buffer, "waves-pooling": _pooling}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")

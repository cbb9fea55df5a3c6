"""Where the MLP core's loads go, in their order: a beat of rows, a line of weights or of addends at a time."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class RowPlace(NamedTuple):
    """Of a beat for all banks of a row, turned by `turn`. half: which half of the port's beat it is, widened from
    binary16; None: all of it."""

    unit: int
    row: int
    line: int
    turn: int
    half: int | None


class ParameterPlace(NamedTuple):
    """Of a line of weights, or of addends (unit None: they go to all)."""

    unit: int | None
    line: int


def row_places(job: Mapping[str, int], *, units: int, rows: int, pieces: int, lines: int) -> Iterator[RowPlace]:
    """Of a LOAD_ROWS, fields as in hw.mlp.loader.RowsJob, `line` that of the first feature's group."""
    first = job["feature"] // rows
    for sample in range(job["count"]):
        unit, s = sample // rows % units, sample // (rows * units)
        for feature in range(job["feature"], job["feature"] + job["features"]):
            for q in range(job["row_beats"]):
                half = q % 2 if job["half"] else None
                if job["features_in"]:
                    line = (job["line"] + (s * rows + sample % rows) * job["line_stride"]
                            + (feature // rows - first) * job["row_beats"] + q)
                    yield RowPlace(unit, feature % rows, line % lines, feature // rows % pieces, half)
                else:
                    yield RowPlace(unit, sample % rows, (job["line"] + q * job["line_stride"] + s) % lines, 0, half)


def parameter_places(job: Mapping[str, int], *, units: int, weight_lines: int, addend_lines: int
                     ) -> Iterator[ParameterPlace]:
    """Of a LOAD_WEIGHTS or LOAD_ADDENDS, fields as in hw.mlp.parameters.ParametersJob."""
    if job["addends"]:
        yield from (ParameterPlace(None, (job["line"] + n) % addend_lines) for n in range(job["count"]))
        return
    for group in range(job["count"]):
        for step in range(job["steps"]):
            line = job["line"] + group // units * job["steps"] + step
            yield ParameterPlace(group % units, line % weight_lines)

"""The MLP core's cycles on ideal memories: golden.mlp.cycles equal to the counters of the Verilated core."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from fpga.card import open as open_card
from gen.compiler.emb import encode
from gen.model.device import Device
from gen.rtl.config import load
from golden.mlp.cycles import Sizes, cycles
from hw.isa import MLP
from hw.isa.mlp import TARGET

BEATS = {"inputs": 2048, "weights": 2048, "outputs": 4096}
INSTRUCTIONS = 64   # of a program, at most


class Bench:
    """A card whose memory is ideal, and the golden model of what it carries out."""

    def __init__(self, card, config):
        self.card, self.config = card, config
        self.buffers = {}
        for name, beats in BEATS.items():
            words = np.zeros(beats * config.words, np.uint32)
            self.buffers[name] = card.allocate(words.nbytes, name)
            card.write(self.buffers[name], words)
        self.buffers["program"] = card.allocate(64 * INSTRUCTIONS, "program")
        self.buffers["result"] = card.allocate(4 * MLP.result_words, "result")
        # What is drawn reads any lines: all are loaded first.
        waits = {"wait_rows": 0, "wait_weights": 0, "wait_layers": 0, "source": 0}
        self.compare([
            ("LOAD_ROWS", {**waits, "features_in": 0, "half": 0, "features": 1, "feature": 0, "count": config.samples,
                           "line": 0, "line_stride": 1, "row_beats": config.row_lines, "stride": config.row_lines}),
            ("LOAD_WEIGHTS", {**waits, "count": config.units, "steps": config.weight_lines, "weight_line": 0}),
            ("LOAD_ADDENDS", {**waits, "count": config.addend_lines, "addend_line": 0})])

    def compare(self, program):
        """Carries instructions out; the cycles."""
        card, config, buffers = self.card, self.config, self.buffers
        words = np.concatenate([encode(name, fields, MLP).reshape(-1) for name, fields in program])
        card.write(buffers["program"], words)
        sizes = {f"{name}_beats": beats for name, beats in BEATS.items()}
        card.run({**buffers, **sizes, "program_count": len(program)})
        card.wait(2_000_000)
        block = card.read(buffers["result"], np.uint32)
        told = {value.name: int(block[value.word]) for value in MLP.result}
        assert told["code"] == 0, told

        at = {name: buffer.address // config.beat_bytes for name, buffer in buffers.items()}
        beats = words.reshape(-1, config.words).tolist()
        empty = (0,) * config.words

        def beat(number):
            inside = 0 <= number - at["program"] < len(beats)
            return tuple(beats[number - at["program"]]) if inside else empty

        chosen = {name: getattr(config, name) for name in Sizes._fields if hasattr(config, name)}
        said, spans = cycles(Sizes(**chosen, counters=1 << (len(MLP.counters) - 1).bit_length()), **at, words=beat,
                             program_count=len(program), latency=Device.load("smartssd").port.ideal_latency)
        assert sum(span.slots for span in spans.values()) == told["slots"]
        assert list(spans) == [number for number, (name, _) in enumerate(program) if name in ("LAYER", "INTERACT")]
        assert said == {name: told[name] for name in said}
        return said["cycles"]


@pytest.fixture(scope="module")
def config():
    return load("tiny").cores["mlp"]


@pytest.fixture(scope="module")
def bench(config):
    with open_card("sim", core="mlp", preset="tiny", memory="ideal") as card:
        yield Bench(card, config)


def draw(random, config, number, lags=(0, 1, 3, 1 << 31)):
    """Loads and layers of any kind; what they compute does not matter. Bases and lines are drawn freely."""
    before = {"rows": 0, "weights": 0, "layers": 0}
    program = []
    integers = random.integers

    def one(most):
        return int(integers(1, most + 1))

    for _ in range(number):
        name = ("LOAD_ROWS", "LOAD_WEIGHTS", "LOAD_ADDENDS", "LAYER", "LAYER", "LAYER", "INTERACT")[integers(7)]
        item = {f"wait_{kind}": int(max(0, count - integers(0, 4))) for kind, count in before.items()}
        item |= {field: int(integers(256)) for field in ("line", "line_stride", "to_line", "to_line_stride",
                                                         "weight_line",
                                                         "addend_line")}
        item |= {"max_in_flight": int(random.choice(lags)), "count": one(3 * config.samples), "row_beats": one(4),
                 "steps": one(30), "features": one(3 * config.rows) + 1, "feature": int(integers(9))}
        if name == "LOAD_ROWS":
            item["features_in"] = int(integers(2))
            item["features"] = item["features"] if item["features_in"] else 1
            item["half"] = int(integers(2))
            stored = -(-item["row_beats"] // (1 + item["half"]))
            item["stride"] = stored + int(integers(2)) * int(integers(3))
            item["source"] = int(integers(200))
        elif name.startswith("LOAD"):
            item["count"] = one(8)
            item["source"] = int(integers(200))
        elif name == "LAYER":
            target = int(integers(4))
            item |= {"mode": int(integers(2)), "addend": int(integers(3)), "target": target,
                     "activation": int(integers({TARGET.PARTIAL: 1, TARGET.MEMORY: 3}.get(target, 2))),
                     "groups": one(2 * config.units + 1), "last_columns": one(config.columns)}
            if target == TARGET.MEMORY:
                item["out_stride"] = item["groups"] + int(integers(3))
                if integers(2):
                    item["out_stride"] = -(-item["groups"] // config.groups_per_beat)
                item["out"] = int(integers(200))
        used = {use.field for use in MLP.instruction(name).uses}
        program.append((name, {field: value for field, value in item.items() if field in used}))
        before["rows" if name == "LOAD_ROWS" else "weights" if name.startswith("LOAD") else "layers"] += 1
    return program


def test_one_of_each(bench, config):
    random = np.random.default_rng(1)
    for number in range(12):
        bench.compare(draw(random, config, 1 + number % 3))


@pytest.mark.testpoint("latency_and_rate_as_documented", unit="mlp/core")
def test_programs(bench, config):
    """The cycles of whole runs behind ideal memory are the cycle model's: loads, layers and interactions of any kind
    that run side by side, with all kinds of waits."""
    random = np.random.default_rng(2)
    for number in (10, 25, 50):
        bench.compare(draw(random, config, number))


def test_empty_program(bench):
    """A program of no instruction has no beat; one load of one beat has the shortest run."""
    assert bench.compare([("LOAD_ADDENDS", {"count": 1, "source": 0, "addend_line": 0})]) > 0


@pytest.mark.regress
@pytest.mark.parametrize("changes", [
    {"units": 4},
    {"rows": 4, "width": 1, "load_beats": 16, "output_beats": 16, "staged_tiles": 4},
], ids=["units", "narrow"])
def test_other_shapes(config, changes, tmp_path):
    """More units than a beat has column groups, so that rows in latency mode take several writes; a group a beat and
    short queues."""
    other = replace(config, **changes)
    lines = [f"{name} = {json.dumps(value)}" for name, value in asdict(other).items()]
    path = tmp_path / "other.toml"
    path.write_text("\n".join(['about = "A shape of the test."', "[mlp]", *lines]) + "\n", "utf-8")
    random = np.random.default_rng(3)
    with open_card("sim", core="mlp", preset=str(path), memory="ideal") as card:
        bench = Bench(card, other)
        for number in (5, 20, 40, 60):
            bench.compare(draw(random, other, number))

"""What the tests of the MLP core's program share: the unit beside its golden model, and random instructions."""

import os
import random
from types import SimpleNamespace

from cocotb.triggers import RisingEdge

from golden.mlp.program import ENGINES, INPUTS, OTHERS, OUTPUTS, WEIGHT_IMAGE, Rules, Waits, stored_beats
from hw.isa import MLP
from hw.mlp.config import MlpConfig
from verif.bench import reset, start
from verif.bench.memory import base
from verif.bench.pack import Ports, layout_of
from verif.mlp.cycles import Arguments, Fault
from verif.mlp.cycles import Program as Model
from verif.mlp.front import CONFIGS, KINDS, Feed, encode

TOP = (1 << 32) - 1
STREAMS = ("o_rows", "o_parameters", "o_layers")
AFTER = ("wait_rows", "wait_weights", "wait_layers")
ENGINE = {kind: ENGINES[opcode] for kind, opcode in KINDS.items()}
BUFFERS = {INPUTS: "inputs_beats", OUTPUTS: "outputs_beats", WEIGHT_IMAGE: "weights_beats"}
USED = {instruction.name: {use.field for use in instruction.uses} for instruction in MLP.instructions}
# A load's line is that of its kind, whatever its field is called.
IGNORED = {KINDS[name]: {field.name for field in MLP.fields} - used - ({"line"} if ENGINE[name] == 1 else set())
           for name, used in USED.items()}


# What each engine is told of an instruction as it stands there.
TOLD = (
    ("features_in", "half", "count", "source", "stride", "row_beats", "features", "feature", "line_stride",
     "wait_weights", "wait_layers"),
    ("count", "source", "steps", "wait_rows", "wait_layers"),
    ("mode", "addend", "target", "activation", "count", "row_beats", "features", "feature", "line", "line_stride",
     "steps", "groups", "weight_line", "last_columns", "addend_line", "to_line", "to_line_stride", "out", "out_stride",
     *AFTER),
)


def job_of(unit: MlpConfig, item: SimpleNamespace, number: int) -> dict[str, int]:
    """What the engine of a decoded instruction is told."""
    engine = ENGINES[item.opcode]
    job = {name: getattr(item, name) for name in TOLD[engine]} | {"number": number}
    if engine == 2:
        return job | {"interact": int(item.opcode == KINDS["INTERACT"])}
    _, end = Rules(unit).reach(item)     # type: ignore[misc]
    if engine == 1:
        addends = int(item.opcode == KINDS["LOAD_ADDENDS"])
        return job | {"addends": addends, "end": end, "line": item.addend_line if addends else item.weight_line}
    group, stored = item.feature // unit.rows if item.features_in else 0, stored_beats(item.row_beats, item.half)
    return job | {"run": int(item.stride == stored), "less_one": item.count * item.features - 1, "stored_beats": stored,
                  "end": end, "line": (item.line + group * item.row_beats) % (1 << 16)}


class Bench:
    """The program beside its cycle model, fed alike. bad: beats of the program answered with an error."""

    def __init__(self, dut, unit: MlpConfig, items: list[dict[str, int]], *, feed: Feed, arguments: dict[str, int],
                 bad=()):
        self.dut, self.unit, self.feed, self.bad = dut, unit, feed, set(bad)
        self.base = base("program", unit.beat_bytes) // unit.beat_bytes
        self.pins = Ports(dut)
        self.layouts = {name: layout_of(f"{name}__payload") for name in (*STREAMS, "i", "o_requests")}
        self.error = layout_of("error")
        self.cycle = 0
        self.got: list[list[dict[str, int]]] = [[], [], []]
        self.at: list[int] = []     # when an instruction was handed on
        self.put(items, arguments)
        self.model = Model(unit, [], self.arguments)    # until the start

    def put(self, items: list[dict[str, int]], arguments: dict[str, int]) -> None:
        """Another program, in the place of the one before."""
        self.words = [word for item in items for word in (item["_words"] if "_words" in item else encode(item))]
        self.arguments = Arguments(self.base, len(items), **arguments)
        self.pins.drive(arguments=packed_arguments(self.arguments, self.unit))

    def _beat(self, at: int) -> list[int]:
        """The words of the program's beat; what lies behind it is noise."""
        words = self.unit.words
        return self.words[at * words:(at + 1) * words] or [0xA5A5A5A5] * words

    async def step(self, *, start: bool = False, room=(True, True, True)) -> None:
        pins, model, feed, where = self.pins, self.model, self.feed, f"cycle {self.cycle}"
        at, ready = feed.stands, feed.ready
        data = None if at is None else self._beat(at - self.base)
        bad = at is not None and at - self.base in self.bad
        pins.drive(start=start, i__valid=data is not None, o_requests__ready=ready,
                 **{f"{name}__ready": room[k] for k, name in enumerate(STREAMS)})
        if data is not None:
            word = sum(word << 32 * k for k, word in enumerate(data))
            pins.drive(i__payload=self.layouts["i"].pack({"data": word, "error": bad}))
        await RisingEdge(self.dut.clk)
        request, takes = model.request, model.takes(data)
        streams = [None if at is None else job_of(self.unit, model.items[at], at) for at in model.streams]
        error = self.error.unpack(pins.get("error"))
        fault = Fault(error["code"], error["instruction"], error["detail"]) if error["valid"] else None
        shown = {
            "i.ready": (pins.get("i__ready"), takes), "request": (pins.get("o_requests__valid"), request is not None),
            "done": (pins.get("done"), model.done), "error": (fault, model.error),
            **({"number": (pins.get("number"), model.number)} if not model.idle else {}),
            **{name: (pins.get(f"{name}__valid"), job is not None) for name, job in zip(STREAMS, streams, strict=True)},
        }
        wrong = {name: pair for name, pair in shown.items() if pair[0] != pair[1]}
        assert not wrong, f"{where}: unit and model differ: {wrong}"
        if request is not None:
            found = self.layouts["o_requests"].unpack(pins.get("o_requests__payload"))
            assert (found["address"], found["beats"]) == (request[0] * self.unit.beat_bytes, request[1]), where
        for k, (name, job) in enumerate(zip(STREAMS, streams, strict=True)):
            if job is not None:
                found = self.layouts[name].unpack(pins.get(f"{name}__payload"))
                known = {field: value & _mask(self.layouts[name], field) for field, value in job.items()}
                if "run" in known:      # `end` is of 32 bits, and of a load that passed its check
                    assert job["end"] <= TOP
                ignored = IGNORED[model.items[job["number"]].opcode]    # handed on as it stands there, 0 in the model
                differ = {field for field in known.keys() | found.keys() if found.get(field) != known.get(field)}
                assert differ <= ignored, f"{where}: {name} {found}, golden {known}"
                if room[k]:
                    self.got[k].append(found)
                    self.at.append(self.cycle)
        if start:
            if model.idle:
                self.model = Model(self.unit, self.words, self.arguments)
            self.model.start()
        else:
            model.step(data=data is not None, request_taken=request is not None and ready, bad=bad,
                       taken=[job is not None and bool(room[k]) for k, job in enumerate(streams)])
        feed.step(request, takes)
        self.cycle += 1

    async def carry_out(self, *, room: float = 1.0, quiet: int = 60) -> None:
        """The whole program, and some cycles more."""
        await self.step(start=True)
        await self.carry_on(room=room, quiet=quiet)

    async def carry_on(self, *, room: float = 1.0, quiet: int = 60) -> None:
        """What is left of it."""
        r, limit = self.feed.rng, self.cycle + 100_000
        while quiet:
            await self.step(room=[r.random() < room for _ in STREAMS])
            quiet -= self.model.done
            assert self.cycle < limit, f"not done after {limit} cycles"


def _mask(layout, field: str) -> int:
    return next(inner._mask for name, _, inner in layout._fields if name == field)


def packed_arguments(arguments: Arguments, unit: MlpConfig) -> int:
    values = {"program": arguments.program * unit.beat_bytes, "program_count": arguments.program_count,
              "inputs_beats": arguments.inputs_beats, "outputs_beats": arguments.outputs_beats,
              "weights_beats": arguments.weights_beats}
    return layout_of("arguments").pack({argument.name: values.get(argument.name, 0x5A5A5A5A)
                                        for argument in MLP.arguments})


def any_item(r: random.Random, unit: MlpConfig, kind: str, before: list[int]) -> dict[str, int]:
    """An instruction that is allowed; fields that it does not use are noise."""
    item = {}
    for field in MLP.fields:
        if field.name == "opcode":
            item[field.name] = KINDS[kind]
        elif field.name not in USED[kind]:
            item[field.name] = r.getrandbits(field.bits)
        else:
            item[field.name] = r.choice([
                field.minimum, field.highest, r.randint(field.minimum, field.highest),
                min(field.highest, field.minimum + r.getrandbits(r.randint(1, field.bits)))])
    for name, most in zip(AFTER, before, strict=True):
        item[name] = r.choice([0, most, r.randint(0, most)])
    if kind == "LAYER":
        item["last_columns"] = r.choice([1, unit.columns, r.randint(1, unit.columns)])
        item["target"] = 3 if item["activation"] == 2 else r.randrange(4)
        if item["target"] == 2:
            item["activation"] = 0
        if item["target"] == 3 and item["count"] != 1:
            item["out_stride"] = max(item["out_stride"], Rules(unit).beats(item["groups"]))
    elif kind == "LOAD_ROWS" and not item["features_in"]:
        item["features"] = 1
    elif kind == "INTERACT":
        item["features"] = max(item["features"], 2)
    return item


def near(r: random.Random, item: dict[str, int]) -> dict[str, int]:
    """The instruction with sizes and strides that may leave room on chip."""
    return item | {
        "count": 1 + r.getrandbits(r.randrange(9)), "groups": 1 + r.getrandbits(r.randrange(5)),
        "steps": 1 + r.getrandbits(r.randrange(8)), "features": 2 + r.getrandbits(r.randrange(6)),
        "row_beats": 1 + r.getrandbits(r.randrange(4)), "line_stride": r.getrandbits(r.randrange(7)),
        "to_line_stride": r.getrandbits(r.randrange(7)), "to_line": r.getrandbits(16)}


def end_of(unit: MlpConfig, item: dict[str, int]) -> tuple[str, int] | None:
    """The buffer's size and the beat behind the last that an instruction touches there."""
    reach = Rules(unit).reach(SimpleNamespace(**item))
    return None if reach is None else (BUFFERS[reach[0]], reach[1])


def waiting(r: random.Random, item: dict[str, int], waits: Waits) -> dict[str, int]:
    """The instruction, waiting for what it has to wait for."""
    changed = {}
    for engine in OTHERS[ENGINES[item["opcode"]]]:
        name, least = AFTER[engine], waits.needed(SimpleNamespace(**item), engine)
        changed[name] = max(item[name], r.choice([least, r.randint(least, waits.before[engine])]))
    return item | changed


def fitting(r: random.Random, unit: MlpConfig, kind: str, waits: Waits, sizes: dict[str, int]) -> dict[str, int]:
    """An allowed instruction inside its buffer that waits for what it has to wait for."""
    while True:
        item = any_item(r, unit, kind, waits.before)
        while not Rules(unit).apart(SimpleNamespace(**item)):
            item = near(r, item)
        item = waiting(r, item, waits)
        reach = end_of(unit, item)
        if reach is None or reach[1] <= sizes[reach[0]]:
            return item
        offset = "out" if kind == "LAYER" else "source"
        if item[offset] and reach[1] - item[offset] <= sizes[reach[0]]:
            return item | {offset: sizes[reach[0]] - (reach[1] - item[offset])}


def any_program(r: random.Random, unit: MlpConfig, count: int, sizes: dict[str, int],
                waits: Waits | None = None) -> list[dict[str, int]]:
    """Some have most instructions of one kind. waits: of what stands before it, kept up to date."""
    waits = waits or Waits(Rules(unit))
    items = []
    kinds = list(KINDS) + r.choice([0, 0, 20]) * [r.choice(list(KINDS))]
    for _ in range(count):
        items.append(fitting(r, unit, r.choice(kinds), waits, sizes))
        waits.add(SimpleNamespace(**items[-1]))
    return items


def any_sizes(r: random.Random) -> dict[str, int]:
    return {name: r.choice([TOP, TOP - 1, r.randint(1 << 20, TOP), r.randint(1 << 28, TOP)])
            for name in ("inputs_beats", "outputs_beats", "weights_beats")}


async def fresh(dut) -> MlpConfig:
    start(dut)
    await clean(dut)
    return CONFIGS[os.environ["UNIT"]]


async def clean(dut) -> None:
    for name in ("start", "i__valid", "o_requests__ready", *(f"{name}__ready" for name in STREAMS)):
        getattr(dut, name).value = 0
    await reset(dut)

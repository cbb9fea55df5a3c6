"""Vectors for the C simulation: what the units and the kernel are given, and what the oracle makes of it.

A file is one list of little-endian 32-bit words, cases one behind the other; gen/hls/cpp/testbench.cpp reads them in
the order in which the functions here write them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.compiler.emb import Bags, Compiler
from gen.compiler.tables import SSD, CardImages, Table
from golden import tt
from golden.emb import bags, packer, pooling
from golden.emb.core import COUNTERS, Emb, Memory
from golden.emb.row_decoder import scaled
from golden.fp import fp32
from golden.fp.narrow import narrow, widen
from golden.hotline import lookup
from golden.hotline.logger import Logger
from golden.systolic import array as systolic
from golden.tt.block16 import rounded_cores
from golden.tt.load import Limits, Loader
from hw.isa import EMB
from hw.isa.emb import FORMAT

Words = NDArray[np.uint32]
#: What a word of the outputs is before a run.
UNTOUCHED = 0xC0DE5EED
PAGE = 4096
TIMEOUT = 50        # polls
HOSTILE = 8         # programs with a flipped bit in a file
#: What the oracle says of a run besides its counters.
STATUS = ("code", "instruction", "bag", "index", "detail", "released", "instructions_done")
CORNERS = np.array([0, 0x80000000, 1, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x7F7FFFFF,
                    0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x33800000, 0x477FF000, 0x38FFE000,
                    0x387FC000, 0x33000001, 0x42AEAC50, 0xC2AEAC50], np.uint32)


class Vectors:
    """A file of vectors that grows."""

    def __init__(self) -> None:
        self._parts: list[Words] = []

    def put(self, *values: ArrayLike) -> None:
        for value in values:
            array = np.asarray(value)
            if array.dtype == np.float32:
                array = array.view(np.uint32)
            self._parts.append(array.astype(np.int64).reshape(-1).astype(np.uint32))

    @property
    def data(self) -> bytes:
        return np.concatenate(self._parts or [np.zeros(0, np.uint32)]).astype("<u4").tobytes()


def words_of(random: np.random.Generator, shape: Any, wild: float = 0.02) -> Words:
    """Bit patterns of numbers of many sizes; wild: the share of corner values."""
    exponents = random.integers(100, 150, shape) if random.random() < 0.5 else random.integers(120, 130, shape)
    words = random.integers(0, 1 << 23, shape) | exponents << 23 | random.integers(0, 2, shape) << 31
    return np.where(random.random(shape) < wild, random.choice(CORNERS, shape), words).astype(np.uint32)


def vectors(cores: Mapping[str, Any], seed: int = 1) -> dict[str, bytes]:
    """The files of a preset's cores, by name. seed: of all that is drawn."""
    makers: dict[str, tuple[tuple[str, Callable[..., Vectors]], ...]] = {
        "emb": (("fp32", _fp32), ("pooling", _pooling), ("tt", _tt), ("emb", _emb)),
        "mlp": (("mlp", _mlp),), "hotline": (("hotline", _hotline),)}
    return {f"{name}.bin": make(np.random.default_rng([seed, number]), cores[core]).data
            for core, items in makers.items() if core in cores for number, (name, make) in enumerate(items)}


def _fp32(random: np.random.Generator, config: Any) -> Vectors:
    """{operation, a, b, c, expected}: add, maximum, reciprocal, narrow to both, widen, scaled."""
    out = Vectors()
    a = np.concatenate([np.repeat(CORNERS, len(CORNERS)), words_of(random, 2000)])
    b = np.concatenate([np.tile(CORNERS, len(CORNERS)), words_of(random, 2000)])
    near = random.random(len(b)) < 0.3
    b[441:][near[441:]] = a[441:][near[441:]] ^ random.integers(0, 16, int(near[441:].sum())).astype(np.uint32)
    n = random.integers(1, 1 << 16, len(a)).astype(np.uint32)
    half = random.integers(0, 1 << 16, len(a)).astype(np.uint32)
    code = random.integers(0, 256, len(a)).astype(np.uint32)
    zero = np.zeros(len(a), np.uint32)
    with np.errstate(all="ignore"):
        results = (
            (a, b, zero, fp32.add(a, b)), (a, b, zero, fp32.maximum(a, b)),
            (n, zero, zero, fp32.div(np.float32(1), n.astype(np.float32))),
            (a, zero, zero, narrow(a, "float16")), (a, zero, zero, narrow(a, "bfloat16")),
            (half, zero, zero, widen(half.astype(np.uint16), "float16")), (code, a, b, scaled(code, a, b)))
    for operation, columns in enumerate(results):
        bits: list[NDArray] = [np.asarray(each) for each in columns]
        bits = [each.view(np.uint32) if each.dtype == np.float32 else each for each in bits]
        out.put(np.stack([np.full(len(a), operation), *bits], axis=1))
    return out


# What the pooling unit is sent, as gen/hls/cpp/pooling.h numbers it.
_DRAM_ROW, _SSD_ROW, _TT_VECTOR, _BAG_END, _ALL_DONE = range(5)


def _pooling(random: np.random.Generator, config: Any) -> Vectors:
    """{maximum, row_beats, format, tokens, rows, vectors, beats of the results} and these."""
    out = Vectors()
    for mode in ("sum", "weighted", "mean", "max") * 3:
        beats, form = int(random.integers(1, config.row_beats_max + 1)), int(random.integers(0, 3))
        weighted = mode == "weighted"
        tokens: list[NDArray] = []
        rows, vectors_in, results = [], [], []
        for _ in range(4):
            kinds = random.integers(0, 3, int(random.choice([0, 1, 2, 9])))
            values = words_of(random, (len(kinds), beats * config.words), 0.01)
            weights = words_of(random, len(kinds), 0.01) if weighted else np.full(len(kinds), bags.ONE)
            mean = fp32.bits(fp32.div(np.float32(1), np.float32(max(len(kinds), 1)))) if mode == "mean" else bags.ONE
            of_tt = kinds == _TT_VECTOR
            tokens += [np.stack([kinds, weights, np.where(of_tt & weighted, weights, mean)], 1),
                       np.array([[_BAG_END, bags.ONE, mean]])]
            rows.append(values[~of_tt])
            vectors_in.append(values[of_tt])
            tiers = {name: kinds == kind for name, kind in (("chunk", _TT_VECTOR), ("dram", _DRAM_ROW),
                                                            ("ssd", _SSD_ROW))}
            vector = pooling.bag(*(values[mine] for mine in tiers.values()), mode="sum" if weighted else mode,
                                 **{f"{name}_weights": weights[mine] for name, mine in tiers.items() if weighted})
            results.append(packer.pack(vector[None], FORMAT(form), config.words))
        tokens.append(np.array([[_ALL_DONE, 0, 0]]))
        parts = [np.concatenate(each) for each in (tokens, rows, vectors_in, results)]
        out.put(int(mode == "max"), beats, form, len(parts[0]), len(parts[1]) * beats, len(parts[2]) * beats,
                parts[3].size // config.words, *parts)
    return out


#: Modes, columns and rank of tensor trains of each kind of layout, in a small unit and in one of side 4.
_SHAPES = {1: (((5, 5, 4), (2, 2, 4), 4), ((6, 6), (4, 4), 16), ((8, 8), (4, 4), 8), ((3, 5, 4, 5), (2, 2, 2, 4), 6),
               ((8, 12), (4, 4), 2), ((5, 4, 4), (2, 4, 8), 4), ((4, 4, 4), (4, 2, 2), 8)),
           2: (((7, 5, 6), (4, 4, 4), 4), ((9, 8), (4, 16), 16), ((6, 5, 7), (4, 4, 8), 16), ((5, 6, 4), (2, 8, 8), 8),
               ((3, 5, 4, 5), (4, 4, 4, 4), 8), ((6, 4, 5), (2, 2, 16), 32), ((6, 4, 5), (2, 2, 16), 8),
               ((4, 5, 4), (2, 4, 8), 8))}


def _cores(random: np.random.Generator, modes: Sequence[int], columns: Sequence[int], rank: int, wild: float = 0.0
           ) -> list[NDArray[np.float32]]:
    ranks = (1, *[rank] * (len(modes) - 1), 1)
    shapes = [(ranks[k], modes[k], columns[k], ranks[k + 1]) for k in range(len(modes))]
    return [np.where(random.random(shape) < wild, fp32.flush(random.choice(CORNERS, shape)),
                     random.standard_normal(shape).astype(np.float32)).astype(np.float32) for shape in shapes]


def _trains(random: np.random.Generator, unit: Any, wild: float) -> list[tuple[list[NDArray[np.float32]], bool]]:
    """(cores, whether block16) of the shapes that this unit takes."""
    limits, trains = Limits.of(unit), []
    for modes, columns, rank in _SHAPES[unit.grid_log2]:
        try:
            limits.layout(modes, columns, (1, *[rank] * (len(modes) - 1), 1))
        except ValueError:
            continue
        if not unit.block16_only:
            trains.append((_cores(random, modes, columns, rank, wild), False))
        if unit.grouped and (unit.block16_only or len(trains) % 2):
            trains.append((list(rounded_cores(_cores(random, modes, columns, rank))), True))
    return trains


def _tt(random: np.random.Generator, config: Any) -> Vectors:
    """Loads of a table {header, words}, {table, row_beats, lookups}, {row, ends} of each, and vectors."""
    out, unit = Vectors(), config.tt
    loader = Loader(Limits.of(unit))
    for cores, block16 in _trains(random, unit, 0.003):
        number, layout, beats = loader.add(cores, block16=block16)
        most = tt.chunk_rows(layout, rank_max=unit.rank_max, t_lines=unit.t_lines, t_middle_lines=unit.t_middle_lines)
        sizes = random.integers(1, most + 1, 12)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        rows = random.integers(0, layout.rows, offsets[-1])
        with np.errstate(all="ignore"):
            sums = tt.pooled(cores, rows, offsets, grid_log2=unit.grid_log2, grouped=unit.grouped)
        width = -(-layout.dim // config.words)
        vector = np.zeros((len(sums), width * config.words), np.float32)
        vector[:, :layout.dim] = sums
        ends = np.zeros(len(rows), np.int64)
        ends[offsets[1:] - 1] = 1
        out.put(len(beats))
        for beat in beats:
            out.put(beat.header, np.frombuffer(beat.data.to_bytes(4 * config.words, "little"), "<u4"))
        out.put(number, width, len(rows), np.stack([rows, ends], axis=1), len(vector), vector)
    return out


def emb_start(out: Vectors, rows: Words, ring_beats: int) -> None:
    """What all cases have in common: card memory, the ring, and the polls that a row may take."""
    out.put(UNTOUCHED, ring_beats, TIMEOUT, len(rows), rows)


def emb_case(out: Vectors, oracle: Emb, memory: Memory, *, page_beats: int, overfill: int = 0) -> int:
    """A program and what the oracle makes of it, with the state that both have kept; returns its code.

    memory: its `outputs` must be UNTOUCHED; they and `rows` become what the oracle leaves. overfill: beats behind the
    run's first position that the host says it has filled, more than the ring has, where it would have brought nothing.
    """
    rows_before = memory.rows.copy()
    instructions = len(memory.program) // 16
    words = oracle.words
    out.put(instructions, memory.program, len(memory.inputs) // words, memory.inputs, len(memory.outputs) // words)
    out.put(memory.landed_at, page_beats, overfill, len(memory.landed) // (page_beats * words), memory.landed)
    with np.errstate(all="ignore"):
        result = oracle.run(memory)
    if overfill and result.code == EMB.code("TIMEOUT"):     # the oracle knows no host
        result = replace(result, code=EMB.code("RING_OVERFLOW"), detail=memory.landed_at + overfill)
    block = result.counters | {name: getattr(result, name) for name in STATUS}
    out.put(len(STATUS) + 2 * len(COUNTERS))
    for name, value in block.items():
        at = 4 * EMB.value(name).word
        out.put(at, value & 0xFFFFFFFF, *([at + 4, value >> 32] if name in COUNTERS else []))
    changed = np.flatnonzero(memory.rows != rows_before)
    out.put(memory.outputs, len(changed), np.stack([changed, memory.rows[changed]], axis=1))
    return result.code


def _emb(random: np.random.Generator, config: Any) -> Vectors:
    """Batches of bags of tables in all memories and formats, compiled, and instructions that are not allowed."""
    out = Vectors()
    trains = _trains(random, config.tt, 0)
    tables, dims = [], []
    for number, (results, form) in enumerate((("float32", "float32"), ("bfloat16", "float16"), ("float16", "int8"),
                                              ("float32", "int4"), ("float32", "bfloat16"))):
        cores, block16 = trains[number % len(trains)]
        rows, dim = 200, int(np.prod([core.shape[2] for core in cores]))
        tables.append(Table.place(f"t{number}", random.standard_normal((rows, dim)).astype(np.float32),
                                  random.permutation(np.arange(rows) % 3), cores=cores, rank=random.permutation(rows),
                                  tt_row=random.integers(0, 16, rows), results=results, row_format=form,
                                  tt_format="block16" if block16 else "float32"))
        dims.append(dim)
    tables.append(Table.place("ssd", random.standard_normal((90, dims[0])).astype(np.float32), SSD))
    images = CardImages(tables, config, PAGE, {"t0": 20, "ssd": 10})
    ring_beats = 8 * images.page_beats
    compiler = Compiler(images, ring_beats=ring_beats)
    oracle, dram = Emb.of(config, images.cores), images.rows.reshape(-1).copy()
    emb_start(out, dram, ring_beats)

    def case(words: NDArray, inputs: NDArray, outputs_beats: int, pages: NDArray, overfill: int = 0) -> int:
        outputs = np.full(outputs_beats * config.words, UNTOUCHED, np.uint32)
        memory = Memory(words.reshape(-1), inputs.reshape(-1), outputs, dram, images.pages[pages].reshape(-1), 0,
                        ring_beats)
        return emb_case(out, oracle, memory, page_beats=images.page_beats, overfill=overfill)

    programs = [compiler.load()]
    for batch in range(4):
        requests = []
        for table in tables:
            offsets = np.concatenate([[0], np.cumsum(random.integers(0, 12, 6))])
            mode = ("sum", "mean", "max", "sum")[int(random.integers(4))]
            weights = random.standard_normal(offsets[-1]).astype(np.float32) if mode == "sum" and batch % 2 else None
            requests.append(Bags(table.name, random.integers(0, table.rows, offsets[-1]), offsets, weights, mode))
        program = compiler.compile(requests)
        compiler.commit(program)
        programs.append(program)
    for program in programs:
        if code := case(program.words, program.inputs, program.outputs_beats, program.pages):
            raise AssertionError(f"the oracle refuses a compiled program with code {code}")
    # The same programs with a bit that should not be there; not in what they release, which is whole pages.
    for number in range(HOSTILE):
        program = programs[1 + number % 4]
        words = program.words.copy()
        words[int(random.integers(len(words))), int(random.integers(15))] ^= np.uint32(1 << int(random.integers(32)))
        case(words, program.inputs, program.outputs_beats, program.pages)
    # A host that brings nothing, and one that says it has brought more than the ring holds.
    for overfill, ended in ((0, "TIMEOUT"), (ring_beats + 1, "RING_OVERFLOW")):
        program = programs[1]
        if case(program.words, program.inputs, program.outputs_beats, program.pages[:0], overfill) != EMB.code(ended):
            raise AssertionError(f"the oracle does not end in {ended}")
    return out


def _mlp(random: np.random.Generator, config: Any) -> Vectors:
    """{steps, activation, adds}, addends, rows (steps, ROWS, terms), columns (steps, COLUMNS, terms), results."""
    out = Vectors()
    for number in range(12):
        steps, activation, adds = int(random.integers(1, 40)), number % 3, int(number % 4 != 3)
        wild = 0.002 if number % 2 else 0.0
        x = words_of(random, (config.rows, steps * config.width), wild)
        y = words_of(random, (config.columns, steps * config.width), wild)
        addend = words_of(random, config.columns, wild)
        with np.errstate(all="ignore"):
            results = systolic.tiles(fp32.value(x), fp32.value(y).T, config.width, grouped=config.grouped)
            if adds:
                results = fp32.add(results, fp32.value(addend)[None])
            results = (results, fp32.maximum(results, np.float32(0)), fp32.sigmoid(results))[activation]
        out.put(steps, activation, adds, addend)
        out.put(x.reshape(config.rows, steps, -1).swapaxes(0, 1), y.reshape(config.columns, steps, -1).swapaxes(0, 1))
        out.put(results)
    return out


def _hotline(random: np.random.Generator, config: Any) -> Vectors:
    """{samples, words, indices, learn}, registers {first, rows, pinned}, samples, what becomes of them, cold, fault,
    and, of the last case, the logger's image."""
    out, logger = Vectors(), Logger(config.banks, config.sets, config.insert_log2, config.policy)
    positions, words = config.positions, config.words
    for number in range(10):
        indices = min(positions, 6)
        width = -(-indices // words) * words + (words if number % 2 else 0)
        registers = {position: lookup.Register(position * 500, 1 if position == 5 else 400 + position, position == 2)
                     for position in range(indices)}
        samples = random.integers(0, 1 << 32, (60, width)).astype(np.uint32)
        for position, register in registers.items():
            samples[:, position] = np.minimum(random.zipf(1.3, 60) - 1, register.rows - 1)
        samples[:, :indices][random.random((60, indices)) < 0.05] = lookup.NONE
        learn = number % 3 != 2
        if number == 9:     # nothing is learned from it: what the logger keeps of a run with a fault is not defined
            learn = False
            samples[30, 1] = registers[1].rows
        accesses, fault = lookup.accesses(samples, registers, indices=indices, words=words)
        hit, numbers = np.zeros(accesses.shape, bool), np.zeros(accesses.shape, np.int64)
        there = accesses >= 0
        hit[there], numbers[there] = logger.access(accesses[there], learn)
        translated, cold = lookup.translate(samples.reshape(-1, words)[:len(accesses)], accesses, hit, numbers)
        complete = len(accesses) * words // width     # samples before the one with the fault
        out.put(len(samples), width, indices, int(learn))
        for position in range(positions):
            item = registers.get(position, lookup.Register(0, 0))
            out.put(item.first, item.rows, int(item.pinned))
        out.put(samples, complete, translated.reshape(-1)[:complete * width])
        out.put(cold[:complete * (width // words)].reshape(complete, width // words).any(axis=1))
        out.put(*((1, fault.sample, fault.position, fault.value) if fault else (0, 0, 0, 0)), int(number == 9))
    out.put(logger.image, logger.counts)
    return out

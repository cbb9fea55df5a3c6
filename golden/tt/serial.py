"""SCRec's own TT unit: what it computes, how its memories are filled and how many cycles it takes.

Every product of the chain is an output-stationary matrix product on rows x columns plain multiply-accumulate
cells (SCRec §III.E, Alg. 1), tile after tile, product after product, lookup after lookup. Of a tile only the
live rows and columns are drained, which the paper does not say and which is to its favour.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from golden.fp import fp32
from golden.systolic import array as systolic
from golden.tt.rows import shape_of, split

_TERMS_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Product:
    """One product of the chain: m x k by k x n, n with its padding; a row of the left operand takes `stride`
    words of the intermediate.
    """

    m: int
    k: int
    n: int
    stride: int


@dataclass(frozen=True)
class Plan:
    """How a table of modes I, columns J and ranks R runs on an array of height x width cells."""

    modes: tuple[int, ...]
    columns: tuple[int, ...]
    ranks: tuple[int, ...]
    height: int
    width: int
    products: tuple[Product, ...]

    @property
    def dim(self) -> int:
        return prod(self.columns)

    @property
    def rows(self) -> int:
        return prod(self.modes)

    @property
    def beats(self) -> int:
        """Beats of `width` words of a vector."""
        return -(-self.dim // self.width)

    @property
    def macs(self) -> int:
        """Multiplications that the chain needs for a row, padding not counted."""
        inner = zip(self.ranks[1:], self.ranks[2:], strict=False)
        return sum(prod(self.columns[:k + 2]) * a * b for k, (a, b) in enumerate(inner))

    @property
    def ideal_cycles(self) -> int:
        """Cycles of a row if cells and memories answered at once: fill, run and drain of the live cells."""
        return sum(tiles * (k + 2 * m + n - 2) for tiles, k, m, n in self._tiles())

    @property
    def cycles(self) -> int:
        """Cycles of a row: to each tile's ideal come two of reading the memories, the cell's latency and the
        register in which sums rest.
        """
        fixed = 2 + systolic.pe_latency(1) + 1
        return sum(tiles * (k + 2 * m + n - 2 + fixed) for tiles, k, m, n in self._tiles())

    def _tiles(self):
        for step in self.products:
            m, n = min(step.m, self.height), min(step.n, self.width)
            yield (step.m // m) * (step.n // n), step.k, m, n


def _power_of_two(value: int) -> bool:
    return value & (value - 1) == 0


def _up(value: int) -> int:
    return 1 << (value - 1).bit_length()


def plan(modes, columns, ranks, *, height: int = 16, width: int = 32) -> Plan:
    """Raises ValueError for columns J that are no powers of two or a rank above `width`."""
    modes, columns, ranks = (tuple(int(v) for v in values) for values in (modes, columns, ranks))
    for k, value in enumerate(columns, start=1):
        if not _power_of_two(value):
            raise ValueError(f"J{k} is {value}; the serial unit's reshaping takes powers of two only")
    if max(ranks) > width:
        raise ValueError(f"rank {max(ranks)} is above {width}, the most that the serial unit takes")
    # A row of ranks is padded to a power of two, so that a row of the next product has a place of its own.
    strides = [max(_up(rank), width // height) for rank in ranks[1:-1]] + [1]
    products = tuple(
        Product(prod(columns[:p + 1]), ranks[p + 1], columns[p + 1] * strides[p + 1], strides[p])
        for p in range(len(columns) - 1))
    return Plan(modes, columns, ranks, height, width, products)


def rows(cores, indices) -> np.ndarray:
    """Rows `indices` of the table, (N, D) float32, bit for bit as the unit computes them: each element a
    chain of fused dot products, one term per beat, k ascending. A row number past the table reads row 0.
    """
    modes, columns, ranks = shape_of(cores)
    indices = np.asarray(indices, dtype=np.int64)
    inside = np.where((indices >= 0) & (indices < prod(modes)), indices, 0)
    unique, back = np.unique(inside, return_inverse=True)
    terms = max(prod(columns[:k + 1]) * ranks[k] * ranks[k + 1] for k in range(1, len(columns)))
    at_once = max(1, _TERMS_AT_ONCE // terms)
    done = [_rows(cores, unique[at:at + at_once], modes, ranks) for at in range(0, len(unique), at_once)]
    if not done:
        return np.zeros((0, prod(columns)), np.float32)
    return np.concatenate(done)[back.reshape(-1)]


def _rows(cores, indices, modes, ranks) -> np.ndarray:
    parts = split(indices, modes)
    chain = np.asarray(cores[0], np.float32)[0, parts[0]]
    for k in range(1, len(cores)):
        core = np.moveaxis(np.asarray(cores[k], np.float32)[:, parts[k]], 1, 0)
        product = systolic.tiles(chain, core.reshape(len(indices), ranks[k], -1), 1)
        chain = product.reshape(len(indices), -1, ranks[k + 1])
    return fp32.flush(chain.reshape(len(indices), -1))


@dataclass(frozen=True)
class Image:
    """A table as the unit's memories hold it.

    a: (lines, height) and c: (lines, width) uint32 words, to be written from lines a_base and c_base on.
    split, where, shape: the three parts of the descriptor, as numbers by field name.
    """

    plan: Plan
    a_base: int
    c_base: int
    a: np.ndarray
    c: np.ndarray
    split: dict[str, int]
    where: dict[str, int]
    shape: dict[str, object]


def image(cores, *, a_base: int = 0, c_base: int = 0, height: int = 16, width: int = 32) -> Image:
    """Lays cores out from the given lines on. Raises ValueError where they do not chain or fit no plan."""
    modes, columns, ranks = shape_of(cores)
    layout = plan(modes, columns, ranks, height=height, width=width)

    first = fp32.bits(np.asarray(cores[0], np.float32)[0])          # (I1, J1, R1)
    tiles = -(-columns[0] // height)
    tall = np.zeros((modes[0], tiles * height, ranks[1]), np.uint32)
    tall[:, :columns[0]] = first
    a = tall.reshape(modes[0], tiles, height, ranks[1]).swapaxes(2, 3).reshape(-1, height)

    names = {2: ("last",), 3: ("second", "last"), 4: ("second", "middle", "last")}[len(cores)]
    where = {"first": a_base, "first_stride": tiles * ranks[1]}
    sizes = {"rows": layout.rows, "last": 0, "middle": 0, "second": 0}
    lines, at = [], c_base
    for name, core, step in zip(names, cores[1:], layout.products, strict=True):
        words = np.moveaxis(fp32.bits(np.asarray(core, np.float32)), 1, 0)      # (I, R, J, R')
        mode, rank, column, after = words.shape
        stride = step.n // column
        padded = np.zeros((mode, rank, column, stride), np.uint32)
        padded[..., :after] = words
        tiles = -(-step.n // width)
        wide = np.zeros((mode, rank, tiles * width), np.uint32)
        wide[..., :step.n] = padded.reshape(mode, rank, step.n)
        lines.append(wide.reshape(mode, rank, tiles, width).swapaxes(1, 2).reshape(-1, width))
        where |= {name: at, f"{name}_stride": tiles * rank}
        sizes[name] = mode - 1
        at += len(lines[-1])
    shape = {
        "products": len(layout.products) - 1,
        "dim_log2": layout.dim.bit_length() - 1,
        "steps": [_step(step) for step in layout.products]
        + [{"less_one": 0, "m_log2": 0, "n_log2": 0, "stride_log2": 0}] * (3 - len(layout.products)),
    }
    return Image(layout, a_base, c_base, a, np.concatenate(lines), sizes, where, shape)


def _step(step: Product) -> dict[str, int]:
    return {"less_one": step.k - 1, "m_log2": step.m.bit_length() - 1, "n_log2": step.n.bit_length() - 1,
            "stride_log2": step.stride.bit_length() - 1}


def finish(plans: Sequence[Plan], *, index_bits: int, in_flight: int) -> list[int]:
    """The cycle in which each lookup's last beat is taken, counted from the one in which the first lookup is:
    lookups offered in every cycle, the vectors' consumer always ready.
    """
    split_cycles = 3 * index_bits + 5
    taken: list[int] = []       # lookup enters the splitter
    begun: list[int] = []       # leaves the queue behind it
    emptied: list[int] = []     # its last beat goes to the output register
    done = -1
    for i, item in enumerate(plans):
        taken.append(max(taken[-1] + 1 if taken else 0, begun[i - in_flight] + 1 if i >= in_flight else 0))
        free = emptied[i - 2] + 1 if i >= 2 else 0
        begun.append(max(taken[i] + split_cycles + 1, done, begun[-1] + 1 if begun else 0, free))
        done = begun[i] + item.cycles
        emptied.append(max(done + 1, emptied[-1] + 1 if emptied else 0) + item.beats - 1)
    return [cycle + 1 for cycle in emptied]

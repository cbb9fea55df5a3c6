"""Rows of a tensor-train table in the TT unit's exact order of operations."""


import numpy as np

from golden.fp import fp32, group_dot
from golden.tt import sums
from golden.tt.layout import Layout, check_shape, plan

_TERMS_AT_ONCE = 1 << 21
# Rows of a chunk at most: see hw.tt.sequencer.
MOST_ROWS = 8


def shape_of(cores) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(row modes I, column modes J, ranks R_0..R_d) of cores (R_{k-1}, I_k, J_k, R_k).

    Raises ValueError naming the first core that is not four-dimensional or does not chain.
    """
    for k, core in enumerate(cores):
        if np.ndim(core) != 4:
            raise ValueError(f"core {k + 1} has {np.ndim(core)} axes, a core has 4: (R, I, J, R')")
        if k and np.shape(core)[0] != np.shape(cores[k - 1])[3]:
            raise ValueError(f"core {k + 1} begins with rank {np.shape(core)[0]}, core {k} ends with "
                             f"rank {np.shape(cores[k - 1])[3]}")
    modes = tuple(int(np.shape(core)[1]) for core in cores)
    columns = tuple(int(np.shape(core)[2]) for core in cores)
    ranks = (int(np.shape(cores[0])[0]), *(int(np.shape(core)[3]) for core in cores))
    check_shape(modes, columns, ranks)
    return modes, columns, ranks


def split(indices, modes) -> tuple[np.ndarray, ...]:
    """(i_1, .., i_d) of row numbers i = ((i_1 I_2 + i_2) I_3 + i_3) ..; SCRec §III.E."""
    return np.unravel_index(np.asarray(indices, dtype=np.int64), modes)


def rows(cores, indices, *, grid_log2: int = 2, grouped: bool = False, layout: Layout | None = None) -> np.ndarray:
    """Rows `indices` of the table, (N, D) float32, as the unit computes them, bit for bit.

    Every element is a chain of fused dot products, k ascending: T_1 = G_1[i_1], T_k = T_{k-1} G_k[i_k]. They are those
    of golden.fp.fp32.dot, so many terms a beat as the layout of this shape has, or, grouped, of golden.fp.group_dot. A
    row number past the table reads row 0, as the unit does, which marks the vector besides.
    Raises ValueError where the cores do not chain.
    """
    offsets = np.arange(len(np.asarray(indices)) + 1)
    return pooled(cores, indices, offsets, grid_log2=grid_log2, grouped=grouped, layout=layout)


def pooled(cores, indices, offsets, *, grid_log2: int = 2, grouped: bool = False,
           layout: Layout | None = None) -> np.ndarray:
    """Sums of rows, (M, D) float32, bit for bit as a unit with pooling computes them.

    Chunk m has the rows indices[offsets[m]:offsets[m + 1]], at least one. The last product of a chunk is one fused
    dot product an element, over the terms of all its rows: beat after beat of the last core's rank, in a beat row
    after row (grouped, the order does not matter). A chunk of one row is that row as `rows` gives it.
    Raises ValueError where the cores do not chain or a chunk is empty.
    """
    layout = layout or plan(*shape_of(cores), grid_log2=grid_log2)
    indices, offsets = np.asarray(indices, dtype=np.int64), np.asarray(offsets, dtype=np.int64)
    sizes = np.diff(offsets)
    if len(sizes) and sizes.min() < 1:
        raise ValueError(f"chunk {int(sizes.argmin())} has {int(sizes.min())} rows, a chunk has at least 1")
    inside = np.where((indices >= 0) & (indices < layout.rows), indices, 0)
    if grouped and len(inside) and (fused := sums.pooled(cores, inside, offsets, layout)) is not None:
        return fused
    widths = [step.width for step in (layout.first, layout.middle, layout.last) if step]
    terms = max(layout.macs // max(widths), 1) * max(widths)
    out = np.zeros((len(sizes), layout.dim), dtype=np.float32)
    for size in np.unique(sizes):
        mine = np.flatnonzero(sizes == size)
        chunks, back = np.unique(inside[offsets[mine, None] + np.arange(size)], axis=0, return_inverse=True)
        step = max(1, _TERMS_AT_ONCE // (terms * int(size)))
        sums_of = _grouped_sums if grouped else _sums
        done = [sums_of(cores, chunks[at:at + step], layout, widths) for at in range(0, len(chunks), step)]
        out[mine] = np.concatenate(done)[back.reshape(-1)]
    return out


def chunk_rows(layout: Layout, *, rank_max: int, t_lines: int, t_middle_lines: int) -> int:
    """C: the most rows of this table that a unit with pooling adds up in one chunk, 1 to 8.

    rank_max, t_lines, t_middle_lines: the unit's, as in a preset. The accumulators grow by so many bits as the
    unit's longest dot product needs, and a chunk's intermediate products are in their buffers together.
    """
    grown = 1 << max(2 * layout.grid_log2, (rank_max - 1).bit_length())
    # As many terms as the longest dot product has, and as many beats.
    limits = [MOST_ROWS, grown // max(layout.ranks), (grown >> layout.grid_log2) // layout.last.beats]
    if layout.lines_2:
        limits.append(1 + t_lines // 4 // layout.lines_2)
    if layout.lines_3:
        limits.append(t_middle_lines // layout.lines_3)
    return max(1, min(limits))


def _factors(cores, chunks, layout: Layout):
    """(T_1 of every different row; which of these each of chunks[m, :] is; core k of every one of these as (rows,
    columns, rank))."""
    unique, back = np.unique(chunks, return_inverse=True)
    parts = split(unique, layout.modes)

    def factor(k: int) -> np.ndarray:
        core = np.moveaxis(np.asarray(cores[k], dtype=np.float32)[:, parts[k]], 1, 0)
        return np.moveaxis(core.reshape(len(unique), core.shape[1], -1), 1, 2)

    return np.asarray(cores[0], dtype=np.float32)[0, parts[0]], back.reshape(-1), factor


def _sums(cores, chunks, layout: Layout, widths) -> np.ndarray:
    """Sums of the rows chunks[m, :], one fused dot product an element."""
    count, size = chunks.shape
    chain, back, factor = _factors(cores, chunks, layout)
    for k, width in enumerate(widths[:-1], start=1):
        product = fp32.dot(chain[:, :, None, :], factor(k)[:, None, :, :], width)
        chain = product.reshape(len(chain), -1, layout.ranks[k + 1])
    left, right = (_in_turn(part[back].reshape(count, size, *part.shape[1:]), widths[-1])
                   for part in (chain, factor(len(widths))))
    sums = fp32.dot(left[:, :, None, :], right[:, None, :, :], widths[-1])
    return sums.reshape(count, layout.dim)


def _grouped_sums(cores, chunks, layout: Layout, widths) -> np.ndarray:
    """The same where operands share exponents: products are exact sums until the last one, which is rounded."""
    count, size = chunks.shape
    first, back, factor = _factors(cores, chunks, layout)
    chain = group_dot.of_words(first)
    for k in range(1, len(widths)):
        right = group_dot.of_words(factor(k))
        rank = layout.ranks[k + 1]
        product = group_dot.totals(_spread(chain, 2), _spread(right, 1), share=rank)
        sums = group_dot.Totals(*(part.reshape(len(first), -1, rank) for part in product))
        chain = group_dot.regroup(sums)

    def of_chunks(groups: group_dot.Groups) -> group_dot.Groups:
        """(rows, items, groups ..) to (M, items, rows of the chunk and groups ..)."""
        def one(part):
            part = np.moveaxis(part[back].reshape(count, size, *part.shape[1:]), 1, 2)
            return part.reshape(count, part.shape[1], -1, *part.shape[4:])
        return group_dot.Groups(*map(one, groups))

    left, right = of_chunks(chain), of_chunks(group_dot.of_words(factor(len(widths))))
    return group_dot.words(group_dot.totals(_spread(left, 2), _spread(right, 1))).reshape(count, layout.dim)


def _spread(groups: group_dot.Groups, axis: int) -> group_dot.Groups:
    """With a new axis to broadcast along."""
    return group_dot.Groups(*(np.expand_dims(part, axis) for part in groups))


def _in_turn(parts, width: int) -> np.ndarray:
    """(M, rows, items, rank) to (M, items, terms): beats of `width` terms, in each beat row after row."""
    count, size, items, rank = parts.shape
    beats = -(-rank // width)
    filled = np.zeros((count, size, items, beats * width), np.float32)
    filled[..., :rank] = parts
    return np.moveaxis(filled.reshape(count, size, items, beats, width), 1, 3).reshape(count, items, -1)

"""Tables with a placement, and their images: DRAM, tensor-train load, SSD pages.

A row lies in one of three places, as a remapped word {device[31:30], emb_idx[29:0]}: DRAM (0), the
tensor-train unit (1) or the SSD (2). Rows on the SSD are numbered by rank, the one looked up most first, so that
hot rows share pages and the row cache can go by the number alone. Source: SCRec §III.D; frequency-aware cache §4.2
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gen.data.remap import DEVICE_SHIFT, DRAM, ROWS_AT_MOST, SSD, TT, numbered
from gen.model.recommender import RESULTS, ROW_FORMATS, TT_FORMATS, whole_bytes
from gen.model.row_formats import RowError, fused_bytes, fused_dim, store
from gen.model.weights import Rows
from golden.emb import packer, row_decoder
from golden.emb.stripes import Stripes
from golden.tt import Limits, Loader, chunk_rows
from golden.tt.block16 import rounded_cores
from golden.tt.rows import shape_of

__all__ = ["DEVICE_SHIFT", "DRAM", "SSD", "TT", "CardImages", "Placed", "Table", "held_cores", "stripes"]

HEADERS = 16
BLOCK = 1 << 16     # rows that are put into an image at once


@dataclass(frozen=True, eq=False)
class Table:
    """One embedding table of `rows` rows of `dim` values.

    placement: (rows,) uint32, {device, emb_idx} of each row. dram: (n, dim) float32, the rows of device 0 by emb_idx.
    ssd: (m, dim), those of device 2 by emb_idx, which is their rank. row_format: in which both are stored, float32,
    float16, bfloat16, int8 or int4; the last two take rows of float32 or FBGEMM's (n, bytes) uint8. cores: of the
    tensor train whose row emb_idx is a row of device 1; their rows may be wider, to whole beats, of which the words
    behind the table's are not used. tt_format: in which they are stored, float32 or block16. results: the format of its
    pooled vectors in the outputs, float32, float16 or bfloat16.
    Raises      ValueError: a placement that points past what is there, arrays of other widths, or another format
    """

    name: str
    dim: int
    placement: NDArray[np.uint32]
    dram: NDArray | Rows
    ssd: NDArray | Rows
    cores: tuple[np.ndarray, ...] = ()
    results: str = RESULTS[0]
    row_format: str = ROW_FORMATS[0]
    tt_format: str = TT_FORMATS[0]

    def __post_init__(self) -> None:
        for name, allowed in (("results", RESULTS), ("row_format", ROW_FORMATS), ("tt_format", TT_FORMATS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"table {self.name}: {name} must be one of {', '.join(allowed)}, not "
                                 f"{getattr(self, name)!r}")
        if self.dim < 1:
            raise ValueError(f"table {self.name}: dim must be at least 1, not {self.dim}")
        if not whole_bytes(self.row_format, self.dim):
            raise ValueError(f"table {self.name}: dim must be even for rows of {self.row_format}, not {self.dim}")
        fused = fused_bytes(self.row_format, self.dim)
        for what in ("dram", "ssd"):
            rows = getattr(self, what)
            is_fused = rows.dtype == np.uint8
            if len(rows.shape) != 2 or rows.shape[1] != (fused if is_fused else self.dim):
                raise ValueError(f"table {self.name}: {what} must be (rows, {self.dim})"
                                 + (f", or uint8 (rows, {fused})" if fused else "")
                                 + f", not {'uint8 ' if is_fused else ''}{rows.shape}")
        if self.cores and self.tt_dim < self.dim:
            raise ValueError(f"table {self.name}: the cores' rows have {self.tt_dim} words, the table's {self.dim}")
        device, number = self.placement >> DEVICE_SHIFT, self.placement & (ROWS_AT_MOST - 1)
        if (device == 3).any():
            raise ValueError(f"table {self.name}, row {int(np.argmax(device == 3))}: device 3 does not exist")
        for place, name, there in ((DRAM, "DRAM", len(self.dram)), (TT, "the tensor train", self.tt_rows),
                                   (SSD, "the SSD", len(self.ssd))):
            past = (device == place) & (number >= there)
            if past.any():
                row = int(np.argmax(past))
                raise ValueError(f"table {self.name}, row {row}: is row {int(number[row])} of {name}, "
                                 f"which has {there}")

    @property
    def rows(self) -> int:
        return len(self.placement)

    @property
    def tt_dim(self) -> int:
        """Words of the tensor train's rows."""
        return int(np.prod(shape_of(self.cores)[1])) if self.cores else 0

    @property
    def tt_rows(self) -> int:
        return int(np.prod(shape_of(self.cores)[0])) if self.cores else 0

    def columns(self, part: slice) -> "Table":
        """Some columns of all rows. Raises ValueError: a tensor train, or rows with a scale, have no slices."""
        if self.cores or fused_bytes(self.row_format, self.dim):
            raise ValueError(f"table {self.name}: {'a tensor train' if self.cores else f'rows of {self.row_format}'} "
                             "cannot be cut into slices of columns")
        dram, ssd = (rows.columns(part) if isinstance(rows, Rows) else rows[:, part] for rows in (self.dram, self.ssd))
        return replace(self, dim=dram.shape[1], dram=dram, ssd=ssd)

    @classmethod
    def place(cls, name: str, values: ArrayLike, device: ArrayLike, *, cores: Sequence[np.ndarray] = (),
              rank: ArrayLike | None = None, tt_row: ArrayLike | None = None, results: str = RESULTS[0],
              row_format: str = ROW_FORMATS[0], tt_format: str = TT_FORMATS[0]) -> "Table":
        """A table out of all its rows and where each belongs.

        values: (rows, dim), or FBGEMM's rows of uint8 for int8 and int4; what stands in rows of the tensor train is
        not used. device: 0, 1 or 2, one a row or one for all. rank: of each row, 0 the hottest (default: as numbered).
        tt_row: the row of the tensor train that each row is (default: the first row on device 1 is row 0, and so on).
        results, row_format, tt_format: as above.
        """
        dense = np.asarray(values)
        is_fused = dense.dtype == np.uint8 and fused_bytes(row_format, 2) > 0
        dense = dense if is_fused else np.asarray(dense, np.float32)
        if dense.ndim != 2:
            raise ValueError(f"table {name}: values must be (rows, dim), not {dense.shape}")
        count = len(dense)
        where = np.broadcast_to(np.asarray(device, np.int64), (count,))
        if count and not 0 <= where.min() <= where.max() <= SSD:
            raise ValueError(f"table {name}: device must be 0, 1 or 2, not {int(where.min())} .. {int(where.max())}")
        order = np.arange(count) if rank is None else np.argsort(np.asarray(rank), kind="stable")
        dim = dense.shape[1]
        if is_fused:
            dim = fused_dim(row_format, dim)
        return cls(name, dim, numbered(where, order, tt_row), dense[order[where[order] == DRAM]],
                   dense[order[where[order] == SSD]], tuple(cores), results, row_format, tt_format)


def held_cores(cores: Sequence[np.ndarray], tt_format: str) -> tuple[np.ndarray, ...]:
    """As the tensor-train unit holds them. Raises ValueError: a value for which the format has no code"""
    return rounded_cores(cores) if tt_format == "block16" else tuple(cores)


def stripes(row_beats: int, stripe_beats: int, *, row_in_page: bool = False) -> Stripes:
    """How rows of so many beats are laid out in DRAM. row_in_page: the memory's address map keeps neighbouring lines in
    one page, so that no row is cut; else neighbouring lines lie in different banks:

    A row in pieces of p beats takes row_beats / p bursts and opens a page in each of p banks; one that is not cut is a
    burst and opens up to all. The shell has 16 bursts under way, some 65 million per second; about 120 million pages
    can be opened in a second; a port carries 250 million beats. So a burst counts as two pages and two beats as one,
    and the slowest of the three decides; the smaller piece where two are equal, which leaves pages to be opened
    meanwhile. On the simulated SmartSSD this is the fastest at every D from 16 to 512: rows of 4 beats in pieces of 2,
    those of 8, 16 and 32 in pieces of 4, those of 1 and 2 in one.
    """
    whole = Stripes(row_beats, 0, stripe_beats)
    if row_in_page:
        return whole
    cuts = [lies for p in range(1, min(row_beats, stripe_beats)) if (lies := whole._replace(piece_beats=p)).allowed]

    def cost(lies: Stripes) -> int:
        piece = lies.piece_beats or row_beats
        return max(2 * (row_beats // piece), min(piece, stripe_beats), -(-row_beats // 2))

    return min([*cuts, whole], key=cost)


@dataclass(frozen=True)
class Placed:
    """Where a table lies on the card; beats unless said.

    value_beats: of a row's values in float32. lies: its rows in DRAM, from dram_base on. dram_rows: its own, then
    `cache_rows` slots of the row cache. tt_cycles: of a lookup on the TT unit that shares no product with others.
    first_page, page_rows: on the SSD.
    """

    table: Table
    value_beats: int
    lies: Stripes
    dram_base: int
    dram_rows: int
    cache_rows: int
    tt_table: int
    chunk_rows: int
    tt_cycles: int
    tt_rows: int
    first_page: int
    page_rows: int

    @property
    def row_beats(self) -> int:
        """Of a row as it is stored."""
        return self.lies.row_beats

    @property
    def row_format(self) -> int:
        """As hw.isa numbers it."""
        return ROW_FORMATS.index(self.table.row_format)

    @property
    def format(self) -> int:
        """Of its vectors in the outputs, as hw.isa numbers it."""
        return RESULTS.index(self.table.results)

    @property
    def vector_beats(self) -> int:
        """Of each of them."""
        return packer.beats(self.value_beats, self.format)

    @property
    def own_rows(self) -> int:
        return self.dram_rows - self.cache_rows

    @property
    def dram_end(self) -> int:
        return self.dram_base + self.lies.beats(self.dram_rows)

    @property
    def dram_fields(self) -> dict[str, int]:
        """What an instruction says of its rows in DRAM."""
        return {"dram_base": self.dram_base, "dram_rows": self.dram_rows, "row_beats": self.value_beats,
                "row_format": self.row_format, "piece_beats": self.lies.piece_beats}

    def read(self, dram: NDArray[np.uint32], rows: NDArray) -> NDArray[np.uint32]:
        """(rows, words of a row) of the table, from an image (beats, words)."""
        return self.lies.read(dram[self.dram_base:self.dram_end], rows)

    def write(self, dram: NDArray[np.uint32], rows: NDArray, values: NDArray[np.uint32]) -> None:
        """Puts (rows, words of a row) of the table into an image."""
        self.lies.write(dram[self.dram_base:self.dram_end], rows, values)

    @property
    def pages(self) -> int:
        """On the SSD."""
        return -(-len(self.table.ssd) // self.page_rows)


@dataclass(eq=False)
class CardImages:
    """The images of a set of tables for one EMB core.

    tables: in any order, names differ. config: the core's EmbConfig. page_bytes: of the SSD. cache_rows: slots of
    the row cache, by table name; they begin filled with the table's hottest SSD rows. row_in_page: as `stripes` takes
    it. room: gives an array of zeros for the image called rows or pages; with `blank` they stay zeros, to measure time
    alone. stored: these two images, where they have been made before.
    rows: (beats, words) uint32, DRAM. load: (beats, words), the tensor-train load image of `load_beats`
    load beats. pages: (pages, words of a page), the SSD. cores: those loaded, as they are held, by their number in the
    unit.
    Raises      ValueError: one sentence that names the table and what does not fit
    """

    tables: Sequence[Table]
    config: object
    page_bytes: int = 4096
    cache_rows: Mapping[str, int] = field(default_factory=dict)
    row_in_page: bool = field(default=False, kw_only=True)
    room: Callable[[str, tuple[int, int]], NDArray[np.uint32]] | None = None
    stored: Mapping[str, NDArray[np.uint32]] | None = None
    blank: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        config = self.config
        self.words: int = config.words                              # type: ignore[attr-defined]
        self.row_beats_max: int = config.row_beats_max              # type: ignore[attr-defined]
        unit = config.tt                                            # type: ignore[attr-defined]
        names = [table.name for table in self.tables]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two tables are called {name}")
        for name in self.cache_rows:
            if name not in names:
                raise ValueError(f"cache_rows names {name!r}; there are {', '.join(names) or 'no tables'}")
        if self.page_bytes < 4 * self.words or self.page_bytes % (4 * self.words):
            raise ValueError(f"page_bytes must be a multiple of the beat's {4 * self.words} bytes, "
                             f"not {self.page_bytes}")
        loader = Loader(Limits.of(unit))
        self.cores: list[tuple[np.ndarray, ...]] = []
        self.placed: dict[str, Placed] = {}
        beats: list = []
        row_beats = page_count = 0
        for table in self.tables:
            placed = self._place(table, row_beats, page_count)
            if table.cores:
                try:
                    cores = held_cores(table.cores, table.tt_format)
                    number, layout, load = loader.add(cores, block16=table.tt_format == "block16")
                except ValueError as error:
                    raise ValueError(f"table {table.name}: {error}") from None
                beats += load
                chunk = chunk_rows(layout, rank_max=unit.rank_max, t_lines=unit.t_lines,
                                   t_middle_lines=unit.t_middle_lines)
                placed = Placed(**{**placed.__dict__, "tt_table": number, "chunk_rows": chunk,
                                   "tt_cycles": -(-layout.slots // unit.lanes)})
                self.cores.append(cores)
            self.placed[table.name] = placed
            row_beats = placed.dram_end
            page_count += placed.pages
        if row_beats >= 1 << 32:
            raise ValueError(f"the tables take {row_beats} beats of DRAM; offsets have 32 bits")
        self.load_beats = len(beats)
        self.load: NDArray[np.uint32] = self._load_image(beats)
        shapes = {"rows": (row_beats, self.words), "pages": (page_count, self.page_bytes // 4)}
        if self.stored is not None:
            for name, shape in shapes.items():
                if self.stored[name].shape != shape:
                    raise ValueError(f"the image {name} must have the shape {shape}, not {self.stored[name].shape}")
            images = dict(self.stored)
        else:
            room = self.room or (lambda name, shape: np.zeros(shape, np.uint32))
            images = {name: room(name, shape) for name, shape in shapes.items()}
        self.rows: NDArray[np.uint32] = images["rows"]
        self.pages: NDArray[np.uint32] = images["pages"]
        if self.stored is None and not self.blank:
            for placed in self.placed.values():
                self._fill_rows(placed)
                self._fill_pages(placed)

    @property
    def page_beats(self) -> int:
        return self.page_bytes // (4 * self.words)

    def changed(self, placements: Mapping[str, NDArray[np.uint32]],
                parts: Mapping[str, tuple[NDArray[np.int64], NDArray[np.uint32]]]) -> "CardImages":
        """The same tables, those named with other placements, their rows where these say. parts: what changes in the
        images called rows and pages: (beats or pages, what they become)."""
        stored = {}
        for name, (at, values) in parts.items():
            stored[name] = np.array(getattr(self, name))
            stored[name][at] = values
        tables = [replace(table, placement=placements.get(table.name, table.placement)) for table in self.tables]
        return replace(self, tables=tables, stored=stored)

    def _place(self, table: Table, at: int, page: int) -> Placed:
        values = -(-table.dim // self.words)
        if values > self.row_beats_max:
            raise ValueError(f"table {table.name}: rows of {table.dim} words take {values} beats, this core takes "
                             f"{self.row_beats_max}")
        b = row_decoder.beats(values, ROW_FORMATS.index(table.row_format))
        if table.cores and -(-table.tt_dim // self.words) != values:
            raise ValueError(f"table {table.name}: rows of the tensor train have {table.tt_dim} words, "
                             f"which are not as many beats as the {table.dim} of the table's")
        if b > self.page_beats and len(table.ssd):
            raise ValueError(f"table {table.name}: a row of {4 * b * self.words} bytes does not fit a page of "
                             f"{self.page_bytes}")
        cache = min(self.cache_rows.get(table.name, 0), len(table.ssd))
        if cache < 0:
            raise ValueError(f"table {table.name}: cache_rows must be 0 or more, not {cache}")
        dram = len(table.dram) + cache
        if max(dram, len(table.ssd)) > ROWS_AT_MOST:
            raise ValueError(f"table {table.name}: {max(dram, len(table.ssd))} rows are more than 2**{DEVICE_SHIFT}")
        lies = stripes(b, self.config.stripe_beats, row_in_page=self.row_in_page)   # type: ignore[attr-defined]
        if lies.piece_beats:
            at = -(-at // lies.stripe_beats) * lies.stripe_beats
        return Placed(table, values, lies, at, dram, cache, 0, 1, 0, table.tt_rows, page, max(self.page_beats // b, 1))

    def _fill_rows(self, placed: Placed) -> None:
        """Rows as whole beats: the table's own, then the cache's first."""
        for at, device, count in ((0, DRAM, placed.own_rows), (placed.own_rows, SSD, placed.cache_rows)):
            for start in range(0, count, BLOCK):
                end = min(count, start + BLOCK)
                placed.write(self.rows, np.arange(at + start, at + end), self._stored(placed.table, device, start, end))

    def _stored(self, table: Table, device: int, start: int, end: int) -> NDArray[np.uint32]:
        """(rows, words) of some of a table's rows in DRAM or on the SSD."""
        try:
            return store((table.dram if device == DRAM else table.ssd)[start:end], table.row_format, self.words)
        except RowError as error:
            row = np.flatnonzero(table.placement == (device << DEVICE_SHIFT | start + error.row))
            raise ValueError(f"table {table.name}, row {int(row[0])}: {error}") from None

    def _fill_pages(self, placed: Placed) -> None:
        """Rows as pages: none crosses a page's end."""
        table, width, rows = placed.table, placed.row_beats * self.words, placed.page_rows
        step = max(1, BLOCK // rows)
        for start in range(0, placed.pages, step):
            end = min(placed.pages, start + step)
            stored = self._stored(table, SSD, start * rows, min(end * rows, len(table.ssd)))
            held = np.zeros(((end - start) * rows, width), np.uint32)
            held[:len(stored)] = stored
            self.pages[placed.first_page + start:placed.first_page + end, :rows * width] = held.reshape(end - start, -1)

    def _load_image(self, beats: Sequence) -> NDArray[np.uint32]:
        """Groups of a block of 16 header words and up to 16 load beats."""
        block = -(-HEADERS // self.words)
        parts = []
        for start in range(0, len(beats), HEADERS):
            group = beats[start:start + HEADERS]
            header = np.zeros(block * self.words, np.uint32)
            header[:len(group)] = [beat.header for beat in group]
            data = b"".join(beat.data.to_bytes(4 * self.words, "little") for beat in group)
            parts += [header, np.frombuffer(data, "<u4")]
        flat = np.concatenate(parts) if parts else np.zeros(0, np.uint32)
        return flat.astype(np.uint32).reshape(-1, self.words)

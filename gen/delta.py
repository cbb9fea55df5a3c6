"""Deltas: what changes in a bundle when its rows change places, in one checked folder (gen.base.members).

    manifest.json                       which bundle it changes, and the digest of every member
    plan.json                           the plan from then on
    tables/K.rows.npy, K.words.npy      (n,) int64 ascending rows of the plan's table K, and their new words
    cardN/beats.npy, rows.npy           (n,) int64 beats of EMB card N's DRAM image, and (n, words) what they become
    cardN/numbers.npy, pages.npy        (n,) int64 pages of its SSD, and (n, words of a page) what they become

`write` makes one from a bundle and what gen.planner.refresh found; all rows come from the bundle's own images, in
whatever format they are stored. A delta fits one state of a bundle: as it was written, or as a delta has left it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gen import bundle as bundles
from gen.base.kept import digest
from gen.base.members import MANIFEST, Folder, Writer
from gen.base.sealed import made, understood
from gen.bundle import Bundle
from gen.compiler.tables import DEVICE_SHIFT, DRAM, SSD, CardImages, Placed
from gen.data.remap import ROWS_AT_MOST
from gen.planner.plan import FILE, Plan

KIND, VERSION = "delta", 1
BLOCK = 1 << 14     # entries that are copied at once
#: Members that say where, and those that say what.
PAIRS = ((".rows.npy", ".words.npy"), ("/beats.npy", "/rows.npy"), ("/numbers.npy", "/pages.npy"))


@dataclass(frozen=True, eq=False)
class CardChange:
    """Of one EMB card: beats (n,) of its DRAM image and rows (n, words), what they become; numbers (m,) of its pages
    and pages (m, words of a page), what these become. Both ascend."""

    beats: NDArray[np.int64]
    rows: NDArray[np.uint32]
    numbers: NDArray[np.int64]
    pages: NDArray[np.uint32]


class Delta(Folder):
    """One that has been written. base: state of the bundle that it changes; state: the one that it leaves; plan: from
    then on.

    Raises      ValueError: no delta, another version, a member that is missing or has changed
    """

    def __init__(self, folder: str | Path):
        super().__init__(folder, KIND, VERSION)
        self.plan, self.state = Plan.load(self.path(FILE)), digest(self.folder / MANIFEST)
        with understood(KIND, self.folder / MANIFEST):
            self.base = made(str, self.content["base"], "base")
            self._check_members()

    def _check_members(self) -> None:
        """Raises an error that `understood` turns into a sentence: arrays that do not belong together."""
        for name, values in ((name, name.removesuffix(end) + other) for name in self.members for end, other in PAIRS
                             if name.endswith(end)):
            where, what = self.array(name), self.array(values)
            if where.dtype != np.int64 or where.ndim != 1 or what.dtype != np.uint32 or len(what) != len(where):
                raise ValueError(f"{name} is {where.dtype} of shape {where.shape}, {values} {what.dtype} of shape "
                                 f"{what.shape}")
            if len(where) and (where[0] < 0 or (np.diff(where) <= 0).any()):
                raise ValueError(f"{name} does not ascend from 0 on")

    def check(self, state: str) -> None:
        """Raises ValueError: the delta is of another state"""
        if state != self.base:
            raise ValueError(f"{self.folder} changes another bundle, or another state of it than this one")

    def words(self, table: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """(rows, their words) that change in the plan's table of that number."""
        name = f"tables/{table}"
        if f"{name}.rows.npy" not in self:
            return np.zeros(0, np.int64), np.zeros(0, np.uint32)
        return self.array(f"{name}.rows.npy"), self.array(f"{name}.words.npy")

    @property
    def cards(self) -> tuple[int, ...]:
        """Numbers of those whose images change."""
        return tuple(number for number in range(len(self.plan.cards)) if f"card{number}/beats.npy" in self)

    def change(self, card: int) -> CardChange:
        return CardChange(*(self.array(f"card{card}/{name}.npy") for name in ("beats", "rows", "numbers", "pages")))


def write(folder: str | Path, bundle: Bundle, plan: Plan, words: Mapping[str, NDArray[np.uint32]]) -> Delta:
    """Makes the delta to a plan of the same cards and rows of each memory, whole or not at all. words: of all rows of
    each table in which rows change places, from DRAM to the SSD and back.

    Raises      ValueError: it cannot be written there
    """
    with Writer(folder, KIND, VERSION) as writer:
        writer.file(FILE, plan.data())
        changed = {}
        for name, new in words.items():
            rows = np.flatnonzero(new != bundle.words(name))
            writer.array(f"tables/{bundle.tables[name]['number']}.rows.npy", rows)
            writer.array(f"tables/{bundle.tables[name]['number']}.words.npy", new[rows])
            changed[name] = new
        for card in bundle.emb_cards:
            images = bundle.images(card)
            if mine := [name for name in changed if name in images.placed]:
                change = _change(images, {name: changed[name] for name in mine})
                for what in ("beats", "rows", "numbers", "pages"):
                    writer.array(f"card{card}/{what}.npy", getattr(change, what))
        writer.finish({"base": bundle.state})
    return Delta(folder)


def _change(images: CardImages, words: Mapping[str, NDArray[np.uint32]]) -> CardChange:
    """words: of all rows of the tables that change."""
    beats, rows = [np.zeros(0, np.int64)], [np.zeros((0, images.words), np.uint32)]
    slots: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]] = []
    for name, new in words.items():
        placed, old = images.placed[name], images.placed[name].table.placement
        moved = np.flatnonzero(new != old)
        stored = _stored(images, placed, old[moved])
        there, at = new[moved] >> DEVICE_SHIFT, (new[moved] & (ROWS_AT_MOST - 1)).astype(np.int64)
        dram, ssd = there == DRAM, there == SSD
        beats.append((placed.dram_base + placed.lies.beats_of(at[dram])).reshape(-1))
        rows.append(stored[dram].reshape(-1, images.words))
        slots.append((placed.first_page + at[ssd] // placed.page_rows, at[ssd] % placed.page_rows, stored[ssd]))
    order = np.argsort(every := np.concatenate(beats), kind="stable")
    numbers = np.unique(np.concatenate([page for page, _, _ in slots]))
    pages = images.pages[numbers]
    for page, slot, stored in slots:
        width = stored.shape[1]
        pages[np.searchsorted(numbers, page)[:, None], slot[:, None] * width + np.arange(width)] = stored
    return CardChange(every[order], np.concatenate(rows)[order], numbers, pages)


def _stored(images: CardImages, placed: Placed, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """(n, words of a row) of rows of a table as they lie in DRAM or on the SSD."""
    width = placed.row_beats * images.words
    found = np.empty((len(words), width), np.uint32)
    there, at = words >> DEVICE_SHIFT, (words & (ROWS_AT_MOST - 1)).astype(np.int64)
    found[there == DRAM] = placed.read(images.rows, at[there == DRAM])
    cold = at[there == SSD]
    found[there == SSD] = images.pages[(placed.first_page + cold // placed.page_rows)[:, None],
                                       (cold % placed.page_rows * width)[:, None] + np.arange(width)]
    return found


def apply(folder: str | Path, bundle: Bundle, delta: Delta) -> Bundle:
    """Writes the bundle that the delta leaves, whole or not at all.

    Raises      ValueError: the delta is of another bundle; it cannot be written there
    """
    delta.check(bundle.state)
    words = {f"tables/{told['number']}.words.npy": delta.words(told["number"]) for told in bundle.tables.values()}
    changed = {name: change for name, change in words.items() if len(change[0])}
    for card in delta.cards:
        change = delta.change(card)
        changed |= {f"card{card}/rows.npy": (change.beats, change.rows),
                    f"card{card}/pages.npy": (change.numbers, change.pages)}
    with Writer(folder, bundles.KIND, bundles.VERSION) as writer:
        for name in bundle.members:
            if name == FILE:
                writer.file(name, delta.plan.data())
            elif not name.endswith(".npy"):
                writer.file(name, bundle.path(name).read_bytes())
            else:
                old = bundle.array(name)
                new = writer.room(name, old.shape, old.dtype)
                for start in range(0, len(old), BLOCK):
                    new[start:start + BLOCK] = old[start:start + BLOCK]
                if name in changed:
                    new[changed[name][0]] = changed[name][1]
        writer.finish({key: bundle.content[key] for key in ("preset", "weights", "tables")} | {"state": delta.state})
    return Bundle(folder)

"""fpga.card.feed: pages from files and arrays into a ring, with a thread that plays the core."""

import errno
import mmap
import os
import random
import threading
import time
import warnings

import numpy as np
import pytest

from fpga.card import CardError, feed
from fpga.card.feed import ArraySource, Feed, FileSource, start_position

PAGE, BEAT = 4096, 64
BEATS = PAGE // BEAT
POSITIONS = 1 << 30


def positions(count, first=0, page_beats=BEATS, gaps=None):
    """Ring positions of `count` pages, with gaps of whole pages where asked for."""
    at, out = first, []
    for number in range(count):
        out.append(at % POSITIONS)
        at += page_beats * (1 + (gaps[number] if gaps else 0))
    return out


class Play:
    """Memory of a card, and a core that looks at every page when it is announced and then releases it."""

    def __init__(self, content, pages, places, *, page_bytes=PAGE, ring_pages=8, seed=1, slow=0.0):
        self.content, self.page_bytes, self.slow = content, page_bytes, slow
        self.transfers = np.array([pages, places], np.uint64).T.copy()
        self.map = mmap.mmap(-1, ring_pages * page_bytes)       # page aligned, as O_DIRECT asks
        self.ring = memoryview(self.map)
        self.words = memoryview(bytearray(8)).cast("I")
        self.random = random.Random(seed)
        self.words[0] = self.words[1] = start_position(self.transfers)
        self.seen, self.wrong, self.stop, self.ahead = 0, [], False, 0
        self.thread = threading.Thread(target=self.work, daemon=True)

    def feed(self, source, depth=8):
        return Feed(source, self.transfers, page_bytes=self.page_bytes, beat_bytes=BEAT, ring=self.ring,
                    progress=self.words[:1], doorbell=self.words[1:], depth=depth)

    def work(self):
        beats = self.page_bytes // BEAT
        places = self.transfers[:, 1].tolist()
        while self.seen < len(places) and not self.stop:
            filled, start = self.words[1], self.words[0]
            # All pages that are announced, then a random number of them is given back at once.
            end = self.seen
            while end < len(places) and (filled - places[end] - beats) % POSITIONS < POSITIONS // 2:
                if (places[end] + beats - start) % POSITIONS > len(self.ring) // BEAT:
                    self.wrong.append(f"page {end} is announced past what is free")
                end += 1
            if end == self.seen:
                time.sleep(0)
                continue
            end = self.random.randint(self.seen + 1, end)
            for number in range(self.seen, end):
                at = places[number] * BEAT % len(self.ring)
                first = int(self.transfers[number, 0]) * self.page_bytes
                if bytes(self.ring[at : at + self.page_bytes]) != self.content[first : first + self.page_bytes]:
                    self.wrong.append(f"page {number} is not what the drive has")
                self.ring[at : at + self.page_bytes] = bytes(self.page_bytes)
            time.sleep(self.slow * self.random.random())
            self.seen = end
            self.words[0] = (places[end - 1] + beats) % POSITIONS

    def run(self, source, depth=8, timeout=60):
        it = self.feed(source, depth)
        self.thread.start()
        it.start()
        end = time.monotonic() + timeout
        while self.thread.is_alive() and it.error is None and time.monotonic() < end:
            self.thread.join(0.01)
        self.stop = it.error is not None
        it.stop()
        return it


def until(condition, timeout=20):
    end = time.monotonic() + timeout
    while not condition() and time.monotonic() < end:
        time.sleep(0.0005)


def data(pages, page_bytes=PAGE, seed=1):
    return random.Random(seed).randbytes(pages * page_bytes)


@pytest.fixture
def drive(tmp_path):
    def made(content):
        path = tmp_path / "pages"
        path.write_bytes(content)
        return path
    return made


@pytest.mark.parametrize("page_bytes, depth, ring_pages, first, slow", [
    (PAGE, 8, 8, 0, 0.0),
    (PAGE, 1, 2, 640, 0.0),                         # one at a time through the smallest ring that overlaps
    (4 * PAGE, 64, 4, 0, 0.0005),                   # a slow core: credit is what bounds
    (PAGE, 16, 8, POSITIONS - 40 * BEATS, 0.0002),  # ring positions pass 2**30
])
def test_every_page_of_a_file_at_its_place(drive, page_bytes, depth, ring_pages, first, slow):
    content = data(64, page_bytes)
    pages = [random.Random(5).randrange(64) for _ in range(300)]
    play = Play(content, pages, positions(300, first, page_bytes // BEAT), page_bytes=page_bytes,
                ring_pages=ring_pages, slow=slow)
    source = FileSource(drive(content))
    it = play.run(source, depth)
    source.close()
    assert not play.wrong and it.error is None and play.seen == it.landed == 300 and it.done
    assert play.words[1] == (int(play.transfers[-1, 1]) + page_bytes // BEAT) % POSITIONS
    if slow:
        assert it.credit_waits > 0


def test_gaps_between_positions(drive):
    content = data(16)
    gaps = [random.Random(n).randrange(3) for n in range(100)]
    play = Play(content, [n % 16 for n in range(100)], positions(100, gaps=gaps))
    it = play.run(FileSource(drive(content)))
    assert not play.wrong and it.error is None and play.seen == 100


def test_positions_begin_again_at_nought():
    """The last page ends at 2**30 to the beat: what the core reads is 0."""
    content = data(4)
    play = Play(content, [0, 1, 2, 3], positions(4, POSITIONS - 4 * BEATS))
    it = play.run(ArraySource(np.frombuffer(content, np.uint8)))
    assert not play.wrong and it.done and play.words[1] == 0


def test_an_array_feeds_the_same_ring():
    content = data(16)
    play = Play(content, [n * 7 % 16 for n in range(120)], positions(120))
    it = play.run(ArraySource(np.frombuffer(content, np.uint32)))
    assert not play.wrong and it.error is None and play.seen == 120


def test_nothing_lands_without_credit(drive):
    """The core releases nothing: as many pages as the ring has land, and no more."""
    content = data(16)
    play = Play(content, list(range(16)), positions(16), ring_pages=4)
    it = play.feed(FileSource(drive(content)), depth=64)
    it.start()
    until(lambda: it.landed == 4 and it.credit_waits > 10)
    assert it.landed == 4 and play.words[1] == 4 * BEATS and it.credit_waits > 10
    assert bytes(play.ring) == content[: 4 * PAGE]
    play.words[0] = 2 * BEATS       # two pages are given back
    until(lambda: it.landed == 6)
    it.stop()
    assert it.landed == 6 and not it.done and it.error is None
    assert bytes(play.ring) == content[4 * PAGE : 6 * PAGE] + content[2 * PAGE : 4 * PAGE]
    it.stop()


def test_more_may_be_released_than_has_landed():
    """The pages up to there land nevertheless, and as many behind it as the ring has."""
    content = data(16)
    play = Play(content, list(range(16)), positions(16), ring_pages=4)
    play.words[0] = 9 * BEATS
    it = play.feed(ArraySource(np.frombuffer(content, np.uint8)), depth=1)
    it.start()
    until(lambda: it.landed == 13 and it.credit_waits > 3)
    it.stop()
    assert it.landed == 13 and play.words[1] == 13 * BEATS and it.credit_waits > 3


class Slow:
    """A source whose reads end in another order than they began; counts how many are under way. The first `together`
    go on when all of them have begun."""

    def __init__(self, content, wrong=None, together=1):
        self.content, self.bytes, self.wrong = content, len(content), wrong
        self.now = self.most = self.begun = 0
        self.lock, self.barrier = threading.Lock(), threading.Barrier(together)

    def read(self, into, offset):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.begun += 1
            is_early = self.begun <= self.barrier.parties
        if is_early:
            self.barrier.wait(30)
        time.sleep(0.003 if offset // PAGE % 4 == 0 else 0.0005)
        into[:] = self.content[offset : offset + len(into)]
        with self.lock:
            self.now -= 1
        if self.wrong == offset // PAGE:
            raise CardError("page 9 fell off the drive")

    def close(self):
        pass


@pytest.mark.parametrize("depth", [1, 4, 8])
def test_depth_bounds_the_reads_under_way(depth):
    content = data(32)
    play = Play(content, list(range(32)) * 3, positions(96), ring_pages=32)
    source = Slow(content, together=depth)
    it = play.run(source, depth)
    assert not play.wrong and it.error is None and play.seen == 96
    assert source.most == depth


def test_an_error_ends_the_feed_before_its_page():
    content = data(32)
    play = Play(content, list(range(32)), positions(32), ring_pages=32)
    it = play.run(Slow(content, wrong=9), 8)
    assert str(it.error) == "page 9 fell off the drive"
    assert it.landed == 9 and play.words[1] == 9 * BEATS and not play.wrong


def test_any_other_error_is_told_too():
    play = Play(data(4), [0, 1], positions(2))
    it = play.run(ArraySource(np.zeros(5000, np.uint8)))
    assert "the SSD's pages stopped: ValueError" in str(it.error) and it.landed == 1


def test_stop_waits_for_reads_under_way():
    content = data(8)
    play = Play(content, list(range(8)), positions(8))
    source = Slow(content, together=4)
    it = play.feed(source)
    it.start()
    until(lambda: source.now >= 4 or source.begun == 8)
    it.stop()
    assert source.begun >= 4 and source.now == 0, "nothing writes into the ring any more"


def test_a_feed_that_was_not_started_stops():
    it = Play(data(4), [0, 1], positions(2)).feed(ArraySource(np.zeros(4 * PAGE, np.uint8)))
    it.stop()
    assert it.landed == 0 and not it.done


def test_threads_that_cannot_be_had(monkeypatch):
    content = data(8)
    it = Play(content, list(range(8)), positions(8)).feed(ArraySource(np.frombuffer(content, np.uint8)))
    true, started = threading.Thread.start, []

    def start(thread):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        true(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(CardError, match="^thread 2 of 8 that bring the SSD's pages cannot be started: can't start new"):
        it.start()
    it.stop()
    assert not any(thread.is_alive() for thread in started)


class Seen:
    """Memory that notes what is done to it, under a name."""

    def __init__(self, memory, notes, name):
        self.memory, self.notes, self.name = memory, notes, name

    def __len__(self):
        return len(self.memory)

    def __getitem__(self, at):
        if isinstance(at, slice):
            return Seen(self.memory[at], self.notes, at.start // PAGE)
        self.notes.append((self.name, "read", at))
        return self.memory[at]

    def __setitem__(self, at, value):
        self.notes.append((self.name, "written", at if isinstance(at, int) else "whole"))
        self.memory[at] = value


def test_the_end_of_a_page_is_read_before_it_is_announced():
    content, notes = data(4), []
    play = Play(content, [2, 0], positions(2))
    play.ring, doorbell = Seen(play.ring, notes, "ring"), Seen(play.words[1:], notes, "doorbell")
    it = Feed(ArraySource(np.frombuffer(content, np.uint8)), play.transfers, page_bytes=PAGE, beat_bytes=BEAT,
              ring=play.ring, progress=play.words[:1], doorbell=doorbell, depth=1)
    it.start()
    until(lambda: it.done)
    it.stop()
    bell = [("doorbell", "written", 0), ("doorbell", "read", 0)]
    assert notes == [(0, "written", "whole"), (0, "read", -1), *bell, (1, "written", "whole"), (1, "read", -1), *bell]


# Files that misbehave

def reading(monkeypatch, answers):
    """os.preadv that answers what the test says: a number cuts the read short, an errno fails it."""
    true, left = os.preadv, list(answers)

    def preadv(file, buffers, offset):
        answer = left.pop(0) if left else None
        if answer is None:
            return true(file, buffers, offset)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))
        count = min(answer, true(file, buffers, offset))
        buffers[0][count:] = b"?" * (len(buffers[0]) - count)
        return count

    monkeypatch.setattr(feed.os, "preadv", preadv)
    return left


@pytest.mark.parametrize("direct, answers", [
    (True, [4096, None]), (True, [8192, 4096, None]), (True, [5000, None]), (False, [5000, 1, 17, None])])
def test_short_reads_are_gone_on_with(monkeypatch, drive, direct, answers):
    content = data(4, 4 * PAGE)
    path = drive(content)
    left = reading(monkeypatch, answers)
    source = FileSource(path, direct)
    into = memoryview(mmap.mmap(-1, 4 * PAGE))
    source.read(into, 8 * PAGE)
    assert bytes(into) == content[8 * PAGE : 12 * PAGE] and not left
    source.close()
    source.close()


def test_an_error_of_the_drive(monkeypatch, drive):
    path = drive(data(4))
    reading(monkeypatch, [-errno.EIO])
    with pytest.raises(CardError) as caught:
        FileSource(path).read(memoryview(mmap.mmap(-1, PAGE)), 2 * PAGE)
    assert str(caught.value) == f"page at byte 8192 of {path} cannot be read: Input/output error"


@pytest.mark.parametrize("number", [errno.EFAULT, errno.EREMOTEIO, errno.EINVAL])
def test_no_way_into_the_window(monkeypatch, drive, number):
    path, into = drive(data(4)), memoryview(mmap.mmap(-1, PAGE))
    sentence = f"page at byte 0 of {path} cannot be read: {os.strerror(number)}"
    way = ("; a direct read (O_DIRECT) into the ring does not work at all: this kernel or the file's filesystem gives "
           "no peer-to-peer reads into the card's window")
    for direct, before, more in ((True, [], way), (True, [None], ""), (False, [], "")):
        reading(monkeypatch, [*before, -number])
        source = FileSource(path, direct)
        for _ in before:
            source.read(into, 0)
        with pytest.raises(CardError) as caught:
            source.read(into, 0)
        assert str(caught.value) == sentence + more


@pytest.mark.parametrize("direct", [True, False])
def test_a_file_that_ends_early(drive, direct):
    path = drive(data(2) + b"x" * 100)
    source = FileSource(path, direct)
    assert source.bytes == 2 * PAGE + 100
    with pytest.raises(CardError, match=rf"{path} ends at byte {2 * PAGE + 100}, before the end of the "
                                         rf"page at byte {2 * PAGE}"):
        source.read(memoryview(mmap.mmap(-1, PAGE)), 2 * PAGE)
    os.truncate(path, PAGE)
    with pytest.raises(CardError, match=rf"{path} ends at byte {PAGE}, before the end of the page at byte {PAGE}"):
        source.read(memoryview(mmap.mmap(-1, PAGE)), PAGE)


def test_a_filesystem_without_o_direct(monkeypatch, drive):
    path, true = drive(data(1)), os.open

    def refuse(name, flags, *more):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return true(name, flags, *more)

    monkeypatch.setattr(feed.os, "open", refuse)
    with pytest.warns(RuntimeWarning, match="its filesystem takes no O_DIRECT, so its pages go through the host"):
        source = FileSource(path)
    into = memoryview(bytearray(PAGE + 1))[1:]     # no alignment is asked for any more
    source.read(into, 0)
    assert bytes(into) == path.read_bytes()


def test_wrong_files(tmp_path):
    with pytest.raises(CardError, match=r"none, which holds the SSD's pages, cannot be opened: No such file"):
        FileSource(tmp_path / "none")
    with warnings.catch_warnings(), pytest.raises(CardError, match="is neither a file nor a drive's namespace"):
        warnings.simplefilter("ignore")
        FileSource("/dev/null")

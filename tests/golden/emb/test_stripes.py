"""Where rows lie: by hand, by what the layout is for, and read as they were written."""

import numpy as np
import pytest

from golden.emb.stripes import Stripes

LAYOUTS = [lies for beats in (1, 2, 3, 4, 6, 8, 12, 16, 32) for stripe in (2, 8, 64) for piece in (0, 1, 2, 4, 8, 32)
           if (lies := Stripes(beats, piece, stripe)).allowed]


def test_by_hand():
    """Rows of four beats in pieces of two, stripes of eight: rows 0 to 3 are the block of the first two stripes."""
    lies = Stripes(4, 2, 8)
    assert [lies.pieces(row) for row in (0, 1, 3, 4, 7)] == [[0, 8], [2, 10], [6, 14], [16, 24], [22, 30]]
    assert [lies.beats(rows) for rows in (0, 1, 4, 5)] == [0, 16, 16, 32]
    assert Stripes(3, 0, 8).pieces(5) == [15] and Stripes(3, 0, 8).beats(5) == 15


@pytest.mark.parametrize("layout", [Stripes(4, 8, 8), Stripes(4, 3, 8), Stripes(6, 4, 8), Stripes(4, 2, 2)])
def test_what_is_no_layout(layout):
    assert not layout.allowed


@pytest.mark.parametrize("lies", LAYOUTS, ids=str)
def test_each_beat_is_one_row_s(lies):
    """Whole blocks have no hole, no beat is two rows', and the pieces of a row share their place in the stripe."""
    rows, piece = 3 * lies.block_rows, lies.piece_beats or lies.row_beats
    starts = [lies.pieces(row) for row in range(rows)]
    beats = sorted(at + beat for of_row in starts for at in of_row for beat in range(piece))
    assert beats == list(range(lies.beats(rows)))
    for of_row in starts:
        assert len({at % lies.stripe_beats for at in of_row}) == 1
        assert not lies.piece_beats or of_row[0] % lies.stripe_beats + piece <= lies.stripe_beats


@pytest.mark.parametrize("lies", LAYOUTS, ids=str)
def test_rows_are_read_where_they_were_written(lies):
    random = np.random.default_rng(1)
    count, words = 2 * lies.block_rows + 1, 4
    beats = np.zeros((lies.beats(count), words), np.uint32)
    values = random.integers(1, 1 << 32, (count, lies.row_beats * words), np.uint32)
    order = random.permutation(count)
    lies.write(beats, order, values[order])
    assert np.array_equal(lies.read(beats, np.arange(count)), values)
    assert np.array_equal(beats[lies.beats_of(order)].reshape(count, -1), values[order])
    assert lies.read(beats[:0], np.arange(0)).shape == (0, lies.row_beats * words)
    piece = lies.piece_beats or lies.row_beats
    for row in range(count):
        found = np.concatenate([beats[at:at + piece] for at in lies.pieces(row)])
        assert np.array_equal(found.reshape(-1), values[row])
    assert np.count_nonzero(beats) == values.size

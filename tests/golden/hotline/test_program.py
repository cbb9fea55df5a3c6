"""golden.hotline.program refuses what it has to."""

from dataclasses import replace

import pytest

from golden.hotline.program import (
    BOUNDS,
    Arguments,
    Fault,
    Program,
    Sizes,
    decode,
)
from hw.isa import HOTLINE

SIZES = Sizes(words=8, positions=16, banks=8, sets=64, frame_beats=32, row_slots=32, embedding_beats=64)


def encode(name: str, **fields: int) -> list[int]:
    fields["opcode"] = HOTLINE.instruction(name).opcode
    word = sum(value << HOTLINE.field(field).offset for field, value in fields.items())
    return [word >> 32 * at & 0xFFFFFFFF for at in range(HOTLINE.words)]


def test_decode():
    words = encode("TRAIN", count=5, source=77, sample_beats=8, indices=9, batch=0x1234, mailbox_slots=255,
                   first_high=3, rate=0xBF800000)
    item = decode(words)
    assert (item["count"], item["source"], item["sample_beats"], item["indices"], item["batch"],
            item["mailbox_slots"], item["rate"]) == (5, 77, 8, 9, 0x1234, 255, 0xBF800000)
    assert item["first_high"] == 0, "TRAIN ignores it"


def test_a_run_ends_with_its_first_fault():
    program = Program(sizes=SIZES, arguments=Arguments(inputs_beats=9))
    ran = list(program.run([
        encode("S_WR", position=3, table_rows=10, join=1), encode("LEARN", count=3, sample_beats=3, indices=4),
        encode("LEARN", count=3, sample_beats=3, indices=4, source=1), encode("CLEAR")]))
    assert [item[0] for item in ran[:2]] == ["register", "learn"] and program.joins == {3: 1}
    assert ran[2:] == [Fault(BOUNDS, 2, 0)]


@pytest.mark.parametrize(("change", "buffer"), [
    ({}, None), ({"mailbox_pitch": 24}, 1), ({"mailbox_slots": 4}, 1), ({"gradients_pitch": 17}, 2),
    ({"gradients_pitch": 25}, 2), ({"pooled": 1}, 4), ({"pooled": 1, "mailbox_pitch": 24}, 1),
])
def test_bounds_of_a_mini_batch(change, buffer):
    """3 samples of 2 beats and at most 9 cold rows of 2 beats: 1 + 6 + 18 beats, of which 18 come back; as many
    vectors if they are pooled. Buffers are full to the last beat, but that of the hot rows, which lacks one."""
    item = {"count": 4, "sample_beats": 2, "indices": 3, "batch": 3, "row_beats_log2": 1, "mailbox_slots": 3,
            "mailbox_pitch": 25, "gradients_pitch": 18} | change
    program = Program(sizes=SIZES, arguments=Arguments(
        inputs_beats=8, mailbox_beats=75, gradients_beats=72, hot_beats=SIZES.banks * SIZES.sets * 4 * 2 - 1))
    assert program.refused(encode("TRAIN", **item)) == (None if buffer is None else (BOUNDS, buffer))


@pytest.mark.parametrize(("mailbox", "gradients", "buffer"), [(300, 216, None), (299, 216, 1), (300, 215, 2)])
def test_bounds_of_several_gpus_mailboxes(mailbox, gradients, buffer):
    """Four mailboxes of three mini-batches of 25 beats, of which 18 come back."""
    program = Program(sizes=replace(SIZES, gpus=4), arguments=Arguments(mailbox_beats=mailbox,
                                                                        gradients_beats=gradients))
    assert program.refused(encode("TRAIN", count=4, sample_beats=2, indices=3, batch=3, row_beats_log2=1,
                                  mailbox_slots=3, mailbox_pitch=25, gradients_pitch=18)) == (
        None if buffer is None else (BOUNDS, buffer))


def test_rows_of_a_mini_batch_are_no_more_than_there_are_slots():
    """16 samples of 16 indices would be 256 rows; a mini-batch is cut at 32."""
    item = {"count": 1, "sample_beats": 2, "indices": 16, "batch": 16, "mailbox_slots": 1, "gradients_pitch": 32}
    for pitch, wrong in ((1 + 32 + 32, None), (32 + 32, (BOUNDS, 1))):
        assert Program(sizes=SIZES).refused(encode("TRAIN", **item, mailbox_pitch=pitch)) == wrong


@pytest.mark.parametrize(("register", "allowed"), [
    ({"first_low": 100, "base": 250}, True), ({"first_low": 100, "base": 251}, False),
    ({"first_low": 0, "base": 52}, False), ({"first_low": 7, "base": 0, "pinned": 1}, True),
    ({"first_low": 0, "first_high": 1, "base": 50}, False)])
def test_each_row_has_one_place(register, allowed):
    """By their numbers rows lie one behind the other, two beats each, and none comes again behind 2^32."""
    program = Program(sizes=SIZES)
    for fields in ({"position": 0, "base": 50}, {"position": 1, **register}, {"position": 2, "base": 9}):
        program.register(decode(encode("S_WR", table_rows=1, **fields)))
    train = {"count": 1, "sample_beats": 1, "batch": 1, "row_beats_log2": 1, "mailbox_slots": 1, "mailbox_pitch": 40,
             "gradients_pitch": 40}
    refused = [program.refused(encode("TRAIN", indices=indices, **train)) for indices in (1, 2, 3)]
    assert refused[0] is None and (refused[1] is None) == allowed
    assert refused[2] == (2, encode("TRAIN", indices=3, **train)[0])

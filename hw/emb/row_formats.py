"""What the parts that count the beats of stored rows know of their formats; see hw.isa.emb.ROW_FORMAT."""

from collections.abc import Iterator

from amaranth.hdl import Module, Value

from hw.isa.emb import ROW_FORMAT


def slots(form: ROW_FORMAT) -> int:
    """Of a stored beat: beats of values in it."""
    return 32 // form.bits


FORMAT_BITS = max(ROW_FORMAT).bit_length()
SLOT_BITS = (max(slots(form) for form in ROW_FORMAT) - 1).bit_length()


def of_each_kind(m: Module, row_format: Value) -> Iterator[ROW_FORMAT]:
    """One format of each kind (bits of a value and header), for what is assigned to signals under it. Half precision,
    which is the most, stands for what no format has as its number: the program refuses that."""
    kinds: dict[tuple[int, int], list[ROW_FORMAT]] = {}
    for form in ROW_FORMAT:
        kinds.setdefault((form.bits, form.header), []).append(form)
    *others, most = sorted(kinds.values(), key=len)
    with m.Switch(row_format):
        for forms in others:
            with m.Case(*forms):
                yield forms[0]
        with m.Default():
            yield most[0]

"""Lines of text into ids and numbers, byte by byte.

The buffer ends behind a record's end, so that no field has to look for the buffer's. A record that does not fit is left
to the caller whole: what is wrong with it is found out where speed does not matter. Places are unsigned, see
gen.data.logs.cells.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gen.data.logs.cells import FALSE_WORD, NOTHING, POWERS, TRUE_WORD, items, meaning, moment, number, single

__all__ = ["AUTO", "BAG", "DIGITS", "HEX", "IN_QUOTES", "LOOSE", "NUMBER", "PLAIN", "POWERS", "SKIP", "TIME",
           "Columns", "Rules", "ends_of", "parse", "records"]

#: What a column holds. AUTO: ids, whole numbers or else text, which is hashed; a list of numbers is a fault. PLAIN: the
#: same, where what looks like a list is a text. BAG: lists of ids. HEX: ids as hexadecimal digits. NUMBER: values.
#: LOOSE: values, where text counts as none. TIME: values that are numbers or times.
SKIP, AUTO, HEX, NUMBER, LOOSE, PLAIN, BAG, TIME = range(8)

#: What `parse` takes: hexadecimal digits by character, 255 for what is none.
DIGITS = np.full(256, 255, np.uint8)
DIGITS[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]

_LF, _CR, _QUOTE, _SPACE, _MARK = 10, 13, 34, 32, 0xEF
_1, _2, _3, _16 = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(16)

#: Where a record is: at a field's begin, in a field, in a quoted one, behind a quote in it.
_BEGIN, _WITHIN, IN_QUOTES, _BEHIND = range(4)


class Rules(NamedTuple):
    """How lines are read. ends: see ends_of; quotes: whether fields may stand in double quotes; kinds: of the columns;
    lists: of BAG columns, what stands between the ids of a cell, 0 for brackets alone; missing: the id of an empty
    field in missing[1], if missing[0]; digits, powers: DIGITS, POWERS; names: the record that names the fields, which
    is a fault where it is there again."""

    ends: NDArray[np.uint8]
    quotes: bool
    kinds: NDArray[np.int8]
    lists: NDArray[np.uint8]
    missing: NDArray[np.uint64]
    digits: NDArray[np.uint8]
    powers: NDArray[np.float64]
    names: NDArray[np.uint8]


class Columns(NamedTuple):
    """What is filled: ids, values (columns of the kind, rows or more); of BAG columns bags (columns, room), which has
    as much room behind `used` as there are bytes to read, used (columns,), edges (columns, rows + 1)."""

    ids: NDArray[np.uint64]
    values: NDArray[np.float64]
    bags: NDArray[np.uint64]
    used: NDArray[np.int64]
    edges: NDArray[np.int64]


def ends_of(separator: str) -> NDArray[np.uint8]:
    """As `parse` takes it: whether a field may end at a character, by the character; the separator itself at 0, which
    no text has."""
    table = np.zeros(256, np.uint8)
    table[[_LF, _CR, ord(separator)]] = 1
    table[0] = ord(separator)
    return table


@njit(cache=True, nogil=True)
def _field_end(buffer, at, ends, quoted):
    """Where the field that begins at `at` ends: at its separator, a carriage return, its line's end or its closing
    quote."""
    if not quoted:
        while ends[buffer[at]] == 0:
            at += _1
        return at
    while True:
        while buffer[at] != _QUOTE:
            at += _1
        if buffer[at + _1] != _QUOTE:
            return at
        at += _2


@njit(cache=True, nogil=True)
def records(buffer, at, stop, separator, state, least):
    """Looks for the ends of records in the bytes `at` to `stop`, which begin in a record at `state` (0: at its begin).

    A quote counts at a field's begin alone; line ends in quotes are text.
    Returns     behind the first end that lies at `least` or more, behind the last one, each 0 where there is none; the
                state in the end
    """
    at, stop = np.int64(at), np.int64(stop)
    first, last = np.int64(0), np.int64(0)
    while at < stop:
        byte = buffer[at]
        at += 1
        if state == IN_QUOTES:
            if byte == _QUOTE:
                state = _BEHIND
        elif state == _BEHIND and byte == _QUOTE:
            state = IN_QUOTES
        elif byte == _LF:
            state, last = _BEGIN, at
            if not first and at >= least:
                first = at
        elif byte == separator:
            state = _BEGIN
        elif state == _BEGIN and byte == _QUOTE:
            state = IN_QUOTES
        else:
            state = _WITHIN
    return first, last, state


@njit(cache=True, nogil=True)
def _record_end(buffer, at, stop, separator, quotes):
    """Where the record that begins at `at` ends, at its last byte."""
    if quotes:
        state = _BEGIN
        while True:
            first, _, state = records(buffer, at, min(at + _16, stop), separator, state, 0)
            if first:
                return np.uint64(first) - _1
            at += _16
    while buffer[at] != _LF:
        at += _1
    return at


@njit(cache=True, nogil=True)
def _repeats(buffer, at, stop, names):
    """Whether a record is `names`, behind a byte order mark too: of files that were put one behind the other."""
    if buffer[at] == _MARK and names[0] != _MARK:
        at += _3
    if buffer[at] != names[0] or at + np.uint64(len(names)) >= stop:
        return False
    for name in names:
        if buffer[at] != name:
            return False
        at += _1
    return buffer[at] == _LF or buffer[at] == _CR and buffer[at + _1] == _LF


@njit(cache=True, nogil=True)
def _value(buffer, start, ends, quoted, powers):
    """(where a field ends, its number, whether it is one): NaN where it stands for nothing, or is none."""
    first, spaces = start, ends[_SPACE] == 0
    while spaces and buffer[first] == _SPACE:
        first += _1
    at, value = number(buffer, first, powers)
    while spaces and at > first and buffer[at] == _SPACE:
        at += _1
    if at > first and (buffer[at] == _QUOTE and buffer[at + _1] != _QUOTE if quoted else ends[buffer[at]] != 0):
        return at, value, True
    at = _field_end(buffer, start, ends, quoted)
    word = meaning(buffer, start, at)
    return at, 1.0 if word == TRUE_WORD else 0.0 if word == FALSE_WORD else np.nan, word != 0


@njit(cache=True, nogil=True)
def _hex(buffer, start, stop, missing, may):
    """(the id of hexadecimal digits, whether it is one), see gen.data.logs.cells.single."""
    word, at = np.uint64(0), start
    while at < stop and DIGITS[buffer[at]] < 16:
        word = word << np.uint64(4) | np.uint64(DIGITS[buffer[at]])
        at += _1
    if at == stop and at > start:
        return word, at - start <= _16
    return missing, may and meaning(buffer, start, stop) == NOTHING


@njit(cache=True, nogil=True)
def parse(buffer, at, stop, rules, out, row, rows, faults, odd):
    """Reads records from `at` on, up to `stop` or until the columns or the faults are full.

    Cells of a few digits, as most are, are read here: to hand arrays to a function takes longer than such a cell.

    Parameters  out: Columns, to be filled from `row` on; faults: (n, 2) where records that do not fit begin and end;
                odd: (columns, 2) how many texts a loose column had, and where the first was
    Returns     where it stopped, the rows filled, the faults, the records
    """
    at, stop = np.uint64(at), np.uint64(stop)
    ends, quotes, kinds, lists, missing, digits, powers, names = rules
    ids, values, bags, used, edges = out
    none, may = missing[1], missing[0] != 0
    last, wrong, lines, nan = len(kinds) - 1, 0, 0, float(np.nan)
    while at < stop and row < rows and wrong < len(faults):
        lines += 1
        if buffer[at] == _LF or buffer[at] == _CR and buffer[at + _1] == _LF:
            at += _1 if buffer[at] == _LF else _2
            continue
        begin, table, value, bag = at, 0, 0, 0
        good = len(names) == 0 or not _repeats(buffer, at, stop, names)
        for column in range(last + 1 if good else 0):
            kind = kinds[column]
            quoted = quotes and buffer[at] == _QUOTE
            at += np.uint64(quoted)
            start = at
            if kind == SKIP or kind == BAG:
                at = _field_end(buffer, at, ends, quoted)
                if kind == BAG:
                    count = items(buffer, start, at, quoted, lists[column], none, may, bags[bag], used[bag])
                    good = count >= 0
                    used[bag] = edges[bag, row + 1] = max(count, 0)
                    bag += 1
            else:
                base = np.uint64(16 if kind == HEX else 10)
                word = np.uint64(0)
                digit = digits[buffer[at]]
                while digit < base:
                    word = word * base + np.uint64(digit)
                    at += _1
                    digit = digits[buffer[at]]
                plain = at - start < _16 and (buffer[at] == _QUOTE and buffer[at + _1] != _QUOTE if quoted else
                                              ends[buffer[at]] != 0)
                if kind == NUMBER or kind == LOOSE or kind == TIME:
                    number = float(word) if at > start else nan
                    if not plain:
                        at, number, good = _value(buffer, start, ends, quoted, powers)
                        if not good and kind == TIME:
                            number, good = moment(buffer, start, at)
                        if not good and kind == LOOSE:
                            good = True
                            if not odd[column, 0]:
                                odd[column, 1] = begin
                            odd[column, 0] += 1
                    values[value, row] = number
                    value += 1
                else:
                    if not plain:
                        at = _field_end(buffer, at, ends, quoted)
                        if kind == HEX:
                            word, good = _hex(buffer, start, at, none, may)
                        else:
                            word, good = single(buffer, start, at, quoted, kind == AUTO, none, may)
                    elif at == start:
                        word, good = none, may
                    ids[table, row] = word
                    table += 1
            if quoted:
                good = good and buffer[at] == _QUOTE
                at += _1
            if column < last:
                good = good and buffer[at] == ends[0]
                at += _1
            elif good and buffer[at] == _CR and buffer[at + _1] == _LF:
                at += _1
            if not good:
                break
        if good and buffer[at] == _LF:
            row += 1
            at += _1
            continue
        for bag in range(len(used)):
            used[bag] = edges[bag, row]
        at = _record_end(buffer, begin, stop, ends[0], quotes)
        faults[wrong, 0], faults[wrong, 1] = begin, at
        wrong += 1
        at += _1
    return np.int64(at), row, wrong, lines

"""Lines of text into ids and numbers, byte by byte.

The buffer ends behind a line's end, so that no field has to look for the buffer's. A line that does not fit is left
to the caller whole: what is wrong with it is found out where speed does not matter. Places are unsigned, because Numba
looks at a signed one before each access, in case it counts from the end; that is half of the time.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["AUTO", "DIGITS", "HEX", "LOOSE", "NUMBER", "POWERS", "SKIP", "as_id", "ends_of", "ids_of", "parse"]

#: What a column holds. AUTO: ids, whole numbers or else text, which is hashed. HEX: ids as hexadecimal digits. NUMBER:
#: values. LOOSE: values, where text counts as none.
SKIP, AUTO, HEX, NUMBER, LOOSE = range(5)

#: What `parse` takes last: hexadecimal digits by character, 255 for what is none, and powers of ten.
DIGITS = np.full(256, 255, np.uint8)
DIGITS[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]
POWERS = np.array([float(10**power) for power in range(23)])

_LF, _CR, _QUOTE, _MINUS, _PLUS, _DOT = 10, 13, 34, 45, 43, 46
_1, _2, _16 = np.uint64(1), np.uint64(2), np.uint64(16)
_HALF, _TENTH = np.uint64(1 << 63), np.uint64(((1 << 64) - 1) // 10)
_FNV_START, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


def ends_of(separator: str) -> NDArray[np.uint8]:
    """As `parse` takes it: whether a field may end at a character, by the character; the separator itself at 0, which
    no text has."""
    found = np.zeros(256, np.uint8)
    found[[_LF, _CR, ord(separator)]] = 1
    found[0] = ord(separator)
    return found


@njit(cache=True, nogil=True, inline="always")
def _ends(buffer, at, ends, quoted):
    """Whether a field ends here."""
    byte = buffer[at]
    if quoted:
        return byte == _QUOTE or byte == _LF
    return ends[byte] != 0 and (byte != _CR or buffer[at + _1] == _LF)


@njit(cache=True, nogil=True)
def _field_end(buffer, at, ends, quoted):
    """Where the field that begins at `at` ends: at its separator, its line's end or its closing quote."""
    if not quoted:
        while True:
            while ends[buffer[at]] == 0:
                at += _1
            if buffer[at] != _CR or buffer[at + _1] == _LF:
                return at
            at += _1
    while True:
        while buffer[at] != _QUOTE and buffer[at] != _LF:
            at += _1
        if buffer[at] == _LF or buffer[at + _1] != _QUOTE:
            return at
        at += _2


@njit(cache=True, nogil=True)
def as_id(buffer, start, stop, quoted=False):
    """The id of a text: a whole number from -2**63 to 2**64 - 1 as itself, -n as 2**64 - n, anything else as its 64-bit
    hash.

    The hash is FNV-1a, its bits mixed as MurmurHash3 does at its end. quoted: a quote in the text is written twice.
    """
    start, stop = np.uint64(start), np.uint64(stop)
    negative = stop - start > _1 and buffer[start] == _MINUS
    digits = start + np.uint64(negative)
    value, at = np.uint64(0), digits
    safe = min(stop, digits + np.uint64(19))        # so many digits are always below 2**64
    while at < safe and np.uint8(48) <= buffer[at] <= np.uint8(57):
        value = value * np.uint64(10) + np.uint64(buffer[at] - 48)
        at += _1
    if at < stop and at == safe:
        while at < stop and np.uint8(48) <= buffer[at] <= np.uint8(57):
            digit = np.uint64(buffer[at] - 48)
            if value > _TENTH or value == _TENTH and digit > np.uint64(5):
                break
            value = value * np.uint64(10) + digit
            at += _1
    if at == stop and stop > digits and not (negative and value > _HALF):
        return ~value + _1 if negative else value
    mixed = _FNV_START
    at = start
    while at < stop:
        mixed = (mixed ^ np.uint64(buffer[at])) * _FNV_PRIME
        at += _2 if quoted and buffer[at] == _QUOTE else _1
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return mixed ^ (mixed >> np.uint64(33))


@njit(cache=True, nogil=True)
def ids_of(data, offsets, ids):
    """as_id of every text data[offsets[i]:offsets[i + 1]]."""
    for each in range(len(offsets) - 1):
        ids[each] = as_id(data, offsets[each], offsets[each + 1], False)


@njit(cache=True, nogil=True)
def _number(buffer, at, powers):
    """(where it ends, the number): a decimal number; where it ends is `at` if there is none."""
    start, negative = at, False
    if buffer[at] == _MINUS or buffer[at] == _PLUS:
        negative = buffer[at] == _MINUS
        at += _1
    whole, kept, digits, shift, dot = np.uint64(0), 0, 0, 0, False
    while True:
        byte = buffer[at]
        if np.uint8(48) <= byte <= np.uint8(57):
            digits += 1
            if kept < 18:
                whole = whole * np.uint64(10) + np.uint64(byte - 48)
                kept += int(whole > 0)
                shift -= dot
            else:
                shift += not dot
        elif byte == _DOT and not dot:
            dot = True
        else:
            break
        at += _1
    if not digits:
        return start, 0.0
    if buffer[at] | 32 == 101:
        end, sign, power = at + _1, 1, 0
        if buffer[end] == _MINUS or buffer[end] == _PLUS:
            sign = -1 if buffer[end] == _MINUS else 1
            end += _1
        begin = end
        while np.uint8(48) <= buffer[end] <= np.uint8(57):
            power = min(power * 10 + int(buffer[end] - 48), 9999)
            end += _1
        if end > begin:
            at = end
            shift += sign * power
    value = np.float64(whole)
    # Up to 15 digits and 22 places: rounded once, as it should be. Beyond, within a few units of the last place.
    if 0 < shift <= 22:
        value *= powers[shift]
    elif -22 <= shift < 0:
        value /= powers[-shift]
    elif shift and whole:
        value = value * 10.0 ** (shift / 2) * 10.0 ** (shift - shift / 2)
    return at, -value if negative else value


@njit(cache=True, nogil=True)
def parse(buffer, at, stop, ends, quotes, kinds, missing, ids, values, row, rows, faults, odd, digits,
          powers):
    """Reads lines from `at` on, up to `stop` or until the columns or the faults are full.

    Parameters  ends: see ends_of; quotes: whether fields may stand in double quotes; kinds: of the columns; missing:
                the id of an empty field in missing[1], if missing[0]; ids, values: (columns of the kind, rows or more)
                to be filled from `row` on; faults: (n, 2) where lines that do not fit begin and end; odd: (columns,
                2) how many texts a loose column had, and where the first was
    Returns     where it stopped, the rows filled, the faults, the lines
    """
    at, stop = np.uint64(at), np.uint64(stop)
    last, wrong, lines, nan = len(kinds) - 1, 0, 0, float(np.nan)
    while at < stop and row < rows and wrong < len(faults):
        lines += 1
        if buffer[at] == _LF or buffer[at] == _CR and buffer[at + _1] == _LF:
            at += _1 if buffer[at] == _LF else _2
            continue
        begin, table, value, good = at, 0, 0, True
        for column in range(last + 1):
            kind = kinds[column]
            quoted = quotes and buffer[at] == _QUOTE
            at += np.uint64(quoted)
            start = at
            if kind == HEX:
                number = np.uint64(0)
                digit = digits[buffer[at]]
                while digit < 16:
                    number = number << np.uint64(4) | np.uint64(digit)
                    at += _1
                    digit = digits[buffer[at]]
                if at == start:
                    number = missing[1]
                    good = missing[0] != 0
                elif at - start > _16:
                    good = False
                ids[table, row] = number
                table += 1
            elif kind == AUTO:
                at = _field_end(buffer, at, ends, quoted)
                if at == start:
                    ids[table, row] = missing[1]
                    good = missing[0] != 0
                else:
                    ids[table, row] = as_id(buffer, start, at, quoted)
                table += 1
            elif kind == SKIP:
                at = _field_end(buffer, at, ends, quoted)
            else:
                whole = np.uint64(0)
                digit = digits[buffer[at]]
                while digit < 10:
                    whole = whole * np.uint64(10) + np.uint64(digit)
                    at += _1
                    digit = digits[buffer[at]]
                found = float(whole)
                if at - start >= _16 or not ends[buffer[at]]:
                    # Not just a few digits, as most have.
                    at, found = _number(buffer, start, powers)
                if at == start:
                    found = nan
                if not _ends(buffer, at, ends, quoted):
                    at = _field_end(buffer, at, ends, quoted)
                    found = nan
                    if kind == NUMBER:
                        good = False
                    else:
                        if not odd[column, 0]:
                            odd[column, 1] = begin
                        odd[column, 0] += 1
                values[value, row] = found
                value += 1
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
        at = begin
        while buffer[at] != _LF:
            at += _1
        faults[wrong, 0], faults[wrong, 1] = begin, at
        wrong += 1
        at += _1
    return np.int64(at), row, wrong, lines

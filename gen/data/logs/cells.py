"""What a cell of a text means: an id, a number, a word for nothing, a list of ids.

Cells are bytes `start` to `stop` of a buffer. Places are unsigned, because Numba looks at a signed one before each
access, in case it counts from the end; that is half of the time.
"""

import re

import numpy as np
from numba import njit

#: Texts that stand for nothing, beside an empty one: those of pandas and pyarrow, and Hive's.
MISSING = ("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
           "NULL", "NaN", "None", "n/a", "nan", "null", "\\N")
#: Texts that are the values 1 and 0.
TRUE, FALSE = ("True", "true", "TRUE"), ("False", "false", "FALSE")
#: Lists of numbers that nothing else is.
LISTED = re.compile(r"\[[0-9 ,.\-'\"\n]*\]|[0-9]+(\|[0-9]+)+")

_QUOTE, _APOSTROPHE, _MINUS, _PLUS, _DOT, _SPACE = 34, 39, 45, 43, 46, 32
_COMMA, _BAR, _OPENS, _CLOSES, _COLON = 44, 124, 91, 93, 58
_ROUND, _BRACE, _BACKSLASH = 40, 123, 92
_1, _2 = np.uint64(1), np.uint64(2)
_HALF, _TENTH, _EXACT = np.uint64(1 << 63), np.uint64(((1 << 64) - 1) // 10), np.uint64(1 << 53)
_FNV_START, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
#: How numbers and lists of them begin.
_BEGINS = np.zeros(256, np.bool_)
_BEGINS[np.frombuffer(b" +-0123456789[", np.uint8)] = True
_IN_LISTS = np.zeros(256, np.bool_)
_IN_LISTS[np.frombuffer(b"0123456789 ,.-'\"\n", np.uint8)] = True


def _raw_hash(text: str) -> int:
    """As `_hash`, of Python."""
    value, mask = int(_FNV_START), (1 << 64) - 1
    for byte in text.encode():
        value = (value ^ byte) * int(_FNV_PRIME) & mask
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * factor & mask
    return value ^ value >> 33


#: What `items` returns of a list that holds no single ids.
NESTED = np.int64(-2)
#: Powers of ten, as `number` takes them.
POWERS = np.array([float(10**power) for power in range(23)])
#: What `meaning` returns.
NOTHING, TRUE_WORD, FALSE_WORD = 1, 2, 3
_WORDS = np.array([_raw_hash(word) for word in (*MISSING, *TRUE, *FALSE)], np.uint64)
_MEANINGS = np.array([NOTHING] * len(MISSING) + [TRUE_WORD] * len(TRUE) + [FALSE_WORD] * len(FALSE))
_LONGEST = max(map(len, (*MISSING, *TRUE, *FALSE)))
_INITIALS = np.zeros(256, np.bool_)
_INITIALS[[ord(word[0]) for word in (*MISSING, *TRUE, *FALSE)]] = True


@njit(cache=True, nogil=True)
def _hash(buffer, start, stop, quoted):
    """FNV-1a, its bits mixed as MurmurHash3 does at its end. quoted: a quote in the text is written twice."""
    mixed = _FNV_START
    at = start
    while at < stop:
        mixed = (mixed ^ np.uint64(buffer[at])) * _FNV_PRIME
        at += _2 if quoted and buffer[at] == _QUOTE else _1
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return mixed ^ (mixed >> np.uint64(33))


@njit(cache=True, nogil=True)
def _whole(buffer, start, stop):
    """(whether a text is a whole number from -2**63 to 2**64 - 1, the number: -n as 2**64 - n). Blanks around it, a
    plus and a fraction of zeros change nothing: programs write ids so where a column has empty cells. Those of R write
    100000 as 1e+05."""
    start, stop = _trimmed(buffer, start, stop)
    negative = stop - start > _1 and buffer[start] == _MINUS
    digits = start + np.uint64(negative or stop - start > _1 and buffer[start] == _PLUS)
    value, at = np.uint64(0), digits
    safe = min(stop, digits + np.uint64(19))        # so many digits are always below 2**64
    while at < safe and np.uint8(48) <= buffer[at] <= np.uint8(57):
        value = value * np.uint64(10) + np.uint64(buffer[at] - 48)
        at += _1
    if at < stop and at == safe:
        while at < stop and np.uint8(48) <= buffer[at] <= np.uint8(57):
            digit = np.uint64(buffer[at] - 48)
            if value > _TENTH or value == _TENTH and digit > np.uint64(5):
                return False, value
            value = value * np.uint64(10) + digit
            at += _1
    if at == digits or negative and value > _HALF:
        return False, value
    begin = end = at
    if at < stop and buffer[at] == _DOT:
        begin = end = at = at + _1
        while at < stop and np.uint8(48) <= buffer[at] <= np.uint8(57):
            at += _1
            if buffer[at - _1] != np.uint8(48):
                end = at
    if at < stop:
        return _with_exponent(buffer, at, stop, value, begin, end, negative)
    return begin == end, ~value + _1 if negative else value


@njit(cache=True, nogil=True)
def _with_exponent(buffer, at, stop, value, begin, end, negative):
    """As `_whole`, where `value` is what is before the point, the digits `begin` to `end` behind it, and e+ and an
    exponent at `at`: of a number below 2**53, for larger ones are rounded where they are written so."""
    if stop - at < np.uint64(3) or buffer[at] | 32 != 101 or buffer[at + _1] != _PLUS:
        return False, value
    at += _2
    power = np.uint64(0)
    while at < stop and np.uint8(48) <= buffer[at] <= np.uint8(57) and power < np.uint64(99):
        power = power * np.uint64(10) + np.uint64(buffer[at] - 48)
        at += _1
    if at < stop or power < end - begin:
        return False, value
    for place in range(power):
        if value >= _EXACT:
            return False, value
        digit = begin + np.uint64(place)
        value = value * np.uint64(10) + (np.uint64(buffer[digit] - 48) if digit < end else np.uint64(0))
    return value < _EXACT, ~value + _1 if negative else value


@njit(cache=True, nogil=True)
def _trimmed(buffer, start, stop):
    """Where a text begins and ends, without the blanks around it."""
    while start < stop and buffer[start] <= _SPACE:
        start += _1
    while start < stop and buffer[stop - _1] <= _SPACE:
        stop -= _1
    return start, stop


@njit(cache=True, nogil=True)
def as_id(buffer, start, stop, quoted=False):
    """The id of a text: a whole number as itself, see _whole, anything else as its 64-bit hash."""
    start, stop = np.uint64(start), np.uint64(stop)
    fits, value = _whole(buffer, start, stop)
    return value if fits else _hash(buffer, start, stop, quoted)


@njit(cache=True, nogil=True)
def ids_of(data, offsets, ids):
    """as_id of every text data[offsets[i]:offsets[i + 1]]."""
    for each in range(len(offsets) - 1):
        ids[each] = as_id(data, offsets[each], offsets[each + 1], False)


@njit(cache=True, nogil=True)
def meaning(buffer, start, stop):
    """Of a text that is a word: NOTHING, TRUE_WORD or FALSE_WORD; 0 of others."""
    if start == stop:
        return NOTHING
    if stop - start <= np.uint64(_LONGEST) and _INITIALS[buffer[start]]:
        mixed = _hash(buffer, start, stop, False)
        for word in range(len(_WORDS)):
            if _WORDS[word] == mixed:
                return _MEANINGS[word]
    return 0


@njit(cache=True, nogil=True)
def is_listed(buffer, start, stop):
    """As LISTED."""
    if stop - start > _1 and buffer[start] == _OPENS and buffer[stop - _1] == _CLOSES:
        for at in range(start + _1, stop - _1):
            if not _IN_LISTS[buffer[at]]:
                return False
        return True
    bars, before = 0, _BAR
    while start < stop:
        byte = buffer[start]
        if byte == _BAR:
            if before == _BAR:
                return False
            bars += 1
        elif not np.uint8(48) <= byte <= np.uint8(57):
            return False
        before = byte
        start += _1
    return bars > 0 and before != _BAR


@njit(cache=True, nogil=True)
def single(buffer, start, stop, quoted, lists, missing, may):
    """(the id of a cell, whether it is one). lists: whether a list is none; missing: the id of nothing, where there
    `may` be nothing."""
    if start == stop:
        return missing, may
    if _BEGINS[buffer[start]]:
        fits, value = _whole(buffer, start, stop)
        if fits:
            return value, True
        if lists and is_listed(buffer, start, stop):
            return value, False
    if _INITIALS[buffer[start]] and meaning(buffer, start, stop) == NOTHING:
        return missing, may
    return _hash(buffer, start, stop, quoted), True


@njit(cache=True, nogil=True)
def items(buffer, start, stop, quoted, separator, missing, may, bags, used):
    """Appends the ids of a list to those `used` of `bags`; returns how many there are then, -1 where one is missing
    that must not be, NESTED where one is a list itself, a pair of key and value, or an ellipsis. A cell that stands for
    nothing is an empty list. separator: 0 where round brackets and braces are those of a list too."""
    start, stop = _trimmed(buffer, start, stop)
    if meaning(buffer, start, stop) == NOTHING:
        return used
    within = stop - start > _1 and (buffer[start] == _OPENS and buffer[stop - _1] == _CLOSES or separator == 0 and (
        buffer[start] == _ROUND and buffer[stop - _1] == _ROUND + 1 or
        buffer[start] == _BRACE and buffer[stop - _1] == _BRACE + 2))
    braces = within and buffer[start] == _BRACE
    if within:
        start, stop = start + _1, stop - _1
        if _trimmed(buffer, start, stop)[0] == stop:
            return used
        separator = _COMMA if _item_end(buffer, start, stop, _COMMA, quoted) < stop else _SPACE
    at = start
    while at <= stop:
        end = _item_end(buffer, at, stop, separator, quoted) if within else _plain_end(buffer, at, stop, separator)
        first, last = _trimmed(buffer, at, end)
        if within and separator == _COMMA and first == last and end == stop and at > start:
            break       # (6,) and [6,]
        if within and last > first:
            begin = buffer[first]
            if begin == _QUOTE or begin == _APOSTROPHE:
                if buffer[last - _1] != begin:
                    return NESTED
            elif begin == _OPENS or begin == _ROUND or begin == _BRACE or (
                    last - first == np.uint64(3) and begin == _DOT and buffer[first + _1] == _DOT):
                return NESTED
            elif braces and _plain_end(buffer, first, last, _COLON) < last:
                return NESTED
        while last - first > _1 and buffer[first] == buffer[last - _1] and (
                buffer[first] == _QUOTE or buffer[first] == _APOSTROPHE):
            first, last = first + _1, last - _1
        if first < last or separator != _SPACE:     # several spaces are as one
            value, good = single(buffer, first, last, quoted, False, missing, may)
            if not good:
                return np.int64(-1)
            bags[used] = value
            used += 1
        at = end + _1
    return used


@njit(cache=True, nogil=True)
def _plain_end(buffer, at, stop, separator):
    """Where an item ends: at its separator; any blank is as a space."""
    while at < stop and buffer[at] != separator and not (separator == _SPACE and buffer[at] < _SPACE):
        at += _1
    return at


@njit(cache=True, nogil=True)
def _item_end(buffer, at, stop, separator, doubled):
    """As `_plain_end`, but a separator in quotes is none. doubled: a double quote is written twice."""
    while at < stop and buffer[at] <= _SPACE:
        at += _1
    begin = at
    if at < stop and (buffer[at] == _QUOTE or buffer[at] == _APOSTROPHE):
        quote, width = buffer[at], _2 if doubled and buffer[at] == _QUOTE else _1
        at += width
        while at < stop and buffer[at] != quote:
            at += _2 if buffer[at] == _BACKSLASH else _1
        at = at + width if at < stop else begin
    return _plain_end(buffer, min(at, stop), stop, separator)


@njit(cache=True, nogil=True)
def lists_of(data, offsets, separator, missing, may, bags, edges, none):
    """The ids of the lists data[offsets[i]:offsets[i + 1]], one behind the other in `bags`, which has as much room as
    `data` has bytes and lists there are; edges[i + 1]: how many there are then. none[k]: whether id k is missing that
    must not be; of a list in which one is, that alone is there. Returns the place of one that is no list of ids, or
    -1."""
    used = np.int64(0)
    for each in range(len(offsets) - 1):
        start, stop = np.uint64(offsets[each]), np.uint64(offsets[each + 1])
        count = items(data, start, stop, False, separator, missing, may, bags, used)
        if count == NESTED:
            return each
        none[used] = count < 0
        used = used + 1 if count < 0 else count
        edges[each + 1] = used
    return -1


@njit(cache=True, nogil=True)
def moments_of(data, offsets):
    """Of every text data[offsets[i]:offsets[i + 1]] the seconds since 1970, or the number; NaN of others. data: ends
    behind the last text."""
    seconds = np.full(len(offsets) - 1, np.nan)
    for each in range(len(seconds)):
        start, stop = _trimmed(data, np.uint64(offsets[each]), np.uint64(offsets[each + 1]))
        end, value = number(data, start, POWERS)
        if end != stop or start == stop:
            value, good = moment(data, start, stop)
            value = value if good else np.nan
        seconds[each] = value
    return seconds


@njit(cache=True, nogil=True)
def _digits(buffer, at, count):
    """(the number of so many digits, -1 where one is none)."""
    number = np.int64(0)
    for place in range(count):
        digit = np.int64(buffer[at + np.uint64(place)]) - 48
        if not 0 <= digit <= 9:
            return np.int64(-1)
        number = 10 * number + digit
    return number


@njit(cache=True, nogil=True)
def moment(buffer, start, stop):
    """(seconds since 1970, whether it is a time): 2024-01-31, with a time of day behind a space or T as 23:59:58.5, and
    behind it Z or an offset as +01:00."""
    if stop - start < np.uint64(10) or buffer[start + np.uint64(4)] != _MINUS or buffer[start + np.uint64(7)] != _MINUS:
        return np.nan, False
    year, month = _digits(buffer, start, 4), _digits(buffer, start + np.uint64(5), 2)
    day, at, seconds = _digits(buffer, start + np.uint64(8), 2), start + np.uint64(10), 0.0
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    longest = 28 + leap if month == 2 else 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31
    if year < 0 or not 1 <= month <= 12 or not 1 <= day <= longest:
        return np.nan, False
    # Days of the civil calendar, whose years begin in March.
    years = year - np.int64(month <= 2)
    days = 365 * years + years // 4 - years // 100 + years // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 719469
    if at < stop and (buffer[at] == _SPACE or buffer[at] == 84):
        at += _1
        for unit in (3600, 60, 1):
            part = _digits(buffer, at, 2) if stop - at >= _2 else np.int64(-1)
            if not 0 <= part < (24 if unit == 3600 else 61):
                return np.nan, False
            seconds += unit * part
            at += _2
            if unit == 1 or at == stop or buffer[at] != _COLON:
                break
            at += _1
        scale = 0.1
        if at < stop and buffer[at] == _DOT:
            at += _1
            while at < stop and np.uint8(48) <= buffer[at] <= np.uint8(57):
                seconds += scale * (buffer[at] - 48)
                scale /= 10
                at += _1
        if at < stop and buffer[at] == 90:
            at += _1
        elif stop - at >= np.uint64(5) and (buffer[at] == _PLUS or buffer[at] == _MINUS):
            hours, minutes = _digits(buffer, at + _1, 2), _digits(buffer, stop - _2, 2)
            if hours < 0 or minutes < 0 or stop - at > np.uint64(6):
                return np.nan, False
            seconds += (3600 * hours + 60 * minutes) * (1 if buffer[at] == _MINUS else -1)
            at = stop
    return 86400.0 * days + seconds, at == stop


@njit(cache=True, nogil=True)
def number(buffer, at, powers):
    """(where it ends, the number): a decimal number; where it ends is `at` if there is none."""
    start, negative = at, False
    if buffer[at] == _MINUS or buffer[at] == _PLUS:
        negative = buffer[at] == _MINUS
        at += _1
    mantissa, kept, digits, shift, dot = np.uint64(0), 0, 0, 0, False
    while True:
        byte = buffer[at]
        if np.uint8(48) <= byte <= np.uint8(57):
            digits += 1
            if kept < 18:
                mantissa = mantissa * np.uint64(10) + np.uint64(byte - 48)
                kept += int(mantissa > 0)
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
    value = np.float64(mantissa)
    # Up to 15 digits and 22 places: rounded once, as it should be. Beyond, within a few units of the last place.
    if 0 < shift <= 22:
        value *= powers[shift]
    elif -22 <= shift < 0:
        value /= powers[-shift]
    elif shift and mantissa:
        value = value * 10.0 ** (shift / 2) * 10.0 ** (shift - shift / 2)
    return at, -value if negative else value



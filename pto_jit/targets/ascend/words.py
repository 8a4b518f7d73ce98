# SPDX-License-Identifier: MIT
"""The words of i64: how tiles of them are taken apart and put together (`pairs.py`).

The lower words are a conversion to i32.  The upper ones are every second word of the tile's memory::

    TGATHER<..., MaskPattern::P1010>(upper, words);

Upper words, as i64 from a conversion, get where they belong when each word that has an odd place takes the one before
it; those at even places are cleared.  What is added there, word by word, has no carries::

    TCI(places, 0);                       // 0  1  2  3
    TSHRS(even, places, 1);
    TSHLS(even, even, 1);                 // 0  0  2  2
    TSUB(mask, even, places);             // 0 -1  0 -1
    TGATHER(words, upper, even);
    TAND(words, words, mask);
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.dtypes import i32, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op
from pto_jit.targets.ascend.values import Value, physical

if TYPE_CHECKING:
    from pto_jit.targets.ascend.tiles import TileWriter

OPERATIONS = frozenset(["shl", "shr", "add"])
_AT_ONCE = 4096
"""Words that one instruction picks."""


def write_words(w: TileWriter, op: Op) -> None:
    """A shift by 32 bits, or a sum with what was shifted up."""
    values = [w.value(a) for a in op.args[: 2 if op.op == "add" else 1]]
    first = values[0]
    assert isinstance(first, Value)
    if op.op == "shr":  # whatever reads it wants the lower words of the result
        w.hold(op.results[0], _upper(w, first, op.loc))
        return
    to = w.destination(op.results[0])
    if op.op == "shl":
        _shift_up(w, first, to(i64, first.span, first.capacity, first.valid, first.free), op.loc)
        return
    second = values[1]
    assert isinstance(second, Value)
    out = to(i64, first.span, first.capacity, first.valid, first.free, (first, second))
    w.emit("TADD", *(w.tile(_line(v), loc=op.loc) for v in (out, first, second)), loc=op.loc)


def _line(value: Value, words: int = 2) -> Value:
    """All words of a value as one row."""
    rows, columns = physical(value.dtype, value.span, value.capacity)
    count = rows * columns * words
    return Value(value.name, i32, "row", (1, count), (1, count), value.buffer)


def _upper(w: TileWriter, source: Value, loc: Loc) -> Value:
    out = w.temp(i32, source.span, source.capacity, source.valid, source.free)
    rows, columns = physical(i64, source.span, source.capacity)
    _, room = physical(i32, source.span, source.capacity)
    words = _line(source)
    if room != columns:  # rows of the result have whole blocks
        wide = w.temp(i32, "full" if rows > 1 else "row", (rows, 2 * room), (rows, 2 * columns))
        shown = Value(source.name, i32, wide.span, (rows, 2 * columns), (rows, 2 * columns), source.buffer)
        w.emit("TOR", w.tile(wide, loc=loc), *[w.tile(shown, loc=loc)] * 2, loc=loc)
        words = _line(wide, 1)
    w.emit("TODD", w.tile(_line(out, 1), loc=loc), w.tile(words, loc=loc), loc=loc)
    return out


def _shift_up(w: TileWriter, source: Value, out: Value, loc: Loc) -> None:
    given, target = _line(source), _line(out)
    count = target.capacity[1]
    size = min(count, _AT_ONCE)
    even, mask, scratch = (w.temp(i32, "row", (1, size), (1, size)) for _ in range(3))
    tiles = tuple(w.tile(v, loc=loc) for v in (even, mask))
    w.emit("TCI", tiles[1], "(int32_t)0", loc=loc)
    w.emit("TSHRS", tiles[0], tiles[1], "(int32_t)1", loc=loc)
    w.emit("TSHLS", tiles[0], tiles[0], "(int32_t)1", loc=loc)
    w.emit("TSUB", tiles[1], tiles[0], tiles[1], loc=loc)
    for start in range(0, count, size):
        some = min(size, count - start)
        to, of, places, kept, room = (
            w.tile(Value(v.name, i32, "row", (1, some), (1, some), v.buffer), loc=loc, offset=at)
            for v, at in ((target, 4 * start), (given, 4 * start), (even, 0), (mask, 0), (scratch, 0))
        )
        w.emit("TGATHER", to, of, places, room, loc=loc)
        w.emit("TAND", to, to, kept, loc=loc)

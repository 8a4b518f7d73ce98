# SPDX-License-Identifier: MIT
"""Quotients of integers that tiles, or numbers of the launch, are divided by, rounded down, and their remainders.

f32 has a quotient up to some hundred, for it has 24 bits of 32; what is left then is divided again, after which the
quotient is right, or one too large or too small: the remainder, as one of a positive divisor, is not between 0 and it.
A remainder of 32 bits that is one divisor off fits, as quotients round to whole numbers where they are next to these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import f32, i32
from pto_jit.errors import Loc
from pto_jit.targets.ascend.values import Value

if TYPE_CHECKING:
    from pto_jit.targets.ascend.single import Single


def write_quotient(e: Single, name: str, values: list[Value], to: Any, loc: Loc) -> Value:
    """`floordiv` or `mod` of tiles of i32 or i16 of one shape; 0 where the divisor is."""
    w, short = e.w, values[0].dtype
    x, y = (e.converted(v, i32, w.temp, loc) for v in values)

    def both(op: str, a: Value, b: Value) -> Value:
        return e.binary(op, a, b, w.temp, loc)

    def about(a: Value) -> Value:
        """The quotient as f32 has it."""
        wide = [e.converted(v, f32, w.temp, loc) for v in (a, y)]
        quotient = w.tile(found := both("DIV", *wide), loc=loc)
        w.emit("TCVT", quotient, quotient, "RoundMode::CAST_FLOOR", loc=loc)
        return e.converted(found, i32, w.temp, loc)

    def chosen(mask: Value, a: Value, b: Value) -> Value:
        return e.select(mask, a, b, i32, w.temp, loc)

    def negative(a: Value) -> Value:
        return e.scaled("TMULS", a, "-1", w.temp, loc)

    first = about(x)
    rest = both("SUB", x, both("MUL", first, y))
    second = about(rest)
    quotient, rest = both("ADD", first, second), both("SUB", rest, both("MUL", second, y))
    down = e.compare("LT", y, "0", w.temp, loc)  # remainders have the sign of the divisor
    rest, size = chosen(down, negative(rest), rest), chosen(down, negative(y), y)
    low = e.compare("LT", rest, "0", w.temp, loc)
    quotient = chosen(low, e.scaled("TADDS", quotient, "-1", w.temp, loc), quotient)
    rest = chosen(low, both("ADD", rest, size), rest)
    more = both("SUB", rest, size)
    high = e.compare("GE", more, "0", w.temp, loc)
    zero = e.compare("EQ", y, "0", w.temp, loc)
    if name == "floordiv":
        result = chosen(high, e.scaled("TADDS", quotient, "1", w.temp, loc), quotient)
    else:
        rest = chosen(high, more, rest)
        result = chosen(down, negative(rest), rest)
    out = e.select(zero, "0", result, i32, to if short == i32 else w.temp, loc)
    return out if short == i32 else e.converted(out, short, to, loc)

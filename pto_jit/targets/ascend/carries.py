# SPDX-License-Identifier: MIT
"""Arithmetic of 64 bits in operations of 32: on pairs of words, with carries between them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from pto_jit.dtypes import DType, i32, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Attr, Const, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.lower.names import Names, index
from pto_jit.semantic.rules import infer
from pto_jit.slotted import frozen

LONGEST = 1 << 15
"""Up to which constants integers are divided by, 16 bits at a time."""
_LOWEST, _HALF = -(1 << 31), 0xFFFF
_FAR = 1 << 30
"""More than the place of any element of a tile."""
_FOLDED: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "shl": lambda a, b: a << b, "shr": lambda a, b: a >> b,
    "not": lambda a: ~a, "neg": lambda a: -a,
}  # fmt: skip
_NEUTRAL = {"add": 0, "sub": 0, "or": 0, "xor": 0, "shl": 0, "shr": 0, "mul": 1, "and": -1}
"""Second operands that leave the first as it is."""
_SWAPPED = {"gt": "lt", "le": "ge"}
BITWISE = frozenset(["and", "or", "xor", "not"])


@frozen
class Pair:
    """An integer of 64 bits; `high`: None where it is the sign of `low`."""

    low: Operand
    high: Operand | None = None


def number(value: int) -> Const:
    """The lower 32 bits of an integer."""
    return Const((value - _LOWEST) % (1 << 32) + _LOWEST, ScalarType(i32))


def constant(value: int) -> Pair:
    return Pair(number(value)) if _LOWEST <= value < -_LOWEST else Pair(number(value), number(value >> 32))


def value_of(pair: Pair) -> int:
    """The number that a pair of constants is."""
    assert isinstance(pair.low, Const) and (pair.high is None or isinstance(pair.high, Const))
    low = int(pair.low.value)
    return low if pair.high is None else (int(pair.high.value) << 32) + low % (1 << 32)


class Carries:
    """Operations in a row, each on results of those before; they are in `ops`."""

    def __init__(self, names: Names, hint: str, loc: Loc) -> None:
        self.names, self.hint, self.loc = names, hint, loc
        self.ops: list[Op] = []

    def op(self, name: str, *args: Operand, **attrs: Attr) -> Operand:
        if name in _FOLDED and all(isinstance(a, Const) for a in args):
            return number(_FOLDED[name](*(int(a.value) for a in args)))  # type: ignore[union-attr]
        if len(args) == 2 and isinstance(args[1], Const) and args[1].value == _NEUTRAL.get(name):
            return args[0]
        if name in ("add", "or") and isinstance(args[0], Const) and args[0].value == 0:
            return args[1]
        (typ,) = infer(name, args, attrs, ())
        result = self.names.fresh(self.hint, typ)
        self.ops.append(Op(name, (result,), args, tuple(attrs.items()), loc=self.loc))
        return result

    def new(self, value: Operand, kept: Container[str]) -> Operand:
        """A value under a name that keeps it; `kept`: names that may get other values."""
        return self.op("copy", value) if isinstance(value, Var) and value.name in kept else value

    # -- words ----------------------------------------------------------------------------------------------------

    def high(self, x: Pair) -> Operand:
        return self.spread(x.low) if x.high is None else x.high

    def spread(self, word: Operand) -> Operand:
        """-1 where the highest bit is set, 0 elsewhere."""
        return self.op("shr", word, number(31))

    def upper(self, word: Operand, count: int) -> Operand:
        """The word shifted to the right without its sign."""
        return self.op("and", self.op("shr", word, number(count)), number((1 << 32 - count) - 1)) if count else word

    def half(self, word: Operand) -> Operand:
        return self.op("and", word, number(_HALF))

    def turned(self, word: Operand) -> Operand:
        """A word in the order of unsigned ones: with the other highest bit."""
        if isinstance(word, Const):
            return number(int(word.value) ^ _LOWEST)
        return self.op("add" if isinstance(word.type, TileType) else "xor", word, number(_LOWEST))

    def taken_apart(self, x: Operand) -> Pair:
        """The words of a tile, or of a number."""
        if isinstance(x, Const):
            return constant(int(x.value))
        low = self.op("cast", x, dtype=i32)
        if x.type.dtype != i64:  # type: ignore[union-attr]
            return Pair(low)
        return Pair(low, self.op("cast", self.op("shr", x, Const(32, ScalarType(i64))), dtype=i32))

    def put_together(self, x: Pair) -> Operand:
        """As one value: the lower word with its sign, added to what is above it."""
        low = self.op("cast", x.low, dtype=i64)
        if x.high is None:
            return low
        above = self.op("cast", self.op("sub", x.high, self.spread(x.low)), dtype=i64)
        return self.op("add", self.op("shl", above, Const(32, ScalarType(i64))), low)

    # -- sums and products ----------------------------------------------------------------------------------------

    def add(self, a: Pair, b: Pair) -> Pair:
        if isinstance(a.low, Const):
            a, b = b, a
        if b == constant(0):
            return a
        low = self.op("add", a.low, b.low)
        high = self.op("add", self.high(a), self.high(b))
        if isinstance(b.low, Const) and b.low.value == 0:
            return Pair(low, high)
        rest = self.op("not", low)
        if isinstance(b.low, Const):  # of which the highest bit is known
            carry = self.op("and" if b.low.value > 0 else "or", a.low, rest)
        else:
            both, one = self.op("and", a.low, b.low), self.op("or", a.low, b.low)
            carry = self.op("or", both, self.op("and", one, rest))
        return Pair(low, self.op("sub", high, self.spread(carry)))

    def sub(self, a: Pair, b: Pair) -> Pair:
        if isinstance(b.low, Const):
            return self.add(a, constant(-value_of(b)))
        low = self.op("sub", a.low, b.low)
        high = self.op("sub", self.high(a), self.high(b))
        rest = self.op("not", a.low)
        both, one = self.op("and", rest, b.low), self.op("or", rest, b.low)
        borrow = self.op("or", both, self.op("and", one, low))
        return Pair(low, self.op("add", high, self.spread(borrow)))

    def neg(self, a: Pair) -> Pair:
        low = self.op("neg", a.low)
        return Pair(low, self.op("sub", self.spread(self.op("or", a.low, low)), self.high(a)))

    def abs(self, a: Pair) -> Pair:
        return self.select(self.op("lt", self.high(a), number(0)), self.neg(a), a)

    def sign(self, a: Pair) -> Pair:
        if a.high is None:
            return Pair(self.op("sign", a.low))
        some = self.op("ne", self.op("or", a.low, a.high), number(0))
        up = self.op("select", some, number(1), number(0))
        return Pair(self.op("select", self.op("lt", a.high, number(0)), number(-1), up))

    def mul(self, a: Pair, b: Pair) -> Pair:
        """The upper word of a product of lower words is made of products of halves, which lose no bits."""
        if isinstance(a.low, Const):
            a, b = b, a
        by = value_of(b) if isinstance(b.low, Const) else 0
        if by > 0 and not by & (by - 1):
            return self.shl(a, by.bit_length() - 1)
        low = self.op("mul", a.low, b.low)
        (p, q), (r, s) = ((self.half(w), self.upper(w, 16)) for w in (a.low, b.low))
        first, second = self.op("mul", p, r), self.op("mul", q, r)
        middle = self.op("add", self.upper(first, 16), self.half(second))
        high = self.upper(second, 16)
        if not (isinstance(s, Const) and s.value == 0):
            third = self.op("mul", p, s)
            middle = self.op("add", middle, self.half(third))
            high = self.op("add", self.op("add", high, self.upper(third, 16)), self.op("mul", q, s))
        high = self.op("add", high, self.upper(middle, 16))
        for word, other in ((self.high(a), b.low), (self.high(b), a.low)):
            if not (isinstance(word, Const) and word.value == 0):
                high = self.op("add", high, self.op("mul", word, other))
        return Pair(low, high)

    def pow(self, a: Pair, exponent: int) -> Pair:
        """By squares."""
        out: Pair | None = None
        while exponent:
            if exponent & 1:
                out = a if out is None else self.mul(out, a)
            exponent //= 2
            a = self.mul(a, a) if exponent else a
        return Pair(self.op("or", self.op("and", a.low, number(0)), number(1))) if out is None else out

    # -- shifts and quotients -------------------------------------------------------------------------------------

    def shl(self, a: Pair, count: int) -> Pair:
        if count >= 32:
            return Pair(self.op("and", a.low, number(0)), self.op("shl", a.low, number(count - 32)))
        if not count:
            return a
        moved = self.upper(a.low, 32 - count)
        high = self.op("or", self.op("shl", self.high(a), number(count)), moved)
        return Pair(self.op("shl", a.low, number(count)), high)

    def shr(self, a: Pair, count: int) -> Pair:
        if a.high is None:
            return Pair(self.op("shr", a.low, number(min(count, 31))))
        if count >= 32:
            return Pair(self.op("shr", a.high, number(count - 32)))
        if not count:
            return a
        low = self.op("or", self.upper(a.low, count), self.op("shl", a.high, number(32 - count)))
        return Pair(low, self.op("shr", a.high, number(count)))

    def shifted(self, name: str, a: Pair, count: Pair) -> Pair:
        """A shift by what is not a constant: by 1, 2, 4, ... bits where the count has these bits; all bits are shifted
        out where it is not from 0 to 63."""
        out, left = Pair(a.low, self.high(a)), self.spread(self.high(a)) if name == "shr" else number(0)
        for bit in (1, 2, 4, 8, 16, 32):
            moved = getattr(self, name)(out, bit)
            out = self.select(self.op("ne", self.op("and", count.low, number(bit)), number(0)), moved, out)
            out = Pair(out.low, self.high(out))
        beyond = self.op("or", self.op("and", count.low, number(-64)), self.high(count))
        return self.select(self.op("ne", beyond, number(0)), Pair(left, left), out)

    def floordiv(self, a: Pair, divisor: int) -> Pair:
        if not divisor & (divisor - 1):
            return self.shr(a, divisor.bit_length() - 1)
        if a.high is None:
            return Pair(self.op("floordiv", a.low, number(divisor)))
        return self._divided(a, divisor)[0]

    def mod(self, a: Pair, divisor: int) -> Pair:
        if divisor & (divisor - 1) and a.high is not None:
            return Pair(self._divided(a, divisor)[1])
        if divisor & (divisor - 1):
            return Pair(self.op("mod", a.low, number(divisor)))
        if divisor <= -_LOWEST:
            return Pair(self.op("and", a.low, number(divisor - 1)))
        return Pair(a.low, self.op("and", self.high(a), number((divisor - 1) >> 32)))

    def _divided(self, a: Pair, divisor: int) -> tuple[Pair, Operand]:
        """The quotient and the remainder: by hand, with digits of 16 bits, the first one with the sign."""
        by = number(divisor)
        high = self.op("floordiv", self.high(a), by)
        rest = self.op("sub", self.high(a), self.op("mul", high, by))
        digits: list[Operand] = []
        for half in (self.upper(a.low, 16), self.half(a.low)):
            part = self.op("or", self.op("shl", rest, number(16)), half)
            digits.append(self.op("floordiv", part, by))
            rest = self.op("sub", part, self.op("mul", digits[-1], by))
        return Pair(self.op("or", self.op("shl", digits[0], number(16)), digits[1]), high), rest

    # -- choices --------------------------------------------------------------------------------------------------

    def compare(self, name: str, a: Pair, b: Pair) -> Operand:
        if a.high is None and b.high is None:
            return self.op(name, a.low, b.low)
        x, y = self.high(a), self.high(b)
        if name in ("eq", "ne"):
            return self.op("and" if name == "eq" else "or", self.op(name, a.low, b.low), self.op(name, x, y))
        if name in _SWAPPED:
            return self.compare(_SWAPPED[name], b, a)
        if name == "ge":
            return self.op("not", self.compare("lt", a, b))
        below = self.op("lt", self.turned(a.low), self.turned(b.low))
        return self.op("or", self.op("lt", x, y), self.op("and", self.op("eq", x, y), below))

    def select(self, mask: Operand, a: Pair, b: Pair) -> Pair:
        low = self.op("select", mask, a.low, b.low)
        if a.high is None and b.high is None:
            return Pair(low)
        return Pair(low, self.op("select", mask, self.high(a), self.high(b)))

    def extreme(self, name: str, a: Pair, b: Pair) -> Pair:
        if a.high is None and b.high is None:
            return Pair(self.op(name, a.low, b.low))
        smaller = self.compare("lt", a, b)
        return self.select(smaller, a, b) if name == "min" else self.select(smaller, b, a)

    def bits(self, name: str, *pairs: Pair) -> Pair:
        """An operation that is the same on each bit."""
        low = self.op(name, *(p.low for p in pairs))
        if all(p.high is None for p in pairs):
            return Pair(low)
        return Pair(low, self.op(name, *(self.high(p) for p in pairs)))

    def truth(self, a: Pair) -> Operand:
        return self.op("ne", a.low if a.high is None else self.op("or", a.low, a.high), number(0))

    def each(self, name: str, x: Pair, others: tuple[Operand, ...], attrs: dict[str, Attr]) -> Pair:
        """An operation that does the same to both words."""
        low = self.op(name, x.low, *others, **attrs)
        return Pair(low, None if x.high is None else self.op(name, x.high, *others, **attrs))

    def joined(self, *pairs: Pair, attrs: dict[str, Attr]) -> Pair:
        """`concat`."""
        low = self.op("concat", *(p.low for p in pairs), **attrs)
        if all(p.high is None for p in pairs):
            return Pair(low)
        return Pair(low, self.op("concat", *(self.high(p) for p in pairs), **attrs))

    # -- reductions -----------------------------------------------------------------------------------------------

    def sums(self, name: str, x: Pair, attrs: dict[str, Attr]) -> Pair:
        """Of up to 65536 elements: of lower halves, of upper halves, and of upper words."""
        first = self.op(name, self.half(x.low), **attrs)
        if x.high is None:  # upper halves with their signs
            second = self.op(name, self.op("shr", x.low, number(16)), **attrs)
            high = self.op("shr", second, number(16))
        else:
            second = self.op(name, self.upper(x.low, 16), **attrs)
            high = self.op("add", self.op(name, x.high, **attrs), self.upper(second, 16))
        return self.add(Pair(first, number(0)), Pair(self.op("shl", second, number(16)), high))

    def reduced(self, name: str, x: Pair, axes: tuple[int, ...], keepdims: bool) -> Pair:
        """The largest or smallest element: of those with the extreme upper word the extreme lower one."""
        if x.high is None:
            return Pair(self.op(name, x.low, axes=axes, keepdims=keepdims))
        kept = self.op(name, x.high, axes=axes, keepdims=True)
        farthest = number(_LOWEST if name == "max" else -_LOWEST - 1)
        left = self.op("select", self.op("eq", x.high, kept), self.turned(x.low), farthest)
        low = self.turned(self.op(name, left, axes=axes, keepdims=keepdims))
        return Pair(low, kept if keepdims else self.op(name, x.high, axes=axes, keepdims=False))

    def place(self, name: str, x: Pair, axes: tuple[int, ...], op: Op, extents: Sequence[Operand]) -> Operand:
        """`argmax` or `argmin` of a tile of these extents: the smallest of the places that have the extreme element."""
        if x.high is None:
            return self.op(op.op, x.low, **dict(op.attrs))
        kept = self.reduced(name, x, axes, True)
        here = self.compare("eq", x, kept)
        assert isinstance(x.low.type, TileType)
        rank = x.low.type.rank
        places: Operand = number(0)
        step: Operand = number(1)
        for axis in sorted((a % rank for a in axes), reverse=True):
            if x.low.type.shape[axis] == 1:
                continue
            extent = extents[axis]
            count = self.op("arange", number(0), number(1), extent)
            if rank > 1:
                shape = [extent if a == axis else index(1) for a in range(rank)]
                count = self.op("reshape", count, *shape)
            places = self.op("add", places, self.op("mul", count, step))
            size = number(int(extent.value)) if isinstance(extent, Const) else self.op("cast", extent, dtype=i32)
            step = self.op("mul", size, step)
        found = self.op("select", here, places, number(_FAR))
        return self.op("min", found, axes=axes, keepdims=bool(op.attr("keepdims")))

    def counted(self, start: Pair, step: Pair, extent: Operand) -> Pair:
        """`arange`."""
        places = Pair(self.op("arange", number(0), number(1), extent))
        return self.add(self.mul(places, step), start)


def dtype_of(value: Operand) -> DType:
    assert isinstance(value.type, (ScalarType, TileType))
    return value.type.dtype


def is_wide(value: Operand) -> bool:
    """Whether it is a tile of i64."""
    return isinstance(value, Var) and isinstance(value.type, TileType) and value.type.dtype == i64

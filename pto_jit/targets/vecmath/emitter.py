# SPDX-License-Identifier: MIT
"""What a target implements to get the whole of the vector math: the `Emitter` protocol.

A *recipe* is a Python function `recipe(b, x, ...)` that computes through an emitter `b` and never looks into the
values it handles: they may be LLVM vectors, C expressions or anything else.  A recipe is straight-line code apart
from `slow_path` and `repeat`, so it vectorises on every target.

All floating-point operations are IEEE 754 operations of `b.dtype`, rounded to nearest even, with gradual underflow
(a target must not flush subnormals to zero), and must not be contracted, reassociated or simplified under the
assumption that NaN or infinities do not occur.  Under these rules a recipe gives the same bits on every target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

Value = Any  # a float of the emitter's dtype (a scalar or a vector of them)
Int = Any  # a signed integer of the same width and lane count as `Value`
Mask = Any  # one truth value per lane


LOWEST: dict[str, float] = {"f32": -254.0, "f64": -2046.0}
"""The least n for `Emitter.ldexp`: both factors of `ldexp_by_parts` are zero."""


class Emitter(Protocol):
    """Float, integer and mask operations over one lane count; `dtype` is the float type of every `Value`."""

    @property
    def dtype(self) -> Literal["f32", "f64"]: ...

    # Constants, the same in every lane.
    def const(self, value: float) -> Value:
        """`value` rounded to the dtype; NaN, infinities and signed zeros are kept."""
        ...

    def iconst(self, value: int) -> Int:
        """`value` modulo 2**width."""
        ...

    # Float arithmetic.
    def add(self, x: Value, y: Value) -> Value: ...
    def sub(self, x: Value, y: Value) -> Value: ...
    def mul(self, x: Value, y: Value) -> Value: ...
    def div(self, x: Value, y: Value) -> Value: ...
    def ratio(self, x: Value, y: Value) -> Value:
        """`x / y` for 1/2 <= y <= 2**64, within 0.501 units in the last place (of the smallest subnormal where the
        quotient is below it); x may be infinite or NaN, and y anything where it is NaN.  `div` serves a target that
        has nothing faster.
        """
        ...

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """`x * y + z` with one rounding."""
        ...

    def neg(self, x: Value) -> Value:
        """The sign bit flipped, of NaN and zero too."""
        ...

    def abs(self, x: Value) -> Value:
        """The sign bit cleared."""
        ...

    def sqrt(self, x: Value) -> Value: ...

    def min(self, x: Value, y: Value) -> Value:
        """`x if x < y else y`: `y` when either is NaN or both are zero."""
        ...

    def max(self, x: Value, y: Value) -> Value:
        """`x if x > y else y`: `y` when either is NaN or both are zero."""
        ...

    def copysign(self, magnitude: Value, sign: Value) -> Value: ...

    def round_even(self, x: Value) -> Value:
        """To an integral value, ties to even, the sign of zero kept; NaN and infinities as they are."""
        ...

    def floor(self, x: Value) -> Value: ...
    def trunc(self, x: Value) -> Value: ...

    @property
    def masks_ldexp(self) -> bool:
        """Whether `ldexp` takes a mask, at no expense."""
        ...

    def ldexp(self, x: Value, n: Value, kept: Mask | None = None) -> Value:
        """`x * 2**n` with one rounding, for 2**-30 < |x| < 2**30 (or zero) and integral n.

        n is at least `LOWEST` and at most 250 (f32), 2040 (f64).  NaN when `x` is NaN; where `n` is NaN, so is `x`.
        `ldexp_by_parts` serves a target without an instruction.

        kept: the result is zero where this mask does not hold, whatever `x` and `n` are there.
        """
        ...

    # Comparisons: false when an operand is NaN, except `ne`.
    def lt(self, x: Value, y: Value) -> Mask: ...
    def le(self, x: Value, y: Value) -> Mask: ...
    def gt(self, x: Value, y: Value) -> Mask: ...
    def ge(self, x: Value, y: Value) -> Mask: ...
    def eq(self, x: Value, y: Value) -> Mask: ...
    def ne(self, x: Value, y: Value) -> Mask: ...

    # Masks.
    def mask_and(self, p: Mask, q: Mask) -> Mask: ...
    def mask_or(self, p: Mask, q: Mask) -> Mask: ...
    def mask_not(self, p: Mask) -> Mask: ...

    def select(self, mask: Mask, x: Any, y: Any) -> Any:
        """Per lane `x` where the mask holds, else `y`; both `Value` or both `Int`."""
        ...

    # Integers of the float's width, wrapping.
    def bits(self, x: Value) -> Int:
        """The IEEE bit pattern."""
        ...

    def from_bits(self, i: Int) -> Value: ...
    def iadd(self, i: Int, j: Int) -> Int: ...
    def isub(self, i: Int, j: Int) -> Int: ...
    def iand(self, i: Int, j: Int) -> Int: ...
    def ior(self, i: Int, j: Int) -> Int: ...
    def ixor(self, i: Int, j: Int) -> Int: ...

    def shl(self, i: Int, count: int) -> Int:
        """Left shift by a constant below the width."""
        ...

    def lshr(self, i: Int, count: int) -> Int: ...
    def ashr(self, i: Int, count: int) -> Int: ...
    def ieq(self, i: Int, j: Int) -> Mask: ...

    def ilt(self, i: Int, j: Int) -> Mask:
        """Signed `i < j`."""
        ...

    # Conversions.
    def to_float(self, i: Int) -> Value:
        """Rounded to nearest even."""
        ...

    # Structure.
    def lookup(self, table: Sequence[float], index: Int) -> Value:
        """`table[index]` per lane; the index must be in range in every lane, also in those that are not used."""
        ...

    def repeat(self, times: int, body: Callable[..., tuple[Value, ...]], *state: Value) -> tuple[Value, ...]:
        """`state = body(b, *state)`, `times` times over; `body` computes through the emitter it is given."""
        ...

    def slow_path(self, mask: Mask, slow: Callable[..., Value], operands: tuple[Value, ...], fast: Value) -> Value:
        """`slow(b, *operands)` where the mask holds, else `fast`.

        A target may skip the slow computation when no lane needs it, and may place it in a function of its own:
        `slow` is a module-level function that depends on its operands and on `b.dtype` only.  Lanes outside the
        mask may be computed and thrown away.
        """
        ...


def mostly(b: Emitter, value: Value, exceptions: Callable[[], Mask], whole: Callable[[], Value]) -> Value:
    """`whole()`, which is `value` where the mask `exceptions()` does not hold, and it seldom does.

    An emitter may have a method `aside(value, exceptions, whole)` that gives the same by a branch, None where it does
    not pay: what is computed from the result of one lane does not wait for the exceptions then.
    """
    aside = getattr(b, "aside", None)
    result = None if aside is None else aside(value, exceptions, whole)
    return whole() if result is None else result


def magic(b: Emitter, plus: int = 0) -> Value:
    """1.5 * 2**(mantissa bits): x + magic holds x rounded to an integer, ties to even, in its low mantissa bits.

    For |x| < 2**22 (f32) or 2**51 (f64); subtracting it again gives the rounded value as a float.  `plus`: is added to
    what the low bits hold.
    """
    return b.const((12582912.0 if b.dtype == "f32" else 6755399441055744.0) + plus)


def ldexp_by_parts(b: Emitter, x: Value, n: Value) -> Value:
    """`Emitter.ldexp` from two multiplications.

    2**n is split into two normal factors of about equal exponent.  The first product is normal (or the result is zero
    or infinite anyway), so only the second one rounds.  Rounding moves n plus twice the bias to the low bits; what
    stands above them is shifted out.
    """
    bias, mantissa = (127, 23) if b.dtype == "f32" else (1023, 52)
    whole = b.bits(b.add(n, magic(b, 2 * bias)))
    half = b.ashr(whole, 1)
    first = b.from_bits(b.shl(half, mantissa))
    second = b.from_bits(b.shl(b.isub(whole, half), mantissa))
    return b.mul(b.mul(x, first), second)

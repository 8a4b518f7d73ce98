# SPDX-License-Identifier: MIT
"""Elementwise operations on LLVM values, vectors of any lane count and scalars alike.

Registers hold f16 and bf16 as f32 and bool_ as i1 (`code.register_type`); memory holds what `code.storage_type` says.
`VectorMath` is the vector math's emitter for vectors wider than a register.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType, f32, f64, i64
from pto_jit.targets.cpu import bits
from pto_jit.targets.cpu.clipped import FITS
from pto_jit.targets.cpu.constants import F16, I1, I32, constant_of, number, numbers, register_type, undefined, vector
from pto_jit.targets.cpu.conversions import as_index, convert, fitting, from_f32, to_f32
from pto_jit.targets.cpu.extremes import Extremes
from pto_jit.targets.cpu.rounded_indices import INDEX
from pto_jit.targets.cpu.vector import VectorEmitter, call_intrinsic, lane_count
from pto_jit.targets.cpu.waits import WAITS
from pto_jit.targets.vecmath import RECIPES

Value = Any

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class VectorMath(VectorEmitter):
    """The vector emitter with constants written in one word and `ldexp` by pieces of a register's width."""

    __slots__ = ()

    def const(self, value: float) -> Value:
        return number(self._float, value)

    def iconst(self, value: int) -> Value:
        return number(self._int, value)

    @property
    def masks_ldexp(self) -> bool:
        return self.scalef and (self._bits in (128, 256) or self._bits % 512 == 0)

    def ldexp(self, x: Value, n: Value, kept: Value | None = None) -> Value:
        if not self.masks_ldexp or self._bits <= 512:
            return super().ldexp(x, n, kept)
        lanes = 512 // (32 if self.dtype == "f32" else 64)
        piece = VectorMath(self.builder, self.dtype, lanes, scalef=True)
        cut = partial(_lanes, self.builder, count=lanes)
        parts = [
            piece.ldexp(cut(x, at=at), cut(n, at=at), None if kept is None else cut(kept, at=at))
            for at in range(0, self.width, lanes)
        ]
        while len(parts) > 1:
            parts = [join(self.builder, parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]
        return parts[0]


def _shuffle(b: ir.IRBuilder, x: Value, y: Value, which: Sequence[int]) -> Value:
    return b.shuffle_vector(x, y, numbers(I32, which))


def _lanes(b: ir.IRBuilder, x: Value, at: int, count: int) -> Value:
    return _shuffle(b, x, undefined(x.type), range(at, at + count))


def join(b: ir.IRBuilder, x: Value, y: Value) -> Value:
    """The lanes of x followed by those of y."""
    return _shuffle(b, x, y, range(2 * lane_count(x.type)))


def halves(b: ir.IRBuilder, x: Value) -> tuple[Value, Value]:
    """The lower and the upper half of the lanes (scalars when two lanes are left)."""
    count = lane_count(x.type)
    if count == 2:
        return b.extract_element(x, number(I32, 0)), b.extract_element(x, number(I32, 1))
    return _lanes(b, x, 0, count // 2), _lanes(b, x, count // 2, count // 2)


def splat(b: ir.IRBuilder, x: Value, lanes: int) -> Value:
    """A scalar in every lane."""
    if lanes == 1 or lane_count(x.type) == lanes:
        return x
    typ = vector(x.type, lanes)
    one = b.insert_element(undefined(typ), x, number(I32, 0))
    return b.shuffle_vector(one, undefined(typ), numbers(I32, (0,) * lanes))


def from_memory(b: ir.IRBuilder, x: Value, dtype: DType) -> Value:
    """What a load gave, as registers hold it.  (A builder that writes sources has conversions of its own.)"""
    if own := getattr(b, "from_memory", None):
        return own(x, dtype)
    if dtype.kind == "b":
        return b.icmp_unsigned("!=", x, number(x.type, 0))
    if dtype.kind == "f" and dtype.bits == 16:
        return to_f32(b, x, dtype)
    return x


def to_memory(b: ir.IRBuilder, x: Value, dtype: DType) -> Value:
    """A register value as it is stored."""
    if own := getattr(b, "to_memory", None):
        return own(x, dtype)
    if dtype.kind == "b":
        return b.zext(x, vector(ir.IntType(8), lane_count(x.type)))
    if dtype.kind == "f" and dtype.bits == 16:
        return from_f32(b, x, dtype)
    return x


def cast(b: ir.IRBuilder, x: Value, source: DType, target: DType) -> Value:
    """A conversion between any two dtypes in register form."""
    if source == target:
        return x
    if own := getattr(b, "cast", None):
        return own(x, source, target)
    small = target.kind == "f" and target.bits == 16
    origin = f32 if source.kind == "f" and source.bits == 16 else source
    out = convert(b, x, origin, target)
    return to_f32(b, out, target) if small else out


class Elementwise:
    """Applies operations by name: `apply("exp", (x,), f32, {})`.

    `features` are those of the host CPU; `fast` lets LLVM contract and reassociate.
    """

    def __init__(self, builder: Callable[[], ir.IRBuilder], scalef: bool, fast: bool) -> None:
        self._builder = builder
        self._extremes = Extremes(builder)
        self._scalef = scalef
        self._flags = ("contract", "reassoc", "nsz", "arcp", "afn") if fast else ()

    @property
    def b(self) -> Any:
        """The builder at the place of insertion."""
        return self._builder()

    def math(self, dtype: DType, lanes: int) -> VectorMath:
        return VectorMath(self.b, "f64" if dtype.bits == 64 else "f32", lanes, scalef=self._scalef)

    def apply(self, op: str, args: Sequence[Value], dtype: DType, attrs: dict[str, Any], result: DType) -> Value:
        """`op` on operands of `dtype` (the type of the first data operand), giving `result`."""
        op = {"maximum": "max", "minimum": "min"}.get(op, op)
        if op == "copy":
            return args[0]
        if op == "cast" and FITS in attrs:
            return fitting(self.b, args[0], result)
        if op == "cast" and INDEX in attrs and lane_count(args[0].type) == 1:
            return as_index(self.b, args[0])
        if op == "cast":
            return cast(self.b, args[0], dtype, result)
        if op == "bitcast":
            return self._bitcast(args[0], dtype, result)
        if op == "select":
            return self.b.select(*args)
        if op in ("rand_at", "randn_at"):
            return self._random(op, args[0], cast(self.b, args[1], dtype, i64))
        if op in _COMPARE:
            return self._compare(_COMPARE[op], args[0], args[1], dtype)
        if dtype.kind == "f":
            return self._float(op, args, dtype, attrs)
        if dtype.kind == "b":
            return self._bool(op, args, dtype)
        return self._integer(op, args, dtype)

    def _random(self, op: str, seed: Value, counters: Value) -> Value:
        from pto_jit.targets.cpu import philox  # for kernels with random numbers

        seed = splat(self.b, seed, lane_count(counters.type))
        if op == "rand_at":
            return philox.uniform(self.b, seed, counters)
        return philox.normal(self.math(f64, lane_count(counters.type)), seed, counters)

    # -- comparisons and bits -------------------------------------------------------------------------------------

    def _compare(self, sign: str, x: Value, y: Value, dtype: DType) -> Value:
        if dtype.kind == "f":
            return self.b.fcmp_unordered(sign, x, y) if sign == "!=" else self.b.fcmp_ordered(sign, x, y)
        if dtype.is_signed:
            return self.b.icmp_signed(sign, x, y)
        return self.b.icmp_unsigned(sign, x, y)

    def _bitcast(self, x: Value, source: DType, target: DType) -> Value:
        b = self.b
        lanes = lane_count(x.type)
        raw = to_memory(b, x, source)
        if target.kind == "f" and target.bits == 16:
            half = vector(F16 if target.name == "f16" else ir.IntType(16), lanes)
            return to_f32(b, b.bitcast(raw, half) if raw.type != half else raw, target)
        if target.kind == "b":
            return b.icmp_unsigned("!=", raw, number(raw.type, 0))
        wanted = vector(register_type(target), lanes)
        return raw if raw.type == wanted else b.bitcast(raw, wanted)

    # -- floats ---------------------------------------------------------------------------------------------------

    def _float(self, op: str, args: Sequence[Value], dtype: DType, attrs: dict[str, Any]) -> Value:
        b, flags = self.b, self._flags
        x = args[0]
        typ = x.type
        match op:
            case "add":
                return b.fadd(x, args[1], flags=flags)
            case "sub":
                return b.fsub(x, args[1], flags=flags)
            case "mul":
                return b.fmul(x, args[1], flags=flags)
            case "div":
                return b.fdiv(x, args[1], flags=flags)
            case "neg":
                return b.fneg(x)
            case "abs":
                return call_intrinsic(b, "fabs", typ, x)
            case "square":
                return b.fmul(x, x, flags=flags)
            case "fma":
                return call_intrinsic(b, "fma", typ, *args)
            case "sqrt":
                return call_intrinsic(b, "sqrt", typ, x)
            case "floor" | "ceil" | "trunc":
                return call_intrinsic(b, op, typ, x)
            case "round":
                return call_intrinsic(b, "roundeven", typ, x)
            case "max" | "min":
                return self._extremes.apply(op, x, args[1], jumps=WAITS in attrs and lane_count(typ) == 1)
            case "relu":  # NaN stays NaN: the comparison is false for it
                nothing = number(typ, 0.0)
                return b.select(b.fcmp_ordered("<", x, nothing), nothing, x)
            case "sign":
                up = b.select(b.fcmp_ordered(">", x, number(typ, 0.0)), number(typ, 1.0), x)
                return b.select(b.fcmp_ordered("<", x, number(typ, 0.0)), number(typ, -1.0), up)
            case "isnan":
                return b.fcmp_unordered("uno", x, x)
            case "isinf":
                return b.fcmp_ordered("==", call_intrinsic(b, "fabs", typ, x), number(typ, float("inf")))
            case "isfinite":
                return b.fcmp_ordered("<", call_intrinsic(b, "fabs", typ, x), number(typ, float("inf")))
            case "floordiv":
                return self._float_floordiv(args, dtype)
            case "mod":
                return self._float_mod(args, dtype)
            case "gelu":
                op = "gelu_tanh" if attrs.get("approximate") == "tanh" else "gelu"
            case _:
                pass
        return RECIPES[op].function(self.math(dtype, lane_count(typ)), *args)

    def _float_mod(self, args: Sequence[Value], dtype: DType) -> Value:
        """The remainder with the sign of the divisor, as Python and NumPy define it."""
        b = self.b
        x, y = args
        rest = RECIPES["fmod"].function(self.math(dtype, lane_count(x.type)), x, y)
        b = self.b
        nothing = number(x.type, 0.0)
        apart = b.xor(b.fcmp_ordered("<", rest, nothing), b.fcmp_ordered("<", y, nothing))
        moved = b.select(apart, b.fadd(rest, y), rest)
        zero = call_intrinsic(b, "copysign", x.type, nothing, y)
        return b.select(b.fcmp_ordered("==", rest, nothing), zero, moved)

    def _float_floordiv(self, args: Sequence[Value], dtype: DType) -> Value:
        """NumPy's floor_divide: from the exact remainder, so that `x // y * y + x % y` is x."""
        x, y = args
        typ = x.type
        rest = RECIPES["fmod"].function(self.math(dtype, lane_count(typ)), x, y)
        b = self.b
        nothing = number(typ, 0.0)
        quotient = b.fdiv(b.fsub(x, rest), y)
        apart = b.xor(b.fcmp_ordered("<", rest, nothing), b.fcmp_ordered("<", y, nothing))
        apart = b.and_(apart, b.fcmp_unordered("!=", rest, nothing))
        quotient = b.select(apart, b.fsub(quotient, number(typ, 1.0)), quotient)
        down = call_intrinsic(b, "floor", typ, quotient)
        near = b.select(b.fcmp_ordered(">", b.fsub(quotient, down), number(typ, 0.5)),
                        b.fadd(down, number(typ, 1.0)), down)  # fmt: skip
        signed_zero = call_intrinsic(b, "copysign", typ, nothing, b.fdiv(x, y))
        out = b.select(b.fcmp_ordered("==", quotient, nothing), signed_zero, near)
        return b.select(b.fcmp_ordered("==", y, nothing), b.fdiv(x, y), out)

    # -- bool -----------------------------------------------------------------------------------------------------

    def _bool(self, op: str, args: Sequence[Value], dtype: DType) -> Value:
        b = self.b
        x = args[0]
        match op:
            case "and":
                return b.and_(x, args[1])
            case "or":
                return b.or_(x, args[1])
            case "xor":
                return b.xor(x, args[1])
            case "not":
                return b.xor(x, number(x.type, True))
            case _:
                raise KeyError(f"{op} on {dtype}")

    # -- integers -------------------------------------------------------------------------------------------------

    def _integer(self, op: str, args: Sequence[Value], dtype: DType) -> Value:
        b = self.b
        x = args[0]
        typ = x.type
        signed = dtype.is_signed
        match op:
            case "add":
                return b.add(x, args[1])
            case "sub":
                return b.sub(x, args[1])
            case "mul":
                return b.mul(x, args[1])
            case "square":
                return b.mul(x, x)
            case "neg":
                return b.sub(number(typ, 0), x)
            case "abs":
                return b.select(b.icmp_signed("<", x, number(typ, 0)), b.sub(number(typ, 0), x), x) if signed else x
            case "relu":
                return self.integer_extreme("max", x, number(typ, 0), True) if signed else x
            case "sign":
                positive = b.zext(b.icmp_unsigned("!=", x, number(typ, 0)), typ)
                if not signed:
                    return positive
                return b.select(b.icmp_signed("<", x, number(typ, 0)), number(typ, -1), positive)
            case "max" | "min":
                return self.integer_extreme(op, x, args[1], signed)
            case "and":
                return b.and_(x, args[1])
            case "or":
                return b.or_(x, args[1])
            case "xor":
                return b.xor(x, args[1])
            case "not":
                return b.xor(x, number(typ, -1))
            case "shl" | "shr":
                return self._shift(op, x, args[1], dtype)
            case "floordiv" | "mod" | "fmod":
                return self._division(op, x, args[1], dtype)
            case "pow":
                return self._power(x, args[1], dtype)
            case bits.ONES:
                return call_intrinsic(b, "ctpop", typ, x)
            case bits.LENGTH:
                zeros = call_intrinsic(b, "ctlz", typ, x, number(I1, False))
                return b.sub(number(typ, dtype.bits), zeros)
            case _:
                raise KeyError(f"{op} on {dtype}")

    def integer_extreme(self, op: str, x: Value, y: Value, signed: bool) -> Value:
        name = ("s" if signed else "u") + op
        return call_intrinsic(self.b, name, x.type, x, y)

    def _shift(self, op: str, x: Value, count: Value, dtype: DType) -> Value:
        """NumPy's shifts: a count of the width or more (or negative) shifts everything out."""
        b = self.b
        bits = dtype.bits
        inside = b.icmp_unsigned("<", count, number(x.type, bits))
        safe = b.select(inside, count, number(x.type, 0))
        if op == "shl":
            return b.select(inside, b.shl(x, safe), number(x.type, 0))
        if dtype.is_signed:
            return b.ashr(x, b.select(inside, count, number(x.type, bits - 1)))
        return b.select(inside, b.lshr(x, safe), number(x.type, 0))

    def _division(self, op: str, x: Value, y: Value, dtype: DType) -> Value:
        """Quotient and remainder as in Python; by zero 0, and the lowest number by -1 wraps."""
        divisor = constant_of(y)
        if divisor is not None and divisor > 0:
            return self._division_by(op, x, divisor, dtype)
        b = self.b
        typ = x.type
        nothing, one = number(typ, 0), number(typ, 1)
        by_zero = b.icmp_unsigned("==", y, nothing)
        if not dtype.is_signed:
            safe = b.select(by_zero, one, y)
            out = b.udiv(x, safe) if op == "floordiv" else b.urem(x, safe)
            return b.select(by_zero, nothing, out)
        minus = b.icmp_signed("==", y, number(typ, -1))
        safe = b.select(b.or_(by_zero, minus), one, y)
        rest = b.srem(x, safe)  # 0 in both cases
        apart = b.and_(b.icmp_signed("!=", rest, nothing),
                       b.icmp_signed("<", b.xor(rest, y), nothing))  # fmt: skip
        if op == "floordiv":
            quotient = b.sdiv(x, safe)
            quotient = b.sub(quotient, b.zext(apart, typ))
            quotient = b.select(minus, b.sub(nothing, x), quotient)
            return b.select(by_zero, nothing, quotient)
        return b.select(apart, b.add(rest, y), rest) if op == "mod" else rest

    def _division_by(self, op: str, x: Value, divisor: int, dtype: DType) -> Value:
        """Quotient and remainder by a positive constant, without the cases that cannot be."""
        b = self.b
        typ = x.type
        y = number(typ, divisor)
        if not dtype.is_signed:
            return b.udiv(x, y) if op == "floordiv" else b.urem(x, y)
        if op == "fmod":
            return b.srem(x, y)
        if divisor & (divisor - 1) == 0:
            shift = number(typ, divisor.bit_length() - 1)
            return b.ashr(x, shift) if op == "floordiv" else b.and_(x, number(typ, divisor - 1))
        rest = b.srem(x, y)
        below = b.icmp_signed("<", rest, number(typ, 0))
        if op == "floordiv":
            return b.sub(b.sdiv(x, y), b.zext(below, typ))
        return b.select(below, b.add(rest, y), rest)

    def _power(self, x: Value, y: Value, dtype: DType) -> Value:
        """By squaring, wrapping; a negative exponent gives what integer division would (1 / x ** -y)."""
        b = self.b
        typ = x.type
        nothing, one = number(typ, 0), number(typ, 1)
        before = b.block
        head, after = b.append_basic_block("power"), b.append_basic_block("powered")
        negative = b.icmp_signed("<", y, nothing) if dtype.is_signed else None
        exponent = y if negative is None else b.select(negative, nothing, y)
        b.branch(head)
        b.position_at_end(head)
        out, base, rest = b.phi(typ), b.phi(typ), b.phi(typ)
        left = b.icmp_unsigned("!=", rest, nothing)
        times = b.select(b.icmp_unsigned("!=", b.and_(rest, one), nothing), base, one)
        next_out, next_base, next_rest = b.mul(out, times), b.mul(base, base), b.lshr(rest, one)
        for phi, first, following in ((out, one, next_out), (base, x, next_base), (rest, exponent, next_rest)):
            phi.add_incoming(first, before)
            phi.add_incoming(following, head)
        lanes = lane_count(typ)
        more = left if lanes == 1 else b.icmp_unsigned(
            "!=", b.bitcast(left, ir.IntType(lanes)), ir.Constant(ir.IntType(lanes), 0)
        )
        b.cbranch(more, head, after)
        b.position_at_end(after)
        if negative is None:
            return next_out
        minus = b.icmp_signed("==", x, number(typ, -1))
        odd = b.icmp_unsigned("!=", b.and_(y, one), nothing)
        flipped = b.select(minus, b.select(odd, number(typ, -1), one), nothing)
        small = b.select(b.icmp_signed("==", x, one), one, flipped)
        return b.select(negative, small, next_out)

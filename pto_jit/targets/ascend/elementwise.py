# SPDX-License-Identifier: MIT
"""Elementwise operations of the program in instructions of the vector core.

16-bit floats are computed with in f32 where the core has no instruction that rounds correctly for them.
"""

from __future__ import annotations

from typing import Any

from pto_jit.dtypes import DType, bf16, f16, f32, i16, i32, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Const, Op
from pto_jit.ir.types import ScalarType
from pto_jit.targets.ascend import functions, words
from pto_jit.targets.ascend.called import write_call
from pto_jit.targets.ascend.quotients import write_quotient
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.shifts import write_shift
from pto_jit.targets.ascend.single import Operand, Single
from pto_jit.targets.ascend.values import Value
from pto_jit.targets.source.scalars import literal

_BINARY = {"add": "ADD", "sub": "SUB", "mul": "MUL", "div": "DIV", "max": "MAX", "min": "MIN",
           "maximum": "MAX", "minimum": "MIN"}  # fmt: skip
_EXACT_IN_HALF = frozenset("add sub mul max min maximum minimum neg abs relu copy select".split())
_COMPARE = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}
_ROUNDINGS = {"floor": "FLOOR", "ceil": "CEIL", "round": "RINT", "trunc": "TRUNC"}
_COMPOSED = frozenset(["sigmoid", "silu"])
"""What is made of four instructions of the core, or five."""
_SQRT_2_OVER_PI, _CUBIC = 0.7978845608028654, 0.044715
_MOST_DIVISOR = 1 << 19
_LOWEST = "-3.40282347e+38f"
"""The smallest f32 that is finite."""


def _power_of_two(operand: object) -> bool:
    """Whether integers are divided by shifting them."""
    value = int(operand.value) if isinstance(operand, Const) else 0
    return value > 0 and value & (value - 1) == 0


def _is_below(operand: object, width: int) -> bool:
    """Whether integers are shifted by it with one instruction."""
    return isinstance(operand, Const) and 0 <= int(operand.value) < width


def _is_divisor(operand: object) -> bool:
    """Whether integers are divided by it by way of f32."""
    return isinstance(operand, Const) and 0 < abs(int(operand.value)) <= _MOST_DIVISOR


class Elementwise(Single):
    """Writes operations into the kernel of a `VectorWriter`."""

    def operation(self, op: Op) -> None:
        w = self.w
        args = [w.value(a) for a in op.args]
        var = op.results[0]
        data = op.args[1] if op.op == "select" else op.args[0]
        dtype, result = data.type.dtype, var.type.dtype  # type: ignore[union-attr]
        to = w.destination(var)
        for value, name in zip(args, (getattr(a, "name", "") for a in op.args), strict=True):
            if isinstance(value, Value) and not value.is_mask and name not in w.moved:
                w.checked(value.dtype, op.loc)
        if op.op == "cast":
            assert isinstance(args[0], Value)
            if result == i64 and var.name not in w.moved:
                w.checked(result, op.loc)
            self.converted(args[0], result, to, op.loc)
            return
        if dtype == i64 and op.op in words.OPERATIONS and var.name in w.moved:
            words.write_words(w, op)
            return
        if op.op in ("isnan", "isinf", "isfinite"):
            assert isinstance(args[0], Value)
            self.classify(op.op, self.wide(args[0], op.loc), to, op.loc)
            return
        if op.op in _COMPARE and dtype.kind != "b":
            self.compare(_COMPARE[op.op], *(self.wide(a, op.loc) for a in args), to=to, loc=op.loc)
            return
        if dtype.kind == "b":
            mixed = any(isinstance(a, str) for a in args) and isinstance(var.type, ScalarType)
            if mixed and op.op in ("and", "or") and var.name not in w.facts.mutable:
                w.scalars.operation(op)  # a condition: what is made of tiles is read by the scalar unit, too
                return
            self.logic(op, args, to)
            return
        if var.name not in w.moved:  # what numbers alone are chosen from
            w.checked(dtype, op.loc)
        if dtype.bits == 8 and op.op != "copy":  # in 32 bits, of which the lower 8 are the result
            wide = [a if isinstance(a, str) or a.is_mask else self.converted(a, i32, w.temp, op.loc) for a in args]
            out = self.compute(op, wide, w.temp, i32)
            self.converted(out, dtype, to, op.loc)
            return
        small = dtype in (f16, bf16)
        if small and (dtype == bf16 or op.op not in _EXACT_IN_HALF) and op.op not in ("copy",):
            wide = [a if isinstance(a, str) or a.is_mask else self.converted(a, f32, w.temp, op.loc) for a in args]
            out = self.compute(op, wide, w.temp, f32)
            self.converted(out, dtype, to, op.loc)
            return
        self.compute(op, args, to, dtype)

    # -- by operation ---------------------------------------------------------------------------------------------

    def compute(self, op: Op, args: list[Operand], to: Any, dtype: DType) -> Value:
        """`op` on tiles and numbers of one dtype."""
        w, loc = self.w, op.loc
        name = op.op
        if name in _BINARY:
            if name == "div" and not dtype.is_float:
                raise unsupported("a division of integers", loc, "convert them to f32")
            return self.binary(_BINARY[name], args[0], args[1], to, loc)
        if name == "select":
            return self.select(args[0], args[1], args[2], dtype, to, loc)
        if name == "fma" and dtype == f32:
            values = self.alike(args, loc)
            out = self.unary("TMOV", values[2], w.temp, loc)  # the result may go where a factor is
            w.emit("TMULADDDST", *(w.tile(v, valid=out.valid, loc=loc) for v in (out, *values[:2])), loc=loc)
            return self.unary("TMOV", out, to, loc)
        x = args[0]
        if not isinstance(x, Value):  # a number and a tile
            (x,) = self.alike([x, *(a for a in args if isinstance(a, Value))], loc)[:1]
            args = [x, *args[1:]]
        match name:
            case "copy":
                return self.unary("TMOV", x, to, loc)
            case "neg":
                return self.scaled("TMULS", x, "-1", to, loc)
            case "square":
                return self.binary("MUL", x, x, to, loc)
            case "abs" if dtype.is_float:
                return self.unary("TABS", x, to, loc)
            case "abs":
                return self.binary("MAX", x, self.scaled("TMULS", x, "-1", w.temp, loc), to, loc)
            case "relu" if dtype != i16:
                return self.unary("TRELU", x, to, loc)
            case "relu":
                return self.scaled("TMAXS", x, "0", to, loc)
            case "not" if dtype in (i16, i32):
                return self.unary("TNOT", x, to, loc)
            case "and" | "or" if dtype in (i16, i32):
                return self.same(f"T{name.upper()}", self.alike(args, loc), to, loc)
            case "xor" if dtype in (i16, i32):
                values = self.alike(args, loc)
                both = w.tile(self.same("TAND", values, w.temp, loc), loc=loc)
                out = self.same("TOR", values, to, loc)
                tile = w.tile(out, loc=loc)
                w.emit("TSUB", tile, tile, both, loc=loc)
                return out
            case "shl" | "shr" if dtype in (i16, i32) and _is_below(op.args[1], dtype.bits):
                return self.scaled(f"TSH{name[-1].upper()}S", x, str(args[1]), to, loc)
            case "shl" | "shr" if dtype == i32:
                return write_shift(self, name, x, args[1], to, loc)
            case "shl" | "shr" if dtype == i16:
                wide = [a if isinstance(a, str) else self.converted(a, i32, w.temp, loc) for a in args]
                return self.converted(self.compute(op, wide, w.temp, i32), i16, to, loc)
            case "floordiv" | "mod" if dtype in (i16, i32) and _power_of_two(op.args[1]):
                shift = str(int(op.args[1].value).bit_length() - 1)  # type: ignore[union-attr]
                if name == "floordiv":
                    return self.scaled("TSHRS", x, shift, to, loc)
                whole = self.scaled("TSHRS", x, shift, w.temp, loc)
                return self.binary("SUB", x, self._in_place("TSHLS", whole, shift, loc), to, loc)
            case "floordiv" | "mod" if dtype in (i16, i32) and _is_divisor(op.args[1]):
                return self.divided(name, x, int(op.args[1].value), to, loc)  # type: ignore[union-attr]
            case "floordiv" | "mod" if dtype in (i16, i32):
                return write_quotient(self, name, self.alike(args, loc), to, loc)
            case "floordiv" | "mod" if dtype != f32:
                raise unsupported(f"`{'//' if name == 'floordiv' else '%'}` of tiles of {dtype}", loc,
                                  "divide tiles of i32, or of f32")  # fmt: skip
            case "sign":
                up = self.compare("GT", x, "0", to=w.temp, loc=loc)
                down = self.compare("LT", x, "0", to=w.temp, loc=loc)
                lower = self.select(down, "-1", x, dtype, w.temp, loc)
                return self.select(up, "1", lower, dtype, to, loc)
            case _:
                pass
        if dtype == f32:
            if name in _COMPOSED and w.times(name) > 1:
                return write_call(w, name, x, lambda like, to: self.composed(op, like, to), to, loc)
            found = self.function(op, x, to)
            if found is not None:
                return found
            if name in functions.NAMES:
                values = self.alike(args, loc)
                return functions.FunctionWriter(self, values[0], loc).write(name, values, to)
        raise unsupported(
            f"`{name}` of tiles of {dtype}", loc, "see docs/ascend.md for what there is, or compute it in f32"
        )

    def divided(self, name: str, x: Value, divisor: int, to: Any, loc: Loc) -> Value:
        """The quotient of integers and a constant, rounded down, or the remainder.

        f32 has the quotient up to some hundred over the divisor, for it has 24 bits of 32.  What is left then is exact,
        and with a half added its quotient is no integer, which a rounding error would make another one.
        """
        w = self.w
        wide = self.converted(x, i32, w.temp, loc)
        about = self._quotient(self.converted(wide, f32, w.temp, loc), divisor, loc)
        left = self.binary("SUB", wide, self.scaled("TMULS", about, str(divisor), w.temp, loc), w.temp, loc)
        half = "0.5f" if divisor > 0 else "-0.5f"
        number = self._in_place("TADDS", self.converted(left, f32, w.temp, loc), half, loc)
        more = self._quotient(number, divisor, loc)
        out = w.temp if x.dtype != i32 else to
        if name == "floordiv":
            result = self.binary("ADD", about, more, out, loc)
        else:
            result = self.binary("SUB", left, self.scaled("TMULS", more, str(divisor), w.temp, loc), out, loc)
        return result if x.dtype == i32 else self.converted(result, x.dtype, to, loc)

    def _quotient(self, number: Value, divisor: int, loc: Loc) -> Value:
        """A tile of f32 over a constant, rounded down to i32."""
        w = self.w
        out = self.scaled("TMULS", number, literal(1 / divisor, f32), w.temp, loc)
        tile = w.tile(out, loc=loc)
        w.emit("TCVT", tile, tile, "RoundMode::CAST_FLOOR", loc=loc)
        return self.converted(out, i32, w.temp, loc)

    def function(self, op: Op, x: Value, to: Any) -> Value | None:
        """Functions of f32: the core's own exponential, logarithm and root, and what they make up."""
        w, loc = self.w, op.loc
        match op.op:
            case "exp" | "log" | "sqrt":
                return self.unary(f"T{op.op.upper()}", x, to, loc)
            case "rsqrt":
                return self.over("1.0f", self.unary("TSQRT", x, w.temp, loc), to, loc)
            case "reciprocal":
                return self.over("1.0f", x, to, loc)
            case "log2":
                return self.scaled("TMULS", self.unary("TLOG", x, w.temp, loc), "1.44269504f", to, loc)
            case "sigmoid":
                return self.over("1.0f", self._one_plus_exp(x, "-1.0f", loc), to, loc)
            case "silu":
                return self._over_denominator(x, self._one_plus_exp(x, "-1.0f", loc), to, loc)
            case "gelu" if op.attr("approximate") == "tanh":
                # x * sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x**3)
                cube = self.scaled("TMULS", self.binary("MUL", x, x, w.temp, loc), f"{_CUBIC}f", w.temp, loc)
                inner = self.binary("MUL", self._in_place("TADDS", cube, "1.0f", loc), x, w.temp, loc)
                denominator = self._one_plus_exp(inner, f"{-2 * _SQRT_2_OVER_PI:.9g}f", loc)
                return self._over_denominator(x, denominator, to, loc)
            case "floor" | "ceil" | "round" | "trunc":
                out = to(f32, x.span, x.capacity, x.valid, x.free, (x,))
                w.emit("TCVT", w.tile(out, valid=x.valid, loc=loc), w.tile(x, loc=loc),
                       f"RoundMode::CAST_{_ROUNDINGS[op.op]}", loc=loc)  # fmt: skip
                return out
            case _:
                return None

    def composed(self, op: Op, x: Value, to: Any) -> Value:
        out = self.function(op, x, to)
        assert out is not None
        return out

    def _one_plus_exp(self, x: Value, factor: str, loc: Loc) -> Value:
        """1 + exp(factor * x), in scratch memory."""
        out = self.scaled("TMULS", x, factor, self.w.temp, loc)
        tile = self.w.tile(out, loc=loc)
        self.w.emit("TEXP", tile, tile, loc=loc)
        self.w.emit("TADDS", tile, tile, "1.0f", loc=loc)
        return out

    def _over_denominator(self, x: Value, denominator: Value, to: Any, loc: Loc) -> Value:
        """x / denominator, where both may be infinite: 0 for the smallest x."""
        w = self.w
        out = self.scaled("TMAXS", x, _LOWEST, to, loc)
        tile = w.tile(out, valid=x.valid, loc=loc)
        w.emit("TDIV", tile, tile, w.tile(denominator, loc=loc), loc=loc)
        return out

    def _in_place(self, name: str, x: Value, number: str, loc: Loc) -> Value:
        tile = self.w.tile(x, loc=loc)
        self.w.emit(name, tile, tile, number, loc=loc)
        return x

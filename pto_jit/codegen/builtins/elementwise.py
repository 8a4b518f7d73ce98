# SPDX-License-Identifier: MIT
"""Elementwise operations and the Python operators on run-time values."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Any

from pto_jit import dtypes
from pto_jit.codegen.builtins.promote import (
    Value,
    apply,
    common_dtype,
    describe,
    is_weak,
    quoted,
    to_dtype,
    unify,
    value_of,
)
from pto_jit.codegen.builtins.registry import builtin
from pto_jit.codegen.emit import constant, index
from pto_jit.codegen.values import Scalar, Tile
from pto_jit.dtypes import DType, bool_, f16, f32, f64, i8, i64
from pto_jit.errors import TypeMismatchError, similar
from pto_jit.ir.nodes import Const

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

FLOAT_UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "tanh", "erf",
    "sigmoid", "silu", "gelu",
)  # fmt: skip
KEEPING_UNARY = ("abs", "sign", "square", "relu", "neg")
ROUNDING = ("floor", "ceil", "round", "trunc")


def float_dtype(dtype: DType) -> DType:
    """The dtype a float function computes an integer argument in, as NumPy's ufuncs choose it."""
    if dtype.is_float:
        return dtype
    if dtype.kind == "b" or dtype.bits == 8:
        return f16
    return f32 if dtype.bits == 16 else f64


def unary(cg: Generator, op: str, x: Any, attrs: dict[str, Any] | None = None) -> Value:
    value = value_of(cg, x, f"the argument of {op}")
    weak = isinstance(value, Scalar) and value.weak
    if op in FLOAT_UNARY:
        value = to_dtype(cg, value, f64 if weak else float_dtype(value.dtype))
    elif op in ROUNDING:
        if not value.dtype.is_float:
            return value
    elif value.dtype.kind == "b":
        if op in ("abs", "relu", "square"):
            return value
        if not weak:
            raise cg.error(
                TypeMismatchError, f"`{op}` is not defined for bool_", code="PTO-T020", hint="cast it: `x.to(pl.i32)`"
            )
        value = to_dtype(cg, value, dtypes.i64)
    return apply(cg, op, [value], attrs, weak=weak)


def _register_unary(name: str) -> None:
    @builtin(name)
    def handler(cg: Generator, x: Any) -> Value:
        return unary(cg, name, x)


for _name in (*(n for n in FLOAT_UNARY if n != "gelu"), *KEEPING_UNARY[:4], *ROUNDING):
    _register_unary(_name)


@builtin("gelu")
def gelu(cg: Generator, x: Any, approximate: Any = "none") -> Value:
    kind = cg.static(approximate, "approximate")
    if kind not in ("none", "tanh"):
        raise cg.error(
            TypeMismatchError, f"gelu: approximate is {quoted(kind)}", code="PTO-T021", hint='use "none" or "tanh"'
        )
    return unary(cg, "gelu", x, {"approximate": kind})


@builtin("isnan")
def isnan(cg: Generator, x: Any) -> Value:
    return _classify(cg, "isnan", x)


@builtin("isinf")
def isinf(cg: Generator, x: Any) -> Value:
    return _classify(cg, "isinf", x)


@builtin("isfinite")
def isfinite(cg: Generator, x: Any) -> Value:
    return _classify(cg, "isfinite", x)


def _classify(cg: Generator, op: str, x: Any) -> Value:
    value = value_of(cg, x, f"the argument of {op}")
    if not value.dtype.is_float:
        return apply(cg, "eq" if op == "isfinite" else "ne", [value, value])
    return apply(cg, op, [value])


# -- two operands -----------------------------------------------------------------------------------------------

ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "pow": "**"}
BITWISE = {"and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
_ON_BOOL = {"add": "or", "mul": "and"}

AST_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "shr",
}  # fmt: skip
AST_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip


def binary_op(cg: Generator, op: str, a: Any, b: Any) -> Value:
    """`a op b` with NumPy's dtype rules."""
    symbol = {**ARITHMETIC, **BITWISE, "div": "/"}.get(op, op)
    left, right = (value_of(cg, v, f"an operand of `{symbol}`") for v in (a, b))
    if op == "pow":
        simple = _simple_power(cg, left, b)
        if simple is not None:
            return simple
    dtype, weak = common_dtype([left, right])
    if op == "div" and not dtype.is_float:
        dtype = f64
    if op in BITWISE and (dtype.is_float or (op in ("shl", "shr") and dtype.kind == "b")):
        raise cg.error(
            TypeMismatchError,
            f"`{symbol}` takes integers{' or bool_' if op in ('and', 'or', 'xor') else ''}, got {describe(left)} and "
            f"{describe(right)}",
            code="PTO-T022",
            hint="cast with `.to(pl.i32)`, or use the arithmetic operators",
        )
    if dtype.kind == "b" and op in ARITHMETIC:
        if weak:
            dtype = dtypes.i64
        elif op in _ON_BOOL:
            op = _ON_BOOL[op]
        elif op == "sub":
            raise cg.error(
                TypeMismatchError, "bool_ tiles cannot be subtracted", code="PTO-T023", hint="use `^`, or cast first"
            )
        else:
            dtype = i8
    return apply(cg, op, [to_dtype(cg, left, dtype), to_dtype(cg, right, dtype)], weak=weak)


_PRODUCTS = (3, 4, 5, -2)  # powers of floats whose products err by less than 4 ulp
_WITH_ROOTS = (1.5, 2.5, -0.5, -1.5, -2.5)  # and those that a square root takes part in


def _simple_power(cg: Generator, x: Value, exponent: Any) -> Value | None:
    """The powers that need no `pow`: as in NumPy 1, 2, 0.5 and -1 of floats, 1 and 2 of integers; `_PRODUCTS`; and
    `_WITH_ROOTS`."""
    if isinstance(exponent, bool) or not isinstance(exponent, (int, float)):
        return None
    if not x.dtype.is_float and not isinstance(exponent, int):
        return None
    if exponent == 1 and x.dtype.kind != "b":
        return x
    if exponent == 2 and x.dtype.kind != "b":
        return apply(cg, "mul", [x, x], weak=isinstance(x, Scalar) and x.weak)
    if x.dtype.is_float and exponent == 0.5:
        return unary(cg, "sqrt", x)
    if x.dtype.is_float and exponent == -1:
        return unary(cg, "reciprocal", x)
    if x.dtype.is_float and exponent in _PRODUCTS:
        return _product(cg, x, int(exponent))
    if x.dtype.is_float and exponent in _WITH_ROOTS:
        return _product_with_root(cg, x, exponent)
    return None


def _product(cg: Generator, x: Value, exponent: int) -> Value:
    """A power by squaring, of the reciprocal where `exponent` is negative: x * x would overflow where the result is
    subnormal.  Of 16-bit floats in f32, so that the result alone is rounded."""
    weak = isinstance(x, Scalar) and x.weak
    power = x if x.dtype.bits > 16 else to_dtype(cg, x, f32)
    if exponent < 0:
        power = unary(cg, "reciprocal", power)
    result: Value | None = None
    rest = abs(exponent)
    while True:
        if rest % 2:
            result = power if result is None else apply(cg, "mul", [result, power], weak=weak)
        rest //= 2
        if not rest:
            break
        power = apply(cg, "mul", [power, power], weak=weak)
    assert result is not None
    return to_dtype(cg, result, x.dtype)


def _product_with_root(cg: Generator, x: Value, exponent: float) -> Value:
    """x ** (n + 1/2) as x ** n times the root, and x ** -(n + 1/2) as (1 / x) ** n divided by it, so that nothing
    overflows and no digit is lost where the result has it.  The root of -0 is -0, which an odd number of factors makes
    +0 as `pow` does; and a power of minus infinity is one of infinity, whose root alone does not exist."""
    weak = isinstance(x, Scalar) and x.weak
    base = x if x.dtype.bits > 16 else to_dtype(cg, x, f32)
    whole = int(abs(exponent))
    root = unary(cg, "sqrt", base)
    if whole % 2 == 0:
        root = unary(cg, "abs", root)
    factor = base if exponent > 0 or not whole else unary(cg, "reciprocal", base)
    product = factor if whole < 2 else apply(cg, "mul", [factor, factor], weak=weak)
    if not whole:
        result = unary(cg, "reciprocal", root)
    else:
        result = apply(cg, "mul" if exponent > 0 else "div", [product, root], weak=weak)
    lost = compare(ast.Eq, cg, base, -math.inf)
    return to_dtype(cg, where(cg, lost, math.inf if exponent > 0 else 0.0, result), x.dtype)


def binary(op: type[ast.operator], cg: Generator, a: Any, b: Any) -> Any:
    """A Python binary operator with at least one run-time operand."""
    if op is ast.MatMult:
        from pto_jit.codegen.builtins.matrix import dot

        return dot(cg, a, b)
    if op is ast.Pow and isinstance(b, int) and b < 0 and a.dtype.is_integer:
        raise cg.error(
            TypeMismatchError,
            "an integer to a negative integer power",
            code="PTO-T024",
            hint="cast the base to a float dtype first; `pl.pow` gives the truncated value",
        )
    return binary_op(cg, AST_BINARY[op], a, b)


def compare(op: type[ast.cmpop], cg: Generator, a: Any, b: Any) -> Any:
    """A comparison with at least one run-time operand: bool_."""
    if op not in AST_COMPARE:
        raise cg.error(
            TypeMismatchError,
            f"`{'is' if op is ast.Is else 'is not'}` of a run-time value",
            code="PTO-T025",
            hint="run-time values have no identity: compare with `==`",
        )
    left, right = (value_of(cg, v, "an operand of the comparison") for v in (a, b))
    name, left, right = _within(cg, AST_COMPARE[op], left, right)
    (left, right), weak = unify(cg, _as_they_are(cg, left, right))
    return apply(cg, name, [left, right], weak=weak)


def _as_they_are(cg: Generator, left: Value, right: Value) -> list[Value]:
    """The operands of a comparison, wide enough that a Python integer beside integers of 8 or 16 bits keeps its value,
    as in NumPy (whatever it is, `x < n` says whether it is larger)."""
    pair = [left, right]
    for k, number in enumerate(pair):
        other = pair[1 - k]
        narrow = other.dtype.is_integer and other.dtype.bits <= 16 and not is_weak(other)
        if not (narrow and is_weak(number) and number.dtype.is_integer and isinstance(number, Scalar)):
            continue
        if isinstance(number.operand, Const):
            continue
        wide = i64
        if isinstance(other, Tile):  # half the lanes; a number that does not fit is beyond all elements either way
            wide = dtypes.i32
            low, high = (Scalar(index(bound), True, cg.e.loc) for bound in (-(2**31), 2**31 - 1))
            number = apply(cg, "max", [low, apply(cg, "min", [high, to_dtype(cg, number, i64)])])
        pair[k], pair[1 - k] = to_dtype(cg, number, wide), to_dtype(cg, other, wide)
    return pair


_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_ABOVE = {"lt": "le", "le": "le", "gt": "gt", "ge": "gt", "eq": "gt", "ne": "le"}
_BELOW = {"lt": "lt", "le": "lt", "gt": "ge", "ge": "ge", "eq": "lt", "ne": "ge"}
"""Comparisons with a number beyond all of a dtype, as comparisons with the greatest or the lowest one of it."""


def _within(cg: Generator, name: str, left: Value, right: Value) -> tuple[str, Value, Value]:
    """A comparison with a constant that does not fit the integers it is compared with, as one with a constant that
    does: like NumPy's it says which one is larger."""
    other, number = (right, left) if is_weak(left) else (left, right)
    held = number.operand if isinstance(number, Scalar) and number.weak else None
    if is_weak(other) or not other.dtype.is_integer or not isinstance(held, Const) or type(held.value) is not int:
        return name, left, right
    dtype = other.dtype
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
    high = low + (1 << dtype.bits) - 1
    if low <= held.value <= high:
        return name, left, right
    name = name if number is right else _MIRRORED[name]
    name, limit = (_ABOVE[name], high) if held.value > high else (_BELOW[name], low)
    return name, other, Scalar(constant(limit, dtype), False, number.origin)


def python_unary(op: type[ast.unaryop], cg: Generator, a: Any) -> Any:
    """A Python unary operator on a run-time value."""
    if op is ast.UAdd:
        return value_of(cg, a)
    if op is ast.USub:
        return unary(cg, "neg", a)
    if op is ast.Not:
        return apply(cg, "not", [truth(cg, a)], weak=True)
    value = value_of(cg, a)
    if value.dtype.is_float:
        raise cg.error(TypeMismatchError, "`~` takes integers or bool_", code="PTO-T022", hint="cast first")
    return apply(cg, "not", [value])


def tested(cg: Generator, value: Any) -> Any:
    """What decides whether a value is true: of an object whose length may be a run-time value that."""
    own = getattr(type(value), "__pto_length__", None)
    return value if own is None else own(value, cg)


def truth(cg: Generator, value: Any) -> Scalar:
    """A run-time value as a condition."""
    number = value_of(cg, tested(cg, value), "a condition")
    if not isinstance(number, Scalar):
        raise cg.error(
            TypeMismatchError,
            "the truth value of a tile is ambiguous",
            code="PTO-T026",
            hint="reduce it with `pl.any(t)` or `pl.all(t)`, or select elements with `pl.where`",
        )
    return number if number.dtype == bool_ else cg.e.cast(number, bool_)


@builtin("atan2")
def atan2(cg: Generator, y: Any, x: Any) -> Value:
    return _of_two(cg, "atan2", "atan2", y, x)


def _register_binary(name: str, op: str) -> None:
    @builtin(name)
    def handler(cg: Generator, x: Any, y: Any) -> Value:
        return _of_two(cg, name, op, x, y)


def _of_two(cg: Generator, name: str, op: str, a: Any, b: Any) -> Value:
    left, right = value_of(cg, a, f"an argument of {name}"), value_of(cg, b, f"an argument of {name}")
    if op in ("max", "min"):
        (left, right), weak = unify(cg, [left, right])
        if left.dtype.kind == "b":
            return apply(cg, "or" if op == "max" else "and", [left, right], weak=weak)
        return apply(cg, op, [left, right], weak=weak)
    if op == "pow":
        return binary_op(cg, "pow", a, b)
    dtype, weak = common_dtype([left, right])
    if op == "atan2" or dtype.kind == "b":
        dtype = float_dtype(dtype)
    return apply(cg, op, [to_dtype(cg, left, dtype), to_dtype(cg, right, dtype)], weak=weak)


for _name, _op in (("maximum", "max"), ("minimum", "min"), ("pow", "pow"), ("fmod", "fmod")):
    _register_binary(_name, _op)


@builtin("where")
def where(cg: Generator, condition: Any, x: Any, y: Any) -> Value:
    chosen = to_dtype(cg, value_of(cg, condition, "the condition of where"), bool_)
    (left, right), weak = unify(cg, [value_of(cg, x, "an argument of where"), value_of(cg, y, "an argument of where")])
    return apply(cg, "select", [chosen, left, right], weak=weak and isinstance(chosen, Scalar))


@builtin("clip")
def clip(cg: Generator, x: Any, min: Any = None, max: Any = None) -> Value:
    value = value_of(cg, x, "the argument of clip")
    for op, bound in (("max", min), ("min", max)):
        if bound is not None:
            (value, limit), weak = unify(cg, [value, value_of(cg, bound, "a bound of clip")])
            value = apply(cg, op, [value, limit], weak=weak)
    return value


@builtin("fma")
def fma(cg: Generator, x: Any, y: Any, z: Any) -> Value:
    values = [value_of(cg, v, "an argument of fma") for v in (x, y, z)]
    dtype, weak = common_dtype(values)
    if not dtype.is_float:
        dtype = f64
    return apply(cg, "fma", [to_dtype(cg, v, dtype) for v in values], weak=weak)


@builtin("cast")
def cast(cg: Generator, x: Any, dtype: Any) -> Value:
    return cg.e.cast(value_of(cg, x, "the argument of cast"), dtype_of(cg, dtype))


@builtin("bitcast")
def bitcast(cg: Generator, x: Any, dtype: Any) -> Value:
    value, target = value_of(cg, x, "the argument of bitcast"), dtype_of(cg, dtype)
    if value.dtype.bits != target.bits or "b" in (value.dtype.kind, target.kind):
        raise cg.error(
            TypeMismatchError,
            f"bitcast from {value.dtype} to {target}: the widths differ or one is bool_",
            code="PTO-T027",
            hint="bitcast keeps the bits; use `.to(dtype)` to convert values",
        )
    return value if value.dtype == target else apply(cg, "bitcast", [value], {"dtype": target})


def dtype_of(cg: Generator, dtype: Any) -> DType:
    """A dtype argument: a `pl` dtype, or a NumPy one."""
    value = cg.static(dtype, "a dtype")
    if isinstance(value, DType):
        return value
    kind: Any = {bool: "bool", int: "int64", float: "float64"}.get(value, value) if isinstance(value, type) else value
    try:
        found = dtypes.from_numpy(kind) if kind else None
    except (TypeError, ValueError):  # NumPy reads lists, too, as structures
        found = None
    if found is None:
        names = ", ".join(f"pl.{t.name}" for t in dtypes.ALL)
        raise cg.error(TypeMismatchError, f"{describe(value)} is not a dtype", code="PTO-T028",
                       hint=f"{similar(str(value), (t.name for t in dtypes.ALL))}use one of {names}")  # fmt: skip
    return found

# SPDX-License-Identifier: MIT
"""Elementwise operations: arithmetic, comparisons, choice and conversions of scalars and tiles.

Operands have one dtype; scalars mix freely with tiles; tiles have one rank and broadcast along axes whose declared
extent is the constant 1.
"""

from __future__ import annotations

from pto_jit.dtypes import DType, bool_, f32, i64
from pto_jit.errors import TypeMismatchError
from pto_jit.ir.nodes import Operand
from pto_jit.ir.types import Extent, ScalarType, TensorType, TileType
from pto_jit.semantic import checks
from pto_jit.semantic.row import SCALAR, Args, Attrs, OpRow, Regions, Rule, Types


def joint_shape(op: str, args: tuple[Operand, ...]) -> tuple[Extent, ...] | None:
    """The shape of an elementwise result; None when all operands are scalars."""
    shape: tuple[Extent, ...] | None = None
    for arg in args:
        kind = arg.type
        if type(kind) is TileType:
            if shape is None:
                shape = kind.shape
            elif shape != kind.shape:
                shape = checks.broadcast(op, shape, kind.shape)
        elif type(kind) is TensorType:
            raise TypeMismatchError(
                f"`{op}` takes tiles and scalars, not {checks.describe(kind)}", code="PTO-T120", hint="load it first"
            )
    return shape


def _result(dtype: DType, shape: tuple[Extent, ...] | None, args: tuple[Operand, ...]) -> ScalarType | TileType:
    """The type of an elementwise result; that of an operand where it is the same, which is compared most quickly."""
    if shape is None:
        return SCALAR[dtype]
    for arg in args:
        kind = arg.type
        if type(kind) is TileType and kind.dtype is dtype and kind.shape == shape:
            return kind
    return TileType(dtype, shape)


def arithmetic(kinds: str) -> Rule:
    """Operands of one dtype of the given kinds; the result has it too."""

    def rule(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
        dtype = checks.one_dtype(op, args)
        if dtype.kind not in kinds:
            checks.kind(op, dtype, kinds)
        return (_result(dtype, joint_shape(op, args), args),)

    return rule


def predicate(kinds: str) -> Rule:
    """Operands of one dtype of the given kinds; the result is bool_."""

    def rule(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
        checks.kind(op, checks.one_dtype(op, args), kinds)
        return (_result(bool_, joint_shape(op, args), args),)

    return rule


def gelu(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    if attrs.get("approximate", "none") not in ("none", "tanh"):
        raise TypeMismatchError(
            f"`gelu`: approximate is {attrs['approximate']!r}", code="PTO-T121", hint='use "none" or "tanh"'
        )
    return arithmetic("f")(op, args, attrs, regions)


def select(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    if not checks.same(args[0].type.dtype, bool_):
        raise TypeMismatchError(
            f"`select`: the condition must be bool_, not {args[0].type.dtype}", code="PTO-T122",
            hint="compare it: `x != 0`",
        )
    dtype = checks.one_dtype(op, args[1:])
    return (_result(dtype, joint_shape(op, args), args),)


def cast(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    dtype = checks.dtype_attr(op, attrs)
    return (_result(dtype, joint_shape(op, args), args),)


def bitcast(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    dtype, old = checks.dtype_attr(op, attrs), args[0].type.dtype
    if dtype.bits != old.bits or "b" in (dtype.kind, old.kind):
        raise TypeMismatchError(
            f"`bitcast` from {old} to {dtype}: the widths differ or one is bool_",
            code="PTO-T123",
            hint="bitcast keeps the bits; use `.to(dtype)` to convert values",
        )
    return cast(op, args, attrs, regions)


def random_at(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    checks.scalar(op, args[0], "seed", i64)
    counters = args[1].type
    if isinstance(counters, TensorType):
        checks.tile(op, args[1], "counters")
    checks.kind(op, counters.dtype, "iu")
    return (SCALAR[f32] if isinstance(counters, ScalarType) else TileType(f32, counters.shape),)


def _row(name: str, arity: int, rule: Rule, doc: str, *, commutative: bool = False) -> OpRow:
    signature = f"{name}({', '.join('abc'[:arity]) if arity > 1 else 'x'})"
    return OpRow(name, "elementwise", signature, doc, rule, arity, arity, elementwise=True, commutative=commutative)


_BINARY = {
    "add": ("fiu", "a + b; integers wrap", True),
    "sub": ("fiu", "a - b; integers wrap", False),
    "mul": ("fiu", "a * b; integers wrap", True),
    "div": ("f", "a / b", False),
    "floordiv": ("fiu", "a // b, rounded down; of integers by zero 0, and INT_MIN // -1 wraps", False),
    "mod": ("fiu", "a % b with the sign of b; of integers by zero 0", False),
    "fmod": ("fiu", "remainder with the sign of a (C's fmod); of integers by zero 0", False),
    "pow": ("fiu", "a ** b; integers: wrapping, to negative powers rounded towards 0", False),
    "atan2": ("f", "angle of the point (b, a)", False),
    "max": ("fiu", "the larger one; NaN if one is NaN", True),
    "min": ("fiu", "the smaller one; NaN if one is NaN", True),
    "and": ("iub", "bitwise and; logical on bool_", True),
    "or": ("iub", "bitwise or; logical on bool_", True),
    "xor": ("iub", "bitwise exclusive or; logical on bool_", True),
    "shl": ("iu", "a << b; 0 when b is at least the width", False),
    "shr": ("iu", "a >> b, arithmetic on signed integers", False),
}
_UNARY = {
    "neg": ("fiu", "-x; integers wrap"),
    "abs": ("fiu", "absolute value; INT_MIN stays"),
    "sign": ("fiu", "-1, 0 or 1; NaN of NaN"),
    "square": ("fiu", "x * x"),
    "relu": ("fiu", "max(x, 0); NaN of NaN"),
    "exp": ("f", "e to the x"),
    "exp2": ("f", "2 to the x"),
    "expm1": ("f", "exp(x) - 1, accurate near 0"),
    "log": ("f", "natural logarithm"),
    "log2": ("f", "logarithm to base 2"),
    "log1p": ("f", "log(1 + x), accurate near 0"),
    "sqrt": ("f", "square root"),
    "rsqrt": ("f", "1 / sqrt(x)"),
    "reciprocal": ("f", "1 / x"),
    "sin": ("f", "sine of radians"),
    "cos": ("f", "cosine of radians"),
    "tan": ("f", "tangent of radians"),
    "tanh": ("f", "hyperbolic tangent"),
    "erf": ("f", "error function"),
    "sigmoid": ("f", "1 / (1 + exp(-x))"),
    "silu": ("f", "x * sigmoid(x)"),
    "floor": ("f", "largest whole number not above x"),
    "ceil": ("f", "smallest whole number not below x"),
    "round": ("f", "nearest whole number, halves to even"),
    "trunc": ("f", "whole number next to x towards 0"),
    "not": ("iub", "bitwise complement; logical on bool_"),
}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_CLASSIFY = {"isnan": "whether x is NaN", "isinf": "whether x is infinite", "isfinite": "whether x is finite"}

ROWS: tuple[OpRow, ...] = (
    *(_row(name, 2, arithmetic(kinds), doc, commutative=swap) for name, (kinds, doc, swap) in _BINARY.items()),
    *(_row(name, 1, arithmetic(kinds), doc) for name, (kinds, doc) in _UNARY.items()),
    *(_row(name, 2, predicate("fiub"), f"a {symbol} b", commutative=name in ("eq", "ne"))
      for name, symbol in _COMPARE.items()),
    *(_row(name, 1, predicate("f"), doc) for name, doc in _CLASSIFY.items()),
    _row("fma", 3, arithmetic("f"), "a * b + c, rounded once"),
    OpRow("gelu", "elementwise", "gelu(x)", 'Gaussian error linear unit; approximate: "none" (erf) or "tanh"', gelu,
          1, 1, optional=("approximate",), elementwise=True),
    OpRow("select", "elementwise", "select(cond, a, b)", "a where cond (bool_) holds, else b", select, 3, 3,
          elementwise=True),
    OpRow("cast", "elementwise", "cast(x) {dtype}", "x in another dtype; float to integer saturates (NaN: 0), integer "
          "to integer wraps, to bool_ is x != 0", cast, 1, 1, required=("dtype",), elementwise=True),
    OpRow("bitcast", "elementwise", "bitcast(x) {dtype}", "the same bits as another dtype of equal width", bitcast,
          1, 1, required=("dtype",), elementwise=True),
    OpRow("copy", "elementwise", "copy(x)", "the same value; how a merged or carried variable is assigned",
          arithmetic("fiub"), 1, 1, elementwise=True),
    OpRow("rand_at", "elementwise", "rand_at(seed, counters)", "uniform f32 in [0, 1) for each counter (Philox "
          "4x32-10)", random_at, 2, 2, elementwise=True),
    OpRow("randn_at", "elementwise", "randn_at(seed, counters)", "normally distributed f32 for each counter", random_at,
          2, 2, elementwise=True),
)  # fmt: skip

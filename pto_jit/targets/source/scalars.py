# SPDX-License-Identifier: MIT
"""Every elementwise operation on single elements, as a C++ expression.

16-bit floats are computed as `float` (`register_type`); integers wrap.  Operations without an operator in C are
functions of the namespace `pto`, which each target's header provides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import DType, f64, i64
from pto_jit.ir.nodes import Const
from pto_jit.targets.source.recipes import RecipeFunctions, float_literal
from pto_jit.targets.vecmath import RECIPES

_INTEGERS = {"i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
             "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t"}  # fmt: skip
_MEMORY = {**_INTEGERS, "f16": "pto::half", "bf16": "pto::bfloat16", "f32": "float", "f64": "double", "bool_": "bool"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SIGNS = {"add": "+", "sub": "-", "mul": "*"}
_BITS = {"and": "&", "or": "|", "xor": "^"}
_OF_FLOATS = {
    "div": "{} / {}", "neg": "-{}", "abs": "pto::absolute({})", "square": "{0} * {0}",
    "fma": "pto::fma({}, {}, {})", "sqrt": "pto::square_root({})", "floor": "pto::round_down({})",
    "ceil": "pto::round_up({})", "trunc": "pto::truncate({})", "round": "pto::round_even({})",
    "max": "pto::maximum({}, {})", "min": "pto::minimum({}, {})", "relu": "pto::relu({})",
    "sign": "pto::sign({})", "isnan": "{0} != {0}", "isinf": "pto::is_infinite({})",
    "isfinite": "pto::is_finite({})",
}  # fmt: skip
"""What becomes of operations on floats, by name."""
_OF_BOOLS = {"and": "{} && {}", "or": "{} || {}", "xor": "{} != {}", "not": "!{}"}
"""What becomes of operations on truth values, by name."""
_OF_INTEGERS = {
    "square": "pto::wrapping_mul<{t}>({0}, {0})",
    "neg": "pto::wrapping_sub<{t}>(0, {})", "abs": "pto::integer_absolute<{t}>({})",
    "relu": "pto::larger<{t}>({}, 0)", "sign": "pto::integer_sign<{t}>({})",
    "max": "pto::larger<{t}>({}, {})", "min": "pto::smaller<{t}>({}, {})",
    "not": "{t}(~{})", "shl": "pto::shift_left<{t}>({}, {})",
    "shr": "pto::shift_right<{t}>({}, {})", "floordiv": "pto::integer_floordiv<{t}>({}, {})",
    "mod": "pto::integer_mod<{t}>({}, {})", "fmod": "pto::integer_fmod<{t}>({}, {})",
    "pow": "pto::integer_pow<{t}>({}, {})",
}  # fmt: skip
"""What becomes of operations on integers, by name; `t` is their type."""
_UNARY = ("-", "+", "*", "/", "!", "~")


def memory_type(dtype: DType) -> str:
    """The type of an element in memory."""
    return _MEMORY[dtype.name]


def register_type(dtype: DType) -> str:
    """The type that an element is computed with."""
    if dtype.kind == "f":
        return "double" if dtype == f64 else "float"
    return _MEMORY[dtype.name]


def literal(value: float | bool, dtype: DType) -> str:
    """A constant of a register type."""
    if dtype.kind == "f":
        return float_literal(float(value), "f64" if dtype == f64 else "f32")
    if dtype.kind == "b":
        return "true" if value else "false"
    number = int(value)
    if dtype == i64:
        if number == -(2**63):
            return "(-0x7fffffffffffffff - 1)"
        return str(number) if abs(number) < 2**31 else f"{number}ll"
    if dtype.bits == 64:
        return f"{number}ull"
    if number == -(2**31):
        return "(-0x7fffffff - 1)"
    return (
        f"{number}u" if dtype.name == "u32" else str(number) if dtype.bits == 32 else f"{memory_type(dtype)}({number})"
    )


def constant(operand: Const) -> str:
    return literal(operand.value, operand.type.dtype)


def _atom(text: str) -> str:
    """`text`, in parentheses unless it is a name, a literal, a call or an element."""
    if text.startswith(_UNARY):
        return f"({text})"
    if " " not in text and "?" not in text:
        return text
    depth = 0
    for part in text.replace("?", " ").split(" ")[:-1]:
        depth += part.count("(") + part.count("[") - part.count(")") - part.count("]")
        if depth == 0:
            return f"({text})"
    return text


class Expressions:
    """Writes operations by name; the vector math it needs is collected in `functions`."""

    def __init__(self, functions: RecipeFunctions) -> None:
        self.functions = functions

    def apply(self, op: str, args: Sequence[str], dtype: DType, attrs: dict[str, Any], result: DType) -> str:
        """`op` on operands of `dtype` (the type of the first data operand), giving `result`.

        KeyError: there is no such elementwise operation here.
        """
        op = {"maximum": "max", "minimum": "min"}.get(op, op)
        a = [_atom(x) for x in args]
        if op == "copy":
            return args[0]
        if op == "cast":
            return cast(args[0], dtype, result)
        if op == "bitcast":
            return _bitcast(args[0], dtype, result)
        if op == "select":
            return f"{a[0]} ? {a[1]} : {a[2]}"
        if op in _COMPARE:
            return _compared(op, a, dtype)
        if dtype.kind == "f":
            return self._float(op, a, dtype, attrs)
        if dtype.kind == "b":
            return _bool(op, a)
        return _integer(op, a, dtype)

    def _float(self, op: str, a: Sequence[str], dtype: DType, attrs: dict[str, Any]) -> str:
        if op in _SIGNS:
            return f"{a[0]} {_SIGNS[op]} {a[1]}"
        if op in _OF_FLOATS:
            return _OF_FLOATS[op].format(*a)
        name = "f64" if dtype == f64 else "f32"
        if op in ("floordiv", "mod"):
            rest = self.functions.call("fmod", name, a)
            return f"pto::{'floor_divide' if op == 'floordiv' else 'modulo'}({a[0]}, {a[1]}, {rest})"
        if op == "gelu":
            op = "gelu_tanh" if attrs.get("approximate") == "tanh" else "gelu"
        if op not in RECIPES:
            raise KeyError(op)
        return self.functions.call(op, name, a)


def _compared(op: str, a: Sequence[str], dtype: DType) -> str:
    """A comparison.  Of an unsigned number with 0 compilers warn, as it may be decided, where they see the operator."""
    if dtype.kind == "u" and literal(0, dtype) in a and op not in ("eq", "ne"):
        x, y = a if op in ("lt", "ge") else (a[1], a[0])
        return f"{'!' if op in ('le', 'ge') else ''}pto::is_less<{memory_type(dtype)}>({x}, {y})"
    return f"{a[0]} {_COMPARE[op]} {a[1]}"


def cast(x: str, source: DType, target: DType) -> str:
    """A conversion between any two dtypes: NumPy's, with floats saturating to integers and NaN giving 0."""
    if source == target:
        return x
    to = register_type(target)
    if target.kind == "b":
        return f"{_atom(x)} != 0"
    if target.kind == "f":
        if target.bits == 16:
            narrow = "half" if target.name == "f16" else "bfloat16"
            return f"pto::rounded_to_{narrow}({x if source.kind == 'f' else f'float({x})'})"
        return x if register_type(source) == to else f"{to}({x})"
    if source.kind == "f":
        return f"pto::saturated<{to}>({x})"
    return f"{to}({x})"


def _bitcast(x: str, source: DType, target: DType) -> str:
    raw = f"pto::to_memory<{memory_type(source)}>({x})"
    return f"pto::from_memory(pto::reinterpret<{memory_type(target)}>({raw}))"


def _bool(op: str, a: Sequence[str]) -> str:
    return _OF_BOOLS[op].format(*a)


def _integer(op: str, a: Sequence[str], dtype: DType) -> str:
    typ = memory_type(dtype)
    if op in _SIGNS:
        # Plain operators keep indices readable.  64-bit overflow is left to the compiler (-fwrapv where there is one).
        if dtype == i64:
            return f"{a[0]} {_SIGNS[op]} {a[1]}"
        return f"pto::wrapping_{op}<{typ}>({a[0]}, {a[1]})"
    if op in _BITS:
        return f"{typ}({a[0]} {_BITS[op]} {a[1]})"
    return _OF_INTEGERS[op].format(*a, t=typ)

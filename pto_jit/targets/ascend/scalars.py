# SPDX-License-Identifier: MIT
"""Numbers of a kernel: what the scalar unit computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.dtypes import DType, f64, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Const, Op, Operand, Var
from pto_jit.ir.types import ScalarType
from pto_jit.targets.ascend import doubles
from pto_jit.targets.ascend.form import Assignment
from pto_jit.targets.ascend.machine import element_type
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.source.recipes import float_literal

if TYPE_CHECKING:
    from pto_jit.targets.ascend.scopes import Scopes

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
          "and": "&", "or": "|", "xor": "^"}  # fmt: skip
_FUNCTIONS = frozenset(
    "exp exp2 log log2 log1p expm1 sqrt rsqrt reciprocal sin cos tan tanh erf sigmoid silu gelu floor ceil round trunc "
    "pow fmod atan2 floordiv mod fma sign relu isinf isfinite".split()
)
"""What the scalar unit does not compute of floats."""
_FLOATS = frozenset(["f32", "f16", "bf16"])


def needs_vector_core(op: Op) -> bool:
    """Whether an operation on numbers is one on tiles of one element."""
    return op.op in _FUNCTIONS and all(
        isinstance(v.type, ScalarType) and (v.type.dtype.name in _FLOATS or v.type.dtype.kind == "b")
        for v in (*op.args, *op.results)
    )


def literal(value: float | bool, dtype: DType) -> str:
    """A constant as the scalar unit takes it."""
    if dtype.kind == "f":
        number = float(value)
        if number != number:
            return '__builtin_nanf("")'
        if number in (float("inf"), float("-inf")):
            return "__builtin_inff()" if number > 0 else "-__builtin_inff()"
        return float_literal(number, "f32")
    if dtype.kind == "b":
        return "true" if value else "false"
    number = int(value)
    if number == -(2**63):  # there is no such literal, but a sign and one that is too large
        return "INT64_MIN"
    return str(number) if abs(number) < 2**31 else f"{number}ll"


def operand_text(number: str, dtype: DType) -> str:
    """A number as an instruction on tiles of a dtype takes it."""
    if dtype.name == "f32":
        return number
    return f"({element_type(dtype)}){number if number.isidentifier() or number[0].isdigit() else f'({number})'}"


def shift_text(name: str, a: str, count: str, dtype: DType) -> str:
    """A shift of a number, in C: by counts that are not below its width all bits are shifted out."""
    sign, last = ("<<", "0") if name == "shl" else (">>", f"{a} >> {dtype.bits - 1}" if dtype.kind == "i" else "0")
    if count.isdigit():
        return f"{a} {sign} {count}" if int(count) < dtype.bits else last
    return f"{count} >= 0 && {count} < {dtype.bits} ? {a} {sign} {count} : {last}"


class Scalars:
    """Scalar variables of one kernel: expressions that are used once stand where they are used."""

    def __init__(self, writer: Scopes) -> None:
        self.writer = writer
        self.inline: dict[str, str] = {}

    def read(self, operand: Operand) -> str:
        if isinstance(operand, Const):
            wide = operand.type.dtype == f64 and self.writer.has_doubles
            return doubles.bits_of(operand.value) if wide else literal(operand.value, operand.type.dtype)
        return self.inline.get(operand.name) or self.writer.names.of(operand.name)

    def define(self, var: Var, expression: str, loc: Loc, memory: str | None = None, reads: object = None) -> None:
        """Give a variable a value; one that is assigned several times is a C++ variable of the kernel."""
        w = self.writer
        assert isinstance(var.type, ScalarType)
        typ = "int64_t" if var.type.dtype == i64 else w.scalar_type(var.type.dtype, loc)
        name = w.names.of(var.name)
        if var.name in w.facts.mutable:
            known = any(name in scope for scope in w.scopes)
            w.nodes.append(
                Assignment("" if known else typ, name, expression, loc, reads, memory, constant=False)  # type: ignore[arg-type]
            )
            w.scopes[-1][name] = name
            return
        if memory is None and reads is None and _is_name(expression):
            self.inline[var.name] = expression
            return
        w.nodes.append(Assignment(typ, name, expression, loc, memory=memory, reads=reads))  # type: ignore[arg-type]
        w.scopes[-1][name] = name

    def declare(self, var: Var, loc: Loc) -> None:
        """A number that is assigned in a block, and read after it."""
        w = self.writer
        name = w.names.of(var.name)
        dtype = var.type.dtype
        typ = "int64_t" if dtype == i64 else w.scalar_type(dtype, loc)
        zero = "false" if typ == "bool" else f"{typ}{{0}}" if typ == doubles.TYPE else "0"
        w.nodes.append(Assignment(typ, name, zero, loc, constant=False))
        w.scopes[-1][name] = name

    def operation(self, op: Op) -> None:
        self.define(op.results[0], self.computed(op), op.loc)

    def computed(self, op: Op) -> str:
        """An operation on numbers, in C++."""
        data = op.args[1] if op.op == "select" else op.args[0]
        args = [_atom(self.writer.number(a)) for a in op.args]
        return self.expression(op, args, data.type.dtype)

    def expression(self, op: Op, a: list[str], dtype: DType) -> str:
        name = {"maximum": "max", "minimum": "min"}.get(op.op, op.op)
        if name == "cast":
            return self._cast(a[0], dtype, op.results[0].type.dtype)  # type: ignore[union-attr]
        if name == "copy":
            return a[0]
        if name == "select":
            return f"{a[0]} ? {a[1]} : {a[2]}"
        if dtype == f64:
            return self._double(op, name, a)
        if name in _SIGNS:
            return f"{a[0]} {_SIGNS[name]} {a[1]}"
        if name in ("min", "max") and dtype.is_integer:
            return f"{'smaller' if name == 'min' else 'larger'}({a[0]}, {a[1]})"
        if name in ("floordiv", "mod") and dtype.is_integer:
            return f"{'floor_divide' if name == 'floordiv' else 'modulo'}({a[0]}, {a[1]})"
        if name in ("min", "max") and dtype.is_float:  # of NaNs, a NaN
            return f"{a[0]} {'<' if name == 'min' else '>'} {a[1]} || {a[0]} != {a[0]} ? {a[0]} : {a[1]}"
        if name == "abs" and dtype.kind != "b":
            return f"{a[0]} < 0 ? -{a[0]} : {a[0]}" if dtype.is_integer else f"__builtin_fabsf({a[0]})"
        if name == "neg":
            return f"-{a[0]}"
        if name == "not" and dtype.kind == "b":
            return f"!{a[0]}"
        if name == "not" and dtype.is_integer:
            return f"~{a[0]}"
        if name in ("shl", "shr"):
            return shift_text(name, a[0], a[1], dtype)
        if name == "square":
            return f"{a[0]} * {a[0]}"
        if name == "isnan":
            return f"{a[0]} != {a[0]}"
        if name == "div" and dtype.is_float:
            return f"{a[0]} / {a[1]}"
        raise unsupported(f"`{op.op}` of numbers of {dtype} in a kernel", op.loc,
                          "compute it on the host, or on a tile of one element (keepdims=True)")  # fmt: skip

    def _double(self, op: Op, name: str, a: list[str]) -> str:
        """Of numbers of f64."""
        if name in _SIGNS or name == "div":
            return f"{a[0]} {_SIGNS.get(name, '/')} {a[1]}"
        match name:
            case "neg":
                return f"-{a[0]}"
            case "abs":
                return f"size_of({a[0]})"
            case "square":
                return f"{a[0]} * {a[0]}"
            case "min" | "max":
                return f"{'least' if name == 'min' else 'most'}_of({a[0]}, {a[1]})"
            case "isnan":
                return f"{a[0]} != {a[0]}"
            case _:
                raise unsupported(f"`{op.op}` of numbers of f64 in a kernel", op.loc,
                                  "convert them to f32 first, or compute it outside of `pl.incore()`")  # fmt: skip

    def _cast(self, x: str, source: DType, target: DType) -> str:
        if self.writer.has_doubles and source != target and f64 in (source, target):
            return self._cast_double(x, source, target)
        if source == target or (source.is_float and target.is_float):
            return x
        if target.is_float:
            return f"float({x})"
        if target.kind == "b":
            return f"{x} != 0"
        return f"{'int64_t' if target == i64 else self.writer.scalar_type(target, self.writer.func.loc)}({x})"


    def _cast_double(self, x: str, source: DType, target: DType) -> str:
        if target == f64:
            return f"doubled({x})" if source.is_float else f"from_whole({x})"
        if target.is_float:
            return f"halved({x})"
        if target.kind == "b":
            return f"{x} != {doubles.bits_of(0.0)}"
        low = -(1 << target.bits - 1) if target.kind == "i" else 0
        high = low + (1 << target.bits) - 1
        typ = "int64_t" if target == i64 else self.writer.scalar_type(target, self.writer.func.loc)
        return f"{typ}(whole_part({x}, {literal(low, i64)}, {literal(high, i64)}))"


def _is_name(expression: str) -> bool:
    return expression.isidentifier() or expression.lstrip("-").replace(".", "", 1).rstrip("f").isdigit()


def _atom(expression: str) -> str:
    if " " in expression and not (expression.endswith(")") and expression.split("(")[0].isidentifier()
                                  and expression.count("(") == 1):  # fmt: skip
        return f"({expression})"
    return expression

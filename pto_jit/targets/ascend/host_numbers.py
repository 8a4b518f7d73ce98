# SPDX-License-Identifier: MIT
"""Numbers of host code as C, and how it ends with a problem."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite, isnan
from string import Formatter

from pto_jit.dtypes import DType, f64, i64
from pto_jit.ir.nodes import Const, For, Func, Op, Operand, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import defs, statements
from pto_jit.semantic.failures import assertion
from pto_jit.slotted import frozen
from pto_jit.targets.ascend.form import KernelForm, Parameter
from pto_jit.targets.ascend.machine import element_type
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.scalars import shift_text
from pto_jit.targets.c.tidy import wrapped
from pto_jit.targets.cuda.facts import Facts
from pto_jit.targets.source.identifiers import RESERVED, Identifiers
from pto_jit.targets.source.scalars import literal
from pto_jit.targets.source.text import SourceText

_TYPES = {"f16": "uint16_t", "bf16": "uint16_t", "f64": "double", "bool_": "bool", "u64": "uint64_t"}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
          "ge": ">=", "and": "&", "or": "|", "xor": "^"}  # fmt: skip
MATH = {"pow": "pow", "sqrt": "sqrt", "exp": "exp", "log": "log", "floor": "floor", "ceil": "ceil", "abs": "fabs",
         "exp2": "exp2", "log2": "log2"}  # fmt: skip
"""Functions of C for doubles, by the operations that they do."""
MATH_NAMES = frozenset(name + suffix for name in MATH.values() for suffix in ("", "f"))
_NAMES = MATH_NAMES | frozenset("""stream memory acl take again give release smaller larger bits_of floor_divide modulo
                                    snprintf Memory Result VECTOR_CORES CUBE_CORES""".split())  # fmt: skip
_WORD = re.compile(r"([A-Za-z_]\w*)")


@frozen
class HostTensor:
    pointer: str
    dtype: DType
    extents: tuple[str, ...]
    strides: tuple[str, ...]


class HostNumbers:
    """Writes numbers of the entry of a divided module."""

    def __init__(self, entry: Func, kernels: Sequence[KernelForm]) -> None:
        self.entry = entry
        self.name = entry.name  # of the C function, which may need another one
        self.kernels = {k.name: k for k in kernels}
        self.conditions = {k.name: [_WORD.split(condition) for condition, _ in k.checks] for k in kernels}
        self.names = Identifiers(RESERVED | _NAMES | {f"launch_{k.name}" for k in kernels})
        self.text = SourceText()
        self.tensors: dict[str, HostTensor] = {}
        self.parameters: list[Parameter] = []
        self.declared: set[str] = set()
        self.made: set[str] = set()  # pointers to tensors that the program makes
        self.gives = False  # tensors that it makes are results
        self.results: list[str] = []  # the pointers to results
        self.depth = 0  # loops and branches around what is written
        self.slots: dict[tuple[str, str], tuple[str, str]] = {}  # of kernel and parameter: pointer, and bytes
        self.allocates = any(isinstance(s, Op) and s.op == "alloc" for s in statements(entry.body)) or any(
            p.origin[0] == "slot" for k in kernels for p in k.parameters
        )
        seen: set[str] = set()
        self.repeated = {r.name for s in statements(entry.body) if isinstance(s, (For, While))
                         for inner in statements((s,)) if isinstance(inner, Op) and inner.op == "alloc"
                         for r in inner.results}  # fmt: skip
        self.known: Facts | None = None  # of the numbers, when a view is taken
        self.mutable: set[str] = set()
        for s in statements(entry.body):
            for v in defs(s):
                (self.mutable if v.name in seen else seen).add(v.name)

    def type_of(self, dtype: DType) -> str:
        if dtype.name in ("f16", "bf16"):
            return "float"
        return "int64_t" if dtype == i64 else _TYPES.get(dtype.name) or element_type(dtype) or "int64_t"

    def read(self, operand: Operand) -> str:
        if not isinstance(operand, Const):
            return self.names.of(operand.name)
        dtype = operand.type.dtype
        if dtype.is_integer and dtype.bits < 32:  # C computes with `int`
            return str(int(operand.value))
        if dtype.is_float and not isfinite(operand.value):
            return "NAN" if isnan(operand.value) else "INFINITY" if operand.value > 0 else "-INFINITY"
        return literal(operand.value, dtype)

    def define(self, var: Var, expression: str) -> None:
        assert isinstance(var.type, ScalarType)
        name = self.names.of(var.name)
        if var.name in self.mutable:
            self.text.line(f"{name} = {expression};")
        elif name != expression:
            self.text.line(f"const {self.type_of(var.type.dtype)} {name} = {expression};")

    def failed(self, op: Op) -> None:
        """What an assertion that does not hold says, with its numbers."""
        template = assertion(str(op.attr("message")), str(op.attr("told") or ""))
        words, numbers = "", []
        for said, number, _, _ in Formatter().parse(template):
            words += said.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
            if number is not None:
                which, _, part = number.partition(".")
                value = self._atom(self.read(op.args[1 + int(which)]))
                value = {"": value, "high": f"{value} >> 32", "low": f"{value} & 0xffffffff"}[part]
                numbers.append(f"(long long){self._atom(value)}")
                words += "%lld"
        if not numbers:
            self.text.line(self.leave(words.replace("%%", "%")))
            return
        self.text.line(f"static _Thread_local char message[{len(words) + 20 * len(numbers)}];")
        self.text.line(f'const char *const format = "{words}";')
        self.text.line(wrapped(f"snprintf(message, sizeof message, format, {', '.join(numbers)});", 6))
        self.text.line("return release(&memory, message);" if self.allocates else "return message;")

    def leave(self, problem: str) -> str:
        """The statement that ends the program with a problem: words of a C string."""
        return f'return release(&memory, "{problem}");' if self.allocates else f'return "{problem}";'

    def done(self) -> str:
        """The statement that ends the program."""
        return f"return {'release(&memory, NULL)' if self.allocates else 'NULL'};"

    def checked(self, call: str, otherwise: str) -> None:
        """A call of ACL, whose failure ends the program."""
        self.text.line(wrapped(f"if ({call} != ACL_SUCCESS) {self.leave(otherwise)}", 6))

    def expression(self, op: Op) -> str:
        a = [self._atom(self.read(x)) for x in op.args]
        data = op.args[1] if op.op == "select" else op.args[0]
        dtype = data.type.dtype
        name = {"maximum": "max", "minimum": "min"}.get(op.op, op.op)
        if name == "copy":
            return a[0]
        if name == "cast":
            target = op.results[0].type.dtype  # type: ignore[union-attr]
            if target.kind == "b":
                return f"{a[0]} != 0"
            return f"({self.type_of(target)}){a[0]}"
        if name == "select":
            return f"{a[0]} ? {a[1]} : {a[2]}"
        if name in _SIGNS and not (name == "div" and not dtype.is_float):
            return f"{a[0]} {_SIGNS[name]} {a[1]}"
        if name in ("floordiv", "mod") and dtype.is_integer:
            return f"{'floor_divide' if name == 'floordiv' else 'modulo'}({a[0]}, {a[1]})"
        if name in ("min", "max"):
            if self.type_of(dtype) == "int64_t":
                return f"{'larger' if name == 'max' else 'smaller'}({a[0]}, {a[1]})"
            first = f"{a[0]} {'>' if name == 'max' else '<'} {a[1]}"
            return f"{first} || {a[0]} != {a[0]} ? {a[0]} : {a[1]}" if dtype.is_float else f"{first} ? {a[0]} : {a[1]}"
        if name == "neg":
            return f"-{a[0]}"
        if name == "not":
            return f"{'!' if dtype.kind == 'b' else '~'}{a[0]}"
        if name in ("shl", "shr"):
            return shift_text(name, a[0], a[1], dtype)
        if name == "rsqrt":
            return f"1 / sqrt{'' if dtype == f64 else 'f'}({a[0]})"
        if name == "abs" and not dtype.is_float:
            return f"{a[0]} < 0 ? -{a[0]} : {a[0]}"
        if name in MATH and dtype.is_float:
            return f"{MATH[name]}{'' if dtype == f64 else 'f'}({', '.join(a)})"
        raise unsupported(f"`{op.op}` of numbers of {dtype} on the host", op.loc, "pass the number as an argument")

    def _atom(self, text: str) -> str:
        return f"({text})" if " " in text or text.startswith("-") else text

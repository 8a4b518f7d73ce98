# SPDX-License-Identifier: MIT
"""The host side of a program: C11 that computes its scalars and enqueues its kernels on an ACL stream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite, isnan
from string import Formatter
from typing import Any

from pto_jit.dtypes import DType, f64, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Break, Call, Const, Continue, For, Func, If, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import defs, statements
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.semantic.failures import EXTENT, assertion
from pto_jit.slotted import frozen
from pto_jit.targets.ascend.fills import repeated_byte
from pto_jit.targets.ascend.form import KernelForm, Parameter
from pto_jit.targets.ascend.host_parts import AGAIN, GIVE, HELPERS, MEMORY, RESULT
from pto_jit.targets.ascend.machine import element_type
from pto_jit.targets.ascend.printing import launch_head
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.c.tidy import wrapped
from pto_jit.targets.source.identifiers import RESERVED, Identifiers, identifier
from pto_jit.targets.source.library_names import is_taken
from pto_jit.targets.source.scalars import literal
from pto_jit.targets.source.text import INDENT, SourceText

_TYPES = {"f16": "uint16_t", "bf16": "uint16_t", "f64": "double", "bool_": "bool", "u64": "uint64_t"}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
          "ge": ">=", "and": "&", "or": "|", "xor": "^"}  # fmt: skip
_MATH = {"pow": "pow", "sqrt": "sqrt", "exp": "exp", "log": "log", "floor": "floor", "ceil": "ceil", "abs": "fabs",
         "exp2": "exp2", "log2": "log2"}  # fmt: skip
_MATH_NAMES = frozenset(name + suffix for name in _MATH.values() for suffix in ("", "f"))
_NAMES = _MATH_NAMES | frozenset("""stream memory acl take again give release smaller larger floor_divide modulo
                                    snprintf Memory Result VECTOR_CORES CUBE_CORES""".split())  # fmt: skip
_MATH_CALL = re.compile(rf"\b({'|'.join(sorted(_MATH_NAMES))})\(|\b(INFINITY|NAN)\b")
_WORD, _RELATION = re.compile(r"([A-Za-z_]\w*)"), re.compile(r" (<=|==) ")


@frozen
class _Tensor:
    pointer: str
    dtype: DType
    extents: tuple[str, ...]
    strides: tuple[str, ...]


class HostWriter:
    """The entry of a divided module as a C function."""

    def __init__(self, entry: Func, kernels: Sequence[KernelForm]) -> None:
        self.entry = entry
        self.name = entry.name  # of the C function, which may need another one
        self.kernels = {k.name: k for k in kernels}
        self.conditions = {k.name: [_WORD.split(condition) for condition, _ in k.checks] for k in kernels}
        self.names = Identifiers(RESERVED | _NAMES | {f"launch_{k.name}" for k in kernels})
        self.text = SourceText()
        self.tensors: dict[str, _Tensor] = {}
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
        self.mutable: set[str] = set()
        for s in statements(entry.body):
            for v in defs(s):
                (self.mutable if v.name in seen else seen).add(v.name)

    def source(self, file: str) -> str:
        """The whole file."""
        for p in self.entry.params:
            self._parameter(p)
        body = self.text
        wish = identifier(self.entry.name)
        name = self.name = self.names.fresh(f"{wish}_2" if is_taken(wish) else wish)
        head = SourceText()
        head.line("// SPDX-License-Identifier: MIT")
        head.line(f"// Host code of `{self.entry.name}` of {file}, written by pto_jit.")
        head.line("#include <stdbool.h>")
        head.line("#include <stddef.h>")
        head.line("#include <stdint.h>")
        head.line()
        head.line("#include <acl/acl.h>")
        head.line()
        head.line("#ifndef VECTOR_CORES  // of an Ascend 910B; some have 48 and 24")
        head.line("#define VECTOR_CORES 40")
        head.line("#define CUBE_CORES 20")
        head.line("#endif")
        head.line()
        for kernel in self.kernels.values():
            head.line(wrapped(f"{launch_head(kernel)};", 4))
        body.indent = INDENT
        self._variables()
        self.block(self.entry.body)
        written = str(body)
        if "snprintf(" in written:
            head.lines.insert(head.lines.index("#include <stdint.h>") + 1, "#include <stdio.h>")
        if any(name in written for name in (*_MATH.values(), "INFINITY", "NAN")) and _MATH_CALL.search(written):
            head.lines.insert(head.lines.index("#include <stdbool.h>"), "#include <math.h>")
        helpers = [h for n, h in HELPERS.items() if f"{n}(" in written]
        if helpers or self.allocates:
            head.line()
            for helper in helpers:
                for line in helper.splitlines():
                    head.line(line)
            if self.allocates:
                if helpers:
                    head.line()
                memory = MEMORY if self.gives else MEMORY.replace(GIVE, "")
                for line in (memory if self.repeated else memory.replace(AGAIN, "")).splitlines():
                    head.line(line)
        head.line()
        if any("Result *" in p.type for p in self.parameters):
            for line in RESULT.splitlines():
                head.line(line)
            head.line()
        head.line(
            "// Enqueues the program; tensors are in the memory of the device, strides in elements. The result is null,"
        )
        head.line("// or says why not everything was enqueued.")
        parameters = ", ".join(f"{p.type}{p.name}" for p in self.parameters)
        head.line(wrapped(f'const char *{name}(aclrtStream stream, {parameters}) {{', 4))
        if self.allocates:
            head.line("  Memory memory = {.stream = stream};")
        for name, size in self.slots.values():
            head.line(f"  void *{name} = take(&memory, {size}, -1);")
            head.line(f"  if ({name} == NULL) {self.leave('there is no memory between the cores')}")
        return f"{head}{written}  {self.done()}\n}}\n"

    def _parameter(self, p: Var) -> None:
        name = self.names.of(p.name)
        if not isinstance(p.type, TensorType):
            self.parameters.append(Parameter(name, f"{self.type_of(p.type.dtype)} "))
            return
        self.parameters.append(Parameter(name, "void *"))
        extents: list[str] = []
        for axis, extent in enumerate(p.type.shape):
            if extent is not None:
                extents.append(str(extent))
                continue
            extents.append(self.names.of(f"{p.name}_d{axis}"))
            self.parameters.append(Parameter(extents[-1], "int64_t "))
        strides = _packed(extents)
        if p.type.layout != "c":
            for axis in range(p.type.rank - (p.type.layout == "inner")):
                strides[axis] = self.names.fresh(f"{p.name}_s{axis}")
                self.parameters.append(Parameter(strides[axis], "int64_t "))
        self.tensors[p.name] = _Tensor(name, p.type.dtype, tuple(extents), tuple(strides))

    def _variables(self) -> None:
        """What is assigned more than once, and memory that each iteration of a loop uses again."""
        for name in sorted(self.repeated):
            self.text.line(f"void *{self.names.of(name)} = NULL;")
            self.text.line(f"int64_t {self.names.of(f'{name}_room')} = -1;")
        for var in {v.name: v for s in statements(self.entry.body) for v in defs(s)}.values():
            if var.name in self.mutable and isinstance(var.type, ScalarType):
                self.text.line(f"{self.type_of(var.type.dtype)} {self.names.of(var.name)} = 0;")

    def type_of(self, dtype: DType) -> str:
        if dtype.name in ("f16", "bf16"):
            return "float"
        return "int64_t" if dtype == i64 else _TYPES.get(dtype.name) or element_type(dtype) or "int64_t"

    # -- statements -----------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for stmt in block:
            self.statement(stmt)

    def inner(self, block: Block) -> None:
        """The body of a loop or branch."""
        self.depth += 1
        self.block(block)
        self.depth -= 1

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Op():
                self.text.place(stmt.loc)
                self.operation(stmt)
            case Call():
                self.text.place(stmt.loc)
                self.launch(stmt)
            case For():
                self.text.place(stmt.loc)
                var = self.names.of(stmt.var.name)
                start, stop, step = (self.read(o) for o in (stmt.start, stmt.stop, stmt.step))
                down = isinstance(stmt.step, Const) and stmt.step.value < 0
                if not isinstance(stmt.step, Const):
                    raise unsupported("a loop on the host whose step is not constant", stmt.loc, "give a constant step")
                own = "" if stmt.var.name in self.mutable else "int64_t "
                with self.text.block(
                    f"for ({own}{var} = {start}; {var} {'>' if down else '<'} {stop}; {var} += {step})"
                ):
                    self.inner(stmt.body)
            case While():
                with self.text.block("for (;;)"):
                    self.inner(stmt.before)
                    self.text.line(f"if (!({self.read(stmt.cond)})) break;")
                    self.inner(stmt.body)
            case If():
                with self.text.block(f"if ({self.read(stmt.cond)})"):
                    self.inner(stmt.then)
                if stmt.orelse:
                    with self.text.block("else"):
                        self.inner(stmt.orelse)
            case Break() | Continue():
                self.text.line("break;" if isinstance(stmt, Break) else "continue;")
            case Return(values=values):
                if values:
                    self.give(values, stmt.loc)
                if self.depth:
                    self.text.line(self.done())
            case _:
                raise unsupported(f"a {type(stmt).__name__} on the host", self.entry.loc, "restructure the kernel")

    def give(self, values: Sequence[Operand], loc: Loc) -> None:
        """The results, through pointers that the caller passes; tensors are its own from then on."""
        if self.allocates:
            self.checked("aclrtSynchronizeStream(stream)", "a kernel failed")
        given: set[str] = set()
        for k, value in enumerate(values):
            tensors = isinstance(value.type, TensorType)
            if k == len(self.results):
                typ = "Result" if tensors else self.type_of(value.type.dtype)  # type: ignore[union-attr]
                self.results.append(self.names.fresh(f"result_{k}"))
                self.parameters.append(Parameter(self.results[k], f"{typ} *"))
            out = self.results[k]
            if not tensors:
                self.text.line(f"*{out} = {self.read(value)};")
                continue
            tensor = self.tensors[value.name]  # type: ignore[union-attr]
            whole = tensor.pointer in self.made and tensor.strides == tuple(_packed(tensor.extents))
            if not whole or tensor.pointer in given or len(tensor.extents) > 8:
                raise unsupported("a result that is not a new tensor of its own", loc,
                                  "copy it into a new tensor, or write it into one that the caller passes")  # fmt: skip
            given.add(tensor.pointer)
            self.gives = True
            extents = ", ".join(tensor.extents)
            self.text.line(wrapped(f"*{out} = (Result){{give(&memory, {tensor.pointer}), {{{extents}}}}};", 6))

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

    def operation(self, op: Op) -> None:
        match op.op:
            case "dim":
                extent = self.tensors[op.args[0].name].extents[int(op.attr("axis"))]  # type: ignore
                self.define(op.results[0], extent)
            case "view" | "tensor_reshape" | "tensor_transpose" | "tensor_step":
                self.view(op)
            case "alloc":
                self.alloc(op)
            case "getelem":
                tensor = self.tensors[op.args[0].name]  # type: ignore[union-attr]
                typ = self._memory_type(tensor, op.loc)
                self.text.line(f"{typ} {(raw := self.names.fresh('element'))};")
                self.checked("aclrtSynchronizeStream(stream)", "work before this line failed")
                place = self._element(tensor, op.args[1:], typ)
                size = f"sizeof {raw}"
                copy = f"aclrtMemcpy(&{raw}, {size}, {place}, {size}, ACL_MEMCPY_DEVICE_TO_HOST)"
                self.checked(copy, "an element was not read")
                self.define(op.results[0], raw)
            case "setelem":
                tensor = self.tensors[op.args[1].name]  # type: ignore[union-attr]
                typ = self._memory_type(tensor, op.loc)
                self.text.line(f"const {typ} {(raw := self.names.fresh('element'))} = {self.read(op.args[0])};")
                self.checked("aclrtSynchronizeStream(stream)", "work before this line failed")
                place = self._element(tensor, op.args[2:], typ)
                size = f"sizeof {raw}"
                copy = f"aclrtMemcpy({place}, {size}, &{raw}, {size}, ACL_MEMCPY_HOST_TO_DEVICE)"
                self.checked(copy, "an element was not written")
            case "assert":
                with self.text.block(f"if (!({self.read(op.args[0])}))"):
                    self.failed(op)
            case _ if is_elementwise(op):
                self.define(op.results[0], self.expression(op))
            case _:
                raise unsupported(f"`{op.op}` on the host", op.loc, "use it in a kernel")

    def failed(self, op: Op) -> None:
        """What an assertion that does not hold says, with its numbers."""
        template = assertion(str(op.attr("message") or "assertion failed"), str(op.attr("told") or ""))
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

    def _memory_type(self, tensor: _Tensor, loc: Loc) -> str:
        if tensor.dtype.name in ("f16", "bf16"):
            raise unsupported(f"an element of {tensor.dtype} on the host", loc, "use f32")
        return self.type_of(tensor.dtype)

    def _element(self, tensor: _Tensor, indices: Sequence[Operand], typ: str) -> str:
        parts: list[str] = []
        for index, extent, stride in zip(indices, tensor.extents, tensor.strides, strict=True):
            at = self.read(index)
            if isinstance(index, Const) and index.value < 0:
                at = f"({extent} - {-int(index.value)})"
            parts.append(f"{at} * {stride}" if " " not in at or at.startswith("(") else f"({at}) * {stride}")
        return " + ".join([f"({typ} *){tensor.pointer}", *parts])  # a tensor of rank 0 has no indices

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
        if name == "rsqrt":
            return f"1 / sqrt{'' if dtype == f64 else 'f'}({a[0]})"
        if name == "abs" and not dtype.is_float:
            return f"{a[0]} < 0 ? -{a[0]} : {a[0]}"
        if name in _MATH and dtype.is_float:
            return f"{_MATH[name]}{'' if dtype == f64 else 'f'}({', '.join(a)})"
        raise unsupported(f"`{op.op}` of numbers of {dtype} on the host", op.loc, "pass the number as an argument")

    def _atom(self, text: str) -> str:
        return f"({text})" if " " in text or text.startswith("-") else text

    # -- tensors --------------------------------------------------------------------------------------------------

    def view(self, op: Op) -> None:
        x = self.tensors[op.args[0].name]  # type: ignore[union-attr]
        name = self.names.of(op.results[0].name)
        rank = len(x.extents)
        pointer = x.pointer
        if op.op == "view":
            offsets, extents = op.args[1 : 1 + rank], op.args[1 + rank :]
            drop = op.attr("drop") or ()
            kept = [a for a in range(rank) if a not in drop]  # type: ignore[operator]
            parts = [f"{self._atom(self.read(o))} * {s}" for o, s in zip(offsets, x.strides, strict=True)
                     if not (isinstance(o, Const) and o.value == 0)]  # fmt: skip
            if parts:
                self.text.line(
                    f"void *{name} = (char *){x.pointer} + ({' + '.join(parts)}) * {x.dtype.bytes};"
                )
                pointer = name
            shape = [self._clipped(name, a, x.extents[a], offsets[a], extents[a]) for a in kept]
            strides = [x.strides[a] for a in kept]
        elif op.op == "tensor_transpose":
            axes = op.attr("axes")
            assert isinstance(axes, tuple)
            shape, strides = [x.extents[int(a)] for a in axes], [x.strides[int(a)] for a in axes]  # type: ignore
        elif op.op == "tensor_step":
            steps: Any = op.attr("steps")
            shape = [_in_steps(self._atom(n), s) for n, s in zip(x.extents, steps, strict=True)]
            strides = [_times(self._atom(n), s) for n, s in zip(x.strides, steps, strict=True)]
        else:
            shape = [self.read(a) for a in op.args[1:]]
            strides = _packed(shape)
        self.tensors[op.results[0].name] = _Tensor(pointer, x.dtype, tuple(shape), tuple(strides))

    def _clipped(self, name: str, axis: int, limit: str, offset: Operand, extent: Operand) -> str:
        wanted = self.read(extent)
        if isinstance(offset, Const) and offset.value == 0 and wanted == limit:
            return limit
        out = self.names.fresh(f"{name}_d{axis}")
        rest = f"{limit} - {self._atom(self.read(offset))}"
        self.text.line(f"const int64_t {out} = larger(0, smaller({wanted}, {rest}));")
        return out

    def alloc(self, op: Op) -> None:
        dtype = op.attr("dtype")
        assert isinstance(dtype, DType)
        filled = bool(op.attr("filled"))
        byte = self._byte(op.args[-1], op.loc) if filled else "-1"
        extents = [self.read(a) for a in (op.args[:-1] if filled else op.args)]
        for axis, extent in enumerate(extents):
            if not op.attr("checked") or isinstance(op.args[axis], Const):
                continue
            problem = EXTENT.text(axis=axis).format(extent)  # by its name, for words of C are not formatted here
            self.text.line(f"if ({self._atom(extent)} < 0) {self.leave(problem)}")
        name = self.names.of(op.results[0].name)
        size = " * ".join([*(self._atom(e) for e in extents), str(dtype.bytes)])
        if op.results[0].name in self.repeated:
            room = self.names.of(f"{op.results[0].name}_room")
            self.text.line(f"{name} = again(&memory, {name}, &{room}, {size}, {byte});")
        else:
            self.text.line(f"void *{name} = take(&memory, {size}, {byte});")
        self.text.line(f"if ({name} == NULL) {self.leave(f'there is no memory for `{op.results[0].name}`')}")
        self.tensors[op.results[0].name] = _Tensor(name, dtype, tuple(extents), tuple(_packed(extents)))
        self.made.add(name)

    def _byte(self, value: Operand, loc: Loc) -> str:
        """What all bytes of a new tensor are."""
        known = repeated_byte(value)
        if known is not None:
            return str(known)
        dtype = value.type.dtype  # type: ignore[union-attr]
        if dtype.bits > 8:
            raise unsupported(f"a new tensor of {dtype} that is filled with this number", loc,
                              "fill it with 0, use another type, or pass it as an argument")  # fmt: skip
        return self.read(value) if dtype.kind == "b" else f"(uint8_t){self._atom(self.read(value))}"

    # -- launches -------------------------------------------------------------------------------------------------

    def launch(self, call: Call) -> None:
        kernel = self.kernels[call.callee]
        given: dict[str, str] = {}
        cores = "VECTOR_CORES" if kernel.core == "vector" and kernel.partner is None else "CUBE_CORES"
        cores = "1" if kernel.alone else cores
        for p in kernel.parameters:
            kind, k, *axis = p.origin
            if kind == "slot":
                given[p.name] = self._slots(kernel, p, int(k), cores)
                continue
            operand = call.args[int(k)]
            if kind == "argument":
                known = self.tensors.get(operand.name) if isinstance(operand, Var) else None
                given[p.name] = known.pointer if known is not None else self.read(operand)
                continue
            tensor = self.tensors[operand.name]  # type: ignore[union-attr]
            given[p.name] = (tensor.extents if kind == "extent" else tensor.strides)[int(axis[0])]
        for words, (condition, meaning) in zip(self.conditions[kernel.name], kernel.checks, strict=True):
            told = "".join([given.get(word, word) for word in words])
            left, relation, right = _RELATION.split(told)
            if left != right and not (left.isdigit() and right.isdigit() and _holds(left, relation, right)):
                self._check(kernel, told, f"{meaning}: {condition}")
        for name, bound in kernel.limits.items():
            value = given[name]
            if value.isdigit() and 1 <= int(value) <= bound:
                continue
            self._check(kernel, f"1 <= {value} && {value} <= {bound}", f"{name} is at most {bound}, and not 0")
        arguments = ", ".join([cores, "stream", *(given[p.name] for p in kernel.parameters)])
        line = f"launch_{kernel.name}({arguments})"
        if kernel.partner is not None:
            line = f"if ({line} != 0) {self.leave(f'{kernel.name}: there are no flags between cores')[:-1]}"
        self.text.line(wrapped(f"{line};", 6))

    def _slots(self, kernel: KernelForm, parameter: Parameter, size: int, cores: str) -> str:
        """Memory that each core, or the cores of each group, pass values through: the same for all launches."""
        key = kernel.name, parameter.name
        if key not in self.slots:
            self.slots[key] = self.names.fresh(parameter.name), f"{cores} * {size}"
        return self.slots[key][0]

    def _check(self, kernel: KernelForm, condition: str, meaning: str) -> None:
        with self.text.block(f"if (!({condition}))"):
            self.text.line(self.leave(f"{kernel.name}: {meaning}"))


def _holds(left: str, relation: str, right: str) -> bool:
    return int(left) <= int(right) if relation == "<=" else int(left) == int(right)


def _in_steps(extent: str, step: int) -> str:
    """How many elements of an axis are every step-th one, from the first one on."""
    if step == 1:
        return extent
    return str(-(-int(extent) // step)) if extent.isdigit() else f"(({extent} + {step - 1}) / {step})"


def _times(stride: str, step: int) -> str:
    if step == 1:
        return stride
    return str(int(stride) * step) if stride.isdigit() else f"({stride} * {step})"


def _packed(extents: Sequence[str]) -> list[str]:
    """Strides, in elements, of a contiguous tensor."""
    out: list[str] = []
    for axis in range(len(extents)):
        rest = extents[axis + 1 :]
        out.append(" * ".join(rest) if rest else "1")
    return [f"({s})" if " " in s else s for s in out]

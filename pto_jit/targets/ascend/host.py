# SPDX-License-Identifier: MIT
"""The host side of a program: C11 that computes its scalars and enqueues its kernels on an ACL stream."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Break, Call, Const, Continue, For, If, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import defs, statements
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.targets.ascend.form import Parameter
from pto_jit.targets.ascend.host_numbers import MATH, MATH_NAMES, HostTensor
from pto_jit.targets.ascend.host_parts import AGAIN, GIVE, HELPERS, MEMORY, RESULT
from pto_jit.targets.ascend.host_tensors import HostTensors, packed
from pto_jit.targets.ascend.printing import launch_head
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.c.tidy import wrapped
from pto_jit.targets.source.identifiers import identifier
from pto_jit.targets.source.library_names import is_taken
from pto_jit.targets.source.text import INDENT, SourceText

_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(r" *(?:const \w+|void \*)\s?(\w+) = (?!take\()[^;]*;$")
_MATH_CALL = re.compile(rf"\b({'|'.join(sorted(MATH_NAMES))})\(|\b(INFINITY|NAN)\b")


class HostWriter(HostTensors):
    """The entry of a divided module as a C function."""

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
        body.lines = _without_unread(body.lines)
        written = str(body)
        if "snprintf(" in written:
            head.lines.insert(head.lines.index("#include <stdint.h>") + 1, "#include <stdio.h>")
        if any(name in written for name in (*MATH.values(), "INFINITY", "NAN")) and _MATH_CALL.search(written):
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
        strides = packed(extents)
        if p.type.layout != "c":
            for axis in range(p.type.rank - (p.type.layout == "inner")):
                strides[axis] = self.names.fresh(f"{p.name}_s{axis}")
                self.parameters.append(Parameter(strides[axis], "int64_t "))
        self.tensors[p.name] = HostTensor(name, p.type.dtype, tuple(extents), tuple(strides))

    def _variables(self) -> None:
        """What is assigned more than once, and memory that each iteration of a loop uses again."""
        for name in sorted(self.repeated):
            self.text.line(f"void *{self.names.of(name)} = NULL;")
            self.text.line(f"int64_t {self.names.of(f'{name}_room')} = -1;")
        for var in {v.name: v for s in statements(self.entry.body) for v in defs(s)}.values():
            if var.name in self.mutable and isinstance(var.type, ScalarType):
                self.text.line(f"{self.type_of(var.type.dtype)} {self.names.of(var.name)} = 0;")

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
            whole = tensor.pointer in self.made and tensor.strides == tuple(packed(tensor.extents))
            if not whole or tensor.pointer in given or len(tensor.extents) > 8:
                raise unsupported("a result that is not a new tensor of its own", loc,
                                  "copy it into a new tensor, or write it into one that the caller passes")  # fmt: skip
            given.add(tensor.pointer)
            self.gives = True
            extents = ", ".join(tensor.extents)
            self.text.line(wrapped(f"*{out} = (Result){{give(&memory, {tensor.pointer}), {{{extents}}}}};", 6))

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

    def _memory_type(self, tensor: HostTensor, loc: Loc) -> str:
        if tensor.dtype.name in ("f16", "bf16"):
            raise unsupported(f"an element of {tensor.dtype} on the host", loc, "use f32")
        return self.type_of(tensor.dtype)

    def _element(self, tensor: HostTensor, indices: Sequence[Operand], typ: str) -> str:
        parts: list[str] = []
        for index, extent, stride in zip(indices, tensor.extents, tensor.strides, strict=True):
            at = self.read(index)
            if isinstance(index, Const) and index.value < 0:
                at = f"({extent} - {-int(index.value)})"
            parts.append(f"{at} * {stride}" if " " not in at or at.startswith("(") else f"({at}) * {stride}")
        return " + ".join([f"({typ} *){tensor.pointer}", *parts])  # a tensor of rank 0 has no indices


def _without_unread(lines: list[str]) -> list[str]:
    """Without numbers and views that nothing names: what kernels are given, and do not need."""
    while True:
        counts = Counter(word for line in lines for word in _NAME.findall(line))
        kept = [line for line in lines if (found := _DEFINED.match(line)) is None or counts[found[1]] > 1]
        if len(kept) == len(lines):
            return lines
        lines = kept

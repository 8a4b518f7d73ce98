# SPDX-License-Identifier: MIT
"""One IR function as C: the CPU target's function writer, with C where it has LLVM blocks.

What tiles are, where they lie, when a store must wait, what has to be checked: all of that is the CPU target's
(`targets.cpu.groups`, `tiles`, `stores`, `structure`, ...).  Here are the statements, the memory, and the names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.dtypes import DType
from pto_jit.errors import NOWHERE, Loc, TargetError
from pto_jit.ir.nodes import Block, Call, For, Func, Fuse, If, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import def_counts, use_counts
from pto_jit.lower.groups.fitting import fitting_axes
from pto_jit.semantic import failures
from pto_jit.slotted import replace
from pto_jit.targets.c.code import CCode
from pto_jit.targets.c.module import CModule
from pto_jit.targets.c.nest import CNest
from pto_jit.targets.c.operations import Operations
from pto_jit.targets.c.tidy import Line
from pto_jit.targets.c.values import CPointer, CSlot, CValue, lift, memory_ctype, register_ctype
from pto_jit.targets.cpu.arena import ALIGN, Arena
from pto_jit.targets.cpu.constants import I32, I64, PTR, Index, register_type
from pto_jit.targets.cpu.function import FunctionWriter, LoopExits
from pto_jit.targets.cpu.values import Slot, Tensor, Tile, TileSlot
from pto_jit.targets.source.identifiers import Identifiers
from pto_jit.targets.source.text import file_name, place_of


class Environment(dict[str, Any]):
    """What variables stand for; tiles and views of tensors get pointers and extents with the variable's name."""

    def __init__(self, code: CCode) -> None:
        super().__init__()
        self.code = code

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, Tile):
            value = Tile(value.dtype, self._pointer(name, value.pointer, value.dtype), value.declared,
                         self._extents(name, value.valid), value.strides, value.view,
                         self._extents(f"{name}_fits", value.fits))  # fmt: skip
        elif isinstance(value, Tensor):
            value = Tensor(value.dtype, self._pointer(name, value.pointer, value.dtype),
                           self._extents(name, value.extents), value.strides)  # fmt: skip
        super().__setitem__(name, value)

    def _pointer(self, name: str, pointer: Any, dtype: DType) -> Any:
        assert isinstance(pointer, CPointer)
        element = memory_ctype(dtype)
        if pointer.element == element and not pointer.place:
            return pointer
        if not pointer.place:
            return self.code.typed(pointer, element)
        text = pointer.text if pointer.element == element else f"({element} *)({pointer.text})"
        return self.code.pointer(text, element, name, keep=True)

    def _extents(self, name: str, extents: Sequence[Index]) -> tuple[Index, ...]:
        return tuple([
            e if isinstance(e, int) or e.name is not None else self.code.named(e, f"{name}_n{axis}", keep=True)
            for axis, e in enumerate(extents)
        ])  # fmt: skip


_OPENMP = {"add": "+", "mul": "*", "max": "max", "min": "min"}


def _only_adds_up(lines: Sequence[Line], variables: Sequence[str]) -> bool:
    """Whether a body, of the lines of a loop, is nothing but constants, and assignments of these variables."""
    return all(
        line.kind in ("pure", "read") or line.text.startswith("//") or line.assigns in variables for line in lines
    )


class CFunctionWriter(FunctionWriter):
    """Writes the statements of one C function."""

    vectors = False  # loops over elements are C loops

    def __init__(self, module: CModule, func: Func, name: str, names: Identifiers, *, parallel: bool) -> None:
        self.module: Any = module
        self.func = func
        self.code: Any = CCode(name, names, module)
        self.ops: Any = Operations(self.code, module.recipes)
        self.code.operations = self.ops
        self.env = Environment(self.code)
        self.parallel = parallel
        self.recording = False
        self._roots = None
        self.mutable = {n for n, k in def_counts(func.body).items() if k > 1}
        self.uses = use_counts(func.body)
        self.generated = fitting_axes(func.body)
        self.arena = Arena()
        self.memory = ""  # the name of the static scratch block, when there is one
        self.scopes: list[list[Any]] = [[]]
        self.loops: list[LoopExits] = []
        self.owned: dict[str, tuple[int, int]] = {}
        self.buffers: set[str] = set()
        self.dying: set[str] = set()
        self.zeros: set[str] = set()
        self.stacked = 0
        self.heap: list[Any] = []
        self.past_caches = False  # no store of C goes past the caches
        self.divides_products = not parallel
        self.results: Callable[[Sequence[Operand]], None] | None = None
        self.callees: dict[str, Any] = {}
        self.counted: dict[tuple[int, int], tuple[Any, Any]] = {}
        """Of a stride (by identity, views share those of their tensors) and the bytes of an element: the stride, and
        how many elements it is."""
        self.hazards: set[str] = set()
        self._place: tuple[str, int] = "", 0
        self.read: dict[int, tuple[TileSlot, Tile]] = {}  # variables that read the same all the time, by identity
        self.captured: list[str] = []  # names of the function around that a range function uses

    # -- the function as a whole ----------------------------------------------------------------------------------

    def write(self, body: Block) -> None:
        self.block(body)
        if not self.code.ended:
            self.leave()

    def begin(self) -> None:
        """The parameters have their values."""

    def wrapping(self, parameters: Sequence[str], body: str) -> str:
        """The body of the function itself; `body` is that of the statements."""
        return body

    def leave(self) -> None:
        """The end of the function; what has to be given back is known when all of it is written."""
        self.code.output.append(Line(self.code.depth, "", kind="leave"))
        self.code.ended = True

    def finished(self) -> list[Line]:
        """The lines of the body."""
        code = self.code
        head: list[Line] = []
        if self.memory:
            code.module.calls.update(("pto_scratch_push", "pto_scratch_pop"))
            size = max(self.arena.size, ALIGN)
            head.append(Line(1, f"char *const {self.memory} = pto_scratch_push(worker, {size});"))
            head.append(Line(1, f"if ({self.memory} == NULL) return PTO_NO_MEMORY;"))
        out = [*head, *code.prologue]
        for line in code.output:
            if line.kind != "leave":
                out.append(line)
                continue
            out += [*self.leaving(line.depth), Line(line.depth, "return PTO_OK;")]
        return out

    def leaving(self, depth: int) -> list[Line]:
        """What gives the function's memory back."""
        out: list[Line] = []
        for slot in self.heap:
            self.code.module.calls.add("pto_buffer_free")
            out.append(Line(depth, f"pto_buffer_free(worker, {slot.variable});"))
        if self.memory:
            out.append(Line(depth, f"pto_scratch_pop(worker, {self.memory});"))
        return out

    # -- memory of tiles ------------------------------------------------------------------------------------------

    def static(self, size: int) -> tuple[Any, int]:
        if not self.memory:
            self.memory = self.code.names.fresh("memory")
            self.code.declared[self.memory] = "char *"
        offset = self.arena.take(size)
        return CPointer(self.memory, "char", {(): offset} if offset else {}), offset

    def got_memory(self, pointer: Any) -> None:
        self.code.check_memory(pointer)

    def buffer(self, name: str, dtype: DType, declared: Sequence[Index]) -> tuple[Any, tuple[Index, ...]]:
        pointer, strides = self.unnamed_buffer(name, dtype, declared)
        element = memory_ctype(dtype)
        return self.code.pointer(f"({element} *){lift(pointer).at(15)}", element, name, keep=True), strides

    def unnamed_buffer(self, name: str, dtype: DType, declared: Sequence[Index]) -> tuple[Any, tuple[Index, ...]]:
        """As `buffer`, of which bytes begin at the pointer."""
        return super().buffer(name, dtype, declared)

    def variable_memory(self, name: str, dtype: DType, size: int) -> Any:
        element, pointer = memory_ctype(dtype), super().variable_memory(name, dtype, size)
        with self.code.at_entry():
            return self.code.pointer(f"({element} *){lift(pointer).at(15)}", element, name, keep=True)

    def local_memory(self, name: str, dtype: DType, count: int) -> Any:
        element = memory_ctype(dtype)
        return CPointer(self.code.array(name, element, count), element)

    def tensor_memory(self, name: str, size: Index) -> Any:
        code = self.code
        slot = code.variable(name, "void *", "NULL")
        self.heap.append(slot)
        if self.loops:
            self.release_tensor(name, slot)
        code.module.calls.add("pto_buffer_alloc")
        code.line(f"{slot.variable} = pto_buffer_alloc(worker, {lift(code.max(size, 1)).text});")
        pointer = CPointer(slot.variable, "")
        code.check_memory(pointer)
        self.env["alloc " + name] = slot
        return pointer

    def release_tensor(self, name: str, pointer: Any) -> None:
        assert isinstance(pointer, CSlot)
        self.code.module.calls.add("pto_buffer_free")
        self.code.line(f"pto_buffer_free(worker, {pointer.variable});")

    # -- operands -------------------------------------------------------------------------------------------------

    def read_slot(self, slot: TileSlot) -> Tile:
        known = self.read.get(id(slot))
        if known is not None:
            return known[1]
        tile = super().read_slot(slot)
        element, pointer = memory_ctype(slot.dtype), lift(tile.pointer)
        assert isinstance(pointer, CPointer)
        if pointer.element == element:
            if all(isinstance(e, int) for e in (*slot.declared, *slot.valid, *slot.fits)):
                self.read[id(slot)] = slot, tile
            return tile
        if slot.capacity is None and not pointer.place:
            return replace(tile, pointer=self.code.typed(pointer, element))
        # memory that may move, as a loop may let it grow, is read each time
        kind = "pure" if slot.capacity is None else "read"
        return replace(tile, pointer=self.code.pointer(f"({element} *){pointer.at(15)}", element, pointer.base, kind))

    def define(self, var: Var, value: Any) -> None:
        assert isinstance(var.type, ScalarType)
        ctype = register_ctype(var.type.dtype)
        if var.name not in self.mutable:
            if not isinstance(value, int):
                value = lift(value)
                simple = value.name is not None or value.text.replace(".", "").replace("f", "").isdigit()
                if not simple:
                    value = self.code.named(value, var.name, keep=_TEMPORARY.match(var.name) is None)
            self.env[var.name] = value
            return
        slot = self.env.get(var.name)
        if not isinstance(slot, Slot):
            slot = Slot(var.type.dtype, self.code.variable(var.name, ctype))
            self.env[var.name] = slot
        self.b.store(lift(value), slot.pointer)

    # -- statements -----------------------------------------------------------------------------------------------

    def sums_of_products(self, block: Block) -> tuple[dict[int, tuple[int, ...]], dict[int, Op]]:
        """Products one by one, each called for by itself."""
        sums, _ = super().sums_of_products(block)
        return {k: (k,) for k in sums}, {}

    def place(self, loc: Loc) -> None:
        """One comment per line of the user's source."""
        filename, lineno = place = loc.filename, loc.lineno
        last = self._place
        if place == last or loc is NOWHERE or not lineno:
            return
        self._place = place
        differs = lineno != last[1] or (filename != last[0] and file_name(filename) != file_name(last[0]))
        if differs and (text := place_of(loc)):
            self.code.line(f"// {text}")

    def statement(self, stmt: Stmt) -> None:
        first = stmt.body[0] if isinstance(stmt, Fuse) and stmt.body else stmt
        self.place(getattr(first, "loc", NOWHERE))
        super().statement(stmt) if not isinstance(stmt, _JUMPS) else self._jump(stmt)

    def _jump(self, stmt: Stmt) -> None:
        self._unwind(self.loops[-1].depth)
        self.code.line("break;" if type(stmt).__name__ == "Break" else "continue;")
        self.code.ended = True

    def _if(self, stmt: If) -> None:
        code = self.code
        condition = lift(self.scalar(stmt.cond)).text
        with code.braces(f"if ({condition})"):
            self.block(stmt.then)
        if stmt.orelse:
            code.output.pop()
            with code.braces("} else"):
                self.block(stmt.orelse)

    def _while(self, stmt: While) -> None:
        with self.code.braces("for (;;)"):
            self.block(stmt.before)
            condition = lift(self.scalar(stmt.cond))
            self.code.line(f"if ({self.b.not_(condition).text}) break;")
            self._body(stmt.body)

    def _body(self, body: Block) -> None:
        self.loops.append(LoopExits(None, None, len(self.scopes)))  # pyright: ignore[reportArgumentType]
        self.block(body)
        self.loops.pop()

    def _for(self, stmt: For) -> None:
        divided = stmt.kind in ("parallel", "chunk") or (stmt.kind == "combine" and stmt.grain is not None)
        if divided and not self.parallel:
            from pto_jit.targets.c.parallel import write_parallel

            write_parallel(self, stmt)
            return
        self.sequential(stmt, self.index(stmt.start), self.index(stmt.stop), self.index(stmt.step))

    def sequential(self, stmt: For, start: Index, stop: Index, step: Index, begin: Any = None) -> None:
        code = self.code
        self.check_step(stmt, step)
        if code.compare("<", start, stop) is False and isinstance(step, int) and step > 0:
            return
        stop = stop if isinstance(stop, int) else code.named(lift(stop))
        first, last, by = lift(start).text, lift(stop).text, lift(step).text
        i = code.names.fresh(stmt.var.name)
        code.declared[i] = "int64_t"
        if isinstance(step, int):
            if step > 0 and code.at_least_zero(start):
                code.not_negative.add(i)
            more = f"{i} < {last}" if step > 0 else f"{i} > {last}"
            change = {1: f"++{i}", -1: f"--{i}"}.get(step, f"{i} += {by}" if step > 0 else f"{i} -= {-step}")
        else:
            more, change = f"{by} > 0 ? {i} < {last} : {i} > {last}", f"{i} += {by}"
        at = len(code.output)
        with code.braces(f"for (int64_t {i} = {first}; {more}; {change})"):
            self.begin_iteration(stmt, CValue(I64, i), begin)
            self._body(stmt.body)
        clauses = self._reduction_clauses(stmt) if step == 1 else []
        if clauses and _only_adds_up(code.output[at + 1 : -1], [variable for _, variable in clauses]):
            pragma = " ".join(["#pragma omp simd", *(f"reduction({sign} : {v})" for sign, v in clauses)])
            code.output.insert(at, Line(code.depth, pragma))

    def _reduction_clauses(self, stmt: For) -> list[tuple[str, str]]:
        """What OpenMP calls the reductions of a loop whose iterations may be combined in any order, and their
        variables; nothing when one of them has no such name."""
        if stmt.kind != "in_chunk" or self.module.debug:
            return []
        out: list[tuple[str, str]] = []
        for reduction in stmt.reductions:
            slot = self.env.get(reduction.state[0].name)
            sign = _OPENMP.get(reduction.combine) if isinstance(reduction.combine, str) else None
            if sign is None or not isinstance(slot, Slot) or not isinstance(slot.pointer, CSlot):
                return []
            if slot.dtype.kind == "b" or (slot.dtype.kind == "f" and (slot.dtype.bits == 16 or sign in ("max", "min"))):
                return []
            out.append((sign, slot.pointer.variable))
        return out

    def begin_iteration(self, stmt: For, value: CValue, begin: Any = None) -> None:
        if stmt.var.name in self.mutable:
            self.define(stmt.var, value)
        else:
            self.env[stmt.var.name] = value
        if begin is not None:
            begin(value)

    def check_step(self, stmt: For, step: Index) -> None:
        if not isinstance(step, int) or step == 0:
            site = self.module.site(*failures.STEP.at(), stmt.loc)
            self.code.check(self.code.compare("!=", step, 0), site)

    def _call(self, stmt: Call) -> None:
        code = self.code
        slots = []
        for r in stmt.results:
            assert isinstance(r.type, ScalarType)
            slots.append(code.variable(r.name, register_ctype(r.type.dtype)))
        code.need_status()
        code.line(f"if ((status = {self.called(stmt, [s.text for s in slots])}) != PTO_OK) return status;")
        for r, slot in zip(stmt.results, slots, strict=True):
            assert isinstance(r.type, ScalarType)
            if r.name in self.mutable:
                self.define(r, self.b.load(slot, typ=register_type(r.type.dtype)))
            else:
                self.env[r.name] = self.code.read(slot.variable, register_type(r.type.dtype), slot.holds)

    def called(self, stmt: Call, results: Sequence[str]) -> str:
        """The call as an expression; `results`: where the function puts what it returns."""
        code = self.code
        callee: Func = self.callees[stmt.callee]
        args = ["worker"]
        for operand, formal in zip(stmt.args, callee.params, strict=True):
            if not isinstance(formal.type, TensorType):
                args.append(lift(self.scalar(operand)).text)
                continue
            tensor = self.tensor(operand)
            args.append(code.typed(tensor.pointer, memory_ctype(tensor.dtype)).text)
            args += [lift(e).text for e, known in zip(tensor.extents, formal.type.shape, strict=True) if known is None]
            args += [lift(s).text for s in self.passed_strides(tensor, formal.type)]
        self.module.called.setdefault(self.func.name, set()).add(stmt.callee)
        return f"{self.module.function_names[stmt.callee]}({', '.join([*args, *results])})"

    def passed_strides(self, tensor: Tensor, formal: TensorType) -> list[Index]:
        """Strides in elements that a callee is told: none of a packed tensor, not the last where it is 1."""
        if formal.layout == "c":
            return []
        strides = tensor.strides[:-1] if formal.layout == "inner" else tensor.strides
        return [self.in_elements(s, tensor.dtype) for s in strides]

    def in_elements(self, stride: Index, dtype: DType) -> Index:
        """A number of bytes as a number of elements."""
        if isinstance(stride, int):
            return stride // dtype.bytes
        key = id(stride), dtype.bytes
        known = self.counted.get(key)
        if known is None:
            if all(c % dtype.bytes == 0 for c in stride.poly.values()):
                count = CValue(I64, poly={m: c // dtype.bytes for m, c in stride.poly.items()})
            else:
                count = CValue(I64, f"{stride.at(14)} / {dtype.bytes}", 14)
            known = self.counted[key] = stride, count
        return known[1]

    def _return(self, stmt: Return) -> None:
        assert self.results is not None
        self.results(stmt.values)
        self._unwind(1)
        self.leave()

    # -- operations -----------------------------------------------------------------------------------------------

    def op(self, op: Op) -> None:
        from pto_jit.targets.c.refusals import OWN, refuse

        refuse(op, self.module.dialect)
        own = OWN.get(op.op)
        if own is not None:
            own(self, op)
        else:
            super().op(op)

    def plan(self, fused: Fuse) -> Any:
        """The nest of a group; groups that are alike are planned once."""
        return self.module.shared_groups(self.func.body).plan(fused)

    def write_nest(self, fused: Fuse, nest: Any, inputs: Any, divided: Any) -> Any:
        """A nest of a group as loops; `divided`: what its rows accumulate, when workers may share them."""
        if self.module.shared_groups(self.func.body).write(self, fused, nest, inputs):
            return None
        if divided is not None and not divided:
            from pto_jit.targets.c.parallel import write_divided

            write_divided(self, nest, inputs)
            return None
        writer = CNest(self, nest, inputs)
        writer.write()
        return writer

    def fill(self, dtype: DType, pointer: Any, count: Index, raw: Any) -> Any:
        """So many elements of a value, given as they are stored."""
        element = memory_ctype(dtype)
        where = self.code.typed(lift(pointer), element)
        self.code.line(f"pto_fill_{dtype}({where.text}, {lift(count).text}, {lift(raw).text});")

    def clash(self, *args: Any) -> Any:
        """Whether two regions overlap other than element by element."""
        from pto_jit.targets.c.regions import clash

        return clash(self, *args)

    def padded(self, *args: Any) -> Any:
        """A tile that may reach past its tensor."""
        from pto_jit.targets.c.regions import padded

        return padded(self, *args)


from pto_jit.ir.nodes import Break, Continue  # noqa: E402

_JUMPS = (Break, Continue)
_TEMPORARY = re.compile(r"(t?\d+|value)(\.\d+)?$")  # names of values that had none

__all__ = ["I32", "PTR", "CFunctionWriter", "Environment", "TargetError"]

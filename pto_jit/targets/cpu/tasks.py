# SPDX-License-Identifier: MIT
"""An orchestration function that submits its in-core calls as tasks of a graph.

The host code runs serially, as everywhere; a call of an in-core function is not made but submitted, with the rectangles
of its tensors (`lower.footprints`), and the runtime finds out what has to wait for what.  Values that are the same for
every task (parameters and tensors made at the top level) are kept once, in the graph's *frame*; a task carries a
pointer to it and what differs.  Where the host itself reads or writes an element, it waits for the tasks concerned.

    live       the graph is opened by the entry and closed before it returns
    recorded   the graph is given by the caller in the slot after the arguments; nothing runs
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pto_jit.errors import LaunchError
from pto_jit.ir.nodes import Call, Func, Op, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import variables
from pto_jit.lower.names import source_name
from pto_jit.slotted import replace
from pto_jit.targets.cpu.constants import I32, I64, PTR, Index, Text, Value, i64, number, zero
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.loading import Tasks
from pto_jit.targets.cpu.module import ModuleWriter
from pto_jit.targets.cpu.task_kinds import from_slot, release_kind, task_function, task_kind, tile_bytes, to_slot
from pto_jit.targets.cpu.task_regions import Root, TaskRegions, returned_variables
from pto_jit.targets.cpu.values import Tensor, remap

_NOT_RUN = 5  # PTO_NOT_RUN of pto_runtime.h


class TaskWriter(TaskRegions, FunctionWriter):
    """Writes the entry of an orchestration in terms of tasks."""

    def __init__(self, module: ModuleWriter, func: Func, function: ir.Function, worker: Value, funcs: dict[str, Func],
                 args: Value, tasks: Tasks) -> None:  # fmt: skip
        super().__init__(module, func, function, worker, parallel=True)
        self.begin_tasks(func, funcs)
        self.recorded = tasks.recorded
        self.named = tasks.named
        self.returned = {v.name for v in returned_variables(func)}
        self.frame_slots: dict[Value, int] = {}
        self.frame_size = Text(I64, "8")
        self.free_kind: Text | None = None
        if tasks.recorded:
            place = sum(2 * p.type.rank + 1 if isinstance(p.type, TensorType) else 1 for p in func.params)
            graph = self.b.load(self.code.offset(args, 8 * place), typ=PTR, align=8)
        else:
            graph = self.code.call("pto_graph_open", PTR, [worker, number(I64, 0)])
            self.got_memory(graph)
        self.graph = graph
        self.frame = self.code.call("pto_graph_buffer", PTR, [graph, self.frame_size])
        self.opened = self.code.alloca(PTR, "graph")
        with self.code.at_entry():
            self.b.store(zero(PTR), self.opened)
        self.b.store(graph, self.opened)
        self.got_memory(self.frame)

    # -- the function as a whole ----------------------------------------------------------------------------------

    def parameter(self, var: Var) -> None:
        """A parameter has its value: tasks find it in the frame, tensors in the graph."""
        value = self.env[var.name]
        if var.name not in self.mutable:
            self.share_value(var.name, value)
        if isinstance(value, Tensor):
            self.places[var.name] = self.registered(value, var.name)

    def close(self) -> None:
        """Wait for the tasks, then return as any function does."""
        self.frame_size.text = str(8 * max(1, len(self.frame_slots)))
        code = self.code
        code.at(code.leave)
        if not self.recorded:
            graph = self.b.load(self.opened, typ=PTR)
            with code.when(code.b.icmp_unsigned("!=", graph, zero(PTR)), likely=True):
                closed = code.call("pto_graph_close", I32, [code.worker, graph])
                status = self.b.load(code.status, typ=I32)
                ok = self.b.icmp_signed("==", status, number(I32, 0))
                self.b.store(self.b.select(ok, closed, status), code.status)
        code.leave = self.b.block
        super().close()

    def share_value(self, name: str, value: Any) -> None:
        """Keep a variable in the frame; its value has to dominate everything that follows."""
        self.shared[name] = value
        for part in _values(value):
            if not isinstance(part, ir.Constant) and part not in self.frame_slots:
                place = self.frame_slots[part] = len(self.frame_slots)
                self.b.store(to_slot(self.b, part), self.code.offset(self.frame, 8 * place), align=8)

    def registered(self, tensor: Tensor, name: str) -> Root:
        """Make a tensor known to the graph."""
        code = self.code
        rank = len(tensor.extents)
        shape = code.alloca(I64, "shape", count=max(1, 2 * rank))
        for k, value in enumerate((*tensor.extents, *tensor.strides)):
            self.b.store(i64(value), code.offset(shape, 8 * k), align=8)
        made = code.alloca(I32, "tensor")
        code.check_status(
            code.call(
                "pto_graph_tensor", I32,
                [self.graph, tensor.pointer, number(I64, tensor.dtype.bytes), number(I32, rank), shape,
                 code.offset(shape, 8 * rank), made],
            )
        )  # fmt: skip
        found = self.b.sext(self.b.load(made, typ=I32), I64)
        return Root(found, source_name(name), tensor.extents, (0,) * rank, tuple(range(rank)))

    # -- statements -----------------------------------------------------------------------------------------------

    def submit_call(
        self, stmt: Call, name: str, ops: list[Op], given: dict[Var, Any], accesses: list[int], regions: list[Index]
    ) -> tuple[str, dict[Value, int]]:
        code = self.code
        values = [v for leaf, value in given.items() if leaf.name not in self.shared for v in _values(value)]
        kept = [v for v in dict.fromkeys(values) if not isinstance(v, ir.Constant)]
        place = {value: 1 + k for k, value in enumerate(kept)}
        thunk = self._thunk(stmt, ops, given, place)
        kind = task_kind(self.module, name, thunk.name, tile_bytes(self.funcs[stmt.callee]), 1 + len(kept), accesses)
        slots = code.alloca(I64, "slots", count=1 + len(kept), align=16)
        for k, value in enumerate((self.frame, *kept)):
            self.b.store(to_slot(self.b, value), code.offset(slots, 8 * k), align=8)
        block = code.alloca(I64, "regions", count=max(1, len(regions)), align=16)
        for k, value in enumerate(regions):
            self.b.store(i64(value), code.offset(block, 8 * k), align=8)
        code.check_status(code.call("pto_task", I32, [self.graph, kind, slots, block]))
        return kind.text[2:-1], place

    def _thunk(self, stmt: Call, ops: list[Op], given: dict[Var, Any], place: dict[Value, int]) -> ir.Function:
        """`int32_t task(worker, slots)`: the arguments, and the call."""
        function = task_function(self.module, f"{stmt.callee}.task")
        worker, slots = function.args
        alone = replace(self.func, body=tuple(ops))  # of the whole function a writer would count every variable
        w = FunctionWriter(self.module, alone, function, worker, parallel=True)
        w.callees = self.callees
        frame = w.b.inttoptr(w.b.load(slots, typ=I64, align=8), PTR)
        loaded: dict[Value, Value] = {}

        def here(value: Value) -> Value:
            if value not in loaded:
                block, at = (slots, place[value]) if value in place else (frame, self.frame_slots[value])
                bits = w.b.load(w.code.offset(block, 8 * at), typ=I64, align=8)
                loaded[value] = from_slot(w.b, bits, value.type)
            return loaded[value]

        for leaf, value in given.items():
            w.env[leaf.name] = remap(value, here)
        for op in ops:
            w.statement(op)
        args = [v for a in stmt.args for v in w.flattened(a)]
        w.enter(stmt.callee, args)
        w.code.go(w.code.leave)
        w.close()
        return function

    def _scalars(self, given: dict[Var, Any], places: dict[Value, int]) -> tuple[tuple[str, str, str, int | str], ...]:
        """Where the scalars that a task depends on are, for whoever has to tell of it."""
        found: list[tuple[str, str, str, int | str]] = []
        for leaf, value in given.items():
            if not isinstance(leaf.type, ScalarType):
                continue
            where: str
            at: int | str
            if value in places:
                where, at = "slot", places[value]
            elif value in self.frame_slots:
                where, at = "frame", self.frame_slots[value]
            else:  # only of constants: llvmlite keeps the text of an instruction, also of one that is not complete
                where, at = "const", str(getattr(value, "constant", value))
            found.append((source_name(leaf.name), leaf.type.dtype.name, where, at))
        return tuple(found)

    def wait(self, access: int, region: list[Index], stmt: Call | Op) -> None:
        code = self.code
        block = code.alloca(I64, "region", count=len(region), align=16)
        for k, value in enumerate(region):
            self.b.store(i64(value), code.offset(block, 8 * k), align=8)
        status = code.call("pto_graph_wait_region", I32, [self.graph, number(I32, access), block])
        message = (
            "PTO-A041: the program needs a value that a recorded task would write; call the function, which runs them"
        )
        code.check(
            code.b.icmp_signed("!=", status, number(I32, _NOT_RUN)), self.module.site(LaunchError, message, stmt.loc)
        )
        code.check_status(status)

    # -- operations -----------------------------------------------------------------------------------------------

    def hold(self, name: str, root: Root) -> None:
        for k, value in enumerate((root.number, *root.offsets, *root.extents)):
            self.b.store(i64(value), self.code.offset(self.held[name], 8 * k), align=8)

    def tensor_memory(self, name: str, size: Index) -> Value:
        """Memory of a tensor made here: the graph's when it is recorded, which may run again, else the launch's."""
        code = self.code
        if self.recorded and name not in self.returned:
            pointer = code.call("pto_graph_buffer", PTR, [self.graph, i64(code.max(size, 1))])
            self.got_memory(pointer)
            return pointer
        if name not in self.held:  # a tensor made again in a loop: tasks may still use the memory of the last one
            rank = next(v.type.rank for v in variables(self.func.body) if v.name == name)  # type: ignore[union-attr]
            self.held[name] = code.alloca(I64, "held", count=1 + 2 * rank, align=16)
        return super().tensor_memory(name, size)

    def release_tensor(self, name: str, pointer: Value) -> None:
        """A task gives the memory back, after all that use it."""
        code = self.code
        slots = code.alloca(I64, "slots")
        self.b.store(self.b.ptrtoint(pointer, I64), slots)
        if self.free_kind is None:
            self.free_kind = release_kind(self.module)
        code.check_status(code.call("pto_task", I32, [self.graph, self.free_kind, slots, self.held[name]]))


def _values(value: Any) -> list[Value]:
    """The LLVM values of a variable."""
    if isinstance(value, Tensor):
        return [v for v in (value.pointer, *value.extents, *value.strides) if not isinstance(v, int)]
    return [value] if isinstance(value, ir.Value) else []

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
from pto_jit.ir.nodes import Call, For, Func, Op, Operand, Return, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import statements, variables
from pto_jit.lower.footprints import Footprint, Footprints, footprints
from pto_jit.lower.names import source_name
from pto_jit.lower.place import is_host
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cpu.code import I32, I64, PTR, Index, Text, Value, i64, number, zero
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.loading import Tasks, TaskSite
from pto_jit.targets.cpu.module import ModuleWriter
from pto_jit.targets.cpu.task_kinds import (
    READ,
    WRITE,
    from_slot,
    release_kind,
    task_function,
    task_kind,
    tile_bytes,
    to_slot,
)
from pto_jit.targets.cpu.values import Tensor, remap

_NOT_RUN = 5  # PTO_NOT_RUN of pto_runtime.h


@frozen(eq=False)
class Root:
    """A tensor as the graph knows it, and what part of it a variable looks at.

    number: its number in the graph; name: the user's; extents: of the whole; offsets: of the part, per axis of the
    whole; axes: which axis of the whole each axis of the variable is.
    """

    number: Value
    name: str
    extents: tuple[Index, ...]
    offsets: tuple[Index, ...]
    axes: tuple[int, ...]


class TaskWriter(FunctionWriter):
    """Writes the entry of an orchestration in terms of tasks."""

    def __init__(self, module: ModuleWriter, func: Func, function: ir.Function, worker: Value, funcs: dict[str, Func],
                 args: Value, tasks: Tasks) -> None:  # fmt: skip
        super().__init__(module, func, function, worker, parallel=True)
        self.funcs = funcs
        self.recorded = tasks.recorded
        self.named = tasks.named
        self.returned = {v.name for v in _returned(func)}
        self.prints: dict[str, Footprints] = {}
        self.places: dict[str, Root] = {}
        self.frame_slots: dict[Value, int] = {}
        self.shared: dict[str, Any] = {}  # variables whose values are in the frame
        self.makers = _host_operations(func, self.mutable)
        self.frame_size = Text(I64, "8")
        self.held: dict[str, Value] = {}  # a tensor made here: the region that is all of it
        self.free_kind: Text | None = None
        self.depth = 0  # loops and branches around the place of insertion
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
            self._share(var.name, value)
        if isinstance(value, Tensor):
            self.places[var.name] = self._registered(value, var.name)

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

    def _share(self, name: str, value: Any) -> None:
        """Keep a variable in the frame; its value has to dominate everything that follows."""
        self.shared[name] = value
        for part in _values(value):
            if not isinstance(part, ir.Constant) and part not in self.frame_slots:
                place = self.frame_slots[part] = len(self.frame_slots)
                self.b.store(to_slot(self.b, part), self.code.offset(self.frame, 8 * place), align=8)

    def _registered(self, tensor: Tensor, name: str) -> Root:
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

    def place(self, operand: Operand) -> Root:
        assert isinstance(operand, Var)
        known = self.places.get(operand.name)
        return self._registered(self.tensor(operand), operand.name) if known is None else known

    # -- statements -----------------------------------------------------------------------------------------------

    def block(self, block: Any) -> None:
        self.depth += 1
        super().block(block)
        self.depth -= 1

    def _for(self, stmt: For) -> None:
        """Submission is serial, whatever the loop: the tasks are what runs in parallel."""
        self.sequential(stmt, self.index(stmt.start), self.index(stmt.stop), self.index(stmt.step))

    def _call(self, stmt: Call) -> None:
        callee = self.funcs[stmt.callee]
        regions = self._regions(callee, stmt)
        if stmt.results:  # the host wants a scalar: it makes the call itself, when everything before it is done
            for _, access, region in regions:
                self._wait(access, region, stmt)
            super()._call(stmt)
            return
        code = self.code
        ops, leaves = self._slice(stmt)
        given = {leaf: self.shared[leaf.name] if leaf.name in self.shared else self.task_value(leaf) for leaf in leaves}
        values = [v for leaf, value in given.items() if leaf.name not in self.shared for v in _values(value)]
        kept = [v for v in dict.fromkeys(values) if not isinstance(v, ir.Constant)]
        place = {value: 1 + k for k, value in enumerate(kept)}
        thunk = self._thunk(stmt, ops, given, place)
        name = callee.name.split(".", 1)[0]
        accesses = [access for _, access, _ in regions]
        kind = task_kind(self.module, name, thunk.name, tile_bytes(callee), 1 + len(kept), accesses)
        told = tuple(tensor for tensor, _, _ in regions)
        self.module.task_sites.append(
            TaskSite(kind.text[2:-1], name, name in self.named, self._scalars(given, place), told, stmt.loc)
        )
        slots = code.alloca(I64, "slots", count=1 + len(kept), align=16)
        for k, value in enumerate((self.frame, *kept)):
            self.b.store(to_slot(self.b, value), code.offset(slots, 8 * k), align=8)
        flat = [v for *_, region in regions for v in region]
        block = code.alloca(I64, "regions", count=max(1, len(flat)), align=16)
        for k, value in enumerate(flat):
            self.b.store(i64(value), code.offset(block, 8 * k), align=8)
        code.check_status(code.call("pto_task", I32, [self.graph, kind, slots, block]))

    def _slice(self, stmt: Call) -> tuple[list[Op], list[Var]]:
        """What a task computes by itself: the operations behind the arguments of a call, and the variables they need.

        A task that carries the loop variables and computes offsets and views from them is smaller than one that
        carries addresses, and the serial host does less.
        """
        ops: list[Op] = []
        leaves: list[Var] = []
        seen: set[str] = set()

        def visit(var: Var) -> None:
            if var.name in seen:
                return
            seen.add(var.name)
            maker = self.makers.get(var.name)
            if maker is None or var.name in self.shared:
                leaves.append(var)
                return
            for arg in maker.args:
                if isinstance(arg, Var):
                    visit(arg)
            ops.append(maker)

        for arg in stmt.args:
            if isinstance(arg, Var):
                visit(arg)
        return ops, leaves

    def task_value(self, var: Var) -> Any:
        """A variable as it is when the task is submitted."""
        if isinstance(var.type, TensorType):
            return self.tensor(var)
        value = self.env[var.name]
        return value if isinstance(value, int) else self.scalar(var)

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
        w.code.check_status(w.b.call(self.callees[stmt.callee], [worker, *args]))
        w.code.go(w.code.leave)
        w.close()
        return function

    def _scalars(self, given: dict[Var, Any], place: dict[Value, int]) -> tuple[tuple[str, str, str, int | str], ...]:
        """Where the scalars that a task depends on are, for whoever has to tell of it."""
        found: list[tuple[str, str, str, int | str]] = []
        for leaf, value in given.items():
            if not isinstance(leaf.type, ScalarType):
                continue
            where: str
            at: int | str
            if value in place:
                where, at = "slot", place[value]
            elif value in self.frame_slots:
                where, at = "frame", self.frame_slots[value]
            else:  # only of constants: llvmlite keeps the text of an instruction, also of one that is not complete
                where, at = "const", str(getattr(value, "constant", value))
            found.append((source_name(leaf.name), leaf.type.dtype.name, where, at))
        return tuple(found)

    def _regions(self, callee: Func, stmt: Call) -> list[tuple[str, int, list[Index]]]:
        """What the call accesses: the tensor's name, read or write, then its number, its offsets and extents."""
        found = self.prints.get(callee.name)
        if found is None:
            found = self.prints[callee.name] = footprints(callee)
        roots = {place: self.place(a) for place, a in enumerate(stmt.args) if isinstance(a.type, TensorType)}
        saved, self.env = self.env, {p.name: self._argument(a) for p, a in zip(callee.params, stmt.args, strict=True)}
        mutable, self.mutable = self.mutable, set()
        for op in found.made:
            self.statement(op)
        regions = []
        for box in found.boxes:
            access = (READ if box.reads else 0) | (WRITE if box.writes else 0)
            root, tensor = roots[box.param], self.env[callee.params[box.param].name]
            regions.append((root.name, access, self._region(root, tensor, box)))
        self.env, self.mutable = saved, mutable
        return regions

    def _argument(self, operand: Operand) -> Any:
        if isinstance(operand.type, TensorType):
            return self.tensor(operand)
        assert isinstance(operand.type, ScalarType)
        return self.index(operand) if operand.type.dtype.name == "i64" else self.scalar(operand)

    def _region(self, root: Root, tensor: Tensor, box: Footprint) -> list[Index]:
        code = self.code
        lows: list[Index] = list(root.offsets)
        sizes: list[Index] = [1] * len(root.extents)
        for axis, low_operand, high_operand in zip(root.axes, box.lows, box.highs, strict=True):
            extent = tensor.extents[root.axes.index(axis)]
            low: Index = 0 if low_operand is None else code.max(self.index(low_operand), 0)
            high: Index = extent if high_operand is None else code.min(self.index(high_operand), extent)
            size = code.max(code.wrapping("sub", high, low), 0)
            inside = code.pick(code.compare(">", size, 0), low, 0)
            lows[axis] = code.wrapping("add", root.offsets[axis], inside)
            sizes[axis] = size
        return [root.number, *lows, *sizes]

    def _wait(self, access: int, region: list[Index], stmt: Call | Op) -> None:
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

    def op(self, op: Op) -> None:
        if op.op in ("getelem", "setelem"):
            place, first, access = (0, 1, READ) if op.op == "getelem" else (1, 2, WRITE)
            root, tensor = self.place(op.args[place]), self.tensor(op.args[place])
            whole = list(root.offsets)
            sizes: list[Index] = [1] * len(root.extents)
            for axis, operand in zip(root.axes, op.args[first:], strict=True):
                whole[axis] = self.code.wrapping("add", root.offsets[axis], self.index(operand))
            inside = self.code.all_of([
                c for operand, extent in zip(op.args[first:], tensor.extents, strict=True)
                for c in (self.code.compare(">=", self.index(operand), 0),
                          self.code.compare("<", self.index(operand), extent))
            ])  # fmt: skip
            # an index outside is the access's own failure, not the wait's
            sizes = [self.code.pick(inside, size, 0) for size in sizes]
            whole = [self.code.pick(inside, at, 0) for at in whole]
            self._wait(access, [root.number, *whole, *sizes], op)
        super().op(op)
        result = op.results[0] if op.results else None
        if result is None or not isinstance(result.type, TensorType):
            return
        if op.op == "view":
            self._viewed(op, result)
        elif op.op == "tensor_transpose" and isinstance(op.args[0], Var):
            root = self.place(op.args[0])
            order: Any = op.attr("axes") or tuple(reversed(range(len(root.axes))))
            self.places[result.name] = Root(
                root.number, root.name, root.extents, root.offsets, tuple(root.axes[k] for k in order)
            )
        else:
            tensor = self.tensor(result)
            if self.depth == 1 and result.name not in self.mutable:
                self._share(result.name, tensor)
            root = self.places[result.name] = self._registered(tensor, result.name)
            held = self.held.get(result.name)
            if held is not None:
                for k, value in enumerate((root.number, *root.offsets, *root.extents)):
                    self.b.store(i64(value), self.code.offset(held, 8 * k), align=8)

    def _viewed(self, op: Op, result: Var) -> None:
        root = self.place(op.args[0])
        rank = len(root.axes)
        drop: Any = op.attr("drop") or ()
        offsets = list(root.offsets)
        for k, axis in enumerate(root.axes):
            offsets[axis] = self.code.wrapping("add", offsets[axis], self.index(op.args[1 + k]))
        axes = tuple(axis for k, axis in enumerate(root.axes) if k not in drop)
        self.places[result.name] = Root(root.number, root.name, root.extents, tuple(offsets), axes)
        assert rank == len(axes) + len(drop)

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


def _returned(func: Func) -> list[Var]:
    return [v for s in statements(func.body) if isinstance(s, Return) for v in s.values if isinstance(v, Var)]


def _host_operations(func: Func, mutable: set[str]) -> dict[str, Op]:
    """Scalar arithmetic and views by what they make, where it and what it is made from are assigned once."""
    found: dict[str, Op] = {}
    for stmt in statements(func.body):
        if not isinstance(stmt, Op) or len(stmt.results) != 1 or stmt.op in ("getelem", "alloc") or not is_host(stmt):
            continue
        names = {v.name for v in (*stmt.results, *stmt.args) if isinstance(v, Var)}
        if not names & mutable:
            found[stmt.results[0].name] = stmt
    return found


def _values(value: Any) -> list[Value]:
    """The LLVM values of a variable."""
    if isinstance(value, Tensor):
        return [v for v in (value.pointer, *value.extents, *value.strides) if not isinstance(v, int)]
    return [value] if isinstance(value, ir.Value) else []

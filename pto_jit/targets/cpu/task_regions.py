# SPDX-License-Identifier: MIT
"""What an orchestration tells a task graph of its calls, whatever language it is written in.

A call becomes a task with the rectangles of its tensors (`lower.footprints`), in terms of tensors that the graph knows
(*roots*).  Views are followed, so that every rectangle is one of a root; where the host itself reads or writes an
element it waits for the tasks concerned.
"""

from __future__ import annotations

from typing import Any

from pto_jit.ir.nodes import Call, For, Func, Op, Operand, Return, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import statements
from pto_jit.lower.footprints import Footprint, Footprints, footprints
from pto_jit.lower.place import is_host
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.constants import Index
from pto_jit.targets.cpu.loading import TaskSite
from pto_jit.targets.cpu.values import Tensor

READ, WRITE = 1, 2  # PTO_READ and PTO_WRITE of pto_runtime.h


@frozen(eq=False)
class Root:
    """A tensor as the graph knows it, and what part of it a variable looks at.

    number: its number in the graph; name: the user's; extents: of the whole; offsets: of the part, per axis of the
    whole; axes: which axis of the whole each axis of the variable is.
    """

    number: Any
    name: str
    extents: tuple[Index, ...]
    offsets: tuple[Index, ...]
    axes: tuple[int, ...]


class TaskRegions:
    """A part of function writers (see `targets.cpu.function`): they register tensors, share values and wait."""

    env: Any
    code: Any
    mutable: Any
    statement: Any
    tensor: Any
    scalar: Any
    index: Any
    sequential: Any
    module: Any
    named: frozenset[str]

    def begin_tasks(self, func: Func, funcs: dict[str, Func]) -> None:
        """Start with nothing known; `funcs`: the functions of the program by name."""
        self.funcs = funcs
        self.prints: dict[str, Footprints] = {}
        self.places: dict[str, Root] = {}
        self.shared: dict[str, Any] = {}  # variables whose values are the same for every task
        self.makers = _host_operations(func, self.mutable)
        self.held: dict[str, Any] = {}  # a tensor made here: the region that is all of it
        self.depth = 0  # loops and branches around the place of insertion

    # -- what the writers do, each in its language ----------------------------------------------------------------

    def _scalars(self, given: dict[Var, Any], places: Any) -> tuple[tuple[str, str, str, int | str], ...]:
        """Where the scalars that a task depends on are, for whoever has to tell of it."""
        raise NotImplementedError

    def share_value(self, name: str, value: Any) -> None:
        """Keep a variable for all tasks; its value has to dominate everything that follows."""
        raise NotImplementedError

    def registered(self, tensor: Tensor, name: str) -> Root:
        """Make a tensor known to the graph."""
        raise NotImplementedError

    def wait(self, access: int, region: list[Index], stmt: Call | Op) -> None:
        """Let the host wait for the tasks that it has to, before it accesses a region itself."""
        raise NotImplementedError

    def hold(self, name: str, root: Root) -> None:
        """Remember the region of a tensor that may be made again, in what `held` has for it."""
        raise NotImplementedError

    def submit_call(
        self, stmt: Call, name: str, ops: list[Op], given: dict[Var, Any], accesses: list[int], regions: list[Index]
    ) -> tuple[str, Any]:
        """Write a task and its submission; the symbol of its kind, and where its slots have which values.

        name: of the callee; ops, given: what it computes by itself and the values of what that needs; accesses,
        regions: how it accesses its tensors, and the words that describe where.
        """
        raise NotImplementedError

    # -- statements -----------------------------------------------------------------------------------------------

    def _call(self, stmt: Call) -> None:
        callee = self.funcs[stmt.callee]
        regions = self.regions(callee, stmt)
        if stmt.results:  # the host wants a scalar: it makes the call itself, when everything before it is done
            for _, access, region in regions:
                self.wait(access, region, stmt)
            super()._call(stmt)  # type: ignore[misc]
            return
        ops, leaves = self.task_slice(stmt)
        given = {leaf: self.shared[leaf.name] if leaf.name in self.shared else self.task_value(leaf) for leaf in leaves}
        name = callee.name.split(".", 1)[0]
        words = [v for *_, region in regions for v in region]
        kind, places = self.submit_call(stmt, name, ops, given, [access for _, access, _ in regions], words)
        told = tuple(tensor for tensor, _, _ in regions)
        self.module.task_sites.append(
            TaskSite(kind, name, name in self.named, self._scalars(given, places), told, stmt.loc)
        )

    def block(self, block: Any) -> None:
        self.depth += 1
        super().block(block)  # type: ignore[misc]
        self.depth -= 1

    def _for(self, stmt: For) -> None:
        """Submission is serial, whatever the loop: the tasks are what runs in parallel."""
        self.sequential(stmt, self.index(stmt.start), self.index(stmt.stop), self.index(stmt.step))

    def task_slice(self, stmt: Call) -> tuple[list[Op], list[Var]]:
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

    # -- regions --------------------------------------------------------------------------------------------------

    def place_of(self, operand: Operand) -> Root:
        """The root of a tensor and what part of it the operand is."""
        assert isinstance(operand, Var)
        known = self.places.get(operand.name)
        return self.registered(self.tensor(operand), operand.name) if known is None else known

    def regions(self, callee: Func, stmt: Call) -> list[tuple[str, int, list[Index]]]:
        """What the call accesses: the tensor's name, read or write, then its number, its offsets and extents."""
        found = self.prints.get(callee.name)
        if found is None:
            found = self.prints[callee.name] = footprints(callee)
        roots = {place: self.place_of(a) for place, a in enumerate(stmt.args) if isinstance(a.type, TensorType)}
        values = {p.name: self._argument(a) for p, a in zip(callee.params, stmt.args, strict=True)}
        saved, mutable = self.env, self.mutable
        self.env, self.mutable = self.environment(values), set()
        for op in found.made:
            self.statement(op)
        regions = []
        for box in found.boxes:
            access = (READ if box.reads else 0) | (WRITE if box.writes else 0)
            root, tensor = roots[box.param], self.env[callee.params[box.param].name]
            regions.append((root.name, access, self._region(root, tensor, box)))
        self.env, self.mutable = saved, mutable
        return regions

    def environment(self, values: dict[str, Any]) -> Any:
        """What variables of the called function stand for while its footprints are computed."""
        return values

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
            # what is empty may begin behind the end, as a view may
            at = code.wrapping("add", root.offsets[axis], low)
            lows[axis] = code.pick(code.compare(">", size, 0), at, 0)
            sizes[axis] = size
        return [root.number, *lows, *sizes]

    # -- operations -----------------------------------------------------------------------------------------------

    def op(self, op: Op) -> None:
        if op.op in ("getelem", "setelem"):
            self._wait_for_element(op)
        super().op(op)  # type: ignore[misc]
        result = op.results[0] if op.results else None
        if result is None or not isinstance(result.type, TensorType):
            return
        if op.op == "view":
            self._viewed(op, result)
        elif op.op == "tensor_transpose" and isinstance(op.args[0], Var):
            root = self.place_of(op.args[0])
            order: Any = op.attr("axes") or tuple(reversed(range(len(root.axes))))
            self.places[result.name] = Root(
                root.number, root.name, root.extents, root.offsets, tuple(root.axes[k] for k in order)
            )
        else:
            tensor = self.tensor(result)
            if self.depth == 1 and result.name not in self.mutable:
                self.share_value(result.name, tensor)
            root = self.places[result.name] = self.registered(tensor, result.name)
            if result.name in self.held:
                self.hold(result.name, root)

    def _wait_for_element(self, op: Op) -> None:
        code = self.code
        place, first, access = (0, 1, READ) if op.op == "getelem" else (1, 2, WRITE)
        root, tensor = self.place_of(op.args[place]), self.tensor(op.args[place])
        whole = list(root.offsets)
        sizes: list[Index] = [1] * len(root.extents)
        for axis, operand in zip(root.axes, op.args[first:], strict=True):
            whole[axis] = code.wrapping("add", root.offsets[axis], self.index(operand))
        inside = code.all_of([
            c for operand, extent in zip(op.args[first:], tensor.extents, strict=True)
            for c in (code.compare(">=", self.index(operand), 0), code.compare("<", self.index(operand), extent))
        ])  # fmt: skip
        # an index outside is the access's own failure, not the wait's
        sizes = [code.pick(inside, size, 0) for size in sizes]
        whole = [code.pick(inside, at, 0) for at in whole]
        self.wait(access, [root.number, *whole, *sizes], op)

    def _viewed(self, op: Op, result: Var) -> None:
        root = self.place_of(op.args[0])
        rank = len(root.axes)
        drop: Any = op.attr("drop") or ()
        offsets = list(root.offsets)
        for k, axis in enumerate(root.axes):
            offsets[axis] = self.code.wrapping("add", offsets[axis], self.index(op.args[1 + k]))
        axes = tuple(axis for k, axis in enumerate(root.axes) if k not in drop)
        self.places[result.name] = Root(root.number, root.name, root.extents, tuple(offsets), axes)
        assert rank == len(axes) + len(drop)


def returned_variables(func: Func) -> list[Var]:
    """What a function returns by name."""
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

# SPDX-License-Identifier: MIT
"""Loops: run-time `for` and `while`, and unrolled ones.

A run-time body is compiled once (`loop_body`).  Sequential loops with constant bounds and at most 16 iterations are
unrolled when the loop variable decides an `if`, `while`, `match` or conditional expression in the body whose other
names are known at compile time and not assigned by the loop; following loops in loops multiplies to 64 at most.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from pto_jit.codegen.counting import Inside, Together, forget, items_of, nested
from pto_jit.codegen.emit import I64, index
from pto_jit.codegen.iteration import LoopSpec, decides, may_end, runtime_guard, trip_count
from pto_jit.codegen.loop_body import RunTimeLoop
from pto_jit.codegen.regions import SPLIT, Status, Target
from pto_jit.codegen.rotation import Rotation, rotation
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.dtypes import bool_
from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.ir.nodes import Const, For, Operand, Stmt, While

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

Run = Callable[[], Status]
FOLLOWED = 16  # trips up to which a constant sequential loop is unrolled when its variable decides an `if`


class Loops:
    def __init__(self, generator: Generator) -> None:
        self.g = generator
        self.followed = 1  # how often the code being compiled is repeated by following short loops

    # -- for ----------------------------------------------------------------------------------------------------

    def for_(self, node: ast.For) -> Status:
        g = self.g
        g.node = node.iter
        iterable = g.expressions.visit(node.iter)
        if isinstance(iterable, (Tensor, Tile)):
            iterable = items_of(g, iterable)
        if isinstance(iterable, range):
            spec = LoopSpec(iterable.start, iterable.stop, iterable.step, place=node.iter)
        elif isinstance(iterable, LoopSpec):
            spec = iterable
        elif isinstance(iterable, Together):
            return self.counted(node, iterable.spec, iterable.item)
        elif isinstance(iterable, Inside):
            loop = nested(g, node, iterable.parts)
            status = self.for_(loop)
            forget(g, loop, iterable.parts)
            return status
        else:
            return self.unrolled(node, g.items.each(iterable, node.iter))
        g.node = node.iter
        count = trip_count(spec)
        if (
            spec.kind == "sequential"
            and count is not None
            and count <= FOLLOWED
            and count * self.followed <= 64
            and isinstance(node.target, ast.Name)
            and decides(g, node, node.target.id)
        ):
            self.followed *= max(count, 1)
            status = self.unrolled(node, range(spec.start, spec.stop, spec.step))
            self.followed //= max(count, 1)
            return status
        if not isinstance(node.target, ast.Name):
            raise g.error_at(
                node.target,
                TypeMismatchError,
                "the variable of a run-time loop is one number",
                code="PTO-T004",
                hint="write `for i in pl.range(...)`",
            )
        return self.counted(node, spec)

    def unrolled(self, node: ast.For, items: Iterable[Any]) -> Status:
        """A loop over compile-time items: the body once per item."""
        g = self.g
        iterator = iter(items)

        def advance() -> bool:
            g.node = node.iter
            item = next(iterator, _END)
            if item is not _END:
                g.assignments.assign(node.target, item)
            return item is not _END

        return self._repeated(node, advance)

    def _repeated(self, node: ast.For | ast.While, advance: Callable[[], bool | None]) -> Status:
        """The body as often as `advance()` is True; when it is None, what is left of a `while` runs at run time."""
        g = self.g
        names = g.frame.names.loops[node]
        leave = self._target("break")
        mark = len(g.control.pending)
        count = 0
        status: Status = None
        g.static_loops += 1
        while status is None and (more := advance()) is not False:
            if more is None:
                assert isinstance(node, ast.While)
                g.static_loops -= 1
                return self._left(leave, g.control.close_pending(mark, self.runtime_while(node), live=names.live_after))
            count += 1
            self._check_limit(node, count)
            again = self._target("continue")
            inner = len(g.control.pending)
            g.loop_stack.append((leave, again))
            status = g.statements.block(node.body)
            g.loop_stack.pop()
            status = self._left(again, g.control.close_pending(inner, status, live=names.exposed | names.live_after))
            if status is None:
                status = g.control.after_statement(node)
        g.static_loops -= 1
        if status is None and node.orelse:
            status = g.statements.block(node.orelse)
        return self._left(leave, g.control.close_pending(mark, status, live=names.live_after))

    def _target(self, kind: str) -> Target:
        target = Target(kind, self.g.depth, len(self.g.loops))
        self.g.targets.append(target)
        return target

    def _left(self, target: Target, status: Status) -> Status:
        self.g.targets.remove(target)
        if status is target:
            return None
        if status is SPLIT and target.vars["left"] is not False:
            # some paths end here, others go further out: the flags of those guard what follows
            others = [t for t in self.g.targets if t.vars["left"] is not False]
            return None if any(t.vars["left"] is not True for t in others) or not others else SPLIT
        return status

    def _check_limit(self, node: ast.AST, count: int) -> None:
        if count > self.g.unroll_limit:
            raise self.g.error_at(
                node,
                CompilationError,
                f"this loop is unrolled at compile time and exceeds the limit of {self.g.unroll_limit} iterations",
                code="PTO-L002",
                hint="use `pl.range` for a run-time loop",
            )

    def counted(self, node: ast.For, spec: LoopSpec, item: Callable[[Any], Any] | None = None) -> Status:
        """A run-time `for`; item: what its variables are assigned of the number that it counts."""
        g = self.g
        loc = g.loc(node)
        named = next(n for n in ast.walk(node.target) if isinstance(n, ast.Name))
        kind: Literal["sequential", "parallel"] = "sequential" if spec.kind == "sequential" else "parallel"
        start, stop, step = (g.e.as_index(v) for v in (spec.start, spec.stop, spec.step))
        chunk = None if spec.chunk is None else g.e.as_index(spec.chunk)
        var = g.e.named(named.id, I64)
        count = trip_count(spec)
        turn = rotation(g, node) if kind == "sequential" and isinstance(step, Const) else None
        if turn is not None and abs(turn.period * int(step.value)) >> 63:  # type: ignore[union-attr]
            turn = None  # so many steps at once are not an integer
        loop = RunTimeLoop(g, node, kind, loc, runs=count is not None and count > 0, turn=turn, count=count)
        period = 1 if turn is None else turn.period

        def enter(value: Scalar) -> None:
            # a Python integer, except that it is exact: weak like any index
            if item is None:
                g.bind(g.frame, named.id, value, named)
            else:
                g.node = node.target
                g.assignments.assign(node.target, item(value))

        def again(done: int, rest: Run) -> Status:
            by = int(step.value)  # type: ignore[union-attr]
            value = g.e.scalar("add", [var, index(done * by)], weak=True)
            more = g.e.scalar("lt" if by > 0 else "gt", [value.operand, stop])
            if abs(by) > 1:  # at the last of the integers it begins with the first ones again
                beyond = g.e.scalar("gt" if by > 0 else "lt", [value.operand, var])
                more = g.e.scalar("and", [more.operand, beyond.operand])

            def run() -> Status:
                enter(value)
                return rest()

            return g.control.run_if(more, run, lambda: None, node, loop.kept)

        loop.compile(lambda: self._turns(node, turn, again), lambda: enter(Scalar(var, True, loc)))
        step = index(period * int(step.value)) if isinstance(step, Const) else step
        body = loop.complete()
        g.e.append(
            For(kind, var, start, stop, step, tuple(body), chunk, spec.policy, spec.combine, None, loc, loop.reductions)  # type: ignore[arg-type]
        )
        loop.results.bind()
        if kind == "parallel" and item is None:
            self._last_index(node, loop, start, step, count)
        return self._orelse(node, loop)

    def _turns(
        self, node: ast.For | ast.While, turn: Rotation | None, again: Callable[[int, Run], Status], done: int = 0
    ) -> Status:
        """The body of a run-time loop: once, or for each of the iterations that bring tensors back to their names.

        `again(k, rest)` compiles `rest` for where a k-th iteration follows.
        """
        g = self.g
        if isinstance(node, ast.While):
            g.choices.reveal(node.test, True)
        status = g.statements.block(node.body)
        if turn is None:
            return status
        if status is None and done + 1 < turn.period:
            status = again(done + 1, lambda: self._turns(node, turn, again, done + 1))
        for name, tensor in turn.tensors.items():
            g.bind(g.frame, name, tensor, g.frame.places.get(name))
        return status

    def _last_index(self, node: ast.For, loop: RunTimeLoop, start: Operand, step: Operand, count: int | None) -> None:
        """The variable of a parallel loop after it: the last index, where it is known to exist."""
        g = self.g
        assert isinstance(node.target, ast.Name)
        if node.target.id in loop.names.live_after and count and isinstance(start, Const) and isinstance(step, Const):
            g.bind(g.frame, node.target.id, Scalar(index(int(start.value) + (count - 1) * int(step.value)), True))

    def _orelse(self, node: ast.For | ast.While, loop: RunTimeLoop) -> Status:
        g = self.g
        if not node.orelse:
            return None
        broken = loop.results.broken
        if broken is False:
            return g.statements.block(node.orelse)
        if broken is True:
            loop.results.bind_broken()
            return None
        cond = g.control.negated(broken)

        def ended() -> Status:
            for target in g.targets:  # what left something else has left the loop by `break`, too
                if target.vars["left"] is not False:
                    g.bind(target, "left", False)
            return g.statements.block(node.orelse)

        return g.control.run_if(cond, ended, loop.results.bind_broken, node, None)

    # -- while --------------------------------------------------------------------------------------------------

    def while_(self, node: ast.While) -> Status:
        return self._repeated(node, lambda: self._decided(node))

    def _decided(self, node: ast.While) -> bool | None:
        """The truth of the condition at compile time; None when the loop runs at run time."""
        g = self.g
        if isinstance(node.test, ast.Constant) and node.test.value:
            if runtime_guard(g, node):
                return None
            if not may_end(node):
                self._check_limit(node, g.unroll_limit + 1)  # it never ends: that is known before it is unrolled
            return True
        region = g.control.open_region()
        block = g.e.push()
        value = g.expressions.condition(node.test)
        g.node = node.test
        truth = g.operators.truth(value)
        decided = None if isinstance(truth, Scalar) else truth
        g.e.pop(block)
        changes = g.control.close_region(region)
        if decided is not None:  # else the condition is compiled again, as part of the loop
            g.e.current.extend(block)
            g.control.apply(changes)
        return decided

    def runtime_while(self, node: ast.While) -> Status:
        g = self.g
        loc = g.loc(node)
        forever = isinstance(node.test, ast.Constant)
        turn = rotation(g, node)
        loop = RunTimeLoop(g, node, "while", loc, runs=False, forever=forever, turn=turn)
        before: list[Stmt] = []

        def test() -> Scalar:
            g.node = node.test
            value = g.expressions.condition(node.test)
            g.node = node.test
            return g.e.cast(g.operators.truth(value), bool_)

        def enter() -> None:
            if forever:
                return
            block = g.e.push()
            loop.cond = test().operand
            loop.record_test()
            g.e.pop(block)
            before.extend(block)

        def again(_: int, rest: Run) -> Status:
            if forever:
                return rest()
            return g.control.run_if(test(), rest, lambda: g.control.leave_loop("break", node), node, loop.kept)

        loop.compile(lambda: self._turns(node, turn, again), enter)
        body = loop.complete(before)
        g.e.append(While(tuple(loop.before), loop.cond, tuple(body), loc))
        loop.results.bind()
        return self._orelse(node, loop)


_END = object()

# SPDX-License-Identifier: MIT
"""Loops that fold elements into numbers, shared by the threads of a block.

Every thread folds iterations of its own, then the block what its threads have.  Where the order of iterations counts,
or one of them can end the loop, each thread has one iteration at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext

from pto_jit.ir.nodes import Break, Const, Continue, For, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import statements
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.elements import Fold, leaves
from pto_jit.targets.cuda.function import FunctionWriter
from pto_jit.targets.source.scalars import memory_type, register_type


@frozen
class _State:
    """A number that a loop folds into, as C text: the variable, what it was before, and the rule that combines two."""

    name: str
    before: str
    rule: str


class FoldWriter(FunctionWriter):
    """Writes kernels without tiles; `folds` has the loops that the threads of a block share, by identity."""

    folds: dict[int, tuple[Fold, ...]]
    leaving = ""
    """Where a thread puts its number when it leaves the loop that is being written."""

    def _plain_loop(self, loop: For, var: str, start: str, stop: str, step: str, down: bool) -> None:
        folds = self.folds.get(id(loop))
        if folds is None:
            super()._plain_loop(loop, var, start, stop, step, down)
            return
        states = [self._state(fold) for fold in folds]
        first, stride = "threadIdx.x", "TC"
        if step != "1":  # in 64 bits: of the last threads, large steps leave 32
            first, stride = f"int64_t({first}) * {step}", f"int64_t({stride}) * {step}"
        if folds[0].ordered or leaves(loop):
            for state, fold in zip(states, folds, strict=True):
                self.text.line(f"{_type_of(fold)} {state.before} = {state.name};")
            self.meet_before(loop.body)
            self._fold_by_turns(loop, states, (var, start, stop, step), (first, stride), ordered=folds[0].ordered)
            return
        for state, fold in zip(states, folds, strict=True):
            self.text.line(f"const {_type_of(fold)} {state.before} = {state.name};")
            self.text.line(f"{state.name} = {state.rule}::identity();")
        self.meet_before(loop.body)
        if start.startswith("-") and step == "1":
            first = f"int64_t({first})"  # below 0: as unsigned numbers the sums would be large
        begin = first if start == "0" else f"{start} + {first}"
        self.text.line("PTO_UNROLL_BY_4")
        with self.text.block(f"for (int64_t {var} = {begin}; {var} < {stop}; {var} += {stride})"):
            self.block(loop.body)
        for s in states:
            self.text.line(f"{s.name} = {s.rule}::combine({s.before}, Spread::reduce_columns<{s.rule}>({s.name}));")

    def _state(self, fold: Fold) -> _State:
        name = self.name(fold.state.name)
        dtype = fold.state.type.dtype  # type: ignore[union-attr]
        rule = f"pto::{fold.rule}<{register_type(dtype)}>"
        if dtype.kind == "f" and dtype.bits == 16:
            rule = f"pto::Rounded<{rule}, {memory_type(dtype)}>"
        return _State(name, self.names.fresh(f"{name}_before"), rule)

    def _fold_by_turns(
        self, loop: For, states: Sequence[_State], bounds: Sequence[str], share: tuple[str, str], *, ordered: bool
    ) -> None:
        """The threads have an iteration each; one warp combines the numbers of all in their order, or all do in any."""
        var, start, stop, step = bounds
        first, stride = share
        base = self.names.fresh(f"{var}_base")
        ends = leaves(loop)
        with self.text.block(f"for (int64_t {base} = {start}; {base} < {stop}; {base} += {stride})"):
            for s in states:
                self.text.line(f"{s.before} = {s.name};")
                self.text.line(f"{s.name} = {s.rule}::identity();")
            self.text.line(f"const int64_t {var} = {base} + {first};")
            last = self._iteration(loop, var, stop)
            left = f"{stop} - {base}" if step == "1" else f"({stop} - {base} + {int(step) - 1}) / {step}"
            left = f"{last} < TC ? {last} + 1 : {left}" if ends else left
            for s in states:
                if ordered:
                    self.text.line(f"{s.name} = pto::combined_in_order<{s.rule}, TC>({s.before}, {s.name}, {left});")
                    continue
                self.text.line(f"if (int(threadIdx.x) > {last}) {s.name} = {s.rule}::identity();")
                self.text.line(f"{s.name} = {s.rule}::combine({s.before}, Spread::reduce_columns<{s.rule}>({s.name}));")
            if ends:
                self.text.line(f"if ({last} < TC) break;")

    def _iteration(self, loop: For, var: str, stop: str) -> str:
        """An iteration of each thread.  Where one may end the loop: the number of the first thread that does, or TC.

        Those after it compute what does not count, and must not read outside of tensors for that.
        """
        ends = leaves(loop)
        if ends:
            self.leaving = self.names.fresh(f"{var}_left")
            self.text.line(f"int {self.leaving} = TC;")
        jumps = any(isinstance(s, (Break, Continue)) for s in statements(loop.body))  # to the end of the iteration
        scope = self.text.block("do", "} while (false);") if jumps else nullcontext()
        with self.text.block(f"if ({var} < {stop})"), scope:
            self.block(loop.body)
        if not ends:
            return ""
        last = self.names.fresh(f"{var}_last")
        self.text.line(f"const int {last} = Spread::reduce_columns<pto::Minimum<int>>({self.leaving});")
        self.leaving = ""
        return last

    def statement(self, stmt: Stmt) -> None:
        if isinstance(stmt, Break) and self.leaving:
            self.text.line(f"{self.leaving} = int(threadIdx.x);")
        super().statement(stmt)

    def operation(self, op: Op) -> None:
        if op.op == "getelem" and self.leaving:
            self._stay_inside(op.args[0], op.args[1:])
        super().operation(op)

    def _stay_inside(self, tensor: Operand, indices: Collection[Operand]) -> None:
        """Leave the loop rather than read outside of a tensor: if that would happen, an earlier iteration has left."""
        assert isinstance(tensor, Var)
        for axis, index in enumerate(indices):
            if isinstance(index, Const):
                continue
            if not (self.facts.is_natural(index) and self.facts.is_below(index, tensor.name, axis)):
                outside = f"uint64_t({self.scalar(index)}) >= uint64_t({self.name(tensor.name)}.shape[{axis}])"
                with self.text.block(f"if ({outside})"):
                    self.text.line(f"{self.leaving} = int(threadIdx.x);")
                    self.text.line("break;")


def _type_of(fold: Fold) -> str:
    assert isinstance(fold.state.type, ScalarType)
    return register_type(fold.state.type.dtype)

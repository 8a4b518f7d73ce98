# SPDX-License-Identifier: MIT
"""Loops that fold elements into numbers, shared by the threads of a block.

Every thread folds iterations of its own, then the block what its threads have.  Where the order of iterations counts,
or one of them can end the loop, each thread has one iteration at a time.  A function of the program that combines
states need not commute: unless it evidently does, a thread has iterations that follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Break, Const, Continue, For, Op, Operand, Reduction, Region, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import statements
from pto_jit.lower.commuting import commutes
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.elements import Fold, leaves
from pto_jit.targets.cuda.privatised import AHEAD, Privatised, loaded_ahead, makers_of
from pto_jit.targets.cuda.rules import RuleWriter
from pto_jit.targets.cuda.updates import ATOMIC
from pto_jit.targets.source.scalars import memory_type, register_type


@frozen
class _State:
    """A number that a loop folds into, as C text: the variable, what it was before, and the rule that combines two."""

    name: str
    before: str
    rule: str


Shared = tuple[Fold | Reduction, ...]
"""What becomes of the iterations of a loop that the threads of a block share; (): each thread runs all of them."""


class FoldWriter(RuleWriter):
    """Writes kernels without tiles; `folds` has the loops that the threads of a block share, by identity."""

    folds: dict[int, Shared]
    privatised: tuple[Privatised, ...] = ()
    """Tensors whose elements blocks may update in shared memory first."""
    there: Mapping[int, str] = MappingProxyType({})
    """Elements that are loaded already, by the identity of what loads them."""
    leaving = ""
    """Where a thread puts its number when it leaves the loop that is being written."""

    def grid_loop(self, loop: For, begin: str, stop: str, stride: str) -> None:
        ahead = loaded_ahead(loop, self.facts) if self.privatised and loop is self.chain[-1] else []
        if not ahead:
            super().grid_loop(loop, begin, stop, stride)
            return
        count, at, k, some = (self.names.fresh(name) for name in ("group", "first", "k", "stride"))
        var = self.name(loop.var.name)
        own = [self.names.fresh(f"{self.name(op.results[0].name)}_ahead") for op in ahead]
        self.text.line(f"constexpr int {count} = PTO_AHEAD({AHEAD}, {' + '.join(p.macro for p in self.privatised)});")
        self.text.line(f"const int64_t {some} = {stride};")
        each = f"for (int {k} = 0; {k} < {count}; ++{k})"
        self.text.line("PTO_KEEP_LOOP")
        with self.text.block(f"for (int64_t {at} = {begin}; {at} < {stop}; PTO_NEXT({at}, {stop}, {some} * {count}))"):
            for name, op in zip(own, ahead, strict=True):
                self.text.line(f"{_type_of(op.results[0])} {name}[{count}];")
            for loads in (True, False):
                self.text.line("PTO_UNROLL")
                with self.text.block(each):
                    self.text.line(f"const int64_t {var} = {at} + {k} * {some};")
                    with self.text.block(f"if ({var} < {stop})"):
                        if loads:
                            for op in makers_of(ahead, loop):
                                self.operation(op)
                            for name, op in zip(own, ahead, strict=True):
                                self.text.line(f"{name}[{k}] = {self.name(op.results[0].name)};")
                            continue
                        self.there = {id(op): f"{name}[{k}]" for name, op in zip(own, ahead, strict=True)}
                        self.block(loop.body)
                        self.there = MappingProxyType({})

    def _plain_loop(self, loop: For, var: str, start: str, stop: str, step: str, down: bool) -> None:
        shared = self.folds.get(id(loop))
        if not shared:
            super()._plain_loop(loop, var, start, stop, step, down)
            return
        first, stride = "threadIdx.x", "TC"
        if step != "1":  # in 64 bits: of the last threads, large steps leave 32
            first, stride = f"int64_t({first}) * {step}", f"int64_t({stride}) * {step}"
        folds = [f for f in shared if isinstance(f, Fold)]
        if leaves(loop) or any(fold.ordered for fold in folds):
            states = [self._state(fold) for fold in folds]
            for state, fold in zip(states, folds, strict=True):
                self.text.line(f"{_type_of(fold.state)} {state.before} = {state.name};")
            self.meet_before(loop.body)
            self._fold_by_turns(loop, states, (var, start, stop, step), (first, stride), ordered=folds[0].ordered)
            return
        if start.startswith("-") and step == "1":
            first = f"int64_t({first})"  # below 0: as unsigned numbers the sums would be large
        begin, last = first if start == "0" else f"{start} + {first}", stop
        if len(folds) < len(shared):
            begin, last, stride = self._share_of(shared, (var, start, stop, step), (begin, stride))
        some = f"{begin} < {stop}"
        ends = [self._fold(m) if isinstance(m, Fold) else self._merge(m, some, loop.loc) for m in shared]
        self.meet_before(loop.body)
        self.text.line("PTO_UNROLL_BY_4")
        with self.text.block(f"for (int64_t {var} = {begin}; {var} < {last}; {var} += {stride})"):
            self.block(loop.body)
        for end in ends:
            end()

    def _share_of(
        self, merges: Shared, bounds: Sequence[str], apart: tuple[str, str]
    ) -> tuple[str, str, str]:  # fmt: skip
        """Where the iterations of a thread begin and end, and how far apart they are: as in `apart`, or following each
        other, where a function may count on their order."""
        var, start, stop, step = bounds
        first = self.names.fresh(f"{var}_first")
        if all(commutes(m.combine) for m in merges if isinstance(m, Reduction)):
            self.text.line(f"const int64_t {first} = {apart[0]};")
            return first, stop, apart[1]
        share, last = self.names.fresh(f"{var}_share"), self.names.fresh(f"{var}_last")
        each = "" if step == "1" else f" * {step}"
        self.text.line(f"const int64_t {share} = pto::share_of<TC>({start}, {stop}, {step}){each};")
        self.text.line(f"const int64_t {first} = {'' if start == '0' else f'{start} + '}threadIdx.x * {share};")
        self.text.line(f"const int64_t {last} = pto::smaller<int64_t>({first} + {share}, {stop});")
        return first, last, step

    def _fold(self, fold: Fold) -> Callable[[], None]:
        """Begin a part of what a rule combines; what ends it."""
        state = self._state(fold)
        self.text.line(f"const {_type_of(fold.state)} {state.before} = {state.name};")
        self.text.line(f"{state.name} = {state.rule}::identity();")
        return lambda: self._end(state)

    def _end(self, s: _State) -> None:
        self.text.line(f"{s.name} = {s.rule}::combine({s.before}, Spread::reduce_columns<{s.rule}>({s.name}));")

    def _state(self, fold: Fold) -> _State:
        name = self.name(fold.state.name)
        dtype = fold.state.type.dtype  # type: ignore[union-attr]
        rule = f"pto::{fold.rule}<{register_type(dtype)}>"
        if dtype.kind == "f" and dtype.bits == 16:
            rule = f"pto::Rounded<{rule}, {memory_type(dtype)}>"
        return _State(name, self.names.fresh(f"{name}_before"), rule)

    def _merge(self, reduction: Reduction, some: str, loc: Loc) -> Callable[[], None]:
        """Begin a part of what a function combines; what ends it.  some: whether a thread has an iteration."""
        assert isinstance(reduction.combine, Region)
        self.headers.add("pto_lines")
        kinds = [v.type.dtype for v in reduction.state]  # type: ignore[union-attr]
        rule = self.combining_rule(reduction.combine, kinds, "pl.reduction", loc)
        names = [self.name(v.name) for v in reduction.state]
        before = [self.names.fresh(f"{name}_before") for name in names]
        for var, name, old, init in zip(reduction.state, names, before, reduction.init, strict=True):
            self.text.line(f"const {_type_of(var)} {old} = {name};")
            self.text.line(f"{name} = {self.scalar(init)};")

        def end() -> None:
            made = self.names.fresh("combined")
            whole = f"pto::combined_over_threads<Spread>({rule.text}, {rule.of(names, some)})"
            self.text.line(f"const {rule.state} {made} = {rule.text}.combine({rule.of(before)}, {whole});")
            for k, name in enumerate(names):
                self.text.line(f"{name} = {rule.read(made, k)};")

        return end

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
                self._end(s)
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
        if id(op) in self.there:
            self.define(op.results[0], self.there[id(op)])
            return
        if op.op in ATOMIC:
            self._update_element(op)
            return
        if op.op == "getelem" and self.leaving:
            self._stay_inside(op.args[0], op.args[1:])
        super().operation(op)

    def _update_element(self, op: Op) -> None:
        """Combine a number with an element, unless it lies outside of its tensor."""
        value, tensor, *places = op.args
        assert isinstance(tensor, Var) and isinstance(value.type, ScalarType)
        self.headers.add("pto_places")
        for axis, place in enumerate(places):
            self.natural(place, axis, op.loc)
        self.writes_memory(tensor)
        there = [] if self.elements else ["Spread::writes_scalars()"]
        for axis, place in enumerate(places):
            text, extent = self.scalar(place), f"{self.name(tensor.name)}.shape[{axis}]"
            if not self.facts.is_natural(place):
                there.append(f"uint64_t({text}) < uint64_t({extent})")
            elif not self.facts.is_below(place, tensor.name, axis):
                there.append(f"{text} < {extent}")
        at, number = f"&{self.element(tensor, places)}", self.scalar(value)
        update = f"pto::{ATOMIC[op.op]}<{register_type(value.type.dtype)}>::apply({at}, {number});"
        for p in self.privatised:
            if p.param.name == tensor.name:
                place = f"&{p.bins}[{self._number_of(tensor, places)}]"
                update = f"pto::update_bin<pto::{ATOMIC[op.op]}, {p.macro}>({place}, {at}, {number});"
        self.text.line(f"if ({' && '.join(there)}) {update}" if there else update)

    def _number_of(self, tensor: Var, places: Sequence[Operand]) -> str:
        """The number of an element among all of a tensor, of which there are few."""
        number = ""
        for axis, place in enumerate(places):
            text = self.scalar(place)
            text = text if text.isdigit() else f"int({text})"
            number = text if not number else f"{number} * int({self.name(tensor.name)}.shape[{axis}]) + {text}"
            if axis + 1 < len(places) and axis:
                number = f"({number})"
        return number

    def bins_names(self, tensor: str) -> tuple[str, str]:
        """What the bins of a tensor are called, and the macro that says for how many of them there is room."""
        name = self.name(tensor)
        return self.names.fresh(f"{name}_bins"), self.names.fresh(f"BINS_{name.upper()}")

    def prologue(self) -> list[str]:
        """Where the bins of privatised tensors are."""
        if not self.privatised:
            return []
        memory, distance = self.names.fresh("bins"), ""
        lines = [f"PTO_SHARED_MEMORY({memory});"]
        for p in self.privatised:
            lines.append(f"{p.bin}* const {p.bins} = reinterpret_cast<{p.bin}*>({memory}{distance});")
            lines.append(f"pto::begin_bins<pto::{ATOMIC[p.update]}, {p.macro}>({p.bins}, {self.name(p.param.name)});")
            distance += f" + {p.bytes} * {p.macro}"
        return lines

    def end_bins(self) -> None:
        """Combine the bins of a block with the elements of their tensors."""
        for p in self.privatised:
            name = self.name(p.param.name)
            self.text.line(f"pto::end_bins<pto::{ATOMIC[p.update]}, {p.macro}>({p.bins}, {name});")

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


def _type_of(state: Var) -> str:
    assert isinstance(state.type, ScalarType)
    return register_type(state.type.dtype)

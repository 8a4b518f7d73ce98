# SPDX-License-Identifier: MIT
"""The combine phase: partial results become the result, in the order that `combine=` asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from pto_jit.ir.nodes import Block, Const, For, If, Op, Operand, Reduction, Region, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_defs, rename
from pto_jit.lower.names import BOOL, I64, Names, Scalars, index, source_name
from pto_jit.lower.reductions.arrays import Copies
from pto_jit.lower.reductions.partials import Emit, Partials, fold
from pto_jit.slotted import replace

Held = Partials | Copies
LARGE = 1 << 14  # elements of a partial result from which the merges of a level are divided over the workers
GROUP = 16  # partial results that a block merges in the first of two steps
LEVELS = 64  # partial results up to which the levels of a tree are written out


def merge(partials: Sequence[Held], count: Operand, loop: For, names: Names, *, alone: bool = False) -> list[Stmt]:
    """Merge `count` partial results of each state and fold them into what `loop` reduces into.

    alone: numbers are folded in one loop over variables, whatever order is asked for.
    """
    if alone and all(isinstance(one, Partials) and _are_numbers(one) for one in partials):
        return _in_variables(partials, count, replace(loop, combine="sequential"), names)  # type: ignore[arg-type]
    if loop.combine == "sequential":
        return [_over(partials, loop, names, index(0), count, lambda one, e, k: one.fold(e, k))]
    if loop.combine == "loop":
        into_first = _over(partials, loop, names, index(1), count, lambda one, e, k: one.merge(e, index(0), k))
        return [into_first, *_fold_first(partials, count, loop, names)]
    return [*_tree(partials, count, loop, names), *_fold_first(partials, count, loop, names)]


def in_groups(
    partials: Sequence[Partials], merged: Sequence[Partials], counts: tuple[Operand, Operand], loop: For, names: Names
) -> For:
    """The first of two steps: a loop whose iterations merge `GROUP` of `partials` into one of `merged`, in their order.

    counts: of both.
    """
    group = names.fresh(f"{source_name(loop.var.name)}_group")
    head, first, last = Scalars(names, loop.loc), Emit(names, loop.loc), Emit(names, loop.loc)
    start = head.op("mul", group, index(GROUP))
    stop = head.op("min", head.op("add", start, index(GROUP)), counts[0])
    into: list[Partials] = []
    for one, whole in zip(partials, merged, strict=True):
        whole.start(first, group)
        into.append(replace(one, state=replace(one.state, place=None, computed=(), targets=whole.vars)))
        whole.save(last, group)
    inner = _over(into, loop, names, start, stop, lambda one, e, k: one.fold(e, k))
    body = (*head.done(), *first.done(), inner, *last.done())
    return For("chunk", group, index(0), counts[1], index(1), body, loc=loop.loc)


def _are_numbers(one: Partials) -> bool:
    """Whether partial results are numbers, and every chunk has one."""
    return one.flags is None and all(isinstance(v.type, ScalarType) for v in one.vars)


def _in_variables(partials: Sequence[Partials], count: Operand, loop: For, names: Names) -> list[Stmt]:
    """One loop that folds numbers into variables; places get theirs after it."""
    first, last = Emit(names, loop.loc), Emit(names, loop.loc)
    folded: list[Partials] = []
    for one in partials:
        if one.state.place is None:
            folded.append(one)
            continue
        whole = names.fresh(f"{one.state.name}_whole", one.vars[0].type)
        first.op("copy", *one.state.init, result=whole)
        folded.append(replace(one, state=replace(one.state, place=None, computed=(), targets=(whole,))))
        fold(last, one.state, lambda e, whole=whole: [whole])
    every = _over(folded, loop, names, index(0), count, lambda one, e, k: one.fold(e, k))
    return [*first.done(), _saying_functions(every, folded, names), *last.done()]


def _saying_functions(every: For, folded: Sequence[Partials], names: Names) -> Stmt:
    """The loop that merges, with the functions that it merges by: their operations stand in its body in line."""
    reductions: list[Reduction] = []
    fresh: dict[str, str] = {}
    for one in folded:
        combine = one.state.combine
        if isinstance(combine, Region):
            reductions.append(Reduction(one.state.targets, one.state.init, combine))
            made = [p.name for p in combine.params] + sorted(block_defs(combine.body))
            fresh |= {name: names.fresh(name).name for name in made}
    (loop,) = rename((replace(every, reductions=tuple(reductions)),), fresh)
    return loop


def _over(
    partials: Sequence[Held], loop: For, names: Names, start: Operand, stop: Operand,
    step: Callable[[Held, Emit, Var], None],
) -> For:  # fmt: skip
    """A combine loop."""
    k = names.fresh(source_name(loop.var.name))
    body: list[Stmt] = []
    for one in partials:
        e = Emit(names, one.loc)
        step(one, e, k)
        body += e.done()
    return For("combine", k, start, stop, index(1), tuple(body), combine=loop.combine, loc=loop.loc)


def _fold_first(partials: Sequence[Held], count: Operand, loop: For, names: Names) -> Block:
    if isinstance(count, Const) and count.value < 1:
        return ()
    body: list[Stmt] = []
    for one in partials:
        e = Emit(names, one.loc)
        one.fold(e, index(0))
        body += e.done()
    if isinstance(count, Const):
        return tuple(body)
    some = names.fresh("some", BOOL)
    return (Op("gt", (some,), (count, index(0)), (), (), loop.loc), If(some, tuple(body), (), loop.loc))


def _tree(partials: Sequence[Held], count: Operand, loop: For, names: Names) -> list[Stmt]:
    """Level by level: the slots at multiples of 2d take in those d further on, for d = 1, 2, 4, ..."""
    result: list[Stmt] = []
    if isinstance(count, Const) and count.value <= LEVELS:
        distance = 1
        while distance < count.value:
            result += _level(partials, count, index(distance), loop, names)
            distance *= 2
        return result
    distance = names.fresh("distance", I64)
    more = names.fresh("more", BOOL)
    loc = loop.loc
    doubled = Scalars(names, loc)
    twice = doubled.op("mul", distance, index(2))
    return [
        Op("copy", (distance,), (index(1),), (), (), loc),
        While(
            (Op("lt", (more,), (distance, count), (), (), loc),),
            more,
            (
                *_level(partials, count, distance, loop, names),
                *doubled.done(),
                Op("copy", (distance,), (twice,), (), (), loc),
            ),
            loc,
        ),
    ]


def _level(partials: Sequence[Held], count: Operand, distance: Operand, loop: For, names: Names) -> Block:
    """The merges of one level, independent of each other."""
    before = Scalars(names, loop.loc)
    pair = before.op("mul", distance, index(2), "pair")
    pairs = before.op("floordiv", before.op("add", count, before.op("sub", distance, index(1))), pair, "pairs")

    def step(one: Held, e: Emit, k: Var) -> None:
        places = Scalars(names, one.loc)
        left = places.op("mul", k, pair, "left")
        right = places.op("add", left, distance, "right")
        e.block += places.done()
        one.merge(e, left, right)

    level = _over(partials, loop, names, index(0), pairs, step)
    size = max(_elements(one) for one in partials)
    if size >= LARGE:  # worth more than to hand it to another worker
        level = replace(level, grain=index(max(1, LARGE * 4 // size)))
    return (*before.done(), level)


def _elements(one: Held) -> int:
    """The elements of a partial result, 0 when they are not known."""
    shapes = [one.extents] if isinstance(one, Copies) else [slots.extents for slots in one.slots]
    sizes = [prod(int(n.value) if isinstance(n, Const) else 0 for n in shape) for shape in shapes if shape]
    return max(sizes, default=0)

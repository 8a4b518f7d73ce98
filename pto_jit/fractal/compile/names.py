# SPDX-License-Identifier: MIT
"""The IR variables that records and statements define and use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pto_jit.codegen.values import Scalar
from pto_jit.fractal.compile.expr import Expr, Known
from pto_jit.fractal.compile.lists import (
    Check,
    Choose,
    Compute,
    Computed,
    Loop,
    Part,
    Read,
    ReadLeaf,
    WriteLeaf,
    expressions,
    sources,
)
from pto_jit.fractal.compile.sequential import variable_of
from pto_jit.ir import walk
from pto_jit.ir.nodes import Var


def defined(item: Any) -> set[str]:
    """The names of the variables that a statement or record defines for those behind it."""
    if isinstance(item, Compute):
        return {item.var.name}
    if isinstance(item, ReadLeaf):
        var = variable_of(item.value)
        return {var.name} if isinstance(var, Var) else set()
    if isinstance(item, (WriteLeaf, Check, Loop)):
        return set()
    return {v.name for v in walk.defs(item)} | {name for b in walk.blocks(item) for name in walk.block_defs(b)}


def uses(item: Any) -> set[str]:
    """The names of the IR variables that a statement or record reads."""
    match item:
        case Loop():
            chains = set() if item.chains is None else _in(item.chains)
            return _in(item.length).union(chains, *(uses(i) for i in item.body))
        case ReadLeaf():
            return _read(item.read) | {x.name for x in item.leaf.extents if isinstance(x, Var)}
        case WriteLeaf():
            value = variable_of(item.value)
            return ({value.name} if isinstance(value, Var) else set()).union(*map(_in, item.index))
        case Compute():
            return _in(item.expr)
        case Check():
            return _in(item.condition.value).union(*map(_in, (*item.loops, *item.numbers, *item.path)))
    found = {v.name for v in walk.uses(item)}
    for block in walk.blocks(item):
        found = found.union(*(uses(i) for i in block))
    return found


def of_initial_states(items: Sequence[Any]) -> list[Any]:
    """What the initial states of a loop are computed by, among the items of its body, in order."""
    starts = [i.read.then for i in items if isinstance(i, ReadLeaf) and i.state and isinstance(i.read, Choose)]
    return makers(set[str]().union(*map(_read, starts)), items)


def makers(names: Iterable[str], items: Sequence[Any]) -> list[Any]:
    """The items that make what has these names, and what that is made of, in order."""
    wanted, found = set(names), list[Any]()
    for item in reversed(items):
        if defined(item) & wanted:
            found.append(item)
            wanted |= uses(item)
    return found[::-1]


def _in(expr: Expr) -> set[str]:
    return {a.var.name for a in expr.atoms() if isinstance(a, Known)}


def _read(read: Read) -> set[str]:
    found = set().union(*map(_in, expressions(read)))
    for source in sources(read):
        if isinstance(source, Computed):
            value = source.value.operand if isinstance(source.value, Scalar) else source.value.var
            if isinstance(value, Var):
                found.add(value.name)
        elif isinstance(source, Part):
            found.add(source.source.var.name)
    return found

# SPDX-License-Identifier: MIT
"""Kernels that are the same program are one, which is launched with other arguments.

An in-core function that is called thirty times, or the scope of a loop that was unrolled, became as many kernels::

    CALL @f(%x_view, %y_view)
    CALL @f_1(%x_view.2, %y_view.2)

and is one, where all that is known of its arguments is the same::

    CALL @f(%x_view, %y_view)
    CALL @f(%x_view.2, %y_view.2)
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter, is_

from pto_jit.errors import NOWHERE, Loc
from pto_jit.ir.nodes import Block, Call, Func, Module, Op, Stmt
from pto_jit.ir.numbering import numbered
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import blocks, map_statements, statements, with_blocks
from pto_jit.lower.groups.fitting import NOTHING, Fitting
from pto_jit.slotted import compared, replace


def share_kernels(module: Module, dims: Mapping[str, tuple[str, int]], fitting: Fitting = NOTHING) -> Module:
    """The module in which calls of the same kernel call one of them.

    dims: the numbers of host code that are extents of its tensors; fitting: along which axes tiles fit any valid
    extent.  Both decide how a kernel is written.
    """
    entry = module.func(module.entry)
    shapes: dict[object, list[Func]] = {}
    for func in module.funcs:
        if func is not entry:
            shapes.setdefault(_shape(func), []).append(func)
    kept: dict[object, Func] = {}
    first: dict[str, str] = {}  # a kernel that is left out, and what stands for it
    placed: dict[str, Func] = {}
    for func in (f for same in shapes.values() if len(same) > 1 for f in same):
        key = _told(func, dims, fitting)
        other = kept.setdefault(key, func)
        known = placed.get(other.name, other)
        merged = known if other is func else _merged(known, func)
        if merged is None:
            kept[key] = func  # of another place: those that follow are rather like it
        elif other is not func:
            first[func.name] = other.name
            placed[other.name] = merged
    if not first:
        return module

    def visit(stmt: Stmt) -> Stmt:
        return replace(stmt, callee=first.get(stmt.callee, stmt.callee)) if isinstance(stmt, Call) else stmt

    called = replace(entry, body=map_statements(entry.body, visit))
    funcs = [placed.get(f.name, f) for f in module.funcs if f is not entry and f.name not in first]
    return replace(module, funcs=(called, *funcs))


def _shape(func: Func) -> object:
    """What kernels that are the same have in common, and is found quickly."""
    ops = tuple(getattr(s, "op", type(s)) for s in statements(func.body))
    return tuple(p.type for p in func.params), ops


def _told(func: Func, dims: Mapping[str, tuple[str, int]], fitting: Fitting) -> object:
    """A kernel with its variables numbered in the order of their appearance, and what is known of them."""
    it = numbered(func)
    places = [dims.get(p.name) for p in func.params]
    known = [None if place is None else (it.numbers.get(place[0], place[0]), place[1]) for place in places]
    tiles = [fitting.get(name) for name, kind in zip(it.numbers, it.types, strict=True) if isinstance(kind, TileType)]
    return it.key, tuple(known), tuple(tiles)


def _merged(func: Func, other: Func) -> Func | None:
    """The kernel with the places that both have in common; None where they stand in different places."""
    body = _placed(func.body, other.body)
    if body is None:
        return None
    loc = _common(func.loc, other.loc)
    loc = func.loc if loc is NOWHERE else loc
    return func if body is func.body and loc is func.loc else replace(func, body=body, loc=loc)


def _placed(block: Block, other: Block) -> Block | None:
    """A block with the places that it has in common with another; None where they stand in different places."""
    out: list[Stmt] = []
    for a, b in zip(block, other, strict=True):
        loc = _common(a.loc, b.loc)
        if loc is NOWHERE and a.loc != NOWHERE:
            return None
        stmt = a
        if type(a) is not Op or a.regions:
            inside: list[Block] = []
            for mine, theirs in zip(blocks(a), blocks(b), strict=True):
                placed = _placed(mine, theirs)
                if placed is None:
                    return None
                inside.append(placed)
            stmt = with_blocks(a, tuple(inside))
        out.append(stmt if loc is stmt.loc else replace(stmt, loc=loc))
    return block if all(map(is_, out, block)) else tuple(out)


def _common(a: Loc, b: Loc) -> Loc:
    """A place without the callers that only one of two has; `NOWHERE` where they are different places."""
    if a is b or a == b:
        return a
    if _without_caller(a) != _without_caller(b):
        return NOWHERE
    if a.caller is None:
        return a
    caller = NOWHERE if b.caller is None else _common(a.caller, b.caller)
    return a if caller is a.caller else replace(a, caller=None if caller is NOWHERE else caller)


_without_caller = attrgetter(*(name for name in compared(Loc) if name != "caller"))

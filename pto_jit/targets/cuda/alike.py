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

from pto_jit.errors import NOWHERE, Loc
from pto_jit.ir.nodes import Block, Call, Func, Module, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import blocks, map_statements, rename, statements, variables, with_blocks
from pto_jit.lower.fitting import NOTHING, Fitting
from pto_jit.slotted import replace


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
    order: dict[str, str] = {}
    tiles: list[tuple[bool, ...] | None] = []
    for var in (*func.params, *variables(func.body)):
        if var.name not in order:
            order[var.name] = f"v{len(order)}"
            if isinstance(var.type, TileType):
                tiles.append(fitting.get(var.name))
    known = [(order.get(dims[p.name][0], dims[p.name][0]), dims[p.name][1]) if p.name in dims else None
             for p in func.params]  # fmt: skip
    params = tuple(Var(order[p.name], p.type) for p in func.params)
    return replace(func, name="", params=params, body=rename(func.body, order)), tuple(known), tuple(tiles)


def _merged(func: Func, other: Func) -> Func | None:
    """The kernel with the places that both have in common; None where they stand in different places."""
    pairs = [(a.loc, b.loc) for a, b in zip(statements(func.body), statements(other.body), strict=True)]
    if any(_common(a, b) is NOWHERE for a, b in pairs if a != NOWHERE):
        return None
    loc = _common(func.loc, other.loc)
    return replace(func, body=_placed(func.body, other.body), loc=func.loc if loc is NOWHERE else loc)


def _placed(block: Block, other: Block) -> Block:
    """A block with the places that it has in common with another."""
    out: list[Stmt] = []
    for a, b in zip(block, other, strict=True):
        inside = tuple(_placed(mine, theirs) for mine, theirs in zip(blocks(a), blocks(b), strict=True))
        stmt = with_blocks(a, inside) if inside else a
        out.append(stmt if a.loc == b.loc else replace(stmt, loc=_common(a.loc, b.loc)))
    return tuple(out)


def _common(a: Loc, b: Loc) -> Loc:
    """A place without the callers that only one of two has; `NOWHERE` where they are different places."""
    if a == b:
        return a
    if replace(a, caller=None) != replace(b, caller=None):
        return NOWHERE
    both = a.caller is not None and b.caller is not None
    caller = _common(a.caller, b.caller) if both else NOWHERE  # type: ignore[arg-type]
    return replace(a, caller=None if caller is NOWHERE else caller)

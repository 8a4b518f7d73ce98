# SPDX-License-Identifier: MIT
"""Arithmetic that the host does, as no loop of a kernel changes it: on numbers of f64, which cores do not have, and on
extents of tiles, which it checks against what fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from pto_jit.dtypes import f64
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import (
    block_defs,
    blocks,
    def_counts,
    rewrite_block,
    rewrite_func,
    statements,
    substitute,
    with_blocks,
)
from pto_jit.lower.outwards import is_host
from pto_jit.slotted import replace

_ARITHMETIC = frozenset("add sub mul min max floordiv mod copy".split())
_SIZED = {"load": 1, "full": 1, "broadcast_to": 1, "reshape": 1, "arange": 2, "tile_slice": 1}
"""Operations that say extents, with the place of the first one; of `load` behind the offsets."""


def numbers_before_loops(func: Func) -> Func:
    """Move such operations, and the extents they are made of, in front of the loops and branches they stand in.

    Python floats are numbers of f64: of `x * (1.0 - s)` in a loop the host computes `1.0 - s`, and the kernel is given
    the result as f32, once rounded.  None of these operations fails, so it does no harm where a loop has no iterations.
    """
    extents = _extents(func)
    if not extents and not any(isinstance(s, Op) and _is_wide(s) for s in statements(func.body)):
        return func
    assigned = def_counts(func.body)
    body, some = _out_of_all(func, assigned, extents)
    func = replace(func, body=body)
    return _out_of_some(func, assigned, extents) if some else func


def _extents(func: Func) -> set[str]:
    """The computed extents of tiles that nothing in the kernel bounds, and what they are computed of."""
    makers = {r.name: s for s in statements(func.body) if isinstance(s, Op) for r in s.results}

    def unbounded(operand: Operand) -> set[str] | None:
        """The names of what a number is computed of; None where that is bounded, or not the host's."""
        op = makers.get(operand.name) if isinstance(operand, Var) else None
        if op is None or op.op == "dim":
            return set()
        if op.op not in _ARITHMETIC or (op.op in ("min", "mod") and any(isinstance(a, Const) for a in op.args)):
            return None
        parts = [unbounded(a) for a in op.args]
        return None if None in parts else {op.results[0].name}.union(*(part or () for part in parts))

    out: set[str] = set()
    for s in statements(func.body):
        first = _SIZED.get(s.op) if isinstance(s, Op) else None
        if first is not None:
            assert isinstance(s, Op)
            skipped = s.args[0].type.rank if s.op == "load" else 0  # type: ignore[union-attr]
            for operand in s.args[first + skipped :]:
                out |= unbounded(operand) or set()
    return out


def _is_wanted(op: Op, assigned: Counter[str], inside: Set[str], extents: Set[str]) -> bool:
    return (
        len(op.results) == 1
        and (op.op == "dim" or _is_wide(op) or op.results[0].name in extents)
        and assigned[op.results[0].name] == 1
        and not any(isinstance(a, Var) and a.name in inside for a in op.args)
    )


def _out_of_all(func: Func, assigned: Counter[str], extents: Set[str]) -> tuple[Block, bool]:
    """What is made of nothing that stands in loops or branches, before the outermost ones, and once if it is the same;
    whether more is left."""
    out: list[Stmt] = []
    some = False
    fixed = {p.name for p in func.params if not assigned[p.name]}
    known: dict[object, Var] = {}
    alike: dict[str, Operand] = {}
    for stmt in func.body:
        if not isinstance(stmt, (For, While, If, Scope)):
            out.append(stmt)
            continue
        inside = set(block_defs((stmt,)))
        moved: dict[int, Op] = {}
        for inner in statements((stmt,)):
            mine = isinstance(inner, Op) and any(r.name in extents for r in inner.results)
            if not isinstance(inner, Op) or not (inner.op == "dim" or mine or _is_wide(inner)):
                continue
            if not _is_wanted(inner, assigned, inside, extents):
                some = True
                continue
            result = inner.results[0]
            inside.discard(result.name)
            moved[id(inner)] = inner
            args = tuple(alike.get(a.name, a) if isinstance(a, Var) else a for a in inner.args)
            if all(isinstance(a, Const) or a.name in fixed for a in args):
                fixed.add(result.name)
                first = known.setdefault((inner.op, args, inner.attrs, result.type), result)
                if first is not result:
                    alike[result.name] = first
        out += [op for op in moved.values() if op.results[0].name not in alike]
        out += rewrite_block((stmt,), lambda s: () if id(s) in moved else None) if moved else (stmt,)  # noqa: B023
    return substitute(tuple(out), alike), some


def _out_of_some(func: Func, assigned: Counter[str], extents: Set[str]) -> Func:
    """Out of the loops and branches that they are made of nothing in, one after the other."""

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, (For, While, If, Scope)):
            return None
        inside = block_defs((stmt,))
        before: list[Op] = []
        rest: list[Block] = []
        for block in blocks(stmt):
            kept: list[Stmt] = []
            for inner in block:
                if isinstance(inner, Op) and _is_wanted(inner, assigned, inside, extents):
                    inside = inside - {inner.results[0].name}
                    before.append(inner)
                else:
                    kept.append(inner)
            rest.append(tuple(kept))
        return (*before, with_blocks(stmt, tuple(rest))) if before else None

    return rewrite_func(func, visit, plain=False)


def _is_wide(op: Op) -> bool:
    """Whether an operation on numbers reads or makes one of f64."""
    if len(op.results) != 1 or not isinstance(op.results[0].type, ScalarType) or op.op == "assert":
        return False
    wide = op.results[0].type.dtype == f64
    for a in op.args:
        if not isinstance(a.type, ScalarType):
            return False
        wide = wide or a.type.dtype == f64
    return wide and is_host(op)

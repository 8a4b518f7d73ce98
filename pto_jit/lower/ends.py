# SPDX-License-Identifier: MIT
"""Loops that look for the least element, or else for the greatest.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64, %low: f32, %high: f32) -> (f32, f32) {
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %e = sgetelem %x[%i] : f32
        %less = slt %e, %low : bool_
        %greater = sgt %e, %high : bool_
        %h = sselect %greater, %e, %high : f32
        %low = sselect %less, %e, %low : f32
        %high = sselect %less, %high, %h : f32
      ENDFOR
      return %low, %high
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64, %low: f32, %high: f32) -> (f32, f32) {
      %ordered = sle %low, %high : bool_
      IF %ordered
        FOR %i:idx, 0:idx, %n:idx, 1:idx
          %e = sgetelem %x[%i] : f32
          %less = slt %e, %low : bool_
          %greater = sgt %e, %high : bool_
          %h = sselect %greater, %e, %high : f32
          %low = sselect %less, %e, %low : f32
          %high = scopy %h : f32
        ENDFOR
      ELSE
        FOR %i.1:idx, 0:idx, %n:idx, 1:idx
          %e.1 = sgetelem %x[%i.1] : f32
          %less.1 = slt %e.1, %low : bool_
          %greater.1 = sgt %e.1, %high : bool_
          %h.1 = sselect %greater.1, %e.1, %high : f32
          %low = sselect %less.1, %e.1, %low : f32
          %high = sselect %less.1, %high, %h.1 : f32
        ENDFOR
      ENDIF
      return %low, %high
    }

``if x[i] < low: ... elif x[i] > high: ...`` (`if_conversion` has made selections of it): no element is both as long as
the least is not above the greatest, and once it is not it stays so.  Then the two are looked for independently.
"""

from __future__ import annotations

from collections.abc import Iterator

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, For, Func, If, Module, Op, Stmt, Var
from pto_jit.ir.walk import block_defs, map_funcs, rename, rewrite_func, use_counts
from pto_jit.lower.extrema import Carried, carried_in, sought
from pto_jit.lower.names import BOOL, Names
from pto_jit.slotted import replace


def separate_ends(module: Module) -> Module:
    """Write loops with such selections twice, for ends that are in order and for any."""

    def transform(func: Func) -> Func:
        names = Names(func)
        return rewrite_func(func, lambda stmt: _versions(stmt, func, names), plain=False)

    return map_funcs(module, transform)


def _versions(loop: Stmt, func: Func, names: Names) -> Block | None:
    if not isinstance(loop, For) or loop.kind != "sequential" or loop.reductions:
        return None
    carried = carried_in(loop)
    found = list(_guarded(carried)) if carried is not None else []
    if carried is None or len({(low, high) for _, low, high in found}) != 1:
        return None
    _, low, high = found[0]
    free = {id(op) for op, _, _ in found}
    body = tuple(Op("copy", s.results, s.args[2:], loc=s.loc) if isinstance(s, Op) and id(s) in free else s
                 for s in loop.body)  # fmt: skip
    inside = carried_in(replace(loop, body=body))
    if inside is None or not {low, high} <= {e.var for e in sought(inside)}:
        return None  # they do not move away from each other, or there is more that waits
    ordered = names.fresh("ordered", BOOL)
    test = Op("le", (ordered,), (low, high), loc=loop.loc)
    return test, If(ordered, (replace(loop, body=body),), (_renamed(loop, func, names),), loc=loop.loc)


def _guarded(carried: Carried) -> Iterator[tuple[Op, Var, Var]]:
    """The selections that keep a variable where the other end has moved, with the variables of the least and of the
    greatest."""
    for var in carried.carried:
        op = carried.last.get(var.name)
        inner = carried.maker(op.args[2]) if op is not None and op.op == "select" else None
        if op is None or inner is None or carried.was(op.args[1]) != var:
            continue
        outer, own = carried.end(op), carried.end(inner)
        if outer is None or own is None or (inner.op == "select" and carried.was(inner.args[2]) != var):
            continue
        if outer.element != own.element or outer.var == own.var or outer.greatest is own.greatest:
            continue
        if not (outer.strict or own.strict):
            continue
        low, high = (own, outer) if outer.greatest else (outer, own)
        yield op, low.var, high.var


def _renamed(loop: For, func: Func, names: Names) -> For:
    """A loop with names of its own for what is its own."""
    made, inside, everywhere = block_defs(loop.body), use_counts(loop.body), use_counts(func.body)
    lasting = {v.name for v in free_vars(loop.body)} | {n for n in made if everywhere[n] > inside[n]}
    typed = {v.name: v.type for s in loop.body if isinstance(s, Op) for v in s.results}
    own = {n: names.fresh(n, typed[n]).name for n in sorted(made - lasting)}
    own[loop.var.name] = names.fresh(loop.var.name, loop.var.type).name
    return replace(loop, var=Var(own[loop.var.name], loop.var.type), body=rename(loop.body, own))

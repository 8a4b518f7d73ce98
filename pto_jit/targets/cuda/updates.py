# SPDX-License-Identifier: MIT
"""Sequential loops over elements that connect their iterations by updates alone, whose order makes no difference, as
parallel loops with atomic updates: histograms, counts, largest elements at places that memory tells.

Sums of integers wrap, so that any order gives the same bits, and so are maxima and minima the same in any order.  Sums
of floats keep their order.

Before::

    SCOPE @f_incore_0
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %t0 = sgetelem %x[%i] : i64
        %t1 = sgetelem %h[%t0] : i32
        %t2 = sadd %t1, 1:i32 : i32
        ssetelem %t2, %h[%t0]

After::

    SCOPE @f_incore_0
      FOR %i:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
        %t0 = sgetelem %x[%i] : i64
        %t2 = tfull 1:i32, [1] : !pto.tile<1xi32>
        tatomic_add %t2, %h[%t0]
"""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.ir.nodes import Block, Const, For, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import blocks, def_counts, rewrite_func, statements, use_counts, uses, vars_made
from pto_jit.lower.names import Names, index
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cuda.loops import PARALLEL, touches_tiles
from pto_jit.targets.cuda.slices import views_of

_RULES = {"add": "atomic_add", "max": "atomic_max", "min": "atomic_min"}
ATOMIC = {"atomic_add": "AtomicSum", "atomic_max": "AtomicMaximum", "atomic_min": "AtomicMinimum"}
"""What does an operation atomically, in `pto_places.cuh`."""


@frozen
class _Update:
    """One of an element: the operation that does it atomically, what the element is combined with, and the statements
    that do it now."""

    name: str
    value: Operand
    old: tuple[Op, Op, Op]


def with_atomic_updates(func: Func, share: Callable[[Func], Func]) -> Func:
    """A flat function whose loops `share` makes parallel as far as their iterations are independent, and those that
    would be without such updates."""
    updates = _updates(func)
    if not updates:
        return func
    names = Names(func)
    marks: dict[str, _Update] = {}
    gone: set[int] = set()
    put: dict[int, Op] = {}
    for update in updates:
        place = update.old[2]
        mark = names.fresh("update", update.value.type)
        marks[mark.name] = update
        gone.update(map(id, update.old))
        put[id(place)] = Op("copy", (mark,), (update.value,), (), (), place.loc)
    marked = rewrite_func(func, lambda s: (put[id(s)],) if id(s) in put else () if id(s) in gone else None)
    shared = share(marked)
    parallel = {v.name for s in statements(shared.body) if isinstance(s, For) and s.kind in PARALLEL
                for v in vars_made(statements(s.body))} & marks.keys()  # fmt: skip
    if parallel != marks.keys():  # some stay as they are, and what they connect
        return func

    def visit(stmt: Stmt) -> Block | None:
        update = marks.get(stmt.results[0].name) if isinstance(stmt, Op) and stmt.results else None
        return None if update is None else _atomic(update, names)

    return rewrite_func(shared, visit)


def _atomic(update: _Update, names: Names) -> Block:
    _, combine, store = update.old
    value, tensor, *places = store.args
    ones = (1,) * len(places)
    assert isinstance(value.type, ScalarType)
    tile = names.fresh(combine.results[0].name, TileType(value.type.dtype, ones))
    full = Op("full", (tile,), (update.value, *map(index, ones)), (), (), combine.loc)
    return full, Op(update.name, (), (tile, tensor, *places), (), (), store.loc)


def with_updates_by_numbers(func: Func) -> Func:
    """A kernel whose only tiles are numbers that update single elements, without these: the updates take the number.
    Then a thread has an iteration, not a block or a warp."""
    counts = def_counts(func.body)
    tiled = [s for s in statements(func.body) if isinstance(s, Op) and touches_tiles(s)]
    numbers = {s.results[0].name: s.args[0] for s in tiled
               if s.op == "full" and all(e == index(1) for e in s.args[1:])
               and all(counts[v.name] <= 1 for v in (*s.results, *uses(s)))}  # fmt: skip

    def number_of(op: Op) -> Operand | None:
        """The number that an operation makes a tile of, or that it updates by."""
        tile = op.results[0] if op.op == "full" else op.args[0] if op.op in ATOMIC else None
        return numbers.get(tile.name) if isinstance(tile, Var) else None

    if not numbers or any(number_of(s) is None for s in tiled):
        return func

    def visit(stmt: Stmt) -> Stmt | Block | None:
        number = number_of(stmt) if isinstance(stmt, Op) else None
        if not isinstance(stmt, Op) or number is None:
            return None
        return () if stmt.op == "full" else replace(stmt, args=(number, *stmt.args[1:]))

    return rewrite_func(func, visit)


def _updates(func: Func) -> list[_Update]:
    """The updates of elements of tensors that are touched in no other way in a sequential loop."""
    found: list[_Update] = []
    views = views_of(func.body)
    counts, used = def_counts(func.body), use_counts(func.body)

    def look(block: Block, nest: For | None) -> None:
        for s in block:
            inside = nest or (s if isinstance(s, For) and s.kind == "sequential" else None)
            if nest is None and inside is not None:
                found.extend(_of_nest(inside, views, counts, used))
            elif nest is None and not (isinstance(s, For) and s.kind in PARALLEL):
                for inner in blocks(s):
                    look(inner, None)

    look(func.body, None)
    return found


def _of_nest(
    nest: For, views: dict[str, str], counts: dict[str, int], used: dict[str, int]
) -> list[_Update]:  # fmt: skip
    flat = [s for s in statements(nest.body) if isinstance(s, Op)]
    makers = {r.name: s for s in flat for r in s.results if counts[r.name] == 1}
    touched: dict[str, int] = {}
    for s in flat:
        for v in uses(s):
            name = _root(v.name, views)
            touched[name] = touched.get(name, 0) + 1
    written = {_root(s.args[1].name, views) for s in flat if s.op == "setelem"}  # type: ignore[union-attr]
    out: list[_Update] = []
    for store in flat:
        value = store.args[0] if store.op == "setelem" else None
        combine = makers.get(value.name) if isinstance(value, Var) and used[value.name] == 1 else None
        if combine is None or combine.op not in _RULES or len(combine.args) != 2:
            continue
        dtype, kept = combine.results[0].type.dtype, store.args[1].type.dtype  # type: ignore[union-attr]
        if dtype != kept or (combine.op == "add" and dtype.kind not in "iu"):
            continue
        for k in range(2):
            old = combine.args[k]
            read = makers.get(old.name) if isinstance(old, Var) and used[old.name] == 1 else None
            if read is None or read.op != "getelem" or read.args[0] != store.args[1] or (
                touched[_root(read.args[0].name, views)] != 2  # type: ignore[union-attr]
            ):
                continue
            if all(_same(a, b, makers, written, views) for a, b in zip(read.args[1:], store.args[2:], strict=True)):
                out.append(_Update(_RULES[combine.op], combine.args[1 - k], (read, combine, store)))
                break
    return out


def _root(name: str, views: dict[str, str]) -> str:
    while name in views:
        name = views[name]
    return name


def _same(a: Operand, b: Operand, makers: dict[str, Op], written: set[str], views: dict[str, str]) -> bool:
    """Whether two operands are the same number in an iteration."""
    if a == b:
        return True
    if isinstance(a, Const) or isinstance(b, Const):
        return False
    one, other = makers.get(a.name), makers.get(b.name)
    if one is None or other is None or (one.op, one.attrs) != (other.op, other.attrs) or one.regions:
        return False
    if one.op == "getelem" and _root(one.args[0].name, views) in written:  # type: ignore[union-attr]
        return False
    return len(one.args) == len(other.args) and all(
        _same(x, y, makers, written, views) for x, y in zip(one.args, other.args, strict=True)
    )

# SPDX-License-Identifier: MIT
"""Which statements share loops, and in which form each group is written.

* *product*: a sum of products of two reads with one index of its own each: a matrix product (`products.py`);
  elementwise statements over the same indices follow it on its tile.
* *rows*: statements that share their outer indices, with reductions along memory: tiles over the inner ones
  (`rows.py`).
* *scan*: a reduction over all that stands before an index (`scans.py`);
* *loops*: everything else, one element at a time (`elements.py`); the compiler vectorises and exchanges these.

Statements share the loops of their leading indices when these have equal ranges and every tensor that one of them
writes is accessed by all of them at exactly these indices, so that no iteration touches another one's elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pto_jit.comprehensions.forms import symbolic
from pto_jit.comprehensions.inference import Inferred
from pto_jit.comprehensions.lowering.products import Product, product_of
from pto_jit.comprehensions.lowering.scans import Scan, scan_of
from pto_jit.comprehensions.nodes import Apply, Expression, Name, Pad, Read, Select, children, walk
from pto_jit.comprehensions.program import Analysis, Memory
from pto_jit.comprehensions.symbolic import Expr
from pto_jit.slotted import mutable


@mutable(eq=False)
class Group:
    """Statements that share the loops of their first `outer` left indices."""

    form: Literal["product", "rows", "scan", "loops"]
    outer: int
    statements: list[Inferred]
    product: Product | None = None
    scan: Scan | None = None


def groups(analysis: Analysis, device: bool = False) -> list[Group]:
    """The statements in groups, in order; `device`: tiles have two axes at most."""
    found: list[Group] = []
    for inferred in _needed(analysis):
        product = product_of(inferred, analysis.typing(inferred.scope))
        if product is not None:
            found.append(Group("product", len(inferred.statement.indices), [inferred], product))
            continue
        scan = scan_of(inferred)
        if scan is not None:
            found.append(Group("scan", 0, [inferred], None, scan))
            continue
        last = found[-1] if found else None
        depth = _shared(last, inferred, analysis.memory) if last is not None else 0
        if last is not None and depth:
            last.statements.append(inferred)
            last.outer = depth
            continue
        found.append(Group("loops", len(inferred.statement.indices), [inferred]))
    for group in found:
        wide = device and any(len(inner_axes(m, group.outer) or ()) > 2 for m in group.statements)
        if group.form == "loops" and not wide and _as_rows(group):
            group.form = "rows"
    return found


def _needed(analysis: Analysis) -> list[Inferred]:
    """The statements without those that write a local tensor which nothing behind them reads."""
    needed: list[Inferred] = []
    read: set[str] = set()
    for m in reversed(analysis.statements):
        target = m.scope.tensors[m.statement.target]
        if target.role != "local" or target.name in read:
            needed.append(m)
            read |= {m.scope.tensors[e.tensor].name for e in walk(m.statement.value) if isinstance(e, Read)}
    return needed[::-1]


def _shared(group: Group, new: Inferred, memory: Mapping[str, Memory]) -> int:
    """How many leading indices the group and the statement can share; 0: none."""
    if group.form == "scan":
        return 0
    members = [*group.statements, new]
    if group.form == "product":
        first = group.statements[0]
        count = len(first.statement.indices)
        whole = _ranges(new) == _ranges(first) and not new.reduced and not new.guarded
        assert group.product is not None
        tiles = whole and _tiled(new, new.statement.indices, count) and _independent(members, count, memory)
        return count if tiles and not _loops_only(new) else 0
    most = min(len(m.statement.indices) for m in members)
    most = min(most, group.outer)
    ranges = [_ranges(m) for m in members]
    for depth in range(most, 0, -1):
        if any(r[:depth] != ranges[0][:depth] for r in ranges):
            continue
        if _independent(members, depth, memory):
            return depth
    return 0


def _ranges(i: Inferred) -> list[tuple[Expr, Expr]]:
    return [i.ranges[index] for index in i.statement.indices]


def _independent(members: list[Inferred], depth: int, memory: Mapping[str, Memory]) -> bool:
    """Whether all accesses of what a member writes stay in the iteration of the shared loops that writes it."""
    if memory and not all(
        _apart(a, b, depth, memory) for k, a in enumerate(members) for b in members[k + 1 :]
    ):  # fmt: skip
        return False
    lows: dict[str, set[object]] = {}
    for m in members:
        target = m.scope.tensors[m.statement.target]
        lows.setdefault(target.name, set()).add(target.lows)
    for m in members:
        outer = m.statement.indices[:depth]
        for e in walk(m.statement.value):
            if not isinstance(e, Read) or (tensor := m.scope.tensors[e.tensor]).name not in lows:
                continue
            lows[tensor.name].add(tensor.lows)
            if tuple(s.name if isinstance(s, Name) else "" for s in e.subscripts[:depth]) != outer:
                return False
    return all(len(starts) == 1 for starts in lows.values())  # the result of a call starts anew at 0


def _apart(first: Inferred, second: Inferred, depth: int, memory: Mapping[str, Memory]) -> bool:
    """Whether two statements may share loops although arrays of other names may be the ones they write.

    What is written twice counts as different arrays; arrays that overlap without being one are the caller's promise,
    as for every parallel loop.
    """
    written = {first.statement.target, second.statement.target}
    for e in walk(second.statement.value):
        if isinstance(e, Read) and e.tensor not in written and _one(first, first.statement.target, e, memory):
            return False  # reads what the first one has written
    target = second.statement.target
    outer = first.statement.indices[:depth]
    for e in walk(first.statement.value):
        if not isinstance(e, Read) or e.tensor in written or not _one(second, target, e, memory):
            continue
        here = tuple(s.name if isinstance(s, Name) else "" for s in e.subscripts[:depth])
        if memory[e.tensor].base == memory[target].base or here != outer:
            return False  # the second one writes what a later iteration of the first reads
    return True


def _one(m: Inferred, target: str, e: Read, memory: Mapping[str, Memory]) -> bool:
    """Whether a read may be of the array that is written."""
    a, b = memory.get(target), memory.get(e.tensor)
    if a is None or b is None:
        return False
    if a.base == b.base:
        return True
    info, other = m.scope.tensors[target], m.scope.tensors[e.tensor]
    return not (a.own or b.own) and (info.rank, info.dtype) == (other.rank, other.dtype)


# -- tiles --------------------------------------------------------------------------------------------------------


def _as_rows(group: Group) -> bool:
    """Whether the group is worth tiles, and every statement of it can be written with them."""
    if group.outer == 0 or not any(m.reduced for m in group.statements):
        return False
    along = False
    for m in group.statements:
        outer = m.statement.indices[: group.outer]
        if m.guarded or _loops_only(m) or not _tiled(m, outer, group.outer):
            return False
        if m.reduced and not all(_along(e, m, outer) for e in _reads(m.statement.value) if e.subscripts):
            return False
        along = along or bool(m.reduced)
    return along


def inner_axes(m: Inferred, outer: int) -> tuple[str, ...] | None:
    """The inner indices of a statement in the order in which all of its reads have them; None: there is none."""
    inner = [i for i in m.ranges if i not in m.statement.indices[:outer]]
    best: list[str] = list(m.statement.indices[outer:])
    for e in _reads(m.statement.value):
        axes = [n for s in e.subscripts for n in _names(s) if n in inner]
        if len(axes) > len(best):
            best = axes
    if sorted(best) != sorted(inner):
        return None
    orders = [[n for s in e.subscripts for n in _names(s) if n in inner] for e in _reads(m.statement.value)]
    orders.append(list(m.statement.indices[outer:]))
    return tuple(best) if all(_ordered(o, best) for o in orders) else None


def _ordered(part: list[str], whole: list[str]) -> bool:
    places = [whole.index(p) for p in part]
    return places == sorted(set(places))


def _names(e: Expression) -> list[str]:
    return [n.name for n in walk(e) if isinstance(n, Name)]


def _reads(e: Expression) -> list[Read]:
    """The reads of an expression, not those in subscripts."""
    if isinstance(e, Read):
        return [e]
    return [r for child in children(e) for r in _reads(child)]


def _tiled(m: Inferred, outer: tuple[str, ...], depth: int) -> bool:
    """Whether every read is a rectangle over the inner indices: each of them alone, with factor 1, in a subscript."""
    product = depth == len(m.statement.indices) and not m.reduced
    inner = {i for i in m.ranges if product or i not in outer}
    if not product and inner_axes(m, depth) is None:
        return False
    covered: set[str] = set()
    for e in _reads(m.statement.value):
        seen: set[str] = set()
        for subscript in e.subscripts:
            form = symbolic(subscript, m.scope)
            here = (form.names() | set(_names(subscript))) & inner
            if not here:
                continue
            if len(here) > 1 or here & seen or not form.known or _factor(form, here) != 1:
                return False
            if sum(bool(form_names & here) for form_names in map(_monomial_names, form.terms)) != 1:
                return False
            seen |= here
        covered |= seen
    complete = covered == inner if m.reduced else True
    return complete and all(n not in inner for n in _values(m.statement.value))


def _factor(form: Expr, here: frozenset[str] | set[str]) -> int:
    """What the index `here` is multiplied with where it stands alone; 0: it stands in divisions and the like only."""
    return next((f for m, f in form.terms if len(m) == 1 and getattr(m[0], "name", None) in here), 0)


def _monomial_names(term: tuple) -> frozenset[str]:  # type: ignore[type-arg]
    return Expr((term,)).names()


def _values(e: Expression) -> list[str]:
    """Names used as values, not in subscripts."""
    if isinstance(e, Read):
        return []
    if isinstance(e, Name):
        return [e.name]
    return [n for child in children(e) for n in _values(child)]


def _loops_only(m: Inferred) -> bool:
    """Whether something in the statement is done element by element."""
    return any(
        isinstance(e, Pad) or (isinstance(e, Select) and m.guarded) or (isinstance(e, Apply) and e.function is not None)
        for e in walk(m.statement.value)
    )


def _along(e: Read, m: Inferred, outer: tuple[str, ...]) -> bool:
    """Whether the last subscript moves with an inner index, or the read does not depend on any."""
    names = {n for s in e.subscripts for n in _names(s)}
    inner = {i for i in m.ranges if i not in outer}
    if not names & inner:
        return True
    last = set(_names(e.subscripts[-1]))
    return bool(last & inner) and not last & set(outer)

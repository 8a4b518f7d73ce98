# SPDX-License-Identifier: MIT
"""Running extremes and running sums: variables that a loop carries and vectors can compute.

``m = max(m, x[i]); y[i] = m`` waits in every iteration for the one before.  But where the order of operands is all that
counts, and not how they are grouped, several iterations have theirs together in as many steps as their number has bits
(W. D. Hillis and G. L. Steele, "Data parallel algorithms", 1986): extremes, with the first of equal ones and one NaN
for all, sums of integers, which wrap, and operations on bits are the same to the last bit.

``if x[i] > m: m = x[i]`` is such an extreme, too: a selection (`if_conversion`), which no NaN wins.

Sums and products of floats stay in the order of the iterations, one after the other; where what is added takes long to
compute, as `exp` does, vectors of it are worth that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pto_jit.dtypes import bool_
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, For, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import defs, operands, rename, substitute, uses
from pto_jit.lower import ordered
from pto_jit.lower.cost import DEAR
from pto_jit.lower.ordered import Sum, is_in_order, ordered_sums
from pto_jit.slotted import frozen

PREFIX = ordered.PREFIX
"""In the body of `scanned`: what an operation makes of the elements up to this iteration's, and what was before it.

`prefix(e) {of, op, turned}` combines the variable `of` with `e` of this iteration and those before it; `turned`: `e` is
the first operand.  With a comparison (`gt`) `e` replaces what it compares so with.
"""
BEFORE = "before"
"""`before(p)`: a prefix without this iteration's element."""

_ORDERED = frozenset(["max", "min", "maximum", "minimum"])
OF_INTEGERS = frozenset(["add", "and", "or", "xor"])


_SELECTED = {"gt": "max", "ge": "max", "lt": "min", "le": "min"}
_TURNED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}


@frozen
class Scan:
    """A variable that a loop combines with one element per iteration; `update`: the operation that does, `kind`: its
    name, or the comparison by which a float is selected instead of the variable."""

    var: Var
    update: Op
    element: Operand
    turned: bool
    kind: str

    @property
    def in_order(self) -> bool:
        """Whether iterations are combined one after the other."""
        return is_in_order(self.kind, self.var.type)


Root = Callable[[str], str]
"""The tensor that a tensor is a view of, by name."""


def scans(loop: For, root: Root) -> tuple[Scan, ...] | tuple[Sum, ...]:
    """The variables that a loop carries, if vectors can compute all of them: ordered sums, or those of an innermost
    loop that the body uses; else none."""
    sums, _ = ordered_sums(loop)
    if sums:
        return sums
    if any(not isinstance(s, Op) for s in loop.body):
        return ()
    body = [s for s in loop.body if isinstance(s, Op)]
    made = Counter(v.name for s in body for v in defs(s))
    carried = [v for v in free_vars(loop.body) if v.name in made]
    found = [_scan(body, var, made) for var in carried]
    names = {v.name for v in carried}
    known = tuple(s for s in found if s is not None and _is_worth_it(s, _sliced(body, s, made, names, root)))
    return known if len(known) == len(found) else ()


def _is_worth_it(scan: Scan, element: list[Op]) -> bool:
    """element: the operations that make it; none where vectors cannot compute them."""
    return any(op.op in DEAR for op in element) if scan.in_order else bool(element)


def _scan(body: list[Op], var: Var, made: Counter[str]) -> Scan | None:
    """The scan of a variable, which `var` is carried by; it is assigned once, at the end of a chain of copies."""
    if made[var.name] != 1 or not isinstance(var.type, ScalarType):
        return None
    makers = {r.name: s for s in body for r in s.results if made[r.name] == 1}
    last = makers.get(var.name)
    while last is not None and _is_copy(last):
        source = last.args[0]
        if source == var:  # it stays what it is
            return None
        last = makers.get(source.name) if isinstance(source, Var) else None
    if last is None or not (_combines(last) or last.op == "select"):
        return None
    same = {var.name}  # names of what the variable was before
    for op in body[: _place(body, makers[var.name])]:
        if _is_copy(op) and isinstance(op.args[0], Var) and op.args[0].name in same:
            same.add(op.results[0].name)
    mine = [isinstance(a, Var) and a.name in same for a in last.args]
    test, kind = (None, last.op) if last.op != "select" else _selected(last, same, makers)
    if kind is None or mine.count(True) != 1:
        return None
    element = last.args[mine.index(False)] if test is None else last.args[1]
    makes = makers.get(element.name) if isinstance(element, Var) else None
    scan = Scan(var, last, element, mine[0] is False, kind)
    if scan.in_order:
        return scan if makes is not None and not (scan.turned and kind == "sub") else None
    others = sum(1 for s in body for a in operands(s) if isinstance(a, Var) and a.name in (*same, last.results[0].name)
                 and s is not last and s is not test and not _is_copy(s))  # fmt: skip
    if makes is None or not others:  # the optimiser knows the result, or takes the sum for itself
        return None
    return scan


def _selected(select: Op, same: set[str], makers: dict[str, Op]) -> tuple[Op | None, str | None]:
    """The comparison that selects an element instead of what the variable was, and its name as one of the element with
    the variable; for integers that of the extreme."""
    cond, element, kept = select.args
    test = makers.get(cond.name) if isinstance(cond, Var) else None
    if test is None or test.op not in _SELECTED or not (isinstance(kept, Var) and kept.name in same):
        return None, None
    first, second = (isinstance(a, Var) and a.name in same for a in test.args)
    if first is second or not isinstance(kept.type, ScalarType) or kept.type.dtype == bool_:
        return None, None
    if _source(test.args[1 if first else 0], makers) != _source(element, makers):
        return None, None
    sign = _TURNED[test.op] if first else test.op
    return test, sign if kept.type.dtype.kind == "f" else _SELECTED[sign]


def _source(operand: Operand, makers: dict[str, Op]) -> Operand:
    """What a value is a copy of."""
    op = makers.get(operand.name) if isinstance(operand, Var) else None
    return _source(op.args[0], makers) if op is not None and _is_copy(op) else operand


def _is_copy(op: Op) -> bool:
    """Whether an operation changes nothing."""
    return op.op == "copy" or (op.op == "cast" and op.args[0].type == op.results[0].type)


def _combines(op: Op) -> bool:
    """Whether the grouping of such operations does not matter, to the last bit, or they are kept in order."""
    kind = op.results[0].type if op.results else None
    if not isinstance(kind, ScalarType) or len(op.args) != 2 or any(a.type != kind for a in op.args):
        return False
    if is_in_order(op.op, kind):
        return True
    return op.op in _ORDERED | (OF_INTEGERS if kind.dtype.kind in "iu" else frozenset()) and kind.dtype != bool_


def _sliced(body: list[Op], scan: Scan, made: Counter[str], carried: set[str], root: Root) -> list[Op]:
    """The operations that make the element; none where they need what is carried, or read what was written before."""
    assert isinstance(scan.element, Var)
    needed, out, read = {scan.element.name}, list[Op](), set[str]()  # read: tensors, from here on
    for op in reversed(body[: _place(body, scan.update)]):
        if op.op == "setelem" and isinstance(op.args[1], Var) and root(op.args[1].name) in read:
            return []
        if not any(r.name in needed for r in op.results):
            continue
        if any(made[r.name] != 1 for r in op.results):
            return []
        read.update(root(v.name) for v in uses(op) if isinstance(v.type, TensorType))
        needed.update(v.name for v in uses(op))
        out.append(op)
    return [] if needed & carried else out[::-1]


def _place(body: list[Op], op: Op) -> int:
    return next(k for k, other in enumerate(body) if other is op)


def scanned(loop: For, found: tuple[Scan, ...] | tuple[Sum, ...], root: Root) -> Block:
    """The body with the variables as values of the iteration, computed first if it uses them: nothing is carried."""
    if isinstance(found[0], Sum):
        return ordered_sums(loop)[1]
    assert all(isinstance(s, Scan) for s in found)
    return _first(loop, tuple(s for s in found if isinstance(s, Scan)), root)


def _first(loop: For, found: tuple[Scan, ...], root: Root) -> Block:
    body = [s for s in loop.body if isinstance(s, Op)]
    made = Counter(v.name for s in body for v in defs(s))
    first: list[Op] = []
    for scan in found:
        slice_ = _sliced(body, scan, made, {s.var.name for s in found}, root)
        first += [op for op in slice_ if not any(op is other for other in first)]
        after = scan.update.results[0]
        attrs = (("of", scan.var.name), ("op", scan.kind), ("turned", scan.turned))
        before = Var(f"{scan.var.name}@before", scan.var.type)
        first.append(Op(PREFIX, (after,), (scan.element,), attrs, loc=scan.update.loc))
        first.append(Op(BEFORE, (before,), (after,), (("of", scan.var.name),), loc=scan.update.loc))
    taken = [*first, *(s.update for s in found)]
    return (*first, *_renamed([op for op in body if not any(op is t for t in taken)], found))


def _renamed(rest: list[Op], found: tuple[Scan, ...]) -> Block:
    """What is left of a body: the variables are what they were before until they are assigned, then the prefix."""
    names = {s.var.name: Var(f"{s.var.name}@before", s.var.type) for s in found}
    out: list[Stmt] = []
    for stmt in rest:
        (new,) = substitute((stmt,), names)
        made = [v.name for v in defs(stmt) if v.name in names]
        if made:
            (new,) = rename((new,), {name: f"{name}@after" for name in made})
            names.update({name: Var(f"{name}@after", names[name].type) for name in made})
        out.append(new)
    return tuple(out)

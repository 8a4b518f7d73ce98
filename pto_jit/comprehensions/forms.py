# SPDX-License-Identifier: MIT
"""Subscripts as integer expressions, and inequalities solved for one index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pto_jit.comprehensions.nodes import (
    Apply,
    Binary,
    Cast,
    Expression,
    Extent,
    Name,
    Number,
    Read,
    Unary,
    names_in,
    walk,
)
from pto_jit.comprehensions.spelling import spelled
from pto_jit.comprehensions.symbolic import (
    ZERO,
    Atom,
    Div,
    Expr,
    Extreme,
    Sym,
    Unknown,
    at_least_zero,
    ceil_div,
    constant,
    extreme,
    floor_div,
    name,
    names_of,
    of,
    positive,
)
from pto_jit.comprehensions.typing import Scope

Box = Mapping[str, tuple[Expr, Expr]]  # index: lowest and highest value
Bound = tuple[Literal["low", "high"], Expr]  # both inclusive


class NotLinear(Exception):
    """The bound of an expression over ranges of indices is not an expression that can be written."""


def symbolic(e: Expression, scope: Scope) -> Expr:
    """The integer expression of a subscript or a range bound; what is none becomes an `Unknown` in it.

    Operands are taken as mathematical integers.
    """
    if isinstance(e, Number) and isinstance(e.value, int):
        return constant(e.value)
    if isinstance(e, Name):
        return _name(e, scope)
    if isinstance(e, Extent):
        tensor = scope.tensors.get(e.tensor)
        if tensor is not None and tensor.extents is not None and e.axis < tensor.rank:
            return tensor.extents[e.axis]
        return _unknown(e, scope)
    if isinstance(e, Unary) and e.op == "-":
        return -symbolic(e.operand, scope)
    if isinstance(e, Cast) and e.dtype.is_integer and e.dtype.bits >= 32:
        inner = symbolic(e.operand, scope)
        return inner if inner.known and not any(isinstance(n, Read) for n in walk(e)) else _unknown(e, scope)
    if isinstance(e, Apply) and e.function is None and e.name in ("minimum", "maximum"):
        return extreme("min" if e.name == "minimum" else "max", [symbolic(a, scope) for a in e.arguments])
    if isinstance(e, Binary):
        return _binary(e, scope)
    return _unknown(e, scope)


def _name(e: Name, scope: Scope) -> Expr:
    if e.name in scope.sizes:
        return scope.sizes[e.name]
    value = scope.host.get(e.name)
    if isinstance(value, int):
        return constant(value)
    if e.name in scope.scalars:
        return name(scope.scalars[e.name].text, signed=True)
    return name(e.name, signed=True) if scope.is_index(e.name) else _unknown(e, scope)


def _binary(e: Binary, scope: Scope) -> Expr:
    left, right = symbolic(e.left, scope), symbolic(e.right, scope)
    if e.op in "+-":
        return left + right if e.op == "+" else left - right
    if e.op == "*":
        return left * right if left.known and right.known else _unknown_product(e, left, right, scope)
    divisor = right.value
    if e.op == "//" and divisor and left.known:
        return floor_div(left, divisor)
    if e.op == "%" and divisor and left.known and not any(scope.is_index(n) for n in left.names()):
        return left - floor_div(left, divisor) * divisor
    return _unknown(e, scope)


def _unknown_product(e: Binary, left: Expr, right: Expr, scope: Scope) -> Expr:
    if left.value is not None or right.value is not None:
        return left * right
    return _unknown(e, scope)


def _unknown(e: Expression, scope: Scope) -> Expr:
    indices = frozenset(n.name for n in names_in(e) if scope.is_index(n.name))
    return of(Unknown(spelled(e), indices))


def least(e: Expr, box: Box) -> Expr:
    """The least value over all values of the indices in `box`, or an expression that is not above it.

    Exact when each index occurs once.  Raises NotLinear.
    """
    return _end(e, box, True)


def _end(e: Expr, box: Box, lowest: bool) -> Expr:
    total = ZERO
    for monomial, factor in e.terms:
        moved = [a for a in monomial if any(n in box for n in names_of(a))]
        if not moved:
            total = total + Expr(((monomial, factor),))
            continue
        others = [a for a in monomial if a not in moved]
        if len(moved) > 1 or any(isinstance(a, Unknown) or (isinstance(a, Sym) and a.signed) for a in others):
            raise NotLinear
        end = _atom_end(moved[0], box, lowest == (factor > 0)) * factor
        for atom in others:
            end = end * of(atom)
        total = total + end
    return total


def _atom_end(atom: Atom, box: Box, lowest: bool) -> Expr:
    if isinstance(atom, Sym):
        return box[atom.name][0 if lowest else 1]
    if isinstance(atom, Div):
        return floor_div(_end(atom.inner, box, lowest), atom.divisor)
    if isinstance(atom, Extreme):
        return extreme(atom.kind, [_end(o, box, lowest) for o in atom.options])
    raise NotLinear


def solve(e: Expr, index: str, box: Box) -> list[Bound] | None:
    """The bounds on `index` that `e >= 0`, for all values of the indices in `box`, is equivalent to.

    None: it cannot be solved for the index.  `e` depends on no other index.
    """
    holding = [(m, f) for m, f in e.terms if any(index in names_of(a) for a in m)]
    if len(holding) != 1 or len(holding[0][0]) != 1:
        return None
    (monomial, factor), atom = holding[0], holding[0][0][0]
    try:
        rest = least(e - Expr(((monomial, factor),)), box)
    except NotLinear:
        return None
    # factor * atom >= -rest
    limit = ceil_div(-rest, factor) if factor > 0 else floor_div(rest, -factor)
    return _limited(atom, "low" if factor > 0 else "high", limit, index, box)


def _limited(atom: Atom, side: Literal["low", "high"], limit: Expr, index: str, box: Box) -> list[Bound] | None:
    """`atom >= limit` ("low") or `atom <= limit` ("high") as bounds of the index."""
    if isinstance(atom, Sym):
        return [(side, limit)]
    if isinstance(atom, Div):
        # x // d >= q: x >= d q;  x // d <= q: x <= d q + d - 1
        scaled = limit * atom.divisor
        inner = atom.inner - scaled if side == "low" else scaled + (atom.divisor - 1) - atom.inner
        return solve(inner, index, box)
    if isinstance(atom, Extreme):
        return _extreme(atom, side, limit, index, box)
    return None


def _extreme(
    atom: Extreme, side: Literal["low", "high"], limit: Expr, index: str, box: Box
) -> list[Bound] | None:
    all_needed = (atom.kind == "min") == (side == "low")
    found: list[list[Bound]] = []
    for option in atom.options:
        gap = option - limit if side == "low" else limit - option
        if index not in option.names():
            if all_needed:
                continue  # says nothing of the index; what is left when all are solved is looked at again
            try:
                if at_least_zero(positive(least(gap, box))):
                    return []  # one is enough, and one always holds
            except NotLinear:
                pass
            return None
        bounds = solve(gap, index, box)
        if bounds is None:
            return None
        found.append(bounds)
    if all_needed:
        return [b for bounds in found for b in bounds]
    if len(found) != len(atom.options) or any(len(b) != 1 for b in found):
        return None
    one = found[0][0][0]
    if any(b[0][0] != one for b in found):
        return None
    return [(one, extreme("min" if one == "low" else "max", [b[0][1] for b in found]))]




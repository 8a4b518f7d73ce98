# SPDX-License-Identifier: MIT
"""Sums of products of two reads as matrix products.

In `O(b, i, j) +=! A(b, i, k) * B(b, k, j)` an index of A and O alone gives the rows, one of B and O alone the columns,
and a reduced one that stands bare in both is contracted.  All other indices are loops around: left ones parallel,
reduced ones accumulate into the tile.  So a convolution is one product per position of its window and output row, and
where these are chosen so that rows and columns are the last axes of the output, they run along memory.
"""

from __future__ import annotations

from pto_jit.comprehensions.forms import symbolic
from pto_jit.comprehensions.inference import Inferred
from pto_jit.comprehensions.nodes import Binary, Name, Read, names_in
from pto_jit.comprehensions.symbolic import Sym, of
from pto_jit.comprehensions.typing import Typing
from pto_jit.dtypes import DType
from pto_jit.slotted import frozen

_FEW = 4  # a contraction of fewer products, known to be so short, is done element by element


@frozen
class Operand:
    """A read with the axes of its two tile indices."""

    read: Read
    own: int
    contracted: int


@frozen
class Product:
    """rows, columns and contracted: indices; left, right: what has the rows, what has the columns."""

    rows: str
    columns: str
    contracted: str
    left: Operand
    right: Operand

    @property
    def tile(self) -> tuple[str, str, str]:
        return self.rows, self.columns, self.contracted


def product_of(m: Inferred, typing: Typing) -> Product | None:
    """The product that a statement is, or None."""
    s = m.statement
    value = s.value
    if s.op != "sum" or not isinstance(value, Binary) or value.op != "*":
        return None
    a, b = value.left, value.right
    if not isinstance(a, Read) or not isinstance(b, Read) or a.tensor == s.target or b.tensor == s.target:
        return None
    kinds = typing.of(a), typing.of(b), typing.of(value)
    if kinds[0] != kinds[1] or not isinstance(kinds[0], DType) or not kinds[0].is_float:
        return None
    axes_a, axes_b = _axes(a, m), _axes(b, m)
    contracted = [
        i for i in m.reduced
        if _bare(a, axes_a.get(i)) and _bare(b, axes_b.get(i)) and not _short(m, i)
    ]  # fmt: skip
    used_a, used_b = _used(a), _used(b)
    of_a = [i for i in s.indices if i in axes_a and i not in used_b]
    of_b = [i for i in s.indices if i in axes_b and i not in used_a]
    if not contracted or not of_a or not of_b:
        return None
    # Along memory: the contracted index that stands last in both, the output's last axes.
    k = max(contracted, key=lambda i: (axes_a[i] == len(a.subscripts) - 1) + (axes_b[i] == len(b.subscripts) - 1))
    first, second = of_a[-1], of_b[-1]
    left, right = Operand(a, axes_a[first], axes_a[k]), Operand(b, axes_b[second], axes_b[k])
    if s.indices.index(first) < s.indices.index(second):
        return Product(first, second, k, left, right)
    return Product(second, first, k, right, left)


def _axes(e: Read, m: Inferred) -> dict[str, int]:
    """The indices that stand in exactly one subscript, there with factor 1, beside others or not; with the axis."""
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    for axis, subscript in enumerate(e.subscripts):
        for n in {n.name for n in names_in(subscript)} & m.ranges.keys():
            counts[n] = counts.get(n, 0) + 1
        form = symbolic(subscript, m.scope)
        if not form.known:
            continue
        for monomial, factor in form.terms:
            if len(monomial) == 1 and isinstance(monomial[0], Sym) and factor == 1 and monomial[0].name in m.ranges:
                rest = form - of(monomial[0])
                if monomial[0].name not in rest.names():
                    found[monomial[0].name] = axis
    return {i: axis for i, axis in found.items() if counts[i] == 1}


def _bare(e: Read, axis: int | None) -> bool:
    return axis is not None and isinstance(e.subscripts[axis], Name)


def _used(e: Read) -> set[str]:
    return {n.name for s in e.subscripts for n in names_in(s)}


def _short(m: Inferred, index: str) -> bool:
    low, high = m.ranges[index]
    length = (high - low).value
    return length is not None and length < _FEW

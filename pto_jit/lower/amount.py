# SPDX-License-Identifier: MIT
"""Amounts that are not negative: sums of products of operands with whole coefficients, as in `30000 + 60 n + 2 n m`.

Costs are added up in this form and become arithmetic once, at the end: a softmax of rows is one multiplication and one
addition in front of its loop, however many operations it has.  What is too large to matter is `CAP`, and no
intermediate value leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping

from pto_jit.ir.nodes import Const, Operand, Var
from pto_jit.lower.names import Scalars, index

CAP = 1 << 40
FACTOR_BITS = 20  # an operand that is counted is below 2**20 (more make no difference)
_PRODUCT_BITS, _TERM_BITS = 62, 56  # of a product of operands; of one with its coefficient, so that 64 can be added

Product = tuple[Var, ...]  # of operands, by name; () is 1


class Amount:
    """A sum of products; `terms` gives the coefficient of each, which is positive."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Product, int]) -> None:
        self.terms = {product: min(factor, CAP) for product, factor in terms.items() if factor > 0}

    @classmethod
    def of(cls, operand: Operand | int) -> Amount:
        """A number, or an operand that is not negative."""
        if isinstance(operand, Var):
            return cls({(operand,): 1})
        return cls({(): int(operand.value) if isinstance(operand, Const) else operand})

    @property
    def number(self) -> int | None:
        """The value, when no operand is in it."""
        return self.terms.get((), 0) if all(product == () for product in self.terms) else None

    def __add__(self, other: Amount) -> Amount:
        terms = dict(self.terms)
        for product, factor in other.terms.items():
            terms[product] = terms.get(product, 0) + factor
        return Amount(terms)

    def __mul__(self, other: Amount) -> Amount:
        terms: dict[Product, int] = {}
        for mine, factor in self.terms.items():
            for theirs, by in other.terms.items():
                product = tuple(sorted((*mine, *theirs), key=lambda var: var.name))
                terms[product] = terms.get(product, 0) + factor * by
        return Amount(terms)

    def scaled(self, by: int) -> Amount:
        """So many times this."""
        return Amount({product: factor * by for product, factor in self.terms.items()})

    def covers(self, other: Amount) -> bool:
        """Whether this is at least as much as `other` wherever every operand is 1 or more."""
        left = dict(self.terms)
        for product, factor in other.terms.items():
            for mine in left:
                if left[mine] >= factor and _contains(mine, product):
                    left[mine] -= factor
                    break
            else:
                return False
        return True

    def operand(self, out: Scalars, bits: Mapping[str, int]) -> Operand:
        """The value, at most `CAP`, by arithmetic that goes to `out`; an operand has `FACTOR_BITS` if not in `bits`."""
        if self.number is not None:
            return index(self.number)
        total: Operand = index(self.terms.get((), 0))
        most = self.terms.get((), 0)
        for product, factor in self.terms.items():
            if product == ():
                continue
            value: Operand = product[0]
            size = bits.get(product[0].name, FACTOR_BITS)
            for var in product[1:]:
                more = bits.get(var.name, FACTOR_BITS)
                value, size = _below(value, size, _PRODUCT_BITS - more, out)
                value, size = out.op("mul", value, var), size + more
            value, size = _below(value, size, _TERM_BITS - factor.bit_length(), out)
            total = out.op("add", out.op("mul", value, index(factor)), total)
            most += factor << size
        return total if most <= CAP else out.op("min", total, index(CAP))


def _below(value: Operand, size: int, limit: int, out: Scalars) -> tuple[Operand, int]:
    """`value`, which has `size` bits, or the largest number of `limit` bits when it is more."""
    return (value, size) if size <= limit else (out.op("min", value, index((1 << limit) - 1)), limit)


def _contains(product: Product, part: Product) -> bool:
    rest = list(product)
    for var in part:
        if var not in rest:
            return False
        rest.remove(var)
    return True

# SPDX-License-Identifier: MIT
"""Integer expressions over size symbols and loop indices: sums of products, floor division, minimum and maximum.

An `Expr` is a polynomial with integer coefficients over *atoms*: names, floor divisions by a positive constant,
minima and maxima of expressions.  It is kept in a canonical form, so that equal expressions of the kinds that range
inference makes are equal objects: like terms are collected, a division keeps a constant between 0 and its divisor and
hands the rest outside, common factors are cancelled, operands of a minimum that another one provably undercuts are
dropped.  `at_least_zero` proves an inequality for all non-negative sizes, or does not know.

>>> I = name("I")
>>> print(floor_div(I + 1, 2), constant(11) - I, minimum([floor_div(I, 2), floor_div(I + 1, 2)]))
(I + 1)//2 11 - I I//2
>>> floor_div(I + 122, 123).evaluate(I=247)
3
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from pto_jit.slotted import frozen


@frozen
class Sym:
    """A size, a host integer or an index. `signed`: it may be negative."""

    name: str
    signed: bool = False


@frozen
class Div:
    """`inner // divisor`, rounding towards negative infinity; the divisor is a constant above 1."""

    inner: Expr
    divisor: int


@frozen
class Extreme:
    """The minimum or maximum of at least two expressions."""

    kind: Literal["min", "max"]
    options: tuple[Expr, ...]


@frozen
class Unknown:
    """A value that is not a linear form of sizes and indices (an element of a tensor, a remainder).

    `text` is how the source spells it, `names` are the indices that it depends on.
    """

    text: str
    names: frozenset[str]


Atom = Sym | Div | Extreme | Unknown
Monomial = tuple[Atom, ...]


class Expr:
    """A canonical integer expression; immutable, hashable, with Python's arithmetic.

    `evaluate(**sizes)` gives its value as an int; `str` is Python text.
    """

    __slots__ = ("_hash", "_text", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash: int | None = None
        self._text: str | None = None

    # -- value ----------------------------------------------------------------------------------------------------

    def evaluate(self, sizes: Mapping[str, int] | None = None, /, **more: int) -> int:
        """The value where every name has the given one; KeyError names one that is missing."""
        values = {**(sizes or {}), **more}
        total = 0
        for monomial, factor in self.terms:
            for atom in monomial:
                factor *= _evaluate(atom, values)
            total += factor
        return total

    @property
    def value(self) -> int | None:
        """The number that this is, None when it is none."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    def names(self) -> frozenset[str]:
        """All names it depends on."""
        found: set[str] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                found |= names_of(atom)
        return frozenset(found)

    @property
    def known(self) -> bool:
        """Whether no part of it is an `Unknown`."""
        return not any(isinstance(a, Unknown) for a in self.atoms())

    def atoms(self) -> Iterable[Atom]:
        """Every atom, those inside others too."""
        for monomial, _ in self.terms:
            for atom in monomial:
                yield atom
                if isinstance(atom, Div):
                    yield from atom.inner.atoms()
                elif isinstance(atom, Extreme):
                    for option in atom.options:
                        yield from option.atoms()

    def replace(self, find: Callable[[str], Expr | None]) -> Expr:
        """Names replaced by what `find` gives for them (None: kept)."""
        total = ZERO
        for monomial, factor in self.terms:
            product = constant(factor)
            for atom in monomial:
                product = product * _replace(atom, find)
            total = total + product
        return total

    # -- arithmetic -----------------------------------------------------------------------------------------------

    def __add__(self, other: Expr | int) -> Expr:
        other = _expr(other)
        if not other.terms:
            return self
        collected = dict(self.terms)
        for monomial, factor in other.terms:
            collected[monomial] = collected.get(monomial, 0) + factor
        return _from(collected)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr(tuple((m, -f) for m, f in self.terms))

    def __sub__(self, other: Expr | int) -> Expr:
        return self + (-_expr(other))

    def __rsub__(self, other: int) -> Expr:
        return -self + other

    def __mul__(self, other: Expr | int) -> Expr:
        other = _expr(other)
        collected: dict[Monomial, int] = {}
        for m1, f1 in self.terms:
            for m2, f2 in other.terms:
                product = tuple(sorted(m1 + m2, key=_order)) if m1 and m2 else m1 or m2
                collected[product] = collected.get(product, 0) + f1 * f2
        return _from(collected)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.value == other
        return isinstance(other, Expr) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.terms)
        return self._hash

    def __reduce__(self) -> Any:
        return Expr, (self.terms,)

    # -- text -----------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        if self._text is None:
            self._text = _text(self)
        return self._text

    __repr__ = __str__


def constant(value: int) -> Expr:
    return Expr((((), int(value)),)) if value else ZERO


def name(text: str, signed: bool = False) -> Expr:
    return of(Sym(text, signed))


def of(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def _expr(value: Expr | int) -> Expr:
    return value if isinstance(value, Expr) else constant(value)


def _from(collected: dict[Monomial, int]) -> Expr:
    kept = [(m, f) for m, f in collected.items() if f]
    if len(kept) > 1:
        kept.sort(key=lambda item: [_order(a) for a in item[0]])
    return Expr(tuple(kept))


def _order(atom: Atom) -> tuple[int, str]:
    if isinstance(atom, Sym):
        return 0, atom.name
    if isinstance(atom, Div):
        return 1, f"{atom.inner}//{atom.divisor}"
    if isinstance(atom, Extreme):
        return 2, f"{atom.kind}{atom.options}"
    return 3, atom.text


ZERO = Expr(())
ONE = constant(1)


def names_of(atom: Atom) -> frozenset[str]:
    """The names that an atom depends on."""
    if isinstance(atom, Sym):
        return frozenset((atom.name,))
    if isinstance(atom, Div):
        return atom.inner.names()
    if isinstance(atom, Extreme):
        return frozenset().union(*(o.names() for o in atom.options))
    return atom.names


def _evaluate(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, Sym):
        return values[atom.name]
    if isinstance(atom, Div):
        return atom.inner.evaluate(values) // atom.divisor
    if isinstance(atom, Extreme):
        return (min if atom.kind == "min" else max)(o.evaluate(values) for o in atom.options)
    raise KeyError(atom.text)


def _replace(atom: Atom, find: Callable[[str], Expr | None]) -> Expr:
    if isinstance(atom, Sym):
        found = find(atom.name)
        return of(atom) if found is None else found
    if isinstance(atom, Div):
        return floor_div(atom.inner.replace(find), atom.divisor)
    if isinstance(atom, Extreme):
        return extreme(atom.kind, [o.replace(find) for o in atom.options])
    return of(atom)


# -- making -------------------------------------------------------------------------------------------------------


def floor_div(a: Expr, divisor: int) -> Expr:
    """`a // divisor`, the divisor a constant other than 0."""
    if divisor < 0:
        a, divisor = -a, -divisor
    if divisor == 1:
        return a
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, factor in a.terms:
        # What the divisor divides comes out; of other coefficients only whole multiples, so that they stay small.
        if factor % divisor == 0:
            whole[monomial] = factor // divisor
        elif not monomial:
            whole[monomial], rest[monomial] = divmod(factor, divisor)
        else:
            rest[monomial] = factor
    offset = rest.pop((), 0)
    if not rest:
        return _from(whole)
    common = math.gcd(divisor, *rest.values())
    if common > 1:  # floor((g x + r) / (g d)) = floor((x + floor(r / g)) / d)
        inner = _from({**{m: f // common for m, f in rest.items()}, (): offset // common})
        return _from(whole) + floor_div(inner, divisor // common)
    if len(rest) == 1:
        ((monomial, factor),) = rest.items()
        only = monomial[0] if len(monomial) == 1 and factor == 1 else None
        if isinstance(only, Extreme):  # rounding keeps order
            return _from(whole) + extreme(only.kind, [floor_div(o + offset, divisor) for o in only.options])
    if len(rest) == 1 and not offset:
        ((monomial, factor),) = rest.items()
        if factor == 1 and len(monomial) == 1 and isinstance(monomial[0], Div):  # (x // a) // b = x // (a b)
            return _from(whole) + floor_div(monomial[0].inner, monomial[0].divisor * divisor)
    return _from(whole) + of(Div(_from({**rest, (): offset}), divisor))


def ceil_div(a: Expr, divisor: int) -> Expr:
    """`a / divisor` rounded up, the divisor a constant above 0."""
    return floor_div(a + (divisor - 1), divisor)


def minimum(options: Iterable[Expr]) -> Expr:
    return extreme("min", options)


def maximum(options: Iterable[Expr]) -> Expr:
    return extreme("max", options)


def extreme(kind: Literal["min", "max"], options: Iterable[Expr]) -> Expr:
    """The minimum or maximum, without what another option decides for all sizes."""
    flat: list[Expr] = []
    for option in options:
        only = option.terms[0] if len(option.terms) == 1 else None
        inner = only[0][0] if only and only[1] == 1 and len(only[0]) == 1 else None
        for part in inner.options if isinstance(inner, Extreme) and inner.kind == kind else (option,):
            if part not in flat:
                flat.append(part)
    kept: list[Expr] = []
    for k, option in enumerate(flat):
        decided = False
        for j, other in enumerate(flat):
            if j == k:
                continue
            low, high = (other, option) if kind == "min" else (option, other)
            # Of two that prove each other (equal, spelled differently) the first stays.
            if at_least_zero(high - low) and not (j > k and at_least_zero(low - high)):
                decided = True
                break
        if not decided:
            kept.append(option)
    if len(kept) == 1:
        return kept[0]
    return of(Extreme(kind, tuple(sorted(kept, key=str))))


# -- proving ------------------------------------------------------------------------------------------------------

_EFFORT = 64  # case distinctions in one proof


def at_least_zero(e: Expr) -> bool:
    """Whether `e >= 0` is certain for all sizes >= 0 and all signed names; False also means that it is not known."""
    return _proven(e, [_EFFORT])


def positive(e: Expr) -> Expr:
    """The expression with every size one larger: what is proven of it holds for all sizes above 0."""
    signed = {a.name for a in e.atoms() if isinstance(a, Sym) and a.signed}
    return e.replace(lambda text: None if text in signed else name(text) + 1)


def _proven(e: Expr, effort: list[int]) -> bool:
    """By the least value of each atom: divisions are bounded by fractions, extremes are looked into."""
    effort[0] -= 1
    if effort[0] < 0:
        return False
    for monomial, factor in e.terms:
        if len(monomial) != 1:
            if monomial and (factor < 0 or not all(_non_negative(a) for a in monomial)):
                return False
            continue
        (atom,) = monomial
        if isinstance(atom, Extreme):
            rest = e - Expr(((monomial, factor),))
            cases = (rest + option * factor for option in atom.options)
            # The maximum is at least each of its options; the minimum is one of them, any.
            return (any if (atom.kind == "max") == (factor > 0) else all)(_proven(c, effort) for c in cases)
        if isinstance(atom, Div):
            # d (x // d) lies between x - d + 1 and x.
            bound = atom.inner - (atom.divisor - 1) if factor > 0 else atom.inner
            return _proven((e - Expr(((monomial, factor),))) * atom.divisor + bound * factor, effort)
    return all(f >= 0 and all(_non_negative(a) for a in m) for m, f in e.terms)


def _non_negative(atom: Atom) -> bool:
    if isinstance(atom, Sym):
        return not atom.signed
    if isinstance(atom, Div):
        return at_least_zero(atom.inner)
    return isinstance(atom, Extreme) and at_least_zero(of(atom))


# -- text ---------------------------------------------------------------------------------------------------------


def _text(e: Expr) -> str:
    """Positive terms first, then negative ones, the constant last unless it is the only positive part."""
    if e.value is not None:
        return str(e.value)
    terms = [(m, f) for m, f in e.terms if m]
    offset = dict(e.terms).get((), 0)
    divisions = [m for m, f in terms if len(m) == 1 and isinstance(m[0], Div)]
    if offset and len(divisions) == 1 and dict(terms)[divisions[0]] == 1:
        inside: Any = divisions[0][0]  # (I + 1)//2 - 1 is written (I - 1)//2
        written = f"{_atom_text(inside.inner + offset * inside.divisor)}//{inside.divisor}"
        others = [(m, f) for m, f in terms if m != divisions[0]]
        return _sum([(1, written)] + [_term(m, f) for m, f in others], 0)
    negative = next((m for m, f in terms if f < 0), ())
    divides = len(negative) == 1 and any(isinstance(a, Div) for a in negative)
    return _sum([_term(m, f) for m, f in terms], offset, divides)


def _sum(parts: list[tuple[int, str]], offset: int, divides: bool = False) -> str:
    """`divides`: the first negative part is a division."""
    ordered = [p for p in parts if p[0] > 0]
    if offset and (offset < 0 or ordered):
        ordered += [p for p in parts if p[0] < 0] + [(1 if offset > 0 else -1, str(abs(offset)))]
    else:
        ordered += [(1, str(offset))] if offset else []
        ordered += [p for p in parts if p[0] < 0]
    sign, first = ordered[0]
    if sign < 0:  # -(J//3) is not -J//3
        first = f"-({first})" if divides else f"-{first}"
    return first + "".join(f" {'+' if sign > 0 else '-'} {part}" for sign, part in ordered[1:])


def _term(monomial: Monomial, factor: int) -> tuple[int, str]:
    # In a product a division is put in brackets: a*(b//c) is not a*b//c.
    product = "*".join(
        f"({of(a)})" if isinstance(a, Div) and (abs(factor) != 1 or len(monomial) > 1) else _atom(a) for a in monomial
    )
    return (1 if factor > 0 else -1), product if abs(factor) == 1 else f"{abs(factor)}*{product}"


def _atom(atom: Atom) -> str:
    if isinstance(atom, Sym):
        return atom.name
    if isinstance(atom, Div):
        return f"{_atom_text(atom.inner)}//{atom.divisor}"
    if isinstance(atom, Extreme):
        return f"{atom.kind}({', '.join(map(str, atom.options))})"
    return atom.text


def _atom_text(e: Expr) -> str:
    """An operand of a division: in brackets unless it is a single name or call."""
    if len(e.terms) == 1:
        ((monomial, factor),) = e.terms
        if factor == 1 and len(monomial) == 1 and not isinstance(monomial[0], (Div, Unknown)):
            return str(e)
    return f"({e})"

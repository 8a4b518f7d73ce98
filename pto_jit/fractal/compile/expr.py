# SPDX-License-Identifier: MIT
"""Index expressions of a nest: sums of integer multiples of loop variables and of what is known when a loop begins.

They are kept apart from IR until the nest is complete, so that they can be read (are they affine? what do they depend
on?), moved to other loops, and written in the loops of whatever schedule was chosen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pto_jit.codegen.emit import I64, index
from pto_jit.ir.nodes import Block, Const, If, Op, Operand, Var
from pto_jit.slotted import field, frozen

if TYPE_CHECKING:
    from pto_jit.codegen.emit import Emitter

T = TypeVar("T")


@frozen
class Symbol:
    """The variable of a loop of the nest, or of a dimension of a list; numbers are unique in a compilation."""

    name: str
    number: int

    def __str__(self) -> str:
        return self.name


@frozen
class Known:
    """A run-time integer that was computed before: an i64 variable of the IR."""

    var: Var

    def __str__(self) -> str:
        return f"%{self.var.name}"


@frozen
class Fetch:
    """An element of an integer array: offsets of lists, indices of a gather.

    fixed: nothing writes the array any more, so that an element that was read once need not be read again.
    """

    array: Var
    at: tuple[Expr, ...]
    fixed: bool = True

    def __str__(self) -> str:
        return f"%{self.array.name}[{', '.join(map(str, self.at))}]"


@frozen
class Binary:
    """An operation that is not linear: "mul", "floordiv", "mod", "min", "max"."""

    op: str
    left: Expr
    right: Expr

    def __str__(self) -> str:
        sign = {"mul": "*", "floordiv": "//", "mod": "%"}.get(self.op)
        if sign is None:
            return f"{self.op}({self.left}, {self.right})"
        return f"({_factor(self.left)} {sign} {_factor(self.right)})"


def _factor(expr: Expr) -> str:
    """An expression as an operand of a product or quotient: sums and negative numbers in parentheses."""
    single = not expr.const and len(expr.terms) == 1 and expr.terms[0][1] == 1
    return str(expr) if single or (not expr.terms and expr.const >= 0) else f"({expr})"


@frozen
class Pick:
    """One of two, by a condition; only that one is computed."""

    condition: Condition
    then: Expr
    otherwise: Expr

    def __str__(self) -> str:
        return f"({self.then} if {self.condition} else {self.otherwise})"


Atom = Symbol | Known | Fetch | Binary | Pick


@frozen
class Expr:
    """`const` plus the sum of coefficient * atom; `terms` in a canonical order, without zeros."""

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    def __add__(self, other: Expr | int) -> Expr:
        if isinstance(other, int):
            return Expr(self.terms, self.const + other)
        if not other.terms:
            return Expr(self.terms, self.const + other.const)
        found = dict(self.terms)
        for atom, times in other.terms:
            found[atom] = found.get(atom, 0) + times
        return _canonical(found, self.const + other.const)

    def __neg__(self) -> Expr:
        return self * -1

    def __sub__(self, other: Expr | int) -> Expr:
        return self + -other

    def __mul__(self, other: Expr | int) -> Expr:
        if isinstance(other, Expr):
            if other.terms and self.terms:
                return of(Binary("mul", self, other))
            if self.terms:
                return self * other.const
            return other * self.const
        return _canonical({a: c * other for a, c in self.terms}, self.const * other)

    @property
    def constant(self) -> int | None:
        return None if self.terms else self.const

    def symbols(self) -> set[Symbol]:
        """All loop variables in it, at any depth."""
        return {a for a in self.atoms() if isinstance(a, Symbol)}

    def atoms(self) -> Iterator[Atom]:
        for atom, _ in self.terms:
            yield atom
            if isinstance(atom, Fetch):
                for part in atom.at:
                    yield from part.atoms()
            elif isinstance(atom, Binary):
                yield from atom.left.atoms()
                yield from atom.right.atoms()
            elif isinstance(atom, Pick):
                for part in (atom.condition.value, atom.then, atom.otherwise):
                    yield from part.atoms()

    def coefficient(self, symbol: Symbol) -> int | None:
        """How often the symbol counts; None when it stands inside something that is not linear."""
        linear = 0
        for atom, times in self.terms:
            if atom == symbol:
                linear = times
            elif not isinstance(atom, Symbol) and symbol in Expr(((atom, 1),)).symbols():
                return None
        return linear

    def replace(self, mapping: Mapping[Symbol, Expr]) -> Expr:
        """With expressions for symbols."""
        if not mapping or not self.terms:
            return self
        total = Expr((), self.const)
        for atom, times in self.terms:
            total = total + _replaced(atom, mapping) * times
        return total

    def __str__(self) -> str:
        parts: list[str] = []
        for atom, times in self.terms:
            sign = "-" if times < 0 else "+"
            text = str(atom) if abs(times) == 1 else f"{abs(times)}*{atom}"
            parts.append(f"{sign} {text}" if parts else text if sign == "+" else f"-{text}")
        if self.const or not parts:
            parts.append(f"{'-' if self.const < 0 else '+'} {abs(self.const)}" if parts else str(self.const))
        return " ".join(parts)


def _canonical(terms: Mapping[Atom, int], const: int) -> Expr:
    kept = [(a, c) for a, c in terms.items() if c]
    if len(kept) > 1:
        keys = {a: (type(a).__name__, str(a)) for a, _ in kept}
        alike = len(set(keys.values())) < len(keys)  # symbols of one name, by their numbers
        kept.sort(key=lambda item: (*keys[item[0]], repr(item[0]) if alike else ""))
    return Expr(tuple(kept), const)


def _replaced(atom: Atom, mapping: Mapping[Symbol, Expr]) -> Expr:
    if isinstance(atom, Symbol):
        return mapping.get(atom, of(atom))
    if isinstance(atom, Fetch):
        return of(Fetch(atom.array, tuple(e.replace(mapping) for e in atom.at), atom.fixed))
    if isinstance(atom, Binary):
        return binary(atom.op, atom.left.replace(mapping), atom.right.replace(mapping))
    if isinstance(atom, Pick):
        return pick(atom.condition.replace(mapping), atom.then.replace(mapping), atom.otherwise.replace(mapping))
    return of(atom)


def number(value: int) -> Expr:
    return Expr((), value)


def of(atom: Atom) -> Expr:
    return Expr(((atom, 1),), 0)


def operand(value: Operand) -> Expr:
    """A constant or variable of the IR."""
    return number(int(value.value)) if isinstance(value, Const) else of(Known(value))


def binary(op: str, left: Expr, right: Expr) -> Expr:
    """`left op right`, computed where both are constants."""
    a, b = left.constant, right.constant
    if a is not None and b is not None and (b or op not in ("floordiv", "mod")):
        return number(
            {"mul": a * b, "min": min(a, b), "max": max(a, b)}[op]
            if op in ("mul", "min", "max")
            else a // b
            if op == "floordiv"
            else a % b
        )
    if op == "mul":
        return left * right
    if op in ("min", "max") and left == right:
        return left
    if op == "floordiv" and b == 1:
        return left
    return of(Binary(op, left, right))


def pick(condition: Condition, then: Expr, otherwise: Expr) -> Expr:
    """`then` where the condition holds, else `otherwise`."""
    known = condition.known()
    if known is None:
        return then if then == otherwise else of(Pick(condition, then, otherwise))
    return then if known else otherwise


SIGNS = {"zero": "==", "nonzero": "!=", "negative": "<", "positive": ">="}


@frozen
class Condition:
    """`value == 0` ("zero"), `value != 0` ("nonzero"), `value < 0` ("negative") or `value >= 0` ("positive")."""

    kind: str
    value: Expr

    def replace(self, mapping: Mapping[Symbol, Expr]) -> Condition:
        return Condition(self.kind, self.value.replace(mapping))

    def known(self) -> bool | None:
        """Its truth where the value is a constant."""
        v = self.value.constant
        if v is None:
            return None
        return {"zero": v == 0, "nonzero": v != 0, "negative": v < 0, "positive": v >= 0}[self.kind]

    def __str__(self) -> str:
        return f"{self.value} {SIGNS[self.kind]} 0"


class Numbering:
    """Integer operations that were written, by what they compute, so that none is written twice (value numbering).

    One that stands in a block that is still open comes before all that is appended.  What uses a variable that is
    assigned by `copy`, maybe more than once, is written each time.
    """

    __slots__ = ("assigned", "found")

    def __init__(self) -> None:
        self.assigned: set[str] = set()
        self.found: dict[tuple[Any, ...], tuple[list[Any], Any]] = {}

    def get(self, e: Emitter, key: tuple[Any, ...]) -> Any:
        entry = self.found.get(key)
        return entry[1] if entry is not None and e.is_open(entry[0]) else None

    def put(self, e: Emitter, key: tuple[Any, ...], value: Any) -> None:
        if not any(isinstance(x, Var) and x.name in self.assigned for x in key):
            self.found[key] = e.current, value


_numberings: weakref.WeakKeyDictionary[Emitter, Numbering] = weakref.WeakKeyDictionary()


def numbering_of(e: Emitter) -> Numbering:
    """The one of this compilation."""
    found = _numberings.get(e)
    if found is None:
        found = _numberings[e] = Numbering()
    return found


@frozen(eq=False)
class Writer:
    """Writes expressions as IR where the emitter stands; `values`: what each symbol is there."""

    e: Emitter
    values: dict[Symbol, Operand] = field(default_factory=dict)

    def but(self, values: Mapping[Symbol, Operand]) -> Writer:
        """With further symbols."""
        return Writer(self.e, {**self.values, **values})

    def op(self, op: str, a: Operand, b: Operand) -> Operand:
        """An operation on two integers, written unless its result is there."""
        return self.once((op, a, b), lambda: self.e.scalar(op, [a, b]).operand)

    def once(self, key: tuple[Any, ...], write: Callable[[], T]) -> T:
        """What `write` makes, unless the same is there."""
        numbering = numbering_of(self.e)
        found = numbering.get(self.e, key)
        if found is None:
            found = write()
            numbering.put(self.e, key, found)
        return found

    def expr(self, expr: Expr) -> Operand:
        total: Operand | None = None
        for atom, times in expr.terms:
            value = self._atom(atom)
            if isinstance(value, Const):
                value = index(int(value.value) * times)
            elif times == -1 and total is not None:
                total = self._op("sub", total, value)
                continue
            elif times != 1:
                value = self._op("mul", value, index(times))
            total = value if total is None else self._op("add", total, value)
        if total is None:
            return index(expr.const)
        return total if expr.const == 0 else self._op("add", total, index(expr.const))

    def condition(self, condition: Condition) -> Operand:
        value = self.expr(condition.value)
        op = {"zero": "eq", "nonzero": "ne", "negative": "lt", "positive": "ge"}[condition.kind]
        return self.op(op, value, index(0))

    def _atom(self, atom: Atom) -> Operand:
        if isinstance(atom, Symbol):
            return self.values[atom]
        if isinstance(atom, Known):
            return atom.var
        if isinstance(atom, Fetch):
            at = [self.expr(e) for e in atom.at]
            if not atom.fixed:
                return self._element(atom.array, at)
            return self.once(("getelem", atom.array, *at), lambda: self._element(atom.array, at))
        if isinstance(atom, Pick):
            return self._pick(atom)
        return self._op(atom.op, self.expr(atom.left), self.expr(atom.right))

    def _pick(self, atom: Pick) -> Operand:
        var = self.e.fresh("pick", I64)
        numbering_of(self.e).assigned.add(var.name)
        condition = self.condition(atom.condition)
        blocks: list[Block] = []
        for value in (atom.then, atom.otherwise):
            with self.e.block() as block:
                self.e.append(Op("copy", (var,), (self.expr(value),), (), (), self.e.loc))
            blocks.append(tuple(block))
        self.e.append(If(condition, blocks[0], blocks[1], self.e.loc))
        return var

    def _element(self, array: Var, at: list[Operand]) -> Operand:
        from pto_jit.dtypes import i64

        return self.e.cast(self.e.scalar("getelem", [array, *at]), i64).operand

    def _op(self, op: str, a: Operand, b: Operand) -> Operand:
        if isinstance(a, Const) and isinstance(b, Const):
            x, y = int(a.value), int(b.value)
            if op == "add" or op == "sub":
                return index(x + y if op == "add" else x - y)
            known = binary(op, number(x), number(y)).constant
            if known is not None:
                return index(known)
        if isinstance(b, Const) and ((b.value == 0 and op in ("add", "sub")) or (b.value == 1 and op == "mul")):
            return a
        return self.op(op, a, b)

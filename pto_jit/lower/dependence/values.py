# SPDX-License-Identifier: MIT
"""Scalars as linear forms: what subscripts, bounds and conditions are computed from.

An *atom* is a number that is not taken apart any further: a loop variable (or the iteration number of a loop whose step
is not 1), an argument, an extent, a value read from memory, a quotient, a product of run-time values.  Atoms are found
by what they are, so that `i * n` computed twice is one atom.  An atom *varies* with loops: in one iteration of all of
them it has one value.  *Facts* are linear forms of atoms that are never negative.

Index arithmetic is taken not to overflow 64 bits.  What gets too large to reason about (many terms, a product of many
factors, text) becomes an atom of its own, so that the work stays in proportion to the program: `x = x * x + x` would
otherwise double it with every statement.
"""

from __future__ import annotations

import re
from collections.abc import Container, Hashable

from pto_jit.dtypes import bool_, i64
from pto_jit.ir.nodes import Const, For, Func, Op, Operand, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import statements
from pto_jit.lower.dependence.linear import ZERO, Linear, atom
from pto_jit.lower.names import source_name
from pto_jit.semantic.table import is_elementwise
from pto_jit.slotted import field, frozen, mutable

I64 = ScalarType(i64)
BOOL = ScalarType(bool_)
Loops = frozenset[int]
NONE: Loops = frozenset()
Conditions = tuple[Linear, ...] | None
"""What holds when a condition does: forms that are not negative; None: nothing is known."""
MOST_TERMS = 64  # of a form, or of a condition
MOST_FACTORS = 8  # of a product
MOST_DIGITS = 256  # binary ones of a constant
MOST_TEXT = 160  # characters of an atom in a message
_TEMPORARY = re.compile(r"t\d*")  # the names of what the user gave none
_WORD = re.compile(r"[\w.]+(\[([^][]|\[[^][]*\])*\])*")
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}


@frozen
class Atom:
    """`free`: any value that the facts allow is possible for some arguments of the program.

    `counts`: the number of the iteration of a loop `text` with this start and step.
    """

    text: str
    varies: Loops
    facts: tuple[Linear, ...] = ()
    free: bool = False
    counts: tuple[Linear, int] | None = None


@mutable
class Values:
    """The atoms of a function, and what its scalars are in terms of them."""

    atoms: list[Atom] = field(default_factory=list)
    found: dict[Hashable, int] = field(default_factory=dict)
    known: dict[str, Linear] = field(default_factory=dict)
    truths: dict[str, tuple[Conditions, Conditions]] = field(default_factory=dict)
    choices: dict[int, tuple[str, tuple[Linear, ...]]] = field(default_factory=dict)  # how atoms are made
    others: dict[str, tuple[int, Loops]] = field(default_factory=dict)  # scalars that are not i64: identity, variation
    made: dict[str, Op] = field(default_factory=dict)  # and what computes them
    identities: dict[Hashable, int] = field(default_factory=dict)

    def add(self, key: Hashable, made: Atom) -> Linear:
        """The atom found under `key`, `made` when it is new."""
        number = self.found.get(key)
        if number is None:
            number = self.found[key] = len(self.atoms)
            self.atoms.append(made)
        return atom(number)

    def _shown(self, text: str) -> str:
        """The text of an atom, which texts of others are made of."""
        return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."

    def varies(self, *forms: Linear) -> Loops:
        out: set[int] = set()
        for form in forms:
            for number, _ in form.terms:
                out |= self.atoms[number].varies
        return frozenset(out)

    def symbol(self, name: str) -> Linear:
        """An argument or another number that is the same everywhere."""
        key = ("symbol", name)
        number = self.found.get(key)
        if number is None:
            number = len(self.atoms)
            self.found[key] = number
            self.atoms.append(Atom(source_name(name), NONE, free=True))
        return atom(number)

    def unknown(self, key: Hashable, text: str, varies: Loops) -> Linear:
        """A value of which nothing is known but where it changes."""
        return self.add(("unknown", key), Atom(text, varies))

    # -- reading ------------------------------------------------------------------------------------------------

    def of(self, operand: Operand) -> Linear | None:
        """None for what was not recorded: a variable that is assigned more than once, or no integer."""
        if isinstance(operand, Const):
            return Linear(int(operand.value)) if operand.type == I64 else None
        return self.known.get(operand.name)

    def text(self, form: Linear) -> str:
        """A form as the user would write it."""
        for number, k in form.terms:  # a - n * (a // n) is a % n
            kind, parts = self.choices.get(number, ("", ()))
            if kind == "quotient" and k == -parts[1].const and set(parts[0].terms) <= set(form.terms):
                rest = form - parts[0] - Linear(0, ((number, k),))
                inner = self.text(parts[0])
                inner = f"{_enclosed(inner)} % {-k}"
                return inner if rest == ZERO else f"{inner} + {self.text(rest)}".replace("+ -", "- ")
        words: list[tuple[str, int]] = []
        counted = next((t for t in reversed(form.terms) if self.atoms[t[0]].counts is not None), None)
        while counted is not None:  # step * t + start is the loop's variable
            number, k = counted
            start, step = self.atoms[number].counts or (ZERO, 1)
            form = form - Linear(0, (counted,))
            if k % step:
                words.append((f"(({self.atoms[number].text} - {self.text(start)}) // {step})", k))
            else:
                words.append((self.atoms[number].text, k // step))
                form = form - start.times(k // step)
            counted = next((t for t in reversed(form.terms) if self.atoms[t[0]].counts is not None), None)
        words += [(self.atoms[n].text, k) for n, k in sorted(form.terms, key=lambda t: not self.atoms[t[0]].varies)]
        const = form.const
        out = ""
        for name, k in sorted(words, key=lambda w: w[1] < 0):
            size = name if abs(k) == 1 else f"{abs(k)} * {name if name[0] == '(' else _enclosed(name)}"
            out += f" {'-' if k < 0 else '+'} {size}" if out else f"{'-' if k < 0 else ''}{size}"
        if const or not out:
            out += f" {'-' if const < 0 else '+'} {abs(const)}" if out else str(const)
        return out

    # -- arithmetic ---------------------------------------------------------------------------------------------

    def record(self, op: Op, here: Loops) -> None:
        """Learn the results of an operation that stands in the loops `here`."""
        result = op.results[0]
        if result.type == I64:
            self.known[result.name] = self._integer(op, here)
            return
        if result.type == BOOL:
            truth = self._truth(op)
            if truth is not None:
                self.truths[result.name] = truth
        self.others[result.name] = self._identity(op, here)
        self.made[result.name] = op

    def _integer(self, op: Op, here: Loops) -> Linear:
        args = [self.of(a) for a in op.args]
        if args and all(a is not None for a in args):
            made = self._arithmetic(op.op, args)  # pyright: ignore[reportArgumentType]
            if made is not None and len(made.terms) <= MOST_TERMS and made.const.bit_length() <= MOST_DIGITS:
                return made
        identity, varies = self._identity(op, here)
        return self.unknown(identity, self._written(op), varies)

    def _written(self, op: Op) -> str:
        """The scalar that an operation computes, as the user would write it."""
        name = source_name(op.results[0].name)
        if not _TEMPORARY.fullmatch(name):
            return name
        if op.op == "getelem":
            tensor, *at = op.args
            assert isinstance(tensor, Var)
            return self._shown(f"{source_name(tensor.name)}[{', '.join(map(self._operand, at))}]")
        if op.op == "cast":
            return self._operand(op.args[0])
        if op.op in _SIGNS:
            a, b = map(_enclosed, map(self._operand, op.args))
            return self._shown(f"{a} {_SIGNS[op.op]} {b}")
        return name

    def _operand(self, operand: Operand) -> str:
        if isinstance(operand, Const):
            return str(operand.value)
        form = self.known.get(operand.name)
        if form is not None:
            return self.text(form)
        op = self.made.get(operand.name)
        return source_name(operand.name) if op is None else self._written(op)

    def _identity(self, op: Op, here: Loops) -> tuple[int, Loops]:
        """What a scalar is, as a number: equal for equal operations on equal operands, if these are pure."""
        key: Hashable = op.results[0].name
        varies = here
        if is_elementwise(op.op, len(op.args)) and not op.regions:
            parts = [self._part(a) for a in op.args]
            if all(p is not None for p in parts):
                key = (op.op, op.attrs, tuple(p[0] for p in parts if p))
                varies = NONE.union(*(p[1] for p in parts if p))
        return self.identities.setdefault(key, len(self.identities)), varies

    def _part(self, operand: Operand) -> tuple[Hashable, Loops] | None:
        if isinstance(operand, Const):
            return operand, NONE
        form = self.known.get(operand.name)
        return self.others.get(operand.name) if form is None else (form, self.varies(form))

    def _arithmetic(self, op: str, args: list[Linear]) -> Linear | None:
        if len(args) == 1:
            return args[0] if op == "copy" else -args[0] if op == "neg" else None
        if len(args) != 2:
            return None
        a, b = args
        match op:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul":
                return self.product(a, b)
            case "floordiv":
                return self.quotient(a, b)
            case "mod":
                quotient = self.quotient(a, b)
                return None if quotient is None or b.terms else a - quotient.times(b.const)
            case "shl":
                return a.times(1 << b.const) if not b.terms and 0 <= b.const < 63 else None
            case "min" | "max":
                return self.choice(op, a, b)
            case _:
                return None

    def product(self, a: Linear, b: Linear) -> Linear:
        """Products of atoms are atoms; a product of sums is multiplied out."""
        if not a.terms:
            return b.times(a.const)
        if not b.terms:
            return a.times(b.const)
        degree = sum(max(len(self._factors(x)) for x, _ in form.terms) for form in (a, b))
        if len(a.terms) * len(b.terms) > MOST_TERMS or degree > MOST_FACTORS:
            text = self._shown(f"({self.text(a)}) * ({self.text(b)})")
            return self.add(("product", frozenset((a, b))), Atom(text, self.varies(a, b)))
        out = a.times(b.const) + Linear(0, b.terms).times(a.const)
        for x, k in a.terms:
            for y, m in b.terms:
                factors = tuple(sorted((*self._factors(x), *self._factors(y))))
                text = self._shown(" * ".join(self._word(f) for f in factors))
                form = self.add(("product", factors), Atom(text, self.varies(*(atom(f) for f in factors))))
                self.choices.setdefault(form.terms[0][0], ("product", tuple(atom(f) for f in factors)))
                out = out + form.times(k * m)
        return out

    def _factors(self, number: int) -> tuple[int, ...]:
        kind, parts = self.choices.get(number, ("", ()))
        return tuple(p.terms[0][0] for p in parts) if kind == "product" else (number,)

    def _word(self, number: int) -> str:
        return _enclosed(self.atoms[number].text)

    def quotient(self, a: Linear, b: Linear) -> Linear | None:
        """`a // b` rounded down, for a constant b that is not 0."""
        if b.terms or b.const == 0:
            return None
        k = b.const
        if k < 0:
            a, k = -a, -k
        if a.const % k == 0 and all(c % k == 0 for _, c in a.terms):
            return Linear(a.const // k, tuple((t, c // k) for t, c in a.terms))
        key = ("quotient", a, k)
        number = self.found.get(key)
        if number is None:
            number = self.found[key] = len(self.atoms)
            rest = a - Linear(0, ((number, k),))  # 0 <= a - k * q < k
            inner = self.text(a)
            text = self._shown(f"{inner} // {k}" if len(a.terms) == 1 and not a.const else f"({inner}) // {k}")
            free = all(self.atoms[t].free for t, _ in a.terms)
            self.choices[number] = ("quotient", (a, Linear(k)))
            self.atoms.append(Atom(text, self.varies(a), (rest, (-rest).plus(k - 1)), free))
        return atom(number)

    def choice(self, op: str, a: Linear, b: Linear) -> Linear:
        """The smaller or the larger of two: an atom with the two facts that one can write."""
        if not (a - b).terms:
            return (a if a.const < b.const else b) if op == "min" else (a if a.const > b.const else b)
        parts = tuple(dict.fromkeys((*self._parts(op, a), *self._parts(op, b))))
        if len(parts) > MOST_TERMS:
            parts = (a, b)
        key = (op, frozenset(parts))
        number = self.found.get(key)
        if number is None:
            number = self.found[key] = len(self.atoms)
            self.choices[number] = (op, parts)
            sign = 1 if op == "max" else -1
            facts = tuple((atom(number) - part).times(sign) for part in parts)
            text = self._shown(f"{op}({', '.join(self.text(p) for p in parts)})")
            self.atoms.append(Atom(text, self.varies(*parts), facts))
        return atom(number)

    def _parts(self, op: str, form: Linear) -> tuple[Linear, ...]:
        if form.const == 0 and len(form.terms) == 1 and form.terms[0][1] == 1:
            kind, parts = self.choices.get(form.terms[0][0], ("", ()))
            if kind == op:
                return parts
        return (form,)

    def bounds(self, op: str, form: Linear) -> tuple[Linear, ...]:
        """`form <= x` is `every part <= x` when form is a max; likewise for min and >=."""
        if len(form.terms) == 1 and form.terms[0][1] == 1:
            kind, parts = self.choices.get(form.terms[0][0], ("", ()))
            if kind == op:
                return tuple(p.plus(form.const) for p in parts)
        return (form,)

    # -- conditions ---------------------------------------------------------------------------------------------

    def _truth(self, op: Op) -> tuple[Conditions, Conditions] | None:
        """What holds when the result is true, and when it is false."""
        if op.op in ("lt", "le", "gt", "ge", "eq", "ne"):
            a, b = (self.of(x) for x in op.args)
            if a is None or b is None:
                return None
            up, down = b - a, a - b
            equal: Conditions = (up, down)
            match op.op:
                case "lt":
                    return (up.plus(-1),), (down,)
                case "le":
                    return (up,), (down.plus(-1),)
                case "gt":
                    return (down.plus(-1),), (up,)
                case "ge":
                    return (down,), (up.plus(-1),)
                case "eq":
                    return equal, None
                case _:
                    return None, equal
        if op.op == "not" and isinstance(op.args[0], Var):
            known = self.truths.get(op.args[0].name)
            return None if known is None else (known[1], known[0])
        if op.op in ("and", "or"):
            sides = [self.truths.get(a.name, (None, None)) if isinstance(a, Var) else (None, None) for a in op.args]
            one = 0 if op.op == "and" else 1
            left, right = sides[0][one], sides[1][one]
            both = None if left is None or right is None else tuple(dict.fromkeys((*left, *right)))
            if both is not None and len(both) > MOST_TERMS:
                both = None
            return (both, None) if op.op == "and" else (None, both)
        return None


def _enclosed(text: str) -> str:
    """A text as an operand of a larger one: a number, a name or an element stays as it is."""
    return text if _WORD.fullmatch(text) else f"({text})"


def numbers_of(func: Func, changing: Container[str]) -> Values:
    """The integers of a function that are assigned once, as sums of multiples of others; changing: the names of those
    that are not."""
    out = Values()
    for name in (*(p.name for p in func.params), *(s.var.name for s in statements(func.body) if isinstance(s, For))):
        if name not in changing:
            out.known[name] = out.symbol(name)
    for s in statements(func.body):
        if isinstance(s, Op) and len(s.results) == 1 and s.results[0].type == I64 and s.results[0].name not in changing:
            out.record(s, NONE)
    return out

# SPDX-License-Identifier: MIT
"""Nests as text for the user: loops, access maps and distances, in the words of the program.

Elements of lists that are arguments are `batch[i][k]`, whose place among the leaves is `offsets[0][i] + k`; lengths are
`len(batch[i])`, which are differences of offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pto_jit.fractal.compile.expr import SIGNS, Atom, Binary, Condition, Expr, Fetch, Known, Pick, Symbol
from pto_jit.fractal.compile.lists import Access, Array, Choose, Filled, Index, Loop, Part, Read, ReadLeaf, WriteLeaf

if TYPE_CHECKING:
    from pto_jit.codegen.spelling import Spelling
    from pto_jit.fractal.compile.nest import Nest

_PRODUCTS = {"mul": "*", "floordiv": "//", "mod": "%"}


class Drawing:
    """arrays: those that lists stand for, arguments among them; spelling: of other numbers, where it is known."""

    def __init__(self, arrays: Iterable[Array] = (), spelling: Spelling | None = None) -> None:
        self._spelling = spelling
        self._leaves: dict[str, Array] = {}
        self._offsets: dict[str, tuple[Array, int]] = {}
        for array in arrays:
            if array.argument is not None:
                leaves, offsets = array.argument
                self._leaves[leaves.var.name] = array
                self._offsets |= {table.var.name: (array, level) for level, table in enumerate(offsets)}

    # -- nests ----------------------------------------------------------------------------------------------------

    def nest(self, nest: Nest) -> str:
        """A perfect nest: loops with kinds, access maps, distances."""
        lines = ["  " * depth + self._head(loop) for depth, loop in enumerate(nest.loops)]
        inner = "  " * len(nest.loops)
        lines += [inner + line for item in nest.cell for line in self._item(item)]
        names = ", ".join(str(s) for s in nest.symbols)
        lines.append(f"distances over ({names}): {', '.join(self.distances(nest)) or 'none'}")
        return "\n".join(lines)

    def loop(self, loop: Loop, depth: int = 0) -> str:
        """A nest that is not perfect: its loops with kinds, what stands between them, access maps."""
        lines = ["  " * depth + self._head(loop)]
        for item in loop.body:
            if isinstance(item, Loop):
                lines.append(self.loop(item, depth + 1))
            elif not isinstance(item, ReadLeaf) or item.final is None:
                lines += ["  " * (depth + 1) + line for line in self._item(item)]
        return "\n".join(lines)

    def distances(self, nest: Nest) -> list[str]:
        """The distances between the cells of a nest."""
        return sorted({f"({self._list(d)})" for ds in nest.exact.values() for d in ds})

    def _head(self, loop: Loop) -> str:
        return f"{loop.symbol} < {self.expr(loop.length)}: {loop.kind}"

    def _item(self, item: object) -> list[str]:
        if isinstance(item, ReadLeaf):
            return [f"read {self.read(item.read)}"]
        if isinstance(item, WriteLeaf):
            return [f"write {item.array.root.name}[{self._list(item.index)}]"]
        return []

    # -- what is read -------------------------------------------------------------------------------------------

    def read(self, read: Read) -> str:
        """`h[d - 1, t]`, alternatives with their conditions."""
        match read:
            case Access():
                return self._access(read)
            case Choose():
                return f"{self.read(read.then)} if {self._condition(read.condition)} else {self.read(read.otherwise)}"
            case Index():
                return self.expr(read.value)
            case Filled():
                return f"{read.value}"
            case Part():
                return f"{self._name(read.source.var.name)}[{self._list(read.starts)}]"
        return "a value"

    def _access(self, access: Access) -> str:
        root = access.array.root
        if root.argument is None:
            return f"{root.name}[{self._list(access.index)}]"
        return self._leaf(root, access.index[0])

    def _leaf(self, array: Array, place: Expr) -> str:
        """A leaf of an argument."""
        assert array.argument is not None
        found = self._element(array, len(array.argument[1]), place)
        return found if found is not None else f"{array.name}.leaves[{self.expr(place)}]"

    def _element(self, array: Array, level: int, place: Expr) -> str | None:
        """The element of an argument whose number among all of its level is `place`; None where lists do not say it."""
        if level == 0:
            return f"{array.name}[{self.expr(place)}]"
        assert array.argument is not None
        offsets = array.argument[1][level - 1].var
        starts = [a for a, times in place.terms if isinstance(a, Fetch) and a.array.name == offsets.name and times == 1]
        if len(starts) != 1:
            return None
        (at,), rest = starts[0].at, place - Expr(((starts[0], 1),))
        if rest.const < 0 and all(times < 0 for _, times in rest.terms):  # before the list behind: from the end
            at = at - 1
        found = self._element(array, level - 1, at)
        return None if found is None else f"{found}[{self.expr(rest)}]"

    # -- expressions ----------------------------------------------------------------------------------------------

    def _list(self, exprs: Sequence[Expr]) -> str:
        return ", ".join(map(self.expr, exprs))

    def expr(self, expr: Expr) -> str:
        """A sum, with lengths of lists in place of differences of offsets."""
        const, terms = expr.const, dict(expr.terms)
        words: list[tuple[str, int]] = []
        for atom, times in expr.terms:
            length = self._length(atom, times, terms)
            if length is not None:
                words.append((length, times))
        for atom, times in terms.items():
            text, more = self._atom(atom)
            words.append((text, times))
            const += more * times
        parts: list[str] = []
        for text, times in words:
            sign = "-" if times < 0 else "+"
            text = text if abs(times) == 1 else f"{abs(times)}*{text}"
            parts.append(f"{sign} {text}" if parts else text if sign == "+" else f"-{text}")
        if const or not parts:
            parts.append(f"{'-' if const < 0 else '+'} {abs(const)}" if parts else str(const))
        return " ".join(parts)

    def _length(self, atom: Atom, times: int, terms: dict[Atom, int]) -> str | None:
        """The length of the list whose end is `atom`; takes both ends out of `terms`."""
        if not (isinstance(atom, Fetch) and times > 0 and terms.get(atom) == times):
            return None
        known = self._offsets.get(atom.array.name)
        start = Fetch(atom.array, (atom.at[0] - 1,), atom.fixed)
        if known is None or terms.get(start) != -times:
            return None
        array, level = known
        found = self._element(array, level, atom.at[0] - 1)
        if found is None:
            return None
        del terms[atom], terms[start]
        return f"len({found})"

    def _atom(self, atom: Atom) -> tuple[str, int]:
        """A part of a sum, and what is added to it."""
        match atom:
            case Symbol():
                return atom.name, 0
            case Known():
                found = None if self._spelling is None else self._spelling.sum_of(atom.var)
                if found is None:
                    return f"%{atom.var.name}", 0
                text, more = found
                return (text if text.isidentifier() or text.endswith((")", "]")) else f"({text})"), more
            case Fetch() if atom.array.name in self._leaves and len(atom.at) == 1:
                return self._leaf(self._leaves[atom.array.name], atom.at[0]), 0
            case Fetch():
                return f"{self._name(atom.array.name)}[{self._list(atom.at)}]", 0
            case Binary():
                sign = _PRODUCTS.get(atom.op)
                if sign is None:
                    return f"{atom.op}({self.expr(atom.left)}, {self.expr(atom.right)})", 0
                return f"({self._factor(atom.left)} {sign} {self._factor(atom.right)})", 0
            case Pick():
                condition = self._condition(atom.condition)
                return f"({self.expr(atom.then)} if {condition} else {self.expr(atom.otherwise)})", 0

    def _factor(self, expr: Expr) -> str:
        """An operand of a product or quotient: sums and negative numbers in parentheses."""
        text = self.expr(expr)
        return f"({text})" if " " in text.strip("()") or text.startswith("-") else text

    def _condition(self, condition: Condition) -> str:
        return f"{self.expr(condition.value)} {SIGNS[condition.kind]} 0"

    def _name(self, variable: str) -> str:
        known = self._offsets.get(variable)
        if known is not None:
            array, level = known
            return f"{array.name}.offsets[{level}]"
        place = None if self._spelling is None else self._spelling.place(variable)
        return f"%{variable}" if place is None else place

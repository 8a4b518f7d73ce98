# SPDX-License-Identifier: MIT
"""Short loops in the cells of a map, written out: the words of a window times those of a filter, added up.

A nest with loops in its cells is not perfect.  Where these have few iterations, known when the kernel is compiled, and
what they write is read in the same cell alone, the cell without them does the same: a value in place of each element
that is written and read, in the same order.  The nest is one for plans that compute many cells at once (`sums.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.values import Scalar, Tile
from pto_jit.fractal.compile.expr import Expr, Known, number
from pto_jit.fractal.compile.lists import (
    Access,
    Array,
    Choose,
    Compute,
    Computed,
    Loop,
    Part,
    Read,
    ReadLeaf,
    WriteLeaf,
    expressions,
    replaced,
    sources,
)
from pto_jit.fractal.compile.names import defined
from pto_jit.fractal.compile.sequential import accessed, variable_of
from pto_jit.ir import walk
from pto_jit.ir.nodes import Op, Operand, Var
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session

FEW = 16
"""Iterations of a loop that is written out."""
MOST = 256
"""Records and operations of the cell then."""


class _Refused(Exception):
    """A cell that stays as it is."""


def without_short_loops(session: Session, loop: Loop, later: set[int], depth: int = 1) -> Loop | None:
    """A map whose cells have none of their loops any more; None where there are none, or some have to stay.

    later: the arrays that are read behind it; depth: how many loops are around its body.
    """
    inner = [i for i in loop.body if isinstance(i, Loop)]
    if loop.kind != "parallel":
        return None
    if len(inner) == 1 and not _is_short(inner[0]):
        made = without_short_loops(session, inner[0], later, depth + 1)
        return None if made is None else replace(loop, body=[made if i is inner[0] else i for i in loop.body])
    if not inner or not all(map(_is_short, inner)):
        return None
    try:
        return replace(loop, body=_Cell(session, later, depth).written_out(loop.body))
    except _Refused:
        return None


def _is_short(loop: Loop) -> bool:
    """Whether a loop has few iterations, and asks for nothing."""
    known = loop.length.constant
    asks = loop.schedule != "auto" or loop.tile is not None or loop.chains is not None
    return known is not None and known <= FEW and not asks and not any(isinstance(i, Loop) for i in loop.body)


class _Cell:
    """What stands for the elements that a cell writes and reads."""

    def __init__(self, session: Session, later: set[int], depth: int) -> None:
        self.session = session
        self.later = later
        self.depth = depth
        self.values: dict[tuple[int, tuple[Expr, ...]], Scalar | Tile] = {}
        self.local: set[int] = set()  # arrays that loops of the cell write
        self.names: dict[str, Operand] = {}  # what stands for a variable
        self.inside: set[str] = set()  # variables of loops
        self.count = 0

    def written_out(self, body: Sequence[Any]) -> list[Any]:
        for item in body:
            if isinstance(item, Loop):
                self.local |= {id(self._own(i.array)) for i in item.body if isinstance(i, WriteLeaf)}
                self.inside |= set().union(*map(defined, item.body))
        found: list[Any] = []
        for item in body:
            if not isinstance(item, Loop):
                found += self._item(item, {})
                continue
            for k in range(item.length.constant or 0):
                outside = dict(self.names)
                found += [new for i in item.body for new in self._item(i, {item.symbol: number(k)})]
                self.names = outside
        return found

    def _own(self, array: Array) -> Array:
        """The array of a loop, which nothing outside of the cell reads."""
        root = array.root
        if root is not array or root.tensor is not None or root.loops < self.depth or id(root) in self.later:
            raise _Refused
        return root

    def _item(self, item: Any, symbols: dict[Any, Expr]) -> list[Any]:
        self.count += 1
        if self.count > MOST:
            raise _Refused
        match item:
            case ReadLeaf():
                return self._read(item, symbols)
            case WriteLeaf():
                index = tuple(self._expr(e.replace(symbols)) for e in item.index)
                value = self._value(item.value)
                if id(item.array.root) not in self.local:
                    return [replace(item, index=index, value=value)]
                self.values[id(item.array.root), index] = value
                return []
            case Compute():
                return [Compute(self._fresh(item.var), self._expr(item.expr.replace(symbols)))]
            case Op() if not item.regions and item.op != "copy":
                made = walk.with_operands(item, lambda o: self.names.get(o.name, o) if isinstance(o, Var) else o, None)
                return [replace(made, results=tuple(map(self._fresh, item.results)))]
        raise _Refused

    def _read(self, item: ReadLeaf, symbols: dict[Any, Expr]) -> list[Any]:
        read = replaced(item.read, symbols)
        var = variable_of(item.value)
        if not isinstance(var, Var):
            raise _Refused
        if isinstance(read, Access) and id(read.array.root) in self.local:
            found = self.values.get((id(read.array.root), read.index))
            if found is None or variable_of(found).type != var.type:
                raise _Refused
            self.names[var.name] = variable_of(found)
            return []
        if isinstance(read, Computed) and variable_of(read.value).type == var.type:
            self.names[var.name] = variable_of(self._value(read.value))
            return []
        if any(id(a) in self.local for a in accessed(read)) or item.final is not None:
            raise _Refused
        for e in expressions(read):
            self._expr(e)
        if any(isinstance(p, Part) and p.source.var.name in self.inside for p in sources(read)):
            raise _Refused
        if item.state is not None and isinstance(read, Choose):
            raise _Refused
        value = self._with(item.value, self._fresh(var))
        return [replace(item, value=value, read=self._computed(read), state=None)]

    def _computed(self, read: Read) -> Read:
        """A read with what stands for the variables that it gives."""
        if isinstance(read, Choose):
            return Choose(read.condition, self._computed(read.then), self._computed(read.otherwise))
        return Computed(self._value(read.value), read.depth) if isinstance(read, Computed) else read

    def _expr(self, expr: Expr) -> Expr:
        """An expression, unless it is made of what a loop computes."""
        if any(isinstance(a, Known) and a.var.name in self.inside for a in expr.atoms()):
            raise _Refused
        return expr

    def _value(self, value: Scalar | Tile) -> Scalar | Tile:
        var = variable_of(value)
        return self._with(value, self.names[var.name]) if isinstance(var, Var) and var.name in self.names else value

    def _with(self, value: Scalar | Tile, found: Operand) -> Scalar | Tile:
        if isinstance(value, Scalar):
            return Scalar(found, value.weak)
        assert isinstance(found, Var)
        return Tile(found, value.extents)

    def _fresh(self, var: Var) -> Var:
        """A variable of its own for each iteration; those of the cell keep theirs."""
        if var.name not in self.inside:
            return var
        e = self.session.g.e
        self.names[var.name] = new = e.fresh(var.name, var.type)
        if var.name in e.extents:
            e.extents[new.name] = e.extents[var.name]
        return new

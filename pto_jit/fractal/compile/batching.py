# SPDX-License-Identifier: MIT
"""The body of a cell for many cells at once: tensors become rows, products with shared operands one product.

A value of extents (1, n) or (n) is a row of a tile (cells, n); of (r, n) it is a slab of (cells, r, n).  An operation
that does not fit (a product of two values that both differ from cell to cell) raises NotBatchable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.emit import index
from pto_jit.codegen.values import static_extent
from pto_jit.fractal.compile.lists import Compute, ReadLeaf, WriteLeaf
from pto_jit.fractal.compile.sequential import name_of, variable_of
from pto_jit.ir.nodes import Const, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.semantic.table import REDUCTIONS, is_elementwise

if TYPE_CHECKING:
    from pto_jit.codegen.emit import Emitter


class NotBatchable(Exception):
    """The cells of a plane cannot be computed as the rows of tiles; the message says why."""


def demanded(cell: Sequence[Any]) -> set[str]:
    """The reads that all cells of a batch must share: right operands of products, and what these are made from."""
    roots: dict[str, set[str]] = {}
    found: set[str] = set()
    for item in cell:
        if isinstance(item, ReadLeaf):
            name = name_of(item.value)
            roots[name] = {name}
        elif isinstance(item, Compute):
            roots[item.var.name] = {item.var.name}
        elif isinstance(item, Op):
            sources = [roots.get(a.name, set()) if isinstance(a, Var) else set() for a in item.args]
            together = set().union(*sources)
            for result in item.results:
                roots[result.name] = roots.get(result.name, set()) | together
            if item.op == "dot":
                found |= sources[1]
    return found


class Batch:
    """Writes the operations of a cell for `count` cells.

    rows: the value of each batched variable, a tile (cells, *rest); shared: that of the others.
    """

    def __init__(self, e: Emitter, count: Operand, rows: dict[str, Var], shared: dict[str, Operand]) -> None:
        self.e = e
        self.count = count
        self.rows = rows
        self.shared = shared
        self._flat: dict[str, Var] = {}  # products as they were computed, by what became their slabs

    def run(self, cell: Sequence[Any]) -> None:
        for item in cell:
            if isinstance(item, (ReadLeaf, WriteLeaf, Compute)):
                continue
            if not isinstance(item, Op):
                raise NotBatchable("the body has a branch or loop that is decided while it runs")
            self.operation(item)

    def value(self, value: Any) -> Var:
        """A result of the cell as a tile of rows."""
        var = variable_of(value)
        if isinstance(var, Var) and var.name in self.rows:
            return self.rows[var.name]
        if isinstance(var.type, ScalarType):
            return self._op("full", [self._plain(var), self.count, index(1)])
        return self._spread(var, self.rest(var))

    def rest(self, var: Operand) -> tuple[Operand, ...]:
        """The extents of a value in one row."""
        if isinstance(var.type, ScalarType):
            return (index(1),)
        assert isinstance(var, Var)
        extents = self.e.extents_of(var)
        if extents is None:
            raise NotBatchable("the extents of a value are not known before the loops")
        return row_extents(extents)

    # -- operations ------------------------------------------------------------------------------------------------

    def operation(self, op: Op) -> None:
        if op.op == "assert" or op.op == "print":
            raise NotBatchable(f"the body has `{op.op}`")
        if not any(isinstance(a, Var) and a.name in self.rows for a in op.args):
            self._once(op)
            return
        if op.op in ("valid", "extent"):
            self.shared[op.results[0].name] = self._measured(op)
            return
        if len(op.results) != 1 or any(isinstance(a.type, TensorType) for a in op.args) or op.regions:
            raise NotBatchable(f"`{op.op}` works on memory, or on several values")
        (result,) = op.results
        if result.name in self.shared:
            raise NotBatchable("a variable is assigned on several paths")
        self.rows[result.name] = self._rows(op, result)

    def _once(self, op: Op) -> None:
        """An operation on values that all cells share."""
        results = self.e.op(op.op, [self._plain(a) for a in op.args], dict(op.attrs), regions=op.regions)
        for old, new in zip(op.results, results, strict=True):
            self.shared[old.name] = new
            extents = self.e.extents_of(old) if isinstance(old.type, TileType) else None
            if extents is not None:
                self.e.extents[new.name] = extents

    def _measured(self, op: Op) -> Operand:
        """The extent of an axis, which is the same for all cells; of that which became the one of the cells it is 1."""
        source = op.args[0]
        rank = len(self.e.extents_of(source) or ())  # type: ignore[arg-type]
        axis = int(op.attr("axis")) + 1 + len(self.rest(source)) - rank  # type: ignore[arg-type]
        if not axis:
            return index(1)
        return self.e.scalar(op.op, [self.value_of(source)], {"axis": axis}).operand

    def _rows(self, op: Op, result: Var) -> Var:
        rest = self.rest(result)
        if op.op == "copy":
            return self.value_of(op.args[0])
        if op.op == "dot":
            return self._dot(op, rest)
        if op.op == "concat":
            return self._concat(op, rest)
        if op.op == "reshape":
            return self._shaped(self.value_of(op.args[0]), rest)
        if op.op == "broadcast_to":
            return self._op("broadcast_to", [self._aligned(op.args[0], rest), self.count, *rest])
        if op.op == "transpose" and len(op.attr("axes") or ()) == 2:  # type: ignore[arg-type]
            return self._transpose(op.args[0], rest)
        if op.op == "tile_slice":
            return self._slice(op, rest)
        if op.op == "extract":
            return self._extract(op)
        if op.op in REDUCTIONS and len(op.args) == 1:
            return self._reduce(op, rest)
        if op.op == "cast" or is_elementwise(op.op, len(op.args)):
            args = [self._aligned(a, rest) for a in op.args]
            return self._op(op.op, args, dict(op.attrs))
        raise NotBatchable(f"`{op.op}` of values that differ from cell to cell")

    def value_of(self, arg: Operand) -> Var:
        if isinstance(arg, Var) and arg.name in self.rows:
            return self.rows[arg.name]
        return self._spread(arg, self.rest(arg))

    def _dot(self, op: Op, rest: tuple[Operand, ...]) -> Var:
        left, right = op.args[:2]
        if isinstance(right, Var) and right.name in self.rows:
            raise NotBatchable("a product whose right operand differs from cell to cell")
        inner = self.rest(left)
        if len(inner) > 2 or len(self.e.extents_of(right) or ()) != 2:  # type: ignore[arg-type]
            raise NotBatchable("a product of tensors of rank 3 or more")
        rows = self.flat(self.value_of(left), inner)
        args: list[Operand] = [rows, self._plain(right)]
        if len(op.args) > 2:
            args.append(self.flat(self.value_of(op.args[2]), rest))
        product = self._op("dot", args, dict(op.attrs))
        shaped = self._shaped(product, rest, given=len(inner))
        if len(inner) > 1:
            self._flat[shaped.name] = product
        return shaped

    def flat(self, rows: Var, rest: tuple[Operand, ...]) -> Var:
        """(cells, r, n) as (cells * r, n)."""
        if len(rest) == 1:
            return rows
        if rows.name in self._flat:
            return self._flat[rows.name]
        many = self.e.scalar("mul", [self.count, rest[0]]).operand
        return self._op("reshape", [rows, many, rest[1]])

    def _concat(self, op: Op, rest: tuple[Operand, ...]) -> Var:
        rank = len(self.e.extents_of(op.results[0]) or ())
        axis = int(op.attr("axis")) + 1 + len(rest) - rank  # type: ignore[arg-type]
        if axis == 0:
            raise NotBatchable("tensors are concatenated along their first axis, of extent 1")
        args: list[Operand] = []
        for a in op.args:
            own = self.rest(a)
            if len(own) != len(rest):
                raise NotBatchable("tensors of different ranks are concatenated")
            args.append(self.value_of(a))
        return self._op("concat", args, {**dict(op.attrs), "axis": axis})

    def _transpose(self, source: Operand, rest: tuple[Operand, ...]) -> Var:
        """(cells, r, n) as (cells, n, r); a row of each cell as a column is in the same order."""
        rows = self.value_of(source)
        if len(self.rest(source)) > 1:
            rows = self._op("transpose", [rows], {"axes": (0, 2, 1)})
        return self._shaped(rows, rest)

    def _slice(self, op: Op, rest: tuple[Operand, ...]) -> Var:
        source = op.args[0]
        extents = self.e.extents_of(source) or ()  # type: ignore[arg-type]
        rank = len(extents)
        starts, sizes = op.args[1 : 1 + rank], op.args[1 + rank :]
        inner = self.rest(source)
        lost = rank - len(inner)
        if lost and starts[0] != index(0):
            raise NotBatchable("a slice of an axis of extent 1 does not start at 0")
        drop = op.attr("drop") or ()
        args = [self.value_of(source), index(0), *map(self._plain, starts[lost:])]
        args += [self.count, *map(self._plain, sizes[lost:])]
        kept = tuple(a + 1 - lost for a in drop if a >= lost)  # type: ignore[union-attr, operator]
        return self._shaped(self._op("tile_slice", args, {"drop": kept}), rest)

    def _extract(self, op: Op) -> Var:
        source = op.args[0]
        inner = self.rest(source)
        places = op.args[1:][len(op.args) - 1 - len(inner) :]
        ones = [index(1)] * len(inner)
        *leading, place = op.args[1:]
        if isinstance(place, Var) and place.name in self.rows and len(inner) == 1 and set(leading) <= {index(0)}:
            return self._op("gather", [self.value_of(source), self.rows[place.name]], {"axis": 1})
        args = [self.value_of(source), index(0), *map(self._plain, places), self.count, *ones]
        return self._shaped(self._op("tile_slice", args, {"drop": ()}), (index(1),))

    def _reduce(self, op: Op, rest: tuple[Operand, ...]) -> Var:
        source = op.args[0]
        rank = len(self.e.extents_of(source) or ())  # type: ignore[arg-type]
        inner = self.rest(source)
        given = op.attr("axes")
        axes = range(rank) if given is None else given
        kept = tuple(a + 1 + len(inner) - rank for a in axes)  # type: ignore[union-attr, operator]
        kept = tuple(a for a in kept if a)  # the axis that cells are along had extent 1
        rows = self.value_of(source)
        if not kept:
            if op.op in ("argmax", "argmin"):
                raise NotBatchable(f"`{op.op}` along an axis of extent 1")
            return self._shaped(rows, rest)
        reduced = self._op(op.op, [rows], {"axes": kept, "keepdims": True})
        return self._shaped(reduced, rest)

    # -- shapes ----------------------------------------------------------------------------------------------------

    def _aligned(self, arg: Operand, rest: tuple[Operand, ...]) -> Operand:
        """An operand of an elementwise operation whose result has these extents per row."""
        if isinstance(arg, Var) and arg.name in self.rows:
            own = self.rest(arg)
            if len(own) == len(rest):
                return self.rows[arg.name]
            ones = [index(1)] * (len(rest) - len(own))
            return self._op("reshape", [self.rows[arg.name], self.count, *ones, *own])
        plain = self._plain(arg)
        if isinstance(arg.type, ScalarType):
            return plain
        extents = self.e.extents_of(arg) or ()  # type: ignore[arg-type]
        if len(extents) == len(rest) + 1:
            return plain
        ones = [index(1)] * (len(rest) + 1 - len(extents))
        return self._op("reshape", [plain, *ones, *extents])

    def _spread(self, arg: Operand, rest: tuple[Operand, ...]) -> Var:
        """A shared value in every row."""
        plain = self._plain(arg)
        if isinstance(arg.type, ScalarType):
            return self._op("full", [plain, self.count, *rest])
        return self._op("broadcast_to", [self._aligned(arg, rest), self.count, *rest])

    def _shaped(self, rows: Var, rest: tuple[Operand, ...], *, given: int | None = None) -> Var:
        assert isinstance(rows.type, TileType)
        wanted = (None, *(static_extent(x) for x in rest))
        if rows.type.rank == len(wanted) and rows.type.shape[1:] == wanted[1:] and not (given and given > 1):
            return rows
        return self._op("reshape", [rows, self.count, *rest])

    def _plain(self, arg: Operand) -> Operand:
        """An operand that all cells share."""
        if isinstance(arg, Var) and arg.name in self.rows:
            raise NotBatchable("where a part of a tensor begins differs from cell to cell")
        return self.shared.get(arg.name, arg) if isinstance(arg, Var) else arg

    def _op(self, name: str, args: Sequence[Operand], attrs: dict[str, Any] | None = None) -> Var:
        return self.e.op(name, args, attrs)[0]


def row_extents(extents: Sequence[Operand]) -> tuple[Operand, ...]:
    """The extents of a leaf in one row of a batch: a leading axis of extent 1 becomes that of the cells."""
    if not extents:
        return (index(1),)
    first = extents[0]
    return tuple(extents[1:]) if len(extents) > 1 and isinstance(first, Const) and first.value == 1 else tuple(extents)

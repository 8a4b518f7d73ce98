# SPDX-License-Identifier: MIT
"""Products that have an axis of extent 1.

One row times a loaded matrix stays a product: `vectors` reads the matrix from memory where it multiplies.  The others
become elementwise products and sums.  A contracted axis of extent 1 that may lie beyond a tensor is summed before: of
nothing, the product is 0.

Before::

    %y = tdot %a, %x, %b              // [64, 32] by [32, 1]

After::

    %x.turned = ttranspose %x {axes=(1, 0)}
    %a.terms = tmul %a, %x.turned
    %a.sum = tsum %a.terms {axes=(1,), keepdims=true}
    %y = tadd %b, %a.sum
"""

from __future__ import annotations

from collections import Counter

from pto_jit.dtypes import DType, bool_, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Attr, Const, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, block_defs, defs, rewrite_block, statements, uses
from pto_jit.lower.groups.fitting import fitting_axes
from pto_jit.lower.names import unused
from pto_jit.semantic.failures import VALID
from pto_jit.semantic.matrix import product_dtype
from pto_jit.slotted import replace
from pto_jit.targets.cuda.loops import written_tensor
from pto_jit.targets.cuda.shapes import is_high
from pto_jit.targets.cuda.units import IsBelow, UnitAxes, never_below

Shape = tuple[int | None, ...]
_INDEX = ScalarType(i64)


def streamed_loads(func: Func) -> frozenset[str]:
    """Loads of matrices that nothing but products of one row by them reads, from memory that the kernel does not write:
    their elements are read where they are multiplied."""
    body = list(statements(func.body))
    if not any(isinstance(s, Op) and s.op == "dot" for s in body):
        return frozenset()
    counts = Counter(v.name for s in body for v in defs(s))
    views = {s.results[0].name: s.args[0].name for s in body
             if isinstance(s, Op) and s.op in TENSOR_VIEWS and isinstance(s.args[0], Var)}  # fmt: skip
    written = {_root(x, views) for s in body if (x := written_tensor(s)) is not None}
    readers: dict[str, list[Stmt]] = {}
    for s in body:
        for v in uses(s):
            readers.setdefault(v.name, []).append(s)
    out: set[str] = set()
    for s in body:
        if not (isinstance(s, Op) and s.op == "load") or s.attr("pad") or s.results[0].type.rank != 2:  # type: ignore
            continue
        name = s.results[0].name
        if counts[name] == 1 and _root(s.args[0], views) not in written and all(
            _multiplies_row(reader, name) for reader in readers.get(name, [])
        ):
            out.add(name)
    return frozenset(out)


def multiplied_rows(func: Func, streamed: frozenset[str]) -> frozenset[str]:
    """Tiles that nothing but products of one row by streamed matrices reads, as that row."""
    if not streamed:
        return frozenset()
    out: set[str] = set()
    other: set[str] = set()
    for s in statements(func.body):
        row = s.args[0] if isinstance(s, Op) and s.op == "dot" and _streams(s, streamed) else None
        for v in uses(s):
            (out if v == row else other).add(v.name)
        if isinstance(row, Var) and row in s.args[1:]:  # type: ignore[union-attr]
            other.add(row.name)
    return frozenset(out - other)


def copied_rows(func: Func, multiplied: frozenset[str]) -> frozenset[str]:
    """Those of such rows that are loaded: they go to shared memory, and no thread holds them."""
    counts = Counter(v.name for s in statements(func.body) for v in defs(s)) if multiplied else Counter[str]()
    return frozenset(
        s.results[0].name for s in statements(func.body)
        if isinstance(s, Op) and s.op == "load" and not s.attr("pad") and s.results[0].name in multiplied
        and counts[s.results[0].name] == 1
    )  # fmt: skip


def multiplies_matrices(stmt: Stmt) -> bool:
    """Whether a statement is a product of two matrices of several rows and columns; not of batches of them."""
    return isinstance(stmt, Op) and stmt.op == "dot" and not is_thin(stmt) and not is_high(stmt.results[0])


def is_thin(op: Op) -> bool:
    """Whether a product has an axis of extent 1."""
    return op.op == "dot" and not is_high(op.results[0]) and 1 in _extents(op)


def without_thin_products(func: Func, streamed: frozenset[str], is_below: IsBelow = never_below) -> Func:
    """A kernel whose products with an axis of extent 1 are those of one row by a streamed load.

    is_below: whether a number is known to be less than an extent of a tensor.
    """
    if not any(isinstance(s, Op) and is_thin(s) and not _streams(s, streamed) for s in statements(func.body)):
        return func
    rewriter = _Rewriter(block_defs(func.body) | {p.name for p in func.params}, UnitAxes(func.body, is_below))

    def rewritten(s: Stmt) -> tuple[Stmt, ...] | None:
        thin = isinstance(s, Op) and is_thin(s) and not _streams(s, streamed)
        return rewriter.product(s) if thin else None  # type: ignore[arg-type]

    return replace(func, body=rewrite_block(func.body, rewritten))


def _root(tensor: Operand, views: dict[str, str]) -> str:
    assert isinstance(tensor, Var)
    name = tensor.name
    while name in views:
        name = views[name]
    return name


def _multiplies_row(reader: Stmt, name: str) -> bool:
    """Whether a statement is the product of one row by the matrix `name`."""
    if not isinstance(reader, Op) or reader.op != "dot" or reader.results[0].type.rank != 2:  # type: ignore[union-attr]
        return False
    rows, depth, columns = _extents(reader)
    others = [a.name for k, a in enumerate(reader.args) if k != 1 and isinstance(a, Var)]
    return rows == 1 and depth != 1 and columns != 1 and name not in others


def _streams(op: Op, streamed: frozenset[str]) -> bool:
    return isinstance(op.args[1], Var) and op.args[1].name in streamed


def _extents(op: Op) -> tuple[int | None, int | None, int | None]:
    """Rows, what is contracted, and columns of a product: 1 is contracted where both operands are known to have it, as
    the other one would not broadcast."""
    left, right = (a.type.shape[-2:] for a in op.args[:2])  # type: ignore[union-attr]
    sides = left[1], right[0]
    depth = 1 if sides == (1, 1) else next((n for n in sides if n not in (None, 1)), None)
    return left[0], depth, right[1]


class _Rewriter:
    def __init__(self, taken: set[str], units: UnitAxes) -> None:
        self.taken = taken
        self.units = units
        self.fitting = fitting_axes(units.body)
        self.out: list[Stmt] = []
        self.loc: Loc

    def product(self, op: Op) -> tuple[Stmt, ...]:
        """The operations that a thin product is."""
        self.out, self.loc = [], op.loc
        rows, depth, columns = _extents(op)
        rank = op.results[0].type.rank  # type: ignore[union-attr]
        down, along = rank - 2, rank - 1
        dtype = product_dtype(op.args[0].type.dtype)
        left, right = (self._cast(a, dtype) for a in op.args[:2])
        if depth == 1:
            left, right = self._not_empty(op, left, right)
            total = self._op("mul", "terms", dtype, (rows, columns), left, right)
        elif columns == 1:
            terms = self._op("mul", "terms", dtype, (rows, depth), left, self._turned(right))
            total = self._op("sum", "sum", dtype, (rows, 1), terms, attrs=(("axes", (along,)), ("keepdims", True)))
        else:
            terms = self._op("mul", "terms", dtype, (depth, columns), self._turned(left), right)
            total = self._op("sum", "sum", dtype, (1, columns), terms, attrs=(("axes", (down,)), ("keepdims", True)))
        for k, axis in ((0, down), (1, along)) if depth != 1 else ():
            if (rows, columns)[k] == 1:
                total = self._as_empty(total, op.args[k], axis, rank - 1 - k)
        result = op.results[0]
        if len(op.args) > 2:
            start = self._cast(op.args[2], dtype)
            total = self._op("add", "total", dtype, (rows, columns), start, total)
        name = "copy" if result.type.dtype == dtype else "cast"
        attrs = () if name == "copy" else (("dtype", result.type.dtype),)
        self.out.append(Op(name, (result,), (total,), attrs, (), self.loc))
        return tuple(self.out)

    def _as_empty(self, total: Var, operand: Operand, axis: int, other: int) -> Var:
        """A tile of which an axis of extent 1 is empty where that of an operand is: the sums have one element there.

        other: the axis of the operand that is contracted.
        """
        if self.units.are_complete(operand, axis):
            return total
        some = self._op("any", "some", bool_, (1, 1), operand, attrs=(("axes", (other,)), ("keepdims", True)))
        kind = total.type
        assert isinstance(kind, TileType)
        return self._op("select", "sum", kind.dtype, kind.shape, some, total, total)

    def _not_empty(self, op: Op, left: Operand, right: Operand) -> tuple[Operand, Operand]:
        """The operands of a product that contracts one element, or none: then one of them is zeros."""
        rank = op.results[0].type.rank  # type: ignore[union-attr]
        sides = [(a, rank - 1 - k, self.units.are_complete(a, rank - 1 - k)) for k, a in enumerate(op.args[:2])]
        if all(complete for *_, complete in sides):
            return left, right
        fits = [isinstance(a, Var) and a.name in self.fitting and self.fitting[a.name][axis] for a, axis, _ in sides]
        counts = [self._count(a, axis) for a, axis, _ in sides]
        if not any(fits):
            self._require_equal(*counts)
        out: list[Operand] = []
        for k, operand in enumerate((left, right)):
            axis, dtype = sides[k][1], operand.type.dtype  # type: ignore[union-attr]
            if sides[k][2] and (sides[1 - k][2] or not fits[k]):
                out.append(operand)
            elif fits[k]:  # generated, with elements that need not be finite
                some = self._scalar("gt", "some", bool_, counts[1 - k], Const(0, _INDEX))
                zero = Const(0.0 if dtype.kind == "f" else 0, ScalarType(dtype))
                out.append(self._op("select", "chosen", dtype, operand.type.shape, some, operand, zero))  # type: ignore
            else:
                out.append(self._op("sum", "sum", dtype, operand.type.shape, operand,  # type: ignore[union-attr]
                                    attrs=(("axes", (axis,)), ("keepdims", True))))  # fmt: skip
        return out[0], out[1]

    def _count(self, tile: Operand, axis: int) -> Var:
        return self._scalar("valid", "count", i64, tile, attrs=(("axis", axis),))

    def _require_equal(self, left: Var, right: Var) -> None:
        same = self._scalar("eq", "same", bool_, left, right)
        message, told = VALID.assertion(axis="of the contraction")
        attrs = (("always", True), ("error", VALID.error.__name__), ("message", message), ("told", told))
        self.out.append(Op("assert", (), (same, left, right), attrs, (), self.loc))

    def _scalar(
        self, op: str, wish: str, dtype: DType, *args: Operand, attrs: tuple[tuple[str, Attr], ...] = ()
    ) -> Var:
        first = next(a for a in args if isinstance(a, Var))
        result = Var(unused(f"{first.name}.{wish}", self.taken), ScalarType(dtype))
        self.out.append(Op(op, (result,), args, attrs, (), self.loc))
        return result

    def _op(
        self, op: str, wish: str, dtype: DType, shape: Shape, *args: Operand, attrs: tuple[tuple[str, Attr], ...] = ()
    ) -> Var:
        first = next(a for a in args if isinstance(a, Var) and isinstance(a.type, TileType))
        whole = (1,) * (first.type.rank - 2) + shape[-2:]  # type: ignore[union-attr]
        result = Var(unused(f"{first.name}.{wish}", self.taken), TileType(dtype, whole))
        self.out.append(Op(op, (result,), args, attrs, (), self.loc))
        return result

    def _cast(self, operand: Operand, dtype: DType) -> Operand:
        assert isinstance(operand.type, TileType)
        if operand.type.dtype == dtype:
            return operand
        return self._op("cast", dtype.name, dtype, operand.type.shape, operand, attrs=(("dtype", dtype),))

    def _turned(self, operand: Operand) -> Var:
        assert isinstance(operand.type, TileType)
        *lead, rows, columns = operand.type.shape
        order = (*range(len(lead)), len(lead) + 1, len(lead))
        return self._op("transpose", "turned", operand.type.dtype, (columns, rows), operand, attrs=(("axes", order),))

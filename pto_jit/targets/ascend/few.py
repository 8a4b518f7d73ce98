# SPDX-License-Identifier: MIT
"""Products of few rows on the vector cores.

A cube core multiplies 16 rows at a time, and what goes between it and the vector cores passes through global memory.
Where a step of a recurrence is one row times a matrix, a vector core has its result before a cube core has heard of it.
For each row of the left side::

    TROWEXPANDMUL(products, right, row)     // the row of K elements, seen as a column, times the rows of K x N
    TCOLSUM(result, products)

and for a right side that is transposed, of which the tile is N x K::

    TCOLEXPANDMUL(products, right, row)
    TROWSUM(result, products, scratch)      // a column of N elements, seen as a row

A kernel is written so where a left side has one row, or where tiles that the kernel stores are loaded in it again,
which two kinds of cores could not do in step; and where no left side has more than 16 rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.dtypes import f32
from pto_jit.ir.nodes import Func, Op, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import TENSOR_VIEWS, WRITES, statements, uses
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.values import Value, physical
from pto_jit.targets.cuda.nests import writes

if TYPE_CHECKING:
    from pto_jit.targets.ascend.vector import VectorWriter

_MOST = 16
_FLOATS = frozenset(["f16", "bf16", "f32"])


def is_on_vector_cores(func: Func) -> bool:
    """Whether the products of a kernel are taken on the vector cores."""
    ops = [s for s in statements(func.body) if isinstance(s, Op)]
    dots = [s for s in ops if s.op == "dot"]
    heights = [_height(s) for s in dots]
    if not dots or any(h is None or h > _MOST for h in heights):
        return False
    if any(a.type.dtype.name not in _FLOATS for s in dots for a in s.args[:2]):  # type: ignore[union-attr]
        return False
    return 1 in heights or _loads_what_it_stores(ops)


def turned_operands(func: Func) -> frozenset[str]:
    """Transposed tiles that nothing but products have on their right side."""
    ops = list(statements(func.body))
    right = {s.args[1].name for s in ops if isinstance(s, Op) and s.op == "dot" and isinstance(s.args[1], Var)}
    if not right:
        return frozenset()
    other = {
        v.name for s in ops for k, v in enumerate(s.args if isinstance(s, Op) else uses(s))
        if isinstance(v, Var) and not (isinstance(s, Op) and s.op == "dot" and k == 1)
    }  # fmt: skip
    return frozenset(
        s.results[0].name for s in ops
        if isinstance(s, Op) and s.op == "transpose" and s.results[0].name in right - other
    )  # fmt: skip


def write_product(w: VectorWriter, op: Op) -> None:
    """`dot` of a tile of few rows."""
    loc, var = op.loc, op.results[0]
    turned = isinstance(op.args[1], Var) and op.args[1].name in w.turned
    left, right = w.value(op.args[0]), w.value(op.args[1])
    assert isinstance(left, Value) and isinstance(right, Value)
    if left.span not in ("row", "full") or right.span != "full":
        raise unsupported("a product with a tile of one column, or one row on the right side", loc,
                          "multiply the tiles with `*`, and sum")  # fmt: skip
    a, b = (w.elementwise.converted(v, f32, w.temp, loc) for v in (left, right))
    inner, outer = (1, 0) if turned else (0, 1)  # the axes of the right side
    w.agree(a.valid[1], b.valid[inner], loc)
    depth, width = b.valid[inner] if isinstance(b.valid[inner], int) else a.valid[1], b.valid[outer]
    room = min(-(-a.capacity[1] // 8) * 8, b.capacity[inner])  # the tile on the right may have memory for more
    shape = (b.capacity[0], room) if turned else (room, b.capacity[1])
    valid = (width, depth) if turned else (depth, width)
    if turned and room != b.capacity[1]:
        shape = b.capacity  # its rows lie as far apart as they do
    factor = Value(b.name, f32, "full", shape, valid, b.buffer)
    height = _height(op)
    assert height is not None
    adds = len(op.args) == 3
    plain = not adds and var.name not in w.facts.mutable  # else operands may lie where the result goes
    to = w.destination(var) if plain else w.temp
    rows, span = (1, "row") if height == 1 else (a.capacity[0], "full")
    out: Value = to(f32, span, (rows, b.capacity[outer]), (a.valid[0], width))
    products = w.temp(f32, "full", shape, valid)
    scratch = w.temp(f32, "full", shape, valid) if turned else None
    for row in range(height):
        at, there = (row * 4 * physical(f32, v.span, v.capacity)[1] for v in (a, out))
        if turned:
            line = Value(a.name, f32, "row", (1, a.capacity[1]), (1, depth), a.buffer)
            result = Value(out.name, f32, "column", (shape[0], 1), (width, 1), out.buffer)
            tiles = [w.tile(v, loc=loc) for v in (products, factor)]
            w.emit("TCOLEXPANDMUL", *tiles, w.tile(line, loc=loc, offset=at), loc=loc)
            assert scratch is not None
            w.emit("TROWSUM", w.tile(result, "column", loc=loc, offset=there), tiles[0], w.tile(scratch, loc=loc),
                   loc=loc)  # fmt: skip
        else:
            line = Value(a.name, f32, "column", (room, 1), (depth, 1), a.buffer)
            result = Value(out.name, f32, "row", (1, shape[1]), (1, width), out.buffer)
            tiles = [w.tile(v, loc=loc) for v in (products, factor)]
            w.emit("TROWEXPANDMUL", *tiles, w.tile(line, "column", loc=loc, offset=at), loc=loc)
            w.emit("TCOLSUM", w.tile(result, loc=loc, offset=there), tiles[0], loc=loc)
    if adds:
        w.elementwise.binary("ADD", out, w.value(op.args[2]), w.destination(var), loc)
    elif not plain:
        w.elementwise.unary("TMOV", out, w.destination(var), loc)


def _height(dot: Op) -> int | None:
    """The rows of the left side."""
    typ = dot.args[0].type
    assert isinstance(typ, TileType)
    return typ.shape[-2] if typ.rank == 2 else None


def _loads_what_it_stores(ops: list[Op]) -> bool:
    roots: dict[str, str] = {}
    for s in ops:
        if s.op in TENSOR_VIEWS and isinstance(s.args[0], Var):
            roots[s.results[0].name] = roots.get(s.args[0].name, s.args[0].name)

    def of(operand: object) -> str:
        assert isinstance(operand, Var)
        return roots.get(operand.name, operand.name)

    return bool({of(s.args[0]) for s in ops if s.op == "load"} & {of(s.args[WRITES[s.op]]) for s in ops if writes(s)})

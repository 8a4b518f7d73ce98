# SPDX-License-Identifier: MIT
"""Which part of a tensor parameter a function uses: the tile that one call of it works on."""

from __future__ import annotations

from collections.abc import Mapping

from pto_jit.ir.nodes import Call, Const, Func, Op, Operand, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, WRITES, statements
from pto_jit.slotted import frozen

Extent = int | None


@frozen
class Footprint:
    """Rows and columns from the origin that are used; None where they depend on run-time values.

    `widths` are the columns of the single accesses.
    """

    rows: Extent
    cols: Extent
    widths: frozenset[int]
    reads: bool
    writes: bool

    @property
    def known(self) -> bool:
        return self.rows is not None and self.cols is not None and bool(self.widths)


def footprint(func: Func, position: int, funcs: Mapping[str, Func]) -> Footprint:
    """The footprint of a parameter of two axes; declared extents count as used."""
    return _Reader(funcs).parameter(func, position)


class _Reader:
    def __init__(self, funcs: Mapping[str, Func]) -> None:
        self.funcs = funcs
        self.known: dict[tuple[str, int], Footprint] = {}

    def parameter(self, func: Func, position: int) -> Footprint:
        key = (func.name, position)
        if key not in self.known:
            self.known[key] = Footprint(None, None, frozenset(), True, True)  # of a call that calls itself
            self.known[key] = self._parameter(func, func.params[position])
        return self.known[key]

    def _parameter(self, func: Func, param: Var) -> Footprint:
        accesses = _Accesses()
        for stmt in statements(func.body):
            if isinstance(stmt, Call):
                self._call(stmt, param, accesses)
            elif isinstance(stmt, Op) and any(isinstance(a, Var) and a.name == param.name for a in stmt.args):
                _op(stmt, param, accesses)
        rows, cols = accesses.rows, accesses.cols
        if isinstance(param.type, TensorType) and param.type.rank == 2:
            declared = param.type.shape
            rows, cols = (declared[0] or rows), (declared[1] or cols)
        return Footprint(rows, cols, frozenset(accesses.widths), accesses.reads, accesses.writes)

    def _call(self, call: Call, param: Var, accesses: _Accesses) -> None:
        callee = self.funcs.get(call.callee)
        if callee is None or len(callee.params) != len(call.args):
            return
        for place, arg in enumerate(call.args):
            if isinstance(arg, Var) and arg.name == param.name:
                inner = self.parameter(callee, place)
                accesses.extend(inner.rows, inner.cols)
                accesses.widths |= inner.widths
                accesses.reads |= inner.reads
                accesses.writes |= inner.writes


class _Accesses:
    def __init__(self) -> None:
        self.rows: Extent = 0
        self.cols: Extent = 0
        self.widths: set[int] = set()
        self.reads = self.writes = False

    def extend(self, rows: Extent, cols: Extent) -> None:
        self.rows = None if self.rows is None or rows is None else max(self.rows, rows)
        self.cols = None if self.cols is None or cols is None else max(self.cols, cols)


def _op(op: Op, param: Var, accesses: _Accesses) -> None:
    if op.op == "dim":
        return
    if op.op in TENSOR_VIEWS or op.op in ("take", "put"):
        accesses.reads = accesses.writes = True
        accesses.extend(None, None)
        return
    target = WRITES.get(op.op)
    written = target is not None and op.args[target] is not None and _is(op.args[target], param)
    accesses.writes |= written
    accesses.reads |= not written or op.op.startswith("atomic")
    tile = op.args[0].type if written else op.results[0].type if op.results else None
    offsets = op.args[2:4] if written else op.args[1:3]
    shape: tuple[Extent, ...] = tile.shape if isinstance(tile, TileType) else (1, 1)
    if len(shape) != 2 or len(offsets) != 2:
        accesses.extend(None, None)
        return
    ends = [None if extent is None or not isinstance(o, Const) else int(o.value) + extent
            for o, extent in zip(offsets, shape, strict=True)]  # fmt: skip
    accesses.extend(ends[0], ends[1])
    if shape[1] is not None and isinstance(tile, TileType):
        accesses.widths.add(shape[1])


def _is(operand: Operand, param: Var) -> bool:
    return isinstance(operand, Var) and operand.name == param.name

# SPDX-License-Identifier: MIT
"""`map` over tiles: its function as the body of a loop over the elements of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Const, For, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.targets.cpu.code import Index
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.spmd.planning import plan, write
from pto_jit.targets.cpu.values import Tensor, Tile

Rows = Callable[[list[Index]], None]
_INDEX = ScalarType(i64)


def row_writer(
    w: FunctionWriter, op: Op, tiles: Sequence[Tile], broadcast: Sequence[Sequence[bool]], outs: Sequence[Tile],
    length: Index,
) -> Rows | None:  # fmt: skip
    """What writes one row (of `length` elements, at the indices of the axes before the last) of the results.

    `broadcast` says for each tile which of its axes have one element for all.  None when the elements are better
    written one by one.
    """
    region = op.regions[0]
    at = Var(f"{op.results[0].name}.lane", _INDEX)
    rank = outs[0].rank
    outer = [Var(f"{at.name}{k}", _INDEX) for k in range(rank - 1)]
    places: list[Operand] = [*outer, at]
    zero = Const(0, _INDEX)
    body: list[Op] = []
    for k, (tile, param, one) in enumerate(zip(tiles, region.params, broadcast, strict=True)):
        tensor = _tensor(w, tile, f"{at.name}.in{k}")
        own = places[rank - tile.rank :]
        indices = [zero if single else i for i, single in zip(own, one, strict=True)]
        body.append(Op("getelem", (param,), (tensor, *indices), loc=op.loc))
    stores = [
        Op("setelem", (), (value, _tensor(w, out, f"{at.name}.out{k}"), *places), loc=op.loc)
        for k, (out, value) in enumerate(zip(outs, region.results, strict=True))
    ]
    stop = Const(length, _INDEX) if isinstance(length, int) else Var(f"{at.name}.n", _INDEX)
    loop = For("parallel", at, zero, stop, Const(1, _INDEX), (*body, *region.body, *stores), loc=op.loc)
    found = plan(w, loop)
    if found is None:
        return None

    def row(indices: list[Index]) -> None:
        for var, index in zip(outer, indices, strict=True):
            w.env[var.name] = index
        write(w, loop, found, 0, length, 1)

    return row


def _tensor(w: FunctionWriter, tile: Tile, name: str) -> Var:
    """A tile as a tensor variable."""
    w.env[name] = Tensor(tile.dtype, tile.pointer, tile.declared, tile.strides)
    last = tile.strides[-1]
    packed = isinstance(last, int) and last == tile.dtype.bytes
    return Var(name, TensorType(tile.dtype, (None,) * tile.rank, "inner" if packed else "strided"))

# SPDX-License-Identifier: MIT
"""Which function writes which operation on tiles, outside of groups."""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.ir.nodes import Fuse, Op
from pto_jit.ir.types import TileType
from pto_jit.lower.groups.axes import ELEMENTWISE, GENERATED, REDUCTIONS, Axial
from pto_jit.targets.cpu import atomics, indirect, joining, order, places, regions, selecting, structure
from pto_jit.targets.cpu.constants import I32, PTR, VOID, Index, i64, number
from pto_jit.targets.cpu.elements import each, read
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.groups import write_group
from pto_jit.targets.cpu.products import write_dot
from pto_jit.targets.cpu.tensors import bits64
from pto_jit.targets.cpu.values import Tile

Handler = Callable[[FunctionWriter, Op], None]


def write_print(w: FunctionWriter, op: Op) -> None:
    """`print`: every number in a 64-bit slot; tiles as their valid extents and elements."""
    code = w.code
    kinds: list[str] = []
    size: Index = 0
    for a in op.args:
        if isinstance(a.type, TileType):
            tile = w.tile(a)
            kinds.append(f"{tile.dtype}:{tile.rank}")
            size = code.add(size, tile.rank, code.mul(*tile.valid))
        else:
            kinds.append(str(a.type.dtype))  # pyright: ignore[reportAttributeAccessIssue]
            size = code.add(size, 1)
    number_ = w.module.print_site(str(op.attr("fmt")), tuple(kinds), op.loc)
    block = code.call("pto_scratch_push", PTR, [code.worker, i64(code.max(code.mul(size, 8), 64))])
    w.got_memory(block)
    at: Index = 0
    for a in op.args:
        if isinstance(a.type, TileType):
            tile = w.tile(a)
            for n in tile.valid:
                code.b.store(i64(n), code.offset(block, code.mul(at, 8)), align=8)
                at = code.add(at, 1)
            start = at

            def body(i: list[Index], tile: Tile = tile, start: Index = start) -> None:
                place: Index = 0
                for k, n in zip(i, tile.valid, strict=True):
                    place = code.add(code.mul(place, n), k)
                value = bits64(w, read(w, tile, i), tile.dtype)
                code.b.store(value, code.offset(block, code.mul(code.add(start, place), 8)), align=8)

            each(w, tile.valid, body)
            at = code.add(at, code.mul(*tile.valid))
        else:
            value = bits64(w, w.scalar(a), a.type.dtype)  # pyright: ignore[reportAttributeAccessIssue]
            code.b.store(value, code.offset(block, code.mul(at, 8)), align=8)
            at = code.add(at, 1)
    count = i64(size) if isinstance(size, int) else size
    code.call("pto_print", VOID, [code.worker, number(I32, number_), block, code.b.trunc(count, I32)])
    code.call("pto_scratch_pop", VOID, [code.worker, block])


def _group(w: FunctionWriter, op: Op) -> None:
    """A single operation as a group of its own."""
    if Axial().admit(op):
        with w.passing_results():
            write_group(w, Fuse((op,), tuple(r.name for r in op.results), op.loc))
        return
    places.write_reduction(w, op)


TILE_OPS: dict[str, Handler] = {
    **dict.fromkeys((*ELEMENTWISE, *GENERATED, *REDUCTIONS, "store", "broadcast_to"), _group),
    "load": structure.write_load, "tile_slice": structure.write_tile_slice, "transpose": structure.write_transpose,
    "flip": structure.write_flip, "reshape": structure.write_reshape, "concat": joining.write_concat,
    "stack": joining.write_stack, "extract": structure.write_extract, "valid": structure.write_measure,
    "extent": structure.write_measure, "gather": indirect.write_gather, "take": indirect.write_take,
    "put": indirect.write_put, "atomic_add": atomics.write_atomic, "atomic_max": atomics.write_atomic,
    "atomic_min": atomics.write_atomic, "print": write_print, "dot": write_dot,
    "argmax": places.write_arg_reduction, "argmin": places.write_arg_reduction, "cumsum": regions.write_cumulate,
    "cumprod": regions.write_cumulate, "map": regions.write_map, "fold": regions.write_fold,
    "assoc_scan": regions.write_scan, "sort": order.write_sort, "argsort": order.write_sort,
    "topk": selecting.write_topk, "histogram": order.write_histogram,
}  # fmt: skip
"""By the operation's name."""

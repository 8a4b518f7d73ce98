# SPDX-License-Identifier: MIT
"""Tiles element by element: loops over all indices, reading and writing one element, memory for results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from pto_jit.ir.nodes import Op, Var
from pto_jit.ir.types import TileType
from pto_jit.semantic import failures
from pto_jit.targets.cpu.constants import I64, Index, Value, number, storage_type
from pto_jit.targets.cpu.elementwise import from_memory, to_memory
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.tiles import assign_tile
from pto_jit.targets.cpu.values import Tensor, Tile


def each(w: FunctionWriter, extents: Sequence[Index], body: Callable[[list[Index]], None]) -> None:
    """Nested loops over all indices below `extents`."""

    def axis(k: int, indices: list[Index]) -> None:
        if k == len(extents):
            body(indices)
            return

        def inner(i: Value, _: list[Value]) -> Sequence[Value]:
            axis(k + 1, [*indices, i])
            return ()

        w.code.loop(0, extents[k], body=inner, name=f"axis{k}")

    axis(0, [])


def unrolled(w: FunctionWriter, start: Index, stop: Index, body: Callable[[Value], None], name: str) -> None:
    """`body(i)` for i from `start` to `stop`, four at a time: short bodies that wait for nothing but their loop."""
    code, times = w.code, 4
    whole = code.add(start, code.floor(code.max(code.sub(stop, start), 0), times))

    def several(i: Value, _: list[Value]) -> Sequence[Value]:
        for k in range(times):
            body(i if k == 0 else w.b.add(i, number(I64, k), flags=("nsw",)))
        return ()

    def one(i: Value, _: list[Value]) -> Sequence[Value]:
        body(i)
        return ()

    code.loop(start, whole, times, body=several, name=name)
    code.loop(whole, stop, body=one, name=name)


def address(w: FunctionWriter, tile: Tile | Tensor, indices: Sequence[Index]) -> Value:
    """Where an element lies."""
    distance: Index = 0
    for i, stride in zip(indices, tile.strides, strict=True):
        distance = w.code.add(distance, w.code.mul(i, stride))
    return w.code.offset(tile.pointer, distance)


def line(w: FunctionWriter, tile: Tile | Tensor, outer: Sequence[Index]) -> Tensor:
    """The elements along the last axis at these indices of the others, their address computed here."""
    return Tensor(tile.dtype, address(w, tile, [*outer, 0]), (_valid(tile)[-1],), tile.strides[-1:])


def _valid(tile: Tile | Tensor) -> tuple[Index, ...]:
    return tile.valid if isinstance(tile, Tile) else tile.extents


def read(w: FunctionWriter, tile: Tile | Tensor, indices: Sequence[Index]) -> Value:
    """An element in register form."""
    raw = w.b.load(address(w, tile, indices), typ=storage_type(tile.dtype), align=tile.dtype.bytes)
    return from_memory(w.b, raw, tile.dtype)


def write(w: FunctionWriter, tile: Tile | Tensor, indices: Sequence[Index], value: Value) -> None:
    """Store an element given in register form."""
    w.b.store(to_memory(w.b, value, tile.dtype), address(w, tile, indices), align=tile.dtype.bytes)


def new_tile(
    w: FunctionWriter, var: Var, declared: Sequence[Index], valid: Sequence[Index], fits: tuple[Index, ...] = ()
) -> Tile:
    """Memory for a result (for a variable assigned more than once: memory to be copied from by `give`)."""
    assert isinstance(var.type, TileType)
    name = var.name if var.name not in w.mutable else var.name + ".new"
    pointer, strides = w.buffer(name, var.type.dtype, declared)
    return Tile(var.type.dtype, pointer, tuple(declared), tuple(valid), strides, fits=fits)


def need_places(w: FunctionWriter, op: Op, valid: Sequence[Index], declared: Sequence[Index]) -> None:
    """Elements along the axes that an operation searches or counts are as many as i32 can tell apart, or it fails.

    They are numbered in row-major order of the declared extents, as far as the first axis is valid.
    """
    code = w.code

    def count(first: Index) -> Index:
        for extent in declared[1:]:
            first = code.mul(first, extent)
        return first

    most = count(declared[0]) if all(isinstance(extent, int) for extent in declared) else None
    if most is not None and code.compare("<=", most, failures.MOST_PLACES) is True:
        return
    found = count(valid[0])
    site = w.module.site(*failures.PLACES.at(what=op.op), op.loc)
    code.check(code.compare("<=", found, failures.MOST_PLACES), site, found)


def topk_count(w: FunctionWriter, op: Op, tile: Tile) -> Index:
    """How many elements `topk` gives: k, fewer of an incomplete tile; a k beyond the declared extent is an error."""
    code, k, declared = w.code, cast(int, op.attr("k")), tile.declared[-1]
    need_places(w, op, tile.valid[-1:], (declared,))
    code.check(code.compare("<=", k, declared), w.module.site(*failures.TOPK.at(k=k), op.loc), declared)
    return code.min(tile.valid[-1], k)


def give(w: FunctionWriter, var: Var, tile: Tile) -> None:
    """Make `tile` the value of `var`."""
    assign_tile(w, var, tile)

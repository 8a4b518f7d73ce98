# SPDX-License-Identifier: MIT
"""Tiles in memory: loads as views, copies, and the variables that hold tiles."""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.dtypes import DType
from pto_jit.ir.nodes import Op, Var
from pto_jit.ir.types import TileType
from pto_jit.lower.groups.fitting import fits_with
from pto_jit.semantic import failures
from pto_jit.targets.cpu.constants import I64, PTR, VOID, Index, Value, i64, number, zero
from pto_jit.targets.cpu.elementwise import splat, to_memory
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.tensors import region
from pto_jit.targets.cpu.values import Tensor, Tile, TileSlot


def load_tile(w: FunctionWriter, op: Op) -> Tile:
    """The tile of a load as a view of the tensor; with a pad value, memory of its own where part lies outside."""
    tensor = w.tensor(op.args[0])
    rank = len(tensor.extents)
    offsets = [w.index(a) for a in op.args[1 : 1 + rank]]
    declared = tuple(w.index(a) for a in op.args[1 + rank : 1 + 2 * rank])
    for axis, (extent, size) in enumerate(zip(declared, tensor.extents, strict=True)):
        if extent is not size:
            need_extent(w, op, axis, extent)
    if op.attr("pad") and w.padded is not None:
        tile = w.padded(op, tensor, offsets, declared)
        if tile is not None:
            return tile
    pointer, inside = region(w, tensor, offsets, declared, op.loc)
    w.record(op, tensor, pointer, inside, tensor.strides)
    if op.attr("pad"):
        return _padded(w, op, tensor, pointer, declared, inside)
    return Tile(tensor.dtype, pointer, declared, inside, tensor.strides, view=True)


def need_extent(w: FunctionWriter, op: Op, axis: int, extent: Index) -> None:
    """A declared extent must not be negative."""
    enough = w.code.compare(">=", extent, 0)
    if enough is not True:
        w.code.check(enough, w.module.site(*failures.EXTENT.at(axis=axis), op.loc), extent)


def _padded(
    w: FunctionWriter, op: Op, tensor: Tensor, pointer: Value, declared: tuple[Index, ...], inside: tuple[Index, ...]
) -> Tile:
    code = w.code
    whole = code.all_of([code.compare("==", a, b) for a, b in zip(declared, inside, strict=True)])
    if whole is True:
        return Tile(tensor.dtype, pointer, declared, inside, tensor.strides, view=True)
    memory, strides = w.buffer(op.results[0].name, tensor.dtype, declared)
    fill = to_memory(w.b, w.scalar(op.args[-1]), tensor.dtype)

    def in_place() -> Sequence[Value]:
        return (pointer, *map(code.constant, tensor.strides))

    def copied() -> Sequence[Value]:
        _fill(w, tensor.dtype, memory, code.mul(*declared), fill)
        copy_region(w, tensor.dtype, memory, strides, pointer, tensor.strides, inside)
        return (memory, *map(code.constant, strides))

    got = code.choose(whole, in_place, copied)
    out = tuple(s if isinstance(s, int) and s == t else g
                for s, t, g in zip(strides, tensor.strides, got[1:], strict=True))  # fmt: skip
    return Tile(tensor.dtype, got[0], declared, declared, out, view=True)


def copy_region(
    w: FunctionWriter, dtype: DType, to: Value, to_strides: Sequence[Index], source: Value,
    source_strides: Sequence[Index], extents: Sequence[Index],
) -> None:  # fmt: skip
    """Copy a strided region; what cold paths use."""
    w.code.copy(to, source, dtype.bytes, extents, to_strides, source_strides)


def fill_tile(w: FunctionWriter, tile: Tile, value: Value) -> None:
    """Every element of a contiguous tile."""
    count = w.code.mul(*tile.declared) if tile.declared else 1
    _fill(w, tile.dtype, tile.pointer, count, to_memory(w.b, value, tile.dtype))


def _fill(w: FunctionWriter, dtype: DType, pointer: Value, count: Index, raw: Value) -> None:
    """So many elements, given as they are stored; by vectors where the target has them."""
    if w.fill is not None:
        w.fill(dtype, pointer, count, raw)
        return
    code, size = w.code, dtype.bytes

    def store(i: Value, value: Value) -> Sequence[Value]:
        code.b.store(value, code.offset(pointer, code.mul(i, size)), align=size)
        return ()

    start: Index = 0
    if lanes := w.module.vector_bytes // size:
        start, every = code.floor(count, lanes), splat(code.b, raw, lanes)
        code.loop(0, start, lanes, body=lambda i, _: store(i, every), name="fill")
    code.loop(start, count, body=lambda i, _: store(i, raw), name="fill")


def materialise(w: FunctionWriter, name: str, tile: Tile) -> Tile:
    """The valid part of a view in memory of its own, belonging to the variable `name`."""
    pointer, strides = w.buffer(name, tile.dtype, tile.declared)
    copy_region(w, tile.dtype, pointer, strides, tile.pointer, tile.strides, tile.valid)
    return Tile(tile.dtype, pointer, tile.declared, tile.valid, strides, fits=tile.fits)


def tile_slot(w: FunctionWriter, var: Var, declared: tuple[Index, ...]) -> TileSlot:
    """The memory of a tile variable that is assigned more than once, large enough for `declared`."""
    code = w.code
    assert isinstance(var.type, TileType)
    dtype = var.type.dtype
    slot = w.env.get(var.name)
    fixed = all(isinstance(e, int) for e in var.type.shape)
    if not isinstance(slot, TileSlot):
        complete = w.complete.get(var.name) or (False,) * len(declared)
        valid = tuple(e if known and e is not None else code.alloca(I64, f"{var.name}.valid")
                      for e, known in zip(var.type.shape, complete, strict=True))  # fmt: skip
        fits = tuple([code.alloca(I64, f"{var.name}.fits") if may else 0 for may in w.generated.get(var.name, ())])
        if fixed:
            size = dtype.bytes
            for e in var.type.shape:
                assert e is not None
                size *= e
            pointer = w.variable_memory(var.name, dtype, max(size, 1))
            slot = TileSlot(dtype, pointer, tuple(int(e) for e in var.type.shape if e is not None), valid,
                            fits=fits)  # fmt: skip
        else:
            place, capacity = code.alloca(PTR, var.name), code.alloca(I64, f"{var.name}.capacity")
            with code.at_entry():
                code.b.store(zero(PTR), place)
                code.b.store(number(I64, 0), capacity)
            w.heap.append(place)
            shape = tuple(code.alloca(I64, f"{var.name}.extent") for _ in declared)
            slot = TileSlot(dtype, place, shape, valid, capacity, fits)
        w.env[var.name] = slot
    if slot.capacity is not None:
        size = code.bytes(dtype.bytes, declared)
        have = code.b.load(slot.capacity, typ=I64)
        with code.when(code.b.icmp_signed("<", have, i64(size)), likely=False):
            code.call("pto_buffer_free", VOID, [code.worker, code.b.load(slot.pointer, typ=PTR)])
            code.b.store(zero(PTR), slot.pointer)
            pointer = code.call("pto_buffer_alloc", PTR, [code.worker, i64(size)])
            w.got_memory(pointer)
            code.b.store(pointer, slot.pointer)
            code.b.store(i64(size), slot.capacity)
        for place, extent in zip(slot.declared, declared, strict=True):
            code.b.store(i64(extent), place)
    return slot


def set_valid(w: FunctionWriter, slot: TileSlot, tile: Tile) -> None:
    """The variable has as much as the tile that was computed into its memory."""
    for place, valid in zip(slot.valid, tile.valid, strict=True):
        if not isinstance(place, int):
            w.b.store(w.code.constant(valid), place)
    for axis, place in enumerate(slot.fits):
        if not isinstance(place, int):
            w.b.store(w.code.constant(tile.fits[axis] if tile.fits else 0), place)


def may_fit(tile: Tile, axis: int) -> bool:
    """Whether a tile may have been generated along an axis."""
    return bool(tile.fits) and not (isinstance(fits := tile.fits[axis], int) and fits == 0)


def fits_anything(w: FunctionWriter, tile: Tile, axis: int) -> bool | Value:
    """Whether a tile goes with any valid extent of an axis: it was generated along it, and is complete."""
    code = w.code
    if not may_fit(tile, axis):
        return False
    generated = code.compare("!=", tile.fits[axis], 0)
    return code.all_of([generated, code.compare("==", tile.valid[axis], tile.declared[axis])])


def given_fits(w: FunctionWriter, op: Op, operands: Sequence[tuple[Index, ...]]) -> tuple[Index, ...]:
    """`fits` of the tile that an operation gives; operands: those of its operands (of a number: empty)."""
    found = tuple([
        0 if axes is None else _all_fit(w, [operands[n][k] if operands[n] else 0 for n, k in axes])
        for axes in fits_with(op)
    ])  # fmt: skip
    return () if all(isinstance(f, int) and f == 0 for f in found) else found


def _all_fit(w: FunctionWriter, fits: Sequence[Index]) -> Index:
    """Generated when they all are."""
    known = [f for f in fits if isinstance(f, int)]
    if 0 in known:
        return 0
    out: Index = 1
    for flag in fits:
        if not isinstance(flag, int):
            out = flag if isinstance(out, int) else w.code.min(out, flag)
    return out


def assign_tile(w: FunctionWriter, var: Var, tile: Tile) -> None:
    """`var = tile`: copies the valid part into the variable's memory."""
    if var.name not in w.mutable:
        w.env[var.name] = tile
        return
    slot = tile_slot(w, var, tile.declared)
    now = w.read_slot(slot)
    if now.pointer is not tile.pointer:
        copy_region(w, tile.dtype, now.pointer, w.strides(tile.dtype, tile.declared), tile.pointer, tile.strides,
                    tile.valid)  # fmt: skip
    set_valid(w, slot, tile)

# SPDX-License-Identifier: MIT
"""Operations that move elements of tiles: slices, reshapes, transposes, joining, indirect access.

Where nothing has to move, the result is a view: the same memory with other strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.ir.nodes import Op, Operand, Var
from pto_jit.ir.types import TileType
from pto_jit.lower.groups.axes import unit_reshape
from pto_jit.semantic import failures
from pto_jit.targets.cpu.constants import Index, Value
from pto_jit.targets.cpu.elements import give, new_tile, read
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.tiles import (
    assign_tile,
    copy_region,
    fits_anything,
    given_fits,
    load_tile,
    materialise,
    may_fit,
)
from pto_jit.targets.cpu.values import Tile, TileSlot


def give_view(w: FunctionWriter, op: Op, tile: Tile) -> None:
    """A result that is a view of the operand's memory; a copy where that memory may change while it lives."""
    var, source = op.results[0], op.args[0]
    assert isinstance(source, Var)
    slot = isinstance(w.env.get(source.name), TileSlot)
    if var.name in w.mutable:
        if source.name == var.name:  # the copy must not overwrite what it still has to read
            tile = materialise(w, f"{var.name}.old", tile)
        assign_tile(w, var, tile)
        return
    if slot or var.name in w.hazards:
        tile = materialise(w, var.name, tile)
    else:
        w.share(var.name, source.name)
    w.env[var.name] = tile


def write_load(w: FunctionWriter, op: Op) -> None:
    """`load` outside of a group."""
    name = op.results[0].name
    tile = load_tile(w, op)
    if name in w.hazards:
        tile = materialise(w, name, tile)
    assign_tile(w, op.results[0], tile)


def write_tile_slice(w: FunctionWriter, op: Op) -> None:
    """`tile_slice`: a view, clipped at the valid part."""
    code = w.code
    tile = w.tile(op.args[0])
    rank = tile.rank
    starts = [w.index(a) for a in op.args[1 : 1 + rank]]
    extents = [w.index(a) for a in op.args[1 + rank : 1 + 2 * rank]]
    drop: Any = op.attr("drop") or ()
    valid: list[Index] = []
    distance: Index = 0
    for axis in range(rank):
        start, extent, have = starts[axis], extents[axis], tile.valid[axis]
        site = w.module.site(*failures.SLICE.at(axis=axis), op.loc)
        code.check(code.all_of([code.compare(">=", start, 0), code.compare(">=", extent, 0)]), site, start, extent)
        if axis in drop:
            site = w.module.site(*failures.ELEMENT.at(axis=axis), op.loc)
            code.check(code.compare("<", start, have), site, start, have)
        distance = code.add(distance, code.mul(start, tile.strides[axis]))
        if isinstance(start, int) and start == 0 and (extent is have or (isinstance(extent, int) and extent == have)):
            valid.append(extent)
        else:
            valid.append(code.max(code.min(extent, code.sub(have, start)), 0))
    kept = [k for k in range(rank) if k not in drop]
    out = Tile(
        tile.dtype, code.offset(tile.pointer, distance), tuple(extents[k] for k in kept), tuple(valid[k] for k in kept),
        tuple(tile.strides[k] for k in kept), tile.view, given_fits(w, op, [tile.fits]),
    )  # fmt: skip
    give_view(w, op, out)


def write_transpose(w: FunctionWriter, op: Op) -> None:
    """`transpose`: a view."""
    tile = w.tile(op.args[0])
    axes: Any = op.attr("axes")
    out = Tile(
        tile.dtype, tile.pointer, tuple(tile.declared[a] for a in axes), tuple(tile.valid[a] for a in axes),
        tuple(tile.strides[a] for a in axes), tile.view, given_fits(w, op, [tile.fits]),
    )  # fmt: skip
    give_view(w, op, out)


def write_flip(w: FunctionWriter, op: Op) -> None:
    """`flip` of the valid part: a view with a negative stride."""
    tile = w.tile(op.args[0])
    axis: Any = op.attr("axis")
    code = w.code
    last = code.mul(code.sub(tile.valid[axis], 1), tile.strides[axis])
    strides = list(tile.strides)
    strides[axis] = code.sub(0, strides[axis])
    pointer = code.offset(tile.pointer, code.pick(code.compare("==", tile.valid[axis], 0), 0, last))
    give_view(w, op, Tile(tile.dtype, pointer, tile.declared, tile.valid, tuple(strides), tile.view, tile.fits))


def need_complete(w: FunctionWriter, op: Op, tile: Tile, what: str, axes: Sequence[int] | None = None) -> None:
    """What would leave a hole is an error."""
    for axis in range(tile.rank) if axes is None else axes:
        site = w.module.site(*failures.HOLE.at(what=what, axis=axis), op.loc)
        w.code.check(w.code.compare("==", tile.valid[axis], tile.declared[axis]), site, tile.valid[axis],
                     tile.declared[axis])  # fmt: skip


def write_reshape(w: FunctionWriter, op: Op) -> None:
    """`reshape`: a view where the elements lie in row-major order, else a copy."""
    code = w.code
    tile = w.tile(op.args[0])
    extents = tuple(w.index(a) for a in op.args[1:])
    fits = given_fits(w, op, [tile.fits])
    which = unit_reshape(op)
    if which is not None:
        kept = [k for k in which if k is not None]
        need_complete(w, op, tile, "reshape", [k for k in range(tile.rank) if k not in kept])
        valid = tuple(1 if k is None else tile.valid[k] for k in which)
        strides = tuple(0 if k is None else tile.strides[k] for k in which)
        give_view(w, op, Tile(tile.dtype, tile.pointer, extents, valid, strides, tile.view, fits))
        return
    old, new = code.mul(*tile.declared), code.mul(*extents)
    site = w.module.site(*failures.RESHAPE.at(), op.loc)
    code.check(code.compare("==", old, new), site, old, new)
    fitting, which = _only_units(w, op, tile, extents)
    strides = w.strides(tile.dtype, extents)
    if fitting is not False:  # where all it does is insert or remove axes of extent 1, the tile may be incomplete
        complete = code.all_of([code.compare("==", v, n) for v, n in zip(tile.valid, tile.declared, strict=True)])
        site = w.module.site(*failures.HOLE.at(what="reshape", axis=0), op.loc)
        code.check(code.any_of([fitting, complete]), site, tile.valid[0], tile.declared[0])
    else:
        need_complete(w, op, tile, "reshape")
    valid = tuple(
        n if fitting is False else 1 if k is None else code.pick(fitting, tile.valid[k], n)
        for k, n in zip(which, extents, strict=True)
    )
    viewed = tuple(
        n if fitting is False else 0 if k is None else code.pick(fitting, tile.strides[k], n)
        for k, n in zip(which, strides, strict=True)
    )
    packed = w.strides(tile.dtype, tile.declared)
    same = code.all_of([
        code.any_of([code.compare("==", a, b), code.compare("==", e, 1)])
        for a, b, e in zip(packed, tile.strides, tile.declared, strict=True)
    ])  # fmt: skip
    stays = code.any_of([fitting, same])
    if stays is True:
        give_view(w, op, Tile(tile.dtype, tile.pointer, extents, valid, viewed, tile.view, fits))
        return
    out = new_tile(w, op.results[0], extents, valid, fits)

    def copied() -> Sequence[Value]:
        copy_region(w, tile.dtype, out.pointer, packed, tile.pointer, tile.strides, tile.valid)
        return (out.pointer,)

    if _slot(w, op.args[0]) or op.results[0].name in w.hazards:
        give(w, op.results[0], Tile(tile.dtype, copied()[0], extents, valid, strides, tile.view, fits))
        return
    pointer = code.choose(stays, lambda: (tile.pointer,), copied)[0]
    give(w, op.results[0], Tile(tile.dtype, pointer, extents, valid, viewed, tile.view, fits))


def _only_units(
    w: FunctionWriter, op: Op, tile: Tile, extents: Sequence[Index]
) -> tuple[bool | Value, Sequence[int | None]]:
    """Whether a reshape inserts and removes axes of extent 1 only, and the operand's axis for each result axis."""
    source, result = op.args[0].type, op.results[0].type
    assert isinstance(source, TileType) and isinstance(result, TileType)
    old = [k for k, n in enumerate(source.shape) if n != 1]
    new = [k for k, n in enumerate(result.shape) if n != 1]
    if len(old) != len(new):
        return False, [None] * result.rank
    conditions = [w.code.compare("==", tile.declared[i], extents[j]) for i, j in zip(old, new, strict=True)]
    conditions += [w.code.compare("==", tile.valid[k], 1) for k, n in enumerate(source.shape) if n == 1]
    of = dict(zip(new, old, strict=True))
    return w.code.all_of(conditions), [of.get(k) for k in range(result.rank)]


def _slot(w: FunctionWriter, operand: Operand) -> bool:
    assert isinstance(operand, Var)
    return isinstance(w.env.get(operand.name), TileSlot)


def common_extents(w: FunctionWriter, op: Op, tiles: Sequence[Tile], skip: int | None) -> list[Index]:
    """Valid extents that all tiles share, apart from axis `skip`."""
    code = w.code
    out: list[Index] = []
    for axis in range(tiles[0].rank):
        if axis == skip:
            out.append(0)
            continue
        sure = [t.valid[axis] for t in tiles if not may_fit(t, axis)]
        first = sure[0] if sure else tiles[0].valid[axis]
        site = w.module.site(*failures.VALID.at(axis=axis), op.loc)
        for t in tiles:
            ok = code.any_of([code.compare("==", t.valid[axis], first), fits_anything(w, t, axis)])
            code.check(ok, site, first, t.valid[axis])
        out.append(first)
    return out


def write_extract(w: FunctionWriter, op: Op) -> None:
    """`extract`: one element."""
    code = w.code
    tile = w.tile(op.args[0])
    indices = [w.index(a) for a in op.args[1:]]
    for axis, (i, n) in enumerate(zip(indices, tile.valid, strict=True)):
        site = w.module.site(*failures.ELEMENT.at(axis=axis), op.loc)
        code.check(code.all_of([code.compare(">=", i, 0), code.compare("<", i, n)]), site, i, n)
    w.define(op.results[0], read(w, tile, indices))


def write_measure(w: FunctionWriter, op: Op) -> None:
    """`valid` and `extent`."""
    axis: Any = op.attr("axis")
    tile = w.tile(op.args[0])
    w.define(op.results[0], (tile.valid if op.op == "valid" else tile.declared)[axis])

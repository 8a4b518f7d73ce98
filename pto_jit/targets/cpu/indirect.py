# SPDX-License-Identifier: MIT
"""Access through index tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import i64 as i64_dtype
from pto_jit.ir.nodes import Op, Operand
from pto_jit.semantic import failures
from pto_jit.targets.cpu.constants import Index, Value, i64
from pto_jit.targets.cpu.elements import address, each, give, line, new_tile, read, unrolled, write
from pto_jit.targets.cpu.elementwise import cast
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.sharing import share_lines
from pto_jit.targets.cpu.structure import common_extents
from pto_jit.targets.cpu.tiles import copy_region, fits_anything, materialise
from pto_jit.targets.cpu.values import Tensor, Tile


def _index(w: FunctionWriter, op: Op, tile: Tile | Tensor, at: Sequence[Index], extent: Index, what: str) -> Value:
    """An index element as i64, checked."""
    value = read(w, tile, at)
    wide = cast(w.b, value, tile.dtype, i64_dtype)
    site = w.module.site(*failures.PICK.at(what=what), op.loc)
    w.code.check(w.b.icmp_unsigned("<", wide, i64(extent)), site, wide, extent)
    return wide


def _plane(w: FunctionWriter, tile: Tile | Tensor, row: Sequence[Index], axis: int) -> Tensor:
    """What an index along `axis` and that of the last axis lead to in a row, which is at `row` of the axes before the
    last (what this says of `axis` itself does not matter)."""
    last = len(tile.strides) - 1
    at = list(row) if axis == last else [*row[:axis], 0, *row[axis + 1 :]]
    start = line(w, tile, at)
    return Tensor(tile.dtype, start.pointer, (), (tile.strides[axis], 0 if axis == last else tile.strides[-1]))


def write_gather(w: FunctionWriter, op: Op) -> None:
    """`gather`: np.take_along_axis on the valid part."""
    axis: Any = op.attr("axis")
    tile, index = w.tile(op.args[0]), w.tile(op.args[1])
    code = w.code
    valid: list[Index] = []
    types = [a.type for a in op.args[:2]]
    for k in range(tile.rank):
        if k == axis:
            valid.append(index.valid[k])
            continue
        left, right = (typ.shape[k] == 1 for typ in types)  # pyright: ignore[reportAttributeAccessIssue]
        if left and right:
            valid.append(code.min(tile.valid[k], index.valid[k]))
            continue
        if left or right:  # of an empty line nothing is repeated
            one, other = (tile, index) if left else (index, tile)
            valid.append(code.pick(code.compare("==", one.valid[k], 0), 0, other.valid[k]))
            continue
        site = w.module.site(*failures.VALID.at(axis=k), op.loc)
        ok: list[bool | Value] = [code.compare("==", tile.valid[k], index.valid[k])]
        for t in (tile, index):
            ok.append(fits_anything(w, t, k))
        code.check(code.any_of(ok), site, tile.valid[k], index.valid[k])
        valid.append(code.min(tile.valid[k], index.valid[k]))
    out = new_tile(w, op.results[0], index.declared, valid)

    single = [[extent == 1 for extent in typ.shape] for typ in types]  # pyright: ignore[reportAttributeAccessIssue]

    def row(i: list[Index]) -> None:
        of_tile, of_index = ([0 if one else x for x, one in zip(i, ones, strict=False)] for ones in single)
        picks, target = line(w, index, of_index), line(w, out, i)
        source = _plane(w, tile, of_tile, axis)

        def element(j: Value) -> None:
            pick = _index(w, op, picks, [0 if single[1][-1] else j], tile.valid[axis], "gather")
            write(w, target, [j], read(w, source, [pick, 0 if single[0][-1] else j]))

        unrolled(w, 0, valid[-1], element, "gather")

    each(w, valid[:-1], row)
    give(w, op.results[0], out)


def write_take(w: FunctionWriter, op: Op) -> None:
    """`take`: np.take from a tensor."""
    code = w.code
    axis: Any = op.attr("axis")
    tensor, index = w.tensor(op.args[0]), w.tile(op.args[1])
    if len(op.args) > 2:
        offsets = [w.index(a) for a in op.args[2:]]
        distance: Index = 0
        for k, (at, stride) in enumerate(zip(offsets, tensor.strides, strict=True)):
            site = w.module.site(*failures.OFFSET.at(axis=k), op.loc)
            code.check(code.compare(">=", at, 0), site, at)
            distance = code.add(distance, code.mul(at, stride))
        extents = tuple(code.max(code.sub(n, at), 0) for n, at in zip(tensor.extents, offsets, strict=True))
        tensor = Tensor(tensor.dtype, code.offset(tensor.pointer, distance), extents, tensor.strides)
    lead, tail = tensor.extents[:axis], tensor.extents[axis + 1 :]
    out = new_tile(w, op.results[0], (*lead, *index.declared, *tail), (*lead, *index.valid, *tail))

    def part(w: FunctionWriter, parts: list[Any], _: object) -> None:
        _take_each(w, op, axis, *parts)

    of_index, of_tensor = (0 if index.rank else None, None) if axis == 0 else (None, 0)
    of_out = None if of_index is of_tensor is None else 0
    share_lines(w, op, [(out, of_out), (tensor, of_tensor), (index, of_index)], part)
    give(w, op.results[0], out)


def _take_each(w: FunctionWriter, op: Op, axis: int, out: Tile, tensor: Tensor, index: Tile) -> None:
    """The rows or elements at all indices."""
    tail, n = tensor.extents[axis + 1 :], index.rank

    def body(i: list[Index]) -> None:
        before, at, after = i[:axis], i[axis : axis + n], i[axis + n :]
        where = _index(w, op, index, at, tensor.extents[axis], "x[index]")
        source = w.code.offset(address(w, tensor, [*before, where, *([0] * len(tail))]), 0)
        w.record(op, tensor, source, tail, tensor.strides[axis + 1 :])
        target = address(w, out, [*i[: axis + n], *([0] * len(tail))])
        if after:
            raise AssertionError(after)
        copy_region(w, tensor.dtype, target, out.strides[axis + n :], source, tensor.strides[axis + 1 :], tail)

    def row(i: list[Index]) -> None:
        picks, source, target = line(w, index, i[axis:]), line(w, tensor, i[:axis]), line(w, out, i)

        def element(j: Value) -> None:
            where = _index(w, op, picks, [j], tensor.extents[axis], "x[index]")
            w.record(op, tensor, address(w, source, [where]))
            write(w, target, [j], read(w, source, [where]))

        unrolled(w, 0, out.valid[-1], element, "take")

    if tail:
        each(w, out.valid[: axis + n], body)
    else:
        each(w, out.valid[:-1], row)


def settled(w: FunctionWriter, operand: Operand) -> Tile:
    """A tile that does not change while global memory is written in any order."""
    tile = w.tile(operand)
    return materialise(w, f"{operand.name}.settled", tile) if tile.view else tile  # pyright: ignore


def write_put(w: FunctionWriter, op: Op) -> None:
    """`put`: np.put_along_axis into a tensor; all indices are checked before anything is written."""
    axis: Any = op.attr("axis")
    tile, index, tensor = settled(w, op.args[0]), settled(w, op.args[1]), w.tensor(op.args[2])
    code = w.code
    valid = common_extents(w, op, [tile, index], None)
    for k, n in enumerate(valid):
        if k != axis:
            site = w.module.site(*failures.SCATTER.at(axis=k), op.loc)
            code.check(code.compare("<=", n, tensor.extents[k]), site, n, tensor.extents[k])

    def check(i: list[Index]) -> None:
        picks = line(w, index, i)

        def element(j: Value) -> None:
            _index(w, op, picks, [j], tensor.extents[axis], "scatter")

        unrolled(w, 0, valid[-1], element, "check")

    def row(i: list[Index]) -> None:
        picks, values = line(w, index, i), line(w, tile, i)
        target = _plane(w, tensor, i, axis)

        def element(j: Value) -> None:
            where = [cast(w.b, read(w, picks, [j]), index.dtype, i64_dtype), j]
            w.record(op, tensor, address(w, target, where))
            write(w, target, where, read(w, values, [j]))

        unrolled(w, 0, valid[-1], element, "put")

    each(w, valid[:-1], check)
    each(w, valid[:-1], row)

# SPDX-License-Identifier: MIT
"""Tensors: creation, views, loads and stores, indirect and atomic access."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.elementwise import dtype_of
from pto_jit.codegen.builtins.places import index_tile
from pto_jit.codegen.builtins.promote import (
    describe,
    quoted,
    shape_text,
    tile_of,
    value_of,
    way_out,
)
from pto_jit.codegen.builtins.registry import builtin
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.dtypes import f32
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.ir.nodes import Attr, Const, Operand, Var
from pto_jit.ir.types import TensorType
from pto_jit.language._annotations import not_a_symbol
from pto_jit.language._subscript import ROW_BY_ROW

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def shape_of(cg: Generator, shape: Any, what: str) -> tuple[Operand, ...]:
    """A shape argument as i64 operands: an integer, a run-time scalar, or a sequence of them."""
    items = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    return tuple(extent_of(cg, item, what) for item in items)


def extent_of(cg: Generator, item: Any, what: str) -> Operand:
    operand = index_of(cg, item, what)
    if isinstance(operand, Const) and operand.value < 0:
        raise cg.error(ShapeError, f"{what} has the negative extent {operand.value}", code="PTO-H002",
                       hint="extents are at least 0")  # fmt: skip
    return operand


def index_of(cg: Generator, item: Any, what: str) -> Operand:
    """One integer of a shape, offset or index."""
    import numpy as np

    if isinstance(item, np.integer):
        item = int(item)
    if isinstance(item, bool) or not isinstance(item, (int, Scalar)):
        cg.python(not_a_symbol, item)
        raise cg.error(TypeMismatchError, f"{what} takes integers, got {describe(item)}", code="PTO-T030",
                       hint="use integers or run-time integer scalars")  # fmt: skip
    if isinstance(item, Scalar) and item.dtype.is_float:
        raise cg.error(TypeMismatchError, f"{what} takes integers, got a run-time {item.dtype}", code="PTO-T030",
                       hint="convert it with `int(...)` or use `//` instead of `/`")  # fmt: skip
    return cg.e.as_index(item)


def offsets_of(cg: Generator, offsets: Any, tensor: Tensor, what: str) -> tuple[Operand, ...]:
    if offsets is Ellipsis:
        return tuple(index(0) for _ in tensor.extents)
    result = tuple(index_of(cg, o, what) for o in (offsets if isinstance(offsets, (tuple, list)) else [offsets]))
    if len(result) != tensor.rank:
        raise cg.error(ShapeError, f"{what}: {len(result)} offsets for a tensor of rank {tensor.rank}", code="PTO-H003",
                       hint="give one offset per axis of the tensor")  # fmt: skip
    for offset in result:
        if isinstance(offset, Const) and offset.value < 0:
            raise cg.error(ShapeError, f"{what}: the offset {offset.value} is negative", code="PTO-H004",
                           hint="offsets count from the start of the axis")  # fmt: skip
    return result


def tensor_of(cg: Generator, x: Any, what: str) -> Tensor:
    if isinstance(x, Tensor):
        return x
    hint = way_out(x, "tiles are values; only tensors can be loaded from, stored to and viewed")
    raise cg.error(TypeMismatchError, f"{what} takes a tensor, got {describe(x)}", code="PTO-T031", hint=hint)


# -- creation ---------------------------------------------------------------------------------------------------


def _create(cg: Generator, shape: Any, dtype: Any, value: Any, what: str) -> Tensor | Tile:
    extents = shape_of(cg, shape, f"the shape of pl.{what}")
    wanted = dtype_of(cg, dtype)
    fill = cg.e.cast(value_of(cg, 0 if value is None else value, "the fill value"), wanted)
    if not isinstance(fill, Scalar):
        raise cg.error(TypeMismatchError, f"pl.{what} fills with a number, got {describe(fill)}", code="PTO-T032",
                       hint="use `pl.broadcast_to` to spread a tile")  # fmt: skip
    if cg.in_scope and not extents:
        return fill  # type: ignore[return-value]  # a shape of () is a number
    if cg.in_scope and cg.node not in cg.at_run_time:  # else an array of this iteration, whose elements are assigned
        return cg.e.tile("full", [fill.operand, *extents], extents=extents, generated=True)
    if not extents:
        raise cg.error(ShapeError, f"pl.{what} of shape () in orchestration: memory has at least one axis",
                       code="PTO-H029", hint="use a number, or a tensor of shape [1]")  # fmt: skip
    args: list[Operand] = list(extents)
    attrs: dict[str, Any] = {"dtype": wanted}
    if value is not None:
        args.append(fill.operand)
        attrs["filled"] = True
    if not all(map(cg.e.is_extent, extents)):
        attrs["checked"] = True
    (var,) = cg.e.op("alloc", args, attrs, hint=cg.wanted.get(cg.node, "tmp"))  # type: ignore[arg-type]
    if cg.in_scope:
        cg.e.local.add(var.name)
    return Tensor(var, extents, cg.e.loc)


@builtin("empty")
def empty(cg: Generator, shape: Any, dtype: Any = f32) -> Tensor | Tile:
    return _create(cg, shape, dtype, None, "empty")


@builtin("zeros")
def zeros(cg: Generator, shape: Any, dtype: Any = f32) -> Tensor | Tile:
    return _create(cg, shape, dtype, 0, "zeros")


@builtin("ones")
def ones(cg: Generator, shape: Any, dtype: Any = f32) -> Tensor | Tile:
    return _create(cg, shape, dtype, 1, "ones")


@builtin("full")
def full(cg: Generator, shape: Any, value: Any, dtype: Any = None) -> Tensor | Tile:
    if dtype is None:
        dtype = value_of(cg, value, "the fill value").dtype
    return _create(cg, shape, dtype, value, "full")


# -- views ------------------------------------------------------------------------------------------------------


def view(cg: Generator, x: Tensor, offsets: Sequence[Operand], extents: Sequence[Operand],
         drop: tuple[int, ...] = (), *, inside: bool = False) -> Tensor:  # fmt: skip
    """A view of `x`; axes in `drop` (of extent 1) are removed.  inside: it is known to lie in the tensor."""
    attrs: dict[str, Attr] = {"drop": drop, "inside": True} if inside else {"drop": drop}
    (var,) = cg.e.op("view", [x.var, *offsets, *extents], attrs, hint=f"{x.var.name}_view")
    kept = tuple(e for axis, e in enumerate(extents) if axis not in drop)
    return Tensor(var, kept, cg.e.loc)


@builtin("slice")
def slice_(cg: Generator, x: Any, shape: Any, offset: Any) -> Tensor | Tile:
    if isinstance(x, Tile):
        extents = shape_of(cg, shape, "the shape of pl.slice")
        starts = [index_of(cg, o, "the offset of pl.slice") for o in offset]
        return tile_view(cg, x, starts, extents, ())
    tensor = tensor_of(cg, x, "pl.slice")
    extents = shape_of(cg, shape, "the shape of pl.slice")
    if len(extents) != tensor.rank:
        raise cg.error(ShapeError, f"pl.slice: shape {shape_text(extents)} for a tensor of rank {tensor.rank}",
                       code="PTO-H003", hint="give one extent per axis of the tensor")  # fmt: skip
    return view(cg, tensor, offsets_of(cg, offset, tensor, "pl.slice"), extents)


def tile_view(cg: Generator, t: Tile, starts: Sequence[Operand], extents: Sequence[Operand],
              drop: tuple[int, ...]) -> Tile:  # fmt: skip
    kept = tuple(e for axis, e in enumerate(extents) if axis not in drop)
    return cg.e.tile("tile_slice", [t.var, *starts, *extents], {"drop": drop}, extents=kept)


# -- loads and stores -------------------------------------------------------------------------------------------


@builtin("load")
def load(cg: Generator, x: Any, offsets: Any = None, shape: Any = None, *, pad: Any = None) -> Tile | Scalar:
    offsets = ... if offsets is None else offsets
    if isinstance(x, Tile) and pad is None:  # what an in-core function returns: for those that are called next a tensor
        if shape is None and offsets is ...:
            return x
        starts = (0,) * x.rank if offsets is ... else offsets
        part = slice_(cg, x, x.extents if shape is None else shape, starts)
        assert isinstance(part, Tile)
        return part
    tensor = tensor_of(cg, x, "pl.load")
    extents = tensor.extents if shape is None else shape_of(cg, shape, "the shape of pl.load")
    if len(extents) != tensor.rank:
        raise cg.error(ShapeError, f"pl.load: shape {shape_text(extents)} for a tensor of rank {tensor.rank}",
                       code="PTO-H003", hint="give one extent per axis of the tensor")  # fmt: skip
    if not extents:  # there is no tile of rank 0: it is a number, as in NumPy
        offsets_of(cg, offsets, tensor, "pl.load")
        return cg.e.scalar("getelem", [tensor.var], hint="t")
    args = [tensor.memory, *offsets_of(cg, offsets, tensor, "pl.load"), *extents]
    attrs: dict[str, Any] = {}
    if pad is not None:
        value = cg.e.cast(value_of(cg, pad, "pad"), tensor.dtype)
        if not isinstance(value, Scalar):
            raise cg.error(TypeMismatchError, "pad is a number", code="PTO-T033", hint="give a Python number")
        args.append(value.operand)
        attrs["pad"] = True
    return cg.e.tile("load", args, attrs, extents=extents, hint=tensor.var.name)


@builtin("store")
def store(cg: Generator, tile: Any, offsets: Any, x: Any = None) -> None:
    if x is None:
        offsets, x = ..., offsets
    tensor = tensor_of(cg, x, "pl.store")
    value = value_of(cg, tile, "the first argument of pl.store")
    starts = offsets_of(cg, offsets, tensor, "pl.store")
    if isinstance(value, Scalar) and tensor.rank == 0:
        number = cg.e.cast(value, tensor.dtype)
        assert isinstance(number, Scalar)
        cg.e.op("setelem", [number.operand, tensor.var])
        return
    if isinstance(value, Scalar):
        raise cg.error(TypeMismatchError, "pl.store takes a tile, got a number", code="PTO-T034",
                       hint="write one element with `x[i, j] = v`, or a region with `x[r0:r1, :] = v`")  # fmt: skip
    store_tile(cg, value, tensor, starts)


def store_tile(cg: Generator, value: Tile, tensor: Tensor, starts: Sequence[Operand]) -> None:
    """Store a tile at `starts`, converted to the tensor's element type."""
    if value.rank != tensor.rank:
        raise cg.error(ShapeError, f"a tile of rank {value.rank} stored to a tensor of rank {tensor.rank}",
                       code="PTO-H006",
                       hint="use `pl.reshape`, or index the tensor so that the ranks agree")  # fmt: skip
    if value.dtype != tensor.dtype:
        value = cg.e.cast(value, tensor.dtype)
    cg.e.op("store", [value.var, tensor.memory, *starts])


# -- indirect and atomic ----------------------------------------------------------------------------------------


@builtin("scatter")
def scatter(cg: Generator, tile: Any, index: Any, axis: Any, x: Any) -> None:
    tensor = tensor_of(cg, x, "pl.scatter")
    where = index_tile(cg, index, "the index of pl.scatter")
    value = cg.e.cast(tile_of(cg, tile, "pl.scatter"), tensor.dtype)
    along = axis_of(cg, axis, tensor.rank, "pl.scatter")
    assert isinstance(value, Tile)
    if not value.rank == where.rank == tensor.rank:
        ranks = f"a tile of rank {value.rank} and an index of rank {where.rank} for a tensor of rank {tensor.rank}"
        raise cg.error(ShapeError, f"pl.scatter: {ranks}", code="PTO-H003",
                       hint="each element of the tile has its own index; for whole rows, " + ROW_BY_ROW)  # fmt: skip
    cg.e.op("put", [value.var, where.var, tensor.var], {"axis": along})


def axis_of(cg: Generator, axis: Any, rank: int, what: str) -> int:
    """A compile-time axis, negative ones counted from the end."""
    value = cg.static(axis, "an axis")
    if isinstance(value, bool) or not isinstance(value, int):
        raise cg.error(TypeMismatchError, f"{what}: the axis {quoted(value)} is not an integer", code="PTO-T041",
                       hint="give an integer")  # fmt: skip
    if not -rank <= value < rank:
        raise cg.error(ShapeError, f"{what}: axis {value} is out of range for rank {rank}", code="PTO-H013",
                       hint=f"axes run from {-rank} to {rank - 1}")  # fmt: skip
    return value % rank


def _register_atomic(name: str) -> None:
    @builtin(name)
    def handler(cg: Generator, x: Any, offsets: Any, tile: Any) -> None:
        tensor = tensor_of(cg, x, f"pl.{name}")
        starts = offsets_of(cg, offsets, tensor, f"pl.{name}")
        value = cg.e.cast(value_of(cg, tile, f"the tile of pl.{name}"), tensor.dtype)
        if tensor.rank == 0:
            (var,) = cg.e.op("tensor_reshape", [tensor.var, index(1)], hint=f"{tensor.var.name}_view")
            tensor, starts = Tensor(var, (index(1),), cg.e.loc), (index(0),)
        if isinstance(value, Scalar):
            ones_ = tuple(index(1) for _ in starts)
            value = cg.e.tile("full", [value.operand, *ones_], extents=ones_, generated=True)
        if value.rank != tensor.rank:
            raise cg.error(ShapeError, f"pl.{name}: a tile of rank {value.rank} for a tensor of rank {tensor.rank}",
                           code="PTO-H006", hint="use `pl.reshape`")  # fmt: skip
        cg.e.op(name, [value.var, tensor.var, *starts])


for _name in ("atomic_add", "atomic_max", "atomic_min"):
    _register_atomic(_name)


def layout_is_contiguous(var: Var) -> bool:
    return isinstance(var.type, TensorType) and var.type.layout == "c"

# SPDX-License-Identifier: MIT
"""The operations between tensors and tiles on NumPy values: a tensor is an array, a tile a `Tile` (`_eager`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_jit import dtypes
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.language import _eager as eager
from pto_jit.language import _memory_ops as memory
from pto_jit.language import _tile as kinds
from pto_jit.language import _tile_ops as tiles
from pto_jit.language._tile_value import TileValue, checked_axis


def _tensor_of(x: Any, what: str) -> np.ndarray:
    if isinstance(x, np.ndarray):
        return x.view(np.ndarray)
    if not isinstance(x, kinds.Tile) and hasattr(x, "__array_interface__"):
        return np.asarray(x)
    raise TypeMismatchError(f"{what} takes a tensor, got {type(x).__name__}", code="PTO-T031",
                            hint="tiles are values; only tensors can be loaded from, stored to and viewed")  # fmt: skip


def _offsets(offsets: Any, rank: int, what: str) -> tuple[int, ...]:
    if offsets is None or offsets is Ellipsis:
        return (0,) * rank
    result = eager.extents_of(offsets, f"the offsets of {what}")
    if len(result) != rank:
        raise ShapeError(f"{what}: {len(result)} offsets for a tensor of rank {rank}", code="PTO-H003",
                         hint="give one offset per axis of the tensor")  # fmt: skip
    return result


def load(x: Any, offsets: Any, shape: Any, pad: Any) -> Any:
    if isinstance(x, kinds.Tile) and pad is None:  # as what an in-core function returned
        whole = (0,) * x.ndim if offsets is ... or offsets is None else offsets
        return x if shape is None and whole is not offsets else view(x, x.shape if shape is None else shape, whole)
    array = _tensor_of(x, "load")
    start = _offsets(offsets, array.ndim, "load")
    declared = x.declared if isinstance(x, kinds.Tensor) else array.shape
    extents = declared if shape is None else eager.shape_of(shape, "the shape of load")
    if array.ndim == 0:
        return array[()]
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is None:
        raise TypeMismatchError(
            f"load of a tensor of {array.dtype}", code="PTO-T028", hint="use one of the language's dtypes"
        )
    filler = None if pad is None else eager.to_dtype(eager.value_of(pad, "pad"), dtype)
    return kinds.Tile(memory.load(array, start, extents, filler))


def store(x: Any, place: tuple[Any, ...]) -> None:
    if not 1 <= len(place) <= 2:
        raise TypeMismatchError(
            "store takes a tile, offsets and a tensor, or a tile and a view",
            code="PTO-T029",
            hint="write `pl.store(tile, offsets, x)` or `pl.store(tile, view)`",
        )
    target = place[-1]
    array = _tensor_of(target, "store")
    value = eager.value_of(x, "the first argument of store")
    if array.ndim == 0 and not isinstance(value, TileValue):
        array[()] = _in_dtype(value, array)
        return
    if not isinstance(value, TileValue):
        raise TypeMismatchError("store takes a tile, got a number", code="PTO-T034",
                                hint="write one element with `x[i, j] = v`, a region with `x[:] = v`")  # fmt: skip
    memory.store(_in_dtype(value, array), array, _offsets(place[0] if len(place) == 2 else None, array.ndim, "store"))
    if isinstance(target, kinds.Tensor):
        target._generated = False


def _in_dtype(value: Any, array: np.ndarray) -> Any:
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is None:
        raise TypeMismatchError(f"a tensor of {array.dtype}", code="PTO-T028", hint="use one of the language's dtypes")
    return eager.to_dtype(value, dtype)


def view(x: Any, shape: Any, offset: Any) -> Any:
    extents = eager.shape_of(shape, "the shape of slice")
    if isinstance(x, kinds.Tile):
        starts = eager.extents_of(offset, "the offset of slice")
        if len(starts) != x.ndim or len(extents) != x.ndim:
            raise ShapeError(
                f"slice of a tile of rank {x.ndim}", code="PTO-H003", hint="give one extent and offset per axis"
            )
        return kinds.Tile(tiles.tile_slice(x.value, starts, extents))
    array = _tensor_of(x, "slice")
    generated = isinstance(x, kinds.Tensor) and x.generated
    return kinds.view_as(memory.view(array, _offsets(offset, array.ndim, "slice"), extents), extents, generated)


def gather(t: Any, index: Any, axis: Any) -> Any:
    source, where = eager.tile_of(t, "gather"), eager.tile_of(index, "the index of gather")
    return eager.present(tiles.gather(source, where, checked_axis(axis, source.rank, "gather")), (t, index))


def scatter(t: Any, index: Any, axis: Any, x: Any) -> None:
    array = _tensor_of(x, "scatter")
    value, where = _in_dtype(eager.tile_of(t, "scatter"), array), eager.tile_of(index, "the index of scatter")
    memory.put(value, where, array, checked_axis(axis, array.ndim, "scatter"))


def atomic(name: str, x: Any, offsets: Any, t: Any) -> None:
    array = _tensor_of(x, f"atomic_{name}")
    value = _in_dtype(eager.value_of(t, f"the tile of atomic_{name}"), array)
    start = _offsets(offsets, array.ndim, f"atomic_{name}")
    if array.ndim == 0:
        array, start = array.reshape(1), (0,)
    if not isinstance(value, TileValue):
        value = tiles.full(value, (1,) * array.ndim)
    memory.atomic(name, value, array, start)

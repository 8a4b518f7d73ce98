# SPDX-License-Identifier: MIT
"""The operations on NumPy values: operands are promoted by the language's rules, computed, and handed back in kind.

Plain arrays give plain arrays, Python numbers give Python numbers (they stay weak), NumPy scalars give NumPy scalars,
and whatever involves a tile gives a `Tile`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_jit import dtypes
from pto_jit.dtypes import DType, bool_, f64, i32, i64
from pto_jit.errors import ArgumentError, ShapeError, TypeMismatchError
from pto_jit.language import _memory_ops as memory
from pto_jit.language import _numpy_ops as ops
from pto_jit.language import _races as races
from pto_jit.language import _tile as kinds  # which imports this module: its operators are made of these functions
from pto_jit.language import _tile_ops as tiles
from pto_jit.language._annotations import not_a_symbol
from pto_jit.language._indices import UNREAD, is_chosen, is_unread
from pto_jit.language._number import plain, shown
from pto_jit.language._scopes import in_orchestration
from pto_jit.language._tile_value import ExtentError, TileValue, checked_axes, checked_axis, tile

_NUMBERS = (bool, int, float)


def dtype_of(dtype: Any) -> DType:
    """A dtype argument: a `pl` dtype, a NumPy one or a Python number type."""
    if isinstance(dtype, DType):
        return dtype
    found = dtypes.from_numpy(dtype) if dtype is not None else None
    if found is None:
        names = ", ".join(f"pl.{t.name}" for t in dtypes.ALL)
        raise TypeMismatchError(f"{dtype!r} is not a dtype", code="PTO-T028", hint=f"use one of {names}")
    return found


# -- operands and results -----------------------------------------------------------------------------------------


def value_of(x: Any, what: str = "an operand") -> Any:
    """An operand as a tile value, a NumPy scalar or a Python number."""
    x = plain(x)
    if isinstance(x, kinds.Tile):
        return x.value
    if isinstance(x, kinds.Tensor):
        array = x.view(np.ndarray)
        races.touch("update" if x.update else "read", array, x.update)
        return tile(array, x.declared, x.generated) if x.ndim else array[()]
    if isinstance(x, _NUMBERS) and not isinstance(x, np.generic):
        if isinstance(x, int) and not -(2**63) <= x < 2**64:
            said = x if x.bit_length() <= 128 else f"of {x.bit_length()} bits"
            raise ArgumentError(f"PTO-A003: {what} is the integer {said}, which does not fit 64 bits")
        return x
    if not isinstance(x, (np.ndarray, np.generic)) and hasattr(type(x), "__array__"):
        x = np.asarray(x)
    if isinstance(x, (np.ndarray, np.generic)) and dtypes.from_numpy(x.dtype) is not None:
        return tile(x) if x.ndim else np.asarray(x)[()]
    not_a_symbol(x)
    raise TypeMismatchError(f"{what} is {x!r:.80}, which is not a number, a tile or a tensor", code="PTO-T010",
                            hint="pass a number, a tile or an array of one of the language's dtypes")  # fmt: skip


def tile_of(x: Any, what: str) -> TileValue:
    """A tile operand."""
    value = value_of(x, f"the argument of {what}")
    if isinstance(value, TileValue):
        return value
    raise TypeMismatchError(f"{what} takes a tile, got the number {value!r}", code="PTO-T011",
                            hint="make a tile of a number with `pl.full(shape, value, dtype)`")  # fmt: skip


def present(result: Any, operands: Sequence[Any]) -> Any:
    """A result in the kind that its operands have: a tile of tiles and tensors, an array of arrays."""
    if not isinstance(result, TileValue):
        weak = all(isinstance(o, _NUMBERS) and not isinstance(o, np.generic) for o in operands)
        return shown(result.item() if weak and isinstance(result, np.generic) else result)
    if any(isinstance(o, np.ndarray) and np.may_share_memory(result.data, o) for o in operands):
        result = result.with_data(result.data.copy())  # a tile is what memory held when it was loaded
    if any(isinstance(o, (kinds.Tile, kinds.Tensor)) for o in operands) or not result.complete:
        return kinds.Tile(result)
    return result.data if any(getattr(o, "ndim", 0) for o in operands) else kinds.Tile(result)


def _dtype(value: Any) -> DType | None:
    """The dtype of a value; None for a weak number."""
    if isinstance(value, TileValue):
        return dtypes.from_numpy(value.data.dtype)
    return dtypes.from_numpy(value.dtype) if isinstance(value, np.generic) else None


def common_dtype(values: Sequence[Any]) -> DType:
    """The dtype that operands are brought to: NumPy's promotion, Python numbers weak."""
    strong: DType | None = None
    weak = [type(v) for v in values if _dtype(v) is None]
    for dtype in filter(None, map(_dtype, values)):
        strong = dtype if strong is None else dtypes.promote(strong, dtype)
    if strong is None:
        return f64 if float in weak else i64 if int in weak else bool_
    if float in weak and not strong.is_float:
        return f64
    return i64 if int in weak and strong.kind == "b" else strong


def to_dtype(value: Any, dtype: DType) -> Any:
    """A value cast to `dtype`; Python numbers become NumPy scalars."""
    if isinstance(value, TileValue):
        return value.with_data(ops.cast(value.data, dtype))
    if isinstance(value, np.generic):
        return np.asarray(ops.cast(value, dtype))[()]
    return ops.constant(value, dtype)


# -- elementwise --------------------------------------------------------------------------------------------------

_BITWISE = ("and", "or", "xor", "shl", "shr", "not")
_ON_BOOL = {"add": "or", "mul": "and", "max": "or", "min": "and"}
_KEPT_ON_BOOL = ("abs", "relu", "square", "floor", "ceil", "round", "trunc")


def _is_beyond(value: Any, dtype: DType) -> bool:
    """Whether a Python integer is larger, or smaller, than all numbers of an integer dtype: it is compared as it is."""
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
    return isinstance(value, int) and not low <= value < low + (1 << dtype.bits)


def elementwise(name: str, *operands: Any) -> Any:
    """An elementwise operation, with NumPy's dtype rules."""
    if any(map(is_unread, operands)):
        return UNREAD
    values = [value_of(o, f"an operand of {name}") for o in operands]
    dtype = common_dtype(values)
    if name == "pow" and type(operands[1]) is float and operands[1] == 0.5:
        base = _dtype(values[0])
        if base is not None and base.is_float:  # as in compiled code; what NumPy computes depends on its version
            return elementwise("sqrt", operands[0])
    weak = all(_dtype(v) is None for v in values)
    if name in ops.FLOAT_ONLY or name == "atan2":
        dtype = f64 if weak else ops.float_dtype(dtype)
    elif name in ("div", "fma") and not dtype.is_float:
        dtype = f64
    elif name in _BITWISE and (dtype.is_float or (name in ("shl", "shr") and dtype.kind == "b")):
        raise TypeMismatchError(
            f"{name} of {dtype}", code="PTO-T022", hint="it takes integers (or bool_): cast with `.to(pl.i32)`"
        )
    elif name in ops.COMPARISONS and dtype.is_integer and not weak and any(_is_beyond(v, dtype) for v in values):
        values = [math.copysign(math.inf, v) if _is_beyond(v, dtype) else v for v in values]
        dtype = f64
    elif dtype.kind == "b" and name not in ops.COMPARISONS and name not in _BITWISE:
        if weak:
            dtype = i64
        elif name in _KEPT_ON_BOOL:
            return present(values[0], operands)
        elif name in ("sub", "neg", "sign"):
            raise TypeMismatchError(f"{name} is not defined for bool_", code="PTO-T020", hint="cast it: `x.to(pl.i32)`")
        elif name == "fmod":
            dtype = dtypes.f16
        elif name not in _ON_BOOL:
            dtype = dtypes.i8
        name = _ON_BOOL.get(name, name) if dtype.kind == "b" else name
    return present(tiles.elementwise(name, *(to_dtype(v, dtype) for v in values)), operands)


def select(condition: Any, x: Any, y: Any) -> Any:
    if is_unread(condition) or is_unread(x) or is_unread(y):
        return UNREAD
    which = to_dtype(value_of(condition, "the condition of where"), bool_)
    values = [value_of(v, "an argument of where") for v in (x, y)]
    dtype = common_dtype(values)
    result = tiles.elementwise("select", which, *(to_dtype(v, dtype) for v in values))
    if isinstance(result, TileValue):
        return present(result, (condition, x, y))
    return present(result, (x, y))  # whichever element the condition is, of two Python numbers it gives one


def cast(x: Any, dtype: Any) -> Any:
    if is_unread(x):
        return UNREAD
    value, target = value_of(x, "the argument of cast"), dtype_of(dtype)
    return present(to_dtype(value, target), (x, np.bool_()))


def bitcast(x: Any, dtype: Any) -> Any:
    value = value_of(x, "the argument of bitcast")
    strong = _dtype(value) or common_dtype([value])
    return present(tiles.elementwise("bitcast", to_dtype(value, strong), dtype=dtype_of(dtype)), (x, np.bool_()))


# -- along axes ---------------------------------------------------------------------------------------------------


def reduction(name: str, x: Any, axis: Any, keepdims: bool) -> Any:
    if is_chosen(x):
        return UNREAD
    t = tile_of(x, name)
    if name in ("sum", "prod"):
        dtype = _dtype(t)
        assert dtype is not None
        t = to_dtype(t, ops.widened(dtype))
    return present(tiles.reduce(name, t, checked_axes(axis, t.rank, name), bool(keepdims)), (x, np.bool_()))


def mean(x: Any, axis: Any, keepdims: bool) -> Any:
    t = tile_of(x, "mean")
    dtype = _dtype(t)
    assert dtype is not None
    if not dtype.is_float:
        t = to_dtype(t, f64)
        dtype = f64
    axes = checked_axes(axis, t.rank, "mean")
    count = int(np.prod([t.valid[a] for a in axes], dtype=np.int64))
    total = tiles.reduce("sum", t, axes, bool(keepdims))
    return present(tiles.elementwise("div", total, ops.constant(count, dtype)), (x, np.bool_()))


def arg_reduction(name: str, x: Any, axis: Any, keepdims: bool) -> Any:
    t = tile_of(x, name)
    along = None if axis is None else checked_axis(axis, t.rank, name)
    return present(tiles.arg_reduce(name, t, along, bool(keepdims)), (x, np.bool_()))


def cumulate(name: str, x: Any, axis: Any, reverse: bool) -> Any:
    t = tile_of(x, name)
    dtype = _dtype(t)
    assert dtype is not None
    wide = to_dtype(t, ops.widened(dtype))
    return present(tiles.cumulate(name, wide, checked_axis(axis, t.rank, name), bool(reverse)), (x,))


def dot(a: Any, b: Any, acc: Any, out_dtype: Any) -> Any:
    left, right = tile_of(a, "dot"), tile_of(b, "dot")
    ta, tb = _dtype(left), _dtype(right)
    assert ta is not None and tb is not None
    if {ta.name, tb.name} != {"u8", "i8"}:
        common = dtypes.promote(ta, tb)
        left, right = to_dtype(left, common), to_dtype(right, common)
        ta = common
    if ta.kind == "b":
        raise TypeMismatchError("dot of bool_ tiles", code="PTO-T060", hint="cast them to an integer dtype")
    natural = ops.product_dtype(ta)
    wanted = natural if out_dtype is None else dtype_of(out_dtype)
    operands = [o for o in (a, b, acc) if o is not None]
    into = None if acc is None else to_dtype(value_of(acc, "the accumulator of dot"), natural)
    if not isinstance(into, TileValue) and into is not None and (left.rank, right.rank) != (1, 1):
        raise TypeMismatchError(
            "the accumulator of dot is a number", code="PTO-T011", hint="start with `pl.zeros(shape, dtype)`"
        )
    return present(to_dtype(tiles.dot(left, right, into, natural), wanted), (*operands, np.bool_()))


# -- structure ----------------------------------------------------------------------------------------------------


def extents_of(shape: Any, what: str) -> tuple[int, ...]:
    """A shape argument: an integer or a sequence of integers."""
    items = [plain(n) for n in (shape if isinstance(shape, (list, tuple)) else [shape])]
    for item in items:
        if isinstance(item, (bool, np.bool_)) or not isinstance(item, (int, np.integer)):
            not_a_symbol(item)
            raise TypeMismatchError(
                f"{what} takes integers, got {item!r}", code="PTO-T030", hint="use integers or integer scalars"
            )
    return tuple(int(i) for i in items)


def shape_of(shape: Any, what: str) -> tuple[int, ...]:
    """Extents, none of them negative."""
    extents = extents_of(shape, what)
    if any(n < 0 for n in extents):
        raise ExtentError(
            f"{what}: {list(extents)} has a negative extent", code="PTO-H002", hint="extents are at least 0"
        )
    return extents


def reshape(x: Any, shape: Any) -> Any:
    wanted = list(extents_of(shape, "the shape of reshape"))
    if isinstance(x, np.ndarray):
        try:
            return x.view(np.ndarray).reshape(wanted).view(type(x))
        except ValueError as error:
            raise ShapeError(f"reshape: {error}", code="PTO-H022", hint="-1 computes one extent") from None
    t = tile_of(x, "reshape")
    if wanted.count(-1) == 1:
        rest = int(np.prod([n for n in wanted if n != -1], dtype=np.int64))
        count = int(np.prod(t.shape, dtype=np.int64))
        if rest == 0 or count % rest:
            raise ShapeError(
                f"reshape: {t.shape} does not divide into {wanted}", code="PTO-H020", hint="-1 computes one extent"
            )
        wanted[wanted.index(-1)] = count // rest
    return present(tiles.reshape(t, shape_of(wanted, "the shape of reshape")), (x,))


def transpose(x: Any, axes: Any) -> Any:
    rank = x.ndim if isinstance(x, np.ndarray) else tile_of(x, "transpose").rank
    order = tuple(range(rank))[::-1] if axes is None else tuple(checked_axis(a, rank, "transpose") for a in axes)
    if sorted(order) != list(range(rank)):
        raise ShapeError(
            f"transpose: {order} is not a permutation of {rank} axes", code="PTO-H023", hint="name every axis once"
        )
    if isinstance(x, kinds.Tensor):
        return kinds.view_as(x.view(np.ndarray).transpose(order), [x.declared[a] for a in order])
    if isinstance(x, np.ndarray):
        return x.transpose(order)
    return present(tiles.transpose(tile_of(x, "transpose"), order), (x,))


def _same_dtype(items: Sequence[Any], what: str) -> list[TileValue]:
    if not len(items):
        raise ShapeError(f"{what} of no tiles", code="PTO-H024", hint="give at least one tile")
    values = [tile_of(x, what) for x in items]
    dtype = common_dtype(values)
    if len({t.rank for t in values}) > 1:
        raise ShapeError(f"{what}: tiles of different rank", code="PTO-H025", hint="reshape them first")
    return [to_dtype(t, dtype) for t in values]


def concat(items: Sequence[Any], axis: Any) -> Any:
    values = _same_dtype(items, "concat")
    return present(tiles.concat(values, checked_axis(axis, values[0].rank, "concat")), items)


def stack(items: Sequence[Any], axis: Any) -> Any:
    values = _same_dtype(items, "stack")
    return present(tiles.stack(values, checked_axis(axis, values[0].rank + 1, "stack")), items)


def split(x: Any, n: Any, axis: Any) -> tuple[Any, ...]:
    t, n = tile_of(x, "split"), plain(n)
    along = checked_axis(axis, t.rank, "split")
    extent = t.shape[along]
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1 or extent % n:
        raise ShapeError(
            f"split: an axis of extent {extent} into {n} parts",
            code="PTO-H026",
            hint="the parts must divide the extent",
        )
    size = extent // int(n)
    extents = [*t.shape[:along], size, *t.shape[along + 1 :]]
    starts = [[k * size if a == along else 0 for a in range(t.rank)] for k in range(int(n))]
    return tuple(present(tiles.tile_slice(t, start, extents), (x,)) for start in starts)


def broadcast_to(x: Any, shape: Any) -> Any:
    value = value_of(x, "the argument of broadcast_to")
    wanted = shape_of(shape, "the shape of broadcast_to")
    if not isinstance(value, TileValue):
        return present(tiles.full(to_dtype(value, _dtype(value) or common_dtype([value])), wanted), (x,))
    return present(tiles.broadcast_to(value, wanted), (x,))


def expand_dims(x: Any, axis: Any) -> Any:
    t = tile_of(x, "expand_dims")
    items = axis if isinstance(axis, (tuple, list)) else [axis]
    return present(tiles.expand_dims(t, checked_axes(tuple(items), t.rank + len(items), "expand_dims")), (x,))


def squeeze(x: Any, axis: Any) -> Any:
    t = tile_of(x, "squeeze")
    gone = [a for a, n in enumerate(t.shape) if n == 1] if axis is None else checked_axes(axis, t.rank, "squeeze")
    result = tiles.squeeze(t, gone)
    return present(result if result.rank else result.data[()], (x, np.bool_()))


def flip(x: Any, axis: Any) -> Any:
    t = tile_of(x, "flip")
    return present(tiles.flip(t, checked_axes(axis, t.rank, "flip")), (x,))


def valid_shape(x: Any) -> tuple[int, ...]:
    valid = x.view(np.ndarray).shape if isinstance(x, kinds.Tensor) else tile_of(x, "valid_shape").valid
    return tuple(shown(n) for n in valid)


# -- new tiles and tensors ----------------------------------------------------------------------------------------


def full(shape: Any, value: Any, dtype: Any) -> kinds.Tensor:
    """A tensor, which counts as a generated tile until it is written; not one of orchestration."""
    number = value_of(value, "the fill value")
    if isinstance(number, TileValue):
        raise TypeMismatchError(
            "full takes a number, got a tile", code="PTO-T032", hint="use `pl.broadcast_to` to spread a tile"
        )
    target = (_dtype(number) or common_dtype([number])) if dtype is None else dtype_of(dtype)
    data = np.full(shape_of(shape, "a shape"), to_dtype(number, target), target.numpy)
    races.made(data, empty=False)
    return kinds.view_as(data, generated=not in_orchestration())


def empty(shape: Any, dtype: Any) -> kinds.Tensor:
    """Unspecified elements: here, a value that shows."""
    target = dtype_of(dtype)
    tensor = full(shape, memory.unspecified(target), target)
    races.made(tensor.view(np.ndarray), empty=True)
    return tensor


def arange(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    if stop is None:
        start, stop = 0, start
    start, stop, step = plain(start), plain(stop), plain(step)
    for bound in (start, stop, step):
        if not isinstance(bound, (int, float, np.integer, np.floating)) or isinstance(bound, bool):
            raise TypeMismatchError(
                f"arange takes numbers, got {bound!r}", code="PTO-T030", hint="use integers or integer scalars"
            )
    if step == 0:
        raise ShapeError("arange with step 0", code="PTO-H028", hint="use a step other than 0")
    target = dtype_of(i32 if dtype is None else dtype)
    count = max(0, int(-((start - stop) // step)))
    return present(tiles.arange(to_dtype(start, target), to_dtype(step, target), count), ())


def rand(name: str, seed: Any, offset: Any, shape: Any) -> Any:
    seed = plain(seed)
    if not isinstance(seed, (int, np.integer)):
        raise TypeMismatchError(
            f"{name}: the seed {seed!r} is not an integer", code="PTO-T042", hint="the seed is an integer"
        )
    if shape is not None:
        (start,) = extents_of([offset], f"the offset of {name}")
        return present(tiles.rand(name, int(seed), start, shape_of(shape, f"the shape of {name}")), ())
    counters = tile_of(offset, f"{name} without a shape")
    if counters.data.dtype.kind not in "iu":
        raise TypeMismatchError(
            f"{name}: counters of {_dtype(counters)}", code="PTO-T042", hint="counters are integers"
        )
    return present(tiles.rand_at(name, int(seed), counters), (offset,))


# -- order --------------------------------------------------------------------------------------------------------


def sort(x: Any, descending: bool) -> Any:
    return present(tiles.sort(tile_of(x, "sort"), bool(descending)), (x,))


def argsort(x: Any, descending: bool) -> Any:
    return present(tiles.argsort(tile_of(x, "argsort"), bool(descending)), (x,))


def topk(x: Any, k: int) -> tuple[Any, Any]:
    (count,) = extents_of([k], "k of topk")
    values, indices = tiles.topk(tile_of(x, "topk"), count)
    return present(values, (x,)), present(indices, (x,))


def histogram(x: Any, bins: int) -> Any:
    t = tile_of(x, "histogram")
    if t.data.dtype.kind not in "iu":
        raise TypeMismatchError(f"histogram of {_dtype(t)}", code="PTO-T061", hint="cast it to an integer dtype")
    return present(tiles.histogram(t, extents_of([bins], "bins")[0]), (x,))

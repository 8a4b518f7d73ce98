# SPDX-License-Identifier: MIT
"""What each operation of the table computes, on NumPy values: the interpreter's half of every row.

Scalars are NumPy scalars of their exact dtype, tensors are NumPy arrays, tiles are `TileValue`s.  A region is a
function of lists of arrays (see `Regions`).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from pto_jit import errors
from pto_jit.dtypes import DType
from pto_jit.errors import KernelAssertionError, LaunchError, ShapeError
from pto_jit.ir.nodes import Op, Region
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.language import _memory_ops as memory
from pto_jit.language import _numpy_ops as ops
from pto_jit.language import _tile_ops as tiles
from pto_jit.language._tile_value import TileValue, fitted, joint, joint_marks, tile
from pto_jit.semantic import failures
from pto_jit.slotted import frozen

Value = Any
Array = Any


class Regions(Protocol):
    """How a region is applied: one array per parameter, all of one shape, to one array per result."""

    def __call__(self, region: Region, arrays: Sequence[Array]) -> list[Array]: ...


@frozen
class Context:
    """What an operation needs besides its operands."""

    debug: bool
    apply: Regions


Handler = Callable[[Op, list[Value], Context], Any]  # one value, a tuple of values, or None


def evaluate(op: Op, args: list[Value], context: Context) -> tuple[Value, ...]:
    """The results of `op`; KeyError for a name that has no meaning here."""
    if op.op in _REDUCTIONS and len(args) == 1:
        result = _reduce(op, args, context)
    elif op.op in ops.NAMES or op.op == "gelu":
        result = _elementwise(op, args)
    else:
        result = _HANDLERS[op.op](op, args, context)
    return () if result is None else result if isinstance(result, tuple) else (result,)


# -- elementwise --------------------------------------------------------------------------------------------------


def _elementwise(op: Op, args: list[Value]) -> Value:
    name = op.op
    if name == "gelu" and op.attr("approximate") == "tanh":
        name = "gelu_tanh"
    dtype = op.attr("dtype")
    return tiles.elementwise(name, *args, dtype=dtype if isinstance(dtype, DType) else None)


def _random_at(op: Op, args: list[Value], context: Context) -> Value:
    name, (seed, counters) = op.op.removesuffix("_at"), args
    if isinstance(counters, TileValue):
        return tiles.rand_at(name, int(seed), counters)
    return tiles.rand_at(name, int(seed), tile(np.asarray(counters)[None])).data[0]


# -- attributes and operands --------------------------------------------------------------------------------------


def _ints(values: Sequence[Value]) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def _axes(op: Op, name: str) -> tuple[int, ...]:
    value = op.attr(name) or ()
    assert isinstance(value, tuple)
    return tuple(a for a in value if isinstance(a, int))


def _int(op: Op, name: str) -> int:
    value = op.attr(name)
    assert isinstance(value, int)
    return value


def _halves(values: Sequence[Value], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offsets and extents."""
    return _ints(values[:rank]), _ints(values[rank : 2 * rank])


# -- memory -------------------------------------------------------------------------------------------------------


def _full(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.full(args[0], _ints(args[1:]))


def _arange(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.arange(args[0], args[1], int(args[2]))


def _rand(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.rand(op.op, int(args[0]), int(args[1]), _ints(args[2:]))


def _load(op: Op, args: list[Value], context: Context) -> Value:
    x = args[0]
    offsets, extents = _halves(args[1:], x.ndim)
    return memory.load(x, offsets, extents, args[-1] if op.attr("pad") else None)


def _promised(op: Op, shape: Sequence[int], offsets: Sequence[int], extents: Sequence[int]) -> None:
    """What `inside` promises of a region."""
    if any(at < 0 or n < 0 or at + n > size for at, n, size in zip(offsets, extents, shape, strict=True)):
        where = f"`{op.op}`: the region at {tuple(offsets)} of {tuple(extents)} elements"
        raise errors.LaunchError(f"{where} is not inside the tensor of shape {tuple(shape)}, as its attribute says")


def _store(op: Op, args: list[Value], context: Context) -> None:
    if op.attr("inside"):
        _promised(op, args[1].shape, _ints(args[2:]), args[0].valid)
    memory.store(args[0], args[1], _ints(args[2:]))


def _atomic(op: Op, args: list[Value], context: Context) -> None:
    memory.atomic(op.op.removeprefix("atomic_"), args[0], args[1], _ints(args[2:]))


def _getelem(op: Op, args: list[Value], context: Context) -> Value:
    return args[0][memory.element(args[0], _ints(args[1:]))]


def _setelem(op: Op, args: list[Value], context: Context) -> None:
    args[1][memory.element(args[1], _ints(args[2:]))] = args[0]


def _take(op: Op, args: list[Value], context: Context) -> Value:
    x, index = args[0], args[1]
    if len(args) > 2:
        offsets = _ints(args[2:])
        x = memory.view(x, offsets, [max(0, n - o) for n, o in zip(x.shape, offsets, strict=True)])
    return memory.take(x, index, _int(op, "axis"))


def _put(op: Op, args: list[Value], context: Context) -> None:
    memory.put(args[0], args[1], args[2], _int(op, "axis"))


# -- tensors ------------------------------------------------------------------------------------------------------


def _dim(op: Op, args: list[Value], context: Context) -> Value:
    return np.int64(args[0].shape[_int(op, "axis")])


def _view(op: Op, args: list[Value], context: Context) -> Value:
    offsets, extents = _halves(args[1:], args[0].ndim)
    if op.attr("inside"):
        _promised(op, args[0].shape, offsets, extents)
    return memory.view(args[0], offsets, extents, _axes(op, "drop"))


def _tensor_reshape(op: Op, args: list[Value], context: Context) -> Value:
    x, shape = args[0], _ints(args[1:])
    if not x.flags.c_contiguous or any(n < 0 for n in shape) or np.prod(shape, dtype=np.int64) != x.size:
        raise ShapeError(f"a tensor of shape {x.shape} cannot be viewed with the shape {shape}", code="PTO-H205",
                         hint="the numbers of elements must be equal, and the tensor contiguous")  # fmt: skip
    return x.reshape(shape)


def _tensor_transpose(op: Op, args: list[Value], context: Context) -> Value:
    return args[0].transpose(_axes(op, "axes"))


def _tensor_step(op: Op, args: list[Value], context: Context) -> Value:
    return args[0][tuple(slice(None, None, step) for step in _axes(op, "steps"))]


def _alloc(op: Op, args: list[Value], context: Context) -> Value:
    dtype = op.attr("dtype")
    assert isinstance(dtype, DType)
    shape = _ints(args[:-1] if op.attr("filled") else args)
    if any(n < 0 for n in shape):
        raise LaunchError(f"a tensor of shape {shape}: an extent is negative")
    return np.full(shape, args[-1] if op.attr("filled") else memory.unspecified(dtype), dtype.numpy)


# -- tile structure -----------------------------------------------------------------------------------------------


def _tile_slice(op: Op, args: list[Value], context: Context) -> Value:
    starts, extents = _halves(args[1:], args[0].rank)
    return tiles.tile_slice(args[0], starts, extents, _axes(op, "drop"))


def _reshape(op: Op, args: list[Value], context: Context) -> Value:
    of = op.attr("axes")
    if isinstance(of, tuple):
        kept = tiles.squeeze(args[0], [k for k in range(args[0].rank) if k not in of])
        return tiles.expand_dims(kept, [at for at, k in enumerate(of) if k == -1])
    return tiles.reshape(args[0], _ints(args[1:]))


def _transpose(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.transpose(args[0], _axes(op, "axes"))


def _concat(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.concat(args, _int(op, "axis"))


def _stack(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.stack(args, _int(op, "axis"))


def _broadcast_to(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.broadcast_to(args[0], _ints(args[1:]))


def _flip(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.flip(args[0], [_int(op, "axis")])


def _extract(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.extract(args[0], _ints(args[1:]))


def _valid(op: Op, args: list[Value], context: Context) -> Value:
    extents = args[0].valid if op.op == "valid" else args[0].shape
    return np.int64(extents[_int(op, "axis")])


def _gather(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.gather(args[0], args[1], _int(op, "axis"))


# -- along axes ---------------------------------------------------------------------------------------------------

_REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")


def _reduce(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.reduce(op.op, args[0], _axes(op, "axes"), bool(op.attr("keepdims")))


def _arg_reduce(op: Op, args: list[Value], context: Context) -> Value:
    axis = None if op.attr("axes") is None else _axes(op, "axes")[0]
    return tiles.arg_reduce(op.op, args[0], axis, bool(op.attr("keepdims")))


def _cumulate(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.cumulate(op.op, args[0], _int(op, "axis"), bool(op.attr("reverse")))


def _combine(op: Op, context: Context) -> Callable[[Sequence[Array], Sequence[Array]], Sequence[Array]]:
    return lambda left, right: context.apply(op.regions[0], [*left, *right])


def _map(op: Op, args: list[Value], context: Context) -> tuple[Value, ...]:
    shape, unit, valid = joint(args)
    arrays = [np.broadcast_to(fitted(t, valid), valid) for t in args]
    return tuple(TileValue(r, shape, unit, joint_marks(args)) for r in context.apply(op.regions[0], arrays))


def _fold(op: Op, args: list[Value], context: Context) -> tuple[Value, ...]:
    n = _int(op, "n")
    inits = args[n:] if op.attr("init") else None
    return tuple(tiles.fold(_combine(op, context), args[:n], _int(op, "axis"), inits, bool(op.attr("keepdims"))))


def _assoc_scan(op: Op, args: list[Value], context: Context) -> tuple[Value, ...]:
    return tuple(tiles.scan(_combine(op, context), args, _int(op, "axis"), bool(op.attr("reverse"))))


def _dot(op: Op, args: list[Value], context: Context) -> Value:
    kind = op.results[0].type
    assert isinstance(kind, (TileType, ScalarType))
    return tiles.dot(args[0], args[1], args[2] if len(args) > 2 else None, kind.dtype)


# -- order --------------------------------------------------------------------------------------------------------


def _sort(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.sort(args[0], bool(op.attr("descending")))


def _argsort(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.argsort(args[0], bool(op.attr("descending")))


def _topk(op: Op, args: list[Value], context: Context) -> tuple[Value, ...]:
    return tiles.topk(args[0], _int(op, "k"))


def _histogram(op: Op, args: list[Value], context: Context) -> Value:
    return tiles.histogram(args[0], _int(op, "bins"))


# -- scalars and the outside world --------------------------------------------------------------------------------


def _copy(op: Op, args: list[Value], context: Context) -> Value:
    return args[0]  # tiles are never written in place, so the value itself is the copy


def _print(op: Op, args: list[Value], context: Context) -> None:
    shown = [a.data if isinstance(a, TileValue) else a for a in args]
    builtins.print(str(op.attr("fmt")).format(*shown))


def _assert(op: Op, args: list[Value], context: Context) -> None:
    if bool(args[0]) or not (context.debug or op.attr("always")):
        return
    kind = getattr(errors, str(op.attr("error")), KernelAssertionError) if op.attr("error") else KernelAssertionError
    template = failures.assertion(str(op.attr("message")), str(op.attr("told") or ""))
    raise kind(failures.filled(template, *map(int, args[1:])))


_HANDLERS: dict[str, Handler] = {
    "full": _full, "arange": _arange, "rand": _rand, "randn": _rand, "rand_at": _random_at, "randn_at": _random_at,
    "load": _load, "store": _store, "atomic_add": _atomic, "atomic_max": _atomic, "atomic_min": _atomic,
    "getelem": _getelem, "setelem": _setelem, "take": _take, "put": _put,
    "dim": _dim, "view": _view, "tensor_reshape": _tensor_reshape, "tensor_transpose": _tensor_transpose,
    "tensor_step": _tensor_step, "alloc": _alloc,
    "tile_slice": _tile_slice, "reshape": _reshape, "transpose": _transpose, "concat": _concat, "stack": _stack,
    "broadcast_to": _broadcast_to, "flip": _flip, "extract": _extract, "valid": _valid, "extent": _valid,
    "gather": _gather,
    "argmax": _arg_reduce, "argmin": _arg_reduce, "cumsum": _cumulate, "cumprod": _cumulate,
    "map": _map, "fold": _fold, "assoc_scan": _assoc_scan, "dot": _dot,
    "sort": _sort, "argsort": _argsort, "topk": _topk, "histogram": _histogram,
    "copy": _copy, "print": _print, "assert": _assert,
}  # fmt: skip

NAMES: frozenset[str] = frozenset(_HANDLERS) | (ops.NAMES - {"gelu_tanh"}) | frozenset(_REDUCTIONS)


def argument(value: Any, dtype: DType) -> Any:
    """A scalar argument as a NumPy scalar of `dtype`."""
    if isinstance(value, np.generic):
        return np.asarray(ops.cast(value, dtype))[()]
    return ops.constant(value, dtype)


def number(value: Any) -> int | float | bool:
    """A scalar result as a Python number."""
    return value.item() if value.dtype != ops.BF16 else float(value)



# SPDX-License-Identifier: MIT
"""Tiles from nothing, and traffic between tiles or scalars and tensors."""

from __future__ import annotations

from pto_jit.dtypes import f32, i64
from pto_jit.errors import TypeMismatchError
from pto_jit.ir.nodes import Operand
from pto_jit.ir.types import TileType
from pto_jit.semantic import checks
from pto_jit.semantic.row import SCALAR, Args, Attrs, OpRow, Regions, Types


def full(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    value = checks.scalar(op, args[0], "value")
    return (TileType(value.dtype, checks.extents(op, args[1:])),)


def arange(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    start = checks.scalar(op, args[0], "start")
    checks.kind(op, start.dtype, "fiu")
    checks.scalar(op, args[1], "step", start.dtype)
    return (TileType(start.dtype, checks.extents(op, args[2:])),)


def random(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    checks.scalar(op, args[0], "seed", i64)
    checks.scalar(op, args[1], "offset", i64)
    return (TileType(f32, checks.extents(op, args[2:])),)


def load(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    x = checks.tensor(op, args[0], "source")
    rest = args[1:]
    if checks.flag(op, attrs, "pad"):
        if not rest:
            checks.count(op, 0, 2 * x.rank + 1, "offsets, extents and the pad value")
        checks.scalar(op, rest[-1], "pad value", x.dtype)
        rest = rest[:-1]
    checks.rank_at_least(op, x.shape, 1)
    checks.count(op, len(rest), 2 * x.rank, "offsets and extents")
    checks.offsets(op, rest[: x.rank])
    return (TileType(x.dtype, checks.extents(op, rest[x.rank :])),)


def store(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    value, x = checks.tile(op, args[0], "value"), checks.tensor(op, args[1], "destination")
    checks.value_dtype(op, value, x, "a tensor")
    checks.count(op, value.rank, x.rank, "axes of the tile")
    checks.count(op, len(args) - 2, x.rank, "offsets")
    checks.flag(op, attrs, "inside")
    checks.flag(op, attrs, "reused")
    checks.offsets(op, args[2:])
    return ()


def atomic(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    checks.kind(op, args[0].type.dtype, "fiu")
    return store(op, args, attrs, regions)


def getelem(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    x = checks.tensor(op, args[0], "source")
    checks.indices(op, args[1:], x.shape)
    return (SCALAR[x.dtype],)


def setelem(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    value, x = checks.scalar(op, args[0], "value"), checks.tensor(op, args[1], "destination")
    checks.value_dtype(op, value, x, "a tensor")
    checks.indices(op, args[2:], x.shape)
    return ()


def index_tile(op: str, arg: Operand) -> TileType:
    """The type of a tile of indices: i32 or i64."""
    index = checks.tile(op, arg, "index")
    if index.dtype.kind != "i" or index.dtype.bits < 32:
        raise TypeMismatchError(
            f"`{op}`: the index must be i32 or i64, not {index.dtype}", code="PTO-T130", hint="cast it: `x.to(pl.i32)`"
        )
    return index


def take(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    x, index = checks.tensor(op, args[0], "source"), index_tile(op, args[1])
    axis = checks.axis(op, attrs["axis"], x.rank)
    if len(args) > 2:
        checks.count(op, len(args) - 2, x.rank, "offsets")
        checks.offsets(op, args[2:])
    return (TileType(x.dtype, x.shape[:axis] + index.shape + x.shape[axis + 1 :]),)


def put(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    value, index = checks.tile(op, args[0], "value"), index_tile(op, args[1])
    x = checks.tensor(op, args[2], "destination")
    checks.value_dtype(op, value, x, "a tensor")
    checks.axis(op, attrs["axis"], x.rank)
    checks.count(op, index.rank, x.rank, "axes of the index")
    checks.count(op, value.rank, x.rank, "axes of the tile")
    for axis, (left, right) in enumerate(zip(value.shape, index.shape, strict=True)):
        checks.equal_extents(op, left, right, f"the extents of tile and index along axis {axis}")
    return ()


ROWS: tuple[OpRow, ...] = (
    OpRow("full", "memory", "full(value, *extents)", "a tile of one value", full, 2, None, generator=True),
    OpRow("arange", "memory", "arange(start, step, extent)", "start + i * step along one axis, in the dtype of start",
          arange, 3, 3, generator=True),
    OpRow("rand", "memory", "rand(seed, offset, *extents)", "uniform f32 in [0, 1): element k uses the counter "
          "offset + k (Philox 4x32-10)", random, 3, None, generator=True),
    OpRow("randn", "memory", "randn(seed, offset, *extents)", "normally distributed f32, counters as in rand", random,
          3, None, generator=True),
    OpRow("load", "memory", "load(x, *offsets, *extents[, pad]) {pad}", "a rectangle of a tensor; its valid extents "
          "are clipped at the bounds, or filled with the pad value when pad is True", load, 1, None, optional=("pad",),
          effect="reads", tensor=0),
    OpRow("store", "memory", "store(tile, x, *offsets) {inside, reused}", "writes the valid part, clipped at the "
          "bounds; inside promises that it lies in the tensor, reused says that it is read again soon", store, 2, None,
          optional=("inside", "reused"), effect="writes", tensor=1),
    OpRow("atomic_add", "memory", "atomic_add(tile, x, *offsets)", "adds the valid part to a tensor, each element "
          "atomically", atomic, 2, None, effect="writes", tensor=1),
    OpRow("atomic_max", "memory", "atomic_max(tile, x, *offsets)", "the maximum of tensor and tile, each element "
          "atomically", atomic, 2, None, effect="writes", tensor=1),
    OpRow("atomic_min", "memory", "atomic_min(tile, x, *offsets)", "the minimum of tensor and tile, each element "
          "atomically", atomic, 2, None, effect="writes", tensor=1),
    OpRow("getelem", "memory", "getelem(x, *indices)", "one element as a scalar", getelem, 1, None, effect="reads",
          tensor=0),
    OpRow("setelem", "memory", "setelem(value, x, *indices)", "writes one element", setelem, 2, None, effect="writes",
          tensor=1),
    OpRow("take", "memory", "take(x, index, *offsets) {axis}", "np.take(x, index, axis), x counted from the offsets if "
          "there are any; index is a tile of i32 or i64", take, 2, None,
          required=("axis",), effect="reads", tensor=0),
    OpRow("put", "memory", "put(tile, index, x) {axis}", "np.put_along_axis(x, index, tile, axis); tile and index have "
          "one shape", put, 3, 3,
          required=("axis",), effect="writes", tensor=2),
)  # fmt: skip

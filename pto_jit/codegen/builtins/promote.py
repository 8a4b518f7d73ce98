# SPDX-License-Identifier: MIT
"""Operand preparation: loading views, weak numbers, common dtypes and broadcasting.

Dtypes follow NumPy (NEP 50): tiles and tensor elements are strong, Python numbers are weak and take the dtype of
what they meet.  After this module all operands of an operation have one dtype and one rank.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit import dtypes
from pto_jit.codegen.emit import constant, index
from pto_jit.codegen.values import Scalar, Tensor, Tile, is_runtime, static_extent
from pto_jit.dtypes import DType, bool_, f64, i64, u64
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.ir.nodes import Attr, Const, Operand
from pto_jit.ir.types import ScalarType
from pto_jit.language._annotations import not_a_symbol

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

Value = Scalar | Tile


def load_all(cg: Generator, tensor: Tensor) -> Tile:
    """The whole of a tensor or view as a tile."""
    args: list[Operand] = [tensor.memory, *(index(0) for _ in tensor.extents), *tensor.extents]
    return cg.e.tile("load", args, extents=tensor.extents, hint=tensor.var.name)


def value_of(cg: Generator, value: Any, what: str = "operand") -> Value:
    """A number, tile or view as a Scalar or a Tile; anything else is a type error at the current place."""
    if isinstance(value, (Scalar, Tile)):
        return value
    if isinstance(value, Tensor):  # one without axes is its element, as in NumPy
        return load_all(cg, value) if value.rank else cg.e.scalar("getelem", [value.var], hint="t")
    if isinstance(value, np.generic):
        dtype = dtypes.from_numpy(value.dtype)
        if dtype is not None:
            return Scalar(constant(value.item() if dtype.name != "bf16" else float(value), dtype), False, cg.e.loc)
    if isinstance(value, int) and 2**63 <= value < 2**64:  # weak as well, but of use beside u64 only
        return Scalar(Const(int(value), ScalarType(u64)), True, cg.e.loc)
    if isinstance(value, (bool, int, float)):
        return cg.e.to_scalar(value)
    cg.python(not_a_symbol, value)
    cg.meets(value)
    raise cg.error(
        TypeMismatchError,
        f"{what} is {describe(value)}, which is not a number, a tile or a tensor",
        code="PTO-T010",
        hint=way_out(value, "pass a number, a tile or a tensor; other Python objects exist at compile time only"),
    )


def tile_of(cg: Generator, value: Any, what: str) -> Tile:
    """A tile operand: a tile, or a view loaded."""
    if isinstance(value, Tensor):
        return load_all(cg, value)
    if isinstance(value, Tile):
        return value
    cg.meets(value)
    raise cg.error(
        TypeMismatchError,
        f"{what} takes a tile, got {describe(value)}",
        code="PTO-T011",
        hint=way_out(
            value, "make a tile of a number with `pl.full(shape, value, dtype)`, of a tensor with `pl.load`"
        ),
    )


def _is_array(value: object) -> bool:
    """Whether a value is an array of the surrounding code; arguments are tensors."""
    return isinstance(_answer(value, "shape"), tuple) and _answer(value, "dtype") is not None  # not the module `numpy`


def _answer(value: object, name: str) -> Any:
    """An attribute of any object; None where it has none, or where the user's code that looks it up fails."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def way_out(value: object, otherwise: str) -> str:
    """The hint where a tensor or tile is wanted."""
    return "an array is a tensor where it is an argument: pass it to the kernel" if _is_array(value) else otherwise


def describe(value: object) -> str:
    """A value as an error message names it."""
    if isinstance(value, Scalar):
        return f"a run-time {value.dtype} scalar"
    if isinstance(value, Tile):
        return f"a tile of {value.dtype} with shape {shape_text(value.extents)}"
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} with shape {shape_text(value.extents)}"
    if value is None:
        return "None"
    if _is_array(value):
        return f"an array of {value.dtype} with shape {tuple(value.shape)}"  # pyright: ignore[reportAttributeAccessIssue]
    kind = type(value).__name__
    if isinstance(value, type):
        return f"the class `{value.__name__}`"
    if callable(value) and isinstance(name := _answer(value, "__name__"), str):
        return f"the function `{name}`"
    if _holds_runtime(value):
        return f"a {kind} with run-time values"
    text = quoted(value)
    return text if text.startswith("an object of the class `") else f"the {kind} {text}"


def quoted(value: object, most: int = 60) -> str:
    """A compile-time value as the user writes it, where it can tell how that is."""
    if is_runtime(value):
        return describe(value)
    try:
        text = repr(value)
    except Exception:  # a method of the user's may fail in any way
        text = " at 0x"
    return f"an object of the class `{type(value).__name__}`" if " at 0x" in text else f"{text:.{most}}"


def _holds_runtime(value: object, depth: int = 6) -> bool:
    """Whether run-time values are among the items of a container or the fields of an object."""
    if isinstance(value, (tuple, list, set, frozenset)):
        items: Any = value
    elif isinstance(value, dict):
        items = value.values()
    else:
        slots = [s for c in type(value).__mro__ for s in _names(vars(c).get("__slots__", ()))]
        items = [*_fields(value).values(), *(_answer(value, s) for s in slots)]
    return any(is_runtime(v) or (depth > 0 and _holds_runtime(v, depth - 1)) for v in items)


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _fields(value: object) -> dict[str, Any]:
    found = None if isinstance(value, (type, types.ModuleType, types.FunctionType)) else _answer(value, "__dict__")
    return found if isinstance(found, dict) else {}


def shape_text(extents: Sequence[Operand]) -> str:
    parts = [str(e.value) if isinstance(e, Const) else "?" for e in extents]
    return "(" + ", ".join(parts) + ("," if len(parts) == 1 else "") + ")"


def is_weak(value: Value) -> bool:
    return isinstance(value, Scalar) and value.weak


def common_dtype(values: Sequence[Value]) -> tuple[DType, bool]:
    """The dtype all `values` are brought to, and whether the result is still a weak number."""
    strong: DType | None = None
    weak = [v.dtype for v in values if is_weak(v)]
    for value in values:
        if not is_weak(value):
            strong = value.dtype if strong is None else dtypes.promote(strong, value.dtype)
    if strong is None:
        if any(t.is_float for t in weak):
            return f64, True
        return (i64 if any(t.is_integer for t in weak) else bool_), True
    if any(t.is_float for t in weak) and not strong.is_float:
        return f64, False
    if any(t.is_integer for t in weak) and strong.kind == "b":
        return i64, False
    return strong, False


def to_dtype(cg: Generator, value: Value, dtype: DType) -> Value:
    """An operand cast to `dtype`; a weak integer constant that does not fit is an error, as in NumPy.

    What is stored is cast (`e.cast`), whatever it is: so are numbers that are known when the kernel runs.
    """
    if is_weak(value) and dtype.is_integer and isinstance(value, Scalar) and isinstance(value.operand, Const):
        number = value.operand.value
        fits = constant(number, dtype).value
        if fits != number:
            kind = "float" if isinstance(number, float) else "integer"
            raise cg.error(
                TypeMismatchError,
                f"the Python {kind} {number} does not fit {dtype}",
                code="PTO-T012",
                hint=_way_to_fit(dtype),
            )
    return cg.e.cast(value, dtype)


def _way_to_fit(dtype: DType) -> str:
    if dtype.bits == 64:
        return "compute with smaller numbers: no integer dtype is wider"
    wider = {8: "i16", 16: "i32", 32: "i64"}[dtype.bits]
    return f"cast the other operand to a wider dtype first, e.g. `x.to(pl.{wider})`"


def unify(cg: Generator, values: Sequence[Value]) -> tuple[list[Value], bool]:
    """All values in their common dtype; and whether they are all weak."""
    common, weak = common_dtype(values)
    return [to_dtype(cg, v, common) for v in values], weak


def broadcast(cg: Generator, values: Sequence[Value]) -> tuple[list[Operand], tuple[Operand, ...] | None, bool]:
    """Operands of equal rank, the result's declared extents (None: scalars alone) and whether it is generated."""
    tiles = [v for v in values if isinstance(v, Tile)]
    if not tiles:
        return [v.operand for v in values if isinstance(v, Scalar)], None, False
    rank = max(t.rank for t in tiles)
    operands: list[Operand] = []
    aligned: list[Tile] = []
    for value in values:
        if isinstance(value, Tile):
            value = with_rank(cg, value, rank)
            aligned.append(value)
            operands.append(value.var)
        else:
            operands.append(value.operand)
    return operands, joint_extents(cg, aligned), all(t.generated for t in aligned)


def joint_extents(cg: Generator, tiles: Sequence[Tile]) -> tuple[Operand, ...]:
    """Declared extents of an elementwise result over tiles of one rank."""
    extents: list[Operand] = []
    for axis in range(tiles[0].rank):
        chosen: Operand = index(1)
        for tile in sorted(tiles, key=lambda t: t.generated):
            extent = tile.extents[axis]
            if static_extent(extent) == 1:
                continue
            if static_extent(chosen) == 1:
                chosen = extent
            elif isinstance(extent, Const) and isinstance(chosen, Const) and extent.value != chosen.value:
                shapes = " and ".join(shape_text(t.extents) for t in tiles)
                raise cg.error(
                    ShapeError,
                    f"tiles of shape {shapes} do not broadcast: axis {axis} has extents "
                    f"{chosen.value} and {extent.value}",
                    code="PTO-H001",
                    hint="an axis broadcasts when its declared extent is the constant 1; use `pl.reshape` or load "
                    "equal extents",
                )
            elif isinstance(extent, Const) and not isinstance(chosen, Const):
                chosen = extent
        extents.append(chosen)
    return tuple(extents)


def with_extents(cg: Generator, tile: Tile, extents: Sequence[Operand], axes: Sequence[int] | None = None) -> Tile:
    """`reshape` to the given declared extents; axes: which of the tile's each is (-1: a new one), where that is known.

    Only then may axes of extent 1 that stay be empty, which nothing but this tells from those that come and go.
    """
    told = axes is not None and any(k >= 0 and static_extent(tile.extents[k]) == 1 for k in axes)
    attrs: dict[str, Attr] | None = {"axes": tuple(axes)} if axes is not None and told else None
    return cg.e.tile("reshape", [tile.var, *extents], attrs, extents=tuple(extents), generated=tile.generated)


def with_axes(cg: Generator, tile: Tile, axes: Sequence[int]) -> Tile:
    """New axes of extent 1 at the sorted positions `axes` of the result."""
    extents, kept = list(tile.extents), list(range(tile.rank))
    for axis in axes:
        extents.insert(axis, index(1))
        kept.insert(axis, -1)
    return with_extents(cg, tile, extents, kept)


def with_rank(cg: Generator, tile: Tile, rank: int) -> Tile:
    """A tile of at most that rank with new axes of extent 1 before its own."""
    return tile if tile.rank == rank else with_axes(cg, tile, range(rank - tile.rank))


def without_axes(cg: Generator, tile: Tile, gone: Sequence[int]) -> Tile:
    """Without some axes of extent 1; others stay."""
    kept = [axis for axis in range(tile.rank) if axis not in gone]
    return with_extents(cg, tile, [tile.extents[axis] for axis in kept], kept)


def apply(
    cg: Generator,
    op: str,
    values: Sequence[Value],
    attrs: dict[str, Any] | None = None,
    *,
    weak: bool = False,
) -> Value:
    """Emit an elementwise operation over operands that already have their dtypes."""
    operands, extents, generated = broadcast(cg, values)
    if extents is None:
        return cg.e.scalar(op, operands, attrs, weak=weak)
    return cg.e.tile(op, operands, attrs, extents=extents, generated=generated)


def wrap(cg: Generator, var: Any, extents: Sequence[Operand]) -> Value:
    """An op's result variable as the value its type says."""
    if isinstance(var.type, ScalarType):
        return Scalar(var, False, cg.e.loc)
    return Tile(var, tuple(extents), False, cg.e.loc)

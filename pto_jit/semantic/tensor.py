# SPDX-License-Identifier: MIT
"""Operations on tensors that move no data: extents, views, and new tensors."""

from __future__ import annotations

from pto_jit.dtypes import i64
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.ir.nodes import Attr
from pto_jit.ir.types import Layout, TensorType
from pto_jit.semantic import checks
from pto_jit.semantic.row import SCALAR, Args, Attrs, OpRow, Regions, Types


def dim(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    checks.axis(op, attrs["axis"], checks.tensor(op, args[0]).rank)
    return (SCALAR[i64],)


def view(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    """Only an axis that is taken as a whole keeps a known extent: a view is clipped at its parent's bounds at run time.

    In general only views of one axis keep the layout "c": whether others are contiguous depends on run-time extents.
    """
    x = checks.tensor(op, args[0])
    checks.count(op, len(args) - 1, 2 * x.rank, "offsets and extents")
    checks.offsets(op, args[1 : 1 + x.rank])
    shape = checks.extents(op, args[1 + x.rank :])
    drop = dropped(op, attrs, shape)
    checks.flag(op, attrs, "inside")
    whole = tuple(checks.constant(o) == 0 and e == n for o, e, n in zip(args[1:], shape, x.shape, strict=False))
    kept = tuple(e if whole[axis] else None for axis, e in enumerate(shape) if axis not in drop)
    layout: Layout = "strided"
    if x.layout != "strided" and x.rank - 1 not in drop:
        layout = "c" if len(kept) == 1 else "inner"
        if x.layout == "c" and all(whole[1:]) and None not in shape[1:] and set(drop) <= {0}:
            layout = "c"  # whole rows of known width
    return (TensorType(x.dtype, kept, layout),)


def dropped(op: str, attrs: dict[str, Attr], shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """The axes that `drop` removes: those of extent 1, and never all."""
    if not attrs.get("drop"):
        return ()
    drop = checks.axes(op, attrs["drop"], len(shape), "drop")
    for axis in drop:
        if shape[axis] != 1:
            raise ShapeError(
                f"`{op}`: axis {axis} of shape {checks.shape_text(shape)} cannot be dropped",
                code="PTO-H120",
                hint="only an axis with the constant extent 1 can be dropped",
            )
    checks.rank_at_least(op, tuple(e for axis, e in enumerate(shape) if axis not in drop), 1)
    return drop


def reshape(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    x = checks.tensor(op, args[0])
    if x.layout != "c":
        raise TypeMismatchError(
            f"`{op}`: a tensor of layout {x.layout!r} cannot be reshaped without a copy",
            code="PTO-T140",
            hint="pass a C-contiguous array (np.ascontiguousarray), or load it and reshape the tile",
        )
    shape = checks.extents(op, args[1:])
    checks.rank_at_least(op, shape, 1)
    checks.same_size(op, x.shape, shape)
    return (TensorType(x.dtype, shape, "c"),)


def transpose(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    x = checks.tensor(op, args[0])
    axes = checks.permutation(op, attrs["axes"], x.rank)
    layout: Layout = "strided"
    if axes == tuple(range(x.rank)):
        layout = x.layout
    elif x.layout != "strided" and axes[-1] == x.rank - 1:
        layout = "inner"
    return (TensorType(x.dtype, tuple(x.shape[axis] for axis in axes), layout),)


def step(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    x = checks.tensor(op, args[0])
    steps = attrs["steps"]
    if not isinstance(steps, tuple):
        raise TypeMismatchError(
            f"`{op}`: steps must be a tuple of ints, not {steps!r}", code="PTO-T111", hint="e.g. `(1, 2)`"
        )
    checks.count(op, len(steps), x.rank, "steps")
    by = [checks.positive(op, one, "a step") for one in steps]
    layout: Layout = "strided"
    if x.layout != "strided" and by[-1] == 1:
        layout = x.layout if set(by) == {1} else "inner"
    return (TensorType(x.dtype, tuple(n and -(-n // s) for n, s in zip(x.shape, by, strict=True)), layout),)


def alloc(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    dtype = checks.dtype_attr(op, attrs)
    if checks.flag(op, attrs, "filled"):
        checks.scalar(op, args[-1], "value", dtype)
        args = args[:-1]
    shape = checks.extents(op, args)
    checks.rank_at_least(op, shape, 1)
    return (TensorType(dtype, shape, "c"),)


ROWS: tuple[OpRow, ...] = (
    OpRow("dim", "tensor", "dim(x) {axis}", "the extent of an axis", dim, 1, 1, required=("axis",), tensor=0),
    OpRow("view", "tensor", "view(x, *offsets, *extents) {drop, inside}", "a rectangle of a tensor, clipped at its "
          "bounds, without the axes in drop (extent 1); inside promises that it lies in the tensor, so nothing is "
          "clipped", view, 1, None, optional=("drop", "inside"), tensor=0),
    OpRow("tensor_reshape", "tensor", "tensor_reshape(x, *extents)", "a C-contiguous tensor with other extents",
          reshape,
          2, None, tensor=0),
    OpRow("tensor_transpose", "tensor", "tensor_transpose(x) {axes}", "the axes in another order", transpose, 1, 1,
          required=("axes",), tensor=0),
    OpRow("tensor_step", "tensor", "tensor_step(x) {steps}", "of each axis every s-th element from the first one on, "
          "for its step s", step, 1, 1, required=("steps",), tensor=0),
    OpRow("alloc", "tensor", "alloc(*extents[, value]) {dtype, filled, checked, tile}", "a new C-contiguous tensor, of "
          "one value when filled is True; when checked is True a negative extent is an error, else there are no "
          "elements; tile promises that it holds one tile, which is loaded with the valid extents it was stored with",
          alloc, 1, None, required=("dtype",), optional=("filled", "checked", "tile"), unique=True),
)  # fmt: skip

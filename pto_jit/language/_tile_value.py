# SPDX-License-Identifier: MIT
"""A tile as data: the valid part, the declared shape, and the rules by which extents combine.

Eager mode and the reference interpreter compute on these values; the rules are those of the language:

* an axis whose declared extent is the constant 1 broadcasts; other declared extents must be equal;
* valid extents must be equal too, except that a *generated* tile (zeros, arange, rand, ... and what is computed
  elementwise from such tiles, or rearranged) is valid everywhere and fits any valid extent.  This is a matter of each
  axis: `arange(64)[None, :] < n[:, None]` has the rows of `n`, and columns that fit whatever they meet;
* a broadcast axis that holds nothing (valid extent 0) leaves nothing of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_jit.errors import BoundsError, LaunchError, ShapeError
from pto_jit.slotted import frozen, replace

Shape = tuple[int, ...]

PAD_HELP = (
    "load it with `pl.load(x, offsets, shape, pad=value)`, which reads `value` outside the tensor and is valid "
    "in its whole declared shape"
)


class ExtentError(ShapeError, LaunchError):
    """Extents that do not go together, met while running: a ShapeError where the compiler can know it."""


class OffsetError(ShapeError, BoundsError):
    """A negative offset, met while running: a ShapeError where the compiler can know it."""


class HoleError(ShapeError, BoundsError):
    """An operation that needs a complete tile met one whose valid part is smaller than its declared shape."""


def outside(message: str, code: str = "PTO-B002") -> BoundsError:
    """The error for an index outside of a tensor or tile."""
    tile = code == "PTO-B003"
    hint = "clip the index tile: `pl.clip(index, 0, n - 1)`" if tile else "compute it so that it stays inside"
    error = BoundsError(f"{code}: {message}\nhelp: {hint}")
    error.code = code
    return error


@frozen(eq=False)
class TileValue:
    """`data` is the valid part; `unit` marks the axes whose declared extent is the constant 1, `generated` those that
    were generated (empty: none)."""

    data: np.ndarray
    shape: Shape
    unit: tuple[bool, ...]
    generated: tuple[bool, ...] = ()

    @property
    def valid(self) -> Shape:
        return self.data.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def complete(self) -> bool:
        return self.data.shape == self.shape

    def fits(self, axis: int) -> bool:
        """Whether the tile fits any valid extent along an axis."""
        return bool(self.generated) and self.generated[axis] and self.data.shape[axis] == self.shape[axis]

    def with_data(self, data: np.ndarray) -> TileValue:
        """The same extents around other elements."""
        return replace(self, data=data)


def tile(data: Any, shape: Sequence[int] | None = None, generated: bool | tuple[bool, ...] = ()) -> TileValue:
    """A tile value; without `shape` the whole of `data` is declared.  generated: which axes, or whether all."""
    array = np.asarray(data)
    declared = array.shape if shape is None else tuple(int(n) for n in shape)
    marks = (generated,) * len(declared) if isinstance(generated, bool) else generated
    return TileValue(array, declared, tuple(n == 1 for n in declared), marks)


def joint_marks(tiles: Sequence[TileValue]) -> tuple[bool, ...]:
    """Which axes of an elementwise result count as generated: where all operands that have the axis are."""
    marks = []
    for axis in range(-max(t.rank for t in tiles), 0):
        here = [t for t in tiles if t.rank >= -axis]
        deciding = [t for t in here if not t.unit[axis]] or here
        marks.append(all(t.generated and t.generated[axis] for t in deciding))
    return tuple(marks) if any(marks) else ()


def joint(tiles: Sequence[TileValue]) -> tuple[Shape, tuple[bool, ...], Shape]:
    """Declared shape, unit axes and valid extents of an elementwise result."""
    rank = max(t.rank for t in tiles)
    shape, unit, valid = [], [], []
    for axis in range(-rank, 0):
        here = [t for t in tiles if t.rank >= -axis]
        wide = [t for t in here if not t.unit[axis]]
        empty = any(t.unit[axis] and t.valid[axis] == 0 for t in here)
        unit.append(not wide)
        if not wide:
            shape.append(1)
            valid.append(0 if empty else 1)
            continue
        declared = {t.shape[axis] for t in wide}
        if len(declared) > 1:
            raise ExtentError(
                f"tiles of shape {' and '.join(str(t.shape) for t in tiles)} do not broadcast: axis {axis + rank} has "
                f"the declared extents {_listed(declared)}",
                code="PTO-H202",
                hint="declared extents must be equal, or the constant 1",
            )
        shape.append(wide[0].shape[axis])
        firm = {t.valid[axis] for t in wide if not t.fits(axis)}
        if len(firm) > 1:
            raise ExtentError(
                f"tiles of shape {' and '.join(str(t.shape) for t in tiles)}: axis {axis + rank} has the valid extents "
                f"{_listed(firm)}",
                code="PTO-H201",
                hint=PAD_HELP,
            )
        valid.append(0 if empty else firm.pop() if firm else wide[0].shape[axis])
    return tuple(shape), tuple(unit), tuple(valid)


def fitted(t: TileValue, valid: Shape) -> np.ndarray:
    """The elements of `t` that meet a result of these valid extents, in a shape that NumPy broadcasts to them."""
    data = t.data.reshape((1,) * (len(valid) - t.rank) + t.data.shape)
    return data[tuple(slice(0, n) for n in valid)]


def _listed(extents: set[int]) -> str:
    return " and ".join(str(n) for n in sorted(extents))


def need_complete(t: TileValue, what: str) -> None:
    """What would leave a hole is an error."""
    if not t.complete:
        raise HoleError(
            f"{what} of an incomplete tile: its declared shape is {t.shape}, its valid part {t.valid}",
            code="PTO-B006",
            hint=PAD_HELP,
        )


def checked_axis(axis: Any, rank: int, what: str) -> int:
    """A non-negative axis."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or not -rank <= axis < rank:
        raise ShapeError(f"{what}: axis {axis!r} is out of range for rank {rank}", code="PTO-H013",
                         hint=f"axes run from {-rank} to {rank - 1}")  # fmt: skip
    return int(axis) % rank


def checked_axes(axis: Any, rank: int, what: str) -> tuple[int, ...]:
    """Sorted non-negative axes (None: all)."""
    if axis is None:
        return tuple(range(rank))
    axes = sorted(checked_axis(a, rank, what) for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{what}: an axis is named twice", code="PTO-H030", hint="name each axis once")
    return tuple(axes)

# SPDX-License-Identifier: MIT
"""What stands between the brackets of `x[...]` and `t[...]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_jit.errors import ShapeError
from pto_jit.language._annotations import not_a_symbol
from pto_jit.language._indices import Unread
from pto_jit.language._number import Element, Int
from pto_jit.language._tile_value import OffsetError
from pto_jit.slotted import frozen


@frozen
class Bounds:
    """The part of one axis that an index takes: every `step`-th of `extent` elements from `start`; a dropped axis holds
    one."""

    start: int
    extent: int
    dropped: bool
    step: int = 1

    @property
    def count(self) -> int:
        """How many elements it takes."""
        return -(-self.extent // self.step)

    @property
    def index(self) -> int | slice:
        """The same for NumPy."""
        return self.start if self.dropped else slice(self.start, self.start + self.extent, self.step)


def _items(key: Any) -> list[Any]:
    return list(key) if isinstance(key, tuple) else [key]


def without_numbers(key: Any) -> Any:
    """A key with elements replaced by their NumPy scalars; weak run-time integers stay, as they never count from the
    end."""
    if isinstance(key, tuple):
        return tuple(without_numbers(item) for item in key)
    if isinstance(key, slice):
        return slice(*(without_numbers(bound) for bound in (key.start, key.stop, key.step)))
    if isinstance(key, Unread):
        return key.__index__()  # raises: NumPy would say something else
    return Int(key.value) if isinstance(key, Element) and key.dtype.is_integer else key


def has_tile(key: Any, classes: tuple[type, ...]) -> bool:
    """Whether one of the indices is a tile."""
    return any(isinstance(item, classes) and getattr(item, "ndim", 0) for item in _items(key))


def is_mask(key: Any) -> bool:
    """Whether an index is a tile or tensor that says of every element, or row, whether it is meant."""
    return getattr(key, "ndim", 0) > 0 and np.asarray(key).dtype.kind == "b"


def for_masks(key: Any, otherwise: str) -> str:
    """What to do instead of an index that is a tile: a mask among them is not a list of places."""
    masked = any(np.ndim(i) and np.asarray(i).dtype.kind == "b" for i in _items(key))
    return "compute on all elements, and choose: `pl.where(mask, a, b)`" if masked else otherwise


ROW_BY_ROW = "write one row after the other: `for k in pl.range(n): x[index[k], :] = t[k, :]`"


def scatter_instead(rank: int) -> str:
    """What to write instead of an assignment through an index tile to a tensor of `rank` axes."""
    return "use `pl.scatter(tile, index, 0, x)`" if rank == 1 else ROW_BY_ROW


def moves_to_the_front(axis: int, numbers: Sequence[int]) -> bool:
    """Whether NumPy puts the axis of an index tile at `axis` first: numbers at the axes `numbers` are apart from it."""
    given = [*numbers, axis]
    together = max(given) - min(given) == len(numbers)
    return not together and axis > sum(n < axis for n in numbers)


def has_index_tensor(key: Any, tensor: type) -> bool:
    """Whether one of the indices is a tensor of integers; one of booleans is a mask, which is NumPy's."""
    return any(isinstance(i, tensor) and i.ndim and i.dtype.kind in "iu" for i in _items(key))  # type: ignore[attr-defined]


def is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_))


def is_plain(key: Any) -> bool:
    """Only integers, slices with a positive step, `...` and None: what a kernel may write."""
    for item in _items(key):
        not_a_symbol(item)
    return all(
        is_integer(i) or i is None or i is Ellipsis or (isinstance(i, slice) and (i.step is None or i.step > 0))
        for i in _items(key)
    )


def expand(key: Any, rank: int, what: str) -> tuple[list[Any], list[int]]:
    """One index per axis, and the axes of the result that `None` adds."""
    items = _items(key)
    dots = [k for k, i in enumerate(items) if i is Ellipsis]
    if len(dots) > 1:
        raise ShapeError("an index with more than one `...`", code="PTO-H007", hint="use one `...`")
    given = sum(i is not None and i is not Ellipsis for i in items)
    if given > rank:
        raise ShapeError(
            f"{given} indices for {what} of rank {rank}", code="PTO-H008", hint="give at most one index per axis"
        )
    at = dots[0] if dots else len(items)
    items[at : at + 1] = [slice(None)] * (rank - given)
    new_axes, position = [], 0
    for item in items:
        if item is None:
            new_axes.append(position)
        position += not is_integer(item)
    return [i for i in items if i is not None], new_axes


def _from_start(bound: Any, extent: int) -> int:
    return int(bound) + (extent if bound < 0 and not isinstance(bound, Int) else 0)


def bounds(item: Any, extent: int) -> Bounds:
    """Negative bounds that are known when a kernel is compiled count from the end, as in Python; run-time ones (`Int`)
    do not.  A start before the first element is an error."""
    if is_integer(item):
        return Bounds(_from_start(item, extent), 1, True)
    if not isinstance(item, slice):
        not_a_symbol(item)
        raise ShapeError(f"{item!r} is not an index", code="PTO-T030", hint="an index is an integer or a slice")
    step = 1 if item.step is None else item.step
    if not is_integer(step) or step < 1:
        raise ShapeError(f"a slice with the step {step!r}", code="PTO-H009",
                         hint="steps are integers of at least 1; `pl.flip` turns an axis of a tile around")
    start = 0 if item.start is None else _from_start(item.start, extent)
    stop = extent if item.stop is None else _from_start(item.stop, extent)
    if start < 0:
        raise OffsetError(
            f"the offset {item.start} is negative", code="PTO-H004", hint="offsets count from the start of the axis"
        )
    return Bounds(start, max(0, stop - start), False, int(step))

# SPDX-License-Identifier: MIT
"""`from_list` and `from_flat`: lists from Python's lists of arrays, and from a buffer of leaves with offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_jit.dtypes import DType, from_numpy
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.fractal.marking import operation
from pto_jit.fractal.places import failure, show_path
from pto_jit.fractal.tensor import Array, FractalTensor, from_counts, whole
from pto_jit.fractal.types import TensorType, number_type
from pto_jit.language import Tile

_MOST_LEVELS = 32


@operation
def from_list(items: Sequence[Any], *, leaf: Any = None) -> FractalTensor:
    """A FractalTensor of the arrays (or numbers) in nested lists, which are copied into one buffer.

    items: lists of lists ... of arrays, all at one depth; FractalTensors may stand for lists.  Empty lists may stand at
    any level.  leaf: `pto.spec(shape, dtype)`, the type of the leaves; needed when there are none, else checked.
    `from_list([], leaf=...)` is a list of leaves; an empty list of lists of them is `from_flat(leaves, [[0]])`, with
    leaves of extents `(0, *shape)`.

    Raises ShapeError for leaves of different shapes (PTO-F010), TypeMismatchError for different element types
    (PTO-F011), depths (PTO-F012), things that are not arrays (PTO-F013), a missing `leaf` (PTO-F014) or one that is
    no type (PTO-F017).

    >>> import numpy as np, pto_jit.fractal as ft
    >>> ft.from_list([[np.ones(2), np.zeros(2)], [], [np.ones(2)]])
    FractalTensor([2, 0, 1] of pl.Tensor[[2], pl.f64])
    """
    if not isinstance(items, (list, FractalTensor)):
        raise failure(TypeMismatchError, "PTO-F013", f"from_list of {type(items).__name__}",
                      "give a list of arrays, or of lists of them; `ft.slices` makes one of a tensor")  # fmt: skip
    depth = _depth(items)
    level: list[Any] = [items]
    paths: list[tuple[int, ...]] = [()]
    offsets: list[Array] = []
    for _ in range(depth):
        for item, path in zip(level, paths, strict=True):
            _is_list(item, path, depth, items)
        offsets.append(from_counts(np.array([len(item) for item in level], np.int64)))
        paths = [(*path, i) for item, path in zip(level, paths, strict=True) for i in range(len(item))]
        level = [inner for item in level for inner in item]
    arrays = [_leaf(item, path) for item, path in zip(level, paths, strict=True)]
    wanted = None if leaf is None else _leaf_type(leaf)
    if not arrays and wanted is None:
        raise failure(TypeMismatchError, "PTO-F014", "from_list of lists without a leaf: its type is not known",
                      "say what the leaves are: `ft.from_list([[], []], leaf=pto.spec((1, 64), pl.f32))`")  # fmt: skip
    kind = wanted or number_type(arrays[0])
    assert kind is not None
    for array, path in zip(arrays, paths, strict=True):
        same_leaf(number_type(array), kind, path, "leaf=" if wanted else f"the leaf at {show_path(paths[0])}")
    buffer = np.empty((len(arrays), *kind.shape), kind.dtype.numpy)
    for k, array in enumerate(arrays):
        buffer[k] = array
    return whole(buffer, offsets[1:])


@operation
def from_flat(leaves: Any, offsets: Sequence[Any] = ()) -> FractalTensor:
    """A FractalTensor over an array of leaves `[count, *leaf_shape]`, whose memory it keeps.

    offsets: per level but the innermost, outermost first, where each list starts in the level below, and the end:
    `[[0, 3, 3, 5]]` for lists of 3, 0 and 2 leaves; none for a list of depth 1.

    Raises TypeMismatchError for what is not an array of an element type (PTO-F013) and offsets that are not integers
    (PTO-F016), ShapeError for offsets that do not start at 0, decrease, or do not end at the count of the level below
    (PTO-F015).

    >>> import numpy as np, pto_jit.fractal as ft
    >>> ft.from_flat(np.zeros((5, 1, 64), np.float32), [[0, 3, 3, 5]])
    FractalTensor([3, 0, 2] of pl.Tensor[[1, 64], pl.f32])
    """
    array = _array(leaves)
    if array is None or array.ndim == 0:
        raise failure(TypeMismatchError, "PTO-F013", f"from_flat of {type(leaves).__name__}",
                      "give an array whose first axis counts the leaves")  # fmt: skip
    if not isinstance(offsets, (list, tuple)):
        raise failure(TypeMismatchError, "PTO-F016", f"from_flat: the offsets are {offsets!r:.40}",
                      "give a list with the offsets of each level: `[[0, 3, 3, 5]]`")  # fmt: skip
    levels = [_offsets(level, k) for k, level in enumerate(offsets)]
    for k, level in enumerate(levels):
        inner = k + 1 == len(levels)
        below = len(array) if inner else len(levels[k + 1]) - 1
        if level[-1] != below:
            raise failure(ShapeError, "PTO-F015", f"from_flat: offsets[{k}] ends at {level[-1]}, below are {below} "
                          f"{'leaves' if inner else 'lists'}", "it ends at the count of the level below")  # fmt: skip
    return whole(array, levels)


def _leaf_type(leaf: Any) -> TensorType:
    """The type that `leaf=` says.  Raises TypeMismatchError (PTO-F017)."""
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if not isinstance(dtype, DType) or not isinstance(shape, tuple) or None in shape:
        raise failure(TypeMismatchError, "PTO-F017", f"from_list: leaf={leaf!r:.60}, which is not a type of leaves",
                      "write `leaf=pto.spec((1, 64), pl.f32)`, with all extents")  # fmt: skip
    return TensorType(shape, dtype)


def _offsets(level: Any, k: int) -> Array:
    try:
        found = np.asarray(level)
    except ValueError:  # rows of different lengths
        found = np.empty(0)
    if found.ndim != 1 or len(found) == 0 or found.dtype.kind not in "iu":
        raise failure(TypeMismatchError, "PTO-F016", f"from_flat: offsets[{k}] is not a sequence of integers",
                      "give the starts of the lists and the end: `[0, 3, 3, 5]`")  # fmt: skip
    found = found.astype(np.int64)
    if found[0] != 0 or bool(np.any(np.diff(found) < 0)):
        raise failure(ShapeError, "PTO-F015", f"from_flat: offsets[{k}] does not start at 0 or decreases",
                      "give the starts of the lists and the end: `[0, 3, 3, 5]`")  # fmt: skip
    found.flags.writeable = False
    return found


def _depth(items: Any, level: int = 0) -> int:
    """Levels of lists down to the deepest leaf or empty list.  Raises TypeMismatchError (PTO-F012)."""
    if isinstance(items, FractalTensor):
        return items.depth
    if not isinstance(items, list):
        return 0
    if level == _MOST_LEVELS:
        raise failure(TypeMismatchError, "PTO-F012", f"lists are in lists, more than {_MOST_LEVELS} deep",
                      "does one of them hold itself, or a list that it is in?")  # fmt: skip
    deepest = 0
    for item in items:
        inner = _depth(item, level + 1)
        if inner > deepest:
            deepest = inner
    return deepest + 1


def _is_list(item: Any, path: tuple[int, ...], depth: int, items: Any) -> None:
    if isinstance(item, tuple):
        raise failure(TypeMismatchError, "PTO-F013", f"a tuple stands at {show_path(path)}, which is not a list",
                      "write lists with [...]; a list of pairs is `ft.zip` of two lists")  # fmt: skip
    if not isinstance(item, (list, FractalTensor)):
        at, other = len(path), _deepest(items, depth)
        as_one = f", as {show_path(other)}" if other else ""
        raise failure(TypeMismatchError, "PTO-F012", f"{show_path(path)} is a leaf at depth {at}, others are at depth "
                      f"{depth}{as_one}", "put all tensors at one depth: wrap the single ones in lists")  # fmt: skip


def _deepest(items: Any, depth: int) -> tuple[int, ...]:
    """The path of the first leaf under `depth` levels of lists; () where there is none, or it is in a FractalTensor."""
    if not depth:
        return ()
    for k, item in enumerate(items if isinstance(items, list) else ()):
        if depth == 1 and not isinstance(item, (list, FractalTensor)):
            return (k,)
        if depth > 1 and (inner := _deepest(item, depth - 1)):
            return (k, *inner)
    return ()


def _leaf(item: Any, path: tuple[int, ...]) -> Array | np.generic:
    array = _array(item)
    if array is None:
        raise failure(TypeMismatchError, "PTO-F013", f"{show_path(path)} is {item!r:.60}, which is not a tensor",
                      "leaves are arrays or numbers of one of the language's element types")  # fmt: skip
    return array


def _array(item: Any) -> Any:
    """An array or number as NumPy's; None for anything else, for other element types than those of the language."""
    if isinstance(item, (list, tuple, str, bytes, dict)) or item is None:
        return None
    if isinstance(item, Tile) and not item.value.complete:  # a load past the end of a tensor
        return None
    try:
        array = item.view(np.ndarray) if isinstance(item, np.ndarray) else np.asarray(item)
    except (TypeError, ValueError):
        return None
    return None if from_numpy(array.dtype) is None else array


def same_leaf(kind: TensorType | None, wanted: TensorType, path: tuple[int, ...], other: str) -> None:
    """Check a leaf's type against the first one's.  Raises ShapeError (PTO-F010), TypeMismatchError (PTO-F011)."""
    if kind == wanted:
        return
    at = show_path(path)
    if kind is None or kind.dtype != wanted.dtype:
        raise failure(TypeMismatchError, "PTO-F011", f"the leaf {at} has element type {kind and kind.dtype}, {other} "
                      f"has {wanted.dtype}", "all leaves have one element type: cast with `.astype`")  # fmt: skip
    raise failure(ShapeError, "PTO-F010", f"the leaf {at} has shape {list(kind.shape)}, {other} has "
                  f"{list(wanted.shape)}", "all leaves have one shape; what varies is the length of lists")  # fmt: skip

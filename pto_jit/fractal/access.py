# SPDX-License-Identifier: MIT
"""Access operations: other arrangements of the elements of lists, all of them views.

Each computes the positions of the elements it wants and takes them, and nests lists by new offsets; leaves stay where
they are.  Lists are FractalTensors or zipped lists, which are rearranged part by part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_jit.errors import BoundsError, ShapeError, TypeMismatchError
from pto_jit.fractal.elements import agreed, canonical, is_weak, zip_up
from pto_jit.fractal.elements import stack as stack_values
from pto_jit.fractal.marking import operation
from pto_jit.fractal.parallel import at_least
from pto_jit.fractal.places import failure
from pto_jit.fractal.tensor import Array, FractalTensor, Positions, from_counts, integer, whole
from pto_jit.fractal.trial import trying
from pto_jit.fractal.zipped import Zipped, checked_list, zipped
from pto_jit.language._tile import Tensor

_slice = slice  # the name is given to an operation below


def _evenly(count: int, size: int) -> Array:
    """Offsets of `count` lists of `size` elements."""
    return np.arange(count + 1, dtype=np.int64) * size


def alike(sample: Any, count: int) -> Any:
    """A list of `count` such elements: what stands for an empty list in a trial."""
    return zip_up(stack_values([sample] * max(count, 1), materialise=False))[:count]


def _tensor(x: Any, what: str) -> np.ndarray[Any, Any]:
    """A tensor argument as a plain array.  Raises TypeMismatchError (PTO-F037)."""
    if isinstance(x, (FractalTensor, Zipped, tuple, list)) or x is None:
        found: Any = None
    else:
        found = canonical(x, f"the argument of {what}")
    if not isinstance(found, np.ndarray):
        raise failure(TypeMismatchError, "PTO-F037", f"{what} takes a tensor, got {x!r:.60}",
                      "give an array with axes; parts of a list are `ft.slice` and `ft.split`")  # fmt: skip
    return found.view(np.ndarray)


def _axis(axis: Any, rank: int, what: str) -> int:
    along = integer(axis, f"the axis of {what}")
    if not -rank <= along < rank:
        raise failure(ShapeError, "PTO-F038", f"{what}: axis {along} of a tensor of rank {rank}",
                      f"axes run from 0 to {rank - 1}; negative ones from the end")  # fmt: skip
    return along % rank


# -- several lists ------------------------------------------------------------------------------------------------


@operation
def enumerate(*lists: Any) -> Zipped:
    """The list of (index, element, ...): `ft.zip` with the positions, which are Python's integers.

    Raises as `ft.zip`.

    >>> import pto_jit.fractal as ft
    >>> ft.enumerate(ft.from_list([0.5, 1.5]))[1]
    (1, np.float64(1.5))
    """
    if not lists:
        raise failure(TypeMismatchError, "PTO-F021", "ft.enumerate of nothing", "give at least one list")
    count = len(checked_list(lists[0], "argument 1 of ft.enumerate"))
    return zipped((whole(np.arange(count, dtype=np.int64).view(Positions), ()), *lists), "ft.enumerate")


@operation
def product(x: Any, y: Any) -> tuple[Any, Any]:
    """All pairs of elements, as two lists of lists (xs, ys) with xs[i][j] = x[j] and ys[i][j] = y[i].

    >>> import pto_jit.fractal as ft
    >>> [z.tolist() for z in ft.product(ft.from_list([1, 2]), ft.from_list([3]))]
    [[[np.int64(1), np.int64(2)]], [[np.int64(3), np.int64(3)]]]
    """
    x, y = checked_list(x, "argument 1 of ft.product"), checked_list(y, "argument 2 of ft.product")
    n, m = len(x), len(y)
    offsets = _evenly(m, n)
    xs = x.take(np.tile(np.arange(n, dtype=np.int64), m)).nest(offsets, None if m else x)
    ys = y.take(np.repeat(np.arange(m, dtype=np.int64), n))
    return xs, ys.nest(offsets, None if m else alike(y.sample(), max(n, 1)))


@operation
def join(*lists: Any) -> Any:
    """The elements of the first list, then those of the second, ...

    Raises TypeMismatchError for what is not a list (PTO-F021) and lists of different types (PTO-F035).

    >>> import pto_jit.fractal as ft
    >>> ft.join(ft.from_list([1, 2]), ft.from_list([3])).leaves
    array([1, 2, 3])
    """
    if not lists:
        raise failure(TypeMismatchError, "PTO-F021", "ft.join of nothing", "give at least one list")
    for k in range(len(lists)):
        checked_list(lists[k], f"argument {k + 1} of ft.join")
    typed = agreed(lists)
    if typed is None:
        kinds = " and a ".join(dict.fromkeys(str(x.kind) for x in lists))
        raise failure(TypeMismatchError, "PTO-F035", f"ft.join of a {kinds}",
                      "lists that are joined have one depth, leaf shape and element type")  # fmt: skip
    return typed[0].joined(typed[1:])


# -- elements and parts -------------------------------------------------------------------------------------------


@operation
def index(x: Any, i: Any, *rest: Any) -> Any:
    """`x[i]`; with further indices, the element of the element.

    Raises BoundsError for an index outside of the list (PTO-F002), TypeMismatchError for what is none (PTO-F003).

    >>> import pto_jit.fractal as ft
    >>> ft.index(ft.from_list([[1, 2], [3]]), 0, -1)
    np.int64(2)
    """
    found = checked_list(x, "the list of ft.index")[integer(i)]
    return index(found, *rest) if rest else found


@operation
def slice(x: Any, start: Any = None, stop: Any = None, step: Any = None) -> Any:
    """The elements start, start + step, ... before stop, as Python's slices (also `x[start:stop:step]`).

    Raises TypeMismatchError for bounds that are not integers (PTO-F003), ShapeError for a step of 0 (PTO-F036).

    >>> import pto_jit.fractal as ft
    >>> ft.slice(ft.from_list([1, 2, 3, 4]), 1, None, 2).leaves
    array([2, 4])
    """
    return checked_list(x, "the list of ft.slice")[_slice(start, stop, step)]


@operation
def gather(x: Any, indices: Any) -> Any:
    """The elements at the positions in `indices`: a list of depth 1, an array of rank 1, a Python list or tuple of
    integers.

    Raises TypeMismatchError for other indices (PTO-F039), BoundsError for one outside of the list (PTO-F002).

    >>> import pto_jit.fractal as ft
    >>> ft.gather(ft.from_list([5, 6, 7]), [2, -1, 0]).leaves
    array([7, 7, 5])
    """
    x = checked_list(x, "the list of ft.gather")
    at = _integers(indices)
    if at.ndim != 1 or at.dtype.kind not in "iu":
        raise failure(TypeMismatchError, "PTO-F039", f"the indices of ft.gather are {indices!r:.60}",
                      "give integers: a list of depth 1, an array of rank 1, a Python list or tuple")  # fmt: skip
    if not len(x) and trying():
        return alike(x.sample(), len(at))
    wrong = np.flatnonzero((at < -len(x)) | (at >= len(x)))
    if len(wrong):
        raise failure(BoundsError, "PTO-F002", f"index {at[wrong[0]]} of a list of length {len(x)}, in place "
                      f"{wrong[0]} of the indices of ft.gather", "indices run from 0 to the length less 1")  # fmt: skip
    at = at.astype(np.int64)
    return x.take(np.where(at < 0, at + len(x), at))


def _integers(indices: Any) -> Array:
    """The indices of `gather` as an array; one of floats for what is none."""
    if isinstance(indices, FractalTensor):
        return indices.leaves if indices.depth == 1 else np.zeros(0)
    if isinstance(indices, np.ndarray):
        return indices.view(np.ndarray)
    if not isinstance(indices, (list, tuple)):
        return np.zeros(0)
    try:
        return np.asarray(indices) if indices else np.zeros(0, np.int64)
    except ValueError:  # lists of different lengths
        return np.zeros(0)


@operation
def head(x: Any) -> Any:
    """The first element.  Raises BoundsError for an empty list (PTO-F002)."""
    return checked_list(x, "the list of ft.head")[0]


@operation
def tail(x: Any) -> Any:
    """The last element.  Raises BoundsError for an empty list (PTO-F002)."""
    return checked_list(x, "the list of ft.tail")[-1]


first, last = head, tail


@operation
def reverse(x: Any) -> Any:
    """The elements from the last to the first."""
    return checked_list(x, "the list of ft.reverse")[::-1]


@operation
def repeat(x: Any, k: int) -> Any:
    """The list of `k` times `x`, a tensor, number or list: one level deeper.

    Raises ShapeError for a negative `k` (PTO-F036).

    >>> import pto_jit.fractal as ft
    >>> ft.repeat(ft.from_list([1, 2]), 2).tolist()
    [[np.int64(1), np.int64(2)], [np.int64(1), np.int64(2)]]
    """
    times = at_least(0, k, "the count of ft.repeat")
    if isinstance(x, tuple):
        checked_list(x, "argument 1 of ft.repeat")  # which refuses it
    if isinstance(x, (FractalTensor, Zipped)):
        items = x.take(np.tile(np.arange(len(x), dtype=np.int64), times))
        return items.nest(_evenly(times, len(x)), None if times else x)
    value = canonical(x, "argument 1 of ft.repeat")
    piece = np.asarray(value)[None]
    return FractalTensor((piece,), np.zeros(times, np.int64), ())


@operation
def length(x: Any) -> int:
    """The number of elements: `len(x)`."""
    return len(checked_list(x, "the list of ft.length"))


@operation
def depth(x: Any) -> int:
    """Levels of lists around a tensor; 0 for a tensor or number.  Of a zipped list, that of its first part."""
    return x.depth if isinstance(x, (FractalTensor, Zipped)) else 0


# -- windows ------------------------------------------------------------------------------------------------------


@operation
def slide(x: Any, window: int, stride: int = 1, dilation: int = 1, padding: int = 0, value: Any = 0) -> Any:
    """The list of the windows x[i·stride - padding + k·dilation], k < window.

    There are ⌊(n + 2·padding - dilation·(window - 1) - 1) / stride⌋ + 1 of them (none if that is not positive, or if
    the list is empty).  value: what stands outside of the list, a number or a tensor.

    Raises ShapeError for a window, stride or dilation below 1, a negative padding (PTO-F036), and for padding of a
    list whose elements are lists of different lengths (PTO-F040).

    >>> import pto_jit.fractal as ft
    >>> ft.slide(ft.from_list([1, 2, 3]), 2, padding=1).tolist()[0]
    [np.int64(0), np.int64(1)]
    """
    x = checked_list(x, "the list of ft.slide")
    width, by = at_least(1, window, "the window of ft.slide"), at_least(1, stride, "the stride of ft.slide")
    apart = at_least(1, dilation, "the dilation of ft.slide")
    around = at_least(0, padding, "the padding of ft.slide")
    n = len(x)
    count = max((n + 2 * around - apart * (width - 1) - 1) // by + 1, 0) if n else 0
    starts = np.arange(count, dtype=np.int64)[:, None] * by - around
    return _padded(x, starts + np.arange(width, dtype=np.int64) * apart, value, "ft.slide")


@operation
def shifted_slide(x: Any, window: int, dilation: int = 1) -> Any:
    """For every element i the `window` elements around it, x[(i + (k - ⌊window/2⌋)·dilation) mod n], k < window.

    >>> import pto_jit.fractal as ft
    >>> ft.shifted_slide(ft.from_list([1, 2, 3]), 3).leaves.reshape(3, 3)
    array([[3, 1, 2],
           [1, 2, 3],
           [2, 3, 1]])
    """
    x = checked_list(x, "the list of ft.shifted_slide")
    n = len(x)
    at = np.arange(n, dtype=np.int64)[:, None] + _around(window, dilation, "ft.shifted_slide")
    at = at % n if n else at
    return x.take(at.reshape(-1)).nest(_evenly(n, at.shape[1]), None if n else alike(x.sample(), at.shape[1]))


@operation
def window(x: Any, i: int, width: int, dilation: int = 1, value: Any = 0) -> Any:
    """The window x[i + (k - ⌊width/2⌋)·dilation], k < width, around position i; `value` outside of the list.

    Of an empty list, an empty list.  Raises as `ft.slide`.
    """
    x = checked_list(x, "the list of ft.window")
    at = integer(i, "the position of ft.window") + _around(width, dilation, "ft.window")
    return _padded(x, at[None], value, "ft.window").element(0) if len(x) else _no_window(x, len(at))


@operation
def shifted_window(x: Any, i: int, width: int, dilation: int = 1) -> Any:
    """The window of `width` elements around position i, `dilation` apart, positions modulo the length.

    It is one of the windows of `ft.shifted_slide`.
    """
    x = checked_list(x, "the list of ft.shifted_window")
    at = integer(i, "the position of ft.shifted_window") + _around(width, dilation, "ft.shifted_window")
    return x.take(at % len(x)) if len(x) else _no_window(x, len(at))


def _no_window(x: Any, width: int) -> Any:
    """The window of an empty list, which is empty; in a trial, one as it would be."""
    return alike(x.sample(), width) if trying() else x


def _around(width: Any, dilation: Any, what: str) -> Array:
    """Positions of a window's elements, less that of its centre."""
    w, d = at_least(1, width, f"the window of {what}"), at_least(1, dilation, f"the dilation of {what}")
    return (np.arange(w, dtype=np.int64) - w // 2) * d


def _padded(x: Any, at: Array, value: Any, what: str) -> Any:
    """The lists of the elements at rows of positions; outside of the list stands `value`."""
    n = len(x)
    outside = (at < 0) | (at >= n)
    if bool(outside.any()):
        x = x.joined([_filler(x, value, what)])
        at = np.where(outside, n, at)
    return x.take(at.reshape(-1)).nest(_evenly(*at.shape), None if len(at) else alike(x.sample(), at.shape[1]))


def _filler(x: Any, value: Any, what: str) -> Any:
    """A list of one element, like those of `x`, of which every leaf is `value`."""
    if isinstance(x, Zipped):
        return Zipped(tuple(_filler(part, value, what) for part in x.parts), x.levels)
    offsets: list[Array] = []
    for level in x.offsets:
        counts = np.diff(level).reshape(len(x), -1)
        if bool(np.any(counts != counts[0])):
            raise failure(ShapeError, "PTO-F040", f"{what} pads a list of lists of different lengths",
                          "pad the inner lists to one length, or use no padding")  # fmt: skip
        offsets.append(from_counts(counts[0]))
    count = int(offsets[-1][-1]) if offsets else 1
    leaf = np.empty((1, *x.leaf_shape), x.dtype.numpy)
    leaf[0] = _fill_value(value, x, what)
    return FractalTensor((leaf,), np.zeros(count, np.int64), offsets)


def _fill_value(value: Any, x: FractalTensor, what: str) -> Any:
    given = value if is_weak(value) else canonical(value, f"the value of {what}")
    array = np.asarray(given)
    fits = array.shape in ((), x.leaf_shape)
    if is_weak(value):  # a number of Python's takes the element type, where it is one of its numbers
        fits = x.dtype.is_float or bool(array.astype(x.dtype.numpy) == value)
    elif fits:
        fits = array.dtype == x.dtype.numpy
    if not fits:
        raise failure(TypeMismatchError, "PTO-F041", f"{what} pads leaves of {list(x.leaf_shape)}, {x.dtype} with "
                      f"{value!r:.40}", "give a number, or a tensor like the leaves")  # fmt: skip
    return array.astype(x.dtype.numpy)


# -- tensors as lists, lists as tensors ---------------------------------------------------------------------------


@operation
def slices(x: Any, axis: int = 0) -> FractalTensor:
    """The parts of a tensor along `axis`, which stays with extent 1: the rows of a matrix as [1, n] tensors.

    Raises TypeMismatchError for what is not a tensor (PTO-F037), ShapeError for an axis that it lacks (PTO-F038).

    >>> import numpy as np, pto_jit.fractal as ft
    >>> ft.slices(np.zeros((3, 64), np.float32), axis=0)
    FractalTensor(3 of pl.Tensor[[1, 64], pl.f32])
    """
    array = _tensor(x, "ft.slices")
    along = _axis(axis, array.ndim, "ft.slices")
    return whole(np.expand_dims(np.moveaxis(array, along, 0), along + 1), ())


@operation
def unbind(x: Any, axis: int = 0) -> FractalTensor:
    """The parts of a tensor along `axis`, without that axis: the rows of a matrix as [n] tensors.

    Raises as `ft.slices`.
    """
    array = _tensor(x, "ft.unbind")
    return whole(np.moveaxis(array, _axis(axis, array.ndim, "ft.unbind"), 0), ())


@operation
def split(x: Any, n: int, axis: int = 0) -> Any:
    """A tensor in `n` equal parts along `axis`, as a list; or a list in `n` lists of one length.

    Raises ShapeError when `n` does not divide the extent or length (PTO-F042), as `ft.slices` otherwise.

    >>> import numpy as np, pto_jit.fractal as ft
    >>> ft.split(np.arange(6.0), 3)[1]
    Tensor([2., 3.])
    """
    parts = at_least(1, n, "the number of parts of ft.split")
    lists = isinstance(x, (FractalTensor, Zipped))
    array = None if lists else _tensor(x, "ft.split")
    along = 0 if array is None else _axis(axis, array.ndim, "ft.split")
    extent = len(x) if array is None else array.shape[along]
    if extent % parts:
        raise failure(ShapeError, "PTO-F042", f"ft.split of {extent} {'elements' if array is None else 'rows'} in "
                      f"{parts} parts", "the number of parts divides the length or extent")  # fmt: skip
    if array is None:
        if not extent and trying():
            return alike(alike(x.sample(), 1), parts)
        return x.nest(_evenly(parts, extent // parts))
    shape = (*array.shape[:along], parts, extent // parts, *array.shape[along + 1 :])
    return whole(np.moveaxis(_split_axis(array, along, shape), along, 0), ())


def _split_axis(array: Array, axis: int, shape: tuple[int, ...]) -> Array:
    """A view with an axis in two (`reshape` may copy what is not contiguous)."""
    size = shape[axis + 1]
    stride = array.strides[axis]
    strides = (*array.strides[:axis], size * stride, *array.strides[axis:])
    return np.lib.stride_tricks.as_strided(array, shape, strides, writeable=False)


@operation
def flatten(x: Any) -> Any:
    """All leaves of a list of lists, as a list of depth 1; of a zipped list, all tuples.

    >>> import pto_jit.fractal as ft
    >>> ft.flatten(ft.from_list([[1, 2], [], [3]])).leaves
    array([1, 2, 3])
    """
    x = checked_list(x, "the list of ft.flatten")
    return x.flat(x.levels if isinstance(x, Zipped) else x.depth)


@operation
def stack(x: Any) -> Any:
    """A list of tensors of depth 1 as one tensor with a leading axis; a view when the leaves lie in order.

    Raises TypeMismatchError for lists of lists and of tuples (PTO-F043).

    >>> import numpy as np, pto_jit.fractal as ft
    >>> ft.stack(ft.slices(np.zeros((3, 64)), axis=0)).shape
    (3, 1, 64)
    """
    return stacked(x, "ft.stack")


def stacked(x: Any, what: str) -> Any:
    """The leaves of a list of depth 1 as one tensor.  Raises PTO-F043."""
    x = checked_list(x, f"the list of {what}")
    if not isinstance(x, FractalTensor) or x.depth != 1:
        raise failure(TypeMismatchError, "PTO-F043", f"{what} of a {x.kind}",
                      "give a list of tensors: `ft.flatten` the lists, `ft.zip(*x)` the tuples before")  # fmt: skip
    if not len(x) and trying():
        x = alike(x.sample(), 1)
    return x.leaves.view(Tensor)

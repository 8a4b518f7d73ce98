# SPDX-License-Identifier: MIT
"""Between tensors and tiles: load, store, views, indirect and atomic access.

A tensor is an argument, a view of one, or what `pl.empty` and the like make at the top of a kernel; a tile is a value.
Offsets and shapes have one entry for each axis, in elements; both may be run-time integers.

Raises TypeMismatchError for a tile or number where a tensor is wanted, ShapeError for a wrong number of entries,
BoundsError for a negative offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.language import _access as access
from pto_jit.language import _eager as eager
from pto_jit.language._builtin import Operand, Scalar, Shape, builtin


@builtin
def load(x: Any, offsets: Sequence[Any] | None = None, shape: Shape | None = None, *, pad: Scalar = None) -> Any:
    """The tile of the declared `shape` at `offsets`; without both, the whole tensor or view.

    The valid extents are clipped at the tensor's bounds, as a NumPy slice clips; with `pad=value` what is outside
    reads as `value` and the tile is valid in its whole declared shape.  A tensor of rank 0 gives its number, as
    `x[()]` does.  Of a tile, as an in-core function returns it, it is the part (without `pad`).

    Raises ShapeError for a wrong number of offsets, BoundsError for a negative one.

    >>> import numpy as np, pto_jit.language as pl
    >>> t = pl.load(np.arange(5), [3], [4])
    >>> t.shape, pl.valid_shape(t), np.asarray(t)
    ((4,), (2,), array([3, 4]))
    >>> np.asarray(pl.load(np.arange(5), [3], [4], pad=0))
    array([3, 4, 0, 0])
    """
    return access.load(x, offsets, shape, pad)


@builtin
def store(tile: Operand, *place: Any) -> None:
    """Write the valid part of a tile, clipped at the tensor's bounds.

    `store(tile, offsets, x)`, `store(tile, view)` or `store(tile, ..., view)`.  A tensor of rank 0 takes a number.  The
    elements are cast to the dtype of the tensor.  Raises ShapeError for a wrong number of offsets, BoundsError for a
    negative one.

    >>> import numpy as np, pto_jit.language as pl
    >>> x = np.zeros(4)
    >>> pl.store(pl.ones([3], pl.f64), [2], x)
    >>> x
    array([0., 0., 1., 1.])
    """
    access.store(tile, place)


@builtin
def slice(x: Any, shape: Shape, offset: Sequence[Any]) -> Any:
    """The view of `shape` at `offset`, clipped at the tensor's bounds: no data moves.

    >>> import numpy as np, pto_jit.language as pl
    >>> np.asarray(pl.slice(np.arange(6), [2], [3]))
    array([3, 4])
    """
    return access.view(x, shape, offset)


@builtin
def gather(t: Operand, index: Operand, axis: int) -> Any:
    """`np.take_along_axis(t, index, axis)`.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.gather(np.array([[5, 6, 7]]), np.array([[2, 0]]), 1)
    array([[7, 5]])
    """
    return access.gather(t, index, axis)


@builtin
def scatter(tile: Operand, index: Operand, axis: int, x: Any) -> None:
    """`np.put_along_axis(x, index, tile, axis)` on a tensor.

    >>> import numpy as np, pto_jit.language as pl
    >>> x = np.zeros(4)
    >>> pl.scatter(np.array([1.0, 2.0]), np.array([3, 0]), 0, x)
    >>> x
    array([2., 0., 0., 1.])
    """
    access.scatter(tile, index, axis, x)


@builtin
def atomic_add(x: Any, offsets: Sequence[Any], tile: Operand) -> None:
    """x[offsets...] += tile, element by element without tearing, also from parallel iterations; clipped like `store`.

    >>> import numpy as np, pto_jit.language as pl
    >>> x = np.array([1, 2, 3])
    >>> pl.atomic_add(x, [1], np.array([10, 10]))
    >>> x
    array([ 1, 12, 13])
    """
    access.atomic("add", x, offsets, tile)


@builtin
def atomic_max(x: Any, offsets: Sequence[Any], tile: Operand) -> None:
    """x[offsets...] = maximum(x[offsets...], tile), atomically per element; clipped like `store`.

    >>> import numpy as np, pto_jit.language as pl
    >>> x = np.array([1, 20])
    >>> pl.atomic_max(x, [0], np.array([10, 10]))
    >>> x
    array([10, 20])
    """
    access.atomic("max", x, offsets, tile)


@builtin
def atomic_min(x: Any, offsets: Sequence[Any], tile: Operand) -> None:
    """x[offsets...] = minimum(x[offsets...], tile), atomically per element; clipped like `store`.

    >>> import numpy as np, pto_jit.language as pl
    >>> x = np.array([1, 20])
    >>> pl.atomic_min(x, [0], np.array([10, 10]))
    >>> x
    array([ 1, 10])
    """
    access.atomic("min", x, offsets, tile)


@builtin
def valid_shape(t: Operand) -> tuple[Any, ...]:
    """The valid extents of a tile; `t.shape` is the declared shape.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.valid_shape(pl.load(np.zeros((3, 8)), [2, 0], [4, 8]))
    (1, 8)
    """
    return eager.valid_shape(t)

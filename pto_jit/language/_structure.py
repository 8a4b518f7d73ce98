# SPDX-License-Identifier: MIT
"""Tile structure: the same elements in another arrangement; the matrix product; sorting; tiles that are made.

Operands are tiles, tensors and views (which are loaded) and NumPy values.  The result keeps their dtype where nothing
else is said.  Negative axes count from the end.

Raises ShapeError for axes and shapes that do not go together, TypeMismatchError for dtypes that an operation does not
take, BoundsError while running where a tile that is not complete would leave a hole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import f32, i32
from pto_jit.language import _eager as eager
from pto_jit.language._builtin import Operand, Scalar, Shape, builtin


@builtin
def reshape(x: Operand, shape: Shape) -> Any:
    """The elements in row-major order in another shape; a view of a tensor.  One extent may be -1.

    A tile must be complete (BoundsError), unless only extents of 1 come or go.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.reshape(np.arange(4), [2, 2])
    array([[0, 1],
           [2, 3]])
    """
    return eager.reshape(x, shape)


@builtin
def transpose(x: Operand, axes: Sequence[int] | None = None) -> Any:
    """The axes in another order (None: reversed); a view of a tensor.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.transpose(np.array([[1, 2], [3, 4]]))
    array([[1, 3],
           [2, 4]])
    """
    return eager.transpose(x, axes)


@builtin
def concat(tiles: Sequence[Operand], axis: int = 0) -> Any:
    """Tiles one after another along `axis`; all but the last must be complete there (BoundsError).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.concat([np.array([1, 2]), np.array([3])])
    array([1, 2, 3])
    """
    return eager.concat(tiles, axis)


@builtin
def split(x: Operand, n: int, axis: int = -1) -> Any:
    """`n` equal parts along `axis`, as a tuple.

    ShapeError when the extent does not divide; LaunchError in a kernel that learns it when it runs.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.split(np.array([1, 2, 3, 4]), 2)
    (array([1, 2]), array([3, 4]))
    """
    return eager.split(x, n, axis)


@builtin
def stack(tiles: Sequence[Operand], axis: int = 0) -> Any:
    """Tiles of one shape along a new axis.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.stack([np.array([1, 2]), np.array([3, 4])], axis=1)
    array([[1, 3],
           [2, 4]])
    """
    return eager.stack(tiles, axis)


@builtin
def broadcast_to(x: Operand, shape: Shape) -> Any:
    """x repeated along its axes of extent 1 and along new leading axes.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.broadcast_to(np.array([1, 2]), [2, 2])
    array([[1, 2],
           [1, 2]])
    """
    return eager.broadcast_to(x, shape)


@builtin
def expand_dims(x: Operand, axis: int | tuple[int, ...]) -> Any:
    """A new axis of extent 1 at `axis`, as `np.expand_dims`.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.expand_dims(np.array([1, 2]), 1).shape
    (2, 1)
    """
    return eager.expand_dims(x, axis)


@builtin
def squeeze(x: Operand, axis: int | tuple[int, ...] | None = None) -> Any:
    """x without the axes `axis`, which have extent 1 (None: all that have).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.squeeze(np.array([[1, 2]]), 0)
    array([1, 2])
    """
    return eager.squeeze(x, axis)


@builtin
def flip(x: Operand, axis: int | tuple[int, ...] | None = None) -> Any:
    """The valid part in reverse order along `axis` (None: all axes).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.flip(np.array([1, 2, 3]))
    array([3, 2, 1])
    """
    return eager.flip(x, axis)


@builtin
def dot(a: Operand, b: Operand, acc: Operand | None = None, out_dtype: Any = None) -> Any:
    """The matrix product a @ b (+ acc), batched over leading axes as `np.matmul`.

    f16 and bf16 accumulate in and return f32; i8, u8 and i16 give i32; others keep their dtype.  `out_dtype` rounds
    the result once at the end.  The valid contraction extents must be equal (LaunchError).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.dot(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    """
    return eager.dot(a, b, acc, out_dtype)


@builtin
def sort(x: Operand, descending: bool = False) -> Any:
    """x in order along its last axis, ascending or `descending`; NaN counts as the largest value.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.sort(np.array([3, 1, 2]), descending=True)
    array([3, 2, 1])
    """
    return eager.sort(x, descending)


@builtin
def argsort(x: Operand, descending: bool = False) -> Any:
    """The indices (i32) that sort x along its last axis, as `sort` does; equal elements keep their order.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.argsort(np.array([3, 1, 1]))
    array([1, 2, 0], dtype=int32)
    """
    return eager.argsort(x, descending)


@builtin
def topk(x: Operand, k: int) -> Any:
    """The `k` largest elements along the last axis, descending, and their indices (i32); ties keep their order.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.topk(np.array([3, 9, 9, 1]), 2)
    (array([9, 9]), array([1, 2], dtype=int32))
    """
    return eager.topk(x, k)


@builtin
def histogram(x: Operand, bins: int) -> Any:
    """How often each of 0..bins-1 occurs along the last axis (i32); other values are left out.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.histogram(np.array([0, 2, 2, 9, -1]), 3)
    array([1, 0, 2], dtype=int32)
    """
    return eager.histogram(x, bins)


@builtin
def arange(start: Scalar, stop: Scalar | None = None, step: Scalar = 1, dtype: Any = i32) -> Any:
    """start, start + step, ... below stop; `arange(n)` counts from 0.  dtype: i32.

    They are computed in that dtype, where integers wrap: `dtype=pl.i64` for numbers beyond 2**31 - 1.

    >>> import numpy as np, pto_jit.language as pl
    >>> np.asarray(pl.arange(0, 6, 2))
    array([0, 2, 4], dtype=int32)
    """
    return eager.arange(start, stop, step, dtype)


@builtin
def full(shape: Shape, value: Scalar, dtype: Any = None) -> Any:
    """A new tensor (orchestration) or a generated tile (in-core) of `shape`, each element `value`.

    dtype: None takes that of the value: i64, f64 or bool_ for Python's numbers.

    >>> import numpy as np, pto_jit.language as pl
    >>> np.asarray(pl.full([2], 7, pl.i32))
    array([7, 7], dtype=int32)
    """
    return eager.full(shape, value, dtype)


@builtin
def zeros(shape: Shape, dtype: Any = f32) -> Any:
    """`full(shape, 0, dtype)`.

    >>> import numpy as np, pto_jit.language as pl
    >>> np.asarray(pl.zeros([2], pl.f32))
    array([0., 0.], dtype=float32)
    """
    return eager.full(shape, 0, dtype)


@builtin
def ones(shape: Shape, dtype: Any = f32) -> Any:
    """`full(shape, 1, dtype)`.

    >>> import numpy as np, pto_jit.language as pl
    >>> np.asarray(pl.ones([2], pl.f32))
    array([1., 1.], dtype=float32)
    """
    return eager.full(shape, 1, dtype)


@builtin
def empty(shape: Shape, dtype: Any = f32) -> Any:
    """A new tensor (orchestration) or tile (in-core); its elements are unspecified until written.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.empty([2, 3], pl.f32).shape
    (2, 3)
    """
    return eager.empty(shape, dtype)


@builtin
def rand(seed: Scalar, offset: Operand, shape: Shape | None = None) -> Any:
    """Uniform f32 in [0, 1): element k in row-major order is word 0 of Philox 4x32-10 at counter `offset + k`.

    The key is (seed low, seed high), the counter (low, high, 0, 0), the value (word >> 8) * 2**-24: the same numbers
    on every target and tiling.  Without `shape`, `offset` is an integer tile of counters.
    (Salmon et al., Parallel random numbers: as easy as 1, 2, 3; SC 2011.)

    >>> import numpy as np, pto_jit.language as pl
    >>> np.asarray(pl.rand(0, 0, [1])), np.asarray(pl.rand(0, 5, [2])) == pl.rand(0, np.array([5, 6]))
    (array([0.39904642], dtype=float32), array([ True,  True]))
    """
    return eager.rand("rand", seed, offset, shape)


@builtin
def randn(seed: Scalar, offset: Operand, shape: Shape | None = None) -> Any:
    """Standard normal f32: sqrt(-2 ln(1 - u0)) cos(2 pi u1) of the words 0 and 1 that `rand` would use.

    >>> import numpy as np, pto_jit.language as pl
    >>> np.asarray(pl.randn(1, 0, [2])).dtype
    dtype('float32')
    """
    return eager.rand("randn", seed, offset, shape)

# SPDX-License-Identifier: MIT
"""Reductions, scans and functions that take a function.  They run over the valid part of a tile.

`axis` is an integer, a tuple of them, or None for all; negative ones count from the end.  The result lacks these axes
(with `keepdims=True` they stay with extent 1); without any axis left it is a number.

Raises ShapeError for an axis out of range, TypeMismatchError for operands and dtypes that an operation does not take.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pto_jit.language import _eager as eager
from pto_jit.language import _functions
from pto_jit.language._builtin import Operand, builtin
from pto_jit.language._indices import UNREAD, is_unread

Axis = int | tuple[int, ...] | None


def _accumulating(fn: Callable[..., Any]) -> Callable[..., Any]:
    """In a comprehension statement the reduction may start from the element that it is assigned to: `init=y[i]`."""

    @functools.wraps(fn)
    def reduced(x: Operand, axis: Axis = None, keepdims: bool = False, **more: Any) -> Any:
        if list(more) == ["init"] and is_unread(more["init"]):
            return UNREAD
        return fn(x, axis, keepdims, **more)

    return reduced


@_accumulating
@builtin
def sum(x: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum over `axis` (None: all; `keepdims`: it stays, with extent 1).

    Small integers widen as in NumPy; f16 and bf16 accumulate in f32; empty: 0.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.sum(np.array([[1, 2], [3, 4]], np.int8), axis=1)
    array([3, 7])
    """
    return eager.reduction("sum", x, axis, keepdims)


@_accumulating
@builtin
def prod(x: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The product over `axis` (None: all; `keepdims`: it stays, with extent 1); widens like `sum`; empty: 1.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.prod(np.array([2.0, 4.0]))
    np.float64(8.0)
    """
    return eager.reduction("prod", x, axis, keepdims)


@_accumulating
@builtin
def max(x: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest element along `axis` (None: all; `keepdims`: it stays, with extent 1).

    NaN if there is one; empty: -inf or the lowest integer.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.max(np.array([[1, 7], [3, 4]]), axis=0)
    array([3, 7])
    """
    return eager.reduction("max", x, axis, keepdims)


@_accumulating
@builtin
def min(x: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest element along `axis` (None: all; `keepdims`: it stays, with extent 1).

    NaN if there is one; empty: inf or the highest integer.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.min(np.array([[1, 7], [3, 4]]), axis=0)
    array([1, 4])
    """
    return eager.reduction("min", x, axis, keepdims)


@builtin
def mean(x: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean of the valid elements along `axis` (None: all; `keepdims`: it stays, with extent 1).

    Integers give f64; empty: NaN.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.mean(np.array([[1, 2], [3, 4]]), axis=1)
    array([1.5, 3.5])
    """
    return eager.mean(x, axis, keepdims)


@builtin
def any(x: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether an element along `axis` (None: all; `keepdims`: it stays, with extent 1) is not 0; empty: False.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.any(np.array([[0, 0], [0, 4]]), axis=1)
    array([False,  True])
    """
    return eager.reduction("any", x, axis, keepdims)


@builtin
def all(x: Operand, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether no element along `axis` (None: all; `keepdims`: it stays, with extent 1) is 0; empty: True.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.all(np.array([[1, 0], [3, 4]]), axis=1)
    array([False,  True])
    """
    return eager.reduction("all", x, axis, keepdims)


@builtin
def argmax(x: Operand, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index (i32) of the first largest element or first NaN along `axis`; empty: 0.  Of more than 2**31 - 1
    elements it is an error.

    axis: an integer, or None: the index in the flattened tile.  keepdims: the axis stays, with extent 1.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.argmax(np.array([[1, 7], [3, 3]]), axis=1)
    array([1, 0], dtype=int32)
    """
    return eager.arg_reduction("argmax", x, axis, keepdims)


@builtin
def argmin(x: Operand, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index (i32) of the first smallest element or first NaN along `axis`; empty: 0.  Of more than 2**31 - 1
    elements it is an error.

    axis: an integer, or None: the index in the flattened tile.  keepdims: the axis stays, with extent 1.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.argmin(np.array([4, 2, 2]))
    np.int32(1)
    """
    return eager.arg_reduction("argmin", x, axis, keepdims)


@builtin
def cumsum(x: Operand, axis: int = -1, reverse: bool = False) -> Any:
    """Running sums along `axis`, from the end with `reverse`; widens like `sum`.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.cumsum(np.array([1, 2, 3])), pl.cumsum(np.array([1, 2, 3]), reverse=True)
    (array([1, 3, 6]), array([6, 5, 3]))
    """
    return eager.cumulate("cumsum", x, axis, reverse)


@builtin
def cumprod(x: Operand, axis: int = -1, reverse: bool = False) -> Any:
    """Running products along `axis`, from the end with `reverse`; widens like `sum`.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.cumprod(np.array([1, 2, 3]))
    array([1, 2, 6])
    """
    return eager.cumulate("cumprod", x, axis, reverse)


@builtin
def reduce(x: Operand, axis: int, fn: Callable[..., Any], init: Any = None, keepdims: bool = False) -> Any:
    """Combine the elements along `axis` with an associative function.

    `x` is a tile or a tuple of tiles of one shape; `fn(a, b)` then takes and returns tuples.  `fn` may be called with
    scalars or with tiles.  `init` is a value (a tuple of values) that starts the reduction; it is the result of an
    empty valid part.  keepdims: the axis stays, with extent 1.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.reduce(np.array([[1, 5], [7, 3]]), 1, pl.maximum)
    array([5, 7])
    """
    return _functions.reduce(x, axis, fn, init, keepdims)


@builtin
def associative_scan(x: Operand, axis: int, fn: Callable[..., Any], reverse: bool = False) -> Any:
    """Running combinations along `axis` (element k is x[0] fn x[1] ... fn x[k]), from the end with `reverse`.

    `x` may be a tuple of tiles; `fn(a, b)` then takes and returns tuples.  With `reverse` the already combined end
    is the left operand, as in a scan of the flipped tile.

    >>> import numpy as np, pto_jit.language as pl
    >>> a, b = np.array([2.0, 2.0, 2.0]), np.array([1.0, 1.0, 1.0])
    >>> pl.associative_scan((a, b), 0, lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]))[1]
    array([1., 3., 7.])
    """
    return _functions.associative_scan(x, axis, fn, reverse)


@builtin
def map(fn: Callable[..., Any], *tiles: Operand) -> Any:
    """A scalar function over the elements of tiles of one shape; a tuple of tiles when `fn` returns a tuple.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.map(lambda v: v if v > 0 else 0.5 * v, np.array([-2.0, 3.0]))
    array([-1.,  3.])
    """
    return _functions.map(fn, *tiles)

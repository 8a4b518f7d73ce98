# SPDX-License-Identifier: MIT
"""The names of index notation: indices with ranges, existence, padding.

A `pto.comprehension` is read and never run, so these do nothing by themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from pto_jit.errors import CompilationError
from pto_jit.language._builtin import builtin
from pto_jit.language._number import Element, interpreting
from pto_jit.slotted import frozen


class Unread:
    """What interpret mode has for an element at indices, and for everything that is computed from one.

    It stands for all its values at once and has none: Python only carries it to the assignment of the statement, which
    is then read from the source.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        _decided[:] = [True]  # what is chosen by it may look like a number
        return True

    def __index__(self) -> int:
        raise CompilationError(
            "an index of `pl.axis` has no value outside of comprehension statements", code="PTO-R090",
            hint="write `O[i] = ...` over tensors of a kernel, or a `@pto.comprehension`",
        )  # fmt: skip

    def __float__(self) -> float:
        return 1.0

    def __int__(self) -> int:
        return 1

    def __enter__(self) -> Unread:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __array_ufunc__(self, *_: object, **__: object) -> Unread:
        return UNREAD

    def to(self, dtype: Any) -> Unread:
        """A conversion, of nothing."""
        return UNREAD


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul rmatmul lshift rlshift "
    "rshift rrshift and rand or ror xor rxor neg pos abs invert round lt le gt ge eq ne iadd isub imul itruediv"
).split():
    setattr(Unread, f"__{_name}__", lambda *_: UNREAD)
UNREAD = Unread()


@frozen
class Axis(Unread):
    """An index, with the range `low:high` if it has one."""

    low: Any = None
    high: Any = None


def is_unread(value: Any) -> bool:
    """Whether a value is that of an index, or comes from an element at one."""
    return isinstance(value, Unread)


def at_indices(key: Any) -> bool:
    """Whether what stands between brackets has an index of `pl.axis` in it."""
    return any(map(is_unread, key)) if isinstance(key, tuple) else is_unread(key)


def is_chosen(value: Any) -> bool:
    """Whether a value comes from an element at indices, or may be what a condition on one chose."""
    return isinstance(value, Unread) or (bool(_decided) and isinstance(value, (bool, int, float, np.generic, Element)))


_decided: list[bool] = []
_runs: list[Callable[[FrameType], None]] = []


def when_assigned(run: Callable[[FrameType], None]) -> None:
    """`run` is what does a statement that interpret mode comes to; it gets the frame of the kernel."""
    _runs[:] = [run]


def assigned(frame: FrameType | None = None) -> None:
    """An element at indices is being assigned in the user's code."""
    found = sys._getframe(2) if frame is None else frame
    _decided.clear()
    if not _runs or not interpreting.get():
        UNREAD.__index__()
    _runs[0](found)


@builtin
def axis(low: Any = None, high: Any = None) -> Any:
    """An index of a comprehension: `k = pl.axis(0, 3)` goes from 0 to 2, the range of `i = pl.axis()` is inferred.

    >>> import pto_jit.language as pl
    >>> pl.axis(0, 3)
    Axis(low=0, high=3)
    """
    return Axis(low, high)


@builtin
def exists(*reads: Any) -> Any:
    """`with pl.exists(A[i]):` in a comprehension: the statements inside hold wherever these elements exist.

    >>> import numpy as np, pto_jit as pto, pto_jit.language as pl
    >>> @pto.comprehension
    ... def fill(A: pl.f32["N"], c: pl.f32):
    ...     with pl.exists(A[i]):
    ...         B[i] = c
    ...     return B
    >>> fill(np.zeros(2, np.float32), 1.5)
    array([1.5, 1.5], dtype=float32)
    """
    return _only_in_a_comprehension("exists", reads)


@builtin
def pad(read: Any, value: Any) -> Any:
    """`pl.pad(x[i - 1], 0.0)` in a comprehension: the element, or `value` outside of the tensor.

    The read takes no part in range inference.

    >>> import numpy as np, pto_jit as pto, pto_jit.language as pl
    >>> @pto.comprehension
    ... def smooth(x: pl.f32["N"]):
    ...     y[i] = x[i] + pl.pad(x[i - 1], 0.0) + pl.pad(x[i + 1], 0.0)
    ...     return y
    >>> smooth(np.ones(4, np.float32))
    array([2., 3., 3., 2.], dtype=float32)
    """
    return _only_in_a_comprehension("pad", (read, value))


def _only_in_a_comprehension(name: str, values: tuple[Any, ...]) -> Any:
    if interpreting.get() and any(map(is_unread, values)):
        return UNREAD
    _refuse(name)


def _refuse(name: str) -> NoReturn:
    raise CompilationError(
        f"pl.{name} has a meaning in a comprehension only", code="PTO-R090", hint="decorate with `@pto.comprehension`"
    )

# SPDX-License-Identifier: MIT
"""The names of index notation: indices with ranges, existence, padding.

A `pto.comprehension` is read and never run, so these do nothing by themselves.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pto_jit.errors import CompilationError
from pto_jit.language._builtin import builtin
from pto_jit.slotted import frozen


@frozen
class Axis:
    """An index, with the range `low:high` if it has one."""

    low: Any = None
    high: Any = None

    def __index__(self) -> int:
        raise CompilationError(
            "an index of `pl.axis` has no value outside of a comprehension and of compiled kernels", code="PTO-R090",
            hint="call the kernel; `interpret` does not run comprehension statements",
        )  # fmt: skip


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
    _only_in_a_comprehension("exists")


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
    _only_in_a_comprehension("pad")


def _only_in_a_comprehension(name: str) -> NoReturn:
    raise CompilationError(
        f"pl.{name} has a meaning in a comprehension only", code="PTO-R090", hint="decorate with `@pto.comprehension`"
    )

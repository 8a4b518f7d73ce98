# SPDX-License-Identifier: MIT
"""Printing and assertions, at run time and at compile time."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from pto_jit.errors import CompilationError, KernelAssertionError
from pto_jit.language._builtin import Operand, builtin


@builtin
def print(fmt: str | Operand, *values: Operand) -> None:
    """Print at run time, as `str.format`; without a format the values, as Python's `print` does.

    The format may be an f-string with run-time values, `pl.print(f"{i}: {x[i]:.2f}")`, without values behind it.

    >>> import pto_jit.language as pl
    >>> pl.print("{} and {:.2f}", 1, 0.5)
    1 and 0.50
    >>> pl.print(1, 0.5)
    1 0.5
    """
    builtins.print(fmt.format(*values) if isinstance(fmt, str) else " ".join(map(str, (fmt, *values))))


@builtin
def assert_(cond: Operand, msg: str = "") -> None:
    """Fail with KernelAssertionError unless every element of `cond` holds; compiled kernels check with debug=True.

    The message may be an f-string with up to three run-time numbers.

    >>> import pto_jit.language as pl
    >>> pl.assert_(1 < 2, "arithmetic holds")
    """
    if not np.all(np.asarray(cond)):
        raise KernelAssertionError(msg or "assertion failed")


@builtin
def static_print(*values: Any, sep: str = " ", end: str = "\n") -> None:
    """Print while the kernel is compiled, once per specialisation, in every process: such kernels are not kept on disk.

    Compile-time values print as `str`; run-time ones as `<run-time i64>`, `<f32 tile [4, 64]>`, `<f32 tensor [?, ?]>`
    (an extent that is known only at run time is `?`).  Outside a kernel everything prints as `str`.

    >>> import pto_jit.language as pl
    >>> pl.static_print("block", 64)
    block 64
    """
    builtins.print(*values, sep=sep, end=end)


@builtin
def breakpoint_static() -> None:
    """Stop the compiler here, once per specialisation.

    The variables are printed with what is known of them, and Python's `breakpoint()` is called inside the compiler.
    Nothing happens outside a kernel and in interpret mode, where `breakpoint()` itself stops.

    >>> import pto_jit.language as pl
    >>> pl.breakpoint_static()
    """


@builtin
def static_assert(cond: bool, msg: str = "") -> None:
    """Fail the compilation unless `cond` holds.

    >>> import pto_jit.language as pl
    >>> pl.static_assert(64 % 16 == 0, "blocks divide")
    """
    if not cond:
        raise CompilationError(
            msg or "static assertion failed", code="PTO-N037", hint="this condition is checked at compile time"
        )

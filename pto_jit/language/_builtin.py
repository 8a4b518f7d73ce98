# SPDX-License-Identifier: MIT
"""The mark by which the compiler recognises a language function, and the kinds of value they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

# What an operation takes: a tile, a tensor (or a view of one), a NumPy value or a number.
Operand = Any
Scalar = Any
Shape = Any


def builtin(fn: _F) -> _F:
    """Mark `fn` as the operation of its own name: `pl.exp.__pto_builtin__ == "exp"`."""
    setattr(fn, "__pto_builtin__", fn.__name__)  # noqa: B010
    return fn

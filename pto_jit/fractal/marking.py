# SPDX-License-Identifier: MIT
"""The mark by which the compiler recognises an operation on lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def operation(fn: _F) -> _F:
    """Mark `fn` as the operation of its own name: `ft.map.__pto_builtin__ == "ft.map"`."""
    setattr(fn, "__pto_builtin__", f"ft.{fn.__name__}")  # noqa: B010
    return fn

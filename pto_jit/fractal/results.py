# SPDX-License-Identifier: MIT
"""The FractalTensors that a kernel returns: how a launch makes them of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


class FlatResult(tuple):
    """In the structure of what a kernel returns: the leaves and offsets of a list.

    With arrays for its items, which are the list's alone, it is the list itself: `FlatResult(leaves, *offsets)` gives a
    FractalTensor.
    """

    def __new__(cls, *items: Any) -> Any:
        if items and all(isinstance(i, np.ndarray) for i in items):
            return cls.__pto_maker__()(*items)
        return tuple.__new__(cls, items)

    @classmethod
    def __pto_maker__(cls) -> Callable[..., Any]:
        """What takes the place of the class where many are made."""
        from pto_jit.fractal.tensor import made

        return lambda *items: made(items) if isinstance(items[0], np.ndarray) else cls(*items)

    @classmethod
    def _make(cls, items: Iterable[Any]) -> Any:
        return cls(*items)

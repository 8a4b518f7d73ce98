# SPDX-License-Identifier: MIT
"""The FractalTensors that a kernel returns: how a launch makes them of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


class FlatResult(tuple):
    """In the structure of what a kernel returns: the leaves and offsets of a list.

    With arrays for its items it is the list itself: `FlatResult(leaves, *offsets)` gives a FractalTensor.
    """

    def __new__(cls, *items: Any) -> Any:
        if items and all(isinstance(i, np.ndarray) for i in items):
            from pto_jit.fractal.tensor import whole

            for level in items[1:]:  # the kernel made them: they need not be looked at
                level.flags.writeable = False
            return whole(items[0].view(np.ndarray), list(items[1:]))
        return tuple.__new__(cls, items)

    @classmethod
    def _make(cls, items: Iterable[Any]) -> Any:
        return cls(*items)

# SPDX-License-Identifier: MIT
"""Running kernels compiled for cuda on the CPU, with the threads of a block in several orders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pto_jit.device_kernel import emulate

needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
of_the_emulation = pytest.mark.skipif("PTO_TEST_GPU" in os.environ, reason="a device does not show what is looked for")
ORDERS = (0, 1, 5)


def emulated(fn: Callable[..., Any], *args: Any, orders: tuple[int, ...] = ORDERS) -> tuple[Any, list[Any]]:
    """The result and the arguments afterwards; they must not depend on the order in which threads take turns."""
    compiled = fn.compile(*args, target="cuda")  # type: ignore[attr-defined]
    runs = []
    for order in orders:
        mine = [a.copy() if isinstance(a, np.ndarray) and a.flags.c_contiguous else a for a in args]
        runs.append((emulate(compiled, *mine, order=order), mine))
    for _, mine in runs[1:]:
        for first, other in zip(runs[0][1], mine, strict=True):
            if isinstance(first, np.ndarray):
                assert first.tobytes() == other.tobytes(), "the result depends on the order of the threads"
    return runs[0]


def ulps(a: np.ndarray, b: np.ndarray) -> float:
    """The largest distance in units in the last place; NaN against NaN and equal infinities are 0."""
    kind = {2: np.int16, 4: np.int32, 8: np.int64}[a.dtype.itemsize]
    x, y = (v.view(kind).astype(np.float64) for v in (np.ascontiguousarray(a), np.ascontiguousarray(b)))
    low = float(np.iinfo(kind).min)
    x, y = np.where(x < 0, low - x, x), np.where(y < 0, low - y, y)
    both = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return float(np.max(np.where(both, 0, np.abs(x - y)), initial=0))

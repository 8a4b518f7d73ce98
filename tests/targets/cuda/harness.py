# SPDX-License-Identifier: MIT
"""Running kernels compiled for cuda on the CPU: emulated, with the threads of a block in several orders, and simulated."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pto_jit.device_kernel import emulate
from tests.targets.cuda import simulation

needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
of_the_emulation = pytest.mark.skipif("PTO_TEST_GPU" in os.environ, reason="a device does not show what is looked for")
ORDERS = (0, 1, 5)


def emulated(fn: Callable[..., Any], *args: Any, orders: tuple[int, ...] = ORDERS) -> tuple[Any, list[Any]]:
    """The result and the arguments afterwards; they must not depend on the order in which threads take turns.

    Where there is NVRTC, the PTX of the kernels is run, too, and must come to about the same.
    """
    compiled = fn.compile(*args, target="cuda")  # type: ignore[attr-defined]
    runs = []
    for order in orders:
        mine = _copies(args)
        runs.append((emulate(compiled, *mine, order=order), mine))
    for _, mine in runs[1:]:
        for first, other in zip(runs[0][1], mine, strict=True):
            if isinstance(first, np.ndarray):
                assert first.tobytes() == other.tobytes(), "the result depends on the order of the threads"
    if simulation.available and "PTO_TEST_GPU" not in os.environ:
        mine = _copies(args)
        result = simulation.simulate(compiled, *mine, seed=5, late=True)
        for first, other in zip(_arrays(runs[0]), _arrays((result, mine)), strict=True):
            _about_equal(first, other)
    return runs[0]


def _copies(args: Sequence[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) and a.flags.c_contiguous else a for a in args]


def _arrays(values: Any) -> list[np.ndarray]:
    if isinstance(values, tuple | list):
        return [array for value in values for array in _arrays(value)]
    return [values] if isinstance(values, np.ndarray) else []


def _about_equal(emulated: np.ndarray, simulated: np.ndarray) -> None:
    """Functions such as `exp`, and sums of products, are rounded otherwise on a device: to be told from elements that
    are missing, or at the wrong place."""
    if emulated.dtype.kind in "iub":
        assert np.array_equal(emulated, simulated)
        return
    with np.errstate(invalid="ignore"):  # ml_dtypes says so of a NaN
        a, b = emulated.astype(np.float64), simulated.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    assert np.array_equal(a[~finite], b[~finite], equal_nan=True)
    far = np.abs(a[finite] - b[finite]).max(initial=0)
    assert far <= np.abs(a[finite]).max(initial=0) * {2: 2e-2, 4: 1e-4, 8: 1e-10}[emulated.dtype.itemsize]


def ulps(a: np.ndarray, b: np.ndarray) -> float:
    """The largest distance in units in the last place; NaN against NaN and equal infinities are 0."""
    kind = {2: np.int16, 4: np.int32, 8: np.int64}[a.dtype.itemsize]
    x, y = (v.view(kind).astype(np.float64) for v in (np.ascontiguousarray(a), np.ascontiguousarray(b)))
    low = float(np.iinfo(kind).min)
    x, y = np.where(x < 0, low - x, x), np.where(y < 0, low - y, y)
    both = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return float(np.max(np.where(both, 0, np.abs(x - y)), initial=0))

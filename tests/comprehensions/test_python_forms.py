# SPDX-License-Identifier: MIT
# ruff: noqa: F821, UP037
"""What expressions of Python become in comprehensions, against NumPy; and in comprehension statements of kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

A, B = np.random.default_rng(0).standard_normal((2, 12)).astype(np.float32)
TABLE = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
WHOLE = np.arange(12, dtype=np.int32)
HALF, BY = 0.5, -2.0


class Settings:
    scale = 2.0
    count = np.int64(3)


def shifted(v: Any, by: float = 0.0) -> Any:
    return v + by


def conversions(x: pl.f32["N"]):
    y[i] = pl.cast(x[i] * 2.5, pl.i32) + pl.i32(x[i]) + pl.cast(x[i] > 0.0, np.int32)
    return y


def conditions(x: pl.f32["N"], z: pl.f32["N"]):
    y[i] = 1.0 if x[i] > 0 and z[i] > 0 or not x[i] > -1 else (2.0 if -0.5 < x[i] < 0.5 <= 1 else 0.0)
    return y


def captured(x: pl.f32["N"]):
    y[i] = x[i] * HALF * Settings.scale + Settings.count + x.shape[0] + i
    return y


def keywords(x: pl.f32["N"]):
    y[i] = shifted(x[i], by=-1.0) + shifted(x[i], by=BY) + pl.gelu(x[i], approximate="none") * 0.0
    return y


def updates(x: pl.f32["N"]):
    y[i] = x[i]
    y[i] -= x[i] * x[j]
    y[i] /= 2.0
    y[i] **= 2
    return y


def maxima(x: pl.f32["N"], z: pl.f32["N"]):
    y[i] = x[i]
    y[i] = pl.max(x[i] * z[j], init=y[i])
    return y


def integers(x: pl.i32["N"]):
    y[i] = x[i] // 3 + x[i] % 3 * 2 - (~x[i] & 7) + (x[i] << 1) + (x[i] >> 1) + (x[i] | 1) ^ x[i]
    return y


def functions(x: pl.f32["N"]):
    y[i] = round(x[i]) + abs(x[i]) + min(x[i], 0.0, 1.0) + max(x[i], 0.5) + int(x[i]) + float(i) + math.exp(x[i]) + math.pi
    return y


def truth_values(x: pl.f32["N"]):
    b[i] = not x[i] > 0
    y[i] = pl.where(b[i] and x[i] < -0.5, x[i], pl.i32(3) * 1.5)
    return y


def rows(x: pl.f32["N", "M"]):
    s[i] = pl.sum(x[i, j])
    s[i] += x[i, j] * x[i, j]
    y[i, j] = x[i, j] / s[i] if s[i] > 0 and not x[i, j] < 0 else -1.0
    return y


def updated_rows(x: pl.f32["N", "M"]):
    y[i] = pl.sum(x[i, j])
    y[i] += x[i, j] * x[i, j]
    y[i] *= 2.0
    return y


def windows(x: pl.f32["N"]):
    k = pl.axis(0, 3)
    t = x[i + k] * 2
    y[i] = pl.max(t)
    return y


def _rows(x: np.ndarray) -> np.ndarray:
    s = (x + x * x).sum(1, keepdims=True)
    return np.where((s > 0) & ~(x < 0), x / s, -1)


def _integers(x: np.ndarray) -> np.ndarray:
    return (x // 3 + x % 3 * 2 - (~x & 7) + (x << 1) + (x >> 1) + (x | 1)) ^ x


CASES: dict[str, tuple[Any, Any, tuple[np.ndarray, ...]]] = {
    "conversions": (conversions, lambda x: (x * 2.5).astype(int) + x.astype(int) + (x > 0), (A,)),
    "conditions": (conditions, lambda x, z: np.where(((x > 0) & (z > 0)) | ~(x > -1), 1.0, np.where(abs(x) < 0.5, 2.0, 0)), (A, B)),
    "captured": (captured, lambda x: x + 15 + np.arange(12), (A,)),
    "keywords": (keywords, lambda x: 2 * x - 3, (A,)),
    "updates": (updates, lambda x: ((x - x * x.sum()) / 2) ** 2, (A,)),
    "maxima": (maxima, lambda x, z: np.maximum(x, (x[:, None] * z).max(1)), (A, B)),
    "integers": (integers, _integers, (WHOLE,)),
    "functions": (functions, lambda x: (np.rint(x) + abs(x) + np.minimum(x, 0) + np.maximum(x, 0.5) + np.trunc(x)
                                        + np.arange(12) + np.exp(x) + np.pi), (A,)),
    "truth values": (truth_values, lambda x: np.where(~(x > 0) & (x < -0.5), x, 4.5), (A,)),
    "rows": (rows, _rows, (TABLE,)),
    "updated rows": (updated_rows, lambda x: (x + x * x).sum(1) * 2, (TABLE,)),
    "windows": (windows, lambda x: np.max([x[:-2], x[1:-1], x[2:]], axis=0) * 2, (A,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_expressions_mean_what_they_mean_in_python(name: str) -> None:
    function, reference, args = CASES[name]
    np.testing.assert_allclose(pto.comprehension(function)(*args), reference(*args), rtol=1e-4, atol=1e-5)


def test_a_function_that_is_an_argument_gets_constants() -> None:
    def applied(x: pl.f32["N"], f: pl.constexpr):
        y[i] = f(x[i], by=-3.0)
        return y

    np.testing.assert_allclose(pto.comprehension(applied)(A, shifted), A - 3.0)


def test_statements_of_kernels_convert_too() -> None:
    @pto.jit
    def kernel(x, y, z):
        i = pl.axis()
        y[i] = pl.cast(x[i] * 2.5, pl.i32)
        z[i] = shifted(x[i], by=-1.0) + pl.f32(y[i])

    for run in (kernel, kernel.interpret):
        y, z = np.zeros(12, np.int32), np.zeros(12, np.float32)
        run(A, y, z)
        np.testing.assert_array_equal(y, (A * 2.5).astype(np.int32))
        np.testing.assert_allclose(z, A - 1.0 + y, rtol=1e-6)

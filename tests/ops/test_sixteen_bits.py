# SPDX-License-Identifier: MIT
"""Every f16 and every bf16 number through every elementwise function, against NumPy in f64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))


def tail(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """With the limit at minus infinity, where the formula has none."""
    return lambda x: np.where(np.isneginf(x), -0.0, function(x))


erf = np.vectorize(math.erf, otypes=[float])
erfc = np.vectorize(math.erfc, otypes=[float])
ROUNDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "erf": erf,
    "sigmoid": sigmoid, "silu": tail(lambda x: x * sigmoid(x)), "gelu": tail(lambda x: 0.5 * x * erfc(-x / math.sqrt(2))),
    "gelu_tanh": tail(lambda x: x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}  # fmt: skip
EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x, "abs": np.abs, "sign": np.sign, "square": np.square,
    "relu": lambda x: np.where(x <= 0, 0, x), "floor": np.floor, "ceil": np.ceil, "round": np.round, "trunc": np.trunc,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
}  # fmt: skip


def function(name: str) -> Callable[[Any], Any]:
    return (lambda t: pl.gelu(t, approximate="tanh")) if name == "gelu_tanh" else getattr(pl, name)


def results(dtype: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """All numbers of a dtype, and what each function makes of them: two compilations, which cost most."""
    x = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
    out: dict[str, np.ndarray] = {}
    for names in (list(ROUNDED), list(EXACT)):
        functions = [function(name) for name in names]

        @pto.jit
        def every(x):
            t = pl.load(x)
            return tuple(f(t) for f in functions)

        out |= dict(zip(names, every(x), strict=True))
    return x, out


def in_order(x: np.ndarray) -> np.ndarray:
    """Consecutive integers for consecutive numbers."""
    bits = x.view(np.int16).astype(np.int32)
    return np.where(bits < 0, -(2**15) - bits, bits)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_gives_the_nearest_result_or_rarely_its_neighbour(dtype: str) -> None:
    x, got = results(dtype)
    with np.errstate(all="ignore"):
        for name, reference in (ROUNDED | EXACT).items():
            exact = reference(x.astype(np.float64))
            nearest = exact if exact.dtype == bool else exact.astype(x.dtype)
            assert got[name].dtype == nearest.dtype, name
            there = ~np.isnan(exact)
            np.testing.assert_array_equal(np.isnan(got[name].astype(float)), ~there, err_msg=name)
            if name in EXACT:
                np.testing.assert_array_equal(got[name].astype(float), nearest.astype(float), err_msg=name)
                continue
            np.testing.assert_array_equal(np.signbit(got[name])[there], np.signbit(exact)[there], err_msg=name)
            away = np.abs(in_order(got[name]) - in_order(nearest))[there]
            assert away.max() <= 1 and np.count_nonzero(away) < 20, name  # f32 rounded once

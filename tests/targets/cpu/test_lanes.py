# SPDX-License-Identifier: MIT
"""Which parallel loops run several iterations at a time, where these read and write elements apart."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.cpu.loading import host


@pto.jit
def layer(x, w, out):
    for i in pl.range(x.shape[0], parallel=True):
        for j in range(w.shape[1]):
            out[i, j] = 0.0
        for k in range(x.shape[1]):
            for j in range(w.shape[1]):
                out[i, j] += x[i, k] * w[k, j]
        s = 0.0
        for j in range(w.shape[1]):
            out[i, j] = math.exp(out[i, j])
        for j in range(w.shape[1]):
            s += out[i, j]
        for j in range(w.shape[1]):
            out[i, j] /= s


@pto.jit
def activation(x, out):
    for i in pl.range(x.shape[0], parallel=True):
        for j in range(x.shape[1]):
            out[i, j] = math.tanh(x[i, j])


@pto.jit
def softmax(x, out):
    for i in pl.range(x.shape[0], parallel=True):
        m = x[i, 0]
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
        s = 0.0
        for j in range(x.shape[1]):
            s += math.exp(x[i, j] - m)
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - m) / s


@pto.jit
def cheapest(cost, out):
    for y in pl.range(cost.shape[0], parallel=True):
        for x in range(cost.shape[1]):
            best = 1e30
            at = 0
            for z in range(cost.shape[2]):
                if cost[y, x, z] < best:
                    best = cost[y, x, z]
                    at = z
            out[y, x] = at


def _groups(text: str) -> bool:
    """Whether a loop goes over groups of lanes."""
    return re.search(r"^groups", text, flags=re.M) is not None


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_beside_more_work_along_rows_do_not_make_lanes_across_them(dtype: type) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.random((21, 9)).astype(dtype), rng.random((9, 13)).astype(dtype)
    out = np.empty((21, 13), dtype)
    layer(x, w, out)
    e = np.exp(x.astype(np.float64) @ w)
    np.testing.assert_allclose(out, e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    assert not _groups(layer.compile(x, w, out).ir("llvm")), "the products collect every element on its own"
    activation(x, y := np.empty_like(x))
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-6)
    assert not _groups(activation.compile(x, y).ir("llvm")), "rows are contiguous: the loop vectoriser goes along them"


def test_branches_alone_do_not_make_lanes_across_rows_but_squares_of_them_do() -> None:
    cost = np.random.default_rng(2).random((17, 5, 6))
    out = np.zeros((17, 5), np.int32)
    cheapest(cost, out)
    np.testing.assert_array_equal(out, cost.argmin(axis=2))
    lanes = _groups(cheapest.compile(cost, out).ir("llvm"))
    assert lanes == (host().width == 64), "a branch that is foreseen costs less than a collected row"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_iterations_whose_elements_lie_apart_run_one_by_one(dtype: type) -> None:
    rng = np.random.default_rng(1)
    for rows in (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 70):
        x = rng.random((rows, 11)).astype(dtype)
        out = np.full_like(x, np.nan)
        softmax(x, out)
        np.testing.assert_allclose(out, _softmax(x), rtol=1e-5)
    text = softmax.compile(x, out).ir("llvm")
    assert _groups(text) and re.search(r"^range", text, flags=re.M), "both ways: idle lanes cost as much as the others"

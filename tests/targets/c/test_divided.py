# SPDX-License-Identifier: MIT
"""What is computed of whole tensors is divided among the workers in C, too: rows, or parts of one long row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


def scaled(x, y):
    y[...] = x * 2.0 + 1.0


def softmax(x, y):
    e = pl.exp(x - pl.max(x, axis=1, keepdims=True))
    y[...] = e / pl.sum(e, axis=1, keepdims=True)


def of_rows(x, y):
    y[:, 0] = pl.sum(x, axis=1)


def two_results(x, y):
    """Sums of columns are kept until the loops over them end."""
    y[...] = x * pl.sum(x, axis=0)


def moved(x, y):
    """All of it is read before any of it is written."""
    y[1:] = y[:-1] * 0.5 + x[1:]


def turned(x, y):
    y[...] = pl.load(x.T) + pl.arange(y.shape[0]).to(pl.f32)[:, None]


KERNELS = (scaled, softmax, of_rows, two_results, moved, turned)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_every_number_of_threads_gives_the_same(kernel: Callable[..., Any]) -> None:
    for shape in ((3, 5), (701, 301), (1, 200001), (0, 7)):
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        start = np.random.default_rng(1).standard_normal(shape[::-1] if kernel is turned else shape, np.float32)
        out = []
        for options in ({"num_threads": 1}, {"num_threads": 4}, {"target": "cpu"}):
            y = start.copy()
            pto.jit(kernel, **{"target": "c", **options})(x, y)
            out.append(y)
        np.testing.assert_array_equal(out[0], out[1])
        np.testing.assert_allclose(out[0], out[2], rtol=1e-4, atol=1e-4)


def test_vectors_are_divided_into_parts_of_one_row() -> None:
    x = np.random.default_rng(0).standard_normal(300001, np.float32)
    y = np.zeros_like(x)
    pto.jit(scaled, target="c", num_threads=3)(x, y)
    np.testing.assert_array_equal(y, x * np.float32(2) + np.float32(1))


@pytest.mark.parametrize("target", ["c", "neon"])
def test_rows_are_given_to_the_workers(target: str) -> None:
    spec = pto.spec((None, None), pl.f32)
    text = "\n".join(pto.jit(softmax).compile(spec, spec, target=target).sources.values())
    assert "status = pto_rows(worker, softmax_incore_0_rows, " in text
    small = pto.spec((64, 64), pl.f32)
    text = pto.jit(softmax).compile(small, small, target=target).sources["softmax_incore_0.c"]
    assert "pto_rows" not in text, "what is known to be small"

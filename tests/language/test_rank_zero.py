# SPDX-License-Identifier: MIT
"""A tensor of rank 0 is a number where a value is wanted, as in NumPy; compiled and interpreted alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


def loaded(x, y):
    y[0] = pl.load(x)


def loaded_at_nothing(x, y):
    pl.store(pl.load(y) + pl.load(x, [], []), [0], y)


def padded(x, y):
    y[1] = pl.load(x, [], [], pad=7)


def read(x, y):
    y[2] = x[()] + x


def returned(x, y):
    return pl.load(x), x[()], x.shape, x.ndim


def stored(x, y):
    pl.store(pl.sum(pl.load(y)), x)


def stored_at_nothing(x, y):
    pl.store(y[1] * 2, [], x)


def stored_with_an_ellipsis(x, y):
    pl.store(y[3], ..., x)


def assigned(x, y):
    x[()] = y[1]
    x[...] = x[()] + 1
    x[()] += y[2]


def added(x, y):
    pl.atomic_add(x, [], y[1])
    pl.atomic_max(x, [], 2)
    pl.atomic_min(x, [], y[3])


EXPECTED: dict[Callable[..., Any], Callable[[Any, Any], tuple[Any, list[Any]]]] = {
    loaded: lambda x, y: (x, [x, 1, 2, 3]),
    loaded_at_nothing: lambda x, y: (x, [x, 1 + x, 2 + x, 3 + x]),
    padded: lambda x, y: (x, [0, x, 2, 3]),
    read: lambda x, y: (x, [0, 1, x + x, 3]),
    returned: lambda x, y: (x, [0, 1, 2, 3]),
    stored: lambda x, y: (6, [0, 1, 2, 3]),
    stored_at_nothing: lambda x, y: (2, [0, 1, 2, 3]),
    stored_with_an_ellipsis: lambda x, y: (3, [0, 1, 2, 3]),
    assigned: lambda x, y: (4, [0, 1, 2, 3]),
    added: lambda x, y: (min(max(x + 1, 2), 3), [0, 1, 2, 3]),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("fn", EXPECTED)
def test_a_tensor_of_rank_0_is_read_and_written_as_a_number(fn: Any, dtype: Any) -> None:
    x, y = np.array(5, dtype), np.arange(4).astype(dtype)
    after, values = EXPECTED[fn](5, y)
    for how in ("__call__", "interpret"):
        a, b = x.copy(), y.copy()
        result = getattr(pto.jit(fn), how)(a, b)
        assert float(a) == after, how
        assert b.astype(float).tolist() == values, how
        if fn is returned:
            assert result == (5, 5, (), 0), how


def test_eager_loads_and_stores_of_rank_0() -> None:
    x = np.array(5.0)
    assert pl.load(x) == 5.0 and np.shape(pl.load(x)) == ()
    pl.store(2, [], x)
    assert x == 2.0
    pl.atomic_add(x, [], 1)
    assert x == 3.0

# SPDX-License-Identifier: MIT
"""The index of an extreme of a whole tile is a number like any other."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_the_place_of_an_extreme_is_stored_returned_and_computed_with(dtype: type) -> None:
    @pto.jit(cache=False)
    def kernel(x, out):
        t = pl.load(x)
        out[0] = pl.argmax(t)
        out[1] = int(pl.argmin(t)) * 10 + 1
        return pl.argmax(t * -1) % 2

    x, out = np.array([3, 1, 4, 2, 9, 2], dtype), np.zeros(2, np.int64)
    assert kernel(x, out) == 1 and out.tolist() == [4, 11]

# SPDX-License-Identifier: MIT
"""LLVM's vectoriser is let at scalar loops and at nothing else."""

from __future__ import annotations

import re

import numpy as np

import pto_jit as pto
import pto_jit.language as pl


@pto.jit(cache=False)
def both(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    with pl.incore():
        pl.store(pl.exp(pl.load(x)), [0], y)
    with pl.incore():
        for i in range(x.shape[0]):
            z[i] = x[i] * 2.0 + 1.0


def test_loops_of_vectors_are_marked_and_scalar_ones_are_not() -> None:
    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    y, z = np.empty_like(x), np.empty_like(x)
    both(x, y, z)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(z, x * 2 + 1)
    text = both.compile(x, y, z).ir("llvm")
    marked = {
        re.search(r'@"?([^"(]+)', body)[1]  # type: ignore[index]
        for body in re.split(r"^define", text, flags=re.M)[1:]
        if "!llvm.loop" in body
    }
    scalar = re.search(r"define[^\n]*@\"?(both_incore_1[^\"(]*)", text)
    assert scalar is not None and scalar[1] not in marked
    assert any(name.startswith("both_incore_0") for name in marked)

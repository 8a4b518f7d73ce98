# SPDX-License-Identifier: MIT
"""What a product contracts of both operands is declared alike, on all targets as in interpret mode."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.targets.test_generated_axes import TARGETS, on


@pto.jit
def products(x, w, out):
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        pl.store(pl.dot(pl.load(x, [i, 0], [8, 16]), w), [i, 0], out)


@pytest.mark.parametrize("target", TARGETS)
def test_the_contracted_extents_of_a_product_are_declared_alike(target: str) -> None:
    x, w, out = np.ones((13, 16), np.float32), np.ones((16, 5), np.float32), np.zeros((13, 5), np.float32)
    on(products, target)(x, w, out)
    assert (out == 16).all()
    with pytest.raises(pto.LaunchError, match="contract"):
        on(products, target)(np.ones((13, 11), np.float32), np.ones((11, 5), np.float32), out)

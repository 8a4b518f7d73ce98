# SPDX-License-Identifier: MIT
"""The softmax program of the loop specification (section 7), compiled, with its 4096 tiles."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


class Softmax:
    """Rows in tiles of `tile_m`, the phases of a tile one after the other."""

    def __init__(self, num_tiles: int, tile_m: int, chunk: int) -> None:
        self.num_tiles, self.tile_m, self.chunk = num_tiles, tile_m, chunk

    @pto.incore
    def incore_row_max(self, t, tmp):
        return pl.max(t, axis=1, keepdims=True)

    @pto.incore
    def incore_exp_sub(self, t, m):
        return pl.exp(t - m)

    @pto.incore
    def incore_row_sum(self, t, tmp):
        return pl.sum(t, axis=1, keepdims=True)

    @pto.incore
    def incore_div(self, e, s):
        return e / s

    @pto.jit
    def run(self, x, out):
        rows, cols = x.shape
        for t in pl.range(0, self.num_tiles, chunk=self.chunk):
            r_start = t * self.tile_m
            r_end = min(r_start + self.tile_m, rows)
            x_tile = pl.slice(x, [r_end - r_start, cols], [r_start, 0])
            tmp_tile = x_tile
            for phase in pl.range(3):
                if phase == 0:
                    row_max_tile = self.incore_row_max(x_tile, tmp_tile)
                elif phase == 1:
                    exp_tile = self.incore_exp_sub(x_tile, row_max_tile)
                    row_sum_tile = self.incore_row_sum(exp_tile, tmp_tile)
                else:
                    y_tile = self.incore_div(exp_tile, row_sum_tile)
                    pl.store(y_tile, ..., out[r_start:r_end, :])


@pytest.mark.parametrize(
    ("num_tiles", "tile_m", "chunk", "shape", "dtype"),
    [(4096, 4, 1024, (16384, 16), "f4"), (4096, 3, 1024, (12287, 7), "f8"), (5, 8, 2, (37, 10), "f4")],
)
def test_the_softmax_of_the_loop_specification(num_tiles, tile_m, chunk, shape, dtype) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    y = np.zeros_like(x)
    program = Softmax(num_tiles, tile_m, chunk)
    program.run(x, y)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5 if dtype == "f4" else 1e-13)
    nest = "\n".join(map(str, program.run.compile(x, y).loop_nest()))
    assert [nest.count(f"{kind} t") for kind in ("in_chunk", "chunk")] == [1, 2]  # one loop of each kind, no copies
    assert nest.count("call incore_row_max") == 1

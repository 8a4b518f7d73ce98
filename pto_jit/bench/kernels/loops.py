# SPDX-License-Identifier: MIT
"""Kernels that show what loops themselves cost: chunks, nests of few and many iterations, loops of little work."""

from __future__ import annotations

import pto_jit as pto
import pto_jit.language as pl


@pto.jit
def affine(x: pl.Tensor, out: pl.Tensor):
    """out = 2 x + 1, as one parallel loop over the elements."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], parallel=True):
            out[i] = x[i] * 2.0 + 1.0


@pto.jit
def affine_chunked(x: pl.Tensor, out: pl.Tensor):
    """The same in chunks of 4096 elements."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], chunk=4096):
            out[i] = x[i] * 2.0 + 1.0


@pto.jit
def uneven_nest(x: pl.Tensor, out: pl.Tensor):
    """exp(x), a parallel loop over few long rows around one over their elements."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], parallel=True):
            for j in pl.range(0, x.shape[1], parallel=True):
                out[i, j] = pl.exp(x[i, j])


@pto.jit
def uneven_nest_rows(x: pl.Tensor, out: pl.Tensor):
    """The same with a row as one tile: only the rows are divided."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], parallel=True):
            pl.store(pl.exp(pl.load(x, [i, 0], [1, x.shape[1]])), [i, 0], out)


@pto.jit
def small_rows(x: pl.Tensor, out: pl.Tensor):
    """out = 2 x, row by row, in a parallel loop that is worth one worker."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], parallel=True):
            pl.store(pl.load(x, [i, 0], [1, x.shape[1]]) * 2.0, [i, 0], out)


@pto.jit
def small_rows_sequential(x: pl.Tensor, out: pl.Tensor):
    """The same in a sequential loop."""
    with pl.incore():
        for i in pl.range(0, x.shape[0]):
            pl.store(pl.load(x, [i, 0], [1, x.shape[1]]) * 2.0, [i, 0], out)


@pto.jit
def column_first(x: pl.Tensor, out: pl.Tensor):
    """out = 2 x + 1 on a row-major array, the loop over the rows written inside: the compiler exchanges them."""
    with pl.incore():
        for j in pl.range(0, x.shape[1], parallel=True):
            for i in pl.range(0, x.shape[0], parallel=True):
                out[i, j] = x[i, j] * 2.0 + 1.0


@pto.jit
def column_first_kept(x: pl.Tensor, out: pl.Tensor):
    """The same in sequential loops: the arguments may overlap, so the loops stay as they are written."""
    with pl.incore():
        for j in pl.range(0, x.shape[1]):
            for i in pl.range(0, x.shape[0]):
                out[i, j] = x[i, j] * 2.0 + 1.0

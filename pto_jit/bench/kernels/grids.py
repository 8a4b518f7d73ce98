# SPDX-License-Identifier: MIT
"""Kernels on grids, the scalar ones written as loops over elements."""

from __future__ import annotations

import pto_jit as pto
import pto_jit.language as pl

LIMIT = 256


@pto.jit
def stencil5(x: pl.Tensor, out: pl.Tensor):
    """Mean of a point and its four neighbours; `x` has a border of one point around `out`."""
    rows, cols = out.shape
    with pl.incore():
        for i in pl.range(0, rows, chunk=32):
            for j in pl.range(0, cols, parallel=True):
                near = x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2]
                out[i, j] = 0.2 * (x[i + 1, j + 1] + near)


@pto.jit
def conv3x3(x: pl.Tensor, weight: pl.Tensor, out: pl.Tensor):
    """3x3 convolution, channels last: nine matrix products per output row."""
    height, width, channels = out.shape
    with pl.incore():
        for i in pl.range(0, height, parallel=True):
            acc = pl.zeros([width, channels], pl.f32)
            for dy in pl.static_range(3):
                for dx in pl.static_range(3):
                    acc = pl.dot(x[i + dy, dx : dx + width, :], weight[dy, dx], acc)
            out[i, :, :] = acc


@pto.jit
def mandelbrot(re: pl.Tensor, im: pl.Tensor, counts: pl.Tensor):
    """Iterations of z**2 + c until |z| > 2, at most LIMIT."""
    height, width = counts.shape
    with pl.incore():
        for i in pl.range(0, height, chunk=4):
            for j in pl.range(0, width, parallel=True):
                cx, cy = re[j], im[i]
                x, y = cx, cy
                n = 0
                while n < LIMIT and x * x + y * y <= 4.0:
                    x, y = x * x - y * y + cx, 2.0 * x * y + cy
                    n += 1
                counts[i, j] = n

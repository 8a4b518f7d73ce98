# SPDX-License-Identifier: MIT
"""Orchestrations whose calls are tasks: order by regions, temporaries made again, host reads, results, failures."""

from __future__ import annotations

from typing import Any

import numpy as np

import pto_jit as pto
import pto_jit.language as pl


@pto.incore
def scale_into(x, y, r, factor):
    """Rows of y from those of x."""
    pl.store(pl.load(x, [r, 0], [4, 8]) * factor, [r, 0], y)


@pto.incore
def add_into(x, y):
    y[...] = pl.load(y) + pl.load(x)


@pto.incore
def pick(x, y, where):
    y[...] = pl.load(x, [where, 0], [1, 8])


@pto.jit
def prefix(x, y, n, factor):
    """Blocks of four rows, scaled, then added into the block below, one after the other."""
    for k in pl.range(n):
        scale_into(x, y, 4 * k, factor)
    for k in pl.range(n - 1):
        r = k * 4
        add_into(y[r : r + 4, :], y[r + 4 : r + 8, :])


@pto.jit
def temporaries(x, y, n):
    """A tensor made in every iteration, which tasks still use when it is made again; one that is returned."""
    total = pl.zeros([4, 8], pl.f32)
    for k in pl.range(n):
        part = pl.full([4, 8], 1.0, pl.f32)
        r = k * 4
        add_into(x[r : r + 4, :], part)
        add_into(part, total)
        if k % 2 == 0:
            add_into(part.T.T, y[r : r + 4, :])
    return total, n


@pto.jit
def steered(x, y, n):
    """The host reads what tasks wrote, and writes what they read."""
    k = 0
    while k < n:
        scale_into(x, y, 4 * k, 3.0)
        if y[4 * k, 0] > 0:
            x[0, 0] = y[4 * k, 0] + 1.0
            add_into(x[0:4, :], y[4 * k : 4 * k + 4, :])
        k += 1
    return y[0, 0]


@pto.jit
def failing(x, y, n):
    for k in pl.range(n):
        pick(x, y[k : k + 1, :], 5 - 7 * k)  # fails


def cases() -> list[tuple[Any, list[Any]]]:
    """Kernels with arguments; arrays are written to."""
    rng = np.random.default_rng(5)

    def array() -> np.ndarray:
        return rng.standard_normal((48, 8), dtype=np.float32)

    return [(prefix, [array(), array(), 12, 2.5]), (temporaries, [array(), array(), 12]),
            (steered, [array(), array(), 12])]  # fmt: skip

# SPDX-License-Identifier: MIT
"""Sequential loops whose iterations update the same elements, in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import emulated, needs_compiler


@pto.jit
def histogram(x, v, h, top):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            h[x[i, j]] += 1


@pto.jit
def written_out(x, v, h, top):
    """The place is computed twice, and the update stands under a condition."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if v[i, j] > 0:
                h[x[i, j]] = x[j % x.shape[0], 0] + h[x[i, j]]


@pto.jit
def largest(x, v, h, top):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            top[x[i, j]] = max(top[x[i, j]], v[i, j])
            h[x[i, j]] = min(h[x[i, j]], i)


@pto.jit
def of_rows(x, v, h, top):
    """A place that the inner loop has for all of its iterations."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            h[i % 3] += x[i, j]


@pto.jit
def apart(x, v, h, top):
    """No two iterations update one element."""
    for i in range(h.shape[0]):
        h[i] += 3


KERNELS = [histogram, written_out, largest, of_rows, apart]


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 9, (13, 70)).astype(np.int32), rng.standard_normal((13, 70), np.float32),
            np.ones(9, np.int32), np.full(9, -1, np.float32)]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_updates_in_any_order(kernel: Any) -> None:
    wanted = arguments()
    kernel(*wanted)
    for got, want in zip(emulated(kernel, *arguments())[1], wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_elements_that_are_updated_once_are_not_updated_atomically() -> None:
    texts = [k.compile(*arguments(), target="cuda").ir("kernels") for k in (apart, histogram)]
    assert ["atomic" in text for text in texts] == [False, True]


@pto.jit
def sums_of_floats(x, v, h, top):
    """Whose order the loop promises."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            top[x[i, j]] += v[i, j]


@pto.jit
def read_between(x, v, h, top):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            h[x[i, j]] += 1
            top[j % 9] = h[0]


@pto.jit
def places_of_what_was_counted(x, v, h, top):
    for i in range(x.shape[0]):
        h[h[i % 9] % 9] += 1


@pytest.mark.parametrize("kernel", [sums_of_floats, read_between, places_of_what_was_counted], ids=lambda k: k.__name__)
def test_what_depends_on_the_order_is_refused(kernel: Any) -> None:
    with pytest.raises(pto.TargetError, match=r"PTO-X100.* a sequential loop over elements"):
        kernel.compile(*arguments(), target="cuda")


@pto.jit
def once(x, y):
    """Outside of all loops, where a block has threads to spare."""
    pl.atomic_add(y, [0], 3)
    pl.atomic_max(y, [1], x[2])


@pto.jit
def of_running_sums(x, y):
    s = 0.0
    for i in range(x.shape[0]):
        s += x[i]
        pl.atomic_add(y, [i % 7], s)


@pto.jit
def some_beyond_the_end(x, y):
    for i in pl.range(x.shape[0], parallel=True):
        pl.atomic_add(y, [i * 2], x[i])


@pto.jit
def under_conditions(x, y):
    for i in pl.range(x.shape[0], parallel=True):
        for j in range(4):
            if x[i] > 0:
                pl.atomic_add(y, [(i * j) % y.shape[0]], x[i] * j)


@pto.jit
def of_two_kinds(x, y):
    for i in pl.range(x.shape[0], parallel=True):
        pl.atomic_add(y, [i % 5], x[i])
        pl.atomic_max(y, [5 + i % 3], x[i] + 1)


@pto.jit
def before_the_start(x, y):
    for i in pl.range(x.shape[0], parallel=True):
        pl.atomic_min(y, [i - 3], x[i])


BY_NUMBERS = [once, of_running_sums, some_beyond_the_end, under_conditions, of_two_kinds]


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int64])
@pytest.mark.parametrize("kernel", BY_NUMBERS, ids=lambda k: k.__name__)
def test_updates_by_numbers(kernel: Any, dtype: Any) -> None:
    rng = np.random.default_rng(8)
    x, start = (rng.integers(-9, 9, n).astype(dtype) for n in (40, 60))  # whose sums any order gives exactly
    wanted = start.copy()
    kernel(x, wanted)
    _, (_, found) = emulated(kernel, x, start.copy())
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(pto.BoundsError, match="negative"):
        emulated(before_the_start, x, start)

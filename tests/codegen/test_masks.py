# SPDX-License-Identifier: MIT
"""Numbers assigned through masks: `x[x > 0] = 0`, `x[mask] *= 2`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

X = np.array([[3, -1, 0, 7, -5], [-2, 9, 4, -8, 1], [6, -6, 2, 0, -3]])


def assigned(x):
    x[x > 1] = 0


def changed(x):
    x[x > 0] *= 2
    x[x < 0] -= 1


def complements(x):
    mask = (x > 0) & (x < 5)
    x[mask] = 9
    x[~mask] = 1


def whole_rows(x):
    x[x[:, 0] > 0] = 4


def rows_counted(x):
    x[x[:, 1] > 0] += 3


def of_a_view(x):
    x[1:, ::2][x[1:, ::2] > 0] = 8
    x[0][x[0] < 0] = 6


def row_after_row(x):
    for row in x:
        row[row > 3] = row[0]


def masks_in_memory(x):
    keep = pl.zeros(x.shape, pl.bool_)
    keep[...] = x > 2
    x[keep] = 5


def nothing(x):
    x[x > 100] = 1
    x[:0][x[:0] > 0] = 1


def in_parallel(x):
    for r in pl.range(x.shape[0], parallel=True):
        x[r][x[r] > 2] = r


def in_scopes(x):
    with pl.incore():
        t = pl.load(x)
        x[t > 0] = 7


KERNELS = [assigned, changed, complements, whole_rows, rows_counted, of_a_view, row_after_row, masks_in_memory, nothing,
           in_parallel, in_scopes]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "float16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_are_assigned_as_in_numpy(kernel: Any, dtype: str, order: Any) -> None:
    given = np.array(X, dtype, order=order)
    wanted = given.copy(order)
    mended = wanted.copy()
    if kernel is masks_in_memory:
        mended[wanted > 2] = 5
    elif kernel is in_parallel:
        for r in range(len(wanted)):
            mended[r][wanted[r] > 2] = r
    elif kernel is in_scopes:
        mended[wanted > 0] = 7
    else:
        kernel(mended)
    for call in (pto.jit(kernel), pto.jit(kernel).interpret):
        got = given.copy(order)
        call(got)
        np.testing.assert_array_equal(got, mended)


def test_numbers_have_the_dtype_of_the_tensor() -> None:
    @pto.jit
    def kernel(x):
        x[x > 2**40] = 2.75

    for call in (kernel, kernel.interpret):
        x = np.array([2**62 + 1, 3, 2**53 + 1])
        call(x)
        assert x.tolist() == [2, 3, 2]
        x = np.array([-(2**62) - 1, 3])
        call(x)
        assert x.tolist() == [-(2**62) - 1, 3]


def tile_through_a_mask(x):
    x[x > 0] = pl.load(x)


def tile_added_through_a_mask(x):
    x[x > 0] += pl.load(x)


def mask_of_another_shape(x):
    x[pl.load(x, [0, 0], [2, 4]) > 0] = 1
    y = pl.zeros([3, 5], pl.f32)
    y[pl.full([3, 1], True)] = 1.0


def element_through_a_mask_read(x):
    return pl.sum(x[x > 0])


@pytest.mark.parametrize(
    ("body", "code"),
    [(tile_through_a_mask, "PTO-T039"), (tile_added_through_a_mask, "PTO-T039"), (mask_of_another_shape, "PTO-H012"),
     (element_through_a_mask_read, "PTO-T037")],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(body: Any, code: str) -> None:
    with pytest.raises(pto.CompilationError) as caught:
        pto.jit(body).compile(X.astype(np.float32))
    assert caught.value.code == code

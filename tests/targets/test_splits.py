# SPDX-License-Identifier: MIT
"""`pl.split` of run-time extents: of tiles in loops, and of whole tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import LaunchError
from tests.targets.ascend.harness import check_interpreted, ordered
from tests.targets.cuda.harness import emulated, needs_compiler


@pto.jit
def turned(x, y):
    """Rotary embeddings: halves of rows."""
    n = x.shape[1]
    for r in pl.range(x.shape[0], parallel=True):
        a, b = pl.split(pl.load(x, [r, 0], [1, n]), 2, axis=1)
        pl.store(pl.concat([a - b, b + a], axis=1), [r, 0], y)


@pto.jit
def whole(x, y):
    a, b, c = pl.split(x, 3, axis=1)
    k = a.shape[1]
    y[:, :k] = pl.sigmoid(a) * b + c


@pto.jit
def rows(x, y):
    a, b = pl.split(x, 2, axis=0)
    y[: a.shape[0], :] = a * b


KERNELS = {turned: (5, 12), whole: (7, 15), rows: (6, 40)}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_parts_are_those_of_numpy(kernel: Any) -> None:
    x = np.random.default_rng(0).standard_normal(KERNELS[kernel], np.float32)
    want, y = np.zeros_like(x), np.zeros_like(x)
    kernel.interpret(x, want)
    kernel(x, y)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_cuda(kernel: Any) -> None:
    x = np.random.default_rng(0).standard_normal(KERNELS[kernel], np.float32)
    want = np.zeros_like(x)
    kernel(x, want)
    np.testing.assert_allclose(emulated(kernel, x, np.zeros_like(x))[1][1], want, rtol=1e-5, atol=1e-6)


@needs_compiler
def test_ascend(tmp_path: Path) -> None:
    spec = pto.spec((None, None), pl.f32)
    programs = ordered({k.__name__: (k, (spec, spec)) for k in (whole, rows)}, tmp_path)
    for kernel in (whole, rows):
        x = np.random.default_rng(0).standard_normal(KERNELS[kernel], np.float32)
        close = lambda got, want, err_msg: np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=err_msg)  # noqa: E731
        check_interpreted(programs, kernel, kernel.__name__, {"x": x}, {"y": np.zeros_like(x)}, close)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_parts_that_do_not_divide_are_an_error(kernel: Any) -> None:
    rows_, columns = KERNELS[kernel]
    x = np.ones((rows_ + 1, columns + 1), np.float32)
    with pytest.raises(LaunchError, match=r"PTO-H209: .*an axis of extent \d+ into [23] parts"):
        kernel(x, np.zeros_like(x))


@needs_compiler
def test_cuda_parts_that_do_not_divide_are_an_error() -> None:
    x = np.ones((4, 13), np.float32)
    for kernel in (turned, whole):
        with pytest.raises(LaunchError, match=r"PTO-H209: pl.split: an axis of extent 13 into [23] parts"):
            emulated(kernel, x, np.zeros_like(x), orders=(0,))

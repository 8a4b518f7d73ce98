# SPDX-License-Identifier: MIT
"""What is computed of whole tensors takes more memory than a core has for parts of the usual size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, kernels_of, needs_compiler, ordered

SPEC = pto.spec((None, None), pl.f32)


@pto.jit
def powers(x, z, y):
    y[...] = pl.pow(x, z)


@pto.jit
def remainders(x, z, y):
    """With branches in which a tile is searched for its largest element."""
    y[...] = pl.fmod(x * 40.0, z) + x % z + pl.sin(x) * pl.cos(z)


@pto.jit
def total(x, z, y):
    y[...] = 0.0
    y[0, 0] = pl.sum(pl.pow(x, z))


@pto.jit
def of_columns(x, z, y):
    y[...] = 0.0
    y[0] = pl.sum(pl.pow(x, z), axis=0)


@pto.jit
def windows(x, z, y):
    """Of what is in memory many parts are read, one after the other."""
    n, m = x.shape[0] - 4, x.shape[1] - 4
    t = x * z
    s = t[:n, :m]
    for i in pl.static_range(5):
        for j in pl.static_range(5):
            s = s + t[i : n + i, j : m + j] * float(i + j)
    y[:n, :m] = s


KERNELS = [powers, remainders, total, of_columns, windows]


def wanted(name: str, x: np.ndarray, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, z, y = x.astype(np.float64), z.astype(np.float64), y.copy()
    match name:
        case "powers":
            y[...] = x**z
        case "remainders":
            y[...] = np.fmod(np.float32(x) * np.float32(40), np.float32(z)) + x % z + np.sin(x) * np.cos(z)
        case "total":
            y[...] = 0
            y[0, 0] = (x**z).sum()
        case "of_columns":
            y[...] = 0
            y[0] = (x**z).sum(0)
        case _:
            t, (n, m) = x * z, (x.shape[0] - 4, x.shape[1] - 4)
            y[:n, :m] = t[:n, :m] + sum(t[i : n + i, j : m + j] * (i + j) for i in range(5) for j in range(5))
    return y


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    directory: Path = tmp_path_factory.mktemp("parts")
    return ordered({k.__name__: (k, (SPEC, SPEC, SPEC)) for k in KERNELS}, directory)


@needs_compiler
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("shape", [(9, 70), (33, 1100), (200, 6)], ids=str)
def test_in_smaller_parts(programs: Programs, kernel, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x, z = (rng.random(shape, np.float32) + np.float32(0.25) for _ in range(2))
    for seed in (0, 3):
        y = np.ones(shape, np.float32)
        want = wanted(kernel.__name__, x, z, y)
        programs.run(kernel.__name__, seed, x=x, z=z, y=y)
        np.testing.assert_allclose(y, want, rtol=2e-4, atol=2e-4)


def test_what_fits_is_left_as_it_is() -> None:
    """Only what has no room for the usual parts has another loop."""

    def loops(kernel) -> int:
        return kernel.compile(SPEC, SPEC, SPEC, target="ascend").ir("kernels").count("FOR %")

    @pto.jit
    def short(x, z, y):
        y[...] = x * z

    assert loops(short) == loops(powers)
    (form,) = kernels_of(powers.compile(SPEC, SPEC, SPEC, target="ascend"))
    assert form.limits == {}

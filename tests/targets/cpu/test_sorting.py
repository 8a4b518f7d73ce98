# SPDX-License-Identifier: MIT
"""Rows sorted by vectors: every length around the blocks of them, every dtype, equal elements in their order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.cpu.loading import host
from tests.targets.cpu.processors import runs_here

ROOT = Path(__file__).parents[3]
DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "bool"]
LENGTHS = [0, 1, 2, 10, 11, 20, 63, 64, 65, 127, 128, 129, 200, 257, 1000, 1025, 4097]

up = pto.jit(lambda t: pl.sort(t))
down = pto.jit(lambda t: pl.sort(t, descending=True))
places = pto.jit(lambda t: pl.argsort(t))
places_down = pto.jit(lambda t: pl.argsort(t, descending=True))


def _rows(dtype: str, n: int) -> np.ndarray:
    """Three rows: of any numbers, of few different ones, of many of the largest; floats with zeros, NaN, infinities."""
    rng = np.random.default_rng(n)
    if dtype == "bool":
        return rng.random((3, n)) < 0.5
    if not dtype.startswith("float"):
        limits = np.iinfo(dtype)
        x = rng.integers(limits.min, limits.max, (3, n), dtype=dtype, endpoint=True)
        x[1] %= 3
        x[2, ::2] = limits.max
        return x
    x = (rng.standard_normal((3, n)) * 50).astype(dtype)
    for value, chance in ((0.0, 0.1), (-0.0, 0.1), (np.inf, 0.05), (-np.inf, 0.05)):
        x[rng.random((3, n)) < chance] = value
    if n % 2:  # NaN of different bits
        x[rng.random((3, n)) < 0.1] = np.nan
        x[rng.random((3, n)) < 0.05] = -np.nan
    return x


def check(dtype: str) -> None:
    for n in LENGTHS:
        x = _rows(dtype, n)
        order = np.argsort(x, axis=-1, kind="stable")
        backwards = n - 1 - np.argsort(x[:, ::-1], axis=-1, kind="stable")[:, ::-1]
        for given in (x, np.repeat(x, 2, axis=1)[:, ::2], np.asfortranarray(x)):
            for function, expected in ((up, order), (down, backwards)):  # to the bit: zeros of either sign are equal
                assert function(given).tobytes() == np.take_along_axis(x, expected, -1).tobytes(), (dtype, n)
            np.testing.assert_array_equal(places(given), order)
            np.testing.assert_array_equal(places_down(given), backwards)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_every_length_and_dtype_are_sorted_to_the_bit(dtype: str) -> None:
    check(dtype)


@pytest.mark.parametrize("n", [21, 100, 256, 1000, 4096])
def test_wide_elements_that_differ_in_their_last_bits_are_told_apart(n: int) -> None:
    rng = np.random.default_rng(n)
    near = 1e9 + rng.permutation(n) * 2.0**-23
    far = near.copy()
    far[n // 2], far[n // 3] = -np.inf, np.nan  # whatever of a rank has room beside an index is the same now
    whole = rng.permutation(n)
    apart = whole.copy()
    apart[1], apart[3] = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    for x in (near, far, -far, whole, apart, apart.astype(np.uint64), whole // 7, np.full(n, 2.5)):
        rows = np.stack([x, x[::-1]])
        np.testing.assert_array_equal(places(rows), np.argsort(rows, axis=-1, kind="stable"))


@pytest.mark.parametrize("level", ["sse2", "avx2"])
def test_rows_are_sorted_on_lesser_processors(level: str) -> None:
    if not runs_here(level):
        pytest.skip(f"this processor has no {level}")
    code = (f"from tests.targets.cpu.processors import pretend; pretend({level!r})\n"
            "from tests.targets.cpu.test_sorting import check\nfor d in ('float32', 'float64', 'int8'): check(d)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(host().width != 64, reason="for registers of 64 bytes")
def test_long_rows_are_sorted_by_vectors() -> None:
    x = np.zeros((2, 3), np.float32)
    assert 'call ptr @"pto.sort.32"' in up.compile(x).ir("llvm")
    assert 'call ptr @"pto.sort.64"' in places.compile(x).ir("llvm")
    assert 'call ptr @"pto.sort.64"' in places.compile(x.astype(np.float64)).ir("llvm")
    assert 'call ptr @"pto.sort.64"' in up.compile(x.astype(np.float64)).ir("llvm")

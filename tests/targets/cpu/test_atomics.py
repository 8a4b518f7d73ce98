# SPDX-License-Identifier: MIT
"""Atomic updates: the same sums whoever works on the loop, plain where nobody else does, by words where others do."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.cpu.loading import host

UPDATES: dict[str, tuple[Any, Any]] = {
    "add": (pl.atomic_add, np.add), "max": (pl.atomic_max, np.maximum), "min": (pl.atomic_min, np.minimum),
}  # fmt: skip
DTYPES = [*map(np.dtype, ("i1", "u2", "i4", "i8", "f2", "f4", "f8")), np.dtype(ml_dtypes.bfloat16)]


def rows(update: Any, threads: int) -> Any:
    @pto.jit(num_threads=threads)
    def kernel(ids, values, sums):
        for i in pl.range(ids.shape[0], parallel=True):
            update(sums, [ids[i], 0], pl.load(values, [i, 0], [1, values.shape[1]]))

    return kernel


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_meet(name: str, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(1)
    update, expect = UPDATES[name]
    kernels = [rows(update, threads) for threads in (1, 2, 5)]
    for width, begin, step in ((1, 0, 1), (3, 1, 1), (40, 0, 1), (67, 3, 1), (21, 1, 2)):
        count = 100 if dtype.itemsize < 4 else 5000  # sums of whole numbers are exact
        ids, values = rng.integers(0, 3, count), rng.integers(0, 3, (count, width)).astype(dtype)
        memory = np.zeros(begin + 3 * width * step, dtype)
        sums = memory[begin:].reshape(3, width * step)[:, ::step]
        expected = np.zeros((3, width))
        expect.at(expected, ids, values.astype(np.float64))
        for kernel in kernels:
            memory[...] = 0
            kernel(ids, values, sums)
            np.testing.assert_array_equal(sums.astype(np.float64), expected)


def text(update: Any, dtype: Any) -> str:
    return rows(update, 2).compile(pto.spec((None,), pl.i64), *[pto.spec((None, None), dtype)] * 2).ir("llvm")


def test_nobody_else_is_asked_for_once_and_what_is_plain_is_in_vectors() -> None:
    found = text(pl.atomic_add, pl.f32)
    (function,) = [f for f in re.findall(r"^define.*?^}", found, re.M | re.S) if "cmpxchg" in f]
    entry = function[: function.index("body:")]
    assert len(re.findall(r"call .*pto_in_piece", function)) == len(re.findall(r"call .*pto_in_piece", entry)) == 1
    lanes = host().width // 4
    assert re.search(rf"fadd <{lanes} x float>", function) or lanes < 2


def test_elements_side_by_side_are_swapped_as_words() -> None:
    bits = 128 if "+cx16" in host().features or host().triple.startswith(("aarch64", "arm64")) else 64
    for dtype in (pl.f32, pl.i16, pl.f16):
        assert f"i{bits}" in "".join(re.findall("cmpxchg.*", text(pl.atomic_add, dtype)))
    assert "atomicrmw add" in text(pl.atomic_add, pl.i32)
    assert "atomicrmw" not in text(pl.atomic_max, pl.i32)

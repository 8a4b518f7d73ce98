# SPDX-License-Identifier: MIT
"""What is stored past the caches is ordered where other workers may read it from there on, and nowhere else."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.cpu.loading import host

pytestmark = pytest.mark.skipif(not host().past_caches, reason="nothing is stored past the caches here")


@pto.incore
def double(x, y):
    y[...] = x * 2.0


@pto.incore
def keep(x, y):
    y[0] = x[0] * 2.0


@pto.jit
def chunks(x, y):
    for i in pl.range(0, x.shape[0], chunk=64):
        y[i] = x[i] * 2.0


@pto.jit
def tasks(x, y):
    for i in pl.range(x.shape[0] // 64):
        double(x[64 * i : 64 * i + 64], y[64 * i : 64 * i + 64])


@pto.jit
def few(x, y):
    for i in pl.range(x.shape[0] // 64):
        keep(x[64 * i : 64 * i + 64], y[64 * i : 64 * i + 64])


@pto.jit
def phases(x, y):
    with pl.incore():
        y[...] = x * 2.0
    with pl.incore():
        x[...] = y * 2.0


def fences(kernel: Any) -> dict[str, int]:
    """How often each function of a kernel orders its stores."""
    vector = pto.spec((None,), pl.f32)
    text = kernel.compile(vector, vector).ir("llvm")
    functions = re.finditer(r'^define[^\n]*@"?([^"(]+)"?\(.*?^}', text, re.S | re.M)
    return {found[1]: len(re.findall("call void .*sfence", found[0])) for found in functions}


def test_ranges_of_chunks_order_them_once_and_not_every_chunk() -> None:
    found = fences(chunks)
    assert found["chunks_incore_0"] == 0 and found["pto_entry_chunks.i_chunk"] == 1


def test_every_task_orders_them_and_one_that_stores_elements_has_none() -> None:
    found = fences(tasks)
    assert found["double"] == 0 and found["double.task"] == 1
    assert sum(fences(few).values()) == 0


def test_a_function_that_serial_code_calls_orders_its_own() -> None:
    found = fences(phases)
    assert found["phases_incore_0"] > 0 and found["phases_incore_1"] > 0


def test_other_workers_read_what_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pto_jit.targets.cpu.spmd.streaming.STREAM", -1)
    monkeypatch.setattr("pto_jit.targets.cpu.stores.STREAM", -1)

    @pto.jit(num_threads=3)
    def there_and_back(x, y, n):
        for _ in pl.range(n):
            for i in pl.range(0, x.shape[0], chunk=64):
                y[i] = x[i] + 1.0
            for i in pl.range(0, x.shape[0], chunk=64):
                x[x.shape[0] - 1 - i] = y[i]

    x = np.arange(100_000, dtype=np.float32)
    there_and_back(x, np.empty_like(x), 20)
    np.testing.assert_array_equal(x, np.arange(100_000, dtype=np.float32) + 20)

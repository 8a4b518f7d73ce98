# SPDX-License-Identifier: MIT
"""Running extremes and running sums of integers are computed several iterations at a time, to the last bit as in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


def _largest(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    m = x[0]
    for i in range(x.shape[0]):
        m = max(m, x[i])
        y[i] = m
    z[0] = m


def _least_turned(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    m = x[0]
    for i in range(x.shape[0]):
        m = min(x[i], m)
        y[i] = m
    z[0] = m


def _depth(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    """What is before and what is after, and what the loop's variable is."""
    m = x[0]
    for i in range(1, x.shape[0]):
        y[i - 1] = m
        m = max(m, x[i])
        z[i] = m - x[i]


def _both(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    low = x[0]
    high = x[0]
    for i in range(x.shape[0] - 1, -1, -1):
        low = min(low, x[i])
        high = max(x[i], high)
        y[i] = low
        if low < high:
            z[i] = high


def _in_place(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        y[i] = x[i]
    m = x[1]
    for i in range(y.shape[0]):
        m = max(m, y[i])
        y[i] = m


def _offsets(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    total = 0
    for i in range(x.shape[0]):
        y[i] = total
        total += x[i]
        z[i] = total
    z[0] = total


def _bits(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    parity = x[0]
    some = x[0]
    for i in range(x.shape[0]):
        parity = parity ^ x[i]
        some = some | (x[i] & 12)
        y[i] = parity
        z[i] = some


def _selected(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    low = x[0]
    high = x[0]
    for i in range(x.shape[0]):
        if x[i] > high:
            high = x[i]
        if low >= x[i]:
            low = x[i]
        y[i] = high
        z[i] = low


def _selected_before(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    """What is before decides about something else, too."""
    high = x[0]
    low = x[1]
    for i in range(1, x.shape[0]):
        z[i] = high
        if x[i] - x[i - 1] >= high:
            high = x[i] - x[i - 1]
            y[i] = 1
        if x[i] < low:
            low = x[i]
        y[i - 1] = low


FLOATS = _largest, _least_turned, _depth, _both, _in_place, _selected, _selected_before
INTEGERS = _offsets, _bits
COUNTS = 1, 2, 7, 16, 33, 64, 65, 130, 333


def _compare(function: Callable[..., None], x: Any) -> None:
    """The bits are those of the same program in order, which is how it runs where it is debugged; a NaN is any NaN."""
    results = np.zeros_like(x), np.zeros_like(x)
    expected = np.zeros_like(x), np.zeros_like(x)
    pto.jit(function)(x, *results)
    pto.jit(function, debug=True)(x, *expected)
    for got, wanted in zip(results, expected, strict=True):
        bits = f"u{x.itemsize}"
        nan = np.isnan(wanted)
        np.testing.assert_array_equal(np.isnan(got), nan)
        np.testing.assert_array_equal(got.view(bits)[~nan], wanted.view(bits)[~nan])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint16, np.int32, np.uint64])
@pytest.mark.parametrize("function", FLOATS)
def test_running_extremes(function: Callable[..., None], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for count in COUNTS if function not in (_in_place, _selected_before) else COUNTS[1:]:
        _compare(function, (rng.integers(0, 90, count) * np.linspace(0, 1, count)).astype(dtype))


@pytest.mark.parametrize("function", FLOATS)
def test_nan_and_zeros_of_either_sign(function: Callable[..., None]) -> None:
    rng = np.random.default_rng(1)
    for dtype in (np.float32, np.float64):
        for count in COUNTS[2:]:
            for odds in (0.0, 0.02, 0.3):
                x = rng.choice(np.array([0.0, -0.0, -1.0 if odds else 0.0], dtype), count)
                x[rng.random(count) < odds] = np.nan
                _compare(function, x)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("function", INTEGERS)
def test_running_sums_of_integers(function: Callable[..., None], dtype: Any) -> None:
    rng = np.random.default_rng(2)
    ends = np.iinfo(dtype)
    for count in COUNTS:
        _compare(function, rng.integers(ends.min, ends.max, count, dtype, endpoint=True))


def test_an_array_that_is_read_and_written_keeps_its_order() -> None:
    kernel = pto.jit(_largest)
    x = np.random.default_rng(3).random(200).astype(np.float32)
    whole, expected = x.copy(), x.copy()
    kernel(whole[:-3], whole[3:], np.zeros(1, np.float32))
    kernel.interpret(expected[:-3], expected[3:], np.zeros(1, np.float32))
    np.testing.assert_array_equal(whole, expected)


def _reads_what_it_wrote(x: pl.Tensor, y: pl.Tensor) -> None:
    m = x[0]
    for i in range(x.shape[0]):
        y[i] = x[i] * 2
        m = max(m, y[i])
        x[i] = m


def _through_a_view(x: pl.Tensor, y: pl.Tensor) -> None:
    v = y[:]
    m = x[0]
    for i in range(x.shape[0]):
        y[i] = x[i] * 2
        m = max(m, v[i])
        x[i] = m


@pytest.mark.parametrize("function", [_reads_what_it_wrote, _through_a_view])
def test_elements_that_the_iteration_wrote_are_not_read_before(function: Callable[..., None]) -> None:
    kernel = pto.jit(function)
    x = np.random.default_rng(4).random(100).astype(np.float32)
    y, expected = np.zeros_like(x), (x.copy(), np.zeros_like(x))
    kernel.interpret(*expected)
    kernel(x, y)
    np.testing.assert_array_equal(x, expected[0])
    np.testing.assert_array_equal(y, expected[1])


def _columns(x: pl.Tensor, y: pl.Tensor) -> None:
    for j in range(x.shape[1]):
        m = x[0, j]
        for i in range(x.shape[0]):
            m = max(m, x[i, j])
            y[i, j] = m


def _rows(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in pl.range(x.shape[0], parallel=True):
        m = x[i, 0]
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
            y[i, j] = m


def test_rows_and_columns() -> None:
    x = np.random.default_rng(5).random((70, 90)).astype(np.float32)
    for function, axis in ((_columns, 0), (_rows, 1)):
        y = np.zeros_like(x)
        pto.jit(function)(x, y)
        np.testing.assert_array_equal(y, np.maximum.accumulate(x, axis=axis))


def _decided(function: Callable[..., None], *args: Any) -> list[str]:
    compiled = pto.jit(function, cache=False).compile(*args)
    return [d.reason for d in compiled.decisions if d.kind == "schedule" and "grouping" in d.reason]


def test_the_decision_names_the_variables() -> None:
    x = np.zeros(100, np.int32)
    (reason,) = _decided(_bits, x, x.copy(), x.copy())
    assert "`parity`" in reason
    assert "`some`" in reason


def _float_sum(x: pl.Tensor, y: pl.Tensor) -> None:
    total = x[0]
    for i in range(x.shape[0]):
        total += x[i]
        y[i] = total


def _only_the_last(x: pl.Tensor, y: pl.Tensor) -> None:
    m = x[0]
    for i in range(x.shape[0]):
        m = max(m, x[i])
    y[0] = m


def _of_itself(x: pl.Tensor, y: pl.Tensor) -> None:
    m = x[0]
    for i in range(x.shape[0]):
        m = max(m, x[i] - m)
        y[i] = m


@pytest.mark.parametrize("function", [_float_sum, _only_the_last, _of_itself, _reads_what_it_wrote])
def test_what_grouping_would_change_keeps_its_order(function: Callable[..., None]) -> None:
    x = np.zeros(100, np.float32)
    assert not _decided(function, x, x.copy())


def test_vectors_are_combined() -> None:
    x = np.zeros(100, np.float32)
    text = pto.jit(_largest, cache=False).compile(x, x.copy(), x.copy()).ir("llvm")
    assert "shufflevector" in text

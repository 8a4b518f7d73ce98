# SPDX-License-Identifier: MIT
"""Loops that look for a greatest or least element run in lanes, and give what the program gives in order, to the last
bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

Kernel = Callable[..., Any]


def _first_greatest(x: pl.Tensor) -> None:
    m = x[0]
    k = 0
    for i in range(x.shape[0]):
        if x[i] > m:
            m = x[i]
            k = i
    return m, k


def _last_least(x: pl.Tensor) -> None:
    m = x[0]
    k = 0
    for i in range(x.shape[0]):
        if m >= x[i]:
            m = x[i]
            k = i
    return m, k


def _backwards(x: pl.Tensor) -> None:
    n = x.shape[0]
    m = x[0]
    k = 7
    for i in range(n - 1, -1, -1):
        if x[n - 1 - i] >= m:
            m = x[n - 1 - i]
            k = 3 * i + 1
    return m, k


def _both_ends(x: pl.Tensor) -> None:
    low = x[0]
    high = x[0]
    at = 0
    for i in range(x.shape[0]):
        v = x[i]
        if v < low:
            low = v
        if v >= high:
            high = v
            at = i
    return low, high, at


def _nan_wins(x: pl.Tensor) -> None:
    m = x[0]
    n = x[0]
    for i in range(x.shape[0]):
        m = max(m, x[i])
        n = min(x[i], n)
    return m, n


def _other_elements(x: pl.Tensor) -> None:
    """What is kept is read at the place, and looked at once more where the loop is left."""
    m = x[0]
    other = x[0]
    for i in range(1, x.shape[0] - 1):
        d = x[i + 1] - x[i - 1]
        if d < m:
            m = d
            other = x[i]
    return m, other


def _plane(x: pl.Tensor) -> None:
    v = pl.reshape(x, [1, x.shape[0]])
    m = v[0, 0]
    row = 0
    column = 0
    for i in range(v.shape[0]):
        for j in range(v.shape[1]):
            if v[i, j] > m:
                m = v[i, j]
                row = i
                column = j
    return m, row, column


ALL = _first_greatest, _last_least, _backwards, _both_ends, _nan_wins, _other_elements, _plane
COUNTS = 1, 2, 15, 31, 64, 65, 127, 256, 300, 1000
TYPES = np.float16, np.float32, np.float64, np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64


def _bits(value: Any) -> bytes:
    array = np.asarray(value)
    return b"nan" if array.dtype.kind == "f" and np.isnan(array) else array.tobytes()


def _compare(kernel: Any, checked: Any, x: Any) -> None:
    got, wanted = kernel(x), checked(x)
    assert [_bits(v) for v in got] == [_bits(v) for v in wanted]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("function", ALL)
def test_the_extremum_and_what_is_kept_with_it(function: Kernel, dtype: Any) -> None:
    kernel, checked = pto.jit(function), pto.jit(function, debug=True)
    rng = np.random.default_rng(0)
    for count in COUNTS if function is not _other_elements else COUNTS[2:]:
        for most in (4, 100):
            x = rng.integers(0, most, count).astype(dtype)
            _compare(kernel, checked, x)
            _compare(kernel, checked, np.sort(x))
            _compare(kernel, checked, np.sort(x)[::-1].copy())


@pytest.mark.parametrize("function", ALL)
def test_nan_infinities_and_zeros_of_either_sign(function: Kernel) -> None:
    kernel, checked = pto.jit(function), pto.jit(function, debug=True)
    rng = np.random.default_rng(1)
    for dtype in (np.float32, np.float64):
        for count in COUNTS[3:]:
            for choice in ([0.0, -0.0], [0.0, -0.0, -1.0], [0.0, -0.0, 1.0], [-0.0, 0.0, np.nan], [np.inf, -np.inf]):
                x = rng.choice(np.array(choice, dtype), count)
                _compare(kernel, checked, x)
                x[0] = np.nan
                _compare(kernel, checked, x)
                x[0] = -1.0
                _compare(kernel, checked, x)


def _residual(u: pl.Tensor, v: pl.Tensor) -> None:
    err = u[0, 0]
    least = u[0, 0]
    size = u[0, 0]
    for i in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            v[i, j] = 0.25 * (u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1])
            err = max(err, abs(v[i, j] - u[i, j]))
            least = min(least, abs(u[i, j]))
            size = max(abs(u[i, j]), size)
    return err, least, size


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_loop_that_writes(dtype: Any) -> None:
    kernel, checked = pto.jit(_residual), pto.jit(_residual, debug=True)
    rng = np.random.default_rng(4)
    for columns in (3, 5, 10, 18, 40, 66, 67, 200):
        for special in (None, 0.0, -0.0, np.nan):
            u = rng.standard_normal((6, columns)).astype(dtype)
            if special is not None:
                u[rng.random(u.shape) < 0.1] = special
                u[0, 0] = special
            results = np.zeros_like(u), np.zeros_like(u)
            got, wanted = kernel(u, results[0]), checked(u, results[1])
            assert [_bits(v) for v in got] == [_bits(v) for v in wanted]
            np.testing.assert_array_equal(*results)
    shared, expected = u.copy(), u.copy()
    assert [_bits(v) for v in kernel(shared, shared)] == [_bits(v) for v in checked(expected, expected)]
    np.testing.assert_array_equal(shared, expected)


def test_lanes_take_a_loop_that_writes() -> None:
    x = np.zeros((10, 100), np.float32)
    assert _decided(_residual, x, x.copy())
    assert "groups" in str(pto.jit(_residual, cache=False).compile(x, x.copy()).ir("llvm"))


def _decided(function: Kernel, *args: Any, **options: Any) -> list[str]:
    compiled = pto.jit(function, cache=False, **options).compile(*args)
    return [d.reason for d in compiled.decisions if d.kind == "schedule" and "one iteration decides" in d.reason]


@pytest.mark.parametrize("function", ALL)
def test_lanes_look_for_them(function: Kernel) -> None:
    x = np.zeros(100, np.float32)
    assert _decided(function, x)
    assert "vector.reduce.s" in str(pto.jit(function, cache=False).compile(x).ir("llvm"))


def test_the_decision_names_the_variables() -> None:
    (reason,) = _decided(_first_greatest, np.zeros(100, np.int32))
    assert "`m`" in reason
    assert "`k`" in reason


def _written(x: pl.Tensor) -> None:
    """An iteration cannot be run once more."""
    m = x[0]
    for i in range(x.shape[0]):
        x[i] = x[i] + 1
        if x[i] > m:
            m = x[i]
    return m, m


def _signed_and_written(x: pl.Tensor) -> None:
    """Of two zeros it is not known which one was first."""
    m = x[0]
    for i in range(x.shape[0]):
        m = max(m, x[i] - 3)
        x[i] = 0
    return m, m


def _sized_and_turned(x: pl.Tensor) -> None:
    """The same, with what was there before."""
    m = x[0]
    for i in range(x.shape[0]):
        m = min(abs(x[i] - 3), m)
        x[i] = 0
    return m, m


def _seen(x: pl.Tensor) -> None:
    """What is carried decides about something else."""
    m = x[0]
    n = 0
    for i in range(x.shape[0]):
        if x[i] > m:
            m = x[i]
        if x[i] == m:
            n += 1
    return m, n


def _counted(x: pl.Tensor) -> None:
    m = x[0]
    n = 0
    for i in range(x.shape[0]):
        if x[i] > m:
            m = x[i]
            n += 1
    return m, n


def _of_itself(x: pl.Tensor) -> None:
    m = x[0]
    k = 0
    for i in range(x.shape[0]):
        if x[i] - m > m:
            m = x[i] - m
            k = i
    return m, k


def _read_later(x: pl.Tensor) -> None:
    m = x[0]
    last = x[0]
    for i in range(x.shape[0]):
        last = x[i]
        if last > m:
            m = last
    return m, last


def _other_element(x: pl.Tensor) -> None:
    """Not what was compared."""
    m = x[0]
    k = 0
    for i in range(1, x.shape[0]):
        if x[i] + x[i - 1] > m:
            m = x[i]
            k = i
    return m, k


REFUSED = _written, _sized_and_turned, _signed_and_written, _seen, _counted, _of_itself, _read_later, _other_element


@pytest.mark.parametrize("function", REFUSED)
def test_what_depends_on_the_order_keeps_it(function: Kernel) -> None:
    if function is not _read_later:  # which the target sees
        assert not _decided(function, np.zeros(100, np.float32))
    kernel, checked = pto.jit(function), pto.jit(function, debug=True)
    rng = np.random.default_rng(2)
    for dtype in (np.float32, np.int32):
        for count in COUNTS:
            x = rng.integers(0, 50, count).astype(dtype)
            got, wanted = kernel(x.copy()), checked(x.copy())
            assert [_bits(v) for v in got] == [_bits(v) for v in wanted]


def test_windows_are_left_to_the_loop_around() -> None:
    def greatest(x: pl.Tensor, y: pl.Tensor) -> None:
        for i in range(1, x.shape[0] - 1):
            m = x[i]
            for k in range(-1, 2):
                if x[i + k] > m:
                    m = x[i + k]
            y[i] = m

    x = np.zeros(100, np.float32)
    assert not _decided(greatest, x, x.copy())


def test_integers_alone_are_left_to_the_loop_vectoriser() -> None:
    def greatest(x: pl.Tensor) -> None:
        m = x[0]
        for i in range(x.shape[0]):
            if x[i] > m:
                m = x[i]
        return m

    assert not _decided(greatest, np.zeros(100, np.int32))
    assert _decided(greatest, np.zeros(100, np.float32))


def test_written_code_that_looks_at_what_it_assigned() -> None:
    program = pto.parse_pto("""
    // Function Type: Orchestration
    func @most(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
      %n = sdim %x {axis=0} : i64
      %m = sgetelem %x[0] : f32
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %e = sgetelem %x[%i] : f32
        %c = sgt %e, %m : bool_
        %m = sselect %c, %e, %m : f32
        %d = sgt %m, %e : bool_
        %m = sselect %d, %e, %m : f32
      ENDFOR
      ssetelem %m, %y[0]
      return
    }
    """)
    x, y = np.random.default_rng(3).random(200, np.float32), np.zeros(1, np.float32)
    program.compile().most(x, y)
    assert y[0] == x[-1]

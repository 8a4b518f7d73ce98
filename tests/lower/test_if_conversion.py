# SPDX-License-Identifier: MIT
"""Branches that store to the same elements either way are selections, where what they do cannot fail."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

Kernel = Any


def _life(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            n = x[i - 1, j - 1] + x[i - 1, j] + x[i - 1, j + 1] + x[i, j - 1] + x[i, j + 1]
            n += x[i + 1, j - 1] + x[i + 1, j] + x[i + 1, j + 1]
            if n == 3:
                y[i, j] = 1
            elif n == 2:
                y[i, j] = x[i, j]
            else:
                y[i, j] = 0


def _several(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in pl.range(x.shape[0], parallel=True):
        for j in range(1, x.shape[1]):
            if x[i, j] > x[i, j - 1]:
                y[i, j] = x[i, j] - x[i, j - 1]
                y[i, j - 1] = 1
            else:
                k = j - 1
                a = x[i, k]
                y[i, j] = 0
                y[i, k] = a


def _in_place(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            a = y[i, j]
            if x[i, j] > a:
                y[i, j] = x[i, j]
            else:
                y[i, j] = a - 1


def _clipped(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > 2:
                x[i, j] = 2
            if y[i, j] == x[i, j]:
                pass
            else:
                y[i, j] = y[i, j] + x[i, j]


def _shortest(x: pl.Tensor, y: pl.Tensor) -> None:
    """The element of one iteration all of them read."""
    for k in range(x.shape[0]):
        for i in range(x.shape[0]):
            for j in range(x.shape[0]):
                if x[i, k] + x[k, j] < x[i, j]:
                    x[i, j] = x[i, k] + x[k, j]


CONVERTED = _life, _several, _in_place, _clipped, _shortest


def _guarded(x: pl.Tensor, y: pl.Tensor) -> None:
    """The element read in a branch may lie behind the end."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if j + 3 < x.shape[1]:
                y[i, j] = x[i, j] + x[i, j + 3]
            else:
                y[i, j] = x[i, j]


def _beside(x: pl.Tensor, y: pl.Tensor) -> None:
    """It lies in the tensor along one axis, and may not along the other."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1] - 1):
            a = x[i, j] + x[i, j + 1]
            if i > 0:
                y[i, j] = x[i - 1, j]
            else:
                y[i, j] = a


def _divided(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            a = x[i, j]
            if a > 1:
                y[i, j] = 100 // a
            else:
                y[i, j] = 7


def _elsewhere(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(1, x.shape[1]):
            if x[i, j] > 1:
                y[i, j] = 3
            else:
                y[i, j - 1] = 4


def _once(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > 1:
                y[i, j] = 3


def _read_back(x: pl.Tensor, y: pl.Tensor) -> None:
    """What a branch reads it has written."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            a = y[i, j]
            if x[i, j] > 1:
                y[i, j] = a + 1
                y[i, j] = y[i, j] + x[i, j]
            else:
                y[i, j] = a
                y[i, j] = 5


def _carried(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        n = x[i, 0]
        for j in range(x.shape[1]):
            n = n + x[i, j]
            if n > 3:
                y[i, j] = n
            else:
                y[i, j] = 0


def _neighbours(x: pl.Tensor, y: pl.Tensor) -> None:
    """The next iteration reads what this one may write."""
    for i in range(x.shape[0]):
        for j in range(1, x.shape[1]):
            if x[i, j] < x[i, j - 1]:
                x[i, j] = x[i, j - 1]


def _read_before(x: pl.Tensor, y: pl.Tensor) -> None:
    """It is not any more what was read."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            a = y[i, j]
            y[i, j] = 7
            if a > 2:
                y[i, j] = x[i, j]


def _one_place(x: pl.Tensor, y: pl.Tensor) -> None:
    """Every iteration would write it."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > y[i, 0]:
                y[i, 0] = x[i, j]


KEPT = _one_place, _neighbours, _read_before, _guarded, _beside, _divided, _elsewhere, _once, _read_back, _carried


def _branches(function: Kernel, **options: Any) -> int:
    x = np.zeros((9, 70), np.int32)
    return len(re.findall(r"\bIF\b", pto.jit(function, cache=False, **options).compile(x, x.copy()).ir("independent")))


@pytest.mark.parametrize("function", CONVERTED)
def test_branches_are_selections(function: Kernel) -> None:
    assert _branches(function) == 0


@pytest.mark.parametrize("function", KEPT)
def test_branches_that_may_fail_or_do_other_things_stay(function: Kernel) -> None:
    assert _branches(function) > 0


@pytest.mark.parametrize("dtype", [np.float16, np.bool_])
def test_what_lies_otherwise_in_memory_is_not_written_again(dtype: Any) -> None:
    def cleared(x: pl.Tensor) -> None:
        for i in range(x.shape[0]):
            if x[i] == 1:
                x[i] = 0

    kernel = pto.jit(cleared, cache=False)
    assert "IF" in kernel.compile(np.zeros(90, dtype)).ir("independent")
    assert "IF" not in kernel.compile(np.zeros(90, np.int8)).ir("independent")


@pytest.mark.parametrize("function", CONVERTED)
def test_branches_stay_where_the_program_is_debugged(function: Kernel) -> None:
    assert _branches(function, debug=True) > 0


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("function", [*CONVERTED, *KEPT])
def test_the_results_are_those_of_the_branches(function: Kernel, dtype: Any) -> None:
    kernel = pto.jit(function)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (9, 70)).astype(dtype)
    for apart in (True, False):
        given = x.copy(), rng.integers(0, 4, x.shape).astype(dtype)
        if not apart:
            given = given[0], given[0]
        expected = given[0].copy(), given[1].copy()
        if not apart:
            expected = expected[0], expected[0]
        if function is _several and not apart:  # its rows are promised to be independent, and are
            continue
        kernel.interpret(*expected)
        kernel(*given)
        for got, wanted in zip(given, expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


def _greatest(x: pl.Tensor) -> None:
    m = x[0]
    for i in range(x.shape[0]):
        if x[i] > m:
            m = x[i]
    return m


def _place(x: pl.Tensor) -> None:
    m = x[0]
    k = 0
    for i in range(x.shape[0]):
        if m >= x[i]:
            m = x[i]
            k = i
    return k


def _ends(x: pl.Tensor) -> None:
    """What the first test takes the second one does not see."""
    lo = x[2]
    hi = x[1]
    for i in range(x.shape[0]):
        if x[i] < lo:
            lo = x[i]
        elif x[i] > hi:
            hi = x[i]
    return lo, hi


def _exchanged(x: pl.Tensor) -> None:
    a = x[0]
    b = x[1]
    for i in range(x.shape[0]):
        if x[i] > a:
            a, b = b, a
        else:
            a, b = b, x[i]
    return a, b


def _counted(x: pl.Tensor) -> None:
    n = 0
    for i in range(1, x.shape[0] - 1):
        if x[i] > x[i - 1] and x[i] != 3 or x[i - 1] == 0:
            n += 1
    return n


def _window(x: pl.Tensor) -> None:
    total = x[0]
    for i in range(1, x.shape[0] - 1):
        m = x[i]
        for a in range(-1, 2):
            if x[i + a] < m:
                m = x[i + a]
        total += m
    return total


def _last_place(x: pl.Tensor) -> None:
    last = 0 - 1
    for i in range(x.shape[0]):
        if x[i] > 1:
            last = i
    return last


def _halved(x: pl.Tensor) -> None:
    total = 0
    for i in range(x.shape[0]):
        k = i - 5
        while k != 0 and total < 5000:
            if k % 4 > 1:
                k = k // 4
            else:
                k = k - 1
            total += 1
    return total


def _found(x: pl.Tensor) -> None:
    total = 0
    for i in range(x.shape[0]):
        low = 0
        high = x.shape[0]
        while low < high:
            middle = (low + high) // 2
            if x[middle] < x[i]:
                low = middle + 1
            else:
                high = middle
        total += low
    return total


ASSIGNED = _greatest, _place, _ends, _exchanged, _counted, _window, _last_place, _halved, _found


def _index(x: pl.Tensor) -> None:
    """The element that the branch reads may not be there."""
    m = x[0]
    for i in range(x.shape[0]):
        if i > 0:
            m = x[i - 1] - m
    return m


def _long(x: pl.Tensor) -> None:
    """More than the next iteration is to wait for."""
    m = x[0]
    for i in range(x.shape[0]):
        if x[i] > 1:
            m = ((m * 3 + x[i]) * 5 - x[i]) * 7 + m
    return m


def _stored(x: pl.Tensor) -> None:
    """The branch stores and the loop carries."""
    m = x[0]
    for i in range(x.shape[0]):
        if x[i] > m:
            x[i] = m
            m = m + 1
        else:
            x[i] = 0
    return m


def _divided_by(x: pl.Tensor) -> None:
    n = 0
    for i in range(x.shape[0]):
        if x[i] > 1:
            n = n // 3
        else:
            n = n + i
    return n


STAYING = _index, _long, _stored, _divided_by


def _branches_of(function: Kernel, **options: Any) -> int:
    compiled = pto.jit(function, cache=False, **options).compile(np.zeros(90, np.int32))
    return len(re.findall(r"\bIF %(?!ordered)", compiled.ir("independent")))


@pytest.mark.parametrize("function", ASSIGNED)
def test_variables_are_selected(function: Kernel) -> None:
    assert _branches_of(function) == 0
    assert _branches_of(function, debug=True) > 0


@pytest.mark.parametrize("function", STAYING)
def test_branches_that_assign_and_may_fail_or_are_long_stay(function: Kernel) -> None:
    assert _branches_of(function) > 0


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("function", [*ASSIGNED, *STAYING])
def test_the_variables_are_those_of_the_branches(function: Kernel, dtype: Any) -> None:
    kernel = pto.jit(function)
    rng = np.random.default_rng(1)
    for size in (3, 70, 301):
        x = rng.integers(0, 4, size).astype(dtype)
        for special in (None, -0.0, np.nan, np.inf)[: 4 if dtype in (np.float32, np.float64) else 1]:
            if special is not None:
                x[rng.integers(0, size, 1 + size // 8)] = special
            mine, other = x.copy(), x.copy()
            got, wanted = kernel(mine), kernel.interpret(other)
            np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
            if dtype in (np.float32, np.float64):
                np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))
            np.testing.assert_array_equal(mine, other)


def test_integers_are_their_extremes() -> None:
    compiled = pto.jit(_greatest, cache=False).compile(np.zeros(90, np.int32))
    assert "smax" in compiled.ir("independent")
    assert "smax" not in pto.jit(_greatest, cache=False).compile(np.zeros(90, np.float32)).ir("independent")


def test_a_variable_of_written_code_keeps_its_value_from_before_the_loop() -> None:
    program = pto.parse_pto("""
    // Function Type: Orchestration
    func @last(%x: !pto.memref<gm,?,i32>, %y: !pto.memref<gm,?,i64>) {
      %n = sdim %x {axis=0} : i64
      %at = scopy 7 : i64
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %e = sgetelem %x[%i] : i32
        %c = sgt %e, 5:i32 : bool_
        IF %c
          %at = scopy %i : i64
        ENDIF
      ENDFOR
      ssetelem %at, %y[0]
      return
    }
    """)
    x, y = np.zeros(20, np.int32), np.zeros(1, np.int64)
    program = program.compile()
    program.last(x, y)
    assert y[0] == 7


def test_what_fails_is_told_at_its_place() -> None:
    def outside(x: pl.Tensor, y: pl.Tensor) -> None:
        for i in range(x.shape[0]):
            if x[i] > 0:
                y[i] = x[i]
            else:
                y[i] = 0  # here

    x = np.zeros(5, np.float32)
    with pytest.raises(pto.BoundsError) as caught:
        pto.jit(outside, debug=True)(x, np.zeros(3, np.float32))
    assert "y[i] = 0  # here" in str(caught.value)

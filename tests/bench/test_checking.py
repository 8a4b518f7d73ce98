# SPDX-License-Identifier: MIT
"""Whether a result counts as right."""

from __future__ import annotations

import numpy as np
import pytest

from pto_jit.bench.checking import check, poison
from pto_jit.bench.workload import Tolerance, dtype_named

EXACT = Tolerance(0.0, 0.0)


def test_equal_results_pass_an_exact_check() -> None:
    assert check([np.array([1.0, np.inf, np.nan])], [np.array([1.0, np.inf, np.nan])], EXACT).passed


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.1])
def test_a_wrong_element_is_named_with_its_place(bad: float) -> None:
    got = np.array([[1.0, 1.0], [bad, 1.0]])
    found = check([got], [np.ones((2, 2))], Tolerance(0.01, 0.01))
    assert not found.passed
    assert found.message == f"1 of 4 elements wrong; worst at (1, 0): {bad}, not 1.0"


def test_a_number_where_nan_is_expected_is_wrong() -> None:
    assert not check([np.ones(1)], [np.array([np.nan])], Tolerance(1.0, 1.0)).passed


def test_the_worst_error_is_given_in_units_of_the_tolerance() -> None:
    found = check([np.array([1.0, 2.5])], [np.array([1.0, 2.0])], Tolerance(0.0, 1.0))
    assert found.passed and found.worst == 0.5


def test_a_share_of_outliers_may_be_allowed() -> None:
    got, expected = np.arange(100), np.arange(100)
    got[3] = 50
    assert check([got], [expected], Tolerance(0.0, 0.0, outliers=0.01)).passed
    got[4] = 50
    assert not check([got], [expected], Tolerance(0.0, 0.0, outliers=0.01)).passed


def test_shapes_and_numbers_of_results_must_agree() -> None:
    assert "shape (2,), expected (3,)" in check([np.ones(2)], [np.ones(3)], EXACT).message
    assert "2 results where 1 are expected" in check([np.ones(1), np.ones(1)], [np.ones(1)], EXACT).message


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
def test_a_poisoned_output_equals_no_small_result(dtype: str) -> None:
    array = np.zeros(5, dtype_named(dtype))
    poison(array)
    assert not check([array], [np.zeros(5)], Tolerance(0.0, 1.0)).passed


def test_a_large_result_is_compared_to_its_end() -> None:
    got = np.zeros((1 << 20) + 3, np.float32)
    got[-1] = 1.0
    assert f"({(1 << 20) + 2},)" in check([got], [np.zeros_like(got)], EXACT).message

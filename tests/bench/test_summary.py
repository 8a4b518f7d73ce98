# SPDX-License-Identifier: MIT
"""Statistics of rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pto_jit.bench.summary import median, paired_ratio, quantile, spread, unpaired_ratio

TIMES = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=20)
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


@unhurried
@given(TIMES, st.floats(0.0, 1.0))
def test_a_quantile_is_that_of_numpy(values: list[float], share: float) -> None:
    assert quantile(values, share) == pytest.approx(np.quantile(values, share), rel=1e-9)


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], -0.1), ([1.0], 1.5)])
def test_a_quantile_of_nothing_or_beyond_the_ends_is_refused(values: list[float], share: float) -> None:
    with pytest.raises(ValueError, match="a quantile needs"):
        quantile(values, share)


def test_the_median_of_an_even_number_lies_between_the_middle_two() -> None:
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5


def test_spread_is_relative_to_the_median() -> None:
    assert spread([1.0, 2.0, 4.0]) == 1.5


def test_a_slow_round_does_not_move_a_paired_ratio() -> None:
    ratio = paired_ratio([2.0, 20.0, 2.0], [1.0, 10.0, 1.0])
    assert (ratio.value, ratio.low, ratio.high) == (2.0, 2.0, 2.0)
    assert ratio.decided


def test_a_paired_ratio_needs_the_same_rounds() -> None:
    with pytest.raises(ValueError):
        paired_ratio([1.0, 2.0], [1.0])


def test_a_ratio_whose_bounds_hold_one_is_undecided() -> None:
    assert not paired_ratio([0.9, 1.0, 1.2], [1.0, 1.0, 1.0]).decided


@unhurried
@given(TIMES, TIMES)
def test_the_bounds_of_an_unpaired_ratio_enclose_it(above: list[float], below: list[float]) -> None:
    ratio = unpaired_ratio(above, below)
    assert ratio.low <= ratio.value * (1 + 1e-12) and ratio.value <= ratio.high * (1 + 1e-12)

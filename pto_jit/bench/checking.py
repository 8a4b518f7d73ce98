# SPDX-License-Identifier: MIT
"""Whether a result is right.  A wrong one is reported and never timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_jit.bench.workload import Tolerance

# Rows compared at a time, so that checking a large result needs no large f64 temporaries.
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of comparing results with the reference; `worst` is the largest error in units of the tolerance."""

    passed: bool
    worst: float
    message: str


def poison(array: np.ndarray[Any, Any]) -> None:
    """Fill an output with what no right result holds, so that an element never written is seen."""
    if array.dtype.kind in "iu":
        array.fill(np.iinfo(array.dtype).max)
    elif array.dtype.kind == "b":
        array.fill(False)
    else:
        array.fill(np.nan)


def check(got: Sequence[np.ndarray[Any, Any]], expected: Sequence[np.ndarray[Any, Any]], limit: Tolerance) -> Check:
    """Compare all results of a call with the reference."""
    if len(got) != len(expected):
        return Check(False, float("inf"), f"{len(got)} results where {len(expected)} are expected")
    worst = 0.0
    for index, (one, wanted) in enumerate(zip(got, expected, strict=True)):
        if one.shape != wanted.shape:
            return Check(False, float("inf"), f"result {index} has shape {one.shape}, expected {wanted.shape}")
        result = _check_array(one, wanted, limit)
        if not result.passed:
            return result
        worst = max(worst, result.worst)
    return Check(True, worst, "")


def _check_array(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], limit: Tolerance) -> Check:
    flat, wanted = got.reshape(-1), expected.reshape(-1)
    beyond, worst, place = 0, 0.0, 0
    for start in range(0, flat.size, _BLOCK):
        one = flat[start : start + _BLOCK].astype(np.float64)
        two = wanted[start : start + _BLOCK].astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            allowed = limit.absolute + limit.relative * np.abs(two)
            distance = np.abs(one - two)
            same = (one == two) | (np.isnan(one) & np.isnan(two))
            error = np.where(same, 0.0, distance / np.maximum(allowed, np.finfo(np.float64).tiny))
        # A NaN where a number is expected, or the other way round, is infinitely far away.
        error = np.where(np.isnan(error), np.inf, error)
        beyond += int(np.count_nonzero(error > 1.0))
        at = int(np.argmax(error)) if error.size else 0
        if error.size and error[at] > worst:
            worst, place = float(error[at]), start + at
    if beyond > limit.outliers * flat.size:
        index = tuple(int(i) for i in np.unravel_index(place, got.shape))
        value, right = flat[place], wanted[place]
        return Check(False, worst, f"{beyond} of {flat.size} elements wrong; worst at {index}: {value}, not {right}")
    return Check(True, worst if beyond == 0 else 1.0, "")

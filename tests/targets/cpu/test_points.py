# SPDX-License-Identifier: MIT
"""Loops over pairs of points whose coordinates lie side by side: the elements of one point are read in front of the
loop over the others, and lanes are points."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto


def nearest(p, d, at):
    for i in range(p.shape[0]):
        best = 1e30
        place = -1
        for j in range(p.shape[0]):
            x = p[i, 0] - p[j, 0]
            y = p[i, 1] - p[j, 1]
            z = p[i, 2] - p[j, 2]
            t = x * x + y * y + z * z
            if t < best:
                best = t
                place = j
        d[i] = best
        at[i] = place


def nearest_other(p, d, at):
    for i in range(p.shape[0]):
        best = 1e30
        place = -1
        for j in range(p.shape[0]):
            if j == i:
                continue
            x = p[i, 0] - p[j, 0]
            y = p[i, 1] - p[j, 1]
            z = p[i, 2] - p[j, 2]
            t = x * x + y * y + z * z
            if t < best:
                best = t
                place = j
        d[i] = best
        at[i] = place


def nearest_in_a_branch(p, d, at):
    for i in range(p.shape[0]):
        best = 1e30
        for j in range(p.shape[0] - 1, -1, -1):
            if j != i:
                best = min(best, abs(p[i, 0] - p[j, 0]) + abs(p[i, 2] - p[j, 2]))
            else:
                at[0] += 0
        d[i] = best


def forces(p, d, at):
    for i in range(p.shape[0]):
        total = 0.0
        for j in range(0, p.shape[0], 2):
            if i != j:
                x = p[j, 0] - p[i, 0]
                y = p[j, 1] - p[i, 1]
                total += x / math.sqrt(x * x + y * y + 0.5)
        d[i] = total


def within(p, d, at):
    """The loop is left at different times, and has no iteration for some points."""
    for i in range(p.shape[0]):
        n = 0
        for j in range(i + 1, p.shape[0]):
            if n >= 5:
                break
            if abs(p[i, 1] - p[j, 1]) < 0.5 and p[i, 2] < p[j, 2]:
                n += 1
        at[i] = n


KERNELS = [nearest, nearest_other, nearest_in_a_branch, forces, within]


def _arguments(n: int, dtype: Any) -> list[np.ndarray]:
    points = np.random.default_rng(n).standard_normal((n, 3))
    return [points.astype(dtype), np.zeros(n, dtype), np.zeros(n, np.int32)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda f: f.__name__)
def test_pairs_of_points(kernel: Callable[..., None], dtype: Any) -> None:
    compiled = pto.jit(kernel)
    for n in (0, 1, 2, 5, 16, 33, 70):
        got, wanted = _arguments(n, dtype), _arguments(n, dtype)
        compiled(*got)
        kernel(*wanted)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kernel", [nearest, nearest_other, forces], ids=lambda f: f.__name__)
def test_lanes_are_points(kernel: Callable[..., None]) -> None:
    text = pto.jit(kernel).compile(*_arguments(40, np.float32)).ir("llvm")
    assert re.search(r"fsub <\d+ x float>", text)


def sums_of_pairs(p, q, out, wide):
    """What no iteration reads may not be there."""
    for i in range(out.shape[0]):
        s = 0.0
        for j in range(q.shape[0]):
            if q[j] < wide:
                s += p[i + 7, 1]
            else:
                s += p[i, 0] * q[j]
        out[i] = s


def test_what_no_iteration_wants_is_not_read_outside() -> None:
    compiled = pto.jit(sums_of_pairs)
    for rows in (20, 27):
        memory = np.full(4096, np.nan)
        p = memory[-rows:].reshape(rows, 1)  # the memory ends with them
        p[...] = np.arange(rows)[:, None]
        q, out = np.arange(1.0, 9.0), np.zeros(20)
        compiled(p, q, out, 0.0)
        np.testing.assert_array_equal(out, np.arange(20) * 36.0)
    p, out = np.arange(54.0).reshape(27, 2), np.zeros(20)
    compiled(p, q, out, 3.0)
    wanted = np.zeros(20)
    sums_of_pairs(p, q, wanted, 3.0)
    np.testing.assert_array_equal(out, wanted)


def inside_polygon(p, corners, inside):
    """The coordinates of a point are read by the condition, and again by what it guards beside others."""
    n = corners.shape[0]
    for i in range(p.shape[0]):
        crossings = 0
        before = n - 1
        for k in range(n):
            if (corners[k, 1] > p[i, 1]) != (corners[before, 1] > p[i, 1]):
                slope = (corners[before, 0] - corners[k, 0]) / (corners[before, 1] - corners[k, 1])
                if p[i, 0] < slope * (p[i, 1] - corners[k, 1]) + corners[k, 0]:
                    crossings += 1
            before = k
        inside[i] = crossings


def above_others(p, corners, inside):
    for i in range(p.shape[0]):
        count = 0
        for k in range(corners.shape[0]):
            if corners[k, 0] > p[i, 0]:
                if p[i, 1] < p[i, 0]:
                    count += 1
                else:
                    count += 2
        for k in range(corners.shape[0]):
            if corners[k, 1] > 0.5 and inside[i] < k:
                count += 1
        inside[i] = count


def many_elements(p, corners, inside):
    """More of them than are read early."""
    for i in range(p.shape[0]):
        count = 0
        for k in range(corners.shape[0]):
            for m in range(1, 13):
                if corners[k, 0] * 12 > m and corners[k, 1] < p[i, m - 1] + p[i, m % 12]:
                    count += m
        inside[i] = count


@pytest.mark.parametrize("kernel", [inside_polygon, above_others, many_elements])
def test_elements_read_for_certain_and_in_branches_are_different_variables(kernel) -> None:
    rng = np.random.default_rng(5)
    for points in (1, 8, 203):
        p, corners = rng.random((points, 12)), rng.random((20, 2))
        got, wanted = np.zeros(points, np.int32), np.zeros(points, np.int32)
        pto.jit(kernel)(p, corners, got)
        kernel(p, corners, wanted)
        np.testing.assert_array_equal(got, wanted)

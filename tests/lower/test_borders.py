# SPDX-License-Identifier: MIT
"""Loops whose first and last iterations are told from the others by conditions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.ir.nodes import For
from pto_jit.ir.parse import parse
from pto_jit.ir.walk import statements
from pto_jit.lower.borders import part_borders
from tests.lower.stages import stages_of

RNG = np.random.default_rng(4)


def stencil(x, y):
    n, m = x.shape
    for i in range(n):
        for j in range(m):
            s = x[i, j] * 4.0
            if i > 0:
                s -= x[i - 1, j]
            if i < n - 1:
                s -= x[i + 1, j]
            if j > 0:
                s -= x[i, j - 1]
            if j < m - 1:
                s -= x[i, j + 1]
            y[i, j] = s


def causal(x, y):
    for c in range(x.shape[0]):
        for t in range(x.shape[1]):
            s = 0.0
            for k in range(4):
                if t - 3 + k >= 0:
                    s += (k + 1) * x[c, t - 3 + k]
            y[c, t] = s


def ahead(x, y):
    """The end is left out, and asked for from behind; the loop inside counts down."""
    n, m = x.shape
    for i in range(n - 1):
        for j in range(1, m - 1):
            s = x[i, j]
            for k in range(5, 1, -2):
                if m - k > j:
                    s += x[i, j + k - 1]
            y[i, j] = s if i != n - 2 else -s


def single_places(x, y):
    n, m = x.shape
    for i in range(n):
        for j in range(m):
            if j == 0 or j == m - 1:
                y[i, j] = 1.0
            elif 3 != j and j + 2 != m:
                y[i, j] = x[i, j] + x[i, j - 1]
            else:
                y[i, j] = x[i, j]


def carried(x, y):
    last = 0.0
    n, m = x.shape
    for i in range(n):
        for j in range(m):
            last = x[i, j] if j < 2 else last * 0.5 + x[i, j]
            y[i, j] = last
        if i > 0:
            last = 0.0


def changing_end(x, y):
    """What the condition reads is not what the loop ends at."""
    for i in range(x.shape[0]):
        end = x.shape[1]
        for j in range(end):
            if j < end - 1:
                y[i, j] = x[i, j] + end
            if j % 3 == 1:
                end -= 1


def changing_end_itself(x, y):
    """The loop ends where it was to end at its start."""
    for i in range(x.shape[0]):
        end = x.shape[1]
        for j in range(end):
            y[i, j] = x[i, j] + end
            if j > 0:
                y[i, j] += x[i, j - 1]
            end = end // 2


def changed_before(x, y):
    """The difference is taken of an end that is another one later."""
    for i in range(x.shape[0]):
        end = x.shape[1]
        early = end - 1
        if i % 2 == 0:
            end = end // 2
        for j in range(end):
            y[i, j] = x[i, j] if j < early - 1 else 2.0


def window(x, y):
    """Conditions of two loops, with `and`."""
    n, m = x.shape
    for i in range(n):
        for j in range(m):
            s = 0.0
            for di in range(-1, 2):
                for dj in range(-2, 3):
                    a, b = i + di, j + dj
                    if a >= 0 and a < n and b >= 0 and b < m:
                        s = s * 0.5 + x[a, b]
            y[i, j] = s


WITHIN: list[tuple[Any, bool]] = [
    (stencil, True), (causal, True), (ahead, True), (single_places, True), (carried, True), (changing_end, False),
    (changed_before, False), (changing_end_itself, True), (window, True),
]  # fmt: skip


@pytest.mark.parametrize("kernel, applied", WITHIN)
def test_iterations_are_those_of_the_program(kernel, applied: bool) -> None:
    compiled = pto.jit(kernel, cache=False)
    for rows in (0, 1, 2, 3, 5, 40):
        for columns in (0, 1, 2, 3, 4, 5, 7, 36, 67):
            x = RNG.random((rows, columns))
            got, wanted = np.full_like(x, -1.0), np.full_like(x, -1.0)
            compiled(x, got)
            kernel(x, wanted)
            np.testing.assert_array_equal(got, wanted)
    decisions = compiled.compile(x, got).decisions
    assert any("written apart" in d.reason and d.loops == ("j" if kernel is not causal else "t",) for d in decisions) \
        == applied  # fmt: skip


def test_what_lies_between_has_no_branches() -> None:
    x = np.zeros((4, 4))
    text = pto.jit(stencil).compile(x, x.copy()).ir("independent")
    function = text[text.index("@stencil_incore_0(%x") :]
    within = [part for part in function.split("FOR ") if part.startswith("%j")]
    assert len(within) == 5  # of the first and the last row once, and in three parts of the others
    assert [part.count("IF ") for part in within] == [4, 2, 0, 2, 4]


def test_parts_have_variables_of_their_own() -> None:
    """So that what is between the borders is computed in vectors."""
    x = np.zeros((4, 4))
    compiled = pto.jit(window).compile(x, x.copy())
    text = compiled.ir("independent")
    loops = [part for part in text[text.index("@window_incore_0(%x") :].split("FOR ") if "%s" in part]
    (middle,) = [k for k, part in enumerate(loops) if part.startswith("%dj") and "IF" not in part]
    assert "sand" not in loops[middle]
    assert re.search(r"\bv?mulpd\s|\bfmul\s+v\d+\.2d|<\d+ x double>", compiled.ir("assembly"))
    made = [set(re.findall(r"(%\S+) = ", part)) for part in loops if part.startswith("%dj")]
    assert all(a.isdisjoint(b) for k, a in enumerate(made) for b in made[k + 1 :])


def test_a_few_iterations_are_not_worth_vectors() -> None:
    x = np.zeros((4, 4))
    module = stages_of(pto.jit(stencil), (x, x)).modules["independent"]
    loops = [s for f in module.funcs for s in statements(f.body) if isinstance(s, For)]
    assert [s.border for s in loops] == [True, False, False, True, False, True, True, False]


ENDS_ELSEWHERE = """
// Function Type: InCore
func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
  %end = scopy %n : i64
  FOR %i:idx, 0:idx, %end:idx, 1:idx
    %c = sgt %i, 0 : bool_
    IF %c
      ssetelem 1.0:f32, %x[%i]
    ENDIF
    %half = sfloordiv %end, 2 : i64
    %end = scopy %half : i64
  ENDFOR
  return
}
"""


def test_a_loop_whose_end_changes_stays_together() -> None:
    module = parse(ENDS_ELSEWHERE)
    assert part_borders(module, []) is module
    fixed = parse(ENDS_ELSEWHERE.replace("    %end = scopy %half : i64\n", ""))
    assert part_borders(fixed, []) is not fixed


def test_few_iterations_stay_together() -> None:
    """What a constant loop has is written once; so is the other half of a triangle."""

    def small(x, y):
        for j in range(12):
            y[j] = x[j - 1] if j > 0 else 0.0

    def triangle(x, y):
        for i in range(x.shape[0]):
            for j in range(x.shape[0]):
                y[j] = x[j] if j <= i else 0.0

    for kernel in (small, triangle):
        decisions = pto.jit(kernel).compile(np.zeros(12), np.zeros(12)).decisions
        assert not any("written apart" in d.reason for d in decisions)

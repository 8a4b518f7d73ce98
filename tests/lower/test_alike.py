# SPDX-License-Identifier: MIT
"""Scopes that differ in where they work are one function, which is told where: its results, its places, its tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import PtoError
from pto_jit.ir.nodes import Call, Const, Func
from pto_jit.ir.walk import statements
from tests.lower.stages import stages_of


@pto.jit
def heads(q, k, v, o, which: pl.constexpr):
    for h in which:
        with pl.incore():
            for r in pl.range(0, q.shape[0], 16):
                s = pl.load(q, [r, h * 32], [16, 32]) @ pl.transpose(pl.load(k, [0, h * 32], [48, 32]))
                e = pl.exp(s - pl.max(s, axis=1, keepdims=True))
                p = e / pl.sum(e, axis=1, keepdims=True)
                pl.store(p @ pl.load(v, [0, h * 32], [48, 32]), [r, h * 32], o)


@pto.jit
def moved(x, y, places: pl.constexpr):
    for at, to in places:
        with pl.incore():
            for j in pl.range(x.shape[1]):
                y[to, j] = x[at, j] + x[at + 2, j] * 0.5


@pto.jit
def columns(x, y, places: pl.constexpr):
    for first in places:
        with pl.incore():
            for i in pl.range(x.shape[0]):
                for j in pl.range(5):
                    y[i, first + j] = x[i, j + first] * 2.0


@pto.jit
def chained(x, which: pl.constexpr):
    for k in which:
        with pl.incore():
            for j in pl.range(x.shape[1]):
                x[k + 1, j] = x[k, j] * 0.5 + x[k + 1, j]


@pto.jit
def counted(x, y, which: pl.constexpr):
    for k in which:
        total = 0.0
        with pl.incore():
            for j in pl.range(x.shape[1]):
                total += x[k, j]
        y[k] = total


@pto.jit
def two_places(x, y):
    with pl.incore():
        y[0:8] = x[0:8] + 1.0
    with pl.incore():
        y[8:16] = x[8:16] + 1.0


def _twice(x, y, at):
    with pl.incore():
        y[at : at + 8] = x[at : at + 8] * 2.0


@pto.jit
def helped(x, y):
    _twice(x, y, 0)
    _twice(x, y, 24)


@pto.jit
def outside(x, y, which: pl.constexpr):
    for k in which:
        with pl.incore():
            y[k] = x[k * 4]


def _shared(kernel, *args) -> tuple[list[Func], list[Call]]:
    """The functions that scopes became, and their calls."""
    module = stages_of(kernel, args).modules["outlined"]
    funcs = [f for f in module.funcs if f.kind == "incore"]
    return funcs, [s for f in module.funcs for s in statements(f.body) if isinstance(s, Call)]


def _told(call: Call) -> list[int]:
    return [int(a.value) for a in call.args if isinstance(a, Const)]


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def _attention(q, k, v, heads):
    out = np.zeros_like(q)
    for h in heads:
        part = slice(32 * h, 32 * h + 32)
        s = q[:, part].astype(np.float64) @ k[:, part].T.astype(np.float64)
        e = np.exp(s - s.max(axis=1, keepdims=True))
        out[:, part] = e / e.sum(axis=1, keepdims=True) @ v[:, part]
    return out


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_heads_are_one_function(target: str) -> None:
    q, k, v, o = _random(40, 256), _random(48, 256), _random(48, 256), np.zeros((40, 256), np.float32)
    funcs, calls = _shared(heads, q, k, v, o, (1, 3, 7, 5))
    assert len(funcs) == 1 and [_told(c) for c in calls] == [[0], [1], [3], [2]]
    pto.jit(heads.__pto_jit__, target=target)(q, k, v, o, (1, 3, 7, 5))
    np.testing.assert_allclose(o, _attention(q, k, v, (1, 3, 7, 5)), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(("places", "told"), [
    (((0, 3), (2, 4), (4, 5)), [[0], [1], [2]]),  # 2 and 1 apart: one number
    (((0, 3), (5, 4), (7, 6)), [[0, 0], [5, 1], [7, 3]]),  # no common one
    (((4, 3), (2, 4), (0, 5)), [[2, 0], [1, 1], [0, 2]]),  # against each other
    (((3, 1), (3, 4), (3, 2)), [[0], [3], [1]]),  # the source stays
    (((3, 1), (3, 1)), [[], []]),  # the same twice
])  # fmt: skip
def test_what_functions_are_told(places, told: list[list[int]], debug: bool) -> None:
    x, y = _random(10, 37), np.zeros((10, 37), np.float32)
    funcs, calls = _shared(moved, x, y, places)
    assert len(funcs) == 1 and [_told(c) for c in calls] == told
    pto.jit(moved.__pto_jit__, debug=debug)(x, y, places)
    expected = np.zeros_like(y)
    for at, to in places:
        expected[to] = x[at] + x[at + 2] * np.float32(0.5)
    np.testing.assert_array_equal(y, expected)


def test_terms_of_indices_are_offsets() -> None:
    x, y = _random(9, 40), np.zeros((9, 40), np.float32)
    funcs, calls = _shared(columns, x, y, (3, 10, 31))
    assert len(funcs) == 1 and [_told(c) for c in calls] == [[0], [1], [4]]
    columns(x, y, (3, 10, 31))
    expected = np.zeros_like(y)
    for first in (3, 10, 31):
        expected[:, first : first + 5] = x[:, first : first + 5] * 2
    np.testing.assert_array_equal(y, expected)


def test_each_scope_sees_what_the_one_before_wrote() -> None:
    x = _random(9, 1000)
    expected = x.copy()
    for k in range(8):
        expected[k + 1] += expected[k] * np.float32(0.5)
    assert len(_shared(chained, x, tuple(range(8)))[0]) == 1
    chained(x, tuple(range(8)))
    np.testing.assert_allclose(x, expected, rtol=1e-6, atol=1e-6)


def test_results_are_those_of_each_call() -> None:
    x, y = _random(6, 50), np.zeros(6, np.float32)
    assert len(_shared(counted, x, y, (0, 4, 5))[0]) == 1
    counted(x, y, (0, 4, 5))
    np.testing.assert_allclose(y, np.where(np.isin(np.arange(6), (0, 4, 5)), x.sum(axis=1), 0), rtol=1e-5, atol=1e-5)


def test_scopes_of_several_places_are_several_functions() -> None:
    x, y = _random(16, 8), np.zeros((16, 8), np.float32)
    funcs, _ = _shared(two_places, x, y)
    assert [f.loc.lineno for f in funcs] == [_line("y[0:8]") - 1, _line("y[8:16]") - 1]


def test_the_scope_of_a_helper_is_one_function_of_no_caller() -> None:
    x, y = _random(32, 8), np.zeros((32, 8), np.float32)
    funcs, calls = _shared(helped, x, y)
    assert len(funcs) == 1 and [_told(c) for c in calls] == [[0], [1]]
    assert all(s.loc.caller is None for s in funcs[0].body)
    assert calls[0].loc.caller != calls[1].loc.caller
    helped(x, y)
    np.testing.assert_array_equal(y[0:8], x[0:8] * 2)
    np.testing.assert_array_equal(y[24:32], x[24:32] * 2)
    assert not y[8:24].any()


def test_what_fails_says_what_is_outside() -> None:
    x, y = _random(16), np.zeros(8, np.float32)
    assert len(_shared(outside, x, y, (0, 1, 4))[0]) == 1
    with pytest.raises(PtoError, match="16") as caught:
        pto.jit(outside.__pto_jit__, debug=True)(x, y, (0, 1, 4))
    assert f":{_line('y[k] = x[k * 4]')}" in str(caught.value)


def test_it_is_told() -> None:
    x, y = _random(10, 37), np.zeros((10, 37), np.float32)
    decisions = [d for d in moved.compile(x, y, ((0, 3), (2, 4))).decisions if "are one function" in d.reason]
    assert [(d.kind, d.applied, d.reason) for d in decisions] == [
        ("placement", True, "2 scopes that differ in offsets alone are one function, `moved_incore_0`")
    ]


def _line(text: str) -> int:
    """The first line of this file with a text."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)

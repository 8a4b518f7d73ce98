# SPDX-License-Identifier: MIT
"""Loops, scopes, reductions and compile-time names outside a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit.language as pl
from pto_jit.errors import CompilationError, LaunchError, ScheduleError
from pto_jit.language._loops import set_loop_seed


def _any(value: Any) -> Any:
    return value


@pytest.mark.parametrize("bounds", [(5,), (2, 9), (2, 9, 3), (9, 2, -2), (0,), (5, 1), (np.int64(4),)])
def test_a_sequential_loop_counts_as_python_does(bounds: tuple[int, ...]) -> None:
    assert list(pl.range(*bounds)) == list(range(*bounds))
    assert all(type(i) is int for i in pl.range(*bounds))


def test_a_parallel_loop_runs_every_iteration_once_in_a_seeded_order() -> None:
    before = set_loop_seed(1)
    first, again = list(pl.range(100, parallel=True)), list(pl.range(100, parallel=True))
    set_loop_seed(2)
    other = list(pl.range(100, parallel=True))
    assert set_loop_seed(before) == 2
    assert first == again != other and sorted(first) == sorted(other) == list(range(100)) != first
    assert sorted(pl.range(3, 20, 4, chunk=2, chunk_policy="aligned", combine="tree")) == [3, 7, 11, 15, 19]
    assert sorted(pl.range(4, 0, -1, parallel=True)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "call",
    [
        lambda: pl.range(0, 4, 0),
        lambda: pl.range(4, chunk=0),
        lambda: pl.range(4, chunk=-2),
        lambda: pl.range(4, chunk=1.5),
        lambda: pl.range(4, chunk=True),
        lambda: pl.range(4, parallel=False, chunk=2),
        lambda: pl.range(4, 0, -1, chunk=2),
        lambda: pl.range(4, chunk=2, chunk_policy=_any("even")),
        lambda: pl.range(4, combine=_any("sum")),
        lambda: pl.range(2.5),
        lambda: pl.range(),
        lambda: pl.range(1, 2, 3, 4),
    ],
)
def test_a_bad_loop_is_refused_where_it_is_made(call: Any) -> None:
    with pytest.raises(ScheduleError):
        call()
    with pytest.raises(LaunchError):
        call()


def test_loop_options_are_keywords_only() -> None:
    with pytest.raises(ScheduleError):
        pl.range(0, 4, 1, True)


def test_static_names_pass_values_through() -> None:
    assert list(pl.static_range(1, 7, 2)) == [1, 3, 5]
    assert pl.static(3) == 3 and pl.dynamic_value("x") == "x"
    pl.static_assert(True)
    with pytest.raises(CompilationError, match="must divide"):
        pl.static_assert(False, "must divide")


def test_a_scope_does_nothing_outside_a_kernel_and_hides_no_error() -> None:
    with pytest.raises(ZeroDivisionError), pl.incore(name="body"):
        1 / 0
    with pl.incore():
        pass


def test_an_explicit_reduction_of_coupled_state() -> None:
    x = np.random.default_rng(0).normal(size=50).astype(np.float32)

    def merge(a: Any, b: Any) -> Any:
        m = pl.maximum(a[0], b[0])
        return m, a[1] * pl.exp(a[0] - m) + b[1] * pl.exp(b[0] - m)

    acc = pl.reduction(init=(-np.inf, 0.0), combine=merge)
    for i in pl.range(50, chunk=7):
        acc.update(x[i], 1.0)
    m, s = acc.value
    assert m == x.max()
    np.testing.assert_allclose(s, np.exp(x - x.max()).sum(), rtol=1e-5)


def test_a_reduction_of_one_value_and_its_errors() -> None:
    acc = pl.reduction(0, lambda a, b: a + b)
    for i in pl.range(5, parallel=True):
        acc.update(i)
    assert acc.value == 10
    with pytest.raises(ScheduleError, match="takes 1"):
        acc.update(1, 2)
    with pytest.raises(ScheduleError, match="tuple of 2"):
        pl.reduction((0, 0), lambda a, b: a[0]).update(1, 2)


def test_a_reduction_in_shuffled_loops_combines_in_the_order_of_the_program() -> None:
    acc = pl.reduction("", lambda a, b: a + b)
    acc.update("<")
    for k in pl.range(2):
        for i in pl.range(1, 8, 3, chunk=2):
            for j in pl.range(2, parallel=True):
                acc.update(f"{k}{i}{j} ")
            acc.update("| ")
    acc.update(">")
    assert acc.value == "<" + "".join(f"{k}{i}0 {k}{i}1 | " for k in range(2) for i in (1, 4, 7)) + ">"


def test_a_reduction_takes_what_memory_holds_when_it_is_updated() -> None:
    x = np.zeros(3)
    acc = pl.reduction(np.zeros(3), lambda a, b: a + b)
    for i in pl.range(4, parallel=True):
        x[:] = i
        acc.update(x)
        x[:] = 100
    assert acc.value.tolist() == [6.0] * 3


def test_a_kernel_runs_as_plain_python() -> None:
    def softmax(x: pl.Tensor, y: pl.Tensor) -> None:
        rows, cols = x.shape
        with pl.incore():
            for r in pl.range(0, rows, chunk=4):
                t = pl.load(x, [r, 0], [1, cols])
                e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
                pl.store(e / pl.sum(e, axis=1, keepdims=True), [r, 0], y)

    x = np.random.default_rng(1).normal(size=(10, 7)).astype(np.float32)
    y: Any = np.empty_like(x)
    softmax(x, y)  # type: ignore[arg-type]
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-6)

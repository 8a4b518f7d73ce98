# SPDX-License-Identifier: MIT
"""Arguments that share memory: the result is that of the program in order, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.targets.cuda.tensors import DeviceTensor, lie_apart
from tests.targets.cuda.harness import needs_compiler


@pto.jit
def scaled(x, y, z):
    y[...] = x * 2.0 + 1.0


@pto.jit
def normalised(x, y, z):
    y[...] = x / (pl.sum(pl.abs(x), axis=1, keepdims=True) + 1.0)


@pto.jit
def centred(x, y, z):
    """By way of memory, in several launches."""
    y[...] = x - pl.mean(x, axis=0) - pl.mean(x, axis=1, keepdims=True)


@pto.jit
def running(x, y, z):
    y[...] = pl.cumsum(x, axis=0) - pl.max(x)


@pto.jit
def turned(x, y, z):
    y[...] = pl.flip(pl.exp(x * 0.01), axis=0)


@pto.jit
def one_after_the_other(x, y, z):
    y[...] = x * 2.0
    z[...] = y + x
    x[...] = z - 1.0


@pto.jit
def both_at_once(x, y, z):
    t = pl.exp(x * 0.001)
    y[...] = t
    z[...] = t + x


@pto.jit
def of_two(x, y, z):
    z[...] = x * y


@pto.jit
def picked(x, y, z):
    y[...] = x[pl.arange(x.shape[0]) // 2] + 1.0


ALWAYS = (scaled, normalised, centred, running, turned, one_after_the_other, of_two)
MAYBE = (both_at_once, picked)
"""Of which some are refused: two stores of one launch, which may not change places."""


def rows_of(base: np.ndarray, starts: tuple[int, ...]) -> list[np.ndarray]:
    return [base[start : start + 20] for start in starts]


def at_elements(base: np.ndarray, starts: tuple[int, ...]) -> list[np.ndarray]:
    """Tensors that do not begin where rows do."""
    flat = base.reshape(-1)
    return [flat[start : start + 20 * 40].reshape(20, 40) for start in starts]


def other_rows(base: np.ndarray, starts: tuple[int, ...]) -> list[np.ndarray]:
    """Every second row, which others have, too."""
    return [base[start : start + 40 : 2] for start in starts]


def backwards(base: np.ndarray, starts: tuple[int, ...]) -> list[np.ndarray]:
    return [base[starts[0] + 19 : starts[0] - 1 if starts[0] else None : -1], *rows_of(base, starts[1:])]


def outcome(fn: Any, views: Callable[..., list[np.ndarray]], starts: tuple[int, ...]) -> tuple[Any, Any]:
    base = np.random.default_rng(7).standard_normal((100, 40)).astype(np.float32)
    mine, wanted = base.copy(), base.copy()
    fn.interpret(*views(wanted, starts))
    given = views(mine, starts)
    emulate(fn.compile(*given, target="cuda"), *given, order=1)
    return mine, wanted


@needs_compiler
@pytest.mark.parametrize("starts", [(0, 0, 50), (0, 1, 50), (1, 0, 50), (0, 7, 3), (5, 5, 5), (0, 20, 40)])
@pytest.mark.parametrize("views", [rows_of, at_elements, other_rows, backwards], ids=lambda f: f.__name__)
@pytest.mark.parametrize("fn", ALWAYS, ids=lambda fn: fn.__name__)
def test_the_order_of_the_program(fn: Any, views: Callable[..., Any], starts: tuple[int, ...]) -> None:
    np.testing.assert_allclose(*outcome(fn, views, starts), rtol=2e-5, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize("starts", [(0, 1, 50), (0, 7, 3), (3, 0, 2), (5, 5, 5)])
@pytest.mark.parametrize("fn", MAYBE, ids=lambda fn: fn.__name__)
def test_the_same_or_an_error(fn: Any, starts: tuple[int, ...]) -> None:
    try:
        mine, wanted = outcome(fn, rows_of, starts)
    except pto.LaunchError as error:
        assert "PTO-X131" in str(error)
        return
    np.testing.assert_allclose(mine, wanted, rtol=2e-5)


@needs_compiler
def test_iterations_of_the_program_are_not_copied_for() -> None:
    """What one iteration writes another one reads, if they are in order."""

    @pto.jit
    def shifted(x, y):
        for i in pl.range(y.shape[0], parallel=True):
            y[i] = x[i] + 1.0

    base = np.arange(100, dtype=np.float32)
    with pytest.raises(pto.LaunchError, match="PTO-X131"):
        emulate(shifted.compile(base[:50], base[1:51], target="cuda"), base[:50], base[1:51])


@needs_compiler
@pytest.mark.parametrize(
    "views",
    [
        lambda base: (base[:, :20], base[:, 20:]),
        lambda base: (base[::2, 1::2], base[::2, ::2]),
        lambda base: (base[1::2, ::-1], base[::2]),
        lambda base: (base[:, 3:11][::-1], base[:, 30:38]),
    ],
)
def test_parts_of_one_tensor_that_lie_between_each_other(views: Callable[[np.ndarray], tuple[np.ndarray, ...]]) -> None:
    """Iterations of the program take them as they are: they share no element."""

    @pto.jit
    def doubled(x, y):
        for r in pl.range(0, x.shape[0], parallel=True):
            pl.store(pl.load(x, [r, 0], [1, x.shape[1]]) * 2.0, [r, 0], y)

    base = np.arange(4000, dtype=np.float32).reshape(100, 40)
    x, y = views(base)
    wanted = x * 2
    emulate(doubled.compile(x, y, target="cuda"), x, y)
    np.testing.assert_array_equal(y, wanted)


def test_tensors_that_lie_apart_share_no_byte() -> None:
    """Of random views of one tensor; most of those that share none are known to."""
    rng = np.random.default_rng(5)
    base = np.zeros((12, 8, 6), np.float32)
    known = apart = 0
    for _ in range(3000):
        tensors, used = [], []
        for _ in range(2):
            cut = tuple(slice(int(rng.integers(0, n - 1)), int(rng.integers(1, n + 1)), int(rng.integers(1, 4)))
                        for n in base.shape)  # fmt: skip
            view = base[cut][:: int(rng.choice([-1, 1]))]
            pointer = view.__array_interface__["data"][0]
            tensors.append(DeviceTensor(pointer, view.shape, view.strides, pl.f32))
            places = np.zeros(view.shape, np.int64) + pointer
            for axis, stride in enumerate(view.strides):
                places += np.arange(view.shape[axis]).reshape([-1 if k == axis else 1 for k in range(3)]) * stride
            used.append(set(places.ravel().tolist()))
        if lie_apart(*tensors):
            assert used[0].isdisjoint(used[1])
            known += 1
        apart += used[0].isdisjoint(used[1])
    assert known > 0.9 * apart > 900

# SPDX-License-Identifier: MIT
"""Columns of any length that are reduced: a part at a time, where they are not read again."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, kernels_of, needs_compiler, ordered, written

LINE, FLAT, HIGH = (pto.spec((None,) * n, pl.f32) for n in (1, 2, 3))


@pto.jit
def sums(x, y):
    y[...] = pl.sum(x, axis=0)


@pto.jit
def inverse(x, y):
    y[...] = 1.0 / pl.sum(x, axis=0)


@pto.jit
def means(x, y):
    y[...] = pl.mean(x * x, axis=0) + y


@pto.jit
def several(x, y):
    """Two reductions of one axis, of what is computed, and what is computed of both."""
    t = pl.exp(pl.minimum(x, 1.0))
    y[...] = pl.max(t, axis=0) / (pl.min(t - 0.5, axis=0) + 4.0) + pl.sum(t * y, axis=0)


@pto.jit
def kept(x, y):
    y[...] = pl.relu(pl.max(x, axis=1, keepdims=True)) * 2.0


@pto.jit
def planes(x, y):
    y[...] = pl.sum(x, axis=0) - pl.max(x, axis=0)


@pto.jit
def counts(x, y):
    y[...] = pl.max((x > 0.0).to(pl.i32), axis=0).to(pl.f32)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "sums": (sums, (FLAT, LINE)), "means": (means, (FLAT, LINE)), "several": (several, (FLAT, LINE)),
    "known": (sums, (pto.spec((1000, 130), pl.f32), pto.spec((130,), pl.f32))),
    "inverse": (inverse, (FLAT, LINE)), "counts": (counts, (FLAT, LINE)), "planes": (planes, (HIGH, FLAT)),
    "kept": (kept, (HIGH, pto.spec((None, 1, None), pl.f32))),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("folded"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("length", "width"), [(1, 1), (64, 5), (65, 64), (1000, 130)])
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str, length: int, width: int) -> None:
    if name == "known" and (length, width) != (1000, 130):
        return
    rng = np.random.default_rng(length)
    shape = {"kept": (2, length, width), "planes": (length, 2, width)}.get(name, (length, width))
    x = rng.standard_normal(shape, np.float32)
    y = rng.standard_normal((2, 1, width) if name == "kept" else shape[1:], np.float32)
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-4)
    check_interpreted(programs, CASES[name][0], name, {"x": x}, {"y": y}, close)


@needs_compiler
@pytest.mark.parametrize("length", [0, 3, 100])
def test_sums_of_nothing_and_of_negative_zeros_are_positive(programs: Programs, length: int) -> None:
    x, y = np.full((length, 70), -0.0, np.float32), np.zeros(70, np.float32)
    with np.errstate(divide="ignore"):
        check_interpreted(programs, inverse, "inverse", {"x": x}, {"y": y})


@pytest.mark.parametrize("name", CASES)
def test_columns_may_have_any_length(name: str) -> None:
    fn, specs = CASES[name]
    for form in kernels_of(written(fn, *specs)):
        assert form.limits == {} and not form.alone


@pto.jit
def shares(x, y):
    y[...] = x / pl.sum(x, axis=0)


@pto.jit
def standard(x, y):
    """Two reductions one after the other."""
    t = x - pl.mean(x, axis=0)
    y[...] = t / pl.sqrt(pl.mean(t * t, axis=0) + 1e-5) + y


@pto.jit
def softmax(x, y):
    e = pl.exp(x - pl.max(x, axis=0, keepdims=True))
    y[...] = e / pl.sum(e, axis=0, keepdims=True)


@pto.jit
def centred(x, y):
    y[...] = x - pl.mean(x, axis=0) - pl.mean(x, axis=1, keepdims=True)


@pto.jit
def batches(x, y):
    y[...] = x - pl.max(x, axis=1, keepdims=True)


@pto.jit
def variance(x, y):
    y[...] = pl.mean(pl.square(x - pl.mean(x, axis=0)), axis=0, keepdims=True) + y


@pto.jit
def places(x, y):
    """Of equal extremes, and of NaN in some of the columns."""
    found = pl.argmax(pl.floor(x * 2.0), axis=0, keepdims=True) + pl.argmin(pl.log(x + 2.0), axis=0, keepdims=True)
    y[...] = y + found.to(pl.f32)


@pto.jit
def tokens(x, y):
    """Rows of a known extent that is longer than there is room."""
    y[...] = pl.argmax(x, axis=1, keepdims=True).to(pl.f32)


AGAIN: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **{fn.__name__: (fn, (FLAT, FLAT)) for fn in (shares, standard, softmax, centred, variance, places)},
    "batches": (batches, (HIGH, HIGH)), "tall": (softmax, (pto.spec((1000, None), pl.f32),) * 2),
    "tokens": (tokens, (pto.spec((None, 60000), pl.f32), pto.spec((None, 1), pl.f32))),
}  # fmt: skip


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(AGAIN, tmp_path_factory.mktemp("again"))


@needs_compiler
@pytest.mark.parametrize("name", AGAIN)
@pytest.mark.parametrize(("length", "width"), [(3, 5), (128, 65), (129, 64), (1000, 130), (4500, 3)])
def test_columns_that_are_read_again_may_be_longer_than_there_is_room(
    again: Programs, name: str, length: int, width: int
) -> None:
    if (name == "tall" and length != 1000) or (name == "tokens" and length != 3):
        return
    rng = np.random.default_rng(length)
    shape = {"batches": (2, length, width), "tokens": (length, 60000)}.get(name, (length, width))
    x = rng.standard_normal(shape, np.float32) + 1.0
    y = rng.standard_normal((length, 1) if name == "tokens" else shape, np.float32)
    close = partial(np.testing.assert_allclose, rtol=5e-5, atol=1e-4)
    check_interpreted(again, AGAIN[name][0], name, {"x": x}, {"y": y}, close)


def test_columns_that_are_read_again_stay_on_chip_where_they_fit() -> None:
    """The host decides."""
    forms = kernels_of(written(shares, FLAT, FLAT))
    assert len(forms) == 4 and [[*form.limits] for form in forms] == [["x_d0"], [], [], []]
    assert not any(form.alone for form in forms)

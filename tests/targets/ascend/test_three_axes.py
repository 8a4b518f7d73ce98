# SPDX-License-Identifier: MIT
"""Whole tensors of three axes: parts of them have two axes that are longer than 1, which need not be the last ones."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, kernels_of, needs_compiler, ordered, written

HIGH = pto.spec((None, None, None), pl.f32)
FLAT = pto.spec((None, None), pl.f32)


@pto.jit
def sums(x, y):
    y[...] = pl.sum(x, axis=0)


@pto.jit
def middle(x, y):
    y[...] = pl.max(x, axis=1)


@pto.jit
def centred(x, y):
    y[...] = x - pl.mean(x, axis=0, keepdims=True)


@pto.jit
def shares(x, y):
    e = pl.exp(x - pl.max(x, axis=0, keepdims=True))
    y[...] = e / pl.sum(e, axis=0, keepdims=True)


@pto.jit
def running(x, y):
    y[...] = pl.cumsum(x * 0.5, axis=1)


@pto.jit
def planes(x, y):
    """A plane of a tensor beside all of it."""
    y[...] = pl.maximum(x[-1], y) - y[0]


@pto.jit
def columns(x, y):
    """Axes of extent 1 between run-time ones."""
    y[...] = x * y[:, :, 0][:, :, None] + y[:, 1][:, None]


@pto.jit
def highest(x, y):
    y[...] = pl.where(pl.any(x > 1.0, axis=0), pl.argmax(x, axis=0).to(pl.f32), -1.0)


@pto.jit
def totalled(x, y):
    y[...] = x - pl.mean(x) + pl.max(y)


@pto.jit
def channels(x, y):
    y[...] = (x - pl.mean(x, axis=(0, 1))) / (pl.max(pl.abs(x), axis=(0, 1), keepdims=True) + 1.0)


@pto.jit
def normed(x, y):
    """Reduced along all axes and along two, which stay with extent 1."""
    y[...] = x / (pl.max(pl.abs(x), axis=(0, 1, 2), keepdims=True) + pl.abs(pl.sum(x, axis=(1, 2), keepdims=True)) + 1.0)


@pto.jit
def outer(x, y):
    y[...] = x - pl.mean(x, axis=(0, 2), keepdims=True)


@pto.jit
def overlapping(x, y):
    y[:, :-2] = x[:, :-2] + pl.max(y[:, 1:-1], axis=0)


FLATTENING = ("sums", "middle", "highest")
FUNCTIONS = (sums, middle, centred, shares, running, planes, columns, highest, totalled, channels,
             normed, outer, overlapping)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    fn.__name__: (fn, (HIGH, FLAT if fn.__name__ in FLATTENING else HIGH)) for fn in FUNCTIONS
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("high"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(1, 2, 1), (4, 5, 70), (33, 3, 65), (3, 40, 130)])
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str, shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape, np.float32)
    other = shape[::2] if name == "middle" else shape[1:] if name in FLATTENING else shape
    y = rng.standard_normal(other, np.float32)
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-4)
    check_interpreted(programs, CASES[name][0], name, {"x": x}, {"y": y}, close)


@pytest.mark.parametrize("dtype", [pl.f32, pl.f16, pl.i16])
def test_what_is_reduced_along_two_axes_is_so_before_it_is_read_again(dtype: Any) -> None:
    """Parts of what is stored do not reduce all of it each."""

    @pto.jit
    def below(x, y):
        y[...] = x - pl.max(x, axis=(0, 1), keepdims=True)

    forms = kernels_of(written(below, *(pto.spec((None, None, None), dtype),) * 2))
    assert [form.limits for form in forms] == [{}, {}, {}] and not any(form.alone for form in forms)


@pytest.mark.parametrize("name", CASES)
def test_all_cores_take_part(name: str) -> None:
    assert name in ("totalled", "normed") or not any(form.alone for form in kernels_of(written(CASES[name][0], *CASES[name][1])))


@pto.jit
def turned(x, exchanged, mirrored, lines):
    """Axes change places; those of one element are counted, too."""
    with pl.incore():
        t = pl.load(x, [0, 0, 0], [16, 1, 16])
        pl.store(pl.transpose(t, (1, 0, 2)) * 2.0, [0, 0, 0], exchanged)
        a, b, c = pl.valid_shape(t)
        pl.store(pl.transpose(t, (2, 1, 0)) + pl.cast(a + 10 * b + 100 * c, pl.f32), [0, 0, 0], mirrored)
        pl.store(pl.cumsum(t, axis=0) + pl.cumsum(t, axis=1) - pl.cumsum(t, axis=2), [0, 0, 0], lines)


@pto.jit
def reduced(x, flat, high, row, column, firsts, number):
    """Over the axis of one element, over it and another one, over the others, over all."""
    with pl.incore():
        t = pl.load(x, [0, 0, 0], [16, 1, 16])
        pl.store(pl.sum(t, axis=1) + pl.any(t > 1.5, axis=1).to(pl.f32), [0, 0], flat)
        pl.store(pl.max(t, axis=1, keepdims=True) * 2.0, [0, 0, 0], high)
        pl.store(pl.sum(t, axis=(0, 1)), [0], row)
        pl.store(pl.expand_dims(pl.sum(t, axis=(1, 2)), 1) + pl.max(t, axis=2), [0, 0], column)
        pl.store(pl.argmin(t, axis=0).to(pl.f32), [0, 0], firsts)
        pl.store(pl.full([1, 1], pl.sum(t), pl.f32), [0, 0], number)


SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "turned": ((1, 16, 16), (16, 1, 16), (16, 1, 16)), "reduced": ((16, 16), (16, 1, 16), (16,), (16, 1), (1, 16), (1, 1)),
}  # fmt: skip


@pytest.fixture(scope="module")
def between(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    x = pto.spec((16, 1, 16), pl.f32)
    cases = {fn.__name__: (fn, (x, *(pto.spec(s, pl.f32) for s in SHAPES[fn.__name__]))) for fn in (turned, reduced)}
    return ordered(cases, tmp_path_factory.mktemp("between"))


@needs_compiler
@pytest.mark.parametrize("fn", [turned, reduced])
def test_an_axis_of_one_element_between_two_long_ones(between: Programs, fn: Any) -> None:
    x = np.random.default_rng(2).standard_normal((16, 1, 16), np.float32)
    names = list(inspect.signature(fn.__pto_jit__).parameters)[1:]
    outputs = {name: np.zeros(shape, np.float32) for name, shape in zip(names, SHAPES[fn.__name__], strict=True)}
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-5)
    check_interpreted(between, fn, fn.__name__, {"x": x}, outputs, close)


@pto.jit
def blocks(x, out, sums):
    """Blocks of rows of one plane after the other, which may end before their declared extents do."""
    for r in pl.range(0, x.shape[0], 16, parallel=True):
        for k in pl.range(x.shape[1]):
            t = pl.load(x, [r, k, 0], [16, 1, 24])
            pl.store(pl.exp(t - pl.max(t, axis=2, keepdims=True)), [r, k, 0], out)
            pl.store(pl.sum(t, axis=2), [r, k], sums)


@needs_compiler
def test_blocks_with_one_element_in_the_middle_may_be_cut(tmp_path: Path) -> None:
    three, two = pto.spec((None, None, None), pl.f32), pto.spec((None, None), pl.f32)
    programs = ordered({"blocks": (blocks, (three, three, two))}, tmp_path)
    for shape in ((32, 1, 24), (21, 3, 17), (3, 2, 24)):
        x = np.random.default_rng(4).standard_normal(shape, np.float32)
        outputs = {"out": np.zeros(shape, np.float32), "sums": np.zeros(shape[:2], np.float32)}
        check_interpreted(programs, blocks, "blocks", {"x": x}, outputs, partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-5))


@pto.jit
def padded(a: pl.Tensor, out: pl.Tensor, column: pl.Tensor, row: pl.Tensor):
    """With a pad value, from a tensor that is smaller."""
    n = a.shape[0]
    t = pl.load(a, [0, 0, 0], [n, 1, 16], pad=-1)
    pl.store(t * 2.0, [0, 0, 0], out)
    pl.store(pl.sum(t, axis=2), [0, 0], column)
    pl.store(pl.max(t, axis=0), [0, 0], row)


@pto.jit
def padded_in_branches(a: pl.Tensor, out: pl.Tensor, column: pl.Tensor, row: pl.Tensor):
    """What a branch chooses, with truth values, which the next kernel reads."""
    n = a.shape[0]
    t = pl.load(a, [0, 0, 0], [n, 1, 16], pad=-1)
    if column[0, 0] > 0:
        w = pl.abs(t)
    else:
        w = t * 1.0
    pl.store((w != 3.0).to(pl.f32), [0, 0, 0], out)
    pl.store(pl.sum(w, axis=2), [0, 0], row)


@needs_compiler
@pytest.mark.parametrize("fn", [padded, padded_in_branches])
def test_loads_with_a_pad_value_and_one_element_in_the_middle(tmp_path: Path, fn: Any) -> None:
    programs = ordered({"padded": (fn, (HIGH, HIGH, FLAT, FLAT))}, tmp_path)
    for shape in ((5, 3, 7), (3, 1, 1), (9, 2, 20)):
        a = np.random.default_rng(5).standard_normal(shape, np.float32)
        outputs = {"out": np.zeros((9, 3, 20), np.float32), "column": np.zeros((9, 2), np.float32),
                   "row": np.zeros((9, 24), np.float32)}  # fmt: skip
        check_interpreted(programs, fn, "padded", {"a": a}, outputs, partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-5))

# SPDX-License-Identifier: MIT
"""`concat` and `stack` whose only use is a store: written to the tensor itself where that changes nothing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


@pto.jit
def joined(a, b, y, axis: pl.constexpr):
    y[...] = pl.concat([a[...], b[...] * 2, a[...]], axis=axis)


@pto.jit
def stacked(a, b, y, axis: pl.constexpr):
    y[...] = pl.stack([a[...], b[...]], axis=axis)


@pto.jit
def halves(x, cos, sin, y):
    h = x.shape[1] // 2
    a, b = x[:, :h], x[:, h:]
    y[:, :] = pl.concat([a * cos - b * sin, b * cos + a * sin], axis=1)


@pto.jit
def swapped(x, y):
    h = x.shape[1] // 2
    y[:, :] = pl.concat([x[:, h:], x[:, :h]], axis=1)


@pto.jit
def placed(a, b, y, r, c):
    with pl.incore():
        s = pl.load(a, [0, 0], [4, 5])
        t = pl.load(b, [0, 0], [4, 5])
        pl.store(pl.concat([s, t], axis=0), [r, c], y)


@pto.jit
def twice(a, y, z):
    with pl.incore():
        t = pl.concat([pl.load(a, [0, 0], [4, 5]), pl.load(a, [0, 0], [4, 5])], axis=1)
        pl.store(t, [0, 0], y)
        pl.store(t, [0, 0], z)


def always_asks_for_memory(text: str) -> bool:
    """Whether the code asks for scratch memory other than under a condition."""
    body = text[: text.index("leave:")]
    blocks = re.split(r"^(?=\w)", body, flags=re.M)
    return any("pto_scratch_push" in block and not block.startswith("then") for block in blocks)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("shape", [(7,), (3, 8), (2, 5, 4), (0, 3), (1, 40)])
def test_along_every_axis(shape: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-50, 50, shape).astype(dtype) for _ in range(2))
    for axis in range(len(shape)):
        want = np.concatenate([a, b * 2, a], axis=axis)
        joined(a, b, y := np.zeros_like(want), axis)
        np.testing.assert_array_equal(y, want)
    for axis in range(len(shape) + 1):
        want = np.stack([a, b], axis=axis)
        stacked(a, b, y := np.zeros_like(want), axis)
        np.testing.assert_array_equal(y, want)


def test_into_parts_of_arrays() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((2, 6, 5))
    for axis in (0, 1):
        want = np.concatenate([a, b * 2, a], axis=axis)
        memory = np.zeros((2 * want.shape[0], want.shape[1] + 3))
        for y in (memory[: want.shape[0], 1 : want.shape[1] + 1], memory[::2, 2 : 2 + want.shape[1]],
                  np.zeros((want.shape[0], 2 * want.shape[1]))[:, ::2], np.zeros(want.shape[::-1]).T):  # fmt: skip
            joined(a, b, y, axis)
            np.testing.assert_array_equal(y, want)
        assert np.count_nonzero(memory[:, 0]) == 0
    for axis in (0, 1, 2):
        want = np.stack([a, b], axis=axis)
        y = np.zeros((want.shape[0], want.shape[1], want.shape[2] + 1))[:, :, 1:]
        stacked(a, b, y, axis)
        np.testing.assert_array_equal(y, want)


def test_tensors_that_overlap_what_is_joined() -> None:
    rng = np.random.default_rng(2)
    x, cos, sin = rng.random((9, 8)), rng.random((9, 4)), rng.random((9, 4))
    a, b = x[:, :4], x[:, 4:]
    want = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1)
    y = x.copy()
    halves(y, cos, sin, y)
    np.testing.assert_array_equal(y, want)
    y = x.copy()
    swapped(y, y)
    np.testing.assert_array_equal(y, np.concatenate([b, a], axis=1))
    for shift in (0, 3, 8, 40):
        memory = rng.random(200)
        source, target = memory[:72].reshape(9, 8), memory[shift : shift + 72].reshape(9, 8)
        want = np.concatenate([source[:, 4:], source[:, :4]], axis=1)
        swapped(source, target)
        np.testing.assert_array_equal(target, want)


def test_borders() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random((4, 5)), rng.random((4, 5))
    whole = np.concatenate([a, b])
    for r, c in ((0, 0), (1, 2), (3, 3), (7, 0), (9, 9)):
        y = np.full((9, 7), -1.0)
        placed(a, b, y, r, c)
        want = np.full((9, 7), -1.0)
        part = want[r : r + 8, c : c + 5]
        part[...] = whole[: part.shape[0], : part.shape[1]]
        np.testing.assert_array_equal(y, want)
    with pytest.raises(pto.PtoError, match="concat of an incomplete tile: 3 of 4"):
        placed(a[:3], b, np.zeros((9, 7)), 0, 0)
    with pytest.raises(pto.PtoError, match="valid extents of the tiles differ"):
        placed(a, b[:, :4], np.zeros((9, 7)), 0, 0)
    placed(a, b[:2], y := np.full((9, 5), -1.0), 0, 0)
    np.testing.assert_array_equal(y, np.vstack([a, b[:2], np.full((3, 5), -1.0)]))


def test_what_is_stored_twice_is_a_tile() -> None:
    a = np.random.default_rng(4).random((4, 5))
    twice(a, y := np.zeros((4, 10)), z := np.zeros((4, 10)))
    np.testing.assert_array_equal(y, np.hstack([a, a]))
    np.testing.assert_array_equal(z, y)


def test_memory_is_asked_for_only_where_the_tensor_cannot_have_the_result() -> None:
    x = np.ones((4, 80))
    assert not always_asks_for_memory(swapped.compile(x, x.copy()).ir("llvm"))
    assert always_asks_for_memory(swapped.compile(x, np.zeros((80, 4)).T).ir("llvm")), "not along its rows"
    assert always_asks_for_memory(twice.compile(x, x.copy(), x.copy()).ir("llvm"))

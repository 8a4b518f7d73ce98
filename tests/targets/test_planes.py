# SPDX-License-Identifier: MIT
"""Tiles that are a plane of a tensor: loaded with axes of extent 1 that an index takes away, and planes that are not
there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import BoundsError
from tests.targets.ascend.harness import check_interpreted, ordered
from tests.targets.cuda.harness import emulated, needs_compiler


@pto.jit
def blocks(x, y):
    """At borders, too."""
    for b in pl.range(x.shape[0], parallel=True):
        for h in pl.range(x.shape[1], parallel=True):
            for i in pl.range(0, x.shape[2], 16, parallel=True):
                t = pl.load(x, [b, h, i, 0], [1, 1, 16, x.shape[3]])[0, 0]
                y[b, h, i : i + 16, :] = t - pl.max(t, axis=1, keepdims=True)


@pto.jit
def products(x, y):
    for b in pl.range(x.shape[0], parallel=True):
        for i in pl.range(0, x.shape[2], 16, parallel=True):
            acc = pl.zeros([16, x.shape[2]], pl.f32)
            for h in pl.range(x.shape[1]):
                t = pl.load(x, [b, h, i, 0], [1, 1, 16, x.shape[3]])[0, 0]
                acc += t @ pl.load(x, [b, h, 0, 0], [1, 1, x.shape[2], x.shape[3]])[0, 0].T
            y[b, 0, i : i + 16, :] = acc


@pto.jit
def of_a_tile(x, y):
    """All of the tile is read, too: it is loaded."""
    for b in pl.range(x.shape[0], parallel=True):
        t = pl.load(x, [b, 0, 0, 0], [1, 1, 4, 8])
        pl.store(t + t[0, 0][None, None] * pl.sum(t), [b, 0, 0, 0], y)


@pto.jit
def padded(x, y):
    """Where the tensor ends the tile does not."""
    for b in pl.range(x.shape[0], parallel=True):
        t = pl.load(x, [b + 1, 0, 0, 0], [1, 1, 32, 16], pad=2.0)[0, 0]
        y[b, 0, 0, 0] = pl.sum(t)


@pto.jit
def parts(x, y):
    """A part of what was loaded is no plane of the tensor."""
    for b in pl.range(x.shape[0], parallel=True):
        t = pl.load(x, [b, 0, 0, 0], [1, 2, 16, x.shape[3]])
        y[b, 0, 0:16, :] = t[0, 0] + t[0, 1]


def arguments(kernel: Any = blocks) -> list[np.ndarray]:
    x = np.random.default_rng(0).integers(-8, 8, (2, 3, 21, 40)).astype(np.float32) / 8
    return [x, np.zeros((2, 3, 21, 21) if kernel is products else x.shape, np.float32)]


KERNELS = [blocks, products, of_a_tile, padded, parts]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_planes_are_what_they_were(kernel: Any) -> None:
    x, want = arguments(kernel)
    kernel.interpret(x, want)
    _, y = arguments(kernel)
    kernel(x, y)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_planes_are_views(kernel: Any) -> None:
    """Where nothing else of the tile is read."""
    text = kernel.compile(*arguments(kernel)).ir("simplified")
    assert ("tile_slice" not in text) == (kernel in (blocks, products))


@needs_compiler
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_cuda(kernel: Any) -> None:
    x, want = arguments(kernel)
    kernel.interpret(x, want)
    np.testing.assert_allclose(emulated(kernel, *arguments(kernel), orders=(0,))[1][1], want, rtol=1e-5, atol=1e-5)


@needs_compiler
def test_ascend(tmp_path: Path) -> None:
    specs = pto.spec((None, None, None, 40), pl.f32), pto.spec((None, None, None, None), pl.f32)
    programs = ordered({"blocks": (blocks, specs)}, tmp_path)
    x, y = arguments()
    check_interpreted(programs, blocks, "blocks", {"x": x}, {"y": y})


@pto.jit
def one(x, y, b):
    y[...] = x[b] * 2.0


@pto.jit
def some(x, y, b):
    for i in pl.range(2, parallel=True):
        y[2 * i : 2 * i + 2, :] = x[b + i, 0:2, :] * 2.0


@pto.jit
def loaded(x, y, b):
    for i in pl.range(1, parallel=True):
        pl.store(pl.load(x, [b + i, 0, 0], [1, 4, 8])[0] * 2.0, [0, 0], y)


@pto.jit
def written(x, y, b):
    for i in pl.range(2, parallel=True):
        x[b + i, :, :] = y * 2.0


@pto.jit
def by_number(x, y, b):
    """The index is the number of an iteration, of another tensor."""
    for i in pl.range(y.shape[0], parallel=True):
        y[i, :] = x[i, 0, :]


@needs_compiler
@pytest.mark.parametrize("kernel", [one, some, loaded, written, by_number], ids=lambda k: k.__name__)
def test_cuda_a_plane_that_is_not_there_is_an_error_and_not_what_memory_holds(kernel: Any) -> None:
    x, y = np.ones((3, 4, 8), np.float32), np.zeros((4, 8), np.float32)
    with pytest.raises(BoundsError, match=r"index 3 is outside axis 0 of 3 elements"):
        kernel(x, y.copy(), 3 if kernel in (one, loaded) else 2)
    with pytest.raises(BoundsError, match=r"PTO-B002.* index 3 is outside axis 0 of 3 elements"):
        emulated(kernel, x, y, 3 if kernel in (one, loaded) else 2, orders=(0,))
    if kernel is not by_number:
        emulated(kernel, x, y, 1, orders=(0,))


def test_cuda_asks_nothing_where_the_number_is_below_the_extent() -> None:
    @pto.jit
    def rows(x, y):
        for b in pl.range(x.shape[0], parallel=True):
            y[b] = pl.exp(x[b])

    spec = pto.spec((None, None, None), pl.f32)
    sources = rows.compile(spec, spec, target="cuda").sources
    (text,) = [text for name, text in sources.items() if name.endswith(".cu")]
    assert text.count("pto::fail") == 1  # of y, which may have fewer planes

# SPDX-License-Identifier: MIT
"""Tiles of three axes, which are written as one tile of two for each index of the first axis."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, kernels_of, needs_compiler, ordered, written


@pto.jit
def rows(x: pl.Tensor, bias: pl.Tensor, out: pl.Tensor, sums: pl.Tensor, top: pl.Tensor):
    """Elementwise work, reductions over each axis and over all, a tile and a layer that all layers meet."""
    with pl.incore():
        for b in pl.range(0, 8, 4, parallel=True):
            t = pl.load(x, [b, 0, 0], [4, 8, 16])
            u = pl.exp(t - pl.max(t, axis=2, keepdims=True))
            u = u / pl.sum(u, axis=-1, keepdims=True) + pl.load(bias, [0, 0], [8, 16])
            u = u * pl.min(t, axis=0, keepdims=True) + pl.load(x, [b, 0, 0], [1, 8, 16])
            pl.store(u, [b, 0, 0], out)
            pl.store(pl.sum(t, axis=2), [b, 0], sums)
            pl.store(pl.sum(t, axis=1), [b, 8], sums)
            whole = pl.reshape(pl.sum(t, axis=(1, 2)), [4, 1])
            pl.store(pl.broadcast_to(whole, [4, 8]), [b, 24], sums)
            pl.store(pl.sum(t, axis=0) + pl.max(t) * t[3, 2, 1], [b * 2, 0], top)


@pto.jit
def shapes(x: pl.Tensor, out: pl.Tensor, flat: pl.Tensor):
    """Layers and rows that change places, a loop that carries a tile, a branch."""
    with pl.incore():
        for b in pl.range(0, 8, 4, parallel=True):
            t = pl.load(x, [b, 0, 0], [4, 8, 16])
            z = pl.concat([t[2:4], pl.reshape(pl.reshape(t, [32, 16]), [4, 8, 16])[0:2]], axis=0)
            acc = pl.zeros([4, 8, 16], pl.f32)
            for _ in pl.range(3):
                acc = acc + z * 2.0
            if pl.max(acc) > 1.0:
                acc = acc - 1.0
            pl.store(pl.transpose(pl.concat([acc, acc], axis=1), (0, 2, 1)), [b, 0, 0], out)
            pl.store(pl.reshape(z, [32, 16]), [b * 8, 0], flat)


@pto.jit
def apart(rows: pl.Tensor, line: pl.Tensor, layer: pl.Tensor, out: pl.Tensor, more: pl.Tensor):
    """Layers of what lies in rows, or in one line, and of one that is repeated."""
    with pl.incore():
        t = pl.reshape(pl.load(rows, [0, 0], [4, 128]), [4, 8, 16])
        pl.store(t - pl.max(t, axis=2, keepdims=True), [0, 0, 0], out)
        u = pl.reshape(pl.load(line, [0], [512]), [4, 8, 16]) * pl.broadcast_to(pl.load(layer, [0, 0], [8, 16]), [4, 8, 16])
        a, b, c = pl.valid_shape(u)
        pl.store(u * pl.cast(a + 10 * b + 100 * c, pl.f32), [0, 0, 0], more)


@pto.jit
def together(x: pl.Tensor, rows: pl.Tensor, line: pl.Tensor, out: pl.Tensor):
    """Layers as rows, in one line, and with other rows."""
    with pl.incore():
        t = pl.load(x, [0, 0, 0], [4, 8, 16]) * 2.0
        pl.store(pl.reshape(t, [4, 128]), [0, 0], rows)
        pl.store(pl.reshape(t, [512]), [0], line)
        pl.store(pl.reshape(t, [4, 16, 8]), [0, 0, 0], out)


@pto.jit
def halves(x: pl.Tensor, out: pl.Tensor, places: pl.Tensor):
    """16-bit floats are summed in f32; truth values over the first axis; places along rows."""
    with pl.incore():
        for b in pl.range(0, 8, 4, parallel=True):
            t = pl.load(x, [b, 0, 0], [4, 8, 16])
            pl.store(pl.where(pl.any(t > 1.5, axis=0), pl.sum(t, axis=0), 0.5), [b * 2, 0], out)
            pl.store(pl.argmax(t.to(pl.f32), axis=2, keepdims=True).to(pl.i32), [b, 0, 0], places)


@pto.jit
def products(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for b in pl.range(0, 8, 4, parallel=True):
            left, right = pl.load(x, [b, 0, 0], [4, 32, 16]), pl.load(y, [b, 0, 0], [4, 32, 16])
            pl.store(pl.dot(left, pl.transpose(right, (0, 2, 1))), [b, 0, 0], out)


@pto.jit
def heads(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """Attention of several heads at a time: cube and vector cores."""
    with pl.incore():
        for h in pl.range(0, 4, 2, parallel=True):
            scores = pl.load(q, [h, 0, 0], [2, 32, 16]) @ pl.transpose(pl.load(k, [h, 0, 0], [2, 48, 16]), (0, 2, 1))
            p = pl.exp(scores - pl.max(scores, axis=2, keepdims=True))
            o = p @ pl.load(v, [h, 0, 0], [2, 48, 16])
            pl.store(o / pl.sum(p, axis=2, keepdims=True), [h, 0, 0], out)


@pto.jit
def batches(x: pl.Tensor, out: pl.Tensor, total: pl.Tensor):
    """Layers of a tensor whose first extent is a run-time one: the launch finds that all tiles lie inside."""
    with pl.incore():
        for b in pl.range(0, x.shape[0], 4, parallel=True):
            pl.store(pl.exp(pl.load(x, [b, 0, 0], [4, 8, 16])), [b, 0, 0], out)
        for r in pl.range(0, 8, 4, parallel=True):
            pl.store(pl.sum(pl.load(x, [1, r, 0], [3, 4, 16]), axis=0), [r, 0], total)


def m(*shape: int | None, dtype: Any = pl.f32) -> Any:
    return pto.spec(shape, dtype)


X, H = m(8, 8, 16), m(8, 8, 16, dtype=pl.f16)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rows": (rows, (X, m(8, 16), X, m(8, 32), m(16, 16))),
    "shapes": (shapes, (X, m(8, 16, 16), m(64, 16))),
    "apart": (apart, (m(4, 128), m(512), m(8, 16), m(4, 8, 16), m(4, 8, 16))),
    "together": (together, (m(4, 8, 16), m(4, 128), m(512), m(4, 16, 8))),
    "halves": (halves, (H, m(16, 16, dtype=pl.f16), m(8, 8, 1, dtype=pl.i32))),
    "products": (products, (m(8, 32, 16), m(8, 32, 16), m(8, 32, 32))),
    "batches": (batches, (m(None, 8, 16), m(None, 8, 16), m(8, 16))),
    "heads": (heads, (m(4, 32, 16), m(4, 48, 16), m(4, 48, 16), m(4, 32, 16))),
}
INPUTS = {"rows": 2, "batches": 1, "shapes": 1, "apart": 3, "together": 1, "halves": 1, "products": 2, "heads": 3}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_tiles_of_three_axes(programs: Programs, name: str) -> None:
    fn, specs = CASES[name]
    random = np.random.default_rng(1)
    names = inspect.signature(fn.__pto_jit__).parameters
    given = {n: random.standard_normal([k or 8 for k in s.shape]).astype(s.dtype.numpy) for n, s in zip(names, specs, strict=True)}
    inputs = dict(list(given.items())[: INPUTS[name]])
    outputs = {n: np.zeros_like(v) for n, v in given.items() if n not in inputs}

    def close(a: np.ndarray, b: np.ndarray, **told: Any) -> None:
        np.testing.assert_allclose(a, b, rtol=2e-3 if a.dtype == np.float16 else 1e-4, atol=1e-4, **told)

    check_interpreted(programs, fn, name, inputs, outputs, close)


def test_products_with_softmax_between_are_for_both_kinds_of_cores() -> None:
    (kernel,) = kernels_of(written(*(CASES["heads"][0], *CASES["heads"][1])))
    assert kernel.partner is not None


def test_what_layers_cannot_do_is_refused() -> None:
    @pto.jit
    def turned(x: pl.Tensor, out: pl.Tensor) -> None:
        with pl.incore():
            for b in pl.range(0, 8, 4, parallel=True):
                pl.store(pl.transpose(pl.load(x, [b, 0, 0], [4, 8, 16]), (1, 0, 2)), [0, b, 0], out)

    with pytest.raises(pto.TargetError, match="`transpose` like this of a tile of 3 axes"):
        written(turned, X, m(8, 8, 16))


@needs_compiler
def test_a_place_that_is_read_from_memory_may_lie_outside(tmp_path: Path) -> None:
    """What is loaded from there is an error, what is stored there is left out."""

    @pto.jit
    def read(x: pl.Tensor, places: pl.Tensor, out: pl.Tensor) -> None:
        with pl.incore():
            for b in pl.range(0, 8, 4, parallel=True):
                pl.store(pl.load(x, [places[b], 0, 0], [4, 8, 16]) * 2.0, [b, 0, 0], out)

    @pto.jit
    def written_there(x: pl.Tensor, places: pl.Tensor, out: pl.Tensor) -> None:
        with pl.incore():
            for b in pl.range(0, 8, 4, parallel=True):
                pl.store(pl.load(x, [b, 0, 0], [4, 8, 16]) * 2.0, [places[b], 0, 0], out)

    specs = m(None, 8, 16), m(8, dtype=pl.i64), m(None, 8, 16)
    programs = ordered({fn.__name__: (fn, specs) for fn in (read, written_there)}, tmp_path)
    x = np.random.default_rng(0).standard_normal((9, 8, 16), np.float32)
    for fn in (read, written_there):
        inputs = {"x": x, "places": np.array([5, 0, 0, 0, 1, 0, 0, 0])}
        check_interpreted(programs, fn, fn.__name__, inputs, {"out": np.zeros((9, 8, 16), np.float32)})
    places, out = np.array([7, 0, 0, 0, 0, 0, 0, 0]), np.zeros((9, 8, 16), np.float32)
    with pytest.raises(RuntimeError, match="trap"):
        programs.run("read", x=x, places=places, out=out)
    programs.run("written_there", x=x[:8], places=places, out=out)
    np.testing.assert_array_equal(out, np.concatenate([x[4:8], np.zeros_like(x[:3]), x[:2]]) * 2)


def test_what_is_refused_of_three_axes_says_what_is_done() -> None:
    @pto.jit
    def products(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor) -> None:
        for _ in pl.range(1, parallel=True):
            out[:, :, :] = pl.tanh(pl.load(a) @ pl.load(b))

    with pytest.raises(pto.TargetError, match=r"along a run-time first axis .*\n.*(.*\n)*help: multiply two matrices"):
        written(products, *[m(None, 16, 16)] * 3)

    @pto.jit
    def planes(x: pl.Tensor, n: pl.Tensor, out: pl.Tensor) -> None:
        for _ in pl.range(1, parallel=True):
            pl.store(pl.gather(pl.load(x), pl.load(n), 0), [0, 0, 0], out)

    with pytest.raises(pto.TargetError, match=r"`gather` like this of a tile of 3 axes(.*\n)*help: take tiles of two axes"):
        written(planes, m(4, 16, 16), pto.spec((4, 16, 16), pl.i32), m(4, 16, 16))


@needs_compiler
@pytest.mark.parametrize(("count", "message"), [(6, "no tile lies beyond"), (2, "no tile lies beyond"), (0, "4 <= x_d0")])
def test_the_launch_finds_that_layers_lie_outside(programs: Programs, count: int, message: str) -> None:
    x, total = np.ones((count, 8, 16), np.float32), np.zeros((8, 16), np.float32)
    with pytest.raises(RuntimeError, match=message):
        programs.run("batches", x=x, out=np.zeros_like(x), total=total)

# SPDX-License-Identifier: MIT
"""Products that are the same in every iteration are computed once, before the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.lower.pipeline import passes_for

RNG = np.random.default_rng(0)
B, C = RNG.standard_normal((8, 32), np.float32), RNG.standard_normal((32, 8), np.float32)
X = RNG.standard_normal((40, 8), np.float32)

MatrixB, MatrixC = pl.Tensor[[8, 32], pl.f32], pl.Tensor[[32, 8], pl.f32]


def hoists(compiled: Any) -> list[tuple[str, ...]]:
    return [d.loops for d in compiled.decisions if d.kind == "hoist"]


def loops_around_products(compiled: Any, stage: str = "hoisted") -> list[int]:
    """How many loops stand around each product."""
    depth, found = 0, []
    for line in compiled.ir(stage).splitlines():
        depth += line.lstrip().startswith("FOR") - line.lstrip().startswith("ENDFOR")
        if "tdot" in line:
            found.append(depth)
    return found


@pto.jit
def mapped(blocks, b, c):
    return ft.map(lambda x: x @ (b @ c), blocks)


def test_a_product_in_the_body_of_a_map_is_computed_once() -> None:
    blocks = ft.from_flat(X.reshape(5, 8, 8))
    compiled = mapped.compile(blocks, B, C)
    assert len(hoists(compiled)) == 1
    assert loops_around_products(compiled) == [0, 1]
    np.testing.assert_allclose(mapped(blocks, B, C).leaves.reshape(40, 8), X @ (B @ C), rtol=1e-4, atol=1e-4)


def test_operands_that_do_not_fit_are_an_error_only_where_the_loop_has_an_iteration() -> None:
    blocks, short = ft.from_flat(X.reshape(5, 8, 8)), C[:7].copy()
    assert len(mapped(ft.from_flat(X[:0].reshape(0, 8, 8)), B, short)) == 0
    with pytest.raises(pto.LaunchError) as caught:
        mapped(blocks, B, short)
    assert "b @ c" in str(caught.value)


@pto.jit
def fresh(x, b: MatrixB, c: MatrixC):
    y = pl.zeros(x.shape, pl.f32)
    with pl.incore():
        for i in pl.range(x.shape[0] // 8):
            for _ in pl.range(3):
                y[8 * i : 8 * i + 8, :] += x[8 * i : 8 * i + 8, :] @ (b @ c)
    return y


@pto.jit
def given(x, b: MatrixB, c: MatrixC, y):
    with pl.incore():
        for i in pl.range(x.shape[0] // 8):
            for _ in pl.range(3):
                y[8 * i : 8 * i + 8, :] += x[8 * i : 8 * i + 8, :] @ (b @ c)


def test_operands_that_are_known_to_fit_leave_all_loops() -> None:
    compiled = fresh.compile(X, B, C)
    assert loops_around_products(compiled) == [0, 1]
    assert "IF" not in compiled.ir("hoisted")
    np.testing.assert_allclose(fresh(X, B, C), 3 * (X @ (B @ C)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_what_a_loop_may_write_is_read_in_every_iteration(target: str) -> None:
    """An argument that is written may be the memory of another one."""
    compiled = given.compile(X, B, C, np.zeros_like(X), target=target)
    assert not hoists(compiled)
    memory = np.concatenate([B.reshape(-1), np.zeros(64, np.float32)])
    b, y = memory[:256].reshape(8, 32), memory[:320].reshape(40, 8)
    want = memory.copy()
    want_b, want_y = want[:256].reshape(8, 32), want[:320].reshape(40, 8)
    for i in range(5):
        for _ in range(3):
            want_y[8 * i : 8 * i + 8] += X[8 * i : 8 * i + 8] @ (want_b @ C)
    compiled(X, b, C, y)
    np.testing.assert_allclose(memory, want, rtol=1e-2, atol=1e-2)


@pto.jit
def skipped(x, b: MatrixB, c: MatrixC):
    y = pl.zeros(x.shape, pl.f32)
    with pl.incore():
        for i in pl.range(x.shape[0] // 8):
            if i % 2 == 1:
                continue
            y[8 * i : 8 * i + 8, :] = x[8 * i : 8 * i + 8, :] @ (b @ c)
    return y


@pto.jit
def under_a_condition(x, b: MatrixB, c: MatrixC):
    y = pl.zeros(x.shape, pl.f32)
    with pl.incore():
        for i in pl.range(x.shape[0] // 8):
            if i % 2 == 0:
                y[8 * i : 8 * i + 8, :] = x[8 * i : 8 * i + 8, :] @ (b @ c)
    return y


@pto.jit
def carried(x, b: MatrixB, c: MatrixC):
    y = pl.zeros(x.shape, pl.f32)
    with pl.incore():
        w = pl.load(b, [0, 0], [8, 32])
        for i in pl.range(x.shape[0] // 8):
            y[8 * i : 8 * i + 8, :] = x[8 * i : 8 * i + 8, :] @ (w @ c)
            w = w * 0.5
    return y


def _every_second(x: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    y = x @ (b @ c)
    y.reshape(-1, 8, x.shape[1])[1::2] = 0
    return y


def _halved(x: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (x @ (b @ c)) * 0.5 ** np.repeat(np.arange(len(x) // 8), 8)[:, None].astype(np.float32)


@pytest.mark.parametrize(
    ("kernel", "reference"), [(skipped, _every_second), (under_a_condition, _every_second), (carried, _halved)]
)
def test_a_product_of_some_iterations_stays(kernel: Any, reference: Callable[..., np.ndarray]) -> None:
    assert not hoists(kernel.compile(X, B, C))
    np.testing.assert_allclose(kernel(X, B, C), reference(X, B, C), rtol=1e-4, atol=1e-4)


@pto.jit
def read_elsewhere(x, b: MatrixB, c: MatrixC):
    y = pl.zeros(x.shape, pl.f32)
    with pl.incore():
        for i in pl.range(x.shape[0] // 8):
            left = b * 2.0
            y[8 * i : 8 * i + 8, :] = x[8 * i : 8 * i + 8, :] @ (left @ c) + left[:, 0:8]
    return y


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_what_has_other_readers_in_the_loop_is_there_for_them(target: str) -> None:
    compiled = read_elsewhere.compile(X, B, C, target=target)
    assert hoists(compiled)
    want = (X @ (2 * B @ C)).reshape(5, 8, 8) + 2 * B[:, :8]
    np.testing.assert_allclose(compiled(X, B, C), want.reshape(40, 8), rtol=1e-4, atol=1e-4)


@pto.jit
def by_tiles(x: pl.Tensor[[None, 16], pl.f32], b: pl.Tensor[[16, 32], pl.f32], c: pl.Tensor[[32, 16], pl.f32]):
    y = pl.zeros(x.shape, pl.f32)
    with pl.incore():
        for i in pl.range(0, x.shape[0], 16, parallel=True):
            w = pl.load(b, [0, 0], [16, 32]) @ pl.load(c, [0, 0], [32, 16])
            pl.store(pl.load(x, [i, 0], [16, 16]) @ w, [i, 0], y)
    return y


def test_loops_of_device_kernels_are_left_as_they_are() -> None:
    x, b, c = (RNG.standard_normal(s, np.float32) for s in ((40, 16), (16, 32), (32, 16)))
    assert hoists(by_tiles.compile(x, b, c))
    np.testing.assert_allclose(by_tiles(x, b, c), x @ (b @ c), rtol=1e-4, atol=1e-4)
    assert not hoists(by_tiles.compile(x, b, c, target="cuda"))
    for target in ("cuda", "ascend"):
        assert "hoisted" not in [name for name, _ in passes_for(target)]

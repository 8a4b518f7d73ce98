# SPDX-License-Identifier: MIT
"""Rows, planes and elements that are not there: the launch tells, or the core stops."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered


@pto.jit
def row(x: pl.Tensor, out: pl.Tensor, n: int):
    for k in pl.range(1, parallel=True):
        pl.store(pl.load(x[n]) + 1, [k], out)


@pto.jit
def third_row(x: pl.Tensor, out: pl.Tensor, n: int):
    with pl.incore():
        pl.store(pl.load(x[2]) + n, [0], out)


@pto.jit
def row_of_a_load(x: pl.Tensor, out: pl.Tensor, n: int):
    """Which is a view of the row."""
    for k in pl.range(1, parallel=True):
        pl.store(pl.load(x, [n, 0], [1, 8])[0, :], [k], out)


@pto.jit
def column_of_a_load(x: pl.Tensor, out: pl.Tensor, n: int):
    for k in pl.range(1, parallel=True):
        pl.store(pl.load(x, [0, n], [8, 1])[:, 0], [k], out)


@pto.jit
def row_of_the_host(x: pl.Tensor, out: pl.Tensor, n: int):
    out[...] = x[n] + 1


@pto.jit
def rows_of_the_host(x: pl.Tensor, out: pl.Tensor, n: int):
    """Rows that are taken from a place on, which may be none, but not from before the first one."""
    t = x[n : n + 2]
    out[0 : t.shape[1]] = pl.sum(t, axis=0)


@pto.jit
def element(x: pl.Tensor, out: pl.Tensor, n: int):
    for k in pl.range(1, parallel=True):
        t = pl.load(x, [0, 0], [8, 8])
        out[k] = t[n, 0] * pl.max(t)


@pto.jit
def third_element(x: pl.Tensor, out: pl.Tensor, n: int):
    for k in pl.range(1, parallel=True):
        t = pl.load(x, [0, 0], [8, 8])
        out[k] = t[2, 0] * pl.max(t) + n


KERNELS = [row, third_row, row_of_a_load, column_of_a_load, row_of_the_host, element, third_element]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    kinds = (pto.spec((None, None), pl.f32), pto.spec((None,), pl.f32), 2)
    return ordered({fn.__name__: (fn, kinds) for fn in (*KERNELS, rows_of_the_host)}, tmp_path_factory.mktemp("outside"))


@needs_compiler
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_what_is_not_there_is_an_error(programs: Programs, kernel: Any) -> None:
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    for size, at in ((3, 2), (3, 0), (2, 2), (3, 3), (3, 100)):
        fixed = kernel in (third_row, third_element)
        given = x[:size] if kernel is not column_of_a_load else np.ascontiguousarray(x[:, :size])
        out, wanted = np.full(8, 7, np.float32), np.full(8, 7, np.float32)
        if (2 if fixed else at) < size:
            kernel.interpret(given, wanted, at)
            programs.run(kernel.__name__, x=given, out=out, n=at)
            np.testing.assert_array_equal(out, wanted)
        else:
            with pytest.raises(RuntimeError, match=r"^trap$|rows and planes that are taken are there|begins outside of its axis 0"):
                programs.run(kernel.__name__, x=given, out=out, n=at)


@needs_compiler
@pytest.mark.parametrize("kernel", [row, row_of_the_host, rows_of_the_host, element], ids=lambda k: k.__name__)
def test_places_before_the_first_one_are_errors(programs: Programs, kernel: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^trap$|a view of `x` begins outside of its axis 0"):
        programs.run(kernel.__name__, x=np.ones((4, 8), np.float32), out=np.ones(8, np.float32), n=-1)


@pto.jit
def grouped_queries(q: pl.Tensor, k: pl.Tensor, out: pl.Tensor, n: int):
    """Heads of queries that share keys, on both kinds of cores: the launch knows the last head."""
    for h in pl.range(q.shape[0], parallel=True):
        with pl.incore():
            g = (h * 2 + n) // 4
            a = pl.load(q, [h, 0, 0], [1, 16, 64])[0, :, :]
            b = pl.load(k, [g, 0, 0], [1, 16, 64])[0, :, :]
            pl.store(pl.exp(a @ b.T) @ b, [h * 16, 0], out)


@pto.jit
def turning_heads(q: pl.Tensor, k: pl.Tensor, out: pl.Tensor, n: int):
    """Where only the core knows."""
    for h in pl.range(q.shape[0], parallel=True):
        with pl.incore():
            g = (h * 3) % n
            a = pl.load(q, [h, 0, 0], [1, 16, 64])[0, :, :]
            b = pl.load(k, [g, 0, 0], [1, 16, 64])[0, :, :]
            pl.store(pl.exp(a @ b.T) @ b, [h * 16, 0], out)


@needs_compiler
@pytest.mark.parametrize(("fn", "fits", "fails"), [(grouped_queries, (0, 1), (2, 100)), (turning_heads, (1, 2), (4, 5))])
def test_planes_beside_products(fn: Any, fits: tuple[int, ...], fails: tuple[int, ...], tmp_path: Path) -> None:
    planes = pto.spec((None, 16, 64), pl.f32)
    programs = ordered({"heads": (fn, (planes, planes, pto.spec((None, 64), pl.f32), 3))}, tmp_path)
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((count, 16, 64)).astype(np.float32) * 0.1 for count in (4, 2))
    for n in fits:
        out, wanted = np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32)
        fn.interpret(q, k, wanted, n)
        programs.run("heads", q=q, k=k, out=out, n=n)
        np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
    for n in fails:
        with pytest.raises(RuntimeError, match=r"^trap$|no tile lies beyond the end of a leading axis"):
            programs.run("heads", q=q, k=k, out=np.zeros((64, 64), np.float32), n=n)


@pto.jit
def one_grid(q: pl.Tensor, k: pl.Tensor, out: pl.Tensor):
    """Batches and heads as one number; what lies behind the last batch of the results is not stored."""
    heads = q.shape[1]
    for pid in pl.range(q.shape[0] * heads, parallel=True):
        b, h = pid // heads, pid % heads
        with pl.incore():
            t = pl.load(q, [b, h, 0, 0], [1, 1, 16, 64])[0, 0, :, :]
            u = pl.load(k, [b, 0, 0, 0], [1, 1, 16, 64])[0, 0, :, :]
            pl.store(pl.reshape(pl.exp(t @ u.T) @ u, [1, 1, 16, 64]), [b, h, 0, 0], out)


@needs_compiler
@pytest.mark.parametrize("batches", [3, 2])
def test_results_of_one_grid(tmp_path: Path, batches: int) -> None:
    planes = pto.spec((None, None, 16, 64), pl.f32)
    programs = ordered({"one_grid": (one_grid, (planes,) * 3)}, tmp_path)
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((3, heads, 16, 64)).astype(np.float32) * 0.1 for heads in (2, 1))
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    out = np.zeros((batches, 2, 16, 64), np.float32)
    check_interpreted(programs, one_grid, "one_grid", {"q": q, "k": k}, {"out": out}, close)

# SPDX-License-Identifier: MIT
"""Operands of products that loops and branches assign: programs run on the CPU, against the interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.ascend.form import CrossSet, CrossWait

from .harness import Programs, check_interpreted, kernels_of, needs_compiler, ordered, races, without_one, written

WIDE = pto.spec((None, 64), pl.f32)


@pto.jit
def retention(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """Chunks of 16 rows, a head for each 16 columns; the state is read before it is changed."""
    for h in pl.range(0, 64, 16, parallel=True):
        with pl.incore():
            state = pl.zeros([16, 16], pl.f32)
            for i in pl.range(0, q.shape[0], 16):
                qt, kt, vt = pl.load(q, [i, h], [16, 16]), pl.load(k, [i, h], [16, 16]), pl.load(v, [i, h], [16, 16])
                pl.store(qt @ state + ((qt @ kt.T) * 0.1) @ vt, [i, h], out)
                state = state * 0.9 + kt.T @ vt


@pto.jit
def linear(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """The state is read after it was changed."""
    for _ in pl.range(1, parallel=True):
        with pl.incore():
            state = pl.zeros([64, 64], pl.f32)
            for i in pl.range(0, q.shape[0], 16):
                state = state * 0.9 + pl.load(k, [i, 0], [16, 64]).T @ pl.load(v, [i, 0], [16, 64])
                pl.store(pl.load(q, [i, 0], [16, 64]) @ state, [i, 0], out)


@pto.jit
def both_ways(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """The state as it is, and transposed."""
    for _ in pl.range(1, parallel=True):
        with pl.incore():
            state = pl.zeros([64, 64], pl.f32)
            for i in pl.range(0, q.shape[0], 16):
                qt = pl.load(q, [i, 0], [16, 64])
                pl.store(qt @ state + qt @ state.T, [i, 0], out)
                state = state * 0.9 + pl.load(k, [i, 0], [16, 64]).T @ pl.load(v, [i, 0], [16, 64])


@pto.jit
def again(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """A product that is an operand in the next iteration."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            x = pl.load(q, [i, 0], [16, 64])
            for _ in pl.range(3):
                x = x @ pl.load(k, [0, 0], [64, 64])
                x = x / (1.0 + pl.max(pl.abs(x), axis=1, keepdims=True))
            pl.store(x, [i, 0], out)


@pto.jit
def powers(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """Nothing but products."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            x = pl.load(q, [i, 0], [16, 64])
            for _ in pl.range(3):
                x = x @ pl.load(k, [0, 0], [64, 64])
            pl.store(x * 0.001, [i, 0], out)


@pto.jit
def ahead(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """The operand of the next iteration is loaded in this one."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            acc = pl.zeros([16, 64], pl.f32)
            a = pl.load(q, [i, 0], [16, 16])
            for j in pl.range(0, 48, 16):
                acc = pl.dot(a, pl.load(k, [j, 0], [16, 64]), acc)
                a = pl.load(q, [i, j + 16], [16, 16])
            pl.store(acc, [i, 0], out)


@pto.jit
def sides(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """Loaded on both sides of a branch, and changed on one side of another."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            if i > 16:
                a = pl.load(q, [i, 0], [16, 64])
            else:
                a = pl.load(v, [i, 0], [16, 64])
            if i > 32:
                a = pl.relu(a)
            pl.store(a @ pl.load(k, [0, 0], [64, 64]), [i, 0], out)


@pto.jit
def turned(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """Computed, transposed, multiplied, and worked with."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            t = pl.floor(pl.load(q, [i, 0], [16, 16])).T
            s = pl.load(k, [0, 16], [16, 16]).T
            pl.store(t @ pl.load(k, [0, 0], [16, 16]), [i, 0], out)
            pl.store(-t, [i, 16], out)
            pl.store(pl.load(v, [i, 0], [16, 16]) @ s, [i, 32], out)
            pl.store(s * 2.0, [i, 48], out)


@pto.jit
def chained(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """Products of products, as they are and transposed."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            t = pl.load(q, [i, 0], [16, 64]) @ pl.load(k, [0, 0], [64, 64])
            pl.store(((t @ t.T) @ t) * 1e-4, [i, 0], out)


@pto.jit
def passed_on(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """A product of a product, and nothing else."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            t = pl.load(q, [i, 0], [16, 16]) @ pl.load(k, [0, 0], [16, 64])
            pl.store(t @ pl.load(k, [0, 0], [64, 64]), [i, 0], out)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    f.__name__: (f, (WIDE,) * 4)
    for f in (retention, linear, both_ways, again, powers, ahead, sides, turned, chained, passed_on)
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("carried"))


@needs_compiler
@pytest.mark.parametrize("rows", [64, 16, 128])
@pytest.mark.parametrize("name", CASES)
def test_operands_are_those_of_the_iteration(programs: Programs, name: str, rows: int) -> None:
    q, k, v = (np.random.default_rng(n).standard_normal((max(rows, 64), 64)).astype(np.float32) for n in range(3))
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    fn = CASES[name][0]
    inputs = {"q": q[:rows], "k": k[: rows if fn in (retention, linear, both_ways) else 64], "v": v[:rows]}
    check_interpreted(programs, fn, name, inputs, {"out": np.full((rows, 64), 7.0, np.float32)}, close)


@pytest.mark.parametrize("name", ["linear", "again", "retention"])
def test_each_flag_between_cores_is_needed(name: str) -> None:
    (kernel,) = kernels_of(written(*CASES[name][:1], *CASES[name][1]))
    assert kernel.partner is not None
    for side in (kernel, kernel.partner):
        for what in without_one(side, (CrossSet, CrossWait)):
            assert races(kernel, first=True), what
    assert races(kernel) == []

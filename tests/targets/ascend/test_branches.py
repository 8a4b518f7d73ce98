# SPDX-License-Identifier: MIT
"""Products in branches that numbers of memory decide, and sums of them: programs run on the CPU, against the interpreter."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import matrix
from pto_jit.errors import TargetError

from .harness import Programs, blocks, check_interpreted, kernels_of, mutants, needs_compiler, ordered, races, written

WIDE = pto.spec((None, 64), pl.f32)
MASK = pto.spec((None, None), pl.i32)


@pto.jit
def sparse(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, mask: pl.Tensor, out: pl.Tensor):
    """Attention on the blocks of a mask, with a running softmax."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            qt = pl.load(q, [i, 0], [16, 64])
            best, total = pl.full([16, 1], -3e38, pl.f32), pl.full([16, 1], 1e-9, pl.f32)
            acc = pl.zeros([16, 64], pl.f32)
            for j in pl.range(0, k.shape[0], 16):
                if mask[i // 16, j // 16] > 0:
                    s = qt @ pl.load(k, [j, 0], [16, 64]).T
                    m = pl.maximum(best, pl.max(s, axis=1, keepdims=True))
                    p, shrink = pl.exp(s - m), pl.exp(best - m)
                    total = total * shrink + pl.sum(p, axis=1, keepdims=True)
                    acc = acc * shrink + p @ pl.load(v, [j, 0], [16, 64])
                    best = m
            pl.store(acc / total, [i, 0], out)


@pto.jit
def skipped(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, mask: pl.Tensor, out: pl.Tensor):
    """The same with `continue`."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            qt = pl.load(q, [i, 0], [16, 64])
            total, acc = pl.full([16, 1], 1e-9, pl.f32), pl.zeros([16, 64], pl.f32)
            for j in pl.range(0, k.shape[0], 16):
                if mask[i // 16, j // 16] <= 0:
                    continue
                p = pl.exp((qt @ pl.load(k, [j, 0], [16, 64]).T) * 0.1)
                total = total + pl.sum(p, axis=1, keepdims=True)
                acc = acc + p @ pl.load(v, [j, 0], [16, 64])
            pl.store(acc / total, [i, 0], out)


@pto.jit
def chosen(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, mask: pl.Tensor, out: pl.Tensor):
    """Experts: one of two products, and work on it behind the branch."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            if mask[i // 16, 0] > 0:
                t = pl.load(q, [i, 0], [16, 64]) @ pl.load(k, [0, 0], [64, 64])
            else:
                t = pl.load(q, [i, 0], [16, 64]) @ pl.load(v, [0, 0], [64, 64])
            pl.store(pl.exp(t * 0.1), [i, 0], out)


@pto.jit
def computed(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, mask: pl.Tensor, out: pl.Tensor):
    """An operand that is computed on one side of the branch; no product on the other."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            t = pl.load(v, [i, 0], [16, 64])
            if mask[i // 16, 0] > 0:
                pl.store(pl.exp(t * 0.1) @ pl.load(k, [0, 0], [64, 64]) + 1.0, [i, 0], out)
            else:
                pl.store(t, [i, 0], out)


@pto.jit
def placed(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, mask: pl.Tensor, out: pl.Tensor):
    """A place of an operand that a branch without products assigns."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            r = 0
            if mask[i // 16, 0] > 0:
                r = 16
            pl.store(pl.exp((pl.load(q, [r, 0], [16, 64]) @ pl.load(k, [0, 0], [64, 64])) * 0.1), [i, 0], out)


@pto.jit
def partial_sum(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, mask: pl.Tensor, out: pl.Tensor):
    """A sum of the products that a mask takes, maybe of none, on the cube core alone."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            acc = pl.zeros([16, 32], pl.f32)
            for j in pl.range(0, 64, 16):
                if mask[i // 16, j // 16] > 0:
                    acc = pl.dot(pl.load(q, [i, j], [16, 16]), pl.load(k, [j, 0], [16, 32]), acc)
            pl.store(acc, [i, 0], out)


@pto.jit
def one_of_two(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, mask: pl.Tensor, out: pl.Tensor):
    """On the cube core alone."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            if mask[i // 16, 0] > 0:
                t = pl.load(q, [i, 0], [16, 64]) @ pl.load(k, [0, 0], [64, 64])
            else:
                t = pl.load(q, [i, 0], [16, 64]) @ pl.load(v, [0, 0], [64, 64])
            pl.store(t, [i, 0], out)


@pto.jit
def triangular(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, mask: pl.Tensor, out: pl.Tensor):
    """The first block has no products."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            acc = pl.zeros([16, 64], pl.f32)
            for j in pl.range(0, i, 16):
                acc = pl.dot(pl.load(q, [i, j], [16, 16]), pl.load(k, [j, 0], [16, 64]), acc)
            pl.store(acc, [i, 0], out)


@pto.jit
def parts(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, mask: pl.Tensor, out: pl.Tensor):
    """What a sum was after half of the products, and one product before another was added."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            acc = pl.zeros([16, 16], pl.f32)
            for j in pl.range(0, 32, 16):
                acc = pl.dot(pl.load(q, [i, j], [16, 16]), pl.load(k, [j, 0], [16, 16]), acc)
            half = acc
            for j in pl.range(32, 64, 16):
                acc = pl.dot(pl.load(q, [i, j], [16, 16]), pl.load(k, [j, 0], [16, 16]), acc)
            one = pl.load(q, [i, 0], [16, 16]) @ pl.load(v, [0, 0], [16, 16])
            two = pl.dot(pl.load(q, [i, 16], [16, 16]), pl.load(v, [16, 0], [16, 16]), one)
            pl.store(half, [i, 0], out)
            pl.store(acc, [i, 16], out)
            pl.store(one, [i, 32], out)
            pl.store(two, [i, 48], out)


ARGUMENTS = WIDE, WIDE, WIDE, MASK, WIDE
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    f.__name__: (f, ARGUMENTS)
    for f in (sparse, skipped, chosen, computed, placed, partial_sum, one_of_two, triangular, parts)
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("branches"))


def check(programs: Programs, name: str, mask: Any) -> None:
    q, k, v = (np.random.default_rng(n).standard_normal((64, 64)).astype(np.float32) for n in range(3))
    inputs = {"q": q, "k": k, "v": v, "mask": np.array(mask, np.int32)}
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-5)
    check_interpreted(programs, CASES[name][0], name, inputs, {"out": np.full_like(q, 7.0)}, close)


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_both_kinds_of_cores_take_the_same_side(programs: Programs, name: str) -> None:
    check(programs, name, np.tri(4))
    check(programs, name, [[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 1, 1], [0, 0, 0, 1]])
    check(programs, name, np.zeros((4, 4)))


@pytest.mark.parametrize("name", ["computed", "chosen"])
def test_each_flag_is_needed(name: str) -> None:
    (kernel,) = kernels_of(written(*CASES[name][:1], *ARGUMENTS))
    assert races(kernel) == []
    for what in mutants(kernel):
        assert races(kernel, first=True), what


@needs_compiler
def test_a_sum_over_nothing_is_an_error_of_the_launch(tmp_path: Path) -> None:
    """Which knows of it: a product of matrices without inner extent. Of one without elements nothing is computed."""
    flat = pto.spec((None, None), pl.f32)
    programs = ordered({"matmul": (matrix.matmul, (flat,) * 3)}, tmp_path)
    out = np.zeros((16, 8), np.float32)
    with pytest.raises(RuntimeError, match=r"no sum of products is without products: .* <= \(0 < a_d1\)"):
        programs.run("matmul", a=np.ones((16, 0), np.float32), b=np.ones((0, 8), np.float32), c=out)
    programs.run("matmul", a=np.ones((0, 0), np.float32), b=np.ones((0, 8), np.float32), c=out[:0])
    programs.run("matmul", a=np.ones((16, 4), np.float32), b=np.ones((4, 8), np.float32), c=out)
    np.testing.assert_array_equal(out, 4)


def test_loops_that_run_need_no_zeros() -> None:
    @pto.jit
    def banded(q, k, n, out):
        for i in pl.range(0, q.shape[0], 16, parallel=True):
            with pl.incore():
                acc = pl.zeros([16, 64], pl.f32)
                for j in pl.range(i, pl.minimum(i + 64, q.shape[0]), 16):
                    acc = pl.dot(pl.load(q, [i, j], [16, 16]), pl.load(k, [j, 0], [16, 64]), acc)
                pl.store(acc, [i, 0], out)

    (kernel,) = kernels_of(written(banded, WIDE, WIDE, 3, WIDE))
    assert not any(getattr(n, "name", "") == "TEXPANDS_L1" for block in blocks(kernel.body) for n in block)


def test_a_place_that_a_tile_decides_is_refused() -> None:
    @pto.jit
    def largest(q, k, out):
        for i in pl.range(0, q.shape[0], 16, parallel=True):
            with pl.incore():
                r = 0
                if pl.max(pl.load(q, [i, 0], [16, 64])) > 1.0:
                    r = 16
                pl.store(pl.exp(pl.load(q, [r, 0], [16, 64]) @ pl.load(k, [0, 0], [64, 64])), [i, 0], out)

    with pytest.raises(TargetError, match="lies where `r` says, which is made of tiles"):
        written(largest, *(pto.spec((64, 64), pl.f32),) * 3)


def test_a_branch_that_a_tile_decides_and_that_stores_in_a_loop_is_refused() -> None:
    @pto.jit
    def decided(q, k, out):
        for i in pl.range(0, q.shape[0], 16, parallel=True):
            with pl.incore():
                t = pl.load(q, [i, 0], [16, 64])
                if pl.max(t) > 1.0:
                    for j in pl.range(0, 64, 16):
                        pl.store(pl.exp(t) @ pl.load(k, [0, j], [64, 16]), [i, j], out)

    with pytest.raises(TargetError, match="in a branch that depends on a tile"):
        written(decided, WIDE, WIDE, WIDE)

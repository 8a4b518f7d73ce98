# SPDX-License-Identifier: MIT
"""Products in branches that tiles decide, which are taken before: run on the CPU, against the interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered

WIDE = pto.spec((None, 64), pl.f32)


@pto.jit
def added(q, k, v, out):
    """A block of keys is left out where all scores are low; what is added in the branch is made of scores."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            a = pl.load(q, [i, 0], [16, 64])
            acc = pl.zeros([16, 64], pl.f32)
            for j in pl.range(0, k.shape[0], 32):
                s = a @ pl.load(k, [j, 0], [32, 64]).T
                if pl.max(s) > 18.0:
                    p = pl.exp(s - 20.0)
                    acc = pl.dot(p, pl.load(v, [j, 0], [32, 64]), acc)
            pl.store(acc, [i, 0], out)


@pto.jit
def one_or_the_other(q, k, v, out):
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            a = pl.load(q, [i, 0], [16, 64])
            if pl.sum(a) > 0.0:
                t = a @ pl.load(k, [0, 0], [64, 64])
                u = t * 2.0
            else:
                t = pl.exp(a) @ pl.load(v, [0, 0], [64, 64])
                u = t + a
            pl.store(u - t, [i, 0], out)


@pto.jit
def again(q, k, v, out):
    """Products in a loop, and one inside of the other branch, that are stored there, too."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            a = pl.load(q, [i, 0], [16, 64])
            if pl.max(a) > 2.0:
                for _ in pl.range(0, 3):
                    a = pl.tanh(a @ pl.load(k, [0, 0], [64, 64]))
                if pl.min(a) < -0.99:
                    a = a - pl.exp(a) @ pl.load(v, [0, 0], [64, 64])
                pl.store(a, [i, 0], out)
            else:
                pl.store(a, [i, 0], out)


@pto.jit
def chosen_inside(q, k, v, out):
    """A loop with a variable of its own that both sides of a branch assign."""
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        with pl.incore():
            a = pl.load(q, [i, 0], [16, 64])
            b = a * 1.0
            if pl.max(a) > 2.0:
                for j in pl.range(0, 4):
                    if j % 2 == 0:
                        t = pl.load(k, [0, 0], [64, 64])
                    else:
                        t = pl.load(v, [0, 0], [64, 64])
                    b = b + a @ t
            pl.store(b, [i, 0], out)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    f.__name__: (f, (WIDE,) * 4) for f in (added, one_or_the_other, again, chosen_inside)
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("foreseen"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [64, 41])
def test_products_in_branches_that_tiles_decide(programs: Programs, name: str, rows: int) -> None:
    q, k, v = (np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)[:64] for n in (rows, 65, 66))
    q[16:32] *= 0.1
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    check_interpreted(programs, CASES[name][0], name, {"q": q, "k": k, "v": v}, {"out": np.full_like(q, 7.0)}, close)

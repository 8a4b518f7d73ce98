# SPDX-License-Identifier: MIT
"""Tiles that are assigned in the branches of an `if`, and copied behind it, are computed where they are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

X = np.random.default_rng(0).standard_normal((16, 64), np.float32)


@pto.jit(cache=False)
def both(x: pl.Tensor, y: pl.Tensor, n: int):
    """What a loop carries starts as what the branches gave."""
    with pl.incore():
        t = pl.load(x, [0, 0], [16, 64])
        if n > 1:
            acc = t * 2.0
        else:
            acc = t + 1.0
        for _ in pl.range(n):
            acc = acc * 0.5 + 1.0
        pl.store(acc, [0, 0], y)


@pto.jit(cache=False)
def of_itself(x: pl.Tensor, y: pl.Tensor, n: int):
    """Each branch computes the new value from the old one."""
    with pl.incore():
        acc = pl.load(x, [0, 0], [16, 64])
        for j in pl.range(n):
            if j > 1:
                acc = acc * 2.0 + pl.max(acc, axis=1, keepdims=True)
            else:
                acc = acc - 1.0
        pl.store(acc, [0, 0], y)


@pto.jit(cache=False)
def one_branch(x: pl.Tensor, y: pl.Tensor, n: int):
    with pl.incore():
        acc = pl.load(x, [0, 0], [16, 64])
        for j in pl.range(n):
            if j > 1:
                acc = acc * 2.0
        pl.store(acc, [0, 0], y)


@pto.jit(cache=False)
def read_afterwards(x: pl.Tensor, y: pl.Tensor, n: int):
    """The old value is needed behind the branches."""
    with pl.incore():
        acc = pl.load(x, [0, 0], [16, 64])
        for j in pl.range(n):
            if j > 1:
                new = acc * 2.0
            else:
                new = acc - 1.0
            pl.store(acc, [0, 0], x)
            acc = new
        pl.store(acc, [0, 0], y)


@pto.jit(cache=False)
def left(x: pl.Tensor, y: pl.Tensor, n: int):
    """The loop is left with the old value after the new one was computed."""
    with pl.incore():
        acc = pl.load(x, [0, 0], [16, 64])
        for j in pl.range(x.shape[0]):
            if j > 1:
                new = acc * 2.0
            else:
                new = acc - 1.0
            if j >= n:
                break
            acc = new
        pl.store(acc, [0, 0], y)


@pto.jit(cache=False)
def swapped(x: pl.Tensor, y: pl.Tensor, n: int):
    """Two variables that take each other's value."""
    with pl.incore():
        a = pl.load(x, [0, 0], [16, 64]) * 1.0
        b = a + 1.0
        for j in pl.range(n):
            if j > 0:
                a, b = b * 2.0, a + 3.0
            else:
                a, b = b - 1.0, a
        pl.store(a - b, [0, 0], y)


@pto.jit(cache=False)
def handed_on(x: pl.Tensor, y: pl.Tensor, n: int):
    """Two loops that each hand on what an inner loop leaves; the first iteration is compiled apart from the second."""
    with pl.incore():
        first = pl.load(x, [0, 0], [8, 8])
        acc = first + n
        for phase in pl.range(2):
            for j in pl.range(2):
                for i in pl.range(3):
                    acc = pl.load(x, [0, 8 * i], [8, 8])
                    pl.store(acc * 0.25, [8 * j, 0], y)
            if phase == 1:
                continue
            pl.store(first, [8, 8], y)
        pl.store(acc @ acc, [0, 16], y)


KERNELS = [(both, 0), (of_itself, 0), (one_branch, 1), (read_afterwards, 1), (left, 1), (swapped, 3), (handed_on, 2)]
"""With the number of copies that stay: from an old value that is needed, or to have one."""


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("kernel", [k for k, _ in KERNELS], ids=lambda k: k.__name__)
def test_branches_compute_what_they_are_to(kernel: Any, n: int) -> None:
    expected, given = (X.copy(), np.zeros_like(X), n), (X.copy(), np.zeros_like(X), n)
    kernel.interpret(*expected)
    kernel(*given)
    np.testing.assert_allclose(given[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(given[1], expected[1], rtol=1e-6, atol=1e-6)  # products are sums in any order


@pytest.mark.parametrize(("kernel", "copies"), KERNELS, ids=[k.__name__ for k, _ in KERNELS])
def test_copies_that_are_left(kernel: Any, copies: int) -> None:
    text = kernel.compile(X, np.zeros_like(X), 3).ir("coalesced")
    assert text.count("tcopy") == copies


def test_products_round_their_results() -> None:
    """A cast back to the 16 bits of the operands is the product's; of other dtypes, or read elsewhere, it is a cast."""

    @pto.jit(cache=False)
    def stored(a, b, c):
        c[...] = a @ b

    @pto.jit(cache=False)
    def read_twice(a, b, c):
        t = a @ b
        c[...] = (t * 2).to(pl.bf16) + t.to(pl.bf16)

    @pto.jit(cache=False)
    def added(a, b, c):
        t = pl.zeros([32, 32], pl.f32)
        for k in pl.range(4):
            t = pl.dot(pl.load(a, [0, 8 * k], [32, 8]), pl.load(b, [8 * k, 0], [8, 32]), t)
        pl.store(t.to(c.dtype), [0, 0], c)

    def operations(kernel: Any, a: str, c: str, **options: Any) -> tuple[int, int]:
        """How many casts there are, and products that round."""
        of_a, of_c = (pto.spec((32, 32), getattr(pl, dtype)) for dtype in (a, c))
        lines = kernel.compile(of_a, of_a, of_c, **options).ir("coalesced").splitlines()
        return sum("tcast" in line for line in lines), sum("tdot" in line and "{dtype=" in line for line in lines)

    assert operations(stored, "bf16", "bf16") == (0, 1)
    assert operations(stored, "f16", "f16") == (0, 1)
    assert operations(stored, "f32", "bf16") == (1, 0)
    assert operations(stored, "bf16", "f16") == (1, 0)
    assert operations(stored, "bf16", "bf16", target="c") == (1, 0)
    assert operations(read_twice, "bf16", "bf16") == (2, 0)
    assert operations(added, "bf16", "bf16") == (1, 0)

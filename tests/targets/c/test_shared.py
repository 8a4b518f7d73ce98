# SPDX-License-Identifier: MIT
"""Groups of operations that occur more than once: planned once, written once, and still each with its own operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import NOWHERE
from pto_jit.ir.nodes import Fuse
from pto_jit.ir.walk import statements
from pto_jit.slotted import replace
from pto_jit.targets.loops.alike import repeated_groups
from pto_jit.targets.loops.form import Compute, Fold, Segment, Step
from pto_jit.targets.loops.plan import plan

from .harness import Batch, close, needs_compiler


@pto.jit
def scaled(x: pl.Tensor, y: pl.Tensor, n: int):
    """Sums that differ in a float, in a number of the call, and in where their tiles lie; in a parallel loop."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16, parallel=True):
            a = pl.load(x, [r, 0], [16, 32])
            b = pl.load(x, [r, 32], [16, 32])
            c = pl.zeros([16, 32], pl.f32)
            for k in (1, 2, 7):
                if n > k:
                    a = a * float(k) + b  # in place
            for k in (3, 4, 9):
                if n > k:
                    c = a * 0.5 + b
                else:
                    c = c * pl.cast(n, pl.f32) + a
            pl.store(c, [r, 0], y)
            pl.store(a - c, [r, 32], y)


@pto.jit
def short(x: pl.Tensor, k: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    """Too short to be worth a call: planned once, written each time.  An integer is an offset, and an operand."""
    with pl.incore():
        for s, row in ((1.5, 1), (2.5, 2), (3.5, 0)):
            pl.store(pl.load(x, [row, 0], [1, 8]) * s + 1.5, [row, 0], y)
        for row in range(1, 4):
            pl.store((pl.load(k, [row, 0], [1, 8]) + 1) // 3, [row, 0], z)


@pto.jit
def rows_of_softmax(x: pl.Tensor, y: pl.Tensor):
    """Rows in scratch memory, and an extent that only the tensor knows."""
    with pl.incore():
        for column in (0, 100, 200):
            t = pl.load(x, [0, column], [8, 100])
            e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
            pl.store(e / pl.sum(e, axis=1, keepdims=True), [0, column], y)


@pto.jit
def generated(y: pl.Tensor, z: pl.Tensor, n: int):
    """Tiles without operands, sums over columns, places of extremes."""
    with pl.incore():
        for k in (0, 1, 2):
            if n > k:
                t = pl.rand(7, 0, [16, 32]) * float(k + 1) + pl.cast(pl.arange(0, 32), pl.f32) * 0.25
                pl.store(t, [16 * k, 0], y)
                pl.store(pl.sum(t, axis=0, keepdims=True), [2 * k, 0], z)
                pl.store(pl.cast(pl.argmax(-t, axis=1, keepdims=True), pl.f32), [0, 40 + k], z)


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


PROGRAMS: list[tuple[Any, Callable[[], tuple[Any, ...]], list[int]]] = [
    (scaled, lambda: (_floats(48, 64), np.zeros((48, 64), np.float32), 5), [1, 1, 2, 3, 5]),
    (short, lambda: (_floats(3, 8), np.arange(32, dtype=np.int32).reshape(4, 8), np.zeros((3, 8), np.float32),
                     np.zeros((4, 8), np.int32)), []),
    (rows_of_softmax, lambda: (_floats(6, 260), np.zeros((6, 260), np.float32)), [3]),
    (generated, lambda: (np.zeros((48, 32), np.float32), np.zeros((48, 64), np.float32), 3), [3, 3, 3]),
]  # fmt: skip
"""Kernels, their arguments, and how often each function for groups that are alike is called."""


@needs_compiler
def test_groups_that_are_alike_give_what_each_of_them_should() -> None:
    batch, expected = Batch(), []
    for kernel, make, _ in PROGRAMS:
        expected.append(make())
        kernel.interpret(*expected[-1])
        batch.add(kernel, *make())
    batch.run()
    for (_, args, _, _), wanted in zip(batch.items, expected, strict=True):
        for one, two in zip(args, wanted, strict=True):
            if isinstance(one, np.ndarray):
                close(one, two, 1e-6, "")


@pytest.mark.parametrize(("kernel", "make", "calls"), PROGRAMS, ids=[k.__name__ for k, _, _ in PROGRAMS])
def test_groups_that_are_alike_are_written_once(kernel: Any, make: Callable[[], tuple[Any, ...]], calls: Any) -> None:
    name = f"{kernel.__name__}_incore_0"
    text = kernel.compile(*make(), target="c").sources[f"{name}.c"]
    functions = [line.split("(")[0].removeprefix("static void ") for line in text.splitlines()
                 if line.startswith(f"static void {name}_")]  # fmt: skip
    assert sorted(text.count(f"  {f}(") for f in functions) == calls


def _placeless(segment: Segment) -> list[Step]:
    """The steps, wherever they are in the user's source."""
    return [replace(step, loc=NOWHERE) if isinstance(step, (Compute, Fold)) else step for step in segment]


@pytest.mark.parametrize(("kernel", "make", "_"), PROGRAMS, ids=[k.__name__ for k, _, _ in PROGRAMS])
def test_a_plan_for_other_names_is_the_plan(kernel: Any, make: Callable[[], tuple[Any, ...]], _: Any) -> None:
    module = kernel.compile(*make(), target="c")._lowered().last
    tried = 0
    for func in module.funcs:
        groups = {id(s): s for s in statements(func.body) if isinstance(s, Fuse)}
        for identity, (shape, alike) in repeated_groups(func.body).items():
            one, two = alike.plan(groups[identity], shape), plan(groups[identity])
            assert [*map(_placeless, one.rows)] == [*map(_placeless, two.rows)]
            assert [*map(_placeless, one.stages)] == [*map(_placeless, two.stages)]
            assert replace(one, rows=(), stages=()) == replace(two, rows=(), stages=())
            tried += 1
    assert tried


@pto.jit
def alike_but_for_what_is_loaded_twice(x, z, y, w):
    """The first group loads one tensor twice, the second one two: they are not the same but for names."""
    for r in pl.range(0, x.shape[0], 8):
        with pl.incore():
            a = pl.load(x, [r, 0], [8, 200])
            b = pl.load(x, [r, 0], [8, 200])
            pl.store(pl.exp(a) * 0.5 + b, [r, 0], w)
            a = pl.load(x, [r, 0], [8, 200])
            b = pl.load(z, [r, 0], [8, 200])
            pl.store(pl.exp(a) * 0.5 + b, [r, 0], y)


@pto.jit
def clipped(x, z, y):
    """The store behind the product is a group that is none of the two that are alike."""
    y[...] = pl.clip(x, -0.5, 0.5) @ pl.clip(z, -0.5, 0.5)


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_loads_of_one_tensor_and_of_two_are_not_alike(target: str) -> None:
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal((16, 200)).astype(np.float32) for _ in range(2))
    y, w = np.empty_like(x), np.empty_like(x)
    alike_but_for_what_is_loaded_twice.compile(x, z, y, w, target=target)(x, z, y, w)
    np.testing.assert_allclose(w, np.exp(x) * 0.5 + x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y, np.exp(x) * 0.5 + z, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_a_group_behind_a_product_is_itself(target: str) -> None:
    rng = np.random.default_rng(1)
    x, z = (rng.standard_normal((33, 33)).astype(np.float32) for _ in range(2))
    y = np.empty_like(x)
    clipped.compile(x, z, y, target=target)(x, z, y)
    np.testing.assert_allclose(y, np.clip(x, -0.5, 0.5) @ np.clip(z, -0.5, 0.5), rtol=1e-4, atol=1e-5)

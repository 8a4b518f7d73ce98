# SPDX-License-Identifier: MIT
"""Whole tensors that no one loop over parts computes: several loops do, with tiles in memory between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.semantic import interpreter
from tests.targets.cuda.harness import emulated, needs_compiler

RNG = np.random.default_rng(30)
TWO = pto.spec((None, None), pl.f32)


def parts_of_a_tile(x, z, y):
    t = pl.exp(x)
    y[:, 1:] = t[:, 1:] - t[:, :-1]
    z[1:-1] = t[2:] - t[:-2]


def joined(x, z, y):
    h = x.shape[1] // 2
    r = pl.concat([-x[:, h : 2 * h], x[:, :h] * 2.0], axis=1)
    y[:, : 2 * h] = x[:, : 2 * h] * 0.5 + r
    z[...] = pl.concat([x[1:] + z[1:], x[:1]], axis=0)


def stacked(x, z, y):
    t = pl.stack([x * 2.0, z], axis=0)
    y[...] = t[1] - t[0]


def other_shapes(x, z, y):
    t = pl.reshape(x * 2.0, (x.shape[0] * x.shape[1],))
    y[...] = pl.reshape(t + 1.0, (y.shape[0], y.shape[1]))
    z[...] = pl.flip(pl.flip(x + 1.0, axis=1), axis=0)


def rows_and_columns(x, z, y):
    y[...] = x - pl.mean(x, axis=0) - pl.mean(x, axis=1, keepdims=True) + pl.mean(x)
    t = x / (pl.sum(pl.abs(x), axis=0) + 1.0)
    z[...] = t / (pl.sum(pl.abs(t), axis=1, keepdims=True) + 1.0)


def gradients(x, z, y):
    """Of a norm: sums of columns and of rows that share tiles."""
    d = x - pl.mean(x, axis=1, keepdims=True)
    r = 1.0 / pl.sqrt(pl.mean(d * d, axis=1, keepdims=True) + 1.0)
    z[0] = pl.sum(z * d * r, axis=0)
    y[...] = (x - pl.mean(x * d, axis=1, keepdims=True)) * r


def scans_both_ways(x, z, y):
    y[...] = pl.cumsum(pl.cumsum(x, axis=0), axis=1)
    z[...] = pl.cumsum(pl.sort(z), axis=0)


def distances(x, z, y):
    """A tile of three axes of which two have extents that are not known."""
    d = x[:40, None, :] - z[None, :40, :]
    s = pl.sum(d * d, axis=2)
    y[:40, 0] = pl.min(s, axis=1)


def two_halves(x, z, y):
    """What is stored second is made of what the first store overwrites."""
    h = x.shape[0] // 2
    a, b = x[:h], x[h : 2 * h]
    s, d = a + b, a - b
    x[:h] = s
    x[h : 2 * h] = d


def interleaved(x, z, y):
    a, b = x[::2][: x.shape[0] // 2], x[1::2][: x.shape[0] // 2]
    s, d = a + b, a - b
    x[::2][: x.shape[0] // 2] = s
    x[1::2][: x.shape[0] // 2] = d


def exchanged(x, z, y):
    t = x * 1.0
    x[...] = z
    z[...] = t


def atomics(x, z, y):
    pl.atomic_add(y, [0, 0], x * 2.0)
    pl.atomic_max(z, [0, 0], x - pl.max(x, axis=0))


def stored_and_updated(x, z, y):
    """Lines that are stored are updated as other ones: parts of both have an order."""
    t = x * 2.0
    pl.store(t, [0, 0], y)
    pl.atomic_add(y, [1, 0], t)


def generated(x, z, y):
    y[...] = 3.0
    z[...] = pl.where(pl.arange(z.shape[0])[:, None] == pl.arange(z.shape[1])[None, :], 1.0, 0.0)


def products(x, z, y):
    """Of computed operands, one of them transposed."""
    p = (pl.exp(x) @ (z + 1.0).T) @ z
    y[...] = p / (pl.sum(pl.abs(p), axis=1, keepdims=True) + 1.0)


def long_columns(x, z, y):
    m = pl.mean(x, axis=0)
    d = x - m
    y[...] = d / pl.sqrt(pl.mean(d * d, axis=0) + 1.0)
    z[0] = pl.max(x, axis=0)


def places(x, z, y):
    """Of equal extremes, of NaN (in some of the columns), of what is computed of another reduction."""
    y[0] = pl.argmax(pl.floor(x * 2.0), axis=0).to(pl.f32)
    y[1] = pl.argmin(pl.log(x + 3.0), axis=0).to(pl.f32)
    y[2] = pl.mean((x - pl.mean(x, axis=0)) ** 2.0, axis=0)
    z[:, :] = (x == pl.max(x, axis=0)).to(pl.f32) + pl.argmax(x, axis=0, keepdims=True).to(pl.f32)


KERNELS: dict[str, Callable[..., Any]] = {
    fn.__name__: fn
    for fn in (
        parts_of_a_tile, joined, stacked, other_shapes, rows_and_columns, gradients, scans_both_ways, distances,
        two_halves, interleaved, exchanged, atomics, stored_and_updated, generated, products, long_columns,
        places,
    )
}  # fmt: skip


def arguments(shape: tuple[int, int]) -> tuple[np.ndarray, ...]:
    return tuple(RNG.standard_normal(shape).astype(np.float32) for _ in range(3))


def wanted(name: str, given: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    out = tuple(a.copy() for a in given)
    pto.jit(KERNELS[name]).interpret(*out)
    return out


@pytest.mark.parametrize("shape", [(45, 50), (1100, 40)])
@pytest.mark.parametrize("name", KERNELS)
def test_all_of_it_is_in_loops_that_compute_the_same(name: str, shape: tuple[int, int]) -> None:
    """The longer columns are reduced in parts."""
    given = arguments(shape)
    compiled = pto.jit(KERNELS[name]).compile(TWO, TWO, TWO, target="cuda")
    text = compiled.ir("divided")
    if "tdot" not in text:
        assert all(line.startswith("      ") for line in text.splitlines() if "tstore" in line or "tatomic" in line)
    got = tuple(a.copy() for a in given)
    interpreter.run(compiled._lowered().modules["divided"], list(got))
    for one, other in zip(wanted(name, given), got, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-4, atol=2e-4)


@needs_compiler
@pytest.mark.parametrize(("name", "shape"), [("joined", (45, 50)), ("two_halves", (45, 50)), ("long_columns", (1100, 5)), ("places", (1100, 5))])
def test_kernels_of_what_is_cut(name: str, shape: tuple[int, int]) -> None:
    given = arguments(shape)
    _, got = emulated(pto.jit(KERNELS[name]), *given, orders=(1,))
    for one, other in zip(wanted(name, given), got, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-4, atol=2e-4)


@needs_compiler
def test_arguments_that_are_one_tensor_are_read_before_they_are_written() -> None:
    @pto.jit
    def both(x, z, y):
        t = x - pl.max(x, axis=0)
        z[...] = pl.cumsum(t, axis=1)
        y[...] = pl.cumsum(t, axis=0)

    x, _, y = arguments((20, 30))
    z = x.copy()
    t = x - x.max(axis=0)
    emulate(both.compile(TWO, TWO, TWO, target="cuda"), z, z, y)
    np.testing.assert_allclose(y, t.cumsum(axis=0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(z, t.cumsum(axis=1), rtol=1e-5, atol=1e-5)


def test_extents_that_differ_are_still_errors() -> None:
    @pto.jit
    def beside(x, z, y):
        y[...] = pl.concat([x * 2.0, z + 1.0], axis=1)

    module = beside.compile(TWO, TWO, TWO, target="cuda")._lowered().modules["divided"]
    x, z = arguments((4, 5))[:2]
    with pytest.raises(pto.LaunchError, match=r"PTO-H202: .* axis 0: 4 and 3"):
        interpreter.run(module, [x, z[:3].copy(), np.zeros((4, 10), np.float32)])


def test_reshapes_to_another_number_of_elements_are_still_errors() -> None:
    @pto.jit
    def other(x, y):
        y[...] = pl.reshape(x * 2.0, (y.shape[0], y.shape[1]))

    module = other.compile(TWO, TWO, target="cuda")._lowered().modules["divided"]
    with pytest.raises(pto.LaunchError, match="PTO-H204: reshape of 12 elements to 10 elements"):
        interpreter.run(module, [np.zeros((3, 4), np.float32), np.zeros((5, 2), np.float32)])


def test_a_long_column_takes_other_loops_than_a_short_one() -> None:
    @pto.jit
    def summed(x, y):
        y[...] = pl.sum(x, axis=0)

    compiled = summed.compile(TWO, pto.spec((None,), pl.f32), target="cuda")
    text = compiled.ir("divided")
    assert text.count("IF %fits") == 1 and text.count("kind=parallel") == 4
    assert any("what is reduced along axis 0 is, in up to 64 parts" in str(d) for d in compiled.decisions)
    known = summed.compile(pto.spec((100000, 64), pl.f32), pto.spec((64,), pl.f32), target="cuda")
    assert [k.kind for k in known._kernel.built.program.host.kernels.values()] == ["rows", "rows"]


def test_known_extents_that_fit_no_block_are_cut_in_named_functions_too() -> None:
    @pto.incore
    def centred(x, y):
        t = pl.load(x)
        pl.store(t - pl.mean(t, axis=0) - pl.mean(t, axis=1, keepdims=True), y)

    @pto.jit(target="cuda")
    def called(x, y):
        centred(x, y)

    spec = pto.spec((3000, 2000), pl.f32)
    assert len(called.compile(spec, spec)._kernel.built.program.host.kernels) > 2
    assert "divided" in str(called.explain(spec, spec))


def test_what_is_explained_is_what_is_written() -> None:
    """Where a first way to write a program does not fit a block."""

    @pto.jit(target="cuda")
    def product(x, z, y):
        y[...] = pl.exp(x) @ (z * 2.0)

    specs = [pto.spec(shape, pl.f32) for shape in ((3000, 64), (64, 2000), (3000, 2000))]
    compiled = product.compile(*specs)
    told = [str(d) for d in compiled.decisions]
    assert sum("what is computed of whole tensors is divided" in d for d in told) >= 2
    assert [str(d) for d in product.explain(*specs).decisions] == told


N = pl.dynamic("N")
M = pl.dynamic("M")


@needs_compiler
@pytest.mark.parametrize("rows", [13, 33])
def test_rows_of_which_there_may_be_fewer_are_reversed(rows: int) -> None:
    """A tile of 24 rows, of which as many are valid as the tensor has."""

    @pto.jit
    def reversed_rows(x: pl.Tensor[[N, M], pl.f32], y: pl.Tensor[[N, M], pl.f32]):
        t = pl.flip(pl.cumsum(x[:24], axis=0), axis=0)
        y[:24] = pl.cumsum(t, axis=1)

    x, _, y = arguments((rows, 40))
    _, (_, got) = emulated(reversed_rows, x, y, orders=(1,))
    y[:24] = x[:24].cumsum(axis=0)[::-1].cumsum(axis=1)
    np.testing.assert_allclose(got, y, rtol=1e-4, atol=1e-4)


def test_a_run_time_extent_that_meets_a_known_one_is_that_one() -> None:
    """So rows of what is made of both are known to be whole, and reversed by what they are divided into."""

    @pto.jit
    def meeting(x: pl.Tensor[[N, 24], pl.f32], w: pl.Tensor[[N], pl.f32], v: pl.Tensor[[24], pl.f32],
                h: pl.Tensor[[3, N, 24], pl.f32]):  # fmt: skip
        t = pl.flip(pl.load(w, [0], [x.shape[0]]) + pl.cumsum(v, axis=0), axis=0) - h
        h[...] = t + pl.max(t, axis=2, keepdims=True)

    rng = np.random.default_rng(1)
    x, w, v, h = (rng.standard_normal(shape, np.float32) for shape in ((24, 24), (24,), (24,), (3, 24, 24)))
    compiled = meeting.compile(x, w, v, h, target="cuda")
    t = (w + v.cumsum())[::-1] - h
    interpreter.run(compiled._lowered().modules["divided"], [x, w, v, h])
    np.testing.assert_allclose(h, t + t.max(axis=2, keepdims=True), rtol=1e-4, atol=1e-4)
    short = [np.zeros((20, 24), np.float32), np.zeros(20, np.float32), v, np.zeros((3, 20, 24), np.float32)]
    with pytest.raises(pto.PtoError, match=r"PTO-H202: .*20 and 24|PTO-H202: .*24 and 20"):
        interpreter.run(compiled._lowered().modules["divided"], short)


@needs_compiler
def test_another_shape_of_a_tile_that_is_made_whole() -> None:
    """The scan of any function is no operation that is divided: what is made of it is no view of memory."""

    @pto.jit
    def after_a_scan(x, y):
        t = pl.reshape(pl.associative_scan(x * 2.0, 1, lambda a, b: pl.maximum(a, b)), (x.shape[0] * x.shape[1],))
        y[...] = pl.cumsum(pl.min(t, axis=0, keepdims=True), axis=0)

    x, _, y = arguments((5, 7))
    _, (_, got) = emulated(after_a_scan, x, y, orders=(1,))
    np.testing.assert_allclose(got, np.full_like(y, np.maximum.accumulate(x * 2, axis=1).min()))


def test_parts_of_tiles_that_other_operations_made_are_not_cut() -> None:
    """A part of a tile that stands behind a branch or a loop, which what is cut does not reach across."""

    @pto.jit
    def branched(x, y, n):
        t = pl.stack([x, x], axis=2)
        if n == 0:
            y[...] = y - n
        return t[:3]

    @pto.jit
    def looped(x, y, n):
        t = x * 2.0
        for _ in pl.range(n):
            y[...] += 1.0
        y[:3] += pl.concat([t[:1], t[1:3]], axis=0)

    x, y = arguments((5, 13))[:2]
    for fn in (branched, looped):
        for n in (0, 1):
            got, expected = y.copy(), y.copy()
            results = interpreter.run(fn.compile(x, got, n, target="cuda")._lowered().modules["kernels"], [x, got, n])
            wanted = fn.interpret(x, expected, n)
            np.testing.assert_array_equal(got, expected)
            assert wanted is None or np.array_equal(results[0], wanted)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5])
def test_fewer_rows_than_were_asked_for_are_reversed(rows: int) -> None:
    @pto.jit
    def reversed_rows(x, y):
        y[:3] += pl.flip(x[:3], axis=None)

    x, y = (a[:rows].copy() for a in arguments((5, 33))[:2])
    expected = y.copy()
    expected[:3] += x[:3][::-1, ::-1]
    module = reversed_rows.compile(TWO, TWO, target="cuda")._lowered().modules["kernels"]
    interpreter.run(module, [x, y])
    np.testing.assert_array_equal(y, expected)


def test_a_border_of_other_elements_is_handed_on_too() -> None:
    """A padded tile is as large as it is declared, whatever the tensor has."""

    @pto.jit
    def padded(x, y, n):
        t = pl.load(x, [0, 2], [x.shape[0], x.shape[1]], pad=1.0)
        if n > 1:
            y[...] = 0.0
        y[...] = pl.exp(t)

    x, y = arguments((5, 9))[:2]
    wanted = y.copy()
    padded.interpret(x, wanted, 2)
    interpreter.run(padded.compile(TWO, TWO, 2, target="cuda")._lowered().modules["kernels"], [x, y, 2])
    np.testing.assert_array_equal(y, wanted)


def test_a_tensor_that_is_written_too_early_is_copied_once() -> None:
    """However often it is read: by the language, arguments may be one tensor."""

    @pto.jit
    def moments(x: pl.Tensor, s: pl.Tensor, y: pl.Tensor):
        m = pl.mean(x, axis=0, keepdims=True)
        d = (x - m) * (x - m) / (1.0 + pl.abs(x))
        s[...] = pl.sum(y, axis=0)
        y[...] = (y + d) / pl.sum(y * d, axis=0, keepdims=True)

    x, y = RNG.random((70, 45), dtype=np.float32), RNG.random((70, 45), dtype=np.float32)
    s = np.zeros(45, np.float32)
    compiled = moments.compile(x, s, y, target="cuda")
    assert compiled.ir("divided").count("%x.memory = talloc") == 1
    assert "%x.memory.1" not in compiled.ir("divided")
    _, (_, sums, got) = emulated(moments, x, s, y.copy())
    d = (x - x.mean(axis=0)) ** 2 / (1.0 + np.abs(x))
    np.testing.assert_allclose(sums, y.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(got, (y + d) / (y * d).sum(axis=0), rtol=1e-4)

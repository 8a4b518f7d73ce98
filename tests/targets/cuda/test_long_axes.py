# SPDX-License-Identifier: MIT
"""Tiles of several axes of which one, of unknown extent, is too long for a block: the launch takes a kernel that goes
over it in passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.targets.cuda.host import HostProgram

from .harness import emulated, needs_compiler, of_the_emulation
from .test_launcher import Program, needs_compilers

RNG = np.random.default_rng(29)
HEADS, DIM = 1, 128


@pto.jit
def grouped(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, lengths: pl.Tensor, o: pl.Tensor):
    """Two queries for each head of the keys, of each sequence its own length."""
    for b in pl.range(q.shape[0], parallel=True):
        for h in pl.range(k.shape[2], parallel=True):
            n = lengths[b]
            s = pl.dot(q[b, h * 2 : h * 2 + 2, :], k[b, :n, h, :].T) * 0.125
            p = pl.exp(s - pl.max(s, axis=1, keepdims=True))
            w = pl.cast(p / pl.sum(p, axis=1, keepdims=True), v.dtype)
            o[b, h * 2 : h * 2 + 2, :] = pl.dot(w, v[b, :n, h, :])


@pto.jit
def converted(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, lengths: pl.Tensor, o: pl.Tensor):
    """Operands that are not as they are in memory; what is divided is what all come to."""
    for b in pl.range(q.shape[0], parallel=True):
        for h in pl.range(q.shape[1], parallel=True):
            n = lengths[0] - b
            s = pl.dot(pl.cast(q[b, h : h + 1, :], pl.f32), pl.cast(k[b, :n, h // 2, :], pl.f32).T) * 0.125
            p = pl.exp(s - pl.max(s, axis=1, keepdims=True))
            o[b, h : h + 1, :] = pl.dot(p, pl.cast(v[b, :n, h // 2, :], pl.f32)) / pl.sum(p, axis=1, keepdims=True)


@pto.jit
def by_sums(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, lengths: pl.Tensor, o: pl.Tensor):
    for b in pl.range(q.shape[0], parallel=True):
        for h in pl.range(q.shape[1], parallel=True):
            keys = k[b, :, h // 2, :]
            s = pl.sum(pl.cast(q[b, h, :] * keys, pl.f32), axis=1) * 0.125
            s = pl.where(pl.arange(k.shape[1]) < lengths[b], s, -1e30)
            p = pl.exp(s - pl.max(s))
            o[b, h, :] = pl.sum((p / pl.sum(p))[:, None] * pl.cast(v[b, :, h // 2, :], pl.f32), axis=0)


@pto.jit
def vectors(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, lengths: pl.Tensor, o: pl.Tensor):
    for b in pl.range(q.shape[0], parallel=True):
        for h in range(q.shape[1]):
            n = lengths[b]
            s = k[b, :n, h // 2, :] @ q[b, h, :] * 0.125
            p = pl.exp(s - pl.max(s))
            o[b, h, :] = pl.cast(p / pl.sum(p), v.dtype) @ v[b, :n, h // 2, :]


KERNELS = [(grouped, np.float16), (converted, np.float16), (by_sums, np.float32), (vectors, np.float32)]


def arguments(most: int, dtype: Any) -> list[np.ndarray]:
    def some(*shape: int) -> np.ndarray:
        return RNG.standard_normal(shape).astype(np.float32).astype(dtype)

    keys = (2, most, HEADS, DIM)
    return [some(2, 2 * HEADS, DIM), some(*keys), some(*keys), np.array([most, most - 65]),
            np.zeros((2, 2 * HEADS, DIM), np.float32)]  # fmt: skip


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: Any) -> np.ndarray:
    out = np.zeros(q.shape, np.float32)
    for b, h in np.ndindex(q.shape[:2]):
        keys, values = (x[b, : lengths[b], h // 2].astype(np.float64) for x in (k, v))
        s = keys @ q[b, h].astype(np.float64) * 0.125
        w = np.exp(s - s.max())
        out[b, h] = w / w.sum() @ values
    return out


@needs_compiler
@pytest.mark.parametrize(("kernel", "dtype"), KERNELS, ids=lambda k: k.__name__)
def test_attention_to_more_keys_than_a_block_has_room_for(kernel: Any, dtype: Any) -> None:
    for most in (70, 1100):
        q, k, v, lengths, o = arguments(most, dtype)
        wanted = expected(q, k, v, lengths if kernel is not converted else (most, most - 1))
        _, (*_, found) = emulated(kernel, q, k, v, lengths, o, orders=(0,))
        np.testing.assert_allclose(found, wanted, atol=2e-3 if dtype == np.float16 else 2e-6)


@pto.jit
def columns_too(x: pl.Tensor, y: pl.Tensor):
    """Blocks of rows, which are reduced both ways."""
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        t = pl.load(x, [i, 0], [8, x.shape[1]])
        u = pl.exp(t - pl.max(t, axis=1, keepdims=True))
        pl.store(u / pl.sum(u, axis=1, keepdims=True) + pl.max(t, axis=0, keepdims=True), [i, 0], y)


@needs_compiler
def test_rows_that_are_reduced_both_ways() -> None:
    for columns in (300, 20_000):
        x = RNG.standard_normal((9, columns), np.float32)
        _, (_, found) = emulated(columns_too, x, np.zeros_like(x), orders=(0,))
        e = np.exp(x - x.max(axis=1, keepdims=True))
        most = np.concatenate([np.broadcast_to(part.max(axis=0), part.shape) for part in (x[:8], x[8:])])
        np.testing.assert_allclose(found, e / e.sum(axis=1, keepdims=True) + most, rtol=1e-5)


@pto.jit
def running(x: pl.Tensor, y: pl.Tensor):
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        t = pl.load(x, [i, 0], [8, x.shape[1]])
        pl.store(pl.flip(t, axis=1) - pl.max(t, axis=1, keepdims=True), [i, 0], y)


@needs_compiler
def test_what_needs_more_than_parts_of_an_axis_is_an_error() -> None:
    x = RNG.standard_normal((12, 70_000), np.float32)
    with pytest.raises(pto.LaunchError, match=r"(?s)PTO-X130.* loop over parts of the row"):
        emulated(running, x, np.zeros_like(x), orders=(0,))


@needs_compilers
def test_written_programs_take_the_kernel_that_has_room(tmp_path: Path) -> None:
    f32 = pl.f32
    specs = [pto.spec((None, None, DIM), f32), *[pto.spec((None, None, None, DIM), f32)] * 2, pto.spec((None,), pl.i64),
             pto.spec((None, None, DIM), f32)]  # fmt: skip
    program = Program(grouped.compile(*specs, target="cuda"), tmp_path)
    for most in (100, 2500):
        q, k, v, lengths, o = arguments(most, np.float32)
        heads = 2 * HEADS
        assert program(q, 2, heads, k, 2, most, HEADS, v, 2, most, HEADS, lengths, 2, o, 2, heads) == 0, program.said()
        np.testing.assert_allclose(o, expected(q, k, v, lengths), atol=2e-6)


@pto.jit
def products_and_stores(x: pl.Tensor, w: pl.Tensor, ends: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    """Parts are stored, too, of what all of them come to."""
    for i in pl.range(x.shape[0], parallel=True):
        t = x[i, : ends[i], :]
        u = pl.dot(t, w)
        z[i, : ends[i], :] = u - pl.max(u, axis=0, keepdims=True)
        y[i, :] = pl.sum(u * x[i, : ends[i], :], axis=0)


@pto.jit
def transposed(x: pl.Tensor, w: pl.Tensor, ends: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        t = x[i, : ends[i], :]
        y[i, :] = pl.sum(pl.dot(t.T, t), axis=0)


@pto.jit
def updated(x: pl.Tensor, w: pl.Tensor, ends: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        t = x[i, : ends[i], :]
        pl.atomic_add(y, [0, 0], pl.sum(t, axis=0, keepdims=True))
        pl.atomic_max(z[0], [0, 0], t)


@pto.jit
def sliced(x: pl.Tensor, w: pl.Tensor, ends: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    """What comes to no long axis may be any operation."""
    for i in pl.range(x.shape[0], parallel=True):
        t = x[i]
        s = pl.where(pl.arange(x.shape[1]) < ends[i], pl.sum(t, axis=1), -1e30)
        p = pl.exp(s - pl.max(s))
        y[i, :] = pl.sort(pl.dot(p[None, :], t)[0] / pl.sum(p))


@needs_compiler
@of_the_emulation
@pytest.mark.parametrize("kernel", [products_and_stores, transposed, updated, sliced], ids=lambda k: k.__name__)
def test_passes_in_place_of_whole_tiles(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    version, passes = HostProgram.version, list[str]()

    def without_room(self: HostProgram, kernel: Any, *given: Any) -> Any:
        other = self.in_passes(kernel) if kernel.name in self.kernels else None
        if other is not None:
            passes.append(other.name)
            return pto.LaunchError("PTO-X130: there is another kernel")
        return version(self, kernel, *given)

    monkeypatch.setattr(HostProgram, "version", without_room)
    x, z = (RNG.standard_normal((3, 150, 24), np.float32) for _ in range(2))
    given = [x, RNG.standard_normal((24, 24), np.float32), np.array([150, 64, 1]), np.zeros((3, 24), np.float32), z]
    wanted = [a.copy() for a in given]
    kernel.interpret(*wanted)
    f32 = pl.f32
    specs = [pto.spec((None, None, 24), f32), pto.spec((24, 24), f32), pto.spec((None,), pl.i64),
             pto.spec((None, 24), f32), pto.spec((None, None, 24), f32)]  # fmt: skip
    emulate(kernel.compile(*specs, target="cuda"), *given)
    assert passes == [f"{kernel.__name__}_incore_0_in_passes"]
    for found, want in zip(given, wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-4)

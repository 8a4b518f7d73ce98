# SPDX-License-Identifier: MIT
"""Sequences of lengths that are read from memory, some of them empty: programs run on the CPU, against the interpreter."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, kernels_of, needs_compiler, ordered, written

WIDE, FLAT = pto.spec((None, 64), pl.f32), pto.spec((None, None), pl.f32)
SQUARE = pto.spec((64, 64), pl.f32)
OFFSETS = pto.spec((None,), pl.i32)


@pto.jit
def scaled(x: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    for b in pl.range(off.shape[0] - 1, parallel=True):
        out[off[b] : off[b + 1], :] = x[off[b] : off[b + 1], :] * 2.0


@pto.jit
def sums(x: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    """The sum of no rows is stored, too."""
    for b in pl.range(off.shape[0] - 1, parallel=True):
        t = pl.load(x, [off[b], 0], [off[b + 1] - off[b], 64])
        pl.store(pl.sum(t, axis=0, keepdims=True) + 1.0, [b, 0], out)


@pto.jit
def reduced(x: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    """What reductions of nothing give, as numbers."""
    for b in pl.range(off.shape[0] - 1, parallel=True):
        t = x[0, off[b] : off[b + 1]]
        out[0, b] = pl.max(t)
        out[1, b] = pl.sum(t) + pl.prod(t)
        out[2, b] = pl.argmax(t).to(pl.f32)
        out[3, b] = pl.where(pl.any(t > 1.0), 1.0, 2.0)
        out[4, b] = pl.where(pl.all(t > -1.0), 1.0, 2.0)
        out[5, b] = pl.mean(t)
        out[6, b] = pl.min(pl.trunc(t).to(pl.i32)).to(pl.f32)


@pto.jit
def softmax(x: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    for b in pl.range(off.shape[0] - 1, parallel=True):
        start, stop = off[b], off[b + 1]
        e = pl.exp(pl.load(x, [0, start], [1, stop - start]))
        pl.store(e / pl.sum(e), [0, start], out)


@pto.jit
def normalised(x: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    for b in pl.range(off.shape[0] - 1, parallel=True):
        t = x[off[b] : off[b + 1], :]
        d = t - pl.mean(t, axis=1, keepdims=True)
        out[off[b] : off[b + 1], :] = d / pl.sqrt(pl.mean(d * d, axis=1, keepdims=True) + 1e-5)


@pto.jit
def running(x: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    for b in pl.range(off.shape[0] - 1, parallel=True):
        out[off[b] : off[b + 1], :] = pl.cumsum(x[off[b] : off[b + 1], :], axis=0)


@pto.jit
def carried(x: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    """A state that all sequences change, one after the other, and that their rows are added to."""
    for _ in pl.range(1, parallel=True):
        acc = pl.zeros([1, 64], pl.f32)
        for b in pl.range(off.shape[0] - 1):
            t = pl.load(x, [off[b], 0], [off[b + 1] - off[b], 64])
            acc = acc * 0.5 + pl.sum(t, axis=0, keepdims=True)
            pl.store(t + acc, [off[b], 0], out)
        pl.store(acc, [50, 0], out)


@pto.jit
def attention(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    """Whole sequences, four heads."""
    for b in pl.range(off.shape[0] - 1, parallel=True):
        start, stop = off[b], off[b + 1]
        for h in pl.range(4):
            s = q[start:stop, h * 16 : h * 16 + 16] @ k[start:stop, h * 16 : h * 16 + 16].T
            p = pl.exp(s - pl.max(s, axis=1, keepdims=True))
            total = pl.sum(p, axis=1, keepdims=True)
            out[start:stop, h * 16 : h * 16 + 16] = (p @ v[start:stop, h * 16 : h * 16 + 16]) / total


@pto.jit
def in_blocks(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    """Blocks of sequences, with a running softmax."""
    for b in pl.range(off.shape[0] - 1, parallel=True):
        start, stop = off[b], off[b + 1]
        for i in pl.range(start, stop, 16):
            rows = pl.minimum(stop - i, 16)
            qt = pl.load(q, [i, 0], [rows, 64])
            best, total = pl.full([rows, 1], -3e38, pl.f32), pl.zeros([rows, 1], pl.f32)
            acc = pl.zeros([rows, 64], pl.f32)
            for j in pl.range(start, stop, 16):
                s = qt @ pl.load(k, [j, 0], [pl.minimum(stop - j, 16), 64]).T
                m = pl.maximum(best, pl.max(s, axis=1, keepdims=True))
                p, shrink = pl.exp(s - m), pl.exp(best - m)
                total = total * shrink + pl.sum(p, axis=1, keepdims=True)
                acc = acc * shrink + p @ pl.load(v, [j, 0], [pl.minimum(stop - j, 16), 64])
                best = m
            pl.store(acc / total, [i, 0], out)


@pto.jit
def decoding(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    """One query for each sequence."""
    for b in pl.range(off.shape[0] - 1, parallel=True):
        start, stop = off[b], off[b + 1]
        keys = pl.load(k, [start, 0], [stop - start, 64])
        s = pl.sum(pl.load(q, [b, 0], [1, 64]) * keys, axis=1, keepdims=True)
        p = pl.exp(s - pl.max(s))
        values = pl.load(v, [start, 0], [stop - start, 64])
        pl.store(pl.sum(p * values, axis=0, keepdims=True) / pl.sum(p), [b, 0], out)


@pto.jit
def crossed(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    """Queries of one sequence and keys of the next: either may be empty, and queries without keys get 1."""
    for b in pl.range(off.shape[0] - 2, parallel=True):
        weights = pl.exp((q[off[b] : off[b + 1], :] @ k[off[b + 1] : off[b + 2], :].T) * 0.1)
        out[off[b] : off[b + 1], :] = weights @ v[off[b + 1] : off[b + 2], :] + 1.0


@pto.jit
def grouped(x: pl.Tensor, w: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    """A product of the cube core alone."""
    for b in pl.range(off.shape[0] - 1, parallel=True):
        out[off[b] : off[b + 1], :] = x[off[b] : off[b + 1], :] @ w


@pto.jit
def gram(x: pl.Tensor, w: pl.Tensor, off: pl.Tensor, out: pl.Tensor):
    """A product over no rows is stored: zeros."""
    for b in pl.range(off.shape[0] - 1, parallel=True):
        t = pl.load(x, [off[b], 0], [off[b + 1] - off[b], 64])
        pl.store(t.T @ t, [b * 64, 0], out)


_ATTENTION = WIDE, WIDE, WIDE, OFFSETS, WIDE
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **{f.__name__: (f, (WIDE, OFFSETS, WIDE)) for f in (scaled, sums, normalised, running, carried)},
    **{f.__name__: (f, (FLAT, OFFSETS, FLAT)) for f in (reduced, softmax)},
    **{f.__name__: (f, _ATTENTION) for f in (attention, in_blocks, decoding, crossed)},
    **{f.__name__: (f, (WIDE, SQUARE, OFFSETS, WIDE)) for f in (grouped, gram)},
}
SEQUENCES = [[0, 5, 21, 40], [0, 0, 7, 40], [0, 5, 5, 5, 40, 40], [0, 0, 0, 0], [3, 3, 40, 40, 40]]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ragged"))


@needs_compiler
@pytest.mark.parametrize("offsets", SEQUENCES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_sequences_without_elements_do_nothing(programs: Programs, name: str, offsets: list[int]) -> None:
    fn, _ = CASES[name]
    names = [p for p in inspect.signature(fn.__pto_jit__).parameters if p not in ("off", "out")]
    given = {p: np.random.default_rng(k).standard_normal((64 if p == "w" else 40, 64)).astype(np.float32)
             for k, p in enumerate(names)}  # fmt: skip
    out = np.full((64 * 5 if name == "gram" else 60, 64), 7.0, np.float32)
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-5)
    check_interpreted(programs, fn, name, {**given, "off": np.array(offsets, np.int32)}, {"out": out}, close)


@needs_compiler
def test_what_is_done_with_a_place_in_an_empty_tile_stops_the_core(tmp_path: Path) -> None:
    @pto.jit
    def first(x, off, out):
        for b in pl.range(off.shape[0] - 1, parallel=True):
            t = pl.load(x, [off[b], 0], [off[b + 1] - off[b], 64])
            out[b, 0] = t[0, 0]

    programs = ordered({"first": (first, (WIDE, OFFSETS, WIDE))}, tmp_path)
    x, out = np.ones((8, 64), np.float32), np.zeros((4, 64), np.float32)
    programs.run("first", x=x, off=np.array([0, 3, 8], np.int32), out=out)
    np.testing.assert_array_equal(out[:2, 0], 1)
    with pytest.raises(RuntimeError, match="trap"):
        programs.run("first", x=x, off=np.array([0, 3, 3, 8], np.int32), out=out)


def test_the_host_asks_for_one_bound_of_equal_lengths() -> None:
    """Those of queries, keys and values are the same; so are lengths that are computed in a loop and behind it."""
    program = written(attention, *_ATTENTION)
    assert [k.name.rsplit("_", 1)[-1] for k in kernels_of(program)] == ["most", "bound", "0"]
    host = next(text for name, text in program.sources.items() if name.endswith(".c"))
    assert host.count("aclrtMemcpy(") == 1


def test_a_bound_that_is_converted_is_seen() -> None:
    """Offsets of 32 bits: no kernel looks for the largest block."""
    assert len(kernels_of(written(in_blocks, *_ATTENTION))) == 1

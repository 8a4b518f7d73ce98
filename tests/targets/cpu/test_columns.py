# SPDX-License-Identifier: MIT
"""Stores to several columns of the same rows are one group, which copies nothing unless they overlap."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.c.program import INCLUDE, RUNTIME


@pto.jit
def turned(q, cos, sin, out):
    h = cos.shape[1]
    for b in pl.range(q.shape[0], parallel=True):
        for s in pl.range(q.shape[1], parallel=True):
            c, n = pl.load(cos, [s, 0], [1, h]), pl.load(sin, [s, 0], [1, h])
            x = pl.load(q[b, s], [0, 0], [q.shape[2], h])
            y = pl.load(q[b, s], [0, h], [q.shape[2], h])
            pl.store(x * c - y * n, [0, 0], out[b, s])
            pl.store(y * c + x * n, [0, h], out[b, s])


def moved(rank: int) -> Any:
    """Two tiles of a tensor, to two places of another."""
    at = [0] * (rank - 1)

    @pto.jit
    def kernel(x, y, a, b, c, d, width):
        with pl.incore():
            size = [*[x.shape[k] for k in range(rank - 1)], width]
            s, t = pl.load(x, [*at, a], size), pl.load(x, [*at, b], size)
            pl.store(s + t, [*at, c], y)
            pl.store(s - t, [*at, d], y)

    return kernel


def test_two_stores_to_one_view_are_one_group_and_load_once() -> None:
    specs = [pto.spec((None,) * n, pl.f32) for n in (4, 2, 2, 4)]
    text = turned.compile(*specs).ir("fused")
    assert text.count("ENDFUSE") == 1 and "FUSE %" not in text
    assert text.count("tview %q[") == text.count("tview %out[") == 1


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_halves_in_place_and_elsewhere(target: str) -> None:
    rng = np.random.default_rng(0)
    q = rng.standard_normal((2, 3, 5, 34)).astype(np.float32)
    cos, sin = rng.standard_normal((2, 3, 17)).astype(np.float32)
    x, y = q[..., :17], q[..., 17:]
    c, n = cos[:, None], sin[:, None]
    expected = np.concatenate([x * c - y * n, y * c + x * n], axis=-1)
    out = np.zeros_like(q)
    kernel = turned.compile(q, cos, sin, out, target=target)
    kernel(q, cos, sin, out)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    kernel(q, cos, sin, q)
    np.testing.assert_allclose(q, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rank", [2, 3])
def test_columns_that_overlap_are_those_of_the_program(rank: int) -> None:
    kernel = moved(rank)
    shape = (3, 12) if rank == 2 else (2, 3, 12)
    first = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for width in (1, 3, 5):
        for a, b, c, d in itertools.product((0, 2, 6), (1, 6), (0, 1, 6, 7), (0, 5, 6)):
            for step in (1, 2):  # rows, or planes, that are not next to each other
                memory = np.zeros((shape[0] * step, *shape[1:]), np.float32)
                x = memory[::step]
                x[...] = first
                s, t = x[..., a : a + width].copy(), x[..., b : b + width].copy()
                expected = x.copy()
                expected[..., c : c + width] = s + t
                expected[..., d : d + width] = s - t
                kernel(x, x, a, b, c, d, width)
                np.testing.assert_array_equal(x, expected, err_msg=f"{a} {b} {c} {d} {width}")


def test_regions_that_are_said_to_be_apart_are(tmp_path: Path) -> None:
    source = tmp_path / "apart.c"
    source.write_text(
        '#include "pto_elements.h"\n'
        "bool overlap(const pto_region *a, const pto_region *b) { return pto_overlap(a, b); }\n"
    )
    command = ["cc", "-shared", "-fPIC", "-O1", f"-I{INCLUDE}", f"-I{RUNTIME}", str(source)]
    subprocess.run([*command, "-o", str(tmp_path / "apart.so"), "-lm"], check=True)
    overlap = ctypes.CDLL(str(tmp_path / "apart.so")).overlap
    overlap.restype = ctypes.c_bool

    class Region(ctypes.Structure):
        _fields_ = (("start", ctypes.c_int64), ("size", ctypes.c_int64), ("rank", ctypes.c_int64),
                    ("extents", ctypes.c_int64 * 8), ("strides", ctypes.c_int64 * 8))  # fmt: skip

    def region(start: int, extents: list[int], strides: list[int]) -> tuple[Any, set[int]]:
        places = {start + sum(i * s for i, s in zip(index, strides, strict=True))
                  for index in itertools.product(*map(range, extents))}  # fmt: skip
        made = Region(start, 4, len(extents), (ctypes.c_int64 * 8)(*extents), (ctypes.c_int64 * 8)(*strides))
        return made, {place + k for place in places for k in range(4)}

    rng = np.random.default_rng(2)
    told = 0
    for _ in range(4000):
        rank = int(rng.integers(1, 4))
        extents = rng.integers(1, 5, rank).tolist()
        strides = [*(4 * rng.choice([-6, 0, 1, 6, 7, 8, 12, 24, 32], rank - 1)).tolist(), int(rng.choice([4, 8]))]
        (a, of_a), (b, of_b) = (region(1000 + 4 * int(rng.integers(0, 12)), extents, strides) for _ in range(2))
        if not overlap(ctypes.byref(a), ctypes.byref(b)):
            assert not of_a & of_b
            told += max(of_a) > min(of_b) and max(of_b) > min(of_a)
    assert told > 50

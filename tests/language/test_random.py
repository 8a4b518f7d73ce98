# SPDX-License-Identifier: MIT
"""The counter-based random numbers, against published vectors and a scalar reimplementation."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pto_jit.language as pl
from pto_jit.errors import TypeMismatchError
from pto_jit.language._philox import philox

F = 0xFFFFFFFF
KNOWN = [  # the known-answer file of Random123: counter, key, output
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((F, F, F, F), (F, F), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]  # fmt: skip


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN)
def test_philox_gives_the_published_answers(counter: tuple, key: tuple, output: tuple) -> None:
    assert tuple(int(w) for w in philox(counter, key)) == output


def scalar_words(seed: int, counter: int) -> tuple[int, int]:
    seed, counter = seed % 2**64, counter % 2**64
    c, k = [counter & F, counter >> 32, 0, 0], [seed & F, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & F, (a >> 32) ^ c[3] ^ k[1], a & F]
        k = [(k[0] + 0x9E3779B9) & F, (k[1] + 0xBB67AE85) & F]
    return c[0], c[1]


@pytest.mark.parametrize("seed", [0, 1, -1, 2**40 + 17, -(2**63), 2**64 - 1])
@pytest.mark.parametrize("offset", [0, 5, 2**32 - 2, 2**63 - 1])
def test_rand_and_randn_follow_their_definition(seed: int, offset: int) -> None:
    uniform, normal = pl.rand(seed, offset, [2, 3]), pl.randn(seed, offset, [2, 3])
    assert uniform.dtype == pl.f32 and normal.dtype == pl.f32 and uniform.shape == (2, 3)
    for k in range(6):
        w0, w1 = scalar_words(seed, offset + k)
        u0, u1 = (w0 >> 8) * 2.0**-24, (w1 >> 8) * 2.0**-24
        assert uniform[k // 3, k % 3] == np.float32(u0)
        expected = math.sqrt(-2 * math.log1p(-u0)) * math.cos(2 * math.pi * u1)
        assert normal[k // 3, k % 3] == np.float32(expected)


def test_the_numbers_do_not_depend_on_the_tiling() -> None:
    whole = np.asarray(pl.rand(7, 100, [4, 8]))
    for row in range(4):
        np.testing.assert_array_equal(np.asarray(pl.rand(7, 100 + 8 * row, [8])), whole[row])
    np.testing.assert_array_equal(pl.rand(7, 100 + np.arange(32).reshape(4, 8)), whole)
    np.testing.assert_array_equal(np.asarray(pl.rand(7, pl.arange(100, 132))), whole.reshape(-1))
    np.testing.assert_array_equal(pl.randn(7, np.arange(3, dtype=np.uint8)), np.asarray(pl.randn(7, 0, [3])))


def test_negative_counters_count_as_twos_complement() -> None:
    assert pl.rand(3, np.array([-1], np.int8))[0] == pl.rand(3, np.array([2**64 - 1], np.uint64))[0]


def test_the_distributions_have_their_moments() -> None:
    u, n = np.asarray(pl.rand(1, 0, [40000])), np.asarray(pl.randn(1, 0, [40000]))
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.01
    assert abs(n.mean()) < 0.02 and abs(n.var() - 1) < 0.03


def test_random_tiles_are_generated() -> None:
    t = pl.load(np.zeros(3, np.float32), [0], [8])
    assert pl.valid_shape(t + pl.rand(0, 0, [8])) == (3,)


def test_counters_and_seed_are_integers() -> None:
    with pytest.raises(TypeMismatchError):
        pl.rand(0, np.zeros(3))
    with pytest.raises(TypeMismatchError):
        pl.rand(0.5, 0, [3])

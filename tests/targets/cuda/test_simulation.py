# SPDX-License-Identifier: MIT
"""The PTX of kernels on the simulator: whole programs, products of warpgroups, and the simulator itself, which has to
find every mistake that the emulation finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit.language as pl
from pto_jit.bench.kernels import attention, matrix
from pto_jit.errors import LaunchError

from .simulation import SimulatedDevice, needs_simulation, simulate
from .test_emulation import HEAD, RIGHT, STUCK, WRONG, run

pytestmark = needs_simulation
ORDERS = [(0, False), (1, True), (5, True), (6, False)]
ALLOWED = "else __syncthreads()"  # PTX lets threads meet at barriers of one number, wherever these are


@pytest.mark.parametrize(("seed", "late"), ORDERS)
def test_what_is_right_is_no_fault(seed: int, late: bool) -> None:
    for name, body in RIGHT.items():
        expected = run(f"{HEAD}{body}\n}}", 0, 2)
        found = run(f"{HEAD}{body}\n}}", 0, 2, device=SimulatedDevice(seed, late))
        assert name == "a failure" or (found == expected).all(), name


@pytest.mark.parametrize(("name", "right", "wrong", "said"), [case for case in WRONG if ALLOWED not in case[2]])
def test_what_a_device_may_fail_at_is_a_fault(name: str, right: str, wrong: str, said: str) -> None:
    for seed, late in ORDERS:
        with pytest.raises(LaunchError, match=r"^simulated: "):
            run(f"{HEAD}{RIGHT[name].replace(right, wrong)}\n}}", 0, 2, device=SimulatedDevice(seed, late))


def test_threads_that_wait_for_ever_are_reported() -> None:
    with pytest.raises(LaunchError, match="wait for ever"):
        run(STUCK, 0, device=SimulatedDevice())


INSTRUCTIONS = {
    "__popc(v) + __clz(v) + int(__brev(v))": lambda v: popcount(v) + leading(v) + reverse(v),
    "v / 7 - v % 7 + (v >> 3)": lambda v: np.trunc(v / 7).astype(np.int32) - np.fmod(v, 7) + (v >> 3),
    "int(unsigned(v) / 7u) + __mulhi(v, 0x12345678)": lambda v: (
        (v.view(np.uint32) // 7).view(np.int32) + (v.astype(np.int64) * 0x12345678 >> 32).astype(np.int32)),
    "int(int64_t(v) * v % 1000003)": lambda v: (v.astype(np.int64) ** 2 % 1000003).astype(np.int32),
    "int(float(v) * 0.37f)": lambda v: np.trunc(v.astype(np.float32) * np.float32(0.37)).astype(np.int32),
    "__float_as_int(sqrtf(fabsf(float(v)))) ^ __float_as_int(1.0f / float(v | 1))": lambda v: (
        np.sqrt(np.abs(v.astype(np.float32))).view(np.int32) ^ (1 / (v | 1).astype(np.float32)).view(np.int32)),
    "int(__double2ll_rn(double(v) / 3.0))": lambda v: np.rint(v / 3.0).astype(np.int64).astype(np.int32),
    "int(__byte_perm(v, ~v, 0x3715)) ^ __funnelshift_l(v, 99, 5)": lambda v: permuted(v, ~v) ^ funnel(v, 99, 5),
    "__shfl_xor_sync(~0u, v, 5) + __shfl_up_sync(~0u, v, 3, 8) - __shfl_down_sync(~0u, v, 2)": lambda v: (
        lanes(v, lambda k: k ^ 5) + lanes(v, lambda k: k - 3 if k % 8 >= 3 else k)
        - lanes(v, lambda k: k + 2 if k < 30 else k)),
    "int(__ballot_sync(~0u, v & 1)) + __any_sync(~0u, v == 5)": lambda v: ballot(v),
}  # fmt: skip
"""Values of one `int` v by thread, and what NumPy makes of all of them."""


def popcount(v: np.ndarray) -> np.ndarray:
    return np.bitwise_count(v.view(np.uint32)).astype(np.int32)


def leading(v: np.ndarray) -> np.ndarray:
    return np.array([32 - int(x).bit_length() for x in v.view(np.uint32)], np.int32)


def reverse(v: np.ndarray) -> np.ndarray:
    return np.array([int(f"{x:032b}"[::-1], 2) for x in v.view(np.uint32)], np.uint32).view(np.int32)


def permuted(v: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Bytes 5, 1, 7 and 3 of both, from the lowest one on."""
    both = np.stack([v, w], -1).astype(np.int32).view(np.uint8)
    return np.ascontiguousarray(both[:, [5, 1, 7, 3]]).view(np.int32)[:, 0]


def funnel(low: np.ndarray, high: int, by: int) -> np.ndarray:
    both = low.view(np.uint32).astype(np.uint64) | np.uint64(high << 32)
    return ((both << np.uint64(by)) >> np.uint64(32)).astype(np.uint32).view(np.int32)


def lanes(v: np.ndarray, other: Any) -> np.ndarray:
    """What each lane has from another one of its warp."""
    return np.concatenate([[warp[other(k)] for k in range(32)] for warp in v.reshape(-1, 32)]).astype(np.int32)


def ballot(v: np.ndarray) -> np.ndarray:
    out = []
    for warp in v.reshape(-1, 32):
        bits = sum(int(x & 1) << k for k, x in enumerate(warp)) + int((warp == 5).any())
        out += [bits & 0xFFFFFFFF] * 32
    return np.array(out, np.uint32).view(np.int32)


@pytest.mark.parametrize("expression", INSTRUCTIONS)
def test_instructions_compute_what_numpy_does(expression: str) -> None:
    body = f"const int v = x.data[place] * 40503 - 1300000; x.data[place] = {expression};"
    v = np.arange(128, dtype=np.int32) * 40503 - 1300000
    with np.errstate(over="ignore"):
        expected = INSTRUCTIONS[expression](v)
    for seed, late in ORDERS:
        found = run(f"{HEAD}{body}\n}}", 0, 2, device=SimulatedDevice(seed, late))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("seed", "late"), ORDERS)
def test_attention(seed: int, late: bool) -> None:
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((2, 80, 64)).astype(np.float32) for _ in range(3))
    out = np.zeros_like(q)
    simulate(attention.attention.compile(q, k, v, out, target="cuda"), q, k, v, out, seed=seed, late=late)
    scores = q.astype(np.float64) @ k.transpose(0, 2, 1) / 8
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(out, weights / weights.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("seed", "late"), ORDERS)
@pytest.mark.parametrize("warpgroups", [False, True])
def test_products_of_bf16(seed: int, late: bool, warpgroups: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `mma.sync` and `ldmatrix`, and by `wgmma` of operands in swizzled shared memory."""
    monkeypatch.setattr(SimulatedDevice, "warpgroups", warpgroups)
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape).astype(np.float32).astype(pl.bf16.numpy) for shape in ((128, 192), (192, 128)))
    out = np.zeros((128, 128), a.dtype)
    compiled = matrix.matmul_bf16.compile(a, b, out, target="cuda")
    simulate(compiled, a, b, out, seed=seed, late=late)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(out.astype(np.float64), exact, rtol=2**-7, atol=2**-7 * np.abs(exact).max() / 8)

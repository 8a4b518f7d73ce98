# SPDX-License-Identifier: MIT
"""Products of many matrices on devices: of tiles of more than two axes, and in loops of the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import LaunchError
from tests.targets.ascend.harness import Programs, check_interpreted, ordered
from tests.targets.cuda.harness import emulated, needs_compiler


@pto.jit
def plain(a, b, o):
    o[...] = a @ b


@pto.jit
def followed(a, b, o):
    """Elementwise work on the products, with what is loaded for it."""
    o[...] = pl.relu(a @ b) * 0.5 + b[:, 0, 0][:, None, None]


@pto.jit
def weights(a, b, o):
    """Work on whole rows of the products, which are in memory for it."""
    t = a @ b
    e = pl.exp(t - pl.max(t, axis=2, keepdims=True))
    o[...] = e / pl.sum(e, axis=2, keepdims=True)


@pto.jit
def updated(a, b, o):
    o[...] = a @ b + o


@pto.jit
def scores(a, b, o):
    o[...] = a @ pl.transpose(b, [0, 2, 1]) * 0.25


@pto.jit
def linear(a, b, o):
    """One matrix for all."""
    o[...] = a @ b[0]


@pto.jit
def from_the_left(a, b, o):
    """One matrix for all, on the left; rows of the products are subtracted from them."""
    t = a[0] @ b
    o[...] = t - pl.max(t, axis=1, keepdims=True)


@pto.jit
def chained(a, b, o):
    """What stands beside the first product is for the second one."""
    o[...] = o + pl.relu(a @ b[0] + b[0, 0]) @ pl.transpose(b[0])[:, : b.shape[1]] @ b[0]


@pto.jit
def parts(a, b, o):
    """Of fewer rows than are declared."""
    t = a[:, :16, :] @ b
    o[:, :16, :] = t - pl.max(t, axis=2, keepdims=True)


@pto.jit
def computed(a, b, o):
    o[...] = pl.abs(a) @ (b * 2.0)


@pto.jit
def first(a, b, o):
    """Products of one matrix, as is known before they are run: there are no loops."""
    o[0:1] = pl.relu(a[0:1] @ b[0]) + 1.0
    pl.store(pl.load(a, [0, 0, 0], [1, 16, 16]) @ pl.load(b, [0, 0, 0], [1, 16, 16]), [0, 0, 0], o)


@pto.jit
def into_operand(a, b, o):
    """What is stored is read for other tiles."""
    b[...] = (a @ b)[:, : b.shape[1], :]
    o[...] = b[:, 0, 0][:, None, None] + o


@pto.jit
def looped(a, b, o):
    for z in pl.range(a.shape[0], parallel=True):
        o[z] = pl.relu(a[z] @ b[z])


@pto.jit
def in_chunks(a, b, o):
    for z in pl.range(a.shape[0], chunk=2):
        o[z] = a[z] @ b[z] + o[z]


@pto.jit
def looped_into_operand(a, b, o):
    """A block would read what another one has stored."""
    for z in pl.range(a.shape[0], parallel=True):
        t = a[z] @ b[z]
        o[z] = t
        b[z] = t[: b.shape[1], :]


@pto.jit
def tiled(a, b, o):
    """Tiles in parallel loops, whose sums the vector cores of an Ascend work on, for each matrix."""
    for z in pl.range(a.shape[0], parallel=True):
        for i in pl.range(0, a.shape[1], 32, parallel=True):
            for j in pl.range(0, b.shape[2], 32, parallel=True):
                acc = pl.zeros([32, 32], pl.f32)
                for k in pl.range(0, a.shape[2], 32):
                    acc += pl.load(a[z], [i, k], [32, 32]) @ pl.load(b[z], [k, j], [32, 32])
                pl.store(pl.relu(acc) + 1.0, [i, j], o[z])


BOTH = [plain, followed, weights, updated, scores, linear, from_the_left, chained, parts, computed, looped, tiled, first, into_operand]
SHAPES = [(3, 45, 70, 50), (2, 1, 5, 33), (1, 140, 17, 40), (4, 20, 300, 7)]
SPEC = pto.spec((None, None, None), pl.f32)


def arrays(shape: tuple[int, int, int, int], kernel: Any = plain, seed: int = 0) -> list[np.ndarray]:
    """Operands and a place for the result, of matrices that fit a kernel."""
    z, m, k, n = shape
    if kernel is into_operand:
        k = m
    rng = np.random.default_rng(seed)
    shapes = (z, m, k), (z, n, k) if kernel is scores else (z, k, n), (z, m, n)
    return [rng.integers(-8, 8, s).astype(np.float32) / 8 for s in shapes]


def check(kernel: Any, args: list[np.ndarray]) -> None:
    want = [a.copy() for a in args]
    kernel.interpret(*want)
    _, got = emulated(kernel, *args, orders=(0, 1))
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize("kernel", [*BOTH[:-1], in_chunks], ids=lambda k: k.__name__)
@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_cuda(kernel: Any, shape: tuple[int, int, int, int]) -> None:
    check(kernel, arrays(shape, kernel))


@needs_compiler
@pytest.mark.parametrize("shape", SHAPES[2:], ids=str)
def test_cuda_takes_the_form_that_suits_the_rows(shape: tuple[int, int, int, int]) -> None:
    check(plain, arrays(shape))
    check(looped, arrays(shape))


@needs_compiler
@pytest.mark.parametrize("kernel", [into_operand, looped_into_operand], ids=lambda k: k.__name__)
def test_cuda_what_is_stored_is_not_read_for_other_tiles(kernel: Any) -> None:
    check(kernel, arrays((3, 40, 40, 24)))


@pto.jit
def shared(a, b, o):
    """One matrix for some."""
    o[...] = a @ b[:, 0, :, :][:, None, :, :]


@needs_compiler
def test_cuda_halves_of_four_axes() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 8, s).astype(np.float16) / 8 for s in ((2, 3, 33, 40), (2, 1, 40, 20)))
    check(shared, [a, b, np.zeros((2, 3, 33, 20), np.float32)])


def test_cuda_tiles_of_known_extents_stay_in_one_kernel() -> None:
    """Small matrices of known extents are multiplied where the rest is computed."""

    @pto.jit
    def attention(q, k, v, o):
        s = q @ pl.transpose(k, [0, 2, 1])
        e = pl.exp(s - pl.max(s, axis=2, keepdims=True))
        o[...] = (e / pl.sum(e, axis=2, keepdims=True)) @ v

    small, large = (attention.compile(*[pto.spec((4, n, n), pl.f32)] * 4, target="cuda") for n in (64, 512))
    count = [len([name for name in c.sources if name.endswith(".cu")]) for c in (small, large)]
    assert count == [1, 3]


@pto.jit
def started(a, b, o):
    """Products in one block, whose matrices depend on each other, from a tile that is loaded."""
    with pl.incore():
        t = pl.dot(pl.load(a, [0, 0, 0], [3, 16, 8]), pl.load(b, [0, 0, 0], [3, 8, 16]), pl.load(o, [0, 0, 0], [3, 16, 16]))
        pl.store(t - pl.max(t, axis=0, keepdims=True), [0, 0, 0], o)


@needs_compiler
def test_cuda_small_products_that_start_from_a_tile() -> None:
    check(started, [*arrays((3, 16, 8, 16))[:2], np.ones((3, 16, 16), np.float32)])


@needs_compiler
def test_cuda_numbers_of_matrices_that_differ() -> None:
    a, b, o = arrays((3, 20, 20, 20))
    with pytest.raises(LaunchError, match="PTO-H20"):
        emulated(plain, a, b[:2].copy(), o)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    cases = {k.__name__: (k, (SPEC, SPEC, SPEC)) for k in BOTH}
    directory: Path = tmp_path_factory.mktemp("batches")
    return ordered(cases, directory)


@needs_compiler
@pytest.mark.parametrize("kernel", BOTH, ids=lambda k: k.__name__)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ascend(programs: Programs, kernel: Any, shape: tuple[int, int, int, int]) -> None:
    a, b, o = arrays(shape, kernel)

    def close(got: np.ndarray, want: np.ndarray, err_msg: str) -> None:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=err_msg)

    check_interpreted(programs, kernel, kernel.__name__, {"a": a}, {"b": b, "o": o}, compare=close)

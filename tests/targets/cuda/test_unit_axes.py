# SPDX-License-Identifier: MIT
"""Axes of extent 1, and tiles that have one beyond their tensors: what is stored is what the CPU stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def agree(kernel: Any, *args: Any) -> None:
    """Emulated, simulated, compiled for the CPU and interpreted, a kernel writes the same."""
    _, mine = emulated(kernel, *args, orders=(0, 5))
    for run in (kernel, kernel.interpret):
        theirs = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        run(*theirs)
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "shape, operation, made",
    [
        ((1, 4, 6), lambda t: t[:, :, 2], (1, 4)),
        ((1, 1, 4, 6), lambda t: t[:, :, 1:3, 5], (1, 1, 2)),
        ((4, 6, 1), lambda t: pl.sum(t, axis=(0, 2)), (6,)),
        ((4, 6, 1), lambda t: pl.max(t, axis=(1, 2)), (4,)),
        ((4, 6, 1), lambda t: pl.argmax(t, axis=0, keepdims=True), (1, 6, 1)),
        ((2, 1, 3, 4), lambda t: pl.reduce(t, 0, pl.maximum), (1, 3, 4)),
        ((2, 1, 3, 4), lambda t: pl.reduce((t, t + 1), 2, _larger)[1], (2, 1, 4)),
    ],
)
def test_axes_of_extent_1_among_others(
    shape: tuple[int, ...], operation: Callable[[Any], Any], made: tuple[int, ...]
) -> None:
    @pto.jit
    def kernel(x, out):
        for k in pl.range(2, parallel=True):
            t = pl.load(x, [shape[0] * k, *[0] * (len(shape) - 1)], shape)
            pl.store(operation(t), [made[0] * k, *[0] * (len(made) - 1)], out)

    agree(kernel, normal(2 * shape[0], *shape[1:]), np.full((2 * made[0] + 1, *made[1:]), 7, np.float32))


def _larger(a: Any, b: Any) -> Any:
    return (a[0], a[1]) if a[0] >= b[0] else (b[0], b[1])


def _doubled(t: Any) -> Any:
    for _ in pl.range(3):
        t = t * 2
    return t


@pytest.mark.parametrize(
    "shape, operation, made",
    [
        ((2, 3, 4), lambda t: pl.split(t, 2, axis=0)[1], (1, 3, 4)),
        ((2, 3, 4), lambda t: t[1:2] @ pl.full([4, 2], 1.0, pl.f32), (1, 3, 2)),
        ((1, 8), lambda t: pl.stack([t, t * 2], axis=1), (1, 2, 8)),
        ((1, 8), lambda t: pl.stack([t, t * 2], axis=2), (1, 8, 2)),
        ((1,), lambda t: pl.stack([t, t * 2], axis=1), (1, 2)),
        ((1, 8), lambda t: pl.sum(t @ pl.full([8, 4], 2.0, pl.f32), axis=1), (1,)),
        ((1, 4, 6), lambda t: pl.sum(t, axis=(1, 2)), (1,)),
        ((1, 4, 6), lambda t: pl.mean(t * 2, axis=2), (1, 4)),
        ((1, 4, 6), lambda t: pl.argmin(t, axis=1, keepdims=True), (1, 1, 6)),
        ((1, 4, 6), lambda t: pl.reduce(t, (1, 2), pl.maximum), (1,)),
        ((1, 4, 6), lambda t: pl.max(_doubled(t), axis=(1, 2), keepdims=True), (1, 1, 1)),
        ((1, 4, 6), lambda t: t[:, 1], (1, 6)),
        ((1, 2, 4, 6), lambda t: t[:, :, 3], (1, 2, 6)),
        ((1, 4, 6), lambda t: pl.full([1], pl.valid_shape(t)[0], pl.f32), (1,)),
        ((1, 8), lambda t: pl.gather(t, pl.full([1, 1], 2, pl.i32), 1), (1, 1)),
        ((1, 8), lambda t: pl.sum(t, axis=1, keepdims=True) + pl.arange(1), (1, 1)),
        ((1, 8), lambda t: pl.reshape(t, [1, 8]) + 1, (1, 8)),
    ],
)
def test_planes_and_rows_beyond_their_tensors_store_nothing(
    shape: tuple[int, ...], operation: Callable[[Any], Any], made: tuple[int, ...]
) -> None:
    @pto.jit
    def kernel(x, out):
        for k in pl.range(3, parallel=True):
            t = pl.load(x, [shape[0] * k, *[0] * (len(shape) - 1)], shape)
            pl.store(operation(t), [made[0] * k, *[0] * (len(made) - 1)], out)

    agree(kernel, normal(shape[0] + 1, *shape[1:]), np.full((3 * made[0] + 1, *made[1:]), 7, np.float32))


def _last(a: Any, b: Any) -> Any:
    return b


def _beyond(shape: tuple[int, ...], moving: int, operation: Callable[[Any], Any], made: tuple[int, ...]) -> Any:
    """Stores what is made of tiles of which those from the second on lie beyond the tensor, by one axis."""

    @pto.jit
    def kernel(x, out):
        for k in pl.range(3, parallel=True):
            t = pl.load(x, [k * n if axis == moving else 0 for axis, n in enumerate(shape)], shape)
            pl.store(operation(t), [made[0] * k, *[0] * (len(made) - 1)], out)

    return kernel


@pytest.mark.parametrize(
    "shape, moving, operation, made",
    [
        ((1, 4, 6), 0, lambda t: pl.sum(t, axis=0), (4, 6)),
        ((1, 4, 6), 0, lambda t: pl.max(t, axis=0, keepdims=True), (1, 4, 6)),
        ((1, 4, 6), 0, lambda t: pl.sum(t, axis=(0, 2)), (4,)),
        ((1, 4, 6), 0, lambda t: pl.min(t, axis=(0, 1), keepdims=True), (1, 1, 6)),
        ((1, 4, 6), 0, lambda t: pl.argmax(t, axis=0), (4, 6)),
        ((1, 4, 6), 0, lambda t: pl.reduce(t, 0, _last, init=0), (4, 6)),
        ((1, 4, 6), 0, lambda t: pl.any(t > 0, axis=0), (4, 6)),
        ((4, 1, 6), 1, lambda t: pl.max(t, axis=1), (4, 6)),
        ((4, 6, 1), 2, lambda t: pl.sum(t, axis=(0, 2), keepdims=True), (1, 6, 1)),
        ((1, 1, 8), 0, lambda t: pl.mean(t, axis=0), (1, 8)),
        ((1, 1, 1, 4), 1, lambda t: pl.prod(t, axis=1), (1, 1, 4)),
        ((2, 1, 3, 4), 1, lambda t: pl.max(t, axis=(0, 1, 3)), (3,)),
        ((1, 4), 0, lambda t: pl.sum(t + pl.arange(4), axis=0), (4,)),
    ],
)
def test_reductions_over_an_axis_that_is_not_there_give_their_identities(
    shape: tuple[int, ...], moving: int, operation: Callable[[Any], Any], made: tuple[int, ...]
) -> None:
    dtype = np.asarray(operation(np.ones(shape, np.float32))).dtype
    out = np.full((3 * made[0] + 1, *made[1:]), 7, dtype)
    kernel = _beyond(shape, moving, operation, made)
    agree(kernel, normal(*shape), out)
    kernel(normal(*shape), out)
    assert not (out[made[0] : 2 * made[0]] == dtype.type(7)).any()  # something was stored


@pytest.mark.parametrize(
    "shape, moving, operation, made",
    [
        ((1, 8), 0, lambda t: pl.expand_dims(t, 0), (1, 1, 8)),
        ((1, 8), 0, lambda t: t[:, None], (1, 1, 8)),
        ((8, 1), 1, lambda t: t[..., None], (8, 1, 1)),
        ((1,), 0, lambda t: t[:, None] + t, (1, 1)),
        ((1, 1, 8), 1, lambda t: pl.squeeze(t, 0), (1, 8)),
        ((1, 4, 6), 0, lambda t: pl.broadcast_to(t, [3, 1, 4, 6]), (3, 1, 4, 6)),
        ((4, 6, 1), 2, lambda t: pl.broadcast_to(t, [4, 6, 4]), (4, 6, 4)),
        ((1, 4, 6), 0, lambda t: pl.concat([pl.full([1, 4, 6], 5, pl.f32), t], axis=1), (1, 8, 6)),
        ((1, 4, 6), 0, lambda t: t + pl.full([4, 4, 6], 2, pl.f32), (4, 4, 6)),
        ((2, 1, 3, 4), 1, lambda t: pl.cumsum(t, axis=0), (2, 1, 3, 4)),
        ((1, 1, 4), 1, lambda t: pl.transpose(t, [2, 0, 1]), (4, 1, 1)),
        ((1, 2, 4), 0, lambda t: t @ pl.full([4, 3], 1, pl.f32), (1, 2, 3)),
    ],
)
def test_an_axis_that_is_not_there_stays_so(
    shape: tuple[int, ...], moving: int, operation: Callable[[Any], Any], made: tuple[int, ...]
) -> None:
    agree(_beyond(shape, moving, operation, made), normal(*shape), np.full((3 * made[0] + 1, *made[1:]), 7, np.float32))


@pytest.mark.parametrize(
    "shape, moving, operation, error",
    [
        ((1, 4, 6), 0, lambda t: pl.reshape(t, [1, 24]), "reshape of an incomplete tile"),
        ((1, 4), 0, lambda t: pl.reshape(t, [1, 1, 4]), "reshape of an incomplete tile"),
        ((1, 1, 4), 0, lambda t: pl.squeeze(t, 0), "reshape of an incomplete tile"),
        ((1, 1, 1, 4), 0, lambda t: pl.gather(t, pl.full([1, 1, 1, 4], 0, pl.i32), 0), r"index 0 is outside \[0, 0\)"),
        ((4, 1, 6), 1, lambda t: pl.full([1], t[0, 0, 0], pl.f32), "index 0 is outside the 0 valid elements of axis 1"),
    ],
)
def test_what_an_axis_that_is_not_there_has_none_of_is_an_error(
    shape: tuple[int, ...], moving: int, operation: Callable[[Any], Any], error: str
) -> None:
    made = np.asarray(operation(np.ones(shape, np.float32))).shape
    kernel, out = _beyond(shape, moving, operation, made), np.zeros((3 * made[0], *made[1:]), np.float32)
    for run in (kernel, lambda *args: emulate(kernel.compile(*args, target="cuda"), *args)):
        with pytest.raises(pto.BoundsError, match=error):
            run(normal(*shape), out)


@pto.jit
def planes(x: pl.Tensor, y: pl.Tensor, met: pl.Tensor, scanned: pl.Tensor):
    for k in pl.range(3, parallel=True):
        plane = pl.load(x, [k, 0, 0], [1, 2, 3])
        pl.store(plane + pl.load(y, [0, 0, 0], [4, 2, 3]), [4 * k, 0, 0], met)
        other = pl.load(y, [k, 0, 0], [1, 2, 3])
        pl.store(pl.associative_scan((plane, other), 0, _affine)[1], [k, 0, 0], scanned)


def _affine(a: Any, b: Any) -> Any:
    return a[0] * b[0], b[0] * a[1] + b[1]


@pytest.mark.parametrize("sizes", [(2, 4), (4, 2), (2, 2)])
def test_a_plane_beyond_its_tensor_meets_others(sizes: tuple[int, int]) -> None:
    outs = np.full((12, 2, 3), 7, np.float32), np.full((4, 2, 3), 7, np.float32)
    agree(planes, *(normal(n, 2, 3) for n in sizes), *outs)


@pto.jit
def looked_up(index: pl.Tensor, table: pl.Tensor, out: pl.Tensor):
    for k in pl.range(3, parallel=True):
        pl.store(table[pl.load(index, [k, 0], [1, 4])], [k, 0, 0], out)


def test_a_row_of_indices_beyond_its_tensor_looks_nothing_up() -> None:
    agree(looked_up, np.array([[3, 0, 1, 3], [2, 2, 0, 1]], np.int32), normal(4, 5), np.full((4, 4, 5), 7, np.float32))


@pytest.mark.parametrize("extents", [(4,), (2, 4), (2, 2, 4)])
def test_an_index_that_a_tile_does_not_have_finds_nothing_in_memory(extents: tuple[int, ...]) -> None:
    @pto.jit
    def kernel(places, table, out):
        for k in pl.range(2, parallel=True):
            t = pl.load(places, [*[0] * (len(extents) - 1), extents[-1] * k], extents)
            if len(extents) == 1:
                out[k] = table[t[0]]
            elif len(extents) == 2:
                out[k] = table[t[0, 0]]
            else:
                out[k] = table[t[0, 0, 0]]

    places, args = np.zeros((*extents[:-1], 8), np.int32), (normal(3), np.zeros(2, np.float32))
    agree(kernel, places, *args)
    less = np.ascontiguousarray(places[..., :4])
    with pytest.raises(pto.BoundsError, match="index 0 is outside the 0 valid elements"):
        emulate(kernel.compile(less, *args, target="cuda"), less, *args)


@pto.jit
def repeated(x: pl.Tensor, planes_out: pl.Tensor, rows: pl.Tensor, n, m):
    for _ in pl.range(1, parallel=True):
        t = pl.load(x, [0, 0], [n, 8])
        pl.store(pl.broadcast_to(t, [2, m, 8]), [0, 0, 0], planes_out)
        pl.store(pl.broadcast_to(t, [m, 8]), [0, 0], rows)


def test_only_axes_of_extent_1_are_repeated() -> None:
    args = normal(3, 8), np.zeros((2, 3, 8), np.float32), np.zeros((3, 8), np.float32)
    agree(repeated, *args, 3, 3)
    with pytest.raises(pto.LaunchError, match="extents 2 and 3 along one axis meet"):
        emulate(repeated.compile(*args, 2, 3, target="cuda"), *args, 2, 3)


@pto.jit
def carried(x: pl.Tensor, rows: pl.Tensor, sums: pl.Tensor, folded: pl.Tensor):
    for k in pl.range(3, parallel=True):
        row = pl.load(x, [k, 0], [1, 8])
        total = pl.sum(row, axis=1, keepdims=True)
        for _ in range(3):
            row = row * 2 + 1
            total = total + 1
        pl.store(row, [k, 0], rows)
        pl.store(total, [k, 0], sums)
        pl.store(pl.sum(row, axis=1), [k], folded)


def test_a_row_beyond_its_tensor_stays_empty_in_a_loop() -> None:
    outs = np.full((5, 8), 7, np.float32), np.full((5, 1), 7, np.float32), np.full(5, 7, np.float32)
    agree(carried, normal(2, 8), *outs)


@pto.jit
def met(x: pl.Tensor, y: pl.Tensor, sums: pl.Tensor, added: pl.Tensor):
    for k in pl.range(3, parallel=True):
        row = pl.load(y, [k, 0], [1, 8])
        pl.store(pl.load(x, [k, 0], [1, 8]) + row, [k, 0], sums)
        total = pl.zeros([1, 8], pl.f32)
        for _ in range(2):
            total = total + row
        pl.store(total, [k, 0], added)


@pytest.mark.parametrize("rows", [(3, 1), (1, 2)])
def test_a_row_that_meets_one_beyond_its_tensor_is_empty(rows: tuple[int, int]) -> None:
    outs = np.full((4, 8), 7, np.float32), np.full((4, 8), 7, np.float32)
    agree(met, *(normal(n, 8) for n in rows), *outs)


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: pl.stack([a, b], axis=1),
        lambda a, b: pl.reshape(pl.concat([a, b], axis=1), [1, 2, 8]),
    ],
)
def test_a_row_does_not_stand_next_to_one_beyond_its_tensor(join: Callable[[Any, Any], Any]) -> None:
    @pto.jit
    def kernel(x, y, out):
        for k in pl.range(3, parallel=True):
            pl.store(join(pl.load(x, [k, 0], [1, 8]), pl.load(y, [k, 0], [1, 8])), [k, 0, 0], out)

    agree(kernel, normal(3, 8), normal(3, 8), np.zeros((3, 2, 8), np.float32))
    args = normal(3, 8), normal(2, 8), np.zeros((3, 2, 8), np.float32)
    for run in (kernel, lambda *args: emulate(kernel.compile(*args, target="cuda"), *args)):
        with pytest.raises(pto.LaunchError, match="valid"):
            run(*args)


@pytest.mark.parametrize(
    "element", [lambda t: t[:, 0][0], lambda t: pl.max(t, axis=1)[0], lambda t: pl.sum(t, axis=1, keepdims=True)[0, 0]]
)
def test_a_row_beyond_its_tensor_has_no_element(element: Callable[[Any], Any]) -> None:
    @pto.jit
    def kernel(x, out):
        for k in pl.range(2, parallel=True):
            out[k] = element(pl.load(x, [k, 0], [1, 8]))

    agree(kernel, normal(2, 8), np.zeros(2, np.float32))
    args = normal(1, 8), np.zeros(2, np.float32)
    for run in (kernel, lambda *args: emulate(kernel.compile(*args, target="cuda"), *args)):
        with pytest.raises(pto.BoundsError, match="index 0 is outside the 0 valid elements of axis 0"):
            run(*args)


@pto.jit
def outer(x: pl.Tensor, y: pl.Tensor, products: pl.Tensor, shifted: pl.Tensor):
    for k in pl.range(3, parallel=True):
        column = pl.load(x, [0, k], [8, 1])
        pl.store(column @ pl.load(y, [k, 0], [1, 6]), [8 * k, 0], products)
        pl.store(pl.dot(column, pl.full([1, 6], float("inf"), pl.f32), pl.ones([8, 6])), [8 * k, 0], shifted)


def test_a_product_of_what_lies_beyond_tensors_is_zero() -> None:
    outs = np.full((24, 6), 7, np.float32), np.full((24, 6), 7, np.float32)
    agree(outer, normal(8, 2) ** 2 + 1, normal(2, 6), *outs)
    with pytest.raises(pto.LaunchError, match="differ along axis of the contraction: 0 and 1"):
        args = normal(8, 1), normal(2, 6), *outs
        emulate(outer.compile(*args, target="cuda"), *args)

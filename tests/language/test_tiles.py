# SPDX-License-Identifier: MIT
"""Partial tiles, generated tiles, structure, tensors and their views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit.language as pl
from pto_jit.errors import BoundsError, KernelAssertionError, LaunchError, ShapeError, TypeMismatchError
from pto_jit.language._tile import tensor

X = np.arange(30, dtype=np.float32).reshape(5, 6)


def partial() -> pl.Tile:
    """Declared (4, 4), valid (2, 3)."""
    return pl.load(X, [3, 3], [4, 4])


def test_a_partial_tile_is_clipped_at_the_border() -> None:
    t = partial()
    assert t.shape == (4, 4) and pl.valid_shape(t) == (2, 3) and t.dtype == pl.f32 and t.ndim == 2 and t.size == 16
    np.testing.assert_array_equal(t.numpy(), X[3:7, 3:7])


def test_a_load_beyond_the_border_is_empty() -> None:
    t = pl.load(X, [9, 0], [4, 6])
    assert t.shape == (4, 6) and pl.valid_shape(t) == (0, 6)
    assert pl.sum(t) == 0 and pl.max(t) == -np.inf


def test_a_padded_load_is_valid_everywhere() -> None:
    t = pl.load(X, [3, 3], [4, 4], pad=-1)
    assert pl.valid_shape(t) == (4, 4)
    np.testing.assert_array_equal(t.numpy(), np.pad(X[3:, 3:], ((0, 2), (0, 1)), constant_values=-1))


def test_a_loaded_tile_is_a_copy() -> None:
    x = X.copy()
    t = pl.load(x, [0, 0], [2, 2])
    x[:] = 0
    np.testing.assert_array_equal(t.numpy(), X[:2, :2])


def test_operations_mean_what_numpy_means_on_the_valid_part() -> None:
    t, v = partial(), X[3:, 3:]
    np.testing.assert_array_equal((t * t + 1).numpy(), v * v + 1)
    np.testing.assert_array_equal(pl.sum(t, axis=1).numpy(), v.sum(1))
    assert (
        pl.sum(t, axis=1).shape == (4,) and pl.mean(t) == v.mean() and pl.max(t, axis=0, keepdims=True).shape == (1, 4)
    )
    np.testing.assert_array_equal((t - pl.max(t, axis=1, keepdims=True)).numpy(), v - v.max(1, keepdims=True))
    np.testing.assert_array_equal(pl.sort(t, descending=True).numpy(), -np.sort(-v))
    np.testing.assert_array_equal(pl.cumsum(t, reverse=True).numpy(), v[:, ::-1].cumsum(1)[:, ::-1])
    np.testing.assert_array_equal(pl.flip(t, 1).numpy(), v[:, ::-1])
    np.testing.assert_array_equal(t.T.numpy(), v.T)
    np.testing.assert_array_equal((t @ t.T).numpy(), v @ v.T)
    best, where = pl.topk(t, 4)
    assert best.shape == (4, 4) and pl.valid_shape(best) == (2, 3) and where.dtype == pl.i32


def test_the_flat_index_of_a_partial_tile_counts_declared_elements() -> None:
    assert pl.argmax(partial()) == 1 * 4 + 2


def test_a_generated_tile_fits_any_valid_extent() -> None:
    t = partial()
    for generated in (pl.zeros([4, 4], pl.f32), pl.arange(0, 4, dtype=pl.f32), pl.full([4, 1], 2.0, pl.f32) + 1):
        for result in (t + generated, generated + t):
            assert result.shape == (4, 4) and pl.valid_shape(result) == (2, 3)
    rows = pl.expand_dims(pl.arange(0, 4), 1)
    mask = rows >= pl.arange(0, 4)
    np.testing.assert_array_equal(pl.where(mask, t, 0).numpy(), np.tril(np.pad(X[3:, 3:], 0)))


def test_an_accumulator_takes_the_extents_of_what_is_added() -> None:
    acc: Any = pl.zeros([4, 4], pl.f32)
    for k in range(0, 6, 3):
        acc += pl.dot(pl.load(X, [3, k], [4, 3]), pl.load(X.T.copy(), [k, 3], [3, 4]))
    np.testing.assert_array_equal(acc.numpy(), (X[3:] @ X.T)[:, 3:])
    assert acc.shape == (4, 4) and pl.valid_shape(acc) == (2, 2)


def test_a_narrower_tile_does_not_go_with_a_wider_accumulator() -> None:
    acc = pl.zeros([5, 4], pl.f32) + pl.load(X, [0, 0], [5, 4])
    with pytest.raises(LaunchError, match=r"valid extents 2 and 4(.|\n)*pad=value") as caught:
        acc + pl.load(X, [0, 4], [5, 4])
    assert isinstance(caught.value, ShapeError)
    np.testing.assert_array_equal((acc + pl.load(X, [0, 4], [5, 4], pad=0)).numpy()[:, :2], X[:, :2] + X[:, 4:])


def test_unequal_contractions_are_refused_with_the_same_advice() -> None:
    with pytest.raises(LaunchError, match=r"valid contracted(.|\n)*pad=value"):
        pl.dot(pl.load(X, [0, 3], [5, 4]), pl.load(X, [0, 0], [4, 4]))


def test_declared_extents_must_agree_even_when_valid_ones_do() -> None:
    with pytest.raises(ShapeError, match="declared extents 3 and 4"):
        pl.load(X, [0, 3], [5, 3]) + pl.load(X, [0, 3], [5, 4])


def test_an_empty_broadcast_axis_leaves_nothing() -> None:
    nothing = pl.load(X, [5, 0], [1, 6])
    result = pl.load(X) + nothing
    assert result.shape == (5, 6) and pl.valid_shape(result) == (0, 6)


def test_what_would_leave_a_hole_is_refused() -> None:
    t = partial()
    for bad in (
        lambda: pl.reshape(t, [16]),
        lambda: pl.concat([t, t], axis=0),
        lambda: pl.squeeze(pl.load(X, [5, 0], [1, 6]), 0),
    ):
        with pytest.raises(BoundsError, match="pad=value"):
            bad()
    assert pl.reshape(t, [1, 4, 1, 4]).shape == (1, 4, 1, 4)
    assert pl.valid_shape(pl.reshape(t, [4, 1, 4])) == (2, 1, 3)
    whole = pl.load(X, [0, 3], [2, 4])
    assert pl.valid_shape(pl.concat([whole, t], axis=0)) == (4, 3)


def test_store_writes_the_valid_part_and_clips() -> None:
    y = np.zeros((5, 6), np.float32)
    pl.store(partial() + 0, [3, 3], y)
    np.testing.assert_array_equal(y, np.where(np.logical_and.outer(np.arange(5) >= 3, np.arange(6) >= 3), X, 0))
    pl.store(pl.full([4, 4], 7.0, pl.f32), [4, 5], y)
    assert (y == 7).sum() == 1 and y[4, 5] == 7
    pl.store(pl.full([2, 2], 3.0, pl.f64), ..., y[:1, :1])
    assert y[0, 0] == 3
    pl.store(pl.full([5, 6], 1.7, pl.f32), pl.slice(y, [5, 6], [0, 0]))
    assert (y == np.float32(1.7)).all()
    z = np.zeros(2, np.int8)
    pl.store(np.array([300.0, np.nan]), [0], z)
    np.testing.assert_array_equal(z, [127, 0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: pl.load(X, [-1, 0], [2, 2]),
        lambda: pl.load(X, [0], [2, 2]),
        lambda: pl.load(X, [0, 0], [2]),
        lambda: pl.load(X, [0, 0], [-2, 2]),
        lambda: pl.store(pl.zeros([2]), [0, 0], X.copy()),
        lambda: pl.store(pl.zeros([2, 2]), [0, -1], X.copy()),
        lambda: pl.slice(X, [2, 2], [-1, 0]),
        lambda: pl.slice(X, [2], [0]),
        lambda: pl.zeros([-1]),
    ],
)
def test_negative_offsets_and_wrong_ranks_are_shape_errors(call: Any) -> None:
    with pytest.raises(ShapeError):
        call()


def test_a_negative_offset_is_also_a_bounds_error() -> None:
    with pytest.raises(BoundsError, match="negative"):
        pl.load(X, [-1, 0], [2, 2])


# -- tensors ------------------------------------------------------------------------------------------------------


def test_a_view_past_the_end_keeps_its_declared_extent() -> None:
    x: Any = tensor(X.copy())
    view: Any = x[3:7, :]
    assert view.shape == (4, 6) and np.asarray(view).shape == (2, 6)
    t = view * 2
    assert isinstance(t, pl.Tile) and t.shape == (4, 6) and pl.valid_shape(t) == (2, 6)
    assert (view + pl.zeros([4, 6], pl.f32)).shape == (4, 6)
    assert pl.load(view).shape == (4, 6) and view.T.declared == (6, 4) and x[3:7, 0].declared == (4,)
    np.testing.assert_array_equal(x[1:3, 2], X[1:3, 2])
    np.testing.assert_array_equal(x[..., -1], X[:, -1])
    np.testing.assert_array_equal(x[1], X[1])


def test_views_alias_and_element_access_reads_and_writes() -> None:
    array = X.copy()
    x = tensor(array)
    x[1:3, 2:4][0, 0] = 99
    assert array[1, 2] == 99
    x[0, 0] += 5
    assert array[0, 0] == 5 and type(x[0, 0]) is np.float32
    pl.slice(x, [2, 6], [4, 0])[...] = pl.full([2, 6], 1.0, pl.f32)
    np.testing.assert_array_equal(array[4], np.ones(6))
    x[0:2, :] += pl.full([2, 6], 10.0, pl.f32)
    np.testing.assert_array_equal(array[1, 3:], X[1, 3:] + 10)
    for index in ((5, 0), (0, -7)):
        with pytest.raises(BoundsError):
            x[index]


def test_assignment_to_a_region_broadcasts_casts_and_clips() -> None:
    y = tensor(np.zeros((5, 6), np.int32))
    y[1:3, :] = pl.load(np.array([[1.9, -1.9, 2, 3, 4, 5]]))
    np.testing.assert_array_equal(y[1:3].view(np.ndarray), [[1, -1, 2, 3, 4, 5]] * 2)
    y[3:7, 0:2] = pl.full([4, 2], 8, pl.i32)
    np.testing.assert_array_equal(y.view(np.ndarray)[3:, :3], [[8, 8, 0]] * 2)
    y[0] = 3
    assert (y.view(np.ndarray)[0] == 3).all()
    y[4, :] = np.arange(6)
    np.testing.assert_array_equal(y.view(np.ndarray)[4], np.arange(6))
    with pytest.raises(ShapeError):
        y[0:2, :] = pl.load(np.zeros((3, 6), np.int32))
    with pytest.raises(TypeMismatchError):
        y[0, 0] = pl.zeros([2, 2])


def test_augmented_assignment_of_a_view_changes_its_elements_and_of_a_tile_makes_a_value() -> None:
    array = X.copy()
    row = tensor(array)[0]
    row += 1
    np.testing.assert_array_equal(array[0], X[0] + 1)
    np.testing.assert_array_equal(np.asarray(row), X[0] + 1)
    old = new = pl.load(row)
    new *= 2
    np.testing.assert_array_equal(np.asarray(old), X[0] + 1)
    np.testing.assert_array_equal(np.asarray(new), 2 * X[0] + 2)


def test_indirect_access() -> None:
    x = tensor(X.copy())
    index = pl.load(np.array([[4, 0], [1, 1]], np.int32))
    np.testing.assert_array_equal(x[index, :].numpy(), np.take(X, [[4, 0], [1, 1]], 0))
    np.testing.assert_array_equal(x[:, pl.load(np.array([5, 2]))].numpy(), X[:, [5, 2]])
    with pytest.raises(BoundsError, match="outside"):
        x[pl.load(np.array([5]))]
    with pytest.raises(TypeMismatchError, match="index tile"):
        x[pl.load(np.array([0.0]))]
    t = pl.load(X)
    where = np.array([[1], [0], [5], [2], [2]])
    np.testing.assert_array_equal(pl.gather(t, where, 1).numpy(), np.take_along_axis(X, where, 1))
    y = np.zeros((5, 6), np.float32)
    pl.scatter(pl.full([5, 1], 2.0, pl.f32), where, 1, y)
    expected = np.zeros((5, 6), np.float32)
    np.put_along_axis(expected, where, 2.0, 1)
    np.testing.assert_array_equal(y, expected)
    with pytest.raises(BoundsError):
        pl.scatter(pl.zeros([1, 1]), np.array([[6]]), 1, y)


@pytest.mark.parametrize("dtype", [pl.f16, pl.bf16, pl.f32, pl.f64, pl.i32, pl.u8], ids=str)
def test_atomics_combine_and_clip(dtype: pl.DType) -> None:
    x = np.arange(4).astype(dtype.numpy)
    pl.atomic_add(x, [2], np.array([10, 10, 10]).astype(dtype.numpy))
    np.testing.assert_array_equal(x.astype(float), [0, 1, 12, 13])
    pl.atomic_max(x, [0], np.array([5, 0]).astype(dtype.numpy))
    pl.atomic_min(x, [2], pl.full([2], 12, dtype))
    pl.atomic_add(x, [1], 3)
    np.testing.assert_array_equal(x.astype(float), [5, 4, 12, 12])


# -- structure ----------------------------------------------------------------------------------------------------


def test_slices_of_tiles_are_values() -> None:
    t = pl.load(X)
    np.testing.assert_array_equal(t[1:3, 2:].numpy(), X[1:3, 2:])
    np.testing.assert_array_equal(t[-2:, :-1].numpy(), X[-2:, :-1])
    np.testing.assert_array_equal(t[2].numpy(), X[2])
    np.testing.assert_array_equal(t[:, None, 3].numpy(), X[:, None, 3])
    np.testing.assert_array_equal(t[..., 0:1].numpy(), X[:, :1])
    assert t[1, 2] == X[1, 2] and type(t[1, 2]) is np.float32 and len(t) == 5
    part = partial()[1:4, 2:]
    assert part.shape == (3, 2) and pl.valid_shape(part) == (1, 1)
    for bad, error in (
        (lambda: t[5, 0], BoundsError),
        (lambda: partial()[3, 0], BoundsError),
        (lambda: t[::2], ShapeError),
        (lambda: t[0, 0, 0], ShapeError),
        (lambda: t[pl.arange(2)], TypeMismatchError),
    ):
        with pytest.raises(error):
            bad()
    with pytest.raises(TypeMismatchError, match="tiles are values"):
        t[0, 0] = 1.0


def test_a_tile_is_neither_a_number_nor_a_condition() -> None:
    t = pl.load(np.ones(1))
    for bad in (bool, float, int):
        with pytest.raises(TypeMismatchError):
            bad(t)


def test_structure_agrees_with_numpy() -> None:
    t = pl.load(X)
    np.testing.assert_array_equal(pl.reshape(t, [3, -1]).numpy(), X.reshape(3, -1))
    np.testing.assert_array_equal(pl.reshape(X, [6, 5]), X.reshape(6, 5))
    cube = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal(pl.transpose(pl.load(cube), [1, 2, 0]).numpy(), cube.transpose(1, 2, 0))
    np.testing.assert_array_equal(pl.concat([t, t], 1).numpy(), np.concatenate([X, X], 1))
    assert pl.concat([t, pl.load(X.astype(np.float64))]).dtype == pl.f64
    np.testing.assert_array_equal(pl.stack([t, t], -1).numpy(), np.stack([X, X], -1))
    for ours, theirs in zip(pl.split(t, 3), np.split(X, 3, -1), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)
    np.testing.assert_array_equal(
        pl.broadcast_to(pl.load(X[:, :1]), [2, 5, 3]).numpy(), np.broadcast_to(X[:, :1], (2, 5, 3))
    )
    np.testing.assert_array_equal(pl.flip(t).numpy(), X[::-1, ::-1])
    np.testing.assert_array_equal(pl.expand_dims(t, (0, 2)).numpy(), np.expand_dims(X, (0, 2)))
    assert pl.squeeze(pl.expand_dims(t, 1)).shape == (5, 6) and pl.squeeze(pl.load(np.ones((1, 1)))) == 1
    for bad in (
        lambda: pl.reshape(t, [7, 7]),
        lambda: pl.split(t, 4),
        lambda: pl.concat([]),
        lambda: pl.squeeze(t, 0),
        lambda: pl.transpose(t, [0, 0]),
        lambda: pl.broadcast_to(t, [5, 7]),
        lambda: pl.stack([t, pl.load(X[:4])]),
        lambda: pl.reshape(X, [-1, 7]),
    ):
        with pytest.raises(ShapeError):
            bad()


def test_structure_of_partial_tiles_keeps_valid_extents() -> None:
    t = partial()
    assert pl.valid_shape(pl.stack([t, t])) == (2, 2, 3)
    assert pl.valid_shape(pl.broadcast_to(pl.expand_dims(t, 0), [5, 4, 4])) == (5, 2, 3)
    assert [pl.valid_shape(p) for p in pl.split(t, 2)] == [(2, 2), (2, 1)]
    assert pl.valid_shape(pl.transpose(t)) == (3, 2)


def test_new_tensors_and_ranges() -> None:
    for made, expected in (
        (pl.zeros([2, 3], pl.i8), np.zeros((2, 3), np.int8)),
        (pl.ones([2]), np.ones(2, np.float32)),
        (pl.full([2], 3), np.full(2, 3)),
        (pl.full([1], 300, pl.u8), np.array([44], np.uint8)),
    ):
        np.testing.assert_array_equal(made, expected)
        assert made.dtype == expected.dtype
    np.testing.assert_array_equal(pl.arange(5).numpy(), np.arange(5))
    np.testing.assert_array_equal(pl.arange(10, 0, -3).numpy(), np.arange(10, 0, -3))
    np.testing.assert_array_equal(pl.arange(0, 1, 0.25, dtype=pl.f32).numpy(), np.arange(0, 1, 0.25))
    assert pl.arange(3, 1).shape == (0,) and pl.arange(3).dtype == pl.i32
    with pytest.raises(ShapeError):
        pl.arange(0, 3, 0)


def test_a_tensor_stops_being_generated_when_it_is_written() -> None:
    y = pl.zeros([4], pl.f32)
    assert (y + pl.load(np.ones(2, np.float32), [0], [4])).shape == (4,)
    pl.store(pl.ones([4]), [0], y)
    with pytest.raises(LaunchError):
        y + pl.load(np.ones(2, np.float32), [0], [4])


def test_a_tile_prints_formats_and_converts() -> None:
    t = pl.load(np.array([1.5, 2.0]), [0], [3])
    assert repr(t) == "Tile([1.5, 2. ], pl.f64, shape=(3,))"
    assert f"{t}" == "[1.5 2. ]"
    np.testing.assert_array_equal(np.asarray(t), [1.5, 2])
    assert np.max(np.sqrt(t)) == np.sqrt(2.0)


def test_printing_and_assertions(capsys: pytest.CaptureFixture[str]) -> None:
    pl.print("{:>4} {}", 3, np.float32(0.5))
    assert capsys.readouterr().out == "   3 0.5\n"
    pl.assert_(pl.load(np.ones(2)) > 0, "positive")
    with pytest.raises(KernelAssertionError, match="positive"):
        pl.assert_(pl.load(np.array([1, -1])) > 0, "positive")

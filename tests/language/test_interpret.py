# SPDX-License-Identifier: MIT
"""Interpret mode: the original function on NumPy."""

from __future__ import annotations

import types
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import LaunchError
from pto_jit.language._interpret import active, run
from tests.differential.programs import generate
from tests.targets.c.harness import needs_compiler


def test_slices_past_the_end_are_partial_tiles() -> None:
    def kernel(x: Any, y: Any) -> None:
        for r in pl.range(0, x.shape[0], 4):
            acc = pl.zeros([4, 3], pl.f32)
            acc += x[r : r + 4, :]
            y[r : r + 4, :] = acc * 2

    x, y = np.arange(21, dtype=np.float32).reshape(7, 3), np.zeros((7, 3), np.float32)
    run(kernel, (x, y), {})
    np.testing.assert_array_equal(y, 2 * x)


@pto.jit
def held(x: Any, y: Any) -> None:
    """An index with None loads: the tile holds what memory held then; a slice is a view."""
    column, view = x[0][:, None], x[0]
    x[...] = 7.0
    y[...] = column
    y[:, 0] = view


@pytest.mark.parametrize("call", [held, held.interpret], ids=["compiled", "interpreted"])
def test_an_index_with_none_holds_what_memory_held(call: Any) -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((4, 3), np.float32)
    call(x, y)
    np.testing.assert_array_equal(y, np.stack([[7, 7, 7, 7], range(4), range(4)], axis=1))


def test_results_are_plain_arrays_and_numbers() -> None:
    def kernel(x: Any) -> Any:
        y = pl.zeros([2], pl.f32)
        pl.store(pl.load(x) + 1, [0], y)
        return y, x[0], pl.load(x) * 3, pl.max(x)

    made, element, tile, top = run(kernel, (np.array([1, 2], np.float32),), {})
    assert type(made) is np.ndarray and type(tile) is np.ndarray and type(element) is float and top == 2.0
    np.testing.assert_array_equal(made, [2, 3])


def test_arrays_inside_containers_are_tensors_and_other_containers_are_untouched() -> None:
    seen: list[Any] = []
    plain = [1, 2]

    def kernel(pair: Any, table: Any, other: Any) -> None:
        seen.extend([pair[0], table["x"], other])

    run(kernel, ((np.zeros(2), 1), {"x": np.zeros(2)}, plain), {})
    assert isinstance(seen[0], pl.Tensor) and isinstance(seen[1], pl.Tensor) and seen[2] is plain


def test_parallel_iterations_run_in_an_order_that_the_seed_chooses() -> None:
    def kernel(order: list[int]) -> None:
        for i in pl.range(8, parallel=True):
            order.append(int(i))

    results = set()
    for seed in range(5):
        order, again = [], []  # type: ignore[var-annotated]
        run(kernel, (order,), {}, seed=seed)
        run(kernel, (again,), {}, seed=seed)
        assert order == again and sorted(order) == list(range(8))
        results.add(tuple(order))
    assert len(results) > 1


def test_the_context_is_left_as_it_was_also_after_an_error() -> None:
    def kernel() -> None:
        assert active()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run(kernel, (), {})
    assert not active()


def test_what_is_computed_of_tensors_is_a_value() -> None:
    """An augmented assignment gives a name another value; who has the old one keeps it, as in compiled code."""

    def doubled(t: Any) -> Any:
        t *= 2
        return t

    def kernel(x: Any, y: Any) -> None:
        t = x[0, 0:4] + 1
        kept, part = (t, [t]), t[1:3]
        t += 10
        part -= 5
        y[0], y[1], y[2], y[3, 0:2] = t, kept[0], doubled(kept[1][0]), part
        y[4] = kept[0]

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    wanted, got = (np.zeros((5, 4), np.float32) for _ in range(2))
    pto.jit(kernel)(x, wanted)
    run(kernel, (x.copy(), got), {})
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(got[[0, 1, 4]], [x[0] + 11, x[0] + 1, x[0] + 1])


def test_unequal_valid_extents_are_found() -> None:
    def kernel(x: Any) -> None:
        acc = pl.zeros([4], pl.f32)
        for k in pl.range(0, 6, 4):
            acc += x[k : k + 4]

    with pytest.raises(LaunchError, match="pad=value"):
        run(kernel, (np.zeros(6, np.float32),), {})


@pytest.mark.parametrize("batch", range(6))
def test_random_kernels_agree_for_every_order_of_parallel_loops(batch: int) -> None:
    pto = types.SimpleNamespace(jit=lambda fn=None, **_: fn or (lambda f: f), incore=lambda fn: fn)
    for seed in range(batch * 10, batch * 10 + 10):
        program = generate(seed)
        namespace: dict[str, Any] = {"pl": pl, "pto": pto}
        exec(program.source, namespace)
        first, second = program.args, program.args
        run(namespace["kernel"], first, {}, seed=1)
        run(namespace["kernel"], second, {}, seed=2)
        tolerance = {"f32": 2e-4, "f64": 1e-11}.get(program.dtype, 0)
        for a, b in zip(first, second, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=program.source)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_python_numbers_beside_16_bit_elements_have_their_dtype(dtype: type) -> None:
    """Those beside bf16 made it f32."""
    x = np.array([1 / 3, 0.7], dtype)
    for compute in (lambda a: 0.1 + a, lambda a: a * 3, lambda a: 2 / a, lambda a: a > 0.333, lambda a: a % 0.25,
                    lambda a: a**2, lambda a: 1e39 * a, lambda a: a + True):  # fmt: skip
        kernel = pto.jit(lambda x: compute(x[0]), cache=False)
        assert kernel.interpret(x) == kernel(x)


@pytest.mark.parametrize("target", ["cpu", pytest.param("c", marks=needs_compiler)])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_where_16_bit_floats_are_rounded(dtype: type, target: str) -> None:
    """In memory and in results; sums that loops carry are f32, in `interpret` they are rounded each time."""

    @pto.jit(cache=False)
    def kernel(x, y, wide):
        s = 0.0
        for i in pl.range(x.shape[0]):
            s += x[i]
            y[i] = s
        wide[0] = s.to(pl.f32)
        wide[1] = s.to(pl.f32).to(x.dtype).to(pl.f32)
        return s

    x = np.random.default_rng(0).standard_normal(256).astype(dtype)
    y, wide = np.zeros_like(x), np.zeros(2, np.float32)
    result = kernel.compile(x, y, wide, target=target)(x, y, wide)
    sums = np.cumsum(x.astype(np.float32), dtype=np.float32)
    np.testing.assert_array_equal(y, sums.astype(dtype))
    assert wide[0] == sums[-1] and wide[1] == result == np.float32(y[-1])
    rounded = np.zeros((), dtype)
    for value in x:
        rounded = (rounded.astype(np.float32) + value.astype(np.float32)).astype(dtype)
    assert kernel.interpret(x, y, wide) == rounded != result


@pytest.mark.parametrize("reduce", [
    lambda x: x.mean(), lambda x: x.mean(axis=0), lambda x: x.argmax(axis=0), lambda x: x.argmin(axis=1, keepdims=True),
    lambda x: x.sum(), lambda x: x.max(axis=1), lambda x: x.any(),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_methods_of_tensors_are_those_of_tiles(reduce, dtype) -> None:
    x = (np.arange(12) * 7 % 12).astype(dtype).reshape(3, 4)
    expected, found = pto.jit(reduce)(x), pto.jit(reduce).interpret(x)
    assert np.asarray(expected).dtype == np.asarray(found).dtype
    np.testing.assert_array_equal(found, expected)


def test_run_time_bounds_do_not_count_from_the_end() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for cut in (lambda x, n: x[n:], lambda x, n: x[n : n + 2]):
        for sliced in (pto.jit(cut), pto.jit(cut).interpret):
            with pytest.raises(pto.PtoError, match=r"offset -1 .*is negative"):
                sliced(x, -1)
    for cut in (lambda x, n: x[:n], lambda x, n: x[1:n]):
        assert pto.jit(cut)(x, -1).shape == pto.jit(cut).interpret(x, -1).shape == (0, 4)
    assert pto.jit(lambda x: x[-2:]).interpret(x).shape == (2, 4)


def test_a_multiplication_and_addition_that_overflows() -> None:
    large = np.array([1.7e308, -1.7e308])
    assert pl.fma(large, large[::-1].copy(), 1.0).tolist() == [-np.inf, -np.inf]
    assert pl.fma(large, large, 1.0).tolist() == [np.inf, np.inf]


@pto.jit
def compared(x, y, n):
    for i in range(x.shape[0]):
        y[i] = x[i] < n
    return x < n, n < x, x == n, x >= n


@pytest.mark.parametrize("n", [-(2**40), -129, -1, 0, 50, 127, 128, 255, 256, 300, 2**40])
@pytest.mark.parametrize("x", [np.uint8([0, 1, 50, 127, 200, 255]), np.int8([-128, -1, 0, 5, 127]),
                               np.int16([-(2**15), 300, 2**15 - 1])])  # fmt: skip
def test_a_number_keeps_its_value_beside_narrow_integers(x: np.ndarray, n: int) -> None:
    """NumPy compares Python numbers as they are, whether the dtype has them or not."""
    expected = x < n, n < x, x == n, x >= n
    for execute in (compared, compared.interpret):
        y = np.zeros(len(x), bool)
        np.testing.assert_array_equal(np.stack(execute(x, y, n)), np.stack(expected))
        assert y.tolist() == expected[0].tolist()
    assert np.asarray(pl.load(x) < n).tolist() == expected[0].tolist()

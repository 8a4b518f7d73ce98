# SPDX-License-Identifier: MIT
"""Programs that kernel languages embedded by parsing are said not to allow; each compiled and interpreted."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.ir.nodes import For, If, Op
from pto_jit.ir.walk import statements
from tests.metaprogramming import policies
from tests.metaprogramming.agreement import agree

RNG = np.random.default_rng(3)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def count(kernel: Any, args: tuple[Any, ...], kind: type) -> int:
    module = kernel.compile(*args)._lowered().modules["source"]
    return sum(isinstance(s, kind) for s in statements(module.func(module.entry).body))


# -- callables --------------------------------------------------------------------------------------------------


def leaky(x: Any, slope: float = 0.1) -> Any:
    return pl.where(x > 0, x, x * slope)


class Clip:
    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def __call__(self, x: Any) -> Any:
        return pl.clip(x, self.low, self.high)

    def shifted(self, x: Any) -> Any:
        return self(x) + self.low


ACTIVATIONS: dict[str, tuple[Any, Any]] = {
    "lambda": (lambda x: pl.where(x > 0, x, 0), lambda p: np.where(p > 0, p, 0)),
    "function": (leaky, lambda p: np.where(p > 0, p, p * np.float32(0.1))),
    "partial": (functools.partial(leaky, slope=0.5), lambda p: np.where(p > 0, p, p * np.float32(0.5))),
    "nested partial": (
        functools.partial(functools.partial(leaky, slope=0.25)), lambda p: np.where(p > 0, p, p * np.float32(0.25))),
    "instance": (Clip(-1.0, 1.0), lambda p: np.clip(p, -1, 1)),
    "bound method": (Clip(-1.0, 2.0).shifted, lambda p: np.clip(p, -1, 2) - 1),
    "operator": (operator.neg, lambda p: -p),
    "operation": (pl.relu, lambda p: np.maximum(p, 0)),
    "builtin": (abs, np.abs),
    "lambda of a lambda": ((lambda g: lambda x: g(g(x)))(lambda x: x + 1), lambda p: p + 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_epilogue_of_a_matrix_product_is_any_callable(name: str) -> None:
    activation, expected = ACTIVATIONS[name]
    a, b = random(11, 9), random(9, 13)
    _, (_, _, out, _) = agree(policies.matmul, a, b, zeros(11, 13), activation)
    np.testing.assert_allclose(out, expected(a @ b), 1e-4, 1e-5)


def test_each_activation_is_a_specialisation_and_equal_ones_share_it() -> None:
    kernel = pto.jit(policies.matmul.__wrapped__)
    a, b, out = random(4, 4), random(4, 4), zeros(4, 4)
    for k in (2.0, 3.0, 2.0):
        kernel(a, b, out, lambda x: x * k)
        np.testing.assert_allclose(out, (a @ b) * np.float32(k), 1e-4, 1e-5)
    kernel(a, b, out, lambda x: x * 2.0)
    assert len(kernel.specializations()) == 3, "2.0 and 3.0 captured, and a constant"


def make_kernel(scale: float) -> Any:
    @pto.jit
    def kernel(x, y):
        y[...] = x * scale

    return kernel


def test_kernels_of_one_factory_keep_their_own_captures_also_inside_one_kernel() -> None:
    two, three = make_kernel(2.0), make_kernel(3.0)
    x = random(7)
    for kernel, factor in ((two, 2), (three, 3), (two, 2)):
        _, (_, y) = agree(kernel, x, zeros(7))
        np.testing.assert_array_equal(y, x * np.float32(factor))

    @pto.jit
    def both(x, y, z):
        two(x, y)
        three(x, z)

    _, (_, y, z) = agree(both, x, zeros(7), zeros(7))
    np.testing.assert_array_equal(y, x * 2)
    np.testing.assert_array_equal(z, x * 3)


def test_closures_of_one_factory_passed_as_arguments_are_told_apart() -> None:
    def make(s: float) -> Any:
        def f(v: Any) -> Any:
            return v * s

        return f

    @pto.jit
    def kernel(x, y, f, g):
        y[...] = f(x) + g(f(x))

    x = random(5)
    _, (_, y, *_) = agree(kernel, x, zeros(5), make(2.0), make(10.0))
    np.testing.assert_allclose(y, x * 2 + x * 20, 1e-6)
    _, (_, y, *_) = agree(kernel, x, zeros(5), make(10.0), make(2.0))
    np.testing.assert_allclose(y, x * 10 + x * 20, 1e-6)


def test_a_jit_lambda_with_free_variables_on_a_line_with_others() -> None:
    k = 3
    kernels = [pto.jit(lambda x: x * k), pto.jit(lambda x: x - k), pto.jit(lambda x: k - x)]  # fmt: skip
    x = random(6)
    for kernel, expected in zip(kernels, (x * 3, x - 3, 3 - x), strict=True):
        got, _ = agree(kernel, x)
        np.testing.assert_array_equal(got, expected)


# -- higher-order operations ------------------------------------------------------------------------------------


@pto.jit
def folded(x, out, combine):
    rows, cols = x.shape
    t = pl.load(x, [0, 0], [rows, cols])
    out[...] = pl.reduce(t, 1, combine)


@pto.jit
def scanned(x, out, combine):
    out[...] = pl.associative_scan(pl.load(x), 1, combine)


COMBINES: dict[str, tuple[Any, Any]] = {
    "lambda": (lambda a, b: a + b, np.add),
    "operator": (operator.mul, np.multiply),
    "builtin": (max, np.maximum),
    "operation": (pl.minimum, np.minimum),
    "conditional": (lambda a, b: a if a > b else b, np.maximum),
    "partial": (functools.partial(lambda sign, a, b: sign * pl.maximum(sign * a, sign * b), -1.0), np.minimum),
}


@pytest.mark.parametrize("name", COMBINES)
def test_reduce_and_scan_take_any_combine_function_through_an_argument(name: str) -> None:
    combine, reference = COMBINES[name]
    x = random(3, 8)
    _, (_, out, _) = agree(folded, x, zeros(3), combine)
    np.testing.assert_allclose(out, reference.reduce(x, axis=1), 1e-5)
    _, (_, out, _) = agree(scanned, x, zeros(3, 8), combine)
    np.testing.assert_allclose(out, reference.accumulate(x, axis=1), 1e-4)


def make_argmax(tie_break_left: bool) -> Any:
    """One function for both ways of breaking ties, which elsewhere takes two."""

    def combine(a: Any, b: Any) -> Any:
        (value_a, index_a), (value_b, index_b) = a, b
        better = value_a > value_b
        if tie_break_left:
            better = pl.where(value_a == value_b, index_a < index_b, better)
        else:
            better = pl.where(value_a == value_b, index_a > index_b, better)
        return pl.where(better, value_a, value_b), pl.where(better, index_a, index_b)

    return combine


@pytest.mark.parametrize("left", [True, False])
def test_a_combine_function_of_tuples_is_made_by_a_factory(left: bool) -> None:
    @pto.jit
    def argmax(x, values, indices, combine):
        rows, cols = x.shape
        t = pl.load(x, [0, 0], [rows, 6])
        places = pl.broadcast_to(pl.expand_dims(pl.arange(0, 6), 0), [rows, 6])
        best, at = pl.reduce((t, places), 1, combine)
        pl.store(best, [0], values)
        pl.store(at, [0], indices)

    x = np.array([[1, 5, 2, 5, 0, 5], [3, 3, 3, 3, 3, 3], [9, 1, 1, 1, 1, 9]], np.float32)
    _, (_, values, indices, _) = agree(argmax, x, zeros(3), np.zeros(3, np.int32), make_argmax(left))
    np.testing.assert_array_equal(values, x.max(axis=1))
    np.testing.assert_array_equal(indices, [1, 0, 0] if left else [5, 5, 5])


def test_a_combine_function_captures_a_run_time_value() -> None:
    @pto.jit
    def decayed(x, out, decay: float):
        def combine(a: Any, b: Any) -> Any:
            return a[0] * b[0], b[0] * a[1] + b[1]

        t = pl.load(x)
        rates = pl.full([1, 6], 1.0, pl.f32) * decay
        out[...] = pl.associative_scan((rates, t), 1, combine)[1]

    @pto.jit
    def biased(x, out, bias: float):
        out[...] = pl.reduce(pl.load(x), 1, lambda a, b: pl.maximum(a, b) + bias * 0)

    x = random(1, 6)
    _, (_, out, _) = agree(decayed, x, zeros(1, 6), 0.5)
    expected, total = [], 0.0
    for v in x[0]:
        total = total * 0.5 + float(v)
        expected.append(total)
    np.testing.assert_allclose(out[0], expected, 1e-5)
    _, (_, top, _) = agree(biased, x, zeros(1), 2.0)
    np.testing.assert_allclose(top, x.max(axis=1))


def test_map_takes_a_scalar_function_with_control_flow() -> None:
    def steps(v: Any, limit: Any) -> Any:
        n = 0
        while v > 1 and n < limit:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            n += 1
        return n

    @pto.jit
    def collatz(x, out, limit: int):
        out[...] = pl.map(lambda v: steps(v, limit), pl.load(x))

    x = np.arange(1, 20)
    _, (_, out, _) = agree(collatz, x, np.zeros(19, np.int64), 50)
    assert out.tolist() == [_collatz(int(v)) for v in x]


def _collatz(v: int) -> int:
    n = 0
    while v > 1:
        v = v // 2 if v % 2 == 0 else 3 * v + 1
        n += 1
    return n


# -- compile-time Python ----------------------------------------------------------------------------------------


@pto.jit
def ladder(source, target, length: int, block: pl.constexpr):
    """Copy `length` rows (1 to `block`) with stores whose sizes are compile-time powers of two."""
    cols = source.shape[1]
    start = 0
    remaining = block
    while remaining > 0:
        rows = 1 << int(math.log2(remaining))
        remaining //= 2
        if length & rows != 0:
            pl.store(pl.load(source, [start, 0], [rows, cols]), [start, 0], target)
        start += length & rows


@pytest.mark.parametrize("length", range(9))
def test_the_logarithmic_ladder_of_guarded_stores(length: int) -> None:
    source = random(8, 3)
    _, (_, target, *_) = agree(ladder, source, zeros(8, 3), length, 8)
    np.testing.assert_array_equal(target[:length], source[:length])
    assert not target[length:].any()


def rows_of_stores(*args: Any) -> list[Any]:
    """The rows of the tiles that the ladder stores, in order."""
    module = ladder.compile(*args)._lowered().modules["source"]
    found = [s for s in statements(module.func(module.entry).body) if isinstance(s, Op) and s.op == "store"]
    return [s.args[0].type.shape[0] for s in found]  # type: ignore[union-attr]


def test_the_ladder_emits_one_store_of_each_size_under_a_run_time_test() -> None:
    args = (random(8, 3), zeros(8, 3), 5, 8)
    assert rows_of_stores(*args) == [8, 4, 2, 1]
    assert rows_of_stores(*args[:3], 16) == [16, 8, 4, 2, 1]
    assert count(ladder, args, If) == 4 and count(ladder, args, For) == 0


@pytest.mark.parametrize("causal", [False, True])
def test_one_source_for_causal_and_full_attention(causal: bool) -> None:
    q, k, v = random(10, 5), random(10, 5), random(10, 5)
    _, (*_, out, _) = agree(policies.attention, q, k, v, zeros(10, 5), causal)
    scores = q @ k.T
    if causal:
        scores = np.where(np.tri(10, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, weights / weights.sum(axis=1, keepdims=True) @ v, 1e-4, 1e-5)


def test_the_loops_of_the_untaken_mask_are_not_compiled() -> None:
    args = (random(10, 5), random(10, 5), random(10, 5), zeros(10, 5))
    assert count(policies.attention, (*args, False), For) == 2
    assert count(policies.attention, (*args, True), For) == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8])
def test_dtype_generic_code_branches_on_dtypes(dtype: Any) -> None:
    lowest = {pl.i32: -(2**31), pl.u8: 0}

    @pto.jit
    def top(x):
        wide = pl.f32 if x.dtype in (pl.f16, pl.bf16) else x.dtype
        start = -math.inf if wide.is_float else lowest[wide]
        acc = pl.full([1], start, wide)
        for i in pl.range(0, x.shape[0], 4):
            acc = pl.maximum(acc, pl.max(pl.load(x, [i], [4]).to(wide), keepdims=True))
        return acc.to(x.dtype)

    x = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], np.int64).astype(dtype)
    got, _ = agree(top, x)
    assert got.dtype == x.dtype and got.tolist() == [9]


@dataclasses.dataclass(frozen=True)
class Tiling:
    rows: int
    cols: int = 4
    stages: tuple[str, ...] = ("scale",)

    @property
    def shape(self) -> list[int]:
        return [self.rows, self.cols]

    def blocks(self, n: int) -> int:
        return -(-n // self.rows)


@pytest.mark.parametrize("config", [Tiling(2), Tiling(3, 5, ("scale", "shift")), Tiling(4, 2, ())])
def test_configuration_is_a_dataclass(config: Tiling) -> None:
    table = {"scale": lambda t, o: t * o["factor"], "shift": lambda t, o: t + o["offset"]}

    @pto.jit
    def kernel(x, y, config, options):
        for i in pl.range(config.blocks(12)):
            for j in pl.range(0, x.shape[1], config.cols):
                t = pl.load(x, [i * config.rows, j], config.shape)
                for name in config.stages:
                    t = table[name](t, options)
                pl.store(t, [i * config.rows, j], y)

    x = random(12, 7)
    _, (_, y, *_) = agree(kernel, x, zeros(12, 7), config, {"factor": 2.0, "offset": 1.0})
    expected = x
    for name in config.stages:
        expected = expected * 2 if name == "scale" else expected + 1
    np.testing.assert_allclose(y, expected, 1e-6)


def test_stages_of_a_library_kernel_are_given_as_functions_of_any_kind() -> None:
    x = random(3, 6)
    stages = (lambda t: t - pl.max(t, axis=1, keepdims=True), pl.exp, functools.partial(operator.mul, 2.0))
    _, (_, y, *_) = agree(policies.rowwise, x, zeros(3, 6), *stages)
    np.testing.assert_allclose(y, np.exp(x - x.max(axis=1, keepdims=True)) * 2, 1e-5)
    _, (_, y, *_) = agree(policies.rowwise, x, zeros(3, 6))
    np.testing.assert_array_equal(y, x)


@dataclasses.dataclass
class Storage:
    """Tensors and settings side by side, as shared storage in other languages."""

    values: np.ndarray
    scratch: np.ndarray
    offset: int = 1

    def row(self, r: Any) -> Any:
        return pl.load(self.values, [r, 0], [1, 4])


def test_objects_work_the_same_inside_a_run_time_branch_and_outside_it() -> None:
    @pto.jit
    def kernel(storage, out, n: int):
        before = storage.row(0)
        if n > storage.offset:
            pl.store(storage.row(n) + before, [0, 0], storage.scratch)
            for r in pl.range(n):
                if r % 2 == 0:
                    pl.store(storage.row(r), [r, 0], out)
        else:
            pl.store(storage.row(1), [0, 0], storage.scratch)

    values = random(4, 4)
    for n in (3, 0):
        storage, out = Storage(values.copy(), zeros(1, 4)), zeros(4, 4)
        kernel(storage, out, n)
        again, expected = Storage(values.copy(), zeros(1, 4)), zeros(4, 4)
        kernel.interpret(again, expected, n)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(storage.scratch, again.scratch)
        np.testing.assert_array_equal(storage.scratch[0], values[3] + values[0] if n else values[1])


def test_static_structure_is_iterated_in_every_way_python_has() -> None:
    @pto.jit
    def kernel(x, y):
        tiles = [pl.load(x, [k * 2], [2]) for k in range(4)]
        first, *rest = tiles
        total = first * 0
        for k, (t, weight) in enumerate(zip(reversed(tiles), (1, 2, 3, 4), strict=True)):
            total += t * weight + k
        for name, t in {"a": first, "b": rest[-1]}.items():
            total = total + t if name == "a" else total - t
        for v in (1, 2.5):
            total = total * v
        pl.store(total + sum(rest) + max(1, 2), [0], y)
        y[2] = len(rest)

    x = random(8)
    _, (_, y) = agree(kernel, x, zeros(3))
    tiles = x.reshape(4, 2)
    total = sum(t * w + k for k, (t, w) in enumerate(zip(tiles[::-1], (1, 2, 3, 4), strict=True)))
    expected = ((total + tiles[0]) - tiles[3]) * 2.5 + tiles[1:].sum(axis=0) + 2
    np.testing.assert_allclose(y[:2], expected, 1e-4)
    assert y[2] == 3


def test_printing_is_chosen_by_dtype_at_compile_time(capfd: pytest.CaptureFixture[str]) -> None:
    @pto.jit
    def kernel(x):
        if x.dtype == pl.i32:
            pl.print("first {}, second {}; end", x[0], x[1])
        else:
            pl.print("first {:.2f}", x[0])

    kernel(np.array([4, 5], np.int32))
    kernel(np.array([0.5, 5], np.float32))
    compiled = capfd.readouterr().out
    kernel.interpret(np.array([4, 5], np.int32))
    kernel.interpret(np.array([0.5, 5], np.float32))
    assert compiled == capfd.readouterr().out == "first 4, second 5; end\nfirst 0.50\n"


def test_an_integer_argument_of_one_is_as_dynamic_as_any_other() -> None:
    @pto.jit
    def kernel(x, n):
        return x * n.to(pl.f32) if hasattr(n, "to") else x * n

    x = random(4)
    for n in (2, 1, 16, 0):
        got, _ = agree(kernel, x, n)
        np.testing.assert_array_equal(got, x * n)
    assert len(kernel.specializations()) == 1

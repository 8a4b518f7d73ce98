# SPDX-License-Identifier: MIT
"""Calls with lists: the first one of a kind is described in Python, later ones find their kernel without that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl

SCALE = 2.0


def kernel() -> Any:
    @pto.jit(cache=False)
    def scaled(x, w, k=1.0):
        return ft.map(lambda row: ft.map(lambda v: v * pl.sum(w) * k * SCALE, row), x)

    return scaled


def lists(lengths: Any, size: int = 3) -> ft.FractalTensor:
    offsets = np.cumsum([0, *lengths])
    leaves = np.arange(offsets[-1] * size, dtype=np.float32).reshape(-1, 1, size)
    return ft.from_flat(leaves, [offsets])


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that were described."""
    from pto_jit.arguments import Parameters

    seen: list[str] = []
    own = Parameters.classify

    def classify(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(self.fn.__name__)
        return own(self, *args, **kwargs)

    monkeypatch.setattr(Parameters, "classify", classify)
    return seen


def check(got: Any, x: ft.FractalTensor, w: np.ndarray, k: float = 1.0) -> None:
    assert isinstance(got, ft.FractalTensor)
    np.testing.assert_array_equal(got.offsets[0], x.offsets[0])
    np.testing.assert_allclose(got.leaves, x.leaves * w.sum() * np.float32(k * SCALE))


def test_calls_of_a_kind_are_described_once(described: list[str]) -> None:
    run, w = kernel(), np.eye(3, dtype=np.float32)
    for lengths in ([2, 0, 1], [4], [], [0, 3]):
        check(run(lists(lengths), w, 1.0), lists(lengths), w)
    assert len(described) == 1
    check(run(lists([2]), w * 3, 0.5), lists([2]), w * 3, 0.5)
    assert len(described) == 1, "numbers are run-time values"
    for lengths in ([2, 5, 1], [3, 1]):
        part = lists(lengths)[1:]  # a view, whose leaves are gathered, to be read only
        check(run(part, w, 1.0), part, w)
    assert len(described) == 2 and len(run.specializations()) == 1


def test_other_kinds_are_described(described: list[str]) -> None:
    run, w = kernel(), np.eye(3, dtype=np.float32)
    run(lists([1]), w, 1.0)
    wide = np.ones((3, 2), np.float32)
    check(run(lists([2, 1]), wide, 1.0), lists([2, 1]), wide)
    assert len(described) == 2, "a kernel is made for the extents of weights"
    check(run(lists([2], 2), np.eye(2, dtype=np.float32), 1.0), lists([2], 2), np.eye(2, dtype=np.float32))
    assert len(described) == 3, "and for the shape of leaves"
    turned = np.ones((3, 1, 2), np.float32).T
    run(ft.from_flat(turned, [[0, 2]]), w, 1.0)
    run(ft.from_flat(turned, [[0, 2]]), w, 1.0)
    assert len(described) == 5, "leaves that have to be copied first"
    run(lists([1]), w, 1.0)
    run(lists([2], 2), np.eye(2, dtype=np.float32), 1.0)
    check(run(lists([2]), w), lists([2]), w)
    check(run(lists([2]), w=w, k=2.0), lists([2]), w, 2.0)
    assert len(described) == 5, "defaults and keywords decide nothing"
    with pytest.raises(pto.ArgumentError, match="PTO-A001"):
        run(lists([2]), w, 1.0, w=w)
    with pytest.raises(pto.ArgumentError, match="PTO-A001"):
        run(lists([2]), w, wide=1)
    check(run(lists([3]), w, 1.0), lists([3]), w)
    assert len(described) == 5, "what was known is still known"


def test_lists_in_tuples_are_described_once(described: list[str]) -> None:
    @pto.jit(cache=False)
    def run(pair, k):
        x, w = pair
        return ft.map(lambda row: ft.map(lambda v: v * pl.sum(w) * k * SCALE, row), x)

    w = np.eye(3, dtype=np.float32)
    for lengths in ([2, 0, 1], [4], [], [0, 3]):
        check(run((lists(lengths), w), 1.0), lists(lengths), w)
        check(run(pair=(lists(lengths), w * 3), k=0.5), lists(lengths), w * 3, 0.5)
    assert len(described) == 1
    wide = np.ones((3, 2), np.float32)
    check(run((lists([2]), wide), 1.0), lists([2]), wide)
    assert len(described) == 2, "a kernel is made for the extents of weights"


def test_an_array_in_a_tuple_is_no_list_of_its_rows() -> None:
    @pto.jit(cache=False)
    def run(pair):
        return ft.map(lambda v: v * 2, pair[0]) if ft.depth(pair[0]) else pair[0] * 3

    rows = np.ones((3, 2), np.float32)
    for _ in range(2):
        assert run((ft.from_flat(rows), rows)).leaves[0, 0] == 2
        assert run((rows, rows))[0, 0] == 3


def test_what_is_written_in_a_tuple_is_checked() -> None:
    @pto.jit(cache=False)
    def summed(pair):
        pair[1][0] = ft.fold(lambda s, v: s + v, pair[0], initializer=np.float32(0))

    x, out = ft.from_flat(np.arange(4, dtype=np.float32)), np.zeros(1, np.float32)
    for _ in range(2):
        summed((x, out))
        assert out[0] == 6
    out.flags.writeable = False
    with pytest.raises(pto.ArgumentError, match="PTO-A011"):
        summed((x, out))


def test_a_row_meets_the_kernel_that_adds_it_to_each(described: list[str]) -> None:
    """An extent of 1 is known when a kernel is made: the one for four rows would not take it."""

    @pto.jit(cache=False)
    def added(x, b):
        return ft.map(lambda e: e + b, x)

    x = ft.from_flat(np.ones((3, 4, 5), np.float32))
    for _ in range(2):
        for n in (4, 1):
            b = np.ones((n, 5), np.float32)
            np.testing.assert_array_equal(added(x, b).leaves, x.leaves + b)
    assert len(described) == 2


def test_a_kernel_is_forgotten_when_a_global_or_a_setting_changes(
    described: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, w, x = kernel(), np.eye(3, dtype=np.float32), lists([2, 1])
    run(x, w, 1.0)
    run(x, w, 1.0)
    assert len(described) == 1
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    check(run(x, w, 1.0), x, w)
    assert len(described) == 2
    monkeypatch.setattr(pto.config, "debug", not pto.config.debug)
    check(run(x, w, 1.0), x, w)
    assert len(described) == 3


def test_compile_time_numbers_decide() -> None:
    @pto.jit(cache=False)
    def repeated(x, n: pl.constexpr):
        return ft.map(lambda v: v * n, x)

    x = ft.from_flat(np.ones((2, 1, 3), np.float32))
    for n in (2, 3, 2):
        assert repeated(x, n).leaves[0, 0, 0] == n


def test_failures_are_told_as_on_the_first_call() -> None:
    @pto.jit(cache=False)
    def pairs(x, y):
        return ft.map(lambda p: p[0] + p[1], ft.zip(x, y))

    x, y = (ft.from_flat(np.ones((n, 1, 2), np.float32)) for n in (2, 3))
    texts = []
    for _ in range(2):
        with pytest.raises(pto.ShapeError, match="PTO-F190") as caught:
            pairs(x, y)
        texts.append(str(caught.value))
    assert len(pairs(y, y)) == 3
    for _ in range(2):
        with pytest.raises(pto.ShapeError, match="PTO-F190") as caught:
            pairs(x, y)
        texts.append(str(caught.value))
    assert len(set(texts)) == 1


def test_what_is_written_is_checked() -> None:
    @pto.jit(cache=False)
    def summed(x, out):
        out[0] = ft.fold(lambda s, v: s + v, x, initializer=np.float32(0))

    x, out = ft.from_flat(np.arange(4, dtype=np.float32)), np.zeros(1, np.float32)
    for _ in range(2):
        summed(x, out)
        assert out[0] == 6
    out.flags.writeable = False
    with pytest.raises(pto.ArgumentError, match="PTO-A011"):
        summed(x, out)


def test_arguments_that_have_to_be_named_stay_so() -> None:
    @pto.jit(cache=False)
    def scaled(x, *, k):
        return ft.map(lambda v: v * k, x)

    x = lists([2], 3)[0]
    for _ in range(2):
        np.testing.assert_allclose(scaled(x, k=2.0).leaves, x.leaves * 2)
        with pytest.raises(pto.ArgumentError, match="too many positional arguments"):
            scaled(x, 2.0)


def test_a_kernel_that_first_had_a_single_leaf_takes_lists_of_any_length() -> None:
    @pto.jit(cache=False)
    def stacked(x):
        return pl.sum(ft.stack(x), axis=0)

    @pto.jit(cache=False)
    def mirrored(pair):
        x, y = pair
        return ft.scan(lambda s, v: s + v[0] - v[1], ft.zip(x, ft.reverse(y)), initializer=ft.zeros(1, 3))

    for count in (1, 3, 2, 1):
        x = lists([count])[0]
        np.testing.assert_array_equal(stacked(x), x.leaves.sum(axis=0))
        got, expected = mirrored((x, x)), mirrored.interpret((x, x))
        np.testing.assert_array_equal(got.leaves, expected.leaves)
    assert len(stacked.specializations()) == 1, "kernels are not made for lengths"


def test_lists_that_are_returned_are_read_only_and_share_nothing_with_tensors_beside_them() -> None:
    def program(x: Any) -> Any:
        found = ft.map(lambda row: ft.map(lambda e: e * 2.0, row), x)
        return found, ft.stack(ft.flatten(found)), found

    given = ft.from_flat(np.ones((3, 2), np.float32), [[0, 2, 3]])
    kernel = pto.jit(program)
    for _ in range(2):
        first, stacked, second = kernel(given)
        stacked[:] = 5
        for found in (first, second):
            np.testing.assert_array_equal(found.leaves, np.full((3, 2), 2, np.float32))
            for array in (found.leaves, *found.offsets):
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 1


class Layer(NamedTuple):
    w: Any
    factor: float


@dataclass
class Batch:
    rows: Any
    layer: Layer


CONTAINERS: dict[str, Callable[[Any, Any], Any]] = {
    "tuple": lambda rows, layer: ((rows,), layer),
    "list": lambda rows, layer: ([rows], layer),
    "dict": lambda rows, layer: ({0: rows}, layer),
    "nested": lambda rows, layer: ({0: [rows]}[0], layer),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_lists_in_containers_are_described_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(rows: Any, layer: Layer) -> Any:
        return ft.map(lambda row: ft.map(lambda e: pl.tanh(e @ layer.w) * layer.factor, row), rows[0])

    def given(h: int, factor: float = 0.5, step: int = 1) -> tuple[Any, ...]:
        leaves = np.random.default_rng(0).standard_normal((3 * step, 1, h)).astype(np.float32)[::step]
        return CONTAINERS[kind](ft.from_flat(leaves, [[0, 2, 3]]), Layer(np.eye(h, dtype=np.float32), factor))

    kernel = pto.jit(program)
    calls = [given(4), given(4, 2.0), given(5), given(4, step=2)]
    want = [program(*args) for args in calls]
    for _ in range(3):
        for args, wanted in zip(calls, want, strict=True):
            np.testing.assert_allclose(kernel(*args).leaves, wanted.leaves, rtol=1e-5, atol=1e-6)

    def refused(*args: Any) -> None:
        raise AssertionError("the arguments are described again")

    monkeypatch.setattr(kernel._parameters, "classify", refused)
    for args, wanted in zip(calls[:3], want, strict=False):
        np.testing.assert_allclose(kernel(*args).leaves, wanted.leaves, rtol=1e-5, atol=1e-6)


def test_lists_in_attributes_of_objects_are_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(batch: Batch, more: Any) -> Any:
        return ft.map(lambda e: e @ batch.layer.w + more, batch.rows)

    batch = Batch(ft.from_flat(np.ones((3, 1, 4), np.float32)), Layer(np.eye(4, dtype=np.float32), 1.0))
    kernel = pto.jit(program)
    for _ in range(2):  # the first call of all lets Python note something in the class
        kernel(batch, 2.0)
    with monkeypatch.context() as patch:
        patch.setattr(kernel._parameters, "classify", None)
        np.testing.assert_array_equal(kernel(batch, 2.0).leaves, np.full((3, 1, 4), 3))
    batch.rows = ft.from_flat(np.ones((2, 1, 5), np.float32))
    with pytest.raises(pto.PtoError):  # rows of 5, weights for 4
        kernel(batch, 2.0)
    batch.layer = Layer(np.eye(5, dtype=np.float32), 1.0)
    np.testing.assert_array_equal(kernel(batch, 3.0).leaves, np.full((2, 1, 5), 4))


ROWS_TO_TEST = ft.from_list([[1, 2], [], [3]])


def returned_early(r: Any) -> Any:
    if not r:
        return -1
    return r[0]


def counted(x: Any) -> Any:
    n = 0
    while x and n < 3:
        n += 1
    return n


def asserted(x: Any) -> Any:
    assert x or len(x) == 0
    return len(x)


TESTS: list[Any] = [
    lambda x: ft.map(lambda r: len(r) if r else -1, x),
    lambda x: ft.map(lambda r: 1 if not r else 0, x),
    lambda x: ft.map(lambda r: 1 if r[1:] else 0, x),
    lambda x: ft.map(lambda r: 1 if r and r[0] > 1 else 0, x),
    lambda x: ft.map(lambda r: 1 if len(x) > 1 and r else 0, x),
    lambda x: ft.map(lambda r: 1 if not (r and r[1:]) else 0, x),
    lambda x: ft.map(lambda r: 1 if any([r, False]) else 0, x),
    lambda x: ft.map(lambda r: len(r), ft.filter(lambda r: bool(r), x)),
    lambda x: ft.map(returned_early, x),
    lambda x: 1 if x else 0,
    lambda x: 0 if not x else 1,
    counted,
    asserted,
]


@pytest.mark.parametrize("program", TESTS, ids=map(str, range(len(TESTS))))
@pytest.mark.parametrize("x", [ROWS_TO_TEST, ft.slice(ROWS_TO_TEST, 0, 0)], ids=["rows", "empty"])
def test_a_list_is_true_where_it_has_an_element(program: Any, x: Any) -> None:
    kernel, want = pto.jit(program), program(x)
    for got in (kernel(x), kernel.interpret(x)):
        if isinstance(want, ft.FractalTensor):
            assert got.tolist() == want.tolist()
        else:
            assert got == want

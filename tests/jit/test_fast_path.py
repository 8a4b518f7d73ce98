# SPDX-License-Identifier: MIT
"""Which calls skip the slow path, and that nothing they should see is missed."""

from __future__ import annotations

import math
import sys
import types
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

SCALE = 2.0
SIZES = (1, 2, 3)
TABLE = [1.0, 2.0]
OBJECT: Any = None
settings_module = types.ModuleType("settings_module")
settings_module.__dict__["FACTOR"] = 3.0
M = pl.dynamic("M")


def helper(x: Any) -> Any:
    return x * SCALE


class Slow(Exception):
    """The slow path was taken."""


def refuse(args: Any, kwargs: Any) -> Any:
    raise Slow


def is_registered(kernel: pto.JitFunction, *args: Any, **kwargs: Any) -> bool:
    """Whether such a call runs without the slow path."""
    slow_path, kernel.slow_path = kernel.slow_path, refuse
    try:
        kernel(*args, **kwargs)
    except Slow:
        return False
    finally:
        kernel.slow_path = slow_path
    return True


def array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape).astype(dtype)


def test_a_kernel_that_uses_the_language_and_plain_globals_is_registered() -> None:
    @pto.jit
    def kernel(x: pl.Tensor, y: pl.Tensor):
        y[...] = pl.exp(helper(x)) * SIZES[1] + math.pi * np.float32(0)

    x, y = array(8), array(8)
    kernel(x, y)
    assert is_registered(kernel, x, y)
    np.testing.assert_allclose(y, np.exp(x * 2) * 2, rtol=1e-6)


def test_an_annotated_kernel_is_registered_and_its_extents_are_still_checked() -> None:
    @pto.jit
    def kernel(a: pl.Tensor[[M, 4], pl.f32], b: pl.Tensor[[M], pl.f32]):
        b[...] = pl.sum(a, axis=1)

    a, b = array(3, 4), array(3)
    kernel(a, b)
    assert is_registered(kernel, a, b)
    assert is_registered(kernel, array(9, 4), array(9))
    with pytest.raises(pto.ShapeError, match="`M` is 3"):
        kernel(a, array(5))
    with pytest.raises(pto.ShapeError, match="extent 5"):
        kernel(array(3, 5), b)


def test_numbers_defaults_and_keywords_are_registered() -> None:
    @pto.jit
    def kernel(x, y, scale=2.0, *, shift: int = 1, mode="add"):
        y[...] = x * scale + (shift if mode == "add" else -shift)

    x, y = array(5), array(5)
    kernel(x, y)
    assert is_registered(kernel, x, y)
    kernel(x, y, 3.0, shift=5)
    assert is_registered(kernel, x, y, 4.0, shift=7)
    np.testing.assert_array_equal(y, x * 4 + 7)
    kernel(x, y, mode="sub")
    assert is_registered(kernel, x, y, mode="sub")
    np.testing.assert_array_equal(y, x * 2 - 1)


def test_numpy_scalars_and_surplus_positional_arguments_are_registered() -> None:
    @pto.jit
    def total(x, *factors):
        result = x[0]
        for f in factors:
            result = result * f
        return result

    x = np.array([2.0])
    assert total(x, np.float32(3), 2) == 12
    assert is_registered(total, x, np.float32(5), 7)
    assert total(x, np.float32(5), 7) == 70
    assert total(x, 5) == 10


@pytest.mark.parametrize("layout", ["contiguous", "rows", "transposed", "reversed", "scalar"])
def test_every_layout_is_registered(layout: str) -> None:
    base = array(6, 8)
    x = {"contiguous": base, "rows": base[:, 1:5], "transposed": base.T, "reversed": base[::-1, ::-2],
         "scalar": np.array(3, np.float32)}[layout]  # fmt: skip
    kernel = pto.jit(lambda t: t + 1 if t.ndim else t[()] + 1)
    np.testing.assert_array_equal(kernel(x), x + 1)
    assert is_registered(kernel, x)
    np.testing.assert_array_equal(kernel(x), x + 1)


def test_a_function_argument_is_registered_until_what_it_uses_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = pto.jit(lambda x, f: f(x))
    x = array(4)
    np.testing.assert_array_equal(kernel(x, helper), x * 2)
    assert is_registered(kernel, x, helper)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert not is_registered(kernel, x, helper)
    np.testing.assert_array_equal(kernel(x, helper), x * 5)


def test_rebinding_a_global_a_cell_a_helper_or_a_modules_attribute_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    shift = 1.0

    @pto.jit
    def kernel(x):
        return helper(x) * settings_module.FACTOR + shift

    x = array(4)
    np.testing.assert_array_equal(kernel(x), x * 6 + 1)
    assert is_registered(kernel, x)
    shift = 2.0
    np.testing.assert_array_equal(kernel(x), x * 6 + 2)
    monkeypatch.setattr(settings_module, "FACTOR", 4.0)
    np.testing.assert_array_equal(kernel(x), x * 8 + 2)
    monkeypatch.setitem(globals(), "helper", lambda x: x - 1)
    np.testing.assert_array_equal(kernel(x), (x - 1) * 4 + 2)
    assert is_registered(kernel, x)


def test_a_helper_whose_code_is_replaced_in_place_is_seen() -> None:
    def inner(x: Any) -> Any:
        return x + 1

    kernel = pto.jit(lambda x: inner(x))
    x = array(4)
    np.testing.assert_array_equal(kernel(x), x + 1)
    assert is_registered(kernel, x)
    inner.__code__ = (lambda x: x + 5).__code__  # what autoreload does to functions of an edited module
    np.testing.assert_array_equal(kernel(x), x + 5)


def test_a_captured_list_that_changes_in_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TABLE", [1.0, 2.0])

    @pto.jit
    def kernel(x):
        for factor in TABLE:
            x = x * factor
        return x + 0

    x = array(4)
    np.testing.assert_array_equal(kernel(x), x * 2)
    TABLE.append(3.0)
    np.testing.assert_array_equal(kernel(x), x * 6)


def test_lists_and_dicts_are_compared_item_by_item_without_the_slow_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TABLE", [1.0, [2.0], {"by": 3.0, "of": helper}])

    @pto.jit
    def kernel(x):
        part = TABLE[2]
        return part["of"](x) * TABLE[0] * TABLE[1][0] * part["by"] + len(part)

    x = array(4)

    def check(expected: np.ndarray) -> None:
        for registered in (False, True):
            assert is_registered(kernel, x) == registered
            np.testing.assert_array_equal(kernel(x), expected)

    check(x * 12 + 2)
    TABLE[0] = 5.0
    check(x * 60 + 2)
    TABLE[1].insert(0, 7.0)
    check(x * 210 + 2)
    TABLE[2]["by"] = 1.0
    check(x * 70 + 2)
    TABLE[2]["more"] = 0
    check(x * 70 + 3)
    TABLE[2]["of"] = math.floor
    TABLE[2]["of"] = abs
    check(x * 35 + 3)
    TABLE[:] = [TABLE[0], TABLE[1], {"of": helper, "by": 2}]
    check(x * 140 + 2)


class Slotted:
    __slots__ = ("__hidden", "shown")

    def __init__(self) -> None:
        self.shown, self.__hidden = 2.0, 3.0

    def product(self):
        return self.shown * self.__hidden

    def hide(self, value: float) -> None:
        self.__hidden = value


class Plain:
    by = 2.0

    def __init__(self) -> None:
        self.inner = Slotted()
        self.names = {"a"}

    def scaled(self, v):
        return v * self.by


def test_objects_classes_and_sets_are_compared_without_the_slow_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "OBJECT", Plain())

    @pto.jit
    def kernel(x):
        return OBJECT.scaled(x) * OBJECT.inner.product() + (100.0 if "b" in OBJECT.names else 0.0) + Plain.by

    x = array(4)

    def check(expected: np.ndarray) -> None:
        for registered in (False, True):
            assert is_registered(kernel, x) == registered
            np.testing.assert_array_equal(kernel(x), expected)

    check(x * 12 + 2)
    OBJECT.inner.shown = 1.0
    check(x * 6 + 2)
    OBJECT.inner.hide(5.0)
    check(x * 10 + 2)
    OBJECT.names.add("b")
    check(x * 10 + 102)
    monkeypatch.setattr(Plain, "by", 4.0)
    check(x * 20 + 104)
    monkeypatch.setattr(Plain, "scaled", lambda self, v: v)
    check(x * 5 + 104)
    OBJECT.by = 3.0  # hides that of the class
    monkeypatch.setattr(Plain, "scaled", lambda self, v: v * self.by)
    check(x * 15 + 104)
    OBJECT.__dict__ = {**vars(OBJECT), "by": 1.0}
    check(x * 5 + 104)


def test_rebinding_back_finds_the_first_version_again() -> None:
    factor = 2.0
    kernel = pto.jit(lambda x: x * factor)
    x = array(4)
    kernel(x)
    factor = 3.0
    kernel(x)
    factor = 2.0
    np.testing.assert_array_equal(kernel(x), x * 2)
    assert len(kernel.specializations()) == 2


def test_a_changed_setting_takes_effect_at_the_next_call() -> None:
    @pto.jit
    def kernel(x, i):
        return x[i]

    x = array(4)
    assert kernel(x, 1) == 1
    assert is_registered(kernel, x, 1)
    pto.config.debug = True
    with pytest.raises(pto.BoundsError):
        kernel(x, 4)
    pto.config.debug = False
    assert kernel(x, 1) == 1


def test_the_number_of_threads_is_read_at_every_call() -> None:
    @pto.jit
    def kernel(x, y):
        for i in pl.range(x.shape[0], parallel=True):
            y[i] = x[i] * 2

    x, y = array(10), array(10)
    for threads in (1, 3, 2):
        pto.config.num_threads = threads
        kernel(x, y)
        assert [entry.runtime.num_threads for entry, _ in kernel.entries()] == [threads]
    assert pto.jit(num_threads=5)(lambda x: x + 1).compile(x)._kernel.entry.runtime.num_threads == 5


def test_interpret_mode_switched_on_later_runs_the_python_function() -> None:
    kernel = pto.jit(lambda x: x + 1)
    x = array(3)
    kernel(x)
    assert is_registered(kernel, x)
    pto.config.interpret = True
    assert not is_registered(kernel, x)
    lines: list[str] = []

    def trace(frame: Any, event: str, argument: Any) -> None:
        lines.append(frame.f_code.co_name)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = kernel(x)
    finally:
        sys.settrace(before)
    np.testing.assert_array_equal(result, x + 1)
    assert "<lambda>" in lines
    assert not kernel.entries()


def test_a_hundred_specialisations_are_all_registered() -> None:
    @pto.jit
    def kernel(x, *rest):
        return x + len(rest)

    x = array(3)
    with pytest.warns(RuntimeWarning, match="64 specialisations"):
        for count in range(100):
            kernel(x, *range(count))
    assert len(kernel.specializations()) == 100
    assert all(is_registered(kernel, x, *range(count)) for count in (0, 50, 99))


def test_small_work_keeps_the_lock_and_work_that_is_not_bounded_by_the_arguments_does_not() -> None:
    x = array(16)
    matrix = array(8, 8)
    cheap = pto.jit(lambda a, b: a + b).compile(x, x)._kernel.entry.keep_gil_below
    dear = pto.jit(lambda a, b: pl.exp(pl.sin(a) * pl.tanh(b))).compile(x, x)._kernel.entry.keep_gil_below
    assert cheap > dear > 16

    @pto.jit
    def loop(a, n: int):
        for i in pl.range(n):
            a[i % 16] += 1

    @pto.jit
    def outer(a):
        return pl.sum(pl.reshape(a, [a.shape[0], 1]) * pl.reshape(a, [1, a.shape[0]]))

    for unbounded in (
        loop.compile(x, 3),
        outer.compile(x),
        pto.jit(lambda a: a @ a).compile(matrix),
        pto.jit(lambda a: pl.sort(a)).compile(x),
        pto.jit(lambda n: pl.zeros([n * n], pl.f32)).compile(3),
    ):
        assert unbounded._kernel.entry.keep_gil_below == 0, unbounded

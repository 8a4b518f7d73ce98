# SPDX-License-Identifier: MIT
"""Slices of tensors with steps, read and written: as NumPy does it, compiled, interpreted, and from `.pto` text."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.semantic import interpreter

RNG = np.random.default_rng(31)
SHAPES = [(5, 8), (7, 64), (1, 2), (6, 200), (3, 1030)]
Arrays = tuple[np.ndarray, ...]
needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")


def taken_apart(x, a, b):
    a[:, :] = x[:, ::2]
    b[:, :] = x[:, 1::2] * 2


def rotated(x, c, s, y):
    for i in pl.range(x.shape[0], parallel=True):
        a = x[i, ::2]
        b = x[i, 1::2]
        y[i, ::2] = a * c[i, :] - b * s[i, :]
        y[i, 1::2] = a * s[i, :] + b * c[i, :]


def rotated_by_numpy(x, c, s, y):
    a, b = x[:, ::2], x[:, 1::2]
    y[:, ::2], y[:, 1::2] = a * c - b * s, a * s + b * c


def in_place(x):
    x[1::3, ::2] = x[1::3, 1::2] + x[1::3, ::2]
    x[::2, :] += 1


def onto_itself(x):
    x[0, 2::2] = x[0, : x.shape[1] - 2 : 2] * 2


def by_element(x, y):
    half = x[::2, ::2]
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = half[i, j] + half.shape[1]


def of_a_slice(x, y):
    y[:] = pl.sum(x[1:20:2, ::3][::2, 1:], axis=0)


def of_a_slice_by_numpy(x, y):
    y[:] = x[1:20:2, ::3][::2, 1:].sum(0)


def by_element_by_numpy(x, y):
    y[:] = x[::2, ::2] + len(x[0, ::2])


def arrays(rows: int, columns: int) -> dict[Callable[..., Any], tuple[Callable[..., Any], Arrays]]:
    """Per kernel what it means, and its arguments: whole numbers, so that no order of sums matters."""

    def numbers(*shape: int) -> np.ndarray:
        return RNG.integers(-9, 9, shape).astype(np.float32)

    half, third = (rows, columns // 2), (columns + 2) // 3
    return {
        taken_apart: (taken_apart, (numbers(rows, columns), numbers(*half), numbers(*half))),
        rotated: (rotated_by_numpy, (numbers(rows, columns), numbers(*half), numbers(*half), numbers(rows, columns))),
        in_place: (in_place, (numbers(rows, columns),)),
        onto_itself: (onto_itself, (numbers(rows, columns),)),
        by_element: (by_element_by_numpy, (numbers(rows, columns), numbers((rows + 1) // 2, (columns + 1) // 2))),
        of_a_slice: (of_a_slice_by_numpy, (numbers(rows, columns), numbers(third - 1))),
    }


def check(run: Callable[..., Any], meaning: Callable[..., Any], args: Arrays) -> None:
    found, expected = [a.copy() for a in args], [a.copy() for a in args]
    run(*found)
    meaning(*expected)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_slices_with_steps_agree_with_numpy(shape: tuple[int, int]) -> None:
    for kernel, (meaning, args) in arrays(*shape).items():
        jitted = pto.jit(kernel)
        check(jitted, meaning, args)
        check(jitted.interpret, meaning, args)
        check(pto.jit(kernel, debug=True), meaning, args)
        compiled = jitted.compile(*args)
        source = compiled._lowered().modules["source"]
        check(lambda *a, source=source: interpreter.run(source, list(a)), meaning, args)
        check(pto.parse_pto(compiled.ir("source"))[kernel.__name__], meaning, args)


def woven(x, n):
    x[:, 0:n:2] = x[:, 1 : n + 1 : 2] * 2 + x[:, 0:n:2]
    x[:, 1 : n + 1 : 2] = x[:, 0:n:2] + 1
    x[:, 0:n:2] = x[:, 2 : n + 2 : 2] - x[:, 1 : n + 1 : 2]
    x[1:3, :] = x[0:2, :]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("columns", [10, 11, 64, 131])
def test_places_between_others_are_read_and_written_in_order(columns: int, dtype: Any) -> None:
    kernel, x = pto.jit(woven), RNG.integers(-3, 4, (5, columns)).astype(dtype)
    found, expected = x.copy(), x.copy()
    kernel(found, columns - 2)
    woven(expected, columns - 2)
    np.testing.assert_array_equal(found, expected)
    wide, rows = np.zeros((5, columns + 1), dtype), x.copy()
    wide[:, :columns] = x  # rows that begin elsewhere on the grid of the steps
    kernel(wide[:, :columns], columns - 2)
    woven(rows, columns - 2)
    np.testing.assert_array_equal(wide[:, :columns], rows)


@needs_compiler
@pytest.mark.parametrize("shape", [(5, 8), (3, 70)])
def test_slices_with_steps_in_c_and_for_cuda(shape: tuple[int, int]) -> None:
    for kernel, (meaning, args) in arrays(*shape).items():
        check(pto.jit(kernel, target="c"), meaning, args)
        compiled = pto.jit(kernel).compile(*args, target="cuda")
        check(lambda *a, compiled=compiled: emulate(compiled, *a), meaning, args)


@pto.jit
def pieces(y):
    v = y[:, ::2]
    for i in pl.range(v.shape[0], chunk=2):
        y[i, 1::2] = v[i, :] * 2


def neighbours(x):
    v = x[::2, :]
    for i in pl.range(1, v.shape[0], parallel=True):
        v[i, 0] = v[i - 1, 0]


def between(x):
    for i in pl.range(1, x.shape[0] // 2, parallel=True):
        x[::2, :][i, 0] = x[1::2, :][i - 1, 0]


def accumulated(x, y):
    for i in pl.range(x.shape[0], parallel=True):
        y[0, ::2] += x[i, 1::2]


def added_up(x):
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1] // 2):
            x[i, ::2][j] = x[i - 1, ::2][j] + x[:, 1::2][i, j]


def not_a_sum(x):
    for i in range(x.shape[0] - 1):
        x[1, ::2] = x[1, 1::2] + x[i, ::2]


def test_loops_over_slices_with_steps_are_analysed() -> None:
    x, y = RNG.integers(-9, 9, (2, 7, 12))
    compiled = pieces.compile(y)
    assert any(d.kind == "parallel" and "proven" in d.reason for d in compiled.decisions)
    compiled(y)
    np.testing.assert_array_equal(y[:, 1::2], y[:, ::2] * 2)
    with pytest.raises(pto.ScheduleError, match=r"reads `x\[2 \* i - 2, 0\]`, which another iteration writes"):
        pto.jit(neighbours)(x)
    assert any("proven" in d.reason for d in pto.jit(between).compile(x).decisions)
    for kernel, args in ((between, (x,)), (added_up, (x,)), (not_a_sum, (x,)), (accumulated, (x, y))):
        for threads in (1, 2):
            found, expected = ([a.copy() for a in args] for _ in range(2))
            pto.jit(kernel, num_threads=threads)(*found)
            pto.jit(kernel).interpret(*expected)
            np.testing.assert_array_equal(found, expected)


@pto.jit
def constant(x: pl.Tensor[[4, 9], pl.f32], y: pl.Tensor[[2, 3], pl.f32]):
    v = x[1::2, ::3]
    pl.static_assert(v.shape == (2, 3))
    y[:, :] = v


def test_extents_with_steps_are_known_where_those_of_the_tensor_are() -> None:
    x, y = RNG.uniform(size=(4, 9)).astype(np.float32), np.zeros((2, 3), np.float32)
    constant(x, y)
    np.testing.assert_array_equal(y, x[1::2, ::3])


@pto.jit
def halves(x, y):
    with pl.incore():
        for i in pl.range(x.shape[0], chunk=2):
            y[i, ::2] = x[i, ::2] + 1
    with pl.incore():
        for i in pl.range(x.shape[0], chunk=2):
            y[i, 1::2] = y[i, : x.shape[1] - 1 : 2] * 2


@pto.incore
def doubled(a, b):
    pl.store(pl.load(a) * 2, b)


@pto.jit
def tasks(x, y):
    for i in range(4):
        doubled(x[i::4, :], y[i::4, :])
    for i in range(4):
        doubled(y[:, i::4], x[:, i::4])


def test_scopes_and_tasks_take_slices_with_steps() -> None:
    x, y = RNG.integers(-9, 9, (2, 9, 12))
    halves(x, y)
    np.testing.assert_array_equal(y[:, ::2], x[:, ::2] + 1)
    np.testing.assert_array_equal(y[:, 1::2], y[:, ::2] * 2)
    before = x.copy()
    tasks(x, y)
    np.testing.assert_array_equal(y, before * 2)
    np.testing.assert_array_equal(x, before * 4)


@pytest.mark.parametrize("written, message", [
    ("x[::-1]", "a slice with the step -1"), ("x[::0]", "a slice with the step 0"),
    ("x[::n]", "the step of a slice"), ("(x * 2)[::2]", "a slice of a tile with a step"),
])  # fmt: skip
def test_other_steps_are_refused(written: str, message: str, tmp_path: Any) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"import pto_jit as pto\n\n@pto.jit\ndef f(x, y, n):\n    y[:] = {written}\n")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(pto.CompilationError, match=message):
        names["f"](np.zeros(4), np.zeros(4), 2)

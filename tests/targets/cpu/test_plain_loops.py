# SPDX-License-Identifier: MIT
"""Loops over elements give what plain Python gives, whatever the vectors of the processor; which run in lanes."""

from __future__ import annotations

import operator as op
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.targets.cpu.loading import host
from tests.targets.cpu import plain_loops
from tests.targets.cpu.processors import runs_here

ROOT = Path(__file__).parents[3]


def _groups(text: str) -> bool:
    """Whether a loop goes over groups of lanes."""
    return re.search(r"^groups", text, flags=re.M) is not None


def _on(level: str, *lines: str) -> str:
    """What a process prints that runs these lines on a lesser processor."""
    if not runs_here(level):
        pytest.skip("this processor has less itself")
    first = ("from tests.targets.cpu.processors import pretend", f"pretend({level!r})")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join((*first, *lines))], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_plain_loops_are_what_they_are_in_python() -> None:
    plain_loops.check()


@pytest.mark.parametrize("level", ["sse2", "avx2", "avx512"])
def test_plain_loops_on_a_lesser_processor(level: str) -> None:
    _on(level, "from tests.targets.cpu.plain_loops import check", "check()")


def test_loops_that_are_left_at_different_times_do_not_divide_in_lanes() -> None:
    x = np.arange(100)
    assert not _groups(pto.jit(plain_loops.prime).compile(x, x.copy()).ir("llvm"))
    assert not _groups(pto.jit(plain_loops.common_divisor).compile(x, x.copy()).ir("llvm"))
    wide = _groups(pto.jit(plain_loops.digits).compile(x, x.copy()).ir("llvm"))
    assert wide == (host().width == 64), "divisions of 64 bits by constants are products of 128 bits"
    x = x.astype(np.int32)
    assert _groups(pto.jit(plain_loops.digits).compile(x, x.copy()).ir("llvm"))


def test_elements_that_conditions_read_are_read_in_front_of_the_loop() -> None:
    x = np.arange(100)
    text = pto.jit(plain_loops.power_above).compile(x, x.copy()).ir("llvm")
    loop = text[text.index("\nwhile") : text.index("\ndone")]
    assert _groups(text) and "load <" in text and not re.search(r"masked\.load| load <\d+ x i64>, ptr %\S+, align 8",
                                                                 loop)  # fmt: skip


def test_masks_stay_as_wide_as_lanes_where_they_have_no_registers() -> None:
    assembly = _on(
        "avx2", "import numpy as np, pto_jit as pto", "from tests.targets.cpu.plain_loops import power_above",
        "x = np.arange(100)", "print(pto.jit(power_above).compile(x, x.copy()).ir('assembly'))",
    )  # fmt: skip
    assert "vtestpd" in assembly and "vpackssdw" not in assembly


@pytest.mark.parametrize("function", [f for f in plain_loops.BIT_LOOPS if f is not plain_loops.last_seen])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.uint8])
def test_loops_over_bits_are_instructions(function: Callable[..., None], dtype: type) -> None:
    x, y = np.zeros(100, dtype), np.zeros(100, np.int64)
    text = pto.jit(function).compile(x, y).ir("llvm")
    assert "while" not in text and re.search(r"llvm\.ct(pop|lz)\.", text)


def test_a_loop_that_leaves_more_behind_stays() -> None:
    x = np.zeros(100, np.int64)
    text = pto.jit(plain_loops.last_seen).compile(x, x.copy()).ir("llvm")
    assert "while" in text and "llvm.ct" not in text


@pytest.mark.parametrize("function", [plain_loops.marked, plain_loops.chosen])
def test_narrow_elements_are_stored_under_masks_or_by_runs(function: Callable[..., None]) -> None:
    x = np.zeros(100, np.uint8)
    text = pto.jit(function).compile(x, x.copy(), x.copy()).ir("llvm")
    assert _groups(text) == (host().width < 64), "where masks have registers the loop vectoriser does it"
    lines = ("x = np.zeros(100, np.uint8)", f"k = pto.jit(plain_loops.{function.__name__})",
             "print(k.compile(x, x.copy(), x.copy()).ir('llvm'))")  # fmt: skip
    text = _on("avx2", "import numpy as np, pto_jit as pto", "from tests.targets.cpu import plain_loops", *lines)
    assert _groups(text) and "pto.save.32.i8" in text


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint32])
@pytest.mark.parametrize("function", [*plain_loops.PACKED, *plain_loops.NOT_PACKED])
def test_what_is_kept_of_elements_is_put_side_by_side_in_lanes(function: Callable[..., None], dtype: type) -> None:
    x = np.zeros(100, dtype)
    packed = function in plain_loops.PACKED
    text = pto.jit(function).compile(x, x.copy(), x.copy()).ir("llvm")
    assert (host().width >= 32 and packed) == bool(re.search(r"vector\.compress|avx2\.permd", text))


def test_lanes_of_registers_of_32_bytes_are_put_side_by_side_by_a_table() -> None:
    lines = ("x = np.zeros(100, np.float64)", "k = pto.jit(plain_loops.kept)",
             "print(k.compile(x, x.copy(), x.copy()).ir('llvm'))", "x = np.zeros(100, np.int16)",
             "print('narrow:', k.compile(x, x.copy(), x.copy()).ir('llvm'))")  # fmt: skip
    text = _on("avx2", "import numpy as np, pto_jit as pto", "from tests.targets.cpu import plain_loops", *lines)
    wide, narrow = text.split("narrow:")
    assert "llvm.x86.avx2.permd" in wide and "groups" not in narrow


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_that_become_indices_saturate(dtype: type) -> None:
    @pto.jit
    def counted(x, h, inside):
        for i in range(x.shape[0]):
            k = int(x[i])
            if k >= 0 and k < inside.shape[0]:
                inside[k] += 1
            h[min(max(k - 1, 0), h.shape[0] - 1)] += 1

    some = [np.nan, np.inf, -np.inf, 2.0**62, -(2.0**62), 2.0**63, -(2.0**63), 1e300, -1e300, -0.0, 0.9, -0.9, 3.5, 7.99]
    with np.errstate(over="ignore"):
        x = np.array(some, dtype)
    whole = [0 if np.isnan(v) else max(-(2**63), min(int(v), 2**63 - 1)) if np.isfinite(v) else
             (2**63 - 1 if v > 0 else -(2**63)) for v in x.tolist()]  # fmt: skip
    inside, h = np.zeros(8, np.int64), np.zeros(5, np.int64)
    counted(x, h, inside)
    np.testing.assert_array_equal(inside, np.bincount([k for k in whole if 0 <= k < 8], minlength=8))
    wrapped = [(k - 1 + 2**63) % 2**64 - 2**63 for k in whole]
    np.testing.assert_array_equal(h, np.bincount(np.clip(wrapped, 0, 4), minlength=5))
    assert re.search(r"^limit", counted.compile(x, h, inside).ir("llvm"), flags=re.M)


def _extreme(better: Callable[[Any, Any], Any], *values: Any) -> Any:
    """The first of the best ones; NaN if one is."""

    def both(x: Any, y: Any) -> Any:
        return x + y if np.isnan(x) or np.isnan(y) else y if better(y, x) else x

    return reduce(both, values)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_extremes_that_are_waited_for_keep_nan_and_zeros(dtype: type) -> None:
    rng = np.random.default_rng(3)
    some = np.array([np.nan, 0.0, -0.0, 1.0, -1.0, np.inf], dtype)
    functions: tuple[Any, ...] = (plain_loops.warped, plain_loops.in_the_middle, plain_loops.both_extremes)
    for function in functions:
        kernel = pto.jit(function)
        for start in (0, 0, 1, 1, 1):  # with NaN, and without
            x, y, table = (rng.choice(some[start:], shape) for shape in (30, 30, (30, 30)))
            compiled = [x, y.copy(), table.copy()] if function is plain_loops.warped else [x, y.copy()]
            expected = [a.copy() for a in compiled]
            kernel(*compiled)
            with np.errstate(invalid="ignore"):
                FunctionType(function.__code__, {"min": partial(_extreme, op.lt), "max": partial(_extreme, op.gt),
                                                 "range": range})(*expected)  # fmt: skip
            for got, wanted in zip(compiled, expected, strict=True):
                np.testing.assert_array_equal(got, wanted)
                there = ~np.isnan(wanted)
                np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(wanted)[there])
        text = kernel.compile(*compiled).ir("llvm")
        assert re.search(r"^nan", text, flags=re.M), "a jump beside what the next iteration waits for"


def _clipped(x, y):
    for i in range(x.shape[0]):
        y[i] = int(min(max(x[i] * 1.5, 0.0), 255.0))


def _clipped_by_branches(x, y):
    for i in range(x.shape[0]):
        v = x[i] * 1.5 + 10.0
        if v < -100.0:
            v = -100.0
        elif v >= 1000.0:
            v = 1000.0
        y[i] = int(v)


def _scaled(x, y):
    for i in range(x.shape[0]):
        y[i] = int(abs(max(-1.0, min(1.0, x[i]))) * -30000.0)


def _once_clipped(x, y):
    """What is clipped becomes more again, and is infinite in 16 bits."""
    for i in range(x.shape[0]):
        y[i] = int(min(max(x[i], -60000.0), 60000.0) * 60000.0)


def _of_one_side(x, y):
    for i in range(x.shape[0]):
        y[i] = int(max(x[i], -5.0))


CLIPPED = (_clipped, _clipped_by_branches, _scaled)


@pytest.mark.parametrize("to", [np.uint8, np.int16, np.uint32, np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("function", [*CLIPPED, _once_clipped, _of_one_side])
def test_what_is_clipped_becomes_integers_as_it_is(function: Callable[..., None], dtype: type, to: type) -> None:
    some = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.99, 200.0, -7e4, 7e4, 1e9, -1e9, 1e300, -1e300]
    with np.errstate(all="ignore"):
        x = np.resize(np.array(some, dtype), 70)
        kernel, y, i, wanted = pto.jit(function), np.zeros(70, to), np.zeros(70, np.int64), np.zeros(70, np.float64)
        kernel(x, y)
        pto.jit(function)(x, i)  # i64 first, which then wraps
        np.testing.assert_array_equal(y, i.astype(to))
        if dtype is np.float16:  # computed in f32
            return
        names = {"min": partial(_extreme, op.lt), "max": partial(_extreme, op.gt), "range": range, "abs": abs,
                 "int": lambda v: v}  # fmt: skip
        FunctionType(function.__code__, names)(x, wanted)
        whole = [0 if np.isnan(v) else int(max(-(2.0**63), min(v, 2.0**63))) if abs(v) < 2.0**63 else
                 (2**63 - 1 if v > 0 else -(2**63)) for v in wanted.tolist()]  # fmt: skip
        np.testing.assert_array_equal(i, np.array(whole))


@pytest.mark.parametrize("function", [*CLIPPED, _once_clipped, _of_one_side])
def test_what_is_clipped_needs_no_wide_integers(function: Callable[..., None]) -> None:
    x = np.zeros(100, np.float32)
    text = pto.jit(function).compile(x, np.zeros(100, np.uint8)).ir("llvm")
    assert ("fptosi" in text and "to i32" in text) == (function in CLIPPED)
    assert ("9223372036854775807" in text) == (function not in CLIPPED)

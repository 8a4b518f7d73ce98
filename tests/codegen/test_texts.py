# SPDX-License-Identifier: MIT
"""f-strings with run-time values in assertions and in `pl.print`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.errors import KernelAssertionError
from tests.codegen.harness import count, ir

X = np.array([0.5, -3.0, 2.0, 4.0], np.float32)


def small(x, most):
    for i in range(len(x)):
        assert x[i] < most, f"x[{i}] = {x[i]:.2f}, {{not}} below {most}; {'static'} {x.ndim:02d}"


def small_by_call(x, most):
    for i in range(len(x)):
        pl.assert_(x[i] < most, f"x[{i}] = {x[i]:.2f}, {{not}} below {most}; {'static'} {x.ndim:02d}")


@pytest.mark.parametrize("kernel", [small, small_by_call])
@pytest.mark.parametrize("target", ["cpu", "c"])
def test_an_assertion_tells_what_python_does(kernel: Any, target: str) -> None:
    checked = pto.jit(debug=True, target=target)(kernel)
    checked(X, 5.0)
    with pytest.raises(KernelAssertionError) as caught:
        checked(X, 2.0)
    with pytest.raises(AssertionError if kernel is small else KernelAssertionError) as said:
        kernel(X, 2.0)
    text = str(said.value).splitlines()[0]
    assert text == "x[2] = 2.00, {not} below 2.0; static 01"
    assert str(caught.value).splitlines()[0] == f"PTO-N900: {kernel.__name__}: {text}"
    pto.jit(target=target)(kernel)(X, 2.0)  # not checked


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.float16, np.float32, np.float64])
def test_numbers_of_every_type_are_told(dtype: Any) -> None:
    @pto.jit(debug=True)
    def kernel(x):
        assert x[0] < x[1], f"{x[0]} is not below {x[1]}: {x[0] < x[1]}"

    whole = np.issubdtype(dtype, np.integer)
    high, three = (np.iinfo(dtype).max, 3) if whole else (float(np.finfo(dtype).max), 3.0)
    with pytest.raises(KernelAssertionError, match=re.escape(f": {high} is not below {three}: False")):
        kernel(np.array([high, 3], dtype))


def test_what_is_told_is_read_where_the_assertion_fails() -> None:
    @pto.jit(debug=True)
    def kernel(x, k):
        assert k < len(x), f"the last is {x[k - 1]}, there are {len(x)}"
        return x[k]

    assert kernel(X, 0) == 0.5  # x[-1] would be outside
    with pytest.raises(KernelAssertionError, match=r"the last is 4\.0, there are 4"):
        kernel(X, 4)


def test_without_debug_nothing_is_computed_for_the_text() -> None:
    def kernel(x, y):
        assert y[0] > 0, f"{x[0]} {x[1]} {x[2]}"

    assert count(ir(kernel, X, X), "getelem") == 1


def test_a_text_that_is_known_is_a_message() -> None:
    def kernel(x):
        assert x[0] > 0, f"rank {x.ndim}"

    assert "rank 1" in str(ir(kernel, X))


def test_on_a_gpu() -> None:
    @pto.jit(debug=True)
    def kernel(x, y):
        for i in pl.range(x.shape[0], parallel=True):
            assert x[i] < 2, f"x[{i}] = {x[i]:.1f}"
            y[i] = x[i]

    with pytest.raises(KernelAssertionError, match=r"x\[2\] = 2.0"):
        emulate(kernel.compile(X, X.copy(), target="cuda"), X[:3], X[:3].copy())


def test_ascend_says_the_words_alone() -> None:
    @pto.jit(debug=True)
    def kernel(x, y, n):
        assert n > 2, f"{n * 0.5} of {len(x)} are too few"
        for i in pl.range(0, x.shape[0], 8, parallel=True):
            y[i : i + 8] = x[i : i + 8]

    sources = kernel.compile(X, X.copy(), 3, target="ascend").sources
    assert 'return "... of ... are too few";' in sources["kernel_orchestration.c"]


def test_printed_values_and_tiles(capfd: pytest.CaptureFixture[str]) -> None:
    @pto.jit
    def kernel(x):
        for i in range(2):
            pl.print(f"{i}: {x[i]:.1f} {x[i] > 0} {'known'}")
        pl.print(f"{x[0:2]}")

    kernel(X)
    compiled = capfd.readouterr().out
    kernel.interpret(X)
    assert compiled == "0: 0.5 True known\n1: -3.0 False known\n[ 0.5 -3. ]\n"

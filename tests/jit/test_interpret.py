# SPDX-License-Identifier: MIT
"""Interpret mode gives what the compiled kernel gives."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


@pto.jit
def softmax(x: pl.Tensor, y: pl.Tensor):
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, chunk=3):
            t = pl.load(x, [r, 0], [1, cols])
            e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
            pl.store(e / pl.sum(e, axis=1, keepdims=True), [r, 0], y)


@pto.jit
def product(a, b):
    m, k = a.shape
    n = b.shape[1]
    out = pl.zeros([m, n], pl.f32)
    for i in pl.range(0, m, 4, parallel=True):
        acc = pl.zeros([4, n], pl.f32)
        for j in pl.range(0, k, 4):
            acc += pl.dot(pl.load(a, [i, j], [4, 4]), pl.load(b, [j, 0], [4, n]))
        pl.store(acc, [i, 0], out)
    return out


@pto.jit
def counted(x, threshold: float):
    total = 0
    best = x[0]
    for i in range(x.shape[0]):
        if x[i] > threshold:
            total += 1
            if x[i] > best:
                best = x[i]
    return total, best, pl.sum(pl.load(x))


@pto.jit
def nested(x):
    return counted_parts(x) * 2


@pto.jit
def counted_parts(x):
    return x + x.shape[0]


RNG = np.random.default_rng(1)
A = RNG.standard_normal((10, 7)).astype(np.float32)
CASES = {
    "softmax": (softmax, lambda: (A, np.zeros_like(A))),
    "product": (product, lambda: (A, A.T.copy())),
    "counted": (counted, lambda: (A[0], 0.25)),
    "nested": (nested, lambda: (A,)),
}


def check(actual: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        for a, e in zip(actual, expected, strict=True):
            check(a, e)
    elif expected is not None:
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_interpret_agrees_with_the_compiled_kernel(case: str) -> None:
    kernel, make = CASES[case]
    one, two, three = make(), make(), make()
    compiled = kernel(*one)
    check(kernel.interpret(*two), compiled)
    pto.config.interpret = True
    check(kernel(*three), compiled)
    for a, b, c in zip(one, two, three, strict=True):
        check(b, a)
        check(c, a)


def test_interpret_checks_its_arguments_like_a_call() -> None:
    with pytest.raises(pto.ArgumentError, match="missing the argument `y`"):
        softmax.interpret(A)


def test_the_environment_switches_it_on(tmp_path: Path) -> None:
    script = tmp_path / "kernels.py"
    script.write_text(
        "import numpy as np, pto_jit as pto\n"
        "@pto.jit\n"
        "def kernel(x):\n"
        "    print(type(x).__name__)\n"
        "    return x + 1\n"
        "print(kernel(np.zeros(2))[0], kernel.specializations())\n"
    )
    root = str(Path(pto.__file__).parents[1])
    variables = {**os.environ, "PTO_INTERPRET": "1", "PYTHONPATH": root, "PTO_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(script)], env=variables, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["Tensor", "1.0", "[]"], done.stderr


M = pl.dynamic("M")
SYMBOL_USES: list[Any] = [
    lambda x: x[0] * M,
    lambda x: pl.zeros([M], pl.f32),
    lambda x: x[0] if M > 3 else x[1],
    lambda x: x[:M],
    lambda x: x[M],
    lambda x: x[M - 1],
    lambda x: pl.load(x, [0], [M]),
    lambda x: x.shape[0] == M,
    lambda x: pl.sum(pl.load(x)) + M,
    lambda x: tuple(x[i] for i in range(M)),
    lambda x: pl.full([4], M, pl.f32),
    lambda x: pl.maximum(x[0], M),
]


@pytest.mark.parametrize("body", SYMBOL_USES)
def test_the_name_of_an_extent_is_no_number(body: Any) -> None:
    kernel = pto.jit(body)
    for call in (kernel, kernel.interpret):
        with pytest.raises(pto.TypeMismatchError, match=r"PTO-T082: pl.dynamic\('M'\) names an extent"):
            call(np.arange(8, dtype=np.float32))


def generator_returned(x):
    return (x[i] for i in range(2))


def reduction_read_too_early(x):
    acc = pl.reduction(init=0.0, combine=max)
    y = pl.zeros([8], pl.f32)
    for i in pl.range(x.shape[0], parallel=True):
        acc.update(x[i])
        y[i] = acc.value
    return y


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (generator_returned, "PTO-N040"),
        (reduction_read_too_early, "PTO-L007"),
        (lambda x: not x, "PTO-T026"),
        (lambda x: x and 1, "PTO-T026"),
    ],
)
def test_interpret_refuses_what_the_compiler_refuses(body: Any, code: str) -> None:
    kernel = pto.jit(body)
    for call in (kernel, kernel.interpret):
        with pytest.raises(pto.CompilationError, match=code):
            call(np.arange(8, dtype=np.float32))


@pto.jit
def reduced_within_a_parallel_loop(x, y):
    for r in pl.range(x.shape[0], parallel=True):
        acc = pl.reduction(init=0.0, combine=max)
        for c in pl.range(x.shape[1], parallel=True):
            acc.update(x[r, c])
        y[r] = acc.value


def test_a_reduction_is_read_after_its_loop_inside_another_one() -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros(3, np.float32)
    for call in (reduced_within_a_parallel_loop, reduced_within_a_parallel_loop.interpret):
        y[:] = 0
        call(x, y)
        np.testing.assert_array_equal(y, x.max(1))


def test_an_argument_without_axes_is_not_returned() -> None:
    same = pto.jit(lambda x: x)
    for call in (same, same.interpret):
        with pytest.raises(pto.TypeMismatchError, match="PTO-T046"):
            call(np.array(1.0))


@pto.jit
def numbers_stored(z, n: int, v: float):
    z[0] = 0.5
    z[1] = 300
    z[2] = -1.5
    z[3] = n
    z[4] = v
    z[5] = float("inf")
    z[6] = float("nan")
    z[7:9] = 2.5
    with pl.incore():
        z[9] = 1000
        z[10:12] = -1
        pl.store(pl.full([2], 70000, z.dtype), [12], z)
        pl.store(pl.load(z, [14], [4], pad=3.75)[2:4], [14], z)


@pto.jit
def filled(z, n: int, v: float):
    new = pl.full([4], -300.5, z.dtype)
    z[0:4] = new
    pl.store(pl.arange(0.5, 4, dtype=z.dtype), [4], z)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "uint32", "float32", "bool"])
@pytest.mark.parametrize("kernel", [numbers_stored, filled], ids=lambda k: k.__name__)
def test_numbers_are_cast_where_they_are_stored(kernel: Any, dtype: str) -> None:
    if dtype == "bool" and kernel is filled:
        return
    mine, compiled = np.zeros(16, dtype), np.zeros(16, dtype)
    kernel.interpret(mine, 300, 2.75)
    kernel(compiled, 300, 2.75)
    np.testing.assert_array_equal(compiled, mine)


def test_a_constant_that_an_element_meets_has_to_fit() -> None:
    kernel = pto.jit(_adds_too_much)
    for call in (kernel, kernel.interpret):
        with pytest.raises(pto.TypeMismatchError, match="PTO-T012"):
            call(np.zeros(4, np.uint8))


def _adds_too_much(z):
    z[0] = z[1] + 300


@pto.jit
def rounded(x, out):
    for i in range(x.shape[0]):
        v = x[i]
        whole = (math.floor(v), math.ceil(v), math.trunc(v), round(v), int(v), math.floor(-v), bool(v))
        for k, w in enumerate(whole):
            out[i, k] = w


@pto.jit
def divided(x, out):
    for i in range(x.shape[0]):
        v = x[i]
        a, b = divmod(v, 7)
        c, d = divmod(100, v)
        for k, w in enumerate((a, b, c, d, -v, abs(v), +v, v // 3, v % 3, v / 2)):
            out[i, k] = w


@pto.jit
def wrapped(x, out):
    for i in range(x.shape[0]):
        v = x[i]
        out[i, 0] = math.floor(v) * 65536
        out[i, 1] = round(v) * 65536
        out[i, 2] = int(v) * 65536
        out[i, 3] = ~v


@pto.jit
def weak(n: int, f: float, out, real):
    whole = (math.floor(n), round(n), -n, abs(-n), ~n, +n, *divmod(n, 3), *divmod(100, n), n << 2, n >> 1, n**3, n << 70,  # noqa: RUF057
             n >> 70, -n >> 70, n // 0, n % 0, math.floor(f), math.ceil(f), math.trunc(f), round(f), int(f), int(-f))
    for k, w in enumerate(whole):
        out[k] = w
    floats = (-f, abs(f), +f, *divmod(f, 0.3), *divmod(2.0, f), f / 0, f // 0.0, f % 0.0, f**1000, n / 0, 2.0**n)
    for k, r in enumerate(floats):
        real[k] = r


SPECIAL = (2.5, -2.5, 1e30, np.nan, np.inf, -np.inf, 3.5, -0.5, 0.0)
INTEGERS = np.array([100000, -7, 3, 2**31 - 1, 0], np.int32)


@pytest.mark.parametrize(
    ("kernel", "args", "dtype"),
    [(rounded, (np.array(SPECIAL, np.float32),), np.int64), (rounded, (np.array(SPECIAL),), np.int64),
     (rounded, (INTEGERS,), np.int64), (divided, (np.array(SPECIAL),), np.float64), (divided, (INTEGERS,), np.float64),
     (wrapped, (INTEGERS,), np.int64)],
)  # fmt: skip
def test_elements_round_divide_and_wrap_as_compiled(kernel: Any, args: tuple[Any, ...], dtype: type) -> None:
    compiled, interpreted = np.zeros((9, 10), dtype), np.zeros((9, 10), dtype)
    kernel(*args, compiled)
    kernel.interpret(*args, interpreted)
    np.testing.assert_array_equal(interpreted, compiled)


@pytest.mark.parametrize("f", SPECIAL)
@pytest.mark.parametrize("n", [5, -5, 0])
def test_numbers_round_divide_and_wrap_as_compiled(n: int, f: float) -> None:
    runs = [(np.zeros(24, np.int64), np.zeros(13)) for _ in range(2)]
    weak(n, f, *runs[0])
    weak.interpret(n, f, *runs[1])
    for compiled, interpreted in zip(*runs, strict=True):
        np.testing.assert_array_equal(interpreted, compiled)

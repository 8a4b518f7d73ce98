# SPDX-License-Identifier: MIT
"""Running combinations along lines that are longer than a block has room for: reduce, then scan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.lower.wholes import choose
from pto_jit.slotted import replace
from tests.targets.cuda.harness import emulated, needs_compiler

RNG = np.random.default_rng(40)


@pto.jit
def sums(x, y):
    y[...] = pl.cumsum(x, axis=0) * 2


@pto.jit
def sums_from_the_end(x, y):
    y[...] = pl.cumsum(x, axis=0, reverse=True)


@pto.jit
def sums_along_rows(x, y):
    y[...] = pl.cumsum(x, axis=x.ndim - 1)


@pto.jit
def products(x, y):
    y[...] = pl.cumprod(x * 0.001 + 1.0, axis=0)


@pto.jit
def maxima(x, y):
    y[...] = pl.associative_scan(x, 0, lambda a, b: pl.maximum(a, b))


@pto.jit
def recurrence(x, y):
    """y[i] = y[i - 1] / 2 + x[i], by a function that does not commute and has no state which changes nothing."""
    a, b = pl.associative_scan((x * 0.0 + 0.5, x), 0, lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]))
    y[...] = b + a


@pto.jit
def recurrence_from_the_end(x, y):
    _, b = pl.associative_scan((x * 0.0 + 0.5, x), 0, lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), reverse=True)
    y[...] = b


@pto.jit
def several(x, y):
    s, m = pl.cumsum(pl.abs(x), axis=0), pl.associative_scan(x, 0, lambda a, b: pl.minimum(a, b))
    y[...] = m / (s + 1.0) - x


@pto.jit
def of_a_scan(x, y):
    y[...] = pl.cumsum(pl.cumsum(x, axis=0) * 0.01, axis=x.ndim - 1) + 1.0


@pto.jit
def of_a_sum(x, y):
    s = pl.cumsum(x, axis=0)
    y[...] = pl.cumsum(s / pl.max(pl.abs(s), axis=0, keepdims=True), axis=0) * 0.01


@pto.jit
def in_place(x, y):
    y[...] = pl.cumsum(y, axis=0)
    x[1:] = pl.cumsum(x[:-1], axis=0)


WHOLE = (sums, sums_from_the_end, sums_along_rows, products, maxima, recurrence, recurrence_from_the_end, several,
         of_a_scan, of_a_sum, in_place)  # fmt: skip


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lines of some thousand elements are long, so that they can be emulated; a chunk of them has several steps."""
    small = replace(choose.PARTS["cuda"], room=1024, step=512, run=1500, alone=1000, chunks=3)
    monkeypatch.setitem(choose.PARTS, "cuda", small)
    yield


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    if np.dtype(dtype).kind == "f":
        return RNG.standard_normal(shape).astype(dtype)
    return RNG.integers(-100, 100, shape).astype(dtype)


def compared(fn: Any, x: np.ndarray, specs: tuple[Any, ...] = (), close: float = 2e-4) -> None:
    y = numbers(x.shape, x.dtype)
    given, wanted = [x.copy(), y.copy()], [x.copy(), y.copy()]
    if specs:
        emulate(fn.compile(*specs, target="cuda"), *given)
    else:
        given = emulated(fn, x, y, orders=(0, 5))[1]
    fn.interpret(*wanted)
    for a, b in zip(given, wanted, strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=close, atol=close * 50)


@needs_compiler
@pytest.mark.parametrize("n", [0, 1, 997, 5003])
@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
@pytest.mark.usefixtures("few")
def test_vectors(fn: Any, n: int) -> None:
    compared(fn, numbers((n,)))


@needs_compiler
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (211, 3), (3, 2053), (1, 3001), (1009, 1)])
@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
@pytest.mark.usefixtures("few")
def test_rows_and_columns(fn: Any, shape: tuple[int, int]) -> None:
    compared(fn, numbers(shape))


@needs_compiler
@pytest.mark.parametrize("shape", [(30011,), (3, 40009), (4001, 5)])
@pytest.mark.parametrize("fn", [sums, sums_along_rows, recurrence], ids=lambda fn: fn.__name__)
def test_known_extents(fn: Any, shape: tuple[int, ...]) -> None:
    """What a block has no room for is divided without asking how long it is."""
    spec = pto.spec(shape, pl.f32)
    compared(fn, numbers(shape), (spec, spec))


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.int8])
@pytest.mark.parametrize("shape", [(4001,), (307, 5)])
@pytest.mark.usefixtures("few")
def test_types(dtype: Any, shape: tuple[int, ...]) -> None:
    for fn in (sums, sums_from_the_end):
        compared(fn, numbers(shape, dtype), close=2e-3 if dtype == np.float16 else 1e-12)


@needs_compiler
@pytest.mark.usefixtures("few")
def test_bf16_and_truth_values() -> None:
    @pto.jit
    def counted(x, y):
        t = pl.cumsum(x > 0, axis=0)
        y[...] = t.to(pl.f32) + pl.cumsum(x.to(pl.bf16) * 0 + 1, axis=0).to(pl.f32)

    x = numbers((3001,))
    _, (_, y) = emulated(counted, x, np.zeros_like(x), orders=(1,))
    count = np.arange(1, 3002).astype(np.float32)
    exact = np.cumsum(x > 0) + (count.view(np.uint32) + 0x7FFF + (count.view(np.uint32) >> 16 & 1) & 0xFFFF0000).view(
        np.float32)  # fmt: skip
    np.testing.assert_array_equal(y, exact)


def test_a_program_has_both_forms() -> None:
    """The host takes the one that reads a line once where it fits a block."""

    @pto.jit
    def summed(x, y):
        y[...] = pl.cumsum(x, axis=0) * 2.0

    spec = pto.spec((None,), pl.f32)
    compiled = summed.compile(spec, spec, target="cuda")
    assert compiled.ir("divided").count("IF %fits") == 1
    assert any("what runs along axis 0 does so in up to 512 parts" in str(d) for d in compiled.decisions)
    assert len(compiled._kernel.built.program.host.kernels) == 4
    short = summed.compile(*[pto.spec((1000,), pl.f32)] * 2, target="cuda")
    assert len(short._kernel.built.program.host.kernels) == 1


# -- functions of the program ------------------------------------------------------------------------------------------


def half_as_often(v):
    n = 0.0
    while v > 1.0:
        v = v / 2.0
        n += 1.0
    return n


@pto.jit
def mapped(x, y):
    y[...] = pl.map(half_as_often, pl.abs(x) * 20.0) + 1.0


@pto.jit
def folded(x, y):
    y[...] = y * 0.0 + pl.reduce(x * 0.1, 1, lambda a, b: a * b + a + b, keepdims=True)


@pytest.mark.parametrize("fn", [mapped, folded, recurrence], ids=lambda fn: fn.__name__)
def test_functions_of_whole_tensors_are_divided(fn: Any) -> None:
    spec = pto.spec((None, None), pl.f32)
    text = fn.compile(spec, spec, target="cuda").ir("divided")
    assert "kind=parallel" in text and "tload %x[0, 0]" not in text


@needs_compiler
@pytest.mark.parametrize("fn", [mapped, folded], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("shape", [(1, 1), (37, 131), (2, 1025)])
def test_they_give_the_same(fn: Any, shape: tuple[int, int]) -> None:
    compared(fn, numbers(shape), close=1e-5)


@needs_compiler
def test_a_function_that_reads_what_is_written_is_not_divided() -> None:
    """Other blocks would read what this one has written."""

    @pto.jit
    def through(x, y):
        n = x.shape[0]
        x[...] = pl.map(lambda k: x[n - 1 - k] + 1.0, pl.arange(n))
        y[...] = x * 2.0

    spec = pto.spec((None,), pl.f32)
    text = through.compile(spec, spec, target="cuda").ir("divided")
    assert "tmap" in text and text.count("kind=parallel") == 1

# SPDX-License-Identifier: MIT
"""Each operation and kind of argument in a kernel, by the interpreter, against the same program run eagerly."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_nests import RNG, H, jagged
from tests.fractal.compile.test_random import flat, interpreted

WEIGHT = RNG.standard_normal((H, H)).astype(np.float32)
CUBE = RNG.standard_normal((3, 4, H)).astype(np.float32)


def row(n: int) -> ft.FractalTensor:
    return jagged(n)[0]


def zero() -> Any:
    return ft.zeros(1, H)


class Pair(NamedTuple):
    a: Any
    b: Any


def annotated(x: ft.FractalTensor[ft.FractalTensor[pl.Tensor[[1, 4], pl.f32]]]) -> Any:
    return ft.map(lambda r: ft.map(lambda e: e * 2, r), x)


def double(e: Any) -> Any:
    return e * 2


def plus(e: Any, k: Any) -> Any:
    return e + k


CASES: dict[str, tuple[Any, ...]] = {
    "annotation": (annotated, jagged(2, 0, 1)),
    "namedtuple arg": (lambda p: ft.map(lambda e: e * 2, p.a), Pair(row(3), row(2))),
    "tuple result": (lambda x: (ft.map(double, x), ft.reverse(x)), row(3)),
    "namedtuple result": (lambda x: Pair(ft.map(double, x), ft.reverse(x)), row(3)),
    "partial body": (lambda x: ft.map(partial(plus, k=2.0), x), row(3)),
    "kwargs": (lambda x: ft.map(plus, x, k=3.0), row(3)),
    "foldl": (lambda x: ft.foldl(lambda s, e: s * 0.5 + e, x, init=zero()), row(3)),
    "foldr": (lambda x: ft.foldr(lambda s, e: s * 0.5 + e, x, initializer=zero()), row(3)),
    "scanl": (lambda x: ft.scanl(lambda s, e: s * 0.5 + e, x, initializer=zero()), row(3)),
    "scanr": (lambda x: ft.scanr(lambda s, e: s * 0.5 + e, x, initializer=zero()), row(3)),
    "reduce": (lambda x: ft.reduce(lambda a, b: a + b, x), row(3)),
    "scan no init": (lambda x: ft.scan(lambda a, b: a * 0.5 + b, x), row(3)),
    "tuple body": (lambda x: ft.map(lambda e: (e + 1, e * 2), x), row(3)),
    "enumerate": (lambda x: ft.map(lambda p: p[1] * p[0], ft.enumerate(x)), row(3)),
    "product": (
        lambda x, y: ft.map(lambda p: ft.map(lambda q: q[0] + q[1], ft.zip(*p)), ft.zip(*ft.product(x, y))),
        row(3),
        row(2),
    ),
    "slices0": (lambda t: ft.map(double, ft.slices(t, 0)), CUBE),
    "slices1": (lambda t: ft.map(double, ft.slices(t, axis=1)), CUBE),
    "split tensor": (lambda t: ft.map(double, ft.split(t, 2, axis=1)), CUBE),
    "split list": (lambda x: ft.map(lambda p: ft.fold(lambda s, e: s + e, p, init=zero()), ft.split(x, 2)), row(4)),
    "stack": (lambda x: ft.map(lambda r: pl.sum(ft.stack(r), axis=0), ft.slide(x, 2)), row(4)),
    "flatten": (lambda x: ft.map(double, ft.flatten(x)), jagged(2, 0, 1)),
    "unbind": (lambda t: ft.map(double, ft.unbind(t, 1)), CUBE),
    "index": (lambda x: ft.index(x, 1) * 2, row(3)),
    "x[i]": (lambda x: x[-1] * 2, row(3)),
    "slice": (lambda x: ft.map(double, ft.slice(x, 1, 3)), row(4)),
    "x[a:b]": (lambda x: ft.map(double, x[::2]), row(4)),
    "gather": (lambda x, i: ft.map(double, ft.gather(x, i)), row(4), ft.from_list([2, 0, 2])),
    "head": (lambda x: ft.head(x) + ft.first(x) + ft.tail(x) + ft.last(x), row(3)),
    "slide": (
        lambda x: ft.map(
            lambda p: ft.fold(lambda s, e: s + e, p, init=zero()),
            ft.slide(x, 3, stride=2, dilation=2, padding=2, value=1),
        ),
        row(7),
    ),
    "shifted_slide": (
        lambda x: ft.map(
            lambda p: ft.scan(lambda s, e: s * 0.5 + e, p, init=zero()), ft.shifted_slide(x, 3, dilation=2)
        ),
        row(5),
    ),
    "window": (lambda x: ft.map(double, ft.window(x, 1, 3, dilation=2, value=5)), row(4)),
    "shifted_window": (lambda x: ft.map(double, ft.shifted_window(x, 0, 3)), row(4)),
    "join": (lambda x, y: ft.map(double, ft.join(x, y)), row(2), row(3)),
    "repeat": (lambda x: ft.map(lambda r: ft.fold(lambda s, e: s + e, r, init=zero()), ft.repeat(x, 3)), row(2)),
    "repeat tensor": (lambda x: ft.map(double, ft.repeat(ft.zeros(1, H) + 1, len(x))), row(3)),
    "reverse": (lambda x: ft.map(double, ft.reverse(x)), row(3)),
    "length depth": (lambda x: ft.map(lambda e: e * ft.length(x) + ft.depth(x), x), row(3)),
    "cat list": (lambda x: ft.map(lambda r: pl.sum(ft.cat(r, axis=0), axis=0), ft.slide(x, 2)), row(4)),
    "cat": (lambda x: ft.map(lambda e: ft.cat(e, e + 1, axis=-1), x), row(3)),
    "dilated_map": (
        lambda x: ft.dilated_map(lambda p: ft.scan(lambda s, e: s * 0.5 + e, p, init=zero()), x, 2),
        row(5),
    ),
    "tensor math": (lambda x, w: ft.map(lambda e: pl.tanh(e @ w), x), row(3), WEIGHT),
    "tuple state": (lambda x: ft.fold(lambda s, e: (s[0] + e, s[1] * 0.5 + s[0]), x, init=(zero(), zero())), row(4)),
    "list state": (lambda x: ft.fold(lambda s, e: ft.map(lambda v: v + e, s), x, init=ft.repeat(zero(), 2)), row(3)),
    "unzip fold": (
        lambda x: ft.zip(
            *ft.fold(
                lambda s, e: ft.zip(*ft.map(lambda p: (p[0] + e, p[1] * 2 + p[0]), s)),
                x,
                init=ft.zip(ft.repeat(zero(), 2), ft.repeat(zero() + 1, 2)),
            )
        ),
        row(3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_line_of_the_design_says(name: str) -> None:
    program, *given = CASES[name]
    want = flat(program(*given))
    kernel = pto.jit(program)
    found = flat(kernel(*given)) if isinstance(given[0], tuple) else interpreted(kernel, given)[0]
    for f, w in zip(found, want, strict=True):
        np.testing.assert_allclose(f, w, atol=1e-5)

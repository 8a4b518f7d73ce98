# SPDX-License-Identifier: MIT
"""Lists of even lengths that are flattened, attributes, and indices that are tensors, as kernels and eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_programs import same

NUMBERS = ft.from_list([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
ROWS = ft.from_list([np.full((1, 4), k, np.float32) for k in range(6)])
JAGGED = ft.from_list([[1.0, 2.0], [], [3.0, 4.0, 5.0], [6.0]])
AT = np.array([3, 1])


def running(s: Any, v: Any) -> Any:
    return s * 0.5 + v


def products(x: Any) -> Any:
    first, second = ft.product(x, x)
    return ft.map(lambda pair: pair[0] * pair[1], ft.zip(ft.flatten(first), ft.flatten(second)))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "parts": (lambda x: ft.flatten(ft.split(x, 2)), (NUMBERS,)),
    "parts of rows": (lambda x: ft.map(lambda v: v * 2.0, ft.flatten(ft.split(x, 3))), (ROWS,)),
    "windows": (lambda x: ft.map(lambda v: v + 1.0, ft.flatten(ft.slide(x, 3))), (NUMBERS,)),
    "a scan of windows": (lambda x: ft.scan(running, ft.flatten(ft.slide(x, 2)), initializer=0.0), (NUMBERS,)),
    "windows of jagged lists": (
        lambda x: ft.flatten(ft.map(lambda row: ft.slide(row, 2, padding=1), x)), (JAGGED,)),
    "what is repeated": (lambda x: ft.flatten(ft.repeat(x, 3)), (ROWS,)),
    "products": (products, (NUMBERS,)),
    "attributes": (
        lambda x: ft.map(lambda v: pl.cast(v * (x.depth + x.leaf_shape[1]), x.dtype) * len(x), x), (ROWS,)),
    "a list of a list": (lambda x: ft.map(lambda row: ft.map(lambda v: v * row.depth, row), x), (JAGGED,)),
    "an index of one element": (lambda x, at: ft.map(lambda v: v * x[at[0]], x), (NUMBERS, AT)),
    "an index that is a tile": (
        lambda x, at: ft.map(lambda v: v * x[pl.load(at, [1], [1])], x), (NUMBERS, AT)),
    "tuples put back": (
        lambda x: ft.dilated_map(lambda part: ft.map(lambda v: (v, v * 2.0), part), x, 2), (NUMBERS,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_gives_what_is_given_eagerly(name: str) -> None:
    function, args = CASES[name]
    same(pto.jit(function)(*args), function(*args))


def test_a_tile_of_several_integers_is_no_index() -> None:
    def function(x, at):
        return ft.map(lambda v: v * x[pl.load(at, [0], [2])], x)

    for run, code in ((function, "PTO-F003"), (pto.jit(function), "PTO-F101")):
        with pytest.raises(pto.CompilationError, match=code):
            run(NUMBERS, AT)


def test_a_list_has_no_other_attributes() -> None:
    with pytest.raises(pto.CompilationError, match="PTO-F103"):
        pto.jit(lambda x: ft.map(lambda v: v * x.width, x))(ROWS)

# SPDX-License-Identifier: MIT
"""Python's numbers as states: the types that bodies make of them, which no length changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_nests import jagged, same, weights

LISTS = ft.from_list([[np.float32(v) for v in row] for row in ([1, 2, 3], [4], [], [5, 6])])

# what is done to each list, the element types that its result has
CASES: list[tuple[Callable[[Any], Any], list[type]]] = [
    (lambda x: ft.fold(lambda s, v: s + v, x, initializer=0.0) * 2.0, [np.float32]),
    (lambda x: ft.fold(lambda s, v: s + v, x, initializer=0), [np.float32]),
    (lambda x: ft.fold(lambda s, v: s + 0.5, x, initializer=0), [np.float64]),
    (lambda x: ft.scan(lambda s, v: (s[0] + 1, s[1] + v), x, initializer=(0, 0.0)), [np.int64, np.float32]),
    # a number that takes the type of another, which takes that of the elements: one step after the other
    (lambda x: ft.scan(lambda s, v: (s[1], s[2], v), x, initializer=(1.0, 2.0, 3.0)), [np.float32] * 3),
    (lambda x: ft.foldr(lambda s, v: (pl.maximum(s[1] - 1.0, s[0] - 3.0), v), x, initializer=(0.0, 0.0)), [np.float32] * 2),
    # a count stays a number of Python's, so that mean stays of the elements' type
    (lambda x: ft.fold(lambda s, v: (s[0] + 1, s[1] + (v - s[1]) / (s[0] + 1)), x, initializer=(0, 0.0)), [np.int64, np.float32]),
    (lambda x: ft.map(lambda v: v * ft.fold(lambda s, _: s + 1, x, initializer=0), x), [np.float32]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "dtypes"), CASES)
def test_types_come_from_the_body(body: Callable[[Any], Any], dtypes: list[type]) -> None:
    """For each list by itself, the empty one as well; the same values and types in a kernel."""

    def program(lists: Any) -> Any:
        return ft.map(body, lists)

    wanted = program(LISTS)
    found = pto.jit(program)(LISTS)
    for x, y, dtype in zip(*(r if isinstance(r, tuple) else (r,) for r in (wanted, found)), dtypes, strict=True):
        assert x.dtype.numpy == y.dtype.numpy == dtype
        assert [list(map(int, o)) for o in x.offsets] == [list(map(int, o)) for o in y.offsets]
        np.testing.assert_allclose(x.leaves, y.leaves, rtol=1e-6)


def test_a_body_that_fails_on_zeros() -> None:
    def step(s: Any, v: Any) -> Any:
        return s + {1.0: v}[float(v)]

    with pytest.raises(pto.TypeMismatchError) as caught:
        ft.map(lambda x: ft.fold(step, x, initializer=0.0), ft.from_list([[np.float32(1)], []]))
    assert caught.value.code == "PTO-F026"


@pytest.mark.parametrize("plan", ["sequential", "wavefront", "tasks"])
def test_a_layer_computes_with_its_number(plan: str) -> None:
    """The index of a loop that chooses the weights of rows, as a number and as an index of a tensor."""

    def program(x: Any, w: Any, t: Any) -> Any:
        def layer(xs: Any, e: Any) -> Any:
            k, u = e
            body = lambda s, c: pl.tanh(c @ u + s * 0.5 + t[k, 1] + pl.f32(k))  # noqa: E731
            return ft.scan(body, xs, initializer=ft.zeros(1, 4))

        return ft.map(lambda xs: ft.fold(layer, ft.enumerate(w), initializer=xs), x, schedule=plan)

    given = jagged(2, 0, 3), weights(3), np.arange(12, dtype=np.float32).reshape(3, 4) / 8
    for debug in (False, True):
        same(pto.jit(debug=debug)(program)(*given), program(*given))

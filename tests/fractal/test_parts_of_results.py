# SPDX-License-Identifier: MIT
"""Kernels that return a part of a list that they have computed: it has no more elements than the part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl

NUMBERS = ft.from_list([np.float32(v) for v in range(6)])
JAGGED = ft.from_list([[np.float32(1), np.float32(2)], [], [np.float32(3)], [np.float32(v) for v in range(4, 8)]])


def doubled(v: Any) -> Any:
    return v * 2


@pytest.mark.parametrize("options", [{}, {"debug": True}, {"target": "c"}])
@pytest.mark.parametrize(
    "part",
    [
        lambda x: ft.map(doubled, x)[:3],
        lambda x: ft.map(doubled, x)[:-1],
        lambda x: ft.map(doubled, x)[2:],
        lambda x: ft.slide(ft.map(doubled, x), 3)[0],
        lambda x: ft.split(ft.map(doubled, x), 2)[0],
        lambda x: ft.scan(lambda s, v: s + v, x, init=pl.f32(0))[:2],
        lambda x: (ft.map(doubled, x)[:4], ft.map(doubled, x)),
    ],
)
def test_of_a_list(part: Callable[[Any], Any], options: dict[str, Any]) -> None:
    assert _lists(pto.jit(**options)(part)(NUMBERS)) == _lists(part(NUMBERS))


@pytest.mark.parametrize(
    "part",
    [
        lambda x: ft.map(lambda r: ft.map(doubled, r)[:-1], x),
        lambda x: ft.map(lambda r: ft.map(doubled, r)[:3], x),
        lambda x: ft.map(lambda r: ft.map(doubled, r), x)[:2],
        lambda x: ft.map(lambda r: ft.map(doubled, r), x)[1:3],
    ],
)
def test_of_a_list_of_lists(part: Callable[[Any], Any]) -> None:
    assert _lists(pto.jit(part)(JAGGED)) == _lists(part(JAGGED))


def _lists(result: Any) -> Any:
    return [_lists(r) for r in result] if isinstance(result, tuple) else result.tolist()

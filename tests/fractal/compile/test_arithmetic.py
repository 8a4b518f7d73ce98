# SPDX-License-Identifier: MIT
"""What planes of rows do not compute twice, and which of their reads are believed to lie inside of their tensors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.test_tutorials import load


def repeated(text: str) -> list[str]:
    """Integer operations of IR text whose result is there: in the same block, or in one around it."""
    again: list[str] = []
    for function in text.split("\nfunc ")[1:]:
        scopes: list[tuple[int, set[str]]] = []
        for line in function.splitlines():
            depth = len(line) - len(line.lstrip())
            while scopes and scopes[-1][0] > depth:
                scopes.pop()
            if not scopes or scopes[-1][0] < depth:
                scopes.append((depth, set()))
            found = re.match(r"\s*%\S+ = (s(?:add|sub|mul|min|max|mod|floordiv) .*) : i64", line)
            if found is None:
                continue
            if any(found[1] in scope for _, scope in scopes):
                again.append(line)
            scopes[-1][1].add(found[1])
    return again


def test_arithmetic_of_a_segment_is_written_once() -> None:
    grid_rnn = load("grid_rnn")
    text = pto.jit(grid_rnn.program).compile(*grid_rnn.arguments()).ir("source")
    found = repeated(text)
    assert len(found) <= 20, found  # sizes of buffers, and where an index begins: not the bounds of each copy


def views(text: str, tensor: str) -> list[bool]:
    """Per view of a tensor whether it is said to lie inside."""
    return ["inside=true" in line for line in text.splitlines() if f"= tview %{tensor}[" in line]


X = ft.from_flat(np.ones((5, 1, 4), np.float32), [[0, 2, 5]])
W, U = np.ones((3, 4, 4), np.float32), np.ones((3, 4, 4), np.float32)


def layers(x: Any, w: Any, u: Any) -> Any:
    def layer(xs: Any, both: Any) -> Any:
        return ft.scan(lambda h, v: pl.tanh(h @ both[0] + v @ both[1]), xs, initializer=ft.zeros(1, 4))

    pairs = ft.zip(ft.unbind(w), ft.unbind(u))
    return ft.map(lambda xs: ft.fold(layer, pairs, initializer=xs), x, schedule="wavefront")


def test_weights_of_a_layer_are_inside_when_their_lengths_have_been_compared() -> None:
    text = pto.jit(layers).compile(X, W, U).ir("source")
    assert views(text, "w") and all(views(text, "w"))
    assert views(text, "u").count(True) >= 1


def chosen(x: Any, w: Any, numbers: Any) -> Any:
    def layer(xs: Any, k: Any) -> Any:
        return ft.scan(lambda h, v: pl.tanh(h @ ft.index(ft.unbind(w), k) + v), xs, initializer=ft.zeros(1, 4))

    return ft.map(lambda xs: ft.fold(layer, numbers, initializer=xs), x, schedule="wavefront")


def test_what_the_users_numbers_choose_is_not_believed() -> None:
    numbers = ft.from_flat(np.array([0, 2, 1]))
    kernel = pto.jit(chosen)
    text = kernel.compile(X, W, numbers).ir("source")
    assert views(text, "w") and not any(views(text, "w"))
    np.testing.assert_allclose(kernel(X, W, numbers).leaves, chosen(X, W, numbers).leaves, atol=1e-6)

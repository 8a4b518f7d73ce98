# SPDX-License-Identifier: MIT
"""Tracebacks end at the lines of the kernel and of the helpers it calls, with the exact ranges."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

X = np.arange(8, dtype=np.float32)


def missing(größe: Any) -> Any:
    return (lambda wert: wert.banana)(größe)


def row(x: Any, at: Any) -> Any:
    return pl.load(x, [at], [4])


@pto.jit
def wrong(x: pl.Tensor, y: pl.Tensor):
    y[0] = 1 + missing(x[0])


@pto.jit
def outside(x: pl.Tensor, y: pl.Tensor, n: int):
    y[...] = row(x, n)


@pto.jit(debug=True)
def racing(x: pl.Tensor, y: pl.Tensor, n: int):
    for i in pl.range(8, parallel=True):
        y[i * n] = x[i]


def frames(call: Callable[[], Any], kind: type[Exception]) -> list[tuple[str, str]]:
    """Function and underlined text of the frames of this file, below the one that made the call."""
    with pytest.raises(kind) as caught:
        call()
    found = []
    for frame in traceback.extract_tb(caught.value.__traceback__):
        if frame.filename == __file__:
            line = linecache.getline(frame.filename, frame.lineno or 0).encode()
            found.append((frame.name, line[frame.colno : frame.end_colno].decode()))
    assert found[0][0] == "frames" and found[1][0] == "<lambda>"
    # the last frame of all is the user's: that is where pytest and debuggers stop
    assert traceback.extract_tb(caught.value.__traceback__)[-1].filename == __file__
    return found[2:]


def test_an_error_of_the_compiler_leads_through_the_helpers() -> None:
    assert frames(lambda: wrong(X, X.copy()), pto.CompilationError) == [
        ("wrong", "missing(x[0])"),
        ("missing", "(lambda wert: wert.banana)(größe)"),
        ("<lambda>", "wert.banana"),
    ]


def test_a_failure_while_running_leads_through_the_helpers_each_time() -> None:
    for _ in range(2):
        assert frames(lambda: outside(X, X[:4].copy(), -3), pto.BoundsError) == [
            ("outside", "row(x, n)"),
            ("row", "pl.load(x, [at], [4])"),
        ]


def test_an_error_of_a_pass_leads_to_the_loop() -> None:
    @pto.jit
    def both(x: pl.Tensor, y: pl.Tensor):
        for i in pl.range(7, parallel=True):
            y[i + 1] = y[i]

    (frame,) = frames(lambda: both(X, X.copy()), pto.ScheduleError)
    assert frame[0] == "both" and "y[i]" in frame[1]


def test_a_race_leads_to_the_later_access() -> None:
    assert frames(lambda: racing(X, X.copy(), 0), pto.RaceError) == [("racing", "y[i * n]")]


def test_the_frames_start_where_the_function_does() -> None:
    """pytest shows a function from its first line to the one that failed."""
    with pytest.raises(pto.CompilationError) as caught:
        wrong(X, X.copy())
    last = caught.value.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    assert last is not None and last.tb_frame.f_code.co_firstlineno == missing.__code__.co_firstlineno + 1
    assert str(caught.traceback[-1].statement).strip() == "return (lambda wert: wert.banana)(größe)"

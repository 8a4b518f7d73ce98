# SPDX-License-Identifier: MIT
# pyright: reportUnusedExpression=false
"""Statements that do nothing, and calls that are made once: a warning at their line, and none where a call may have an effect."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

X = np.arange(8, dtype=np.float32)


def warned(fn: Callable[..., Any], *args: Any) -> list[tuple[str, int]]:
    """The warnings of a first call: expression, line below the `def`."""
    kernel = pto.jit(cache=False)(fn)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel(*args)
    first = fn.__code__.co_firstlineno
    assert all(w.category is UserWarning and w.filename == __file__ for w in caught)
    return [(str(w.message).split("`")[1], w.lineno - first) for w in caught]


def helper(t: Any) -> Any:
    t * 2
    return t + 1


def test_values_that_nothing_uses_are_warned_of_at_their_lines() -> None:
    def kernel(x: Any, n: int) -> None:
        t = pl.load(x)
        t + n
        t == n  # noqa: B015
        -t
        pl.exp(t).to(pl.f16)
        (t + 1).sum()
        max(n, 3)
        pl.topk(t, 2)
        x[0]
        t
        x[0:4] = x[0:4] * n

    assert warned(kernel, X.copy(), 2) == [
        ("t + n", 2), ("t == n", 3), ("-t", 4), ("pl.exp(t).to(pl.f16)", 5), ("(t + 1).sum()", 6), ("max(n, 3)", 7),
        ("pl.topk(t, 2)", 8), ("x[0]", 9), ("t", 10),
    ]  # fmt: skip


def test_a_helper_is_warned_of_once_where_it_stands() -> None:
    def kernel(x: Any) -> None:
        for i in range(3):
            t = pl.load(x, [i], [1])
            pl.store(helper(helper(t)), [i], x)

    below = helper.__code__.co_firstlineno - kernel.__code__.co_firstlineno + 1
    assert warned(kernel, X.copy()) == [("t * 2", below)]


def test_calls_that_may_do_something_are_not_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x: Any, n: int) -> Any:
        """A docstring."""
        kept: list[Any] = []

        def keep(t: Any) -> Any:
            kept.append(t)
            return t

        t = pl.load(x)
        keep(t)
        keep(t) + 1
        kept.pop()
        {"a": t}.setdefault("b", t)
        (u := t + 1)
        pl.print("{}", n)
        pl.assert_(n > 0, "positive")
        pl.atomic_add(x, [0], t)
        pl.store(u, [0], x)
        pl.static_print(t)
        "text" + str(3)
        return kept[0]

    assert warned(kernel, X.copy(), 2) == []
    assert capsys.readouterr().out.split()[-1] == "2"


def test_warnings_may_be_errors() -> None:
    @pto.jit(cache=False)
    def kernel(x: Any) -> Any:
        x + 1
        return pl.sum(x)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="the value of `x \\+ 1` is not used: this statement does nothing"):
            kernel(X)
    assert kernel.interpret(X) == X.sum()


def test_what_is_seen_while_compiling_is_seen_in_every_process(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def fresh(kind: str) -> Any:
        @pto.jit
        def kernel(x):
            if kind == "print":
                pl.static_print("a tile", pl.load(x), sep=": ", end=".\n")
            if kind == "unused":
                x + 1
            return pl.sum(x)

        return kernel

    old = pto.config.cache_dir
    pto.config.cache_dir = tmp_path
    try:
        origins: dict[str, list[str]] = {}
        for kind in ("print", "unused", "nothing") * 2:
            kernel = fresh(kind)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compiled = kernel.compile(X)
                assert kernel(X) == X.sum() and compiled.ir("source")
            origins.setdefault(kind, []).append(kernel.specializations()[-1].origin)
    finally:
        pto.config.cache_dir = old
    assert origins == {"print": ["compiled"] * 2, "unused": ["compiled"] * 2, "nothing": ["compiled", "disk"]}
    assert capsys.readouterr().out == "a tile: <f32 tile [?]>.\n" * 2, "once per process, however often it is lowered"


def test_numbers_that_differ_each_time_are_made_once() -> None:
    chosen = np.random.default_rng(0)

    def kernel(x: Any) -> Any:
        a = np.random.rand()
        b = random.randint(1, 2)
        c = time.time()
        return pl.sum(x) + a + b + c + chosen.random() + random.Random(0).random()

    assert warned(kernel, X.copy()) == [("np.random.rand", 1), ("random.randint", 2), ("time.time", 3)]

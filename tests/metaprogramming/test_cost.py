# SPDX-License-Identifier: MIT
"""What the front end and a call do, counted: nothing twice, and nothing more because there is more of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.codegen import compile_program
from tests.codegen.writer import defined

X = np.ones((4, 4), np.float32)


def visits(kernel: Any, *args: Any) -> Counter[int]:
    """How often the front end executed the statements of each line."""
    call = kernel._parameters.classify(*kernel._parameters.bind(args, {}))
    seen: Counter[int] = Counter()
    compile_program(kernel.__pto_jit__, call.params, watch=lambda _, stmt: seen.update([stmt.lineno]))
    return seen


def nest(depth: int, header: str) -> Any:
    lines = ["def k(x, n):", "    v = x[0, 0]", "    c = 0"]
    for level in range(depth):
        lines.append("    " * (level + 1) + header.format(level))
        lines.append("    " * (level + 2) + "c = c + 1")
    lines.append("    " * (depth + 1) + "v = v + x[1, 1] * n + c")
    lines.append("    x[0, 0] = v")
    text = "\n".join(lines) + "\n"
    name = f"<nest {depth} {header}>"
    return pto.jit(defined(text, name, {"pl": pl})["k"]), len(lines)


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
@pytest.mark.parametrize("header", ["for i{} in range(n):", "while c < n + {}:", "if n > {}:"])
def test_every_statement_is_compiled_once_at_any_depth(depth: int, header: str) -> None:
    kernel, lines = nest(depth, header)
    seen = visits(kernel, X, 3)
    assert seen == dict.fromkeys(range(2, lines + 1), 1)


def test_the_work_of_the_front_end_grows_with_the_program_and_not_faster() -> None:
    def emitted(count: int) -> int:
        body = [f"        t{k} = pl.load(x, [r, 0], [1, 4]) * n + acc\n        acc = t{k}\n" for k in range(count)]
        text = "def k(x, n):\n    acc = pl.zeros([1, 4], pl.f32)\n    for r in range(n):\n" + "".join(body) + (
            "    pl.store(acc, [0, 0], x)\n")  # fmt: skip
        kernel = pto.jit(defined(text, f"<long {count}>", {"pl": pl})["k"])
        return sum(visits(kernel, X, 3).values())

    small, large = emitted(10), emitted(40)
    assert large - small == 60


def test_a_call_of_a_known_kind_runs_no_python_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    @pto.jit
    def kernel(a, b, c, d, e, f, n, s):
        a[0, 0] = f(b[0, 0]) * n + s

    def helper(v: Any) -> Any:
        return v + 1

    args = (X.copy(), X, X, X, "name", helper, 3, 2.5)
    kernel(*args)
    called: list[str] = []

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    import sys

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        kernel(*args)
    finally:
        sys.setprofile(before)
    assert called == []


def test_a_hundred_specialisations_are_found_without_python_too() -> None:
    import sys

    @pto.jit
    def kernel(a, k: pl.constexpr):
        a[0, 0] = k

    x = X.copy()
    with pytest.warns(RuntimeWarning, match="64 specialisations"):
        for k in range(100):
            kernel(x, k)
    called: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        for k in (0, 50, 99):
            kernel(x, k)
            assert x[0, 0] == k
    finally:
        sys.setprofile(before)
    assert called == []

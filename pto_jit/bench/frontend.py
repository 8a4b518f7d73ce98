# SPDX-License-Identifier: MIT
"""What a compilation costs before machine code is made, and what a call costs before it runs.

The kernel has about a hundred lines of what kernels have: loads, reductions, branches and loops on run-time values,
carried tiles.  Times are the least of many repetitions, of CPU time of this thread for compilations; beside them stand
the time of parsing the same text with `ast` and that of a small function of NumPy.
"""

from __future__ import annotations

import ast
import linecache
import time
import timeit
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.slotted import frozen


@frozen
class Cost:
    """One figure: seconds, and what it is."""

    name: str
    seconds: float


def kernel_text(lines: int = 100) -> str:
    """The source of a kernel `k(x, y, w, n, s)` of about that many lines."""
    text = [
        "def k(x, y, w, n, s):",
        "    rows, cols = x.shape",
        "    with pl.incore():",
        "        for r in pl.range(0, rows, 16, chunk=4):",
        "            acc = pl.zeros([16, 64], pl.f32)",
        "            m = pl.full([16, 1], -1e30, pl.f32)",
    ]
    k = 0
    while len(text) + 10 <= lines:
        k += 1
        text += [
            f"            t{k} = pl.load(x, [r, {k}], [16, 64], pad=0.0)",
            f"            u{k} = pl.exp(t{k} * s - pl.max(t{k}, axis=1, keepdims=True))",
            f"            if n > {k}:",
            f"                acc = acc + u{k} * {k}",
            "            else:",
            f"                acc = acc - u{k} / (1.0 + pl.abs(t{k}))",
            f"            for j{k} in pl.range(n):",
            f"                acc += pl.load(w, [r, j{k}], [16, 64], pad=0.0)",
            "            m = pl.maximum(m, pl.max(acc, axis=1, keepdims=True))",
        ]
    return "\n".join([*text, "            pl.store(acc - m, [r, 0], y)"]) + "\n"


def kernel_of(text: str, filename: str, name: str, arguments: tuple[Any, ...]) -> tuple[Callable[..., Any], Any]:
    """The function `name` of a source, and its parameters for some arguments."""
    linecache.cache[filename] = len(text), None, text.splitlines(keepends=True), filename
    names: dict[str, Any] = {"pl": pl, "pto": pto}
    exec(compile(text, filename, "exec"), names)
    parameters = pto.jit(names[name])._parameters
    return names[name], parameters.classify(*parameters.bind(arguments, {})).params


def compilation(repetitions: int = 15) -> list[Cost]:
    """Parsing, and source to verified IR: of text that was not seen before, and of a function seen before."""
    from pto_jit import source
    from pto_jit.codegen import compile_program
    from pto_jit.ir.verify import verify
    from pto_jit.semantic.rules import infer

    text = kernel_text()
    array = np.zeros((64, 64), np.float32)
    function, params = kernel_of(text, "<pto-bench frontend>", "k", (array, array, array, 3, 0.5))

    def front() -> None:
        verify(compile_program(function, params).module, infer)

    def cold() -> None:
        source._files.clear()
        source._located.clear()
        front()

    count = len(text.splitlines())
    return [
        Cost(f"ast.parse of {count} lines", _least(lambda: ast.parse(text), repetitions)),
        Cost(f"{count} lines to verified IR, never seen before", _least(cold, repetitions)),
        Cost(f"{count} lines to verified IR, for another kind of arguments", _least(front, repetitions)),
    ]


def lookups() -> list[Cost]:
    """Calls that find their specialisation: of eight arguments, and among a hundred."""

    @pto.jit
    def eight(a, b, c, d, n, m, s, t):
        a[0] = b[0]

    @pto.jit
    def many(a, name):
        a[0] = len(name)

    arrays = [np.ones(8, np.float32) for _ in range(4)]
    p, q, r, w = arrays
    names = [f"name {k}" for k in range(100)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        many(arrays[0], names[0])
        alone = _each(lambda: many(arrays[0], names[0]))
        for name in names:
            many(arrays[0], name)
    return [
        Cost("np.add of two arrays of one element", _each(lambda: np.add(arrays[0][:1], arrays[1][:1]))),
        Cost("a call with eight arguments", _each(lambda: eight(p, q, r, w, 1, 2, 1.0, 2.0))),
        Cost("a call, the only specialisation", alone),
        Cost("a call, the first of 100 specialisations", _each(lambda: many(arrays[0], names[0]))),
        Cost("a call, the last of 100 specialisations", _each(lambda: many(arrays[0], names[99]))),
    ]


def _least(call: Callable[[], Any], repetitions: int) -> float:
    least = float("inf")
    for _ in range(repetitions):
        start = time.thread_time()
        call()
        least = min(least, time.thread_time() - start)
    return least


def _each(call: Callable[[], Any], number: int = 10_000) -> float:
    call()
    return min(timeit.repeat(call, number=number, repeat=7)) / number

# SPDX-License-Identifier: MIT
"""What it costs to write a kernel of a hundred lines for the targets that are sources.

From verified IR to the text of all files, as `compiled.sources` gives them but for the `.pto` text: the passes, then
the target's writer.  The front end before that has its own figures (`frontend`).  Times are CPU time of this thread,
the median of several repetitions of a process that forgets in between what it keeps of the text of a kernel: each is a
first emission in a process that has written other kernels.  What the first repetition takes, with imports, stands
beside.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pto_jit.bench.frontend import Cost, kernel_of, kernel_text
from pto_jit.codegen import compile_program
from pto_jit.compiler import Stages, run_passes
from pto_jit.errors import TargetError
from pto_jit.ir.nodes import Module, Op
from pto_jit.ir.verify import verify
from pto_jit.lower.pipeline import passes_for
from pto_jit.options import Options
from pto_jit.semantic.rules import infer

TARGETS = ("c", "neon", "cuda", "ascend")
_TILES = (
    "t{n} = pl.exp(t{m} - pl.max(t{m}, axis=1, keepdims=True))", "t{n} = t{m} * s + t{k}",
    "t{n} = pl.tanh(t{m}) + pl.abs(t{k})", "t{n} = pl.maximum(t{m}, t{k}) * pl.sigmoid(t{m})",
    "t{n} = pl.sqrt(t{m} * t{m} + 1.0)", "t{n} = pl.where(t{m} > t{k}, t{m}, t{k})",
)  # fmt: skip


def tiles_text(lines: int = 100) -> str:
    """The source of a kernel `tiles(x, y, s)` of so many lines, each of which is operations on tiles."""
    text = [
        "def tiles(x, y, s):",
        "    rows, cols = x.shape",
        "    with pl.incore():",
        "        for r in pl.range(0, rows, 16, chunk=4):",
        "            t0 = pl.load(x, [r, 0], [16, 64])",
    ]
    last = lines - len(text) - 1
    for n in range(1, last + 1):
        text.append("            " + _TILES[n % len(_TILES)].format(n=n, m=n - 1, k=max(0, n - 4)))
    return "\n".join([*text, f"            pl.store(t{last}, [r, 0], y)"]) + "\n"


def calls_text(lines: int = 100) -> str:
    """The source of a kernel `calls(x, y, s)` of at most so many lines: loops over tiles that call functions."""
    text = [
        "def swish(t, s):",
        "    half = t * s",
        "    return half * pl.sigmoid(half)",
        "def normal(t):",
        "    high = pl.max(t, axis=1, keepdims=True)",
        "    e = pl.exp(t - high)",
        "    return e / pl.sum(e, axis=1, keepdims=True)",
        "def calls(x, y, s):",
        "    rows, cols = x.shape",
        "    with pl.incore():",
        "        for r in pl.range(0, rows, 16, chunk=4):",
    ]
    k = 0
    while len(text) + 8 <= lines:
        k += 1
        text += [
            f"            for j{k} in pl.range(0, cols, 64):",
            f"                t{k} = pl.load(x, [r, j{k}], [16, 64])",
            f"                u{k} = swish(t{k}, s) + {k}.0",
            f"                high{k} = pl.max(u{k}, axis=1, keepdims=True)",
            f"                v{k} = normal(u{k}) * high{k}",
            f"                w{k} = pl.where(v{k} > {k}.0, v{k}, u{k} - high{k})",
            f"                z{k} = pl.sqrt(pl.abs(w{k})) - {k}.5",
            f"                pl.store(z{k}, [r, j{k}], y)",
        ]
    return "\n".join(text) + "\n"


def tasks_text(calls: int = 90) -> str:
    """The source of a kernel `tasks(x, y, z, s)` of so many calls of three in-core functions: on 16 rows each."""
    text = [
        "@pto.incore",
        "def scaled(x, y, s):",
        "    pl.store(pl.load(x, [0, 0], [16, 64]) * s + 1.0, [0, 0], y)",
        "@pto.incore",
        "def larger(x, z, y):",
        "    pl.store(pl.maximum(pl.load(x, [0, 0], [16, 64]), pl.load(z, [0, 0], [16, 64])), [0, 0], y)",
        "@pto.incore",
        "def shares(x, y):",
        "    t = pl.load(x, [0, 0], [16, 64])",
        "    pl.store(t / pl.sum(t, axis=1, keepdims=True), [0, 0], y)",
        "def tasks(x, y, z, s):",
    ]
    for k in range(calls):
        x, y, z = (f"{name}[{16 * k} : {16 * k + 16}]" for name in "xyz")
        text.append("    " + (f"scaled({x}, {y}, s)", f"larger({x}, {z}, {y})", f"shares({z}, {y})")[k % 3])
    return "\n".join(text) + "\n"


def scopes_text(scopes: int = 45) -> str:
    """The source of a kernel `scopes(x, y, z, s)` of so many scopes, which compute with 16 rows each."""
    text = ["def scopes(x, y, z, s):"]
    for k in range(scopes):
        rows = f"{16 * k} : {16 * k + 16}"
        text += ["    with pl.incore():", f"        y[{rows}] = x[{rows}] * s + z[{rows}]"]
    return "\n".join(text) + "\n"


KERNELS: dict[str, Callable[[], tuple[str, str, tuple[Any, ...]]]] = {
    "operations on tiles": lambda: ("tiles", tiles_text(), (_array(), _array(), 0.5)),
    "loops that call functions": lambda: ("calls", calls_text(), (_array(), _array(), 0.5)),
    "loops and branches on carried tiles": lambda: ("k", kernel_text(), (_array(), _array(), _array(), 3, 0.5)),
    "calls of in-core functions": lambda: ("tasks", tasks_text(), (*(_array(1440) for _ in range(3)), 0.5)),
    "in-core scopes": lambda: ("scopes", scopes_text(), (*(_array(720) for _ in range(3)), 0.5)),
}
"""What the lines of a kernel are -> its name, its source and arguments."""


def emission(repetitions: int = 9, kernels: Sequence[str] = tuple(KERNELS)) -> list[Cost]:
    """A kernel for a target, all of `KERNELS` for all targets that can express them."""
    out: list[Cost] = []
    for what in kernels:
        name, text, arguments = KERNELS[what]()
        function, params = kernel_of(text, f"<pto-bench emission of {name}>", name, arguments)
        count = len(text.splitlines())
        for target in TARGETS:
            options = Options(target=target)
            program = compile_program(function, params, options=options)
            verify(program.module, infer)
            try:
                times = [_written(program.module, options, dict(program.typed)) for _ in range(repetitions)]
            except TargetError:
                continue
            passes, writing = (statistics.median(t) for t in zip(*times, strict=True))
            parts = f"{passes * 1e3:.0f} ms of passes, {writing * 1e3:.0f} of text"
            first = f"{sum(times[0]) * 1e3:.0f} the first time"
            out.append(Cost(f"{count} lines, {what}, as {target}: {parts}; {first}", passes + writing))
    return out


def _written(module: Module, options: Options, typed: dict[int, Op]) -> tuple[float, float]:
    """CPU seconds of the passes and of the text; `typed`: operations that were verified, as the front end has them."""
    from pto_jit.building import collector_paused

    _forget()
    with collector_paused():
        start = time.thread_time()
        stages = Stages(modules={"source": module})
        run_passes(stages, passes_for(options.target), options, typed)
        between = time.thread_time()
        _files(stages, options)
        return between - start, time.thread_time() - between


def _forget() -> None:
    """Forget what depends on the names of a kernel.  All else that is kept belongs to operations and types, or to
    objects of which every emission makes its own."""
    from pto_jit.targets.c.values import sum_text

    sum_text.cache_clear()


def _files(stages: Stages, options: Options) -> dict[str, str]:
    match options.target:
        case "cuda":
            from pto_jit.targets.cuda import program as cuda

            return cuda.compile_module(stages.last).sources
        case "ascend":
            from pto_jit.targets.ascend import program as ascend

            return ascend.compile_module(stages.last).sources
        case _:
            from pto_jit.source_kernel import write_stages
            from pto_jit.targets.c.written import written_files

            return written_files(write_stages(stages, options))


def _array(rows: int = 64) -> Any:
    return np.zeros((rows, 64), np.float32)

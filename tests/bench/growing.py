# SPDX-License-Identifier: MIT
"""How many calls of functions it takes to write kernels of several sizes: a count that no other program disturbs.

Run as a program, which writes JSON: kernel -> target -> a count for each of `SIZES`, the largest first, after which
everything is warm.  (What tests do with every program that is compiled would count, too.)
"""

from __future__ import annotations

import cProfile
import json
import pstats
from typing import Any

import numpy as np

from pto_jit.bench import emission
from pto_jit.bench.frontend import kernel_of
from pto_jit.codegen import compile_program
from pto_jit.options import Options

SIZES = (24, 48, 96)  # lines, without those that every kernel has
TARGETS = ("c", "cuda", "ascend")
KERNELS: dict[str, Any] = {
    "tasks": emission.tasks_text,
    "scopes": lambda lines: emission.scopes_text(lines // 2),
}


def calls(name: str, size: int, target: str) -> int:
    """How many calls of functions writing a kernel takes."""
    x = np.zeros((16 * size, 64), np.float32)
    function, params = kernel_of(KERNELS[name](size), f"<emission of {name} {size}>", name, (x, x, x, 0.5))
    options = Options(target=target)
    program = compile_program(function, params, options=options)
    emission._written(program.module, options, dict(program.typed))  # imports
    with cProfile.Profile() as profile:
        emission._written(program.module, options, dict(program.typed))
    return sum(count for _, count, *_ in pstats.Stats(profile).stats.values())  # type: ignore[attr-defined]


if __name__ == "__main__":
    counts = {name: {t: [calls(name, size, t) for size in reversed(SIZES)] for t in TARGETS} for name in KERNELS}
    print(json.dumps(counts))

# SPDX-License-Identifier: MIT
"""Running kernels compiled for c beside the reference interpreter: many kernels, one call of the C compiler."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pto_jit.building import Built
from pto_jit.compiler import Stages
from pto_jit.kernel import Specialization
from pto_jit.runtime import symbols
from pto_jit.source_kernel import FINAL, SourceBuilt, SourceCompiled, SourceKernel, make, write_stages
from pto_jit.targets.c import native
from pto_jit.targets.c.program import CSource, translation_unit

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="needs a C compiler: gcc or clang"
)
WARNINGS = ("-Wall", "-Wextra", "-Werror")


def compile_named(
    fn: Any, args: Sequence[Any], target: str, number: int, stages: Stages | None = None
) -> SourceCompiled:
    """As `fn.compile(*args, target=target)`, with names of its own for the linker; `stages`: lowered already."""
    parameters = fn._parameters
    call = parameters.classify(*parameters.bind(args, {}))
    options = fn._options.but({"target": target})
    if stages is None:
        return SourceCompiled(parameters, make(fn.__pto_jit__, call, options, "", "a test", f"_{number}"))
    source = write_stages(stages, options, f"_{number}")
    built = SourceBuilt(source, stages.modules[FINAL], stages.results, stages, 0.0)
    info = Specialization("", "compiled", "a test", 0.0)
    return SourceCompiled(parameters, SourceKernel(info, built, fn.__pto_jit__, call.params, call.key, options))


class Batch:
    """Kernels and arguments; `run` compiles all of them at once and calls each."""

    def __init__(self) -> None:
        self.items: list[tuple[Callable[..., Any], Sequence[Any], Any, CSource]] = []

    def add(self, fn: Any, *args: Any, stages: Stages | None = None) -> None:
        compiled = compile_named(fn, args, "c", len(self.items), stages)
        self.items.append((compiled, args, compiled._kernel, compiled._kernel.built.source))

    def build(self, flags: Sequence[str] = ("-O0",)) -> None:
        """Everything as one library, each kernel ready to be launched."""
        text = translation_unit([source for *_, source in self.items])
        library = native.build({"kernels.c": text}, symbols(), (*WARNINGS, *flags))
        for _, _, kernel, source in self.items:
            load(kernel, source, library)

    def run(self, flags: Sequence[str] = ("-O0",)) -> list[Any]:
        """What the calls gave; their array arguments have been written to."""
        self.build(flags)
        return [compiled(*args) for compiled, args, _, _ in self.items]


def load(kernel: Any, source: CSource, library: ctypes.CDLL) -> None:
    """Let a kernel use a library that somebody else has built."""
    from pto_jit.kernel import Kernel

    kernel.built.program = native.program(source, library)
    built: Built = kernel.built
    kernel.loaded = Kernel(kernel.info, built, kernel.function, kernel.params, kernel.key, kernel.options)


def close(actual: np.ndarray, expected: np.ndarray, rtol: float, what: str) -> None:
    """Equal up to a tolerance, relative to the largest number."""
    scale = max(1.0, float(np.max(np.abs(np.nan_to_num(expected.astype(np.float64))), initial=0.0)))
    np.testing.assert_allclose(
        actual.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=rtol * scale, err_msg=what
    )


__all__ = ["WARNINGS", "Batch", "close", "compile_named", "load", "needs_compiler"]

# SPDX-License-Identifier: MIT
"""A specialisation as sources for an Ascend 910B: written, never launched from here."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pto_jit.codegen.params import Param
from pto_jit.compiled import device_files
from pto_jit.compiler import Stages, with_kernels
from pto_jit.config import config
from pto_jit.errors import TargetError
from pto_jit.kernel import Kernel, Specialization
from pto_jit.options import Options
from pto_jit.reading import Arguments
from pto_jit.slotted import mutable
from pto_jit.targets.ascend.program import AscendProgram, compile_module


@mutable(eq=False)
class AscendBuilt:
    """A written program with the stages it went through."""

    program: AscendProgram
    results: Any
    stages: Stages
    seconds: float
    origin: str = "compiled"
    small_below: int = 0


@mutable(eq=False)
class AscendKernel:
    """A specialisation as sources.  info, params, key, options: as in `Kernel`."""

    info: Specialization
    built: AscendBuilt
    function: Callable[..., Any]
    params: list[Param]
    key: tuple[Any, ...]
    options: Options

    @property
    def name(self) -> str:
        return self.function.__name__

    mismatch = Kernel.mismatch

    def check_writable(self, call: Arguments, parameters: Any) -> None:
        """Sources can be written whatever the arguments are."""

    def launch(self, call: Arguments, values: tuple[Any, ...]) -> Any:
        raise TargetError(
            f"`{self.name}` is written for an Ascend 910B, and kernels are not launched there from Python",
            code="PTO-X212",
            hint="write the sources with `compiled.write(directory)` and build them as its README says, or use "
            'target="cpu" here',
        )

    def bind(self, call: Arguments, values: tuple[Any, ...]) -> Any:
        return self.launch(call, values)

    def files(self, name: str | None) -> dict[str, str]:
        """Kernels, host code, the program in `.pto` form, and a README with the commands that build it."""
        return device_files(self.built.program, name)

    def library(self, directory: str | Path, kind: Literal["static", "shared"], name: str | None) -> list[Path]:
        raise TargetError(
            "there are no libraries for the ascend target",
            code="PTO-X203",
            hint="write the sources with `compiled.write(directory)` and build them as its README says",
        )


def make(function: Callable[..., Any], call: Arguments, options: Options, signature: str, reason: str) -> AscendKernel:
    """Write a specialisation."""

    def write(stages: Stages, tried: bool) -> AscendProgram:
        before = time.perf_counter()
        program = compile_module(stages.last, debug=options.debug or config.debug, decisions=stages.decisions)
        stages.modules["kernels"] = program.module
        stages.timings["ascend"] = time.perf_counter() - before
        return program

    start = time.perf_counter()
    stages, program = with_kernels(function, call.params, options, write)
    built = AscendBuilt(program, stages.results, stages, time.perf_counter() - start)
    info = Specialization(signature, "compiled", reason, built.seconds)
    return AscendKernel(info, built, function, call.params, call.key, options)

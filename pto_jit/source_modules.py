# SPDX-License-Identifier: MIT
"""Functions of built modules as sources, as `source_kernel`, `device_kernel` and `ascend_kernel` make them of kernels.

A function is written for the types that it declares.  The c target's (on an AArch64 machine the neon target's, too) can
be called: then there is a version for each combination of memory layouts that it meets, as for the cpu target.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pto_jit.compiled import device_files
from pto_jit.compiler import Stages
from pto_jit.config import config
from pto_jit.errors import TargetError
from pto_jit.ir.text import to_text
from pto_jit.ir.types import Type
from pto_jit.modules import CompiledFunction, Version
from pto_jit.slotted import mutable
from pto_jit.source_kernel import FINAL, SourceBuilt, program_here, source_files, write_stages

if TYPE_CHECKING:
    from pto_jit.runtime.graph import TaskGraph

RUNNABLE = ("c", "neon")


@mutable(eq=False)
class Written:
    """A function as sources.  files: those of a program of that name; source: what the c target's writers made."""

    stages: Stages
    files: Callable[[str | None], dict[str, str]]
    source: Any = None


class SourceFunction(CompiledFunction):
    """A function of a module that is compiled for another target than cpu."""

    _written: Written | None = None

    def _files(self, name: str | None) -> dict[str, str]:
        """The files of the function with what it calls, for the types that it declares: name -> text.

        Raises TargetError for what the target does not do.
        """
        return self._own().files(name)

    def library(
        self, directory: str | Path, kind: Literal["static", "shared"] = "static", *, name: str | None = None
    ) -> list[Path]:
        """As `Compiled.library`; TargetError for devices."""
        if self._options.target not in RUNNABLE:
            raise TargetError(
                f"programs for {self._options.target} are written as sources, not as libraries",
                code="PTO-X203",
                hint="`write(directory)`, whose README says how to build them, or a library of target c",
            )
        from pto_jit.aot import source_library

        return source_library(self._own().stages, self._options, directory, kind, name)

    def task_graph(self, *args: Any, **kwargs: Any) -> TaskGraph:
        raise TargetError(
            f"`{self.__name__}` is compiled for {self._options.target}; task graphs are recorded for the cpu target",
            code="PTO-X090",
            hint='record the tasks of the module compiled with `target="cpu"`',
        )

    # -- writing ------------------------------------------------------------------------------------------------

    def _own(self) -> Written:
        if self._written is None:
            self._written = self._write(tuple(p.type for p in self._func.params))
        return self._written

    def _write(self, types: tuple[Type, ...]) -> Written:
        stages = self._lowered(types)
        if self._options.target in RUNNABLE:
            source = write_stages(stages, self._options)
            return Written(stages, partial(source_files, stages, self._options, source), source)
        if self._options.target == "cuda":
            from pto_jit.targets.cuda import program as cuda

            program: Any = cuda.compile_module(stages.last, fastmath=self._options.fastmath,
                                                debug=self._options.debug or config.debug,
                                                decisions=stages.decisions)  # fmt: skip
        else:
            from pto_jit.targets.ascend import program as ascend

            program = ascend.compile_module(stages.last, debug=self._options.debug or config.debug,
                                            decisions=stages.decisions)  # fmt: skip
        stages.modules["kernels"] = program.module
        return Written(stages, partial(device_files, program))

    def _stages(self) -> Stages:
        return self._own().stages

    @property
    def stages(self) -> list[str]:
        """Names of the compiler's stages in order; the last is the one that sources are written from."""
        return [*self._stages().modules]

    def ir(self, stage: str) -> str:
        """The program after `stage` as `.pto` text."""
        modules = self._stages().modules
        if stage not in modules:
            raise ValueError(f"there is no stage {stage!r}; the stages are {', '.join(modules)}")
        return to_text(modules[stage])

    # -- running ------------------------------------------------------------------------------------------------

    def _make(self, types: tuple[Type, ...]) -> Version:
        if self._options.target not in RUNNABLE:
            raise TargetError(
                f"`{self.__name__}` is written for {self._options.target}, and functions of modules are not launched "
                "there",
                code="PTO-X202",
                hint='`write(directory)` and build as the README says, or compile for "cpu" or "c"',
            )
        start = time.perf_counter()
        written = self._write(types)
        program = program_here(self.__name__, written.source, self._options)
        seconds = time.perf_counter() - start
        built: Any = SourceBuilt(written.source, written.stages.modules[FINAL], None, written.stages, seconds, program)
        return Version(self.__name__, built, self._options, lambda: written.stages)

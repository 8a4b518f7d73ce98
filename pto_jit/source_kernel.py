# SPDX-License-Identifier: MIT
"""A specialisation as C sources: what `kernel.Kernel` is for the cpu target, compiled when it is launched first."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pto_jit.building import collector_paused
from pto_jit.cache import disk_cache
from pto_jit.codegen.params import Param
from pto_jit.compiled import WrittenCompiled
from pto_jit.compiler import Stages, lower
from pto_jit.config import config
from pto_jit.errors import TargetError
from pto_jit.ir.nodes import Module
from pto_jit.ir.text import to_text
from pto_jit.kernel import Kernel, Specialization
from pto_jit.lower.called import called, new_names
from pto_jit.options import Options
from pto_jit.reading import Arguments
from pto_jit.runtime import symbols
from pto_jit.slotted import mutable
from pto_jit.targets.c.program import CSource, write_source

if TYPE_CHECKING:
    from pto_jit.targets.c.native import CProgram

FINAL = "fused"
"""The stage that sources are written from: how many iterations a worker takes is decided when they run."""


@mutable(eq=False)
class SourceBuilt:
    """What `building.Built` is for machine code; `program` is None until the sources were compiled."""

    source: CSource
    module: Module
    results: Any
    stages: Stages
    seconds: float
    program: Any = None
    origin: str = "compiled"
    small_below: int = 0


@mutable(eq=False)
class SourceKernel:
    """A specialisation as sources.  info, params, key, options: as in `Kernel`."""

    info: Specialization
    built: SourceBuilt
    function: Callable[..., Any]
    params: list[Param]
    key: tuple[Any, ...]
    options: Options
    loaded: Kernel | None = None

    @property
    def name(self) -> str:
        return self.function.__name__

    mismatch = Kernel.mismatch

    def check_writable(self, call: Arguments, parameters: Any) -> None:
        """Compiles what is launched next."""
        self._kernel().check_writable(call, parameters)

    def launch(self, call: Arguments, values: tuple[Any, ...]) -> Any:
        return self._kernel().launch(call, values)

    def bind(self, call: Arguments, values: tuple[Any, ...]) -> Any:
        return self._kernel().bind(call, values)

    def _kernel(self) -> Kernel:
        """The compiled kernel; ToolchainError without a C compiler."""
        if self.loaded is None:
            start = time.perf_counter()
            self.built.program = program_here(self.name, self.built.source, self.options)
            self.built.stages.timings["cc"] = time.perf_counter() - start
            built: Any = self.built
            self.loaded = Kernel(self.info, built, self.function, self.params, self.key, self.options)
        return self.loaded

    def files(self, name: str | None) -> dict[str, str]:
        """What is written, of a program of that name."""
        return source_files(self.built.stages, self.options, self.built.source, name)

    def library(self, directory: str | Path, kind: Literal["static", "shared"], name: str | None) -> list[Path]:
        from pto_jit.aot import source_library

        return source_library(self.built.stages, self.options, directory, kind, name)


class SourceCompiled(WrittenCompiled):
    """`Compiled` for sources in C, that a compiler makes machine code of when they are launched."""

    def _files(self, name: str | None) -> dict[str, str]:
        """The program in C, the headers it includes, the program in `.pto` form, and a README with the command that
        compiles them: name -> text."""
        return self._kernel.files(name)

    def library(
        self, directory: str | Path, kind: Literal["static", "shared"] = "static", *, name: str | None = None
    ) -> list[Path]:
        """As `Compiled.library`: for this processor, or with a cross compiler for that of the target."""
        return self._kernel.library(directory, kind, name)


def make(
    function: Callable[..., Any], call: Arguments, options: Options, signature: str, reason: str, suffix: str = ""
) -> SourceKernel:
    """The sources of a specialisation.  `suffix`: of the names that a linker sees, for many in one program."""
    if options.target == "ascend":
        from pto_jit import ascend_kernel  # which others do not need

        return ascend_kernel.make(function, call, options, signature, reason)  # type: ignore[return-value]
    start = time.perf_counter()
    with collector_paused():
        stages = lower(function, call.params, options)
        before = time.perf_counter()
        source = write_stages(stages, options, suffix)
        module = stages.modules[FINAL]
    stages.timings[options.target] = time.perf_counter() - before
    built = SourceBuilt(source, module, stages.results, stages, time.perf_counter() - start)
    info = Specialization(signature, "compiled", reason, built.seconds)
    return SourceKernel(info, built, function, call.params, call.key, options)


def write_stages(stages: Stages, options: Options, suffix: str = "", name: str = "") -> CSource:
    """The sources of a lowered program; its stages are then those up to the one that they are written from.

    name: of the program instead of its own; suffix: as for `write_source`.
    """
    stages.modules = {stage: m for stage, m in stages.modules.items() if stage != "scheduled"}
    module, tasks = stages.modules[FINAL], stages.tasks
    if name:
        names = new_names(module, name)
        module = called(module, name)
        tasks = tasks and frozenset(names.get(task, task) for task in tasks)
    return write_source(module, debug=options.debug or config.debug, dialect=_dialect(options),
                        suffix=suffix, tasks=tasks)  # fmt: skip


def source_files(stages: Stages, options: Options, source: CSource, name: str | None) -> dict[str, str]:
    """The files of a written program, name -> text; again, when it gets another name."""
    from pto_jit.targets.c.written import written_files

    module = stages.modules[FINAL]
    if name is not None:
        source = write_stages(stages, options, name=name)
        module = called(module, name)
    return {f"{source.stem}.pto": to_text(module), **written_files(source)}


def program_here(name: str, source: CSource, options: Options) -> CProgram:
    """Sources compiled and loaded in this process.

    Raises TargetError for those of another processor, and ToolchainError without a C compiler.
    """
    from pto_jit.targets.c import native

    if options.target == "neon" and platform.machine() != "aarch64":
        raise TargetError(
            f"`{name}` is compiled for neon, and this is {platform.machine()}",
            code="PTO-X201",
            hint="write the sources with `compiled.write(directory)` and build them as its README says, or "
            'use target="c" here',
        )
    store = disk_cache() if options.cache else None
    library = native.build({"program.c": source.text}, symbols(), extra=source.headers, store=store)
    return native.program(source, library)


def _dialect(options: Options) -> Any:
    """The vector instructions of a target; None for plain C."""
    if options.target != "neon":
        return None
    from pto_jit.targets.neon.stage import Neon

    return Neon()

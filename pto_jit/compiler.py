# SPDX-License-Identifier: MIT
"""A kernel's life, from source to machine code, on one page.

`compile_kernel` drives everything: the front end makes loop IR from the Python function, the passes of
`lower.pipeline` rewrite it, the verifier looks at both ends (and between all passes with debug), the target makes
machine code.  Each stage is kept by name, with the seconds it took.  `building.build` asks the disk cache first, so
this module, and with it the whole compiler, is imported when something is compiled.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pto_jit.agreements import with_agreements
from pto_jit.codegen.compilation import compile_program
from pto_jit.codegen.generator import Watch
from pto_jit.codegen.params import Param
from pto_jit.config import config, log
from pto_jit.errors import CompilationError, InternalError, Loc, PtoError, TargetError
from pto_jit.ir.nodes import Module, Op
from pto_jit.ir.text import to_text as print_module
from pto_jit.ir.verify import verify
from pto_jit.lower.decisions import Decision
from pto_jit.lower.dispatch import task_functions
from pto_jit.lower.inline import inline_calls
from pto_jit.lower.pipeline import PLACED, Pass, in_any_order, passes_for, with_checks
from pto_jit.lower.rename import name_values
from pto_jit.options import OPTION_NAMES, Options
from pto_jit.runtime import symbols
from pto_jit.semantic.rules import infer
from pto_jit.slotted import field, frozen, mutable
from pto_jit.targets import cpu
from pto_jit.targets.cpu.program import write_module
from pto_jit.work import elements_of_small_work

Written = TypeVar("Written")


@mutable
class Stages:
    """The program after each stage, what was decided, and the time each stage took."""

    modules: dict[str, Module] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    results: Any = None
    speaks: bool = False  # it prints, stops or warns while it is compiled
    tasks: frozenset[str] | None = None  # the named in-core functions, when calls become tasks
    dumped: tuple[Path, list[str]] | None = None  # where `config.dump_dir` has them, and under which names

    @property
    def last(self) -> Module:
        return next(reversed(self.modules.values()))


def compile_kernel(
    fn: Callable[..., Any], params: Sequence[Param], options: Options, object_cache: Any
) -> tuple[Stages, cpu.CpuProgram, int]:
    """Source to loaded machine code, and below how many elements of its arguments a launch is short.

    `object_cache` keeps the matrix products that kernels share.
    """
    stages = lower(fn, params, options)
    program, small_below = compile_stages(stages, options, object_cache)
    return stages, program, small_below


def compile_stages(
    stages: Stages, options: Options, object_cache: Any, tasks: cpu.Tasks | None = None
) -> tuple[cpu.CpuProgram, int]:
    """The last stage as loaded machine code, and below how many elements of its arguments a launch is short.

    `tasks`: how calls become tasks, if not as was decided.
    """
    start = time.perf_counter()
    module = stages.last
    program = _guarded(
        lambda: cpu.compile_module(
            module, debug=_debug(options), fastmath=options.fastmath, symbols=symbols(), object_cache=object_cache,
            tasks=tasks or _tasks(stages),
        ),
        f"the cpu target failed on `{module.name}`",
    )
    stages.timings.update({f"cpu: {k}": v for k, v in program.timings.items()})
    stages.timings["cpu"] = time.perf_counter() - start
    if config.dump_dir is not None:
        _dump(stages, "llvm.ll", program.llvm_ir)
        _dump(stages, "assembly.s", program.assembly())
    log("passes", "%s: %s", module.name, ", ".join(f"{k} {v * 1e3:.1f} ms" for k, v in stages.timings.items()))
    return program, elements_of_small_work(module)


def lower(
    fn: Callable[..., Any],
    params: Sequence[Param],
    options: Options,
    watch: Watch | None = None,
    *,
    quiet: bool = False,
) -> Stages:
    """Source to loop IR, ready for a target; `watch` is told of every statement that the front end executes.

    `quiet`: without what it prints and its warnings, for a program that was compiled before.
    """
    stages = Stages()
    start = time.perf_counter()
    try:
        program = compile_program(fn, params, options=options, watch=watch, quiet=quiet)
        module, stages.results = program.module, program.results
        stages.decisions += program.decisions
        stages.speaks = program.speaks
        _record(stages, "source", module, start)
        run_passes(stages, passes_for(options.target), options, None if _debug(options) else program.typed)
        last = next(reversed(stages.modules))
        called_without_python = options.target != "cpu"  # the cpu target's are when they become libraries (`aot`)
        stages.modules[last] = with_agreements(stages.modules[last], fn, params, symbols=called_without_python)
    except CompilationError as error:
        from pto_jit.tracebacks import point_at

        raise point_at(error, error.loc) from error.__cause__
    for text, loc in () if quiet else program.warnings:
        warnings.warn_explicit(text, UserWarning, loc.filename, loc.lineno, registry=_warned)
    return stages


@frozen
class InOrder(Options):
    """Options of a program whose nests on lists run in order; in_order: why the kernels of planes were refused."""

    in_order: str = ""


def with_kernels(
    function: Callable[..., Any], params: Sequence[Param], options: Options, write: Callable[[Stages, bool], Written]
) -> tuple[Stages, Written]:
    """A program for a device, and the kernels that `write` makes of it.  Where those of planes and of rows that the
    compiler chose are refused, nests run in order; `write` is told whether that is still to be tried."""
    stages = lower(function, params, options, quiet=isinstance(options, InOrder))
    planes = any(d.kind == "schedule" and d.reason.startswith("wavefront") for d in stages.decisions)
    tried = planes and not isinstance(options, InOrder)
    try:
        return stages, write(stages, tried)
    except TargetError as refusal:
        if not tried:
            raise
        given = {name: getattr(options, name) for name in OPTION_NAMES}
        again = InOrder(**given, in_order=str(refusal).split("\n")[0])
        return with_kernels(function, params, again, write)


# what built and written modules need first: calls in their places, then one name for each value
WRITTEN: tuple[tuple[str, Pass], ...] = (
    ("inlined", lambda module, _: inline_calls(module)),
    ("named", lambda module, _: name_values(module)),
)


def lower_module(module: Module, options: Options) -> Stages:
    """A module that was built or read, ready for a target."""
    stages = Stages()
    _record(stages, "source", module, time.perf_counter())
    run_passes(stages, (*WRITTEN, *passes_for(options.target)), options)
    return stages


def run_passes(
    stages: Stages, passes: Sequence[tuple[str, Pass]], options: Options, typed: dict[int, Op] | None = None
) -> None:
    """Transform the last stage by one pass after the other; each result is a stage.

    `typed`: operations whose types are known to be right, by identity.
    """
    module = stages.last
    typed = {} if typed is None else typed
    verify(module, infer, typed=typed)
    if options.fastmath:
        passes = in_any_order(passes)
    for name, transform in with_checks(passes) if _debug(options) else passes:
        start = time.perf_counter()
        before = module
        module = _guarded(
            lambda transform=transform, before=before: transform(before, stages.decisions),
            f"the pass that makes stage `{name}` failed on `{module.name}`",
        )
        if module is not before and _debug(options):
            verify(module, infer, typed=typed)
        _record(stages, name, module, start)
    verify(module, infer, typed=typed)
    stages.tasks = task_functions(stages.modules[PLACED], stages.decisions, debug=_debug(options))


def places_of_failure(stages: Stages, options: Options) -> list[Loc]:
    """Where the failure sites of the compiled program are in the source, then the calls that are tasks, in order."""
    writer, _, _ = write_module(
        stages.last, cpu.host(), debug=_debug(options), fastmath=options.fastmath, tasks=_tasks(stages)
    )
    return [site.loc for site in (*writer.sites, *writer.task_sites)]


def _tasks(stages: Stages) -> cpu.Tasks | None:
    return None if stages.tasks is None else cpu.Tasks(stages.tasks)


def _debug(options: Options) -> bool:
    return options.debug or config.debug


def _guarded(step: Callable[[], Any], message: str) -> Any:
    """What `step` gives; an exception that is not ours is a bug of ours."""
    try:
        return step()
    except PtoError:
        raise
    except Exception as error:  # whatever it is, the user cannot do anything about it
        raise InternalError(f"{message}: {type(error).__name__}: {error}") from error


def _record(stages: Stages, name: str, module: Module, start: float) -> None:
    stages.timings[name] = time.perf_counter() - start
    stages.modules[name] = module
    if config.dump_dir is not None:
        _dump(stages, f"{name}.pto", print_module(module, locations=True))


def _dump(stages: Stages, name: str, text: str) -> None:
    """Write what a stage made: each compilation of this process has a directory of its own."""
    if stages.dumped is None:
        kernel = re.sub(r"\W", "_", stages.last.name)
        _dumps[kernel] = _dumps.get(kernel, 0) + 1
        stages.dumped = Path(str(config.dump_dir), kernel if _dumps[kernel] == 1 else f"{kernel}.{_dumps[kernel]}"), []
    directory, names = stages.dumped
    names.append(name)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{len(names):02d}_{name}").write_text(text, encoding="utf-8")
    except OSError as error:
        warnings.warn(f"the dump directory {config.dump_dir} cannot be used ({error.strerror or error}); nothing is "
                      "dumped. Set PTO_DUMP_DIR to a writable directory.", RuntimeWarning, stacklevel=2)  # fmt: skip


_dumps: dict[str, int] = {}
_warned: dict[Any, Any] = {}  # of Python's warnings: by its default filter each is shown once for a line

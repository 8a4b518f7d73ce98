# SPDX-License-Identifier: MIT
"""`compiled.library(...)`: ahead-of-time compilation for programs without Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pto_jit.agreements import with_agreements
from pto_jit.cache import DiskCache, disk_cache
from pto_jit.codegen.params import Param
from pto_jit.compiler import Stages
from pto_jit.config import config
from pto_jit.options import Options
from pto_jit.source_kernel import write_stages
from pto_jit.targets.c.header import launch_header
from pto_jit.targets.c.library import Kind, Tools, source_objects, write_library
from pto_jit.targets.cpu import Tasks
from pto_jit.targets.cpu.library import compile_objects
from pto_jit.targets.source.identifiers import checked_name, stem_of


def cpu_library(
    stages: Stages, written: frozenset[int], options: Options, directory: str | Path, kind: Kind, name: str | None,
    of: tuple[Callable[..., Any], Sequence[Param]] | None = None,
) -> list[Path]:  # fmt: skip
    """The library of a program of the cpu target.

    written: the tensors of its entry that it writes; name: what the library and its functions are called, that of the
    program if it is None; of: the kernel that it is made from, with its parameters.
    """
    module = stages.last if of is None else with_agreements(stages.last, *of, conditions=False)
    called = checked_name(name) or stem_of(module.name)
    tools = Tools.of(None)
    tasks = None if stages.tasks is None else Tasks(stages.tasks)
    debug = options.debug or config.debug
    objects = compile_objects(module, called, debug=debug, fastmath=options.fastmath, tasks=tasks)
    entry = module.func(module.entry)
    header = launch_header(called, objects.entry, entry.params, entry.results, written, objects.sites,
                           tasks=tasks is not None)  # fmt: skip
    return write_library(directory, called, objects.files, header, kind, tools, _store(options))


def source_library(
    stages: Stages, options: Options, directory: str | Path, kind: Kind, name: str | None
) -> list[Path]:  # fmt: skip
    """The library of a program that is written in C, again when its functions get another name."""
    called = checked_name(name) or stem_of(stages.last.name)
    source = write_stages(stages, options, name=called)
    tools = Tools.of(source.dialect)
    header = launch_header(called, source.entry, source.params, source.results, source.written, source.sites,
                           tasks=bool(source.task_sites))  # fmt: skip
    return write_library(directory, called, source_objects(source, tools), header, kind, tools, _store(options))


def _store(options: Options) -> DiskCache | None:
    return disk_cache() if options.cache else None

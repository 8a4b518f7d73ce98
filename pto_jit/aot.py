# SPDX-License-Identifier: MIT
"""`compiled.library(...)`: ahead-of-time compilation for programs without Python."""

from __future__ import annotations

from pathlib import Path

from pto_jit.cache import DiskCache, disk_cache
from pto_jit.compiler import Stages
from pto_jit.config import config
from pto_jit.options import Options
from pto_jit.targets.c.header import launch_header
from pto_jit.targets.c.library import Kind, Tools, source_objects, write_library
from pto_jit.targets.c.program import CSource
from pto_jit.targets.c.written import launcher_of
from pto_jit.targets.cpu import Tasks
from pto_jit.targets.cpu.library import compile_objects
from pto_jit.targets.source.identifiers import stem_of


def cpu_library(
    stages: Stages, written: frozenset[int], options: Options, directory: str | Path, kind: Kind
) -> list[Path]:
    """The library of a program of the cpu target; written: the tensors of its entry that it writes."""
    module = stages.last
    tools = Tools.of(None)
    tasks = None if stages.tasks is None else Tasks(stages.tasks)
    objects = compile_objects(module, debug=options.debug or config.debug, fastmath=options.fastmath, tasks=tasks)
    name, entry = stem_of(module.name), module.func(module.entry)
    header = launch_header(name, objects.entry, entry.params, entry.results, written, objects.sites)
    return write_library(directory, name, objects.files, header, kind, tools, _store(options))


def source_library(source: CSource, options: Options, directory: str | Path, kind: Kind) -> list[Path]:
    """The library of a program written in C."""
    tools = Tools.of(source.dialect)
    header = launcher_of(source)
    return write_library(
        directory, source.stem, source_objects(source, tools), header, kind, tools, _store(options)
    )


def _store(options: Options) -> DiskCache | None:
    return disk_cache() if options.cache else None

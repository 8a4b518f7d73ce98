# SPDX-License-Identifier: MIT
"""From a module of loop IR to code that runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import llvmlite.binding as llvm

from pto_jit.config import config
from pto_jit.ir.nodes import Module
from pto_jit.targets.cpu.loading import LLVM_LOCK, CpuProgram, Tasks, host, load_object, target_machine
from pto_jit.targets.cpu.machine_code import object_code
from pto_jit.targets.cpu.optimising import optimised
from pto_jit.targets.cpu.writing import write_module, written_tensors


def compile_module(
    module: Module, *, debug: bool = False, fastmath: bool = False, object_cache: Any = None,
    symbols: Mapping[str, int] | None = None, tasks: Tasks | None = None,
) -> CpuProgram:  # fmt: skip
    """Compile a lowered module for this machine and load it.

    `symbols` are the addresses of the run-time library's functions (by default `pto_jit.runtime.symbols()`); those of
    the matrix products are added as they are used, from `object_cache` (an object with `load(key)` and
    `store(key, metadata, code)`) when they are there.  `tasks`: the entry submits its calls to a task graph.
    """
    here = host()
    start = time.perf_counter()
    writer, name, plan = write_module(module, here, debug=debug, fastmath=fastmath, tasks=tasks)
    written = time.perf_counter()
    text = writer.text()
    printed = time.perf_counter()
    with LLVM_LOCK:
        if debug:
            llvm.parse_assembly(text).verify()
        machine = target_machine(2)
        ref = optimised(text, machine)
        done = time.perf_counter()
        data = object_code(ref, machine)
        emitted = time.perf_counter()
    used = tuple(sorted(g.name for g in writer.llvm.functions if g.is_declaration and not g.name.startswith("llvm.")))
    program = load_object(
        data, entry=name, sites=[(s.error.__name__, s.message, s.loc) for s in writer.sites],
        print_sites=writer.print_sites, result_plan=plan, written=written_tensors(module), used=used, symbols=symbols,
        object_cache=object_cache,
    )  # fmt: skip
    if config.debug_info and config.dump_dir is not None:
        from pto_jit.targets.cpu.profiling import tell_perf

        tell_perf(data, name, program.entry_address, config.dump_dir)
    program.llvm_ir = text
    program.task_sites = tuple(writer.task_sites)
    program.timings = {
        "write": written - start, "print": printed - written, "optimise": done - printed,
        "emit": emitted - done, "load": time.perf_counter() - emitted,
    }  # fmt: skip
    return program

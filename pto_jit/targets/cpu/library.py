# SPDX-License-Identifier: MIT
"""A module of loop IR as object code that a linker takes: position-independent, with the products that it calls."""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Module
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.loading import LLVM_LOCK, Tasks, host
from pto_jit.targets.cpu.machine_code import object_code
from pto_jit.targets.cpu.matmul.blocking import host_caches
from pto_jit.targets.cpu.matmul.library import Processor, compile_object, entry_of
from pto_jit.targets.cpu.optimising import optimised
from pto_jit.targets.cpu.writing import write_module
from pto_jit.targets.source.identifiers import entry_name


@frozen(eq=False)
class Objects:
    """files: name -> object code; entry: the function that `pto_launch` takes; sites: as in `CpuProgram`."""

    files: dict[str, bytes]
    entry: str
    sites: tuple[tuple[str, str, Loc], ...]


def compile_objects(
    module: Module, name: str, *, debug: bool = False, fastmath: bool = False, tasks: Tasks | None = None
) -> Objects:
    """Object code for this processor (and those that have all it has), without the tiles of AMX: a program has to ask
    the system for them first.

    name: of the library; a linker sees the entry called after it and, in an object of their own, the products, which
    are the same in all libraries and not visible outside of a shared one.
    """
    entry = entry_name(name)
    writer, _, _ = write_module(module, host(), debug=debug, fastmath=fastmath, tasks=tasks, name=entry)
    for variable in writer.llvm.global_values:
        if isinstance(variable, ir.GlobalVariable):  # names that only a loader in this process looks for
            variable.linkage = "internal"
    with LLVM_LOCK:
        machine = _machine()
        files = {f"{name}.o": object_code(optimised(writer.text(), machine), machine)}
    declared = (f.name for f in writer.llvm.functions if f.is_declaration)
    products = {entry_of(name)[0] for name in declared if name.startswith("pto_mm_")}
    for combo in sorted(products, key=lambda c: c.symbol):
        files[f"{combo.symbol}.o"] = compile_object(combo, Processor.host().without_tiles(), host_caches(), hidden=True)
    return Objects(files, entry, tuple((s.error.__name__, s.message, s.loc) for s in writer.sites))


def _machine() -> llvm.TargetMachine:
    here = host()
    features = here.features + (",-prefer-256-bit" if here.width == 64 else "")
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=here.cpu, features=features, opt=2, reloc="pic", codemodel="default", jit=False
    )

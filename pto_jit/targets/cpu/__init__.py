# SPDX-License-Identifier: MIT
"""The CPU target: LLVM IR through llvmlite, host processor and its vector width.

The writer is imported when something is compiled; a kernel from the disk cache needs `loading` only.
"""

from typing import TYPE_CHECKING, Any

from pto_jit.targets.cpu.loading import CpuProgram, PrintSite, Tasks, TaskSite, host, host_id, load_object

if TYPE_CHECKING:
    from pto_jit.targets.cpu.module import Site
    from pto_jit.targets.cpu.program import compile_module


def __getattr__(name: str) -> Any:
    if name == "compile_module":
        from pto_jit.targets.cpu.program import compile_module

        return compile_module
    if name == "Site":
        from pto_jit.targets.cpu.module import Site

        return Site
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["CpuProgram", "PrintSite", "Site", "TaskSite", "Tasks", "compile_module", "host", "host_id", "load_object"]

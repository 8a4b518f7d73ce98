# SPDX-License-Identifier: MIT
"""The CPU target: LLVM IR through llvmlite, host processor and its vector width.

The writer is imported when something is compiled; a kernel from the disk cache needs `loading` only.

* `program`, `writing`, `module`: from a module of loop IR to code that runs; what its functions share
* `function`, `operations`, `code`, `constants`, `values`: one function: statements, the writer of each operation, LLVM
  instructions, types and constants, what variables stand for
* `frame`, `arena`, `kept`, `jammed`, `strips`: memory of tiles, variables, registers instead of elements and short
  tiles that a loop updates
* `groups`, `extents`, `analysis`, `stores`: groups of tile operations: where tiles lie, which are views, what may be
  written at once
* `nest`, `stage`, `folds`, `divide`: their loops: rows, vectors of a row, reductions along it, division among the
  workers
* `packing`, `turned`: rows that do not lie side by side: copied together, or the axes in the opposite order
* `vector`, `elementwise`, `extremes`, `conversions`, `clipped`, `rounded_indices`, `waits`, `bits`, `philox`:
  arithmetic on vectors and scalars; floats that fit in integers, or become indices, and extremes that are waited for;
  loops over the bits of integers; random numbers
* `access`, `runs`, `strided`, `indirect`, `atomics`: loads and stores of lanes, under masks, of rows with gaps, through
  index tiles, atomic
* `tiles`, `elements`, `structure`, `joining`, `placed`, `regions`, `places`, `order`, `selecting`, `sharing`:
  operations outside of groups; these divided among the workers
* `ranks`, `merging`: rows sorted by vectors
* `products`, `matmul/`: matrix products: operands, and the generated library
* `versions`, `spmd/`: loops over elements: for likely extents and any; several iterations at a time
* `tensors`, `parallel`, `tasks`, `task_kinds`, `task_regions`, `racing`: orchestration: tensors, divided loops,
  tasks, checked loops
* `optimising`, `machine_code`: LLVM's passes, its code generator
* `loading`, `library`: code in memory, object code for linkers
* `lines`, `linetable`, `profiling`: gdb and perf
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

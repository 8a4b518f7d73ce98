# SPDX-License-Identifier: MIT
"""From a module of loop IR to CUDA sources and a host program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from pto_jit.ir.nodes import Block, Module, Op, Var
from pto_jit.ir.verify import verify
from pto_jit.ir.walk import statements
from pto_jit.semantic.rules import infer
from pto_jit.slotted import mutable
from pto_jit.targets.cpu.writing import written_tensors
from pto_jit.targets.cuda.devices import headers
from pto_jit.targets.cuda.flatten import flatten
from pto_jit.targets.cuda.host import HostProgram
from pto_jit.targets.cuda.kernels import Kernel, write_kernel
from pto_jit.targets.cuda.nests import outline_kernels
from pto_jit.targets.cuda.tiling import tile_products


@mutable(eq=False)
class CudaProgram:
    """Kernels as sources, and the host code that launches them.

    module: the program as it was divided into host code and kernels; written: the tensors of the entry, by position
    among them, that a launch writes; sources: files, name -> text.
    """

    module: Module
    host: HostProgram
    written: frozenset[int]
    sources: dict[str, str]


def compile_module(module: Module, *, fastmath: bool = False) -> CudaProgram:
    """Write the kernels of a lowered module.

    Raises TargetError for what this target does not do.
    """
    flat = tile_products(flatten(module))
    split = outline_kernels(flat, module.name)
    verify(split, infer)
    entry = split.func(split.entry)
    dims = extents_of(entry.body)
    file = PurePath(entry.loc.filename).name
    kernels: list[Kernel] = []
    first = 0
    for func in split.funcs:
        if func is not entry:
            kernels.append(write_kernel(func, dims, file, fastmath, first))
            first += len(kernels[-1].sites)
    sources = {f"{k.name}.cu": k.source for k in kernels}
    sources |= {name: text for name, text in headers().items() if name != "pto_cuda_emulation.h"}
    sources["README.md"] = _readme(module.name, kernels)
    return CudaProgram(split, HostProgram(entry, kernels), frozenset(written_tensors(module)), sources)


def extents_of(body: Block) -> dict[str, tuple[str, int]]:
    """The numbers of host code that are extents of its tensors."""
    out: dict[str, tuple[str, int]] = {}
    for s in statements(body):
        if isinstance(s, Op) and s.op == "dim" and isinstance(s.args[0], Var):
            out[s.results[0].name] = (s.args[0].name, int(s.attr("axis")))  # type: ignore[arg-type]
    return out


def _readme(name: str, kernels: Sequence[Kernel]) -> str:
    """How the written kernels are compiled."""
    lines = [f"# {name}: CUDA kernels", "", "For compute capability 8.0 or later:", "",
             "```"]  # fmt: skip
    lines += [f"nvcc -std=c++17 -cubin -arch=sm_90 --fmad=false -o {k.name}.cubin {k.name}.cu" for k in kernels]
    lines += ["```", "", "The macros at the top of a kernel say how its tiles are spread over the threads of a block; "
              "`-D` replaces their defaults.", f"`{name}.pto` has the host code that launches them."]  # fmt: skip
    return "\n".join(lines) + "\n"

# SPDX-License-Identifier: MIT
"""From a module of loop IR to CUDA sources and a host program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

from pto_jit.errors import TargetError
from pto_jit.ir.nodes import Block, Const, Func, Module, Op, Var
from pto_jit.ir.types import TensorType
from pto_jit.ir.verify import known, verify
from pto_jit.ir.walk import statements, substitute
from pto_jit.lower.called import called
from pto_jit.lower.decisions import Decision
from pto_jit.lower.groups.fitting import NOTHING, Fitting, fitting_axes
from pto_jit.lower.names import unused
from pto_jit.lower.reuse import with_fewer_loads
from pto_jit.lower.wholes.divide import PARTS, divided
from pto_jit.lower.wholes.own_rows import kernel_along_an_axis
from pto_jit.semantic.rules import infer
from pto_jit.slotted import mutable, replace
from pto_jit.targets.cpu.writing import written_tensors
from pto_jit.targets.cuda.alike import share_kernels
from pto_jit.targets.cuda.batches import in_matrices
from pto_jit.targets.cuda.devices import headers
from pto_jit.targets.cuda.elements import share_elements
from pto_jit.targets.cuda.flatten import flatten, without_assertions
from pto_jit.targets.cuda.forms import TILE
from pto_jit.targets.cuda.host import HostProgram
from pto_jit.targets.cuda.kernels import Kernel, write_kernel
from pto_jit.targets.cuda.merged import merge_leading_axes
from pto_jit.targets.cuda.nests import outline_kernels
from pto_jit.targets.cuda.parts import COLUMNS, in_batches, in_columns, in_smaller_parts
from pto_jit.targets.cuda.shapes import with_extents
from pto_jit.targets.cuda.spreads import LARGEST, SMALLEST, refuse_misfits
from pto_jit.targets.cuda.squares import in_squares
from pto_jit.targets.cuda.starts import without_starts
from pto_jit.targets.cuda.tiling import tile_products
from pto_jit.targets.cuda.turned import turn_loads
from pto_jit.targets.cuda.updates import with_atomic_updates
from pto_jit.targets.source.text import file_name

if TYPE_CHECKING:
    from pto_jit.targets.cuda.launcher import Version


_LARGE = 1024
"""Elements of a tile of known extents that may be divided where some do not fit a block."""


@mutable(eq=False)
class CudaProgram:
    """Kernels as sources, and the host code that launches them.

    module: the program as it was divided into host code and kernels; written: the tensors of the entry, by position
    among them, that a launch writes; renamed: the same under another name.
    """

    module: Module
    host: HostProgram
    written: frozenset[int]
    renamed: Callable[[str], CudaProgram]

    @property
    def sources(self) -> dict[str, str]:
        """The files of the program, name -> text.

        Raises TargetError for what a program without Python cannot launch.
        """
        from pto_jit.targets.cuda.launcher import host_files  # launches in this process have no use for it

        kernels = self.host.all_kernels()
        files = {f"{k.name}.cu": k.source for k in kernels}
        files |= headers()
        host, versions = host_files(self.module, self.host)
        stem = next(file for file in host if file.endswith("_orchestration.c")).removesuffix("_orchestration.c")
        readme = _readme(self.module.name, stem, [versions[k.name] for k in kernels])
        return {**files, **host, "README.md": readme}


def _in_parts(module: Module, debug: bool, decisions: list[Decision], *, constant: bool = False) -> Func:
    """A lowered module as one function whose products are made of tiles, and what follows these is divided as they
    are; each that is goes to `decisions`; constant: so are tiles of known extents.

    Raises TargetError for what this target does not do.
    """
    parts = PARTS["cuda"]
    whole = with_fewer_loads(flatten(module) if debug else without_assertions(flatten(module)))
    if constant:
        parts = replace(parts, constant=True, large=_LARGE)
        whole = divided(whole, parts, decisions)  # the operands of products may be computed
    whole = in_matrices(without_starts(merge_leading_axes(with_extents(whole))), parts, TILE, decisions)
    return divided(turn_loads(tile_products(whole)), parts, decisions)


def compile_module(
    module: Module, *, fastmath: bool = False, debug: bool = False, store: Any = None, shared_limit: int = LARGEST,
    decisions: list[Decision] | None = None,
) -> CudaProgram:  # fmt: skip
    """Write the kernels of a lowered module; `debug`: assertions are checked; `store`: where machine code is kept, if
    anywhere; `shared_limit`: bytes of shared memory that a block may have; `decisions`: where those are told that are
    made here.

    Raises TargetError for what this target does not do.
    """

    def written(parts: Func, told: list[Decision]) -> CudaProgram:
        program = _written(module, parts, fastmath=fastmath, debug=debug, store=store, shared_limit=shared_limit)
        if decisions is not None:
            decisions.extend(told)
        return program

    told: list[Decision] = []
    parts = _in_parts(module, debug, told)
    try:
        return written(parts, told)
    except TargetError:
        told = []
        smaller = _in_parts(module, debug, told, constant=True)  # what does not fit a block
        if smaller == parts:
            raise
        with suppress(TargetError):
            return written(smaller, told)
        raise


def _written(
    module: Module, parts: Func, *, fastmath: bool, debug: bool, store: Any, shared_limit: int
) -> CudaProgram:
    """The same, of its entry without calls, whose products and whole tensors are in parts."""
    flat = share_elements(parts, module)
    flat = in_squares(with_atomic_updates(flat, lambda func: share_elements(func, module)))
    split = outline_kernels(flat, module.name, shared=True)
    dims = extents_of(split.func(split.entry).body)
    fitting = fitting_axes(flat.body)
    split = share_kernels(split, dims, fitting)
    verify(split, infer, typed=known(module))
    entry = split.func(split.entry)
    file = file_name(entry.loc.filename)
    kernels: list[Kernel] = []
    first = 0
    names = {func.name for func in split.funcs}
    for func in split.funcs:
        if func is not entry:
            write = partial(write_kernel, dims=dims, file=file, fastmath=fastmath, first_site=first, fitting=fitting)
            kernel = _fitting(func, write, shared_limit, fitting)
            if kernel.capacities:
                name = unused(f"{func.name}_in_passes", names)
                kernel = replace(kernel, in_passes=partial(
                    _in_passes, replace(func, name=name), dims, write, shared_limit, store))  # fmt: skip
            kernels.append(replace(kernel, store=store))
            first += len(kernels[-1].sites)

    def renamed(name: str) -> CudaProgram:
        return compile_module(called(module, name), fastmath=fastmath, debug=debug, store=store,
                              shared_limit=shared_limit)  # fmt: skip

    return CudaProgram(split, HostProgram(entry, kernels), frozenset(written_tensors(module)), renamed)


def _fitting(func: Func, write: Callable[..., Kernel], shared_limit: int, fitting: Fitting = NOTHING) -> Kernel:
    """The kernel of a function, divided where its tiles do not fit a block, or few rows of them keep few blocks busy;
    operands are brought ahead of their products where the parts fit every device with that.  TargetError where nothing
    helps.
    """
    func = in_batches(func, fitting)
    kernel = write(func)
    columns = in_columns(func) if _has_few_rows(kernel) else None
    if columns is not None:
        func, kernel = columns, write(columns)
    try:
        refuse_misfits(kernel, shared_limit)
    except TargetError as refusal:
        divided = list(in_smaller_parts(func)) if kernel.kind == "fragments" else []
        part = cache(lambda at, ahead: write(divided[at], ahead=ahead))
        for limit, ahead in product((min(shared_limit, SMALLEST), shared_limit), (True, False)):
            if divided and ahead and not _fits(part(len(divided) - 1, ahead), limit):
                continue  # no need to write larger ones
            for at in range(len(divided)):
                if _fits(part(at, ahead), limit):
                    return part(at, ahead)
        raise refusal
    return kernel


def _in_passes(
    func: Func, dims: dict[str, tuple[str, int]], write: Callable[..., Kernel], shared_limit: int, store: Any,
    first_site: int,
) -> Kernel | None:  # fmt: skip
    """The kernel of a function that goes over a long axis in passes; None where more than parts of it are needed."""
    tensors = {p.name: p for p in func.params if isinstance(p.type, TensorType)}
    sizes = {p.name: replace(p, name=f"{p.name}.size") for p in func.params
             if p.name in dims and dims[p.name][0] in tensors}  # fmt: skip
    told = tuple(Op("dim", (size,), (tensors[dims[name][0]],), (("axis", dims[name][1]),), (), func.loc)
                 for name, size in sizes.items())  # fmt: skip
    passes = kernel_along_an_axis(replace(func, body=(*told, *substitute(func.body, dict(sizes)))), PARTS["cuda"])
    if passes is None:
        return None
    given = {size.name: replace(size, name=name) for name, size in sizes.items()}
    body = tuple(s for s in passes.body if not any(s is op for op in told))
    passes = replace(passes, body=substitute(body, dict(given)))
    with suppress(TargetError):
        return replace(_fitting(passes, partial(write, first_site=first_site), shared_limit), store=store)
    return None


def _fits(kernel: Kernel, shared_limit: int) -> bool:
    try:
        refuse_misfits(kernel, shared_limit)
    except TargetError:
        return False
    return True


def _has_few_rows(kernel: Kernel) -> bool:
    """Whether exact products have no more rows than a block should multiply with many columns."""
    rows = [shape[0] for shape in kernel.shapes if len(shape) == 2]
    exact = kernel.kind == "fragments" and not kernel.tensor_cores
    return exact and all(isinstance(n, Const) and n.value <= COLUMNS for n in rows)


def extents_of(body: Block) -> dict[str, tuple[str, int]]:
    """The numbers of host code that are extents of its tensors."""
    out: dict[str, tuple[str, int]] = {}
    for s in statements(body):
        if isinstance(s, Op) and s.op == "dim" and isinstance(s.args[0], Var):
            out[s.results[0].name] = (s.args[0].name, int(s.attr("axis")))  # type: ignore[arg-type]
    return out


def _architectures(versions: Sequence[Version]) -> str:
    if all(v.shared <= SMALLEST for v in versions):
        return "For compute capability 8.0 or later (`sm_80`, `sm_90`, ...)"
    return "For compute capability 9.0 or later (`sm_90`, ...), whose blocks have the shared memory that this takes"


def _readme(module: str, name: str, versions: Sequence[Version]) -> str:
    """How the written program is compiled; `name`: of its host side in C."""
    lines = [f"# {module}, as CUDA", "", "| file | what |", "|---|---|"]
    lines += [f"| `{v.kernel.name}.cu` | a kernel |" for v in versions]
    lines += [
        f"| `{name}_orchestration.c`, `{name}.h` | the host side over the driver API, and how a program calls it |",
        "| `*.cuh`, `pto_elements.h` | what kernels are made of |",
        "| `pto_cuda_host.h`, `pto_host.h` | what host code is made of |",
        f"| `{module}.pto` | the program that these files were written from |", "",
        f"{_architectures(versions)}:", "", "```",
    ]  # fmt: skip
    for v in versions:
        defines = "".join(f" -D{macro}={value}" for macro, value in v.spread.defines)
        fmad = "true" if v.kernel.fastmath else "false"
        lines.append(f"nvcc -std=c++17 -cubin -arch=sm_90 --fmad={fmad}{defines} -o {v.kernel.name}.cubin "
                     f"{v.kernel.name}.cu")  # fmt: skip
    lines += [
        f"cc -std=c11 -O2 -fwrapv -fno-strict-aliasing -I. -I/usr/local/cuda/include -c {name}_orchestration.c",
        "```", "",
        f"A program is linked with `{name}_orchestration.o -lcuda -lm`; `pto_cuda_host.h` shows how it runs.",
        "The macros say how tiles are spread over the threads of a block; the host side is written for these values.",
        "A launch from Python chooses them anew for the extents that it meets.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"

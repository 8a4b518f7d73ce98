# SPDX-License-Identifier: MIT
"""C sources in this process: compiled by the system's C compiler, loaded, bound to the run-time library here.

The library's functions are not visible to others, so the shared library has functions of their names that go through
pointers, which `pto_bind` sets.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pto_jit.slotted import field, mutable
from pto_jit.targets import toolchain
from pto_jit.targets.c.program import INCLUDE, RUNTIME, CSource
from pto_jit.targets.cpu.loading import PrintSite, TaskSite, host_id
from pto_jit.targets.source.text import text_of

STANDARD = ("-std=c11", "-O3", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing", "-fno-math-errno",
            "-fno-trapping-math", "-fopenmp-simd")  # fmt: skip
"""What every compilation of generated C needs."""
SIGNATURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "pto_parallel_for": ("int32_t", ("pto_worker *", "pto_range_fn", "void *", "int64_t", "int64_t", "int64_t")),
    "pto_scratch_push": ("void *", ("pto_worker *", "int64_t")),
    "pto_scratch_pop": ("void", ("pto_worker *", "void *")),
    "pto_buffer_alloc": ("void *", ("pto_worker *", "int64_t")),
    "pto_buffer_free": ("void", ("pto_worker *", "void *")),
    "pto_copy": ("void", ("int64_t", "void *", "const void *", "int64_t", "const int64_t *")),
    "pto_fail": ("int32_t", ("pto_worker *", "int32_t", "int64_t", "int64_t", "int64_t")),
    "pto_graph_open": ("pto_graph *", ("pto_worker *", "int64_t")),
    "pto_graph_close": ("int32_t", ("pto_worker *", "pto_graph *")),
    "pto_graph_tensor": ("int32_t", ("pto_graph *", "const void *", "int64_t", "int32_t", "const int64_t *",
                                     "const int64_t *", "int32_t *")),
    "pto_graph_buffer": ("void *", ("pto_graph *", "int64_t")),
    "pto_graph_wait": ("int32_t", ("pto_graph *",)),
    "pto_graph_wait_region": ("int32_t", ("pto_graph *", "int32_t", "const int64_t *")),
    "pto_task": ("int32_t", ("pto_graph *", "const pto_task_kind *", "const int64_t *", "const int64_t *")),
    "pto_print": ("void", ("pto_worker *", "int32_t", "const int64_t *", "int32_t")),
}
"""The functions of the run-time library that generated code calls."""


@mutable(eq=False)
class CProgram:
    """A program in a loaded shared library: what `CpuProgram` is for the cpu target."""

    source: CSource
    entry_address: int
    sites: tuple[tuple[str, str, Any], ...]
    print_sites: tuple[PrintSite, ...]
    result_plan: Any
    written: frozenset[int]
    library: Any = None
    task_sites: tuple[TaskSite, ...] = ()
    timings: dict[str, float] = field(default_factory=dict)

    def task_site(self, kind: int) -> TaskSite | None:
        """The call whose `pto_task_kind` is at that address."""
        if not self.task_sites:
            return None
        kinds = (ctypes.c_void_p * len(self.task_sites)).in_dll(self.library, self.source.kinds)
        return next((s for s, at in zip(self.task_sites, kinds, strict=True) if at == kind), None)

    def format_print(self, site: int, values: Sequence[int]) -> str:
        return self.print_sites[site].text(values)


def compiler() -> str:
    """The C compiler; ToolchainError when there is none."""
    return toolchain.need("the c target", "cc", "gcc", "clang")


def _wide() -> list[str]:
    """Compilers take half of an AVX-512 register unless told; the loops of these sources are long enough for all."""
    return ["-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []


def _bound() -> list[str]:
    """Calls of the sources' own functions are not looked up among those of the process, whatever their names are."""
    return ["-Wl,-Bsymbolic"] if platform.system() == "Linux" else []


def binding() -> str:
    """The C source that binds a shared library to the run-time library of this process."""
    lines = ['#include "pto_runtime.h"', ""]
    names = []
    for name, (result, types) in SIGNATURES.items():
        parameters = ", ".join(f"{t}{'' if t.endswith('*') else ' '}a{k}" for k, t in enumerate(types))
        arguments = ", ".join(f"a{k}" for k in range(len(types)))
        lines.append(f"static {result} (*call_{name})({', '.join(types)});")
        give = "return " if result != "void" else ""
        lines.append(f"{result} {name}({parameters}) {{ {give}call_{name}({arguments}); }}")
        names.append(name)
    lines += ["", "void pto_bind(void *const *functions);", "void pto_bind(void *const *functions) {"]
    for k, name in enumerate(names):
        result, types = SIGNATURES[name]
        lines.append(f"  call_{name} = ({result} (*)({', '.join(types)}))functions[{k}];")
    return "\n".join([*lines, "}", ""])


def headers() -> dict[str, str]:
    """The files that generated C includes."""
    files = [INCLUDE / "pto_elements.h", RUNTIME / "pto_runtime.h"]
    return {path.name: text_of(path) for path in files}


def build(
    texts: Mapping[str, str], symbols: Mapping[str, int], flags: Sequence[str] = (),
    extra: Mapping[str, str] | None = None, store: Any = None,
) -> ctypes.CDLL:  # fmt: skip
    """One shared library of some translation units (name -> text), loaded and bound; `extra`: further headers.

    store: keeps libraries on disk, if given (an object with `load(key)` and `store(key, metadata, code)`).  Raises
    ToolchainError when there is no compiler, or when it refuses the sources.
    """
    files = {**headers(), **(extra or {}), **texts, "pto_bind.c": binding()}
    command = [compiler(), *STANDARD, "-march=native", *_wide(), "-fPIC", "-shared", *_bound(), "-fvisibility=default",
               "-Wno-psabi", *flags, "-o", "program.so", *texts, "pto_bind.c", "-lm"]  # fmt: skip
    if store is None:
        return load(toolchain.build(command, files, "program.so"), symbols)
    inputs = (command, sorted(files.items()), toolchain.identity(command[0]), host_id())
    key = hashlib.sha256(repr(inputs).encode()).hexdigest()
    found = store.load(key)
    data = toolchain.build(command, files, "program.so") if found is None else found[1]
    if found is None:
        store.store(key, {"c": [*texts]}, data)
    return load(data, symbols)


def load(data: bytes, symbols: Mapping[str, int]) -> ctypes.CDLL:
    """A shared library from its bytes, bound to the run-time library's functions."""
    digest = hashlib.sha256(data).hexdigest()[:16]
    with tempfile.TemporaryDirectory(prefix="pto_jit_") as directory:  # the mapping outlives the file
        path = Path(directory) / f"{digest}.so"
        path.write_bytes(data)
        library = ctypes.CDLL(str(path))
    table = (ctypes.c_void_p * len(SIGNATURES))(*(symbols[name] for name in SIGNATURES))
    library.pto_bind(table)
    return library


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.addressof(ctypes.c_char.in_dll(library, name))


def program(source: CSource, library: ctypes.CDLL) -> CProgram:
    """A source's program in a library that holds it."""
    return CProgram(source, _address(library, source.entry), source.sites, source.print_sites, source.plan,
                    source.written, library, source.task_sites)  # fmt: skip

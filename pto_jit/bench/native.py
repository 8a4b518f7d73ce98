# SPDX-License-Identifier: MIT
"""Final LLVM IR text to a callable: the only place of the benchmark that knows llvmlite."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

ProbeFunction = Callable[[int, int, int, int], None]
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class NativeCode:
    """Compiles probe modules for the host, as they are; the code lives as long as this object."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.features = frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
        triple = llvm.get_process_triple()
        self.x86 = triple.startswith(("x86_64", "i686", "amd64"))
        self._target = llvm.Target.from_triple(triple)
        self._engines: list[Any] = []

    @property
    def lanes(self) -> int:
        """f32 values in the widest vector register."""
        if "avx512f" in self.features:
            return 16
        return 8 if {"avx", "fma"} <= self.features else 4

    def function(self, text: str) -> ProbeFunction:
        """The `probe` function of a module.  Calling it releases the interpreter lock."""
        features = llvm.get_host_cpu_features().flatten()
        machine = self._target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True)
        module = llvm.parse_assembly(text)
        module.verify()
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        self._engines.append(engine)
        return _SIGNATURE(engine.get_function_address("probe"))

# SPDX-License-Identifier: MIT
"""Lesser processors than the one at hand, made by hiding what it can do from LLVM before anything is compiled.

``python -m tests.targets.cpu.processors LEVEL COMMAND...`` runs a Python module as on such a processor, e.g.
``... "sse2" pytest -q tests/ops``.
"""

from __future__ import annotations

import runpy
import sys

import llvmlite.binding as llvm

_SSE = ("64bit", "sse", "sse2", "cx8", "fxsr", "cmov")
_SSE4 = (*_SSE, "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_AVX2 = (*_SSE4, "avx", "avx2", "fma", "bmi", "bmi2")
_AVX512 = (*_AVX2, "f16c", "avx512f")
LEVELS: dict[str, tuple[str, ...]] = {
    "sse2": _SSE,
    "avx": (*_SSE4, "avx"),
    "avx2 without f16c": _AVX2,
    "avx2": (*_AVX2, "f16c"),
    "avx512f alone": _AVX512,
    "avx512": (*_AVX512, "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}
"""What each has; the names are LLVM's."""

WIDTHS = {"sse2": 16, "avx": 32, "avx2 without f16c": 32, "avx2": 32, "avx512f alone": 32, "avx512": 64}
"""Bytes of the vector registers that kernels use there."""


def runs_here(level: str) -> bool:
    """Whether this processor has everything that the lesser one has."""
    features = llvm.get_host_cpu_features()
    return all(features.get(name) for name in LEVELS[level] if name != "64bit")


def pretend(level: str) -> None:
    """Be that processor from now on, in this process."""
    real = llvm.get_host_cpu_features()
    features = type(real)(dict.fromkeys(real, False) | dict.fromkeys(LEVELS[level], True))
    llvm.get_host_cpu_features = lambda: features
    llvm.get_host_cpu_name = lambda: "x86-64"


def pretend_aarch64() -> None:
    """Compile for the processors of ARM's servers from now on; what is compiled cannot be loaded here."""
    features = type(llvm.get_host_cpu_features())(dict.fromkeys(("neon", "fp-armv8", "fullfp16", "dotprod"), True))
    triple = "aarch64-unknown-linux-gnu"
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_host_cpu_features = lambda: features
    llvm.get_host_cpu_name = lambda: "neoverse-n1"
    llvm.get_process_triple = lambda: triple
    llvm.Target.from_default_triple = classmethod(lambda cls: cls.from_triple(triple))  # type: ignore


if __name__ == "__main__":
    pretend(sys.argv[1])
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

# SPDX-License-Identifier: MIT
"""The generated matrix products with stand-ins of the run-time functions they call."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pto_jit.targets.cpu.matmul.blocking import Caches
from pto_jit.targets.cpu.matmul.library import Library
from tests.targets.matmul_harness import VARIANTS, StandIn


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler for the stand-in of the run-time functions")
    target = tmp_path_factory.mktemp("matmul") / "runtime.so"
    source = Path(__file__).with_name("matmul_runtime.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(target), str(source), "-lpthread"], check=True)
    dll = ctypes.CDLL(str(target))
    dll.standin_worker.restype = ctypes.c_void_p
    for count in (dll.standin_live, dll.standin_pushes, dll.standin_found, dll.standin_most_held):
        count.restype = ctypes.c_int64
    dll.standin_fail_after.argtypes = [ctypes.c_int64]
    return StandIn(dll, dll.standin_worker())


@pytest.fixture(scope="module")
def libraries(standin: StandIn) -> Callable[[str, Caches | None], Library]:
    made: dict[tuple[str, Caches | None], Library] = {}

    def get(variant: str, caches: Caches | None = None) -> Library:
        key = (variant, caches)
        if key not in made:
            made[key] = Library(standin.externals, processor=VARIANTS[variant], caches=caches)
        return made[key]

    return get

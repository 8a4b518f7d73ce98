# SPDX-License-Identifier: MIT
"""Compiles the hand-written kernels of `kernels.c` and gives their addresses."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pto_jit.runtime import Entry, Runtime, symbols

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parent.parent / "csrc" / "runtime"


class KernelError(Exception):
    """What the tests' on_failure raises: the holder, the site, its three values and the arguments."""


def raise_it(holder: Any, site: int, v0: int, v1: int, v2: int, args: tuple[Any, ...]) -> None:
    raise KernelError(holder, site, (v0, v1, v2), args)


class Kernels:
    error = KernelError

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        known = symbols()
        imported = [name for name, at in known.items() if library.import_symbol(name.encode(), ctypes.c_void_p(at))]
        assert len(imported) == 10

    def address(self, name: str) -> int:
        found = ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value
        assert found is not None
        return found

    def entry(self, runtime: Runtime, name: str, results: Any = None, **options: Any) -> Entry:
        settings: dict[str, Any] = {"holder": name, "on_failure": raise_it} | options
        return Entry(runtime, self.address(name), results, **settings)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    library = tmp_path_factory.mktemp("kernels") / "kernels.so"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", f"-I{HEADERS}", str(HERE / "kernels.c"), "-o", str(library)], check=True
    )
    return Kernels(ctypes.CDLL(str(library)))


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(2)


@pytest.fixture
def make(kernels: Kernels, runtime: Runtime) -> Callable[..., Entry]:
    """make(kernel, results=None, **options): an Entry on this test's runtime."""

    def make(name: str, results: Any = None, **options: Any) -> Entry:
        return kernels.entry(runtime, name, results, **options)

    return make

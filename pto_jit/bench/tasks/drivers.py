# SPDX-License-Identifier: MIT
"""The programs that are measured: C and C++ files of this folder, compiled on the machine."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parents[2] / "csrc" / "runtime"
LAYER = HERE.parents[2] / "tutorials" / "llama7b_layer.py"


class BuildError(Exception):
    """A driver cannot be built: why, in one line."""


@dataclass(frozen=True, slots=True)
class Driver:
    """One runtime: how its driver is compiled, and what has to be installed for that.

    `needs_edges`: it finds no dependences itself and is given the edges of our graph; `separate_build`: building can be
    told from running.
    """

    name: str
    title: str
    source: str
    flags: tuple[str, ...]
    package: str
    needs_edges: bool
    separate_build: bool = True


DRIVERS = (
    Driver("taskflow", "Taskflow", "taskflow_stream.cpp", ("-std=c++20",),
           "Taskflow's headers (installed, or --taskflow DIR)", True),
    Driver("tbb", "oneTBB flow graph", "tbb_stream.cpp", ("-std=c++17", "-ltbb"), "libtbb-dev", True),
    Driver("openmp", "OpenMP tasks, depend", "openmp_stream.cpp", ("-std=c++17", "-fopenmp"), "an OpenMP compiler",
           False, separate_build=False),
)  # fmt: skip


def _compile(compiler: tuple[str, ...], source: Path, target: Path, flags: list[str], package: str) -> None:
    program = next((found for name in compiler if (found := shutil.which(name)) is not None), None)
    if program is None:
        raise BuildError(f"no compiler ({' or '.join(compiler)}) on the PATH")
    libraries = [flag for flag in flags if flag.startswith("-l")]
    others = [flag for flag in flags if not flag.startswith("-l")]
    command = [program, "-O2", "-shared", "-fPIC", "-pthread", f"-I{HERE}", *others, str(source), "-o", str(target)]
    done = subprocess.run([*command, *libraries], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["?"]
        raise BuildError(f"needs {package}: {lines[0].strip()}")


def build_peer(driver: Driver, folder: Path, taskflow: Path | None) -> Path:
    """The shared library of a peer.  Raises BuildError."""
    target = folder / f"{driver.name}.so"
    flags = list(driver.flags)
    if driver.name == "taskflow" and taskflow is not None:
        flags.insert(0, f"-I{taskflow}")
    _compile(("c++", "g++", "clang++"), HERE / driver.source, target, flags, driver.package)
    return target


def build_stream(folder: Path) -> Path:
    """The shared library with our own calls of the stream.  Raises BuildError."""
    if not (HEADERS / "pto_runtime.h").is_file():
        raise BuildError(f"pto_runtime.h is not in {HEADERS}: run from a checkout of the sources")
    target = folder / "pto_stream.so"
    _compile(("cc", "gcc", "clang"), HERE / "pto_stream.c", target, [f"-I{HEADERS}", "-std=gnu11"], "a C compiler")
    return target


def layer_source() -> Path:
    """The file with the compiled layer, `decoder_layer` and `layer_arguments`.  Raises BuildError."""
    if not LAYER.is_file():
        raise BuildError(f"{LAYER.name} is not in {LAYER.parent}: run from a checkout of the sources")
    return LAYER

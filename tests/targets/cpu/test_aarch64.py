# SPDX-License-Identifier: MIT
"""Machine code of the cpu target for AArch64, linked with the cross compiler and run under qemu: operations, whole
kernels of the benchmarks with two threads, tasks, products.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pto_jit.compiler import Stages, lower
from pto_jit.targets.cpu import Tasks
from pto_jit.targets.cpu.library import compile_objects
from tests.targets.c.everything import SUMS, Everything, Products
from tests.targets.c.standalone import ARM, Programs, link, needs_arm
from tests.targets.cpu.processors import pretend_aarch64

ROOT = Path(__file__).resolve().parents[3]
DTYPES = ("f16", "bf16", "f32", "f64", "i8", "u16", "i32", "u64", "bool")


class Objects(Programs):
    """Kernels compiled by LLVM rather than written in C; the C form says what the calls pass."""

    def __init__(self) -> None:
        super().__init__("c")
        self.stages: list[Stages] = []

    def add(self, fn: Any, *args: Any, stages: Stages | None = None) -> None:
        super().add(fn, *args, stages=stages)
        call = fn._parameters.classify(*fn._parameters.bind(args, {}))
        self.stages.append(lower(fn.__pto_jit__, call.params, fn._options))

    def build(self, directory: Path, compiler: Sequence[str], flags: Sequence[str] = ("-O0",)) -> Path:
        """One object file for each kernel, with its entry as the only name that others see, and the products."""
        prefix = compiler[0].removesuffix("gcc")
        files: dict[str, Path] = {}
        for k, stages in enumerate(self.stages):
            module = stages.last
            called = f"kernel_{k}"
            objects = compile_objects(module, called, tasks=None if stages.tasks is None else Tasks(stages.tasks))
            for name, data in objects.files.items():
                own = name == f"{called}.o"
                path = directory / name
                files[path.name] = path
                if own or not path.exists():
                    path.write_bytes(data)
                if own:
                    subprocess.run([f"{prefix}objcopy", f"--keep-global-symbol={objects.entry}", path], check=True)
                    subprocess.run([f"{prefix}objcopy", f"--redefine-sym={objects.entry}=entry_{k}", path], check=True)
        entries = [f"entry_{k}" for k in range(len(self.stages))]
        return link(directory, compiler, entries, files.values())


def run_everything(directory: Path) -> None:
    """Compile and run all of it, as a process that takes itself for an AArch64."""
    pretend_aarch64()
    programs = Objects()
    everything, products = Everything(programs, DTYPES), Products(programs, SUMS)
    binary = programs.build(directory, (ARM[0], "-static"))
    for k, (failure, _) in enumerate(programs.run(directory, (ARM[1], str(binary)))):
        assert failure is None, (k, failure)
    everything.compare()
    products.compare()


@needs_arm
def test_machine_code_for_aarch64_agrees_with_numpy_under_qemu() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.targets.cpu.test_aarch64"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        run_everything(Path(place))

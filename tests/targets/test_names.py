# SPDX-License-Identifier: MIT
"""Functions with names of C, CUDA, pto-isa or the run-time library: every file is there, and compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import pto_jit as pto
import pto_jit.language as pl

NAMES = "double exp norm max std float4 größe pool scratch launch failure float_t Tile aclrtStream tasks x".split()
TARGETS = ("c", "neon", "cuda", "ascend")
SPEC = pto.spec((None, 32), pl.f32)
_PROGRAM = """
import pto_jit as pto
import pto_jit.language as pl

@pto.incore
def {core}(a, b, r):
    pl.store(pl.exp(pl.load(a, [r, 0], [8, 32])), [r, 0], b)

@pto.jit
def {entry}(a, b):
    for i in range(4):
        {core}(a, b, i * 8)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The directory of a program, by the names of its functions and the target."""
    base = tmp_path_factory.mktemp("names")
    programs: dict[tuple[str, str], Any] = {}

    def of(entry: str, core: str, target: str) -> Path:
        if (entry, core) not in programs:
            file = base / f"{entry}_{core}.py"
            file.write_text(_PROGRAM.format(entry=entry, core=core))
            space: dict[str, Any] = {}
            exec(compile(file.read_text(), str(file), "exec"), space)
            programs[entry, core] = space[entry]
        programs[entry, core].compile(SPEC, SPEC, target=target).write(base / f"{entry}_{core}_{target}")
        return base / f"{entry}_{core}_{target}"

    return of


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_build_lines_name_files_that_are_there_and_one_object_for_each(written: Any, name: str, target: str) -> None:
    for entry, core in ((name, "body"), ("prog", name)):
        directory = written(entry, core, target)
        lines = re.findall(r"```\n(.*?)```", (directory / "README.md").read_text(), re.DOTALL)[0]
        lines = lines.replace("runtime/*.c", " ".join(f"runtime/{p.name}" for p in directory.glob("runtime/*.c")))
        files = re.findall(r"(?<=[ /])[\w/]+\.(?:c|cu|cpp)\b", lines)
        assert len(files) >= 2 and all((directory / file).exists() for file in files), files
        assert len({Path(file).stem for file in files}) == len(files), "objects overwrite each other"


@pytest.mark.parametrize("name", NAMES)
def test_kernels_of_devices_have_no_name_of_the_headers(written: Any, name: str) -> None:
    cuda, ascend = written("prog", name, "cuda"), written("prog", name, "ascend")
    kernels = [re.findall(r"__global__ .*?(\w+)\(\s*const pto", f.read_text(), re.DOTALL) for f in cuda.glob("*.cu")]
    kernels += [re.findall(r"__global__ AICORE void (\w+)\(", f.read_text()) for f in ascend.glob("*.cpp")]
    assert len(kernels) == 2 and all(len(names) == 1 and names[0].isascii() for names in kernels)
    allowed = {"pool", "scratch", "launch", "tasks", "x"}  # nothing else is called so there
    assert name in allowed or not any(name in names for names in kernels)


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.parametrize("name", NAMES)
def test_host_code_in_c_compiles(written: Any, name: str) -> None:
    for entry, core in ((name, "body"), ("prog", name)):
        directory = written(entry, core, "c")
        files = [p.name for p in directory.glob("*.c")]
        flags = ["-std=c11", "-fsyntax-only", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-I.", "-Iruntime"]
        done = subprocess.run(["gcc", *flags, *files], cwd=directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

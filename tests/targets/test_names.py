# SPDX-License-Identifier: MIT
"""Functions with names of C, CUDA, pto-isa or the run-time library: every file is there, and compiles."""

from __future__ import annotations

import linecache
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import pto_jit as pto
import pto_jit.language as pl

from .c.harness import needs_compiler
from .c.standalone import ARM, needs_arm

NAMES = """double exp norm max std float4 größe α pool scratch launch failure float_t Tile aclrtStream tasks x vaddq_f32
    float32x4_t""".split()
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


_OF_NEON = """
import pto_jit as pto
import pto_jit.language as pl

@pto.jit
def vmulq_f32(float32x4_t, int32x4_t, vaddq_f32, char8_t, typeof):
    for vld1q_f32 in pl.range(char8_t.shape[0]):
        uint8_t = pl.exp(pl.load(float32x4_t, [vld1q_f32, 0], [1, 33])) * typeof
        vst1q_f32 = uint8_t + pl.load(int32x4_t, [vld1q_f32, 0], [1, 33])
        pl.store(vst1q_f32 + pl.load(vaddq_f32, [vld1q_f32, 0], [1, 33]), [vld1q_f32, 0], char8_t)
"""


@needs_arm
def test_parameters_and_variables_may_have_names_of_the_vector_instructions(tmp_path: Path) -> None:
    file = tmp_path / "of_neon.py"
    file.write_text(_OF_NEON)
    space: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    matrix = pto.spec((None, None), pl.f32)
    space["vmulq_f32"].compile(matrix, matrix, matrix, matrix, 2.0, target="neon").write(tmp_path)
    flags = ["-march=armv8.2-a", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-fopenmp-simd", "-I.", "-Iruntime"]
    files = sorted(p.name for p in tmp_path.glob("*.c"))
    subprocess.run([ARM[0], "-std=c11", *flags, *files], cwd=tmp_path, check=True)
    if shutil.which("g++"):
        header = next(p.name for p in tmp_path.glob("*.h") if f"{p.stem}_launch" in p.read_text())
        subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", "-Iruntime", "-x", "c++-header", header],
                       cwd=tmp_path, check=True)  # fmt: skip


@pto.jit
def α(x, y):
    y[...] = x[...] * 2


@pto.jit
def β(x, y):
    y[...] = x[...] * 3


@needs_compiler
@pytest.mark.parametrize("target", ["cpu", "c"])
def test_names_in_greek_are_told_apart(target: str, tmp_path: Path) -> None:
    """Two libraries of one program."""
    vector = pto.spec((None,), pl.f32)
    for function in (α, β):
        function.compile(vector, vector, target=target).library(tmp_path)
    (tmp_path / "main.c").write_text("""
#include "alpha.h"
#include "beta.h"
int main(void) {
  pto_runtime *runtime = 0;
  float x = 1, y = 0, z = 0;
  if (pto_runtime_create(0, &runtime) != PTO_OK) return 1;
  if (alpha_launch(runtime, &x, 1, &y, 1, 0) != PTO_OK || beta_launch(runtime, &x, 1, &z, 1, 0) != PTO_OK) return 2;
  return y == 2 && z == 3 ? 0 : 3;
}
""")
    subprocess.run(["cc", "main.c", "-o", "main", "-L.", "-lalpha", "-lbeta", "-lm", "-pthread"], cwd=tmp_path, check=True)
    assert subprocess.run(["./main"], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.parametrize("target", TARGETS)
def test_the_name_of_a_file_ends_no_comment(target: str) -> None:
    """Of a source without a file, which may be called anything."""
    name = "odd\nint broken;\\\n.py"
    text = "import pto_jit as pto\n@pto.jit\ndef doubled(x, y):\n    y[...] = x * 2.0\n"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    made: dict[str, Any] = {"__name__": "odd"}
    exec(compile(text, name, "exec"), made)
    sources = made["doubled"].compile(SPEC, SPEC, target=target).sources
    lines = [line.strip() for source in sources.values() for line in source.splitlines() if "broken" in line]
    assert lines and all(line.startswith(("//", '"')) for line in lines)
    assert not any(line.startswith("//") and line.endswith("\\") for line in lines)

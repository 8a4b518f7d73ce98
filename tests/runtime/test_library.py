# SPDX-License-Identifier: MIT
"""The C library by itself: strict compilation, the stress programs, what the header promises about the sources."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pto_jit.runtime import symbols
from pto_jit.runtime.build import declarations

ROOT = Path(__file__).resolve().parent.parent.parent
RUNTIME = ROOT / "csrc" / "runtime"
SOURCES = sorted(RUNTIME.glob("*.c"))
HEADER = (RUNTIME / "pto_runtime.h").read_text("utf-8")


STRICT = "-std=gnu11 -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -pthread".split()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The object files of the runtime, at fixed addresses: constants that hold some are constants then."""
    folder = tmp_path_factory.mktemp("library")
    subprocess.run(["cc", *STRICT, "-fno-pic", "-c", *map(str, SOURCES)], cwd=folder, check=True)
    return sorted(folder.glob("*.o"))


PROGRAMS = ["loops", "buffers", "allocator", "race", "tasks", "boxes", "corners", "steps", "windows", "forks", "kept"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_stress_program_compiles_without_a_warning_and_passes(
    program: str, library: list[Path], tmp_path: Path
) -> None:
    target = tmp_path / program
    source = RUNTIME / "stress" / f"{program}.c"
    subprocess.run(["cc", *STRICT, "-fno-pic", "-no-pie", str(source), *map(str, library), "-o", str(target)], check=True)
    ended = subprocess.run([str(target)], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{program}: ok\n", "")


def test_every_stress_program_runs_here_and_under_sanitizers() -> None:
    made = (ROOT / "Makefile").read_text("utf-8").split("SANITIZED =")[1].split(".SECONDARY")[0]
    sanitized = set(re.findall(r"\w+", made))
    assert {path.stem for path in (RUNTIME / "stress").glob("*.c")} == set(PROGRAMS) <= sanitized


def without_comments(source: str) -> str:
    return re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)


def test_every_declared_function_is_exported_and_described() -> None:
    body = declarations(HEADER)
    declared = set(re.findall(r"\b(pto_\w+)\(", without_comments(body)))
    assert declared == set(symbols())
    for name in declared:
        before = body[: re.search(rf"\b{name}\(", without_comments_in_place(body)).start()]  # type: ignore[union-attr]
        assert before.rstrip().rsplit("\n", 1)[-1].strip() != "" and "*/" in before, name


def without_comments_in_place(source: str) -> str:
    return re.sub(r"/\*.*?\*/", lambda found: re.sub(r"[^\n]", " ", found.group()), source, flags=re.DOTALL)


def test_the_library_has_no_state_of_its_own_and_calls_nothing_it_should_not(library: list[Path]) -> None:
    """Read off the object files: no writable data, no environment, no output, no abort."""
    forbidden = {"getenv", "secure_getenv", "environ", "abort", "exit", "_exit", "__assert_fail", "printf", "fprintf",
                 "puts", "putchar", "fputs", "fwrite", "write", "perror", "stdout", "stderr"}  # fmt: skip
    allowed = {
        "task_dump.o": {"fwrite", "stdout"},  # where the host asks for it
        "buffers.o": {"abort", "fputs", "fwrite", "stderr"},  # memory freed twice: nothing is sure any more
    }
    assert len(library) == len(SOURCES)
    for path in library:
        symbols_of = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
        rows = [line.split()[-2:] for line in symbols_of.splitlines()]
        assert [name for kind, name in rows if kind in "DdBbCGgSs"] == [], path.name
        used = {name for kind, name in rows if kind == "U"} & forbidden
        assert used <= allowed.get(path.name, set()), path.name
        public = [name for kind, name in rows if kind == "T"]
        assert [name for name in public if not name.startswith("pto_")] == [], path.name


def test_every_atomic_operation_names_its_order() -> None:
    for path in [*SOURCES, *RUNTIME.glob("*.h")]:
        text = without_comments(path.read_text("utf-8"))
        used = re.findall(r"\batomic_(?:load|store|exchange|fetch|compare_exchange)\w*(?=\s*\()", text)
        assert [name for name in used if not name.endswith("_explicit")] == [], path.name


def test_the_header_is_valid_c11_and_cpp_by_itself(tmp_path: Path) -> None:
    for suffix, flags in (("c", ["-std=c11", "-pedantic"]), ("cpp", ["-std=c++17", "-x", "c++"])):
        source = tmp_path / f"alone.{suffix}"
        source.write_text('#include "pto_runtime.h"\nint main(void) { return PTO_OK; }\n')
        subprocess.run(
            ["cc", *flags, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{RUNTIME}", str(source)], check=True
        )

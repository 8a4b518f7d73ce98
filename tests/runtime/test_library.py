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


@pytest.mark.parametrize("program", ["loops", "buffers", "allocator", "race", "tasks", "windows", "forks"])
def test_a_stress_program_compiles_without_a_warning_and_passes(program: str, tmp_path: Path) -> None:
    target = tmp_path / program
    flags = "-std=gnu11 -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -pthread".split()
    subprocess.run(
        ["cc", *flags, str(RUNTIME / "stress" / f"{program}.c"), *map(str, SOURCES), "-o", str(target)], check=True
    )
    ended = subprocess.run([str(target)], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{program}: ok\n", "")


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


def test_the_library_has_no_state_of_its_own_and_calls_nothing_it_should_not(tmp_path: Path) -> None:
    """Read off the object files: no writable data, no environment, no output, no abort."""
    forbidden = {"getenv", "secure_getenv", "environ", "abort", "exit", "_exit", "__assert_fail", "printf", "fprintf",
                 "puts", "putchar", "fputs", "fwrite", "write", "perror", "stdout", "stderr"}  # fmt: skip
    for path in SOURCES:
        target = tmp_path / f"{path.stem}.o"
        subprocess.run(["cc", "-std=gnu11", "-O2", "-fno-pic", "-c", str(path), "-o", str(target)], check=True)
        symbols_of = subprocess.run(["nm", str(target)], capture_output=True, text=True, check=True).stdout
        rows = [line.split()[-2:] for line in symbols_of.splitlines()]
        assert [name for kind, name in rows if kind in "DdBbCGgSs"] == [], path.name
        # the dump is the only thing that is written, where the host asks for it
        allowed = {"fwrite", "stdout"} if path.name == "task_report.c" else set()
        assert {name for kind, name in rows if kind == "U"} & forbidden <= allowed, path.name
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

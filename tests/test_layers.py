# SPDX-License-Identifier: MIT
"""Which room may import which: a list of arrows, and every import in the package is one of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pto_jit"
BOTTOM = {"slotted", "errors", "dtypes", "source", "config", "tracebacks"}
LIBRARY = BOTTOM | {"language", "ir", "semantic"}
ALLOWED: dict[str, set[str]] = {
    **dict.fromkeys(BOTTOM, BOTTOM),
    "ir": BOTTOM | {"ir"},
    "semantic": LIBRARY,  # the interpreter shares the language's eager meaning
    "codegen": LIBRARY | {"codegen"},
    "codegen/indices.py": LIBRARY | {"codegen", "comprehensions"},  # imported by the kernel that has such a statement
    "lower": LIBRARY | {"lower"},
    "targets": LIBRARY | {"lower", "targets"},
    "targets/cpu/loading.py": LIBRARY | {"lower", "targets", "runtime"},  # addresses that generated code calls
    "runtime": {"runtime", "slotted", "errors", "config"},
    "builder": LIBRARY | {"builder", "codegen", "arguments", "reading", "modules"},
    "comprehensions": LIBRARY | {"comprehensions", "jit", "options", "runtime"},  # its functions are dispatchers
    "fractal": LIBRARY | {"fractal"},
    "fractal/compile": LIBRARY | {"fractal", "codegen", "lower"},
    "codegen/builtins/registry.py": LIBRARY | {"codegen", "fractal"},  # by kernels with parallel functions
    "commands": BOTTOM | {"commands", "arguments", "assembly", "ir", "reading", "runtime", "error_pages"},
    "language": {"language", "slotted", "errors", "dtypes", "source"},
}
OUTSIDE = {"llvmlite": ("targets/cpu", "targets/vecmath", "bench"), "cffi": ("runtime",)}
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> list[str]:
    """The modules that a file imports, those inside functions too, but not those for the type checker alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: list[str] = []
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(PACKAGE.parent).parts[: -node.level] if node.level else ()
            module = ".".join((*package, *([node.module] if node.module else [])))
            found += [f"{module}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(PACKAGE)) for path in FILES])
def test_a_file_imports_only_what_its_room_may(path: Path) -> None:
    place = path.relative_to(PACKAGE)
    rooms = (str(place), "/".join(place.parts[:2]), place.parts[0].removesuffix(".py"))
    room = next((r for r in rooms if r in ALLOWED), rooms[-1])
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "pto_jit" and room in ALLOWED and len(parts) > 1:
            assert parts[1] in ALLOWED[room], f"{place} imports {name}"
        for library, rooms in OUTSIDE.items():
            if parts[0] == library:
                assert str(place).startswith(rooms), f"{place} imports {name}"


def test_the_walk_sees_imports_inside_functions(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\ndef f():\n    from b.c import d\n"
    path.write_text(text)
    assert imports(path) == ["typing.TYPE_CHECKING", "b.c.d"]


MAPPED = ("codegen", "comprehensions", "fractal/compile", "ir", "lower", "semantic", "targets/ascend", "targets/c",
          "targets/cpu", "targets/cuda")  # fmt: skip


@pytest.mark.parametrize("package", MAPPED)
def test_a_large_package_has_a_map_of_its_files(package: str) -> None:
    folder = PACKAGE / package
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    rows = [" ".join(row.split()).partition(": ")[0] for row in text.split("\n* ")[1:]]
    listed = [name.strip("`/") for row in rows for name in row.split(", ")]
    assert [n for n in listed if not (folder / n).is_dir() and not (folder / f"{n}.py").is_file()] == []
    left_out = sorted({path.stem for path in folder.glob("*.py")} - {"__init__", *listed, "pipeline"})
    assert left_out == [], f"name them in the docstring of {package}/__init__.py"

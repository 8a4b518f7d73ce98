# SPDX-License-Identifier: MIT
"""The files of a written program: complete, with the commands that compile them and nothing of this machine.

One file per in-core function and orchestration, a header that lets them call each other, and one for programs that
launch the whole.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from functools import cache, lru_cache

from pto_jit.targets.c.header import Launch, launch_header
from pto_jit.targets.c.native import STANDARD, headers
from pto_jit.targets.c.program import RUNTIME, CSource, file_text
from pto_jit.targets.c.tidy import words_of
from pto_jit.targets.source.identifiers import Identifiers
from pto_jit.targets.source.text import files_in, text_of, wrapped

_README = """\
# {name}, as C

C11{vectors} on the run-time library in `runtime/`.

| file | what |
|---|---|
{files}

Build a static library (programs with it are linked with `-lm -pthread`):

```
{build}
```

A program includes `{name}.h`, makes a runtime with `pto_runtime_create` (and frees it with `pto_runtime_release`), and
calls

```c
{prototype};
```
"""


def launcher_of(source: CSource) -> str:
    """The text of `<name>.h`."""
    main = source.main
    inside = "// The same on the worker of a running launch.\n" + wrapped(f"{main.prototype};", 8)
    return launch_header(source.stem, source.entry, source.params, source.results, source.written, source.sites,
                         [inside], tasks=bool(source.task_sites))  # fmt: skip


def written_files(source: CSource) -> dict[str, str]:
    """Name -> text."""
    fixed, dialect = headers(), source.dialect
    rows: list[tuple[str, str]] = []
    out: dict[str, str] = {}
    shared = f"{source.stem}_functions.h"
    names = Identifiers(frozenset(p.stem for p in files_in(RUNTIME, "*.c")))  # one object file for each
    for function in source.functions:
        kind = "" if function.in_core else "_orchestration"
        file = f"{names.fresh(function.name + kind)}.c"
        what = "in-core function" if function.in_core else "orchestration"
        rows.append((file, f"{what} `{function.name}`"))
        parts = [function.definition(static=False)]
        includes = [f'#include "{shared}"']
        if function is source.main:
            parts.append(source.launcher)
            includes.insert(0, f'#include "{source.stem}.h"')
        out[file] = file_text(f"{function.name} of {source.name}", includes, _needed(source, parts), parts)
    out[shared] = _shared(source)
    out[f"{source.stem}.h"] = launcher_of(source)
    rows += [(shared, "what these files call of each other"), (f"{source.stem}.h", "how a program launches it"),
             ("pto_elements.h", "arithmetic of elements that every program uses")]  # fmt: skip
    rows += [(name, "vectors") for name in source.headers]
    rows.append((f"{source.stem}.pto", "the program that these files were written from"))
    launch = Launch(source.stem, source.params, source.results, source.written)
    out |= {"pto_elements.h": fixed["pto_elements.h"], **source.headers}
    out |= _runtime_files()
    out["README.md"] = _README.format(
        name=source.stem, vectors="" if dialect is None else " with NEON intrinsics",
        build=_build_lines(source, [file for file in out if file.endswith(".c")]),
        files="\n".join(f"| `{file}` | {what} |" for file, what in rows), prototype=wrapped(launch.prototype(), 4),
    )  # fmt: skip
    return out


def _build_lines(source: CSource, files: list[str]) -> str:
    """The commands that make a library of these files, and of no others that lie beside them."""
    dialect = source.dialect
    compiler = "cc" if dialect is None else dialect.compiler
    machine = "-march=native" if dialect is None else dialect.machine
    archiver = f"{compiler.removesuffix('gcc')}ar" if dialect is not None else "ar"
    objects = [f"{file.rpartition('/')[2].removesuffix('.c')}.o" for file in files]
    return "\n".join(" \\\n  ".join(line) for line in (
        [f"{compiler} {' '.join(STANDARD)}", f"{machine} -I. -Iruntime -pthread -c", *_lines_of(files)],
        [f"{archiver} rcs lib{source.stem}.a", *_lines_of(objects)],
    ))  # fmt: skip


def _lines_of(names: list[str]) -> list[str]:
    return textwrap.wrap(" ".join(names), 110, break_long_words=False, break_on_hyphens=False)


@cache
def _runtime_files() -> dict[str, str]:
    return {f"runtime/{p.name}": text_of(p) for p in files_in(RUNTIME, "*.[ch]")}


def _shared(source: CSource) -> str:
    """The header of the functions that lie in files of their own."""
    guard = f"PTO_{source.stem.upper()}_FUNCTIONS_H"
    declared = [f.declaration(static=False) for f in source.functions if f is not source.main]
    parts = [f"// SPDX-License-Identifier: MIT\n#ifndef {guard}\n#define {guard}", "\n".join(source.includes),
             *(["\n".join(declared)] if declared else []), f"#endif  // {guard}\n"]  # fmt: skip
    return "\n\n".join(parts)


def _needed(source: CSource, parts: Iterable[str]) -> list[str]:
    """The helpers that some functions need, each after those that it needs itself."""
    words = set(words_of(" ".join(parts)))
    out: list[str] = []
    for name, text in reversed(source.helpers):
        if name in words:
            words |= _words_of_helper(text)
            out.append(text)
    return out[::-1]


@lru_cache(256)  # there are few, which most programs need
def _words_of_helper(text: str) -> frozenset[str]:
    return frozenset(words_of(text))

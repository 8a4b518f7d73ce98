# SPDX-License-Identifier: MIT
"""The files of a written program: complete, with the command that compiles them and nothing of this machine."""

from __future__ import annotations

from pto_jit.targets.c.native import STANDARD, headers
from pto_jit.targets.c.program import RUNTIME, CSource

_README = """\
# {name}, as C

`{name}.c` is C11{vectors} on the run-time library in `runtime/`; `pto_elements.h` has what every program
uses. Build a static library (programs with it are linked with `-lm -pthread`):

    {compiler} {flags} \\
      {machine} -I. -Iruntime -c {name}.c runtime/*.c -pthread
    ar rcs lib{name}.a *.o

`{name}.h` declares

    {prototype};

A launch runs `{entry}` with `pto_launch` (see `runtime/pto_runtime.h`): tensors are a
pointer, extents and strides in bytes, every number is a 64-bit slot.
"""


def written_files(source: CSource) -> dict[str, str]:
    """Name -> text."""
    files, dialect = headers(), source.dialect
    runtime = {f"runtime/{p.name}": p.read_text(encoding="utf-8") for p in sorted(RUNTIME.glob("*.[ch]"))}
    readme = _README.format(
        name=source.name, vectors="" if dialect is None else " with NEON intrinsics", flags=" ".join(STANDARD),
        compiler="cc" if dialect is None else dialect.compiler,
        machine="-march=native" if dialect is None else dialect.machine,
        prototype=source.prototype, entry=source.entry,
    )  # fmt: skip
    guard = f"PTO_{source.name.upper()}_H"
    header = (
        f"// SPDX-License-Identifier: MIT\n#ifndef {guard}\n#define {guard}\n\n#include <stdbool.h>\n"
        '#include <stdint.h>\n\n#include "pto_runtime.h"\n\n'
        f"// The program, on the worker of a running launch. 16-bit floats are passed as their bits.\n"
        f"{source.prototype};\n\n"
        f"// The same for pto_launch.\nint32_t {source.entry}(pto_worker *worker, const int64_t *arguments, "
        "int64_t *results);\n\n#endif\n"
    )
    return {f"{source.name}.c": source.text, f"{source.name}.h": header, "pto_elements.h": files["pto_elements.h"],
            **source.headers, **runtime, "README.md": readme}  # fmt: skip

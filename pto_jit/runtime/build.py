# SPDX-License-Identifier: MIT
"""Builds `pto_jit.runtime._native`: cffi in API mode over the C runtime; run by setuptools (see setup.py).

The declarations are the marked part of `csrc/runtime/pto_runtime.h`, the only place where they are written.
"""

from __future__ import annotations

from pathlib import Path

from cffi import FFI

BEGIN, END = "/* cffi: begin */", "/* cffi: end */"


def declarations(header: str) -> str:
    """The part of the header's text between the two marks."""
    before, begin, rest = header.partition(BEGIN)
    body, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in after or END in before:
        raise ValueError("pto_runtime.h must have exactly one section marked for cffi")
    return body


def make_builder() -> FFI:
    root = Path(__file__).resolve().parent.parent.parent
    sources = sorted((root / "csrc" / "runtime").glob("*.c"))
    builder = FFI()
    builder.cdef(declarations((root / "csrc" / "runtime" / "pto_runtime.h").read_text("utf-8")))
    builder.set_source(
        "pto_jit.runtime._native",
        '#include "pto_runtime.h"',
        # relative, as setuptools wants them; it runs in the project's root
        sources=[str(path.relative_to(root)) for path in sources],
        depends=sorted(str(path.relative_to(root)) for path in (root / "csrc" / "runtime").glob("*.h")),
        include_dirs=["csrc/runtime"],
        # a load of two numbers that were just stored as two waits for both stores: no pairs out of scalar code
        extra_compile_args=["-std=gnu11", "-O2", "-fno-tree-slp-vectorize", "-fvisibility=hidden", "-pthread"],
        extra_link_args=["-pthread"],
    )
    return builder


builder = make_builder() if __name__ == "__cffi__" else None  # cffi runs this file under that name

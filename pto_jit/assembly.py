# SPDX-License-Identifier: MIT
"""Programs as `.pto` text, with every instruction checked and typed."""

from __future__ import annotations

from pathlib import Path

from pto_jit.builder.module import PTOModule
from pto_jit.errors import ParseError
from pto_jit.ir.parse import parse
from pto_jit.ir.verify import check
from pto_jit.semantic.rules import infer
from pto_jit.semantic.table import TABLE


def parse_pto(text: str, filename: str | None = None) -> PTOModule:
    """The module that `text` describes.

    Malformed text (an unknown instruction, dtype or memory space too) is a `ParseError` with line and column; text
    that is well-formed but wrong is the `CompilationError` that the same program in Python would be.
    """
    if not isinstance(text, str):
        raise TypeError(f"the text of a program is a string, not {type(text).__name__}; `load_pto` reads files")
    module = parse(text, filename or "<pto>", ops=TABLE, infer=infer)
    check(module, infer)
    return PTOModule.of(module)


def load_pto(path: str | Path) -> PTOModule:
    """The module in a `.pto` file; OSError when it cannot be read, else as `parse_pto`."""
    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").split("\n")
        raise ParseError("expected text in UTF-8", str(path), len(before), len(before[-1])) from None
    return parse_pto(text.replace("\r\n", "\n"), str(path))

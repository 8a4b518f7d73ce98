# SPDX-License-Identifier: MIT
"""What commands print, and where: results to standard output, errors to standard error."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from pto_jit.errors import CompilationError, ParseError, PtoError


def show(text: str) -> None:
    """Print a line of result."""
    Console(soft_wrap=True, highlight=False).print(Text(text))


def show_program(text: str) -> None:
    """Print program text as it is."""
    sys.stdout.write(text)


def show_error(error: Exception) -> None:
    """Print an error: the first line stands out on a terminal."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    text = str(error)
    if not isinstance(error, PtoError):
        text = f"error: {text}"
    head, newline, rest = text.partition("\n")
    console.print(Text(head, style="bold red" if isinstance(error, (CompilationError, ParseError)) else "red"))
    if newline:
        console.print(Text(rest))

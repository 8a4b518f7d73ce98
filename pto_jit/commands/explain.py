# SPDX-License-Identifier: MIT
"""Explain error codes: what each means, a program that provokes it, how to fix it. Without a code: list them all."""

from __future__ import annotations

import argparse
import difflib
import re
import sys

from rich.console import Console
from rich.text import Text

from pto_jit.commands.output import show, show_program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("codes", nargs="*", metavar="CODE", help="PTO-N006, or n006")
    parser.add_argument("--example", action="store_true", help="print the example alone, as a whole program")


def run(given: argparse.Namespace) -> int:
    from pto_jit.error_pages import pages

    known, status = pages(), 0
    for page in known.values() if not given.codes else ():
        show(f"{page.code}  {page.title}")
    for number, word in enumerate(given.codes):
        code = re.sub(r"^(PTO-?)?", "PTO-", word.upper())
        page = known.get(code)
        if page is None:
            close = difflib.get_close_matches(code, known, 3)
            tail = f"; did you mean {' or '.join(close)}?" if close else ", all codes are listed without one"
            Console(stderr=True, highlight=False).print(Text(f"there is no error code {code}{tail}", style="red"))
            status = 1
        elif given.example:
            show_program(page.example or "")
        else:
            if number:
                sys.stdout.write("\n")
            Console(soft_wrap=True, highlight=False).print(Text(f"{page.code}: {page.title}", style="bold"))
            show_program(f"\n{page.text}\n")
    return status

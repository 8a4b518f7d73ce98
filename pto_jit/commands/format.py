# SPDX-License-Identifier: MIT
"""Lay .pto files out: indentation, spaces, blank lines. Comments and spellings stay.

With --expand the program is printed as the operations that its instructions and calls stand for, without comments.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pto_jit.commands.output import show, show_program
from pto_jit.errors import InternalError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE.pto", help="files to lay out")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--write", "-w", action="store_true", help="change the files instead of printing them")
    how.add_argument("--check", action="store_true", help="change nothing; status 1 when a file would change")
    parser.add_argument("--expand", action="store_true", help="print operations for instructions and calls")


def run(given: argparse.Namespace) -> int:
    from pto_jit.assembly import load_pto, parse_pto
    from pto_jit.ir.layout import lay_out
    from pto_jit.runtime.files import write_text

    status = 0
    for path in map(Path, given.files):
        module = load_pto(path)
        before = path.read_text(encoding="utf-8")
        after = module.to_pto() if given.expand else lay_out(before)
        if parse_pto(after, str(path)) != module:
            raise InternalError(f"{path}: the layout changes the program")
        if given.check:
            if after != before:
                show(f"{path} would change")
                status = 1
        elif given.write:
            if after != before:
                write_text(path, after)
                show(f"{path}: changed")
        else:
            show_program(after)
    sys.stdout.flush()
    return status

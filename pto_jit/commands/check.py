# SPDX-License-Identifier: MIT
"""Read .pto files and report what is wrong with them: the first error of each, with its place."""

from __future__ import annotations

import argparse

from pto_jit.commands.output import show, show_error
from pto_jit.errors import PtoError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE.pto", help="files to read")
    parser.add_argument("--quiet", "-q", action="store_true", help="say nothing about files that are right")


def run(given: argparse.Namespace) -> int:
    from pto_jit.assembly import load_pto

    status = 0
    for path in given.files:
        try:
            module = load_pto(path)
        except (PtoError, OSError) as error:
            show_error(error)
            status = 1
            continue
        if not given.quiet:
            count = len(module)
            show(f"{path}: {count} function{'' if count == 1 else 's'}, entry @{module.entry}")
    return status

# SPDX-License-Identifier: MIT
"""Draw the dump of a task graph: from left to right, the tasks of one level in one column."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", metavar="DUMP", help="a file that TaskGraph.dump or pto_runtime_dump wrote")
    parser.add_argument("out", metavar="OUT", help="what to write: .pdf, .svg, .png, or .dot (Graphviz's language)")


def run(given: argparse.Namespace) -> int:
    from pto_jit.runtime.drawing import render, to_dot
    from pto_jit.runtime.dump import load_dump
    from pto_jit.runtime.files import write_text

    out = Path(given.out)
    dump = load_dump(given.dump)
    if out.suffix == ".dot":
        write_text(out, to_dot(dump))
        return 0
    try:
        render(dump, out)
    except ValueError as error:
        given.parser.error(str(error))
    return 0

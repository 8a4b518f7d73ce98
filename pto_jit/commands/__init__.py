# SPDX-License-Identifier: MIT
"""The command line `python -m pto_jit`: one module per subcommand, listed in `COMMANDS`.

A command module has `add_arguments(parser)` and `run(arguments) -> int`, the exit status: 0, or 1 when the program has
an error, which is printed.  Wrong usage ends with 2.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from pto_jit.commands.output import show_error
from pto_jit.commands.run import name_and_value
from pto_jit.errors import PtoError

COMMANDS: dict[str, str] = {
    "run": "run a function of a .pto file on arrays",
    "check": "read .pto files and report what is wrong with them",
    "emit": "write the sources of a kernel for a target, or a library for C programs",
    "graph": "draw the dump of a task graph",
    "explain": "explain error codes, with examples",
    "format": "lay .pto files out, or print them as the operations they stand for",
}
"""Name of each subcommand (and of its module here), with its line in the help."""


def parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    about = "Work with .pto programs, write the sources of kernels, explain errors."
    top = argparse.ArgumentParser(prog="python -m pto_jit", description=about)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_line in COMMANDS.items():
        module = import_module(f"pto_jit.commands.{name}")
        command = commands.add_parser(name, help=help_line, description=module.__doc__)
        module.add_arguments(command)
        command.set_defaults(run=module.run, parser=command)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: that of the process); the exit status."""
    given, rest = parser().parse_known_args(arguments)
    if rest:  # argparse ends a list of words at the first option
        if "arguments" not in given or any(word.startswith("-") for word in rest):
            given.parser.error(f"unrecognized arguments: {' '.join(rest)}")
        try:
            given.arguments += [name_and_value(word) for word in rest]
        except argparse.ArgumentTypeError as error:
            given.parser.error(str(error))
    try:
        return given.run(given)
    except (PtoError, OSError) as error:
        show_error(error)
        return 1

# SPDX-License-Identifier: MIT
"""Random kernels and nests with random edits: refused with a code at a place, or compiled to what Python computes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pto_jit.errors import CompilationError, PtoError
from pto_jit.semantic import interpreter
from tests.codegen.mutants import mutate
from tests.differential import compare
from tests.differential.rounds import GENERATORS, share

BLOCKS = 5


def memory(kernel: compare.Kernel, run: Callable[[list[Any]], Any]) -> compare.Outcome:
    """What a run leaves in the arguments' memory: edits may make a program return anything."""

    def without_result(args: list[Any]) -> None:
        run(args)

    return compare.outcome(kernel, without_result)


def problem(name: str, seed: int) -> str | None:
    """What is wrong with the edited program of a seed; None when nothing is, or when it is not a program at all."""
    base = GENERATORS[name](seed)
    kernel = replace(base, source=mutate(base.source, seed), name=f"edited {name} {seed}")
    try:
        fn = compare.build(kernel)
    except Exception:  # Python refuses the definitions themselves, or the decorator does
        return None
    try:
        modules = compare.lowered(fn, kernel.arguments()[1])
    except CompilationError as error:
        for one in (error, *error.others):
            if not one.lineno or not one.hint or not re.fullmatch(r"PTO-[A-Z]\d{3}", one.code) or one.code[5:] == "000":
                return f"{one}\n{kernel}"
        return None
    except PtoError as error:
        return f"{type(error).__name__}: {error}\n{kernel}"
    try:
        expected = memory(kernel, lambda args: fn.interpret(*args))
    except Exception:  # Python's own: an assertion of the program, a power of integers
        return None
    if expected.error is not None:
        return None
    actual = memory(kernel, lambda args: interpreter.run(modules["source"], args))
    why = compare.difference(kernel, expected, actual)
    return None if why is None else f"{why}\n{kernel}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("name", GENERATORS)
def test_an_edited_program_is_refused_properly_or_means_what_python_does(
    name: str, block: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(block, share(35), BLOCKS):
        found = problem(name, seed)
        capsys.readouterr()
        assert found is None, f"seed {seed}: {found}"

# SPDX-License-Identifier: MIT
"""No program reaches an internal assertion: wrong kernels, changed at random, compile or are refused with a place."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
import warnings

import pytest

from pto_jit.errors import CompilationError
from tests.codegen import test_errors
from tests.codegen.harness import ir
from tests.codegen.mutants import mutate
from tests.codegen.test_errors import CASES, X
from tests.codegen.writer import defined

ROUNDS = int(os.environ.get("PTO_TEST_PROGRAMS", "0")) // 10 or 12


def kernels() -> list[str]:
    """The wrong kernels of `test_errors` as text."""
    found = []
    for fn, _, args in CASES:
        if not args and not fn.__closure__:
            node = ast.parse(textwrap.dedent(inspect.getsource(fn))).body[0]
            assert isinstance(node, ast.FunctionDef)
            node.decorator_list, node.name = [], "kernel"
            found.append(ast.unparse(node))
    return found


KERNELS = kernels()


@pytest.mark.parametrize("block", range(10))
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_a_changed_kernel_compiles_or_is_refused_properly(block: int, capsys: pytest.CaptureFixture[str]) -> None:
    refused = 0
    for seed in range(block * ROUNDS, (block + 1) * ROUNDS):
        text = mutate(KERNELS[seed % len(KERNELS)], seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fn = defined(text, f"<mutant {seed}>", dict(vars(test_errors)))["kernel"]
        except SyntaxError:
            continue
        try:
            ir(fn, X, X.copy(), 3)
        except CompilationError as error:
            refused += 1
            for one in (error, *error.others):
                assert one.lineno and one.hint and one.code.startswith("PTO-"), f"seed {seed}\n{one}\n{text}"
            assert "called from" in str(error) or error.lineno <= len(text.splitlines())
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{text}") from error
    assert refused > ROUNDS // 3
    capsys.readouterr()

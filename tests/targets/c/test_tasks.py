# SPDX-License-Identifier: MIT
"""Orchestrations with tasks as C: in this process, as a program of its own, and when a task fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Batch, needs_compiler
from .standalone import Programs
from .task_programs import cases, failing, prefix


def interpreted(kernel: Any, args: list[Any]) -> tuple[list[Any], Any]:
    """The arguments after the interpreter has run, and its result."""
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    return given, kernel.interpret(*given)


def same(name: str, args: list[Any], result: Any, expected: tuple[list[Any], Any]) -> None:
    wanted, value = expected
    for a, b in zip(args, wanted, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)
    results, values = (r if isinstance(r, (tuple, list)) else [r] for r in (result, value))
    for a, b in zip(results, values, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=name)


def test_the_text_of_an_orchestration_with_tasks(golden: Callable[[str, str], None]) -> None:
    x = np.zeros((48, 8), np.float32)
    golden("prefix_orchestration.c", prefix.compile(x, x.copy(), 12, 2.5, target="c").sources["prefix_orchestration.c"])


@needs_compiler
def test_tasks_of_c_sources_give_what_the_interpreter_gives() -> None:
    batch, expected = Batch(), []
    for kernel, args in cases():
        expected.append(interpreted(kernel, args))
        batch.add(kernel, *args)
    for (compiled, args, _, source), result, wanted in zip(batch.items, batch.run(), expected, strict=True):
        assert {"pto_task", "pto_graph_open"} <= source.calls
        same(compiled.name, list(args), result, wanted)


@needs_compiler
def test_tasks_without_python_on_four_threads(tmp_path: Path) -> None:
    programs, expected = Programs(), []
    for kernel, args in cases():
        expected.append((kernel, args, interpreted(kernel, args)))
        programs.add(kernel, *args)
    binary = programs.build(tmp_path, ("cc", "-march=native"))
    for (failure, results), (kernel, args, wanted) in zip(
        programs.run(tmp_path, (str(binary),), threads=4), expected, strict=True
    ):
        assert failure is None
        if kernel.__name__ != "steered":  # whose number is a slot
            same(kernel.__name__, args, results[0] if len(results) == 1 else results or None, wanted)


@needs_compiler
def test_a_failed_task_names_the_call() -> None:
    x = np.ones((8, 8), np.float32)
    with pytest.raises(pto.TaskError) as caught:
        failing.compile(x, x.copy(), 8, target="c")(x, x.copy(), 8)
    text = str(caught.value)
    assert caught.value.code == "PTO-A040" and "task 1, `pick`, failed" in text and "k = 1" in text
    assert "task_programs.py" in text and "# fails" in text and "write: y[1:2, 0:8]" in text


@pto.incore
def read(x, y):
    y[...] = pl.load(x) * 2.0


@pto.jit(target="c")
def pipe(x, y, n):
    for k in pl.range(n):
        read(x[4 * k : 4 * k + 4, :], y[4 * k : 4 * k + 4, :])


@needs_compiler
def test_functions_with_names_of_the_c_library() -> None:
    """`pipe` called the C library's once, which wrote two file descriptors into the worker."""
    x = np.arange(64, dtype=np.float32).reshape(16, 4)
    y = np.zeros_like(x)
    text = pipe.compile(x, y, 4).sources["pipe_2_orchestration.c"]
    assert "int32_t pipe_2(" in text and "return read_2(" in text
    assert "int32_t pipe(" not in text
    pipe(x, y, 4)
    np.testing.assert_array_equal(y, 2 * x)

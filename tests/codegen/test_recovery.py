# SPDX-License-Identifier: MIT
# ruff: noqa: F821, F841 - the kernels are wrong
"""Several errors of one compilation: each is reported once, and what follows from another is not."""

from __future__ import annotations

import ast
import inspect
import linecache
import pickle
import textwrap
from typing import Any

import numpy as np
import pytest

import pto_jit.language as pl
from pto_jit.errors import CompilationError
from tests.codegen.harness import Static, ir
from tests.codegen.test_errors import CASES, expected
from tests.codegen.test_errors import helper as helper_of_the_cases

X = np.arange(8, dtype=np.float32)


def all_of(fn: Any, *args: Any) -> list[CompilationError]:
    with pytest.raises(CompilationError) as caught:
        ir(fn, X, X.copy(), 3, *args)
    return [caught.value, *caught.value.others]


def told(fn: Any, *args: Any) -> list[tuple[str, int]]:
    """Code and line, counted from the `def`, of all errors."""
    first = inspect.unwrap(fn).__code__.co_firstlineno
    return [(e.code, (e.lineno or 0) - first) for e in all_of(fn, *args)]


def helper(v: Any) -> Any:
    return v.banana


def test_every_statement_that_is_wrong_by_itself_is_reported() -> None:
    def kernel(x, y, n):
        y[0] = one
        for i in pl.range(n):
            y[i] = x[i] + two
            if x[i] > 0:
                y[i] = pl.exq(x[i])
            elif x[i] > 1:
                y[i] = x[i].three
            while x[i] > 2:
                y[i] = four
        with pl.incore():
            t = pl.load(x, [0], [4]) + pl.zeros([5], pl.f32)
        return five

    assert told(kernel) == [
        ("PTO-N006", 1), ("PTO-N006", 3), ("PTO-N017", 5), ("PTO-N011", 7), ("PTO-N006", 9), ("PTO-H001", 11),
        ("PTO-N006", 12),
    ]  # fmt: skip


def test_what_follows_from_an_error_is_not_reported() -> None:
    def kernel(x, y, n):
        a = x[0].nothing
        b = a + 1
        t = pl.full([4], b, pl.f32)
        s = 0.0
        for i in pl.range(n):
            if x[i] > 0:
                s += x[i].nor_this
            c = s * 2
            y[i] = c
        y[0] = t[0] + s
        (d, *e), f = a, b
        y[1] = d + f
        y[2] = last

    assert told(kernel) == [("PTO-N011", 1), ("PTO-N011", 7), ("PTO-N006", 13)]


def test_one_failure_in_many_iterations_or_calls_is_one_error() -> None:
    def kernel(x, y, n):
        for k in pl.static_range(8):
            y[k] = x[k].nothing
        for j in pl.range(n):
            y[j] = helper(x[j])
        while True:
            if undefined:
                break

    errors = all_of(kernel)
    assert [e.code for e in errors] == ["PTO-N011", "PTO-N011", "PTO-N006"]
    assert errors[1].loc.caller is not None and "return v.banana" in str(errors[0])


def test_statements_after_a_failed_way_out_are_unreachable() -> None:
    def kernel(x, y, n):
        for i in pl.range(n):
            if x[i] > 0:
                return undefined
            y[i] = 1.0
        for _ in pl.range(n, parallel=True):
            break
        return other

    assert told(kernel) == [("PTO-N006", 3), ("PTO-L001", 6), ("PTO-N006", 7)]


def test_there_is_a_limit() -> None:
    text = "def many(x, y, n):\n" + "".join(f"    y[{k}] = name_{k}\n" for k in range(30))
    errors = all_of(made(text, "<many>", "many"))
    assert [e.lineno for e in errors] == list(range(2, 12))


def test_it_prints_all_and_travels() -> None:
    def kernel(x, y, n):
        y[0] = one
        y[1] = two

    error = all_of(kernel)[0]
    text = str(error)
    assert "name `one`" in text and "\nerror 2 of 2:\nPTO-N006: name `two`" in text
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == text and [e.lineno for e in again.others] == [e.lineno for e in error.others]


def made(text: str, filename: str, name: str) -> Any:
    """A function of source text, with the names of the module of the cases."""
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    names = dict(inspect.unwrap(helper_of_the_cases).__globals__)
    exec(compile(text, filename, "exec"), names)
    return names[name]


PLAIN = [c for c in CASES if not c[0].__closure__ and not c[0].__name__.startswith("<")]


@pytest.mark.parametrize(("fn", "cls", "args"), PLAIN, ids=[fn.__name__ for fn, _, _ in PLAIN])
def test_an_error_before_it_hides_no_error(fn: Any, cls: type[CompilationError], args: Any) -> None:
    """Each wrong kernel of `test_errors`, with another wrong statement in front: both are reported, and no third."""
    text = textwrap.dedent(inspect.getsource(fn))
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    lines = text.splitlines()[node.lineno - 1 :]
    filename = f"<after an error: {fn.__name__}>"
    lines.insert(1, "    y[0] = not_defined_anywhere  # noqa")
    errors = all_of(made("\n".join(lines) + "\n", filename, fn.__name__), *args)
    place, line, code, _ = expected(fn)
    assert errors[0].code == "PTO-N006" and errors[0].lineno == 2, str(errors[0])
    assert [e.code for e in errors[1:]] == [code], str(errors[0])
    if errors[1].filename == filename:
        assert errors[1].lineno == line - inspect.getsourcelines(fn)[1] - node.lineno + 3


def test_the_kernel_without_the_errors_compiles() -> None:
    """The words above would say nothing if the rest of these programs did not compile."""

    def kernel(x, y, n, name):
        for i in pl.range(n):
            if x[i] > 0:
                return
            y[i] = 1.0

    ir(kernel, X, X.copy(), 3, Static("x"))

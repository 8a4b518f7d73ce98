# SPDX-License-Identifier: MIT
"""Finding the syntax tree of a callable by position."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import CompilationError
from pto_jit.source import locate
from tests.codegen.harness import ir


def body(fn: Callable[..., Any]) -> str:
    node = locate(fn).node
    return ast.unparse(node.body) if isinstance(node, ast.Lambda) else ast.unparse(node.body[-1])


def identity(fn: Any) -> Any:
    return fn


def test_several_lambdas_on_one_line():
    a, b, c = (lambda v: v + 1), (lambda v: v + 2), (lambda: 0)
    assert [body(a), body(b), body(c)] == ["v + 1", "v + 2", "0"]


def test_lambdas_in_lambdas_on_one_line():
    outer = lambda v: (lambda w: w * 2)(v) + 1  # noqa: E731
    inner = next(c for c in outer.__code__.co_consts if hasattr(c, "co_code"))
    fn = type(outer)(inner, globals())
    assert body(outer).endswith("+ 1") and body(fn) == "w * 2"


def test_equal_lambdas_with_equal_text_are_told_apart():
    pair = [lambda v: v, lambda v: v]
    assert locate(pair[0]).node is not locate(pair[1]).node
    assert locate(pair[0]).node.col_offset < locate(pair[1]).node.col_offset


def test_a_lambda_over_several_lines():
    fn = identity(
        lambda v, w=3: (
            v
            + w
        )
    )  # fmt: skip
    assert body(fn) == "v + w"


@identity
@functools.lru_cache
def decorated(v):
    """A string that says def decorated(v):
    return 1
    """
    return v + 42


def test_decorators_and_strings_that_look_like_code():
    assert body(decorated.__wrapped__) == "return v + 42"


def test_nested_functions_of_one_name():
    def f():
        def f():
            return 1

        return f

    assert body(f) == "return f" and body(f()) == "return 1"


def test_methods_and_static_methods():
    class A:
        def one(self):
            return 1

        @staticmethod
        def two():
            return 2

    assert body(A.one) == "return 1" and body(A.two) == "return 2"


def test_code_from_exec_with_a_linecache_entry():
    text = "def g(x, y):\n    y[0] = x[1]\n"
    linecache.cache["<cell 7>"] = (len(text), None, text.splitlines(True), "<cell 7>")
    scope: dict[str, Any] = {}
    exec(compile(text, "<cell 7>", "exec"), scope)
    assert body(scope["g"]) == "y[0] = x[1]"
    assert len(ir(scope["g"], np.ones(2), np.ones(2)).funcs) == 1


def test_code_without_source_says_what_to_do():
    scope: dict[str, Any] = {}
    exec("def g(x):\n    return x", scope)
    with pytest.raises(CompilationError, match="source of `g` is not available") as caught:
        locate(scope["g"])
    assert caught.value.code == "PTO-S001" and "linecache" in caught.value.hint


def test_what_was_typed_at_the_prompt_is_found_in_the_history_of_the_line_editor(monkeypatch):
    history = ["old session (", "import numpy", "def f(x):", "    return x - 1"]
    editor = types.SimpleNamespace(
        get_current_history_length=lambda: len(history), get_history_item=lambda k: history[k - 1]
    )
    monkeypatch.setitem(sys.modules, "readline", editor)
    scope: dict[str, Any] = {"pto": pto, "pl": pl}

    def typed(text):
        history.extend(line for line in text.split("\n") if line)
        exec(compile(text, "<stdin>", "single"), scope)

    typed("def helper(v):\n    return v * 2\n")
    typed("@pto.jit\ndef f(x):\n    return helper(x) + 1\n")
    first = scope["f"]
    typed("@pto.jit\ndef f(x):\n    return helper(x) + 2\n")
    typed("g = [pto.jit(lambda x: x - 1), pto.jit(\n  lambda x: x - 2\n)]\n")
    x = np.arange(3)
    np.testing.assert_array_equal(first(x), [1, 3, 5])
    np.testing.assert_array_equal(scope["f"](x), [2, 4, 6])
    np.testing.assert_array_equal(scope["g"][0](x), [-1, 0, 1])
    np.testing.assert_array_equal(scope["g"][1](x), [-2, -1, 0])
    typed("@pto.jit\ndef wrong(x):\n    return x + undefined\n")
    with pytest.raises(CompilationError) as caught:
        scope["wrong"](x)
    assert "<stdin-16>:3:16" in str(caught.value) and "    return x + undefined" in str(caught.value)
    exec(compile("def lost(x):\n    return x + 5\n", "<stdin>", "exec"), scope)  # not in the history
    with pytest.raises(CompilationError, match="source of `lost` is not available"):
        locate(scope["lost"])


def module(path, text):
    path.write_text(text)
    loaded = types.ModuleType(path.stem)
    loaded.__file__ = str(path)
    exec(compile(text, str(path), "exec"), loaded.__dict__)  # no stored bytecode of an earlier text
    return loaded


def test_a_file_edited_after_its_import_is_noticed(tmp_path):
    path = tmp_path / "kernels_edited.py"
    text = "def f(v):\n    return v + 1\n\ndef g(v):\n    return v + 2\n"
    loaded = module(path, text)
    assert body(loaded.f) == "return v + 1"
    path.write_text(text.replace("+ 2", "+ 3"))
    os.utime(path, (time.time() + 5, time.time() + 5))
    linecache.checkcache()
    with pytest.raises(CompilationError, match="changed after it was imported") as caught:
        locate(loaded.g)
    assert caught.value.code == "PTO-S002"
    assert body(loaded.f) == "return v + 1"  # this one is what it was
    again = module(path, text.replace("+ 2", "+ 3"))
    assert body(again.g) == "return v + 3"


def test_a_function_whose_line_moved_is_noticed(tmp_path):
    path = tmp_path / "kernels_moved.py"
    loaded = module(path, "def f(v):\n    return v + 1\n")
    path.write_text("\n\n\ndef f(v):\n    return v + 1\n")
    os.utime(path, (time.time() + 5, time.time() + 5))
    with pytest.raises(CompilationError) as caught:
        locate(loaded.f)
    assert caught.value.code == "PTO-S002"

# SPDX-License-Identifier: MIT
"""Kernels and helpers are found by position wherever Python code can stand, and named by Python's scope rules."""

from __future__ import annotations

import code
import codecs
import doctest
import linecache
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.codegen.harness import execute
from tests.codegen.writer import defined

X = np.array([1, 2, 3], np.float32)

# Each text defines `k`, a function of `x` and `y`, which has to leave 2 * x + 1 in y.
FORMS: dict[str, str] = {
    "a plain function": "def k(x, y):\n    y[...] = x * 2 + 1\n",
    "several lambdas on one line": (
        "a, b, c = (lambda v: v * 2), (lambda v: v + 1), (lambda v: v - 7)\ndef k(x, y): y[...] = b(a(x))\n"),
    "equal lambdas on one line": "fs = [lambda v: v * 2, lambda v: v * 2]\ndef k(x, y): y[...] = fs[1](x) + 1\n",
    "a lambda in a lambda": "f = lambda v: (lambda w: w + 1)(v * 2)\ndef k(x, y): y[...] = f(x)\n",
    "a lambda that returns a lambda": "f = (lambda a: lambda v: v * a)(2)\ndef k(x, y): y[...] = f(x) + 1\n",
    "a lambda over several lines": "f = (\n  lambda v, \\\n    w=2: (v *\n  w)\n)\ndef k(x, y): y[...] = f(x) + 1\n",
    "a lambda as a default": "def k(x, y, f=lambda v: v * 2, g=lambda v: v + 1): y[...] = g(f(x))\n",
    "lambdas in a dict": "d = {'a': lambda v: v * 2, 'b': lambda v: v + 1}\ndef k(x, y): y[...] = d['b'](d['a'](x))\n",
    "lambdas of a comprehension": (
        "fs = [lambda v, n=n: v * n for n in range(4)]\ndef k(x, y): y[...] = fs[2](x) + 1\n"),
    "lambdas of a comprehension, late binding": (
        "fs = [lambda v: v * n for n in range(3)]\ndef k(x, y): y[...] = fs[0](x) + 1\n"),
    "a lambda in a call in a decorator": (
        "def after(g):\n    def wrap(f):\n        return lambda x, y: f(x, y, g)\n    return wrap\n"
        "@after(lambda v: v + 1)\ndef k(x, y, g):\n    y[...] = g(x * 2)\n"),
    "stacked decorators": (
        "import functools\ndef same(f):\n    return f\ndef wrapped(f):\n    @functools.wraps(f)\n"
        "    def inner(*args, **kwargs):\n        return f(*args, **kwargs)\n    return inner\n"
        "@same\n@wrapped\n@same\ndef twice(v): return v * 2\ndef k(x, y): y[...] = twice(x) + 1\n"),
    "a decorator that changes the result": (
        "def plus(n):\n    def wrap(f):\n        def inner(v):\n            return f(v) + n\n        return inner\n"
        "    return wrap\n@plus(1)\ndef f(v):\n    return v * 2\ndef k(x, y): y[...] = f(x)\n"),
    "nested functions of one name": (
        "def f():\n    def f(v):\n        def f(v):\n            return v * 2\n        return f(v) + 1\n    return f\n"
        "f = f()\ndef k(x, y): y[...] = f(x)\n"),
    "a string that looks like the function": (
        "text = '''\ndef k(x, y):\n    y[...] = x - 1\n'''\ndef k(x, y):\n    '''def k(x, y):\n  y[...] = x'''\n"
        "    s = '''\nreturn\n'''\n    y[...] = x * 2 + 1\n"),
    "two definitions, the later one counts": (
        "def f(v):\n    return v\ng = f\ndef f(v):\n    return v * 2\ndef k(x, y):\n    y[...] = f(x) + g(1)\n"),
    "a conditional definition": (
        "if 1 > 2:\n    def f(v): return v\nelse:\n    def f(v): return v * 2\ndef k(x, y): y[...] = f(x) + 1\n"),
    "definitions on one line": "def a(v): return v * 2\nif True: b = lambda v: v + 1; c = lambda v: v\n"
        "def k(x, y): y[...] = b(a(c(x)))\n",
    "a class and its methods": (
        "class A:\n    n = 2\n    def f(self, v): return v * self.n\n    @staticmethod\n    def g(v): return v + 1\n"
        "    @classmethod\n    def h(cls, v): return v * cls.n\n    @property\n    def one(self): return self.n - 1\n"
        "class B(A):\n    def f(self, v): return super().f(v)\n"
        "b = B()\ndef k(x, y): y[...] = b.g(b.f(x)) * b.one + b.h(0)\n"),
    "wide and combining characters before it": (
        "é̈ = '日本語'; f, g = (lambda v: v * 2), (lambda v: v + 1); ü = 'ß'\ndef k(x, y): y[...] = g(f(x))\n"),
    "tabs": "def k(x, y):\n\tif True:\n\t\ty[...] = (lambda v: v * 2)(x) + 1\n",
    "a form feed and blank lines": "\x0c\n\n\ndef k(x, y):\n\n    # words\n\n    y[...] = x * 2 + 1\n",
    "windows line ends": "def f(v):\r\n    return v * 2\r\n\r\ndef k(x, y):\r\n    y[...] = f(x) + 1\r\n",
    "no newline at the end": "def k(x, y): y[...] = x * 2 + 1",
    "a backslash continues the line": "def k(x, \\\n      y):\n    y[...] = x \\\n        * 2 + 1\n",
    "a walrus and an unpacked call": (
        "def k(x, y):\n    f = (g := lambda v, *r, n=1, **o: v * 2 + n + len(r) + len(o) - 2)\n"
        "    y[...] = f(x, *[0], **{'q': 1})\n"),
    "positional-only and keyword-only parameters": (
        "def f(a, /, b, *, c=1): return a * b + c\ndef k(x, y): y[...] = f(x, 2)\n"),
    "a docstring only and a constant body": (
        "def nothing():\n    'doc'\none = lambda: 1\ndef k(x, y):\n    nothing()\n    y[...] = x * 2 + one()\n"),
    "a function made by a factory in a loop": (
        "fs = []\nfor n in (2, 3):\n    def make(n):\n        def f(v): return v * n\n        return f\n"
        "    fs.append(make(n))\ndef k(x, y): y[...] = fs[0](x) + 1\n"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_function_is_found_in_whatever_form_it_is_written(form: str) -> None:
    scope = defined(FORMS[form], f"<form: {form}>", {"pl": pl})
    y = np.zeros(3, np.float32)
    execute(scope["k"], X, y)
    np.testing.assert_array_equal(y, X * 2 + 1)


# Python's rules for names; each `k` stores its numbers to y.
NAMES: dict[str, tuple[str, list[float]]] = {
    "a cell is read when the function runs": (
        "def k(x, y):\n    n = 1\n    f = lambda v: v + n\n    n = 5\n    y[0] = f(x[0])\n", [6, 0, 0]),
    "a global is read when the function runs": (
        "n = 1\ndef f(v): return v + n\nn = 5\ndef k(x, y): y[0] = f(x[0])\n", [6, 0, 0]),
    "a default is read when the function is made": (
        "n = 1\ndef f(v, n=n): return v + n\nn = 5\ndef k(x, y): y[0] = f(x[0])\n", [2, 0, 0]),
    "a parameter hides a global, a local hides a cell": (
        "n = 9\ndef f(n): return n\ndef make(n):\n    def g(v):\n        n = 2\n        return v + n\n    return g\n"
        "g = make(7)\ndef k(x, y):\n    y[0] = f(3)\n    y[1] = g(x[0])\n", [3, 3, 0]),
    "a builtin is hidden by a global": (
        "def abs(v): return v * 10\ndef k(x, y): y[0] = abs(x[1])\n", [20, 0, 0]),
    "a builtin is hidden by a local": (
        "def k(x, y):\n    max = lambda a, b: 4\n    y[0] = max(x[0], x[1])\n", [4, 0, 0]),
    "a comprehension has its own scope": (
        "def k(x, y):\n    i = 50\n    t = [i * j for i in range(3) for j in range(i)]\n    y[0] = i\n    y[1] = sum(t)\n",
        [50, 2, 0]),
    "the first iterable of a comprehension is read outside": (
        "def k(x, y):\n    v = (1, 2)\n    y[0] = sum(v * 3 for v in v)\n    y[1] = v[1]\n", [9, 2, 0]),
    "a walrus in a comprehension binds outside": (
        "def k(x, y):\n    t = [last := i for i in range(3)]\n    y[0] = last + len(t)\n", [5, 0, 0]),
    "the loop variable stays after the loop": (
        "def k(x, y):\n    i = 7\n    for i in range(2):\n        y[i] = i\n    y[2] = i\n    for i in range(x.ndim - 1):\n"
        "        pass\n    y[0] = i\n", [1, 1, 1]),
    "a class attribute is not a local of its methods": (
        "n = 3\nclass A:\n    n = 5\n    def f(self): return n\n    def g(self): return self.n\na = A()\n"
        "def k(x, y):\n    y[0] = a.f()\n    y[1] = a.g()\n", [3, 5, 0]),
    "nonlocal reaches the nearest function": (
        "def k(x, y):\n    n = 1\n    def a():\n        n = 10\n        def b():\n            nonlocal n\n            n += 1\n"
        "        b()\n        return n\n    y[0] = a()\n    y[1] = n\n", [11, 1, 0]),
    "recursion that ends at compile time": (
        "def power(v, n):\n    if n == 0:\n        return 1\n    return v * power(v, n - 1)\n"
        "def k(x, y): y[0] = power(x[1], 5)\n", [32, 0, 0]),
    "mutual recursion": (
        "def even(v, n): return v if n == 0 else odd(v, n - 1)\ndef odd(v, n): return -v if n == 0 else even(v, n - 1)\n"
        "def k(x, y): y[0] = even(x[1], 5)\n", [-2, 0, 0]),
    "chained assignment and swapping": (
        "def k(x, y):\n    a = b = x[0]\n    b, a = a + 1, b + 5\n    y[0], y[1] = a, b\n    y[2] = c = a + b\n    y[0] = c\n",
        [8, 2, 8]),
    "code after a static return is not there": (
        "def f(v, n):\n    if n > 1:\n        return v\n    return undefined_name(v, 'x' + 1)\n"
        "def k(x, y): y[0] = f(x[2], 2)\n", [3, 0, 0]),
    "an untaken static branch is not there": (
        "def k(x, y):\n    if x.ndim == 2:\n        y[0, 0] = missing\n    elif x.ndim == 1:\n        y[0] = 4\n", [4, 0, 0]),
    "a name bound in both branches": (
        "def k(x, y):\n    if x[0] > 0:\n        v, w = 1, 2.5\n    else:\n        w, v = 3, 4\n    y[0] = v + w\n", [3.5, 0, 0]),
    "del and assign again": (
        "def k(x, y):\n    a = 1\n    del a\n    a = x[2]\n    y[0] = a\n", [3, 0, 0]),
    "augmented assignment of a list keeps its identity": (
        "def k(x, y):\n    a = [1]\n    b = a\n    a += [2]\n    y[0] = len(b)\n    c = (1,)\n    d = c\n    c += (2,)\n"
        "    y[1] = len(d)\n", [2, 1, 0]),
    "a mutable default is shared between calls": (
        "def f(v, seen=[]):\n    seen.append(1)\n    return v + len(seen)\n"
        "def k(x, y):\n    def g(v, seen=[]):\n        seen.append(1)\n        return v + len(seen)\n"
        "    y[0] = g(x[0])\n    y[1] = g(x[0])\n", [2, 3, 0]),
    "star-unpacking": (
        "def k(x, y):\n    first, *middle, last = 1, x[1], x[2], 9\n    y[0] = first + last\n    y[1] = len(middle)\n"
        "    y[2] = sum([*middle])\n", [10, 2, 5]),
    "conditions are evaluated once and in order": (
        "def k(x, y):\n    calls = []\n    def f(v):\n        calls.append(v)\n        return v\n"
        "    y[0] = f(1) < f(2) < f(3)\n    y[1] = f(0) and f(9)\n    y[2] = len(calls)\n", [1, 0, 4]),
}  # fmt: skip


@pytest.mark.parametrize("rule", NAMES)
def test_names_mean_what_they_mean_in_python(rule: str) -> None:
    text, expected = NAMES[rule]
    scope = defined(text, f"<names: {rule}>", {"pl": pl})
    y = np.zeros(3, np.float32)
    execute(scope["k"], X, y)
    assert y.tolist() == expected
    again = defined(text, f"<names: {rule}>", {"pl": pl})
    plain = np.zeros(3, np.float32)
    again["k"](X, plain)
    assert plain.tolist() == expected, "what the test says is what Python does"


# -- where source comes from ------------------------------------------------------------------------------------


def run(*arguments: str, text: str | None = None, cache: Path) -> subprocess.CompletedProcess[str]:
    import os

    root = str(Path(pto.__file__).parents[1])
    variables = {**os.environ, "PYTHONPATH": root, "PTO_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, *arguments], input=text, env=variables, capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip


SCRIPT = """
import numpy as np, pto_jit as pto
kernels = [pto.jit(lambda x: x * 2), pto.jit(lambda x: x + 1)]
print([k.interpret(np.ones(1)).tolist() for k in kernels])
try:
    print([k(np.ones(1)).tolist() for k in kernels])
except pto.PtoError as error:
    print(error.code, error.hint)
"""


def test_without_columns_lambdas_on_one_line_cannot_be_told_apart_and_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = run("-X", "no_debug_ranges", str(path), cache=tmp_path / "cache")
    lines = done.stdout.splitlines()
    assert lines[0] == "[[2.0], [2.0]]" and lines[1].startswith("PTO-S003 "), done.stderr
    assert "no_debug_ranges" in lines[1]
    assert run(str(path), cache=tmp_path / "cache").stdout.splitlines()[1] == "[[2.0], [2.0]]"


def test_code_from_standard_input_says_how_to_give_its_source(tmp_path: Path) -> None:
    lines = run(text=SCRIPT, cache=tmp_path).stdout.splitlines()
    assert lines[0] == "[[2.0], [2.0]]"
    assert lines[1].startswith("PTO-S001 ") and "linecache" in lines[1]


@pytest.mark.parametrize("options", [["-c"], ["-B", "-Xdev", "-qc"], ["-W", "ignore", "-c"]])
def test_the_text_after_c_is_a_source(options: list[str], tmp_path: Path) -> None:
    done = run(*options, SCRIPT, cache=tmp_path)
    assert done.stdout.splitlines()[:2] == ["[[2.0], [2.0]]", "[[2.0], [2.0]]"], done.stderr


AFTER_C = """\
import dataclasses; exec(text)
@dataclasses.dataclass
class Scale:
    by: float
def scaled(x, scale): x[...] = x * scale.by
x = np.ones(2)
pto.jit(scaled)(x, Scale(3.0))
print(x.tolist())
try: pto.jit(double)(x)
except pto.CompilationError as error: print(error.code)
"""


@pytest.mark.parametrize("kept", ["by its name", "by its code"])
def test_what_exec_makes_is_not_from_the_text_after_c_that_has_the_same_name(kept: str, tmp_path: Path) -> None:
    """"<string>" is what Python 3.13 calls the text after `-c`, and what all call any text that is executed: methods of
    dataclasses and named tuples, too.  Releases after 3.13.0 keep the text by the code that is made of it."""
    path = tmp_path / "script.py"
    path.write_text(
        "import linecache, numpy as np, pto_jit as pto\n"
        f"script = {AFTER_C!r}\n"
        "lines = script.splitlines(keepends=True)\n"
        "code = compile(script, '<string>', 'exec')\n"
        f"if {kept == 'by its name'}:\n"
        "    linecache.cache['<string>'] = len(script), None, lines, '<string>'\n"
        "else:\n"
        "    linecache._getlines_from_code = lambda c: lines if c in code.co_consts else []\n"
        "exec(code, {'np': np, 'pto': pto, 'text': 'def double(x):\\n    x[...] = x * 2'})\n"
    )
    done = run(str(path), cache=tmp_path / "cache")
    assert done.stdout.splitlines() == ["[3.0, 3.0]", "PTO-S001"], done.stderr


def test_an_interactive_console_that_registers_its_lines() -> None:
    """As the prompt of Python 3.13, IPython and notebooks do: each input is a file of its own."""
    console = code.InteractiveInterpreter({"pto": pto, "pl": pl, "np": np, "execute": execute})
    cells = [
        "def f(v):\n    return v * 2\n",
        "k = lambda x, y: pl.store(f(pl.load(x)) + 1, [0], y)\n",
        "def f(v):\n    return v * 3\n",
    ]
    results = []
    for number, text in enumerate(cells):
        name = f"<python-input-{number}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        compiled = code.compile_command(text, name, "exec") or compile(text, name, "exec")
        console.runcode(compiled)
        if number:
            y = np.zeros(3, np.float32)
            execute(console.locals["k"], X, y)
            results.append(y.tolist())
    assert results == [(X * 2 + 1).tolist(), (X * 3 + 1).tolist()]


def test_cells_of_a_notebook_that_are_run_again_with_other_text() -> None:
    name = "/tmp/ipykernel_1/123.py"
    for factor in (2, 5):
        text = f"def k(x, y):\n    y[...] = x * {factor}\n"
        scope = defined(text, name, {})
        y = np.zeros(3, np.float32)
        execute(scope["k"], X, y)
        np.testing.assert_array_equal(y, X * factor)


def documented() -> None:
    """A kernel in a docstring.

    >>> import numpy as np, pto_jit as pto
    >>> @pto.jit
    ... def double(x):
    ...     return x * 2
    >>> double(np.array([1.0, 2.0]))
    array([2., 4.])
    >>> f, g = pto.jit(lambda x: x - 1), pto.jit(lambda x: x + 1)
    >>> g(np.array([1.0, 2.0]))
    array([2., 3.])
    """


def test_kernels_in_docstrings_run_under_doctest() -> None:
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(verbose=False)
    for test in finder.find(documented, globs={}):
        assert runner.run(test).failed == 0


def test_modules_from_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "kernels.zip", "w") as archive:
        archive.writestr("zipped_kernels.py", "def k(x, y):\n    y[...] = (lambda v: v * 2)(x) + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "kernels.zip"))
    import zipped_kernels  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

    y = np.zeros(3, np.float32)
    execute(zipped_kernels.k, X, y)
    np.testing.assert_array_equal(y, X * 2 + 1)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_files_in_other_encodings(encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"encoded_{encoding.replace('-', '_')}"
    text = "# -*- coding: {} -*-\nö = 'ä'; f, g = (lambda v: v * 2), (lambda v: v + 1)\ndef k(x, y): y[...] = g(f(x))\n"
    data = text.format("utf-8" if encoding == "utf-8-sig" else encoding).encode(encoding)
    assert encoding != "utf-8-sig" or data.startswith(codecs.BOM_UTF8)
    (tmp_path / f"{name}.py").write_bytes(data)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__(name)
    y = np.zeros(3, np.float32)
    execute(module.k, X, y)
    np.testing.assert_array_equal(y, X * 2 + 1)


def test_errors_underline_the_exact_range_with_tabs_and_wide_characters() -> None:
    text = textwrap.dedent("""\
        def k(x, y):
        \tname = '日本語'; y[0] = x[0] + undefined_thing
        """)
    scope = defined(text, "<wide>", {})
    with pytest.raises(pto.CompilationError) as caught:
        execute(scope["k"], X, X.copy())
    line = text.splitlines()[1]
    error: Any = caught.value
    assert line[error.col_offset : error.end_col_offset] == "undefined_thing"
    marked = str(error).splitlines()
    shown = next(k for k, part in enumerate(marked) if "undefined_thing" in part and "|" in part and k > 0)
    before = marked[shown + 1].split("^")[0].split("| ", 1)[1]
    assert before.count("\t") == 1 and len(before) == 1 + len("name = ''; y[0] = x[0] + ") + 6

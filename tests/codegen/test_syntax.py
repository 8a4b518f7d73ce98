# SPDX-License-Identifier: MIT
"""The table of syntax is complete: every class of `ast` is supported, refused by name, or cannot occur."""

from __future__ import annotations

import ast
import linecache

import numpy as np
import pytest

import pto_jit.language as pl
from pto_jit.codegen.syntax import ELSEWHERE, REFUSED, SUPPORTED
from pto_jit.errors import CompilationError, UnsupportedSyntaxError
from tests.codegen.harness import check, ir

X = np.arange(8, dtype=np.float32)


def test_every_ast_class_has_one_entry():
    classes = {n for n, v in vars(ast).items() if n[0] != "_" and isinstance(v, type) and issubclass(v, ast.AST)}
    tables = [set(SUPPORTED), set(REFUSED), set(ELSEWHERE)]
    assert classes <= set.union(*tables)
    for k, first in enumerate(tables):
        for second in tables[k + 1 :]:
            assert not first & second


def compiled(name: str, body: str):
    """A function `f(x, y, n)` with the given body, registered as source."""
    text = f"def f(x, y, n):\n{body}\n"
    filename = f"<kernel {name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    scope = {"pl": pl, "np": np}
    exec(compile(text, filename, "exec"), scope)
    return scope["f"]


# One program per supported class that a body can contain; it has to contain the class, and to do what Python does.
PROGRAMS = {
    "Constant": "    y[0] = 1.5",
    "Name": "    y[0] = n",
    "BinOp": "    y[0] = x[1] + n",
    "Call": "    y[0] = abs(x[1])",
    "Attribute": "    y[0] = x.ndim",
    "Subscript": "    y[0] = x[1]",
    "Compare": "    y[0] = x[1] < n",
    "BoolOp": "    y[0] = n and 3",
    "UnaryOp": "    y[0] = -x[1]",
    "IfExp": "    y[0] = 1 if n else 2",
    "Tuple": "    y[0], y[1] = 1, 2",
    "List": "    [y[0], a] = [1, 2]\n    y[1] = a",
    "Set": "    y[0] = len({1, 2})",
    "Dict": "    y[0] = {**{'b': 1}, 'a': x[1]}['a']",
    "Slice": "    y[0:2] = x[2:4]",
    "NamedExpr": "    y[0] = (v := x[1]) + v",
    "Lambda": "    y[0] = (lambda v: v + 1)(x[1])",
    "JoinedStr": "    y[0] = len(f'{7:3d}')",
    "FormattedValue": "    y[0] = len(f'{7!r}')",
    "ListComp": "    y[0] = sum([x[k] for k in range(3)])",
    "SetComp": "    y[0] = sum({k for k in range(3)})",
    "GeneratorExp": "    y[0] = sum(x[k] for k in range(3))",
    "DictComp": "    y[0] = {k: x[k] for k in range(3)}[2]",
    "Assign": "    a = b = x[1]\n    y[0] = a + b",
    "AugAssign": "    y[0] += 1",
    "AnnAssign": "    a: float = 1.0\n    b: int\n    y[0] = a",
    "Expr": "    'doc'\n    abs(x[1])\n    y[0] = 1",
    "Return": "    y[0] = 1\n    return",
    "If": "    if n > 2:\n        y[0] = 1\n    else:\n        y[0] = 2",
    "For": "    for i in range(n):\n        y[i] = i\n    else:\n        y[7] = 1",
    "While": "    while n > 0:\n        n -= 1\n    else:\n        y[0] = n",
    "With": "    with pl.incore():\n        y[0] = 1",
    "Break": "    for i in range(n):\n        break\n    y[0] = 1",
    "Continue": "    for i in range(n):\n        continue\n    y[0] = 1",
    "Pass": "    pass\n    y[0] = 1",
    "Assert": "    assert x[1] > 0, 'positive'\n    y[0] = 1",
    "Delete": "    a = [1, 2]\n    del a[0]\n    y[0] = a[0]",
    "FunctionDef": "    def g(v, *r, k=2, **o):\n        return v * k\n    y[0] = g(x[1])",
    "Nonlocal": "    k = 1\n    def g():\n        nonlocal k\n        k = 2\n    g()\n    y[0] = k",
    "Raise": "    if x.ndim > 5:\n        raise ValueError\n    y[0] = 1",
    "Starred": "    a, *b = x[0], x[1], x[2]\n    y[0] = max(*b)",
    "Match": "    match x.ndim:\n        case 1:\n            y[0] = 1",
    "MatchValue": "    match 'a':\n        case 'a':\n            y[0] = 1",
    "MatchSingleton": "    match None:\n        case None:\n            y[0] = 1",
    "MatchSequence": "    match (1, x[1]):\n        case [1, v]:\n            y[0] = v",
    "MatchMapping": "    match {'a': 1, 'b': 2}:\n        case {'a': v, **r}:\n            y[0] = v + len(r)",
    "MatchClass": "    match slice(1, 2):\n        case slice(start=s, stop=2):\n            y[0] = s",
    "MatchStar": "    match [1, 2, 3]:\n        case [a, *b]:\n            y[0] = len(b)",
    "MatchAs": (
        "    match 3:\n        case v if v > 5:\n            y[0] = 1\n        case (2 | 3) as w:\n            y[0] = w"
    ),
    "MatchOr": "    match 3:\n        case 1 | 3:\n            y[0] = 1",
}
OPERATORS = {
    "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**",
    "BitAnd": "&", "BitOr": "|", "BitXor": "^", "LShift": "<<", "RShift": ">>",
}  # fmt: skip
COMPARISONS = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">="}
PROGRAMS |= {name: f"    y[0] = n {op} 2\n    y[1] = 7 {op} n\n    y[2] = 7 {op} 2" for name, op in OPERATORS.items()}
PROGRAMS |= {name: f"    y[0] = n {op} 3\n    y[1] = 2 {op} n\n    y[2] = 7 {op} 2" for name, op in COMPARISONS.items()}
PROGRAMS |= {
    "MatMult": "    t = pl.reshape(pl.load(x, [0], [4]), [2, 2])\n    y[0:4] = pl.reshape(t @ t, [4])",
    "Is": "    y[0] = n is None\n    y[1] = None is None",
    "IsNot": "    y[0] = n is not None",
    "In": "    y[0] = n in (1, 3)\n    y[1] = 2 in [2]",
    "NotIn": "    y[0] = n not in (1, 3)",
    "And": "    y[0] = n > 1 and x[1] > 0",
    "Or": "    y[0] = n > 5 or x[1] > 0",
    "Not": "    y[0] = not n",
    "Invert": "    y[0] = ~n",
    "UAdd": "    y[0] = +n",
    "USub": "    y[0] = -n",
}
PARTS = {"keyword", "arguments", "arg", "comprehension", "withitem", "match_case", "Load", "Store", "Del"}


def test_every_supported_class_has_a_program():
    assert set(SUPPORTED) == set(PROGRAMS) | PARTS


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_supported_class_means_what_python_means(name):
    fn = compiled(name, PROGRAMS[name])
    classes = {type(n).__name__ for n in ast.walk(ast.parse("".join(linecache.cache[f"<kernel {name}>"][2])))}
    assert name in classes
    check(fn, X, np.zeros(8, np.float32), 3)


WRONG = {
    "AsyncFunctionDef": "    async def g():\n        pass",
    "Yield": "    def g(v):\n        yield v\n    for a in g(x[0]):\n        pass",
    "YieldFrom": "    g = lambda v: (yield from v)\n    g(x[0])",
    "ClassDef": "    class A:\n        pass",
    "Import": "    import math",
    "ImportFrom": "    from math import pi",
    "Global": "    global n2\n    n2 = 1",
    "Try": "    try:\n        pass\n    except ValueError:\n        pass",
    "TryStar": "    try:\n        pass\n    except* ValueError:\n        pass",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_refused_class_is_refused_by_name_with_a_way_out(name):
    fn = compiled(f"wrong {name}", WRONG[name])
    with pytest.raises(UnsupportedSyntaxError) as caught:
        ir(fn, X, X.copy(), 3)
    what, code, hint = REFUSED[name]
    error = caught.value
    assert (error.code, error.hint) == (code, hint) and what in error.message and error.lineno >= 2


def test_async_comprehensions_and_awaits_are_refused():
    text = "async def g(x, y):\n    y[0] = await x\n"
    linecache.cache["<kernel await>"] = (len(text), None, text.splitlines(True), "<kernel await>")
    scope: dict = {}
    exec(compile(text, "<kernel await>", "exec"), scope)
    with pytest.raises(CompilationError) as caught:
        ir(scope["g"], X, X.copy())
    assert caught.value.hint

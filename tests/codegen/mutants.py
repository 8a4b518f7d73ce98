# SPDX-License-Identifier: MIT
"""Wrong programs: kernels with a few of their expressions and statements exchanged, copied, moved or left out."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable

_WORDS = ["x", "y", "n", "pl", "undefined", "helper", "None", "True", "3", "-1", "0.5", "'s'", "[1, 2]", "(x, y)", "{}",
          "x[0]", "x.shape", "pl.load(x, [0], [4])", "pl.f32", "range(n)", "pl.range(3)", "lambda v: v", "n > 2",
          "[v for v in range(3)]", "x[0:4]", "...", "pl.reduction(init=0.0, combine=max)", "f'{n}'", "not x", "-y"]  # fmt: skip
_STATEMENTS = ["break", "continue", "return", "return x[0]", "return n, n", "pass", "del x", "n = n + 1", "x = y",
               "y = pl.zeros([4], pl.f32)", "assert n", "raise ValueError", "nonlocal n", "import os", "y[0] = n",
               "while n > 2: n = n - 1", "for q in pl.range(n): y[q] = q", "for q in (1, 2): n = q", "x[0], n = n, x[0]",
               "if n > 1: y = 1.0", "def f(v): return v", "n: int = 3", "y += 1", "with pl.incore(): y[0] = 1.0"]  # fmt: skip


def mutate(text: str, seed: int) -> str:
    """The function of `text` with one to three changes."""
    chance = random.Random(seed)
    tree = ast.parse(text)
    for _ in range(chance.randint(1, 3)):
        chance.choice(_CHANGES)(tree, chance)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _expressions(tree: ast.AST) -> list[tuple[ast.AST, str, int | None, ast.expr]]:
    """Places of expressions that are read: the node they stand in, its field, the index in a list."""
    found: list[tuple[ast.AST, str, int | None, ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.JoinedStr, ast.FormattedValue)):
            continue
        for name, value in ast.iter_fields(node):
            for index, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(item, ast.expr) and isinstance(getattr(item, "ctx", ast.Load()), ast.Load):
                    found.append((node, name, index, item))
    return found


def _blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    return [
        block
        for node in ast.walk(tree)
        if not isinstance(node, ast.Module)
        for name in ("body", "orelse")
        if isinstance(block := getattr(node, name, None), list) and block
    ]


def _put(place: tuple[ast.AST, str, int | None, ast.expr], value: ast.expr) -> None:
    node, name, index, _ = place
    if index is None:
        setattr(node, name, value)
    else:
        getattr(node, name)[index] = value


def _other_expression(tree: ast.AST, chance: random.Random) -> None:
    places = _expressions(tree)
    if not places:
        return
    value = ast.parse(chance.choice(_WORDS), mode="eval").body if chance.random() < 0.6 else chance.choice(places)[3]
    _put(chance.choice(places), copy.deepcopy(value))


def _new_statement(tree: ast.AST, chance: random.Random) -> None:
    block = chance.choice(_blocks(tree))
    block.insert(chance.randint(0, len(block)), ast.parse(f"def f():\n    {chance.choice(_STATEMENTS)}").body[0].body[0])  # type: ignore[attr-defined]


def _moved_statement(tree: ast.AST, chance: random.Random) -> None:
    source, target = chance.choice(_blocks(tree)), chance.choice(_blocks(tree))
    target.insert(chance.randint(0, len(target)), copy.deepcopy(chance.choice(source)))


def _lost_statement(tree: ast.AST, chance: random.Random) -> None:
    block = chance.choice(_blocks(tree))
    if len(block) > 1:
        block.pop(chance.randrange(len(block)))


_CHANGES: list[Callable[[ast.AST, random.Random], None]] = [
    _other_expression, _other_expression, _new_statement, _moved_statement, _lost_statement,
]  # fmt: skip

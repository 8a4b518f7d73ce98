# SPDX-License-Identifier: MIT
"""Wrong programs: kernels with a few of their expressions and statements exchanged, copied, moved or left out."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable
from typing import Any

import pto_jit.language as pl

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


def _of(tree: ast.AST, *kinds: type[ast.AST]) -> list[Any]:
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def _swapped_operands(tree: ast.AST, chance: random.Random) -> None:
    found = _of(tree, ast.BinOp, ast.Compare, ast.Call)
    node = chance.choice(found) if found else None
    if isinstance(node, ast.BinOp):
        node.left, node.right = node.right, node.left
    elif isinstance(node, ast.Compare):
        node.left, node.comparators[0] = node.comparators[0], node.left
    elif node is not None and len(node.args) > 1:
        i, j = chance.sample(range(len(node.args)), 2)
        node.args[i], node.args[j] = node.args[j], node.args[i]


def _other_operator(tree: ast.AST, chance: random.Random) -> None:
    found = _of(tree, ast.BinOp, ast.AugAssign, ast.Compare)
    node = chance.choice(found) if found else None
    if isinstance(node, ast.Compare):
        node.ops[0] = chance.choice([ast.Eq, ast.NotEq, ast.Lt, ast.GtE, ast.Is, ast.In, ast.NotIn])()
    elif node is not None:
        node.op = chance.choice([ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult,
                                 ast.BitAnd, ast.BitXor, ast.LShift, ast.RShift])()  # fmt: skip


def _other_constant(tree: ast.AST, chance: random.Random) -> None:
    found = [node for node in _of(tree, ast.Constant) if not isinstance(node.value, str)]
    if found:
        chance.choice(found).value = chance.choice(
            [0, 1, -1, 2, 5, 8, 100, 2**31, 2**63 - 1, 2**64, -(2**63), 0.0, -0.5, 1e308, True, None, "f32", ...]
        )


def _other_attribute(tree: ast.AST, chance: random.Random) -> None:
    """Another dtype, or another operation of the language."""
    found = [n for n in _of(tree, ast.Attribute) if isinstance(n.value, ast.Name) and n.value.id == "pl"]
    if found:
        node = chance.choice(found)
        node.attr = chance.choice(_DTYPES if node.attr in _DTYPES else _OPERATIONS)


def _other_name(tree: ast.AST, chance: random.Random) -> None:
    found = _of(tree, ast.Name)
    if found:
        chance.choice(found).id = chance.choice(found).id


def _copied_statement(tree: ast.AST, chance: random.Random) -> None:
    block = chance.choice(_blocks(tree))
    at = chance.randrange(len(block))
    block.insert(at, copy.deepcopy(block[at]))


def _wrapped_statement(tree: ast.AST, chance: random.Random) -> None:
    block = chance.choice(_blocks(tree))
    at = chance.randrange(len(block))
    around: Any = ast.parse(f"{chance.choice(_AROUND)}: pass").body[0]
    around.body = [block[at]]
    block[at] = around


def _unwrapped_statement(tree: ast.AST, chance: random.Random) -> None:
    found = [(b, k) for b in _blocks(tree) for k, s in enumerate(b) if isinstance(s, (ast.If, ast.For, ast.With))]
    if found:
        block, at = chance.choice(found)
        block[at : at + 1] = block[at].body  # type: ignore[attr-defined]


def _other_arguments(tree: ast.AST, chance: random.Random) -> None:
    found = _of(tree, ast.Call)
    if not found:
        return
    node, kind = chance.choice(found), chance.random()
    if kind < 0.25 and node.args:
        node.args.pop(chance.randrange(len(node.args)))
    elif kind < 0.5 and node.args:
        node.args.insert(chance.randint(0, len(node.args)), copy.deepcopy(chance.choice(node.args)))
    elif kind < 0.7 and node.keywords:
        node.keywords.pop(chance.randrange(len(node.keywords)))
    else:
        name, value = chance.choice(_KEYWORDS).split("=")
        if all(keyword.arg != name for keyword in node.keywords):
            node.keywords.append(ast.keyword(name, ast.parse(value, mode="eval").body))


_DTYPES = "f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool_".split()
_OPERATIONS = sorted(
    n for n in pl.__all__
    if isinstance(getattr(getattr(pl, n), "__pto_builtin__", None), str) and n not in ("breakpoint_static", "static_print")
)  # fmt: skip
_AROUND = ["if n > 1", "if True", "for zz in pl.range(3)", "for zz in range(2)", "for zz in pl.static_range(2)",
           "for zz in pl.range(4, chunk=2)", "for zz in pl.range(3, parallel=True)", "with pl.incore()"]  # fmt: skip
_KEYWORDS = ["chunk=2", "chunk=n", "chunk=0", "parallel=True", "combine='tree'", "chunk_policy='aligned'", "pad=0",
             "keepdims=True", "axis=0", "axis=-1", "axis=5", "dtype=pl.f16", "reverse=True", "init=0"]  # fmt: skip
_CHANGES: list[Callable[[ast.AST, random.Random], None]] = [
    _other_expression, _other_expression, _new_statement, _moved_statement, _lost_statement, _swapped_operands,
    _other_operator, _other_constant, _other_attribute, _other_name, _copied_statement, _wrapped_statement,
    _unwrapped_statement, _other_arguments,
]  # fmt: skip

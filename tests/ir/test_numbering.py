# SPDX-License-Identifier: MIT
"""Functions with numbers for names: equal where they are the same program, different where anything else differs."""

from __future__ import annotations

from typing import Any

import pytest

from pto_jit.dtypes import f32, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, For, Func, Fuse, If, Op, Reduction, Region, Return, Scope, Stmt, Var, While
from pto_jit.ir.numbering import numbered
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import map_statements, rename, variables
from pto_jit.slotted import compared, replace
from tests.ir.generate import random_module

I64, F32 = ScalarType(i64), ScalarType(f32)
A, B, C = Var("a", I64), Var("b", I64), Var("c", I64)
ONE = Const(1, I64)
ADD = Op("add", (C,), (A, B))
SAMPLES: list[Stmt] = [
    ADD,
    Op("map", (C,), (A,), (), (Region((B,), (Op("neg", (C,), (B,)),), (C,)),)),
    For("parallel", A, ONE, B, ONE, (ADD,), ONE, reductions=(Reduction((C,), (ONE,), "add"),)),
    While((ADD,), A, (ADD,)),
    If(A, (ADD,), (ADD,)),
    Scope("f", (ADD,), True),
    Fuse((ADD,), ("c",)),
    Return((A, ONE)),
]
OTHERS: dict[str, Any] = {
    "args": (B,), "results": (A, B), "attrs": (("axis", 1),), "regions": (Region((), (), ()),), "op": "sub",
    "values": (B, A), "keep": (), "body": (), "before": (), "then": (), "orelse": (), "reductions": (),
}  # fmt: skip


def function(*stmts: Stmt) -> Func:
    return Func("f", "incore", (A, B), (), stmts)


def renamed(func: Func) -> Func:
    names = {v.name: f"other{k}" for k, v in enumerate((*func.params, *variables(func.body)))}
    params = tuple(Var(names[p.name], p.type) for p in func.params)
    elsewhere = Loc("elsewhere.py", 7)
    body: Block = map_statements(rename(func.body, names), lambda s: replace(s, loc=elsewhere))
    return replace(func, name="g", params=params, body=body, loc=elsewhere)


@pytest.mark.parametrize("seed", range(20))
def test_names_and_places_do_not_count(seed: int) -> None:
    for func in random_module(seed).funcs:
        assert numbered(func).key == numbered(renamed(func)).key
        assert hash(numbered(func).key) == hash(numbered(renamed(func)).key)


@pytest.mark.parametrize("seed", range(20))
def test_every_statement_counts(seed: int) -> None:
    for func in random_module(seed).funcs:
        if func.body:
            assert numbered(func).key != numbered(replace(func, body=func.body[:-1])).key


@pytest.mark.parametrize("stmt", SAMPLES, ids=lambda s: type(s).__name__)
def test_every_field_of_a_statement_counts(stmt: Stmt) -> None:
    key = numbered(function(stmt)).key
    for field in compared(type(stmt)):
        other = replace(stmt, **{field: OTHERS.get(field, "another")})
        assert numbered(function(other)).key != key, field


def test_types_and_the_order_of_variables_count() -> None:
    assert numbered(function(ADD)).key != numbered(function(replace(ADD, args=(B, A)))).key
    assert numbered(function(ADD)).key != numbered(function(replace(ADD, results=(Var("c", F32),)))).key
    assert numbered(function(ADD)).key != numbered(replace(function(ADD), params=(B, A))).key
    nothing = [Op("copy", (C,), (Const(zero, F32),)) for zero in (0.0, -0.0)]
    assert numbered(function(nothing[0])).key != numbered(function(nothing[1])).key


def test_variables_are_told_in_the_order_of_their_appearance() -> None:
    found = numbered(function(ADD))
    assert found.numbers == {"a": 0, "b": 1, "c": 2}
    assert found.types == (I64, I64, I64)

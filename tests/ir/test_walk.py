# SPDX-License-Identifier: MIT
"""Walking and rewriting."""

from __future__ import annotations

from collections import Counter

import pytest

from pto_jit.dtypes import i64
from pto_jit.ir.flow import Later, Reads, free_vars
from pto_jit.ir.nodes import Block, Break, Const, For, Func, Fuse, If, Module, Op, Stmt, Var
from pto_jit.ir.parse import parse
from pto_jit.ir.text import to_text
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import (
    block_defs,
    block_uses,
    blocks,
    def_counts,
    defs,
    map_blocks,
    map_funcs,
    map_statements,
    operands,
    rename,
    rewrite_block,
    rewrite_func,
    statements,
    substitute,
    use_counts,
    uses,
    variables,
)
from tests.ir.generate import random_module

I64 = ScalarType(i64)


def body(text: str, params: str = "%n: i64, %c: bool_, %x: !pto.memref<gm,?,f32>") -> Block:
    lines = "\n".join(f"  {line}" for line in text.strip().split("\n"))
    return parse(f"func @f({params}) {{\n{lines}\n}}").funcs[0].body


def text_of(block: Block) -> str:
    return to_text(block).strip()


NESTED = """
%a = sadd %n, 1 : i64
FOR %i:idx, 0:idx, %a:idx, 1:idx {kind=parallel, chunk=%n}
  IF %c
    %b = smul %i, %a : i64
  ELSE
    WHILE
      %t = slt %i, 3 : bool_
    DO %t
      BREAK
    ENDWHILE
  ENDIF
ENDFOR
%r = tmap %u : !pto.tile<8xf32> WITH (%p: f32)
  %q = sexp %p : f32
  YIELD %q
ENDWITH
"""
UP = "%n: i64, %c: bool_, %u: f32"


def nested() -> Block:
    return body(NESTED.replace("tmap %u", "tmap %u"), UP)


def test_statements_come_in_the_order_of_the_text() -> None:
    names = [s.op if isinstance(s, Op) else type(s).__name__ for s in statements(nested())]
    assert names == ["add", "For", "If", "mul", "While", "lt", "Break", "map", "exp"]


def test_uses_and_defs_are_of_the_statement_itself() -> None:
    add, loop, mapped = nested()
    assert [v.name for v in uses(add)] == ["n"]
    assert [v.name for v in uses(loop)] == ["a", "n"]
    assert [v.name for v in defs(loop)] == ["i"]
    assert [v.name for v in uses(mapped)] == ["u", "q"]  # the region's result is read by the operation
    assert [v.name for v in defs(mapped)] == ["r", "p"]
    assert len(operands(loop)) == 4 and len(blocks(mapped)) == 1


def test_the_uses_and_defs_of_a_block_are_those_of_all_its_statements() -> None:
    assert block_uses(nested()) == {"n", "a", "c", "i", "t", "u", "p", "q"}
    assert block_defs(nested()) == {"a", "i", "b", "t", "r", "p", "q"}
    assert [v.name for v in variables(nested())][:4] == ["n", "a", "a", "n"]


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("%a = sadd %n, %n : i64\n%b = sadd %a, 1 : i64", ["n"]),
        ("IF %c\n  %a = scopy 1 : i64\nENDIF\n%b = sadd %a, 1 : i64", ["c", "a"]),
        ("IF %c\n  %a = scopy 1 : i64\nELSE\n  %a = scopy 2 : i64\nENDIF\n%b = sadd %a, 1 : i64", ["c"]),
        ("IF %c\n  return\nELSE\n  %a = scopy 2 : i64\nENDIF\n%b = sadd %a, 1 : i64", ["c"]),
        ("IF %c\n  return\nELSE\n  return\nENDIF\n%b = sadd %n, 1 : i64", ["c"]),
        ("FOR %i:idx, 0:idx, 3:idx, 1:idx\n  %a = scopy 1 : i64\nENDFOR\n%b = sadd %a, %i : i64", ["a", "i"]),
        ("FOR %i:idx, 0:idx, 3:idx, 1:idx\n  %b = sadd %acc, 1 : i64\n  %acc = scopy %b : i64\nENDFOR", ["acc"]),
        ("WHILE\n  %t = slt %n, 3 : bool_\nDO %t\n  %a = scopy 1 : i64\nENDWHILE\n%b = sand %t, %t : bool_", ["n"]),
        ("WHILE\nDO %c\n  %a = scopy 1 : i64\nENDWHILE\n%b = sadd %a, 1 : i64", ["c", "a"]),
        ("WHILE\nDO true\n  %a = scopy 1 : i64\n  BREAK\nENDWHILE\n%b = sadd %a, 1 : i64", []),
        (
            "WHILE\nDO true\n  IF %c\n    BREAK\n  ENDIF\n  %a = scopy 1 : i64\nENDWHILE\n%b = sadd %a, 1 : i64",
            ["c", "a"],
        ),
        ("WHILE\nDO true\n  CONTINUE\nENDWHILE\n%b = sadd %a, 1 : i64", []),
        ("SCOPE @s\n  %a = sadd %n, 1 : i64\nENDSCOPE\nssetelem 1.0:f32, %x[%a]", ["n", "x"]),
    ],
)
def test_free_variables_are_those_that_may_be_read_before_they_are_assigned(text: str, free: list[str]) -> None:
    block = body(text, "%n: i64, %c: bool_, %x: !pto.memref<gm,?,f32>, %a: i64, %i: i64, %acc: i64")
    assert [v.name for v in free_vars(block)] == free


@pytest.mark.parametrize("seed", range(20))
def test_what_is_told_of_a_block_again_is_what_was_told_first(seed: int) -> None:
    for func in random_module(seed).funcs:
        body, copy = func.body, (*func.body,)  # of a copy nobody has asked
        inner = list(statements(copy))
        for _ in range(2):
            assert use_counts(body) == Counter(v.name for stmt in inner for v in uses(stmt))
            assert def_counts(body) == Counter(v.name for stmt in inner for v in defs(stmt))
            assert block_uses(body) == set(use_counts(body))
            assert free_vars(body) == free_vars(copy)


def test_a_region_reads_the_enclosing_function_but_not_its_own_variables() -> None:
    block = body("%r = smap %n : i64 WITH (%p: i64)\n  %q = sadd %p, %k : i64\n  YIELD %q\nENDWITH", "%n: i64, %k: i64")
    assert [v.name for v in free_vars(block)] == ["n", "k"]


def test_a_rewrite_that_changes_nothing_gives_the_same_object() -> None:
    for seed in range(20):
        module = random_module(seed)
        assert map_funcs(module, lambda func: rewrite_func(func, lambda stmt: None)) is module
        for func in module.funcs:
            assert rewrite_func(func, lambda stmt: stmt) is func
            assert substitute(func.body, {"nothing": Const(1, I64)}) is func.body
            assert rename(func.body, {"nothing": "something"}) is func.body
            assert map_blocks(func.body, lambda block: block) is func.body


def test_a_rewrite_sees_inner_statements_first_and_once() -> None:
    seen: list[str] = []
    rewrite_block(nested(), lambda stmt: seen.append(stmt.op if isinstance(stmt, Op) else type(stmt).__name__))
    assert seen == ["add", "mul", "lt", "Break", "While", "If", "For", "exp", "map"]


def test_a_rewrite_may_pass_over_operations_without_blocks() -> None:
    seen: list[str] = []

    def visit(stmt: Stmt) -> Block | None:
        seen.append(stmt.op if isinstance(stmt, Op) else type(stmt).__name__)
        return () if isinstance(stmt, Break) else None

    after = rewrite_block(nested(), visit, plain=False)
    assert seen == ["Break", "While", "If", "For", "map"]
    names = [s.op if isinstance(s, Op) else type(s).__name__ for s in statements(after)]
    assert names == ["add", "For", "If", "mul", "While", "lt", "map", "exp"]


def test_a_statement_can_be_removed_replaced_or_multiplied() -> None:
    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Op):
            return None
        return {"mul": (), "lt": (stmt, stmt)}.get(stmt.op)

    names = [s.op if isinstance(s, Op) else type(s).__name__ for s in statements(rewrite_block(nested(), visit))]
    assert names == ["add", "For", "If", "While", "lt", "lt", "Break", "map", "exp"]


def test_a_rewrite_keeps_locations_and_untouched_parts() -> None:
    block = nested()
    after = rewrite_block(block, lambda stmt: () if isinstance(stmt, Op) and stmt.op == "mul" else None)
    assert after[0] is block[0] and after[2] is block[2]
    assert after[1] is not block[1] and after[1].loc is block[1].loc
    assert isinstance(after[1], For) and isinstance(after[1].body[0], If)
    assert after[1].body[0].loc is block[1].body[0].loc  # type: ignore[union-attr]


def test_substitution_replaces_reads_and_follows_chains() -> None:
    block = body("%a = sadd %n, 1 : i64\n%b = sadd %a, %n : i64\nFOR %i:idx, %a:idx, %b:idx, 1:idx\nENDFOR")
    after = substitute(block, {"b": Var("a", I64), "a": Const(5, I64)})
    assert text_of(after) == "%a = sadd %n, 1 : i64\n%b = sadd 5, %n : i64\nFOR %i:idx, 5:idx, 5:idx, 1:idx\nENDFOR"


def test_renaming_changes_reads_assignments_loop_variables_and_kept_names() -> None:
    block = body(NESTED + "\nFUSE %z\n  %z = sadd %a, 1 : i64\nENDFUSE", UP)
    names = {name: name + "_" for name in "naicbtupqrz"}
    after = rename(block, names)
    assert block_defs(after) == {name + "_" for name in block_defs(block)}
    assert block_uses(after) == {name + "_" for name in block_uses(block)}
    assert isinstance(after[-1], Fuse) and after[-1].keep == ("z_",)
    assert rename(after, {new: old for old, new in names.items()}) == block


def test_map_blocks_reaches_every_block_inner_ones_first() -> None:
    lengths: list[int] = []

    def count(block: Block) -> Block:
        lengths.append(len(block))
        return block[:1]

    after = map_blocks(nested(), count)
    assert lengths == [1, 1, 1, 1, 1, 1, 3]
    assert len(after) == 1


def test_map_statements_replaces_one_by_one() -> None:
    doubled = map_statements(nested(), lambda s: Op("neg", s.results, s.args[:1], loc=s.loc)
                             if isinstance(s, Op) and s.op == "mul" else s)  # fmt: skip
    assert [s.op for s in statements(doubled) if isinstance(s, Op)] == ["add", "neg", "lt", "map", "exp"]


def test_rewriting_a_function_keeps_the_rest_of_it() -> None:
    module = parse(f"func @f({UP}) {{\n{NESTED}\n}}")
    func = module.funcs[0]
    after = rewrite_func(func, lambda stmt: () if isinstance(stmt, For) else None)
    assert after == Func(func.name, func.kind, func.params, func.results, (func.body[0], func.body[2]))
    assert map_funcs(module, lambda func: after) == Module("module", (after,), "f")


@pytest.mark.parametrize("seed", range(30))
def test_the_ends_of_a_block_are_told_what_they_read(seed: int) -> None:
    """`Reads` walks a block once and tells of each of its ends what a walk over that end would tell."""
    for func in random_module(seed).funcs:
        inner = [b for s in statements(func.body) for b in blocks(s)]
        for block in (func.body, *inner):
            reads, names = Reads(block), block_defs(func.body) | block_uses(func.body)
            for position in range(len(block) + 1):
                end, rest = reads.end(position), block[position:]
                assert {n for n in names if n in Later((end,))} == {v.name for v in free_vars(rest)}
                assert {n for n in names if end.names(n)} == block_uses(rest)

# SPDX-License-Identifier: MIT
"""The Before/After programs in the docstrings of the passes are what the passes do."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from pto_jit.ir.nodes import For, Func, Module, Scope, Stmt
from pto_jit.ir.parse import parse as parse_pto
from pto_jit.ir.text import to_text as print_module
from pto_jit.ir.verify import verify
from pto_jit.ir.walk import map_funcs, rewrite_func
from pto_jit.lower import (
    alike,
    associate,
    borders,
    chunk,
    coalesce,
    ends,
    if_conversion,
    inline,
    instrument,
    interchange,
    invariant,
    jam,
    late,
    outline,
    pivot,
    place,
    planes,
    rename,
    reuse,
    simplify,
    unroll,
)
from pto_jit.lower.groups import fuse, recompute, rows, viewed, views
from pto_jit.lower.reductions import split
from pto_jit.lower.wholes import collapsed, divide, elements, flat, handed_on, own_rows, totals
from pto_jit.lower.wholes.divide import PARTS
from pto_jit.lower.wholes.known import Known
from pto_jit.semantic.rules import infer
from pto_jit.slotted import replace
from pto_jit.targets.ascend import both_ways, foreseen, operands, pairs, ragged
from pto_jit.targets.cuda import squares


def handed(module: Module) -> Module:
    """The scopes of a module, whose tiles are handed on in memory."""

    def visit(func: Func) -> Func:
        out: list[Stmt] = []
        for s in func.body:
            made = divide.Divider(func, PARTS["cuda"], []).handed(s) if isinstance(s, Scope) else None
            out += [s] if made is None else [*made[0], made[1]]
        return func if out == list(func.body) else replace(func, body=tuple(out))

    return map_funcs(module, visit)


def loaded(module: Module) -> Module:
    """The functions of a module, which load the elements that are combined with tiles."""

    def visit(func: Func) -> Func:
        body = elements.with_loaded_elements(func.body, Known(func))
        return func if body is func.body else replace(func, body=body)

    return map_funcs(module, visit)


def jammed(module: Module) -> Module:
    """The loops of a module, two iterations together."""

    def visit(func: Func) -> Func:
        body = tuple(isinstance(s, For) and jam.jammed(s, lambda name: name, 2) or s for s in func.body)
        return func if body == func.body else replace(func, body=body)

    return map_funcs(module, visit)


def alike_anywhere(module: Module) -> Module:
    """Functions of a module that are alike are one, wherever they stand in its text."""

    def visit(stmt: Stmt) -> Stmt:
        return replace(stmt, loc=module.funcs[0].loc)

    together = map_funcs(module, lambda func: replace(rewrite_func(func, visit), loc=module.funcs[0].loc))
    shared = alike.share_functions(together, [])
    return module if shared is together else shared


PASSES: list[tuple[Any, Callable[[Module], Module]]] = [
    (split, lambda m: split.split_reductions(m, [])),
    (instrument, lambda m: instrument.check_promises(m, [])),
    (inline, inline.inline_calls),
    (rename, rename.name_values),
    (chunk, lambda m: chunk.expand_chunks(m, [])),
    (jam, jammed),
    (if_conversion, if_conversion.convert_ifs),
    (ends, ends.separate_ends),
    (late, late.wait_last),
    (unroll, unroll.unroll_extrema),
    (place, lambda m: place.place_scopes(m, [])),
    (interchange, lambda m: interchange.interchange_loops(m, [])),
    (associate, lambda m: associate.associate_products(m, [])),
    (invariant, lambda m: invariant.hoist_products(m, [])),
    (outline, outline.outline_scopes),
    (alike, alike_anywhere),
    (simplify, simplify.simplify),
    (coalesce, coalesce.coalesce),
    (planes, planes.load_planes),
    (fuse, fuse.fuse),
    (rows, fuse.fuse),
    (pivot, lambda m: pivot.divide_at_pivots(m, [])),
    (borders, lambda m: borders.part_borders(m, [])),
    (recompute, lambda m: map_funcs(m, recompute.recompute)),
    (viewed, viewed.view_once),
    (views, views.move_views),
    (handed_on, handed),
    (elements, loaded),
    (divide, lambda m: divide.divide_scopes(m, [], parts=PARTS["cuda"])),
    (collapsed, lambda m: map_funcs(m, collapsed.with_collapsed_axes)),
    (flat, lambda m: map_funcs(m, flat.with_flat_planes)),
    (own_rows, lambda m: map_funcs(m, lambda func: own_rows.with_passes(func, PARTS["cuda"], []))),
    (totals, lambda m: totals.divide_totals(m, [], target="ascend")),
    (reuse, lambda m: map_funcs(m, reuse.with_fewer_loads)),
    (both_ways, lambda m: map_funcs(m, both_ways.taken_both_ways)),
    (operands, lambda m: map_funcs(m, operands.with_own_operands)),
    (foreseen, lambda m: map_funcs(m, foreseen.with_products_before_branches)),
    (pairs, lambda m: map_funcs(m, pairs.in_pairs)),
    (squares, lambda m: map_funcs(m, squares.in_squares)),
    (ragged, lambda m: map_funcs(m, lambda func: ragged.with_empty_tiles(func, {}))),
]


def programs(doc: str) -> tuple[str, str]:
    match = re.search(r"Before::\n\n(.*?)\n\nAfter::\n\n(.*?)(?=\n\n\S|\Z)", textwrap.dedent(doc), re.DOTALL)
    assert match, "the docstring has no Before/After"
    return textwrap.dedent(match[1]), textwrap.dedent(match[2])


@pytest.mark.parametrize(("module", "transform"), PASSES, ids=[m.__name__.split(".")[-1] for m, _ in PASSES])
def test_a_pass_does_what_its_docstring_shows(module: Any, transform: Callable[[Module], Module]) -> None:
    before, after = programs(module.__doc__)
    program = parse_pto(before)
    verify(program, infer)
    result = transform(program)
    verify(result, infer)
    assert print_module(result) == print_module(parse_pto(after))


@pytest.mark.parametrize(("module", "transform"), PASSES, ids=[m.__name__.split(".")[-1] for m, _ in PASSES])
def test_a_pass_that_finds_nothing_returns_the_same_object(module: Any, transform: Callable[[Module], Module]) -> None:
    program = parse_pto("// Function Type: Orchestration\nfunc @f(%x: !pto.memref<gm,?,f32>) {\n  return\n}\n")
    assert transform(program) is program

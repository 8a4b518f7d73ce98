# SPDX-License-Identifier: MIT
"""Extents of tensors that a nest writes: computed before its loops where they are the same in every iteration.

The memory of a list is allocated before the nest, so what its leaves are as large as has to be known there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.errors import CompilationError
from pto_jit.fractal.compile.expr import Symbol
from pto_jit.fractal.compile.lists import Array, Compute, Leaf, Loop, WriteLeaf
from pto_jit.fractal.compile.names import defined, uses
from pto_jit.fractal.compile.nest import is_pure
from pto_jit.fractal.compile.sequential import records
from pto_jit.ir.nodes import Op, Var


def settled(item: Any) -> list[Any]:
    """A loop after the integers in it that are extents of what it writes and the same in every iteration."""
    if not isinstance(item, Loop):
        return [item]
    before, item.body = sizes_first([part for i in item.body for part in settled(i)], item.symbol)
    return [*before, item]


def sizes_first(items: Sequence[Any], symbol: Symbol | None = None) -> tuple[list[Any], list[Any]]:
    """The integers that extents of what items write are made of, and the other items; not those that depend on
    others, or on the loop of the symbol."""
    written = [i.array.root for i in records(items) if isinstance(i, WriteLeaf)]
    wanted = {e.name for array in written for e in array.leaf.extents if isinstance(e, Var)}
    for item in reversed(items) if wanted else ():
        if _is_integer(item) and defined(item) & wanted:
            wanted |= uses(item)
    before: list[Any] = []
    rest: list[Any] = []
    inside: set[str] = set()
    for item in items:
        moves = _is_integer(item) and defined(item) & wanted and not uses(item) & inside
        if moves and not (isinstance(item, Compute) and symbol in item.expr.symbols()):
            before.append(item)
        else:
            rest.append(item)
            inside |= _all_made(item)
    return before, rest


def made_inside(leaf: Leaf, items: Sequence[Any]) -> bool:
    """Whether records or statements compute the extents of a leaf."""
    extents = {e.name for e in leaf.extents if isinstance(e, Var)}
    return bool(extents) and any(extents & _all_made(item) for item in items)


def computed_inside(items: Sequence[Any]) -> bool:
    """Whether records write a tensor whose extents they compute."""
    return any(made_inside(i.array.root.leaf, items) for i in records(items) if isinstance(i, WriteLeaf))


def known_before(items: Sequence[Any], arrays: Sequence[Array]) -> None:
    """Check that memory for arrays can be allocated before the nest.  Raises CompilationError (PTO-F109)."""
    unknown = {id(array) for array in arrays if made_inside(array.root.leaf, items)}
    for item in records(items) if unknown else ():
        if isinstance(item, WriteLeaf) and id(item.array.root) in unknown:
            raise CompilationError(
                "the extents of a tensor in a list are computed in the loop that makes the list",
                item.loc,
                code="PTO-F109",
                hint="the elements of a list have one shape: make lists of lists of what differs in length",
            )


def _all_made(item: Any) -> set[str]:
    """The variables that a record or statement defines, also inside of it."""
    if isinstance(item, Loop):
        return set().union(*map(_all_made, item.body)) if item.body else set()
    return defined(item)


def _is_integer(item: Any) -> bool:
    """Whether it computes a number and does nothing else."""
    return isinstance(item, Compute) or (isinstance(item, Op) and is_pure(item) and not item.regions)

# SPDX-License-Identifier: MIT
"""The pieces of a scope, some of which `divide` makes loops over parts of."""

from __future__ import annotations

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Stmt
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import defs, statements

Piece = tuple[list[Stmt], list[Stmt] | None]
"""Statements of a scope, and the loops over parts that do the same, if they are divided."""


def without_crossing_tiles(pieces: list[Piece]) -> list[Piece]:
    """Pieces from one that makes a tile to the last one that reads it stay whole: they are one scope, which no tile
    leaves."""
    whole: set[int] = set()
    first: dict[str, int] = {}
    for k, (stmts, _) in enumerate(pieces):
        for var in free_vars(tuple(stmts)):
            if isinstance(var.type, TileType) and first.get(var.name, k) < k:
                whole.update(range(first[var.name], k + 1))
        for made in (d for s in statements(tuple(stmts)) for d in defs(s)):
            first.setdefault(made.name, k)
    return [(stmts, None if k in whole else loops) for k, (stmts, loops) in enumerate(pieces)]

# SPDX-License-Identifier: MIT
"""The table of operations that an `Op` node of the IR can stand for: one row each, by family.

`max` and `min` have two rows: the elementwise operation, of two operands, and the reduction, of one.  A new operation
needs a row in the file of its family, a case in each target, and one in the interpreter.
"""

from __future__ import annotations

from pto_jit.semantic import debug, elementwise, matrix, memory, order, reduction, tensor, tile
from pto_jit.semantic.row import Effect, OpRow

ROWS: tuple[OpRow, ...] = (
    *elementwise.ROWS,
    *memory.ROWS,
    *tensor.ROWS,
    *tile.ROWS,
    *reduction.ROWS,
    *matrix.ROWS,
    *order.ROWS,
    *debug.ROWS,
)
TABLE: dict[str, OpRow] = {row.name: row for row in reversed(ROWS)}
REDUCTIONS: dict[str, OpRow] = {row.name: row for row in reduction.ROWS if row.required == ("axes",)}
NAMES: frozenset[str] = frozenset(TABLE)


def row(op: str, args: int = 2) -> OpRow:
    """The row of an operation with that many operands. KeyError for a name that is not in the table."""
    if args == 1 and op in REDUCTIONS:
        return REDUCTIONS[op]
    return TABLE[op]


def effects(op: str) -> Effect:
    """Whether an operation reads or writes memory: "none", "reads" or "writes".

    `tensor_arg` says which tensor. A "writes" without one (`print`, `assert`) acts on the outside world.
    """
    return TABLE[op].effect


def tensor_arg(op: str) -> int | None:
    """Which operand (from 0) is the tensor that an operation reads, writes, views or measures."""
    return TABLE[op].tensor


def is_elementwise(op: str, args: int = 2) -> bool:
    """Whether each element of the result depends only on the operands' elements at the same place.

    `args` is the number of operands; it only matters for `max` and `min`, which with one operand are reductions.
    """
    return row(op, args).elementwise


def is_generator(op: str) -> bool:
    """Whether an operation makes a tile of scalars alone, valid everywhere: full, arange, rand, randn."""
    return TABLE[op].generator


def rows() -> tuple[OpRow, ...]:
    """The whole table, by family."""
    return ROWS

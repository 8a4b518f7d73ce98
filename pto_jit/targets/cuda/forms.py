# SPDX-License-Identifier: MIT
"""Which tiles a product of whole tensors is computed in."""

from __future__ import annotations

from pto_jit.dtypes import DType
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.slices import slice_of

TILE = 128
WIDE = 256
"""Columns of a tile of a product on tensor cores: they wait for what a multiprocessor reads, and such a tile
takes a quarter less for each sum than one of 128 x 128."""
BLOCKS = 96  # tiles that are wide only if there are so many: others would leave multiprocessors idle
_ROW = 4096
"""Of a contraction: how much of a row stands in shared memory while it is multiplied by a matrix in memory."""
_COLUMNS = 32  # of the part of that matrix that a block reads: many blocks keep more of the memory busy
_LINES = 8  # rows of a matrix that a block multiplies by a column
_LINE = 512  # elements of each that it takes at a time


@frozen
class Form:
    """rows, columns: of a tile of the result; depth: how much of the contraction is taken at a time."""

    rows: int
    columns: int
    depth: int


def form_of(operand: DType, rows: int | None, columns: int | None, streams: bool) -> Form:
    """The tiles of a product with operands of a type and so many rows and columns, None where that is not known.

    streams: a matrix on the right can be read where it is multiplied, as nothing writes it meanwhile.
    """
    if columns == 1:
        return Form(1, 1, _ROW) if rows == 1 else Form(_LINES, 1, _LINE)
    if rows == 1:
        return Form(1, _COLUMNS, _ROW) if streams else Form(1, TILE, slice_of(operand))
    return Form(TILE, _columns(operand, rows, columns), slice_of(operand))


def _columns(operand: DType, rows: int | None, columns: int | None) -> int:
    if operand.kind != "f" or operand.bits != 16:
        return TILE
    if columns is not None and (columns <= TILE or (
        rows is not None and -(-rows // TILE) * -(-columns // WIDE) < BLOCKS
    )):  # fmt: skip
        return TILE
    return WIDE

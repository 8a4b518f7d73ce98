# SPDX-License-Identifier: MIT
"""Which tiles a product of whole tensors is computed in: as large as can be, if that keeps all of a device busy.

Large tiles read least for each sum.  Of few rows they would compute mostly what is not there, and of few tiles most
multiprocessors would have none.  Where extents are constants, one form is chosen for them; where they are known when
the program runs, there are a few, each with the condition under which the host takes it.
"""

from __future__ import annotations

from math import prod

from pto_jit.dtypes import DType
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cuda.slices import slice_of

TILE = 128
WIDE = 256
"""Columns of a tile of a product on tensor cores: they wait for what a multiprocessor reads, and such a tile
takes a quarter less for each sum than one of 128 x 128."""
_SHARERS = 132  # multiprocessors of a large device
_BLOCKS = 96  # large tiles are enough if there are so many; of fewer, smaller ones
_FEW = 32  # rows that are few: there is less to multiply than to read
_SIDES = (16, 32, 64, 128)  # of tiles
_EXACT = {128: 1.0, 85: 0.95, 64: 0.85, 42: 0.7, 32: 0.45, 21: 0.15, 0: 0.1}
_TENSOR = {170: 1.0, 128: 0.8, 85: 0.65, 64: 0.5, 42: 0.4, 32: 0.3, 21: 0.2, 0: 0.1}
"""How many sums are added up in a time, compared with a large tile, by how often what a tile reads is used."""
_STAGE = 32 * 1024  # bytes of a slice of both operands of few rows: so much is under way in a block
_ROW = 4096
"""Of a contraction: how much of a row stands in shared memory while it is multiplied by a matrix in memory."""
_COLUMNS = 32  # of the part of that matrix that a block reads: many blocks keep more of the memory busy
_LINES = 8  # rows of a matrix that a block multiplies by a column
_LINE = 512  # elements of each that it takes at a time


@frozen
class Form:
    """rows, columns: of a tile of the result; depth: how much of the contraction is taken at a time.

    most_rows: the form is taken for results of at most so many rows, if not 0; least_tiles: for those of at least so
    many tiles.
    """

    rows: int
    columns: int
    depth: int
    most_rows: int = 0
    least_tiles: int = 0


def forms_of(operand: DType, rows: int | None, columns: int | None, streams: bool) -> tuple[Form, ...]:
    """The forms of a product with operands of a type and so many rows and columns, None where that is not known: the
    first whose condition holds is taken, the last one always.

    streams: a matrix on the right can be read where it is multiplied, as nothing writes it meanwhile.
    """
    if columns == 1:
        return (Form(1, 1, _ROW) if rows == 1 else Form(_LINES, 1, _LINE),)
    row = Form(1, _COLUMNS, _ROW) if streams else Form(1, TILE, slice_of(operand))
    if rows == 1:
        return (row,)
    if rows is not None and columns is not None:
        return (_best(operand, rows, columns),)
    wide = WIDE if _on_tensor_cores(operand) else TILE
    down, across = _side(rows, TILE), _side(columns, wide)
    few = _sized(operand, min(_FEW, down), min(_FEW, across))
    if rows is not None and rows <= _FEW:
        return (few,)
    large, small = _sized(operand, down, across), _sized(operand, min(64, down), min(64, across))
    out = [replace(large, least_tiles=_BLOCKS), small] if large != small else [small]
    if rows is None:
        out = [*([replace(row, most_rows=1)] if streams else []), replace(few, most_rows=_FEW), *out]
    return tuple(out)


def _best(operand: DType, rows: int, columns: int) -> Form:
    """The form for a product of these extents that takes the least time, of equals the one with most in a tile."""
    tensor = _on_tensor_cores(operand)
    rates = _TENSOR if tensor else _EXACT
    wide = (*_SIDES, WIDE) if tensor else _SIDES

    def time(sides: tuple[int, int]) -> float:
        tiles = -(-rows // sides[0]) * -(-columns // sides[1])
        used = 2 * prod(sides) // sum(sides)
        rate = next(rate for least, rate in rates.items() if least <= used)
        return -(-tiles // _SHARERS) * prod(sides) / rate

    largest = _side(rows, TILE), _side(columns, wide[-1])
    sides = [(m, n) for m in reversed(_SIDES) for n in reversed(wide) if m <= largest[0] and n <= largest[1]]
    return _sized(operand, *min(sides, key=time))


def _sized(operand: DType, rows: int, columns: int) -> Form:
    """Of few rows much is under way at a time, as they wait for memory."""
    depth = slice_of(operand)
    if rows <= _FEW:
        while (rows + columns) * 2 * depth * operand.bytes <= _STAGE and depth < 256:
            depth *= 2
    return Form(rows, columns, depth)


def _side(extent: int | None, most: int) -> int:
    """The side of a tile that is no larger than the extent asks for."""
    return next((n for n in _SIDES if extent is not None and n >= extent and n <= most), most)


def _on_tensor_cores(operand: DType) -> bool:
    return operand.kind == "f" and operand.bits == 16

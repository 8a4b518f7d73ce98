# SPDX-License-Identifier: MIT
"""Rows whose elements do not lie side by side: vectors that are shuffled, where elements would be moved one by one."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from pto_jit.dtypes import DType
from pto_jit.targets.cpu.access import load, save
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import I1, I32, I64, PTR, VOID, Index, Value, i64, number, numbers, undefined, vector
from pto_jit.targets.cpu.elementwise import join
from pto_jit.targets.cpu.vector import lane_count

_SIDE = 16  # lines and lanes of the squares that are transposed, at most
MOST = 4
"""The most rows that are interleaved, and the longest way in elements from one element of a row to the next."""


def interleave(code: Code, width: int, dtype: DType, target: Value, rows: Sequence[Value], count: Index) -> None:
    """Element k of row r becomes element `k * len(rows) + r` at `target`; `width`: bytes of a register."""
    lanes, n, size = width // dtype.bytes, len(rows), dtype.bytes
    order = tuple(r * lanes + k for k in range(lanes) for r in range(n))

    def vectors(i: Value, _: list[Value]) -> Sequence[Value]:
        whole = _joined(code, [load(code, code.offset(row, code.mul(i, size)), dtype, lanes, None) for row in rows])
        mixed = code.b.shuffle_vector(whole, undefined(whole.type), numbers(I32, order))
        save(code, code.offset(target, code.mul(i, n * size)), mixed, dtype, None)
        return ()

    def element(i: Value, _: list[Value]) -> Sequence[Value]:
        for r, row in enumerate(rows):
            value = load(code, code.offset(row, code.mul(i, size)), dtype, 1, None)
            save(code, code.offset(target, code.add(code.mul(i, n * size), r * size)), value, dtype, None)
        return ()

    stop = code.floor(count, lanes)
    code.loop(0, stop, lanes, body=vectors, name="interleave")
    code.loop(stop, count, body=element, name="interleave.rest")


def _joined(code: Code, vectors: Sequence[Value]) -> Value:
    """The lanes of all vectors in one (filled up to a power of two of them)."""
    parts = list(vectors)
    while len(parts) > 1:
        parts += [parts[-1]] * (len(parts) % 2)
        parts = [join(code.b, x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def load_apart(code: Code, address: Value, dtype: DType, lanes: int, step: int, mask: Value | None) -> Value:
    """Every `step`-th element from an address on; what lies between them is not read."""
    wide = load(code, address, dtype, lanes * step, _apart(code, lanes, step, mask))
    return code.b.shuffle_vector(wide, undefined(wide.type), numbers(I32, tuple(range(0, lanes * step, step))))


def save_apart(code: Code, address: Value, value: Value, dtype: DType, step: int, mask: Value | None) -> None:
    """Store lanes `step` elements apart; what lies between them is not written."""
    lanes = lane_count(value.type)
    spread = code.b.shuffle_vector(value, undefined(value.type), _repeated(lanes, step))
    save(code, address, spread, dtype, _apart(code, lanes, step, mask))


def _repeated(lanes: int, step: int) -> Value:
    """Each lane `step` times, as the order of a shuffle."""
    return numbers(I32, tuple(k // step for k in range(lanes * step)))


def _apart(code: Code, lanes: int, step: int, mask: Value | None) -> Value:
    """The mask of every `step`-th of so many lanes, where `mask` holds."""
    every = numbers(I1, tuple(int(k % step == 0) for k in range(lanes * step)))
    if mask is None:
        return every
    return code.b.and_(every, code.b.shuffle_vector(mask, undefined(mask.type), _repeated(lanes, step)))


# -- transposed rows -----------------------------------------------------------------------------------------------


def transpose(
    code: Code, width: int, size: int, to: Value, source: Value, rows: Index, columns: Index, pitches: Sequence[Index]
) -> None:
    """Element (r, c) from `source + c * pitches[1] + r * size` to `to + r * pitches[0] + c * size`, all in bytes."""
    rest = [i64(v) for v in (rows, columns, *pitches)]
    code.b.call(_transpose_function(code.module, width, size), [to, source, *rest])


def _transpose_function(module: ir.Module, width: int, size: int) -> ir.Function:
    """`void transpose(to, from, rows, columns, pitch to, pitch from)`, by squares of a register's lanes."""
    name = f"pto.transpose.{size}"
    if known := module.globals.get(name):
        return known
    function = ir.Function(module, ir.FunctionType(VOID, [PTR, PTR] + [I64] * 4), name)
    function.linkage = "internal"
    for attribute in ("noinline", "nounwind"):
        function.attributes.add(attribute)
    to, source, rows, columns, pitch, apart = function.args
    code = Code(function, number(I64, 0))
    side = min(_SIDE, width // size)

    def corner(at: Index, extent: Index) -> Index:
        """Where the square begins that ends with the last one: squares may overlap."""
        return code.min(at, code.sub(extent, side))

    def squares() -> list[Value]:
        def row(r: Value, _: list[Value]) -> list[Value]:
            first = corner(r, rows)

            def square(c: Value, _: list[Value]) -> list[Value]:
                at = corner(c, columns)
                inside = code.offset(source, code.add(code.mul(at, apart), code.mul(first, size)))
                outside = code.offset(to, code.add(code.mul(first, pitch), code.mul(at, size)))
                _square(code, side, size, outside, pitch, inside, apart)
                return []

            code.loop(0, columns, side, body=square, name="squares")
            return []

        code.loop(0, rows, side, body=row, name="rows")
        return []

    def elements() -> list[Value]:
        typ = ir.IntType(8 * size)

        def row(r: Value, _: list[Value]) -> list[Value]:
            def element(c: Value, _: list[Value]) -> list[Value]:
                inside = code.offset(source, code.add(code.mul(c, apart), code.mul(r, size)))
                outside = code.offset(to, code.add(code.mul(r, pitch), code.mul(c, size)))
                code.b.store(code.b.load(inside, typ=typ, align=size), outside, align=size)
                return []

            code.loop(0, columns, body=element, name="elements")
            return []

        code.loop(0, rows, body=row, name="rows")
        return []

    code.choose(code.all_of([code.compare(">=", n, side) for n in (rows, columns)]), squares, elements)
    code.b.branch(code.leave)
    code.at(code.leave)
    code.b.ret_void()
    code.finish()
    return function


def _square(code: Code, side: int, size: int, to: Value, pitch: Index, source: Value, apart: Index) -> None:
    """Transpose `side` vectors of as many lanes in memory."""
    typ = vector(ir.IntType(8 * size), side)
    lines = [code.b.load(code.offset(source, code.mul(k, apart)), typ=typ, align=size) for k in range(side)]
    for k, line in enumerate(transposed(code, lines)):
        code.b.store(line, code.offset(to, code.mul(k, pitch)), align=size)


def transposed(code: Code, lines: Sequence[Value]) -> list[Value]:
    """As many vectors as they have lanes, transposed: squares within them change places, half as large with every
    pass."""
    out, side = list(lines), len(lines)
    half = side // 2
    while half:
        upper = numbers(I32, tuple(k if k & half == 0 else side + k - half for k in range(side)))
        lower = numbers(I32, tuple(k + half if k & half == 0 else side + k for k in range(side)))
        for k in range(side):
            if k & half == 0:
                x, y = out[k], out[k + half]
                out[k], out[k + half] = code.b.shuffle_vector(x, y, upper), code.b.shuffle_vector(x, y, lower)
        half //= 2
    return out

# SPDX-License-Identifier: MIT
"""Rows whose elements lie a few elements apart: vectors that are shuffled, where elements would be moved one by one."""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.dtypes import DType
from pto_jit.targets.cpu.access import load, save
from pto_jit.targets.cpu.code import I1, I32, Code, Index, Value, numbers, undefined
from pto_jit.targets.cpu.elementwise import join
from pto_jit.targets.cpu.vector import lane_count

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

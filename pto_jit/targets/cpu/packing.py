# SPDX-License-Identifier: MIT
"""Rows whose elements do not lie side by side, in scratch memory where they do: packed before a nest computes them, and
brought back after.

Several rows are packed at a time.  Where it is those of a column that lie side by side, as in a transposed array, their
blocks are transposed in registers, so that each line of the caches is fetched once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.dtypes import DType
from pto_jit.slotted import mutable
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import Index, Value, storage_type
from pto_jit.targets.cpu.strided import transpose

TOGETHER = 16
"""The most rows that are packed at a time."""
ROOM = 1 << 20
"""Bytes of a place's packed rows; of longer rows one is packed at a time."""
COLUMNS = 1024
"""Columns that are packed at a time where nothing keeps rows whole."""


@mutable
class Pack:
    """The packed rows of one place: their scratch memory and the bytes from one to the next.

    along, across: bytes in the tensor from one element of a row to the next, and from one row (None: all rows are the
    same memory); base: the first of the elements that are packed.
    """

    dtype: DType
    memory: Value
    pitch: Index
    along: Index
    across: Index | None
    base: Value | None = None

    def row(self, code: Code, number: Index) -> Value:
        """The address of a packed row, by its number among those that are packed at a time."""
        return self.memory if self.across is None else code.offset(self.memory, code.mul(number, self.pitch))

    def fill(self, code: Code, width: int, rows: Index, columns: Index) -> None:
        """Copy elements to the packed rows; `width`: bytes of a register."""
        assert self.base is not None
        size, source = self.dtype.bytes, self.base
        self._copy(
            code, rows, columns, True,
            lambda: transpose(code, width, size, self.memory, source, rows, columns, (self.pitch, self.along)),
        )  # fmt: skip

    def empty(self, code: Code, width: int, rows: Index, columns: Index) -> None:
        """Copy the packed rows to where they belong."""
        assert self.base is not None
        size, target = self.dtype.bytes, self.base
        self._copy(
            code, rows, columns, False,
            lambda: transpose(code, width, size, target, self.memory, columns, rows, (self.along, self.pitch)),
        )  # fmt: skip

    def _copy(self, code: Code, rows: Index, columns: Index, into: bool, transposed: Callable[[], None]) -> None:
        def blocks() -> Sequence[Value]:
            transposed()
            return ()

        def elements() -> Sequence[Value]:
            code.loop(0, 1 if self.across is None else rows, body=row, name="pack.row")
            return ()

        def row(r: Value, _: list[Value]) -> Sequence[Value]:
            near = self.row(code, r)
            far = code.offset(self.base, 0 if self.across is None else code.mul(r, self.across))
            code.loop(0, columns, body=lambda i, _: element(i, near, far), name="pack")
            return ()

        def element(i: Value, near: Value, far: Value) -> Sequence[Value]:
            size = self.dtype.bytes
            near, far = code.offset(near, code.mul(i, size)), code.offset(far, code.mul(i, self.along))
            source, target = (far, near) if into else (near, far)
            code.b.store(code.b.load(source, typ=storage_type(self.dtype), align=size), target, align=size)
            return ()

        several = not (isinstance(rows, int) and rows == 1)
        beside = several and self.across is not None and code.compare("==", self.across, self.dtype.bytes)
        code.choose(beside, blocks, elements)

# SPDX-License-Identifier: MIT
"""Recipes of one operand as lists of instructions, which are found out once and played for every call.

What instructions a recipe becomes, and which of them share memory, depends on nothing but what its operand spans; so a
`Recorder` stands for the writer of a kernel while `functions` writes the recipe, and takes down::

    temp f32          # memory 1; the operand has memory 0
    tile 1 of f32
    tile 0 of f32
    TABS tile 1, tile 0
    TMINS tile 1, tile 1, 9.1f
    ...
"""

from __future__ import annotations

from typing import Any

from pto_jit.dtypes import DType, f32, i16
from pto_jit.errors import Loc
from pto_jit.slotted import frozen
from pto_jit.targets.ascend.form import Buffer
from pto_jit.targets.ascend.scalars import operand_text
from pto_jit.targets.ascend.values import Size, Span, Value

TEMP, RESULT, TILE, FILL = "temp", "result", "tile", "fill"
"""Steps that are not instructions: memory of a dtype and a shape of its own, or None for that of the operand; memory of
a dtype and the memories that it may share; a tile that the next ones name; a tile and a number to fill it with."""
Step = tuple[str, tuple[Any, ...]]
_LIKE = (-1, -1)
"""Stands for what is there for, and valid of, the operand."""


@frozen(eq=False)
class Shown:
    """A tile over a memory: as elements of a dtype; words: of i16, over the same bytes."""

    memory: int
    dtype: DType
    words: bool


class Recorder:
    """What `Elementwise` and `FunctionWriter` need of a writer."""

    def __init__(self, span: Span) -> None:
        self.steps: list[Step] = []
        self.memories: dict[Buffer, int] = {}
        self._shown: dict[tuple[int, str, bool], Shown] = {}
        self._tiles: set[Shown] = set()
        self.operand = self._new(f32, span, _LIKE, _LIKE)

    def _new(self, dtype: DType, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size]) -> Value:
        buffer = Buffer("", "Vec", 0)
        self.memories[buffer] = len(self.memories)
        return Value("", dtype, span, capacity, valid, buffer)

    def temp(self, dtype: DType, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size],
             free: tuple[bool, bool] = (False, False), sources: tuple[Value, ...] = ()) -> Value:  # fmt: skip
        self.steps.append((TEMP, (dtype, None if capacity == _LIKE else (span, capacity, valid, free))))
        return self._new(dtype, span, capacity, valid)

    def result(self, dtype: DType, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size],
               free: tuple[bool, bool] = (False, False), sources: tuple[Value, ...] = ()) -> Value:  # fmt: skip
        """Where the result goes, as the caller of the recipe says."""
        self.steps.append((RESULT, (dtype, tuple(self.shown(s) for s in sources))))
        return self._new(dtype, span, capacity, valid)

    def shown(self, value: Value, words: bool = False) -> Shown:
        memory = self.memories[value.buffer]
        return self._shown.setdefault((memory, value.dtype.name, words), Shown(memory, value.dtype, words))

    def tile(self, value: Value, layout: str = "row", valid: Any = None, loc: Loc | None = None,
             dtype: DType | None = None) -> Shown:  # fmt: skip
        assert layout == "row"
        shown = self.shown(value, i16 in (value.dtype, dtype))
        if shown not in self._tiles:
            self._tiles.add(shown)
            self.steps.append((TILE, (shown,)))
        return shown

    def emit(self, name: str, *args: Shown | str, loc: Loc) -> None:
        self.steps.append((name, args))

    def fill(self, value: Value, number: str, loc: Loc) -> None:
        self.steps.append((FILL, (self.shown(value), number)))

    def scalar(self, number: str, dtype: DType) -> str:
        return operand_text(number, dtype)

    def joint_valid(self, values: list[Value], span: Span, loc: Loc) -> tuple[tuple[int, int], tuple[bool, bool]]:
        return _LIKE, (False, False)

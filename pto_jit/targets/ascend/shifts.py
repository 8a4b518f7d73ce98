# SPDX-License-Identifier: MIT
"""Shifts by numbers that are not constants: the core's instructions shift all elements of a tile by one number.

By a tile of counts a tile is shifted by 1, 2, 4, 8 and 16 bits where the counts have these bits.  Counts that are not
from 0 to 31 shift all bits out: to the left that leaves 0, to the right the sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import i32
from pto_jit.errors import Loc
from pto_jit.targets.ascend.single import Operand
from pto_jit.targets.ascend.values import Value

if TYPE_CHECKING:
    from pto_jit.targets.ascend.elementwise import Elementwise

_WIDTH = 32


def write_shift(e: Elementwise, name: str, x: Operand, count: Operand, to: Any, loc: Loc) -> Value:
    """`shl` or `shr` of i32, of a tile or by one."""
    w, instruction = e.w, "TSHLS" if name == "shl" else "TSHRS"
    if isinstance(count, str):
        assert isinstance(x, Value)
        inside = f"({count}) >= 0 && ({count}) < {_WIDTH}"
        if name == "shr":
            return e.scaled(instruction, x, f"{inside} ? {count} : {_WIDTH - 1}", to, loc)
        most = e.scaled(instruction, x, f"{inside} ? {count} : {_WIDTH - 1}", w.temp, loc)
        return e.scaled(instruction, most, f"{inside} ? 0 : 1", to, loc)
    values = e.alike([x, count], loc)
    out, counts = values
    for bit in (1, 2, 4, 8, 16):
        shifted = e.scaled(instruction, out, str(bit), w.temp, loc)
        out = e.select(_has(e, counts, bit, loc), shifted, out, i32, w.temp, loc)
    left = "0" if name == "shl" else e.scaled(instruction, values[0], str(_WIDTH - 1), w.temp, loc)
    return e.select(_has(e, counts, -_WIDTH, loc), left, out, i32, to, loc)


def _has(e: Elementwise, counts: Value, bits: int, loc: Loc) -> Value:
    """Where counts have one of these bits."""
    wanted = e.filled(counts, str(bits), loc)
    both = e.same("TAND", [counts, wanted], e.w.temp, loc)
    return e.compare("NE", both, "0", to=e.w.temp, loc=loc)

# SPDX-License-Identifier: MIT
"""The instructions of pto-isa that are used, one row each: what they read and write, and what may be given to them.

Operands are described in the order of the C++ call by letters: `d` a destination, `s` a source, `t` scratch memory
(read and written), `x` a scalar or a mode.  After the letter comes the layout: `r` row-major, `c` one column of
column-major, `v` that, or one element, `g` global memory, `m` L1, `a` L0A, `b` L0B, `l` L0C.  The pipe is that of the
910B's headers.
"""

from __future__ import annotations

from pto_jit.slotted import frozen
from pto_jit.targets.ascend.machine import Pipe

_F = frozenset(["f16", "f32"])
_NUMBERS = frozenset(["f16", "f32", "i16", "i32"])
_BITS = frozenset(["i16", "u16", "i32", "u32"])
_ANY = frozenset(["f16", "bf16", "f32", "i8", "u8", "i16", "u16", "i32", "u32"])
_MOVED = _ANY | frozenset(["i64"])
_ADDED = frozenset(["f16", "bf16", "f32", "i8", "i16", "i32"])


@frozen
class Row:
    """operands: as above; dtypes: of the first tile; scratch: uses the reserved part of the unified buffer."""

    name: str
    pipe: Pipe
    operands: tuple[str, ...]
    dtypes: frozenset[str]
    scratch: bool = False


def _rows(names: str, pipe: Pipe, operands: str, dtypes: frozenset[str], scratch: bool = False) -> list[Row]:
    return [Row(name, pipe, tuple(operands.split()), dtypes, scratch) for name in names.split()]


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        *_rows("TLOAD", "MTE2", "dr sg", _MOVED),
        *_rows("TSTORE", "MTE3", "dg sr", _MOVED),
        *_rows("TSTORE_ADD TSTORE_MAX TSTORE_MIN", "MTE3", "tg sr", _ADDED),  # atomically, to each element
        *_rows("TADD TSUB TMUL TMAX TMIN", "V", "dr sr sr", _NUMBERS),
        *_rows("TDIV", "V", "dr sr sr", _F),
        *_rows("TAND TOR", "V", "dr sr sr", _BITS),
        *_rows("TSHLS TSHRS", "V", "dr sr x", _BITS),
        *_rows("TEXP TLOG TSQRT", "V", "dr sr", _F),
        *_rows("TABS", "V", "dr sr", _F),
        *_rows("TRELU", "V", "dr sr", frozenset(["f16", "f32", "i32"])),
        *_rows("TNOT", "V", "dr sr", _BITS),
        *_rows("TMOV", "V", "dr sr", _ANY),
        *_rows("TMULADDDST TFUSEDMULADD", "V", "tr sr sr", _F),  # d += a * b, d = d * a + b
        *_rows("TAXPY", "V", "tr sr x", _F),
        *_rows("TCVT", "V", "dr sr x", _MOVED),
        *_rows("TEXPANDS", "V", "dr x", _ANY),
        *_rows("TADDS TSUBS TMULS TMAXS TMINS", "V", "dr sr x", _NUMBERS),
        *_rows("TDIVS", "V", "dr sr x", _F),  # or a scalar over a tile, when the scalar comes first
        *_rows("TCMP", "V", "dr sr sr x", frozenset(["u8"])),
        *_rows("TCMPS", "V", "dr sr x x", frozenset(["u8"])),
        *_rows("TSEL", "V", "dr sr sr sr tr", frozenset(["f16", "f32", "i16", "i32"])),
        *_rows("TROWSUM TROWMAX TROWMIN TROWPROD", "V", "dv sr tr", frozenset(["f32", "i32"])),
        *_rows("TCOLSUM TCOLMAX TCOLMIN TCOLPROD", "V", "dr sr", _NUMBERS),
        *_rows("TROWEXPAND", "V", "dr sc", _NUMBERS, True),
        *_rows(
            "TROWEXPANDADD TROWEXPANDSUB TROWEXPANDMUL TROWEXPANDMAX TROWEXPANDMIN", "V", "dr sr sc", _NUMBERS, True
        ),
        *_rows("TROWEXPANDDIV", "V", "dr sr sc", _F, True),
        *_rows("TCOLEXPAND", "V", "dr sr", _NUMBERS),
        *_rows("TCOLEXPANDADD TCOLEXPANDSUB TCOLEXPANDMUL TCOLEXPANDMAX TCOLEXPANDMIN", "V", "dr sr sr", _NUMBERS),
        *_rows("TCOLEXPANDDIV", "V", "dr sr sr", _F),
        *_rows("TCI", "S", "dr x", frozenset(["i16", "i32"])),
        *_rows("SetValue", "S", "dr x x", _MOVED),  # a function of the tile: of which element, and what
        *_rows("TTRANS", "V", "dr sr tr", _ANY),
        *_rows("TSORT32", "V", "dr sr sr", frozenset(["f32"])),
        *_rows("TMRGSORT", "V", "dr sr x", frozenset(["f32"])),  # runs of one length
        *_rows("TMRGSORT_2", "V", "dr sr sr tr", frozenset(["f32"])),
        *_rows("TMRGSORT_3", "V", "dr sr sr sr tr", frozenset(["f32"])),
        *_rows("TMRGSORT_4", "V", "dr sr sr sr sr tr", frozenset(["f32"])),
        *_rows("TGATHER", "V", "dr sr sr tr", frozenset(["f32", "i32"])),
        *_rows("TODD", "V", "dr sr", frozenset(["i32"])),  # TGATHER of every second element
        *_rows("TLOAD_L1", "MTE2", "dm sg", frozenset(["f16", "bf16", "f32", "i8"])),
        *_rows("TEXPANDS_L1", "MTE2", "dm x", frozenset(["f16", "i8"])),
        *_rows("TEXTRACT_LEFT", "MTE1", "da sm x x", frozenset(["f16", "bf16", "f32", "i8"])),
        *_rows("TEXTRACT_RIGHT", "MTE1", "db sm x x", frozenset(["f16", "bf16", "f32", "i8"])),
        *_rows("TMATMUL", "M", "dl sa sb", frozenset(["f32", "i32"])),
        *_rows("TMATMUL_ACC", "M", "dl sl sa sb", frozenset(["f32", "i32"])),
        *_rows("CALL", "V", "dr sr tr x x", frozenset(["f32"])),  # a function of the kernel's own
        *_rows("TSTORE_ACC", "FIX", "dg sl", frozenset(["f32", "i32", "f16", "bf16"])),
        *_rows("TSTORE_ACC_ADD", "FIX", "tg sl", frozenset(["f32", "i32", "f16", "bf16"])),
    )
}


def spelling(name: str) -> str:
    """The name in C++: instructions that differ in their operands' memories share one."""
    for prefix in ("TLOAD", "TSTORE", "TEXTRACT", "TEXPANDS", "TMRGSORT"):
        if name.startswith(prefix):
            return prefix
    return name

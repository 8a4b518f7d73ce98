# SPDX-License-Identifier: MIT
"""What a matrix product is made of on one machine: the arithmetic scheme, the vector width, the register tile.

A *unit* is one 32- or 64-bit lane of the packed operands; it holds a *group* of 1, 2 or 4 consecutive elements
along k, as the dot-product instructions want them.  Everything after packing counts k in groups.
"""

from __future__ import annotations

import re
from functools import cache

from pto_jit.slotted import frozen

INTEGERS = {"i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8}
FLOATS = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
SIZES = INTEGERS | FLOATS
STORAGE = {"f16": "half", "bf16": "i16", "f32": "float", "f64": "double"} | {
    n: f"i{8 * s}" for n, s in INTEGERS.items()
}

ACCUMULATE, FIXED_A, FIXED_B = 1, 2, 4
"""How a product is asked for, added up: C is added to; A, or B, does not change while the launch runs (as `pto_fixed`
says of memory), and other products of it may follow."""

CHUNK = 4
"""Elements of a row of A side by side in a panel for products of packed operands: rows are packed by copying them."""

LOW = 4
"""Rows of the low panels behind the last whole one."""


@frozen
class Machine:
    """The part of a processor that the generator looks at."""

    arch: str  # x86 | arm | other
    vector_bytes: int
    registers: int
    masks: bool  # masked loads and stores of every element size at full speed (AVX-512 BW/VL)
    fma: bool
    half: bool  # conversion f16 -> f32 in hardware
    bf16_dot: bool  # vdpbf16ps at the full width, faster than multiplying the widened numbers
    bf16_tiles: bool  # AMX
    byte_tiles: bool  # AMX
    byte_dot: str  # "avx512" | "avx" | "arm" | ""
    word_dot: bool  # vpdpwssd

    @staticmethod
    @cache
    def of(features: str, triple: str) -> Machine:
        """Read LLVM's feature string (``+avx512f,-amx,...``)."""
        on = {item[1:] for item in features.split(",") if item.startswith("+")}
        if re.match(r"x86_64|amd64|i[3-6]86", triple):
            wide = {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= on
            avx2 = {"avx2", "fma"} <= on
            return Machine(
                arch="x86",
                vector_bytes=64 if wide else 32 if avx2 else 16,
                registers=32 if wide else 16,
                masks=wide,
                fma=wide or "fma" in on,
                half=wide or "f16c" in on,
                # Processors with AMX (Sapphire Rapids and later) do vdpbf16ps at half the rate of f32 arithmetic.
                bf16_dot=wide and "avx512bf16" in on and "amx-tile" not in on,
                bf16_tiles=wide and {"avx512bf16", "amx-tile", "amx-bf16"} <= on,
                byte_tiles=wide and {"avx512vnni", "amx-tile", "amx-int8"} <= on,
                byte_dot="avx512" if wide and "avx512vnni" in on else "avx" if avx2 and "avxvnni" in on else "",
                word_dot=(wide and "avx512vnni" in on) or (avx2 and "avxvnni" in on),
            )
        arm = re.match(r"aarch64|arm64", triple) is not None
        return Machine(
            arch="arm" if arm else "other",
            vector_bytes=16,
            registers=32 if arm else 16,
            masks=False,
            fma=arm,
            half=arm,
            bf16_dot=False,
            bf16_tiles=False,
            byte_tiles=False,
            byte_dot="arm" if arm and "dotprod" in on else "",
            word_dot=False,
        )


@frozen
class Combo:
    """The dtypes of one product, by their language names."""

    a: str
    b: str
    c: str

    @property
    def symbol(self) -> str:
        """The entry for one product."""
        return f"pto_mm_{self.a}_{self.b}_{self.c}"


@frozen
class Scheme:
    """How one combo is computed on one machine: types of packed operands, lanes, register tile."""

    combo: Combo
    machine: Machine
    arithmetic: str  # fma | bf16 | byte | word | multiply
    unit: int  # bytes of a unit
    group: int  # elements in a unit
    packed: str  # LLVM type of one packed element
    accumulator: str  # LLVM type of one element of C
    offset_a: bool = False  # vectors move i8 A by 128 to the unsigned operand; packed B starts with the correction

    @property
    def lanes(self) -> int:
        """Units (columns of C) in a vector."""
        return self.machine.vector_bytes // self.unit

    @property
    def tiles(self) -> bool:
        """Whether products are made of the matrix tiles of `amx`; A is then always rows along k."""
        bytes_ = self.arithmetic == "byte" and self.machine.byte_tiles
        return bytes_ or (self.arithmetic == "bf16" and self.machine.bf16_tiles)

    @property
    def together(self) -> int:
        """Groups of k that packed operands are filled up to with zeros: those of a matrix tile."""
        return 16 if self.tiles else 1

    @property
    def tile_rows(self) -> int:
        """MR."""
        return 16 if self.tiles else self.vector_rows

    @property
    def vector_rows(self) -> int:
        """MR of the micro-kernels on vectors."""
        return self._tile[0]

    @property
    def tile_vectors(self) -> int:
        """NR in vectors."""
        return self._tile[1]

    @property
    def _tile(self) -> tuple[int, int]:
        """MR and NR.  With 32 registers 24 hold sums; six rows of four vectors load least, and four vectors divide the
        widths people choose.  Matrix tiles are two vectors wide, side by side, so that a panel fills all sets of L1."""
        if self.tiles:
            return 12, 2
        if self.machine.registers >= 32:
            return (6, 4) if self.machine.arch == "x86" else (8, 3)
        return (6 if self.machine.fma else 4), 2

    @property
    def tall_tile(self) -> tuple[int, int] | None:
        """MR and NR of the tile for B that streams by: more rows, so that B is read less often."""
        return (8, 3) if self._tile == (6, 4) and self.raw_b else None

    @property
    def tile_columns(self) -> int:
        """NR."""
        return self.tile_vectors * self.lanes

    @property
    def panelled(self) -> bool:
        """Whether products of packed operands have micro-kernels of their own (`panels`)."""
        return self.arithmetic == "fma" and self.machine.masks

    @property
    def pieces(self) -> int:
        """bf16 numbers that an element is the sum of, where large products are made of matrix tiles (`tiled`); or 0."""
        same = self.combo.a == self.combo.b and self.combo.c == "f32" and self.machine.bf16_tiles
        return {"f32": 3, "f16": 2}.get(self.combo.a, 0) if same else 0

    @property
    def sums(self) -> bool:
        """Whether sums of products are computed as one (`sums`)."""
        return self.panelled and self.raw_a

    @property
    def rounds(self) -> tuple[str, ...]:
        """Dtypes that results may be rounded to (`rounded`): that of operands of 16 bits, where there is an instruction
        for it or it is cut off."""
        a, b, c = self.combo.a, self.combo.b, self.combo.c
        return (a,) if c == "f32" and a == b and (a == "bf16" or (a == "f16" and self.machine.half)) else ()

    @property
    def panel_rows(self) -> int:
        """MR of products of packed operands."""
        return self._panel[0]

    @property
    def panel_vectors(self) -> int:
        """NR of products of packed operands, in vectors."""
        return self._panel[1]

    @property
    def panel_columns(self) -> int:
        """NR of products of packed operands."""
        return self.panel_vectors * self.lanes

    @property
    def pair_rows(self) -> int:
        """MR of tiles of two panels side by side, if `panelled`: an element of A is loaded once for four vectors.  A
        core that does two multiply-adds in a cycle has loads to spare then, while both panels come from L2."""
        return self.panel_rows // 2

    @property
    def _panel(self) -> tuple[int, int]:
        """MR and NR, in vectors, of products of packed operands: tall tiles, so that a panel of B stays in L1."""
        if self.tiles:
            return 2 * self.tile_rows, self.tile_vectors
        return (12, 2) if self.panelled else (self.tile_rows, self.tile_vectors)

    @property
    def element_a(self) -> int:
        """Bytes of an element of A in memory."""
        return SIZES[self.combo.a]

    @property
    def element_b(self) -> int:
        """Bytes of an element of B in memory."""
        return SIZES[self.combo.b]

    @property
    def element_packed(self) -> int:
        """Bytes of a packed element."""
        return self.unit // self.group

    @property
    def element_c(self) -> int:
        """Bytes of an element of C."""
        return SIZES[self.combo.c]

    @property
    def raw_a(self) -> bool:
        """A can be read where it lies (no conversion)."""
        return STORAGE[self.combo.a] == self.packed

    @property
    def raw_b(self) -> bool:
        """B with contiguous columns can be read where it lies."""
        return STORAGE[self.combo.b] == self.packed and self.group == 1

    @property
    def header(self) -> int:
        """Bytes before each packed panel of B of full width: its correction, which tiles do not need."""
        return self.tile_columns * self.unit if self.offset_a and not self.tiles else 0

    @property
    def symmetric(self) -> bool:
        """A and B may change places."""
        return self.combo.a == self.combo.b

    @property
    def integral(self) -> bool:
        """C is an integer."""
        return self.combo.c in INTEGERS


def scheme_of(combo: Combo, machine: Machine) -> Scheme:
    """Choose the arithmetic; ``KeyError``-free: raises ValueError for dtypes no product is defined for."""
    a, b, c = combo.a, combo.b, combo.c
    if a in FLOATS and b in FLOATS:
        if c == "f64":
            return Scheme(combo, machine, "fma", 8, 1, "double", "double")
        if c != "f32" or "f64" in (a, b):
            raise ValueError(f"no matrix product {a} x {b} -> {c}: floats accumulate in f32, or in f64")
        if a == b == "bf16" and (machine.bf16_dot or machine.bf16_tiles):
            return Scheme(combo, machine, "bf16", 4, 2, "i16", "float")
        return Scheme(combo, machine, "fma", 4, 1, "float", "float")
    if a in INTEGERS and b in INTEGERS and c in ("i32", "u32", "i64", "u64"):
        if SIZES[c] == 8:
            return Scheme(combo, machine, "multiply", 8, 1, "i64", "i64")
        if machine.byte_dot == "arm" and a == b and a in ("i8", "u8"):
            return Scheme(combo, machine, "byte", 4, 4, "i8", "i32")
        if machine.byte_dot.startswith("avx") and a in ("i8", "u8") and b == "i8":
            return Scheme(combo, machine, "byte", 4, 4, "i8", "i32", offset_a=a == "i8")
        if machine.arch == "x86" and {a, b} <= {"i8", "u8", "i16"}:
            return Scheme(combo, machine, "word", 4, 2, "i16", "i32")
        return Scheme(combo, machine, "multiply", 4, 1, "i32", "i32")
    raise ValueError(f"no matrix product {a} x {b} -> {c}")

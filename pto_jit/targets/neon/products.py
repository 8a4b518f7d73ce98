# SPDX-License-Identifier: MIT
"""The inner loops of matrix products: blocks of sums in 24 registers, each step of the contraction 24 multiply-adds.

An element of `a` is a lane of a register that holds several rows.  With 4 lanes a block has 8 x 12 sums and a step
needs 5 more registers, with f64 it has 8 x 6 and needs 7.  One instruction loads two registers, so two steps together
load what they need with 5 or 7: the third register of `b` comes with the first one of the next step.  With f64 half of
`a` is loaded at a time, so that 30 or 31 of 32 registers are in use: loads stay in their step (`PTO_STAY`), and a
multiply-add changes the register of its sum (`PTO_FMLA`).  Otherwise gcc, up to 12 at least, moves sums between
registers.

Bytes are multiplied four at a time where the processor has dot products (`-march=armv8.2-a+dotprod`): a lane then holds
four neighbours along the contraction.
"""

from __future__ import annotations

from pto_jit.dtypes import DType
from pto_jit.slotted import frozen

_ROWS, _VECTORS = 8, 3


@frozen
class Inner:
    """rows x columns sums; `body`: the statements of `block(sums, a, b, depth)`, see `targets.c.products`.

    grouped: those where four bytes of the contraction are one step, used if `condition` holds for the preprocessor.
    """

    rows: int
    columns: int
    body: str
    grouped: str | None = None
    condition: str = ""


def _inner(vector: str, kind: str, lanes: int, add: str, zero: str = "0") -> Inner:
    """The block with sums in `vector`s of that many lanes; `kind`: as intrinsics name it, `add`: a multiply-add."""
    unrolled = 32 // lanes
    columns, height = lanes * _VECTORS, _ROWS // lanes
    sums = [[f"c{i}_{j}" for j in range(_VECTORS)] for i in range(_ROWS)]

    def load(name: str, numbers: range, step: int) -> list[str]:
        """Registers of `a` or `b`, a pair to a line; their numbers count from the place of step `s`."""
        places = [f"{name}{k} = vld1q_{kind}({name} + {step} * s + {lanes * k})" for k in numbers]
        return [f"const {vector} {', '.join(places[k : k + 2])};" for k in range(0, len(places), 2)]

    def multiply(rows: range, a: int, b: int) -> list[str]:
        """These rows of the sums, with the registers of `a` and `b` from those numbers on."""
        return [" ".join(f"{add}({sums[i][j]}, b{b + j}, a{a + i // lanes}, {i % lanes});" for j in range(_VECTORS))
                for i in rows]  # fmt: skip

    one = [*load("a", range(height), _ROWS), *load("b", range(_VECTORS), columns), *multiply(range(_ROWS), 0, 0),
           "PTO_STAY;"]  # fmt: skip
    two: list[str] = []
    at_once = 2 * lanes  # rows: two registers
    for step, new in enumerate((range(_VECTORS + 1), range(_VECTORS + 1, 2 * _VECTORS))):
        two += load("b", new, columns)
        for first in range(0, _ROWS, at_once):
            rows = range(first, first + at_once)
            start = height * step
            two += load("a", range(start + rows[0] // lanes, start + rows[-1] // lanes + 1), _ROWS)
            two += [*multiply(rows, start, _VECTORS * step), "PTO_STAY;"]
    lines = [f"  const {vector} zero = vdupq_n_{kind}({zero});"]
    lines += [f"  {vector} {', '.join(f'{c} = zero' for c in row)};" for row in sums]
    lines.append("  int64_t p = 0;")
    for steps, by, body in ((unrolled, 2, two), (1, 1, one)):
        lines += [
            f"  for (; p + {steps} <= depth; p += {steps}, a += {_ROWS * steps}, b += {columns * steps}) {{",
            f"#pragma GCC unroll {steps // by}", f"    for (int s = 0; s < {steps}; s += {by}) {{",
            *(f"      {line}" for line in body), "    }", "  }",
        ]  # fmt: skip
    lines += [f"  vst1q_{kind}(sums + {columns * i + lanes * j}, {sums[i][j]});"
              for i in range(_ROWS) for j in range(_VECTORS)]  # fmt: skip
    return Inner(_ROWS, columns, "\n".join(lines) + "\n")


_OF_SUMS = {
    "f32": _inner("float32x4_t", "f32", 4, "PTO_FMLA", "0.0f"),
    "f64": _inner("float64x2_t", "f64", 2, "PTO_FMLA_F64", "0.0"),
    "i32": _inner("int32x4_t", "s32", 4, "PTO_MLA"), "u32": _inner("uint32x4_t", "u32", 4, "PTO_MLA_U32"),
}  # fmt: skip
_OF_BYTES = {"i8": _inner("int32x4_t", "s32", 4, "PTO_SDOT"), "u8": _inner("int32x4_t", "s32", 4, "PTO_UDOT")}


def inner(a: DType, b: DType, c: DType) -> Inner | None:
    """The inner loop of products of elements a and b that sum in c; None: the c target's serves."""
    found = _OF_SUMS.get(c.name)
    grouped = _OF_BYTES.get(a.name)
    if found is None or grouped is None or a != b or c.name != "i32":
        return found
    return Inner(found.rows, found.columns, found.body, grouped.body, "defined(__ARM_FEATURE_DOTPROD)")

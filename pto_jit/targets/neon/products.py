# SPDX-License-Identifier: MIT
"""The inner loops of matrix products: blocks of sums in 24 registers, each step of the contraction 24 multiply-adds.

An element of `a` is a lane of a register that holds several rows.  With 4 lanes a block has 8 x 12 sums and a step
needs 5 more registers, which 3 instructions load; with f64 it has 8 x 6 and needs 7, which 4 load.  So 29 or 31 of 32
registers are in use: loads stay in their step (`PTO_STAY`), and a multiply-add changes the register of its sum
(`PTO_FMLA`).  Otherwise gcc, up to 12 at least, moves sums between registers.

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
    unrolled = 32 // lanes
    columns = lanes * _VECTORS
    sums = [[f"c{i}_{j}" for j in range(_VECTORS)] for i in range(_ROWS)]
    lines = [f"  const {vector} zero = vdupq_n_{kind}({zero});"]
    lines += [f"  {vector} {', '.join(f'{c} = zero' for c in row)};" for row in sums]
    left = ", ".join(f"a{i} = vld1q_{kind}(a + {_ROWS} * s + {lanes * i})" for i in range(_ROWS // lanes))
    right = ", ".join(f"b{j} = vld1q_{kind}(b + {columns} * s + {lanes * j})" for j in range(_VECTORS))
    step = [
        f"const {vector} {left};", f"const {vector} {right};",
        *(" ".join(f"{add}({c}, b{j}, a{i // lanes}, {i % lanes});" for j, c in enumerate(sums[i]))
          for i in range(_ROWS)),
        "PTO_STAY;",
    ]  # fmt: skip
    lines.append("  int64_t p = 0;")
    for unroll in (unrolled, 1):
        lines += [
            f"  for (; p + {unroll} <= depth; p += {unroll}, a += {_ROWS * unroll}, b += {columns * unroll}) {{",
            f"#pragma GCC unroll {unroll}", f"    for (int s = 0; s < {unroll}; ++s) {{",
            *(f"      {line}" for line in step), "    }", "  }",
        ]  # fmt: skip
    lines += [f"  vst1q_{kind}(sums + {columns * i + lanes * j}, {sums[i][j]});"
              for i in range(_ROWS) for j in range(_VECTORS)]  # fmt: skip
    return Inner(_ROWS, columns, "\n".join(lines) + "\n")


_OF_SUMS = {
    "f32": _inner("float32x4_t", "f32", 4, "PTO_FMLA", "0.0f"),
    "f64": _inner("float64x2_t", "f64", 2, "PTO_FMLA_F64", "0.0"),
    "i32": _inner("int32x4_t", "s32", 4, "PTO_MLA"), "u32": _inner("uint32x4_t", "u32", 4, "PTO_MLA_U32"),
}  # fmt: skip
_OF_BYTES = {"i8": _inner("int32x4_t", "s32", 4, "PTO_SDOT"), "u8": _inner("uint32x4_t", "u32", 4, "PTO_UDOT")}
_SUMS = {"i8": "i32", "u8": "u32"}


def inner(a: DType, b: DType, c: DType) -> Inner | None:
    """The inner loop of products of elements a and b that sum in c; None: the c target's serves."""
    found = _OF_SUMS.get(c.name)
    if found is None or a != b or _SUMS.get(a.name) != c.name:
        return found
    grouped = _OF_BYTES[a.name]
    return Inner(found.rows, found.columns, found.body, grouped.body, "defined(__ARM_FEATURE_DOTPROD)")

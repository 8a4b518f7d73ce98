# SPDX-License-Identifier: MIT
"""The inner loop of matrix products: 8 x 12 sums in 24 registers, each step of the contraction 24 multiply-adds.

An element of `a` is a lane of a register that holds four rows, so a step needs 5 more registers, which 3 instructions
load.  Of 32 registers 29 are in use: loads stay in their step (`PTO_STAY`), and a multiply-add changes the register of
its sum (`PTO_FMLA`).  Otherwise gcc, up to 12 at least, moves sums between registers.
"""

from __future__ import annotations

from pto_jit.slotted import frozen

_ROWS, _VECTORS, _UNROLL = 8, 3, 8


@frozen
class Inner:
    """rows x columns sums; `body`: the statements of `block(sums, a, b, depth)`, see `targets.c.products`."""

    rows: int
    columns: int
    body: str


def _f32() -> Inner:
    columns = 4 * _VECTORS
    sums = [[f"c{i}_{j}" for j in range(_VECTORS)] for i in range(_ROWS)]
    lines = [f"  float32x4_t {', '.join(f'{c} = zero' for c in row)};" for row in sums]
    left = ", ".join(f"a{i} = vld1q_f32(a + {_ROWS} * s + {4 * i})" for i in range(_ROWS // 4))
    right = ", ".join(f"b{j} = vld1q_f32(b + {columns} * s + {4 * j})" for j in range(_VECTORS))
    step = [
        f"const float32x4_t {left};", f"const float32x4_t {right};",
        *(" ".join(f"PTO_FMLA({c}, b{j}, a{i // 4}, {i % 4});" for j, c in enumerate(sums[i]))
          for i in range(_ROWS)),
        "PTO_STAY;",
    ]  # fmt: skip
    lines.append("  int64_t p = 0;")
    for unroll in (_UNROLL, 1):
        lines += [
            f"  for (; p + {unroll} <= depth; p += {unroll}, a += {_ROWS * unroll}, b += {columns * unroll}) {{",
            f"#pragma GCC unroll {unroll}", f"    for (int s = 0; s < {unroll}; ++s) {{",
            *(f"      {line}" for line in step), "    }", "  }",
        ]  # fmt: skip
    lines += [f"  vst1q_f32(sums + {columns * i + 4 * j}, {sums[i][j]});"
              for i in range(_ROWS) for j in range(_VECTORS)]  # fmt: skip
    text = "\n".join(["  const float32x4_t zero = vdupq_n_f32(0.0f);", *lines])
    return Inner(_ROWS, columns, text + "\n")


F32 = _f32()

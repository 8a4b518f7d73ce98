# SPDX-License-Identifier: MIT
"""Matrix products as C functions: packed operands and a block of the result in registers.

The scheme is that of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34, 2008): a
slice of `b` and a block of `a` are copied so that the inner loop reads both in order, and that loop keeps
ROWS x COLUMNS sums in registers.
"""

from __future__ import annotations

from typing import Any

from pto_jit.dtypes import BY_NAME, DType
from pto_jit.targets.c.tidy import wrapped
from pto_jit.targets.c.values import SIZES, memory_ctype, register_ctype

ROWS, COLUMNS = 6, 16
"""Of the block in registers, for 4-byte sums; 8-byte sums take half as many columns."""


class Product:
    """`pto_mm_<a>_<b>_<c>`: c = a @ b, or added to c."""

    def __init__(self, name: str, dialect: Any = None) -> None:
        a, b, c = (BY_NAME[n] for n in _dtypes(name))
        self.name = name
        self.a, self.b, self.c = a, b, c
        self.rows, self.columns = ROWS, COLUMNS if c.bits <= 32 else COLUMNS // 2
        own = None if dialect is None else dialect.product(c)
        self.inner = own.body if own is not None else None
        if own is not None:
            self.rows, self.columns = own.rows, own.columns
        self.ctypes = ("", "", "", "", memory_ctype(a), "", "", memory_ctype(b), "", "", memory_ctype(c), "", "", "")

    def text(self) -> str:
        """The function and what it is made of."""
        sum_type = register_ctype(self.c)
        fused = {"float": "fmaf(a[i], b[j], c[i][j])", "double": "fma(a[i], b[j], c[i][j])"}.get(
            sum_type, "c[i][j] + a[i] * b[j]"
        )
        names = {
            "NAME": self.name, "A": memory_ctype(self.a), "B": memory_ctype(self.b), "C": memory_ctype(self.c),
            "SUM": sum_type, "ROWS": str(self.rows), "COLUMNS": str(self.columns),
            "READ_A": _widened(self.a, sum_type), "READ_B": _widened(self.b, sum_type), "FMA": fused,
        }  # fmt: skip
        text = _TEMPLATE.replace("@BLOCK@", self.block())
        for key, value in names.items():
            text = text.replace(f"@{key}@", value)
        return text


    def block(self) -> str:
        """The inner loop: vectors of 32 bytes where the compiler has such types, else plain loops."""
        if self.inner is not None:
            return f"PTO_APART {_HEAD}\n{self.inner}}}"
        lanes = 32 // SIZES[register_ctype(self.c)]
        rows, parts = range(self.rows), range(self.columns // lanes)
        vectors = ", ".join(f"c{i}{j} = zero" for i in rows for j in parts)
        lines = [
            _HEAD.replace("static void", "PTO_CONTRACT static void"), "  PTO_CONTRACTED",
            f"  const pto_v_{self.c} zero = {{0}};",
            f"  pto_v_{self.c} {vectors};", "  for (int64_t p = 0; p < depth; ++p, a += @ROWS@, b += @COLUMNS@) {",
            f"    pto_v_{self.c} {', '.join(f'b{j}' for j in parts)};",
            *(f"    memcpy(&b{j}, b + {j * lanes}, 32);" for j in parts),
            *("    " + " ".join(f"c{i}{j} += a[{i}] * b{j};" for j in parts) for i in rows), "  }",
            *(f"  memcpy(sums + {i} * @COLUMNS@ + {j * lanes}, &c{i}{j}, 32);" for i in rows for j in parts),
        ]  # fmt: skip
        fast = "\n".join(wrapped(line, 6) for line in lines)
        return f"#if defined(__GNUC__)\n{fast}\n}}\n#else\n{_HEAD}\n{_PLAIN_BLOCK}}}\n#endif"


def _dtypes(name: str) -> list[str]:
    """The three dtypes in the name; that of bool has an underscore."""
    return [p for p in name.removeprefix("pto_mm_").replace("bool_", "bool").replace("bool", "bool_").split("_") if p]


def _widened(dtype: DType, sum_type: str) -> str:
    """An element `x` as what is summed."""
    if dtype.kind == "f" and dtype.bits == 16:
        return f"pto_widened_{dtype}(x)"
    return "x" if register_ctype(dtype) == sum_type else f"({sum_type})x"


_TEMPLATE = """\
// c[m, n] = a[m, k] @ b[k, n], or added to c. Strides count elements.
enum { @NAME@_depth = 256, @NAME@_rows = @ROWS@ * 16, @NAME@_columns = @COLUMNS@ * 16 };

static inline @SUM@ @NAME@_a(@A@ x) { return @READ_A@; }
static inline @SUM@ @NAME@_b(@B@ x) { return @READ_B@; }

// @ROWS@ rows of a (or @COLUMNS@ columns of b), element by element of the contraction; what is missing is 0.
static void @NAME@_pack_a(@SUM@ *to, const @A@ *a, int64_t row, int64_t step, int64_t rows, int64_t depth) {
  for (int64_t p = 0; p < depth; ++p)
    for (int64_t i = 0; i < @ROWS@; ++i) *to++ = i < rows ? @NAME@_a(a[i * row + p * step]) : 0;
}
static void @NAME@_pack_b(@SUM@ *to, const @B@ *b, int64_t step, int64_t column, int64_t depth, int64_t columns) {
  if (columns == @COLUMNS@ && column == 1) {
    for (int64_t p = 0; p < depth; ++p)
      for (int64_t j = 0; j < @COLUMNS@; ++j) *to++ = @NAME@_b(b[p * step + j]);
    return;
  }
  for (int64_t p = 0; p < depth; ++p)
    for (int64_t j = 0; j < @COLUMNS@; ++j) *to++ = j < columns ? @NAME@_b(b[p * step + j * column]) : 0;
}

// The sums of @ROWS@ x @COLUMNS@ elements of c.
@BLOCK@

static int32_t @NAME@(pto_worker *worker, int64_t m, int64_t n, int64_t k, const @A@ *a, int64_t a_row, int64_t a_step,
                      const @B@ *b, int64_t b_step, int64_t b_column, @C@ *c, int64_t c_row, int64_t c_column,
                      int32_t accumulate) {
  enum { depth_most = @NAME@_depth, rows_most = @NAME@_rows, columns_most = @NAME@_columns };
  @SUM@ *const packed_a = pto_scratch_push(worker, (int64_t)sizeof(@SUM@) * depth_most * (rows_most + columns_most));
  if (packed_a == NULL) return PTO_NO_MEMORY;
  @SUM@ *const packed_b = packed_a + depth_most * rows_most;
  for (int64_t p0 = 0; p0 < k || p0 == 0; p0 += depth_most) {
    const int64_t depth = pto_min(k - p0, depth_most);
    const bool add = accumulate != 0 || p0 > 0;
    for (int64_t j0 = 0; j0 < n; j0 += columns_most) {
      const int64_t columns = pto_min(n - j0, columns_most);
      for (int64_t j = 0; j < columns; j += @COLUMNS@)
        @NAME@_pack_b(packed_b + j * depth, b + p0 * b_step + (j0 + j) * b_column, b_step, b_column, depth,
                      pto_min(columns - j, @COLUMNS@));
      for (int64_t i0 = 0; i0 < m; i0 += rows_most) {
        const int64_t rows = pto_min(m - i0, rows_most);
        for (int64_t i = 0; i < rows; i += @ROWS@)
          @NAME@_pack_a(packed_a + i * depth, a + (i0 + i) * a_row + p0 * a_step, a_row, a_step,
                        pto_min(rows - i, @ROWS@), depth);
        for (int64_t j = 0; j < columns; j += @COLUMNS@) {
          for (int64_t i = 0; i < rows; i += @ROWS@) {
            @SUM@ sums[@ROWS@ * @COLUMNS@];
            @NAME@_block(sums, packed_a + i * depth, packed_b + j * depth, depth);
            @C@ *const to = c + (i0 + i) * c_row + (j0 + j) * c_column;
            const int64_t height = pto_min(rows - i, @ROWS@), width = pto_min(columns - j, @COLUMNS@);
            for (int64_t r = 0; r < height; ++r)
              for (int64_t s = 0; s < width; ++s) {
                @C@ *const element = to + r * c_row + s * c_column;
                *element = add ? *element + sums[r * @COLUMNS@ + s] : sums[r * @COLUMNS@ + s];
              }
          }
        }
      }
    }
  }
  pto_scratch_pop(worker, packed_a);
  return PTO_OK;
}
"""
_HEAD = """\
static void @NAME@_block(@SUM@ sums[restrict @ROWS@ * @COLUMNS@], const @SUM@ *restrict a, const @SUM@ *restrict b,
                         int64_t depth) {"""
_PLAIN_BLOCK = """\
  @SUM@ c[@ROWS@][@COLUMNS@] = {{0}};
  for (int64_t p = 0; p < depth; ++p, a += @ROWS@, b += @COLUMNS@)
    for (int i = 0; i < @ROWS@; ++i)
      for (int j = 0; j < @COLUMNS@; ++j) c[i][j] = @FMA@;
  for (int i = 0; i < @ROWS@; ++i)
    for (int j = 0; j < @COLUMNS@; ++j) sums[i * @COLUMNS@ + j] = c[i][j];
"""

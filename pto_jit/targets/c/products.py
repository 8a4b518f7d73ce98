# SPDX-License-Identifier: MIT
"""Matrix products as C functions: packed operands and a block of the result in registers.

The scheme is that of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34, 2008): a
slice of `b` and a block of `a` are copied so that the inner loop reads both in order, and that loop keeps
ROWS x COLUMNS sums in registers.
"""

from __future__ import annotations

from typing import Any

from pto_jit.dtypes import BY_NAME, DType
from pto_jit.targets.c.values import SIZES, memory_ctype, register_ctype
from pto_jit.targets.source.text import wrapped

_BLOCKS = {64: (12, 2), 32: (6, 2)}
"""Rows and vectors of the block in registers, by the bytes of a vector: 32 registers with AVX-512, 16 else."""


class Product:
    """`pto_mm_<a>_<b>_<c>`: c = a @ b, or added to c; with `_mt` over the workers."""

    def __init__(self, name: str, dialect: Any = None) -> None:
        a, b, c = (BY_NAME[n] for n in _dtypes(name))
        self.name = name
        self.a, self.b, self.c = a, b, c
        self.inner = None if dialect is None else dialect.product(a, b, c)
        self.divided = False  # whether `_mt` is called, too
        self.ctypes = ("", "", "", "", memory_ctype(a), "", "", memory_ctype(b), "", "", memory_ctype(c), "", "", "")

    def helpers(self) -> list[tuple[str, str]]:
        """The functions by the name that is called, with what they are made of."""
        grouped = self.inner is not None and self.inner.grouped is not None
        text = _TEMPLATE.replace("@PACK@", "" if grouped else _PACK).replace("@STEPS@", _STEPS if grouped else "")
        text = text.replace("@PACKED@", "steps" if grouped else "depth")
        out = [(self.name, self._filled(text.replace("@BLOCK@", self.block())))]
        if self.divided:
            out.append((f"{self.name}_mt", self._filled(_DIVIDED)))
        return out

    def _filled(self, text: str) -> str:
        sum_type = register_ctype(self.c)
        fused = {"float": "fmaf(a[i], b[j], c[i][j])", "double": "fma(a[i], b[j], c[i][j])"}.get(
            sum_type, "c[i][j] + a[i] * b[j]"
        )
        names = {
            "NAME": self.name, "A": memory_ctype(self.a), "B": memory_ctype(self.b), "C": memory_ctype(self.c),
            "SUM": sum_type, "ROWS": f"{self.name}_height", "COLUMNS": f"{self.name}_width",
            "READ_A": _widened(self.a, sum_type), "READ_B": _widened(self.b, sum_type), "FMA": fused,
        }  # fmt: skip
        for key, value in names.items():
            text = text.replace(f"@{key}@", value)
        return text

    def block(self) -> str:
        """The size of the block of sums and the inner loop: in vectors where the compiler has such types."""
        if self.inner is not None:
            size, bodies = _size(self.inner.rows, self.inner.columns), (self.inner.body, self.inner.grouped)
            plain, grouped = (f"PTO_APART {_HEAD}\n{body}}}" for body in bodies)
            if self.inner.grouped is None:
                return f"{size}\n{plain}"
            group = "enum {{ @NAME@_group = {} }};  // neighbours along the contraction in an element of what is packed"
            return (f"{size}\n#if {self.inner.condition}\n{group.format(4)}\n{grouped}\n\n{_PACK_GROUPS}#else\n"
                    f"{group.format(1)}\n{plain}\n\n{_PACK.rstrip()}\n#endif")  # fmt: skip
        size = SIZES[register_ctype(self.c)]
        wide, narrow = (self._vectors(*_BLOCKS[n], n // size) for n in (64, 32))
        plain = f"{_size(6, 64 // size)}\n{_HEAD}\n{_PLAIN_BLOCK}}}"
        return f"#if PTO_VECTOR_BYTES == 64\n{wide}\n#elif defined(__GNUC__)\n{narrow}\n#else\n{plain}\n#endif"

    def _vectors(self, high: int, wide: int, lanes: int) -> str:
        """A block of high rows of some vectors, all sums in registers."""
        rows, parts = range(high), range(wide)
        vectors = ", ".join(f"c{i}_{j} = zero" for i in rows for j in parts)
        lines = [
            _HEAD.replace("static void", "PTO_CONTRACT static void"), "  PTO_CONTRACTED",
            f"  const pto_v_{self.c} zero = {{0}};",
            f"  pto_v_{self.c} {vectors};",
            f"  for (int64_t p = 0; p < depth; ++p, a += {high}, b += {wide * lanes}) {{",
            f"    pto_v_{self.c} {', '.join(f'b{j}' for j in parts)};",
            *(f"    memcpy(&b{j}, b + {j * lanes}, sizeof b{j});" for j in parts),
            *("    " + " ".join(f"c{i}_{j} += a[{i}] * b{j};" for j in parts) for i in rows), "  }",
            *(f"  memcpy(sums + {(i * wide + j) * lanes}, &c{i}_{j}, sizeof c{i}_{j});" for i in rows for j in parts),
        ]  # fmt: skip
        text = "\n".join(wrapped(line, 6) for line in lines)
        return f"{_size(high, wide * lanes)}\n{text}\n}}"


def _size(rows: int, columns: int) -> str:
    return f"enum {{ @NAME@_height = {rows}, @NAME@_width = {columns} }};"


def _dtypes(name: str) -> list[str]:
    """The three dtypes in the name; that of bool has an underscore."""
    return [p for p in name.removeprefix("pto_mm_").replace("bool_", "bool").replace("bool", "bool_").split("_") if p]


def _widened(dtype: DType, sum_type: str) -> str:
    """An element `x` as what is summed."""
    if dtype.kind == "f" and dtype.bits == 16:
        return f"pto_widened_{dtype}(x)"
    return "x" if register_ctype(dtype) == sum_type else f"({sum_type})x"


_TEMPLATE = """\
// c[m, n] = a[m, k] @ b[k, n], or added to c. Strides count elements. A block of sums is kept in registers.
@BLOCK@

enum { @NAME@_depth = 256, @NAME@_rows = @ROWS@ * 16, @NAME@_columns = @COLUMNS@ * 16 };

@PACK@\
static int32_t @NAME@(pto_worker *worker, int64_t m, int64_t n, int64_t k, const @A@ *a, int64_t a_row, int64_t a_step,
                      const @B@ *b, int64_t b_step, int64_t b_column, @C@ *c, int64_t c_row, int64_t c_column,
                      int32_t accumulate) {
  enum { depth_most = @NAME@_depth, rows_most = @NAME@_rows, columns_most = @NAME@_columns };
  @SUM@ *const packed_a = pto_scratch_push(worker, (int64_t)sizeof(@SUM@) * depth_most * (rows_most + columns_most));
  if (packed_a == NULL) return PTO_NO_MEMORY;
  @SUM@ *const packed_b = packed_a + depth_most * rows_most;
  for (int64_t p0 = 0; p0 < k || p0 == 0; p0 += depth_most) {
    const int64_t depth = pto_min(k - p0, depth_most);
@STEPS@    const bool add = accumulate != 0 || p0 > 0;
    for (int64_t j0 = 0; j0 < n; j0 += columns_most) {
      const int64_t columns = pto_min(n - j0, columns_most);
      for (int64_t j = 0; j < columns; j += @COLUMNS@)
        @NAME@_pack_b(packed_b + j * @PACKED@, b + p0 * b_step + (j0 + j) * b_column, b_step, b_column, depth,
                      pto_min(columns - j, @COLUMNS@));
      for (int64_t i0 = 0; i0 < m; i0 += rows_most) {
        const int64_t rows = pto_min(m - i0, rows_most);
        for (int64_t i = 0; i < rows; i += @ROWS@)
          @NAME@_pack_a(packed_a + i * @PACKED@, a + (i0 + i) * a_row + p0 * a_step, a_row, a_step,
                        pto_min(rows - i, @ROWS@), depth);
        for (int64_t j = 0; j < columns; j += @COLUMNS@) {
          for (int64_t i = 0; i < rows; i += @ROWS@) {
            @SUM@ sums[@ROWS@ * @COLUMNS@];
            @NAME@_block(sums, packed_a + i * @PACKED@, packed_b + j * @PACKED@, @PACKED@);
            @C@ *const to = c + (i0 + i) * c_row + (j0 + j) * c_column;
            const int64_t height = pto_min(rows - i, @ROWS@), width = pto_min(columns - j, @COLUMNS@);
            if (width == @COLUMNS@ && c_column == 1) {
              for (int64_t r = 0; r < height; ++r) {
                @C@ *const row = to + r * c_row;
                const @SUM@ *const from = sums + r * @COLUMNS@;
                if (add) {
                  for (int64_t s = 0; s < @COLUMNS@; ++s) row[s] += from[s];
                } else {
                  for (int64_t s = 0; s < @COLUMNS@; ++s) row[s] = from[s];
                }
              }
              continue;
            }
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
_PACK = """\
static inline @SUM@ @NAME@_a(@A@ x) { return @READ_A@; }
static inline @SUM@ @NAME@_b(@B@ x) { return @READ_B@; }

// The rows of a block of a (or the columns of b), element by element of the contraction; what is missing is 0.
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

"""
_STEPS = "    const int64_t steps = (depth + @NAME@_group - 1) / @NAME@_group;\n"
_PACK_GROUPS = """\
// The rows of a block of a (or the columns of b), four elements of the contraction at a time; what is missing is 0.
static void @NAME@_pack_a(@SUM@ *to, const @A@ *a, int64_t row, int64_t step, int64_t rows, int64_t depth) {
  @A@ *bytes = (@A@ *)to;
  for (int64_t p = 0; p < depth; p += 4)
    for (int64_t i = 0; i < @ROWS@; ++i)
      for (int64_t q = p; q < p + 4; ++q) *bytes++ = i < rows && q < depth ? a[i * row + q * step] : 0;
}
static void @NAME@_pack_b(@SUM@ *to, const @B@ *b, int64_t step, int64_t column, int64_t depth, int64_t columns) {
  @B@ *bytes = (@B@ *)to;
  for (int64_t p = 0; p < depth; p += 4)
    for (int64_t j = 0; j < @COLUMNS@; ++j)
      for (int64_t q = p; q < p + 4; ++q) *bytes++ = j < columns && q < depth ? b[q * step + j * column] : 0;
}
"""
_DIVIDED = """\
// The same over the workers, by rows or by columns of c, whichever are more.
struct @NAME@_operands {
  int64_t m, n, k;
  const @A@ *a;
  int64_t a_row, a_step;
  const @B@ *b;
  int64_t b_step, b_column;
  @C@ *c;
  int64_t c_row, c_column, piece;
  int32_t accumulate;
};

static int32_t @NAME@_piece(pto_worker *worker, void *context, int64_t begin, int64_t end) {
  const struct @NAME@_operands *const o = context;
  const int64_t first = begin * o->piece, count = pto_min(end * o->piece, pto_max(o->m, o->n)) - first;
  if (o->m >= o->n)
    return @NAME@(worker, count, o->n, o->k, o->a + first * o->a_row, o->a_row, o->a_step, o->b, o->b_step, o->b_column,
                  o->c + first * o->c_row, o->c_row, o->c_column, o->accumulate);
  return @NAME@(worker, o->m, count, o->k, o->a, o->a_row, o->a_step, o->b + first * o->b_column, o->b_step,
                o->b_column, o->c + first * o->c_column, o->c_row, o->c_column, o->accumulate);
}

static int32_t @NAME@_mt(pto_worker *worker, int64_t m, int64_t n, int64_t k, const @A@ *a, int64_t a_row,
                         int64_t a_step, const @B@ *b, int64_t b_step, int64_t b_column, @C@ *c, int64_t c_row,
                         int64_t c_column, int32_t accumulate) {
  enum { least = 1 << 20 };  // multiply-adds that are worth a thread
  const int64_t most = pto_max(m, n), work = pto_max(pto_min(m, n) * k, 1), unit = m >= n ? 4 * @ROWS@ : 2 * @COLUMNS@;
  const int64_t piece = (pto_max((most + 31) / 32, least / work + 1) + unit - 1) / unit * unit;
  if (piece >= most)
    return @NAME@(worker, m, n, k, a, a_row, a_step, b, b_step, b_column, c, c_row, c_column, accumulate);
  struct @NAME@_operands operands = {m, n, k, a, a_row, a_step, b, b_step, b_column, c, c_row, c_column, piece,
                                     accumulate};
  return pto_parallel_for(worker, @NAME@_piece, &operands, 0, (most + piece - 1) / piece, 1);
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

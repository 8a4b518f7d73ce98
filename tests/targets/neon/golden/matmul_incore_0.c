// SPDX-License-Identifier: MIT
// matmul_incore_0 of matmul, written by pto_jit.
#include "matmul_functions.h"

// c[m, n] = a[m, k] @ b[k, n], or added to c. Strides count elements. A block of sums is kept in registers.
enum { pto_mm_f32_f32_f32_height = 8, pto_mm_f32_f32_f32_width = 12 };
PTO_APART static void pto_mm_f32_f32_f32_block(float sums[restrict pto_mm_f32_f32_f32_height * pto_mm_f32_f32_f32_width], const float *restrict a, const float *restrict b,
                         int64_t depth) {
  const float32x4_t zero = vdupq_n_f32(0.0f);
  float32x4_t c0_0 = zero, c0_1 = zero, c0_2 = zero;
  float32x4_t c1_0 = zero, c1_1 = zero, c1_2 = zero;
  float32x4_t c2_0 = zero, c2_1 = zero, c2_2 = zero;
  float32x4_t c3_0 = zero, c3_1 = zero, c3_2 = zero;
  float32x4_t c4_0 = zero, c4_1 = zero, c4_2 = zero;
  float32x4_t c5_0 = zero, c5_1 = zero, c5_2 = zero;
  float32x4_t c6_0 = zero, c6_1 = zero, c6_2 = zero;
  float32x4_t c7_0 = zero, c7_1 = zero, c7_2 = zero;
  int64_t p = 0;
  for (; p + 8 <= depth; p += 8, a += 64, b += 96) {
#pragma GCC unroll 4
    for (int s = 0; s < 8; s += 2) {
      const float32x4_t b0 = vld1q_f32(b + 12 * s + 0), b1 = vld1q_f32(b + 12 * s + 4);
      const float32x4_t b2 = vld1q_f32(b + 12 * s + 8), b3 = vld1q_f32(b + 12 * s + 12);
      const float32x4_t a0 = vld1q_f32(a + 8 * s + 0), a1 = vld1q_f32(a + 8 * s + 4);
      PTO_FMLA(c0_0, b0, a0, 0); PTO_FMLA(c0_1, b1, a0, 0); PTO_FMLA(c0_2, b2, a0, 0);
      PTO_FMLA(c1_0, b0, a0, 1); PTO_FMLA(c1_1, b1, a0, 1); PTO_FMLA(c1_2, b2, a0, 1);
      PTO_FMLA(c2_0, b0, a0, 2); PTO_FMLA(c2_1, b1, a0, 2); PTO_FMLA(c2_2, b2, a0, 2);
      PTO_FMLA(c3_0, b0, a0, 3); PTO_FMLA(c3_1, b1, a0, 3); PTO_FMLA(c3_2, b2, a0, 3);
      PTO_FMLA(c4_0, b0, a1, 0); PTO_FMLA(c4_1, b1, a1, 0); PTO_FMLA(c4_2, b2, a1, 0);
      PTO_FMLA(c5_0, b0, a1, 1); PTO_FMLA(c5_1, b1, a1, 1); PTO_FMLA(c5_2, b2, a1, 1);
      PTO_FMLA(c6_0, b0, a1, 2); PTO_FMLA(c6_1, b1, a1, 2); PTO_FMLA(c6_2, b2, a1, 2);
      PTO_FMLA(c7_0, b0, a1, 3); PTO_FMLA(c7_1, b1, a1, 3); PTO_FMLA(c7_2, b2, a1, 3);
      PTO_STAY;
      const float32x4_t b4 = vld1q_f32(b + 12 * s + 16), b5 = vld1q_f32(b + 12 * s + 20);
      const float32x4_t a2 = vld1q_f32(a + 8 * s + 8), a3 = vld1q_f32(a + 8 * s + 12);
      PTO_FMLA(c0_0, b3, a2, 0); PTO_FMLA(c0_1, b4, a2, 0); PTO_FMLA(c0_2, b5, a2, 0);
      PTO_FMLA(c1_0, b3, a2, 1); PTO_FMLA(c1_1, b4, a2, 1); PTO_FMLA(c1_2, b5, a2, 1);
      PTO_FMLA(c2_0, b3, a2, 2); PTO_FMLA(c2_1, b4, a2, 2); PTO_FMLA(c2_2, b5, a2, 2);
      PTO_FMLA(c3_0, b3, a2, 3); PTO_FMLA(c3_1, b4, a2, 3); PTO_FMLA(c3_2, b5, a2, 3);
      PTO_FMLA(c4_0, b3, a3, 0); PTO_FMLA(c4_1, b4, a3, 0); PTO_FMLA(c4_2, b5, a3, 0);
      PTO_FMLA(c5_0, b3, a3, 1); PTO_FMLA(c5_1, b4, a3, 1); PTO_FMLA(c5_2, b5, a3, 1);
      PTO_FMLA(c6_0, b3, a3, 2); PTO_FMLA(c6_1, b4, a3, 2); PTO_FMLA(c6_2, b5, a3, 2);
      PTO_FMLA(c7_0, b3, a3, 3); PTO_FMLA(c7_1, b4, a3, 3); PTO_FMLA(c7_2, b5, a3, 3);
      PTO_STAY;
    }
  }
  for (; p + 1 <= depth; p += 1, a += 8, b += 12) {
#pragma GCC unroll 1
    for (int s = 0; s < 1; s += 1) {
      const float32x4_t a0 = vld1q_f32(a + 8 * s + 0), a1 = vld1q_f32(a + 8 * s + 4);
      const float32x4_t b0 = vld1q_f32(b + 12 * s + 0), b1 = vld1q_f32(b + 12 * s + 4);
      const float32x4_t b2 = vld1q_f32(b + 12 * s + 8);
      PTO_FMLA(c0_0, b0, a0, 0); PTO_FMLA(c0_1, b1, a0, 0); PTO_FMLA(c0_2, b2, a0, 0);
      PTO_FMLA(c1_0, b0, a0, 1); PTO_FMLA(c1_1, b1, a0, 1); PTO_FMLA(c1_2, b2, a0, 1);
      PTO_FMLA(c2_0, b0, a0, 2); PTO_FMLA(c2_1, b1, a0, 2); PTO_FMLA(c2_2, b2, a0, 2);
      PTO_FMLA(c3_0, b0, a0, 3); PTO_FMLA(c3_1, b1, a0, 3); PTO_FMLA(c3_2, b2, a0, 3);
      PTO_FMLA(c4_0, b0, a1, 0); PTO_FMLA(c4_1, b1, a1, 0); PTO_FMLA(c4_2, b2, a1, 0);
      PTO_FMLA(c5_0, b0, a1, 1); PTO_FMLA(c5_1, b1, a1, 1); PTO_FMLA(c5_2, b2, a1, 1);
      PTO_FMLA(c6_0, b0, a1, 2); PTO_FMLA(c6_1, b1, a1, 2); PTO_FMLA(c6_2, b2, a1, 2);
      PTO_FMLA(c7_0, b0, a1, 3); PTO_FMLA(c7_1, b1, a1, 3); PTO_FMLA(c7_2, b2, a1, 3);
      PTO_STAY;
    }
  }
  vst1q_f32(sums + 0, c0_0);
  vst1q_f32(sums + 4, c0_1);
  vst1q_f32(sums + 8, c0_2);
  vst1q_f32(sums + 12, c1_0);
  vst1q_f32(sums + 16, c1_1);
  vst1q_f32(sums + 20, c1_2);
  vst1q_f32(sums + 24, c2_0);
  vst1q_f32(sums + 28, c2_1);
  vst1q_f32(sums + 32, c2_2);
  vst1q_f32(sums + 36, c3_0);
  vst1q_f32(sums + 40, c3_1);
  vst1q_f32(sums + 44, c3_2);
  vst1q_f32(sums + 48, c4_0);
  vst1q_f32(sums + 52, c4_1);
  vst1q_f32(sums + 56, c4_2);
  vst1q_f32(sums + 60, c5_0);
  vst1q_f32(sums + 64, c5_1);
  vst1q_f32(sums + 68, c5_2);
  vst1q_f32(sums + 72, c6_0);
  vst1q_f32(sums + 76, c6_1);
  vst1q_f32(sums + 80, c6_2);
  vst1q_f32(sums + 84, c7_0);
  vst1q_f32(sums + 88, c7_1);
  vst1q_f32(sums + 92, c7_2);
}

enum { pto_mm_f32_f32_f32_depth = 256, pto_mm_f32_f32_f32_rows = pto_mm_f32_f32_f32_height * 16, pto_mm_f32_f32_f32_columns = pto_mm_f32_f32_f32_width * 16 };

static inline float pto_mm_f32_f32_f32_a(float x) { return x; }
static inline float pto_mm_f32_f32_f32_b(float x) { return x; }

// The rows of a block of a (or the columns of b), element by element of the contraction; what is missing is 0.
static void pto_mm_f32_f32_f32_pack_a(float *to, const float *a, int64_t row, int64_t step, int64_t rows, int64_t depth) {
  for (int64_t p = 0; p < depth; ++p)
    for (int64_t i = 0; i < pto_mm_f32_f32_f32_height; ++i) *to++ = i < rows ? pto_mm_f32_f32_f32_a(a[i * row + p * step]) : 0;
}
static void pto_mm_f32_f32_f32_pack_b(float *to, const float *b, int64_t step, int64_t column, int64_t depth, int64_t columns) {
  if (columns == pto_mm_f32_f32_f32_width && column == 1) {
    for (int64_t p = 0; p < depth; ++p)
      for (int64_t j = 0; j < pto_mm_f32_f32_f32_width; ++j) *to++ = pto_mm_f32_f32_f32_b(b[p * step + j]);
    return;
  }
  for (int64_t p = 0; p < depth; ++p)
    for (int64_t j = 0; j < pto_mm_f32_f32_f32_width; ++j) *to++ = j < columns ? pto_mm_f32_f32_f32_b(b[p * step + j * column]) : 0;
}

static int32_t pto_mm_f32_f32_f32(pto_worker *worker, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_step,
                      const float *b, int64_t b_step, int64_t b_column, float *c, int64_t c_row, int64_t c_column,
                      int32_t accumulate) {
  enum { depth_most = pto_mm_f32_f32_f32_depth, rows_most = pto_mm_f32_f32_f32_rows, columns_most = pto_mm_f32_f32_f32_columns };
  float *const packed_a = pto_scratch_push(worker, (int64_t)sizeof(float) * depth_most * (rows_most + columns_most));
  if (packed_a == NULL) return PTO_NO_MEMORY;
  float *const packed_b = packed_a + depth_most * rows_most;
  for (int64_t p0 = 0; p0 < k || p0 == 0; p0 += depth_most) {
    const int64_t depth = pto_min(k - p0, depth_most);
    const bool add = accumulate != 0 || p0 > 0;
    for (int64_t j0 = 0; j0 < n; j0 += columns_most) {
      const int64_t columns = pto_min(n - j0, columns_most);
      for (int64_t j = 0; j < columns; j += pto_mm_f32_f32_f32_width)
        pto_mm_f32_f32_f32_pack_b(packed_b + j * depth, b + p0 * b_step + (j0 + j) * b_column, b_step, b_column, depth,
                      pto_min(columns - j, pto_mm_f32_f32_f32_width));
      for (int64_t i0 = 0; i0 < m; i0 += rows_most) {
        const int64_t rows = pto_min(m - i0, rows_most);
        for (int64_t i = 0; i < rows; i += pto_mm_f32_f32_f32_height)
          pto_mm_f32_f32_f32_pack_a(packed_a + i * depth, a + (i0 + i) * a_row + p0 * a_step, a_row, a_step,
                        pto_min(rows - i, pto_mm_f32_f32_f32_height), depth);
        for (int64_t j = 0; j < columns; j += pto_mm_f32_f32_f32_width) {
          for (int64_t i = 0; i < rows; i += pto_mm_f32_f32_f32_height) {
            float sums[pto_mm_f32_f32_f32_height * pto_mm_f32_f32_f32_width];
            pto_mm_f32_f32_f32_block(sums, packed_a + i * depth, packed_b + j * depth, depth);
            float *const to = c + (i0 + i) * c_row + (j0 + j) * c_column;
            const int64_t height = pto_min(rows - i, pto_mm_f32_f32_f32_height), width = pto_min(columns - j, pto_mm_f32_f32_f32_width);
            if (width == pto_mm_f32_f32_f32_width && c_column == 1) {
              for (int64_t r = 0; r < height; ++r) {
                float *const row = to + r * c_row;
                const float *const from = sums + r * pto_mm_f32_f32_f32_width;
                if (add) {
                  for (int64_t s = 0; s < pto_mm_f32_f32_f32_width; ++s) row[s] += from[s];
                } else {
                  for (int64_t s = 0; s < pto_mm_f32_f32_f32_width; ++s) row[s] = from[s];
                }
              }
              continue;
            }
            for (int64_t r = 0; r < height; ++r)
              for (int64_t s = 0; s < width; ++s) {
                float *const element = to + r * c_row + s * c_column;
                *element = add ? *element + sums[r * pto_mm_f32_f32_f32_width + s] : sums[r * pto_mm_f32_f32_f32_width + s];
              }
          }
        }
      }
    }
  }
  pto_scratch_pop(worker, packed_a);
  return PTO_OK;
}

// The same over the workers, by rows or by columns of c, whichever are more.
struct pto_mm_f32_f32_f32_operands {
  int64_t m, n, k;
  const float *a;
  int64_t a_row, a_step;
  const float *b;
  int64_t b_step, b_column;
  float *c;
  int64_t c_row, c_column, piece;
  int32_t accumulate;
};

static int32_t pto_mm_f32_f32_f32_piece(pto_worker *worker, void *context, int64_t begin, int64_t end) {
  const struct pto_mm_f32_f32_f32_operands *const o = context;
  const int64_t first = begin * o->piece, count = pto_min(end * o->piece, pto_max(o->m, o->n)) - first;
  if (o->m >= o->n)
    return pto_mm_f32_f32_f32(worker, count, o->n, o->k, o->a + first * o->a_row, o->a_row, o->a_step, o->b, o->b_step, o->b_column,
                  o->c + first * o->c_row, o->c_row, o->c_column, o->accumulate);
  return pto_mm_f32_f32_f32(worker, o->m, count, o->k, o->a, o->a_row, o->a_step, o->b + first * o->b_column, o->b_step,
                o->b_column, o->c + first * o->c_column, o->c_row, o->c_column, o->accumulate);
}

static int32_t pto_mm_f32_f32_f32_mt(pto_worker *worker, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row,
                         int64_t a_step, const float *b, int64_t b_step, int64_t b_column, float *c, int64_t c_row,
                         int64_t c_column, int32_t accumulate) {
  enum { least = 1 << 20 };  // multiply-adds that are worth a thread
  const int64_t most = pto_max(m, n), work = pto_max(pto_min(m, n) * k, 1), unit = m >= n ? 4 * pto_mm_f32_f32_f32_height : 2 * pto_mm_f32_f32_f32_width;
  const int64_t piece = (pto_max((most + 31) / 32, least / work + 1) + unit - 1) / unit * unit;
  if (piece >= most)
    return pto_mm_f32_f32_f32(worker, m, n, k, a, a_row, a_step, b, b_step, b_column, c, c_row, c_column, accumulate);
  struct pto_mm_f32_f32_f32_operands operands = {m, n, k, a, a_row, a_step, b, b_step, b_column, c, c_row, c_column, piece,
                                     accumulate};
  return pto_parallel_for(worker, pto_mm_f32_f32_f32_piece, &operands, 0, (most + piece - 1) / piece, 1);
}

struct matmul_incore_0_rows {
  float *c_at;
  int64_t b_d1;
  float *c_at_2;
  int64_t stride_2;
  int64_t n_4;
};

static int32_t matmul_incore_0_rows(pto_worker *worker, void *context, int64_t begin, int64_t end) {
  const struct matmul_incore_0_rows *outer = context;
  float *c_at = outer->c_at;
  int64_t b_d1 = outer->b_d1;
  float *c_at_2 = outer->c_at_2;
  int64_t stride_2 = outer->stride_2;
  int64_t n_4 = outer->n_4;
  for (int64_t i = begin; i < end; ++i) {
    float *const c_at_row = c_at + b_d1 * i;
    float *const c_at_2_row = c_at_2 + i * stride_2;
    int64_t j = 0;
    for (; j < n_4 / 16 * 16; j += 16) {
      const float32x4_t v = vld1q_f32(c_at_row + j);
      const float32x4_t v_2 = vld1q_f32(c_at_row + j + 4);
      const float32x4_t v_3 = vld1q_f32(c_at_row + j + 8);
      const float32x4_t v_4 = vld1q_f32(c_at_row + j + 12);
      vst1q_f32(c_at_2_row + j, v);
      vst1q_f32(c_at_2_row + j + 4, v_2);
      vst1q_f32(c_at_2_row + j + 8, v_3);
      vst1q_f32(c_at_2_row + j + 12, v_4);
    }
    for (; j < n_4; ++j) {
      c_at_2_row[j] = c_at_row[j];
    }
  }
  return PTO_OK;
}

int32_t matmul_incore_0(pto_worker *worker, float *a, int64_t a_n0, int64_t a_n1, int64_t a_d0, int64_t a_d1, float *b,
                        int64_t b_n0, int64_t b_n1, int64_t b_d0, int64_t b_d1, float *c, int64_t c_n0, int64_t c_n1) {
  int32_t status;
  // matrix.py:15
  if (a_d0 < 0) return pto_fail(worker, 0, a_d0, 0, 0);
  if (a_d1 < 0) return pto_fail(worker, 1, a_d1, 0, 0);
  const int64_t n = pto_max(pto_min(a_d0, a_n0), 0);
  const int64_t n_2 = pto_max(pto_min(a_d1, a_n1), 0);
  if (b_d0 < 0) return pto_fail(worker, 0, b_d0, 0, 0);
  if (b_d1 < 0) return pto_fail(worker, 1, b_d1, 0, 0);
  const int64_t n_3 = pto_max(pto_min(b_d0, b_n0), 0);
  const int64_t n_4 = pto_max(pto_min(b_d1, b_n1), 0);
  if (a_d1 != b_d0) return pto_fail(worker, 2, a_d1, b_d0, 0);
  if (n_2 != n_3) return pto_fail(worker, 3, n_2, n_3, 0);
  const int64_t n_5 = pto_max(pto_min(n, c_n0), 0);
  const int64_t n_6 = pto_max(pto_min(n_4, c_n1), 0);
  const int64_t n_7 = n_5 == 0 || n_6 == 0 ? (int64_t)(uintptr_t)c + pto_min(4 * c_n1 * n_5 - 4 * c_n1, 0)
      : (int64_t)(uintptr_t)c + pto_max(4 * c_n1 * n_5 - 4 * c_n1, 0) + 4 * n_6;
  const int64_t n_8 = n == 0 || n_2 == 0 ? (int64_t)(uintptr_t)a + pto_min(4 * a_n1 * n - 4 * a_n1, 0)
      : (int64_t)(uintptr_t)a + pto_max(4 * a_n1 * n - 4 * a_n1, 0) + 4 * n_2;
  const int64_t n_9 = n_3 == 0 || n_4 == 0 ? (int64_t)(uintptr_t)b + pto_min(4 * b_n1 * n_3 - 4 * b_n1, 0)
      : (int64_t)(uintptr_t)b + pto_max(4 * b_n1 * n_3 - 4 * b_n1, 0) + 4 * n_4;
  const bool apart = n_5 != n || n_6 != n_4 || ((uint64_t)((int64_t)(uintptr_t)c
      + pto_min(4 * c_n1 * n_5 - 4 * c_n1, 0)) < (uint64_t)n_8
      && (uint64_t)((int64_t)(uintptr_t)a + pto_min(4 * a_n1 * n - 4 * a_n1, 0)) < (uint64_t)n_7)
      || ((uint64_t)((int64_t)(uintptr_t)c + pto_min(4 * c_n1 * n_5 - 4 * c_n1, 0)) < (uint64_t)n_9
      && (uint64_t)((int64_t)(uintptr_t)b + pto_min(4 * b_n1 * n_3 - 4 * b_n1, 0)) < (uint64_t)n_7);
  float *c_at;
  int64_t stride;
  if (apart) {
    void *const block = pto_scratch_push(worker, pto_max(4 * a_d0 * b_d1, 64));
    if (block == NULL) return PTO_NO_MEMORY;
    c_at = block;
    stride = b_d1;
  } else {
    c_at = c;
    stride = c_n1;
  }
  const int64_t n_10 = 4 * a_n1 >> 2;
  const int64_t n_11 = 4 * b_n1 >> 2;
  const int64_t n_12 = 4 * stride >> 2;
  if ((status = pto_mm_f32_f32_f32_mt(worker, n, n_4, n_2, a, n_10, 1, b, n_11, 1, c_at, n_12, 1, 0)) != PTO_OK)
      return status;
  if (apart) {
    float *c_at_2;
    int64_t stride_2;
    if (n_5 != n || n_6 != n_4) {
      void *const block_2 = pto_scratch_push(worker, pto_max(4 * n * n_4, 64));
      if (block_2 == NULL) return PTO_NO_MEMORY;
      c_at_2 = block_2;
      stride_2 = n_4;
    } else {
      c_at_2 = c;
      stride_2 = c_n1;
    }
    status = pto_rows(worker, matmul_incore_0_rows, &(struct matmul_incore_0_rows){c_at, b_d1, c_at_2, stride_2, n_4},
        n, n_4);
    if (status != PTO_OK) return status;
    if (n_5 != n || n_6 != n_4) {
      pto_copy(2, c, c_at_2, 4, (const int64_t[]){n_5, n_6, 4 * c_n1, 4, 4 * n_4, 4});
      pto_scratch_pop(worker, c_at_2);
    }
    pto_scratch_pop(worker, c_at);
  }
  return PTO_OK;
}

// SPDX-License-Identifier: MIT
// scale, written by pto_jit.
#include "pto_elements.h"

struct scale_incore_0_rows {
  float *x;
  float *y_at;
  float t0;
};

static int32_t scale_incore_0_rows(pto_worker *worker, void *context, int64_t begin, int64_t end) {
  const struct scale_incore_0_rows *outer = context;
  float *x = outer->x;
  float *y_at = outer->y_at;
  float t0 = outer->t0;
  float *const x_row = x + begin;
  float *const y_at_row = y_at + begin;
#pragma omp simd
  for (int64_t j = 0; j < (end - begin); ++j) {
    y_at_row[j] = x_row[j] * t0;
  }
  return PTO_OK;
}

static int32_t scale_incore_0(pto_worker *worker, float *x, int64_t x_n0, int64_t x_d0, double s, float *y,
                              int64_t y_n0) {
  int32_t status;
  // test_sources.py:29
  if (x_d0 < 0) return pto_fail(worker, 0, x_d0, 0, 0);
  const int64_t n = pto_max(pto_min(x_d0, x_n0), 0);
  const int64_t n_2 = pto_max(pto_min(n, y_n0), 0);
  const bool apart = n_2 != n || pto_clash(&(pto_region){x, 4, 1, {n}, {4}}, &(pto_region){y, 4, 1, {n}, {4}});
  float *y_at;
  if (apart) {
    void *const block = pto_scratch_push(worker, pto_max(4 * n, 64));
    if (block == NULL) return PTO_NO_MEMORY;
    y_at = block;
  } else {
    y_at = y;
  }
  status = pto_rows(worker, scale_incore_0_rows, &(struct scale_incore_0_rows){x, y_at, (float)s}, n, 1);
  if (status != PTO_OK) return status;
  if (apart) {
    pto_copy(1, y, y_at, 4, (const int64_t[]){n_2, 4, 4});
    pto_scratch_pop(worker, y_at);
  }
  return PTO_OK;
}

static int32_t scale(pto_worker *worker, float *x, int64_t x_n0, float *y, int64_t y_n0, double s) {
  int32_t status;
  // test_sources.py:29
  if ((status = scale_incore_0(worker, x, x_n0, x_n0, s, y, y_n0)) != PTO_OK) return status;
  return PTO_OK;
}

int32_t pto_entry_scale(pto_worker *worker, const int64_t *arguments, int64_t *results) {
  (void)results;
  return scale(worker, (float *)(uintptr_t)arguments[0], arguments[1], (float *)(uintptr_t)arguments[3], arguments[4],
      pto_from_bits_f64(arguments[6]));
}

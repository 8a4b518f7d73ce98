// SPDX-License-Identifier: MIT
// largest, written by pto_jit.
#include "pto_elements.h"

struct largest_incore_0_i {
  int64_t x_n0;
  float *x;
  int64_t x_n1;
  float *y;
};

static int32_t largest_incore_0_i(pto_worker *worker, void *context, int64_t begin, int64_t end) {
  const struct largest_incore_0_i *outer = context;
  int64_t x_n0 = outer->x_n0;
  float *x = outer->x;
  int64_t x_n1 = outer->x_n1;
  float *y = outer->y;
  int64_t v = 0;
  float max_2 = 0;
  for (int64_t i = begin; i < end; ++i) {
    // test_sources.py:35
    const int64_t n = pto_max(pto_min(1, x_n0 - i), 0);
    float *const x_1 = x + i * x_n1;
    const int64_t n_3 = n == 1 ? pto_max(pto_min(64, x_n1), 0) : 0;
    float *const x_1_at = n == 1 ? x_1 : (float *)&v;
    max_2 = -INFINITY;
    pto_order_f32 max_3 = pto_order_of_f32(-INFINITY);
    int32_t nan = 0;
#pragma omp simd reduction(max : max_3) reduction(| : nan)
    for (int64_t j = 0; j < n_3; ++j) {
      const float v_2 = x_1_at[j];
      max_3 = pto_larger_f32(v_2, max_3);
      nan |= v_2 != v_2;
    }
    max_2 = pto_max_f32(max_2, nan != 0 ? NAN : pto_ordered_f32(max_3));
    y[i] = max_2;
  }
  return PTO_OK;
}

static int32_t largest_incore_0(pto_worker *worker, int64_t x_d0, float *x, int64_t x_n0, int64_t x_n1, float *y,
                                int64_t y_n0) {
  int32_t status;
  // test_sources.py:34
  const int64_t n_4 = (pto_max(x_d0, 0) + 127) / 128;
  status = pto_parallel_for(worker, largest_incore_0_i, &(struct largest_incore_0_i){x_n0, x, x_n1, y}, 0,
      pto_max(x_d0, 0), pto_max(n_4, 1));
  if (status != PTO_OK) return status;
  return PTO_OK;
}

static int32_t largest(pto_worker *worker, float *x, int64_t x_n0, int64_t x_n1, float *y, int64_t y_n0) {
  int32_t status;
  // test_sources.py:34
  if ((status = largest_incore_0(worker, x_n0, x, x_n0, x_n1, y, y_n0)) != PTO_OK) return status;
  return PTO_OK;
}

int32_t pto_entry_largest(pto_worker *worker, const int64_t *arguments, int64_t *results) {
  (void)results;
  return largest(worker, (float *)(uintptr_t)arguments[0], arguments[1], arguments[2],
      (float *)(uintptr_t)arguments[5], arguments[6]);
}

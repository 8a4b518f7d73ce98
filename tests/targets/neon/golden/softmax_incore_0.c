// SPDX-License-Identifier: MIT
// softmax_incore_0 of softmax, written by pto_jit.
#include "softmax_functions.h"

static inline float32x4_t pto_exp_f32x4(float32x4_t x) {
  const float32x4_t t0 = vdupq_n_f32(-176.05939f);
  const uint32x4_t t1 = vcgtq_f32(t0, x);
  const float32x4_t t2 = vbslq_f32(t1, t0, x);
  const float32x4_t t3 = vdupq_n_f32(1.442695f);
  const float32x4_t t4 = vdupq_n_f32(12582912.0f);
  const float32x4_t t5 = vfmaq_f32(t4, t2, t3);
  const float32x4_t t6 = vdupq_n_f32(12583041.0f);
  const uint32x4_t t7 = vcltq_f32(t6, t5);
  const float32x4_t t8 = vbslq_f32(t7, t6, t5);
  const float32x4_t t9 = vsubq_f32(t8, t4);
  const float32x4_t t10 = vdupq_n_f32(1.9046542e-09f);
  const float32x4_t t11 = vdupq_n_f32(-0.6931472f);
  const float32x4_t t12 = vfmaq_f32(t2, t9, t11);
  const float32x4_t t13 = vfmaq_f32(t12, t9, t10);
  const float32x4_t t15 = vdupq_n_f32(0.0013838542f);
  const float32x4_t t16 = vdupq_n_f32(0.008369203f);
  const float32x4_t t17 = vfmaq_f32(t16, t15, t13);
  const float32x4_t t18 = vdupq_n_f32(0.041668106f);
  const float32x4_t t19 = vfmaq_f32(t18, t17, t13);
  const float32x4_t t20 = vdupq_n_f32(0.16666517f);
  const float32x4_t t21 = vfmaq_f32(t20, t19, t13);
  const float32x4_t t22 = vdupq_n_f32(0.49999994f);
  const float32x4_t t23 = vfmaq_f32(t22, t21, t13);
  const float32x4_t t24 = vdupq_n_f32(1.0f);
  const float32x4_t t25 = vfmaq_f32(t24, t23, t13);
  const float32x4_t t26 = vfmaq_f32(t24, t25, t13);
  const float32x4_t t27 = vdupq_n_f32(12583166.0f);
  const float32x4_t t28 = vaddq_f32(t9, t27);
  const int32x4_t t29 = vreinterpretq_s32_f32(t28);
  const int32x4_t t30 = vshrq_n_s32(t29, 1);
  const int32x4_t t31 = vshlq_n_s32(t30, 23);
  const float32x4_t t32 = vreinterpretq_f32_s32(t31);
  const int32x4_t t33 = vsubq_s32(t29, t30);
  const int32x4_t t34 = vshlq_n_s32(t33, 23);
  const float32x4_t t35 = vreinterpretq_f32_s32(t34);
  const float32x4_t t36 = vmulq_f32(t26, t32);
  const float32x4_t t37 = vmulq_f32(t36, t35);
  return t37;
}

static inline float pto_exp_f32(float x) {
  const float t0 = -176.05939f > x ? -176.05939f : x;
  const float t1 = fmaf(t0, 1.442695f, 12582912.0f);
  const float t2 = 12583041.0f < t1 ? 12583041.0f : t1;
  const float t3 = t2 - 12582912.0f;
  const float t4 = fmaf(t3, -0.6931472f, t0);
  const float t5 = fmaf(t3, 1.9046542e-09f, t4);
  const float t7 = fmaf(0.0013838542f, t5, 0.008369203f);
  const float t8 = fmaf(t7, t5, 0.041668106f);
  const float t9 = fmaf(t8, t5, 0.16666517f);
  const float t10 = fmaf(t9, t5, 0.49999994f);
  const float t11 = fmaf(t10, t5, 1.0f);
  const float t12 = fmaf(t11, t5, 1.0f);
  const float t13 = t3 + 12583166.0f;
  const int32_t t14 = pto_bits_f32(t13);
  const int32_t t15 = t14 >> 1;
  const int32_t t16 = t15 << 23;
  const float t17 = pto_from_bits_f32(t16);
  const int32_t t18 = t14 - t15;
  const int32_t t19 = t18 << 23;
  const float t20 = pto_from_bits_f32(t19);
  const float t21 = t12 * t17;
  const float t22 = t21 * t20;
  return t22;
}

int32_t softmax_incore_0(pto_worker *worker, int64_t r_chunk, int64_t x_d0, float *x, int64_t x_n0, int64_t x_n1,
                         int64_t x_d1, float *y, int64_t y_n0, int64_t y_n1) {
  int64_t v = 0;
  // rows.py:17
  const int64_t r_lo = 64 * r_chunk;
  const int64_t r_end = r_lo + 64;
  const int64_t r_hi = pto_min(r_end, x_d0);
  for (int64_t r = r_lo; r < r_hi; ++r) {
    // rows.py:18
    if (x_d1 < 0) return pto_fail(worker, 0, x_d1, 0, 0);
    if (r < 0) return pto_fail(worker, 1, r, 0, 0);
    const int64_t n = pto_max(pto_min(1, x_n0 - r), 0);
    float *const x_1 = x + r * x_n1;
    const int64_t n_3 = n == 1 ? pto_max(pto_min(x_d1, x_n1), 0) : 0;
    float *const x_1_at = n == 1 ? x_1 : (float *)&v;
    const int64_t n_4 = n == 1 ? 1 : 0;
    const int64_t n_5 = pto_max(pto_min(n_4, y_n0 - r), 0);
    const int64_t n_6 = pto_max(pto_min(n_3, y_n1), 0);
    const bool apart = n_5 != n_4 || n_6 != n_3 || pto_clash(
        &(pto_region){x_1, 4, 2, {1, n_3}, {4 * x_n1, 4}}, &(pto_region){y + r * y_n1, 4, 2, {1, n_3}, {4 * y_n1, 4}});
    float *y_at;
    if (apart) {
      void *const block = pto_scratch_push(worker, pto_max(4 * n_3, 64));
      if (block == NULL) return PTO_NO_MEMORY;
      y_at = block;
    } else {
      y_at = y + r * y_n1;
    }
    void *const block_2 = pto_scratch_push(worker, pto_max(4 * n_3 + 64, 64));
    if (block_2 == NULL) return PTO_NO_MEMORY;
    float *const row = (float *)block_2;
    float32x4_t max_0 = vdupq_n_f32(-INFINITY);
    float32x4_t max_1 = vdupq_n_f32(-INFINITY);
    float32x4_t max_2 = vdupq_n_f32(-INFINITY);
    float32x4_t max_3 = vdupq_n_f32(-INFINITY);
    int64_t j = 0;
    for (; j < n_3 / 16 * 16; j += 16) {
      const float32x4_t v_2 = vld1q_f32(x_1_at + j);
      const float32x4_t v_3 = vld1q_f32(x_1_at + j + 4);
      const float32x4_t v_4 = vld1q_f32(x_1_at + j + 8);
      const float32x4_t v_5 = vld1q_f32(x_1_at + j + 12);
      max_0 = pto_max_f32x4(max_0, v_2);
      max_1 = pto_max_f32x4(max_1, v_3);
      max_2 = pto_max_f32x4(max_2, v_4);
      max_3 = pto_max_f32x4(max_3, v_5);
    }
    float max_4 = pto_lanes_max_f32x4(pto_max_f32x4(pto_max_f32x4(max_0, max_1), pto_max_f32x4(max_2, max_3)));
    for (; j < n_3; ++j) {
      max_4 = pto_max_f32(max_4, x_1_at[j]);
    }
    const float32x4_t max_4_4 = vdupq_n_f32(max_4);
    float32x4_t sum_0 = vdupq_n_f32(0.0f);
    float32x4_t sum_1 = vdupq_n_f32(0.0f);
    int64_t j_2 = 0;
    for (; j_2 < n_3 / 8 * 8; j_2 += 8) {
      const float32x4_t v_7 = vld1q_f32(x_1_at + j_2);
      const float32x4_t v_8 = vld1q_f32(x_1_at + j_2 + 4);
      const float32x4_t exp_2 = pto_exp_f32x4(vsubq_f32(v_7, max_4_4));
      const float32x4_t exp_3 = pto_exp_f32x4(vsubq_f32(v_8, max_4_4));
      sum_0 = vaddq_f32(sum_0, exp_2);
      sum_1 = vaddq_f32(sum_1, exp_3);
      vst1q_f32(row + j_2, exp_2);
      vst1q_f32(row + j_2 + 4, exp_3);
    }
    float sum = pto_sum_f32x4(vaddq_f32(sum_0, sum_1));
    for (; j_2 < n_3; ++j_2) {
      const float exp_4 = pto_exp_f32(x_1_at[j_2] - max_4);
      sum = sum + exp_4;
      row[j_2] = exp_4;
    }
    const float32x4_t sum_4 = vdupq_n_f32(sum);
    int64_t j_3 = 0;
    for (; j_3 < n_3 / 16 * 16; j_3 += 16) {
      const float32x4_t v_10 = vld1q_f32(row + j_3);
      const float32x4_t v_11 = vld1q_f32(row + j_3 + 4);
      const float32x4_t v_12 = vld1q_f32(row + j_3 + 8);
      const float32x4_t v_13 = vld1q_f32(row + j_3 + 12);
      vst1q_f32(y_at + j_3, vdivq_f32(v_10, sum_4));
      vst1q_f32(y_at + j_3 + 4, vdivq_f32(v_11, sum_4));
      vst1q_f32(y_at + j_3 + 8, vdivq_f32(v_12, sum_4));
      vst1q_f32(y_at + j_3 + 12, vdivq_f32(v_13, sum_4));
    }
    for (; j_3 < n_3; ++j_3) {
      y_at[j_3] = row[j_3] / sum;
    }
    if (apart) {
      pto_copy(2, y + r * y_n1, y_at, 4, (const int64_t[]){n_5, n_6, 4 * y_n1, 4, 4 * n_3, 4});
      pto_scratch_pop(worker, y_at);
    }
    pto_scratch_pop(worker, block_2);
  }
  // rows.py:16
  return PTO_OK;
}

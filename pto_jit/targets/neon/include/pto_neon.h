// SPDX-License-Identifier: MIT
// What arm_neon.h has no single intrinsic for, with the results of pto_elements.h, lane by lane.
#ifndef PTO_NEON_H
#define PTO_NEON_H

#include <arm_neon.h>

#include "pto_elements.h"

// What is loaded after this is not loaded before.
#define PTO_STAY __asm__ volatile("" ::: "memory")
// c += b * a[lane], in the register of c.
#if defined(__GNUC__) && !defined(__clang__)
#define PTO_FMLA(c, b, a, lane) \
  __asm__("fmla %0.4s, %1.4s, %2.s[" #lane "]" : "+w"(c) : "w"(b), "w"(a))
#else
#define PTO_FMLA(c, b, a, lane) ((c) = vfmaq_laneq_f32(c, b, a, lane))
#endif

PTO_INLINE uint32x4_t pto_isnan_f32x4(float32x4_t x) { return vmvnq_u32(vceqq_f32(x, x)); }
// NaN when either operand is; of equal operands the second.
PTO_INLINE float32x4_t pto_max_f32x4(float32x4_t x, float32x4_t y) {
  return vbslq_f32(vorrq_u32(vcgtq_f32(x, y), pto_isnan_f32x4(x)), x, y);
}
PTO_INLINE float32x4_t pto_min_f32x4(float32x4_t x, float32x4_t y) {
  return vbslq_f32(vorrq_u32(vcltq_f32(x, y), pto_isnan_f32x4(x)), x, y);
}
PTO_INLINE float32x4_t pto_relu_f32x4(float32x4_t x) {
  return vbslq_f32(vcltzq_f32(x), vdupq_n_f32(0.0f), x);
}
PTO_INLINE float32x4_t pto_sign_f32x4(float32x4_t x) {
  const float32x4_t up = vbslq_f32(vcgtzq_f32(x), vdupq_n_f32(1.0f), x);
  return vbslq_f32(vcltzq_f32(x), vdupq_n_f32(-1.0f), up);
}
PTO_INLINE float32x4_t pto_copysign_f32x4(float32x4_t magnitude, float32x4_t sign) {
  return vbslq_f32(vdupq_n_u32(0x80000000u), sign, magnitude);
}

// The lanes of a vector as one number.
PTO_INLINE float pto_sum_f32x4(float32x4_t x) { return vaddvq_f32(x); }
PTO_INLINE float pto_prod_f32x4(float32x4_t x) {
  const float32x2_t half = vmul_f32(vget_low_f32(x), vget_high_f32(x));
  return vget_lane_f32(half, 0) * vget_lane_f32(half, 1);
}
PTO_INLINE float pto_lanes_max_f32x4(float32x4_t x) {
  return pto_max_f32(pto_max_f32(vgetq_lane_f32(x, 0), vgetq_lane_f32(x, 1)),
                     pto_max_f32(vgetq_lane_f32(x, 2), vgetq_lane_f32(x, 3)));
}
PTO_INLINE float pto_lanes_min_f32x4(float32x4_t x) {
  return pto_min_f32(pto_min_f32(vgetq_lane_f32(x, 0), vgetq_lane_f32(x, 1)),
                     pto_min_f32(vgetq_lane_f32(x, 2), vgetq_lane_f32(x, 3)));
}

// 16-bit floats in memory.
PTO_INLINE float32x4_t pto_load_f16x4(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
PTO_INLINE void pto_store_f16x4(uint16_t *p, float32x4_t x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
PTO_INLINE float32x4_t pto_load_bf16x4(const uint16_t *p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
PTO_INLINE void pto_store_bf16x4(uint16_t *p, float32x4_t x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x), upper = vshrq_n_u32(bits, 16);
  const uint32x4_t odd = vandq_u32(upper, vdupq_n_u32(1));
  const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
  const uint32x4_t quiet = vorrq_u32(upper, vdupq_n_u32(0x40));
  vst1_u16(p, vmovn_u32(vbslq_u32(pto_isnan_f32x4(x), quiet, rounded)));
}

// j, j + 1, j + 2, j + 3.
PTO_INLINE int32x4_t pto_indices_i32x4(int64_t j) {
  static const int32_t first[4] = {0, 1, 2, 3};
  return vaddq_s32(vdupq_n_s32((int32_t)j), vld1q_s32(first));
}

PTO_INLINE float32x4_t pto_lookup_f32x4(const float *table, int32x4_t at) {
  const float lanes[4] = {table[vgetq_lane_s32(at, 0)], table[vgetq_lane_s32(at, 1)], table[vgetq_lane_s32(at, 2)],
                          table[vgetq_lane_s32(at, 3)]};
  return vld1q_f32(lanes);
}

#endif

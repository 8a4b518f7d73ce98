// SPDX-License-Identifier: MIT
// What arm_neon.h has no single intrinsic for, with the results of pto_elements.h, lane by lane.
#ifndef PTO_NEON_H
#define PTO_NEON_H

#include <arm_neon.h>

#include "pto_elements.h"

// What is loaded after this is not loaded before.
#define PTO_STAY __asm__ volatile("" ::: "memory")
// c += b * a[lane], in the register of c; with bytes: a lane of a, b and c has four of them, or the sum of four products.
#if defined(__GNUC__) && !defined(__clang__)
#define PTO_LANE(text, c, b, a, lane) __asm__(text "[" #lane "]" : "+w"(c) : "w"(b), "w"(a))
#define PTO_FMLA(c, b, a, lane) PTO_LANE("fmla %0.4s, %1.4s, %2.s", c, b, a, lane)
#define PTO_FMLA_F64(c, b, a, lane) PTO_LANE("fmla %0.2d, %1.2d, %2.d", c, b, a, lane)
#define PTO_MLA(c, b, a, lane) PTO_LANE("mla %0.4s, %1.4s, %2.s", c, b, a, lane)
#define PTO_MLA_U32(c, b, a, lane) PTO_MLA(c, b, a, lane)
#define PTO_SDOT(c, b, a, lane) PTO_LANE("sdot %0.4s, %1.16b, %2.4b", c, b, a, lane)
#define PTO_UDOT(c, b, a, lane) PTO_LANE("udot %0.4s, %1.16b, %2.4b", c, b, a, lane)
#else
#define PTO_FMLA(c, b, a, lane) ((c) = vfmaq_laneq_f32(c, b, a, lane))
#define PTO_FMLA_F64(c, b, a, lane) ((c) = vfmaq_laneq_f64(c, b, a, lane))
#define PTO_MLA(c, b, a, lane) ((c) = vmlaq_laneq_s32(c, b, a, lane))
#define PTO_MLA_U32(c, b, a, lane) ((c) = vmlaq_laneq_u32(c, b, a, lane))
#define PTO_SDOT(c, b, a, lane) \
  ((c) = vdotq_laneq_s32(c, vreinterpretq_s8_s32(b), vreinterpretq_s8_s32(a), lane))
#define PTO_UDOT(c, b, a, lane) \
  ((c) = vreinterpretq_s32_u32( \
       vdotq_laneq_u32(vreinterpretq_u32_s32(c), vreinterpretq_u8_s32(b), vreinterpretq_u8_s32(a), lane)))
#endif

PTO_INLINE uint64x2_t pto_not_u64x2(uint64x2_t x) { return veorq_u64(x, vdupq_n_u64(UINT64_MAX)); }
PTO_INLINE int64x2_t pto_not_s64x2(int64x2_t x) { return veorq_s64(x, vdupq_n_s64(-1)); }
PTO_INLINE bool pto_any_u32x4(uint32x4_t x) { return vmaxvq_u32(x) != 0; }
PTO_INLINE bool pto_any_u64x2(uint64x2_t x) { return vmaxvq_u32(vreinterpretq_u32_u64(x)) != 0; }

PTO_INLINE uint32x4_t pto_isnan_f32x4(float32x4_t x) { return vmvnq_u32(vceqq_f32(x, x)); }
PTO_INLINE uint64x2_t pto_isnan_f64x2(float64x2_t x) { return pto_not_u64x2(vceqq_f64(x, x)); }

// For vectors F of floats (float32x4_t: suffix 32, x4), with masks M: largest and smallest are NaN when either operand is,
// and of equal operands the second.
#define PTO_FLOAT_VECTORS(F, M, bits, lanes, element, sign_bit) \
  PTO_INLINE F pto_max_f##bits##lanes(F x, F y) { \
    return vbslq_f##bits(vorrq_u##bits(vcgtq_f##bits(x, y), pto_isnan_f##bits##lanes(x)), x, y); \
  } \
  PTO_INLINE F pto_min_f##bits##lanes(F x, F y) { \
    return vbslq_f##bits(vorrq_u##bits(vcltq_f##bits(x, y), pto_isnan_f##bits##lanes(x)), x, y); \
  } \
  PTO_INLINE F pto_relu_f##bits##lanes(F x) { return vbslq_f##bits(vcltzq_f##bits(x), vdupq_n_f##bits(0), x); } \
  PTO_INLINE F pto_sign_f##bits##lanes(F x) { \
    const F up = vbslq_f##bits(vcgtzq_f##bits(x), vdupq_n_f##bits(1), x); \
    return vbslq_f##bits(vcltzq_f##bits(x), vdupq_n_f##bits(-1), up); \
  } \
  PTO_INLINE F pto_copysign_f##bits##lanes(F magnitude, F sign) { \
    return vbslq_f##bits(vdupq_n_u##bits(sign_bit), sign, magnitude); \
  } \
  PTO_INLINE element pto_sum_f##bits##lanes(F x) { return vaddvq_f##bits(x); }
PTO_FLOAT_VECTORS(float32x4_t, uint32x4_t, 32, x4, float, 0x80000000u)
PTO_FLOAT_VECTORS(float64x2_t, uint64x2_t, 64, x2, double, 0x8000000000000000u)

// The lanes of a vector as one number.
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
PTO_INLINE double pto_prod_f64x2(float64x2_t x) { return vgetq_lane_f64(x, 0) * vgetq_lane_f64(x, 1); }
PTO_INLINE double pto_lanes_max_f64x2(float64x2_t x) {
  return pto_max_f64(vgetq_lane_f64(x, 0), vgetq_lane_f64(x, 1));
}
PTO_INLINE double pto_lanes_min_f64x2(float64x2_t x) {
  return pto_min_f64(vgetq_lane_f64(x, 0), vgetq_lane_f64(x, 1));
}

// Largest and smallest of 64-bit integers.
#define PTO_WIDE_INTEGERS(V, kind, element) \
  PTO_INLINE V pto_max_##kind##x2(V x, V y) { return vbslq_##kind(vcgtq_##kind(x, y), x, y); } \
  PTO_INLINE V pto_min_##kind##x2(V x, V y) { return vbslq_##kind(vcltq_##kind(x, y), x, y); } \
  PTO_INLINE element pto_lanes_max_##kind##x2(V x) { \
    const element a = vgetq_lane_##kind(x, 0), b = vgetq_lane_##kind(x, 1); \
    return a > b ? a : b; \
  } \
  PTO_INLINE element pto_lanes_min_##kind##x2(V x) { \
    const element a = vgetq_lane_##kind(x, 0), b = vgetq_lane_##kind(x, 1); \
    return a < b ? a : b; \
  }
PTO_WIDE_INTEGERS(int64x2_t, s64, int64_t)
PTO_WIDE_INTEGERS(uint64x2_t, u64, uint64_t)

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
// Truth values in memory: 0 or 1.
PTO_INLINE uint8x16_t pto_load_boolx16(const bool *p) {
  const uint8x16_t x = vld1q_u8((const uint8_t *)p);
  return vtstq_u8(x, x);
}
PTO_INLINE void pto_store_boolx16(bool *p, uint8x16_t x) { vst1q_u8((uint8_t *)p, vandq_u8(x, vdupq_n_u8(1))); }

// j, j + 1 and so on.
PTO_INLINE int32x4_t pto_indices_s32x4(int64_t j) {
  static const int32_t first[4] = {0, 1, 2, 3};
  return vaddq_s32(vdupq_n_s32((int32_t)j), vld1q_s32(first));
}
PTO_INLINE int64x2_t pto_indices_s64x2(int64_t j) {
  static const int64_t first[2] = {0, 1};
  return vaddq_s64(vdupq_n_s64(j), vld1q_s64(first));
}

PTO_INLINE float32x4_t pto_lookup_f32x4(const float *table, int32x4_t at) {
  const float lanes[4] = {table[vgetq_lane_s32(at, 0)], table[vgetq_lane_s32(at, 1)], table[vgetq_lane_s32(at, 2)],
                          table[vgetq_lane_s32(at, 3)]};
  return vld1q_f32(lanes);
}
PTO_INLINE float64x2_t pto_lookup_f64x2(const double *table, int64x2_t at) {
  const double lanes[2] = {table[vgetq_lane_s64(at, 0)], table[vgetq_lane_s64(at, 1)]};
  return vld1q_f64(lanes);
}

#endif

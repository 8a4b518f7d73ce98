// SPDX-License-Identifier: MIT
// Element types and elementwise operations of generated C++ sources, the same on every target.
//
// PTO_FUNCTION starts each function: a target defines it before this file. 16-bit floats live in memory as `half` and
// `bfloat16` and are computed with as float. Compile without contraction of a * b + c and without fast-math.
#pragma once

#include <stdint.h>
#include <string.h>
#if !defined(__CUDACC__)
#include <math.h>
#endif

namespace pto {

#if !defined(PTO_ELEMENT)
#define PTO_ELEMENT(name) \
  struct name {           \
    uint16_t raw;         \
  }
#endif
PTO_ELEMENT(half);
PTO_ELEMENT(bfloat16);

template <class To, class From>
PTO_FUNCTION To reinterpret(From from) {
  static_assert(sizeof(To) == sizeof(From), "a bitcast keeps the size");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

PTO_FUNCTION int32_t bits(float x) { return reinterpret<int32_t>(x); }
PTO_FUNCTION int64_t bits(double x) { return reinterpret<int64_t>(x); }
PTO_FUNCTION float from_bits(int32_t i) { return reinterpret<float>(i); }
PTO_FUNCTION double from_bits(int64_t i) { return reinterpret<double>(i); }

template <class T>
PTO_FUNCTION T infinity_of();
template <>
PTO_FUNCTION float infinity_of<float>() { return from_bits(int32_t(0x7f800000)); }
template <>
PTO_FUNCTION double infinity_of<double>() { return from_bits(int64_t(0x7ff0000000000000)); }
template <class T>
PTO_FUNCTION T nan_of();
template <>
PTO_FUNCTION float nan_of<float>() { return from_bits(int32_t(0x7fc00000)); }
template <>
PTO_FUNCTION double nan_of<double>() { return from_bits(int64_t(0x7ff8000000000000)); }

// Floats.
PTO_FUNCTION float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
PTO_FUNCTION double fma(double x, double y, double z) { return ::fma(x, y, z); }
PTO_FUNCTION float absolute(float x) { return ::fabsf(x); }
PTO_FUNCTION double absolute(double x) { return ::fabs(x); }
PTO_FUNCTION float square_root(float x) { return ::sqrtf(x); }
PTO_FUNCTION double square_root(double x) { return ::sqrt(x); }
PTO_FUNCTION float round_down(float x) { return ::floorf(x); }
PTO_FUNCTION double round_down(double x) { return ::floor(x); }
PTO_FUNCTION float round_up(float x) { return ::ceilf(x); }
PTO_FUNCTION double round_up(double x) { return ::ceil(x); }
PTO_FUNCTION float truncate(float x) { return ::truncf(x); }
PTO_FUNCTION double truncate(double x) { return ::trunc(x); }
PTO_FUNCTION float round_even(float x) { return ::rintf(x); }
PTO_FUNCTION double round_even(double x) { return ::rint(x); }
PTO_FUNCTION float copy_sign(float x, float sign) { return ::copysignf(x, sign); }
PTO_FUNCTION double copy_sign(double x, double sign) { return ::copysign(x, sign); }

template <class T>
PTO_FUNCTION bool is_infinite(T x) { return absolute(x) == infinity_of<T>(); }
template <class T>
PTO_FUNCTION bool is_finite(T x) { return absolute(x) < infinity_of<T>(); }
// NaN when either operand is.
template <class T>
PTO_FUNCTION T maximum(T x, T y) { return x != x || x > y ? x : y; }
template <class T>
PTO_FUNCTION T minimum(T x, T y) { return x != x || x < y ? x : y; }
#if defined(__CUDA_ARCH__)
template <>
PTO_FUNCTION float maximum(float x, float y) {
  float out;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(x), "f"(y));
  return out;
}
template <>
PTO_FUNCTION float minimum(float x, float y) {
  float out;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(x), "f"(y));
  return out;
}
#endif
template <class T>
PTO_FUNCTION T relu(T x) { return x < T(0) ? T(0) : x; }
template <class T>
PTO_FUNCTION T sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x; }

// `rest` is fmod(x, y): the remainder with the sign of y, and NumPy's floor_divide.
template <class T>
PTO_FUNCTION T modulo(T, T y, T rest) {
  if (rest == T(0)) return copy_sign(T(0), y);
  return (rest < T(0)) != (y < T(0)) ? rest + y : rest;
}
template <class T>
PTO_FUNCTION T floor_divide(T x, T y, T rest) {
  if (y == T(0)) return x / y;
  T quotient = (x - rest) / y;
  if (rest != T(0) && (rest < T(0)) != (y < T(0))) quotient = quotient - T(1);
  if (quotient == T(0)) return copy_sign(T(0), x / y);
  const T down = round_down(quotient);
  return quotient - down > T(0.5) ? down + T(1) : down;
}

// 16-bit floats.
PTO_FUNCTION float widened(half x) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x.raw));
  return out;
#else
  const uint32_t sign = uint32_t(x.raw & 0x8000) << 16, exponent = x.raw >> 10 & 31, fraction = x.raw & 0x3ff;
  if (exponent == 31) return from_bits(int32_t(sign | 0x7f800000 | fraction << 13));
  if (exponent == 0) return copy_sign(float(fraction) * 0x1p-24f, from_bits(int32_t(sign)));
  return from_bits(int32_t(sign | (exponent + 112) << 23 | fraction << 13));
#endif
}
PTO_FUNCTION float widened(bfloat16 x) { return from_bits(int32_t(uint32_t(x.raw) << 16)); }

PTO_FUNCTION half narrowed_to_half(float x) {
#if defined(__CUDA_ARCH__)
  half out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.raw) : "f"(x));
  return out;
#else
  const uint32_t all = uint32_t(bits(x)), sign = all >> 16 & 0x8000, size = all & 0x7fffffff;
  if (size > 0x7f800000) return {uint16_t(sign | 0x7fff)};
  if (size >= 0x47800000) return {uint16_t(sign | 0x7c00)};
  if (size < 0x38800000) {  // a subnormal result: let the addition do the rounding
    const float shifted = from_bits(int32_t(size)) + 0.5f;
    return {uint16_t(sign | uint32_t(bits(shifted) - bits(0.5f)))};
  }
  const uint32_t odd = size >> 13 & 1;
  return {uint16_t(sign | (size - 0x38000000 + 0xfff + odd) >> 13)};
#endif
}
PTO_FUNCTION bfloat16 narrowed_to_bfloat16(float x) {
#if defined(__CUDA_ARCH__)
  bfloat16 out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.raw) : "f"(x));
  return out;
#else
  const uint32_t all = uint32_t(bits(x));
  if ((all & 0x7fffffff) > 0x7f800000) return {uint16_t((all >> 16 & 0x8000) | 0x7fc0)};
  return {uint16_t((all + 0x7fff + (all >> 16 & 1)) >> 16)};
#endif
}
PTO_FUNCTION float rounded_to_half(float x) { return widened(narrowed_to_half(x)); }
PTO_FUNCTION float rounded_to_bfloat16(float x) { return widened(narrowed_to_bfloat16(x)); }
// From double with one rounding: to odd in float first, which keeps what the second rounding needs to know.
PTO_FUNCTION float rounded_to_odd(double x) {
  const float near = float(x);
  if (double(near) == x || near != near || is_infinite(near)) return near;
  if (bits(near) & 1) return near;
  const bool outwards = absolute(double(near)) < absolute(x);
  return from_bits(bits(near) + (outwards ? 1 : -1));
}
PTO_FUNCTION float rounded_to_half(double x) { return rounded_to_half(rounded_to_odd(x)); }
PTO_FUNCTION float rounded_to_bfloat16(double x) { return rounded_to_bfloat16(rounded_to_odd(x)); }

// Between memory and registers.
template <class T>
PTO_FUNCTION T from_memory(T x) { return x; }
PTO_FUNCTION float from_memory(half x) { return widened(x); }
PTO_FUNCTION float from_memory(bfloat16 x) { return widened(x); }
template <class T, class R>
struct ToMemory {
  static PTO_FUNCTION T of(R x) { return T(x); }
};
template <class R>
struct ToMemory<half, R> {
  static PTO_FUNCTION half of(R x) { return narrowed_to_half(float(x)); }
};
template <class R>
struct ToMemory<bfloat16, R> {
  static PTO_FUNCTION bfloat16 of(R x) { return narrowed_to_bfloat16(float(x)); }
};
template <class T, class R>
PTO_FUNCTION T to_memory(R x) { return ToMemory<T, R>::of(x); }

// Integers: everything wraps, division by zero gives 0.
template <class T>
struct unsigned_of;
template <>
struct unsigned_of<int8_t> { using type = uint32_t; };
template <>
struct unsigned_of<uint8_t> { using type = uint32_t; };
template <>
struct unsigned_of<int16_t> { using type = uint32_t; };
template <>
struct unsigned_of<uint16_t> { using type = uint32_t; };
template <>
struct unsigned_of<int32_t> { using type = uint32_t; };
template <>
struct unsigned_of<uint32_t> { using type = uint32_t; };
template <>
struct unsigned_of<int64_t> { using type = uint64_t; };
template <>
struct unsigned_of<uint64_t> { using type = uint64_t; };

template <class T>
PTO_FUNCTION T wrapping_add(T x, T y) {
  using U = typename unsigned_of<T>::type;
  return T(U(x) + U(y));
}
template <class T>
PTO_FUNCTION T wrapping_sub(T x, T y) {
  using U = typename unsigned_of<T>::type;
  return T(U(x) - U(y));
}
template <class T>
PTO_FUNCTION T wrapping_mul(T x, T y) {
  using U = typename unsigned_of<T>::type;
  return T(U(x) * U(y));
}
template <typename T>
PTO_FUNCTION bool is_less(T x, T y) { return x < y; }
template <class T>
PTO_FUNCTION T larger(T x, T y) { return x > y ? x : y; }
template <class T>
PTO_FUNCTION T smaller(T x, T y) { return x < y ? x : y; }
// No number of an unsigned type is, and compilers warn of the comparison.
template <typename T>
PTO_FUNCTION bool is_negative(T x) {
  if constexpr (T(-1) < T(0)) {
    return x < T(0);
  } else {
    (void)x;
    return false;
  }
}

template <class T>
PTO_FUNCTION T integer_absolute(T x) { return is_negative(x) ? wrapping_sub<T>(0, x) : x; }
template <class T>
PTO_FUNCTION T integer_sign(T x) { return x > T(0) ? T(1) : x == T(0) ? T(0) : T(-1); }

// NumPy's shifts: a count of the width or more (or below zero) shifts everything out.
template <class T>
PTO_FUNCTION T shift_left(T x, T count) {
  using U = typename unsigned_of<T>::type;
  return U(count) < U(8 * sizeof(T)) ? T(U(x) << U(count)) : T(0);
}
template <class T>
PTO_FUNCTION T shift_right(T x, T count) {
  using U = typename unsigned_of<T>::type;
  const bool inside = U(count) < U(8 * sizeof(T));
  return T(x >> (inside ? int(count) : int(8 * sizeof(T)) - 1)) & (inside || T(-1) < T(0) ? T(-1) : T(0));
}

template <class T>
PTO_FUNCTION T integer_fmod(T x, T y) {
  return y == T(0) || (T(-1) < T(0) && y == T(-1)) ? T(0) : T(x % y);
}
template <class T>
PTO_FUNCTION T integer_mod(T x, T y) {
  const T rest = integer_fmod<T>(x, y);
  return rest != T(0) && is_negative(rest) != is_negative(y) ? T(rest + y) : rest;
}
template <class T>
PTO_FUNCTION T integer_floordiv(T x, T y) {
  if (y == T(0)) return T(0);
  if (T(-1) < T(0) && y == T(-1)) return wrapping_sub<T>(0, x);
  const T rest = T(x % y);
  if (T(-1) > T(0)) return T(x / y);
  return T(x / y - (rest != T(0) && is_negative(rest) != is_negative(y) ? 1 : 0));
}
// By squaring; a negative exponent gives what integer division would, 1 / x ** -y.
template <class T>
PTO_FUNCTION T integer_pow(T x, T y) {
  if (is_negative(y)) return x == T(1) ? T(1) : x == T(-1) ? (y & T(1) ? T(-1) : T(1)) : T(0);
  T out = 1;
  for (T left = y; left != T(0); left = T(left >> 1)) {
    if (left & T(1)) out = wrapping_mul<T>(out, x);
    x = wrapping_mul<T>(x, x);
  }
  return out;
}

// Float to integer: saturates, NaN gives 0.
template <class T, class F>
PTO_FUNCTION T saturated(F x) {
  constexpr bool is_signed = T(-1) < T(0);
  constexpr int width = 8 * sizeof(T) - (is_signed ? 1 : 0);
  constexpr T highest = T(~uint64_t(0) >> (64 - width)), lowest = is_signed ? T(-highest - 1) : T(0);
  const F limit = F(2) * F(uint64_t(1) << (width - 1));  // exactly one above the highest
  if (x != x) return T(0);
  if (x >= limit) return highest;
  if (is_signed ? x < -limit : x <= F(-1)) return lowest;
  return x < F(0) && !is_signed ? T(0) : T(x);
}

}  // namespace pto

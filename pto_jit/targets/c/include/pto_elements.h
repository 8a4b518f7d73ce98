// SPDX-License-Identifier: MIT
// Elementwise operations, strided copies and element types of generated C.
//
// Compile with -std=c11 -ffp-contract=off -fwrapv -fno-strict-aliasing -fopenmp-simd: integers wrap, a * b + c is rounded
// twice, scratch memory holds one type after another, and `omp simd` says which loops have independent iterations.
#ifndef PTO_ELEMENTS_H
#define PTO_ELEMENTS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "pto_runtime.h"

#if defined(__GNUC__)
#define PTO_UNUSED __attribute__((unused))
#define PTO_APART __attribute__((noinline))  // registers of its own
#define PTO_SELDOM __attribute__((noinline, cold))
#else
#define PTO_UNUSED
#define PTO_APART
#define PTO_SELDOM
#endif
#define PTO_INLINE PTO_UNUSED static inline

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-parameter"  // functions of a kind take the same things, needed or not
#endif
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // `omp simd` is a permission: loops with divisions stay as they are
#endif

#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=512")  // in loops, too
#endif

// Vectors for matrix products, whose a * b + c are to be rounded once.
#if defined(__AVX512F__) && defined(__GNUC__)
#define PTO_VECTOR_BYTES 64
#else
#define PTO_VECTOR_BYTES 32
#endif
#if defined(__GNUC__)
typedef float pto_v_f32 __attribute__((vector_size(PTO_VECTOR_BYTES)));
typedef double pto_v_f64 __attribute__((vector_size(PTO_VECTOR_BYTES)));
typedef int32_t pto_v_i32 __attribute__((vector_size(PTO_VECTOR_BYTES)));
typedef uint32_t pto_v_u32 __attribute__((vector_size(PTO_VECTOR_BYTES)));
typedef int64_t pto_v_i64 __attribute__((vector_size(PTO_VECTOR_BYTES)));
typedef uint64_t pto_v_u64 __attribute__((vector_size(PTO_VECTOR_BYTES)));
#endif
#if defined(__clang__)
#define PTO_CONTRACT
#define PTO_CONTRACTED _Pragma("clang fp contract(fast)")
#elif defined(__GNUC__)
#define PTO_CONTRACT __attribute__((optimize("fp-contract=fast")))
#define PTO_CONTRACTED
#endif

// Numbers that say where memory is.
PTO_INLINE int64_t pto_min(int64_t x, int64_t y) { return x < y ? x : y; }
PTO_INLINE int64_t pto_max(int64_t x, int64_t y) { return x > y ? x : y; }

#ifdef PTO_RUNTIME_H // the host code of devices has no workers
// Rows of so many elements, for the workers where there are many.
PTO_INLINE int32_t pto_rows(pto_worker *worker, pto_range_fn range, void *context, int64_t rows, int64_t elements) {
  if (rows < 2 || elements < 1 || elements < 131072 / rows) return range(worker, context, 0, rows);
  return pto_parallel_for(worker, range, context, 0, rows, pto_max(32768 / elements, 1));
}
#endif

// x * y, both not negative; what no memory can hold is the largest number.
PTO_INLINE int64_t pto_bytes(int64_t x, int64_t y) { return y > 0 && x > INT64_MAX / y ? INT64_MAX : x * y; }

// How many numbers are in range(start, stop, step).
PTO_INLINE int64_t pto_trip_count(int64_t start, int64_t stop, int64_t step) {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  const uint64_t distance = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
  return (int64_t)((distance - 1) / (step > 0 ? (uint64_t)step : 0 - (uint64_t)step) + 1);
}

// Bit patterns.
PTO_INLINE int32_t pto_bits_f32(float x) { int32_t i; memcpy(&i, &x, 4); return i; }
PTO_INLINE int64_t pto_bits_f64(double x) { int64_t i; memcpy(&i, &x, 8); return i; }
PTO_INLINE float pto_from_bits_f32(int32_t i) { float x; memcpy(&x, &i, 4); return x; }
PTO_INLINE double pto_from_bits_f64(int64_t i) { double x; memcpy(&x, &i, 8); return x; }

// Floats. NaN when either operand is.
#define PTO_FLOATS(T, NAME, COPYSIGN, FLOOR)                                                                      \
  PTO_INLINE T pto_max_##NAME(T x, T y) { return x != x || x > y ? x : y; }                                       \
  PTO_INLINE T pto_min_##NAME(T x, T y) { return x != x || x < y ? x : y; }                                       \
  PTO_INLINE T pto_relu_##NAME(T x) { return x < 0 ? 0 : x; }                                                     \
  PTO_INLINE T pto_square_##NAME(T x) { return x * x; }                                                           \
  PTO_INLINE T pto_sign_##NAME(T x) { return x > 0 ? 1 : x < 0 ? -1 : x; }                                        \
  /* `rest` is fmod(x, y): the remainder with the sign of y, and NumPy's floor_divide. */                         \
  PTO_INLINE T pto_mod_##NAME(T x, T y, T rest) {                                                                 \
    (void)x;                                                                                                      \
    return rest == 0 ? COPYSIGN(0, y) : (rest < 0) != (y < 0) ? rest + y : rest;                                  \
  }                                                                                                               \
  PTO_INLINE T pto_floordiv_##NAME(T x, T y, T rest) {                                                            \
    if (y == 0) return x / y;                                                                                     \
    T quotient = (x - rest) / y;                                                                                  \
    if (rest != 0 && (rest < 0) != (y < 0)) quotient = quotient - 1;                                              \
    if (quotient == 0) return COPYSIGN(0, x / y);                                                                 \
    const T down = FLOOR(quotient);                                                                               \
    return quotient - down > (T)0.5 ? down + 1 : down;                                                            \
  }
PTO_FLOATS(float, f32, copysignf, floorf)
PTO_FLOATS(double, f64, copysign, floor)

// The largest and smallest float of a loop, which knows of NaNs beside it. GCC looks for them as they are; clang has
// vectors for that only where there are no NaNs, and gets integers in the order of the floats.
#if defined(__clang__)
#define PTO_ORDER(T, I, NAME, MAX)                                                                                \
  typedef I pto_order_##NAME;                                                                                     \
  PTO_INLINE I pto_order_of_##NAME(T x) { const I i = pto_bits_##NAME(x); return i ^ (i < 0 ? MAX : 0); }         \
  PTO_INLINE T pto_ordered_##NAME(I i) { return pto_from_bits_##NAME(i ^ (i < 0 ? MAX : 0)); }
#else
#define PTO_ORDER(T, I, NAME, MAX)                                                                                \
  typedef T pto_order_##NAME;                                                                                     \
  PTO_INLINE T pto_order_of_##NAME(T x) { return x; }                                                             \
  PTO_INLINE T pto_ordered_##NAME(T x) { return x; }
#endif
#define PTO_EXTREMES(T, NAME)                                                                                     \
  PTO_INLINE pto_order_##NAME pto_larger_##NAME(T x, pto_order_##NAME y) {                                        \
    const pto_order_##NAME place = pto_order_of_##NAME(x);                                                        \
    return place > y ? place : y;                                                                                 \
  }                                                                                                               \
  PTO_INLINE pto_order_##NAME pto_smaller_##NAME(T x, pto_order_##NAME y) {                                       \
    const pto_order_##NAME place = pto_order_of_##NAME(x);                                                        \
    return place < y ? place : y;                                                                                 \
  }
PTO_ORDER(float, int32_t, f32, INT32_MAX)
PTO_ORDER(double, int64_t, f64, INT64_MAX)
PTO_EXTREMES(float, f32)
PTO_EXTREMES(double, f64)

// 16-bit floats: their bits in memory, float in computations; rounded to nearest even.
PTO_INLINE float pto_widened_f16(uint16_t x) {
  const uint32_t sign = (uint32_t)(x & 0x8000) << 16, size = (uint32_t)(x & 0x7fff) << 13;
  const float wide = pto_from_bits_f32((int32_t)size) * 0x1p112f;  // exact, also of subnormal numbers
  const uint32_t bits = size >= 0x0f800000 ? size | 0x7f800000 : (uint32_t)pto_bits_f32(wide);
  return pto_from_bits_f32((int32_t)(bits | sign));
}
PTO_INLINE uint16_t pto_narrowed_f16(float x) {
  const uint32_t all = (uint32_t)pto_bits_f32(x), sign = all >> 16 & 0x8000, size = all & 0x7fffffff;
  const float shifted = pto_from_bits_f32((int32_t)size) + 0.5f;  // rounds a subnormal result
  const uint32_t small = (uint32_t)pto_bits_f32(shifted) - 0x3f000000;
  const uint32_t normal = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
  const uint32_t finite = size < 0x38800000 ? small : normal;
  const uint32_t large = size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x3ff) : 0x7c00;
  return (uint16_t)(sign | (size >= 0x47800000 ? large : finite));
}
PTO_INLINE float pto_widened_bf16(uint16_t x) { return pto_from_bits_f32((int32_t)((uint32_t)x << 16)); }
PTO_INLINE uint16_t pto_narrowed_bf16(float x) {
  const uint32_t all = (uint32_t)pto_bits_f32(x);
  const uint32_t rounded = (all + 0x7fff + (all >> 16 & 1)) >> 16;
  return (uint16_t)((all & 0x7fffffff) > 0x7f800000 ? all >> 16 | 0x40 : rounded);
}
PTO_INLINE float pto_rounded_f16(float x) { return pto_widened_f16(pto_narrowed_f16(x)); }
PTO_INLINE float pto_rounded_bf16(float x) { return pto_widened_bf16(pto_narrowed_bf16(x)); }
// From double to f16 with one rounding: to odd in float first, which keeps what the second rounding needs to know.
PTO_INLINE float pto_rounded_f16_f64(double x) {
  const float near = (float)x;
  if ((double)near == x || near != near || fabsf(near) == INFINITY || (pto_bits_f32(near) & 1)) {
    return pto_rounded_f16(near);
  }
  const bool outwards = fabs((double)near) < fabs(x);
  return pto_rounded_f16(pto_from_bits_f32(pto_bits_f32(near) + (outwards ? 1 : -1)));
}
PTO_INLINE float pto_rounded_bf16_f64(double x) { return pto_rounded_bf16((float)x); }

// Float to integer: saturates, NaN gives 0.
#define PTO_SATURATED(T, NAME, F, FNAME, LOW, HIGH, LIMIT)                                          \
  PTO_INLINE T pto_saturated_##NAME##_##FNAME(F x) {                                                \
    return x != x ? 0 : x >= (F)LIMIT ? (T)HIGH : x <= (F)LOW ? (T)LOW : (T)x;                      \
  }
#define PTO_SATURATED_BOTH(T, NAME, LOW, HIGH, LIMIT)        \
  PTO_SATURATED(T, NAME, float, f32, LOW, HIGH, LIMIT)       \
  PTO_SATURATED(T, NAME, double, f64, LOW, HIGH, LIMIT)
PTO_SATURATED_BOTH(int8_t, i8, INT8_MIN, INT8_MAX, 0x1p7)
PTO_SATURATED_BOTH(int16_t, i16, INT16_MIN, INT16_MAX, 0x1p15)
PTO_SATURATED_BOTH(int32_t, i32, INT32_MIN, INT32_MAX, 0x1p31)
PTO_SATURATED_BOTH(int64_t, i64, INT64_MIN, INT64_MAX, 0x1p63)
PTO_SATURATED_BOTH(uint8_t, u8, 0, UINT8_MAX, 0x1p8)
PTO_SATURATED_BOTH(uint16_t, u16, 0, UINT16_MAX, 0x1p16)
PTO_SATURATED_BOTH(uint32_t, u32, 0, UINT32_MAX, 0x1p32)
PTO_SATURATED_BOTH(uint64_t, u64, 0, UINT64_MAX, 0x1p64)

// Integers: U is unsigned and at least as wide as int, so that nothing overflows; division by zero gives 0.
#define PTO_INTEGERS(T, NAME, U)                                                                                     \
  PTO_INLINE T pto_square_##NAME(T x) { return (T)((U)x * (U)x); }                                                   \
  PTO_INLINE T pto_abs_##NAME(T x) { return x < 0 ? (T)(0 - (U)x) : x; }                                             \
  PTO_INLINE T pto_relu_##NAME(T x) { return x > 0 ? x : 0; }                                                        \
  PTO_INLINE T pto_sign_##NAME(T x) { return x > 0 ? 1 : x == 0 ? 0 : (T)-1; }                                       \
  PTO_INLINE T pto_max_##NAME(T x, T y) { return x > y ? x : y; }                                                    \
  PTO_INLINE T pto_min_##NAME(T x, T y) { return x < y ? x : y; }                                                    \
  /* NumPy's shifts: a count of the width or more (or below zero) shifts everything out. */                          \
  PTO_INLINE T pto_shl_##NAME(T x, T count) { return (U)count < 8 * sizeof(T) ? (T)((U)x << (U)count) : 0; }         \
  PTO_INLINE T pto_shr_##NAME(T x, T count) {                                                                        \
    return (U)count < 8 * sizeof(T) ? (T)(x >> count) : x < 0 ? (T)-1 : 0;                                           \
  }                                                                                                                  \
  PTO_INLINE T pto_fmod_##NAME(T x, T y) { return y == 0 || ((T)-1 < 0 && y == (T)-1) ? 0 : (T)(x % y); }            \
  PTO_INLINE T pto_mod_##NAME(T x, T y) {                                                                            \
    const T rest = pto_fmod_##NAME(x, y);                                                                            \
    return rest != 0 && (rest < 0) != (y < 0) ? (T)(rest + y) : rest;                                                \
  }                                                                                                                  \
  PTO_INLINE T pto_floordiv_##NAME(T x, T y) {                                                                       \
    if (y == 0) return 0;                                                                                            \
    if ((T)-1 < 0 && y == (T)-1) return (T)(0 - (U)x);                                                               \
    const T rest = (T)(x % y);                                                                                       \
    return (T)(x / y - (rest != 0 && (rest < 0) != (y < 0) ? 1 : 0));                                                \
  }                                                                                                                  \
  /* By squaring; a negative exponent gives what integer division would, 1 / x ** -y. */                             \
  PTO_INLINE T pto_pow_##NAME(T x, T y) {                                                                            \
    if (y < 0) return x == 1 ? 1 : x == (T)-1 ? (y & 1 ? (T)-1 : 1) : 0;                                             \
    T out = 1;                                                                                                       \
    for (T left = y; left != 0; left = (T)(left >> 1)) {                                                             \
      if (left & 1) out = (T)((U)out * (U)x);                                                                        \
      x = (T)((U)x * (U)x);                                                                                          \
    }                                                                                                                \
    return out;                                                                                                      \
  }
#if defined(__GNUC__)  // "comparison is always false" of unsigned types is meant
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtype-limits"
#endif
PTO_INTEGERS(int8_t, i8, uint32_t)
PTO_INTEGERS(int16_t, i16, uint32_t)
PTO_INTEGERS(int32_t, i32, uint32_t)
PTO_INTEGERS(int64_t, i64, uint64_t)
PTO_INTEGERS(uint8_t, u8, uint32_t)
PTO_INTEGERS(uint16_t, u16, uint32_t)
PTO_INTEGERS(uint32_t, u32, uint32_t)
PTO_INTEGERS(uint64_t, u64, uint64_t)
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

// Regions of memory; strides in bytes.
typedef struct pto_region {
  const void *start;
  int64_t size;  // of an element
  int64_t rank;
  int64_t extents[8];
  int64_t strides[8];
} pto_region;

// The addresses from the first byte to the one after the last; an empty region: nothing.
PTO_UNUSED static void pto_addresses(const pto_region *r, int64_t *low, int64_t *high) {
  *low = (int64_t)(uintptr_t)r->start;
  *high = *low + r->size;
  for (int64_t axis = 0; axis < r->rank; ++axis) {
    if (r->extents[axis] <= 0) {
      *high = *low;
      return;
    }
    const int64_t reach = (r->extents[axis] - 1) * r->strides[axis];
    *low += pto_min(reach, 0);
    *high += pto_max(reach, 0);
  }
}

// Whether two regions are different columns of the same rows: rows are the last axis but one, planes hold whole rows.
PTO_UNUSED static bool pto_columns_apart(const pto_region *a, const pto_region *b) {
  const int64_t last = a->rank - 1;
  if (last < 1 || b->rank != a->rank || a->size != b->size || a->strides[last] < a->size) return false;
  for (int64_t axis = 0; axis <= last; ++axis) {
    if (a->strides[axis] != b->strides[axis] || a->extents[axis] != b->extents[axis]) return false;
    if (axis > 0 && axis < last && a->extents[axis] * a->strides[axis] > a->strides[axis - 1]) return false;
  }
  const int64_t width = (a->extents[last] - 1) * a->strides[last] + a->size;
  const int64_t between = (int64_t)(uintptr_t)b->start - (int64_t)(uintptr_t)a->start;
  const int64_t distance = pto_max(between, -between);
  return width <= distance && distance + width <= a->strides[last - 1];
}

// Whether two regions may share an address.
PTO_UNUSED static bool pto_overlap(const pto_region *a, const pto_region *b) {
  int64_t low, high, low2, high2;
  pto_addresses(a, &low, &high);
  pto_addresses(b, &low2, &high2);
  return low < high2 && low2 < high && !pto_columns_apart(a, b);
}

// Whether they overlap and are not the same elements in the same order.
PTO_UNUSED static bool pto_clash(const pto_region *a, const pto_region *b) {
  bool equal = a->start == b->start;
  for (int64_t axis = 0; axis < a->rank; ++axis)
    equal = equal && (a->extents[axis] == 1 || a->strides[axis] == b->strides[axis]);
  return !equal && pto_overlap(a, b);
}

// fill: so many elements of a value.
//
// padded_row, padded: so many elements from `from` on, of which so many are left in their tensor, with `value` behind
// them: where they stand when all are inside, else copied to `memory`.  `stride` is from row to row, also of the copy.
#define PTO_FILL(T, NAME)                                                                                            \
  PTO_UNUSED static void pto_fill_##NAME(T *to, int64_t count, T value) {                                            \
    for (int64_t i = 0; i < count; ++i) to[i] = value;                                                               \
  }                                                                                                                  \
  PTO_UNUSED static T *pto_padded_row_##NAME(void *memory, T *from, int64_t count, int64_t left, T value) {          \
    if (count <= left) return from;                                                                                  \
    const int64_t inside = pto_max(left, 0);                                                                         \
    if (inside > 0) memcpy(memory, from, (size_t)inside * sizeof(T));                                                \
    pto_fill_##NAME((T *)memory + inside, count - inside, value);                                                    \
    return memory;                                                                                                   \
  }                                                                                                                  \
  PTO_UNUSED static T *pto_padded_##NAME(void *memory, T *from, int64_t *stride, int64_t rows, int64_t columns,      \
                                         int64_t rows_left, int64_t columns_left, T value) {                         \
    if (rows <= rows_left && columns <= columns_left) return from;                                                   \
    for (int64_t i = 0; i < rows; ++i) {                                                                             \
      T *const row = (T *)memory + i * columns;                                                                      \
      const int64_t inside = i < rows_left ? pto_max(pto_min(columns, columns_left), 0) : 0;                         \
      if (inside > 0) memcpy(row, from + i * *stride, (size_t)inside * sizeof(T));                                   \
      pto_fill_##NAME(row + inside, columns - inside, value);                                                        \
    }                                                                                                                \
    *stride = columns;                                                                                               \
    return memory;                                                                                                   \
  }
PTO_FILL(uint16_t, f16)
PTO_FILL(uint16_t, bf16)
PTO_FILL(float, f32)
PTO_FILL(double, f64)
PTO_FILL(int8_t, i8)
PTO_FILL(int16_t, i16)
PTO_FILL(int32_t, i32)
PTO_FILL(int64_t, i64)
PTO_FILL(uint8_t, u8)
PTO_FILL(uint16_t, u16)
PTO_FILL(uint32_t, u32)
PTO_FILL(uint64_t, u64)
PTO_FILL(bool, bool_)

// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011): words 0 and 1 for a 64-bit counter.
PTO_INLINE void pto_philox(int64_t seed, int64_t counter, uint32_t words[2]) {
  uint32_t c[4] = {(uint32_t)counter, (uint32_t)((uint64_t)counter >> 32), 0, 0};
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    const uint32_t next0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, next2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
    c[0] = next0, c[1] = (uint32_t)p1, c[2] = next2, c[3] = (uint32_t)p0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  words[0] = c[0], words[1] = c[1];
}
// f32 in [0, 1).
PTO_INLINE float pto_rand(int64_t seed, int64_t counter) {
  uint32_t words[2];
  pto_philox(seed, counter, words);
  return (float)(words[0] >> 8) * 0x1p-24f;
}

// The order of the elements of a row, in `order`: a stable merge sort of indices (bottom-up), with as many `spare` ones.
// AFTER says of keys x and y that y must come before x, which it follows now.
#define PTO_ARGSORT(T, NAME, KEY, AFTER)                                                                             \
  PTO_UNUSED static void pto_argsort_##NAME(const T *keys, int64_t stride, int64_t n, int32_t *order,                \
                                            int32_t *spare) {                                                        \
    for (int64_t i = 0; i < n; ++i) order[i] = (int32_t)i;                                                           \
    int32_t *from = order, *to = spare;                                                                              \
    for (int64_t width = 1; width < n; width *= 2) {                                                                 \
      for (int64_t left = 0; left < n; left += 2 * width) {                                                          \
        const int64_t middle = pto_min(left + width, n), right = pto_min(left + 2 * width, n);                       \
        for (int64_t k = left, i = left, j = middle; k < right; ++k) {                                               \
          bool second = i >= middle;                                                                                 \
          if (!second && j < right) {                                                                                \
            const T first_key = keys[from[i] * stride], second_key = keys[from[j] * stride];                         \
            second = AFTER(KEY(first_key), KEY(second_key));                                                         \
          }                                                                                                          \
          to[k] = second ? from[j++] : from[i++];                                                                    \
        }                                                                                                            \
      }                                                                                                              \
      int32_t *const swap = from;                                                                                    \
      from = to, to = swap;                                                                                          \
    }                                                                                                                \
    if (from != order) memcpy(order, from, (size_t)n * sizeof(int32_t));                                             \
  }
#define PTO_KEY(x) (x)
// NaN comes last, first when descending.
#define PTO_ASCENDING(x, y) ((y) < (x) || ((x) != (x) && (y) == (y)))
#define PTO_DESCENDING(x, y) ((y) > (x) || ((y) != (y) && (x) == (x)))

// An element from and to its bits.
#define PTO_BITS(T, NAME, U)                                                                  \
  PTO_INLINE T pto_from_##NAME##_bits(U bits) { T x; memcpy(&x, &bits, sizeof x); return x; } \
  PTO_INLINE U pto_to_##NAME##_bits(T x) { U bits; memcpy(&bits, &x, sizeof x); return bits; }
PTO_BITS(uint16_t, f16, uint16_t)
PTO_BITS(uint16_t, bf16, uint16_t)
PTO_BITS(float, f32, uint32_t)
PTO_BITS(double, f64, uint64_t)
PTO_BITS(int8_t, i8, uint8_t)
PTO_BITS(int16_t, i16, uint16_t)
PTO_BITS(int32_t, i32, uint32_t)
PTO_BITS(int64_t, i64, uint64_t)
PTO_BITS(uint8_t, u8, uint8_t)
PTO_BITS(uint16_t, u16, uint16_t)
PTO_BITS(uint32_t, u32, uint32_t)
PTO_BITS(uint64_t, u64, uint64_t)
PTO_BITS(bool, bool_, uint8_t)

#endif

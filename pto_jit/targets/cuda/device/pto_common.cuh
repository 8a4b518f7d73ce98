// SPDX-License-Identifier: MIT
// What all CUDA kernels written by pto_jit are made of: what functions are called, failures, tensors, functions of
// numbers.
#pragma once

#if !defined(PTO_EMULATED)
#include <stdint.h>
#define PTO_FUNCTION __device__ __forceinline__
#define PTO_SUBROUTINE __device__ __noinline__
#define PTO_SHARED_MEMORY(name) extern __shared__ __align__(16) unsigned char name[]
#endif
#define PTO_CONSTANT __host__ __device__ constexpr
#define PTO_UNROLL _Pragma("unroll")
#define PTO_UNROLL_BY_4 _Pragma("unroll 4")
#define PTO_UNROLL_BY(n) PTO_PRAGMA(unroll n)
#define PTO_PRAGMA(text) _Pragma(#text)
#define PTO_KEEP_LOOP _Pragma("unroll 1")
// What a loop of the grid goes on with. COVERED: the grid has a block or thread for every iteration; then there is no
// loop, and nothing of it in registers. PTO_AHEAD: of so many iterations, where they update bins, a thread loads what
// they read before the first of them goes on.
#if defined(COVERED)
#define PTO_NEXT(at, stop, stride) at = stop
#define PTO_AHEAD(count, bins) 1
#else
#define PTO_NEXT(at, stop, stride) at += stride
#define PTO_AHEAD(count, bins) ((bins) > 0 ? count : 1)
#endif
#include "pto_elements.h"

namespace pto {

// The first failure of a launch: a number that the host knows, and the two numbers that its message shows. The host may
// look while the kernel runs: `site` is written last.
struct Failure {
  int site;
  int claimed;  // by the thread that writes the rest
  int64_t first, second;
};

PTO_FUNCTION void fail(Failure* failure, int site, int64_t first, int64_t second) {
  if (atomicCAS(&failure->claimed, 0, 1) != 0) return;
  failure->first = first;
  failure->second = second;
  __threadfence_system();
  *reinterpret_cast<volatile int*>(&failure->site) = site;
}

// A tensor: strides count elements.
template <class T, int N>
struct Tensor {
  T* data;
  int64_t shape[N];
  int64_t stride[N];
};
template <class T>
struct Tensor<T, 0> {
  T* data;
};

// How much of `extent` elements from `offset` on lies in a tensor of `size`; nothing when the offset is negative.
PTO_FUNCTION int64_t view_extent(int64_t extent, int64_t size, int64_t offset) {
  const int64_t left = size - offset, inside = left < extent ? left : extent;
  return offset < 0 || inside < 0 ? 0 : inside;
}
PTO_FUNCTION int clipped(int64_t extent, int64_t size, int64_t offset) {
  return int(view_extent(extent, size, offset));
}

PTO_FUNCTION int smaller(int x, int y) { return x < y ? x : y; }

// exp in f32: CUDA's own, by the hardware's 2**x, wrong by one unit in the last place at most as NVIDIA documents it.
PTO_FUNCTION float exponential(float x) { return ::expf(x); }

// What fastmath makes of exp and exp2 in f32: the hardware's 2**x, within 2 + |x| units in the last place; numbers too
// small to be normal become 0.
PTO_FUNCTION float fast_exp2(float x) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return exp2f(x);
#endif
}
PTO_FUNCTION float fast_exp(float x) { return fast_exp2(x * 1.442695f); }

// 1 / x by the hardware, for 2**-126 <= x <= 2**126: wrong by one unit in the last place at most, right for powers of
// two. The emulation takes a neighbour of what is right as often as not.
PTO_FUNCTION float fast_reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  const float near = 1.0f / x;
  const uint32_t fraction = uint32_t(bits(x)) & 0x7fffff;
  return fraction == 0 || near != near ? near : from_bits(bits(near) + int32_t(fraction % 3) - 1);
#endif
}
// x / y for 1/2 <= y <= 2**64, without the checks of a division for all numbers: what the quotient takes too much of x
// is divided too. That is NaN where x is infinite, and then any number serves; it is +0 where x is -0 or +0.
PTO_FUNCTION float ratio(float x, float y) {
  const float near = fast_reciprocal(y), quotient = x * near;
  return fma(-::fmaxf(fma(y, quotient, -x), -0x1p112f), near, quotient);
}
PTO_FUNCTION float fast_ratio(float x, float y) { return x * fast_reciprocal(y); }

// From one row to the next of a tile in shared memory.
template <class T>
PTO_CONSTANT int pitch(int columns) { return columns + 16 / int(sizeof(T)); }
PTO_CONSTANT int padded(int n) { return (n + 15) / 16 * 16; }
// So many columns that n elements fit from one row to the next, which are an odd number of 16 bytes apart.
template <class T>
PTO_CONSTANT int tight(int n) {
  return ((n * int(sizeof(T)) + 15) / 16 | 1) * 16 / int(sizeof(T)) - 16 / int(sizeof(T));
}

// A tile without elements has room for one: there are no arrays of none.
PTO_CONSTANT int some(int n) { return n > 0 ? n : 1; }

}  // namespace pto

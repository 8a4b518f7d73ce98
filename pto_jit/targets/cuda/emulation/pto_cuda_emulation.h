// SPDX-License-Identifier: MIT
// CUDA's built-ins on a CPU, enough for the kernels that pto_jit writes: so that the block-level code can be run and
// checked where there is no GPU.
//
// A block's threads are fibers that run one after the other until they meet a barrier or a shuffle. The order in which
// they run is a parameter of the launch (forwards, backwards, or shuffled by a seed). It is stricter than a device: all
// threads that meet must do so at one place of the code, as often as all others, and every access is looked at
// (pto_cuda_checks.h).
#pragma once

#define PTO_EMULATED 1
#define PTO_FUNCTION inline
#define PTO_SUBROUTINE inline
#define __device__
#define __host__
#define __global__
#define PTO_SHARED_MEMORY(name) unsigned char* const name = emulation::dynamic_shared()
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__
// 16-bit floats whose copies are accesses that the compiler tells of.
#define PTO_ELEMENT(name)                                         \
  struct name {                                                   \
    uint16_t raw;                                                 \
    name() = default;                                             \
    name(uint16_t bits) : raw(bits) {}                            \
    name(const name& x) : raw(x.raw) {}                           \
    name& operator=(const name& x) { return raw = x.raw, *this; } \
  }

#include "pto_cuda_checks.h"

struct dim3 {
  unsigned x, y, z;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

namespace emulation {

// The call of a barrier and those around it: threads that meet are at one place of the code.
struct Place {
  const void* calls[3];
};
#define PTO_PLACE \
  emulation::Place { __builtin_return_address(0), __builtin_return_address(1), __builtin_return_address(2) }

dim3 thread();
dim3 block_index();
dim3 block_size();
dim3 grid_size();
unsigned char* dynamic_shared();

// Run a grid; nullptr, or what went wrong. `begin_checks` has been called, and tensors are known.
const char* launch(dim3 grid, dim3 size, size_t shared_bytes, unsigned seed, void (*body)(void*), void* arguments);

// An operation of the hardware that nobody comes between.
template <class T>
PTO_UNCHECKED inline T updated(T* at, T value, bool changes) {
  touched_whole(at, sizeof(T), Access::UPDATE);
  const T old = *at;
  if (changes) *at = value;
  return old;
}

}  // namespace emulation

#define threadIdx (emulation::thread())
#define blockIdx (emulation::block_index())
#define blockDim (emulation::block_size())
#define gridDim (emulation::grid_size())

void __syncthreads();
void __syncwarp(unsigned = 0xffffffffu);
PTO_UNCHECKED inline void __threadfence_system() {}
int __shfl_sync(unsigned mask, int value, int lane);
int __shfl_xor_sync(unsigned mask, int value, int other);
template <class T>
PTO_UNCHECKED inline T atomicCAS(T* at, T compare, T value) {
  return emulation::updated(at, value, *at == compare);
}
template <class T>
PTO_UNCHECKED inline T atomicAdd(T* at, T value) {
  return emulation::updated(at, T(*at + value), true);
}
template <class T>
PTO_UNCHECKED inline T atomicMax(T* at, T value) {
  return emulation::updated(at, value, *at < value);
}
template <class T>
PTO_UNCHECKED inline T atomicMin(T* at, T value) {
  return emulation::updated(at, value, value < *at);
}

#include "pto_cuda_instructions.h"

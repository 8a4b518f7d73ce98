// SPDX-License-Identifier: MIT
// Every access of a kernel that runs on a CPU, looked at: what a device would fail at, or fail at now and then, is a
// fault every time.
//
// The kernel is compiled with -fsanitize=thread, for the calls that this makes before each access alone: they are
// defined in pto_cuda_checks.cpp, and the sanitizer's library is not linked. For each byte that threads share it is
// known who wrote and who read it last, and when. Two accesses, one of which writes, are ordered when a barrier of their
// block is between them, or one of their warp; else they are a race. Others are addresses outside of all tensors, those
// that are no multiple of what is accessed at a time, and shared memory that is read before it is written.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Code of these headers that is not looked at, though it is compiled with the kernel.
#define PTO_UNCHECKED __attribute__((no_sanitize("thread")))

namespace emulation {

enum class Access { READ, WRITE, UPDATE };  // an update: an atomic one, or a look at what others update

void touched(const void* address, size_t size, Access access);
// The same of what is accessed by one instruction: the address is a multiple of the size.
void touched_whole(const void* address, size_t size, Access access);
// An asynchronous copy of 16 bytes: from its beginning on, until it has been waited for, nobody may touch where it
// goes.
void expect(const void* address, bool expected);

// -- what a launch knows ----------------------------------------------------------------------------------------------

void begin_checks();
void add_memory(const void* at, size_t size, bool of_grid, const char* name);
// The number that says whether the kernel has failed.
void watch_failure(const int* site);

template <template <class, int> class Tensor, class T, int N>
PTO_UNCHECKED inline void add_tensor(const Tensor<T, N>& x) {
  int64_t low = 0, high = 0;
  if constexpr (N > 0) {  // else it has no extents at all
    for (int axis = 0; axis < N; ++axis) {
      if (x.shape[axis] <= 0) return;
      const int64_t far = (x.shape[axis] - 1) * x.stride[axis];
      (far < 0 ? low : high) += far;
    }
  }
  add_memory(x.data + low, size_t(high - low + 1) * sizeof(*x.data), true, "a tensor");
}

// Where a kernel records its first failure.
template <class Failure>
PTO_UNCHECKED inline void add_failure(const Failure* failure) {
  watch_failure(&failure->site);
  add_memory(failure, sizeof(Failure), true, "the record of failures");
}

}  // namespace emulation

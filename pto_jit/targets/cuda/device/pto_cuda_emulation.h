// SPDX-License-Identifier: MIT
// CUDA's built-ins on a CPU, enough for the kernels that pto_jit writes: so that the block-level code can be run and
// checked where there is no GPU.
//
// A block's threads are fibers that run one after the other until they meet a barrier or a shuffle. The order in which
// they run is a parameter of the launch (forwards, backwards, or shuffled by a seed), so that a missing barrier gives
// different results. Shared memory starts as a pattern of NaNs in every block.
#pragma once

#define PTO_EMULATED 1
#define PTO_FUNCTION inline
#define __device__
#define __host__
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct dim3 {
  unsigned x, y, z;
};

namespace emulation {

struct Fiber {
  ucontext_t context;
  dim3 thread;
  bool done;
  const int* waits_on;  // the counter of a barrier, and the value at which the fiber goes on
  int until;
  char* stack;
};

struct Warp {
  int arrived, generation, alive;
  uint32_t words[32];
  uint32_t fragments[32][16];
};

struct Block {
  dim3 grid, block, index;
  Fiber* fibers;
  Fiber* current;
  Warp* warps;
  int count, alive, arrived, generation;
  ucontext_t scheduler;
  void (*body)(void*);
  void* arguments;
  char* dynamic_shared;
};

inline Block& block() {
  static Block instance;
  return instance;
}

inline int linear() {
  const Block& b = block();
  const dim3 t = b.current->thread;
  return int(t.x + b.block.x * (t.y + b.block.y * t.z));
}

inline void wait(const int* counter, int until) {
  Fiber* self = block().current;
  self->waits_on = counter;
  self->until = until;
  swapcontext(&self->context, &block().scheduler);
}

// A barrier opens when all threads that still run have arrived.
inline void arrive(int& arrived, int& generation, int alive) {
  if (++arrived >= alive) {
    arrived = 0;
    ++generation;
  } else {
    wait(&generation, generation + 1);
  }
}

inline void warp_barrier() {
  Warp& w = block().warps[linear() / 32];
  arrive(w.arrived, w.generation, w.alive);
}

inline void block_barrier() {
  Block& b = block();
  arrive(b.arrived, b.generation, b.alive);
}

inline void enter() {
  Block& b = block();
  b.body(b.arguments);
  Fiber* self = b.current;
  self->done = true;
  Warp& w = b.warps[linear() / 32];
  if (--w.alive > 0 && w.arrived >= w.alive) {
    w.arrived = 0;
    ++w.generation;
  }
  if (--b.alive > 0 && b.arrived >= b.alive) {
    b.arrived = 0;
    ++b.generation;
  }
  swapcontext(&self->context, &b.scheduler);
}

// Run one block; false when its threads wait for each other for ever.
inline bool run_block(unsigned seed) {
  Block& b = block();
  const int count = b.count;
  int* order = static_cast<int*>(malloc(sizeof(int) * size_t(count)));
  for (int k = 0; k < count; ++k) order[k] = seed == 1 ? count - 1 - k : k;
  if (seed > 1) {
    uint32_t state = seed * 2654435761u + 1;
    for (int k = count - 1; k > 0; --k) {
      state = state * 1664525u + 1013904223u;
      const int other = int((state >> 8) % uint32_t(k + 1)), kept = order[k];
      order[k] = order[other];
      order[other] = kept;
    }
  }
  constexpr size_t stack_size = 256 * 1024;
  for (int k = 0; k < count; ++k) {
    Fiber& f = b.fibers[k];
    f.thread = {unsigned(k) % b.block.x, unsigned(k) / b.block.x % b.block.y, unsigned(k) / b.block.x / b.block.y};
    f.done = false;
    f.waits_on = nullptr;
    if (f.stack == nullptr) f.stack = static_cast<char*>(malloc(stack_size));
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack;
    f.context.uc_stack.ss_size = stack_size;
    f.context.uc_link = nullptr;
    makecontext(&f.context, enter, 0);
  }
  for (int w = 0; w < (count + 31) / 32; ++w) {
    b.warps[w].arrived = b.warps[w].generation = 0;
    b.warps[w].alive = count - 32 * w < 32 ? count - 32 * w : 32;
  }
  b.alive = count;
  b.arrived = b.generation = 0;
  bool progress = true;
  while (b.alive > 0 && progress) {
    progress = false;
    for (int k = 0; k < count; ++k) {
      Fiber& f = b.fibers[order[k]];
      if (f.done || (f.waits_on != nullptr && *f.waits_on < f.until)) continue;
      progress = true;
      f.waits_on = nullptr;
      b.current = &f;
      swapcontext(&b.scheduler, &f.context);
    }
  }
  free(order);
  return b.alive == 0;
}

// Run a grid; 0, or 1 when a barrier was not reached by all threads.
inline int launch(dim3 grid, dim3 size, size_t shared_bytes, unsigned seed, void (*body)(void*), void* arguments) {
  Block& b = block();
  const int count = int(size.x * size.y * size.z);
  b.grid = grid;
  b.block = size;
  b.count = count;
  b.body = body;
  b.arguments = arguments;
  b.fibers = static_cast<Fiber*>(calloc(size_t(count), sizeof(Fiber)));
  b.warps = static_cast<Warp*>(calloc(size_t(count + 31) / 32, sizeof(Warp)));
  b.dynamic_shared = static_cast<char*>(aligned_alloc(1024, (shared_bytes + 1024) / 1024 * 1024));
  bool finished = true;
  const unsigned blocks = grid.x * grid.y * grid.z;
  for (unsigned k = 0; k < blocks && finished; ++k) {
    const unsigned at = seed == 1 ? blocks - 1 - k : k;
    b.index = {at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y};
    memset(b.dynamic_shared, 0xff, shared_bytes);
    finished = run_block(seed);
  }
  for (int k = 0; k < count; ++k) free(b.fibers[k].stack);
  free(b.fibers);
  free(b.warps);
  free(b.dynamic_shared);
  return finished ? 0 : 1;
}

inline uint32_t exchange(uint32_t word, int mask) {
  const int at = linear();
  Warp& w = block().warps[at / 32];
  w.words[at % 32] = word;
  warp_barrier();
  const uint32_t got = w.words[(at % 32) ^ mask];
  warp_barrier();
  return got;
}

}  // namespace emulation

#define threadIdx (emulation::block().current->thread)
#define blockIdx (emulation::block().index)
#define blockDim (emulation::block().block)
#define gridDim (emulation::block().grid)

inline void __syncthreads() { emulation::block_barrier(); }
inline void __syncwarp(unsigned = 0xffffffffu) { emulation::warp_barrier(); }
inline int __shfl_xor_sync(unsigned, int value, int mask) { return int(emulation::exchange(uint32_t(value), mask)); }
inline int atomicCAS(int* at, int compare, int value) {
  const int old = *at;
  if (old == compare) *at = value;
  return old;
}

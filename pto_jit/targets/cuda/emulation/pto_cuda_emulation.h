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

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <vector>

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

struct Barrier {
  int arrived, generation, alive, count;
  Place place;
};

struct Fiber {
  ucontext_t context;  // where it starts
  jmp_buf at;          // where it goes on
  dim3 thread;
  bool started, done;
  const int* waits_on;  // the counter of a barrier, and the value at which the fiber goes on
  int until;
  char* stack;
};

struct Warp {
  Barrier barrier;
  uint32_t epoch;  // barriers that order memory: those of shuffles and products do not
  uint32_t words[32];
  const unsigned char* rows[32];
  uint32_t fragments[32][6];
};

// Asynchronous copies are done when they are waited for, so that a missing wait is seen.
struct Copy {
  void* to;
  unsigned char data[16];
};
struct Copies {
  Copy list[512];
  int groups[64];  // where each group ends
  int count, group_count;
  bool hidden;  // some are done that the tensor cores of warpgroups would not see
};

// Products of a warpgroup that are under way for a thread, in groups; the last group is open.
using Products = std::vector<std::vector<std::function<void()>>>;

struct Block {
  dim3 grid, block, index;
  Fiber* fibers;
  Fiber* current;
  Warp* warps;
  Copies* copies;
  std::vector<Products> products;
  Barrier barrier;
  int count, alive;
  jmp_buf scheduler;
  void (*body)(void*);
  void* arguments;
  unsigned char* dynamic_shared;
  char fault[256];  // what ended the launch
};
constexpr size_t STACK_SIZE = 256 * 1024;

PTO_UNCHECKED inline Block& block() {
  static Block* instance;
  if (instance == nullptr) instance = new Block();
  return *instance;
}

// While the emulation works with the library's containers, whose code is compiled with the kernel's.
struct Unchecked {
  PTO_UNCHECKED Unchecked() { checks().running = false; }
  PTO_UNCHECKED ~Unchecked() { checks().running = true; }
};

// What hardware would make undefined ends the launch.
PTO_UNCHECKED inline void stop(const char* what) {
  Block& b = block();
  const dim3 t = b.current->thread;
  snprintf(b.fault, sizeof b.fault, "%s (block %u, %u, %u; thread %u, %u, %u)", what, b.index.x, b.index.y,
           b.index.z, t.x, t.y, t.z);
  _longjmp(b.scheduler, 1);
}
PTO_UNCHECKED inline void stop_at(const char* what, const void* at) {
  char text[160];
  const Memory* const memory = memory_of(reinterpret_cast<uintptr_t>(at));
  if (memory == nullptr) stop(what);
  snprintf(text, sizeof text, "%s: byte %ld of %s", what, long(reinterpret_cast<uintptr_t>(at) - memory->begin),
           memory->name);
  stop(text);
}
PTO_UNCHECKED inline void require(bool condition, const char* otherwise) {
  if (!condition) stop(otherwise);
}

PTO_UNCHECKED inline dim3 thread() { return block().current->thread; }
PTO_UNCHECKED inline dim3 block_index() { return block().index; }
PTO_UNCHECKED inline dim3 block_size() { return block().block; }
PTO_UNCHECKED inline dim3 grid_size() { return block().grid; }
PTO_UNCHECKED inline unsigned char* dynamic_shared() { return block().dynamic_shared; }

PTO_UNCHECKED inline int linear() {
  const Block& b = block();
  const dim3 t = b.current->thread;
  return int(t.x + b.block.x * (t.y + b.block.y * t.z));
}
PTO_UNCHECKED inline Warp& warp() { return block().warps[linear() / 32]; }

// The time for a thread that goes on.
PTO_UNCHECKED inline void set_moment() {
  Moment& now = checks().now;
  now.epoch = uint32_t(block().barrier.generation);
  now.warp_epoch = warp().epoch;
  now.warp = linear() / 32;
  now.lane = linear() % 32;
}

PTO_UNCHECKED inline void wait(const int* counter, int until) {
  Fiber* self = block().current;
  self->waits_on = counter;
  self->until = until;
  if (_setjmp(self->at) == 0) _longjmp(block().scheduler, 1);
}

// A barrier opens when all threads have arrived, at one place.
PTO_UNCHECKED inline bool arrive(Barrier& b, const Place& place) {
  look_at_suspect();
  if (b.arrived == 0) b.place = place;
  require(memcmp(&b.place, &place, sizeof place) == 0, "threads meet at different places of the code");
  require(b.alive == b.count, "threads meet when others have ended");
  if (++b.arrived == b.count) {
    b.arrived = 0;
    ++b.generation;
    return true;
  }
  wait(&b.generation, b.generation + 1);
  return false;
}

PTO_UNCHECKED inline void warp_barrier(const Place& place) { arrive(warp().barrier, place); }

PTO_UNCHECKED inline void enter() {
  Block& b = block();
  b.body(b.arguments);
  look_at_suspect();
  checks().running = false;
  require(b.products[size_t(linear())].size() == 1, "sums that are read before they are complete");
  require(b.copies[linear()].count == 0, "copies that are under way at the end");
  require(b.barrier.arrived == 0 && warp().barrier.arrived == 0, "threads end where others meet");
  b.current->done = true;
  --warp().barrier.alive;
  --b.barrier.alive;
  --b.alive;
  _longjmp(b.scheduler, 1);
}

// Run a thread until it waits for others.
PTO_UNCHECKED inline void resume(Fiber& f) {
  Block& b = block();
  Checks& c = checks();
  b.current = &f;
  f.waits_on = nullptr;
  set_moment();
  c.stack = reinterpret_cast<uintptr_t>(f.stack);
  c.stack_size = STACK_SIZE;
  c.running = true;
  if (_setjmp(b.scheduler) == 0) {
    if (f.started) _longjmp(f.at, 1);
    f.started = true;
    setcontext(&f.context);
  }
  c.running = false;
}

// Which threads take their turns first.
PTO_UNCHECKED inline void order_threads(int* order, int count, unsigned seed) {
  for (int k = 0; k < count; ++k) order[k] = seed == 1 ? count - 1 - k : k;
  if (seed < 2) return;
  uint32_t state = seed * 2654435761u + 1;
  for (int k = count - 1; k > 0; --k) {
    state = state * 1664525u + 1013904223u;
    const int other = int((state >> 8) % uint32_t(k + 1)), kept = order[k];
    order[k] = order[other];
    order[other] = kept;
  }
}

PTO_UNCHECKED inline void prepare_block() {
  Block& b = block();
  const int count = b.count;
  for (int k = 0; k < count; ++k) {
    Fiber& f = b.fibers[k];
    f.thread = {unsigned(k) % b.block.x, unsigned(k) / b.block.x % b.block.y, unsigned(k) / b.block.x / b.block.y};
    f.started = f.done = false;
    f.waits_on = nullptr;
    if (f.stack == nullptr) f.stack = static_cast<char*>(malloc(STACK_SIZE));
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack;
    f.context.uc_stack.ss_size = STACK_SIZE;
    f.context.uc_link = nullptr;
    makecontext(&f.context, enter, 0);
    b.copies[k].count = b.copies[k].group_count = 0;
    b.copies[k].hidden = false;
  }
  for (int w = 0; w < (count + 31) / 32; ++w) {
    const int threads = count - 32 * w < 32 ? count - 32 * w : 32;
    b.warps[w].barrier = {0, 0, threads, threads, {}};
    b.warps[w].epoch = 0;
  }
  b.barrier = {0, 0, count, count, {}};
  b.alive = count;
  b.products.assign(size_t(count), Products(1));
  ++checks().now.block;
}

// Run one block; false when it failed, or when its threads wait for each other for ever.
PTO_UNCHECKED inline bool run_block(const int* order) {
  Block& b = block();
  prepare_block();
  bool progress = true;
  while (b.alive > 0 && progress) {
    progress = false;
    for (int k = 0; k < b.count; ++k) {
      Fiber& f = b.fibers[order[k]];
      if (f.done || (f.waits_on != nullptr && *f.waits_on < f.until)) continue;
      progress = true;
      resume(f);
      if (b.fault[0] != 0) return false;
    }
  }
  if (b.alive > 0) {
    snprintf(b.fault, sizeof b.fault, "%s",
             "the threads of a block wait for each other for ever: a barrier is not reached by all");
  }
  return b.alive == 0;
}

// Run a grid; nullptr, or what went wrong. `begin_checks` has been called, and tensors are known.
PTO_UNCHECKED inline const char* launch(dim3 grid, dim3 size, size_t shared_bytes, unsigned seed, void (*body)(void*),
                                        void* arguments) {
  Block& b = block();
  const int count = int(size.x * size.y * size.z);
  b.grid = grid;
  b.block = size;
  b.count = count;
  b.body = body;
  b.arguments = arguments;
  b.fault[0] = 0;
  b.fibers = static_cast<Fiber*>(calloc(size_t(count), sizeof(Fiber)));
  b.copies = static_cast<Copies*>(calloc(size_t(count), sizeof(Copies)));
  b.warps = static_cast<Warp*>(calloc(size_t(count + 31) / 32, sizeof(Warp)));
  b.dynamic_shared = static_cast<unsigned char*>(aligned_alloc(1024, (shared_bytes + 1024) / 1024 * 1024));
  add_memory(b.dynamic_shared, shared_bytes, false, "shared memory");
  int* const order = static_cast<int*>(malloc(sizeof(int) * size_t(count)));
  order_threads(order, count, seed);
  const unsigned blocks = grid.x * grid.y * grid.z;
  bool finished = true;
  for (unsigned k = 0; k < blocks && finished; ++k) {
    const unsigned at = seed == 1 ? blocks - 1 - k : k;
    b.index = {at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y};
    finished = run_block(order);
  }
  end_checks();
  for (int k = 0; k < count; ++k) free(b.fibers[k].stack);
  free(order);
  free(b.fibers);
  free(b.warps);
  free(b.copies);
  free(b.dynamic_shared);
  return finished ? nullptr : b.fault;
}

// What a lane of this thread's warp gave; each names the lane that it wants.
PTO_UNCHECKED inline uint32_t exchange(uint32_t word, unsigned mask, int lane, const Place& place) {
  Warp& w = warp();
  require(mask == 0xffffffffu && w.barrier.count == 32, "a shuffle of a part of a warp");
  w.words[linear() % 32] = word;
  warp_barrier(place);
  const uint32_t got = w.words[lane];
  warp_barrier(place);
  return got;
}

// An operation of the hardware that nobody comes between.
template <class T>
PTO_UNCHECKED inline T updated(T* at, T value, bool changes) {
  touched_whole<sizeof(T)>(at, Access::UPDATE);
  const T old = *at;
  if (changes) *at = value;
  return old;
}

}  // namespace emulation

#define threadIdx (emulation::thread())
#define blockIdx (emulation::block_index())
#define blockDim (emulation::block_size())
#define gridDim (emulation::grid_size())

PTO_UNCHECKED __attribute__((noinline)) inline void __syncthreads() {
  emulation::arrive(emulation::block().barrier, PTO_PLACE);
  emulation::set_moment();
}
PTO_UNCHECKED __attribute__((noinline)) inline void __syncwarp(unsigned = 0xffffffffu) {
  emulation::Warp& w = emulation::warp();
  if (emulation::arrive(w.barrier, PTO_PLACE)) ++w.epoch;
  emulation::set_moment();
}
PTO_UNCHECKED inline void __threadfence_system() {}
PTO_UNCHECKED __attribute__((noinline)) inline int __shfl_sync(unsigned mask, int value, int lane) {
  return int(emulation::exchange(uint32_t(value), mask, lane, PTO_PLACE));
}
PTO_UNCHECKED __attribute__((noinline)) inline int __shfl_xor_sync(unsigned mask, int value, int other) {
  return int(emulation::exchange(uint32_t(value), mask, emulation::linear() % 32 ^ other, PTO_PLACE));
}
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

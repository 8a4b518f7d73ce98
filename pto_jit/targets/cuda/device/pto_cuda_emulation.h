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
#define PTO_SHARED_MEMORY(name) unsigned char* const name = emulation::block().dynamic_shared
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <vector>

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
  int count, alive, arrived, generation;
  ucontext_t scheduler;
  void (*body)(void*);
  void* arguments;
  unsigned char* dynamic_shared;
};

inline Block& block() {
  static Block instance;
  return instance;
}

// What hardware would make undefined ends the process.
inline void require(bool condition, const char* otherwise) {
  if (condition) return;
  fprintf(stderr, "pto emulation: %s\n", otherwise);
  abort();
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
  require(b.products[size_t(linear())].size() == 1, "sums that are read before they are complete");
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
  for (int k = 0; k < count; ++k) {
    b.copies[k].count = b.copies[k].group_count = 0;
    b.copies[k].hidden = false;
  }
  b.products.assign(size_t(count), Products(1));
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
  b.copies = static_cast<Copies*>(calloc(size_t(count), sizeof(Copies)));
  b.warps = static_cast<Warp*>(calloc(size_t(count + 31) / 32, sizeof(Warp)));
  b.dynamic_shared = static_cast<unsigned char*>(aligned_alloc(1024, (shared_bytes + 1024) / 1024 * 1024));
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
  free(b.copies);
  free(b.dynamic_shared);
  return finished ? 0 : 1;
}

// What a lane of this thread's warp gave; each names the lane that it wants.
inline uint32_t exchange(uint32_t word, int lane) {
  const int at = linear();
  Warp& w = block().warps[at / 32];
  w.words[at % 32] = word;
  warp_barrier();
  const uint32_t got = w.words[lane];
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
inline int __shfl_sync(unsigned, int value, int lane) { return int(emulation::exchange(uint32_t(value), lane)); }
inline int __shfl_xor_sync(unsigned, int value, int mask) {
  return int(emulation::exchange(uint32_t(value), emulation::linear() % 32 ^ mask));
}
template <class T>
inline T atomicCAS(T* at, T compare, T value) {
  const T old = *at;
  if (old == compare) *at = value;
  return old;
}
template <class T>
inline T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = T(old + value);
  return old;
}
template <class T>
inline T atomicMax(T* at, T value) {
  const T old = *at;
  if (old < value) *at = value;
  return old;
}
template <class T>
inline T atomicMin(T* at, T value) {
  const T old = *at;
  if (value < old) *at = value;
  return old;
}

namespace pto {

struct half;
struct bfloat16;
inline float widened(half x);
inline float widened(bfloat16 x);

inline void copy_async(void* shared, const void* global, bool inside) {
  emulation::Copies& c = emulation::block().copies[emulation::linear()];
  emulation::require(c.count < 512, "more than 512 copies under way in one thread");
  emulation::Copy& copy = c.list[c.count++];
  copy.to = shared;
  memset(copy.data, 0, 16);
  if (inside) memcpy(copy.data, global, 16);
}
inline void commit_copies() {
  emulation::Copies& c = emulation::block().copies[emulation::linear()];
  c.groups[c.group_count++] = c.count;
}
template <int PENDING>
inline void wait_for_copies() {
  emulation::Copies& c = emulation::block().copies[emulation::linear()];
  const int ready = c.group_count > PENDING ? c.group_count - PENDING : 0;
  if (ready == 0) return;
  const int end = c.groups[ready - 1];
  c.hidden = c.hidden || end > 0;
  for (int k = 0; k < end; ++k) memcpy(c.list[k].to, c.list[k].data, 16);
  memmove(c.list, c.list + end, sizeof(emulation::Copy) * size_t(c.count - end));
  c.count -= end;
  c.group_count -= ready;
  for (int k = 0; k < c.group_count; ++k) c.groups[k] = c.groups[k + ready] - end;
}

template <bool TRANSPOSED>
inline void load_matrices(uint32_t (&x)[4], const void* row) {
  const int lane = emulation::linear() % 32;
  emulation::Warp& w = emulation::block().warps[emulation::linear() / 32];
  w.rows[lane] = static_cast<const unsigned char*>(row);
  emulation::warp_barrier();
  for (int q = 0; q < 4; ++q) {
    unsigned char raw[4];
    for (int e = 0; e < 2; ++e) {
      const int line = TRANSPOSED ? lane % 4 * 2 + e : lane / 4, column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + e;
      memcpy(raw + 2 * e, w.rows[8 * q + line] + 2 * column, 2);
    }
    memcpy(&x[q], raw, 4);
  }
  emulation::warp_barrier();
}

template <class T>
inline void multiply_fragments(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, T) {
  const int lane = emulation::linear() % 32;
  emulation::Warp& w = emulation::block().warps[emulation::linear() / 32];
  for (int k = 0; k < 4; ++k) w.fragments[lane][k] = a[k];
  w.fragments[lane][4] = b0;
  w.fragments[lane][5] = b1;
  emulation::warp_barrier();
  for (int out = 0; out < 4; ++out) {
    const int row = lane / 4 + out / 2 * 8, column = lane % 4 * 2 + out % 2;
    for (int k = 0; k < 16; ++k) {
      const uint32_t left = w.fragments[row % 8 * 4 + k % 8 / 2][row / 8 + 2 * (k / 8)] >> 16 * (k % 2);
      const uint32_t right = w.fragments[column * 4 + k % 8 / 2][4 + k / 8] >> 16 * (k % 2);
      d[out] += widened(T{uint16_t(left)}) * widened(T{uint16_t(right)});
    }
  }
  emulation::warp_barrier();
}

// Products of warpgroups: operands must be the same from when a product begins until it is waited for, and sums change only
// then.
inline void show_to_tensor_cores() { emulation::block().copies[emulation::linear()].hidden = false; }
inline uint32_t shared_address(const void* shared) {
  return uint32_t(static_cast<const unsigned char*>(shared) - emulation::block().dynamic_shared);
}
inline void begin_products() {
  const emulation::Block& b = emulation::block();
  for (int k = 0; k < b.count; ++k) emulation::require(!b.copies[k].hidden, "copies that the tensor cores do not see");
}
inline emulation::Products& products() { return emulation::block().products[size_t(emulation::linear())]; }
inline void commit_products() { products().emplace_back(); }
template <int PENDING>
inline void wait_for_groups() {
  emulation::Products& groups = products();
  while (groups.size() > PENDING + 1) {
    for (const auto& product : groups.front()) product();
    groups.erase(groups.begin());
  }
}
inline void hold(float&) {}

// Element k of what is contracted in row or column `at` of the result: by the fields of a descriptor in shared memory
// (PTX ISA, "Matrix Descriptor Format" and "Strides").
template <class T>
inline float described_element(uint64_t descriptor, bool along, int at, int k) {
  const auto field = [&](int first) { return uint32_t(descriptor >> first & 0x3fff) << 4; };
  emulation::require(descriptor >> 62 == 1, "a descriptor of another layout");
  const uint32_t leading = field(16), stride = field(32), mn = uint32_t(at), depth = uint32_t(k);
  const uint32_t offset = along ? mn / 64 * leading + depth / 8 * stride + depth % 8 * 128 + mn % 64 * 2
                                : mn / 8 * stride + mn % 8 * 128 + depth * 2;
  const uint32_t plain = field(0) + offset, swizzled = plain ^ (plain >> 7 & 7) << 4;
  uint16_t raw;
  memcpy(&raw, emulation::block().dynamic_shared + swizzled, 2);
  return widened(T{raw});
}

template <int N, int J, bool A_ALONG, bool B_ALONG, int NC, class T>
inline void multiply_by_warpgroup(float (&x)[NC], float (&y)[NC], uint64_t a, uint64_t b, T) {
  const auto sums = [a, b] {
    const int lane = emulation::linear() % 32, warp = emulation::linear() / 32 % 4;
    std::vector<float> out(N / 2);
    for (int j = 0; j < N / 2; ++j) {
      const int slot = j % (N / 4), row = warp * 16 + j / (N / 4) * 8 + lane / 4;
      const int column = slot / 2 * 8 + lane % 4 * 2 + slot % 2;
      for (int k = 0; k < 16; ++k) {
        out[size_t(j)] += described_element<T>(a, A_ALONG, row, k) * described_element<T>(b, B_ALONG, column, k);
      }
    }
    return out;
  };
  products().back().push_back([&x, &y, sums, before = sums()] {
    const std::vector<float> now = sums();
    emulation::require(memcmp(now.data(), before.data(), sizeof(float) * (N / 2)) == 0,
                       "an operand that changes while it is multiplied");
    for (int j = 0; j < N / 4; ++j) {
      x[J + j] += now[size_t(j)];
      y[J + j] += now[size_t(j + N / 4)];
    }
  });
}

}  // namespace pto

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

namespace pto {

struct half;
struct bfloat16;
PTO_UNCHECKED inline float widened(half x);
PTO_UNCHECKED inline float widened(bfloat16 x);

PTO_UNCHECKED inline void copy_async(void* shared, const void* global, bool inside) {
  emulation::Copies& c = emulation::block().copies[emulation::linear()];
  emulation::require(c.count < 512, "more than 512 copies under way in one thread");
  emulation::Copy& copy = c.list[c.count++];
  copy.to = shared;
  memset(copy.data, 0, 16);
  emulation::expect(shared, true);
  if (!inside) return;
  emulation::touched_whole<16>(global, emulation::Access::READ);
  memcpy(copy.data, global, 16);
}
PTO_UNCHECKED inline void commit_copies() {
  emulation::Copies& c = emulation::block().copies[emulation::linear()];
  emulation::require(c.group_count < 64, "more than 64 groups of copies under way in one thread");
  c.groups[c.group_count++] = c.count;
}
template <int PENDING>
PTO_UNCHECKED inline void wait_for_copies() {
  emulation::Copies& c = emulation::block().copies[emulation::linear()];
  const int ready = c.group_count > PENDING ? c.group_count - PENDING : 0;
  if (ready == 0) return;
  const int end = c.groups[ready - 1];
  c.hidden = c.hidden || end > 0;
  for (int k = 0; k < end; ++k) {
    emulation::expect(c.list[k].to, false);
    memcpy(c.list[k].to, c.list[k].data, 16);
  }
  memmove(c.list, c.list + end, sizeof(emulation::Copy) * size_t(c.count - end));
  c.count -= end;
  c.group_count -= ready;
  for (int k = 0; k < c.group_count; ++k) c.groups[k] = c.groups[k + ready] - end;
}

template <bool TRANSPOSED>
PTO_UNCHECKED __attribute__((noinline)) inline void load_matrices(uint32_t (&x)[4], const void* row) {
  const int lane = emulation::linear() % 32;
  emulation::Warp& w = emulation::warp();
  emulation::touched_whole<16>(row, emulation::Access::READ);
  w.rows[lane] = static_cast<const unsigned char*>(row);
  emulation::warp_barrier(PTO_PLACE);
  for (int q = 0; q < 4; ++q) {
    unsigned char raw[4];
    for (int e = 0; e < 2; ++e) {
      const int line = TRANSPOSED ? lane % 4 * 2 + e : lane / 4, column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + e;
      memcpy(raw + 2 * e, w.rows[8 * q + line] + 2 * column, 2);
    }
    memcpy(&x[q], raw, 4);
  }
  emulation::warp_barrier(PTO_PLACE);
}

template <class T>
PTO_UNCHECKED __attribute__((noinline)) inline void multiply_fragments(float (&d)[4], const uint32_t (&a)[4],
                                                                       uint32_t b0, uint32_t b1, T) {
  const int lane = emulation::linear() % 32;
  emulation::Warp& w = emulation::warp();
  for (int k = 0; k < 4; ++k) w.fragments[lane][k] = a[k];
  w.fragments[lane][4] = b0;
  w.fragments[lane][5] = b1;
  emulation::warp_barrier(PTO_PLACE);
  for (int out = 0; out < 4; ++out) {
    const int row = lane / 4 + out / 2 * 8, column = lane % 4 * 2 + out % 2;
    for (int k = 0; k < 16; ++k) {
      const uint32_t left = w.fragments[row % 8 * 4 + k % 8 / 2][row / 8 + 2 * (k / 8)] >> 16 * (k % 2);
      const uint32_t right = w.fragments[column * 4 + k % 8 / 2][4 + k / 8] >> 16 * (k % 2);
      d[out] += widened(T{uint16_t(left)}) * widened(T{uint16_t(right)});
    }
  }
  emulation::warp_barrier(PTO_PLACE);
}

// Products of warpgroups: operands must be the same from when a product begins until it is waited for, and sums change
// only then.
PTO_UNCHECKED inline void show_to_tensor_cores() { emulation::block().copies[emulation::linear()].hidden = false; }
PTO_UNCHECKED inline uint32_t shared_address(const void* shared) {
  return uint32_t(static_cast<const unsigned char*>(shared) - emulation::block().dynamic_shared);
}
PTO_UNCHECKED inline void begin_products() {
  const emulation::Block& b = emulation::block();
  for (int k = 0; k < b.count; ++k) emulation::require(!b.copies[k].hidden, "copies that the tensor cores do not see");
}
PTO_UNCHECKED inline emulation::Products& products() {
  return emulation::block().products[size_t(emulation::linear())];
}
PTO_UNCHECKED inline void commit_products() {
  const emulation::Unchecked own;
  products().emplace_back();
}
template <int PENDING>
PTO_UNCHECKED inline void wait_for_groups() {
  const emulation::Unchecked own;
  emulation::Products& groups = products();
  while (groups.size() > PENDING + 1) {
    for (const auto& product : groups.front()) product();
    groups.erase(groups.begin());
  }
}
PTO_UNCHECKED inline void hold(float&) {}

// Element k of what is contracted in row or column `at` of the result: by the fields of a descriptor in shared memory
// (PTX ISA, "Matrix Descriptor Format" and "Strides").
template <class T>
PTO_UNCHECKED inline float described_element(uint64_t descriptor, bool along, int at, int k) {
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
PTO_UNCHECKED inline void multiply_by_warpgroup(float (&x)[NC], float (&y)[NC], uint64_t a, uint64_t b, T) {
  const emulation::Unchecked own;
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

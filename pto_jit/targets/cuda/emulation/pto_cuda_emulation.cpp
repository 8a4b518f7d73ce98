// SPDX-License-Identifier: MIT
// What pto_cuda_emulation.h declares: blocks whose threads take turns.
#include "pto_cuda_emulation.h"

#include "pto_cuda_blocks.h"

namespace emulation {

Block& block() {
  static Block* instance;
  if (instance == nullptr) instance = static_cast<Block*>(calloc(1, sizeof(Block)));
  return *instance;
}

// What hardware would make undefined ends the launch.
void stop(const char* what) {
  Block& b = block();
  const dim3 t = b.current->thread;
  snprintf(b.fault, sizeof b.fault, "%s (block %u, %u, %u; thread %u, %u, %u)", what, b.index.x, b.index.y,
           b.index.z, t.x, t.y, t.z);
  _longjmp(b.scheduler, 1);
}
void stop_at(const char* what, const void* at) {
  char text[160];
  const Memory* const memory = memory_of(reinterpret_cast<uintptr_t>(at));
  if (memory == nullptr) stop(what);
  snprintf(text, sizeof text, "%s: byte %ld of %s", what, long(reinterpret_cast<uintptr_t>(at) - memory->begin),
           memory->name);
  stop(text);
}
void require(bool condition, const char* otherwise) {
  if (!condition) stop(otherwise);
}

dim3 thread() { return block().current->thread; }
dim3 block_index() { return block().index; }
dim3 block_size() { return block().block; }
dim3 grid_size() { return block().grid; }
unsigned char* dynamic_shared() { return block().dynamic_shared; }

int linear() {
  const Block& b = block();
  const dim3 t = b.current->thread;
  return int(t.x + b.block.x * (t.y + b.block.y * t.z));
}
Warp& warp() { return block().warps[linear() / 32]; }

// The time for a thread that goes on.
static void set_moment() {
  Moment& now = checks().now;
  now.epoch = uint32_t(block().barrier.generation);
  now.warp_epoch = warp().epoch;
  now.warp = linear() / 32;
  now.lane = linear() % 32;
}

static void wait(const int* counter, int until) {
  Fiber* self = block().current;
  self->waits_on = counter;
  self->until = until;
  if (_setjmp(self->at) == 0) _longjmp(block().scheduler, 1);
}

// A barrier opens when all threads have arrived, at one place.
static bool arrive(Barrier& b, const Place& place) {
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

void warp_barrier(const Place& place) { arrive(warp().barrier, place); }

static void enter() {
  Block& b = block();
  b.body(b.arguments);
  look_at_suspect();
  checks().running = false;
  require(b.products[linear()].first == b.products[linear()].open, "sums that are read before they are complete");
  require(b.copies[linear()].count == 0, "copies that are under way at the end");
  require(b.barrier.arrived == 0 && warp().barrier.arrived == 0, "threads end where others meet");
  b.current->done = true;
  --warp().barrier.alive;
  --b.barrier.alive;
  --b.alive;
  _longjmp(b.scheduler, 1);
}

// Run a thread until it waits for others.
static void resume(Fiber& f) {
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
static void order_threads(int* order, int count, unsigned seed) {
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

static void prepare_block() {
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
    b.products[k].count = b.products[k].first = b.products[k].open = 0;
  }
  for (int w = 0; w < (count + 31) / 32; ++w) {
    const int threads = count - 32 * w < 32 ? count - 32 * w : 32;
    b.warps[w].barrier = {0, 0, threads, threads, {}};
    b.warps[w].epoch = 0;
  }
  b.barrier = {0, 0, count, count, {}};
  b.alive = count;
  ++checks().now.block;
}

// Run one block; false when it failed, or when its threads wait for each other for ever.
static bool run_block(const int* order) {
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
const char* launch(dim3 grid, dim3 size, size_t shared_bytes, unsigned seed, void (*body)(void*),
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
  b.products = static_cast<Products*>(calloc(size_t(count), sizeof(Products)));
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
  for (int k = 0; k < count; ++k) {
    free(b.fibers[k].stack);
    free(b.products[k].list);
  }
  free(order);
  free(b.fibers);
  free(b.warps);
  free(b.copies);
  free(b.products);
  free(b.dynamic_shared);
  return finished ? nullptr : b.fault;
}

// What a lane of this thread's warp gave; each names the lane that it wants.
static uint32_t exchange(uint32_t word, unsigned mask, int lane, const Place& place) {
  Warp& w = warp();
  require(mask == 0xffffffffu && w.barrier.count == 32, "a shuffle of a part of a warp");
  w.words[linear() % 32] = word;
  warp_barrier(place);
  const uint32_t got = w.words[lane];
  warp_barrier(place);
  return got;
}

}  // namespace emulation

void __syncthreads() {
  emulation::arrive(emulation::block().barrier, PTO_PLACE);
  emulation::set_moment();
}
void __syncwarp(unsigned) {
  emulation::Warp& w = emulation::warp();
  if (emulation::arrive(w.barrier, PTO_PLACE)) ++w.epoch;
  emulation::set_moment();
}
int __shfl_sync(unsigned mask, int value, int lane) {
  return int(emulation::exchange(uint32_t(value), mask, lane, PTO_PLACE));
}
int __shfl_xor_sync(unsigned mask, int value, int other) {
  return int(emulation::exchange(uint32_t(value), mask, emulation::linear() % 32 ^ other, PTO_PLACE));
}

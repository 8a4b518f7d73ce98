// SPDX-License-Identifier: MIT
// What the emulation knows of the block that runs, its threads and the memory that they share: for itself alone, which
// is compiled once for all kernels, and by other flags.
#pragma once

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "pto_cuda_emulation.h"

namespace emulation {

// Where and when: blocks and what lies between two barriers of a block are counted through a launch, barriers of a warp
// through a block.
struct Moment {
  uint32_t block, epoch, warp_epoch;
  int warp, lane;
};

// Who accessed a byte last; of several the most that a later access has to be apart from.
constexpr int SEVERAL = -1;
struct Trace {
  uint32_t block, epoch, warp_epoch;  // numbers from 1 on; 0: nobody
  int16_t warp, lane;
};
struct Cell {
  Trace read, write;
  bool several_blocks;  // have read it
  bool updated;         // the last write was an update
  bool expected;        // an asynchronous copy may write it at any time
};

// Memory that the threads of a block share, or those of a grid.
struct Memory {
  uintptr_t begin, end;
  Cell* cells;
  bool of_grid;
  const char* name;
};

// A write beside an access that it is not ordered with: a race, unless it leaves the memory as it was.
struct Suspect {
  const unsigned char* at;
  int size;
  unsigned char before[16];
  const char* what;
};

struct Checks {
  Memory* memories;
  int count, room;
  Memory* last;
  uintptr_t stack;  // of the thread that runs
  size_t stack_size;
  uintptr_t image, image_end;  // the kernel's own code and constants
  Moment now;
  Suspect suspect;
  const int* failure;  // not 0: the kernel has found that its arguments are wrong, and its results are of no use
  bool running;        // a thread of a block does, and not the emulation
};

Checks& checks();
void end_checks();
Memory* memory_of(uintptr_t at);
void look_at_suspect();

// -- the block that runs ----------------------------------------------------------------------------------------------

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

// Products of a warpgroup that are under way for a thread: of groups that count up, the last of which is open.
struct Product {
  float *x, *y;
  int n, group;
  Operand a, b;
  float before[128];  // the sums when it began
};
struct Products {
  Product* list;
  int count, room;
  int first, open;  // groups: those before `first` have been waited for
};

struct Block {
  dim3 grid, block, index;
  Fiber* fibers;
  Fiber* current;
  Warp* warps;
  Copies* copies;
  Products* products;
  Barrier barrier;
  int count, alive;
  jmp_buf scheduler;
  void (*body)(void*);
  void* arguments;
  unsigned char* dynamic_shared;
  char fault[256];  // what ended the launch
};
constexpr size_t STACK_SIZE = 256 * 1024;

Block& block();
Warp& warp();
// The number of the thread in its block.
int linear();
// A barrier of the warp that does not order memory.
void warp_barrier(const Place& place);

// Ends the block with a message.
[[noreturn]] void stop(const char* what);
[[noreturn]] void stop_at(const char* what, const void* at);
void require(bool condition, const char* otherwise);

}  // namespace emulation

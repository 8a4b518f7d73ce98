// SPDX-License-Identifier: MIT
// What pto_cuda_checks.h declares.
#include <link.h>

#include "pto_cuda_blocks.h"

namespace emulation {

Checks& checks() {
  static Checks* instance;
  if (instance == nullptr) instance = static_cast<Checks*>(calloc(1, sizeof(Checks)));
  return *instance;
}

void look_at_suspect() {
  Suspect& s = checks().suspect;
  if (s.size == 0) return;
  const bool same = memcmp(s.at, s.before, size_t(s.size)) == 0;
  s.size = 0;
  if (!same) stop_at(s.what, s.at);
}

// Whether a trace is of another thread, and no barrier came after it.
static bool unordered(const Trace& t, const Moment& now) {
  return t.block == now.block && t.epoch == now.epoch &&
         (t.warp != now.warp || (t.warp_epoch == now.warp_epoch && t.lane != now.lane));
}

static void record(Trace& t, const Moment& now) {
  t = {now.block, now.epoch, now.warp_epoch, int16_t(now.warp), int16_t(now.lane)};
}

static void record_read(Cell& cell, const Moment& now) {
  Trace& t = cell.read;
  if (t.block != now.block) {
    cell.several_blocks = t.block != 0;
    record(t, now);
  } else if (t.epoch != now.epoch) {
    record(t, now);
  } else if (t.warp != now.warp) {
    t.warp = SEVERAL;
  } else if (t.warp_epoch != now.warp_epoch) {
    t.warp_epoch = now.warp_epoch;
    t.lane = int16_t(now.lane);
  } else if (t.lane != now.lane) {
    t.lane = SEVERAL;
  }
}

Memory* memory_of(uintptr_t at) {
  Checks& c = checks();
  if (c.last != nullptr && at >= c.last->begin && at < c.last->end) return c.last;
  for (int k = 0; k < c.count; ++k) {
    if (at >= c.memories[k].begin && at < c.memories[k].end) return c.last = &c.memories[k];
  }
  return nullptr;
}

// What is wrong with an access of one byte that others share; nullptr: nothing.
static const char* fault_of(Cell& cell, bool of_grid, Access access) {
  const Moment& now = checks().now;
  if (cell.expected) return "a race: an asynchronous copy is under way";
  const bool other_block = of_grid && cell.write.block != 0 && cell.write.block != now.block;
  if (access == Access::READ) {
    const bool written = of_grid || cell.write.block == now.block;
    if (!written && *checks().failure == 0) return "shared memory is read before it is written";
    if (other_block) return "a race: another block has written what is read";
    return unordered(cell.write, now) ? "a race: another thread has written what is read" : nullptr;
  }
  if (of_grid && (cell.several_blocks || (cell.read.block != 0 && cell.read.block != now.block))) {
    return "a race: another block has read what is written";
  }
  if (access != Access::UPDATE || !cell.updated) {
    if (other_block) return "a race: two blocks write one element";
    if (unordered(cell.write, now)) return "a race: two threads write one element";
  }
  return unordered(cell.read, now) ? "a race: another thread has read what is written" : nullptr;
}

void touched(const void* address, size_t size, Access access) {
  Checks& c = checks();
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  if (!c.running || at - c.stack < c.stack_size) return;
  look_at_suspect();
  Memory* memory = memory_of(at);
  // An update of a part of a word is one of the word.
  if (memory == nullptr && access == Access::UPDATE) memory = memory_of(at + size - 1);
  if (memory == nullptr) {
    if (access == Access::READ && at >= c.image && at < c.image_end) return;
    stop_at("an access outside of all tensors", address);
  }
  if (at + size > memory->end && access != Access::UPDATE) stop_at("an access past the end of a tensor", address);
  for (uintptr_t k = at < memory->begin ? memory->begin : at; k < at + size && k < memory->end; ++k) {
    Cell& cell = memory->cells[k - memory->begin];
    const char* const fault = fault_of(cell, memory->of_grid, access);
    if (fault != nullptr) {
      if (access != Access::WRITE || cell.expected || size > 16) stop_at(fault, address);
      c.suspect.at = static_cast<const unsigned char*>(address);
      c.suspect.size = int(size);
      memcpy(c.suspect.before, address, size);
      c.suspect.what = fault;
      return;
    }
    if (access == Access::READ) {
      record_read(cell, c.now);
    } else {
      record(cell.write, c.now);
      cell.updated = access == Access::UPDATE;
    }
  }
}

void expect(const void* address, bool expected) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  if (at % 16 != 0) stop_at("a copy to an address that is not a multiple of 16", address);
  Memory* const memory = memory_of(at);
  if (memory == nullptr || memory->of_grid) stop_at("an asynchronous copy to what is not shared memory", address);
  for (int k = 0; k < 16; ++k) {
    bool& before = memory->cells[at - memory->begin + uintptr_t(k)].expected;
    if (expected && before) stop_at("a race: another asynchronous copy to the same place is under way", address);
    before = false;
  }
  touched(address, 16, Access::WRITE);
  look_at_suspect();
  for (int k = 0; k < 16; ++k) memory->cells[at - memory->begin + uintptr_t(k)].expected = expected;
}

// -- what a launch knows ----------------------------------------------------------------------------------------------

void add_memory(const void* at, size_t size, bool of_grid, const char* name) {
  Checks& c = checks();
  if (size == 0) return;
  uintptr_t begin = reinterpret_cast<uintptr_t>(at), end = begin + size;
  for (int k = 0; k < c.count;) {  // tensors may overlap
    Memory& other = c.memories[k];
    if (other.end <= begin || end <= other.begin) {
      ++k;
      continue;
    }
    begin = other.begin < begin ? other.begin : begin;
    end = other.end > end ? other.end : end;
    free(other.cells);
    other = c.memories[--c.count];
  }
  if (c.count == c.room) {
    c.room = 2 * c.room + 16;
    c.memories = static_cast<Memory*>(realloc(c.memories, size_t(c.room) * sizeof(Memory)));
  }
  Cell* const cells = static_cast<Cell*>(calloc(end - begin, sizeof(Cell)));
  c.memories[c.count++] = {begin, end, cells, of_grid, name};
}

void watch_failure(const int* site) { checks().failure = site; }

// The kernel's constants, and what it writes in its own image: shared memory that is declared with its size.
static int image_of(struct dl_phdr_info* info, size_t, void* inside) {
  Checks& c = checks();
  const uintptr_t here = reinterpret_cast<uintptr_t>(inside);
  bool mine = false;
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[k].p_vaddr;
    mine = mine || (info->dlpi_phdr[k].p_type == PT_LOAD && here >= begin && here < begin + info->dlpi_phdr[k].p_memsz);
  }
  if (!mine) return 0;
  c.image = UINTPTR_MAX;
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    const auto& part = info->dlpi_phdr[k];
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
    if (part.p_type != PT_LOAD) continue;
    c.image = begin < c.image ? begin : c.image;
    c.image_end = end > c.image_end ? end : c.image_end;
    if (part.p_flags & PF_W) add_memory(reinterpret_cast<void*>(begin), end - begin, false, "shared memory");
  }
  return 1;
}

void begin_checks() {
  Checks& c = checks();
  c.count = 0;
  c.last = nullptr;
  c.now = {};
  c.suspect.size = 0;
  c.image_end = 0;
  dl_iterate_phdr(image_of, reinterpret_cast<void*>(&begin_checks));
}
void end_checks() {
  Checks& c = checks();
  for (int k = 0; k < c.count; ++k) free(c.memories[k].cells);
  c.count = 0;
}

void touched_whole(const void* address, size_t size, Access access) {
  Checks& c = checks();
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  if (at - c.stack < c.stack_size) return;
  if (c.running && at % size != 0) stop_at("an address that is not a multiple of what is accessed", address);
  touched(address, size, access);
}

}  // namespace emulation

// -- what the compiler calls ------------------------------------------------------------------------------------------

#define PTO_LOOKS(name, SIZE)                                                                                       \
  void __tsan_read##name(void* at) { emulation::touched_whole(at, SIZE, emulation::Access::READ); }   \
  void __tsan_write##name(void* at) { emulation::touched_whole(at, SIZE, emulation::Access::WRITE); } \
  void __tsan_volatile_read##name(void* at) {                                                         \
    emulation::touched_whole(at, SIZE, emulation::Access::UPDATE);                                                  \
  }                                                                                                                 \
  void __tsan_volatile_write##name(void* at) {                                                        \
    emulation::touched_whole(at, SIZE, emulation::Access::UPDATE);                                                  \
  }                                                                                                                 \
  void __tsan_unaligned_read##name(void* at) { emulation::touched(at, SIZE, emulation::Access::READ); } \
  void __tsan_unaligned_write##name(void* at) { emulation::touched(at, SIZE, emulation::Access::WRITE); }

extern "C" {
PTO_LOOKS(1, 1)
PTO_LOOKS(2, 2)
PTO_LOOKS(4, 4)
PTO_LOOKS(8, 8)
PTO_LOOKS(16, 16)
void __tsan_read_range(void* at, size_t size) { emulation::touched(at, size, emulation::Access::READ); }
void __tsan_write_range(void* at, size_t size) { emulation::touched(at, size, emulation::Access::WRITE); }
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}

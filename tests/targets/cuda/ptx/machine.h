// SPDX-License-Identifier: MIT
// The state that kernels run on, and what is known of each byte of memory to find accesses that must not be.
#pragma once
#include <cstring>
#include <random>

#include "module.h"

namespace ptx {

constexpr int LANES = 32;
constexpr Lanes ALL_LANES = ~Lanes(0);

template <class T>
T as(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class Body>
void for_each(Lanes lanes, Body body) {
  for (; lanes != 0; lanes &= lanes - 1) body(__builtin_ctz(lanes));
}
// An integer of a type in the low bits of a register, and back.
int64_t integer(uint64_t bits, Type type);
uint64_t truncated(uint64_t value, Type type);
// The number in the low bits of a register, of any float type; a number rounded to nearest.
double number_of(uint64_t bits, Type type);
uint64_t rounded(double value, Type type);

// -- memory of the device --------------------------------------------------------------------------------------------

// New memory of the device, which holds a pattern; nothing may touch what is beside it.
uint64_t allocated(size_t bytes);
void freed(uint64_t address);
// Memory of the process that the device may touch, too, until it is forgotten.
void known(uint64_t address, size_t bytes);
void forgotten(uint64_t address);
// Forgets which blocks have touched what: a kernel begins.
void begin_kernel();

enum class Access : uint8_t { read, constant_read, write, atomic };

// -- traffic ---------------------------------------------------------------------------------------------------------

// Counts what lanes want to access together: `bytes` at the address of each.
void count_access(const Instruction& i, Space space, Lanes lanes, const uint64_t* addresses, size_t bytes);
// Counts an instruction of a warp.
void count_instruction();
// A line for each instruction that has accessed memory since the last call, and one for all others (see traffic.cpp).
const std::string& traffic();

// -- a block ---------------------------------------------------------------------------------------------------------

// Who has touched a byte of shared memory last, and how often the threads of the block and of its warp had met then.
struct Touched {
  uint32_t written = 0, written_by_warp = 0, read = 0, read_by_warp = 0;  // counts of meetings; 0: not at all
  int16_t writer = -1, reader = -1, reading_warp = -1;  // -2: several
  bool atomic = false;
  bool fenced = false;  // what was written is visible to the tensor cores of a warpgroup
  bool coming = false;  // an asynchronous copy to it is under way
};

struct Copy {  // asynchronous
  uint64_t to, from;
  uint32_t bytes, given;
};

enum class Lane : uint8_t { runs, meets, ended };

struct Block;
struct Warp {
  Block* block;
  int number;
  std::vector<uint64_t> registers;
  std::vector<std::byte> local;
  int at[LANES];      // the next instruction
  Lane lane[LANES];
  uint32_t meetings;  // of lanes, since the kernel began
  int barrier;        // what its lanes wait for at a barrier of the block; -1: nothing
  uint32_t expected;  // how many threads that barrier takes; 0: all
  std::vector<Copy> copies[LANES];               // since the last group
  std::vector<std::vector<Copy>> groups[LANES];  // that have not been waited for

  uint64_t& value(int slot, int lane) { return registers[size_t(slot) * LANES + lane]; }
  uint64_t operand(const Instruction& i, int which, int lane) { return value(i.operands[which][0], lane); }
  void set(const Instruction& i, int lane, uint64_t bits) { value(i.to[0], lane) = bits; }
  int thread(int lane) const { return number * LANES + lane; }
};

struct Product {  // asynchronous, of a warpgroup
  const Instruction* instruction;
  std::vector<uint64_t> operands;
};
struct Warpgroup {
  std::vector<Product> products;
  std::vector<std::vector<Product>> groups;
};

// How a launch runs: who goes first (0: in order, 1: backwards, others: any), and whether asynchronous copies and products
// happen when they are waited for instead of when they begin.
struct Order {
  uint32_t seed;
  bool late;
};

struct Block {
  const Kernel& kernel;
  Order order;
  uint32_t grid[3], extent[3], place[3];
  uint32_t number;  // in the grid
  const std::byte* parameters;
  size_t dynamic_at;
  std::vector<std::byte> shared;
  std::vector<Touched> touched;
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  uint32_t meetings;
  std::mt19937 random;

  int threads() const { return int(extent[0] * extent[1] * extent[2]); }
};

// Runs all threads of a block to their end.
void run(Block& block);

// The bytes at an address, after it was checked; `value` is what a write will leave there.
std::byte* bytes_at(Warp& warp, const Instruction& i, int lane, Space space, uint64_t address, size_t bytes, Access access,
                    const void* value = nullptr);
// Bytes of shared memory that a warpgroup reads as a whole.
const std::byte* read_by_warpgroup(Warp& first, const Instruction& i, uint64_t address, size_t bytes);

// Does what an asynchronous product does.
void multiply(Block& block, int warpgroup, const Product& product);

[[noreturn]] void fault(const Instruction& i, const std::string& what);

}  // namespace ptx

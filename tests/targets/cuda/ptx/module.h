// SPDX-License-Identifier: MIT
// PTX as it is simulated: modules of kernels, which are lists of instructions over numbered registers.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ptx {

// What is wrong: with the text, with what a kernel does, or with this simulator, which lacks something.
struct Fault {
  std::string what;
};

enum class Type : uint8_t { pred, u8, s8, u16, s16, u32, s32, u64, s64, f16, bf16, f16x2, bf16x2, f32, f64 };
int bytes_of(Type type);
bool is_float(Type type);
bool is_signed(Type type);

enum class Space : uint8_t { generic, global, shared, local, parameter };
enum class Rounding : uint8_t { none, nearest, zero, down, up, nearest_integer, zero_integer, down_integer, up_integer };

// What the lanes of an instruction wait for before they execute it.
enum class Meeting : uint8_t {
  nobody,
  named,      // the lanes of the mask that is the last operand
  warp,       // all lanes
  block,      // all threads
  warpgroup,  // the lanes of four warps
};

struct Warp;
struct Instruction;
using Lanes = uint32_t;
using Handler = void (*)(Warp& warp, const Instruction& instruction, Lanes lanes);

struct Opcode {
  Handler run;
  Meeting meeting = Meeting::nobody;
};
extern const std::map<std::string, Opcode> VALUES, ACCESSES, COLLECTIVES;

struct Instruction {
  std::string text, opcode;
  Handler run = nullptr;
  Meeting meeting = Meeting::nobody;
  std::vector<std::string> words;  // modifiers that are no types, spaces or roundings
  std::vector<Type> types;
  Space space = Space::generic;
  Rounding rounding = Rounding::none;
  // Registers: the results, a second result, the operands (each a register or several), an address, a condition.
  std::vector<int> to;
  int also = -1;
  std::vector<std::vector<int>> operands;
  int address = -1, guard = -1;
  int64_t offset = 0;
  bool unless = false;     // executed where the condition does not hold
  bool branch = false, exit = false;
  bool of_kernel = false;  // the address is of the kernel's parameters, not of a called function's
  std::string label;
  int target = -1;

  Type type() const { return types.back(); }
  bool has(const char* word) const;
};

// What a register holds when a block begins.
enum class Special : uint8_t { tid, ntid, ctaid, nctaid, lane, warp, dynamic_shared };
struct Origin {
  int slot;
  Special what;
  int axis;
};

struct Kernel {
  std::string name;
  std::vector<Instruction> code;
  int slots = 0;
  std::vector<std::pair<int, uint64_t>> constants;
  std::vector<Origin> origins;
  std::vector<std::pair<size_t, size_t>> parameters;  // where each begins, and its size
  size_t parameter_bytes = 0, shared_bytes = 0, local_bytes = 0;
  int most_threads = 1024;
};

struct Module {
  std::map<std::string, Kernel> kernels;
};

// Addresses of shared and local memory begin here in their space, so that none of them is 0.
constexpr uint64_t WINDOW = 1024;
constexpr uint64_t GENERIC_SHARED = uint64_t(1) << 60, GENERIC_LOCAL = uint64_t(1) << 61;

// The kernels of a module; Fault where there is something that is not simulated.
Module parsed(const std::string& text);

}  // namespace ptx

// SPDX-License-Identifier: MIT
// How well the lanes of a warp access memory together: sectors of global memory, and banks of shared memory.
#include <algorithm>

#include "machine.h"

namespace ptx {
namespace {

constexpr uint64_t SECTOR = 32, BANKS = 32, WORD = 4, SERVED = 128;  // bytes of lanes that are served at a time

struct Counts {
  uint64_t requests = 0;  // of warps
  uint64_t wanted = 0;    // bytes, each once in a request
  uint64_t moved = 0;     // bytes of the sectors these are in; shared memory: times that banks are accessed
  uint64_t least = 0;     // shared memory: how often they would be without conflicts
};
std::map<std::pair<const Instruction*, Space>, Counts> counts;
uint64_t instructions = 0;
std::string text;

// Calls `body` with the multiples of `unit` that accesses touch, each once; `addresses` are sorted.
template <class Body>
void for_units(const uint64_t* addresses, int count, size_t bytes, uint64_t unit, Body body) {
  uint64_t next = 0;
  for (int k = 0; k < count; ++k) {
    uint64_t at = std::max(next, addresses[k] / unit);
    for (next = std::max(next, (addresses[k] + bytes - 1) / unit + 1); at < next; ++at) body(at);
  }
}

// The addresses of lanes, sorted; how many there are.
int sorted(Lanes lanes, const uint64_t* addresses, uint64_t* out) {
  int count = 0;
  for_each(lanes, [&](int lane) { out[count++] = addresses[lane]; });
  std::sort(out, out + count);
  return count;
}

// Banks are four bytes wide, and lanes that want the same word share it. Wide accesses are served a part of the warp after
// the other.
void count_banks(Counts& count, Lanes lanes, const uint64_t* addresses, size_t bytes) {
  const int together = int(std::min<uint64_t>(LANES, SERVED / bytes));
  for (int first = 0; first < LANES; first += together) {
    const Lanes part = lanes & (together == LANES ? ALL_LANES : ((Lanes(1) << together) - 1) << first);
    if (part == 0) continue;
    uint64_t places[LANES] = {}, words = 0, of_bank[BANKS] = {};
    for_units(places, sorted(part, addresses, places), bytes, WORD, [&](uint64_t word) {
      ++words;
      ++of_bank[word % BANKS];
    });
    count.moved += *std::max_element(of_bank, of_bank + BANKS);
    count.least += (words + BANKS - 1) / BANKS;
  }
}

}  // namespace

void count_access(const Instruction& i, Space space, Lanes lanes, const uint64_t* addresses, size_t bytes) {
  if (space == Space::generic) {
    Lanes shared = 0, local = 0;
    for_each(lanes, [&](int lane) {
      shared |= Lanes((addresses[lane] & GENERIC_SHARED) != 0) << lane;
      local |= Lanes((addresses[lane] & GENERIC_LOCAL) != 0) << lane;
    });
    if (shared != 0) count_access(i, Space::shared, shared, addresses, bytes);
    if (local != 0) count_access(i, Space::local, local, addresses, bytes);
    lanes &= ~(shared | local);
    if (lanes == 0) return;
    space = Space::global;
  }
  if (space == Space::parameter) space = Space::local;
  Counts& count = counts[{&i, space}];
  ++count.requests;
  uint64_t places[LANES] = {};
  const int accesses = sorted(lanes, addresses, places);
  for (int k = 0; k < accesses; ++k)
    count.wanted += k + 1 < accesses ? std::min<uint64_t>(bytes, places[k + 1] - places[k]) : bytes;
  if (space == Space::global)
    for_units(places, accesses, bytes, SECTOR, [&](uint64_t) { count.moved += SECTOR; });
  if (space == Space::shared) count_banks(count, lanes, addresses, bytes);
}

void count_instruction() { ++instructions; }

// Space, requests, bytes wanted, moved, least and the instruction, between tabs; first the number of instructions.
const std::string& traffic() {
  text = std::to_string(instructions);
  for (const auto& [key, count] : counts) {
    text += key.second == Space::global ? "\nglobal" : key.second == Space::shared ? "\nshared" : "\nlocal";
    for (uint64_t value : {count.requests, count.wanted, count.moved, count.least}) text += "\t" + std::to_string(value);
    text += "\t" + key.first->text;
  }
  counts.clear();
  instructions = 0;
  return text;
}

}  // namespace ptx

// SPDX-License-Identifier: MIT
// Accesses of memory: addresses outside of what was allocated, races of threads and of blocks, and asynchronous copies.
#include <algorithm>

#include "machine.h"

namespace ptx {
namespace {

// Which blocks of this kernel have touched a byte: numbers from 1, 0: none, SEVERAL.
constexpr uint32_t SEVERAL = ~uint32_t(0);
struct Blocks {
  uint32_t writer = 0, reader = 0;
  bool constant = false;  // read as what no one writes
};
struct Allocation {
  size_t bytes;
  std::vector<Blocks> blocks;  // none: nothing was touched
};
std::map<uint64_t, Allocation> allocations;
constexpr size_t ALIGNMENT = 256;

bool same(const std::byte* now, const void* value, size_t at) {
  return value != nullptr && now[at] == static_cast<const std::byte*>(value)[at];
}

std::byte* shared_at(Warp& warp, const Instruction& i, int lane, uint64_t address, size_t bytes, Access access,
                     const void* value) {
  Block& block = *warp.block;
  if (address < WINDOW || address + bytes > WINDOW + block.shared.size()) fault(i, "outside of shared memory");
  std::byte* const at = block.shared.data() + (address - WINDOW);
  const int thread = warp.thread(lane);
  const bool looks = access == Access::read && (i.has("volatile") || i.has("relaxed"));  // at what others update
  for (size_t k = 0; k < bytes; ++k) {
    Touched& byte = block.touched[address - WINDOW + k];
    const bool atomic = access == Access::atomic, kept = access == Access::write && same(at, value, k);
    // Lanes of a warp are in order since they met; warps, since the block met.
    const bool raced = byte.written == block.meetings && byte.writer != thread && !((atomic || looks) && byte.atomic) &&
                       !(byte.writer / LANES == warp.number && byte.written_by_warp < warp.meetings);
    if (byte.coming) fault(i, "an asynchronous copy is under way");
    if (raced && !kept) fault(i, access == Access::read ? "a race: read after write" : "a race: write after write");
    if (access == Access::read) {
      if (byte.written == 0) fault(i, "shared memory that nothing has written");
      if (looks) continue;
      const bool first = byte.read != block.meetings;
      byte.reader = first || byte.reader == thread ? int16_t(thread) : int16_t(-2);
      byte.reading_warp = first || byte.reading_warp == warp.number ? int16_t(warp.number) : int16_t(-2);
      byte.read_by_warp = first ? warp.meetings : std::max(byte.read_by_warp, warp.meetings);
      byte.read = block.meetings;
    } else {
      const bool read = byte.read == block.meetings && byte.reader != thread &&
                        !(byte.reading_warp == warp.number && byte.read_by_warp < warp.meetings);
      if (read && !kept) fault(i, "a race: write after read");
      byte.written = block.meetings;
      byte.written_by_warp = warp.meetings;
      byte.writer = int16_t(thread);
      byte.atomic = atomic;
      byte.fenced = false;
    }
  }
  return at;
}

std::byte* global_at(Warp& warp, const Instruction& i, uint64_t address, size_t bytes, Access access, const void* value) {
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) fault(i, "no memory of the device");
  --found;
  Allocation& allocation = found->second;
  const uint64_t offset = address - found->first;
  if (offset + bytes > allocation.bytes)
    fault(i, std::to_string(bytes) + " bytes at " + std::to_string(offset) + " of memory of " + std::to_string(allocation.bytes));
  std::byte* const at = reinterpret_cast<std::byte*>(address);
  if (i.has("volatile") || i.has("relaxed")) return at;  // meant for other threads
  if (allocation.blocks.empty()) allocation.blocks.resize(allocation.bytes);
  const uint32_t me = warp.block->number + 1;
  const auto other = [me](uint32_t block) { return block != 0 && block != me; };
  for (size_t k = 0; k < bytes; ++k) {
    Blocks& byte = allocation.blocks[offset + k];
    const bool kept = access == Access::write && same(at, value, k);
    if (access == Access::read || access == Access::constant_read) {
      if (other(byte.writer)) fault(i, "a race: what another block writes");
      byte.constant |= access == Access::constant_read;
      if (byte.constant && byte.writer != 0) fault(i, "read as a constant, and written");
      byte.reader = other(byte.reader) ? SEVERAL : me;
      continue;
    }
    const bool atomics = access == Access::atomic && byte.writer == SEVERAL;
    if (other(byte.writer) && !atomics && !kept) fault(i, "a race: what another block writes");
    if (other(byte.reader) && !kept) fault(i, "a race: what another block reads");
    if (byte.constant && !kept) fault(i, "read as a constant, and written");
    byte.writer = access == Access::atomic || other(byte.writer) ? SEVERAL : me;
  }
  return at;
}

std::byte* local_at(Warp& warp, const Instruction& i, int lane, uint64_t address, size_t bytes) {
  const size_t each = warp.local.size() / LANES;
  if (address < WINDOW || address + bytes > WINDOW + each) fault(i, "outside of local memory");
  return warp.local.data() + lane * each + (address - WINDOW);
}

uint64_t address_of(Warp& warp, const Instruction& i, int lane) {
  return warp.value(i.address, lane) + uint64_t(i.offset);
}

void count(Warp& warp, const Instruction& i, Lanes lanes, size_t bytes) {
  uint64_t addresses[LANES] = {};
  for_each(lanes, [&](int lane) { addresses[lane] = address_of(warp, i, lane); });
  count_access(i, i.space, lanes, addresses, bytes);
}

void load(Warp& warp, const Instruction& i, Lanes lanes) {
  const Type type = i.type();
  const size_t each = bytes_of(type), bytes = each * i.to.size();
  const Access access = i.has("nc") ? Access::constant_read : Access::read;
  if (!i.of_kernel) count(warp, i, lanes, bytes);
  for_each(lanes, [&](int lane) {
    const std::byte* at;
    const uint64_t address = address_of(warp, i, lane);
    if (i.of_kernel) {
      if (address + bytes > warp.block->kernel.parameter_bytes) fault(i, "outside of the parameters");
      at = warp.block->parameters + address;
    } else {
      at = bytes_at(warp, i, lane, i.space == Space::parameter ? Space::local : i.space, address, bytes, access);
    }
    for (size_t k = 0; k < i.to.size(); ++k) {
      uint64_t bits = 0;
      std::memcpy(&bits, at + k * each, each);
      // Registers are wider than what is loaded at times, which is extended by its sign then.
      warp.value(i.to[k], lane) = each < 4 && is_signed(type) ? truncated(uint64_t(integer(bits, type)), Type::u32) : bits;
    }
  });
}

void store(Warp& warp, const Instruction& i, Lanes lanes) {
  const std::vector<int>& from = i.operands[0];
  const size_t each = bytes_of(i.type()), bytes = each * from.size();
  count(warp, i, lanes, bytes);
  for_each(lanes, [&](int lane) {
    std::byte value[16];
    for (size_t k = 0; k < from.size(); ++k) std::memcpy(value + k * each, &warp.value(from[k], lane), each);
    const Space space = i.space == Space::parameter ? Space::local : i.space;
    std::memcpy(bytes_at(warp, i, lane, space, address_of(warp, i, lane), bytes, Access::write, value), value, bytes);
  });
}

uint64_t updated(const Instruction& i, uint64_t old, uint64_t with, uint64_t other) {
  const Type type = i.type();
  if (i.has("cas")) return old == with ? other : old;
  if (i.has("exch")) return with;
  if (i.has("and")) return old & with;
  if (i.has("or")) return old | with;
  if (i.has("xor")) return old ^ with;
  if (i.has("add")) return is_float(type) ? rounded(number_of(old, type) + number_of(with, type), type) : old + with;
  if (!is_float(type) && (i.has("min") || i.has("max"))) {
    const int64_t x = integer(old, type), y = integer(with, type);
    const bool less = is_signed(type) ? x < y : uint64_t(x) < uint64_t(y);
    return i.has("min") == less ? old : with;
  }
  fault(i, "not simulated");
}

void update(Warp& warp, const Instruction& i, Lanes lanes) {
  const size_t bytes = bytes_of(i.type());
  count(warp, i, lanes, bytes);
  for_each(lanes, [&](int lane) {
    std::byte* const at = bytes_at(warp, i, lane, i.space, address_of(warp, i, lane), bytes, Access::atomic);
    uint64_t old = 0;
    std::memcpy(&old, at, bytes);
    const uint64_t other = i.operands.size() > 1 ? truncated(warp.operand(i, 1, lane), i.type()) : 0;
    const uint64_t now = updated(i, old, truncated(warp.operand(i, 0, lane), i.type()), other);
    std::memcpy(at, &now, bytes);
    warp.set(i, lane, old);
  });
}

// What a copy brings: zeros behind what is given of it.
void arrive(Warp& warp, const Instruction& i, int lane, const Copy& copy) {
  std::byte* const to = bytes_at(warp, i, lane, Space::shared, copy.to, copy.bytes, Access::write);
  std::memset(to, 0, copy.bytes);
  if (copy.given > 0)
    std::memcpy(to, bytes_at(warp, i, lane, Space::global, copy.from, copy.given, Access::read), copy.given);
}

void set_coming(Warp& warp, const Copy& copy, bool coming) {
  const auto first = warp.block->touched.begin() + int64_t(copy.to - WINDOW);
  std::for_each(first, first + copy.bytes, [coming](Touched& byte) { byte.coming = coming; });
}

void wait(Warp& warp, const Instruction& i, int lane, size_t kept) {
  auto& groups = warp.groups[lane];
  for (; groups.size() > kept; groups.erase(groups.begin()))
    for (const Copy& copy : groups[0]) {
      set_coming(warp, copy, false);
      if (warp.block->order.late) arrive(warp, i, lane, copy);
    }
}

// The lanes of a copy whose source is read: not those that fill with zeros.
void count_copy(Warp& warp, const Instruction& i, Lanes lanes) {
  uint64_t to[LANES] = {}, from[LANES] = {};
  Lanes reading = 0;
  for_each(lanes, [&](int lane) {
    to[lane] = warp.value(i.operands[0][0], lane) + warp.value(i.operands[0][1], lane);
    from[lane] = address_of(warp, i, lane);
    if (i.operands.size() < 3 || uint32_t(warp.operand(i, 2, lane)) != 0) reading |= Lanes(1) << lane;
  });
  const size_t bytes = size_t(warp.operand(i, 1, __builtin_ctz(lanes)));
  count_access(i, Space::shared, lanes, to, bytes);
  if (reading != 0) count_access(i, Space::global, reading, from, bytes);
}

void copy(Warp& warp, const Instruction& i, Lanes lanes) {
  if (!i.has("commit_group") && !i.has("wait_all") && !i.has("wait_group")) count_copy(warp, i, lanes);
  for_each(lanes, [&](int lane) {
    if (i.has("commit_group") || i.has("wait_all")) {
      warp.groups[lane].push_back(std::move(warp.copies[lane]));
      warp.copies[lane].clear();
      if (i.has("wait_all")) wait(warp, i, lane, 0);
      return;
    }
    if (i.has("wait_group")) return wait(warp, i, lane, warp.operand(i, 0, lane));
    Copy made;
    made.to = warp.value(i.operands[0][0], lane) + warp.value(i.operands[0][1], lane);
    made.from = address_of(warp, i, lane);
    made.bytes = uint32_t(warp.operand(i, 1, lane));
    made.given = i.operands.size() > 2 ? uint32_t(warp.operand(i, 2, lane)) : made.bytes;
    if (made.given > made.bytes || (i.has("cg") && made.bytes != 16)) fault(i, "a copy of a size that there is not");
    if (made.from % made.bytes != 0) fault(i, "a copy from where it is not aligned");
    bytes_at(warp, i, lane, Space::shared, made.to, made.bytes, Access::write);
    if (!warp.block->order.late) arrive(warp, i, lane, made);
    set_coming(warp, made, true);
    warp.copies[lane].push_back(made);
  });
}

void fence(Warp& warp, const Instruction& i, Lanes lanes) {
  if (!i.has("proxy")) return;
  for_each(lanes, [&](int lane) {
    for (Touched& byte : warp.block->touched)
      if (byte.writer == warp.thread(lane)) byte.fenced = true;
  });
}

void nothing(Warp&, const Instruction&, Lanes) {}

void convert_address(Warp& warp, const Instruction& i, Lanes lanes) {
  const uint64_t window = i.space == Space::shared ? GENERIC_SHARED : i.space == Space::local ? GENERIC_LOCAL : 0;
  const bool to = i.has("to");
  for_each(lanes, [&](int lane) {
    const uint64_t address = warp.operand(i, 0, lane);
    warp.set(i, lane, to ? address & ~window : address | window);
  });
}

}  // namespace

const std::map<std::string, Opcode> ACCESSES = {
    {"ld", {load}}, {"st", {store}},   {"atom", {update}},
    {"cp", {copy}}, {"fence", {fence}}, {"membar", {nothing}}, {"cvta", {convert_address}},
};

std::byte* bytes_at(Warp& warp, const Instruction& i, int lane, Space space, uint64_t address, size_t bytes, Access access,
                    const void* value) {
  if (space == Space::generic) {
    space = address & GENERIC_SHARED ? Space::shared : address & GENERIC_LOCAL ? Space::local : Space::global;
    address &= ~(GENERIC_SHARED | GENERIC_LOCAL);
  }
  if ((bytes & (bytes - 1)) == 0 && address % bytes != 0) fault(i, "not aligned");
  if (space == Space::shared) return shared_at(warp, i, lane, address, bytes, access, value);
  if (space == Space::local) return local_at(warp, i, lane, address, bytes);
  return global_at(warp, i, address, bytes, access, value);
}

const std::byte* read_by_warpgroup(Warp& first, const Instruction& i, uint64_t address, size_t bytes) {
  Block& block = *first.block;
  if (address < WINDOW || address + bytes > WINDOW + block.shared.size()) fault(i, "outside of shared memory");
  for (size_t k = 0; k < bytes; ++k) {
    Touched& byte = block.touched[address - WINDOW + k];
    if (byte.written == 0) fault(i, "shared memory that nothing has written");
    if (byte.written == block.meetings && byte.writer / (4 * LANES) != first.number / 4) fault(i, "a race: read after write");
    if (byte.coming) fault(i, "an asynchronous copy is under way");
    if (!byte.fenced) fault(i, "no fence.proxy.async behind the write");
    byte.read = block.meetings;
    byte.reader = byte.reading_warp = -2;
  }
  return block.shared.data() + (address - WINDOW);
}

uint64_t allocated(size_t bytes) {
  const size_t most = (bytes / ALIGNMENT + 1) * ALIGNMENT;
  void* const memory = std::aligned_alloc(ALIGNMENT, most);
  std::memset(memory, 0xA5, most);
  const uint64_t address = reinterpret_cast<uint64_t>(memory);
  known(address, bytes);
  return address;
}

void freed(uint64_t address) {
  forgotten(address);
  std::free(reinterpret_cast<void*>(address));
}

void known(uint64_t address, size_t bytes) { allocations[address] = {bytes, {}}; }
void forgotten(uint64_t address) { allocations.erase(address); }

void begin_kernel() {
  for (auto& [address, allocation] : allocations) allocation.blocks.clear();
}

}  // namespace ptx

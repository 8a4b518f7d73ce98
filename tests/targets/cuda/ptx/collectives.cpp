// SPDX-License-Identifier: MIT
// Instructions of lanes together. Which lane has which element is what the PTX ISA's figures of each instruction say.
#include <algorithm>

#include "machine.h"

namespace ptx {
namespace {

void shuffle(Warp& warp, const Instruction& i, Lanes lanes) {
  uint64_t given[LANES], taken[LANES];
  bool inside[LANES];
  for_each(lanes, [&](int lane) { given[lane] = warp.operand(i, 0, lane); });
  for_each(lanes, [&](int lane) {
    const int by = warp.operand(i, 1, lane) & 31, limits = int(warp.operand(i, 2, lane));
    const int clamp = limits & 31, segment = limits >> 8 & 31;
    const int most = (lane & segment) | (clamp & ~segment);
    int from = lane;
    if (i.has("up")) from = lane - by;
    if (i.has("down")) from = lane + by;
    if (i.has("bfly")) from = lane ^ by;
    if (i.has("idx")) from = (lane & segment) | (by & ~segment);
    inside[lane] = i.has("up") ? from >= most : from <= most;
    if (!inside[lane]) from = lane;
    if (!(lanes >> from & 1)) fault(i, "a shuffle from a lane that does not take part");
    taken[lane] = given[from];
  });
  for_each(lanes, [&](int lane) {
    warp.set(i, lane, truncated(taken[lane], Type::u32));
    if (i.also >= 0) warp.value(i.also, lane) = inside[lane];
  });
}

void vote(Warp& warp, const Instruction& i, Lanes lanes) {
  Lanes yes = 0;
  for_each(lanes, [&](int lane) { yes |= Lanes(warp.operand(i, 0, lane) & 1) << lane; });
  const uint64_t out = i.has("ballot") ? yes : i.has("any") ? yes != 0 : i.has("all") ? yes == lanes : throw Fault{i.text};
  for_each(lanes, [&](int lane) { warp.set(i, lane, out); });
}

void load_matrices(Warp& warp, const Instruction& i, Lanes) {
  uint16_t element[4][8][8];
  uint64_t addresses[LANES] = {};
  const int rows = 8 * int(i.to.size());
  for (int lane = 0; lane < rows; ++lane) addresses[lane] = warp.value(i.address, lane) + uint64_t(i.offset);
  count_access(i, Space::shared, rows == LANES ? ALL_LANES : (Lanes(1) << rows) - 1, addresses, 16);
  for (int matrix = 0; matrix < int(i.to.size()); ++matrix)
    for (int row = 0; row < 8; ++row) {
      const int lane = 8 * matrix + row;
      std::memcpy(element[matrix][row], bytes_at(warp, i, lane, Space::shared, addresses[lane], 16, Access::read), 16);
    }
  for (int matrix = 0; matrix < int(i.to.size()); ++matrix)
    for (int lane = 0; lane < LANES; ++lane) {
      const auto at = [&](int row, int column) -> uint32_t {
        return i.has("trans") ? element[matrix][column][row] : element[matrix][row][column];
      };
      const int row = lane / 4, column = lane % 4 * 2;
      warp.value(i.to[matrix], lane) = at(row, column + 1) << 16 | at(row, column);
    }
}

// A half of a register.
double half(uint64_t bits, int which, Type type) { return number_of(truncated(bits >> 16 * which, Type::u16), type); }

// m16n8k16 of f16 or bf16: products are exact, and the sum is rounded once, which a device need not do.
void multiply_matrices(Warp& warp, const Instruction& i, Lanes) {
  const Type type = i.types[1];
  if (!i.has("m16n8k16") || !i.has("row") || !i.has("col") || i.types[0] != Type::f32) fault(i, "not simulated");
  double a[16][16], b[16][8], c[16][8];
  const auto row = [](int lane, int high) { return lane / 4 + 8 * high; };
  const auto column = [](int lane, int k) { return lane % 4 * 2 + k; };
  for (int lane = 0; lane < LANES; ++lane)
    for (int which = 0; which < 2; ++which) {
      for (int k = 0; k < 4; ++k)
        a[row(lane, k % 2)][column(lane, which) + 8 * (k / 2)] = half(warp.value(i.operands[0][k], lane), which, type);
      for (int k = 0; k < 2; ++k)
        b[column(lane, which) + 8 * k][lane / 4] = half(warp.value(i.operands[1][k], lane), which, type);
      for (int k = 0; k < 2; ++k)
        c[row(lane, k)][column(lane, which)] = as<float>(warp.value(i.operands[2][2 * k + which], lane));
    }
  for (int lane = 0; lane < LANES; ++lane)
    for (int k = 0; k < 4; ++k) {
      double sum = c[row(lane, k / 2)][column(lane, k % 2)];
      for (int depth = 0; depth < 16; ++depth) sum += a[row(lane, k / 2)][depth] * b[depth][column(lane, k % 2)];
      warp.value(i.to[k], lane) = rounded(sum, Type::f32);
    }
}

// An element of an operand of a warpgroup's product, by its descriptor: of 16 bits, in panels of 128 bytes, swizzled.
double element_of(Warp& first, const Instruction& i, uint64_t descriptor, int at, int depth, bool along, Type type) {
  const auto bytes = [descriptor](int bit) { return (descriptor >> bit & 0x3FFF) << 4; };
  const uint64_t leading = bytes(16), stride = bytes(32);
  if ((descriptor >> 62) != 1 || (descriptor >> 49 & 7) != 0) fault(i, "not simulated: a descriptor");
  uint64_t address = bytes(0);
  address += along ? at / 64 * leading + at % 64 * 2 + depth / 8 * stride + depth % 8 * 128  // its rows are along k
                   : at / 8 * stride + at % 8 * 128 + depth * 2;
  address ^= (address >> 7 & 7) << 4;
  uint16_t bits;
  std::memcpy(&bits, read_by_warpgroup(first, i, address, sizeof bits), sizeof bits);
  return number_of(bits, type);
}

void warpgroup(Warp& warp, const Instruction& i, Lanes) {
  Block& block = *warp.block;
  const int number = warp.number / 4;
  Warpgroup& group = block.warpgroups[number];
  if (i.has("fence")) return;
  if (i.has("commit_group")) {
    group.groups.push_back(std::move(group.products));
    group.products.clear();
    return;
  }
  if (i.has("wait_group")) {
    for (; group.groups.size() > warp.operand(i, 0, 0); group.groups.erase(group.groups.begin()))
      if (block.order.late)
        for (const Product& product : group.groups[0]) multiply(block, number, product);
    return;
  }
  Product product{&i, {}};
  for (size_t k = 0; k < i.operands.size(); ++k) {
    product.operands.push_back(warp.operand(i, int(k), 0));
    for (int w = 4 * number; w < 4 * number + 4; ++w)
      for (int lane = 0; lane < LANES; ++lane)
        if (block.warps[w].operand(i, int(k), lane) != product.operands[k]) fault(i, "an operand differs between threads");
  }
  if (!block.order.late) multiply(block, number, product);
  group.products.push_back(product);
}

}  // namespace

// D = A @ B + D: operands are the descriptors of A and B, whether D is added, the signs, and which is transposed.
void multiply(Block& block, int number, const Product& product) {
  const Instruction& i = *product.instruction;
  const Type type = i.types[1];
  const std::string shape = *std::find_if(i.words.begin(), i.words.end(), [](auto& w) { return w.rfind("m64n", 0) == 0; });
  const int columns = std::atoi(shape.c_str() + 4);
  if (i.types[0] != Type::f32 || shape.substr(shape.size() - 3) != "k16") fault(i, "not simulated");
  if (product.operands[3] != 1 || product.operands[4] != 1) fault(i, "not simulated: a sign");
  Warp& first = block.warps[4 * number];
  std::vector<double> a(64 * 16), b(16 * columns);
  for (int depth = 0; depth < 16; ++depth) {
    for (int row = 0; row < 64; ++row)
      a[row * 16 + depth] = element_of(first, i, product.operands[0], row, depth, product.operands[5], type);
    for (int column = 0; column < columns; ++column)
      b[depth * columns + column] = element_of(first, i, product.operands[1], column, depth, product.operands[6], type);
  }
  for (int w = 0; w < 4; ++w)
    for (int lane = 0; lane < LANES; ++lane)
      for (size_t k = 0; k < i.to.size(); ++k) {
        const int row = 16 * w + lane / 4 + 8 * (int(k) / 2 % 2), column = int(k) / 4 * 8 + lane % 4 * 2 + int(k) % 2;
        uint64_t& out = block.warps[4 * number + w].value(i.to[k], lane);
        double sum = product.operands[2] & 1 ? as<float>(out) : 0.0;
        for (int depth = 0; depth < 16; ++depth) sum += a[row * 16 + depth] * b[depth * columns + column];
        out = rounded(sum, Type::f32);
      }
}

const std::map<std::string, Opcode> COLLECTIVES = {
    {"shfl", {shuffle, Meeting::named}},     {"vote", {vote, Meeting::named}},
    {"ldmatrix", {load_matrices, Meeting::warp}}, {"mma", {multiply_matrices, Meeting::warp}},
    {"wgmma", {warpgroup, Meeting::warpgroup}},
    {"bar", {[](Warp& warp, const Instruction&, Lanes) { ++warp.meetings; }, Meeting::block}},
};

}  // namespace ptx

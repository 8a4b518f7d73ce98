// SPDX-License-Identifier: MIT
// What pto_cuda_instructions.h declares.
#include <math.h>

#include "pto_cuda_blocks.h"

namespace emulation {

// Functions of its own, which are not the kernel's: those are compiled by other flags.
namespace {
#include "pto_elements.h"
}

static float widened(uint16_t raw, Format format) {
  return format == Format::HALF ? pto::widened(pto::half{raw}) : pto::widened(pto::bfloat16{raw});
}

void wait_for_copies(int pending) {
  Copies& c = block().copies[linear()];
  const int ready = c.group_count > pending ? c.group_count - pending : 0;
  if (ready == 0) return;
  const int end = c.groups[ready - 1];
  c.hidden = c.hidden || end > 0;
  for (int k = 0; k < end; ++k) {
    expect(c.list[k].to, false);
    memcpy(c.list[k].to, c.list[k].data, 16);
  }
  memmove(c.list, c.list + end, sizeof(Copy) * size_t(c.count - end));
  c.count -= end;
  c.group_count -= ready;
  for (int k = 0; k < c.group_count; ++k) c.groups[k] = c.groups[k + ready] - end;
}

void load_matrices(uint32_t* x, const void* row, bool transposed, const Place& place) {
  const int lane = linear() % 32;
  Warp& w = warp();
  touched_whole(row, 16, Access::READ);
  w.rows[lane] = static_cast<const unsigned char*>(row);
  warp_barrier(place);
  for (int q = 0; q < 4; ++q) {
    unsigned char raw[4];
    for (int e = 0; e < 2; ++e) {
      const int line = transposed ? lane % 4 * 2 + e : lane / 4, column = transposed ? lane / 4 : lane % 4 * 2 + e;
      memcpy(raw + 2 * e, w.rows[8 * q + line] + 2 * column, 2);
    }
    memcpy(&x[q], raw, 4);
  }
  warp_barrier(place);
}

void multiply_fragments(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, Format format, const Place& place) {
  const int lane = linear() % 32;
  Warp& w = warp();
  for (int k = 0; k < 4; ++k) w.fragments[lane][k] = a[k];
  w.fragments[lane][4] = b0;
  w.fragments[lane][5] = b1;
  warp_barrier(place);
  for (int out = 0; out < 4; ++out) {
    const int row = lane / 4 + out / 2 * 8, column = lane % 4 * 2 + out % 2;
    for (int k = 0; k < 16; ++k) {
      const uint32_t left = w.fragments[row % 8 * 4 + k % 8 / 2][row / 8 + 2 * (k / 8)] >> 16 * (k % 2);
      const uint32_t right = w.fragments[column * 4 + k % 8 / 2][4 + k / 8] >> 16 * (k % 2);
      d[out] += widened(uint16_t(left), format) * widened(uint16_t(right), format);
    }
  }
  warp_barrier(place);
}

// Element k of what is contracted in row or column `at` of the result: by the fields of a descriptor in shared memory
// (PTX ISA, "Matrix Descriptor Format" and "Strides").
static float element_of(const Operand& x, int at, int k) {
  const auto field = [&](int first) { return uint32_t(x.descriptor >> first & 0x3fff) << 4; };
  require(x.descriptor >> 62 == 1, "a descriptor of another layout");
  const uint32_t leading = field(16), stride = field(32), mn = uint32_t(at), depth = uint32_t(k);
  const uint32_t offset = x.along ? mn / 64 * leading + depth / 8 * stride + depth % 8 * 128 + mn % 64 * 2
                                  : mn / 8 * stride + mn % 8 * 128 + depth * 2;
  const uint32_t plain = field(0) + offset, swizzled = plain ^ (plain >> 7 & 7) << 4;
  uint16_t raw;
  memcpy(&raw, block().dynamic_shared + swizzled, 2);
  return widened(raw, x.format);
}

// The sums of a thread: of its rows one after the other.
static void sum(float* out, int n, const Operand& a, const Operand& b) {
  const int lane = linear() % 32, warp = linear() / 32 % 4;
  for (int j = 0; j < n / 2; ++j) {
    const int slot = j % (n / 4), row = warp * 16 + j / (n / 4) * 8 + lane / 4;
    const int column = slot / 2 * 8 + lane % 4 * 2 + slot % 2;
    out[j] = 0;
    for (int k = 0; k < 16; ++k) out[j] += element_of(a, row, k) * element_of(b, column, k);
  }
}

void multiply_by_warpgroup(float* x, float* y, int n, const Operand& a, const Operand& b) {
  Products& p = block().products[linear()];
  if (p.count == p.room) {
    p.room = 2 * p.room + 16;
    p.list = static_cast<Product*>(realloc(p.list, size_t(p.room) * sizeof(Product)));
  }
  Product& product = p.list[p.count++];
  product.x = x;
  product.y = y;
  product.n = n;
  product.group = p.open;
  product.a = a;
  product.b = b;
  sum(product.before, n, a, b);
}

void wait_for_groups(int pending) {
  Products& p = block().products[linear()];
  int done = 0;
  if (p.first < p.open - pending) p.first = p.open - pending;
  for (; done < p.count && p.list[done].group < p.first; ++done) {
    const Product& product = p.list[done];
    const int half = product.n / 4;
    float now[128];
    sum(now, product.n, product.a, product.b);
    require(memcmp(now, product.before, sizeof(float) * size_t(2 * half)) == 0,
            "an operand that changes while it is multiplied");
    for (int j = 0; j < half; ++j) {
      product.x[j] += now[j];
      product.y[j] += now[half + j];
    }
  }
  memmove(p.list, p.list + done, sizeof(Product) * size_t(p.count - done));
  p.count -= done;
}

}  // namespace emulation

namespace pto {

void copy_async(void* shared, const void* global, bool inside) {
  emulation::Copies& c = emulation::block().copies[emulation::linear()];
  emulation::require(c.count < 512, "more than 512 copies under way in one thread");
  emulation::Copy& copy = c.list[c.count++];
  copy.to = shared;
  memset(copy.data, 0, 16);
  emulation::expect(shared, true);
  if (!inside) return;
  emulation::touched_whole(global, 16, emulation::Access::READ);
  memcpy(copy.data, global, 16);
}
void commit_copies() {
  emulation::Copies& c = emulation::block().copies[emulation::linear()];
  emulation::require(c.group_count < 64, "more than 64 groups of copies under way in one thread");
  c.groups[c.group_count++] = c.count;
}

void show_to_tensor_cores() { emulation::block().copies[emulation::linear()].hidden = false; }
uint32_t shared_address(const void* shared) {
  return uint32_t(static_cast<const unsigned char*>(shared) - emulation::block().dynamic_shared);
}
void begin_products() {
  const emulation::Block& b = emulation::block();
  for (int k = 0; k < b.count; ++k) emulation::require(!b.copies[k].hidden, "copies that the tensor cores do not see");
}
void commit_products() { ++emulation::block().products[emulation::linear()].open; }

}  // namespace pto

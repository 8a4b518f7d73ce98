// SPDX-License-Identifier: MIT
// What the headers of kernels write as instructions of a device: asynchronous copies, matrices from shared memory, and
// products on tensor cores. Included by pto_cuda_emulation.h, whose blocks and threads these are of.
#pragma once

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

// SPDX-License-Identifier: MIT
// What the headers of kernels write as instructions of a device: asynchronous copies, matrices from shared memory, and
// products on tensor cores. Included by pto_cuda_emulation.h.
#pragma once

namespace pto {
struct half;
struct bfloat16;
}  // namespace pto

namespace emulation {

// A format of 16 bits.
enum class Format { HALF, BFLOAT16 };
inline Format format_of(const pto::half*) { return Format::HALF; }
inline Format format_of(const pto::bfloat16*) { return Format::BFLOAT16; }

// An operand of a product in shared memory: its descriptor, and whether it is stored along what is not contracted.
struct Operand {
  uint64_t descriptor;
  bool along;
  Format format;
};

void wait_for_copies(int pending);
void load_matrices(uint32_t* x, const void* row, bool transposed, const Place& place);
void multiply_fragments(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, Format format, const Place& place);
void wait_for_groups(int pending);
// A product with n columns: half of the sums of a thread are in x, half in y.
void multiply_by_warpgroup(float* x, float* y, int n, const Operand& a, const Operand& b);

}  // namespace emulation

namespace pto {

void copy_async(void* shared, const void* global, bool inside);
void commit_copies();
template <int PENDING>
PTO_UNCHECKED inline void wait_for_copies() {
  emulation::wait_for_copies(PENDING);
}

template <bool TRANSPOSED>
PTO_UNCHECKED __attribute__((noinline)) inline void load_matrices(uint32_t (&x)[4], const void* row) {
  emulation::load_matrices(x, row, TRANSPOSED, PTO_PLACE);
}

template <class T>
PTO_UNCHECKED __attribute__((noinline)) inline void multiply_fragments(float (&d)[4], const uint32_t (&a)[4],
                                                                       uint32_t b0, uint32_t b1, T) {
  emulation::multiply_fragments(d, a, b0, b1, emulation::format_of(static_cast<T*>(nullptr)), PTO_PLACE);
}

// Products of warpgroups: operands must be the same from when a product begins until it is waited for, and sums change
// only then.
void show_to_tensor_cores();
uint32_t shared_address(const void* shared);
void begin_products();
void commit_products();
template <int PENDING>
PTO_UNCHECKED inline void wait_for_groups() {
  emulation::wait_for_groups(PENDING);
}
PTO_UNCHECKED inline void hold(float&) {}

template <int N, int J, bool A_ALONG, bool B_ALONG, int NC, class T>
PTO_UNCHECKED inline void multiply_by_warpgroup(float (&x)[NC], float (&y)[NC], uint64_t a, uint64_t b, T) {
  const emulation::Format format = emulation::format_of(static_cast<T*>(nullptr));
  emulation::multiply_by_warpgroup(x + J, y + J, N, {a, A_ALONG, format}, {b, B_ALONG, format});
}

}  // namespace pto

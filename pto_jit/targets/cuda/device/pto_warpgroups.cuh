// SPDX-License-Identifier: MIT
// Products of 16-bit floats by warpgroups of four warps (wgmma of compute capability 9.0): the tensor cores read operands
// from shared memory themselves, while the threads bring the next ones.
//
// A tile in shared memory is made of panels of 64 columns, 128 bytes a row; the eight pieces of 16 bytes of a row are
// exchanged by the row's number modulo 8, so that pieces below each other lie in different banks. That is the layout
// "128-byte swizzle" of the PTX ISA; panels start at multiples of 1024 bytes. "Turned" operands are stored as the transpose
// of what is meant. WARPGROUPS = 0: `mma.sync` and rows 16 bytes apart, as in pto_products.cuh, for any other device.
#pragma once

#include "pto_products.cuh"

namespace pto {

// -- the instructions -------------------------------------------------------------------------------------------------

#if defined(PTO_EMULATED)
#define PTO_SHARED_PANELS(name) PTO_SHARED_MEMORY(name)
#else
#define PTO_SHARED_PANELS(name) extern __shared__ __align__(1024) unsigned char name[]
PTO_FUNCTION void show_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
PTO_FUNCTION uint32_t shared_address(const void* shared) { return uint32_t(__cvta_generic_to_shared(shared)); }

PTO_FUNCTION void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
PTO_FUNCTION void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
PTO_FUNCTION void wait_for_groups() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }
// The compiler moves no access to a sum across this.
PTO_FUNCTION void hold(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }

// Sums of two rows from slot J + 2 * block on; a block of eight columns is two slots of each.
#define PTO_SUMS_1(block) \
  "+f"(x[J + 2 * (block)]), "+f"(x[J + 2 * (block) + 1]), "+f"(y[J + 2 * (block)]), "+f"(y[J + 2 * (block) + 1])
#define PTO_SUMS_4(block) PTO_SUMS_1(block), PTO_SUMS_1(block + 1), PTO_SUMS_1(block + 2), PTO_SUMS_1(block + 3)
#define PTO_SUMS_8(block) PTO_SUMS_4(block), PTO_SUMS_4(block + 4)
#define PTO_SUMS_16(block) PTO_SUMS_8(block), PTO_SUMS_8(block + 8)
#define PTO_SUMS_32(block) PTO_SUMS_16(block), PTO_SUMS_16(block + 16)
#define PTO_REGISTERS_32                                                                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define PTO_REGISTERS_64                                                                                           \
  PTO_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "  \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PTO_REGISTERS_128                                                                                          \
  PTO_REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "  \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "   \
  "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, "   \
  "%121, %122, %123, %124, %125, %126, %127"
#define PTO_WARPGROUP_PRODUCT(columns, kind, registers, sums, left, right, left_along, right_along)                \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." kind "." kind " {" registers "}, " left ", " \
               right ", 1, 1, 1, " left_along ", " right_along ";"                                                 \
               : sums : "l"(a), "l"(b), "n"(A_ALONG ? 1 : 0), "n"(B_ALONG ? 1 : 0))

// Starts to add the product of 64 x 16 and 16 x N elements, which descriptors name, to sums of 64 rows and N columns: of
// two rows a thread has those from slot J on. A_ALONG: rows of the result lie along rows of the stored left operand;
// B_ALONG: so do its columns in the right one.
#define PTO_MULTIPLY_BY_WARPGROUP(type, kind)                                                                         \
  template <int N, int J, bool A_ALONG, bool B_ALONG, int NC>                                                         \
  PTO_FUNCTION void multiply_by_warpgroup(float(&x)[NC], float(&y)[NC], uint64_t a, uint64_t b, type) {               \
    static_assert(N == 64 || N == 128 || N == 256, "columns of an instruction");                                      \
    if constexpr (N == 64) {                                                                                          \
      PTO_WARPGROUP_PRODUCT("64", kind, PTO_REGISTERS_32, PTO_SUMS_8(0), "%32", "%33", "%34", "%35");                 \
    } else if constexpr (N == 128) {                                                                                  \
      PTO_WARPGROUP_PRODUCT("128", kind, PTO_REGISTERS_64, PTO_SUMS_16(0), "%64", "%65", "%66", "%67");               \
    } else {                                                                                                          \
      PTO_WARPGROUP_PRODUCT("256", kind, PTO_REGISTERS_128, PTO_SUMS_32(0), "%128", "%129", "%130", "%131");          \
    }                                                                                                                 \
  }
PTO_MULTIPLY_BY_WARPGROUP(half, "f16")
PTO_MULTIPLY_BY_WARPGROUP(bfloat16, "bf16")
#endif

// -- tiles ------------------------------------------------------------------------------------------------------------

// What this thread has copied is seen by the products of all, once the threads have met.
template <bool GROUPED>
PTO_FUNCTION void show_copies() {
  if constexpr (GROUPED) show_to_tensor_cores();
}

// Elements that a tile of whole panels takes, with all that belongs to it.
template <bool GROUPED, class T>
PTO_CONSTANT int stored_size(int rows, int columns) { return rows * (GROUPED ? columns : pitch<T>(columns)); }

// What the tensor cores read: 16 of what is contracted from `k` on, and rows or columns of the result from `at` on, of a
// tile of so many stored rows. ALONG: the result's lie along stored rows, what is contracted down the columns.
template <int ROWS, bool ALONG, class T>
PTO_FUNCTION uint64_t described(const T* tile, int at, int k) {
  static_assert(sizeof(T) == 2 && ROWS % 8 == 0, "panels are of 64 columns and groups of 8 rows");
  const T* const from = tile + (ALONG ? at / 64 * ROWS * 64 + k * 64 : k / 64 * ROWS * 64 + at * 64 + k % 64);
  constexpr uint64_t next_panel = ALONG ? ROWS * 128 / 16 : 1, next_rows = 8 * 128 / 16, swizzled_by_128 = 1;
  return uint64_t(shared_address(from) >> 4) | next_panel << 16 | next_rows << 32 | swizzled_by_128 << 62;
}

// -- products ---------------------------------------------------------------------------------------------------------

template <int J, int B_ROWS, bool A_ALONG, bool B_ALONG, int NC, class T>
PTO_FUNCTION void multiply_columns(float (&x)[NC], float (&y)[NC], uint64_t a, const T* b, int k) {
  constexpr int left = 4 * (NC - J), columns = left >= 256 ? 256 : left >= 128 ? 128 : 64;
  multiply_by_warpgroup<columns, J, A_ALONG, B_ALONG>(x, y, a, described<B_ROWS, B_ALONG>(b, 4 * J, k), T{});
  if constexpr (left > columns) multiply_columns<J + columns / 4, B_ROWS, A_ALONG, B_ALONG>(x, y, a, b, k);
}

// acc += a @ b; GROUPED: by warpgroups, and only begun.
template <class Spread, bool GROUPED, int DEPTH, int A_ROWS, int A_COLUMNS, bool A_TURNED, int B_ROWS, int B_COLUMNS,
          bool B_TURNED, int NR, int NC, class T>
PTO_FUNCTION void multiply_staged(float (&acc)[NR][NC], const T* a, const T* b) {
  if constexpr (GROUPED) {
    constexpr int groups = Spread::DOWN_WARPS / 4;
    static_assert(Spread::DOWN_WARPS % 4 == 0 && Spread::ACROSS_WARPS == 1 && NC % 16 == 0, "rows of 64 columns");
    begin_products();
    PTO_UNROLL
    for (int k = 0; k < DEPTH; k += 16) {
      PTO_UNROLL
      for (int m = 0; m < NR / 2; ++m) {
        const int row = (m * groups + int(threadIdx.x) / 128) * 64;
        multiply_columns<0, B_ROWS, A_TURNED, !B_TURNED>(acc[2 * m], acc[2 * m + 1],
                                                         described<A_ROWS, A_TURNED>(a, row, k), b, k);
      }
    }
    commit_products();
  } else {
    multiply_on_tensor_cores<Spread, DEPTH, pitch<T>(A_COLUMNS), A_TURNED, pitch<T>(B_COLUMNS), B_TURNED>(acc, a, b);
  }
}

// Wait for all products but the last PENDING ones.
template <bool GROUPED, int PENDING>
PTO_FUNCTION void wait_for_products() {
  if constexpr (GROUPED) wait_for_groups<PENDING>();
}

// Around the products: sums are made before, and read afterwards.
template <bool GROUPED, int NR, int NC>
PTO_FUNCTION void complete_products(float (&acc)[NR][NC]) {
  if constexpr (GROUPED) {
    wait_for_groups<0>();
    PTO_UNROLL
    for (int i = 0; i < NR; ++i) {
      PTO_UNROLL
      for (int j = 0; j < NC; ++j) hold(acc[i][j]);
    }
  }
}

}  // namespace pto

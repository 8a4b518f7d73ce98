// SPDX-License-Identifier: MIT
// Kernel `matmul_bf16_incore_0` of matrix.py, written by pto_jit for CUDA.
#include "pto_warpgroups.cuh"

// Chosen for each launch; a version of the kernel is compiled for every choice that is met.
#if !defined(WM)
#define WM 4
#endif
#if !defined(WN)
#define WN 2
#endif
#if !defined(STAGES)
#define STAGES 3
#endif
#if !defined(WARPGROUPS)
#define WARPGROUPS 0
#endif
using Spread = pto::Fragments<WM, WN, 2>;

extern "C" __global__ void __launch_bounds__(32 * WM * WN, 1) matmul_bf16_incore_0(
    const pto::Tensor<pto::bfloat16, 2> a, const pto::Tensor<pto::bfloat16, 2> b,
    const pto::Tensor<pto::bfloat16, 2> c, const int64_t b_d1, const int64_t a_d1, pto::Failure* failure) {
  PTO_SHARED_PANELS(memory);
  constexpr int a_1_part_shared_rows = Spread::padded_rows(128);
  constexpr int a_1_part_shared_columns = Spread::padded_depth(64);
  constexpr int a_1_part_shared_size = pto::stored_size<WARPGROUPS, pto::bfloat16>(
      a_1_part_shared_rows, a_1_part_shared_columns);
  pto::bfloat16* const a_1_part_shared = reinterpret_cast<pto::bfloat16*>(memory);
  constexpr int b_1_part_shared_rows = Spread::padded_depth(64);
  constexpr int b_1_part_shared_columns = Spread::padded_columns(256);
  constexpr int b_1_part_shared_size = pto::stored_size<WARPGROUPS, pto::bfloat16>(
      b_1_part_shared_rows, b_1_part_shared_columns);
  pto::bfloat16* const b_1_part_shared = reinterpret_cast<pto::bfloat16*>(
      a_1_part_shared + STAGES * a_1_part_shared_size);
  // matrix.py:21
  PTO_KEEP_LOOP
  for (int64_t i = int64_t(pto::grouped_place<16>().y) * 128; i < 4096; PTO_NEXT(i, 4096, gridDim.y * 128)) {
    PTO_KEEP_LOOP
    for (int64_t j = int64_t(pto::grouped_place<16>().x) * 256; j < b_d1; PTO_NEXT(j, b_d1, int64_t(gridDim.x) * 256)) {
      float t0[Spread::rows(128)][Spread::columns(256)];
      int t0_rows, t0_columns;
      PTO_UNROLL
      for (int ri = 0; ri < Spread::rows(128); ++ri) {
        PTO_UNROLL
        for (int ci = 0; ci < Spread::columns(256); ++ci) {
          t0[ri][ci] = 0.0f;
        }
      }
      t0_rows = 128;
      t0_columns = 256;
      const auto stage_p = [&](const int64_t p, const int into) {
        const int a_1_part_rows = pto::clipped(128, a.shape[0], i);
        const int a_1_part_columns = pto::clipped(64, a.shape[1], p);
        pto::stage_tile<a_1_part_shared_rows, a_1_part_shared_columns, Spread::THREADS, WARPGROUPS>(
            a_1_part_shared + into * a_1_part_shared_size, a.data + i * a.stride[0] + p, a.stride[0], 1, a_1_part_rows,
            a_1_part_columns);
        const int b_1_part_rows = pto::clipped(64, b.shape[0], p);
        const int b_1_part_columns = pto::clipped(256, b.shape[1], j);
        pto::stage_tile<b_1_part_shared_rows, b_1_part_shared_columns, Spread::THREADS, WARPGROUPS>(
            b_1_part_shared + into * b_1_part_shared_size, b.data + p * b.stride[0] + j, b.stride[0], 1, b_1_part_rows,
            b_1_part_columns);
      };
      Spread::synchronise();  // nobody reads what an earlier loop staged
      for (int ahead = 0; ahead < STAGES - 1 - WARPGROUPS; ++ahead) {
        if (ahead * 64 < a_d1) stage_p(ahead * 64, ahead);
        pto::commit_copies();
      }
      int buffer = 0;
      // Warps copy before a product or after it, in turns, so that others multiply meanwhile.
      const bool early = Spread::copies_early<STAGES, WARPGROUPS>();
      for (int64_t p = 0; p < a_d1; p += 64, buffer = (buffer + 1) % STAGES) {
        pto::wait_for_stage<STAGES - WARPGROUPS>();
        pto::show_copies<WARPGROUPS>();
        Spread::synchronise();
        if (early && p + (STAGES - 1 - WARPGROUPS) * 64 < a_d1)
            stage_p(p + (STAGES - 1 - WARPGROUPS) * 64, (buffer + STAGES - 1 - WARPGROUPS) % STAGES);
        if (STAGES == 1) pto::commit_stage<Spread, STAGES>();
        const int a_1_part_rows_2 = pto::clipped(128, a.shape[0], i);
        const int a_1_part_columns_2 = pto::clipped(64, a.shape[1], p);
        const int b_1_part_rows_2 = pto::clipped(64, b.shape[0], p);
        const int b_1_part_columns_2 = pto::clipped(256, b.shape[1], j);
        if (!(a_1_part_columns_2 == b_1_part_rows_2)) pto::fail(failure, 1, a_1_part_columns_2, b_1_part_rows_2);
        if (!(a_1_part_rows_2 == t0_rows || t0_rows == 128)) pto::fail(failure, 2, t0_rows, a_1_part_rows_2);
        if (!(b_1_part_columns_2 == t0_columns || t0_columns == 256))
            pto::fail(failure, 3, t0_columns, b_1_part_columns_2);
        t0_rows = a_1_part_rows_2;
        t0_columns = b_1_part_columns_2;
        pto::multiply_staged<Spread, WARPGROUPS, Spread::padded_depth(64), a_1_part_shared_rows,
            a_1_part_shared_columns, false, b_1_part_shared_rows, b_1_part_shared_columns, false>(
            t0, a_1_part_shared + buffer * a_1_part_shared_size, b_1_part_shared + buffer * b_1_part_shared_size);
        if (!early && p + (STAGES - 1 - WARPGROUPS) * 64 < a_d1)
            stage_p(p + (STAGES - 1 - WARPGROUPS) * 64, (buffer + STAGES - 1 - WARPGROUPS) % STAGES);
        if (STAGES > 1) pto::commit_copies();
        pto::wait_for_products<WARPGROUPS, 1>();
      }
      pto::complete_products<WARPGROUPS>(t0);
      float t1[Spread::rows(128)][Spread::columns(256)];
      PTO_UNROLL
      for (int ri = 0; ri < Spread::rows(128); ++ri) {
        PTO_UNROLL
        for (int ci = 0; ci < Spread::columns(256); ++ci) {
          t1[ri][ci] = t0[ri][ci];
        }
      }
      pto::store_tile<Spread, false, false>(c.data + i * c.stride[0] + j, c.stride[0], 1,
          pto::clipped(t0_rows, c.shape[0], i), pto::clipped(t0_columns, c.shape[1], j), t1);
    }
  }
}

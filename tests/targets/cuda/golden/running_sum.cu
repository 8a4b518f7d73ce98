// SPDX-License-Identifier: MIT
// Kernel `running_sum_incore_0_3` of test_sources.py, written by pto_jit for CUDA.
#include "pto_cuda.cuh"
#include "pto_lines.cuh"

// Chosen for each launch; a version of the kernel is compiled for every choice that is met.
#if !defined(TR)
#define TR 1
#endif
#if !defined(TC)
#define TC 256
#endif
#if !defined(V)
#define V 4
#endif
#if !defined(MOST_MOST_2)
#define MOST_MOST_2 128
#endif
using Spread = pto::Rows<TR, TC, V, true>;

extern "C" __global__ void __launch_bounds__(TR * TC, TR * TC > 512) running_sum_incore_0_3(
    const pto::Tensor<float, 1> t0_memory, const pto::Tensor<float, 1> x, const pto::Tensor<float, 1> y,
    const int64_t parts_1, const int64_t chunk, const int64_t x_d0, const int64_t most_2, pto::Failure* failure) {
  // test_sources.py:74
  PTO_KEEP_LOOP
  for (int64_t chunk_2 = int64_t(blockIdx.x) * TR + threadIdx.y; chunk_2 < parts_1;
      PTO_NEXT(chunk_2, parts_1, int64_t(gridDim.x) * TR)) {
    float before_1[1][1];
    int before_1_columns;
    const int64_t first_1 = chunk_2 * chunk;
    const int64_t end_2 = first_1 + chunk;
    const int64_t end_3 = pto::smaller<int64_t>(end_2, x_d0);
    const int64_t previous = chunk_2 - 1;
    const bool some_3 = chunk_2 != 0;
    before_1[0][0] = -0.0f;
    before_1_columns = 1;
    if (some_3) {
      if (!(previous >= 0)) pto::fail(failure, 2, previous, 0);
      const int before_1_columns_2 = pto::clipped(1, t0_memory.shape[0], previous);
      pto::load_tile<Spread, true, true>(before_1, t0_memory.data + previous, 0, 1, 1, before_1_columns_2, float(0));
      before_1_columns = before_1_columns_2;
    }
    for (int64_t x_at_1 = first_1; x_at_1 < end_3; x_at_1 += 4096) {
      const int64_t left_2 = x_d0 - x_at_1;
      const int64_t some_2 = pto::smaller<int64_t>(left_2, most_2);
      if (!(x_at_1 >= 0)) pto::fail(failure, 3, x_at_1, 0);
      const int x_4_columns = pto::clipped(some_2, x.shape[0], x_at_1);
      float x_4[1][Spread::columns(MOST_MOST_2)];
      pto::load_tile<Spread, true, false>(x_4, x.data + x_at_1, 0, 1, 1, x_4_columns, float(0));
      float own[1][Spread::columns(MOST_MOST_2)];
      PTO_UNROLL
      for (int ci = 0; ci < Spread::columns(MOST_MOST_2); ++ci) {
        own[0][ci] = x_4[0][ci];
      }
      pto::scan_rows<Spread, false>(pto::Sum<float>(), own, x_4_columns);
      float t0_3[1][Spread::columns(MOST_MOST_2)];
      PTO_UNROLL
      for (int ci = 0; ci < Spread::columns(MOST_MOST_2); ++ci) {
        t0_3[0][ci] = before_1[0][0] + own[0][ci];
      }
      float part_1[1][1];
      part_1[0][0] = pto::Sum<float>::identity();
      if (Spread::fills_columns(x_4_columns, Spread::columns(MOST_MOST_2))) {
        PTO_UNROLL
        for (int ci = 0; ci < Spread::columns(MOST_MOST_2); ++ci) {
          part_1[0][0] = pto::Sum<float>::combine(part_1[0][0], x_4[0][ci]);
        }
      }
      else {
        PTO_UNROLL
        for (int ci = 0; ci < Spread::columns(MOST_MOST_2); ++ci) {
          part_1[0][0] = pto::Sum<float>::combine(part_1[0][0], Spread::column(ci) < x_4_columns ? x_4[0][ci]
              : pto::Sum<float>::identity());
        }
      }
      part_1[0][0] = Spread::reduce_columns<pto::Sum<float>>(part_1[0][0]);
      before_1[0][0] = before_1[0][0] + part_1[0][0];
      float t1_4[1][Spread::columns(MOST_MOST_2)];
      PTO_UNROLL
      for (int ci = 0; ci < Spread::columns(MOST_MOST_2); ++ci) {
        t1_4[0][ci] = t0_3[0][ci] * 2.0f;
      }
      if (!(x_at_1 >= 0)) pto::fail(failure, 4, x_at_1, 0);
      Spread::synchronise();
      pto::store_tile<Spread, true, false>(y.data + x_at_1, 0, 1, 1,
          pto::clipped((before_1_columns == 1 ? x_4_columns : 0), y.shape[0], x_at_1), t1_4);
    }
  }
}

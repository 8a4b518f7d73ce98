// SPDX-License-Identifier: MIT
// Kernel `softmax_incore_0` of rows.py, written by pto_jit for CUDA.
#include "pto_cuda.cuh"

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
#if !defined(MOST_X_D1)
#define MOST_X_D1 128
#endif
using Spread = pto::Rows<TR, TC, V, true>;

extern "C" __global__ void __launch_bounds__(TR * TC, TR * TC > 512) softmax_incore_0(
    const pto::Tensor<float, 2> x, const pto::Tensor<float, 2> y, const int64_t r_chunks, const int64_t x_d0,
    const int64_t x_d1, pto::Failure* failure) {
  (void)failure;
  // rows.py:17
  PTO_KEEP_LOOP
  for (int64_t r_chunk = int64_t(blockIdx.y); r_chunk < r_chunks; PTO_NEXT(r_chunk, r_chunks, gridDim.y)) {
    const int64_t r_lo = r_chunk * 64;
    const int64_t r_end = r_lo + 64;
    const int64_t r_hi = pto::smaller<int64_t>(r_end, x_d0);
    PTO_KEEP_LOOP
    for (int64_t r = r_lo + int64_t(blockIdx.x) * TR + threadIdx.y; r < r_hi;
        PTO_NEXT(r, r_hi, int64_t(gridDim.x) * TR)) {
      // rows.py:18
      float x_1[1][Spread::columns(MOST_X_D1)];
      pto::load_tile<Spread, true, false>(x_1, x.data + r * x.stride[0], x.stride[0], 1, 1, int(x_d1), float(0));
      // rows.py:19
      float max[1][1];
      max[0][0] = pto::Maximum<float>::identity();
      if (Spread::fills_columns(int(x_d1), Spread::columns(MOST_X_D1))) {
        PTO_UNROLL
        for (int ci = 0; ci < Spread::columns(MOST_X_D1); ++ci) {
          max[0][0] = pto::Maximum<float>::combine(max[0][0], x_1[0][ci]);
        }
      }
      else {
        PTO_UNROLL
        for (int ci = 0; ci < Spread::columns(MOST_X_D1); ++ci) {
          max[0][0] = pto::Maximum<float>::combine(max[0][0], Spread::column(ci) < int(x_d1) ? x_1[0][ci]
              : pto::Maximum<float>::identity());
        }
      }
      max[0][0] = Spread::reduce_columns<pto::Maximum<float>>(max[0][0]);
      float t1[1][Spread::columns(MOST_X_D1)];
      PTO_UNROLL
      for (int ci = 0; ci < Spread::columns(MOST_X_D1); ++ci) {
        t1[0][ci] = pto::exponential((x_1[0][ci] - max[0][0]));
      }
      // rows.py:20
      float sum[1][1];
      sum[0][0] = pto::Sum<float>::identity();
      if (Spread::fills_columns(int(x_d1), Spread::columns(MOST_X_D1))) {
        PTO_UNROLL
        for (int ci = 0; ci < Spread::columns(MOST_X_D1); ++ci) {
          sum[0][0] = pto::Sum<float>::combine(sum[0][0], t1[0][ci]);
        }
      }
      else {
        PTO_UNROLL
        for (int ci = 0; ci < Spread::columns(MOST_X_D1); ++ci) {
          sum[0][0] = pto::Sum<float>::combine(sum[0][0], Spread::column(ci) < int(x_d1) ? t1[0][ci]
              : pto::Sum<float>::identity());
        }
      }
      sum[0][0] = Spread::reduce_columns<pto::Sum<float>>(sum[0][0]);
      float t2[1][Spread::columns(MOST_X_D1)];
      pto::divide_row(t2[0], sum[0][0], [&](int ci) { return t1[0][ci]; });
      pto::store_tile<Spread, true, false>(y.data + r * y.stride[0], y.stride[0], 1, pto::clipped(1, y.shape[0], r),
          pto::clipped(int(x_d1), y.shape[1], 0), t2);
    }
  }
}

// SPDX-License-Identifier: MIT
// Kernel `vector_add_incore_0` of elementwise.py, written by pto_jit for CUDA.
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
using Spread = pto::Rows<TR, TC, V, true>;

extern "C" __global__ void __launch_bounds__(TR * TC, TR * TC > 512) vector_add_incore_0(
    const pto::Tensor<float, 1> a, const pto::Tensor<float, 1> b, const pto::Tensor<float, 1> out, const int64_t a_d0,
    pto::Failure* failure) {
  // elementwise.py:20
  PTO_KEEP_LOOP
  for (int64_t i = (int64_t(blockIdx.x) * TR + threadIdx.y) * 4096; i < a_d0;
      PTO_NEXT(i, a_d0, int64_t(gridDim.x) * TR * 4096)) {
    // elementwise.py:21
    const int a_1_columns = pto::clipped(4096, a.shape[0], i);
    float a_1[1][Spread::columns(4096)];
    pto::load_tile<Spread, true, false>(a_1, a.data + i, 0, 1, 1, a_1_columns, float(0));
    const int b_1_columns = pto::clipped(4096, b.shape[0], i);
    float b_1[1][Spread::columns(4096)];
    pto::load_tile<Spread, true, false>(b_1, b.data + i, 0, 1, 1, b_1_columns, float(0));
    if (!(b_1_columns == a_1_columns)) pto::fail(failure, 1, a_1_columns, b_1_columns);
    float t0[1][Spread::columns(4096)];
    PTO_UNROLL
    for (int ci = 0; ci < Spread::columns(4096); ++ci) {
      t0[0][ci] = a_1[0][ci] + b_1[0][ci];
    }
    pto::store_tile<Spread, true, false>(out.data + i, 0, 1, 1, pto::clipped(a_1_columns, out.shape[0], i), t0);
  }
}

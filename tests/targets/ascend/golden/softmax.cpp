// SPDX-License-Identifier: MIT
// Kernel `softmax_incore_0` of rows.py, written by pto_jit for the vector cores of an Ascend 910B.
#include <cstdint>
#include <pto/pto-inst.hpp>
using namespace pto;

// Rows of global memory: an address, their extents, and how far apart they begin.
template <typename T, Layout L = Layout::ND>
using Rectangle = GlobalTensor<
    T, pto::Shape<1, 1, 1, DYNAMIC, DYNAMIC>,
    pto::Stride<1, 1, 1, L == Layout::ND ? DYNAMIC : 1, L == Layout::ND ? 1 : DYNAMIC>, L>;

AICORE inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
extern "C" __global__ AICORE void softmax_incore_0(__gm__ float *x, __gm__ float *y, int64_t r_chunks, int64_t x_d0,
    int64_t y_d0) {
  // The file is compiled for either kind of core; the body belongs to one of them.
#if !defined(__CCE_AICORE__) || defined(__DAV_C220_VEC__)
  set_mask_norm();
  set_vector_mask(-1, -1);
  int turn = 0;  // which of two copies of a buffer is used
  set_flag(PIPE_MTE3, PIPE_MTE2, EVENT_ID0);
  set_flag(PIPE_MTE3, PIPE_MTE2, EVENT_ID1);
  // rows.py:17
  for (int64_t r_chunk = get_block_idx(); r_chunk < r_chunks; r_chunk += get_block_num()) {
    const int64_t r_lo = r_chunk * 64;
    const int64_t r_end = r_lo + 64;
    const int64_t r_hi = smaller(r_end, x_d0);
    for (int64_t r = r_lo; r < r_hi; r += 16) {
      const int64_t r_left = r_hi - r;
      const int64_t r_rows = smaller(r_left, 16);
      // rows.py:18
      const int64_t x_1_rows = smaller(r_rows, x_d0 - r);
      Tile<TileType::Vec, float, 16, 256, BLayout::RowMajor, DYNAMIC, 256> x_1(x_1_rows);
      TASSIGN(x_1, 0x0 + turn * 0x4000);
      Rectangle<float> x_here(x + r * 256, {x_1_rows, 256}, {256});
      wait_flag(PIPE_MTE3, PIPE_MTE2, (event_t)(EVENT_ID0 + turn));
      TLOAD(x_1, x_here);
      set_flag(PIPE_MTE2, PIPE_V, (event_t)(EVENT_ID0 + turn));
      // rows.py:19
      Tile<TileType::Vec, float, 16, 1, BLayout::ColMajor, DYNAMIC, 1> max_column(x_1_rows);
      TASSIGN(max_column, 0xa000);
      Tile<TileType::Vec, float, 16, 128, BLayout::RowMajor, DYNAMIC, 128> scratch(x_1_rows);
      TASSIGN(scratch, 0x8000);
      pipe_barrier(PIPE_V);
      wait_flag(PIPE_MTE2, PIPE_V, (event_t)(EVENT_ID0 + turn));
      TROWMAX(max_column, x_1, scratch);
      pipe_barrier(PIPE_V);
      TROWEXPANDSUB(x_1, x_1, max_column);
      pipe_barrier(PIPE_V);
      TEXP(x_1, x_1);
      // rows.py:20
      Tile<TileType::Vec, float, 16, 1, BLayout::ColMajor, DYNAMIC, 1> sum_column(x_1_rows);
      TASSIGN(sum_column, 0xa000);
      pipe_barrier(PIPE_V);
      TROWSUM(sum_column, x_1, scratch);
      pipe_barrier(PIPE_V);
      TROWEXPANDDIV(x_1, x_1, sum_column);
      set_flag(PIPE_V, PIPE_MTE3, (event_t)(EVENT_ID0 + turn));
      Rectangle<float> y_here(y + r * 256, {x_1_rows, 256}, {256});
      wait_flag(PIPE_V, PIPE_MTE3, (event_t)(EVENT_ID0 + turn));
      TSTORE(y_here, x_1);
      set_flag(PIPE_MTE3, PIPE_MTE2, (event_t)(EVENT_ID0 + turn));
      turn = 1 - turn;
    }
  }
  wait_flag(PIPE_MTE3, PIPE_MTE2, EVENT_ID0);
  wait_flag(PIPE_MTE3, PIPE_MTE2, EVENT_ID1);
#endif
}

#if !defined(__CPU_SIM)
extern "C" void launch_softmax_incore_0(uint32_t cores, void *stream, void *x, void *y, int64_t r_chunks, int64_t x_d0,
    int64_t y_d0) {
  softmax_incore_0<<<cores, nullptr, stream>>>(static_cast<float *>(x), static_cast<float *>(y), r_chunks, x_d0, y_d0);
}
#endif

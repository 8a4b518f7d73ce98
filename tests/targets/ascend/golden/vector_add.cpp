// SPDX-License-Identifier: MIT
// Kernel `vector_add_incore_0` of elementwise.py, written by pto_jit for the vector cores of an Ascend 910B.
#include <cstdint>
#include <pto/pto-inst.hpp>
using namespace pto;

// Rows of global memory: an address, their extents, and how far apart they begin.
template <typename T, Layout L = Layout::ND>
using Rectangle = GlobalTensor<
    T, pto::Shape<1, 1, 1, DYNAMIC, DYNAMIC>,
    pto::Stride<1, 1, 1, L == Layout::ND ? DYNAMIC : 1, L == Layout::ND ? 1 : DYNAMIC>, L>;

AICORE inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
extern "C" __global__ AICORE void vector_add_incore_0(__gm__ float *a, __gm__ float *b, __gm__ float *out,
    int64_t a_d0, int64_t b_d0, int64_t out_d0) {
  // The file is compiled for either kind of core; the body belongs to one of them.
#if !defined(__CCE_AICORE__) || defined(__DAV_C220_VEC__)
  set_mask_norm();
  set_vector_mask(-1, -1);
  int turn = 0;  // which of two copies of a buffer is used
  set_flag(PIPE_MTE3, PIPE_MTE2, EVENT_ID0);
  set_flag(PIPE_MTE3, PIPE_MTE2, EVENT_ID1);
  // elementwise.py:20
  for (int64_t i = get_block_idx() * 4096; i < a_d0; i += get_block_num() * 4096) {
    // elementwise.py:21
    const int64_t a_1_columns = smaller(4096, a_d0 - i);
    Tile<TileType::Vec, float, 1, 4096, BLayout::RowMajor, 1, DYNAMIC> a_1(a_1_columns);
    TASSIGN(a_1, 0x0 + turn * 0x4000);
    Rectangle<float> a_here(a + i, {1, a_1_columns}, {1});
    wait_flag(PIPE_MTE3, PIPE_MTE2, (event_t)(EVENT_ID0 + turn));
    TLOAD(a_1, a_here);
    const int64_t b_1_columns = smaller(4096, b_d0 - i);
    Tile<TileType::Vec, float, 1, 4096, BLayout::RowMajor, 1, DYNAMIC> b_1(b_1_columns);
    TASSIGN(b_1, 0x8000 + turn * 0x4000);
    Rectangle<float> b_here(b + i, {1, b_1_columns}, {1});
    TLOAD(b_1, b_here);
    set_flag(PIPE_MTE2, PIPE_V, (event_t)(EVENT_ID0 + turn));
    Tile<TileType::Vec, float, 1, 4096, BLayout::RowMajor, 1, DYNAMIC> b_1_2(a_1_columns);
    TASSIGN(b_1_2, 0x8000 + turn * 0x4000);
    wait_flag(PIPE_MTE2, PIPE_V, (event_t)(EVENT_ID0 + turn));
    TADD(a_1, a_1, b_1_2);
    set_flag(PIPE_V, PIPE_MTE3, (event_t)(EVENT_ID0 + turn));
    Rectangle<float> out_here(out + i, {1, a_1_columns}, {1});
    wait_flag(PIPE_V, PIPE_MTE3, (event_t)(EVENT_ID0 + turn));
    TSTORE(out_here, a_1);
    set_flag(PIPE_MTE3, PIPE_MTE2, (event_t)(EVENT_ID0 + turn));
    turn = 1 - turn;
  }
  wait_flag(PIPE_MTE3, PIPE_MTE2, EVENT_ID0);
  wait_flag(PIPE_MTE3, PIPE_MTE2, EVENT_ID1);
#endif
}

#if !defined(__CPU_SIM)
extern "C" void launch_vector_add_incore_0(uint32_t cores, void *stream, void *a, void *b, void *out, int64_t a_d0,
    int64_t b_d0, int64_t out_d0) {
  vector_add_incore_0<<<cores, nullptr, stream>>>(static_cast<float *>(a), static_cast<float *>(b),
      static_cast<float *>(out), a_d0, b_d0, out_d0);
}
#endif

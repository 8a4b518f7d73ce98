// SPDX-License-Identifier: MIT
// Kernel `matmul_incore_0` of matrix.py, written by pto_jit for the cube cores of an Ascend 910B.
#include <cstdint>
#include <pto/pto-inst.hpp>
using namespace pto;

// Rows of global memory: an address, their extents, and how far apart they begin.
template <typename T, Layout L = Layout::ND>
using Rectangle = GlobalTensor<
    T, pto::Shape<1, 1, 1, DYNAMIC, DYNAMIC>,
    pto::Stride<1, 1, 1, L == Layout::ND ? DYNAMIC : 1, L == Layout::ND ? 1 : DYNAMIC>, L>;

AICORE inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
extern "C" __global__ AICORE void matmul_incore_0(__gm__ half *a, __gm__ half *b, __gm__ float *c, int64_t a_d0,
    int64_t b_d1, int64_t a_d1, int64_t b_d0, int64_t c_d0, int64_t c_d1) {
  // The file is compiled for either kind of core; the body belongs to one of them.
#if !defined(__CCE_AICORE__) || defined(__DAV_C220_CUBE__)
  int turn = 0;  // which of two copies of a buffer is used
  int turn_2 = 0;  // which of two copies of a buffer is used
  set_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID0);
  set_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID1);
  set_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID2);
  set_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID3);
  set_flag(PIPE_M, PIPE_MTE1, EVENT_ID0);
  set_flag(PIPE_M, PIPE_MTE1, EVENT_ID1);
  set_flag(PIPE_FIX, PIPE_M, EVENT_ID0);
  set_flag(PIPE_FIX, PIPE_M, EVENT_ID1);
  // matrix.py:15
  for (int64_t i = get_block_idx() * 128; i < a_d0; i += get_block_num() * 128) {
    for (int64_t j = 0; j < b_d1; j += 128) {
      bool t0_is_zero = true;
      wait_flag(PIPE_FIX, PIPE_M, (event_t)(EVENT_ID0 + turn));
      for (int64_t p = 0; p < a_d1; p += 128) {
        const int64_t a_1_part_rows = smaller(128, a_d0 - i);
        const int64_t a_1_part_columns = smaller(128, a_d1 - p);
        Tile<TileType::Mat, half, 128, 128, BLayout::ColMajor, DYNAMIC, DYNAMIC, SLayout::RowMajor, 512> a_1_part(a_1_part_rows, a_1_part_columns);
        TASSIGN(a_1_part, 0x0 + turn_2 * 0x8000);
        Rectangle<half> a_here(a + i * a_d1 + p, {a_1_part_rows, a_1_part_columns}, {a_d1});
        wait_flag(PIPE_MTE1, PIPE_MTE2, (event_t)(EVENT_ID0 + turn_2));
        TLOAD(a_1_part, a_here);
        set_flag(PIPE_MTE2, PIPE_MTE1, (event_t)(EVENT_ID0 + turn_2));
        const int64_t b_1_part_rows = smaller(128, b_d0 - p);
        const int64_t b_1_part_columns = smaller(128, b_d1 - j);
        Tile<TileType::Mat, half, 128, 128, BLayout::ColMajor, DYNAMIC, DYNAMIC, SLayout::RowMajor, 512> b_1_part(b_1_part_rows, b_1_part_columns);
        TASSIGN(b_1_part, 0x10000 + turn_2 * 0x8000);
        Rectangle<half> b_here(b + p * b_d1 + j, {b_1_part_rows, b_1_part_columns}, {b_d1});
        wait_flag(PIPE_MTE1, PIPE_MTE2, (event_t)(EVENT_ID2 + turn_2));
        TLOAD(b_1_part, b_here);
        set_flag(PIPE_MTE2, PIPE_MTE1, (event_t)(EVENT_ID2 + turn_2));
        TileLeftCompact<half, 128, 128, DYNAMIC, DYNAMIC> a_1_part_left(a_1_part_rows, a_1_part_columns);
        TASSIGN(a_1_part_left, 0x0 + turn_2 * 0x8000);
        TileRightCompact<half, 128, 128, DYNAMIC, DYNAMIC> b_1_part_right(a_1_part_columns, b_1_part_columns);
        TASSIGN(b_1_part_right, 0x0 + turn_2 * 0x8000);
        wait_flag(PIPE_MTE2, PIPE_MTE1, (event_t)(EVENT_ID0 + turn_2));
        wait_flag(PIPE_M, PIPE_MTE1, (event_t)(EVENT_ID0 + turn_2));
        TEXTRACT(a_1_part_left, a_1_part, 0, 0);
        set_flag(PIPE_MTE1, PIPE_MTE2, (event_t)(EVENT_ID0 + turn_2));
        wait_flag(PIPE_MTE2, PIPE_MTE1, (event_t)(EVENT_ID2 + turn_2));
        TEXTRACT(b_1_part_right, b_1_part, 0, 0);
        set_flag(PIPE_MTE1, PIPE_M, (event_t)(EVENT_ID0 + turn_2));
        set_flag(PIPE_MTE1, PIPE_MTE2, (event_t)(EVENT_ID2 + turn_2));
        TileAccCompact<float, 128, 128, DYNAMIC, DYNAMIC> t0_2(a_1_part_rows, b_1_part_columns);
        TASSIGN(t0_2, 0x0 + turn * 0x10000);
        wait_flag(PIPE_MTE1, PIPE_M, (event_t)(EVENT_ID0 + turn_2));
        if (t0_is_zero) {
          TMATMUL(t0_2, a_1_part_left, b_1_part_right);
        }
        else {
          TMATMUL_ACC(t0_2, t0_2, a_1_part_left, b_1_part_right);
        }
        set_flag(PIPE_M, PIPE_MTE1, (event_t)(EVENT_ID0 + turn_2));
        t0_is_zero = false;
        turn_2 = 1 - turn_2;
      }
      set_flag(PIPE_M, PIPE_FIX, (event_t)(EVENT_ID0 + turn));
      const int64_t t0_rows = smaller(128, a_d0 - i);
      const int64_t t0_columns = smaller(128, b_d1 - j);
      Rectangle<float> c_here(c + i * c_d1 + j, {t0_rows, t0_columns}, {c_d1});
      TileAccCompact<float, 128, 128, DYNAMIC, DYNAMIC> t0_3(t0_rows, t0_columns);
      TASSIGN(t0_3, 0x0 + turn * 0x10000);
      wait_flag(PIPE_M, PIPE_FIX, (event_t)(EVENT_ID0 + turn));
      TSTORE(c_here, t0_3);
      set_flag(PIPE_FIX, PIPE_M, (event_t)(EVENT_ID0 + turn));
      turn = 1 - turn;
    }
  }
  wait_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID0);
  wait_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID1);
  wait_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID2);
  wait_flag(PIPE_MTE1, PIPE_MTE2, EVENT_ID3);
  wait_flag(PIPE_M, PIPE_MTE1, EVENT_ID0);
  wait_flag(PIPE_M, PIPE_MTE1, EVENT_ID1);
  wait_flag(PIPE_FIX, PIPE_M, EVENT_ID0);
  wait_flag(PIPE_FIX, PIPE_M, EVENT_ID1);
#endif
}

#if !defined(__CPU_SIM)
extern "C" void launch_matmul_incore_0(uint32_t cores, void *stream, void *a, void *b, void *c, int64_t a_d0,
    int64_t b_d1, int64_t a_d1, int64_t b_d0, int64_t c_d0, int64_t c_d1) {
  matmul_incore_0<<<cores, nullptr, stream>>>(static_cast<half *>(a), static_cast<half *>(b), static_cast<float *>(c),
      a_d0, b_d1, a_d1, b_d0, c_d0, c_d1);
}
#endif

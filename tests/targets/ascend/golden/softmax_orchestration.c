// SPDX-License-Identifier: MIT
// Host code of `softmax` of rows.py, written by pto_jit.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <acl/acl.h>

#ifndef VECTOR_CORES  // of an Ascend 910B; some have 48 and 24
#define VECTOR_CORES 40
#define CUBE_CORES 20
#endif

void launch_softmax_incore_0(uint32_t cores, void *stream, void *x, void *y, int64_t r_chunks, int64_t x_d0,
    int64_t y_d0);

static int64_t floor_divide(int64_t a, int64_t b) {
  return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Enqueues the program; tensors are in the memory of the device, strides in elements. The result is null,
// or says why not everything was enqueued.
const char *softmax(aclrtStream stream, void *x, int64_t x_d0, void *y, int64_t y_d0) {
  // rows.py:13
  // rows.py:17
  const int64_t r_extent = larger(x_d0, 0);
  const int64_t t = r_extent + 63;
  const int64_t r_chunks = floor_divide(t, 64);
  if (!(x_d0 <= y_d0)) {
    return "softmax_incore_0: results are not larger than what they are stored into: x_d0 <= y_d0";
  }
  launch_softmax_incore_0(VECTOR_CORES, stream, x, y, r_chunks, x_d0, y_d0);
  return NULL;
}

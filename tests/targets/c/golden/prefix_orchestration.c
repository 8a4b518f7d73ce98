// SPDX-License-Identifier: MIT
// prefix of prefix, written by pto_jit.
#include "prefix.h"
#include "prefix_functions.h"

// What the tasks of prefix share.
struct prefix_frame {
  float *x;
  int64_t x_n0;
  int64_t x_n1;
  float *y;
  int64_t y_n0;
  int64_t y_n1;
  int64_t factor;
};

static int32_t prefix_scale_into(pto_worker *worker, const int64_t *slots) {
  const struct prefix_frame *const frame = (const struct prefix_frame *)(uintptr_t)slots[0];
  float *const x = frame->x;
  const int64_t x_n0 = frame->x_n0;
  const int64_t x_n1 = frame->x_n1;
  const int64_t k = slots[1];
  const double factor = pto_from_bits_f64(frame->factor);
  float *const y = frame->y;
  const int64_t y_n0 = frame->y_n0;
  const int64_t y_n1 = frame->y_n1;
  // task_programs.py:34
  return scale_into(worker, x, x_n0, x_n1, 4 * k, factor, y, y_n0, y_n1);
}

static const int32_t prefix_scale_into_accesses[] = {PTO_READ, PTO_WRITE};
static const pto_task_kind prefix_scale_into_kind = {"scale_into", prefix_scale_into, 256, 2, 2,
    prefix_scale_into_accesses};

static int32_t prefix_add_into(pto_worker *worker, const int64_t *slots) {
  const struct prefix_frame *const frame = (const struct prefix_frame *)(uintptr_t)slots[0];
  const int64_t k_1 = slots[1];
  const int64_t y_n0 = frame->y_n0;
  float *const y = frame->y;
  const int64_t y_n1 = frame->y_n1;
  // task_programs.py:36
  const int64_t t4_2 = 4 * k_1;
  // task_programs.py:37
  const int64_t t6_2 = t4_2 + 4;
  // task_programs.py:37
  if (t6_2 < 0) return pto_fail(worker, 7, t6_2, 0, 0);
  const int64_t n_14 = pto_max(pto_min(4, y_n0 - t6_2), 0);
  float *const y_view_1_2 = y + t6_2 * y_n1;
  if (t4_2 < 0) return pto_fail(worker, 6, t4_2, 0, 0);
  const int64_t n_15 = pto_max(pto_min(4, y_n0 - t4_2), 0);
  float *const y_view_2 = y + t4_2 * y_n1;
  return add_into(worker, y_view_1_2, n_14, y_n1, y_n1, y_n1, y_view_2, n_15, y_n1, y_n1);
}

static const int32_t prefix_add_into_accesses[] = {PTO_READ_WRITE, PTO_READ};
static const pto_task_kind prefix_add_into_kind = {"add_into", prefix_add_into, 0, 2, 2, prefix_add_into_accesses};

static int32_t prefix_tasks(pto_worker *worker, pto_graph *graph, float *x, int64_t x_n0, int64_t x_n1, float *y,
                            int64_t y_n0, int64_t y_n1, int64_t n, double factor) {
  int32_t status;
  struct prefix_frame *const frame = pto_graph_buffer(graph, (int64_t)sizeof *frame);
  if (frame == NULL) return PTO_NO_MEMORY;
  frame->x = x;
  frame->x_n0 = x_n0;
  frame->x_n1 = x_n1;
  int32_t x_tensor;
  if ((status = pto_graph_tensor(graph, x, 4, 2, (const int64_t[]){x_n0, x_n1}, (const int64_t[]){4 * x_n1, 4},
      &x_tensor)) != PTO_OK) return status;
  frame->y = y;
  frame->y_n0 = y_n0;
  frame->y_n1 = y_n1;
  int32_t y_tensor;
  if ((status = pto_graph_tensor(graph, y, 4, 2, (const int64_t[]){y_n0, y_n1}, (const int64_t[]){4 * y_n1, 4},
      &y_tensor)) != PTO_OK) return status;
  frame->factor = pto_bits_f64(factor);
  // task_programs.py:33
  for (int64_t k = 0; k < n; ++k) {
    // task_programs.py:34
    const int64_t t0 = 4 * k;
    const int64_t extent = t0 + 4;
    const int64_t n_2 = pto_max(pto_min(extent, x_n0) - pto_max(t0, 0), 0);
    const int64_t n_3 = n_2 > 0 ? pto_max(t0, 0) : 0;
    const int64_t n_4 = pto_max(pto_min(8, x_n1), 0);
    const int64_t n_5 = pto_max(pto_min(extent, y_n0) - pto_max(t0, 0), 0);
    const int64_t n_6 = n_5 > 0 ? pto_max(t0, 0) : 0;
    const int64_t n_7 = pto_max(pto_min(8, y_n1), 0);
    if ((status = pto_task(graph, &prefix_scale_into_kind, (const int64_t[]){(int64_t)(uintptr_t)frame, k},
        (const int64_t[]){x_tensor, n_3, 0, n_2, n_4, y_tensor, n_6, 0, n_5, n_7})) != PTO_OK) return status;
  }
  // task_programs.py:35
  for (int64_t k_1 = 0; k_1 < (n - 1); ++k_1) {
    // task_programs.py:36
    const int64_t t4 = 4 * k_1;
    // task_programs.py:37
    if (t4 < 0) return pto_fail(worker, 6, t4, 0, 0);
    const int64_t t6 = t4 + 4;
    if (t6 < 0) return pto_fail(worker, 7, t6, 0, 0);
    const int64_t n_10 = pto_max(pto_min(4, pto_max(pto_min(4, y_n0 - t6), 0)), 0);
    const int64_t n_11 = n_10 > 0 ? t6 : 0;
    const int64_t n_12 = pto_max(pto_min(4, pto_max(pto_min(4, y_n0 - t4), 0)), 0);
    const int64_t n_13 = n_12 > 0 ? t4 : 0;
    if ((status = pto_task(graph, &prefix_add_into_kind, (const int64_t[]){(int64_t)(uintptr_t)frame, k_1},
        (const int64_t[]){y_tensor, n_11, 0, n_10, pto_max(y_n1, 0), y_tensor, n_13, 0, n_12,
        pto_max(y_n1, 0)})) != PTO_OK) return status;
  }
  return PTO_OK;
}

int32_t prefix(pto_worker *worker, float *x, int64_t x_n0, int64_t x_n1, float *y, int64_t y_n0, int64_t y_n1,
               int64_t n, double factor) {
  pto_graph *const graph = pto_graph_open(worker, 0);
  if (graph == NULL) return PTO_NO_MEMORY;
  const int32_t status = prefix_tasks(worker, graph, x, x_n0, x_n1, y, y_n0, y_n1, n, factor);
  const int32_t done = pto_graph_close(worker, graph);
  return status == PTO_OK ? done : status;
}

int32_t pto_entry_prefix(pto_worker *worker, const int64_t *arguments, int64_t *results) {
  (void)results;
  return prefix(worker, (float *)(uintptr_t)arguments[0], arguments[1], arguments[2], (float *)(uintptr_t)arguments[5],
      arguments[6], arguments[7], arguments[10], pto_from_bits_f64(arguments[11]));
}

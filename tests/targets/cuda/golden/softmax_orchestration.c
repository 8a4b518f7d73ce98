// SPDX-License-Identifier: MIT
// The host side of softmax, written by pto_jit.
#include "softmax.h"
#include "pto_host.h"

static int32_t softmax_enqueue(pto_worker *worker, float *x, int64_t x_n0, int64_t x_n1, float *y, int64_t y_n0,
                               int64_t y_n1) {
  int32_t status;
  // rows.py:17
  const int64_t r_extent = pto_max(x_n0, 0);
  const int64_t t = r_extent + 63;
  const int64_t r_chunks = pto_floordiv_i64(t, 64);
  // rows.py:16
  const int64_t most = pto_min(x_n1, 8192);
  const bool fits_room = x_n1 <= 1024;
  if (fits_room) {
    // rows.py:17
    {
      int64_t x_words[] = {(int64_t)(uintptr_t)x, x_n0, x_n1, x_n1, 1};
      int64_t y_words[] = {(int64_t)(uintptr_t)y, y_n0, y_n1, y_n1, 1};
      int64_t r_chunks_word = r_chunks;
      int64_t x_d0_word = x_n0;
      int64_t x_d1_word = x_n1;
      if (pto_clash(&(pto_region){x, 4, 2, {x_n0, x_n1}, {4 * x_n1, 4}},
          &(pto_region){y, 4, 2, {y_n0, y_n1}, {4 * y_n1, 4}})) return pto_fail(worker, 1, 0, 0, 0);
      const int64_t r_chunk_trips = pto_trip_count(0, r_chunks, 1);
      const int64_t r_hi = pto_min(64, x_n0);
      const int64_t r_trips = pto_trip_count(0, r_hi, 1);
      if (x_n1 > 1024) return pto_fail(worker, 2, x_n1, 1024, 0);
      if (r_chunk_trips > 0) {
        if ((status = pto_cuda_launch(worker, 0, (const int64_t[]){r_trips, r_chunk_trips, 1},
            (const unsigned[]){64, 1, 1}, 0, (void *[]){x_words, y_words, &r_chunks_word, &x_d0_word, &x_d1_word,
            &worker->record_address})) != PTO_OK) return status;
      }
    }
  } else {
    {
      int64_t x_words_2[] = {(int64_t)(uintptr_t)x, x_n0, x_n1, x_n1, 1};
      int64_t y_words_2[] = {(int64_t)(uintptr_t)y, y_n0, y_n1, y_n1, 1};
      int64_t r_chunks_word_2 = r_chunks;
      int64_t x_d0_word_2 = x_n0;
      int64_t x_d1_word_2 = x_n1;
      int64_t most_word = most;
      if (pto_overlap(&(pto_region){x, 4, 2, {x_n0, x_n1}, {4 * x_n1, 4}},
          &(pto_region){y, 4, 2, {y_n0, y_n1}, {4 * y_n1, 4}})) return pto_fail(worker, 3, 0, 0, 0);
      const int64_t r_1_trips = pto_trip_count(0, r_chunks, 1);
      const int64_t r_hi_1 = pto_min(64, x_n0);
      const int64_t r_2_trips = pto_trip_count(0, r_hi_1, 1);
      if (most > 8192) return pto_fail(worker, 4, most, 8192, 0);
      if (r_1_trips > 0) {
        if ((status = pto_cuda_launch(worker, 1, (const int64_t[]){r_2_trips, r_1_trips, 1},
            (const unsigned[]){256, 1, 1}, 0, (void *[]){x_words_2, y_words_2, &r_chunks_word_2, &x_d0_word_2,
            &x_d1_word_2, &most_word, &worker->record_address})) != PTO_OK) return status;
      }
    }
  }
  return PTO_OK;
}

int32_t softmax(pto_worker *worker, float *x, int64_t x_n0, int64_t x_n1, float *y, int64_t y_n0, int64_t y_n1) {
  return pto_cuda_ended(worker, softmax_enqueue(worker, x, x_n0, x_n1, y, y_n0, y_n1));
}

int32_t softmax_open(pto_worker *worker, const char *directory) {
  int32_t status = pto_cuda_open(worker, 2);
  if (status == PTO_OK) status = pto_cuda_load(worker, 0, directory, "softmax_incore_0", 0);
  if (status == PTO_OK) status = pto_cuda_load(worker, 1, directory, "softmax_incore_0_1", 0);
  if (status != PTO_OK) pto_cuda_close(worker);
  return status;
}

void softmax_close(pto_worker *worker) {
  pto_cuda_close(worker);
}

const char *softmax_failure(int32_t site) {
  static const char *const messages[] = {
      "rows.py:17: LaunchError: PTO-X131: softmax_incore_0: `x` and `y` share memory, and `y` is written; pass tensors that do not overlap",
      "rows.py:17: LaunchError: PTO-X130: softmax_incore_0: a tile has {0} elements along an axis, this program was written for at most {1}; give the extent as a number when it is written",
      "rows.py:17: LaunchError: PTO-X131: softmax_incore_0_1: `x` and `y` share memory, and `y` is written; pass tensors that do not overlap",
      "rows.py:17: LaunchError: PTO-X130: softmax_incore_0_1: a tile has {0} elements along an axis, this program was written for at most {1}; give the extent as a number when it is written",
  };
  return site > 0 && site <= 4 ? messages[site - 1] : NULL;
}

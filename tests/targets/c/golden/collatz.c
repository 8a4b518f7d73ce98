// SPDX-License-Identifier: MIT
// collatz, written by pto_jit.
#include "pto_elements.h"

static int32_t collatz_incore_0(pto_worker *worker, int64_t n, int64_t *result) {
  int64_t n_1 = 0;
  int64_t steps = 0;
  int64_t value = 0;
  // test_sources.py:41
  n_1 = n;
  steps = 0;
  for (;;) {
    if (!(n_1 != 1)) break;
    // test_sources.py:42
    if (pto_mod_i64(n_1, 2) == 0) {
      value = pto_floordiv_i64(n_1, 2);
    } else {
      value = (3 * n_1) + 1;
    }
    // test_sources.py:43
    const int64_t v_5 = steps;
    // test_sources.py:41
    n_1 = value;
    steps = v_5 + 1;
  }
  *result = steps;
  return PTO_OK;
}

static int32_t collatz(pto_worker *worker, int64_t n, int64_t *result) {
  int64_t steps = 0;
  int32_t status;
  // test_sources.py:41
  if ((status = collatz_incore_0(worker, n, &steps)) != PTO_OK) return status;
  const int64_t v = steps;
  // test_sources.py:44
  *result = v;
  return PTO_OK;
}

int32_t pto_entry_collatz(pto_worker *worker, const int64_t *arguments, int64_t *results) {
  int64_t result0;
  const int32_t status = collatz(worker, arguments[0], &result0);
  if (status != PTO_OK) return status;
  results[0] = result0;
  return PTO_OK;
}

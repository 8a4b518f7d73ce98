// SPDX-License-Identifier: MIT
#ifndef PTO_LARGEST_H
#define PTO_LARGEST_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "pto_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

// The program as pto_launch takes it: every argument and result in slots of 64 bits.
int32_t pto_entry_largest(pto_worker *worker, const int64_t *arguments, int64_t *results);

// The same on the worker of a running launch.
int32_t largest(pto_worker *worker, float *x, int64_t x_n0, int64_t x_n1, float *y, int64_t y_n0);

#ifndef PTO_REFUSED
#define PTO_REFUSED
static inline int32_t pto_refused(pto_failure *failure, int32_t site, int64_t number) {
  if (failure != NULL) {
    memset(failure, 0, sizeof *failure);
    failure->status = PTO_FAILED;
    failure->site = site;
    failure->v0 = number;
  }
  return PTO_FAILED;
}
#endif

// Runs largest on the threads of a runtime and waits for it: PTO_OK, or the status that pto_launch gives;
// `failure` (or NULL) then says what failed, and largest_failure where.
// `_n` are extents and `_s` strides, in elements.
static inline int32_t largest_launch(pto_runtime *runtime, const float *x, int64_t x_n0, int64_t x_n1, float *y,
                                     int64_t y_n0, pto_failure *failure) {
  if (x_n0 < 0) return pto_refused(failure, 0, x_n0);
  if (x_n1 < 0) return pto_refused(failure, 1, x_n1);
  if (y_n0 < 0) return pto_refused(failure, 2, y_n0);
  const int64_t arguments[] = {(int64_t)(uintptr_t)x, x_n0, x_n1, 4 * x_n1, 4, (int64_t)(uintptr_t)y, y_n0, 4};
  int64_t results[1] = {0};
  return pto_launch(runtime, pto_entry_largest, arguments, results, NULL, 0, failure);
}

// What is wrong at a site of this program (`failure.site`): the line, the error, and its message, in which
// {0}, {1} and {2} are v0, v1 and v2 of the failure. NULL: a site of the runtime, see pto_status_text.
static inline const char *largest_failure(int32_t site) {
  static const char *const messages[] = {
      "LaunchError: PTO-H203: axis 0 of `x` has the extent {0}; extents are at least 0",
      "LaunchError: PTO-H203: axis 1 of `x` has the extent {0}; extents are at least 0",
      "LaunchError: PTO-H203: axis 0 of `y` has the extent {0}; extents are at least 0",
  };
  return site >= 0 && site < 3 ? messages[site] : NULL;
}

#ifdef __cplusplus
}
#endif

#endif  // PTO_LARGEST_H

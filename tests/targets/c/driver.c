// SPDX-License-Identifier: MIT
// Runs generated programs without Python: reads calls from a file, launches each, writes what they gave to another.
//
// File of calls, 64-bit integers: threads, calls; per call: program, slots, tensors, results; the slots; per tensor: its
// slot, the place of its first element in its bytes, the number of bytes, the bytes (padded to 8); per result: -1 for a
// number, else its rank and the bytes of an element.
// Output per call: status, site, v0, v1, v2; if the status is 0 all tensors' bytes, and per result its slots and bytes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pto_runtime.h"

extern const pto_entry_fn programs[];

static int64_t next(FILE *in) {
  int64_t x = 0;
  if (fread(&x, 8, 1, in) != 1) exit(3);
  return x;
}

static void put(FILE *out, const void *data, int64_t bytes) { fwrite(data, 1, (size_t)bytes, out); }

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
  if (in == NULL || out == NULL) return 2;
  pto_options options;
  pto_options_default(&options);
  options.num_threads = (int32_t)next(in);
  options.cache_bytes = 1 << 20;
  pto_runtime *runtime = NULL;
  if (pto_runtime_create(&options, &runtime) != PTO_OK) return 4;
  const int64_t calls = next(in);
  for (int64_t call = 0; call < calls; ++call) {
    const int64_t program = next(in), slots = next(in), tensors = next(in), results = next(in);
    int64_t *arguments = calloc((size_t)slots + 1, 8), *sizes = calloc((size_t)tensors + 1, 8);
    char **memory = calloc((size_t)tensors + 1, sizeof(char *));
    for (int64_t k = 0; k < slots; ++k) arguments[k] = next(in);
    for (int64_t k = 0; k < tensors; ++k) {
      const int64_t slot = next(in), first = next(in);
      sizes[k] = next(in);
      const size_t padded = (size_t)((sizes[k] + 7) / 8 * 8);
      memory[k] = aligned_alloc(64, (padded + 64) / 64 * 64);
      if (fread(memory[k], 1, padded, in) != padded) return 3;
      arguments[slot] = (int64_t)(uintptr_t)(memory[k] + first);
    }
    int64_t ranks[16], elements[16], values[64] = {0};
    for (int64_t k = 0; k < results; ++k) {
      ranks[k] = next(in);
      elements[k] = ranks[k] < 0 ? 0 : next(in);
    }
    pto_failure failure;
    memset(&failure, 0, sizeof failure);
    const int64_t status = pto_launch(runtime, programs[program], arguments, values, NULL, 0, &failure);
    const int64_t said[5] = {status, failure.site, failure.v0, failure.v1, failure.v2};
    put(out, said, sizeof said);
    for (int64_t k = 0; k < tensors && status == PTO_OK; ++k) put(out, memory[k], sizes[k]);
    for (int64_t k = 0, at = 0; k < results && status == PTO_OK; ++k) {
      if (ranks[k] < 0) {
        put(out, values + at++, 8);
        continue;
      }
      int64_t bytes = elements[k];
      for (int64_t axis = 0; axis < ranks[k]; ++axis) bytes *= values[at + 1 + axis];
      put(out, values + at, 8 * (1 + ranks[k]));
      put(out, (const void *)(uintptr_t)values[at], bytes);
      at += 1 + ranks[k];
    }
    for (int64_t k = 0; k < tensors; ++k) free(memory[k]);
    free(memory);
    free(sizes);
    free(arguments);
  }
  pto_runtime_release(runtime);
  fclose(out);
  return 0;
}

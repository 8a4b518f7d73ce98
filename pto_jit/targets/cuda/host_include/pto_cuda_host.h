// SPDX-License-Identifier: MIT
// What the host code of a CUDA program calls: kernels, memory and failures, over the CUDA driver API.
//
// A program is opened once per context, called any number of times on a stream, and closed:
//
//     pto_worker worker;                       // a context is current on this thread
//     softmax_open(&worker, "build");          // the directory of the .cubin files
//     worker.stream = stream;
//     softmax(&worker, x, rows, columns, ...); // addresses of the device; enqueues, does not wait
//     pto_cuda_finish(&worker);                // waits; PTO_FAILED: worker.site says what went wrong on the device
//     softmax_close(&worker);
//
// A call returns PTO_OK, PTO_FAILED (worker.site and worker.v), PTO_NO_MEMORY or PTO_DRIVER (worker.error).
#ifndef PTO_CUDA_HOST_H
#define PTO_CUDA_HOST_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PTO_OK = 0, PTO_FAILED = 1, PTO_NO_MEMORY = 2, PTO_DRIVER = 3 };

// The first failure of a kernel, as kernels write it.
typedef struct pto_cuda_record {
  int32_t site, claimed;
  int64_t first, second;
} pto_cuda_record;

typedef struct pto_worker {
  CUstream stream;
  int32_t site;    // of a failure: a line of the program's table
  int64_t v[3];    // the numbers of its message
  CUresult error;  // what the driver said
  int32_t kernels;
  CUmodule *modules;
  CUfunction *functions;
  pto_cuda_record *record;  // in memory of the host that kernels can write
  CUdeviceptr record_address;
  CUdeviceptr *live;  // memory of the running call, which a failure gives back
  int64_t live_count, live_room;
} pto_worker;

static inline int32_t pto_cuda_error(pto_worker *w, CUresult error) {
  if (error == CUDA_SUCCESS) return PTO_OK;
  w->error = error;
  return PTO_DRIVER;
}

static inline int32_t pto_fail(pto_worker *w, int32_t site, int64_t v0, int64_t v1, int64_t v2) {
  w->site = site;
  w->v[0] = v0;
  w->v[1] = v1;
  w->v[2] = v2;
  return PTO_FAILED;
}

// Prepares a worker for a program of so many kernels.
static inline int32_t pto_cuda_open(pto_worker *w, int32_t kernels) {
  memset(w, 0, sizeof *w);
  w->modules = (CUmodule *)calloc((size_t)kernels + 1, sizeof(CUmodule));
  w->functions = (CUfunction *)calloc((size_t)kernels + 1, sizeof(CUfunction));
  if (w->modules == NULL || w->functions == NULL) return PTO_NO_MEMORY;
  w->kernels = kernels;
  void *memory = NULL;
  const CUresult made = cuMemHostAlloc(&memory, sizeof(pto_cuda_record), CU_MEMHOSTALLOC_DEVICEMAP);
  if (made != CUDA_SUCCESS) return pto_cuda_error(w, made);
  w->record = (pto_cuda_record *)memory;
  memset(w->record, 0, sizeof *w->record);
  return pto_cuda_error(w, cuMemHostGetDevicePointer(&w->record_address, memory, 0));
}

// Loads kernel k from `directory`/`name`.cubin; `shared`: bytes of shared memory that a launch takes besides the kernel's.
static inline int32_t pto_cuda_load(pto_worker *w, int32_t k, const char *directory, const char *name, int32_t shared) {
  char path[4096];
  if (snprintf(path, sizeof path, "%s/%s.cubin", directory, name) >= (int)sizeof path) return PTO_NO_MEMORY;
  CUresult error = cuModuleLoad(&w->modules[k], path);
  if (error == CUDA_SUCCESS) error = cuModuleGetFunction(&w->functions[k], w->modules[k], name);
  int own = 0;
  if (error == CUDA_SUCCESS) error = cuFuncGetAttribute(&own, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, w->functions[k]);
  if (error == CUDA_SUCCESS && own + shared > 48 * 1024)
    error = cuFuncSetAttribute(w->functions[k], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared);
  return pto_cuda_error(w, error);
}

static inline void pto_cuda_close(pto_worker *w) {
  for (int32_t k = 0; k < w->kernels; ++k)
    if (w->modules[k] != NULL) cuModuleUnload(w->modules[k]);
  if (w->record != NULL) cuMemFreeHost(w->record);
  free(w->modules);
  free(w->functions);
  free(w->live);
  memset(w, 0, sizeof *w);
}

// Waits for what was enqueued; PTO_FAILED when a kernel has recorded a failure, which is then forgotten.
static inline int32_t pto_cuda_finish(pto_worker *w) {
  const int32_t status = pto_cuda_error(w, cuStreamSynchronize(w->stream));
  if (status != PTO_OK || w->record->site == 0) return status;
  const pto_cuda_record found = *w->record;
  w->record->site = 0;
  w->record->claimed = 0;
  return pto_fail(w, found.site, found.first, found.second, 0);
}

// Memory of the device, of a byte at least, in the order of the stream; NULL: there is none.
static inline void *pto_buffer_alloc(pto_worker *w, int64_t bytes) {
  if (w->live_count == w->live_room) {
    const int64_t room = 2 * w->live_room + 16;
    CUdeviceptr *const grown = (CUdeviceptr *)realloc(w->live, (size_t)room * sizeof(CUdeviceptr));
    if (grown == NULL) return NULL;
    w->live = grown;
    w->live_room = room;
  }
  CUdeviceptr memory = 0;
  w->error = cuMemAllocAsync(&memory, (size_t)bytes, w->stream);
  if (w->error != CUDA_SUCCESS) return NULL;
  w->live[w->live_count++] = memory;
  return (void *)(uintptr_t)memory;
}

static inline void pto_buffer_free(pto_worker *w, void *memory) {
  if (memory == NULL) return;
  for (int64_t k = w->live_count; k-- > 0;)
    if (w->live[k] == (CUdeviceptr)(uintptr_t)memory) {
      w->live[k] = w->live[--w->live_count];
      break;
    }
  cuMemFreeAsync((CUdeviceptr)(uintptr_t)memory, w->stream);
}

// The end of a call: what it has not given back are its results, or (after a failure) of no use.
static inline int32_t pto_cuda_ended(pto_worker *w, int32_t status) {
  if (status != PTO_OK)
    while (w->live_count > 0) cuMemFreeAsync(w->live[--w->live_count], w->stream);
  w->live_count = 0;
  return status;
}

// An element of the device, when all earlier work of the stream is done.
static inline int32_t pto_cuda_read(pto_worker *w, void *to, const void *from, size_t bytes) {
  const CUresult error = cuMemcpyDtoHAsync(to, (CUdeviceptr)(uintptr_t)from, bytes, w->stream);
  return pto_cuda_error(w, error != CUDA_SUCCESS ? error : cuStreamSynchronize(w->stream));
}

// `count` elements of 1, 2, 4 or 8 bytes, all with the bits of the one at `element`, which the driver gets by value: a
// graph that captures this has no use for memory of the host later.
static inline int32_t pto_cuda_fill(pto_worker *w, void *to, const void *element, int64_t size, int64_t count) {
  if (count <= 0) return PTO_OK;
  const CUdeviceptr at = (CUdeviceptr)(uintptr_t)to;
  uint64_t bits = 0;
  memcpy(&bits, element, (size_t)size);
  const size_t n = (size_t)count;
  if (size == 1) return pto_cuda_error(w, cuMemsetD8Async(at, (unsigned char)bits, n, w->stream));
  if (size == 2) return pto_cuda_error(w, cuMemsetD16Async(at, (unsigned short)bits, n, w->stream));
  const int halves = size == 8 && (uint32_t)bits == bits >> 32;  // both the same, as in 0
  if (size == 4 || halves) return pto_cuda_error(w, cuMemsetD32Async(at, (unsigned)bits, halves ? 2 * n : n, w->stream));
  const size_t all = (size_t)size * n;
  CUresult error = cuMemsetD32Async(at, (unsigned)bits, 1, w->stream);
  if (error == CUDA_SUCCESS) error = cuMemsetD32Async(at + 4, (unsigned)(bits >> 32), 1, w->stream);
  for (size_t done = (size_t)size, more; done < all && error == CUDA_SUCCESS; done += more) {
    more = done < all - done ? done : all - done;  // twice as much each time: there is no memset of 8 bytes
    error = cuMemcpyDtoDAsync(at + done, at, more, w->stream);
  }
  return pto_cuda_error(w, error);
}

// Enqueues kernel k. Grids count blocks along x, y and z; blocks that the limits of a grid exclude are done by others.
static inline int32_t pto_cuda_launch(pto_worker *w, int32_t k, const int64_t *grid, const unsigned *block,
                                      unsigned shared, void **arguments) {
  unsigned blocks[3];
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t most = axis == 0 ? INT32_MAX : 65535;
    blocks[axis] = (unsigned)(grid[axis] < 1 ? 1 : grid[axis] > most ? most : grid[axis]);
  }
  return pto_cuda_error(w, cuLaunchKernel(w->functions[k], blocks[0], blocks[1], blocks[2], block[0], block[1],
                                          block[2], shared, w->stream, arguments, NULL));
}

#endif  // PTO_CUDA_HOST_H

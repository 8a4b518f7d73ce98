// SPDX-License-Identifier: MIT
// The part of ACL that written host code uses, on the CPU: the memory of the device is that of the process.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void *aclrtStream;
typedef int aclError;
static const aclError ACL_SUCCESS = 0;
typedef enum { ACL_MEM_MALLOC_HUGE_FIRST } aclrtMemMallocPolicy;
typedef enum { ACL_MEMCPY_HOST_TO_DEVICE, ACL_MEMCPY_DEVICE_TO_HOST } aclrtMemcpyKind;

static inline aclError aclrtMalloc(void **out, size_t size, aclrtMemMallocPolicy policy) {
  (void)policy;
  *out = malloc(size);
  if (*out != NULL) memset(*out, 0xff, size);
  return *out != NULL ? ACL_SUCCESS : 1;
}
static inline aclError aclrtFree(void *memory) {
  free(memory);
  return ACL_SUCCESS;
}
static inline aclError aclrtMemsetAsync(void *to, size_t most, int32_t value, size_t size, aclrtStream stream) {
  (void)most, (void)stream;
  memset(to, value, size);
  return ACL_SUCCESS;
}
static inline aclError aclrtMemcpy(void *to, size_t most, const void *from, size_t size, aclrtMemcpyKind kind) {
  (void)most, (void)kind;
  memcpy(to, from, size);
  return ACL_SUCCESS;
}
static inline aclError aclrtSynchronizeStream(aclrtStream stream) {
  (void)stream;
  return ACL_SUCCESS;
}

// SPDX-License-Identifier: MIT
// The part of ACL that written host code uses, on the CPU: the memory of the device is that of the process.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>

using aclrtStream = void *;
using aclError = int;
constexpr aclError ACL_SUCCESS = 0;
enum aclrtMemMallocPolicy { ACL_MEM_MALLOC_HUGE_FIRST };
enum aclrtMemcpyKind { ACL_MEMCPY_HOST_TO_DEVICE, ACL_MEMCPY_DEVICE_TO_HOST };

inline aclError aclrtMalloc(void **out, size_t size, aclrtMemMallocPolicy) {
  *out = std::malloc(size);
  if (*out != nullptr) std::memset(*out, 0xff, size);
  return *out != nullptr ? ACL_SUCCESS : 1;
}
inline aclError aclrtFree(void *memory) {
  std::free(memory);
  return ACL_SUCCESS;
}
inline aclError aclrtMemsetAsync(void *to, size_t, int value, size_t size, aclrtStream) {
  std::memset(to, value, size);
  return ACL_SUCCESS;
}
inline aclError aclrtMemcpy(void *to, size_t, const void *from, size_t size, aclrtMemcpyKind) {
  std::memcpy(to, from, size);
  return ACL_SUCCESS;
}
inline aclError aclrtSynchronizeStream(aclrtStream) { return ACL_SUCCESS; }

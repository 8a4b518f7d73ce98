# SPDX-License-Identifier: MIT
"""Parts of host code that do not depend on the program."""

HELPERS = {
    "floor_divide": "int64_t floor_divide(int64_t a, int64_t b) {\n"
    "  return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));\n}",
    "modulo": "int64_t modulo(int64_t a, int64_t b) {\n"
    "  return b == 0 ? 0 : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);\n}",
    "smaller": "int64_t smaller(int64_t a, int64_t b) { return std::min(a, b); }",
    "larger": "int64_t larger(int64_t a, int64_t b) { return std::max(a, b); }",
}
GIVE = """\
  // Memory that is the caller's from now on.
  void *give(void *memory) {
    for (int k = 0; k < count; ++k) {
      if (taken[k] != memory) continue;
      taken[k] = taken[--count];
      break;
    }
    return memory;
  }
"""
MEMORY = """\
// Memory of the device that lives until what was enqueued is done.
struct Memory {
  aclrtStream stream;
  void *taken[64] = {};
  int count = 0;
  void *take(int64_t size, bool zero) {
    if (count == 64) return nullptr;
    void *out = nullptr;
    const size_t bytes = static_cast<size_t>(std::max<int64_t>(size, 32));
    if (aclrtMalloc(&out, bytes, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) return nullptr;
    taken[count++] = out;
    if (zero && aclrtMemsetAsync(out, bytes, 0, bytes, stream) != ACL_SUCCESS) return nullptr;
    return out;
  }
""" + GIVE + """\
  // What was enqueued has to be done before its memory is given back: null, or that it failed.
  const char *done() {
    return count > 0 && aclrtSynchronizeStream(stream) != ACL_SUCCESS ? "a kernel failed" : nullptr;
  }
  ~Memory() {
    if (count > 0) aclrtSynchronizeStream(stream);
    for (int k = 0; k < count; ++k) aclrtFree(taken[k]);
  }
};"""

RESULT = """\
// A tensor that the program makes: memory of the device, which the caller frees with aclrtFree, and its extents.
struct Result {
  void *data;
  int64_t extents[8];
};"""

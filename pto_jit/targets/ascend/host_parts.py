# SPDX-License-Identifier: MIT
"""Parts of host code that do not depend on the program."""

HELPERS = {
    "floor_divide": "static int64_t floor_divide(int64_t a, int64_t b) {\n"
    "  return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));\n}",
    "modulo": "static int64_t modulo(int64_t a, int64_t b) {\n"
    "  return b == 0 ? 0 : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);\n}",
    "smaller": "static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }",
    "bits_of": "static uint64_t bits_of(double x) {\n"
    "  const union { double x; uint64_t bits; } both = {x};\n  return both.bits;\n}",
    "larger": "static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }",
}
GIVE = """\
// Memory that is the caller's from now on.
static void *give(Memory *memory, void *mine) {
  for (int k = 0; k < memory->count; ++k) {
    if (memory->taken[k] != mine) continue;
    memory->taken[k] = memory->taken[--memory->count];
    break;
  }
  return mine;
}
"""
AGAIN = """\
// Memory of an earlier iteration, whose work is done before what is enqueued now, if it is large enough.
static void *again(Memory *memory, void *mine, int64_t *room, int64_t size, int byte) {
  if (size > *room) return *room = size > 2 * *room ? size : 2 * *room, take(memory, *room, byte);
  const size_t bytes = (size_t)(size > 32 ? size : 32);
  if (byte >= 0 && aclrtMemsetAsync(mine, bytes, byte, bytes, memory->stream) != ACL_SUCCESS) return NULL;
  return mine;
}
"""
MEMORY = """\
// Memory of the device that lives until what was enqueued is done; byte: what it is filled with, if not below 0.
typedef struct {
  aclrtStream stream;
  void *taken[64];
  int count;
} Memory;
static void *take(Memory *memory, int64_t size, int byte) {
  if (memory->count == 64) return NULL;
  void *out = NULL;
  const size_t bytes = (size_t)(size > 32 ? size : 32);
  if (aclrtMalloc(&out, bytes, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) return NULL;
  memory->taken[memory->count++] = out;
  if (byte >= 0 && aclrtMemsetAsync(out, bytes, byte, bytes, memory->stream) != ACL_SUCCESS) return NULL;
  return out;
}
""" + AGAIN + GIVE + """\
// What was enqueued has to be done before its memory is given back; the result is a problem there was, or null.
static const char *release(Memory *memory, const char *problem) {
  const bool failed = memory->count > 0 && aclrtSynchronizeStream(memory->stream) != ACL_SUCCESS;
  for (int k = 0; k < memory->count; ++k) aclrtFree(memory->taken[k]);
  return problem == NULL && failed ? "a kernel failed" : problem;
}"""

RESULT = """\
// A tensor that the program makes: memory of the device, which the caller frees with aclrtFree, and its extents.
typedef struct {
  void *data;
  int64_t extents[8];
} Result;"""

// SPDX-License-Identifier: MIT
// NVRTC for the tests: its "machine code" tells what it was given; a source with BROKEN in it fails.
// With BUILTINS it opens the library of that name when it compiles, as NVRTC does.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char told[4096];
  int broken;
} program;

int nvrtcVersion(int *major, int *minor) { *major = RELEASE; *minor = 0; return 0; }
int nvrtcGetNumSupportedArchs(int *count) { *count = 3; return 0; }
int nvrtcGetSupportedArchs(int *numbers) { numbers[0] = 80; numbers[1] = 90; numbers[2] = 120; return 0; }
int nvrtcCreateProgram(program **made, const char *text, const char *name, int count, const char *const *headers,
                       const char *const *names) {
  program *p = *made = calloc(1, sizeof(program));
  p->broken = strstr(text, "BROKEN") != NULL;
  snprintf(p->told, sizeof p->told, "%s of %d:", name, (int)strlen(text));
  for (int k = 0; k < count; ++k)
    snprintf(p->told + strlen(p->told), sizeof p->told - strlen(p->told), " %s/%d", names[k], (int)strlen(headers[k]));
  return 0;
}
int nvrtcCompileProgram(program *p, int count, const char *const *options) {
  for (int k = 0; k < count; ++k) snprintf(p->told + strlen(p->told), sizeof p->told - strlen(p->told), " %s", options[k]);
#ifdef BUILTINS
  if (dlopen(BUILTINS, RTLD_NOW) == NULL) return 7;
#endif
  return p->broken ? 6 : 0;
}
static const char *log_of(const program *p) { return p->broken ? "kernel.cu(1): error: it is BROKEN" : ""; }
int nvrtcGetProgramLogSize(program *p, size_t *size) { *size = strlen(log_of(p)) + 1; return 0; }
int nvrtcGetProgramLog(program *p, char *to) { strcpy(to, log_of(p)); return 0; }
int nvrtcGetCUBINSize(program *p, size_t *size) { *size = strlen(p->told); return 0; }
int nvrtcGetCUBIN(program *p, char *to) { memcpy(to, p->told, strlen(p->told)); return 0; }
int nvrtcDestroyProgram(program **p) { free(*p); *p = NULL; return 0; }

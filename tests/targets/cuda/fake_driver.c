/* SPDX-License-Identifier: MIT */
/* A CUDA driver whose device is this process: memory is host memory, a module is a path of an emulated kernel. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef const char *(*launch_function)(const unsigned *, size_t, unsigned, void **);
static void *current;
static char contexts[4]; /* of the devices */
static int devices = 1;
static const char *failing = ""; /* the function that fails */
static const void *placed; /* memory of the second device */
static int statically; /* bytes of shared memory that each kernel has of its own */
static char record[8192];
#define CALL(name) if (strcmp(failing, name) == 0) return 719

static void note(const char *what, long long value) {
    snprintf(record + strlen(record), sizeof record - strlen(record), "%s %lld;", what, value);
}
const char *fake_record(void) { return record; }
void fake_forget(void) { record[0] = 0; current = NULL; devices = 1; failing = ""; placed = NULL; statically = 0; }
void fake_static(int bytes) { statically = bytes; }
void fake_fail(const char *name) { static char kept[64]; strcpy(kept, name); failing = kept; }
void fake_two_devices(const void *of_the_second) { devices = 2; placed = of_the_second; }
static int ordinal(const void *context) {
    return (const char *)context >= contexts && (const char *)context < contexts + 4 ? (int)((const char *)context - contexts) : 0;
}

int cuInit(unsigned flags) { CALL("cuInit"); return strcmp(failing, "no device") == 0 ? 100 : flags != 0; }
int cuGetErrorString(int status, const char **text) { *text = status == 700 ? "an illegal address" : "fake"; return 0; }
int cuGetErrorName(int status, const char **text) { *text = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "FAKE"; return 0; }
int cuDeviceGetCount(int *count) { CALL("cuDeviceGetCount"); *count = devices; return 0; }
int cuDeviceGet(int *device, int ordinal) { CALL("cuDeviceGet"); *device = 40 + ordinal; return ordinal >= devices; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    CALL("cuDevicePrimaryCtxRetain");
    *context = contexts + device - 40;
    return device < 40 || device >= 40 + devices;
}
int cuCtxGetDevice(int *device) { CALL("cuCtxGetDevice"); *device = 40 + ordinal(current); return current == NULL; }
int cuPointerGetAttribute(int *value, int which, uint64_t address) {
    CALL("cuPointerGetAttribute");
    *value = placed != NULL && (uint64_t)(uintptr_t)placed == address;
    return which != 9;
}
int cuDeviceGetAttribute(int *value, int which, int device) {
    CALL("cuDeviceGetAttribute");
    *value = which == 75 ? 9 : which == 76 ? 0 : which == 97 ? 232448 : -1;
    return device < 40 || *value < 0;
}
int cuCtxGetCurrent(void **context) { CALL("cuCtxGetCurrent"); *context = current; return 0; }
int cuCtxSetCurrent(void *context) { CALL("cuCtxSetCurrent"); current = context; note("context", ordinal(context) + 1); return 0; }
int cuMemHostAlloc(void **memory, size_t size, unsigned flags) {
    CALL("cuMemHostAlloc");
    *memory = malloc(size);
    note("pinned", flags);
    return current == NULL;
}
int cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned flags) {
    CALL("cuMemHostGetDevicePointer_v2");
    *address = (uint64_t)(uintptr_t)memory;
    return flags != 0;
}
int cuModuleLoadData(void **module, const void *image) { CALL("cuModuleLoadData"); *module = dlopen(image, RTLD_NOW); return *module == NULL; }
int cuModuleLoad(void **module, const char *path) { return cuModuleLoadData(module, path); }
int cuModuleUnload(void *module) { return dlclose(module); }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    CALL("cuModuleGetFunction");
    note(name, 1);
    *function = dlsym(module, "pto_emulated_launch");
    return *function == NULL;
}
int cuFuncGetAttribute(int *value, int which, void *function) {
    CALL("cuFuncGetAttribute");
    *value = statically;
    return function == NULL || which != 1;
}
int cuFuncSetAttribute(void *function, int which, int value) { CALL("cuFuncSetAttribute"); note("shared", value); return function == NULL || which != 8; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
    CALL("cuLaunchKernel");
    const unsigned sizes[6] = {gx, gy, gz, bx, by, bz};
    note("of device", ordinal(current));
    note("launch on stream", (long long)(intptr_t)stream);
    if (extra != NULL || current == NULL) return 1;
    if ((intptr_t)stream == 666) return 700;
    const char *fault = ((launch_function)function)(sizes, shared, 0, parameters);
    if (fault != NULL) fprintf(stderr, "%s\n", fault);
    return fault != NULL ? 719 : 0;
}
int cuMemAllocAsync(uint64_t *address, size_t size, void *stream) {
    CALL("cuMemAllocAsync");
    *address = (uint64_t)(uintptr_t)malloc(size);
    note("allocate", (long long)size);
    return current == NULL;
}
int cuMemFreeAsync(uint64_t address, void *stream) { free((void *)(uintptr_t)address); note("free", 1); return 0; }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
    CALL("cuMemcpyDtoHAsync_v2");
    memcpy(to, (void *)(uintptr_t)from, size);
    return 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
    CALL("cuMemcpyHtoDAsync_v2");
    memcpy((void *)(uintptr_t)to, from, size);
    return 0;
}
int cuMemFreeHost(void *memory) { free(memory); return 0; }
int cuMemsetD8Async(uint64_t to, unsigned char bits, size_t n, void *stream) { memset((void *)(uintptr_t)to, bits, n); return 0; }
int cuMemsetD16Async(uint64_t to, unsigned short bits, size_t n, void *stream) {
    for (size_t k = 0; k < n; ++k) ((unsigned short *)(uintptr_t)to)[k] = bits;
    return 0;
}
int cuMemsetD32Async(uint64_t to, unsigned bits, size_t n, void *stream) {
    for (size_t k = 0; k < n; ++k) ((unsigned *)(uintptr_t)to)[k] = bits;
    return 0;
}
int cuMemsetD2D32Async(uint64_t to, size_t pitch, unsigned bits, size_t width, size_t height, void *stream) {
    for (size_t row = 0; row < height; ++row)
        for (size_t k = 0; k < width; ++k) ((unsigned *)(uintptr_t)(to + row * pitch))[k] = bits;
    return 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    note("copy", (long long)size);
    return 0;
}
int cuEventCreate(void **event, unsigned flags) { *event = calloc(1, sizeof(double)); return flags != 0; }
int cuEventRecord(void *event, void *stream) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    *(double *)event = 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
    return stream != NULL;
}
int cuEventSynchronize(void *event) { return event == NULL; }
int cuEventElapsedTime(float *milliseconds, void *first, void *last) {
    *milliseconds = (float)(*(double *)last - *(double *)first);
    return 0;
}
int cuEventDestroy_v2(void *event) { free(event); return 0; }
int cuStreamSynchronize(void *stream) { CALL("cuStreamSynchronize"); note("synchronise", (long long)(intptr_t)stream); return 0; }

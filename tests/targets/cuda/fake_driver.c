/* SPDX-License-Identifier: MIT */
/* A CUDA driver whose device is this process: memory is host memory, a module is a path of an emulated kernel. What the
   documentation calls an error is one here, too: calls before cuInit or without a context, grids, blocks and shared
   memory beyond the limits of a device of capability 9.0, memory that is freed twice or was never allocated. New memory
   is not zero. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef const char *(*launch_function)(const unsigned *, size_t, unsigned, void **);
struct CUfunc_st {
    launch_function launch;
    int dynamic; /* bytes of shared memory that a launch may ask for */
};
enum { PLAIN = 48 * 1024, MOST = 227 * 1024, DEVICES = 4, MAPPED_ALIGNMENT = 512 };
static CUcontext current;
static char contexts[DEVICES];
static int initialised, devices = 1, version = 13000;
static const char *failing = ""; /* the function that fails */
static const void *placed;       /* memory of the second device */
static int statically;           /* bytes of shared memory that each kernel has of its own */
static char record[8192];
static CUdeviceptr live[1024]; /* memory that is allocated */
static int live_count;
static char pool; /* the one that was made */

#define CALL(name)                                              \
    do {                                                        \
        if (strcmp(failing, name) == 0) return CUDA_ERROR_LAUNCH_FAILED; \
        if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;    \
    } while (0)
#define IN_CONTEXT(name)                                     \
    do {                                                     \
        CALL(name);                                          \
        if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT; \
    } while (0)
#define REQUIRE(condition) \
    if (!(condition)) return CUDA_ERROR_INVALID_VALUE

static void note(const char *what, long long value) {
    snprintf(record + strlen(record), sizeof record - strlen(record), "%s %lld;", what, value);
}
const char *fake_record(void) { return record; }
void fake_forget(void) {
    record[0] = 0;
    current = NULL;
    devices = 1;
    version = 13000;
    failing = "";
    placed = NULL;
    statically = 0;
}
void fake_version(int is) { version = is; }
void fake_static(int bytes) { statically = bytes; }
void fake_fail(const char *name) {
    static char kept[64];
    strcpy(kept, name);
    failing = kept;
}
void fake_two_devices(const void *of_the_second) {
    devices = 2;
    placed = of_the_second;
}
static int ordinal(CUcontext context) {
    const char *at = (const char *)context;
    return at >= contexts && at < contexts + DEVICES ? (int)(at - contexts) : 0;
}
static long long number(CUstream stream) { return (long long)(intptr_t)stream; }
static void *host(CUdeviceptr address) { return (void *)(uintptr_t)address; }

CUresult cuInit(unsigned flags) {
    initialised = 1;
    CALL("cuInit");
    if (strcmp(failing, "no device") == 0) return CUDA_ERROR_NO_DEVICE;
    REQUIRE(flags == 0);
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult status, const char **text) {
    *text = status == CUDA_ERROR_ILLEGAL_ADDRESS ? "an illegal address" : "fake";
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult status, const char **text) {
    *text = status == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "FAKE";
    return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *found) {
    CALL("cuDriverGetVersion");
    *found = version;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    CALL("cuDeviceGetCount");
    *count = devices;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int which) {
    CALL("cuDeviceGet");
    *device = 40 + which;
    return which >= 0 && which < devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
static int known(CUdevice device) { return device >= 40 && device < 40 + devices; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CALL("cuDevicePrimaryCtxRetain");
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    *context = (CUcontext)(void *)(contexts + device - 40);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) {
    IN_CONTEXT("cuCtxGetDevice");
    *device = 40 + ordinal(current);
    return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute which, CUdeviceptr address) {
    CALL("cuPointerGetAttribute");
    REQUIRE(which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL && address >= 4096); /* else no memory of any device */
    *(int *)value = placed != NULL && host(address) == placed;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
    CALL("cuDeviceGetAttribute");
    if (!known(device)) return CUDA_ERROR_INVALID_DEVICE;
    *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR             ? 9
             : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR           ? 0
             : which == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? MOST
                                                                               : -1;
    REQUIRE(*value >= 0);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    CALL("cuCtxGetCurrent");
    *context = current;
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    CALL("cuCtxSetCurrent");
    current = context;
    note("context", ordinal(context) + 1);
    return CUDA_SUCCESS;
}

/* -- kernels ---------------------------------------------------------------------------------------------------- */

static CUresult opened(CUmodule *module, const char *path) {
    *module = (CUmodule)dlopen(path, RTLD_NOW);
    return *module == NULL ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    IN_CONTEXT("cuModuleLoadData");
    return opened(module, image);
}
CUresult cuModuleLoad(CUmodule *module, const char *path) {
    IN_CONTEXT("cuModuleLoad");
    return opened(module, path);
}
CUresult cuModuleUnload(CUmodule module) {
    IN_CONTEXT("cuModuleUnload");
    return dlclose(module) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    IN_CONTEXT("cuModuleGetFunction");
    note(name, 1);
    void *const found = dlsym(module, "pto_emulated_launch");
    if (found == NULL) return CUDA_ERROR_NOT_FOUND;
    *function = malloc(sizeof **function);
    memcpy(&(*function)->launch, &found, sizeof found);
    (*function)->dynamic = PLAIN - statically;
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
    IN_CONTEXT("cuFuncGetAttribute");
    REQUIRE(function != NULL && which == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    *value = statically;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
    IN_CONTEXT("cuFuncSetAttribute");
    REQUIRE(function != NULL && which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0);
    REQUIRE(value + statically <= MOST);
    note("shared", value);
    function->dynamic = value;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra) {
    IN_CONTEXT("cuLaunchKernel");
    const unsigned sizes[6] = {gx, gy, gz, bx, by, bz};
    note("of device", ordinal(current));
    note("launch on stream", number(stream));
    REQUIRE(function != NULL && extra == NULL);
    for (int k = 0; k < 6; ++k) REQUIRE(sizes[k] > 0);
    REQUIRE(gx <= INT32_MAX && gy <= 65535 && gz <= 65535);
    REQUIRE(bx <= 1024 && by <= 1024 && bz <= 64 && bx * by * bz <= 1024);
    REQUIRE(shared <= (unsigned)function->dynamic);
    if (number(stream) == 666) return CUDA_ERROR_ILLEGAL_ADDRESS;
    const char *fault = function->launch(sizes, shared, 0, parameters);
    if (fault != NULL) fprintf(stderr, "%s\n", fault);
    return fault != NULL ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

/* -- memory ----------------------------------------------------------------------------------------------------- */

CUresult cuMemHostAlloc(void **memory, size_t size, unsigned flags) {
    IN_CONTEXT("cuMemHostAlloc");
    REQUIRE(size > 0);
    *memory = malloc(size);
    memset(*memory, 0xA5, size);
    note("pinned", flags);
    return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *memory) {
    IN_CONTEXT("cuMemFreeHost");
    free(memory);
    return CUDA_SUCCESS;
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr *address, void *memory, unsigned flags) {
    IN_CONTEXT("cuMemHostGetDevicePointer_v2");
    REQUIRE(flags == 0);
    *address = (uintptr_t)memory;
    return CUDA_SUCCESS;
}
CUresult cuMemPoolCreate(CUmemoryPool *made, const CUmemPoolProps *wanted) {
    CALL("cuMemPoolCreate");
    static const CUmemPoolProps unset;
    REQUIRE(wanted->allocType == CU_MEM_ALLOCATION_TYPE_PINNED && wanted->handleTypes == CU_MEM_HANDLE_TYPE_NONE);
    REQUIRE(wanted->location.type == CU_MEM_LOCATION_TYPE_DEVICE && wanted->location.id < devices);
    REQUIRE(wanted->win32SecurityAttributes == NULL && wanted->maxSize == 0 && wanted->usage == 0);
    REQUIRE(memcmp(wanted->reserved, unset.reserved, sizeof unset.reserved) == 0);
    *made = (CUmemoryPool)(void *)&pool;
    note("pool of device", wanted->location.id);
    return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool given, CUmemPool_attribute which, void *value) {
    CALL("cuMemPoolSetAttribute");
    REQUIRE((void *)given == &pool && which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
    uint64_t kept;
    memcpy(&kept, value, sizeof kept);
    note("kept", (long long)kept);
    return CUDA_SUCCESS;
}
static CUresult allocated(CUdeviceptr *address, size_t size) {
    REQUIRE(size > 0 && live_count < (int)(sizeof live / sizeof *live));
    void *const memory = aligned_alloc(MAPPED_ALIGNMENT, (size + MAPPED_ALIGNMENT - 1) / MAPPED_ALIGNMENT * MAPPED_ALIGNMENT);
    memset(memory, 0xA5, size);
    live[live_count++] = *address = (uintptr_t)memory;
    note("allocate", (long long)size);
    return CUDA_SUCCESS;
}
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
    IN_CONTEXT("cuMemAllocAsync");
    (void)stream;
    return allocated(address, size);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool from, CUstream stream) {
    IN_CONTEXT("cuMemAllocFromPoolAsync");
    (void)stream;
    REQUIRE((void *)from == &pool);
    return allocated(address, size);
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    IN_CONTEXT("cuMemFreeAsync");
    for (int k = 0; k < live_count; ++k)
        if (live[k] == address) {
            live[k] = live[--live_count];
            free(host(address));
            note("free", 1);
            return CUDA_SUCCESS;
        }
    (void)stream;
    note("freed what is not allocated", 1);
    return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    IN_CONTEXT("cuMemcpyDtoHAsync_v2");
    (void)stream;
    memcpy(to, host(from), size);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    IN_CONTEXT("cuMemcpyHtoDAsync_v2");
    (void)stream;
    memcpy(host(to), from, size);
    note("upload", (long long)size);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    IN_CONTEXT("cuMemcpyDtoDAsync_v2");
    (void)stream;
    REQUIRE(to + size <= from || from + size <= to);
    memcpy(host(to), host(from), size);
    note("copy", (long long)size);
    return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char bits, size_t n, CUstream stream) {
    IN_CONTEXT("cuMemsetD8Async");
    (void)stream;
    memset(host(to), bits, n);
    return CUDA_SUCCESS;
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short bits, size_t n, CUstream stream) {
    IN_CONTEXT("cuMemsetD16Async");
    (void)stream;
    REQUIRE(to % 2 == 0);
    for (size_t k = 0; k < n; ++k) ((unsigned short *)host(to))[k] = bits;
    return CUDA_SUCCESS;
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned bits, size_t n, CUstream stream) {
    IN_CONTEXT("cuMemsetD32Async");
    (void)stream;
    REQUIRE(to % 4 == 0);
    for (size_t k = 0; k < n; ++k) ((unsigned *)host(to))[k] = bits;
    return CUDA_SUCCESS;
}

/* -- streams and events ----------------------------------------------------------------------------------------- */

struct CUevent_st {
    double milliseconds;
};
CUresult cuStreamSynchronize(CUstream stream) {
    IN_CONTEXT("cuStreamSynchronize");
    note("synchronise", number(stream));
    return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    IN_CONTEXT("cuStreamWaitEvent");
    REQUIRE(event != NULL && flags == 0);
    note("waits", number(stream));
    return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *event, unsigned flags) {
    IN_CONTEXT("cuEventCreate");
    REQUIRE(flags == 0 || flags == CU_EVENT_DISABLE_TIMING);
    *event = calloc(1, sizeof **event);
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
    IN_CONTEXT("cuEventRecord");
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    event->milliseconds = 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
    note("event on stream", number(stream));
    return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent event) {
    IN_CONTEXT("cuEventSynchronize");
    REQUIRE(event != NULL);
    return CUDA_SUCCESS;
}
#undef cuEventElapsedTime /* NVIDIA's header has a later one */
CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent last) {
    IN_CONTEXT("cuEventElapsedTime");
    *milliseconds = (float)(last->milliseconds - first->milliseconds);
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
    IN_CONTEXT("cuEventDestroy_v2");
    free(event);
    return CUDA_SUCCESS;
}

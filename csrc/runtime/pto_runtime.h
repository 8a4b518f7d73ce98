/* SPDX-License-Identifier: MIT */
/*
 * pto_runtime: worker threads, scratch memory, recycled buffers and the launch of compiled kernels.
 *
 * This header is the manual and the only declaration; what is not in it is not interface.  The library is C11 with
 * threads and nothing else.  It has no globals, reads no environment, writes no output and never aborts: what can go
 * wrong is a status code or a failure record.
 *
 * The objects
 *   pto_runtime   a pool of worker threads, its recycled buffers and its options.  Counted references; any number of
 *                 runtimes may live in one process, and they share nothing.
 *   pto_worker    one thread's view of a running launch: its scratch stack and its failure record.  A worker is handed
 *                 to generated code as the first argument and must not be kept after the function returned.
 *   a launch      one call of pto_launch.  Any number of threads may launch on one runtime at the same time: each runs
 *                 its own work on its own thread, and idle pool threads help whoever has work.
 *   a buffer      memory for a temporary or a result.  It outlives the runtime it came from if need be.
 *
 * Who may call what
 *   "any thread"    no restriction, also concurrently.
 *   "the worker"    generated code, on the thread that was given this pto_worker.
 *
 * fork: a forked child may keep using every runtime it inherited; worker threads are created again when a parallel loop
 * needs them.  What the parent's other threads had locked or in use at that moment is given up by the child (leaked),
 * never waited for.  Forking *inside* a launch whose parallel loop is running is not supported in the child.
 *
 * The part between the two cffi marks is read by the Python binding as it stands: plain declarations only.
 */
#ifndef PTO_RUNTIME_H
#define PTO_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cffi: begin */

/* ---- status codes and failures -------------------------------------------------------------------------------- */

/* What functions return.  Generated code returns PTO_OK or any other value; only zero and non-zero are told apart. */
enum pto_status {
    PTO_OK = 0,
    PTO_FAILED = 1,        /* a kernel failed; the pto_failure says where */
    PTO_NO_MEMORY = 2,     /* the allocator returned NULL */
    PTO_BAD_ARGUMENT = 3   /* an option or argument outside its documented range */
};

/* Sites of the runtime itself; sites of generated code are >= 0 and mean whatever the caller's table says. */
enum pto_site {
    PTO_SITE_NO_MEMORY = -1,    /* v0 = the bytes that could not be had */
    PTO_SITE_UNRECORDED = -2,   /* generated code returned v0 without calling pto_fail */
    PTO_SITE_BAD_GRAIN = -3     /* pto_parallel_for with grain v0 < 1 */
};

#define PTO_FAILURE_MORE 10

typedef struct pto_failure {
    int32_t status;   /* PTO_OK when nothing failed */
    int32_t site;
    int64_t v0;
    int64_t v1;
    int64_t v2;
    int32_t count;    /* further values: 0 but for races, see pto_race_access */
    int64_t more[PTO_FAILURE_MORE];
} pto_failure;

/* A short English text for a status code; never NULL; static storage.  Any thread. */
const char *pto_status_text(int32_t status);

/* ---- options --------------------------------------------------------------------------------------------------- */

typedef struct pto_runtime pto_runtime;
typedef struct pto_worker pto_worker;

/*
 * A host allocator.  `allocate` returns `bytes` bytes aligned to `alignment` (a power of two, at least 64) or NULL;
 * `release` gets back the pointer with the same two numbers.  Both may be called from any thread, also at the same
 * time, and must not call back into the runtime.
 */
typedef void *(*pto_allocate_fn)(void *context, size_t bytes, size_t alignment);
typedef void (*pto_release_fn)(void *context, void *memory, size_t bytes, size_t alignment);

/*
 * What pl.print in a kernel calls: `user` is the value given to pto_launch, `site` and `values` are generated code's.
 * May be called from any worker thread of the runtime, several at a time.  `values` is valid during the call only.
 */
typedef void (*pto_print_fn)(void *context, void *user, int32_t site, const int64_t *values, int32_t count);

typedef struct pto_options {
    int32_t num_threads;       /* threads of one launch, the calling one included: 1..1024; 0 = the process's CPUs */
    int32_t spin_microseconds; /* how long an idle thread looks for work before it sleeps: 0..1000000; after the first
                                  few it offers its CPU to other threads meanwhile */
    int64_t cache_bytes;       /* freed buffers kept for reuse, together at most this many bytes; >= 0 */
    int64_t scratch_bytes;     /* scratch memory a worker keeps between launches; >= 0 */
    pto_allocate_fn allocate;  /* NULL (then `release` too): the C library, and huge pages on Linux from 2 MiB on */
    pto_release_fn release;
    void *allocator_context;
    pto_print_fn print;        /* NULL: prints are dropped */
    void *print_context;
} pto_options;

/* Fills in the defaults: all CPUs, 50 us, an eighth of physical memory but at most 4 GiB, 64 MiB.  Any thread. */
void pto_options_default(pto_options *options);

/* ---- runtimes -------------------------------------------------------------------------------------------------- */

/*
 * Creates a runtime with one reference, owned by the caller, in *out.  `options` is copied; NULL means the defaults.
 * No thread is started before a parallel loop needs it.
 * Errors: PTO_BAD_ARGUMENT, PTO_NO_MEMORY (*out is NULL then).  Any thread; does not block.
 */
int32_t pto_runtime_create(const pto_options *options, pto_runtime **out);

/* Adds a reference.  Any thread that owns one.  Does not block. */
void pto_runtime_retain(pto_runtime *rt);

/*
 * Gives a reference back; the last one shuts the runtime down and frees it.  Buffers still alive stay valid: the memory
 * pool goes with the last of them.  NULL is allowed.  Any thread but a worker of `rt`, in any order with other releases
 * (finalizers run as they like).  The last release blocks until the worker threads have ended; no launch of `rt` may be
 * running then.
 */
void pto_runtime_release(pto_runtime *rt);

/*
 * Ends the worker threads and waits for them.  The runtime stays usable: the next parallel loop that needs them starts
 * them again.  A launch running meanwhile finishes on its own thread.  Any thread but a worker of `rt`.  Blocks.
 */
void pto_runtime_shutdown(pto_runtime *rt);

/* Gives cached buffers and the scratch memory of idle callers back to the allocator.  Any thread.  Does not block. */
void pto_runtime_trim(pto_runtime *rt);

/* The resolved option.  Any thread. */
int32_t pto_runtime_num_threads(const pto_runtime *rt);

typedef struct pto_statistics {
    int32_t threads_started;   /* worker threads alive (the callers' own threads are not counted) */
    int32_t threads_parked;    /* of these, asleep */
    int64_t buffers_live;      /* buffers allocated and not freed */
    int64_t bytes_live;        /* their memory, size classes and headers included */
    int64_t buffers_cached;
    int64_t bytes_cached;
} pto_statistics;

/* A snapshot, exact when nothing runs.  Any thread.  Does not block. */
void pto_runtime_statistics(pto_runtime *rt, pto_statistics *out);

/* ---- launches --------------------------------------------------------------------------------------------------- */

/* A compiled kernel.  `args` and `results` are flat arrays of 64-bit slots whose meaning is the caller's. */
typedef int32_t (*pto_entry_fn)(pto_worker *w, const int64_t *args, int64_t *results);

/*
 * Runs `entry` on the calling thread, with the runtime's threads as helpers, and waits for it.
 *   user         any value; the print callback gets it back
 *   max_threads  threads that may work on this launch, the calling one included; 0 = all of the runtime's; 1 = the
 *                calling thread alone
 *   failure      filled in when the result is not PTO_OK; may be NULL
 * Returns PTO_OK, PTO_FAILED (or whatever non-zero status the entry returned), PTO_NO_MEMORY.
 * After a failure the scratch memory and the buffers of the launch are freed and the contents of `results` mean
 * nothing; after success the buffers it did not free belong to the caller, who finds them in `results`.
 * Any thread, also from a print callback.  Blocks until the kernel has finished.
 */
int32_t pto_launch(pto_runtime *rt, pto_entry_fn entry, const int64_t *args, int64_t *results, void *user,
                   int32_t max_threads, pto_failure *failure);

/* ---- what generated code calls -------------------------------------------------------------------------------- */

/* One piece of a parallel loop: does [begin, end) and returns 0, or the non-zero status of a failure. */
typedef int32_t (*pto_range_fn)(pto_worker *w, void *ctx, int64_t begin, int64_t end);

/*
 * Runs `fn` over [begin, end) cut at begin + k * grain: exactly one call per piece, pieces in any order and on any
 * thread of the runtime, so that what a piece computes never depends on the number of threads.  `ctx` is shared by all.
 * Each thread starts with a contiguous share, the same one for the same (begin, end, grain), and takes from the others
 * when it is done.  A call inside a piece, or with nothing to divide, runs in order on the calling thread.
 * Returns 0, or the status of the failing piece with the lowest begin, whose failure record becomes the caller's;
 * pieces after a failing one are not started, pieces before it are (so the result is that of a serial run).
 * Errors: grain < 1 (PTO_SITE_BAD_GRAIN).  The worker.  Blocks until all pieces are done.
 */
int32_t pto_parallel_for(pto_worker *w, pto_range_fn fn, void *ctx, int64_t begin, int64_t end, int64_t grain);

/*
 * `bytes` bytes aligned to 64 on the worker's own stack of scratch memory; contents undefined; valid until popped.
 * NULL when there is no memory (or bytes < 0): the failure is recorded, the caller returns a non-zero status.
 * The worker.  Does not block.
 */
void *pto_scratch_push(pto_worker *w, int64_t bytes);

/* Releases `block` and everything pushed after it.  NULL is a no-op.  The worker, in the same piece as the push. */
void pto_scratch_pop(pto_worker *w, void *block);

/*
 * `bytes` bytes aligned to 64, contents undefined, from the recycled memory of the runtime.  The launch owns the buffer
 * until it is freed or the launch has succeeded.  NULL when there is no memory (or bytes < 0): recorded as above.
 * The worker.  Holds a lock for a short time.
 */
void *pto_buffer_alloc(pto_worker *w, int64_t bytes);

/*
 * Gives a buffer back.  `w` may be NULL (a result that is no longer needed): then any thread, at any time, also after
 * the runtime was released.  p == NULL is a no-op.  Holds a lock for a short time.
 */
void pto_buffer_free(pto_worker *w, void *p);

/* Records a failure in the worker, replacing an earlier one, and returns PTO_FAILED.  The worker.  Does not block. */
int32_t pto_fail(pto_worker *w, int32_t site, int64_t v0, int64_t v1, int64_t v2);

/* ---- race checking: what code compiled for debugging calls ------------------------------------------------------ */

/* What an access does to memory.  Atomic updates go with each other, not with reads and writes of other iterations. */
enum pto_access {
    PTO_ACCESS_READ = 0,
    PTO_ACCESS_WRITE = 1,
    PTO_ACCESS_ATOMIC = 2
};

/*
 * Begins a loop whose iterations are promised to be independent, and which therefore runs in order on this worker while
 * its accesses are compared: pto_race_iteration at the start of every iteration, pto_race_leave at the end.  Loops nest;
 * parallel loops inside run inline.  `site` stands for the loop in failure records.  A failing launch or piece needs
 * no pto_race_leave.
 * Errors: PTO_NO_MEMORY (recorded).  The worker.  Does not block.
 */
int32_t pto_race_enter(pto_worker *w, int32_t site);

/* Whether the innermost checked loop is the one with that site: 1 or 0.  The worker. */
int32_t pto_race_inside(const pto_worker *w, int32_t site);

/* The innermost loop begins the iteration with that value of its variable; values come in the loop's order. */
void pto_race_iteration(pto_worker *w, int64_t value, int64_t step);

/* Ends the innermost loop and forgets what its iterations touched.  The worker.  Does not block. */
void pto_race_leave(pto_worker *w);

/*
 * The current iteration of every checked loop around accesses a rectangle of elements of `size` bytes (1, 2, 4 or 8)
 * from `address` on; `shape` has `rank` extents and then `rank` strides in bytes (rank 0: one element, NULL).
 * Returns 0, also outside of checked loops; or PTO_FAILED with the failure recorded when another iteration of a loop
 * (the outermost such loop) touched one of the elements and at least one of the two accesses writes, or one is an atomic
 * update and the other is none:
 *   site = `site`, v0 = the loop variable now, v1 = that of the other (earliest) iteration, v2 = the address of the first
 *   such element in row-major order, more[0] = the loop's site, more[1] = the other access's site, count = 2.
 * Sites are below 2^24 - 1.  Errors: PTO_NO_MEMORY (recorded).  The worker.  Does not block.
 */
int32_t pto_race_access(pto_worker *w, int32_t site, int32_t kind, const void *address, int64_t size, int32_t rank,
                        const int64_t *shape);

/*
 * After pto_race_access failed: appends the indices of the element in the tensor at `base` with `rank` extents and then
 * `rank` strides in `shape` to the record (count = 2 + rank).  Appends nothing when the rank is above
 * PTO_FAILURE_MORE - 2 or the tensor's axes overlap so that the element has no single place.
 */
void pto_race_element(pto_worker *w, const void *base, int32_t rank, const int64_t *shape);

/* These bytes are new memory: what was noted about them was about something else.  The worker. */
void pto_race_forget(pto_worker *w, const void *address, int64_t bytes);

/* ---- printing, and who runs ------------------------------------------------------------------------------------- */

/* Hands `n` values to the print callback.  The worker.  Blocks as long as the callback does. */
void pto_print(pto_worker *w, int32_t site, const int64_t *values, int32_t n);

/* 0 for the thread that launched, 1 .. num_threads-1 for pool threads.  The worker. */
int32_t pto_worker_index(const pto_worker *w);

/* ---- for loaders of generated code ----------------------------------------------------------------------------- */

typedef struct pto_symbol {
    const char *name;
    void *address;
} pto_symbol;

/* Every function of this header by name: a constant table, its length in *count.  Any thread. */
const pto_symbol *pto_symbols(int32_t *count);

/* cffi: end */

#ifdef __cplusplus
}
#endif

#endif

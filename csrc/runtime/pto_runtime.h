/* SPDX-License-Identifier: MIT */
/*
 * pto_runtime: worker threads, scratch memory, recycled buffers and the launch of compiled kernels.
 *
 * This header is the manual and the only declaration; what is not in it is not interface.  The library is C11 with
 * threads and nothing else.  It has no globals, reads no environment, writes nothing but the dumps it is asked for and
 * never aborts: what can go wrong is a status code or a failure record.
 *
 * The objects
 *   pto_runtime   a pool of worker threads, its recycled buffers and its options.  Counted references; any number of
 *                 runtimes may live in one process, and they share nothing.
 *   pto_worker    one thread's view of a running launch: its scratch stack and its failure record.  A worker is handed
 *                 to generated code as the first argument and must not be kept after the function returned.
 *   a launch      one call of pto_launch.  Any number of threads may launch on one runtime at the same time: each runs
 *                 its own work on its own thread, and idle pool threads help whoever has work.
 *   pto_graph     tasks with the regions they read and write, run in the order that these demand.
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
    PTO_BAD_ARGUMENT = 3,  /* an option or argument outside its documented range */
    PTO_CANCELLED = 4,     /* pto_graph_cancel was called */
    PTO_NOT_RUN = 5,       /* a recorded graph does not run the task that was to be waited for */
    PTO_NO_FILE = 6        /* a file could not be written */
};

/* Sites of the runtime itself; sites of generated code are >= 0 and mean whatever the caller's table says. */
enum pto_site {
    PTO_SITE_NO_MEMORY = -1,    /* v0 = the bytes that could not be had */
    PTO_SITE_UNRECORDED = -2,   /* generated code returned v0 without calling pto_fail */
    PTO_SITE_BAD_GRAIN = -3,    /* pto_parallel_for with grain v0 < 1 */
    PTO_SITE_BAD_TASK = -4,     /* a task could not be submitted: v0 is the status */
    PTO_SITE_CANCELLED = -5     /* a graph was cancelled */
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
    int64_t task;            /* 1 + the number of the failed task of a graph; 0: it was not a task */
    struct pto_graph *graph; /* the live graph of that task, for whoever gets this record to destroy; NULL: none */
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

/* Threads that pto_parallel_for would use at most if this worker called it now: 1 inside a piece.  The worker. */
int32_t pto_parallel_width(const pto_worker *w);

/*
 * 1 inside a piece of a loop of which other threads may run other pieces now, and inside a task; 0 elsewhere, also in a
 * loop that runs in order on the calling thread.  The same as long as a piece, a task or an entry runs.  The worker.
 */
int32_t pto_in_piece(const pto_worker *w);

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

/* A matrix in memory; strides in bytes.  `form` stands for the way of packing it: any value, the same for the same way. */
typedef struct pto_matrix {
    const void *data;
    int64_t rows;
    int64_t columns;
    int64_t row_stride;
    int64_t column_stride;
    const void *form;
} pto_matrix;

/*
 * The bytes from `low` to before `high` do not change while the launch runs, so that packed copies of matrices in them
 * may be kept until it ends.  A launch remembers 32 ranges; of others nothing is kept.
 * The worker that launched, before anything runs in parallel.  Does not block.
 */
void pto_fixed(pto_worker *w, const void *low, const void *high);

/*
 * The packed copy of a matrix, when the launch has one.  Otherwise NULL, and *room is either NULL: pack it elsewhere (the
 * matrix may change, it was not met before, there is no memory, or another thread packs it now); or where a pointer to
 * `bytes` bytes is, aligned to 64: the caller packs it into these, calls pto_kept_done, and others find it.
 * Copies are given back at the end of the launch.  The worker.  Does not block.
 */
void *pto_kept_find(pto_worker *w, const pto_matrix *m, int64_t bytes, void **room);

/* What pto_kept_find gave as *room has been packed.  The worker that packed it. */
void pto_kept_done(void *room);

/*
 * Copies a region of `rank` axes with elements of `size` bytes: `numbers` are its extents (one below 1: nothing is
 * copied), the strides of `to` and those of `from`, in bytes.  They do not overlap.  Any thread.  Does not block.
 */
void pto_copy(int64_t rank, void *to, const void *from, int64_t size, const int64_t *numbers);

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

/* ---- task graphs ------------------------------------------------------------------------------------------------ */

/*
 * A graph is a serial program of tasks that is run in parallel.  Each task says which regions of which tensors it reads
 * and writes; the order of submission is the meaning.  Two tasks are ordered when some byte is written by one and
 * accessed by the other - read after write, write after read, write after write - and free to run at the same time
 * otherwise.  An edge a -> b is made when some element
 *     was last written by a before b reads it, or before b writes it and nobody read it in between, or
 *     was read by a since it was last written, and b writes it.
 * The accesses of one task count in turn, a read before a write of the same region.
 * Regions are boxes of a strided tensor; they share an element when they share an address, whatever tensor they were
 * named through, so aliasing arguments and reused memory are seen.  This is exact: boxes of views of one array are
 * compared as boxes, others (a reshaped array, another pitch, steps) by their address sets.  Between such others an
 * edge to a task whose elements were all written again in between may be kept as well; it orders nothing new.
 *
 * There are no limits on tasks, accesses, slots, tensors or fan-out but memory, and that at most 4,294,967,294 tasks of
 * one graph can be unfinished.
 *
 *   a recorded graph   pto_graph_create, tasks, then pto_graph_execute (or _run in a launch), any number of times.  It
 *                      can be looked at, dumped and traced.
 *   a live graph       pto_graph_open in a launch, tasks, pto_graph_close.  A task runs as soon as it may, while others
 *                      are still submitted.  At most `window` tasks are unfinished at a time: the submitting thread
 *                      then runs tasks itself until half are done, so any number of tasks goes through bounded memory
 *                      and nothing can deadlock.
 *
 * Failures: when a task returns non-zero, tasks submitted before it still run and tasks after it do not, so the failure
 * that is reported is the one that a serial run would have met first.
 *
 * One thread at a time builds, runs or looks at a graph; any number of graphs can be in use at once.  Tasks run on the
 * threads of the launch; a parallel loop inside a task runs on the task's thread.
 *
 * fork: a graph that nobody was building or running can be used in the child.
 *
 * Generated code: register tensors with pto_graph_tensor before the loops, keep one array of regions per call site, and
 * call pto_task with a constant pto_task_kind.  A slot can be a pointer to what all tasks share (a frame with the
 * tensors' addresses and strides), so that a task carries only what differs: loop variables and scalars.
 */
typedef struct pto_graph pto_graph;

/* The body of a task; `slots` are the ones that were submitted.  Returns 0 or the non-zero status of a failure. */
typedef int32_t (*pto_task_fn)(pto_worker *w, const int64_t *slots);

enum pto_task_access { PTO_READ = 1, PTO_WRITE = 2, PTO_READ_WRITE = 3 };

/* What the tasks of one call site have in common.  Must stay as it is as long as a graph has tasks of it. */
typedef struct pto_task_kind {
    const char *name;
    pto_task_fn function; /* NULL: nothing to do */
    int64_t buffer_bytes; /* for the dump: of the tiles it works with */
    int32_t num_slots;
    int32_t num_accesses;
    const int32_t *accesses; /* pto_task_access, num_accesses of them */
} pto_task_kind;

/* Creates an empty recorded graph; it keeps a reference to `rt`.  PTO_NO_MEMORY.  Any thread. */
int32_t pto_graph_create(pto_runtime *rt, pto_graph **out);

/* Frees a graph; not while it runs.  NULL is allowed.  Any thread. */
void pto_graph_destroy(pto_graph *graph);

/*
 * Creates a live graph of the calling worker's launch.  `window`: 1 and up; 0 means 32,768, or fewer when one thread runs
 * everything.  NULL when there is no memory (recorded in the worker).  The worker, which then is the one that builds,
 * waits and closes.
 */
pto_graph *pto_graph_open(pto_worker *w, int64_t window);

/*
 * Waits for all tasks of a live graph.  Returns PTO_OK and frees the graph, or the status of the failure, which is
 * recorded in the worker and owns the graph from then on (pto_failure.graph).  Also after a call has failed: whoever
 * opened a graph closes it.  The worker.  Blocks; runs tasks meanwhile.
 */
int32_t pto_graph_close(pto_worker *w, pto_graph *graph);

/*
 * Makes a tensor known: `rank` extents and strides (in bytes, any sign, also 0 where an extent is 1) and the address of
 * element (0, ..., 0).  The same description gives the same number.  The memory is not touched.
 * Errors: PTO_BAD_ARGUMENT (element_bytes < 1, rank < 0, a negative extent, or an address range that overflows),
 * PTO_NO_MEMORY.  The builder.
 */
int32_t pto_graph_tensor(pto_graph *graph, const void *base, int64_t element_bytes, int32_t rank,
                         const int64_t *extents, const int64_t *strides, int32_t *tensor);

/* `bytes` bytes aligned to 64 that live as long as the graph; NULL: no memory.  The builder. */
void *pto_graph_buffer(pto_graph *graph, int64_t bytes);

/*
 * Submits a task.  `slots`: kind->num_slots values, copied.  `regions`: for each of the accesses of the kind in turn, the
 * number of a tensor of rank r, r offsets and r extents, in elements; a region without elements is not an access.
 * Errors: PTO_BAD_ARGUMENT (a region outside its tensor, a number that is not a tensor's, an access that is none),
 * PTO_NO_MEMORY; live graphs: PTO_FAILED when a task has failed and PTO_CANCELLED.  After an error no more tasks are
 * accepted.  The builder.
 * Blocks when the window of a live graph is full.
 */
int32_t pto_task(pto_graph *graph, const pto_task_kind *kind, const int64_t *slots, const int64_t *regions);

/*
 * The same in steps, one task at a time: its number (from 0), or minus a status.  `name` must live as long as the graph.
 * `row` and `col` are for tensors of rank 2; rank 1 takes row 0 of 1 row; the _box calls take any rank.
 * Errors of each step: as pto_task, and PTO_BAD_ARGUMENT for a second task before the first is submitted (one that
 * pto_task submits meanwhile is told by pto_task_submit) and for a number that is not that of the begun task.  After an
 * error of a step no more tasks are accepted, the begun one included: without one of its regions it would run too early.
 * A graph with a begun task does not run; closing it is PTO_BAD_ARGUMENT.  The builder.
 */
int64_t pto_task_alloc(pto_graph *graph, const char *name, pto_task_fn function, int64_t buffer_bytes,
                       const int64_t *slots, int32_t num_slots);
int32_t pto_task_add_input(pto_graph *graph, int64_t task, int32_t tensor, int64_t row, int64_t col, int64_t rows,
                           int64_t cols);
/* As pto_task_add_input, for a region that the task writes; one that it reads too is given to both. */
int32_t pto_task_add_output(pto_graph *graph, int64_t task, int32_t tensor, int64_t row, int64_t col, int64_t rows,
                            int64_t cols);
/* As pto_task_add_input; the offsets and extents of a box of any rank. */
int32_t pto_task_add_input_box(pto_graph *graph, int64_t task, int32_t tensor, const int64_t *offsets,
                               const int64_t *extents);
/* As pto_task_add_output; the offsets and extents of a box of any rank. */
int32_t pto_task_add_output_box(pto_graph *graph, int64_t task, int32_t tensor, const int64_t *offsets,
                                const int64_t *extents);
/* Submits the task that pto_task_alloc began. */
int32_t pto_task_submit(pto_graph *graph, int64_t task);

/* Waits for the submitted tasks of a live graph; PTO_OK, or the failure's status.  The builder.  Runs tasks meanwhile. */
int32_t pto_graph_wait(pto_graph *graph);

/*
 * Before the builder itself reads or writes a region (`access`; `region` as for pto_task): waits for the tasks that a
 * task with that access would be ordered after.  A recorded graph does not run: PTO_NOT_RUN when there is such a task.
 * Errors: as pto_task.  The builder.  Runs tasks meanwhile.
 */
int32_t pto_graph_wait_region(pto_graph *graph, int32_t access, const int64_t *region);

/*
 * Runs a recorded graph as a launch of its own and waits for it.  `user`, `max_threads` and `failure` are those of
 * pto_launch; failure->task says which task failed.  `trace` other than 0 keeps when and where each task ran.  PTO_OK, PTO_FAILED (or what the task returned), PTO_CANCELLED, PTO_NO_MEMORY; PTO_BAD_ARGUMENT for a graph that
 * is live or that failed to build.  Any thread.  Blocks.
 */
int32_t pto_graph_execute(pto_graph *graph, void *user, int32_t max_threads, int32_t trace, pto_failure *failure);

/* Runs a recorded graph inside a launch: as pto_graph_execute, the failure is recorded in the worker.  The worker. */
int32_t pto_graph_run(pto_worker *w, pto_graph *graph, int32_t trace);

/*
 * Lets the tasks that have not begun be passed over: the wait, the run or the close ends soon with PTO_CANCELLED.  A
 * recorded graph that does not run is not affected.  Any thread, as long as the graph lives.  Does not block.
 */
void pto_graph_cancel(pto_graph *graph);

typedef struct pto_graph_facts {
    int64_t tasks; /* submitted */
    int64_t edges;
    int64_t ready;         /* tasks without predecessors */
    int64_t bytes;         /* memory of the graph, without what pto_graph_buffer gave */
    int64_t critical_path; /* tasks on the longest path */
    int64_t max_width;     /* most tasks on one level; a task's level is the longest path to it */
} pto_graph_facts;

/* What a recorded graph is like; of a live one tasks, edges and bytes, the rest is 0.  PTO_NO_MEMORY.  The builder. */
int32_t pto_graph_measure(pto_graph *graph, pto_graph_facts *out);

typedef struct pto_task_facts {
    const pto_task_kind *kind;
    const int64_t *slots;
    int64_t fanin;
    int64_t fanout;
} pto_task_facts;

/*
 * A task of a recorded graph, or the failed one of a live graph (fanin and fanout are 0 then).  PTO_BAD_ARGUMENT: no
 * such task.  The builder.
 */
int32_t pto_graph_task(pto_graph *graph, int64_t task, pto_task_facts *out);

/* The numbers of the tasks that wait for `task`, ascending; `out` has room for its fanout.  As pto_graph_task. */
int32_t pto_graph_successors(pto_graph *graph, int64_t task, int64_t *out);

/*
 * Access `index` of a task: the tensor, and its offsets and extents (room for the tensor's rank each, NULL: not
 * wanted).  *tensor is -1 for a region without elements.  As pto_graph_task.
 */
int32_t pto_graph_region(pto_graph *graph, int64_t task, int32_t index, int32_t *tensor, int64_t *offsets,
                         int64_t *extents);

/* The description of a tensor; extents and strides have room for its rank.  NULL: not wanted.  PTO_BAD_ARGUMENT. */
int32_t pto_graph_tensor_facts(pto_graph *graph, int32_t tensor, int64_t *base, int64_t *element_bytes, int32_t *rank,
                               int64_t *extents, int64_t *strides);

typedef struct pto_trace_event {
    int64_t begin_ns; /* on a monotonic clock; 0: did not run */
    int64_t end_ns;
    int32_t worker;
    int32_t padding;
} pto_trace_event;

/* The events of the last traced run by task, their number in *count; valid until the next run.  The builder. */
const pto_trace_event *pto_graph_trace(pto_graph *graph, int64_t *count);

/*
 * The dump as text into `text` (at most `capacity` bytes, no final 0).  Returns the length of the whole dump, so a first
 * call with capacity 0 asks for it; negative: minus a status.  A recorded graph.  The builder.
 */
int64_t pto_graph_dump(pto_graph *graph, char *text, int64_t capacity);

/* The dump as a file.  PTO_NO_FILE when it cannot be written, PTO_NO_MEMORY.  As pto_graph_dump. */
int32_t pto_runtime_dump(pto_graph *graph, const char *path);

/* The dump on the standard output. */
int32_t pto_runtime_dump_stdout(pto_graph *graph);

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

/* SPDX-License-Identifier: MIT */
/* The shapes behind the handles of pto_runtime.h, and which file looks after which. */
#ifndef PTO_INTERNAL_H
#define PTO_INTERNAL_H

#include "platform.h"
#include "pto_runtime.h"

#include <pthread.h>

/* ---- memory from the host ---- */

typedef struct pto_allocator {
    pto_allocate_fn allocate;
    pto_release_fn release;
    void *context;
} pto_allocator;

static inline void *pto__allocate(const pto_allocator *a, size_t bytes) {
    return a->allocate(a->context, bytes, PTO_CACHE_LINE);
}

static inline void pto__release(const pto_allocator *a, void *memory, size_t bytes) {
    a->release(a->context, memory, bytes, PTO_CACHE_LINE);
}

/* ---- buffers.c: recycled memory ---- */

typedef struct pto_block pto_block;
typedef struct pto_pool pto_pool;

struct pto_launch_state;

pto_pool *pto__pool_create(const pto_allocator *allocator, int64_t cache_bytes); /* NULL: no memory */
void pto__pool_close(pto_pool *pool); /* drops the cache; the pool itself goes with its last buffer */
void pto__pool_trim(pto_pool *pool);
void pto__pool_statistics(pto_pool *pool, pto_statistics *out);
void *pto__pool_take(pto_pool *pool, struct pto_launch_state *owner, size_t bytes); /* NULL: no memory */
void pto__pool_disown(pto_pool *pool, struct pto_launch_state *owner); /* the launch succeeded: its buffers live on */
void pto__pool_reclaim(pto_pool *pool, struct pto_launch_state *owner); /* the launch failed: its buffers are freed */

/* ---- scratch.c: a stack of 64-byte aligned blocks per worker ---- */

typedef struct pto_chunk pto_chunk;

typedef struct pto_scratch {
    pto_chunk *current; /* the chunk that has the top of the stack; NULL before the first push */
    size_t total;       /* bytes in all chunks */
} pto_scratch;

typedef struct pto_scratch_mark {
    pto_chunk *chunk;
    size_t top;
} pto_scratch_mark;

pto_scratch_mark pto__scratch_mark(const pto_scratch *s);
void pto__scratch_reset(pto_scratch *s, pto_scratch_mark mark);
bool pto__scratch_in_use(const pto_scratch *s);
void pto__scratch_trim(pto_scratch *s, const pto_allocator *a, size_t keep); /* only when nothing is pushed */

/* ---- race.c, race_memory.c: checking loops whose iterations are promised to be independent ---- */

typedef struct pto_race pto_race;

/* ---- kept.c: packed matrices that a launch keeps ---- */

#define PTO_FIXED_RANGES 32u

typedef struct pto_kept_table pto_kept_table;

typedef struct pto_kept {
    pto_kept_table *table; /* made at the first use, kept for the next launch */
    uint32_t num_fixed;
    struct {
        uintptr_t low, high;
    } fixed[PTO_FIXED_RANGES]; /* memory that does not change in this launch */
} pto_kept;

void pto__kept_clear(pto_kept *kept); /* the launch has ended */
void pto__kept_destroy(pto_kept *kept, const pto_allocator *a);

/* ---- launches and workers ---- */

typedef struct pto_launch_state {
    pto_runtime *rt;
    void *user;
    int32_t max_threads;
    pto_block *buffers; /* what the launch owns; the pool's lock guards the list */
    pto_kept kept;
} pto_launch_state;

struct pto_worker {
    pto_runtime *rt;
    pto_launch_state *launch; /* what is being run; a helper has the launch of the job it helps */
    int32_t index;
    bool in_parallel; /* inside a piece: further parallel loops run inline */
    pto_failure failure;
    pto_scratch scratch;
    pto_race *race; /* the checked loops around; NULL outside of them */
    /* callers' workers only */
    pto_launch_state own;
    pto_worker *next_free;
};

/* ---- pool.c: parallel loops ---- */

/* One thread's share of a job: piece numbers [low, high) not yet started, in one word. */
typedef struct pto_share {
    _Alignas(PTO_CACHE_LINE) _Atomic(uint64_t) range; /* low in the lower half, high in the upper */
    atomic_uint owned;                                /* 1 once a thread has made this share its own */
} pto_share;

#define PTO_JOB_OPEN 0x80000000u

/* What a thread without work does for a crew: true when it did something. */
typedef bool (*pto_crew_fn)(pto_worker *w, void *ctx);

/*
 * A parallel loop in progress.  Slots live as long as the runtime, so a thread that comes late finds a closed slot or
 * another job, never freed memory.
 */
typedef struct pto_job {
    _Alignas(PTO_CACHE_LINE) atomic_uint state; /* PTO_JOB_OPEN | number of helpers inside */
    pto_gate done;                              /* where the caller sleeps for the last helper */
    /* written by the caller before `state` is opened */
    pto_share *shares; /* num_threads of them, made at the first use of the slot */
    pto_crew_fn crew; /* NULL: a loop; else what helpers do instead, with `ctx` */
    pto_range_fn fn;
    void *ctx;
    pto_launch_state *launch;
    int64_t begin;
    int64_t end;
    uint64_t grain;
    uint64_t pieces;          /* fn calls */
    uint64_t pieces_per_unit; /* a share counts units; more than one piece only beyond 2^31 pieces */
    unsigned threads;         /* shares in use */
    /* failure */
    _Alignas(PTO_CACHE_LINE) _Atomic(uint64_t) failed_piece; /* the lowest so far; UINT64_MAX: none */
    pto_lock failure_lock;
    pto_failure failure; /* under the lock; read by the caller when all helpers have left */
    int32_t failure_status;
} pto_job;

#define PTO_JOB_SLOTS 64u

typedef struct pto_thread {
    pthread_t handle;
    pto_worker *worker;
} pto_thread;

struct pto_runtime {
    pto_options options;
    pto_allocator allocator;
    _Atomic(int64_t) references;
    pto_fork_guard fork_guard;
    pto_pool *pool;

    /* callers' workers that are not in use: one in `hot_caller`, the rest in a list */
    _Alignas(PTO_CACHE_LINE) _Atomic(pto_worker *) hot_caller;
    pto_lock callers_lock;
    pto_worker *free_callers; /* under callers_lock */

    /* parallel loops */
    _Alignas(PTO_CACHE_LINE) _Atomic(uint64_t) used_jobs; /* slots taken by a caller */
    _Alignas(PTO_CACHE_LINE) _Atomic(uint64_t) open_jobs; /* slots that may have work left for a helper */
    _Alignas(PTO_CACHE_LINE) pto_gate work;               /* where idle threads sleep */
    pto_job *jobs;                                        /* PTO_JOB_SLOTS */

    /* threads 1 .. num_threads-1 */
    _Alignas(PTO_CACHE_LINE) atomic_int threads_started; /* threads[0 .. this) are alive */
    atomic_bool stopping;
    pto_lock threads_lock; /* starting and ending threads */
    pto_thread *threads;   /* num_threads - 1 */
};

void pto__after_fork(pto_runtime *rt);

static inline void pto__check_fork(pto_runtime *rt) {
    if (pto__forked(&rt->fork_guard)) {
        pto__after_fork(rt);
    }
}

int32_t pto__jobs_create(pto_runtime *rt);
void pto__jobs_destroy(pto_runtime *rt);
void pto__jobs_after_fork(pto_runtime *rt);
void pto__threads_start(pto_runtime *rt, int32_t wanted); /* as many as the system gives */
void pto__threads_stop(pto_runtime *rt);

/* Idle threads call `crew` until it is closed, up to threads - 1 at a time; a slot, or -1 when none is free. */
int32_t pto__crew_open(pto_worker *w, pto_crew_fn crew, void *ctx, int32_t threads);
void pto__crew_call(pto_runtime *rt);                /* there is something to do: wakes a thread if one sleeps */
void pto__crew_close(pto_runtime *rt, int32_t slot); /* waits until no thread is inside */

pto_worker *pto__worker_create(pto_runtime *rt, int32_t index);
void pto__worker_destroy(pto_worker *w);

void pto__race_reset(pto_worker *w); /* leaves all checked loops: what ran failed */

void pto__failure_drop(pto_failure *failure); /* frees the graph it may own */
void pto__record(pto_worker *w, int32_t status, int32_t site, int64_t v0, int64_t v1, int64_t v2);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * Worker threads and parallel loops.
 *
 * A parallel loop takes one of the runtime's job slots, divides its pieces into one contiguous share per thread, opens
 * the slot and starts on the first share.  Threads without work look at the open slots, enter one, make a share their
 * own (thread i share i if it is free, so that the same loop touches the same memory on the same core every time) and,
 * when it is empty, take the upper half of what another share has left.  When nothing is left to start, the caller
 * closes the slot, waits for the helpers inside, and reads the result.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "internal.h"

#include <signal.h>
#include <string.h>

#define WAKES_BY_CALLER 4u

/* ---- shares: a range of unit numbers in one atomic word ---- */

static inline uint64_t pack(uint64_t low, uint64_t high) { return low | high << 32; }
static inline uint64_t low_of(uint64_t range) { return range & 0xffffffffu; }
static inline uint64_t high_of(uint64_t range) { return range >> 32; }

/*
 * The word is the whole state of a share, so a compare-and-swap that succeeds is right whatever happened in between.
 * Memory orders: claiming a unit needs no ordering with other units' work (pieces are independent, and what the caller
 * wrote before the loop was published by opening the slot), so relaxed would do; acq_rel makes the transfer of a stolen
 * range through the thief's own share (store in `run_shares`, claims here) an ordinary hand-over.
 */
static bool claim_lowest(pto_share *share, uint64_t *unit) {
    uint64_t range = atomic_load_explicit(&share->range, memory_order_acquire);
    while (low_of(range) < high_of(range)) {
        if (atomic_compare_exchange_weak_explicit(&share->range, &range, pack(low_of(range) + 1, high_of(range)),
                                                  memory_order_acq_rel, memory_order_acquire)) {
            *unit = low_of(range);
            return true;
        }
    }
    return false;
}

static bool take_upper_half(pto_share *share, uint64_t *low, uint64_t *high) {
    uint64_t range = atomic_load_explicit(&share->range, memory_order_acquire);
    while (low_of(range) < high_of(range)) {
        uint64_t middle = low_of(range) + (high_of(range) - low_of(range)) / 2;
        if (atomic_compare_exchange_weak_explicit(&share->range, &range, pack(low_of(range), middle),
                                                  memory_order_acq_rel, memory_order_acquire)) {
            *low = middle;
            *high = high_of(range);
            return true;
        }
    }
    return false;
}

/* ---- running pieces ---- */

static void note_failure(pto_worker *w, pto_job *job, uint64_t piece, int32_t status) {
    if (w->failure.status == PTO_OK) {
        pto__record(w, status, PTO_SITE_UNRECORDED, status, 0, 0);
    }
    pto__lock(&job->failure_lock);
    /* relaxed load: only changed under the lock.  relaxed store: read without the lock as a hint that stops later
     * pieces; the caller's final read is ordered by the helpers' leaving. */
    if (piece < atomic_load_explicit(&job->failed_piece, memory_order_relaxed)) {
        atomic_store_explicit(&job->failed_piece, piece, memory_order_relaxed);
        pto__failure_drop(&job->failure);
        job->failure = w->failure;
        job->failure_status = status;
    } else {
        pto__failure_drop(&w->failure);
    }
    pto__unlock(&job->failure_lock);
    w->failure.status = PTO_OK;
    pto__race_reset(w); /* loops that the piece was in; around a piece of a job there are none */
}

static void run_unit(pto_worker *w, pto_job *job, uint64_t unit) {
    uint64_t piece = unit * job->pieces_per_unit;
    uint64_t end_piece = job->pieces - piece < job->pieces_per_unit ? job->pieces : piece + job->pieces_per_unit;
    for (; piece < end_piece; piece++) {
        /* relaxed: a hint (see note_failure); a piece before the lowest failing one is always run */
        if (PTO_UNLIKELY(piece > atomic_load_explicit(&job->failed_piece, memory_order_relaxed))) {
            return;
        }
        /* unsigned: end - begin may not fit a signed number */
        uint64_t from = (uint64_t)job->begin + piece * job->grain;
        uint64_t left = (uint64_t)job->end - from;
        uint64_t to = left < job->grain ? (uint64_t)job->end : from + job->grain;
        int32_t status = job->fn(w, job->ctx, (int64_t)from, (int64_t)to);
        if (PTO_UNLIKELY(status != 0)) {
            note_failure(w, job, piece, status);
        }
    }
}

/* Works on the job as the owner of share `own` until nothing is left to start. */
static void run_shares(pto_worker *w, pto_job *job, unsigned own) {
    pto_share *mine = &job->shares[own];
    uint64_t unit;
    for (;;) {
        while (claim_lowest(mine, &unit)) {
            run_unit(w, job, unit);
        }
        bool found = false;
        for (unsigned step = 1; step < job->threads && !found; step++) {
            unsigned other = own + step < job->threads ? own + step : own + step - job->threads;
            uint64_t low, high;
            if (take_upper_half(&job->shares[other], &low, &high)) {
                found = true;
                if (high - low > 1) {
                    /* release: pairs with the acquire loads of whoever takes from this share.  Only the owner fills
                     * an empty share, so a plain store loses nothing. */
                    atomic_store_explicit(&mine->range, pack(low + 1, high), memory_order_release);
                }
                run_unit(w, job, low);
            }
        }
        if (!found) {
            return;
        }
    }
}

/* ---- helpers ---- */

static bool own_a_share(pto_job *job, unsigned preferred, unsigned *own) {
    for (unsigned i = 0; i < job->threads; i++) {
        unsigned share = preferred + i < job->threads ? preferred + i : (preferred + i) % job->threads;
        /* relaxed: decides who, carries no data */
        if (atomic_load_explicit(&job->shares[share].owned, memory_order_relaxed) == 0 &&
            atomic_exchange_explicit(&job->shares[share].owned, 1, memory_order_relaxed) == 0) {
            *own = share;
            return true;
        }
    }
    return false;
}

/* Enters the job if it is open and has room for another thread; true when some work was looked at. */
static bool help(pto_runtime *rt, pto_worker *w, unsigned slot) {
    pto_job *job = &rt->jobs[slot];
    uint64_t bit = (uint64_t)1 << slot;
    /* acquire (the load by way of the exchange): pairs with the release store that opens the slot */
    unsigned state = atomic_load_explicit(&job->state, memory_order_relaxed);
    do {
        if ((state & PTO_JOB_OPEN) == 0) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&job->state, &state, state + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    bool entered = false;
    unsigned own;
    bool is_crew = job->crew != NULL;
    if (is_crew || own_a_share(job, (unsigned)w->index, &own)) {
        entered = true;
        if (!is_crew && job->threads - 1 > WAKES_BY_CALLER) {
            pto__gate_wake(&rt->work, 2); /* a tree of wakes, so that the caller need not pay for all */
        }
        w->launch = job->launch;
        w->in_parallel = true;
        pto_scratch_mark mark = pto__scratch_mark(&w->scratch);
        if (is_crew) {
            entered = job->crew(w, job->ctx);
        } else {
            run_shares(w, job, own);
        }
        pto__scratch_reset(&w->scratch, mark);
        w->in_parallel = false;
        w->launch = NULL;
    }
    if (!is_crew) {
        /* Nothing left to start, or no share free: others need not look.  relaxed: a hint */
        atomic_fetch_and_explicit(&rt->open_jobs, ~bit, memory_order_relaxed);
    }
    /* release: what this thread did happens before the caller reads state 0; acquire is for nobody */
    unsigned before = atomic_fetch_sub_explicit(&job->state, 1, memory_order_release);
    if (before == 1) { /* closed, and this was the last one inside */
        pto__gate_announce(&job->done);
        pto__gate_wake(&job->done, 1);
    }
    return entered;
}

static bool help_anyone(pto_runtime *rt, pto_worker *w) {
    /* acquire: pairs with the publisher's fetch_or; the slot's own state decides */
    uint64_t open = atomic_load_explicit(&rt->open_jobs, memory_order_acquire);
    bool any = false;
    while (open != 0) {
        unsigned slot = (unsigned)__builtin_ctzll(open);
        open &= open - 1;
        any |= help(rt, w, slot);
    }
    return any;
}

static void *thread_main(void *argument) {
    pto_worker *w = argument;
    pto_runtime *rt = w->rt;
    int64_t spin_ns = (int64_t)rt->options.spin_microseconds * 1000;
    pto__name_this_thread(w->index);
    for (;;) {
        unsigned epoch = pto__gate_epoch(&rt->work);
        /* acquire: pairs with the release store in pto__threads_stop */
        if (atomic_load_explicit(&rt->stopping, memory_order_acquire)) {
            return NULL;
        }
        if (help_anyone(rt, w)) {
            pto__scratch_trim(&w->scratch, &rt->allocator, (size_t)rt->options.scratch_bytes);
            continue;
        }
        bool news = false;
        pto_spin spin = pto__spin_start(spin_ns);
        while (!(news = pto__gate_epoch(&rt->work) != epoch) && pto__spin(&spin)) {
        }
        if (!news) {
            pto__gate_wait(&rt->work, epoch);
        }
    }
}

/* ---- starting and ending threads ---- */

void pto__threads_start(pto_runtime *rt, int32_t wanted) {
    /* acquire: pairs with the release store below */
    if (atomic_load_explicit(&rt->threads_started, memory_order_acquire) >= wanted) {
        return;
    }
    pto__lock(&rt->threads_lock);
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old); /* signals belong to the host's threads */
    int32_t started = atomic_load_explicit(&rt->threads_started, memory_order_relaxed); /* under the lock */
    while (started < wanted) {
        pto_thread *thread = &rt->threads[started];
        if (thread->worker == NULL) {
            thread->worker = pto__worker_create(rt, started + 1);
        }
        if (thread->worker == NULL || pthread_create(&thread->handle, NULL, thread_main, thread->worker) != 0) {
            break; /* the loop runs with the threads there are; the next one tries again */
        }
        started++;
    }
    atomic_store_explicit(&rt->threads_started, started, memory_order_release); /* pairs with the load above */
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    pto__unlock(&rt->threads_lock);
}

void pto__threads_stop(pto_runtime *rt) {
    pto__lock(&rt->threads_lock);
    int32_t started = atomic_load_explicit(&rt->threads_started, memory_order_relaxed); /* under the lock */
    atomic_store_explicit(&rt->stopping, true, memory_order_release); /* pairs with the load in thread_main */
    pto__gate_announce(&rt->work);
    pto__gate_wake(&rt->work, UINT32_MAX);
    for (int32_t i = 0; i < started; i++) {
        (void)pthread_join(rt->threads[i].handle, NULL);
    }
    atomic_store_explicit(&rt->threads_started, 0, memory_order_relaxed); /* read under the lock, or to start more */
    atomic_store_explicit(&rt->stopping, false, memory_order_relaxed);    /* no thread is left to read it */
    pto__unlock(&rt->threads_lock);
}

/* ---- job slots ---- */

static void job_init(pto_job *job) {
    atomic_init(&job->state, 0);
    pto__gate_init(&job->done);
    pto__lock_init(&job->failure_lock);
}

int32_t pto__jobs_create(pto_runtime *rt) {
    size_t bytes = PTO_JOB_SLOTS * sizeof(pto_job);
    rt->jobs = pto__allocate(&rt->allocator, bytes);
    if (rt->jobs == NULL) {
        return PTO_NO_MEMORY;
    }
    memset(rt->jobs, 0, bytes);
    for (unsigned i = 0; i < PTO_JOB_SLOTS; i++) {
        job_init(&rt->jobs[i]);
    }
    return PTO_OK;
}

void pto__jobs_destroy(pto_runtime *rt) {
    for (unsigned i = 0; i < PTO_JOB_SLOTS; i++) {
        if (rt->jobs[i].shares != NULL) {
            pto__release(&rt->allocator, rt->jobs[i].shares, (size_t)rt->options.num_threads * sizeof(pto_share));
        }
    }
    pto__release(&rt->allocator, rt->jobs, PTO_JOB_SLOTS * sizeof(pto_job));
}

void pto__jobs_after_fork(pto_runtime *rt) {
    for (unsigned i = 0; i < PTO_JOB_SLOTS; i++) {
        job_init(&rt->jobs[i]);
    }
    atomic_init(&rt->used_jobs, 0);
    atomic_init(&rt->open_jobs, 0);
    pto__gate_init(&rt->work);
}

/* A slot for the caller alone, its shares allocated; NULL when all are taken or there is no memory. */
static pto_job *take_slot(pto_runtime *rt, unsigned *slot) {
    uint64_t used = atomic_load_explicit(&rt->used_jobs, memory_order_relaxed);
    do {
        if (used == UINT64_MAX) {
            return NULL;
        }
        *slot = (unsigned)__builtin_ctzll(~used);
        /* acquire: pairs with the release in give_slot_back, for the fields of the job */
    } while (!atomic_compare_exchange_weak_explicit(&rt->used_jobs, &used, used | (uint64_t)1 << *slot,
                                                    memory_order_acquire, memory_order_relaxed));
    pto_job *job = &rt->jobs[*slot];
    if (job->shares == NULL) {
        job->shares = pto__allocate(&rt->allocator, (size_t)rt->options.num_threads * sizeof(pto_share));
        if (job->shares == NULL) {
            atomic_fetch_and_explicit(&rt->used_jobs, ~((uint64_t)1 << *slot), memory_order_release); /* as below */
            return NULL;
        }
    }
    return job;
}

static void give_slot_back(pto_runtime *rt, unsigned slot) {
    /* release: pairs with the acquire in take_slot */
    atomic_fetch_and_explicit(&rt->used_jobs, ~((uint64_t)1 << slot), memory_order_release);
}

/* Waits until no helper is inside a closed job. */
static void wait_for_helpers(pto_runtime *rt, pto_job *job) {
    pto_spin spin = pto__spin_start((int64_t)rt->options.spin_microseconds * 1000);
    /* acquire, both loads of `state` here: pairs with the helpers' release when they leave */
    while (atomic_load_explicit(&job->state, memory_order_acquire) != 0 && pto__spin(&spin)) {
    }
    for (;;) {
        unsigned epoch = pto__gate_epoch(&job->done);
        if (atomic_load_explicit(&job->state, memory_order_acquire) == 0) {
            return;
        }
        pto__gate_wait(&job->done, epoch);
    }
}

/* ---- the loop ---- */

static int32_t run_inline(pto_worker *w, pto_range_fn fn, void *ctx, int64_t begin, int64_t end, uint64_t grain) {
    uint64_t left = (uint64_t)end - (uint64_t)begin;
    uint64_t from = (uint64_t)begin;
    while (left != 0) {
        uint64_t length = left < grain ? left : grain;
        int32_t status = fn(w, ctx, (int64_t)from, (int64_t)(from + length));
        if (PTO_UNLIKELY(status != 0)) {
            return status;
        }
        from += length;
        left -= length;
    }
    return PTO_OK;
}

int32_t pto_parallel_width(const pto_worker *w) {
    int32_t limit = w->launch->max_threads, all = w->rt->options.num_threads;
    return w->in_parallel ? 1 : limit > 0 && limit < all ? limit : all;
}

int32_t pto_in_piece(const pto_worker *w) { return w->in_parallel; }

int32_t pto_parallel_for(pto_worker *w, pto_range_fn fn, void *ctx, int64_t begin, int64_t end, int64_t grain) {
    if (begin >= end) {
        return PTO_OK;
    }
    if (PTO_UNLIKELY(grain < 1)) {
        return pto_fail(w, PTO_SITE_BAD_GRAIN, grain, 0, 0);
    }
    pto_runtime *rt = w->rt;
    uint64_t length = (uint64_t)end - (uint64_t)begin;
    uint64_t pieces = (length - 1) / (uint64_t)grain + 1;
    uint64_t threads = (uint64_t)pto_parallel_width(w);
    if (threads > pieces) {
        threads = pieces;
    }
    if (threads < 2) {
        return run_inline(w, fn, ctx, begin, end, (uint64_t)grain);
    }
    unsigned slot;
    pto_job *job = take_slot(rt, &slot);
    if (job == NULL) {
        return run_inline(w, fn, ctx, begin, end, (uint64_t)grain);
    }
    pto__threads_start(rt, (int32_t)threads - 1);

    job->crew = NULL;
    job->fn = fn;
    job->ctx = ctx;
    job->launch = w->launch;
    job->begin = begin;
    job->end = end;
    job->grain = (uint64_t)grain;
    job->pieces = pieces;
    job->pieces_per_unit = (pieces >> 31) + 1;
    job->threads = (unsigned)threads;
    job->failure.status = PTO_OK;
    job->failure_status = PTO_OK;
    /* relaxed: published by opening the slot */
    atomic_store_explicit(&job->failed_piece, UINT64_MAX, memory_order_relaxed);
    uint64_t units = (pieces - 1) / job->pieces_per_unit + 1;
    uint64_t each = units / threads;
    uint64_t more = units % threads; /* the first shares have one unit more */
    uint64_t low = 0;
    for (uint64_t i = 0; i < threads; i++) {
        uint64_t high = low + each + (i < more ? 1 : 0);
        atomic_store_explicit(&job->shares[i].range, pack(low, high), memory_order_relaxed); /* as above */
        atomic_store_explicit(&job->shares[i].owned, i == 0, memory_order_relaxed);          /* as above */
        low = high;
    }
    /* release: pairs with the helper's acquire when it enters */
    atomic_store_explicit(&job->state, PTO_JOB_OPEN, memory_order_release);
    /* release: pairs with the acquire load in help_anyone */
    atomic_fetch_or_explicit(&rt->open_jobs, (uint64_t)1 << slot, memory_order_release);
    pto__gate_announce(&rt->work);
    pto__gate_wake(&rt->work, threads - 1 < WAKES_BY_CALLER ? (unsigned)threads - 1 : WAKES_BY_CALLER);

    w->in_parallel = true;
    pto_scratch_mark mark = pto__scratch_mark(&w->scratch);
    run_shares(w, job, 0);
    w->in_parallel = false;

    atomic_fetch_and_explicit(&rt->open_jobs, ~((uint64_t)1 << slot), memory_order_relaxed); /* a hint */
    /* acq_rel: acquire pairs with helpers that have left already; closing needs no more, the next opener releases */
    unsigned before = atomic_fetch_and_explicit(&job->state, ~PTO_JOB_OPEN, memory_order_acq_rel);
    if (before != PTO_JOB_OPEN) {
        wait_for_helpers(rt, job);
    }
    int32_t status = job->failure_status;
    if (PTO_UNLIKELY(status != PTO_OK)) {
        w->failure = job->failure;
        pto__scratch_reset(&w->scratch, mark);
    }
    give_slot_back(rt, slot);
    return status;
}

/* ---- crews ---- */

int32_t pto__crew_open(pto_worker *w, pto_crew_fn crew, void *ctx, int32_t threads) {
    pto_runtime *rt = w->rt;
    unsigned slot;
    pto_job *job = take_slot(rt, &slot);
    if (job == NULL) {
        return -1;
    }
    pto__threads_start(rt, threads - 1);
    job->crew = crew;
    job->ctx = ctx;
    job->launch = w->launch;
    job->threads = (unsigned)threads;
    /* release: pairs with the helper's acquire when it enters */
    atomic_store_explicit(&job->state, PTO_JOB_OPEN, memory_order_release);
    /* release: pairs with the acquire load in help_anyone */
    atomic_fetch_or_explicit(&rt->open_jobs, (uint64_t)1 << slot, memory_order_release);
    pto__gate_announce(&rt->work);
    pto__gate_wake(&rt->work, threads - 1 < (int32_t)WAKES_BY_CALLER ? (unsigned)threads - 1 : WAKES_BY_CALLER);
    return (int32_t)slot;
}

void pto__crew_call(pto_runtime *rt) {
    pto__gate_announce(&rt->work);
    pto__gate_wake(&rt->work, 1);
}

void pto__crew_close(pto_runtime *rt, int32_t slot) {
    pto_job *job = &rt->jobs[slot];
    atomic_fetch_and_explicit(&rt->open_jobs, ~((uint64_t)1 << slot), memory_order_relaxed); /* a hint */
    /* acq_rel: as at the end of a loop */
    unsigned before = atomic_fetch_and_explicit(&job->state, ~PTO_JOB_OPEN, memory_order_acq_rel);
    if (before != PTO_JOB_OPEN) {
        wait_for_helpers(rt, job);
    }
    give_slot_back(rt, (unsigned)slot);
}

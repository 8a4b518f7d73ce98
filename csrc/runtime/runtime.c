/* SPDX-License-Identifier: MIT */
/* Runtimes, workers and launches. */
#include "internal.h"

#include <string.h>

/* ---- options and status ---- */

const char *pto_status_text(int32_t status) {
    switch (status) {
    case PTO_OK:
        return "ok";
    case PTO_FAILED:
        return "a kernel failed";
    case PTO_NO_MEMORY:
        return "out of memory";
    case PTO_BAD_ARGUMENT:
        return "an argument outside its range";
    case PTO_CANCELLED:
        return "cancelled";
    case PTO_NOT_RUN:
        return "a recorded task has not run";
    case PTO_NO_FILE:
        return "the file could not be written";
    default:
        return "a status of generated code";
    }
}

void pto_options_default(pto_options *options) {
    memset(options, 0, sizeof *options);
    int64_t eighth = pto__physical_memory() / 8;
    int64_t most = (int64_t)4 << 30;
    options->num_threads = pto__cpu_count();
    if (options->num_threads > 1024) {
        options->num_threads = 1024;
    }
    options->spin_microseconds = 50;
    options->cache_bytes = eighth > 0 && eighth < most ? eighth : most;
    options->scratch_bytes = (int64_t)64 << 20;
}

static bool options_are_good(const pto_options *o) {
    return o->num_threads >= 1 && o->num_threads <= 1024 && o->spin_microseconds >= 0 &&
           o->spin_microseconds <= 1000000 && o->cache_bytes >= 0 && o->scratch_bytes >= 0 &&
           (o->allocate == NULL) == (o->release == NULL);
}

/* ---- workers ---- */

pto_worker *pto__worker_create(pto_runtime *rt, int32_t index) {
    pto_worker *w = pto__allocate(&rt->allocator, sizeof *w);
    if (w == NULL) {
        return NULL;
    }
    memset(w, 0, sizeof *w);
    w->rt = rt;
    w->index = index;
    w->own.rt = rt;
    return w;
}

void pto__worker_destroy(pto_worker *w) {
    pto_allocator allocator = w->rt->allocator;
    pto__scratch_trim(&w->scratch, &allocator, 0);
    pto__kept_destroy(&w->own.kept, &allocator);
    pto__release(&allocator, w, sizeof *w);
}

void pto__failure_drop(pto_failure *failure) {
    pto_graph_destroy(failure->graph);
    failure->graph = NULL;
}

void pto__record(pto_worker *w, int32_t status, int32_t site, int64_t v0, int64_t v1, int64_t v2) {
    pto__failure_drop(&w->failure);
    w->failure.task = 0;
    w->failure.status = status;
    w->failure.site = site;
    w->failure.v0 = v0;
    w->failure.v1 = v1;
    w->failure.v2 = v2;
    w->failure.count = 0;
}

int32_t pto_fail(pto_worker *w, int32_t site, int64_t v0, int64_t v1, int64_t v2) {
    pto__record(w, PTO_FAILED, site, v0, v1, v2);
    return PTO_FAILED;
}

void pto_print(pto_worker *w, int32_t site, const int64_t *values, int32_t n) {
    const pto_options *options = &w->rt->options;
    if (options->print != NULL) {
        options->print(options->print_context, w->launch->user, site, values, n);
    }
}

int32_t pto_worker_index(const pto_worker *w) { return w->index; }

static pto_worker *take_caller(pto_runtime *rt) {
    /* acquire: pairs with the release in give_caller_back, for the worker's scratch memory */
    pto_worker *w = atomic_exchange_explicit(&rt->hot_caller, NULL, memory_order_acquire);
    if (PTO_LIKELY(w != NULL)) {
        return w;
    }
    pto__lock(&rt->callers_lock);
    w = rt->free_callers;
    if (w != NULL) {
        rt->free_callers = w->next_free;
    }
    pto__unlock(&rt->callers_lock);
    return w != NULL ? w : pto__worker_create(rt, 0);
}

static void give_caller_back(pto_runtime *rt, pto_worker *w) {
    pto_worker *none = NULL;
    /* release: pairs with the acquire in take_caller */
    if (PTO_LIKELY(atomic_compare_exchange_strong_explicit(&rt->hot_caller, &none, w, memory_order_release,
                                                           memory_order_relaxed))) {
        return;
    }
    pto__lock(&rt->callers_lock);
    w->next_free = rt->free_callers;
    rt->free_callers = w;
    pto__unlock(&rt->callers_lock);
}

/* ---- launch ---- */

/* Hands a failure, and the graph it may own, to whoever launched. */
static void fail_launch(pto_failure *failure, pto_failure *from) {
    if (failure != NULL) {
        *failure = *from;
        from->graph = NULL;
    }
}

int32_t pto_launch(pto_runtime *rt, pto_entry_fn entry, const int64_t *args, int64_t *results, void *user,
                   int32_t max_threads, pto_failure *failure) {
    pto__check_fork(rt);
    pto_worker *w = take_caller(rt);
    if (PTO_UNLIKELY(w == NULL)) {
        pto_failure none = {.status = PTO_NO_MEMORY, .site = PTO_SITE_NO_MEMORY, .v0 = (int64_t)sizeof(pto_worker)};
        fail_launch(failure, &none);
        return PTO_NO_MEMORY;
    }
    w->launch = &w->own;
    w->own.user = user;
    w->own.max_threads = max_threads;

    int32_t status = entry(w, args, results);

    if (PTO_UNLIKELY(w->own.kept.num_fixed != 0)) {
        pto__kept_clear(&w->own.kept);
    }
    if (PTO_UNLIKELY(status != PTO_OK)) {
        if (w->failure.status == PTO_OK) {
            pto__record(w, status, PTO_SITE_UNRECORDED, status, 0, 0);
        }
        fail_launch(failure, &w->failure);
        pto__race_reset(w);
        if (w->own.buffers != NULL) {
            pto__pool_reclaim(rt->pool, &w->own);
        }
    } else if (w->own.buffers != NULL) {
        pto__pool_disown(rt->pool, &w->own);
    }
    pto__failure_drop(&w->failure);
    w->failure.status = PTO_OK;
    w->failure.task = 0;
    if (w->scratch.current != NULL) {
        pto_scratch_mark empty = {NULL, 0};
        pto__scratch_reset(&w->scratch, empty);
        pto__scratch_trim(&w->scratch, &rt->allocator, (size_t)rt->options.scratch_bytes);
    }
    give_caller_back(rt, w);
    return status;
}

/* ---- runtimes ---- */

int32_t pto_runtime_create(const pto_options *given, pto_runtime **out) {
    *out = NULL;
    pto_options options;
    if (given != NULL) {
        options = *given;
    } else {
        pto_options_default(&options);
    }
    if (options.num_threads == 0) {
        options.num_threads = pto__cpu_count();
        if (options.num_threads > 1024) {
            options.num_threads = 1024;
        }
    }
    if (!options_are_good(&options)) {
        return PTO_BAD_ARGUMENT;
    }
    pto_allocator allocator = {options.allocate, options.release, options.allocator_context};
    if (options.allocate == NULL) {
        allocator.allocate = pto__default_allocate;
        allocator.release = pto__default_release;
    }
    pto_runtime *rt = pto__allocate(&allocator, sizeof *rt);
    if (rt == NULL) {
        return PTO_NO_MEMORY;
    }
    memset(rt, 0, sizeof *rt);
    rt->options = options;
    rt->allocator = allocator;
    atomic_init(&rt->references, 1);
    atomic_init(&rt->hot_caller, NULL);
    atomic_init(&rt->used_jobs, 0);
    atomic_init(&rt->open_jobs, 0);
    atomic_init(&rt->threads_started, 0);
    atomic_init(&rt->stopping, false);
    pto__lock_init(&rt->callers_lock);
    pto__lock_init(&rt->threads_lock);
    pto__gate_init(&rt->work);

    size_t threads_bytes = (size_t)options.num_threads * sizeof(pto_thread);
    rt->pool = pto__pool_create(&allocator, options.cache_bytes);
    if (rt->pool == NULL) {
        goto no_pool;
    }
    rt->threads = pto__allocate(&allocator, threads_bytes);
    if (rt->threads == NULL) {
        goto no_threads;
    }
    memset(rt->threads, 0, threads_bytes);
    if (pto__jobs_create(rt) != PTO_OK) {
        goto no_jobs;
    }
    pto__fork_guard_init(&rt->fork_guard);
    *out = rt;
    return PTO_OK;

no_jobs:
    pto__release(&allocator, rt->threads, threads_bytes);
no_threads:
    pto__pool_close(rt->pool);
no_pool:
    pto__release(&allocator, rt, sizeof *rt);
    return PTO_NO_MEMORY;
}

void pto_runtime_retain(pto_runtime *rt) {
    atomic_fetch_add_explicit(&rt->references, 1, memory_order_relaxed); /* the caller has one, so it cannot be 0 */
}

static void release_callers(pto_runtime *rt) {
    pto__lock(&rt->callers_lock);
    pto_worker *w = rt->free_callers;
    rt->free_callers = NULL;
    pto__unlock(&rt->callers_lock);
    while (w != NULL) {
        pto_worker *next = w->next_free;
        pto__worker_destroy(w);
        w = next;
    }
    w = atomic_exchange_explicit(&rt->hot_caller, NULL, memory_order_acquire); /* pairs with give_caller_back */
    if (w != NULL) {
        pto__worker_destroy(w);
    }
}

void pto_runtime_release(pto_runtime *rt) {
    if (rt == NULL) {
        return;
    }
    /* acq_rel: what every owner did happens before the last one frees */
    if (atomic_fetch_sub_explicit(&rt->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    pto__check_fork(rt);
    pto__threads_stop(rt);
    release_callers(rt);
    pto_allocator allocator = rt->allocator;
    for (int32_t i = 0; i < rt->options.num_threads; i++) {
        if (rt->threads[i].worker != NULL) {
            pto__worker_destroy(rt->threads[i].worker);
        }
    }
    pto__release(&allocator, rt->threads, (size_t)rt->options.num_threads * sizeof(pto_thread));
    pto__jobs_destroy(rt);
    pto__pool_close(rt->pool);
    pto__fork_guard_destroy(&rt->fork_guard);
    pto__release(&allocator, rt, sizeof *rt);
}

void pto_runtime_shutdown(pto_runtime *rt) {
    pto__check_fork(rt);
    pto__threads_stop(rt);
}

void pto_runtime_trim(pto_runtime *rt) {
    pto__check_fork(rt);
    release_callers(rt);
    pto__pool_trim(rt->pool);
}

int32_t pto_runtime_num_threads(const pto_runtime *rt) { return rt->options.num_threads; }

void pto_runtime_statistics(pto_runtime *rt, pto_statistics *out) {
    pto__check_fork(rt);
    memset(out, 0, sizeof *out);
    out->threads_started = atomic_load_explicit(&rt->threads_started, memory_order_relaxed); /* a snapshot */
    out->threads_parked = (int32_t)pto__gate_sleepers(&rt->work);
    pto__pool_statistics(rt->pool, out);
}

/* The child of a fork has one thread.  What others had locked or in use is left to leak; the rest goes on. */
void pto__after_fork(pto_runtime *rt) {
    if (!pto__fork_guard_begin(&rt->fork_guard)) {
        return;
    }
    if (pto__lock_after_fork(&rt->callers_lock)) {
        rt->free_callers = NULL;
    }
    (void)pto__lock_after_fork(&rt->threads_lock);
    for (int32_t i = 0; i < rt->options.num_threads; i++) {
        rt->threads[i].worker = NULL; /* it may have been in the middle of anything */
    }
    atomic_init(&rt->threads_started, 0);
    atomic_init(&rt->stopping, false);
    pto__jobs_after_fork(rt);
    pto__fork_guard_end(&rt->fork_guard);
}

/* ---- symbols ---- */

#define SYMBOL(f) {#f, (void *)(uintptr_t)&f}

const pto_symbol *pto_symbols(int32_t *count) {
    static const pto_symbol table[] = {
        SYMBOL(pto_status_text),     SYMBOL(pto_options_default),     SYMBOL(pto_runtime_create),
        SYMBOL(pto_runtime_retain),  SYMBOL(pto_runtime_release),     SYMBOL(pto_runtime_shutdown),
        SYMBOL(pto_runtime_trim),    SYMBOL(pto_runtime_num_threads), SYMBOL(pto_runtime_statistics),
        SYMBOL(pto_launch),          SYMBOL(pto_parallel_for),        SYMBOL(pto_parallel_width),
        SYMBOL(pto_in_piece),        SYMBOL(pto_scratch_push),
        SYMBOL(pto_scratch_pop),     SYMBOL(pto_buffer_alloc),        SYMBOL(pto_buffer_free),
        SYMBOL(pto_fixed),           SYMBOL(pto_kept_find),           SYMBOL(pto_kept_done),
        SYMBOL(pto_copy),            SYMBOL(pto_fail),                SYMBOL(pto_print),
        SYMBOL(pto_worker_index),
        SYMBOL(pto_race_enter),      SYMBOL(pto_race_inside),         SYMBOL(pto_race_iteration),
        SYMBOL(pto_race_leave),      SYMBOL(pto_race_access),         SYMBOL(pto_race_element),
        SYMBOL(pto_race_forget),
        SYMBOL(pto_graph_create),             SYMBOL(pto_graph_destroy),            SYMBOL(pto_graph_open),
        SYMBOL(pto_graph_close),              SYMBOL(pto_graph_tensor),             SYMBOL(pto_graph_buffer),
        SYMBOL(pto_task),                     SYMBOL(pto_task_alloc),               SYMBOL(pto_task_add_input),
        SYMBOL(pto_task_add_output),          SYMBOL(pto_task_add_input_box),       SYMBOL(pto_task_add_output_box),
        SYMBOL(pto_task_submit),              SYMBOL(pto_graph_wait),               SYMBOL(pto_graph_wait_region),
        SYMBOL(pto_graph_execute),            SYMBOL(pto_graph_run),                SYMBOL(pto_graph_cancel),
        SYMBOL(pto_graph_measure),            SYMBOL(pto_graph_task),               SYMBOL(pto_graph_successors),
        SYMBOL(pto_graph_region),             SYMBOL(pto_graph_tensor_facts),       SYMBOL(pto_graph_trace),
        SYMBOL(pto_graph_dump),               SYMBOL(pto_runtime_dump),             SYMBOL(pto_runtime_dump_stdout),
        SYMBOL(pto_symbols),
    };
    *count = (int32_t)(sizeof table / sizeof table[0]);
    return table;
}

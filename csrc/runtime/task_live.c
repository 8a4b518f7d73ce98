/* SPDX-License-Identifier: MIT */
/* Graphs that run while they are built: a bounded window of tasks, whose memory is used again. */
#include "tasks.h"

#include <string.h>

/*
 * The window when none was asked for.  Helpers find more to do in a long one.  With one thread nothing is lost by running
 * tasks early, and what a short window uses again is still in the near caches: 10 to 25 % of the time of empty tasks.
 */
#define WINDOW 32768u
#define WINDOW_OF_ONE 4096u

static uint32_t window_of(const pto_graph *g, int64_t wanted) {
    if (wanted == 0) {
        return g->solo ? WINDOW_OF_ONE : WINDOW;
    }
    return wanted < UINT32_MAX - 2 ? (uint32_t)wanted : UINT32_MAX - 2;
}

pto_graph *pto_graph_open(pto_worker *w, int64_t window) {
    pto_graph *g = window < 0 ? NULL : pto__graph_create(w->rt);
    if (g == NULL) {
        pto__record(w, PTO_NO_MEMORY, PTO_SITE_NO_MEMORY, (int64_t)sizeof *g, 0, 0);
        return NULL;
    }
    g->builder = w;
    g->state = PTO_LIVE;
    pto__run_begin(g, w);
    g->window = window_of(g, window);
    g->widening = window == 0;
    pto__run_open(g, w);
    return g;
}

/* Gives back what finished tasks had; false: no memory to find out. */
static bool recycle(pto_graph *g) {
    /* relaxed, all of `pending` here: only the builder changes it once the task has finished */
    for (uint32_t t = 1; t < g->tasks.end; t++) {
        if (pto__finished(g, t)) {
            atomic_store_explicit(&pto__task(g, t)->pending, PTO_RETIRED, memory_order_relaxed);
        }
    }
    pto__lock(&g->failure_lock);
    uint32_t kept = g->failed_task; /* it was noted before the task finished */
    pto__unlock(&g->failure_lock);
    if (kept != 0 && pto__retired(g, kept)) {
        atomic_store_explicit(&pto__task(g, kept)->pending, PTO_FINISHED, memory_order_relaxed);
    }
    if (!pto__index_prune(g)) {
        return false;
    }
    for (uint32_t t = 1; t < g->tasks.end; t++) {
        if (!pto__retired(g, t)) {
            continue;
        }
        pto_task_record *record = pto__task(g, t);
        const pto_task_kind *kind = record->kind;
        const uint32_t *words = (const uint32_t *)(const void *)(record->payload + kind->num_slots);
        for (int32_t i = 0; i < kind->num_accesses; i++) {
            if (words[i] & PTO_EXPLICIT) {
                uint32_t number = words[i] & ~PTO_EXPLICIT;
                int64_t *region = *pto__region(g, number);
                size_t length = 1 + 2 * (size_t)g->tensors[region[0]].rank;
                pto__arena_give(&g->arena, &g->supply, region, length * sizeof *region);
                pto__slab_give(&g->regions, number, PTO_LOG2_REGION);
            }
        }
        pto__list_give(g, record->fanin);
        pto__arena_give(&g->arena, &g->supply, record->payload - 1, pto__payload_bytes(kind, true));
        atomic_store_explicit(&record->pending, PTO_FREE, memory_order_relaxed);
        pto__slab_give(&g->tasks, t, PTO_LOG2_TASK);
    }
    return true;
}

int32_t pto__live_room(pto_graph *g) {
    /* relaxed: a hint; if the failure is seen later, the tasks in between are passed over */
    if (PTO_UNLIKELY(atomic_load_explicit(&g->failed_number, memory_order_relaxed) != INT64_MAX)) {
        return atomic_load_explicit(&g->cancelled, memory_order_acquire) ? PTO_CANCELLED : PTO_FAILED;
    }
    if (PTO_LIKELY(g->tasks.free != 0 || g->tasks.end <= g->window)) {
        return PTO_OK;
    }
    const pto_wait_goal half = {g->window / 2, 0};
    pto__run_until(g, g->builder, half);
    if (g->widening && g->window < WINDOW && pto__index_size(g) > g->window) {
        g->window *= 2; /* recycling goes through the index, which is not to cost more than the tasks do */
    }
    return recycle(g) ? PTO_OK : PTO_NO_MEMORY;
}

int32_t pto__live_wait_for(pto_graph *g) {
    const pto_wait_goal these = {-1, 0};
    pto__run_until(g, g->builder, these);
    return atomic_load_explicit(&g->failed_number, memory_order_relaxed) == INT64_MAX ? PTO_OK : PTO_FAILED;
}

int32_t pto_graph_wait(pto_graph *g) {
    if (g->state != PTO_LIVE) {
        return PTO_BAD_ARGUMENT;
    }
    const pto_wait_goal all = {0, 0};
    pto__run_until(g, g->builder, all);
    int32_t status = pto__run_outcome(g);
    if (status != PTO_OK || g->error != PTO_OK) {
        return status != PTO_OK ? status : g->error;
    }
    return recycle(g) ? PTO_OK : PTO_NO_MEMORY;
}

int32_t pto_graph_close(pto_worker *w, pto_graph *g) {
    const pto_wait_goal all = {0, 0};
    pto__run_until(g, w, all);
    pto__run_close(g);
    int32_t status = pto__run_outcome(g);
    if (g->failed_status != PTO_OK) {
        pto__failure_drop(&w->failure);
        w->failure = g->failure;
        memset(&g->failure, 0, sizeof g->failure);
        w->failure.graph = g;
        return status;
    }
    if (status == PTO_CANCELLED) {
        pto__record(w, status, PTO_SITE_CANCELLED, 0, 0, 0);
    } else if (g->error != PTO_OK || g->draft.number >= 0) { /* a task was begun and is not submitted */
        status = pto__run_refuse(w, g->error != PTO_OK ? g->error : PTO_BAD_ARGUMENT);
    }
    pto_graph_destroy(g);
    return status;
}

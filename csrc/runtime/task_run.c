/* SPDX-License-Identifier: MIT */
/*
 * Running tasks.
 *
 * A task that becomes ready when another finishes runs next on the same thread; further ones go to its lane.  Lane 0
 * belongs to the thread that owns the graph, the others to helpers, which come when there is work and leave when there is
 * none.
 *
 * Orders used for waking.  A helper leaves: `inside` down, then a look at all lanes.  A task is pushed: `bottom` up, then a
 * look at `inside`.  All four are sequentially consistent, so one of the two sees the other: the task is found, or a
 * thread is called.  In the same way the owner goes to sleep: `waiting` up, then a look at the lanes and at what is
 * finished; a helper that runs out of work: `finished` stored, then a look at `waiting`.
 */
#include "task_lanes.h"

#include <string.h>

#define OWNER_BUDGET 64
#define LOOKS_BEFORE_LEAVING 200

/* ---- finding work ---- */

static uint32_t take_work(pto_graph *g, pto_lane *lane) {
    uint32_t t = pto__lane_pop(g, lane);
    uint32_t own = (uint32_t)(lane - g->lanes);
    for (uint32_t i = 1; t == 0 && i < g->num_lanes; i++) {
        uint32_t other = own + i < g->num_lanes ? own + i : own + i - g->num_lanes;
        t = pto__lane_steal(&g->lanes[other]);
    }
    return t;
}

static bool any_work(pto_graph *g) {
    for (uint32_t i = 0; i < g->num_lanes; i++) {
        pto_lane *lane = &g->lanes[i];
        /* seq_cst: see the head of the file */
        int64_t top = atomic_load_explicit(&lane->top, memory_order_seq_cst);
        if (top < atomic_load_explicit(&lane->bottom, memory_order_seq_cst)) {
            return true;
        }
    }
    return false;
}

/* Calls a thread to pushed work. */
static void call_someone(pto_graph *g) {
    /* seq_cst, both: see the head of the file */
    if (atomic_load_explicit(&g->waiting, memory_order_seq_cst) != 0) {
        pto__gate_announce(&g->gate);
        pto__gate_wake(&g->gate, 1);
    } else if (atomic_load_explicit(&g->inside, memory_order_seq_cst) < g->num_lanes - 1) {
        pto__crew_call(g->rt);
    }
}

/* ---- one task ---- */

static int64_t number_of(const pto_graph *g, uint32_t t, const pto_task_record *record) {
    return g->state == PTO_LIVE ? record->payload[-1] : (int64_t)t - 1;
}

static void note_failure(pto_graph *g, pto_worker *w, uint32_t t, int64_t number, int32_t status) {
    if (w->failure.status == PTO_OK) {
        pto__record(w, status, PTO_SITE_UNRECORDED, status, 0, 0);
    }
    pto__failure_drop(&w->failure); /* a graph of the task's own: what failed is the task of this graph */
    pto__lock(&g->failure_lock);
    /* relaxed: changed under the lock only; read without it as a hint that keeps later tasks from starting */
    if (number < atomic_load_explicit(&g->failed_number, memory_order_relaxed)) {
        atomic_store_explicit(&g->failed_number, number, memory_order_relaxed);
        g->failure = w->failure;
        g->failure.task = number + 1;
        g->failed_status = status;
        g->failed_task = t;
    }
    pto__unlock(&g->failure_lock);
    memset(&w->failure, 0, sizeof w->failure);
    pto__race_reset(w); /* loops that the task was in */
}

static void run_task(pto_graph *g, pto_worker *w, uint32_t t, pto_task_record *record, pto_scratch_mark mark) {
    int64_t number = number_of(g, t, record);
    /* relaxed: see note_failure; a task before the failed one always runs */
    if (PTO_UNLIKELY(number > atomic_load_explicit(&g->failed_number, memory_order_relaxed))) {
        return;
    }
    pto_task_fn function = record->kind->function;
    if (function == NULL && !g->tracing) {
        return;
    }
    int64_t begin = g->tracing ? pto__now_ns() : 0;
    int32_t status = function == NULL ? PTO_OK : function(w, record->payload);
    if (g->tracing) {
        pto_trace_event event = {begin, pto__now_ns(), w->index, 0};
        g->trace[number] = event;
    }
    if (PTO_UNLIKELY(status != PTO_OK)) {
        note_failure(g, w, t, number, status);
        pto__scratch_reset(&w->scratch, mark);
    }
}

/* Takes one from a count of predecessors; true: it was the last. */
static inline bool one_less(atomic_uint *pending, bool solo) {
    if (solo) {
        uint32_t left = atomic_load_explicit(pending, memory_order_relaxed) - 1; /* one thread */
        atomic_store_explicit(pending, left, memory_order_relaxed);
        return left == 0;
    }
    /* acquire: pairs with the release of the others' decrements, so that what they did is seen by the task.
     * 1: this is the last one, nobody else touches the counter. */
    return atomic_load_explicit(pending, memory_order_acquire) == 1 ||
           atomic_fetch_sub_explicit(pending, 1, memory_order_acq_rel) == 1; /* as above */
}

/* Tells the successors; returns one that is ready, to be run next, after putting others into the lane. */
static uint32_t finish(pto_graph *g, pto_lane *lane, pto_task_record *record) {
    bool live = g->state == PTO_LIVE;
    bool solo = g->solo;
    /* acq_rel: acquire pairs with the builder's exchange in pto__edge, for the links; release with its loads, for what
     * the task did.  relaxed: a recorded graph's links were published with the lane that had its first task. */
    uint32_t first = live && !solo ? atomic_exchange_explicit(&record->successors, PTO_CLOSED, memory_order_acq_rel)
                                   : atomic_load_explicit(&record->successors, memory_order_relaxed);
    if (live && solo) {
        atomic_store_explicit(&record->successors, PTO_CLOSED, memory_order_relaxed); /* one thread */
    }
    uint32_t next = 0;
    bool pushed = false;
    for (uint32_t list = first; list != 0;) {
        const pto_link *link = pto__list_link(g, list);
        uint32_t count = pto__list_count(list);
        list = link->next;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t t = link->tasks[i];
            if (!one_less(&pto__task(g, t)->pending, solo)) {
                continue;
            }
            if (next == 0) {
                next = t;
            } else {
                pto__lane_push(g, lane, t);
                pushed = true;
            }
        }
    }
    if (live) {
        record->fanin = first; /* for the builder to give back */
        /* release: pairs with the acquire in pto__finished */
        atomic_store_explicit(&record->pending, PTO_FINISHED, memory_order_release);
    }
    if (pushed && !solo) {
        call_someone(g);
    }
    return next;
}

/* Runs `t` and what becomes ready by it, at most `budget` tasks. */
static void run_chain(pto_graph *g, pto_lane *lane, pto_worker *w, uint32_t t, int64_t budget, pto_scratch_mark mark) {
    do {
        pto_task_record *record = pto__task(g, t);
        run_task(g, w, t, record, mark);
        t = finish(g, lane, record);
        uint64_t finished = atomic_load_explicit(&lane->finished, memory_order_relaxed); /* the owner's own */
        /* release: pairs with the acquire in unfinished() */
        atomic_store_explicit(&lane->finished, finished + 1, memory_order_release);
        if (t != 0 && --budget == 0) {
            pto__lane_push(g, lane, t);
            return;
        }
        /* relaxed: a hint; the last word is in help() */
        if (PTO_UNLIKELY(atomic_load_explicit(&g->waiting, memory_order_relaxed) != 0)) {
            pto__gate_announce(&g->gate);
            pto__gate_wake(&g->gate, 1);
        }
    } while (t != 0);
}

/* ---- helpers ---- */

static pto_lane *claim_lane(pto_graph *g, uint32_t preferred) {
    for (uint32_t i = 0; i + 1 < g->num_lanes; i++) {
        pto_lane *lane = &g->lanes[1 + (preferred + i) % (g->num_lanes - 1)];
        /* acquire: pairs with the release in help(), for the lane's own fields */
        if (atomic_load_explicit(&lane->owned, memory_order_relaxed) == 0 &&
            atomic_exchange_explicit(&lane->owned, 1, memory_order_acquire) == 0) {
            return lane;
        }
    }
    return NULL;
}

/* A thread of the pool works on the graph until there is nothing to do; true: it did something. */
static bool help(pto_worker *w, void *ctx) {
    pto_graph *g = ctx;
    bool worked = false;
    if (!any_work(g)) {
        return false;
    }
    pto_lane *lane = claim_lane(g, (uint32_t)w->index);
    if (lane == NULL) {
        return false;
    }
    pto_scratch_mark mark = pto__scratch_mark(&w->scratch);
    do {
        atomic_fetch_add_explicit(&g->inside, 1, memory_order_seq_cst); /* see the head of the file */
        for (int looks = 0; looks < LOOKS_BEFORE_LEAVING; looks++) {
            uint32_t t = take_work(g, lane);
            if (t != 0) {
                run_chain(g, lane, w, t, INT64_MAX, mark);
                worked = true;
                looks = 0;
            } else {
                pto__pause();
            }
        }
        /* seq_cst, all: see the head of the file */
        uint64_t finished = atomic_load_explicit(&lane->finished, memory_order_relaxed); /* the owner's own */
        atomic_store_explicit(&lane->finished, finished, memory_order_seq_cst);
        if (atomic_load_explicit(&g->waiting, memory_order_seq_cst) != 0) {
            pto__gate_announce(&g->gate);
            pto__gate_wake(&g->gate, 1);
        }
        atomic_fetch_sub_explicit(&g->inside, 1, memory_order_seq_cst);
    } while (any_work(g));
    atomic_store_explicit(&lane->owned, 0, memory_order_release); /* pairs with claim_lane() */
    return worked;
}

/* ---- the owner ---- */

void pto__run_ready(pto_graph *g, uint32_t t) {
    pto__lane_push(g, &g->lanes[0], t);
    if (!g->solo) {
        call_someone(g);
    }
}

static int64_t unfinished(pto_graph *g) {
    int64_t count = g->num_tasks;
    for (uint32_t i = 0; i < g->num_lanes; i++) {
        /* acquire: pairs with run_chain(); seq_cst: see the head of the file */
        count -= (int64_t)atomic_load_explicit(&g->lanes[i].finished, memory_order_seq_cst);
    }
    return count;
}

static bool reached(pto_graph *g, pto_wait_goal *goal) {
    if (goal->most >= 0) {
        return unfinished(g) <= goal->most;
    }
    while (goal->from < g->num_predecessors && pto__finished(g, g->predecessors[goal->from])) {
        goal->from++;
    }
    return goal->from == g->num_predecessors;
}

/* The owner runs tasks, and sleeps when there is none to run, until the goal is reached. */
void pto__run_until(pto_graph *g, pto_worker *w, pto_wait_goal goal) {
    pto_lane *lane = &g->lanes[0];
    bool was_parallel = w->in_parallel;
    w->in_parallel = true;
    pto_scratch_mark mark = pto__scratch_mark(&w->scratch);
    while (!reached(g, &goal)) {
        uint32_t t = take_work(g, lane);
        pto_spin spin = pto__spin_start((int64_t)g->rt->options.spin_microseconds * 1000);
        while (t == 0 && !reached(g, &goal) && pto__spin(&spin)) {
            t = take_work(g, lane);
        }
        if (t != 0) {
            run_chain(g, lane, w, t, OWNER_BUDGET, mark);
            continue;
        }
        unsigned epoch = pto__gate_epoch(&g->gate);
        atomic_store_explicit(&g->waiting, 1, memory_order_seq_cst); /* see the head of the file */
        if (!any_work(g) && !reached(g, &goal)) {
            pto__gate_wait(&g->gate, epoch);
        }
        atomic_store_explicit(&g->waiting, 0, memory_order_relaxed); /* too late costs a needless announcement */
    }
    w->in_parallel = was_parallel;
}

void pto__run_begin(pto_graph *g, const pto_worker *w) {
    /* relaxed: the crew is not open yet */
    atomic_store_explicit(&g->failed_number, INT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&g->cancelled, false, memory_order_relaxed);
    memset(&g->failure, 0, sizeof g->failure);
    g->failed_status = PTO_OK;
    g->failed_task = 0;
    pto__lanes_create(g, w);
}

void pto__run_open(pto_graph *g, pto_worker *w) {
    g->crew = g->solo ? -1 : pto__crew_open(w, help, g, (int32_t)g->num_lanes);
}

void pto__run_close(pto_graph *g) {
    if (g->crew >= 0) {
        pto__crew_close(g->rt, g->crew);
        g->crew = -1;
    }
}

int32_t pto__run_outcome(pto_graph *g) {
    /* acquire: pairs with pto_graph_cancel; the failure was ordered by the end of the tasks */
    if (g->failed_status != PTO_OK) {
        return g->failed_status;
    }
    return atomic_load_explicit(&g->cancelled, memory_order_acquire) ? PTO_CANCELLED : PTO_OK;
}

void pto_graph_cancel(pto_graph *g) {
    pto__lock(&g->failure_lock);
    atomic_store_explicit(&g->cancelled, true, memory_order_release); /* pairs with outcome() */
    atomic_store_explicit(&g->failed_number, -1, memory_order_relaxed); /* a hint, as in note_failure */
    pto__unlock(&g->failure_lock);
}

int32_t pto__run_refuse(pto_worker *w, int32_t status) {
    pto__record(w, status, status == PTO_NO_MEMORY ? PTO_SITE_NO_MEMORY : PTO_SITE_BAD_TASK, status, 0, 0);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * Running tasks.
 *
 * Every thread that works on a graph has a lane: a deque of ready tasks, of which the owner takes the newest and thieves
 * the oldest (Chase and Lev, "Dynamic circular work-stealing deque", SPAA 2005; the memory orders follow Le, Pop, Cohen
 * and Zappa Nardelli, "Correct and efficient work-stealing for weak memory models", PPoPP 2013, with sequentially
 * consistent accesses in place of the fences).  A task that becomes ready when another finishes runs next on the same
 * thread; further ones go to the lane.  Lane 0 belongs to the thread that owns the graph, the others to helpers, which
 * come when there is work and leave when there is none.
 *
 * Orders used for waking.  A helper leaves: `inside` down, then a look at all lanes.  A task is pushed: `bottom` up, then a
 * look at `inside`.  All four are sequentially consistent, so one of the two sees the other: the task is found, or a
 * thread is called.  In the same way the owner goes to sleep: `waiting` up, then a look at the lanes and at what is
 * finished; a helper that runs out of work: `finished` stored, then a look at `waiting`.
 */
#include "tasks.h"

#include <string.h>

#define OWNER_BUDGET 64
#define LOOKS_BEFORE_LEAVING 200

/* ---- lanes ---- */

static pto_ring *make_ring(pto_graph *g, uint64_t length, pto_ring *older) {
    size_t bytes = sizeof(pto_ring) + (size_t)length * sizeof(atomic_uint);
    pto_ring *ring = pto__allocate(&g->rt->allocator, bytes);
    if (ring != NULL) {
        ring->older = older;
        ring->bytes = bytes;
        ring->mask = length - 1;
    }
    return ring;
}

/* Puts a ready task where thieves find it: the caller's own lane, or any before helpers may come.  False: no memory. */
static bool push_shared(pto_graph *g, pto_lane *lane, uint32_t t) {
    /* relaxed: the owner's own, all three */
    int64_t bottom = atomic_load_explicit(&lane->bottom, memory_order_relaxed);
    pto_ring *ring = atomic_load_explicit(&lane->ring, memory_order_relaxed);
    /* acquire: pairs with the thieves' exchange of `top`; a place they have left may be written again */
    int64_t top = atomic_load_explicit(&lane->top, memory_order_acquire);
    if (PTO_UNLIKELY(ring == NULL || bottom - top > (int64_t)ring->mask)) {
        pto_ring *larger = make_ring(g, ring == NULL ? 256 : 2 * (ring->mask + 1), ring);
        if (larger == NULL) {
            return false;
        }
        for (int64_t i = top; i < bottom; i++) {
            uint32_t moved = atomic_load_explicit(&ring->tasks[(uint64_t)i & ring->mask], memory_order_relaxed);
            atomic_store_explicit(&larger->tasks[(uint64_t)i & larger->mask], moved, memory_order_relaxed);
        }
        /* release: pairs with the acquire in steal() */
        atomic_store_explicit(&lane->ring, larger, memory_order_release);
        ring = larger;
    }
    atomic_store_explicit(&ring->tasks[(uint64_t)bottom & ring->mask], t, memory_order_relaxed); /* by `bottom` */
    /* seq_cst: pairs with the loads in steal(), and see the head of the file */
    atomic_store_explicit(&lane->bottom, bottom + 1, memory_order_seq_cst);
    return true;
}

static void push_private(pto_graph *g, pto_lane *lane, uint32_t t) {
    pto__task(g, t)->next = lane->private_list;
    lane->private_list = t;
}

/* Puts a ready task into the caller's own lane; without memory this thread does it itself. */
static void push(pto_graph *g, pto_lane *lane, uint32_t t) {
    if (g->solo || PTO_UNLIKELY(!push_shared(g, lane, t))) {
        push_private(g, lane, t);
    }
}

/* The newest task of the caller's own lane; 0: none. */
static uint32_t pop(pto_graph *g, pto_lane *lane) {
    uint32_t t = lane->private_list;
    if (t != 0) {
        lane->private_list = pto__task(g, t)->next;
        return t;
    }
    if (g->solo) {
        return 0;
    }
    int64_t bottom = atomic_load_explicit(&lane->bottom, memory_order_relaxed); /* the owner's own */
    /* relaxed: if it is old, the lane is empty all the more */
    if (atomic_load_explicit(&lane->top, memory_order_relaxed) >= bottom) {
        return 0;
    }
    bottom--;
    pto_ring *ring = atomic_load_explicit(&lane->ring, memory_order_relaxed); /* the owner's own */
    /* seq_cst, both: against the two loads in steal(), so that only one side takes a task without a contest */
    atomic_store_explicit(&lane->bottom, bottom, memory_order_seq_cst);
    int64_t top = atomic_load_explicit(&lane->top, memory_order_seq_cst);
    if (top > bottom) {
        atomic_store_explicit(&lane->bottom, bottom + 1, memory_order_relaxed); /* empty as before */
        return 0;
    }
    t = atomic_load_explicit(&ring->tasks[(uint64_t)bottom & ring->mask], memory_order_relaxed); /* the owner wrote it */
    if (top == bottom) { /* the last one: a thief may want it too */
        if (!atomic_compare_exchange_strong_explicit(&lane->top, &top, top + 1, memory_order_seq_cst,
                                                     memory_order_relaxed)) {
            t = 0;
        }
        atomic_store_explicit(&lane->bottom, bottom + 1, memory_order_relaxed); /* empty */
    }
    return t;
}

/* The oldest task of another lane; 0: none, or another thief was faster. */
static uint32_t steal(pto_lane *lane) {
    /* seq_cst: see pop().  acquire is part of it: pairs with the store of `bottom` in push(), for the task */
    int64_t top = atomic_load_explicit(&lane->top, memory_order_seq_cst);
    int64_t bottom = atomic_load_explicit(&lane->bottom, memory_order_seq_cst);
    if (top >= bottom) {
        return 0;
    }
    pto_ring *ring = atomic_load_explicit(&lane->ring, memory_order_acquire); /* pairs with the release in push() */
    uint32_t t = atomic_load_explicit(&ring->tasks[(uint64_t)top & ring->mask], memory_order_relaxed); /* as above */
    return atomic_compare_exchange_strong_explicit(&lane->top, &top, top + 1, memory_order_seq_cst,
                                                   memory_order_relaxed)
               ? t
               : 0;
}

static uint32_t take_work(pto_graph *g, pto_lane *lane) {
    uint32_t t = pop(g, lane);
    uint32_t own = (uint32_t)(lane - g->lanes);
    for (uint32_t i = 1; t == 0 && i < g->num_lanes; i++) {
        uint32_t other = own + i < g->num_lanes ? own + i : own + i - g->num_lanes;
        t = steal(&g->lanes[other]);
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
    pto__lock(&g->failure_lock);
    /* relaxed: changed under the lock only; read without it as a hint that keeps later tasks from starting */
    if (number < atomic_load_explicit(&g->failed_number, memory_order_relaxed)) {
        atomic_store_explicit(&g->failed_number, number, memory_order_relaxed);
        pto__failure_drop(&g->failure);
        g->failure = w->failure;
        g->failure.task = number + 1;
        g->failed_status = status;
        g->failed_task = t;
    } else {
        pto__failure_drop(&w->failure);
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
    uint32_t first = live ? atomic_exchange_explicit(&record->successors, PTO_CLOSED, memory_order_acq_rel)
                          : atomic_load_explicit(&record->successors, memory_order_relaxed);
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
                push(g, lane, t);
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
            push(g, lane, t);
            return;
        }
        /* relaxed: a hint; the last word is in leave_lane() */
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

static int64_t unfinished(pto_graph *g) {
    int64_t count = g->num_tasks;
    for (uint32_t i = 0; i < g->num_lanes; i++) {
        /* acquire: pairs with run_chain(); seq_cst: see the head of the file */
        count -= (int64_t)atomic_load_explicit(&g->lanes[i].finished, memory_order_seq_cst);
    }
    return count;
}

/* What the owner waits for: at most `most` unfinished tasks, and (unless it is negative) the tasks from `from` on. */
typedef struct wait_goal {
    int64_t most;
    uint32_t from; /* of g->predecessors: those before are finished */
} wait_goal;

static bool reached(pto_graph *g, wait_goal *goal) {
    if (goal->most >= 0) {
        return unfinished(g) <= goal->most;
    }
    while (goal->from < g->num_predecessors && pto__finished(g, g->predecessors[goal->from])) {
        goal->from++;
    }
    return goal->from == g->num_predecessors;
}

/* The owner runs tasks, and sleeps when there is none to run, until the goal is reached. */
static void work_until(pto_graph *g, pto_worker *w, wait_goal goal) {
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

static void lanes_reset(pto_graph *g) {
    for (uint32_t i = 0; i < g->num_lanes; i++) {
        pto_lane *lane = &g->lanes[i];
        lane->private_list = 0;
        /* relaxed, all: published by opening the crew */
        atomic_store_explicit(&lane->finished, 0, memory_order_relaxed);
        atomic_store_explicit(&lane->owned, i == 0, memory_order_relaxed);
        atomic_store_explicit(&lane->top, 0, memory_order_relaxed);
        atomic_store_explicit(&lane->bottom, 0, memory_order_relaxed);
    }
}

void pto__lanes_destroy(pto_graph *g) {
    if (g->lanes == NULL || g->lanes == &g->own_lane) {
        return;
    }
    for (uint32_t i = 0; i < g->num_lanes; i++) {
        pto_ring *ring = atomic_load_explicit(&g->lanes[i].ring, memory_order_relaxed); /* one thread is left */
        while (ring != NULL) {
            pto_ring *older = ring->older;
            pto__release(&g->rt->allocator, ring, ring->bytes);
            ring = older;
        }
    }
    pto__release(&g->rt->allocator, g->lanes, g->num_lanes * sizeof(pto_lane));
    g->lanes = NULL;
}

/* Lanes for the threads that may work on the launch; one when that is all there can be. */
static void lanes_create(pto_graph *g, const pto_worker *w) {
    int32_t all = g->rt->options.num_threads;
    int32_t most = w->launch->max_threads;
    uint32_t wanted = w->in_parallel ? 1 : (uint32_t)(most > 0 && most < all ? most : all);
    if (g->lanes == NULL || g->num_lanes != wanted) {
        pto__lanes_destroy(g);
        pto_lane *lanes = wanted > 1 ? pto__allocate(&g->rt->allocator, wanted * sizeof *lanes) : NULL;
        if (lanes == NULL) {
            lanes = &g->own_lane;
            wanted = 1;
        }
        memset(lanes, 0, wanted * sizeof *lanes);
        g->lanes = lanes;
        g->num_lanes = wanted;
    }
    g->solo = g->num_lanes == 1;
    lanes_reset(g);
}

static void begin(pto_graph *g) {
    /* relaxed: the crew is not open yet */
    atomic_store_explicit(&g->failed_number, INT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&g->cancelled, false, memory_order_relaxed);
    memset(&g->failure, 0, sizeof g->failure);
    g->failed_status = PTO_OK;
    g->failed_task = 0;
}

static void open_crew(pto_graph *g, pto_worker *w) {
    g->crew = g->solo ? -1 : pto__crew_open(w, help, g, (int32_t)g->num_lanes);
}

static void close_crew(pto_graph *g) {
    if (g->crew >= 0) {
        pto__crew_close(g->rt, g->crew);
        g->crew = -1;
    }
}

static int32_t outcome(pto_graph *g) {
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

/* ---- recorded graphs ---- */

static bool make_trace(pto_graph *g) {
    if (g->trace_length < g->num_tasks) {
        pto_trace_event *trace = pto__supply_block(&g->supply, (size_t)g->num_tasks * sizeof *trace);
        if (trace == NULL) {
            return false;
        }
        if (g->trace != NULL) {
            pto__supply_release(&g->supply, g->trace);
        }
        g->trace = trace;
        g->trace_length = g->num_tasks;
    }
    memset(g->trace, 0, (size_t)g->num_tasks * sizeof *g->trace);
    return true;
}

/* Puts the tasks without predecessors into the lanes: each a contiguous part, so that neighbours stay together. */
static void hand_out_roots(pto_graph *g) {
    int64_t each = g->num_roots / g->num_lanes + 1;
    int64_t in_lane = 0;
    uint32_t lane = 0;
    bool solo = g->solo;
    uint32_t tasks = (uint32_t)g->num_tasks;
    for (uint32_t i = tasks; i > 0; i--) { /* the newest of a lane is taken first: begin with the last task */
        pto_task_record *record = pto__task(g, i);
        if (g->ran) {
            atomic_store_explicit(&record->pending, record->fanin, memory_order_relaxed); /* the crew is not open */
        }
        if (record->fanin != 0) {
            continue;
        }
        if (!solo && in_lane == each) {
            lane++;
            in_lane = 0;
        }
        in_lane++;
        if (solo || !push_shared(g, &g->lanes[lane], i)) {
            push_private(g, &g->lanes[0], i);
        }
    }
}

static int32_t refuse_run(pto_worker *w, int32_t status) {
    pto__record(w, status, status == PTO_NO_MEMORY ? PTO_SITE_NO_MEMORY : PTO_SITE_BAD_TASK, status, 0, 0);
    return status;
}

int32_t pto_graph_run(pto_worker *w, pto_graph *g, int32_t trace) {
    if (g->state != PTO_RECORDING || g->error != PTO_OK) {
        return refuse_run(w, PTO_BAD_ARGUMENT);
    }
    if (trace != 0 && !make_trace(g)) {
        return refuse_run(w, PTO_NO_MEMORY);
    }
    g->tracing = trace != 0;
    begin(g);
    lanes_create(g, w);
    hand_out_roots(g);
    g->ran = true;
    g->state = PTO_RUNNING;
    open_crew(g, w);
    const wait_goal all = {0, 0};
    work_until(g, w, all);
    close_crew(g);
    g->state = PTO_RECORDING;
    int32_t status = outcome(g);
    if (status == PTO_CANCELLED && g->failed_status == PTO_OK) {
        pto__record(w, status, PTO_SITE_CANCELLED, 0, 0, 0);
    } else if (status != PTO_OK) {
        pto__failure_drop(&w->failure);
        w->failure = g->failure;
        memset(&g->failure, 0, sizeof g->failure);
    }
    return status;
}

static int32_t run_entry(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    return pto_graph_run(w, (pto_graph *)(intptr_t)args[0], (int32_t)args[1]);
}

int32_t pto_graph_execute(pto_graph *g, void *user, int32_t max_threads, int32_t trace, pto_failure *failure) {
    const int64_t args[2] = {(int64_t)(intptr_t)g, trace};
    return pto_launch(g->rt, run_entry, args, NULL, user, max_threads, failure);
}

/* ---- live graphs ---- */

pto_graph *pto_graph_open(pto_worker *w, int64_t window) {
    pto_graph *g = window < 0 ? NULL : pto__graph_create(w->rt);
    if (g == NULL) {
        pto__record(w, PTO_NO_MEMORY, PTO_SITE_NO_MEMORY, (int64_t)sizeof *g, 0, 0);
        return NULL;
    }
    g->window = window == 0 ? 32768 : window < UINT32_MAX - 2 ? (uint32_t)window : UINT32_MAX - 2;
    g->builder = w;
    g->state = PTO_LIVE;
    begin(g);
    lanes_create(g, w);
    open_crew(g, w);
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
        pto__arena_give(&g->arena, &g->supply, record->payload - 1, pto__payload_bytes(g, kind));
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
    const wait_goal half = {g->window / 2, 0};
    work_until(g, g->builder, half);
    return recycle(g) ? PTO_OK : PTO_NO_MEMORY;
}

void pto__live_ready(pto_graph *g, uint32_t t) {
    push(g, &g->lanes[0], t);
    if (!g->solo) {
        call_someone(g);
    }
}

int32_t pto__live_wait_for(pto_graph *g) {
    const wait_goal these = {-1, 0};
    work_until(g, g->builder, these);
    return atomic_load_explicit(&g->failed_number, memory_order_relaxed) == INT64_MAX ? PTO_OK : PTO_FAILED;
}

int32_t pto_graph_wait(pto_graph *g) {
    if (g->state != PTO_LIVE) {
        return PTO_BAD_ARGUMENT;
    }
    const wait_goal all = {0, 0};
    work_until(g, g->builder, all);
    int32_t status = outcome(g);
    if (status != PTO_OK || g->error != PTO_OK) {
        return status != PTO_OK ? status : g->error;
    }
    return recycle(g) ? PTO_OK : PTO_NO_MEMORY;
}

int32_t pto_graph_close(pto_worker *w, pto_graph *g) {
    const wait_goal all = {0, 0};
    work_until(g, w, all);
    close_crew(g);
    int32_t status = outcome(g);
    if (g->failed_status != PTO_OK) {
        pto__failure_drop(&w->failure);
        w->failure = g->failure;
        memset(&g->failure, 0, sizeof g->failure);
        w->failure.graph = g;
        return status;
    }
    if (status == PTO_CANCELLED) {
        pto__record(w, status, PTO_SITE_CANCELLED, 0, 0, 0);
    } else if (g->error != PTO_OK) {
        status = refuse_run(w, g->error);
    }
    pto_graph_destroy(g);
    return status;
}

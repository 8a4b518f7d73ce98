/* SPDX-License-Identifier: MIT */
/* Runs of recorded graphs. */
#include "task_lanes.h"

#include <string.h>

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
        if (solo || !pto__lane_push_shared(g, &g->lanes[lane], i)) {
            pto__lane_push_private(g, &g->lanes[0], i);
        }
    }
}

int32_t pto_graph_run(pto_worker *w, pto_graph *g, int32_t trace) {
    if (g->state != PTO_RECORDING || g->error != PTO_OK || g->draft.number >= 0) { /* a task was begun */
        return pto__run_refuse(w, PTO_BAD_ARGUMENT);
    }
    if (trace != 0 && !make_trace(g)) {
        return pto__run_refuse(w, PTO_NO_MEMORY);
    }
    g->tracing = trace != 0;
    pto__run_begin(g, w);
    hand_out_roots(g);
    g->ran = true;
    g->state = PTO_RUNNING;
    pto__run_open(g, w);
    const pto_wait_goal all = {0, 0};
    pto__run_until(g, w, all);
    pto__run_close(g);
    g->state = PTO_RECORDING;
    int32_t status = pto__run_outcome(g);
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

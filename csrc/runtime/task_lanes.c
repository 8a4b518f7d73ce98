/* SPDX-License-Identifier: MIT */
/* Memory of lanes: made for a run or a live graph, kept for the next run, their rings until the graph goes. */
#include "task_lanes.h"

#include <string.h>

bool pto__ring_grow(pto_graph *g, pto_lane *lane, int64_t top, int64_t bottom) {
    pto_ring *ring = atomic_load_explicit(&lane->ring, memory_order_relaxed); /* the owner's own */
    uint64_t length = ring == NULL ? 256 : 2 * (ring->mask + 1);
    size_t bytes = sizeof(pto_ring) + (size_t)length * sizeof(atomic_uint);
    pto_ring *larger = pto__allocate(&g->rt->allocator, bytes);
    if (larger == NULL) {
        return false;
    }
    larger->older = ring; /* a thief may still look at it */
    larger->bytes = bytes;
    larger->mask = length - 1;
    for (int64_t i = top; i < bottom; i++) {
        uint32_t moved = atomic_load_explicit(&ring->tasks[(uint64_t)i & ring->mask], memory_order_relaxed);
        atomic_store_explicit(&larger->tasks[(uint64_t)i & larger->mask], moved, memory_order_relaxed);
    }
    /* release: pairs with the acquire in pto__lane_steal() */
    atomic_store_explicit(&lane->ring, larger, memory_order_release);
    return true;
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

/* One lane when that is all there can be. */
void pto__lanes_create(pto_graph *g, const pto_worker *w) {
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

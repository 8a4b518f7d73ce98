/* SPDX-License-Identifier: MIT */
/*
 * Lanes: every thread that works on a graph has a deque of ready tasks, of which the owner takes the newest and thieves
 * the oldest (Chase and Lev, "Dynamic circular work-stealing deque", SPAA 2005; the memory orders follow Le, Pop, Cohen
 * and Zappa Nardelli, "Correct and efficient work-stealing for weak memory models", PPoPP 2013, with sequentially
 * consistent accesses in place of the fences), and a private list that no thief sees.
 */
#ifndef PTO_TASK_LANES_H
#define PTO_TASK_LANES_H

#include "tasks.h"

/* Puts a ready task where thieves find it: the caller's own lane, or any before helpers may come.  False: no memory. */
static inline bool pto__lane_push_shared(pto_graph *g, pto_lane *lane, uint32_t t) {
    /* relaxed: the owner's own, all three */
    int64_t bottom = atomic_load_explicit(&lane->bottom, memory_order_relaxed);
    pto_ring *ring = atomic_load_explicit(&lane->ring, memory_order_relaxed);
    /* acquire: pairs with the thieves' exchange of `top`; a place they have left may be written again */
    int64_t top = atomic_load_explicit(&lane->top, memory_order_acquire);
    if (PTO_UNLIKELY(ring == NULL || bottom - top > (int64_t)ring->mask)) {
        if (!pto__ring_grow(g, lane, top, bottom)) {
            return false;
        }
        ring = atomic_load_explicit(&lane->ring, memory_order_relaxed);
    }
    atomic_store_explicit(&ring->tasks[(uint64_t)bottom & ring->mask], t, memory_order_relaxed); /* by `bottom` */
    /* seq_cst: pairs with the loads in pto__lane_steal(), and see the head of task_run.c */
    atomic_store_explicit(&lane->bottom, bottom + 1, memory_order_seq_cst);
    return true;
}

static inline void pto__lane_push_private(pto_graph *g, pto_lane *lane, uint32_t t) {
    pto__task(g, t)->next = lane->private_list;
    lane->private_list = t;
}

/* Puts a ready task into the caller's own lane; without memory this thread does it itself. */
static inline void pto__lane_push(pto_graph *g, pto_lane *lane, uint32_t t) {
    if (g->solo || PTO_UNLIKELY(!pto__lane_push_shared(g, lane, t))) {
        pto__lane_push_private(g, lane, t);
    }
}

/* The newest task of the caller's own lane; 0: none. */
static inline uint32_t pto__lane_pop(pto_graph *g, pto_lane *lane) {
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
    /* seq_cst, both: against the loads in pto__lane_steal(), so that only one side takes a task without a contest */
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
static inline uint32_t pto__lane_steal(pto_lane *lane) {
    /* seq_cst: see pto__lane_pop().  acquire is part of it: pairs with the store of `bottom` in pto__lane_push_shared(),
     * for the task */
    int64_t top = atomic_load_explicit(&lane->top, memory_order_seq_cst);
    int64_t bottom = atomic_load_explicit(&lane->bottom, memory_order_seq_cst);
    if (top >= bottom) {
        return 0;
    }
    /* acquire: pairs with the release in pto__ring_grow() */
    pto_ring *ring = atomic_load_explicit(&lane->ring, memory_order_acquire);
    uint32_t t = atomic_load_explicit(&ring->tasks[(uint64_t)top & ring->mask], memory_order_relaxed); /* as above */
    return atomic_compare_exchange_strong_explicit(&lane->top, &top, top + 1, memory_order_seq_cst,
                                                   memory_order_relaxed)
               ? t
               : 0;
}

#endif

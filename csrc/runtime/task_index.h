/* SPDX-License-Identifier: MIT */
/*
 * What happens for nearly every access: a cell is read or written, edges are made, lists of tasks grow.  `recording` is
 * known at compile time wherever it matters: only one thread looks at a graph that is recorded.
 */
#ifndef PTO_TASK_INDEX_H
#define PTO_TASK_INDEX_H

#include "tasks.h"

/* The list with one task more; 0: no memory. */
static PTO_ALWAYS_INLINE uint32_t pto__list_add(pto_graph *g, uint32_t list, uint32_t t) {
    if (((list + 1) & 2u) != 0) { /* a link with 1 or 2 tasks */
        /* relaxed: the builder's own, as everything here */
        unsigned char **table = atomic_load_explicit(&g->links.table, memory_order_relaxed);
        ((uint32_t *)(void *)table[list >> 10])[list & 1023u] = t;
        return list + 1;
    }
    uint32_t number;
    pto_link *link = pto__slab_new(&g->links, &g->supply, PTO_LOG2_LINK, &number);
    if (PTO_UNLIKELY(link == NULL)) {
        return 0;
    }
    link->tasks[0] = t;
    link->next = list;
    return 4 * number + 1;
}

/*
 * Orders `to` after `from`, once.  to == 0: only notes that there would be an order.  False: no memory.
 * `recording`: the graph is being recorded and `to` is a task; known at compile time where it matters.
 */
static PTO_ALWAYS_INLINE bool pto__edge_between(pto_graph *g, uint32_t from, pto_task_record *p, uint32_t to,
                                                bool recording) {
    if (!recording) {
        return pto__edge_other(g, from, to);
    }
    if (p->next == to) { /* also a task that meets itself */
        return true;
    }
    p->next = to;
    /* relaxed: one thread, here and below */
    uint32_t list = pto__list_add(g, atomic_load_explicit(&p->successors, memory_order_relaxed), to);
    atomic_store_explicit(&p->successors, list, memory_order_relaxed);
    g->fanin++;
    return PTO_LIKELY(list != 0); /* without memory the graph is of no use any more */
}

static inline bool pto__edge(pto_graph *g, uint32_t from, uint32_t to) {
    return pto__edge_between(g, from, pto__task(g, from), to, g->state == PTO_RECORDING && to != 0);
}

/* The edges of an access of a cell by task `t` (record `r`), and what is known of the cell then.  False: no memory. */
static PTO_ALWAYS_INLINE bool pto__cell_read(pto_graph *g, uint32_t t, pto_cell *cell, bool recording) {
    if (cell->writer != 0 &&
        PTO_UNLIKELY(!pto__edge_between(g, cell->writer, cell->writer_record, t, recording))) {
        return false;
    }
    if (!recording && t == 0) {
        return true;
    }
    if (cell->reader == 0) {
        cell->reader = t;
        return true;
    }
    uint32_t list = pto__list_add(g, cell->readers, t);
    cell->readers = list;
    return PTO_LIKELY(list != 0);
}

/* Edges from all readers of a cell but the first, whose list is given back unless `t` is 0. */
bool pto__cell_readers_before(pto_graph *g, uint32_t t, pto_cell *cell);

static PTO_ALWAYS_INLINE bool pto__cell_write(pto_graph *g, uint32_t t, pto_task_record *r, pto_cell *cell,
                                              bool recording) {
    uint32_t reader = cell->reader;
    if (reader != 0) { /* they come after the writer */
        if (PTO_UNLIKELY(!pto__edge_between(g, reader, pto__task(g, reader), t, recording)) ||
            (cell->readers != 0 && PTO_UNLIKELY(!pto__cell_readers_before(g, t, cell)))) {
            return false;
        }
        if (!recording && t == 0) {
            return true;
        }
        cell->reader = 0;
    } else if (cell->writer != 0 &&
               PTO_UNLIKELY(!pto__edge_between(g, cell->writer, cell->writer_record, t, recording))) {
        return false;
    }
    if (recording || t != 0) {
        cell->writer = t;
        cell->writer_record = r;
    }
    return true;
}

/* A read and then a write, without going through the readers. */
static PTO_ALWAYS_INLINE bool pto__cell_update(pto_graph *g, uint32_t t, pto_task_record *r, pto_cell *cell,
                                               bool recording) {
    if (PTO_UNLIKELY(cell->reader != 0) && cell->writer != 0 &&
        PTO_UNLIKELY(!pto__edge_between(g, cell->writer, cell->writer_record, t, recording))) {
        return false;
    }
    return pto__cell_write(g, t, r, cell, recording);
}

#endif

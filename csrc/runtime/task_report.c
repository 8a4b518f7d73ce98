/* SPDX-License-Identifier: MIT */
/* What a graph looks like: its tasks, edges and measures. */
#include "tasks.h"

#include <string.h>

/* The record of a task that can be looked at; 0: none. */
static uint32_t record_of(pto_graph *g, int64_t task) {
    if (g->state == PTO_RECORDING) {
        return task >= 0 && task < g->num_tasks ? (uint32_t)task + 1 : 0;
    }
    return g->failed_task != 0 && pto__task(g, g->failed_task)->payload[-1] == task ? g->failed_task : 0;
}

int64_t pto__fanout(pto_graph *g, uint32_t t) {
    int64_t count = 0;
    uint32_t at = atomic_load_explicit(&pto__task(g, t)->successors, memory_order_relaxed); /* nothing runs */
    for (; at != 0; at = pto__list_link(g, at)->next) {
        count += pto__list_count(at);
    }
    return count;
}

/* The levels of all tasks, from 1: the longest path to each; NULL: no memory. */
static uint32_t *levels_of(pto_graph *g) {
    size_t bytes = ((size_t)g->num_tasks + 1) * sizeof(uint32_t);
    uint32_t *levels = pto__supply_block(&g->supply, bytes);
    if (levels == NULL) {
        return NULL;
    }
    memset(levels, 0, bytes);
    for (uint32_t t = 1; t <= (uint64_t)g->num_tasks; t++) { /* edges lead to later tasks */
        uint32_t level = ++levels[t];
        uint32_t at = atomic_load_explicit(&pto__task(g, t)->successors, memory_order_relaxed); /* nothing runs */
        while (at != 0) {
            const pto_link *link = pto__list_link(g, at);
            for (uint32_t i = 0; i < pto__list_count(at); i++) {
                if (levels[link->tasks[i]] < level) {
                    levels[link->tasks[i]] = level;
                }
            }
            at = link->next;
        }
    }
    return levels;
}

int32_t pto_graph_measure(pto_graph *g, pto_graph_facts *out) {
    memset(out, 0, sizeof *out);
    out->tasks = g->num_tasks;
    out->edges = g->num_edges;
    out->bytes = g->supply.bytes - g->lent;
    if (g->state != PTO_RECORDING) {
        return PTO_OK;
    }
    out->ready = g->num_roots;
    uint32_t *levels = levels_of(g);
    if (levels == NULL) {
        return PTO_NO_MEMORY;
    }
    size_t bytes = ((size_t)g->num_tasks + 1) * sizeof *levels;
    uint32_t *widths = pto__supply_block(&g->supply, bytes);
    if (widths != NULL) {
        memset(widths, 0, bytes);
        for (uint32_t t = 1; t <= (uint64_t)g->num_tasks; t++) {
            uint32_t width = ++widths[levels[t]];
            out->max_width = width > out->max_width ? width : out->max_width;
            out->critical_path = levels[t] > out->critical_path ? levels[t] : out->critical_path;
        }
        pto__supply_release(&g->supply, widths);
    }
    pto__supply_release(&g->supply, levels);
    return widths != NULL ? PTO_OK : PTO_NO_MEMORY;
}

int32_t pto_graph_task(pto_graph *g, int64_t task, pto_task_facts *out) {
    memset(out, 0, sizeof *out);
    uint32_t t = record_of(g, task);
    if (t == 0) {
        return PTO_BAD_ARGUMENT;
    }
    const pto_task_record *record = pto__task(g, t);
    out->kind = record->kind;
    out->slots = record->payload;
    if (g->state == PTO_RECORDING) {
        out->fanin = record->fanin;
        out->fanout = pto__fanout(g, t);
    }
    return PTO_OK;
}

int64_t pto__successors(pto_graph *g, uint32_t t, int64_t *out) {
    int64_t count = 0;
    uint32_t at = atomic_load_explicit(&pto__task(g, t)->successors, memory_order_relaxed); /* nothing runs */
    while (at != 0) { /* the newest first: descending, since tasks get their predecessors when they are submitted */
        const pto_link *link = pto__list_link(g, at);
        for (uint32_t i = pto__list_count(at); i > 0; i--) {
            out[count++] = (int64_t)link->tasks[i - 1] - 1;
        }
        at = link->next;
    }
    for (int64_t i = 0; i < count / 2; i++) {
        int64_t other = out[i];
        out[i] = out[count - 1 - i];
        out[count - 1 - i] = other;
    }
    return count;
}

int32_t pto_graph_successors(pto_graph *g, int64_t task, int64_t *out) {
    uint32_t t = g->state == PTO_RECORDING ? record_of(g, task) : 0;
    if (t == 0) {
        return PTO_BAD_ARGUMENT;
    }
    (void)pto__successors(g, t, out);
    return PTO_OK;
}

int32_t pto_graph_region(pto_graph *g, int64_t task, int32_t index, int32_t *tensor, int64_t *offsets,
                         int64_t *extents) {
    uint32_t t = record_of(g, task);
    if (t == 0 || index < 0 || index >= pto__task(g, t)->kind->num_accesses) {
        return PTO_BAD_ARGUMENT;
    }
    const pto_task_record *record = pto__task(g, t);
    uint32_t word = ((const uint32_t *)(const void *)(record->payload + record->kind->num_slots))[index];
    *tensor = -1;
    if (word == 0) {
        return PTO_OK;
    }
    if (word & PTO_EXPLICIT) {
        const int64_t *region = *pto__region(g, word & ~PTO_EXPLICIT);
        *tensor = (int32_t)region[0];
        int32_t rank = g->tensors[region[0]].rank;
        for (int32_t a = 0; a < rank && offsets != NULL; a++) {
            offsets[a] = region[1 + a];
            extents[a] = region[1 + rank + a];
        }
        return PTO_OK;
    }
    /* A tile of the tensor that the lattice was made for, which had it to itself then. */
    const pto_cell *cell = pto__cell(g, word);
    const pto_lattice *l = &g->lattices[cell->lattice];
    const pto_tensor *owner = &g->tensors[l->first_tensor];
    *tensor = (int32_t)l->first_tensor;
    if (offsets == NULL) {
        return PTO_OK;
    }
    for (int32_t a = 0; a < owner->rank; a++) { /* what is not a dimension was accessed whole, or is the same memory */
        offsets[a] = 0;
        extents[a] = owner->extents[a];
    }
    int64_t tile = cell->tile;
    for (int32_t d = l->rank - 1; d >= 0; d--) {
        const pto_tiling *tiling = &l->tiling[d];
        const pto_axis *axis = &owner->axes[d];
        int64_t low = tile % tiling->count * tiling->tile;
        int64_t length = axis->extent - low < tiling->tile ? axis->extent - low : tiling->tile;
        tile /= tiling->count;
        offsets[axis->axis] = axis->flipped ? axis->extent - low - length : low;
        extents[axis->axis] = length;
    }
    return PTO_OK;
}

int32_t pto_graph_tensor_facts(pto_graph *g, int32_t tensor, int64_t *base, int64_t *element_bytes, int32_t *rank,
                               int64_t *extents, int64_t *strides) {
    if (tensor < 0 || (uint32_t)tensor >= g->num_tensors) {
        return PTO_BAD_ARGUMENT;
    }
    const pto_tensor *t = &g->tensors[tensor];
    if (base != NULL) {
        *base = t->base;
    }
    if (element_bytes != NULL) {
        *element_bytes = t->element_bytes;
    }
    if (rank != NULL) {
        *rank = t->rank;
    }
    if (extents != NULL && t->rank != 0) {
        memcpy(extents, t->extents, (size_t)t->rank * sizeof *extents);
    }
    if (strides != NULL && t->rank != 0) {
        memcpy(strides, t->strides, (size_t)t->rank * sizeof *strides);
    }
    return PTO_OK;
}

const pto_trace_event *pto_graph_trace(pto_graph *g, int64_t *count) {
    *count = g->trace != NULL && g->tracing ? g->num_tasks : 0;
    return *count != 0 ? g->trace : NULL;
}

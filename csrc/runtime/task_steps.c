/* SPDX-License-Identifier: MIT */
/* A task in steps: pto_task_alloc, its regions one by one, pto_task_submit.  No error may be lost: a task without one of
 * its regions would run at the wrong time. */
#include "tasks.h"

#include <string.h>

static const pto_task_kind *own_kind(pto_graph *g, const pto_draft *d) {
    size_t bytes = (size_t)d->num_accesses * sizeof *d->accesses;
    for (pto_own_kind *k = g->own_kinds; k != NULL; k = k->next) {
        if (k->kind.name == d->name && k->kind.function == d->function && k->kind.buffer_bytes == d->buffer_bytes &&
            k->kind.num_slots == d->num_slots && k->kind.num_accesses == d->num_accesses &&
            (bytes == 0 || memcmp(k->kind.accesses, d->accesses, bytes) == 0)) {
            return &k->kind;
        }
    }
    size_t total = sizeof(pto_own_kind) + ((bytes + 7) & ~(size_t)7);
    pto_own_kind *made = pto__arena_take(&g->arena, &g->supply, total);
    if (made == NULL) {
        return NULL;
    }
    int32_t *accesses = (int32_t *)(void *)(made + 1);
    if (bytes != 0) {
        memcpy(accesses, d->accesses, bytes);
    }
    pto_task_kind kind = {d->name, d->function, d->buffer_bytes, d->num_slots, d->num_accesses, accesses};
    made->kind = kind;
    made->next = g->own_kinds;
    g->own_kinds = made;
    return &made->kind;
}

static int32_t refuse(pto_graph *g) { return pto__graph_refuse(g, PTO_BAD_ARGUMENT); }

int64_t pto_task_alloc(pto_graph *g, const char *name, pto_task_fn function, int64_t buffer_bytes, const int64_t *slots,
                       int32_t num_slots) {
    pto_draft *d = &g->draft;
    if (g->error != PTO_OK) {
        return -(int64_t)g->error;
    }
    if (d->number >= 0 || num_slots < 0) {
        return -(int64_t)refuse(g);
    }
    if (!pto__grow(g, (void **)&d->slots, &d->room_slots, (uint32_t)num_slots, sizeof *d->slots)) {
        return -(int64_t)pto__graph_refuse(g, PTO_NO_MEMORY);
    }
    if (num_slots != 0) {
        memcpy(d->slots, slots, (size_t)num_slots * sizeof *slots);
    }
    d->number = g->num_tasks;
    d->name = name;
    d->function = function;
    d->buffer_bytes = buffer_bytes;
    d->num_slots = num_slots;
    d->num_accesses = 0;
    d->num_words = 0;
    return d->number;
}

static int32_t add_access(pto_graph *g, int64_t task, int32_t access, int32_t tensor, const int64_t *offsets,
                          const int64_t *extents) {
    pto_draft *d = &g->draft;
    if (g->error != PTO_OK) {
        return g->error;
    }
    if (task < 0 || task != d->number || tensor < 0 || (uint32_t)tensor >= g->num_tensors) {
        return refuse(g);
    }
    const pto_tensor *t = &g->tensors[tensor];
    uint32_t words = 1 + 2 * (uint32_t)t->rank;
    if (!pto__grow(g, (void **)&d->accesses, &d->room_accesses, (uint32_t)d->num_accesses + 1, sizeof *d->accesses) ||
        !pto__grow(g, (void **)&d->regions, &d->room_words, d->num_words + words, sizeof *d->regions)) {
        return pto__graph_refuse(g, PTO_NO_MEMORY);
    }
    int64_t *region = d->regions + d->num_words;
    region[0] = tensor;
    for (int32_t a = 0; a < t->rank; a++) {
        region[1 + a] = offsets[a];
        region[1 + t->rank + a] = extents[a];
    }
    bool empty;
    if (pto__region_check(t, region, &empty) != PTO_OK) {
        return refuse(g);
    }
    d->accesses[d->num_accesses++] = access;
    d->num_words += words;
    return PTO_OK;
}

static int32_t add_rows(pto_graph *g, int64_t task, int32_t access, int32_t tensor, int64_t row, int64_t col,
                        int64_t rows, int64_t cols) {
    if (g->error != PTO_OK) {
        return g->error;
    }
    if (tensor < 0 || (uint32_t)tensor >= g->num_tensors) {
        return refuse(g);
    }
    int32_t rank = g->tensors[tensor].rank;
    const int64_t offsets[2] = {row, col};
    const int64_t extents[2] = {rows, cols};
    if (rank == 2) {
        return add_access(g, task, access, tensor, offsets, extents);
    }
    if (rank == 1 && row == 0 && rows == 1) {
        return add_access(g, task, access, tensor, offsets + 1, extents + 1);
    }
    return refuse(g);
}

int32_t pto_task_add_input(pto_graph *g, int64_t task, int32_t tensor, int64_t row, int64_t col, int64_t rows,
                           int64_t cols) {
    return add_rows(g, task, PTO_READ, tensor, row, col, rows, cols);
}

int32_t pto_task_add_output(pto_graph *g, int64_t task, int32_t tensor, int64_t row, int64_t col, int64_t rows,
                            int64_t cols) {
    return add_rows(g, task, PTO_WRITE, tensor, row, col, rows, cols);
}

int32_t pto_task_add_input_box(pto_graph *g, int64_t task, int32_t tensor, const int64_t *offsets,
                               const int64_t *extents) {
    return add_access(g, task, PTO_READ, tensor, offsets, extents);
}

int32_t pto_task_add_output_box(pto_graph *g, int64_t task, int32_t tensor, const int64_t *offsets,
                                const int64_t *extents) {
    return add_access(g, task, PTO_WRITE, tensor, offsets, extents);
}

int32_t pto_task_submit(pto_graph *g, int64_t task) {
    pto_draft *d = &g->draft;
    if (g->error != PTO_OK) {
        return g->error;
    }
    if (task < 0 || task != d->number || task != g->num_tasks) { /* another one was submitted meanwhile */
        return refuse(g);
    }
    const pto_task_kind *kind = own_kind(g, d);
    if (kind == NULL) {
        return pto__graph_refuse(g, PTO_NO_MEMORY);
    }
    d->number = -1;
    return pto_task(g, kind, d->slots, d->regions);
}

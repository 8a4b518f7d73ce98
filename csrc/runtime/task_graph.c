/* SPDX-License-Identifier: MIT */
/* Building a graph: creation, submission of tasks with their regions, and the steps of pto_task_alloc. */
#include "tasks.h"

#include <string.h>

/* ---- graphs ---- */

pto_graph *pto__graph_create(pto_runtime *rt) {
    pto_graph *g = pto__allocate(&rt->allocator, sizeof *g);
    if (g == NULL) {
        return NULL;
    }
    memset(g, 0, sizeof *g);
    pto_runtime_retain(rt);
    g->rt = rt;
    g->state = PTO_RECORDING;
    g->crew = -1;
    g->draft.number = -1;
    g->supply.pool = rt->pool;
    g->supply.bytes = (int64_t)sizeof *g;
    pto__slab_init(&g->tasks);
    pto__slab_init(&g->links);
    pto__slab_init(&g->cells);
    pto__slab_init(&g->regions);
    atomic_init(&g->failed_number, INT64_MAX);
    atomic_init(&g->cancelled, false);
    atomic_init(&g->inside, 0);
    atomic_init(&g->waiting, 0);
    pto__lock_init(&g->failure_lock);
    pto__gate_init(&g->gate);
    return g;
}

int32_t pto_graph_create(pto_runtime *rt, pto_graph **out) {
    pto__check_fork(rt);
    *out = pto__graph_create(rt);
    return *out != NULL ? PTO_OK : PTO_NO_MEMORY;
}

void pto_graph_destroy(pto_graph *g) {
    if (g == NULL) {
        return;
    }
    pto_runtime *rt = g->rt;
    pto_allocator allocator = rt->allocator;
    pto__lanes_destroy(g);
    pto__supply_end(&g->supply);
    pto__release(&allocator, g, sizeof *g);
    pto_runtime_release(rt);
}

void *pto_graph_buffer(pto_graph *g, int64_t bytes) {
    int64_t before = g->supply.bytes;
    void *block = bytes < 0 ? NULL : pto__supply_block(&g->supply, (size_t)bytes);
    g->lent += g->supply.bytes - before;
    return block;
}

static int32_t refuse(pto_graph *g, int32_t status) {
    g->error = status;
    return status;
}

int32_t pto_graph_tensor(pto_graph *g, const void *base, int64_t element_bytes, int32_t rank, const int64_t *extents,
                         const int64_t *strides, int32_t *tensor) {
    *tensor = -1;
    if (g->error != PTO_OK) {
        return g->error;
    }
    int32_t status = pto__tensor_add(g, (int64_t)(intptr_t)base, element_bytes, rank, extents, strides, tensor);
    return status == PTO_NO_MEMORY ? refuse(g, status) : status;
}

/* ---- regions ---- */

/* PTO_OK, PTO_BAD_ARGUMENT; *empty: it has no elements. */
static int32_t check_region(const pto_tensor *t, const int64_t *region, bool *empty) {
    const int64_t *offsets = region + 1;
    const int64_t *extents = offsets + t->rank;
    *empty = false;
    for (int32_t a = 0; a < t->rank; a++) {
        int64_t n = t->extents[a];
        if (offsets[a] < 0 || extents[a] < 0 || offsets[a] > n || extents[a] > n - offsets[a]) {
            return PTO_BAD_ARGUMENT;
        }
        *empty |= extents[a] == 0;
    }
    return PTO_OK;
}

/* The box of a region in the coordinates of its lattice, in memory that the next call uses again; NULL: no memory. */
static int64_t *box_of(pto_graph *g, const pto_tensor *t, const int64_t *region) {
    int32_t rank = g->lattices[t->lattice].rank;
    if (!pto__grow(g, (void **)&g->box, &g->room_box, 2 * (uint32_t)rank + 1, sizeof *g->box)) {
        return NULL;
    }
    for (int32_t d = 0; d < rank; d++) {
        const pto_axis *axis = &t->axes[d];
        int64_t low = region[1 + axis->axis];
        int64_t extent = region[1 + t->rank + axis->axis];
        if (axis->flipped) {
            low = axis->extent - low - extent;
        }
        g->box[2 * d] = axis->shift + low;
        g->box[2 * d + 1] = axis->shift + low + extent;
    }
    return g->box;
}

/*
 * The cell of a region that is one tile of a tensor which has its lattice to itself; 0: it is something else, or there
 * is no memory for the cell.  The way of nearly all accesses.
 */
static uint32_t tile_of(pto_graph *g, pto_tensor *t, const int64_t *region) {
    pto_lattice *l = &g->lattices[t->lattice];
    if (PTO_UNLIKELY(l->state != PTO_TILED || l->num_tensors != 1)) {
        return 0;
    }
    const int64_t *offsets = region + 1;
    const int64_t *extents = offsets + t->rank;
    if (t->dropped) {
        bool empty;
        if (check_region(t, region, &empty) != PTO_OK || empty) {
            return 0;
        }
    }
    int64_t tile = 0;
    for (int32_t d = 0; d < l->rank; d++) {
        const pto_axis *axis = &t->axes[d];
        const pto_tiling *tiling = &l->tiling[d];
        int64_t low = offsets[axis->axis];
        int64_t extent = extents[axis->axis];
        if (PTO_UNLIKELY(axis->flipped)) {
            low = axis->extent - low - extent;
        }
        if (PTO_UNLIKELY((uint64_t)low >= (uint64_t)axis->extent)) {
            return 0;
        }
        int64_t q = pto__tile_at(tiling, low);
        if (PTO_UNLIKELY(q * tiling->tile != low ||
                         (extent != tiling->tile &&
                          (extent <= 0 || extent > tiling->tile || extent != axis->extent - low)) ||
                         extent > axis->extent - low)) {
            return 0;
        }
        tile = tile * tiling->count + q;
    }
    uint32_t *page = l->directory[(uint64_t)tile / PTO_DIRECTORY_PAGE];
    uint32_t number = page != NULL ? page[(uint64_t)tile % PTO_DIRECTORY_PAGE] : 0;
    if (PTO_UNLIKELY(number == 0)) {
        number = pto__cell_create(g, l, tile);
    }
    if (t->rank == 2 && number != 0) {
        t->last_word = number;
        t->last_cell = pto__cell(g, number);
        memcpy(t->last, region + 1, sizeof t->last);
    }
    return number;
}

static inline bool is_last(const pto_tensor *t, const int64_t *region) {
    return t->last_word != 0 && ((region[1] ^ t->last[0]) | (region[2] ^ t->last[1]) | (region[3] ^ t->last[2]) |
                                 (region[4] ^ t->last[3])) == 0;
}

/* Keeps a copy of a region for those who look at the task; the word that says where.  0: no memory. */
static uint32_t keep_region(pto_graph *g, const pto_tensor *t, const int64_t *region) {
    size_t words = 1 + 2 * (size_t)t->rank;
    uint32_t number;
    int64_t **place = pto__slab_take(&g->regions, &g->supply, PTO_LOG2_REGION, &number);
    int64_t *copy = place == NULL || number >= PTO_EXPLICIT
                        ? NULL
                        : pto__arena_take(&g->arena, &g->supply, words * sizeof *copy);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, region, words * sizeof *copy);
    *place = copy;
    return number | PTO_EXPLICIT;
}

/* ---- tasks ---- */

size_t pto__payload_bytes(const pto_graph *g, const pto_task_kind *kind) {
    size_t words = (size_t)kind->num_slots + ((size_t)kind->num_accesses + 1) / 2;
    return (words + (g->state == PTO_LIVE || words == 0)) * sizeof(int64_t);
}

/* The access of a region that is not one tile.  *word is 0 for an empty one; t == 0: no task, no word. */
static int32_t access_region(pto_graph *g, uint32_t t, const pto_tensor *tensor, const int64_t *region, int32_t access,
                             uint32_t *word) {
    bool empty;
    if (check_region(tensor, region, &empty) != PTO_OK) {
        return PTO_BAD_ARGUMENT;
    }
    if (empty) {
        return PTO_OK;
    }
    if (t != 0) {
        *word = keep_region(g, tensor, region);
        if (*word == 0) {
            return PTO_NO_MEMORY;
        }
    }
    const int64_t *box = box_of(g, tensor, region);
    pto_lattice *l = &g->lattices[tensor->lattice];
    bool good = box != NULL && (!(access & PTO_READ) || pto__index_read(g, t, l, box)) &&
                (!(access & PTO_WRITE) || pto__index_write(g, t, l, box));
    return good ? PTO_OK : PTO_NO_MEMORY;
}

/* The accesses of a task, in turn.  `recording`: known at compile time. */
static PTO_ALWAYS_INLINE int32_t access_all(pto_graph *g, uint32_t t, const pto_task_kind *kind, uint32_t *words,
                                            const int64_t *region, bool recording) {
    int32_t count = kind->num_accesses;
    const int32_t *accesses = kind->accesses;
    pto_tensor *tensors = g->tensors; /* no tensor is added meanwhile */
    uint32_t num_tensors = g->num_tensors;
    for (int32_t i = 0; i < count; i++) {
        if (PTO_UNLIKELY((uint64_t)region[0] >= num_tensors)) {
            return PTO_BAD_ARGUMENT;
        }
        pto_tensor *tensor = &tensors[region[0]];
        int32_t access = accesses[i];
        pto_cell *cell = tensor->last_cell;
        uint32_t word = tensor->last_word;
        if (!is_last(tensor, region)) {
            word = tile_of(g, tensor, region);
            cell = word != 0 ? pto__cell(g, word) : NULL;
        }
        words[i] = word;
        if (PTO_LIKELY(word != 0)) {
            bool good = access == PTO_READ    ? pto__cell_read(g, t, cell, recording)
                        : access == PTO_WRITE ? pto__cell_write(g, t, cell, recording)
                                              : pto__cell_update(g, t, cell, recording);
            if (PTO_UNLIKELY(!good)) {
                return PTO_NO_MEMORY;
            }
        } else {
            int32_t status = access_region(g, t, tensor, region, access, &words[i]);
            if (PTO_UNLIKELY(status != PTO_OK)) {
                return status;
            }
        }
        region += 1 + 2 * tensor->rank;
    }
    return PTO_OK;
}

int32_t pto_task(pto_graph *g, const pto_task_kind *kind, const int64_t *slots, const int64_t *regions) {
    bool live = g->state == PTO_LIVE;
    if (PTO_UNLIKELY(g->error != PTO_OK)) {
        return g->error;
    }
    if (live) {
        int32_t status = pto__live_room(g);
        if (PTO_UNLIKELY(status != PTO_OK)) {
            return refuse(g, status);
        }
    } else if (PTO_UNLIKELY(g->state != PTO_RECORDING)) {
        return PTO_BAD_ARGUMENT;
    }
    uint32_t t;
    pto_task_record *record = pto__slab_take(&g->tasks, &g->supply, PTO_LOG2_TASK, &t);
    int64_t *payload = record == NULL ? NULL : pto__arena_take(&g->arena, &g->supply, pto__payload_bytes(g, kind));
    if (PTO_UNLIKELY(payload == NULL)) {
        return refuse(g, PTO_NO_MEMORY);
    }
    if (live) {
        *payload++ = g->num_tasks;
    }
    int32_t num_slots = kind->num_slots;
    for (int32_t i = 0; i < num_slots; i++) {
        payload[i] = slots[i];
    }
    record->kind = kind;
    record->payload = payload;
    record->next = 0;
    g->fanin = 0;
    /* relaxed, both: published by the first edge, or by the lane */
    atomic_store_explicit(&record->pending, PTO_UNSUBMITTED, memory_order_relaxed);
    atomic_store_explicit(&record->successors, 0, memory_order_relaxed);
    uint32_t *words = (uint32_t *)(void *)(payload + num_slots);
    int32_t status = PTO_LIKELY(!live) ? access_all(g, t, kind, words, regions, true)
                                       : access_all(g, t, kind, words, regions, false);
    if (PTO_UNLIKELY(status != PTO_OK)) {
        return refuse(g, status); /* the record stays as it is: unsubmitted, so it never runs */
    }
    uint32_t fanin = g->fanin;
    g->num_tasks++;
    g->num_edges += fanin;
    if (PTO_LIKELY(!live)) {
        record->fanin = fanin;
        atomic_store_explicit(&record->pending, fanin, memory_order_relaxed); /* one thread */
        g->num_roots += fanin == 0;
        return PTO_OK;
    }
    uint32_t remove = PTO_UNSUBMITTED - fanin;
    /* acq_rel: release pairs with whoever takes the last one off, acquire with those who took theirs off before */
    if (atomic_fetch_sub_explicit(&record->pending, remove, memory_order_acq_rel) == remove) {
        pto__live_ready(g, t);
    }
    return PTO_OK;
}

int32_t pto_graph_wait_region(pto_graph *g, int32_t access, const int64_t *region) {
    if (g->error != PTO_OK) {
        return g->error;
    }
    if ((uint64_t)region[0] >= g->num_tensors || (access & ~PTO_READ_WRITE) != 0 || access == 0) {
        return PTO_BAD_ARGUMENT;
    }
    const pto_tensor *tensor = &g->tensors[region[0]];
    g->num_predecessors = 0;
    int32_t status = access_region(g, 0, tensor, region, access, NULL);
    if (status == PTO_NO_MEMORY) {
        return refuse(g, status);
    }
    if (status != PTO_OK || g->num_predecessors == 0) {
        return status;
    }
    return g->state == PTO_LIVE ? pto__live_wait_for(g) : PTO_NOT_RUN;
}

/* ---- in steps ---- */

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

int64_t pto_task_alloc(pto_graph *g, const char *name, pto_task_fn function, int64_t buffer_bytes, const int64_t *slots,
                       int32_t num_slots) {
    pto_draft *d = &g->draft;
    if (g->error != PTO_OK) {
        return -(int64_t)g->error;
    }
    if (d->number >= 0 || num_slots < 0) {
        return -(int64_t)PTO_BAD_ARGUMENT;
    }
    if (!pto__grow(g, (void **)&d->slots, &d->room_slots, (uint32_t)num_slots, sizeof *d->slots)) {
        return -(int64_t)refuse(g, PTO_NO_MEMORY);
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
        return PTO_BAD_ARGUMENT;
    }
    const pto_tensor *t = &g->tensors[tensor];
    uint32_t words = 1 + 2 * (uint32_t)t->rank;
    if (!pto__grow(g, (void **)&d->accesses, &d->room_accesses, (uint32_t)d->num_accesses + 1, sizeof *d->accesses) ||
        !pto__grow(g, (void **)&d->regions, &d->room_words, d->num_words + words, sizeof *d->regions)) {
        return refuse(g, PTO_NO_MEMORY);
    }
    int64_t *region = d->regions + d->num_words;
    region[0] = tensor;
    for (int32_t a = 0; a < t->rank; a++) {
        region[1 + a] = offsets[a];
        region[1 + t->rank + a] = extents[a];
    }
    bool empty;
    if (check_region(t, region, &empty) != PTO_OK) {
        return PTO_BAD_ARGUMENT;
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
        return PTO_BAD_ARGUMENT;
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
    return PTO_BAD_ARGUMENT;
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
    if (task < 0 || task != d->number) {
        return PTO_BAD_ARGUMENT;
    }
    const pto_task_kind *kind = own_kind(g, d);
    if (kind == NULL) {
        return refuse(g, PTO_NO_MEMORY);
    }
    d->number = -1;
    return pto_task(g, kind, d->slots, d->regions);
}

/* SPDX-License-Identifier: MIT */
/* Building a graph: creation, and submission of tasks with their regions. */
#include "task_index.h"

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
    pto__slab_init(&g->tasks, PTO_FREE);
    pto__slab_init(&g->links, 1u << 30);
    pto__slab_init(&g->cells, PTO_EXPLICIT);
    pto__slab_init(&g->regions, PTO_EXPLICIT);
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

int32_t pto__graph_refuse(pto_graph *g, int32_t status) {
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
    return status == PTO_NO_MEMORY ? pto__graph_refuse(g, status) : status;
}

/* ---- regions ---- */

int32_t pto__region_check(const pto_tensor *t, const int64_t *region, bool *empty) {
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

/* Notes that the tensor's last region was a whole tile, and how to get from there to other tiles. */
static void remember(pto_tensor *t, const pto_lattice *l, const int64_t *region, pto_cell *cell) {
    for (int32_t a = 0; a < 2; a++) { /* an axis that is not a dimension counts as one tile */
        const pto_stripe whole = {t->extents[a], 0, 0, 0};
        t->stripes[a] = whole;
    }
    int64_t weight = 1;
    for (int32_t d = l->rank - 1; d >= 0; d--) {
        const pto_axis *axis = &t->axes[d];
        const pto_tiling *tiling = &l->tiling[d];
        if (axis->flipped || tiling->tile > axis->extent) {
            return;
        }
        const pto_stripe stripe = {tiling->tile, (uint64_t)(axis->extent - tiling->tile), tiling->magic, weight};
        t->stripes[axis->axis] = stripe;
        weight *= tiling->count;
    }
    if (region[3] != t->stripes[0].tile || region[4] != t->stripes[1].tile) {
        return;
    }
    memcpy(t->last, region + 1, sizeof t->last);
    t->directory = l->directory;
    t->last_cell = cell;
}

/*
 * The cell of a region that is one tile of a tensor which has its lattice to itself; NULL: it is something else, or there
 * is not memory for the cell.
 */
static pto_cell *tile_of(pto_graph *g, pto_tensor *t, const int64_t *region) {
    pto_lattice *l = &g->lattices[t->lattice];
    if (PTO_UNLIKELY(l->state != PTO_TILED || l->num_tensors != 1)) {
        return NULL;
    }
    const int64_t *offsets = region + 1;
    const int64_t *extents = offsets + t->rank;
    if (t->dropped) {
        bool empty;
        if (pto__region_check(t, region, &empty) != PTO_OK || empty) {
            return NULL;
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
            return NULL;
        }
        int64_t q = pto__tile_at(tiling->magic, low);
        if (PTO_UNLIKELY(q * tiling->tile != low ||
                         (extent != tiling->tile &&
                          (extent <= 0 || extent > tiling->tile || extent != axis->extent - low)) ||
                         extent > axis->extent - low)) {
            return NULL;
        }
        tile = tile * tiling->count + q;
    }
    pto_cell *cell = pto__cell_create(g, l, tile);
    if (t->rank == 2 && cell != NULL) {
        remember(t, l, region, cell);
    }
    return cell;
}

/*
 * The cell of a region of a tensor of rank 2 by what the tensor remembers; NULL: by other means.  The way of nearly all
 * accesses.
 */
static PTO_ALWAYS_INLINE pto_cell *remembered_cell(pto_tensor *t, const int64_t *region) {
    pto_cell *cell = t->last_cell;
    if (PTO_UNLIKELY(cell == NULL)) { /* also of any other rank, whose regions have other lengths */
        return NULL;
    }
    uint64_t low0 = (uint64_t)region[1];
    uint64_t low1 = (uint64_t)region[2];
    int64_t extents = (region[3] ^ t->last[2]) | (region[4] ^ t->last[3]);
    if (((low0 ^ (uint64_t)t->last[0]) | (low1 ^ (uint64_t)t->last[1]) | (uint64_t)extents) == 0) {
        return cell;
    }
    const pto_stripe *s = t->stripes;
    if (PTO_UNLIKELY(extents != 0 || low0 > s[0].last || low1 > s[1].last)) {
        return NULL;
    }
    int64_t q0 = pto__tile_at(s[0].magic, (int64_t)low0);
    int64_t q1 = pto__tile_at(s[1].magic, (int64_t)low1);
    if (PTO_UNLIKELY((uint64_t)(q0 * s[0].tile) != low0 || (uint64_t)(q1 * s[1].tile) != low1)) {
        return NULL;
    }
    uint64_t tile = (uint64_t)(q0 * s[0].weight + q1 * s[1].weight);
    pto_cell **page = t->directory[tile / PTO_DIRECTORY_PAGE];
    cell = PTO_LIKELY(page != NULL) ? page[tile % PTO_DIRECTORY_PAGE] : NULL;
    if (PTO_LIKELY(cell != NULL)) {
        t->last[0] = (int64_t)low0;
        t->last[1] = (int64_t)low1;
        t->last_cell = cell;
    }
    return cell;
}

/* Keeps a copy of a region for those who look at the task; the word that says where.  0: no memory. */
static uint32_t keep_region(pto_graph *g, const pto_tensor *t, const int64_t *region) {
    size_t words = 1 + 2 * (size_t)t->rank;
    uint32_t number;
    int64_t **place = pto__slab_take(&g->regions, &g->supply, PTO_LOG2_REGION, &number);
    int64_t *copy = place == NULL ? NULL : pto__arena_take(&g->arena, &g->supply, words * sizeof *copy);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, region, words * sizeof *copy);
    *place = copy;
    return number | PTO_EXPLICIT;
}

/* ---- tasks ---- */

/* The access of a region that is not one tile.  *word is 0 for an empty one; t == 0: no task, no word. */
static int32_t access_region(pto_graph *g, uint32_t t, const pto_tensor *tensor, const int64_t *region, int32_t access,
                             uint32_t *word) {
    bool empty;
    if (pto__region_check(tensor, region, &empty) != PTO_OK) {
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

/* The payload of a recorded task, which is never given back by itself. */
static PTO_ALWAYS_INLINE int64_t *take_payload(pto_graph *g, const pto_task_kind *kind) {
    size_t bytes = pto__payload_bytes(kind, false);
    pto_arena *a = &g->arena;
    if (PTO_UNLIKELY(bytes > a->left)) {
        return pto__arena_take(a, &g->supply, bytes);
    }
    unsigned char *at = a->at;
    PTO_ASSUME(at != NULL); /* a payload has a word at least */
    PTO_SOON_WRITTEN((uintptr_t)at + PTO_AHEAD);
    a->at = at + bytes;
    a->left -= bytes;
    return (int64_t *)(void *)at;
}

/* A new record and the slots of its payload; it is not submitted yet. */
static PTO_ALWAYS_INLINE void write_record(pto_task_record *record, uint32_t t, const pto_task_kind *kind,
                                           int64_t *payload, const int64_t *slots) {
    record->kind = kind;
    record->payload = payload;
    record->next = t;
    /* relaxed, both: published by the first edge, or by the lane */
    atomic_store_explicit(&record->pending, PTO_UNSUBMITTED, memory_order_relaxed);
    atomic_store_explicit(&record->successors, 0, memory_order_relaxed);
    for (int32_t i = 0; i < kind->num_slots; i++) {
        payload[i] = slots[i];
    }
}

/* What is wrong when an access was not made: what it does, or there is no memory. */
static int32_t access_error(int32_t access) {
    return access < PTO_READ || access > PTO_READ_WRITE ? PTO_BAD_ARGUMENT : PTO_NO_MEMORY;
}

/* The edges of an access of a cell, and what is known of it then.  False: see access_error. */
static PTO_ALWAYS_INLINE bool access_cell(pto_graph *g, uint32_t t, pto_task_record *record, pto_cell *cell,
                                          int32_t access, bool recording) {
    return access == PTO_READ         ? pto__cell_read(g, t, cell, recording)
           : access == PTO_WRITE      ? pto__cell_write(g, t, record, cell, recording)
           : access == PTO_READ_WRITE ? pto__cell_update(g, t, record, cell, recording)
                                      : false;
}

/* An access of a region that no tensor remembers. */
static int32_t access_other(pto_graph *g, uint32_t t, pto_tensor *tensor, const int64_t *region, int32_t access,
                            uint32_t *word) {
    pto_cell *cell = tile_of(g, tensor, region);
    if (cell == NULL) {
        *word = 0;
        return access_error(access) == PTO_BAD_ARGUMENT ? PTO_BAD_ARGUMENT
                                                        : access_region(g, t, tensor, region, access, word);
    }
    *word = cell->number;
    return access_cell(g, t, pto__task(g, t), cell, access, g->state == PTO_RECORDING) ? PTO_OK : access_error(access);
}

/* The accesses of a task, in turn.  `recording`: known at compile time. */
static PTO_ALWAYS_INLINE int32_t access_all(pto_graph *g, uint32_t t, pto_task_record *record,
                                            const pto_task_kind *kind, uint32_t *words, const int64_t *region,
                                            bool recording) {
    const int32_t *accesses = kind->accesses;
    const int32_t *end = accesses + kind->num_accesses;
    for (; accesses < end; accesses++, words++) {
        if (PTO_UNLIKELY((uint64_t)region[0] >= g->num_tensors)) {
            return PTO_BAD_ARGUMENT;
        }
        pto_tensor *tensor = &g->tensors[region[0]];
        pto_cell *cell = remembered_cell(tensor, region);
        if (PTO_LIKELY(cell != NULL)) {
            *words = cell->number;
            if (PTO_UNLIKELY(!access_cell(g, t, record, cell, *accesses, recording))) {
                return access_error(*accesses);
            }
            region += 5; /* a constant: where the next region is must not wait for the tensor */
        } else {
            int32_t status = access_other(g, t, tensor, region, *accesses, words);
            if (PTO_UNLIKELY(status != PTO_OK)) {
                return status;
            }
            region += tensor->region_words;
        }
    }
    return PTO_OK;
}

/* A task of a live graph. */
static int32_t submit_live(pto_graph *g, const pto_task_kind *kind, const int64_t *slots, const int64_t *regions) {
    int32_t status = pto__live_room(g);
    if (PTO_UNLIKELY(status != PTO_OK)) {
        return pto__graph_refuse(g, status);
    }
    uint32_t t;
    pto_task_record *record = pto__slab_take(&g->tasks, &g->supply, PTO_LOG2_TASK, &t);
    int64_t *payload = record == NULL ? NULL : pto__arena_take(&g->arena, &g->supply, pto__payload_bytes(kind, true));
    if (PTO_UNLIKELY(payload == NULL)) {
        return pto__graph_refuse(g, PTO_NO_MEMORY);
    }
    *payload++ = g->num_tasks;
    write_record(record, t, kind, payload, slots);
    g->fanin = 0;
    status = access_all(g, t, record, kind, (uint32_t *)(void *)(payload + kind->num_slots), regions, false);
    if (PTO_UNLIKELY(status != PTO_OK)) {
        return pto__graph_refuse(g, status); /* the record stays as it is: unsubmitted, so it never runs */
    }
    g->num_tasks++;
    g->num_edges += g->fanin;
    uint32_t remove = PTO_UNSUBMITTED - g->fanin;
    if (g->solo) { /* one thread, and no task runs between submissions but when the window is full */
        uint32_t left = atomic_load_explicit(&record->pending, memory_order_relaxed) - remove;
        atomic_store_explicit(&record->pending, left, memory_order_relaxed);
        if (left == 0) {
            pto__run_ready(g, t);
        }
        return PTO_OK;
    }
    /* acq_rel: release pairs with whoever takes the last one off, acquire with those who took theirs off before */
    if (atomic_fetch_sub_explicit(&record->pending, remove, memory_order_acq_rel) == remove) {
        pto__run_ready(g, t);
    }
    return PTO_OK;
}

static int32_t submit_other(pto_graph *g, const pto_task_kind *kind, const int64_t *slots, const int64_t *regions) {
    return g->error != PTO_OK      ? g->error
           : g->state == PTO_LIVE ? submit_live(g, kind, slots, regions)
                                  : PTO_BAD_ARGUMENT;
}

int32_t pto_task(pto_graph *g, const pto_task_kind *kind, const int64_t *slots, const int64_t *regions) {
    if (PTO_UNLIKELY(g->state != PTO_RECORDING || g->error != PTO_OK)) {
        return submit_other(g, kind, slots, regions);
    }
    uint32_t t;
    pto_task_record *record = pto__slab_new(&g->tasks, &g->supply, PTO_LOG2_TASK, &t);
    int64_t *payload = record == NULL ? NULL : take_payload(g, kind);
    if (PTO_UNLIKELY(payload == NULL)) {
        return pto__graph_refuse(g, PTO_NO_MEMORY);
    }
    write_record(record, t, kind, payload, slots);
    g->fanin = 0;
    int32_t status = access_all(g, t, record, kind, (uint32_t *)(void *)(payload + kind->num_slots), regions, true);
    if (PTO_UNLIKELY(status != PTO_OK)) {
        return pto__graph_refuse(g, status);
    }
    uint32_t fanin = g->fanin;
    record->fanin = fanin;
    atomic_store_explicit(&record->pending, fanin, memory_order_relaxed); /* one thread */
    g->num_tasks++;
    g->num_edges += fanin;
    g->num_roots += fanin == 0;
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
        return pto__graph_refuse(g, status);
    }
    if (status != PTO_OK || g->num_predecessors == 0) {
        return status;
    }
    return g->state == PTO_LIVE ? pto__live_wait_for(g) : PTO_NOT_RUN;
}

/* SPDX-License-Identifier: MIT */
/*
 * The shapes behind pto_graph, and which file looks after which.
 *
 *   task_memory.c    blocks from the recycled memory, cut into pages; numbered elements (slabs); payloads
 *   task_lattice.c   tensors, the lattice that each one's elements lie on, and when two boxes share a byte
 *   task_index.c     who wrote and read what: cells of a regular tiling, or arbitrary boxes
 *   task_boxes.c     the boxes of one lattice: search, cutting, covering
 *   task_graph.c     building: kinds, accesses, edges, submission
 *   task_run.c       running: lanes, stealing, the bounded window, cancelling, failures
 *   task_report.c    what a graph looks like: tasks, edges, measures, the dump
 *
 * One thread builds a graph (the builder); only it touches the index, the slabs' free lists and the payloads.  Other
 * threads read task records, links and payloads, and change `pending` and `successors`.
 */
#ifndef PTO_TASKS_H
#define PTO_TASKS_H

#include "internal.h"

/* ---- task_memory.c ---- */

#define PTO_PAGE_BYTES 4096u

typedef struct pto_piece {
    struct pto_piece *next;
    struct pto_piece *previous;
    size_t bytes;
} pto_piece; /* the head of a block taken from the pool */

typedef struct pto_supply {
    pto_pool *pool;
    pto_piece *blocks; /* everything taken, the newest first */
    unsigned char *page;
    uint32_t pages_left; /* from `page` on */
    bool paged;          /* not the first pages */
    int64_t bytes;       /* of all blocks */
} pto_supply;

/*
 * Elements of one size with numbers from 1.  Growing replaces the table and keeps the old one until the end, so that a
 * thread that reads an element while the builder adds others finds it either way.
 */
typedef struct pto_slab {
    _Atomic(unsigned char **) table; /* one entry per page */
    uint32_t table_length;
    uint32_t end;  /* numbers 1 .. end-1 were given out */
    uint32_t room; /* numbers below this one have memory */
    unsigned char *cursor; /* of number `end` */
    uint32_t free; /* the first of the numbers given back; its first word is the next one; 0: none */
} pto_slab;

/* Base-2 logarithms of the sizes of elements. */
#define PTO_LOG2_TASK 5u
#define PTO_LOG2_LINK 4u
#define PTO_LOG2_CELL 4u
#define PTO_LOG2_REGION 3u

/* What variable things are kept in: 8-byte units; those given back are kept by size. */
#define PTO_SMALL_UNITS 64u
typedef struct pto_arena {
    unsigned char *at;
    size_t left;
    void *free[PTO_SMALL_UNITS + 1];
} pto_arena;

void *pto__supply_block(pto_supply *s, size_t bytes); /* NULL: no memory */
void pto__supply_release(pto_supply *s, void *block); /* gives one of pto__supply_block back before the end */
void pto__supply_end(pto_supply *s);
void pto__slab_init(pto_slab *slab);
bool pto__slab_grow(pto_slab *slab, pto_supply *s, uint32_t log2); /* makes room; false: no memory */
void *pto__arena_take_slow(pto_arena *a, pto_supply *s, size_t bytes);
void pto__arena_give(pto_arena *a, pto_supply *s, void *p, size_t bytes);

static inline void *pto__slab_at(pto_slab *slab, uint32_t number, uint32_t log2) {
    /* acquire: pairs with the release in pto__slab_grow; the element itself was handed over by other means */
    unsigned char **table = atomic_load_explicit(&slab->table, memory_order_acquire);
    return table[number >> (12u - log2)] + ((size_t)(number & ((1u << (12u - log2)) - 1)) << log2);
}

/* A new element and its number; NULL: no memory. */
static inline void *pto__slab_take(pto_slab *slab, pto_supply *s, uint32_t log2, uint32_t *number) {
    if (slab->free != 0) {
        uint32_t *element = pto__slab_at(slab, slab->free, log2);
        *number = slab->free;
        slab->free = *element;
        return element;
    }
    if (PTO_UNLIKELY(slab->end >= slab->room) && !pto__slab_grow(slab, s, log2)) {
        return NULL;
    }
    void *element = slab->cursor;
    slab->cursor += (size_t)1 << log2;
    *number = slab->end++;
    return element;
}

static inline void pto__slab_give(pto_slab *slab, uint32_t number, uint32_t log2) {
    *(uint32_t *)pto__slab_at(slab, number, log2) = slab->free;
    slab->free = number;
}

/* `bytes` (a multiple of 8) bytes; NULL: no memory. */
static inline void *pto__arena_take(pto_arena *a, pto_supply *s, size_t bytes) {
    size_t units = bytes / 8;
    if (PTO_LIKELY(units <= PTO_SMALL_UNITS)) {
        void *p = a->free[units];
        if (p != NULL) {
            a->free[units] = *(void **)p;
            return p;
        }
        if (PTO_LIKELY(bytes <= a->left)) {
            p = a->at;
            a->at += bytes;
            a->left -= bytes;
            return p;
        }
    }
    return pto__arena_take_slow(a, s, bytes);
}

/*
 * A list of tasks is one word: 4 * the number of a link + how many of its places are taken; 0: empty.  Several tasks to
 * a link make long lists few loads that wait for each other.
 */
#define PTO_LINK_TASKS 3u
typedef struct pto_link {
    uint32_t next; /* a list: the links before are full; in the free list of the slab: a number */
    uint32_t tasks[PTO_LINK_TASKS];
} pto_link;

/* What is known of one tile of a regular tiling. */
typedef struct pto_cell {
    uint32_t writer;  /* the last one; 0: none */
    uint32_t readers; /* a list: those since */
    uint32_t lattice;
    uint32_t tile;
} pto_cell;

_Static_assert(sizeof(pto_link) == 1u << PTO_LOG2_LINK && sizeof(pto_cell) == 1u << PTO_LOG2_CELL &&
                   sizeof(int64_t *) == 1u << PTO_LOG2_REGION,
               "elements of slabs have the sizes that their numbers are scaled with");

/* ---- task_lattice.c ---- */

/* One axis of a tensor as a dimension of its lattice: coordinate = shift + offset (or counted from the other end). */
typedef struct pto_axis {
    int64_t shift;
    int64_t extent;
    int32_t axis; /* which of the tensor's */
    int32_t flipped;
} pto_axis;

typedef struct pto_tensor {
    uint32_t lattice; /* its number */
    int32_t rank;
    /* The last region that was one tile (rank 2 only): in loops most regions stay as they are. */
    uint32_t last_word; /* the number of its cell; 0: none */
    pto_cell *last_cell;
    int64_t last[4];
    bool dropped;            /* has axes that are no dimensions: of extent 1, or with stride 0 */
    uint32_t next_same_hash; /* 1 + number */
    int64_t base;
    int64_t element_bytes;
    int64_t *extents;
    int64_t *strides;
    pto_axis *axes; /* one per dimension of the lattice */
} pto_tensor;

typedef struct pto_box_index pto_box_index;
typedef struct pto_box pto_box;

/* One dimension of a regular tiling. */
typedef struct pto_tiling {
    int64_t tile;
    uint64_t magic; /* floor(2^64 / tile) + 1; 0 for a tile of 1 */
    int64_t count;
} pto_tiling;

/*
 * The positions that the elements of some tensors lie on: origin + sum(coordinate[d] * stride[d]), strides descending
 * and positive, different coordinates different addresses.  Tensors that are views of one another (slices, transposed,
 * reversed) share a lattice; others that overlap in memory have lattices that are neighbours.
 */
typedef struct pto_lattice {
    int32_t rank;
    int32_t state; /* enum pto_lattice_state */
    uint32_t num_tensors;
    uint32_t first_tensor; /* the one it was made for */
    bool overlapping; /* different coordinates may mean the same address (windows over an array) */
    int64_t origin;
    int64_t element_bytes;
    int64_t low; /* addresses [low, high) of its tensors */
    int64_t high;
    int64_t *stride;
    int64_t *floor;  /* coordinates are in [floor, end) */
    int64_t *end;
    pto_tiling *tiling;
    uint32_t **directory; /* PTO_TILED: cells by number of tile, in pages of 1024 */
    pto_box_index *boxes; /* PTO_BOXED */
    uint32_t *neighbours;
    uint32_t num_neighbours;
    uint32_t room_neighbours;
} pto_lattice;

enum pto_lattice_state {
    PTO_UNTOUCHED, /* no access yet */
    PTO_TILED,     /* every access so far was made of whole tiles of one regular tiling */
    PTO_BOXED      /* any boxes */
};

/* The number of the tile that has coordinate x, 0 <= x < 2^31, counted from the first. */
static inline int64_t pto__tile_at(const pto_tiling *t, int64_t x) {
    return t->magic == 0 ? x : (int64_t)((unsigned __int128)(uint64_t)x * t->magic >> 64);
}

#define PTO_DIRECTORY_PAGE 1024u
#define PTO_MOST_TILES ((int64_t)1 << 22)

int32_t pto__tensor_add(pto_graph *g, int64_t base, int64_t element_bytes, int32_t rank, const int64_t *extents,
                        const int64_t *strides, int32_t *number);
bool pto__boxes_meet(const pto_lattice *a, const int64_t *a_box, const pto_lattice *b, const int64_t *b_box);
void pto__box_addresses(const pto_lattice *l, const int64_t *box, int64_t *low, int64_t *high);

/* ---- tasks ---- */

#define PTO_CLOSED UINT32_MAX          /* successors: the task has finished */
#define PTO_FINISHED UINT32_MAX        /* pending: everything about the task is done */
#define PTO_RETIRED (UINT32_MAX - 1)   /* pending: finished, and about to be given back */
#define PTO_FREE (UINT32_MAX - 2)      /* pending: the record is in the free list */
#define PTO_UNSUBMITTED 0x80000000u    /* pending: added while the builder still adds edges */
#define PTO_EXPLICIT 0x80000000u       /* in the word of an access: an element of `regions`; else a cell, or 0: empty */

typedef struct pto_task_record {
    const pto_task_kind *kind;
    int64_t *payload;          /* slots; then a word per access; then explicit regions; in front of it, live, the number */
    atomic_uint pending;       /* predecessors that have not finished */
    atomic_uint successors;    /* a list; PTO_CLOSED: nothing can be added */
    uint32_t fanin;            /* recorded: of the graph; live: the list to be given back */
    uint32_t next;             /* recording: the newest successor; running: a lane's private list */
} pto_task_record;

_Static_assert(sizeof(pto_task_record) == 1u << PTO_LOG2_TASK, "two records share a cache line");

/* ---- lanes: one thread's ready tasks ---- */

typedef struct pto_ring {
    struct pto_ring *older;
    size_t bytes;
    uint64_t mask;
    atomic_uint tasks[];
} pto_ring;

typedef struct pto_lane {
    _Alignas(PTO_CACHE_LINE) _Atomic(int64_t) top; /* thieves take here */
    _Alignas(PTO_CACHE_LINE) _Atomic(int64_t) bottom;
    _Atomic(pto_ring *) ring;
    uint32_t private_list; /* ready tasks that no thief sees */
    _Atomic(uint64_t) finished; /* tasks */
    atomic_uint owned;
    struct pto_lane *victim; /* where the last theft succeeded */
} pto_lane;

enum pto_graph_state {
    PTO_RECORDING, /* tasks are kept, none has run */
    PTO_LIVE,      /* tasks run as soon as they may */
    PTO_RUNNING    /* a recorded graph that runs */
};

typedef struct pto_draft {
    int64_t number; /* -1: none */
    const char *name;
    pto_task_fn function;
    int64_t buffer_bytes;
    int64_t *slots;
    int32_t *accesses;
    int64_t *regions;
    uint32_t room_slots;
    uint32_t room_accesses;
    uint32_t room_words;
    uint32_t num_words; /* of regions */
    int32_t num_slots;
    int32_t num_accesses;
} pto_draft;

typedef struct pto_own_kind {
    struct pto_own_kind *next;
    pto_task_kind kind;
} pto_own_kind;

struct pto_graph {
    pto_runtime *rt;
    int32_t state;
    int32_t error; /* the first failure to build, repeated by every later call */
    uint32_t window;
    bool solo; /* one lane */
    bool tracing;
    bool ran; /* pending has to be set again */
    pto_supply supply;
    int64_t lent; /* of its bytes: what pto_graph_buffer gave away */
    pto_slab tasks;
    pto_slab links;
    pto_slab cells;
    pto_slab regions; /* pointers to the regions of accesses that are not one cell */
    pto_arena arena;
    int64_t num_tasks; /* submitted */
    int64_t num_edges;
    uint32_t fanin; /* of the task that is being submitted, so far */
    int64_t num_roots; /* recorded tasks without predecessors */
    pto_trace_event *trace;
    int64_t trace_length;

    pto_tensor *tensors;
    uint32_t num_tensors;
    uint32_t room_tensors;
    uint32_t *tensor_buckets; /* by hash of the description */
    uint32_t num_tensor_buckets;
    pto_lattice *lattices;
    uint32_t num_lattices;
    uint32_t room_lattices;
    uint32_t *by_address; /* numbers of the lattices in use, by their low ends */
    uint32_t num_by_address;
    uint32_t room_by_address;
    int64_t *highest; /* of by_address[0 .. i]: the highest end */
    uint32_t room_highest;
    uint32_t conversions; /* lattices that went to PTO_BOXED */
    pto_box **found;      /* of a search in boxes */
    uint32_t num_found;
    uint32_t room_found;
    uint32_t stamp; /* of the last search */
    int64_t *box; /* of the region at hand */
    uint32_t room_box;
    uint32_t *predecessors; /* collected for a wait */
    uint32_t num_predecessors;
    uint32_t room_predecessors;

    pto_draft draft;
    pto_own_kind *own_kinds;

    /* running */
    pto_worker *builder; /* live: whose launch it is */
    pto_lane *lanes;
    uint32_t num_lanes;
    int32_t crew; /* the slot that brings helpers; -1: none */
    uint32_t failed_task; /* a record that is kept; under the lock */
    int32_t failed_status;
    _Alignas(PTO_CACHE_LINE) _Atomic(int64_t) failed_number; /* tasks after it do not run; INT64_MAX: none */
    atomic_bool cancelled;
    pto_lock failure_lock;
    pto_failure failure; /* under the lock */
    pto_lane own_lane;   /* of a graph that runs on one thread */
    _Alignas(PTO_CACHE_LINE) atomic_uint inside;  /* helpers that look for work here */
    atomic_uint waiting; /* the owner sleeps, or is about to */
    pto_gate gate;       /* where */
};

static inline pto_task_record *pto__task(pto_graph *g, uint32_t number) {
    return pto__slab_at(&g->tasks, number, PTO_LOG2_TASK);
}
static inline pto_link *pto__link(pto_graph *g, uint32_t number) {
    return pto__slab_at(&g->links, number, PTO_LOG2_LINK);
}
static inline pto_cell *pto__cell(pto_graph *g, uint32_t number) {
    return pto__slab_at(&g->cells, number, PTO_LOG2_CELL);
}
static inline int64_t **pto__region(pto_graph *g, uint32_t number) {
    return pto__slab_at(&g->regions, number, PTO_LOG2_REGION);
}
#if defined(__GNUC__) || defined(__clang__)
#define PTO_ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define PTO_ALWAYS_INLINE inline
#endif

/* The link that a list begins with, and the tasks in it. */
static inline pto_link *pto__list_link(pto_graph *g, uint32_t list) { return pto__link(g, list >> 2); }
static inline uint32_t pto__list_count(uint32_t list) { return list & 3u; }

/* The list with one task more; 0: no memory. */
static PTO_ALWAYS_INLINE uint32_t pto__list_add(pto_graph *g, uint32_t list, uint32_t t) {
    uint32_t count = pto__list_count(list);
    if (list != 0 && count < PTO_LINK_TASKS) {
        pto__list_link(g, list)->tasks[count] = t;
        return list + 1;
    }
    uint32_t number;
    pto_link *link = pto__slab_take(&g->links, &g->supply, PTO_LOG2_LINK, &number);
    if (PTO_UNLIKELY(link == NULL || number >= 1u << 30)) {
        return 0;
    }
    link->next = list;
    link->tasks[0] = t;
    return 4 * number + 1;
}

/* Doubles an array kept by the supply until it has room for `wanted`; false: no memory. */
bool pto__grow(pto_graph *g, void **array, uint32_t *room, uint32_t wanted, size_t element_bytes);

/* ---- task_index.c ---- */

/* The access of task `t` (0: only collects the predecessors).  False: no memory. */
bool pto__index_read(pto_graph *g, uint32_t t, pto_lattice *l, const int64_t *box);
bool pto__index_write(pto_graph *g, uint32_t t, pto_lattice *l, const int64_t *box);
void pto__forget_last(pto_graph *g, const pto_lattice *l); /* the tiles that its tensors remember */
uint32_t pto__cell_create(pto_graph *g, pto_lattice *l, int64_t tile); /* 0: no memory */
void pto__tile_box(const pto_lattice *l, int64_t tile, int64_t *box);
bool pto__index_box(pto_graph *g, pto_lattice *l); /* to PTO_BOXED */
bool pto__index_prune(pto_graph *g); /* forgets finished tasks; false: no memory to do so */
bool pto__edge_other(pto_graph *g, uint32_t from, uint32_t to);
bool pto__edges_from_list(pto_graph *g, uint32_t list, uint32_t t);
uint32_t pto__list_prune(pto_graph *g, uint32_t list); /* without the retired tasks */
void pto__list_give(pto_graph *g, uint32_t list);

/*
 * Orders `to` after `from`, once.  to == 0: only notes that there would be an order.  False: no memory.
 * `recording`: the graph is being recorded and `to` is a task; known at compile time where it matters.
 */
static PTO_ALWAYS_INLINE bool pto__edge_if(pto_graph *g, uint32_t from, uint32_t to, bool recording) {
    if (!recording) {
        return pto__edge_other(g, from, to);
    }
    pto_task_record *p = pto__task(g, from);
    if (from == to || p->next == to) {
        return true;
    }
    uint32_t list = atomic_load_explicit(&p->successors, memory_order_relaxed); /* one thread, here and below */
    list = pto__list_add(g, list, to);
    if (PTO_UNLIKELY(list == 0)) {
        return false;
    }
    p->next = to;
    atomic_store_explicit(&p->successors, list, memory_order_relaxed);
    g->fanin++;
    return true;
}

static inline bool pto__edge(pto_graph *g, uint32_t from, uint32_t to) {
    return pto__edge_if(g, from, to, g->state == PTO_RECORDING && to != 0);
}

static PTO_ALWAYS_INLINE bool pto__cell_read(pto_graph *g, uint32_t t, pto_cell *cell, bool recording) {
    if (cell->writer != 0 && PTO_UNLIKELY(!pto__edge_if(g, cell->writer, t, recording))) {
        return false;
    }
    if (!recording && t == 0) {
        return true;
    }
    uint32_t list = pto__list_add(g, cell->readers, t);
    if (PTO_UNLIKELY(list == 0)) {
        return false;
    }
    cell->readers = list;
    return true;
}

static PTO_ALWAYS_INLINE bool pto__cell_write(pto_graph *g, uint32_t t, pto_cell *cell, bool recording) {
    uint32_t list = cell->readers;
    if (list != 0) { /* they come after the writer */
        bool keep = !recording && t == 0;
        while (list != 0) {
            pto_link *link = pto__list_link(g, list);
            for (uint32_t i = 0; i < pto__list_count(list); i++) {
                if (PTO_UNLIKELY(!pto__edge_if(g, link->tasks[i], t, recording))) {
                    cell->readers = list; /* the links before are given back */
                    return false;
                }
            }
            uint32_t number = list >> 2;
            list = link->next;
            if (!keep) {
                link->next = g->links.free;
                g->links.free = number;
            }
        }
        if (keep) {
            return true;
        }
        cell->readers = 0;
    } else if (cell->writer != 0 && PTO_UNLIKELY(!pto__edge_if(g, cell->writer, t, recording))) {
        return false;
    }
    if (recording || t != 0) {
        cell->writer = t;
    }
    return true;
}

/* A read and then a write, without going through the list of readers. */
static PTO_ALWAYS_INLINE bool pto__cell_update(pto_graph *g, uint32_t t, pto_cell *cell, bool recording) {
    uint32_t writer = cell->writer;
    if (writer != 0 && PTO_UNLIKELY(!pto__edge_if(g, writer, t, recording))) {
        return false;
    }
    if (cell->readers != 0) {
        return pto__cell_write(g, t, cell, recording);
    }
    if (recording || t != 0) {
        cell->writer = t;
    }
    return true;
}

/* ---- task_boxes.c ---- */

pto_box_index *pto__boxes_create(pto_graph *g, const pto_lattice *l);
bool pto__boxes_read(pto_graph *g, pto_lattice *l, uint32_t t, const int64_t *box);
bool pto__boxes_write(pto_graph *g, pto_lattice *l, uint32_t t, const int64_t *box);
bool pto__boxes_insert(pto_graph *g, pto_lattice *l, const int64_t *box, uint32_t writer, uint32_t readers);
bool pto__boxes_conflicts(pto_graph *g, pto_lattice *l, uint32_t t, const pto_lattice *other, const int64_t *box,
                          bool write);
bool pto__boxes_prune(pto_graph *g, pto_lattice *l);

/* ---- task_run.c ---- */

int32_t pto__live_room(pto_graph *g);           /* waits until the window has room */
void pto__live_ready(pto_graph *g, uint32_t t); /* a task of a live graph may run */
int32_t pto__live_wait_for(pto_graph *g);       /* for g->predecessors */
void pto__lanes_destroy(pto_graph *g);

/* ---- task_graph.c ---- */

pto_graph *pto__graph_create(pto_runtime *rt); /* NULL: no memory */
size_t pto__payload_bytes(const pto_graph *g, const pto_task_kind *kind);

static inline bool pto__finished(pto_graph *g, uint32_t t) {
    /* acquire: pairs with the release in finish(); the record is not used by its worker any more */
    return atomic_load_explicit(&pto__task(g, t)->pending, memory_order_acquire) == PTO_FINISHED;
}

static inline bool pto__retired(pto_graph *g, uint32_t t) {
    return atomic_load_explicit(&pto__task(g, t)->pending, memory_order_relaxed) == PTO_RETIRED; /* the builder's word */
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * The shapes behind pto_graph, and which file looks after which.
 *
 *   task_memory.c    blocks from the recycled memory, cut into pages; numbered elements (slabs); payloads
 *   task_lattice.c   tensors, the lattice that each one's elements lie on, and when two boxes share a byte
 *   task_index.c     who wrote and read what: cells of a regular tiling, or arbitrary boxes; task_index.h: the fast way
 *   task_boxes.c     the boxes of one lattice: cutting, covering; task_buckets.c finds them
 *   task_graph.c     building: regions, accesses, submission; task_steps.c: the same in steps
 *   task_run.c       running one task after the other, helpers, waiting, failures
 *   task_lanes.c     the threads' deques of ready tasks; task_lanes.h: their operations
 *   task_recorded.c  runs of recorded graphs
 *   task_live.c      graphs that run while they are built: the bounded window
 *   task_report.c    what a graph looks like: tasks, edges, measures; task_dump.c: as text
 *
 * One thread builds a graph (the builder); only it touches the index, the slabs' free lists and the payloads.  Other
 * threads read task records, links and payloads, and change `pending` and `successors`.
 */
#ifndef PTO_TASKS_H
#define PTO_TASKS_H

#include "task_memory.h"

/* ---- what is known of a tile ---- */

/*
 * A list of tasks is one word: 4 * the number of a link + how many of its places are taken; 0: empty.  Several tasks to
 * a link make long lists few loads that wait for each other.  Counted in words of 4 bytes, a list is the next free place.
 */
#define PTO_LINK_TASKS 3u
typedef struct pto_link {
    uint32_t tasks[PTO_LINK_TASKS];
    uint32_t next; /* a list: the links before are full */
} pto_link;

/* What is known of one tile of a regular tiling. */
typedef struct pto_cell {
    uint32_t writer;  /* the last one; 0: none */
    uint32_t reader;  /* the first since; 0: none */
    uint32_t readers; /* a list: the others; empty when there is no first */
    uint32_t number;  /* its own */
    uint32_t lattice;
    uint32_t tile;
    struct pto_task_record *writer_record;
} pto_cell;

_Static_assert(sizeof(pto_link) == 1u << PTO_LOG2_LINK && PTO_PAGE_BYTES == 4096 && sizeof(pto_cell) == 1u << PTO_LOG2_CELL &&
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

/* How an offset along one axis of a tensor of rank 2 gives the tile: offset / tile * weight, summed over both. */
typedef struct pto_stripe {
    int64_t tile;
    uint64_t last; /* the largest offset of a whole tile */
    uint64_t magic;
    int64_t weight;
} pto_stripe;

typedef struct pto_tensor {
    /*
     * Tensors of rank 2 only, NULL when there is none: the last region that was one tile.  In loops most regions stay as
     * they are, and those that move go from tile to tile, which the stripes are for.
     */
    _Alignas(PTO_CACHE_LINE) pto_cell *last_cell;
    int64_t last[4];
    pto_stripe stripes[2];
    pto_cell ***directory; /* the lattice's */
    int64_t region_words;  /* of a region: 1 + 2 * rank */
    int32_t rank;
    uint32_t lattice; /* its number */
    bool dropped;            /* has axes that are not dimensions: of extent 1, or with stride 0 */
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
    uint64_t magic; /* 2^62 / tile, rounded up */
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
    pto_cell ***directory; /* PTO_TILED: cells by number of tile, in pages of 512 */
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

/*
 * The number of the tile that has coordinate x, 0 <= x < 2^31, counted from the first: x * magic / 2^62, and for tiles
 * below 2^31 the error is below 1 / tile.
 */
static inline int64_t pto__tile_at(uint64_t magic, int64_t x) {
#if defined(__SIZEOF_INT128__)
    __extension__ typedef unsigned __int128 product;
    return (int64_t)((product)(uint64_t)x * magic >> 62);
#else
    return (int64_t)(((uint64_t)x * (magic >> 32) + ((uint64_t)x * (uint32_t)magic >> 32)) >> 30);
#endif
}

#define PTO_DIRECTORY_PAGE 512u
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
    uint32_t next;             /* recording: the newest successor, at first itself; running: a lane's private list */
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
    bool widening; /* the window may become longer: nobody asked for this one */
    bool solo;     /* one lane */
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
/* The link that a list begins with, and the tasks in it. */
static inline pto_link *pto__list_link(pto_graph *g, uint32_t list) { return pto__link(g, list >> 2); }
static inline uint32_t pto__list_count(uint32_t list) { return list & 3u; }

/* Doubles an array kept by the supply until it has room for `wanted`; false: no memory. */
bool pto__grow(pto_graph *g, void **array, uint32_t *room, uint32_t wanted, size_t element_bytes);

/* ---- task_index.c ---- */

/* The access of task `t` (0: only collects the predecessors).  False: no memory. */
bool pto__index_read(pto_graph *g, uint32_t t, pto_lattice *l, const int64_t *box);
bool pto__index_write(pto_graph *g, uint32_t t, pto_lattice *l, const int64_t *box);
void pto__forget_last(pto_graph *g, const pto_lattice *l); /* the tiles that its tensors remember */
pto_cell *pto__cell_create(pto_graph *g, pto_lattice *l, int64_t tile); /* NULL: no memory */
void pto__tile_box(const pto_lattice *l, int64_t tile, int64_t *box);
/* To PTO_BOXED; `box`: one that is accessed, or NULL. */
bool pto__index_box(pto_graph *g, pto_lattice *l, const int64_t *box);
bool pto__index_prune(pto_graph *g); /* forgets finished tasks; false: no memory to do so */
int64_t pto__index_size(const pto_graph *g); /* how much pto__index_prune goes through: cells and buckets of boxes */
bool pto__edge_other(pto_graph *g, uint32_t from, uint32_t to);
bool pto__edges_from_list(pto_graph *g, uint32_t list, uint32_t t);
uint32_t pto__list_prune(pto_graph *g, uint32_t list); /* without the retired tasks */
void pto__list_give(pto_graph *g, uint32_t list);

/* ---- task_boxes.c ---- */

pto_box_index *pto__boxes_create(pto_graph *g, const pto_lattice *l, const int64_t *box);
bool pto__boxes_read(pto_graph *g, pto_lattice *l, uint32_t t, const int64_t *box);
bool pto__boxes_write(pto_graph *g, pto_lattice *l, uint32_t t, const int64_t *box);
bool pto__boxes_insert(pto_graph *g, pto_lattice *l, const int64_t *box, uint32_t writer, uint32_t readers);
bool pto__boxes_conflicts(pto_graph *g, pto_lattice *l, uint32_t t, const pto_lattice *other, const int64_t *box,
                          bool write);
bool pto__boxes_prune(pto_graph *g, pto_lattice *l);
int64_t pto__boxes_size(const pto_lattice *l); /* buckets and boxes */

/* ---- task_lanes.c ---- */

bool pto__ring_grow(pto_graph *g, pto_lane *lane, int64_t top, int64_t bottom); /* false: no memory */
void pto__lanes_create(pto_graph *g, const pto_worker *w); /* for the threads that may work on its launch */
void pto__lanes_destroy(pto_graph *g);

/* ---- task_run.c ---- */

/* What the owner waits for: at most `most` unfinished tasks, and (unless it is negative) the tasks from `from` on. */
typedef struct pto_wait_goal {
    int64_t most;
    uint32_t from; /* of g->predecessors: those before are finished */
} pto_wait_goal;

void pto__run_begin(pto_graph *g, const pto_worker *w); /* nothing has failed; lanes */
void pto__run_open(pto_graph *g, pto_worker *w);        /* calls helpers */
void pto__run_until(pto_graph *g, pto_worker *w, pto_wait_goal goal); /* the owner works; it sleeps when there is none */
void pto__run_close(pto_graph *g);                      /* no helper is left */
int32_t pto__run_outcome(pto_graph *g);
void pto__run_ready(pto_graph *g, uint32_t t); /* a task may run: the owner's lane, and calls someone */
int32_t pto__run_refuse(pto_worker *w, int32_t status); /* records it */

/* ---- task_live.c ---- */

int32_t pto__live_room(pto_graph *g);     /* waits until the window has room */
int32_t pto__live_wait_for(pto_graph *g); /* for g->predecessors */

/* ---- task_report.c ---- */

int64_t pto__fanout(pto_graph *g, uint32_t t); /* of a recorded task */
int64_t pto__successors(pto_graph *g, uint32_t t, int64_t *out); /* writes them, in order; their number */

/* ---- task_graph.c ---- */

pto_graph *pto__graph_create(pto_runtime *rt); /* NULL: no memory */
int32_t pto__graph_refuse(pto_graph *g, int32_t status); /* no more tasks are accepted; `status` */
/* PTO_OK, PTO_BAD_ARGUMENT; *empty: it has no elements. */
int32_t pto__region_check(const pto_tensor *t, const int64_t *region, bool *empty);

/* Slots and a word for each access; in a live graph the number before them. */
static inline size_t pto__payload_bytes(const pto_task_kind *kind, bool live) {
    size_t words = (size_t)(uint32_t)kind->num_slots + ((uint32_t)kind->num_accesses + 1) / 2 + live;
    return (words + (words == 0)) * sizeof(int64_t);
}

static inline bool pto__finished(pto_graph *g, uint32_t t) {
    /* acquire: pairs with the release in finish(); the record is not used by its worker any more */
    return atomic_load_explicit(&pto__task(g, t)->pending, memory_order_acquire) == PTO_FINISHED;
}

static inline bool pto__retired(pto_graph *g, uint32_t t) {
    return atomic_load_explicit(&pto__task(g, t)->pending, memory_order_relaxed) == PTO_RETIRED; /* the builder's word */
}

#endif

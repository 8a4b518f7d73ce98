/* SPDX-License-Identifier: MIT */
/*
 * Who wrote and read what, and the edges that follow.
 *
 * As long as every access of a lattice is made of whole tiles of one regular tiling (that of the first access), there is
 * a cell per tile: its last writer and the readers since.  Anything else takes the lattice to arbitrary boxes.
 */
#include "task_index.h"

#include <string.h>

#define MOST_TILES_OF_AN_ACCESS 4096
#define LARGEST_TILED ((int64_t)1 << 31)

/* ---- edges ---- */

static bool collect(pto_graph *g, uint32_t task) {
    if (!pto__grow(g, (void **)&g->predecessors, &g->room_predecessors, g->num_predecessors + 1,
                   sizeof *g->predecessors)) {
        return false;
    }
    g->predecessors[g->num_predecessors++] = task;
    return true;
}

/* pto__edge in a live graph, where `from` may have finished, or to nobody. */
bool pto__edge_other(pto_graph *g, uint32_t from, uint32_t to) {
    if (from == to) {
        return true;
    }
    pto_task_record *p = pto__task(g, from);
    if (to == 0) {
        return collect(g, from);
    }
    /* acquire: pairs with the exchange in finish(); what a finished task did is seen by whoever is ordered after it */
    uint32_t list = atomic_load_explicit(&p->successors, memory_order_acquire);
    for (;;) {
        if (list == PTO_CLOSED ||
            (list != 0 && pto__list_link(g, list)->tasks[pto__list_count(list) - 1] == to)) {
            return true;
        }
        uint32_t longer = pto__list_add(g, list, to);
        if (PTO_UNLIKELY(longer == 0)) {
            return false;
        }
        if (g->solo) { /* no other thread */
            atomic_store_explicit(&p->successors, longer, memory_order_relaxed);
            g->fanin++;
            return true;
        }
        /* release: pairs with the exchange in finish(), for the link; acquire as above */
        if (atomic_compare_exchange_strong_explicit(&p->successors, &list, longer, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            g->fanin++;
            return true;
        }
        if (longer >> 2 != list >> 2 && pto__list_count(longer) == 1) { /* the task has finished meanwhile */
            pto__slab_give(&g->links, longer >> 2, PTO_LOG2_LINK);
        }
    }
}

/* Edges from all of a list. */
bool pto__edges_from_list(pto_graph *g, uint32_t list, uint32_t t) {
    while (list != 0) {
        const pto_link *link = pto__list_link(g, list);
        for (uint32_t i = 0; i < pto__list_count(list); i++) {
            if (PTO_UNLIKELY(!pto__edge(g, link->tasks[i], t))) {
                return false;
            }
        }
        list = link->next;
    }
    return true;
}

void pto__list_give(pto_graph *g, uint32_t list) {
    while (list != 0) {
        uint32_t next = pto__list_link(g, list)->next;
        pto__slab_give(&g->links, list >> 2, PTO_LOG2_LINK);
        list = next;
    }
}

/* Takes the task that was added last out of a list; 0: it is empty. */
static uint32_t list_drop(pto_graph *g, uint32_t *list) {
    if (*list == 0) {
        return 0;
    }
    const pto_link *link = pto__list_link(g, *list);
    uint32_t t = link->tasks[pto__list_count(*list) - 1];
    if (pto__list_count(*list) > 1) {
        --*list;
        return t;
    }
    uint32_t number = *list >> 2;
    *list = link->next;
    pto__slab_give(&g->links, number, PTO_LOG2_LINK);
    return t;
}

uint32_t pto__list_prune(pto_graph *g, uint32_t list) {
    uint32_t kept = 0;
    while (list != 0) {
        pto_link link = *pto__list_link(g, list);
        pto__slab_give(&g->links, list >> 2, PTO_LOG2_LINK);
        for (uint32_t i = 0; i < pto__list_count(list); i++) {
            if (!pto__retired(g, link.tasks[i])) {
                kept = pto__list_add(g, kept, link.tasks[i]); /* there is room: a link was just given back */
            }
        }
        list = link.next;
    }
    return kept;
}

/* ---- cells ---- */

static int64_t tiles_in(const pto_lattice *l) {
    int64_t tiles = 1;
    for (int32_t d = 0; d < l->rank; d++) {
        tiles *= l->tiling[d].count;
    }
    return tiles;
}

/* Of the lattice's directory: as long as it has to be. */
static size_t page_length(const pto_lattice *l) {
    int64_t tiles = tiles_in(l);
    return tiles < (int64_t)PTO_DIRECTORY_PAGE ? (size_t)tiles : PTO_DIRECTORY_PAGE;
}

/* The cell of a tile; NULL: no memory (or, with `find`, no such cell). */
static pto_cell *cell_at(pto_graph *g, pto_lattice *l, int64_t tile, bool find) {
    pto_cell ***page = &l->directory[(uint64_t)tile / PTO_DIRECTORY_PAGE];
    if (*page == NULL) {
        if (find) {
            return NULL;
        }
        *page = pto__supply_block(&g->supply, page_length(l) * sizeof **page);
        if (*page == NULL) {
            return NULL;
        }
        memset(*page, 0, page_length(l) * sizeof **page);
    }
    pto_cell **cell = &(*page)[(uint64_t)tile % PTO_DIRECTORY_PAGE];
    if (*cell == NULL && !find) {
        uint32_t made;
        pto_cell *empty = pto__slab_take(&g->cells, &g->supply, PTO_LOG2_CELL, &made);
        if (empty == NULL) {
            return NULL;
        }
        memset(empty, 0, sizeof *empty);
        empty->number = made;
        empty->lattice = (uint32_t)(l - g->lattices);
        empty->tile = (uint32_t)tile;
        *cell = empty;
    }
    return *cell;
}

pto_cell *pto__cell_create(pto_graph *g, pto_lattice *l, int64_t tile) { return cell_at(g, l, tile, false); }

/* All readers of a cell as one list, which the caller owns; 0: no memory, or there are none. */
static uint32_t readers_taken(pto_graph *g, pto_cell *cell) {
    return cell->reader == 0 ? 0 : pto__list_add(g, cell->readers, cell->reader);
}

bool pto__cell_readers_before(pto_graph *g, uint32_t t, pto_cell *cell) {
    if (!pto__edges_from_list(g, cell->readers, t)) {
        return false;
    }
    if (t != 0) {
        pto__list_give(g, cell->readers);
        cell->readers = 0;
    }
    return true;
}

void pto__forget_last(pto_graph *g, const pto_lattice *l) {
    for (uint32_t i = 0; i < g->num_tensors; i++) {
        if (&g->lattices[g->tensors[i].lattice] == l) {
            g->tensors[i].last_cell = NULL;
        }
    }
}

/* ---- tilings ---- */

/* Makes the first access of a lattice its tile; false: not a regular tiling that can be kept. */
static bool set_tiling(pto_graph *g, pto_lattice *l, const int64_t *box) {
    if (l->num_neighbours != 0 || l->overlapping) {
        return false;
    }
    int64_t tiles = 1;
    for (int32_t d = 0; d < l->rank; d++) {
        int64_t length = l->end[d] - l->floor[d];
        int64_t tile = box[2 * d + 1] - box[2 * d];
        int64_t low = box[2 * d] - l->floor[d];
        if (length >= LARGEST_TILED) {
            return false;
        }
        if (low % tile != 0) {
            return false;
        }
        l->tiling[d].tile = tile;
        l->tiling[d].magic = (((uint64_t)1 << 62) + (uint64_t)tile - 1) / (uint64_t)tile;
        l->tiling[d].count = (length + tile - 1) / tile;
        tiles *= l->tiling[d].count;
        if (tiles > PTO_MOST_TILES) {
            return false;
        }
    }
    size_t pages = (size_t)(tiles + PTO_DIRECTORY_PAGE - 1) / PTO_DIRECTORY_PAGE;
    l->directory = pto__supply_block(&g->supply, pages * sizeof *l->directory);
    if (l->directory == NULL) {
        return false;
    }
    memset(l->directory, 0, pages * sizeof *l->directory);
    l->state = PTO_TILED;
    return true;
}

/*
 * The tiles [first, last] of each dimension that make up the box; false: it is not made of whole ones.  `touched`: those
 * that share an element with it.
 */
static bool tiles_of(const pto_lattice *l, const int64_t *box, bool touched, int64_t *first, int64_t *last) {
    int64_t tiles = 1;
    for (int32_t d = 0; d < l->rank; d++) {
        const pto_tiling *t = &l->tiling[d];
        int64_t low = box[2 * d] - l->floor[d];
        int64_t high = box[2 * d + 1] - l->floor[d];
        first[d] = pto__tile_at(t->magic, low);
        last[d] = pto__tile_at(t->magic, high - 1);
        if (touched) {
            continue;
        }
        if (first[d] * t->tile != low || ((last[d] + 1) * t->tile != high && box[2 * d + 1] != l->end[d])) {
            return false;
        }
        tiles *= last[d] - first[d] + 1;
        if (tiles > MOST_TILES_OF_AN_ACCESS) {
            return false;
        }
    }
    return true;
}

/* The box of a tile. */
void pto__tile_box(const pto_lattice *l, int64_t tile, int64_t *box) {
    for (int32_t d = l->rank - 1; d >= 0; d--) {
        const pto_tiling *t = &l->tiling[d];
        int64_t low = l->floor[d] + tile % t->count * t->tile;
        box[2 * d] = low;
        box[2 * d + 1] = l->end[d] - low < t->tile ? l->end[d] : low + t->tile;
        tile /= t->count;
    }
}

bool pto__index_box(pto_graph *g, pto_lattice *l, const int64_t *box) {
    if (l->state == PTO_BOXED) {
        return true;
    }
    l->boxes = pto__boxes_create(g, l, box);
    if (l->boxes == NULL) {
        return false;
    }
    int32_t before = l->state;
    pto__forget_last(g, l);
    l->state = PTO_BOXED;
    g->conversions++;
    if (before == PTO_UNTOUCHED) {
        return true;
    }
    int64_t tiles = tiles_in(l);
    int64_t *own = pto__supply_block(&g->supply, (size_t)(2 * l->rank + 1) * sizeof *own);
    if (own == NULL) {
        return false;
    }
    bool good = true;
    for (int64_t page = 0; page * PTO_DIRECTORY_PAGE < tiles; page++) {
        if (l->directory[page] == NULL) {
            continue;
        }
        for (size_t i = 0; i < page_length(l) && good; i++) {
            pto_cell *cell = l->directory[page][i];
            if (cell == NULL || (cell->writer == 0 && cell->reader == 0)) {
                continue;
            }
            pto__tile_box(l, cell->tile, own);
            if (cell->writer != 0) {
                good = pto__boxes_insert(g, l, own, cell->writer, 0);
            }
            if (good && cell->reader != 0) {
                uint32_t readers = readers_taken(g, cell);
                good = readers != 0 && pto__boxes_insert(g, l, own, 0, readers);
            }
            cell->writer = 0; /* the cell itself stays: it says where its tasks' regions are */
            cell->reader = 0;
            cell->readers = 0;
        }
    }
    pto__supply_release(&g->supply, own);
    return good;
}

/* ---- any access ---- */

static bool access_tiles(pto_graph *g, uint32_t t, pto_lattice *l, const int64_t *first, const int64_t *last,
                         int64_t *at, bool write) {
    int32_t rank = l->rank;
    bool recording = g->state == PTO_RECORDING && t != 0;
    for (int32_t d = 0; d < rank; d++) {
        at[d] = first[d];
    }
    for (;;) {
        int64_t tile = 0;
        for (int32_t d = 0; d < rank; d++) {
            tile = tile * l->tiling[d].count + at[d];
        }
        pto_cell *cell = cell_at(g, l, tile, t == 0);
        if (cell != NULL) {
            pto_task_record *record = t == 0 ? NULL : pto__task(g, t);
            if (!(write ? pto__cell_write(g, t, record, cell, recording) : pto__cell_read(g, t, cell, recording))) {
                return false;
            }
        } else if (t != 0) {
            return false;
        }
        int32_t d = rank - 1;
        while (d >= 0 && at[d] == last[d]) {
            at[d] = first[d];
            d--;
        }
        if (d < 0) {
            return true;
        }
        at[d]++;
    }
}

/* The slow way of an access: a tiled lattice when the box is made of whole tiles, else boxes; and the neighbours. */
static bool access_box(pto_graph *g, uint32_t t, pto_lattice *l, const int64_t *box, bool write) {
    if (l->state == PTO_UNTOUCHED && t != 0 && !set_tiling(g, l, box) && !pto__index_box(g, l, box)) {
        return false;
    }
    if (l->state == PTO_TILED) {
        int64_t on_stack[3 * 8];
        int64_t *room = on_stack;
        if (l->rank > 8) {
            room = pto__supply_block(&g->supply, (size_t)(3 * l->rank) * sizeof *room);
            if (room == NULL) {
                return false;
            }
        }
        bool whole = tiles_of(l, box, t == 0, room, room + l->rank);
        bool good = !whole || access_tiles(g, t, l, room, room + l->rank, room + 2 * l->rank, write);
        if (room != on_stack) {
            pto__supply_release(&g->supply, room);
        }
        if (whole || !good) {
            return good;
        }
        if (!pto__index_box(g, l, box)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < l->num_neighbours; i++) {
        pto_lattice *other = &g->lattices[l->neighbours[i]];
        if (other->state == PTO_BOXED && !pto__boxes_conflicts(g, other, t, l, box, write)) {
            return false;
        }
    }
    if (l->state == PTO_UNTOUCHED) {
        return true; /* only looked at */
    }
    return write ? pto__boxes_write(g, l, t, box) : pto__boxes_read(g, l, t, box);
}

bool pto__index_read(pto_graph *g, uint32_t t, pto_lattice *l, const int64_t *box) {
    return access_box(g, t, l, box, false);
}

bool pto__index_write(pto_graph *g, uint32_t t, pto_lattice *l, const int64_t *box) {
    return access_box(g, t, l, box, true);
}

bool pto__index_prune(pto_graph *g) {
    for (uint32_t number = 1; number < g->cells.end; number++) {
        pto_cell *cell = pto__cell(g, number);
        if (cell->writer != 0 && pto__retired(g, cell->writer)) {
            cell->writer = 0;
        }
        if (cell->reader != 0) {
            cell->readers = pto__list_prune(g, cell->readers);
            if (pto__retired(g, cell->reader)) {
                cell->reader = list_drop(g, &cell->readers);
            }
        }
    }
    for (uint32_t i = 0; i < g->num_lattices; i++) {
        if (g->lattices[i].state == PTO_BOXED && !pto__boxes_prune(g, &g->lattices[i])) {
            return false;
        }
    }
    return true;
}

int64_t pto__index_size(const pto_graph *g) {
    int64_t size = g->cells.end;
    for (uint32_t i = 0; i < g->num_lattices; i++) {
        if (g->lattices[i].state == PTO_BOXED) {
            size += pto__boxes_size(&g->lattices[i]);
        }
    }
    return size;
}

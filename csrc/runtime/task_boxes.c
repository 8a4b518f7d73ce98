/* SPDX-License-Identifier: MIT */
/*
 * The boxes of one lattice: what was last written by whom, and what was read since.
 *
 * Written boxes are disjoint: a new one cuts what it covers out of all others, so that an edge is made only for elements
 * that really were last accessed by that task.  Boxes are found through a grid of buckets over the two longest
 * dimensions, made finer as boxes become many; the largest are in a list of their own.
 */
#include "tasks.h"

#include <string.h>

struct pto_box {
    uint32_t writer;  /* 0: a box that was read */
    uint32_t readers; /* a list */
    uint32_t uses;    /* in buckets */
    uint32_t stamp;   /* of the last search that found it */
    bool dead;        /* to be taken out of the buckets that are met */
    int64_t bounds[]; /* low and high per dimension */
};

typedef struct pto_entry {
    struct pto_entry *next;
    pto_box *box;
} pto_entry;

struct pto_box_index {
    int32_t dimension[2]; /* that the buckets divide; -1: none */
    int64_t low[2];
    int64_t bucket[2]; /* length */
    int64_t count[2];
    int64_t num_boxes; /* alive */
    pto_entry **buckets;
    pto_entry *large; /* boxes over more buckets than LARGE */
};

#define LARGE 64
#define MOST_BUCKETS 65536

static inline size_t box_bytes(const pto_lattice *l) {
    return sizeof(pto_box) + 2 * (size_t)l->rank * sizeof(int64_t);
}

/* ---- boxes as boxes ---- */

static bool meet(int32_t rank, const int64_t *a, const int64_t *b) {
    for (int32_t d = 0; d < rank; d++) {
        if (a[2 * d] >= b[2 * d + 1] || b[2 * d] >= a[2 * d + 1]) {
            return false;
        }
    }
    return true;
}

static bool same(int32_t rank, const int64_t *a, const int64_t *b) {
    return rank == 0 || memcmp(a, b, 2 * (size_t)rank * sizeof *a) == 0;
}

static bool inside(int32_t rank, const int64_t *inner, const int64_t *outer) {
    for (int32_t d = 0; d < rank; d++) {
        if (inner[2 * d] < outer[2 * d] || inner[2 * d + 1] > outer[2 * d + 1]) {
            return false;
        }
    }
    return true;
}

/* ---- buckets ---- */

static void set_counts(pto_box_index *x, const pto_lattice *l, const int64_t *wanted) {
    for (int k = 0; k < 2; k++) {
        int32_t d = x->dimension[k];
        int64_t length = d < 0 ? 1 : l->end[d] - l->floor[d];
        x->low[k] = d < 0 ? 0 : l->floor[d];
        x->bucket[k] = wanted[k] >= length ? 1 : (length + wanted[k] - 1) / wanted[k];
        x->count[k] = (length + x->bucket[k] - 1) / x->bucket[k];
    }
}

static pto_entry **make_buckets(pto_graph *g, const pto_box_index *x) {
    size_t bytes = (size_t)(x->count[0] * x->count[1]) * sizeof(pto_entry *);
    pto_entry **buckets = pto__supply_block(&g->supply, bytes);
    if (buckets != NULL) {
        memset(buckets, 0, bytes);
    }
    return buckets;
}

pto_box_index *pto__boxes_create(pto_graph *g, const pto_lattice *l) {
    pto_box_index *x = pto__supply_block(&g->supply, sizeof *x);
    if (x == NULL) {
        return NULL;
    }
    memset(x, 0, sizeof *x);
    x->dimension[0] = -1;
    x->dimension[1] = -1;
    for (int32_t d = 0; d < l->rank; d++) {
        int64_t length = l->end[d] - l->floor[d];
        int32_t first = x->dimension[0];
        int32_t second = x->dimension[1];
        if (first < 0 || length > l->end[first] - l->floor[first]) {
            x->dimension[1] = first;
            x->dimension[0] = d;
        } else if (second < 0 || length > l->end[second] - l->floor[second]) {
            x->dimension[1] = d;
        }
    }
    const int64_t wanted[2] = {8, 8};
    set_counts(x, l, wanted);
    x->buckets = make_buckets(g, x);
    if (x->buckets == NULL) {
        pto__supply_release(&g->supply, x);
        return NULL;
    }
    return x;
}

/* The buckets of a box; coordinates outside the range that the buckets were made for count as its border. */
static void range_of(const pto_box_index *x, const int64_t *box, int64_t *first, int64_t *last) {
    for (int k = 0; k < 2; k++) {
        int32_t d = x->dimension[k];
        first[k] = 0;
        last[k] = 0;
        if (d >= 0) {
            int64_t most = x->count[k] - 1;
            int64_t from = (box[2 * d] - x->low[k]) / x->bucket[k];
            int64_t to = (box[2 * d + 1] - 1 - x->low[k]) / x->bucket[k];
            first[k] = from < 0 ? 0 : from > most ? most : from;
            last[k] = to < 0 ? 0 : to > most ? most : to;
        }
    }
}

static bool add_entry(pto_graph *g, pto_entry **list, pto_box *box) {
    pto_entry *entry = pto__arena_take(&g->arena, &g->supply, sizeof *entry);
    if (entry == NULL) {
        return false;
    }
    entry->box = box;
    entry->next = *list;
    *list = entry;
    box->uses++;
    return true;
}

static bool enter(pto_graph *g, pto_box_index *x, pto_box *box) {
    int64_t first[2];
    int64_t last[2];
    range_of(x, box->bounds, first, last);
    if ((last[0] - first[0] + 1) * (last[1] - first[1] + 1) > LARGE) {
        return add_entry(g, &x->large, box);
    }
    for (int64_t i = first[0]; i <= last[0]; i++) {
        for (int64_t k = first[1]; k <= last[1]; k++) {
            if (!add_entry(g, &x->buckets[i * x->count[1] + k], box)) {
                return false;
            }
        }
    }
    return true;
}

static bool note(pto_graph *g, pto_box *box) {
    if (!pto__grow(g, (void **)&g->found, &g->room_found, g->num_found + 1, sizeof(pto_box *))) {
        return false;
    }
    g->found[g->num_found++] = box;
    return true;
}

/* Takes an entry out; its box goes with the last one. */
static void leave(pto_graph *g, const pto_lattice *l, pto_entry **at) {
    pto_entry *entry = *at;
    pto_box *box = entry->box;
    *at = entry->next;
    pto__arena_give(&g->arena, &g->supply, entry, sizeof *entry);
    if (--box->uses == 0 && box->dead) {
        pto__arena_give(&g->arena, &g->supply, box, box_bytes(l));
    }
}

/* Adds the living boxes of a list that meet `box` (NULL: all) to what was found; takes dead ones out. */
static bool search_list(pto_graph *g, const pto_lattice *l, pto_entry **at, const int64_t *box) {
    while (*at != NULL) {
        pto_box *candidate = (*at)->box;
        if (candidate->dead) {
            leave(g, l, at);
            continue;
        }
        if (candidate->stamp != g->stamp) {
            candidate->stamp = g->stamp;
            if ((box == NULL || meet(l->rank, candidate->bounds, box)) && !note(g, candidate)) {
                return false;
            }
        }
        at = &(*at)->next;
    }
    return true;
}

static void begin_search(pto_graph *g) {
    g->num_found = 0;
    g->stamp++; /* 2^32 searches later a box that none of them met could be missed: see search */
}

static bool search_all(pto_graph *g, const pto_lattice *l) {
    pto_box_index *x = l->boxes;
    begin_search(g);
    for (int64_t i = 0; i < x->count[0] * x->count[1]; i++) {
        if (!search_list(g, l, &x->buckets[i], NULL)) {
            return false;
        }
    }
    return search_list(g, l, &x->large, NULL);
}

/* Finds the boxes that meet `box`, into g->found. */
static bool search(pto_graph *g, const pto_lattice *l, const int64_t *box) {
    pto_box_index *x = l->boxes;
    int64_t first[2];
    int64_t last[2];
    range_of(x, box, first, last);
    begin_search(g);
    if (PTO_UNLIKELY(g->stamp == 0)) { /* the stamps begin again: none may be left from the first time */
        for (uint32_t i = 0; i < g->num_lattices; i++) {
            if (g->lattices[i].state == PTO_BOXED && !search_all(g, &g->lattices[i])) {
                return false;
            }
            for (uint32_t k = 0; k < g->num_found; k++) {
                g->found[k]->stamp = 0;
            }
            g->stamp = 0;
        }
        begin_search(g);
    }
    for (int64_t i = first[0]; i <= last[0]; i++) {
        for (int64_t k = first[1]; k <= last[1]; k++) {
            if (!search_list(g, l, &x->buckets[i * x->count[1] + k], box)) {
                return false;
            }
        }
    }
    return search_list(g, l, &x->large, box);
}

/* More buckets when the boxes have become many. */
static bool widen(pto_graph *g, const pto_lattice *l) {
    pto_box_index *x = l->boxes;
    int64_t buckets = x->count[0] * x->count[1];
    bool finer = (x->dimension[0] >= 0 && x->bucket[0] > 1) || (x->dimension[1] >= 0 && x->bucket[1] > 1);
    if (x->num_boxes <= 4 * buckets || buckets >= MOST_BUCKETS || !finer) {
        return true;
    }
    pto_box_index wider = *x;
    const int64_t wanted[2] = {x->count[0] * 2, x->count[1] * 2};
    set_counts(&wider, l, wanted);
    wider.large = NULL;
    wider.buckets = make_buckets(g, &wider);
    if (wider.buckets == NULL || !search_all(g, l)) {
        return false;
    }
    for (int64_t i = 0; i <= buckets; i++) {
        pto_entry **list = i < buckets ? &x->buckets[i] : &x->large;
        while (*list != NULL) {
            leave(g, l, list);
        }
    }
    pto__supply_release(&g->supply, x->buckets);
    *x = wider;
    for (uint32_t i = 0; i < g->num_found; i++) {
        if (!enter(g, x, g->found[i])) {
            return false;
        }
    }
    return true;
}

static bool insert(pto_graph *g, const pto_lattice *l, const int64_t *bounds, uint32_t writer, uint32_t readers) {
    pto_box *box = pto__arena_take(&g->arena, &g->supply, box_bytes(l));
    if (box == NULL) {
        return false;
    }
    memset(box, 0, sizeof *box);
    box->writer = writer;
    box->readers = readers;
    box->stamp = g->stamp;
    if (l->rank != 0) {
        memcpy(box->bounds, bounds, 2 * (size_t)l->rank * sizeof *bounds);
    }
    l->boxes->num_boxes++;
    return enter(g, l->boxes, box);
}

bool pto__boxes_insert(pto_graph *g, pto_lattice *l, const int64_t *box, uint32_t writer, uint32_t readers) {
    return insert(g, l, box, writer, readers) && widen(g, l);
}

static void kill(pto_graph *g, const pto_lattice *l, pto_box *box) {
    pto__list_give(g, box->readers);
    box->readers = 0;
    box->dead = true;
    l->boxes->num_boxes--;
}

/* ---- cutting and covering ---- */

static bool copy_readers(pto_graph *g, uint32_t from, uint32_t *to) {
    *to = 0;
    while (from != 0) {
        const pto_link *link = pto__list_link(g, from);
        for (uint32_t i = 0; i < pto__list_count(from); i++) {
            uint32_t longer = pto__list_add(g, *to, link->tasks[i]);
            if (longer == 0) {
                return false;
            }
            *to = longer;
        }
        from = link->next;
    }
    return true;
}

/* Replaces `box` by what lies outside of `knife`; they meet. */
static bool cut(pto_graph *g, const pto_lattice *l, pto_box *box, const int64_t *knife) {
    for (int32_t d = 0; d < l->rank; d++) {
        for (int side = 0; side < 2; side++) {
            int64_t low = box->bounds[2 * d];
            int64_t high = box->bounds[2 * d + 1];
            int64_t at = knife[2 * d + side];
            if (side == 0 ? at <= low : at >= high) {
                continue;
            }
            uint32_t readers;
            if (!copy_readers(g, box->readers, &readers)) {
                return false;
            }
            box->bounds[2 * d + 1 - side] = at; /* the part before or after */
            bool good = insert(g, l, box->bounds, box->writer, readers);
            box->bounds[2 * d] = side == 0 ? at : low;
            box->bounds[2 * d + 1] = side == 0 ? high : at;
            if (!good) {
                return false;
            }
        }
    }
    kill(g, l, box);
    return true;
}

/* Whether every element of `box` was read according to found[from ..]; false also when there is no memory to tell. */
static bool covered(pto_graph *g, const pto_lattice *l, const int64_t *box, uint32_t from) {
    while (from < g->num_found && (g->found[from]->writer != 0 || !meet(l->rank, g->found[from]->bounds, box))) {
        from++;
    }
    if (from == g->num_found) {
        return false;
    }
    const int64_t *by = g->found[from]->bounds;
    size_t bytes = (2 * (size_t)l->rank + 1) * sizeof *box;
    int64_t *rest = pto__arena_take(&g->arena, &g->supply, bytes);
    if (rest == NULL) {
        return false;
    }
    memcpy(rest, box, bytes - sizeof *box);
    bool all = true;
    for (int32_t d = 0; d < l->rank && all; d++) {
        int64_t low = rest[2 * d];
        int64_t high = rest[2 * d + 1];
        if (by[2 * d] > low) {
            rest[2 * d + 1] = by[2 * d];
            all = covered(g, l, rest, from + 1);
            low = by[2 * d];
        }
        if (all && by[2 * d + 1] < high) {
            rest[2 * d] = by[2 * d + 1];
            rest[2 * d + 1] = high;
            all = covered(g, l, rest, from + 1);
            high = by[2 * d + 1];
        }
        rest[2 * d] = low;
        rest[2 * d + 1] = high;
    }
    pto__arena_give(&g->arena, &g->supply, rest, bytes);
    return all;
}

/* ---- accesses ---- */

bool pto__boxes_read(pto_graph *g, pto_lattice *l, uint32_t t, const int64_t *box) {
    if (l->overlapping) {
        if (!pto__boxes_conflicts(g, l, t, l, box, false)) {
            return false;
        }
    }
    if (!search(g, l, box)) {
        return false;
    }
    pto_box *twin = NULL;
    for (uint32_t i = 0; i < g->num_found; i++) {
        pto_box *other = g->found[i];
        if (other->writer == 0) {
            twin = same(l->rank, other->bounds, box) ? other : twin;
        } else if (!l->overlapping && !pto__edge(g, other->writer, t)) {
            return false;
        }
    }
    if (t == 0) {
        return true;
    }
    uint32_t list = pto__list_add(g, twin != NULL ? twin->readers : 0, t);
    if (list == 0) {
        return false;
    }
    if (twin != NULL) {
        twin->readers = list;
        return true;
    }
    return pto__boxes_insert(g, l, box, 0, list);
}

bool pto__boxes_write(pto_graph *g, pto_lattice *l, uint32_t t, const int64_t *box) {
    if (l->overlapping) {
        if (!pto__boxes_conflicts(g, l, t, l, box, true)) {
            return false;
        }
    }
    if (!search(g, l, box)) {
        return false;
    }
    bool any_read = false;
    for (uint32_t i = 0; i < g->num_found && !l->overlapping; i++) {
        if (g->found[i]->writer == 0) {
            any_read = true;
            if (!pto__edges_from_list(g, g->found[i]->readers, t)) {
                return false;
            }
        }
    }
    for (uint32_t i = 0; i < g->num_found && !l->overlapping; i++) {
        pto_box *other = g->found[i];
        if (other->writer == 0) {
            continue;
        }
        bool needed = true;
        if (any_read) { /* readers of every common element come after this writer */
            size_t bytes = (2 * (size_t)l->rank + 1) * sizeof(int64_t);
            int64_t *shared = pto__arena_take(&g->arena, &g->supply, bytes);
            if (shared == NULL) {
                return false;
            }
            for (int32_t d = 0; d < l->rank; d++) {
                shared[2 * d] = box[2 * d] > other->bounds[2 * d] ? box[2 * d] : other->bounds[2 * d];
                shared[2 * d + 1] =
                    box[2 * d + 1] < other->bounds[2 * d + 1] ? box[2 * d + 1] : other->bounds[2 * d + 1];
            }
            needed = !covered(g, l, shared, 0);
            pto__arena_give(&g->arena, &g->supply, shared, bytes);
        }
        if (needed && !pto__edge(g, other->writer, t)) {
            return false;
        }
    }
    if (t == 0) {
        return true;
    }
    for (uint32_t i = 0; i < g->num_found; i++) {
        pto_box *other = g->found[i];
        if (l->overlapping) { /* equal elements may have other coordinates too: only what is covered whole goes */
            if (inside(l->rank, other->bounds, box)) {
                kill(g, l, other);
            }
        } else if (!cut(g, l, other, box)) {
            return false;
        }
    }
    return pto__boxes_insert(g, l, box, t, 0);
}

/*
 * Edges from the tasks of lattice `l` to `t`, which accesses a box of another lattice that overlaps in memory (or of an
 * overlapping one itself): their sets of addresses are compared.
 */
bool pto__boxes_conflicts(pto_graph *g, pto_lattice *l, uint32_t t, const pto_lattice *other, const int64_t *box,
                          bool write) {
    int64_t low;
    int64_t high;
    pto__box_addresses(other, box, &low, &high);
    int64_t on_stack[2 * 8];
    int64_t *near = on_stack;
    if (l->rank > 8) {
        near = pto__supply_block(&g->supply, 2 * (size_t)l->rank * sizeof *near);
        if (near == NULL) {
            return false;
        }
    }
    /* The outermost coordinate of what lies at these addresses; anything in the others. */
    for (int32_t d = 0; d < l->rank; d++) {
        near[2 * d] = l->floor[d];
        near[2 * d + 1] = l->end[d];
    }
    bool somewhere = low < l->high && l->low < high;
    if (l->rank > 0 && !l->overlapping) {
        int64_t inner_low = 0;
        int64_t inner_high = l->element_bytes;
        for (int32_t d = 1; d < l->rank; d++) {
            inner_low += l->floor[d] * l->stride[d];
            inner_high += (l->end[d] - 1) * l->stride[d];
        }
        /* low < origin + i * stride + inner_high, and origin + i * stride + inner_low < high; one more on each side
         * makes up for the rounding of the division */
        int64_t first = (low - inner_high - l->origin) / l->stride[0] - 1;
        int64_t last = (high - inner_low - l->origin) / l->stride[0] + 1;
        near[0] = first > near[0] ? first : near[0];
        near[1] = last + 1 < near[1] ? last + 1 : near[1];
        somewhere = somewhere && near[0] < near[1];
    }
    bool good = !somewhere || search(g, l, near);
    if (near != on_stack) {
        pto__supply_release(&g->supply, near);
    }
    for (uint32_t i = 0; good && somewhere && i < g->num_found; i++) {
        pto_box *candidate = g->found[i];
        if ((candidate->writer != 0 || write) && pto__boxes_meet(l, candidate->bounds, other, box)) {
            good = candidate->writer != 0 ? pto__edge(g, candidate->writer, t)
                                          : pto__edges_from_list(g, candidate->readers, t);
        }
    }
    return good;
}

bool pto__boxes_prune(pto_graph *g, pto_lattice *l) {
    if (!search_all(g, l)) {
        return false;
    }
    for (uint32_t i = 0; i < g->num_found; i++) {
        pto_box *box = g->found[i];
        if (box->writer != 0) {
            if (pto__retired(g, box->writer)) {
                box->writer = 0;
                kill(g, l, box);
            }
        } else {
            box->readers = pto__list_prune(g, box->readers);
            if (box->readers == 0) {
                kill(g, l, box);
            }
        }
    }
    /* The dead leave the buckets now, so that memory does not grow. */
    pto_box_index *x = l->boxes;
    begin_search(g);
    for (int64_t i = 0; i <= x->count[0] * x->count[1]; i++) {
        pto_entry **at = i < x->count[0] * x->count[1] ? &x->buckets[i] : &x->large;
        while (*at != NULL) {
            if ((*at)->box->dead) {
                leave(g, l, at);
            } else {
                at = &(*at)->next;
            }
        }
    }
    return true;
}

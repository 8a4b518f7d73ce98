/* SPDX-License-Identifier: MIT */
/*
 * Finding boxes: a grid of buckets over the two dimensions of a lattice that its boxes divide most, made finer as boxes
 * become many; the largest boxes are in a list of their own.
 */
#include "task_boxes.h"

#include <string.h>

#define LARGE 64
#define MOST_BUCKETS 65536

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

/*
 * How many boxes lie one after the other along a dimension: tiles of a lattice that is tiled so far, boxes like the
 * first one, or as many as it is long where neither is known.
 */
static int64_t parts_along(const pto_lattice *l, const int64_t *box, int32_t d) {
    int64_t length = l->end[d] - l->floor[d];
    if (l->state == PTO_TILED) {
        return l->tiling[d].count;
    }
    int64_t extent = box == NULL ? 1 : box[2 * d + 1] - box[2 * d];
    return extent < 1 ? length : (length + extent - 1) / extent;
}

pto_box_index *pto__boxes_create(pto_graph *g, const pto_lattice *l, const int64_t *box) {
    pto_box_index *x = pto__supply_block(&g->supply, sizeof *x);
    if (x == NULL) {
        return NULL;
    }
    memset(x, 0, sizeof *x);
    /* A dimension that every box covers tells none from another, however long it is. */
    bool divided = false;
    for (int32_t d = 0; d < l->rank; d++) {
        divided = divided || parts_along(l, box, d) > 1;
    }
    int64_t most[2] = {divided ? 1 : 0, divided ? 1 : 0};
    x->dimension[0] = -1;
    x->dimension[1] = -1;
    for (int32_t d = 0; d < l->rank; d++) {
        int64_t parts = divided ? parts_along(l, box, d) : l->end[d] - l->floor[d];
        if (parts > most[0]) {
            x->dimension[1] = x->dimension[0];
            most[1] = most[0];
            x->dimension[0] = d;
            most[0] = parts;
        } else if (parts > most[1]) {
            x->dimension[1] = d;
            most[1] = parts;
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
        pto__arena_give(&g->arena, &g->supply, box, pto__box_bytes(l));
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
            if ((box == NULL || pto__box_meets(l->rank, candidate->bounds, box)) && !note(g, candidate)) {
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

bool pto__buckets_all(pto_graph *g, const pto_lattice *l) {
    pto_box_index *x = l->boxes;
    begin_search(g);
    for (int64_t i = 0; i < x->count[0] * x->count[1]; i++) {
        if (!search_list(g, l, &x->buckets[i], NULL)) {
            return false;
        }
    }
    return search_list(g, l, &x->large, NULL);
}

bool pto__buckets_search(pto_graph *g, const pto_lattice *l, const int64_t *box) {
    pto_box_index *x = l->boxes;
    int64_t first[2];
    int64_t last[2];
    range_of(x, box, first, last);
    begin_search(g);
    if (PTO_UNLIKELY(g->stamp == 0)) { /* the stamps begin again: none may be left from the first time */
        for (uint32_t i = 0; i < g->num_lattices; i++) {
            if (g->lattices[i].state == PTO_BOXED && !pto__buckets_all(g, &g->lattices[i])) {
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

bool pto__buckets_widen(pto_graph *g, const pto_lattice *l) {
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
    if (wider.buckets == NULL || !pto__buckets_all(g, l)) {
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

bool pto__box_insert(pto_graph *g, const pto_lattice *l, const int64_t *bounds, uint32_t writer, uint32_t readers) {
    pto_box *box = pto__arena_take(&g->arena, &g->supply, pto__box_bytes(l));
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

void pto__box_kill(pto_graph *g, const pto_lattice *l, pto_box *box) {
    pto__list_give(g, box->readers);
    box->readers = 0;
    box->dead = true;
    l->boxes->num_boxes--;
}

void pto__buckets_bury(pto_graph *g, const pto_lattice *l) {
    pto_box_index *x = l->boxes;
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
}

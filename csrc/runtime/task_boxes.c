/* SPDX-License-Identifier: MIT */
/*
 * The boxes of one lattice: what was last written by whom, and what was read since.
 *
 * Written boxes are disjoint: a new one cuts what it covers out of all others, so that an edge is made only for elements
 * that really were last accessed by that task.
 */
#include "task_boxes.h"

#include <string.h>

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
            bool good = pto__box_insert(g, l, box->bounds, box->writer, readers);
            box->bounds[2 * d] = side == 0 ? at : low;
            box->bounds[2 * d + 1] = side == 0 ? high : at;
            if (!good) {
                return false;
            }
        }
    }
    pto__box_kill(g, l, box);
    return true;
}

/* Whether every element of `box` was read according to found[from ..]; false also when there is no memory to tell. */
static bool covered(pto_graph *g, const pto_lattice *l, const int64_t *box, uint32_t from) {
    while (from < g->num_found &&
           (g->found[from]->writer != 0 || !pto__box_meets(l->rank, g->found[from]->bounds, box))) {
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

bool pto__boxes_insert(pto_graph *g, pto_lattice *l, const int64_t *box, uint32_t writer, uint32_t readers) {
    return pto__box_insert(g, l, box, writer, readers) && pto__buckets_widen(g, l);
}

bool pto__boxes_read(pto_graph *g, pto_lattice *l, uint32_t t, const int64_t *box) {
    if (l->overlapping) {
        if (!pto__boxes_conflicts(g, l, t, l, box, false)) {
            return false;
        }
    }
    if (!pto__buckets_search(g, l, box)) {
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
    if (!pto__buckets_search(g, l, box)) {
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
                pto__box_kill(g, l, other);
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
    bool good = !somewhere || pto__buckets_search(g, l, near);
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
    if (!pto__buckets_all(g, l)) {
        return false;
    }
    for (uint32_t i = 0; i < g->num_found; i++) {
        pto_box *box = g->found[i];
        if (box->writer != 0) {
            if (pto__retired(g, box->writer)) {
                box->writer = 0;
                pto__box_kill(g, l, box);
            }
        } else {
            box->readers = pto__list_prune(g, box->readers);
            if (box->readers == 0) {
                pto__box_kill(g, l, box);
            }
        }
    }
    pto__buckets_bury(g, l);
    return true;
}

int64_t pto__boxes_size(const pto_lattice *l) {
    return l->boxes->count[0] * l->boxes->count[1] + l->boxes->num_boxes;
}

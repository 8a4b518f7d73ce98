/* SPDX-License-Identifier: MIT */
/*
 * Tensors and the lattices their elements lie on.
 *
 * A tensor is brought into a normal form: axes that move nothing are dropped, negative strides are counted from the
 * other end, dimensions are sorted by stride.  Tensors whose normal forms have the same strides and whose elements fit
 * one coordinate system share a lattice, in which their regions are boxes.  Lattices that overlap in memory otherwise
 * are neighbours; their boxes are compared as sets of addresses.
 */
#include "tasks.h"

#include <string.h>

static inline int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static inline int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

/* ---- when two boxes share a byte ---- */

/* Runs of `width` bytes at start + sum(i[d] * stride[d]), 0 <= i[d] < count[d], strides descending. */
typedef struct runs {
    int64_t start;
    int64_t width;
    int32_t rank;
    const int64_t *stride;
    const int64_t *box; /* low and high of each dimension: count = high - low */
} runs;

static int64_t span_from(const runs *r, int32_t d) {
    int64_t span = r->width;
    for (; d < r->rank; d++) {
        span += (r->box[2 * d + 1] - r->box[2 * d] - 1) * r->stride[d];
    }
    return span;
}

/*
 * Whether two sets of runs meet: da and db dimensions of each are fixed already.  Exact: two outer dimensions of equal
 * stride are one (only the difference of the indices matters), otherwise the one with the larger stride is gone through
 * where its part can reach the other.  Boxes of the same pitch therefore cost a few steps; of different pitch, as many
 * as the one with the larger stride has rows.
 */
static bool runs_meet(const runs *a, int64_t at_a, int32_t da, const runs *b, int64_t at_b, int32_t db) {
    int64_t span_a = span_from(a, da);
    int64_t span_b = span_from(b, db);
    if (at_a >= at_b + span_b || at_b >= at_a + span_a) {
        return false;
    }
    bool more_a = da < a->rank;
    bool more_b = db < b->rank;
    if (!more_a && !more_b) {
        return true;
    }
    if (more_a && more_b && a->stride[da] == b->stride[db]) {
        int64_t stride = a->stride[da];
        int64_t count_a = a->box[2 * da + 1] - a->box[2 * da];
        int64_t count_b = b->box[2 * db + 1] - b->box[2 * db];
        int64_t inner_a = span_from(a, da + 1);
        int64_t inner_b = span_from(b, db + 1);
        /* at_b + k * stride < at_a + inner_a and at_a < at_b + k * stride + inner_b */
        int64_t first = floor_div(at_a - at_b - inner_b, stride) + 1;
        int64_t last = ceil_div(at_a + inner_a - at_b, stride) - 1;
        first = first > 1 - count_a ? first : 1 - count_a;
        last = last < count_b - 1 ? last : count_b - 1;
        for (int64_t k = first; k <= last; k++) {
            if (runs_meet(a, at_a, da + 1, b, at_b + k * stride, db + 1)) {
                return true;
            }
        }
        return false;
    }
    if (!more_a || (more_b && b->stride[db] > a->stride[da])) {
        return runs_meet(b, at_b, db, a, at_a, da);
    }
    int64_t stride = a->stride[da];
    int64_t count = a->box[2 * da + 1] - a->box[2 * da];
    int64_t inner = span_from(a, da + 1);
    int64_t first = floor_div(at_b - at_a - inner, stride) + 1;
    int64_t last = ceil_div(at_b + span_b - at_a, stride) - 1;
    first = first > 0 ? first : 0;
    last = last < count - 1 ? last : count - 1;
    for (int64_t i = first; i <= last; i++) {
        if (runs_meet(a, at_a + i * stride, da + 1, b, at_b, db)) {
            return true;
        }
    }
    return false;
}

static runs runs_of(const pto_lattice *l, const int64_t *box) {
    runs r = {l->origin, l->element_bytes, l->rank, l->stride, box};
    for (int32_t d = 0; d < l->rank; d++) {
        r.start += box[2 * d] * l->stride[d];
    }
    while (r.rank > 0 && l->stride[r.rank - 1] == r.width) { /* the innermost dimension leaves no gaps */
        r.width *= box[2 * r.rank - 1] - box[2 * r.rank - 2];
        r.rank--;
    }
    return r;
}

bool pto__boxes_meet(const pto_lattice *a, const int64_t *a_box, const pto_lattice *b, const int64_t *b_box) {
    runs ra = runs_of(a, a_box);
    runs rb = runs_of(b, b_box);
    return runs_meet(&ra, ra.start, 0, &rb, rb.start, 0);
}

void pto__box_addresses(const pto_lattice *l, const int64_t *box, int64_t *low, int64_t *high) {
    runs r = runs_of(l, box);
    *low = r.start;
    *high = r.start + span_from(&r, 0);
}

/* ---- which lattices are where ---- */

/* Recomputes the running maxima from position `from` on. */
static void set_highest(pto_graph *g, uint32_t from) {
    for (uint32_t i = from; i < g->num_by_address; i++) {
        int64_t high = g->lattices[g->by_address[i]].high;
        g->highest[i] = i > 0 && g->highest[i - 1] > high ? g->highest[i - 1] : high;
    }
}

/* The first position whose lattice begins at `address` or later. */
static uint32_t position_of(const pto_graph *g, int64_t address) {
    uint32_t low = 0;
    uint32_t high = g->num_by_address;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (g->lattices[g->by_address[middle]].low < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool place_lattice(pto_graph *g, uint32_t number) {
    uint32_t wanted = g->num_by_address + 1;
    if (!pto__grow(g, (void **)&g->by_address, &g->room_by_address, wanted, sizeof *g->by_address) ||
        !pto__grow(g, (void **)&g->highest, &g->room_highest, wanted, sizeof *g->highest)) {
        return false;
    }
    uint32_t at = position_of(g, g->lattices[number].low);
    memmove(g->by_address + at + 1, g->by_address + at, (g->num_by_address - at) * sizeof *g->by_address);
    g->by_address[at] = number;
    g->num_by_address++;
    set_highest(g, at);
    return true;
}

static void displace_lattice(pto_graph *g, uint32_t number) {
    uint32_t at = position_of(g, g->lattices[number].low);
    while (g->by_address[at] != number) {
        at++;
    }
    g->num_by_address--;
    memmove(g->by_address + at, g->by_address + at + 1, (g->num_by_address - at) * sizeof *g->by_address);
    set_highest(g, at);
}

/* ---- one coordinate system for two tensors ---- */

/* Whether coordinates in the box [low, high) mean different addresses, byte for byte. */
static bool is_injective(int32_t rank, const int64_t *stride, int64_t element_bytes, const int64_t *low,
                         const int64_t *high) {
    int64_t span = element_bytes;
    for (int32_t d = rank - 1; d >= 0; d--) {
        if (stride[d] < span) {
            return false;
        }
        span += (high[d] - low[d] - 1) * stride[d];
    }
    return true;
}

/*
 * Finds coordinates `shift` of an address `difference` bytes from the origin of `l`, such that a box there (floor, end
 * relative to it) and what `l` has already are one coordinate system; low and high are room for the united bounds.
 */
static bool find_shift(const pto_lattice *l, int32_t d, int64_t difference, const int64_t *floor, const int64_t *end,
                       int64_t *shift, int64_t *low, int64_t *high) {
    if (d == l->rank) {
        if (difference != 0) {
            return false;
        }
        for (int32_t k = 0; k < l->rank; k++) {
            low[k] = shift[k] + floor[k] < l->floor[k] ? shift[k] + floor[k] : l->floor[k];
            high[k] = shift[k] + end[k] > l->end[k] ? shift[k] + end[k] : l->end[k];
        }
        return is_injective(l->rank, l->stride, l->element_bytes, low, high);
    }
    /* A slice that begins near the end of a row is also one that begins before the next row. */
    int64_t q = floor_div(difference, l->stride[d]);
    for (int64_t more = 0; more < 2; more++) {
        shift[d] = q + more;
        if (find_shift(l, d + 1, difference - shift[d] * l->stride[d], floor, end, shift, low, high)) {
            return true;
        }
    }
    return false;
}

static bool same_strides(const pto_lattice *a, const pto_lattice *b) {
    return a->rank == b->rank && a->element_bytes == b->element_bytes && !a->overlapping && !b->overlapping &&
           (a->rank == 0 || memcmp(a->stride, b->stride, (size_t)a->rank * sizeof *a->stride) == 0);
}

/* Makes `from` part of `into` if they fit one coordinate system; the tensors of `from` get its coordinates. */
static bool unite(pto_graph *g, uint32_t into, uint32_t from) {
    pto_lattice *a = &g->lattices[into];
    pto_lattice *b = &g->lattices[from];
    if (!same_strides(a, b)) {
        return false;
    }
    int64_t *room = pto__supply_block(&g->supply, (size_t)(3 * a->rank + 1) * sizeof *room);
    if (room == NULL) {
        return false; /* as neighbours they are right too */
    }
    int64_t *shift = room;
    int64_t *low = room + a->rank;
    int64_t *high = low + a->rank;
    bool found = find_shift(a, 0, b->origin - a->origin, b->floor, b->end, shift, low, high);
    if (found && a->state == PTO_TILED) {
        /* A tiling is fixed once it is used. */
        for (int32_t d = 0; d < a->rank && found; d++) {
            found = low[d] == a->floor[d] && high[d] == a->end[d];
        }
        found = found || pto__index_box(g, a, NULL);
    }
    if (found) {
        pto__forget_last(g, a);
        displace_lattice(g, into);
        displace_lattice(g, from);
        for (int32_t d = 0; d < a->rank; d++) {
            a->floor[d] = low[d];
            a->end[d] = high[d];
        }
        a->low = a->low < b->low ? a->low : b->low;
        a->high = a->high > b->high ? a->high : b->high;
        for (uint32_t i = 0; i < g->num_tensors && b->num_tensors != 0; i++) {
            pto_tensor *t = &g->tensors[i];
            if (t->lattice == from) {
                t->lattice = into;
                for (int32_t d = 0; d < a->rank; d++) {
                    t->axes[d].shift += shift[d];
                }
                b->num_tensors--;
                a->num_tensors++;
            }
        }
        (void)place_lattice(g, into); /* there is room: it was there before */
    }
    pto__supply_release(&g->supply, room);
    return found;
}

static bool add_neighbour(pto_graph *g, uint32_t of, uint32_t neighbour) {
    pto_lattice *l = &g->lattices[of];
    for (uint32_t i = 0; i < l->num_neighbours; i++) {
        if (l->neighbours[i] == neighbour) {
            return true;
        }
    }
    if (!pto__grow(g, (void **)&l->neighbours, &l->room_neighbours, l->num_neighbours + 1, sizeof *l->neighbours)) {
        return false;
    }
    l->neighbours[l->num_neighbours++] = neighbour;
    return l->state != PTO_TILED || pto__index_box(g, l, NULL);
}

/* Unites the new lattice with those it overlaps in memory, or makes them neighbours. */
static bool settle(pto_graph *g, uint32_t number) {
    for (bool again = true; again;) {
        again = false;
        pto_lattice *l = &g->lattices[number];
        uint32_t at = position_of(g, l->high);
        while (at > 0 && g->highest[at - 1] > l->low) {
            at--;
            uint32_t other = g->by_address[at];
            pto_lattice *o = &g->lattices[other];
            if (other == number || o->high <= l->low || o->low >= l->high) {
                continue;
            }
            /* One without accesses can go into another. */
            if (l->state == PTO_UNTOUCHED && l->num_neighbours == 0 && unite(g, other, number)) {
                number = other;
                again = true;
                break;
            }
            if (o->state == PTO_UNTOUCHED && o->num_neighbours == 0 && unite(g, number, other)) {
                again = true;
                break;
            }
            if (!add_neighbour(g, number, other) || !add_neighbour(g, other, number)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- tensors ---- */

static uint64_t hash_tensor(int64_t base, int64_t element_bytes, int32_t rank, const int64_t *extents,
                            const int64_t *strides) {
    uint64_t h = (uint64_t)base * 0x9e3779b97f4a7c15u + (uint64_t)element_bytes;
    for (int32_t i = 0; i < rank; i++) {
        h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u + (uint64_t)extents[i];
        h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u + (uint64_t)strides[i];
    }
    return h ^ h >> 32;
}

static bool same_numbers(const int64_t *a, const int64_t *b, int32_t count) {
    return count == 0 || memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

static bool more_buckets(pto_graph *g) {
    uint32_t count = g->num_tensor_buckets == 0 ? 64 : g->num_tensor_buckets * 2;
    uint32_t *buckets = pto__supply_block(&g->supply, count * sizeof *buckets);
    if (buckets == NULL) {
        return g->num_tensor_buckets != 0; /* longer chains */
    }
    memset(buckets, 0, count * sizeof *buckets);
    for (uint32_t i = 0; i < g->num_tensors; i++) {
        pto_tensor *t = &g->tensors[i];
        uint32_t at = (uint32_t)hash_tensor(t->base, t->element_bytes, t->rank, t->extents, t->strides) & (count - 1);
        t->next_same_hash = buckets[at];
        buckets[at] = i + 1;
    }
    if (g->tensor_buckets != NULL) {
        pto__supply_release(&g->supply, g->tensor_buckets);
    }
    g->tensor_buckets = buckets;
    g->num_tensor_buckets = count;
    return true;
}

/* The bytes from the lowest to the end of the highest element fit, with room for the arithmetic of runs_meet. */
static bool addresses_fit(int64_t base, int64_t element_bytes, int32_t rank, const int64_t *extents,
                          const int64_t *strides) {
    const int64_t most = INT64_MAX / 8;
    int64_t low = base;
    int64_t span = element_bytes;
    if (base < -most || base > most || element_bytes > most) {
        return false;
    }
    for (int32_t i = 0; i < rank; i++) {
        int64_t reach;
        if (extents[i] > most || strides[i] < -most || strides[i] > most ||
            __builtin_mul_overflow(extents[i] > 0 ? extents[i] - 1 : 0, strides[i], &reach) || reach > most ||
            reach < -most) {
            return false;
        }
        low += reach < 0 ? reach : 0;
        span += reach < 0 ? -reach : reach;
        if (low < -most || span > most) {
            return false;
        }
    }
    return true;
}

/* Writes the normal form of tensor `t` into its axes and into `l`. */
static void normalise(pto_tensor *t, pto_lattice *l) {
    l->origin = t->base;
    l->element_bytes = t->element_bytes;
    l->low = t->base;
    l->high = t->base + t->element_bytes;
    for (int32_t a = 0; a < t->rank; a++) {
        int64_t stride = t->strides[a];
        int64_t extent = t->extents[a];
        if (extent <= 1 || stride == 0) {
            t->dropped = true;
            continue;
        }
        pto_axis axis = {0, extent, a, stride < 0};
        if (stride < 0) {
            stride = -stride;
            l->origin -= stride * (extent - 1);
            l->low -= stride * (extent - 1);
        } else {
            l->high += stride * (extent - 1);
        }
        int32_t d = l->rank++;
        for (; d > 0 && l->stride[d - 1] < stride; d--) {
            l->stride[d] = l->stride[d - 1];
            t->axes[d] = t->axes[d - 1];
        }
        l->stride[d] = stride;
        t->axes[d] = axis;
    }
    for (int32_t d = 0; d < l->rank; d++) {
        l->floor[d] = 0;
        l->end[d] = t->axes[d].extent;
    }
    l->overlapping = !is_injective(l->rank, l->stride, l->element_bytes, l->floor, l->end);
}

int32_t pto__tensor_add(pto_graph *g, int64_t base, int64_t element_bytes, int32_t rank, const int64_t *extents,
                        const int64_t *strides, int32_t *number) {
    if (element_bytes < 1 || rank < 0) {
        return PTO_BAD_ARGUMENT;
    }
    for (int32_t a = 0; a < rank; a++) {
        if (extents[a] < 0) {
            return PTO_BAD_ARGUMENT;
        }
    }
    if (!addresses_fit(base, element_bytes, rank, extents, strides)) {
        return PTO_BAD_ARGUMENT;
    }
    uint64_t hash = hash_tensor(base, element_bytes, rank, extents, strides);
    if (g->num_tensor_buckets != 0) {
        uint32_t i = g->tensor_buckets[(uint32_t)hash & (g->num_tensor_buckets - 1)];
        for (; i != 0; i = g->tensors[i - 1].next_same_hash) {
            const pto_tensor *t = &g->tensors[i - 1];
            if (t->base == base && t->element_bytes == element_bytes && t->rank == rank &&
                same_numbers(t->extents, extents, rank) && same_numbers(t->strides, strides, rank)) {
                *number = (int32_t)(i - 1);
                return PTO_OK;
            }
        }
    }
    if (g->num_tensors >= INT32_MAX) {
        return PTO_NO_MEMORY;
    }
    if ((g->num_tensors >= g->num_tensor_buckets && !more_buckets(g)) ||
        !pto__grow(g, (void **)&g->tensors, &g->room_tensors, g->num_tensors + 1, sizeof *g->tensors) ||
        !pto__grow(g, (void **)&g->lattices, &g->room_lattices, g->num_lattices + 1, sizeof *g->lattices)) {
        return PTO_NO_MEMORY;
    }
    size_t r = (size_t)rank;
    size_t words = 5 * r + (sizeof(pto_axis) * r + sizeof(pto_tiling) * r) / sizeof(int64_t) + 1;
    int64_t *room = pto__arena_take(&g->arena, &g->supply, words * sizeof *room);
    if (room == NULL) {
        return PTO_NO_MEMORY;
    }
    pto_tensor *t = &g->tensors[g->num_tensors];
    memset(t, 0, sizeof *t);
    t->rank = rank;
    t->region_words = 1 + 2 * (int64_t)rank;
    t->base = base;
    t->element_bytes = element_bytes;
    t->extents = room;
    t->strides = room + r;
    t->axes = (pto_axis *)(void *)(room + 5 * r);
    if (rank != 0) {
        memcpy(t->extents, extents, r * sizeof *extents);
        memcpy(t->strides, strides, r * sizeof *strides);
    }
    pto_lattice *l = &g->lattices[g->num_lattices];
    memset(l, 0, sizeof *l);
    l->stride = room + 2 * r;
    l->floor = room + 3 * r;
    l->end = room + 4 * r;
    l->tiling = (pto_tiling *)(void *)(t->axes + r);
    l->num_tensors = 1;
    l->first_tensor = g->num_tensors;
    normalise(t, l);
    t->lattice = g->num_lattices;
    bool empty = false;
    for (int32_t a = 0; a < rank; a++) {
        empty |= extents[a] == 0;
    }
    if (!empty && !place_lattice(g, t->lattice)) {
        return PTO_NO_MEMORY;
    }
    g->num_lattices++;
    uint32_t *bucket = &g->tensor_buckets[(uint32_t)hash & (g->num_tensor_buckets - 1)];
    t->next_same_hash = *bucket;
    *bucket = g->num_tensors + 1;
    *number = (int32_t)g->num_tensors;
    g->num_tensors++;
    return empty || settle(g, t->lattice) ? PTO_OK : PTO_NO_MEMORY;
}

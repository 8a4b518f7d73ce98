/* SPDX-License-Identifier: MIT */
/*
 * Race checking of loops whose iterations are promised to be independent.
 *
 * A checked loop runs its iterations in order on one worker.  While it runs, a *scope* keeps for every byte of memory
 * the first iteration that wrote it, the first that read it and the first that updated it atomically.  The first ones
 * are enough: iterations come in order, so if the first is the current one there was no other.  The first race ends the
 * launch; it is the one whose later access comes first in the program's order.
 *
 * Loops inside checked loops are scopes of their own, and every access is looked at in all open scopes.  What a scope
 * remembers is in race_memory.c.
 *
 * All of this belongs to one worker and needs no synchronisation: while a scope is open, parallel loops run inline.
 */
#include "race_memory.h"

#include <string.h>

/* A cell's word: iteration number (from 0, 40 bits) and site + 1 (24 bits); 0 is nobody. */
#define SITE_BITS 24
#define MOST_ITERATIONS (((uint64_t)1 << (64 - SITE_BITS)) - 1)

static inline uint64_t iteration_of(uint64_t cell) { return cell >> SITE_BITS; }
static inline int32_t site_of(uint64_t cell) { return (int32_t)(cell & (((uint64_t)1 << SITE_BITS) - 1)) - 1; }

/* ---- scopes ---- */

static void drop_innermost(pto_race *race) {
    scope *s = race->innermost;
    pto__race_drop_blocks(race, s);
    race->innermost = s->outer;
    s->outer = race->free_scopes;
    race->free_scopes = s;
}

static void release_all(pto_worker *w) {
    const pto_allocator *allocator = &w->rt->allocator;
    pto_race *race = w->race;
    for (scope *s = race->free_scopes; s != NULL;) {
        scope *next = s->outer;
        if (s->table != NULL) {
            pto__release(allocator, s->table, s->capacity * sizeof *s->table);
        }
        pto__release(allocator, s, sizeof *s);
        s = next;
    }
    pto__race_release_kept(race, allocator);
    w->in_parallel = race->was_parallel;
    w->race = NULL;
    pto__release(allocator, race, sizeof *race);
}

int32_t pto_race_enter(pto_worker *w, int32_t site) {
    pto_race *race = w->race;
    if (race == NULL) {
        race = pto__race_allocate(w, sizeof *race);
        if (race == NULL) {
            return PTO_NO_MEMORY;
        }
        memset(race, 0, sizeof *race);
        race->was_parallel = w->in_parallel;
        w->race = race;
        w->in_parallel = true; /* parallel loops inside run inline */
    }
    scope *s = race->free_scopes;
    if (s != NULL) {
        race->free_scopes = s->outer;
    } else {
        s = pto__race_allocate(w, sizeof *s);
        if (s == NULL) {
            pto__race_reset(w);
            return PTO_NO_MEMORY;
        }
        memset(s, 0, sizeof *s);
    }
    s->outer = race->innermost;
    s->site = site;
    s->started = false;
    race->innermost = s;
    return PTO_OK;
}

int32_t pto_race_inside(const pto_worker *w, int32_t site) {
    return w->race != NULL && w->race->innermost->site == site;
}

void pto_race_iteration(pto_worker *w, int64_t value, int64_t step) {
    scope *s = w->race->innermost;
    if (!s->started) {
        s->started = true;
        s->first = value;
        s->step = step;
    }
    /* unsigned: the distance of two indices may not fit a signed number; iterations come in order, so it is exact */
    uint64_t distance = step < 0 ? (uint64_t)s->first - (uint64_t)value : (uint64_t)value - (uint64_t)s->first;
    uint64_t size = step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
    uint64_t iteration = size == 1 ? distance : distance / size;
    s->iteration = iteration < MOST_ITERATIONS ? iteration : MOST_ITERATIONS;
}

void pto_race_leave(pto_worker *w) {
    drop_innermost(w->race);
    if (w->race->innermost == NULL) {
        release_all(w);
    }
}

void pto__race_reset(pto_worker *w) {
    if (w->race != NULL) {
        while (w->race->innermost != NULL) {
            drop_innermost(w->race);
        }
        release_all(w);
    }
}

/* ---- accesses ---- */

typedef struct access {
    int32_t kind;
    int32_t site;
    uint64_t size; /* bytes of an element */
} access;

static int64_t variable(const scope *s, uint64_t iteration) {
    return (int64_t)((uint64_t)s->first + iteration * (uint64_t)s->step);
}

/* Where an access of a kind is noted. */
static const int NOTED[3] = {[PTO_ACCESS_READ] = READER, [PTO_ACCESS_WRITE] = WRITER, [PTO_ACCESS_ATOMIC] = UPDATER};

/* Which planes of a block contradict an access of a kind by another iteration. */
static const uint8_t CONTRADICTS[3] = {
    [PTO_ACCESS_READ] = 1 << WRITER | 1 << UPDATER,
    [PTO_ACCESS_WRITE] = 1 << WRITER | 1 << UPDATER | 1 << READER,
    [PTO_ACCESS_ATOMIC] = 1 << WRITER | 1 << READER,
};

/* The earliest iteration's access that contradicts: at equal iterations a write before an update before a read. */
static uint64_t partner(const block *b, size_t cell, const access *a, uint64_t iteration) {
    uint64_t found = 0;
    for (int p = 0; p < PLANES; p++) { /* in this order */
        if ((CONTRADICTS[a->kind] >> p & 1) == 0 || b->planes[p] == NULL) {
            continue;
        }
        uint64_t other = b->planes[p][cell];
        if (other != 0 && iteration_of(other) != iteration &&
            (found == 0 || iteration_of(other) < iteration_of(found))) {
            found = other;
        }
    }
    return found;
}

/* Looks at cells [from, to) of a block and notes the access; the first cell that is a race, `to` when there is none. */
static size_t look(const scope *s, block *b, const access *a, size_t from, size_t to) {
    uint64_t now = s->iteration;
    uint64_t mine = now << SITE_BITS | (uint64_t)(a->site + 1);
    unsigned planes = 0; /* those that may contradict */
    for (int p = 0; p < PLANES; p++) {
        planes |= b->planes[p] != NULL ? 1u << p : 0;
    }
    planes &= CONTRADICTS[a->kind];
    for (int p = 0; planes >> p != 0; p++) {
        if ((planes >> p & 1) == 0) {
            continue;
        }
        const uint64_t *plane = b->planes[p];
        for (size_t cell = from; cell < to; cell++) {
            if (PTO_UNLIKELY(plane[cell] != 0 && iteration_of(plane[cell]) != now)) {
                to = cell; /* only an earlier cell is of interest to the planes after this one */
                break;
            }
        }
    }
    uint64_t *plane = b->planes[NOTED[a->kind]];
    for (size_t cell = from; cell < to; cell++) {
        plane[cell] = plane[cell] != 0 ? plane[cell] : mine;
    }
    return to;
}

/* Elements side by side: `bytes` bytes from `address` on. */
static int32_t look_at_run(pto_worker *w, scope *s, const access *a, uint64_t address, uint64_t bytes) {
    unsigned shift = (unsigned)__builtin_ctzll(address | a->size | 1 << (GRANULES - 1));
    uint64_t at = address;
    uint64_t end = address + bytes;
    while (at < end) {
        uint64_t number = at >> BLOCK_SHIFT;
        block *b = block_for(w, s, number, shift, NOTED[a->kind]);
        if (PTO_UNLIKELY(b == NULL)) {
            return PTO_NO_MEMORY;
        }
        uint64_t start = number << BLOCK_SHIFT;
        uint64_t stop = end - start < BLOCK_BYTES ? end : start + BLOCK_BYTES;
        size_t from = (size_t)(at - start) >> b->shift;
        size_t to = (size_t)(stop - start) >> b->shift;
        size_t cell = look(s, b, a, from, to);
        if (PTO_UNLIKELY(cell != to)) {
            uint64_t other = partner(b, cell, a, s->iteration);
            uint64_t where = start + ((uint64_t)cell << b->shift) - address;
            uint64_t element = address + where / a->size * a->size;
            pto__record(w, PTO_FAILED, a->site, variable(s, s->iteration), variable(s, iteration_of(other)),
                        (int64_t)element);
            w->failure.count = 2;
            w->failure.more[0] = s->site;
            w->failure.more[1] = site_of(other);
            return PTO_FAILED;
        }
        at = stop;
    }
    return PTO_OK;
}

/* A rectangle in row-major order, its axes from `axis` on. */
static int32_t look_at(pto_worker *w, scope *s, const access *a, uint64_t address, int32_t rank, const int64_t *extents,
                       const int64_t *strides) {
    if (rank == 0) {
        return look_at_run(w, s, a, address, a->size);
    }
    if (extents[0] <= 0) {
        return PTO_OK;
    }
    if (rank == 1 && strides[0] == (int64_t)a->size) {
        return look_at_run(w, s, a, address, (uint64_t)extents[0] * a->size);
    }
    for (int64_t i = 0; i < extents[0]; i++) {
        int32_t status = look_at(w, s, a, address + (uint64_t)i * (uint64_t)strides[0], rank - 1, extents + 1,
                                 strides + 1);
        if (status != PTO_OK) {
            return status;
        }
    }
    return PTO_OK;
}

/* In the scopes from the outermost one inwards. */
static int32_t look_in(pto_worker *w, scope *s, const access *a, const void *address, int32_t rank,
                       const int64_t *shape) {
    if (s == NULL) {
        return PTO_OK;
    }
    int32_t status = look_in(w, s->outer, a, address, rank, shape);
    if (status != PTO_OK || !s->started) {
        return status;
    }
    return look_at(w, s, a, (uint64_t)(uintptr_t)address, rank, shape, shape + rank);
}

int32_t pto_race_access(pto_worker *w, int32_t site, int32_t kind, const void *address, int64_t size, int32_t rank,
                        const int64_t *shape) {
    if (w->race == NULL) {
        return PTO_OK;
    }
    access a = {kind, site, (uint64_t)size};
    for (int32_t axis = 0; axis < rank; axis++) {
        if (shape[axis] <= 0) {
            return PTO_OK;
        }
    }
    return look_in(w, w->race->innermost, &a, address, rank, shape);
}

void pto_race_forget(pto_worker *w, const void *address, int64_t bytes) {
    if (w->race == NULL || bytes <= 0) {
        return;
    }
    uint64_t begin = (uint64_t)(uintptr_t)address;
    uint64_t end = begin + (uint64_t)bytes;
    for (scope *s = w->race->innermost; s != NULL; s = s->outer) {
        for (block *b = s->blocks; b != NULL; b = b->next) {
            uint64_t start = b->number << BLOCK_SHIFT;
            uint64_t from = begin > start ? begin - start : 0;
            uint64_t to = end > start ? end - start : 0;
            to = to < BLOCK_BYTES ? to : BLOCK_BYTES;
            if (from >= to) {
                continue;
            }
            size_t first = (size_t)from >> b->shift;
            size_t last = (size_t)(to + (1u << b->shift) - 1) >> b->shift;
            for (int p = 0; p < PLANES; p++) {
                if (b->planes[p] != NULL) {
                    memset(b->planes[p] + first, 0, (last - first) * sizeof(uint64_t));
                }
            }
        }
    }
}

/* ---- the element that was raced for ---- */

void pto_race_element(pto_worker *w, const void *base, int32_t rank, const int64_t *shape) {
    pto_failure *f = &w->failure;
    if (f->status != PTO_FAILED || f->count != 2 || rank > PTO_FAILURE_MORE - 2) {
        return;
    }
    const int64_t *extents = shape;
    const int64_t *strides = shape + rank;
    int64_t rest = (int64_t)((uint64_t)f->v2 - (uint64_t)(uintptr_t)base);
    bool done[PTO_FAILURE_MORE] = {false};
    int64_t index[PTO_FAILURE_MORE] = {0};
    for (int32_t axis = 0; axis < rank; axis++) {
        if (strides[axis] < 0) { /* count from the other end of the axis */
            rest -= (extents[axis] - 1) * strides[axis];
        }
    }
    for (int32_t step = 0; step < rank; step++) { /* the widest steps first */
        int32_t axis = -1;
        int64_t widest = -1;
        for (int32_t k = 0; k < rank; k++) {
            int64_t size = strides[k] < 0 ? -strides[k] : strides[k];
            if (!done[k] && size > widest) {
                axis = k;
                widest = size;
            }
        }
        done[axis] = true;
        int64_t at = widest == 0 || extents[axis] == 1 ? 0 : rest / widest;
        if (at < 0 || at >= extents[axis]) {
            return; /* axes that overlap each other: the element has no single place */
        }
        rest -= at * widest;
        index[axis] = strides[axis] < 0 ? extents[axis] - 1 - at : at;
    }
    if (rest != 0) {
        return;
    }
    memcpy(f->more + 2, index, (size_t)rank * sizeof index[0]);
    f->count = 2 + rank;
}

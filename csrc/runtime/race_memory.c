/* SPDX-License-Identifier: MIT */
/* What checked loops remember of memory: blocks and their cells, and the table that finds them. */
#include "race_memory.h"

#include <string.h>

enum { FIRST_TABLE = 16 };

void *pto__race_allocate(pto_worker *w, size_t bytes) {
    void *memory = pto__allocate(&w->rt->allocator, bytes);
    if (memory == NULL) {
        pto__record(w, PTO_NO_MEMORY, PTO_SITE_NO_MEMORY, (int64_t)bytes, 0, 0);
    }
    return memory;
}

static size_t plane_bytes(unsigned shift) { return (size_t)(BLOCK_BYTES >> shift) * sizeof(uint64_t); }

static uint64_t *make_plane(pto_worker *w, unsigned shift) {
    pto_race *race = w->race;
    void *plane = race->free_planes[shift];
    if (plane != NULL) {
        race->free_planes[shift] = race->free_planes[shift]->next;
    } else {
        plane = pto__race_allocate(w, plane_bytes(shift));
        if (plane == NULL) {
            return NULL;
        }
    }
    return memset(plane, 0, plane_bytes(shift));
}

static void drop_plane(pto_race *race, uint64_t *plane, unsigned shift) {
    free_plane *freed = (void *)plane;
    freed->next = race->free_planes[shift];
    race->free_planes[shift] = freed;
}

static size_t slot_of(uint64_t number, size_t capacity) {
    return (size_t)((number * 0x9e3779b97f4a7c15u) >> 32) & (capacity - 1);
}

static void enter(block **table, size_t capacity, block *b) {
    size_t at = slot_of(b->number, capacity);
    while (table[at] != NULL) {
        at = (at + 1) & (capacity - 1);
    }
    table[at] = b;
}

static bool grow(pto_worker *w, scope *s, size_t capacity) {
    block **table = pto__race_allocate(w, capacity * sizeof *table);
    if (table == NULL) {
        return false;
    }
    memset(table, 0, capacity * sizeof *table);
    for (block *b = s->blocks; b != NULL; b = b->next) {
        enter(table, capacity, b);
    }
    if (s->table != NULL) {
        pto__release(&w->rt->allocator, s->table, s->capacity * sizeof *table);
    }
    s->table = table;
    s->capacity = capacity;
    return true;
}

static block *find(scope *s, uint64_t number) {
    if (s->count == 0) {
        return NULL;
    }
    size_t at = slot_of(number, s->capacity);
    while (s->table[at] != NULL && s->table[at]->number != number) {
        at = (at + 1) & (s->capacity - 1);
    }
    return s->table[at];
}

/* The block with that number, made when there is none; NULL: no memory. */
static block *find_or_make(pto_worker *w, scope *s, uint64_t number, unsigned shift) {
    block *b = find(s, number);
    if (b != NULL) {
        return b;
    }
    if (2 * (s->count + 1) > s->capacity && !grow(w, s, s->capacity == 0 ? FIRST_TABLE : 2 * s->capacity)) {
        return NULL;
    }
    pto_race *race = w->race;
    b = race->free_blocks;
    if (b != NULL) {
        race->free_blocks = b->next;
    } else {
        b = pto__race_allocate(w, sizeof *b);
        if (b == NULL) {
            return NULL;
        }
    }
    memset(b, 0, sizeof *b);
    b->number = number;
    b->shift = shift;
    b->next = s->blocks;
    s->blocks = b;
    s->count++;
    enter(s->table, s->capacity, b);
    return b;
}

/* Gives a block cells as fine as `shift`: the bytes of an old cell have its history, each of them. */
static bool refine(pto_worker *w, block *b, unsigned shift) {
    unsigned ratio = b->shift - shift;
    uint64_t *fine[PLANES] = {NULL};
    for (int p = 0; p < PLANES; p++) {
        if (b->planes[p] != NULL) {
            fine[p] = make_plane(w, shift);
            if (fine[p] == NULL) {
                while (p-- > 0) {
                    if (fine[p] != NULL) {
                        drop_plane(w->race, fine[p], shift);
                    }
                }
                return false;
            }
        }
    }
    for (int p = 0; p < PLANES; p++) {
        if (fine[p] != NULL) {
            for (size_t cell = 0; cell < (size_t)(BLOCK_BYTES >> shift); cell++) {
                fine[p][cell] = b->planes[p][cell >> ratio];
            }
            drop_plane(w->race, b->planes[p], b->shift);
            b->planes[p] = fine[p];
        }
    }
    b->shift = shift;
    return true;
}

block *pto__race_block(pto_worker *w, scope *s, uint64_t number, unsigned shift, int plane) {
    block *b = find_or_make(w, s, number, shift);
    if (b == NULL || (shift < b->shift && !refine(w, b, shift))) {
        return NULL;
    }
    if (b->planes[plane] == NULL) {
        b->planes[plane] = make_plane(w, b->shift);
        if (b->planes[plane] == NULL) {
            return NULL;
        }
    }
    s->last[plane] = b;
    return b;
}

void pto__race_drop_blocks(pto_race *race, scope *s) {
    while (s->blocks != NULL) {
        block *b = s->blocks;
        s->blocks = b->next;
        for (int p = 0; p < PLANES; p++) {
            if (b->planes[p] != NULL) {
                drop_plane(race, b->planes[p], b->shift);
            }
        }
        b->next = race->free_blocks;
        race->free_blocks = b;
    }
    if (s->count != 0) {
        memset(s->table, 0, s->capacity * sizeof *s->table);
    }
    s->count = 0;
    memset(s->last, 0, sizeof s->last);
}

void pto__race_release_kept(pto_race *race, const pto_allocator *allocator) {
    for (block *b = race->free_blocks; b != NULL;) {
        block *next = b->next;
        pto__release(allocator, b, sizeof *b);
        b = next;
    }
    for (unsigned shift = 0; shift < GRANULES; shift++) {
        for (free_plane *p = race->free_planes[shift]; p != NULL;) {
            free_plane *next = p->next;
            pto__release(allocator, p, plane_bytes(shift));
            p = next;
        }
    }
}

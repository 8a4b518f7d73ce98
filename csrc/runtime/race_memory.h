/* SPDX-License-Identifier: MIT */
/*
 * What checked loops remember of memory (race.c says of what and why).
 *
 * Memory is looked at in *blocks* of 1 KiB, found through a hash table; a block has one *cell* per 8, 4, 2 or 1 bytes,
 * as fine as the accesses to it need (it is refined when a finer access arrives).  A cell is one 64-bit word per *plane*
 * (writer, reader, updater), and a plane is made when the first such access happens: data that is only read or only
 * written costs 8 bytes per element.
 */
#ifndef PTO_RACE_MEMORY_H
#define PTO_RACE_MEMORY_H

#include "internal.h"

enum { BLOCK_SHIFT = 10, BLOCK_BYTES = 1 << BLOCK_SHIFT, GRANULES = 4 };
enum { WRITER, UPDATER, READER, PLANES };

typedef struct block {
    uint64_t number; /* address / BLOCK_BYTES */
    unsigned shift;  /* a cell stands for 1 << shift bytes */
    uint64_t *planes[PLANES];
    struct block *next; /* of the scope, or of the free ones */
} block;

typedef struct scope {
    struct scope *outer; /* or the next free one */
    int32_t site;        /* of the loop */
    bool started;
    int64_t first; /* the loop variable of iteration number 0, and its step */
    int64_t step;
    uint64_t iteration;
    block **table; /* open addressing, a power of two */
    size_t capacity;
    size_t count;
    block *blocks;       /* all of the table's */
    block *last[PLANES]; /* the one used last for each plane */
} scope;

typedef struct free_plane {
    struct free_plane *next;
} free_plane;

struct pto_race {
    scope *innermost; /* NULL only while nothing is kept */
    bool was_parallel; /* the worker's flag before the outermost scope */
    /* kept for the next inner loop, released with the outermost scope */
    scope *free_scopes;
    block *free_blocks;
    free_plane *free_planes[GRANULES];
};

/* Memory of the worker's runtime; NULL, which is noted as the launch's failure, when there is none. */
void *pto__race_allocate(pto_worker *w, size_t bytes);

/* The block with that number, its cells as fine as `shift`, with that plane; made as needed.  NULL: no memory. */
block *pto__race_block(pto_worker *w, scope *s, uint64_t number, unsigned shift, int plane);

/* The same; most reads follow one of their block, and so do writes and updates. */
static inline block *block_for(pto_worker *w, scope *s, uint64_t number, unsigned shift, int plane) {
    block *b = s->last[plane];
    bool ready = b != NULL && b->number == number && b->shift <= shift && b->planes[plane] != NULL;
    return PTO_LIKELY(ready) ? b : pto__race_block(w, s, number, shift, plane);
}

/* A scope forgets all that it saw; its blocks are kept for the next one. */
void pto__race_drop_blocks(pto_race *race, scope *s);

/* Gives back what is kept for scopes to come. */
void pto__race_release_kept(pto_race *race, const pto_allocator *allocator);

#endif

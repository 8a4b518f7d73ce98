/* SPDX-License-Identifier: MIT */
/*
 * Memory of a graph: blocks from the runtime's recycled memory, cut into pages; elements of one size with numbers (slabs)
 * and variable pieces (arena) on the pages.  Everything goes back at once with the graph.
 */
#ifndef PTO_TASK_MEMORY_H
#define PTO_TASK_MEMORY_H

#include "internal.h"

#if defined(__GNUC__) || defined(__clang__)
#define PTO_ALWAYS_INLINE inline __attribute__((always_inline))
#define PTO_ASSUME(condition) ((condition) ? (void)0 : __builtin_unreachable()) /* for those who look at the result */
#define PTO_SOON_WRITTEN(address) __builtin_prefetch((const void *)(address), 1)
#else
#define PTO_ALWAYS_INLINE inline
#define PTO_ASSUME(condition) ((void)0)
#define PTO_SOON_WRITTEN(address) ((void)(address))
#endif

/*
 * How far ahead the memory of what is added in turn is asked for.  A graph beyond the near caches is written to memory
 * that is in none of them; three slabs and the arena take turns, too many for the processor to see each one's order.
 */
#define PTO_AHEAD 256u

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
    uint32_t most; /* there are no higher numbers */
    uint32_t free; /* the first of the numbers given back; its first word is the next one; 0: none */
} pto_slab;

/* Base-2 logarithms of the sizes of elements. */
#define PTO_LOG2_TASK 5u
#define PTO_LOG2_LINK 4u
#define PTO_LOG2_CELL 5u
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
void pto__slab_init(pto_slab *slab, uint32_t most);
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
    PTO_SOON_WRITTEN((uintptr_t)element + PTO_AHEAD);
    slab->cursor += (size_t)1 << log2;
    *number = slab->end++;
    return element;
}

void *pto__slab_take_slow(pto_slab *slab, pto_supply *s, uint32_t log2, uint32_t *number); /* pto__slab_take */

/* The same, and those given back only when a page ends: faster, for what is seldom given back. */
static PTO_ALWAYS_INLINE void *pto__slab_new(pto_slab *slab, pto_supply *s, uint32_t log2, uint32_t *number) {
    uint32_t end = slab->end;
    if (PTO_UNLIKELY(end >= slab->room)) {
        uint32_t taken; /* so that *number need not be in memory */
        void *slow = pto__slab_take_slow(slab, s, log2, &taken);
        *number = slow == NULL ? 0 : taken;
        return slow;
    }
    unsigned char *element = slab->cursor;
    PTO_ASSUME(element != NULL);
    PTO_SOON_WRITTEN((uintptr_t)element + PTO_AHEAD);
    slab->cursor = element + ((size_t)1 << log2);
    slab->end = end + 1;
    *number = end;
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
            PTO_SOON_WRITTEN((uintptr_t)p + PTO_AHEAD);
            a->at += bytes;
            a->left -= bytes;
            return p;
        }
    }
    return pto__arena_take_slow(a, s, bytes);
}

#endif

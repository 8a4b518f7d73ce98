/* SPDX-License-Identifier: MIT */
/*
 * Memory of a graph: blocks from the runtime's recycled memory, cut into pages; numbered elements of one size (slabs)
 * and variable pieces (arena) on the pages.  Everything goes back at once with the graph.
 */
#include "tasks.h"

#include <string.h>

/* With the pool's own part these fill a size class: 64 and 256 KiB. */
#define FIRST_PAGES 15u
#define LATER_PAGES 63u

_Static_assert(sizeof(pto_piece) <= PTO_CACHE_LINE, "the head of a block is one cache line");

void *pto__supply_block(pto_supply *s, size_t bytes) {
    if (bytes > SIZE_MAX - PTO_CACHE_LINE) {
        return NULL;
    }
    size_t total = bytes + PTO_CACHE_LINE;
    pto_piece *piece = pto__pool_take(s->pool, NULL, total);
    if (piece == NULL) {
        return NULL;
    }
    piece->bytes = total;
    piece->next = s->blocks;
    piece->previous = NULL;
    if (piece->next != NULL) {
        piece->next->previous = piece;
    }
    s->blocks = piece;
    s->bytes += (int64_t)total;
    return (unsigned char *)piece + PTO_CACHE_LINE;
}

void pto__supply_release(pto_supply *s, void *block) {
    pto_piece *piece = (pto_piece *)(void *)((unsigned char *)block - PTO_CACHE_LINE);
    if (piece->previous != NULL) {
        piece->previous->next = piece->next;
    } else {
        s->blocks = piece->next;
    }
    if (piece->next != NULL) {
        piece->next->previous = piece->previous;
    }
    s->bytes -= (int64_t)piece->bytes;
    pto_buffer_free(NULL, piece);
}

void pto__supply_end(pto_supply *s) {
    pto_piece *piece = s->blocks;
    while (piece != NULL) {
        pto_piece *next = piece->next;
        pto_buffer_free(NULL, piece);
        piece = next;
    }
    s->blocks = NULL;
}

static unsigned char *take_page(pto_supply *s) {
    if (s->pages_left == 0) {
        uint32_t pages = s->paged ? LATER_PAGES : FIRST_PAGES;
        s->paged = true;
        s->page = pto__supply_block(s, (size_t)pages * PTO_PAGE_BYTES);
        if (s->page == NULL) {
            return NULL;
        }
        s->pages_left = pages;
    }
    unsigned char *page = s->page;
    s->page += PTO_PAGE_BYTES;
    s->pages_left--;
    return page;
}

/* ---- slabs ---- */

void pto__slab_init(pto_slab *slab, uint32_t most) {
    memset(slab, 0, sizeof *slab);
    atomic_init(&slab->table, NULL);
    slab->end = 1; /* 0 means none */
    slab->room = 0;
    slab->most = most;
}

bool pto__slab_grow(pto_slab *slab, pto_supply *s, uint32_t log2) {
    uint32_t per_page = PTO_PAGE_BYTES >> log2;
    uint32_t pages = slab->room / per_page;
    if (slab->room > slab->most - per_page) {
        return false;
    }
    /* relaxed: only this thread changes it */
    unsigned char **table = atomic_load_explicit(&slab->table, memory_order_relaxed);
    if (pages == slab->table_length) {
        uint32_t length = slab->table_length == 0 ? 64 : slab->table_length * 2;
        unsigned char **longer = pto__supply_block(s, (size_t)length * sizeof *longer);
        if (longer == NULL) {
            return false;
        }
        if (pages != 0) {
            memcpy(longer, table, (size_t)pages * sizeof *longer);
        }
        table = longer; /* the old one stays: another thread may be about to read it */
        slab->table_length = length;
    }
    unsigned char *page = take_page(s);
    if (page != NULL) {
        table[pages] = page;
    }
    /* release: pairs with the acquire in pto__slab_at */
    atomic_store_explicit(&slab->table, table, memory_order_release);
    if (page == NULL) {
        return false;
    }
    slab->cursor = page + ((size_t)(slab->end - slab->room) << log2);
    slab->room += per_page;
    return true;
}

void *pto__slab_take_slow(pto_slab *slab, pto_supply *s, uint32_t log2, uint32_t *number) {
    return pto__slab_take(slab, s, log2, number);
}

/* ---- the arena ---- */

void *pto__arena_take_slow(pto_arena *a, pto_supply *s, size_t bytes) {
    if (bytes > PTO_SMALL_UNITS * 8) {
        return pto__supply_block(s, bytes);
    }
    if (a->left >= 8) { /* what is left of the page serves smaller things */
        void **rest = (void **)(void *)a->at;
        *rest = a->free[a->left / 8];
        a->free[a->left / 8] = rest;
        a->left = 0;
    }
    unsigned char *page = take_page(s);
    if (page == NULL) {
        return NULL;
    }
    a->at = page + bytes;
    a->left = PTO_PAGE_BYTES - bytes;
    return page;
}

void pto__arena_give(pto_arena *a, pto_supply *s, void *p, size_t bytes) {
    if (bytes > PTO_SMALL_UNITS * 8) {
        pto__supply_release(s, p);
    } else if (bytes != 0) {
        *(void **)p = a->free[bytes / 8];
        a->free[bytes / 8] = p;
    }
}

bool pto__grow(pto_graph *g, void **array, uint32_t *room, uint32_t wanted, size_t element_bytes) {
    if (wanted <= *room) {
        return true;
    }
    uint32_t more = *room == 0 ? 16 : *room;
    while (more < wanted) {
        if (more > UINT32_MAX / 2) {
            return false;
        }
        more *= 2;
    }
    void *longer = pto__supply_block(&g->supply, (size_t)more * element_bytes);
    if (longer == NULL) {
        return false;
    }
    if (*room != 0) {
        memcpy(longer, *array, (size_t)*room * element_bytes);
        pto__supply_release(&g->supply, *array);
    }
    *array = longer;
    *room = more;
    return true;
}

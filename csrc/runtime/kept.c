/* SPDX-License-Identifier: MIT */
/*
 * Packed matrices that a launch keeps: a right operand of many products that does not change is packed once.
 *
 * A table of 64-byte entries per launch, without locks: an entry is claimed, its key is written, and then it only goes
 * forward - seen once, being packed, there.  Whoever does not find a copy that is there packs for himself, so nobody
 * waits for anybody.  Memory is taken from the recycled buffers when a matrix is met for the second time.
 */
#include "internal.h"

#include <string.h>

#define SLOTS 1024u /* a power of two */
#define PROBES 8u
#define MOST_BYTES ((int64_t)64 << 20) /* of copies in a launch */

enum state { EMPTY, CLAIMED, SEEN, PACKING, THERE, REFUSED };

typedef struct entry {
    void *copy;
    pto_matrix key;
    atomic_int state;
} entry;

_Static_assert(sizeof(entry) <= PTO_CACHE_LINE, "an entry is a cache line");

struct pto_kept_table {
    entry entries[SLOTS];
    uint16_t used[SLOTS];
    atomic_uint num_used;
    _Atomic(int64_t) bytes;
};

void pto_fixed(pto_worker *w, const void *low, const void *high) {
    pto_kept *kept = &w->launch->kept;
    if (low >= high || kept->num_fixed == PTO_FIXED_RANGES) {
        return;
    }
    if (kept->table == NULL) {
        kept->table = pto__allocate(&w->rt->allocator, sizeof *kept->table);
        if (kept->table == NULL) { /* nothing is kept then; that costs time, not results */
            return;
        }
        memset(kept->table, 0, sizeof *kept->table);
    }
    kept->fixed[kept->num_fixed].low = (uintptr_t)low;
    kept->fixed[kept->num_fixed].high = (uintptr_t)high;
    kept->num_fixed++;
}

/* Whether all elements lie in one of the ranges. */
static bool is_fixed(const pto_kept *kept, const pto_matrix *m) {
    int64_t down = (m->rows - 1) * m->row_stride;
    int64_t right = (m->columns - 1) * m->column_stride;
    uintptr_t first = (uintptr_t)m->data;
    uintptr_t low = first + (uintptr_t)((down < 0 ? down : 0) + (right < 0 ? right : 0));
    uintptr_t high = first + (uintptr_t)((down > 0 ? down : 0) + (right > 0 ? right : 0));
    for (uint32_t i = 0; i < kept->num_fixed; i++) {
        if (kept->fixed[i].low <= low && high < kept->fixed[i].high) {
            return true;
        }
    }
    return false;
}

static uint32_t hash(const pto_matrix *m) {
    uint64_t h = (uint64_t)(uintptr_t)m->data >> 2;
    h = (h ^ (uint64_t)m->rows) * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ (uint64_t)m->columns ^ ((uint64_t)m->row_stride << 20)) * UINT64_C(0xC2B2AE3D27D4EB4F);
    h = (h ^ (uint64_t)m->column_stride ^ (uint64_t)(uintptr_t)m->form) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(h >> 40);
}

static bool same(const pto_matrix *a, const pto_matrix *b) { return memcmp(a, b, sizeof *a) == 0; }

/* The entry of that key, made if it is new; NULL when there is no room or somebody else is making one here. */
static entry *find(pto_kept_table *table, const pto_matrix *m, bool *is_new) {
    uint32_t at = hash(m);
    *is_new = false;
    for (uint32_t i = 0; i < PROBES; i++, at++) {
        entry *e = &table->entries[at % SLOTS];
        int state = atomic_load_explicit(&e->state, memory_order_acquire); /* pairs with the release below: the key */
        if (state == EMPTY) {
            if (!atomic_compare_exchange_strong_explicit(&e->state, &state, CLAIMED, memory_order_relaxed,
                                                         memory_order_relaxed)) {
                return NULL;
            }
            e->key = *m;
            e->copy = NULL;
            unsigned n = atomic_fetch_add_explicit(&table->num_used, 1, memory_order_relaxed);
            table->used[n] = (uint16_t)(at % SLOTS);
            atomic_store_explicit(&e->state, SEEN, memory_order_release);
            *is_new = true;
            return e;
        }
        if (state == CLAIMED) {
            return NULL;
        }
        if (same(&e->key, m)) {
            return e;
        }
    }
    return NULL;
}

void *pto_kept_find(pto_worker *w, const pto_matrix *m, int64_t bytes, void **room) {
    pto_kept *kept = &w->launch->kept;
    *room = NULL;
    if (!is_fixed(kept, m)) {
        return NULL;
    }
    bool is_new;
    entry *e = find(kept->table, m, &is_new);
    if (e == NULL || is_new) {
        return NULL;
    }
    int state = atomic_load_explicit(&e->state, memory_order_acquire); /* pairs with pto_kept_done: the copy */
    if (state == THERE) {
        return e->copy;
    }
    if (state != SEEN || !atomic_compare_exchange_strong_explicit(&e->state, &state, PACKING, memory_order_relaxed,
                                                                  memory_order_relaxed)) {
        return NULL;
    }
    if (atomic_fetch_add_explicit(&kept->table->bytes, bytes, memory_order_relaxed) <= MOST_BYTES - bytes) {
        e->copy = pto__pool_take(w->rt->pool, w->launch, (size_t)bytes);
    }
    if (e->copy == NULL) {
        atomic_store_explicit(&e->state, REFUSED, memory_order_relaxed);
        return NULL;
    }
    *room = e; /* `copy` is its first member */
    return NULL;
}

void pto_kept_done(void *room) {
    entry *e = room;
    atomic_store_explicit(&e->state, THERE, memory_order_release); /* pairs with pto_kept_find */
}

void pto__kept_clear(pto_kept *kept) {
    pto_kept_table *table = kept->table;
    unsigned n = table == NULL ? 0 : atomic_load_explicit(&table->num_used, memory_order_relaxed);
    for (unsigned i = 0; i < n; i++) {
        entry *e = &table->entries[table->used[i]];
        pto_buffer_free(NULL, e->copy);
        atomic_store_explicit(&e->state, EMPTY, memory_order_relaxed);
    }
    if (n > 0) {
        atomic_store_explicit(&table->num_used, 0, memory_order_relaxed);
        atomic_store_explicit(&table->bytes, 0, memory_order_relaxed);
    }
    kept->num_fixed = 0;
}

void pto__kept_destroy(pto_kept *kept, const pto_allocator *a) {
    if (kept->table != NULL) {
        pto__release(a, kept->table, sizeof *kept->table);
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * Recycled buffers: eight size classes per power of two, the most recently freed block of a class first, and a limit on
 * what is kept, above which the block that was freed longest ago goes.  A block keeps its header in the cache line
 * before its data.
 *
 * One lock guards everything; memory is asked for and given back outside it.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pto_block {
    pto_pool *pool;
    unsigned char *base;     /* what the allocator gave */
    size_t total;            /* its size: exactly that of its class */
    pto_launch_state *owner; /* live: the launch that owns it, or NULL.  cached: CACHED_OWNER */
    pto_block *older;        /* cached: order of freeing.  live: the owner's list */
    pto_block *newer;
    pto_block *class_next; /* cached: the class, most recent first */
    pto_block *class_prev;
};

_Static_assert(sizeof(pto_block) <= PTO_CACHE_LINE, "a header is the cache line before the data");

/* Nobody's launch: marks what is free, so that freeing it again is found before it breaks the lists. */
#define CACHED_OWNER ((pto_launch_state *)(uintptr_t)1)

#define SMALLEST_LOG2 8u
#define LARGEST_LOG2 46u
#define STEPS_LOG2 3u
#define NUM_CLASSES ((LARGEST_LOG2 - SMALLEST_LOG2) << STEPS_LOG2)

struct pto_pool {
    pto_allocator allocator;
    pto_fork_guard fork_guard;
    pto_lock lock;
    /* under the lock */
    bool closed;
    uint64_t serial; /* blocks made so far */
    int64_t cache_limit;
    int64_t buffers_live;
    int64_t bytes_live;
    int64_t buffers_cached;
    int64_t bytes_cached;
    pto_block *oldest;
    pto_block *newest;
    pto_block *classes[NUM_CLASSES];
};

static void pool_after_fork(pto_pool *pool) {
    if (!pto__fork_guard_begin(&pool->fork_guard)) {
        return;
    }
    if (pto__lock_after_fork(&pool->lock)) {
        /* Another thread of the parent was changing the lists: leave what they hold alone and start afresh. */
        pool->oldest = NULL;
        pool->newest = NULL;
        pool->buffers_cached = 0;
        pool->bytes_cached = 0;
        memset(pool->classes, 0, sizeof pool->classes);
    }
    pto__fork_guard_end(&pool->fork_guard);
}

static void pool_lock(pto_pool *pool) {
    if (pto__forked(&pool->fork_guard)) {
        pool_after_fork(pool);
    }
    pto__lock(&pool->lock);
}

pto_pool *pto__pool_create(const pto_allocator *allocator, int64_t cache_bytes) {
    pto_pool *pool = pto__allocate(allocator, sizeof *pool);
    if (pool == NULL) {
        return NULL;
    }
    memset(pool, 0, sizeof *pool);
    pool->allocator = *allocator;
    pool->cache_limit = cache_bytes;
    pto__fork_guard_init(&pool->fork_guard);
    pto__lock_init(&pool->lock);
    return pool;
}

static void pool_destroy(pto_pool *pool) {
    pto_allocator allocator = pool->allocator;
    pto__fork_guard_destroy(&pool->fork_guard);
    pto__release(&allocator, pool, sizeof *pool);
}

/* The class whose blocks have at least `bytes` bytes, and that size.  bytes <= 2^(LARGEST_LOG2 - 1). */
static unsigned class_of(size_t bytes, size_t *size) {
    if (bytes < ((size_t)1 << SMALLEST_LOG2)) {
        bytes = (size_t)1 << SMALLEST_LOG2;
    }
    unsigned log2 = 63u - (unsigned)__builtin_clzll((unsigned long long)bytes);
    size_t step = (size_t)1 << (log2 - STEPS_LOG2);
    size_t steps = (bytes - ((size_t)1 << log2) + step - 1) >> (log2 - STEPS_LOG2); /* 0 .. 8; 8 is the next power */
    *size = ((size_t)1 << log2) + steps * step;
    return ((log2 - SMALLEST_LOG2) << STEPS_LOG2) + (unsigned)steps;
}

/* Takes a cached block out of both its lists.  The lock is held. */
static void uncache(pto_pool *pool, pto_block *block, unsigned index) {
    if (block->class_prev != NULL) {
        block->class_prev->class_next = block->class_next;
    } else {
        pool->classes[index] = block->class_next;
    }
    if (block->class_next != NULL) {
        block->class_next->class_prev = block->class_prev;
    }
    if (block->older != NULL) {
        block->older->newer = block->newer;
    } else {
        pool->oldest = block->newer;
    }
    if (block->newer != NULL) {
        block->newer->older = block->older;
    } else {
        pool->newest = block->older;
    }
    pool->buffers_cached--;
    pool->bytes_cached -= (int64_t)block->total;
}

/* Takes the oldest blocks out until the cache is within `limit`; they are chained by `newer`.  The lock is held. */
static pto_block *evict(pto_pool *pool, int64_t limit) {
    pto_block *evicted = NULL;
    while (pool->bytes_cached > limit && pool->oldest != NULL) {
        pto_block *block = pool->oldest;
        size_t size;
        uncache(pool, block, class_of(block->total, &size));
        block->newer = evicted;
        evicted = block;
    }
    return evicted;
}

static void release_chain(const pto_allocator *allocator, pto_block *block) {
    while (block != NULL) {
        pto_block *next = block->newer;
        pto__release(allocator, block->base, block->total);
        block = next;
    }
}

static void link_to_owner(pto_block *block, pto_launch_state *owner) {
    block->owner = owner;
    block->older = NULL;
    block->newer = NULL;
    if (owner != NULL) {
        block->newer = owner->buffers;
        if (owner->buffers != NULL) {
            owner->buffers->older = block;
        }
        owner->buffers = block;
    }
}

static void unlink_from_owner(pto_block *block) {
    pto_launch_state *owner = block->owner;
    if (owner == NULL) {
        return;
    }
    if (block->older != NULL) {
        block->older->newer = block->newer;
    } else {
        owner->buffers = block->newer;
    }
    if (block->newer != NULL) {
        block->newer->older = block->older;
    }
    block->owner = NULL;
}

void *pto__pool_take(pto_pool *pool, pto_launch_state *owner, size_t bytes) {
    if (bytes > ((size_t)1 << (LARGEST_LOG2 - 1)) - 4096) {
        return NULL;
    }
    /*
     * Large blocks start at different distances from a page border: equal ones make a store to one buffer look like it
     * hits a load from another (the low 12 bits of the addresses agree), which stalls streaming kernels.
     */
    size_t room = bytes >= 32768 ? 2048 : PTO_CACHE_LINE;
    size_t total;
    unsigned index = class_of(bytes + room, &total);

    pool_lock(pool);
    pto_block *block = pool->classes[index];
    if (block != NULL) {
        uncache(pool, block, index);
        pool->buffers_live++;
        pool->bytes_live += (int64_t)total;
        link_to_owner(block, owner);
        pto__unlock(&pool->lock);
        return (unsigned char *)block + PTO_CACHE_LINE;
    }
    uint64_t serial = pool->serial++;
    pool->buffers_live++; /* counted before it exists, so that a concurrent close leaves the pool to it */
    pool->bytes_live += (int64_t)total;
    pto__unlock(&pool->lock);

    unsigned char *base = pto__allocate(&pool->allocator, total);
    if (base == NULL) {
        /* Cached memory of other sizes may be what is missing. */
        pto__pool_trim(pool);
        base = pto__allocate(&pool->allocator, total);
    }
    pool_lock(pool);
    if (base == NULL) {
        pool->buffers_live--;
        pool->bytes_live -= (int64_t)total;
        pto__unlock(&pool->lock);
        return NULL;
    }
    size_t offset = room == PTO_CACHE_LINE ? 0 : (size_t)(serial % 8) * 256 - (serial % 8 == 0 ? 0 : PTO_CACHE_LINE);
    block = (pto_block *)(void *)(base + offset);
    block->pool = pool;
    block->base = base;
    block->total = total;
    link_to_owner(block, owner);
    pto__unlock(&pool->lock);
    return (unsigned char *)block + PTO_CACHE_LINE;
}

/* Puts a live, unowned block into the cache.  The lock is held. */
static void cache(pto_pool *pool, pto_block *block) {
    size_t size;
    unsigned index = class_of(block->total, &size);
    pool->buffers_live--;
    pool->bytes_live -= (int64_t)block->total;
    block->owner = CACHED_OWNER;
    block->class_prev = NULL;
    block->class_next = pool->classes[index];
    if (block->class_next != NULL) {
        block->class_next->class_prev = block;
    }
    pool->classes[index] = block;
    block->newer = NULL;
    block->older = pool->newest;
    if (pool->newest != NULL) {
        pool->newest->newer = block;
    } else {
        pool->oldest = block;
    }
    pool->newest = block;
    pool->buffers_cached++;
    pool->bytes_cached += (int64_t)block->total;
}

void pto_buffer_free(pto_worker *w, void *p) {
    (void)w; /* the block knows its pool */
    if (p == NULL) {
        return;
    }
    pto_block *block = (pto_block *)(void *)((unsigned char *)p - PTO_CACHE_LINE);
    pto_pool *pool = block->pool;
    pto_allocator allocator = pool->allocator;
    pool_lock(pool);
    if (PTO_UNLIKELY(block->owner == CACHED_OWNER)) {
        fputs("pto_jit: a buffer was freed twice\n", stderr);
        abort();
    }
    unlink_from_owner(block);
    cache(pool, block);
    pto_block *evicted = evict(pool, pool->closed ? 0 : pool->cache_limit);
    bool last = pool->closed && pool->buffers_live == 0;
    pto__unlock(&pool->lock);
    release_chain(&allocator, evicted);
    if (last) {
        pool_destroy(pool);
    }
}

void pto__pool_disown(pto_pool *pool, pto_launch_state *owner) {
    pool_lock(pool);
    while (owner->buffers != NULL) {
        unlink_from_owner(owner->buffers);
    }
    pto__unlock(&pool->lock);
}

void pto__pool_reclaim(pto_pool *pool, pto_launch_state *owner) {
    pool_lock(pool);
    while (owner->buffers != NULL) {
        pto_block *block = owner->buffers;
        unlink_from_owner(block);
        cache(pool, block);
    }
    pto_block *evicted = evict(pool, pool->cache_limit);
    pto__unlock(&pool->lock);
    release_chain(&pool->allocator, evicted);
}

void pto__pool_trim(pto_pool *pool) {
    pool_lock(pool);
    pto_block *evicted = evict(pool, 0);
    pto__unlock(&pool->lock);
    release_chain(&pool->allocator, evicted);
}

void pto__pool_close(pto_pool *pool) {
    pto_allocator allocator = pool->allocator;
    pool_lock(pool);
    pool->closed = true;
    pto_block *evicted = evict(pool, 0);
    bool last = pool->buffers_live == 0;
    pto__unlock(&pool->lock);
    release_chain(&allocator, evicted);
    if (last) {
        pool_destroy(pool);
    }
}

void pto__pool_statistics(pto_pool *pool, pto_statistics *out) {
    pool_lock(pool);
    out->buffers_live = pool->buffers_live;
    out->bytes_live = pool->bytes_live;
    out->buffers_cached = pool->buffers_cached;
    out->bytes_cached = pool->bytes_cached;
    pto__unlock(&pool->lock);
}

void *pto_buffer_alloc(pto_worker *w, int64_t bytes) {
    void *p = NULL;
    if (PTO_LIKELY(bytes >= 0)) {
        p = pto__pool_take(w->rt->pool, w->launch, (size_t)bytes);
    }
    if (PTO_UNLIKELY(p == NULL)) {
        pto__record(w, PTO_NO_MEMORY, PTO_SITE_NO_MEMORY, bytes, 0, 0);
    }
    return p;
}

/* SPDX-License-Identifier: MIT */
/*
 * Scratch memory: a stack of chunks, each twice the one before.  A chunk that becomes empty is kept above the current
 * one, so that a kernel's second run allocates nothing.
 */
#include "internal.h"

struct pto_chunk {
    pto_chunk *below;
    pto_chunk *above;
    size_t size; /* usable bytes */
    size_t top;  /* bytes in use */
    _Alignas(PTO_CACHE_LINE) unsigned char data[];
};

#define FIRST_CHUNK ((size_t)256 << 10)
#define LARGEST_BLOCK ((int64_t)1 << 46)

bool pto__scratch_in_use(const pto_scratch *s) {
    return s->current != NULL && (s->current->top != 0 || s->current->below != NULL);
}

pto_scratch_mark pto__scratch_mark(const pto_scratch *s) {
    pto_scratch_mark mark = {NULL, 0}; /* empty; the lowest chunk may be replaced before the reset */
    if (pto__scratch_in_use(s)) {
        mark.chunk = s->current;
        mark.top = s->current->top;
    }
    return mark;
}

void pto__scratch_reset(pto_scratch *s, pto_scratch_mark mark) {
    if (s->current == NULL) {
        return;
    }
    if (mark.chunk == NULL) { /* the stack was empty */
        while (s->current->below != NULL) {
            s->current->top = 0;
            s->current = s->current->below;
        }
        s->current->top = 0;
        return;
    }
    while (s->current != mark.chunk) {
        s->current->top = 0;
        s->current = s->current->below;
    }
    s->current->top = mark.top;
}

static void release_above(pto_scratch *s, const pto_allocator *a, pto_chunk *chunk) {
    while (chunk != NULL) {
        pto_chunk *above = chunk->above;
        s->total -= chunk->size;
        pto__release(a, chunk, sizeof *chunk + chunk->size);
        chunk = above;
    }
}

void pto__scratch_trim(pto_scratch *s, const pto_allocator *a, size_t keep) {
    if (s->current == NULL || s->total <= keep) {
        return;
    }
    pto_chunk *bottom = s->current; /* nothing is pushed, so the current chunk is the lowest */
    size_t kept = bottom->size;
    pto_chunk *last = bottom;
    if (kept > keep) {
        release_above(s, a, bottom);
        s->current = NULL;
        return;
    }
    while (last->above != NULL && kept + last->above->size <= keep) {
        last = last->above;
        kept += last->size;
    }
    release_above(s, a, last->above);
    last->above = NULL;
}

/* The next chunk up with room for `size` bytes becomes the current one; NULL when there is no memory. */
static pto_chunk *grow(pto_scratch *s, const pto_allocator *a, size_t size) {
    pto_chunk *current = s->current;
    if (current != NULL && current->above != NULL) {
        if (current->above->size >= size) {
            s->current = current->above;
            return s->current;
        }
        release_above(s, a, current->above); /* too small: chunks above are empty, and so are those above them */
        current->above = NULL;
    }
    size_t wanted = current == NULL ? FIRST_CHUNK : current->size * 2;
    if (wanted > ((size_t)64 << 20)) {
        wanted = (size_t)64 << 20;
    }
    if (wanted < size) {
        wanted = size;
    }
    pto_chunk *chunk = pto__allocate(a, sizeof *chunk + wanted);
    if (chunk == NULL && wanted > size) {
        wanted = size;
        chunk = pto__allocate(a, sizeof *chunk + wanted);
    }
    if (chunk == NULL) {
        return NULL;
    }
    chunk->below = current;
    chunk->above = NULL;
    chunk->size = wanted;
    chunk->top = 0;
    s->total += wanted;
    if (current != NULL && current->top == 0 && current->below == NULL) {
        /* An empty lowest chunk that is too small: the new one takes its place. */
        chunk->below = NULL;
        s->total -= current->size;
        pto__release(a, current, sizeof *current + current->size);
    } else if (current != NULL) {
        current->above = chunk;
    }
    s->current = chunk;
    return chunk;
}

void *pto_scratch_push(pto_worker *w, int64_t bytes) {
    pto_scratch *s = &w->scratch;
    if (PTO_UNLIKELY(bytes < 0 || bytes > LARGEST_BLOCK)) {
        pto__record(w, PTO_NO_MEMORY, PTO_SITE_NO_MEMORY, bytes, 0, 0);
        return NULL;
    }
    size_t size = ((size_t)bytes + PTO_CACHE_LINE - 1) & ~(size_t)(PTO_CACHE_LINE - 1);
    if (size == 0) {
        size = PTO_CACHE_LINE; /* blocks have different addresses, so that pop knows which one is meant */
    }
    pto_chunk *chunk = s->current;
    if (PTO_UNLIKELY(chunk == NULL || chunk->size - chunk->top < size)) {
        chunk = grow(s, &w->rt->allocator, size);
        if (chunk == NULL) {
            pto__record(w, PTO_NO_MEMORY, PTO_SITE_NO_MEMORY, bytes, 0, 0);
            return NULL;
        }
    }
    void *block = chunk->data + chunk->top;
    chunk->top += size;
    return block;
}

void pto_scratch_pop(pto_worker *w, void *block) {
    pto_scratch *s = &w->scratch;
    pto_chunk *chunk = s->current;
    if (block == NULL || chunk == NULL) {
        return;
    }
    uintptr_t address = (uintptr_t)block;
    while (address - (uintptr_t)chunk->data >= chunk->size) {
        if (chunk->below == NULL) {
            return; /* not a block of this stack */
        }
        chunk->top = 0;
        chunk = chunk->below;
    }
    chunk->top = address - (uintptr_t)chunk->data;
    if (chunk->top == 0 && chunk->below != NULL) {
        chunk = chunk->below;
    }
    s->current = chunk;
}

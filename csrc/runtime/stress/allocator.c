/* SPDX-License-Identifier: MIT */
/*
 * An allocator that fails at the n-th request, for every n a scenario makes, once and from then on: no crash, an honest
 * status, the next launch works, and everything is given back with the size and alignment it was asked for with.
 */
#include "../pto_runtime.h"
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MOST_BLOCKS = 4096 };

typedef struct host {
    pthread_mutex_t mutex;
    long requests;
    long fail_at;
    int keep_failing;
    long live;
    struct {
        void *memory;
        size_t bytes;
        size_t alignment;
    } blocks[MOST_BLOCKS];
} host;

static void *host_allocate(void *context, size_t bytes, size_t alignment) {
    host *h = context;
    void *memory = NULL;
    pthread_mutex_lock(&h->mutex);
    long request = h->requests++;
    if (request != h->fail_at && !(h->keep_failing && request > h->fail_at)) {
        CHECK(posix_memalign(&memory, alignment, bytes) == 0);
        memset(memory, 0xcd, bytes);
        int i = 0;
        while (i < MOST_BLOCKS && h->blocks[i].memory != NULL) {
            i++;
        }
        CHECK(i < MOST_BLOCKS);
        h->blocks[i].memory = memory;
        h->blocks[i].bytes = bytes;
        h->blocks[i].alignment = alignment;
        h->live++;
    }
    pthread_mutex_unlock(&h->mutex);
    return memory;
}

static void host_release(void *context, void *memory, size_t bytes, size_t alignment) {
    host *h = context;
    pthread_mutex_lock(&h->mutex);
    int i = 0;
    while (i < MOST_BLOCKS && h->blocks[i].memory != memory) {
        i++;
    }
    CHECK(i < MOST_BLOCKS && memory != NULL);
    CHECK(h->blocks[i].bytes == bytes && h->blocks[i].alignment == alignment);
    h->blocks[i].memory = NULL;
    h->live--;
    pthread_mutex_unlock(&h->mutex);
    free(memory);
}

static int32_t piece(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    (void)ctx;
    void *a = pto_scratch_push(w, 1000 * (begin + 1));
    void *b = a == NULL ? NULL : pto_scratch_push(w, 300000);
    void *c = b == NULL ? NULL : pto_buffer_alloc(w, 100 * end);
    if (c == NULL) {
        return 1;
    }
    memset(a, 1, (size_t)(1000 * (begin + 1)));
    memset(b, 2, 300000);
    memset(c, 3, (size_t)(100 * end));
    if (begin % 2 == 0) {
        pto_buffer_free(w, c);
    }
    pto_scratch_pop(w, a);
    return 0;
}

/* Two checked loops in each other over 5000 bytes, first by double words, then by bytes. */
static int32_t checked_loops(pto_worker *w, const char *memory) {
    int32_t status = pto_race_enter(w, 0);
    for (int64_t i = 0; status == 0 && i < 2; i++) {
        pto_race_iteration(w, i, 1);
        status = pto_race_enter(w, 1);
        for (int64_t j = 0; status == 0 && j < 2; j++) {
            pto_race_iteration(w, j, 1);
            int64_t shape[2] = {j == 0 ? 5000 / 8 : 5000, j == 0 ? 8 : 1};
            status = pto_race_access(w, 2, PTO_ACCESS_READ, memory, j == 0 ? 8 : 1, 1, shape);
        }
        if (status == 0) {
            pto_race_leave(w);
        }
    }
    if (status == 0) {
        pto_race_leave(w);
    }
    return status;
}

static int32_t entry(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    void *big = pto_scratch_push(w, 3000000);
    if (big == NULL) {
        return 1;
    }
    void *out = pto_buffer_alloc(w, 5000);
    if (out == NULL) {
        return 1;
    }
    int32_t status = pto_parallel_for(w, piece, NULL, 0, 12, 1);
    if (status != 0) {
        return status;
    }
    status = checked_loops(w, out);
    if (status != 0) {
        return status;
    }
    for (int64_t bytes = 1; bytes < 2000000; bytes *= 3) {
        void *block = pto_scratch_push(w, bytes);
        if (block == NULL) {
            return 1;
        }
        memset(block, 7, (size_t)bytes);
        if (bytes % 2 == 0) {
            pto_scratch_pop(w, block);
        }
    }
    pto_scratch_pop(w, big);
    results[0] = (int64_t)(intptr_t)out;
    return 0;
}

/* Runs the scenario with the n-th request failing; false when there were fewer requests. */
static int scenario(long fail_at, int keep_failing, int32_t threads) {
    host *h = calloc(1, sizeof *h);
    CHECK(h != NULL && pthread_mutex_init(&h->mutex, NULL) == 0);
    h->fail_at = fail_at;
    h->keep_failing = keep_failing;
    pto_options options;
    pto_options_default(&options);
    options.num_threads = threads;
    options.allocate = host_allocate;
    options.release = host_release;
    options.allocator_context = h;
    pto_runtime *rt;
    int32_t status = pto_runtime_create(&options, &rt);
    if (status == PTO_OK) {
        int64_t results[3] = {0, 0, 0};
        int completed = 0;
        for (int i = 0; i < 3; i++) {
            pto_failure failure;
            status = pto_launch(rt, entry, NULL, &results[i], NULL, 0, &failure);
            if (status == PTO_OK) {
                completed++;
            } else {
                results[i] = 0;
                CHECK(failure.status == PTO_NO_MEMORY && failure.site == PTO_SITE_NO_MEMORY && failure.v0 > 0);
            }
            pto_statistics s;
            pto_runtime_statistics(rt, &s);
            /* a successful launch leaves its result and the six buffers of odd pieces */
            CHECK(s.buffers_live == 7 * completed);
        }
        CHECK(keep_failing || completed >= 2 || threads > 1);
        pto_runtime_release(rt);
        for (int i = 0; i < 3; i++) {
            pto_buffer_free(NULL, (void *)(intptr_t)results[i]);
        }
        pthread_mutex_lock(&h->mutex);
        /* The odd pieces' buffers are what a kernel would leak; they keep the memory pool. */
        long expected = completed > 0 ? 6L * completed + 1 : 0;
        CHECK(h->live == expected);
        pthread_mutex_unlock(&h->mutex);
    } else {
        CHECK(status == PTO_NO_MEMORY && rt == NULL && h->live == 0);
    }
    int reached = h->requests > fail_at;
    for (int i = 0; i < MOST_BLOCKS; i++) {
        free(h->blocks[i].memory);
    }
    pthread_mutex_destroy(&h->mutex);
    free(h);
    return reached;
}

int main(void) {
    for (int32_t threads = 1; threads <= 3; threads += 2) {
        for (int keep_failing = 0; keep_failing < 2; keep_failing++) {
            long n = 0;
            while (scenario(n, keep_failing, threads)) {
                n++;
            }
            CHECK(n > 10);
        }
    }
    puts("allocator: ok");
    return 0;
}

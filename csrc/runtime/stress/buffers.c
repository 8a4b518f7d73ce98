/* SPDX-License-Identifier: MIT */
/*
 * Buffers from many threads: results freed on other threads and after the runtime, temporaries of failing launches
 * given back, the cache within its limit, blocks aligned and never shared.
 */
#include "../pto_runtime.h"
#include "check.h"

#include <pthread.h>
#include <string.h>

enum { RESULTS = 6, THREADS = 4, ROUNDS = 60 };

static int32_t in_piece(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    (void)ctx;
    int64_t bytes = (begin * 7919) % 20000;
    unsigned char *p = pto_buffer_alloc(w, bytes);
    CHECK(p != NULL && (uintptr_t)p % 64 == 0);
    memset(p, (int)end, (size_t)bytes);
    if (begin % 3 != 0) {
        pto_buffer_free(w, p); /* the rest is left to the end of the launch */
    }
    return 0;
}

/* args: seed, fail */
static int32_t entry(pto_worker *w, const int64_t *args, int64_t *results) {
    uint64_t random = (uint64_t)args[0];
    for (int i = 0; i < RESULTS; i++) {
        int64_t bytes = (int64_t)(next_random(&random) % 300000);
        if (next_random(&random) % 16 == 0) {
            bytes = bytes * 20;
        }
        unsigned char *p = pto_buffer_alloc(w, bytes + 8);
        CHECK(p != NULL && (uintptr_t)p % 64 == 0);
        memcpy(p, &bytes, sizeof bytes);
        memset(p + 8, i, (size_t)bytes);
        results[i] = (int64_t)(intptr_t)p;
    }
    pto_buffer_free(w, NULL);
    if (args[1] != 0) {
        (void)pto_parallel_for(w, in_piece, NULL, 0, 20, 1);
        return pto_fail(w, 1, 2, 3, 4);
    }
    for (int i = 1; i < RESULTS; i += 2) {
        pto_buffer_free(w, (void *)(intptr_t)results[i]);
        results[i] = 0;
    }
    return 0;
}

static void *results_of[THREADS][RESULTS]; /* handed to the next thread to free */
static pthread_mutex_t hand_over = PTHREAD_MUTEX_INITIALIZER;

typedef struct caller {
    pto_runtime *rt;
    int index;
} caller;

static void free_checked(unsigned char *p, int i) {
    if (p == NULL) {
        return;
    }
    int64_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    for (int64_t k = 0; k < bytes; k += 997) {
        CHECK(p[8 + k] == i);
    }
    pto_buffer_free(NULL, p);
}

static void *call(void *argument) {
    caller *c = argument;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t args[2] = {1 + round * 31 + c->index, round % 4 == 3};
        int64_t results[RESULTS];
        pto_failure failure;
        int32_t status = pto_launch(c->rt, entry, args, results, NULL, 0, &failure);
        CHECK(status == (args[1] ? PTO_FAILED : PTO_OK));
        if (status != PTO_OK) {
            continue;
        }
        pthread_mutex_lock(&hand_over);
        for (int i = 0; i < RESULTS; i++) {
            void **place = &results_of[(c->index + 1) % THREADS][i];
            void *old = *place;
            *place = (void *)(intptr_t)results[i];
            results[i] = (int64_t)(intptr_t)old;
        }
        pthread_mutex_unlock(&hand_over);
        for (int i = 0; i < RESULTS; i++) {
            free_checked((unsigned char *)(intptr_t)results[i], i);
        }
    }
    return NULL;
}

static void run(int64_t cache_bytes) {
    pto_options options;
    pto_options_default(&options);
    options.num_threads = 3;
    options.cache_bytes = cache_bytes;
    pto_runtime *rt;
    CHECK(pto_runtime_create(&options, &rt) == PTO_OK);
    pthread_t handles[THREADS];
    caller each[THREADS];
    for (int i = 0; i < THREADS; i++) {
        each[i] = (caller){rt, i};
        CHECK(pthread_create(&handles[i], NULL, call, &each[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(handles[i], NULL);
    }
    pto_statistics s;
    pto_runtime_statistics(rt, &s);
    int64_t live = 0;
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < RESULTS; i++) {
            live += results_of[t][i] != NULL;
        }
    }
    CHECK(s.buffers_live == live);
    CHECK(s.bytes_cached <= cache_bytes);
    pto_runtime_trim(rt);
    pto_runtime_statistics(rt, &s);
    CHECK(s.bytes_cached == 0 && s.buffers_cached == 0 && s.buffers_live == live);
    pto_runtime_release(rt); /* before its buffers */
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < RESULTS; i++) {
            free_checked(results_of[t][i], i);
            results_of[t][i] = NULL;
        }
    }
}

static int32_t one(pto_worker *w, const int64_t *args, int64_t *results) {
    void *p = pto_buffer_alloc(w, args[0]);
    if (p == NULL) {
        return 1;
    }
    results[0] = (int64_t)(intptr_t)p;
    return 0;
}

static void recycling(void) {
    pto_runtime *rt;
    CHECK(pto_runtime_create(NULL, &rt) == PTO_OK);
    for (int64_t bytes = 0; bytes < 20000000; bytes = bytes * 3 / 2 + 1) {
        int64_t first, second;
        CHECK(pto_launch(rt, one, &bytes, &first, NULL, 1, NULL) == PTO_OK);
        memset((void *)(intptr_t)first, 1, (size_t)bytes);
        pto_buffer_free(NULL, (void *)(intptr_t)first);
        CHECK(pto_launch(rt, one, &bytes, &second, NULL, 1, NULL) == PTO_OK);
        CHECK(first == second); /* the same pages: nothing to fault in */
        pto_buffer_free(NULL, (void *)(intptr_t)second);
    }
    static const int64_t impossible[] = {-1, INT64_MIN, INT64_MAX, (int64_t)1 << 46};
    for (int i = 0; i < 4; i++) {
        int64_t result;
        pto_failure failure;
        CHECK(pto_launch(rt, one, &impossible[i], &result, NULL, 1, &failure) == 1);
        CHECK(failure.site == PTO_SITE_NO_MEMORY && failure.v0 == impossible[i]);
    }
    pto_runtime_release(rt);
}

int main(void) {
    recycling();
    run(0);
    run(1 << 20);
    run((int64_t)1 << 30);
    puts("buffers: ok");
    return 0;
}

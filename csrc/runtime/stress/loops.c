/* SPDX-License-Identifier: MIT */
/*
 * Parallel loops from many threads at once on one runtime: every piece runs exactly once, whatever the number of
 * threads, pieces and callers; failures are those of a serial run; shutdown, trim and statistics interfere freely.
 */
#include "../pto_runtime.h"
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MOST = 3000, CALLERS = 5 };

typedef struct job {
    unsigned char *hits;
    int64_t begin;
    int64_t end;
    int64_t grain;
    int64_t fail_from; /* pieces from this index on fail; INT64_MAX: none */
    int64_t work;
    int nested;
} job;

static int32_t add_up(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    (void)w;
    *(int64_t *)ctx += end - begin;
    return 0;
}

static int32_t piece(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    const job *j = ctx;
    CHECK((begin - j->begin) % j->grain == 0);
    CHECK(end == (j->end - begin < j->grain ? j->end : begin + j->grain));
    unsigned char *outer = pto_scratch_push(w, 100 + (begin + 5000) % 5000);
    CHECK(outer != NULL && (uintptr_t)outer % 64 == 0);
    memset(outer, 1, (size_t)(100 + (begin + 5000) % 5000));
    volatile int64_t sink = 0;
    for (int64_t k = 0; k < j->work; k++) {
        sink = sink + k;
    }
    for (int64_t i = begin; i < end; i++) {
        j->hits[i - j->begin]++;
    }
    if (j->nested) {
        int64_t total = 0;
        CHECK(pto_parallel_for(w, add_up, &total, -5, 500, 3) == 0 && total == 505);
    }
    if (begin >= j->fail_from) {
        return pto_fail(w, (int32_t)(begin % 1000), begin, end, pto_worker_index(w)); /* scratch left pushed */
    }
    pto_scratch_pop(w, outer);
    return 0;
}

static int32_t entry(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    job *j = (job *)(intptr_t)args[0];
    unsigned char *guard = pto_scratch_push(w, 64);
    memset(guard, 0x5a, 64);
    int32_t status = pto_parallel_for(w, piece, j, j->begin, j->end, j->grain);
    for (int i = 0; i < 64; i++) {
        CHECK(guard[i] == 0x5a); /* what a failing piece left did not reach below */
    }
    if (status == 0) {
        pto_scratch_pop(w, guard);
    }
    return status;
}

static void run_one(pto_runtime *rt, uint64_t *random) {
    unsigned char hits[MOST];
    memset(hits, 0, sizeof hits);
    int64_t length = (int64_t)(next_random(random) % MOST);
    job j = {hits, (int64_t)(next_random(random) % 2000) - 1000, 0, 1 + (int64_t)(next_random(random) % 40), INT64_MAX,
             (int64_t)(next_random(random) % 50), next_random(random) % 8 == 0};
    j.end = j.begin + length;
    if (next_random(random) % 3 == 0) {
        j.fail_from = j.begin + (int64_t)(next_random(random) % (uint64_t)(length + 1));
    }
    int64_t args[1] = {(int64_t)(intptr_t)&j};
    pto_failure failure;
    memset(&failure, 0, sizeof failure);
    int32_t max_threads = (int32_t)(next_random(random) % 4);
    int32_t status = pto_launch(rt, entry, args, NULL, NULL, max_threads, &failure);
    int64_t first = j.fail_from == INT64_MAX ? INT64_MAX
                                             : j.begin + (j.fail_from - j.begin + j.grain - 1) / j.grain * j.grain;
    if (first < j.end) {
        CHECK(status == PTO_FAILED && failure.v0 == first && failure.site == (int32_t)(first % 1000));
        for (int64_t i = 0; i < first - j.begin; i++) {
            CHECK(hits[i] == 1);
        }
        for (int64_t i = 0; i < length; i++) {
            CHECK(hits[i] <= 1);
        }
    } else {
        CHECK(status == PTO_OK);
        for (int64_t i = 0; i < length; i++) {
            CHECK(hits[i] == 1);
        }
    }
}

typedef struct caller {
    pto_runtime *rt;
    uint64_t seed;
    int rounds;
} caller;

static void *call(void *argument) {
    caller *c = argument;
    for (int i = 0; i < c->rounds; i++) {
        run_one(c->rt, &c->seed);
    }
    return NULL;
}

static atomic_bool stop;

static void *interfere(void *argument) {
    pto_runtime *rt = argument;
    for (int i = 0; !atomic_load(&stop); i++) {
        pto_statistics s;
        pto_runtime_statistics(rt, &s);
        CHECK(s.threads_started >= 0 && s.threads_started < pto_runtime_num_threads(rt));
        if (i % 50 == 0) {
            pto_runtime_shutdown(rt);
        }
        if (i % 20 == 0) {
            pto_runtime_trim(rt);
        }
    }
    return NULL;
}

static void run(int32_t threads, int32_t spin, int callers, int rounds, int with_interference) {
    pto_options options;
    pto_options_default(&options);
    options.num_threads = threads;
    options.spin_microseconds = spin;
    options.scratch_bytes = 10000;
    pto_runtime *rt;
    CHECK(pto_runtime_create(&options, &rt) == PTO_OK);
    pthread_t handles[CALLERS + 1];
    caller each[CALLERS];
    atomic_store(&stop, 0);
    for (int i = 0; i < callers; i++) {
        each[i] = (caller){rt, 88172645463325252u + 7919u * (uint64_t)i + (uint64_t)threads, rounds};
        CHECK(pthread_create(&handles[i], NULL, call, &each[i]) == 0);
    }
    if (with_interference) {
        CHECK(pthread_create(&handles[callers], NULL, interfere, rt) == 0);
    }
    for (int i = 0; i < callers; i++) {
        pthread_join(handles[i], NULL);
    }
    atomic_store(&stop, 1);
    if (with_interference) {
        pthread_join(handles[callers], NULL);
    }
    pto_runtime_release(rt);
}

static int32_t count(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    (void)w;
    atomic_fetch_add((_Atomic(int64_t) *)ctx, end - begin);
    return 0;
}

static int32_t extremes(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args, (void)results;
    _Atomic(int64_t) total = 0;
    CHECK(pto_parallel_for(w, count, &total, INT64_MIN, INT64_MIN + 10, 3) == 0 && total == 10);
    CHECK(pto_parallel_for(w, count, &total, INT64_MAX - 10, INT64_MAX, 3) == 0 && total == 20);
    CHECK(pto_parallel_for(w, count, &total, 5, 5, 1) == 0 && total == 20);
    CHECK(pto_parallel_for(w, count, &total, 6, 5, 0) == 0 && total == 20);
    CHECK(pto_parallel_for(w, count, &total, -4, 4, INT64_MAX) == 0 && total == 28);
    CHECK(pto_parallel_for(w, count, &total, INT64_MIN, INT64_MAX, INT64_MAX) == 0 && total == 27);
    return pto_parallel_for(w, count, &total, 0, 5, 0);
}

int main(void) {
    pto_runtime *rt;
    CHECK(pto_runtime_create(NULL, &rt) == PTO_OK);
    pto_failure failure;
    CHECK(pto_launch(rt, extremes, NULL, NULL, NULL, 0, &failure) == PTO_FAILED && failure.site == PTO_SITE_BAD_GRAIN);
    pto_runtime_release(rt);
    for (int32_t threads = 1; threads <= 7; threads += 2) {
        run(threads, 50, 1, 150, 0);
        run(threads, 0, CALLERS, 80, 0);
        run(threads, 20, CALLERS, 80, 1);
    }
    puts("loops: ok");
    return 0;
}

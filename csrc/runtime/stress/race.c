/* SPDX-License-Identifier: MIT */
/*
 * Race checking against a model that remembers every access of every byte: random nests of checked loops over random
 * rectangles of a small buffer, on several threads at once, below parallel loops too; the record of the first race must
 * be the model's, and there must be none where the model has none.
 */
#include "../pto_runtime.h"
#include "check.h"

#include <pthread.h>
#include <string.h>

enum { BYTES = 3000, MOST = 400, LEVELS = 3, ROUNDS = 400, THREADS = 3 };

typedef struct event {
    int kind;
    int site;
    int address; /* of the first byte of the element in the buffer */
    int size;
    int64_t iteration[LEVELS];
    int instance[LEVELS]; /* which run of the loop */
} event;

typedef struct scenario {
    uint64_t seed;
    unsigned char *buffer;
    event *events;
    int count;
    int forgotten[BYTES]; /* how many events this byte has forgotten */
    pto_failure expected;
    int raced;
} scenario;

static int contradicts(int a, int b) {
    return a == PTO_ACCESS_WRITE || b == PTO_ACCESS_WRITE || (a == PTO_ACCESS_ATOMIC) != (b == PTO_ACCESS_ATOMIC);
}

static int order_of(int kind) { return kind == PTO_ACCESS_WRITE ? 0 : kind == PTO_ACCESS_ATOMIC ? 1 : 2; }

/* The earliest access of another iteration of loop `level` that races with byte `at` of `now`; NULL: none. */
static const event *race_on(const scenario *s, const event *now, int level, int at) {
    const event *found = NULL;
    for (int i = s->forgotten[at]; i < s->count; i++) {
        const event *old = &s->events[i];
        if (old->instance[level] != now->instance[level] || old->iteration[level] == now->iteration[level] ||
            at < old->address || at >= old->address + old->size || !contradicts(old->kind, now->kind)) {
            continue;
        }
        int64_t far = found == NULL ? 0 : found->iteration[level];
        if (found == NULL || old->iteration[level] < far ||
            (old->iteration[level] == far && order_of(old->kind) < order_of(found->kind))) {
            found = old;
        }
    }
    return found;
}

/* One access, by the library and by the model; non-zero when the library reports a race (which is checked here). */
static int32_t access_both(pto_worker *w, scenario *s, int levels, const event *like, int rank, const int64_t *shape) {
    int64_t extents[2] = {rank > 0 ? shape[0] : 1, rank > 1 ? shape[1] : 1};
    int64_t strides[2] = {rank > 0 ? shape[rank] : 0, rank > 1 ? shape[rank + 1] : 0};
    const event *other = NULL;
    event now = *like;
    int level = 0;
    for (; level < levels && other == NULL; level++) {
        for (int64_t i = 0; i < extents[0] && other == NULL; i++) {
            for (int64_t j = 0; j < extents[1] && other == NULL; j++) {
                now.address = like->address + (int)(i * strides[0] + j * strides[1]);
                for (int byte = 0; byte < like->size && other == NULL; byte++) {
                    other = race_on(s, &now, level, now.address + byte);
                }
            }
        }
    }
    int32_t status = pto_race_access(w, like->site, like->kind, s->buffer + like->address, like->size, rank, shape);
    CHECK((status != 0) == (other != NULL));
    if (other != NULL) {
        level--;
        s->raced = 1;
        s->expected.site = like->site;
        s->expected.v0 = now.iteration[level];
        s->expected.v1 = other->iteration[level];
        s->expected.v2 = (int64_t)(intptr_t)(s->buffer + now.address);
        s->expected.more[0] = 1000 + level;
        s->expected.more[1] = other->site;
        int64_t whole[2] = {BYTES, 1};
        pto_race_element(w, s->buffer, 1, whole);
        s->expected.more[2] = now.address;
        return status;
    }
    for (int64_t i = 0; i < extents[0]; i++) {
        for (int64_t j = 0; j < extents[1]; j++) {
            CHECK(s->count < MOST * 64);
            event *e = &s->events[s->count++];
            *e = *like;
            e->address = like->address + (int)(i * strides[0] + j * strides[1]);
        }
    }
    return 0;
}

static int32_t level_loop(pto_worker *w, scenario *s, int level, event *like, int *instances) {
    int64_t first = (int64_t)(next_random(&s->seed) % 9) - 4;
    int64_t step = (int64_t)(next_random(&s->seed) % 3) + 1;
    step = next_random(&s->seed) % 4 == 0 ? -step : step;
    int64_t trips = (int64_t)(next_random(&s->seed) % 4) + 1;
    int spread = next_random(&s->seed) % 3 != 0; /* whether iterations touch places of their own */
    int32_t status = pto_race_enter(w, 1000 + level);
    if (status != 0) {
        return status;
    }
    like->instance[level] = ++*instances;
    for (int64_t k = 0; k < trips; k++) {
        pto_race_iteration(w, first + k * step, step);
        like->iteration[level] = first + k * step;
        int accesses = (int)(next_random(&s->seed) % 3) + 1;
        for (int i = 0; i < accesses; i++) {
            int rank = (int)(next_random(&s->seed) % 3);
            like->size = 1 << next_random(&s->seed) % 4;
            like->kind = next_random(&s->seed) % 5 == 0 ? PTO_ACCESS_ATOMIC : (int)(next_random(&s->seed) % 2);
            like->site = (int)(next_random(&s->seed) % 900);
            int64_t shape[4] = {1, 1, 0, 0};
            int64_t last = next_random(&s->seed) % 2 ? like->size : 2 * like->size;
            if (rank == 1) {
                shape[0] = (int64_t)(next_random(&s->seed) % 8);
                shape[1] = last;
            } else if (rank == 2) {
                shape[0] = (int64_t)(next_random(&s->seed) % 4);
                shape[1] = (int64_t)(next_random(&s->seed) % 5);
                shape[2] = (int64_t)(next_random(&s->seed) % 100) * like->size;
                shape[3] = last;
            }
            uint64_t room = BYTES - 2600;
            like->address = (int)(next_random(&s->seed) % room);
            if (spread) {
                like->address += (int)((uint64_t)like->instance[level] * 37 + (uint64_t)k * 53) % 600;
            }
            like->address -= next_random(&s->seed) % 8 ? like->address % like->size : 0;
            status = access_both(w, s, level + 1, like, rank, shape);
            if (status != 0) {
                return status;
            }
        }
        if (level + 1 < LEVELS && next_random(&s->seed) % 2) {
            status = level_loop(w, s, level + 1, like, instances);
            if (status != 0) {
                return status;
            }
        }
        if (next_random(&s->seed) % 16 == 0) { /* memory that was something else before */
            int from = (int)(next_random(&s->seed) % (BYTES / 64)) * 64;
            pto_race_forget(w, s->buffer + from, 128);
            for (int byte = from; byte < from + 128 && byte < BYTES; byte++) {
                s->forgotten[byte] = s->count;
            }
        }
    }
    pto_race_leave(w);
    return 0;
}

static int32_t nest(pto_worker *w, scenario *s) {
    event like;
    memset(&like, 0, sizeof like);
    int instances = 0;
    s->count = 0;
    memset(s->forgotten, 0, sizeof s->forgotten);
    return level_loop(w, s, 0, &like, &instances);
}

static int32_t entry(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    return nest(w, (scenario *)(intptr_t)args[0]);
}

/* Pieces of a parallel loop with checked loops in them, each on memory of its own. */
static int32_t piece(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        int32_t status = nest(w, (scenario *)ctx + i);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

static int32_t parallel_entry(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    return pto_parallel_for(w, piece, (void *)(intptr_t)args[0], 0, 4, 1);
}

static void make(scenario *s, uint64_t seed) {
    memset(s, 0, sizeof *s);
    s->seed = seed * 2654435761u + 88172645463325252u;
    s->buffer = aligned_alloc(64, BYTES / 64 * 64 + 64);
    s->events = calloc(MOST * 64, sizeof *s->events);
    CHECK(s->buffer != NULL && s->events != NULL);
}

static void drop(scenario *s) {
    free(s->buffer);
    free(s->events);
}

static void same(const scenario *s, const pto_failure *f) {
    const pto_failure *e = &s->expected;
    CHECK(f->site == e->site && f->v0 == e->v0 && f->v1 == e->v1 && f->v2 == e->v2 && f->count == 3);
    CHECK(f->more[0] == e->more[0] && f->more[1] == e->more[1] && f->more[2] == e->more[2]);
}

typedef struct job {
    pto_runtime *rt;
    uint64_t seed;
    int raced;
    int clean;
} job;

static void *run(void *argument) {
    job *j = argument;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        scenario *s = calloc(4, sizeof *s);
        CHECK(s != NULL);
        for (uint64_t i = 0; i < 4; i++) {
            make(&s[i], j->seed * 100003 + round * 7 + i);
        }
        int64_t args = (int64_t)(intptr_t)s;
        pto_failure f;
        memset(&f, 0, sizeof f);
        if (round % 2 == 0) {
            int32_t status = pto_launch(j->rt, entry, &args, NULL, NULL, 0, &f);
            CHECK((status != 0) == s[0].raced);
            if (status != 0) {
                same(&s[0], &f);
            }
            j->raced += status != 0;
            j->clean += status == 0;
        } else {
            int32_t status = pto_launch(j->rt, parallel_entry, &args, NULL, NULL, 0, &f);
            int first = 0;
            while (first < 4 && !s[first].raced) {
                first++;
            }
            CHECK((status != 0) == (first < 4));
            if (status != 0) {
                same(&s[first], &f);
            }
        }
        for (int i = 0; i < 4; i++) {
            drop(&s[i]);
        }
        free(s);
    }
    return NULL;
}

/* A race on one element of a tensor: args are its shape's number and the element's indices. */
static const int64_t SHAPES[][6] = {
    {3, 4, 5, 160, 40, 8}, {3, 4, 5, 8, 24, 96}, {3, 1, 5, 40, 8, 8}, {3, 4, 5, -160, 40, -8}, {3, 4, 5, 1000, -48, 8}};

static int32_t one_element(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    const int64_t *shape = SHAPES[args[0]];
    const char *base = (const char *)(intptr_t)1000000;
    const char *at = base + args[1] * shape[3] + args[2] * shape[4] + args[3] * shape[5];
    CHECK(pto_race_enter(w, 7) == 0);
    pto_race_iteration(w, 0, 1);
    CHECK(pto_race_access(w, 1, PTO_ACCESS_READ, at, 8, 0, NULL) == 0);
    pto_race_iteration(w, 1, 1);
    int32_t status = pto_race_access(w, 2, PTO_ACCESS_WRITE, at, 8, 0, NULL);
    pto_race_element(w, base, 3, shape);
    return status;
}

static void elements_are_found(pto_runtime *rt) {
    for (int64_t n = 0; n < (int64_t)(sizeof SHAPES / sizeof SHAPES[0]); n++) {
        for (int64_t at = 0; at < SHAPES[n][0] * SHAPES[n][1] * SHAPES[n][2]; at++) {
            int64_t k = at % SHAPES[n][2];
            int64_t j = at / SHAPES[n][2] % SHAPES[n][1];
            int64_t i = at / SHAPES[n][2] / SHAPES[n][1];
            int64_t args[4] = {n, i, j, k};
            pto_failure f;
            CHECK(pto_launch(rt, one_element, args, NULL, NULL, 1, &f) == PTO_FAILED && f.count == 5);
            CHECK(f.site == 2 && f.v0 == 1 && f.v1 == 0 && f.more[0] == 7 && f.more[1] == 1);
            CHECK(f.more[2] == i && f.more[3] == j && f.more[4] == k);
        }
    }
}

int main(void) {
    pto_options options;
    pto_options_default(&options);
    options.num_threads = 3;
    pto_runtime *rt;
    CHECK(pto_runtime_create(&options, &rt) == PTO_OK);
    pthread_t threads[THREADS];
    job jobs[THREADS];
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){rt, (uint64_t)i + 1, 0, 0};
        CHECK(pthread_create(&threads[i], NULL, run, &jobs[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(jobs[i].raced > ROUNDS / 20 && jobs[i].clean > ROUNDS / 20);
    }
    elements_are_found(rt);
    pto_statistics statistics;
    pto_runtime_statistics(rt, &statistics);
    CHECK(statistics.buffers_live == 0);
    pto_runtime_release(rt);
    printf("race: ok\n");
    return 0;
}

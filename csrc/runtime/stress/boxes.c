/* SPDX-License-Identifier: MIT */
/*
 * Many boxes: graphs of hundreds of tasks on arbitrary boxes of one large tensor, so that the buckets of boxes are made
 * finer several times and some boxes are in too many of them; every edge is that of a model which keeps the last accesses
 * of each element.  Then live graphs: what finished tasks read and wrote is forgotten, and memory stays flat.
 */
#include "../pto_runtime.h"
#include "check.h"

#include <string.h>

enum { ROWS = 120, COLS = 101, TASKS = 1600, WORDS = TASKS / 64 };

static const int32_t modes[3][1] = {{PTO_READ}, {PTO_WRITE}, {PTO_READ_WRITE}};
static const pto_task_kind kinds[3] = {
    {"read", NULL, 0, 0, 1, modes[0]}, {"write", NULL, 0, 0, 1, modes[1]}, {"update", NULL, 0, 0, 1, modes[2]}};

static pto_runtime *runtime(int32_t threads) {
    pto_options options;
    pto_options_default(&options);
    options.num_threads = threads;
    pto_runtime *rt;
    CHECK(pto_runtime_create(&options, &rt) == PTO_OK);
    return rt;
}

/* ---- recorded graphs against a model of elements ---- */

typedef struct element {
    int32_t writer; /* -1: none */
    uint64_t readers[WORDS];
} element;

static element model[ROWS][COLS];

static void add(uint64_t *set, int32_t task) { set[task / 64] |= (uint64_t)1 << task % 64; }

/* What task `t` comes after, by the rule in pto_runtime.h; the model then knows the access. */
static void access_model(const int64_t *region, int32_t mode, int32_t t, uint64_t *before) {
    for (int64_t i = region[1]; i < region[1] + region[3]; i++) {
        for (int64_t k = region[2]; k < region[2] + region[4]; k++) {
            element *e = &model[i][k];
            int read = 0;
            for (int w = 0; w < WORDS; w++) {
                read |= e->readers[w] != 0;
            }
            if (e->writer >= 0 && ((mode & PTO_READ) || !read)) {
                add(before, e->writer);
            }
            if (mode & PTO_WRITE) {
                for (int w = 0; w < WORDS; w++) {
                    before[w] |= e->readers[w];
                    e->readers[w] = 0;
                }
                e->writer = t;
            } else {
                add(e->readers, t);
            }
        }
    }
}

/* Extents are mostly small, so that there are many boxes; some are whole rows, columns, or everything. */
static void random_region(uint64_t *random, int64_t *region) {
    uint64_t shape = next_random(random) % 80;
    region[3] = shape == 0 || shape == 1 ? ROWS : 1 + (int64_t)(next_random(random) % (shape < 6 ? 90 : 4));
    region[4] = shape == 0 || shape == 2 ? COLS : 1 + (int64_t)(next_random(random) % (shape < 6 ? 90 : 4));
    region[1] = (int64_t)(next_random(random) % (uint64_t)(ROWS - region[3] + 1));
    region[2] = (int64_t)(next_random(random) % (uint64_t)(COLS - region[4] + 1));
}

static void recorded(pto_runtime *rt, uint64_t *random, int whole) {
    static uint64_t before[TASKS][WORDS];
    static char memory[ROWS * COLS];
    const int64_t extents[2] = {ROWS, COLS};
    const int64_t strides[2] = {COLS, 1};
    pto_graph *g;
    int32_t tensor;
    CHECK(pto_graph_create(rt, &g) == PTO_OK);
    CHECK(pto_graph_tensor(g, memory, 1, 2, extents, strides, &tensor) == PTO_OK);
    memset(before, 0, sizeof before);
    memset(model, 0, sizeof model);
    for (int i = 0; i < ROWS * COLS; i++) {
        model[i / COLS][i % COLS].writer = -1;
    }
    for (int32_t t = 0; t < TASKS; t++) {
        int64_t region[5] = {tensor, 0, 0, ROWS, COLS};
        if (whole == 0 || t % whole != whole - 1) {
            random_region(random, region);
        }
        int kind = (int)(next_random(random) % 3);
        CHECK(pto_task(g, &kinds[kind], NULL, region) == PTO_OK);
        access_model(region, modes[kind][0], t, before[t]);
    }
    static uint64_t found[TASKS][WORDS];
    memset(found, 0, sizeof found);
    for (int32_t t = 0; t < TASKS; t++) {
        static int64_t successors[TASKS];
        pto_task_facts facts;
        CHECK(pto_graph_task(g, t, &facts) == PTO_OK && facts.fanout < TASKS);
        CHECK(pto_graph_successors(g, t, successors) == PTO_OK);
        for (int64_t i = 0; i < facts.fanout; i++) {
            add(found[successors[i]], t);
        }
    }
    CHECK(memcmp(found, before, sizeof found) == 0);
    CHECK(pto_graph_execute(g, NULL, 0, 0, NULL) == PTO_OK);
    pto_graph_destroy(g);
}

/* ---- live graphs ---- */

static int64_t edges_of(pto_graph *g) {
    pto_graph_facts facts;
    CHECK(pto_graph_measure(g, &facts) == PTO_OK);
    return facts.edges;
}

static int64_t bytes_of(pto_graph *g) {
    pto_graph_facts facts;
    CHECK(pto_graph_measure(g, &facts) == PTO_OK);
    return facts.bytes;
}

/*
 * Finished tasks are forgotten: when their records are used again by tasks that touch nothing, an access of the same
 * elements makes no edges.  `side` is the extent of the regions: tiles (1) or boxes that begin anywhere (3).
 */
static int32_t forgotten(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    static char memory[64 * 64];
    const int64_t extents[2] = {64, 64};
    const int64_t strides[2] = {64, 1};
    int32_t tensor;
    static const pto_task_kind none = {"none", NULL, 0, 0, 0, NULL};
    int64_t side = args[0];
    pto_graph *g = pto_graph_open(w, 64);
    CHECK(g != NULL && pto_graph_tensor(g, memory, 1, 2, extents, strides, &tensor) == PTO_OK);
    for (int round = 0; round < 40; round++) {
        const int64_t region[5] = {tensor, round, 7, side, side};
        for (int first = 0; first < 2; first++) {
            for (int i = 0; i < 1 + round % 6; i++) { /* a writer, or some readers */
                CHECK(pto_task(g, &kinds[first == 0 ? 1 : 0], NULL, region) == PTO_OK);
                if (first == 0) {
                    break;
                }
            }
            CHECK(pto_graph_wait(g) == PTO_OK);
            for (int i = 0; i < 30; i++) {
                CHECK(pto_task(g, &none, NULL, NULL) == PTO_OK);
            }
            int64_t edges = edges_of(g);
            CHECK(pto_task(g, &kinds[round % 2 == 0 ? 2 : 1], NULL, region) == PTO_OK);
            CHECK(edges_of(g) == edges);
            CHECK(pto_graph_wait(g) == PTO_OK);
        }
    }
    return pto_graph_close(w, g);
}

/* Boxes at ever new places, read and written: all over a tensor, or walking through it and never coming back. */
static int32_t flat(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    static char memory[1 << 20];
    const int64_t extents[2] = {1 << 10, 1 << 10};
    const int64_t strides[2] = {1 << 10, 1};
    int32_t tensor;
    pto_graph *g = pto_graph_open(w, 128);
    CHECK(g != NULL && pto_graph_tensor(g, memory, 1, 2, extents, strides, &tensor) == PTO_OK);
    int64_t after_some = 0;
    for (int64_t i = 0; i < FEWER(60000, 5000); i++) {
        int64_t place = i * args[0] % (1020 * 1020);
        const int64_t region[5] = {tensor, place / 1020, place % 1020, 3, 4};
        CHECK(pto_task(g, &kinds[i % 3], NULL, region) == PTO_OK);
        if (i == 4000) {
            after_some = bytes_of(g);
        }
    }
    CHECK(bytes_of(g) <= after_some + args[1]);
    return pto_graph_close(w, g);
}

/* ---- amounts ---- */

static void amounts(pto_runtime *rt) {
    static char memory[1 << 12];
    const int64_t extents[2] = {64, 64};
    const int64_t strides[2] = {64, 1};
    const int64_t middle[5] = {0, 3, 5, 7, 9};
    pto_graph *g;
    int32_t tensor;
    CHECK(pto_graph_create(rt, &g) == PTO_OK);
    CHECK(pto_graph_tensor(g, memory, 1, 2, extents, strides, &tensor) == PTO_OK);
    for (int i = 0; i < 4000; i++) { /* equal boxes that are read are one box */
        CHECK(pto_task(g, &kinds[0], NULL, middle) == PTO_OK);
    }
    CHECK(bytes_of(g) < 4000 * 150);
    CHECK(bytes_of(g) == bytes_of(g)); /* measuring takes memory and gives it back */
    int64_t before = bytes_of(g);
    CHECK(pto_graph_buffer(g, 1 << 20) != NULL && bytes_of(g) == before); /* what the host has is not the graph's */
    CHECK(pto_graph_buffer(g, -1) == NULL);
    pto_graph_destroy(g);

    /* elements that overlap: what is covered whole by a later write is forgotten, too */
    const int64_t windows[2] = {16, 1};
    CHECK(pto_graph_create(rt, &g) == PTO_OK);
    CHECK(pto_graph_tensor(g, memory, 1, 2, extents, windows, &tensor) == PTO_OK);
    for (int i = 0; i < 500; i++) {
        CHECK(pto_task(g, &kinds[1], NULL, middle) == PTO_OK);
    }
    CHECK(edges_of(g) == 499);
    pto_graph_destroy(g);

    /* one access of many tiles does not make them all, nor does a tensor of many tiles with few in use */
    const int64_t long_extents[2] = {(int64_t)1 << 30, 8};
    const int64_t long_strides[2] = {8, 1};
    CHECK(pto_graph_create(rt, &g) == PTO_OK);
    CHECK(pto_graph_tensor(g, memory, 1, 2, long_extents, long_strides, &tensor) == PTO_OK);
    const int64_t row[5] = {tensor, 12345, 0, 1, 8};
    const int64_t last[5] = {tensor, ((int64_t)1 << 30) - 1, 0, 1, 8};
    const int64_t all[5] = {tensor, 0, 0, (int64_t)1 << 30, 8};
    CHECK(pto_task(g, &kinds[1], NULL, row) == PTO_OK && pto_task(g, &kinds[1], NULL, last) == PTO_OK);
    CHECK(pto_task(g, &kinds[0], NULL, all) == PTO_OK && pto_task(g, &kinds[1], NULL, last) == PTO_OK);
    CHECK(edges_of(g) == 3 && bytes_of(g) < 1 << 20);
    pto_graph_destroy(g);
    const int64_t many_extents[2] = {1 << 20, 8};
    CHECK(pto_graph_create(rt, &g) == PTO_OK);
    CHECK(pto_graph_tensor(g, memory, 1, 2, many_extents, long_strides, &tensor) == PTO_OK);
    const int64_t many[5] = {tensor, 0, 0, 1 << 20, 8};
    CHECK(pto_task(g, &kinds[1], NULL, row) == PTO_OK && pto_task(g, &kinds[0], NULL, many) == PTO_OK);
    CHECK(edges_of(g) == 1 && bytes_of(g) < 2 << 20);
    pto_graph_destroy(g);
}

int main(int argc, char **argv) {
    long graphs = argc > 1 ? atol(argv[1]) : FEWER(4, 1);
    uint64_t random = argc > 2 ? (uint64_t)atoll(argv[2]) : 2463534242u;
    for (int32_t threads = FEWER(1, 2); threads <= 2; threads++) {
        pto_runtime *rt = runtime(threads);
        for (long k = 0; k < graphs; k++) {
            recorded(rt, &random, k % 3 == 0 ? 97 : 0);
        }
        for (int64_t side = 1; side < 4; side += 2) {
            CHECK(pto_launch(rt, forgotten, &side, NULL, NULL, 0, NULL) == PTO_OK);
        }
        for (int walk = 0; walk < 2; walk++) { /* on one thread every run is the same: no further block is taken */
            const int64_t flat_args[2] = {walk ? 8 : 7919, threads == 1 ? 16 << 10 : 300 << 10};
            CHECK(pto_launch(rt, flat, flat_args, NULL, NULL, 0, NULL) == PTO_OK);
        }
        amounts(rt);
        pto_statistics s;
        pto_runtime_statistics(rt, &s);
        CHECK(s.buffers_live == 0);
        pto_runtime_release(rt);
    }
    puts("boxes: ok");
    return 0;
}

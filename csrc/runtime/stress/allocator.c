/* SPDX-License-Identifier: MIT */
/*
 * An allocator that fails at the n-th request, for every n a scenario makes (under ThreadSanitizer: for some), once and
 * from then on: no crash, an honest status, the next launch works, and everything is given back with the size and
 * alignment it was asked for with.
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

/* ---- graphs ---- */

enum { CELLS = 24, GRAPH_TASKS = 200 };

typedef struct field {
    int64_t cells[CELLS];
    int64_t window;
} field;

static const int32_t accesses[2] = {PTO_READ, PTO_READ_WRITE};

/* cells[b] = cells[b] * 3 + cells[a] */
static int32_t mix(pto_worker *w, const int64_t *slots) {
    (void)w;
    field *f = (field *)(intptr_t)slots[0];
    f->cells[slots[2]] = (int64_t)((uint64_t)f->cells[slots[2]] * 3 + (uint64_t)f->cells[slots[1]]);
    return 0;
}

static const pto_task_kind mix_kind = {"mix", mix, 0, 3, 2, accesses};

static int32_t submit_field(pto_graph *g, field *f) {
    const int64_t extent = CELLS;
    const int64_t stride = 8;
    const int64_t extents[2] = {CELLS / 4, 4};
    const int64_t strides[2] = {32, 8};
    int32_t line;
    int32_t square;
    int32_t status = pto_graph_tensor(g, f->cells, 8, 1, &extent, &stride, &line);
    if (status == PTO_OK) {
        status = pto_graph_tensor(g, f->cells, 8, 2, extents, strides, &square);
    }
    uint64_t random = 4711;
    for (int i = 0; i < GRAPH_TASKS && status == PTO_OK; i++) {
        int64_t a = (int64_t)(next_random(&random) % CELLS);
        int64_t b = (int64_t)(next_random(&random) % CELLS);
        const int64_t slots[3] = {(int64_t)(intptr_t)f, a, b};
        const int64_t regions[8] = {line, a, 1, square, b / 4, b % 4, 1, 1};
        /* a wider region than what is touched: boxes that are cut */
        const int64_t wide[8] = {line, a - a % 3, 3, square, b / 4, 0, 1, 4};
        if (i % 5 == 4) {
            int64_t task = pto_task_alloc(g, "mix", mix, 0, slots, 3);
            status = task < 0 ? (int32_t)-task : pto_task_add_input(g, task, line, 0, a, 1, 1);
            status = status != PTO_OK ? status : pto_task_add_input(g, task, square, b / 4, b % 4, 1, 1);
            status = status != PTO_OK ? status : pto_task_add_output(g, task, square, b / 4, b % 4, 1, 1);
            status = status != PTO_OK ? status : pto_task_submit(g, task);
        } else {
            status = pto_task(g, &mix_kind, slots, i % 7 == 0 ? wide : regions);
        }
    }
    return status;
}

static int32_t live_field(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    field *f = (field *)(intptr_t)args[0];
    pto_graph *g = pto_graph_open(w, f->window);
    if (g == NULL) {
        return 1;
    }
    int32_t status = submit_field(g, f);
    int32_t closed = pto_graph_close(w, g);
    CHECK(status == PTO_OK || closed != PTO_OK);
    return closed;
}

static void run_field(pto_runtime *rt, int strict) {
    field serial = {{0}, 0};
    uint64_t random = 4711;
    for (int i = 0; i < CELLS; i++) {
        serial.cells[i] = i + 1;
    }
    field start = serial;
    for (int i = 0; i < GRAPH_TASKS; i++) {
        int64_t a = (int64_t)(next_random(&random) % CELLS);
        int64_t b = (int64_t)(next_random(&random) % CELLS);
        serial.cells[b] = (int64_t)((uint64_t)serial.cells[b] * 3 + (uint64_t)serial.cells[a]);
    }
    field f = start;
    pto_graph *g;
    int32_t status = pto_graph_create(rt, &g);
    if (status == PTO_OK) {
        status = submit_field(g, &f);
        pto_graph_facts facts;
        if (status == PTO_OK) {
            status = pto_graph_measure(g, &facts);
            CHECK(status != PTO_OK || facts.tasks == GRAPH_TASKS);
        }
        for (int traced = 0; traced < 2 && status == PTO_OK; traced++) {
            f = start;
            status = pto_graph_execute(g, NULL, 0, traced, NULL);
            CHECK(status != PTO_OK || memcmp(f.cells, serial.cells, sizeof f.cells) == 0);
        }
    }
    CHECK(status == PTO_OK || (!strict && status == PTO_NO_MEMORY));
    pto_graph_destroy(g);
    f = start;
    f.window = 30;
    pto_failure failure;
    const int64_t args[1] = {(int64_t)(intptr_t)&f};
    status = pto_launch(rt, live_field, args, NULL, NULL, 0, &failure);
    if (status == PTO_OK) {
        CHECK(memcmp(f.cells, serial.cells, sizeof f.cells) == 0);
    } else {
        CHECK(!strict && failure.status == PTO_NO_MEMORY && failure.site == PTO_SITE_NO_MEMORY);
        CHECK(failure.graph == NULL);
    }
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
        run_field(rt, 0);
        if (!keep_failing && h->requests > fail_at) {
            pto_runtime_trim(rt);
            run_field(rt, 1); /* whatever failed before, this works */
        }
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
            const long step = FEWER(1, 11);
            long n = step == 1 ? 0 : threads + 4 * keep_failing; /* others in each of the four rounds */
            while (scenario(n, keep_failing, threads)) {
                n += step;
            }
            CHECK(n > 10);
        }
    }
    puts("allocator: ok");
    return 0;
}

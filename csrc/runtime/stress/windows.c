/* SPDX-License-Identifier: MIT */
/*
 * Live graphs larger than their window: memory stays flat and nothing deadlocks; failures, cancelling and waiting;
 * many graphs on many threads and runtimes at once.
 */
#include "../pto_runtime.h"
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static int64_t chain_length = FEWER(1000000, 80000);

/* ---- an allocator that counts ---- */

static _Atomic(int64_t) bytes_now;
static _Atomic(int64_t) bytes_most;

static void *count_allocate(void *context, size_t bytes, size_t alignment) {
    (void)context;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, bytes) != 0) {
        return NULL;
    }
    int64_t now = atomic_fetch_add(&bytes_now, (int64_t)bytes) + (int64_t)bytes;
    int64_t most = atomic_load(&bytes_most);
    while (now > most && !atomic_compare_exchange_weak(&bytes_most, &most, now)) {
    }
    return memory;
}

static void count_release(void *context, void *memory, size_t bytes, size_t alignment) {
    (void)context;
    (void)alignment;
    atomic_fetch_sub(&bytes_now, (int64_t)bytes);
    free(memory);
}

static pto_runtime *runtime(int32_t threads, int counting) {
    pto_options options;
    pto_options_default(&options);
    options.num_threads = threads;
    if (counting) {
        options.allocate = count_allocate;
        options.release = count_release;
    }
    pto_runtime *rt;
    CHECK(pto_runtime_create(&options, &rt) == PTO_OK);
    return rt;
}

/* ---- chains ---- */

static int64_t matrix[64][8];

static int32_t step(pto_worker *w, const int64_t *slots) {
    (void)w;
    int64_t *cell = (int64_t *)(intptr_t)slots[0];
    CHECK(*cell == slots[1]);
    *cell = slots[1] + 1;
    return 0;
}

static const int32_t update[1] = {PTO_READ_WRITE};
static const pto_task_kind step_kind = {"step", step, 0, 2, 1, update};
static const int32_t reads_and_update[2] = {PTO_READ, PTO_READ_WRITE};
static const pto_task_kind wide_kind = {"wide", NULL, 0, 0, 2, reads_and_update};
static const pto_task_kind none_kind = {"none", NULL, 0, 0, 0, NULL};

typedef struct chain {
    int64_t length;
    int64_t window;
    int64_t width; /* chains side by side */
    int64_t wide;  /* every so often a task that reads an unaligned box, so that there are boxes too; 0: never */
    int64_t bytes; /* of the graph: largest seen */
} chain;

static int32_t run_chain(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    chain *c = (chain *)(intptr_t)args[0];
    const int64_t extents[2] = {64, 8};
    const int64_t strides[2] = {sizeof matrix[0], sizeof matrix[0][0]};
    int32_t tensor;
    pto_graph *g = pto_graph_open(w, c->window);
    CHECK(g != NULL);
    CHECK(pto_graph_tensor(g, matrix, 8, 2, extents, strides, &tensor) == PTO_OK);
    memset(matrix, 0, sizeof matrix);
    for (int64_t i = 0; i < c->length; i++) {
        int64_t at = i % c->width;
        const int64_t slots[2] = {(int64_t)(intptr_t)&matrix[at][0], i / c->width};
        const int64_t region[5] = {tensor, at, 0, 1, 8};
        CHECK(pto_task(g, &step_kind, slots, region) == PTO_OK);
        if (c->wide != 0 && i % c->wide == 0) {
            const int64_t two[10] = {tensor, 1 + i % 40, 3, 7, 2, tensor, i % 60, 0, 3, 7};
            CHECK(pto_task(g, &wide_kind, NULL, two) == PTO_OK);
        }
        if (i % 4096 == 0) {
            pto_graph_facts facts;
            CHECK(pto_graph_measure(g, &facts) == PTO_OK);
            c->bytes = facts.bytes > c->bytes ? facts.bytes : c->bytes;
        }
    }
    return pto_graph_close(w, g);
}

static void chains(void) {
    for (int32_t threads = 1; threads <= 3; threads++) {
        for (int64_t wide = 0; wide < 8; wide += 7) {
            pto_runtime *rt = runtime(threads, 1);
            int64_t most[2];
            for (int longer = 0; longer < 2; longer++) {
                int64_t length = threads == 1 && wide == 0 ? chain_length : chain_length / 4;
                chain c = {longer ? length : length / 16 + 16384, 4096, threads == 1 ? 1 : 16, wide, 0};
                const int64_t args[1] = {(int64_t)(intptr_t)&c};
                atomic_store(&bytes_most, 0);
                CHECK(pto_launch(rt, run_chain, args, NULL, NULL, 0, NULL) == PTO_OK);
                for (int64_t i = 0; i < c.width; i++) {
                    CHECK(matrix[i][0] == (c.length - i + c.width - 1) / c.width);
                }
                most[longer] = c.bytes;
                CHECK(c.bytes < 4 << 20);
            }
            CHECK(most[1] <= most[0] + (512 << 10)); /* many times as long, no more memory */
            pto_runtime_release(rt);
            CHECK(atomic_load(&bytes_now) == 0);
        }
    }
}

/* ---- failures and cancelling ---- */

static atomic_int ran[400];

static int32_t maybe(pto_worker *w, const int64_t *slots) {
    struct timespec pause = {0, 20000};
    if (slots[0] % 16 == 0) {
        nanosleep(&pause, NULL);
    }
    atomic_fetch_add(&ran[slots[0]], 1);
    void *left = slots[1] == slots[0] || slots[1] + 7 == slots[0] ? pto_scratch_push(w, 100) : NULL;
    return left != NULL ? pto_fail(w, 42, slots[0], 0, 0) : 0;
}

static const pto_task_kind free_kind = {"free", maybe, 8, 2, 0, NULL};
static const pto_task_kind maybe_kind = {"maybe", maybe, 8, 2, 1, update};

static int32_t submit_maybe(pto_graph *g, int64_t failing) {
    int32_t tensor;
    const int64_t extent = 10;
    const int64_t stride = 8;
    int32_t status = pto_graph_tensor(g, matrix, 8, 1, &extent, &stride, &tensor);
    for (int64_t i = 0; i < 400 && status == PTO_OK; i++) {
        const int64_t slots[2] = {i, failing};
        const int64_t region[3] = {tensor, i % 10, 1};
        status = pto_task(g, i % 3 == 0 ? &free_kind : &maybe_kind, slots, region);
    }
    return status;
}

static int32_t live_maybe(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    pto_graph *g = pto_graph_open(w, args[1]);
    CHECK(g != NULL);
    int32_t status = submit_maybe(g, args[0]);
    CHECK(status == PTO_OK || status == PTO_FAILED);
    return pto_graph_close(w, g);
}

static void check_ran(int64_t failing) {
    for (int i = 0; i < 400; i++) {
        int times = atomic_exchange(&ran[i], 0);
        CHECK(i <= failing ? times == 1 : times <= 1);
    }
}

static void failures(void) {
    for (int32_t threads = 1; threads <= 4; threads++) {
        pto_runtime *rt = runtime(threads, 0);
        for (int64_t failing = 0; failing < 390; failing += 31) {
            pto_failure failure;
            pto_graph *g;
            CHECK(pto_graph_create(rt, &g) == PTO_OK && submit_maybe(g, failing) == PTO_OK);
            for (int again = 0; again < 2; again++) {
                CHECK(pto_graph_execute(g, NULL, 0, 0, &failure) == PTO_FAILED);
                CHECK(failure.site == 42 && failure.v0 == failing && failure.task == failing + 1);
                CHECK(failure.graph == NULL);
                check_ran(failing);
            }
            pto_graph_destroy(g);
            const int64_t args[2] = {failing, 1 + failing % 50};
            CHECK(pto_launch(rt, live_maybe, args, NULL, NULL, 0, &failure) == PTO_FAILED);
            CHECK(failure.site == 42 && failure.v0 == failing && failure.task == failing + 1);
            check_ran(failing);
            pto_task_facts facts;
            CHECK(pto_graph_task(failure.graph, failing, &facts) == PTO_OK);
            CHECK(facts.kind->num_slots == 2 && facts.slots[0] == failing && facts.slots[1] == failing);
            int32_t tensor;
            int64_t offset;
            int64_t extent;
            if (facts.kind == &maybe_kind) {
                CHECK(pto_graph_region(failure.graph, failing, 0, &tensor, &offset, &extent) == PTO_OK);
                CHECK(tensor == 0 && offset == failing % 10 && extent == 1);
            }
            pto_graph_destroy(failure.graph);
            CHECK(pto_launch(rt, live_maybe, args, NULL, NULL, 0, NULL) == PTO_FAILED); /* nobody wants the graph */
            check_ran(failing);
        }
        pto_runtime_release(rt);
    }
}

static void *cancel(void *argument) {
    struct timespec pause = {0, 300000};
    nanosleep(&pause, NULL);
    pto_graph_cancel(argument);
    return NULL;
}

static int32_t cancel_own(pto_worker *w, const int64_t *slots) {
    (void)w;
    pto_graph_cancel((pto_graph *)(intptr_t)slots[0]);
    return 0;
}

static const pto_task_kind cancel_kind = {"cancel", cancel_own, 0, 1, 1, update};

/* A task cancels its own graph: a chain of 400 stops there, and the builder is told. */
static int32_t live_cancelled(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    int32_t tensor;
    int32_t status = PTO_OK;
    const int64_t extent = 10;
    const int64_t stride = 8;
    const int64_t region[3] = {0, 0, 1};
    pto_graph *g = pto_graph_open(w, args[0]);
    CHECK(g != NULL && pto_graph_tensor(g, matrix, 8, 1, &extent, &stride, &tensor) == PTO_OK);
    for (int64_t i = 0; i < 400 && status == PTO_OK; i++) {
        const int64_t slots[2] = {i == 50 ? (int64_t)(intptr_t)g : i, -100};
        status = pto_task(g, i == 50 ? &cancel_kind : &maybe_kind, slots, region);
    }
    CHECK(status == PTO_OK || status == PTO_CANCELLED);
    CHECK(pto_graph_wait(g) == PTO_CANCELLED);
    return pto_graph_close(w, g);
}

static void cancelling(void) {
    int cancelled = 0;
    for (int32_t threads = 1; threads <= 3; threads++) {
        pto_runtime *rt = runtime(threads, 0);
        for (int64_t window = 1; window <= 1024; window *= 4) {
            pto_failure failure;
            CHECK(pto_launch(rt, live_cancelled, &window, NULL, NULL, 0, &failure) == PTO_CANCELLED);
            CHECK(failure.site == PTO_SITE_CANCELLED && failure.task == 0 && failure.graph == NULL);
            for (int i = 0; i < 400; i++) {
                CHECK(atomic_exchange(&ran[i], 0) == (i < 50));
            }
        }
        pto_runtime_release(rt);
    }
    for (int round = 0; round < 60; round++) {
        pto_runtime *rt = runtime(1 + round % 3, 0);
        pto_graph *g;
        CHECK(pto_graph_create(rt, &g) == PTO_OK && submit_maybe(g, -100) == PTO_OK);
        pthread_t other;
        CHECK(pthread_create(&other, NULL, cancel, g) == 0);
        pto_failure failure;
        int32_t status = pto_graph_execute(g, NULL, 0, 0, &failure);
        pthread_join(other, NULL);
        CHECK(status == PTO_OK || (status == PTO_CANCELLED && failure.site == PTO_SITE_CANCELLED));
        cancelled += status == PTO_CANCELLED;
        CHECK(pto_graph_execute(g, NULL, 0, 0, &failure) == PTO_OK); /* the next run is not affected */
        pto_graph_destroy(g);
        pto_runtime_release(rt);
    }
    for (int i = 0; i < 400; i++) {
        atomic_store(&ran[i], 0);
    }
    CHECK(cancelled > 0);
}

/* ---- waiting for a region ---- */

static int32_t slow_write(pto_worker *w, const int64_t *slots) {
    (void)w;
    struct timespec pause = {0, 200000};
    nanosleep(&pause, NULL);
    *(int64_t *)(intptr_t)slots[0] = slots[1];
    return 0;
}

static const int32_t writes[1] = {PTO_WRITE};
static const pto_task_kind slow_kind = {"slow", slow_write, 0, 2, 1, writes};

static int32_t waiting(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    (void)results;
    int32_t tensor;
    const int64_t extent = 64;
    const int64_t stride = 8;
    int64_t *row = &matrix[0][0];
    pto_graph *g = pto_graph_open(w, 16);
    CHECK(g != NULL && pto_graph_tensor(g, row, 8, 1, &extent, &stride, &tensor) == PTO_OK);
    for (int64_t i = 0; i < 64; i++) {
        const int64_t slots[2] = {(int64_t)(intptr_t)&row[i % 8], i};
        const int64_t region[3] = {tensor, i % 8, 1};
        CHECK(pto_task(g, &slow_kind, slots, region) == PTO_OK);
        const int64_t other[3] = {tensor, (i + 3) % 8, 1};
        CHECK(pto_graph_wait_region(g, i % 2 == 0 ? PTO_READ : PTO_READ_WRITE, other) == PTO_OK);
        CHECK(i < 8 || row[(i + 3) % 8] == i - 5);
    }
    const int64_t untouched[3] = {tensor, 20, 30};
    CHECK(pto_graph_wait_region(g, PTO_READ_WRITE, untouched) == PTO_OK);
    CHECK(pto_graph_wait(g) == PTO_OK);
    for (int64_t i = 0; i < 8; i++) {
        CHECK(row[i] == 56 + i);
    }
    const int64_t outside[3] = {tensor, 60, 5};
    const int64_t slots[2] = {0, 0};
    CHECK(pto_graph_wait_region(g, PTO_READ, outside) == PTO_BAD_ARGUMENT);
    CHECK(pto_task(g, &slow_kind, slots, outside) == PTO_BAD_ARGUMENT);
    CHECK(pto_task(g, &slow_kind, slots, untouched) == PTO_BAD_ARGUMENT); /* none after an error */
    CHECK(pto_graph_close(w, g) == PTO_BAD_ARGUMENT);
    return 0;
}

/* ---- readers whose first is given back ---- */

static int32_t watch(pto_worker *w, const int64_t *slots) {
    (void)w;
    const int64_t *cell = (const int64_t *)(intptr_t)slots[0];
    struct timespec pause = {0, slots[2]};
    CHECK(*cell == slots[1]);
    if (slots[2] != 0) {
        nanosleep(&pause, NULL);
    }
    CHECK(*cell == slots[1]); /* nobody writes meanwhile */
    return 0;
}

static int32_t assign(pto_worker *w, const int64_t *slots) {
    (void)w;
    *(int64_t *)(intptr_t)slots[0] = slots[1];
    return 0;
}

static const int32_t reads[1] = {PTO_READ};
static const pto_task_kind watch_kind = {"watch", watch, 0, 3, 1, reads};
static const pto_task_kind assign_kind = {"assign", assign, 0, 2, 1, writes};

/* A quick reader and two slow ones; the quick one's record is given back before the next task that writes comes. */
static int32_t slow_readers(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    int32_t tensor;
    const int64_t extents[2] = {64, 8};
    const int64_t strides[2] = {sizeof matrix[0], sizeof matrix[0][0]};
    pto_graph *g = pto_graph_open(w, 8);
    CHECK(g != NULL && pto_graph_tensor(g, matrix, 8, 2, extents, strides, &tensor) == PTO_OK);
    const int64_t region[5] = {tensor, 3, 0, 1, 8};
    const int64_t cell = (int64_t)(intptr_t)&matrix[3][0];
    for (int64_t round = 0; round < args[0]; round++) {
        const int64_t write[2] = {cell, round};
        CHECK(pto_task(g, &assign_kind, write, region) == PTO_OK);
        for (int64_t reader = 0; reader < 3; reader++) {
            const int64_t slots[3] = {cell, round, reader == 0 ? 0 : 1000000};
            CHECK(pto_task(g, &watch_kind, slots, region) == PTO_OK);
        }
        for (int i = 0; i < 12; i++) { /* more than the window: what has finished is given back */
            CHECK(pto_task(g, &none_kind, NULL, NULL) == PTO_OK);
        }
    }
    return pto_graph_close(w, g);
}

/* A region outside its tensor is refused after tiles were found, too. */
static void outside(pto_runtime *rt) {
    const int64_t extents[2] = {64, 8};
    const int64_t strides[2] = {sizeof matrix[0], sizeof matrix[0][0]};
    for (int64_t at = 62; at <= 65; at++) {
        pto_graph *g;
        int32_t tensor;
        CHECK(pto_graph_create(rt, &g) == PTO_OK);
        CHECK(pto_graph_tensor(g, matrix, 8, 2, extents, strides, &tensor) == PTO_OK);
        const int64_t slots[2] = {0, 0};
        const int64_t first[5] = {tensor, 0, 0, 1, 8};
        const int64_t second[5] = {tensor, at, 0, 1, 8};
        const int64_t third[5] = {tensor, at, 1, 1, 8};
        CHECK(pto_task(g, &assign_kind, slots, first) == PTO_OK);
        CHECK(pto_task(g, &assign_kind, slots, second) == (at < 64 ? PTO_OK : PTO_BAD_ARGUMENT));
        CHECK(pto_task(g, &assign_kind, slots, third) == PTO_BAD_ARGUMENT);
        pto_graph_destroy(g);
    }
}

/* ---- everything at once ---- */

static void *many(void *argument) {
    pto_runtime *rt = argument;
    static const int64_t extent = 4;
    static const int64_t stride = 8;
    for (int round = 0; round < 40; round++) {
        int64_t row[4] = {0};
        int64_t wanted[4] = {0};
        pto_graph *g;
        int32_t tensor;
        CHECK(pto_graph_create(rt, &g) == PTO_OK);
        CHECK(pto_graph_tensor(g, row, 8, 1, &extent, &stride, &tensor) == PTO_OK);
        for (int64_t i = 0; i < 200; i++) {
            const int64_t slots[2] = {(int64_t)(intptr_t)&row[i % 4], wanted[i % 4]++};
            const int64_t region[3] = {tensor, i % 4, 1};
            CHECK(pto_task(g, &step_kind, slots, region) == PTO_OK);
        }
        CHECK(pto_graph_execute(g, NULL, 0, round % 2, NULL) == PTO_OK);
        for (int i = 0; i < 4; i++) {
            CHECK(row[i] == 50);
        }
        pto_graph_destroy(g);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        chain_length = atoll(argv[1]);
    }
    chains();
    failures();
    cancelling();
    pto_runtime *rts[2];
    for (int i = 0; i < 2; i++) {
        rts[i] = runtime(2 + i, 0);
        CHECK(pto_launch(rts[i], waiting, NULL, NULL, NULL, 0, NULL) == PTO_OK);
        CHECK(pto_launch(rts[i], waiting, NULL, NULL, NULL, 1, NULL) == PTO_OK);
        const int64_t rounds[1] = {20};
        CHECK(pto_launch(rts[i], slow_readers, rounds, NULL, NULL, 0, NULL) == PTO_OK);
        outside(rts[i]);
    }
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) {
        CHECK(pthread_create(&threads[i], NULL, many, rts[i % 2]) == 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < 2; i++) {
        pto_statistics s;
        pto_runtime_statistics(rts[i], &s);
        CHECK(s.buffers_live == 0);
        pto_runtime_release(rts[i]);
    }
    puts("windows: ok");
    return 0;
}

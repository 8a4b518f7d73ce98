/* SPDX-License-Identifier: MIT */
/*
 * Forking while other threads run kernels and free buffers: the child uses the runtimes it inherited, with threads of
 * its own, and never waits for a lock that the parent's threads held.
 */
#include "../pto_runtime.h"
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int32_t piece(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    void *scratch = pto_scratch_push(w, 2000);
    void *buffer = pto_buffer_alloc(w, 64 * end);
    CHECK(scratch != NULL && buffer != NULL);
    memset(scratch, 1, 2000);
    for (int64_t i = begin; i < end; i++) {
        ((int64_t *)ctx)[i]++;
    }
    pto_buffer_free(w, buffer);
    pto_scratch_pop(w, scratch);
    return 0;
}

static int32_t entry(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    int64_t hits[100] = {0};
    int32_t status = pto_parallel_for(w, piece, hits, 0, 100, 1);
    for (int i = 0; i < 100; i++) {
        CHECK(hits[i] == 1);
    }
    void *out = pto_buffer_alloc(w, 1000);
    CHECK(out != NULL);
    results[0] = (int64_t)(intptr_t)out;
    return status;
}

static int32_t add_one(pto_worker *w, const int64_t *slots) {
    (void)w;
    ++*(int64_t *)(intptr_t)slots[0];
    return 0;
}

static int64_t cells[16];
static const int32_t update[1] = {PTO_READ_WRITE};
static const pto_task_kind add_kind = {"add_one", add_one, 0, 1, 1, update};

/* 160 tasks, ten for each cell. */
static pto_graph *record(pto_runtime *rt) {
    const int64_t extent = 16;
    const int64_t stride = 8;
    int32_t tensor;
    pto_graph *g;
    CHECK(pto_graph_create(rt, &g) == PTO_OK);
    CHECK(pto_graph_tensor(g, cells, 8, 1, &extent, &stride, &tensor) == PTO_OK);
    for (int64_t i = 0; i < 160; i++) {
        const int64_t slot = (int64_t)(intptr_t)&cells[i % 16];
        const int64_t region[3] = {tensor, i % 16, 1};
        CHECK(pto_task(g, &add_kind, &slot, region) == PTO_OK);
    }
    return g;
}

static void execute(pto_graph *g) {
    memset(cells, 0, sizeof cells);
    CHECK(pto_graph_execute(g, NULL, 0, 0, NULL) == PTO_OK);
    for (int i = 0; i < 16; i++) {
        CHECK(cells[i] == 10);
    }
}

static void launch(pto_runtime *rt, int64_t *result) {
    CHECK(pto_launch(rt, entry, NULL, result, NULL, 0, NULL) == PTO_OK);
}

static atomic_bool stop;

static void *busy(void *argument) {
    while (!atomic_load(&stop)) {
        int64_t result;
        launch(argument, &result);
        pto_buffer_free(NULL, (void *)(intptr_t)result);
    }
    return NULL;
}

int main(void) {
    pto_options options;
    pto_options_default(&options);
    options.num_threads = 3;
    pto_runtime *rt;
    CHECK(pto_runtime_create(&options, &rt) == PTO_OK);
    pto_graph *recorded = record(rt);
    execute(recorded);
    pthread_t others[2];
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&others[i], NULL, busy, rt) == 0);
    }
    for (int round = 0; round < 60; round++) {
        int64_t before;
        launch(rt, &before);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20); /* a child that waits for a lost lock must not hang the test */
            pto_buffer_free(NULL, (void *)(intptr_t)before);
            int64_t mine;
            for (int i = 0; i < 3; i++) {
                launch(rt, &mine);
                pto_buffer_free(NULL, (void *)(intptr_t)mine);
            }
            execute(recorded); /* the parent's graph, and one of its own */
            pto_graph *g = record(rt);
            execute(g);
            pto_graph_destroy(g);
            pto_graph_destroy(recorded);
            pid_t grandchild = round % 10 == 0 ? fork() : -1;
            if (grandchild == 0) {
                alarm(20);
                launch(rt, &mine);
                _exit(0);
            }
            if (grandchild > 0) {
                int status;
                CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
            }
            launch(rt, &mine);
            pto_runtime_trim(rt);
            pto_runtime_release(rt);
            pto_buffer_free(NULL, (void *)(intptr_t)mine);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        if (status != 0) {
            fprintf(stderr, "round %d: the child ended with status %#x\n", round, (unsigned)status);
            exit(1);
        }
        pto_buffer_free(NULL, (void *)(intptr_t)before);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) {
        pthread_join(others[i], NULL);
    }
    execute(recorded);
    pto_graph_destroy(recorded);
    pto_runtime_release(rt);
    puts("forks: ok");
    return 0;
}

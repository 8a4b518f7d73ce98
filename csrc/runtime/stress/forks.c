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
    pto_runtime_release(rt);
    puts("forks: ok");
    return 0;
}

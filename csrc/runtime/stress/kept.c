/* SPDX-License-Identifier: MIT */
/*
 * Matrices that launches keep packed, from many threads: a copy is what was packed, is made once, and is gone with its
 * launch; what is not fixed, too much or one too many is never kept.
 */
#include "../pto_runtime.h"
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MATRICES = 40, ROWS = 16, COLUMNS = 24, USES = 30, THREADS = 3, ROUNDS = FEWER(200, 20) };

typedef struct launch {
    float (*data)[ROWS][COLUMNS];
    atomic_int made[MATRICES];
    int form;
} launch;

static pto_matrix matrix_of(launch *l, int i) {
    pto_matrix m = {l->data[i], ROWS, COLUMNS, sizeof l->data[i][0], sizeof(float), &l->form};
    return m;
}

static int32_t use(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    (void)end;
    launch *l = ctx;
    int i = (int)(begin % MATRICES);
    pto_matrix m = matrix_of(l, i);
    void *room;
    float *copy = pto_kept_find(w, &m, sizeof l->data[i], &room);
    CHECK(copy == NULL || room == NULL);
    if (room != NULL) {
        float *to;
        memcpy(&to, room, sizeof to);
        CHECK((uintptr_t)to % 64 == 0);
        memcpy(to, l->data[i], sizeof l->data[i]);
        CHECK(atomic_fetch_add(&l->made[i], 1) == 0);
        pto_kept_done(room);
    } else if (copy != NULL) {
        CHECK(memcmp(copy, l->data[i], sizeof l->data[i]) == 0);
    }
    return 0;
}

/* args: the launch, whether it fails */
static int32_t entry(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    launch *l = (launch *)(intptr_t)args[0];
    void *room;
    pto_matrix first = matrix_of(l, 0);
    for (int k = 0; k < 3; k++) {
        CHECK(pto_kept_find(w, &first, sizeof l->data[0], &room) == NULL && room == NULL); /* nothing is fixed yet */
    }
    pto_fixed(w, l->data[MATRICES], l->data[MATRICES]); /* nothing */
    pto_fixed(w, l->data, l->data[MATRICES]);
    int32_t status = pto_parallel_for(w, use, l, 0, (int64_t)MATRICES * USES, 1);
    CHECK(status == 0);
    for (int i = 0; i < MATRICES; i++) {
        for (int k = 0; k < 2; k++) { /* a thread that was interrupted, even at the matrix whose place in the table comes */
            (void)use(w, l, i, i + 1); /* before, may have kept all others from entering this one or from packing it */
        }
        pto_matrix m = matrix_of(l, i);
        void *copy = pto_kept_find(w, &m, sizeof l->data[i], &room);
        CHECK(l->made[i] == 1 && copy != NULL && memcmp(copy, l->data[i], sizeof l->data[i]) == 0);
    }
    /* another layout, another form, a matrix that sticks out, more than a launch keeps: other matrices */
    pto_matrix other = first;
    other.column_stride = (int64_t)sizeof l->data[0][0], other.row_stride = sizeof(float);
    CHECK(pto_kept_find(w, &other, 64, &room) == NULL && room == NULL);
    other = first, other.form = l;
    CHECK(pto_kept_find(w, &other, 64, &room) == NULL && room == NULL);
    other = matrix_of(l, MATRICES - 1), other.rows++;
    for (int k = 0; k < 3; k++) {
        CHECK(pto_kept_find(w, &other, 64, &room) == NULL && room == NULL);
    }
    other = first, other.rows--;
    for (int k = 0; k < 3; k++) {
        CHECK(pto_kept_find(w, &other, (int64_t)1 << 40, &room) == NULL && room == NULL);
    }
    return args[1] ? pto_fail(w, 1, 0, 0, 0) : 0;
}

/* More matrices than the table has places: it fills up and goes on. */
static int32_t crowd(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    unsigned char *data = (unsigned char *)(intptr_t)args[0];
    pto_fixed(w, data, data + 65536);
    int kept = 0;
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 65536 - 64; i += 16) {
            pto_matrix m = {data + i, 4, 4, 16, 4, data};
            void *room;
            unsigned char *copy = pto_kept_find(w, &m, 64, &room);
            if (room != NULL) {
                memcpy(&copy, room, sizeof copy);
                memset(copy, i / 16 % 251, 64);
                pto_kept_done(room);
                kept++;
            } else if (copy != NULL) {
                CHECK(copy[0] == i / 16 % 251 && copy[63] == copy[0]);
            }
        }
    }
    CHECK(kept > 500 && kept <= 1024);
    return 0;
}

static void *call(void *argument) {
    pto_runtime *rt = argument;
    launch *l = calloc(1, sizeof *l);
    l->data = malloc(sizeof l->data[0] * (MATRICES + 1));
    unsigned char *many = calloc(1, 65536);
    CHECK(l != NULL && l->data != NULL && many != NULL);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MATRICES; i++) {
            for (int j = 0; j < ROWS * COLUMNS; j++) {
                (&l->data[i][0][0])[j] = (float)(round * 31 + i * 7 + j); /* a copy of the launch before would show */
            }
            atomic_store(&l->made[i], 0);
        }
        int64_t args[2] = {(int64_t)(intptr_t)l, round % 3 == 2};
        pto_failure failure;
        int32_t status = pto_launch(rt, entry, args, NULL, NULL, 0, &failure);
        CHECK(status == (args[1] ? PTO_FAILED : PTO_OK));
        args[0] = (int64_t)(intptr_t)many;
        CHECK(round % 16 != 0 || pto_launch(rt, crowd, args, NULL, NULL, 1, &failure) == PTO_OK);
    }
    free(many);
    free(l->data);
    free(l);
    return NULL;
}

int main(void) {
    pto_options options;
    pto_options_default(&options);
    options.num_threads = 4;
    pto_runtime *rt;
    CHECK(pto_runtime_create(&options, &rt) == PTO_OK);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, call, rt) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    pto_statistics statistics;
    pto_runtime_statistics(rt, &statistics);
    CHECK(statistics.buffers_live == 0);
    pto_runtime_release(rt);
    printf("kept: ok\n");
    return 0;
}

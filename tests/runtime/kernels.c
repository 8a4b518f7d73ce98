/* SPDX-License-Identifier: MIT */
/* Hand-written kernels for the tests: what generated code looks like from the outside. */
#include "pto_runtime.h"

#include <string.h>
#include <time.h>

#define IMPORTS(X)                                                                                                     \
    X(int32_t, pto_parallel_for, (pto_worker *, pto_range_fn, void *, int64_t, int64_t, int64_t))                      \
    X(void *, pto_scratch_push, (pto_worker *, int64_t))                                                               \
    X(void, pto_scratch_pop, (pto_worker *, void *))                                                                   \
    X(void *, pto_buffer_alloc, (pto_worker *, int64_t))                                                               \
    X(void, pto_buffer_free, (pto_worker *, void *))                                                                   \
    X(int32_t, pto_fail, (pto_worker *, int32_t, int64_t, int64_t, int64_t))                                           \
    X(void, pto_print, (pto_worker *, int32_t, const int64_t *, int32_t))                                              \
    X(int32_t, pto_worker_index, (const pto_worker *))                                                                 \
    X(int32_t, pto_parallel_width, (const pto_worker *))                                                               \
    X(int32_t, pto_in_piece, (const pto_worker *))

#define DECLARE(type, name, args) static type(*import_##name) args;
IMPORTS(DECLARE)
#define ASSIGN(type, name, args)                                                                                       \
    if (strcmp(symbol, #name) == 0) {                                                                                  \
        *(void **)&import_##name = address;                                                                            \
        return 1;                                                                                                      \
    }
int import_symbol(const char *symbol, void *address) {
    IMPORTS(ASSIGN)
    return 0;
}

/* () -> None */
int32_t nothing(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)w, (void)args, (void)results;
    return 0;
}

/* Copies args[1 .. 1+args[0]] to where args says: (count as the first int argument) -> that many int results */
int32_t echo(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)w;
    memcpy(results, args + 1, (size_t)args[0] * sizeof *args);
    return 0;
}

/* (x: f32 rank 1 contiguous, y alike, z alike): z = x + y */
int32_t add(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)w, (void)results;
    const float *x = (const float *)args[0], *y = (const float *)args[3];
    float *z = (float *)args[6];
    for (int64_t i = 0; i < args[1]; i++) {
        z[i] = x[i] + y[i];
    }
    return 0;
}

/* (n: int, v: float) -> f64 tensor of n elements, all v */
int32_t filled(pto_worker *w, const int64_t *args, int64_t *results) {
    double *out = import_pto_buffer_alloc(w, args[0] * (int64_t)sizeof(double));
    double v;
    memcpy(&v, &args[1], sizeof v);
    if (out == NULL) {
        return 1;
    }
    for (int64_t i = 0; i < args[0]; i++) {
        out[i] = v;
    }
    results[0] = (int64_t)out;
    results[1] = args[0];
    return 0;
}

/* (site, v0, v1, v2: int): allocates, then fails */
int32_t failing(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    (void)import_pto_buffer_alloc(w, 1000);
    (void)import_pto_scratch_push(w, 1000);
    return import_pto_fail(w, (int32_t)args[0], args[1], args[2], args[3]);
}

/* () -> status 7 without a record */
int32_t silent_failure(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)w, (void)args, (void)results;
    return 7;
}

/* (bytes: int): asks for that much */
int32_t greedy(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    return import_pto_buffer_alloc(w, args[0]) == NULL ? 1 : 0;
}

/* ---- parallel loops ---- */

typedef struct loop {
    int64_t *out;
    int64_t n;
    int64_t work;
    int64_t fail_from;
    int64_t nested;
} loop;

static int32_t inner_piece(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    (void)w;
    int64_t *sum = ctx;
    for (int64_t i = begin; i < end; i++) {
        *sum += i;
    }
    return 0;
}

static int32_t piece(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    loop *l = ctx;
    void *scratch = import_pto_scratch_push(w, 4096);
    if (scratch == NULL) {
        return 1;
    }
    memset(scratch, (int)begin, 4096);
    for (int64_t i = begin; i < end; i++) {
        uint64_t x = (uint64_t)i + 1;
        for (int64_t k = 0; k < l->work; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        }
        l->out[i] += x != 0 ? 1 : 2;
    }
    if (l->nested != 0) {
        int64_t sum = 0;
        int32_t status = import_pto_parallel_for(w, inner_piece, &sum, 0, 100, 7);
        if (status != 0 || sum != 4950) {
            return import_pto_fail(w, 99, sum, 0, 0);
        }
    }
    if (l->fail_from >= 0 && begin >= l->fail_from) {
        return import_pto_fail(w, 5, begin, end, 0); /* leaves its scratch memory pushed */
    }
    import_pto_scratch_pop(w, scratch);
    return 0;
}

/* (out: i64 rank 1, grain, work, fail_from, nested: int): adds 1 to every element */
int32_t count_up(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    loop l = {(int64_t *)args[0], args[1], args[4], args[5], args[6]};
    return import_pto_parallel_for(w, piece, &l, 0, l.n, args[3]);
}

static int32_t who(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    struct timespec pause = {0, 200000};
    nanosleep(&pause, NULL); /* lets other threads take part, also on a busy machine */
    for (int64_t i = begin; i < end; i++) {
        ((int64_t *)ctx)[i] = import_pto_worker_index(w);
    }
    return 0;
}

/* (out: i64 rank 1): writes which worker did each element */
int32_t who_is_it(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    return import_pto_parallel_for(w, who, (void *)args[0], 0, args[1], 1);
}

static int32_t widths(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        ((int64_t *)ctx)[i] = import_pto_parallel_width(w);
    }
    return 0;
}

/* (out: i64 rank 1): writes the width outside of a loop to the first element, inside to the others */
int32_t how_wide(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    ((int64_t *)args[0])[0] = import_pto_parallel_width(w);
    return import_pto_parallel_for(w, widths, (void *)args[0], 1, args[1], 1);
}

static int32_t piece_of(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        ((int64_t *)ctx)[i] = import_pto_in_piece(w);
    }
    return 0;
}

/* (out: i64 rank 1): whether there may be other pieces, outside of a loop, in one of a single piece, and in pieces */
int32_t in_pieces(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    void *out = (void *)args[0];
    ((int64_t *)out)[0] = import_pto_in_piece(w);
    int32_t status = import_pto_parallel_for(w, piece_of, out, 1, 2, 1);
    return status ? status : import_pto_parallel_for(w, piece_of, out, 2, args[1], 1);
}

static int32_t printing(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    (void)ctx;
    int64_t values[2] = {begin, end};
    import_pto_print(w, 3, values, 2);
    return 0;
}

/* (n: int): prints from every piece */
int32_t talkative(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    return import_pto_parallel_for(w, printing, NULL, 0, args[0], 1);
}

/* ---- tasks ---- */

/* (fail, value): fails at site 7 when `fail` is not 0 */
int32_t task_fail_if(pto_worker *w, const int64_t *slots) {
    return slots[0] != 0 ? import_pto_fail(w, 7, slots[0], slots[1], 0) : 0;
}

/* (nanoseconds) */
int32_t task_wait(pto_worker *w, const int64_t *slots) {
    (void)w;
    struct timespec pause = {0, slots[0]};
    nanosleep(&pause, NULL);
    return 0;
}

/* (target, source, rows, cols, pitch of both in elements, a, nanoseconds): target = target * a + source, in f64 */
int32_t task_axpy(pto_worker *w, const int64_t *slots) {
    if (slots[6] != 0) {
        (void)task_wait(w, slots + 6);
    }
    double *target = (double *)slots[0];
    const double *source = (const double *)slots[1];
    for (int64_t i = 0; i < slots[2]; i++) {
        for (int64_t k = 0; k < slots[3]; k++) {
            target[i * slots[4] + k] = target[i * slots[4] + k] * (double)slots[5] + source[i * slots[4] + k];
        }
    }
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * The stream as calls of the runtime, in the form of generated code: constant kinds, tensors registered before the
 * loops, one call per task.  Built on the machine that is measured; the runtime's functions come in as addresses.
 */
#include "pto_runtime.h"

#include "llama_stream.h"

#include <string.h>

#define IMPORTS(X)                                                                                                     \
    X(int32_t, pto_graph_tensor,                                                                                       \
      (pto_graph *, const void *, int64_t, int32_t, const int64_t *, const int64_t *, int32_t *))                      \
    X(int32_t, pto_task, (pto_graph *, const pto_task_kind *, const int64_t *, const int64_t *))                       \
    X(pto_graph *, pto_graph_open, (pto_worker *, int64_t))                                                            \
    X(int32_t, pto_graph_close, (pto_worker *, pto_graph *))

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

/* The empty body; volatile work of `spin` rounds when the third slot asks for it. */
static int32_t nothing(pto_worker *w, const int64_t *slots) {
    (void)w;
    (void)slots;
    return 0;
}

/* Buffer sizes as the tiles of the kernels are declared. */
#define R PTO_READ
#define W PTO_WRITE
#define U PTO_READ_WRITE
#define KIND(name, bytes, ...)                                                                                         \
    static const int32_t name##_accesses[] = {__VA_ARGS__};                                                            \
    static const pto_task_kind name = {                                                                                \
        #name, nothing, bytes, 3, sizeof name##_accesses / sizeof name##_accesses[0], name##_accesses};
KIND(rmsnorm_tile, 4 * (2 * TILE * HIDDEN + HIDDEN), R, R, W)
KIND(tile_matmul, 4 * 2 * TILE * HIDDEN, R, R, W)
KIND(rope_tile, 4 * (2 * TILE * HIDDEN + 2 * TILE * 128), R, R, R, W)
KIND(flash_attn_init_state, 4 * (TILE * HIDDEN + 2 * TILE), R, R, R, W, W, W)
KIND(flash_attn_score_block, 4 * (2 * TILE * HIDDEN + TILE * TILE), R, R, W)
KIND(flash_attn_softmax_update, 4 * (2 * TILE * TILE + 3 * TILE), R, U, U, W, W)
KIND(flash_attn_output_update, 4 * (2 * TILE * HIDDEN + TILE * TILE + TILE), R, R, R, U)
KIND(flash_attn_normalize, 4 * (TILE * HIDDEN + TILE), R, U)
KIND(residual_add_tile, 4 * 3 * TILE * HIDDEN, R, R, W)
KIND(swiglu_tile, 4 * 3 * TILE * INNER, R, R, W)

static int32_t add_tensors(pto_graph *g, long tiles, int32_t *numbers) {
    int64_t base = 1 << 20; /* addresses only: nothing is read or written */
    for (int t = 0; t < NUM_TENSORS; t++) {
        const int64_t extents[2] = {SHAPES[t].tiled ? tiles * TILE : SHAPES[t].rows, SHAPES[t].cols};
        const int64_t strides[2] = {extents[1] * 4, 4};
        int32_t status = import_pto_graph_tensor(g, (const void *)base, 4, 2, extents, strides, &numbers[t]);
        if (status != PTO_OK) {
            return status;
        }
        base += extents[0] * extents[1] * 4 + 4096;
    }
    return PTO_OK;
}

/* Submits the stream of `tiles` tiles; a status. */
int32_t build(pto_graph *g, long tiles) {
    int32_t numbers[NUM_TENSORS];
    int64_t region[8 * 5];
    int64_t slots[3] = {0, 0, 0}; /* a frame, and two loop variables */
    int32_t status = add_tensors(g, tiles, numbers);
#define ACCESS(t, i)                                                                                                   \
    (*at++ = numbers[t], *at++ = (i) * TILE, *at++ = 0, *at++ = SHAPES[t].tiled ? TILE : SHAPES[t].rows,               \
     *at++ = SHAPES[t].cols)
#define READ ACCESS
#define WRITE ACCESS
#define UPDATE ACCESS
#define CALL(kind, a, b, ...)                                                                                          \
    do {                                                                                                               \
        int64_t *at = region;                                                                                          \
        __VA_ARGS__;                                                                                                   \
        slots[1] = (a);                                                                                                \
        slots[2] = (b);                                                                                                \
        status |= import_pto_task(g, &kind, slots, region);                                                            \
    } while (0)
    LLAMA_STREAM(tiles);
    return status;
}

/* An entry: (tiles, window) builds and runs the stream at once. */
int32_t live(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    pto_graph *g = import_pto_graph_open(w, args[1]);
    if (g == NULL) {
        return 1;
    }
    int32_t status = build(g, (long)args[0]);
    int32_t closed = import_pto_graph_close(w, g);
    return status != PTO_OK ? status : closed;
}

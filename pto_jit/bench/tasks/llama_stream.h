/* SPDX-License-Identifier: MIT */
/*
 * The calls of one LLaMA-7B decoder layer in tiles of 32 rows: 16 N + 3 N^2 tasks for N tiles.  Whoever includes this
 * defines what a call is: CALL(kind, slot, slot, accesses...), with an access READ(tensor, tile), WRITE or UPDATE.
 */
#ifndef LLAMA_STREAM_H
#define LLAMA_STREAM_H

enum {
    T_INPUT, T_NORM_WEIGHT, T_NORM, T_WQ, T_WK, T_WV, T_Q, T_K, T_V, T_COS, T_SIN, T_Q_ROPE, T_K_ROPE, T_ZEROS, T_ZERO,
    T_LOWEST, T_ATTENTION, T_SUM, T_PEAK, T_SCORES, T_WEIGHTS, T_SCALE, T_WO, T_HIDDEN, T_MLP_WEIGHT, T_W_GATE, T_W_UP,
    T_GATE, T_UP, T_SWIGLU, T_W_DOWN, T_MLP, T_OUTPUT, NUM_TENSORS
};

enum { HIDDEN = 4096, INNER = 11008, TILE = 32 };

/* Rows and columns of a tensor; tiles have TILE rows and all columns, the others are accessed whole (tile 0). */
static const struct {
    int tiled, rows, cols;
} SHAPES[NUM_TENSORS] = {
    {1, 0, HIDDEN}, {0, 1, HIDDEN}, {1, 0, HIDDEN}, {0, HIDDEN, HIDDEN}, {0, HIDDEN, HIDDEN}, {0, HIDDEN, HIDDEN},
    {1, 0, HIDDEN}, {1, 0, HIDDEN}, {1, 0, HIDDEN}, {1, 0, 128}, {1, 0, 128}, {1, 0, HIDDEN}, {1, 0, HIDDEN},
    {0, TILE, HIDDEN}, {0, TILE, 1}, {0, TILE, 1}, {1, 0, HIDDEN}, {1, 0, 1}, {1, 0, 1}, {1, 0, TILE}, {1, 0, TILE},
    {1, 0, 1}, {0, HIDDEN, HIDDEN}, {1, 0, HIDDEN}, {0, 1, HIDDEN}, {0, HIDDEN, INNER}, {0, HIDDEN, INNER},
    {1, 0, INNER}, {1, 0, INNER}, {1, 0, INNER}, {0, INNER, HIDDEN}, {1, 0, HIDDEN}, {1, 0, HIDDEN},
};

#define LLAMA_STREAM(N)                                                                                                \
    do {                                                                                                               \
        for (long i = 0; i < (N); i++) {                                                                               \
            CALL(rmsnorm_tile, i, 0, READ(T_INPUT, i), READ(T_NORM_WEIGHT, 0), WRITE(T_NORM, i));                      \
            CALL(tile_matmul, i, 0, READ(T_NORM, i), READ(T_WQ, 0), WRITE(T_Q, i));                                    \
            CALL(tile_matmul, i, 0, READ(T_NORM, i), READ(T_WK, 0), WRITE(T_K, i));                                    \
            CALL(tile_matmul, i, 0, READ(T_NORM, i), READ(T_WV, 0), WRITE(T_V, i));                                    \
            CALL(rope_tile, i, 0, READ(T_Q, i), READ(T_COS, i), READ(T_SIN, i), WRITE(T_Q_ROPE, i));                   \
            CALL(rope_tile, i, 0, READ(T_K, i), READ(T_COS, i), READ(T_SIN, i), WRITE(T_K_ROPE, i));                   \
        }                                                                                                              \
        for (long q = 0; q < (N); q++) {                                                                               \
            CALL(flash_attn_init_state, q, 0, READ(T_ZEROS, 0), READ(T_ZERO, 0), READ(T_LOWEST, 0),                    \
                 WRITE(T_ATTENTION, q), WRITE(T_SUM, q), WRITE(T_PEAK, q));                                            \
            for (long k = 0; k < (N); k++) {                                                                           \
                CALL(flash_attn_score_block, q, k, READ(T_Q_ROPE, q), READ(T_K_ROPE, k), WRITE(T_SCORES, q));          \
                CALL(flash_attn_softmax_update, q, k, READ(T_SCORES, q), UPDATE(T_PEAK, q), UPDATE(T_SUM, q),          \
                     WRITE(T_WEIGHTS, q), WRITE(T_SCALE, q));                                                          \
                CALL(flash_attn_output_update, q, k, READ(T_WEIGHTS, q), READ(T_V, k), READ(T_SCALE, q),               \
                     UPDATE(T_ATTENTION, q));                                                                          \
            }                                                                                                          \
            CALL(flash_attn_normalize, q, 0, READ(T_SUM, q), UPDATE(T_ATTENTION, q));                                  \
        }                                                                                                              \
        for (long i = 0; i < (N); i++) {                                                                               \
            CALL(tile_matmul, i, 0, READ(T_ATTENTION, i), READ(T_WO, 0), WRITE(T_NORM, i));                            \
            CALL(residual_add_tile, i, 0, READ(T_NORM, i), READ(T_INPUT, i), WRITE(T_HIDDEN, i));                      \
            CALL(rmsnorm_tile, i, 0, READ(T_HIDDEN, i), READ(T_MLP_WEIGHT, 0), WRITE(T_NORM, i));                      \
            CALL(tile_matmul, i, 0, READ(T_NORM, i), READ(T_W_GATE, 0), WRITE(T_GATE, i));                             \
            CALL(tile_matmul, i, 0, READ(T_NORM, i), READ(T_W_UP, 0), WRITE(T_UP, i));                                 \
            CALL(swiglu_tile, i, 0, READ(T_GATE, i), READ(T_UP, i), WRITE(T_SWIGLU, i));                               \
            CALL(tile_matmul, i, 0, READ(T_SWIGLU, i), READ(T_W_DOWN, 0), WRITE(T_MLP, i));                            \
            CALL(residual_add_tile, i, 0, READ(T_MLP, i), READ(T_HIDDEN, i), WRITE(T_OUTPUT, i));                      \
        }                                                                                                              \
    } while (0)

#endif

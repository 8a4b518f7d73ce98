// SPDX-License-Identifier: MIT
// The stream as OpenMP tasks with `depend`: one byte stands for a tile.  Creation and execution cannot be separated.
#include <omp.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "llama_stream.h"

static std::vector<char> memory;

// times[0]: 0, times[1]: creation and execution, times[2]: again, in milliseconds
extern "C" int once(int threads, int64_t tiles, int64_t, const int64_t *, const int64_t *, double *times) {
    using clock = std::chrono::steady_clock;
    memory.assign(static_cast<size_t>(NUM_TENSORS * tiles), 0);
    char *m = memory.data();
    const long n = static_cast<long>(tiles);
#define AT(t, i) m[(t) * n + (i)]
#define TASK1(r) _Pragma(#r)
#define READ(t, i) AT(t, i)
#define WRITE(t, i) AT(t, i)
#define UPDATE(t, i) AT(t, i)
    // one macro for each shape of accesses, by the kind's name
#define rmsnorm_tile(a, b, c) TASK1(omp task depend(in : a, b) depend(out : c)) {}
#define tile_matmul(a, b, c) TASK1(omp task depend(in : a, b) depend(out : c)) {}
#define residual_add_tile(a, b, c) TASK1(omp task depend(in : a, b) depend(out : c)) {}
#define swiglu_tile(a, b, c) TASK1(omp task depend(in : a, b) depend(out : c)) {}
#define rope_tile(a, b, c, d) TASK1(omp task depend(in : a, b, c) depend(out : d)) {}
#define flash_attn_init_state(a, b, c, d, e, f) TASK1(omp task depend(in : a, b, c) depend(out : d, e, f)) {}
#define flash_attn_score_block(a, b, c) TASK1(omp task depend(in : a, b) depend(out : c)) {}
#define flash_attn_softmax_update(a, b, c, d, e) TASK1(omp task depend(in : a) depend(inout : b, c) depend(out : d, e)) {}
#define flash_attn_output_update(a, b, c, d) TASK1(omp task depend(in : a, b, c) depend(inout : d)) {}
#define flash_attn_normalize(a, b) TASK1(omp task depend(in : a) depend(inout : b)) {}
#define CALL(kind, x, y, ...) kind(__VA_ARGS__)
    for (int again = 0; again < 2; again++) {
        auto t0 = clock::now();
#pragma omp parallel num_threads(threads)
#pragma omp single
        { LLAMA_STREAM(n); }
        times[1 + again] = std::chrono::duration<double, std::milli>(clock::now() - t0).count();
    }
    times[0] = 0;
    return 0;
}

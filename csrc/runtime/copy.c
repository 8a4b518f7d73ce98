/* SPDX-License-Identifier: MIT */
/* Strided copies: what a clipped store, a diverted one or a tile that is kept needs besides its loop. */
#include "pto_runtime.h"

#include <string.h>

/* `count` elements of so many bytes, a constant where this is inlined, so that an element is a move. */
static inline void copy_elements(char *to, const char *from, int64_t count, size_t size, int64_t out, int64_t in) {
    for (int64_t i = 0; i < count; ++i) {
        memcpy(to + i * out, from + i * in, size);
    }
}

static void copy_axis(char *to, const char *from, int64_t count, int64_t run, int64_t out, int64_t in) {
    switch (run) {
        case 1: copy_elements(to, from, count, 1, out, in); break;
        case 2: copy_elements(to, from, count, 2, out, in); break;
        case 4: copy_elements(to, from, count, 4, out, in); break;
        case 8: copy_elements(to, from, count, 8, out, in); break;
        default: copy_elements(to, from, count, (size_t)run, out, in);
    }
}

/* The axes before the run of `run` bytes that lies side by side in both. */
static void copy_axes(int64_t axes, char *to, const char *from, int64_t run, const int64_t *extents,
                      const int64_t *out, const int64_t *in) {
    if (axes == 0) {
        memcpy(to, from, (size_t)run);
    } else if (axes == 1) {
        copy_axis(to, from, *extents, run, *out, *in);
    } else {
        for (int64_t i = 0; i < *extents; ++i) {
            copy_axes(axes - 1, to + i * *out, from + i * *in, run, extents + 1, out + 1, in + 1);
        }
    }
}

void pto_copy(int64_t rank, void *to, const void *from, int64_t size, const int64_t *numbers) {
    const int64_t *extents = numbers, *out = numbers + rank, *in = out + rank;
    int64_t axes = rank, run = size;
    while (axes > 0 && out[axes - 1] == run && in[axes - 1] == run) {
        axes -= 1;
        if (extents[axes] <= 0) {
            return;
        }
        run *= extents[axes];
    }
    copy_axes(axes, to, from, run, extents, out, in);
}

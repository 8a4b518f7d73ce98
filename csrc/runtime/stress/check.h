/* SPDX-License-Identifier: MIT */
/* For the stress programs: a check that is never compiled out, and a small deterministic generator. */
#ifndef PTO_STRESS_CHECK_H
#define PTO_STRESS_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/*
 * How much less a program does under ThreadSanitizer, which is ten to twenty times slower than the others and looks at
 * orders of accesses, not at amounts.  The other sanitizers do everything.
 */
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif
#ifdef THREAD_SANITIZER
#define FEWER(all, fewer) (fewer)
#else
#define FEWER(all, fewer) (all)
#endif

static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif

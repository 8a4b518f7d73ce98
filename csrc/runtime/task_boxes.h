/* SPDX-License-Identifier: MIT */
/* The boxes of one lattice and the buckets that they are found through. */
#ifndef PTO_TASK_BOXES_H
#define PTO_TASK_BOXES_H

#include "task_index.h"

struct pto_box {
    uint32_t writer;  /* 0: a box that was read */
    uint32_t readers; /* a list */
    uint32_t uses;    /* in buckets */
    uint32_t stamp;   /* of the last search that found it */
    bool dead;        /* to be taken out of the buckets that are met */
    int64_t bounds[]; /* low and high per dimension */
};

typedef struct pto_entry {
    struct pto_entry *next;
    pto_box *box;
} pto_entry;

struct pto_box_index {
    int32_t dimension[2]; /* that the buckets divide; -1: none */
    int64_t low[2];
    int64_t bucket[2]; /* length */
    int64_t count[2];
    int64_t num_boxes; /* alive */
    pto_entry **buckets;
    pto_entry *large; /* boxes over more buckets than LARGE */
};

static inline size_t pto__box_bytes(const pto_lattice *l) {
    return sizeof(pto_box) + 2 * (size_t)l->rank * sizeof(int64_t);
}

static inline bool pto__box_meets(int32_t rank, const int64_t *a, const int64_t *b) {
    for (int32_t d = 0; d < rank; d++) {
        if (a[2 * d] >= b[2 * d + 1] || b[2 * d] >= a[2 * d + 1]) {
            return false;
        }
    }
    return true;
}

/* ---- task_buckets.c ---- */

bool pto__buckets_search(pto_graph *g, const pto_lattice *l, const int64_t *box); /* those that meet it: g->found */
bool pto__buckets_all(pto_graph *g, const pto_lattice *l);                        /* all boxes: g->found */
bool pto__buckets_widen(pto_graph *g, const pto_lattice *l); /* more buckets when the boxes have become many */
void pto__buckets_bury(pto_graph *g, const pto_lattice *l);  /* the dead leave the buckets now: memory does not grow */
bool pto__box_insert(pto_graph *g, const pto_lattice *l, const int64_t *bounds, uint32_t writer, uint32_t readers);
void pto__box_kill(pto_graph *g, const pto_lattice *l, pto_box *box);

#endif

/* SPDX-License-Identifier: MIT */
/* The Dispatcher's hash table from key codes to records, and the guards of a record. */
#ifndef PTO_DISPATCH_TABLE_H
#define PTO_DISPATCH_TABLE_H

#include "dispatch.h"

/* ---- guards.c ---- */

typedef struct pto_guard {
    int kind;
    PyObject *owner;
    PyObject *name;
    PyObject *expected; /* pto_absent: must not be there */
    uint64_t version;   /* of a dict, CPython 3.11: what it was when last found right */
} pto_guard;

int pto_guard_parse(PyObject *given, pto_guard *g); /* -1 with an exception */
void pto_guard_release(pto_guard *g);
int pto_guard_holds(pto_guard *g); /* 1: holds, 0: does not, -1: an exception in a getattr or a call */

/* ---- table.c ---- */

/* An extent that must be a number (other < 0) or that of another axis; places are slot numbers. */
typedef struct pto_extent {
    Py_ssize_t slot;
    Py_ssize_t other;
    int64_t value;
} pto_extent;

/* What is registered for calls of one kind. */
typedef struct pto_record pto_record;

struct pto_record {
    pto_record *next; /* same codes, other objects or guards; newest first */
    uint64_t hash;
    Py_ssize_t references; /* the table's, and one per call in progress */
    EntryObject *entry;
    PyObject *convert; /* called on the value to return; NULL: none */
    Py_ssize_t nargs;
    uint64_t *codes;      /* as in the key */
    uint64_t *pack_codes; /* the same, CODE_NONE where the argument has no slots */
    PyObject **objects;   /* compile-time arguments; NULL elsewhere */
    Py_ssize_t slots;
    Py_ssize_t nextents;
    pto_extent *extents; /* checked after packing */
    Py_ssize_t nguards;
    pto_guard *guards;
    PyObject *given_guards; /* a tuple, as given */
};

typedef struct pto_table {
    pto_record **places; /* open addressing; NULL: empty */
    size_t mask;         /* capacity - 1, a power of two */
    size_t used;
    Py_ssize_t count; /* records */
} pto_table;

/*
 * A record for calls like `args`, with one reference.  `is_static` has a flag per argument; `plan` is a list.
 * 1: *out is set, 0: such arguments have no fast path, -1: an exception.
 */
int pto_record_make(PyObject *args, const bool *is_static, EntryObject *entry, PyObject *plan, PyObject *guards,
                    PyObject *convert, PyObject *extents, pto_record **out);
bool pto_record_extents_fit(const pto_record *r, const int64_t *slots);
void pto_record_free(pto_record *r);
int pto_record_traverse(pto_record *r, visitproc visit, void *arg);

static inline void pto_record_release(pto_record *r) {
    if (--r->references == 0) {
        pto_record_free(r);
    }
}

static inline uint64_t pto_hash_mix(uint64_t hash, uint64_t code) {
    hash = (hash ^ code) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* Puts the record in, newest first among those with its codes, and takes over its reference; -1 with an exception. */
int pto_table_insert(pto_table *t, pto_record *r);
void pto_table_clear(pto_table *t);

/* The first record that fits, with a reference; NULL: none, or (with an exception) a guard failed badly. */
pto_record *pto_table_find(pto_table *t, uint64_t hash, const uint64_t *codes, PyObject *const *args, Py_ssize_t nargs);

#endif

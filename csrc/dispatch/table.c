/* SPDX-License-Identifier: MIT */
/* Records, and the open-addressed table that finds them by their key codes. */
#include "table.h"

#define CHAIN_LIMIT 16 /* records with the same codes; the oldest goes */

/* ---- records ---- */

void pto_record_free(pto_record *r) {
    Py_XDECREF(r->entry);
    Py_XDECREF(r->convert);
    for (Py_ssize_t i = 0; r->objects != NULL && i < r->nargs; i++) {
        Py_XDECREF(r->objects[i]);
    }
    for (Py_ssize_t i = 0; r->guards != NULL && i < r->nguards; i++) {
        pto_guard_release(&r->guards[i]);
    }
    Py_XDECREF(r->given_guards);
    PyMem_Free(r->codes);
    PyMem_Free(r->pack_codes);
    PyMem_Free(r->objects);
    PyMem_Free(r->guards);
    PyMem_Free(r->extents);
    PyMem_Free(r);
}

/* True for objects that are tensors by some protocol: they are never compile-time values, and not ours to read here. */
static int is_foreign_tensor(PyObject *o) {
    if (PyObject_CheckBuffer(o)) {
        return 1;
    }
    static const char *const protocols[] = {"__dlpack__", "__array_interface__"};
    for (size_t i = 0; i < 2; i++) {
        PyObject *found = PyObject_GetAttrString((PyObject *)Py_TYPE(o), protocols[i]);
        if (found != NULL) {
            Py_DECREF(found);
            return 1;
        }
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
    }
    return 0;
}

/* The code under which an argument's slots are packed, or CODE_NONE for a compile-time one; -1 on error. */
static int plan_item(PyObject *item, uint64_t code, Py_ssize_t index, uint64_t *pack_code) {
    static const struct {
        const char *name;
        unsigned tag;
    } kinds[] = {{"tensor", TAG_TENSOR}, {"int", TAG_INT}, {"float", TAG_FLOAT}, {"scalar", TAG_SCALAR}};
    *pack_code = CODE_NONE;
    if (PyUnicode_Check(item)) {
        if (PyUnicode_CompareWithASCIIString(item, "static") == 0) {
            return 0;
        }
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            if (PyUnicode_CompareWithASCIIString(item, kinds[i].name) == 0) {
                if (CODE_TAG(code) != kinds[i].tag) {
                    break;
                }
                *pack_code = code;
                return 0;
            }
        }
    }
    PyErr_Format(PyExc_TypeError, "argument %zd cannot be passed as %R", index, item);
    return -1;
}

/* 1: filled in, 0: such arguments have no fast path, -1: an exception. */
static int fill(pto_record *r, PyObject *args, const bool *is_static, PyObject *plan, PyObject *guards) {
    Py_ssize_t n = r->nargs;
    size_t room = (size_t)(n > 0 ? n : 1);
    r->nguards = PyTuple_GET_SIZE(guards);
    r->codes = PyMem_Calloc(room, sizeof *r->codes);
    r->pack_codes = PyMem_Calloc(room, sizeof *r->pack_codes);
    r->objects = PyMem_Calloc(room, sizeof *r->objects);
    r->guards = PyMem_Calloc((size_t)(r->nguards > 0 ? r->nguards : 1), sizeof *r->guards);
    r->given_guards = Py_NewRef(guards);
    if (r->codes == NULL || r->pack_codes == NULL || r->objects == NULL || r->guards == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < r->nguards; i++) {
        if (pto_guard_parse(PyTuple_GET_ITEM(guards, i), &r->guards[i]) < 0) {
            return -1;
        }
    }
    r->hash = (uint64_t)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GET_ITEM(args, i);
        if (!is_static[i] && pto_learn_exchange(Py_TYPE(o)) < 0) {
            return -1;
        }
        uint64_t code = pto_code(o, is_static[i]);
        if (code == CODE_NONE) {
            return 0;
        }
        if (CODE_TAG(code) == TAG_OBJECT) {
            int foreign = is_foreign_tensor(o);
            if (foreign != 0) {
                return foreign < 0 ? -1 : 0;
            }
        }
        r->codes[i] = code;
        r->hash = pto_hash_mix(r->hash, code);
        if (pto_code_needs_object(code)) {
            r->objects[i] = Py_NewRef(o);
        }
        if (plan_item(PyList_GET_ITEM(plan, i), code, i, &r->pack_codes[i]) < 0) {
            return -1;
        }
        r->slots += (Py_ssize_t)pto_slots_of(r->pack_codes[i]);
    }
    return 1;
}

/* The slot of an axis of a tensor argument; -1 with an exception. */
static Py_ssize_t extent_slot(const pto_record *r, Py_ssize_t argument, Py_ssize_t axis) {
    Py_ssize_t slot = 0;
    for (Py_ssize_t i = 0; i < r->nargs; i++) {
        uint64_t code = r->pack_codes[i];
        if (i == argument && CODE_TAG(code) == TAG_TENSOR && axis >= 0 && axis < (Py_ssize_t)CODE_RANK(code)) {
            return slot + 1 + axis;
        }
        slot += (Py_ssize_t)pto_slots_of(code);
    }
    PyErr_Format(PyExc_ValueError, "argument %zd is not passed as a tensor with an axis %zd", argument, axis);
    return -1;
}

static int fill_extents(pto_record *r, PyObject *extents) {
    r->nextents = PyTuple_GET_SIZE(extents);
    r->extents = PyMem_Calloc((size_t)r->nextents + 1, sizeof *r->extents);
    if (r->extents == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < r->nextents; i++) {
        PyObject *given = PyTuple_GET_ITEM(extents, i);
        pto_extent *e = &r->extents[i];
        Py_ssize_t argument, axis, third, fourth = -1;
        if (!PyTuple_Check(given)) {
            PyErr_SetString(PyExc_TypeError, "an extent is (argument, axis, value) or (argument, axis, other, axis)");
            return -1;
        }
        if (!PyArg_ParseTuple(given, "nnn|n;an extent is (argument, axis, value) or (argument, axis, other, axis)",
                              &argument, &axis, &third, &fourth)) {
            return -1;
        }
        e->slot = extent_slot(r, argument, axis);
        e->other = -1;
        e->value = third;
        if (PyTuple_GET_SIZE(given) == 4 && e->slot >= 0) {
            e->other = extent_slot(r, third, fourth);
        }
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    return 1;
}

bool pto_record_extents_fit(const pto_record *r, const int64_t *slots) {
    for (Py_ssize_t i = 0; i < r->nextents; i++) {
        const pto_extent *e = &r->extents[i];
        if (slots[e->slot] != (e->other < 0 ? e->value : slots[e->other])) {
            return false;
        }
    }
    return true;
}

int pto_record_make(PyObject *args, const bool *is_static, EntryObject *entry, PyObject *plan, PyObject *guards,
                    PyObject *convert, PyObject *extents, pto_record **out) {
    pto_record *r = PyMem_Calloc(1, sizeof *r);
    *out = NULL;
    if (r == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    r->references = 1;
    r->nargs = PyTuple_GET_SIZE(args);
    r->entry = (EntryObject *)Py_NewRef((PyObject *)entry);
    r->convert = convert == Py_None ? NULL : Py_NewRef(convert);
    int filled = fill(r, args, is_static, plan, guards);
    if (filled == 1) {
        filled = fill_extents(r, extents);
    }
    if (filled == 1) {
        *out = r;
    } else {
        pto_record_free(r);
    }
    return filled;
}

int pto_record_traverse(pto_record *r, visitproc visit, void *arg) {
    Py_VISIT(r->entry);
    Py_VISIT(r->convert);
    Py_VISIT(r->given_guards);
    for (Py_ssize_t k = 0; k < r->nguards; k++) {
        Py_VISIT(r->guards[k].owner);
        Py_VISIT(r->guards[k].name);
        Py_VISIT(r->guards[k].expected);
    }
    for (Py_ssize_t k = 0; k < r->nargs; k++) {
        Py_VISIT(r->objects[k]);
    }
    return 0;
}

/* ---- the table ---- */

static inline bool same_codes(const pto_record *r, uint64_t hash, const uint64_t *codes, Py_ssize_t nargs) {
    if (r->hash != hash || r->nargs != nargs) {
        return false;
    }
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (r->codes[i] != codes[i]) {
            return false;
        }
    }
    return true;
}

/* The place of the chain with these codes, or the free place where it would go. */
static inline pto_record **find_place(const pto_table *t, uint64_t hash, const uint64_t *codes, Py_ssize_t nargs) {
    size_t place = (size_t)hash & t->mask;
    while (t->places[place] != NULL && !same_codes(t->places[place], hash, codes, nargs)) {
        place = (place + 1) & t->mask;
    }
    return &t->places[place];
}

static inline bool same_objects(const pto_record *r, PyObject *const *args) {
    for (Py_ssize_t i = 0; i < r->nargs; i++) {
        PyObject *wanted = r->objects[i];
        if (wanted != NULL && wanted != args[i] && !pto_same_object(r->codes[i], wanted, args[i])) {
            return false;
        }
    }
    return true;
}

static int table_grow(pto_table *t) {
    size_t capacity = t->places == NULL ? 16 : (t->mask + 1) * 2;
    pto_record **places = PyMem_Calloc(capacity, sizeof *places);
    if (places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; t->places != NULL && i <= t->mask; i++) {
        if (t->places[i] != NULL) {
            size_t place = (size_t)t->places[i]->hash & (capacity - 1);
            while (places[place] != NULL) {
                place = (place + 1) & (capacity - 1);
            }
            places[place] = t->places[i];
        }
    }
    PyMem_Free(t->places);
    t->places = places;
    t->mask = capacity - 1;
    return 0;
}

void pto_table_clear(pto_table *t) {
    pto_record **places = t->places;
    size_t mask = t->mask;
    t->places = NULL; /* first: freeing runs arbitrary finalizers, which may call this dispatcher */
    t->mask = 0;
    t->used = 0;
    t->count = 0;
    if (places == NULL) {
        return;
    }
    for (size_t i = 0; i <= mask; i++) {
        pto_record *r = places[i];
        while (r != NULL) {
            pto_record *next = r->next;
            r->next = NULL; /* a call that still holds it must not walk on */
            pto_record_release(r);
            r = next;
        }
    }
    PyMem_Free(places);
}

int pto_table_insert(pto_table *t, pto_record *r) {
    if ((t->places == NULL || (t->used + 1) * 2 > t->mask + 1) && table_grow(t) < 0) {
        return -1;
    }
    pto_record **place = find_place(t, r->hash, r->codes, r->nargs);
    if (*place == NULL) {
        t->used++;
    }
    r->next = *place;
    *place = r;
    t->count++;
    pto_record *last = r;
    for (int length = 1; last->next != NULL && length < CHAIN_LIMIT; length++) {
        last = last->next;
    }
    pto_record *dropped = last->next;
    last->next = NULL;
    while (dropped != NULL) {
        pto_record *next = dropped->next;
        dropped->next = NULL; /* a call that still holds it must not walk on */
        t->count--;
        pto_record_release(dropped);
        dropped = next;
    }
    return 0;
}

pto_record *pto_table_find(pto_table *t, uint64_t hash, const uint64_t *codes, PyObject *const *args,
                           Py_ssize_t nargs) {
    if (t->places == NULL) {
        return NULL;
    }
    pto_record *r = *find_place(t, hash, codes, nargs);
    while (r != NULL) {
        r->references++; /* a guard may run Python code, which may clear the table */
        int holds = same_objects(r, args);
        for (Py_ssize_t i = 0; holds == 1 && i < r->nguards; i++) {
            holds = pto_guard_holds(&r->guards[i]);
        }
        if (PTO_LIKELY(holds == 1)) {
            return r;
        }
        pto_record *next = r->next; /* NULL when the guard's code removed the record */
        pto_record_release(r);
        if (holds < 0) {
            return NULL;
        }
        r = next;
    }
    return NULL;
}

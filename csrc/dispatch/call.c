/* SPDX-License-Identifier: MIT */
/*
 * A call of a Dispatcher.
 *
 * Every argument becomes a key code (arguments.c); the codes are looked up in the hash table of records whose guards
 * hold (table.c, guards.c); the record says how the slots are packed, and its entry runs.  Whatever is unusual goes to
 * the slow path, a Python callable, which may register a record for the next time (dispatcher.c).
 */
#include "dispatcher.h"

#include <string.h>

static PyObject *call_slow_path(DispatcherObject *d, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    if (d->slow_path == NULL) {
        PyErr_SetString(PyExc_TypeError, "the dispatcher was not initialised");
        return NULL;
    }
    PyObject *positional = PyTuple_New(nargs);
    if (positional == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < nargs; i++) {
        PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
    }
    PyObject *keywords = Py_NewRef(Py_None);
    if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0) {
        Py_SETREF(keywords, PyDict_New());
        for (Py_ssize_t i = 0; keywords != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
            if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0) {
                Py_CLEAR(keywords);
            }
        }
    }
    PyObject *value = NULL;
    if (keywords != NULL) {
        PyObject *slow_path = Py_NewRef(d->slow_path);
        value = PyObject_CallFunctionObjArgs(slow_path, positional, keywords, NULL);
        Py_DECREF(slow_path);
        Py_DECREF(keywords);
    }
    Py_DECREF(positional);
    return value;
}

/* Fills `bound` (nparams + surplus places, borrowed references); false when the call is not an ordinary one. */
static bool bind_arguments(const DispatcherObject *d, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                           PyObject **bound, Py_ssize_t total) {
    Py_ssize_t by_position = nargs < d->positional ? nargs : d->positional;
    Py_ssize_t surplus = total - d->nparams;
    memset(bound, 0, (size_t)total * sizeof *bound);
    for (Py_ssize_t i = 0; i < by_position + surplus; i++) {
        bound[i] = args[i]; /* surplus arguments follow a full set of positional ones */
    }
    Py_ssize_t nkeywords = kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t k = 0; k < nkeywords; k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        Py_ssize_t found = -1;
        for (Py_ssize_t i = d->positional_only; i < d->nparams && found < 0; i++) {
            if (PyTuple_GET_ITEM(d->parameters, i) == name) {
                found = i;
            }
        }
        for (Py_ssize_t i = d->positional_only; i < d->nparams && found < 0; i++) {
            if (PyUnicode_Compare(PyTuple_GET_ITEM(d->parameters, i), name) == 0) {
                found = i;
            }
        }
        if (found < 0) {
            return false;
        }
        PyObject **place = &bound[found < d->positional ? found : found + surplus];
        if (*place != NULL) {
            return false; /* given twice */
        }
        *place = args[nargs + k];
    }
    for (Py_ssize_t i = 0; i < d->nparams; i++) {
        PyObject **place = &bound[i < d->positional ? i : i + surplus];
        if (*place == NULL) {
            *place = d->defaults[i];
            if (*place == NULL) {
                return false;
            }
        }
    }
    return true;
}

/* *fits is false, and nothing was run, when an extent is not what it must be. */
static PyObject *run_record(pto_record *r, PyObject *const *args, bool *fits) {
    int64_t on_stack[128];
    int64_t *slots = on_stack;
    if (PTO_UNLIKELY(r->slots > (Py_ssize_t)(sizeof on_stack / sizeof on_stack[0]))) {
        slots = PyMem_Malloc((size_t)r->slots * sizeof *slots);
        if (slots == NULL) {
            return PyErr_NoMemory();
        }
    }
    slots[0] = 0; /* a kernel without arguments gets a valid pointer to nothing in particular */
    int64_t elements = 0;
    int64_t *next = slots;
    for (Py_ssize_t i = 0; i < r->nargs; i++) {
        next = pto_pack(args[i], r->pack_codes[i], next, &elements);
        if (PTO_UNLIKELY(next == NULL)) {
            break;
        }
    }
    PyObject *value = NULL;
    *fits = true;
    if (PTO_LIKELY(next != NULL)) {
        *fits = r->nextents == 0 || pto_record_extents_fit(r, slots);
        if (PTO_LIKELY(*fits)) {
            value = pto_entry_run(r->entry, slots, elements, args, r->nargs);
        }
    }
    if (PTO_UNLIKELY(slots != on_stack)) {
        PyMem_Free(slots);
    }
    if (PTO_UNLIKELY(r->convert != NULL && value != NULL)) {
        Py_SETREF(value, PyObject_CallOneArg(r->convert, value));
    }
    return value;
}

static PyObject *dispatch(DispatcherObject *d, PyObject *const *bound, Py_ssize_t total, uint64_t *codes,
                          PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    uint64_t hash = (uint64_t)total;
    for (Py_ssize_t i = 0; i < total; i++) {
        uint64_t code = pto_code(bound[i], bound_is_static(d, i, total));
        if (PTO_UNLIKELY(code == CODE_NONE)) {
            return call_slow_path(d, args, nargs, kwnames);
        }
        codes[i] = code;
        hash = pto_hash_mix(hash, code);
    }
    pto_record *r = pto_table_find(&d->table, hash, codes, bound, total);
    if (PTO_UNLIKELY(r == NULL)) {
        return PyErr_Occurred() ? NULL : call_slow_path(d, args, nargs, kwnames);
    }
    bool fits;
    PyObject *value = run_record(r, bound, &fits);
    pto_record_release(r);
    return PTO_LIKELY(fits) ? value : call_slow_path(d, args, nargs, kwnames);
}

#define ARGS_ON_STACK 32

static bool is_out_alone(PyObject *kwnames) {
    return kwnames != NULL && PyTuple_GET_SIZE(kwnames) == 1 &&
           PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "out") == 0;
}

/*
 * A call with `out=` behind a full set of positional arguments: all of them are the positional arguments of `into`,
 * which must know them already, and the output is returned.  One that may share memory takes the slow path.
 */
static PyObject *dispatch_into(DispatcherObject *d, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    uint64_t codes[ARGS_ON_STACK];
    PyObject *out = args[nargs];
    Py_ssize_t total = nargs + 1;
    if (!pto_apart(out, args, nargs)) {
        return call_slow_path(d, args, nargs, kwnames);
    }
    uint64_t hash = (uint64_t)total;
    for (Py_ssize_t i = 0; i < total; i++) {
        codes[i] = pto_code(args[i], false);
        if (codes[i] == CODE_NONE) {
            return call_slow_path(d, args, nargs, kwnames);
        }
        hash = pto_hash_mix(hash, codes[i]);
    }
    DispatcherObject *into = (DispatcherObject *)Py_NewRef(d->into); /* a guard may run Python code */
    pto_record *r = pto_table_find(&into->table, hash, codes, args, total);
    bool fits = false;
    PyObject *value = NULL;
    if (r != NULL) {
        value = run_record(r, args, &fits);
        pto_record_release(r);
    }
    Py_DECREF(into);
    if (value != NULL) {
        Py_SETREF(value, Py_NewRef(out));
        return value;
    }
    return fits || PyErr_Occurred() ? NULL : call_slow_path(d, args, nargs, kwnames);
}

PyObject *pto_dispatcher_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    DispatcherObject *d = (DispatcherObject *)callable;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    uint64_t codes_on_stack[ARGS_ON_STACK];
    if (PTO_LIKELY(kwnames == NULL && nargs == d->nparams && d->positional == d->nparams && nargs <= ARGS_ON_STACK)) {
        return dispatch(d, args, nargs, codes_on_stack, args, nargs, NULL);
    }
    if (d->into != NULL && nargs == d->nparams && nargs < ARGS_ON_STACK && is_out_alone(kwnames)) {
        return dispatch_into(d, args, nargs, kwnames);
    }
    if (nargs > d->positional && !d->varargs) {
        return call_slow_path(d, args, nargs, kwnames);
    }
    Py_ssize_t total = d->nparams + (nargs > d->positional ? nargs - d->positional : 0);
    PyObject *bound_on_stack[ARGS_ON_STACK];
    PyObject **bound = bound_on_stack;
    uint64_t *codes = codes_on_stack;
    void *memory = NULL;
    if (total > ARGS_ON_STACK) {
        memory = PyMem_Malloc((size_t)total * (sizeof *bound + sizeof *codes));
        if (memory == NULL) {
            return PyErr_NoMemory();
        }
        codes = memory;
        bound = (PyObject **)(void *)(codes + total);
    }
    PyObject *value;
    if (bind_arguments(d, args, nargs, kwnames, bound, total)) {
        value = dispatch(d, bound, total, codes, args, nargs, kwnames);
    } else {
        value = call_slow_path(d, args, nargs, kwnames);
    }
    PyMem_Free(memory);
    return value;
}

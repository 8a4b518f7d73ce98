/* SPDX-License-Identifier: MIT */
/* The Dispatcher object, which dispatcher.c makes and call.c calls. */
#ifndef PTO_DISPATCH_DISPATCHER_H
#define PTO_DISPATCH_DISPATCHER_H

#include "table.h"

typedef struct DispatcherObject {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *slow_path;
    PyObject *parameters; /* tuple of str, interned */
    Py_ssize_t nparams;
    Py_ssize_t positional;      /* how many can be given by position; the rest is keyword-only */
    Py_ssize_t positional_only; /* how many cannot be given by keyword */
    PyObject **defaults;        /* nparams, NULL where there is none */
    bool *is_static;            /* nparams */
    bool varargs;
    bool any_static;
    Py_ssize_t limit;
    PyObject *into; /* a Dispatcher with one parameter more, what `out=` gives; NULL: none */
    pto_table table;
} DispatcherObject;

/* The object as a callable (a vectorcallfunc). */
PyObject *pto_dispatcher_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* The index into `parameters` of a bound argument; -1 for a surplus positional. */
static inline Py_ssize_t parameter_of(const DispatcherObject *d, Py_ssize_t index, Py_ssize_t nargs) {
    if (index < d->positional) {
        return index;
    }
    Py_ssize_t surplus = nargs - d->nparams;
    return index < d->positional + surplus ? -1 : index - surplus;
}

static inline bool bound_is_static(const DispatcherObject *d, Py_ssize_t index, Py_ssize_t nargs) {
    if (!d->any_static) {
        return false;
    }
    Py_ssize_t parameter = parameter_of(d, index, nargs);
    return parameter >= 0 && d->is_static[parameter];
}

#endif

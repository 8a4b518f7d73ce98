/* SPDX-License-Identifier: MIT */
/* Guards: what must still be so for a registered entry to be right. */
#include "table.h"

enum { GUARD_DICT, GUARD_CELL, GUARD_ATTRIBUTE, GUARD_CALL };

#if PY_VERSION_HEX < 0x030C0000
#define DICT_VERSION(dict) (((PyDictObject *)(dict))->ma_version_tag) /* unique over all dicts and changes */
#else
#define DICT_VERSION(dict) ((uint64_t)0) /* no such number: look up every time */
#endif

int pto_guard_holds(pto_guard *g) {
    PyObject *found;
    int holds;
    switch (g->kind) {
    case GUARD_DICT: {
        uint64_t version = DICT_VERSION(g->owner);
        if (PTO_LIKELY(version != 0 && version == g->version)) {
            return 1;
        }
        found = PyDict_GetItemWithError(g->owner, g->name); /* borrowed */
        if (found == NULL) {
            if (PyErr_Occurred()) {
                return -1;
            }
            found = pto_absent;
        }
        if (found != g->expected) {
            return 0;
        }
        g->version = version;
        return 1;
    }
    case GUARD_CELL:
        found = PyCell_GET(g->owner); /* borrowed */
        return (found != NULL ? found : pto_absent) == g->expected;
    case GUARD_ATTRIBUTE:
        found = PyObject_GetAttr(g->owner, g->name);
        if (found == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
                return -1;
            }
            PyErr_Clear();
            return g->expected == pto_absent;
        }
        holds = found == g->expected;
        Py_DECREF(found);
        return holds;
    default:
        found = PyObject_CallNoArgs(g->owner);
        if (found == NULL) {
            return -1;
        }
        holds = found == g->expected;
        Py_DECREF(found);
        return holds;
    }
}

int pto_guard_parse(PyObject *given, pto_guard *g) {
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != 3) {
        PyErr_Format(PyExc_TypeError, "a guard is a tuple (owner, name, expected), not %R", given);
        return -1;
    }
    PyObject *owner = PyTuple_GET_ITEM(given, 0);
    PyObject *name = PyTuple_GET_ITEM(given, 1);
    PyObject *expected = PyTuple_GET_ITEM(given, 2);
    if (PyDict_CheckExact(owner)) {
        if (PyObject_Hash(name) == -1) {
            return -1;
        }
        g->kind = GUARD_DICT;
    } else if (PyCell_Check(owner) && name == Py_None) {
        g->kind = GUARD_CELL;
    } else if (PyTuple_Check(name) && PyTuple_GET_SIZE(name) == 0 && PyCallable_Check(owner)) {
        g->kind = GUARD_CALL;
    } else if (PyUnicode_Check(name)) {
        g->kind = GUARD_ATTRIBUTE;
    } else {
        PyErr_Format(PyExc_TypeError, "not a guard: %R", given);
        return -1;
    }
    g->owner = Py_NewRef(owner);
    g->name = Py_NewRef(name);
    g->expected = Py_NewRef(expected);
    g->version = 0;
    if (g->kind == GUARD_DICT && PyUnicode_CheckExact(name)) {
        PyUnicode_InternInPlace(&g->name);
    }
    return 0;
}

void pto_guard_release(pto_guard *g) {
    Py_XDECREF(g->owner);
    Py_XDECREF(g->name);
    Py_XDECREF(g->expected);
}

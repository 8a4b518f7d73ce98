/* SPDX-License-Identifier: MIT */
/* Result plans: how a kernel's result slots become Python values; returned tensors own recycled buffers. */
#include "dispatch.h"

#include <string.h>

/* ---- Buffer: the base object of a returned array ---- */

typedef struct BufferObject {
    PyObject_HEAD
    void *data;
    struct BufferObject *previous; /* while results are built: the owner made before this one */
} BufferObject;

static void buffer_dealloc(BufferObject *self) {
    pto.buffer_free(NULL, self->data); /* the memory knows its pool, which lives as long as it does */
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject pto_Buffer_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pto_jit.runtime._dispatch.Buffer",
    .tp_basicsize = sizeof(BufferObject),
    .tp_dealloc = (destructor)buffer_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Memory of a returned tensor; goes back to the runtime's cache with the last array that uses it.",
};

/* ---- result plans ---- */

enum { RESULT_NONE, RESULT_INT, RESULT_UINT, RESULT_FLOAT, RESULT_BOOL, RESULT_TENSOR, RESULT_VALUE, RESULT_ARGUMENT,
       RESULT_TUPLE };

struct pto_result {
    int kind;
    unsigned dtype;
    int rank;
    Py_ssize_t count;    /* RESULT_TUPLE: members; RESULT_ARGUMENT: index */
    PyObject *value;     /* RESULT_VALUE, owned */
    pto_result *members; /* RESULT_TUPLE */
};

static void result_clear(pto_result *r) {
    Py_CLEAR(r->value);
    if (r->members != NULL) {
        for (Py_ssize_t i = 0; i < r->count; i++) {
            result_clear(&r->members[i]);
        }
        PyMem_Free(r->members);
        r->members = NULL;
    }
}

static bool is_word(PyObject *o, const char *word) {
    return PyUnicode_Check(o) && PyUnicode_CompareWithASCIIString(o, word) == 0;
}

static int result_parse(PyObject *plan, pto_result *r, uint32_t *slots) {
    memset(r, 0, sizeof *r);
    if (plan == Py_None) {
        r->kind = RESULT_NONE;
        return 0;
    }
    if (PyUnicode_Check(plan)) {
        *slots += 1;
        if (is_word(plan, "int")) {
            r->kind = RESULT_INT;
            return 0;
        }
        if (is_word(plan, "uint")) {
            r->kind = RESULT_UINT;
            return 0;
        }
        if (is_word(plan, "float")) {
            r->kind = RESULT_FLOAT;
            return 0;
        }
        if (is_word(plan, "bool")) {
            r->kind = RESULT_BOOL;
            return 0;
        }
    } else if (PyTuple_Check(plan)) {
        Py_ssize_t n = PyTuple_GET_SIZE(plan);
        PyObject *first = n > 0 ? PyTuple_GET_ITEM(plan, 0) : NULL;
        if (n == 3 && is_word(first, "tensor")) {
            long dtype = PyLong_AsLong(PyTuple_GET_ITEM(plan, 1));
            long rank = PyLong_AsLong(PyTuple_GET_ITEM(plan, 2));
            if (PyErr_Occurred()) {
                return -1;
            }
            if (dtype < 0 || dtype >= DT_COUNT || rank < 0 || rank > 32) {
                PyErr_Format(PyExc_ValueError, "no such tensor result: %R", plan);
                return -1;
            }
            r->kind = RESULT_TENSOR;
            r->dtype = (unsigned)dtype;
            r->rank = (int)rank;
            *slots += 1 + (uint32_t)rank;
            return 0;
        }
        if (n == 2 && is_word(first, "value")) {
            r->kind = RESULT_VALUE;
            r->value = Py_NewRef(PyTuple_GET_ITEM(plan, 1));
            return 0;
        }
        if (n == 2 && is_word(first, "argument")) {
            r->kind = RESULT_ARGUMENT;
            r->count = PyLong_AsSsize_t(PyTuple_GET_ITEM(plan, 1));
            if (r->count < 0) {
                if (!PyErr_Occurred()) {
                    PyErr_Format(PyExc_ValueError, "no such argument: %R", plan);
                }
                return -1;
            }
            return 0;
        }
        r->kind = RESULT_TUPLE;
        r->members = PyMem_Calloc((size_t)(n > 0 ? n : 1), sizeof(pto_result));
        if (r->members == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        r->count = n;
        for (Py_ssize_t i = 0; i < n; i++) {
            if (result_parse(PyTuple_GET_ITEM(plan, i), &r->members[i], slots) < 0) {
                return -1;
            }
        }
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "not a result plan: %R", plan);
    return -1;
}

typedef struct building {
    const int64_t *slot;
    PyObject *const *args;
    Py_ssize_t nargs;
    BufferObject *owners; /* made so far, newest first; each with a reference */
    bool failed;          /* go on to the end, freeing what nobody will own */
} building;

/* The owner of `data`: one for all the results that are the same memory, as in `return t, t`. */
static BufferObject *owner_of(void *data, building *b) {
    for (BufferObject *o = b->owners; o != NULL; o = o->previous) {
        if (o->data == data) {
            return (BufferObject *)Py_NewRef((PyObject *)o);
        }
    }
    BufferObject *owner = b->failed ? NULL : PyObject_New(BufferObject, &pto_Buffer_Type);
    if (owner == NULL) {
        pto.buffer_free(NULL, data);
        return NULL;
    }
    owner->data = data;
    owner->previous = b->owners;
    b->owners = (BufferObject *)Py_NewRef((PyObject *)owner);
    return owner;
}

static PyObject *tensor_result(const pto_result *r, building *b) {
    void *data = (void *)(intptr_t)b->slot[0];
    npy_intp shape[32];
    for (int i = 0; i < r->rank; i++) {
        shape[i] = (npy_intp)b->slot[1 + i];
    }
    b->slot += 1 + r->rank;
    BufferObject *owner = owner_of(data, b);
    if (owner == NULL) {
        return NULL;
    }
    PyArray_Descr *descr = pto_descr[r->dtype];
    Py_INCREF(descr);
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, r->rank, shape, NULL, data, NPY_ARRAY_CARRAY, NULL);
    if (array == NULL) {
        Py_DECREF(owner);
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)array, (PyObject *)owner) < 0) { /* takes the reference */
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

static PyObject *build(const pto_result *r, building *b) {
    PyObject *value = NULL;
    switch (r->kind) {
    case RESULT_NONE:
        value = Py_NewRef(Py_None);
        break;
    case RESULT_INT:
        value = PyLong_FromLongLong(*b->slot++);
        break;
    case RESULT_UINT:
        value = PyLong_FromUnsignedLongLong((uint64_t)*b->slot++);
        break;
    case RESULT_FLOAT: {
        double number;
        memcpy(&number, b->slot++, sizeof number);
        value = PyFloat_FromDouble(number);
        break;
    }
    case RESULT_BOOL:
        value = PyBool_FromLong(*b->slot++ != 0);
        break;
    case RESULT_TENSOR:
        value = tensor_result(r, b);
        break;
    case RESULT_VALUE:
        value = Py_NewRef(r->value);
        break;
    case RESULT_ARGUMENT:
        if (r->count < b->nargs) {
            value = Py_NewRef(b->args[r->count]);
        } else if (!b->failed) {
            PyErr_Format(PyExc_IndexError, "the result is argument %zd of %zd", r->count, b->nargs);
        }
        break;
    case RESULT_TUPLE:
        value = PyTuple_New(r->count);
        if (value == NULL) {
            b->failed = true;
        }
        for (Py_ssize_t i = 0; i < r->count; i++) {
            PyObject *member = build(&r->members[i], b);
            if (value != NULL && member != NULL) {
                PyTuple_SET_ITEM(value, i, member);
            } else {
                Py_XDECREF(member);
            }
        }
        break;
    default:
        break;
    }
    if (value == NULL || b->failed) {
        b->failed = true;
        Py_CLEAR(value);
    }
    return value;
}

pto_result *pto_result_parse(PyObject *plan, uint32_t *slots) {
    pto_result *r = PyMem_Calloc(1, sizeof *r);
    *slots = 0;
    if (r == NULL) {
        PyErr_NoMemory();
    } else if (result_parse(plan, r, slots) < 0) {
        pto_result_free(r);
        r = NULL;
    }
    return r;
}

void pto_result_free(pto_result *r) {
    if (r != NULL) {
        result_clear(r);
        PyMem_Free(r);
    }
}

int pto_result_traverse(pto_result *r, visitproc visit, void *arg) {
    Py_VISIT(r->value);
    if (r->members != NULL) {
        for (Py_ssize_t i = 0; i < r->count; i++) {
            int stop = pto_result_traverse(&r->members[i], visit, arg);
            if (stop != 0) {
                return stop;
            }
        }
    }
    return 0;
}

PyObject *pto_result_build(const pto_result *r, const int64_t *slots, PyObject *const *args, Py_ssize_t nargs) {
    if (r->kind == RESULT_NONE) {
        Py_RETURN_NONE;
    }
    building b = {slots, args, nargs, NULL, false};
    PyObject *result = build(r, &b);
    while (b.owners != NULL) {
        BufferObject *owner = b.owners;
        b.owners = owner->previous;
        Py_DECREF(owner);
    }
    return result;
}

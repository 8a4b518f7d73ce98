/* SPDX-License-Identifier: MIT */
/* Entry: a loaded kernel.  Bound: an Entry with its slots fixed. */
#include "dispatch.h"

#include <string.h>

/* ---- running ---- */

static PyObject *raise_failure(EntryObject *e, const pto_failure *f, PyObject *const *args, Py_ssize_t nargs) {
    PyObject *given = PyTuple_New(nargs);
    if (given == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < nargs; i++) {
        PyTuple_SET_ITEM(given, i, Py_NewRef(args[i]));
    }
    PyObject *answer;
    if (f->count == 0 && f->task != 0) {
        answer = PyObject_CallFunction(e->on_failure, "OiLLLN()LK", e->holder, (int)f->site, (long long)f->v0,
                                       (long long)f->v1, (long long)f->v2, given, (long long)f->task - 1,
                                       (unsigned long long)(uintptr_t)f->graph);
    } else if (f->count == 0) {
        answer = PyObject_CallFunction(e->on_failure, "OiLLLN", e->holder, (int)f->site, (long long)f->v0,
                                       (long long)f->v1, (long long)f->v2, given);
    } else {
        PyObject *more = PyTuple_New(f->count);
        for (int32_t i = 0; more != NULL && i < f->count; i++) {
            PyObject *value = PyLong_FromLongLong(f->more[i]);
            if (value == NULL) {
                Py_CLEAR(more);
                break;
            }
            PyTuple_SET_ITEM(more, i, value);
        }
        if (more == NULL) {
            Py_DECREF(given);
            return NULL;
        }
        answer = PyObject_CallFunction(e->on_failure, "OiLLLNNLK", e->holder, (int)f->site, (long long)f->v0,
                                       (long long)f->v1, (long long)f->v2, given, more, (long long)f->task - 1,
                                       (unsigned long long)(uintptr_t)f->graph);
    }
    if (answer != NULL) {
        Py_DECREF(answer);
        PyErr_Format(PyExc_SystemError, "on_failure returned instead of raising (site %d)", (int)f->site);
    }
    return NULL;
}

#define RESULTS_ON_STACK 64

PyObject *pto_entry_run(EntryObject *e, const int64_t *slots, int64_t elements, PyObject *const *args,
                        Py_ssize_t nargs) {
    int64_t on_stack[RESULTS_ON_STACK];
    int64_t *results = on_stack;
    if (PTO_UNLIKELY(e->result_slots > RESULTS_ON_STACK)) {
        results = PyMem_Malloc(e->result_slots * sizeof *results);
        if (results == NULL) {
            return PyErr_NoMemory();
        }
    }
    pto_failure failure;
    int32_t status;
    if (elements >= 0 && elements < e->keep_gil_below) {
        /* On this thread alone: a helper that prints would wait for the GIL that this thread holds. */
        status = pto.launch(e->rt, e->function, slots, results, e->holder, 1, &failure);
    } else {
        PyThreadState *thread = PyEval_SaveThread();
        status = pto.launch(e->rt, e->function, slots, results, e->holder, e->max_threads, &failure);
        PyEval_RestoreThread(thread);
    }
    PyObject *value;
    if (PTO_UNLIKELY(status != PTO_OK)) {
        value = raise_failure(e, &failure, args, nargs);
        if (failure.graph != NULL) { /* of the task that failed */
            pto.graph_destroy(failure.graph);
        }
    } else {
        value = pto_result_build(e->results, results, args, nargs);
    }
    if (PTO_UNLIKELY(results != on_stack)) {
        PyMem_Free(results);
    }
    return value;
}

/* Slots given from Python: ints of 64 bits, signed or unsigned, and floats (their bits). */
static int64_t *slots_from_sequence(PyObject *given, Py_ssize_t *count) {
    PyObject *sequence = PySequence_Fast(given, "slots must be a sequence of int and float");
    if (sequence == NULL) {
        return NULL;
    }
    Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence);
    int64_t *slots = PyMem_Malloc((size_t)(n > 0 ? n : 1) * sizeof *slots);
    if (slots == NULL) {
        PyErr_NoMemory();
        Py_DECREF(sequence);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(sequence, i);
        if (PyFloat_Check(item)) {
            double number = PyFloat_AS_DOUBLE(item);
            memcpy(&slots[i], &number, sizeof number);
            continue;
        }
        if (!PyLong_Check(item)) {
            PyErr_Format(PyExc_TypeError, "slot %zd must be int or float, not %.100s", i, Py_TYPE(item)->tp_name);
            goto failed;
        }
        int overflow;
        slots[i] = PyLong_AsLongLongAndOverflow(item, &overflow);
        if (overflow > 0) {
            slots[i] = (int64_t)PyLong_AsUnsignedLongLong(item);
        } else if (overflow < 0) {
            PyErr_Format(PyExc_OverflowError, "slot %zd does not fit 64 bits", i);
        }
        if (PyErr_Occurred()) {
            goto failed;
        }
    }
    Py_DECREF(sequence);
    *count = n;
    return slots;
failed:
    PyMem_Free(slots);
    Py_DECREF(sequence);
    return NULL;
}

/* ---- Bound ---- */

typedef struct BoundObject {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    EntryObject *entry;
    PyObject *args; /* a tuple */
    int64_t *slots;
    int64_t elements;
} BoundObject;

static PyObject *bound_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    (void)args;
    BoundObject *self = (BoundObject *)callable;
    if (PTO_UNLIKELY(PyVectorcall_NARGS(nargsf) != 0 || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0))) {
        PyErr_SetString(PyExc_TypeError, "a bound launch takes no arguments");
        return NULL;
    }
    Py_INCREF(self); /* the GIL may be released meanwhile */
    PyObject *value = pto_entry_run(self->entry, self->slots, self->elements, &PyTuple_GET_ITEM(self->args, 0),
                                    PyTuple_GET_SIZE(self->args));
    Py_DECREF(self);
    return value;
}

static int bound_traverse(BoundObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->entry);
    Py_VISIT(self->args);
    return 0;
}

static void bound_dealloc(BoundObject *self) {
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->entry);
    Py_XDECREF(self->args);
    PyMem_Free(self->slots);
    PyObject_GC_Del(self);
}

static PyMemberDef bound_members[] = {
    {"entry", T_OBJECT, offsetof(BoundObject, entry), READONLY, "The Entry that is launched."},
    {"args", T_OBJECT, offsetof(BoundObject, args), READONLY, "The arguments kept alive."},
    {NULL, 0, 0, 0, NULL},
};

/* No tp_clear: a cycle through a Bound goes through its Entry or a mutable object, which break it. */
PyTypeObject pto_Bound_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pto_jit.runtime.Bound",
    .tp_basicsize = sizeof(BoundObject),
    .tp_dealloc = (destructor)bound_dealloc,
    .tp_vectorcall_offset = offsetof(BoundObject, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_traverse = (traverseproc)bound_traverse,
    .tp_members = bound_members,
    .tp_doc = "A prepared launch: call it without arguments to run the kernel again on the same memory.",
};

/* ---- Entry ---- */

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"runtime",    "address",        "results",     "holder",
                            "on_failure", "keep_gil_below", "max_threads", NULL};
    PyObject *runtime, *address, *results, *holder = NULL, *on_failure = NULL;
    long long keep_gil_below = 0;
    int max_threads = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|$OOLi:Entry", names, &runtime, &address, &results, &holder,
                                     &on_failure, &keep_gil_below, &max_threads)) {
        return NULL;
    }
    if (holder == NULL || on_failure == NULL) {
        PyErr_SetString(PyExc_TypeError, "Entry needs the keyword arguments holder and on_failure");
        return NULL;
    }
    void *function = PyLong_AsVoidPtr(address);
    if (function == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "the address of an entry cannot be 0");
        }
        return NULL;
    }
    if (max_threads < 0) {
        PyErr_SetString(PyExc_ValueError, "max_threads must be 0 or more");
        return NULL;
    }
    if (!PyCallable_Check(on_failure)) {
        PyErr_SetString(PyExc_TypeError, "on_failure must be callable");
        return NULL;
    }
    PyObject *handle = PyObject_GetAttrString(runtime, "address");
    if (handle == NULL) {
        return NULL;
    }
    void *rt = PyLong_AsVoidPtr(handle);
    Py_DECREF(handle);
    if (rt == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "the runtime is gone");
        }
        return NULL;
    }
    EntryObject *self = (EntryObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->rt = rt;
    self->function = (pto_entry_fn)(uintptr_t)function;
    self->runtime = Py_NewRef(runtime);
    self->holder = Py_NewRef(holder);
    self->on_failure = Py_NewRef(on_failure);
    self->plan = Py_NewRef(results);
    self->keep_gil_below = keep_gil_below;
    self->max_threads = max_threads;
    self->results = pto_result_parse(results, &self->result_slots);
    if (self->results == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int entry_traverse(EntryObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->runtime);
    Py_VISIT(self->holder);
    Py_VISIT(self->on_failure);
    Py_VISIT(self->plan);
    return self->results != NULL ? pto_result_traverse(self->results, visit, arg) : 0;
}

static int entry_clear(EntryObject *self) {
    /* Members that a launch reads are replaced, not emptied: a finalizer may still run the entry. */
    PyObject *holder = self->holder;
    PyObject *on_failure = self->on_failure;
    self->holder = Py_NewRef(Py_None);
    self->on_failure = Py_NewRef(Py_None);
    Py_XDECREF(holder);
    Py_XDECREF(on_failure);
    return 0;
}

static void entry_dealloc(EntryObject *self) {
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->holder);
    Py_XDECREF(self->on_failure);
    Py_XDECREF(self->plan);
    Py_XDECREF(self->runtime);
    pto_result_free(self->results);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int slots_and_args(PyObject *const *args, Py_ssize_t nargs, const char *name, int64_t **slots, Py_ssize_t *count,
                          PyObject **given, int64_t *elements) {
    if (nargs < 1 || nargs > 3) {
        PyErr_Format(PyExc_TypeError, "%s(slots, args=(), elements=-1) takes 1 to 3 arguments, not %zd", name, nargs);
        return -1;
    }
    *elements = -1;
    if (nargs == 3) {
        *elements = PyLong_AsLongLong(args[2]);
        if (*elements == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    *given = nargs >= 2 ? PySequence_Tuple(args[1]) : PyTuple_New(0);
    if (*given == NULL) {
        return -1;
    }
    *slots = slots_from_sequence(args[0], count);
    if (*slots == NULL) {
        Py_DECREF(*given);
        return -1;
    }
    return 0;
}

static PyObject *entry_launch(EntryObject *self, PyObject *const *args, Py_ssize_t nargs) {
    int64_t *slots;
    int64_t elements;
    Py_ssize_t count;
    PyObject *given;
    if (slots_and_args(args, nargs, "launch", &slots, &count, &given, &elements) < 0) {
        return NULL;
    }
    PyObject *value = pto_entry_run(self, slots, elements, &PyTuple_GET_ITEM(given, 0), PyTuple_GET_SIZE(given));
    PyMem_Free(slots);
    Py_DECREF(given);
    return value;
}

static PyObject *entry_bind(EntryObject *self, PyObject *const *args, Py_ssize_t nargs) {
    int64_t *slots;
    int64_t elements;
    Py_ssize_t count;
    PyObject *given;
    if (slots_and_args(args, nargs, "bind", &slots, &count, &given, &elements) < 0) {
        return NULL;
    }
    BoundObject *bound = PyObject_GC_New(BoundObject, &pto_Bound_Type);
    if (bound == NULL) {
        PyMem_Free(slots);
        Py_DECREF(given);
        return NULL;
    }
    bound->vectorcall = bound_call;
    bound->entry = (EntryObject *)Py_NewRef((PyObject *)self);
    bound->args = given;
    bound->slots = slots;
    bound->elements = elements;
    PyObject_GC_Track(bound);
    return (PyObject *)bound;
}

static PyObject *entry_address(EntryObject *self, void *closure) {
    (void)closure;
    return PyLong_FromVoidPtr((void *)(uintptr_t)self->function);
}

static PyMethodDef entry_methods[] = {
    {"launch", (PyCFunction)(void (*)(void))entry_launch, METH_FASTCALL,
     "launch(slots, args=(), elements=-1, /)\n--\n\n"
     "Run the kernel on 64-bit slots (int, or float for its bits); `args` are kept alive and given to `on_failure`.\n"
     "`elements` is the size of all tensor arguments together, for `keep_gil_below`; -1: not known."},
    {"bind", (PyCFunction)(void (*)(void))entry_bind, METH_FASTCALL,
     "bind(slots, args=(), elements=-1, /)\n--\n\nA prepared launch: `bound()` runs the kernel on these slots again."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef entry_members[] = {
    {"runtime", T_OBJECT, offsetof(EntryObject, runtime), READONLY, "The Runtime it runs on."},
    {"holder", T_OBJECT, offsetof(EntryObject, holder), READONLY, "Given back to on_failure and on_print."},
    {"results", T_OBJECT, offsetof(EntryObject, plan), READONLY, "The result plan."},
    {"num_result_slots", T_UINT, offsetof(EntryObject, result_slots), READONLY, "Slots the kernel writes."},
    {"keep_gil_below", T_LONGLONG, offsetof(EntryObject, keep_gil_below), READONLY,
     "Launches with fewer elements keep the GIL and run on one thread."},
    {"max_threads", T_INT, offsetof(EntryObject, max_threads), READONLY, "Threads of one launch; 0 = the runtime's."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef entry_getset[] = {
    {"address", (getter)entry_address, NULL, "The address of the kernel's entry function.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject pto_Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pto_jit.runtime.Entry",
    .tp_basicsize = sizeof(EntryObject),
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_methods = entry_methods,
    .tp_members = entry_members,
    .tp_getset = entry_getset,
    .tp_new = entry_new,
    .tp_doc = "Entry(runtime, address, results, *, holder, on_failure, keep_gil_below=0, max_threads=0)\n--\n\n"
              "A loaded kernel on a Runtime, and how its result slots become Python values.",
};

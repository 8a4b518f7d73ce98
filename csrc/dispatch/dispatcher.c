/* SPDX-License-Identifier: MIT */
/* Dispatcher: a callable that finds the compiled kernel for its arguments.  Here it is made; call.c is its call. */
#include "dispatcher.h"

/* ---- registration ---- */

static PyObject *dispatcher_register(DispatcherObject *d, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"args", "entry", "plan", "guards", "convert", "extents", NULL};
    PyObject *example, *entry, *plan, *guards = NULL, *convert = Py_None, *extents = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O|OOO:register", names, &PyTuple_Type, &example,
                                     &pto_Entry_Type, &entry, &plan, &guards, &convert, &extents)) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(example);
    if (n < d->nparams || (n > d->nparams && !d->varargs)) {
        return PyErr_Format(PyExc_TypeError, "%zd arguments for %zd parameters", n, d->nparams);
    }
    PyObject *items = PySequence_List(plan);
    PyObject *tuple = guards == NULL ? PyTuple_New(0) : PySequence_Tuple(guards);
    PyObject *checks = extents == NULL ? PyTuple_New(0) : PySequence_Tuple(extents);
    bool *is_static = PyMem_Calloc((size_t)n + 1, sizeof *is_static);
    pto_record *r = NULL;
    int made = -1;
    if (items == NULL || tuple == NULL || checks == NULL) {
        /* an exception is set */
    } else if (is_static == NULL) {
        PyErr_NoMemory();
    } else if (PyList_GET_SIZE(items) != n) {
        PyErr_Format(PyExc_TypeError, "a plan of %zd items for %zd arguments", PyList_GET_SIZE(items), n);
    } else {
        for (Py_ssize_t i = 0; i < n; i++) {
            is_static[i] = bound_is_static(d, i, n);
        }
        made = pto_record_make(example, is_static, (EntryObject *)entry, items, tuple, convert, checks, &r);
    }
    PyMem_Free(is_static);
    Py_XDECREF(items);
    Py_XDECREF(tuple);
    Py_XDECREF(checks);
    if (made != 1) {
        return made < 0 ? NULL : Py_NewRef(Py_False);
    }
    if (d->table.count >= d->limit) {
        pto_table_clear(&d->table);
    }
    if (pto_table_insert(&d->table, r) < 0) {
        pto_record_release(r);
        return NULL;
    }
    Py_RETURN_TRUE;
}

static PyObject *dispatcher_clear_method(DispatcherObject *d, PyObject *unused) {
    (void)unused;
    pto_table_clear(&d->table);
    Py_RETURN_NONE;
}

static PyObject *dispatcher_entries(DispatcherObject *d, PyObject *unused) {
    (void)unused;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && d->table.places != NULL && i <= d->table.mask; i++) {
        for (pto_record *r = d->table.places[i]; r != NULL && list != NULL; r = r->next) {
            PyObject *item = PyTuple_Pack(2, (PyObject *)r->entry, r->given_guards);
            if (item == NULL || PyList_Append(list, item) < 0) {
                Py_CLEAR(list);
            }
            Py_XDECREF(item);
        }
    }
    return list;
}

/* ---- making and unmaking ---- */

static PyObject *dispatcher_descr_get(PyObject *self, PyObject *object, PyObject *type) {
    (void)type;
    return object == NULL || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

/*
 * CPython 3.11 does not let a class made by Python code inherit these two flags, though it inherits the slots they
 * speak of; without them every call of a subclass builds a tuple.  They are right as long as the slots are ours.
 */
static void inherit_call_flags(PyTypeObject *type) {
    unsigned long wanted = 0;
    Py_ssize_t offset = (Py_ssize_t)offsetof(DispatcherObject, vectorcall);
    if (type->tp_call == PyVectorcall_Call && type->tp_vectorcall_offset == offset) {
        wanted |= Py_TPFLAGS_HAVE_VECTORCALL;
    }
    if (type->tp_descr_get == dispatcher_descr_get) {
        wanted |= Py_TPFLAGS_METHOD_DESCRIPTOR;
    }
    if ((type->tp_flags & wanted) != wanted) {
        type->tp_flags |= wanted;
        PyType_Modified(type);
    }
}

static PyObject *dispatcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)args;
    (void)kwargs;
    DispatcherObject *self = (DispatcherObject *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = pto_dispatcher_call;
        self->positional = -1; /* no call fits before __init__ */
        inherit_call_flags(type);
    }
    return (PyObject *)self;
}

static void free_parameters(DispatcherObject *d) {
    if (d->defaults != NULL) {
        for (Py_ssize_t i = 0; i < d->nparams; i++) {
            Py_CLEAR(d->defaults[i]);
        }
        PyMem_Free(d->defaults);
        d->defaults = NULL;
    }
    PyMem_Free(d->is_static);
    d->is_static = NULL;
    Py_CLEAR(d->parameters);
    d->nparams = 0;
    d->positional = -1;
}

static Py_ssize_t parameter_index(const DispatcherObject *d, PyObject *name) {
    for (Py_ssize_t i = 0; PyUnicode_Check(name) && i < d->nparams; i++) {
        if (PyUnicode_Compare(PyTuple_GET_ITEM(d->parameters, i), name) == 0) {
            return i;
        }
    }
    PyErr_Format(PyExc_ValueError, "%R is not a parameter", name);
    return -1;
}

/* The parameters' names as a tuple of interned strings; NULL with an exception. */
static PyObject *interned_names(PyObject *parameters) {
    PyObject *listed = PySequence_List(parameters);
    for (Py_ssize_t i = 0; listed != NULL && i < PyList_GET_SIZE(listed); i++) {
        PyObject *name = PyList_GET_ITEM(listed, i);
        if (!PyUnicode_CheckExact(name)) {
            PyErr_Format(PyExc_TypeError, "a parameter name must be str, not %R", name);
            Py_CLEAR(listed);
            break;
        }
        Py_INCREF(name);
        PyUnicode_InternInPlace(&name);
        PyList_SetItem(listed, i, name);
    }
    if (listed == NULL) {
        return NULL;
    }
    PyObject *names = PyList_AsTuple(listed);
    Py_DECREF(listed);
    return names;
}

/* `defaults`: a dict of some parameters' values, or None. */
static int set_defaults(DispatcherObject *d, PyObject *defaults) {
    if (defaults == NULL || defaults == Py_None) {
        return 0;
    }
    if (!PyDict_Check(defaults)) {
        PyErr_SetString(PyExc_TypeError, "defaults must be a dict");
        return -1;
    }
    PyObject *name, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(defaults, &position, &name, &value)) {
        Py_ssize_t i = parameter_index(d, name);
        if (i < 0) {
            return -1;
        }
        Py_XSETREF(d->defaults[i], Py_NewRef(value));
    }
    return 0;
}

/* `statics`: names of the parameters whose values are part of the key, or None. */
static int set_static(DispatcherObject *d, PyObject *statics) {
    if (statics == NULL || statics == Py_None) {
        return 0;
    }
    PyObject *names = PySequence_List(statics);
    if (names == NULL) {
        return -1;
    }
    Py_ssize_t i = 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(names) && i >= 0; k++) {
        i = parameter_index(d, PyList_GET_ITEM(names, k));
        if (i >= 0) {
            d->is_static[i] = true;
            d->any_static = true;
        }
    }
    Py_DECREF(names);
    return i < 0 ? -1 : 0;
}

static int dispatcher_init(DispatcherObject *d, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"parameters", "slow_path", "positional", "positional_only", "varargs",
                            "defaults",   "static",    "limit",      "into",    NULL};
    PyObject *parameters, *slow_path, *positional = Py_None, *defaults = NULL, *statics = NULL, *into = Py_None;
    Py_ssize_t positional_only = 0, limit = 1024;
    int varargs = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$OnpOOnO:Dispatcher", names, &parameters, &slow_path,
                                     &positional, &positional_only, &varargs, &defaults, &statics, &limit, &into)) {
        return -1;
    }
    if (into != Py_None && !PyObject_TypeCheck(into, &pto_Dispatcher_Type)) {
        PyErr_Format(PyExc_TypeError, "into must be a Dispatcher, not %.100s", Py_TYPE(into)->tp_name);
        return -1;
    }
    PyObject *interned = interned_names(parameters);
    if (interned == NULL) {
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(interned);
    Py_ssize_t by_position = positional == Py_None ? n : PyLong_AsSsize_t(positional);
    if (by_position == -1 && PyErr_Occurred()) {
        Py_DECREF(interned);
        return -1;
    }
    if (by_position < 0 || by_position > n || positional_only < 0 || positional_only > by_position || limit < 1) {
        PyErr_SetString(PyExc_ValueError, "positional, positional_only or limit is out of range");
        Py_DECREF(interned);
        return -1;
    }
    pto_table_clear(&d->table);
    free_parameters(d);
    d->parameters = interned;
    d->nparams = n;
    d->positional_only = positional_only;
    d->varargs = varargs != 0;
    d->any_static = false;
    d->limit = limit;
    d->defaults = PyMem_Calloc((size_t)n + 1, sizeof *d->defaults);
    d->is_static = PyMem_Calloc((size_t)n + 1, sizeof *d->is_static);
    Py_XSETREF(d->slow_path, Py_NewRef(slow_path));
    Py_XSETREF(d->into, into == Py_None ? NULL : Py_NewRef(into));
    if (d->defaults == NULL || d->is_static == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (set_defaults(d, defaults) < 0 || set_static(d, statics) < 0) {
        return -1;
    }
    d->positional = by_position; /* last: calls work from here on */
    return 0;
}

static int dispatcher_traverse(DispatcherObject *d, visitproc visit, void *arg) {
    Py_VISIT(d->slow_path);
    Py_VISIT(d->into);
    Py_VISIT(d->parameters);
    for (Py_ssize_t i = 0; d->defaults != NULL && i < d->nparams; i++) {
        Py_VISIT(d->defaults[i]);
    }
    for (size_t i = 0; d->table.places != NULL && i <= d->table.mask; i++) {
        for (pto_record *r = d->table.places[i]; r != NULL; r = r->next) {
            int stop = r->references > 1 ? 0 : pto_record_traverse(r, visit, arg); /* else a call holds it too */
            if (stop != 0) {
                return stop;
            }
        }
    }
    return 0;
}

static int dispatcher_clear(DispatcherObject *d) {
    pto_table_clear(&d->table);
    Py_CLEAR(d->slow_path);
    Py_CLEAR(d->into);
    for (Py_ssize_t i = 0; d->defaults != NULL && i < d->nparams; i++) {
        Py_CLEAR(d->defaults[i]);
    }
    return 0;
}

static void dispatcher_dealloc(DispatcherObject *d) {
    PyTypeObject *type = Py_TYPE(d);
    PyObject_GC_UnTrack(d);
    (void)dispatcher_clear(d);
    free_parameters(d);
    type->tp_free((PyObject *)d);
}

static PyMethodDef dispatcher_methods[] = {
    {"register", (PyCFunction)(void (*)(void))dispatcher_register, METH_VARARGS | METH_KEYWORDS,
     "register(args, entry, plan, guards=(), convert=None, extents=())\n--\n\n"
     "Run `entry` from now on for calls whose arguments are like `args` (in bound order) while the guards hold.\n"
     "`plan` says per argument what the kernel gets: 'tensor', 'int', 'float', 'scalar' or 'static' (nothing).\n"
     "`convert` is called on the value of every such call, and its answer returned.\n"
     "`extents`: (argument, axis, value) or (argument, axis, argument, axis) that must be equal, else the slow path.\n"
     "False when such arguments can only take the slow path."},
    {"clear", (PyCFunction)dispatcher_clear_method, METH_NOARGS, "clear()\n--\n\nForget every registered entry."},
    {"entries", (PyCFunction)dispatcher_entries, METH_NOARGS,
     "entries()\n--\n\nThe registered (Entry, guards), in no particular order."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef dispatcher_members[] = {
    {"slow_path", T_OBJECT_EX, offsetof(DispatcherObject, slow_path), 0,
     "Called as slow_path(args, kwargs or None) when no registered entry fits."},
    {"parameters", T_OBJECT_EX, offsetof(DispatcherObject, parameters), READONLY, "The parameter names."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject pto_Dispatcher_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pto_jit.runtime.Dispatcher",
    .tp_basicsize = sizeof(DispatcherObject),
    .tp_dealloc = (destructor)dispatcher_dealloc,
    .tp_vectorcall_offset = offsetof(DispatcherObject, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_traverse = (traverseproc)dispatcher_traverse,
    .tp_clear = (inquiry)dispatcher_clear,
    .tp_methods = dispatcher_methods,
    .tp_members = dispatcher_members,
    .tp_descr_get = dispatcher_descr_get,
    .tp_init = (initproc)dispatcher_init,
    .tp_new = dispatcher_new,
    .tp_doc = "Dispatcher(parameters, slow_path, *, positional=None, positional_only=0, varargs=False, defaults={}, "
              "static=(), limit=1024, into=None)\n--\n\n"
              "A callable that runs the registered entry for its arguments, or else slow_path(args, kwargs or None).\n"
              "`parameters`: positional ones, then keyword-only ones; `positional`: how many can be given by\n"
              "position; `static`: names whose int, float and str values are part of the key; `into`: a Dispatcher\n"
              "that runs calls with `out=` besides, its last argument; memory in common: the slow path.",
};

/* SPDX-License-Identifier: MIT */
/* The extension module pto_jit.runtime._dispatch. */
#define PTO_DISPATCH_MODULE
#include "dispatch.h"

pto_api pto;
PyObject *pto_absent;

static void *address_of(PyObject *symbols, const char *name) {
    PyObject *value = PyDict_GetItemString(symbols, name);
    if (value == NULL) {
        PyErr_Format(PyExc_KeyError, "the runtime has no %s", name);
        return NULL;
    }
    return PyLong_AsVoidPtr(value);
}

/* The print callback of every Runtime: `context` is the Python Runtime, alive as long as one of its entries runs. */
static void print_to_python(void *context, void *user, int32_t site, const int64_t *values, int32_t count) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *runtime = context;
    PyObject *holder = user;
    PyObject *handler = PyObject_GetAttrString(runtime, "on_print");
    if (handler != NULL && handler != Py_None) {
        PyObject *tuple = PyTuple_New(count);
        for (int32_t i = 0; tuple != NULL && i < count; i++) {
            PyObject *value = PyLong_FromLongLong(values[i]);
            if (value == NULL) {
                Py_CLEAR(tuple);
            } else {
                PyTuple_SET_ITEM(tuple, i, value);
            }
        }
        if (tuple != NULL) {
            PyObject *answer = PyObject_CallFunction(handler, "OiN", holder, (int)site, tuple);
            Py_XDECREF(answer);
        }
    }
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable(handler); /* a kernel cannot be unwound from here */
    }
    Py_XDECREF(handler);
    PyGILState_Release(state);
}

static PyObject *connect(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *symbols, *bfloat16;
    if (!PyArg_ParseTuple(args, "O!O:connect", &PyDict_Type, &symbols, &bfloat16)) {
        return NULL;
    }
    void *launch = address_of(symbols, "pto_launch");
    void *buffer_free = launch == NULL ? NULL : address_of(symbols, "pto_buffer_free");
    void *graph_destroy = buffer_free == NULL ? NULL : address_of(symbols, "pto_graph_destroy");
    if (graph_destroy == NULL || pto_dtypes_init(bfloat16) < 0 || pto_dlpack_init() < 0) {
        return NULL;
    }
    pto.launch = (int32_t(*)(pto_runtime *, pto_entry_fn, const int64_t *, int64_t *, void *, int32_t, pto_failure *))(
        uintptr_t)launch;
    pto.buffer_free = (void (*)(pto_worker *, void *))(uintptr_t)buffer_free;
    pto.graph_destroy = (void (*)(pto_graph *))(uintptr_t)graph_destroy;
    return PyLong_FromVoidPtr((void *)(uintptr_t)&print_to_python);
}

static PyObject *key_of(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o;
    int is_static = 0;
    if (!PyArg_ParseTuple(args, "O|p:key_of", &o, &is_static)) {
        return NULL;
    }
    uint64_t code = pto_code(o, is_static != 0);
    switch (CODE_TAG(code)) {
    case TAG_TENSOR:
        return Py_BuildValue("(sIIIO)", "tensor", CODE_DTYPE(code), CODE_RANK(code), CODE_LAYOUT(code),
                             code >> 18 & 1 ? Py_True : Py_False);
    case TAG_INT:
        return Py_BuildValue("(s)", "int");
    case TAG_FLOAT:
        return Py_BuildValue("(s)", "float");
    case TAG_SCALAR:
        return Py_BuildValue("(sI)", "scalar", CODE_DTYPE(code));
    case TAG_OBJECT:
        if (code == CODE_NONE) {
            Py_RETURN_NONE;
        }
        return Py_BuildValue("(sO)", "object", o);
    default:
        return Py_BuildValue("(sO)", "value", o);
    }
}

static PyMethodDef methods[] = {
    {"connect", connect, METH_VARARGS,
     "connect(symbols, bfloat16)\n--\n\nUse the C runtime at these addresses; returns that of the print callback."},
    {"key_of", key_of, METH_VARARGS,
     "key_of(argument, static=False)\n--\n\nWhat the dispatcher sees: a tuple that begins with 'tensor' (dtype, rank,\n"
     "layout, writable), 'int', 'float', 'scalar' (dtype), 'value' or 'object'; None: the slow path decides."},
    {"read_dlpack", pto_read_dlpack, METH_O,
     "read_dlpack(capsule)\n--\n\n(pointer, shape, strides, dtype or None, writable or None, device type, kind); the\n"
     "capsule is not consumed and keeps the memory alive."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_dispatch",
    .m_doc = "The launch fast path: Dispatcher, Entry, Bound.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__dispatch(void) {
    import_array();
    PyTypeObject *types[] = {&pto_Entry_Type, &pto_Bound_Type, &pto_Buffer_Type, &pto_Dispatcher_Type};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (PyType_Ready(types[i]) < 0) {
            return NULL;
        }
    }
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    pto_absent = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (pto_absent == NULL || PyModule_AddObjectRef(module, "ABSENT", pto_absent) < 0 ||
        PyModule_AddObjectRef(module, "Entry", (PyObject *)&pto_Entry_Type) < 0 ||
        PyModule_AddObjectRef(module, "Bound", (PyObject *)&pto_Bound_Type) < 0 ||
        PyModule_AddObjectRef(module, "Buffer", (PyObject *)&pto_Buffer_Type) < 0 ||
        PyModule_AddObjectRef(module, "Dispatcher", (PyObject *)&pto_Dispatcher_Type) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}

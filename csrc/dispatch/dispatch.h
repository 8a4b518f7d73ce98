/* SPDX-License-Identifier: MIT */
/*
 * pto_jit.runtime._dispatch: from a Python call to a compiled kernel in about a hundred nanoseconds.
 *
 *   arguments.c   what an argument is (its key code) and how it becomes 64-bit slots
 *   dlpack.c      tensors of other libraries
 *   entry.c       Entry (a loaded kernel), Bound (a prepared launch); results.c: result slots as Python values
 *   dispatcher.c  Dispatcher: the object and what is registered with it; call.c: binding arguments, the call itself
 *   table.c       the table from argument keys to registered entries; guards.c: what must still hold for one
 *   module.c      module set-up; the functions of the C runtime come from _native as addresses, so there is one copy
 *
 * Everything here runs with the GIL held but for the kernel itself.
 */
#ifndef PTO_DISPATCH_H
#define PTO_DISPATCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL pto_jit_dispatch_array_api
#ifndef PTO_DISPATCH_MODULE
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include <stdbool.h>
#include <stdint.h>

#include "pto_runtime.h"

#define PTO_LIKELY(x) __builtin_expect(!!(x), 1)
#define PTO_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* The C runtime, by address (module.c, connect()). */
typedef struct pto_api {
    int32_t (*launch)(pto_runtime *, pto_entry_fn, const int64_t *, int64_t *, void *, int32_t, pto_failure *);
    void (*buffer_free)(pto_worker *, void *);
    void (*graph_destroy)(pto_graph *);
} pto_api;
extern pto_api pto;

/* ---- dtypes: the ids of pto_jit.dtypes ---- */

enum {
    DT_F16, DT_BF16, DT_F32, DT_F64, DT_I8, DT_I16, DT_I32, DT_I64, DT_U8, DT_U16, DT_U32, DT_U64, DT_BOOL, DT_COUNT
};

extern const uint8_t pto_dtype_size[DT_COUNT];
extern PyArray_Descr *pto_descr[DT_COUNT]; /* owned */
int pto_dtypes_init(PyObject *bfloat16);

/* ---- keys ---- */

/* The low three bits of a code tell the kinds apart; an object's address has them zero. */
enum {
    TAG_OBJECT = 0, /* code = address; the same object */
    TAG_TENSOR = 1,
    TAG_INT = 2,
    TAG_FLOAT = 3,
    TAG_SCALAR = 4,
    TAG_STATIC_INT = 5,   /* by value: code = hash, then the objects are compared */
    TAG_STATIC_FLOAT = 6, /* by value, bit for bit */
    TAG_TEXT = 7          /* by value */
};

#define CODE_NONE ((uint64_t)0) /* an argument that only the slow path can judge */
#define CODE_EXCHANGE ((uint64_t)1 << 19) /* a tensor read through a DLPack exchange table (dlpack.c) */
#define CODE_TAG(code) ((unsigned)((code) & 7))
#define CODE_DTYPE(code) ((unsigned)((code) >> 4 & 15))
#define CODE_RANK(code) ((unsigned)((code) >> 8 & 255))
#define CODE_LAYOUT(code) ((unsigned)((code) >> 16 & 3))

enum { LAYOUT_C = 0, LAYOUT_INNER = 1, LAYOUT_STRIDED = 2 };

uint64_t pto_code(PyObject *o, bool is_static);
bool pto_same_object(uint64_t code, PyObject *a, PyObject *b); /* of equal codes: the same compile-time value? */
bool pto_code_needs_object(uint64_t code);

/* Writes the slots of an argument of that code; the number of elements of a tensor is added to *elements.
 * NULL with an exception set when that fails (a NumPy scalar that cannot be converted). */
int64_t *pto_pack(PyObject *o, uint64_t code, int64_t *slots, int64_t *elements);
unsigned pto_slots_of(uint64_t code);
bool pto_apart(PyObject *array, PyObject *const *args, Py_ssize_t nargs); /* certainly no memory in common? */

/* ---- tensors of other libraries (dlpack.c) ---- */

int pto_dlpack_init(void);
PyObject *pto_read_dlpack(PyObject *module, PyObject *capsule);
int pto_learn_exchange(PyTypeObject *type);
bool pto_has_exchange(PyTypeObject *type);
uint64_t pto_exchange_code(PyObject *o);
int64_t *pto_exchange_pack(PyObject *o, uint64_t code, int64_t *slots, int64_t *elements);

/* ---- entries ---- */

typedef struct pto_result pto_result;

pto_result *pto_result_parse(PyObject *plan, uint32_t *slots); /* NULL with an exception; *slots: how many it takes */
void pto_result_free(pto_result *r);
int pto_result_traverse(pto_result *r, visitproc visit, void *arg);
PyObject *pto_result_build(const pto_result *r, const int64_t *slots, PyObject *const *args, Py_ssize_t nargs);

typedef struct EntryObject {
    PyObject_HEAD
    pto_runtime *rt;
    pto_entry_fn function;
    PyObject *runtime; /* the Python handle, which keeps rt alive */
    PyObject *holder;
    PyObject *on_failure;
    PyObject *plan; /* the results as given */
    pto_result *results;
    int64_t keep_gil_below;
    int32_t max_threads;
    uint32_t result_slots;
} EntryObject;

extern PyTypeObject pto_Entry_Type;
extern PyTypeObject pto_Bound_Type;
extern PyTypeObject pto_Buffer_Type;
extern PyTypeObject pto_Dispatcher_Type;

/* Runs the kernel and builds its results; elements < 0: not known, the GIL is released. */
PyObject *pto_entry_run(EntryObject *e, const int64_t *slots, int64_t elements, PyObject *const *args,
                        Py_ssize_t nargs);

extern PyObject *pto_absent; /* the guard value for a name that must not be there */

#endif

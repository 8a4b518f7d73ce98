/* SPDX-License-Identifier: MIT */
/*
 * DLPack, version 1: capsules for the slow path, and the C exchange table that some types (torch.Tensor) publish, which
 * shows an object's tensor without making a capsule.  The structures below are those of the DLPack specification.
 */
#include "dispatch.h"

typedef struct dl_tensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: packed */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_version {
    uint32_t major;
    uint32_t minor;
} dl_version;

typedef struct dl_managed_versioned {
    dl_version version;
    void *manager;
    void (*deleter)(struct dl_managed_versioned *);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed_versioned;

typedef struct dl_exchange {
    dl_version version;
    struct dl_exchange *previous;
    void (*unused[3])(void);
    int (*tensor_of)(void *object, dl_tensor *out);
    void (*unused_stream)(void);
} dl_exchange;

enum { DL_CPU = 1, DL_READ_ONLY = 1 };

static const struct {
    uint8_t code;
    uint8_t bits;
} dl_dtypes[DT_COUNT] = {{2, 16}, {4, 16}, {2, 32}, {2, 64}, {0, 8},  {0, 16}, {0, 32},
                         {0, 64}, {1, 8},  {1, 16}, {1, 32}, {1, 64}, {6, 8}};

static int dtype_of(const dl_tensor *t) {
    for (int id = 0; id < DT_COUNT; id++) {
        if (t->lanes == 1 && dl_dtypes[id].code == t->code && dl_dtypes[id].bits == t->bits) {
            return id;
        }
    }
    return -1;
}

/* ---- capsules ---- */

/*
 * (pointer, shape, strides in bytes, dtype id or None, writable or None, device type, "code:bits:lanes") of a capsule
 * that nobody has consumed; it stays unconsumed and owns the memory as long as it lives.
 */
PyObject *pto_read_dlpack(PyObject *module, PyObject *capsule) {
    (void)module;
    const dl_tensor *t;
    PyObject *writable = Py_None;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        const dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (managed->version.major != 1) {
            PyErr_Format(PyExc_BufferError, "DLPack version %u is not known", (unsigned)managed->version.major);
            return NULL;
        }
        writable = managed->flags & DL_READ_ONLY ? Py_False : Py_True;
        t = &managed->tensor;
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        t = PyCapsule_GetPointer(capsule, "dltensor"); /* an unversioned tensor is the first member */
    } else {
        PyErr_SetString(PyExc_BufferError, "not a DLPack capsule");
        return NULL;
    }
    PyObject *shape = PyTuple_New(t->ndim);
    PyObject *strides = PyTuple_New(t->ndim);
    long long step = t->bits / 8 * (long long)t->lanes;
    long long packed = step;
    for (int i = t->ndim - 1; i >= 0 && shape != NULL && strides != NULL; i--) {
        PyObject *extent = PyLong_FromLongLong(t->shape[i]);
        PyObject *stride = PyLong_FromLongLong(t->strides != NULL ? t->strides[i] * step : packed);
        packed *= t->shape[i];
        if (extent == NULL || stride == NULL) {
            Py_XDECREF(extent);
            Py_XDECREF(stride);
            Py_CLEAR(shape);
            break;
        }
        PyTuple_SET_ITEM(shape, i, extent);
        PyTuple_SET_ITEM(strides, i, stride);
    }
    if (shape == NULL || strides == NULL) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    int dtype = dtype_of(t);
    PyObject *id = dtype >= 0 ? PyLong_FromLong(dtype) : Py_NewRef(Py_None);
    PyObject *kind = PyUnicode_FromFormat("%d:%d:%d", (int)t->code, (int)t->bits, (int)t->lanes);
    PyObject *pointer = PyLong_FromVoidPtr((char *)t->data + t->byte_offset);
    if (id == NULL || kind == NULL || pointer == NULL) {
        Py_XDECREF(id);
        Py_XDECREF(kind);
        Py_XDECREF(pointer);
        Py_DECREF(shape);
        Py_DECREF(strides);
        return NULL;
    }
    return Py_BuildValue("(NNNNOiN)", pointer, shape, strides, id, writable, (int)t->device_type, kind);
}

/* ---- types with an exchange table ---- */

#define KNOWN_TYPES 8

static struct {
    PyTypeObject *type; /* owned: a type that is gone could come back as another at its address */
    const dl_exchange *api;
} known[KNOWN_TYPES];
static unsigned known_count;
static PyObject *requires_grad_name;
static PyObject *is_neg_name;
static PyObject *is_grad_enabled; /* torch's function, once a tensor requires grad */

int pto_dlpack_init(void) {
    requires_grad_name = PyUnicode_InternFromString("requires_grad");
    is_neg_name = PyUnicode_InternFromString("is_neg");
    return requires_grad_name == NULL || is_neg_name == NULL ? -1 : 0;
}

static const dl_exchange *exchange_of(PyTypeObject *type) {
    for (unsigned i = 0; i < known_count; i++) {
        if (known[i].type == type) {
            return known[i].api;
        }
    }
    return NULL;
}

/* Makes objects of this type tensors for the fast path when it publishes a table: 1; 0 if not, -1 on error. */
int pto_learn_exchange(PyTypeObject *type) {
    if (exchange_of(type) != NULL) {
        return 1;
    }
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    if (capsule == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    const dl_exchange *api = NULL;
    if (PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
        api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    }
    while (api != NULL && api->version.major != 1) {
        api = api->previous;
    }
    Py_DECREF(capsule); /* the table lives as long as the type's module, which is for ever */
    if (api == NULL || api->tensor_of == NULL || known_count == KNOWN_TYPES) {
        return 0;
    }
    known[known_count].type = (PyTypeObject *)Py_NewRef((PyObject *)type);
    known[known_count].api = api;
    known_count++;
    return 1;
}

static bool view(PyObject *o, dl_tensor *out) {
    const dl_exchange *api = exchange_of(Py_TYPE(o));
    if (api->tensor_of(o, out) != 0) {
        PyErr_Clear();
        return false;
    }
    return true;
}

/* Whether torch would record what happens to a tensor: not in `Function.forward`, nor under `no_grad`. */
static bool records_gradients(void) {
    if (is_grad_enabled == NULL) {
        PyObject *torch = PyImport_ImportModule("torch");
        is_grad_enabled = torch == NULL ? NULL : PyObject_GetAttrString(torch, "is_grad_enabled");
        Py_XDECREF(torch);
    }
    PyObject *enabled = is_grad_enabled == NULL ? NULL : PyObject_CallNoArgs(is_grad_enabled);
    if (enabled == NULL) {
        PyErr_Clear();
        return true;
    }
    Py_DECREF(enabled);
    return enabled != Py_False;
}

/* Whether a torch tensor is a view whose elements are those in memory with the other sign, which no table tells. */
static bool is_negated(PyObject *tensor) {
    PyObject *negated = PyObject_CallMethodNoArgs(tensor, is_neg_name);
    if (negated == NULL) {
        PyErr_Clear();
        return true;
    }
    Py_DECREF(negated);
    return negated != Py_False;
}

uint64_t pto_exchange_code(PyObject *o) {
    dl_tensor t;
    bool torch = false;
    PyObject *gradient = PyObject_GetAttr(o, requires_grad_name);
    if (gradient == NULL) {
        PyErr_Clear(); /* not torch */
    } else {
        torch = true;
        Py_DECREF(gradient);
        if (gradient != Py_False && records_gradients()) {
            return CODE_NONE; /* the slow path says why not */
        }
    }
    if (!view(o, &t) || t.device_type != DL_CPU || t.ndim > 255) {
        return CODE_NONE;
    }
    int dtype = dtype_of(&t);
    if (dtype < 0 || ((uintptr_t)t.data + t.byte_offset) % pto_dtype_size[dtype] != 0) {
        return CODE_NONE;
    }
    unsigned layout = LAYOUT_C;
    bool empty = false, single = true;
    for (int i = 0; i < t.ndim; i++) {
        empty |= t.shape[i] == 0;
        single &= t.shape[i] == 1;
    }
    if (t.strides != NULL) {
        bool packed = true, inner = true;
        int64_t step = 1;
        for (int i = t.ndim - 1; i >= 0; i--) {
            if (t.shape[i] != 1) {
                packed &= t.strides[i] == step;
                inner &= t.strides[i] >= 0 && (i != t.ndim - 1 || t.strides[i] == 1);
                step *= t.shape[i];
            }
        }
        layout = packed || empty ? LAYOUT_C : inner ? LAYOUT_INNER : LAYOUT_STRIDED;
    }
    /* What torch negates lazily are the imaginary parts of complex tensors: every second element of their memory. */
    bool part = torch && !empty && (layout != LAYOUT_C || single) && dtype <= DT_F64;
    if ((t.data == NULL && !empty) || (part && is_negated(o))) {
        return CODE_NONE;
    }
    return TAG_TENSOR | (uint64_t)(unsigned)dtype << 4 | (uint64_t)(unsigned)t.ndim << 8 | (uint64_t)layout << 16 |
           (uint64_t)1 << 18 | CODE_EXCHANGE;
}

int64_t *pto_exchange_pack(PyObject *o, uint64_t code, int64_t *slots, int64_t *elements) {
    dl_tensor t;
    if (!view(o, &t) || t.ndim != (int)CODE_RANK(code)) {
        PyErr_SetString(PyExc_BufferError, "a tensor argument changed during the call");
        return NULL;
    }
    int64_t itemsize = pto_dtype_size[CODE_DTYPE(code)];
    int64_t *extents = slots + 1;
    int64_t *steps = extents + t.ndim;
    int64_t count = 1;
    int64_t packed = itemsize;
    slots[0] = (int64_t)((intptr_t)t.data + (intptr_t)t.byte_offset);
    for (int i = t.ndim - 1; i >= 0; i--) {
        bool own = t.strides == NULL || CODE_LAYOUT(code) == LAYOUT_C ||
                   (CODE_LAYOUT(code) == LAYOUT_INNER && t.shape[i] == 1);
        extents[i] = t.shape[i];
        steps[i] = own ? packed : t.strides[i] * itemsize;
        packed = steps[i] * t.shape[i];
        count *= t.shape[i];
    }
    *elements += count;
    return steps + t.ndim;
}

bool pto_has_exchange(PyTypeObject *type) { return known_count != 0 && exchange_of(type) != NULL; }

/* SPDX-License-Identifier: MIT */
/* What an argument is, and how it becomes 64-bit slots. */
#include "dispatch.h"

#include <string.h>

const uint8_t pto_dtype_size[DT_COUNT] = {2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1};
PyArray_Descr *pto_descr[DT_COUNT];

#define NOT_A_DTYPE 255u
#define NUM_BUILTIN 32

static uint8_t builtin_dtype[NUM_BUILTIN]; /* by NumPy type number */
static int bfloat16_number = -1;
static PyTypeObject *scalar_types[DT_COUNT]; /* borrowed from the descriptors */

int pto_dtypes_init(PyObject *bfloat16) {
    static const int numbers[DT_COUNT] = {NPY_HALF,  -1,        NPY_FLOAT,  NPY_DOUBLE, NPY_INT8,
                                          NPY_INT16, NPY_INT32, NPY_INT64,  NPY_UINT8,  NPY_UINT16,
                                          NPY_UINT32, NPY_UINT64, NPY_BOOL};
    memset(builtin_dtype, NOT_A_DTYPE, sizeof builtin_dtype);
    for (unsigned id = 0; id < DT_COUNT; id++) {
        PyArray_Descr *descr = NULL;
        if (id == DT_BF16) {
            if (!PyArray_DescrConverter(bfloat16, &descr)) {
                return -1;
            }
            bfloat16_number = descr->type_num;
        } else {
            descr = PyArray_DescrFromType(numbers[id]);
            if (descr == NULL) {
                return -1;
            }
            builtin_dtype[numbers[id]] = (uint8_t)id;
        }
        Py_XSETREF(pto_descr[id], descr);
        scalar_types[id] = descr->typeobj;
    }
    /* C has two names for one width; NumPy gives each a number. */
    static const int more[] = {NPY_BYTE, NPY_SHORT, NPY_INT, NPY_LONG, NPY_LONGLONG};
    static const int more_unsigned[] = {NPY_UBYTE, NPY_USHORT, NPY_UINT, NPY_ULONG, NPY_ULONGLONG};
    static const size_t sizes[] = {sizeof(char), sizeof(short), sizeof(int), sizeof(long), sizeof(long long)};
    for (size_t i = 0; i < 5; i++) {
        unsigned log2 = sizes[i] == 1 ? 0 : sizes[i] == 2 ? 1 : sizes[i] == 4 ? 2 : 3;
        builtin_dtype[more[i]] = (uint8_t)(DT_I8 + log2);
        builtin_dtype[more_unsigned[i]] = (uint8_t)(DT_U8 + log2);
    }
    return 0;
}

static inline unsigned dtype_of_number(int number) {
    if (PTO_LIKELY(number >= 0 && number < NUM_BUILTIN)) {
        return builtin_dtype[number];
    }
    return number == bfloat16_number ? DT_BF16 : NOT_A_DTYPE;
}

/* ---- codes ---- */

static unsigned layout_of(PyArrayObject *a, npy_intp itemsize) {
    int rank = PyArray_NDIM(a);
    const npy_intp *shape = PyArray_DIMS(a);
    const npy_intp *strides = PyArray_STRIDES(a);
    for (int i = 0; i < rank; i++) {
        if (shape[i] == 1) {
            continue; /* never stepped over */
        }
        if (strides[i] < 0 || strides[i] % itemsize != 0 || (i == rank - 1 && strides[i] != itemsize)) {
            return LAYOUT_STRIDED;
        }
    }
    return LAYOUT_INNER;
}

static uint64_t array_code(PyArrayObject *a) {
    PyArray_Descr *descr = PyArray_DESCR(a);
    unsigned dtype = dtype_of_number(descr->type_num);
    int flags = PyArray_FLAGS(a);
    if (PTO_UNLIKELY(dtype == NOT_A_DTYPE || !PyArray_ISNBO(descr->byteorder) || (flags & NPY_ARRAY_ALIGNED) == 0)) {
        return CODE_NONE;
    }
    unsigned layout = PTO_LIKELY(flags & NPY_ARRAY_C_CONTIGUOUS) ? LAYOUT_C : layout_of(a, pto_dtype_size[dtype]);
    return TAG_TENSOR | (uint64_t)dtype << 4 | (uint64_t)(unsigned)PyArray_NDIM(a) << 8 | (uint64_t)layout << 16 |
           (uint64_t)((flags & NPY_ARRAY_WRITEABLE) != 0) << 18;
}

static uint64_t scalar_code(PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    for (unsigned id = 0; id < DT_COUNT; id++) {
        if (scalar_types[id] == type) {
            return TAG_SCALAR | (uint64_t)id << 4;
        }
    }
    if (PyArray_IsScalar(o, Number)) { /* long long where int64 is long */
        PyArray_Descr *descr = PyArray_DescrFromScalar(o);
        if (descr == NULL) {
            PyErr_Clear();
            return CODE_NONE;
        }
        unsigned dtype = dtype_of_number(descr->type_num);
        Py_DECREF(descr);
        if (dtype != NOT_A_DTYPE) {
            return TAG_SCALAR | (uint64_t)dtype << 4;
        }
    }
    return CODE_NONE; /* complex, long double, text, dates */
}

static uint64_t hashed_code(PyObject *o, unsigned tag) {
    Py_hash_t hash = PyObject_Hash(o);
    if (hash == -1) {
        PyErr_Clear();
        return CODE_NONE;
    }
    return (uint64_t)hash << 3 | tag;
}

/* Whether arrays of a subclass of ndarray have a mask, which a kernel would not see. */
static bool is_masked(PyTypeObject *type) {
    PyObject *bases = type->tp_mro;
    for (Py_ssize_t i = 0; bases != NULL && i < PyTuple_GET_SIZE(bases); i++) {
        const char *name = ((PyTypeObject *)PyTuple_GET_ITEM(bases, i))->tp_name;
        if (strcmp(name, "MaskedArray") == 0 || strcmp(name, "numpy.ma.MaskedArray") == 0) {
            return true;
        }
    }
    return false;
}

uint64_t pto_code(PyObject *o, bool is_static) {
    PyTypeObject *type = Py_TYPE(o);
    if (PTO_UNLIKELY(is_static)) {
        if (type == &PyLong_Type) {
            return hashed_code(o, TAG_STATIC_INT);
        }
        if (type == &PyFloat_Type) {
            uint64_t bits;
            double value = PyFloat_AS_DOUBLE(o);
            memcpy(&bits, &value, sizeof bits);
            return (bits ^ bits >> 61) << 3 | TAG_STATIC_FLOAT;
        }
        if (type == &PyUnicode_Type) {
            return hashed_code(o, TAG_TEXT);
        }
        if (PyArray_Check(o)) {
            return CODE_NONE; /* not hashable: the slow path says so */
        }
        return (uint64_t)(uintptr_t)o;
    }
    if (PTO_LIKELY(type == &PyArray_Type)) {
        return array_code((PyArrayObject *)o);
    }
    if (type == &PyLong_Type) {
        int overflow;
        (void)PyLong_AsLongLongAndOverflow(o, &overflow);
        return PTO_LIKELY(overflow == 0) ? TAG_INT : CODE_NONE;
    }
    if (type == &PyFloat_Type) {
        return TAG_FLOAT;
    }
    if (type == &PyBool_Type || o == Py_None) {
        return (uint64_t)(uintptr_t)o;
    }
    if (type == &PyUnicode_Type) {
        return hashed_code(o, TAG_TEXT);
    }
    if (PyArray_Check(o)) {
        return is_masked(type) ? CODE_NONE : array_code((PyArrayObject *)o); /* the slow path refuses it */
    }
    if (PyArray_IsScalar(o, Generic)) {
        return scalar_code(o);
    }
    if (pto_has_exchange(type)) {
        return pto_exchange_code(o);
    }
    return (uint64_t)(uintptr_t)o;
}

bool pto_code_needs_object(uint64_t code) {
    unsigned tag = CODE_TAG(code);
    return tag == TAG_OBJECT || tag >= TAG_STATIC_INT;
}

bool pto_same_object(uint64_t code, PyObject *a, PyObject *b) {
    if (a == b) {
        return true;
    }
    switch (CODE_TAG(code)) {
    case TAG_STATIC_INT: {
        int equal = PyObject_RichCompareBool(a, b, Py_EQ); /* exact ints: cannot fail */
        return equal == 1;
    }
    case TAG_STATIC_FLOAT: {
        double x = PyFloat_AS_DOUBLE(a);
        double y = PyFloat_AS_DOUBLE(b);
        return memcmp(&x, &y, sizeof x) == 0;
    }
    case TAG_TEXT:
        return PyUnicode_Compare(a, b) == 0;
    default:
        return false;
    }
}

/* ---- slots ---- */

unsigned pto_slots_of(uint64_t code) {
    switch (CODE_TAG(code)) {
    case TAG_TENSOR:
        return 1 + 2 * CODE_RANK(code);
    case TAG_INT:
    case TAG_FLOAT:
    case TAG_SCALAR:
        return 1;
    default:
        return 0;
    }
}

static inline int64_t bits_of(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double half_to_double(uint16_t half) {
    unsigned exponent = half >> 10 & 31u;
    uint64_t mantissa = half & 0x3ffu;
    uint64_t sign = (uint64_t)(half >> 15) << 63;
    uint64_t bits;
    if (exponent == 31) {
        bits = (uint64_t)0x7ff << 52 | mantissa << 42;
    } else if (exponent != 0) {
        bits = (uint64_t)(exponent + 1008) << 52 | mantissa << 42;
    } else {
        double value = (double)mantissa * 0x1p-24;
        memcpy(&bits, &value, sizeof bits);
    }
    bits |= sign;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int64_t *pack_scalar(PyObject *o, unsigned dtype, int64_t *slots) {
    switch (dtype) {
    case DT_F16:
        slots[0] = bits_of(half_to_double(PyArrayScalar_VAL(o, Half)));
        break;
    case DT_F32:
        slots[0] = bits_of((double)PyArrayScalar_VAL(o, Float));
        break;
    case DT_F64:
        slots[0] = bits_of(PyArrayScalar_VAL(o, Double));
        break;
    case DT_BF16: {
        PyObject *value = PyNumber_Float(o);
        if (value == NULL) {
            return NULL;
        }
        slots[0] = bits_of(PyFloat_AS_DOUBLE(value));
        Py_DECREF(value);
        break;
    }
    case DT_BOOL:
        slots[0] = PyArrayScalar_VAL(o, Bool) != 0;
        break;
    case DT_I8:
        slots[0] = PyArrayScalar_VAL(o, Byte);
        break;
    case DT_I16:
        slots[0] = PyArrayScalar_VAL(o, Short);
        break;
    case DT_I32:
        slots[0] = PyArrayScalar_VAL(o, Int);
        break;
    case DT_U8:
        slots[0] = PyArrayScalar_VAL(o, UByte);
        break;
    case DT_U16:
        slots[0] = PyArrayScalar_VAL(o, UShort);
        break;
    case DT_U32:
        slots[0] = PyArrayScalar_VAL(o, UInt);
        break;
    case DT_I64: /* long and long long look the same */
        slots[0] = PyArrayScalar_VAL(o, LongLong);
        break;
    default:
        slots[0] = (int64_t)PyArrayScalar_VAL(o, ULongLong);
        break;
    }
    return slots + 1;
}

static int64_t *pack_array(PyArrayObject *a, uint64_t code, int64_t *slots, int64_t *elements) {
    int rank = (int)CODE_RANK(code);
    int64_t itemsize = pto_dtype_size[CODE_DTYPE(code)];
    const npy_intp *shape = PyArray_DIMS(a);
    const npy_intp *strides = PyArray_STRIDES(a);
    int64_t count = 1;
    slots[0] = (int64_t)(intptr_t)PyArray_DATA(a);
    int64_t *extents = slots + 1;
    int64_t *steps = extents + rank;
    if (CODE_LAYOUT(code) == LAYOUT_C) {
        /* NumPy keeps any stride on axes of extent 1 and in empty arrays; generated code gets the packed ones. */
        int64_t step = itemsize;
        for (int i = rank - 1; i >= 0; i--) {
            extents[i] = shape[i];
            steps[i] = step;
            step *= shape[i];
            count *= shape[i];
        }
    } else if (CODE_LAYOUT(code) == LAYOUT_INNER) {
        int64_t step = itemsize; /* what an axis of extent 1 gets: just past the axis below it */
        for (int i = rank - 1; i >= 0; i--) {
            extents[i] = shape[i];
            steps[i] = shape[i] == 1 ? step : strides[i];
            step = steps[i] * shape[i];
            count *= shape[i];
        }
    } else {
        for (int i = 0; i < rank; i++) {
            extents[i] = shape[i];
            steps[i] = strides[i];
            count *= shape[i];
        }
    }
    *elements += count;
    return steps + rank;
}

int64_t *pto_pack(PyObject *o, uint64_t code, int64_t *slots, int64_t *elements) {
    switch (CODE_TAG(code)) {
    case TAG_TENSOR:
        return code & CODE_EXCHANGE ? pto_exchange_pack(o, code, slots, elements)
                                    : pack_array((PyArrayObject *)o, code, slots, elements);
    case TAG_INT: {
        int overflow;
        slots[0] = PyLong_AsLongLongAndOverflow(o, &overflow);
        return slots + 1;
    }
    case TAG_FLOAT:
        slots[0] = bits_of(PyFloat_AS_DOUBLE(o));
        return slots + 1;
    case TAG_SCALAR:
        return pack_scalar(o, CODE_DTYPE(code), slots);
    default:
        return slots;
    }
}

/* ---- memory ---- */

/* The addresses from *low up to *high; false for an array without an element. */
static bool span_of(PyArrayObject *a, uintptr_t *low, uintptr_t *high) {
    intptr_t below = 0;
    intptr_t above = (intptr_t)PyArray_ITEMSIZE(a);
    for (int i = 0; i < PyArray_NDIM(a); i++) {
        npy_intp extent = PyArray_DIM(a, i);
        if (extent == 0) {
            return false;
        }
        intptr_t reach = (intptr_t)(extent - 1) * PyArray_STRIDE(a, i);
        *(reach < 0 ? &below : &above) += reach;
    }
    *low = (uintptr_t)PyArray_DATA(a) + (uintptr_t)below;
    *high = (uintptr_t)PyArray_DATA(a) + (uintptr_t)above;
    return true;
}

bool pto_apart(PyObject *array, PyObject *const *args, Py_ssize_t nargs) {
    uintptr_t low, high, first, last;
    if (!PyArray_Check(array)) {
        return false;
    }
    bool any = span_of((PyArrayObject *)array, &low, &high);
    for (Py_ssize_t i = 0; i < nargs; i++) {
        PyObject *o = args[i];
        if (PyFloat_CheckExact(o) || PyLong_CheckExact(o)) {
            continue;
        }
        if (!PyArray_Check(o)) {
            return false;
        }
        if (any && span_of((PyArrayObject *)o, &first, &last) && first < high && low < last) {
            return false;
        }
    }
    return true;
}

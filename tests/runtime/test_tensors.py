# SPDX-License-Identifier: MIT
"""Reading other libraries' tensors: no copy, no surprise."""

from __future__ import annotations

import array
import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_jit.errors import ArgumentError
from pto_jit.runtime import Dispatcher, Runtime, TensorView, as_tensor, key_of


def view(obj: Any) -> TensorView:
    found = as_tensor(obj, "x")
    assert found is not None
    return found


@pytest.mark.parametrize(
    "obj", [1, 1.5, None, True, "text", object(), [1, 2], (1,), {}, len, int, np.float32, np.int8(3)]
)
def test_what_is_no_tensor_is_none(obj: Any) -> None:
    assert as_tensor(obj) is None


def test_a_numpy_array_is_seen_where_it_is() -> None:
    x = np.zeros((3, 4), ml_dtypes.bfloat16)
    v = view(x[:, 1:3])
    assert (v.pointer, v.shape, v.strides, v.dtype) == (x.ctypes.data + 2, (3, 2), (8, 2), 1)
    assert (v.writable, v.layout, v.is_torch, v.elements) == (True, 1, False, 6)
    assert v.slots() == [x.ctypes.data + 2, 3, 2, 8, 2]


def test_every_dtype_has_its_number() -> None:
    names = "float16 - float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
    for number, name in enumerate(names):
        x = np.zeros(2, ml_dtypes.bfloat16 if name == "-" else name)
        assert view(x).dtype == number == key_of(x)[1]


@pytest.mark.parametrize(
    ("obj", "dtype", "writable"),
    [
        (b"abcd", 8, False),
        (bytearray(b"abcd"), 8, True),
        (array.array("f", [1, 2, 3, 4]), 2, True),
        (array.array("q", [1, 2, 3, 4]), 7, True),
        (memoryview(array.array("h", [1, 2, 3, 4])), 5, True),
        (memoryview(bytes(4)).cast("?"), 12, False),
    ],
)
def test_the_buffer_protocol(obj: Any, dtype: int, writable: bool) -> None:
    v = view(obj)
    assert (v.dtype, v.writable, v.shape, v.layout) == (dtype, writable, (4,), 0)


def test_a_strided_buffer() -> None:
    v = view(memoryview(array.array("i", range(10)))[::3])
    assert (v.shape, v.strides, v.layout) == ((4,), (12,), 2)


def test_a_buffer_stays_exported_as_long_as_its_view() -> None:
    storage = bytearray(8)
    v = view(storage)
    with pytest.raises(BufferError):
        storage.extend(b"more")
    del v
    storage.extend(b"more")


class WithInterface:
    def __init__(self, base: np.ndarray, **changes: Any) -> None:
        self.base = base
        self.changes = changes

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return dict(self.base.__array_interface__) | self.changes


def test_the_array_interface() -> None:
    base = np.zeros((4, 6), np.float32)
    v = view(WithInterface(base[:, ::2]))
    assert (v.pointer, v.shape, v.strides, v.writable) == (base.ctypes.data, (4, 3), (24, 8), True)
    v = view(WithInterface(base, data=(base.ctypes.data, True)))
    assert not v.writable


class WithDLPack:
    """A DLPack producer with only that protocol."""

    def __init__(self, base: Any, versioned: bool = True) -> None:
        self.base = base
        self.versioned = versioned

    def __dlpack__(self, **options: Any) -> Any:
        if options and not self.versioned:
            raise TypeError("unexpected keyword argument")
        return self.base.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.base.__dlpack_device__()


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(versioned: bool) -> None:
    base = np.arange(24, dtype=np.int32).reshape(4, 6)
    v = view(WithDLPack(base[1:, ::2], versioned))
    assert (v.pointer, v.shape, v.strides, v.dtype) == (base.ctypes.data + 24, (3, 3), (24, 8), 6)
    assert v.writable and v.layout == 2


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="this NumPy does not give away such arrays")
def test_dlpack_says_when_memory_is_read_only() -> None:
    base = np.zeros(3)
    base.flags.writeable = False
    assert not view(WithDLPack(base)).writable


def test_dlpack_memory_lives_as_long_as_the_view() -> None:
    base = np.zeros(1000)
    gone = weakref.ref(base)
    v = view(WithDLPack(base))
    v = TensorView(v.pointer, v.shape, v.strides, v.dtype, v.writable, v.layout, v.owner[0])  # the capsule alone
    del base
    gc.collect()
    assert gone() is not None
    del v
    gc.collect()
    assert gone() is None


class Elsewhere(WithDLPack):
    def __dlpack_device__(self) -> Any:
        return (2, 0)


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (np.zeros(3, ">f4"), "byte-swapped.*astype"),
        (np.zeros(9, np.uint8)[1:].view(np.float64), "not aligned.*copy"),
        (np.zeros(3, np.complex64), "complex64.*f32"),
        (np.zeros(3, object), "object"),
        (np.zeros(3, "U2"), "U2"),
        (np.zeros(3, np.longdouble), "longdouble|float128"),
        (np.zeros(3, [("a", "f4")]), "dtype"),
        (Elsewhere(np.zeros(3)), "CPU"),
        (WithDLPack(np.zeros(3, np.complex64)), "5:64:1"),
    ],
    ids=["swapped", "unaligned", "complex", "object", "text", "long double", "record", "elsewhere", "foreign dlpack"],
)
def test_a_tensor_that_cannot_be_taken_is_an_argument_error_that_says_what_to_do(obj: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=f"(?s)`image`.*({words})"):
        as_tensor(obj, "image")


# ---- torch ----


@pytest.fixture(scope="session")
def torch() -> Any:
    return pytest.importorskip("torch")


def test_torch_tensors_of_every_dtype_are_seen_where_they_are(torch: Any) -> None:
    names = "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
    for number, name in enumerate(names):
        t = torch.zeros((4, 6), dtype=getattr(torch, name))[1:, :3]
        v = view(t)
        itemsize = t.element_size()
        assert (v.pointer, v.shape, v.strides) == (t.data_ptr(), (3, 3), (6 * itemsize, itemsize))
        assert (v.dtype, v.layout, v.writable, v.is_torch) == (number, 1, True, True)
        assert v.owner is t


def test_torch_tensors_that_cannot_be_taken_say_why(torch: Any) -> None:
    for tensor, words in [
        (torch.zeros(3, requires_grad=True), "grad.*detach"),
        (torch.zeros(3, device="meta"), "meta.*cpu"),
        (torch.zeros(3, dtype=torch.complex64), "complex64"),
        (torch.eye(3).to_sparse(), "sparse.*to_dense"),
        (torch.zeros(3, dtype=torch.complex64).conj().imag, "resolve_neg"),
    ]:
        with pytest.raises(ArgumentError, match=f"(?s)`x`.*{words}"):
            view(tensor)


def test_torch_tensors_take_the_fast_path(torch: Any, kernels: Any) -> None:
    entry = kernels.entry(Runtime(1), "echo", ("int",) * 5)
    d = Dispatcher(("n", "x"), lambda args, kwargs: "slow")
    t = torch.zeros((4, 6))
    assert d.register((5, t), entry, ["int", "tensor"])
    assert d(5, t) == (t.data_ptr(), 4, 6, 24, 4)
    other = torch.zeros((1, 7))
    assert d(5, other) == (other.data_ptr(), 1, 7, 28, 4)
    assert d(5, t[:, :3]) == "slow"
    assert d(5, t.T) == "slow"
    assert d(5, t.double()) == "slow"
    assert d(5, np.zeros((4, 6), np.float32)) == "slow"  # keyed apart: results differ in kind
    recorded = torch.zeros((4, 6), requires_grad=True)
    assert d(5, recorded) == "slow"
    with torch.no_grad():
        assert d(5, recorded) == (recorded.data_ptr(), 4, 6, 24, 4)
    assert d(5, recorded) == "slow"
    assert d(5, torch.zeros((4, 6), device="meta")) == "slow"
    for changed in (t[::2, 1:4], t.T, t[:, :1], t[:0], t[1:2]):
        assert d.register((5, changed), entry, ["int", "tensor"])
        assert d(5, changed) == tuple(view(changed).slots())


def test_a_parameter_of_a_torch_module_goes_the_slow_way(torch: Any, kernels: Any) -> None:
    d = Dispatcher(("x",), lambda args, kwargs: "slow")
    t = torch.nn.Parameter(torch.zeros(3))
    assert d.register((t,), kernels.entry(Runtime(1), "nothing"), ["tensor"]) is False
    assert d(t) == "slow"


def test_jax_arrays_are_read_only(kernels: Any) -> None:
    jax = pytest.importorskip("jax.numpy")
    v = view(jax.arange(6, dtype="float32").reshape(2, 3))
    assert (v.shape, v.strides, v.dtype, v.writable) == ((2, 3), (12, 4), 2, False)
    assert view(jax.zeros(3, "bfloat16")).dtype == 1

# SPDX-License-Identifier: MIT
"""Reading tensors of any library without copying: the slow path's counterpart of `csrc/dispatch/arguments.c`."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from pto_jit.errors import ArgumentError
from pto_jit.slotted import frozen

from . import _dispatch

_NAMES = ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
_SIZES = (2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_BY_NUMPY: dict[tuple[str, int], int] = {
    ("f", 2): 0, ("f", 4): 2, ("f", 8): 3, ("i", 1): 4, ("i", 2): 5, ("i", 4): 6, ("i", 8): 7,
    ("u", 1): 8, ("u", 2): 9, ("u", 4): 10, ("u", 8): 11, ("b", 1): 12,
}  # fmt: skip
_DL_CPU = 1
_DL_CUDA = 2

LAYOUTS = ("C-contiguous", "inner-contiguous", "strided")


@frozen
class TensorView:
    """Where a tensor's memory is.

    `shape` in elements, `strides` in bytes, `dtype` a dtype id (`pto_jit.dtypes`), `layout` 0 C-contiguous,
    1 inner-contiguous, 2 strided; `owner` keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: int
    writable: bool
    layout: int
    owner: Any
    is_torch: bool = False
    device: str = "cpu"

    @property
    def itemsize(self) -> int:
        return _SIZES[self.dtype]

    @property
    def elements(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def slots(self) -> list[int]:
        """The tensor as a kernel gets it: pointer, extents, strides in bytes."""
        return [self.pointer, *self.shape, *self.strides]


def layout_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """The layout class; axes of extent 1 do not count, and an empty tensor is C-contiguous (as in NumPy's flags)."""
    if 0 in shape:
        return 0
    packed, inner = True, True
    step = itemsize
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            continue
        stride = strides[axis]
        packed = packed and stride == step
        step *= shape[axis]
        last = axis == len(shape) - 1
        inner = inner and stride >= 0 and stride % itemsize == 0 and (not last or stride == itemsize)
    return 0 if packed else 1 if inner else 2


def packed_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides in bytes of a C-contiguous array."""
    strides: list[int] = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def as_tensor(obj: Any, name: str = "argument", *, device: bool = False) -> TensorView | None:
    """A view of `obj`, or None when it is not a tensor.

    Takes NumPy arrays, torch CPU tensors, and whatever has the buffer protocol, `__array_interface__` or DLPack; never
    copies.  `name` is what an error calls it.  `device`: tensors in the memory of a GPU too, of torch or with
    `__cuda_array_interface__` or DLPack.  Raises ArgumentError for a tensor that cannot be taken as it is.
    """
    if isinstance(obj, np.ndarray):
        return _from_numpy(obj, obj, name)
    if isinstance(obj, (np.generic, str, int, float, type)) or obj is None:
        return None
    kind = type(obj)
    if is_torch(kind):
        return _from_torch(obj, name, device=device)
    if device and hasattr(obj, "__cuda_array_interface__"):
        return _from_cuda(obj, name)
    if hasattr(kind, "__array_interface__") or hasattr(kind, "__array_struct__"):
        return _from_numpy(_without_copy(obj, name), obj, name)
    try:
        memory = memoryview(obj)
    except (TypeError, BufferError, ValueError):
        memory = None
    if memory is not None and not (memory.format in _OPAQUE_FORMATS and hasattr(kind, "__dlpack__")):
        return _from_numpy(_without_copy(memory, name), obj, name)
    if hasattr(kind, "__dlpack__"):
        return _from_dlpack(obj, name, is_torch=False, device=device)
    return None


_OPAQUE_FORMATS = ("E", "2s", "2x", "V2", "=E", "2V")  # how bfloat16 looks in a buffer: DLPack knows better


def is_torch(kind: type) -> bool:
    """Whether a class is torch's tensor or derived from it."""
    if kind.__module__ == "torch" and kind.__name__ == "Tensor":
        return True
    return any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in kind.__mro__)


def _refuse(name: str, reason: str, action: str) -> NoReturn:
    raise ArgumentError(f"`{name}` {reason}; {action}")


def _without_copy(obj: Any, name: str) -> np.ndarray[Any, Any]:
    """The ndarray that shares the memory of an object with the buffer protocol or `__array_interface__`."""
    try:
        array = np.asarray(obj)
    except (TypeError, ValueError, BufferError) as error:
        _refuse(name, f"has an element type or a layout that NumPy cannot read ({error})", "pass a NumPy array")
    interface = getattr(obj, "__array_interface__", None)
    if isinstance(interface, dict) and isinstance(interface.get("data"), tuple):
        pointer = interface["data"][0]
        if array.size and array.ctypes.data != pointer + interface.get("offset", 0):
            _refuse(name, "does not show its memory", "pass a NumPy array")
    return array


def _dtype_id(dtype: np.dtype[Any], name: str) -> int:
    if dtype == _BFLOAT16:
        return 1
    found = _BY_NUMPY.get((dtype.kind, dtype.itemsize))
    if found is None or dtype.names is not None:
        _refuse(name, f"has dtype {dtype}, which kernels do not have", f"convert it to one of {', '.join(_NAMES)}")
    if not dtype.isnative:
        _refuse(
            name, f"has the byte-swapped dtype {dtype.str}", f"pass `{name}.astype({dtype.newbyteorder('=').str!r})`"
        )
    return found


def _from_numpy(array: np.ndarray[Any, Any], owner: Any, name: str) -> TensorView:
    dtype = _dtype_id(array.dtype, name)
    if not array.flags.aligned:
        _refuse(name, "is not aligned to its element size", f"pass `{name}.copy()`")
    keep = owner if owner is array else (array, owner)
    return _view(array.ctypes.data, array.shape, array.strides, dtype, array.flags.writeable, keep, False)


def _view(
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: int,
    writable: bool,
    owner: Any,
    is_torch: bool,
    device: str = "cpu",
) -> TensorView:
    shape = tuple(shape)
    layout, strides = _laid_out(shape, tuple(strides), _SIZES[dtype])
    return TensorView(pointer, shape, strides, dtype, writable, layout, owner, is_torch, device)


@lru_cache(1024)
def _laid_out(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, tuple[int, ...]]:
    """The layout class, and strides without those that mean nothing: of axes of extent 1, and of empty tensors."""
    layout = layout_of(shape, strides, itemsize)
    if layout == 0:
        return layout, packed_strides(shape, itemsize)
    if layout == 1:
        given: list[int] = []
        step = itemsize
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
            given.append(step if extent == 1 else stride)
            step = given[-1] * extent
        return layout, tuple(reversed(given))
    return layout, strides


def _from_torch(tensor: Any, name: str, *, device: bool = False) -> TensorView:
    if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():  # not in `Function.forward`, nor in `no_grad`
        _refuse(
            name,
            "is a torch tensor that requires grad, and gradients do not flow through a kernel",
            f"pass `{name}.detach()`, or call the kernel in a torch.autograd.Function or under torch.no_grad()",
        )
    memory = tensor.device.type
    if memory != "cpu" and not (device and memory == "cuda"):
        _refuse(name, f"is a torch tensor on {tensor.device}", f"pass `{name}.cpu()`")
    if tensor.is_nested:
        _refuse(name, "is a nested torch tensor", f"pass `{name}.to_padded_tensor(value)`, or its tensors one by one")
    layout = str(tensor.layout)
    if layout != "torch.strided":
        _refuse(name, f"is a torch tensor of layout {layout}", f"pass `{name}.to_dense()`")
    if tensor.is_neg() or tensor.is_conj():
        _refuse(
            name, "is a torch view that negates or conjugates lazily", f"pass `{name}.resolve_neg().resolve_conj()`"
        )
    dtype = _TORCH_DTYPES.get(str(tensor.dtype))
    if dtype is None:
        _refuse(
            name, f"has dtype {tensor.dtype}, which kernels do not have", f"convert it to one of {', '.join(_NAMES)}"
        )
    itemsize = _SIZES[dtype]
    pointer = _torch_pointer(tensor, name)
    if pointer % itemsize:
        _refuse(name, "is not aligned to its element size", f"pass `{name}.clone()`")
    strides = tuple([step * itemsize for step in tensor.stride()])
    return _view(pointer, tuple(tensor.shape), strides, dtype, True, tensor, True, memory)


def _torch_pointer(tensor: Any, name: str) -> int:
    """The address of a torch tensor's first element; those of some classes, and inside `torch.vmap`, have none."""
    base = sys.modules["torch"].Tensor
    if getattr(type(tensor), "__torch_dispatch__", None) is base.__torch_dispatch__:
        try:
            pointer = tensor.data_ptr()
        except RuntimeError:  # a tensor of a transformation
            pointer = 0
        if pointer or not tensor.numel():
            return pointer
    _refuse(name, f"is a {type(tensor).__name__} of torch without memory of its own", "pass an ordinary tensor")


def _from_cuda(obj: Any, name: str) -> TensorView:
    """A tensor of another library in the memory of a GPU, by version 3 of the CUDA array interface."""
    interface = obj.__cuda_array_interface__
    if interface.get("mask") is not None:
        _refuse(name, "is a masked array, and a kernel would read what is masked", "pass its data and its mask")
    dtype = _dtype_id(np.dtype(interface["typestr"]), name)
    address, read_only = interface["data"]
    pointer = int(address or 0)  # empty tensors may have none
    shape = tuple(int(n) for n in interface["shape"])
    strides = interface.get("strides") or packed_strides(shape, _SIZES[dtype])
    if pointer % _SIZES[dtype]:
        _refuse(name, "is not aligned to its element size", "pass a copy")
    return _view(pointer, shape, tuple(strides), dtype, not read_only, obj, False, "cuda")


_TORCH_DTYPES = {
    f"torch.{torch_name}": i
    for i, torch_name in enumerate(
        ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64",
         "uint8", "uint16", "uint32", "uint64", "bool")
    )
}  # fmt: skip


def _from_dlpack(obj: Any, name: str, *, is_torch: bool, device: bool = False) -> TensorView:
    taken = (_DL_CPU, _DL_CUDA) if device else (_DL_CPU,)
    place = getattr(obj, "__dlpack_device__", None)
    if place is not None:
        where = place()
        if int(where[0]) not in taken:
            _refuse(name, f"is not in CPU memory (DLPack device {tuple(map(int, where))})", "copy it to the CPU first")
    capsule = _capsule(obj, name)
    try:
        pointer, shape, strides, dtype, writable, device_type, kind = _dispatch.read_dlpack(capsule)
    except BufferError as error:
        _refuse(name, f"cannot be read through DLPack ({error})", "pass a NumPy array")
    if device_type not in taken:
        _refuse(name, f"is not in CPU memory (DLPack device {device_type})", "copy it to the CPU first")
    if dtype is None:
        _refuse(name, f"has the DLPack dtype {kind} (code:bits:lanes), which kernels do not have",
                f"convert it to one of {', '.join(_NAMES)}")  # fmt: skip
    if pointer % _SIZES[dtype]:
        _refuse(name, "is not aligned to its element size", "pass a copy")
    # An unversioned capsule cannot say that it is read-only; libraries with immutable arrays say so elsewhere.
    if writable is None:
        flags = getattr(obj, "flags", None)
        writable = bool(getattr(flags, "writeable", True))
    memory = "cpu" if device_type == _DL_CPU else "cuda"
    return _view(pointer, shape, strides, dtype, writable, (capsule, obj), is_torch, memory)


def _capsule(obj: Any, name: str) -> Any:
    """An unconsumed DLPack capsule, versioned if the producer can, made without a copy if the producer can say so."""
    for options in ({"max_version": (1, 0), "copy": False}, {"max_version": (1, 0)}, {}):
        try:
            return obj.__dlpack__(**options)
        except TypeError as error:
            if not options:
                _refuse(name, f"cannot be read through DLPack ({error})", "pass a NumPy array")
        except (BufferError, ValueError, RuntimeError) as error:
            _refuse(name, f"cannot be read through DLPack ({error})", "pass a NumPy array")
    raise AssertionError("the last way returned or raised")

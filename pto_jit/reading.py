# SPDX-License-Identifier: MIT
"""What the values of a call are: tensors, run-time numbers, or objects that exist at compile time.

Keys hold content only (numbers, strings, digests), so their `repr` means the same in every process, unless something
has nothing but its identity (`Arguments.local`).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pto_jit import dtypes
from pto_jit.codegen.fingerprint import Fingerprint, fingerprint
from pto_jit.codegen.params import ContainerParam, Param, ParamKind, ScalarParam, StaticParam, TensorParam
from pto_jit.dtypes import DType, f64, i64
from pto_jit.errors import ArgumentError, ShapeError
from pto_jit.ir.types import Layout, TensorType
from pto_jit.language import Symbol, Tensor, TensorSpec, constexpr
from pto_jit.objects import BackReference, attributes_of, class_print, is_opaque
from pto_jit.runtime.tensors import as_tensor
from pto_jit.slotted import field, frozen, mutable
from pto_jit.source import METHODS

if TYPE_CHECKING:
    from pto_jit.arguments import Parameters

LAYOUTS: tuple[Layout, ...] = ("c", "inner", "strided")
_PLAIN = (bool, int, float, complex, str, bytes, types.NoneType)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, functools.partial, np.ufunc)


@frozen
class Spec:
    """`pto.spec(shape, dtype)`: a tensor argument that does not exist yet; None in the shape is a run-time extent."""

    shape: tuple[int | None, ...]
    dtype: DType

    def __repr__(self) -> str:
        return f"pto.spec({self.shape}, {self.dtype!r})"


@mutable
class Arguments:
    """The arguments of one call, described.

    plan: per bound argument what the fast path does with it ("tensor", "int", "float", "scalar", "static"), or None
    when the argument needs the slow path every time.  extents: what the fast path checks (see `Dispatcher.register`).
    prints: identities of callables and classes, whose guards must hold.  tensors: (name, view) of each tensor, in
    order.  torch: the first tensor is a torch tensor.  local: the key means something in this process only.
    lists: some argument is, or has, a FractalTensor.
    """

    params: list[Param] = field(default_factory=list)
    key: tuple[Any, ...] = ()
    slots: list[int | float] = field(default_factory=list)
    plan: list[str | None] = field(default_factory=list)
    extents: list[tuple[int, ...]] = field(default_factory=list)
    prints: list[Fingerprint] = field(default_factory=list)
    tensors: list[tuple[str, Any]] = field(default_factory=list)
    torch: bool = False
    local: bool = False
    lists: bool = False

    @property
    def elements(self) -> int:
        """Elements of all tensors together."""
        return sum(view.elements for _, view in self.tensors)

    @property
    def owners(self) -> list[Any]:
        """What keeps the tensors' memory alive."""
        return [view.owner for _, view in self.tensors]


class Reader:
    """Reads the arguments of one call, one after the other."""

    def __init__(self, parameters: Parameters, *, device: bool = False) -> None:
        """`device`: tensors may be in the memory of a GPU."""
        self.parameters = parameters
        self.device = device
        self.call = Arguments()
        self.keys: list[Any] = []
        self.symbols: dict[str, tuple[int | None, str, int, int]] = {}
        self.name = ""  # of the argument that is read
        self.path: list[Any] = []  # objects around the one that is read, outermost first

    def result(self) -> Arguments:
        if self.call.lists:
            from pto_jit.fractal.compile.argument import specialised

            self.call.params, shapes = specialised(self.call.params, [view.shape for _, view in self.call.tensors])
            self.keys.append(("shapes", shapes))
        self.call.key = tuple(self.keys)
        return self.call

    # -- one argument -------------------------------------------------------------------------------------------

    def argument(self, name: str, value: Any, annotation: Any, *, is_self: bool) -> None:
        self.name = name
        if annotation is constexpr:
            what, key, plan = self._constexpr(value)
        elif isinstance(annotation, TensorSpec):
            what, key, plan = self._annotated(value, annotation)
        elif getattr(annotation, "__pto_list__", False):
            what, key, plan = self._annotated_list(value, annotation)
        elif is_self:
            what, key = self.object(value)
            plan = None
        else:
            what, key, plan = self._top(value)
            if annotation is Tensor and not isinstance(what, TensorParam) and self._is_no_tensor(what, value, plan):
                several = isinstance(value, (list, tuple))
                hint = "pass an array: `np.asarray(...)` makes one of a list" if several else "pass an array"
                self._refuse("PTO-A002", f"must be a tensor, got {kind_of(value)}", hint)
        self.call.params.append(Param(name, what))
        self.call.plan.append(plan)
        self.keys.append(key)

    @staticmethod
    def _is_no_tensor(what: ParamKind, value: Any, plan: str | None) -> bool:
        """Whether a value for a parameter annotated `pl.Tensor` is of no use there: None may stand for "no tensor"."""
        return plan in ("int", "float", "scalar") or (isinstance(what, StaticParam) and value is not None)

    def _top(self, value: Any) -> tuple[ParamKind, Any, str | None]:
        """An argument without a telling annotation: numbers are run-time values here."""
        kind = type(value)
        if isinstance(value, Spec):
            tensor = TensorType(value.dtype, value.shape, "c")
            return TensorParam(tensor), _tensor_key(value.dtype.id, 0, value.shape), None
        if isinstance(value, np.generic) and not isinstance(value, (str, bytes)):
            dtype = self._scalar_dtype(value)
            self.call.slots.append(float(value) if dtype.is_float else int(value))
            return ScalarParam(dtype, False), ("scalar", dtype.id), "scalar"
        if isinstance(value, (bool, enum.Enum)) or not isinstance(value, (int, float)):
            what, key = self.read(value, top=True)
            return what, key, self._static_plan(value) if isinstance(what, StaticParam) else _tensor_plan(what)
        if isinstance(value, float):
            self.call.slots.append(float(value))
            return ScalarParam(f64, True), "float", "float" if kind is float else None
        if not -(2**63) <= value < 2**63:
            said = value if value.bit_length() <= 128 else f"an integer of {value.bit_length()} bits"
            self._refuse("PTO-A003", f"is {said}, which does not fit 64 bits",
                         "pass a float, or an integer from -2**63 to 2**63 - 1")  # fmt: skip
        self.call.slots.append(int(value))
        return ScalarParam(i64, True), "int", "int" if kind is int else None

    def _static_plan(self, value: Any) -> str | None:
        """Whether identity of the object (with the guards of `call.prints`) is enough to skip the slow path."""
        if isinstance(value, METHODS):
            return None  # a new object at every access
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return None  # read by its fields, which may change, also where it can be called
        kinds = (bool, str, types.NoneType, DType, enum.Enum, np.dtype)
        return "static" if isinstance(value, kinds) or callable(value) else None

    def _constexpr(self, value: Any) -> tuple[ParamKind, Any, str | None]:
        try:
            hash(value)
        except TypeError:
            self._refuse("PTO-A004", f"is annotated `pl.constexpr` and must be hashable; {kind_of(value)} is not",
                         "pass a tuple, a string, a number or a frozen dataclass")  # fmt: skip
        if type(value) in _PLAIN:
            return StaticParam(value), ("constexpr", type(value).__name__, repr(value)), "static"
        return StaticParam(value), ("constexpr", self._content(value)), "static"

    def _annotated(self, value: Any, annotation: TensorSpec) -> tuple[ParamKind, Any, str | None]:
        """A tensor with the dtype, rank and extents of `pl.Tensor[[M, 64], pl.f32]`."""
        what, key, plan = self._top(value)
        if not isinstance(what, TensorParam):
            self._refuse("PTO-A002", f"must be a tensor, `{annotation!r}`, got {kind_of(value)}", "pass an array")
        shape = value.shape if isinstance(value, Spec) else self.call.tensors[-1][1].shape
        if len(shape) != annotation.ndim:
            self._refuse("PTO-A005", f"has rank {len(shape)}, `{annotation!r}` has rank {annotation.ndim}",
                         "reshape it, or change the annotation")  # fmt: skip
        if what.type.dtype != annotation.dtype:
            self._refuse("PTO-A006", f"has dtype {what.type.dtype}, {annotation.dtype} is wanted",
                         f"pass `{self.name}.astype({annotation.dtype.numpy.name!r})`")  # fmt: skip
        position = len(self.call.params)
        fixed: list[int | None] = list(what.type.shape)
        names: list[str | None] = [None] * annotation.ndim
        for axis, (extent, wanted) in enumerate(zip(shape, annotation.shape, strict=True)):
            if isinstance(wanted, int):
                fixed[axis] = wanted
                self.call.extents.append((position, axis, wanted))
                if extent not in (None, wanted):
                    raise ShapeError(
                        f"{self.parameters.fn.__name__}: axis {axis} of `{self.name}` has extent {extent}, "
                        f"`{annotation!r}` wants {wanted}",
                        self.parameters.place(self.name), code="PTO-H100", hint=f"pass an array with {wanted} there",
                    )  # fmt: skip
            elif isinstance(wanted, Symbol):
                names[axis] = wanted.name
                self._symbol(wanted.name, extent, position, axis)
        kind = dataclasses.replace(what.type, shape=tuple(fixed))
        return TensorParam(kind, tuple(names)), (*key, tuple(fixed), tuple(names)), plan

    def _annotated_list(self, value: Any, annotation: Any) -> tuple[ParamKind, Any, str | None]:
        """A FractalTensor with the depth and leaves of `ft.FractalTensor[pl.Tensor[[1, 64], pl.f32]]`."""
        leaf: TensorSpec = annotation.leaf
        if getattr(value, "leaf_shape", None) is None:
            self._refuse("PTO-A002", f"must be a list, `{annotation!r}`, got {kind_of(value)}", "pass a FractalTensor")
        for what, has, wanted in (("depth", value.depth, annotation.depth), ("leaves of rank", len(value.leaf_shape),
                                                                             leaf.ndim)):  # fmt: skip
            if has != wanted:
                self._refuse("PTO-A005", f"has {what} {has}, `{annotation!r}` has {wanted}",
                             "pass another list, or change the annotation")  # fmt: skip
        if value.dtype != leaf.dtype:
            self._refuse("PTO-A006", f"has leaves of dtype {value.dtype}, `{annotation!r}` is wanted",
                         f"make it of arrays of {leaf.dtype.numpy.name!r}")  # fmt: skip
        for axis, (extent, wanted) in enumerate(zip(value.leaf_shape, leaf.shape, strict=True)):
            if isinstance(wanted, int) and extent != wanted:
                raise ShapeError(
                    f"{self.parameters.fn.__name__}: axis {axis} of the leaves of `{self.name}` has extent {extent}, "
                    f"`{annotation!r}` wants {wanted}",
                    self.parameters.place(self.name), code="PTO-H100", hint=f"pass leaves with {wanted} there",
                )  # fmt: skip
            if isinstance(wanted, Symbol):
                self._symbol(wanted.name, extent, len(self.call.params), axis)
        return self._top(value)

    def _symbol(self, name: str, extent: int | None, position: int, axis: int) -> None:
        """One symbol has one value over all arguments of a call."""
        known = self.symbols.get(name)
        if known is None:
            self.symbols[name] = (extent, self.name, position, axis)
            return
        other, first, first_position, first_axis = known
        self.call.extents.append((first_position, first_axis, position, axis))
        if None not in (extent, other) and extent != other:
            raise ShapeError(
                f"{self.parameters.fn.__name__}: `{name}` is {other} (axis {first_axis} of `{first}`) and {extent} "
                f"(axis {axis} of `{self.name}`)",
                self.parameters.place(self.name), code="PTO-H101",
                hint="one symbol has one value over all arguments of a call: pass arrays that agree",
            )  # fmt: skip

    # -- any value ----------------------------------------------------------------------------------------------

    def read(self, value: Any, *, top: bool = False) -> tuple[ParamKind, Any]:
        """The description and key of an argument or of something inside one: numbers are compile-time values here."""
        kind = type(value)
        if (kind is not bytes and kind in _PLAIN) or isinstance(value, str):
            if kind is complex and top:
                self._refuse("PTO-A007", "is a complex number", "pass its real and imaginary parts")
            return StaticParam(value), (kind.__name__, repr(value)) if kind in _PLAIN else self._content(value)
        if isinstance(value, DType):
            return StaticParam(value), ("dtype", value.name)
        if isinstance(value, np.generic):
            return StaticParam(value), ("np", self._scalar_dtype(value).id, repr(value))
        if isinstance(value, type):
            return StaticParam(value), self._class(value)
        if isinstance(value, (enum.Enum, np.dtype, set, frozenset, range, slice)):
            return StaticParam(value), self._content(value)
        if isinstance(value, (tuple, list, dict)):
            return self._within(value, self._mapping if isinstance(value, dict) else self._sequence)
        lists = sys.modules.get("pto_jit.fractal.tensor")
        if lists is not None and kind is lists.FractalTensor:
            return self._fractal(value)
        zipped = sys.modules.get("pto_jit.fractal.zipped")
        if zipped is not None and kind is zipped.Zipped:
            self._refuse("PTO-A008", "is a zipped list, which a kernel cannot take", zipped.PASS_LISTS)
        if not isinstance(value, _FUNCTIONS):
            found = self._tensor(value)
            if found is not None:
                return found
        if isinstance(value, types.ModuleType):
            self.call.local = True
            held = tuple((n, _Same(v)) for n, v in vars(value).items())
            return StaticParam(value), ("module", value.__name__, held)
        if callable(value) and not dataclasses.is_dataclass(value):
            return StaticParam(value), self._content(value)
        if dataclasses.is_dataclass(value) or isinstance(value, types.SimpleNamespace) or not top:
            return self.object(value)
        hint = ("pass tensors, numbers, functions, or tuples, dicts and dataclasses of them; or annotate the parameter "
                "`pl.constexpr`")  # fmt: skip
        if hasattr(kind, "__array__"):  # columns of data frames: what NumPy would have to make an array of
            hint = f"pass an array: `numpy.asarray({self.name})`"
        if self._is_owner(value):
            hint = f"name the first parameter of a method `self`, not `{self.name}`"
        self._refuse("PTO-A008", f"is {kind_of(value)}, which a kernel cannot take", hint)

    def _is_owner(self, value: Any) -> bool:
        """Whether the first argument is an object of the class that the kernel was defined in."""
        first = self.parameters.positional[:1]
        owner = getattr(self.parameters.fn, "__qualname__", "").rpartition(".")[0]
        return [p.name for p in first] == [self.name] and any(c.__qualname__ == owner for c in type(value).__mro__)

    def object(self, value: Any) -> tuple[ParamKind, Any]:
        """An object by its attributes: `self`, a dataclass, or anything inside another argument."""
        return self._within(value, self._attributes)

    def _content(self, value: Any) -> Any:
        """The key of a callable or another object that only its content identifies."""
        found = fingerprint(value)
        self.call.prints.append(found)
        self.call.local |= found.local
        return ("content", found.digest)

    def _tensor(self, value: Any) -> tuple[ParamKind, Any] | None:
        call = self.call
        if isinstance(value, np.ndarray) and any(b.__name__ == "MaskedArray" for b in type(value).__mro__):
            self._refuse("PTO-A015", "is a masked array, and a kernel would read what is masked",
                         f"pass `{self.name}.filled(value)`, or `{self.name}.data` together with the mask")  # fmt: skip
        try:
            view = as_tensor(value, self.name, device=self.device)
        except ArgumentError as error:
            reason, _, action = str(error).rpartition("; ")
            name = self.parameters.fn.__name__
            if reason.startswith(f"`{self.name}` "):
                self._refuse("PTO-A009", reason.removeprefix(f"`{self.name}` "), action)
            raise ArgumentError(f"PTO-A009: {name}: {error}") from None
        if view is None:
            return None
        call.slots += view.slots()
        call.torch |= view.is_torch and not call.tensors
        call.tensors.append((self.name, view))
        kind = TensorType(dtypes.BY_ID[view.dtype], (None,) * len(view.shape), LAYOUTS[view.layout])
        return TensorParam(kind), _tensor_key(view.dtype, view.layout, kind.shape)

    def _fractal(self, value: Any) -> tuple[ParamKind, Any]:
        """A FractalTensor: its leaves, whose shape is known at compile time, and the offsets of its levels."""
        from pto_jit.fractal.compile.argument import described

        self.call.lists = True

        def tensor(array: np.ndarray[Any, Any], shape: tuple[int | None, ...]) -> TensorParam:
            found = self._tensor(array)
            assert found is not None and isinstance(found[0], TensorParam)
            return TensorParam(dataclasses.replace(found[0].type, shape=shape))

        return described(value, tensor)

    def _scalar_dtype(self, value: np.generic) -> DType:
        dtype = dtypes.from_numpy(value.dtype)
        if dtype is None:
            self._refuse("PTO-A010", f"has the NumPy dtype {value.dtype}, which kernels do not have",
                         f"convert it to one of {', '.join(t.name for t in dtypes.ALL)}")  # fmt: skip
        return dtype

    # -- containers ---------------------------------------------------------------------------------------------

    def _within(self, value: Any, read: Callable[[Any], tuple[ParamKind, Any]]) -> tuple[ParamKind, Any]:
        """Read a container; one that contains itself ends there."""
        for depth, around in enumerate(self.path):
            if around is value:
                return _Back(BackReference(value)), ("cycle", depth)
        self.path.append(value)
        name = self.name
        try:
            return read(value)
        finally:
            self.path.pop()
            self.name = name

    def _sequence(self, value: tuple[Any, ...] | list[Any]) -> tuple[ParamKind, Any]:
        name = self.name
        items: list[tuple[Any, ParamKind]] = []
        keys: list[Any] = []
        for position, item in enumerate(value):
            self.name = f"{name}[{position}]"
            what, key = self.read(item)
            items.append((position, what))
            keys.append(key)
        kind = type(value)
        key = (kind.__name__ if kind in (tuple, list) else self._class(kind), *keys)
        if all(type(what) is StaticParam for _, what in items):
            return StaticParam(value), key
        return ContainerParam("tuple" if isinstance(value, tuple) else "list", tuple(items), value), key

    def _mapping(self, value: dict[Any, Any]) -> tuple[ParamKind, Any]:
        name = self.name
        items: list[tuple[Any, ParamKind]] = []
        keys: list[Any] = []
        for at, item in value.items():
            self.name = f"{name}[{at!r}]"
            what, key = self.read(item)
            items.append((at, what))
            keys.append((self.read(at)[1], key))
        if all(type(what) is StaticParam for _, what in items):
            return StaticParam(value), ("dict", *keys)
        return ContainerParam("dict", tuple(items), value), ("dict", *keys)

    def _attributes(self, value: Any) -> tuple[ParamKind, Any]:
        if is_opaque(value):
            self.call.local = True
            return StaticParam(value), ("opaque", _Same(value))
        name = self.name
        items: list[tuple[Any, ParamKind]] = []
        keys: list[Any] = []
        for attribute, item in attributes_of(value):
            self.name = f"{name}.{attribute}"
            what, key = self.read(item)
            keys.append((attribute, key))
            if type(what) is not StaticParam:
                items.append((attribute, what))
        key = ("object", self._class(type(value)), *keys)
        if not items:
            return StaticParam(value), key
        return ContainerParam("object", tuple(items), value), key

    def _class(self, cls: type) -> Any:
        return class_print(cls, self.call)

    def _refuse(self, code: str, message: str, hint: str) -> NoReturn:
        top = self.parameters.place(self.name.split(".")[0].split("[")[0])
        raise self.parameters.error(code, f"argument `{self.name}` {message}", hint, top)


class _Back(StaticParam):
    """A reference back to a container: the front end gets a stand-in, so it is never part of a static container."""

    __slots__ = ()


class _Same:
    """Compares by identity of what it holds, and keeps that alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _tensor_key(dtype: int, layout: int, shape: tuple[int | None, ...]) -> tuple[Any, ...]:
    fixed = (shape,) if any(extent is not None for extent in shape) else ()
    return ("tensor", dtype, len(shape), layout, *fixed)


def _tensor_plan(what: ParamKind) -> str | None:
    return "tensor" if isinstance(what, TensorParam) else None


def kind_of(value: Any) -> str:
    """`a foo.Bar`, for messages."""
    if isinstance(value, (int, float, str, bool)):
        return f"the {type(value).__name__} {value!r}"
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"

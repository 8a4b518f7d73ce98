# SPDX-License-Identifier: MIT
"""Attributes of run-time values, and Python's own functions applied to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.elementwise import binary_op, truth, unary
from pto_jit.codegen.builtins.promote import value_of
from pto_jit.codegen.builtins.reduction import python_reduction
from pto_jit.codegen.builtins.registry import call
from pto_jit.codegen.values import Scalar, Tensor, Tile, is_runtime, static_extent
from pto_jit.dtypes import bool_, f64, i64
from pto_jit.errors import CompilationError, TypeMismatchError

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


class BoundMethod:
    """A method of a run-time value, called like any function with (args, kwargs)."""

    __slots__ = ("function", "name")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


_METHODS = ("sum", "prod", "max", "min", "mean", "argmax", "argmin", "any", "all", "reshape", "transpose")


def attribute(cg: Generator, value: Any, name: str) -> Any:
    """`value.name` of a Scalar, Tile or Tensor."""
    if name == "dtype":
        return value.dtype
    if name in ("to", "astype"):
        return BoundMethod(name, lambda dtype: call("cast", cg, (value, dtype), {}))
    if not isinstance(value, Scalar):
        if name == "shape":
            return tuple(_extent(e) for e in value.extents)
        if name == "ndim":
            return value.rank
        if name == "size":
            total: Any = 1
            for extent in value.extents:
                item = _extent(extent)
                total = total * item if not is_runtime(total) and not is_runtime(item) else binary_op(
                    cg, "mul", total, item)  # fmt: skip
            return total
        if name == "T":
            return call("transpose", cg, (value,), {})
        if name in _METHODS:
            def method(*args: Any, **kwargs: Any) -> Any:
                if name in ("reshape", "transpose") and len(args) > 1:
                    args = (args,)  # as NumPy's methods: the extents or axes one by one
                return call(name, cg, (value, *args), kwargs)

            return BoundMethod(name, method)
    kind = {Scalar: "scalar", Tile: "tile", Tensor: "tensor"}[type(value)]
    known = ["dtype", "to", *([] if isinstance(value, Scalar) else ["shape", "ndim", "size", "T", *_METHODS])]
    from difflib import get_close_matches  # an error is on its way: not every compilation's cost

    close = get_close_matches(name, known, 1)
    raise cg.error(CompilationError, f"a run-time {kind} has no attribute `{name}`", code="PTO-N011",
                   hint=f"did you mean `{close[0]}`?" if close else f"it has {', '.join(known)}")  # fmt: skip


def _extent(operand: Any) -> Any:
    known = static_extent(operand)
    return known if known is not None else Scalar(operand, True)


def python_builtin(fn: Any, cg: Generator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A Python builtin (`abs`, `min`, `len`, `int`, ...) with at least one run-time argument."""
    return _BUILTINS[fn.__name__](cg, *args, **kwargs)


def _extreme(name: str) -> Callable[..., Any]:
    def handler(cg: Generator, *args: Any) -> Any:
        values = list(args)
        if len(values) == 1:
            if isinstance(values[0], (Tile, Tensor)):
                return call(name, cg, (values[0],), {})
            values = _listed(cg, values[0])
        return python_reduction(cg, name, values)

    return handler


def _listed(cg: Generator, values: Any) -> list[Any]:
    """The items of the one argument of `min`, `max` or `sum`."""
    assert cg.node is not None
    return cg.expressions.iterate(values, cg.node)


def _sum(cg: Generator, values: Any, start: Any = 0) -> Any:
    if isinstance(values, (Tile, Tensor)):
        total = call("sum", cg, (values,), {})
        return total if not is_runtime(start) and start == 0 else binary_op(cg, "add", total, start)
    items = _listed(cg, values)
    if is_runtime(start) or start != 0:
        items = [start, *items]
    return python_reduction(cg, "sum", items) if items else 0


def _len(cg: Generator, value: Any) -> Any:
    if isinstance(value, Scalar):
        raise cg.error(TypeMismatchError, "`len` of a number", code="PTO-T071", hint="a scalar has no length")
    if not isinstance(value, (Tile, Tensor)):
        own = getattr(type(value), "__pto_length__", None)
        return own(value, cg) if own is not None else len(value)  # a container of run-time values
    return _extent(value.extents[0])


def _number(cg: Generator, value: Any, what: str) -> Scalar:
    number = value_of(cg, value, what)
    if not isinstance(number, Scalar):
        raise cg.error(TypeMismatchError, f"{what} takes a number, not a tile", code="PTO-T072",
                       hint="convert a tile with `.to(dtype)`")  # fmt: skip
    return number


def _int(cg: Generator, value: Any) -> Scalar:
    return Scalar(cg.e.cast(_number(cg, value, "int"), i64).operand, True, cg.e.loc)


def _float(cg: Generator, value: Any) -> Scalar:
    return Scalar(cg.e.cast(_number(cg, value, "float"), f64).operand, True, cg.e.loc)


def _bool(cg: Generator, value: Any) -> Scalar:
    return Scalar(cg.e.cast(truth(cg, value), bool_).operand, True, cg.e.loc)


def _round(cg: Generator, value: Any, digits: Any = None) -> Any:
    if digits is not None:
        raise cg.error(TypeMismatchError, "`round` with digits of a run-time value", code="PTO-T073",
                       hint="scale, round and scale back")  # fmt: skip
    number = value_of(cg, value, "round")
    rounded = unary(cg, "round", number)
    if isinstance(rounded, Scalar) and rounded.dtype.is_float:
        return _int(cg, rounded)
    return rounded


def _divmod(cg: Generator, a: Any, b: Any) -> tuple[Any, Any]:
    return binary_op(cg, "floordiv", a, b), binary_op(cg, "mod", a, b)


def _pow(cg: Generator, a: Any, b: Any) -> Any:
    return binary_op(cg, "pow", a, b)


def _abs(cg: Generator, value: Any) -> Any:
    return unary(cg, "abs", value)


_BUILTINS: dict[str, Callable[..., Any]] = {
    "abs": _abs, "min": _extreme("min"), "max": _extreme("max"), "sum": _sum, "len": _len, "int": _int,
    "float": _float, "bool": _bool, "round": _round, "pow": _pow, "divmod": _divmod,
}  # fmt: skip

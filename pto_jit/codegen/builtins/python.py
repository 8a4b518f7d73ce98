# SPDX-License-Identifier: MIT
"""Attributes of run-time values, and Python's own functions applied to them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.elementwise import binary_op, unary
from pto_jit.codegen.builtins.promote import value_of
from pto_jit.codegen.builtins.reduction import python_reduction
from pto_jit.codegen.builtins.registry import call
from pto_jit.codegen.frames import MISSING
from pto_jit.codegen.values import Scalar, Tensor, Tile, is_runtime, static_extent
from pto_jit.dtypes import f64, i64
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
        from pto_jit.codegen.libraries import method as method_of_numpy  # few kernels need it

        found = method_of_numpy(cg, value, name)
        if found is not None:
            return BoundMethod(name, found)
    kind = {Scalar: "scalar", Tile: "tile", Tensor: "tensor"}[type(value)]
    known = ["dtype", "to", *([] if isinstance(value, Scalar) else ["shape", "ndim", "size", "T", *_METHODS])]
    from difflib import get_close_matches  # an error is on its way: not every compilation's cost

    from pto_jit.codegen.numpy_names import method as method_hint

    close = get_close_matches(name, known, 1)
    hint = method_hint(name) or (f"did you mean `{close[0]}`?" if close else f"it has {', '.join(known)}")
    raise cg.error(CompilationError, f"a run-time {kind} has no attribute `{name}`", code="PTO-N011", hint=hint)


def _extent(operand: Any) -> Any:
    known = static_extent(operand)
    return known if known is not None else Scalar(operand, True)


_OWN = {"abs": "__abs__", "round": "__round__", "len": "__len__", "int": "__int__", "float": "__float__"}


def python_builtin(fn: Any, cg: Generator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A Python builtin (`abs`, `min`, `len`, `int`, ...) with at least one run-time argument."""
    name = fn.__name__
    own = cg.operators.method(args[0], _OWN[name]) if name in _OWN and args else None
    return _BUILTINS[name](cg, *args, **kwargs) if own is None else own(*args[1:])


def one_axis(cg: Generator, name: str, value: Tile | Tensor) -> Tile | Tensor:
    """The tile or tensor that one of Python's functions over items is given: those of one with more axes are rows."""
    if value.rank == 1:
        return value
    kind = type(value).__name__.lower()
    raise cg.error(
        TypeMismatchError,
        f"Python's `{name}` goes through the rows of a {kind} with {value.rank} axes",
        code="PTO-T005",
        hint=f"write `pl.{name}(t)` for all elements, `pl.{name}(t, axis=0)` for one row of them",
        notes=cg.origin(value),
    )


def _extreme(name: str) -> Callable[..., Any]:
    fn: Any = min if name == "min" else max

    def handler(cg: Generator, *args: Any, key: Any = None, default: Any = MISSING) -> Any:
        values = list(args)
        if default is not MISSING and len(args) != 1:
            cg.python(fn, *(0 for _ in args), default=0)  # an error of Python's
        if len(values) == 1:
            if isinstance(values[0], (Tile, Tensor)) and key is None and default is MISSING:
                return call(name, cg, (one_axis(cg, name, values[0]),), {})
            values = _listed(cg, values[0])
        if not values:
            return default if default is not MISSING else cg.python(fn, values)
        if key is not None:
            return _best_by(cg, ast.Lt if name == "min" else ast.Gt, values, key)
        if cg.find_runtime(values) is None:  # a generator's items turned out to be compile-time values
            return cg.python(fn, values)
        return python_reduction(cg, name, values)

    return handler


def _best_by(cg: Generator, better: type[ast.cmpop], values: list[Any], key: Any) -> Any:
    """The first of `values` whose key no other one's is better than."""
    node = cg.node
    assert node is not None
    best, least = values[0], cg.inline(key, (values[0],), {})
    for value in values[1:]:
        rank = cg.inline(key, (value,), {})
        cg.node = node
        found = cg.operators.truth(cg.operators.compare(better, rank, least))
        if isinstance(found, Scalar):
            best, least = (
                cg.choices.choose(found, lambda new=new: new, lambda old=old: old, node)
                for new, old in ((value, best), (rank, least))
            )
        elif found:
            best, least = value, rank
    return best


def _listed(cg: Generator, values: Any) -> list[Any]:
    """The items of the one argument of `min` or `max`."""
    assert cg.node is not None
    return cg.items.all_of(values, cg.node)


def _sum(cg: Generator, values: Any, start: Any = 0) -> Any:
    """As Python: `start + a + b + ...`."""
    node = cg.node
    assert node is not None
    if isinstance(values, (Tile, Tensor)):
        total = call("sum", cg, (one_axis(cg, "sum", values),), {})
        return total if type(start) is int and start == 0 else cg.operators.operate(ast.Add, total, start)
    total = start
    for item in cg.items.each(values, node):
        cg.node = node
        if total is start and type(start) is int and start == 0 and _is_integer(item):
            total = value_of(cg, item)  # which 0 does not change; it makes i64 of bools, and 0.0 of -0.0
        else:
            total = cg.operators.operate(ast.Add, total, item)
    return total


def _is_integer(value: Any) -> bool:
    return is_runtime(value) and value.dtype.is_integer


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


def _bool(cg: Generator, value: Any) -> Scalar | bool:
    found = cg.operators.truth(value)
    return Scalar(found.operand, True, cg.e.loc) if isinstance(found, Scalar) else found


def _round(cg: Generator, value: Any, digits: Any = None) -> Any:
    if digits is not None:
        raise cg.error(TypeMismatchError, "`round` with digits of a run-time value", code="PTO-T073",
                       hint="scale, round and scale back")  # fmt: skip
    number = value_of(cg, value, "round")
    rounded = unary(cg, "round", number)
    if isinstance(rounded, Scalar) and rounded.dtype.is_float:
        return _int(cg, rounded)
    return rounded


def _divmod(cg: Generator, a: Any, b: Any) -> Any:
    for value, other, name in ((a, b, "__divmod__"), (b, a, "__rdivmod__")):
        own = cg.operators.method(value, name, other)
        if own is not None and (found := own(other)) is not NotImplemented:
            return found
    return binary_op(cg, "floordiv", a, b), binary_op(cg, "mod", a, b)


def _pow(cg: Generator, a: Any, b: Any) -> Any:
    return cg.operators.operate(ast.Pow, a, b)


def _abs(cg: Generator, value: Any) -> Any:
    return unary(cg, "abs", value)


_BUILTINS: dict[str, Callable[..., Any]] = {
    "abs": _abs, "min": _extreme("min"), "max": _extreme("max"), "sum": _sum, "len": _len, "int": _int,
    "float": _float, "bool": _bool, "round": _round, "pow": _pow, "divmod": _divmod,
}  # fmt: skip

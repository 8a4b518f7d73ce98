# SPDX-License-Identifier: MIT
"""A Python function of tiles as an in-core function of a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pto_jit.arguments import Parameters
from pto_jit.codegen.compilation import compile_program
from pto_jit.codegen.params import Param, ParamKind, ScalarParam, StaticParam, TensorParam
from pto_jit.dtypes import DType
from pto_jit.errors import CompilationError, Loc, TypeMismatchError
from pto_jit.ir.nodes import Block, Func, Return, Scope, Stmt
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import rewrite_block
from pto_jit.language import TensorSpec
from pto_jit.reading import Spec
from pto_jit.slotted import replace


def incore_function(fn: Any, types: Sequence[Any], named: Mapping[str, Any], name: str | None, loc: Loc) -> Func:
    """The in-core function that `fn` (of `pto.incore`, or any Python function of tiles) is for parameters of the types.

    Raises the CompilationErrors of the front end, and TypeMismatchError at `loc` for types that do not describe the
    parameters, for a tensor that is created, and for results.
    """
    python = getattr(fn, "__pto_incore__", None) or getattr(fn, "__pto_jit__", None) or fn
    if not callable(python) or not hasattr(python, "__code__"):
        raise TypeMismatchError(f"{fn!r} is not a function", loc, code="PTO-T242", hint="give a `@pto.incore` function")
    parameters = Parameters(python, {})
    program = compile_program(python, _params(parameters, types, named, loc))
    func = program.module.func(program.module.entry)
    if func.results:
        raise TypeMismatchError(
            f"`{func.name}` returns a value, and a call in a module has nowhere to put it", loc, code="PTO-T241",
            hint="write the result to a tensor parameter",
        )  # fmt: skip
    body = rewrite_block(func.body, _without_scope)
    if not body or not isinstance(body[-1], Return):
        body = (*body, Return((), func.loc))
    return replace(func, name=name or func.name, kind="incore", body=body)


def _without_scope(stmt: Stmt) -> Block | None:
    return stmt.body if isinstance(stmt, Scope) else None


def _params(parameters: Parameters, types: Sequence[Any], named: Mapping[str, Any], loc: Loc) -> list[Param]:
    """A description of each parameter: given, or read from its annotation."""
    names = [p.name for p in parameters.named]
    given = dict(zip(names, types, strict=False))
    unknown = [n for n in named if n not in names]
    if len(types) > len(names) or unknown or any(n in given for n in named):
        what = f"no parameter `{unknown[0]}`" if unknown else f"{len(names)} parameters"
        raise TypeMismatchError(f"`{parameters.fn.__name__}` has {what}", loc, code="PTO-T240",
                                hint="give one type for each parameter")  # fmt: skip
    given.update(named)
    found: list[Param] = []
    for parameter in parameters.named:
        value = given.get(parameter.name, parameters.annotations.get(parameter.name, parameter.empty))
        if parameter.name in given or isinstance(value, (TensorSpec, DType)):
            found.append(Param(parameter.name, _kind(value)))
        elif parameter.default is parameter.empty:
            raise CompilationError(
                f"the type of `{parameter.name}` of `{parameters.fn.__name__}` is not known", loc, code="PTO-P036",
                hint=f"give it: `register(fn, {parameter.name}=pto.spec((8, 8), pl.f32))`, or a dtype for a scalar",
            )  # fmt: skip
    return found


def _kind(value: Any) -> ParamKind:
    if isinstance(value, Spec):
        return TensorParam(TensorType(value.dtype, value.shape))
    if isinstance(value, TensorSpec):
        extents = tuple(extent if isinstance(extent, int) else None for extent in value.shape)
        return TensorParam(TensorType(value.dtype, extents))
    dtype = getattr(value, "dtype", None) if not isinstance(value, DType) else value
    if isinstance(dtype, DType):  # an ElementType too
        return ScalarParam(dtype, weak=False)
    return StaticParam(value)

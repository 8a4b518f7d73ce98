# SPDX-License-Identifier: MIT
"""Calls of functions that are loop IR already: built with `PTOFunctionBuilder` or read from `.pto` text.

They are put in the place of the call like everything else: an in-core function as a named scope, an orchestration
function as a part of this one.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.promote import to_dtype
from pto_jit.codegen.emit import constant
from pto_jit.codegen.values import Scalar, Tensor, is_runtime
from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.ir.instances import Instances
from pto_jit.ir.isa.expansion import constant as check_number
from pto_jit.ir.nodes import Block, Call, Func, Module, Operand, Scope, Stmt, Var
from pto_jit.ir.splice import can_splice, splice
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import rewrite_block
from pto_jit.semantic.rules import infer

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def call_built(g: Generator, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The value of a call of the entry of `module`: None, a run-time number, or a tuple of them."""
    func = module.func(module.entry)
    values = _bind(g, func, args, kwargs)
    operands = tuple(_operand(g, func, param, value) for param, value in zip(func.params, values, strict=True))
    instances = Instances(module.funcs, infer)
    chosen = instances.funcs[instances.for_arguments(func.name, [operand.type for operand in operands], g.e.loc)]
    if func.kind == "orchestration" and g.in_scope:
        raise g.error(CompilationError, f"in-core code calls the orchestration function `{func.name}`", code="PTO-P028",
                      hint="call it outside `with pl.incore():`")  # fmt: skip
    results: list[Var] = []
    for kind in chosen.results:
        if not isinstance(kind, ScalarType):
            raise g.error(TypeMismatchError, f"`{func.name}` returns a tensor", code="PTO-T179",
                          hint="let it write a tensor that it is given")  # fmt: skip
        results.append(g.e.fresh("result", kind))
    loc = g.e.loc
    body = _Placing(g, instances).spliced(chosen, operands, results)
    if func.kind == "incore" and not g.in_scope:
        body = (Scope(func.name.split(".")[0], body, True, loc),)
    for stmt in body:
        g.e.append(stmt)
    made = tuple(Scalar(result, False, loc) for result in results)
    return None if not made else made[0] if len(made) == 1 else made


class _Placing:
    def __init__(self, g: Generator, instances: Instances) -> None:
        self.g, self.instances = g, instances

    def spliced(self, func: Func, args: Sequence[Operand], results: Sequence[Var]) -> Block:
        """The body of `func` here, with the functions that it calls in their places."""
        g = self.g
        if not can_splice(func):
            raise g.error(CompilationError, f"`{func.name}` returns before its end", code="PTO-P037",
                          hint="a function that kernels call returns at its end")  # fmt: skip

        def visit(stmt: Stmt) -> Block | None:
            if not isinstance(stmt, Call):
                return None
            callee = self.instances.funcs[stmt.callee]
            body = self.spliced(callee, stmt.args, stmt.results)
            if callee.kind == func.kind or g.in_scope:
                return body
            return (Scope(callee.name.split(".")[0], body, True, stmt.loc),)

        return rewrite_block(splice(func, args, results, g.e.fresh, g.e.loc), visit)


def _bind(g: Generator, func: Func, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [p.name if p.name.isidentifier() else f"p{k}" for k, p in enumerate(func.params)]
    try:
        bound = inspect.Signature([inspect.Parameter(name, kind) for name in names]).bind(*args, **kwargs)
    except TypeError as error:
        reason = str(error).replace("'", "`")
        raise g.error(TypeMismatchError, f"`{func.name}`: {reason}", code="PTO-T230",
                      hint=f"its parameters are {', '.join(names)}") from None  # fmt: skip
    return list(bound.arguments.values())


def _operand(g: Generator, func: Func, param: Var, value: Any) -> Operand:
    if not isinstance(param.type, ScalarType):
        if isinstance(value, Tensor):
            return value.var
        raise g.error(TypeMismatchError, f"`{func.name}` takes a tensor for `{param.name}`", code="PTO-T231",
                      hint="pass a tensor or a slice of one")  # fmt: skip
    dtype = param.type.dtype
    if isinstance(value, Scalar):
        both = value.dtype.is_integer == dtype.is_integer and value.dtype.is_float == dtype.is_float
        if value.dtype == dtype or both or (value.weak and dtype.is_float):
            found = to_dtype(g, value, dtype)
            assert isinstance(found, Scalar)
            return found.operand
    elif isinstance(value, (bool, int, float)) and not is_runtime(value):
        check_number(value, dtype, g.e.loc)
        return constant(value, dtype)
    raise g.error(TypeMismatchError, f"`{func.name}` takes a number of {dtype} for `{param.name}`", code="PTO-T232",
                  hint=f"convert it: `pl.{dtype}(...)`")  # fmt: skip

# SPDX-License-Identifier: MIT
"""Functions for arguments of other types than they were declared with.

A function declares what it wants to know of its tensors: extents, a layout.  A caller may have less to offer: a part of
a wider tensor has another row pitch, the last part of a tensor may be short.  Then the callee is made once more for
what the caller has, under its name with a number behind it; only contradictions are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.errors import CompilationError, Loc, ShapeError, TypeMismatchError
from pto_jit.ir.isa.expansion import Infer
from pto_jit.ir.nodes import Call, Func, Op, Stmt, Var
from pto_jit.ir.type_text import fits
from pto_jit.ir.types import ScalarType, TensorType, TileType, Type
from pto_jit.ir.walk import rewrite_block, with_operands
from pto_jit.slotted import replace

MAX_ROUNDS = 64


def check_argument(given: Type, formal: Var, callee: str, loc: Loc) -> None:
    """An error at `loc` when no function for `formal` can take what is given."""
    wanted = formal.type
    what = f"@{callee} takes %{formal.name}: {wanted}, it is given {given}"
    if type(given) is not type(wanted) or given.dtype != wanted.dtype:
        raise TypeMismatchError(what, loc, code="PTO-T194", hint="give what the parameter is declared as")
    if isinstance(given, ScalarType) or isinstance(wanted, ScalarType):
        return
    if len(given.shape) != len(wanted.shape):
        raise ShapeError(what, loc, code="PTO-H151", hint=f"give a tensor of {len(wanted.shape)} axes")
    if any(None not in (g, w) and g != w for g, w in zip(given.shape, wanted.shape, strict=True)):
        raise ShapeError(what, loc, code="PTO-H152", hint="give a tensor, or a part of one, of these extents")


class Instances:
    """The functions of a module by name, and those made of them."""

    def __init__(self, funcs: Sequence[Func], infer: Infer) -> None:
        self.funcs = {func.name: func for func in funcs}
        self.infer = infer
        self.made: list[Func] = []
        self._known: dict[tuple[str, tuple[Type, ...]], str] = {}

    def for_arguments(self, callee: str, given: Sequence[Type], loc: Loc) -> str:
        """The name of the function that takes `given` in place of `callee`: itself when they fit."""
        func = self.funcs[callee]
        for kind, formal in zip(given, func.params, strict=True):
            check_argument(kind, formal, callee.split(".")[0], loc)
        if all(fits(kind, formal.type) for kind, formal in zip(given, func.params, strict=True)):
            return callee
        wanted = tuple(p.type if fits(k, p.type) else k for k, p in zip(given, func.params, strict=True))
        known = self._known.get((callee, wanted))
        if known is None:
            made = retyped(func, wanted, self.infer, self.for_arguments)
            known = self._existing(made) or self._add(made)
            self._known[callee, wanted] = known
        return known

    def _existing(self, made: Func) -> str | None:
        """An equal function that was made of the same one before."""
        for name, func in self.funcs.items():
            if name.split(".")[0] == made.name.split(".")[0] and replace(func, name=made.name) == made:
                return name
        return None

    def _add(self, made: Func) -> str:
        base, count = made.name.split(".")[0], 1
        while f"{base}.{count}" in self.funcs:
            count += 1
        func = replace(made, name=f"{base}.{count}")
        self.funcs[func.name] = func
        self.made.append(func)
        return func.name


def retyped(
    func: Func, types: Sequence[Type], infer: Infer, resolve: Callable[[str, Sequence[Type], Loc], str]
) -> Func:
    """`func` with parameters of other types, and what follows from them in its body.

    `resolve` names the callee for argument types.  Raises the errors of `infer`, at the operation, when the body cannot
    be written for these types.
    """
    env: dict[str, Type] = {p.name: kind for p, kind in zip(func.params, types, strict=True)}
    for _ in range(MAX_ROUNDS):
        before = dict(env)
        body = rewrite_block(func.body, lambda stmt: _retype(stmt, env, infer))
        if env == before:
            break
    else:
        raise TypeMismatchError(f"@{func.name} cannot be written for these arguments", func.loc, code="PTO-T187",
                                hint="declare its parameters with these types")  # fmt: skip

    def visit(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Call):
            return stmt
        callee = resolve(stmt.callee, [arg.type for arg in stmt.args], stmt.loc)
        return stmt if callee == stmt.callee else replace(stmt, callee=callee)

    params = tuple(Var(p.name, env[p.name]) for p in func.params)
    return replace(func, params=params, body=rewrite_block(body, visit))


def _retype(stmt: Stmt, env: dict[str, Type], infer: Infer) -> Stmt:
    def define(var: Var) -> Var:
        kind = env.get(var.name, var.type)
        return var if kind == var.type else Var(var.name, kind)

    stmt = with_operands(stmt, lambda operand: define(operand) if isinstance(operand, Var) else operand, define)
    if isinstance(stmt, Op):
        try:
            found = infer(stmt.op, stmt.args, dict(stmt.attrs), stmt.regions)
        except CompilationError as error:
            raise error.at(stmt.loc) from None
        for result, kind in zip(stmt.results, found, strict=True):
            if not fits(kind, result.type):
                env[result.name] = _wider(result.type, kind)
    return stmt


def _wider(a: Type, b: Type) -> Type:
    """The type that says what both say."""
    if isinstance(a, ScalarType) or isinstance(b, ScalarType) or len(a.shape) != len(b.shape):
        return b
    shape = tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True))
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        layouts = ("c", "inner", "strided")
        return TensorType(a.dtype, shape, layouts[max(layouts.index(a.layout), layouts.index(b.layout))])  # pyright: ignore
    return TileType(a.dtype, shape)

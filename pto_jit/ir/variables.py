# SPDX-License-Identifier: MIT
"""Reading variables, operands and types of results from `.pto` text."""

from __future__ import annotations

import re
from collections.abc import Container

from pto_jit.dtypes import f64, i64
from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.ir.cursor import SCALARS, Cursor
from pto_jit.ir.isa.expansion import Infer
from pto_jit.ir.lexer import Source, Token
from pto_jit.ir.nodes import Const, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType, Type
from pto_jit.slotted import field, mutable

I64 = ScalarType(i64)
_NUMBER = re.compile(r"\d{1,18}(\.\d*)?", re.ASCII)


@mutable
class FunctionScope:
    """What is known about the function being parsed."""

    types: dict[str, Type] = field(default_factory=dict)
    declared: dict[str, Var] = field(default_factory=dict)  # by alloc_scalar or alloc_tile, not assigned so far
    calls: bool = False
    temporaries: set[str] = field(default_factory=set)  # tensors that only calls name


class Variables(Cursor):
    """A cursor that knows the variables of the function it reads.

    `ops` are the known operations, `infer` types them; both may be left out.
    """

    def __init__(self, source: Source, tokens: list[Token], ops: Container[str] | None, infer: Infer | None) -> None:
        super().__init__(source, tokens)
        self.ops = ops
        self.infer = infer
        self.scope = FunctionScope()
        self.bare: list[Const] = []  # numbers of this statement that were written without a dtype

    def params(self) -> tuple[Var, ...]:
        self.expect("(")
        params: list[Var] = []
        while not self.accept(")"):
            if params:
                self.expect(",")
            token = self.next("var", "a parameter, `%name: type`")
            self.expect(":")
            params.append(self.define(token, self.type()))
            if params[-1] in params[:-1]:
                self.wrong(CompilationError, f"two parameters are called {token.text}", token, "PTO-P011", "rename one")
        return tuple(params)

    def result_types(self, count: int, *, several: bool = False) -> tuple[Type, ...]:
        """`: T, T`, or `: operand types -> T, T`; the operand types are not needed.

        With `several` the types of the operands may follow or stand before that of the one result without an arrow, as
        some writers have it: then the tile type is meant.
        """
        if not self.accept(":"):
            if count:
                self.fail("`:` and the type of the result")
            return ()
        start = self.token
        types = self.type_list() if self.token.text == "(" else self.comma_types()
        if self.accept("->"):
            types = self.type_list() if self.token.text == "(" else self.comma_types()
        elif several and len(types) > count:
            types = tuple(type for type in types if isinstance(type, TileType))[:count] or types
        if len(types) != count:
            self.fail(f"{count} result type{'' if count == 1 else 's'}", start)
        return types

    # -- variables and operands ---------------------------------------------------------------------------------

    def define(self, token: Token, type: Type) -> Var:
        name = self.name(token)
        known = self.scope.types.setdefault(name, type)
        if known != type:
            self.wrong(TypeMismatchError, f"{token.text} is {known} and cannot become {type}", token, "PTO-T191",
                       "a variable has one type; use another name")  # fmt: skip
        self.scope.declared.pop(name, None)
        return Var(name, known)

    def use(self) -> Var:
        token = self.next("var", "a variable")
        name = self.name(token)
        known = self.scope.types.get(name)
        if known is None:
            self.wrong(CompilationError, f"{token.text} is not defined", token, "PTO-P013",
                       "define it above: a parameter, a result, or `alloc_scalar`")  # fmt: skip
        if isinstance(known, TileType) and name in self.scope.declared:
            self.wrong(CompilationError, f"the tile {token.text} is read before anything is assigned to it", token,
                       "PTO-N063", "load it, or fill it with `texpands`")  # fmt: skip
        return Var(name, known)

    def is_operand(self) -> bool:
        return self.token.kind in ("var", "number")

    def operand(self) -> Operand:
        """`%x`, `3`, `1.5:f32`, `true`."""
        token = self.token
        if token.kind == "var":
            return self.immediate(token) or self.use()
        if token.kind != "number":
            self.fail("an operand: a variable, a number, `true` or `false`")
        value = self.number()
        _, colon, name = token.text.partition(":")
        if not colon:
            name = "bool_" if isinstance(value, bool) else "i64" if isinstance(value, int) else "f64"
        if name not in SCALARS:
            self.fail("a number with a known dtype, like `1.0:f32`", token)
        found = Const(value, SCALARS[name])
        if not colon:
            self.bare.append(found)
        return found

    def immediate(self, token: Token) -> Const | None:
        """A number written like a variable, `%1.0`, unless a variable has that name."""
        name = self.name(token)
        if name in self.scope.types or not _NUMBER.fullmatch(name):
            return None
        self.at += 1
        found = Const(int(name), I64) if name.isdecimal() else Const(float(name), ScalarType(f64))
        self.bare.append(found)
        return found

    def operands(self) -> tuple[Operand, ...]:
        """Operands and groups of them in brackets, up to something that is none."""
        result: list[Operand] = []
        first = True
        while True:
            if self.token.text == "[":
                self.at += 1
                while not self.accept("]"):
                    result.append(self.operand())
                    if self.token.text != "]":
                        self.expect(",")
            elif first and not self.is_operand():
                return ()
            else:
                result.append(self.operand())
            first = False
            if self.token.text != "[" and not self.accept(","):
                return tuple(result)

    def comma_operands(self) -> tuple[Operand, ...]:
        if not self.is_operand():
            return ()
        result = [self.operand()]
        while self.accept(","):
            result.append(self.operand())
        return tuple(result)

    # -- variables made here ------------------------------------------------------------------------------------

    def fresh(self, hint: str, type: Type) -> Var:
        """A variable with an unused name like `hint`."""
        name, count = hint, 0
        while name in self.scope.types:
            count += 1
            name = f"{hint}{count}"
        self.scope.types[name] = type
        return Var(name, type)

    def index(self, operand: Operand, token: Token, out: list[Stmt]) -> Operand:
        """An integer operand as i64: a variable of another integer type is cast."""
        if operand.type == I64:
            return operand
        if not isinstance(operand.type, ScalarType) or not operand.type.dtype.is_integer:
            self.wrong(TypeMismatchError, f"{token.text} is {operand.type}, not {I64}", token, "PTO-T192", "cast it")
        if isinstance(operand, Const):
            return Const(int(operand.value), I64)
        result = self.fresh(f"{operand.name}.idx", I64)
        out.append(Op("cast", (result,), (operand,), (("dtype", i64),), (), self.loc(token)))
        return result

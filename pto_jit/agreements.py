# SPDX-License-Identifier: MIT
"""What sizes of arguments have to be: checked where a program begins, for those that call it without asking.

What symbols demand is checked before a launch from Python (`reading`); what a comprehension demands beyond that, before
a call of it (`comprehensions.results`), but not of what `compile` gives.  Before, of
`x: pl.Tensor[[N], pl.f32], y: pl.Tensor[[N], pl.f32]`::

    func @double(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
      ...
    }

After::

    func @double(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
      %x_n0 = sdim %x {axis=0} : i64
      %y_n0 = sdim %y {axis=0} : i64
      %ok = seq %x_n0, %y_n0 : bool_
      sassert %ok, %x_n0, %y_n0 {always=true, error="ShapeError", message="PTO-H101: ...", told="..."}
      ...
    }
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.codegen.params import Param, TensorParam, leaves
from pto_jit.codegen.spelling import places
from pto_jit.dtypes import i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Const, Func, Module, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.lower.names import BOOL, Names, Scalars, index

_COMPARISONS: dict[type, str] = {ast.GtE: "ge", ast.LtE: "le", ast.Eq: "eq"}
_ARITHMETIC: dict[type, str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv"}
_ONE = "one symbol has one value over all arguments of a call: pass arrays that agree"


def with_agreements(
    module: Module, function: Callable[..., Any], params: Sequence[Param], *, symbols: bool = True,
    conditions: bool = True,
) -> Module:  # fmt: skip
    """The program with checks of what is demanded of the sizes of its arguments; the module itself without demands.

    symbols: that those in the annotations of `function` have one value each; conditions: of the comprehension that
    `function` was made from.
    """
    entry = module.func(module.entry)
    writer = _Writer(entry, params, getattr(function, "__pto_checks__", None))
    if symbols:
        writer.symbols()
    if conditions:
        writer.conditions()
    block = writer.block
    if not any(isinstance(s, Op) and s.op == "assert" for s in block):
        return module
    checked = Func(entry.name, entry.kind, entry.params, entry.results, (*block, *entry.body), entry.loc)
    return Module(module.name, tuple(checked if f is entry else f for f in module.funcs), module.entry)


class _Writer:
    """Statements before those of an entry.

    given: of a comprehension, the place of each size as (parameter, axis; None: its value), its `Check`s, and where it
    stands.
    """

    def __init__(self, entry: Func, params: Sequence[Param], given: Any) -> None:
        self.entry, self.params, self.given = entry, params, given
        self.names = Names(entry)
        self.loc: Loc = entry.loc if given is None else given[2]
        self.scalars = Scalars(self.names, self.loc)
        self.block: list[Stmt] = self.scalars.block
        self._numbers: dict[tuple[str, int | None], Operand] = {}

    def symbols(self) -> None:
        """One symbol has one value over all arguments."""
        found: dict[str, tuple[Operand, str]] = {}
        runtime = [leaf for p in self.params for leaf in leaves(p.what)]
        texts = places(self.params, None)
        if len(runtime) != len(self.entry.params) or len(texts) != len(runtime):
            return
        for var, leaf, place in zip(self.entry.params, runtime, texts, strict=True):
            for axis, symbol in enumerate(leaf.symbols if isinstance(leaf, TensorParam) else ()):
                if symbol is None:
                    continue
                number = self._size(var, axis)
                where = self._where(axis, place.text)
                known, first = found.setdefault(symbol, (number, where))
                if known is number or (isinstance(known, Const) and isinstance(number, Const)):
                    continue
                ok = self._compared("eq", known, number)
                if self.given is None:
                    message = f"PTO-H101: `{symbol}` is "
                    told = f"{{0}} ({first}) and {{1}} ({where}); {_ONE}"
                else:
                    message = f"PTO-R021: mismatched sizes for dimension `{symbol}`: "
                    told = f"{{0}} in {first}, but {{1}} in {where}; `{symbol}` is one size: make them equal"
                self._check(ok, message, told, known, number)

    def _where(self, axis: int, text: str) -> str:
        return f"axis {axis} of `{text}`" if self.given is None else f"dimension {axis} of `{text}`"

    def conditions(self) -> None:
        """What a comprehension demands of its sizes beyond that."""
        if self.given is None:
            return
        for check in self.given[1]:
            ok = self._value(ast.parse(check.condition, mode="eval").body)
            self._check(ok, f"{check.code}: {check.message}; {check.hint}", "")

    # -- operations -----------------------------------------------------------------------------------------------

    def _check(self, ok: Operand, message: str, told: str, *numbers: Operand) -> None:
        attrs = [("always", True), ("error", "ShapeError"), ("message", message)]
        attrs += [("told", told)] if told else []
        self.block.append(Op("assert", (), (ok, *numbers), tuple(attrs), (), self.loc))

    def _size(self, var: Var, axis: int) -> Operand:
        """An extent of a parameter."""
        assert isinstance(var.type, TensorType)
        known = var.type.shape[axis]
        if known is not None:
            return index(known)
        key = var.name, axis
        if key not in self._numbers:
            result = self.names.fresh(f"{var.name}_n{axis}")
            self._numbers[key] = result
            self.block.append(Op("dim", (result,), (var,), (("axis", axis),), (), self.loc))
        return self._numbers[key]

    def _number(self, var: Var) -> Operand:
        """A parameter that is a number, as i64."""
        assert isinstance(var.type, ScalarType)
        if var.type.dtype == i64:
            return var
        key = var.name, None
        if key not in self._numbers:
            result = self._numbers[key] = self.names.fresh(f"{var.name}_n")
            self.block.append(Op("cast", (result,), (var,), (("dtype", i64),), (), self.loc))
        return self._numbers[key]

    def _compared(self, op: str, a: Operand, b: Operand) -> Var:
        result = self.names.fresh("ok", BOOL)
        self.block.append(Op(op, (result,), (a, b), (), (), self.loc))
        return result

    def _value(self, node: ast.expr) -> Operand:
        """A condition or an expression over sizes, from its text in Python."""
        match node:
            case ast.Constant(value=int(number)):
                return index(number)
            case ast.Name(id=name):
                position, axis = self.given[0][name]
                var = self.entry.params[position]
                return self._number(var) if axis is None else self._size(var, axis)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self.scalars.op("sub", index(0), self._value(inner))
            case ast.BinOp(left=left, op=op, right=right):
                return self.scalars.op(_ARITHMETIC[type(op)], self._value(left), self._value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(_COMPARISONS[type(op)], self._value(left), self._value(right))
            case ast.Call(func=ast.Name(id=("min" | "max") as name), args=[first, *others]):
                value = self._value(first)
                for other in others:
                    value = self.scalars.op(name, value, self._value(other))
                return value
            case ast.BoolOp(op=op, values=[first, *others]):
                value = self._value(first)
                for other in others:
                    value = self._compared("or" if isinstance(op, ast.Or) else "and", value, self._value(other))
                return value
        raise AssertionError(ast.unparse(node))

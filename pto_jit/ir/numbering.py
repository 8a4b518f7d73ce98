# SPDX-License-Identifier: MIT
"""Functions that are the same program but for the names of their variables, and perhaps for constants.

Variables are numbered in the order of their appearance, as in::

    %a = tload %x[0, 0]      %b = tload %y[0, 0]       1 = tload 0[0, 0]
    tstore %a, %x[0, 0]      tstore %b, %y[0, 0]       tstore 1, 0[0, 0]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from pto_jit.ir.nodes import (
    Break,
    Call,
    Const,
    Continue,
    For,
    Func,
    Fuse,
    If,
    Op,
    Reduction,
    Region,
    Return,
    Scope,
    Var,
    While,
)
from pto_jit.ir.types import Type
from pto_jit.slotted import compared, frozen

_NODES = frozenset((Func, Op, For, While, If, Scope, Fuse, Call, Return, Break, Continue, Region, Reduction))


@frozen(eq=False)
class Numbered:
    """A function with numbers for names.

    key: equal for functions that are the same program, whatever they and their variables are called; numbers: of the
    variables, by name, in the order of their appearance; types: of the variables, in that order; constants: those that
    do not count, in the order of their appearance.
    """

    key: object
    numbers: dict[str, int]
    types: tuple[Type, ...]
    constants: tuple[int, ...] = ()


def numbered(func: Func, free: Callable[[Op], range] | None = None) -> Numbered:
    """A function with numbers for names; its places in the source do not count.

    free: the operands of an operation whose constants do not count: functions that differ in these have the same key.
    """
    writer = _Writer() if free is None else _FreeWriter(free)
    for field in _fields(Func):
        if field != "name":
            writer.value(getattr(func, field))
    constants = tuple(writer.constants) if type(writer) is _FreeWriter else ()
    return Numbered((tuple(writer.key), tuple(writer.types)), writer.numbers, tuple(writer.types), constants)


@cache
def _fields(node: type) -> tuple[str, ...]:
    return compared(node)


class _Writer:
    """Writes nodes one after the other into one key, each tuple after its length."""

    def __init__(self) -> None:
        self.key: list[Any] = []
        self.numbers: dict[str, int] = {}
        self.types: list[Type] = []

    def value(self, value: Any) -> None:
        kind = type(value)
        if kind is Var:
            self.key.append(self.number(value))
        elif kind is tuple:
            self.key.append(len(value))
            for item in value:
                if type(item) is Op and not item.regions:
                    self.op(item)
                else:
                    self.value(item)
        elif kind in _NODES:
            self.key.append(kind)
            for field in _fields(kind):
                item = getattr(value, field)
                if kind is Fuse and field == "keep":  # names of variables of the body
                    item = tuple([self.numbers.get(name, name) for name in item])
                self.value(item)
        else:
            self.key.append(value)

    def op(self, op: Op) -> None:
        """An operation without regions, which nearly all statements are: the same as `value`, and quicker."""
        number, numbers = self.number, self.numbers
        self.key += (op.op, op.attrs, len(op.args), len(op.results))
        for var in op.args:
            if type(var) is Var:
                known = numbers.get(var.name)
                self.key.append(number(var) if known is None else known)
            else:
                self.key.append(var)
        self.key += [number(var) for var in op.results]

    def number(self, var: Var) -> int:
        """The number of a variable."""
        known = self.numbers.get(var.name)
        if known is None:
            known = self.numbers[var.name] = len(self.types)
            self.types.append(var.type)
        return known


class _FreeWriter(_Writer):
    """Writes constants that do not count as their types."""

    def __init__(self, free: Callable[[Op], range]) -> None:
        super().__init__()
        self.free = free
        self.constants: list[int] = []

    def op(self, op: Op) -> None:
        super().op(op)
        free = self.free(op)
        at = len(self.key) - len(op.results) - len(op.args)
        for k in free:
            constant = op.args[k]
            if type(constant) is Const:
                self.constants.append(int(constant.value))
                self.key[at + k] = constant.type

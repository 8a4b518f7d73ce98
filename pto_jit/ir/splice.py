# SPDX-License-Identifier: MIT
"""The body of a function in the place of a call of it, and the functions that a program needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Call, Func, Module, Op, Operand, Return, Stmt, Var
from pto_jit.ir.types import Type
from pto_jit.ir.walk import block_defs, defs, rename, rewrite_block, statements, substitute
from pto_jit.slotted import replace


def can_splice(func: Func) -> bool:
    """Whether control reaches the end of the body and nowhere else: a return stands at its end or not at all."""
    last = func.body[-1:]
    inner = func.body if last and not isinstance(last[0], Return) else func.body[:-1]
    return not any(isinstance(stmt, Return) for stmt in statements(inner))


def splice(
    func: Func, args: Sequence[Operand], results: Sequence[Var], fresh: Callable[[str, Type], Var], loc: Loc
) -> Block:
    """The statements of `func` with `args` for its parameters, assigning `results`; `loc` is the place of the call.

    Variables get new names from `fresh`.  The caller has asked `can_splice`.
    """
    body = func.body
    returned: tuple[Operand, ...] = ()
    if body and isinstance(body[-1], Return):
        returned, body = body[-1].values, body[:-1]
    changed = block_defs(body)
    names: dict[str, str] = {}
    for stmt in statements(body):
        for var in defs(stmt):
            if var.name not in names:
                names[var.name] = fresh(var.name, var.type).name
    start: list[Stmt] = []
    mapping: dict[str, Operand] = {}
    for param, arg in zip(func.params, args, strict=True):
        if param.name in changed:  # a parameter is a value: what the body assigns again starts as a copy of it
            start.append(Op("copy", (Var(names[param.name], param.type),), (arg,), (), (), loc))
        else:
            names[param.name] = fresh(param.name, param.type).name
            mapping[names[param.name]] = arg
    moved = rewrite_block(
        substitute(rename(body, names), mapping), lambda stmt: replace(stmt, loc=called_from(stmt.loc, loc))
    )

    def value(operand: Operand) -> Operand:
        if not isinstance(operand, Var):
            return operand
        name = names[operand.name]
        return mapping.get(name, Var(name, operand.type))

    ending = [Op("copy", (result,), (value(v),), (), (), loc) for result, v in zip(results, returned, strict=True)]
    return (*start, *moved, *ending)


def called_from(loc: Loc, call: Loc) -> Loc:
    """`loc` in a function that was called at `call`."""
    return replace(loc, caller=call if loc.caller is None else called_from(loc.caller, call))


def reachable(module: Module) -> Module:
    """The functions that the entry needs, in the order of the module."""
    needed: set[str] = set()
    waiting = [module.entry]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [s.callee for s in statements(module.func(name).body) if isinstance(s, Call)]
    funcs = tuple(func for func in module.funcs if func.name in needed)
    return module if len(funcs) == len(module.funcs) else replace(module, funcs=funcs)

# SPDX-License-Identifier: MIT
"""One function instead of many: calls replaced by the callee's body, groups by their operations.

The placement of kernels is decided on the whole nest, from the orchestration's chunk loop down to the in-core body.
A body that came from an in-core function stands in a `Scope`, so that what is host code and what is not stays known.
"""

from __future__ import annotations

from pto_jit.errors import Loc, TargetError
from pto_jit.ir.nodes import Block, Call, For, Func, Fuse, Module, Op, Operand, Return, Scope, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_defs, rewrite_block, statements, uses, with_operands
from pto_jit.lower.groups.axes import is_elementwise, touches_tiles
from pto_jit.lower.simplify import simplified
from pto_jit.semantic.failures import words
from pto_jit.slotted import replace
from pto_jit.targets.cuda.handed import handed_on


def flatten(module: Module) -> Func:
    """The entry with every call inlined and every group dissolved; names stay unique."""
    entry = module.func(module.entry)
    taken = block_defs(entry.body) | {p.name for p in entry.params}
    return replace(entry, body=without_idle(handed_on(_Inliner(module, taken).block(entry.body))))


def without_assertions(func: Func) -> Func:
    """A flat function without the assertions of programs that are debugged, and what they alone wanted to know."""

    def is_optional(s: Stmt) -> bool:
        return isinstance(s, Op) and s.op == "assert" and not s.attr("always")

    if not any(map(is_optional, statements(func.body))):
        return func
    return simplified(replace(func, body=rewrite_block(func.body, lambda s: () if is_optional(s) else None)))


def with_words(func: Func) -> Func:
    """A flat function whose assertions say the words of their texts alone, for devices that report no numbers."""

    def in_words(s: Stmt) -> Block | None:
        if not (isinstance(s, Op) and s.op == "assert" and s.attr("told")) or s.attr("always"):
            return None
        message = f"{s.attr('message')}{words(str(s.attr('told')))}"
        attrs = tuple((k, message if k == "message" else v) for k, v in s.attrs if k != "told")
        return (replace(s, args=s.args[:1], attrs=attrs),)

    body = rewrite_block(func.body, in_words)
    return func if body == func.body else simplified(replace(func, body=body))


def without_idle(body: Block) -> Block:
    """Without numbers that nobody reads: what a scheduler for workers wanted to know."""
    optional: list[Op] = []
    work: list[str] = []
    for s in statements(body):
        if isinstance(s, Op) and not touches_tiles(s) and (is_elementwise(s) or s.op == "dim"):
            optional.append(s)
        else:
            work += [v.name for v in uses(s)]
    makers: dict[str, list[Op]] = {}
    for op in optional:
        for r in op.results:
            makers.setdefault(r.name, []).append(op)
    read: set[str] = set()
    while work:
        name = work.pop()
        if name not in read:
            read.add(name)
            work += (v.name for op in makers.get(name, ()) for v in uses(op))
    idle = {id(op) for op in optional if not any(r.name in read for r in op.results)}
    return rewrite_block(body, lambda s: () if id(s) in idle else None) if idle else body


class _Inliner:
    def __init__(self, module: Module, taken: set[str]) -> None:
        self.taken = taken
        self.funcs = {f.name: f for f in module.funcs}
        self.tried: dict[tuple[str, str], int] = {}  # of a name and a function: the number that was tried last
        self.depth = 0

    def block(self, block: Block) -> Block:
        return rewrite_block(block, self._statement, plain=False)

    def _statement(self, stmt: Stmt) -> Block | Stmt | None:
        if isinstance(stmt, Fuse):
            return stmt.body
        if isinstance(stmt, Call):
            return self._call(stmt)
        if isinstance(stmt, For) and stmt.grain is not None:
            return replace(stmt, grain=None)
        return None

    def _call(self, call: Call) -> Block:
        callee = self.funcs[call.callee]
        self.depth += 1
        if self.depth > 200:
            raise TargetError(f"{call.callee}: calls nest too deeply", call.loc, code="PTO-X110",
                              hint="do not call functions recursively")  # fmt: skip
        body = self.block(callee.body)
        self.depth -= 1
        last = body[-1] if body else None
        values: tuple[Operand, ...] = ()
        if isinstance(last, Return):
            body, values = body[:-1], last.values
        early = next((s for s in statements(body) if isinstance(s, Return)), None)
        if early is not None:
            raise unsupported("a return inside a branch or loop of an in-core function", early.loc,
                              "return once, at the end")  # fmt: skip
        body = self._with_fresh_names(body, callee, call, values)
        if callee.kind == "incore":
            return (Scope(call.callee, body, True, call.loc),)
        return body

    def _with_fresh_names(self, body: Block, callee: Func, call: Call, values: tuple[Operand, ...]) -> Block:
        assigned = block_defs(body)
        names: dict[str, str] = {}
        for name in sorted(assigned):
            if name in self.taken:
                count = self.tried.get((name, callee.name), 0)
                new = name
                while new in self.taken or new in assigned:  # all of which are taken from now on
                    count += 1
                    new = f"{name}.{callee.name}{count if count > 1 else ''}"
                self.tried[name, callee.name] = count
                names[name] = new
            self.taken.add(names.get(name, name))
        mapping = {p.name: a for p, a in zip(callee.params, call.args, strict=True)}
        if names or callee.params != call.args:  # outlined functions have the names of their callers
            body = _substituted(body, names, mapping)
        copies: list[Stmt] = []
        for result, value in zip(call.results, values, strict=True):
            if isinstance(value, Var):
                value = mapping.get(value.name, Var(names.get(value.name, value.name), value.type))
            assert isinstance(result.type, ScalarType)
            copies.append(Op("copy", (result,), (value,), (), (), call.loc))
        return (*body, *copies)


def _substituted(body: Block, names: dict[str, str], arguments: dict[str, Operand]) -> Block:
    """Variables renamed and parameters replaced by arguments, at once: an argument may have the name of another."""

    def define(var: Var) -> Var:
        new = names.get(var.name)
        return var if new is None else Var(new, var.type)

    def read(operand: Operand) -> Operand:
        if type(operand) is not Var:
            return operand
        argument = arguments.get(operand.name)
        return define(operand) if argument is None else argument

    return rewrite_block(body, lambda stmt: with_operands(stmt, read, define if names else None))


class Unsupported(TargetError):
    """A program that cannot be divided into kernels: what, where, and the nearest thing that works."""

    what: str = ""


def unsupported(what: str, loc: Loc, instead: str) -> TargetError:
    """The error for a program that this target cannot take."""
    place = loc if loc.lineno else None
    error = Unsupported(f"the cuda target does not do {what}", place, code="PTO-X100", hint=instead)
    error.what = what
    return error

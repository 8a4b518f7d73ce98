# SPDX-License-Identifier: MIT
"""The walk of the verifier: everything that `verify` says about a program, statement by statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NoReturn

from pto_jit.dtypes import DType, bool_, i64
from pto_jit.errors import NOWHERE, CompilationError
from pto_jit.ir.flow import free_reads
from pto_jit.ir.nodes import (
    Attr,
    Block,
    Break,
    Call,
    Const,
    Continue,
    For,
    Func,
    Fuse,
    If,
    Module,
    Op,
    Operand,
    Reduction,
    Region,
    Return,
    Scope,
    Stmt,
    Var,
    While,
)
from pto_jit.ir.type_text import fits
from pto_jit.ir.types import ScalarType, TensorType, TileType, Type
from pto_jit.ir.walk import block_defs, block_names, statements, use_counts

Infer = Callable[[str, tuple[Operand, ...], dict[str, Attr], tuple[Region, ...]], tuple[Type, ...]]

PROPERTIES = ("typed", "normalised", "reduced", "chunked", "placed", "outlined", "fused", "buffers")
I64 = ScalarType(i64)
BOOL = ScalarType(bool_)


class Violation(Exception):
    """What is wrong, in which function and at which statement; cause: the error of a typing rule."""

    def __init__(self, message: str, func: Func | None, stmt: Stmt | None, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.message, self.func, self.stmt, self.cause = message, func, stmt, cause


class Verifier:
    """One look at a module; `module_` raises Violation for the first thing that is wrong."""

    def __init__(
        self, module: Module, properties: frozenset[str], infer: Infer | None, typed: dict[int, Op] | None
    ) -> None:
        unknown = properties - set(PROPERTIES)
        if unknown or ("typed" in properties and infer is None):
            raise ValueError(f"unknown properties {sorted(unknown)}" if unknown else "`typed` needs `infer`")
        self.module = module
        self.funcs = {func.name: func for func in module.funcs}
        self.properties = properties
        self.infer = infer
        self.typed: dict[int, Op] = {} if typed is None else typed
        self.func: Func | None = None
        self.types: dict[str, Type] = {}
        self.homes: dict[str, int] = {}  # the scope each tile lives in; 0: none
        self.scope = 0
        self.scopes = 0
        self.loops: list[str] = []  # kinds of the loops around here, up to a scope or region
        self.region = False
        self.counting: dict[str, For] = {}  # those loops, by their variables
        self.regional: set[str] = set()  # names that regions bind

    def wrong(self, message: str, stmt: Stmt | None = None, cause: Exception | None = None) -> NoReturn:
        raise Violation(message, self.func, stmt, cause)

    # -- module and functions -----------------------------------------------------------------------------------

    def module_(self) -> None:
        if not self.module.funcs:
            self.wrong("there is no function")
        if len(self.funcs) != len(self.module.funcs):
            self.wrong("two functions have one name")
        if self.module.entry not in self.funcs:
            self.wrong(f"the entry @{self.module.entry} is not a function of the module")
        for func in self.module.funcs:
            self.function(func)
        self.func = None
        self.cycles()

    def function(self, func: Func) -> None:
        self.func = func
        self.types, self.homes, self.scope, self.scopes, self.loops = {}, {}, 0, 0, []
        self.regional = set()
        if func.loc is NOWHERE or func.loc == NOWHERE:
            self.wrong("the function has no location")
        for param in func.params:
            if param.name in self.types:
                self.wrong(f"two parameters are called %{param.name}")
            self.types[param.name] = param.type
            if isinstance(param.type, TileType):
                self.wrong(f"the parameter %{param.name} is a tile")
        if any(isinstance(result, TileType) for result in func.results):
            self.wrong("the function returns a tile")
        ends = self.block(func.body)
        if func.results and not ends:
            self.wrong("a path through the function returns nothing")
        for name, (var, stmt) in free_reads(func.body).items():
            if not any(name == param.name for param in func.params):
                self.wrong(f"%{var.name} may be read before it is assigned", stmt)

    def cycles(self) -> None:
        calls = {
            func.name: {stmt.callee: stmt for stmt in statements(func.body) if isinstance(stmt, Call)}
            for func in self.module.funcs
        }
        done: set[str] = set()

        def visit(name: str, path: tuple[str, ...]) -> None:
            if name in path:
                cycle = (*path[path.index(name) :], name)
                self.func = self.funcs[cycle[-2]]
                listing = " -> ".join(f"@{n}" for n in cycle)
                self.wrong(f"the calls form a cycle: {listing}", calls[cycle[-2]][name])
            if name not in done:
                for callee in sorted(calls[name]):
                    visit(callee, (*path, name))
                done.add(name)

        for name in calls:
            visit(name, ())

    # -- statements ---------------------------------------------------------------------------------------------

    def block(self, block: Block) -> bool:
        """Check a block; whether its end is never reached."""
        ended = False
        for stmt in block:
            if ended and "normalised" in self.properties:
                self.wrong("the statement is never reached", stmt)
            if not stmt.loc.lineno and stmt.loc == NOWHERE:
                self.wrong("the statement has no location", stmt)
            if type(stmt) is Op:
                self.op(stmt)
            elif self.statement(stmt):
                ended = True
        return ended

    def statement(self, stmt: Stmt) -> bool:
        match stmt:
            case For():
                self.for_(stmt)
            case While():
                return self.while_(stmt)
            case If():
                self.condition(stmt.cond, stmt)
                if isinstance(stmt.cond, Const) and "normalised" in self.properties:
                    self.wrong("the condition is a constant", stmt)
                then, orelse = self.block(stmt.then), self.block(stmt.orelse)
                return then and orelse
            case Scope():
                self.scope_(stmt)
            case Fuse():
                self.fuse(stmt)
            case Call():
                self.call(stmt)
            case Return():
                self.return_(stmt)
                return True
            case Break() | Continue():
                self.leave(stmt)
                return True
            case _:
                self.wrong(f"{type(stmt).__name__} is not a statement", None)
        return False

    def define(self, var: Var, stmt: Stmt) -> None:
        known = self.types.setdefault(var.name, var.type)
        if known is not var.type and known != var.type:
            self.wrong(f"%{var.name} is {known} and {var.type}", stmt)
        if var.name in self.counting:
            self.wrong(f"the body assigns the loop variable %{var.name}", self.counting[var.name])
        if not self.region and var.name in self.regional:
            self.wrong(f"%{var.name} is also a variable of a region", stmt)
        if type(var.type) is TileType:
            if not var.type.shape:
                self.wrong(f"the tile %{var.name} has no axis", stmt)
            self.home(var, stmt)

    def read(self, operand: Operand, stmt: Stmt) -> None:
        kind = operand.type
        if type(operand) is Const:
            self.constant(operand, stmt)
            return
        assert isinstance(operand, Var)
        known = self.types.get(operand.name)
        if known is None:
            self.wrong(f"%{operand.name} is never assigned before this", stmt)
        if known is not kind and known != kind:
            self.wrong(f"%{operand.name} is {known}, read as {kind}", stmt)
        if type(kind) is TileType:
            self.home(operand, stmt)

    def home(self, var: Var, stmt: Stmt) -> None:
        func = self.func
        assert func is not None
        if func.kind == "orchestration" and not self.scope:
            self.wrong(f"the tile %{var.name} stands in orchestration, outside a scope", stmt)
        if self.homes.setdefault(var.name, self.scope) != self.scope:
            self.wrong(f"the tile %{var.name} crosses the boundary of a scope", stmt)

    def constant(self, operand: Const, stmt: Stmt) -> None:
        if not isinstance(operand.type, ScalarType):
            self.wrong(f"the constant {operand.value!r} is {operand.type}", stmt)
        value, dtype = operand.value, operand.type.dtype
        if dtype is i64:
            good = type(value) is int and -(1 << 63) <= value < 1 << 63
        elif dtype.kind == "f":
            good = type(value) is float
        elif dtype.kind == "b":
            good = type(value) is bool
        else:
            low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
            good = type(value) is int and low <= value < low + (1 << dtype.bits)
        if not good:
            self.wrong(f"{value!r} is not a constant of {dtype}", stmt)

    def condition(self, operand: Operand, stmt: Stmt) -> None:
        self.read(operand, stmt)
        if operand.type != BOOL:
            self.wrong(f"the condition is {operand.type}, not bool_", stmt)

    def op(self, op: Op) -> None:
        types, homes, scope = self.types, self.homes, self.scope
        typed = self.typed.get(id(op)) is op
        for arg in op.args:
            kind = arg.type
            if type(arg) is Var:
                seen = types.get(arg.name) is kind and (type(kind) is not TileType or homes.get(arg.name) == scope)
            else:
                seen = typed
            if not seen:  # what was found right where it was assigned is right, and constants that were looked at are
                self.read(arg, op)
        if op.regions:
            self.regions(op)
        if not typed:
            self.typing(op)
            self.typed[id(op)] = op
        for result in op.results:
            self.define(result, op)
        if op.op == "alloc" and "buffers" in self.properties:
            assert self.func is not None
            if self.scope or self.func.kind != "orchestration":
                self.wrong("a tensor is allocated in in-core code", op)

    def typing(self, op: Op) -> None:
        """What only the operation itself decides: its attributes and its types."""
        if op.attrs:
            self.attributes(op)
        if self.infer is not None:
            try:
                types = self.infer(op.op, op.args, dict(op.attrs), op.regions)
            except CompilationError as error:
                self.wrong(error.message, op, error)
            if len(types) != len(op.results):
                self.wrong(f"the operation has {len(types)} results, {len(op.results)} are assigned", op)
            for inferred, result in zip(types, op.results, strict=True):
                if inferred is not result.type and inferred != result.type and not fits(inferred, result.type):
                    self.wrong(f"the operation gives {inferred}, %{result.name} is {result.type}", op)

    def attributes(self, op: Op) -> None:
        names = [name for name, _ in op.attrs]
        if len(set(names)) != len(names):
            self.wrong("an attribute is given twice", op)
        for name, value in op.attrs:
            if not name.isidentifier() or not _writable(value):
                self.wrong(f"the attribute {name} = {value!r} cannot be written", op)

    def regions(self, op: Op) -> None:
        for region in op.regions:
            for param in region.params:
                if not isinstance(param.type, ScalarType):
                    self.wrong(f"the region's parameter %{param.name} is not a scalar", op)
            self.region_(region, op)
            for result in region.results:
                if not isinstance(result.type, ScalarType):
                    self.wrong("the region's result is not a scalar", op)

    def region_(self, region: Region, stmt: Op | For) -> None:
        if self.region:
            self.wrong("a region stands in a region", stmt)
        loops, self.loops, self.region = self.loops, [], True
        bound = [param.name for param in region.params]
        if len(set(bound)) != len(bound):
            self.wrong("two parameters of the region have one name", stmt)
        names = block_defs(region.body).union(bound)
        for name in names:
            if name in self.types and name not in self.regional:
                self.wrong(f"the region assigns %{name} of the enclosing function", stmt)
        self.regional |= names
        for param in region.params:
            self.define(param, stmt)
        self.block(region.body)
        for result in region.results:
            self.read(result, stmt)
        self.loops, self.region = loops, False

    # -- loops and leaving them ---------------------------------------------------------------------------------

    def for_(self, loop: For) -> None:
        for operand in (loop.start, loop.stop, loop.step, loop.chunk, loop.grain):
            if operand is not None:
                self.read(operand, loop)
                if operand.type != I64:
                    self.wrong(f"a bound, step, chunk or grain is {operand.type}, not i64", loop)
        if loop.var.type != I64:
            self.wrong(f"the loop variable %{loop.var.name} is {loop.var.type}, not i64", loop)
        if isinstance(loop.step, Const) and loop.step.value == 0:
            self.wrong("the step is 0", loop)
        if loop.chunk is not None and "chunked" in self.properties:
            self.wrong("the loop still asks for a chunk", loop)
        if loop.chunk is not None and loop.kind != "parallel":
            self.wrong(f"a {loop.kind} loop asks for a chunk", loop)
        if loop.checked and loop.kind not in ("parallel", "chunk", "in_chunk"):
            self.wrong(f"a {loop.kind} loop makes no promise that could be checked", loop)
        self.define(loop.var, loop)
        for reduction in loop.reductions:
            self.reduction(reduction, loop)
        self.loops.append(loop.kind)
        self.counting[loop.var.name] = loop
        self.block(loop.body)
        del self.counting[loop.var.name]
        self.loops.pop()

    def reduction(self, reduction: Reduction, loop: For) -> None:
        kinds = ("in_chunk", "combine") if "reduced" in self.properties else ("parallel", "in_chunk", "combine")
        if loop.kind not in kinds:
            self.wrong(f"a {loop.kind} loop has reductions", loop)
        state, init, combine = reduction.state, reduction.init, reduction.combine
        for operand in (*state, *init):
            self.read(operand, loop)
            if isinstance(operand.type, TensorType):
                self.wrong("a tensor is the state of a reduction", loop)
        kinds = tuple(var.type for var in state)
        if isinstance(combine, str):
            if combine not in ASSOCIATIVE:
                self.wrong(f"there is no associative operation {combine}", loop)
            if len(state) != 1 or tuple(o.type for o in init) != (ScalarType(kinds[0].dtype),):
                self.wrong(f"`{combine}` reduces one variable from a scalar of its dtype", loop)
            return
        if tuple(o.type for o in init) != kinds:
            self.wrong(f"the state is ({_list(kinds)}), it starts as ({_list(o.type for o in init)})", loop)
        self.region_(combine, loop)
        taken, given = tuple(p.type for p in combine.params), tuple(r.type for r in combine.results)
        if taken != kinds + kinds or given != kinds:
            self.wrong(f"the combine function takes ({_list(taken)}) and gives ({_list(given)})", loop)

    def while_(self, loop: While) -> bool:
        self.loops.append("condition")
        ended = self.block(loop.before)
        self.loops.pop()
        if ended:
            self.wrong("the condition is never computed", loop)
        self.condition(loop.cond, loop)
        self.loops.append("sequential")
        self.block(loop.body)
        self.loops.pop()
        forever = isinstance(loop.cond, Const) and bool(loop.cond.value)
        return forever and not _breaks(loop.body)

    def leave(self, stmt: Break | Continue) -> None:
        kind = self.loops[-1] if self.loops else None
        if kind is None or kind == "condition":
            self.wrong("there is no loop to leave" if kind is None else "the condition of a loop cannot leave it", stmt)
        if isinstance(stmt, Break) and kind != "sequential":
            self.wrong(f"BREAK in a {kind} loop", stmt)

    def return_(self, stmt: Return) -> None:
        func = self.func
        assert func is not None
        if self.region or self.scope:
            self.wrong(f"return in a {'region' if self.region else 'scope'}", stmt)
        for kind in self.loops:
            if kind != "sequential":
                self.wrong(f"return in a {kind} loop", stmt)
        for value in stmt.values:
            self.read(value, stmt)
        given = tuple(value.type for value in stmt.values)
        if len(given) != len(func.results) or not all(map(fits, given, func.results)):
            self.wrong(f"the function returns ({_list(func.results)}), here ({_list(given)})", stmt)

    # -- scopes, groups, calls ----------------------------------------------------------------------------------

    def scope_(self, scope: Scope) -> None:
        assert self.func is not None
        if self.scope or self.region or self.func.kind != "orchestration":
            where = "scope" if self.scope else "region" if self.region else "in-core function"
            self.wrong(f"a scope stands in a{'n' if where[0] == 'i' else ''} {where}", scope)
        if "outlined" in self.properties:
            self.wrong("a scope is left after outlining", scope)
        if "placed" in self.properties and not scope.body:
            self.wrong("the scope is empty", scope)
        self.scopes += 1
        loops, self.loops, self.scope = self.loops, [], self.scopes
        self.block(scope.body)
        self.loops, self.scope = loops, 0

    def fuse(self, group: Fuse) -> None:
        assert self.func is not None
        if self.region:
            self.wrong("a FUSE group stands in a region", group)
        for stmt in group.body:
            if not isinstance(stmt, Op):
                self.wrong(f"a FUSE group holds a {type(stmt).__name__}", stmt)
        results = {var.name for stmt in group.body if isinstance(stmt, Op) for var in stmt.results}
        for name in group.keep:
            if name not in results:
                self.wrong(f"the group keeps %{name}, which it does not assign", group)
        self.block(group.body)
        inner = results.difference(group.keep)
        if inner:
            everywhere, inside = use_counts(self.func.body), Counter(block_names(group.body)[0])
            for name in sorted(inner):
                if everywhere.get(name, 0) > inside.get(name, 0):
                    self.wrong(f"%{name} is read outside the group but not kept", group)
        if "fused" in self.properties and (not group.body or self.func.kind != "incore"):
            self.wrong("the group is empty" if not group.body else "a group stands in orchestration", group)

    def call(self, call: Call) -> None:
        assert self.func is not None
        if self.region:
            self.wrong("a call stands in a region", call)
        for arg in call.args:
            self.read(arg, call)
        callee = self.funcs.get(call.callee)
        if callee is None:
            self.wrong(f"there is no function @{call.callee}", call)
        if self.func.kind == "incore" and callee.kind != "incore":
            self.wrong(f"in-core code calls the orchestration function @{callee.name}", call)
        wanted, given = tuple(p.type for p in callee.params), tuple(a.type for a in call.args)
        if len(wanted) != len(given) or not all(map(fits, given, wanted)):
            self.wrong(f"@{callee.name} takes ({_list(wanted)}), it is given ({_list(given)})", call)
        results = tuple(result.type for result in call.results)
        if len(results) != len(callee.results) or not all(map(fits, callee.results, results)):
            self.wrong(f"@{callee.name} returns ({_list(callee.results)}), assigned to ({_list(results)})", call)
        for result in call.results:
            self.define(result, call)


def _list(types: Iterable[Type]) -> str:
    return ", ".join(map(str, types))


# operations that a reduction may name
ASSOCIATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor"})


def _breaks(body: Block) -> bool:
    """Whether a loop with this body can be left by BREAK."""
    for stmt in body:
        if isinstance(stmt, Break):
            return True
        if isinstance(stmt, If) and (_breaks(stmt.then) or _breaks(stmt.orelse)):
            return True
    return False


def _writable(value: Attr) -> bool:
    if isinstance(value, tuple):
        return all(map(_writable, value))
    return value is None or isinstance(value, DType) or type(value) in (int, float, bool, str)

# SPDX-License-Identifier: MIT
"""Random modules of the loop IR, well formed by construction.

Every row of the operation table, every node kind and every type, layout, attribute and loop option turns up.  The
programs pass the verifier; they are not meant to be run (their loops and offsets make no sense).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

from pto_jit import dtypes
from pto_jit.dtypes import DType, bool_, f32, i64
from pto_jit.errors import Loc
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
    Region,
    Return,
    Scope,
    Stmt,
    Var,
    While,
)
from pto_jit.ir.types import ScalarType, TensorType, TileType, Type
from pto_jit.ir.walk import rename
from tests.semantic.op_cases import ACCEPTED, parsed

I64, BOOL = ScalarType(i64), ScalarType(bool_)
NAMES = ["x", "acc", "t12", "acc.3", "Ω", "a b", 'q"uote', "0", "für", "tab\t", "_", "x.idx", "inf", "true"]
_FLOATS = [0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, 1e-05, 1e300, 0.1, 5e-324]

_TEMPLATES: list[Op] = [parsed(line)[1] for lines in ACCEPTED.values() for line in lines]


@dataclass
class _State:
    """Variables that may be read here, by type; a copy is made for each block."""

    known: dict[Type, list[Var]]
    kind: str
    in_scope: bool = False
    loops: list[str] = field(default_factory=list)
    in_region: bool = False

    @property
    def tiles(self) -> bool:
        return self.kind == "incore" or self.in_scope

    def inner(self, **changes: Any) -> _State:
        copy = _State({t: list(v) for t, v in self.known.items()}, self.kind, self.in_scope, list(self.loops),
                      self.in_region)  # fmt: skip
        for name, value in changes.items():
            setattr(copy, name, value)
        return copy


class Generator:
    """One module from one seed."""

    def __init__(self, seed: int, size: int = 12) -> None:
        self.random = random.Random(seed)
        self.size = size
        self.names: set[str] = set()
        self.funcs: list[Func] = []
        self.params: list[Var] = []

    def module(self) -> Module:
        for _ in range(self.random.randint(1, 3)):
            self.function("incore")
        entry = self.function("orchestration")
        if self.random.random() < 0.3:
            entry = self.function("orchestration")
        name = self.random.choice(["m", "my module", " spaced ", 'a"b', "", "π.1"])
        return Module(name, tuple(self.funcs), entry.name)

    def loc(self) -> Loc:
        return Loc("kernel.py", self.random.randint(1, 99), self.random.randint(0, 40))

    def fresh(self, type: Type) -> Var:
        base = self.random.choice(NAMES)
        name, count = base, 0
        while name in self.names:
            count += 1
            name = f"{base}.{count}"
        self.names.add(name)
        return Var(name, type)

    # -- functions ----------------------------------------------------------------------------------------------

    def function(self, kind: str) -> Func:
        self.names, self.params = set(), []
        state = _State({}, kind)
        for _ in range(self.random.randint(0, 4)):
            self.param(state, self.random.choice([*(ScalarType(t) for t in dtypes.ALL), self.tensor_type()]))
        body = list(self.block(state, self.size, 0))
        results: tuple[Type, ...] = ()
        if self.random.random() < 0.5:
            wanted = [I64, ScalarType(f32)][: self.random.randint(1, 2)]
            if kind == "orchestration" and self.random.random() < 0.5:
                wanted.append(self.tensor_type())  # pyright: ignore
            values = tuple(self.value(state, t, body) for t in wanted)
            results = tuple(v.type for v in values)
            body.append(Return(values, self.loc()))
        elif self.random.random() < 0.7:
            body.append(Return((), self.loc()))
        name = self.random.choice(["f", "rowmax", "my.func", "<lambda>"]) + str(len(self.funcs))
        func = Func(name, kind, tuple(self.params), results, tuple(body), self.loc())  # pyright: ignore
        self.funcs.append(func)
        return func

    def param(self, state: _State, type: Type) -> Var:
        var = self.fresh(type)
        self.params.append(var)
        state.known.setdefault(type, []).append(var)
        return var

    def tensor_type(self) -> TensorType:
        shape = tuple(self.random.choice([None, 1, 8, 64]) for _ in range(self.random.randint(0, 3)))
        return TensorType(self.dtype(), shape, self.random.choice(["c", "inner", "strided"]))

    def dtype(self) -> DType:
        return self.random.choice(dtypes.ALL)

    # -- values -------------------------------------------------------------------------------------------------

    def value(self, state: _State, type: Type, out: list[Stmt]) -> Operand:
        """An operand of a type: one that is there, a constant, or a new one made by statements added to `out`."""
        found = state.known.get(type, [])
        if found and self.random.random() < 0.7:
            return self.random.choice(found)
        if isinstance(type, ScalarType):
            return self.constant(type)
        if isinstance(type, TensorType):
            if found:
                return self.random.choice(found)
            return self.param_at_top(state, type)
        extents = tuple(self.run_time(state, out) if e is None else Const(e, I64) for e in type.shape)
        result = self.fresh(type)
        out.append(Op("full", (result,), (self.constant(ScalarType(type.dtype)), *extents), (), (), self.loc()))
        self.learn(state, result)
        return result

    def run_time(self, state: _State, out: list[Stmt]) -> Var:
        """An i64 variable."""
        found = state.known.get(I64, [])
        if found:
            return self.random.choice(found)
        result = self.fresh(I64)
        out.append(Op("copy", (result,), (self.constant(I64),), (), (), self.loc()))
        self.learn(state, result)
        return result

    def param_at_top(self, state: _State, type: TensorType) -> Var:
        var = self.fresh(type)
        self.params.append(var)
        self.learn(state, var)
        return var

    def learn(self, state: _State, var: Var) -> None:
        state.known.setdefault(var.type, []).append(var)

    def constant(self, type: ScalarType) -> Const:
        dtype = type.dtype
        if dtype.kind == "b":
            return Const(self.random.random() < 0.5, type)
        if dtype.kind == "f":
            return Const(self.random.choice(_FLOATS), type)
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
        return Const(self.random.choice([0, 1, 7, low, low + (1 << dtype.bits) - 1]), type)

    # -- statements ---------------------------------------------------------------------------------------------

    def block(self, state: _State, size: int, depth: int) -> Block:
        out: list[Stmt] = []
        for _ in range(self.random.randint(0, size)):
            self.statement(state, out, depth)
        return tuple(out)

    def statement(self, state: _State, out: list[Stmt], depth: int) -> None:
        nested = [self.loop, self.loop, self.while_, self.if_, self.carried]
        if not state.in_region:
            nested += [self.fuse, self.call]
            if state.kind == "orchestration" and not state.in_scope:
                nested += [self.scope, self.scope]
        if depth < 4 and self.random.random() < 0.4:
            self.random.choice(nested)(state, out, depth)
        else:
            self.op(state, out)

    def op(self, state: _State, out: list[Stmt]) -> Op | None:
        """A copy of a row's accepted case with operands from here."""
        for _ in range(20):
            template = self.random.choice(_TEMPLATES)
            touched = (*template.args, *template.results)
            if not state.tiles and any(isinstance(v.type, TileType) for v in touched):
                continue
            if state.in_region and template.regions:
                continue
            break
        else:
            return None
        args: list[Operand] = []
        for arg in template.args:
            if isinstance(arg, Const) and arg.type.dtype.is_integer:
                args.append(arg)  # extents, offsets and indices fit the declared shapes
            elif arg.type == I64:
                args.append(self.run_time(state, out))  # its value must not be known either
            else:
                args.append(self.value(state, arg.type, out))
        regions = tuple(self.region(state, region) for region in template.regions)
        results = tuple(self.fresh(r.type) for r in template.results)
        attrs = template.attrs
        if template.op == "print":
            places = "{} // " * len(args)
            fmt = self.random.choice([places, f'quoted "{places}"\n', "\\", "\u2028é", "\x00"])
            attrs = (("fmt", fmt),)
        op = Op(template.op, results, tuple(args), attrs, regions, self.loc())
        out.append(op)
        for result in results:
            self.learn(state, result)
        return op

    def region(self, state: _State, template: Region) -> Region:
        """The template's region with names of its own and captures from here."""
        bound = {p.name: self.fresh(p.type).name for p in template.params}
        inner = {name: self.fresh(I64).name for stmt in template.body for name in _assigned(stmt)}
        names = {**bound, **{k: v for k, v in inner.items() if k not in bound}}
        body = rename(template.body, names)
        params = tuple(Var(names[p.name], p.type) for p in template.params)
        extra: list[Stmt] = []
        local = state.inner(in_region=True, loops=[])
        for param in params:
            self.learn(local, param)
        for _ in range(self.random.randint(0, 2)):
            self.statement(local, extra, 3)
        captured: dict[str, str] = {}
        prefix: list[Stmt] = []
        for name, type in (("f", ScalarType(f32)), ("b", BOOL)):
            var = self.fresh(type)
            prefix.append(Op("copy", (var,), (self.value(state, type, prefix),), (), (), self.loc()))
            captured[name] = var.name
        results = tuple(Var(names.get(r.name, r.name), r.type) if isinstance(r, Var) else r for r in template.results)
        return Region(params, (*prefix, *extra, *rename(body, captured)), results)

    def loop(self, state: _State, out: list[Stmt], depth: int) -> None:
        kind = self.random.choice(["sequential", "sequential", "parallel", "chunk", "in_chunk", "combine"])
        start, stop = self.value(state, I64, out), self.value(state, I64, out)
        inner = state.inner(loops=[*state.loops, kind])
        var = self.fresh(I64)
        self.learn(inner, var)
        body = list(self.block(inner, self.size // 2, depth + 1))
        if kind == "sequential" and self.random.random() < 0.3:
            body.append(If(self.value(inner, BOOL, body), (Break(self.loc()),), (), self.loc()))
        if self.random.random() < 0.2:
            body.append(Continue(self.loc()))
        chunk: Operand | None = None
        if kind == "parallel" and self.random.random() < 0.5:
            chunk = self.value(state, I64, out)
        out.append(For(
            kind, var, start, stop, Const(self.random.choice([1, 2, -1]), I64), tuple(body), chunk,  # pyright: ignore
            self.random.choice(["leading_full", "aligned"]), self.random.choice(["sequential", "tree", "loop"]),
            self.random.choice([None, Const(1, I64), Const(64, I64)]), self.loc(),
        ))  # fmt: skip

    def while_(self, state: _State, out: list[Stmt], depth: int) -> None:
        before = state.inner(loops=[*state.loops, "condition"])
        first = list(self.block(before, 2, depth + 1))
        cond = self.value(before, BOOL, first)
        if isinstance(cond, Const):
            cond = Const(False, BOOL)
        body = self.block(before.inner(loops=[*state.loops, "sequential"]), self.size // 3, depth + 1)
        out.append(While(tuple(first), cond, body, self.loc()))

    def if_(self, state: _State, out: list[Stmt], depth: int) -> None:
        cond = self.value(state, BOOL, out)
        then, orelse = (self.block(state.inner(), self.size // 3, depth + 1) for _ in range(2))
        out.append(If(cond, then, orelse, self.loc()))

    def carried(self, state: _State, out: list[Stmt], depth: int) -> None:
        """A variable assigned before a loop and in it, and one assigned by both branches of an If."""
        type = self.random.choice([I64, ScalarType(f32), *([TileType(f32, (8, None))] if state.tiles else [])])
        var, merged = self.fresh(type), self.fresh(type)
        out.append(Op("copy", (var,), (self.value(state, type, out),), (), (), self.loc()))
        body: list[Stmt] = []
        inner = state.inner()
        self.learn(inner, var)
        body.append(Op("copy", (var,), (self.value(inner, type, body),), (), (), self.loc()))
        zero, two = Const(0, I64), Const(2, I64)
        out.append(For("sequential", self.fresh(I64), zero, two, Const(1, I64), tuple(body), loc=self.loc()))
        self.learn(state, var)
        branches: list[Block] = []
        for _ in range(2):
            branch: list[Stmt] = []
            branch.append(Op("copy", (merged,), (self.value(state.inner(), type, branch),), (), (), self.loc()))
            branches.append(tuple(branch))
        out.append(If(self.value(state, BOOL, out), branches[0], branches[1], self.loc()))
        self.learn(state, merged)

    def scope(self, state: _State, out: list[Stmt], depth: int) -> None:
        body = self.block(state.inner(in_scope=True, loops=[]), self.size, depth + 1)
        name = self.random.choice(["f_incore_0", "work", "a-b"])
        out.append(Scope(name, body, self.random.random() < 0.5, self.loc()))

    def fuse(self, state: _State, out: list[Stmt], depth: int) -> None:
        del depth
        if not state.tiles:
            return
        inner = state.inner()
        body: list[Stmt] = []
        for _ in range(self.random.randint(0, 4)):
            self.op(inner, body)
        results = [r for stmt in body if isinstance(stmt, Op) for r in stmt.results]
        keep = [r for r in results if self.random.random() < 0.5]
        for var in keep:
            self.learn(state, var)
        out.append(Fuse(tuple(body), tuple(r.name for r in keep), self.loc()))

    def call(self, state: _State, out: list[Stmt], depth: int) -> None:
        del depth
        callees = [f for f in self.funcs if f.kind == "incore"]
        if not callees:
            return
        callee = self.random.choice(callees)
        if any(isinstance(r, TensorType) for r in callee.results):
            return
        args = tuple(self.value(state, p.type, out) for p in callee.params)
        results = tuple(self.fresh(t) for t in callee.results)
        out.append(Call(callee.name, args, results, self.loc()))
        for result in results:
            self.learn(state, result)


def _assigned(stmt: Stmt) -> list[str]:
    from pto_jit.ir.walk import block_defs

    return sorted(block_defs((stmt,)))


def attributes(rng: random.Random, depth: int = 0) -> Attr:
    """A random attribute value of any kind."""
    kind = rng.randrange(7 if depth < 3 else 6)
    if kind == 0:
        return rng.choice([0, -1, 2**63, -(2**70)])
    if kind == 1:
        return rng.choice(_FLOATS)
    if kind == 2:
        return rng.choice([True, False, None])
    if kind == 3:
        return rng.choice(dtypes.ALL)
    if kind in (4, 5):
        return rng.choice(["", "x", 'a"b', "// no comment", "\n\t\\", "\u00e9\u2028\x7f", "\ud800", "none"])
    return tuple(attributes(rng, depth + 1) for _ in range(rng.randrange(4)))


def random_module(seed: int, size: int = 12) -> Module:
    """A well-formed module of every kind of node; equal seeds give equal modules."""
    return Generator(seed, size).module()

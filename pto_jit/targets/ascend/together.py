# SPDX-License-Identifier: MIT
"""Kernels of one core that follow each other as one: a launch costs more than what most of them do.

Work on tiles outside of parallel loops is for one core, and loads begin a new kernel (`outline_kernels`).

Before::

    CALL @steps_incore_0(%x, %out)          // tload %x[0, 0]; ...; tstore %out[0, 0]
    %rows = sdim %x {axis=0} : i64
    CALL @steps_incore_1(%x, %out)          // tload %x[16, 0]; ...; tstore %out[16, 0]

After::

    %rows = sdim %x {axis=0} : i64
    CALL @steps_incore_0(%x, %out)          // both
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Call, For, Func, Module, Op, Return, Stmt, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import (
    TENSOR_VIEWS,
    block_defs,
    defs,
    map_blocks,
    rewrite_block,
    statements,
    uses,
)
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.slotted import replace
from pto_jit.targets.cuda.loops import is_parallel, written_tensor

_MOST = 32
"""Kernels that become one."""
_REPEATED = ("load", "full", "arange")
_PURE = frozenset("dim view tensor_reshape tensor_transpose tensor_step alloc".split())


def together(module: Module, fits: Callable[[Func], bool]) -> Module:
    """The module with such kernels put together, where `fits` says that the one kernel can be written."""
    return _Joiner(module, fits).module()


class _Joiner:
    def __init__(self, module: Module, fits: Callable[[Func], bool]) -> None:
        self.given, self.fits = module, fits
        self.funcs = {f.name: f for f in module.funcs}
        self.roots: dict[str, str] = {}  # of views that the host and kernels make: the tensor
        for s in (s for f in (module.func(module.entry), *module.funcs) for s in statements(f.body)):
            if isinstance(s, Op) and s.op in TENSOR_VIEWS and isinstance(s.args[0], Var):
                self.roots[s.results[0].name] = self.root(s.args[0])

    def root(self, tensor: Var) -> str:
        return self.roots.get(tensor.name, tensor.name)

    def module(self) -> Module:
        entry = self.given.func(self.given.entry)
        body = map_blocks(entry.body, self.block)
        if body == entry.body:
            return self.given
        self.funcs[entry.name] = replace(entry, body=body)
        funcs = tuple(self.funcs[f.name] for f in self.given.funcs if f.name in self.funcs)
        return _without_unread(replace(self.given, funcs=funcs))

    def block(self, block: Block) -> Block:
        out: list[Stmt] = []
        run: list[Stmt] = []  # calls, and what may stand before all of them
        count, given = 0, set[str]()  # of the calls, and what they are given
        for stmt in block:
            call = stmt if isinstance(stmt, Call) and self.is_for_one_core(stmt) else None
            if count and isinstance(stmt, Op) and _may_precede(stmt, given):
                run.append(stmt)
                continue
            if call is None or count == _MOST:
                out += self.joined(run)
                run, count, given = [], 0, set()
            if call is not None:
                run.append(call)
                count += 1
                given |= {a.name for a in call.args if isinstance(a, Var)}
            else:
                out.append(stmt)
        return (*out, *self.joined(run))

    def is_for_one_core(self, call: Call) -> bool:
        """Whether a kernel is nothing but work on tiles of constant extents, on the vector core."""
        func = self.funcs[call.callee]
        return not call.results and call.args == func.params and all(_is_plain(s) for s in statements(func.body))

    def joined(self, run: list[Stmt]) -> list[Stmt]:
        """A run with one call, if there are several and their kernels can be one."""
        calls = [s for s in run if isinstance(s, Call)]
        if len(calls) < 2:
            return run
        parts = [self.funcs[c.callee] for c in calls]
        body = _body_of(parts)
        if body is None:
            return run
        first = next((f for f in parts if f.name != f"{self.given.entry}_copy"), parts[0])
        params = tuple(sorted(free_vars(body), key=lambda v: not isinstance(v.type, TensorType)))
        func = replace(first, params=params, body=(*body, Return((), first.loc)))
        if self.overlap(func) or not self.fits(func):
            return run
        for part in parts:
            self.funcs.pop(part.name)
        self.funcs[first.name] = func
        return [*(s for s in run if not isinstance(s, Call)), Call(first.name, params, (), calls[0].loc)]

    def overlap(self, func: Func) -> bool:
        """Whether a tensor that is written is given under two names: nothing would order what is done with them."""
        written = {self.root(v) for v in map(written_tensor, statements(func.body)) if v is not None}
        given = Counter([self.root(p) for p in func.params if isinstance(p.type, TensorType)])
        return any(given[root] > 1 for root in written)


def _is_plain(stmt: Stmt) -> bool:
    if isinstance(stmt, For):
        return not is_parallel(stmt) and not stmt.reductions
    if not isinstance(stmt, Op):
        return isinstance(stmt, Return)
    fixed = all(None not in v.type.shape for v in (*uses(stmt), *defs(stmt)) if isinstance(v.type, TileType))
    return fixed and stmt.op not in ("getelem", "setelem", "dot", "assert", "print")


def _may_precede(op: Op, given: Container[str]) -> bool:
    """Whether an operation between kernels may come before them all: it gives nothing that they are given a new value.
    """
    pure = op.op in _PURE or (is_elementwise(op) and not any(isinstance(v.type, TileType) for v in op.results))
    return pure and not any(r.name in given for r in op.results)


def _body_of(parts: list[Func]) -> Block | None:
    """What the kernels do, one after the other; None: a variable has several values.

    A tile that was made is not loaded again from where a kernel has put it for the next ones.
    """
    body: list[Stmt] = []
    made: set[str] = set()
    for part in parts:
        mine = tuple(s for s in part.body if not isinstance(s, Return) and not _makes_again(s, made))
        if made & block_defs(mine):
            return None
        body += mine
        made |= block_defs(mine)
    return tuple(body)


def _makes_again(stmt: Stmt, made: set[str]) -> bool:
    return isinstance(stmt, Op) and stmt.op in _REPEATED and stmt.results[0].name in made


def _without_unread(module: Module) -> Module:
    """Without memory that kernels kept tiles in for others, and nothing reads any more."""
    entry = module.func(module.entry)
    ops = [s for f in module.funcs for s in statements(f.body) if isinstance(s, Op)]
    kept = {s.results[0].name for s in ops if s.op == "alloc"}
    for s in statements(entry.body):
        if not isinstance(s, Call):
            kept -= {v.name for v in uses(s)}
    for s in ops:
        kept -= {v.name for k, v in enumerate(s.args) if isinstance(v, Var) and (s.op, k) != ("store", 1)}
    if not kept:
        return module

    def visit(stmt: Stmt) -> Block | None:
        if isinstance(stmt, Op):
            names = {v.name for v in (*stmt.results[:1], *stmt.args[1:2]) if isinstance(v, Var)}
            return () if stmt.op in ("alloc", "store") and names & kept else None
        if isinstance(stmt, Call):
            return (replace(stmt, args=tuple(a for a in stmt.args if not isinstance(a, Var) or a.name not in kept)),)
        return None

    def lean(func: Func) -> Func:
        body = rewrite_block(func.body, visit)
        params = tuple(p for p in func.params if p.name not in kept)
        return func if body is func.body else replace(func, params=params, body=body)

    return replace(module, funcs=tuple(lean(f) for f in module.funcs))

# SPDX-License-Identifier: MIT
"""Lists that a kernel makes and multiplies, made by a kernel of their own before it.

The two kinds of cores cannot load what the kernel stores: it goes through global memory, and neither knows when the
other one's part is there.  An iteration of parallel loops reads what it wrote itself, so all may be written before.

Before::

    FOR %j:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
      %q = tload %queries[%j, 0] [64, 64]
      FOR %k:idx, 0:idx, %count:idx, 1:idx {kind=parallel}
        %t = sgetelem %chosen[%j, %k] : i64
        %x = tload %keys[%t, 0] [64, 64]
        tstore %x, %list[%j, %k, 0, 0]
      %ks = tload %list.flat[%j, 0, 0] [%rows, 64]
      %scores = tdot %q, %ks.T
      ...

After::

    FOR %j:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
      FOR %k:idx, 0:idx, %count:idx, 1:idx {kind=parallel}
        ...
        tstore %x, %list[%j, %k, 0, 0]

    FOR %j:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
      %q = tload %queries[%j, 0] [64, 64]
      %ks = tload %list.flat[%j, 0, 0] [%rows, 64]
      %scores = tdot %q, %ks.T
      ...
"""

from __future__ import annotations

from collections.abc import Iterator

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Call, Func, Module, Op, Operand, Return, Stmt, Var
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import TENSOR_VIEWS, WRITES, block_defs, block_uses, rewrite_block, statements
from pto_jit.lower.names import unused
from pto_jit.slotted import replace
from pto_jit.targets.ascend.cube import has_products
from pto_jit.targets.ascend.few import is_on_vector_cores
from pto_jit.targets.ascend.separate import without_unread_numbers
from pto_jit.targets.cuda.loops import is_parallel, touches_tiles, writes


def lists_before(module: Module) -> Module:
    """The module whose kernels with products load nothing that they store, where their lists can be made before."""
    entry = module.func(module.entry)
    taken = {f.name for f in module.funcs}
    parts: dict[str, tuple[Func, Func]] = {}
    for func in module.funcs:
        if func is entry or not has_products(func) or is_on_vector_cores(func):
            continue
        divided = _Kernel(func).divided(func.body)
        if divided is not None:
            first = _with_body(func, unused(f"{func.name}_lists", taken, "_"), divided[0])
            parts[func.name] = first, _with_body(func, func.name, divided[1])
    if not parts:
        return module

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Call) or stmt.callee not in parts:
            return None
        given: dict[str, Operand] = {p.name: a for p, a in zip(module.func(stmt.callee).params, stmt.args, strict=True)}
        return tuple(Call(f.name, tuple(given[p.name] for p in f.params), (), stmt.loc) for f in parts[stmt.callee])

    host = replace(entry, body=rewrite_block(entry.body, visit, plain=False))
    funcs = [part for f in module.funcs for part in parts.get(f.name, (host if f is entry else f,))]
    return replace(module, funcs=tuple(funcs))


class _Kernel:
    """What the statements of a kernel load and store, by the parameters that their tensors are parts of."""

    def __init__(self, func: Func) -> None:
        self.roots: dict[str, str] = {}
        for s in statements(func.body):
            if isinstance(s, Op) and s.op in TENSOR_VIEWS and isinstance(s.args[0], Var):
                self.roots[s.results[0].name] = self._root(s.args[0])
        self.passed = self.loaded(func.body) & self.stored(func.body)

    def _root(self, tensor: Operand) -> str:
        assert isinstance(tensor, Var)
        return self.roots.get(tensor.name, tensor.name)

    def loaded(self, block: Block) -> set[str]:
        return {self._root(s.args[0]) for s in _ops(block) if s.op in ("load", "getelem")}

    def stored(self, block: Block) -> set[str]:
        return {self._root(s.args[WRITES[s.op]]) for s in _ops(block) if writes(s)}

    def divided(self, block: Block) -> tuple[Block, Block] | None:
        """What makes the lists, and the rest; None where there is no such division."""
        if not self.passed:
            return None
        loops = [s for s in block if is_parallel(s)]
        work = _work(block)
        if len(loops) == 1 and work == loops:
            inner = self.divided(loops[0].body)  # type: ignore[union-attr]
            if inner is None:
                return None
            first, rest = (tuple(replace(s, body=part) if s is loops[0] else s for s in block) for part in inner)
            return first, rest
        makers = _with_sources([s for s in work if self.stored((s,)) & self.passed], work)
        rest = [s for s in work if s not in makers]
        if not makers or not rest or not self._may_come_first(makers, work):
            return None
        return tuple(s for s in block if s not in rest), tuple(s for s in block if s not in makers)

    def _may_come_first(self, makers: list[Stmt], work: list[Stmt]) -> bool:
        """Whether statements depend on none of the others, make nothing for them but lists, and spoil nothing."""
        others = tuple(s for s in work if s not in makers)
        mine = tuple(makers)
        if any(s.op == "dot" for s in _ops(mine)) or self.stored(mine) & self.stored(others):
            return False
        if self.loaded(mine) & self.stored(others):
            return False
        if block_defs(mine) & block_uses(others) or block_defs(others) & block_uses(mine):
            return False
        for k, s in enumerate(work):  # lists are not read before they are made
            later = tuple(m for m in work[k + 1 :] if m in makers)
            if s not in makers and self.loaded((s,)) & self.stored(later):
                return False
        return True


def _ops(block: Block) -> Iterator[Op]:
    return (s for s in statements(block) if isinstance(s, Op))


def _work(block: Block) -> list[Stmt]:
    """What is work on tiles or memory, and the numbers that are made of such; other numbers may be made twice."""
    out: list[Stmt] = []
    made: set[str] = set()
    for s in block:
        if _is_work(s) or made & block_uses((s,)):
            out.append(s)
            made |= block_defs((s,))
    return out


def _with_sources(chosen: list[Stmt], work: list[Stmt]) -> list[Stmt]:
    """Statements with those that make the tiles they read, in order."""
    read = block_uses(tuple(chosen))
    grown = [s for s in work if s in chosen or block_defs((s,)) & read]
    return chosen if len(grown) == len(chosen) else _with_sources(grown, work)


def _is_work(stmt: Stmt) -> bool:
    """Whether a statement does more than to compute numbers."""
    if isinstance(stmt, Return):
        return False
    return not isinstance(stmt, Op) or touches_tiles(stmt) or writes(stmt) or stmt.op == "assert"


def _with_body(func: Func, name: str, body: Block) -> Func:
    body = without_unread_numbers(body)
    params = tuple(sorted(free_vars(body), key=lambda v: not isinstance(v.type, TensorType)))
    return replace(func, name=name, params=params, body=body)

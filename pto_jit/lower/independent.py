# SPDX-License-Identifier: MIT
"""Find sequential loops whose iterations are independent, so that a target may compute several of them at a time.

A loop keeps its order for the program: nothing of it is divided among workers and every element is computed as it is
written, sums term by term.  But where no variable and no element connects two iterations their order cannot be seen,
and a processor's lanes may be one iteration each: a product written as three loops over elements then runs in vectors
along the columns although each sum stays in order.  What an inner loop without carried variables has is left to the
optimiser, which takes the iterations of innermost loops together by itself; these are the loops around a loop or a
`while` that carries something, innermost ones with functions such as `exp` and reads at indices read from memory (the
optimiser compares where accesses may lie, and does not know that of such reads), innermost ones with functions such as
`sin`, which call another for large arguments, innermost ones that store to narrow elements under conditions (for which
many processors have no masks), and innermost ones that carry running extremes or running sums (`scans`), look for a
greatest or least element (`extrema`), or store what they keep of their elements side by side (`packs`).

What is proven is proven for arguments that do not share memory; the target compares their addresses when it runs
(`For.proof` of a sequential loop).
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, For, Func, If, Module, Op, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, blocks, map_funcs, statements, with_blocks
from pto_jit.lower.cost import DEAR
from pto_jit.lower.decisions import Decision
from pto_jit.lower.dependence import Dependences
from pto_jit.lower.extrema import extrema
from pto_jit.lower.kept import kept_elements
from pto_jit.lower.names import source_name
from pto_jit.lower.packs import packs
from pto_jit.lower.scans import Root, scans
from pto_jit.semantic.races import roots
from pto_jit.slotted import replace

_MOST = 48  # accesses of a loop whose pairs are worth comparing
_CALLING = frozenset("sin cos tan fmod mod floordiv".split())


def find_independent(module: Module, decisions: list[Decision]) -> Module:
    """Give every sequential loop around other loops that is independent its `proof`; each one is a `Decision`."""

    def transform(func: Func) -> Func:
        known = roots(func.body)

        def root(name: str) -> str:
            return known.get(name, name)

        if not any(isinstance(s, For) and _is_candidate(s, root) for s in statements(func.body)):
            return func
        body = _Finder(Dependences(func, module), decisions, root).block(func.body)
        return func if body is func.body else replace(func, body=body)

    return map_funcs(module, transform)


class _Finder:
    def __init__(self, dependences: Dependences, decisions: list[Decision], root: Root) -> None:
        self.dependences = dependences
        self.decisions = decisions
        self.root = root

    def block(self, block: Block) -> Block:
        result = tuple(self.statement(s) for s in block)
        return block if all(a is b for a, b in zip(block, result, strict=True)) else result

    def statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Op) or (isinstance(stmt, For) and stmt.border):  # no vectors for a few iterations
            return stmt
        out = with_blocks(stmt, tuple(map(self.block, blocks(stmt))))
        if isinstance(stmt, For) and _is_candidate(stmt, self.root):
            assert isinstance(out, For)
            return self.loop(stmt, out)
        return out

    def loop(self, source: For, loop: For) -> For:
        """`loop`, with its proof if there is one; `source` is the loop as the function has it."""
        packed = packs(source, self.root)
        if packed is not None:
            names = _names([v.name for v in packed.counters])
            reason = f"what it stores lies side by side, and is counted by {names}"
            told = f"several iterations at a time where the arguments do not share memory: {reason}"
            self.decisions.append(Decision("schedule", (source_name(loop.var.name),), True, told, loop.loc))
            return replace(loop, proof=reason)
        found = self.dependences.found.loop_of(source)
        if found is None or len(self.dependences.found.inside(found)) > _MOST:
            return loop
        carried = scans(source, self.root)
        running = [s.var.name for s in carried]
        sought = [] if running else carried_by(source) if extrema(source) else []
        answer = self.dependences.may_run_parallel(found, apart=True, but=[*running, *sought])
        if not answer.proven:
            return loop
        reason = f"several iterations at a time where the arguments do not share memory: {answer.reason}"
        grouped = [s.var.name for s in carried if not s.in_order]
        if grouped:
            reason += f" but {_names(grouped)}, whose grouping does not matter"
        ordered = [s.var.name for s in carried if s.in_order]
        if ordered:
            reason += f" but {_names(ordered)}, of which one iteration follows the other"
        if sought:
            reason += f" but {_names(sought)}, for which one iteration decides"
        self.decisions.append(Decision("schedule", (source_name(loop.var.name),), True, reason, loop.loc))
        return replace(loop, proof=answer.reason)


def _is_candidate(loop: For, root: Root) -> bool:
    """Whether a loop is a sequential one over elements that carries nothing but running extremes and sums, and not one
    for the optimiser."""
    if loop.kind != "sequential" or loop.proof or not isinstance(loop.step, Const):
        return False
    if scans(loop, root) or extrema(loop):
        return True
    inside = list(statements(loop.body))
    if packs(loop, root):
        return not any(is_other(s) for s in inside)
    loops = [s for s in inside if isinstance(s, (For, While))]
    if loops:
        if not any(isinstance(s, While) or _carried(s) or kept_elements(s) for s in loops):
            return False
    elif not (_gathers(inside) or _stores_narrow(inside) or any(map(_calls, inside))):
        return False
    if _carried(loop):
        return False
    return not any(is_other(s) for s in inside)


def carried_by(loop: For) -> list[str]:
    """The variables of which the body reads what an earlier iteration assigned."""
    assigned = block_defs(loop.body)
    return [v.name for v in free_vars(loop.body) if v.name in assigned] if assigned else []


def _carried(loop: For) -> bool:
    return bool(carried_by(loop))


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{source_name(name)}`" for name in names)


def _calls(stmt: Stmt) -> bool:
    """Whether an operation on floats has a slow path: the optimiser takes no iterations together that may call it."""
    if not isinstance(stmt, Op) or stmt.op not in _CALLING or not stmt.results:
        return False
    kind = stmt.results[0].type
    return isinstance(kind, ScalarType) and kind.dtype.is_float


def _gathers(body: Sequence[Stmt]) -> bool:
    """Whether elements are read at indices that were themselves read, beside functions of many instructions."""
    ops = [s for s in body if isinstance(s, Op)]
    if not any(op.op in DEAR for op in ops):
        return False
    loaded: set[str] = set()
    for op in ops:
        at = op.args[1:] if op.op == "getelem" else op.args
        indirect = any(isinstance(a, Var) and a.name in loaded for a in at)
        if indirect and op.op == "getelem":
            return True
        if indirect or op.op == "getelem":
            loaded.update(r.name for r in op.results)
    return False


def _stores_narrow(body: Sequence[Stmt]) -> bool:
    """Whether elements of one or two bytes are stored under conditions."""
    branches = [inner for s in body if isinstance(s, If) for inner in (*s.then, *s.orelse)]
    values = [s.args[0].type for s in branches if isinstance(s, Op) and s.op == "setelem"]
    return any(isinstance(typ, ScalarType) and typ.dtype.bytes < 4 for typ in values)


def is_other(stmt: Stmt) -> bool:
    """Whether a statement works on anything but elements and scalars."""
    if not isinstance(stmt, Op):
        return False
    if stmt.regions or any(isinstance(v.type, TileType) for v in (*stmt.args, *stmt.results)):
        return True
    return any(isinstance(r.type, TensorType) for r in stmt.results)

# SPDX-License-Identifier: MIT
"""Loops over elements in in-core code: what of them the threads of a device can share.

A sequential loop whose iterations do not depend on each other becomes a parallel one, and a nest of those is ordered so
that neighbouring threads touch neighbouring elements.  Two arguments are taken for different memory here, as a launch
refuses those that overlap.  A loop that folds elements into numbers (`Fold`) is shared by the threads of a block.

Before::

    SCOPE @f_incore_0
      FOR %j:idx, 0:idx, %m:idx, 1:idx
        FOR %i:idx, 0:idx, %n:idx, 1:idx
          %t0 = sgetelem %x[%i, %j] : f32
          ssetelem %t0, %out[%i, %j]

After::

    SCOPE @f_incore_0
      FOR %i:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
        FOR %j:idx, 0:idx, %m:idx, 1:idx {kind=parallel}
          %t0 = sgetelem %x[%i, %j] : f32
          ssetelem %t0, %out[%i, %j]
"""

from __future__ import annotations

from collections.abc import Collection

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Break, Const, Continue, For, Func, If, Module, Op, Return, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_defs, blocks, statements, use_counts, with_blocks
from pto_jit.lower.axes import is_elementwise, touches_tiles
from pto_jit.slotted import frozen, replace

_RULES = {"add": "Sum", "mul": "Product", "max": "Maximum", "maximum": "Maximum", "min": "Minimum",
          "minimum": "Minimum"}  # fmt: skip
_FOLDED = frozenset("f32 f64 i8 i16 i32 i64 u8 u16 u32 u64".split())
_DIVIDED = ("parallel", "chunk", "in_chunk")


@frozen
class Fold:
    """A number that the iterations of a loop combine into, and the rule of `pto_cuda.cuh` that combines two."""

    state: Var
    rule: str


def fold_of(loop: For, outside: Collection[str]) -> tuple[Fold, ...] | None:
    """What a loop over elements folds, when the order of its iterations makes no other difference; else None.

    outside: the names that are read outside of the loop's body.  The body may read memory, and computes one number or
    several of which each is combined with its own earlier value and nothing else.
    """
    if loop.kind not in ("combine", "in_chunk") or not isinstance(loop.step, Const) or loop.step.value <= 0:
        return None
    if any(not _reads_alone(s) for s in statements(loop.body)):
        return None
    assigned = block_defs(loop.body)
    carried = [v for v in free_vars(loop.body) if v.name in assigned]
    if not carried or (assigned & set(outside)) - {v.name for v in carried}:
        return None
    folds = [_fold(v, loop.body) for v in carried]
    return tuple(f for f in folds if f is not None) if None not in folds else None


def read_outside(body: Block, loop: For) -> frozenset[str]:
    """The names that statements of `body` read, but for those in the body of one loop."""
    inner = use_counts(loop.body)
    return frozenset(name for name, count in use_counts(body).items() if count > inner[name])


def _reads_alone(stmt: Stmt) -> bool:
    """Whether a statement only computes numbers, from elements of tensors, too."""
    if isinstance(stmt, Op):
        return not touches_tiles(stmt) and (stmt.op in ("getelem", "dim") or is_elementwise(stmt))
    return isinstance(stmt, If) or (isinstance(stmt, For) and stmt.kind == "sequential")


def _fold(state: Var, body: Block) -> Fold | None:
    """How a variable is combined: it is read once, by an operation whose result alone it gets."""
    if not isinstance(state.type, ScalarType) or state.type.dtype.name not in _FOLDED:
        return None
    top = [s for s in body if isinstance(s, Op)]
    made = {r.name: s for s in top for r in s.results}
    assigning = [s for s in statements(body) if isinstance(s, Op) and any(r.name == state.name for r in s.results)]
    if len(assigning) != 1 or assigning[0] not in top:
        return None
    reads = use_counts(body)
    update = assigning[0]
    while update.op == "copy":  # of a number that was made for this
        source = update.args[0]
        if not isinstance(source, Var) or reads[source.name] != 1 or source.name not in made:
            return None
        update = made[source.name]
    if update.op not in _RULES or len(update.args) != 2 or update.results[0].type != state.type:
        return None
    names = {state.name}
    for s in top:  # conversions to the type that it has already
        source = s.args[0]
        if s.op in ("cast", "copy") and isinstance(source, Var) and source.name in names and s is not assigning[0]:
            if s.results[0].type != state.type or reads[source.name] != 1:
                return None
            names.add(s.results[0].name)
    own = [a for a in update.args if isinstance(a, Var) and a.name in names]
    if len(own) != 1 or reads[own[0].name] != 1 or reads[state.name] != 1:
        return None
    return Fold(state, _RULES[update.op])


# -- independent loops ------------------------------------------------------------------------------------------------


def share_elements(func: Func, module: Module) -> Func:
    """Make the independent loops over elements of a flat function parallel, in the order that suits memory."""
    if not any(_may_be_shared(s) for s in statements(func.body)):
        return func
    from pto_jit.lower.dependence import Dependences  # for the few programs that have such loops
    from pto_jit.lower.interchange import interchange_loops

    sharer = _Sharer(Dependences(func, module))
    body = sharer.block(func.body, incore=False)
    if not sharer.found:
        return func
    shared = Module(module.name, (replace(func, body=body),), func.name)
    return interchange_loops(shared, []).funcs[0]


def _may_be_shared(stmt: Stmt) -> bool:
    """A sequential loop over elements."""
    return isinstance(stmt, For) and stmt.kind == "sequential" and any(
        isinstance(s, Op) and s.op in ("getelem", "setelem") for s in stmt.body)  # fmt: skip


class _Sharer:
    def __init__(self, dependences: object) -> None:
        from pto_jit.lower.dependence import Dependences

        assert isinstance(dependences, Dependences)
        self.dependences = dependences
        self.body = dependences.func.body
        self.found = False

    def block(self, block: Block, *, incore: bool) -> Block:
        return tuple(self.statement(s, incore) for s in block)

    def statement(self, stmt: Stmt, incore: bool) -> Stmt:
        if isinstance(stmt, Op) or (isinstance(stmt, For) and stmt.kind in _DIVIDED) or not blocks(stmt):
            return stmt
        if incore and isinstance(stmt, For) and self._independent(stmt):
            self.found = True
            return replace(stmt, kind="parallel", body=self.block(stmt.body, incore=True))
        inside = incore or isinstance(stmt, Scope)
        return with_blocks(stmt, tuple(self.block(b, incore=inside) for b in blocks(stmt)))

    def _independent(self, stmt: For) -> bool:
        """Whether no number, and no element of one tensor, connects two iterations of a loop over elements."""
        from pto_jit.lower.dependence import conflict, pairs

        body = list(statements(stmt.body))
        if stmt.kind != "sequential" or not isinstance(stmt.step, Const) or stmt.step.value <= 0:
            return False
        if not any(isinstance(s, Op) and s.op in ("getelem", "setelem") for s in body):
            return False
        if any(touches_tiles(s) for s in body if isinstance(s, Op)) or any(
            isinstance(s, (Break, Continue, Return, While)) for s in body
        ):
            return False
        assigned = block_defs(stmt.body)
        if any(v.name in assigned for v in free_vars(stmt.body)) or assigned & read_outside(self.body, stmt):
            return False
        loop = self.dependences.loop(stmt)
        if loop is None:
            return False
        found = self.dependences.found
        if any(loop.number in stack for _, stack in found.outside):
            return False
        around = [found.loops[n].number for n in loop.outer[:-1]]
        for a, b in pairs(found.inside(loop)):
            if "unknown" in (a.root.kind, b.root.kind):
                return False
            if a.root != b.root:
                continue
            orders = [[(loop, "<")]] if a is b else [[(loop, "<")], [(loop, ">")]]
            if any(conflict(found, a, b, around, order).verdict != "no" for order in orders):  # type: ignore[arg-type]
                return False
        return True

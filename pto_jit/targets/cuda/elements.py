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

from collections.abc import Collection, Mapping, Sequence

from pto_jit.errors import Loc
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import (
    Block,
    Break,
    Const,
    Continue,
    For,
    Func,
    If,
    Module,
    Op,
    Reduction,
    Region,
    Return,
    Scope,
    Stmt,
    Var,
    While,
)
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_defs, blocks, statements, use_counts, uses, with_blocks
from pto_jit.lower.groups.axes import is_elementwise, touches_tiles
from pto_jit.slotted import frozen, replace

RULES = {"add": "Sum", "mul": "Product", "max": "Maximum", "maximum": "Maximum", "min": "Minimum",
          "minimum": "Minimum"}  # fmt: skip
"""The rules of `pto_rules.cuh` for operations that combine two numbers."""
_UNKNOWN = "?"
_ROUNDED = ("Sum", "Product")
_FOLDED = frozenset("f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64".split())
_DIVIDED = ("parallel", "chunk", "in_chunk")


@frozen
class Fold:
    """A number that the iterations of a loop combine into, and the rule of `pto_rules.cuh` that combines two.

    ordered: in the order of the iterations, which a sequential loop promises: sums and products of floats differ by it.
    """

    state: Var
    rule: str
    ordered: bool = False


def fold_of(loop: For, outside: Collection[str], *, every: bool = False) -> tuple[Fold, ...] | None:
    """What a loop over elements folds, when the order of its iterations makes no other difference; else None.

    outside: the names that are read outside of the loop's body.  The body may read memory, and computes one number or
    several of which each is combined with its own earlier value and nothing else, under conditions too; a sequential
    loop may leave an iteration, or itself, where no number that it folds says so.  every: not under conditions, and not
    in loops that promise an order.
    """
    kinds = ("combine", "in_chunk") if every else ("combine", "in_chunk", "sequential")
    if loop.kind not in kinds:
        return None
    inside = list(statements(loop.body))
    leaving = leaves(loop) or any(isinstance(s, Continue) for s in inside)
    if not _counts_up(loop) or any(not (_reads_alone(s) or _goes_on(s)) for s in inside):
        return None
    if leaving and (loop.kind != "sequential" or any(isinstance(s, For) for s in inside)):
        return None
    if loop.kind == "sequential" and (loop.var.name in outside or not _reads_elements(loop.body)):
        return None
    assigned = block_defs(loop.body)
    carried = [v for v in free_vars(loop.body) if v.name in assigned]
    if not carried or (assigned & set(outside)) - {v.name for v in carried}:
        return None
    rules = _rules(carried, loop.body)
    if rules is None or (every and not _once(loop.body, rules.keys())):
        return None
    ordered = loop.kind == "sequential" and any(
        v.type.dtype.is_float and rules[v.name] in _ROUNDED for v in carried)  # type: ignore[union-attr]  # fmt: skip
    return tuple(Fold(v, rules[v.name], ordered) for v in carried)


def merges_of(loop: For, outside: Collection[str]) -> tuple[Fold | Reduction, ...] | None:
    """By what the iterations of a loop become numbers that it reduces to, if these are all that it makes; else None.

    outside: as for `fold_of`.  Where there is no rule for it, a function of the program combines two states.
    """
    if loop.kind not in ("in_chunk", "combine") or not loop.reductions or not _counts_up(loop):
        return None
    parts = [v for r in loop.reductions for v in r.state]
    if not all(map(_computes, statements(loop.body))) or not all(isinstance(v.type, ScalarType) for v in parts):
        return None
    states = {v.name for v in parts}
    assigned = block_defs(loop.body)
    carried = {v.name for v in free_vars(loop.body)} & assigned
    if (carried | (assigned & set(outside))) - states:
        return None
    return tuple(_merge(r, loop.loc) for r in loop.reductions)


def _merge(reduction: Reduction, loc: Loc) -> Fold | Reduction:
    name, (state, *_) = reduction.combine, reduction.state
    if not isinstance(name, str):
        return reduction
    if name in RULES and state.type.dtype.name in _FOLDED:  # type: ignore[union-attr]
        return Fold(state, RULES[name])
    left, right, both = (replace(state, name=f"{state.name}.{side}") for side in ("left", "right", "both"))
    return replace(reduction, combine=Region((left, right), (Op(name, (both,), (left, right), loc=loc),), (both,)))


def merges_parts(loop: For) -> bool:
    """Whether a loop merges partial results that are numbers, into numbers or elements: few iterations, which all
    threads of a block may run."""
    return loop.kind == "combine" and _counts_up(loop) and all(
        _computes(s) or (isinstance(s, Op) and s.op == "setelem") for s in statements(loop.body))  # fmt: skip


def _computes(stmt: Stmt) -> bool:
    """The same as `_reads_alone`, in functions that combine states, which may have `while`."""
    return _reads_alone(stmt) or isinstance(stmt, While)


def _counts_up(loop: For) -> bool:
    return isinstance(loop.step, Const) and loop.step.value > 0


def leaves(loop: For) -> bool:
    """Whether a fold has a `break`."""
    return any(isinstance(s, Break) for s in statements(loop.body))


def _goes_on(stmt: Stmt) -> bool:
    return isinstance(stmt, (Break, Continue))


def _once(body: Block, states: Collection[str]) -> bool:
    """Whether every way through statements reads each state once."""
    counts = use_counts(body)
    branches = [s for s in body if isinstance(s, If)]
    return all(counts[n] == 1 for n in states) and not any(block_defs((s,)) & set(states) for s in branches)


def folds_inside(stmt: Stmt, outside: Collection[str]) -> bool:
    """Whether a sequential nest over elements is the work of one block: its innermost loops fold elements, which the
    threads of the block share, and what is around them is done once.

    outside: the names that are read after the nest.
    """
    if not isinstance(stmt, For) or stmt.kind != "sequential":
        return False
    inside = list(statements((stmt,)))
    loops = [s for s in inside if isinstance(s, For)]
    if any(not (_reads_alone(s) or _goes_on(s) or (isinstance(s, Op) and s.op == "setelem")) for s in inside):
        return False
    innermost = [s for s in loops if not any(isinstance(inner, For) for inner in statements(s.body))]
    return all(fold_of(s, read_outside((stmt,), s) | set(outside)) is not None for s in innermost)


def read_outside(body: Block, loop: For) -> frozenset[str]:
    """The names that statements of `body` read, but for those in the body of one loop."""
    inner = use_counts(loop.body)
    return frozenset([name for name, count in use_counts(body).items() if count > inner.get(name, 0)])


def _reads_elements(body: Block) -> bool:
    return any(isinstance(s, Op) and s.op == "getelem" for s in statements(body))


def _reads_alone(stmt: Stmt) -> bool:
    """Whether a statement only computes numbers, from elements of tensors, too."""
    if isinstance(stmt, Op):
        return not touches_tiles(stmt) and (stmt.op in ("getelem", "dim") or is_elementwise(stmt))
    return isinstance(stmt, If) or (isinstance(stmt, For) and stmt.kind == "sequential")


class _Mixed(Exception):
    """A state is read by something else than what combines it."""


@frozen
class _Share:
    """What a variable has of a state: the state as it was, or (`rule`) combined with what no state has a part in."""

    state: Var
    rule: str | None = None


def _rules(states: Sequence[Var], body: Block) -> dict[str, str] | None:
    """By which rule an iteration combines each state with what no state has a part in; None where one does not."""
    if any(not isinstance(v.type, ScalarType) or v.type.dtype.name not in _FOLDED for v in states):
        return None
    try:
        after, ways = _followed(body, {v.name: _Share(v) for v in states})
    except _Mixed:
        return None
    ways += [] if after is None else [after]
    rules: dict[str, str] = {}
    for name in (v.name for v in states):
        ends = [way.get(name) for way in ways]
        found = {end.rule for end in ends if end is not None} - {None}
        if len(found) != 1 or _UNKNOWN in found or any(end is None or end.state.name != name for end in ends):
            return None
        rules[name] = str(found.pop())
    return rules


def _followed(body: Block, known: Mapping[str, _Share]) -> tuple[dict[str, _Share] | None, list[dict[str, _Share]]]:
    """What variables have of states after some statements, by name (None where nothing comes after them), and where
    the iteration or the loop is left in them."""
    known = dict(known)
    left: list[dict[str, _Share]] = []
    for stmt in body:
        if isinstance(stmt, Op):
            share = _combined(stmt, [known.get(a.name) if isinstance(a, Var) else None for a in stmt.args])
            for result in stmt.results:
                known.pop(result.name, None)
                if share is not None:
                    known[result.name] = share
        elif isinstance(stmt, (Break, Continue)):
            return None, [*left, known]
        elif any(v.name in known for v in uses(stmt)):
            raise _Mixed
        elif isinstance(stmt, If):
            (then, left_then), (orelse, left_else) = _followed(stmt.then, known), _followed(stmt.orelse, known)
            left += left_then + left_else
            if then is None and orelse is None:
                return None, left
            known = _either(then, orelse) if then is not None and orelse is not None else dict(then or orelse or {})
        elif known.keys() & (block_defs((stmt,)) | use_counts((stmt,)).keys()):
            raise _Mixed
    return known, left


def _combined(op: Op, shares: Sequence[_Share | None]) -> _Share | None:
    """What the result of an operation has of a state; `shares`: what its operands have."""
    given = [s for s in shares if s is not None]
    if not given:
        return None
    share = given[0]
    if len(given) > 1 or len(op.results) != 1 or op.results[0].type != share.state.type:
        raise _Mixed
    if op.op in ("copy", "cast"):
        return share
    rule = RULES.get(op.op)
    if rule is None or len(op.args) != 2 or share.rule not in (None, rule):
        raise _Mixed
    return _Share(share.state, rule)


def _either(first: dict[str, _Share], second: dict[str, _Share]) -> dict[str, _Share]:
    """After a branch; what only one way gives a part of a state is not to be read."""
    out: dict[str, _Share] = {}
    for name in first.keys() | second.keys():
        a, b = first.get(name), second.get(name)
        if a is None or b is None or a.state != b.state or (a.rule and b.rule and a.rule != b.rule):
            share = a or b
            assert share is not None
            out[name] = _Share(share.state, _UNKNOWN)
        else:
            out[name] = a if a.rule else b
    return out


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
        from pto_jit.lower.dependence import Order, Pairs, conflict

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
        everywhere, inside = use_counts(self.body), use_counts(stmt.body)
        if any(v.name in assigned for v in free_vars(stmt.body)) or any(everywhere[n] > inside[n] for n in assigned):
            return False
        loop = self.dependences.loop(stmt)
        if loop is None:
            return False
        found = self.dependences.found
        if any(loop.number in stack for _, stack in found.outside):
            return False
        around = loop.outer[:-1]
        both: list[Order] = [[(loop, "<")], [(loop, ">")]]
        pairs = Pairs(found, loop, frozenset(around), both)
        if not pairs.known and any(a.write for a in pairs.accesses):
            return False
        return all(
            conflict(found, a, b, around, order).verdict == "no"
            for a, b in pairs.found() for order in (both[:1] if a is b else both)
        )  # fmt: skip

# SPDX-License-Identifier: MIT
"""The three questions about loops: may two be exchanged, may one run in parallel, is something a reduction.

Every answer is "yes", "no" or "unknown"; "yes" is proven.  Two different arguments may share memory, so a nest that
writes one and reads another is "unknown" unless the loops concerned are promised to be independent: what the user
promises with `parallel=True` or `chunk=` is believed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import For, Func, Module, Op, Var
from pto_jit.ir.walk import block_defs, statements
from pto_jit.lower.dependence.accesses import Access, Accesses, Loop, Root
from pto_jit.lower.dependence.conflicts import Conflict, Relation, Verdict, conflict, is_divided, may_alias
from pto_jit.lower.dependence.quick import all_apart
from pto_jit.lower.dependence.recovery import collect
from pto_jit.lower.names import source_name
from pto_jit.slotted import field, frozen, mutable

Order = list[tuple[Loop, Relation]]


@frozen
class Witness:
    """The two accesses that decide an answer, and the order of their iterations by loop."""

    a: Access
    b: Access
    order: tuple[tuple[str, Relation], ...]
    conflict: Conflict


@frozen
class Answer:
    """`reason` is for a `Decision`: it names the accesses."""

    verdict: Verdict
    reason: str
    witness: Witness | None = None

    @property
    def proven(self) -> bool:
        return self.verdict == "yes"


@frozen
class Reduction:
    """`place = place op value`: the read and the write are of one place, and the read is used for this alone.

    `exact`: the operation is associative and commutative on this dtype to the last bit.
    """

    read: Access
    write: Access
    op: str
    exact: bool


@mutable
class Dependences:
    """The dependences of one function; its accesses are collected at the first question."""

    func: Func
    module: Module | None = None
    _found: Accesses | None = None
    _reductions: dict[int, Reduction] = field(default_factory=dict)  # by the order of the access

    @property
    def found(self) -> Accesses:
        if self._found is None:
            self._found = collect(self.func, self.module)
            for reduction in _reductions(self._found):
                self._reductions[reduction.read.order] = self._reductions[reduction.write.order] = reduction
        return self._found

    def loop(self, stmt: For) -> Loop | None:
        """The loop of a statement: by identity, else by the name of its variable if that is the only one."""
        return self.found.loop_of(stmt) or self.found.loop_named(stmt.var.name)

    # -- questions ------------------------------------------------------------------------------------------------

    def may_exchange(self, outer: Loop, inner: Loop, around: Sequence[Loop]) -> Answer:
        """Whether `outer` and `inner`, next to each other in a perfect nest inside `around`, may change places.

        A divided loop (parallel, chunk, in_chunk) must be independent where it ends up, a sequential one must meet its
        dependences in their order: no direction vector may become lexicographically negative.
        """
        if is_divided(outer):
            return Answer("yes", "every loop concerned is parallel or chunked" if is_divided(inner) else
                          f"the iterations of `{outer.name}` are independent")  # fmt: skip
        effect = self._outside(outer)
        if effect is not None:
            return Answer("unknown", effect)
        across: tuple[Relation, ...] = ("<", ">") if is_divided(inner) else (">",)
        orders: list[Order] = [[(outer, "<"), (inner, relation)] for relation in across]
        witness = self._first(inner, around, orders)
        if witness is None:
            what = "no iteration of one loop depends on another one of the other"
            if is_divided(inner):
                what = f"no dependence runs from one iteration of `{inner.name}` to another"
            return Answer("yes", what)
        sure = witness.conflict.verdict == "yes"
        return Answer("no" if sure else "unknown", self._reason(witness), witness)

    def may_run_parallel(self, loop: Loop, *, apart: bool = False, but: Collection[str] = ()) -> Answer:
        """Whether the iterations of `loop` are independent: no variable and no element connects two of them.

        `apart`: suppose that different arguments do not share memory; `but`: variables that may connect them.
        """
        stmt = loop.stmt
        if not isinstance(stmt, For):
            return Answer("unknown", "a while loop runs in order")
        assigned = block_defs(stmt.body)
        for var in free_vars(stmt.body):
            if var.name in assigned and var.name not in but:
                return Answer("no", f"`{source_name(var.name)}` is carried from one iteration to the next")
        effect = self._outside(loop)
        if effect is not None:
            return Answer("unknown", effect)
        around = [self.found.loops[n] for n in loop.outer[:-1]]
        witness = self._first(loop, around, [[(loop, "<")]], atomics=False, apart=apart)
        if witness is None:
            return Answer("yes", "no element connects two iterations")
        from pto_jit.lower.dependence.violations import violation

        proven = violation(self.found, loop, witness.a, witness.b) is not None
        return Answer("no" if proven else "unknown", self._reason(witness), witness)

    def reductions(self, loop: Loop) -> list[Reduction]:
        """The updates inside `loop` of places that do not depend on it, which nothing else in the loop touches."""
        inside = self.found.inside(loop)
        out: list[Reduction] = []
        for reduction in {id(r): r for r in self._reductions.values()}.values():
            if loop.number not in reduction.write.stack:
                continue
            forms = [f for span in reduction.write.spans if span.low is not None for f in (span.low, *span.highs)]
            if loop.number in self.found.values.varies(*forms):
                continue
            others = [a for a in inside if a not in (reduction.read, reduction.write)]
            if all(conflict(self.found, a, reduction.write, loop.outer[:-1], []).verdict == "no" for a in others):
                out.append(reduction)
        return out

    # -- pairs ----------------------------------------------------------------------------------------------------

    def _first(
        self, loop: Loop, around: Sequence[Loop], orders: list[Order], *, atomics: bool = True, apart: bool = False
    ) -> Witness | None:
        """The first dependence in one of the orders (seen from either access), a certain one if there is one."""
        found, same = self.found, [outer.number for outer in around]
        possible: Witness | None = None
        both = (*orders, *map(_reversed, orders))
        inside = Pairs(found, loop, frozenset(same), both)
        inside.across = not apart or not inside.known
        for a, b in inside.found():
            if possible is not None and not a.shares_root(b):
                continue  # of different tensors nothing is certain
            if apart and not a.shares_root(b) and "unknown" not in (a.root.kind, b.root.kind):
                continue
            if self._commute(a, b, atomics=atomics):
                continue
            for order in orders if a is b else both:
                result = conflict(found, a, b, same, order)
                if result.verdict == "no":
                    continue
                witness = Witness(a, b, tuple((which.name, r) for which, r in order), result)
                if result.verdict == "yes":
                    return witness
                possible = possible or witness
                inside.across = False
        return possible

    def _commute(self, a: Access, b: Access, *, atomics: bool) -> bool:
        """Whether the order of two accesses makes no difference: exact updates by the same operation."""
        if a.atomic is not None and a.atomic == b.atomic:
            return not atomics or _is_exact(a.op)  # pyright: ignore[reportArgumentType]
        left, right = self._reductions.get(a.order), self._reductions.get(b.order)
        if not atomics or left is None or right is None or a.root != b.root:
            return False
        return left.exact and right.exact and left.op == right.op

    def _outside(self, loop: Loop) -> str | None:
        for op, stack in self.found.outside:
            if loop.number in stack:
                return f"`{op.op}` in line {op.loc.lineno} acts in the order of the loops"
        return None

    def _reason(self, witness: Witness) -> str:
        a, b, text = witness.a, witness.b, self.found.text
        if witness.order and witness.order[0][1] == ">":
            a, b = b, a
        if a.root != b.root:
            return f"{text(a)} and {text(b)} may share memory"
        order = ", ".join("<" if r == witness.order[0][1] else ">" for _, r in witness.order)
        loops = ", ".join(name for name, _ in witness.order)
        if a.write and b.write:
            what = f"{text(a)} and {text(b)} write one place"
        else:
            what = f"{text(a)} {_verb(a)} what {text(b)} {_verb(b)}"
        sure = "" if witness.conflict.verdict == "yes" else "it cannot be excluded that "
        return f"{sure}{what} (direction ({order}) over {loops})"


class Pairs:
    """Pairs of accesses in a loop, in the order of the text, of which one writes; a write is paired with itself.

    Without those of tensors whose accesses are all apart in iterations of such orders: nobody need ask about these.
    across: with pairs of different tensors, where one of the two may be the same memory as some other; it may be
    switched off on the way, from when on there are few of them.
    """

    across = False

    def __init__(self, found: Accesses, loop: Loop, shared: frozenset[int], orders: Sequence[Order]) -> None:
        self.accesses = found.inside(loop)
        numbers: dict[Root, int] = {}
        self.tensor = [numbers.setdefault(access.root, len(numbers)) for access in self.accesses]  # of each access
        self.roots = list(numbers)
        self.of_tensor: list[list[Access]] = [[] for _ in numbers]
        for access, number in zip(self.accesses, self.tensor, strict=True):
            self.of_tensor[number].append(access)
        self.known = all(root.kind != "unknown" for root in self.roots)
        self.left = [
            len(some) <= _PAIR or root.kind == "unknown" or not all_apart(found, some, shared, orders)
            for root, some in zip(self.roots, self.of_tensor, strict=True)
        ]
        self.aliases: dict[int, bool] = {}

    def found(self) -> Iterator[tuple[Access, Access]]:
        """The pairs."""
        before = [0] * len(self.roots)
        for k, (a, tensor) in enumerate(zip(self.accesses, self.tensor, strict=True)):
            before[tensor] += 1
            left = self.left[tensor]
            others: Iterable[Access] = ()
            if self.across and self._has_alias(tensor):
                rest = zip(self.accesses, self.tensor, strict=True)
                others = (b for b, other in islice(rest, k + 1, None) if left or other != tensor)
            elif left:
                others = islice(self.of_tensor[tensor], before[tensor], None)
            if a.write and left:
                yield a, a
            for b in others:
                if a.write or b.write:
                    yield a, b

    def _has_alias(self, tensor: int) -> bool:
        """Whether a tensor may be the same memory as another one in the loop."""
        known = self.aliases.get(tensor)
        if known is None:
            root = self.roots[tensor]
            known = self.aliases[tensor] = any(may_alias(root, other) for other in self.roots if other is not root)
        return known


_PAIR = 2  # accesses, which are asked about at once


def _reversed(order: Order) -> Order:
    back: dict[Relation, Relation] = {"<": ">", ">": "<", "=": "="}
    return [(loop, back[relation]) for loop, relation in order]


def _verb(access: Access) -> str:
    return "writes" if access.write else "reads"


# -- reductions ---------------------------------------------------------------------------------------------------

_UPDATES = {**{op: op for op in ("add", "mul", "min", "max", "and", "or", "xor")}, "sub": "add"}


def _is_exact(op: Op) -> bool:
    return op.args[0].type.dtype.kind in "iub"


def _reductions(found: Accesses) -> list[Reduction]:
    """The updates `place = place op value` of a function."""
    writes = [a for a in found.accesses if a.write and isinstance(a.op, Op) and a.op.op in ("setelem", "store")]
    written = {a.root for a in writes}
    reads = {a.op.results[0].name: a for a in found.accesses
             if not a.write and isinstance(a.op, Op) and a.op.results and a.root in written}  # fmt: skip
    if not reads:
        return []
    made: dict[str, Op] = {}
    uses: dict[str, int] = {}
    twice: set[str] = set()
    for stmt in statements(found.func.body):
        if isinstance(stmt, Op):
            twice.update(r.name for r in stmt.results if r.name in made)
            made.update({r.name: stmt for r in stmt.results})
            for arg in stmt.args:
                if isinstance(arg, Var):
                    uses[arg.name] = uses.get(arg.name, 0) + 1
    out: list[Reduction] = []
    for write in writes:
        assert isinstance(write.op, Op)
        value = write.op.args[0]
        op = made.get(value.name) if isinstance(value, Var) else None
        if op is None or op.op not in _UPDATES or len(op.args) != 2 or op.results[0].name in twice:
            continue
        for arg in op.args[: 1 if op.op == "sub" else 2]:
            read = reads.get(arg.name) if isinstance(arg, Var) else None
            if read is None or arg.name in twice or uses[arg.name] != 1 or read.stack != write.stack:  # pyright: ignore
                continue
            same = (read.space, read.spans, read.conditions) == (write.space, write.spans, write.conditions)
            if same and all(span.low is not None for span in write.spans):
                out.append(Reduction(read, write, _UPDATES[op.op], _is_exact(write.op)))
                break
    return out

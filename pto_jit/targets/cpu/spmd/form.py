# SPDX-License-Identifier: MIT
"""Scalar code as a tree for lane-wise writing, in which every loop has variables of its own.

Lanes leave a loop at different times.  A variable that the loop assigns and that lives outside of it is therefore two:
the loop's own (`inner`), which only the lanes still in the loop read, and the one outside, into which a lane that
leaves copies its value.  What the loop assigns then needs no mask, and a counter that all lanes inside have in common
stays one scalar even when they leave one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Break, Const, Continue, For, Func, If, Op, Operand, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TileType, Type
from pto_jit.ir.walk import block_defs, defs, rename, statements, uses, variables
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.packs import COUNT, PACK
from pto_jit.lower.scans import BEFORE, PREFIX
from pto_jit.slotted import field, frozen, mutable, replace
from pto_jit.targets.cpu.bits import BITS


class Unfit(Exception):
    """The code cannot be written for several lanes; the text says why."""


@mutable(eq=False)
class Compute:
    """One operation. `masked`: its result lives on in lanes that are not active here."""

    op: Op
    masked: bool = False


@mutable(eq=False)
class Branch:
    """`leaves`: some of the active lanes may leave the loop (or its iteration) inside."""

    cond: Operand
    then: list[Node]
    orelse: list[Node]
    varying: bool = False
    leaves: bool = False


@mutable(eq=False)
class Leave:
    """Break, or continue (`again`). `varying`: only some of the lanes in the loop come here."""

    again: bool
    loop: Repeat | None
    varying: bool = False


@mutable(eq=False)
class Repeat:
    """A loop: `before` is run and all of `conds` are tested before each iteration, or a counter runs over a range."""

    before: list[Node] = field(default_factory=list)
    conds: list[Operand] = field(default_factory=list)
    body: list[Node] = field(default_factory=list)
    counter: Var | None = None
    bounds: tuple[Operand, Operand, int] | None = None
    entries: list[tuple[Var, Operand]] = field(default_factory=list)
    """Variables of its own with what they start as."""
    captures: list[tuple[Var, Var]] = field(default_factory=list)
    """What a lane takes along when it leaves: (outer, inner)."""
    masked: list[bool] = field(default_factory=list)
    """Per capture, whether lanes that are not active at the loop keep their value of the outer variable."""
    varying: bool = False
    """Lanes may leave it at different times."""
    leaves: bool = False
    """Some of the active lanes may leave an iteration early."""


Node = Compute | Branch | Leave | Repeat
Path = tuple[tuple[int, int], ...]


@frozen
class _Container:
    """The text around a loop: how often it reads each name, and what lives on when its end is reached."""

    reads: Counter[str]
    carried: frozenset[str]


def read_counts(block: Iterable[Stmt]) -> Counter[str]:
    """How often each name is read in a block."""
    return Counter(v.name for s in statements(tuple(block)) for v in uses(s))


def read_later(func: Func, loop: For, but: Sequence[Var] = ()) -> bool:
    """Whether the code around a loop reads what the body assigns, other than the variables `but`."""
    inside, everywhere = read_counts(loop.body), read_counts(func.body)
    kept = {v.name for v in (*but, *(v for r in loop.reductions for v in r.state))}
    return any(everywhere[name] > inside[name] for name in {*block_defs(loop.body), loop.var.name} - kept)


@mutable
class Form:
    """The tree of a loop's body (or a region's), with where its variables live.

    `home` is the innermost place in the tree around all that concerns a variable; `slots` are the variables that
    cannot be values: assigned more than once, or read outside of the block that assigns them.
    """

    nodes: list[Node]
    types: dict[str, Type]
    home: dict[str, Path]
    slots: set[str]


def build(body: Block, own: Sequence[Var], results: Sequence[Operand] = (), kept: Sequence[Var] = ()) -> Form:
    """The form of a body whose iterations each have the variables `own`; `results` are read at its end.  `kept` are
    variables that each lane keeps from one iteration to its next.

    Raises `Unfit` when it holds anything but scalar operations, elements of tensors, branches and loops, or when it
    carries a variable from one iteration to the next.
    """
    assigned = block_defs(body)
    for var in free_vars(body):
        if var.name in assigned and var.name not in {v.name for v in (*own, *kept)}:
            raise Unfit(f"%{var.name} is carried")
    counts = Counter(v.name for s in statements(body) for v in defs(s))
    several = {n for n, k in counts.items() if k > 1}.union(v.name for v in kept)
    builder = _Builder({v.name: v.type for v in (*variables(body), *own, *kept)}, several)
    reads = read_counts(body)
    reads.update(r.name for r in results if isinstance(r, Var))
    nodes = builder.block(body, _Container(reads, frozenset(v.name for v in kept)), None)
    return _placed(nodes, builder.types, (*own, *kept), results)


class _Builder:
    def __init__(self, types: dict[str, Type], mutable: set[str]) -> None:
        self.types = types
        self.mutable = mutable
        self.fresh = 0

    def name(self, of: str) -> str:
        self.fresh += 1
        new = f"{of.partition('@')[0]}@{self.fresh}"
        self.types[new] = self.types[of]
        return new

    def block(self, block: Block, around: _Container, loop: Repeat | None) -> list[Node]:
        out: list[Node] = []
        latest: dict[str, Operand] = {}  # values that variables have here: more uniform than the variables
        for stmt in block:
            match stmt:
                case Op():
                    if stmt.op == "assert" and not stmt.attr("always"):
                        continue
                    _check(stmt)
                    out += self._compute(stmt, latest)
                    continue
                case If():
                    then, orelse = self.block(stmt.then, around, loop), self.block(stmt.orelse, around, loop)
                    out.append(Branch(stmt.cond, then, orelse))
                case While():
                    out.append(self._while(stmt, around, latest))
                case For():
                    out.append(self._for(stmt, around, latest))
                case Break() | Continue():
                    again = isinstance(stmt, Continue)
                    if loop is None and not again:
                        raise Unfit("it breaks out of the loop")
                    out.append(Leave(again, loop))
                    break
                case _:
                    raise Unfit(f"it has a {type(stmt).__name__.lower()}")
            for name in block_defs((stmt,)):
                latest.pop(name, None)
        return out

    def _compute(self, op: Op, latest: dict[str, Operand]) -> list[Node]:
        """An operation, whose result gets a name of its own when it is for a variable."""
        if len(op.results) != 1 or op.results[0].name not in self.mutable:
            return [Compute(op)]
        target = op.results[0]
        if op.op == "copy" and (isinstance(op.args[0], Const) or op.args[0].name not in self.mutable):
            latest[target.name] = op.args[0]
            return [Compute(op)]
        value = Var(self.name(target.name), target.type)
        latest[target.name] = value
        return [Compute(replace(op, results=(value,))), Compute(Op("copy", (target,), (value,), loc=op.loc))]

    def _own_names(
        self,
        assigned: set[str],
        free: set[str],
        inside: Counter[str],
        around: _Container,
        node: Repeat,
        latest: dict[str, Operand],
    ) -> dict[str, str]:
        names: dict[str, str] = {}
        for name in sorted(assigned):
            live = around.reads[name] > inside[name] or name in around.carried
            if name not in free and not live:
                continue
            own = names[name] = self.name(name)
            self.mutable.add(own)
            kind = self.types[own]
            # also for a loop that runs no iteration
            node.entries.append((Var(own, kind), latest.get(name, Var(name, kind))))
            if live:
                node.captures.append((Var(name, kind), Var(own, kind)))
        return names

    def _while(self, stmt: While, around: _Container, latest: dict[str, Operand]) -> Repeat:
        node = Repeat()
        free = {v.name for v in free_vars((stmt,))}
        assigned = block_defs((*stmt.before, *stmt.body))
        names = self._own_names(assigned, free, read_counts((stmt,)), around, node, latest)
        before, body = rename(stmt.before, names), rename(stmt.body, names)
        cond = stmt.cond
        if isinstance(cond, Var) and cond.name in names:
            cond = Var(names[cond.name], cond.type)
        reads = read_counts((*before, *body))
        if isinstance(cond, Var):
            reads[cond.name] += 1
        inner = _Container(reads, frozenset(names.values()))
        before, conds = _conjuncts(before, cond, inner)
        node.before = self.block(before, inner, node)
        node.conds = [c for c in conds if not (isinstance(c, Const) and c.value)]
        node.body = self.block(body, inner, node)
        return node

    def _for(self, stmt: For, around: _Container, latest: dict[str, Operand]) -> Repeat:
        if stmt.kind != "sequential":
            raise Unfit("it has a parallel loop")
        if not isinstance(stmt.step, Const) or stmt.step.value == 0:
            raise Unfit("the step of a loop in it is not known")
        node = Repeat(counter=stmt.var, bounds=(stmt.start, stmt.stop, int(stmt.step.value)))
        free = {v.name for v in free_vars(stmt.body)} - {stmt.var.name}
        assigned = block_defs(stmt.body)
        if stmt.var.name in assigned:
            raise Unfit("a loop in it assigns its variable")
        names = self._own_names(assigned, free, read_counts(stmt.body), around, node, latest)
        body = rename(stmt.body, names)
        inner = _Container(read_counts(body), frozenset(names.values()))
        node.body = self.block(body, inner, node)
        return node


def _check(op: Op) -> None:
    if any(isinstance(v.type, TileType) for v in (*op.args, *op.results)) or op.regions:
        raise Unfit(f"it has tiles (`{op.op}`)")
    if op.op not in ("getelem", "setelem", "dim", PREFIX, BEFORE, PACK, COUNT, *BITS) and not is_elementwise(op):
        raise Unfit(f"it has the operation `{op.op}`")
    if not all(isinstance(r.type, ScalarType) for r in op.results):
        raise Unfit(f"it has the operation `{op.op}`")


def _conjuncts(before: Block, cond: Operand, around: _Container) -> tuple[Block, list[Operand]]:
    """A condition `a and b` as two, so that a part that all lanes have in common is tested on its own."""
    conds: list[Operand] = [cond]
    known = {s.results[0].name: s for s in before if isinstance(s, Op) and s.op == "and"}
    at = 0
    while at < len(conds):
        part = conds[at]
        op = known.get(part.name) if isinstance(part, Var) else None
        if op is None or around.reads[op.results[0].name] != 1 or op.results[0].name in around.carried:
            at += 1
            continue
        before = tuple(s for s in before if s is not op)
        conds[at : at + 1] = op.args
    return before, conds


# -- where variables live ----------------------------------------------------------------------------------------------


def inner_path(path: Path, node: Node, side: int) -> Path:
    """The place of a block inside `node`, which stands at `path`."""
    return (*path, (id(node), side))


def _placed(nodes: list[Node], types: dict[str, Type], own: Sequence[Var], results: Sequence[Operand]) -> Form:
    home: dict[str, Path] = {}
    made: dict[str, list[Path]] = {}
    read: dict[str, list[Path]] = {}

    def meet(name: str, path: Path) -> None:
        have = home.setdefault(name, path)
        common = 0
        while common < min(len(have), len(path)) and have[common] == path[common]:
            common += 1
        home[name] = have[:common]

    def define(var: Var, path: Path) -> None:
        made.setdefault(var.name, []).append(path)
        meet(var.name, path)

    def use(operand: Operand, path: Path) -> None:
        if isinstance(operand, Var) and isinstance(operand.type, ScalarType):
            read.setdefault(operand.name, []).append(path)
            meet(operand.name, path)

    def walk(block: list[Node], path: Path) -> None:
        for node in block:
            match node:
                case Compute():
                    for a in node.op.args:
                        use(a, path)
                    for r in node.op.results:
                        define(r, path)
                case Branch():
                    use(node.cond, path)
                    walk(node.then, inner_path(path, node, 0))
                    walk(node.orelse, inner_path(path, node, 1))
                case Repeat():
                    inside = inner_path(path, node, 2)
                    for mine, outer in node.entries:
                        use(outer, path)
                        define(mine, inside)
                    if node.bounds is not None:
                        use(node.bounds[0], path)
                        use(node.bounds[1], path)
                    if node.counter is not None:
                        define(node.counter, inside)
                    walk(node.before, inside)
                    for c in node.conds:
                        use(c, inside)
                    walk(node.body, inside)
                    for outer, mine in node.captures:
                        use(mine, inside)
                        define(outer, path)
                        define(outer, path)  # every lane by itself: never a value
                case Leave():
                    pass

    for var in own:
        define(var, ())
    walk(nodes, ())
    for r in results:
        use(r, ())
    slots = {
        name for name, places in made.items()
        if len(places) > 1 or any(p[: len(places[0])] != places[0] for p in read.get(name, ()))
    }  # fmt: skip
    return Form(nodes, types, {n: p for n, p in home.items() if n in made}, slots)

# SPDX-License-Identifier: MIT
"""Which names a function owns, and which of them are live where control flow meets.

Python's scoping rules and a backward liveness analysis over the syntax tree, done once per function node.  Liveness
keeps temporaries of a loop body or a branch out of the variables that the loop carries or the branch merges.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from pto_jit.slotted import field, mutable
from pto_jit.source import children, every_node

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Names = frozenset[str]
_NAMING = frozenset({*FUNCTIONS, *COMPREHENSIONS, ast.Call, ast.Nonlocal, ast.Global, ast.MatchAs, ast.MatchStar,
                     ast.MatchMapping, ast.Import, ast.ImportFrom, ast.ExceptHandler, ast.ClassDef})  # fmt: skip
"""Nodes besides names that bind names, or whose insides are not all of this scope."""
NONE: Names = frozenset()


@mutable(eq=False)
class LoopNames:
    """What a loop does to the names of its function."""

    assigned: tuple[str, ...]  # in order of first assignment; the target of a `for` included
    exposed: Names  # live where an iteration starts: their value comes from before
    live_after: Names
    augmented_only: Names  # every assignment in the body is `name op= ...`
    tests: tuple[tuple[ast.expr, Names], ...]  # conditions in the body, with the names they read
    branches: tuple[ast.If, ...]  # `if` statements in the body
    updates: tuple[ast.expr, ...]  # what `.update(...)` is called on: perhaps explicit reductions


@mutable(eq=False)
class FunctionNames:
    """The scope of one `def` or `lambda`."""

    parameters: tuple[str, ...]
    locals: Names
    nonlocals: Names
    captured: Names  # locals that nested functions use: live everywhere
    shared: Names  # locals that nested functions rebind with `nonlocal`
    loops: dict[ast.AST, LoopNames] = field(default_factory=dict)
    live_after: dict[ast.AST, Names] = field(default_factory=dict)  # of `if` statements


def analyse(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> FunctionNames:
    """The names of a function node."""
    parameters = parameter_names(node.args)
    body: Sequence[ast.AST] = node.body if isinstance(node.body, list) else [node.body]
    stored: dict[str, None] = dict.fromkeys(parameters)
    nonlocals: set[str] = set()
    global_names: set[str] = set()
    inner_free: set[str] = set()
    inner_rebound: set[str] = set()
    for item in body:
        _collect(item, stored, nonlocals, global_names, inner_free, inner_rebound)
    mine = frozenset(stored) - nonlocals - global_names
    names = FunctionNames(
        parameters, mine, frozenset(nonlocals), frozenset(inner_free) & mine, frozenset(inner_rebound) & mine
    )
    if isinstance(node.body, list):
        _Liveness(names).block(node.body, names.captured, NONE, NONE)
    return names


def parameter_names(args: ast.arguments) -> tuple[str, ...]:
    ordered = [*args.posonlyargs, *args.args, *([args.vararg] if args.vararg else []), *args.kwonlyargs]
    return tuple(a.arg for a in [*ordered, *([args.kwarg] if args.kwarg else [])])


def _collect(
    node: ast.AST,
    stored: dict[str, None],
    nonlocals: set[str],
    global_names: set[str],
    inner_free: set[str],
    inner_rebound: set[str],
) -> None:
    kind = type(node)
    if kind is ast.Name:
        if type(node.ctx) is not ast.Load:  # type: ignore[attr-defined]
            stored[node.id] = None  # type: ignore[attr-defined]
        return
    if kind not in _NAMING:
        for child in children(node):
            _collect(child, stored, nonlocals, global_names, inner_free, inner_rebound)
        return
    if isinstance(node, FUNCTIONS):
        if not isinstance(node, ast.Lambda):
            stored[node.name] = None
        inner_free |= free_names(node)
        inner_rebound |= _rebound(node)
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]:
            _collect(default, stored, nonlocals, global_names, inner_free, inner_rebound)
        if not isinstance(node, ast.Lambda):
            for decorator in node.decorator_list:
                _collect(decorator, stored, nonlocals, global_names, inner_free, inner_rebound)
        return
    if isinstance(node, COMPREHENSIONS):
        for inner in ast.walk(node):
            if isinstance(inner, ast.NamedExpr):
                stored[inner.target.id] = None
            elif isinstance(inner, ast.Lambda):
                inner_free |= free_names(inner)
        return
    if isinstance(node, ast.Call) and _calls_at_once(node.func):
        # A lambda given to these is called now: its names count as read here, not as captured for good.
        for child in children(node):
            if not isinstance(child.value if isinstance(child, ast.keyword) else child, ast.Lambda):
                _collect(child, stored, nonlocals, global_names, inner_free, inner_rebound)
        return
    if isinstance(node, ast.Nonlocal):
        nonlocals.update(node.names)
    elif isinstance(node, ast.Global):
        global_names.update(node.names)
    elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
        stored[node.name] = None
    elif isinstance(node, ast.MatchMapping) and node.rest:
        stored[node.rest] = None
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            stored[(alias.asname or alias.name).split(".")[0]] = None
    elif isinstance(node, ast.ExceptHandler) and node.name:
        stored[node.name] = None
    elif isinstance(node, ast.ClassDef):
        stored[node.name] = None
        return
    for child in children(node):
        _collect(child, stored, nonlocals, global_names, inner_free, inner_rebound)


def _calls_at_once(node: ast.expr) -> bool:
    """Whether a called expression is a function that calls its arguments and does not keep them."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("map", "reduce", "associative_scan")
    return isinstance(node, ast.Name) and node.id in ("map", "filter", "sorted", "reduce", "min", "max")


def _rebound(node: ast.AST) -> set[str]:
    return {name for inner in ast.walk(node) if isinstance(inner, ast.Nonlocal) for name in inner.names}


def free_names(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """Names that a function takes from the scopes around it (globals and builtins among them)."""
    own = dict.fromkeys(parameter_names(node.args))
    nonlocals: set[str] = set()
    global_names: set[str] = set()
    inner: set[str] = set()
    body: Sequence[ast.AST] = node.body if isinstance(node.body, list) else [node.body]
    for item in body:
        _collect(item, own, nonlocals, global_names, inner, set())
    read = set().union(*(uses(item) for item in body)) if body else set()
    return ((read | inner) - (set(own) - nonlocals - global_names)) | nonlocals


def uses(node: ast.AST | None) -> set[str]:
    """Names read anywhere in `node`; names bound by comprehensions and functions inside it are left out."""
    found: set[str] = set()
    if node is not None:
        _uses(node, found)
    return found


def _uses(node: ast.AST, found: set[str]) -> None:
    kind = type(node)
    if kind is ast.Name:
        if type(node.ctx) is ast.Load:  # type: ignore[attr-defined]
            found.add(node.id)  # type: ignore[attr-defined]
        return
    if kind not in _NAMING and kind is not ast.AugAssign:
        for child in children(node):
            _uses(child, found)
        return
    if isinstance(node, FUNCTIONS):
        found |= free_names(node)
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]:
            _uses(default, found)
        if not isinstance(node, ast.Lambda):
            for decorator in node.decorator_list:
                _uses(decorator, found)
        return
    if isinstance(node, COMPREHENSIONS):
        inner: set[str] = set()
        targets: set[str] = set()
        for child in children(node):
            _uses(child, inner)
        for generator in node.generators:
            targets |= stores([generator.target])
        found |= inner - targets
        return
    if isinstance(node, ast.AugAssign):
        if isinstance(node.target, ast.Name):
            found.add(node.target.id)
        else:
            _uses(node.target, found)
        _uses(node.value, found)
        return
    for child in children(node):
        _uses(child, found)


def stores(nodes: Iterable[ast.AST], without: frozenset[ast.AST] = frozenset()) -> set[str]:
    """Names bound anywhere in `nodes` (not in functions inside), except in statements of `without`."""
    stored: dict[str, None] = {}
    for node in nodes:
        _collect_kept(node, stored, without)
    return set(stored)


def _collect_kept(node: ast.AST, stored: dict[str, None], without: frozenset[ast.AST]) -> None:
    if node in without:
        return
    if not without or not isinstance(node, (ast.If, ast.For, ast.While, ast.With)):
        _collect(node, stored, set(), set(), set(), set())
        return
    for child in children(node):
        _collect_kept(child, stored, without)


class _Liveness:
    """Backward analysis in two parts: what each statement reads before writing (context free), then what is live."""

    def __init__(self, names: FunctionNames) -> None:
        self.names = names
        self.summaries: dict[ast.AST, tuple[set[str], set[str] | None]] = {}

    # -- reads before writes, and definite writes (None: control does not continue) --

    def summary(self, stmts: Sequence[ast.stmt]) -> tuple[set[str], set[str] | None]:
        read: set[str] = set()
        written: set[str] | None = set()
        for stmt in reversed(stmts):
            r, w = self.statement(stmt)
            if w is None:
                read, written = set(r), None
            else:
                read = r | (read - w)
                written = None if written is None else written | w
        return read, written

    def statement(self, stmt: ast.stmt) -> tuple[set[str], set[str] | None]:
        known = self.summaries.get(stmt)
        if known is None:
            known = self.summaries[stmt] = self._statement(stmt)
        return known

    def _statement(self, stmt: ast.stmt) -> tuple[set[str], set[str] | None]:
        if isinstance(stmt, ast.If):
            read_a, written_a = self.summary(stmt.body)
            read_b, written_b = self.summary(stmt.orelse)
            read = uses(stmt.test) | read_a | read_b
            if written_a is None or written_b is None:
                return read, written_b if written_a is None else written_a
            return read, written_a & written_b
        if isinstance(stmt, (ast.For, ast.AsyncFor)):
            body = self.summary(stmt.body)[0] - stores([stmt.target])
            return uses(stmt.iter) | body | self.summary(stmt.orelse)[0], set()
        if isinstance(stmt, ast.While):
            read = uses(stmt.test) | self.summary(stmt.body)[0] | self.summary(stmt.orelse)[0]
            return read, set()
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            read, written = self.summary(stmt.body)
            items = set().union(*(uses(i.context_expr) for i in stmt.items))
            names = stores(i.optional_vars for i in stmt.items if i.optional_vars)
            return items | (read - names), None if written is None else written | names
        if isinstance(stmt, ast.Match):
            read = uses(stmt.subject)
            for case in stmt.cases:
                read |= (uses(case.guard) | self.summary(case.body)[0] | uses(case.pattern)) - stores([case.pattern])
            return read, set()
        if isinstance(stmt, (ast.Return, ast.Raise)):
            return uses(stmt), None
        if isinstance(stmt, (ast.Break, ast.Continue)):
            return set(), None
        if isinstance(stmt, (ast.Assign, ast.AnnAssign)):
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target] if stmt.value else []
            read = uses(stmt.value)
            bound: set[str] = set()
            for target in targets:
                read |= uses(target)
                bound |= stores([target])
            return read, bound
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return uses(stmt), {stmt.name}
        if isinstance(stmt, ast.Delete):
            read = set().union(*(uses(t) for t in stmt.targets))
            return read, stores(stmt.targets)
        return uses(stmt), set()

    # -- what is live after each branch and loop --

    def block(self, stmts: Sequence[ast.stmt], out: Names, on_break: Names, on_continue: Names) -> Names:
        live = out
        for stmt in reversed(stmts):
            live = self.before(stmt, live, on_break, on_continue)
        return live

    def before(self, stmt: ast.stmt, out: Names, on_break: Names, on_continue: Names) -> Names:
        captured = self.names.captured
        if isinstance(stmt, ast.If):
            # the paths of an unrolled loop that leave it inside the branch meet the others at the branch's end
            leaving = (on_break if _leaves(stmt, ast.Break) else NONE) | (
                on_continue if _leaves(stmt, ast.Continue) else NONE
            )
            self.names.live_after[stmt] = out | leaving
            then = self.block(stmt.body, out, on_break, on_continue)
            other = self.block(stmt.orelse, out, on_break, on_continue)
            return then | other | uses(stmt.test)
        if isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
            return self.loop(stmt, out, on_break, on_continue)
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            live = self.block(stmt.body, out, on_break, on_continue)
            return live.union(*(uses(i.context_expr) for i in stmt.items))
        if isinstance(stmt, ast.Match):
            self.names.live_after[stmt] = out
            live = out | uses(stmt.subject)
            for case in stmt.cases:
                live |= self.block(case.body, out, on_break, on_continue) | uses(case.guard) | uses(case.pattern)
            return live
        if isinstance(stmt, ast.Break):
            return on_break | captured
        if isinstance(stmt, ast.Continue):
            return on_continue | captured
        read, written = self.statement(stmt)
        return (captured | read) if written is None else (out - written) | read | captured

    def loop(self, stmt: ast.For | ast.AsyncFor | ast.While, out: Names, on_break: Names, on_continue: Names) -> Names:
        after = self.block(stmt.orelse, out, on_break, on_continue)
        body_reads = frozenset(self.summary(stmt.body)[0])
        if isinstance(stmt, ast.While):
            exposed = body_reads | uses(stmt.test)
            bound: list[ast.AST] = [stmt.test, *stmt.body]
            entry = NONE
        else:
            exposed = body_reads - stores([stmt.target])
            bound = [stmt.target, *stmt.body]
            entry = frozenset(uses(stmt.iter) | uses(stmt.target))
        head = exposed | after | out | self.names.captured
        stored: dict[str, None] = {}
        for node in bound:
            _collect(node, stored, set(), set(), set(), set())
        body = every_node(stmt.body)
        inner = [*every_node(bound[:1]), *body]
        if self.names.shared and any(isinstance(n, ast.Call) for n in inner):
            stored.update(dict.fromkeys(sorted(self.names.shared)))
        self.names.loops[stmt] = LoopNames(
            tuple(stored),
            NONE,
            after | out | self.names.captured,
            _augmented_only(inner),
            *_decisions(body),
        )
        start = self.block(stmt.body, head, out | self.names.captured, head)
        if isinstance(stmt, ast.While):
            start |= uses(stmt.test)
        self.names.loops[stmt].exposed = start & frozenset(stored)
        return head | entry


def _leaves(stmt: ast.stmt, kind: type[ast.stmt]) -> bool:
    """Whether a `break` or `continue` in a branch leaves the loop around it."""
    if isinstance(stmt, kind):
        return True
    if isinstance(stmt, (ast.For, ast.While)):
        return any(_leaves(s, kind) for s in stmt.orelse)
    if isinstance(stmt, ast.If):
        return any(_leaves(s, kind) for s in (*stmt.body, *stmt.orelse))
    if isinstance(stmt, ast.With):
        return any(_leaves(s, kind) for s in stmt.body)
    return isinstance(stmt, ast.Match) and any(_leaves(s, kind) for case in stmt.cases for s in case.body)


def _augmented_only(nodes: Sequence[ast.AST]) -> Names:
    """Names that are bound by augmented assignment alone."""
    targets = [n.target for n in nodes if type(n) is ast.AugAssign and type(n.target) is ast.Name]
    if not targets:
        return NONE
    marks = set(map(id, targets))
    plain = {n.id for n in nodes if type(n) is ast.Name and type(n.ctx) is not ast.Load and id(n) not in marks}
    return frozenset(n.id for n in targets) - plain


_DECIDING = frozenset({ast.If, ast.While, ast.IfExp, ast.Match, ast.Call})


def _decisions(
    nodes: Sequence[ast.AST],
) -> tuple[tuple[tuple[ast.expr, Names], ...], tuple[ast.If, ...], tuple[ast.expr, ...]]:
    """The conditions among `nodes` with the names they read, the `if`s, and the objects of `.update` calls."""
    tests: list[ast.expr] = []
    branches: list[ast.If] = []
    updates: list[ast.expr] = []
    for node in nodes:
        if type(node) not in _DECIDING:
            continue
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            tests.append(node.test)
            if isinstance(node, ast.If):
                branches.append(node)
        elif isinstance(node, ast.Match):
            tests.append(node.subject)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
            updates.append(node.func.value)
    return tuple((t, frozenset(uses(t))) for t in tests), tuple(branches), tuple(updates)


def set_by(test: ast.expr, truth: bool) -> Iterator[str]:
    """The names that `:=` has certainly set where a test is `truth`, which decides how much of it was computed."""
    if isinstance(test, ast.BoolOp):
        for part in test.values if isinstance(test.op, ast.And) == truth else ():
            yield from set_by(part, truth)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from set_by(test.operand, not truth)
    elif isinstance(test, ast.Compare) and (truth or len(test.ops) == 1):
        for part in (test.left, *test.comparators):
            yield from _computed(part)
    else:
        yield from _computed(test)


def _computed(node: ast.AST) -> Iterator[str]:
    """The names that `:=` sets in all of an expression but what `and`, `or` and the like may leave out."""
    if isinstance(node, ast.NamedExpr):
        yield node.target.id
    if not isinstance(node, (ast.BoolOp, ast.IfExp, ast.Lambda, *COMPREHENSIONS)) and not (
        isinstance(node, ast.Compare) and len(node.ops) > 1
    ):
        for child in ast.iter_child_nodes(node):
            yield from _computed(child)

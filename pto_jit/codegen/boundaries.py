# SPDX-License-Identifier: MIT
"""In-core scopes made explicit: runs of tile operations become scopes, and tiles never cross a scope's border.

The front end emits tile operations where they stand.  Here every maximal run of them outside a scope becomes a scope
of its own; a tile that is used in several scopes is stored to a temporary tensor where it is computed and loaded
where it is used (with its valid extents, kept in scalars); views move to where they can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeGuard

from pto_jit.codegen.emit import I64, Emitter, index
from pto_jit.codegen.remaking import remake_generated
from pto_jit.codegen.valid_extents import ValidExtents
from pto_jit.errors import CompilationError, Loc
from pto_jit.ir import walk
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Break, Continue, For, If, Op, Operand, Return, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.semantic.rules import effects
from pto_jit.slotted import mutable, replace


def place_scopes(e: Emitter, body: Sequence[Stmt], name: Callable[[], str], implicit: bool, complete: Callable[[Var], bool]) -> Block:  # fmt: skip  # noqa: E501
    """The body of an orchestration function with all tile work in scopes.

    `implicit`: the whole body is one scope, apart from what only orchestration can do.
    """
    grouper = _Grouper(name, implicit, _assigned_often(body), e.local)
    block = grouper.block(body)
    return _Crossings(e, complete).block(remake_generated(block, e.fresh))


def _assigned_often(body: Sequence[Stmt]) -> set[str]:
    seen: set[str] = set()
    often: set[str] = set()
    for stmt in walk.statements(tuple(body)):
        for var in walk.defs(stmt):
            (often if var.name in seen else seen).add(var.name)
    return often


def is_pure(op: Stmt) -> bool:
    """An operation on scalars and views that can be moved and repeated."""
    return (
        isinstance(op, Op)
        and op.op not in ("alloc", "copy", "getelem", "valid", "extent", "extract", "print", "assert")
        and effects(op.op) == "none"
        and not op.regions
        and all(isinstance(r.type, (ScalarType, TensorType)) for r in op.results)
        and all(isinstance(a.type, (ScalarType, TensorType)) for a in op.args)
    )


def _is_new(stmt: Stmt) -> TypeGuard[Op]:
    """Whether a statement makes a tensor."""
    return isinstance(stmt, Op) and stmt.op == "alloc"


class _Grouper:
    """Forms scopes out of runs of tile operations."""

    def __init__(self, name: Callable[[], str], implicit: bool, often: set[str], local: set[str]) -> None:
        self.name = name
        self.implicit = implicit
        self.often = often
        self.local = local
        self.features: dict[int, frozenset[str]] = {}

    def kind(self, stmt: Stmt) -> str:
        """ "host" (only orchestration can do it), "core" (tile work) or "either"."""
        features = self._features(stmt)
        if "host" in features or "leave" in features:
            return "host"
        if "core" in features or (self.implicit and not is_pure(stmt)):
            return "core"
        return "host" if "memory" in features or "loop" in features else "either"

    def _features(self, stmt: Stmt) -> frozenset[str]:
        known = self.features.get(id(stmt))
        if known is None:
            known = self.features[id(stmt)] = self._compute(stmt)
        return known

    def _compute(self, stmt: Stmt) -> frozenset[str]:
        if isinstance(stmt, (Scope, Return)) or _is_new(stmt):
            return frozenset({"host"})
        if isinstance(stmt, (Break, Continue)):
            return frozenset({"leave"})
        if isinstance(stmt, Op):
            types = [a.type for a in (*stmt.args, *stmt.results)]
            if any(isinstance(t, TileType) for t in types) or stmt.op in ("print", "assert"):
                return frozenset({"core"})
            return frozenset({"memory"}) if effects(stmt.op) != "none" else frozenset()
        within = [s for block in walk.blocks(stmt) for s in block]
        if self.implicit:  # the array of an iteration is memory of the scope
            within = [s for s in within if not (_is_new(s) and s.results[0].name in self.local)]
        inner = frozenset().union(*map(self._features, within))
        return (inner - {"leave"}) | {"loop"} if isinstance(stmt, (For, While)) else inner

    def block(self, stmts: Sequence[Stmt]) -> Block:
        stmts = self._allocations_first(stmts)
        out: list[Stmt] = []
        run: list[Stmt] = []
        tail: list[Stmt] = []  # statements after the last tile operation of the run, which may stay outside

        def close() -> None:
            if run:
                out.append(Scope(self.name(), tuple(run), False, run[0].loc))
            out.extend(tail)
            run.clear()
            tail.clear()

        for stmt in stmts:
            kind = self.kind(stmt)
            if kind == "core":
                run.extend(tail)
                tail.clear()
                run.append(stmt)
            elif kind == "host":
                close()
                out.append(self._inside(stmt))
            elif run:
                tail.append(stmt)
            else:
                out.append(stmt)
        close()
        return tuple(out)

    def _inside(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            return replace(stmt, body=self.block(stmt.body))
        if isinstance(stmt, While):
            return replace(stmt, before=self.block(stmt.before), body=self.block(stmt.body))
        if isinstance(stmt, If):
            return replace(stmt, then=self.block(stmt.then), orelse=self.block(stmt.orelse))
        return stmt

    def _allocations_first(self, stmts: Sequence[Stmt]) -> list[Stmt]:
        """New tensors, and the extents they need, before everything else where that is possible."""
        if not any(map(_is_new, stmts)):
            return list(stmts)
        local = {v.name for s in stmts for inner in walk.statements((s,)) for v in walk.defs(inner)}
        producer = {r.name: s for s in stmts if is_pure(s) for r in walk.defs(s) if r.name not in self.often}
        early: dict[int, Stmt] = {}

        def available(operand: Operand, wanted: dict[int, Stmt]) -> bool:
            if not isinstance(operand, Var) or operand.name not in local:
                return True
            stmt = producer.get(operand.name)
            if stmt is None:
                return False
            if id(stmt) not in early and id(stmt) not in wanted:
                if not all(available(a, wanted) for a in walk.operands(stmt)):
                    return False
                wanted[id(stmt)] = stmt
            return True

        for stmt in stmts:
            if _is_new(stmt):
                wanted: dict[int, Stmt] = {}
                if all(available(a, wanted) for a in stmt.args):
                    early.update(wanted)
                    early[id(stmt)] = stmt
        return [*early.values(), *(s for s in stmts if id(s) not in early)]


@mutable
class _Temporary:
    """A tensor that carries a tile from scope to scope, and the scalars with its valid extents."""

    tensor: Var
    extents: tuple[Operand, ...]
    valid: tuple[Var, ...]  # empty when the tile is valid everywhere


class _Crossings:
    """Stores and loads for tiles, and new places for views, that are used outside the scope that makes them."""

    def __init__(self, e: Emitter, complete: Callable[[Var], bool]) -> None:
        self.e = e
        self.complete = complete
        self.temporaries: dict[str, _Temporary] = {}
        self.placed: set[str] = set()
        self.whole: Block = ()

    def block(self, body: Block) -> Block:
        self.whole = body
        body = self._views(body)
        if not any(isinstance(s, Scope) for s in walk.statements(body)):
            return body
        return self._block(body, self._crossing_tiles(body), set())

    # -- tiles --

    def _crossing_tiles(self, body: Block) -> dict[str, Var]:
        """Tiles that some scope needs from outside it."""
        return {
            var.name: var
            for scope in _scopes(body)
            for var in free_vars(scope.body)
            if isinstance(var.type, TileType)
        }

    def _block(self, body: Block, crossing: dict[str, Var], made: set[str]) -> Block:
        """Place each temporary in the innermost block around all its uses, before the first of them."""
        mentions = [{n for n in _tile_names(s) if n in crossing and n not in made} for s in body]
        counts: dict[str, int] = {}
        for names in mentions:
            for name in names:
                counts[name] = counts.get(name, 0) + 1
        out: list[Stmt] = []
        made = set(made)
        for stmt, names in zip(body, mentions, strict=True):
            for name in sorted(names):
                if name not in made and (counts[name] > 1 or isinstance(stmt, Scope) or self._meets_here(stmt, name)):
                    self._make(crossing[name], out, body, stmt.loc)
                    made.add(name)
            if isinstance(stmt, Scope):
                out += self._scope(stmt)
            else:
                out.append(self._statement(stmt, crossing, made))
        return tuple(out)

    def _meets_here(self, stmt: Stmt, name: str) -> bool:
        """Whether a name is used in several blocks of one statement, or carried by a loop."""
        inner = [b for b in walk.blocks(stmt) if any(name in _tile_names(s) for s in b)]
        if len(inner) > 1:
            return True
        if not isinstance(stmt, (For, While)):
            return False
        return any(name == v.name for block in inner for v in free_vars(block))

    def _statement(self, stmt: Stmt, crossing: dict[str, Var], made: set[str]) -> Stmt:
        if isinstance(stmt, For):
            return replace(stmt, body=self._block(stmt.body, crossing, made))
        if isinstance(stmt, While):
            return replace(
                stmt, before=self._block(stmt.before, crossing, made), body=self._block(stmt.body, crossing, made)
            )
        if isinstance(stmt, If):
            return replace(
                stmt, then=self._block(stmt.then, crossing, made), orelse=self._block(stmt.orelse, crossing, made)
            )
        return stmt

    def _make(self, var: Var, out: list[Stmt], body: Block, loc: Loc) -> None:
        """Allocate the temporary of a tile."""
        e = self.e
        assert isinstance(var.type, TileType)
        extents = e.extents_of(var)
        if extents is None:
            raise CompilationError(
                f"the tile `{_spoken(var)}` leaves its in-core scope, and its extents are only known inside",
                loc, code="PTO-N041",
                hint="give the tile constant extents or extents computed outside the scope, or store it to a tensor",
            )  # fmt: skip
        outside = self._outside(extents, out, body, var, loc)
        with e.block() as block:
            (tensor,) = e.op("alloc", outside, {"dtype": var.type.dtype, "tile": True}, hint=f"{_spoken(var)}_tmp")
            valid: tuple[Var, ...] = ()
            if not self.complete(var):
                valid = tuple(e.named(_spoken(var), I64) for _ in outside)
                for item, extent in zip(valid, outside, strict=True):
                    e.append(Op("copy", (item,), (extent,), (), (), loc))
        out.extend(_located(block, loc))
        self.temporaries[var.name] = _Temporary(tensor, outside, valid)

    def _outside(
        self, extents: Sequence[Operand], out: list[Stmt], body: Block, var: Var, loc: Loc
    ) -> tuple[Operand, ...]:
        """The extents computed before the scopes: those computed inside are repeated outside."""
        inside = {v.name: s for scope in _scopes(body) for s in walk.statements(scope.body) for v in walk.defs(s)}
        copies: dict[str, Var] = {}

        def moved(operand: Operand) -> Operand:
            if not isinstance(operand, Var) or operand.name not in inside:
                return operand
            if operand.name in copies:
                return copies[operand.name]
            stmt = inside[operand.name]
            if not (isinstance(stmt, Op) and len(stmt.results) == 1 and (is_pure(stmt) or self._gives_the_same(stmt))):
                raise CompilationError(
                    f"the tile `{_spoken(var)}` leaves its in-core scope, and its extents are computed inside",
                    loc, code="PTO-N047",
                    hint="compute the extents before the scope, or store the tile to a tensor",
                )  # fmt: skip
            args = tuple(moved(a) for a in stmt.args)
            result = self.e.fresh(stmt.results[0].name.split(".")[0], stmt.results[0].type)
            out.append(replace(stmt, results=(result,), args=args))
            copies[operand.name] = result
            return result

        return tuple(moved(x) for x in extents)

    def _gives_the_same(self, op: Op) -> bool:
        """Whether an operation gives the same wherever its operands are known: it copies a number to a variable that is
        assigned once, or reads an element of a tensor of which nothing but elements and extents is ever read."""
        if op.op == "copy":
            return walk.def_counts(self.whole)[op.results[0].name] == 1
        if op.op != "getelem" or not isinstance(op.args[0], Var):
            return False
        name = op.args[0].name
        using = [s for s in walk.statements(self.whole) if any(v.name == name for v in walk.uses(s))]
        return all(isinstance(s, Op) and s.op in ("getelem", "dim") for s in using)

    def _scope(self, scope: Scope) -> Block:
        """Load what comes from outside at the start; store what goes out where it is computed.

        Valid extents of what goes out are computed after the scope, where that can be done outside.
        """
        assigned = _defined(scope.body)
        needed = [v for v in free_vars(scope.body) if v.name in self.temporaries] if self.temporaries else []
        written = [v for v in assigned if v.name in self.temporaries]
        top = {v.name for s in scope.body for v in walk.defs(s)}
        head: list[Stmt] = []
        for var in needed:
            head += self._load(var, scope.loc)
        at_end = [v for v in written if v.name in top]
        nested = {v.name for v in written if v.name not in top}
        body = self._stores_inside(scope.body, nested) if nested else scope.body
        tail: list[Stmt] = []
        after: list[Stmt] = []
        for var in at_end:
            outside = self._valid_outside(var, scope) if self.temporaries[var.name].valid else ()
            tail += self._store(var, scope.loc, valid_too=outside is None)
            after += outside or ()
        mine = {v.name: v for v in (*needed, *assigned)}
        names = {n: self.e.fresh(n.split(".")[0], v.type).name for n, v in mine.items() if n in self.placed}
        self.placed.update(mine)  # a tile of one name lives in one scope
        if not (names or head or tail or nested):
            return (scope,)
        return (replace(scope, body=walk.rename((*head, *body, *tail), names)), *after)

    def _valid_outside(self, var: Var, scope: Scope) -> Block | None:
        """The valid extents of a temporary's tile, assigned outside of the scope that computes it."""
        with self.e.block() as block:
            extents = ValidExtents(self.e, scope.body, self._known_extents, is_pure).outside(var)
            for valid, extent in zip(self.temporaries[var.name].valid, extents or (), strict=False):
                self.e.append(Op("copy", (valid,), (extent,), (), (), scope.loc))
        return None if extents is None else tuple(_located(block, scope.loc))

    def _known_extents(self, name: str) -> tuple[Operand, ...] | None:
        temporary = self.temporaries.get(name)
        return None if temporary is None else temporary.valid or temporary.extents

    def _stores_inside(self, body: Block, names: set[str]) -> Block:
        out: list[Stmt] = []
        for stmt in body:
            out.append(_inside(stmt, lambda b: self._stores_inside(b, names)))
            for var in walk.defs(stmt):
                if var.name in names and isinstance(stmt, Op):
                    out += self._store(var, stmt.loc)
        return tuple(out)

    def _load(self, var: Var, loc: Loc) -> list[Stmt]:
        temporary = self.temporaries[var.name]
        e = self.e
        zeros = [index(0)] * len(temporary.extents)
        with e.block() as block:
            source = temporary.tensor
            if temporary.valid:
                (source,) = e.op("view", [source, *zeros, *temporary.valid], {"drop": ()}, hint=source.name)
            e.append(Op("load", (var,), (source, *zeros, *temporary.extents), (), (), loc))
        return _located(block, loc)

    def _store(self, var: Var, loc: Loc, valid_too: bool = True) -> list[Stmt]:
        temporary = self.temporaries[var.name]
        e = self.e
        with e.block() as block:
            e.op("store", [var, temporary.tensor, *([index(0)] * len(temporary.extents))])
            for axis, valid in enumerate(temporary.valid if valid_too else ()):
                (now,) = e.op("valid", [var], {"axis": axis})
                e.append(Op("copy", (valid,), (now,), (), (), loc))
        return _located(block, loc)

    # -- views --

    def _views(self, body: Block) -> Block:
        """Views made in a scope and used outside it are made before it."""
        out: list[Stmt] = []
        scopes = any(isinstance(stmt, Scope) for stmt in body)
        last = {name: k for k, stmt in enumerate(body) for name in walk.block_uses((stmt,))} if scopes else {}
        for k, stmt in enumerate(body):
            if not isinstance(stmt, Scope):
                out.append(_inside(stmt, self._views))
                continue
            mine = {v.name: s for s in walk.statements(stmt.body) for v in walk.defs(s)}
            views = [n for n, s in mine.items() if last.get(n, -1) > k and isinstance(s, Op) and _is_view(s)]
            moved: dict[int, Stmt] = {}
            for name in views:
                self._lift(name, mine, moved, stmt.loc)
            if not moved:
                out.append(stmt)
                continue
            out += moved.values()
            gone = set(moved)
            out.append(replace(stmt, body=_without(stmt.body, gone)))
        return tuple(out)

    def _lift(self, name: str, mine: dict[str, Stmt], moved: dict[int, Stmt], loc: Loc) -> None:
        stmt = mine.get(name)
        if stmt is None or id(stmt) in moved:
            return
        if not is_pure(stmt):
            raise CompilationError(
                "a view made in an in-core scope is used outside it, and its bounds are computed inside",
                stmt.loc, code="PTO-N042",
                hint="make the view before the scope, or again after it",
            )  # fmt: skip
        for operand in walk.operands(stmt):
            if isinstance(operand, Var):
                self._lift(operand.name, mine, moved, loc)
        moved[id(stmt)] = stmt


def _inside(stmt: Stmt, fn: Callable[[Block], Block]) -> Stmt:
    """`stmt` with `fn` applied to the blocks in it."""
    inner = walk.blocks(stmt)
    return walk.with_blocks(stmt, tuple(fn(b) for b in inner)) if inner else stmt


def _is_view(op: Op) -> bool:
    return len(op.results) == 1 and isinstance(op.results[0].type, TensorType)


def _without(block: Block, gone: set[int]) -> Block:
    return tuple(_inside(s, lambda b: _without(b, gone)) for s in block if id(s) not in gone)


def _scopes(body: Block) -> Iterator[Scope]:
    for stmt in body:
        if isinstance(stmt, Scope):
            yield stmt
        else:
            for inner in walk.blocks(stmt):
                yield from _scopes(inner)


def _defined(body: Block) -> list[Var]:
    found: dict[str, Var] = {}
    for stmt in walk.statements(body):
        for var in walk.defs(stmt):
            if isinstance(var.type, TileType):
                found.setdefault(var.name, var)
    return list(found.values())


def _tile_names(stmt: Stmt) -> set[str]:
    return {
        var.name
        for inner in walk.statements((stmt,))
        for var in (*walk.uses(inner), *walk.defs(inner))
        if isinstance(var.type, TileType)
    }


def _spoken(var: Var) -> str:
    return var.name.split(".")[0]


def _located(block: Sequence[Stmt], loc: Loc) -> list[Stmt]:
    return [replace(s, loc=loc) if isinstance(s, Op) and not s.loc.lineno else s for s in block]

# SPDX-License-Identifier: MIT
"""Valid extents of tiles that one kernel leaves in memory for the next, as numbers of the host code.

A tile that was cut at the border of a tensor is stored next to its valid extents, a table of integers.  On this target
cores would have to tell each other what is in it; but what tiles were cut to follows from offsets and tensors that the
host knows.

Before::

    CALL @k_0(%x -> %x, %parts -> %parts, %valid -> %valid, %r -> %r)    // %t = tload %x[%r, 0] [64, 1]
    CALL @k_1(%parts -> %parts, %valid -> %valid)                        // %n = sgetelem %valid[%c, 0]

After::

    CALL @k_0(%x -> %x, %parts -> %parts, %r -> %r)
    %x_rows = sdim %x {axis=0} : i64
    %below = ssub %x_rows, %r : i64
    %valid = smin 64, %below : i64
    CALL @k_1(%parts -> %parts, %valid -> %valid)                        // %n is %valid

Tiles of state that are stored without their extents, as they have those of another part of the state, are loaded as far
as they are valid, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Block, Call, Const, Func, Module, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import (
    WRITES,
    block_defs,
    block_uses,
    blocks,
    defs,
    map_blocks,
    rewrite_block,
    statements,
    substitute,
    uses,
)
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes
from pto_jit.lower.names import Taken, unused
from pto_jit.slotted import replace
from pto_jit.targets.cuda.loops import writes

_INDEX = ScalarType(i64)
Number = Operand | tuple[object, ...]
"""An operand, `("dim", tensor, axis)`, `("sub", a, b)` or `("min", a, b)`."""


class _Unknown(Exception):
    """An extent that does not follow from what the host knows."""


def known_extents(module: Module) -> Module:
    """The module without tables of extents, if all of them are known to the host."""
    entry = module.func(module.entry)
    tables = _tables(entry, module)
    if not tables:
        return module
    try:
        return _Pass(module, entry, tables).run()
    except _Unknown:
        return module


def _tables(entry: Func, module: Module) -> set[str]:
    """Tensors of the host that have nothing but valid extents in them."""
    found = {s.results[0].name for s in statements(entry.body) if isinstance(s, Op) and s.op == "alloc"
             and s.attr("dtype") == i64}  # fmt: skip
    for s in statements(entry.body):
        if not isinstance(s, Call):
            found -= {v.name for v in uses(s)}
            continue
        callee = module.func(s.callee)
        for parameter, given in zip(callee.params, s.args, strict=True):
            if isinstance(given, Var) and given.name in found and not _is_table(callee, parameter):
                found.discard(given.name)
    return found


def _is_table(func: Func, table: Var) -> bool:
    """Whether a kernel stores nothing but valid extents in a tensor, and reads single ones, at known places."""
    counts = {s.results[0].name for s in statements(func.body) if isinstance(s, Op) and s.op == "valid"}
    for s in statements(func.body):
        if table not in uses(s):
            continue
        if not isinstance(s, Op) or s.op not in ("setelem", "getelem") or not isinstance(s.args[-1], Const):
            return False
        if s.op == "setelem" and not (isinstance(s.args[0], Var) and s.args[0].name in counts):
            return False
    return True


class _Pass:
    def __init__(self, module: Module, entry: Func, tables: set[str]) -> None:
        self.module, self.entry, self.tables = module, entry, tables
        self.block = next(b for b in _all_blocks(entry.body) if any(isinstance(s, Call) and set(_names(s)) & tables
                                                                    for s in b))  # fmt: skip
        self.calls = [s for s in self.block if isinstance(s, Call)]
        everywhere = [s for s in statements(entry.body) if isinstance(s, Call)]
        names = [s.callee for s in everywhere]
        if any(names.count(s.callee) > 1 for s in self.calls) or any(
            set(_names(s)) & tables for s in everywhere if s not in self.calls
        ):
            raise _Unknown
        self.taken = Taken({v.name for s in statements(entry.body) for v in defs(s)} | {p.name for p in entry.params})
        self.told: dict[tuple[str, int], Number] = {}  # of a table's columns: what is in them
        self.kept: dict[str, tuple[Number, ...]] = {}  # of tensors with one tile in them: how much of it is valid
        self.given: dict[Number, Var] = {}  # the host's names of numbers
        self.made = _made(entry)

    def run(self) -> Module:
        funcs = {f.name: f for f in self.module.funcs}
        new: list[Stmt] = []
        for s in self.block:
            if not isinstance(s, Call):
                new.append(s)
                continue
            func, call, before = self.called(funcs[s.callee], s)
            funcs[s.callee] = func
            new += [*before, call]
        body = _with_block(self.entry.body, self.block, tuple(new))
        body = rewrite_block(body, lambda s: () if isinstance(s, Op) and s.op == "alloc"
                             and s.results[0].name in self.tables else None)  # fmt: skip
        funcs[self.entry.name] = replace(self.entry, body=body)
        return replace(self.module, funcs=tuple(funcs[f.name] for f in self.module.funcs))

    def called(self, func: Func, call: Call) -> tuple[Func, Call, list[Stmt]]:
        """A kernel that is given numbers instead of tables, its call, and what the host computes before it."""
        host = {p.name: a for p, a in zip(func.params, call.args, strict=True)}
        before: list[Stmt] = []
        wanted: dict[str, tuple[Var, Var]] = {}  # parameters that are added, with what the host gives
        own = block_defs(func.body) | {p.name for p in func.params}

        def parameter(number: Number) -> Operand:
            if isinstance(number, Const):
                return number
            given = self.name(number, before)
            if given.name not in wanted:
                wanted[given.name] = Var(unused(given.name, own, "."), _INDEX), given
            return wanted[given.name][0]

        equal: dict[str, Operand] = {}
        for s in statements(func.body):
            if isinstance(s, Op) and s.op == "getelem" and _table_of(s.args[0], host) in self.tables:
                key = _table_of(s.args[0], host), int(s.args[-1].value)  # type: ignore[union-attr]
                if key not in self.told:
                    raise _Unknown
                equal[s.results[0].name] = parameter(self.told[key])

        def visit(s: Stmt) -> Block | None:
            if not isinstance(s, Op):
                return None
            if s.op == "getelem" and s.results[0].name in equal:
                return ()
            if s.op == "load" and not s.attr("pad"):
                return self.cut(s, host, parameter, own)
            return None

        body = substitute(rewrite_block(func.body, visit), equal)
        extents = _Extents(body)
        added = {p.name: given for p, given in wanted.values()}
        for s in statements(body):
            if isinstance(s, Op) and s.op == "setelem" and _table_of(s.args[1], host) in self.tables:
                count = extents.made[s.args[0].name][0]  # type: ignore[union-attr]
                rank = count.args[0].type.rank  # type: ignore[union-attr]
                number = extents.of(count.args[0], int(count.attr("axis")) - rank)[0]  # type: ignore[arg-type]
                key = _table_of(s.args[1], host), int(s.args[-1].value)  # type: ignore[union-attr]
                number = self.on_host(number, host, added)
                if self.told.setdefault(key, number) != number:
                    raise _Unknown
            elif isinstance(s, Op) and s.op == "store":
                self.keep(s, extents, host, added)
            elif isinstance(s, Op) and writes(s):
                self.kept.pop(_table_of(s.args[WRITES[s.op]], host), None)
        body = rewrite_block(body, lambda s: () if isinstance(s, Op) and s.op == "setelem"
                             and _table_of(s.args[1], host) in self.tables else None)  # fmt: skip
        read = block_uses(body)
        body = rewrite_block(body, lambda s: () if isinstance(s, Op) and s.op == "valid"
                             and s.results[0].name not in read else None)  # fmt: skip
        pairs = [(p, a) for p, a in zip(func.params, call.args, strict=True) if _table_of(p, host) not in self.tables]
        pairs += list(wanted.values())
        return (replace(func, params=tuple(p for p, _ in pairs), body=body),
                replace(call, args=tuple(a for _, a in pairs)), before)  # fmt: skip

    # -- tiles without extents of their own -----------------------------------------------------------------------

    def keep(self, store: Op, extents: _Extents, host: dict[str, Operand], added: dict[str, Var]) -> None:
        """Remember how much of the tile is valid that a tensor of its size has in it."""
        tile, name = store.args[0], _table_of(store.args[1], host)
        made = self.made.get(name)
        if made is None or not isinstance(tile, Var) or not isinstance(tile.type, TileType) or any(
            a != Const(0, _INDEX) for a in store.args[2:]
        ) or tuple(tile.type.shape) != tuple(a.value if isinstance(a, Const) else None for a in made.args):  # fmt: skip
            self.kept.pop(name, None)
            return
        try:
            valid = tuple(self.on_host(extents.of(tile, a - tile.type.rank)[0], host, added)
                          for a in range(tile.type.rank))  # fmt: skip
        except _Unknown:
            return
        if self.kept.setdefault(name, valid) != valid:
            raise _Unknown

    def cut(self, load: Op, host: dict[str, Operand], parameter: object, own: set[str]) -> Block | None:
        """A load of such a tile from the part of it that is valid."""
        source = load.args[0]
        assert isinstance(source, Var) and isinstance(source.type, TensorType)
        valid = self.kept.get(_table_of(source, host))
        rank = source.type.rank
        if valid is None or any(a != Const(0, _INDEX) for a in load.args[1 : 1 + rank]):
            return None
        sizes = tuple(parameter(n) for n in valid)  # type: ignore[operator]
        if all(isinstance(n, Const) for n in sizes):
            return None
        shape = tuple(int(n.value) if isinstance(n, Const) else None for n in sizes)
        typ = TensorType(source.type.dtype, shape, "inner")
        part = Var(unused(f"{source.name}.part", own, "."), typ)
        zeros = (Const(0, _INDEX),) * rank
        return (Op("view", (part,), (source, *zeros, *sizes), (("drop", ()),), (), load.loc),
                replace(load, args=(part, *load.args[1:])))  # fmt: skip

    # -- numbers of the host --------------------------------------------------------------------------------------

    def on_host(self, number: Number, host: dict[str, Operand], added: dict[str, Var]) -> Number:
        """A number of a kernel in the names of the host."""
        if isinstance(number, tuple):
            kind, *rest = (self.on_host(n, host, added) if isinstance(n, (Var, Const, tuple)) else n for n in number)
            return _least(*rest) if kind == "min" else (kind, *rest)  # type: ignore[arg-type]
        if isinstance(number, Const):
            return number
        if number.name in added:
            return next(n for n, v in self.given.items() if v == added[number.name])
        if number.name not in host:
            raise _Unknown
        return host[number.name]

    def name(self, number: Number, before: list[Stmt]) -> Var:
        """The host's variable for a number, computed here if there is none yet."""
        if isinstance(number, Var):
            self.given.setdefault(number, number)
            return number
        assert isinstance(number, tuple)
        if number not in self.given:
            kind = str(number[0])
            wish = {"dim": "extent", "sub": "below", "min": "valid"}[kind]
            args: tuple[Operand, ...] = tuple(
                n if isinstance(n, Const) else self.name(n, before) for n in number[1:] if not isinstance(n, int)  # type: ignore[arg-type]
            )
            out = Var(unused(wish, self.taken, "."), _INDEX)
            attrs = (("axis", number[2]),) if kind == "dim" else ()
            before.append(Op(kind, (out,), args, attrs, (), self.calls[0].loc))  # type: ignore[arg-type]
            self.given[number] = out
        return self.given[number]


class _Extents:
    """How much of the tiles of a kernel is valid."""

    def __init__(self, body: Block) -> None:
        self.made: dict[str, list[Op]] = defaultdict(list)
        for s in statements(body):
            for v in defs(s):
                if isinstance(s, Op):
                    self.made[v.name].append(s)
        self.visiting: set[str] = set()

    def of(self, tile: Operand, axis: int) -> tuple[Number, bool]:
        """An extent, and whether it is one of a tile that fits whatever it meets; axis: counted from the last."""
        typ = tile.type
        if not isinstance(tile, Var) or not isinstance(typ, TileType):
            raise _Unknown
        if typ.shape[axis] == 1:
            return Const(1, _INDEX), False
        declared = typ.shape[axis]
        sure: list[Number] = []
        if tile.name not in self.visiting:
            self.visiting.add(tile.name)
            try:
                for op in self.made[tile.name]:
                    number, free = self._made_by(op, axis)
                    if not free and number not in sure:
                        sure.append(number)
            finally:
                self.visiting.discard(tile.name)
        if len(sure) > 1 or (declared is None and not sure):
            raise _Unknown
        return (sure[0], False) if sure else (Const(declared, _INDEX), True)  # type: ignore[arg-type]

    def _made_by(self, op: Op, axis: int) -> tuple[Number, bool]:
        out = op.results[0]
        if op.op == "load" and op.attr("pad"):
            if out.type.shape[axis] is None:  # type: ignore[union-attr]
                raise _Unknown
            return Const(out.type.shape[axis], _INDEX), False  # type: ignore
        if op.op == "load":
            rank = op.args[0].type.rank  # type: ignore[union-attr]
            at = rank + axis
            return _cut(op.args[1 + rank + at], self._extent(op.args[0], at), op.args[1 + at]), False
        if op.op in ("full", "arange"):
            return Const(out.type.shape[axis], _INDEX), True  # type: ignore
        keeps = is_reduction(op) and op.attr("keepdims") and axis not in {
            a - op.args[0].type.rank for a in reduced_axes(op)}  # type: ignore[union-attr]  # fmt: skip
        if not keeps and not is_elementwise(op):
            raise _Unknown
        found = [self.of(a, axis) for a in op.args if isinstance(a.type, TileType) and a.type.shape[axis] != 1]
        sure = [n for k, (n, free) in enumerate(found) if not free and n not in [m for m, f in found[:k] if not f]]
        if len(sure) > 1:
            raise _Unknown
        return (sure[0], False) if sure else (found[0][0], True)

    def _extent(self, tensor: Operand, axis: int) -> Number:
        """Of a tensor, or a view."""
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        known = tensor.type.shape[axis]
        if known is not None:
            return Const(known, _INDEX)
        made = self.made.get(tensor.name)
        if not made:
            return "dim", tensor, axis
        op = made[0]
        if op.op != "view":
            raise _Unknown
        rank = op.args[0].type.rank  # type: ignore[union-attr]
        old = [a for a in range(rank) if a not in (op.attr("drop") or ())][axis]  # type: ignore[operator]
        return _cut(op.args[1 + rank + old], self._extent(op.args[0], old), op.args[1 + old])


def _cut(extent: Number, limit: Number, offset: Operand) -> Number:
    """How much of an extent, counted from an offset, lies inside a limit."""
    zero = isinstance(offset, Const) and offset.value == 0
    if isinstance(extent, Const) and isinstance(limit, Const) and isinstance(offset, Const):
        return Const(min(int(extent.value), int(limit.value) - int(offset.value)), _INDEX)
    return _least(extent, limit if zero else ("sub", limit, offset))


def _least(a: Number, b: Number) -> Number:
    for one, other in ((a, b), (b, a)):
        if one == other or (isinstance(other, tuple) and other[0] == "min" and one in other[1:]):
            return other  # min(a, min(a, b))
    return "min", a, b


def _table_of(tensor: Operand, host: dict[str, Operand]) -> str:
    """The host's name of a tensor of a kernel."""
    given = host.get(tensor.name) if isinstance(tensor, Var) else None
    return given.name if isinstance(given, Var) else ""


def _made(entry: Func) -> dict[str, Op]:
    """Tensors that the host makes, and gives to no one but kernels."""
    made = {s.results[0].name: s for s in statements(entry.body) if isinstance(s, Op) and s.op == "alloc"}
    for s in statements(entry.body):
        if not isinstance(s, Call):
            for v in uses(s):
                made.pop(v.name, None)
    return made


def _names(call: Call) -> Iterator[str]:
    return (a.name for a in call.args if isinstance(a, Var))


def _all_blocks(block: Block) -> Iterator[Block]:
    yield block
    for s in block:
        for inner in blocks(s):
            yield from _all_blocks(inner)


def _with_block(block: Block, old: Block, new: Block) -> Block:
    """A block with another one in the place of one that is inside of it, or it itself."""
    return new if block is old else map_blocks(block, lambda b: new if b == old else b)

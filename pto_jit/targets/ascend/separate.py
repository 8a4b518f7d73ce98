# SPDX-License-Identifier: MIT
"""Kernels with matrix products and other work as two: one of the cube cores, one of the vector cores after it.

The two kinds of cores have no memory in common but the global one, so the products go through a tensor of their own.

Before::

    FOR %i:idx, 0:idx, %m:idx, 128:idx {kind=parallel}
      FOR %j:idx, 0:idx, %n:idx, 128:idx {kind=parallel}
        ...
        %acc = tdot %a.1, %b.1, %acc
        %r = tgelu %acc
        tstore %r, %c[%i, %j]

After::

    FOR %i:idx, 0:idx, %m:idx, 128:idx {kind=parallel}          // on the cube cores
      FOR %j:idx, 0:idx, %n:idx, 128:idx {kind=parallel}
        ...
        %acc = tdot %a.1, %b.1, %acc
        tstore %acc, %acc.memory[%i, %j]

    FOR %i:idx, 0:idx, %m:idx, 32:idx {kind=parallel}           // on the vector cores, in smaller tiles
      FOR %j:idx, 0:idx, %n:idx, 128:idx {kind=parallel}
        %acc = tload %acc.memory[%i, %j] [32, 128]
        %r = tgelu %acc
        tstore %r, %c[%i, %j]

Loops around these two, as over the matrices of a batch, are further axes of that tensor.
"""

from __future__ import annotations

from pto_jit.dtypes import i64
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Call, Const, For, Func, Module, Op, Operand, Return, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_uses, defs, rewrite_block, statements
from pto_jit.lower.groups.axes import is_elementwise, unit_reshape
from pto_jit.lower.names import Taken, unused
from pto_jit.slotted import frozen, replace
from pto_jit.targets.ascend.few import is_on_vector_cores
from pto_jit.targets.cuda.loops import chain_of, touches_tiles

_INDEX = ScalarType(i64)
_ZERO = Const(0, _INDEX)
_BYTES = 16 * 1024
"""About how large the tiles of the vector kernel are made."""


@frozen(eq=False)
class _Parts:
    cube: Func
    vector: Func
    memories: tuple[tuple[Var, tuple[Operand, ...]], ...]  # tensors between them, with their extents


def separate(module: Module) -> Module:
    """The module with its mixed kernels divided, where that is possible; others are left to be refused."""
    entry = module.func(module.entry)
    parts = {f.name: found for f in module.funcs if f is not entry and (found := _divided(f)) is not None}
    if not parts:
        return module
    taken = Taken({v.name for s in statements(entry.body) for v in defs(s)} | {p.name for p in entry.params})

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Call) or stmt.callee not in parts:
            return None
        found = parts[stmt.callee]
        given: dict[str, Operand] = {p.name: a for p, a in zip(module.func(stmt.callee).params, stmt.args, strict=True)}
        out: list[Stmt] = []
        for memory, extents in found.memories:
            var = Var(unused(memory.name, taken, "."), memory.type)
            shape = tuple(given[e.name] if isinstance(e, Var) else e for e in extents)
            out.append(Op("alloc", (var,), shape, (("dtype", memory.type.dtype),), (), stmt.loc))
            given[memory.name] = var
        for part in (found.cube, found.vector):
            out.append(Call(part.name, tuple(given[p.name] for p in part.params), (), stmt.loc))
        return tuple(out)

    body = rewrite_block(entry.body, visit, plain=False)
    funcs: list[Func] = []
    for f in module.funcs:
        found = parts.get(f.name)
        funcs += [f] if found is None else [found.cube, found.vector]
    return replace(module, funcs=tuple(replace(f, body=body) if f is entry else f for f in funcs))


def _divided(func: Func) -> _Parts | None:
    """Both parts of a kernel; None when it is of one kind, or cannot be divided."""
    chain = chain_of(func.body)
    if not chain or is_on_vector_cores(func):
        return None
    body = chain[-1].body
    last = max((k for k, s in enumerate(body) if _has_product(s)), default=None)
    if last is None:
        return None
    before, after = body[: last + 1], body[last + 1 :]
    if not any(_is_vector_work(s) for s in after):
        return None
    needed = block_uses(after)
    moved = tuple(s for s in before if isinstance(s, Op) and s.op in ("load", "reshape") and touches_tiles(s)
                  and not ({r.name for r in s.results} & block_uses(before)))  # fmt: skip
    scalars = tuple(s for s in before if isinstance(s, Op) and not touches_tiles(s))
    before = tuple(s for s in before if s not in moved)
    made = {v.name: v for s in statements(before) for v in defs(s) if isinstance(v.type, TileType)}
    sums = [v for name, v in sorted(made.items()) if name in needed]
    places = _places(before)
    memories: list[tuple[Var, tuple[Operand, ...]]] = []
    views: list[Stmt] = []
    stores: list[Stmt] = []
    loads: list[Stmt] = []
    params = {p.name for p in func.params}
    taken = Taken(params | {v.name for s in statements(func.body) for v in defs(s)})
    for var in sums:
        place = places.get(var.name)
        typ = var.type
        assert isinstance(typ, TileType)
        if place is None or typ.rank != 2 or None in typ.shape:
            return None
        around = [loop for loop in chain if loop.var not in place]
        loops = [*around, *(loop for v in place for loop in chain if loop.var == v)]
        if len(loops) != len(chain):
            return None
        extents: list[Operand] = []
        for loop, extent in zip(loops, (*(1 for _ in around), *typ.shape), strict=True):
            if loop.start != _ZERO or loop.step != Const(extent, _INDEX):  # type: ignore[arg-type]
                return None
            if isinstance(loop.stop, Var) and loop.stop.name not in params:
                return None
            extents.append(loop.stop)
        known = tuple(int(e.value) if isinstance(e, Const) else None for e in extents)
        memory = Var(unused(f"{var.name}.memory", taken, "."), TensorType(typ.dtype, known, "c"))
        memories.append((memory, tuple(extents)))
        loc = after[0].loc
        if around:
            matrix = Var(unused(f"{var.name}.matrix", taken, "."), TensorType(typ.dtype, known[-2:], "inner"))
            first = (*(loop.var for loop in around), _ZERO, _ZERO, *(Const(1, _INDEX) for _ in around), *extents[-2:])
            views.append(Op("view", (matrix,), (memory, *first), (("drop", tuple(range(len(around)))),), (), loc))
            memory = matrix
        sides = tuple(Const(e, _INDEX) for e in typ.shape)  # type: ignore[arg-type]
        stores.append(Op("store", (), (var, memory, *place), (), (), loc))
        loads.append(Op("load", (var,), (memory, *place, *sides), (), (), loc))
    if not sums:
        return None
    row = places[sums[0].name][0]
    suffix = (*scalars, *views, *moved, *loads, *after)
    cube = _with_body(func, f"{func.name}_cube", chain, (*before, *views, *stores))
    vector = _with_body(func, f"{func.name}_vector", *_thinner(chain, suffix, row, sums[0]))
    return _Parts(cube, vector, tuple(memories))


def _has_product(stmt: Stmt) -> bool:
    if type(stmt) is Op:
        return stmt.op == "dot"
    return any(isinstance(s, Op) and s.op == "dot" for s in statements((stmt,)))


def _is_vector_work(stmt: Stmt) -> bool:
    return any(
        isinstance(s, Op) and touches_tiles(s) and s.op not in ("store", "copy")
        and not (s.op == "cast" and s.results[0].type.dtype.name in ("f16", "bf16"))  # type: ignore[union-attr]
        for s in statements((stmt,))
    )  # fmt: skip


def _places(block: Block) -> dict[str, tuple[Var, Var]]:
    """Which loop variables a sum of products has its rows and columns from."""
    loads = {s.results[0].name: s for s in statements(block) if isinstance(s, Op) and s.op == "load"}
    turned = {s.results[0].name: s.args[0].name for s in statements(block)
              if isinstance(s, Op) and s.op == "transpose" and isinstance(s.args[0], Var)}  # fmt: skip
    out: dict[str, tuple[Var, Var]] = {}
    for s in statements(block):
        if not isinstance(s, Op) or s.op != "dot":
            continue
        at: list[Operand] = []
        for side, operand in enumerate(s.args[:2]):
            assert isinstance(operand, Var)
            source = loads.get(turned.get(operand.name, operand.name))
            if source is None:
                break
            rank = source.args[0].type.rank  # type: ignore[union-attr]
            offsets = source.args[1 : 1 + rank][-2:]
            at.append(offsets[side ^ (operand.name in turned)])
        if len(at) == 2 and isinstance(at[0], Var) and isinstance(at[1], Var):
            out[s.results[0].name] = (at[0], at[1])
    return out


def _thinner(chain: tuple[For, ...], body: Block, row: Var, like: Var) -> tuple[tuple[For, ...], Block]:
    """The nest over fewer rows at a time, if what it does treats every row alike."""
    typ = like.type
    assert isinstance(typ, TileType)
    rows, columns = typ.shape
    assert rows is not None and columns is not None
    thin = max(8, _BYTES // (columns * 4) // 8 * 8)
    alike = all(not touches_tiles(s) or (isinstance(s, Op) and (is_elementwise(s) or s.op in (
        "load", "store", "full", "reshape"))) for s in body)  # fmt: skip
    if thin >= rows or rows % thin or not alike:
        return chain, body
    size = Const(thin, _INDEX)
    thinner: dict[str, tuple[int, Var]] = {}  # tiles with rows of the nest: along which axis, and what they become
    out: list[Stmt] = []
    for s in body:
        assert isinstance(s, Op)
        args = tuple([thinner[a.name][1] if isinstance(a, Var) and a.name in thinner else a for a in s.args])
        at = _row_axis(s, row, (rows, columns), {name: axis for name, (axis, _) in thinner.items()})
        if at is None:
            out.append(replace(s, args=args))
            continue
        first = {"load": 1 + len(s.results[0].type.shape), "full": 1, "reshape": 1}.get(s.op)  # type: ignore[union-attr]
        if first is not None:  # it says its extents
            args = (*args[: first + at], size, *args[first + at + 1 :])
        typ = s.results[0].type
        assert isinstance(typ, TileType)
        var = Var(s.results[0].name, TileType(typ.dtype, (*typ.shape[:at], thin, *typ.shape[at + 1 :])))
        thinner[var.name] = at, var
        out.append(replace(s, args=args, results=(var,)))
    return tuple(replace(loop, step=size) if loop.var == row else loop for loop in chain), tuple(out)


def _row_axis(op: Op, row: Var, sides: tuple[int, int], known: dict[str, int]) -> int | None:
    """Which axis of what an operation makes are the rows of the nest; None where it has none.  sides: those of a tile
    of the nest; known: the same of tiles before."""
    result = op.results[0].type if op.results else None
    if not isinstance(result, TileType):
        return None
    if op.op == "load":
        offsets = op.args[1 : 1 + result.rank]
        return offsets.index(row) if row in offsets else None
    if op.op == "full":
        return 0 if result.shape == sides else None
    for a in op.args:
        if not isinstance(a, Var) or a.name not in known or not isinstance(a.type, TileType):
            continue
        if op.op == "reshape":
            which = unit_reshape(op)
            return None if which is None else which.index(known[a.name])
        return result.rank - a.type.rank + known[a.name]
    return None


def _with_body(func: Func, name: str, chain: tuple[For, ...], body: Block) -> Func:
    """A kernel of the same loops with another body; of what stands between the loops, what is read stays."""
    loops = chain_of(func.body)
    inner: Block = body
    for depth in range(len(loops) - 1, -1, -1):
        loop = replace(chain[depth], body=inner)
        around = func.body if depth == 0 else loops[depth - 1].body
        kept: list[Stmt] = []
        for s in around:
            kept.append(loop if s is loops[depth] else s)
        inner = tuple(kept)
    inner = without_unread_numbers(inner)
    params = tuple(sorted(free_vars(inner), key=lambda v: not isinstance(v.type, TensorType)))
    if not isinstance(inner[-1], Return):
        inner = (*inner, Return((), func.loc))
    return replace(func, name=name, params=params, body=inner)


def without_unread_numbers(body: Block) -> Block:
    """Without numbers and views that nobody reads, but for elements."""
    read = block_uses(body)

    def visit(stmt: Stmt) -> Block | None:
        idle = isinstance(stmt, Op) and not touches_tiles(stmt) and stmt.results and stmt.op != "getelem"
        return () if idle and not any(r.name in read for r in stmt.results) else None  # type: ignore[union-attr]

    kept = rewrite_block(body, visit)
    return body if kept is body else without_unread_numbers(kept)

# SPDX-License-Identifier: MIT
"""Operations with functions in them (map, fold, associative scan), and running sums.

The body of a function is written inline for each element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import DType
from pto_jit.ir.nodes import Block, Fuse, Op, Operand, Region, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import defs, statements
from pto_jit.semantic import failures
from pto_jit.targets.cpu.constants import Index, Value, i64, register_type, storage_type
from pto_jit.targets.cpu.elements import address, each, give, new_tile, read, unrolled, write
from pto_jit.targets.cpu.elementwise import cast
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.groups import write_group
from pto_jit.targets.cpu.sharing import other_axis, share_lines
from pto_jit.targets.cpu.spmd import Carry, carried_writer, row_writer
from pto_jit.targets.cpu.spmd.merging import share_of
from pto_jit.targets.cpu.tiles import fits_anything, given_fits, may_fit
from pto_jit.targets.cpu.values import Tile


def inline(w: FunctionWriter, region: Region, values: Sequence[Value]) -> list[Value]:
    """The results of a region's body for these parameters, at the place of insertion."""
    saved = w.mutable
    counts = Counter(v.name for s in statements(region.body) for v in defs(s))
    w.mutable = saved | {n for n, k in counts.items() if k > 1}
    for p, v in zip(region.params, values, strict=True):
        w.define(p, v)
    w.block(region.body)
    out = [w.scalar(r) for r in region.results]
    w.mutable = saved
    return out


def _joint(
    w: FunctionWriter, op: Op, tiles: Sequence[Tile], operands: Sequence[Any]
) -> tuple[list[Index], list[Index]]:
    """Declared and valid extents of tiles that broadcast against each other."""
    code = w.code
    rank = max(t.rank for t in tiles)
    declared: list[Index] = []
    valid: list[Index] = []
    for axis in range(rank):
        sure: list[tuple[Index, Index]] = []
        maybe: list[tuple[Index, Index, bool | Value]] = []
        empty: list[bool | Value] = []
        for t, o in zip(tiles, operands, strict=True):
            at = axis - (rank - t.rank)
            if at < 0:
                continue
            if o.type.shape[at] == 1:
                empty.append(code.compare("==", t.valid[at], 0))
            else:
                if may_fit(t, at):
                    maybe.append((t.declared[at], t.valid[at], fits_anything(w, t, at)))
                else:
                    sure.append((t.declared[at], t.valid[at]))
        site = w.module.site(*failures.VALID.at(axis=axis), op.loc)
        picks = sure or maybe
        d, v = picks[0][:2] if picks else (1, 1)
        for _, other in sure[1:]:
            code.check(code.compare("==", v, other), site, v, other)
        if not sure:
            for _, other, _ in maybe[1:]:
                v = code.min(v, other)
        for _, other, anything in maybe:
            code.check(code.any_of([code.compare("==", v, other), anything]), site, v, other)
        declared.append(d)
        valid.append(code.pick(code.any_of(empty), 0, v))
    return declared, valid


def _at(indices: Sequence[Index], tile: Tile, operand: Any) -> list[Index]:
    """The indices of an operand's element, broadcast from the right."""
    tail = indices[len(indices) - tile.rank :]
    return [0 if extent == 1 else i for i, extent in zip(tail, operand.type.shape, strict=True)]


def _single(operands: Sequence[Any]) -> list[list[bool]]:
    """Which axes of tiles have one element for all."""
    return [[extent == 1 for extent in a.type.shape] for a in operands]


def write_map(w: FunctionWriter, op: Op) -> None:
    tiles = [w.tile(a) for a in op.args]
    declared, valid = _joint(w, op, tiles, op.args)
    fits = given_fits(w, op, [t.fits for t in tiles])
    outs = [new_tile(w, r, declared, valid, fits) for r in op.results]

    def body(i: list[Index]) -> None:
        values = [read(w, t, _at(i, t, a)) for t, a in zip(tiles, op.args, strict=True)]
        for out, value in zip(outs, inline(w, op.regions[0], values), strict=True):
            write(w, out, i, value)

    vectors = w.vectors and not w.recording
    row = row_writer(w, op, tiles, _single(op.args), outs, valid[-1]) if vectors else None
    if row is not None:
        each(w, valid[:-1], row)
    else:
        each(w, valid, body)
    for r, out in zip(op.results, outs, strict=True):
        give(w, r, out)


def _in_lanes(
    w: FunctionWriter, op: Op, tiles: Sequence[Tile], outs: Sequence[Tile], valid: Sequence[Index], carry: Carry
) -> bool:
    """Write a fold or scan for several places of the other axes at a time, if there are such and that is better; gives
    whether it was written."""
    if not w.vectors or w.recording or len(valid) < 2:
        return False
    row = carried_writer(w, op, tiles, _single(op.args[: len(tiles)]), outs, valid, carry)
    if row is None:
        return False
    outer = [v for k, v in enumerate(valid) if k != carry.axis]
    each(w, outer[:-1], row)
    return True


def _by_region(op: Op) -> Any:
    """The operations of a function of two states, for `Carry`."""
    region = op.regions[0]

    def combine(state: Sequence[Var], following: Sequence[Var]) -> tuple[Block, Sequence[Operand]]:
        pairs = zip(region.params, (*state, *following), strict=True)
        return (*(Op("copy", (p,), (v,), loc=op.loc) for p, v in pairs), *region.body), region.results

    return combine


def _state(w: FunctionWriter, dtypes: Sequence[DType]) -> list[Value]:
    return [w.code.alloca(register_type(d)) for d in dtypes]


_SHARES = 32  # of a line that is folded by lanes: two vectors of f32
_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


def _reduction_of(w: FunctionWriter, op: Op) -> str | None:
    """The reduction that a fold by a function of one operation is, where every order of the elements gives its bits.

    Not along an axis of extent 1: a group has no loop for it, and where it is empty does nothing for the others either.
    """
    region, source = op.regions[0], op.args[0].type
    assert isinstance(source, TileType)
    axis: Any = op.attr("axis")
    if len(region.body) != 1 or op.attr("n") != 1 or not w.vectors or w.recording or source.shape[axis] == 1:
        return None
    (only,) = region.body
    if not isinstance(only, Op) or only.op not in _REDUCTIONS or only.results != region.results:
        return None
    dtype = only.results[0].type.dtype
    if set(only.args) != set(region.params) or dtype.kind == "b":
        return None
    exact = only.op in ("max", "min") or not dtype.is_float
    return _REDUCTIONS[only.op] if exact or w.module.fast else None


def _write_as(w: FunctionWriter, name: str, op: Op) -> None:
    """A fold as the reduction that it is, whose elements are combined in another order, with what it starts from."""
    (result,) = op.results
    whole = Var(f"{result.name}.whole", result.type) if op.attr("init") else result
    attrs = (("axes", (op.attr("axis"),)), ("keepdims", op.attr("keepdims")))
    ops = [Op(name, (whole,), op.args[:1], attrs, loc=op.loc)]
    if op.attr("init"):
        (only,) = op.regions[0].body
        assert isinstance(only, Op)
        ops.append(Op(only.op, (result,), (op.args[1], whole), loc=op.loc))
    with w.passing_results():
        for one in ops:
            if isinstance(one.args[-1].type, TileType):
                write_group(w, Fuse((one,), (one.results[0].name,), op.loc))
            else:
                w.elementwise(one)


def write_fold(w: FunctionWriter, op: Op) -> None:
    """`fold(*tiles, *inits) {axis, keepdims, n, init}`: combines along one axis, from the first element on."""
    n: Any = op.attr("n")
    axis: Any = op.attr("axis")
    tiles = [w.tile(a) for a in op.args[:n]]
    inits = [w.scalar(a) for a in op.args[n:]] if op.attr("init") else None
    code = w.code
    _, valid = _joint(w, op, tiles, op.args[:n])
    length = valid[axis]
    if inits is None:
        site = w.module.site(*failures.EMPTY.at(), op.loc)
        others = [code.compare("==", v, 0) for k, v in enumerate(valid) if k != axis]
        code.check(code.any_of([code.compare(">", length, 0), *others]), site)
    reduction = _reduction_of(w, op)
    if reduction is not None:
        _write_as(w, reduction, op)
        return
    keep = bool(op.attr("keepdims"))
    first = tiles[0]
    scalar = not isinstance(op.results[0].type, TileType)
    outs: list[Any]
    if scalar:
        outs = [code.alloca(register_type(t.dtype)) for t in tiles]
    else:
        declared = [1 if k == axis else e for k, e in enumerate(first.declared) if keep or k != axis]
        kept = [1 if k == axis else v for k, v in enumerate(valid) if keep or k != axis]
        outs = [new_tile(w, r, declared, kept) for r in op.results]
    carry = Carry(axis, _by_region(op), op.args[n:] if op.attr("init") else None)
    if scalar:
        _fold_each(w, op, tiles, outs, valid, inits)
    else:

        def part(w: FunctionWriter, parts: list[Tile], more: tuple[list[Value] | None, list[Index]]) -> None:
            outs, tiles, (inits, extents) = parts[: len(parts) - n], parts[len(parts) - n :], more
            valid = list(extents)
            if at is not None:
                valid[at] = outs[0].valid[kept_at]
            if not _in_lanes(w, op, tiles, outs, valid, carry):
                _fold_each(w, op, tiles, outs, valid, inits)

        at = other_axis(len(valid), axis)
        kept_at = 0 if at is None else at if keep or at < axis else at - 1
        widest = _along(tiles, op.args, len(valid), at)
        results = [(out, None if at is None else kept_at) for out in outs]
        share_lines(w, op, [*results, *widest], part, cost=2, more=(inits, valid), elements=code.mul(*valid))
    for r, t, out in zip(op.results, tiles, outs, strict=True):
        if scalar:
            w.define(r, w.b.load(out, typ=register_type(t.dtype)))
        else:
            give(w, r, out)


def _along(
    tiles: Sequence[Tile], operands: Sequence[Any], rank: int, axis: int | None
) -> list[tuple[Tile, int | None]]:
    """Tiles, with the axes that an axis of what they broadcast to is of theirs."""
    out: list[tuple[Tile, int | None]] = []
    for tile, operand in zip(tiles, operands, strict=False):
        mine = None if axis is None else axis - (rank - tile.rank)
        out.append((tile, None if mine is None or mine < 0 or operand.type.shape[mine] == 1 else mine))
    return out


def _fold_each(
    w: FunctionWriter, op: Op, tiles: Sequence[Tile], outs: Sequence[Any], valid: Sequence[Index],
    inits: Sequence[Value] | None,
) -> None:  # fmt: skip
    """A fold for one place of the other axes after the other; `outs`: tiles, or memory for numbers."""
    code = w.code
    axis: Any = op.attr("axis")
    keep, scalar = bool(op.attr("keepdims")), not isinstance(op.results[0].type, TileType)
    state = _state(w, [t.dtype for t in tiles])
    singles = _single(op.args[: len(tiles)])
    alike = all(t.rank == len(valid) and not single[axis] for t, single in zip(tiles, singles, strict=True))
    along = alike and w.vectors and not w.recording

    def body(i: list[Index]) -> None:
        def place(k: Index) -> list[Index]:
            return [*i[:axis], k, *i[axis:]]

        def element(t: Tile, a: Any, k: Index) -> Value:
            return read(w, t, _at(place(k), t, a))

        def begin(first: Sequence[Value]) -> None:
            for slot, v in zip(state, first, strict=True):
                w.b.store(v, slot)

        def go_on(right: Sequence[Value]) -> tuple[()]:
            left = [w.b.load(s, typ=register_type(t.dtype)) for s, t in zip(state, tiles, strict=True)]
            begin(inline(w, op.regions[0], [*left, *right]))
            return ()

        def elements(k: Index) -> list[Value]:
            return [element(t, a, k) for t, a in zip(tiles, op.args, strict=False)]

        def one_by_one() -> int:
            begin(elements(0) if inits is None else inits)
            return int(inits is None)

        def in_shares() -> Sequence[Value]:
            parts, done = _shares(w, op, tiles, [address(w, t, place(0)) for t in tiles], valid[axis])
            if not parts:
                return (i64(one_by_one()),)

            def states(k: Index) -> list[Value]:
                return [read(w, part, [k]) for part in parts]

            begin(states(0) if inits is None else inits)
            code.loop(int(inits is None), _SHARES, body=lambda k, _: go_on(states(k)), name="parts")
            return (i64(done),)

        start: Index
        if along:
            enough = code.compare(">=", valid[axis], _SHARES * _line(tiles))
            (start,) = code.choose(enough, in_shares, lambda: (i64(one_by_one()),))
        else:
            start = one_by_one()
        code.loop(start, valid[axis], body=lambda k, _: go_on(elements(k)), name="fold")
        for slot, t, out in zip(state, tiles, outs, strict=True):
            v = w.b.load(slot, typ=register_type(t.dtype))
            if scalar:
                w.b.store(v, out)
            else:
                write(w, out, [*i[:axis], 0, *i[axis:]] if keep else i, v)

    each(w, [v for k, v in enumerate(valid) if k != axis], body)


def _line(tiles: Sequence[Tile]) -> int:
    """Elements of a cache line, of the narrowest tile."""
    return 64 // min(t.dtype.bytes for t in tiles)


def _shares(
    w: FunctionWriter, op: Op, tiles: Sequence[Tile], begins: Sequence[Value], length: Index
) -> tuple[list[Tile], Index]:  # fmt: skip
    """What equal shares of a line come to, each of elements that follow each other, and how many elements these are;
    no tiles where nothing is written, as shares side by side would be no better.

    begins: where the line begins in each tile.
    """
    code, line, axis = w.code, _line(tiles), int(op.attr("axis"))  # type: ignore[call-overload]
    share = share_of(code, length, _SHARES, line)
    extents = _SHARES, share
    lying = [
        Tile(t.dtype, begin, extents, extents, (code.mul(share, t.strides[axis]), t.strides[axis]), t.view)
        for t, begin in zip(tiles, begins, strict=True)
    ]
    parts = [
        Tile(t.dtype, code.alloca(storage_type(t.dtype), count=_SHARES), (_SHARES,), (_SHARES,), (t.dtype.bytes,))
        for t in tiles
    ]
    several = [[False, False] for _ in tiles]
    row = carried_writer(w, op, lying, several, parts, [_SHARES, share], Carry(1, _by_region(op)))
    if row is None:
        return [], 0
    row([])
    return parts, code.mul(share, _SHARES)


def _scan(w: FunctionWriter, op: Op, tiles: Sequence[Tile], carry: Carry, combine: Any) -> None:
    """A scan; `combine` writes what `carry.combine` says, for one place."""
    _, valid = _joint(w, op, tiles, op.args)
    outs = [new_tile(w, r, tiles[0].declared, valid) for r in op.results]
    at = other_axis(len(valid), carry.axis)

    def part(w: FunctionWriter, parts: list[Tile], _: object) -> None:
        _scan_each(w, op, parts[len(outs) :], parts[: len(outs)], carry, combine)

    results = [(out, at) for out in outs]
    share_lines(w, op, [*results, *_along(tiles, op.args, len(valid), at)], part, cost=2)
    for r, out in zip(op.results, outs, strict=True):
        give(w, r, out)


def _scan_each(
    w: FunctionWriter, op: Op, tiles: Sequence[Tile], outs: Sequence[Tile], carry: Carry, combine: Any
) -> None:
    """The scans along all lines of some tiles."""
    code, axis, reverse, valid = w.code, carry.axis, carry.reverse, outs[0].valid
    outer = [v for k, v in enumerate(valid) if k != axis]
    state = _state(w, [o.dtype for o in outs])
    length = valid[axis]

    def body(i: list[Index]) -> None:
        def place(k: Index) -> list[Index]:
            at = code.sub(code.sub(length, 1), k) if reverse else k
            return [*i[:axis], at, *i[axis:]]

        def step(k: Value) -> None:
            have = [w.b.load(s, typ=register_type(o.dtype)) for s, o in zip(state, outs, strict=True)]
            new = [cast(w.b, read(w, t, _at(place(k), t, a)), t.dtype, o.dtype)
                   for t, a, o in zip(tiles, op.args, outs, strict=True)]  # fmt: skip
            for slot, out, v in zip(state, outs, combine(w, have, new), strict=True):
                w.b.store(v, slot)
                write(w, out, place(k), v)

        for slot, t, out, a in zip(state, tiles, outs, op.args, strict=True):
            v = cast(w.b, read(w, t, _at(place(0), t, a)), t.dtype, out.dtype)
            w.b.store(v, slot)
            write(w, out, place(0), v)
        unrolled(w, 1, length, step, "scan")

    with code.when(code.compare("<", 0, length)):
        if not _in_lanes(w, op, tiles, outs, valid, carry):
            each(w, outer, body)


def write_scan(w: FunctionWriter, op: Op) -> None:
    axis: Any = op.attr("axis")
    carry = Carry(axis, _by_region(op), every=True, reverse=bool(op.attr("reverse")))
    _scan(w, op, [w.tile(a) for a in op.args], carry, lambda w, have, new: inline(w, op.regions[0], [*have, *new]))


def write_cumulate(w: FunctionWriter, op: Op) -> None:
    axis: Any = op.attr("axis")
    result = op.results[0].type
    assert isinstance(result, TileType)
    name = "add" if op.op == "cumsum" else "mul"

    def combine(state: Sequence[Var], following: Sequence[Var]) -> tuple[Block, Sequence[Operand]]:
        out = Var(f"{op.results[0].name}.out", state[0].type)
        return (Op(name, (out,), (state[0], following[0]), loc=op.loc),), (out,)

    _scan(w, op, [w.tile(op.args[0])], Carry(axis, combine, every=True, reverse=bool(op.attr("reverse"))),
          lambda w, have, new: [w.ops.apply(name, (have[0], new[0]), result.dtype, {}, result.dtype)])  # fmt: skip

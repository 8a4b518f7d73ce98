# SPDX-License-Identifier: MIT
"""Functions over tiles in vectors: the body of a `map`, a fold or a scan in a loop over the elements of a row.

The elements of a `map` are independent of each other.  So are folds and scans at different places of the axes that they
do not run along: every lane is one of these, and combines its elements in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pto_jit.dtypes import bool_, i64
from pto_jit.ir.nodes import Block, Const, For, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import def_counts
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.constants import Index
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.spmd.planning import plan, write
from pto_jit.targets.cpu.values import Tensor, Tile

Rows = Callable[[list[Index]], None]
_INDEX = ScalarType(i64)


def row_writer(
    w: FunctionWriter, op: Op, tiles: Sequence[Tile], broadcast: Sequence[Sequence[bool]], outs: Sequence[Tile],
    length: Index,
) -> Rows | None:  # fmt: skip
    """What writes one row (of `length` elements, at the indices of the axes before the last) of the results.

    `broadcast` says for each tile which of its axes have one element for all.  None when the elements are better
    written one by one.
    """
    region = op.regions[0]
    at = Var(f"{op.results[0].name}.lane", _INDEX)
    rank = outs[0].rank
    outer = [Var(f"{at.name}{k}", _INDEX) for k in range(rank - 1)]
    places: list[Operand] = [*outer, at]
    zero = Const(0, _INDEX)
    body: list[Op] = []
    for k, (tile, param, one) in enumerate(zip(tiles, region.params, broadcast, strict=True)):
        tensor = _tensor(w, tile, f"{at.name}.in{k}")
        own = places[rank - tile.rank :]
        indices = [zero if single else i for i, single in zip(own, one, strict=True)]
        body.append(Op("getelem", (param,), (tensor, *indices), loc=op.loc))
    stores = [
        Op("setelem", (), (value, _tensor(w, out, f"{at.name}.out{k}"), *places), loc=op.loc)
        for k, (out, value) in enumerate(zip(outs, region.results, strict=True))
    ]
    stop = _operand(w, f"{at.name}.n", length)
    loop = For("parallel", at, zero, stop, Const(1, _INDEX), (*body, *region.body, *stores), loc=op.loc)
    return _rows(w, loop, outer, length)


def _rows(w: FunctionWriter, loop: For, outer: Sequence[Var], length: Index) -> Rows | None:
    """What writes `loop`, of `length` iterations, at the indices `outer`."""
    found = plan(w, loop)
    if found is None:
        return None
    several = {name for name, count in def_counts(loop.body).items() if count > 1}  # the function does not know them

    def row(indices: list[Index]) -> None:
        for var, index in zip(outer, indices, strict=True):
            w.env[var.name] = index
        saved, w.mutable = w.mutable, w.mutable | several
        noting, w.module.noting = w.module.noting, False
        write(w, loop, found, 0, length, 1)
        w.mutable, w.module.noting = saved, noting

    return row


@frozen
class Carry:
    """What a fold or a scan does along `axis`.  combine: the operations from the state and the next elements to the
    next state, and that.  inits: what the state starts from (None: the first elements).  every: each state is kept, not
    only the last."""

    axis: int
    combine: Callable[[Sequence[Var], Sequence[Var]], tuple[Block, Sequence[Operand]]]
    inits: Sequence[Operand] | None = None
    every: bool = False
    reverse: bool = False


def carried_writer(
    w: FunctionWriter, op: Op, tiles: Sequence[Tile], broadcast: Sequence[Sequence[bool]], outs: Sequence[Tile],
    valid: Sequence[Index], carry: Carry,
) -> Rows | None:  # fmt: skip
    """What writes the results along the last axis but `carry.axis`, at the indices of the others; as `row_writer`.

    `valid` are the extents of all axes; there is an element along `carry.axis`, or a value to start from.
    """
    axis, name = carry.axis, f"{op.results[0].name}.lane"
    at, along = Var(name, _INDEX), Var(f"{name}.along", _INDEX)
    others = [*(Var(f"{name}{k}", _INDEX) for k in range(len(valid) - 2)), at]
    zero = Const(0, _INDEX)
    ins = [_tensor(w, tile, f"{name}.in{k}") for k, tile in enumerate(tiles)]
    tensors = [_tensor(w, out, f"{name}.out{k}") for k, out in enumerate(outs)]
    state = [Var(f"{name}.state{k}", ScalarType(out.dtype)) for k, out in enumerate(outs)]

    def places(k: Operand) -> list[Operand]:
        return [*others[:axis], k, *others[axis:]]

    def elements(k: Operand, into: Sequence[Var]) -> Iterator[Op]:
        for tensor, one, var in zip(ins, broadcast, into, strict=True):
            rank = len(one)
            indices = [zero if single else i for i, single in zip(places(k)[-rank:], one, strict=True)]
            assert isinstance(tensor.type, TensorType)
            raw = Var(f"{var.name}.raw", ScalarType(tensor.type.dtype))
            yield Op("getelem", (raw,), (tensor, *indices), loc=op.loc)
            yield Op("copy" if raw.type == var.type else "cast", (var,), (raw,), loc=op.loc)

    def stores(k: Operand) -> Iterator[Op]:
        for out, tensor, var in zip(outs, tensors, state, strict=True):
            indices = places(k) if out.rank == len(valid) else others
            yield Op("setelem", (), (var, tensor, *indices), loc=op.loc)

    def assigned(values: Sequence[Operand]) -> list[Op]:
        return [Op("copy", (s,), (v,), loc=op.loc) for s, v in zip(state, values, strict=True)]

    length = valid[axis]
    body: list[Stmt] = []
    taken = 0
    first: Operand = _operand(w, f"{name}.first", w.code.sub(length, 1) if carry.reverse else 0)
    if carry.inits is None:
        begin = [Var(f"{s.name}.first", s.type) for s in state]
        body += [*elements(first, begin), *assigned(begin), *(stores(first) if carry.every else ())]
        taken = 1
    else:
        body += assigned(carry.inits)
    following = [Var(f"{s.name}.next", s.type) for s in state]
    ops, values = carry.combine(state, following)
    step: list[Stmt] = [*elements(along, following), *ops, *assigned(values), *(stores(along) if carry.every else ())]
    if carry.reverse:
        start, stop = _operand(w, f"{name}.start", w.code.sub(length, 1 + taken)), Const(-1, _INDEX)
    else:
        start, stop = Const(taken, _INDEX), _operand(w, f"{name}.stop", length)
    by = Const(-1 if carry.reverse else 1, _INDEX)
    body.append(For("sequential", along, start, stop, by, tuple(step), loc=op.loc))
    body += () if carry.every else stores(zero)
    count = valid[-1 if axis < len(valid) - 1 else -2]
    loop = For("parallel", at, zero, _operand(w, f"{name}.n", count), Const(1, _INDEX), tuple(body), loc=op.loc)
    return _rows(w, loop, others[:-1], count)


def argument_writer(w: FunctionWriter, op: Op, tile: Tile, out: Tensor, axis: int) -> Rows | None:
    """What writes an `argmax` or `argmin` along `axis`, which is not empty and not the last, for a row of the last axis
    at the indices of the others; as `row_writer`.  `out` lacks `axis`."""
    name, kind = f"{op.results[0].name}.lane", tile.dtype.kind
    at, along = Var(name, _INDEX), Var(f"{name}.along", _INDEX)
    others: list[Operand] = [*(Var(f"{name}{k}", _INDEX) for k in range(tile.rank - 2)), at]
    source, target = _tensor(w, tile, f"{name}.in"), _tensor(w, out, f"{name}.out")
    element, place = ScalarType(tile.dtype), ScalarType(out.dtype)
    best, found = Var(f"{name}.best", element), Var(f"{name}.found", place)
    value, here = Var(f"{name}.value", element), Var(f"{name}.here", place)

    def flag(which: str) -> Var:
        return Var(f"{name}.{which}", ScalarType(bool_))

    def read(k: Operand, into: Var) -> Op:
        return Op("getelem", (into,), (source, *others[:axis], k, *others[axis:]), loc=op.loc)

    def made(operation: str, result: Var, *args: Operand) -> Op:
        return Op(operation, (result,), args, loc=op.loc)

    better = flag("better")
    if kind == "f":  # it comes before the best so far, or one of them is NaN; of two NaN the first
        no, can, known = flag("no"), flag("can"), flag("known")
        compared = [
            made("le" if op.op == "argmax" else "ge", no, value, best), made("not", can, no),
            made("eq", known, best, best), made("and", better, can, known),
        ]  # fmt: skip
    else:
        compared = [made("gt" if op.op == "argmax" else "lt", better, value, best)]
    step = (
        read(along, value), *compared, made("cast", here, along),
        made("select", best, better, value, best), made("select", found, better, here, found),
    )  # fmt: skip
    one, length = Const(1, _INDEX), _operand(w, f"{name}.stop", tile.valid[axis])
    body = (
        read(Const(0, _INDEX), best), made("copy", found, Const(0, place)),
        For("sequential", along, one, length, one, step, loc=op.loc),
        Op("setelem", (), (found, target, *others), loc=op.loc),
    )  # fmt: skip
    count = _operand(w, f"{name}.n", tile.valid[-1])
    loop = For("parallel", at, Const(0, _INDEX), count, one, body, loc=op.loc)
    return _rows(w, loop, [v for v in others[:-1] if isinstance(v, Var)], tile.valid[-1])


def _operand(w: FunctionWriter, name: str, index: Index) -> Operand:
    """An index as an operand."""
    if isinstance(index, int):
        return Const(index, _INDEX)
    w.env[name] = index
    return Var(name, _INDEX)


def _tensor(w: FunctionWriter, tile: Tile | Tensor, name: str) -> Var:
    """A tile as a tensor variable."""
    extents = tile.declared if isinstance(tile, Tile) else tile.extents
    w.env[name] = Tensor(tile.dtype, tile.pointer, extents, tile.strides)
    last = tile.strides[-1]
    packed = isinstance(last, int) and last == tile.dtype.bytes
    return Var(name, TensorType(tile.dtype, (None,) * len(extents), "inner" if packed else "strided"))

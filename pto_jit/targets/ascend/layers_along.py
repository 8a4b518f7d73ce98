# SPDX-License-Identifier: MIT
"""What runs along an axis of a tile of three axes, or takes functions, layer by layer (`layers`): scans, folds, order.

Before::

    %s = tassoc_scan %x {axis=0, reverse=false} WITH ...       // [2, 8, 16]

After::

    %s.0 = tcopy %x.0
    %s.1 = tmap %x.0, %x.1 WITH ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from pto_jit.ir.nodes import Const, Op, Operand, Region, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import defs, rename, statements
from pto_jit.lower.names import unused

if TYPE_CHECKING:
    from pto_jit.targets.ascend.layers import Layers

_SUMS = {"cumsum": "add", "cumprod": "mul"}


def _scan(layers: Layers, op: Op) -> None:
    axis = int(op.attr("axis")) % 3  # type: ignore[call-overload]
    if axis:
        _in_each(layers, op, axis - 1)
        return
    if op.op in _SUMS and op.args[0].type.dtype.bits < 32:  # type: ignore[union-attr]
        layers.refuse(op)
    count = len(layers.parts[op.results[0].name])
    order = range(count - 1, -1, -1) if op.attr("reverse") else range(count)
    state: list[Operand] = []
    for k in order:
        here, results = [layers.layer(a, k) for a in op.args], _layers_of(layers, op, k)
        if not state:
            for source, result in zip(here, results, strict=True):
                layers.emit("copy", result, source)
        else:
            _combined(layers, op, results, state, here)
        state = list(results)


def _combined(layers: Layers, op: Op, results: Sequence[Var], before: Sequence[Operand], now: list[Operand]) -> None:
    """One state after another."""
    name = _SUMS.get(op.op, "map")
    layers.out.append(_own(layers, Op(name, tuple(results), (*before, *now), (), op.regions, op.loc)))


def _fold(layers: Layers, op: Op) -> None:
    """Each layer, or one after the other; what drops the other axes is put together from rows."""
    count, axis = int(op.attr("n")), int(op.attr("axis")) % 3  # type: ignore[call-overload]
    tiles, inits = op.args[:count], list(op.args[count:])
    kept = bool(op.attr("keepdims"))
    if axis == 0:
        every = [[layers.layer(t, k) for t in tiles] for k in range(len(layers.parts[tiles[0].name]))]  # type: ignore[union-attr]
        state, *more = [_filled(layers, inits, tiles[0]), *every] if inits else every
        finals = [layers.parts[r.name][0] if kept else r for r in op.results]
        if not more:
            for source, result in zip(state, finals, strict=True):
                layers.emit("copy", result, source)
        for here in more:
            results = finals if here is more[-1] else [_like(layers, r) for r in finals]
            _combined(layers, op, results, state, here)
            state = list(results)
        return
    if kept:
        _in_each(layers, op, axis - 1, inits)
        return
    rows: list[list[Var]] = [[] for _ in op.results]
    for k in range(len(layers.parts[tiles[0].name])):  # type: ignore[union-attr]
        here = [layers.layer(t, k) for t in tiles]
        shape = tuple(1 if a == axis - 1 else n for a, n in enumerate(here[0].type.shape))  # type: ignore[union-attr]
        if None in shape:
            layers.refuse(op)
        parts = [layers.var(f"{r.name}.part", r.type.dtype, shape) for r in op.results]  # type: ignore[union-attr]
        attrs = {**dict(op.attrs), "axis": axis - 1, "keepdims": True}
        fold = Op("fold", tuple(parts), (*here, *inits), tuple(attrs.items()), op.regions, op.loc)
        layers.out.append(_own(layers, fold))
        for row, part in zip(rows, parts, strict=True):
            row.append(layers.reshaped(part, (1, prod(n or 1 for n in shape))))
    for row, result in zip(rows, op.results, strict=True):
        layers.emit("concat", result, *row, axis=0)


def _filled(layers: Layers, numbers: list[Operand], like: Operand) -> list[Operand]:
    """Layers of one number each."""
    assert isinstance(like, Var) and isinstance(like.type, TileType)
    out: list[Operand] = []
    for number in numbers:
        tile = layers.var(f"{like.name}.part", number.type.dtype, like.type.shape[1:])  # type: ignore[union-attr]
        layers.emit("full", tile, number, *layers.extents(like)[1:])
        out.append(tile)
    return out


def _random(layers: Layers, op: Op) -> None:
    """Layers of random numbers, whose counters go on from one to the next."""
    seed, offset, *extents = op.args
    (result,) = op.results
    size = prod(int(e.value) if isinstance(e, Const) else 0 for e in extents[1:])
    if not size:
        layers.refuse(op)
    for k, part in enumerate(layers.parts[result.name]):
        begin = layers.after(offset, k * size) if k else offset
        layers.emit(op.op, part, seed, begin, *extents[1:])


def _in_each(layers: Layers, op: Op, axis: int | None, more: Sequence[Operand] = ()) -> None:
    """The same for each layer."""
    attrs = {**dict(op.attrs), **({} if axis is None else {"axis": axis})}
    count = len(op.args) - len(more)
    for k in range(len(layers.parts[op.results[0].name])):
        args = (*(layers.layer(a, k) for a in op.args[:count]), *more)
        results = tuple(_layers_of(layers, op, k))
        layers.out.append(_own(layers, Op(op.op, results, args, tuple(attrs.items()), op.regions, op.loc)))


def _layers_of(layers: Layers, op: Op, k: int) -> list[Var]:
    return [layers.parts[r.name][k] for r in op.results]


def _like(layers: Layers, var: Var) -> Var:
    typ = var.type
    assert isinstance(typ, TileType)
    return layers.var(f"{var.name}.part", typ.dtype, typ.shape)


def _own(layers: Layers, op: Op) -> Op:
    """An operation whose functions have variables of their own."""

    def names(region: Region) -> dict[str, str]:
        made = [*region.params, *(v for s in statements(region.body) for v in defs(s))]
        return {v.name: unused(v.name, layers.taken, ".") for v in dict.fromkeys(made)}

    for region in op.regions:
        (op,) = rename((op,), names(region))  # type: ignore[assignment]
    return op


ALONG: dict[str, Callable[[Layers, Op], None]] = {
    "rand": _random, "randn": _random, "cumsum": _scan, "cumprod": _scan, "assoc_scan": _scan, "fold": _fold,
    **dict.fromkeys(("sort", "argsort", "topk", "map"), lambda layers, op: _in_each(layers, op, None)),
}  # fmt: skip

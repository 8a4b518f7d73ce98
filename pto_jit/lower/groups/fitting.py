# SPDX-License-Identifier: MIT
"""Along which axes tiles fit any valid extent.

A generated tile does along all of its axes.  What is computed elementwise does along an axis where all operands do that
have it, and so do the axes that `broadcast_to` repeats.  In ::

    %r = tarange 0:i64, 1:i64, 64:idx : !pto.tile<64xi64>
    %c = treshape %r [1, 64] : !pto.tile<1x64xi64>
    %m = tlt %c, %n : !pto.tile<16x64xbool>

where %n was loaded with 16 rows and one column, the rows of %m are those of %n; its columns fit whatever they meet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from pto_jit.ir.nodes import Block, Op, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import statements
from pto_jit.lower.groups.axes import GENERATED, Axes, Axial, is_elementwise, is_reduction, unit_reshape

Fitting = Mapping[str, tuple[bool, ...]]
"""By the names of tiles, per axis; those that fit along none are left out."""
NOTHING: Fitting = MappingProxyType({})
Operands = tuple[tuple[int, int], ...]
"""Axes of operands: the number of the operand, and the axis of it."""


_OPS = 1024
_of_ops: dict[int, tuple[Op, tuple[Operands | None, ...]]] = {}
"""What was told of the last operations, which passes and targets ask about over and over: nearly all are the same
objects.  The key is the identity of the operation, which nobody else gets while it is kept here."""


def fits_with(op: Op) -> tuple[Operands | None, ...]:
    """Per axis of the tile that an operation gives: the axes of operands that must all fit for it to fit; None: it
    never does."""
    known = _of_ops.get(id(op))
    if known is not None and known[0] is op:
        return known[1]
    found = _fits_with(op)
    if len(_of_ops) >= _OPS:
        _of_ops.clear()
    _of_ops[id(op)] = op, found
    return found


def _fits_with(op: Op) -> tuple[Operands | None, ...]:
    result = op.results[0].type
    if type(result) is not TileType:
        return ()
    rank = result.rank
    if op.op in GENERATED:
        return ((),) * rank
    if is_elementwise(op) or op.op == "map":
        return _elementwise(op, result)
    source = op.args[0].type if op.args else None
    if type(source) is not TileType:
        return (None,) * rank
    match op.op:
        case "broadcast_to":
            lead = rank - source.rank
            return tuple([() if at < lead or source.shape[at - lead] == 1 else ((0, at - lead),) for at in range(rank)])
        case "reshape":
            which = unit_reshape(op)
            if which is None:
                return (tuple([(0, k) for k in range(source.rank)]),) * rank
            return tuple([() if k is None else ((0, k),) for k in which])
        case "transpose":
            return tuple([((0, int(k)),) for k in op.attr("axes")])  # type: ignore[union-attr, arg-type]
        case "flip":
            return tuple([((0, k),) for k in range(rank)])
        case "tile_slice":
            drop = op.attr("drop") or ()
            return tuple([((0, k),) for k in range(source.rank) if k not in drop])  # type: ignore[operator]
        case "concat":
            return tuple([tuple([(n, k) for n in range(len(op.args))]) for k in range(rank)])
        case "stack":
            axes: list[Operands] = [tuple([(n, k) for n in range(len(op.args))]) for k in range(source.rank)]
            axes.insert(int(op.attr("axis")), tuple([a for axis in axes for a in axis]))  # type: ignore[arg-type]
            return tuple(axes)
        case _:
            return (None,) * rank


def _elementwise(op: Op, result: TileType) -> tuple[Operands, ...]:
    """An axis of extent 1 fits by itself where another operand's is longer."""
    rank = result.rank
    shapes = [(n, a.type.shape) for n, a in enumerate(op.args) if type(a.type) is TileType]
    first = shapes[0][1] if shapes else ()
    if len(first) == rank and [shape for _, shape in shapes].count(first) == len(shapes):
        return tuple([tuple([(n, k) for n, _ in shapes]) for k in range(rank)])
    wide: list[list[tuple[int, int]]] = [[] for _ in range(rank)]
    unit: list[list[tuple[int, int]]] = [[] for _ in range(rank)]
    for n, shape in shapes:
        for k, extent in enumerate(shape, rank - len(shape)):
            (unit if extent == 1 else wide)[k].append((n, k - rank + len(shape)))
    return tuple([tuple(w or u) for w, u in zip(wide, unit, strict=True)])


def given_fits(op: Op, fitting: Fitting) -> tuple[bool, ...]:
    """Along which axes the tile that an operation gives fits any extent, where its operands do so along these."""
    known = [fitting.get(a.name) if type(a) is Var else None for a in op.args]
    out: list[bool] = []
    for axes in fits_with(op):
        fits = axes is not None
        for n, k in axes or ():
            of = known[n]
            if of is None or not of[k]:
                fits = False
                break
        out.append(fits)
    return tuple(out)


def fitting_axes(block: Block) -> dict[str, tuple[bool, ...]]:
    """The axes along which tiles fit any valid extent while they are complete: those of a variable count that is such
    at least at times."""
    ops = [s for s in statements(block) if type(s) is Op and s.results and type(s.results[0].type) is TileType]
    out: dict[str, tuple[bool, ...]] = {}
    changed = any(op.op in GENERATED or op.op == "broadcast_to" for op in ops)
    read: set[str] = set()  # by an operation that was looked at: where more is known of it, that one is to be again
    while changed:
        changed = False
        for op in ops:
            names = [a.name for a in op.args if type(a) is Var]
            read.update(names)
            if out.keys().isdisjoint(names) and op.op not in GENERATED and op.op != "broadcast_to":
                continue
            found = given_fits(op, out)
            for r in op.results if True in found else ():
                before = out.get(r.name)
                now = found if before is None else tuple([a or b for a, b in zip(before, found, strict=True)])
                if now != before:
                    out[r.name] = now
                    changed |= r.name in read
    return out


def always_fitting(block: Block, fitting: Fitting) -> dict[str, tuple[bool, ...]]:
    """The same for variables that are such all the time; `fitting`: what is known of them."""
    ops = [s for s in statements(block) if type(s) is Op and any(r.name in fitting for r in s.results)]
    out = dict(fitting)
    changed = bool(ops)
    read: set[str] = set()
    while changed:
        changed = False
        for op in ops:
            given = given_fits(op, out)
            read.update([a.name for a in op.args if type(a) is Var])
            for r in op.results:
                before = out.get(r.name)
                if before is not None:
                    found = tuple([a and b for a, b in zip(given, before, strict=True)])
                    changed |= r.name in read and found != before
                    out[r.name] = found
    return out


_Origins = frozenset[str] | None
"""What an extent is of: the variables of which it is that are generated at times; None: of a tile that never is."""


def narrows(ops: Sequence[Op], state: Axial, keep: Collection[str], may: Fitting, always: Fitting) -> bool:
    """Whether a group would show a tile that was generated along an axis with the extent of others.

    All tiles that have an axis of the group run over one extent.  That of a tile which is stored, kept, measured or
    reduced has to be its own.
    """
    of: dict[str, tuple[_Origins, ...]] = {}
    lies: dict[str, Axes | None] = {}
    sources: list[tuple[Axes, tuple[_Origins, ...]]] = []
    for name, axes in state.outside.items():
        none = (False,) * len(axes)
        of[name] = tuple([
            None if not at_times else frozenset() if ever else frozenset([name])
            for at_times, ever in zip(may.get(name, none), always.get(name, none), strict=True)
        ])  # fmt: skip
        lies[name] = axes
        sources.append((axes, of[name]))
    seen: list[tuple[Axes, tuple[_Origins, ...]]] = []
    stores = iter(state.stores)
    for op, given in zip(ops, state.given, strict=True):
        operand = op.args[0] if op.args else None
        if type(operand) is Var and operand.name in of:
            axes, origins = lies[operand.name], of[operand.name]
            if op.op == "store":
                axes = next(stores)
                seen.append((axes, origins))
            elif axes is not None and is_reduction(op):
                seen.append((axes, origins))
            elif axes is not None and op.op == "valid":
                at = int(op.attr("axis"))  # type: ignore[arg-type]
                seen.append((axes[at : at + 1], origins[at : at + 1]))
        for r in op.results:
            if type(r.type) is TileType:
                of[r.name] = _origins(op, of)
                lies[r.name] = given
                if op.op == "load" and given is not None:
                    sources.append((given, of[r.name]))
    seen += [(axes, of[name]) for name in keep if (axes := lies.get(name)) is not None]
    space: dict[int, _Origins] = {}
    for axes, origins in sources:
        for axis, from_ in zip(state.found(axes), origins, strict=True):
            if axis is not None:
                before = space.get(axis, frozenset())
                space[axis] = None if before is None or from_ is None else before | from_
    for axes, origins in seen:
        for axis, from_ in zip(state.found(axes), origins, strict=True):
            if axis is not None and from_ is not None:
                others = space.get(axis, frozenset())
                if others is None or not others <= from_:
                    return True
    return False


def _origins(op: Op, of: Mapping[str, tuple[_Origins, ...]]) -> tuple[_Origins, ...]:
    """The same of what an operation gives."""
    out: list[_Origins] = []
    for axes in fits_with(op):
        found: _Origins = None if axes is None else frozenset()
        for n, k in axes or ():
            operand = op.args[n]
            assert type(operand) is Var
            other = of[operand.name][k]
            if other is None:
                found = None
                break
            found = found | other  # type: ignore[operator]
        out.append(found)
    return tuple(out)

# SPDX-License-Identifier: MIT
"""What is known about the variables of a kernel before it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Const, For, Func, If, Op, Operand, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import def_counts, defs, statements, use_counts, uses
from pto_jit.lower.groups.fitting import NOTHING, Fitting, fitting_axes
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.ceilings import ceilings

_INDEX = ScalarType(i64)
_ARITHMETIC = frozenset("add sub mul floordiv mod min max cast copy select dim valid extent".split())


@frozen
class Facts:
    """mutable: variables assigned more than once; uses: how often a name is read; indices: 64-bit numbers that only say
    where memory is; natural: numbers that are not negative; limits: loop variables, by the names of what they stay
    below; dims: numbers that are extents of tensors, as (tensor, axis); varying: what is not the same in all iterations
    of the kernel's loops; fitting: along which axes tiles fit any valid extent when complete; roots: the
    tensor each view is of; ceilings: numbers that vary, with one that does not and that they do not exceed.
    """

    mutable: frozenset[str]
    uses: Counter[str]
    indices: frozenset[str]
    natural: frozenset[str]
    limits: dict[str, frozenset[str]]
    dims: dict[str, frozenset[tuple[str, int]]]
    varying: frozenset[str]
    fitting: Fitting
    roots: dict[str, str]
    ceilings: dict[str, Operand]

    def fits(self, tile: str, axis: int) -> bool:
        """Whether a tile fits any valid extent along an axis when it is complete."""
        return tile in self.fitting and self.fitting[tile][axis]

    def is_natural(self, operand: Operand) -> bool:
        if isinstance(operand, Const):
            return operand.value >= 0
        return operand.name in self.natural

    def is_below(self, operand: Operand, tensor: str, axis: int) -> bool:
        """Whether a number is known to be less than an extent of a tensor."""
        return isinstance(operand, Var) and _is_below(operand.name, (tensor, axis), self.limits, self.dims)

    def is_dim(self, name: str, tensor: str, axis: int) -> bool:
        """Whether a number is an extent of a tensor."""
        return (tensor, axis) in self.dims.get(name, ())


def gather(
    func: Func, dims: dict[str, tuple[str, int]], fitting: Fitting = NOTHING, *, threads: bool = True
) -> Facts:
    """`dims`: which parameters are extents of which tensor parameters; `fitting`: the same of tiles that
    another kernel made; threads: with what only those who deal elements to threads ask for (`indices` and
    `fitting`)."""
    body = func.body
    counts = def_counts(body) + Counter([p.name for p in func.params])
    mutable = frozenset(n for n, k in counts.items() if k > 1)
    known = {p.name: frozenset([dims[p.name]]) for p in func.params if p.name in dims}
    limits = _limits(func, mutable)
    roots = {p.name: p.name for p in func.params if isinstance(p.type, TensorType)}
    for s in statements(body):
        if not isinstance(s, Op):
            continue
        if s.op == "dim" and isinstance(s.args[0], Var):
            known[s.results[0].name] = frozenset([(s.args[0].name, int(s.attr("axis")))])  # type: ignore[arg-type]
        if s.op == "view" and not lost_axes(s, lambda index, *place: _is_below(index.name, place, limits, known)):
            for extent, place in _whole_axes(s, known):
                known[extent] = known[extent] | {place}
        if s.results and isinstance(s.results[0].type, TensorType):
            made = s.results[0].name
            roots[made] = made if s.op == "alloc" else roots[s.args[0].name]  # type: ignore[union-attr]
    varying = _varying(func, mutable)
    return Facts(
        mutable, use_counts(body), _indices(func) if threads else frozenset(),
        _natural(func, known, mutable), limits, known, varying,
        {**fitting_axes(body), **{n: fitting[n] for n in counts if n in fitting}} if threads else {}, roots,
        ceilings(func, mutable, varying),
    )  # fmt: skip


def _is_below(
    name: str, place: tuple[str, int], limits: dict[str, frozenset[str]], dims: dict[str, frozenset[tuple[str, int]]]
) -> bool:  # fmt: skip
    return any(place in dims.get(limit, ()) for limit in limits.get(name, ()))


def lost_axes(view: Op, is_below: Callable[[Var, str, int], bool]) -> list[int]:
    """The axes of which a view takes one place, by an index that is not known to be less than the tensor has; is_below:
    whether a number is known to be less than an extent of a tensor."""
    source, drop = view.args[0], view.attr("drop") or ()
    assert isinstance(source, Var) and isinstance(source.type, TensorType) and isinstance(drop, tuple)
    out: list[int] = []
    axes: Any = () if view.attr("inside") else drop
    for axis in axes:
        index, extent = view.args[1 + axis], source.type.shape[axis]
        sure = isinstance(index, Const) and extent is not None and int(index.value) < extent
        if not sure and not (isinstance(index, Var) and is_below(index, source.name, axis)):
            out.append(axis)
    return out


def changing(func: Func) -> tuple[frozenset[str], frozenset[str]]:
    """Variables that are assigned more than once, and numbers that are not the same in all iterations of loops."""
    counts = def_counts(func.body) + Counter([p.name for p in func.params])
    mutable = frozenset(n for n, k in counts.items() if k > 1)
    return mutable, _varying(func, mutable)


def _whole_axes(view: Op, known: dict[str, frozenset[tuple[str, int]]]) -> list[tuple[str, tuple[str, int]]]:
    """The extents of a view that are those of what it is a view of, with the axis that they are of the view."""
    source, drop = view.args[0], view.attr("drop") or ()
    assert isinstance(source, Var) and isinstance(source.type, TensorType) and isinstance(drop, tuple)
    rank = source.type.rank
    out: list[tuple[str, tuple[str, int]]] = []
    kept = 0
    for axis, (offset, extent) in enumerate(zip(view.args[1 : 1 + rank], view.args[1 + rank :], strict=True)):
        if axis in drop:
            continue
        whole = isinstance(offset, Const) and offset.value == 0 and isinstance(extent, Var)
        if whole and (source.name, axis) in known.get(extent.name, ()):  # type: ignore[union-attr]
            out.append((extent.name, (view.results[0].name, kept)))  # type: ignore[union-attr]
        kept += 1
    return out


def index_operands(stmt: object) -> tuple[Operand, ...]:
    """The operands of a statement that say where memory is, how large something is, or how far a loop goes."""
    match stmt:
        case For():
            return (stmt.start, stmt.stop, stmt.step)
        case Op(op="load" | "view" | "tensor_reshape" | "getelem" | "alloc"):
            return stmt.args[1:]
        case Op(op="store" | "setelem"):
            return stmt.args[2:]
        case Op(op="full" | "reshape" | "broadcast_to" | "tile_slice"):
            return stmt.args[1:]
        case Op(op="arange"):
            return stmt.args[2:]
        case _:
            return ()


def _indices(func: Func) -> frozenset[str]:
    """64-bit integers all of whose readers use them as indices: if one left its range the program had no meaning."""
    other: set[str] = set()
    readers: dict[str, set[str]] = {}
    candidates: set[str] = set()
    for s in statements(func.body):
        places = {o.name for o in index_operands(s) if isinstance(o, Var)}
        for d in defs(s):
            if d.type == _INDEX:
                candidates.add(d.name)
        passes_on = isinstance(s, Op) and s.op in _ARITHMETIC and len(s.results) == 1 and s.results[0].type == _INDEX
        for v in uses(s):
            if v.type != _INDEX or v.name in places:
                continue
            if passes_on:
                readers.setdefault(v.name, set()).add(s.results[0].name)  # type: ignore[union-attr]
            else:
                other.add(v.name)
    changed = True
    while changed:
        changed = False
        for name, results in readers.items():
            if name not in other and results & other:
                other.add(name)
                changed = True
    return frozenset(candidates - other)


def _natural(func: Func, dims: Collection[str], mutable: frozenset[str]) -> frozenset[str]:
    known = set(dims)

    def sure(operand: Operand) -> bool:
        return operand.value >= 0 if isinstance(operand, Const) else operand.name in known

    for s in statements(func.body):
        match s:
            case For(var=var, start=start, step=Const(value=step)) if (
                step > 0 and sure(start) and var.name not in mutable
            ):
                known.add(var.name)
            case Op(op="add" | "mul" | "min" | "copy" | "floordiv", results=(Var() as r,)) if r.type == _INDEX:
                if r.name not in mutable and all(sure(a) for a in s.args):
                    known.add(r.name)
            case Op(op="max", results=(Var() as r,)) if r.type == _INDEX:
                if r.name not in mutable and any(sure(a) for a in s.args):
                    known.add(r.name)
            case Op(op="dim" | "valid" | "extent", results=(Var() as r,)):
                known.add(r.name)
            case _:
                pass
    return frozenset(known)


def _limits(func: Func, mutable: frozenset[str]) -> dict[str, frozenset[str]]:
    smaller: dict[str, frozenset[str]] = {}  # a number that is a minimum: what it does not exceed
    out: dict[str, frozenset[str]] = {}
    for s in statements(func.body):
        match s:
            case Op(op="min", results=(Var() as r,)) if r.type == _INDEX and r.name not in mutable:
                smaller[r.name] = frozenset(a.name for a in s.args if isinstance(a, Var))
            case For(var=var, stop=Var() as stop, step=Const(value=step)) if step > 0 and var.name not in mutable:
                out[var.name] = smaller.get(stop.name, frozenset()) | {stop.name}
            case _:
                pass
    return out


def _varying(func: Func, mutable: frozenset[str]) -> frozenset[str]:
    """Loop variables, what tiles and memory say, and whatever is made of those."""
    out = set(mutable)
    for s in statements(func.body):
        match s:
            case For():
                out.add(s.var.name)
            case Op():
                varies = s.op in ("getelem", "extract", "valid")
                for a in s.args:
                    if type(a) is Var and (a.name in out or (type(a.type) is TileType and s.op != "extent")):
                        varies = True
                        break
                if varies:
                    out.update([r.name for r in s.results])
            case If() | While():
                pass
            case _:
                pass
    return frozenset(out)

# SPDX-License-Identifier: MIT
"""Tiles of three axes as tiles of two: one for each index of the first axis, which is a constant.

Before::

    %t = tload %x[%b, 0, 0] [2, 8, 16]
    %m = tmax %t {axes=(2,), keepdims=true}        // [2, 8, 1]
    %u = tsub %t, %m
    %s = tsum %u {axes=(0,)}                       // [8, 16]

After::

    %x.layer = tview %x[%b, 0, 0] [1, 8, 16] {drop=(0,)}
    %t.0 = tload %x.layer[0, 0] [8, 16]
    %b.1 = sadd %b, 1
    %x.layer2 = tview %x[%b.1, 0, 0] [1, 8, 16] {drop=(0,)}
    %t.1 = tload %x.layer2[0, 0] [8, 16]
    %m.0 = tmax %t.0 {axes=(1,), keepdims=true}
    %m.1 = tmax %t.1 {axes=(1,), keepdims=true}
    %u.0 = tsub %t.0, %m.0
    %u.1 = tsub %t.1, %m.1
    %s = tadd %u.0, %u.1

Products are one for each index; what drops the other axes is put together from rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod

from pto_jit.dtypes import DType, bool_, f32, i64
from pto_jit.ir.nodes import Attr, Block, Const, For, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, def_counts, defs, rewrite_block, statements, uses, vars_made
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes, unit_reshape
from pto_jit.lower.groups.fitting import Fitting, fitting_axes
from pto_jit.lower.names import unused
from pto_jit.semantic.rules import infer
from pto_jit.slotted import replace
from pto_jit.targets.ascend.layers_along import ALONG
from pto_jit.targets.ascend.refusals import many_axes, unsupported
from pto_jit.targets.cuda.shapes import shape_of

_INDEX = ScalarType(i64)
_MOST = 32
"""Layers of a tile: what is written grows with them."""
_JOINS = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
_HINT = "take tiles of two axes, in a loop over the first one"


def in_layers(func: Func) -> Func:
    """A flat function without tiles of three axes, but for those whose first extent is 1, and slabs."""
    high = {v.name: v for v in vars_made(statements(func.body)) if _is_high(v)}
    for name in _slabs(func, high):
        del high[name]
    counts = [v.type.shape[0] for v in high.values()]  # type: ignore[union-attr]
    if all(n == 1 for n in counts) or any(n is None or n > _MOST for n in counts):
        return func  # as it is, it is written or refused
    folds = (s for s in statements(func.body) if isinstance(s, For) and s.reductions)
    if any(v.name in high for s in folds for v in uses(s)):
        return func
    return replace(func, body=Layers(func, high).body())


def _slabs(func: Func, high: Mapping[str, Var]) -> set[str]:
    """Tiles with one element along the axis in the middle that are nothing but loaded for tiles of two axes, or stored
    for such: transfers take them as they are."""
    others: set[str] = set()
    for s in statements(func.body):
        if isinstance(s, Op) and ((s.op in ("load", "store") and not s.attr("pad")) or _lies_as(s)):
            continue
        others.update(v.name for v in (*defs(s), *uses(s)))
    shapes = {name: v.type.shape for name, v in high.items()}  # type: ignore[union-attr]
    return {name for name, shape in shapes.items() if shape[0] != 1 and shape[1] == 1} - others


def _lies_as(op: Op) -> bool:
    """Whether a reshape gives a tile of three axes two, or the other way round, and moves nothing."""
    return op.op == "reshape" and _is_high(op.args[0]) != _is_high(op.results[0]) and unit_reshape(op) is not None


def _is_high(var: Operand) -> bool:
    return isinstance(var.type, TileType) and var.type.rank == 3


class Layers:
    def __init__(self, func: Func, high: dict[str, Var]) -> None:
        self.func = func
        self.taken = block_defs(func.body) | {p.name for p in func.params}
        self.parts = {name: self._layers(var) for name, var in high.items()}
        self.last = dict(_counted(func))
        self.out: list[Stmt] = []
        self.loc = func.loc
        self.fitting: Fitting | None = None

    def body(self) -> Block:
        return rewrite_block(self.func.body, self.visit)

    def _layers(self, var: Var) -> list[Var]:
        typ = var.type
        assert isinstance(typ, TileType)
        return [self.var(f"{var.name}.{k}", typ.dtype, typ.shape[1:]) for k in range(typ.shape[0] or 0)]

    # -- making statements ----------------------------------------------------------------------------------------

    def var(self, wish: str, dtype: DType, shape: tuple[int | None, ...]) -> Var:
        return Var(unused(wish, self.taken), TileType(dtype, shape))

    def emit(self, op: str, result: Var | None, *args: Operand, **attrs: Attr) -> None:
        results = () if result is None else (result,)
        self.out.append(Op(op, results, args, tuple(attrs.items()), (), self.loc))

    def tile(self, op: str, like: Var, shape: tuple[int | None, ...], *args: Operand, **attrs: Attr) -> Var:
        """A new tile, of the element type of another one."""
        out = self.var(f"{like.name}.part", like.type.dtype, shape)  # type: ignore[union-attr]
        self.emit(op, out, *args, **attrs)
        return out

    def reshaped(self, tile: Var, shape: tuple[int, ...], result: Var | None = None) -> Var:
        if result is None and tile.type.shape == shape:  # type: ignore[union-attr]
            return tile
        out = result or self.var(f"{tile.name}.part", tile.type.dtype, shape)  # type: ignore[union-attr]
        self.emit("reshape", out, tile, *(_const(n) for n in shape))
        return out

    def layer(self, operand: Operand, k: int) -> Operand:
        """What an operand has at an index of the first axis; what has one layer, or no such axis, has it everywhere."""
        parts = self.parts.get(operand.name) if isinstance(operand, Var) else None
        return operand if parts is None else parts[k if len(parts) > 1 else 0]

    def extents(self, var: Var) -> tuple[Operand, ...]:
        found = shape_of(self.func.body, var)
        if found is None:
            raise unsupported("a tile of 3 axes whose extents are not known", self.loc, _HINT)
        return found

    # -- statements -----------------------------------------------------------------------------------------------

    def visit(self, stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Op) or self.parts.keys().isdisjoint(v.name for v in (*stmt.results, *uses(stmt))):
            return None
        self.out, self.loc = [], stmt.loc
        more = max(v.type.rank for v in (*stmt.results, *stmt.args) if isinstance(v.type, TileType))
        if more > 3:
            raise many_axes(more, stmt.loc)
        if is_reduction(stmt):
            self.reduce(stmt)
        elif is_elementwise(stmt):
            self.each(stmt, lambda k: tuple(self.layer(a, k) for a in stmt.args))
        else:
            along = ALONG.get(stmt.op)
            write: Callable[[Op], None] | None = getattr(self, f"write_{stmt.op}", along and partial(along, self))
            if write is None or stmt.attr("pad"):
                self.refuse(stmt)
            else:
                write(stmt)
        return tuple(self.out)

    def refuse(self, op: Op) -> None:
        raise unsupported(f"`{op.op}` like this of a tile of 3 axes", op.loc, _HINT)

    def each(self, op: Op, args: Callable[[int], tuple[Operand, ...]], **attrs: Attr) -> None:
        """The same operation for each layer of the result."""
        known = {**dict(op.attrs), **attrs}
        for k, part in enumerate(self.parts[op.results[0].name]):
            self.emit(op.op, part, *args(k), **known)

    def write_load(self, op: Op) -> None:
        tensor, place, *rest = op.args
        if len(rest) != 5:
            self.refuse(op)
        for k, part in enumerate(self.parts[op.results[0].name]):
            layer = self._layer_of(tensor, place, k)
            if layer is not None:
                self.emit("load", part, layer, *rest[:2], *rest[3:], **dict(op.attrs))
                continue
            slab = self._slab(part)
            self.emit("load", slab, tensor, self.after(place, k), *rest[:2], _const(1), *rest[3:], **dict(op.attrs))
            self.emit("reshape", part, slab, *rest[3:])

    def write_store(self, op: Op) -> None:
        tile, tensor, place, *rest = op.args
        assert isinstance(tile, Var)
        for k, part in enumerate(self.parts[tile.name]):
            layer = self._layer_of(tensor, place, k)
            if layer is not None:
                self.emit(op.op, None, part, layer, *rest, **dict(op.attrs))
                continue
            slab = self._slab(part)
            self.emit("reshape", slab, part, _const(1), *self.extents(tile)[1:])
            self.emit(op.op, None, slab, tensor, self.after(place, k), *rest, **dict(op.attrs))

    write_atomic_add = write_atomic_max = write_atomic_min = write_store

    def _slab(self, part: Var) -> Var:
        """A layer with the first axis."""
        typ = part.type
        assert isinstance(typ, TileType)
        return self.var(f"{part.name}.slab", typ.dtype, (1, *typ.shape))

    def _layer_of(self, tensor: Operand, place: Operand, k: int) -> Var | None:
        """A tensor of two axes, the k-th behind a place; None where it may lie outside, which the writer finds out."""
        typ = tensor.type
        assert isinstance(tensor, Var) and isinstance(typ, TensorType)
        last = self.last.get(place.name) if isinstance(place, Var) else int(place.value)
        if last is None or typ.shape[0] is None or not 0 <= last < typ.shape[0] - k:
            return None
        sides: list[Operand] = []
        for axis, extent in enumerate(typ.shape[1:], 1):
            side: Operand = _const(extent or 0)
            if extent is None:
                side = Var(unused(f"{tensor.name}_d{axis}", self.taken), _INDEX)
                self.emit("dim", side, tensor, axis=axis)
            sides.append(side)
        args = (tensor, self.after(place, k), _const(0), _const(0), _const(1), *sides)
        (kind,) = infer("view", args, {"drop": (0,)})
        out = Var(unused(f"{tensor.name}.layer", self.taken), kind)
        self.emit("view", out, *args, drop=(0,))
        return out

    def after(self, place: Operand, k: int) -> Operand:
        if k == 0 or isinstance(place, Const):
            return _const(int(place.value) + k) if isinstance(place, Const) else place
        out = Var(unused(f"{place.name}.{k}", self.taken), _INDEX)
        self.emit("add", out, place, _const(k))
        return out

    def write_full(self, op: Op) -> None:
        self.each(op, lambda _: (op.args[0], *op.args[2:]))

    def write_dot(self, op: Op) -> None:
        self.each(op, lambda k: tuple(self.layer(a, k) for a in op.args))

    def write_broadcast_to(self, op: Op) -> None:
        self.each(op, lambda k: (self.layer(op.args[0], k), *op.args[2:]))

    def write_transpose(self, op: Op) -> None:
        axes = op.attr("axes")
        assert isinstance(axes, tuple)
        if axes[0] != 0:
            self.refuse(op)
        turned = tuple(int(a) - 1 for a in axes[1:])  # type: ignore[arg-type]
        self.each(op, lambda k: (self.layer(op.args[0], k),), axes=turned)

    def write_concat(self, op: Op) -> None:
        axis = int(op.attr("axis")) % 3  # type: ignore[call-overload]
        if axis != 0:
            self.each(op, lambda k: tuple(self.layer(a, k) for a in op.args), axis=axis - 1)
            return
        results = iter(self.parts[op.results[0].name])
        bound = next((self.layer(a, 0) for a in op.args if not any(self._fits(a))), None)
        ends: Var | None = None  # a tile that is valid as far as the ones that do not fit any extent
        for a in op.args:
            for source in self.parts[a.name]:  # type: ignore[union-attr]
                if bound is None or not any(self._fits(a)):
                    self.emit("copy", next(results), source)
                    continue
                if ends is None:
                    ends = self.var(f"{source.name}.ends", bool_, source.type.shape)  # type: ignore[union-attr]
                    self.emit("eq", ends, bound, bound)
                self.emit("select", next(results), ends, source, source)

    def _fits(self, tile: Operand) -> tuple[bool, ...]:
        """Along which axes but the first one a tile fits any valid extent."""
        if self.fitting is None:
            self.fitting = fitting_axes(self.func.body)
        return self.fitting.get(tile.name, ())[1:]  # type: ignore[union-attr]

    def write_tile_slice(self, op: Op) -> None:
        tile, first, result = op.args[0], op.args[1], op.results[0]
        if not isinstance(first, Const) or len(op.args) != 7 or not _is_high(result):
            self.refuse(op)
        start = int(first.value)  # type: ignore[union-attr]
        self.each(op, lambda k: (self.parts[tile.name][start + k], *op.args[2:4], *op.args[5:]))  # type: ignore[union-attr]

    def write_valid(self, op: Op) -> None:
        axis, tile = int(op.attr("axis")), op.args[0]  # type: ignore[call-overload]
        parts = self.parts[tile.name]  # type: ignore[union-attr]
        if axis == 0:  # loads beyond a tensor are refused
            self.emit("copy", op.results[0], _const(len(parts)))
        else:
            self.emit(op.op, op.results[0], parts[0], axis=axis - 1)

    write_extent = write_valid

    def write_extract(self, op: Op) -> None:
        tile, first, *rest = op.args
        if not isinstance(first, Const):
            self.refuse(op)
        part = self.parts[tile.name][int(first.value)]  # type: ignore[union-attr]
        self.emit("extract", op.results[0], part, *rest)

    # -- shapes ---------------------------------------------------------------------------------------------------

    def write_reshape(self, op: Op) -> None:
        source, result = op.args[0], op.results[0]
        old, new = source.type, result.type
        assert isinstance(source, Var) and isinstance(old, TileType) and isinstance(new, TileType)
        if None in (*old.shape, *new.shape):
            self.refuse(op)
        before, after = (tuple(n or 0 for n in t.shape) for t in (old, new))
        if not _is_high(source):
            self._taken_apart(op, source, before, after)
        elif not _is_high(result):
            self._put_together(op, self.parts[source.name], before, after)
        elif before[0] == after[0]:
            self.each(op, lambda k: (self.layer(source, k), *op.args[2:]))
        else:
            self.refuse(op)

    def _put_together(self, op: Op, parts: list[Var], before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Layers as rows of a tile of two axes, or one after the other."""
        (result,) = op.results
        if len(after) == 2 and after[1] == before[2]:
            self.emit("concat", result, *parts, axis=0)
            return
        rows = [self.reshaped(part, (1, before[1] * before[2])) for part in parts]
        shape = before[0], before[1] * before[2]
        if after == shape:
            self.emit("concat", result, *rows, axis=0)
        else:
            self.reshaped(self.tile("concat", result, shape, *rows, axis=0), after, result)

    def _taken_apart(self, op: Op, source: Var, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Layers of what lies in rows of a tile of two axes, or one after the other."""
        parts = self.parts[op.results[0].name]
        if len(parts) == 1:
            self.reshaped(source, after[1:], parts[0])
            return
        if len(before) == 2 and before[1] == after[2]:
            for k, part in enumerate(parts):
                sides = _const(after[1]), _const(after[2])
                self.emit("tile_slice", part, source, _const(k * after[1]), _const(0), *sides)
            return
        width = prod(after[1:])
        flat = self.reshaped(source, (after[0], width))
        for k, part in enumerate(parts):
            row = self.tile("tile_slice", part, (1, width), flat, _const(k), _const(0), _const(1), _const(width))
            self.reshaped(row, after[1:], part)

    # -- reductions -----------------------------------------------------------------------------------------------

    def reduce(self, op: Op) -> None:
        source, result = op.args[0], op.results[0]
        assert isinstance(source, Var) and isinstance(source.type, TileType)
        axes = {a % 3 for a in reduced_axes(op)}
        inner = tuple(sorted(a - 1 for a in axes if a))
        parts = self.parts[source.name]
        if 0 not in axes:
            self._in_each(op, parts, inner)
            return
        if op.op not in _JOINS:
            self.refuse(op)
        final = self.parts[result.name][0] if _is_high(result) else result
        self._joined(op, parts, inner, final)

    def _in_each(self, op: Op, parts: list[Var], inner: tuple[int, ...]) -> None:
        """Over the last axes only: of what drops them, a row for each layer."""
        (result,) = op.results
        if _is_high(result):
            for part, source in zip(self.parts[result.name], parts, strict=True):
                self._reduced(op, source, inner, part, keepdims=True)
            return
        rows: list[Var] = []
        for source in parts:
            rest = tuple(1 if a in inner else n for a, n in enumerate(source.type.shape))  # type: ignore[union-attr]
            if None in rest:
                self.refuse(op)
            row = self.var(f"{result.name}.part", result.type.dtype, rest)  # type: ignore[union-attr]
            self._reduced(op, source, inner, row, keepdims=True)
            rows.append(self.reshaped(row, (1, prod(n or 1 for n in rest))))
        shape = len(parts), prod(n or 1 for n in rows[0].type.shape)  # type: ignore[union-attr]
        if result.type.rank == 2:  # type: ignore[union-attr]
            self.emit("concat", result, *rows, axis=0)
        else:
            self.reshaped(self.tile("concat", result, shape, *rows, axis=0), (len(parts),), result)

    def _joined(self, op: Op, parts: list[Var], inner: tuple[int, ...], final: Var) -> None:
        """Over the first axis: layers are joined, in f32 those of shorter floats, before other axes are reduced."""
        dtype = final.type.dtype  # type: ignore[union-attr]
        wide = f32 if dtype.is_float and dtype.bits < 32 else dtype
        shape = parts[0].type.shape  # type: ignore[union-attr]
        whole, *more = (self._cast(part, wide) for part in parts)
        for k, part in enumerate(more):
            last = k == len(more) - 1 and not inner and wide == dtype
            out = final if last else self.var(f"{final.name}.part", wide, shape)
            self.emit(_JOINS[op.op], out, whole, part)
            whole = out
        if inner:
            keepdims = bool(op.attr("keepdims"))
            out = final if wide == dtype else Var(unused(f"{final.name}.part", self.taken), _with(final.type, wide))
            self._reduced(op, whole, inner, out, keepdims=keepdims)
            whole = out
        if whole is not final:
            self.emit("copy", final, whole) if wide == dtype else self.emit("cast", final, whole, dtype=dtype)

    def _cast(self, tile: Var, dtype: DType) -> Var:
        typ = tile.type
        assert isinstance(typ, TileType)
        if typ.dtype == dtype:
            return tile
        out = self.var(f"{tile.name}.part", dtype, typ.shape)
        self.emit("cast", out, tile, dtype=dtype)
        return out

    def _reduced(self, op: Op, source: Var, inner: tuple[int, ...], result: Var, *, keepdims: bool) -> None:
        attrs = {**dict(op.attrs), "keepdims": keepdims}
        if "axis" in attrs:
            attrs["axis"] = inner[0]
        else:
            attrs["axes"] = inner
        self.emit(op.op, result, source, **attrs)


def _counted(func: Func) -> Iterator[tuple[str, int]]:
    """The largest values of loop variables that run from a constant up to one, and that nothing else assigns."""
    made = def_counts(func.body)
    for s in statements(func.body):
        match s:
            case For(start=Const(value=start), stop=Const(value=stop), step=Const(value=step)) if (
                0 <= start < stop and step > 0 and made[s.var.name] == 1
            ):
                yield s.var.name, int(start + (stop - start - 1) // step * step)
            case _:
                pass


def _with(typ: object, dtype: DType) -> TileType | ScalarType:
    assert isinstance(typ, (TileType, ScalarType))
    return replace(typ, dtype=dtype)


def _const(value: int) -> Const:
    return Const(value, _INDEX)

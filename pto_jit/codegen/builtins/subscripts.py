# SPDX-License-Identifier: MIT
"""Subscripts: elements, views, index tiles and new axes of `x[...]`, and assignments to elements and regions."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from pto_jit.codegen.builtins.memory import index_of, store_tile, tensor_of, tile_view, view
from pto_jit.codegen.builtins.places import index_tile, look_up
from pto_jit.codegen.builtins.promote import quoted, shape_text, tile_of, value_of, with_axes, with_rank, without_axes
from pto_jit.codegen.builtins.registry import call
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Scalar, Tensor, Tile, static_extent
from pto_jit.errors import CompilationError, ShapeError, TypeMismatchError
from pto_jit.ir.nodes import Const, Operand
from pto_jit.language._subscript import is_integer, moves_to_the_front, scatter_instead
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def _expand_index(cg: Generator, item: Any, rank: int, what: str) -> list[Any]:
    items = list(item) if isinstance(item, tuple) else [item]
    if sum(i is Ellipsis for i in items) > 1:
        raise cg.error(ShapeError, "an index with more than one `...`", code="PTO-H007", hint="use one `...`")
    if any(i is Ellipsis for i in items):
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        fill = rank - (len(items) - 1)
        items[at : at + 1] = [slice(None)] * max(fill, 0)
    if len(items) > rank:
        raise cg.error(ShapeError, f"{len(items)} indices for {what} of rank {rank}", code="PTO-H008",
                       hint="give at most one index per axis")  # fmt: skip
    return items + [slice(None)] * (rank - len(items))


def _bounds(cg: Generator, item: Any, extent: Operand) -> tuple[Operand, Operand, bool]:
    """(start, extent, dropped) of one index of a subscript."""
    if not isinstance(item, slice):
        start = index_of(cg, item, "an index")
        if isinstance(start, Const):
            if start.value < 0:
                start = _plus(cg, extent, int(start.value))
            _check_constant(cg, start, extent, item)
        return start, index(1), True
    start = index(0) if item.start is None else _end(cg, item.start, extent)
    stop = extent if item.stop is None else _end(cg, item.stop, extent)
    if isinstance(extent, Const) and isinstance(stop, Const):
        stop = index(min(int(stop.value), int(extent.value)))
    if isinstance(start, Const) and start.value == 0 and not isinstance(stop, Const):
        return start, cg.e.scalar("max", [stop, index(0)]).operand if cg.e.may_be_negative(stop) else stop, False
    if isinstance(start, Const) and isinstance(stop, Const):
        return start, index(max(int(stop.value) - int(start.value), 0)), False
    length = _difference(cg, start, stop)
    return start, length, False


def _steps(cg: Generator, items: Sequence[Any]) -> tuple[int, ...]:
    """The steps of the slices among the indices."""
    steps: list[int] = []
    for item in items:
        if not isinstance(item, slice):
            continue
        step = 1 if item.step is None else cg.static(item.step, "the step of a slice")
        if not is_integer(step) or step < 1:
            raise cg.error(ShapeError, f"a slice with the step {quoted(step)}", code="PTO-H009",
                           hint="steps are integers of at least 1; `pl.flip` turns an axis of a tile around")
        steps.append(int(step))
    return tuple(steps)


def _part(cg: Generator, x: Tensor, starts: Sequence[Operand], extents: Sequence[Operand],
          drop: tuple[int, ...], steps: tuple[int, ...]) -> Tensor:  # fmt: skip
    """A part of a tensor, of each axis that is kept every so many-th element."""
    if not drop and _whole(x, starts, extents):
        part = x if set(steps) != {1} else replace(view(cg, x, starts, extents, drop), all_of=x.memory)
    else:
        part = view(cg, x, starts, extents, drop)
    if set(steps) == {1}:
        return part
    (var,) = cg.e.op("tensor_step", [part.memory], {"steps": steps}, hint=f"{x.var.name}_view")
    return Tensor(var, tuple(_every(cg, e, s) for e, s in zip(part.extents, steps, strict=True)), cg.e.loc)


def _every(cg: Generator, extent: Operand, step: int) -> Operand:
    """How many of `extent` elements there are from the first one on with a step."""
    if step == 1:
        return extent
    if isinstance(extent, Const):
        return index(-(-int(extent.value) // step))
    return cg.e.scalar("floordiv", [_plus(cg, extent, step - 1), index(step)]).operand


def _difference(cg: Generator, start: Operand, stop: Operand) -> Operand:
    """`stop - start`, a constant when the source says `r : r + C`."""
    known = cg.e.known_difference(stop, start)
    if known is not None:
        return index(max(known, 0))
    span = cg.e.scalar("sub", [stop, start]).operand
    return cg.e.scalar("max", [span, index(0)]).operand


def _end(cg: Generator, bound: Any, extent: Operand) -> Operand:
    operand = index_of(cg, bound, "a slice bound")
    if isinstance(operand, Const) and operand.value < 0:
        return _plus(cg, extent, int(operand.value))
    return operand


def _plus(cg: Generator, extent: Operand, value: int) -> Operand:
    if isinstance(extent, Const):
        return index(int(extent.value) + value)
    return cg.e.scalar("add", [extent, index(value)]).operand


def _check_constant(cg: Generator, start: Operand, extent: Operand, item: Any) -> None:
    if isinstance(start, Const) and isinstance(extent, Const) and not 0 <= start.value < extent.value:
        raise cg.error(ShapeError, f"index {item} is out of bounds for an axis of extent {extent.value}",
                       code="PTO-H010", hint="indices run from 0 to the extent minus 1")  # fmt: skip


def subscript(cg: Generator, value: Any, item: Any) -> Any:
    """`value[item]` of a tensor (an element, a view, or indirect access) or a tile (an element or a part).

    None is a new axis, as in NumPy: with one, what a tensor holds there is loaded, as no view has such axes.
    """
    if isinstance(value, Scalar):
        raise cg.error(TypeMismatchError, "a number cannot be indexed", code="PTO-T035",
                       hint="index the tensor or tile it came from")  # fmt: skip
    places = item if isinstance(item, tuple) else (item,)
    if any(i is None for i in places):
        return _with_new_axes(cg, value, places)
    items = _expand_index(cg, item, value.rank, "a tensor" if isinstance(value, Tensor) else "a tile")
    if any(isinstance(i, (Tile, Tensor)) for i in items):
        return _take(cg, value, items)
    bounds = [_bounds(cg, i, extent) for i, extent in zip(items, value.extents, strict=True)]
    starts, extents = [b[0] for b in bounds], [b[1] for b in bounds]
    drop = tuple(axis for axis, b in enumerate(bounds) if b[2])
    if len(drop) == value.rank:
        op = "getelem" if isinstance(value, Tensor) else "extract"
        return cg.e.scalar(op, [value.var, *starts], hint="t")
    steps = _steps(cg, items)
    if isinstance(value, Tensor):
        return _part(cg, value, starts, extents, drop, steps)
    if set(steps) != {1}:
        raise cg.error(ShapeError, "a slice of a tile with a step other than 1", code="PTO-H009",
                       hint="slice the tensor that it was loaded from, or use `pl.gather`")  # fmt: skip
    whole = not drop and _whole(value, starts, extents)
    return value if whole else tile_view(cg, value, starts, extents, drop)


def _with_new_axes(cg: Generator, value: Tensor | Tile, places: tuple[Any, ...]) -> Tile:
    """`value[places]`, of which some are None; an index tile goes with none of them."""
    old = tuple(i for i in places if i is not None)
    items = _expand_index(cg, old, value.rank, "a tensor" if isinstance(value, Tensor) else "a tile")
    if any(isinstance(i, (Tile, Tensor)) for i in items):
        raise _mixed_indices(cg)
    dots = next((k for k, i in enumerate(places) if i is Ellipsis), len(places))
    filled = len(items) - sum(i is not Ellipsis for i in old)
    spread = (*places[:dots], *[slice(None)] * filled, *places[dots + 1 :])
    kept = [i for i in spread if i is None or isinstance(i, slice)]
    part = subscript(cg, value, old)
    if isinstance(part, Scalar):
        ones_ = [index(1)] * len(kept)
        return cg.e.tile("full", [part.operand, *ones_], extents=tuple(ones_), generated=True)
    part = tile_of(cg, part, "an index with None")
    return with_axes(cg, part, [axis for axis, i in enumerate(kept) if i is None])


def _mixed_indices(cg: Generator) -> CompilationError:
    return cg.error(ShapeError, "an index tile together with other indices", code="PTO-H011",
                    hint="index one axis with a tile, the others with numbers and slices: `x[index, :]`")  # fmt: skip


def _whole(value: Tensor | Tile, starts: Sequence[Operand], extents: Sequence[Operand]) -> bool:
    """Whether a part without dropped axes is all of `value`."""
    return all(start == index(0) for start in starts) and tuple(extents) == value.extents


def _take(cg: Generator, value: Any, items: list[Any]) -> Tile:
    """`x[index_tile, i, :]`: np.take along the one axis that has an index tile, of what the other indices leave."""
    axes = [axis for axis, i in enumerate(items) if isinstance(i, (Tile, Tensor))]
    if len(axes) != 1:
        raise _mixed_indices(cg)
    axis = axes[0]
    others = [*items[:axis], slice(None), *items[axis + 1 :]]
    numbers = [n for n, i in enumerate(others) if not isinstance(i, slice)]
    if moves_to_the_front(axis, numbers):
        raise cg.error(ShapeError, "an index tile apart from a number among the indices", code="PTO-H011",
                       hint="NumPy puts its axis first here; write it in two steps: `x[i][:, index]`")  # fmt: skip
    if isinstance(value, Tile) and value.rank > 1:
        raise cg.error(TypeMismatchError, f"a tile of rank {value.rank} indexed with a tile", code="PTO-T036",
                       hint=_for_masks(items, "use `pl.gather(t, index, axis)`"))  # fmt: skip
    chosen = index_tile(cg, items[axis], "an index", _for_masks(items, "cast it to pl.i32 or pl.i64"))
    if isinstance(value, Tile):
        return look_up(cg, value, chosen)
    if not all(map(_is_whole, others)):
        value = subscript(cg, value, tuple(others))
        axis -= sum(n < axis for n in numbers)
    extents = (*value.extents[:axis], *chosen.extents, *value.extents[axis + 1 :])
    zeros_ = [index(0)] * value.rank
    return cg.e.tile("take", [value.var, chosen.var, *zeros_], {"axis": axis}, extents=extents)


def _is_whole(item: Any) -> bool:
    """Whether an index takes its axis as it is."""
    return isinstance(item, slice) and item.start is item.stop is item.step is None


def _for_masks(items: list[Any], otherwise: str) -> str:
    """What to do instead of an index that is a tile: a mask among them is not a list of places."""
    masked = any(isinstance(i, (Tile, Tensor)) and i.dtype.kind == "b" for i in items)
    return "compute on all elements, and choose: `pl.where(mask, a, b)`" if masked else otherwise


_NEW_TENSOR = (
    "`pl.zeros` and the like make a tensor in statements of the kernel's own body; in loops, comprehensions, scopes "
    "and functions that it calls they make a tile: build the new tile with `pl.where`, make a tensor in the body, or "
    "an array of NumPy (`np.zeros(shape, dtype)`), which has elements that can be assigned anywhere"
)


def store_subscript(cg: Generator, value: Any, item: Any, rhs: Any) -> None:
    """`value[item] = rhs`."""
    if isinstance(value, Tile):
        cg.assigns_to(value)
        made = cg.e.definitions.get(value.var.name)
        raise cg.error(TypeMismatchError, "an element of a tile cannot be assigned: tiles are values", code="PTO-T038",
                       hint=_NEW_TENSOR if made is not None and made.op == "full" else
                       "build the new tile with `pl.where`, or write to a tensor")  # fmt: skip
    tensor = tensor_of(cg, value, "an indexed assignment")
    if any(i is None for i in (item if isinstance(item, tuple) else (item,))):
        raise cg.error(ShapeError, "an assignment through a new axis", code="PTO-H016",
                       hint="leave None out: what is assigned broadcasts")  # fmt: skip
    if is_mask(item):
        store_masked(cg, tensor, item, rhs)
        return
    items = _expand_index(cg, item, tensor.rank, "a tensor")
    if any(isinstance(i, (Tile, Tensor)) for i in items):
        raise cg.error(TypeMismatchError, "an assignment through an index tile", code="PTO-T039",
                       hint=_for_masks(items, scatter_instead(tensor.rank)))  # fmt: skip
    bounds = [_bounds(cg, i, extent) for i, extent in zip(items, tensor.extents, strict=True)]
    starts, extents = [b[0] for b in bounds], [b[1] for b in bounds]
    drop = tuple(axis for axis, b in enumerate(bounds) if b[2])
    if len(drop) == tensor.rank:
        number = cg.e.cast(value_of(cg, rhs, "the value assigned"), tensor.dtype)
        if not isinstance(number, Scalar):
            raise cg.error(TypeMismatchError, "a tile assigned to one element", code="PTO-T040",
                           hint="assign to a slice, or reduce the tile first")  # fmt: skip
        cg.e.op("setelem", [number.operand, tensor.var, *starts])
        return
    steps = _steps(cg, items)
    whole = set(steps) == {1} and not drop and _whole(tensor, starts, extents)
    region = tensor if whole else _part(cg, tensor, starts, extents, drop, steps)
    tile = cg.e.cast(value_of(cg, rhs, "the value assigned"), tensor.dtype)
    store_tile(cg, _spread(cg, tile, region.extents), region, [index(0)] * region.rank)


def is_mask(item: Any) -> TypeGuard[Tile | Tensor]:
    """Whether an index says of every element, or row, whether it is meant."""
    return isinstance(item, (Tile, Tensor)) and item.dtype.kind == "b"


def store_masked(
    cg: Generator, tensor: Tensor, mask: Tile | Tensor, rhs: Any, op: type[ast.operator] | None = None
) -> None:
    """`tensor[mask] = rhs`, a number, or `tensor[mask] op= rhs`: all elements are written, some with what they were."""
    number = value_of(cg, rhs, "the value assigned")
    if not isinstance(number, Scalar):
        raise cg.error(TypeMismatchError, "a tile assigned through a mask", code="PTO-T039",
                       hint="choose among the elements: `x[...] = pl.where(mask, t, x)`")  # fmt: skip
    value = call("cast", cg, (number if op is None else cg.operators.operate(op, tensor, rhs), tensor.dtype), {})
    chosen = tile_of(cg, mask, "a mask")
    known = [(static_extent(m), static_extent(n)) for m, n in zip(chosen.extents, tensor.extents, strict=False)]
    if chosen.rank > tensor.rank or any(None not in pair and pair[0] != pair[1] for pair in known):
        raise cg.error(ShapeError, f"a mask of shape {shape_text(chosen.extents)} for a tensor of shape "
                       f"{shape_text(tensor.extents)}", code="PTO-H012",
                       hint="a mask has the extents of the tensor, or of its first axes")  # fmt: skip
    if chosen.rank < tensor.rank:
        chosen = with_axes(cg, chosen, range(chosen.rank, tensor.rank))
    store_subscript(cg, tensor, ..., call("where", cg, (chosen, value, tensor), {}))


def _spread(cg: Generator, value: Scalar | Tile, extents: tuple[Operand, ...]) -> Tile:
    """`value` broadcast to a region, as NumPy's assignment does."""
    if isinstance(value, Scalar):
        return cg.e.tile("full", [value.operand, *extents], extents=extents, generated=True)
    missing = len(extents) - value.rank
    if missing > 0:
        value = with_rank(cg, value, len(extents))
    elif missing < 0 and all(static_extent(e) == 1 for e in value.extents[:-missing]):
        value = without_axes(cg, value, range(-missing))
    if value.rank > len(extents):
        raise cg.error(ShapeError, f"a tile of rank {value.rank} assigned to a region of rank {len(extents)}",
                       code="PTO-H006", hint="use `pl.reshape`, or index the tile")  # fmt: skip
    for axis, (mine, wanted) in enumerate(zip(value.extents, extents, strict=True)):
        known, goal = static_extent(mine), static_extent(wanted)
        if known not in (1, None) and goal is not None and known != goal:
            raise cg.error(ShapeError,
                           f"a tile of shape {shape_text(value.extents)} assigned to a region of shape "
                           f"{shape_text(extents)}: axis {axis} differs",
                           code="PTO-H012", hint="an axis broadcasts when its extent is 1")  # fmt: skip
    if any(static_extent(m) == 1 and static_extent(w) != 1 for m, w in zip(value.extents, extents, strict=True)):
        # the other axes keep their declared extents: like those of any tile that is stored, they are clipped
        spread = tuple(w if static_extent(m) == 1 else m for m, w in zip(value.extents, extents, strict=True))
        return cg.e.tile("broadcast_to", [value.var, *spread], extents=spread)
    return value

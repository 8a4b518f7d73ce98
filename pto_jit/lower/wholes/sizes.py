# SPDX-License-Identifier: MIT
"""How large tiles are, as numbers that the host knows before the operations that make them."""

from __future__ import annotations

from pto_jit.ir.nodes import Const, Op, Operand, Var
from pto_jit.ir.types import TileType
from pto_jit.lower.groups.axes import GENERATED, is_elementwise, is_reduction, reduced_axes, unit_reshape
from pto_jit.lower.names import Scalars, index
from pto_jit.lower.wholes.known import Known
from pto_jit.slotted import frozen

_KEEP = frozenset("cumsum cumprod sort argsort assoc_scan flip copy".split())
"""Operations whose results have the extents of the first operand."""


class UnknownSizeError(Exception):
    """A tile whose extents are not known before it is made."""


@frozen
class Size:
    """An axis of a tile: its declared extent, how much of it is valid, and whether it fits any (`groups.fitting`)."""

    declared: Operand
    valid: Operand
    fits: bool = False

    @property
    def whole(self) -> bool:
        return self.declared == self.valid


ONE = Size(index(1), index(1))


class Sizes:
    """The sizes of tiles that are made once; what has to be computed for them goes to `scalars`."""

    def __init__(self, known: Known, scalars: Scalars) -> None:
        self.known, self.scalars = known, scalars
        self.found: dict[str, tuple[Size, ...]] = {}
        self.made: dict[str, Op] = {}
        """Operations that were made up, besides those of the function."""

    def of(self, tile: Operand) -> tuple[Size, ...]:
        """Of all axes of a tile; UnknownSizeError where they are not known."""
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        sizes = self.found.get(tile.name)
        if sizes is None:
            op = self.made.get(tile.name) or self.known.makers.get(tile.name)
            if op is None:
                raise UnknownSizeError
            sizes = self.found[tile.name] = tuple(
                size if n is None else self._declared(n, size)
                for n, size in zip(tile.type.shape, self._made(op), strict=True)
            )
        return sizes

    def elements(self, tile: Operand) -> Operand:
        """How many of a tile are valid."""
        out: Operand = index(1)
        for size in self.of(tile):
            out = self.scalars.op("mul", out, size.valid, "elements")
        return out

    def _declared(self, extent: int, size: Size) -> Size:
        """What is known of the extent from the type of the tile."""
        return Size(index(extent), index(extent) if size.whole else size.valid, size.fits)

    def _made(self, op: Op) -> tuple[Size, ...]:
        result = op.results[0].type
        assert isinstance(result, TileType)
        rank = result.rank
        if op.op == "load" and not op.attr("pad"):
            return self._loaded(op, rank)
        if op.op in GENERATED:
            said = op.args[2:] if op.op in ("arange", "rand", "randn") else op.args[1:]
            return tuple(Size(n, n, True) for n in said)
        if op.op == "broadcast_to":
            return self._broadcast(op, rank)
        if is_elementwise(op) or op.op == "map":
            return self._joined(op, rank)
        if op.op in _KEEP:
            return self.of(op.args[0])
        if is_reduction(op) or (op.op == "fold" and op.attr("axis") is not None):
            over = reduced_axes(op) if op.op != "fold" else (int(op.attr("axis")),)  # type: ignore[call-overload]
            kept = [ONE if k in over else size for k, size in enumerate(self.of(op.args[0]))
                    if k not in over or op.attr("keepdims")]  # fmt: skip
            return tuple(kept)
        match op.op:
            case "reshape":
                return self._reshaped(op)
            case "transpose":
                own = self.of(op.args[0])
                return tuple(own[int(k)] for k in op.attr("axes"))  # type: ignore[union-attr, arg-type]
            case "dot":
                return self._product(op)
            case "concat":
                return self._joined_along(op)
            case "stack":
                own = list(self.of(op.args[0]))
                own.insert(int(op.attr("axis")), Size(index(len(op.args)), index(len(op.args))))  # type: ignore
                return tuple(own)
            case "tile_slice":
                return self._part(op)
            case "take":
                return self._taken(op)
            case "gather":
                return self.of(op.args[1])
            case "topk":
                k, (*kept, size) = index(int(op.attr("k"))), self.of(op.args[0])  # type: ignore[call-overload]
                return (*kept, Size(k, k if size.whole else self.scalars.op("min", size.valid, k, "some")))
            case _:
                raise UnknownSizeError

    def _loaded(self, op: Op, rank: int) -> tuple[Size, ...]:
        out: list[Size] = []
        for k in range(rank):
            offset, extent = op.args[1 + k], op.args[1 + rank + k]
            out.append(Size(extent, self.known.valid(op.args[0], k, offset, extent, self.scalars)))
        return tuple(out)

    def _broadcast(self, op: Op, rank: int) -> tuple[Size, ...]:
        source = op.args[0].type
        if not isinstance(source, TileType):
            return tuple(Size(n, n, True) for n in op.args[1:])
        own, lead = self.of(op.args[0]), rank - source.rank
        return tuple(
            Size(n, n, True) if k < lead or source.shape[k - lead] == 1 else own[k - lead]
            for k, n in enumerate(op.args[1:])
        )

    def _joined(self, op: Op, rank: int) -> tuple[Size, ...]:
        """Axes of extent 1 are those of others, and so are those that fit any; what is known to be whole tells of
        others, which have to agree."""
        out: list[Size] = []
        tiles = [a for a in op.args if isinstance(a, Var) and isinstance(a.type, TileType)]
        for k in range(rank):
            wide: list[Size] = []
            for tile in tiles:
                at = k - rank + tile.type.rank  # type: ignore[union-attr]
                if at >= 0 and tile.type.shape[at] != 1:  # type: ignore[union-attr]
                    wide.append(self.of(tile)[at])
            sure = [size for size in wide if not size.fits]
            out.append(next((size for size in sure if size.whole and isinstance(size.valid, Const)),
                            (sure or wide or [ONE])[0]))  # fmt: skip
        return tuple(out)

    def _product(self, op: Op) -> tuple[Size, ...]:
        """Leading axes of extent 1 are those of the other operand."""
        left, right = map(self.of, op.args[:2])
        shape = op.args[0].type.shape  # type: ignore[union-attr]
        leading = [b if n == 1 else a for a, b, n in zip(left[:-2], right[:-2], shape[:-2], strict=True)]
        return (*leading, left[-2], right[-1])

    def _reshaped(self, op: Op) -> tuple[Size, ...]:
        own, source, result = self.of(op.args[0]), op.args[0].type, op.results[0].type
        assert isinstance(source, TileType) and isinstance(result, TileType)
        which = self.kept(op)
        if which is not None:
            return tuple(ONE if k is None else own[k] for k in which)
        if not all(size.whole for size in own):
            raise UnknownSizeError
        return tuple(Size(n, n) for n in op.args[1:])

    def kept(self, op: Op) -> tuple[int | None, ...] | None:
        """As `unit_reshape`, also where the same numbers say that the extents are."""
        which = unit_reshape(op)
        if which is not None:
            return which
        source, result = op.args[0].type, op.results[0].type
        assert isinstance(source, TileType) and isinstance(result, TileType)
        old = [k for k, n in enumerate(source.shape) if n != 1]
        new = [k for k, n in enumerate(result.shape) if n != 1]
        try:
            own = self.of(op.args[0])
        except UnknownSizeError:
            return None
        if [own[k].declared for k in old] != [op.args[1 + k] for k in new]:
            return None
        of = dict(zip(new, old, strict=True))
        return tuple(of.get(k) for k in range(result.rank))

    def _joined_along(self, op: Op) -> tuple[Size, ...]:
        along = int(op.attr("axis"))  # type: ignore[call-overload]
        own = [self.of(a) for a in op.args]
        out = list(own[0])
        for other in own[1:]:
            a, b = out[along], other[along]
            valid = self.scalars.op("add", a.valid, b.valid, "extent")
            declared = valid if a.whole and b.whole else self.scalars.op("add", a.declared, b.declared, "extent")
            out[along] = Size(declared, valid)
        return tuple(out)

    def _part(self, op: Op) -> tuple[Size, ...]:
        own = self.of(op.args[0])
        drop = op.attr("drop") or ()
        rank = len(own)
        out: list[Size] = []
        for k, size in enumerate(own):
            start, extent = op.args[1 + k], op.args[1 + rank + k]
            if start == index(0) and extent == size.declared:
                out.append(size)
                continue
            left = self.scalars.op("sub", size.valid, start, "left")
            some = self.scalars.op("max", self.scalars.op("min", left, extent, "some"), index(0), "valid")
            inside = isinstance(extent, Const) and isinstance(some, Const) and some.value >= extent.value
            out.append(Size(extent, extent if inside else some))
        return tuple(size for k, size in enumerate(out) if k not in drop)  # type: ignore[operator]

    def _taken(self, op: Op) -> tuple[Size, ...]:
        tensor, along = op.args[0], int(op.attr("axis"))  # type: ignore[call-overload]
        rank = tensor.type.rank  # type: ignore[union-attr]
        offsets = op.args[2:] or (index(0),) * rank
        out: list[Size] = []
        for k in range(rank):
            if k == along:
                out += self.of(op.args[1])
                continue
            size = self.known.size(tensor, k, self.scalars)
            left = self.scalars.op("max", self.scalars.op("sub", size, offsets[k], "left"), index(0), "valid")
            out.append(Size(size, size) if offsets[k] == index(0) else Size(left, left))
        return tuple(out)



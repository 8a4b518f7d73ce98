# SPDX-License-Identifier: MIT
"""What the entry function returns: tensors it made, tiles turned into tensors, numbers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.promote import value_of
from pto_jit.codegen.emit import constant, index
from pto_jit.codegen.frames import KernelFunction, Unusable
from pto_jit.codegen.items import Items
from pto_jit.codegen.leaf import Leaf
from pto_jit.codegen.merging import is_number
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.dtypes import DType, promote
from pto_jit.errors import CompilationError, Note, ShapeError, TypeMismatchError
from pto_jit.ir.nodes import Const, If, Op, Operand, Return, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType, Type
from pto_jit.semantic.rules import is_elementwise

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

# Operations whose result is valid everywhere when all their tiles are.
_KEEP = frozenset("transpose reshape concat stack broadcast_to flip cumsum cumprod sort argsort topk dot gather sum "
                  "prod max min any all argmax argmin fold assoc_scan map".split())  # fmt: skip

_MOST_AXES = 32  # of an array that a launch makes, in every version of NumPy
_FUNCTION = "function of the kernel"


class Results:
    """Turns returned values into operands of `Return`, checking that all returns agree."""

    def __init__(self, generator: Generator) -> None:
        self.g = generator
        self.types: tuple[Type, ...] | None = None
        self.structure: Any = None  # of tuples, lists, dicts and compile-time values, with `Leaf`s
        self.place: ast.AST | None = None

    def operands(self, value: Any, node: ast.AST) -> tuple[Operand, ...]:
        g = self.g
        g.node = node
        if g.e.waiting is not None:
            g.e.waiting.returning(value)
        if isinstance(value, Unusable):
            raise g.error(
                TypeMismatchError, f"different values are returned: {value.message.split(': ', 1)[-1]}",
                code="PTO-T044", hint=value.hint, notes=value.notes,
            )  # fmt: skip
        leaves: list[Any] = []
        structure = self._flatten(value, leaves)
        self._meet(leaves)
        tiles = [v for v in leaves if isinstance(v, Tile)]
        tensors = self._stored(tiles, leaves, structure, node) if tiles else {}
        operands = self._all(leaves, tensors)
        types = tuple(o.type for o in operands)
        self._agree(types, structure, node)
        return operands

    def _meet(self, leaves: list[Any]) -> None:
        """Give numbers the types that an earlier `return` has in their places, where that keeps what they are."""
        for k, (leaf, earlier) in enumerate(zip(leaves, self.types or (), strict=False)):
            if isinstance(earlier, ScalarType) and not isinstance(leaf, (Tile, Tensor)):
                number = value_of(self.g, leaf, "a returned value")
                assert isinstance(number, Scalar)
                if number.dtype != earlier.dtype and _keeps(number, earlier.dtype):
                    leaves[k] = self.g.e.cast(number, earlier.dtype)

    def _agree(self, types: tuple[Type, ...], structure: Any, node: ast.AST) -> None:
        g = self.g
        if self.types is None:
            self.types, self.structure, self.place = types, structure, node
            return
        joined = [_joined(a, b) for a, b in zip(self.types, types, strict=False)]
        if len(self.types) != len(types) or None in joined or _strong(self.structure) != _strong(structure):
            assert self.place is not None
            raise g.error(
                TypeMismatchError,
                f"this returns {_text(types)}, another `return` {_text(self.types)}",
                code="PTO-T045",
                hint="every `return` of a kernel gives values of the same types",
                notes=(Note("the other `return`", g.loc(self.place)),) if hasattr(self.place, "lineno") else (),
            )
        self.types = tuple(t for t in joined if t is not None)

    def _flatten(self, value: Any, leaves: list[Any]) -> Any:
        own = getattr(type(value), "__pto_result__", None)
        if own is not None:
            value = own(value, self.g)
        if isinstance(value, (Tile, Tensor)) and value.rank > _MOST_AXES:
            raise self.g.error(ShapeError, f"a result with {value.rank} axes", code="PTO-H033",
                               hint=f"return at most {_MOST_AXES} axes: `pl.reshape` it")  # fmt: skip
        if isinstance(value, (Scalar, Tile, Tensor)) or is_number(value):
            leaves.append(value)
            weak = not isinstance(value, (Tile, Tensor)) and (not isinstance(value, Scalar) or value.weak)
            return Leaf(len(leaves) - 1, weak)
        if isinstance(value, tuple) and hasattr(value, "_make"):
            return type(value)(*(self._flatten(v, leaves) for v in value))
        if isinstance(value, (tuple, list)):
            return type(value)(self._flatten(v, leaves) for v in value)
        if isinstance(value, dict):
            return {k: self._flatten(v, leaves) for k, v in value.items()}
        known = {Items: "generator", KernelFunction: _FUNCTION}.get(type(value))
        if known is not None or self.g.find_runtime(value) is not None:
            what = known or f"{type(value).__name__} with run-time values"
            raise self.g.error(CompilationError, f"a {what} is returned",
                               code="PTO-N040", hint="call it, and return the result" if known == _FUNCTION
                               else "return a tuple, a list or a dict of them")  # fmt: skip
        return value

    def _all(self, leaves: list[Any], tensors: dict[int, Var]) -> tuple[Operand, ...]:
        g = self.g
        operands: list[Operand] = []
        used: set[str] = set()
        for leaf in leaves:
            if isinstance(leaf, Tile):
                operands.append(tensors[id(leaf)])
            elif isinstance(leaf, Tensor):
                var = leaf.var
                if var.name not in g.e.allocated:
                    if var.name in g.parameter_names:
                        raise g.error(
                            TypeMismatchError,
                            "a tensor argument is returned",
                            code="PTO-T046",
                            hint="the caller has it already: return nothing, or a new tensor made with `pl.empty`",
                        )
                    var = self._copy(leaf)
                elif var.name in used:
                    var = self._copy(leaf)
                used.add(var.name)
                operands.append(var)
            else:
                operands.append(value_of(g, leaf, "a returned value").operand)  # type: ignore[union-attr]
        return tuple(operands)

    def _copy(self, tensor: Tensor) -> Var:
        """A view, or a tensor returned twice, as a tensor of its own."""
        g = self.g
        kind = tensor.var.type
        assert isinstance(kind, TensorType)
        # a view may be clipped at its parent's bounds, so that it has fewer elements than it was declared with
        extents: tuple[Operand, ...] = tuple(
            g.e.op("dim", [tensor.var], {"axis": axis})[0] if n is None else index(n)
            for axis, n in enumerate(kind.shape)
        )
        (made,) = g.e.op("alloc", list(extents), {"dtype": tensor.dtype}, hint="out")
        zeros = [index(0)] * tensor.rank
        tile = g.e.tile("load", [tensor.var, *zeros, *extents], extents=extents)
        g.e.op("store", [tile.var, made, *zeros])
        return made

    def _stored(self, tiles: list[Tile], leaves: list[Any], structure: Any, node: ast.AST) -> dict[int, Var]:
        """Each returned tile in a tensor of its valid extents.

        The tensor has the declared extents, which are the valid ones nearly always; where that cannot be told at
        compile time, a branch that copies the valid part to a smaller tensor and returns that comes first.
        """
        g = self.g
        tensors: dict[int, Var] = {}
        partial: list[tuple[Tile, list[Operand]]] = []
        for tile in tiles:
            if id(tile) in tensors:
                continue
            (made,) = g.e.op("alloc", list(tile.extents), {"dtype": tile.dtype}, hint="out")
            tensors[id(tile)] = made
            g.e.op("store", [tile.var, made, *([index(0)] * tile.rank)])
            if not self.complete(tile):
                partial.append((tile, [g.e.op("valid", [tile.var], {"axis": a})[0] for a in range(tile.rank)]))
        if not partial:
            return tensors
        whole: Operand | None = None
        for tile, valid in partial:
            for have, want in zip(valid, tile.extents, strict=True):
                (same,) = g.e.op("eq", [have, want])
                whole = same if whole is None else g.e.op("and", [whole, same])[0]
        assert whole is not None
        (clipped,) = g.e.op("not", [whole])
        block = g.e.push()
        smaller = dict(tensors)
        for tile, valid in partial:
            zeros = [index(0)] * tile.rank
            (made,) = g.e.op("alloc", valid, {"dtype": tile.dtype}, hint="out")
            part = g.e.tile("load", [tensors[id(tile)], *zeros, *valid], extents=valid)
            g.e.op("store", [part.var, made, *zeros])
            smaller[id(tile)] = made
        values = self._all(leaves, smaller)
        self._agree(tuple(v.type for v in values), structure, node)
        g.e.append(Return(values, g.loc(node)))
        g.e.pop(block)
        g.e.append(If(clipped, tuple(block), (), g.loc(node)))
        return tensors

    # -- valid extents ------------------------------------------------------------------------------------------

    def complete(self, tile: Tile) -> bool:
        """Whether a tile is certainly valid in its whole declared shape."""
        return tile.generated or self.complete_var(tile.var)

    def complete_var(self, var: Var) -> bool:
        return self._complete(var, 40, {})

    def _complete(self, var: Operand, depth: int, known: dict[str, bool]) -> bool:
        """`known`: what was found out of the variables met before; a tile may be an operand many times."""
        op = self.g.e.definitions.get(var.name) if isinstance(var, Var) else None
        if op is None or depth == 0:
            return False
        found = known.get(op.results[0].name)
        if found is None:
            found = known[op.results[0].name] = self._gives_complete(op, depth, known)
        return found

    def _gives_complete(self, op: Op, depth: int, known: dict[str, bool]) -> bool:
        if op.op == "load":
            return op.attr("pad") is True or self._whole_load(op)
        if op.op in ("full", "arange", "rand", "randn"):
            return True
        if op.op == "tile_slice":
            return self._complete(op.args[0], depth - 1, known) and self._inside(op)
        if op.op in _KEEP or is_elementwise(op.op, len(op.args)):
            return all(self._complete(a, depth - 1, known) for a in op.args if hasattr(a.type, "rank"))
        return False

    def _inside(self, op: Op) -> bool:
        """Whether a part of a tile ends within its declared extents; the place in a dropped axis is always checked."""
        source = op.args[0]
        assert isinstance(source, Var) and isinstance(source.type, TileType)
        rank = source.type.rank
        drop = op.attr("drop") or ()
        assert isinstance(drop, tuple)
        extents = self.g.e.extents_of(source)
        places = zip(op.args[1 : 1 + rank], op.args[1 + rank :], extents or (), strict=False)
        return extents is not None and all(
            axis in drop or self._ends_within(start, extent, whole)
            for axis, (start, extent, whole) in enumerate(places)
        )

    def _ends_within(self, start: Operand, extent: Operand, whole: Operand) -> bool:
        """Whether `start + extent` is certainly at most `whole`, or `extent` 0."""
        e = self.g.e
        made = e.maker(extent.name) if isinstance(extent, Var) else None
        if made is not None and made.op == "max" and made.args[1] == index(0):
            extent = made.args[0]
        rest = e.known_difference(whole, start, extent)
        return rest is not None and rest >= 0

    def _whole_load(self, op: Op) -> bool:
        """A load of all of a tensor whose extents are its own."""
        tensor = op.args[0]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        rank = tensor.type.rank
        extents = self.g.e.extents_of(tensor)
        offsets, shape = op.args[1 : 1 + rank], op.args[1 + rank : 1 + 2 * rank]
        return all(isinstance(o, Const) and o.value == 0 for o in offsets) and (
            extents is not None and all(a == b for a, b in zip(extents, shape, strict=True))
        )


def _keeps(number: Scalar, dtype: DType) -> bool:
    """Whether a number may be returned as one of `dtype`: literals round as where they meet it in an operation."""
    if number.dtype.kind == "b" or dtype.kind == "b":
        return False
    if number.weak and isinstance(number.operand, Const):
        value = number.operand.value
        return dtype.is_float or (not number.dtype.is_float and constant(value, dtype).value == value)
    return number.dtype.is_float == dtype.is_float and promote(number.dtype, dtype) == dtype


def _strong(structure: Any) -> Any:
    """A structure without saying which of its numbers are weak."""
    if isinstance(structure, Leaf):
        return Leaf(structure.number)
    if isinstance(structure, dict):
        return {k: _strong(v) for k, v in structure.items()}
    if isinstance(structure, tuple) and hasattr(structure, "_make"):
        return type(structure)(*map(_strong, structure))
    return type(structure)(map(_strong, structure)) if isinstance(structure, (tuple, list)) else structure


def _joined(a: Type, b: Type) -> Type | None:
    """The type of a result that two returns give; an extent is a constant when it is the same one in both."""
    if a == b:
        return a
    if isinstance(a, TensorType) and isinstance(b, TensorType) and (a.dtype, a.rank) == (b.dtype, b.rank):
        return TensorType(a.dtype, tuple(m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)))
    return None


def _text(types: tuple[Type, ...]) -> str:
    return ", ".join(map(str, types)) if types else "nothing"

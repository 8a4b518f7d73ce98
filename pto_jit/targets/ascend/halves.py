# SPDX-License-Identifier: MIT
"""Whether the two vector cores of a group can take half of the rows each.

They can when all tiles of the vector cores that have several rows have the same rows, and nothing looks across them: a
running softmax, an epilogue.  Then each core loads, computes and stores its rows of every tile, and of a slot.
"""

from __future__ import annotations

from collections.abc import Container

from pto_jit.ir.nodes import Func, Op, Operand, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import statements
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes
from pto_jit.lower.wholes.lines import STORES
from pto_jit.targets.cuda.nests import touches_tiles


def can_halve(func: Func, fetched: Container[str]) -> bool:
    """fetched: tiles that only the cube core has."""
    rows: set[tuple[Operand, Operand]] = set()  # where rows begin, and how many: of what is loaded and multiplied
    generated = {s.results[0].name for s in statements(func.body) if isinstance(s, Op) and s.op == "arange"}
    begins: dict[str, tuple[Operand, Operand]] = {}
    turned: set[str] = set()  # rows of a tile of the vector cores as columns
    for op in statements(func.body):
        if not isinstance(op, Op) or not touches_tiles(op):
            continue
        name = op.results[0].name if op.results else ""
        if op.op == "load":
            rank = op.args[0].type.rank  # type: ignore[union-attr]
            if rank < 2:
                if name in fetched:
                    return False
                continue
            begins[name] = op.args[rank - 1], op.args[2 * rank - 1]
            if name not in fetched and _tall(op.results[0]):
                rows.add(begins[name])
        elif name in fetched:  # transposed for a product: its rows were columns
            begins.pop(name, None)
            if op.args[0].name not in fetched:  # type: ignore[union-attr]
                turned.add(name)
        elif op.op == "dot":
            left, right = (a.name for a in op.args[:2])  # type: ignore[union-attr]
            if right in turned:  # each core has half the columns of the product
                return False
            if left in fetched:
                if left not in begins:
                    return False
                rows.add(begins[left])
        elif op.op == "reshape":
            source = op.args[0].name  # type: ignore[union-attr]
            if (_tall(op.args[0]) or _tall(op.results[0])) and source not in generated:
                return False
        elif is_reduction(op):
            rank = op.args[0].type.rank  # type: ignore[union-attr]
            if _tall(op.args[0]) and (not op.attr("keepdims") or set(reduced_axes(op)) != {rank - 1}):
                return False
        elif not is_elementwise(op) and op.op not in ("full", "arange", *STORES):
            return False
    return len(rows) == 1


def _tall(operand: Operand) -> bool:
    """Whether a tile has several rows."""
    return isinstance(operand, Var) and isinstance(operand.type, TileType) and operand.type.rank >= 2 and (
        operand.type.shape[-2] != 1)  # fmt: skip

# SPDX-License-Identifier: MIT
"""Operands of products from transposed tensors (`x @ w.T`), loaded as they lie in memory.

Along the rows of a transposed tensor neighbouring threads would read elements of different rows of memory.  What is
loaded as its transpose comes to shared memory in whole rows, where products read it either way.

Before::

    %w.1 = ttensor_transpose %w {axes=(1, 0)}
    FOR %p:idx, 0:idx, %k:idx, 128:idx
      %b = tload %w.1[%p, %j] [128, 32]
      %acc = tdot %a, %b, %acc

After::

    FOR %p:idx, 0:idx, %k:idx, 128:idx
      %b.turned = tload %w[%j, %p] [32, 128]
      %b = ttranspose %b.turned {axes=(1, 0)}
      %acc = tdot %a, %b, %acc
"""

from __future__ import annotations

from pto_jit.ir.nodes import Block, Func, Op, Stmt, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, block_defs, def_counts, rewrite_block, statements, uses
from pto_jit.lower.names import Taken, unused
from pto_jit.lower.wholes.lines import load_and_transpose
from pto_jit.slotted import replace
from pto_jit.targets.cuda.thin import multiplies_matrices

_EXCHANGED = (1, 0)


def turn_loads(func: Func) -> Func:
    """Load the transposes of what nothing but products of matrices reads, where these lie in rows in memory."""
    if not any(isinstance(s, Op) and s.op == "tensor_transpose" for s in statements(func.body)):
        return func
    turner = _Turner(func)
    return replace(func, body=rewrite_block(func.body, turner.statement))


class _Turner:
    def __init__(self, func: Func) -> None:
        body = list(statements(func.body))
        self.taken = Taken(block_defs(func.body) | {p.name for p in func.params})
        self.counts = def_counts(func.body)
        self.views = {s.results[0].name: s for s in body if isinstance(s, Op) and s.op in TENSOR_VIEWS}
        self.readers: dict[str, list[Stmt]] = {}
        for s in body:
            for v in uses(s):
                self.readers.setdefault(v.name, []).append(s)

    def statement(self, stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Op) or stmt.op != "load" or not self._is_operand(stmt.results[0]):
            return None
        tensor = stmt.args[0]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        if tensor.type.rank != 2 or not self._is_transposed(tensor):
            return None
        maker = self.views[tensor.name]
        made: list[Stmt] = []
        source = maker.args[0]
        if maker.op != "tensor_transpose":
            source = self._fresh(tensor.name, TensorType(tensor.type.dtype, tensor.type.shape[::-1], "strided"))
            made.append(Op("tensor_transpose", (source,), (tensor,), (("axes", _EXCHANGED),), (), stmt.loc))
        return (*made, *load_and_transpose(stmt, source, _EXCHANGED, self._fresh))

    def _fresh(self, name: str, typ: TensorType | TileType) -> Var:
        return Var(unused(f"{name}.turned", self.taken, "."), typ)

    def _is_operand(self, tile: Var) -> bool:
        """Whether products of matrices, and nothing else, read a tile, as one of the two that they multiply."""
        readers = self.readers.get(tile.name, [])
        return self.counts[tile.name] == 1 and bool(readers) and all(
            isinstance(s, Op) and multiplies_matrices(s) and tile not in s.args[2:] for s in readers)  # fmt: skip

    def _is_transposed(self, tensor: Var) -> bool:
        """Whether the last two axes of a tensor are those of another one, exchanged, whose rows lie in rows."""
        exchanged = False
        while tensor.name in self.views and self.counts[tensor.name] == 1:
            maker = self.views[tensor.name]
            if maker.op == "tensor_transpose":
                axes = maker.attr("axes")
                assert isinstance(axes, tuple)
                rank = len(axes)
                if axes[-2:] == (rank - 1, rank - 2):
                    exchanged = not exchanged
                elif axes[-2:] != (rank - 2, rank - 1):
                    return False
            elif maker.op != "view" or set(maker.attr("drop") or ()) & {maker.args[0].type.rank - k for k in (1, 2)}:  # type: ignore
                return False
            source = maker.args[0]
            assert isinstance(source, Var)
            tensor = source
        return exchanged and isinstance(tensor.type, TensorType) and tensor.type.layout != "strided"

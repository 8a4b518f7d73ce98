# SPDX-License-Identifier: MIT
"""Kernels of the cube core: matrix products of tiles that are loaded, added up, and stored.

A tile goes from global memory to L1 (in fractals, a transposed one by reading the rows as columns), slices of its
contraction go on to L0A and L0B, and their products are added up in L0C, which is stored, in 16 bits if that is asked
for.  The tiles of L0 are *compact*: their layout follows the valid extents, which is what the multiplier assumes.
"""

from __future__ import annotations

from pto_jit.dtypes import DType, f16, f32, i8, i32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Const, For, Func, Op, Operand, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import statements
from pto_jit.lower.names import source_name
from pto_jit.slotted import mutable
from pto_jit.targets.ascend.form import Assignment, Branch, Buffer, Instruction, Loop, Require, Tile
from pto_jit.targets.ascend.machine import CAPACITY, Space, element_type
from pto_jit.targets.ascend.refusals import too_large, unsupported
from pto_jit.targets.ascend.sizes import least, text, total
from pto_jit.targets.ascend.values import Expr, Size
from pto_jit.targets.ascend.writer import KernelWriter
from pto_jit.targets.cuda.facts import Facts
from pto_jit.targets.source.text import words_of

_INPUTS = frozenset(["f16", "bf16", "f32", "i8"])
_STRIDE = 65535
"""The most elements between two rows that are read in fractals."""


@mutable(eq=False)
class Matrix:
    """A loaded tile in L1: `turned` when its rows were read as columns."""

    name: str
    dtype: DType
    capacity: tuple[int, int]
    valid: tuple[Size, Size]
    turned: bool
    buffer: Buffer


Doubt = tuple[int, str]
"""Whether there is a product in a sum: for sure (0), if the launch meets a condition (1), or that is not known (2)."""


@mutable(eq=False)
class Sum:
    """Products added up in L0C; `empty`: the C++ variable that says whether nothing was added yet (None: the first
    product is known where it is written); begun: how many loops and branches were around where it was made zeros, and
    doubt: whether it might be that nothing was added since then."""

    name: str
    dtype: DType
    capacity: tuple[int, int]
    valid: tuple[Size, Size] | None
    buffer: Buffer
    empty: str | None
    begun: tuple[int, int] = (0, 0)
    doubt: Doubt = (0, "")


class CubeWriter(KernelWriter):
    """Writes a kernel of matrix products."""

    core = "cube"

    def __init__(self, func: Func, facts: Facts, sizes: dict[str, int]) -> None:
        super().__init__(func, facts, sizes)
        self.matrices: dict[str, Matrix] = {}
        self.sums: dict[str, Sum] = {}
        ops = [s for s in statements(func.body) if isinstance(s, Op)]
        self.turned = {s.args[0].name for s in ops if s.op == "transpose" and isinstance(s.args[0], Var)}
        straight = {a.name for s in ops if s.op == "dot" for a in s.args if isinstance(a, Var)}
        both = self.turned & straight
        if both:
            raise unsupported(
                f"a product of `{min(both)}` and of its transpose", func.loc, "make it twice, once for each"
            )

    def tile_operation(self, op: Op) -> None:
        match op.op:
            case "load":
                self.load(op)
            case "transpose" if op.args[0].name in self.matrices:  # type: ignore[union-attr]
                if op.attr("axes") != (1, 0):
                    raise unsupported("this transpose of an operand of a product", op.loc, "exchange the last two axes")
                source = self.matrices[op.args[0].name]  # type: ignore[union-attr]
                self.matrices[op.results[0].name] = source
            case "full":
                self.full(op)
            case "dot":
                self.dot(op)
            case "cast" | "copy" if op.args[0].name in self.sums:  # type: ignore[union-attr]
                source = self.sums[op.args[0].name]  # type: ignore[union-attr]
                if self.sums.setdefault(op.results[0].name, source) is not source:
                    raise unsupported(f"a product that `{op.results[0].name}` is assigned, which holds another", op.loc,
                                      "multiply in each branch, or store the products one by one")  # fmt: skip
            case "store" | "atomic_add":
                self.store(op)
            case _:
                raise unsupported(
                    f"`{op.op}` of tiles between or before matrix products", op.loc,
                    "use the result only after the last product, or store it and load it in another loop",
                )  # fmt: skip

    # -- operands -------------------------------------------------------------------------------------------------

    def load(self, op: Op) -> None:
        tensor = self.tensor(op.args[0])
        rank = len(tensor.extents)
        typ = op.results[0].type
        assert isinstance(typ, TileType)
        if tensor.dtype.name not in _INPUTS:
            raise unsupported(f"matrix products of {tensor.dtype}", op.loc, "use f16, bf16, f32 or i8")
        offsets, extents = op.args[1 : 1 + rank], op.args[1 + rank : 1 + 2 * rank]
        if rank < 2 or op.attr("pad"):
            raise unsupported(
                "this load of an operand of a product", op.loc, "load a tile of two axes, without a pad value"
            )
        for offset in offsets:
            self.not_negative(offset, op.loc)
        for axis in range(rank - 2):
            constant = isinstance(extents[axis], Const) and extents[axis].value == 1  # type: ignore[union-attr]
            if not constant:
                raise unsupported("products of more than two axes", op.loc, "take one matrix at a time")
            if not self.is_inside(tensor, axis, offsets[axis]):
                self.nodes.append(Require(self.in_front(tensor, axis, offsets[axis]), op.loc))
        rows = self.loaded(tensor, rank - 2, offsets[-2], self.size(extents[-2]), op.loc)
        columns = self.loaded(tensor, rank - 1, offsets[-1], self.size(extents[-1]), op.loc)
        stride, transposed = tensor.strides[-2], False
        if tensor.strides[-1] != 1:  # a transposed view: its columns are contiguous
            if not self.launch_time(stride):
                raise unsupported(
                    "a tensor neither of whose last axes is contiguous", op.loc, "pass a contiguous array"
                )
            if stride != 1:
                self.check(f"{text(stride)} == 1", "rows or columns of operands of products lie in one piece")
            stride, transposed = tensor.strides[-1], True
        capacity = (self.fractals(extents[-2], tensor.dtype, op.loc), self.fractals(extents[-1], tensor.dtype, op.loc))
        turned = op.results[0].name in self.turned
        if turned:
            transposed, rows, columns, capacity = not transposed, columns, rows, (capacity[1], capacity[0])
        self.limit_stride(stride, op.loc)
        size = capacity[0] * capacity[1] * tensor.dtype.bytes
        matrix = Matrix(op.results[0].name, tensor.dtype, capacity, (rows, columns), transposed, self.memory(
            op.results[0].name, "Mat", size))  # fmt: skip
        height, width = (
            self.named(rows, f"{matrix.name}_rows", op.loc),
            self.named(columns, f"{matrix.name}_columns", op.loc),
        )
        layout = "zn" if transposed else "nz"
        tile = Tile(
            self.names.fresh(matrix.name),
            matrix.dtype,
            capacity[0],
            capacity[1],
            (height, width),
            layout,
            matrix.buffer,
        )
        self.declare(tile, op.loc)
        pointer = self.pointer(tensor, offsets, op.loc)
        memory = self.rectangle(tensor, f"{tensor.root}_here", pointer, (height, width), stride, op.loc,
                                transposed)  # fmt: skip
        self.nodes.append(Instruction("TLOAD_L1", (tile, memory), op.loc))
        self.scopes[-1][f"@{id(matrix.buffer)}"] = tile  # type: ignore[assignment]
        self.matrices[op.results[0].name] = matrix

    def fractals(self, extent: Operand, dtype: DType, loc: Loc) -> int:
        """An extent in whole fractals, whichever way round they lie."""
        unit = 32 if dtype.bytes == 1 else 16
        return -(-self.bound(extent, loc) // unit) * unit

    def limit_stride(self, stride: Size, loc: Loc) -> None:
        if isinstance(stride, int):
            if stride > _STRIDE:
                raise unsupported(f"rows that begin {stride} elements apart as operands of a product", loc,
                                  f"use tensors with rows of at most {_STRIDE} elements")  # fmt: skip
        else:
            self.check(
                f"{text(stride)} <= {_STRIDE}", f"rows of operands of products are at most {_STRIDE} elements apart"
            )

    def memory(self, name: str, space: Space, size: int) -> Buffer:
        buffer = Buffer(name, space, -(-size // 512) * 512)
        return buffer

    # -- products -------------------------------------------------------------------------------------------------

    def full(self, op: Op) -> None:
        value = op.args[0]
        typ = op.results[0].type
        assert isinstance(typ, TileType)
        if typ.dtype.name not in ("f32", "i32", "f16", "bf16"):
            raise unsupported(f"matrix products of {typ.dtype}", op.loc, "use f16, bf16, f32 or i8")
        if not (isinstance(value, Const) and float(value.value) == 0.0) or typ.dtype not in (f32, i32):
            raise unsupported("a sum of products that does not start from zeros of f32 or i32", op.loc,
                              "start from pl.zeros(..., pl.f32), and add the rest to the result")  # fmt: skip
        unit = 32 if typ.dtype == i32 else 16  # products of i8, whose tiles have whole fractals, are added up in i32
        rows, columns = (-(-self.bound(e, op.loc) // unit) * unit for e in op.args[-2:])
        known = self.sums.get(op.results[0].name)
        if known is None:
            known = self.new_sum(op.results[0].name, typ.dtype, (rows, columns))
            known.empty = self.declare_truth(known, op.loc)
        else:
            if known.empty is None or known.capacity != (rows, columns):
                raise unsupported(f"a product that `{op.results[0].name}` is assigned, and zeros after it", op.loc,
                                  "give each a name of its own")  # fmt: skip
            self.nodes.append(Assignment("", known.empty, "true", op.loc))
        known.begun, known.doubt = (len(self.loops), self.branches), (2, "")

    def declare_truth(self, out: Sum, loc: Loc) -> str:
        """A variable that says that nothing was added to a sum yet."""
        name = self.names.fresh(f"{out.name}_is_zero")
        self.nodes.append(Assignment("bool", name, "true", loc, constant=False))
        return name

    def new_sum(self, name: str, dtype: DType, capacity: tuple[int, int]) -> Sum:
        out = Sum(
            self.names.fresh(name), dtype, capacity, None, self.memory(name, "Acc", capacity[0] * capacity[1] * 4), None
        )
        self.sums[name] = out
        return out

    def dot(self, op: Op) -> None:
        var = op.results[0]
        left, right = (self.matrices.get(a.name) for a in op.args[:2])  # type: ignore[union-attr]
        if left is None or right is None:
            raise unsupported("a product of tiles that are computed", op.loc,
                              "store the tile into a tensor, and load it in another parallel loop")  # fmt: skip
        dtype = i32 if left.dtype.kind == "i" else f32
        capacity = (left.capacity[0], right.capacity[1])
        known = self.sums.get(op.args[2].name) if len(op.args) == 3 else None  # type: ignore[union-attr]
        if len(op.args) == 3 and known is None:
            raise unsupported("a sum of products that starts from a computed tile", op.loc,
                              "start from pl.zeros(..., pl.f32), and add the rest to the result")  # fmt: skip
        alone = known is None
        if known is None:  # a variable that is assigned several times has one place
            known = self.sums.get(var.name) if var.name in self.facts.mutable else None
            known = known or self.new_sum(var.name, dtype, capacity)
        if known.capacity != capacity or known.dtype != dtype:
            raise unsupported("products of different shapes or dtypes in one sum", op.loc, "add them up separately")
        self.sums[var.name] = known
        self.same_contraction(left, right, op.loc)
        valid = (left.valid[0], right.valid[1])
        for one, other in zip(known.valid or valid, valid, strict=True):
            self.same_extent(one, other, op.loc)
        known.valid = valid
        known.doubt = min(known.doubt, self._doubt(known))
        self.multiply(known, left, right, alone, op.loc)

    def _doubt(self, out: Sum) -> Doubt:
        """Whether what is written now is done whenever a sum was made zeros."""
        loops, branches = out.begun
        if self.branches != branches:
            return 2, ""
        vars_ = {n.var for n in self.loops[loops:]}
        doubts = [self._may_not_run(loop) for name, loop in self.loop_of.items() if self.names.of(name) in vars_]
        worst = max(doubts, default=(0, ""))
        if worst[0] != 1:
            return worst
        some = " * ".join(f"({n.start} < {n.stop})" for n in self.loops[:loops] if self._is_told(n)) or "1"
        return 1, f"{some} <= {' * '.join(condition for kind, condition in doubts if kind)}"

    def _may_not_run(self, loop: For) -> Doubt:
        start, stop = self.size(loop.start), self.size(loop.stop)
        if self._is_above(loop.stop, loop.start):
            return 0, ""
        known = self.launch_time(start) and self.launch_time(stop)
        return (1, f"({text(start)} < {text(stop)})") if known else (2, "")

    def _is_told(self, loop: Loop) -> bool:
        """Whether the launch knows the bounds of a loop."""
        given = {p.name for p in self.parameters}
        return {w for w in words_of(f"{loop.start} {loop.stop}") if not w.isdigit()} <= given

    def _is_above(self, stop: Operand, start: Operand) -> bool:
        """Whether a loop is known to run."""
        if isinstance(start, Const) and self._least(stop) > int(start.value):
            return True
        op = self.defined.get(stop.name) if isinstance(stop, Var) else None
        if op is not None and op.op == "min":
            return all(self._is_above(a, start) for a in op.args)
        if op is not None and op.op == "add" and op.args[0] == start:
            return self._least(op.args[1]) > 0
        around = self.loop_of.get(start.name) if isinstance(start, Var) else None
        return around is not None and around.stop == stop and self._least(around.step) > 0

    def _least(self, operand: Operand) -> int:
        """A number that an integer is not below; -1 where that is not known."""
        if isinstance(operand, Const):
            return int(operand.value)
        op = self.defined.get(operand.name)
        if op is not None and op.op == "add" and operand.name not in self.facts.mutable:
            a, b = (self._least(x) for x in op.args)
            return a + b if a >= 0 and b >= 0 else -1
        return 0 if self.facts.is_natural(operand) else -1

    def same_contraction(self, left: Matrix, right: Matrix, loc: Loc) -> None:
        a, b = left.valid[1], right.valid[0]
        if a == b:
            return
        one, other = self.clips.get(text(a)), self.clips.get(text(b))
        if one and other and (one[0], one[2]) == (other[0], other[2]):
            a, b = one[1], other[1]
        if isinstance(a, int) and isinstance(b, int) and a != b:
            raise unsupported(f"a product over {a} and {b} elements", loc, "load tiles of one extent")
        if self.launch_time(a) and self.launch_time(b):
            self.check(f"{text(a)} == {text(b)}", "the contracted extents of a product are equal")
        elif self.visible(a) and self.visible(b):
            self.nodes.append(Require(f"{text(a)} == {text(b)}", loc))
        else:
            raise unsupported("a product whose contracted extents are not known to be equal", loc,
                              "take the extents from the same tensor")  # fmt: skip

    def same_extent(self, a: Size, b: Size, loc: Loc) -> None:
        """The products of a sum have one shape: the launch knows it, or else the core."""
        if a == b:
            return
        if self.launch_time(a) and self.launch_time(b):
            self.check(f"{text(a)} == {text(b)}", "the products of a sum have one shape")
        else:
            self.nodes.append(Require(f"{text(a)} == {text(b)}", loc))

    def multiply(self, out: Sum, left: Matrix, right: Matrix, alone: bool, loc: Loc) -> None:
        """Slice after slice of the contraction through L0A and L0B.  alone: there is nothing to add to."""
        depth = left.capacity[1]
        slice_ = self.slice_of(left, right, loc)
        count = left.valid[1]
        first = None if alone else out.empty
        if alone and slice_ < depth:
            first = self.declare_truth(out, loc)
        if alone and out.empty is not None:
            self.nodes.append(Assignment("", out.empty, "false", loc))
        if slice_ >= depth:
            self.step(out, left, right, slice_, "0", count, first, alone, loc)
            return
        var = self.names.fresh("k")
        loop = Loop(var, "0", text(count), str(slice_), [], loc=loc)
        self.nodes.append(loop)
        self.loops.append(loop)
        with self.inside(loop.body):
            self.scopes[-1][var] = var
            whole = isinstance(count, int) and count % slice_ == 0
            rest = slice_ if whole else least(slice_, total(count, Expr(var, frozenset([var])), "-"))
            self.step(out, left, right, slice_, var, rest, first, alone, loc)
        self.loops.pop()

    def slice_of(self, left: Matrix, right: Matrix, loc: Loc) -> int:
        """How much of the contraction fits L0A and L0B twice, or at least once."""
        unit = 32 if left.dtype.bytes == 1 else 16
        widest = max(left.capacity[0], right.capacity[1]) * left.dtype.bytes
        for copies in (2, 1):
            fits = CAPACITY["Left"] // copies // widest // unit * unit
            if fits:
                return min(left.capacity[1], fits)
        raise too_large(
            f"tiles of {left.capacity[0]} x {right.capacity[1]} do not fit L0A and L0B", loc, "use smaller tiles"
        )

    def step(
        self, out: Sum, left: Matrix, right: Matrix, depth: int, at: str, count: Size, empty: str | None, alone: bool,
        loc: Loc,
    ) -> None:  # fmt: skip
        """One slice: `depth` is what there is memory for, `count` what is valid; empty: what says that there is nothing
        to add to yet, alone: there is not."""
        k = self.named(count, "k_count", loc)
        rows = self.named(left.valid[0], f"{left.name}_rows", loc)
        columns = self.named(right.valid[1], f"{right.name}_columns", loc)
        size = left.dtype.bytes
        a = Tile(self.names.fresh(f"{left.name}_left"), left.dtype, left.capacity[0], depth, (rows, k), "left",
                 self.memory(left.name, "Left", left.capacity[0] * depth * size), aligned=is_aligned(left))  # fmt: skip
        b = Tile(self.names.fresh(f"{right.name}_right"), right.dtype, depth, right.capacity[1], (k, columns), "right",
                 self.memory(right.name, "Right", depth * right.capacity[1] * size))  # fmt: skip
        self.declare(a, loc)
        self.declare(b, loc)
        self.nodes.append(Instruction("TEXTRACT_LEFT", (a, self.in_l1(left), "0", at), loc))
        self.nodes.append(Instruction("TEXTRACT_RIGHT", (b, self.in_l1(right), at, "0"), loc))
        c = self.sum_tile(out, out.dtype, (rows, columns), loc)
        first, later = Instruction("TMATMUL", (c, a, b), loc), Instruction("TMATMUL_ACC", (c, c, a, b), loc)
        if empty is None:
            self.nodes.append(first if alone else later)
            return
        self.nodes.append(Branch(empty, [first], [later], loc))
        self.nodes.append(Assignment("", empty, "false", loc))

    def in_l1(self, matrix: Matrix) -> Tile:
        for scope in self.scopes:
            found = scope.get(f"@{id(matrix.buffer)}")
            if isinstance(found, Tile):
                return found
        raise unsupported(f"an operand `{source_name(matrix.name)}` that is loaded in a branch",
                          self.func.loc, "load it before")  # fmt: skip

    def sum_tile(self, out: Sum, dtype: DType, valid: tuple[int | str, int | str], loc: Loc) -> Tile:
        tile = Tile(self.names.fresh(out.name), dtype, *out.capacity, valid, "acc", out.buffer)
        self.declare(tile, loc)
        return tile

    # -- results --------------------------------------------------------------------------------------------------

    def store(self, op: Op) -> None:
        out = self.sums.get(op.args[0].name)  # type: ignore[union-attr]
        if out is None or out.valid is None:
            raise unsupported("storing a tile that is not a sum of products in a kernel with products", op.loc,
                              "store it in another loop")  # fmt: skip
        tensor = self.tensor(op.args[1])
        rank = len(tensor.extents)
        offsets = op.args[2:]
        if rank < 2 or tensor.strides[-1] != 1:
            raise unsupported("this store of a product", op.loc, "store into contiguous rows")
        if (out.dtype, tensor.dtype.name) not in ((f32, "f32"), (f32, "f16"), (f32, "bf16"), (i32, "i32")):
            raise unsupported(
                f"storing a product of {out.dtype} as {tensor.dtype}", op.loc, "store f32, f16, bf16 or i32"
            )
        for offset in offsets:
            self.not_negative(offset, op.loc)
        if not all(map(self.visible, out.valid)):
            raise unsupported("a product whose extents are known in a loop only", op.loc, "give tiles constant extents")
        valid, some = self.stored(out.valid, tensor, offsets, rank - 2)
        if valid is None:
            return
        self.make_sure_of(out, op.loc)
        with self.where(some, op.loc):
            rows, columns = (self.named(size, f"{out.name}_{of}", op.loc)
                             for size, of in zip(valid, ("rows", "columns"), strict=True))  # fmt: skip
            pointer = self.pointer(tensor, offsets, op.loc)
            memory = self.rectangle(tensor, f"{tensor.root}_here", pointer, (rows, columns), tensor.strides[-2], op.loc)
            tile = self.sum_tile(out, out.dtype, (rows, columns), op.loc)
            how = "TSTORE_ACC" if op.op == "store" else "TSTORE_ACC_ADD"
            self.nodes.append(Instruction(how, (memory, tile), op.loc))


    def make_sure_of(self, out: Sum, loc: Loc) -> None:
        """That a sum holds something: products, as the launch finds, or zeros."""
        kind, condition = out.doubt
        if kind == 1:
            self.check(condition, "no sum of products is without products")
        elif kind == 2:
            self.zeros(out, loc)

    def zeros(self, out: Sum, loc: Loc) -> None:
        """A sum to which nothing was added as a product of zeros, which L1 can be filled with."""
        assert out.empty is not None and out.valid is not None
        dtype, depth = (i8, 32) if out.dtype == i32 else (f16, 16)
        rows, columns = out.capacity
        node = Branch(out.empty, [], [], loc)
        self.nodes.append(node)
        with self.inside(node.then):
            matrices: list[Matrix] = []
            for shape in ((rows, depth), (depth, columns)):
                matrix = Matrix(f"{out.name}_zeros", dtype, shape, shape, False,
                                self.memory("zeros", "Mat", shape[0] * shape[1] * dtype.bytes))  # fmt: skip
                tile = Tile(self.names.fresh(matrix.name), dtype, *shape, shape, "nz", matrix.buffer)
                self.declare(tile, loc)
                self.nodes.append(Instruction("TEXPANDS_L1", (tile, f"({element_type(dtype)})0"), loc))
                self.scopes[-1][f"@{id(matrix.buffer)}"] = tile  # type: ignore[assignment]
                matrices.append(matrix)
            left, right = matrices
            left.valid, right.valid = (out.valid[0], depth), (depth, out.valid[1])
            self.step(out, left, right, depth, "0", depth, None, True, loc)


def is_aligned(left: Matrix) -> bool:
    """Whether rows of a left operand have whole pairs of blocks in L0A: those of f32 that were columns, which come 16
    elements at a time, where the multiplier expects blocks of 8 unless it is told."""
    return left.turned and left.dtype == f32


def has_products(func: Func) -> bool:
    return any(isinstance(s, Op) and s.op == "dot" for s in statements(func.body))

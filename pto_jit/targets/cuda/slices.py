# SPDX-License-Identifier: MIT
"""Products of tiles in kernels whose operands are larger than shared memory should hold, in slices of the contraction.

Before::

    %a = tload %x[%i, 0] [16, 512]
    %b = tload %w[0, 0] [512, 256]
    %t = tdot %a, %b

After::

    %t = tfull 0.0, [16, 256]
    FOR %p, 0, 512, 32
      %a.slice = tload %x[%i, %p] [16, 32]
      %b.slice = tload %w[%p, 0] [32, 256]
      %t = tdot %a.slice, %b.slice, %t
    ENDFOR
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from pto_jit.dtypes import DType, i64
from pto_jit.ir.nodes import Attr, Block, Const, For, If, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, statements, use_counts
from pto_jit.slotted import replace
from pto_jit.targets.cuda.loops import written_tensor

LARGE = 16 * 1024
"""Bytes of a right operand that is not read as a whole."""
STAGE = 64 * 1024  # bytes of a slice of it at most, while slices have more than `LEAST` of the contraction
LEAST = 16
_INDEX = ScalarType(i64)
_ZERO = Const(0, _INDEX)


def slice_of(dtype: DType) -> int:
    """How much of a contraction is staged at a time: 128 bytes of a row."""
    return max(16, min(64, 128 // dtype.bytes))


def views_of(body: Block) -> dict[str, str]:
    """What each view of a tensor is a view of."""
    return {s.results[0].name: s.args[0].name for s in statements(body)
            if isinstance(s, Op) and s.op in TENSOR_VIEWS and isinstance(s.args[0], Var)}  # fmt: skip


def reads_of(body: Block) -> Counter[str]:
    """How often each name is read."""
    return use_counts(body)


class Slices:
    """Kernels whose loops take their products in slices.

    views, reads, dims: of the function, what each view is a view of, how often each name is read, and which numbers are
    extents of tensors; fresh: names a new variable.
    """

    def __init__(
        self, views: dict[str, str], reads: Counter[str], dims: Mapping[str, tuple[Operand, Attr]],
        fresh: Callable[..., Var],
    ) -> None:  # fmt: skip
        self.views, self.reads, self.dims, self.fresh = views, reads, dims, fresh

    def block(self, block: Block) -> Block:
        """Loops that do nothing but accumulate a product take thinner tiles; large operands are read in slices."""
        out: list[Stmt] = []
        for stmt in in_slices(block, self.views, self.reads, self.fresh):
            if isinstance(stmt, For):
                thin = self._thinner(stmt)
                out += thin if thin is not None else (replace(stmt, body=self.block(stmt.body)),)
            elif isinstance(stmt, If):
                out.append(replace(stmt, then=self.block(stmt.then), orelse=self.block(stmt.orelse)))
            else:
                out.append(stmt)
        return tuple(out)

    def _thinner(self, loop: For) -> list[Stmt] | None:
        dots = [s for s in loop.body if isinstance(s, Op) and s.op == "dot"]
        loads = {s.results[0].name: s for s in loop.body if isinstance(s, Op) and s.op == "load" and not s.attr("pad")}
        if loop.kind != "sequential" or len(loop.body) != 3 or len(dots) != 1 or len(loads) != 2:
            return None
        dot = dots[0]
        if len(dot.args) != 3 or dot.results[0] != dot.args[2] or not isinstance(loop.step, Const):
            return None
        left, right = (loads.get(a.name) if isinstance(a, Var) else None for a in dot.args[:2])
        if left is None or right is None or left.results[0].type.rank != 2 or right.results[0].type.rank != 2:  # type: ignore
            return None
        whole = loop.step.value
        thin = slice_of(left.results[0].type.dtype)  # type: ignore[union-attr]
        at = (left.args[2], right.args[1])
        extents = (left.args[4], right.args[3])
        others = (*left.args[1:2], *right.args[2:3])
        if at != (loop.var, loop.var) or any(e != Const(whole, _INDEX) for e in extents) or loop.var in others:
            return None
        if whole <= thin or int(whole) % thin:
            return None
        size = Const(thin, _INDEX)
        body: list[Stmt] = []
        for s in loop.body:
            if s is left:
                var = _resized(left.results[0], (None, thin))
                body.append(replace(left, results=(var,), args=(*left.args[:4], size)))
            elif s is right:
                var = _resized(right.results[0], (thin, None))
                body.append(replace(right, results=(var,), args=(*right.args[:3], size, right.args[4])))
            else:
                body.append(replace(dot, args=(_resized(dot.args[0], (None, thin)), _resized(dot.args[1], (thin, None)),
                                               dot.args[2])))  # type: ignore[arg-type] # fmt: skip
        before, stop = self._rounded_stop(loop, left)
        return [*before, replace(loop, stop=stop, step=size, body=tuple(body))]

    def _rounded_stop(self, loop: For, left: Op) -> tuple[list[Stmt], Operand]:
        """Where the thin loop ends: the last thick tile may go on past the loop's end, unless the tensor ends there."""
        stop, start = loop.stop, loop.start
        if isinstance(stop, Var) and self.dims.get(stop.name) == (left.args[0], 1):
            return [], stop
        if isinstance(stop, Const) and isinstance(start, Const) and isinstance(loop.step, Const):
            step = int(loop.step.value)
            count = max(0, -(-(int(stop.value) - int(start.value)) // step))
            return [], Const(int(start.value) + count * step, _INDEX)
        out: list[Stmt] = []

        def compute(op: str, *args: Operand) -> Var:
            result = self.fresh(f"{loop.var.name}_{op}")
            out.append(Op(op, (result,), args, (), (), loop.loc))
            return result

        assert isinstance(loop.step, Const)
        extent = compute("sub", stop, start)
        padded = compute("add", extent, Const(int(loop.step.value) - 1, _INDEX))
        rounded = compute("mul", compute("floordiv", padded, loop.step), loop.step)
        return out, compute("add", start, rounded)


def in_slices(block: Block, views: dict[str, str], reads: Counter[str], fresh: Callable[..., Var]) -> Block:
    """A block of a kernel whose products have no large operands that are loaded for them, and written by nobody
    between the load and the product.  views, reads: those of the function.
    """
    out: list[Stmt] = []
    loads: dict[str, Op] = {}
    done: set[str] = set()
    for stmt in block:
        if isinstance(stmt, Op) and stmt.op == "load" and not stmt.attr("pad"):
            loads[stmt.results[0].name] = stmt
        elif isinstance(stmt, Op) and stmt.op == "copy" and _name(stmt) in loads:
            loads[stmt.results[0].name] = loads[_name(stmt)]
        elif isinstance(stmt, Op) and stmt.op == "dot":
            pair = [loads.get(a.name) if isinstance(a, Var) else None for a in stmt.args[:2]]
            thin = _thin(*pair) if pair[0] is not None and pair[1] is not None else 0  # type: ignore[arg-type]
            if thin:
                out += _sliced(stmt, pair[0], pair[1], thin, fresh)  # type: ignore[arg-type]
                done |= {a.name for a in stmt.args if isinstance(a, Var)}
                continue
        written = {_root(x, views) for s in statements((stmt,)) if (x := written_tensor(s)) is not None}
        loads = {n: op for n, op in loads.items() if _root(op.args[0], views) not in written}
        out.append(stmt)
    if not done:
        return block
    here = reads_of(block)
    return _without_unread(tuple(out), {n for n in (*done, *here) if here[n] == reads[n]})


def _name(op: Op) -> str:
    return op.args[0].name if isinstance(op.args[0], Var) else ""


def _thin(left: Op, right: Op) -> int:
    """The slice of a contraction that is read at a time; 0 where both operands are read as wholes."""
    kinds = [load.results[0].type for load in (left, right)]
    if not all(isinstance(k, TileType) and k.rank == 2 for k in kinds):
        return 0
    rows, depth = kinds[0].shape  # type: ignore[union-attr]
    inner, columns = kinds[1].shape  # type: ignore[union-attr]
    size = kinds[1].dtype.bytes  # type: ignore[union-attr]
    if depth is None or depth != inner or columns is None or 1 in (rows, columns) or depth * columns * size <= LARGE:
        return 0
    if not (_whole(left, 1, depth) and _whole(right, 0, depth)):
        return 0
    thin = slice_of(kinds[1].dtype)  # type: ignore[union-attr]
    while thin > LEAST and (thin * columns * size > STAGE or depth % thin):
        thin //= 2
    return thin if depth > thin and depth % thin == 0 else 0


def _whole(load: Op, axis: int, extent: int) -> bool:
    """Whether a load has all of an axis of its tensor."""
    tensor = load.args[0].type
    return isinstance(tensor, TensorType) and tensor.shape[axis] == extent and load.args[1 + axis] == _ZERO


def _sliced(dot: Op, left: Op, right: Op, thin: int, fresh: Callable[..., Var]) -> list[Stmt]:
    result, loc, size = dot.results[0], dot.loc, Const(thin, _INDEX)
    assert isinstance(result.type, TileType)
    depth = right.results[0].type.shape[0]  # type: ignore[union-attr]
    p = fresh("p")
    zero = Const(0.0 if result.type.dtype.is_float else 0, ScalarType(result.type.dtype))
    parts: list[Op] = []
    for load, axis in ((left, 1), (right, 0)):
        kind = load.results[0].type
        assert isinstance(kind, TileType)
        shape = tuple(thin if k == axis else n for k, n in enumerate(kind.shape))
        part = fresh(f"{load.results[0].name}.slice", TileType(kind.dtype, shape))
        args = list(load.args)
        args[1 + axis], args[3 + axis] = p, size
        parts.append(replace(load, results=(part,), args=tuple(args)))
    product = replace(dot, args=(parts[0].results[0], parts[1].results[0], result))
    loop = For("sequential", p, _ZERO, Const(depth, _INDEX), size, (*parts, product), loc=loc)  # type: ignore[arg-type]
    if len(dot.args) == 3:  # there is something to add to
        return [*([] if dot.args[2] == result else [Op("copy", (result,), (dot.args[2],), (), (), loc)]), loop]
    return [Op("full", (result,), (zero, left.args[3], right.args[4]), (), (), loc), loop]


def _without_unread(block: Block, names: set[str]) -> Block:
    """Without loads and copies of these names that nothing reads."""
    while True:
        read = reads_of(block)
        idle = [s for s in block if isinstance(s, Op) and s.op in ("load", "copy") and s.results[0].name in names
                and not read[s.results[0].name]]  # fmt: skip
        if not idle:
            return block
        block = tuple(s for s in block if not any(s is i for i in idle))


def _root(tensor: object, views: dict[str, str]) -> str:
    name = tensor.name if isinstance(tensor, Var) else ""
    while name in views:
        name = views[name]
    return name


def _resized(var: Operand, shape: tuple[int | None, ...]) -> Var:
    """A tile variable with some extents replaced."""
    assert isinstance(var, Var) and isinstance(var.type, TileType)
    return Var(var.name, TileType(var.type.dtype, tuple(n or m for n, m in zip(shape, var.type.shape, strict=True))))

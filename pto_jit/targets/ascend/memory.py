# SPDX-License-Identifier: MIT
"""Rectangles of global memory: where a tile lies in a tensor, and how much of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pto_jit.dtypes import u8
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Const, For, Op, Operand, Var
from pto_jit.targets.ascend.form import Branch, Declaration, Global, Require
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.scopes import Scopes
from pto_jit.targets.ascend.sizes import Tensor, in_steps, least, names, product, text, total
from pto_jit.targets.ascend.values import Expr, Size
from pto_jit.targets.cuda.facts import lost_axes

LOADED = "no tile is without elements"
VIEWED = "rows and planes that are taken are there"


class Memory(Scopes):
    """The part of writing a kernel that knows tensors."""

    def clipped(self, tensor: Tensor, axis: int, offset: Operand, extent: Size) -> Size:
        """How much of an extent, counted from an offset, lies inside a tensor."""
        limit = tensor.extents[axis]
        at = self.size(offset)
        if at == 0 and extent == limit:
            return extent
        if isinstance(limit, int) and isinstance(extent, int):
            last = self._last(offset)
            if last is not None and last + extent <= limit:
                return extent
        below = self._below(offset, limit)
        if extent == 1 and below:
            return 1
        out = least(extent, total(limit, at, "-"))
        if isinstance(out, Expr):
            self.clips[out.text] = (extent, limit, at)
            self.begins[out.text] = (offset, limit)
        return out

    def loaded(self, tensor: Tensor, axis: int, offset: Operand, extent: Size, loc: Loc) -> Size:
        """How much of an extent is loaded, which is something: instructions do not take tiles without elements."""
        out = self.clipped(tensor, axis, offset, extent)
        if isinstance(out, int) and out < 1:
            raise unsupported("a load of a tile without elements", loc, "leave it out, or load it with a pad value")
        self.is_something(out if out != extent else 1, loc)
        return out

    def is_something(self, size: Size, loc: Loc) -> None:
        """Make sure that something is left of an extent where it was clipped: that is known, or the launch or the core
        finds out.  Of what it was clipped from `bound` takes care."""
        clip = None if isinstance(size, int) else self.begins.get(size.text)
        if clip is None:
            if not self.is_not_empty(size):
                self.make_sure(0, size, loc)
            return
        offset, limit = clip
        if isinstance(offset, Const) and offset.value == 0:
            self.is_something(limit, loc)
        elif not self.begins_inside(offset, limit):
            self.make_sure(self.size(offset), limit, loc)

    def is_not_empty(self, limit: Size) -> bool:
        """Whether an extent is known to be more than 0: a loop runs to it, or the launch or the core has found out."""
        if isinstance(limit, int) or limit.text in self.limited:  # which are not 0, as the launch finds
            return limit != 0
        known = f"0 < {limit.text}"
        return any(known in scope for scope in self.scopes) or any(
            n.stop == limit.text and n.start.isdigit() and n.step.isdigit() for n in self.loops
        )

    def make_sure(self, at: Size, limit: Size, loc: Loc, meaning: str = LOADED) -> None:
        """A place lies inside an extent, or the core stops; the launch tells if it knows both, and what asks for it is
        done in any case."""
        condition = f"{text(at)} < {text(limit)}"
        if any(condition in scope for scope in self.scopes):
            return
        if self.loops or self.branches or not (self.launch_time(at) and self.launch_time(limit)):
            self.scopes[-1][condition] = condition
            self.nodes.append(Require(condition, loc))
        else:
            self.scopes[0][condition] = condition
            self.check(f"{text(total(at, 1))} <= {text(limit)}", meaning)

    def begins_inside(self, offset: Operand, limit: Size) -> bool:
        """Whether an offset is known to lie inside an extent, maybe because the core would have stopped elsewise."""
        condition = self._inside(offset, limit)
        return self._below(offset, limit) or any(condition in scope for scope in self.scopes)

    def _inside(self, offset: Operand, limit: Size) -> str:
        return f"{text(self.size(offset))} < {text(limit)}"

    def part_inside(self, tensor: Tensor, axis: int, offset: Operand, extent: Size) -> tuple[Size, bool]:
        """How much of an extent, counted from an offset that may lie anywhere, is inside a tensor, and whether that is
        more than nothing for sure."""
        limit, at = tensor.extents[axis], self.size(offset)
        last = self._last(offset)
        if isinstance(limit, int) and isinstance(extent, int) and last is not None and last + extent <= limit:
            return extent, True
        sure = isinstance(limit, int) and last is not None and last < limit
        sure |= isinstance(offset, Var) and self.stays_inside(offset, limit)
        return least(extent, total(limit, at, "-")), sure

    def _below(self, offset: Operand, limit: Size) -> bool:
        """Whether an offset lies inside an extent, so that something is left of what begins there.

        The extent of one tensor may be what a loop runs to, and that of another what it indexes; then the launch checks
        that the other one is as large.
        """
        if not isinstance(offset, Var):
            return isinstance(limit, int) and 0 <= offset.value < limit
        if self.stays_inside(offset, limit):
            return True
        for name in sorted(self.facts.limits.get(offset.name, ())):
            bound = self.size(Var(name, offset.type))
            if self.launch_time(bound) and self.launch_time(limit):
                self.check(f"{text(bound)} <= {text(limit)}", "no tensor is shorter than the loop over it")
                return True
        return False

    def is_inside(self, tensor: Tensor, axis: int, offset: Operand, *, computed: bool = True) -> bool:
        """Whether what is at an offset is inside a tensor, for sure or because the launch finds that it is; `computed`:
        also of what is more than a constant behind the variable of a loop."""
        if self.clipped(tensor, axis, offset, 1) == 1:
            return True
        limit, last = tensor.extents[axis], self._at_most(offset, computed)
        if last is None or self.branches or not (self.launch_time(last[0]) and self.launch_time(limit)):
            return False
        first, further, runs = last
        if isinstance(first, int) and isinstance(limit, int):
            return False

        def condition(further: int) -> tuple[str, str]:
            end = text(product(total(first, further + 1), runs))
            return f"{end} <= {text(limit)}", "no tile lies beyond the end of a leading axis"

        known = self.reach.get((first, limit))
        if known is not None and known < further:  # the furthest of them tells of all
            self.checks.remove(condition(known))
        self.reach[first, limit] = max(further, known or 0)
        self.check(*condition(self.reach[first, limit]))
        return True

    def _at_most(self, offset: Operand, computed: bool) -> tuple[Size, int, Size] | None:
        """The largest value of an index: a size, what is added to it, and 0 for a loop that does not run, else 1."""
        if isinstance(offset, Const):
            return 0, int(offset.value), 1
        size = self.size(offset)
        if self.launch_time(size):
            return size, 0, 1
        op, loop = self.defined.get(offset.name), self.loop_of.get(offset.name)
        if op is not None:
            return self._most_of(op, computed)
        if loop is None or not isinstance(loop.start, Const) or not isinstance(loop.step, Const) or loop.step.value < 1:
            return None
        start, step, stop = int(loop.start.value), int(loop.step.value), self.size(loop.stop)
        steps = total(total(stop, start, "-"), 1, "-")
        if step > 1:
            steps = product(Expr(f"({text(steps)}) / {step}", names(stop)), step)
        return steps, start, Expr(f"({text(stop)} > {start})", names(stop))

    def _most_of(self, op: Op, computed: bool) -> tuple[Size, int, Size] | None:
        """The same of what grows with one other index: a sum or product with a number of the launch, a quotient."""
        if op.op not in ("add", "mul", "floordiv"):
            return None
        index, other = op.args if isinstance(op.args[0], Var) else (op.args[1], op.args[0])
        constant = int(other.value) if isinstance(other, Const) else 0
        size = self.size(other)
        before = self._at_most(index, computed)
        if not computed and (op.op != "add" or not isinstance(other, Const)):
            return None
        if before is None or not self.launch_time(size) or (op.op == "floordiv" and (index is other or constant < 1)):
            return None
        first, further, runs = before
        if op.op == "add":
            return (first, further + constant, runs) if constant else (total(first, size), further, runs)
        last = total(first, further)
        if op.op == "mul":
            return (product(last, size), 0, runs) if constant > 0 else None
        return Expr(f"({text(last)}) / {constant}", names(last)), 0, runs

    def stored(
        self, valid: tuple[Size, Size], tensor: Tensor, offsets: Sequence[Operand], row: int
    ) -> tuple[tuple[Size, Size] | None, list[str]]:
        """How many rows and columns of a tile lie inside the tensor that it is stored into, and the conditions for
        anything to; None where nothing does.  row: the axis of the tensor that rows are along."""
        rank = len(tensor.extents)
        some = [self.in_front(tensor, axis, offsets[axis]) for axis in range(rank - 1)
                if axis != row and not self.is_inside(tensor, axis, offsets[axis], computed=False)]  # fmt: skip
        rows: Size = 1 if rank == 1 else self._cut(valid[0], tensor, row, offsets[row])
        columns = self._cut(valid[1], tensor, rank - 1, offsets[-1])
        if any(isinstance(size, int) and size <= 0 for size in (rows, columns)):
            return None, some
        sizes = [(columns, valid[1], rank - 1)]
        if rank > 1:
            sizes.insert(0, (rows, valid[0], row))
        some += [f"{text(size)} > 0" for size, whole, axis in sizes
                 if self._may_be_nothing(size, whole, offsets[axis], tensor.extents[axis])]  # fmt: skip
        return (rows, columns), some

    @contextmanager
    def where(self, conditions: Sequence[str], loc: Loc) -> Iterator[None]:
        """What is written inside is done where the conditions hold."""
        if not conditions:
            yield
            return
        node = Branch(" && ".join(conditions), [], [], loc)
        self.nodes.append(node)
        with self.inside(node.then):
            yield

    def in_front(self, tensor: Tensor, axis: int, offset: Operand) -> str:
        """The condition for an offset to lie before the end of a tensor."""
        return f"{text(self.size(offset))} < {text(tensor.extents[axis])}"

    def _may_be_nothing(self, size: Size, valid: Size, offset: Operand, limit: Size) -> bool:
        """Whether nothing of `valid` elements from an offset on may lie inside a tensor; `size`: how many do."""
        if isinstance(size, int) or not size.text.startswith("smaller("):
            return False
        if not isinstance(valid, int):
            return size.text not in self.clips
        if isinstance(offset, Const) and offset.value == 0:
            return not self.is_not_empty(limit)
        return not self.begins_inside(offset, limit)

    def _cut(self, valid: Size, tensor: Tensor, axis: int, offset: Operand) -> Size:
        """Valid elements that lie inside a tensor.

        A tile that was cut by one tensor is not cut again by another one that the launch finds to be as large.
        """
        limit = tensor.extents[axis]
        at = self.size(offset)
        if isinstance(valid, int):
            return self.clipped(tensor, axis, offset, valid)
        if valid == limit and at == 0:
            return valid
        clip = self.clips.get(valid.text)
        other = valid if clip is None and at == 0 else clip[1] if clip is not None and clip[2] == at else None
        if other is not None and self.launch_time(other) and self.launch_time(limit):
            if other != limit:
                self.fits(valid, other, limit, at)
            return valid
        last = self._last(offset)
        if clip is not None and isinstance(clip[0], int) and isinstance(limit, int) and last is not None and (
            last + clip[0] <= limit
        ):  # fmt: skip
            return valid
        return least(valid, total(limit, at, "-"))

    def launch_time(self, size: Size) -> bool:
        """Whether a size is known when the kernel is launched."""
        return names(size) <= {p.name for p in self.parameters}

    def fits(self, valid: Size, other: Size, limit: Size, at: Size) -> None:
        """The launch finds that what a tensor of extent `other` has cut to `valid`, at `at`, lies in one of `limit`."""
        here = isinstance(at, int) and self.launch_time(valid)  # else in every iteration, if the tensors are as large
        condition = f"{text(valid)} <= {text(total(limit, at, '-'))}" if here else f"{text(other)} <= {text(limit)}"
        self.check(condition, "results are not larger than what they are stored into")

    def check(self, condition: str, meaning: str) -> None:
        if (condition, meaning) not in self.checks:
            self.checks.append((condition, meaning))

    def _last(self, offset: Operand) -> int | None:
        """The largest value of an index."""
        if isinstance(offset, Const):
            return int(offset.value) if offset.value >= 0 else None
        op = self.defined.get(offset.name)
        if op is not None and op.op in ("add", "mul") and isinstance(op.args[1], Const):
            last, by = self._last(op.args[0]), int(op.args[1].value)
            if last is None or (op.op == "mul" and by < 0):
                return None
            return last + by if op.op == "add" else last * by
        if op is not None and op.op in ("min", "max"):
            known = [last for last in map(self._last, op.args) if last is not None]
            if op.op == "max":
                return max(known) if len(known) == 2 else None
            return min(known, default=None)
        loop = self.loop_of.get(offset.name)
        if loop is None or not isinstance(loop.step, Const) or loop.step.value <= 0:
            return None
        stop = self.upper(loop.stop)
        if stop is None:
            return None
        step = int(loop.step.value)
        if not isinstance(loop.start, Const):  # where it starts is not known
            return stop - step if stop % step == 0 and self._aligned(loop) else stop - 1
        start = int(loop.start.value)
        return start + max(0, -(-(stop - start) // step) - 1) * step

    def _aligned(self, loop: For) -> bool:
        """Whether a loop starts at a multiple of its step."""
        start = loop.start
        if isinstance(start, Var) and isinstance(loop.step, Const):
            op = self.defined.get(start.name)
            if op is not None and op.op == "mul":
                return any(isinstance(a, Const) and int(a.value) % int(loop.step.value) == 0 for a in op.args)
        return False

    def stays_inside(self, offset: Var, limit: Size) -> bool:
        """Whether a loop variable stays below an extent."""
        for name in self.facts.limits.get(offset.name, ()):
            own = self.names.of(name)
            if any(d == limit for d in self._dims_of(name)) or Expr(own, frozenset([own])) == limit:
                return True
        last = self._last(offset)
        return isinstance(limit, int) and last is not None and last < limit

    def offset(self, tensor: Tensor, indices: Sequence[Operand], loc: Loc) -> Size:
        out: Size = 0
        for axis, index in enumerate(indices):
            at = self.size(index)
            if isinstance(index, Const) and index.value < 0:
                at = total(tensor.extents[axis], -int(index.value), "-")
            out = total(out, product(at, tensor.strides[axis]))
        return out

    def pointer(self, tensor: Tensor, indices: Sequence[Operand], loc: Loc) -> str:
        at = self.offset(tensor, indices, loc)
        return tensor.pointer.text if at == 0 else f"{tensor.pointer.text} + {text(at)}"

    def tensor(self, operand: Operand) -> Tensor:
        assert isinstance(operand, Var)
        return self.tensors[operand.name]

    def view(self, op: Op) -> None:
        source = self.tensor(op.args[0])
        rank = len(source.extents)
        if op.op == "view":
            offsets, extents = op.args[1 : 1 + rank], op.args[1 + rank :]
            drop = op.attr("drop") or ()
            kept = [a for a in range(rank) if a not in drop]  # type: ignore[operator]
            for o in offsets:
                self.not_negative(o, op.loc)
            for axis in lost_axes(op, self.facts.is_below):
                if not self.begins_inside(offsets[axis], source.extents[axis]):
                    self.make_sure(self.size(offsets[axis]), source.extents[axis], op.loc, VIEWED)
            at = self.offset(source, offsets, op.loc)
            pointer = total(source.pointer, at)
            shape = [self.clipped(source, a, offsets[a], self.size(extents[a])) for a in kept]
            strides = [source.strides[a] for a in kept]
        elif op.op == "tensor_transpose":
            axes = op.attr("axes")
            assert isinstance(axes, tuple)
            pointer, shape = source.pointer, [source.extents[int(a)] for a in axes]  # type: ignore[arg-type]
            strides = [source.strides[int(a)] for a in axes]  # type: ignore[arg-type]
        elif op.op == "tensor_step":
            steps = op.attr("steps")
            assert isinstance(steps, tuple)
            pointer, shape, strides = source.pointer, [], []
            for extent, stride, step in zip(source.extents, source.strides, steps, strict=True):
                shape.append(in_steps(extent, int(step)))  # type: ignore[arg-type]
                strides.append(product(stride, int(step)))  # type: ignore[arg-type]
        else:
            pointer, shape = source.pointer, [self.size(a) for a in op.args[1:]]
            strides: list[Size] = [1] * len(shape)
            for axis in range(len(shape) - 2, -1, -1):
                strides[axis] = product(strides[axis + 1], shape[axis + 1])
        assert isinstance(pointer, Expr)
        self.tensors[op.results[0].name] = Tensor(source.root, source.dtype, pointer, tuple(shape), tuple(strides))

    def not_negative(self, offset: Operand, loc: Loc) -> None:
        """Check an offset that may be negative."""
        if not self.facts.is_natural(offset):
            self.nodes.append(Require(f"{text(self.size(offset))} >= 0", loc))

    def declare(self, what: Any, loc: Loc) -> None:
        self.nodes.append(Declaration(what, loc))

    def rectangle(self, tensor: Tensor, wish: str, pointer: str, extents: tuple[Any, Any], stride: Size, loc: Loc,
                  transposed: bool = False) -> Global:  # fmt: skip
        strides = ("1", text(stride)) if transposed else (text(stride), "1")
        dtype = u8 if tensor.dtype.kind == "b" else tensor.dtype
        out = Global(self.names.fresh(wish), dtype, tensor.root, pointer, extents, strides, transposed)
        self.declare(out, loc)
        return out

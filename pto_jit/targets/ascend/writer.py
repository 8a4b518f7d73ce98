# SPDX-License-Identifier: MIT
"""What writing vector and cube kernels has in common: names, scalars, extents, rectangles of global memory, loops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

from pto_jit.dtypes import DType, f32, f64, i64, u8
from pto_jit.errors import NOWHERE, Loc
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import defs, statements, uses
from pto_jit.lower.axes import is_elementwise
from pto_jit.slotted import frozen
from pto_jit.targets.ascend.form import (
    Assignment,
    Branch,
    Buffer,
    Declaration,
    Global,
    KernelForm,
    Loop,
    Node,
    Parameter,
    Require,
)
from pto_jit.targets.ascend.machine import element_type
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.scalars import Scalars
from pto_jit.targets.ascend.values import Expr, Size
from pto_jit.targets.cuda.facts import Facts
from pto_jit.targets.cuda.nests import PARALLEL, touches_tiles, writes
from pto_jit.targets.source.identifiers import RESERVED, Identifiers

_WORD = re.compile(r"[A-Za-z_]\w*")
_NAMES = frozenset(
    """get_block_idx get_block_num get_subblockid flags set_flag wait_flag pipe_barrier trap half bfloat16_t Tile
    TileLeft TileRight TileAcc GlobalTensor Layout Rectangle pto Shape Stride DYNAMIC cores stream larger smaller modulo
    floor_divide""".split()
)


@frozen
class Tensor:
    """A tensor or view: pointer expression, extents, strides in elements; root: the parameter it is a part of."""

    root: str
    dtype: DType
    pointer: Expr
    extents: tuple[Size, ...]
    strides: tuple[Size, ...]


def product(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 1:
        return b
    if b == 1:
        return a
    if a == 0 or b == 0:
        return 0
    return Expr(f"{atom(a)} * {atom(b)}", names(a) | names(b))


def total(a: Size, b: Size, sign: str = "+") -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a + b if sign == "+" else a - b
    if b == 0:
        return a
    if a == 0 and sign == "+":
        return b
    right = atom(b) if sign == "-" else text(b)
    return Expr(f"{text(a)} {sign} {right}", names(a) | names(b))


def least(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a == b else Expr(f"smaller({text(a)}, {text(b)})", names(a) | names(b))


def text(size: Size) -> str:
    return str(size) if isinstance(size, int) else size.text


def names(size: Size) -> frozenset[str]:
    return frozenset() if isinstance(size, int) else size.names


def atom(size: Size) -> str:
    out = text(size)
    return f"({out})" if " " in _outside(out) else out


def _outside(expression: str) -> str:
    """What is not inside parentheses."""
    depth, out = 0, []
    for ch in expression:
        depth += (ch == "(") - (ch == ")")
        if depth == 0:
            out.append(ch)
    return "".join(out)


class KernelWriter:
    """Walks the body of a kernel; what tiles become is for the subclasses.

    sizes: assumed bounds of run-time extents, by the name of the variable.
    """

    core = ""
    alone = False  # the scalar unit of one core does all the work

    def __init__(self, func: Func, facts: Facts, sizes: dict[str, int]) -> None:
        self.func, self.facts, self.sizes = func, facts, sizes
        self.names = Identifiers(RESERVED | _NAMES)
        self.nodes: list[Node] = []
        self.scopes: list[dict[str, str]] = [{}]  # C++ names that are visible, and expressions that have a name
        self.loops: list[Loop] = []
        self.buffers: list[Buffer] = []
        self.tensors: dict[str, Tensor] = {}
        self.scalars = Scalars(self)
        self.parameters: list[Parameter] = []
        self.checks: list[tuple[str, str]] = []
        self.limited: dict[str, int] = {}
        self.clips: dict[str, tuple[Size, Size, Size]] = {}  # expression -> extent, limit and offset it comes from
        self.loop_of: dict[str, For] = {}
        self.written = {facts.roots[s.args[1].name] for s in statements(func.body) if isinstance(s, Op) and writes(s)}  # type: ignore[union-attr]
        self.here: Loc = func.loc  # of the statement that is being written
        self.defined: dict[str, Op] = {s.results[0].name: s for s in statements(func.body)
                                       if isinstance(s, Op) and len(s.results) == 1}  # fmt: skip
        self._parameters()

    # -- parameters -----------------------------------------------------------------------------------------------

    def _parameters(self) -> None:
        given = {p.name for p in self.func.params}
        for k, p in enumerate(self.func.params):
            name = self.names.of(p.name)
            if isinstance(p.type, TensorType):
                typ = element_type(p.type.dtype)
                if typ is None:
                    typ = {"b": "uint8_t", "f": "double", "u": "uint64_t"}[p.type.dtype.kind]
                self.parameters.append(Parameter(name, typ, True, ("argument", k)))
            else:
                assert isinstance(p.type, ScalarType)
                typ = "float" if p.type.dtype.is_float else "int64_t" if p.type.dtype == i64 else self.scalar_type(
                    p.type.dtype, NOWHERE)  # fmt: skip
                self.parameters.append(Parameter(name, typ, False, ("argument", k)))
            self.scopes[0][name] = name
        for k, p in enumerate(self.func.params):
            if isinstance(p.type, TensorType):
                self._tensor(p, k, given)

    def _tensor(self, p: Var, k: int, given: set[str]) -> None:
        """Extents and strides of a tensor parameter: constants, parameters there are, or parameters of their own."""
        typ = p.type
        assert isinstance(typ, TensorType)
        name = self.names.of(p.name)
        extents: list[Size] = []
        for axis, extent in enumerate(typ.shape):
            known = next((n for n in sorted(given) if self.facts.is_dim(n, p.name, axis)), None)
            wish = known or f"{p.name}_d{axis}"
            extents.append(extent if extent is not None else self.parameter(wish, ("extent", k, axis)))
        strides: list[Size] = [1] * typ.rank
        if typ.layout == "c":
            for axis in range(typ.rank - 2, -1, -1):
                strides[axis] = product(strides[axis + 1], extents[axis + 1])
        else:
            last = typ.rank - (1 if typ.layout == "inner" else 0)
            for axis in range(last):
                strides[axis] = self.parameter(f"{p.name}_s{axis}", ("stride", k, axis))
        self.tensors[p.name] = Tensor(p.name, typ.dtype, Expr(name, frozenset([name])), tuple(extents), tuple(strides))

    def parameter(self, wish: str, origin: tuple[str | int, ...]) -> Expr:
        name = self.names.of(wish)
        if name not in self.scopes[0]:
            self.parameters.append(Parameter(name, "int64_t", False, origin))
            self.scopes[0][name] = name
        return Expr(name, frozenset([name]))

    def scalar_type(self, dtype: DType, loc: Loc) -> str:
        if dtype in (f32, f64) or dtype.name in ("f16", "bf16"):
            return "float"
        if dtype.kind == "b":
            return "bool"
        if dtype.name in ("u64",):
            raise unsupported(f"numbers of {dtype}", loc, "use i64")
        return element_type(dtype) or "int64_t"

    # -- scopes and sizes -----------------------------------------------------------------------------------------

    @contextmanager
    def inside(self, nodes: list[Node]) -> Any:
        outer, self.nodes = self.nodes, nodes
        self.scopes.append({})
        yield
        self.scopes.pop()
        self.nodes = outer

    def visible(self, size: Size) -> bool:
        return all(any(n in scope for scope in self.scopes) for n in names(size))

    def named(self, size: Size, wish: str, loc: Loc) -> int | str:
        """A size as a number or a name; an expression gets a name where it is used first."""
        if isinstance(size, int):
            return size
        for scope in self.scopes:
            if size.text in scope:
                return scope[size.text]
        name = self.names.fresh(wish)
        self.nodes.append(Assignment("int64_t", name, size.text, loc))
        self.scopes[-1][size.text] = name
        self.scopes[-1][name] = name
        return name

    def size(self, operand: Operand) -> Size:
        """An index or extent."""
        if isinstance(operand, Const):
            return int(operand.value)
        known = next((e for e in self._dims_of(operand.name)), None)
        if known is not None:
            return known
        name = self.number(operand)
        return Expr(name, frozenset([name])) if name.isidentifier() else Expr(name, frozenset(self._words(name)))

    def _dims_of(self, name: str) -> list[Size]:
        out: list[Size] = []
        for tensor, axis in sorted(self.facts.dims.get(name, ())):
            known = self.tensors.get(tensor)
            if known is not None:
                out.append(known.extents[axis])
        return out

    def _words(self, expression: str) -> list[str]:
        return [w for w in _WORD.findall(expression) if w not in _NAMES]

    def bound(self, operand: Operand, loc: Loc) -> int:
        """The most an extent can be: what tiles have memory for."""
        if isinstance(operand, Const):
            return max(1, int(operand.value))
        known = self.upper(operand)
        if known is not None:
            return max(1, known)
        dims = [s for s in self._dims_of(operand.name) if isinstance(s, int)]
        if dims:
            return max(1, dims[0])
        if operand.name not in self.sizes:
            raise unsupported(
                f"a tile of a run-time extent `{operand.name}` that is computed in the kernel", loc,
                "give tiles constant extents, or extents of tensors",
            )  # fmt: skip
        self.limited[self.names.of(operand.name)] = self.sizes[operand.name]
        return self.sizes[operand.name]

    def upper(self, operand: Operand, depth: int = 0) -> int | None:
        """A constant that an integer does not exceed, where its definition says one."""
        if isinstance(operand, Const):
            return int(operand.value)
        op = self.defined.get(operand.name)
        if op is None or operand.name in self.facts.mutable or depth > 4:
            return None
        if op.op == "min":
            found = [b for b in (self.upper(a, depth + 1) for a in op.args) if b is not None]
            return min(found, default=None)
        return self.upper(op.args[0], depth + 1) if op.op == "copy" else None

    # -- rectangles of global memory ------------------------------------------------------------------------------

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
        return out

    def _below(self, offset: Operand, limit: Size) -> bool:
        """Whether an offset lies inside an extent, so that something is left of what begins there.

        The extent of one tensor may be what a loop runs to, and that of another what it indexes; then the launch checks
        that the other one is as large.
        """
        if not isinstance(offset, Var):
            return isinstance(limit, int) and 0 <= offset.value < limit
        if self._inside(offset, limit):
            return True
        for name in sorted(self.facts.limits.get(offset.name, ())):
            bound = self.size(Var(name, offset.type))
            if self.launch_time(bound) and self.launch_time(limit):
                self.check(f"{text(bound)} <= {text(limit)}", "no tensor is shorter than the loop over it")
                return True
        return False

    def launch_time(self, size: Size) -> bool:
        """Whether a size is known when the kernel is launched."""
        return names(size) <= {p.name for p in self.parameters}

    def check(self, condition: str, meaning: str) -> None:
        if (condition, meaning) not in self.checks:
            self.checks.append((condition, meaning))

    def _last(self, offset: Operand) -> int | None:
        """The largest value of an index."""
        if isinstance(offset, Const):
            return int(offset.value) if offset.value >= 0 else None
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

    def _inside(self, offset: Var, limit: Size) -> bool:
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
            at = self.offset(source, offsets, op.loc)
            pointer = total(source.pointer, at)
            shape = [self.clipped(source, a, offsets[a], self.size(extents[a])) for a in kept]
            strides = [source.strides[a] for a in kept]
        elif op.op == "tensor_transpose":
            axes = op.attr("axes")
            assert isinstance(axes, tuple)
            pointer, shape = source.pointer, [source.extents[int(a)] for a in axes]  # type: ignore[arg-type]
            strides = [source.strides[int(a)] for a in axes]  # type: ignore[arg-type]
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

    # -- statements -----------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for stmt in block:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        self.here = getattr(stmt, "loc", self.here)
        match stmt:
            case Op() if touches_tiles(stmt) or self.is_tile_work(stmt):
                self.tile_operation(stmt)
            case Op(op="view" | "tensor_reshape" | "tensor_transpose"):
                self.view(stmt)
            case Op(op="dim"):
                size = self.tensor(stmt.args[0]).extents[int(stmt.attr("axis"))]  # type: ignore[arg-type]
                self.scalars.define(stmt.results[0], text(size), stmt.loc)
            case Op(op="getelem"):
                tensor = self.tensor(stmt.args[0])
                if tensor.root in self.written and not self.alone:  # the scalar unit's cache does not hear of it
                    raise unsupported(f"reading single elements of `{tensor.root}`, which the kernel writes", stmt.loc,
                                      "read what was written in another parallel loop, or work on tiles")  # fmt: skip
                place = f"{tensor.pointer.text}[{text(self.offset(tensor, stmt.args[1:], stmt.loc))}]"
                self.scalars.define(stmt.results[0], place, stmt.loc, memory=tensor.root)
            case Op(op="setelem"):
                self.set_element(stmt)
            case Op() if is_elementwise(stmt):
                self.scalars.operation(stmt)
            case Op(op="print" | "assert"):
                raise unsupported(f"`pl.{stmt.op}`", stmt.loc, "use the cpu target to look at values")
            case Op():
                raise unsupported(f"`{stmt.op}` in a kernel", stmt.loc, "move it out of the parallel loops")
            case For():
                self.loop(stmt)
            case If():
                self.branch(stmt)
            case Return():
                pass
            case While():
                self.repeat(stmt)
            case _:
                what = type(stmt).__name__.lower()
                raise unsupported(f"a {what} in a kernel", self.func.loc, "restructure the kernel")

    def set_element(self, op: Op) -> None:
        """The scalar unit's writes go through a cache that the cores do not keep in step: there are none."""
        raise unsupported("a store of single elements that are not made of tiles", op.loc, "work on tiles")

    def loop(self, loop: For) -> None:
        if loop.reductions:
            pass  # what it combines is carried by variables; the loop runs in order
        grid = loop.kind in PARALLEL and not self.loops and self.may_share(loop)
        var = self.names.of(loop.var.name)
        if loop.var.name in self.facts.mutable:
            raise unsupported(f"a loop variable `{loop.var.name}` that is assigned elsewhere", loop.loc, "rename it")
        start, stop, step = (text(self.size(o)) for o in (loop.start, loop.stop, loop.step))
        node = Loop(var, start, stop, step, [], grid, loc=loop.loc, independent=loop.kind in PARALLEL)
        self.loop_of[loop.var.name] = loop
        self.declare_numbers(loop)
        self.nodes.append(node)
        self.before_loop(loop)
        self.loops.append(node)
        with self.inside(node.body):
            self.scopes[-1][var] = var
            self.block(loop.body)
        self.loops.pop()

    def repeat(self, loop: While) -> None:
        raise unsupported("a while loop in a kernel with products", loop.loc, "use a for loop, or move it to the host")

    def may_share(self, loop: For) -> bool:
        """Whether the iterations of an outermost loop can be dealt to the cores."""
        return isinstance(loop.step, Const) and loop.step.value > 0

    def before_loop(self, loop: For) -> None:
        pass

    def branch(self, stmt: If) -> None:
        node = Branch(self.number(stmt.cond), [], [], stmt.loc)
        self.declare_numbers(stmt)
        self.nodes.append(node)
        with self.inside(node.then):
            self.block(stmt.then)
        with self.inside(node.orelse):
            self.block(stmt.orelse)

    def declare_numbers(self, stmt: For | If | While) -> None:
        """Numbers that are assigned several times, in a statement first, and are read after it."""
        made = {v.name: v for s in statements((stmt,)) if isinstance(s, Op) for v in defs(s)}
        numbers = [v for name, v in made.items() if name in self.facts.mutable and isinstance(v.type, ScalarType)]
        if not numbers:
            return
        inside = Counter(v.name for s in statements((stmt,)) for v in uses(s))
        for var in numbers:
            read = self.facts.uses[var.name] > inside[var.name] and not self.is_on_tiles(var)
            if read and not any(self.names.of(var.name) in scope for scope in self.scopes):
                self.scalars.declare(var, stmt.loc)

    def is_on_tiles(self, var: Var) -> bool:
        """Whether a number is kept as a tile of one element."""
        return False

    def declare(self, what: Any, loc: Loc) -> None:
        self.nodes.append(Declaration(what, loc))

    def rectangle(self, tensor: Tensor, wish: str, pointer: str, extents: tuple[Any, Any], stride: Size, loc: Loc,
                  transposed: bool = False) -> Global:  # fmt: skip
        strides = ("1", text(stride)) if transposed else (text(stride), "1")
        dtype = u8 if tensor.dtype.kind == "b" else tensor.dtype
        out = Global(self.names.fresh(wish), dtype, tensor.root, pointer, extents, strides, transposed)
        self.declare(out, loc)
        return out

    # -- for subclasses -------------------------------------------------------------------------------------------

    def is_tile_work(self, op: Op) -> bool:
        return False

    def number(self, operand: Operand) -> str:
        """A number as the scalar unit has it."""
        return self.scalars.read(operand)

    def tile_operation(self, op: Op) -> None:
        raise NotImplementedError

    def form(self) -> KernelForm:
        return KernelForm(self.func.name, self.core, self.parameters, self.nodes, self.limited, self.checks)

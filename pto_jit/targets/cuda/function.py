# SPDX-License-Identifier: MIT
"""A kernel as CUDA C++: its loops, scalars and tensors; `tiles` writes what touches tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from pto_jit.dtypes import i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Break, Const, Continue, For, Func, If, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import blocks as inner_blocks
from pto_jit.ir.walk import defs, statements, uses
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.semantic.failures import INDEX, assertion
from pto_jit.targets.cuda.facts import Facts, lost_axes
from pto_jit.targets.cuda.flatten import unsupported
from pto_jit.targets.cuda.loops import DIMENSIONS, PARALLEL, longest_first, read_tensor, touches_tiles, written_tensor
from pto_jit.targets.cuda.order import growing
from pto_jit.targets.cuda.values import Site
from pto_jit.targets.source.identifiers import RESERVED, Identifiers
from pto_jit.targets.source.recipes import RecipeFunctions
from pto_jit.targets.source.scalars import Expressions, constant, memory_type, register_type
from pto_jit.targets.source.text import SourceText

NEGATIVE = "a negative offset: {0} along axis {1}"
_EXACT = {"exp": "pto::exponential"}, "pto::ratio({}, {})"
_FAST = {"exp": "pto::fast_exp", "exp2": "pto::fast_exp2"}, "pto::fast_ratio({}, {})"
"""What takes the place of a recipe of the vector math, and of its ratios, for f32: what the hardware helps with."""
GROUP = 16
"""Rows of the grid that blocks with operands in common take together: as high as wide where a device holds some 130
blocks with tiles of 128 x 256."""
_OWN = frozenset("TR TC V WM WN Spread STAGES COVERED memory into ahead".split())
"""Macros and variables of kernels that have these names always."""


class FunctionWriter:
    """Writes statements; one instance per kernel.

    `chain`: the loops that the grid runs, outermost first; `covered`: those of them of which a grid that no limit clips
    has a block or thread for every iteration; `teamed`: every team of threads has iterations of its own
    of the innermost; `elements`: there are no tiles, every thread has iterations of its own.
    """

    def __init__(
        self, func: Func, facts: Facts, chain: Sequence[For], *, teamed: bool, elements: bool, first_site: int = 0,
        fastmath: bool = False,
    ) -> None:  # fmt: skip
        self.func = func
        self.facts = facts
        self.chain = tuple(chain)
        self.covered = longest_first(func.body, self.chain, facts.mutable, facts.varying)
        self.teamed = teamed
        self.elements = elements
        self.text = SourceText()
        self.names = Identifiers(RESERVED | _OWN)
        self.recipes = RecipeFunctions("PTO_FUNCTION", *(_FAST if fastmath else _EXACT))
        self.expressions = Expressions(self.recipes)
        self.sites: list[Site] = []
        self.headers: set[str] = set()  # what the kernel includes besides
        self.first_site = first_site
        self.whole_rows = self.wide_blocks = False
        self.tensor_cores = False
        self.warpgroups = False
        self.late = growing(func.body, self.chain)  # variables of the grid whose last iterations come first
        self.grouped = False  # whether blocks have places in the grid by groups of rows (`pto::grouped_place`)
        self.shared: list[Any] = []
        self.declared: set[str] = set()  # scalars and tiles that exist as C variables
        self.hoisted: dict[int, list[Var]] = {}  # by id of a block: what has to be declared at its start
        self.read: set[str] = set()  # roots of tensors read and written since the block's threads last met
        self.written: set[str] = set()
        self.twins: dict[str, set[str]] = {}  # what may be the same memory, where several threads have an element
        self._plan_declarations(func.body)

    # -- declarations ---------------------------------------------------------------------------------------------

    def _plan_declarations(self, body: Block) -> None:
        """A variable that is assigned more than once is declared in the innermost block around all its appearances."""
        where: dict[str, list[tuple[int, ...]]] = {}
        blocks: dict[int, Block] = {}
        variables: dict[str, Var] = {}
        given = {p.name for p in self.func.params}
        self.declared |= given & self.facts.mutable
        mutable = self.facts.mutable - given
        if not mutable:
            return

        def walk(block: Block, path: tuple[int, ...]) -> None:
            path = (*path, id(block))
            blocks[id(block)] = block
            for stmt in block:
                own = path
                if isinstance(stmt, For):
                    variables.setdefault(stmt.var.name, stmt.var)
                for v in (*uses(stmt), *(defs(stmt) if isinstance(stmt, Op) else ())):
                    if v.name in mutable:
                        where.setdefault(v.name, []).append(own)
                        variables.setdefault(v.name, v)
                for inner in inner_blocks(stmt):
                    walk(inner, path)

        walk(body, ())
        for name in sorted(where):
            paths = where[name]
            common = paths[0]
            for path in paths[1:]:
                common = common[: next((k for k, (a, b) in enumerate(zip(common, path, strict=False)) if a != b),
                                       min(len(common), len(path)))]  # fmt: skip
            self.hoisted.setdefault(common[-1], []).append(variables[name])

    def name(self, name: str) -> str:
        """The C identifier of a variable."""
        return self.names.of(name)

    # -- blocks and control flow ----------------------------------------------------------------------------------

    _reached: tuple[Block, int] = (), 0
    """The block that is being written, and how many of its statements are."""

    def following(self) -> Iterator[Stmt]:
        """The statements of the block after the one that is being written."""
        block, written = self._reached
        return islice(block, written, None)

    def block(self, block: Block) -> None:
        for var in self.hoisted.get(id(block), ()):
            self.declare(var)
        for k, stmt in enumerate(block):
            self._reached = block, k + 1
            self.statement(stmt)

    def declare(self, var: Var) -> None:
        if isinstance(var.type, ScalarType):
            self.text.line(f"{register_type(var.type.dtype)} {self.name(var.name)};")
            self.declared.add(var.name)
        elif isinstance(var.type, TileType):
            self.declare_tile(var)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Op():
                self.text.place(stmt.loc)
                self.operation(stmt)
            case For():
                self.text.place(stmt.loc)
                self.loop(stmt)
            case While():
                self.text.place(stmt.loc)
                with self.text.block("for (;;)"), self.repeated((*stmt.before, *stmt.body), None):
                    self.block(stmt.before)
                    self.text.line(f"if (!({self.scalar(stmt.cond)})) break;")
                    self.block(stmt.body)
            case If():
                self.text.place(stmt.loc)
                self._branches(stmt)
            case Break() | Continue():
                self.text.line("break;" if isinstance(stmt, Break) else "continue;")
            case Return():
                pass
            case _:
                raise unsupported(f"a {type(stmt).__name__} in a kernel", self.func.loc, "restructure the kernel")

    def _branches(self, stmt: If) -> None:
        before, after = (set(self.read), set(self.written)), (set(self.read), set(self.written))
        for head, body in ((f"if ({self.scalar(stmt.cond)})", stmt.then), ("else", stmt.orelse)):
            if head == "else" and not body:
                break
            self.read, self.written = set(before[0]), set(before[1])
            with self.text.block(head):
                self.block(body)
            after = after[0] | self.read, after[1] | self.written
        self.read, self.written = after

    def loop(self, loop: For) -> None:
        var, start, stop, step = (self.name(loop.var.name), *map(self.scalar, (loop.start, loop.stop, loop.step)))
        depth = next((k for k, s in enumerate(self.chain) if s is loop), None)
        down = isinstance(loop.step, Const) and loop.step.value < 0
        if depth is not None and down:
            raise unsupported("a parallel loop with a negative step", loop.loc, "count upwards")
        dimension = len(self.chain) - 1 - depth if depth is not None else len(DIMENSIONS)
        if dimension >= len(DIMENSIONS):
            self._plain_loop(loop, var, start, stop, step, down)
            return
        first, stride = self._share(dimension)
        begin = first if start == "0" else f"{start} + {first}"
        if step != "1":
            first = f"({first}) * {step}" if " " in first else f"{first} * {step}"
            # A grid has no more blocks than iterations: below 2**31 their product needs no 64 bits, and no registers.
            few = all(n.isdigit() for n in (start, stop, step)) and int(stop) + int(step) < 2**31
            stride = f"{stride} * {step}" if few or "int64_t" in stride else f"int64_t({stride}) * {step}"
            begin = first if start == "0" else f"{start} + {first}"
        self.grid_loop(loop, begin, stop, stride)
        self.read.clear()  # iterations of parallel loops are independent
        self.written.clear()

    def grid_loop(self, loop: For, begin: str, stop: str, stride: str) -> None:
        """A loop of the chain, of whose iterations each block or thread has those from `begin` on that are `stride`
        apart."""
        var, covered = self.name(loop.var.name), any(s is loop for s in self.covered)
        move = f"PTO_NEXT({var}, {stop}, {stride})" if covered else f"{var} += {stride}"
        self.text.line("PTO_KEEP_LOOP")
        with self.text.block(f"for (int64_t {var} = {begin}; {var} < {stop}; {move})"):
            self.block(loop.body)

    def _share(self, dimension: int) -> tuple[str, str]:
        """Where the iterations of a loop of the chain begin for a block or thread, and how far apart they are."""
        axis = DIMENSIONS[dimension]
        place = f"blockIdx.{axis}"
        if self.grouped and dimension < 2:
            place = f"pto::grouped_place<{GROUP}>().{axis}"
        if self.chain[len(self.chain) - 1 - dimension].var.name in self.late:
            place = f"gridDim.{axis} - 1 - {place}"
        if self.elements and dimension < 2:
            return (f"int64_t({place}) * blockDim.{axis} + threadIdx.{axis}",
                    f"int64_t(gridDim.{axis}) * blockDim.{axis}")  # fmt: skip
        if dimension == 0 and self.teamed:
            return f"int64_t({place}) * TR + threadIdx.y", "int64_t(gridDim.x) * TR"
        return f"int64_t({place})", f"gridDim.{axis}"

    def _plain_loop(self, loop: For, var: str, start: str, stop: str, step: str, down: bool) -> None:
        if loop.var.name in self.declared:  # read after the loop too
            inner = self.names.fresh(f"{var}_at")
        else:
            inner = var
        if isinstance(loop.step, Const):
            test = f"{inner} {'>' if down else '<'} {stop}"
        else:
            test = f"{step} > 0 ? {inner} < {stop} : {inner} > {stop}"
        move = (
            f"++{inner}" if step == "1" else f"{inner} -= {step[1:]}" if step.startswith("-") else f"{inner} += {step}"
        )
        with self.text.block(f"for (int64_t {inner} = {start}; {test}; {move})"):
            if inner != var:
                self.text.line(f"{var} = {inner};")
            with self.repeated(loop.body, loop):
                self.block(loop.body)

    # -- meeting of threads ---------------------------------------------------------------------------------------

    def meet(self) -> None:
        """All threads that work on an iteration wait for each other, so that each sees what the others wrote."""
        if not self.elements:
            self.text.line("Spread::synchronise();")
        self.read.clear()
        self.written.clear()

    def meet_before(self, body: Block) -> None:
        """Before what the threads do apart from each other, so that they cannot meet in it."""
        reads, writes = self._touched(body)
        if reads & self.written or writes & (self.read | self.written):
            self.meet()

    @contextmanager
    def repeated(self, body: Block, loop: For | None) -> Iterator[None]:
        """Around the body of a loop of the block (None: one without an index): what an iteration reads another thread
        may have written in the one before, and what it writes another thread may have read or written."""
        before = set(self.read), set(self.written)
        if loop is None or loop.kind not in PARALLEL:  # whose iterations are independent
            reads, writes = self._touched(body)
            self.read |= reads
            self.written |= {root for root in writes if root in reads or not self._written_apart(root, body, loop)}
        yield
        self.read |= before[0]
        self.written |= before[1]

    def _written_apart(self, root: str, body: Block, loop: For | None) -> bool:
        """Whether no two threads write one element of a tensor in different iterations.

        So it is when one thread writes all elements, or the only store puts its tile always in the same place, or in
        places that do not overlap.
        """
        stores = [s for s in statements(body) if isinstance(s, Op) and (x := written_tensor(s)) is not None
                  and self.facts.roots[x.name] == root]  # fmt: skip
        if all(s.op == "setelem" for s in stores):
            return True
        if len(stores) != 1 or stores[0].op != "store" or stores[0] not in body:
            return False
        if loop is None or not isinstance(loop.step, Const):
            return False
        (store,) = stores
        assert isinstance(store.args[0].type, TileType)
        made = {d.name: s for s in statements(body) for d in defs(s)}
        if store.args[1].name in made:  # type: ignore[union-attr]
            return False
        for offset, extent in zip(store.args[2:], store.args[0].type.shape, strict=True):
            if offset == loop.var and extent is not None and abs(loop.step.value) >= extent:
                return True
        return not any(isinstance(o, Var) and (o == loop.var or o.name in made) for o in store.args[2:])

    def _touched(self, body: Block) -> tuple[set[str], set[str]]:
        """The tensors that statements read and write."""
        reads: set[str] = set()
        writes: set[str] = set()
        for s in statements(body):
            for tensor, names in ((read_tensor(s), reads), (written_tensor(s), writes)):
                if tensor is not None:
                    names.add(self.facts.roots[tensor.name])
        return reads, writes

    def reads_memory(self, tensor: Operand) -> None:
        assert isinstance(tensor, Var)
        root = self.facts.roots[tensor.name]
        if root in self.written or self.twins.get(root, set()) & self.written:
            self.meet()
        self.read.add(root)

    def writes_memory(self, tensor: Operand) -> None:
        assert isinstance(tensor, Var)
        root = self.facts.roots[tensor.name]
        if root in self.read or root in self.written or self.twins.get(root, set()) & (self.read | self.written):
            self.meet()
        self.written.add(root)

    # -- scalars --------------------------------------------------------------------------------------------------

    def scalar(self, operand: Operand) -> str:
        return constant(operand) if isinstance(operand, Const) else self.name(operand.name)

    def define(self, var: Var, expression: str) -> None:
        """Give a scalar variable a value."""
        assert isinstance(var.type, ScalarType)
        name = self.name(var.name)
        if var.name in self.declared:
            if expression != name:
                self.text.line(f"{name} = {expression};")
        else:
            self.text.line(f"const {register_type(var.type.dtype)} {name} = {expression};")

    def random(self, name: str, seed: str, counter: str) -> str:
        """A random number (`rand` or `randn`) for a counter."""
        self.headers.add("pto_places")
        if name == "rand":
            return f"pto::uniform({seed}, {counter})"
        log1p, cos = (f"[](double x) {{ return {self.recipes.call(f, 'f64', ['x'])}; }}" for f in ("log1p", "cos"))
        return f"pto::normal({seed}, {counter}, {log1p}, {cos})"

    def apply(self, op: Op, args: Sequence[str], operand: Any, result: Any, *, index: bool = False) -> str:
        if op.op in ("rand_at", "randn_at"):
            return self.random(op.op.removesuffix("_at"), f"int64_t({args[0]})", f"int64_t({args[1]})")
        try:
            text = self.expressions.apply(op.op, args, operand, dict(op.attrs), result)
        except KeyError:
            raise unsupported(f"`{op.op}` of {operand}", op.loc,
                              "compute it on the host, or from the operations in docs/cuda.md") from None  # fmt: skip
        if operand == i64 and not index and op.op in ("add", "sub", "mul"):
            return f"pto::wrapping_{op.op}<int64_t>({', '.join(args)})"
        return text

    def check(self, condition: str, error: str, message: str, loc: Loc, first: str, second: str) -> None:
        """Record a failure of the launch unless `condition` holds."""
        self.sites.append(Site(error, message, loc))
        self.text.line(
            f"if (!({condition})) pto::fail(failure, {self.first_site + len(self.sites)}, {first}, {second});"
        )

    def operation(self, op: Op) -> None:
        if touches_tiles(op):
            self.tile_operation(op)
            return
        match op.op:
            case "dim":
                assert isinstance(op.args[0], Var)
                self.define(op.results[0], f"{self.name(op.args[0].name)}.shape[{op.attr('axis')}]")
            case "getelem":
                self.reads_memory(op.args[0])
                self.define(op.results[0], f"pto::from_memory({self.element(op.args[0], op.args[1:])})")
            case "setelem":
                self._set_element(op)
            case "view" | "tensor_reshape" | "tensor_transpose" | "tensor_step":
                self._view(op)
            case "assert" if 0 < len(op.args) <= 3:
                numbers = [self.scalar(a) for a in op.args[1:]] + ["0"] * 2
                message = assertion(str(op.attr("message")), str(op.attr("told") or ""))
                error = str(op.attr("error") or "KernelAssertionError")
                self.check(self.scalar(op.args[0]), error, message, op.loc, numbers[0], numbers[1])
            case "print" | "assert":
                user_name = {"assert": "assert_"}.get(op.op, op.op)
                hint = "store the values into a tensor, or use the cpu target to look at them"
                raise unsupported(f"`pl.{user_name}`", op.loc, hint)
            case _ if is_elementwise(op):
                data = op.args[1] if op.op == "select" else op.args[0]
                index = op.results[0].name in self.facts.indices
                text = self.apply(op, [self.scalar(a) for a in op.args], data.type.dtype,  # type: ignore[union-attr]
                                  op.results[0].type.dtype, index=index)  # type: ignore[union-attr] # fmt: skip
                self.define(op.results[0], text)
            case _:
                raise unsupported(f"`{op.op}` in a kernel", op.loc, "move it out of the parallel loops")

    def element(self, tensor: Operand, indices: Sequence[Operand]) -> str:
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        return f"{self.name(tensor.name)}.data[{self.offset(tensor, indices)}]"

    def offset(self, tensor: Var, indices: Sequence[Operand]) -> str:
        """The distance of an element from the start of its tensor, in elements; constant negative ones count back."""
        assert isinstance(tensor.type, TensorType)
        name, parts = self.name(tensor.name), []
        last = tensor.type.rank - 1
        for axis, index in enumerate(indices):
            text = self.scalar(index)
            if text == "0":
                continue
            if isinstance(index, Const) and index.value < 0:
                text = f"({name}.shape[{axis}] - {-index.value})"
            elif " " in text:
                text = f"({text})"
            inner = axis == last and tensor.type.layout in ("c", "inner")
            parts.append(text if inner else f"{text} * {name}.stride[{axis}]")
        return " + ".join(parts) or "0"

    def _set_element(self, op: Op) -> None:
        self.writes_memory(op.args[1])
        dtype = op.args[1].type.dtype  # type: ignore[union-attr]
        value = self.scalar(op.args[0])
        text = f"{self.element(op.args[1], op.args[2:])} = pto::to_memory<{memory_type(dtype)}>({value});"
        self.text.line(text if self.elements else f"if (Spread::writes_scalars()) {text}")

    # -- views of tensors -----------------------------------------------------------------------------------------

    def _view(self, op: Op) -> None:
        source, result = op.args[0], op.results[0]
        assert isinstance(source, Var) and isinstance(source.type, TensorType) and isinstance(result.type, TensorType)
        old, new = self.name(source.name), self.name(result.name)
        rank = source.type.rank
        typ = memory_type(source.type.dtype)
        data = f"{old}.data"
        if op.op == "view":
            offsets, extents = op.args[1 : 1 + rank], op.args[1 + rank :]
            drop = op.attr("drop") or ()
            for axis, offset in enumerate(offsets):
                self.natural(offset, axis, op.loc)
            lost = self._lost(op, source, offsets)
            distance = self.offset(source, offsets)
            data = data if distance == "0" else f"{data} + {distance}"
            kept = [a for a in range(rank) if a not in drop]  # type: ignore[operator]
            shape = [f"{lost}{self._view_extent(source, a, offsets[a], extents[a])}" for a in kept]
            strides = [f"{old}.stride[{a}]" for a in kept]
        elif op.op == "tensor_transpose":
            axes = op.attr("axes")
            shape = [f"{old}.shape[{a}]" for a in axes]  # type: ignore[union-attr]
            strides = [f"{old}.stride[{a}]" for a in axes]  # type: ignore[union-attr]
        elif op.op == "tensor_step":
            steps: Any = op.attr("steps")
            shape = [f"({old}.shape[{a}] + {s - 1}) / {s}" for a, s in enumerate(steps)]
            strides = [f"{old}.stride[{a}] * {s}" for a, s in enumerate(steps)]
        else:
            extents = [self.scalar(a) for a in op.args[1:]]
            shape = [f"int64_t({e})" for e in extents]
            strides = [f"int64_t({' * '.join(extents[k + 1 :]) or '1'})" for k in range(len(extents))]
        self.text.line(
            f"const pto::Tensor<{typ}, {len(shape)}> {new} = "
            f"{{{data}, {{{', '.join(shape)}}}, {{{', '.join(strides)}}}}};"
        )

    def _lost(self, view: Op, source: Var, offsets: Sequence[Operand]) -> str:
        """Check that a view is of a row or plane that is there; what makes its extents 0 where it is not."""
        there: list[str] = []
        for axis in lost_axes(view, self.facts.is_below):
            index, extent = self.scalar(offsets[axis]), f"{self.name(source.name)}.shape[{axis}]"
            there.append(f"{index} < {extent}")
            message = INDEX.text(axis=axis).partition("; ")[0]
            self.check(there[-1], INDEX.error.__name__, message, view.loc, index, extent)
        return f"!({' && '.join(there)}) ? 0 : " if there else ""

    def _view_extent(self, source: Var, axis: int, offset: Operand, extent: Operand) -> str:
        whole = isinstance(offset, Const) and offset.value == 0 and isinstance(extent, Var)
        if whole and self.facts.is_dim(extent.name, source.name, axis):  # type: ignore[union-attr]
            return self.scalar(extent)
        small = isinstance(extent, Const) and extent.value < 2**31
        function = "clipped" if small else "view_extent"
        return f"pto::{function}({self.scalar(extent)}, {self.name(source.name)}.shape[{axis}], {self.scalar(offset)})"

    def natural(self, offset: Operand, axis: int, loc: Loc) -> None:
        """Check an offset that may be negative."""
        if not self.facts.is_natural(offset):
            text = self.scalar(offset)
            self.check(f"{text} >= 0", "BoundsError", NEGATIVE, loc, text, str(axis))

    # -- what the writer of tiles provides ------------------------------------------------------------------------

    def prologue(self) -> list[str]:
        """Declarations for the start of the kernel, known when its body is written."""
        return []

    def declare_tile(self, var: Var) -> None:
        raise NotImplementedError

    def tile_operation(self, op: Op) -> None:
        raise NotImplementedError

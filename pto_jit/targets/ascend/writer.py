# SPDX-License-Identifier: MIT
"""What writing vector and cube kernels has in common: statements, loops, branches."""

from __future__ import annotations

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import defs, statements, use_counts, vars_made
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.names import index, source_name
from pto_jit.targets.ascend.form import Branch, KernelForm, Loop, Require
from pto_jit.targets.ascend.memory import Memory
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.sizes import text
from pto_jit.targets.cuda.facts import Facts
from pto_jit.targets.cuda.loops import PARALLEL, touches_tiles
from pto_jit.targets.cuda.merged import OTHER_SIZE


class KernelWriter(Memory):
    """Walks the body of a kernel; what tiles become is for the subclasses."""

    core = ""
    alone = False  # the scalar unit of one core does all the work

    def __init__(self, func: Func, facts: Facts, sizes: dict[str, int]) -> None:
        super().__init__(func, facts, sizes)
        self.here: Loc = func.loc  # of the statement that is being written
        every = vars_made(statements(func.body)) if facts.mutable else []
        self.several = {v.name for v in every if v.name in facts.mutable and isinstance(v.type, ScalarType)}

    # -- statements -----------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for stmt in block:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        self.here = getattr(stmt, "loc", self.here)
        match stmt:
            case Op() if touches_tiles(stmt) or self.is_tile_work(stmt):
                self.tile_operation(stmt)
            case Op(op="view" | "tensor_reshape" | "tensor_transpose" | "tensor_step"):
                self.view(stmt)
            case Op(op="dim"):
                size = self.tensor(stmt.args[0]).extents[int(stmt.attr("axis"))]  # type: ignore[arg-type]
                self.scalars.define(stmt.results[0], text(size), stmt.loc)
            case Op(op="getelem"):
                tensor = self.tensor(stmt.args[0])
                if tensor.root in self.written and not self.alone:  # the scalar unit's cache does not hear of it
                    self.read_written(stmt)
                    return
                place = f"{tensor.pointer.text}[{text(self.offset(tensor, stmt.args[1:], stmt.loc))}]"
                self.scalars.define(stmt.results[0], place, stmt.loc, memory=tensor.root)
            case Op(op="setelem"):
                self.set_element(stmt)
            case Op() if is_elementwise(stmt):
                self.scalars.operation(stmt)
            case Op(op="assert"):
                own = stmt.attr("core") or stmt.attr("message") == OTHER_SIZE  # a pass's, not the program's
                said = "" if own else str(stmt.attr("message") or "")
                self.nodes.append(Require(self.number(stmt.args[0]), stmt.loc, said))
            case Op(op="print"):
                raise unsupported("`pl.print`", stmt.loc, "use the cpu target to look at values")
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

    def read_written(self, op: Op) -> None:
        name = self.tensor(op.args[0]).root
        raise unsupported(f"reading single elements of `{name}`, which the kernel writes", op.loc,
                          "read what was written in another parallel loop, or work on tiles")  # fmt: skip

    def loop(self, loop: For) -> None:
        if loop.reductions:
            pass  # what it combines is carried by variables; the loop runs in order
        grid = loop.kind in PARALLEL and not self.loops and self.may_share(loop)
        var = self.names.of(loop.var.name)
        if loop.var.name in self.facts.mutable:
            raise unsupported(f"a loop variable `{source_name(loop.var.name)}` that is assigned elsewhere",
                              loop.loc, "rename it")  # fmt: skip
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
        node = Branch(self.number(stmt.cond), [], [], stmt.loc, both=self.in_step(stmt))
        self.declare_numbers(stmt)
        self.nodes.append(node)
        self.branches += 1
        with self.inside(node.then):
            self.note_test(stmt.cond)
            self.block(stmt.then)
        with self.inside(node.orelse):
            self.block(stmt.orelse)
        self.branches -= 1

    def in_step(self, _stmt: If) -> bool:
        """Whether two kinds of cores come past a branch."""
        return False

    def note_test(self, cond: Operand) -> None:
        """Where a condition holds, a number that is compared with 0 is more than that."""
        mutable = self.facts.mutable
        test = self.defined.get(cond.name) if isinstance(cond, Var) and cond.name not in mutable else None
        if test is not None and test.op == "lt" and test.args[0] == index(0):
            number = test.args[1]
            if isinstance(number, Var) and number.name not in mutable:
                condition = f"0 < {text(self.size(number))}"
                self.scopes[-1][condition] = condition

    def declare_numbers(self, stmt: For | If | While) -> None:
        """Numbers that are assigned several times, in a statement first, and are read after it."""
        if not self.several:
            return
        made = {v.name: v for s in statements((stmt,)) if isinstance(s, Op) for v in defs(s)}
        numbers = [v for name, v in made.items() if name in self.several]
        if not numbers:
            return
        inside = use_counts((stmt,))
        for var in numbers:
            read = self.facts.uses[var.name] > inside[var.name] and not self.is_on_tiles(var)
            if read and not any(self.names.of(var.name) in scope for scope in self.scopes):
                self.scalars.declare(var, stmt.loc)

    def is_on_tiles(self, var: Var) -> bool:
        """Whether a number is kept as a tile of one element."""
        return False

    # -- for subclasses -------------------------------------------------------------------------------------------

    def is_tile_work(self, op: Op) -> bool:
        return False

    def tile_operation(self, op: Op) -> None:
        raise NotImplementedError

    def form(self) -> KernelForm:
        return KernelForm(self.func.name, self.core, self.parameters, self.nodes, self.limited, self.checks)

# SPDX-License-Identifier: MIT
"""What becomes a kernel: nests of parallel loops, and runs of tile operations, taken out of the host code.

The result is a module again: the entry is host code that calls one in-core function per launch.

Before::

    func @scale(%x, %y)                            // orchestration
      FOR %c:idx, 0:idx, %chunks:idx, 1:idx {kind=chunk}
        SCOPE @scale_incore_0
          FOR %r:idx, %lo:idx, %hi:idx, 1:idx {kind=in_chunk}
            ...

After::

    func @scale(%x, %y)
      CALL @scale_incore_0(%chunks, %x, %y)

    func @scale_incore_0(%chunks, %x, %y)          // one launch: both loops are the grid
      FOR %c:idx, 0:idx, %chunks:idx, 1:idx {kind=chunk}
        FOR %r:idx, %lo:idx, %hi:idx, 1:idx {kind=in_chunk}
          ...

A tile that is loaded or generated outside a nest and read inside is loaded there again; any other tile that one kernel
makes and another reads goes through a tensor of its own.
"""

from __future__ import annotations

from pto_jit.dtypes import i64
from pto_jit.ir.flow import Later, Reads, free_vars
from pto_jit.ir.nodes import (
    Block,
    Break,
    Call,
    Const,
    Continue,
    For,
    Func,
    If,
    Module,
    Op,
    Return,
    Scope,
    Stmt,
    Var,
    While,
)
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, blocks, defs, map_blocks, statements, uses, with_blocks
from pto_jit.slotted import replace
from pto_jit.targets.cuda.between import TilesBetween, always_makes
from pto_jit.targets.cuda.bounds import bounded
from pto_jit.targets.cuda.elements import fold_of, folds_inside, merges_parts
from pto_jit.targets.cuda.flatten import unsupported
from pto_jit.targets.cuda.loops import is_parallel, jump_out_of, read_tensor, touches_tiles, writes, written_tensor
from pto_jit.targets.cuda.views import Views
from pto_jit.targets.source.identifiers import RESERVED, identifier
from pto_jit.targets.source.library_names import is_taken

_REPEATABLE = ("load", "full", "arange")
_INDEX = ScalarType(i64)


def outline_kernels(func: Func, module_name: str, *, shared: bool = False) -> Module:
    """The host function and one in-core function per kernel; TargetError for what cannot be a kernel or host code.

    Kernels whose tiles have extents that are read from memory get numbers that those do not exceed (`bounds`).

    shared: the threads of a kernel share folds under conditions and in sequential loops, too.
    """
    outliner = _Outliner(func, shared)
    body = outliner.block(func.body, incore=False, name=func.name, after=Later())
    return Module(module_name, (replace(func, body=tuple(body)), *outliner.kernels), func.name)


def _makes_table(loop: For, *, any_numbers: bool) -> bool:
    """Whether a loop writes elements one after the other and does nothing else: integers of 64 bits, as the offsets of
    lists; or, with `any_numbers`, whatever an iteration makes of what the ones before it have made."""
    inside = list(statements(loop.body))
    tables = [s for s in inside if writes(s)]
    return (
        loop.kind == "sequential"
        and bool(tables)
        and all(isinstance(s, Op) and s.op == "setelem" for s in tables)
        and (all(s.args[0].type == _INDEX for s in tables) or (any_numbers and _hands_on(loop)))  # type: ignore[union-attr]
        and all(
            (isinstance(s, Op) and not touches_tiles(s) and s.op not in ("alloc", "print", "assert"))
            or (isinstance(s, (For, If)) and not is_parallel(s))
            or (any_numbers and isinstance(s, (While, Break, Continue)))
            for s in inside
        )
    )


def _hands_on(loop: For) -> bool:
    """Whether iterations read numbers, or elements of a tensor, that earlier ones may have written."""
    inside = list(statements(loop.body))
    made = {r.name for s in inside if isinstance(s, Op) for r in s.results}
    tensors = {written_tensor(s) for s in inside if writes(s)}
    return bool(made & {v.name for v in free_vars(loop.body)}) or any(read_tensor(s) in tensors for s in inside)


class _Run:
    """Statements that become one kernel, and what is asked about them: whether there are sequential loops over elements
    among them, operations on tiles, and such that write a tensor."""

    def __init__(self) -> None:
        self.stmts: list[Stmt] = []
        self.clear()

    def clear(self) -> None:
        self.stmts.clear()
        self.made: set[str] = set()
        self.read: set[str] = set()
        self.loops = self.tiles = self.writes = False

    def append(self, stmt: Stmt) -> None:
        self.stmts.append(stmt)
        self.made |= block_defs((stmt,))
        self.read |= {v.name for v in free_vars((stmt,))}
        self.loops = self.loops or _is_plain_loop(stmt)
        self.tiles = self.tiles or touches_tiles(stmt)
        self.writes = self.writes or any(map(writes, statements((stmt,))))

    def makes_for(self, stmt: Stmt) -> bool:
        """Whether they make what a statement reads directly."""
        return bool(self.made) and any(v.name in self.made for v in uses(stmt))

    def reads_what(self, stmt: Stmt) -> bool:
        """Whether they read what a statement after them assigns again."""
        return any(v.name in self.read for v in defs(stmt))


class _Outliner(TilesBetween):
    def __init__(self, func: Func, shared: bool) -> None:
        super().__init__(func)
        self.shared = shared
        self.views = Views(func)
        self.kernels: list[Func] = []
        self.names: set[str] = {func.name, *RESERVED}
        self.tried: dict[str, int] = {}  # of a wish: the number that was tried last
        self.places = 0

    def block(self, block: Block, *, incore: bool, name: str, after: Later) -> list[Stmt]:
        """Host code for a block; `after`: what runs later than all of it."""
        out: list[Stmt] = []
        run = _Run()
        reads = Reads(block)

        def close(position: int) -> None:
            if run.stmts:
                self._run(tuple(run.stmts), name, after.and_(reads.end(position)), out)
                run.clear()

        for position, stmt in enumerate(block):
            if run.loops and touches_tiles(stmt):
                close(position)
            if incore and self.shared and isinstance(stmt, For):
                later = after.and_(reads.end(position + 1))
                if folds_inside(stmt, {name for name in block_defs((stmt,)) if name in later}):
                    if run.tiles:
                        close(position)
                    run.append(stmt)
                    continue
            if isinstance(stmt, Op) and touches_tiles(stmt):
                name_ = stmt.results[0].name if stmt.results else ""
                if stmt.op in _REPEATABLE and not run.makes_for(stmt) and not self._has_memory(name_):
                    if run.writes:  # what is loaded, perhaps
                        close(position)
                    self._declare(stmt)
                    self.pending[name_] = stmt
                    self.paths[name_] = self.path
                else:
                    run.append(stmt)
                continue
            if isinstance(stmt, (For, While, If)) and touches_tiles(stmt) and not _is_host_work(stmt):
                run.append(stmt)
                continue
            if incore and isinstance(stmt, For) and stmt.kind != "sequential":
                end = reads.end(position + 1)
                read = {name for name in block_defs(stmt.body) if end.names(name)}
                if merges_parts(stmt) or fold_of(stmt, read, every=not self.shared) is not None:
                    run.append(stmt)
                    continue
            if incore and isinstance(stmt, Op) and stmt.op == "setelem" and run.makes_for(stmt):  # keeps a result
                run.append(stmt)
                continue
            if isinstance(stmt, Op) and stmt.op == "getelem" and run.loops:
                run.append(stmt)  # what the loop may have written
                continue
            if run.stmts and isinstance(stmt, Op) and not writes(stmt) and stmt.op not in ("getelem", "alloc"):
                if not run.makes_for(stmt):
                    if not run.reads_what(stmt):
                        out.append(stmt)  # host arithmetic that the run does not touch
                        continue
                elif not stmt.results or not isinstance(stmt.results[0].type, TensorType):
                    run.append(stmt)
                    continue
            close(position)
            self._host(stmt, incore, name, after.and_(reads.end(position + 1)), out)
        close(len(block))
        return out

    def _host(self, stmt: Stmt, incore: bool, name: str, after: Later, out: list[Stmt]) -> None:
        """Host code for a statement; `after`: what runs later than it."""
        match stmt:
            case Scope():
                out += self.block(stmt.body, incore=True, name=stmt.name, after=after)
            case For() if is_parallel(stmt) and (touches_tiles(stmt) or _touches_memory(stmt)):
                inner = next((s.name for s in statements(stmt.body) if isinstance(s, Scope)), name)
                self._kernel((_without_scopes(stmt),), inner, after, out)
            case For() if incore and _makes_table(stmt, any_numbers=not self.shared):
                self._kernel((self._one_thread(stmt),), name, after, out)
            case For():
                self._no_elements(stmt, incore)
                later = after.and_(Reads(stmt.body).end(0))
                self._enter(stmt, later, out)
                body = self.block(stmt.body, incore=incore, name=name, after=later)
                self.path = self.path[:-1]
                out.append(replace(stmt, body=tuple(body), kind="sequential"))
            case While():
                self._no_elements(stmt, incore)
                later = after.and_(Reads(stmt.before).end(0), Reads(stmt.body).end(0))
                self._enter(stmt, later, out)
                before = self.block(stmt.before, incore=incore, name=name, after=later)
                body = self.block(stmt.body, incore=incore, name=name, after=later)
                self.path = self.path[:-1]
                out.append(replace(stmt, before=tuple(before), body=tuple(body)))
            case If():
                self._enter(stmt, after, out)
                then = self.block(stmt.then, incore=incore, name=name, after=after)
                self.path = (*self.path[:-1], self._place())
                orelse = self.block(stmt.orelse, incore=incore, name=name, after=after)
                self.path = self.path[:-1]
                out.append(replace(stmt, then=tuple(then), orelse=tuple(orelse)))
            case Return() if any(isinstance(v.type, TileType) for v in stmt.values):
                raise unsupported("a tile as a result", stmt.loc, "store it into a tensor")
            case _:
                out.append(stmt)

    def _enter(self, stmt: Stmt, later: Later, out: list[Stmt]) -> None:
        """Go on inside a loop or branch of the host: tiles that it changes are in memory from here on, and those that
        are loaded from what it may write and read `later`."""
        inside = {d.name for block in blocks(stmt) for s in statements(block) for d in defs(s)}
        for name in sorted(inside & self.changing & set(self.pending)):
            self._settle(self.pending[name], out)
        self._settle_changed(_written((stmt,)), later, out)
        self.path = (*self.path, self._place())

    def _place(self) -> int:
        """A number for a block of host code."""
        self.places += 1
        return self.places

    def _one_thread(self, loop: For) -> For:
        """A parallel loop of one iteration around a sequential one: one thread takes its steps."""
        var = Var(self._fresh("thread"), _INDEX)
        zero, one = Const(0, _INDEX), Const(1, _INDEX)
        return For("parallel", var, zero, one, one, (loop,), loc=loop.loc)

    def _no_elements(self, loop: For | While, incore: bool) -> None:
        """Refuse to read and write elements one by one from the host, but for what stops the program, checks, and what
        says which parts of tensors the kernels work on that an iteration launches."""
        inside = statements(loop.body)
        if not incore or touches_tiles(loop) or any(
            isinstance(s, Op) and s.op == "assert" and s.attr("always") for s in inside
        ):
            return
        for stmt in loop.body:
            if isinstance(stmt, Op) and stmt.op in ("getelem", "setelem"):
                if isinstance(loop, For) and loop.kind == "combine":
                    raise unsupported(
                        "a reduction of numbers by a function that does more than compute numbers", stmt.loc,
                        "leave `print`, assertions, `break` and `continue` out of it",
                    )  # fmt: skip
                raise unsupported(
                    "a sequential loop over elements", stmt.loc,
                    "give the loop parallel=True if its iterations are independent or it reduces, or work on tiles "
                    "(of what one iteration hands to the next: `pl.cumsum`, `pl.associative_scan`)",
                )  # fmt: skip

    # -- kernels --------------------------------------------------------------------------------------------------

    def _run(self, run: Block, name: str, after: Later, out: list[Stmt]) -> None:
        if any(writes(s) for s in statements(run)) or any(map(after.names, block_defs(run))):
            self._kernel(run, name, after, out)

    def _kernel(self, body: Block, name: str, after: Later, out: list[Stmt]) -> None:
        for s in statements(body):
            if isinstance(s, Op) and s.op == "alloc":
                raise unsupported(
                    "a new tensor inside a parallel loop", s.loc,
                    "make it before the loop; where it is the tile that an in-core function returns, put the loop into "
                    "`with pl.incore():`, or let the function store it",
                )  # fmt: skip
        leave = jump_out_of(body)
        if leave is not None:
            raise unsupported("leaving a loop of the host from a kernel", leave.loc, "leave it where no tiles are used")
        made = {v.name: v for s in statements(body) for v in defs(s)}
        body = self._with_inputs(body)
        for name_ in made:  # whatever the kernel begins with
            self.pending.pop(name_, None)
        body = bounded(body, self.func, self._fresh, self._launch, out)
        answers: list[Stmt] = []
        for var in made.values():
            if var.name not in after:
                continue
            if isinstance(var.type, ScalarType):
                body = self._return(var, body, out, answers)
            if isinstance(var.type, TileType):
                body = self._spill(var, body, out)
        self._forget_unread(after)
        self._settle_changed(_written(body), after, out)
        self._launch(body, name, out)
        out += answers

    def _launch(self, body: Block, name: str, out: list[Stmt]) -> None:
        """A new kernel, and its call."""
        wish = self._name(name)
        body = self.views.made_inside(body)
        params = tuple(sorted(free_vars(body), key=lambda v: not isinstance(v.type, TensorType)))
        loc = body[0].loc
        self.kernels.append(Func(wish, "incore", params, (), (*body, Return((), loc)), loc))
        out.append(Call(wish, params, (), loc))

    def _return(self, var: Var, body: Block, out: list[Stmt], answers: list[Stmt]) -> Block:
        """A number that is read after a kernel goes by way of a tensor; the host waits for the kernel to read it."""
        if not always_makes(body, var) and var not in free_vars(body):
            raise unsupported(
                f"the number `{var.name}`, made in a loop or branch of a kernel and read after it", body[0].loc,
                "write it into a tensor, and read it from there",
            )  # fmt: skip
        assert isinstance(var.type, ScalarType)
        loc = body[0].loc
        memory = Var(self._fresh(f"{var.name}.memory"), TensorType(var.type.dtype, (1,), "c"))
        out.append(Op("alloc", (memory,), (Const(1, _INDEX),), (("dtype", var.type.dtype),), (), loc))
        answers.append(Op("getelem", (var,), (memory, Const(0, _INDEX)), (), (), loc))
        return (*body, Op("setelem", (), (var, memory, Const(0, _INDEX)), (), (), loc))

    def _name(self, wish: str) -> str:
        wish = identifier(wish)
        name, count = wish, self.tried.get(wish, 0)
        while name in self.names or (name == wish and is_taken(wish)):
            count += 1
            name = f"{wish}_{count}"
        self.tried[wish] = count
        self.names.add(name)
        return name


def _is_plain_loop(stmt: Stmt) -> bool:
    """A sequential loop over elements that a block shares (`folds_inside`)."""
    return isinstance(stmt, For) and stmt.kind == "sequential" and not touches_tiles(stmt)


def _written(body: Block) -> set[str]:
    """The names of the tensors that statements write."""
    return {s.args[_destination(s)].name for s in statements(body) if isinstance(s, Op) and writes(s)}  # type: ignore


def _destination(op: Stmt) -> int:
    return 2 if isinstance(op, Op) and op.op == "put" else 1


def _is_host_work(stmt: Stmt) -> bool:
    """Whether a statement launches nests or in-core functions."""
    return any(is_parallel(s) or isinstance(s, Scope) for s in statements((stmt,)))


def _touches_memory(stmt: Stmt) -> bool:
    return any(isinstance(s, Op) and s.op in ("getelem", "setelem") for s in statements((stmt,)))


def _without_scopes(stmt: Stmt) -> Stmt:
    def dissolve(block: Block) -> Block:
        if not any(isinstance(s, Scope) for s in block):
            return block
        return tuple(inner for s in block for inner in (s.body if isinstance(s, Scope) else (s,)))

    return with_blocks(stmt, tuple(map_blocks(b, dissolve) for b in blocks(stmt)))

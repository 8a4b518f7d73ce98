# SPDX-License-Identifier: MIT
"""Walking and rewriting programs: what every pass is made of.

Rewriting passes locations on and gives the *same object* back where nothing changed, so `after is before` says that a
pass found nothing to do.  "Direct" below means of the statement itself, not of the blocks inside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import TypeVar

from pto_jit.ir.nodes import (
    Block,
    Call,
    For,
    Func,
    Fuse,
    If,
    Module,
    Op,
    Operand,
    Reduction,
    Region,
    Return,
    Scope,
    Stmt,
    Var,
    While,
)
from pto_jit.slotted import mutable, replace

T = TypeVar("T")

TENSOR_VIEWS = ("view", "tensor_reshape", "tensor_transpose", "tensor_step")
"""Operations whose result is memory of their first operand."""

WRITES = {"store": 1, "setelem": 1, "atomic_add": 1, "atomic_max": 1, "atomic_min": 1, "put": 2}
"""Operations that write a tensor, with its place among their operands."""

# -- reading ----------------------------------------------------------------------------------------------------


def blocks(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks directly inside a statement, those of its regions too."""
    kind = type(stmt)
    if kind is Op:
        return tuple(region.body for region in stmt.regions) if stmt.regions else ()  # pyright: ignore
    if kind is For:
        return (stmt.body, *(region.body for region in combines(stmt))) if stmt.reductions else (stmt.body,)  # pyright: ignore
    if isinstance(stmt, (Scope, Fuse)):
        return (stmt.body,)
    if isinstance(stmt, If):
        return (stmt.then, stmt.orelse)
    if isinstance(stmt, While):
        return (stmt.before, stmt.body)
    return ()


def combines(loop: For) -> tuple[Region, ...]:
    """The combine functions among the reductions of a loop."""
    return tuple(r.combine for r in loop.reductions if isinstance(r.combine, Region))


def statements(block: Block) -> Iterator[Stmt]:
    """All statements of a block, nested ones too, in the order of the text."""
    return iter(_flat(block))


def use_counts(block: Block) -> Counter[str]:
    """How often each variable is read in a block.  Not to be changed: all who ask about the block are given it."""
    return _uses_told(_told(block))


def def_counts(block: Block) -> Counter[str]:
    """How often each variable is assigned or bound in a block, as `defs` tells.  Not to be changed."""
    return _defs_told(_told(block))


def _uses_told(told: Told) -> Counter[str]:
    if told.uses is None:
        told.uses = Counter(_names_read(told.flat))
    return told.uses


def _defs_told(told: Told) -> Counter[str]:
    if told.defs is None:
        told.defs = Counter(_names_made(told.flat))
    return told.defs


@mutable(eq=False)
class Told:
    """What was told of a block."""

    block: Block
    flat: list[Stmt]
    uses: Counter[str] | None = None
    defs: Counter[str] | None = None
    free: dict[str, tuple[Var, Stmt]] | None = None


_LARGE = 6  # statements
_BLOCKS = 2048
_recent: dict[int, Told] = {}
"""The last large blocks that somebody asked about: passes ask the same about the same body, over and over.  The key is
the block's identity, which nobody else gets while it is kept here; a block never changes."""


def _remembered(block: Block) -> Told | None:
    """What was told of a block, if that was kept."""
    known = _recent.get(id(block))
    return known if known is not None and known.block is block else None


def _keep(block: Block, flat: list[Stmt]) -> Told:
    """What is told of a block with these statements, from now on also to others where that is worth it."""
    told = Told(block, flat)
    if len(flat) >= _LARGE and type(block) is tuple:
        if len(_recent) >= _BLOCKS:
            _recent.clear()
        _recent[id(block)] = told
    return told


def _told(block: Block) -> Told:
    return _remembered(block) or _keep(block, _flattened(block))


def told_of(block: Block) -> Told | None:
    """What is told of a block; None: of some operations, which are looked at at once."""
    return None if _is_small(block) else _told(block)


def _is_small(block: Block) -> bool:
    """Whether a block is but a few operations without blocks inside."""
    if len(block) >= _LARGE:
        return False
    return all(type(stmt) is Op and not stmt.regions for stmt in block)


def _flat(block: Block) -> Sequence[Stmt]:
    """All statements of a block, nested ones too, in the order of the text."""
    if _is_small(block):
        return block
    known = _remembered(block)
    if known is not None:
        return known.flat
    flat = _flattened(block)
    if len(flat) >= _LARGE:
        _keep(block, flat)
    return flat


def _flattened(block: Block) -> list[Stmt]:
    flat: list[Stmt] = []
    for stmt in block:
        flat.append(stmt)
        if type(stmt) is not Op or stmt.regions:
            for inner in blocks(stmt):
                flat += _flat(inner)
    return flat


def operands(stmt: Stmt) -> tuple[Operand, ...]:
    """What a statement reads directly; the results of its regions count."""
    match stmt:
        case Op():
            if stmt.regions:
                return stmt.args + tuple(result for region in stmt.regions for result in region.results)
            return stmt.args
        case For():
            bounds = (stmt.start, stmt.stop, stmt.step)
            if stmt.chunk is not None:
                bounds = (*bounds, stmt.chunk)
            if stmt.grain is not None:
                bounds = (*bounds, stmt.grain)
            if stmt.reductions:
                bounds += tuple(operand for reduction in stmt.reductions for operand in reduction.init)
                bounds += tuple(result for region in combines(stmt) for result in region.results)
            return bounds
        case While() | If():
            return (stmt.cond,)
        case Call():
            return stmt.args
        case Return():
            return stmt.values
        case _:
            return ()


def uses(stmt: Stmt) -> tuple[Var, ...]:
    """The variables a statement reads directly."""
    found = stmt.args if type(stmt) is Op and not stmt.regions else operands(stmt)
    return tuple([operand for operand in found if type(operand) is Var])


def _names_read(flat: Sequence[Stmt]) -> list[str]:
    """The names that statements read directly, as `uses` tells: without a call for each, nearly all are operations."""
    return [
        operand.name
        for stmt in flat
        for operand in (stmt.args if type(stmt) is Op and not stmt.regions else operands(stmt))
        if type(operand) is Var
    ]


def defs(stmt: Stmt) -> tuple[Var, ...]:
    """The variables a statement assigns or binds directly: results, the loop variable, parameters of regions."""
    if type(stmt) is Op:
        if stmt.regions:
            return stmt.results + tuple(param for region in stmt.regions for param in region.params)
        return stmt.results
    if isinstance(stmt, Call):
        return stmt.results
    if isinstance(stmt, For):
        if stmt.reductions:
            return (stmt.var, *(param for region in combines(stmt) for param in region.params))
        return (stmt.var,)
    return ()


def vars_made(flat: Iterable[Stmt]) -> list[Var]:
    """The variables that statements assign or bind directly, as `defs` tells, once for each time."""
    return [var for stmt in flat for var in (stmt.results if type(stmt) is Op and not stmt.regions else defs(stmt))]


def _names_made(flat: Iterable[Stmt]) -> list[str]:
    """Their names."""
    return [var.name for var in vars_made(flat)]


def block_uses(block: Block) -> set[str]:
    """Names read anywhere in a block."""
    told = told_of(block)
    return set(_names_read(block)) if told is None else set(_uses_told(told))


def block_defs(block: Block) -> set[str]:
    """Names assigned or bound anywhere in a block."""
    told = told_of(block)
    return set(_names_made(block)) if told is None else set(_defs_told(told))


def block_names(block: Block) -> tuple[list[str], list[str]]:
    """Names read anywhere in a block, and names assigned or bound, once for each time."""
    flat = _flat(block)
    return _names_read(flat), _names_made(flat)


def variables(block: Block) -> Iterator[Var]:
    """The variables of a block in the order of the text, once per appearance; a statement's uses before its results."""
    for stmt in statements(block):
        yield from uses(stmt)
        yield from defs(stmt)


# -- rewriting --------------------------------------------------------------------------------------------------

Visit = Callable[[Stmt], Block | Stmt | None]


def with_blocks(stmt: Stmt, new: tuple[Block, ...]) -> Stmt:
    """`stmt` with other blocks inside it, in the order of `blocks`; itself when they are the same objects."""
    old = blocks(stmt)
    if all(map(is_, old, new)):
        return stmt
    if isinstance(stmt, Op):
        regions = tuple(
            region if region.body is body else replace(region, body=body)
            for region, body in zip(stmt.regions, new, strict=True)
        )
        return replace(stmt, regions=regions)
    if isinstance(stmt, If):
        return replace(stmt, then=new[0], orelse=new[1])
    if isinstance(stmt, While):
        return replace(stmt, before=new[0], body=new[1])
    if isinstance(stmt, For) and stmt.reductions:
        bodies = iter(new[1:])
        reductions = tuple(
            replace(r, combine=replace(r.combine, body=next(bodies))) if isinstance(r.combine, Region) else r
            for r in stmt.reductions
        )
        return replace(stmt, body=new[0], reductions=reductions)
    assert isinstance(stmt, (For, Scope, Fuse))
    return replace(stmt, body=new[0])


def rewrite_block(block: Block, visit: Visit, *, plain: bool = True) -> Block:
    """Replace statements, inner ones first.

    `visit` is called once with each statement, whose inner blocks are rewritten by then.  It returns None (keep), a
    statement, or a block that takes the statement's place (empty: remove it).  plain: also with operations that have no
    blocks inside, which nearly all statements are.
    """
    result: list[Stmt] | None = None
    for position, stmt in enumerate(block):
        if type(stmt) is Op and not stmt.regions:
            if not plain:
                if result is not None:
                    result.append(stmt)
                continue
            current = stmt
        else:
            inner = tuple([rewrite_block(b, visit, plain=plain) for b in blocks(stmt)])
            current = with_blocks(stmt, inner) if inner else stmt
        replacement = visit(current)
        if replacement is None:
            replacement = current
        if result is None and replacement is not stmt:
            result = list(block[:position])
        if result is not None:
            if isinstance(replacement, tuple):
                result.extend(replacement)
            else:
                result.append(replacement)
    return block if result is None else tuple(result)


def map_statements(block: Block, fn: Callable[[Stmt], Stmt]) -> Block:
    """Replace each statement by one statement, inner ones first."""
    return rewrite_block(block, fn)


def map_blocks(block: Block, fn: Callable[[Block], Block]) -> Block:
    """Apply `fn` to every block, inner ones first, `block` itself last."""

    def visit(stmt: Stmt) -> Stmt:
        inner = blocks(stmt)
        return with_blocks(stmt, tuple(fn(b) for b in inner)) if inner else stmt

    return fn(rewrite_block(block, visit, plain=False))


def rewrite_func(func: Func, visit: Visit, *, plain: bool = True) -> Func:
    """`rewrite_block` of the body."""
    body = rewrite_block(func.body, visit, plain=plain)
    return func if body is func.body else replace(func, body=body)


def map_funcs(module: Module, fn: Callable[[Func], Func]) -> Module:
    """Replace each function by one function."""
    funcs = tuple(fn(func) for func in module.funcs)
    return module if all(a is b for a, b in zip(funcs, module.funcs, strict=True)) else replace(module, funcs=funcs)


def substitute(block: Block, mapping: Mapping[str, Operand]) -> Block:
    """Replace reads of variables by other operands, following chains in `mapping`; assignments stay.

    The caller knows that the operands have the same values at every read.
    """

    def chase(operand: Operand) -> Operand:
        if type(operand) is not Var or operand.name not in mapping:
            return operand
        seen = 0
        while isinstance(operand, Var) and operand.name in mapping and seen <= len(mapping):
            operand = mapping[operand.name]
            seen += 1
        return operand

    return rewrite_block(block, lambda stmt: with_operands(stmt, chase, None)) if mapping else block


def rename(block: Block, names: Mapping[str, str]) -> Block:
    """Give variables other names, where they are read and where they are assigned."""

    def var(old: Var) -> Var:
        new = names.get(old.name, old.name)
        return old if new == old.name else Var(new, old.type)

    def read(operand: Operand) -> Operand:
        return var(operand) if isinstance(operand, Var) else operand

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Fuse):
            keep = tuple(names.get(name, name) for name in stmt.keep)
            return stmt if keep == stmt.keep else replace(stmt, keep=keep)
        return with_operands(stmt, read, var)

    return rewrite_block(block, visit) if names else block


def with_operands(stmt: Stmt, read: Callable[[Operand], Operand], define: Callable[[Var], Var] | None) -> Stmt:
    """A statement with each operand read through `read` and each variable it assigns through `define`."""
    match stmt:
        case Op():
            args, results, regions = _each(stmt.args, read), _each(stmt.results, define), stmt.regions
            if regions:
                regions = _each(regions, lambda region: _with_region(region, read, define))
            if args is stmt.args and results is stmt.results and regions is stmt.regions:
                return stmt
            return replace(stmt, args=args, results=results, regions=regions)
        case For():
            start, stop, step = read(stmt.start), read(stmt.stop), read(stmt.step)
            chunk = None if stmt.chunk is None else read(stmt.chunk)
            grain = None if stmt.grain is None else read(stmt.grain)
            var = stmt.var if define is None else define(stmt.var)
            reductions = _each(stmt.reductions, lambda reduction: _with_reduction(reduction, read, define))
            same = start is stmt.start and stop is stmt.stop and step is stmt.step
            same = same and chunk is stmt.chunk and grain is stmt.grain
            if same and var is stmt.var and reductions is stmt.reductions:
                return stmt
            return replace(
                stmt, start=start, stop=stop, step=step, chunk=chunk, grain=grain, var=var, reductions=reductions
            )
        case While() | If():
            cond = read(stmt.cond)
            return stmt if cond is stmt.cond else replace(stmt, cond=cond)
        case Call():
            args, results = _each(stmt.args, read), _each(stmt.results, define)
            return stmt if args is stmt.args and results is stmt.results else replace(stmt, args=args, results=results)
        case Return():
            values = _each(stmt.values, read)
            return stmt if values is stmt.values else replace(stmt, values=values)
        case _:
            return stmt


def _with_region(region: Region, read: Callable[[Operand], Operand], define: Callable[[Var], Var] | None) -> Region:
    params, results = _each(region.params, define), _each(region.results, read)
    if params is region.params and results is region.results:
        return region
    return replace(region, params=params, results=results)


def _with_reduction(
    reduction: Reduction, read: Callable[[Operand], Operand], define: Callable[[Var], Var] | None
) -> Reduction:
    state, init, combine = _each(reduction.state, define), _each(reduction.init, read), reduction.combine
    if isinstance(combine, Region):
        combine = _with_region(combine, read, define)
    if state is reduction.state and init is reduction.init and combine is reduction.combine:
        return reduction
    return Reduction(state, init, combine)


def _each(items: tuple[T, ...], fn: Callable[[T], T] | None) -> tuple[T, ...]:
    if fn is None or not items:
        return items
    new = tuple(map(fn, items))
    return items if all(map(is_, items, new)) else new

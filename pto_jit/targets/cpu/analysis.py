# SPDX-License-Identifier: MIT
"""What the CPU target asks before it writes: which tiles may be views, which products are repeated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from pto_jit.ir.nodes import Block, Call, Const, For, Func, Fuse, If, Module, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, WRITES, block_defs, block_uses, def_counts, defs, statements
from pto_jit.ir.walk import uses as used
from pto_jit.lower.groups.axes import is_elementwise

Root = tuple[str | None, ...]
"""Where memory comes from, once for every way in which a function is reached: the allocation, `ARGUMENT` for what the
arguments of the program are made of, None for what is not known."""

ARGUMENT = ""


class Aliasing:
    """Which tensors may share memory: one that the program allocated shares with its views only.

    Arguments of the program may overlap.  Parameters of other functions are what their calls give them.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self._calls: dict[str, list[tuple[Func, Call]]] = {}
        for func in module.funcs:
            for stmt in statements(func.body):
                if isinstance(stmt, Call):
                    self._calls.setdefault(stmt.callee, []).append((func, stmt))
        self._known: dict[str, tuple[int, dict[str, Root]]] = {}

    def of(self, func: Func) -> dict[str, Root]:
        """The roots of the tensors of a function, and of the tiles that are loads of them; of others it has none."""
        return self._function(func)[1]

    def _function(self, func: Func) -> tuple[int, dict[str, Root]]:
        """The number of ways to the function, and its roots."""
        if func.name in self._known:
            return self._known[func.name]
        ways, roots = self._parameters(func)
        seen = set(roots)
        for stmt in statements(func.body):
            for var in defs(stmt):
                if not isinstance(var.type, (TensorType, TileType)):
                    continue
                root = None if var.name in seen else self._made(func, stmt, ways, roots)
                seen.add(var.name)
                if root is None:
                    roots.pop(var.name, None)
                else:
                    roots[var.name] = root
        self._known[func.name] = ways, roots
        return ways, roots

    def _parameters(self, func: Func) -> tuple[int, dict[str, Root]]:
        if func.name == self.module.entry:
            return 1, {p.name: (ARGUMENT,) for p in func.params}
        calls = self._calls.get(func.name)
        if calls is None:  # called from elsewhere
            return 1, {}
        ways = 0
        roots: dict[str, Root] = {p.name: () for p in func.params}
        for caller, call in calls:
            more, outer = self._function(caller)
            ways += more
            for param, arg in zip(func.params, call.args, strict=True):
                known = outer.get(arg.name) if isinstance(arg, Var) else None
                roots[param.name] += known or (None,) * more
        return ways, roots

    @staticmethod
    def _made(func: Func, stmt: Stmt, ways: int, roots: dict[str, Root]) -> Root | None:
        if not isinstance(stmt, Op):
            return None
        if stmt.op == "alloc":
            return (f"{func.name}:{stmt.results[0].name}",) * ways
        if stmt.op in ("load", *TENSOR_VIEWS, *_VIEWS):
            source = stmt.args[0]
            return roots.get(source.name) if isinstance(source, Var) else None
        return None


def may_share(one: Root | None, other: Root | None) -> bool:
    """Whether two roots of a function may be the same memory."""
    if one is None or other is None:
        return True
    return any(a == b or a is None or b is None for a, b in zip(one, other, strict=True))


def _written(stmt: Stmt, roots: dict[str, Root]) -> set[Root | None]:
    """The memory that a statement may write."""
    out: set[Root | None] = set()
    for inner in statements((stmt,)):
        if isinstance(inner, Op) and inner.op in WRITES:
            targets = (inner.args[WRITES[inner.op]],)
        else:
            targets = inner.args if isinstance(inner, Call) else ()
        out |= {roots.get(a.name) for a in targets if isinstance(a, Var) and isinstance(a.type, TensorType)}
    return out


def loads_to_copy(block: Block, find_roots: Callable[[], dict[str, Root]]) -> set[str]:
    """Loads (and views made of them) whose memory may be written before their last use: these cannot be views."""
    defined: dict[str, int] = {}
    for k, stmt in enumerate(block):
        for op in stmt.body if isinstance(stmt, Fuse) else (stmt,):
            if isinstance(op, Op) and op.op in _IN_MEMORY:
                defined.update([(r.name, k) for r in op.results if isinstance(r.type, TileType)])
    writes = [k for k, stmt in enumerate(block) if writes_memory(stmt)] if defined else []
    if not writes:
        return set()
    last: dict[str, int] = {}
    for k, stmt in enumerate(block):
        read = block_uses(stmt.body if isinstance(stmt, Fuse) else (stmt,))
        last.update(dict.fromkeys(filter(defined.__contains__, read), k))
    for stmt in reversed(block):  # memory is in use as long as any view of it
        for op in reversed(stmt.body) if isinstance(stmt, Fuse) else (stmt,):
            if isinstance(op, Op) and op.op in _VIEWS and isinstance(op.args[0], Var) and op.args[0].name in defined:
                source = op.args[0].name
                last[source] = max(last.get(source, 0), *(last.get(r.name, 0) for r in op.results))
    out: set[str] = set()
    written: dict[int, set[Root | None]] = {}
    roots: dict[str, Root] = {}
    for name, at in defined.items():
        end = last.get(name, at)
        for k in writes:
            if not at <= k <= end:
                continue
            # a group sees to its own stores, a single operation reads before it writes
            if (k == end and isinstance(block[k], (Op, Fuse))) or (k == at and not isinstance(block[k], Fuse)):
                continue
            if not written:
                roots = find_roots()
            if k not in written:
                written[k] = _written(block[k], roots)
            if any(may_share(roots.get(name), other) for other in written[k]):
                out.add(name)
                break
    return out


_VIEWS = ("tile_slice", "reshape", "transpose", "flip", "copy")
_IN_MEMORY = frozenset(("load", *_VIEWS))


def writes_memory(stmt: Stmt) -> bool:
    """Whether a statement may write global memory."""
    if type(stmt) is Op and not stmt.regions:
        return stmt.op in WRITES
    return any(isinstance(s, Call) or (isinstance(s, Op) and s.op in WRITES) for s in statements((stmt,)))


def decides_once(body: Block, var: Var | None = None) -> bool:
    """Whether the iterations of a loop all decide something in the same way: a branch, or how an integer is divided.

    body, var: of the loop; loops in it are not looked into by themselves.
    """
    changing = block_defs(body) | ({var.name} if var is not None else set())
    counts = def_counts(body)
    for stmt in statements(body):
        if isinstance(stmt, If):
            if not _among(changing, (stmt.cond,)):
                return True
        elif isinstance(stmt, Op) and is_elementwise(stmt):
            if stmt.op in ("floordiv", "mod") and isinstance(stmt.args[1], Var) and not _among(changing, stmt.args[1:]):
                return True
            if not _among(changing, stmt.args):
                changing.difference_update(r.name for r in stmt.results if counts[r.name] == 1)
    return False


def _among(names: Collection[str], operands: Sequence[Operand]) -> bool:
    return any(isinstance(a, Var) and a.name in names for a in operands)


def added_products(block: Block, uses: Mapping[str, int], mutable: Collection[str]) -> list[tuple[int, ...]]:
    """Chains of products, each accumulating on the one before as its only use, by their places; most are one long.

    Between those of a chain are loads, views and scalars only, so that all may be computed where the last one stands.
    """
    chains: list[list[int]] = []
    before: Var | None = None
    for k, stmt in enumerate(block):
        if isinstance(stmt, Op) and stmt.op == "dot":
            result = stmt.results[0]
            if before is None or stmt.args[2:] != (before,) or result.name in mutable or _any(stmt, mutable):
                chains.append([])
            chains[-1].append(k)
            before = None if uses[result.name] != 1 or result.name in mutable or _any(stmt, mutable) else result
        elif not (isinstance(stmt, Op) and (stmt.op in ("load", *_VIEWS, *TENSOR_VIEWS) or _gives_scalars(stmt))):
            before = None
    return [tuple(chain) for chain in chains]


def _any(op: Op, names: Collection[str]) -> bool:
    """Whether an operation reads one of the variables."""
    return any(v.name in names for v in used(op))


def zero_accumulators(
    block: Block, chains: Sequence[Sequence[int]], uses: Mapping[str, int], mutable: Collection[str]
) -> dict[int, Op]:
    """By place the tiles of zeros that nothing reads but a chain of products that starts from them."""
    firsts = [block[chain[0]] for chain in chains]
    starts = {v.name for op in firsts if isinstance(op, Op) for v in op.args[2:] if isinstance(v, Var)}
    out: dict[int, Op] = {}
    for k, stmt in enumerate(block):
        op = stmt.body[0] if isinstance(stmt, Fuse) and len(stmt.body) == 1 else stmt
        if not isinstance(op, Op) or op.op != "full" or op.results[0].name not in starts:
            continue
        name, value = op.results[0].name, op.args[0]
        if uses[name] == 1 and name not in mutable and isinstance(value, Const) and value.value == 0:
            out[k] = op
    return out


def _gives_scalars(op: Op) -> bool:
    return op.op not in WRITES and not op.regions and all(isinstance(r.type, ScalarType) for r in op.results)


def repeated_products(module: Module) -> dict[int, Op]:
    """The products in loops, and in functions that are called in loops or from several places, by identity."""
    products: dict[str, list[Op]] = {}
    repeated: dict[int, Op] = {}
    calls: list[tuple[str, str, bool]] = []  # caller, callee, in a loop

    def walk(func: str, block: Block, loop: bool) -> None:
        for stmt in block:
            match stmt:
                case Op():
                    if stmt.op == "dot":
                        products.setdefault(func, []).append(stmt)
                        if loop:
                            repeated[id(stmt)] = stmt
                case Call():
                    calls.append((func, stmt.callee, loop))
                case For():
                    walk(func, stmt.body, True)
                case While():
                    walk(func, (*stmt.before, *stmt.body), True)
                case If():
                    walk(func, stmt.then, loop)
                    walk(func, stmt.orelse, loop)
                case Scope() | Fuse():
                    walk(func, stmt.body, loop)
                case _:
                    pass

    for func in module.funcs:
        walk(func.name, func.body, False)
    if not products:
        return {}
    often: set[str] = set()
    pending = [callee for k, (_, callee, loop) in enumerate(calls) if loop or callee in {c for _, c, _ in calls[:k]}]
    while pending:
        name = pending.pop()
        if name not in often:
            often.add(name)
            pending += [callee for caller, callee, _ in calls if caller == name]
    return repeated | {id(op): op for name in often for op in products.get(name, ())}

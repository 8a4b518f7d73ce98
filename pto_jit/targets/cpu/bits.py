# SPDX-License-Identifier: MIT
"""Loops that go over the bits of an integer, without the loop.

``while v: v &= v - 1; n += 1`` counts ones, ``while v: v >>= 1; n += 1`` the length of a number in bits, and
``while v & 1 == 0`` the zeros below its last one: processors have instructions for these, of vectors too.  LLVM finds
some such loops where they are scalar code and alone; here they are found before lanes are chosen, with sums of the
bits (``n += v & 1``), counters of any step and type, and other limits than 0 (``while v > 1``).

`ONES` and `LENGTH` are operations of this target alone: of an integer taken as unsigned, how many of its bits are one,
and the place of its highest one, from 1 on (0 of 0).

A loop that never ends, such as that of a negative number that is shifted until it is 0, ends.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pto_jit.dtypes import DType, bool_
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Attr, Block, Const, Func, Module, Op, Operand, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_defs, map_funcs, rewrite_func, statements, use_counts
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.names import BOOL, Names
from pto_jit.slotted import frozen

ONES, LENGTH = "ones", "length"
BITS = frozenset([ONES, LENGTH])

Tree = tuple[Any, ...]
"""What an iteration makes of the variables at its start: `("var", name)`, `("const", value)`, or an operation's name
with trees of its operands; a cast has its dtype in front of these."""

_TURNED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge", "eq": "eq", "ne": "ne"}


def without_bit_loops(module: Module) -> Module:
    """The program with operations on bits instead of such loops."""

    def convert(func: Func) -> Func:
        if not any(isinstance(s, While) for s in statements(func.body)):
            return func
        names, read = Names(func), use_counts(func.body)

        def visit(stmt: Stmt) -> Block | None:
            return _Loop(stmt, names).closed(read) if isinstance(stmt, While) else None

        return rewrite_func(func, visit, plain=False)

    return map_funcs(module, convert)


@frozen
class _Walk:
    """How a loop goes over the bits of `var`: `drop` takes the lowest one away, `shift` moves all of them down; it goes
    on while the number is not `limit` (`differs`), or above it, or its last bit is 0 (`limit` is None)."""

    var: Var
    drop: bool
    limit: int | None
    differs: bool = False


class _Loop:
    """A `while`, and the operations that take its place."""

    def __init__(self, source: While, names: Names) -> None:
        self.source = source
        self.names = names
        self.out: list[Stmt] = []

    def closed(self, read: Counter[str]) -> Block | None:
        """What gives the variables their values behind the loop; None where that is not known.  `read`: how often the
        function reads each name."""
        loop = self.source
        inside = (loop,)
        if not all(isinstance(s, Op) and _is_known(s) for s in (*loop.before, *loop.body)):
            return None
        made = block_defs(inside)
        carried = [v for v in free_vars(inside) if v.name in made]
        names, here = {v.name for v in carried}, use_counts(inside)
        if names & block_defs(loop.before) or not all(map(_is_integer, carried)):
            return None
        if any(read[name] > here[name] for name in made - names):
            return None
        trees: dict[str, Tree] = {}
        _follow(loop.before, trees)
        cond = _tree(loop.cond, trees)
        _follow(loop.body, trees)
        walk = next((w for v in carried if (w := _walk(v, cond, trees)) is not None), None)
        if walk is None:
            return None
        rounds = self.rounds(walk)
        finals: list[tuple[Var, Operand]] = [(walk.var, self.last(walk, rounds))]
        for var in carried:
            if var != walk.var:
                final = self.counted(var, trees[var.name], walk, rounds)
                if final is None:
                    return None
                finals.append((var, final))
        copies = [Op("copy", (var,), (final,), loc=loop.loc) for var, final in finals]
        return (*self.out, *copies)

    # -- operations ---------------------------------------------------------------------------------------------------

    def op(self, name: str, *args: Operand, typ: ScalarType | None = None) -> Var:
        of = args[0].type if typ is None else typ
        assert isinstance(of, ScalarType)
        result = self.names.fresh("bits", of)
        attrs: tuple[tuple[str, Attr], ...] = (("dtype", of.dtype),) if name == "cast" else ()
        self.out.append(Op(name, (result,), args, attrs, loc=self.source.loc))
        return result

    def rounds(self, walk: _Walk) -> Var:
        """How many iterations there are, of the type of the number."""
        var = walk.var
        if walk.limit is None:  # the bits below the last one, which are zeros
            lowest = self.op("and", var, self.op("neg", var))
            return self.op(ONES, self.op("sub", lowest, _const(1, var)))
        count = self.op(ONES if walk.drop else LENGTH, var)
        if walk.limit:
            count = self.op("sub", count, _const((walk.limit + 1).bit_length() - 1, var))
        return self.where_it_starts(walk, count)

    def where_it_starts(self, walk: _Walk, count: Var) -> Var:
        """A count, or 0 where there is no iteration."""
        assert walk.limit is not None
        if walk.limit == 0 and (walk.differs or _dtype(walk.var).kind == "u"):
            return count
        starts = self.op("gt", walk.var, _const(walk.limit, walk.var), typ=BOOL)
        return self.op("select", starts, count, _const(0, walk.var), typ=count.type)  # type: ignore[arg-type]

    def last(self, walk: _Walk, rounds: Var) -> Operand:
        """The number behind the loop."""
        if not walk.drop:
            return self.op("shr", walk.var, rounds)
        if walk.differs or _dtype(walk.var).kind == "u":
            return _const(0, walk.var)
        return self.op("min", walk.var, _const(0, walk.var))

    def counted(self, var: Var, tree: Tree, walk: _Walk, rounds: Var) -> Operand | None:
        """Another variable behind the loop, of which an iteration makes `tree`."""
        me = ("var", var.name)
        if tree == me:
            return var
        step = _step(tree, me)
        if step is not None:
            return self.moved(var, rounds, step)
        if walk.drop or walk.limit != 0:  # nothing is known of single bits, or not all of them are seen
            return None
        ones = self.where_it_starts(walk, self.op(ONES, walk.var))
        low = _low(walk.var)
        match tree:
            case ("select", bit, more, other) if other == me and _is_set(bit, low):
                step = _step(more, me)
                return None if step is None else self.moved(var, ones, step)
            case ("add", a, b) if (a == me and _without_casts(b) in low) or (b == me and _without_casts(a) in low):
                return self.moved(var, ones, 1)
            case ("sub", a, b) if a == me and _without_casts(b) in low:
                return self.moved(var, ones, -1)
            case ("xor", a, b) if (a == me and _without_casts(b) in low) or (b == me and _without_casts(a) in low):
                odd = self.op("and", self.as_type_of(ones, var), _const(1, var))
                return self.op("xor", var, odd)
        return None

    def moved(self, var: Var, times: Var, step: int) -> Var:
        count = self.as_type_of(times, var)
        if abs(step) != 1:
            count = self.op("mul", count, _const(abs(step), var))
        return self.op("add" if step > 0 else "sub", var, count)

    def as_type_of(self, value: Var, var: Var) -> Var:
        return value if value.type == var.type else self.op("cast", value, typ=var.type)  # type: ignore[arg-type]


# -- what an iteration does --------------------------------------------------------------------------------------------


def _is_known(op: Op) -> bool:
    scalars = all(isinstance(v.type, ScalarType) for v in (*op.args, *op.results))
    return scalars and is_elementwise(op) and len(op.results) == 1


def _follow(block: Block, trees: dict[str, Tree]) -> None:
    for op in block:
        assert isinstance(op, Op)
        args = tuple(_tree(a, trees) for a in op.args)
        dtype = op.attr("dtype")
        if op.op == "copy":
            trees[op.results[0].name] = args[0]
        else:
            trees[op.results[0].name] = (op.op, dtype, *args) if op.op in ("cast", "bitcast") else (op.op, *args)


def _tree(operand: Operand, trees: dict[str, Tree]) -> Tree:
    if isinstance(operand, Const):
        return "const", operand.value
    return trees.get(operand.name, ("var", operand.name))


def _walk(var: Var, cond: Tree, trees: dict[str, Tree]) -> _Walk | None:
    """How a loop goes over the bits of a variable, if it does."""
    me, after = ("var", var.name), trees[var.name]
    less = (("sub", me, ("const", 1)), ("add", me, ("const", -1)), ("add", ("const", -1), me))
    drop = any(after in (("and", me, x), ("and", x, me)) for x in less)
    if not drop and after not in (("shr", me, ("const", 1)), ("floordiv", me, ("const", 2))):
        return None
    if not drop and _is_clear(cond, _low(var)):
        return _Walk(var, drop, None)
    test = _test(cond, me)
    if test is None:
        return None
    kind, limit = test
    if kind == "ge":
        kind, limit = "gt", limit - 1
    most = {"gt": 2 ** (_dtype(var).bits - 1) - 1, "ne": 1}.get(kind, -1)
    if not 0 <= limit <= (0 if drop else most) or limit & (limit + 1):
        return None
    return _Walk(var, drop, limit, kind == "ne")


def _test(cond: Tree, me: Tree) -> tuple[str, int] | None:
    """A comparison of the variable with a number, the variable first."""
    match cond:
        case ("cast", dtype, x) if dtype == bool_ and x == me:
            return "ne", 0
        case (op, x, ("const", value)) if op in _TURNED and x == me:
            return op, int(value)
        case (op, ("const", value), x) if op in _TURNED and x == me:
            return _TURNED[op], int(value)
    return None


def _low(var: Var) -> tuple[Tree, ...]:
    """The forms of the last bit of a variable."""
    me, one = ("var", var.name), ("const", 1)
    return ("and", me, one), ("and", one, me), ("mod", me, ("const", 2))


def _without_casts(tree: Tree) -> Tree:
    while tree[0] == "cast" and tree[1].kind in "iu":
        tree = tree[2]
    return tree


def _is_set(tree: Tree, low: tuple[Tree, ...]) -> bool:
    """Whether a condition is that the last bit is 1."""
    return any(tree in (("cast", bool_, x), ("ne", x, ("const", 0)), ("eq", x, ("const", 1))) for x in low)


def _is_clear(tree: Tree, low: tuple[Tree, ...]) -> bool:
    """Whether a condition is that the last bit is 0."""
    if tree[0] == "not":
        return _is_set(tree[1], low)
    return any(tree in (("eq", x, ("const", 0)), ("ne", x, ("const", 1))) for x in low)


def _step(tree: Tree, me: Tree) -> int | None:
    """What is added to a variable, if that is a number other than 0."""
    match tree:
        case ("add", x, ("const", value)) | ("add", ("const", value), x) if x == me:
            return int(value) or None
        case ("sub", x, ("const", value)) if x == me:
            return -int(value) or None
    return None


def _dtype(var: Var) -> DType:
    assert isinstance(var.type, ScalarType)
    return var.type.dtype


def _is_integer(var: Var) -> bool:
    return isinstance(var.type, ScalarType) and var.type.dtype.kind in "iu"


def _const(value: int, like: Var) -> Const:
    assert isinstance(like.type, ScalarType)
    return Const(value, like.type)

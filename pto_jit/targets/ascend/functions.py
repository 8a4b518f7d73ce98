# SPDX-License-Identifier: MIT
"""Elementary functions that the core has no instruction for, from the recipes that all targets share.

A recipe of `targets.vecmath` runs once with a `Trace` for its emitter and leaves a list of operations, which
`write` turns into vector instructions.  A result takes the memory of an operand that is used up, so that few buffers
are needed at a time; constants stay numbers wherever an instruction takes one.

`x * y + z` is `TMULADDDST`, `TFUSEDMULADD` or `TAXPY`, whichever needs no copy.  Bits are looked at by giving the same
bytes to a tile of another element type; words are combined 16 bits at a time, as the core does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pto_jit.dtypes import DType, bool_, f32, i16, i32
from pto_jit.dtypes import u32 as _u32
from pto_jit.errors import NOWHERE, Loc
from pto_jit.slotted import field, mutable
from pto_jit.targets.ascend.called import write_call
from pto_jit.targets.ascend.form import Assignment, Branch, Instruction, Tile
from pto_jit.targets.ascend.played import FILL, RESULT, TEMP, TILE, Recorder, Shown, Step
from pto_jit.targets.ascend.remainders import floordiv, mod
from pto_jit.targets.ascend.scalars import literal
from pto_jit.targets.ascend.sizes import in_words
from pto_jit.targets.ascend.values import Size, Span, Value
from pto_jit.targets.vecmath import RECIPES, ldexp_by_parts

if TYPE_CHECKING:
    from pto_jit.targets.ascend.elementwise import Elementwise

NAMES = frozenset("exp2 expm1 log1p tanh erf gelu pow atan2 sin cos tan fmod mod floordiv".split())
"""Operations of the language that are written this way."""

_OWN: dict[str, Callable[..., Any]] = {"mod": mod, "floordiv": floordiv}
_DTYPES: dict[str, DType] = {"f": f32, "i": i32, "m": bool_}
_COMPARISONS = frozenset("lt le gt ge eq ne ilt ieq".split())
_FOLDED: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs,
    "iadd": np.add, "isub": np.subtract,
    "bits": lambda x: x.view(np.int32), "from_bits": lambda i: i.view(np.float32),
}  # fmt: skip


@mutable(eq=False)
class Node:
    """One operation of a trace.

    kind: "f" (f32), "i" (i32) or "m" (a mask); constant, text: the value, if it is one, and that in C++; last: when it
    is read last; slow: of a way that is rarely taken, what it computes; columns: lookups in the columns of a table at
    this row.  Nothing changes when the recipe has run.
    """

    op: str
    kind: str
    args: tuple[Any, ...] = ()
    constant: Any = None
    text: str = ""
    last: int = -1
    slow: Callable[..., Node] | None = None
    columns: list[Node] = field(default_factory=list)


class Trace:
    """The `vecmath.Emitter` that takes down what a recipe does; equal operations are one."""

    dtype: Literal["f32"] = "f32"

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.known: dict[tuple[Any, ...], Node] = {}

    def _node(self, op: str, kind: str, *args: Any) -> Node:
        given = [a.constant if isinstance(a, Node) else a for a in args]
        if op in _FOLDED and all(a is not None for a in given):
            with np.errstate(over="ignore"):
                folded = _FOLDED[op](*given)
            return self.const(float(folded)) if kind == "f" else self.iconst(int(folded))
        key = (op, *(id(a) if isinstance(a, Node) else a for a in args))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Node(op, kind, args)
            self.nodes.append(found)
        return found

    def operand(self) -> Node:
        node = Node("operand", "f")
        self.nodes.append(node)
        return node

    def const(self, value: float) -> Node:
        number = np.float32(value)
        key = "f", number.view(np.int32).item()
        if key not in self.known:
            self.known[key] = Node("const", "f", constant=number, text=literal(float(number), f32))
        return self.known[key]

    def iconst(self, value: int) -> Node:
        number = np.uint32(value % 2**32).view(np.int32)
        key = "i", number.item()
        if key not in self.known:
            text = str(int(number)) if number != -(2**31) else "INT32_MIN"
            self.known[key] = Node("const", "i", constant=number, text=text)
        return self.known[key]

    def __getattr__(self, name: str) -> Callable[..., Node]:
        """Operations that are taken down as they are."""
        kind = _KINDS.get(name)
        if kind is None:
            raise AttributeError(name)
        return lambda *args: self._node(name, kind, *args)

    def ratio(self, x: Node, y: Node) -> Node:
        return self._node("div", "f", x, y)

    def select(self, mask: Node, x: Node, y: Node) -> Node:
        return x if x is y else self._node("select", x.kind, mask, x, y)

    masks_ldexp = False

    def ldexp(self, x: Node, n: Node, kept: Node | None = None) -> Node:
        return ldexp_by_parts(self, x, n)  # type: ignore[arg-type]

    def copysign(self, magnitude: Node, sign: Node) -> Node:
        size = self.iand(self.bits(magnitude), self.iconst(0x7FFFFFFF))
        return self.from_bits(self.ior(size, self.iand(self.bits(sign), self.iconst(-0x80000000))))

    def lookup(self, table: Sequence[float], index: Node) -> Node:
        node = self._node("lookup", "f", index, tuple(table))
        index.columns.append(node)
        return node

    def repeat(self, times: int, body: Callable[..., Any], *state: Node) -> Any:
        for _ in range(times):
            state = body(self, *state)
        return state

    def slow_path(self, mask: Node, slow: Callable[..., Node], operands: tuple[Node, ...], fast: Node) -> Node:
        node = self._node("slow", "f", mask, fast, *operands)
        node.slow = slow
        return node


_KINDS = {
    **dict.fromkeys("add sub mul div fma neg abs sqrt min max round_even floor trunc from_bits to_float".split(), "f"),
    **dict.fromkeys("bits iadd isub iand ior ixor shl lshr ashr".split(), "i"),
    **dict.fromkeys([*_COMPARISONS, "mask_and", "mask_or", "mask_not"], "m"),
}


@cache
def _recorded(recipe: Callable[..., Any], count: int) -> tuple[list[tuple[int, Node]], list[Node], Node]:
    """What a recipe of so many operands does, in order and numbered, its operands, and the result."""
    trace = Trace()
    operands = [trace.operand() for _ in range(count)]
    result = recipe(trace, *operands)
    wanted = _needed(trace.nodes, result)
    for at, node in enumerate(wanted):
        for a in (a for a in node.args if isinstance(a, Node)):
            _memory(a).last = at
    _memory(result).last = len(wanted)
    return [(at, node) for at, node in enumerate(wanted) if node.op != "operand"], operands, result


@cache
def _steps(
    recipe: Callable[..., Any], span: Span, temporary: bool, elementwise: type[Elementwise]
) -> tuple[list[Step], Shown]:
    """What is written for a recipe of one operand that spans so much, and where its result is; temporary: in memory
    that it may choose."""
    recorder = Recorder(span)
    writer = FunctionWriter(elementwise(recorder), recorder.operand, NOWHERE)  # type: ignore[arg-type]
    result = writer._written(recipe, [recorder.operand], recorder.temp if temporary else recorder.result)
    return recorder.steps, recorder.shown(result)


class FunctionWriter:
    """Writes one elementary function of tiles of one shape."""

    def __init__(self, elementwise: Elementwise, like: Value, loc: Loc) -> None:
        self.e, self.w, self.like, self.loc = elementwise, elementwise.w, like, loc
        self.values: dict[Node, Value] = {}
        self.shown: dict[tuple[Value, str], Value] = {}  # values as elements of another type
        self.twice: tuple[Size, Size] | None = None  # valid extents of words of half the size

    def write(self, name: str, operands: list[Value], to: Any) -> Value:
        recipe = _OWN[name] if name in _OWN else RECIPES[name].function
        if len(operands) == 1 and not any(node.op == "slow" for _, node in _recorded(recipe, 1)[0]):
            operand = operands[0]
            if self.w.times(name) > 1:
                steps, result = _steps(recipe, operand.span, False, type(self.e))

                def play(like: Value, to: Any) -> Value:
                    return FunctionWriter(self.e, like, NOWHERE)._play(steps, result, like, to)

                return write_call(self.w, name, operand, play, to, self.loc)
            steps, result = _steps(recipe, operand.span, to == self.w.temp, type(self.e))
            return self._play(steps, result, operand, to)
        return self._written(recipe, operands, to)

    def _play(self, steps: list[Step], result: Shown, operand: Value, to: Any) -> Value:
        """Write the instructions of a recipe of one operand."""
        w, loc, shape = self.w, self.loc, self._shape()
        memories = [operand]
        tiles: dict[Shown, Tile] = {}
        for name, args in steps:
            if name is TEMP:
                dtype, own = args
                where: Any = own or shape
                memories.append(w.temp(dtype, *where))
            elif name is TILE:
                tiles[args[0]] = self._tile_over(memories[args[0].memory], args[0])
            elif name is RESULT:
                dtype, sources = args
                memories.append(to(dtype, *shape, tuple(self._seen(memories[s.memory], s.dtype) for s in sources)))
            elif name is FILL:
                w.fill(self._seen(memories[args[0].memory], args[0].dtype), args[1], loc)
            else:
                w.nodes.append(Instruction(name, tuple([a if type(a) is str else tiles[a] for a in args]), loc))
        return self._seen(memories[result.memory], result.dtype)

    def _tile_over(self, value: Value, shown: Shown) -> Tile:
        if shown.words:
            return self.w.tile(value, dtype=i16, loc=self.loc) if value.is_mask else self._halves(value)
        return self.w.tile(self._seen(value, shown.dtype), loc=self.loc)

    def _written(self, recipe: Callable[..., Any], operands: list[Value], to: Any) -> Value:
        nodes, given, result = _recorded(recipe, len(operands))
        self.values |= zip(given, operands, strict=True)
        for at, node in nodes:
            self.values[node] = self._operation(node, at, to if node is result else self.w.temp)
        return self.values[result]

    # -- places ---------------------------------------------------------------------------------------------------

    def _shape(self) -> tuple[Span, tuple[int, int], tuple[Size, Size], tuple[bool, bool]]:
        return self.like.span, self.like.capacity, self.like.valid, self.like.free

    def _new(self, kind: str, to: Any, at: int, *reusable: Any) -> Value:
        """Memory of a result: of an operand that nobody reads later, or new."""
        dtype = _DTYPES[kind]
        if to == self.w.temp and kind != "m":
            for a in reusable:
                if isinstance(a, Node) and a.constant is None and a.kind != "m" and self._is_used_up(a, at):
                    return self._seen(self.values[a], dtype)
        return to(dtype, *self._shape())

    def _is_used_up(self, node: Node, at: int) -> bool:
        memory = _memory(node)
        return memory.op not in ("operand", "const") and memory.last == at

    def _seen(self, value: Value, dtype: DType) -> Value:
        """The same bytes as elements of another type."""
        if value.dtype is dtype:
            return value
        known = self.shown.get((value, dtype.name))
        if known is None:
            known = self.shown[value, dtype.name] = Value(
                value.name, dtype, value.span, value.capacity, value.valid, value.buffer, value.free)  # fmt: skip
        return known

    def _tile(self, value: Value) -> Any:
        return self.w.tile(value, valid=self.like.valid, loc=self.loc)

    def _halves(self, value: Value) -> Any:
        """A tile of i16 over the words of another one."""
        known = self.shown.get((value, "words"))
        if known is None:
            known = self.shown[value, "words"] = in_words(value, self.like.valid)
            known.valid = self.twice = self.twice or known.valid
        return self.w.tile(known, loc=self.loc)

    def _operand(self, node: Node) -> Value:
        """The tile of a node; a constant is written into one."""
        if node.constant is None:
            return self.values[node]
        out = self.w.temp(_DTYPES[node.kind], *self._shape())
        self.w.fill(out, node.text, self.loc)
        return out

    def _emit(self, name: str, *args: Any) -> None:
        self.w.emit(name, *args, loc=self.loc)

    # -- operations -----------------------------------------------------------------------------------------------

    def _operation(self, node: Node, at: int, to: Any) -> Value:
        op, args = node.op, node.args
        if op in ("bits", "from_bits"):
            seen = self._seen(self._operand(args[0]), _DTYPES[node.kind])
            return seen if to == self.w.temp else self.e.unary("TMOV", seen, to, self.loc)
        if op in _COMPARISONS:
            a, b = (a.text if a.constant is not None else self._operand(a) for a in args)
            return self.e.compare(op[-2:].upper(), a, b, to, self.loc)
        if op == "fma":
            return self._fma(args, at, to)
        if op == "slow":
            return self._slow(node, to)
        if op == "lookup":
            return self._lookup(node)
        if op == "select":
            x, y = (a.text if a.constant is not None else self._operand(a) for a in args[1:])
            return self.e.select(self._operand(args[0]), x, y, _DTYPES[node.kind], to, self.loc)
        if op.startswith("mask_"):
            return self._words(op[5:], [self._operand(a) for a in args], to(bool_, *self._shape()), masks=True)
        if op in ("iand", "ior", "ixor"):
            return self._bitwise(op[1:], args, at, to)
        return self._arithmetic(node, at, to)

    def _lookup(self, node: Node) -> Value:
        """Rows of a table, for all columns at once: the sum of their numbers times 1 where it is this row, else 0."""
        index = node.args[0]
        if node not in self.values:
            row, shape = self._operand(index), self._shape()
            one, none, mine = (self.w.temp(f32, *shape) for _ in range(3))
            number, same = self.w.temp(i32, *shape), self.w.temp(bool_, *shape)
            self.w.fill(one, "1.0f", self.loc)
            self.w.fill(none, "0.0f", self.loc)
            scratch = self.w.tile(self.w.temp(f32, "row", (1, 8), (1, 8)), loc=self.loc)
            for column in index.columns:
                self.values[column] = self.w.temp(f32, *shape)
                self.w.fill(self.values[column], "0.0f", self.loc)
            for k in range(len(node.args[1])):
                self.w.fill(number, str(k), self.loc)
                self._emit("TCMP", self._tile(same), self._tile(row), self._tile(number), "CmpMode::EQ")
                self._emit("TSEL", self._tile(mine), self._tile(same), self._tile(one), self._tile(none), scratch)
                for column in index.columns:
                    value = Trace().const(column.args[1][k]).text
                    self._emit("TAXPY", self._tile(self.values[column]), self._tile(mine), value)
        return self.values[node]

    def _slow(self, node: Node, to: Any) -> Value:
        """What is rarely needed is computed in a branch, for the whole tile if one element needs it."""
        mask, fast = (self._operand(a) for a in node.args[:2])
        out = self.e.unary("TMOV", fast, to, self.loc)
        ones = self.e.select(mask, "1", "0", f32, self.w.temp, self.loc)
        rank = {-1} if ones.span == "row" else {-1, -2}
        some = self.w.reduced("max", ones, rank, 2, None, self.w.temp, self.loc)
        tile = self.w.tile(some, loc=self.loc)
        name = self.w.names.fresh("needed")
        self.w.nodes.append(Assignment("bool", name, f"{tile.name}.GetValue(0) != 0", self.loc, reads=tile))
        branch = Branch(name, [], [], self.loc)
        self.w.nodes.append(branch)
        assert node.slow is not None
        with self.w.inside(branch.then):
            rest = [self._operand(a) for a in node.args[2:]]
            exact = self._written(node.slow, rest, self.w.temp)
            self.e.select(mask, exact, out, f32, lambda *_: out, self.loc)
        return out

    def _arithmetic(self, node: Node, at: int, to: Any) -> Value:
        op, args = node.op, node.args
        x = args[0]
        if op in ("shl", "lshr", "ashr"):
            out = self._new("i", to, at, x)
            dtype = _u32 if op == "lshr" else i32
            source, target = (self._tile(self._seen(v, dtype)) for v in (self._operand(x), out))
            self._emit("TSHLS" if op == "shl" else "TSHRS", target, source, str(args[1]))
            return out
        if op in ("neg", "abs", "sqrt", "round_even", "floor", "trunc", "to_float"):
            value = self._operand(x)
            out = self._new("f", to, at, x)
            modes = {"round_even": "RINT", "floor": "FLOOR", "trunc": "TRUNC", "to_float": "RINT"}
            extra = ("-1.0f",) if op == "neg" else (f"RoundMode::CAST_{modes[op]}",) if op in modes else ()
            name = {"neg": "TMULS", "abs": "TABS", "sqrt": "TSQRT"}.get(op, "TCVT")
            self._emit(name, self._tile(out), self._tile(value), *extra)
            return out
        y = args[1]
        name = op.removeprefix("i").upper() if op in ("iadd", "isub") else op.upper()
        if x.constant is not None and name in ("ADD", "MUL", "MAX", "MIN"):
            x, y = y, x
        if x.constant is not None and name == "DIV":
            return self.e.over(x.text, self._operand(y), to, self.loc)
        left = self._operand(x)
        if y.constant is not None and name == "DIV":
            return self.e.over(left, y.text, to, self.loc)
        if y.constant is not None:
            out = self._new(node.kind, to, at, x)
            number = self.w.scalar(y.text, _DTYPES[node.kind])
            self._emit(f"T{name}S", self._tile(out), self._tile(left), number)
            return out
        right = self._operand(y)
        out = self._new(node.kind, to, at, x, y)
        self._emit(f"T{name}", self._tile(out), self._tile(left), self._tile(right))
        return out

    def _fma(self, args: tuple[Node, ...], at: int, to: Any) -> Value:
        """x * y + z with one rounding."""
        if to != self.w.temp:  # the result may go where a factor is
            return self.e.unary("TMOV", self._fma(args, at, self.w.temp), to, self.loc)
        x, y, z = args
        if x.constant is not None:
            x, y = y, x
        if x.constant is not None:
            left: Any = self._operand(x)
        else:
            left = self.values[x]
        free = [n for n in (x, y) if n.constant is None and self._is_used_up(n, at)]
        if to == self.w.temp and y.constant is None and free and z.constant is None and not self._is_used_up(z, at):
            out = self._seen(self._operand(free[0]), f32)  # the product's place is free, that of the sum is not
            other = self._operand(y if free[0] is x else x)
            self._emit("TFUSEDMULADD", self._tile(out), self._tile(other), self._tile(self._operand(z)))
            return out
        if z.constant is not None:
            out = to(f32, *self._shape())
            self.w.fill(out, z.text, self.loc)
        elif to == self.w.temp and self._is_used_up(z, at) and _memory(z) not in (_memory(x), _memory(y)):
            out = self._seen(self._operand(z), f32)
        else:
            out = to(f32, *self._shape())
            self._emit("TMOV", self._tile(out), self._tile(self._operand(z)))
        if y.constant is not None:
            self._emit("TAXPY", self._tile(out), self._tile(left), y.text)
        else:
            self._emit("TMULADDDST", self._tile(out), self._tile(left), self._tile(self._operand(y)))
        return out

    def _bitwise(self, op: str, args: tuple[Node, ...], at: int, to: Any) -> Value:
        values = [self._operand(a) for a in args]
        if op != "xor":
            return self._words(op, values, self._new("i", to, at, *args))
        both = self._words("and", values, self.w.temp(i32, *self._shape()))
        out = self._words("or", values, self._new("i", to, at, *args))
        self._emit("TSUB", self._tile(out), self._tile(out), self._tile(both))
        return out

    def _words(self, op: str, values: list[Value], out: Value, *, masks: bool = False) -> Value:
        """AND, OR or NOT of what lies in memory, 16 bits at a time."""
        def tile(v: Value) -> Any:
            return self.w.tile(v, dtype=i16, loc=self.loc) if masks else self._halves(v)

        self._emit(f"T{op.upper()}", tile(out), *(tile(v) for v in values))
        return out


def _memory(node: Node) -> Node:
    """The node whose memory another one looks at."""
    while node.op in ("bits", "from_bits"):
        node = node.args[0]
    return node


def _needed(nodes: list[Node], result: Node) -> list[Node]:
    """In order, what a result is made of."""
    wanted: set[int] = set()
    stack = [result]
    while stack:
        node = stack.pop()
        if id(node) not in wanted:
            wanted.add(id(node))
            stack += [a for a in node.args if isinstance(a, Node)]
    return [n for n in nodes if id(n) in wanted]

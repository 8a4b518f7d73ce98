# SPDX-License-Identifier: MIT
"""What an iteration of a loop costs, roughly: picoseconds of one core, as arithmetic on what is known before the loop.

Bytes moved, arithmetic and calls count with the weights below, which are those of a 3 GHz core with vectors of 32
bytes; half or twice as much makes no difference to what they are used for.  An extent or a number of iterations that is
only known when the program runs becomes an operand.  What depends on the loop's own variables is taken from the middle
iteration (so a triangular nest counts with its mean); what depends on data counts as `UNKNOWN`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pto_jit.ir.nodes import Block, Call, Const, For, Fuse, If, Module, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import defs, statements
from pto_jit.lower.amount import CAP, FACTOR_BITS, Amount, Product
from pto_jit.lower.groups.axes import touches_tiles
from pto_jit.lower.names import I64, Scalars, index
from pto_jit.semantic.table import effects, tensor_arg
from pto_jit.slotted import mutable

UNKNOWN = 32  # iterations, or elements along an axis, that only data decides
_TRIPS = (1 << FACTOR_BITS) - 1  # more iterations or elements along an axis than this make no difference
DEAR = frozenset("exp exp2 expm1 log log2 log1p sin cos tan tanh erf sigmoid silu gelu pow atan2 randn_at".split())
SLOW = frozenset("div floordiv mod fmod sqrt rsqrt reciprocal rand_at".split())
_CHEAP, _STEP = 400, 1000  # a scalar operation; one turn of a loop
_LANES = 6  # what vectors gain on scalar code whose iterations are lanes
_BYTE = 50  # memory traffic, per byte
_ELEMENT = 60  # a vectorised tile operation, per element
_TILE = 30_000  # the fixed cost of a tile operation: bounds, checks, the start of its loops
_CALL = 20_000
_FLOP = 30
_SORT = 20_000  # per element
_ELSEWHERE = {"alloc": 100_000, "print": 10_000_000}
_INDIRECT = frozenset("take put gather atomic_add atomic_max atomic_min histogram".split())
_ORDER = frozenset("sort argsort topk".split())
_PURE = frozenset("add sub mul min max floordiv".split())


def factor(op: str) -> int:
    """How many cheap operations one operation is worth."""
    return 20 if op in DEAR else 8 if op in SLOW else 1


@mutable(eq=False)
class Place:
    """What names mean where the cost is computed: `values` those of the surrounding code, `made` who assigns a name of
    the code that is estimated (None: more than one statement), `middle` the loops around by their variable."""

    values: Mapping[str, Operand | None]
    made: dict[str, Op | None]
    middle: dict[str, For]
    known: dict[str, Operand | None]


class Estimate:
    """Costs of code in front of one loop; the arithmetic goes to `out`."""

    def __init__(self, module: Module, out: Scalars) -> None:
        self.module = module
        self.out = out
        self.bits: dict[str, int] = {}  # of operands that are costs
        self.sizes: dict[tuple[int | None, ...], Amount] = {}  # the elements of tiles of known extents

    def iteration(self, loop: For) -> Operand:
        """The cost of one iteration of `loop`, which stands where `out` is emitted."""
        return self._of_body(loop, self._place((loop,), None))

    def inside(self, loop: For, inner: For) -> Operand:
        """The cost of one iteration of `inner`, which stands in `loop`."""
        return self._of_body(inner, self._place((loop,), None))

    def _of_body(self, loop: For, place: Place) -> Operand:
        cost, least = self._block(loop.body, place, is_vector(loop)), _STEP // _LANES
        value = cost.operand(self.out, self.bits)
        return value if cost.terms.get((), 0) >= least else self.out.op("max", value, index(least))

    def trips(self, loop: For) -> Operand | None:
        """The number of iterations of `loop`, which stands where `out` is emitted; None when that is not known."""
        return self._trips(loop, self._place((loop,), None))

    # -- values ---------------------------------------------------------------------------------------------------

    def _place(self, body: Block, values: Mapping[str, Operand | None] | None) -> Place:
        made: dict[str, Op | None] = {}
        middle: dict[str, For] = {}
        for stmt in statements(body):
            if isinstance(stmt, For):
                middle[stmt.var.name] = stmt
            for var in defs(stmt):
                made[var.name] = stmt if isinstance(stmt, Op) and var.name not in made else None
        return Place({} if values is None else values, made, middle, {})

    def _value(self, operand: Operand, place: Place) -> Operand | None:
        """An i64 or a tensor as an operand of the place where the cost is computed; None: it is not known there."""
        if isinstance(operand, Const):
            return operand
        name = operand.name
        if name in place.known:
            return place.known[name]
        place.known[name] = None  # what depends on itself
        place.known[name] = found = self._find(operand, place)
        return found

    def _find(self, var: Var, place: Place) -> Operand | None:
        loop = place.middle.get(var.name)
        if loop is not None:
            start, trips = self._value(loop.start, place), self._trips(loop, place)
            if start is None or trips is None or not isinstance(loop.step, Const):
                return None
            return self.out.op("add", start, self.out.op("mul", self._half(trips), loop.step))
        if var.name not in place.made:
            return place.values.get(var.name, None if place.values else var)
        op = place.made[var.name]
        if op is None or op.regions or len(op.results) != 1:
            return None
        if op.op == "dim":
            return self._extent(op.args[0], op.attr("axis"), place)
        if op.op == "copy":
            return self._value(op.args[0], place) if var.type == I64 else None
        if op.op in _PURE and len(op.args) == 2 and var.type == I64 and all(a.type == I64 for a in op.args):
            a, b = (self._value(x, place) for x in op.args)
            if a is None or b is None or (op.op == "floordiv" and not (isinstance(b, Const) and b.value > 0)):
                return None
            return self.out.op(op.op, a, b)
        return None

    def _extent(self, operand: Operand, axis: object, place: Place) -> Operand | None:
        """The extent of a tensor along an axis."""
        if not isinstance(operand, Var) or not isinstance(operand.type, TensorType) or not isinstance(axis, int):
            return None
        known = operand.type.shape[axis]
        if known is not None:
            return index(known)
        if operand.name in place.made:
            op = place.made[operand.name]
            if op is None or op.op != "view" or op.attr("drop"):
                return None
            return self._value(op.args[1 + operand.type.rank + axis], place)
        tensor = place.values.get(operand.name) if place.values else operand
        if not isinstance(tensor, Var):
            return None
        result = self.out.names.fresh("extent")
        self.out.block.append(Op("dim", (result,), (tensor,), (("axis", axis),), (), self.out.loc))
        return result

    def _half(self, value: Operand) -> Operand:
        return self.out.op("floordiv", value, index(2))

    def _trips(self, loop: For, place: Place) -> Operand | None:
        start, stop, step = (self._value(o, place) for o in (loop.start, loop.stop, loop.step))
        if start is None or stop is None or not isinstance(step, Const) or step.value == 0:
            return None
        if step.value < 0:
            start, stop, step = stop, start, index(-int(step.value))
        span = self.out.op("sub", stop, start)
        if step.value != 1:
            span = self.out.op("floordiv", self.out.op("add", span, index(int(step.value) - 1)), step)
        return self.out.op("min", self.out.op("max", span, index(0)), index(_TRIPS))

    # -- sums -------------------------------------------------------------------------------------------------------

    def _maximum(self, a: Amount, b: Amount) -> Amount:
        if a is b or a.covers(b):
            return a
        if b.covers(a):
            return b
        value = self.out.op("max", a.operand(self.out, self.bits), b.operand(self.out, self.bits))
        if isinstance(value, Var):
            self.bits[value.name] = CAP.bit_length()
        return Amount.of(value)

    def times(self, cost: Operand, count: Operand) -> Operand:
        """A cost that occurs `count` times."""
        product = self.out.op("mul", cost, count)
        if isinstance(product, Const):
            return index(min(int(product.value), CAP))
        return self.out.op("min", product, index(CAP))

    def _block(self, block: Block, place: Place, vector: bool) -> Amount:
        terms: dict[Product, int] = {}
        for stmt in block:
            for product, factor in self._statement(stmt, place, vector).terms.items():
                terms[product] = terms.get(product, 0) + factor
        return Amount(terms)

    def _statement(self, stmt: Stmt, place: Place, vector: bool) -> Amount:
        match stmt:
            case Op():
                return self._op(stmt, place, vector)
            case For():
                trips = self._trips(stmt, place)
                body = self._block(stmt.body, place, is_vector(stmt))
                turn = body + Amount.of(_STEP // (_LANES if is_vector(stmt) else 1))
                return turn * Amount.of(UNKNOWN if trips is None else trips)
            case While():
                turn = self._block(stmt.before, place, False) + self._block(stmt.body, place, False)
                return turn * Amount.of(UNKNOWN)
            case If():
                return self._maximum(self._block(stmt.then, place, vector), self._block(stmt.orelse, place, vector))
            case Scope() | Fuse():
                return self._block(stmt.body, place, vector)
            case Call():
                return self._call(stmt, place)
            case _:
                return Amount({})

    def _call(self, call: Call, place: Place) -> Amount:
        callee = self.module.func(call.callee)
        values = {
            p.name: None if isinstance(p.type, TensorType) and not self._stands(a, place) else self._argument(a, place)
            for p, a in zip(callee.params, call.args, strict=True)
        }
        inner = self._place(callee.body, values or {"": None})
        return Amount.of(_CALL) + self._block(callee.body, inner, False)

    def _stands(self, operand: Operand, place: Place) -> bool:
        return isinstance(operand, Var) and operand.name not in place.made

    def _argument(self, operand: Operand, place: Place) -> Operand | None:
        if isinstance(operand.type, TensorType):
            assert isinstance(operand, Var)
            return place.values.get(operand.name) if place.values else operand
        return self._value(operand, place) if operand.type == I64 else None

    # -- operations -------------------------------------------------------------------------------------------------

    def _op(self, op: Op, place: Place, vector: bool) -> Amount:
        fixed = _ELSEWHERE.get(op.op)
        if fixed is not None:
            return Amount.of(fixed)
        if not touches_tiles(op):
            at = tensor_arg(op.op)
            cost = _CHEAP * factor(op.op)
            if at is not None and effects(op.op) != "none":
                tensor = op.args[at].type
                assert isinstance(tensor, (TensorType, ScalarType))
                return Amount.of((0 if vector else cost) + _BYTE * tensor.dtype.bytes)
            return Amount.of(cost // _LANES if vector else cost)
        return Amount.of(_TILE) + self._tiles(op, place)

    def _tiles(self, op: Op, place: Place) -> Amount:
        """The part that grows with the elements."""
        if op.op == "dot":
            return self._dot(op, place)
        counts = [self._elements(v, op, place) for v in (*op.results, *op.args) if type(v.type) is TileType]
        count = counts[0]
        for other in counts[1:]:
            count = self._maximum(count, other)
        if op.op in ("load", "store"):
            tile = next(v.type for v in (*op.results, *op.args) if isinstance(v.type, TileType))
            return count.scaled(_BYTE * tile.dtype.bytes)
        if op.op in _ORDER:
            return count.scaled(_SORT)
        if op.op in _INDIRECT or op.regions:
            return count.scaled(20 * _ELEMENT)
        return count.scaled(_ELEMENT * factor(op.op))

    def _elements(self, var: Operand, op: Op, place: Place) -> Amount:
        """Elements of a tile by its declared extents, where these are known."""
        assert isinstance(var.type, TileType)
        shape = var.type.shape
        known = self.sizes.get(shape)
        if known is not None:
            return known
        made = place.made.get(var.name) if isinstance(var, Var) else None
        maker = op if var in op.results else made
        total = Amount.of(1)
        for axis, extent in enumerate(shape):
            size = index(extent) if extent is not None else self._declared(maker, axis, var.type.rank, place)
            total *= self._count(size)
        if None not in shape:
            self.sizes[shape] = total
        return total

    def _count(self, extent: Operand) -> Amount:
        """An extent as a number of elements, from 0 to `_TRIPS`."""
        return Amount.of(self.out.op("min", self.out.op("max", extent, index(0)), index(_TRIPS)))

    def _declared(self, op: Op | None, axis: int, rank: int, place: Place, depth: int = 0) -> Operand:
        """The declared extent of the tile that an operation makes."""
        operand: Operand | None = None
        if op is not None and depth < 64:
            match op.op:
                case "load":
                    operand = op.args[1 + rank + axis]
                case "full" | "broadcast_to" | "reshape":
                    operand = op.args[1 + axis]
                case "rand" | "randn" | "arange":
                    operand = op.args[2 + axis]
                case _:
                    for a in op.args:  # elementwise: an operand of the same rank that says it
                        same = isinstance(a, Var) and isinstance(a.type, TileType) and a.type.rank == rank
                        if same and a.type.shape[axis] is None and not op.regions:  # type: ignore[union-attr]
                            return self._declared(place.made.get(a.name), axis, rank, place, depth + 1)  # type: ignore[union-attr]
        value = None if operand is None else self._value(operand, place)
        return index(UNKNOWN) if value is None else value

    def _dot(self, op: Op, place: Place) -> Amount:
        """2 m n k operations: the elements of one operand times the columns (rows) of the other."""
        a, b = op.args[:2]
        assert isinstance(b.type, TileType)
        made = place.made.get(b.name) if isinstance(b, Var) else None
        columns = b.type.shape[-1]
        wide = index(columns) if columns is not None else self._declared(made, b.type.rank - 1, b.type.rank, place)
        return Amount.of(2 * _FLOP) * self._elements(a, op, place) * self._count(wide)


def is_vector(loop: For) -> bool:
    """Whether iterations are likely to be the lanes of vectors: innermost, independent, scalar code."""
    if loop.kind not in ("parallel", "in_chunk"):
        return False
    return not any(
        isinstance(s, (For, While, Call, Fuse)) or (isinstance(s, Op) and any(isinstance(v.type, TileType) for v in (
            *s.args, *s.results))) for s in statements(loop.body)
    )  # fmt: skip

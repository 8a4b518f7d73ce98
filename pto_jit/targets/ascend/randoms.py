# SPDX-License-Identifier: MIT
"""Random numbers of counters: Philox 4x32-10 (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random
numbers: as easy as 1, 2, 3", 2011) in instructions on tiles of i32, with the bits that other targets have.

The core multiplies 32 bits into the lower 32.  The upper ones are made of products of halves, which lose no bits::

    a * m = (ah * mh << 32) + (ah * ml + al * mh << 16) + al * ml

The ten rounds are a loop of the kernel, in which the scalar unit goes on with the key.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pto_jit.dtypes import f32, i32, u32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Const, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import def_counts, rewrite_func, statements, use_counts
from pto_jit.slotted import replace
from pto_jit.targets.ascend.form import Assignment, Loop
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.sizes import text
from pto_jit.targets.ascend.values import Value

if TYPE_CHECKING:
    from pto_jit.targets.ascend.vector import VectorWriter

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS = "0x9E3779B9u", "0xBB67AE85u"
_AT = ("rand_at", "randn_at")
_ROUNDS = 10
_HIGHEST = "0x80000000u"
_TURN = 6.283185307179586


def with_short_counters(func: Func) -> Func:
    """A flat function whose counters that were i32 still are: as those of 64 bits they are the same numbers."""
    if not any(isinstance(s, Op) and s.op in _AT for s in statements(func.body)):
        return func
    counts = def_counts(func.body)
    casts = {s.results[0].name: s.args[0] for s in statements(func.body) if isinstance(s, Op) and s.op == "cast"
             and counts[s.results[0].name] == 1 and counts.get(getattr(s.args[0], "name", ""), 1) == 1
             and s.args[0].type.dtype == i32}  # type: ignore[union-attr]  # fmt: skip
    read = use_counts(func.body) - Counter([_counters(s) for s in statements(func.body)])

    def visit(stmt: Stmt) -> Stmt | tuple[()]:
        name = _counters(stmt)
        if name in casts:
            return replace(stmt, args=(stmt.args[0], casts[name]))  # type: ignore[union-attr]
        made = stmt.results[0].name if isinstance(stmt, Op) and stmt.op == "cast" else ""
        return () if made in casts and not read[made] else stmt

    return rewrite_func(func, visit)


def _counters(stmt: Stmt) -> str:
    """The variable that a statement takes random numbers of."""
    is_one = isinstance(stmt, Op) and stmt.op in _AT and isinstance(stmt.args[1], Var)
    return stmt.args[1].name if is_one else ""  # type: ignore[union-attr]


def write_random(w: VectorWriter, op: Op) -> None:
    """`pl.rand` and `pl.randn` of a shape: element k, row by row as it is declared, has the counter `offset + k`."""
    seed, offset, *extents = op.args
    typ, loc = op.results[0].type, op.loc
    assert isinstance(typ, TileType)
    shape = w.shape(tuple(extents), typ, loc)
    span, capacity, declared = shape
    free = (isinstance(declared[0], int) or declared[0] == 1, isinstance(declared[1], int))
    places = w.temp(i32, span, capacity, declared, free)
    if span == "full":
        across = w.temp(i32, "row", (1, capacity[1]), (1, declared[1]), (False, free[1]))
        along = w.temp(i32, "column", (capacity[0], 1), (declared[0], 1), (free[0], False))
        for line in (across, along):
            w.emit("TCI", w.tile(line, loc=loc), "(int32_t)0", loc=loc)
        first = w.elementwise.scaled("TMULS", along, f"(int32_t)({text(declared[1])})", w.temp, loc)
        places = w.elementwise.binary("ADD", first, across, w.temp, loc)
    else:
        w.emit("TCI", w.tile(places, loc=loc), "(int32_t)0", loc=loc)
    number = _text(w, offset)
    low = w.elementwise.scaled("TADDS", places, f"(int32_t)({number})", w.temp, loc)
    high = w.elementwise.filled(low, f"(int32_t)(({number}) >> 32)", loc)
    if not (isinstance(offset, Const) and 0 <= int(offset.value) < 1 << 31):  # the sum may need more than 32 bits
        turned = w.elementwise.scaled("TADDS", low, "INT32_MIN", w.temp, loc)
        begin = f"(int32_t)((uint32_t)({number}) ^ {_HIGHEST})"
        beyond = w.elementwise.compare("LT", turned, begin, w.temp, loc)
        more = w.elementwise.select(beyond, "1", "0", i32, w.temp, loc)
        high = w.elementwise.binary("ADD", high, more, w.temp, loc)
    _write(w, op, seed, low, high)


def write_at(w: VectorWriter, op: Op) -> None:
    """The same of a tile of counters, of i32; negative ones count as those of 64 bits."""
    seed, counters = op.args
    low = w.value(counters)
    assert isinstance(low, Value)
    if low.dtype != i32:
        raise unsupported(f"random numbers of counters of {low.dtype}", op.loc, "use counters of i32")
    _write(w, op, seed, low, w.elementwise.scaled("TSHRS", low, "31", w.temp, op.loc))


def _write(w: VectorWriter, op: Op, seed: Operand, low: Value, high: Value) -> None:
    loc, to = op.loc, w.destination(op.results[0])
    first, second = _philox(w, (low, high), _text(w, seed), loc)
    if op.op.startswith("randn"):
        _write_normal(w, _uniform(w, first, w.temp, loc), _uniform(w, second, w.temp, loc), to, loc)
    else:
        _uniform(w, first, to, loc)


def _text(w: VectorWriter, number: Operand) -> str:
    """A number of 64 bits."""
    return f"{int(number.value)}ll" if isinstance(number, Const) else f"(int64_t){w.number(number)}"


def _uniform(w: VectorWriter, word: Value, to: object, loc: Loc) -> Value:
    """The upper 24 bits of words, over 2**24."""
    bits = _shifted(w, word, 8, loc)
    return w.elementwise.scaled("TMULS", w.elementwise.converted(bits, f32, w.temp, loc), "5.96046448e-08f", to, loc)


def _write_normal(w: VectorWriter, u0: Value, u1: Value, to: object, loc: Loc) -> None:
    """sqrt(-2 log(1 - u0)) cos(2 pi u1)."""
    logarithm = _function(w, "log1p", w.elementwise.scaled("TMULS", u0, "-1.0f", w.temp, loc), loc)
    squared = w.elementwise.scaled("TMULS", logarithm, "-2.0f", w.temp, loc)
    angle = w.elementwise.scaled("TMULS", u1, f"{_TURN:.9g}f", w.temp, loc)
    root = w.elementwise.unary("TSQRT", squared, w.temp, loc)
    w.elementwise.binary("MUL", root, _function(w, "cos", angle, loc), to, loc)


def _function(w: VectorWriter, name: str, x: Value, loc: Loc) -> Value:
    """A function of a tile of f32."""
    typ = TileType(f32, (None, None))
    given, out = (Var(w.names.fresh(wish), typ) for wish in ("x", name))
    w.hold(given, x)
    w.elementwise.operation(Op(name, (out,), (given,), (), (), loc))
    return w.values[out.name]


# -- the generator ------------------------------------------------------------------------------------------------


def _philox(w: VectorWriter, counter: tuple[Value, Value], seed: str, loc: Loc) -> tuple[Value, Value]:
    """The first two words of each counter, of four words of which the upper two are 0."""
    like = counter[0]
    state = [w.elementwise.unary("TMOV", c, w.temp, loc) for c in counter]
    state += [w.elementwise.filled(like, "0", loc) for _ in range(2)]
    keys: list[str] = []
    for part in (f"(uint32_t)({seed})", f"(uint32_t)(({seed}) >> 32)"):
        keys.append(w.names.fresh("key"))
        w.nodes.append(Assignment("uint32_t", keys[-1], part, loc, constant=False))
        w.scopes[-1][keys[-1]] = keys[-1]
    loop = Loop(w.names.fresh("round"), "0", str(_ROUNDS), "1", [], loc=loc)
    w.nodes.append(loop)
    w.loops.append(loop)
    with w.inside(loop.body):
        words: list[Value] = []
        for k, multiplier in enumerate(_MULTIPLIERS):
            upper, lower = _product(w, state[2 * k], multiplier, loc)
            other = state[3 - 2 * k]
            key = w.elementwise.filled(like, f"(int32_t){keys[1 - k]}", loc)
            words += [_xor(w, _xor(w, upper, other, loc), key, loc), lower]
        for target, word in zip(state, (words[2], words[3], words[0], words[1]), strict=True):
            w.elementwise.unary("TMOV", word, lambda *_, out=target: out, loc)
        for key, step in zip(keys, _STEPS, strict=True):
            w.nodes.append(Assignment("", key, f"{key} + {step}", loc))
    w.loops.pop()
    return state[0], state[1]


def _product(w: VectorWriter, a: Value, multiplier: int, loc: Loc) -> tuple[Value, Value]:
    """The upper and the lower 32 bits of a product."""
    e = w.elementwise

    def times(x: Value, number: int) -> Value:
        signed = number - (1 << 32) if number >> 31 else number
        return e.scaled("TMULS", x, f"({signed})", w.temp, loc)

    def low(x: Value) -> Value:
        return _shifted(w, e.scaled("TSHLS", x, "16", w.temp, loc), 16, loc)

    def add(x: Value, y: Value) -> Value:
        return e.binary("ADD", x, y, w.temp, loc)

    upper, lower = multiplier >> 16, multiplier & 0xFFFF
    ah, al = _shifted(w, a, 16, loc), low(a)
    one, other = times(al, upper), times(ah, lower)
    middle = add(_shifted(w, times(al, lower), 16, loc), add(low(one), low(other)))
    rest = add(_shifted(w, one, 16, loc), _shifted(w, other, 16, loc))
    return add(times(ah, upper), add(rest, _shifted(w, middle, 16, loc))), times(a, multiplier)


def _shifted(w: VectorWriter, x: Value, count: int, loc: Loc) -> Value:
    """To the right, with zeros before."""
    out = w.temp(i32, x.span, x.capacity, x.valid, x.free)
    words = (Value(v.name, u32, v.span, v.capacity, v.valid, v.buffer) for v in (out, x))
    w.emit("TSHRS", *(w.tile(v, loc=loc) for v in words), str(count), loc=loc)
    return out


def _xor(w: VectorWriter, a: Value, b: Value, loc: Loc) -> Value:
    """What is in one of them, and not in both."""
    both = w.tile(w.elementwise.same("TAND", (a, b), w.temp, loc), loc=loc)
    out = w.elementwise.same("TOR", (a, b), w.temp, loc)
    tile = w.tile(out, loc=loc)
    w.emit("TSUB", tile, tile, both, loc=loc)
    return out

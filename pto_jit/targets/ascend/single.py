# SPDX-License-Identifier: MIT
"""One operation on tiles and numbers, as one instruction or a few.

What is broadcast decides the instruction: tiles of one shape have one, a column against a tile is a row broadcast
(`TROWEXPANDSUB`), a row against a tile a column broadcast (`TCOLEXPANDADD`), a number a tile-scalar instruction.  A
smaller left operand of a subtraction or division is broadcast first, as there is no instruction for that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import DType, bf16, bool_, f16, f32, f64, i16, i32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op
from pto_jit.targets.ascend.conversions import DIRECT, NARROWING
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.sizes import in_words
from pto_jit.targets.ascend.values import Size, Span, Value, joint

if TYPE_CHECKING:
    from pto_jit.targets.ascend.form import Tile
    from pto_jit.targets.ascend.tiles import TileWriter

_COMMUTE = ("ADD", "MUL", "MAX", "MIN")
REPEATED = frozenset(["f16", "f32", "i16", "i32"])
"""What the core has instructions to repeat along an axis for."""

Operand = Value | str


class Single:
    """Writes instructions into the kernel of a `VectorWriter`."""

    def __init__(self, writer: TileWriter) -> None:
        self.w = writer

    def unary(self, name: str, x: Value, to: Any, loc: Loc) -> Value:
        out = to(x.dtype, x.span, x.capacity, x.valid, x.free, (x,))
        self.w.emit(name, self.w.tile(out, valid=x.valid, loc=loc), self.w.tile(x, loc=loc), loc=loc)
        return out

    def scaled(self, name: str, x: Value, number: str, to: Any, loc: Loc) -> Value:
        """A tile-scalar instruction."""
        out = to(x.dtype, x.span, x.capacity, x.valid, x.free, (x,))
        self.w.emit(name, self.w.tile(out, valid=x.valid, loc=loc), self.w.tile(x, loc=loc),
                    self.w.scalar(number, x.dtype), loc=loc)  # fmt: skip
        return out

    def over(self, a: Operand, b: Operand, to: Any, loc: Loc) -> Value:
        """A number over a tile, or a tile over a number.

        Never in the operand's memory: the library fills the result's with the number before it divides, and where both
        are one it multiplies a tile by the reciprocal of the number, which rounds twice.
        """
        w = self.w
        x = b if isinstance(b, Value) else a
        assert isinstance(x, Value)
        out = to(x.dtype, x.span, x.capacity, x.valid, x.free)
        result = w.tile(out, valid=x.valid, loc=loc)
        if out.buffer is x.buffer:  # of a variable that is assigned again: the number is filled in elsewhere
            sides = (v if isinstance(v, Value) else self.filled(x, v, loc) for v in (a, b))
            w.emit("TDIV", result, *(w.tile(v, valid=x.valid, loc=loc) for v in sides), loc=loc)
            return out
        given = (w.tile(v, loc=loc) if isinstance(v, Value) else w.scalar(v, x.dtype) for v in (a, b))
        w.emit("TDIVS", result, *given, loc=loc)
        return out

    def same(self, name: str, args: Sequence[Operand], to: Any, loc: Loc) -> Value:
        """An instruction on tiles of one shape, which they get if they do not have it."""
        values = [a for a in args if isinstance(a, Value)]
        span, capacity, valid, free = self.joint(values, loc)
        wide = [self.broadcast(v, span, capacity, valid, free, self.w.temp, loc) for v in values]
        out = to(values[0].dtype, span, capacity, valid, free, tuple(v for v in wide if not v.is_mask))
        self.w.emit(name, self.w.tile(out, valid=valid, loc=loc),
                    *(self.w.tile(v, valid=valid, loc=loc) for v in wide), loc=loc)  # fmt: skip
        return out

    def alike(self, args: list[Operand], loc: Loc) -> list[Value]:
        """Operands as tiles of one shape: numbers are written into tiles, smaller tiles are broadcast."""
        values = [a for a in args if isinstance(a, Value)]
        shape = self.joint(values, loc)
        out: list[Value] = []
        for a in args:
            if isinstance(a, str):
                number, a = a, self.w.temp(values[0].dtype, *shape)
                self.w.fill(a, number, loc)
            out.append(self.broadcast(a, *shape, self.w.temp, loc))
        return out

    def joint(
        self, values: list[Value], loc: Loc
    ) -> tuple[Span, tuple[int, int], tuple[Size, Size], tuple[bool, bool]]:
        span = joint([v.span for v in values])
        capacity = (max(v.capacity[0] for v in values), max(v.capacity[1] for v in values))
        valid, free = self.w.joint_valid(values, span, loc)
        return span, capacity, valid, free

    def binary(self, name: str, a: Operand, b: Operand, to: Any, loc: Loc) -> Value:
        w = self.w
        if isinstance(a, str):
            assert isinstance(b, Value)
            if name in _COMMUTE:
                return self.scaled(f"T{name}S", b, a, to, loc)
            if name == "DIV":
                return self.over(a, b, to, loc)
            turned = self.scaled("TMULS", b, "-1", to, loc)
            tile = w.tile(turned, loc=loc)
            w.emit("TADDS", tile, tile, w.scalar(a, b.dtype), loc=loc)
            return turned
        if isinstance(b, str):
            return self.over(a, b, to, loc) if name == "DIV" else self.scaled(f"T{name}S", a, b, to, loc)
        span, capacity, valid, free = self.joint([a, b], loc)
        if a.span != span and b.span == span and name in _COMMUTE:
            a, b = b, a
        if a.span != span:
            a = self.broadcast(a, span, capacity, valid, free, w.temp, loc)
        if b.span == span:
            out = to(a.dtype, span, capacity, valid, free, (a, b))
            w.emit(f"T{name}", w.tile(out, valid=valid, loc=loc), w.tile(a, valid=valid, loc=loc),
                   w.tile(b, valid=valid, loc=loc), loc=loc)  # fmt: skip
            return out
        if b.span == "one" and span == "full":
            b = self.broadcast(b, "row", (1, capacity[1]), (1, valid[1]), (False, free[1]), w.temp, loc)
        out = to(a.dtype, span, capacity, valid, free, (a,))
        along = "COL" if b.span == "row" else "ROW"
        other = w.tile(b, valid=(1, valid[1]), loc=loc) if along == "COL" else w.tile(
            b, "column", valid=(valid[0] if span == "full" else 1, 1), loc=loc)  # fmt: skip
        w.emit(
            f"T{along}EXPAND{name}", w.tile(out, valid=valid, loc=loc), w.tile(a, valid=valid, loc=loc), other, loc=loc
        )
        return out

    def broadcast(self, x: Value, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size],
                  free: tuple[bool, bool], to: Any, loc: Loc) -> Value:  # fmt: skip
        """A value repeated along the axes that it has one element of."""
        w = self.w
        if x.span == span:
            return x if to == w.temp else self.unary("TMOV", x, to, loc)
        if x.is_mask:
            ones = self.select(x, "1", "0", f32, w.temp, loc)
            wide = self.broadcast(ones, span, capacity, valid, free, w.temp, loc)
            return self.compare("NE", wide, "0", to=to, loc=loc)
        if x.dtype.name not in REPEATED:
            wide = self.broadcast(self.converted(x, f32, w.temp, loc), span, capacity, valid, free, w.temp, loc)
            return self.converted(wide, x.dtype, to, loc)
        if x.span == "one" and span == "full":
            x = self.broadcast(x, "row", (1, capacity[1]), (1, valid[1]), free, w.temp, loc)
        out = to(x.dtype, span, capacity, valid, free)
        if x.span == "row":
            w.emit("TCOLEXPAND", w.tile(out, valid=valid, loc=loc), w.tile(x, valid=(1, valid[1]), loc=loc), loc=loc)
        else:
            rows = valid[0] if x.span == "column" else 1
            w.emit(
                "TROWEXPAND", w.tile(out, valid=valid, loc=loc), w.tile(x, "column", valid=(rows, 1), loc=loc), loc=loc
            )
        return out

    def laid_over(self, out: Value, source: Value, loc: Loc) -> None:
        """The valid elements of a tile onto the first ones of another, and nothing behind them: by the words of the
        elements, for a copy (`TMOV`) takes whole blocks of 32 bytes."""
        w = self.w
        words = w.tile(in_words(source, source.valid), loc=loc)
        w.emit("TOR", w.tile(in_words(out, source.valid), loc=loc), words, words, loc=loc)

    # -- conversions ----------------------------------------------------------------------------------------------

    def converted(self, x: Value, dtype: DType, to: Any, loc: Loc) -> Value:
        """A value in another dtype; what the core cannot convert at once goes by way of f32."""
        w = self.w
        if x.is_mask:
            if dtype.kind == "b":
                return x
            ones = self.select(x, "1", "0", f32, to if dtype == f32 else w.temp, loc)
            return ones if dtype == f32 else self.converted(ones, dtype, to, loc)
        if dtype.kind == "b":
            return self.compare("NE", self.wide(x, loc), "0", to=to, loc=loc)
        if x.dtype == dtype:
            return x if to == w.temp else self.unary("TMOV", x, to, loc)
        names = (x.dtype.name, dtype.name)
        if names not in DIRECT:
            if x.dtype == f32 and dtype.name in ("i8", "u8"):
                whole = w.temp(f32, x.span, x.capacity, x.valid, x.free)  # f16 would round fractions up
                w.emit("TCVT", w.tile(whole, loc=loc), w.tile(x, loc=loc), "RoundMode::CAST_TRUNC", loc=loc)
                return self.converted(self.converted(whole, f16, w.temp, loc), dtype, to, loc)
            if dtype == f32 and x.dtype.name in ("i8", "u8"):
                return self.converted(self.converted(x, f16, w.temp, loc), dtype, to, loc)
            if dtype.name in ("i8", "u8") and x.dtype in (i16, i32):
                return self.converted(self._lowest(x, dtype, loc), dtype, to, loc)
            if names == ("i64", "i16"):
                return self.converted(self.converted(x, i32, w.temp, loc), dtype, to, loc)
            if f64 in (x.dtype, dtype):
                raise unsupported("tiles of f64, as those of f32 give with numbers of i32, i64 and f64", loc,
                                  "convert such numbers: `n.to(pl.f32)`")  # fmt: skip
            wraps = x.dtype.is_integer and dtype.is_integer and (dtype.bits <= x.dtype.bits or dtype.kind == "u")
            if f32 in (x.dtype, dtype) or wraps:
                raise unsupported(
                    f"a conversion from {x.dtype} to {dtype}", loc, "convert between f32, f16, bf16 and i32"
                )
            return self.converted(self.converted(x, f32, w.temp, loc), dtype, to, loc)
        out = to(dtype, x.span, x.capacity, x.valid, x.free)
        mode = f"RoundMode::CAST_{'TRUNC' if dtype.is_integer else 'RINT'}"
        if names in NARROWING:  # integers wrap; floats do by themselves, too
            mode += f", SaturationMode::{'OFF' if x.dtype.is_integer else 'ON'}"
        w.emit("TCVT", w.tile(out, valid=x.valid, loc=loc), w.tile(x, loc=loc), mode, loc=loc)
        return out

    def _lowest(self, x: Value, dtype: DType, loc: Loc) -> Value:
        """The lower 8 bits of integers, as f32: what is left of them beside multiples of 256; signed from -128 on."""
        w = self.w
        begin = 128 if dtype.kind == "i" else 0
        wide = self.converted(x, i32, w.temp, loc)
        moved = self.scaled("TADDS", wide, str(begin), w.temp, loc) if begin else wide
        above = self.scaled("TSHRS", moved, "8", w.temp, loc)
        above = self.scaled("TSHLS", above, "8", w.temp, loc)
        low = self.binary("SUB", wide, above, w.temp, loc)
        return self.converted(low, f32, w.temp, loc)

    # -- masks ----------------------------------------------------------------------------------------------------

    def compare(self, mode: str, a: Operand, b: Operand, to: Any, loc: Loc) -> Value:
        """One bit per element.  Of i32 there is only equality: a <= b where the smaller one is a."""
        w = self.w
        if isinstance(a, str):
            a, b, mode = b, a, {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(mode, mode)
        assert isinstance(a, Value)
        if a.dtype not in (f32, i32):
            raise unsupported(f"a comparison of tiles of {a.dtype}", loc, "convert them to f32 or i32")
        if isinstance(b, str):
            return self._compare_number(mode, a, b, to, loc)
        span, capacity, valid, free = self.joint([a, b], loc)
        if a.dtype == i32 and span not in (a.span, b.span):
            return self._compare_across(mode, a, b, to, loc)
        a, b = (self.broadcast(v, span, capacity, valid, free, w.temp, loc) for v in (a, b))
        if a.dtype == i32 and mode not in ("EQ", "NE"):
            if mode in ("GE", "GT"):
                a, b, mode = b, a, {"GE": "LE", "GT": "LT"}[mode]
            least = self.binary("MIN", a, b, w.temp, loc)
            a, b, mode = (least, a, "EQ") if mode == "LE" else (least, b, "NE")
        out = to(bool_, span, capacity, valid, free)
        left, right = (w.tile(v, valid=valid, loc=loc) for v in (a, b))
        w.emit("TCMP", w.tile(out, valid=valid, loc=loc), left, right, f"CmpMode::{mode}", loc=loc)
        return out

    def _compare_number(self, mode: str, a: Value, number: str, to: Any, loc: Loc) -> Value:
        """A tile with a number; of i32 the smaller one is equal to the tile, or to the number."""
        if a.dtype == f32 and mode in ("EQ", "NE"):  # pto-isa's simulator takes what differs by 1e-9 for equal to it
            return self.compare(mode, a, self.filled(a, number, loc), to, loc)
        if a.dtype == i32 and mode not in ("EQ", "NE"):
            least = self.scaled("TMINS", a, number, self.w.temp, loc)
            if mode in ("LE", "GT"):
                return self.compare("EQ" if mode == "LE" else "NE", least, a, to, loc)
            a, mode = least, "EQ" if mode == "GE" else "NE"
        w = self.w
        span, capacity, valid, free = self.joint([a], loc)
        out = to(bool_, span, capacity, valid, free)
        w.emit("TCMPS", w.tile(out, valid=valid, loc=loc), w.tile(a, valid=valid, loc=loc), w.scalar(number, a.dtype),
               f"CmpMode::{mode}", loc=loc)  # fmt: skip
        return out

    def _compare_across(self, mode: str, a: Value, b: Value, to: Any, loc: Loc) -> Value:
        """A column of i32 with a row, in the memory of one tile: `a <= b` where `max(a, b) - b` is 0.

        A difference that overflows is not 0, as numbers with a difference of 0 in 32 bits are equal.
        """
        w = self.w
        span, capacity, valid, free = self.joint([a, b], loc)
        if mode in ("GE", "GT"):
            a, b, mode = b, a, {"GE": "LE", "GT": "LT"}[mode]
        if mode == "LT":  # not b <= a
            a, b = b, a
        wide = self.broadcast(a, span, capacity, valid, free, w.temp, loc)
        tile = w.tile(wide, valid=valid, loc=loc)
        along = "COL" if b.span == "row" else "ROW"
        other = w.tile(b, valid=(1, valid[1]), loc=loc) if along == "COL" else w.tile(
            b, "column", valid=(valid[0], 1), loc=loc)  # fmt: skip
        for name in ("SUB",) if mode in ("EQ", "NE") else ("MAX", "SUB"):
            w.emit(f"T{along}EXPAND{name}", tile, tile, other, loc=loc)
        out = to(bool_, span, capacity, valid, free)
        w.emit("TCMPS", w.tile(out, valid=valid, loc=loc), tile, w.scalar("0", i32),
               f"CmpMode::{'EQ' if mode in ('LE', 'EQ') else 'NE'}", loc=loc)  # fmt: skip
        return out

    def filled(self, like: Value, number: str, loc: Loc) -> Value:
        """A tile of one number, of the shape of another."""
        out = self.w.temp(like.dtype, like.span, like.capacity, like.valid, like.free)
        self.w.fill(out, number, loc)
        return out

    def classify(self, name: str, x: Operand, to: Any, loc: Loc) -> Value:
        assert isinstance(x, Value)
        if name == "isnan":
            return self.compare("NE", x, x, to=to, loc=loc)
        size = self.unary("TABS", x, self.w.temp, loc)
        return self.compare("EQ" if name == "isinf" else "LT", size, "__builtin_inff()", to=to, loc=loc)

    def logic(self, op: Op, args: list[Operand], to: Any) -> Value:
        """Operations on masks: on their words."""
        w, loc = self.w, op.loc
        span, capacity, valid, free = self.joint([a for a in args if isinstance(a, Value)], loc)

        masks = [self._everywhere(a, span, capacity, valid, free, loc) if isinstance(a, str) else
                 self.broadcast(a, span, capacity, valid, free, w.temp, loc)
                 for a in args]  # fmt: skip

        def words(name: str, *values: Value, to: Any = w.temp) -> Value:
            out = to(bool_, span, capacity, valid, free)
            w.emit(name, *(w.tile(v, dtype=i16, loc=loc) for v in (out, *values)), loc=loc)
            return out

        if op.op == "select":
            mask, a, b = masks
            return words("TOR", words("TAND", mask, a), words("TAND", words("TNOT", mask), b), to=to)
        one = {"and": "TAND", "mul": "TAND", "min": "TAND", "minimum": "TAND", "or": "TOR", "max": "TOR",
               "maximum": "TOR", "add": "TOR", "not": "TNOT", "copy": "TMOV"}.get(op.op)  # fmt: skip
        if one is not None:
            return words(one, *masks, to=to)
        a, b = (masks * 2)[:2]
        match op.op:
            case "xor" | "ne":
                return words("TAND", words("TOR", a, b), words("TNOT", words("TAND", a, b)), to=to)
            case "eq":
                return words("TOR", words("TAND", a, b), words("TNOT", words("TOR", a, b)), to=to)
            case "lt" | "gt":
                return words("TAND", *((words("TNOT", a), b) if op.op == "lt" else (a, words("TNOT", b))), to=to)
            case "le" | "ge":
                return words("TOR", *((words("TNOT", a), b) if op.op == "le" else (a, words("TNOT", b))), to=to)
            case _:
                raise unsupported(f"`{op.op}` of masks", loc, "combine them with &, | and ~")

    def _everywhere(self, truth: str, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size],
                    free: tuple[bool, bool], loc: Loc) -> Value:  # fmt: skip
        """A mask of one truth value."""
        out = self.w.temp(bool_, span, capacity, valid, free)
        self.w.emit("TEXPANDS", self.w.tile(out, dtype=i16, loc=loc), f"(int16_t)-({truth})", loc=loc)
        return out

    def select(self, mask: Operand, a: Operand, b: Operand, dtype: DType, to: Any, loc: Loc) -> Value:
        w = self.w
        others = [v for v in (a, b) if isinstance(v, Value)]
        if isinstance(mask, str):  # one truth value for all elements
            mask = self._everywhere(mask, *self.joint(others, loc), loc)
        span, capacity, valid, free = self.joint([mask, *others], loc)
        mask = self.broadcast(mask, span, capacity, valid, free, w.temp, loc)
        like = Value("choice", dtype, span, capacity, valid, mask.buffer, free)
        sides = [self.broadcast(v, span, capacity, valid, free, w.temp, loc) if isinstance(v, Value) else
                 self.filled(like, v, loc) for v in (a, b)]  # fmt: skip
        out = to(dtype, span, capacity, valid, free, tuple(sides))
        scratch = w.temp(i16 if dtype == bf16 else dtype, "row", (1, 32 // dtype.bytes), (1, 32 // dtype.bytes))

        def bits(value: Value) -> Tile:
            """A tile as the instruction takes it, which knows no bf16."""
            if value.dtype == bf16:
                value = Value(value.name, i16, value.span, value.capacity, value.valid, value.buffer, value.free)
            return w.tile(value, valid=valid, loc=loc)

        w.emit("TSEL", bits(out), w.tile(mask, valid=valid, loc=loc), *map(bits, sides), w.tile(scratch, loc=loc),
               loc=loc)  # fmt: skip
        return out

    def wide(self, value: Operand, loc: Loc) -> Operand:
        """16-bit floats are compared in f32, and short integers."""
        if isinstance(value, Value) and value.dtype in (f16, bf16):
            return self.converted(value, f32, self.w.temp, loc)
        if isinstance(value, Value) and (value.dtype == i16 or (value.dtype.bits == 8 and not value.is_mask)):
            return self.converted(value, f32, self.w.temp, loc)
        return value

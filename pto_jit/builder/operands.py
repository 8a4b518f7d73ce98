# SPDX-License-Identifier: MIT
"""The names of a function being built: what they stand for, and reading operands given by name or value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from pto_jit.dtypes import DType, i64
from pto_jit.errors import CompilationError, Loc, TypeMismatchError, similar
from pto_jit.ir.isa.expansion import constant
from pto_jit.ir.nodes import Const, Op, Operand, Stmt, Var
from pto_jit.ir.tile_calls import TileArgument
from pto_jit.ir.types import ScalarType, TensorType, TileType, Type

I64 = ScalarType(i64)
TEMPORARY = TensorType(i64, (None, None))  # stands for a tensor until the calls that use it are known
Actual = str | int | float | bool | tuple[str, str | int, str | int]
_WORDS = {TileType: "tile", ScalarType: "scalar", TensorType: "memref"}


def plain(value: Any) -> Any:
    """A value, of NumPy's numbers the Python number."""
    return value.item() if isinstance(value, np.generic) else value


class Names:
    """The variables of one function."""

    def __init__(self) -> None:
        self.types: dict[str, Type] = {}
        self.declared: dict[str, Loc] = {}  # by the user, in order
        self.assigned: set[str] = set()
        self.loops: list[str] = []  # variables of the open loops
        self.temporaries: frozenset[str] = frozenset()
        self.made: set[str] = set()  # names of intermediate results

    # -- declaring and assigning --------------------------------------------------------------------------------

    def declare(self, name: str, type: Type, loc: Loc) -> None:
        if not isinstance(name, str) or not name:
            wrong(TypeMismatchError, f"{name!r} is not a name", loc, "PTO-T212", "give a string")
        if name in self.types:
            where = f" on line {self.declared[name].lineno}" if name in self.declared else ""
            wrong(CompilationError, f"`{name}` is already declared{where} as {self.types[name]}", loc, "PTO-P031",
                  "use another name")  # fmt: skip
        self.types[name] = type
        self.declared[name] = loc

    def hidden(self, hint: str, type: Type) -> Var:
        """A variable for an intermediate result."""
        count = 0
        while (name := f"{hint}.t{count}") in self.types:
            count += 1
        self.types[name] = type
        self.made.add(name)
        return Var(name, type)

    def check_target(self, name: str, role: str, loc: Loc) -> None:
        """An error when `name` cannot be assigned a tile (role T) or a scalar (role D)."""
        known = self.types.get(name)
        wanted = TileType if role == "T" else ScalarType
        if known is not None and (not isinstance(known, wanted) or name in self.made):
            what = "an intermediate result" if name in self.made else f"a {_WORDS[type(known)]}"
            wrong(TypeMismatchError, f"`{name}` is {what}, not a {_WORDS[wanted]}", loc, "PTO-T213", "use another name")
        if name in self.loops:
            wrong(CompilationError, f"the loop variable `{name}` is assigned in its loop", loc, "PTO-P032",
                  "use another name")  # fmt: skip

    def assign(self, name: str, found: Type) -> Type:
        """Note an assignment; the type of the variable, which is `found` when nothing declared it."""
        self.assigned.add(name)
        return self.types.setdefault(name, found)

    def open_loop(self, name: str, loc: Loc) -> None:
        if not isinstance(name, str) or not name:
            wrong(TypeMismatchError, f"{name!r} is not the name of a loop variable", loc, "PTO-T214", "give a string")
        if name in self.loops:
            wrong(CompilationError, f"a loop of `{name}` is open", loc, "PTO-P033", "use another name")
        if self.types.setdefault(name, I64) != I64:
            wrong(TypeMismatchError, f"`{name}` is declared as {self.types[name]}, a loop variable is i64", loc,
                  "PTO-T215", "use another name")  # fmt: skip
        self.loops.append(name)
        self.assigned.add(name)

    def close_loop(self, name: str) -> None:
        self.loops.remove(name)

    def parameters(self) -> tuple[Var, ...]:
        """Memrefs in order, then the scalars that nothing assigns."""
        names = [n for n in self.declared if isinstance(self.types[n], TensorType)]
        names += [n for n in self.declared if isinstance(self.types[n], ScalarType) and n not in self.assigned]
        return tuple(Var(name, self.types[name]) for name in names)

    # -- reading ------------------------------------------------------------------------------------------------

    def tile(self, name: Any, loc: Loc) -> Var:
        """The tile of that name, which has been assigned."""
        kind = self._known(name, loc, TileType, "tile")
        if name not in self.assigned:
            wrong(CompilationError, f"the tile `{name}` is read before anything is assigned to it", loc, "PTO-N063",
                  "load it, or fill it with `.expands`")  # fmt: skip
        return Var(name, kind)

    def scalar(self, name: Any, loc: Loc) -> Var:
        return Var(name, self._known(name, loc, ScalarType, "scalar"))

    def memref(self, name: Any, loc: Loc) -> Var:
        return Var(name, self._known(name, loc, TensorType, "memref"))

    def _known(self, name: Any, loc: Loc, wanted: type, word: str) -> Type:
        if not isinstance(name, str):
            wrong(TypeMismatchError, f"a {word} is wanted, got {name!r}", loc, "PTO-T216", f"give the name of a {word}")
        kind = self.types.get(name)
        if kind is None or name in self.temporaries:
            wrong(CompilationError, f"there is no {word} `{name}`", loc, "PTO-N062",
                  similar(name, self.types).strip() or f"declare it: `.{word}({name!r}, ...)`")  # fmt: skip
        if not isinstance(kind, wanted):
            wrong(TypeMismatchError, f"`{name}` is a {_WORDS[type(kind)]}, a {word} is wanted", loc, "PTO-T217",
                  f"give the name of a {word}")  # fmt: skip
        return kind

    def operand(self, role: str, value: Any, name: str, loc: Loc, append: Callable[[Stmt], None]) -> Any:
        """What an instruction is given for an operand of that role; numbers stay numbers until a dtype is known."""
        if role == "t":
            return self.tile(value, loc)
        if role == "x":
            return self.memref(value, loc)
        if role in "so" and isinstance(value, str):
            kind = self.types.get(value)
            return self.tile(value, loc) if role == "o" and isinstance(kind, TileType) else self.scalar(value, loc)
        if role == "i" and isinstance(value, str):
            return self.cast_index(self.scalar(value, loc), loc, append)
        value = plain(value)
        good = {"s": (int, float), "o": (int, float), "i": int, "n": int, "w": str}[role]
        if not isinstance(value, good) or (isinstance(value, bool) and role == "i"):
            what = {"i": "an integer or the name of an integer scalar", "n": "an integer", "w": "a word"}.get(
                role, "a number or the name of a scalar"
            )
            wrong(TypeMismatchError, f"`{name}` is {value!r}, not {what}", loc, "PTO-T218", f"give {what}")
        return constant(value, i64, loc) if role == "i" else value

    def cast_index(self, var: Var, loc: Loc, append: Callable[[Stmt], None]) -> Var:
        """An integer scalar as i64."""
        if not var.type.dtype.is_integer:
            wrong(TypeMismatchError, f"`{var.name}` is {var.type}, not an integer", loc, "PTO-T236",
                  "indices are integers: convert it with `.scalar_cvt`")  # fmt: skip
        if var.type == I64:
            return var
        result = self.hidden(f"{var.name}.idx", I64)
        append(Op("cast", (result,), (var,), (("dtype", i64),), (), loc))
        return result

    @staticmethod
    def index(value: int) -> Const:
        return Const(value, I64)

    @staticmethod
    def number(value: int | float, dtype: DType, loc: Loc) -> Const:
        return constant(value, dtype, loc)

    # -- arguments of calls -------------------------------------------------------------------------------------

    def actual(self, formal: Var, value: Any, loc: Loc, orchestration: bool) -> Operand | TileArgument:
        """What a call gives for `formal`."""
        if isinstance(formal.type, ScalarType):
            if isinstance(value, str):
                found = self.scalar(value, loc)
                both = found.type.dtype.is_integer and formal.type.dtype.is_integer
                if found.type != formal.type and not both:
                    wrong(TypeMismatchError, f"`{formal.name}` is {formal.type}, `{value}` is {found.type}", loc,
                          "PTO-T233", "convert it with `.scalar_cvt`")  # fmt: skip
                return found
            if isinstance(plain(value), (int, float)):
                return constant(plain(value), formal.type.dtype, loc)
            wrong(TypeMismatchError, f"`{formal.name}` is a scalar, it is given {value!r}", loc, "PTO-T234",
                  "give a number or the name of a scalar")  # fmt: skip
        if not isinstance(value, tuple):
            return self._tensor(formal, value, loc, orchestration)
        if not orchestration:
            first = value[0] if value else ""
            wrong(CompilationError, "an in-core function passes whole memrefs", loc, "PTO-P034",
                  f"write `{formal.name!r}: {first!r}`; orchestration functions select tiles")  # fmt: skip
        if len(value) != 3:
            wrong(TypeMismatchError, f"{value!r} does not select a tile", loc, "PTO-T219", "write `(tensor, row, col)`")
        places = [self._tile_index(place, loc) for place in value[1:]]
        return TileArgument(self._tensor(formal, value[0], loc, True), *places)

    def _tile_index(self, value: Any, loc: Loc) -> Operand:
        if isinstance(value, str):
            found = self.scalar(value, loc)
            if found.type.dtype.is_integer:
                return found
        elif type(plain(value)) is int:
            return self.index(plain(value))
        wrong(TypeMismatchError, f"{value!r} is not a row or column of tiles", loc, "PTO-T237",
              "give an integer, a loop variable or an integer scalar")  # fmt: skip

    def _tensor(self, formal: Var, name: Any, loc: Loc, orchestration: bool) -> Var:
        if isinstance(name, str) and name and orchestration and name not in self.types:
            self.temporaries |= {name}
            self.types[name] = TEMPORARY
        if isinstance(name, str) and name in self.temporaries:
            return Var(name, TEMPORARY)
        found = self.memref(name, loc)
        if found.type.dtype != formal.type.dtype:
            wrong(TypeMismatchError, f"`{formal.name}` holds {formal.type.dtype}, `{name}` {found.type.dtype}", loc,
                  "PTO-T235", "give a memref of that element type")  # fmt: skip
        return found


def wrong(error: type[CompilationError], message: str, loc: Loc, code: str, hint: str) -> NoReturn:
    raise error(message, loc, code=code, hint=hint)

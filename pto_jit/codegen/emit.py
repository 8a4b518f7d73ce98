# SPDX-License-Identifier: MIT
"""Appending typed statements: the only way the front end makes IR.

An `Emitter` owns the names and the open blocks of one function being built.  It knows operations and types, nothing
of Python syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

from pto_jit.codegen.values import Scalar, Tensor, Tile, static_extent
from pto_jit.dtypes import DType, bool_, f64, i64
from pto_jit.errors import NOWHERE, CompilationError, Loc
from pto_jit.ir.nodes import Attr, Block, Const, Op, Operand, Region, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType, Type
from pto_jit.semantic.rules import infer, is_elementwise

I64 = ScalarType(i64)


@lru_cache(1024, typed=True)
def index(value: int) -> Const:
    """An i64 constant; they are few numbers, over and over. Of a subclass of int, as an enum's, it is the number."""
    return Const(int(value), I64)


class Waiting(Protocol):
    """What has statements of its own in the open block, which are not IR yet."""

    def before(self, stmt: Stmt | None) -> None:
        """A statement is about to be appended to the block (None: another block to be opened in it)."""

    def returning(self, value: Any) -> None:
        """The function ends here with this value."""


class Emitter:
    """Builds the body of one function.

    `loc` is the place of the expression being compiled; every statement appended takes it.
    """

    def __init__(self, locate: Callable[[], Loc] = lambda: NOWHERE) -> None:
        self._locate = locate
        self.weak: set[str] = set()  # variables that hold weak numbers
        self._blocks: list[list[Stmt]] = [[]]
        self._names: dict[str, int] = {}
        self._temporaries = 0
        self._dims: dict[tuple[str, int], Var] = {}
        self.allocated: dict[str, Op] = {}  # tensors made here
        self.local: set[str] = set()  # those of them that belong to an iteration, a branch or the call of a function
        self._numbers: dict[str, Op] = {}  # what computes a number of i64
        self.definitions: dict[str, Op] = {}  # operations by the name of their first result (tiles and extents)
        self.extents: dict[str, tuple[Operand, ...]] = {}  # declared extents of tiles and tensors
        self.typed: dict[int, Op] = {}  # operations with the types that their rules give, by identity
        self.prologue: list[Stmt] = []  # extents of parameters: read once, visible everywhere
        self.waiting: Waiting | None = None

    # -- names and blocks ---------------------------------------------------------------------------------------

    def fresh(self, hint: str, type: Type) -> Var:
        """A variable with an unused name, `hint` itself when that is free; a temporary ("t") is t0, t1, ..."""
        if hint != "t":
            return self.named(hint, type)
        count = self._temporaries
        while f"t{count}" in self._names:
            count += 1
        self._temporaries = count + 1
        self._names[f"t{count}"] = 1
        return Var(f"t{count}", type)

    def named(self, name: str, type: Type) -> Var:
        """A variable for the user's variable `name`, whatever that is."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        unused = name if count == 0 else f"{name}.{count}"
        if count and unused in self._names:
            return self.named(name, type)
        self._names.setdefault(unused, 1)
        return Var(unused, type)

    def append(self, stmt: Stmt) -> None:
        if self.waiting is not None:
            self.waiting.before(stmt)
        self._blocks[-1].append(stmt)

    @contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """Collect the statements appended inside; they are in the list that `with` gives."""
        if self.waiting is not None:
            self.waiting.before(None)
        statements: list[Stmt] = []
        self._blocks.append(statements)
        try:
            yield statements
        finally:
            popped = self._blocks.pop()
            assert popped is statements

    def push(self, statements: list[Stmt] | None = None) -> list[Stmt]:
        """Open a block (or open one again) that `pop` closes; for blocks whose end is not known where they begin."""
        if self.waiting is not None:
            self.waiting.before(None)
        block = [] if statements is None else statements
        self._blocks.append(block)
        return block

    def pop(self, statements: list[Stmt]) -> None:
        popped = self._blocks.pop()
        assert popped is statements

    def cut(self, depth: int) -> None:
        """Drop the blocks opened since there were `depth`: what they belong to is given up."""
        del self._blocks[depth:]

    @property
    def loc(self) -> Loc:
        """The place of the expression being compiled."""
        return self._locate()

    @contextmanager
    def at(self, loc: Loc) -> Iterator[None]:
        """What is appended inside, and errors, have this place."""
        locate = self._locate
        self._locate = lambda: loc
        try:
            yield
        finally:
            self._locate = locate

    @property
    def current(self) -> list[Stmt]:
        """The statements of the innermost open block."""
        return self._blocks[-1]

    def is_open(self, block: list[Stmt]) -> bool:
        """Whether what is appended now is inside of a block, or at its end."""
        return any(b is block for b in self._blocks)

    def inside_of(self, block: list[Stmt]) -> list[list[Stmt]]:
        """The open blocks inside of an open one, outermost first."""
        at = next(k for k, b in enumerate(self._blocks) if b is block)
        return self._blocks[at + 1 :]

    @property
    def depth(self) -> int:
        return len(self._blocks)

    def finish(self) -> Block:
        assert len(self._blocks) == 1
        return (*self.prologue, *self._blocks[0])

    # -- operations ---------------------------------------------------------------------------------------------

    def op(
        self,
        name: str,
        args: Sequence[Operand],
        attrs: dict[str, Attr] | None = None,
        *,
        regions: tuple[Region, ...] = (),
        hint: str = "t",
    ) -> tuple[Var, ...]:
        """Append an operation; its results are typed by the rule of its row."""
        packed = tuple(sorted(attrs.items())) if attrs else ()
        given, loc = tuple(args), self.loc
        try:
            types = infer(name, given, dict(packed), regions)
        except CompilationError as error:
            error.at(loc)
            raise
        results = tuple([self.fresh(hint, t) for t in types])
        made = Op(name, results, given, packed, regions, loc)
        self.typed[id(made)] = made
        self.append(made)
        if name == "alloc":
            self.allocated[results[0].name] = made
        elif results and not isinstance(results[0].type, ScalarType):
            self.definitions[results[0].name] = made
        elif results and results[0].type == I64:
            self._numbers[results[0].name] = made
        return results

    def known_difference(self, a: Operand, *parts: Operand) -> int | None:
        """`a` less all `parts` where it is known, as for `r + 64` and `r`, and for `(b + 1) * 16` and `b * 16`."""
        terms, rest = self._terms(a)
        for part in parts:
            others, less = self._terms(part)
            self._add(terms, others, -1)
            rest -= less
        return None if terms else rest

    def base_of(self, x: Var) -> tuple[Var, int]:
        """The variable that constants were added to, and their sum: of `r + 64` and of `64 + r` it is `r`, and 64."""
        offset = 0
        while (made := self._numbers.get(x.name)) is not None and made.op in ("add", "sub"):
            left, right = made.args
            if made.op == "add" and isinstance(left, Const):
                left, right = right, left
            if not (isinstance(left, Var) and isinstance(right, Const)):
                break
            offset += int(right.value) if made.op == "add" else -int(right.value)
            x = left
        return x, offset

    def _terms(self, x: Operand, depth: int = 10) -> tuple[dict[Var, int], int]:
        """A number of i64 as a sum of variables, each with a factor, and a constant."""
        if isinstance(x, Const):
            return {}, int(x.value)
        made = self._numbers.get(x.name)
        if made is None or depth == 0 or made.op not in ("add", "sub", "mul"):
            return {x: 1}, 0
        (terms, rest), (others, more) = (self._terms(arg, depth - 1) for arg in made.args)
        if made.op == "mul":
            if others and terms:
                return {x: 1}, 0
            parts, factor = (terms, more) if terms else (others, rest)
            return {v: f * factor for v, f in parts.items() if factor}, rest * more
        sign = 1 if made.op == "add" else -1
        self._add(terms, others, sign)
        return terms, rest + sign * more

    def _add(self, terms: dict[Var, int], others: dict[Var, int], sign: int) -> None:
        """Add `sign` times the terms of another number to those of one."""
        for var, factor in others.items():
            same = next((v for v in terms if self.same_number(v, var)), var)
            if total := terms.pop(same, 0) + sign * factor:
                terms[same] = total

    def maker(self, name: str) -> Op | None:
        """The operation that made a number of i64."""
        return self._numbers.get(name)

    def same_number(self, a: Operand, b: Operand, depth: int = 10) -> bool:
        """Whether two numbers are known to be one: the same arithmetic of the same numbers (`n * 8` written twice)."""
        if a == b:
            return True
        if depth == 0 or not (isinstance(a, Var) and isinstance(b, Var)):
            return False
        x, y = self._numbers.get(a.name), self._numbers.get(b.name)
        if x is None or y is None or (x.op, x.attrs, len(x.args)) != (y.op, y.attrs, len(y.args)):
            return False
        pure = is_elementwise(x.op, len(x.args))
        return pure and all(self.same_number(p, q, depth - 1) for p, q in zip(x.args, y.args, strict=True))

    def scalar(self, name: str, args: Sequence[Operand], attrs: dict[str, Attr] | None = None, *, weak: bool = False,
               hint: str = "t") -> Scalar:  # fmt: skip
        (var,) = self.op(name, args, attrs, hint=hint)
        if weak:
            self.weak.add(var.name)
        return Scalar(var, weak, self.loc)

    def tile(self, name: str, args: Sequence[Operand], attrs: dict[str, Attr] | None = None, *,
             extents: Sequence[Operand], generated: bool = False, hint: str = "t") -> Tile:  # fmt: skip
        (var,) = self.op(name, args, attrs, hint=hint)
        assert isinstance(var.type, TileType)
        known = tuple(e if n is None else index(n) for e, n in zip(extents, var.type.shape, strict=True))
        self.extents[var.name] = known  # what one operand has at run time may be a constant of another
        return Tile(var, known, generated, self.loc)

    def dim(self, tensor: Var, axis: int) -> Operand:
        """The extent of a tensor parameter's axis; one `dim` per axis, at the top of the function."""
        assert isinstance(tensor.type, TensorType)
        known = tensor.type.shape[axis]
        if known is not None:
            return index(known)
        key = (tensor.name, axis)
        if key not in self._dims:
            var = self.fresh(f"{tensor.name}_d{axis}", I64)
            self._dims[key] = var
            made = self._numbers[var.name] = Op("dim", (var,), (tensor,), (("axis", axis),), (), self.loc)
            self.prologue.append(made)
        return self._dims[key]

    def is_extent(self, value: Operand) -> bool:
        """Whether a number is known to be no less than 0: a constant, or an extent of an argument."""
        return value.value >= 0 if isinstance(value, Const) else value in self._dims.values()

    def may_be_negative(self, value: Operand, depth: int = 10) -> bool:
        """Whether a number is a difference, as `h - 2` is, or the sum or product of one with something; any other, such
        as one that is given to the function or counted by a loop, is taken as it is."""
        if isinstance(value, Const):
            return int(value.value) < 0
        made = self._numbers.get(value.name)
        if made is None or depth == 0:
            return False
        if made.op in ("sub", "neg"):
            return True
        return made.op in ("add", "mul") and any(self.may_be_negative(a, depth - 1) for a in made.args)

    def same_extent(self, a: Operand, b: Operand) -> bool:
        """Whether two extents of tiles that there are, so that none is negative, are known to be one."""
        return self.same_number(self._unclamped(a), self._unclamped(b))

    def _unclamped(self, value: Operand) -> Operand:
        made = self._numbers.get(value.name) if isinstance(value, Var) else None
        clamps = made is not None and made.op == "max" and len(made.args) == 2 and made.args[1] == index(0)
        return made.args[0] if made is not None and clamps else value

    def note(self, value: Any) -> Any:
        """Remember the declared extents of the tiles of a value; gives the value."""
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Tile):
                self.extents.setdefault(item.var.name, item.extents)
        return value

    def extents_of(self, var: Var) -> tuple[Operand, ...] | None:
        """The declared extents of a tile or tensor as operands, where they are known."""
        assert isinstance(var.type, (TileType, TensorType))
        known = self.extents.get(var.name)
        if known is None and all(e is not None for e in var.type.shape):
            known = tuple(index(e) for e in var.type.shape if e is not None)
        return known

    # -- conversions --------------------------------------------------------------------------------------------

    def cast(self, value: Scalar | Tile | int | float | bool, dtype: DType) -> Any:
        """`value` in `dtype`; constants fold, equal dtypes cost nothing. A Python number gives a Scalar constant."""
        if isinstance(value, (bool, int, float)):
            if dtype.is_float:
                self.to_scalar(value)  # which refuses integers that are too large
            return Scalar(constant(value, dtype), False, self.loc)
        if value.dtype == dtype:
            return Scalar(value.operand, False, value.origin) if isinstance(value, Scalar) else value
        if isinstance(value, Scalar):
            if isinstance(value.operand, Const):
                return Scalar(constant(value.operand.value, dtype), False, value.origin)
            return self.scalar("cast", [value.operand], {"dtype": dtype})
        return self.tile("cast", [value.var], {"dtype": dtype}, extents=value.extents, generated=value.generated)

    def to_scalar(self, value: object) -> Scalar:
        """A compile-time number as a weak run-time scalar; a Scalar as itself."""
        if isinstance(value, Scalar):
            return value
        if isinstance(value, bool):
            return Scalar(Const(value, ScalarType(bool_)), True, self.loc)
        if isinstance(value, int):
            if not -(2**63) <= value < 2**63:
                said = value if value.bit_length() <= 128 else f"of {value.bit_length()} bits"
                raise CompilationError(f"the integer {said} does not fit 64 bits", self.loc, code="PTO-N001",
                                       hint="run-time integers have 64 bits: compute with smaller ones")  # fmt: skip
            return Scalar(index(value), True, self.loc)
        if isinstance(value, float):
            return Scalar(Const(float(value), ScalarType(f64)), True, self.loc)
        raise AssertionError(type(value))

    def as_index(self, value: object) -> Operand:
        """An extent, offset or index as an i64 operand."""
        scalar = self.cast(self.to_scalar(value), i64)
        return scalar.operand


def constant(value: int | float | bool, dtype: DType) -> Const:
    """`value` as a constant of `dtype`, rounded or wrapped as a cast would."""
    if dtype.kind == "b":
        return Const(bool(value), ScalarType(dtype))
    if dtype.kind in "iu":
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
        high = low + (1 << dtype.bits) - 1
        if isinstance(value, float):
            whole = 0 if value != value else int(max(min(value, float(high)), float(low)))
            return Const(max(min(whole, high), low), ScalarType(dtype))
        return Const((int(value) - low) % (1 << dtype.bits) + low, ScalarType(dtype))
    if dtype == f64:
        return Const(float(value), ScalarType(dtype))
    import numpy as np

    with np.errstate(over="ignore"):
        return Const(float(dtype.numpy.type(value)), ScalarType(dtype))


__all__ = ["I64", "Emitter", "Scalar", "Tensor", "Tile", "TileType", "constant", "index", "static_extent"]

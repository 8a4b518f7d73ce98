# SPDX-License-Identifier: MIT
"""The loop IR: the whole grammar on one screen.

A program is a `Module` of `Func`s.  A body is a tuple of statements.  Operations (`Op`) are rows of the table in
`pto_jit.semantic`; loops, branches, scopes and calls are the node kinds below and there are no others.

Variables are mutable and have one type each: `%acc = tadd %acc, %t` inside a loop carries `%acc` to the next
iteration.  A variable assigned once is a value.  Tiles are values: assignment copies the meaning, never the memory.
All nodes are frozen and compared without their locations; passes build new trees and return the *same object* when
nothing changed.
"""

from __future__ import annotations

from typing import Literal

from pto_jit.dtypes import DType
from pto_jit.errors import NOWHERE, Loc
from pto_jit.ir.types import ScalarType, Type
from pto_jit.slotted import field, frozen

LoopKind = Literal["sequential", "parallel", "chunk", "in_chunk", "combine"]
FuncKind = Literal["orchestration", "incore"]
Attr = int | float | bool | str | None | DType | tuple["Attr", ...]


@frozen
class Var:
    """A use or definition of a variable; `name` without the `%`."""

    name: str
    type: Type


@frozen
class Const:
    """A scalar constant, already of the type it is used with."""

    value: int | float | bool
    type: ScalarType

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const) or self.type != other.type:
            return NotImplemented if not isinstance(other, Const) else False
        mine, its = self.value, other.value
        if type(mine) is int and type(its) is int:
            return mine == its
        # repr distinguishes 0.0 from -0.0 and makes NaN equal to itself, as program text does
        return repr(mine) == repr(its)

    def __hash__(self) -> int:
        return hash((self.value if type(self.value) is int else repr(self.value), self.type))


Operand = Var | Const


@frozen
class Region:
    """The body of a function: of one passed to an operation (`map`, `reduce`, `associative_scan`; scalars in, scalars
    out), or of the combine function of a `Reduction`, whose states may have tiles."""

    params: tuple[Var, ...]
    body: Block
    results: tuple[Operand, ...]


@frozen
class Op:
    """One operation: `results = op args {attrs}`."""

    op: str
    results: tuple[Var, ...]
    args: tuple[Operand, ...]
    attrs: tuple[tuple[str, Attr], ...] = ()
    regions: tuple[Region, ...] = ()
    loc: Loc = field(default=NOWHERE, compare=False, repr=False)

    def attr(self, name: str) -> Attr:
        for key, value in self.attrs:
            if key == name:
                return value
        return None


@frozen
class Reduction:
    """Variables that the iterations of a loop combine into, and how two of their states become one.

    A loop with it may be run in pieces: each piece starts from `init`, which changes no state it is combined with, and
    `combine` merges what the pieces give, in their order.  `combine` is the name of an associative elementwise
    operation (one variable; a scalar `init` stands for a tile full of it) or a region that takes the variables of the
    left state, then those of the right one, and gives the state.  Run in order, the loop does not need any of this.
    """

    state: tuple[Var, ...]
    init: tuple[Operand, ...]
    combine: str | Region


@frozen
class For:
    """A counted loop over [start, stop) by step, in the order and with the freedom that `kind` says.

    `chunk` (an operand), `policy` and `combine` are what the source asked for; chunk expansion consumes `chunk`.
    `grain` (an operand) is the scheduler's choice: iterations given to a worker at a time (parallel and chunk loops).
    A "combine" loop merges partial results: in order, or with `combine` "tree" in any order (one level of a tree).
    `checked`: the promise that iterations are independent is verified while they run, in the loop's order (parallel,
    chunk and in_chunk loops; a chunk loop and the in_chunk loop of the same variable in it are one checked loop).
    `proof`: why the iterations of a parallel loop that the compiler made itself are independent (such a promise is not
    examined again), or those of a sequential loop over elements, where the tensors in it do not share memory.
    `border`: the loop is the few first or last iterations of another one, whose code is to be short.
    """

    kind: LoopKind
    var: Var
    start: Operand
    stop: Operand
    step: Operand
    body: Block
    chunk: Operand | None = None
    policy: Literal["leading_full", "aligned"] = "leading_full"
    combine: Literal["sequential", "tree", "loop"] = "sequential"
    grain: Operand | None = None
    loc: Loc = field(default=NOWHERE, compare=False, repr=False)
    reductions: tuple[Reduction, ...] = ()
    checked: bool = False
    proof: str = field(default="", compare=False, repr=False)
    border: bool = field(default=False, compare=False, repr=False)


@frozen
class While:
    """`before` computes `cond`; the loop ends when it is false."""

    before: Block
    cond: Operand
    body: Block
    loc: Loc = field(default=NOWHERE, compare=False, repr=False)


@frozen
class If:
    cond: Operand
    then: Block
    orelse: Block = ()
    loc: Loc = field(default=NOWHERE, compare=False, repr=False)


@frozen
class Scope:
    """An in-core scope, before outlining. `named` when it is the inlined body of a named in-core function."""

    name: str
    body: Block
    named: bool = False
    loc: Loc = field(default=NOWHERE, compare=False, repr=False)


@frozen
class Fuse:
    """Consecutive tile operations that run as one loop nest over their common leading axes.

    `keep` names the results that are read outside the group and so need memory.
    """

    body: Block
    keep: tuple[str, ...] = ()
    loc: Loc = field(default=NOWHERE, compare=False, repr=False)


@frozen
class Call:
    """A call of another function of the module. Results are scalars; tensors are passed in."""

    callee: str
    args: tuple[Operand, ...]
    results: tuple[Var, ...] = ()
    loc: Loc = field(default=NOWHERE, compare=False, repr=False)


@frozen
class Return:
    values: tuple[Operand, ...] = ()
    loc: Loc = field(default=NOWHERE, compare=False, repr=False)


@frozen
class Break:
    loc: Loc = field(default=NOWHERE, compare=False, repr=False)


@frozen
class Continue:
    loc: Loc = field(default=NOWHERE, compare=False, repr=False)


Stmt = Op | For | While | If | Scope | Fuse | Call | Return | Break | Continue
Block = tuple[Stmt, ...]


@frozen
class Func:
    """A function. `results` are the types it returns (an entry may return tensors and scalars, others scalars)."""

    name: str
    kind: FuncKind
    params: tuple[Var, ...]
    results: tuple[Type, ...]
    body: Block
    loc: Loc = field(default=NOWHERE, compare=False, repr=False)


@frozen
class Module:
    name: str
    funcs: tuple[Func, ...]
    entry: str

    def func(self, name: str) -> Func:
        global _asked
        if self.funcs and self.funcs[0].name == name:  # the entry, mostly
            return self.funcs[0]
        module, funcs = _asked
        if module is not self:
            funcs = {func.name: func for func in reversed(self.funcs)}
            _asked = self, funcs
        return funcs[name]


_asked: tuple[Module | None, dict[str, Func]] = None, {}
"""The module that was asked last, and its functions by name."""

# SPDX-License-Identifier: MIT
"""`PTOFunctionBuilder`: a function of loop IR, one call after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Self

from pto_jit.builder.elements import ElementType, MemorySpace, element_type
from pto_jit.builder.methods import Methods
from pto_jit.builder.module import BuiltFunction, PTOModule
from pto_jit.builder.operands import Actual, Names, plain
from pto_jit.builder.places import user_place
from pto_jit.dtypes import DType
from pto_jit.errors import CompilationError, Loc, Note, ScheduleError, ShapeError, TypeMismatchError
from pto_jit.ir.isa import Instruction
from pto_jit.ir.isa.expansion import Expansion
from pto_jit.ir.nodes import Call, Const, For, Func, FuncKind, If, Op, Operand, Return, Stmt, Var
from pto_jit.ir.tile_calls import TileArgument, WrittenCall, complete_calls
from pto_jit.ir.type_text import fits
from pto_jit.ir.types import ScalarType, TensorType, TileType, Type
from pto_jit.semantic.rules import infer
from pto_jit.slotted import field, mutable


@mutable(eq=False)
class _Open:
    """A block being filled: the function's, a loop's or a branch's."""

    word: str
    loc: Loc
    head: tuple[Any, ...] = ()
    body: list[Stmt] = field(default_factory=list)
    then: tuple[Stmt, ...] | None = None  # of a branch whose else part is open


class PTOFunctionBuilder(Methods):
    """Builds one function of a module; every method but `build` returns the builder.

    `name` is the name of the function; without a `module` it gets one of its own.  An in-core function (`in_core`, the
    default) works on tiles; an orchestration function (`not_in_core`) calls in-core functions.  Operands are given by
    name; scalar operands may also be Python numbers.  A mistake is a CompilationError at the line of the call.

    >>> from pto_jit import ElementType, MemorySpace, PTOFunctionBuilder
    >>> exp = (PTOFunctionBuilder("exp8")
    ...        .in_core()
    ...        .memref("input", MemorySpace.GLOBAL, ElementType.F32)
    ...        .memref("output", MemorySpace.GLOBAL, ElementType.F32)
    ...        .tile("x", 8, 8, ElementType.F32)
    ...        .load("x", "input")
    ...        .exp("y", "x")
    ...        .store("output", "y")
    ...        .build())
    """

    def __init__(self, name: str = "main", module: PTOModule | None = None) -> None:
        self._loc = user_place()
        if not isinstance(name, str) or not name:
            raise TypeMismatchError(
                f"{name!r} is not the name of a function", self._loc, code="PTO-T210", hint="give a name"
            )
        if module is not None and not isinstance(module, PTOModule):
            raise TypeError(f"the module of a function is a PTOModule, not {module!r}")
        self._module = PTOModule(name) if module is None else module
        if name in self._module:
            raise CompilationError(f"the module already has a function `{name}`", self._loc, code="PTO-P039",
                                   hint="give it another name")  # fmt: skip
        self._name = name
        self._kind: FuncKind = "incore"
        self._names = Names()
        self._blocks: list[_Open] = [_Open("function", self._loc)]
        self._written: dict[int, WrittenCall] = {}
        self._calls: list[Call] = []  # kept alive: `_written` knows them by id
        self._first: dict[FuncKind, tuple[str, Loc]] = {}  # what fixed the kind of the function
        self._unshaped: set[str] = set()
        self._widths: dict[str, tuple[int, Loc]] = {}  # of the tiles that memrefs without a shape are accessed with
        self._built = False

    # -- declarations -------------------------------------------------------------------------------------------

    def in_core(self) -> Self:
        """Declare an in-core function: tile work, run on a core."""
        return self._as("incore")

    def not_in_core(self) -> Self:
        """Declare an orchestration function: control flow and calls, run on the host."""
        return self._as("orchestration")

    def _as(self, kind: FuncKind) -> Self:
        loc = self._place()
        other: FuncKind = "incore" if kind == "orchestration" else "orchestration"
        if other in self._first:
            what, where = self._first[other]
            self._wrong(CompilationError, f"`{what}` on line {where.lineno} belongs in an {_KINDS[other]} function",
                        loc, "PTO-P021", "declare the kind of the function first")  # fmt: skip
        self._kind = kind
        return self

    def memref(
        self,
        name: str,
        space: MemorySpace | str,
        dtype: ElementType | DType | str,
        shape: Sequence[int | None] | None = None,
    ) -> Self:
        """Declare a tensor parameter in global memory.

        shape: rows and columns, None for an extent that is only known at run time; without a shape the tensor has two
        axes, and its row pitch is the width of the tiles it is accessed with.
        """
        loc = self._place()
        if not isinstance(space, (MemorySpace, str)) or space not in (MemorySpace.GLOBAL, "gm"):
            self._wrong(CompilationError, f"a memref cannot lie in {space!r}", loc, "PTO-P022",
                        "use `MemorySpace.GLOBAL`; tiles are placed by the compiler")  # fmt: skip
        extents = self._shape(shape, loc) if shape is not None else (None, None)
        self._names.declare(name, TensorType(element_type(dtype, loc), extents), loc)
        if shape is None:
            self._unshaped.add(name)
        return self

    def _shape(self, shape: object, loc: Loc) -> tuple[int | None, ...]:
        extents = tuple(map(plain, shape)) if isinstance(shape, (tuple, list)) else ()
        if len(extents) != 2 or not all(e is None or (type(e) is int and e > 0) for e in extents):
            self._wrong(ShapeError, f"{shape!r} is not a shape of a memref", loc, "PTO-H157",
                        "give `(rows, cols)`, None for an extent that is known when the function runs")  # fmt: skip
        return extents

    def tile(self, name: str, rows: int, cols: int, dtype: ElementType | DType | str) -> Self:
        """Declare a tile of `rows` x `cols` elements."""
        loc = self._tile_work(".tile")
        rows, cols = plain(rows), plain(cols)
        for extent in (rows, cols):
            if type(extent) is not int or extent < 1:
                self._wrong(ShapeError, f"a tile of {rows!r} x {cols!r} elements", loc, "PTO-H158",
                            "give positive numbers of rows and columns")  # fmt: skip
        self._names.declare(name, TileType(element_type(dtype, loc), (rows, cols)), loc)
        return self

    def scalar(self, name: str, dtype: ElementType | DType | str) -> Self:
        """Declare a scalar; one that is never assigned is a parameter of the function."""
        loc = self._place()
        self._names.declare(name, ScalarType(element_type(dtype, loc)), loc)
        return self

    # -- memory -------------------------------------------------------------------------------------------------

    def load(self, tile: str, memref: str, row: str | int = 0, col: str | int = 0, *, pad: float | None = None) -> Self:
        """Read the rectangle of `memref` that begins at element (row, col) into `tile`, which must be declared.

        Elements outside the memref are not part of the tile; if `pad` is given, they have that value.
        """
        loc = self._tile_work(".load")
        source = self._names.memref(memref, loc)
        kind = self._names.types.get(self._text(tile, loc))
        if not isinstance(kind, TileType):
            self._wrong(CompilationError, f"the tile `{tile}` is not declared", loc, "PTO-N066",
                        f"declare it first: `.tile({tile!r}, rows, cols, dtype)`")  # fmt: skip
        self._check_width(memref, kind, loc)
        offsets = [self._index(value, loc) for value in (row, col)]
        args: list[Operand] = [source, *offsets, *(self._names.index(e) for e in kind.shape if e is not None)]
        attrs: dict[str, Any] = {}
        if pad is not None:
            args.append(self._names.number(pad, kind.dtype, loc))
            attrs["pad"] = True
        self._operation("load", args, attrs, ((tile, "T"),), loc)
        return self

    def store(self, memref: str, tile: str, row: str | int = 0, col: str | int = 0, *, atomic: str = "") -> Self:
        """Write `tile` to `memref`, its first element to (row, col); elements outside the memref are left out.

        atomic: "add", "max" or "min" combines each element atomically with the one in the memref.
        """
        loc = self._tile_work(".store")
        if not isinstance(atomic, str) or atomic not in ("", "add", "max", "min"):
            self._wrong(
                CompilationError, f"there is no atomic {atomic!r}", loc, "PTO-P023", 'use "add", "max" or "min"'
            )
        left, right = (self._names.types.get(n) if isinstance(n, str) else None for n in (memref, tile))
        if isinstance(left, TileType) and isinstance(right, TensorType):
            self._wrong(
                CompilationError, "the memref stands first", loc, "PTO-P024", f"write `.store({tile!r}, {memref!r})`"
            )
        target = self._names.memref(memref, loc)
        value = self._names.tile(tile, loc)
        self._check_width(memref, value.type, loc)
        offsets = [self._index(place, loc) for place in (row, col)]
        self._operation(f"atomic_{atomic}" if atomic else "store", [value, target, *offsets], {}, (), loc)
        return self

    def _check_width(self, memref: str, tile: Type, loc: Loc) -> None:
        """A memref without a shape has the row pitch of its tiles, so all of them must be equally wide."""
        cols = tile.shape[-1] if isinstance(tile, TileType) else None
        if memref not in self._unshaped or cols is None:
            return
        known, where = self._widths.setdefault(memref, (cols, loc))
        if known != cols:
            raise ShapeError(
                f"`{memref}` is accessed with rows of {known} and of {cols} elements", loc, code="PTO-H154",
                hint=f"declare its shape: `.memref({memref!r}, space, dtype, shape=(None, cols))`",
                notes=(Note(f"with rows of {known} here", where),),
            )  # fmt: skip

    # -- instructions -------------------------------------------------------------------------------------------

    def _instruction(self, row: Instruction, arguments: dict[str, Any]) -> Self:
        loc = self._tile_work(f".{row.name}") if row.on_tiles else self._place()
        names = self._names
        targets = tuple((self._text(arguments[p.name], loc), p.role) for p in row.destinations)
        for name, role in targets:
            names.check_target(name, role, loc)
        given = [None if p.optional and arguments[p.name] is None
                 else names.operand(p.role, arguments[p.name], p.name, loc, self._append)
                 for p in row.operands]  # fmt: skip
        declared = tuple(names.types.get(name) for name, _ in targets)

        def before() -> Operand:
            return names.tile(targets[0][0], loc)

        hint = targets[0][0] if targets else "t"
        e = Expansion(infer, self._append, lambda kind: names.hidden(hint, kind), loc, declared, before)
        position = 0
        for op, args, attrs in e.expand(row, given):
            count = len(e.types(op, args, attrs))
            self._operation(op, args, attrs, targets[position : position + count], loc)
            position += count
        return self

    def _operation(self, op: str, args: Sequence[Operand], attrs: dict[str, Any],
                   targets: tuple[tuple[str, str], ...], loc: Loc) -> None:  # fmt: skip
        try:
            found = infer(op, tuple(args), attrs, ())
        except CompilationError as error:
            raise error.at(loc) from None
        results = tuple(self._assign(name, role, kind, loc) for (name, role), kind in zip(targets, found, strict=True))
        self._append(Op(op, results, tuple(args), tuple(sorted(attrs.items())), (), loc))

    def _assign(self, name: str, role: str, found: Type, loc: Loc) -> Var:
        """The variable `name`, which takes a value of the type `found`."""
        wanted = TileType if role == "T" else ScalarType
        if not isinstance(found, wanted):
            what = "tile" if role == "T" else "scalar"
            self._wrong(TypeMismatchError, f"the result is {found}, not a {what}", loc, "PTO-T238", f"give a {what}")
        declared = self._names.assign(name, found)
        if not fits(found, declared):
            shapes = isinstance(found, TileType) and found.dtype == declared.dtype
            self._wrong(ShapeError if shapes else TypeMismatchError, f"the result is {found}, `{name}` is {declared}",
                        loc, "PTO-H159" if shapes else "PTO-T244", "use another name, or declare it so")  # fmt: skip
        return Var(name, declared)

    # -- control flow -------------------------------------------------------------------------------------------

    def for_loop(
        self, var: str, start: str | int, stop: str | int, step: str | int = 1, *, parallel: bool = False
    ) -> Self:
        """Open a loop of the index `var` over [start, stop) by step; `end_for` closes it.

        Bounds are integers or names of integer scalars.  `parallel` promises that iterations are independent.
        """
        loc = self._place()
        start, stop, step = plain(start), plain(stop), plain(step)
        if type(step) is int and step == 0:
            self._wrong(ScheduleError, "the step of a loop is 0", loc, "PTO-L010", "give a step that is not 0")
        bounds = [self._index(value, loc) for value in (start, stop, step)]
        self._names.open_loop(var, loc)
        self._blocks.append(_Open("for_loop", loc, (var, *bounds, parallel)))
        return self

    def end_for(self) -> Self:
        """Close the innermost loop."""
        loc = self._place()
        block = self._close("for_loop", "end_for", loc)
        var, start, stop, step, parallel = block.head
        self._names.close_loop(var)
        kind = "parallel" if parallel else "sequential"
        index = Var(var, self._names.types[var])
        self._append(For(kind, index, start, stop, step, tuple(block.body), loc=block.loc))
        return self

    def if_then(self, cond: str) -> Self:
        """Open a branch that is taken when the scalar `cond` is not zero; `end_if` closes it."""
        loc = self._place()
        value = self._names.scalar(cond, loc)
        if value.type.dtype.kind != "b":
            flag = self._names.hidden(f"{cond}.set", ScalarType(element_type("bool_", loc)))
            self._append(Op("ne", (flag,), (value, self._names.number(0, value.type.dtype, loc)), (), (), loc))
            value = flag
        self._blocks.append(_Open("if_then", loc, (value,)))
        return self

    def else_branch(self) -> Self:
        """Begin the part that runs when the condition of the open branch is zero."""
        loc = self._place()
        block = self._blocks[-1]
        if block.word != "if_then" or block.then is not None:
            why = "the branch has an else part" if block.then is not None else "no `.if_then` is open here"
            self._wrong(
                CompilationError,
                f"`.else_branch()`: {why}",
                loc,
                "PTO-P025",
                "it stands between `.if_then` and `.end_if`",
            )
        block.then, block.body = tuple(block.body), []
        return self

    def end_if(self) -> Self:
        """Close the innermost branch."""
        loc = self._place()
        block = self._close("if_then", "end_if", loc)
        then, orelse = (tuple(block.body), ()) if block.then is None else (block.then, tuple(block.body))
        self._append(If(block.head[0], then, orelse, block.loc))
        return self

    def _close(self, word: str, closer: str, loc: Loc) -> _Open:
        block = self._blocks[-1]
        if block.word != word:
            where = (
                "nothing is open" if len(self._blocks) == 1 else f"`.{block.word}` on line {block.loc.lineno} is open"
            )
            self._wrong(CompilationError, f"`.{closer}()` without `.{word}(...)`: {where}", loc, "PTO-P026",
                        f"`.{closer}` closes `.{word}`")  # fmt: skip
        return self._blocks.pop()

    # -- calls --------------------------------------------------------------------------------------------------

    def call(self, name: str, args: Mapping[str, Actual] | None = None) -> Self:
        """Call a function of the module that was built, read or registered before.

        args: for each parameter, by name, a memref, a scalar or a number; in an orchestration function also
        `(tensor, row, col)`, the tile of a tensor in that row and column of tiles.  A tensor that is not declared is a
        temporary: it is allocated once, as large as the tiles that are used.
        """
        loc = self._place()
        if not isinstance(name, str):
            self._wrong(TypeMismatchError, f"{name!r} is not the name of a function", loc, "PTO-T210", "give a name")
        if name == self._name:
            self._wrong(CompilationError, f"the calls form a cycle: @{name} -> @{name}", loc, "PTO-P027", "use a loop")
        if name not in self._module:
            self._wrong(CompilationError, f"there is no function `{name}`", loc, "PTO-P012",
                        self._module.similar(name) or "build it before the function that calls it")  # fmt: skip
        callee = self._module[name].func
        if self._kind == "incore":
            if callee.kind == "orchestration":
                self._wrong(CompilationError, f"in-core code calls the orchestration function `{name}`", loc,
                            "PTO-P028", "in-core functions call in-core functions")  # fmt: skip
        else:
            self._first.setdefault("orchestration", (".call", loc))
        formals = {param.name: param for param in callee.params}
        if args is not None and not isinstance(args, Mapping):
            self._wrong(TypeMismatchError, f"`{name}` takes its arguments by name, not {args!r}", loc, "PTO-T239",
                        "give a dictionary: {parameter: argument}")  # fmt: skip
        given = dict(args or {})
        if set(given) != set(formals):
            missing, unknown = [n for n in formals if n not in given], [n for n in given if n not in formals]
            reason = f"has no parameter `{unknown[0]}`" if unknown else f"needs an argument for `{missing[0]}`"
            self._wrong(TypeMismatchError, f"`{name}` {reason}", loc, "PTO-T239",
                        f"its parameters are {', '.join(formals)}")  # fmt: skip
        orchestration = self._kind == "orchestration"
        actuals = tuple(self._names.actual(formals[n], value, loc, orchestration) for n, value in given.items())
        plain = tuple(a.tensor if isinstance(a, TileArgument) else a for a in actuals)
        call = Call(name, plain, (), loc)
        self._calls.append(call)
        self._written[id(call)] = WrittenCall(tuple(given), actuals, loc)
        self._append(call)
        return self

    # -- the function -------------------------------------------------------------------------------------------

    def build(self) -> BuiltFunction:
        """Check the function, add it to the module, and return it."""
        loc = self._place()
        block = self._blocks[-1]
        if block.word != "function":
            closer = {"for_loop": "end_for", "if_then": "end_if"}[block.word]
            self._wrong(CompilationError, f"`.{block.word}(...)` is not closed", block.loc, "PTO-P029",
                        f"close it with `.{closer}()`")  # fmt: skip
        params = self._names.parameters()
        func = Func(self._name, self._kind, params, (), (*block.body, Return((), loc)), self._loc)
        unshaped = frozenset(p.name for p in params) & self._unshaped
        instances = self._module.instances()
        func = complete_calls(func, self._written, instances, temporaries=self._names.temporaries, unshaped=unshaped)
        built = self._module.add(func, instances.made)
        self._built = True
        return built

    # -- checks that methods share ------------------------------------------------------------------------------

    def _place(self) -> Loc:
        loc = user_place()
        if self._built:
            self._wrong(CompilationError, f"`{self._name}` is built already", loc, "PTO-P030",
                        "make another PTOFunctionBuilder")  # fmt: skip
        return loc

    def _tile_work(self, what: str) -> Loc:
        loc = self._place()
        if self._kind == "orchestration":
            self._wrong(CompilationError, f"`{what}` in the orchestration function `{self._name}`", loc, "PTO-P038",
                        "tile work belongs in in-core functions: build one and `.call` it")  # fmt: skip
        self._first.setdefault("incore", (what, loc))
        return loc

    def _text(self, value: object, loc: Loc) -> str:
        if not isinstance(value, str) or not value:
            self._wrong(
                TypeMismatchError, f"{value!r} is not a name", loc, "PTO-T211", "destinations are named by strings"
            )
        return value

    def _index(self, value: str | int, loc: Loc) -> Operand:
        found = self._names.operand("i", value, "index", loc, self._append)
        assert isinstance(found, (Var, Const))
        return found

    def _append(self, stmt: Stmt) -> None:
        self._blocks[-1].body.append(stmt)

    def _wrong(self, error: type[CompilationError], message: str, loc: Loc, code: str, hint: str) -> NoReturn:
        raise error(message, loc, code=code, hint=hint)


_KINDS = {"incore": "in-core", "orchestration": "orchestration"}

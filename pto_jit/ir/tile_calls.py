# SPDX-License-Identifier: MIT
"""Calls as they are written, made into calls of the IR.

Written calls name the callee's parameters, select tiles of tensors (`(%x, %i, 0)` is the i-th tile along the rows), and
use tensors that nobody declared: those are temporaries, allocated once, as large as the tiles and rows used.
`complete_calls` computes all that for one function, when its callees are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from pto_jit.dtypes import i64
from pto_jit.errors import CompilationError, Loc, ShapeError, TypeMismatchError
from pto_jit.ir.bounds import Bounds
from pto_jit.ir.footprint import Footprint, footprint
from pto_jit.ir.instances import Instances, check_argument
from pto_jit.ir.isa.expansion import constant
from pto_jit.ir.nodes import Block, Call, Const, For, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, Type
from pto_jit.ir.walk import blocks, defs, rewrite_block, statements, uses, with_operands
from pto_jit.slotted import frozen, replace

I64 = ScalarType(i64)
DECLARE = "declare the shape of the parameter: `.memref(name, space, dtype, shape=(rows, cols))`"


@frozen
class TileArgument:
    """`(tensor, row, col)`: the tile of `tensor` in that row and column of tiles."""

    tensor: Var
    row: Operand
    col: Operand


@frozen
class WrittenCall:
    """What a `Call` node stands for until it is completed; `place` is the callee's name in the source."""

    names: tuple[str, ...]
    args: tuple[Operand | TileArgument, ...]
    place: Loc

    def tensor(self, position: int) -> Var | None:
        """The tensor that an argument names."""
        arg = self.args[position]
        found = arg.tensor if isinstance(arg, TileArgument) else arg
        return found if isinstance(found, Var) and isinstance(found.type, TensorType) else None


@frozen
class _Use:
    """One argument: of which call, for which parameter, inside which loops."""

    call: Call
    written: WrittenCall
    position: int
    formal: Var
    print: Footprint
    loops: Mapping[str, For]

    @property
    def tile(self) -> TileArgument | None:
        arg = self.written.args[self.position]
        return arg if isinstance(arg, TileArgument) else None


def complete_calls(
    func: Func,
    written: Mapping[int, WrittenCall],
    instances: Instances,
    *,
    temporaries: frozenset[str] = frozenset(),
    unshaped: frozenset[str] = frozenset(),
) -> Func:
    """`func` with its written calls (by `id` of their nodes) completed.

    temporaries: tensors that nothing declares; unshaped: parameters whose extents follow from their use.  Raises
    CompilationError, TypeMismatchError or ShapeError at the call.
    """
    return _Completion(func, written, instances, temporaries, unshaped).run()


class _Completion:
    def __init__(self, func: Func, written: Mapping[int, WrittenCall], instances: Instances,
                 temporaries: frozenset[str], unshaped: frozenset[str]) -> None:  # fmt: skip
        self.func, self.written, self.instances = func, written, instances
        self.temporaries, self.unshaped = temporaries, unshaped
        self.types: dict[str, Type] = {}  # of temporaries and unshaped parameters
        self.uses: dict[str, list[_Use]] = {}
        self.names = {p.name for p in func.params}
        for stmt in statements(func.body):
            self.names.update(v.name for v in (*defs(stmt), *uses(stmt)))
        self.names |= temporaries

    def run(self) -> Func:
        self.collect(self.func.body, {})
        for name in self.unshaped:
            self.shape(name)
        allocations = self.allocate()
        body: list[Stmt] = []
        for position, stmt in enumerate(self.func.body):
            body += allocations.get(position, ())
            body += rewrite_block((stmt,), self.complete)
        params = tuple(Var(p.name, self.types.get(p.name, p.type)) for p in self.func.params)
        return replace(self.func, params=params, body=tuple(body))

    # -- what is used -------------------------------------------------------------------------------------------

    def collect(self, block: Block, loops: dict[str, For]) -> None:
        for stmt in block:
            written = self.written.get(id(stmt))
            if written is not None:
                assert isinstance(stmt, Call)
                self.one_call(stmt, written, loops)
            inside = {**loops, stmt.var.name: stmt} if isinstance(stmt, For) else loops
            for inner in blocks(stmt):
                self.collect(inner, inside)

    def one_call(self, call: Call, written: WrittenCall, loops: dict[str, For]) -> None:
        callee = self.callee(call, written)
        for position, formal in enumerate(callee.params):
            at = written.names.index(formal.name)
            tensor = written.tensor(at)
            if tensor is None:
                continue
            if tensor.name in self.temporaries and not isinstance(formal.type, TensorType):
                self.wrong(CompilationError, f"%{tensor.name} is not defined", written, "PTO-P013",
                           "define it above: a parameter, a result, or `alloc_scalar`")  # fmt: skip
            if tensor.name in self.temporaries and self.func.kind == "incore":
                self.wrong(CompilationError, f"there is no tensor %{tensor.name} in this in-core function", written,
                           "PTO-N061", "make it a parameter: in-core functions have no temporaries")  # fmt: skip
            if not isinstance(formal.type, TensorType):
                check_argument(tensor.type, formal, call.callee, written.place)
            print = footprint(callee, position, self.instances.funcs)
            use = _Use(call, written, at, formal, print, dict(loops))
            self.uses.setdefault(tensor.name, []).append(use)
            if use.tile is not None and not print.known:
                self.wrong(ShapeError, f"the tile of %{formal.name} that @{call.callee} works on is not known", written,
                           "PTO-H153", DECLARE)  # fmt: skip

    def callee(self, call: Call, written: WrittenCall) -> Func:
        callee = self.instances.funcs.get(call.callee)
        if callee is None:
            self.wrong(CompilationError, f"there is no function @{call.callee}", written, "PTO-P012",
                       "define it before this call")  # fmt: skip
        wanted = [p.name for p in callee.params]
        if sorted(wanted) != sorted(written.names):
            listing = ", ".join(f"%{name}" for name in wanted)
            given = ", ".join(f"%{name}" for name in written.names)
            self.wrong(TypeMismatchError, f"@{call.callee} takes ({listing}), it is given ({given})", written,
                       "PTO-T190", "name each parameter once: `%formal -> %actual`")  # fmt: skip
        return callee

    # -- extents ------------------------------------------------------------------------------------------------

    def shape(self, name: str) -> None:
        """The extents of a parameter that was declared without: the row pitch of the tiles it is accessed with."""
        (param,) = (p for p in self.func.params if p.name == name)
        assert isinstance(param.type, TensorType)
        own = footprint(self.func, self.func.params.index(param), {})
        widths: set[int] = set(own.widths)
        rows: set[int | None] = {None} if own.reads or own.writes else set()
        for use in self.uses.get(name, ()):
            tile, kind = use.tile, use.formal.type
            assert isinstance(kind, TensorType)
            rows.add(kind.shape[0] if tile is None and kind.rank == 2 else None)
            cols = kind.shape[1] if tile is None and kind.rank == 2 else use.print.cols
            if tile is not None and tile.col != Const(0, I64):
                cols = None
            if cols is not None:
                widths.add(cols)
            if len(widths) > 1:
                self.wrong(ShapeError, f"%{name} is accessed with rows of {_list(widths)} elements", use.written,
                           "PTO-H154", DECLARE)  # fmt: skip
        if len(widths) > 1:
            raise ShapeError(f"%{name} is accessed with rows of {_list(widths)} elements", self.func.loc,
                             code="PTO-H154", hint=DECLARE)  # fmt: skip
        extent = rows.pop() if len(rows) == 1 else None
        self.types[name] = replace(param.type, shape=(extent, next(iter(widths), None)))

    def allocate(self) -> dict[int, list[Stmt]]:
        """The allocations of temporaries, by the statement of the body that they stand before."""
        found: dict[int, list[Stmt]] = {}
        for position, stmt in enumerate(self.func.body):
            names = [v.name for s in statements((stmt,)) for v in self.tensors(s)]
            for name in dict.fromkeys(names):
                if name in self.temporaries and name not in self.types:
                    found.setdefault(position, []).extend(self.allocation(name, position))
        return found

    def tensors(self, stmt: Stmt) -> list[Var]:
        written = self.written.get(id(stmt))
        if written is None:
            return []
        return [v for k in range(len(written.args)) if (v := written.tensor(k)) is not None]

    def allocation(self, name: str, position: int) -> list[Stmt]:
        every = self.uses[name]
        first = every[0]
        if not any(use.print.writes for use in every):
            self.wrong(CompilationError, f"there is no tensor %{name}: nothing declares it and no call writes it",
                       first.written, "PTO-N060",
                       "declare it with `.memref`, or give it to a call that writes it")  # fmt: skip
        dtypes = dict.fromkeys(use.formal.type.dtype for use in every)
        if len(dtypes) > 1:
            self.wrong(TypeMismatchError, f"the temporary %{name} is used as {' and as '.join(map(str, dtypes))}",
                       every[-1].written, "PTO-T189", "use one dtype")  # fmt: skip
        bounds = Bounds(self.func, position, self.fresh, first.call.loc)
        extents: list[Operand] = []
        for axis in (0, 1):
            sizes = [self.size(name, use, axis, bounds) for use in every]
            total = sizes[0]
            for size in sizes[1:]:
                total = bounds.emit("max", total, size)
            extents.append(total if isinstance(total, Const) else bounds.emit("max", total, Const(0, I64)))
        (dtype,) = dtypes
        (kind,) = self.instances.infer("alloc", tuple(extents), {"dtype": dtype}, ())
        self.types[name] = kind
        made = Op("alloc", (Var(name, kind),), tuple(extents), (("dtype", dtype),), (), first.call.loc)
        return _needed([*bounds.made, made])

    def size(self, name: str, use: _Use, axis: int, bounds: Bounds) -> Operand:
        """The extent that one use of a temporary needs along an axis."""
        extent = (use.print.rows, use.print.cols)[axis]
        if extent is None or not use.print.known:
            self.wrong(ShapeError, f"the size of the temporary %{name} is not known: what @{use.call.callee} uses of "
                       f"%{use.formal.name} is decided when it runs", use.written, "PTO-H155", DECLARE)  # fmt: skip
        if use.tile is None:
            return Const(extent, I64)
        last = bounds.upper((use.tile.row, use.tile.col)[axis], use.loops)
        if last is None:
            self.wrong(ShapeError, f"the size of the temporary %{name} is not known: its {('row', 'column')[axis]} is "
                       "computed from run-time data", use.written, "PTO-H156",
                       "make it a parameter: `.memref(name, space, dtype, shape=(None, cols))`")  # fmt: skip
        return bounds.emit("mul", bounds.emit("add", last, Const(1, I64)), Const(extent, I64))

    # -- the call itself ----------------------------------------------------------------------------------------

    def complete(self, stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
        written = self.written.get(id(stmt))
        if written is None:
            return with_operands(stmt, self.typed, None)
        assert isinstance(stmt, Call)
        callee = self.callee(stmt, written)
        out: list[Stmt] = []
        args: list[Operand] = []
        for formal in callee.params:
            position = written.names.index(formal.name)
            arg = written.args[position]
            if isinstance(arg, TileArgument):
                use = next(u for u in self.uses[arg.tensor.name] if u.call is stmt and u.position == position)
                args.append(self.view(arg, use, stmt, out))
            else:
                args.append(self.scalar(self.typed(arg), formal, stmt, out))
        name = self.instances.for_arguments(stmt.callee, [arg.type for arg in args], written.place)
        return (*out, replace(stmt, callee=name, args=tuple(args)))

    def typed(self, operand: Operand) -> Operand:
        if isinstance(operand, Var) and operand.name in self.types:
            return Var(operand.name, self.types[operand.name])
        return operand

    def view(self, arg: TileArgument, use: _Use, call: Call, out: list[Stmt]) -> Var:
        assert use.print.rows is not None and use.print.cols is not None
        tensor = self.typed(arg.tensor)
        extents = (Const(use.print.rows, I64), Const(use.print.cols, I64))
        offsets = [self.times(o, e, call, out) for o, e in zip((arg.row, arg.col), extents, strict=True)]
        args = (tensor, *offsets, *extents)
        try:
            (kind,) = self.instances.infer("view", args, {}, ())
        except CompilationError as error:
            raise error.at(use.written.place) from None
        result = self.fresh(f"{arg.tensor.name}.tile", kind)
        out.append(Op("view", (result,), args, (), (), call.loc))
        return result

    def times(self, tile: Operand, extent: Const, call: Call, out: list[Stmt]) -> Operand:
        if isinstance(tile, Const):
            return Const(int(tile.value) * int(extent.value), I64)
        tile = self.converted(tile, I64, call, out)
        if extent.value == 1:
            return tile
        result = self.fresh("offset", I64)
        out.append(Op("mul", (result,), (tile, extent), (), (), call.loc))
        return result

    def scalar(self, arg: Operand, formal: Var, call: Call, out: list[Stmt]) -> Operand:
        """An argument by value: constants take the parameter's dtype, integers are converted to it."""
        given, wanted = arg.type, formal.type
        if given == wanted or not (isinstance(given, ScalarType) and isinstance(wanted, ScalarType)):
            return arg
        if isinstance(arg, Const):
            return constant(arg.value, wanted.dtype, call.loc)
        return self.converted(arg, wanted, call, out) if given.dtype.is_integer and wanted.dtype.is_integer else arg

    def converted(self, operand: Operand, wanted: ScalarType, call: Call, out: list[Stmt]) -> Operand:
        if operand.type == wanted or not isinstance(operand, Var):
            return operand
        result = self.fresh(f"{operand.name}.{'idx' if wanted == I64 else wanted}", wanted)
        out.append(Op("cast", (result,), (operand,), (("dtype", wanted.dtype),), (), call.loc))
        return result

    def fresh(self, hint: str, kind: Type) -> Var:
        name, count = hint, 0
        while name in self.names:
            count += 1
            name = f"{hint}{count}"
        self.names.add(name)
        return Var(name, kind)

    def wrong(self, error: type[CompilationError], message: str, written: WrittenCall, code: str,
              hint: str) -> NoReturn:  # fmt: skip
        raise error(message, written.place, code=code, hint=hint)


def _needed(made: list[Stmt]) -> list[Stmt]:
    """The operations that the last one depends on, and itself."""
    wanted: set[str] = set()
    kept: list[Stmt] = []
    for stmt in reversed(made):
        if not kept or any(v.name in wanted for v in defs(stmt)):
            kept.append(stmt)
            wanted.update(v.name for v in uses(stmt))
    return kept[::-1]


def _list(widths: Sequence[int] | set[int]) -> str:
    return " and of ".join(map(str, sorted(widths)))

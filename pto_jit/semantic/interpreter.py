# SPDX-License-Identifier: MIT
"""The reference interpreter: what a module of loop IR means, at any stage of the compiler.

It executes statement by statement on NumPy arrays, and prefers the obvious to the fast: loops of every kind run in
order, a scope or fused group is its body, a call is the body of the callee, tiles are values that nothing writes to.
If it disagrees with a target, one of them has a bug.  Run-time checks raise the errors of the language, with the place
of the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_jit import dtypes
from pto_jit.errors import (
    NOWHERE,
    ArgumentError,
    CompilationError,
    InternalError,
    LaunchError,
    Loc,
    PtoError,
    RaceError,
    excerpt,
)
from pto_jit.ir.nodes import (
    Block,
    Break,
    Call,
    Const,
    Continue,
    For,
    Func,
    Fuse,
    If,
    Module,
    Op,
    Operand,
    Region,
    Return,
    Scope,
    Stmt,
    Var,
    While,
)
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.language._loops import CHUNK_LIMIT
from pto_jit.language._tile_value import TileValue
from pto_jit.semantic.evaluation import Array, Context, Value, argument, evaluate, number
from pto_jit.semantic.races import Access, Checker, access_of, parts_of, roots
from pto_jit.semantic.table import is_elementwise, tensor_arg

Argument = Any  # an ndarray for a tensor, an int, float or bool for a scalar


def run(module: Module, args: Sequence[Argument], *, debug: bool = False) -> tuple[Any, ...]:
    """Execute the entry of `module`.

    `args` match the entry's parameters: NumPy arrays for tensors (written in place), numbers for scalars.  Returns
    the entry's results: arrays, and Python numbers.  `debug` executes the program's assertions and compares the memory
    that the iterations of loops marked `checked` touch (RaceError; see `semantic.races`).

    Raises ArgumentError for arguments that do not fit the parameters, the run-time errors of the language (with the
    place of the operation), and InternalError when the module itself is wrong.
    """
    entry = module.func(module.entry)
    if len(args) != len(entry.params):
        raise ArgumentError(f"{entry.name} takes {len(entry.params)} arguments, got {len(args)}")
    values = [_argument(param, arg) for param, arg in zip(entry.params, args, strict=True)]
    results = _Interpreter(module, debug).call(entry, values)
    return tuple(r if isinstance(r, np.ndarray) else number(r) for r in results)


def _argument(param: Var, arg: Argument) -> Value:
    kind = param.type
    if isinstance(kind, ScalarType):
        if isinstance(arg, np.ndarray) or not isinstance(arg, (bool, int, float, np.generic)):
            raise ArgumentError(f"{param.name} is a scalar of {kind}, got {type(arg).__name__}")
        return argument(arg, kind.dtype)
    if not isinstance(arg, np.ndarray) or isinstance(kind, TileType):
        raise ArgumentError(f"{param.name} is {kind}, got {type(arg).__name__}")
    array = arg.view(np.ndarray)
    fits = array.ndim == kind.rank and all(e in (None, n) for e, n in zip(kind.shape, array.shape, strict=True))
    if not fits or array.dtype != kind.dtype.numpy:
        raise ArgumentError(f"{param.name} is {kind}, got an array of {array.dtype} with shape {array.shape}")
    return array


class _Leave:
    """Why a block ended before its end."""

    __slots__ = ("values",)

    def __init__(self, values: tuple[Value, ...] = ()) -> None:
        self.values = values


_BREAK, _CONTINUE = _Leave(), _Leave()
Frame = dict[str, Value]


class _Interpreter:
    """Executes functions of one module; a frame holds the variables of one call."""

    def __init__(self, module: Module, debug: bool) -> None:
        self.funcs = {func.name: func for func in module.funcs}
        self.debug = debug
        self.races = Checker(module.entry) if debug else None
        self.roots: dict[str, dict[str, str]] = {}
        self.func = module.func(module.entry)

    def call(self, func: Func, args: Sequence[Value]) -> tuple[Value, ...]:
        frame: Frame = {param.name: arg for param, arg in zip(func.params, args, strict=True)}
        caller, self.func = self.func, func
        leave = self.block(func.body, frame)
        self.func = caller
        if leave is _BREAK or leave is _CONTINUE:
            raise InternalError(f"{func.name}: break or continue outside a loop")
        results = leave.values if leave is not None else ()
        if len(results) != len(func.results):
            raise InternalError(f"{func.name} returns {len(results)} values instead of {len(func.results)}")
        return results

    # -- statements -----------------------------------------------------------------------------------------------

    def block(self, body: Block, frame: Frame) -> _Leave | None:
        for stmt in body:
            leave = self.statement(stmt, frame)
            if leave is not None:
                return leave
        return None

    def statement(self, stmt: Stmt, frame: Frame) -> _Leave | None:
        match stmt:
            case Op():
                self.op(stmt, frame)
            case For():
                return self.loop(stmt, frame)
            case While():
                return self.while_loop(stmt, frame)
            case If():
                return self.block(stmt.then if bool(self.value(stmt.cond, frame)) else stmt.orelse, frame)
            case Scope() | Fuse():
                return self.block(stmt.body, frame)
            case Call():
                callee = self.funcs[stmt.callee]
                results = self.call(callee, [self.value(a, frame) for a in stmt.args])
                for var, result in zip(stmt.results, results, strict=True):
                    frame[var.name] = _bound(var, result, stmt.callee)
            case Return():
                return _Leave(tuple(self.value(v, frame) for v in stmt.values))
            case Break():
                return _BREAK
            case Continue():
                return _CONTINUE
        return None

    def loop(self, stmt: For, frame: Frame) -> _Leave | None:
        start, stop, step = (int(self.value(o, frame)) for o in (stmt.start, stmt.stop, stmt.step))
        if step == 0:
            raise _located(LaunchError("the step of a loop is 0"), stmt.loc)
        if stmt.chunk is not None:
            chunk = int(self.value(stmt.chunk, frame))
            if chunk < 1:
                raise _located(LaunchError(f"a chunk of {chunk} iterations: a chunk has at least one"), stmt.loc)
            if step < 0:
                raise _located(LaunchError(f"chunk= with the negative step {step}"), stmt.loc)
            if not all(-CHUNK_LIMIT <= bound <= CHUNK_LIMIT for bound in (start, stop)):
                text = f"the chunked loop from {start} to {stop} leaves -2**60 to 2**60"
                raise _located(LaunchError(text), stmt.loc)
        races = self.races if stmt.checked else None
        own = races is not None and not (stmt.kind == "in_chunk" and races.inside(stmt))
        if races is not None and own:
            races.enter(stmt)
        for index in range(start, stop, step):
            frame[stmt.var.name] = np.int64(index)
            if races is not None and stmt.kind != "chunk":
                races.iteration(index)
            leave = self.block(stmt.body, frame)
            if leave is _BREAK:
                return None
            if leave is not None and leave is not _CONTINUE:
                return leave
        if races is not None and own:
            races.leave()
        return None

    def while_loop(self, stmt: While, frame: Frame) -> _Leave | None:
        while True:
            leave = self.block(stmt.before, frame)
            if leave is not None:
                return leave
            if not bool(self.value(stmt.cond, frame)):
                return None
            leave = self.block(stmt.body, frame)
            if leave is _BREAK:
                return None
            if leave is not None and leave is not _CONTINUE:
                return leave

    def value(self, operand: Operand, frame: Frame) -> Value:
        if isinstance(operand, Const):
            return argument(operand.value, operand.type.dtype)
        try:
            return frame[operand.name]
        except KeyError:
            raise InternalError(f"%{operand.name} is read before it is assigned") from None

    # -- operations -----------------------------------------------------------------------------------------------

    def op(self, op: Op, frame: Frame) -> None:
        args = [self.value(a, frame) for a in op.args]
        context = Context(self.debug, lambda region, arrays: self.region(region, arrays, frame))
        try:
            if self.races is not None and self.races.scopes:
                self.check_races(op, args, frame)
            results = evaluate(op, args, context)
        except RaceError:
            raise
        except PtoError as error:
            raise _located(error, op.loc) from error.__cause__
        except KeyError as error:
            raise InternalError(f"there is no operation {error}") from error
        except (ValueError, TypeError, IndexError, AttributeError, AssertionError) as error:
            raise InternalError(f"{op.op} at {op.loc}: {error}") from error
        if len(results) != len(op.results):
            raise InternalError(f"{op.op} at {op.loc} gives {len(results)} results instead of {len(op.results)}")
        for var, result in zip(op.results, results, strict=True):
            frame[var.name] = _bound(var, result, op.op)
        if op.op == "alloc" and self.races is not None:
            self.races.forget(results[0])

    def check_races(self, op: Op, args: list[Value], frame: Frame) -> None:
        """Compare an access with those of other iterations of the checked loops around."""
        verb, at = access_of(op), tensor_arg(op.op)
        if verb is None or at is None or self.races is None:
            return
        operand = op.args[at]
        assert isinstance(operand, Var)
        known = self.roots.get(self.func.name)
        if known is None:
            known = self.roots[self.func.name] = roots(self.func.body)
        root = known.get(operand.name, operand.name)
        self.races.access(Access(verb, root.split(".", 1)[0], op.loc), parts_of(op, args), frame[root])

    def region(self, region: Region, arrays: Sequence[Array], frame: Frame) -> list[Array]:
        """Apply a region to arrays of one shape: at once when it is elementwise, else element by element."""
        shape = np.shape(arrays[0])
        if all(isinstance(s, Op) and not s.regions and is_elementwise(s.op, len(s.args)) for s in region.body):
            results = self._region_on(region, arrays, frame)
            return [np.broadcast_to(r, shape) for r in results]
        kinds = [r.type.dtype.numpy for r in region.results]
        flat = [np.broadcast_to(a, shape).reshape(-1) for a in arrays]
        out = [np.empty(flat[0].size, kind) for kind in kinds]
        for k in range(flat[0].size):
            for o, value in zip(out, self._region_on(region, [a[k] for a in flat], frame), strict=True):
                o[k] = value
        return [o.reshape(shape) for o in out]

    def _region_on(self, region: Region, values: Sequence[Value], frame: Frame) -> list[Value]:
        inner = dict(frame)
        for param, value in zip(region.params, values, strict=True):
            inner[param.name] = value
        if self.block(region.body, inner) is not None:
            raise InternalError("a region ends with break, continue or return")
        return [self.value(r, inner) for r in region.results]


def _bound(var: Var, value: Value, what: str) -> Value:
    """`value` as `var`'s type sees it; a value that does not fit is a bug of whoever made the module."""
    kind = var.type
    if isinstance(kind, TileType):
        if not isinstance(value, TileValue):
            raise InternalError(f"{what}: %{var.name} is {kind}, its value is not a tile")
        unit = tuple(extent == 1 for extent in kind.shape)
        if unit != value.unit:
            value = TileValue(value.data, value.shape, unit, value.generated)
        dtype, shape = value.data.dtype, value.shape
    elif isinstance(value, TileValue) or (isinstance(kind, TensorType) and not isinstance(value, np.ndarray)):
        raise InternalError(f"{what}: %{var.name} is {kind}, its value is {type(value).__name__}")
    else:
        dtype, shape = value.dtype, value.shape
    if dtype != kind.dtype.numpy:
        raise InternalError(f"{what}: %{var.name} is {kind}, its value has dtype {dtypes.from_numpy(dtype)}")
    if isinstance(kind, ScalarType):
        return value  # in a region that is applied to whole arrays, a scalar stands for an array
    if len(shape) != kind.rank or any(e not in (None, n) for e, n in zip(kind.shape, shape, strict=True)):
        raise InternalError(f"{what}: %{var.name} is {kind}, its value has shape {tuple(shape)}")
    return value


def _located(error: PtoError, loc: Loc) -> PtoError:
    """The same error with the place of the operation in its text."""
    if isinstance(error, CompilationError):
        return error.at(loc)
    if loc is NOWHERE or not isinstance(error, LaunchError) or getattr(error, "loc", None) is not None:
        return error
    lines = [str(error), *(excerpt(loc) or [f"  --> {loc}"])]
    caller = loc.caller
    while caller is not None:
        lines.append(f"called from {caller}")
        caller = caller.caller
    located = type(error)("\n".join(lines))
    located.__dict__["loc"] = loc
    return located

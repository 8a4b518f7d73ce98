# SPDX-License-Identifier: MIT
"""Parallel functions in one compilation: the loops that are open, what is known of run-time integers, and elements.

While a parallel function is being compiled its loops are records of `lists` in the blocks of the emitter, among the IR
of the bodies.  When the outermost one is complete `schedule` makes IR of all of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit.codegen.builtins.promote import describe, value_of
from pto_jit.codegen.emit import I64, constant, index
from pto_jit.codegen.merging import is_number
from pto_jit.codegen.regions import LoopRecord
from pto_jit.codegen.values import Scalar, Tensor, Tile, static_extent
from pto_jit.dtypes import from_numpy, i64
from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.fractal.compile.argument import ANY_LENGTH, ANY_LENGTH_HINT, Argument
from pto_jit.fractal.compile.drawing import Drawing
from pto_jit.fractal.compile.expr import Condition, Expr, Fetch, Known, Symbol, number, of, operand
from pto_jit.fractal.compile.lists import (
    NO_LOOP,
    Access,
    Array,
    Check,
    Compute,
    Computed,
    Dim,
    Filled,
    Index,
    Leaf,
    Lists,
    Loop,
    Part,
    Read,
    ReadLeaf,
    View,
    lists_in,
    map_views,
    views_of,
)
from pto_jit.fractal.tensor import FractalTensor
from pto_jit.fractal.zipped import Zipped, of_the_surrounding_code
from pto_jit.ir import walk
from pto_jit.ir.nodes import Const, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TileType

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

_NAMES = "ijklmnopqrstuvwx"  # of loops, outermost first; the last one stands for all further ones

_sessions: weakref.WeakKeyDictionary[Any, Session] = weakref.WeakKeyDictionary()


def session_of(g: Generator) -> Session:
    """The one of this compilation."""
    found = _sessions.get(g)
    if found is None:
        found = _sessions[g] = Session(g)
    return found


class Session:
    def __init__(self, g: Generator) -> None:
        self._g = weakref.ref(g)
        self.loops: list[Loop] = []
        self.outside: list[Any] = []  # the block in which the outermost of them is
        self.exprs: dict[str, Expr] = {}  # integer variables whose meaning is known
        self.known_depth: dict[str, int] = {}  # others: the number of loops open when they were met
        self.reads: dict[str, Read] = {}  # variables that are leaves as they stand in a list
        self.symbols = 0
        self.names: dict[str, int] = {}
        self.arrays: list[Array] = []
        self.given: set[str] = set()  # tensors that are returned
        self.zeros: set[Expr] = set()  # what has been checked to be 0
        self.zeros_inside: list[tuple[tuple[Symbol, ...], Expr]] = []  # the same in the bodies of these loops
        self.written: tuple[list[Any], int] = ([], 0)  # a block, and how much of it became IR while a loop was open

    @property
    def g(self) -> Generator:
        found = self._g()
        assert found is not None
        return found

    @property
    def drawing(self) -> Drawing:
        """What draws nests."""
        return Drawing(self.arrays, self.g.spelling)

    # -- names -----------------------------------------------------------------------------------------------------

    def symbol(self, name: str) -> Symbol:
        self.symbols += 1
        return Symbol(name, self.symbols)

    def loop_name(self) -> str:
        used = {loop.symbol.name for loop in self.loops}
        return next((n for n in _NAMES if n not in used), _NAMES[-1])

    def array(self, hint: str, dims: tuple[Dim, ...], leaf: Leaf) -> Array:
        """A new array over the loops that are open and `dims`."""
        count = self.names[hint] = self.names.get(hint, 0) + 1
        around = tuple(Dim(loop.symbol, loop.length) for loop in self.loops)
        made = Array(f"{hint}{count}", (*around, *dims), leaf, loops=len(around))
        self.arrays.append(made)
        return made

    def around(self) -> tuple[Expr, ...]:
        """The index of the loops that are open."""
        return tuple(of(loop.symbol) for loop in self.loops)

    def check(
        self, condition: Condition, message: str, hint: str, *numbers: Expr, error: str = "ShapeError"
    ) -> None:
        """Let the program stop here unless the condition holds; the message has a place {} for each number."""
        e = self.g.e
        path = tuple(of(loop.symbol) if loop.element is None else loop.element for loop in self.loops)
        if condition.kind == "zero" and e.depth == 1:  # what follows runs only where it holds
            self.zeros |= {condition.value, -condition.value}
        elif condition.kind == "zero" and e.depth == 1 + len(self.loops):
            around = tuple(loop.symbol for loop in self.loops)
            self.zeros_inside += [(around, condition.value), (around, -condition.value)]
        if any(isinstance(i, Check) and (i.condition, i.numbers) == (condition, numbers) for i in e.current):
            return
        e.append(Check(condition, message, hint, e.loc, numbers, path, error=error))  # type: ignore[arg-type]

    # -- integers --------------------------------------------------------------------------------------------------

    def expr(self, value: Any, what: str) -> Expr:
        """An integer of the user as an expression."""
        g = self.g
        if isinstance(value, bool) or not isinstance(value, (int, np.integer, Scalar)):
            if isinstance(value, (Tile, Tensor)):
                value = self._single(value)
            else:
                raise g.error(
                    TypeMismatchError,
                    f"{what} is {describe(value)}",
                    code="PTO-F101",
                    hint="give an integer, or a tensor of one integer",
                )
        if isinstance(value, Scalar):
            if value.dtype.is_float or value.dtype.kind == "b":
                raise g.error(
                    TypeMismatchError, f"{what} is a run-time {value.dtype}", code="PTO-F101", hint="give an integer"
                )
            return self.operand(g.e.as_index(value))
        return number(int(value))

    def _single(self, value: Tile | Tensor) -> Scalar:
        if any(static_extent(e) != 1 for e in value.extents):
            raise self.g.error(
                TypeMismatchError,
                f"an integer is {describe(value)}",
                code="PTO-F101",
                hint="give an integer, or a tensor of one integer",
            )
        op = "extract" if isinstance(value, Tile) else "getelem"
        return self.g.e.scalar(op, [value.var, *(index(0) for _ in value.extents)])

    def is_zero(self, expr: Expr) -> bool:
        """Whether a number is known to be 0, of itself or because the function has checked it (or two that add up)."""
        return expr.constant == 0 or expr in self.zeros or any(expr - z in self.zeros for z in self.zeros)

    def are_equal(self, a: Expr, b: Expr, around: Sequence[Symbol]) -> bool:
        """Whether two numbers are known to be equal in the body of these loops."""
        found = ((loops, zero) for loops, zero in self.zeros_inside if zero == a - b)
        return self.is_zero(a - b) or any(loops == tuple(around[: len(loops)]) for loops, _ in found)

    def operand(self, value: Operand) -> Expr:
        if isinstance(value, Const):
            return number(int(value.value))
        found = self.exprs.get(value.name)
        if found is not None:
            return found
        base, offset = self.g.e.base_of(value)
        if base.name in self.exprs:
            return self.exprs[base.name] + offset
        given = value.name in self.g.parameter_names or any(value in walk.defs(s) for s in self.g.e.prologue)
        self.known_depth.setdefault(value.name, 0 if given else len(self.loops))
        return of(Known(value))

    def scalar(self, expr: Expr) -> Any:
        """An expression as a value of the user's program: an int where it is a constant."""
        known = expr.constant
        if known is not None:
            return known
        single = expr.terms[0][0] if expr.const == 0 and len(expr.terms) == 1 and expr.terms[0][1] == 1 else None
        if isinstance(single, Known):
            return Scalar(single.var, True, self.g.e.loc)
        var = self.g.e.fresh("t", I64)
        self.g.e.append(Compute(var, expr))  # type: ignore[arg-type]
        self.exprs[var.name] = expr
        self.wait()
        return Scalar(var, True, self.g.e.loc)

    # -- values ----------------------------------------------------------------------------------------------------

    def argument(self, argument: Argument) -> Lists:
        """A FractalTensor argument: one array by flat position, whose dimensions the offsets divide."""
        leaves, offsets = argument.leaves, tuple(argument.offsets)
        leaf = Leaf(leaves.extents[1:], leaves.dtype)
        whole = self.symbol("leaf")
        place = self.g.spelling.place(leaves.var.name) or leaves.var.name
        array = Array(place.removesuffix(".leaves"), (Dim(whole, operand(leaves.extents[0])),), leaf, (leaves, offsets))
        self.arrays.append(array)
        dims: list[Dim] = []
        position: Expr | None = None
        for level in range(argument.depth):
            symbol = self.symbol(_NAMES[min(level, len(_NAMES) - 1)])
            if level == 0:
                length = operand(offsets[0].extents[0]) - 1 if offsets else operand(leaves.extents[0])
                position = of(symbol)
            else:
                assert position is not None
                table = offsets[level - 1].var
                start = of(Fetch(table, (position,)))
                length = of(Fetch(table, (position + 1,))) - start
                position = start + of(symbol)
            dims.append(Dim(symbol, length))
        assert position is not None
        return Lists(self, View(tuple(dims), Access(array, (position,)), leaf))

    def lists(self, value: Any, what: str) -> Lists:
        """A value that must be a list."""
        if isinstance(value, Argument):
            return value.of(self.g)
        if isinstance(value, Lists):
            return value
        if isinstance(value, list):  # Python's, which an argument or a display `[a, b]` is
            hint = "make one of it before the call: `ft.from_list(x)`; in a kernel `ft.join` brings lists together"
            message = f"{what} takes a FractalTensor, got a Python list"
            raise self.g.error(TypeMismatchError, message, code="PTO-F100", hint=hint)
        if isinstance(value, (FractalTensor, Zipped)):
            raise of_the_surrounding_code(self.g, value, f"{what} takes a list of the kernel, got")
        hint = "give a FractalTensor; `ft.slices(x, axis)` makes a list of the parts of a tensor"
        raise self.g.error(TypeMismatchError, f"{what} takes a list, got {describe(value)}", code="PTO-F100", hint=hint)

    def normal(self, value: Any) -> Any:
        """A value with every list in it as `Lists`."""
        if isinstance(value, Argument):
            return value.of(self.g)
        if isinstance(value, tuple):
            items = [self.normal(v) for v in value]
            return value._make(items) if hasattr(value, "_make") else tuple(items)  # type: ignore[attr-defined]
        if isinstance(value, list):
            return tuple(self.normal(v) for v in value)
        return value

    def elements(self, value: Any) -> Iterator[Any]:
        """The elements one after the other, where their number is known.  Raises CompilationError (PTO-F108)."""
        lists = self.lists(value, "`for`")
        count = lists.length.constant
        if count is None:
            raise self.g.error(CompilationError, ANY_LENGTH, code="PTO-F108", hint=ANY_LENGTH_HINT)
        return (self.element(lists, number(k)) for k in range(count))

    def element(self, lists: Lists, at: Expr) -> Any:
        """The element at an index, as the user's program sees it."""
        if lists.around > 1:
            return Lists(self, map_views(lists.items, lambda v: v.at(at)), lists.around - 1)
        return self._element(lists.items, at)

    def _element(self, items: Any, at: Expr) -> Any:
        if isinstance(items, tuple):
            made = [self._element(item, at) for item in items]
            return items._make(made) if hasattr(items, "_make") else tuple(made)  # type: ignore[attr-defined]
        if isinstance(items, Lists):
            return self.element(items, at)
        return self.value(items.at(at))

    def value(self, view: View) -> Any:
        """A list, or a leaf that is read here."""
        return Lists(self, view) if view.dims else self.leaf(view.read, view.leaf)

    def leaf(self, read: Read, leaf: Leaf, state: Array | None = None, final: Array | None = None) -> Any:
        """Read a leaf at this place."""
        e = self.g.e
        if isinstance(read, Computed):
            return self._typed(read.value, leaf)
        if isinstance(read, Index):
            return self._typed(self.scalar(read.value), leaf)
        result = self.variable(leaf, "h" if state is not None else "x")
        if isinstance(read, Access) and read.array.argument is not None and not leaf.extents and leaf.dtype.is_integer:
            assert isinstance(result, Scalar) and isinstance(result.operand, Var)
            self.exprs[result.operand.name] = of(Fetch(read.array.argument[0].var, read.index))
        if final is None and state is None:
            var = result.operand if isinstance(result, Scalar) else result.var
            assert isinstance(var, Var)
            self.reads[var.name] = read
        e.append(ReadLeaf(result, read, leaf, e.loc, state, final))  # type: ignore[arg-type]
        if final is None:  # the last states of a loop are read together: `carried` waits
            self.wait()
        return result

    def _typed(self, value: Any, leaf: Leaf) -> Any:
        """A number of a list has the element type of the list, unless it is Python's (those of `ft.enumerate` are)."""
        if leaf.extents or leaf.weak:
            return value
        item = self.g.e.to_scalar(value)
        return Scalar(item.operand, False, self.g.e.loc) if item.weak else item

    def variable(self, leaf: Leaf, hint: str) -> Scalar | Tile:
        """A variable for a leaf."""
        e = self.g.e
        if not leaf.extents:
            var = e.fresh(hint, ScalarType(leaf.dtype))
            if leaf.weak:
                e.weak.add(var.name)
            return Scalar(var, leaf.weak, e.loc)
        var = e.fresh(hint, TileType(leaf.dtype, tuple(static_extent(x) for x in leaf.extents)))
        e.extents[var.name] = leaf.extents
        return Tile(var, leaf.extents, False, e.loc)

    def computed(self, value: Any, what: str) -> View:
        """A tensor or number as a leaf."""
        g = self.g
        if isinstance(value, Tensor) and value.rank:
            starts = tuple(number(0) for _ in value.extents)
            return View((), Part(value, starts, value.extents, len(self.loops)), Leaf(value.extents, value.dtype))
        if isinstance(value, np.ndarray) and value.ndim and value.size:
            value = self._constant(value, what)
        if not (isinstance(value, (Scalar, Tile, Tensor)) or is_number(value)):
            raise g.error(
                TypeMismatchError,
                f"{what} is {describe(value)}",
                code="PTO-F102",
                hint="give tensors, numbers, lists, or tuples of them",
            )
        item = value_of(g, value, what)
        if isinstance(item, Scalar):
            if isinstance(item.operand, Var) and item.operand.name in self.exprs and item.weak:
                return View((), Index(self.exprs[item.operand.name]), Leaf((), i64, True))
            read = self.reads.get(item.operand.name) if isinstance(item.operand, Var) else None
            return View((), read or Computed(item, len(self.loops)), Leaf((), item.dtype, item.weak))
        read = self.reads.get(item.var.name) or self._filled(item) or Computed(item, len(self.loops))
        return View((), read, Leaf(item.extents, item.dtype))

    def _constant(self, array: np.ndarray[Any, Any], what: str) -> Tile:
        """An array of the compiler's side, whose elements are one number, as a tensor."""
        dtype = from_numpy(array.dtype)
        first = array.flat[0]
        if dtype is None or array.tobytes() != np.full_like(array, first).tobytes():
            raise self.g.error(
                TypeMismatchError,
                f"{what} is an array of {array.dtype} that the kernel does not get as an argument",
                code="PTO-F102",
                hint="pass it to the kernel; only arrays whose numbers are all equal may be captured here",
            )
        extents = tuple(index(n) for n in array.shape)
        return self.g.e.tile("full", [constant(first.item(), dtype), *extents], extents=extents)

    def _filled(self, tile: Tile) -> Read | None:
        """A tensor full of one compile-time number is the same wherever it is read."""
        op = self.g.e.definitions.get(tile.var.name)
        if op is None or op.op != "full" or not isinstance(op.args[0], Const):
            return None
        return Filled(op.args[0].value)

    # -- what the front end asks of a list -------------------------------------------------------------------------

    def length(self, lists: Lists) -> Any:
        return self.scalar(lists.length)

    def item(self, lists: Lists, item: Any) -> Any:
        from pto_jit.fractal.compile import access

        if isinstance(item, slice):
            return access.slice_(self.g, lists, item.start, item.stop, item.step)
        return access.index_(self.g, lists, item)

    def attribute(self, lists: Lists, name: str) -> Any:
        view = lists.first
        if not isinstance(lists.items, tuple):
            if name == "depth":
                return len(view.dims)
            if name == "dtype":
                return view.leaf.dtype
            if name == "leaf_shape":
                return tuple(
                    x if x is not None else Scalar(e, True) for e in view.leaf.extents for x in [static_extent(e)]
                )
        raise self.g.error(
            CompilationError,
            f"a list in a kernel has no attribute `{name}`",
            code="PTO-F103",
            hint="it has `depth`, `dtype`, `leaf_shape`, `len(x)` and `x[i]`",
        )

    def returned(self, lists: Lists) -> Any:
        from pto_jit.fractal.compile.returning import returned

        return returned(self, lists)

    # -- loops -----------------------------------------------------------------------------------------------------

    def loop(self, loop: Loop, body: Callable[[], Any]) -> Any:
        """Open a loop of the nest, compile what is in it, close it; gives what `body` gives.

        The loop is appended where the function is called.  Assigning variables of functions around is an error.
        """
        g = self.g
        record = LoopRecord("sequential", loop.loc, len(g.control.pending), g.scope_depth)
        node, frame = g.node, g.frame
        g.loops.append(record)
        g.loop_stack.append(None)
        region = g.control.open_region(record)
        waiting = g.e.waiting
        if not self.loops:
            self.outside, g.e.waiting = g.e.current, None
        block = g.e.push(loop.body)
        self.loops.append(loop)
        result = body()
        self.loops.pop()
        g.e.pop(block)
        changes = g.control.close_region(region)
        g.loops.pop()
        g.loop_stack.pop()
        g.node, g.frame = node, frame
        if changes:
            (_, name), _ = next(iter(changes.items()))
            raise g.error(
                CompilationError,
                f"the body of a parallel function assigns `{name}`, a variable of a function around it",
                code="PTO-F104",
                hint="return the value: it becomes the state, or an element of the result",
            )
        g.e.append(loop)  # type: ignore[arg-type]
        g.e.waiting = waiting
        return result

    # -- from records to IR ----------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Let the records of the function itself wait for others, which they may be one loop with; those in a branch or
        loop of the user's become IR here."""
        if self.g.e.depth > 1:
            self.complete()
        else:
            self.g.e.waiting = self

    def before(self, stmt: Any) -> None:
        """Make IR of the records before what could change memory, or has blocks; all else may stand among them."""
        from pto_jit.fractal.compile.nest import reads_at_most
        from pto_jit.fractal.compile.sequential import RECORDS

        if not (isinstance(stmt, RECORDS) or (isinstance(stmt, Op) and reads_at_most(stmt))):
            self.complete()

    def returning(self, value: Any) -> None:
        """Make IR of all records: nothing else is read behind them than the value."""
        from pto_jit.fractal.compile.sequential import accessed

        for lists in lists_in(value):
            for view in views_of(lists.items):
                self._read_behind(accessed(view.read))
        self._write()

    def complete(self) -> None:
        """Make IR of the records in the current block, when no loop is open; all lists may be read behind it."""
        if not self.loops:
            self._read_behind(self.arrays)
            self._write()

    def complete_before(self, block: list[Any]) -> None:
        """Make IR of the records in the block around the outermost loop that is open, or in the current one."""
        g = self.g
        if self.loops and any(isinstance(item, Loop) for item in block):
            opened, self.loops = self.loops, []
            around, g.loops = g.loops, []
            g.e.push(block)
            self.complete()
            g.e.pop(block)
            self.written = block, len(block)
            self.loops, g.loops = opened, around
        self.complete()

    def undo(self, mark: int) -> None:
        """Drop what a loop that is to be made again has added to the current block, which had that length before."""
        block = self.g.e.current
        del block[max(mark, self.written[1] if self.written[0] is block else 0) :]

    def _read_behind(self, arrays: Iterable[Array]) -> None:
        """The function itself reads those of these arrays behind its nests that are outside of all loops."""
        for array in arrays:
            if array.loops == 0:
                array.loops = NO_LOOP

    def _write(self) -> None:
        from pto_jit.fractal.compile.schedule import write_pending

        self.g.e.waiting = None
        write_pending(self)

# SPDX-License-Identifier: MIT
"""The state of one compilation: names, places, errors, and the few services that operations use.

`Generator` has an expression visitor, a statement visitor and their parts; they share it and nothing else.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pto_jit.codegen.assignments import Assignments
from pto_jit.codegen.calls import Calls
from pto_jit.codegen.changes import Changes
from pto_jit.codegen.choices import Choices
from pto_jit.codegen.control import Control
from pto_jit.codegen.emit import Emitter
from pto_jit.codegen.expressions import Expressions
from pto_jit.codegen.frames import BUILTINS, MISSING, Frame, KernelFunction, Unusable
from pto_jit.codegen.items import Items, ItemsOf
from pto_jit.codegen.loops import Loops
from pto_jit.codegen.operators import Operators
from pto_jit.codegen.recovery import Recovery
from pto_jit.codegen.regions import Holder, LoopRecord, Region, Target
from pto_jit.codegen.spelling import Spelling
from pto_jit.codegen.statements import Statements
from pto_jit.codegen.unshared import WITHOUT_ITEMS, unshared
from pto_jit.codegen.values import RunTimeValueUsed, Scalar, Tile, is_runtime
from pto_jit.errors import NOWHERE, CompilationError, Loc, Note, PtoError
from pto_jit.ir import nodes
from pto_jit.ir.types import ScalarType
from pto_jit.slotted import frozen
from pto_jit.source import METHODS

Watch = Callable[[Frame, ast.stmt | ast.expr], None]  # told of every statement, or a lambda's body, once executed


_MAKE_STATIC = "make it a compile-time value: a captured variable, a global, or an argument annotated `pl.constexpr`"
_OVER_ITEMS = frozenset({"list", "tuple", "map", "iter", "sorted"})


@frozen
class Options:
    """What compilation depends on besides the program."""

    debug: bool = False
    unroll_limit: int = 4096
    inline_limit: int = 100


@frozen(eq=False)
class Orchestration:
    """The jit function whose body is being compiled."""

    frame: Frame
    implicit: bool
    static_loops: int


class Generator:
    """Compiles one function to IR. `e`, `options`, `in_scope` and the methods are what operations may use."""

    def __init__(self, options: Any, watch: Watch | None = None) -> None:
        self.options = options
        self.watch = watch
        self.unroll_limit: int = getattr(options, "unroll_limit", 4096)
        self.inline_limit: int = getattr(options, "inline_limit", 100)
        self.e = Emitter(self._place)
        self.decisions: list[Any] = []  # `Decision`s of the front end: schedules of parallel functions
        self.warnings: list[tuple[str, Loc]] = []  # to be issued when the program is made
        self.speaks = False  # compiling it is to be seen: it prints, stops or warns of something to be fixed
        self.quiet = False  # the program was compiled before: nothing is printed again
        self.said = self.heard = 0  # how often it spoke, and how often an earlier attempt did, which counts as heard
        self.tasks = False  # the body is divided into scopes that are to be tasks
        self.node: ast.AST | None = None
        self.wanted: dict[ast.AST, str] = {}  # expressions whose values are assigned to a name at once
        self.frame: Frame = None  # type: ignore[assignment]  # set before anything is compiled
        self.inner: Region | None = None
        self.depth = 0  # regions open
        self.targets: list[Target] = []
        self.loops: list[LoopRecord] = []
        self.inlined: list[str] = []
        self.scope_depth = 0
        self.scope_names: dict[str, int] = {}
        self.static_loops = 0
        self.indexed = False  # an index of a comprehension was declared
        self.loop_stack: list[tuple[Target, Target] | None] = []  # unrolled loops; None: a run-time loop
        self.returning: Target = Target("entry", 0, 0)
        self.orchestration: Orchestration | None = None
        self.parameter_names: set[str] = set()
        self.spelling = Spelling({}, self.e.maker)
        self._owned: dict[int, tuple[Any, Region | None]] = {}
        self.at_run_time: frozenset[ast.AST] = frozenset()  # calls of `np.zeros` and the like that make tensors
        self.met: set[ast.AST] = set()  # those that made arrays which met run-time values
        self.new_tiles: dict[str, ast.AST] = {}  # tiles that NumPy would make as arrays, by name: where
        self._arrays: dict[int, tuple[np.ndarray, ast.AST]] = {}  # what they made, by identity
        self._cached_node: ast.AST | None = None
        self._cached_frame: Frame | None = None
        self._cached_loc = NOWHERE
        self.expressions = Expressions(self)
        self.operators = Operators(self)
        self.items = ItemsOf(self)
        self.calls = Calls(self)
        self.assignments = Assignments(self)
        self.statements = Statements(self)
        self.control = Control(self)
        self.choices = Choices(self)
        self.loop_statements = Loops(self)
        self.recovery = Recovery(self)

    def speak(self) -> bool:
        """Whether to print, or to stop, where the program says so."""
        self.speaks = True
        self.said += 1
        return not self.quiet and self.said > self.heard

    # -- places and errors --------------------------------------------------------------------------------------

    def _place(self) -> Loc:
        if self.node is None:
            return NOWHERE
        if self.node is not self._cached_node or self.frame is not self._cached_frame:
            self._cached_loc = self.loc(self.node)
            self._cached_node, self._cached_frame = self.node, self.frame
        return self._cached_loc

    def loc(self, node: ast.AST, frame: Frame | None = None) -> Loc:
        """The place of a node of the current function (or of `frame`'s)."""
        frame = frame or self.frame
        if not hasattr(node, "lineno"):
            return self._cached_loc
        return frame.file.loc(node, frame.caller)

    def error(
        self,
        cls: type[CompilationError],
        message: str,
        *,
        code: str,
        hint: str | None = None,
        notes: Sequence[Note] = (),
    ) -> CompilationError:
        """An error at the expression being compiled, to be raised."""
        return cls(message, self.e.loc, code=code, hint=hint, notes=tuple(notes))

    def error_at(
        self,
        node: ast.AST,
        cls: type[CompilationError],
        message: str,
        *,
        code: str,
        hint: str | None = None,
        notes: Sequence[Note] = (),
    ) -> CompilationError:
        return cls(message, self.loc(node), code=code, hint=hint, notes=tuple(notes))

    # -- compile time and run time ------------------------------------------------------------------------------

    @property
    def in_scope(self) -> bool:
        """Whether the code being compiled is in-core code."""
        body = self.orchestration
        if self.scope_depth or body is None:
            return True
        return body.implicit and (
            self.depth > body.frame.region or self.static_loops > body.static_loops or self.frame is not body.frame
        )

    def enter_orchestration(self, frame: Frame, implicit: bool) -> None:
        """Begin the body of a jit function; `implicit`: it opens no scope, so it is one as a whole."""
        frame.is_orchestration = True
        self.orchestration = Orchestration(frame, implicit, self.static_loops)

    def scope_name(self, wanted: str | None) -> str:
        """The name of an anonymous scope: `<function>_incore_<n>`, or the one asked for."""
        base = wanted or f"{self.orchestration.frame.name if self.orchestration else self.frame.name}_incore"
        count = self.scope_names.get(base, 0)
        self.scope_names[base] = count + 1
        if wanted is not None:
            return wanted if count == 0 else f"{wanted}_{count}"
        return f"{base}_{count}"

    def static(self, value: Any, what: str, hint: str = _MAKE_STATIC) -> Any:
        """`value`, which must be known at compile time; `what` names it in the error."""
        found = self.find_runtime(value)
        if found is None:
            return value
        raise self.error(
            CompilationError,
            f"{what} must be known at compile time, but it is a run-time value",
            code="PTO-N002",
            hint=hint,
            notes=self.origin(found),
        )

    def origin(self, value: Any) -> tuple[Note, ...]:
        """A note on where a run-time value comes from."""
        place = getattr(value, "origin", NOWHERE)
        return (Note("it became a run-time value here", place),) if place.lineno else ()

    def find_runtime(self, value: Any, depth: int = 6) -> Any:
        """A run-time value inside `value` (itself, or an item or field of it), or None."""
        if is_runtime(value):
            return value
        kind = type(value)
        if kind in _PLAIN or depth == 0:
            return None
        if isinstance(value, _ITEMS):
            items: Any = value
        elif isinstance(value, dict):
            items = value.values()
        elif kind is Items:
            if value.settled is None:  # what its items are is not known before they are computed
                return value
            items = value.settled
        elif isinstance(value, functools.partial):
            items = (value.func, value.args, value.keywords)
        elif isinstance(value, METHODS):
            items = (value.__self__,)
        elif isinstance(value, slice):
            items = (value.start, value.stop, value.step)
        elif isinstance(value, (type, types.ModuleType)) or kind.__module__ in _OPAQUE:
            return None
        elif hasattr(kind, "__pto_runtime__"):
            return value
        elif dataclasses.is_dataclass(value):
            items = [getattr(value, f.name, None) for f in dataclasses.fields(value)]
        else:
            items = list(getattr(value, "__dict__", {}).values())
        for item in items:
            found = self.find_runtime(item, depth - 1)
            if found is not None:
                return found
        return None

    def python(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Let Python compute with compile-time values; what the user's code raises becomes an error at this place."""
        node, frame = self.node, self.frame
        try:
            return fn(*args, **kwargs)
        except RunTimeValueUsed as error:
            self.node, self.frame = node, frame
            raise self.misused(error, getattr(fn, "__name__", "this")) from None
        except CompilationError as error:
            self.node, self.frame = node, frame
            error.at(self.e.loc)
            raise
        except (PtoError, RecursionError):
            raise
        except Exception as error:
            self.node, self.frame = node, frame
            detail = str(error) or "no message"
            raise self.error(
                CompilationError,
                f"evaluating this at compile time raised {type(error).__name__}: {detail}",
                code="PTO-N004",
                hint="Python evaluates this while the kernel is compiled; the exception is attached as the cause",
            ) from error

    def made(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """The same, of a call in the program: new objects belong to this compilation, which may change them."""
        name = f"`{getattr(fn, '__name__', type(fn).__name__)}`"
        if self.node in self.at_run_time:
            from pto_jit.codegen.libraries import at_run_time

            if (tensor := at_run_time(self, fn, args, kwargs)) is not MISSING:
                return tensor
        changes = Changes(self, fn, (*args, *kwargs.values()))
        for iterator in changes.read:
            self.check_mutable(iterator, name)
        value = self.python(fn, *args, **kwargs)
        if changes.before and (changed := changes.first()) is not None:
            self.check_mutable(changed, name)
        if not (isinstance(value, WITHOUT_ITEMS) or is_runtime(value)):
            for new in unshared(value):
                self.own(new)
        return self.array(value) if type(value) is np.ndarray else value

    def array(self, value: np.ndarray) -> Any:
        """A new array that Python made at the current place; a tensor if it is known to meet run-time values."""
        if self.node in self.at_run_time:
            from pto_jit.codegen.arrays import written_out

            if (tensor := written_out(self, value)) is not MISSING:
                return tensor
        if self.node is not None:
            self._arrays[id(value)] = value, self.node
        return self.own(value) if value.base is None else value

    def assigns_to(self, tile: Tile) -> None:
        """Note that a tile would have to be a tensor, as one of its elements is assigned; which one it was made as is
        not known of a variable that changes in a loop, so any may have been it."""
        node = self.new_tiles.get(tile.var.name)
        self.met.update(self.new_tiles.values() if node is None else (node,))

    def meets(self, array: Any) -> None:
        """Note that an array, or a view of one, would have to be a tensor: it met a run-time value."""
        while isinstance(array, np.ndarray):
            if id(array) in self._arrays:
                self.met.add(self._arrays[id(array)][1])
            array = array.base

    def misused(self, error: RunTimeValueUsed, name: str = "this") -> CompilationError:
        """The user's error for a run-time value that Python tried to compute with, in a call of `name`."""
        rows = name in _OVER_ITEMS and not isinstance(error.value, Scalar)
        return self.error(
            CompilationError,
            f"`{name}` needs a compile-time value here, but got {_kind_of(error.value)}",
            code="PTO-N003",
            hint="loop over an index: `for i in pl.range(x.shape[0])` and read `x[i]`"
            if rows
            else "use the operation of `pl` for run-time values, or make the value a compile-time one",
            notes=self.origin(error.value),
        )

    # -- names --------------------------------------------------------------------------------------------------

    def bind(self, holder: Holder, name: str, value: Any, node: ast.AST | None = None) -> None:
        """Give a variable a value; run-time branches and loops remember the old one."""
        region = self.inner
        if region is not None and holder.region < region.depth:
            region.record(holder, name)
        holder.vars[name] = value
        if node is not None:
            holder.places[name] = node

    def unbind(self, holder: Holder, name: str) -> None:
        region = self.inner
        if region is not None and holder.region < region.depth:
            region.record(holder, name)
        holder.vars.pop(name, None)

    def lookup(self, node: ast.Name) -> Any:
        """The value of a name, by Python's rules."""
        name = node.id
        value = self.frame.vars.get(name, MISSING)
        if value is MISSING:
            value = self.resolve(self.frame, name)
        if type(value) is Unusable:
            self.node = node
            raise self.error(CompilationError, value.message, code=value.code, hint=value.hint, notes=value.notes)
        if value is MISSING:
            self.node = node
            raise self._unknown(name)
        return value

    def resolve(self, frame: Frame, name: str) -> Any:
        """The value of a name in a frame; MISSING when there is none."""
        owner = frame.owner(name)
        if owner is not None:
            return owner.vars.get(name, MISSING)
        root: Frame | None = frame
        while root is not None:
            cell = root.cells.get(name)
            if cell is not None:
                try:
                    return cell.cell_contents
                except ValueError:
                    return MISSING
            if root.parent is None:
                break
            root = root.parent
        value = frame.globals.get(name, MISSING)
        return BUILTINS.get(name, MISSING) if value is MISSING else value

    def _unknown(self, name: str) -> CompilationError:
        if self.frame.owner(name) is not None:
            return self.error(
                CompilationError,
                f"`{name}` is used before it is assigned",
                code="PTO-N005",
                hint=f"assign `{name}` before this line on every path",
            )
        from difflib import get_close_matches  # an error is on its way: not every compilation's cost

        close = get_close_matches(name, self.frame.visible(), 1)
        hint = f"did you mean `{close[0]}`?" if close else f"define `{name}` before the kernel is called"
        return self.error(CompilationError, f"name `{name}` is not defined", code="PTO-N006", hint=hint)

    # -- compile-time objects made here -------------------------------------------------------------------------

    def own(self, value: Any) -> Any:
        """Note that a mutable object was made by this compilation, in the current run-time region."""
        self._owned[id(value)] = (value, self.inner)
        return value

    def adopt(self, value: Any) -> Any:
        """Own a container that merging made; one that exists outside stays what it is."""
        if isinstance(value, (list, dict)) and id(value) not in self._owned and self.find_runtime(value) is not None:
            self.own(value)
        return value

    def owns(self, value: Any) -> bool:
        """Whether an object was made by this compilation."""
        return id(value) in self._owned

    def may_change(self, value: Any) -> bool:
        """Whether `check_mutable` lets the object be changed here."""
        found = self._owned.get(id(value))
        return found is not None and (self.inner is None or found[1] is self.inner)

    def check_mutable(self, value: Any, what: str) -> None:
        """Refuse to change an object made outside the kernel, or outside the current run-time branch or loop."""
        found = self._owned.get(id(value))
        part = value
        while found is None and isinstance(part, np.ndarray):
            part = part.base
            found = self._owned.get(id(part))
        if found is None:
            raise self.error(
                CompilationError,
                f"{what} would change a {type(value).__name__} that exists outside the kernel, once, while compiling",
                code="PTO-N007",
                hint="make a copy of it inside the kernel and change that",
            )
        if found[1] is not self.inner and self.inner is not None:
            self.meets(value)
            tensor = "put what grows in a tensor and a counter (`v = pl.empty([most], pl.f32)`, `v[n] = e`, `n += 1`), "
            growing = tensor if isinstance(value, list) else ""
            anew = "with as many items, as `v = [a + 1 for a in v]`"
            if isinstance(value, dict):
                anew = "with the same keys, as `v = {**v, key: v[key] + 1}`"
            elif dataclasses.is_dataclass(value):
                anew = "as `v = dataclasses.replace(v, field=v.field + 1)`"
            raise self.error(
                CompilationError,
                f"{what} changes a compile-time {type(value).__name__} under run-time control flow",
                code="PTO-N008",
                hint=f"the compiler cannot know how often it happens: {growing}assign a new one {anew}, "
                "change it outside, or unroll the loop with `pl.static_range`",
                notes=(Note("this branch or loop is decided at run time", self.inner.loc),),
            )

    # -- services for operations --------------------------------------------------------------------------------

    def inline(self, fn: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """Compile a call of any Python callable at the current place."""
        return self.calls.call(fn, tuple(args), kwargs or {})

    def region(
        self, fn: Any, param_types: Sequence[ScalarType], pack: Callable[..., tuple[Any, ...]] | None = None
    ) -> tuple[nodes.Region, Any]:
        """Compile a callable over fresh scalars into an IR region; also gives the structure it returned.

        `pack` arranges the scalars as the callable's arguments (default: one argument each).
        """
        return self.choices.function_region(fn, param_types, pack)

    def function_name(self, fn: Any) -> str:
        if isinstance(fn, KernelFunction):
            return fn.__name__
        return getattr(fn, "__name__", None) or type(fn).__name__


_PLAIN = frozenset({int, float, bool, str, bytes, type(None), complex, types.FunctionType, types.BuiltinFunctionType,
                    types.ModuleType, type, KernelFunction, range, type(Ellipsis)})  # fmt: skip
_ITEMS = (tuple, list, set, frozenset, type({}.values()), type({}.items()))
_OPAQUE = frozenset({"numpy", "builtins", "pto_jit.dtypes", "enum", "re", "threading"})


def _kind_of(value: object) -> str:
    return "a run-time number" if isinstance(value, Scalar) else f"a {type(value).__name__.lower()}"

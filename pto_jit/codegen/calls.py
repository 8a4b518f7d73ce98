# SPDX-License-Identifier: MIT
"""Calls: which of them Python makes, which are operations, and which are compiled into the place of the call."""

from __future__ import annotations

import ast
import builtins as python
import functools
import math
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit import dtypes
from pto_jit.codegen import builtins
from pto_jit.codegen.binding import bind, deep, meant, reworded
from pto_jit.codegen.builtins.promote import describe
from pto_jit.codegen.changes import CONTAINERS, is_iterator
from pto_jit.codegen.construction import construct
from pto_jit.codegen.counting import counters
from pto_jit.codegen.folding import as_generator, fold
from pto_jit.codegen.frames import MISSING, Frame, KernelFunction, Missing, Unusable, cells_of, names_of, node_names
from pto_jit.codegen.intrinsics import CONTROL, MATH, NATIVE_MODULES, OPERATORS, REPLACED, STAGED, UNAVAILABLE
from pto_jit.codegen.items import Items
from pto_jit.codegen.iteration import LoopSpec, reversed_loop
from pto_jit.codegen.marks import mark
from pto_jit.codegen.names import FunctionNames
from pto_jit.codegen.presence import has_scopes, uses_language
from pto_jit.codegen.regions import Status, Target
from pto_jit.codegen.results import Results
from pto_jit.codegen.texts import text_of
from pto_jit.codegen.unused import check_frozen
from pto_jit.codegen.values import is_runtime
from pto_jit.dtypes import DType
from pto_jit.errors import (
    CompilationError,
    Loc,
    Note,
    PtoError,
    TypeMismatchError,
    UnsupportedSyntaxError,
)
from pto_jit.ir.nodes import Operand
from pto_jit.source import METHODS, FunctionNode, SourceFile, locate

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

_MUTATING = frozenset(
    "append extend insert pop remove clear sort reverse update setdefault popitem add discard appendleft popleft "
    "extendleft rotate __setitem__ __delitem__ difference_update intersection_update "
    "symmetric_difference_update".split()
)
_UNBOUND = (types.MethodDescriptorType, types.WrapperDescriptorType)  # `list.append`, `list.__setitem__`
_OF_C = (types.BuiltinFunctionType, types.MethodWrapperType, *_UNBOUND, np.ufunc)
_LANGUAGE = ("pto_jit.language", "pto_jit.dtypes", "pto_jit.types")
_NUMPY = {f"pto_jit.language._numpy_{part}" for part in ("functions", "matrices")}  # which are written as kernels are
_GENERATOR, _ASYNCHRONOUS = 0x20, 0x280  # flags of code objects (`inspect` takes long to import)


class Calls:
    def __init__(self, generator: Generator) -> None:
        self.g = generator
        self.returned = Results(generator)

    # -- the call expression ------------------------------------------------------------------------------------

    def visit(self, node: ast.Call) -> Any:
        g = self.g
        fn = g.expressions.visit(node.func)
        args, kwargs = self.arguments(node, fn)
        g.node = node
        if not _ITEMS.isdisjoint(map(type, args)) and (value := fold(g, fn, args, kwargs)) is not MISSING:
            return value
        for arg in (*args, *kwargs.values()):
            if type(arg) is Items and not _reads_on_demand(fn):
                arg.settle()
                g.node = node
        return self.call(fn, tuple(args), kwargs)

    def arguments(self, node: ast.Call, fn: Any = None) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call of `fn`."""
        g = self.g
        visit = g.expressions.visit
        args: list[Any] = []
        for item in node.args:
            if isinstance(item, ast.Starred):
                value = visit(item.value)
                own = getattr(type(value), "__pto_spread__", None)
                whole = None if own is None else own(value, fn)
                args.extend(g.items.all_of(value, item.value) if whole is None else whole)
            elif type(item) is ast.JoinedStr and not is_runtime(fn) and mark(fn, "__pto_builtin__") in _TELLING:
                args.append(text_of(g, item))
            else:
                args.append(visit(as_generator(g, fn, item)))
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = visit(keyword.value)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
                continue
            g.node = keyword
            if not isinstance(value, Mapping):
                raise g.error(CompilationError, "`**` takes a dict", code="PTO-N031", hint="unpack a compile-time dict")
            for name in value:
                if name in kwargs:
                    raise g.error(CompilationError, f"the argument `{name}` is given twice", code="PTO-N032",
                                  hint="give it once")  # fmt: skip
                kwargs[name] = value[name]
        return args, kwargs

    # -- who handles it -----------------------------------------------------------------------------------------

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of `fn(*args, **kwargs)` at the current place."""
        g = self.g
        if type(fn) is KernelFunction:
            return self._kernel_function(fn, args, kwargs)
        if isinstance(fn, types.MethodType) and mark(fn, "__pto_native__"):
            return self._guarded(fn, args, kwargs, fn.__name__)
        if isinstance(fn, METHODS):
            return self._method(fn, args, kwargs)
        if isinstance(fn, functools.partial):
            return self.call(fn.func, (*fn.args, *args), {**fn.keywords, **kwargs})
        if isinstance(fn, builtins.BoundMethod):
            return g.e.note(self._guarded(fn, args, kwargs))
        name = None if is_runtime(fn) else mark(fn, "__pto_builtin__")
        if isinstance(name, str):
            handler = CONTROL.get(name)
            if handler is not None:
                return self._guarded(functools.partial(handler, g), args, kwargs, f"pl.{name}")
            return g.e.note(builtins.call(name, g, args, kwargs))
        if isinstance(fn, types.FunctionType):
            return self._function(fn, args, kwargs)
        if isinstance(fn, type):
            return self._class(fn, args, kwargs)
        if isinstance(fn, _OF_C) or type(fn) is functools._lru_cache_wrapper:
            return self._native(fn, args, kwargs)
        return self._object(fn, args, kwargs)

    def _kernel_function(self, fn: KernelFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = node_names(fn.file, fn.node)
        values = bind(self.g, fn.__name__, fn.node.args, fn.defaults, fn.kw_defaults, args, kwargs)
        return self.inline(fn.__name__, fn.file, fn.node, names, fn.frame.globals, {}, fn.frame, values)

    def _method(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owner = fn.__self__
        check_frozen(self.g, fn)
        if isinstance(fn.__func__, types.FunctionType) and not self._compiled(fn.__func__, (owner, *args, kwargs)):
            return self.g.made(fn, *args, **kwargs)
        return self.call(fn.__func__, (owner, *args), kwargs)

    def _compiled(self, fn: types.FunctionType, arguments: Any) -> bool:
        """Whether a Python function is compiled into the kernel (else Python calls it now)."""
        if _holds_code(arguments) or self.g.find_runtime(arguments) is not None:
            return fn.__module__ not in NATIVE_MODULES
        return uses_language(fn)

    def _function(self, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        g = self.g
        wanted = mark(fn, "__pto_incore__")
        if wanted is not None:
            return self.incore(wanted, args, kwargs)
        wanted = mark(fn, "__pto_jit__")
        if wanted is not None:
            return self.jit(wanted, args, kwargs)
        if mark(fn, "__pto_native__"):
            return self._of_python(fn, args, kwargs)
        if not self._compiled(fn, (args, kwargs)):
            return g.made(fn, *args, **kwargs)
        if (fn.__module__ or "").startswith("numpy") and g.find_runtime((args, kwargs)) is not None:
            return self._library(fn, fn.__name__, args, kwargs)
        describes = (fn.__module__ or "").startswith(_LANGUAGE) and fn.__module__ not in _NUMPY
        if describes and (found := g.find_runtime((args, kwargs))) is not None:
            raise self._of_known(f"pl.{fn.__name__}", found)
        return self.python_function(fn, args, kwargs)

    def _of_python(self, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What Python calls itself; an error that knows no place gets that of the expression."""
        try:
            return fn(*args, **kwargs)
        except CompilationError as error:
            if error.loc is not None:
                raise
            raise self.g.error(type(error), error.message, code=error.code, hint=error.hint) from None

    def _object(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        g = self.g
        if is_runtime(fn) or not callable(fn):
            kind = (
                f"a run-time {type(fn).__name__.lower()}" if is_runtime(fn) else describe(fn)
            )
            raise g.error(
                TypeMismatchError, f"{kind} is not callable", code="PTO-T015", hint="only functions are called"
            )
        if isinstance(fn, DType):
            return self._convert(fn, args, kwargs)
        wanted = mark(fn, "__pto_incore__")
        if wanted is not None:
            return self.incore(wanted, args, kwargs)
        wanted = mark(fn, "__pto_jit__")
        if wanted is not None:
            return self.jit(wanted, args, kwargs)
        wanted = mark(fn, "__pto_built__")
        if wanted is not None:
            from pto_jit.codegen.built import call_built  # few kernels need it

            return call_built(g, wanted, args, kwargs)
        if type(fn).__module__.startswith("numpy") and g.find_runtime((args, kwargs)) is not None:
            return self._library(fn, getattr(fn, "__name__", type(fn).__name__), args, kwargs)
        method = getattr(type(fn), "__call__", None)  # noqa: B004
        if isinstance(method, types.FunctionType) and self._compiled(method, (fn, args, kwargs)):
            return self.python_function(method, (fn, *args), kwargs)
        return g.made(fn, *args, **kwargs)

    def _class(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        g = self.g
        if cls is range and kwargs:
            hint = f"write `pl.range(..., {next(iter(kwargs))}=...)`, whose loops take options"
            raise self._misfit("range", "takes no keyword arguments", hint)
        if cls is range and g.find_runtime(args) is not None:
            return self._guarded(functools.partial(CONTROL["range"], g), args, kwargs, "range")
        if cls is reversed and len(args) == 1 and isinstance(args[0], LoopSpec):
            return reversed_loop(g, args[0])
        if (loops := counters(g, cls, args, kwargs)) is not MISSING:
            return loops
        if cls is super and not args:
            return self._super()
        found = g.find_runtime((args, kwargs))
        if cls in STAGED and found is not None:
            return self._guarded(functools.partial(builtins.python_builtin, cls, g), (args, kwargs), None, cls.__name__)
        if issubclass(cls, np.generic) and args and is_runtime(args[0]):
            dtype = dtypes.from_numpy(cls)
            if dtype is not None:
                return builtins.call("cast", g, (args[0], dtype), {})
        replaced = REPLACED.get(cls)
        if replaced is not None:
            return replaced(g, *args, **kwargs)
        if found is not None and cls.__module__.startswith(_LANGUAGE):
            raise self._of_known(f"pl.{cls.__name__}", found)
        if found is not None or _holds_code((args, kwargs)):
            return construct(g, cls, args, kwargs)
        return g.made(cls, *args, **kwargs)

    def _native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function written in C."""
        g = self.g
        owner = args[0] if isinstance(fn, _UNBOUND) and args else getattr(fn, "__self__", None)
        name = getattr(fn, "__name__", "")
        check_frozen(g, fn)
        if owner is python and name in UNAVAILABLE:
            raise g.error(CompilationError, f"`{name}()` has no meaning in a kernel", code="PTO-N033",
                          hint=UNAVAILABLE[name])  # fmt: skip
        replaced = REPLACED.get(fn) if _hashable(fn) else None
        if replaced is not None:
            return self._guarded(functools.partial(replaced, g), args, kwargs, name)
        goes_through = (owner is python and fn in STAGED) or fn is math.prod
        if goes_through and args and is_iterator(args[0]):  # whose items may be run-time values
            assert g.node is not None
            args = (g.items.all_of(args[0], g.node), *args[1:])
        if isinstance(owner, CONTAINERS):
            if name in _MUTATING:
                g.check_mutable(owner, f"`{name}`")
        elif isinstance(fn, _UNBOUND) and name in ("__setattr__", "__delattr__"):
            g.check_mutable(owner, f"`{name}`")
        elif g.find_runtime((args, kwargs)) is not None or (fn in (min, max) and _holds_code(kwargs)):
            handler = OPERATORS.get(name) if getattr(fn, "__module__", "") in ("_operator", "operator") else None
            handler = handler or (MATH.get(name) if getattr(fn, "__module__", "") == "math" else None)
            if handler is not None:
                return self._guarded(functools.partial(handler, g), args, kwargs, name)
            if owner is python and fn in STAGED:
                call = functools.partial(builtins.python_builtin, fn, g)
                return self._guarded(call, (args, kwargs), None, name)
            if isinstance(owner, np.ufunc):
                name = f"{owner.__name__}.{name}"
            if isinstance(owner, np.ufunc) or isinstance(fn, np.ufunc) or fn.__module__ in ("numpy", "math"):
                return self._library(fn, name, args, kwargs)
        return g.made(fn, *args, **kwargs)

    def _library(self, fn: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of NumPy or `math` that is given run-time values."""
        from pto_jit.codegen.libraries import call  # few kernels need it

        return self._guarded(functools.partial(call, self.g, fn, name), (args, kwargs), None, name)

    def _of_known(self, name: str, found: Any) -> CompilationError:
        """The error for what describes kernels (`pl.dynamic`, `pl.TensorSpec`) and is given a run-time value."""
        return self.g.error(
            TypeMismatchError,
            f"`{name}` of a run-time value",
            code="PTO-T016",
            hint=f"`{name}` describes what is known while the kernel is compiled: use it outside of kernels",
            notes=self.g.origin(found),
        )

    def _convert(self, dtype: DType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        g = self.g
        if len(args) == 1 and not kwargs and is_runtime(args[0]):
            return builtins.call("cast", g, (args[0], dtype), {})
        return g.python(dtype, *args, **kwargs)

    def _super(self) -> Any:
        g = self.g
        function = g.frame.function
        cls = g.resolve(function, "__class__")
        first = function.vars.get(function.names.parameters[0], MISSING) if function.names.parameters else MISSING
        if cls is MISSING or first is MISSING:
            raise g.error(
                CompilationError, "`super()` outside a method", code="PTO-N034", hint="call the method by name"
            )
        return super(cls, first)

    def _guarded(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None, name: str | None = None
    ) -> Any:
        """Call a handler; arguments that do not fit it are the user's error."""
        try:
            return fn(*args) if kwargs is None else fn(*args, **kwargs)
        except TypeError as error:
            if isinstance(error, PtoError) or (error.__traceback__ and error.__traceback__.tb_next and deep(error)):
                raise
            name = name or str(getattr(fn, "name", "this"))
            raise self._misfit(name, reworded(error), f"{meant(fn, error)}check the arguments of the call") from None

    def _misfit(self, name: str, why: str, hint: str) -> CompilationError:
        """The error for arguments that do not fit a function."""
        return self.g.error(TypeMismatchError, f"`{name}`: {why}", code="PTO-T017", hint=hint)

    # -- compiled into place ------------------------------------------------------------------------------------

    def python_function(
        self, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], *, orchestration: bool = False
    ) -> Any:
        """Compile a Python function from its source into the place of the call."""
        g = self.g
        if fn.__code__.co_flags & _ASYNCHRONOUS:
            raise g.error(UnsupportedSyntaxError, f"`{fn.__name__}` is an `async def` and gets run-time values",
                          code="PTO-S035", hint="write a plain `def`: in-core functions run as tasks")  # fmt: skip
        if fn.__code__.co_flags & _GENERATOR:
            raise g.error(UnsupportedSyntaxError, f"`{fn.__name__}` is a generator (`yield`) and gets run-time values",
                          code="PTO-N035", hint="return a list or a tuple")  # fmt: skip
        try:
            located = locate(fn)
        except CompilationError as error:
            if error.loc is None:
                error.loc = g.e.loc
            raise
        defaults, kw_defaults = fn.__defaults__ or (), fn.__kwdefaults__ or {}
        values = bind(g, fn.__name__, located.node.args, defaults, kw_defaults, args, kwargs)
        return self.inline(
            fn.__name__, located.file, located.node, names_of(located), fn.__globals__, cells_of(fn), None, values,
            orchestration=orchestration,
        )  # fmt: skip

    def incore(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A named in-core function: a scope of its own in orchestration, in place in in-core code."""
        g = self.g
        holder = Target("value", g.depth, len(g.loops))
        node = g.node
        assert node is not None

        def run() -> Status:
            holder.vars["value"] = self.call(fn, args, kwargs) if not isinstance(fn, types.FunctionType) else (
                self.python_function(fn, args, kwargs))  # fmt: skip
            return None

        g.statements.scope(g.function_name(fn), True, run, node)
        g.node = node
        return holder.vars["value"]

    def jit(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A `@pto.jit` function: part of this orchestration, or of this in-core code."""
        if isinstance(fn, types.MethodType):
            fn, args = fn.__func__, (fn.__self__, *args)
        return self.python_function(fn, args, kwargs, orchestration=not self.g.in_scope)

    def inline(
        self,
        name: str,
        file: SourceFile,
        node: FunctionNode,
        names: FunctionNames,
        globals_: Mapping[str, Any],
        cells: Mapping[str, types.CellType],
        parent: Frame | None,
        values: dict[str, Any],
        *,
        orchestration: bool = False,
        caller: Loc | Missing | None = MISSING,
    ) -> Any:
        """Compile a function's body here, with its parameters bound to `values`.

        caller: where it was called from, in messages; by default the place of the expression being compiled.
        """
        g = self.g
        if len(g.inlined) >= g.inline_limit:
            chain = " -> ".join(dict.fromkeys(g.inlined[-8:]))
            raise g.error(
                CompilationError,
                f"calls are nested more than {g.inline_limit} deep: {chain} -> {name}",
                code="PTO-N036",
                hint="functions are compiled into the place of their call, so recursion has to end at compile time",
            )
        caller_frame, caller_node, caller_loops = g.frame, g.node, g.loop_stack
        caller_returning, caller_orchestration = g.returning, g.orchestration
        place = g.e.loc if isinstance(caller, Missing) else caller
        frame = Frame(file, names, globals_, cells, parent, name, g.depth, place)
        frame.vars.update(values)
        target = Target("function", g.depth, len(g.loops))
        g.frame, g.loop_stack, g.returning = frame, [], target
        frame.given = len(g.e.allocated)
        if orchestration:
            g.enter_orchestration(frame, not has_scopes(g, node, frame))
        g.inlined.append(name)
        if isinstance(node, ast.Lambda):
            result = g.expressions.visit(node.body)
        else:
            result = self._body(node, frame, target)
        g.inlined.pop()
        g.frame, g.node, g.loop_stack = caller_frame, caller_node, caller_loops
        g.returning, g.orchestration = caller_returning, caller_orchestration
        return result

    def _body(self, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame, target: Target) -> Any:
        g = self.g
        g.targets.append(target)
        mark = len(g.control.pending)
        status = g.statements.block(node.body)
        if status is None:
            g.bind(target, "result", None, node)
            g.bind(target, "left", True)
            status = target
        g.control.close_pending(mark, status, over=frame)
        g.targets.remove(target)
        result = target.vars.get("result")
        if isinstance(result, Unusable):
            places = tuple(Note(n.message.replace("`result`", "the result"), n.loc) for n in result.notes)
            raise g.error_at(
                node.body[-1],
                TypeMismatchError,
                f"`{frame.name}` returns different kinds of value: {result.message.split(': ', 1)[-1]}",
                code="PTO-T018",
                hint=result.hint,
                notes=places,
            )
        return result

    def return_value(self, value: Any, node: ast.AST) -> Status:
        """`return value` of the function being compiled."""
        g = self.g
        target = g.returning
        if target.kind == "entry" and not g.scope_depth and len(g.loops) == target.loops:
            g.bind(target, "result", value, node)
            return g.control.return_now(target, node)
        g.bind(target, "result", value, node)
        return g.control.leave(target, node)

    def results(self, value: Any, node: ast.AST) -> tuple[Operand, ...]:
        return self.returned.operands(value, node)


_TELLING = ("print", "assert_")  # what takes f-strings with run-time values

# Functions that ask generators for one item after another, and begin with the next only when they need it.
_ITEMS = frozenset({Items, LoopSpec})
_ON_DEMAND = frozenset({any, all, map, filter, zip, enumerate, iter, next, functools.reduce, isinstance})


def _reads_on_demand(fn: Any) -> bool:
    return _hashable(fn) and fn in _ON_DEMAND


def _holds_code(value: Any) -> bool:
    """Whether a call gets a function written in the kernel."""
    if type(value) is KernelFunction:
        return True
    if isinstance(value, (tuple, list)):
        return any(_holds_code(v) for v in value)
    if isinstance(value, dict):
        return any(_holds_code(v) for v in value.values())
    return isinstance(value, functools.partial) and _holds_code((value.func, value.args, value.keywords))


def _hashable(fn: Any) -> bool:
    try:
        hash(fn)
    except Exception:  # a callable of the user's may refuse in any way
        return False
    return True

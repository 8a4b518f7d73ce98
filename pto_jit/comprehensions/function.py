# SPDX-License-Identifier: MIT
"""`pto.comprehension`: index notation as a function.

A `Comprehension` is analysed when it is defined, for each set of values of its compile-time parameters.  A call checks
the sizes of its arguments once per set of shapes and runs a `@pto.jit` function made from the loops; where these check
all that is to be checked, or for the shapes seen last, the C dispatcher of the comprehension launches their kernel
itself, with `out=` too.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from pto_jit.comprehensions.arguments import host
from pto_jit.comprehensions.explanation import explanation
from pto_jit.comprehensions.nodes import Binary, Definition, Expression, Parameter, Read, Statement, names_in, walk
from pto_jit.comprehensions.program import analyse, check_parts
from pto_jit.comprehensions.results import Inference, checked_sizes, inference
from pto_jit.comprehensions.text import parse
from pto_jit.comprehensions.version import Version, strict
from pto_jit.errors import ArgumentError, CompilationError, Loc, ParseError, RangeInferenceError, ShapeError
from pto_jit.options import OPTION_NAMES, Options
from pto_jit.runtime import Dispatcher

if TYPE_CHECKING:
    from pto_jit.jit import JitFunction

_numbers = itertools.count(1)


class _Writer(Dispatcher):
    """What a comprehension knows of calls with `out=`, which is the last parameter here."""


class Comprehension(Dispatcher):
    """A computation in index notation; made by `pto.comprehension`.

    Call it with arrays: it returns one array, or a tuple when there are several results.  `out=` gives arrays to write
    instead.  `infer`, `explain`, `loops` and `compile` look inside.
    """

    def __init__(self, definition: Definition, options: Options, strict_origin: bool) -> None:
        check_parts(definition)
        names = tuple(p.name for p in definition.parameters)
        self._writer = _Writer((*names, " out"), self._slow_call)
        super().__init__(names, self._slow_call, into=self._writer)
        self.__name__ = self.__qualname__ = definition.name
        self.__doc__ = definition.doc
        self.definition = definition
        self.options = options
        self.strict_origin = strict_origin
        self._versions: dict[Any, Version] = {}
        self._noted: set[str] = set()
        self._into: JitFunction[Any, Any] | None = None  # takes the output, and checks all that is to be checked
        self._fast: dict[Any, JitFunction[Any, Any]] = {}  # by the shapes of the arguments
        self._special = tuple(p.name for p in definition.parameters if p.dtype is None)
        if not self._special:
            try:
                self._versions[()] = self._made({})
            except RangeInferenceError as error:
                # A stride that is a parameter: known when it is called.
                self._special = _strides(definition)
                if not self._special or error.code not in ("PTO-R010", "PTO-R037"):
                    raise

    # -- versions -------------------------------------------------------------------------------------------------

    def _made(self, hosts: dict[str, Any]) -> Version:
        try:
            version = Version(self, analyse(_with_hosts(self.definition, hosts), hosts))
            version.program(False)
        except RecursionError:
            raise _too_deep(self.definition.loc) from None
        if self.strict_origin:
            for name, lows in version.origins().items():
                for low in lows:
                    if low.value not in (None, 0):
                        raise strict(self, name, str(low))
        return version

    def _version(self, given: dict[str, Any]) -> Version:
        hosts = {n: host(v) for n, v in given.items()}
        key = tuple((n, type(v), v) for n, v in hosts.items())
        try:
            found = self._versions.get(key)
        except TypeError:
            wrong = next(n for n, v in hosts.items() if type(v).__hash__ is None)
            raise ArgumentError(
                f"PTO-R050: the compile-time argument `{wrong}` cannot be hashed\nhelp: pass a number or a tuple"
            ) from None
        if found is None:
            found = self._versions[key] = self._made(hosts)
        return found

    # -- calling --------------------------------------------------------------------------------------------------

    if TYPE_CHECKING:

        def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
            """Compute for these arguments; parameters that are returned are written in place."""

    def _slow_call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """A call that the dispatcher does not know: of new kinds, with `out=`, or with sizes to check."""
        out = None
        if kwargs:
            out = kwargs.get("out")
            if len(kwargs) > (out is not None):
                given = {n: v for n, v in kwargs.items() if n != "out"}
                return self._checked_call(args, given, out)
        if out is None:
            known = self._fast.get(tuple([getattr(a, "shape", None) for a in args])) if self._fast else None
            return self._checked_call(args, {}, None) if known is None else known(*args)
        if type(out) is np.ndarray:
            known = self._into
            if known is None and self._fast:
                known = self._fast.get((out.shape, out.dtype, *[getattr(a, "shape", None) for a in args]))
            if known is not None and _apart(out, args):
                try:
                    known(*args, out)
                except ShapeError:  # said again below, in the words of the comprehension
                    return self._checked_call(args, {}, out)
                return out
        return self._checked_call(args, {}, out)

    def _checked_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Any:
        values = self._bound(args, kwargs)
        version = self._version({n: values[n] for n in self._special})
        return version.call(values, out)

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = [p.name for p in self.definition.parameters]
        if len(args) > len(names):
            raise self._wrong(f"takes {len(names)} arguments, got {len(args)}")
        values = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise self._wrong(f"has no parameter `{name}`")
            if name in values:
                raise self._wrong(f"got two values for `{name}`")
            values[name] = value
        missing = [n for n in names if n not in values]
        if missing:
            raise self._wrong(f"needs a value for `{missing[0]}`")
        return values

    def _wrong(self, message: str) -> ArgumentError:
        names = ", ".join(p.name for p in self.definition.parameters)
        return ArgumentError(f"PTO-R051: `{self.__name__}` {message}\nhelp: its parameters are {names}")

    # -- looking inside -------------------------------------------------------------------------------------------

    def infer(self, **given: Any) -> Inference:
        """Ranges, shapes, origins, rounds and preconditions: symbolic, or for shapes (and scalars) given by name.

        Raises ShapeError for sizes that do not go together.
        """
        names = {p.name for p in self.definition.parameters}
        for name in given:
            if name not in names:
                raise self._wrong(f"has no parameter `{name}`")
        missing = [n for n in self._special if n not in given]
        if missing:
            raise ArgumentError(
                f"PTO-R052: the ranges of `{self.__name__}` depend on the value of `{missing[0]}`\n"
                f"help: give it: `{self.__name__}.infer({missing[0]}=...)`"
            )
        version = self._version({n: given[n] for n in self._special})
        rest = {n: v for n, v in given.items() if n not in self._special}
        if not rest:
            return inference(version.analysis, None)
        return inference(version.analysis, checked_sizes(version.analysis, rest))

    def explain(self, **given: Any) -> str:
        """Each round of inference in words, with the source underlined."""
        return explanation(self.infer(**given))

    def loops(self, **hosts: Any) -> str:
        """The same computation as the text of a `@pto.jit` program; `hosts`: values of compile-time parameters."""
        missing = [n for n in self._special if n not in hosts]
        if missing:
            raise ArgumentError(
                f"PTO-R052: the loops of `{self.__name__}` depend on the value of `{missing[0]}`\n"
                f"help: give it: `{self.__name__}.loops({missing[0]}=...)`"
            )
        return str(self._version({n: hosts[n] for n in self._special}).program(False))

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        """Compile for these arguments (arrays or `pto.spec`) without running; `target=` and other options as in
        `fn.compile`. The result has `stages`, `ir`, `sources`, `decisions`."""
        left = {p.name for p in self.definition.parameters[len(args) :]}
        options = {n: kwargs.pop(n) for n in OPTION_NAMES if n in kwargs and n not in left}
        values = self._bound(args, kwargs)
        version = self._version({n: values[n] for n in self._special})
        return version.function(False, options.get("target")).compile(*version.ordered(values), **options)

    @property
    def __pto_jit__(self) -> Any:
        return self._version({}).function(False).__pto_jit__

    def __repr__(self) -> str:
        return f"<pto.comprehension {self.__name__}>"


def _apart(out: np.ndarray, args: tuple[Any, ...]) -> bool:
    """Whether an output certainly shares no memory with arguments, arrays of NumPy and numbers."""
    for a in args:
        if type(a) is float:
            continue
        if type(a) is not np.ndarray or np.may_share_memory(out, a):
            return False
    return True


def _too_deep(loc: Loc) -> CompilationError:
    return CompilationError(
        "the comprehension is nested too deeply", loc, code="PTO-R091", hint="write parts of it as statements"
    )


def _strides(definition: Definition) -> tuple[str, ...]:
    """Integer parameters that subscripts or ranges are multiplied with or divided by: their values decide ranges."""
    places: list[Expression] = []
    for s in definition.body:
        if isinstance(s, Statement):
            reads = [e for part in (s.value, *s.exists) for e in walk(part) if isinstance(e, Read)]
            places += [x for r in reads for x in r.subscripts]
            places += [e for r in s.ranges for e in (r.low, r.high)]
    used = {
        n.name
        for place in places
        for e in walk(place)
        if isinstance(e, Binary) and e.op in ("*", "/", "//", "%")
        for n in names_in(e)
    }
    returned = {r.name for r in definition.returns}
    return tuple(
        p.name for p in definition.parameters
        if p.dtype is not None and p.dtype.is_integer and not p.sizes and p.name in used - returned
    )  # fmt: skip


def _with_hosts(definition: Definition, hosts: Mapping[str, Any]) -> Definition:
    """The definition with the parameters that have values as compile-time ones."""
    parameters = tuple(Parameter(p.name, None, (), p.loc) if p.name in hosts else p for p in definition.parameters)
    if parameters == definition.parameters:
        return definition
    d = definition
    return Definition(d.name, parameters, d.returns, d.body, d.floor, d.doc, d.loc, d.origin)


# -- defining -----------------------------------------------------------------------------------------------------


@overload
def comprehension(source: str, /, *, strict_origin: bool = False, **options: Any) -> Any: ...
@overload
def comprehension(source: Callable[..., Any], /, *, strict_origin: bool = False, **options: Any) -> Comprehension: ...
@overload
def comprehension(*, strict_origin: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Comprehension]: ...
def comprehension(source: Any = None, /, *, strict_origin: bool = False, **options: Any) -> Any:
    """A computation in index notation, whose ranges are inferred.

    `source` is a text with one `def` (gives a `Comprehension`) or several (gives an object with one attribute per
    name), or a Python function in index notation, which is read and never run.  strict_origin: results that do not
    start at index 0 are an error.  Options are those of `pto.jit`: target, debug, fastmath, num_threads, cache.

    Raises ParseError, RangeInferenceError, ShapeError, TypeMismatchError or CompilationError.

    >>> import numpy as np, pto_jit as pto
    >>> moving = pto.comprehension("def f(float(N) x) -> (y) { y(i) +=! x(i + k) where k in 0:3 }")
    >>> moving(np.arange(5, dtype=np.float32))
    array([3., 6., 9.], dtype=float32)
    """
    chosen = Options.of(options)
    if source is None:
        return lambda given: comprehension(given, strict_origin=strict_origin, **options)
    if isinstance(source, str):
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
            frame = frame.f_back
        origin = Loc(frame.f_code.co_filename, frame.f_lineno, 0, frame.f_lineno, 0)
        filename = f"<comprehension {next(_numbers)}>"
        try:
            definitions = parse(source, filename, origin)
        except RecursionError:
            raise _too_deep(origin) from None
        made = {d.name: Comprehension(d, chosen, strict_origin) for d in definitions}
        return next(iter(made.values())) if len(made) == 1 else types.SimpleNamespace(**made)
    if isinstance(source, types.FunctionType):
        from pto_jit.comprehensions.python import read_function

        return Comprehension(read_function(source), chosen, strict_origin)
    raise ArgumentError(
        f"PTO-R058: pto.comprehension takes a text or a function, got {type(source).__name__}\n"
        "help: pass the text of a `def`, or decorate a function"
    )


__all__ = ["Comprehension", "ParseError", "comprehension"]

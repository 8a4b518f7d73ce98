# SPDX-License-Identifier: MIT
"""`pto.comprehension`: index notation as a function.

A `Comprehension` is analysed when it is defined, for each set of values of its compile-time parameters.  A call checks
the sizes of its arguments once per set of shapes and runs a `@pto.jit` function made from the loops.
"""

from __future__ import annotations

import itertools
import linecache
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from pto_jit.comprehensions.arguments import check_out, number, of_rank_1, shape_of, share
from pto_jit.comprehensions.explanation import explanation
from pto_jit.comprehensions.inference import Inferred
from pto_jit.comprehensions.lowering.kernel import Program, lowered
from pto_jit.comprehensions.lowering.naming import is_simple
from pto_jit.comprehensions.nodes import Binary, Definition, Expression, Parameter, Read, Statement, names_in, walk
from pto_jit.comprehensions.program import Analysis, analyse, bind_scalars
from pto_jit.comprehensions.results import Inference, checked_sizes, inference
from pto_jit.comprehensions.symbolic import Sym
from pto_jit.comprehensions.text import parse
from pto_jit.errors import ArgumentError, CompilationError, Loc, ParseError, RangeInferenceError, ShapeError
from pto_jit.options import OPTION_NAMES, Options

if TYPE_CHECKING:
    from pto_jit.jit import JitFunction

_numbers = itertools.count(1)


class Comprehension:
    """A computation in index notation; made by `pto.comprehension`.

    Call it with arrays: it returns one array, or a tuple when there are several results.  `out=` gives arrays to write
    instead.  `infer`, `explain`, `loops` and `compile` look inside.
    """

    def __init__(self, definition: Definition, options: Options, strict_origin: bool) -> None:
        self.__name__ = self.__qualname__ = definition.name
        self.__doc__ = definition.doc
        self.definition = definition
        self.options = options
        self.strict_origin = strict_origin
        self._versions: dict[Any, _Version] = {}
        self._noted: set[str] = set()
        self._direct: dict[bool, JitFunction[Any, Any]] = {}  # by whether an output is given
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

    def _made(self, hosts: dict[str, Any]) -> _Version:
        try:
            version = _Version(self, analyse(_with_hosts(self.definition, hosts), hosts))
            version.program(False)
        except RecursionError:
            raise _too_deep(self.definition.loc) from None
        if self.strict_origin:
            for name, lows in version.origins().items():
                for low in lows:
                    if low.value not in (None, 0):
                        raise _strict(self, name, str(low))
        return version

    def _version(self, hosts: dict[str, Any]) -> _Version:
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

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Compute for these arguments; parameters that are returned are written in place."""
        if not kwargs and self._direct:
            # Nothing depends on sizes but what the kernel checks itself.
            known = self._direct.get(out is not None)
            if known is not None:
                try:
                    if out is None:
                        return known(*args)
                    if type(out) is np.ndarray:
                        for a in args:
                            if share(out, a):
                                break
                        else:
                            known(*args, out)
                            return out
                except ShapeError:  # said again below, in the words of the comprehension
                    pass
        if out is None and not kwargs and self._fast:
            # Shapes that were checked before: nothing is left to do but to run.
            known = self._fast.get(tuple([getattr(a, "shape", None) for a in args]))
            if known is not None:
                return known(*args)
        elif not kwargs and type(out) is np.ndarray and self._fast:
            known = self._fast.get((out.shape, out.dtype, *[getattr(a, "shape", None) for a in args]))
            if known is not None and not any(share(out, a) for a in args):
                known(*args, out)
                return out
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
        return inference(version.analysis, checked_sizes(version.analysis, rest, complete=False))

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
        options = {n: kwargs.pop(n) for n in OPTION_NAMES if n in kwargs and self.definition.parameter(n) is None}
        values = self._bound(args, kwargs)
        version = self._version({n: values[n] for n in self._special})
        return version.function(False).compile(*version.ordered(values), **options)

    @property
    def __pto_jit__(self) -> Any:
        return self._version({}).function(False).__pto_jit__

    def __repr__(self) -> str:
        return f"<pto.comprehension {self.__name__}>"


class _Version:
    """A comprehension for given compile-time values: its analysis, its programs, the shapes that were checked."""

    def __init__(self, owner: Comprehension, analysis: Analysis) -> None:
        self.owner, self.analysis = owner, analysis
        self._programs: dict[bool, Program] = {}
        self._functions: dict[bool, JitFunction[Any, Any]] = {}
        self._checked: dict[Any, Inference] = {}
        self._used = bind_scalars(analysis)
        self._parameters = [p for p in analysis.definition.parameters if p.dtype is not None]
        # Arguments and results go through as they are.
        self._plain = (
            not owner._special
            and all(p.sizes for p in self._parameters)
            and all(analysis.tensors[n].role == "output" and analysis.tensors[n].rank for n in analysis.returned)
            and len(analysis.returned) > 0
        )
        self._unchecked = not analysis.preconditions and all(map(_needs_no_check, analysis.statements))
        self._written = [
            p.name for p in self._parameters
            if (t := analysis.tensors.get(p.name)) is not None and t.role == "inout"
        ]  # fmt: skip

    def origins(self) -> dict[str, Any]:
        tensors = self.analysis.tensors
        return {r.name: tensors[n].lows for r, n in self._results()}

    def _results(self) -> list[tuple[Any, str]]:
        return list(zip(self.analysis.definition.returns, self.analysis.returned, strict=True))

    def program(self, given: bool) -> Program:
        if given not in self._programs:
            self._programs[given] = lowered(self.analysis, given)
        return self._programs[given]

    def function(self, given: bool) -> JitFunction[Any, Any]:
        """The jit function; `given`: it takes the outputs."""
        found = self._functions.get(given)
        if found is None:
            found = self._functions[given] = _defined(self.program(given), self.owner.options)
        return found

    def ordered(self, values: Mapping[str, Any]) -> list[Any]:
        """Arguments as the program takes them."""
        found: list[Any] = []
        for p in self._parameters:
            value = values[p.name]
            if p.name in self.analysis.scope.scalars:
                value = number(self.owner, p, value)
            found.append(value)
        return found

    def call(self, values: Mapping[str, Any], out: Any) -> Any:
        arguments = self.ordered(values)
        known = self._known(values)
        if out is None and not self._written:
            function = self.function(False)
            made = function(*arguments)
            if self._plain:
                self._remember((), arguments, function)
                return made
            return self._returned(made, values, known)
        return self._into(arguments, values, out, known)

    def _remember(self, key: tuple[Any, ...], arguments: list[Any], function: JitFunction[Any, Any]) -> None:
        """Arguments of these shapes need no more checks."""
        shapes = [getattr(a, "shape", None) for a in arguments]
        if self._unchecked:
            self.owner._direct[bool(key)] = function
        elif None not in shapes:
            fast = self.owner._fast
            if len(fast) > 1024:
                fast.clear()
            fast[(*key, *shapes)] = function

    def _known(self, values: Mapping[str, Any]) -> Inference:
        shapes: dict[str, Any] = {}
        for p in self._parameters:
            if p.name in self.analysis.scope.scalars:
                if p.name in self._used:
                    shapes[p.name] = int(values[p.name])
                continue
            shapes[p.name] = shape_of(self.owner, p.name, values[p.name])
        key = tuple(shapes.values())
        known = self._checked.get(key)
        if known is None:
            known = inference(self.analysis, checked_sizes(self.analysis, shapes, complete=True))
            if len(self._checked) > 1024:
                self._checked.clear()
            self._checked[key] = known
            self._note(known)
        return known

    def _note(self, known: Inference) -> None:
        """Say once what is worth knowing: results that start elsewhere, reads that nothing checks."""
        owner = self.owner
        for name, origin in known.origins.items():
            if any(origin) and any(n == name for n in (r.name for r in self.analysis.definition.returns)):
                if owner.strict_origin:
                    raise _strict(owner, name, str(origin))
                _say(owner, f"the first element of `{name}` is the one of index {_tuple(origin)} (`infer().origins`)")
        for warning in known.warnings:
            if not owner.options.debug:
                _say(owner, warning)

    def _returned(self, made: Any, values: Mapping[str, Any], known: Inference) -> Any:
        outputs = iter(made if isinstance(made, tuple) else (made,))
        results: list[Any] = []
        for r, stored in self._results():
            if self.analysis.tensors[stored].role == "inout":
                results.append(values[r.name])
                continue
            value = next(outputs)
            results.append(value.reshape(()) if not self.analysis.tensors[stored].rank else value)
        return results[0] if len(results) == 1 else tuple(results)

    def _into(self, arguments: list[Any], values: Mapping[str, Any], out: Any, known: Inference) -> Any:
        """A call that writes given arrays: through copies where they share memory with other arguments."""
        names = [p.name for p in self._parameters]
        tensors = {n: a for n, a in zip(names, arguments, strict=True) if n in self.analysis.tensors}
        targets: dict[str, Any] = {n: tensors[n] for n in self._written}
        extra: list[str] = []
        if out is not None:
            outputs = [(r.name, n) for r, n in self._results() if self.analysis.tensors[n].role == "output"]
            given = out if isinstance(out, (tuple, list)) else (out,)
            if len(given) != len(outputs):
                raise ArgumentError(
                    f"PTO-R053: `{self.owner.__name__}` makes {len(outputs)} results, out= has {len(given)}\n"
                    "help: give one array for each"
                )
            for (name, stored), array in zip(outputs, given, strict=True):
                check_out(self.owner, name, self.analysis.tensors[stored], known.shapes[name], array)
                targets[f"out {stored}"] = array if self.analysis.tensors[stored].rank else of_rank_1(array)
                extra.append(f"out {stored}")
        copies: list[tuple[Any, Any]] = []
        for name, array in targets.items():
            others = [a for n, a in (*tensors.items(), *targets.items()) if n != name]
            if any(share(array, a) for a in others):
                copy = np.array(array)
                copies.append((array, copy))
                targets[name] = copy
        passed = [targets.get(n, a) for n, a in zip(names, arguments, strict=True)]
        if out is not None:
            made = self.function(True)(*passed, *(targets[n] for n in extra))
            if self._plain and len(extra) == 1 and type(out) is np.ndarray:
                self._remember((out.shape, out.dtype), arguments, self.function(True))
        else:
            made = self.function(False)(*passed)
        for array, copy in copies:
            np.asarray(array)[...] = copy
        if out is None:
            return self._returned(made, values, known)
        arrays = iter(out if isinstance(out, (tuple, list)) else (out,))
        results = [
            values[r.name] if self.analysis.tensors[n].role == "inout" else next(arrays) for r, n in self._results()
        ]
        return results[0] if len(results) == 1 else tuple(results)


# -- notes ------------------------------------------------------------------------------------------------------


def _tuple(values: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, values))})" if len(values) != 1 else str(values[0])


def _strict(owner: Comprehension, name: str, origin: str) -> RangeInferenceError:
    return RangeInferenceError(
        f"`{name}` of `{owner.__name__}` does not start at 0 but at {origin} (strict_origin=True)",
        owner.definition.loc, code="PTO-R028", hint="shift the subscripts, or give the index a range with `where`",
    )  # fmt: skip


def _say(owner: Comprehension, message: str) -> None:
    text = f"{owner.__name__}: {message}"
    if text not in owner._noted:
        owner._noted.add(text)
        warn(text)


def warn(text: str) -> None:
    """A UserWarning at the line that called into the library."""
    level, frame = 2, sys._getframe(1)
    while frame is not None and (frame.f_globals.get("__name__") or "").startswith("pto_jit."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UserWarning, stacklevel=level)


def _too_deep(loc: Loc) -> CompilationError:
    return CompilationError(
        "the comprehension is nested too deeply", loc, code="PTO-R091", hint="write parts of it as statements"
    )


def _needs_no_check(i: Inferred) -> bool:
    """Whether the ranges of a statement are right for all sizes: each goes from 0 to a size."""
    return all(
        low.value == 0 and (is_simple(high) if high.value is None else high.value > 0)
        and not any(a.signed for a in high.atoms() if isinstance(a, Sym))
        for low, high in i.ranges.values()
    )  # fmt: skip


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
    parameters = tuple(
        Parameter(p.name, None, (), p.loc) if p.name in hosts else p for p in definition.parameters
    )
    if parameters == definition.parameters:
        return definition
    d = definition
    return Definition(d.name, parameters, d.returns, d.body, d.floor, d.doc, d.loc, d.origin)


def _defined(program: Program, options: Options) -> JitFunction[Any, Any]:
    """The program as a jit function, its text known to `linecache`."""
    from pto_jit.jit import jit

    filename = f"<loops of {program.name} {next(_numbers)}>"
    text = str(program)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"__name__": "comprehension", **program.values}
    exec(compile(text, filename, "exec"), space)
    chosen = {n: getattr(options, n) for n in OPTION_NAMES}
    return jit(**chosen)(space[program.name])


# -- defining -----------------------------------------------------------------------------------------------------


@overload
def comprehension(source: str, /, *, strict_origin: bool = False, **options: Any) -> Any: ...
@overload
def comprehension(source: Callable[..., Any], /, *, strict_origin: bool = False, **options: Any) -> Comprehension: ...
@overload
def comprehension(*, strict_origin: bool = False, **options: Any) -> Callable[[Any], Any]: ...
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

# SPDX-License-Identifier: MIT
"""A comprehension for given values of its compile-time parameters: its programs, and running them."""

from __future__ import annotations

import itertools
import linecache
import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit.comprehensions.arguments import (
    check_out,
    fitting,
    limits,
    number,
    of_rank_1,
    outside,
    shape_of,
    share,
)
from pto_jit.comprehensions.inference import Inferred
from pto_jit.comprehensions.lowering.checks import Check, checks
from pto_jit.comprehensions.lowering.kernel import Program, lowered
from pto_jit.comprehensions.lowering.naming import is_simple
from pto_jit.comprehensions.program import Analysis, bind_scalars
from pto_jit.comprehensions.results import Inference, checked_sizes, inference
from pto_jit.comprehensions.symbolic import Sym
from pto_jit.errors import ArgumentError, Loc, RangeInferenceError
from pto_jit.options import OPTION_NAMES, Options
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.comprehensions.function import Comprehension
    from pto_jit.jit import JitFunction

_numbers = itertools.count(1)


class Version:
    """A comprehension for given compile-time values: its analysis, its programs, the shapes that were checked."""

    def __init__(self, owner: Comprehension, analysis: Analysis) -> None:
        self.owner, self.analysis = owner, analysis
        self._programs: dict[tuple[bool, bool], Program] = {}
        self._functions: dict[tuple[bool, bool], JitFunction[Any, Any]] = {}
        self._checked: dict[Any, Inference] = {}
        self._used = bind_scalars(analysis)
        self._parameters = [p for p in analysis.definition.parameters if p.dtype is not None]
        # Arguments go through as they are, results but for their rank.
        self._plain = (
            not owner._special
            and all(p.sizes or p.name in analysis.scope.scalars for p in self._parameters)
            and all(analysis.tensors[n].role == "output" for n in analysis.returned)
            and len(analysis.returned) > 0
        )
        self._ranks = [analysis.tensors[n].rank for n in analysis.returned]
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

    def program(self, given: bool, target: str = "cpu") -> Program:
        """The loops as text; `given`: it takes the outputs."""
        key = given, target == "cuda"
        if key not in self._programs:
            self._programs[key] = lowered(self.analysis, given, device=key[1])
        return self._programs[key]

    def function(self, given: bool, target: str | None = None) -> JitFunction[Any, Any]:
        """The jit function of the program, which may be compiled for `target`."""
        target = target or self.owner.options.target
        key = given, target == "cuda"
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = _defined(self._guarded(self.program(given, target)), self.owner.options)
            found._parameters.written = {p.name: p.loc for p in self.analysis.definition.parameters}
            found.__pto_jit__.__pto_checks__ = self._demands()  # type: ignore[attr-defined]
        return found

    def _demands(self) -> tuple[dict[str, tuple[int, int | None]], list[Check], Loc]:
        """Where each size and integer stands, as parameter and axis, what has to hold of them, for programs that check
        it themselves because nobody else does (`pto_jit.agreements`), and where the comprehension stands."""
        where: dict[str, tuple[int, int | None]] = {}
        for position, p in enumerate(self._parameters):
            if p.name in self.analysis.scope.scalars:
                where[p.name] = position, None
            for axis, size in enumerate(p.sizes):
                if isinstance(size, str):
                    where.setdefault(size, (position, axis))
        definition = self.analysis.definition
        return where, list(checks(self.analysis, str)), definition.origin or definition.loc

    def _guarded(self, program: Program) -> Program:
        """The program with integers of less than 64 bits looked at, where it takes those that callers give."""
        text, values = program.text, dict(program.values)
        for p in self._parameters:
            scalar = self.analysis.scope.scalars.get(p.name)
            if scalar is None or not scalar.dtype.is_integer or scalar.dtype.bits == 64:
                continue
            taken = f"\n    {scalar.text} = pl.{scalar.dtype.name}({scalar.text})\n"
            if taken in text:
                values["_pto_fitting"] = fitting
                place = p.loc.filename, p.loc.lineno, p.loc.col_offset, p.loc.end_lineno, p.loc.end_col_offset
                message = f"{outside(self.owner.__name__, p.name, scalar.dtype)}; pass a number of that type"
                given = f"{scalar.text}, pl.{scalar.dtype.name}, {limits(scalar.dtype)}, {message!r}, *{place}"
                text = text.replace(taken, f"\n    {scalar.text} = _pto_fitting({given})\n", 1)
        return replace(program, text=text, values=values)

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
                self._remember(None, values, arguments, function)
            return self._returned(made, values)
        return self._into(arguments, values, out, known)

    def _remember(self, out: np.ndarray | None, values: Mapping[str, Any], arguments: list[Any],
                  function: JitFunction[Any, Any]) -> None:  # fmt: skip
        """Arguments of these kinds, or shapes, need no more checks; `out`: the output given, if one is."""
        owner = self.owner
        key = () if out is None else (out.shape, out.dtype)
        target, given = (owner, arguments) if out is None else (owner._writer, [*arguments, out])
        if any(values[p.name] is not a for p, a in zip(self._parameters, arguments, strict=True)):
            return  # a number was converted
        if self._unchecked:
            if out is not None:
                owner._into = function
            function.lend(target, tuple(given), None if all(self._ranks) else self._shaped)
            return
        shapes = [getattr(a, "shape", None) for a in arguments]
        if None not in shapes and all(self._ranks):
            if len(owner._fast) > 1024:
                owner._fast.clear()
            owner._fast[(*key, *shapes)] = function
            function.lend(target, tuple(given), None, [
                (n, axis, extent) for n, a in enumerate(given) for axis, extent in enumerate(a.shape)
            ])  # fmt: skip

    def _shaped(self, made: Any) -> Any:
        """What the program returns with results of rank 0, which are arrays of one element there."""
        if len(self._ranks) == 1:
            return made.reshape(())
        return tuple([m if rank else m.reshape(()) for m, rank in zip(made, self._ranks, strict=True)])

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
            known = inference(self.analysis, checked_sizes(self.analysis, shapes))
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
                    raise strict(owner, name, str(origin))
                _say(owner, f"the first element of `{name}` is the one of index {_tuple(origin)} (`infer().origins`)")
        for warning in known.warnings:
            if not owner.options.debug:
                _say(owner, warning)

    def _returned(self, made: Any, values: Mapping[str, Any]) -> Any:
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
            if self._plain and len(extra) == 1 and type(out) is np.ndarray and all(self._ranks):
                self._remember(out, values, arguments, self.function(True))
        else:
            made = self.function(False)(*passed)
        for array, copy in copies:
            np.asarray(array)[...] = copy
        if out is None:
            return self._returned(made, values)
        arrays = iter(out if isinstance(out, (tuple, list)) else (out,))
        results = [
            values[r.name] if self.analysis.tensors[n].role == "inout" else next(arrays) for r, n in self._results()
        ]
        return results[0] if len(results) == 1 else tuple(results)


# -- notes ------------------------------------------------------------------------------------------------------


def _tuple(values: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, values))})" if len(values) != 1 else str(values[0])


def strict(owner: Comprehension, name: str, origin: str) -> RangeInferenceError:
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


def _needs_no_check(i: Inferred) -> bool:
    """Whether the ranges of a statement are right for all sizes: each goes from 0 to a size."""
    return all(
        low.value == 0 and (is_simple(high) if high.value is None else high.value > 0)
        and not any(a.signed for a in high.atoms() if isinstance(a, Sym))
        for low, high in i.ranges.values()
    )  # fmt: skip


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

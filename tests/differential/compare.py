# SPDX-License-Identifier: MIT
"""One random kernel, several ways: compiled, interpreted after a pass, and as plain Python.

An `Outcome` is what a run left behind: every buffer the arguments lie in, and the results; or the kind of the error
that it ended with.  Two runs agree when both ended with the same kind of error, or left equal data.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.arguments import Parameters
from pto_jit.compiled import Compiled
from pto_jit.compiler import lower
from pto_jit.errors import BoundsError, LaunchError, PtoError, ShapeError
from pto_jit.ir.nodes import Module
from pto_jit.ir.parse import parse
from pto_jit.ir.text import to_text
from pto_jit.ir.verify import verify
from pto_jit.options import Options
from pto_jit.semantic import interpreter
from pto_jit.semantic.rules import infer

PROPERTIES = ("chunked", "placed", "outlined", "fused")
"""Stages from which on the verifier knows a property of the same name."""


@dataclass(frozen=True)
class Kernel:
    """`source` defines `kernel`; `recipes` make its arguments from copies of `buffers` (named `b`), so that arguments
    can be views of one memory.  `rtol` and `atol` are what rounding may change.
    """

    name: str
    source: str
    buffers: tuple[np.ndarray, ...]
    recipes: tuple[str, ...]
    rtol: float = 0.0
    atol: float = 0.0

    def arguments(self) -> tuple[list[np.ndarray], list[Any]]:
        b = [buffer.copy(order="K") for buffer in self.buffers]
        return b, [eval(recipe, {"b": b, "np": np}) for recipe in self.recipes]

    def __str__(self) -> str:
        shapes = [f"{buffer.dtype}{list(buffer.shape)}" for buffer in self.buffers]
        return f"{self.name}\nb = {', '.join(shapes)}\nkernel({', '.join(self.recipes)})\n{self.source}"


@dataclass(frozen=True)
class Outcome:
    error: str | None
    data: list[Any] = field(default_factory=list)
    message: str = ""


def build(kernel: Kernel) -> Any:
    """The kernel function; its source can be looked up, as the front end does."""
    filename = f"<{kernel.name}>"
    linecache.cache[filename] = (len(kernel.source), None, kernel.source.splitlines(True), filename)
    namespace: dict[str, Any] = {"pto": pto, "pl": pl, "np": np}
    exec(compile(kernel.source, filename, "exec"), namespace)
    return namespace["kernel"]


def outcome(kernel: Kernel, run: Callable[[list[Any]], Any]) -> Outcome:
    """Run on fresh arguments.  Errors of ours are outcomes; InternalError and everything else is raised."""
    buffers, args = kernel.arguments()
    try:
        with np.errstate(all="ignore"):
            results = run(args)
    except pto.InternalError:
        raise
    except PtoError as error:
        return Outcome(_kind(error), message=str(error))
    return Outcome(None, [*buffers, *_flat(results)])


def _kind(error: PtoError) -> str:
    """Errors that may be found at compile time or at run time are one kind."""
    for kind in (BoundsError, ShapeError, LaunchError):
        if isinstance(error, kind):
            return "LaunchError" if kind is ShapeError else kind.__name__
    return "CompilationError"


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _flat(item)]
    return [] if value is None else [value]


def difference(kernel: Kernel, expected: Outcome, actual: Outcome, exact: bool = False) -> str | None:
    """Why two outcomes differ, or None."""
    if expected.error != actual.error:
        return f"{expected.error} {expected.message}\n against {actual.error} {actual.message}"
    if len(expected.data) != len(actual.data):
        return f"{len(expected.data)} values against {len(actual.data)}"
    for number, (left, right) in enumerate(zip(expected.data, actual.data, strict=True)):
        a, b = np.asarray(left), np.asarray(right)
        if a.shape != b.shape or (isinstance(left, np.ndarray) and a.dtype != b.dtype):
            return f"value {number}: {a.dtype}{a.shape} against {b.dtype}{b.shape}"
        inexact = a.dtype.kind not in "iub"
        rtol, atol = (kernel.rtol, kernel.atol) if inexact and not exact else (0.0, 0.0)
        x, y = (a.astype(np.float64), b.astype(np.float64)) if inexact else (a, b)
        with np.errstate(all="ignore"):
            scale = float(np.max(np.abs(x[np.isfinite(x)]), initial=1.0)) if inexact else 1.0
            same = np.isclose(x, y, rtol, atol * scale, equal_nan=True) if inexact else x == y
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            return f"value {number} {list(at)} of {a.dtype}{list(a.shape)}: {a[at]} against {b[at]}; {(~same).sum()} differ"
    return None


def agree(function: Callable[..., Any], *args: Any, rtol: float = 0.0, threads: Sequence[int] = ()) -> None:
    """All evaluations of `function` on these arguments agree."""
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    places = iter(range(len(arrays)))
    recipes = tuple(f"b[{next(places)}]" if isinstance(a, np.ndarray) else repr(a) for a in args)
    kernel = Kernel(function.__name__, "", tuple(arrays), recipes, rtol, rtol)
    why = disagreement(kernel, threads=threads, fn=pto.jit(function))
    assert why is None, why


def lowered(fn: Any, args: Sequence[Any]) -> dict[str, Module]:
    """The program after every stage, without making machine code."""
    parameters = Parameters(fn.__pto_jit__, fn.__pto_jit__.__globals__)
    call = parameters.classify(*parameters.bind(tuple(args), {}))
    return lower(fn.__pto_jit__, call.params, Options()).modules


def malformed(modules: dict[str, Module]) -> str | None:
    """The first stage that the verifier refuses or that is not its own text."""
    holds: list[str] = []
    before = None
    for stage, module in modules.items():
        holds += [stage] if stage in PROPERTIES else []
        try:
            verify(module, infer, properties=holds)
        except PtoError as error:
            return f"{stage}: {error}"
        if module is not before and parse(to_text(module)) != module:
            return f"{stage} is not what its text says"
        before = module
    return None


def disagreement(
    kernel: Kernel,
    *,
    threads: Sequence[int] = (),
    stages: Sequence[str] | None = ("source", "fused"),
    fn: Any = None,
    machine: bool = True,
) -> str | None:
    """Compare the plain Python function, the interpreter after `stages`, and (with `machine`) the compiled code.

    With None for `stages` every stage is interpreted, and is well formed and its own text, too.  `threads`: numbers of workers that must all give the same bits.
    """
    fn = fn or build(kernel)
    expected = outcome(kernel, lambda args: fn.interpret(*args))
    try:
        compiled = fn.compile(*kernel.arguments()[1], cache=False) if machine else None
        modules = lowered(fn, kernel.arguments()[1]) if compiled is None else compiled._lowered().modules
    except pto.InternalError:
        raise
    except PtoError as error:
        why = difference(kernel, expected, Outcome(_kind(error), message=str(error)))
        return None if why is None else f"python against the compiler: {why}"
    if stages is None:
        why = malformed(modules)
        if why is not None:
            return why
    done: list[Module] = []
    for stage in modules if stages is None else stages:
        if any(modules[stage] is module for module in done):
            continue
        done.append(modules[stage])
        actual = outcome(kernel, lambda args, stage=stage: interpreter.run(modules[stage], args))
        why = difference(kernel, expected, actual)
        if why is not None:
            return f"python against the interpreter at {stage}: {why}"
    if compiled is None:
        return None
    first = outcome(kernel, lambda args: compiled(*args))
    why = difference(kernel, expected, first)
    if why is not None:
        return f"python against machine code: {why}"
    for count in threads:
        again = outcome(kernel, on_workers(compiled, count))
        why = difference(kernel, first, again, exact=True)
        if why is not None:
            return f"{count} workers: {why}"
    return None


def on_workers(compiled: Compiled, count: int) -> Callable[[list[Any]], Any]:
    """Runs the machine code of `compiled` with so many workers, however small the work is."""
    kernel = compiled._kernel
    built = replace(kernel.built, small_below=0)
    again = Compiled(compiled._parameters, replace(kernel, built=built, options=kernel.options.but({"num_threads": count})))
    return lambda args: again(*args)

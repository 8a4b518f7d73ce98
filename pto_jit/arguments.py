# SPDX-License-Identifier: MIT
"""How a kernel takes its arguments: the slow path of a call.

`Parameters` is what a Python function says about them.  It puts the arguments of a call in order and describes each
for the compiler (`codegen.params`), with a key (two calls with equal keys share one specialisation) and the run-time
values themselves as 64-bit slots; `reading` looks into the values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from pto_jit import dtypes
from pto_jit.dtypes import DType
from pto_jit.errors import ArgumentError, CompilationError, Loc, excerpt, similar_keyword
from pto_jit.language import constexpr
from pto_jit.reading import Arguments, Reader, Spec
from pto_jit.source import locate


def spec(shape: Sequence[int | None], dtype: Any) -> Spec:
    """Describe a C-contiguous tensor argument for `fn.compile`, without its data.

    An int in `shape` is a compile-time extent: the result takes only arrays of that extent.  None is a run-time one.
    `dtype` is a `pl` dtype or anything that NumPy takes for one; others are an ArgumentError.
    """
    try:
        found = dtype if isinstance(dtype, DType) else dtypes.from_numpy(dtype)
    except TypeError:
        found = None
    if found is None:
        raise ArgumentError(f"PTO-A030: pto.spec: {dtype!r} is not a dtype of kernels\nhelp: write `pl.f32`, `pl.i64`")
    if not isinstance(shape, Iterable) or isinstance(shape, str):
        raise ArgumentError(f"PTO-A031: pto.spec: {shape!r} is not a shape\nhelp: give a tuple, as ({shape!r},)")
    return Spec(tuple(None if extent is None else _extent(extent) for extent in shape), found)


def _extent(given: Any) -> int:
    """An extent of a `spec`, of Python or of NumPy, as an int."""
    try:
        extent = -1 if isinstance(given, (bool, np.bool_)) else index(given)
    except TypeError:
        extent = -1
    if 0 <= extent < 1 << 63:
        return extent
    raise ArgumentError(f"PTO-A031: pto.spec: {given!r} is not an extent\nhelp: give a non-negative integer of 64 "
                        "bits, or None for one that is known when the kernel runs")  # fmt: skip


class Parameters:
    """The parameters of a kernel: binding, annotations, and where they stand in the source."""

    def __init__(self, fn: Callable[..., Any], around: Mapping[str, Any]) -> None:
        """`around`: the names where the function is defined, for annotations that are text."""
        self.fn = fn
        self.signature = inspect.signature(fn, follow_wrapped=False)  # of the code that is compiled
        self.annotations = _annotations(fn, around)
        every = list(self.signature.parameters.values())
        for parameter in every:
            if parameter.kind is parameter.VAR_KEYWORD:
                hint = "name its keyword-only parameters, or pass a dict"
                if hasattr(fn, "__wrapped__"):
                    hint = f"a decorator made this function of `{fn.__name__}`: write `@pto.jit` below that decorator"
                raise ArgumentError(
                    f"PTO-A000: {fn.__name__}: a kernel cannot take `**{parameter.name}`\nhelp: {hint}"
                )
        self.positional = [p for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.named = [*self.positional, *(p for p in every if p.kind is p.KEYWORD_ONLY)]
        self.variable = next((p.name for p in every if p.kind is p.VAR_POSITIONAL), None)
        self.all_positional = tuple(p.name for p in every) if len(self.positional) == len(every) else None
        self.static = frozenset(name for name, value in self.annotations.items() if value is constexpr)
        self.is_method = bool(self.positional) and self.positional[0].name == "self"
        self.written: Mapping[str, Loc] = {}  # where the user wrote the parameters of a function made of another text

    def dispatcher_options(self) -> dict[str, Any]:
        """What the C dispatcher is told."""
        return {
            "positional": len(self.positional),
            "positional_only": sum(p.kind is p.POSITIONAL_ONLY for p in self.positional),
            "varargs": self.variable is not None,
            "defaults": {p.name: p.default for p in self.named if p.default is not p.empty},
            "static": tuple(p.name for p in self.named if p.name in self.static),
        }

    def __str__(self) -> str:
        plain = [p.replace(annotation=p.empty) for p in self.signature.parameters.values()]
        return f"{self.fn.__name__}{inspect.Signature(plain)}"

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[list[str], list[Any]]:
        """Parameter names and values in bound order (positional, `*args`, keyword-only), with defaults.

        Raises ArgumentError for missing, unknown and surplus arguments.
        """
        if not kwargs and self.all_positional is not None and len(args) == len(self.all_positional):
            return list(self.all_positional), list(args)  # the usual case, in a tenth of the time
        given = kwargs or {}
        try:
            bound = self.signature.bind(*args, **given)
        except TypeError as error:
            problem = str(error)
            try:
                self.signature.bind_partial(*args, **given)
            except TypeError as misplaced:  # a wrong name explains more than what is missing because of it
                problem = str(misplaced)
            reason = problem.replace("'", "`").replace("a required argument: ", "the argument ")
            meant = similar_keyword(problem, (p.name for p in self.named))
            raise self.error("PTO-A001", reason, f"{meant}call it as `{self}`", self.place()) from None
        bound.apply_defaults()
        names: list[str] = []
        values: list[Any] = []
        for name, value in bound.arguments.items():
            if name == self.variable:
                names += [name] * len(value)
                values += value
            else:
                names.append(name)
                values.append(value)
        return names, values

    def classify(self, names: Sequence[str], values: Sequence[Any], *, device: bool = False) -> Arguments:
        """Describe bound arguments; `device`: tensors may be in the memory of a GPU.

        Raises ArgumentError for what a kernel cannot take, ShapeError for extents that an annotation excludes.
        """
        reader = Reader(self, device=device)
        for position, (name, value) in enumerate(zip(names, values, strict=True)):
            try:
                reader.argument(name, value, self.annotations.get(name), is_self=self.is_method and position == 0)
            except RecursionError:
                raise self.error("PTO-A036", f"argument `{name}` is nested too deep",
                                 "pass its parts on fewer levels") from None  # fmt: skip
        return reader.result()

    def place(self, name: str | None = None) -> Loc | None:
        """Where the parameter `name`, or the function, stands in the source; None when there is none."""
        if name is not None and name in self.written:
            return self.written[name]
        try:
            located = locate(self.fn)  # type: ignore[arg-type]
        except (CompilationError, AttributeError):
            return None
        spec = located.node.args
        arguments = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, [spec.vararg])]
        for argument in arguments:
            if argument.arg == name:
                return located.file.loc(argument)
        whole = located.file.loc(located.node)
        line = located.file.lines[whole.lineno - 1] if whole.lineno <= len(located.file.lines) else ""
        return Loc(whole.filename, whole.lineno, whole.col_offset, whole.lineno, len(line))

    def error(self, code: str, message: str, hint: str, loc: Loc | None = None) -> ArgumentError:
        """An ArgumentError that names the kernel, shows the place and says what to do."""
        lines = [f"{code}: {self.fn.__name__}: {message}"]
        if loc is not None:
            lines += excerpt(loc) or [f"  --> {loc}"]
        return ArgumentError("\n".join([*lines, f"help: {hint}"]))


def _annotations(fn: Callable[..., Any], around: Mapping[str, Any]) -> dict[str, Any]:
    """Annotations as values; text that cannot be evaluated says nothing to the compiler."""
    found: dict[str, Any] = {}
    space: dict[str, Any] | None = None
    for name, value in inspect.get_annotations(fn).items():
        if isinstance(value, str):
            if space is None:
                space = {**getattr(fn, "__globals__", {}), **around}
            try:
                value = eval(value, space)
            except Exception:  # an annotation is any expression and may fail in any way
                continue
        found[name] = value
    return found

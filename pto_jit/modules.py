# SPDX-License-Identifier: MIT
"""Compiled modules: functions that were built or read from text, called by name.

A `CompiledFunction` is to a function of a module what a `JitFunction` is to a Python function, only simpler: its types
are declared, so there is one version of it, and another for each combination of memory layouts that it meets.  Machine
code is kept in the disk cache, as that of kernels is, under the text of the function with all that it calls.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pto_jit import dtypes
from pto_jit.building import Built, found_or_made, making
from pto_jit.compiled import own_files, write_files
from pto_jit.compiler import Stages, compile_stages, lower_module, places_of_failure
from pto_jit.config import config
from pto_jit.dtypes import DType
from pto_jit.errors import ArgumentError, Loc, ShapeError, similar
from pto_jit.failures import fail
from pto_jit.ir.instances import Instances
from pto_jit.ir.nodes import Call, Func, Module, Return, Var
from pto_jit.ir.splice import reachable
from pto_jit.ir.text import to_text
from pto_jit.ir.type_text import fits
from pto_jit.ir.types import ScalarType, TensorType, Type, format_shape
from pto_jit.kernel import runtime_for
from pto_jit.language import Tensor
from pto_jit.lower.decisions import Decision
from pto_jit.options import Options
from pto_jit.reading import LAYOUTS, kind_of
from pto_jit.runtime import Entry
from pto_jit.runtime.tensors import TensorView, as_tensor
from pto_jit.semantic import interpreter
from pto_jit.semantic.rules import infer
from pto_jit.slotted import field, mutable, replace
from pto_jit.targets.cpu import CpuProgram
from pto_jit.targets.source.identifiers import checked_name

if TYPE_CHECKING:
    from pto_jit.runtime.graph import TaskGraph


class CompiledModule:
    """A module whose functions are called by name: `m.softmax(x, y, num_tiles=4)`, or `m["softmax"]`."""

    def __init__(self, module: Module, target: str = "cpu", options: Mapping[str, Any] | None = None) -> None:
        self._module = module
        self._options = Options.of({"target": target, **(options or {})})
        self._functions: dict[str, CompiledFunction] = {}

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions."""
        return tuple(func.name for func in self._module.funcs)

    @property
    def entry(self) -> CompiledFunction:
        """The function that runs by default."""
        return self[self._module.entry]

    def __getitem__(self, name: str) -> CompiledFunction:
        found = self._functions.get(name) if isinstance(name, str) else None
        if found is None:
            if name not in self.functions:
                raise KeyError(f"the module `{self._module.name}` has no function `{name}`{self._similar(name)}")
            kind = CompiledFunction
            if self._options.target != "cpu":
                from pto_jit.source_modules import SourceFunction  # which modules for the CPU have no use for

                kind = SourceFunction
            found = self._functions[name] = kind(self._module, name, self._options)
        return found

    @property
    def sources(self) -> dict[str, str]:
        """Generated files of the entry and what it calls, name -> text."""
        return self.entry.sources

    def write(self, directory: str | Path, *, name: str | None = None) -> list[Path]:
        """Write `sources` into `directory`; returns the paths.  name: as in `Compiled.write`."""
        return self.entry.write(directory, name=name)

    def __getattr__(self, name: str) -> CompiledFunction:
        if name.startswith("_") or name not in self.functions:
            raise AttributeError(f"the module `{self._module.name}` has no function `{name}`{self._similar(name)}")
        return self[name]

    def _similar(self, name: str) -> str:
        meant = similar(str(name), self.functions).strip()
        return f"; {meant or 'its functions are ' + ', '.join(self.functions)}"

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.functions})

    def __repr__(self) -> str:
        return f"<compiled module {self._module.name}: {', '.join(self.functions)}>"


@mutable(eq=False)
class Version:
    """Machine code of a function for certain memory layouts; the runtime gives it back when a launch fails.

    lower: makes its stages; places: where failure sites are, when that had to be found out.
    """

    name: str
    built: Built
    options: Options
    lower: Callable[[], Stages]
    entry: Entry = field(init=False)
    places: list[Loc] | None = None
    _stages: Stages | None = None

    def __post_init__(self) -> None:
        program = self.built.program
        self.entry = Entry(runtime_for(self.options), program.entry_address, program.result_plan, holder=self,
                           on_failure=fail, keep_gil_below=self.built.small_below)  # fmt: skip

    def stages(self) -> Stages:
        """The program after each stage; made again when the machine code came from disk."""
        if self._stages is None:
            self._stages = self.built.stages or self.lower()
        return self._stages

    def find_places(self) -> list[Loc]:
        """Where the failure sites are in the source."""
        return places_of_failure(self.stages(), self.options)


class CompiledFunction:
    """A function of a compiled module."""

    def __init__(self, module: Module, name: str, options: Options) -> None:
        self._module = replace(module, entry=name)
        self._func = module.func(name)
        self._options = options
        self._versions: dict[Any, Version] = {}  # by types and by what else the code depends on
        self.__name__ = self.__qualname__ = name
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [_python_name(p.name) for p in self._func.params]
        self.__signature__ = inspect.Signature([inspect.Parameter(n, kinds) for n in names])

    @property
    def __pto_built__(self) -> Module:
        """The function as the entry of a program with what it calls: how the front end sees it."""
        return reachable(self._module)

    # -- running ------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run: memrefs in order, then scalars, each by position or by name.

        Returns what the function returns: nothing, a number or array, or a tuple.  Raises ArgumentError for arguments
        that do not match the parameters, ShapeError for extents that do not, and what the function raises.
        """
        values = self._bound(args, kwargs)
        if config.interpret:
            return self._interpreted(values)
        types, slots, views = self._read(values)
        version = self._version(types)
        self._check_writable(version, views)
        elements = sum(view.elements for _, view in views)
        return version.entry.launch(slots, tuple(values), elements)

    def task_graph(self, *args: Any, **kwargs: Any) -> TaskGraph:
        """Record the in-core calls for these arguments as tasks; `graph.run()` runs them.  Raises as a call does."""
        from pto_jit.recording import record, recorder_of

        values = self._bound(args, kwargs)
        types, slots, views = self._read(values)
        version = self._version(types)
        self._check_writable(version, views)
        recorder = recorder_of(version.built, version.name, self._options, version.stages)
        return record(recorder, slots, tuple(values), sum(view.elements for _, view in views))

    def interpret(self, *args: Any, **kwargs: Any) -> Any:
        """Run in the reference interpreter, statement by statement on NumPy."""
        return self._interpreted(self._bound(args, kwargs))

    def _interpreted(self, values: list[Any]) -> Any:
        _, _, views = self._read(values)
        tensors = iter(views)
        given = [np.asarray(next(tensors)[1].owner) if isinstance(param.type, TensorType)
                 else _scalar(param, value, self._error)
                 for param, value in zip(self._func.params, values, strict=True)]  # fmt: skip
        results = interpreter.run(self._callable(self._module), given, debug=self._options.debug or config.debug)
        return None if not results else results[0] if len(results) == 1 else results

    # -- arguments ----------------------------------------------------------------------------------------------

    def _error(self, code: str, message: str, hint: str) -> ArgumentError:
        return ArgumentError(f"{code}: {self.__name__}: {message}\nhelp: {hint}")

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            reason = str(error).replace("'", "`").replace("a required argument: ", "the argument ")
            raise self._error("PTO-A001", reason, f"call it as `{self.__name__}{self.__signature__}`") from None
        # inside an interpreted kernel tensors are arrays of the language's own class
        return [v.view(np.ndarray) if isinstance(v, Tensor) else v for v in bound.arguments.values()]

    def _read(self, values: list[Any]) -> tuple[tuple[Type, ...], list[int | float], list[tuple[str, TensorView]]]:
        """The types that the arguments ask for, the values as the machine code takes them, and the tensors."""
        types: list[Type] = []
        slots: list[int | float] = []
        views: list[tuple[str, TensorView]] = []
        for param, value in zip(self._func.params, values, strict=True):
            if isinstance(param.type, TensorType):
                view = self._view(param, value)
                types.append(self._layout(param, view))
                slots += view.slots()
                views.append((param.name, view))
            else:
                number = _scalar(param, value, self._error)
                types.append(param.type)
                slots.append(int(number) if isinstance(number, bool) else number)
        return tuple(types), slots, views

    def _view(self, param: Var, value: Any) -> TensorView:
        kind = param.type
        assert isinstance(kind, TensorType)
        try:
            view = as_tensor(value, param.name)
        except ArgumentError as error:
            raise self._error("PTO-A009", *_split(str(error))) from None
        if view is None:
            raise self._error(
                "PTO-A002", f"argument `{param.name}` is {kind_of(value)}, a tensor is wanted", "pass an array"
            )
        dtype = dtypes.BY_ID[view.dtype]
        if dtype != kind.dtype:
            raise self._error("PTO-A006", f"argument `{param.name}` has dtype {dtype}, {kind.dtype} is wanted",
                              f"pass `{param.name}.astype({kind.dtype.numpy.name!r})`")  # fmt: skip
        if len(view.shape) != kind.rank:
            raise self._error("PTO-A005", f"argument `{param.name}` has rank {len(view.shape)}, {kind.rank} is wanted",
                              "reshape it")  # fmt: skip
        return view

    def _layout(self, param: Var, view: TensorView) -> Type:
        """The parameter's type for an array: with the array's layout where that is more general."""
        kind = param.type
        assert isinstance(kind, TensorType)
        if any(wanted not in (None, extent) for wanted, extent in zip(kind.shape, view.shape, strict=True)):
            raise ShapeError(
                f"{self.__name__}: argument `{param.name}` has shape {format_shape(view.shape)}, "
                f"{format_shape(kind.shape)} is wanted", code="PTO-H100", hint="pass an array of these extents",
            )  # fmt: skip
        given = TensorType(kind.dtype, kind.shape, LAYOUTS[view.layout])
        return kind if fits(given, kind) else given

    def _check_writable(self, version: Version, views: list[tuple[str, TensorView]]) -> None:
        for index in version.built.program.written:
            name, view = views[index]
            if not view.writable:
                raise self._error("PTO-A011", f"argument `{name}` is written, but it is read-only",
                                  f"pass a writable array, such as `{name}.copy()`")  # fmt: skip

    # -- machine code -------------------------------------------------------------------------------------------

    def _version(self, types: tuple[Type, ...] | None = None) -> Version:
        types = tuple(p.type for p in self._func.params) if types is None else types
        key = (types, config.debug, config.num_threads)
        found = self._versions.get(key)
        if found is None:
            with making:
                found = self._versions.get(key) or self._versions.setdefault(key, self._make(types))
        return found

    def _make(self, types: tuple[Type, ...]) -> Version:
        def make(store: Any) -> tuple[Stages, CpuProgram, int]:
            stages = self._lowered(types)
            return stages, *compile_stages(stages, self._options, store)

        # The text is the program: read back it is equal, places apart, and those are found when they have to be told.
        text = f"{self._module.entry}|{types!r}|{to_text(reachable(self._module))}"
        built = found_or_made(make, hashlib.sha256(text.encode()).hexdigest(), self._options)
        return Version(self.__name__, built, self._options, lambda: self._lowered(types))

    def _lowered(self, types: tuple[Type, ...]) -> Stages:
        """The function for these types of arguments, ready for the target."""
        module = self._module
        instances = Instances(module.funcs, infer)
        name = instances.for_arguments(module.entry, types, self._func.loc)
        module = replace(module, funcs=(*module.funcs, *instances.made), entry=name)
        return lower_module(self._callable(module), self._options)

    @staticmethod
    def _callable(module: Module) -> Module:
        """The module with an entry that the host can call: an in-core function gets one that calls it."""
        func = module.func(module.entry)
        if func.kind == "orchestration":
            return reachable(module)
        name = f"{func.name}.host"
        results = tuple(Var(f"result{k}", kind) for k, kind in enumerate(func.results))
        body = (Call(func.name, func.params, results, func.loc), Return(results, func.loc))
        host = Func(name, "orchestration", func.params, func.results, body, func.loc)
        return reachable(replace(module, funcs=(*module.funcs, host), entry=name))

    # -- looking inside -----------------------------------------------------------------------------------------

    def _stages(self) -> Stages:
        return self._version().stages()

    @property
    def stages(self) -> list[str]:
        """Names of the compiler's stages in order; the last two are the LLVM IR and the machine code."""
        return [*self._stages().modules, "llvm", "assembly"]

    def ir(self, stage: str) -> str:
        """The program after `stage`: `.pto` text, LLVM IR or assembly."""
        version = self._version()
        if stage in ("llvm", "assembly"):
            return version.built.program.llvm_ir if stage == "llvm" else version.built.program.assembly()
        modules = self._stages().modules
        if stage not in modules:
            raise ValueError(f"there is no stage {stage!r}; the stages are {', '.join(self.stages)}")
        return to_text(modules[stage])

    @property
    def sources(self) -> dict[str, str]:
        """Generated files, name -> text."""
        return self._files(None)

    def write(self, directory: str | Path, *, name: str | None = None) -> list[Path]:
        """Write `sources` into `directory`; returns the paths.  name: as in `Compiled.write`."""
        return write_files(self._files(checked_name(name)), directory)

    def _files(self, name: str | None) -> dict[str, str]:
        return own_files(self._stages().last, self.ir("llvm"), name)

    def library(
        self, directory: str | Path, kind: Literal["static", "shared"] = "static", *, name: str | None = None
    ) -> list[Path]:
        """As `Compiled.library`, for the types that the function declares."""
        from pto_jit.aot import cpu_library

        version = self._version()
        return cpu_library(version.stages(), version.built.program.written, self._options, directory, kind, name)

    @property
    def decisions(self) -> list[Decision]:
        """Everything the compiler considered: applied or not, and why."""
        return list(self._stages().decisions)

    @property
    def timings(self) -> dict[str, float]:
        """Seconds per stage."""
        return dict(self._stages().timings)

    def __repr__(self) -> str:
        return f"<compiled function {self.__name__}{self.__signature__}>"


def _python_name(name: str) -> str:
    """A parameter's name as Python can write it."""
    text = "".join(ch if ch.isalnum() or ch == "_" else "_" for ch in name)
    return text if text.isidentifier() else f"p_{text}"


def _split(text: str) -> tuple[str, str]:
    reason, _, action = text.rpartition("; ")
    return (reason, action) if reason else (text, "pass a NumPy array")


def _scalar(param: Var, value: Any, error: Any) -> int | float | bool:
    """A number of the parameter's dtype; ArgumentError for anything else."""
    kind = param.type
    assert isinstance(kind, ScalarType)
    dtype: DType = kind.dtype
    if isinstance(value, np.generic):
        value = value.item()
    if dtype.kind == "b" and isinstance(value, (bool, int)) and value in (0, 1):
        return bool(value)
    if dtype.is_float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if dtype.is_integer and isinstance(value, int) and not isinstance(value, bool):
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
        if low <= value < low + (1 << dtype.bits):
            return value
        raise error("PTO-A033", f"argument `{param.name}` is {value}, which {dtype} does not hold",
                    f"pass a number from {low} to {low + (1 << dtype.bits) - 1}")  # fmt: skip
    raise error("PTO-A032", f"argument `{param.name}` is {kind_of(value)}, a number of {dtype} is wanted",
                "pass a number of that kind")  # fmt: skip

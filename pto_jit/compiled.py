# SPDX-License-Identifier: MIT
"""`fn.compile(...)`: one specialisation, opened up."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from pto_jit.arguments import Parameters
from pto_jit.codegen.params import ScalarParam, TensorParam, leaves
from pto_jit.compiler import Stages, lower
from pto_jit.ir.nodes import Block, Call, For, If, Module, Scope, Stmt, While
from pto_jit.ir.text import to_text as print_module
from pto_jit.ir.walk import statements
from pto_jit.kernel import Kernel
from pto_jit.lower.called import called
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import chunks_inside, kind_in_source, source_name
from pto_jit.lower.pipeline import PLACED
from pto_jit.pickles import CopiedLikeFunction
from pto_jit.reading import Arguments, Spec
from pto_jit.registering import Containers, runtime_guards
from pto_jit.runtime import Dispatcher
from pto_jit.slotted import field, frozen
from pto_jit.targets.source.identifiers import checked_name

LoopNodeKind = Literal["sequential", "parallel", "chunk", "in_chunk", "incore", "combine", "while", "if", "call"]


@frozen
class LoopNode:
    """A node of the program after placement: a loop, a branch, an in-core scope or a call.

    `var` is the source's variable for loops, the function's name for "incore" and "call", "" for "while" and "if".
    `str()` draws the tree.
    """

    kind: LoopNodeKind
    var: str
    children: list[LoopNode] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.kind} {self.var}".rstrip()]
        for position, child in enumerate(self.children):
            last = position == len(self.children) - 1
            first, *rest = str(child).splitlines()
            lines.append(("└─ " if last else "├─ ") + first)
            lines += [("   " if last else "│  ") + line for line in rest]
        return "\n".join(lines)


_README = """\
# {name}, for this processor

| file | what |
|---|---|
| `{name}.pto` | the program as it was compiled |
| `{name}.ll` | the same in LLVM's IR, as Python runs it (products of matrices are functions of the compiler) |
| `README.md` | this page |

A library for programs without Python, with its header, is made on the machine where it is to run:

```
python -m pto_jit emit {name}.pto --target cpu --library static --out .
```

It is `output_cpu/{stem}/lib{stem}.a` (`.so` with `--library shared`); `{stem}.h` declares what it has.
"""


class Compiled(CopiedLikeFunction):
    """A compiled specialisation: run it, bind it, read every stage of it."""

    _device = False

    def __init__(self, parameters: Parameters, kernel: Any) -> None:
        """`kernel`: a `Kernel`, or what stands for one on a device."""
        self._parameters = parameters
        self._kernel = kernel
        self._stages: Stages | None = kernel.built.stages
        names = tuple(p.name for p in parameters.named)
        self._known = Dispatcher(names, self._slow_call, **parameters.dispatcher_options())
        self._containers = Containers(parameters)
        self._run: Callable[..., Any] = self._known
        self._first: tuple[Any, ...] = ()  # arguments before those of a call: the object of a bound method

    def of(self, instance: Any) -> Self:
        """Make it a method of that object, which calls then leave out; returns it."""
        self._first, self._run = (instance,), partial(self._known, instance)
        return self

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._kernel.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arguments of the kinds it was compiled for; others are an ArgumentError."""
        __tracebackhide__ = True
        return self._run(*args, **kwargs)

    def _slow_call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        __tracebackhide__ = True
        found = self._containers.call(args, kwargs)
        if found is not NotImplemented:
            return found
        call, values = self._matching(args, kwargs or {})
        if isinstance(self._kernel, Kernel):
            self._register(self._kernel, call, values)
        return self._kernel.launch(call, values)

    def _register(self, kernel: Kernel, call: Arguments, values: tuple[Any, ...]) -> None:
        """Let later calls with such arguments skip the slow path, where their identity decides everything."""
        guards = runtime_guards(call.prints)
        if guards is None:
            return
        plan = [p for p in call.plan if p is not None]
        if len(plan) == len(call.plan):
            fixed = [
                (position, axis, extent)
                for position, param in enumerate(kernel.params)
                if isinstance(param.what, TensorParam)
                for axis, extent in enumerate(param.what.type.shape)
                if extent is not None
            ]
            self._known.register(values, kernel.entry, plan, guards, kernel.converter(call), [*call.extents, *fixed])
        elif all(_is_known_by_form(leaf, lists=call.lists) for p in kernel.params for leaf in leaves(p.what)):
            self._containers.register(list(values), call, kernel, guards, kernel.converter(call))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """A prepared launch: `bound()` runs again on the same arguments, without looking at them.

        It keeps the arguments alive; tensors that the function returns are new at each run.  Raises ArgumentError for
        arguments that this version was not compiled for.
        """
        return self._kernel.bind(*self._matching((*self._first, *args), kwargs))

    def _matching(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Arguments, tuple[Any, ...]]:
        names, values = self._parameters.bind(args, kwargs)
        call = self._parameters.classify(names, values, device=self._device)
        for name, value in zip(names, values, strict=True):
            if isinstance(value, Spec):
                raise self._parameters.error(
                    "PTO-A012", f"argument `{name}` is a pto.spec, which has no data", "pass an array"
                )
        reason = self._kernel.mismatch(call)
        if reason is not None:
            raise self._parameters.error(
                "PTO-A013",
                f"this version was compiled for ({self._kernel.info.signature}): {reason}",
                f"call `{self._kernel.name}` itself, which compiles what it needs, or `compile` for these arguments",
            )
        self._kernel.check_writable(call, self._parameters)
        return call, tuple(values)

    def _lowered(self) -> Stages:
        if self._stages is None:  # the code came from the disk cache: make the stages again
            self._stages = lower(self._kernel.function, self._kernel.params, self._kernel.options, quiet=True)
        return self._stages

    @property
    def stages(self) -> list[str]:
        """Names of the compiler's stages in order; the last two are the LLVM IR and the machine code."""
        return [*self._lowered().modules, "llvm", "assembly"]

    def ir(self, stage: str, *, source: bool = False) -> str:
        """The program after `stage`: `.pto` text, LLVM IR or assembly.

        `source`: with the user's line as a comment above the first statement of `.pto` text that was made from it.
        Raises ValueError for an unknown stage, and for `source` with LLVM IR or assembly, which have no such comments.
        """
        if source and stage in ("llvm", "assembly"):
            raise ValueError(f"`{stage}` has no source comments; the stages {', '.join(self.stages[:-2])} have")
        if stage == "llvm":
            return self._kernel.built.program.llvm_ir
        if stage == "assembly":
            return self._kernel.built.program.assembly()
        modules = self._lowered().modules
        if stage not in modules:
            raise ValueError(f"there is no stage {stage!r}; the stages are {', '.join(self.stages)}")
        return print_module(modules[stage], above=_source_lines(modules[stage]) if source else None)

    def loop_nest(self) -> list[LoopNode]:
        """Loops, branches, in-core scopes and calls after placement, as a forest."""
        module = self._lowered().modules[PLACED]
        return _nest(module.func(module.entry).body)

    @property
    def decisions(self) -> list[Decision]:
        """Everything the compiler considered: applied or not, and why."""
        return list(self._lowered().decisions)

    @property
    def sources(self) -> dict[str, str]:
        """Generated files, name -> text."""
        return self._files(None)

    def write(self, directory: str | Path, *, name: str | None = None) -> list[Path]:
        """Write `sources` into `directory`; returns the paths.

        name: of the program and its functions, and so of its files, instead of the kernel's: two specialisations of
        a function, or closures of one factory, are called the same otherwise (the LLVM IR of the cpu target keeps the
        kernel's).  Raises ArgumentError for what cannot be a name in C.
        """
        return write_files(self._files(checked_name(name)), directory)

    def _files(self, name: str | None) -> dict[str, str]:
        """The files of the program under that name."""
        return own_files(self._lowered().last, self.ir("llvm"), name)

    def library(
        self, directory: str | Path, kind: Literal["static", "shared"] = "static", *, name: str | None = None
    ) -> list[Path]:
        """Write a library that programs without Python can call, with its headers, into `directory`; their paths.

        The files are `lib<name>.a` (or `.so`), which contains the run-time library, `<name>.h`, which declares
        `<name>_launch`, and `pto_runtime.h`.  `name` is that of the function; give each specialisation a name of its
        own where a program is linked with several.  It needs a C compiler.  Raises ToolchainError without one,
        ArgumentError for what cannot be a name in C, and TargetError for targets whose programs cannot be linked this
        way.
        """
        from pto_jit.aot import cpu_library

        kernel = self._kernel
        return cpu_library(self._lowered(), kernel.built.program.written, kernel.options, directory, kind, name,
                           (kernel.function, kernel.params))  # fmt: skip

    @property
    def timings(self) -> dict[str, float]:
        """Seconds per stage."""
        return dict(self._lowered().timings)

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError(f"{self!r} is machine code of this process: pickle the function and compile it again")

    def __repr__(self) -> str:
        return f"<compiled {self._kernel.name}({self._kernel.info.signature})>"


def _is_known_by_form(leaf: TensorParam | ScalarParam, *, lists: bool) -> bool:
    """Whether arguments that `Containers` takes for the same have the extents that the code is made for: of calls with
    lists it knows all but the first, and whether that is 1."""
    if not isinstance(leaf, TensorParam) or all(extent is None for extent in leaf.type.shape):
        return True
    return lists and leaf.type.shape[0] in (None, 1)


class WrittenCompiled(Compiled):
    """`Compiled` for targets whose programs are sources: the last stage is the one that they were written from."""

    @property
    def stages(self) -> list[str]:
        return [*self._lowered().modules]

    def ir(self, stage: str, *, source: bool = False) -> str:
        """The program after `stage` as `.pto` text; `source`: with the user's lines as comments."""
        if stage in ("llvm", "assembly"):
            raise ValueError(f"there is no stage {stage!r}; the stages are {', '.join(self.stages)}")
        return super().ir(stage, source=source)


def own_files(module: Module, llvm: str, name: str | None) -> dict[str, str]:
    """The files of a program of the cpu target under that name, which its LLVM IR is not made again for."""
    module = module if name is None else called(module, name)
    readme = _README.format(name=module.name, stem=re.sub(r"\W", "_", module.name))
    return {f"{module.name}.pto": print_module(module), f"{module.name}.ll": llvm, "README.md": readme}


def device_files(program: Any, name: str | None) -> dict[str, str]:
    """The files of a program for a device under that name."""
    program = program if name is None else program.renamed(name)
    return {f"{program.module.name}.pto": print_module(program.module), **program.sources}


def write_files(files: Mapping[str, str], directory: str | Path) -> list[Path]:
    """Write files, name -> text, into a directory; their paths."""
    root = Path(directory)
    paths: list[Path] = []
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def _source_lines(module: Module) -> dict[int, str]:
    """`id(statement)` -> number and text of the source line it was made from, where that changes."""
    found: dict[int, str] = {}
    for func in module.funcs:
        last: tuple[str, int] | None = None
        for stmt in statements(func.body):
            place = stmt.loc.filename, stmt.loc.lineno
            text = linecache.getline(*place).strip()
            if place != last and text:
                found[id(stmt)] = f"{place[1]}: {' '.join(text.split())}"
            last = place
    return found


def _nest(body: Block, chunks: frozenset[str] = frozenset()) -> list[LoopNode]:
    """The loops of a block; `chunks` are the chunk loops around it whose in_chunk loop is still to come."""
    nodes: list[LoopNode] = []
    for stmt in body:
        nodes += _node(stmt, chunks)
    return nodes


def _node(stmt: Stmt, chunks: frozenset[str]) -> list[LoopNode]:
    match stmt:
        case For():
            var, kind = source_name(stmt.var.name), kind_in_source(stmt, chunks)
            inner = _nest(stmt.body, chunks_inside(stmt, chunks))
            if stmt.kind == "combine" and stmt.combine == "loop":  # a combine that is a loop over the partial results
                inner = [LoopNode("sequential", var, inner)]
            return [LoopNode(kind, var, inner)]
        case While():
            return [LoopNode("while", "", _nest((*stmt.before, *stmt.body), chunks))]
        case If():
            inner = _nest((*stmt.then, *stmt.orelse), chunks)
            return [LoopNode("if", "", inner)] if inner else []
        case Scope():
            return [LoopNode("call" if stmt.named else "incore", stmt.name, _nest(stmt.body, chunks))]
        case Call():
            return [LoopNode("call", stmt.callee)]
        case _:
            return []

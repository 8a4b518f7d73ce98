# SPDX-License-Identifier: MIT
"""`PTOModule`: functions that call each other, and `BuiltFunction`, one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.errors import CompilationError, Loc, TypeMismatchError, similar
from pto_jit.ir.instances import Instances
from pto_jit.ir.nodes import Func, Module
from pto_jit.ir.splice import reachable
from pto_jit.ir.text import string_text, to_text
from pto_jit.ir.verify import check
from pto_jit.semantic.rules import infer

if TYPE_CHECKING:
    from pto_jit.modules import CompiledFunction, CompiledModule


class PTOModule:
    """A program: named functions, and the entry among them.

    `str(module)` is its `.pto` text; `pto.parse_pto` reads that back as an equal module.
    """

    def __init__(self, name: str = "module") -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a module is a string, not {name!r}")
        self.name = name
        self._funcs: dict[str, Func] = {}
        self._entry: str | None = None
        self._compiled: dict[Any, CompiledModule] = {}

    @classmethod
    def of(cls, module: Module) -> PTOModule:
        """The module for a program of loop IR."""
        if not isinstance(module, Module):
            raise TypeError(f"a program of loop IR is wanted, not {module!r}")
        made = cls(module.name)
        made._funcs = {func.name: func for func in module.funcs}
        made._entry = module.entry
        return made

    # -- functions ----------------------------------------------------------------------------------------------

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._funcs

    def __iter__(self) -> Iterator[str]:
        return iter(self._funcs)

    def __len__(self) -> int:
        return len(self._funcs)

    def __getitem__(self, name: str) -> BuiltFunction:
        """The function of that name; KeyError when there is none."""
        if name not in self:
            raise KeyError(
                f"the module `{self.name}` has no function `{name}`; {self.similar(name) or 'it has none like it'}"
            )
        return BuiltFunction(self, name)

    @property
    def functions(self) -> tuple[BuiltFunction, ...]:
        """All functions, in the order they were built."""
        return tuple(BuiltFunction(self, name) for name in self._funcs)

    @property
    def entry(self) -> str:
        """The function that runs by default: the last orchestration function, else the last one, or what was set."""
        if self._entry is not None:
            return self._entry
        if not self._funcs:
            raise CompilationError(f"the module `{self.name}` has no function", code="PTO-P035", hint="build one")
        hosts = [func.name for func in self._funcs.values() if func.kind == "orchestration"]
        return (hosts or list(self._funcs))[-1]

    def set_entry(self, name: str) -> None:
        """Choose the function that runs by default; KeyError when there is none of that name."""
        self._entry = self[name].name

    def register(self, fn: Any, *types: Any, name: str | None = None, **named: Any) -> BuiltFunction:
        """Add a `@pto.incore` function (or any Python function of tiles) as an in-core function of the module.

        types: for each parameter, by position or name, `pto.spec(shape, dtype)` for a tensor, a dtype for a run-time
        scalar, anything else for a compile-time value; a parameter annotated `pl.Tensor[[8, 8], pl.f32]` needs none.
        Its results are tensors that it writes; returning tiles is an error, since a call here has nowhere to put them.
        """
        from pto_jit.builder.places import user_place
        from pto_jit.builder.python import incore_function

        loc = user_place()
        if name is not None and (not isinstance(name, str) or not name):
            raise TypeMismatchError(f"{name!r} is not the name of a function", loc, code="PTO-T210", hint="give a name")
        func = incore_function(fn, types, named, name, loc)
        if func.name in self:
            raise CompilationError(f"the module already has a function `{func.name}`", loc, code="PTO-P039",
                                   hint="give it another name: `register(..., name=...)`")  # fmt: skip
        return self.add(func, ())

    def add(self, func: Func, others: Sequence[Func]) -> BuiltFunction:
        """Add a function of loop IR, and `others` that it calls; CompilationError at its place when it is wrong."""
        for given in (func, *others):
            if not isinstance(given, Func):
                raise TypeError(f"a function of loop IR is wanted, not {given!r}")
        funcs = {**self._funcs, **{f.name: f for f in (*others, func)}}
        check(Module(self.name, tuple(funcs.values()), func.name), infer)
        self._funcs = funcs
        self._compiled.clear()
        return BuiltFunction(self, func.name)

    def instances(self) -> Instances:
        """The functions, to be called with arguments of any fitting types."""
        return Instances(tuple(self._funcs.values()), infer)

    def similar(self, name: str) -> str:
        """A hint that names the function that was perhaps meant, else ""."""
        return similar(str(name), self._funcs).strip()

    # -- as a program -------------------------------------------------------------------------------------------

    @property
    def ir(self) -> Module:
        """The program as loop IR; CompilationError when there is no function."""
        return Module(self.name, tuple(self._funcs.values()), self.entry)

    def to_pto(self, *, locations: bool = False) -> str:
        """The `.pto` text; `locations` adds the place of each statement as a comment."""
        if not self._funcs:
            return f"// PTO Module: {string_text(self.name)}\n"
        return to_text(self.ir, locations=locations)

    def compile(self, target: str = "cpu", **options: Any) -> CompiledModule:
        """The module with its functions callable: `module.compile().softmax(x, y, num_tiles=4)`.

        options: `debug`, `fastmath`, `num_threads` as for `pto.jit`.  Machine code is made for each function when it
        is first called.
        """
        from pto_jit.modules import CompiledModule

        key = (target, *sorted(options.items()))
        try:
            found = self._compiled.get(key)
        except TypeError:  # what cannot be hashed is not an option's value, which the next line says
            found = None
        if found is None:
            found = self._compiled[key] = CompiledModule(self.ir, target, options)
        return found

    def __str__(self) -> str:
        return self.to_pto()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PTOModule):
            return NotImplemented
        mine, theirs = tuple(self._funcs.values()), tuple(other._funcs.values())
        return self.name == other.name and mine == theirs and (not mine or self.entry == other.entry)

    __hash__ = None  # type: ignore[assignment] - a module grows

    def __repr__(self) -> str:
        return f"<PTOModule {self.name}: {', '.join(self._funcs) or 'empty'}>"


class BuiltFunction:
    """A function of a module.

    Call it with arrays and numbers to run it; call it inside a `@pto.jit` kernel, or `.call` it from another builder.
    """

    def __init__(self, module: PTOModule, name: str) -> None:
        self.module = module
        self.name = name
        self.__name__ = name

    @property
    def func(self) -> Func:
        """The function as loop IR."""
        return self.module._funcs[self.name]

    @property
    def __pto_built__(self) -> Module:
        """The function as the entry of a program with what it calls: how the front end sees it."""
        return reachable(Module(self.name, tuple(self.module._funcs.values()), self.name))

    @property
    def loc(self) -> Loc:
        """Where it was begun in the program that built it, or in the `.pto` text."""
        return self.func.loc

    def to_pto(self) -> str:
        """The `.pto` text of the function and of those that it calls."""
        return to_text(self.__pto_built__)

    def compile(self, target: str = "cpu", **options: Any) -> CompiledFunction:
        """The function, ready to be called; target and options as for `PTOModule.compile`."""
        return self.module.compile(target, **options)[self.name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays and numbers: memrefs in order, then scalars by position or by name."""
        return self.compile()(*args, **kwargs)

    def __str__(self) -> str:
        return self.to_pto()

    def __repr__(self) -> str:
        return f"<{self.func.kind} function {self.name} of {self.module.name}>"

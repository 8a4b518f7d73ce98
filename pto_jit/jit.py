# SPDX-License-Identifier: MIT
"""`@pto.jit` and `@pto.incore`: functions that compile themselves when they are called.

A `JitFunction` is a C `Dispatcher`: calls whose argument kinds were seen before go straight to machine code.
Everything else arrives in `_slow_call`, which describes the arguments, finds or makes the specialisation, registers
it for the fast path where that is sound, and runs it.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from pto_jit.arguments import Parameters
from pto_jit.bound import BoundKernel
from pto_jit.building import Built, build, making
from pto_jit.codegen.fingerprint import Fingerprint, Known, fingerprint
from pto_jit.codegen.params import Param, hollow
from pto_jit.config import config, log, on_change
from pto_jit.errors import ArgumentError, CompilationError, TargetError
from pto_jit.kernel import Kernel, Specialization, signature_text
from pto_jit.language import _interpret
from pto_jit.language import incore as in_core
from pto_jit.language._indices import when_assigned
from pto_jit.options import OPTION_NAMES, Options
from pto_jit.pickles import CopiedLikeFunction, carrier, reduced
from pto_jit.reading import Arguments, Spec
from pto_jit.registering import Containers, runtime_guards
from pto_jit.results import to_torch
from pto_jit.runtime import Dispatcher

if TYPE_CHECKING:
    from pto_jit.compiled import Compiled
    from pto_jit.device_kernel import DeviceKernel
    from pto_jit.explain import Explanation
    from pto_jit.repeated import Repeated
    from pto_jit.runtime.graph import TaskGraph
    from pto_jit.source_kernel import SourceKernel

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")

_WARN_AFTER = 64  # specialisations of one kernel
_alive: weakref.WeakSet[Dispatcher | Containers | Repeated] = weakref.WeakSet()


class JitFunction(CopiedLikeFunction, Dispatcher, Generic[P, R]):
    """A compiled function; made by `pto.jit`. It has the name, docstring and signature of the original."""

    __name__: str
    __qualname__: str

    def __init__(self, fn: Callable[P, R], options: Options, around: Mapping[str, Any] | None = None) -> None:
        """`around`: the names where the function is defined, for annotations that are text."""
        self._options = options
        self._parameters = Parameters(fn, around or {})
        super().__init__(
            tuple(p.name for p in self._parameters.named), self._slow_call, **self._parameters.dispatcher_options()
        )
        self._kernels: dict[Any, Kernel | DeviceKernel | SourceKernel] = {}
        self._prints: Known = {}
        self._specializations: list[Specialization] = []
        self._containers = Containers(self._parameters)
        self._repeated: Repeated | None = None
        functools.update_wrapper(self, fn)
        self.__signature__ = self._parameters.signature
        self.__pto_jit__ = fn
        _alive.add(self)
        _alive.add(self._containers)

    # -- calling ------------------------------------------------------------------------------------------------

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

        @overload
        def __get__(self, instance: None, owner: type | None = None, /) -> JitFunction[P, R]: ...
        @overload
        def __get__(
            self: JitFunction[Concatenate[S, Q], R], instance: S, owner: type | None = None, /
        ) -> BoundKernel[Q, R]: ...
        def __get__(self, instance: Any, owner: type | None = None, /) -> Any: ...

    def _slow_call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        __tracebackhide__ = True
        if _interpret.active():  # a kernel called by an interpreted one
            return _interpret.inside(self.__pto_jit__, args, kwargs or {}, self._has_scopes())
        if config.interpret:
            return self.interpret(*args, **(kwargs or {}))
        found = self._containers.call(args, kwargs)
        if found is not NotImplemented:
            return found
        names, values = self._parameters.bind(args, kwargs)
        if self._options.device:
            content = fingerprint(self.__pto_jit__, self._prints).digest
            return self._on_device().call(names, values, content, lambda: self._found(names, values))
        kernel, call = self._found(names, values)
        return kernel.launch(call, tuple(values))

    def _found(self, names: list[str], values: list[Any]) -> tuple[Any, Arguments]:
        """The kernel for such arguments, and what was found of them."""
        __tracebackhide__ = True
        before = _settings[0]
        call = self._parameters.classify(names, values, device=self._options.device)
        self._refuse_specs(names, values)
        kernel = self._kernel(call, self._options)
        kernel.check_writable(call, self._parameters)
        self._register(values, call, kernel, before)
        return kernel, call

    def _on_device(self) -> Repeated:
        if self._repeated is None:
            from pto_jit.repeated import Repeated  # here: other targets never need it

            self._repeated = Repeated(self._parameters.static)
            _alive.add(self._repeated)
        return self._repeated

    def lend(
        self, other: Dispatcher, values: tuple[Any, ...], convert: Callable[[Any], Any] | None = None,
        extents: Sequence[tuple[int, ...]] = (),
    ) -> None:  # fmt: skip
        """Let `other`, which has the same parameters, run the kernel for such arguments without further ado, if this
        function does; `convert` changes what it returns, `extents` have to be equal besides (`Dispatcher.register`)."""
        if not self.entries():
            return
        before = _settings[0]
        call = self._parameters.classify(*self._parameters.bind(values, {}), device=self._options.device)
        _alive.add(other)
        self._register(list(values), call, self._kernel(call, self._options), before, other, convert, extents)

    def _refuse_specs(self, names: list[str], values: list[Any]) -> None:
        for name, value in zip(names, values, strict=True):
            if isinstance(value, Spec):
                raise self._parameters.error(
                    "PTO-A012", f"argument `{name}` is a pto.spec, which has no data",
                    f"pass an array, or compile without running: `{self.__name__}.compile(...)`",
                )  # fmt: skip

    def _register(
        self, values: list[Any], call: Arguments, kernel: Kernel | DeviceKernel | SourceKernel, before: int,
        other: Dispatcher | None = None, convert: Callable[[Any], Any] | None = None,
        extents: Sequence[tuple[int, ...]] = (),
    ) -> None:  # fmt: skip
        """Let later calls of this kind skip the slow path, where identity of the arguments decides everything."""
        plan = [p for p in call.plan if p is not None]
        whole = len(plan) == len(call.plan)
        if not isinstance(kernel, Kernel) or not (whole or other is None):
            return
        own = fingerprint(self.__pto_jit__, self._prints)
        guards = runtime_guards([own, *call.prints])
        if guards is None or self._kernels.get(self._key(own, call, self._options)) is not kernel:
            return  # what it consulted can change unseen, or has changed meanwhile
        last = kernel.converter(call)
        if convert is not None:
            last = convert if last is None else functools.partial(_both, last, convert)
        target = self if other is None else other
        if whole:
            target.register(tuple(values), kernel.entry, plan, guards, last, [*call.extents, *extents])
        else:
            self._containers.register(values, call, kernel, guards, last)
        if _settings[0] != before:  # another thread changed the configuration meanwhile
            target.clear()
            self._containers.clear()

    def _key(self, own: Fingerprint, call: Arguments, options: Options) -> tuple[Any, ...]:
        return (own.digest, call.key, options, str(config.cache_dir), config.debug, config.debug_info,
                config.num_threads)  # fmt: skip

    def _kernel(self, call: Arguments, options: Options) -> Kernel | DeviceKernel | SourceKernel:
        __tracebackhide__ = True
        own = fingerprint(self.__pto_jit__, self._prints)
        key = self._key(own, call, options)
        kernel = self._kernels.get(key)
        if kernel is None:
            with making:
                kernel = self._kernels.get(key)
                if kernel is None:
                    identity = None if own.local or call.local else f"{self.__name__}|{own.digest}|{call.key!r}"
                    try:
                        kernel = self._kernels[key] = self._make(call, options, identity)
                    except (CompilationError, TargetError) as error:
                        from pto_jit.tracebacks import without_library

                        error.during(f"{self.__name__}({signature_text(call)})")
                        raise without_library(error)  # noqa: B904  (its cause is that of the compiler)
        return kernel

    def _make(self, call: Arguments, options: Options, identity: str | None) -> Kernel | DeviceKernel | SourceKernel:
        signature = signature_text(call)
        reason = self._reason(signature)
        call.params = [Param(p.name, hollow(p.what)) for p in call.params]
        kernel: Kernel | DeviceKernel | SourceKernel
        if options.target == "cpu":
            key = None if identity is None else hashlib.sha256(identity.encode()).hexdigest()
            built = build(self.__pto_jit__, call.params, key, options)
            info = Specialization(signature, built.origin, reason, built.seconds)
            kernel = Kernel(info, built, self.__pto_jit__, call.params, call.key, options)
        else:  # the whole compiler: imported by the first kernel that needs it
            if options.device:
                from pto_jit import device_kernel as other
            else:
                from pto_jit import source_kernel as other
            kernel = other.make(self.__pto_jit__, call, options, signature, reason)
            info, built = kernel.info, kernel.built
        self._specializations.append(info)
        log("specialize", "%s: %s #%d for (%s) in %.1f ms: %s", self.__name__, built.origin,
            len(self._specializations), signature, built.seconds * 1e3, reason)  # fmt: skip
        if len(self._specializations) == _WARN_AFTER:
            warnings.warn(
                f"{self.__name__} has {_WARN_AFTER} specialisations; see {self.__name__}.specializations() for why",
                RuntimeWarning,
                stacklevel=5,
            )
        return kernel

    def _reason(self, signature: str) -> str:
        if not self._specializations:
            return "the first call"
        if any(s.signature == signature for s in self._specializations):
            return "an option, or something the function uses, has changed"
        last = self._specializations[-1].signature
        before, after = last.split(", "), signature.split(", ")
        changed = [f"{b} -> {a}" for b, a in zip(before, after, strict=False) if a != b]
        return "argument kinds changed: " + ("; ".join(changed) or f"{last} -> {signature}")

    # -- looking inside -----------------------------------------------------------------------------------------

    def compile(self, *args: Any, target: str | None = None, **kwargs: Any) -> Compiled:
        """Compile for these arguments without running.

        Arguments are as for a call, or `pto.spec(shape, dtype)`.  `target`, `debug`, `fastmath`, `num_threads` and
        `cache` override the decorator's options, unless the function has a parameter of that name that the positional
        arguments leave open.  Raises as a first call does, and TargetError for what the target cannot do.
        """
        from pto_jit.compiled import Compiled

        __tracebackhide__ = True
        given = {p.name for p in self._parameters.positional[: len(args)]}
        left = {p.name for p in self._parameters.named} - given
        known = {k: kwargs.pop(k) for k in OPTION_NAMES if k in kwargs and k not in left}
        if target is not None:
            (kwargs if "target" in left else known)["target"] = target
        options = self._options.but(known)
        call = self._parameters.classify(*self._parameters.bind(args, kwargs), device=options.device)
        kernel = self._kernel(call, options)
        if options.target == "cpu":
            return Compiled(self._parameters, kernel)
        if options.device:
            from pto_jit.device_kernel import DeviceCompiled

            return DeviceCompiled(self._parameters, kernel)
        from pto_jit.source_kernel import SourceCompiled

        return SourceCompiled(self._parameters, kernel)

    def specializations(self) -> list[Specialization]:
        """What was compiled or loaded so far, in order."""
        return list(self._specializations)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """The source for these arguments (as for `compile`), each line marked: where it runs, types, decisions.

        `str()` of it is plain text; rich renders it in colour.  Nothing is run.
        """
        from pto_jit.explain import explain

        call = self._parameters.classify(*self._parameters.bind(args, kwargs))
        return explain(self.__pto_jit__, call.params, self._options, f"{self.__name__}({signature_text(call)})")

    def task_graph(self, *args: Any, **kwargs: Any) -> TaskGraph:
        """Record the in-core calls for these arguments as tasks with the regions they read and write.

        None is run: `graph.run()` does that, on the memory of the arguments.  Tensors that the function makes belong to
        the graph.  Raises LaunchError when the function needs a value that a recorded task would write.
        """
        from pto_jit.compiler import lower
        from pto_jit.recording import record, recorder_of

        names, values = self._parameters.bind(args, kwargs)
        self._refuse_specs(names, values)
        call = self._parameters.classify(names, values)
        kernel = self._kernel(call, self._options)
        kernel.check_writable(call, self._parameters)
        if not isinstance(kernel.built, Built):
            raise TargetError(
                f"`{self.__name__}` is compiled for {kernel.options.target}; task graphs are recorded for the cpu "
                "target",
                code="PTO-X090",
                hint='record the tasks of a function with `target="cpu"`',
            )
        recorder = recorder_of(kernel.built, kernel.name, kernel.options,
                               lambda: lower(kernel.function, kernel.params, kernel.options, quiet=True))  # fmt: skip
        return record(recorder, call.slots, tuple(values), call.elements, call.owners)

    def interpret(self, *args: Any, **kwargs: Any) -> Any:
        """Run the original Python function on NumPy, where debuggers, coverage and `print` work.

        Numbers round and wrap as in compiled code.  Parallel loops run in a shuffled order that is the same in every
        run; two iterations that touch one element, at least one writing, are a RaceError.  Reading an element of
        `pl.empty` before it is written is a LaunchError.
        """
        names, values = self._parameters.bind(args, kwargs)
        self._refuse_specs(names, values)
        call = self._parameters.classify(names, values)  # what a call refuses, interpret mode refuses
        result = _interpret.run(
            self.__pto_jit__, args, kwargs, static=self._parameters.static, scoped=self._has_scopes()
        )
        return to_torch(result) if call.torch else result

    def _has_scopes(self) -> bool:
        from pto_jit.codegen.presence import opens_scopes

        return opens_scopes(self.__pto_jit__)

    # -- as an object -------------------------------------------------------------------------------------------

    def __set_name__(self, owner: type, name: str) -> None:
        """A `def` in the body of a class is a method, whatever its first parameter is called."""
        fn = self.__pto_jit__
        written = (fn.__module__, fn.__qualname__) == (owner.__module__, f"{owner.__qualname__}.{name}")
        if written and type(self) is JitFunction and self._parameters.positional:
            self._parameters.is_method = True
            self.__class__ = JitMethod

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled like a function: by name, or with its code by picklers that do that (`pickles`)."""
        return reduced(self, self.__pto_jit__, protocol, self._options)

    @property
    def __pto_carrier__(self) -> types.FunctionType:
        return carrier(self, self.__pto_jit__, self._parameters.annotations)

    def __repr__(self) -> str:
        return f"<pto.jit function {self.__module__}.{self.__qualname__}>"


class JitMethod(JitFunction[P, R]):
    """A compiled function that is a method: through an instance it is a `BoundKernel`."""

    if not TYPE_CHECKING:

        def __get__(self, instance: Any, owner: type | None = None, /) -> Any:
            return self if instance is None else BoundKernel(self, instance)


def _both(first: Callable[[Any], Any], last: Callable[[Any], Any], made: Any) -> Any:
    return last(first(made))


_settings = [0]  # how often the configuration changed


def _settings_changed() -> None:
    """What is registered was made under the old settings."""
    _settings[0] += 1
    for function in list(_alive):
        function.clear()


on_change(_settings_changed)


def _run_statement(frame: types.FrameType) -> None:
    from pto_jit.comprehensions.interpretation import run_statement  # the kernel that has such a statement needs it

    run_statement(frame)


when_assigned(_run_statement)


class InCoreFunction(CopiedLikeFunction, Generic[P, R]):
    """A named in-core function; made by `pto.incore`. Called from kernels; outside it runs eagerly on NumPy."""

    __name__: str
    __qualname__: str

    def __init__(self, fn: Callable[P, R]) -> None:
        functools.update_wrapper(self, fn)
        self.__pto_incore__ = fn

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        with in_core():
            return self.__pto_incore__(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled like a function: by name, or with its code by picklers that do that (`pickles`)."""
        return reduced(self, self.__pto_incore__, protocol)

    @property
    def __pto_carrier__(self) -> types.FunctionType:
        return carrier(self, self.__pto_incore__, self.__pto_incore__.__annotations__)


@overload
def jit(fn: Callable[P, R], /) -> JitFunction[P, R]: ...
@overload
def jit(
    *,
    target: str | None = "cpu",
    debug: bool = False,
    fastmath: bool = False,
    num_threads: int | None = None,
    cache: bool = True,
) -> Callable[[Callable[P, R]], JitFunction[P, R]]: ...


def jit(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a Python function (a `def` or a lambda) for the CPU it is called on: `@pto.jit`, `@pto.jit(debug=True)`.

    The function that comes back has the parameters of the original.  Its first call for the kinds of its arguments
    (dtype, rank and layout of tensors; values of what is not a tensor or number) compiles it, further ones run machine
    code. Tensors are NumPy arrays, torch CPU tensors, or what has the buffer protocol or DLPack; none is copied.
    What it returns are NumPy arrays (torch tensors where the first tensor argument is one) and Python numbers.

    target: "cpu", "c" or "neon" (docs/sources.md), "cuda" (docs/cuda.md), or "ascend" (docs/ascend.md).
    debug: check element bounds, races and assertions while it runs.
    fastmath: allow reassociation and contraction of floating-point arithmetic (of chains of products, too).
    num_threads: workers of this kernel, 1 to 1024; None: `pto.config.num_threads`.
    cache: keep compiled code on disk.

    Raises ArgumentError for what is not a function and for unknown options, TargetError for an unknown
    target.  A call raises CompilationError for a program that has no meaning, ArgumentError and ShapeError for
    arguments that do not fit it, LaunchError for what fails while it runs.

    >>> import numpy as np, pto_jit as pto
    >>> scale = pto.jit(lambda x, s: x * s)
    >>> scale(np.arange(3, dtype=np.float32), 2.0)
    array([0., 2., 4.], dtype=float32)
    """
    chosen = Options.of(options)
    if fn is None:
        return lambda function: _jit(function, chosen, sys._getframe(1))
    return _jit(fn, chosen, sys._getframe(1))


def _jit(fn: Any, options: Options, around: types.FrameType) -> JitFunction[Any, Any]:
    if isinstance(fn, JitFunction):
        fn = fn.__pto_jit__
    if not isinstance(fn, types.FunctionType):
        raise ArgumentError(f"PTO-A023: pto.jit takes a function, got {fn!r}\nhelp: decorate a `def` or pass a lambda")
    method = fn.__code__.co_argcount > 0 and fn.__code__.co_varnames[0] == "self"
    return (JitMethod if method else JitFunction)(fn, options, around.f_locals)


def incore(fn: Callable[P, R]) -> InCoreFunction[P, R]:
    """Mark a function of tiles as an in-core function: a task when orchestration calls it, inlined in in-core code.

    It takes what a kernel takes, tiles besides; called outside of kernels it computes on NumPy values at once.
    """
    return InCoreFunction(fn)

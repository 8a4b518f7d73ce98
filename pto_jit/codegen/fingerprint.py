# SPDX-License-Identifier: MIT
"""Identity of callables by content.

Two functions are one when their code (the syntax tree without places), their defaults, the values they capture and
the globals they use are equal, transitively.  Names, ids and positions play no part: moving or reformatting a function
changes nothing, and two closures of one factory differ when their captured values do.

Every global and cell that was consulted is also a *guard*: at a launch the same object under the same name means that
nothing has to be computed again.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import hashlib
import re
import sys
import types
from collections import namedtuple
from collections.abc import Sequence
from operator import is_
from typing import Any, Literal

import numpy as np

from pto_jit.codegen.frames import BUILTINS
from pto_jit.codegen.names import free_names
from pto_jit.dtypes import DType
from pto_jit.errors import CompilationError
from pto_jit.slotted import frozen
from pto_jit.source import METHODS, FunctionNode, locate

Guard = tuple[Literal["global", "cell", "function", "held"], Any, Any, Any]

# Modules whose functions are part of the language or of Python: identified by name, never looked into.
_KNOWN_ROOTS = (frozenset({"pto_jit", "numpy", "ml_dtypes"}) | sys.stdlib_module_names) - {"test", "__main__"}
_REPRESENTED = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range, DType, np.generic, np.dtype)
_HEAP_TYPE = 1 << 9
_UNCHANGING = (type(namedtuple("_Pair", "field").field), re.Pattern)  # type: ignore[attr-defined]
"""C classes whose objects never change: fields of named tuples, patterns."""


@frozen
class Fingerprint:
    """`digest` identifies content; `guards` are (kind, globals dict or cell or function, name, object) to compare by
    identity, or ("held", list, dict, set, object or class, slots, what it holds) to compare item by item. A function's
    `__code__` and defaults are replaced by tools that reload edited modules (a `__kwdefaults__` dict that is changed in
    place is not noticed).

    A guard whose name is not defined holds `MISSING_NAME`. `mutable`: something consulted (an array, an object of a C
    class) can change in place, which no guard notices; compute the fingerprint again at every launch then. `local`:
    something consulted has nothing to compare but its identity, so the digest means nothing to another process.
    """

    digest: str
    guards: tuple[Guard, ...]
    mutable: bool = False
    local: bool = False


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


MISSING_NAME = _Missing()


Known = dict[types.FunctionType, tuple[Fingerprint, Any, Any, Any]]
"""Functions with their fingerprints, and what else has to be the same for those to hold."""


def fingerprint(fn: Any, kept: Known | None = None) -> Fingerprint:
    """The identity of a callable (function, lambda, partial, bound method, instance with `__call__`, class).

    kept: where fingerprints of functions are looked for and kept, which keeps the functions alive, too; else among the
    last few that were asked for.  Raises CompilationError when a function's source changed after its import (PTO-S002).
    """
    kept = _recent if kept is None else kept
    known = _cached(fn, kept)
    if known is not None:
        return known
    walk = _Walk()
    try:
        digest = hashlib.sha256(repr(walk.value(fn)).encode()).hexdigest()
    except RecursionError:
        name = getattr(fn, "__qualname__", None) or type(fn).__name__
        raise CompilationError(f"what `{name}` captures is nested too deep", code="PTO-N070",
                               hint="capture its parts on fewer levels") from None  # fmt: skip
    result = Fingerprint(digest, tuple(walk.guards), walk.mutable, walk.local)
    if isinstance(fn, types.FunctionType) and not walk.mutable:
        if len(kept) >= _KEPT:
            kept.clear()
        kept[fn] = result, fn.__defaults__, _frozen(fn.__kwdefaults__), fn.__code__
    return result


def holds(guards: tuple[Guard, ...]) -> bool:
    """Whether every consulted global and cell still is the same object."""
    for kind, container, name, value in guards:
        if kind == "global":
            if container.get(name, MISSING_NAME) is not value:
                return False
        elif kind == "function":
            if getattr(container, name) is not value:
                return False
        elif kind == "held":
            if not still_holds(container, value, name):
                return False
        elif _contents(container) is not value:
            return False
    return True


def still_holds(container: Any, items: tuple[Any, ...], slots: tuple[str, ...] = ()) -> bool:
    """Whether a list, dict, set, class or object holds the same objects as it did (`_held`), in the same order."""
    now = container if type(container) is list else _held(container, slots)
    return len(now) == len(items) and all(map(is_, now, items))


def _held(container: Any, slots: tuple[str, ...]) -> tuple[Any, ...]:
    """The items of a list or set; keys and then values of a dict, or of what a class or an object has itself."""
    if isinstance(container, (list, set)):
        return tuple(container)
    names = container if isinstance(container, dict) else getattr(container, "__dict__", {})
    if slots:
        return (*names, *names.values(), *[getattr(container, n, MISSING_NAME) for n in slots])
    return (*names, *names.values())


def slots_of(cls: type) -> list[str]:
    """The names of the slots of a class and its bases, private ones as the class has them."""
    names: list[str] = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            names.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return [n for n in names if n not in ("__dict__", "__weakref__")]


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING_NAME


_KEPT = 256
_recent: Known = {}


def _cached(fn: Any, kept: Known) -> Fingerprint | None:
    if type(fn) is not types.FunctionType:
        return None
    found = kept.get(fn)
    if found is None or found[3] is not fn.__code__ or found[1] is not fn.__defaults__:
        return None
    if found[2] != _frozen(fn.__kwdefaults__) or not holds(found[0].guards):
        return None
    return found[0]


def _frozen(kwdefaults: dict[str, Any] | None) -> Any:
    return None if kwdefaults is None else tuple((k, id(v)) for k, v in kwdefaults.items())


class _Walk:
    """Collects the content of one callable."""

    def __init__(self) -> None:
        self.guards: list[Guard] = []
        self.numbers: dict[int, int] = {}  # objects walked, in order: for cycles and sharing
        self.kept: list[Any] = []  # keeps their ids valid
        self.mutable = False
        self.local = False

    def value(self, value: Any) -> Any:
        """Nested tuples of strings and numbers that say what `value` is."""
        kind = type(value)
        if isinstance(value, enum.Enum):
            return ("enum", kind.__module__, kind.__qualname__, value.name, self.value(value.value))
        if isinstance(value, _REPRESENTED):
            return (kind.__name__, repr(value))
        number = self.numbers.get(id(value))
        if number is not None:
            return ("seen", number)
        self.numbers[id(value)] = len(self.numbers)
        self.kept.append(value)
        if isinstance(value, (tuple, list, set, frozenset, dict, types.MappingProxyType, slice)):
            return self._container(value, kind)
        if callable(value):
            return self._callable(value, kind)
        if isinstance(value, types.ModuleType):
            return ("module", value.__name__)
        if isinstance(value, (staticmethod, classmethod)):
            return (kind.__name__, self.value(value.__func__))
        if isinstance(value, property):
            return ("property", self.value(value.fget))
        if isinstance(value, np.ndarray):
            self.mutable = True
            digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            return ("array", value.dtype.str, value.shape, digest)
        return self._instance(value, kind)

    def _container(self, value: Any, kind: type) -> Any:
        if kind in (list, dict, set):  # what they hold is looked at now, and at every launch
            items = self._watched(value)
            half = len(items) // 2
            value = dict(zip(items[:half], items[half:], strict=True)) if kind is dict else kind(items)
        else:
            self.mutable |= isinstance(value, (list, set, dict))
        if isinstance(value, (tuple, list)):
            return (kind.__qualname__, *(self.value(v) for v in value))
        if isinstance(value, (set, frozenset)):
            return (kind.__qualname__, *sorted(repr(self.value(v)) for v in value))
        if isinstance(value, slice):
            return ("slice", self.value((value.start, value.stop, value.step)))
        return ("dict", *((self.value(k), self.value(v)) for k, v in value.items()))

    def _watched(self, container: Any, slots: Sequence[str] = ()) -> tuple[Any, ...]:
        """What something holds now, which a guard will compare."""
        items = _held(container, tuple(slots))
        self.guards.append(("held", container, tuple(slots), items))
        return items

    def _callable(self, value: Any, kind: type) -> Any:
        if isinstance(value, functools.partial):
            return ("partial", self.value(value.func), self.value(value.args), self.value(value.keywords))
        if isinstance(value, METHODS):
            return ("method", self.value(value.__func__), self.value(value.__self__))
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, (types.BuiltinFunctionType, np.ufunc)):
            owner = getattr(value, "__self__", None)
            own = () if owner is None or isinstance(owner, types.ModuleType) else (self.value(owner),)
            return ("builtin", getattr(value, "__module__", None) or "", value.__name__, *own)
        if isinstance(value, type):
            return self._class(value)
        for mark in ("__pto_jit__", "__pto_incore__"):
            inner = getattr(value, "__dict__", {}).get(mark)
            if inner is not None:
                return (mark, self.value(inner))
        if hasattr(kind, "__pto_built__"):  # a function that is loop IR already
            from pto_jit.ir.text import to_text  # few kernels need it

            return ("__pto_built__", to_text(value.__pto_built__))
        return self._instance(value, kind)

    def _function(self, fn: types.FunctionType) -> Any:
        """A Python function: its code, defaults, captured values and globals."""
        name = getattr(fn, "__pto_builtin__", None)
        if isinstance(name, str):
            return ("pl", name)
        module = str(fn.__globals__.get("__name__") or "")
        # a name says what a function of a module is, not what one of a factory's results or one of its lambdas is
        if module.split(".")[0] in _KNOWN_ROOTS and "<" not in fn.__qualname__:
            return ("known", module, fn.__qualname__)
        if fn is not self.kept[0]:
            self.guards.append(("function", fn, "__code__", fn.__code__))
            # what has no default cannot lose it, and a new one changes no call that was complete without it
            for name in ("__defaults__", "__kwdefaults__"):
                if getattr(fn, name) is not None:
                    self.guards.append(("function", fn, name, getattr(fn, name)))
        node = _source(fn)
        if node is not None:
            code, names = _normalised(node)
        else:
            code, names = _code(fn.__code__), tuple(sorted(_global_names(fn.__code__)))
        free = fn.__code__.co_freevars
        captured = [self._cell(n, c) for n, c in zip(free, fn.__closure__ or (), strict=True)]
        globals_ = [self._global(fn.__globals__, n, node is not None) for n in names if n not in free]
        defaults = self.value(fn.__defaults__), self.value(tuple((fn.__kwdefaults__ or {}).items()))
        through = self._attributes(fn, names)
        return ("function", code, *defaults, tuple(captured), tuple(g for g in globals_ if g is not None), through)

    def _attributes(self, fn: types.FunctionType, names: tuple[str, ...]) -> Any:
        """What a function may use of the modules it names: `settings.SCALE` is a global, too."""
        mentioned = _global_names(fn.__code__)
        around = [fn.__globals__.get(n) for n in names]
        around += [_contents(c) for c in fn.__closure__ or ()]
        found: list[Any] = []
        modules: list[types.ModuleType] = [v for v in around if isinstance(v, types.ModuleType)]
        seen: set[int] = set()
        while modules:
            module = modules.pop()
            if id(module) in seen or module.__name__.split(".")[0] in _KNOWN_ROOTS:
                continue
            seen.add(id(module))
            container = vars(module)
            for name in sorted(mentioned & container.keys()):
                found.append((module.__name__, self._global(container, name, True)))
                if isinstance(container[name], types.ModuleType):
                    modules.append(container[name])
        return tuple(found)

    def _cell(self, name: str, cell: types.CellType) -> Any:
        value = _contents(cell)
        self.guards.append(("cell", cell, name, value))
        return (name, "empty" if value is MISSING_NAME else self.value(value))

    def _global(self, container: dict[str, Any], name: str, certain: bool) -> Any:
        """The value of a global; `certain`: the name is one, and not perhaps an attribute's."""
        value = container.get(name, MISSING_NAME)
        if value is MISSING_NAME and not certain and name not in BUILTINS:
            return None
        self.guards.append(("global", container, name, value))
        return (name, ("builtin", name) if value is MISSING_NAME else self.value(value))

    def _class(self, cls: type) -> Any:
        if (cls.__module__ or "").split(".")[0] in _KNOWN_ROOTS or not cls.__flags__ & _HEAP_TYPE:
            return ("class", cls.__module__, cls.__qualname__)
        self._watched(cls)
        members: list[Any] = []
        for name, member in sorted(vars(cls).items()):
            if name.startswith("__annotat"):  # Python 3.14 makes annotations by a function, which has no source
                continue
            if isinstance(member, (types.FunctionType, staticmethod, classmethod, property)):
                if _has_source(member):
                    members.append((name, self.value(member)))
            elif not name.startswith("__") and not isinstance(member, types.MemberDescriptorType):
                members.append((name, self.value(member)))
        bases = tuple(self.value(b) for b in cls.__bases__ if b is not object)
        return ("class", cls.__module__, cls.__qualname__, bases, tuple(members))

    def _instance(self, value: Any, kind: type) -> Any:
        slots = slots_of(kind)
        if dataclasses.is_dataclass(value):
            names = [f.name for f in dataclasses.fields(value)]
        else:
            names = [*getattr(value, "__dict__", {}), *slots]
        self._watched(value, slots)
        if not isinstance(value, _UNCHANGING):
            self.mutable |= any(not base.__flags__ & _HEAP_TYPE for base in kind.__mro__ if base is not object)
        parts = tuple((n, self.value(getattr(value, n))) for n in names if hasattr(value, n))
        if not parts and not hasattr(value, "__dict__") and not any("__slots__" in vars(b) for b in kind.__mro__):
            self.mutable |= not isinstance(value, _UNCHANGING)
            return self._opaque(value, kind)
        return ("object", self.value(kind), parts)

    def _opaque(self, value: Any, kind: type) -> Any:
        """An object of a C class: what pickle would keep of it (the fields of named tuples, patterns, dates)."""
        if kind is not object:
            try:
                reduced = value.__reduce_ex__(4)
            except Exception:  # whatever its class raises: it cannot be pickled
                reduced = None
            if reduced is not None:
                return ("reduced", kind.__module__, kind.__qualname__, self.value(reduced))
        self.local = True
        return ("opaque", kind.__module__, kind.__qualname__, id(value))  # nothing to compare but itself


def _has_source(member: Any) -> bool:
    fn = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    return isinstance(fn, types.FunctionType) and _source(fn) is not None


def _source(fn: types.FunctionType) -> FunctionNode | None:
    """The syntax tree of a function, None when there is no source."""
    try:
        return locate(fn).node
    except CompilationError as error:
        if error.code != "PTO-S001":
            raise
        return None


def _normalised(node: FunctionNode) -> tuple[str, tuple[str, ...]]:
    """A digest of the syntax tree without places, the function's name, its annotations and its docstring; and the
    names it takes from around it; kept with the node."""
    found = node.__dict__.get("_normalised")
    if found is None:
        body = node.body if isinstance(node.body, list) else [node.body]
        first = body[0] if body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            body = body[1:]
        parts = [type(node).__name__, ast.dump(_bare(node.args)), *(ast.dump(b) for b in body)]
        found = hashlib.sha256("\n".join(parts).encode()).hexdigest(), tuple(sorted(free_names(node)))
        node.__dict__["_normalised"] = found
    return found


def _bare(args: ast.arguments) -> ast.arguments:
    """Parameters without annotations and defaults: those are values, compared as such."""

    def plain(a: ast.arg | None) -> ast.arg | None:
        return None if a is None else ast.arg(a.arg)

    return ast.arguments(
        posonlyargs=[ast.arg(a.arg) for a in args.posonlyargs],
        args=[ast.arg(a.arg) for a in args.args],
        vararg=plain(args.vararg),
        kwonlyargs=[ast.arg(a.arg) for a in args.kwonlyargs],
        kw_defaults=[],
        kwarg=plain(args.kwarg),
        defaults=[],
    )


def _code(code: types.CodeType) -> Any:
    """The content of a code object, for functions without source."""
    constants = tuple(_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts)
    return (code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names

# SPDX-License-Identifier: MIT
"""Callables are identified by content: never by name, always by what they capture and use."""

from __future__ import annotations

import dataclasses
import enum
import functools
import linecache
import operator
from typing import Any

import numpy as np

import pto_jit.language as pl
from pto_jit.bench.kernels.attention import turned
from pto_jit.codegen.fingerprint import fingerprint, holds

SCALE = 2
HELPERS = {"double": lambda v: v * 2}


def digest(fn: Any) -> str:
    return fingerprint(fn).digest


def make(k):
    def f(v):
        return v * k

    return f


def scaled(v):
    return v * SCALE


def uses_scaled(v):
    return scaled(v) + 1


def from_text(name: str, text: str, scope: dict[str, Any] | None = None):
    filename = f"<{name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    scope = {"pl": pl, **(scope or {})}
    exec(compile(text, filename, "exec"), scope)
    return scope["f"]


def test_closures_of_one_factory_differ_by_what_they_capture():
    assert digest(make(2)) == digest(make(2)) != digest(make(3))
    assert digest(make(2)) != digest(make(2.0))
    assert digest(make(0.0)) != digest(make(-0.0))
    assert digest(make((1, 2))) != digest(make([1, 2]))
    assert digest(make(pl.f32)) != digest(make(pl.f16))
    assert digest(make("a")) != digest(make(b"a"))
    assert digest(make(True)) != digest(make(1))


def test_places_names_comments_and_docstrings_do_not_count():
    a = from_text("a", "def f(v):\n    return v + 1\n")
    b = from_text("b", "\n\n# words\ndef f(v):\n    'doc'\n    return (v  +  1)  # more\n")
    c = from_text("c", "def f(v: int) -> int:\n    return v + 1\n")
    assert digest(a) == digest(b) == digest(c)
    assert digest(a) != digest(from_text("d", "def f(v):\n    return v + 2\n"))


def test_defaults_and_keyword_defaults_count():
    texts = ["def f(v, k=1):\n    return v", "def f(v, k=2):\n    return v", "def f(v, *, k=1):\n    return v",
             "def f(v, *, k=2):\n    return v"]  # fmt: skip
    assert len({digest(from_text(str(i), t)) for i, t in enumerate(texts)}) == 4


def test_globals_count_through_the_functions_that_use_them(monkeypatch):
    before, used = digest(scaled), digest(uses_scaled)
    other = digest(make(2))
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert digest(scaled) != before and digest(uses_scaled) != used and digest(make(2)) == other
    monkeypatch.setitem(globals(), "SCALE", 2)
    assert digest(scaled) == before and digest(uses_scaled) == used


def test_a_rebound_helper_is_seen(monkeypatch):
    used = digest(uses_scaled)
    monkeypatch.setitem(globals(), "scaled", lambda v: v * 7)
    assert digest(uses_scaled) != used


def test_a_rebound_cell_is_seen():
    k = 1

    def f(v):
        return v + k

    def change():
        nonlocal k
        k += 1

    first = fingerprint(f)
    assert holds(first.guards)
    change()
    assert not holds(first.guards)
    assert digest(f) != first.digest


def test_guards_name_every_global_and_cell():
    first = fingerprint(uses_scaled)
    names = {(kind, name) for kind, _, name, _ in first.guards}
    assert {("global", "scaled"), ("global", "SCALE")} <= names
    assert {(kind, name) for kind, _, name, _ in fingerprint(make(2)).guards} == {("cell", "k")}
    assert fingerprint(make(2)).guards[0][3] == 2


def test_guards_say_what_lists_and_dicts_hold():
    def f(v):
        return HELPERS["double"](v)

    first = fingerprint(f)
    assert not first.mutable and holds(first.guards)
    HELPERS["other"] = lambda v: v
    try:
        assert not holds(first.guards) and digest(f) != first.digest
    finally:
        del HELPERS["other"]


def test_recursive_and_mutually_recursive_functions_end():
    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    assert digest(even) == digest(even) != digest(odd)


def test_partials_methods_instances_builtins_and_operators():
    class A:
        def __init__(self, k):
            self.k = k

        def m(self, v):
            return v * self.k

        def __call__(self, v):
            return v + self.k

    assert digest(functools.partial(make(1), 2)) != digest(functools.partial(make(1), 3))
    assert digest(A(1).m) == digest(A(1).m) != digest(A(2).m)
    assert digest(A(1)) == digest(A(1)) != digest(A(2))
    assert digest(operator.add) != digest(operator.mul) != digest(max)
    assert digest(pl.exp) != digest(pl.log)
    assert digest(functools.partial(operator.mul, 2)) != digest(functools.partial(operator.mul, 3))


def test_classes_differ_by_their_methods():
    def make_class(k):
        class A:
            def m(self, v):
                return v + k

        return A

    assert digest(make_class(1)) == digest(make_class(1)) != digest(make_class(2))


class Mode(enum.Enum):
    A = 1
    B = 2


@dataclasses.dataclass(frozen=True)
class Config:
    block: int
    mode: Mode


def test_enums_dataclasses_modules_and_arrays():
    assert digest(make(Mode.A)) != digest(make(Mode.B))
    assert digest(make(Config(1, Mode.A))) == digest(make(Config(1, Mode.A))) != digest(make(Config(2, Mode.A)))
    assert digest(make(np)) != digest(make(pl))
    assert digest(make(np.arange(3))) == digest(make(np.arange(3))) != digest(make(np.arange(1, 4)))
    assert not fingerprint(make(Config(1, Mode.A))).mutable and not fingerprint(make({1})).mutable
    assert not fingerprint(make(([1], {2: 3}))).mutable and fingerprint(make([np.arange(3)])).mutable


def test_an_undefined_global_that_appears_is_seen(monkeypatch):
    def f(v):
        return not_yet_defined + v  # noqa: F821

    before = digest(f)
    monkeypatch.setitem(globals(), "not_yet_defined", 5)
    assert digest(f) != before


def test_functions_without_source_are_identified_by_their_code():
    def of(text):
        scope: dict[str, Any] = {}
        exec(text, scope)
        return scope["f"]

    assert digest(of("def f(v): return v + 1")) == digest(of("def f(v): return v + 1"))
    assert digest(of("def f(v): return v + 1")) != digest(of("def f(v): return v + 2"))


def test_a_second_look_is_cheap_and_equal():
    f = make(3)
    assert fingerprint(f) is fingerprint(f)


def test_results_of_a_factory_of_the_package_differ_by_what_they_capture() -> None:
    plain, causal = turned(causal=False), turned(causal=True)
    assert fingerprint(plain.__pto_jit__).digest != fingerprint(causal.__pto_jit__).digest
    assert fingerprint(turned(causal=True).__pto_jit__).digest == fingerprint(causal.__pto_jit__).digest

# SPDX-License-Identifier: MIT
"""Which edits make which kernels new: exactly those that use what was edited, in memory and on disk."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib.util
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from tests.codegen.writer import defined

X = np.array([1, 2, 3], np.float32)


class Edit:
    """A kernel that uses something, and ways to change that and to change it back."""

    def __init__(self, kernel: Any, change: Callable[[], Any], undo: Callable[[], Any], *args: Any) -> None:
        self.kernel, self.change, self.undo, self.args = kernel, change, undo, args


def setting(owner: Any, name: str, value: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    own = name in vars(owner) or hasattr(type(owner), "__slots__") or isinstance(owner, types.FunctionType)
    before = getattr(owner, name)
    undo = (lambda: setattr(owner, name, before)) if own else (lambda: delattr(owner, name))
    return lambda: setattr(owner, name, value), undo


def item(owner: Any, key: Any, value: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    before = owner[key]
    return lambda: owner.__setitem__(key, value), lambda: owner.__setitem__(key, before)


FACTOR = 2
TABLE = {"factor": 2, "other": [1, 2]}


def global_helper(v):
    return v * FACTOR


def default_helper(v, k=2, *, w=0):
    return v * k + w


@functools.lru_cache
def cached_number(n):
    return n * FACTOR


@dataclasses.dataclass
class Settings:
    factor: float = 2.0
    unused: int = 0


class Scale:
    factor = 2.0

    def __init__(self) -> None:
        self.offset = 0.0

    def apply(self, v):
        return v * self.factor + self.offset

    @property
    def twice(self):
        return 2

    @staticmethod
    def fixed(v):
        return v * 2

    def __call__(self, v):
        return self.apply(v)


class Mode(enum.Enum):
    DOUBLE = 2
    TRIPLE = 3


LIBRARY = types.ModuleType("library_of_this_test")
defined("INNER = 2\ndef scale(v):\n    return v * INNER\ndef unused(v):\n    return v\n", "<library>", vars(LIBRARY))


def captured() -> Edit:
    k = 2

    @pto.jit
    def kernel(x):
        return x * k

    def rebind(value):
        nonlocal k
        k = value

    return Edit(kernel, lambda: rebind(3), lambda: rebind(2))


def captured_by_a_helper() -> Edit:
    k = 2

    def helper(v):
        return v * k

    def rebind(value):
        nonlocal k
        k = value

    @pto.jit
    def kernel(x):
        return (lambda v: helper(v))(x)

    return Edit(kernel, lambda: rebind(3), lambda: rebind(2))


def helper_rebound() -> Edit:
    def helper(v):
        return v * 2

    @pto.jit
    def kernel(x):
        return helper(x)

    def rebind(value):
        nonlocal helper
        helper = value

    before = helper
    return Edit(kernel, lambda: rebind(lambda v: v * 3), lambda: rebind(before))


def helper_code() -> Edit:
    def helper(v):
        return v * 2

    def other(v):
        return v * 3

    @pto.jit
    def kernel(x):
        return helper(x)

    return Edit(kernel, *setting(helper, "__code__", other.__code__))


def made(use: Callable[[Any], Any], *change: Any) -> Edit:
    return Edit(pto.jit(use), *change)


def object_argument(attribute: str, value: Any) -> Edit:
    scale = Scale()

    @pto.jit
    def kernel(x, scale):
        return scale.apply(x) * scale.twice / 2

    return Edit(kernel, *setting(scale, attribute, value), scale)


def method_of_self() -> Edit:
    class Layer:
        def __init__(self) -> None:
            self.k = 2

        @pto.jit
        def forward(self, x):
            return x * self.k

    layer = Layer()
    return Edit(layer.forward, *setting(layer, "k", 3))


def bound_method() -> Edit:
    scale = Scale()
    kernel = pto.jit(lambda x, f: f(x))
    return Edit(kernel, *setting(scale, "offset", 5.0), scale.apply)


def callable_instance() -> Edit:
    scale = Scale()
    return Edit(pto.jit(lambda x, f: f(x)), *setting(scale, "factor", 3.0), scale)


def captured_instance() -> Edit:
    scale = Scale()
    return made(lambda x: scale.apply(x), *setting(scale, "offset", 1.0))


def dataclass_argument() -> Edit:
    settings = Settings()
    return Edit(pto.jit(lambda x, s: x * s.factor), *setting(settings, "factor", 3.0), settings)


def dataclass_captured() -> Edit:
    settings = Settings()
    return made(lambda x: x * settings.factor, *setting(settings, "factor", 3.0))


def partial_keywords() -> Edit:
    part = functools.partial(default_helper, k=2)
    return made(lambda x: part(x), *item(part.keywords, "k", 3))


def captured_list() -> Edit:
    numbers = [2, 3]
    return made(lambda x: x * numbers[0], *item(numbers, 0, 5))


def captured_array() -> Edit:
    weights = np.array([2, 3])
    return made(lambda x: x * int(weights[0]), *item(weights, 0, 5))


def nested_list_in_a_tuple() -> Edit:
    numbers: tuple[Any, ...] = (1, [2])
    return Edit(pto.jit(lambda x, n: x * n[1][0]), *item(numbers[1], 0, 5), numbers)


def dictionary_argument() -> Edit:
    options = {"k": 2}
    return Edit(pto.jit(lambda x, o: x * o["k"]), *item(options, "k", 3), options)


EDITS: dict[str, Callable[[], Edit]] = {
    "a captured value": captured,
    "a value captured by a helper": captured_by_a_helper,
    "a helper rebound": helper_rebound,
    "a helper's code": helper_code,
    "a global": lambda: made(lambda x: x * FACTOR, *item(globals(), "FACTOR", 3)),
    "a global of a helper": lambda: made(lambda x: global_helper(x), *item(globals(), "FACTOR", 3)),
    "a helper's default": lambda: made(lambda x: default_helper(x), *setting(default_helper, "__defaults__", (3,))),
    "a helper's keyword default": lambda: made(
        lambda x: default_helper(x), *setting(default_helper, "__kwdefaults__", {"w": 1})),
    "an item of a global dict": lambda: made(lambda x: x * TABLE["factor"], *item(TABLE, "factor", 3)),
    "an item of a list in a global dict": lambda: made(lambda x: x * TABLE["other"][1], *item(TABLE["other"], 1, 3)),
    "a captured list": captured_list,
    "a captured array": captured_array,
    "a list in a tuple argument": nested_list_in_a_tuple,
    "a dict argument": dictionary_argument,
    "a field of an object argument": lambda: object_argument("offset", 5.0),
    "a field that hides a class attribute": lambda: object_argument("factor", 3.0),
    "a class attribute": lambda: Edit(
        pto.jit(lambda x, s: s.apply(x)), *setting(Scale, "factor", 3.0), Scale()),
    "a method of a class": lambda: Edit(
        pto.jit(lambda x, s: s.apply(x)), *setting(Scale, "apply", lambda self, v: v * 7), Scale()),
    "a property of a class": lambda: Edit(
        pto.jit(lambda x, s: x * s.twice), *setting(Scale, "twice", property(lambda self: 5)), Scale()),
    "a field of self": method_of_self,
    "the object of a bound method": bound_method,
    "a field of a callable argument": callable_instance,
    "a field of a captured object": captured_instance,
    "a field of a dataclass argument": dataclass_argument,
    "a field of a captured dataclass": dataclass_captured,
    "the keywords of a partial": partial_keywords,
    "a function of an imported module": lambda: made(
        lambda x: LIBRARY.scale(x), *setting(LIBRARY, "scale", lambda v: v * 3)),
    "a global of an imported module": lambda: made(lambda x: LIBRARY.scale(x), *setting(LIBRARY, "INNER", 3)),
    "a kernel that is called": lambda: made(lambda x: INNER_KERNEL(x), *item(globals(), "FACTOR", 3)),
}  # fmt: skip

INNER_KERNEL = pto.jit(lambda x: x * FACTOR)


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_makes_exactly_the_kernel_new_that_uses_it_and_undoing_it_finds_the_old_one(what: str) -> None:
    edit = EDITS[what]()
    unrelated = pto.jit(lambda x: x + 1)
    count = lambda: (len(edit.kernel.specializations()), len(unrelated.specializations()))  # noqa: E731

    def call() -> list[float]:
        unrelated(X)
        return edit.kernel(X, *edit.args).tolist()

    before = [call(), call()]
    assert count() == (1, 1)
    edit.change()
    try:
        after = [call(), call()]
        expected = edit.kernel.interpret(X, *edit.args).tolist()
        assert count() == (2, 1)
    finally:
        edit.undo()
    assert [call(), call()] == before and count() == (2, 1), "the first version is still there"
    assert after == [expected, expected] and expected != before[0]
    assert edit.kernel.specializations()[1].reason


def test_edits_of_what_a_kernel_does_not_use_change_nothing() -> None:
    settings = Settings()
    kernel = pto.jit(lambda x: LIBRARY.scale(x) * FACTOR + len(TABLE["other"]) * settings.factor)
    kernel(X)
    undo: list[Callable[[], Any]] = []
    try:
        for change, back in (
            setting(LIBRARY, "unused", lambda v: v * 9),
            setting(Scale, "factor", 9.0),
            item(globals(), "captured", None),
            setting(default_helper, "__defaults__", (9,)),
        ):
            change()
            undo.append(back)
            kernel(X)
        FACTOR_AGAIN = FACTOR
        globals()["FACTOR"] = int(str(FACTOR_AGAIN))
        kernel(X)
    finally:
        for back in undo:
            back()
    assert len(kernel.specializations()) == 1


def test_a_new_object_with_equal_content_is_no_reason_to_compile() -> None:
    kernel = pto.jit(lambda x, s, f, d: f(x) * s.factor + d["k"][0])
    for _ in range(3):
        kernel(X, Settings(3.0), functools.partial(default_helper, k=4), {"k": [1]})
    kernel(X, Settings(3.0), lambda v: v * 4, {"k": [1]})
    kernel(X, Settings(3.0), (lambda n: lambda v: v * n)(4), {"k": [1]})
    assert len(kernel.specializations()) == 3, "one for the partial, one for each of two different functions"


# -- on disk ----------------------------------------------------------------------------------------------------

HELPERS = '''
LIMIT = 4

def clamp(v, low=-1):
    """Words."""
    return v * LIMIT + low

def other(v):
    return v - 1
'''

KERNELS = """
import dataclasses
import functools
import operator
import pto_jit as pto
import helpers_of_this_test as helpers

SHAPE = (2, 3)

@dataclasses.dataclass(frozen=True)
class Config:
    k: int = 2
    names: frozenset = frozenset({"a", "b", "c"})

@pto.jit
def plain(x):
    return x + 1

@pto.jit
def by_module(x):
    return helpers.clamp(x)

@pto.jit
def by_other(x):
    return helpers.other(x)

def make(config):
    @pto.jit
    def kernel(x):
        return x * config.k + len(config.names)
    return kernel

by_config = make(Config())

by_partial = pto.jit(functools.partial(lambda k, x: x * k, 3).func)

@pto.jit
def by_shape(x):
    return x * SHAPE[1]

@pto.jit
def by_inner(x):
    return by_shape(plain(x))

@pto.jit
def by_default(x, f=operator.mul, k: pto.language.constexpr = 5):
    return f(x, k)

ALL = {name: value for name, value in list(globals().items()) if isinstance(value, pto.JitFunction)}
del ALL["by_partial"]
"""

# (what, text to replace, replacement): the kernels that have to be compiled again.
TEXT_EDITS: list[tuple[str, str, str, set[str]]] = [
    ("nothing", "", "", set()),
    ("a comment", "def by_other(x):", "def by_other(x):  # words", set()),
    ("moving everything down", "import dataclasses", "\n\n\nimport dataclasses", set()),
    ("a docstring of a helper", '"""Words."""', '"""Other words."""', set()),
    ("formatting", "return x + 1", "return (x   +\n        1)", set()),
    ("an annotation", "def plain(x):", "def plain(x) -> object:", set()),
    ("the name of a parameter of a helper", "def other(v):\n    return v - 1", "def other(w):\n    return w - 1",
     {"by_other"}),
    ("the body of a kernel", "return x + 1", "return x + 2", {"plain", "by_inner"}),
    ("a global of a helper", "LIMIT = 4", "LIMIT = 5", {"by_module"}),
    ("a default of a helper", "low=-1", "low=-2", {"by_module"}),
    ("a helper", "v - 1", "v - 2", {"by_other"}),
    ("a default of a dataclass", "k: int = 2", "k: int = 3", {"by_config"}),
    ("a member of a frozenset", '"c"})', '"c", "d"})', {"by_config"}),
    ("an item of a tuple", "(2, 3)", "(2, 4)", {"by_shape", "by_inner"}),
    ("a default that is a function", "f=operator.mul", "f=operator.add", {"by_default"}),
    ("a compile-time default", "constexpr = 5", "constexpr = 6", {"by_default"}),
    ("an int that becomes a float", "LIMIT = 4", "LIMIT = 4.0", {"by_module"}),
]  # fmt: skip


def load(directory: Path, name: str, text: str) -> types.ModuleType:
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_editing_a_file_invalidates_exactly_the_kernels_that_use_what_changed(tmp_path: Path) -> None:
    """Every edit is a fresh load of the modules, with kernels that have compiled nothing: what they find is on disk."""
    try:
        for number, (what, old, new, expected) in enumerate([("the first time", "", "", None), *TEXT_EDITS]):
            directory = tmp_path / f"version_{number}"
            assert old in HELPERS or old in KERNELS, what
            load(directory, "helpers_of_this_test", HELPERS.replace(old, new) if old else HELPERS)
            module = load(directory, "kernels_of_this_test", KERNELS.replace(old, new) if old else KERNELS)
            for kernel in module.ALL.values():
                kernel(X)
            compiled = {n for n, k in module.ALL.items() if k.specializations()[0].origin == "compiled"}
            assert compiled == (set(module.ALL) if expected is None else expected), what
    finally:
        sys.modules.pop("helpers_of_this_test", None)
        sys.modules.pop("kernels_of_this_test", None)


DRIVER = """
import json, numpy as np
import kernels_of_this_test as module
x = np.array([1, 2, 3], np.float32)
results = {name: kernel(x).tolist() for name, kernel in module.ALL.items()}
print(json.dumps([{n: k.specializations()[0].origin for n, k in module.ALL.items()}, results]))
"""


def test_another_process_with_another_hash_seed_finds_everything(tmp_path: Path) -> None:
    (tmp_path / "helpers_of_this_test.py").write_text(HELPERS)
    (tmp_path / "kernels_of_this_test.py").write_text(KERNELS)
    (tmp_path / "driver.py").write_text(DRIVER)
    found = []
    for seed in ("1", "2"):
        variables = {**os.environ, "PTO_CACHE_DIR": str(tmp_path / "cache"), "PYTHONHASHSEED": seed,
                     "PYTHONPATH": str(Path(pto.__file__).parents[1])}  # fmt: skip
        done = subprocess.run([sys.executable, str(tmp_path / "driver.py")], env=variables, capture_output=True,
                              text=True, timeout=120, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    (first, results), (second, again) = found
    assert set(first.values()) == {"compiled"} and set(second.values()) == {"disk"}
    assert results == again

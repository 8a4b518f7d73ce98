# SPDX-License-Identifier: MIT
"""Which entry a call reaches, and when it takes the slow path."""

from __future__ import annotations

import enum
import gc
import types
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_jit.runtime import ABSENT, Dispatcher, Entry, key_of

SLOW = "slow path"


def dispatcher(*parameters: str, **options: Any) -> Dispatcher:
    return Dispatcher(parameters, lambda args, kwargs: (SLOW, args, kwargs), **options)


def is_slow(answer: Any) -> bool:
    return isinstance(answer, tuple) and answer[:1] == (SLOW,)


def constant(make: Any, value: Any) -> Entry:
    """An entry that returns `value`, to tell entries apart."""
    return make("nothing", ("value", value))


PLANS = {"tensor": "tensor", "int": "int", "float": "float", "scalar": "scalar", "value": "static", "object": "static"}


def plan(*args: Any) -> list[str]:
    return [PLANS[key_of(a)[0]] for a in args]


# ---- keys ----


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(3, np.float32), np.zeros(3, np.float64)),
        (np.zeros(3, np.float32), np.zeros((3, 1), np.float32)),
        (np.zeros((3, 4), np.float32), np.zeros((3, 8), np.float32)[:, :4]),
        (np.zeros((3, 4), np.float32), np.zeros((4, 3), np.float32).T),
        (np.zeros((3, 8), np.float32)[:, :4], np.zeros((3, 8), np.float32)[:, ::2]),
        (np.zeros((3, 8), np.float32)[:, :4], np.zeros((3, 4), np.float32)[::-1]),
        (np.zeros(3, np.int16), np.zeros(3, np.float16)),
        (np.zeros(3, np.float16), np.zeros(3, ml_dtypes.bfloat16)),
        (np.zeros(3, np.uint8), np.zeros(3, np.bool_)),
        (np.zeros(()), 0.0),
        (np.zeros(()), np.float64(0)),
        (1, 1.0),
        (1, True),
        (True, False),
        (None, False),
        (1, np.int64(1)),
        (np.int32(1), np.int64(1)),
        (1.0, np.float64(1)),
        (np.float16(1), ml_dtypes.bfloat16(1)),
        ("tanh", "none"),
        (len, sum),
        (np.float32, np.float64),
    ],
)
def test_different_kinds_of_arguments_reach_different_entries(make: Any, one: Any, other: Any) -> None:
    d = dispatcher("x")
    assert d.register((one,), constant(make, "one"), plan(one))
    assert d(one) == "one"
    assert is_slow(d(other))
    assert d.register((other,), constant(make, "other"), plan(other))
    assert (d(one), d(other)) == ("one", "other")


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(3, np.float32), np.ones(1000, np.float32)),
        (np.zeros((3, 8))[:, :4], np.zeros((30, 80))[::3, 5:9]),
        (np.zeros((4, 3)).T, np.zeros((5, 9))[:, ::-2]),
        (1, -(2**63)),
        (1.5, float("nan")),
        (np.float32(1), np.float32(2)),
        ("a" * 50, "".join(["a"] * 50)),
        (np.zeros(3), np.zeros(3).view(np.memmap)),
        (np.zeros(3, np.longlong), np.zeros(3, np.int64)),
        (np.longlong(3), np.int64(3)),
    ],
)
def test_arguments_of_one_kind_reach_one_entry(make: Any, one: Any, other: Any) -> None:
    d = dispatcher("x")
    assert d.register((one,), constant(make, "hit"), plan(one))
    assert d(other) == "hit"


def test_a_read_only_array_is_another_kind(make: Any) -> None:
    d = dispatcher("x")
    x = np.zeros(3)
    d.register((x,), constant(make, "writable"), ["tensor"])
    assert is_slow(d(read_only(np.zeros(3))))
    d.register((read_only(np.zeros(3)),), constant(make, "read-only"), ["tensor"])
    assert d(x) == "writable"
    assert d(read_only(np.ones(4))) == "read-only"


def test_the_layout_class_follows_numpys_flags() -> None:
    base = np.zeros((4, 6), np.float32)
    layouts = {
        "packed": (base, 0),
        "columns cut": (base[:, :5], 1),
        "rows skipped": (base[::2], 1),
        "one row of many": (base[1:2, :3], 0),
        "one column": (base[:, :1], 1),
        "every second column": (base[:, ::2], 2),
        "transposed": (base.T, 2),
        "rows reversed": (base[::-1], 2),
        "no rows": (base[:0, ::2], 0),
        "no columns": (base[:, 3:3], 0),
        "broadcast rows": (np.broadcast_to(base[0], (3, 6)), 1),
        "broadcast scalar": (np.broadcast_to(np.float32(1), (3, 6)), 2),
        "rank 0": (np.zeros((), np.float32), 0),
        "field of a record": (np.zeros(4, [("a", "f4"), ("b", "f4")])["b"], 2),
    }
    for name, (array, layout) in layouts.items():
        key = key_of(array)
        assert key[3] == layout, name
        assert (layout == 0) == array.flags.c_contiguous, name
        assert key[4] == array.flags.writeable, name


@pytest.mark.parametrize(
    "strange",
    [
        np.zeros(3, ">f4"),
        np.zeros(9, np.uint8)[1:].view(np.float64),
        np.zeros(3, np.complex64),
        np.zeros(3, "U3"),
        np.zeros(3, object),
        np.zeros(3, [("a", "f4")]),
        np.zeros(3, np.longdouble),
        np.zeros(3, "M8[s]"),
        2**63,
        -(2**63) - 1,
        np.complex64(1),
        np.longdouble(1),
        np.str_("a"),
    ],
)
def test_what_kernels_cannot_take_always_goes_the_slow_way(make: Any, strange: Any) -> None:
    d = dispatcher("x")
    assert key_of(strange) is None
    assert d.register((strange,), constant(make, "never"), ["static"]) is False
    assert d(strange) == (SLOW, (strange,), None)
    assert d.entries() == []


@pytest.mark.parametrize("foreign", [b"bytes", bytearray(3), memoryview(b"abc")], ids=lambda x: type(x).__name__)
def test_objects_with_the_buffer_protocol_are_never_compile_time_values(make: Any, foreign: Any) -> None:
    d = dispatcher("x")
    assert d.register((foreign,), constant(make, "never"), ["static"]) is False
    assert is_slow(d(foreign))


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


def test_enumerators_and_objects_are_told_apart_by_identity(make: Any) -> None:
    d = dispatcher("x")
    d.register((Colour.RED,), constant(make, "red"), ["static"])
    assert d(Colour.RED) == "red"
    assert is_slow(d(Colour.BLUE))
    assert is_slow(d(1))


def test_a_compile_time_argument_is_kept_alive_by_its_entry(make: Any) -> None:
    class Thing:
        pass

    thing = Thing()
    alive = weakref.ref(thing)
    d = dispatcher("x")
    d.register((thing,), constant(make, "thing"), ["static"])
    del thing
    gc.collect()
    assert alive() is not None  # else its address could come back as another object's
    d.clear()
    assert alive() is None


def test_static_parameters_are_keyed_by_value(make: Any) -> None:
    d = dispatcher("n", static=["n"])
    for value in (1, 2, 1.0, -0.0, 0.0, float("nan"), "one", True, 10**30, None, (1, 2)):
        d.register((value,), constant(make, repr(value)), ["static"])
    assert d(1) == "1"
    assert d(1.0) == "1.0"
    assert d(True) == "True"
    assert d(0.0) == "0.0"
    assert d(-0.0) == "-0.0"
    assert d(float("nan")) == "nan"
    assert d(10**15 * 10**15) == repr(10**30)
    assert d("".join(["o", "ne"])) == "'one'"
    assert is_slow(d(3))
    assert is_slow(d(np.int64(1)))
    assert is_slow(d(np.zeros(3)))


def test_a_hundred_specialisations_are_found_again(make: Any) -> None:
    d = dispatcher("n", "x", static=["n"])
    x = np.zeros(3)
    for n in range(100):
        d.register((n, x), constant(make, n), ["static", "tensor"])
    assert [d(n, x) for n in range(100)] == list(range(100))
    assert len(d.entries()) == 100


def test_the_number_of_entries_is_limited(make: Any) -> None:
    d = dispatcher("f", limit=10)
    functions = [lambda: 0 for _ in range(25)]
    for f in functions:
        d.register((f,), constant(make, id(f)), ["static"])
        assert d(f) == id(f)
        assert len(d.entries()) <= 10


# ---- how arguments are given ----


def test_keywords_defaults_and_order(make: Any) -> None:
    d = dispatcher("a", "b", "c", positional=2, defaults={"b": 7, "c": 9})
    d.register((1, 2, 3), make("echo", ("int", "int")), ["int"] * 3)
    # echo(count, ...) returns `count` of the slots after the first
    assert d(2, 5) == (5, 9)
    assert d(2) == (7, 9)
    assert d(a=2, b=4) == (4, 9)
    assert d(2, c=1) == (7, 1)
    assert d(c=1, a=2, b=3) == (3, 1)
    assert d(2, **{"".join(["b"]): 6}) == (6, 9)


def test_calls_that_do_not_fit_the_signature_go_the_slow_way_unchanged(make: Any) -> None:
    d = dispatcher("a", "b", "c", positional=2, positional_only=1, defaults={"c": 9})
    d.register((1, 2, 3), make("nothing"), ["int"] * 3)
    assert d(1, 2) is None
    assert d(1) == (SLOW, (1,), None)
    assert d() == (SLOW, (), None)
    assert d(1, 2, 3) == (SLOW, (1, 2, 3), None)
    assert d(1, 2, d=3) == (SLOW, (1, 2), {"d": 3})
    assert d(1, 2, b=3) == (SLOW, (1, 2), {"b": 3})
    assert d(a=1, b=2) == (SLOW, (), {"a": 1, "b": 2})


def test_surplus_positionals_are_part_of_the_key(make: Any) -> None:
    d = dispatcher("a", "k", positional=1, varargs=True, defaults={"k": 100}, static=["k"])
    d.register((1, 100), constant(make, "none"), ["int", "static"])
    d.register((1, 2, 3, 100), constant(make, "two ints"), ["int", "int", "int", "static"])
    d.register((1, 2.5, 100), constant(make, "a float"), ["int", "float", "static"])
    assert d(5) == "none"
    assert d(5, 6, 7) == "two ints"
    assert d(5, 0.5) == "a float"
    assert d(5, 6, 7, k=100) == "two ints"
    assert is_slow(d(5, 6, 7, k=101))
    assert is_slow(d(5, 6))


def test_many_arguments_and_many_slots(make: Any) -> None:
    names = [f"p{i}" for i in range(80)]
    d = dispatcher(*names)
    arrays = [np.full((1, 2, i + 1), i) for i in range(79)]
    results = ("int",) * (79 * 7)
    d.register((79 * 7, *arrays), make("echo", results), ["int"] + ["tensor"] * 79)
    slots = d(79 * 7, *arrays)
    for i, array in enumerate(arrays):
        assert slots[7 * i : 7 * i + 7] == (array.ctypes.data, 1, 2, i + 1, *array.strides)


def test_no_arguments_at_all(make: Any) -> None:
    d = dispatcher()
    assert is_slow(d())
    d.register((), constant(make, "hit"), [])
    assert d() == "hit"


# ---- guards ----


def test_an_entry_is_used_only_while_its_guards_hold(make: Any) -> None:
    names: dict[str, Any] = {"f": len}
    d = dispatcher("x")
    d.register((1,), constant(make, "len"), ["int"], [(names, "f", len), (names, "min", ABSENT)])
    assert d(1) == "len"
    names["other"] = 1
    assert d(1) == "len"
    names["f"] = sum
    assert is_slow(d(1))
    d.register((1,), constant(make, "sum"), ["int"], [(names, "f", sum)])
    assert d(1) == "sum"
    names["f"] = len
    assert d(1) == "len"  # both are kept
    names["min"] = max
    assert is_slow(d(1))
    del names["min"]
    assert d(1) == "len"
    del names["f"]
    assert is_slow(d(1))


def test_guards_on_cells_attributes_and_calls(make: Any) -> None:
    cell = types.CellType(5)
    thing = types.SimpleNamespace(size=4)
    answers = [True]
    d = dispatcher("x")
    guards = [(cell, None, cell.cell_contents), (thing, "size", thing.size), (lambda: answers[0], (), True)]
    d.register((1,), constant(make, "hit"), ["int"], guards)
    assert d(1) == "hit"
    cell.cell_contents = 6
    assert is_slow(d(1))
    cell.cell_contents = 5
    thing.size = 3
    assert is_slow(d(1))
    thing.size = 4
    answers[0] = False
    assert is_slow(d(1))
    answers[0] = True
    assert d(1) == "hit"
    del cell.cell_contents
    assert is_slow(d(1))
    cell.cell_contents = 5
    del thing.size
    assert is_slow(d(1))


def test_a_guard_may_want_an_attribute_or_a_cell_to_be_empty(make: Any) -> None:
    cell = types.CellType()
    thing = types.SimpleNamespace()
    d = dispatcher("x")
    d.register((1,), constant(make, "hit"), ["int"], [(cell, None, ABSENT), (thing, "size", ABSENT)])
    assert d(1) == "hit"
    thing.size = 1
    assert is_slow(d(1))
    del thing.size
    cell.cell_contents = 1
    assert is_slow(d(1))


def test_an_exception_in_a_guard_reaches_the_caller(make: Any) -> None:
    d = dispatcher("x")
    d.register((1,), constant(make, "hit"), ["int"], [(lambda: 1 / 0, (), True)])
    with pytest.raises(ZeroDivisionError):
        d(1)


def test_a_guard_may_clear_the_dispatcher_it_belongs_to(make: Any) -> None:
    d = dispatcher("x")

    def clear() -> bool:
        d.clear()
        gc.collect()
        return answer

    for answer in (True, False):
        d.register((1,), constant(make, "hit"), ["int"], [(clear, (), True)])
        assert d(1) == "hit" if answer else is_slow(d(1))
        assert d.entries() == []


def test_stale_entries_of_one_key_do_not_pile_up(make: Any) -> None:
    names: dict[str, Any] = {}
    d = dispatcher("x")
    for i in range(100):
        names["f"] = object()
        d.register((1,), constant(make, i), ["int"], [(names, "f", names["f"])])
        assert d(1) == i
    assert len(d.entries()) <= 16


@pytest.mark.parametrize("guard", [1, (1, 2), ({}, [], 1), (len, 3, 1), (3, None, 4)])
def test_what_is_no_guard_is_refused(make: Any, guard: Any) -> None:
    d = dispatcher("x")
    with pytest.raises(TypeError):
        d.register((1,), make("nothing"), ["int"], [guard])
    assert d.entries() == []


# ---- registering ----


def test_a_plan_must_fit_the_arguments(make: Any) -> None:
    d = dispatcher("x", "y")
    entry = make("nothing")
    for wrong in (["int"], ["int", "float", "int"], ["float", "int"], ["tensor", "int"], ["int", "what"], ["int", 3]):
        with pytest.raises(TypeError):
            d.register((1, 2), entry, wrong)
    with pytest.raises(TypeError):
        d.register((1,), entry, ["int"])
    with pytest.raises(TypeError):
        d.register((1, 2), "no entry", ["int", "int"])
    assert d.entries() == []


def test_an_argument_planned_as_static_takes_no_slot(make: Any) -> None:
    d = dispatcher("n", "unused", "x")
    d.register((1, 2, 3), make("echo", "int"), ["int", "static", "int"])
    assert d(1, 22, 33) == 33


def test_entries_lists_what_was_registered(make: Any) -> None:
    d = dispatcher("x")
    entry, guard = make("nothing"), ({"a": 1}, "a", 1)
    d.register((1,), entry, ["int"], [guard])
    assert d.entries() == [(entry, (guard,))]


def test_a_conversion_of_the_result(make: Any) -> None:
    d = dispatcher("x")
    d.register((1,), constant(make, "hit"), ["int"], (), str.upper)
    assert d(1) == "HIT"


@pytest.mark.parametrize(
    "wrong",
    [
        {"parameters": (1,)},
        {"positional": 3},
        {"positional": -1},
        {"positional_only": 3},
        {"limit": 0},
        {"static": ["q"]},
        {"defaults": {"q": 1}},
        {"defaults": [1]},
    ],
)
def test_a_dispatcher_checks_its_description(wrong: dict[str, Any]) -> None:
    options = {"parameters": ("x", "y")} | wrong
    with pytest.raises((TypeError, ValueError)):
        Dispatcher(slow_path=print, **options)


def test_a_dispatcher_before_init_says_so() -> None:
    with pytest.raises(TypeError, match="not initialised"):
        Dispatcher.__new__(Dispatcher)(1, 2)


def test_extents_that_must_be_equal_are_checked_at_every_call(make: Any) -> None:
    d = dispatcher("n", "x", "y", "k")
    x, y = np.zeros((4, 8)), np.zeros((8, 3), np.float32)
    extents = [(1, 1, 2, 0), (2, 1, 3)]
    assert d.register((1, x, y, 2.0), constant(make, "hit"), ["int", "tensor", "tensor", "float"], (), None, extents)
    assert d(1, x, y, 2.0) == "hit"
    assert d(1, np.zeros((9, 5)), np.zeros((5, 3), np.float32), k=2.0) == "hit"
    wrong = np.zeros((8, 4), np.float32)
    assert d(1, x, wrong, k=2.0) == (SLOW, (1, x, wrong), {"k": 2.0})
    assert is_slow(d(1, x.T.copy(), y, 2.0))


@pytest.mark.parametrize("extent", [(0, 0, 1), (1, 1, 1), (1, -1, 1), (5, 0, 1), (1, 0, 0, 0), (1, 0), 3, ("a", 0, 1)])
def test_what_is_no_extent_is_refused(make: Any, extent: Any) -> None:
    d = dispatcher("n", "x")
    with pytest.raises((TypeError, ValueError)):
        d.register((1, np.zeros(3)), make("nothing"), ["int", "tensor"], extents=[extent])
    assert d.entries() == []


# ---- subclasses, methods, life time ----


class Jitted(Dispatcher):
    def __init__(self) -> None:
        super().__init__(("self", "x"), self.slow)
        self.calls: list[Any] = []

    def slow(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        self.calls.append((args, kwargs))
        return SLOW


VECTORCALL = 1 << 11


def test_a_subclass_is_called_without_building_a_tuple() -> None:
    Jitted()
    assert Jitted.__flags__ & VECTORCALL

    class Wrapped(Dispatcher):
        def __call__(self, *args: Any) -> Any:
            return "wrapped", args

    assert Wrapped(("x",), print)(1) == ("wrapped", (1,))
    assert not Wrapped.__flags__ & VECTORCALL


def test_a_dispatcher_in_a_class_is_a_method(make: Any) -> None:
    class Model:
        forward = Jitted()

    model = Model()
    assert model.forward(3) == SLOW
    assert Model.forward.calls == [((model, 3), None)]
    Model.forward.register((model, 3), constant(make, "hit"), ["static", "int"])
    assert model.forward(4) == "hit"
    bound = model.forward
    assert bound(4) == "hit"
    assert Model().forward(4) == SLOW


def test_a_cycle_through_a_dispatcher_is_collected(make: Any) -> None:
    jitted = Jitted()
    jitted.register((jitted, 1), make("nothing", ("value", jitted)), ["static", "int"], [({"d": jitted}, "d", jitted)])
    gone = weakref.ref(jitted)
    assert jitted(jitted, 1) is jitted
    del jitted
    gc.collect()
    assert gone() is None


def test_calls_leave_reference_counts_as_they_were(make: Any) -> None:
    import sys

    x, fresh = np.zeros(3), object()
    d = dispatcher("x", "o", "s", defaults={"s": "text"})
    d.register((x, fresh, "text"), make("nothing", ("argument", 0)), ["tensor", "static", "static"])
    before = [sys.getrefcount(o) for o in (x, fresh, d, d.entries()[0][0])]
    for _ in range(50):
        assert d(x, fresh) is x
        assert d(x, o=fresh, s="".join(["te", "xt"])) is x
        assert is_slow(d(x, 5))
    assert [sys.getrefcount(o) for o in (x, fresh, d, d.entries()[0][0])] == before


# ---- calls with out= ----


def test_out_is_the_last_argument_of_another_dispatcher(make: Any) -> None:
    into = dispatcher("x", "s", "y")
    d = dispatcher("x", "s", into=into)
    x, y, memory = np.zeros(4, np.float32), np.zeros(4, np.float32), np.zeros(8, np.float32)
    assert is_slow(d(x, 1.0, out=y))
    into.register((x, 1.0, y), constant(make, None), plan(x, 1.0, y), extents=[(0, 0, 4), (2, 0, 4)])
    assert d(x, 2.0, out=y) is y and d(memory[:4], 2.0, out=memory[4:]) is not None
    read_only = y.copy()
    read_only.flags.writeable = False
    for args, given in (
        ((memory[:4], 1.0), {"out": memory[3:7]}), ((memory[3::-1], 1.0), {"out": memory[3:7]}),
        ((memory[:3], 1.0), {"out": y}), ((x, 1), {"out": y}), ((x, 1.0), {"out": y.astype(np.float64)}),
        ((x, 1.0), {"out": read_only}), ((x, 1.0), {"out": [y]}), ((x, 1.0), {"out": None}), ((x,), {"out": y}),
        ((x,), {"s": 1.0, "out": y}), ((x, 1.0), {"to": y}), ((memoryview(x), 1.0), {"out": y}),
    ):  # fmt: skip
        assert is_slow(d(*args, **given)), (args, given)
    assert is_slow(dispatcher("x", "s")(x, 1.0, out=y))
    into.register((memory[:0], 1.0, y), constant(make, None), plan(memory[:0], 1.0, y))
    assert d(memory[:0], 1.0, out=memory[0:2]) is not None  # without elements nothing is shared
    into.clear()
    assert is_slow(d(x, 2.0, out=y))
    with pytest.raises(TypeError, match="into must be a Dispatcher"):
        dispatcher("x", into=print)

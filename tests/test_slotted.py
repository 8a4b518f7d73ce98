# SPDX-License-Identifier: MIT
"""`@frozen` and `@mutable` behave as the standard dataclasses that they stand for."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from pto_jit.slotted import field, frozen, mutable, replace


@frozen
class Point:
    """A value."""

    x: int
    y: float = 0.5
    tags: tuple[str, ...] = ()
    place: Any = field(default=None, compare=False, repr=False)


@frozen
class Point3(Point):
    z: int = 0


@mutable
class Box:
    items: list[int] = field(default_factory=list)
    later: int = field(init=False)
    name: str = "box"
    doubled: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        self.doubled *= 2


@mutable(eq=False)
class Node:
    label: str


def test_a_frozen_value_compares_hashes_and_prints_by_its_fields() -> None:
    assert Point(1, place="here") == Point(1) != Point(2)
    assert hash(Point(1, place="here")) == hash(Point(1))
    assert repr(Point(1)) == "Point(x=1, y=0.5, tags=())"
    assert Point(1) != Point3(1)
    nan = float("nan")
    assert Point(1, nan) == Point(1, nan)  # as tuples compare: one object is equal to itself


def test_a_frozen_value_cannot_be_changed_and_has_no_dict() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="x"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="x"):
        del point.x  # type: ignore[misc]
    assert not hasattr(point, "__dict__")


def test_copies_pickles_and_replacements_are_equal_values() -> None:
    point = Point3(1, 2.0, ("a",), z=4)
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    assert replace(point, z=5) == Point3(1, 2.0, ("a",), z=5)
    assert [f.name for f in dataclasses.fields(point)] == ["x", "y", "tags", "place", "z"]


def test_each_mutable_record_gets_its_own_default() -> None:
    one, two = Box(), Box(name="other", doubled=4)
    one.items.append(1)
    assert two.items == [] and two.doubled == 8
    assert not hasattr(one, "later")
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_records_without_equality_are_keys_by_identity() -> None:
    a = Node("a")
    assert {a: 1}[a] == 1 and a != Node("a")


def test_missing_and_unknown_arguments_are_type_errors() -> None:
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected"):
        Point(1, w=3)  # type: ignore[call-arg]


@mutable
class Counted:
    a: int
    b: list[int] = field(default_factory=list)
    c: int = field(default=7, kw_only=True)
    d: int = 3


def test_the_first_instances_and_those_of_the_compiled_initialiser_are_alike() -> None:
    general = Counted.__init__
    for i in range(100):
        record = Counted(i, d=5) if i % 2 else Counted(a=i, c=1, b=[i])
        assert (record.a, record.b, record.c, record.d) == ((i, [], 7, 5) if i % 2 else (i, [i], 1, 3))
    assert Counted.__init__ is not general
    assert Counted(1).b is not Counted(1).b


def test_an_argument_given_twice_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="multiple values"):
        Point(1, x=2)  # type: ignore[misc]


def test_positional_patterns_and_the_standard_functions_see_the_fields() -> None:
    match Point3(1, 2.0, z=9):
        case Point3(x, y, _, _, z):
            assert (x, y, z) == (1, 2.0, 9)
    assert dataclasses.is_dataclass(Counted)
    assert dataclasses.asdict(Counted(1)) == {"a": 1, "b": [], "c": 7, "d": 3}
    assert dataclasses.replace(Point(1), x=4) == Point(4)

# SPDX-License-Identifier: MIT
"""The text of a random kernel as it grows, and the values that are visible at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from tests.differential.growing import Growing
from tests.differential.values import FLOATS, INTS, ONE, Axis, Value

LIMITS = {"f16": 16.0, "bf16": 8.0, "f32": 1e3, "f64": 1e5}
COARSE = {"f64": 1, "f32": 2, "f16": 3, "bf16": 4}


@dataclass(frozen=True)
class Tensor:
    """An array argument, or a view of one, by the expression that gives it."""

    text: str
    dtype: str
    axes: tuple[Axis, ...]
    exact: bool = True
    bound: float = 8.0
    packed: bool = False  # C-contiguous, so that it can be reshaped


@dataclass
class Writer(Growing):
    """`values` are the tiles that are visible, `ints` and `floats` run-time scalars (weak ones), as expressions."""

    SCOPED: ClassVar = ("values", "ints", "floats", "tensors")

    values: list[Value] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    ints: list[str] = field(default_factory=list)
    floats: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    coarseness: int = 0  # the coarsest rounding that took place
    own: tuple[Axis, ...] | None = None  # in a parallel loop: the axes that belong to the iteration
    own_place: str = ""
    frozen: set[str] = field(default_factory=set)  # variables that may not be assigned again
    loops: int = 0  # how many loops are around
    empty: bool = False  # some axis of the tensors has extent 0
    crowded: bool = False  # the loops around go through (nearly) every element

    def pick(self, *tests: Callable[[Value], bool]) -> Value | None:
        fitting = [v for v in self.values if all(test(v) for test in tests)]
        if not fitting:
            return None
        recent = fitting[-6:]
        return self.rng.choice(recent if self.chance(0.6) else fitting)

    def define(self, text: str, dtype: str, axes: tuple[Axis, ...], *, exact: bool = True, bound: float = 8.0,
               generated: bool = False) -> Value:  # fmt: skip
        """A new variable; a float that may have grown large is clipped."""
        if dtype in FLOATS:
            if not exact:
                self.coarseness = max(self.coarseness, COARSE[dtype])
            if bound > LIMITS[dtype]:
                text, bound = f"pl.clip({text}, -4, 4)", 4.0
        value = Value(self.name(), dtype, axes, exact, bound, generated)
        self.line(f"{value.name} = {text}")
        self.values.append(value)
        return value

    def cast(self, value: Value, dtype: str) -> tuple[str, bool, float]:
        """The value as `dtype`: expression, exactness, bound.  Only exact numbers become integers."""
        text, bound, exact = value.name, value.bound, value.exact
        if value.dtype == dtype:
            return text, exact, bound
        if dtype in FLOATS and value.dtype in INTS and bound > 8:
            text, bound = f"pl.clip({text}, {0 if value.dtype[0] == 'u' else -8}, 8)", 8.0
        if dtype in FLOATS:
            if bound > LIMITS[dtype]:
                text, bound = f"pl.clip({text}, -4, 4)", 4.0
            if not exact:
                self.coarseness = max(self.coarseness, COARSE[dtype])
        elif dtype == "bool_":
            bound = 1.0
        elif dtype[0] == "u" or bound > 100:
            bound = 2.0**64
        method = self.rng.choice([f"{text}.to(pl.{dtype})", f"pl.cast({text}, pl.{dtype})"])
        return method, exact, bound

    def constant(self, dtype: str) -> str:
        if dtype == "bool_":
            return self.rng.choice(["True", "False"])
        if dtype in FLOATS:
            return self.rng.choice(["0.5", "-1.25", "2", "3.0", "-1", "0.75"])
        return str(self.rng.randint(0 if dtype[0] == "u" else -5, 7))

    def integer(self) -> str:
        return self.rng.choice(self.ints) if self.ints and self.chance(0.7) else str(self.rng.randint(0, 4))


def shape_text(axes: tuple[Axis, ...]) -> str:
    return "[" + ", ".join(axis.extent for axis in axes) + "]"


def constants(axes: tuple[Axis, ...]) -> bool:
    return all(axis.const is not None and axis.full for axis in axes)


def unit(axes: tuple[Axis, ...], where: int) -> tuple[Axis, ...]:
    return axes[:where] + (ONE,) + axes[where + 1 :]


def without(axes: tuple[Axis, ...], where: int) -> tuple[Axis, ...]:
    return axes[:where] + axes[where + 1 :]

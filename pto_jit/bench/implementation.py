# SPDX-License-Identifier: MIT
"""How a library takes part: a table from workload names to builders, each of which prepares one case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pto_jit.bench.workload import Arrays, Size, Workload


class Unsupported(Exception):
    """A builder's way to say that its library cannot do a case; the message is shown, nothing is timed."""


@dataclass(frozen=True, slots=True)
class Case:
    """One workload at one size, with the inputs and the arrays that results are to be written to."""

    workload: Workload
    size: Size
    threads: int
    inputs: Arrays
    outputs: Arrays

    @property
    def arguments(self) -> tuple[np.ndarray[Any, Any], ...]:
        """Inputs, then outputs, in the order in which a kernel takes them."""
        return (*self.inputs.values(), *self.outputs.values())


@dataclass(frozen=True, slots=True)
class Implementation:
    """A prepared case: `call()` does it once and blocks until the result is there.

    `collect` turns what `call` returned into NumPy arrays; without it the results are in `case.outputs`.
    """

    call: Callable[[], object]
    collect: Callable[[Any], Sequence[np.ndarray[Any, Any]]] | None = None
    note: str = ""

    @property
    def output(self) -> str:
        """Where the result goes: `"preallocated"` or `"returned"`."""
        return "returned" if self.collect else "preallocated"


Builder = Callable[[Case], Implementation]


class Table:
    """The builders of one library by workload name and variant; `""` is the plain variant."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Builder] = {}

    def row(self, workload: str, variant: str = "") -> Callable[[Builder], Builder]:
        """Decorator that enters a builder."""

        def enter(builder: Builder) -> Builder:
            if (workload, variant) in self._rows:
                raise ValueError(f"{workload} {variant} entered twice")
            self._rows[workload, variant] = builder
            return builder

        return enter

    def add(self, workload: str, builder: Builder, variant: str = "") -> None:
        """`row` for a builder that is not a `def`."""
        self.row(workload, variant)(builder)

    def keys(self) -> list[tuple[str, str]]:
        """Workload name and variant of every builder."""
        return list(self._rows)

    def build(self, workload: str, variant: str, case: Case) -> Implementation:
        """Prepare a case; `Unsupported` where there is no builder."""
        builder = self._rows.get((workload, variant))
        if builder is None:
            raise Unsupported("not written for this library")
        return builder(case)

# SPDX-License-Identifier: MIT
"""What `@pto.jit(...)` and `compile(...)` can say about one kernel."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pto_jit.config import MOST_THREADS
from pto_jit.errors import ArgumentError, TargetError, similar
from pto_jit.slotted import frozen, replace

TARGETS = ("cpu", "c", "neon", "cuda", "ascend")


@frozen
class Options:
    """target: what is compiled for (None: what was said before, or "cpu"); debug: check element bounds, races and
    assertions; fastmath: allow reassociation and contraction; num_threads: workers of this kernel (None:
    `pto.config.num_threads`); cache: keep the code on disk.
    """

    target: str = "cpu"
    debug: bool = False
    fastmath: bool = False
    num_threads: int | None = None
    cache: bool = True

    @property
    def device(self) -> bool:
        """Whether arguments lie in the memory of a device."""
        return self.target == "cuda"

    @staticmethod
    def of(given: dict[str, Any]) -> Options:
        """Options by name; an unknown name or a value of the wrong kind is an ArgumentError, or a TargetError."""
        return Options().but(given)

    def but(self, given: dict[str, Any]) -> Options:
        """These options with some replaced; a target that is None stays."""
        unknown = [name for name in given if name not in OPTION_NAMES]
        if unknown:
            raise ArgumentError(
                f"PTO-A020: pto.jit has no option `{unknown[0]}`\n"
                f"help: {similar(unknown[0], OPTION_NAMES)}the options are {', '.join(OPTION_NAMES)}"
            )
        if given.get("target", "") is None:
            given = {name: value for name, value in given.items() if name != "target"}
        chosen = replace(self, **given) if given else self
        if not isinstance(chosen.target, str) or chosen.target not in TARGETS:
            raise TargetError(
                f"unknown target {chosen.target!r}",
                code="PTO-X001",
                hint=f"this version compiles for {', '.join(TARGETS)}",
            )
        for name in ("debug", "fastmath", "cache"):
            if not isinstance(getattr(chosen, name), bool):
                raise ArgumentError(f"PTO-A021: {name}={getattr(chosen, name)!r}\nhelp: give True or False")
        threads = chosen.num_threads
        allowed = isinstance(threads, int) and not isinstance(threads, bool) and 1 <= threads <= MOST_THREADS
        if threads is not None and not allowed:
            raise ArgumentError(
                f"PTO-A022: num_threads={threads!r}\nhelp: give an integer from 1 to {MOST_THREADS}, or None"
            )
        return chosen


OPTION_NAMES = tuple(f.name for f in fields(Options))

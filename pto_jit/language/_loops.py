# SPDX-License-Identifier: MIT
"""Loops, scopes, explicit reductions, and the border between compile time and run time.

Outside a kernel (and in interpret mode) a parallel or chunked loop runs its iterations in a shuffled order, so that
a program that depends on the order shows itself.  The order follows from `set_loop_seed`.
"""

from __future__ import annotations

import builtins
import random
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any, Literal

import numpy as np

from pto_jit.errors import LaunchError, ScheduleError
from pto_jit.language import _access as access
from pto_jit.language import _order
from pto_jit.language import _races as races
from pto_jit.language._annotations import not_a_symbol
from pto_jit.language._builtin import Scalar, builtin
from pto_jit.language._number import plain, shown
from pto_jit.language._scopes import entered
from pto_jit.language._tile import Tensor

_loop_seed: ContextVar[int] = ContextVar("pto_loop_seed", default=0)


CHUNK_LIMIT = 1 << 60
"""Start and stop of a chunked loop lie between -CHUNK_LIMIT and CHUNK_LIMIT, so that bounds of chunks fit 64 bits."""


class LoopArgumentError(ScheduleError, LaunchError):
    """A bad loop argument met outside a kernel, where compile time and run time are one."""


def set_loop_seed(seed: int) -> int:
    """Choose the order of parallel loops from now on (in this context); returns the seed that held before."""
    before = _loop_seed.get()
    _loop_seed.set(seed)
    return before


@builtin
def range(
    *bounds: Scalar,
    parallel: bool | None = None,
    chunk: Scalar | None = None,
    chunk_policy: Literal["leading_full", "aligned"] = "leading_full",
    combine: Literal["sequential", "tree", "loop"] = "sequential",
) -> Iterator[Any]:
    """`range(end)`, `range(start, end)`, `range(start, end, step)`: a run-time loop.

    Sequential by default.  `parallel=True`: the iterations are independent.  `chunk=C`: parallel, and split into a
    loop over chunks of C iterations and a loop within each; `chunk_policy` places the chunk boundaries; `combine`
    says how partial results of a split reduction are merged.

    Raises ScheduleError (LaunchError for a bad run-time value): step 0, `parallel=False` together with `chunk=` ,
    a chunk that is not a positive integer, an unknown policy, `chunk=` with a negative step or with a bound outside
    -2**60 to 2**60.

    >>> import pto_jit.language as pl
    >>> list(pl.range(6, 0, -2)), sorted(pl.range(4, chunk=3))
    ([6, 4, 2], [0, 1, 2, 3])
    """
    if not 1 <= len(bounds) <= 3:
        raise LoopArgumentError(f"pl.range takes 1 to 3 bounds, not {len(bounds)}")
    whole = [_integer("bound", bound) for bound in bounds]
    start, stop = (0, whole[0]) if len(whole) == 1 else whole[:2]
    step = whole[2] if len(whole) == 3 else 1
    if step == 0:
        raise LoopArgumentError("the step of a loop is 0", hint="a step is positive or negative")
    _check_schedule(parallel, chunk, chunk_policy, combine, step)
    if chunk is not None and not all(-CHUNK_LIMIT <= bound <= CHUNK_LIMIT for bound in (start, stop)):
        raise LoopArgumentError(
            f"the chunked loop from {start} to {stop} leaves -2**60 to 2**60", hint="make it a loop without chunks"
        )
    if not parallel and chunk is None:
        return map(shown, builtins.range(start, stop, step))
    order = list(builtins.range(start, stop, step))
    random.Random(f"{_loop_seed.get()}:{start}:{stop}:{step}").shuffle(order)
    return _order.placed(races.iterations(order), [(value - start) // step for value in order])


def _integer(what: str, value: Any) -> int:
    value = plain(value)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        not_a_symbol(value)
        raise LoopArgumentError(f"a loop's {what} is {value!r}", hint=f"a {what} is an integer")
    return int(value)


def _check_schedule(parallel: bool | None, chunk: Any, policy: str, combine: str, step: int) -> None:
    if policy not in ("leading_full", "aligned"):
        raise LoopArgumentError(f"unknown chunk_policy {policy!r}", hint='write "leading_full" or "aligned"')
    if combine not in ("sequential", "tree", "loop"):
        raise LoopArgumentError(f"unknown combine {combine!r}", hint='write "sequential", "tree" or "loop"')
    if chunk is None:
        return
    if parallel is False:
        raise LoopArgumentError("`parallel=False` together with `chunk=`", hint="a chunked loop is parallel")
    if _integer("chunk", chunk) < 1:
        raise LoopArgumentError(f"a chunk of {chunk} iterations", hint="a chunk has at least one iteration")
    if step < 0:
        raise LoopArgumentError(f"`chunk=` with the negative step {step}", hint="count upwards in a chunked loop")


@builtin
def static_range(*bounds: int) -> Iterator[int]:
    """A loop that the compiler unrolls; the variable is a compile-time value.

    >>> import pto_jit.language as pl
    >>> list(pl.static_range(1, 4))
    [1, 2, 3]
    """
    return iter(builtins.range(*bounds))


class incore(ContextDecorator):
    """`with pl.incore():` an anonymous in-core function; `name=` names it.  Outside a kernel it does nothing.

    >>> import pto_jit.language as pl
    >>> with pl.incore(name="body"):
    ...     x = 1
    """

    __pto_builtin__ = "incore"

    def __init__(self, name: str | None = None) -> None:
        self.name = name

    def __enter__(self) -> None:
        entered.set(entered.get() + 1)

    def __exit__(self, *exc: object) -> Literal[False]:
        entered.set(entered.get() - 1)
        return False


@builtin
def static(value: Any) -> Any:
    """`value`, which must be a compile-time value (an error says why it is none).

    >>> import pto_jit.language as pl
    >>> pl.static(3)
    3
    """
    return value


@builtin
def dynamic_value(value: Any) -> Any:
    """A run-time value made of a compile-time one.

    >>> import pto_jit.language as pl
    >>> pl.dynamic_value(3)
    3
    """
    return shown(value)


class Reduction:
    """What `pl.reduction` returns: `update(*values)` in the loop, `value` after it.

    Updates made by iterations of a parallel loop wait until the value is asked for, and are combined in the program's
    order then, from left to right, as compiled code does: a combine function is associative, but need not be
    commutative.
    """

    __slots__ = ("_around", "_combine", "_single", "_value", "_waiting")

    def __init__(self, init: Any, combine: Callable[[Any, Any], Any]) -> None:
        if not callable(combine):
            raise LoopArgumentError("pl.reduction needs combine=, a function of two states")
        self._single = not isinstance(init, tuple)
        self._value = init
        self._combine = combine
        self._around = _order.loops(_order.place())
        self._waiting: list[tuple[_order.Place, Any]] = []

    def update(self, *values: Any) -> None:
        """Combine the state with another one; as many values as `init` has."""
        count = 1 if self._single else len(self._value)
        if len(values) != count:
            raise LoopArgumentError(f"update takes {count} values like init, not {len(values)}")
        given = values[0] if self._single else tuple(values)
        place = _order.place()
        if place:
            self._waiting.append((place, _loaded(given)))
        else:
            self._combine_waiting()
            self._take(given)

    @property
    def value(self) -> Any:
        """The combined state: a tuple when `init` is one."""
        inside = _order.loops(_order.place()) - self._around
        if any(inside & _order.loops(place) for place, _ in self._waiting):
            raise LoopArgumentError(
                "`value` is read inside a parallel loop that updates the reduction", code="PTO-L007",
                hint="read it after the loop: inside there are only partial results",
            )  # fmt: skip
        self._combine_waiting()
        return self._value

    def _combine_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, given in sorted(waiting, key=lambda one: one[0]):  # stable: those of one iteration keep their order
            self._take(given)

    def _take(self, given: Any) -> None:
        new = self._combine(self._value, given)
        if not self._single and (not isinstance(new, tuple) or len(new) != len(self._value)):
            raise LoopArgumentError(f"combine must return a tuple of {len(self._value)} values")
        self._value = new


def _loaded(value: Any) -> Any:
    """A state that no later write changes: views of memory as tiles of what it holds now."""
    if isinstance(value, tuple):
        return tuple(map(_loaded, value))
    if isinstance(value, Tensor):
        return access.load(value, None, None, None)
    return value.copy() if isinstance(value, np.ndarray) else value


@builtin
def reduction(init: Any, combine: Callable[[Any, Any], Any]) -> Reduction:
    """Coupled state that a parallel or chunked loop reduces into.

    `combine(a, b)` takes and returns the state and is associative; `init` is its identity: every partial starts
    from it.

    >>> import pto_jit.language as pl
    >>> acc = pl.reduction(init=(0, 1), combine=lambda a, b: (a[0] + b[0], a[1] * b[1]))
    >>> for i in pl.range(1, 5, parallel=True):
    ...     acc.update(i, i)
    >>> acc.value
    (10, 24)
    """
    return Reduction(init, combine)

# SPDX-License-Identifier: MIT
"""Groups one element at a time: left indices are parallel loops, reduced ones loops around an accumulator."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from pto_jit import dtypes
from pto_jit.comprehensions.inference import Inferred
from pto_jit.comprehensions.lowering.expressions import Elements, point
from pto_jit.comprehensions.nodes import Name, Read, names_in, walk
from pto_jit.comprehensions.symbolic import name
from pto_jit.dtypes import DType

if TYPE_CHECKING:
    from pto_jit.comprehensions.lowering.kernel import Kernel
    from pto_jit.comprehensions.lowering.plan import Group


def write(kernel: Kernel, group: Group) -> None:
    """Add the lines of a group to the kernel."""
    first = group.statements[0]
    with ExitStack() as loops:
        outer = [open_loop(kernel, loops, first, i, True) for i in first.statement.indices[: group.outer]]
        held: dict[tuple[str, tuple[str, ...]], str] = {}
        for m in group.statements:
            with ExitStack() as inner:
                if kernel.device and not m.statement.indices:
                    alone(kernel, inner)
                _statement(kernel, inner, m, outer, held)


def alone(kernel: Kernel, stack: ExitStack) -> None:
    """Open a parallel loop of one iteration: on a device elements are accessed in such loops only."""
    kernel.lines.add(f"for {kernel.names.fresh('alone')} in pl.range(1, parallel=True):")
    stack.enter_context(kernel.lines.indented())


def open_loop(kernel: Kernel, stack: ExitStack, m: Inferred, index: str, parallel: bool) -> str:
    """Open the loop of an index; its variable."""
    variable = kernel.names.fresh(index)
    low, high = m.ranges[index]
    bounds = kernel.size(high) if low.value == 0 else f"{kernel.size(low)}, {kernel.size(high)}"
    kernel.lines.add(f"for {variable} in pl.range({bounds}{', parallel=True' if parallel else ''}):")
    stack.enter_context(kernel.lines.indented())
    return variable


def place_of(writer: Elements, m: Inferred) -> str:
    """The subscripts of the element that an iteration writes."""
    target = m.scope.tensors[m.statement.target]
    places = zip(m.statement.indices, target.lows, strict=True)
    return ", ".join(writer.form(name(i, signed=True) - low) for i, low in places) or point(target)


def _statement(kernel: Kernel, stack: ExitStack, m: Inferred, outer: list[str],
               held: dict[tuple[str, tuple[str, ...]], str]) -> None:  # fmt: skip
    s = m.statement
    variables = dict(zip(s.indices, outer, strict=False))
    for index in s.indices[len(outer) :]:
        variables[index] = open_loop(kernel, stack, m, index, True)
    writer = Elements(m, kernel.analysis.typing(m.scope), kernel.names, variables, kernel.stored, kernel.size)
    named = {v: k for k, v in variables.items()}
    for (tensor, places), text in held.items():
        writer.held[tensor, tuple(named.get(p, "?") for p in places)] = text
    target = m.scope.tensors[s.target]
    dtype = target.dtype
    assert dtype is not None
    element = f"{kernel.stored[target.name]}[{place_of(writer, m)}]"
    if not s.fresh and (m.reduced or s.op is not None):
        kernel.loaded.add(target.name)
    value = (_reduced if m.reduced else _computed)(kernel, m, writer, element, dtype)
    of_outer = len(s.indices) == len(outer)
    if not value.isidentifier() and of_outer and s.indices:
        single = kernel.names.fresh(f"{s.target}_value")
        kernel.lines.add(f"{single} = {_typed(value, writer, dtype)}")
        value = single
    kernel.store(f"{element} = {value}", target.name)
    if value.isidentifier() and of_outer:
        held[target.name, tuple(outer)] = value


def _reduced(kernel: Kernel, m: Inferred, writer: Elements, element: str, dtype: DType) -> str:
    """Loops around an accumulator, in f32 at least; what it holds after them."""
    from pto_jit.comprehensions.lowering.kernel import identity

    s = m.statement
    wide = dtypes.f32 if dtype.is_float and dtype.bits < 32 else dtype
    value = kernel.names.fresh(s.target.lower() if s.target.lower() != s.target else f"{s.target}_value")
    start = identity(s.op or "sum", wide) if s.fresh else f"pl.cast({element}, pl.{wide.name})"
    kernel.lines.add(f"{value} = {start}")
    with ExitStack() as loops:
        writer.variables = dict(writer.variables)
        along = _along_memory(m)
        for k, index in enumerate(m.reduced):
            parallel = not kernel.device and (not s.indices or (along and k == len(m.reduced) - 1))
            writer.variables[index] = open_loop(kernel, loops, m, index, parallel)
        step = writer.value(s.value, wide)
        note_loads(kernel, m, writer)
        accumulate(kernel, s.op or "max", value, step)
    if wide != dtype:
        kernel.lines.add(f"{value} = pl.cast({value}, pl.{dtype.name})")
    return value


def accumulate(kernel: Kernel, op: str, value: str, step: str) -> None:
    """Add the line that takes a step into an accumulator."""
    from pto_jit.comprehensions.lowering.kernel import combined

    if op in ("sum", "prod"):
        kernel.lines.add(f"{value} {'+' if op == 'sum' else '*'}= {step}")
    else:
        kernel.lines.add(f"{value} = {combined(op, value, step)}")


def _computed(kernel: Kernel, m: Inferred, writer: Elements, element: str, dtype: DType) -> str:
    """The text of an element that is computed from one iteration, combined with what is there."""
    from pto_jit.comprehensions.lowering.kernel import combined

    s = m.statement
    text = writer.value(s.value, dtype)
    note_loads(kernel, m, writer)
    return text if s.op is None or s.fresh else combined(s.op, element, f"({text})")


def _typed(text: str, writer: Elements, dtype: DType) -> str:
    """The text with the type of what it is stored to, so that it can stand for the element."""
    own = writer.typing.of(writer.inferred.statement.value)
    return text if own == dtype else f"pl.{dtype.name}({text})" if isinstance(own, str) else text


def note_loads(kernel: Kernel, m: Inferred, writer: Elements) -> None:
    """Remember what the statement reads from memory."""
    for e in walk(m.statement.value):
        if isinstance(e, Read):
            tensor = m.scope.tensors[e.tensor]
            plain = tuple(x.name if isinstance(x, Name) else "" for x in e.subscripts)
            if (tensor.name, plain) not in writer.held:
                kernel.loaded.add(tensor.name)


def _along_memory(m: Inferred) -> bool:
    """Whether the last reduced index moves along memory and no left one does."""
    if not m.reduced:
        return False
    last = m.reduced[-1]
    ends = [{n.name for n in names_in(e.subscripts[-1])} for e in walk(m.statement.value)
            if isinstance(e, Read) and e.subscripts]  # fmt: skip
    return any(last in names for names in ends) and not any(i in names for names in ends for i in m.statement.indices)

# SPDX-License-Identifier: MIT
"""Groups one element at a time: left indices are parallel loops, reduced ones loops around an accumulator."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from pto_jit import dtypes
from pto_jit.comprehensions.inference import Inferred
from pto_jit.comprehensions.lowering.expressions import Elements, point
from pto_jit.comprehensions.nodes import Name, Read, names_in, walk
from pto_jit.dtypes import DType

if TYPE_CHECKING:
    from pto_jit.comprehensions.lowering.kernel import Kernel
    from pto_jit.comprehensions.lowering.plan import Group


def write(kernel: Kernel, group: Group) -> None:
    """Add the lines of a group to the kernel."""
    first = group.statements[0]
    with ExitStack() as loops:
        outer = [_loop(kernel, loops, first, i, True) for i in first.statement.indices[: group.outer]]
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


def _loop(kernel: Kernel, stack: ExitStack, m: Inferred, index: str, parallel: bool) -> str:
    """Open the loop of an index; its variable."""
    variable = kernel.names.fresh(index)
    low, high = m.ranges[index]
    bounds = kernel.size(high) if low.value == 0 else f"{kernel.size(low)}, {kernel.size(high)}"
    kernel.lines.add(f"for {variable} in pl.range({bounds}{', parallel=True' if parallel else ''}):")
    stack.enter_context(kernel.lines.indented())
    return variable


def _statement(kernel: Kernel, stack: ExitStack, m: Inferred, outer: list[str],
               held: dict[tuple[str, tuple[str, ...]], str]) -> None:  # fmt: skip
    from pto_jit.comprehensions.lowering.kernel import combined, identity

    s = m.statement
    variables = dict(zip(s.indices, outer, strict=False))
    for index in s.indices[len(outer) :]:
        variables[index] = _loop(kernel, stack, m, index, True)
    typing = kernel.analysis.typing(m.scope)
    writer = Elements(m, typing, kernel.names, variables, kernel.stored, kernel.size)
    named = {v: k for k, v in variables.items()}
    for (tensor, places), text in held.items():
        writer.held[tensor, tuple(named.get(p, "?") for p in places)] = text
    target = m.scope.tensors[s.target]
    dtype = target.dtype
    assert dtype is not None
    place = ", ".join(writer.form(_index(m, i) - low) for i, low in zip(s.indices, target.lows, strict=True))
    element = f"{kernel.stored[target.name]}[{place or point(target)}]"
    if m.reduced:
        wide = dtypes.f32 if dtype.is_float and dtype.bits < 32 else dtype
        value = kernel.names.fresh(s.target.lower() if s.target.lower() != s.target else f"{s.target}_value")
        start = identity(s.op or "sum", wide) if s.fresh else f"pl.cast({element}, pl.{wide.name})"
        if not s.fresh:
            kernel.loaded.add(target.name)
        kernel.lines.add(f"{value} = {start}")
        with ExitStack() as loops:
            writer.variables = dict(variables)
            along = _along_memory(m)
            for k, index in enumerate(m.reduced):
                parallel = not kernel.device and (not s.indices or (along and k == len(m.reduced) - 1))
                writer.variables[index] = _loop(kernel, loops, m, index, parallel)
            step = writer.value(s.value, wide)
            _mark(kernel, m, writer)
            if s.op in ("sum", "prod"):
                kernel.lines.add(f"{value} {'+' if s.op == 'sum' else '*'}= {step}")
            else:
                kernel.lines.add(f"{value} = {combined(s.op or 'max', value, step)}")
        if wide != dtype:
            kernel.lines.add(f"{value} = pl.cast({value}, pl.{dtype.name})")
    else:
        text = writer.value(s.value, dtype)
        if s.op is not None and not s.fresh:
            kernel.loaded.add(target.name)
            text = combined(s.op, element, f"({text})")
        _mark(kernel, m, writer)
        value = text
    if not value.isidentifier() and len(s.indices) == len(outer) and s.indices:
        single = kernel.names.fresh(f"{s.target}_value")
        kernel.lines.add(f"{single} = {_typed(value, s, writer, dtype)}")
        value = single
    kernel.store(f"{element} = {value}", target.name)
    if value.isidentifier() and len(s.indices) == len(outer):
        held[target.name, tuple(outer)] = value


def _typed(text: str, s: object, writer: Elements, dtype: DType) -> str:
    """The text with the type of what it is stored to, so that it can stand for the element."""
    own = writer.typing.of(writer.inferred.statement.value)
    return text if own == dtype else f"pl.{dtype.name}({text})" if isinstance(own, str) else text


def _index(m: Inferred, index: str):  # type: ignore[no-untyped-def]
    from pto_jit.comprehensions.symbolic import name

    return name(index, signed=True)


def _mark(kernel: Kernel, m: Inferred, writer: Elements) -> None:
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

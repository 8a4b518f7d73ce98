# SPDX-License-Identifier: MIT
"""Small tensors whose elements the iterations of a kernel update atomically: each block updates bins of its own in
shared memory, and adds these to the tensor once, at its end (privatised histograms).

Updates of shared memory do not leave the multiprocessor, while all blocks of a device wait for the few places of global
memory that they have in common.  Whether there are bins is a macro of the kernel, the room for them, which a launch
chooses by the elements of its tensors (`spreads`): 0 where they are too many for what a block updates.

A thread has many iterations then, and no compiler moves a load over an update.  What an iteration reads is loaded for
several of them before these go on (`loaded_ahead`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from pto_jit.dtypes import DType
from pto_jit.ir.nodes import Break, Continue, For, Func, Op, Var, While
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import statements, uses
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.facts import Facts
from pto_jit.targets.cuda.loops import written_tensor
from pto_jit.targets.cuda.updates import ATOMIC
from pto_jit.targets.source.scalars import register_type

BYTES = 32 * 1024
"""What all bins of a block take at most: several blocks share a multiprocessor then."""
_BLOCKS = 1024  # of a launch that has bins: they fill any device, and more of them would add bins more often
_ITERATIONS = 4  # of a thread at least: its bins are begun, and added, once
_LEAST = 32  # bins that there is room for: a bank for each
AHEAD = 4
"""Iterations of a thread whose elements are loaded together: fewer would leave memory idle while updates wait."""
_SHORT = 32  # statements of an iteration that is written so often
_ALONE = 4  # bins that are added at the end of a block, in rows, take as long as one update alone that is scattered


@frozen
class Privatised:
    """A tensor of which blocks may have bins: the parameter; what these and the macro that is the room for them are
    called; what updates an element (`ATOMIC`); the type of a bin, and its bytes."""

    param: Var
    bins: str
    macro: str
    update: str
    bin: str
    bytes: int


def privatised_in(func: Func, facts: Facts, names: Callable[[str], tuple[str, str]]) -> tuple[Privatised, ...]:
    """The parameters of a kernel without tiles that its statements do nothing with but update elements, all in one way;
    names: what the bins of a tensor, and the macro, are called."""
    updates: dict[str, set[str]] = {}
    for s in statements(func.body):
        tensors = {v.name for v in uses(s) if isinstance(v.type, TensorType)}
        if not isinstance(s, Op) or s.op not in ATOMIC:
            for name in tensors if not isinstance(s, Op) or s.op != "dim" else ():
                updates.setdefault(facts.roots[name], set()).add("other")
            continue
        for name in tensors:
            updates.setdefault(facts.roots[name], set()).add(s.op if name == facts.roots[name] else "view")
    out: list[Privatised] = []
    for p in func.params:
        ops = updates.get(p.name, set())
        if len(ops) == 1 and ops <= ATOMIC.keys() and isinstance(p.type, TensorType) and p.type.rank:
            kind, size = _bin(p.type.dtype)
            out.append(Privatised(p, *names(p.name), next(iter(ops)), kind, size))
    return tuple(out)


def _bin(dtype: DType) -> tuple[str, int]:
    """The type of bins for elements of a type, at least 4 bytes wide: what hardware updates."""
    if dtype.bytes >= 4 or dtype.kind == "f":
        return register_type(dtype), max(4, dtype.bytes)
    return ("int32_t" if dtype.kind == "i" else "uint32_t"), 4


def with_bins(
    privatised: tuple[Privatised, ...], counts: tuple[int, ...], iterations: int, threads: int
) -> tuple[dict[str, int], int]:
    """The room for the bins of each tensor, by macro, 0 for one that has none; and so many blocks a launch has, 0 where
    no tensor has bins.

    counts: the elements of the tensors, 0 where they are not known; iterations: of the launch; threads: of a block.
    """
    out = dict.fromkeys([p.macro for p in privatised], 0)
    left = BYTES
    blocks = min(_BLOCKS, -(-iterations // (threads * _ITERATIONS)))
    for count, p in sorted(zip(counts, privatised, strict=True), key=lambda found: found[0]):
        room = max(_LEAST, 1 << (count - 1).bit_length()) if count > 0 else 0
        if 0 < room * p.bytes <= left and count * blocks <= _ALONE * iterations:
            out[p.macro] = room
            left -= room * p.bytes
    return out, blocks if left < BYTES else 0


def loaded_ahead(loop: For, facts: Facts) -> list[Op]:
    """The elements that each iteration of a loop of updates reads at places which no element says, of tensors that
    nothing writes: those of several iterations can be loaded before the first of these goes on.  None where iterations
    have loops of their own, or are long.
    """
    inside = list(statements(loop.body))
    if len(inside) > _SHORT or any(isinstance(s, (For, While, Break, Continue)) for s in inside):
        return []
    written = {facts.roots[t.name] for s in inside if (t := written_tensor(s)) is not None}
    late: set[str] = set(facts.mutable)  # what elements say
    out: list[Op] = []
    for s in loop.body:
        if not isinstance(s, Op):
            break
        waits = any(v.name in late for v in uses(s))
        if s.op == "getelem" and not waits and facts.roots[s.args[0].name] not in written:  # type: ignore[union-attr]
            out.append(s)
        if waits or not (is_elementwise(s) or s.op == "dim"):
            late.update(r.name for r in s.results)
    return [s for s in out if s.results[0].name not in facts.mutable]


def makers_of(ops: Sequence[Op], loop: For) -> list[Op]:
    """The operations in front of some in the body of a loop that make what these read, and they."""
    wanted = {v.name for op in ops for v in uses(op)}
    out: list[Op] = []
    for s in reversed(loop.body):
        if isinstance(s, Op) and (any(s is op for op in ops) or any(r.name in wanted for r in s.results)):
            wanted |= {v.name for v in uses(s)}
            out.append(s)
    return out[::-1]


def elements_of(shape: tuple[int | None, ...]) -> int:
    """How many elements a tensor has; 0 where its type does not say it."""
    known = [n for n in shape if n is not None]
    return prod(known) if len(known) == len(shape) else 0

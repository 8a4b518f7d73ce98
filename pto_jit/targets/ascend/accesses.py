# SPDX-License-Identifier: MIT
"""What each node of a form touches, and with which pipe: read from the table of instructions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from pto_jit.targets.ascend.form import (
    Assignment,
    Branch,
    Buffer,
    ElementStore,
    Global,
    Instruction,
    Loop,
    Node,
)
from pto_jit.targets.ascend.instructions import ROWS
from pto_jit.targets.ascend.machine import SCRATCH, Pipe

RESERVED = Buffer("reserved", "Vec", SCRATCH[1], 1, SCRATCH[0])
"""What row broadcasts use as scratch memory."""


Access = tuple[Buffer | str, bool]
"""A buffer, or a tensor by its name, and whether it is written, or else read."""


def pipe_of(node: Node) -> Pipe | None:
    """The pipe that works on a node; None for one that no data goes through."""
    if isinstance(node, Instruction):
        return ROWS[node.name].pipe
    if isinstance(node, ElementStore) or (isinstance(node, Assignment) and (node.reads or node.memory)):
        return "S"
    return None


def accesses(node: Node) -> list[Access]:
    if type(node) is not Instruction:
        return _of_scalar_unit(node)
    args = node.args
    operands, scratch = _operands(node.name, tuple([type(a) is str for a in args]))
    out: list[Access] = []
    for at, write in operands:
        arg = args[at]
        out.append((arg.root if type(arg) is Global else arg.buffer, write))  # pyright: ignore[reportAttributeAccessIssue]
    if scratch:
        out.append((RESERVED, True))
    return out


def _of_scalar_unit(node: Node) -> list[Access]:
    if isinstance(node, ElementStore):
        return [(node.root, True)]
    if isinstance(node, Assignment):
        out: list[Access] = [] if node.reads is None else [(node.reads.buffer, False)]
        return out if node.memory is None else [*out, (node.memory, False)]
    return []


@cache
def _operands(name: str, numbers: tuple[bool, ...]) -> tuple[tuple[tuple[int, bool], ...], bool]:
    """Of an instruction of the table with numbers at these places: the operands that it writes and reads, in order, and
    whether there is scratch memory besides."""
    row = ROWS[name]
    roles = [o[0] for o in row.operands]
    if list(numbers) != [role == "x" for role in roles]:  # a number stands before the tile that it is divided by
        rest = iter(r for r in roles if r != "x")
        roles = ["x" if number else next(rest) for number in numbers]
    out: list[tuple[int, bool]] = []
    for at, (role, number) in enumerate(zip(roles, numbers, strict=True)):
        if role in "dt" and not number:
            out.append((at, True))
        if role in "st" and not number:
            out.append((at, False))
    return tuple(out), row.scratch


def walk(nodes: list[Node]) -> Iterator[Node]:
    """All nodes, those of loops and branches too, in the order of the text."""
    rest = nodes[::-1]
    while rest:
        node = rest.pop()
        yield node
        kind = type(node)
        if kind is Loop:
            rest += node.body[::-1]  # pyright: ignore[reportAttributeAccessIssue]
        elif kind is Branch:
            rest += node.orelse[::-1]  # pyright: ignore[reportAttributeAccessIssue]
            rest += node.then[::-1]  # pyright: ignore[reportAttributeAccessIssue]

# SPDX-License-Identifier: MIT
"""What each node of a form touches, and with which pipe: read from the table of instructions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from pto_jit.slotted import frozen
from pto_jit.targets.ascend.form import (
    Assignment,
    Branch,
    Buffer,
    ElementStore,
    Global,
    Instruction,
    Loop,
    Node,
    Tile,
)
from pto_jit.targets.ascend.instructions import ROWS
from pto_jit.targets.ascend.machine import SCRATCH, Pipe

RESERVED = Buffer("reserved", "Vec", SCRATCH[1], 1, SCRATCH[0])
"""What row broadcasts use as scratch memory."""


@frozen(eq=False)
class Access:
    """A node reads or writes a buffer, or a tensor by its name."""

    what: Buffer | str
    write: bool


def pipe_of(node: Node) -> Pipe | None:
    """The pipe that works on a node; None for one that no data goes through."""
    if isinstance(node, Instruction):
        return ROWS[node.name].pipe
    if isinstance(node, ElementStore) or (isinstance(node, Assignment) and (node.reads or node.memory)):
        return "S"
    return None


def accesses(node: Node) -> tuple[Access, ...]:
    if type(node) is not Instruction:
        return _of_scalar_unit(node)
    roles, numbers, scratch = _operands(node.name)
    if [type(a) is str for a in node.args] != numbers:
        roles = _roles(roles, node.args)
    found: list[Access] = []
    for role, arg in zip(roles, node.args, strict=True):
        if type(arg) is str:
            continue
        what = arg.root if type(arg) is Global else arg.buffer  # pyright: ignore[reportAttributeAccessIssue]
        if role in "dt":
            found.append(Access(what, True))
        if role in "st":
            found.append(Access(what, False))
    if scratch:
        found.append(Access(RESERVED, True))
    return tuple(found)


def _of_scalar_unit(node: Node) -> tuple[Access, ...]:
    if isinstance(node, ElementStore):
        return (Access(node.root, True),)
    if isinstance(node, Assignment):
        out = () if node.reads is None else (Access(node.reads.buffer, False),)
        return out if node.memory is None else (*out, Access(node.memory, False))
    return ()


@cache
def _operands(name: str) -> tuple[list[str], list[bool], bool]:
    """Of an instruction of the table: the role of each operand, whether it is a number, and whether there is scratch
    memory besides."""
    row = ROWS[name]
    roles = [o[0] for o in row.operands]
    return roles, [role == "x" for role in roles], row.scratch


def _roles(roles: list[str], args: tuple[Tile | Global | str, ...]) -> list[str]:
    """The roles of arguments among which a number stands before the tile that it is divided by."""
    rest = iter(r for r in roles if r != "x")
    return ["x" if isinstance(a, str) else next(rest) for a in args]


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

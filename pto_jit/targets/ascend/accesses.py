# SPDX-License-Identifier: MIT
"""What each node of a form touches, and with which pipe: read from the table of instructions."""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.targets.ascend.form import (
    Assignment,
    Barrier,
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
    if node.touches is not None:
        return node.touches
    args = node.args
    turned = node.name == "TDIVS" and type(args[1]) is str
    operands, scratch = _OPERANDS["TDIVS, turned" if turned else node.name]
    out: list[Access] = []
    node.touches = out
    for at, write in operands:
        arg = args[at]
        out.append((arg.root if type(arg) is Global else arg.buffer, write))  # pyright: ignore[reportAttributeAccessIssue]
    if scratch:
        out.append((RESERVED, True))
    return out


def ends_of(call: Instruction) -> tuple[list[Access], list[Access]] | None:
    """What a function that is called touches before its first barrier, and behind its last one, when all else is done;
    None if it has no barriers."""
    function = call.function
    assert function is not None
    barriers = [k for k, node in enumerate(function.body) if type(node) is Barrier]
    if not barriers:
        return None
    given = {b.base: a for b, a in zip((function.result, function.operand, function.scratch), call.args, strict=False)}

    def touched(nodes: list[Node]) -> list[Access]:
        there = {(given[b.base].buffer, write) for node in nodes for b, write in accesses(node)}  # type: ignore[union-attr]
        return [access for access in accesses(call) if access in there]

    return touched(function.body[: barriers[0]]), touched(function.body[barriers[-1] :])


def _of_scalar_unit(node: Node) -> list[Access]:
    if isinstance(node, ElementStore):
        return [(node.root, True)]
    if isinstance(node, Assignment):
        out: list[Access] = [] if node.reads is None else [(node.reads.buffer, False)]
        return out if node.memory is None else [*out, (node.memory, False)]
    return []


def _operands(roles: Sequence[str], scratch: bool) -> tuple[tuple[tuple[int, bool], ...], bool]:
    """The operands that an instruction writes (True) and reads, in order, and whether there is scratch memory besides;
    roles: the letters of the table."""
    out: list[tuple[int, bool]] = []
    for at, role in enumerate(roles):
        if role[0] in "dt":
            out.append((at, True))
        if role[0] in "st":
            out.append((at, False))
    return tuple(out), scratch


_OPERANDS = {name: _operands(row.operands, row.scratch) for name, row in ROWS.items()}
_OPERANDS["TDIVS, turned"] = _operands(("dr", "x", "sr"), ROWS["TDIVS"].scratch)
"""A number stands before the tile that it is divided by."""


def walk(nodes: list[Node]) -> list[Node]:
    """All nodes, those of loops and branches too, in the order of the text."""
    out: list[Node] = []
    for node in nodes:
        out.append(node)
        kind = type(node)
        if kind is Loop:
            out += walk(node.body)  # pyright: ignore[reportAttributeAccessIssue]
        elif kind is Branch:
            out += walk(node.then)  # pyright: ignore[reportAttributeAccessIssue]
            out += walk(node.orelse)  # pyright: ignore[reportAttributeAccessIssue]
    return out


def blocks_of(node: Node) -> tuple[list[Node], ...]:
    """The blocks of a loop or branch."""
    if type(node) is Loop:
        return (node.body,)
    return (node.then, node.orelse) if type(node) is Branch else ()


def loops_in(nodes: list[Node]) -> list[Loop]:
    """All loops, in the order of the text."""
    out: list[Loop] = []
    for node in nodes:
        kind = type(node)
        if kind is Loop:
            out.append(node)  # pyright: ignore[reportArgumentType]
            out += loops_in(node.body)  # pyright: ignore[reportAttributeAccessIssue]
        elif kind is Branch:
            out += loops_in(node.then)  # pyright: ignore[reportAttributeAccessIssue]
            out += loops_in(node.orelse)  # pyright: ignore[reportAttributeAccessIssue]
    return out

# SPDX-License-Identifier: MIT
"""Copies that hand a value on: what is not read any more after its copy, and the copy, can be one.

A variable that is assigned in a loop has memory of its own; one loop after another is given copies of what the one
before has left.

Before::

    for j: acc = acc * shrink + ...
    TMOV(acc_1, acc)
    for j: acc_1 = acc_1 * shrink + ...

After::

    for j: acc = acc * shrink + ...
    for j: acc = acc * shrink + ...

And scratch memory that a tile of the same shape lies in already is not declared again (`declare_once`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pto_jit.targets.ascend.accesses import blocks_of, walk
from pto_jit.targets.ascend.form import Assignment, Branch, Buffer, Declaration, Instruction, Loop, Node, Tile


def coalesce(
    nodes: list[Node], spans: Mapping[Buffer, tuple[int, int]], places: Mapping[int, int]
) -> dict[Buffer, Buffer]:
    """Make one buffer of two where a copy hands a value on: which goes on as which.

    spans: from where to where buffers live, loops that they live through included; places: of nodes, by id.
    """
    one: dict[Buffer, Buffer] = {}
    gone: set[int] = set()
    for node in walk(nodes):
        if type(node) is not Instruction or node.name != "TMOV":
            continue
        target, source = node.args
        assert isinstance(target, Tile) and isinstance(source, Tile)
        at, new, old = places[id(node)], target.buffer, source.buffer
        alike = _shape(target) == _shape(source) and new.size == old.size and new is not old
        if alike and not {new, old} & {*one, *one.values()} and spans[old][1] == at == spans[new][0]:
            if new.base and old.base:  # a function's operand and its result
                continue
            one |= {old: new} if new.base else {new: old}
            gone.add(id(node))
    if one:
        _remove(nodes, gone)
        for node in walk(nodes):
            if isinstance(node, Instruction):
                tiles = node.args
                node.touches = None
            else:
                tiles = (node.what if isinstance(node, Declaration) else getattr(node, "reads", None),)
            for tile in tiles:
                if type(tile) is Tile and tile.buffer in one:
                    tile.buffer = one[tile.buffer]
    return one


def declare_once(nodes: list[Node], constant: Iterable[str] = ()) -> None:
    """Use tiles of scratch memory again that are in scope, and of the same shape at the same place; constant: names
    that valid extents are given by, besides those that are assigned once in the nodes."""
    named = {id(n.reads) for n in (n for n in walk(nodes) if type(n) is Assignment)}  # in the text of an expression
    named |= {id(n.args[0]) for n in walk(nodes) if type(n) is Instruction and n.name.startswith("TMRGSORT_")}
    _declare_once(nodes, {}, set(constant), named)


def _declare_once(nodes: list[Node], known: dict[object, str], constant: set[str], named: set[int]) -> None:
    out: list[Node] = []
    for node in nodes:
        kind = type(node)
        if kind is Declaration:
            tile = node.what  # pyright: ignore[reportAttributeAccessIssue]
            if type(tile) is Tile and tile.buffer.name == "scratch" and id(tile) not in named:
                buffer = tile.buffer
                key = (tile.dtype.name, tile.rows, tile.columns, tile.valid, tile.layout, tile.offset, tile.moves,
                       buffer.address, buffer.base, buffer.size if buffer.copies > 1 else 0, buffer.loop)  # fmt: skip
                if key in known:
                    tile.name = known[key]
                    continue
                if all(type(v) is int or v in constant for v in tile.valid):
                    known[key] = tile.name
        elif kind is Assignment:
            if node.constant:  # pyright: ignore[reportAttributeAccessIssue]
                constant.add(node.name)  # pyright: ignore[reportAttributeAccessIssue]
        else:
            for block in blocks_of(node):
                _declare_once(block, dict(known), constant, named)
        out.append(node)
    nodes[:] = out


def _shape(tile: Tile) -> tuple[object, ...]:
    return tile.rows, tile.columns, tile.valid, tile.layout, tile.offset, tile.dtype


def _remove(nodes: list[Node], gone: set[int]) -> None:
    nodes[:] = [n for n in nodes if id(n) not in gone]
    for node in nodes:
        if isinstance(node, Loop):
            _remove(node.body, gone)
        elif isinstance(node, Branch):
            _remove(node.then, gone)
            _remove(node.orelse, gone)

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
"""

from __future__ import annotations

from collections.abc import Mapping

from pto_jit.targets.ascend.accesses import walk
from pto_jit.targets.ascend.form import Branch, Buffer, Declaration, Instruction, Loop, Node, Tile


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
            one[new] = old
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

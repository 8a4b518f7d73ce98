# SPDX-License-Identifier: MIT
"""The rules that a kernel's form has to keep on an Ascend 910B, judged from the form alone.

* rows of row-major tiles, columns of column-major ones, and addresses are whole blocks of 32 bytes;
* tiles lie inside their memory, of the unified buffer the part that instructions do not use themselves;
* valid extents are at most the physical ones;
* what is copied has the shape of its copy;
* operands have the layout, the memory and the element type that the instruction takes; only row reductions and row
  broadcasts see columns;
* several rows are filled with a number over all of their columns, if how many is a constant;
* row reductions have room to fold pairs of 64 elements;
* left operands of f32 that were read as columns are told to have whole pairs of blocks in a row, and no others;
* i32 are compared for equality only;
* quotients of a tile and a number do not lie where the tile does;
* pairs of keys and numbers are sorted in rows of whole runs of 32, and merged from runs of one length, or lists that
  fill the result;
* flag 0 between the vector core and the scalar unit is used by no one but instructions themselves;
* transfers take fewer than 4096 rows;
* what the scalar unit writes into global memory is for one core alone, no transfer touches it, and the kernel ends with
  the cache written back.
"""

from __future__ import annotations

from pto_jit.dtypes import f32, i32
from pto_jit.errors import InternalError
from pto_jit.targets.ascend.accesses import walk
from pto_jit.targets.ascend.form import (
    Assignment,
    Barrier,
    CrossSet,
    CrossWait,
    Declaration,
    ElementStore,
    Flush,
    Function,
    Global,
    Instruction,
    KernelForm,
    Node,
    SetFlag,
    Tile,
    WaitFlag,
)
from pto_jit.targets.ascend.instructions import ROWS
from pto_jit.targets.ascend.machine import BLOCK, CAPACITY, MOST_ROWS

_LAYOUTS = {
    "r": ("row",),
    "c": ("column",),
    "v": ("row", "column"),
    "m": ("nz", "zn"),
    "a": ("left",),
    "b": ("right",),
    "l": ("acc",),
}
_MIXED = frozenset(["TCVT", "TCMP", "TCMPS", "TSEL", "TSTORE_ACC", "TSTORE_ACC_ADD", "TMATMUL", "TMATMUL_ACC",
                    "TSORT32", "TGATHER", "TODD"])  # fmt: skip
_KINDS = {row.name: "".join(o[1] for o in row.operands if o != "x") for row in ROWS.values()}
_WITH_TEXT = ("TCMP", "TMRGSORT")
"""Instructions with rules for what is not a tile."""
_RULED = ("TMOV", "TEXPANDS", "TEXTRACT_LEFT", "TROW", "TSORT32", "TMRGSORT", "TGATHER", "TODD", "TCMP")
_PLAIN = frozenset(
    row.name for row in ROWS.values() if row.pipe not in ("MTE2", "MTE3") and not row.name.startswith(_RULED)
)
"""Instructions without rules of their own."""


def violations(kernel: KernelForm) -> list[str]:
    """What a kernel does that it may not, in words."""
    out: list[str] = [] if kernel.partner is None else violations(kernel.partner)
    for function in kernel.functions:
        out += _function(function)
    nodes = walk(kernel.body)
    kinds = _Kinds()
    legal: set[tuple[str | int, ...]] = set()  # instructions, by their names and the kinds of their operands
    for node in nodes:
        if isinstance(node, Instruction):
            said = node.name.startswith(_WITH_TEXT)  # else its numbers do not matter
            key = (node.name, *[kinds[a] if not isinstance(a, str) else a if said else "" for a in node.args])
            if node.function is not None:
                out += _call(node, node.function)
            if node.name == "TDIVS":
                out += _quotient(node)
            if key not in legal:
                found = _instruction(node)
                out += found
                if not found:
                    legal.add(key)
        elif isinstance(node, Declaration):
            out += _tile(node.what) if isinstance(node.what, Tile) else []
        elif isinstance(node, Barrier):
            continue
        elif isinstance(node, (CrossSet, CrossWait)) and not 0 <= node.flag <= 15:
            out.append(f"there is no flag {node.flag} between cores")
        elif isinstance(node, (SetFlag, WaitFlag)) and node.event == 0 and {node.source, node.target} == {"V", "S"}:
            out.append("flag 0 between V and S is for instructions that use it themselves")
    return out + _elements(kernel, nodes)


class _Kinds(dict[Tile | Global, int]):
    """Numbers of all that the rules of instructions look at in an operand."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[object, int] = {}

    def __missing__(self, arg: Tile | Global) -> int:
        if isinstance(arg, Tile):
            valid = [v if type(v) is int else None for v in arg.valid]  # of the others it does not matter which
            kind: object = arg.dtype.name, arg.layout, arg.rows, arg.columns, *valid, arg.space, arg.aligned
        else:
            kind = arg.dtype.name
        number = self[arg] = self._known.setdefault(kind, len(self._known))
        return number


def _function(function: Function) -> list[str]:
    """Of the body of a function, whose addresses count from those of the memories that it is given."""
    given = {b.base: b.size for b in (function.result, function.operand, function.scratch)}
    out: list[str] = []
    for node in walk(function.body):
        if isinstance(node, Instruction):
            out += _instruction(node)
            out += _quotient(node) if node.name == "TDIVS" else []
            out += [f"{function.name}: {node.name} is not of the vector pipe"] if ROWS[node.name].pipe != "V" else []
        elif isinstance(node, Declaration) and isinstance(node.what, Tile):
            tile = node.what
            out += _tile(tile)
            if (tile.buffer.address or 0) + tile.buffer.size > given.get(tile.buffer.base, 0):
                out.append(f"{function.name}: {tile.name} ends behind what it is given")
        elif not isinstance(node, (Barrier, Assignment)):
            out.append(f"{function.name}: a {type(node).__name__} in a function")
    return out


def _call(node: Instruction, function: Function) -> list[str]:
    """Of what a function is given."""
    result, operand, scratch = (a for a in node.args[:3] if isinstance(a, Tile))
    given = ((result, function.result), (operand, function.operand), (scratch, function.scratch))
    out = [f"{function.name}: {tile.name or 'its memory'} has {tile.buffer.size} bytes of {wanted.size}"
           for tile, wanted in given if tile.buffer.size < wanted.size]  # fmt: skip
    if (result.rows, result.columns, result.valid) != (operand.rows, operand.columns, operand.valid):
        out.append(f"{function.name}: {result.name} has not the shape of {operand.name}")
    if scratch.buffer.address is None or scratch.buffer.address + scratch.buffer.size > CAPACITY["Vec"]:
        out.append(f"{function.name}: works behind the {CAPACITY['Vec']} bytes of Vec")
    if len(node.args) != 3 + len(function.extents):
        out.append(f"{function.name} takes {len(function.extents)} extents")
    if result.buffer is operand.buffer:
        out.append(f"{function.name}: the result lies where {operand.name} does")
    return out


def _elements(kernel: KernelForm, nodes: list[Node]) -> list[str]:
    """Of what the scalar unit writes through its cache."""
    written = {n.root for n in nodes if isinstance(n, ElementStore)}
    if not written:
        return []
    out = [] if kernel.alone else ["elements are written by the scalar units of several cores"]
    if not isinstance(kernel.body[-1], Flush):
        out.append("elements that the scalar unit wrote stay in its cache")
    moved = {n.what.root for n in nodes if isinstance(n, Declaration) and isinstance(n.what, Global)}
    return out + [f"{root}: elements and tiles are transferred in one kernel" for root in sorted(written & moved)]


def check_legal(kernel: KernelForm) -> None:
    """Raise InternalError when the writer broke a rule."""
    found = violations(kernel)
    if found:
        raise InternalError(f"the kernel `{kernel.name}` breaks a rule of the Ascend 910B: {found[0]}")


def _tile(tile: Tile) -> list[str]:
    out: list[str] = []
    size = 1 if tile.dtype.kind == "b" else tile.dtype.bytes
    line = tile.rows if tile.layout == "column" else tile.columns
    if tile.layout in ("row", "column") and line * size % BLOCK:
        out.append(f"{tile.name}: a {tile.layout} of {line * size} bytes is not a multiple of {BLOCK}")
    if tile.layout not in ("row", "column"):
        inner = BLOCK // size
        sides = {"nz": (16, inner), "left": (16, inner), "zn": (inner, 16), "right": (inner, 16), "acc": (16, 16)}
        high, wide = sides[tile.layout]
        if tile.rows % high or tile.columns % wide:
            out.append(f"{tile.name}: {tile.rows} x {tile.columns} is not made of fractals of {high} x {wide}")
    for valid, most in zip(tile.valid, (tile.rows, tile.columns), strict=True):
        if isinstance(valid, int) and not 0 < valid <= most:
            out.append(f"{tile.name}: {valid} valid elements of {most}")
    buffer = tile.buffer
    if buffer.address is None:
        return [*out, f"{tile.name}: no address"]
    if buffer.address % BLOCK or (buffer.copies > 1 and buffer.size % BLOCK):
        out.append(f"{tile.name}: address {buffer.address:#x} is not a multiple of {BLOCK}")
    if buffer.address + buffer.size * buffer.copies > CAPACITY[buffer.space]:
        out.append(f"{tile.name}: ends behind the {CAPACITY[buffer.space]} bytes of {buffer.space}")
    if tile.offset % BLOCK:
        out.append(f"{tile.name}: begins {tile.offset} bytes after its buffer, not a multiple of {BLOCK}")
    if tile.moves is not None and tile.moves[1] % BLOCK:
        out.append(f"{tile.name}: moves by {tile.moves[1]} bytes, not a multiple of {BLOCK}")
    if tile.offset + tile.rows * tile.columns * size > buffer.size:
        out.append(f"{tile.name}: {tile.rows * tile.columns * size} bytes in a buffer of {buffer.size}")
    return out


def _instruction(node: Instruction) -> list[str]:
    row = ROWS.get(node.name)
    if row is None:
        return [f"{node.name} is not an instruction"]
    tiles = [a for a in node.args if not isinstance(a, str)]
    kinds = _KINDS[node.name]
    out: list[str] = []
    if len(tiles) != len(kinds):
        return [f"{node.name} takes {len(kinds)} tiles, not {len(tiles)}"]
    for kind, arg in zip(kinds, tiles, strict=True):
        if isinstance(arg, Global):
            if kind != "g":
                out.append(f"{node.name}: {arg.name} is in global memory")
        elif kind == "g" or arg.layout not in _LAYOUTS[kind]:
            out.append(f"{node.name}: {arg.name} has the layout {arg.layout}")
    first = tiles[0]
    name = first.dtype.name
    if name not in row.dtypes:
        out.append(f"{node.name} does not take elements of {first.dtype}")
    if node.name not in _MIXED and [t for t in tiles if t.dtype.name != name]:
        out.append(f"{node.name}: elements of {' and '.join(sorted({t.dtype.name for t in tiles}))}")
    if node.name in _PLAIN:
        return out
    if node.name == "TMOV":
        shapes = [(t.rows, t.columns) for t in tiles if isinstance(t, Tile)]
        if shapes[0] != shapes[1]:
            out.append(f"TMOV: {shapes[0][0]} x {shapes[0][1]} from {shapes[1][0]} x {shapes[1][1]}")
    if node.name == "TEXTRACT_LEFT":
        source = tiles[1]
        turned = isinstance(source, Tile) and source.layout == "zn" and first.dtype == f32
        if isinstance(first, Tile) and first.aligned != turned:
            out.append(f"TEXTRACT: {first.name} is {'' if first.aligned else 'not '}aligned")
    if node.name == "TEXPANDS" and isinstance(first, Tile):
        given = first.valid[1]
        if first.rows > 1 and isinstance(given, int) and given != first.columns:
            out.append(f"TEXPANDS: {given} of {first.columns} columns in several rows")
    if node.name.startswith("TROW") and "v" in row.operands[0]:
        target, source = tiles[0], tiles[1]
        assert isinstance(target, Tile) and isinstance(source, Tile)
        if target.rows != source.rows or (target.layout == "row" and target.rows != 1):
            out.append(f"{node.name}: {target.rows} rows from {source.rows}")
        scratch = tiles[2]
        assert isinstance(scratch, Tile)
        room = min(source.columns, 64 * max(1, source.columns // 128))
        if scratch.rows < source.rows or scratch.columns < room:
            out.append(f"{node.name}: works in {scratch.rows} x {scratch.columns} elements of {source.rows} x {room}")
    if node.name.startswith(("TSORT32", "TMRGSORT", "TGATHER", "TODD")):
        out += _sorting(node.name, [t for t in tiles if isinstance(t, Tile)], node.args[-1])
    if node.name in ("TCMP", "TCMPS"):
        source = tiles[1]
        if source.dtype == i32 and node.args[-1] not in ("CmpMode::EQ", "CmpMode::NE"):
            out.append(f"{node.name}: i32 are compared for equality only")
    if row.pipe in ("MTE2", "MTE3"):
        rows = max(t.rows for t in tiles if isinstance(t, Tile) and t.space == "Vec") if any(
            isinstance(t, Tile) and t.space == "Vec" for t in tiles) else 0  # fmt: skip
        if rows > MOST_ROWS:
            out.append(f"{node.name}: {rows} rows at once")
    return out


def _quotient(node: Instruction) -> list[str]:
    """Of a tile and a number, which the instruction writes into the result's memory before it divides."""
    out, source = (a for a in node.args if isinstance(a, Tile))
    (first, end), (other, its_end) = (
        (b.address or 0, (b.address or 0) + b.size * b.copies) for b in (out.buffer, source.buffer)
    )
    if (out.space, out.buffer.base) == (source.space, source.buffer.base) and first < its_end and other < end:
        return [f"TDIVS: {out.name} lies where {source.name} does"]
    return []


def _sorting(name: str, tiles: list[Tile], length: object) -> list[str]:
    """Rows of keys, of pairs and of places."""
    out = [f"{name}: {t.name} has {t.rows} rows" for t in tiles if t.rows != 1]
    if name == "TGATHER":
        return out
    whole = [t.valid[1] for t in tiles]
    if any(v != t.columns for v, t in zip(whole, tiles, strict=True)):
        return [*out, f"{name}: not all columns are valid"]
    target, *given = (t.columns for t in tiles)
    if name in ("TSORT32", "TODD"):
        ratio = (given[0], target) if name == "TODD" else (target, given[0])
        run = 32 if name == "TSORT32" else 8
        if ratio[0] != 2 * ratio[1] or ratio[1] % run or (name == "TSORT32" and given[0] != given[1]):
            out.append(f"{name}: {target} columns from {given}")
    elif name == "TMRGSORT":
        run = int(str(length))
        if target != given[0] or run % 64 or target % (4 * run) or target // (4 * run) > 255:
            out.append(f"TMRGSORT: {target} columns from {given[0]} in runs of {run}")
    elif sum(given[:-1]) != target or given[-1] < target or max(given[:-1]) > 2 * 4095:
        out.append(f"{name}: {target} columns from {given[:-1]}, in {given[-1]}")
    return out

# SPDX-License-Identifier: MIT
"""One kernel as a source file, with what a launch has to know about it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Container, Sequence
from functools import cache, partial
from typing import Any

from pto_jit.ir.nodes import Block, For, Func, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import defs, statements, uses
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes, unit_reshape
from pto_jit.lower.groups.fitting import NOTHING, Fitting
from pto_jit.lower.wholes.lines import axis_along
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cuda.along import along_rows
from pto_jit.targets.cuda.elements import fold_of, merges_of, merges_parts, read_outside
from pto_jit.targets.cuda.facts import Facts, gather
from pto_jit.targets.cuda.folds import FoldWriter, Shared
from pto_jit.targets.cuda.function import FunctionWriter
from pto_jit.targets.cuda.loops import chain_of, touches_tiles
from pto_jit.targets.cuda.overlaps import Overlap, overlaps_of, twins_of
from pto_jit.targets.cuda.parts import in_parts
from pto_jit.targets.cuda.privatised import Privatised, privatised_in
from pto_jit.targets.cuda.roles import in_shared_alone
from pto_jit.targets.cuda.shapes import with_extents
from pto_jit.targets.cuda.thin import (
    copied_rows,
    multiplied_rows,
    multiplies_matrices,
    streamed_loads,
    without_thin_products,
)
from pto_jit.targets.cuda.unused import without_unused
from pto_jit.targets.cuda.updates import ATOMIC, with_updates_by_numbers
from pto_jit.targets.cuda.values import Site
from pto_jit.targets.source.scalars import memory_type, register_type
from pto_jit.targets.source.text import SourceText, words_of

STAGES = 3
"""Copies of a tile in shared memory that a loop works through: two are under way while one is read."""
SLOTS = 16
"""Elements of a tile that a thread should hold: some registers are left when the next ones are computed."""
THREADS = 256
"""Threads of a block that runs elements; at most this many, and what a kernel of tiles starts from."""


_UNITS: dict[str, Callable[[int, int], int]] = {"m": lambda wm, wn: 16 * wm, "n": lambda wm, wn: 8 * wn,
                                                 "k": lambda wm, wn: 16, "": lambda wm, wn: 16}  # fmt: skip
_MOVES = frozenset("transpose concat tile_slice flip gather extract stack histogram put take".split())
_ONE_ROW = "1"  # the role of the row axis of a tile that has one row, or of the columns of one with one column
_EXACT = "="  # that of several rows, of which none are padding
_TIGHT = "~"  # that of columns that are padded to an odd number of 16 bytes, which is no more than banks want



@frozen
class SharedTile:
    """A tile in shared memory, of elements of a C type with a size; its extents are numbers or macros.

    role: what rows and columns are to a product (m, n or k; "" to none), which says how they are padded, "1" for the
    only row or column, "=" for rows that are not padded, "~" for columns that are as little as can be; copies: a number
    or macro; over: the tile whose memory it takes, when that is done with it.
    """

    name: str
    type: str
    size: int
    role: tuple[str, str]
    rows: str
    columns: str
    copies: str
    over: str = ""
    panels: bool = False  # with WARPGROUPS it is whole panels, without bytes between rows
    blocks: int = 1

    def bytes(self, defines: dict[str, int]) -> int:
        """Its size in a version with these macros."""

        def padded(text: str, role: str) -> int:
            if role == _ONE_ROW:
                return 1
            extent = int(text) if text.isdigit() else _value(ast.parse(text, mode="eval").body, defines)
            if role == _EXACT:
                return extent
            if role == _TIGHT:
                return (-(-extent * self.size // 16) | 1) * 16 // self.size - 16 // self.size
            unit = _UNITS[role](defines.get("WM", 1), defines.get("WN", 1)) * (self.blocks if role == "n" else 1)
            return -(-(-(-extent // unit) * unit) // 16) * 16

        copies = int(self.copies) if self.copies.strip().isdigit() else defines[self.copies]
        rows, columns = padded(self.rows, self.role[0]), padded(self.columns, self.role[1])
        if self.role[0] == "m":
            rows = -(-rows // (16 * defines["WM"])) * 16 * defines["WM"]
        between = 0 if self.panels and defines["WARPGROUPS"] else 16
        return rows * (columns * self.size + between) * copies


def _value(text: ast.expr, defines: dict[str, int]) -> int:
    """What an expression of numbers and macros is in a version; macros that no tile of it needs are 0."""
    match text:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return defines.get(name, 0)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left, defines) + _value(right, defines)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _value(left, defines) * _value(right, defines)
    raise AssertionError(f"an extent of another kind: {ast.unparse(text)}")


@frozen(eq=False)
class Kernel:
    """A kernel's source and how it is launched.

    kind: "elements" (a thread per iteration), "folds" (a block per iteration, whose threads share the loops that fold
    elements), "rows" or "fragments" (tiles spread over a block); teamed: every team of
    threads takes iterations of its own; chain: the loops that are the grid, outermost first; capacities: macros that
    bound run-time extents of tiles; shapes: the extents of all tiles; run: columns that a thread
    takes at a time; sites: what can fail, numbered from `first_site + 1`; whole_rows: every warp has whole rows of
    fragments, or as few as can be share a row that is reduced; slots: elements of a row that a thread
    should hold; fastmath: contraction is allowed;
    tensor_cores: products run on them; warpgroups: those of whole warpgroups may be used, with the macro WARPGROUPS;
    first_iteration: what the host does to learn how often the loops of the chain run, each loop taken at its start, and
    what the extents of tiles are;
    stages, shared: how many copies of tiles in shared memory there are, and what they are; store: where its machine
    code is kept, an object with `load(key)` and `store(key, metadata, code)`; streams: rows are multiplied by matrices
    in memory; covered: how deep in the chain the loops are that a grid covers unless a limit clips it, with the macro
    COVERED; privatised: tensors that blocks may have bins for; in_passes: the kernel that goes over a long axis in
    passes, for the number of failures that others have before it, which a launch takes where tiles do not fit a block;
    None where there is none.
    """

    name: str
    func: Func
    source: str
    kind: str
    teamed: bool
    chain: tuple[For, ...]
    capacities: tuple[tuple[str, Operand], ...]
    shapes: tuple[tuple[Operand, ...], ...]
    run: int
    sites: tuple[Site, ...]
    first_site: int
    overlaps: tuple[Overlap, ...]
    fastmath: bool = False
    whole_rows: bool = False
    tensor_cores: bool = False
    warpgroups: bool = False
    stages: int = STAGES
    shared: tuple[SharedTile, ...] = ()
    store: Any = None
    streams: bool = False
    slots: int = SLOTS
    first_iteration: tuple[Op | For, ...] = ()
    covered: tuple[int, ...] = ()
    privatised: tuple[Privatised, ...] = ()
    in_passes: Callable[[int], Kernel | None] | None = None

    @property
    def in_order(self) -> bool:
        """Whether threads should have elements that follow each other: what goes along lines combines runs first."""
        return "pto_lines.cuh" in self.source

    @property
    def exchanged_bytes(self) -> int:
        """About as many bytes of shared memory take the operations through which threads exchange numbers (`room` of
        the headers): only the compiler knows which of them share it."""
        return 8192 if "pto_lines.cuh" in self.source else 2048 if "::reduce_" in self.source else 0

    def shared_bytes(self, defines: dict[str, int]) -> int:
        """Bytes of dynamic shared memory for a version."""
        room: dict[str, int] = {}
        for tile in self.shared:
            name = tile.over or tile.name
            room[name] = max(room.get(name, 0), tile.bytes(defines))
        return sum(room.values()) + sum(p.bytes * defines.get(p.macro, 0) for p in self.privatised)


def write_kernel(
    func: Func, dims: dict[str, tuple[str, int]], file: str, fastmath: bool, first_site: int = 0,
    fitting: Fitting = NOTHING, ahead: bool = True,
) -> Kernel:  # fmt: skip
    """The kernel of an in-core function made by `nests`; TargetError for what it cannot be.

    dims: the numbers that are extents of tensors; fitting: along which axes the program's tiles fit any; ahead: loops
    bring operands of products for later iterations (else just before the products, where others have left memory).
    """
    func = with_updates_by_numbers(func)
    streamed = streamed_loads(func)
    known = cache(partial(gather, func, dims, fitting))
    func = with_extents(without_thin_products(func, streamed, lambda *place: known().is_below(*place)))
    multiplies = any(isinstance(s, Op) and s.op == "dot" for s in statements(func.body))
    func = along_rows(func if multiplies else in_parts(func, fitting), products=multiplies)
    facts = gather(func, dims, fitting)
    chain = chain_of(func.body)
    tiled = any(touches_tiles(s) for s in func.body)
    if not tiled:
        folds = _folds(func.body, not chain)
        once = not chain and any(isinstance(s, Op) and s.op in ATOMIC for s in statements(func.body))
        writer = FoldWriter(func, facts, chain, teamed=False, elements=not folds and not once, first_site=first_site,
                            fastmath=fastmath)  # fmt: skip
        writer.folds = folds
        writer.twins = {} if writer.elements else twins_of(func, facts, teamed=False)
        if writer.elements and chain:
            writer.privatised = privatised_in(func, facts, writer.bins_names)
        writer.block(func.body)
        writer.end_bins()
        kernel = _kernel(func, file, writer, "elements" if writer.elements else "folds", {}, (), 1, facts, fastmath,
                         bins=[p.macro for p in writer.privatised])  # fmt: skip
        return replace(kernel, privatised=writer.privatised)
    products = any(multiplies_matrices(s) for s in statements(func.body))
    copied = copied_rows(func, multiplied_rows(func, streamed))
    shapes = () if products else tile_shapes(func.body, streamed | copied)
    together = bool(streamed) or any(isinstance(s, Op) and moves_elements(s) for s in statements(func.body))
    teamed = not products and not together and bool(chain) and all(_one_row(s) for s in shapes)
    from pto_jit.targets.cuda.products import ProductWriter  # which has a `SharedTile` for what it stages

    tile_writer = ProductWriter(func, facts, chain, teamed=teamed, elements=False, first_site=first_site,
                                fastmath=fastmath)  # fmt: skip
    tile_writer.ahead = ahead
    tile_writer.twins = twins_of(func, facts, teamed, staged=products)
    tile_writer.prepare()
    tile_writer.block(func.body)
    kind = "fragments" if products else "rows"
    # Kernels of whole rows have no registers left, and those that go along lines count on the order of blocks.
    tile_writer.wide_blocks = tile_writer.tensor_cores and not tile_writer.whole_rows and (
        "pto_lines" not in tile_writer.headers) and any(
        isinstance(s, Op) and s.op == "store" and s.args[1].type.dtype.bits == 16  # type: ignore[union-attr]
        for s in statements(func.body))  # fmt: skip
    if not products:
        tile_writer.whole_rows = _reduces_rows_alone(func.body)
    run = 2 if products else _run(func.body)
    if products:  # what stays in shared memory takes no registers
        shapes = tile_shapes(func.body, in_shared_alone(func.body, tile_writer.roles) | streamed | copied)
    shapes = tuple(dict.fromkeys(tuple(_ceiling(e, facts) for e in shape) for shape in shapes))
    return _kernel(func, file, tile_writer, kind, tile_writer.capacities, shapes, run, facts, fastmath, bool(streamed))


def _folds(body: Block, shared: bool) -> dict[int, Shared]:
    """The loops of a kernel that the threads of a block share, by their identity, and what becomes of their iterations;
    `shared`: also sequential loops, innermost ones, as there are no iterations around them that blocks could have."""
    found: dict[int, Shared] = {}
    inside: set[int] = set()  # loops in those found
    for s in statements(body):
        if not isinstance(s, For) or id(s) in inside:
            continue
        inner = [t for t in statements(s.body) if isinstance(t, For)]
        if s.kind in ("combine", "in_chunk") or (shared and s.kind == "sequential" and not inner):
            outside = read_outside(body, s)
            folds: Shared | None = fold_of(s, outside)
            if folds is None:
                folds = merges_of(s, outside) or (() if shared and merges_parts(s) else None)
            if folds is not None:
                found[id(s)] = folds
                inside |= {id(t) for t in inner}
    return found


def _kernel(
    func: Func, file: str, writer: FunctionWriter, kind: str, capacities: dict[str, Operand],
    shapes: tuple[tuple[Operand, ...], ...], run: int, facts: Facts, fastmath: bool, streams: bool = False,
    bins: Sequence[str] = (),
) -> Kernel:  # fmt: skip
    text = SourceText()
    text.line("// SPDX-License-Identifier: MIT")
    text.line(f"// Kernel `{func.name}` of {file}, written by pto_jit for CUDA.")
    header = "pto_products" if kind == "fragments" or streams else "pto_cuda"
    text.line(f'#include "{"pto_warpgroups" if writer.warpgroups else header}.cuh"')
    for header in sorted(writer.headers):
        text.line(f'#include "{header}.cuh"')
    text.line()
    body = [*writer.prologue(), *str(writer.text).splitlines()]
    used = set(words_of("\n".join(body)))
    capacities = {macro: extent for macro, extent in capacities.items() if macro in used}
    _macros(text, kind, writer, run, tuple(capacities), bins)
    if writer.recipes.texts:
        text.line("namespace pto {")
        for function in writer.recipes.texts.values():
            for line in without_unused(function):
                text.line(line)
            text.line()
        text.line("}  // namespace pto")
        text.line()
    # Without the second number ptxas gives 1024 threads 32 registers each, half of those there are, and spills.
    bound = "" if kind == "elements" else " __launch_bounds__(32 * WM * WN, 1)" if kind == "fragments" else (
        " __launch_bounds__(TR * TC, TR * TC > 512)")  # fmt: skip
    params = ", ".join([*(_parameter(p, writer) for p in func.params), "pto::Failure* failure"])
    with text.block(f'extern "C" __global__ void{bound} {func.name}({params})'):
        if not writer.sites:
            text.line("(void)failure;")
        for line in without_unused(body):
            text.line(line)
    extents = (*capacities.values(), *(e for shape in shapes for e in shape))
    covered = tuple(k for k, loop in enumerate(writer.chain) if any(s is loop for s in writer.covered))
    shared = tuple(replace(tile, blocks=2) if writer.wide_blocks else tile for tile in writer.shared)
    return Kernel(func.name, func, text.wrapped(), kind, writer.teamed, writer.chain, tuple(capacities.items()), shapes,
                  run, tuple(writer.sites), writer.first_site, tuple(overlaps_of(func, facts)), fastmath,
                  writer.whole_rows, writer.tensor_cores, writer.warpgroups, STAGES,
                  shared, streams=streams, slots=_slots(func.body),
                  first_iteration=_first_iteration(func, writer.chain, extents), covered=covered)  # fmt: skip


def _macros(
    text: SourceText, kind: str, writer: FunctionWriter, run: int, capacities: tuple[str, ...], bins: Sequence[str]
) -> None:  # fmt: skip
    if kind == "elements" and not bins:
        return
    teamed = writer.teamed
    defaults = [("TR", "8" if not teamed else "1"), ("TC", "32" if not teamed else "256"), ("V", str(run))]
    if kind == "elements":
        defaults = [(macro, "0") for macro in bins]
    if kind == "folds":
        defaults = [("TR", "1"), ("TC", "256"), ("V", "1")]
    if kind == "fragments":
        defaults = [("WM", "4"), ("WN", "1" if writer.whole_rows else "2"), ("STAGES", str(STAGES))]
        defaults += [("WARPGROUPS", "0")] if writer.warpgroups else []
    text.line("// Chosen for each launch; a version of the kernel is compiled for every choice that is met.")
    for name, value in (*defaults, *((c, "128") for c in capacities)):
        text.line(f"#if !defined({name})")
        text.line(f"#define {name} {value}")
        text.line("#endif")
    if kind == "elements":
        text.line()
        return
    if kind == "fragments":
        text.line(f"using Spread = pto::Fragments<WM, WN{', 2' if writer.wide_blocks else ''}>;")
    else:
        text.line(f"using Spread = pto::Rows<TR, TC, V, {str(teamed).lower()}>;")
    text.line()


def _parameter(var: Var, writer: FunctionWriter) -> str:
    name = writer.name(var.name)
    if isinstance(var.type, TensorType):
        return f"const pto::Tensor<{memory_type(var.type.dtype)}, {var.type.rank}> {name}"
    fixed = "" if var.name in writer.facts.mutable else "const "
    return f"{fixed}{register_type(var.type.dtype)} {name}"


def tile_shapes(body: Block, without: Container[str] = ()) -> tuple[tuple[Operand, ...], ...]:
    """The declared extents of all tiles (but some), leading ones of 1 left out; operands of run-time extents."""
    from pto_jit.targets.cuda.shapes import shape_of

    out: dict[tuple[Operand, ...], None] = {}
    asked: set[object] = set()  # shapes that are known, and names of tiles of others
    for s in statements(body):
        for v in (*defs(s), *uses(s)):
            if type(v.type) is not TileType or v.name in without:
                continue
            asking = v.name if None in v.type.shape else v.type.shape
            if asking in asked:
                continue
            asked.add(asking)
            shape = shape_of(body, v)
            if shape is not None:
                out[without_ones(shape)] = None
    return tuple(out)


def without_ones(shape: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """At least two extents, without leading ones of 1."""
    while len(shape) > 2 and getattr(shape[0], "value", None) == 1:
        shape = shape[1:]
    return shape


def moves_elements(op: Op) -> bool:
    """Whether an operation moves elements of a tile between threads, through memory that the block shares."""
    return op.op in _MOVES or (op.op == "reshape" and unit_reshape(op) is None)


def _ceiling(extent: Operand, facts: Facts) -> Operand:
    """What an extent does not exceed: itself, unless it varies."""
    return facts.ceilings.get(extent.name, extent) if isinstance(extent, Var) else extent


def _one_row(shape: tuple[Operand, ...]) -> bool:
    return all(getattr(e, "value", None) == 1 for e in shape[:-1])


def _reduces_rows_alone(body: Block) -> bool:
    """Whether tiles of several rows are reduced, and only along their columns."""
    over = {axis - s.args[0].type.rank for s in statements(body)  # type: ignore[union-attr]
            if isinstance(s, Op) and is_reduction(s) for axis in reduced_axes(s)
            if s.args[0].type.rank > 1}  # type: ignore[union-attr]  # fmt: skip
    over |= {axis - s.args[0].type.rank for s in statements(body)  # type: ignore[union-attr]
             if isinstance(s, Op) and (axis := axis_along(s)) is not None}  # fmt: skip
    return over == {-1}


def _slots(body: Block) -> int:
    """Elements of a row that a thread should hold: half as many where several rows are read at once and nothing is
    reduced, so that no threads have to meet."""
    ops = [s for s in statements(body) if isinstance(s, Op)]
    wide = [s for s in ops if s.op == "load" and s.results[0].type.shape[-1] != 1]  # type: ignore[union-attr]
    return SLOTS // 2 if len(wide) > 1 and not any(is_reduction(s) for s in ops) else SLOTS


def _run(body: Block) -> int:
    """Columns that a thread takes at a time: 16 bytes of the smallest element that is loaded or stored, but no more of
    those that are stored, as what a warp stores at a time should be whole sectors.  One, where elements are updated
    atomically or lie apart: then neighbours are best of all."""
    moved: list[int] = []
    stored = [1]
    for s in statements(body):
        if not isinstance(s, Op):
            continue
        if s.op in ATOMIC or (s.op == "tensor_step" and s.attr("steps")[-1] != 1):  # type: ignore[index]
            return 1
        kinds = [a.type for a in s.args if isinstance(a.type, TensorType)]
        if s.op in ("load", "store", "take"):
            moved += [k.dtype.bytes for k in kinds]
        if s.op == "store" and s.args[0].type.shape[-1:] != (1,):  # type: ignore[union-attr]
            stored += [k.dtype.bytes for k in kinds]
    return max(1, min(8, 16 // min(moved, default=4), 16 // max(stored)))


def _first_iteration(func: Func, chain: tuple[For, ...], extents: Sequence[Operand]) -> tuple[Op | For, ...]:
    """The loops of the chain, and the operations on scalars and shapes that their bounds and these extents need."""
    known = {p.name for p in func.params}
    found: list[Op | For] = []
    body = func.body
    for loop in (*chain, None):
        for stmt in body:
            if stmt is loop:
                break
            if not isinstance(stmt, Op) or stmt.op in ("getelem", "setelem") or touches_tiles(stmt):
                continue
            made = {d.name for d in defs(stmt)}
            if made and not made & known and all(v.name in known for v in uses(stmt)):
                known |= made
                found.append(stmt)
        if loop is not None:
            known.add(loop.var.name)
            found.append(loop)
            body = loop.body
    found += [op for op in _unchanging(func) if op.results[0].name not in known]
    wanted = {e.name for e in extents if isinstance(e, Var)}
    needed: list[Op | For] = []
    for stmt in reversed(found):
        bounds = (stmt.start, stmt.stop, stmt.step) if isinstance(stmt, For) else ()
        if isinstance(stmt, For) or any(d.name in wanted for d in defs(stmt)):
            needed.append(stmt)
            wanted |= {v.name for v in (bounds or uses(stmt)) if isinstance(v, Var)}
    return tuple(reversed(needed))


def _unchanging(func: Func) -> list[Op]:
    """The arithmetic of a kernel that gives one number, wherever it stands: that of parameters alone."""
    ops = [s for s in statements(func.body) if isinstance(s, Op) and len(s.results) == 1]
    made = Counter(d.name for s in statements(func.body) for d in defs(s))
    known, out = {p.name for p in func.params}, []
    for op in ops:
        name = op.results[0].name
        numbers = isinstance(op.results[0].type, ScalarType) and (op.op == "dim" or is_elementwise(op))
        if numbers and made[name] == 1 and name not in known and all(v.name in known for v in uses(op)):
            known.add(name)
            out.append(op)
    return out

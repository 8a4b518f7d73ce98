# SPDX-License-Identifier: MIT
"""One kernel as a source file, with what a launch has to know about it."""

from __future__ import annotations

from pto_jit.ir.nodes import Block, For, Func, Op, Operand, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import defs, statements, uses
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.facts import Facts, gather
from pto_jit.targets.cuda.function import FunctionWriter
from pto_jit.targets.cuda.nests import chain_of, touches_tiles
from pto_jit.targets.cuda.products import ProductWriter
from pto_jit.targets.cuda.values import Site
from pto_jit.targets.source.scalars import memory_type, register_type
from pto_jit.targets.source.text import SourceText

THREADS = 256
"""Threads of a block that runs elements; at most this many, and what a kernel of tiles starts from."""


@frozen
class Overlap:
    """Two tensor parameters, one of them written, that must not overlap; `same`: unless they are one region."""

    read: str
    written: str
    same: bool


@frozen
class SharedTile:
    """A tile in shared memory: rows x pitch elements, several times; numbers and names of macros."""

    name: str
    rows: str
    columns: str
    pad: int
    size: int
    copies: str

    def bytes(self, defines: dict[str, int]) -> int:
        """Its size in a version with these macros."""

        def number(text: str) -> int:
            value = defines[text] if text in defines else int(text)
            return -(-value // 16) * 16 if text != self.copies else value

        return number(self.rows) * (number(self.columns) + self.pad) * self.size * number(self.copies)


@frozen(eq=False)
class Kernel:
    """A kernel's source and how it is launched.

    kind: "elements" (a thread per iteration), "rows" or "fragments" (tiles spread over a block); teamed: every team of
    threads takes iterations of its own; chain: the loops that are the grid, outermost first; capacities: macros that
    bound run-time extents of tiles; shapes: the extents of all tiles, rows and columns; run: columns that a thread
    takes at a time; sites: what can fail, numbered from `first_site + 1`; whole_rows: every warp has whole rows of
    fragments; stages, shared: how many copies of tiles in shared memory there are, and what they are.
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
    whole_rows: bool = False
    stages: int = 2
    shared: tuple[SharedTile, ...] = ()

    def shared_bytes(self, defines: dict[str, int]) -> int:
        """Bytes of dynamic shared memory for a version."""
        return sum(t.bytes(defines) for t in self.shared)


def write_kernel(
    func: Func, dims: dict[str, tuple[str, int]], file: str, fastmath: bool, first_site: int = 0
) -> Kernel:
    """The kernel of an in-core function made by `nests`; TargetError for what it cannot be."""
    facts = gather(func, dims)
    chain = chain_of(func.body)
    tiled = any(touches_tiles(s) for s in func.body)
    if not tiled:
        writer: FunctionWriter = FunctionWriter(func, facts, chain, teamed=False, elements=True, first_site=first_site)
        writer.block(func.body)
        return _kernel(func, file, writer, "elements", {}, (), 1, facts)
    products = any(isinstance(s, Op) and s.op == "dot" for s in statements(func.body))
    shapes = tile_shapes(func.body)
    teamed = not products and bool(chain) and all(_one_row(s) for s in shapes)
    tile_writer = ProductWriter(func, facts, chain, teamed=teamed, elements=False, first_site=first_site)
    tile_writer.prepare()
    tile_writer.block(func.body)
    kind = "fragments" if products else "rows"
    run = 2 if products else _run(func.body)
    return _kernel(func, file, tile_writer, kind, tile_writer.capacities, shapes, run, facts)


def _kernel(
    func: Func, file: str, writer: FunctionWriter, kind: str, capacities: dict[str, Operand],
    shapes: tuple[tuple[Operand, ...], ...], run: int, facts: Facts,
) -> Kernel:  # fmt: skip
    text = SourceText()
    text.line("// SPDX-License-Identifier: MIT")
    text.line(f"// Kernel `{func.name}` of {file}, written by pto_jit for CUDA.")
    text.line('#include "pto_cuda.cuh"')
    text.line()
    _macros(text, kind, writer.teamed, run, tuple(capacities))
    functions = writer.recipes.lines()
    if functions:
        text.line("namespace pto {")
        for line in functions:
            text.line(line)
        text.line("}  // namespace pto")
        text.line()
    bound = "" if kind == "elements" else " __launch_bounds__(32 * WM * WN)" if kind == "fragments" else (
        " __launch_bounds__(TR * TC)")  # fmt: skip
    params = ", ".join([*(_parameter(p, writer) for p in func.params), "pto::Failure* failure"])
    with text.block(f'extern "C" __global__ void{bound} {func.name}({params})'):
        if not writer.sites:
            text.line("(void)failure;")
        for line in str(writer.text).splitlines():
            text.line(line)
    return Kernel(func.name, func, str(text), kind, writer.teamed, writer.chain, tuple(capacities.items()), shapes, run,
                  tuple(writer.sites), writer.first_site, tuple(_overlaps(func, facts)), writer.whole_rows, 2,
                  tuple(writer.shared))  # fmt: skip


def _macros(text: SourceText, kind: str, teamed: bool, run: int, capacities: tuple[str, ...]) -> None:
    if kind == "elements":
        return
    defaults = [("TR", "8" if not teamed else "1"), ("TC", "32" if not teamed else "256"), ("V", str(run))]
    if kind == "fragments":
        defaults = [("WM", "4"), ("WN", "1"), ("STAGES", "2")]
    text.line("// Chosen for each launch; a version of the kernel is compiled for every choice that is met.")
    for name, value in (*defaults, *((c, "128") for c in capacities)):
        text.line(f"#if !defined({name})")
        text.line(f"#define {name} {value}")
        text.line("#endif")
    if kind == "fragments":
        text.line("using Spread = pto::Fragments<WM, WN>;")
    else:
        text.line(f"using Spread = pto::Rows<TR, TC, V, {str(teamed).lower()}>;")
    text.line()


def _parameter(var: Var, writer: FunctionWriter) -> str:
    name = writer.name(var.name)
    if isinstance(var.type, TensorType):
        return f"const pto::Tensor<{memory_type(var.type.dtype)}, {var.type.rank}> {name}"
    return f"const {register_type(var.type.dtype)} {name}"


def tile_shapes(body: Block) -> tuple[tuple[Operand, ...], ...]:
    """The declared extents of all tiles, at most two of each; operands of run-time extents."""
    from pto_jit.targets.cuda.shapes import shape_of

    out: dict[tuple[Operand, ...], None] = {}
    for s in statements(body):
        for v in (*defs(s), *uses(s)):
            if isinstance(v.type, TileType):
                shape = shape_of(body, v)
                if shape is not None:
                    out[shape[-2:]] = None
    return tuple(out)


def _one_row(shape: tuple[Operand, ...]) -> bool:
    return len(shape) == 1 or getattr(shape[0], "value", None) == 1


def _run(body: Block) -> int:
    """Columns that a thread takes at a time: 16 bytes of the smallest element that is loaded or stored."""
    sizes = [a.type.dtype.bytes for s in statements(body) if isinstance(s, Op) and s.op in ("load", "store")
             for a in s.args if isinstance(a.type, TensorType)]  # fmt: skip
    return max(1, min(8, 16 // min(sizes, default=4)))


def _overlaps(func: Func, facts: Facts) -> list[Overlap]:
    """Which parameters must not share memory: what an iteration reads late another thread may have written."""
    reads: dict[str, set[object]] = {}
    written: dict[str, set[object]] = {}
    for s in statements(func.body):
        if not isinstance(s, Op):
            continue
        if s.op in ("load", "getelem") and isinstance(s.args[0], Var):
            rank = s.args[0].type.rank  # type: ignore[union-attr]
            place = (s.op, s.args[1 : 1 + rank], s.results[0].type) if s.op == "load" else s.op
            reads.setdefault(facts.roots[s.args[0].name], set()).add(place)
        elif s.op in ("store", "setelem") and isinstance(s.args[1], Var):
            value = s.args[0]
            place = ("load", s.args[2:], value.type) if s.op == "store" else s.op
            written.setdefault(facts.roots[s.args[1].name], set()).add(place)
    out: list[Overlap] = []
    for target, places in written.items():
        for source in dict.fromkeys((*reads, *written)):
            if source == target or (source in written and source < target and source not in reads):
                continue
            mine = reads.get(source, set()) | written.get(source, set())
            same = len(places) == 1 and mine == places and all(isinstance(p, tuple) for p in places)
            out.append(Overlap(source, target, same))
    return out

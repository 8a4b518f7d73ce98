# SPDX-License-Identifier: MIT
"""Loops and nests divided among the workers: the body is a function of a range of iterations or rows, what it needs is
a structure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.ir.nodes import For, Fuse, Op
from pto_jit.ir.walk import block_defs, block_uses
from pto_jit.targets.c.tidy import names_by_line, tidy
from pto_jit.targets.c.values import CSlot, CValue, lift
from pto_jit.targets.cpu.constants import I64, Index, register_type
from pto_jit.targets.cpu.tiles import assign_tile
from pto_jit.targets.cpu.values import Slot, Tensor, Tile, TileSlot

if TYPE_CHECKING:
    from pto_jit.targets.c.function import CFunctionWriter
    from pto_jit.targets.loops.form import Nest

_RANGES = 128  # a loop of unknown cost is divided into about so many ranges


def write_parallel(w: CFunctionWriter, stmt: For) -> None:
    """A parallel or chunked loop."""
    code = w.code
    start, stop, step = w.index(stmt.start), w.index(stmt.stop), w.index(stmt.step)
    w.check_step(stmt, step)
    inner = _range_writer(w, stmt.var.name)
    name = inner.code.function.name
    assigned = set(block_defs(stmt.body))
    for key in sorted(block_uses((stmt,)) & w.env.keys()):
        _bind(w, inner, key, assigned)
    begin, end = "begin", "end"
    first, by = lift(start), lift(step)
    plain = first.text == "0" and by.text == "1"
    k = code.names.fresh(stmt.var.name if plain else "k")
    inner.code.declared.update({k: "int64_t", begin: "int64_t", end: "int64_t"})
    with inner.code.braces(f"for (int64_t {k} = {begin}; {k} < {end}; ++{k})"):
        index = CValue(I64, k)
        if not plain:
            at = inner.b.add(first, inner.b.mul(index, by))
            index = inner.code.named(at, stmt.var.name, keep=True)
        if code.at_least_zero(start) and code.at_least_zero(step):
            inner.code.not_negative.add(index.text)
        inner.begin_iteration(stmt, index)
        inner._body(stmt.body)
    inner.code.ended = False
    inner.leave()
    _finish(w, inner, name, begin, end)
    count = _trip_count(w, start, stop, step)
    grain = lift(_grain(w, stmt, count)).text
    _run(w, inner, f"pto_parallel_for(worker, {name}, ", f", 0, {lift(count).text}, {grain})")


def write_divided(w: CFunctionWriter, nest: Nest, inputs: Any) -> None:
    """A nest whose rows add up nothing together: ranges of them, or of the elements of one long row, for the workers
    where there are many elements."""
    from pto_jit.targets.c.nest import CNest

    code = w.code
    rows = code.named(lift(inputs.total if inputs.flat is True else inputs.extents[0]))
    each = 1 if inputs.flat is True else lift(code.mul(*inputs.extents[1:])).text
    inner = _range_writer(w, "rows")
    name = inner.code.function.name
    begin, end = "begin", "end"
    inner.code.declared.update({begin: "int64_t", end: "int64_t"})
    with inner.passing():
        CNest(inner, nest, inputs).write_range(begin, end)
    inner.leave()
    _finish(w, inner, name, begin, end)
    _run(w, inner, f"pto_rows(worker, {name}, ", f", {rows.text}, {each})")


def _range_writer(w: CFunctionWriter, wish: str) -> CFunctionWriter:
    """The writer of a function of a range."""
    from pto_jit.targets.c.function import CFunctionWriter

    name = w.module.names.fresh(f"{w.code.function.name}_{wish}")
    inner = CFunctionWriter(w.module, w.func, name, w.code.names, parallel=True)
    inner.mutable, inner.generated, inner.callees = w.mutable, w.generated, w.callees
    inner.hazards = w.hazards
    inner.code.not_negative |= w.code.not_negative
    return inner


def _run(w: CFunctionWriter, inner: CFunctionWriter, before: str, after: str) -> None:
    """Call a function for ranges; what it captures stands between the two texts."""
    code = w.code
    name = inner.code.function.name
    context = f"&(struct {name}){{{', '.join(inner.captured)}}}" if inner.captured else "NULL"
    code.module.calls.add("pto_parallel_for")
    code.need_status()
    code.line(f"status = {before}{context}{after};")
    code.line("if (status != PTO_OK) return status;")


def _bind(w: CFunctionWriter, inner: CFunctionWriter, key: str, assigned: set[str]) -> None:
    """A variable as it is now: what the iterations see, and each changes for itself."""
    value = w.env[key]
    if isinstance(value, Slot):
        now = w.b.load(value.pointer, typ=register_type(value.dtype))
        if key in assigned:
            slot = Slot(value.dtype, inner.code.variable(key, value.pointer.holds, now.text))
            dict.__setitem__(inner.env, key, slot)
        else:
            dict.__setitem__(inner.env, key, now)
    elif isinstance(value, TileSlot):
        tile = w.read_slot(value)
        if key in assigned and key in inner.mutable:
            from pto_jit.ir.nodes import Var
            from pto_jit.ir.types import TileType

            shape = tuple(e if isinstance(e, int) else None for e in value.declared)
            assign_tile(inner, Var(key, TileType(value.dtype, shape)), tile)
        else:
            dict.__setitem__(inner.env, key, tile)
    elif isinstance(value, (Tensor, Tile, CValue, int, CSlot)):
        dict.__setitem__(inner.env, key, value)


def _finish(w: CFunctionWriter, inner: CFunctionWriter, name: str, begin: str, end: str) -> None:
    """The text of a range function, and what it captures."""
    body = tidy(inner.finished())
    used: dict[str, None] = {}
    outer = w.code.declared.keys() - inner.code.declared.keys() - {"worker"}
    for names in names_by_line(body, outer):
        used.update(dict.fromkeys(names))
    inner.captured = list(used)
    out: list[str] = []
    if used:
        fields = "".join(f"  {_declaration(w.code.declared[n], n)};\n" for n in used)
        out.append(f"struct {name} {{\n{fields}}};\n")
    out.append(f"static int32_t {name}(pto_worker *worker, void *context, int64_t {begin}, int64_t {end}) {{")
    if used:
        out.append(f"  const struct {name} *outer = context;")
        out += [f"  {_declaration(w.code.declared[n], n)} = outer->{n};" for n in used]
    else:
        out.append("  (void)context;")
    out += map(str, body)
    out.append("}")
    w.module.functions.append((w.func.name, "\n".join(out)))


def _declaration(ctype: str, name: str) -> str:
    return f"{ctype}{'' if ctype.endswith('*') else ' '}{name}"


def _grain(w: CFunctionWriter, stmt: For, count: Index) -> Index:
    code = w.code
    if stmt.grain is not None:
        return code.max(w.index(stmt.grain), 1)
    if stmt.kind == "chunk":
        return 1
    least = 1024 if all(isinstance(s, Op) and not isinstance(s, Fuse) for s in stmt.body) else 1
    return code.max(code.div(code.add(count, _RANGES - 1), _RANGES), least)


def _trip_count(w: CFunctionWriter, start: Index, stop: Index, step: Index) -> Index:
    """How many numbers are in range(start, stop, step)."""
    if all(isinstance(x, int) for x in (start, stop, step)):
        return len(range(start, stop, step))
    if isinstance(step, int) and step == 1 and isinstance(start, int) and start == 0:
        return w.code.max(stop, 0)
    return w.code.named(CValue(I64, f"pto_trip_count({', '.join(lift(x).text for x in (start, stop, step))})"))


# SPDX-License-Identifier: MIT
"""Loads of which a plane alone is wanted, `pl.load(q, [b, h, i, 0], [1, 1, 64, d])[0, 0]`, as loads of a view of that
plane, as `q[b, h, i : i + 64, :]` is.  Nothing is copied, and tiles have the axes that are worked on.

Before::

    // Function Type: InCore
    func @f(%q: !pto.memref<gm,?x?x?x64,f32>, %o: !pto.memref<gm,?x64,f32>, %b: i64, %h: i64, %i: i64) {
      %q.1 = tload %q[%b, %h, %i, 0] [1, 1, 16, 64] : !pto.tile<1x1x16x64xf32>
      %t = ttile_slice %q.1[0, 0, 0, 0] [1, 1, 16, 64] {drop=(0, 1)} : !pto.tile<16x64xf32>
      tstore %t, %o[%i, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%q: !pto.memref<gm,?x?x?x64,f32>, %o: !pto.memref<gm,?x64,f32>, %b: i64, %h: i64, %i: i64) {
      %q.plane = tview %q[%b, %h, %i, 0] [1, 1, 16, 64] {drop=(0, 1)} : !pto.memref<gm,?x64,f32,inner>
      %t = tload %q.plane[0, 0] [16, 64] : !pto.tile<16x64xf32>
      tstore %t, %o[%i, 0]
      return
    }
"""

from __future__ import annotations

from pto_jit.ir.nodes import Block, Func, Module, Op, Stmt, Var
from pto_jit.ir.walk import def_counts, map_funcs, rewrite_func, statements, uses
from pto_jit.lower.names import Names, index, source_name
from pto_jit.semantic.rules import infer
from pto_jit.slotted import replace


def load_planes(module: Module) -> Module:
    """Replace the loads of which nothing but one plane is read, where that is read in the block of the load."""
    return map_funcs(module, _of_function)


def _of_function(func: Func) -> Func:
    flat = list(statements(func.body))
    slices = [s for s in flat if isinstance(s, Op) and s.op == "tile_slice" and s.attr("drop")]
    if not slices:
        return func
    counts = def_counts(func.body)
    readers: dict[str, int] = {}
    for s in flat:
        for v in uses(s):
            readers[v.name] = readers.get(v.name, 0) + 1
    handed = _temporaries(flat)
    loads = {s.results[0].name: s for s in flat if isinstance(s, Op) and s.op == "load" and not s.attr("pad")
             and counts[s.results[0].name] == 1 and s.args[0].name not in handed}  # type: ignore[union-attr]  # fmt: skip
    planes: dict[str, Op] = {}  # by the tile that is loaded
    for s in slices:
        source = s.args[0]
        load = loads.get(source.name) if isinstance(source, Var) else None
        if load is not None and readers[source.name] == 1 and counts[s.results[0].name] == 1 and _is_plane(s, load):  # type: ignore[union-attr]
            planes[source.name] = s  # type: ignore[union-attr]
    if not planes:
        return func
    names = Names(func)
    taken = {s.results[0].name for s in planes.values()}

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Op) or not stmt.results:
            return None
        if stmt.results[0].name in taken:
            return ()
        part = planes.get(stmt.results[0].name)
        return None if part is None else _loaded(stmt, part, names)

    return rewrite_func(func, visit)


def _temporaries(body: list[Stmt]) -> set[str]:
    """Memory of tiles that scopes hand on, and views of it: what is loaded of it is the tile, if scopes become one."""
    out: set[str] = set()
    for s in body:
        if isinstance(s, Op) and ((s.op == "alloc" and s.attr("tile")) or (s.op == "view" and s.args[0].name in out)):  # type: ignore[union-attr]
            out.add(s.results[0].name)
    return out


def _is_plane(part: Op, load: Op) -> bool:
    """Whether a slice of a loaded tile is all of it, but for axes of extent 1."""
    rank = load.results[0].type.rank  # type: ignore[union-attr]
    starts, extents = part.args[1 : 1 + rank], part.args[1 + rank :]
    return all(s == index(0) for s in starts) and extents == load.args[1 + rank :]


def _loaded(load: Op, part: Op, names: Names) -> Block:
    """The view, and its load, where all of the tile was loaded."""
    tensor, drop = load.args[0], part.attr("drop")
    (typ,) = infer("view", load.args, {"drop": drop})
    view = names.fresh(f"{source_name(tensor.name)}.plane", typ)  # type: ignore[union-attr]
    rank = load.results[0].type.rank  # type: ignore[union-attr]
    extents = tuple(n for k, n in enumerate(load.args[1 + rank :]) if k not in drop)  # type: ignore[operator]
    zeros = (index(0),) * len(extents)
    return (
        Op("view", (view,), load.args, (("drop", drop),), (), load.loc),
        replace(load, results=part.results, args=(view, *zeros, *extents)),
    )

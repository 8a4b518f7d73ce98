# SPDX-License-Identifier: MIT
"""Packing: copies of blocks of A and B in the order in which the micro-kernels read them.

Panels hold ``width`` rows of A (MR) or columns of B (NR): for each group of k, ``width`` units side by side.  The
last panel of B is as many whole vectors wide as it needs.  Columns and k beyond the border are zero.  With i8 x i8
by vpdpbusd a panel of B starts with its correction, minus 128 times the sum of each column (see
`shape.Scheme.offset_a`).

* ``pack_b_across(k, n, b, k_stride, to, panel)``: columns contiguous in memory;
* ``pack_b_along(k, n, b, n_stride, to, panel)``: k contiguous in memory, transposed in registers;
* ``pack_b_any(k, n, b, k_stride, n_stride, to, panel)``: no unit stride;
* ``pack_a_across``, ``pack_a_any``: the same into panels of MR rows;
* ``pack_a_rows(k, m, a, m_stride, to, row)``: k contiguous in memory: rows copied (and converted), ``row`` bytes apart;
* ``panels_a_<layout>``, ``low_a_<layout>``, ``rows_a_any``: A for `panels`.

k, n, m count elements; strides, panel and row are bytes; ``to`` is the first panel's first unit (behind its header).
With matrix tiles what is packed has whole tiles of k: rows of A end with zeros, those of B are added by
``pad_b(k, n, to, panel)``.
"""

from __future__ import annotations

from pto_jit.slotted import frozen
from pto_jit.targets.cpu.matmul.convert import converted, read
from pto_jit.targets.cpu.matmul.irtext import I64, PTR, VOID, Function, Module, Value, vector
from pto_jit.targets.cpu.matmul.kernel import Arithmetic
from pto_jit.targets.cpu.matmul.shape import CHUNK, LOW, SIZES, STORAGE, Scheme
from pto_jit.targets.cpu.matmul.vectors import clamp, prefetch, splat

GROUPS_AHEAD = 8
"""Rows of B are short and far apart: the prefetchers do not see them coming.  Where a group is several rows they are
asked for in L2: as many as that, a power of two apart, would drive each other out of L1."""


@frozen
class Layout:
    """Panels of one operand: what is side by side in a panel, and how deep."""

    dtype: str
    lanes: int  # rows of A or columns of B in a vector
    group: int  # elements along k side by side
    vectors: int = 1  # of a panel
    narrow_tail: bool = False  # the last panel has no more vectors than it needs


def add_packing(module: Module, scheme: Scheme) -> None:
    """Define all packing functions of a scheme."""
    of_a, of_b, group = scheme.combo.a, scheme.combo.b, scheme.group
    panels_b = Layout(of_b, scheme.lanes, group, scheme.panel_vectors, narrow_tail=True)
    _across(module, scheme, "pack_b_across", panels_b)
    _along(module, scheme)
    _any(module, scheme, "pack_b_any", panels_b)
    if not scheme.tiles:
        _across(module, scheme, "pack_a_across", Layout(of_a, scheme.tile_rows, group))
    # With tiles each row is a panel.
    _any(module, scheme, "pack_a_any", Layout(of_a, 1 if scheme.tiles else scheme.tile_rows, group))
    _rows(module, scheme)
    if scheme.panelled:
        for name, width in (("panels", scheme.panel_rows), ("low", LOW)):
            _chunks(module, scheme, f"{name}_a_along", width)
            _any(module, scheme, f"{name}_a_any", Layout(of_a, width, CHUNK))
        _across(module, scheme, "panels_a_across", Layout(of_a, scheme.panel_rows, CHUNK))
        _any(module, scheme, "rows_a_any", Layout(of_a, 1, group))
    if scheme.header:
        _correction(module, scheme)
    if scheme.together > 1:
        _padding(module, scheme)


def interleave(f: Function, rows: list[Value]) -> Value:
    """Vectors of 1, 2 or 4 rows as one vector of groups: element 0 of every row, element 1 of every row, ..."""
    if len(rows) == 1:
        return rows[0]
    if len(rows) == 4:
        rows = [interleave(f, [rows[0], rows[2]]), interleave(f, [rows[1], rows[3]])]
    x, y = rows
    lanes, _, element = x.type[1:-1].split()
    n = int(lanes)
    order = ", ".join(f"i32 {i}, i32 {i + n}" for i in range(n))
    return f.emit(
        vector(2 * n, element), f"shufflevector {x.type} {x.ref}, {y.type} {y.ref}, <{2 * n} x i32> <{order}>"
    )


def _across(module: Module, scheme: Scheme, name: str, layout: Layout) -> None:
    f = module.function(
        name, VOID, [(I64, "k"), (I64, "n"), (PTR, "from"), (I64, "k_stride"), (PTR, "to"), (I64, "panel")]
    )
    k, n, source, k_stride, to, panel = f.parameters
    dtype, lanes, vectors, group = layout.dtype, layout.lanes, layout.vectors, layout.group
    width, size = lanes * vectors, SIZES[dtype]
    machine, unit = scheme.machine, scheme.element_packed * group
    whole_panels = n // width
    tail = n % width
    tail_vectors = f.ceil_div(tail, lanes)
    tail_row = tail_vectors * (lanes * unit) if layout.narrow_tail else f.const(width * unit)
    tail_source = f.offset(source, whole_panels * (width * size))
    tail_to = f.offset(to, whole_panels * panel)

    def groups(start: Value | int, stop: Value, rows_there: Value | None) -> None:
        with f.loop(start, stop) as each:
            skip = each.index * group * k_stride

            def unit_vector(base: Value, count: Value | None) -> Value:
                got = []
                for i in range(group):
                    have = count
                    if rows_there is not None:
                        full = f.const(lanes) if count is None else count
                        have = f.select(rows_there > i, full, 0)
                    raw = read(f, machine, dtype, lanes, f.offset(base, k_stride * i), have)
                    got.append(converted(f, machine, dtype, scheme.packed, raw))
                return interleave(f, got)

            row = f.offset(source, skip)
            place = f.offset(to, each.index * (width * unit))
            with f.loop(0, whole_panels, 1, [row, place]) as every:
                at, put = every.carried
                if layout.narrow_tail:
                    for i in range(group):
                        later = f.offset(at, k_stride * (GROUPS_AHEAD * group + i))
                        for spot in range(0, width * size, 64):
                            prefetch(f, f.offset(later, spot), level=2 if group > 1 else 1)
                for v in range(vectors):
                    f.store(unit_vector(f.offset(at, v * lanes * size), None), f.offset(put, v * lanes * unit))
                every.carry(f.offset(at, width * size), f.offset(put, panel))
            with f.when(tail > 0):
                row = f.offset(tail_source, skip)
                place = f.offset(tail_to, each.index * tail_row)
                with f.loop(0, tail_vectors) as every:
                    count = f.minimum(tail - every.index * lanes, lanes)
                    value = unit_vector(f.offset(row, every.index * (lanes * size)), count)
                    f.store(value, f.offset(place, every.index * (lanes * unit)))

    groups(0, k // group, None)
    if group > 1:
        groups(k // group, f.ceil_div(k, group), k % group)
    f.give()


def _rows(module: Module, scheme: Scheme) -> None:
    f = module.function(
        "pack_a_rows", VOID, [(I64, "k"), (I64, "m"), (PTR, "a"), (I64, "m_stride"), (PTR, "to"), (I64, "row")]
    )
    k, m, a, m_stride, to, row = f.parameters
    dtype, machine, size = scheme.combo.a, scheme.machine, SIZES[scheme.combo.a]
    lanes = machine.vector_bytes // scheme.element_packed
    with f.loop(0, m, 1, [a, to]) as rows:
        at, put = rows.carried
        with f.loop(0, k - (lanes - 1), lanes) as loop:
            value = converted(
                f, machine, dtype, scheme.packed, read(f, machine, dtype, lanes, f.offset(at, loop.index * size))
            )
            f.store(value, f.offset(put, loop.index * scheme.element_packed))
        rest = k % lanes
        with f.when(rest > 0):
            done = k - rest
            value = read(f, machine, dtype, lanes, f.offset(at, done * size), rest)
            f.store(converted(f, machine, dtype, scheme.packed, value), f.offset(put, done * scheme.element_packed))
        rows.carry(f.offset(at, m_stride), f.offset(put, row))
    f.give()


def _chunks(module: Module, scheme: Scheme, name: str, width: int) -> None:
    """Whole panels of chunks from rows along k: a chunk of each row in turn.

    As many rows as a vector has chunks are read a vector each and turned, so that whole vectors are written.
    """
    f = module.function(
        name, VOID, [(I64, "k"), (I64, "m"), (PTR, "a"), (I64, "m_stride"), (PTR, "to"), (I64, "panel")]
    )
    k, m, a, m_stride, to, panel = f.parameters
    dtype, machine, size = scheme.combo.a, scheme.machine, SIZES[scheme.combo.a]
    lanes, unit = scheme.lanes, scheme.element_packed * CHUNK
    together = lanes // CHUNK

    def part(row: Value, skip: Value, elements: int, count: Value | None) -> Value:
        raw = read(f, machine, dtype, elements, f.offset(row, skip), count)
        return converted(f, machine, dtype, scheme.packed, raw)

    def chunk(rows: list[Value], done: Value, put: Value, count: Value | None) -> None:
        for r, row in enumerate(rows):
            f.store(part(row, done * size, CHUNK, count), f.offset(put, r * unit))

    with f.loop(0, m - (width - 1), width, [a, to]) as each:
        at, put = each.carried
        rows = [at]
        for _ in range(1, width):
            rows.append(f.offset(rows[-1], m_stride))
        with f.loop(0, k - (lanes - 1), lanes, [put]) as loop:
            for top in range(0, width, together):
                vectors = [part(row, loop.index * size, lanes, None) for row in rows[top : top + together]]
                for c, value in enumerate(_turned(f, vectors, CHUNK)):
                    f.store(value, f.offset(loop.carried[0], (c * width + top) * unit))
            loop.carry(f.offset(loop.carried[0], width * unit * together))
        rest = k % CHUNK
        with f.loop(k - k % lanes, k - (CHUNK - 1), CHUNK, loop.after) as loop:
            chunk(rows, loop.index, loop.carried[0], None)
            loop.carry(f.offset(loop.carried[0], width * unit))
        with f.when(rest > 0):
            chunk(rows, k - rest, loop.after[0], rest)
        each.carry(f.offset(at, m_stride * width), f.offset(put, panel))
    f.give()


def _any(module: Module, scheme: Scheme, name: str, layout: Layout) -> None:
    f = module.function(
        name,
        VOID,
        [(I64, "k"), (I64, "n"), (PTR, "from"), (I64, "k_stride"), (I64, "n_stride"), (PTR, "to"), (I64, "panel")],
        hot=False,
    )
    k, n, source, k_stride, n_stride, to, panel = f.parameters
    dtype, lanes, group = layout.dtype, layout.lanes, layout.group
    width = lanes * layout.vectors
    unit = scheme.element_packed * group
    panels, padded = f.ceil_div(n, width), f.round_up(k, group * (1 if layout.narrow_tail else scheme.together))
    with f.loop(0, panels) as each:
        first = each.index * width
        valid = f.minimum(n - first, width)
        columns = f.select(valid >= width, width, f.round_up(valid, lanes)) if layout.narrow_tail else f.const(width)
        base = f.offset(to, each.index * panel)
        column_source = f.offset(source, first * n_stride)
        with f.loop(0, padded) as step:
            row = f.offset(base, (step.index // group) * columns * unit)
            row = f.offset(row, (step.index % group) * scheme.element_packed)
            there = f.select(step.index < k, valid, 0)
            at = f.offset(column_source, step.index * k_stride)
            with f.loop(0, there) as column:
                value = f.load(STORAGE[dtype], f.offset(at, column.index * n_stride))
                value = converted(f, scheme.machine, dtype, scheme.packed, value)
                f.store(value, f.offset(row, column.index * unit))
            with f.loop(there, columns) as column:
                zero = Value(f, scheme.packed, "0" if scheme.packed.startswith("i") else "0.0")
                f.store(zero, f.offset(row, column.index * unit))
    f.give()


def transposed(f: Function, rows: list[Value], unit: int) -> list[Value]:
    """A square of V vectors of V units, transposed: inside 128-bit lanes by unpacking, then lanes by shuffles."""
    count, type_ = len(rows), rows[0].type
    per_lane = min(16 // unit, count)
    crossings = count // per_lane

    def shuffle(x: Value, y: Value, order: list[int]) -> Value:
        text = ", ".join(f"i32 {i}" for i in order)
        return f.emit(type_, f"shufflevector {type_} {x.ref}, {type_} {y.ref}, <{count} x i32> <{text}>")

    def unpack(x: Value, y: Value, chunk: int, high: bool) -> Value:
        """unpcklo/unpckhi of chunks of units inside each 128-bit lane."""
        order = []
        half = per_lane // 2
        for lane in range(crossings):
            start = lane * per_lane + (half if high else 0)
            for c in range(start, start + half, chunk):
                order += [*range(c, c + chunk), *range(count + c, count + c + chunk)]
        return shuffle(x, y, order)

    squares: list[list[Value]] = []
    for q in range(crossings):
        part = rows[q * per_lane : (q + 1) * per_lane]
        if per_lane == 4:
            low = (unpack(part[0], part[1], 1, False), unpack(part[2], part[3], 1, False))
            high = (unpack(part[0], part[1], 1, True), unpack(part[2], part[3], 1, True))
            part = [unpack(x, y, 2, upper) for x, y in (low, high) for upper in (False, True)]
        else:
            part = [unpack(part[0], part[1], 1, False), unpack(part[0], part[1], 1, True)]
        squares.append(part)

    result: list[Value] = [rows[0]] * count
    for j in range(per_lane):
        for lane, value in enumerate(_turned(f, [square[j] for square in squares], per_lane)):
            result[per_lane * lane + j] = value
    return result


def _turned(f: Function, rows: list[Value], width: int) -> list[Value]:
    """A square of V vectors (1, 2 or 4) of V pieces of `width` elements, transposed as one of pieces."""

    def pieces(x: Value, y: Value, picks: list[int]) -> Value:
        order = ", ".join(f"i32 {p * width + u}" for p in picks for u in range(width))
        return f.emit(
            x.type, f"shufflevector {x.type} {x.ref}, {y.type} {y.ref}, <{len(rows) * width} x i32> <{order}>"
        )

    if len(rows) == 1:
        return rows
    if len(rows) == 2:
        return [pieces(rows[0], rows[1], picks) for picks in ([0, 2], [1, 3])]
    first, second, third, fourth = rows
    low = (pieces(first, second, [0, 1, 4, 5]), pieces(third, fourth, [0, 1, 4, 5]))
    high = (pieces(first, second, [2, 3, 6, 7]), pieces(third, fourth, [2, 3, 6, 7]))
    return [pieces(x, y, picks) for x, y in (low, high) for picks in ([0, 2, 4, 6], [1, 3, 5, 7])]


def _along(module: Module, scheme: Scheme) -> None:
    lanes, group, unit = scheme.lanes, scheme.group, scheme.unit
    dtype, machine, size = scheme.combo.b, scheme.machine, SIZES[scheme.combo.b]
    math_type = "double" if scheme.packed == "double" else "float" if scheme.packed == "float" else f"i{8 * unit}"
    unit_type = vector(lanes, math_type)

    f = module.function("transpose", VOID, [(PTR, "from"), (I64, "n_stride"), (PTR, "to"), (I64, "row")])
    at, n_stride, to, row = f.parameters
    rows = []
    for _ in range(lanes):
        value = converted(f, machine, dtype, scheme.packed, read(f, machine, dtype, lanes * group, at))
        if value.type != unit_type:
            value = f.emit(unit_type, f"bitcast {value.type} {value.ref} to {unit_type}")
        rows.append(value)
        at = f.offset(at, n_stride)
    for value in transposed(f, rows, unit):
        f.store(value, to)
        to = f.offset(to, row)
    f.give()

    f = module.function(
        "pack_b_along", VOID, [(I64, "k"), (I64, "n"), (PTR, "b"), (I64, "n_stride"), (PTR, "to"), (I64, "panel")]
    )
    k, n, b, n_stride, to, panel = f.parameters
    width = scheme.panel_columns
    length = lanes * group * size  # of a row of a square, in bytes
    edge, room = f.alloca(lanes * length), f.alloca(lanes * lanes * unit)
    groups = f.ceil_div(k, group)
    with f.loop(0, f.ceil_div(n, width)) as each:
        first = each.index * width
        valid = f.minimum(n - first, width)
        strips = f.ceil_div(valid, lanes)
        row = strips * (lanes * unit)
        with f.loop(0, strips) as strip:
            start = strip.index * lanes
            columns = f.minimum(valid - start, lanes)
            at = f.offset(b, (first + start) * n_stride)
            put = f.offset(f.offset(to, each.index * panel), start * unit)
            whole = f.select(columns >= lanes, k // (lanes * group), 0) * lanes
            with f.loop(0, whole, lanes) as block:
                here = f.offset(at, block.index * (group * size))
                f.call("transpose", VOID, [here, n_stride, f.offset(put, block.index * row), row])
            with f.loop(whole, groups, lanes) as block:
                deep = clamp(f, k - block.index * group, lanes * group)
                # what there is of a square, with zeros around it
                with f.loop(0, lanes, 1, [f.offset(at, block.index * (group * size)), edge]) as line:
                    there = f.select(columns > line.index, deep, 0)
                    f.store(read(f, machine, dtype, lanes * group, line.carried[0], there), line.carried[1])
                    line.carry(f.offset(line.carried[0], n_stride), f.offset(line.carried[1], length))
                f.call("transpose", VOID, [edge, f.const(length), room, f.const(lanes * unit)])
                out = f.offset(put, block.index * row)
                with f.loop(0, f.minimum(groups - block.index, lanes)) as line:
                    f.store(
                        f.load(unit_type, f.offset(room, line.index * (lanes * unit))), f.offset(out, line.index * row)
                    )
    f.give()


def _padding(module: Module, scheme: Scheme) -> None:
    """``pad_b(k, n, to, panel)``: fill packed panels up to whole tiles with zeros."""
    f = module.function("pad_b", VOID, [(I64, "k"), (I64, "n"), (PTR, "to"), (I64, "panel")])
    k, n, to, panel = f.parameters
    vector_bytes, width = scheme.machine.vector_bytes, scheme.panel_columns
    groups = f.ceil_div(k, scheme.group)
    missing = f.round_up(groups, scheme.together) - groups
    zero = Value(f, vector(scheme.lanes, "i32"), "zeroinitializer")
    with f.when(missing > 0), f.loop(0, f.ceil_div(n, width)) as each:
        row = f.ceil_div(f.minimum(n - each.index * width, width), scheme.lanes) * vector_bytes
        base = f.offset(f.offset(to, each.index * panel), groups * row)
        with f.loop(0, missing * row, vector_bytes) as line:
            f.store(zero, f.offset(base, line.index))
    f.give()


def _correction(module: Module, scheme: Scheme) -> None:
    """``correct_b(groups, n, to, panel)``: write the header of each packed panel."""
    f = module.function("correct_b", VOID, [(I64, "groups"), (I64, "n"), (PTR, "to"), (I64, "panel")])
    groups, n, to, panel = f.parameters
    math = Arithmetic(f, scheme)
    lanes, unit, width = scheme.lanes, scheme.unit, scheme.panel_columns
    half = splat(f, Value(f, "i32", str(0x80808080 - (1 << 32))), lanes)
    with f.loop(0, f.ceil_div(n, width)) as each:
        row = f.ceil_div(f.minimum(n - each.index * width, width), lanes) * (lanes * unit)
        base = f.offset(to, each.index * panel)
        with f.loop(0, row, lanes * unit) as column:
            at = f.offset(base, column.index)
            with f.loop(0, groups, 1, [Value(f, math.sum_type, "zeroinitializer"), at]) as loop:
                total, here = loop.carried
                loop.carry(math.step(total, half, f.load(math.vector_type, here)), f.offset(here, row))
            minus = f.emit(math.sum_type, f"sub {math.sum_type} zeroinitializer, {loop.after[0].ref}")
            f.store(minus, f.offset(at, f.const(0) - row))
    f.give()

# SPDX-License-Identifier: MIT
"""Seeded random kernels that use the whole language: tensors, tiles, control flow, scopes, functions, schedules.

Programs are legal by construction: the writer knows the axes, the dtype and the exactness of every value.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np

from tests.differential.compare import Kernel
from tests.differential.tile_ops import numeric, tile_operation
from tests.differential.values import DTYPES, FLOATS, NUMPY, ONE, Axis, Value, joined
from tests.differential.writer import Tensor, Writer, shape_text

PREAMBLE = """\
import operator


def choose(t):
    if t > 1:
        return t * 2
    return t + 1


def better(p, q):
    take = q[0] > p[0]
    return pl.where(take, q[0], p[0]), pl.where(take, q[1], p[1])


@pto.incore
def scaled(t, k):
    return t * k


@pto.incore
def both(t):
    return pl.max(t, axis=0, keepdims=True), t + 1


@pto.jit
def copied(source, target):
    target[:, :] = pl.load(source)


"""
TOLERANCE = {0: (1e-12, 1e-12), 1: (1e-9, 1e-9), 2: (2e-3, 2e-3), 3: (3e-2, 6e-2), 4: (0.2, 0.3)}
ROWS, COLS, DEPS = (Axis(name, name, None, True) for name in ("rows", "cols", "deps"))


# -- statements -------------------------------------------------------------------------------------------------------


def load(w: Writer) -> None:
    """A tile of a tensor: a block at an offset, a view, or the whole."""
    tensor = w.rng.choice(w.tensors)
    offsets, axes = [], []
    for axis in tensor.axes:
        offset, loaded = place(w, axis)
        offsets.append(offset)
        axes.append(loaded)
    everything = all(o == "0" for o in offsets) and [a.key for a in axes] == [a.key for a in tensor.axes]
    if everything and w.chance(0.7):
        text = f"pl.load({tensor.text})"
    elif w.chance(0.3) and not any(a.const == 1 for a in axes):
        slices = [":" if a.key == t.key else f"{o}:{o} + {a.extent}" for o, a, t in zip(offsets, axes, tensor.axes, strict=True)]
        text = f"{tensor.text}[{', '.join(slices)}]"
        text = f"pl.load({text})" if w.chance(0.5) else f"{text}{w.rng.choice(['[:]', f'.to(pl.{tensor.dtype})'])}"
        if text.endswith("[:]"):
            text = f"pl.load({text})"
    else:
        pad = f", pad={w.constant(tensor.dtype)}" if w.chance(0.15) else ""
        if pad:
            axes = [Axis(f"={a.const}" if a.const else f"pad{a.extent}", a.extent, a.const, True) if a.const != 1 else a for a in axes]
        text = f"pl.load({tensor.text}, [{', '.join(offsets)}], {shape_text(tuple(axes))}{pad})"
    w.define(text, tensor.dtype, tuple(axes), exact=tensor.exact, bound=tensor.bound)


def place(w: Writer, axis: Axis) -> tuple[str, Axis]:
    """An offset along an axis of a tensor, and the axis of the tile there."""
    here = [v for v in w.ints if v.startswith(f"at_{axis.key}_")]
    if here and w.chance(0.75):
        offset = w.rng.choice(here)
        block = int(offset.split("_")[2])
        return offset, ONE if block == 1 else Axis(f"{offset}:{block}:{axis.key}", str(block), block, False)
    kind = w.rng.random()
    if kind < 0.5:
        return "0", axis
    if kind < 0.6 and not w.empty:
        return "0", ONE
    low, extent = w.rng.randint(0, 2), w.rng.choice([2, 3, 8, 16])
    return str(low), Axis(f"{low}:{extent}:{axis.key}", str(extent), extent, False)


def view(w: Writer) -> None:
    """A name for a view of a tensor."""
    t = w.rng.choice(w.tensors)
    name = w.name("t")
    if t.text.startswith("t"):
        return
    rank = len(t.axes)
    kind = w.rng.choice(["T", "slice", "drop", "reshape", "axes"])
    if kind == "T":
        w.line(f"{name} = {t.text}.T")
        new = Tensor(name, t.dtype, t.axes[::-1], t.exact, t.bound)
    elif kind == "slice":
        parts, axes = [], []
        for axis in t.axes:
            offset, got = place(w, axis)
            if got.const == 1:
                offset, got = "0", axis
            parts.append(":" if got.key == axis.key else f"{offset}:{offset} + {got.extent}")
            axes.append(got)
        w.line(f"{name} = {t.text}[{', '.join(parts)}]")
        new = Tensor(name, t.dtype, tuple(axes), t.exact, t.bound)
    elif kind == "drop" and rank == 3:
        w.line(f"{name} = {t.text}[0]")
        new = Tensor(name, t.dtype, t.axes[1:], t.exact, t.bound)
    elif kind == "axes" and rank == 3:
        w.line(f"{name} = pl.transpose({t.text}, (2, 0, 1))")
        new = Tensor(name, t.dtype, (t.axes[2], t.axes[0], t.axes[1]), t.exact, t.bound)
    elif kind == "reshape" and t.packed and rank == 1:
        w.line(f"{name} = pl.reshape({t.text}, [1, {t.axes[0].extent}])")
        new = Tensor(name, t.dtype, (ONE, t.axes[0]), t.exact, t.bound)
    else:
        return
    w.tensors.append(new)


def store(w: Writer) -> None:
    """Write a tile where it can be seen."""
    if w.own is not None:
        own = [a.key for a in w.own]
        v = w.pick(lambda v: v.rank == 2 and (v.exact or True) and all(a.key in (k, "1") for a, k in zip(v.axes, own, strict=True)))
        if v is None or (not v.exact and w.out_dtype not in FLOATS):
            return
        text, _, _ = w.cast(v, w.out_dtype)
        places = w.own_place
        if [a.key for a in v.axes] == own and w.chance(0.3):
            low = places.strip("[]").split(", ")
            ends = [f"{p}:{p} + {a.extent}" if a.key not in ("rows", "cols") else ":" for p, a in zip(low, v.axes, strict=True)]
            sign = "+=" if w.out_dtype != "bool_" and w.chance(0.3) and not w.aliased else "="
            if sign == "+=" and w.out_dtype in FLOATS:
                text = f"pl.clip({text}, -8, 8)"
                w.coarse_out()
            w.line(f"o[{', '.join(ends)}] {sign} {text}")
        else:
            w.line(f"pl.store({text}, {places}, o)")
        return
    v = w.pick()
    if v is None:
        return
    if v.rank > 3:
        return
    target = w.rng.choice(["s", "s", "o"]) if v.rank == 2 else "s"
    dtype = w.out_dtype if target == "o" else ("f64", w.second, w.third)[v.rank - 1]
    if not v.exact and dtype not in FLOATS:
        return
    text, _, _ = w.cast(v, dtype)
    name = "o" if target == "o" else f"s{v.rank}"
    offsets = [w.rng.choice(["0", "0", "1", w.integer()]) for _ in v.axes]
    w.line(f"pl.store({text}, [{', '.join(offsets)}], {name})")


def branch(w: Writer) -> None:
    condition = w.rng.choice([f"n > {w.rng.randint(0, 5)}", f"n % 2 == {w.rng.randint(0, 1)}", "s > 0", f"{w.integer()} <= n < 5",
                              f"n > 1 and {w.integer()} != 2", f"not n or {w.integer()} > 1"])  # fmt: skip
    carried = [v for v in (w.pick(numeric), w.pick(numeric)) if v is not None]
    new: Value | None = None
    with w.block(f"if {condition}:"):
        statements(w, w.rng.randint(0, 2))
        for v in carried:
            update(w, v)
        a = w.pick()
        fresh = w.name()
        if a is not None:
            w.line(f"{fresh} = {a.name}")
            new = a
    if new is not None and new.name in {v.name for v in w.values}:
        with w.block("else:"):
            statements(w, w.rng.randint(0, 1))
            other = w.pick(lambda v: v.dtype == new.dtype and same_axes(v, new) and v.generated == new.generated)
            other = other or new
            w.line(f"{fresh} = {other.name}")
        w.values.append(new.like(fresh, exact=new.exact and other.exact, bound=max(new.bound, other.bound)))
    settle(w, carried)


def same_axes(a: Value, b: Value) -> bool:
    """Whether a variable can hold both: the extents come from the same place, too."""
    return [(x.key, x.extent) for x in a.axes] == [(x.key, x.extent) for x in b.axes]


def fits_into(o: Value, v: Value) -> bool:
    axes = joined(v, o)
    return axes is not None and same_axes(v.like("", axes=axes), v)


def update(w: Writer, v: Value) -> None:
    """Assign to a variable again, keeping its type."""
    if not any(x.name == v.name for x in w.values) or v.name in w.frozen:
        return
    o = w.pick(lambda o: fits_into(o, v) and o.dtype == v.dtype and (o.generated or not v.generated))
    if o is None or w.chance(0.2):
        text = f"pl.maximum({v.name}, {w.constant(v.dtype)})"
    elif v.is_float:
        text = w.rng.choice([f"pl.clip({v.name} + {o.name}, -8, 8)", f"pl.clip({v.name} * {o.name}, -4, 4)", o.name if joined(o, v) == o.axes and o.rank == v.rank and o.generated == v.generated and same_axes(o, v) else f"pl.minimum({v.name}, {o.name})"])
    else:
        text = f"{v.name} {w.rng.choice(['+', '-', '^', '|'])} {o.name}"
    if text.startswith("pl.") or w.chance(0.5):
        w.line(f"{v.name} = {text}")
    else:
        w.line(f"{v.name} = {text}")


def settle(w: Writer, carried: list[Value]) -> None:
    """After control flow, what is known about variables that it may have assigned."""
    names = {v.name for v in carried}
    for k, v in enumerate(w.values):
        if v.name in names:
            w.values[k] = v.like(v.name, exact=v.exact and not v.is_float, bound=max(v.bound, 8.0) if v.is_float else 2.0**64)
            if v.is_float:
                w.coarseness = max(w.coarseness, {"f64": 1, "f32": 2, "f16": 3, "bf16": 4}[v.dtype])


def loop(w: Writer) -> None:
    """A sequential loop that carries tiles and scalars."""
    if w.loops >= 3:
        return
    carried = [v for v in {w.pick(numeric), w.pick(numeric), w.pick(numeric)} if v is not None and not v.generated and v.name not in w.frozen]
    carried.sort(key=lambda v: v.name)
    # inside, nothing about a carried variable is exact any more
    settle(w, carried)
    carried = [v for v in w.values if v.name in {c.name for c in carried}]
    index, counter = w.name("i"), w.name("k")
    bounds = w.rng.choice(["n", "3", "0", "1, n", "n, 0, -1", "0, 7, 3", "n - 2", "2, -2, -2"])
    with_counter = w.chance(0.4)
    if with_counter:
        w.line(f"{counter} = {w.rng.choice(['0', '1.5'])}")
    w.loops += 1
    with w.block(f"for {index} in {w.rng.choice(['range', 'pl.range'])}({bounds}):"):
        w.ints.append(index) if "-" not in bounds else None
        statements(w, w.rng.randint(0, 2))
        if w.chance(0.4):
            with w.block(f"if {index} == {w.rng.randint(0, 2)}:"):
                for v in carried[:1]:
                    update(w, v)
                w.line(w.rng.choice(["break", "continue"]))
        for v in carried:
            update(w, v)
        same = [(a, b) for a in carried for b in carried if a.name < b.name and a.dtype == b.dtype and same_axes(a, b)]
        if same and w.chance(0.6):
            a, b = same[0]
            w.line(f"{a.name}, {b.name} = {b.name}, {a.name}")
        if with_counter:
            w.line(f"{counter} += {w.rng.choice(['1', index])}")
        if w.chance(0.3):
            statement(w)
    w.loops -= 1
    if with_counter:
        w.line(f"{counter} = {counter} % 5")
        w.floats.append(counter)


def while_loop(w: Writer) -> None:
    carried = [v for v in (w.pick(numeric),) if v is not None and not v.generated]
    settle(w, carried)
    carried = [v for v in w.values if v.name in {c.name for c in carried}]
    counter = w.name("k")
    w.line(f"{counter} = {w.rng.choice(['n', '0'])}")
    w.loops += 1
    with w.block(w.rng.choice([f"while {counter} < 5:", "while True:"])):
        w.line(f"{counter} += 1")
        with w.block(f"if {counter} > {w.rng.randint(3, 6)}:"):
            w.line("break")
        if w.chance(0.3):
            with w.block(f"if {counter} == {w.rng.randint(1, 3)}:"):
                w.line("continue")
        for v in carried:
            update(w, v)
    w.loops -= 1


def scalar_loop(w: Writer) -> None:
    """Element by element over a tensor."""
    t = next((t for t in w.tensors if t.text == "x"), None)
    if t is None or w.own is not None or w.crowded or t.dtype in ("bool_", "bf16", "f16"):
        return
    total, i, j = w.name("k"), w.name("i"), w.name("i")
    w.line(f"{total} = {'0.0' if t.dtype in FLOATS else '0'}")
    with w.block(f"for {i} in range(rows):"):
        with w.block(f"for {j} in range({w.rng.choice(['cols', '1, cols', '0, cols, 3'])}):"):
            if w.chance(0.4):
                with w.block(f"if x[{i}, {j}] > 1:"):
                    w.line(w.rng.choice(["continue", "break"]))
            w.line(f"{total} += x[{i}, {j}]")
        if w.chance(0.5):
            w.line(f"s1[{i}] = {total}")
    if t.dtype in FLOATS:
        w.coarseness = max(w.coarseness, {"f64": 1, "f32": 2}[t.dtype])
    w.line(f"s1[{w.rng.randint(0, 5)}] {w.rng.choice(['=', '+='])} {total}")


def call(w: Writer) -> None:
    v = w.pick(lambda v: numeric(v) and v.rank == 2)
    if v is None:
        return
    if w.chance(0.5):
        w.define(f"scaled({v.name}, {w.constant(v.dtype)})", v.dtype, v.axes, exact=v.exact and not v.is_float,
                 bound=v.bound * 4 if v.is_float else 2.0**64, generated=v.generated)  # fmt: skip
    else:
        first, second = w.name(), w.name()
        w.line(f"{first}, {second} = both({v.name})")
        w.values.append(Value(second, v.dtype, v.axes, not v.is_float, v.bound + 1, v.generated))
        if v.is_float:
            w.coarseness = max(w.coarseness, {"f64": 1, "f32": 2, "f16": 3, "bf16": 4}[v.dtype])


def scalar(w: Writer) -> None:
    name = w.name("k")
    kind = w.rng.randrange(4)
    if kind == 0:
        w.line(f"{name} = (n * {w.rng.randint(1, 3)} + {w.integer()}) % {w.rng.randint(2, 6)}")
        w.ints.append(name)
    elif kind == 1:
        w.line(f"{name} = min(max(s, -2), {w.rng.choice(['1.5', 'n'])}) * 0.5")
        w.floats.append(name)
    elif kind == 2:
        w.line(f"{name} = {w.integer()} if n > 2 else {w.integer()}")
        w.ints.append(name)
    else:
        w.line(f"{name} = abs(int(s * 2)) // 2 + round(0.5 * n)")
        w.ints.append(name)


def atomic(w: Writer) -> None:
    v = w.pick(lambda v: v.rank == 2 and v.exact)
    if v is None or w.own is not None or w.second not in ("f64", "f32"):
        return
    name = w.rng.choice(["add", "max", "min"])
    text = f"pl.clip({v.name}, {0 if v.dtype[0] == 'u' else -4}, 4)" if numeric(v) else v.name
    if name == "add" and w.second == "f32":
        w.coarseness = max(w.coarseness, 2)
    w.line(f"pl.atomic_{name}(s2, [0, 0], {text}.to(pl.{w.second}))")


def indexed(w: Writer) -> None:
    """x[index], x[index, :] and scatter."""
    v = w.pick(lambda v: v.exact and v.is_int and not v.generated and v.rank <= 2)
    sources = [t for t in w.tensors if t.text in ("x", "u", "y")]
    if v is None or not sources or w.own is not None or w.empty:
        return
    t = w.rng.choice(sources)
    extent = t.axes[0].extent
    index = f"pl.clip({v.name}.to(pl.i32), 0, {extent} - 1)"
    axes = (*v.axes, *t.axes[1:])
    if len(axes) > 3:
        return
    if len(t.axes) == 1:
        w.define(f"{t.text}[{index}]", t.dtype, axes, exact=t.exact, bound=t.bound)
    else:
        w.define(f"{t.text}[{index}, :]", t.dtype, axes, exact=t.exact, bound=t.bound)


STATEMENTS: list[tuple[Callable[[Writer], None], float]] = [
    (tile_operation, 90), (load, 12), (view, 4), (store, 12), (branch, 6), (loop, 7), (while_loop, 2), (scalar_loop, 2),
    (call, 4), (scalar, 4), (atomic, 1), (indexed, 2),
]  # fmt: skip


def statement(w: Writer) -> None:
    functions, weights = zip(*STATEMENTS, strict=True)
    w.rng.choices(functions, weights)[0](w)


def statements(w: Writer, count: int) -> None:
    for _ in range(count):
        if len(w.lines) < 70:
            statement(w)


# -- whole kernels ----------------------------------------------------------------------------------------------------


class KernelWriter(Writer):
    """Adds what a whole kernel needs to know."""

    out_dtype: str = "f32"
    second: str = "f64"
    third: str = "f64"
    aliased: bool = False

    def coarse_out(self) -> None:
        self.coarseness = max(self.coarseness, {"f64": 1, "f32": 2, "f16": 3, "bf16": 4}[self.out_dtype])


def finish(w: KernelWriter) -> None:
    """Store the last values, so that the program has an effect."""
    for v in w.values[-3:]:
        if w.own is None and v.rank <= 3:
            dtype = ("f64", w.second, w.third)[v.rank - 1]
            if v.exact or dtype in FLOATS:
                w.line(f"pl.store({w.cast(v, dtype)[0]}, [{', '.join('0' for _ in v.axes)}], s{v.rank})")
    if w.own is not None:
        store(w)


def nest(w: KernelWriter, scope_inside: bool) -> None:
    """Loops over blocks of rows and columns."""
    kinds = ["", "", ", parallel=True", f", chunk={w.rng.choice([1, 2, 3, 8, 'n + 1'])}", f', chunk={w.rng.choice([2, 5])}, chunk_policy="aligned"']
    row_kind = w.rng.choice(kinds) if not w.aliased else ""
    col_kind = w.rng.choice(kinds) if not w.aliased and w.chance(0.4) else ""
    rows, cols = w.rng.choice([1, 2, 4, 8, 16]), w.rng.choice([1, 4, 8, 16, 32, 0])
    r, c = f"at_rows_{rows}_{w.name('r')}", f"at_cols_{cols}_{w.name('c')}"
    saved = w.own, w.own_place, w.frozen
    w.crowded = 0 < rows * cols < 8
    if row_kind or col_kind:  # an iteration may not assign to what others see
        w.frozen = {v.name for v in w.values}
    row_axis = ONE if rows == 1 else Axis(f"{r}:{rows}:rows", str(rows), rows, False)
    with w.block(f"for {r} in pl.range(0, rows, {rows}{row_kind}):"):
        w.ints.append(r)
        if cols:
            col_axis = ONE if cols == 1 else Axis(f"{c}:{cols}:cols", str(cols), cols, False)
            if row_kind or col_kind:
                w.own, w.own_place = (row_axis, col_axis), f"[{r}, {c}]"
            with w.block(f"for {c} in pl.range(0, cols, {cols}{col_kind}):"):
                w.ints.append(c)
                body(w, scope_inside)
        else:
            if row_kind:
                w.own, w.own_place = (row_axis, COLS), f"[{r}, 0]"
            body(w, scope_inside)
    w.own, w.own_place, w.frozen = saved


def body(w: KernelWriter, scope: bool) -> None:
    def fill() -> None:
        for _ in range(w.rng.randint(1, 3)):
            load(w)
        statements(w, w.rng.randint(3, 14))
        finish(w)

    if scope:
        with w.block("with pl.incore():"):
            fill()
    else:
        fill()


def generate(seed: int) -> Kernel:
    """The kernel of a seed; equal seeds give equal kernels."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    w = KernelWriter(rng)
    rows = rng.choice([0, 1, 2, 3, 5, 8, 13, 20]) if rng.random() < 0.8 else 16
    cols, deps = rng.choice([1, 2, 5, 16, 17, 33, 40]), rng.randint(1, 4)
    w.empty = rows == 0
    main = rng.choice(["f32", "f32", "f32", "f64", "i32", *DTYPES])
    other = rng.choice([main, main, rng.choice(DTYPES)])
    w.out_dtype = rng.choice([main, main, "f32", "f64"])
    w.second, w.third = rng.choice(["f64", "f32", "f64"]), rng.choice(["f64", "f32", "i32", "u8", "f64"])
    buffers: list[np.ndarray] = []
    recipes: list[str] = []

    def argument(shape: tuple[int, ...], dtype: str, zero: bool = False) -> bool:
        """Add an array; True when it is packed."""
        way = rng.random()
        view, big = "", list(shape)
        if way < 0.12:
            view, big[-1] = "[..., ::2]", shape[-1] * 2
        elif way < 0.2:
            view, big = ".T", big[::-1]
        elif way < 0.26:
            view = "[::-1]"
        elif way < 0.32:
            view, big[0] = f"[2:{shape[0] + 2}]", shape[0] + 3
        recipes.append(f"b[{len(buffers)}]{view}")
        buffers.append(sample(numbers, tuple(big), dtype, zero))
        return view == ""

    shapes = {"x": (rows, cols), "y": (rows, cols), "u": (cols,), "w": (rows,), "a": (deps, rows, cols)}
    axes = {"x": (ROWS, COLS), "y": (ROWS, COLS), "u": (COLS,), "w": (ROWS,), "a": (DEPS, ROWS, COLS)}
    for name, shape in shapes.items():
        dtype = other if name in ("y", "w") else main
        packed = argument(shape, dtype)
        own = axes[name] if name == "x" else tuple(
            axis if axis is DEPS else replace(axis, extent=f"{axis.key}_{name}") for axis in axes[name]
        )  # the same extent, from another tensor
        w.tensors.append(Tensor(name, dtype, own, packed=packed and rng.random() < 0.5))
    argument((rows, cols), w.out_dtype, zero=True)
    argument((64,), "f64", zero=True)
    argument((24, 48), w.second, zero=True)
    argument((4, 24, 48), w.third, zero=True)
    if rng.random() < 0.15 and rows > 1:  # arguments that share memory
        w.aliased = True
        w.out_dtype = main
        buffers.append(sample(numbers, (rows + 2, cols), main, False))
        name = f"b[{len(buffers) - 1}]"
        recipes[0] = f"{name}[1:{rows + 1}]"
        recipes[5] = f"{name}[{(low := rng.choice([0, 1, 2]))}:{rows + low}]"
        if other == main and rng.random() < 0.4:
            recipes[1] = recipes[0]
        w.tensors.append(Tensor("o", main, (ROWS, COLS)))
    w.ints.append("n")
    w.floats.append("s")
    w.line("rows, cols = x.shape")
    w.line("rows_y, cols_y = y.shape")
    w.line("cols_u, rows_w = u.shape[0], w.shape[0]")
    w.line("deps, rows_a, cols_a = a.shape")
    structure(w)
    coarse = max(w.coarseness, 0)
    if coarse >= 1 and w.out_dtype in FLOATS:
        w.coarse_out()
    rtol, atol = TOLERANCE[w.coarseness]
    source = f"{PREAMBLE}@pto.jit\ndef kernel(x, y, u, w, a, o, s1, s2, s3, n, s):\n" + "\n".join(w.lines) + "\n"
    recipes += [str(rng.randint(0, 6)), str(rng.choice([0.5, -1.5, 0.0, 2.25]))]
    return Kernel(f"kernel {seed}", source, tuple(buffers), tuple(recipes), rtol, atol)


def structure(w: KernelWriter) -> bool:
    """The shape of the whole kernel."""
    kind = w.rng.choice(["scope", "scope", "outer", "plain", "plain", "several", "nested", "returns"])
    if kind == "scope":
        with w.block("with pl.incore():"):
            if w.chance(0.3):
                statements(w, 2)
            nest(w, False)
            if w.chance(0.3):
                nest(w, False)
    elif kind == "outer":
        nest(w, True)
        if w.chance(0.5):
            nest(w, True)
    elif kind == "several":
        for _ in range(w.rng.randint(2, 3)):
            w.line("with pl.incore():")
            w.depth += 1
            load(w)
            statements(w, w.rng.randint(2, 7))
            finish(w)
            w.depth -= 1
        if w.chance(0.3):
            w.line("copied(x, s2[0:rows, 0:cols])") if False else None
    elif kind == "nested":
        with w.block("with pl.incore():"):
            nest(w, True)
    else:
        load(w)
        load(w)
        statements(w, w.rng.randint(5, 20))
        finish(w)
        if kind == "returns":
            last = [v.name for v in w.values[-3:]]
            if last:
                w.line(f"return {', '.join(last)}{', n + 1' if w.chance(0.3) else ''}")
    return kind == "returns"


def sample(numbers: np.random.Generator, shape: tuple[int, ...], dtype: str, zero: bool) -> np.ndarray:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bf16" else np.dtype(NUMPY[dtype])
    if zero:
        return np.zeros(shape, kind)
    if dtype == "bool_":
        return numbers.random(shape) < 0.5
    if dtype in FLOATS:
        return (numbers.integers(-16, 17, shape) / 4).astype(kind)
    return numbers.integers(0 if dtype[0] == "u" else -7, 8, shape).astype(kind)

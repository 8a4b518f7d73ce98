# SPDX-License-Identifier: MIT
"""Random tile operations: each function appends one legal statement that defines a tile, or does nothing."""

from __future__ import annotations

from collections.abc import Callable

from tests.differential.values import DTYPES, FLOATS, INTS, ONE, Axis, Value, constant_axis, joined, promote
from tests.differential.writer import Writer, constants, shape_text, unit, without

FLOAT_FUNCTIONS = {
    "exp": ("pl.minimum({}, 2)", 8), "exp2": ("pl.minimum({}, 3)", 8), "tanh": ("{}", 1), "sigmoid": ("{}", 1),
    "sin": ("pl.clip({}, -9, 9)", 1), "cos": ("pl.clip({}, -9, 9)", 1), "erf": ("{}", 1), "sqrt": ("(pl.abs({}) + 1)", 40),
    "log": ("(pl.abs({}) + 1)", 12), "log2": ("(pl.abs({}) + 1)", 17), "log1p": ("pl.abs({})", 12), "silu": ("pl.clip({}, -8, 8)", 8),
    "expm1": ("pl.minimum({}, 2)", 8), "rsqrt": ("(pl.abs({}) + 1)", 1), "reciprocal": ("(pl.abs({}) + 1)", 1),
    "gelu": ("pl.clip({}, -8, 8)", 8), "tan": ("pl.clip({}, -1, 1)", 2),
}  # fmt: skip
EXACT_FUNCTIONS = ("abs", "sign", "relu", "neg")
ROUNDINGS = ("floor", "ceil", "round", "trunc")
WRAP = 2.0**64  # the bound of an integer that may have wrapped


def numeric(v: Value) -> bool:
    return v.dtype != "bool_"


def wide(v: Value) -> bool:
    return v.dtype not in ("f16", "bf16")


def function(w: Writer) -> None:
    v = w.pick(lambda v: v.is_float)
    if v is None:
        return
    name = w.rng.choice(list(FLOAT_FUNCTIONS))
    form, bound = FLOAT_FUNCTIONS[name]
    w.define(f"pl.{name}({form.format(v.name)})", v.dtype, v.axes, exact=False, bound=bound, generated=v.generated)


def exact_function(w: Writer) -> None:
    v = w.pick(numeric)
    if v is None:
        return
    name = w.rng.choice(EXACT_FUNCTIONS)
    text = f"-{v.name}" if name == "neg" else f"pl.{name}({v.name})"
    bound = v.bound if v.is_float else WRAP
    if name == "sign" and not v.exact:
        return
    w.define(text, v.dtype, v.axes, exact=v.exact, bound=bound, generated=v.generated)


def rounding(w: Writer) -> None:
    v = w.pick(lambda v: v.is_float and v.exact)
    if v is not None:
        w.define(f"pl.{w.rng.choice(ROUNDINGS)}({v.name})", v.dtype, v.axes, bound=v.bound + 1, generated=v.generated)


def partner(w: Writer, v: Value) -> Value | None:
    """A tile that goes together with `v`."""
    return w.pick(lambda o: joined(v, o) is not None and promote(v.dtype, o.dtype) != "?")


def arithmetic(w: Writer) -> None:
    a = w.pick(numeric)
    b = a and partner(w, a)
    if a is None or b is None:
        return
    axes, dtype = joined(a, b), promote(a.dtype, b.dtype)
    assert axes is not None
    generated = a.generated and b.generated
    if dtype in FLOATS:
        op = w.rng.choice(["+", "-", "*", "maximum", "minimum", "/", "atan2", "fmod"])
        exact = a.exact and b.exact and op in ("maximum", "minimum", "fmod")
        # an operand that becomes a float: its integers may be large
        pair = [o.name if o.is_float or o.bound <= 64 else w.cast(o, dtype)[0] for o in (a, b)]
        bounds = [o.bound if o.is_float or o.bound <= 64 else 8.0 for o in (a, b)]
        if op == "fmod" and not exact:
            op = "-"
        bound = {"*": bounds[0] * bounds[1], "/": bounds[0], "atan2": 4.0}.get(op, bounds[0] + bounds[1])
        if b.dtype == "bool_" and op in ("/", "atan2", "fmod"):
            op = "+"
        if op in ("/", "fmod"):
            pair[1] = f"(pl.abs({pair[1]}) + 1)"
            exact = exact and dtype in ("f32", "f64") and b.dtype == dtype
            if op == "fmod" and not exact:
                return
        if op == "atan2":
            pair[1] = f"(pl.abs({pair[1]}) + 1)"
    else:
        op = w.rng.choice(["+", "-", "*", "//", "%", "&", "|", "^", "maximum", "minimum", "<<", ">>"])
        pair, exact, bound = [a.name, b.name], True, WRAP
        if dtype == "bool_":
            op = w.rng.choice(["&", "|", "^"])
        if op in ("<<", ">>"):
            pair[1] = f"({pair[1]} & 3)"
            if b.dtype == "bool_":
                return
    text = f"pl.{op}({pair[0]}, {pair[1]})" if op.isalnum() else f"{pair[0]} {op} {pair[1]}"
    w.define(text, dtype, axes, exact=exact, bound=bound, generated=generated)


def with_scalar(w: Writer) -> None:
    v = w.pick(numeric)
    if v is None:
        return
    if v.is_float:
        op = w.rng.choice(["+", "-", "*", "/", "maximum", "minimum"])
        other = w.rng.choice([w.constant(v.dtype), *([f for f in w.floats[-3:] if f[0] != "m" or v.dtype in ("f32", "f64")] or ["0.5"]), w.integer()])
        exact, bound = v.exact and op in ("maximum", "minimum"), v.bound * 8 + 8
        if other not in ("0.5", "-1.25", "2", "3.0", "-1", "0.75") and not other.isdigit():
            exact = False  # a run-time float
        if op == "/":
            other = w.rng.choice(["2", "-4.0", "0.5"])
    else:
        op = w.rng.choice(["+", "-", "*", "//", "%", "&", "|", "^", "maximum", "minimum", "<<", ">>"])
        other = w.rng.choice([w.constant(v.dtype), w.integer()])
        exact, bound = True, WRAP
        if op in ("<<", ">>"):
            other = str(w.rng.randint(0, 7))
    text = f"pl.{op}({v.name}, {other})" if op.isalnum() else f"{v.name} {op} {other}"
    if not op.isalnum() and op not in ("/", "//", "%", "<<", ">>") and w.chance(0.3):
        text = f"{other} {op} {v.name}"
    w.define(text, v.dtype, v.axes, exact=exact, bound=bound, generated=v.generated)


def compare(w: Writer) -> None:
    a = w.pick(lambda v: v.exact)
    if a is None:
        return
    b = w.pick(lambda o: o.exact and joined(a, o) is not None and promote(a.dtype, o.dtype) != "?")
    op = w.rng.choice(["<", "<=", ">", ">=", "==", "!="])
    if b is None or w.chance(0.5):
        w.define(f"{a.name} {op} {w.constant(a.dtype)}", "bool_", a.axes, bound=1, generated=a.generated)
    else:
        axes = joined(a, b)
        assert axes is not None
        w.define(f"{a.name} {op} {b.name}", "bool_", axes, bound=1, generated=a.generated and b.generated)


def where(w: Writer) -> None:
    c = w.pick(lambda v: v.dtype == "bool_")
    if c is None:
        compare(w)
        c = w.pick(lambda v: v.dtype == "bool_")
    a = c and w.pick(lambda o: joined(c, o) is not None)
    if c is None or a is None:
        return
    axes = joined(c, a)
    assert axes is not None
    middle = Value("", a.dtype, axes, generated=c.generated and a.generated)
    b = w.pick(lambda o: joined(middle, o) is not None and promote(o.dtype, a.dtype) != "?")
    if b is None or w.chance(0.4):
        text = f"pl.where({c.name}, {a.name}, {w.constant(a.dtype)})"
        dtype, exact, generated, bound = a.dtype, a.exact, middle.generated, a.bound
    else:
        axes = joined(middle, b)
        assert axes is not None
        text = f"pl.where({c.name}, {a.name}, {b.name})"
        dtype, exact, generated = promote(a.dtype, b.dtype), a.exact and b.exact, middle.generated and b.generated
        bound = max(a.bound, b.bound)
        if dtype in FLOATS and max(o.bound for o in (a, b) if not o.is_float or True) > 1e6:
            return
    w.define(text, dtype, axes, exact=exact, bound=max(bound, 8.0), generated=generated)


def clip(w: Writer) -> None:
    v = w.pick(numeric)
    if v is not None:
        low, high = ("-1.5", "2") if v.is_float else ("1", "5")
        w.define(f"pl.clip({v.name}, {low}, {high})", v.dtype, v.axes, exact=v.exact, bound=5, generated=v.generated)


def fma(w: Writer) -> None:
    a = w.pick(lambda v: v.is_float)
    b = a and w.pick(lambda o: o.dtype == a.dtype and joined(a, o) is not None)
    if a is None or b is None:
        return
    axes = joined(a, b)
    assert axes is not None
    generated = a.generated and b.generated
    w.define(f"pl.fma({a.name}, {b.name}, {w.rng.choice([a.name, b.name, '0.5'])})", a.dtype, axes, exact=False,
             bound=a.bound * b.bound + a.bound + b.bound, generated=generated)  # fmt: skip


def cast(w: Writer) -> None:
    v = w.pick()
    if v is None:
        return
    dtype = w.rng.choice(DTYPES if v.exact else FLOATS)
    text, exact, bound = w.cast(v, dtype)
    if dtype in ("f16", "bf16") and v.dtype != dtype:
        exact = False  # extra precision may be kept
    w.define(text, dtype, v.axes, exact=exact, bound=bound, generated=v.generated)


def bitcast(w: Writer) -> None:
    v = w.pick(lambda v: v.exact and v.is_int and v.dtype in ("i32", "i16", "u8", "i64"))
    if v is not None:
        other = {"i32": "u32", "i16": "u16", "u8": "i8", "i64": "u64"}[v.dtype]
        w.define(f"pl.bitcast({v.name}, pl.{other})", other, v.axes, bound=WRAP, generated=v.generated)


def reduction(w: Writer) -> None:
    v = w.pick(lambda v: v.rank > 0)
    if v is None:
        return
    axis = w.rng.randrange(v.rank)
    shown = axis if w.chance(0.7) else axis - v.rank
    keep = w.chance(0.6) or v.rank == 1
    axes = unit(v.axes, axis) if keep else without(v.axes, axis)
    op = w.rng.choice(["sum", "max", "min", "mean", "any", "all", "prod"])
    dtype, exact, bound = v.dtype, v.exact, v.bound
    name = v.name
    if op in ("any", "all"):
        if not v.exact:
            return
        dtype, bound = "bool_", 1.0
    elif op == "mean":
        if v.is_int and v.bound > 64:
            name = f"pl.clip({name}, {0 if v.dtype[0] == 'u' else -8}, 8)"
        dtype, exact, bound = v.dtype if v.is_float else "f64", False, min(bound, 64.0)
    elif op in ("sum", "prod"):
        if v.dtype in ("bool_", *INTS):
            dtype = "u64" if v.dtype[0] == "u" else "i64"
            bound = WRAP
        else:
            exact, bound = False, bound * 40
            if op == "prod":
                name, bound = f"pl.tanh({name})", 1.0
    elif v.dtype == "bool_":
        return
    else:
        bound = float("inf") if v.is_float else WRAP  # the identity of an empty axis
    text = f"pl.{op}({name}, axis={shown}{', keepdims=True' if keep else ''})"
    if dtype in FLOATS and op in ("max", "min", "mean"):
        text = f"pl.clip({text}, -8, 8)" if op != "mean" else f"pl.where(pl.isnan({text}), 0, {text})"
        bound = 8.0 if op != "mean" else bound
    w.define(text, dtype, axes, exact=exact, bound=bound)


def full_reduction(w: Writer) -> None:
    v = w.pick(lambda v: v.exact and numeric(v))
    if v is None:
        return
    name = w.name("m")
    op = w.rng.choice(["max", "min", "sum"]) if not v.is_float else w.rng.choice(["max", "min"])
    if v.is_float:
        w.line(f"{name} = pl.cast(pl.clip(pl.{op}({v.name}), -4, 4), pl.f32)")
    else:
        w.line(f"{name} = pl.cast(pl.{op}({v.name}) % 7, pl.f32)")
    w.floats.append(name)


def arg_reduction(w: Writer) -> None:
    v = w.pick(lambda v: v.exact and numeric(v))
    if v is None:
        return
    axis, keep = w.rng.randrange(v.rank), w.chance(0.5) or v.rank == 1
    axes = unit(v.axes, axis) if keep else without(v.axes, axis)
    w.define(f"pl.{w.rng.choice(['argmax', 'argmin'])}({v.name}, axis={axis}{', keepdims=True' if keep else ''})",
             "i32", axes, bound=100)  # fmt: skip


def scan(w: Writer) -> None:
    v = w.pick(numeric)
    if v is None:
        return
    axis, reverse = w.rng.randrange(v.rank), w.chance(0.4)
    op = w.rng.choice(["cumsum", "cumprod"])
    name, bound, exact, dtype = v.name, WRAP, True, v.dtype
    if v.is_float:
        exact, bound = False, v.bound * 40
        if op == "cumprod":
            name, bound = f"pl.tanh({name})", 1.0
    else:
        dtype = "u64" if v.dtype[0] == "u" else "i64"
    text = f"pl.{op}({name}, axis={axis}{', reverse=True' if reverse else ''})"
    w.define(text if v.is_float else f"{text}.to(pl.{dtype})", dtype, v.axes, exact=exact, bound=bound)


def transpose(w: Writer) -> None:
    v = w.pick(lambda v: v.rank >= 2)
    if v is None:
        return
    order = list(range(v.rank))
    w.rng.shuffle(order)
    if v.rank == 2 and w.chance(0.5):
        text, order = f"{v.name}.T", [1, 0]
    else:
        text = f"pl.transpose({v.name}, {tuple(order)})"
    w.define(text, v.dtype, tuple(v.axes[i] for i in order), exact=v.exact, bound=v.bound)


def unit_reshape(w: Writer) -> None:
    v = w.pick(lambda v: v.rank < 3)
    if v is None:
        return
    axis = w.rng.randrange(v.rank + 1)
    axes = v.axes[:axis] + (ONE,) + v.axes[axis:]
    how = w.rng.choice([f"pl.expand_dims({v.name}, {axis})", f"pl.reshape({v.name}, {shape_text(axes)})"])
    w.define(how, v.dtype, axes, exact=v.exact, bound=v.bound)


def squeeze(w: Writer) -> None:
    v = w.pick(lambda v: v.rank > 1 and any(a.const == 1 for a in v.axes))
    if v is None:
        return
    axis = next(i for i, a in enumerate(v.axes) if a.const == 1)
    axes = without(v.axes, axis)
    how = w.rng.choice([f"pl.squeeze({v.name}, {axis})", f"pl.reshape({v.name}, {shape_text(axes)})"])
    w.define(how, v.dtype, axes, exact=v.exact, bound=v.bound)


def reshape(w: Writer) -> None:
    v = w.pick(lambda v: constants(v.axes) and v.rank > 0)
    if v is None:
        return
    total = 1
    for axis in v.axes:
        total *= axis.const or 1
    first = w.rng.choice([d for d in range(1, total + 1) if total % d == 0])
    shapes = [(total,), (first, total // first)]
    chosen = w.rng.choice(shapes)
    axes = tuple(constant_axis(n) for n in chosen)
    text = f"pl.reshape({v.name}, {list(chosen)})" if w.chance(0.7) else f"{v.name}.reshape({', '.join(map(str, chosen))})"
    w.define(text, v.dtype, axes, exact=v.exact, bound=v.bound)


def whole_reshape(w: Writer) -> None:
    """Flatten a tile of run-time extents."""
    v = w.pick(lambda v: v.rank == 2 and all(a.full for a in v.axes) and any(a.const is None for a in v.axes))
    if v is not None:
        extent = " * ".join(a.extent for a in v.axes)
        w.define(f"pl.reshape({v.name}, [{extent}])", v.dtype, (Axis(f"*{extent}", extent, None, True),),
                 exact=v.exact, bound=v.bound)  # fmt: skip


def concat(w: Writer) -> None:
    v = w.pick(lambda v: any(a.full and a.const for a in v.axes))
    if v is None:
        return
    axis = w.rng.choice([i for i, a in enumerate(v.axes) if a.full and a.const])
    o = w.pick(lambda o: o.dtype == v.dtype and o.rank == v.rank and o.axes[axis].const is not None and not (v.generated or o.generated)
               and all(p.key == q.key for i, (p, q) in enumerate(zip(o.axes, v.axes, strict=True)) if i != axis))  # fmt: skip
    if o is None or v.generated:
        return
    extent = (v.axes[axis].const or 0) + (o.axes[axis].const or 0)
    if extent > 64:
        return
    full = o.axes[axis].full
    new = constant_axis(extent) if full else Axis(f"{v.axes[axis].key}&{o.axes[axis].key}", str(extent), extent, False)
    w.define(f"pl.concat([{v.name}, {o.name}], axis={axis})", v.dtype, v.axes[:axis] + (new,) + v.axes[axis + 1 :],
             exact=v.exact and o.exact, bound=max(v.bound, o.bound))  # fmt: skip


def stack(w: Writer) -> None:
    v = w.pick(lambda v: v.rank < 3 and not v.generated)
    o = v and w.pick(lambda o: o.dtype == v.dtype and not o.generated and [a.key for a in o.axes] == [a.key for a in v.axes])
    if v is None or o is None:
        return
    axis = w.rng.randrange(v.rank + 1)
    w.define(f"pl.stack([{v.name}, {o.name}], axis={axis})", v.dtype, v.axes[:axis] + (constant_axis(2),) + v.axes[axis:],
             exact=v.exact and o.exact, bound=max(v.bound, o.bound))  # fmt: skip


def split(w: Writer) -> None:
    v = w.pick(lambda v: any(a.const and a.const % 2 == 0 for a in v.axes))
    if v is None:
        return
    axis = w.rng.choice([i for i, a in enumerate(v.axes) if a.const and a.const % 2 == 0])
    old = v.axes[axis]
    extent, part = (old.const or 0) // 2, w.rng.randrange(2)
    new = constant_axis(extent) if old.full else Axis(f"{old.key}/{part}", str(extent), extent, False)
    if new.const == 1 and not old.full:
        return  # an axis of extent 1 that may be empty does not broadcast well
    w.define(f"pl.split({v.name}, 2, axis={axis})[{part}]", v.dtype, v.axes[:axis] + (new,) + v.axes[axis + 1 :],
             exact=v.exact, bound=v.bound)  # fmt: skip


def part(w: Writer) -> None:
    v = w.pick(lambda v: any(a.const and a.const > 1 for a in v.axes))
    if v is None:
        return
    items, axes = [], []
    for axis in v.axes:
        if axis.const is None or axis.const < 2 or w.chance(0.4):
            items.append(":")
            axes.append(axis)
            continue
        if axis.full and w.chance(0.2) and v.rank > 1 and not any(i.isdigit() for i in items):
            items.append(str(w.rng.randrange(axis.const)))
            continue
        low = w.rng.randrange(axis.const - 1)
        high = w.rng.randint(low + 2, axis.const) if low + 2 <= axis.const else axis.const
        extent = high - low
        if extent < 2 and not axis.full:
            items.append(":")
            axes.append(axis)
            continue
        items.append(f"{low}:{high}")
        axes.append(constant_axis(extent) if axis.full else Axis(f"{axis.key}[{low}:{high}]", str(extent), extent, False))
    if axes:
        w.define(f"{v.name}[{', '.join(items)}]", v.dtype, tuple(axes), exact=v.exact, bound=v.bound)


def flip(w: Writer) -> None:
    v = w.pick()
    if v is not None:
        w.define(f"pl.flip({v.name}, {w.rng.randrange(v.rank)})", v.dtype, v.axes, exact=v.exact, bound=v.bound)


def broadcast(w: Writer) -> None:
    v = w.pick(lambda v: any(a.const == 1 for a in v.axes) and not v.generated)
    if v is None:
        return
    axis = w.rng.choice([i for i, a in enumerate(v.axes) if a.const == 1])
    extent = w.rng.choice([2, 3, 5])
    axes = v.axes[:axis] + (constant_axis(extent),) + v.axes[axis + 1 :]
    w.define(f"pl.broadcast_to({v.name}, {shape_text(axes)})", v.dtype, axes, exact=v.exact, bound=v.bound)


def generated(w: Writer) -> None:
    like = w.pick()
    if like is None:
        return
    # at the top of a kernel, zeros and their like are tensors
    kind = w.rng.choice(["full", "zeros", "arange", "rand", "ones"] if w.depth > 1 else ["arange", "rand"])
    if kind == "arange":
        axis = w.rng.choice(like.axes)
        start = w.integer() if w.chance(0.5) else "0"
        dtype = w.rng.choice(["i32", "i64", "f32", "i16"])
        if axis.const is not None and start == "0":
            step = w.rng.choice([1, 2])
            text = f"pl.arange(0, {axis.const * step}, {step}, dtype=pl.{dtype})"
            w.define(text, dtype, (constant_axis(axis.const),), bound=256, generated=True)
        else:
            w.define(f"pl.arange({start}, {start} + {axis.extent}, dtype=pl.{dtype})", dtype,
                     (Axis(f"gen{axis.extent}", axis.extent, axis.const, True),) if axis.const != 1 else (ONE,),
                     bound=256, generated=True)  # fmt: skip
        return
    axes = tuple(constant_axis(a.const) if a.const else Axis(f"gen{a.extent}", a.extent, None, True) for a in like.axes)
    if kind == "rand":
        w.define(f"pl.rand({w.rng.randint(0, 99)}, {w.integer()}, {shape_text(axes)})", "f32", axes, bound=1, generated=True)
        return
    dtype = w.rng.choice(DTYPES)
    value = f"{w.constant(dtype)}, " if kind == "full" else ""
    w.define(f"pl.{kind}({shape_text(axes)}, {value}pl.{dtype})", dtype, axes, bound=8, generated=True)


def matmul(w: Writer) -> None:
    a = w.pick(lambda v: v.rank == 2 and v.dtype in ("f32", "f64", "f16", "bf16", "i8", "i32", "u8", "i64"))
    if a is None:
        return
    b = w.pick(lambda o: o.dtype == a.dtype and o.rank == 2 and not o.generated and (o.axes[0].key == a.axes[1].key or o.axes[1].key == a.axes[1].key))
    if b is None or a.generated:
        return
    left, right, n = a.name, b.name, b.axes[1]
    if b.axes[0].key != a.axes[1].key:
        right, n = f"{b.name}.T", b.axes[0]
    dtype = {"f16": "f32", "bf16": "f32", "i8": "i32", "u8": "i32"}.get(a.dtype, a.dtype)
    axes = (a.axes[0], n)
    bound = WRAP if a.is_int else a.bound * b.bound * 40
    acc = w.pick(lambda o: o.dtype == dtype and o.rank == 2 and (
        [x.key for x in o.axes] == [x.key for x in axes]
        or (o.generated and [x.extent for x in o.axes] == [x.extent for x in axes])))  # fmt: skip
    if acc is not None and w.chance(0.5):
        text = f"pl.dot({left}, {right}, acc={acc.name})"
        bound = bound + acc.bound
    else:
        text = w.rng.choice([f"pl.dot({left}, {right})", f"{left} @ {right}"])
    w.define(text, dtype, axes, exact=a.is_int, bound=bound)


def batched(w: Writer) -> None:
    a = w.pick(lambda v: v.rank == 3 and v.dtype in ("f32", "f64", "f16", "i8", "i32"))
    if a is None or a.generated:
        return
    dtype = {"f16": "f32", "i8": "i32"}.get(a.dtype, a.dtype)
    w.define(f"pl.dot({a.name}, pl.transpose({a.name}, (0, 2, 1)))", dtype, (a.axes[0], a.axes[1], a.axes[1]),
             exact=a.is_int, bound=WRAP if a.is_int else a.bound**2 * 40)  # fmt: skip


def order(w: Writer) -> None:
    v = w.pick(lambda v: v.exact and numeric(v) and not v.generated)
    if v is None:
        return
    down = ", descending=True" if w.chance(0.4) else ""
    kind = w.rng.choice(["sort", "argsort", "topk", "histogram"])
    if kind == "sort":
        w.define(f"pl.sort({v.name}{down})", v.dtype, v.axes, bound=v.bound)
    elif kind == "argsort":
        w.define(f"pl.argsort({v.name}{down})", "i32", v.axes, bound=100)
    elif kind == "topk" and v.axes[-1].full and (v.axes[-1].const or 0) > 1:
        k = w.rng.randint(1, v.axes[-1].const or 1)
        axes = (*v.axes[:-1], constant_axis(k))
        first, second = w.name(), w.name()
        w.line(f"{first}, {second} = pl.topk({v.name}, {k})")
        w.values.append(Value(first, v.dtype, axes, True, v.bound))
        w.values.append(Value(second, "i32", axes, True, 100.0))
    elif kind == "histogram" and v.is_int:
        bins = w.rng.choice([1, 4, 9])
        w.define(f"pl.histogram({v.name}, {bins})", "i32", (*v.axes[:-1], constant_axis(bins)), bound=100)


def gather(w: Writer) -> None:
    v = w.pick(lambda v: not v.generated)
    if v is None or not v.exact or not numeric(v):
        return
    axis = v.rank - 1  # an order of the last axis is an index along it
    w.define(f"pl.gather({v.name}, pl.argsort({v.name}), {axis})", v.dtype, v.axes, exact=v.exact, bound=v.bound)


def lambdas(w: Writer) -> None:
    """map, reduce and associative_scan with functions of one or two values."""
    v = w.pick(lambda v: numeric(v) and not v.generated)
    if v is None:
        return
    kind = w.rng.choice(["map", "map2", "branch", "reduce", "scan", "pair", "init"])
    axis = w.rng.randrange(v.rank)
    bound = min(v.bound * 3 + 3, WRAP) if v.is_float else WRAP
    if kind == "map":
        w.define(f"pl.map(lambda t: t * 2 + 1, {v.name})", v.dtype, v.axes, exact=v.exact and not v.is_float, bound=bound)
    elif kind == "map2":
        o = w.pick(lambda o: o.dtype == v.dtype and joined(v, o) is not None)
        if o is not None:
            axes = joined(v, o)
            assert axes is not None
            w.define(f"pl.map(lambda p, q: (p - q, pl.maximum(p, q))[{w.rng.randrange(2)}], {v.name}, {o.name})",
                     v.dtype, axes, exact=not v.is_float, bound=bound + o.bound)  # fmt: skip
    elif kind == "branch" and v.exact:
        w.define(f"pl.map(choose, {v.name})", v.dtype, v.axes, exact=not v.is_float, bound=bound)
    elif kind in ("reduce", "init"):
        keep = w.chance(0.5) or v.rank == 1
        axes = unit(v.axes, axis) if keep else without(v.axes, axis)
        if not v.axes[axis].full or v.axes[axis].const is None:
            kind = "init"
        first = f", init={w.constant(v.dtype)}" if kind == "init" else ""
        fn = w.rng.choice(["pl.maximum", "lambda p, q: pl.minimum(p, q)"] + ([] if v.is_float else ["operator.add", "lambda p, q: p + q"]))
        w.define(f"pl.reduce({v.name}, {axis}, {fn}{first}{', keepdims=True' if keep else ''})", v.dtype, axes,
                 exact=v.exact, bound=max(v.bound, 8) if v.is_float else WRAP)  # fmt: skip
    elif kind == "scan":
        fn = w.rng.choice(["pl.maximum", "lambda p, q: pl.minimum(p, q)"] + ([] if v.is_float else ["operator.add"]))
        w.define(f"pl.associative_scan({v.name}, {axis}, {fn}{', reverse=True' if w.chance(0.4) else ''})", v.dtype,
                 v.axes, exact=v.exact, bound=v.bound if v.is_float else WRAP)  # fmt: skip
    elif kind == "pair" and v.exact and v.axes[axis].full and v.axes[axis].const:
        keep = w.chance(0.5) or v.rank == 1
        axes = unit(v.axes, axis) if keep else without(v.axes, axis)
        o = w.pick(lambda o: not o.generated and o.exact and [a.key for a in o.axes] == [a.key for a in v.axes])
        if o is None:
            return
        first, second = w.name(), w.name()
        w.line(f"{first}, {second} = pl.reduce(({v.name}, {o.name}), {axis}, better{', keepdims=True' if keep else ''})")
        w.values.append(Value(first, v.dtype, axes, True, v.bound))
        w.values.append(Value(second, o.dtype, axes, True, o.bound))


OPERATIONS: list[tuple[Callable[[Writer], None], float]] = [
    (function, 5), (exact_function, 3), (rounding, 2), (arithmetic, 12), (with_scalar, 6), (compare, 3), (where, 4),
    (clip, 2), (fma, 2), (cast, 5), (bitcast, 1), (reduction, 7), (full_reduction, 2), (arg_reduction, 3), (scan, 3),
    (transpose, 4), (unit_reshape, 3), (squeeze, 3), (reshape, 2), (whole_reshape, 1), (concat, 3), (stack, 2),
    (split, 2), (part, 4), (flip, 2), (broadcast, 2), (generated, 4), (matmul, 5), (batched, 1), (order, 3),
    (gather, 2), (lambdas, 5),
]  # fmt: skip


def tile_operation(w: Writer) -> None:
    functions, weights = zip(*OPERATIONS, strict=True)
    before = len(w.lines)
    for function in w.rng.choices(functions, weights, k=6):
        function(w)
        if len(w.lines) > before:
            return

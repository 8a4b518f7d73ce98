# SPDX-License-Identifier: MIT
"""Reductions, broadcasts, matrix products, layout, indirect access and order."""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.dtypes import bool_, f64, i32, i64, place_dtype
from pto_jit.ir.isa.elementwise import divide
from pto_jit.ir.isa.row import (
    Emit,
    Expand,
    Given,
    Instruction,
    Last,
    converted,
    declared_dtype,
    index,
    indices,
    instruction,
    matrix,
    one,
    target_shape,
    wrong_shape,
)
from pto_jit.ir.nodes import Attr, Operand


def print_value(e: Emit, value: Given) -> Last:
    """A number that stands alone is an i64 or an f64."""
    kind = bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f64
    return "print", (e.scalar(value, kind),), {"fmt": "{}"}


def _slice(e: Emit, x: Operand, starts: tuple[int, int], extents: tuple[int, int]) -> Operand:
    return e("tile_slice", x, *indices(starts), *indices(extents))


# -- reductions and broadcasts ----------------------------------------------------------------------------------------


def reduction(op: str, axis: int) -> Expand:
    """One axis of a tile reduced and kept."""

    def expand(e: Emit, x: Operand) -> Last:
        attrs: dict[str, Attr] = {"axes": (axis,), "keepdims": True}
        if op.startswith("arg"):
            return converted(e, i32, (op, (x,), attrs))
        return op, (x,), attrs

    return expand


def pair_sum(e: Emit, x: Operand) -> Last:
    rows, cols = matrix(x, "pairreducesum")
    if cols % 2:
        raise wrong_shape("pairreducesum", f"the operand has {cols} columns", "it takes an even number of columns")
    return "sum", (e("reshape", x, *indices((rows, cols // 2, 2))),), {"axes": (2,), "keepdims": False}


def _vector(v: Operand, axis: int, name: str) -> Operand:
    """`v` with extent 1 along `axis`."""
    if matrix(v, name)[axis] == 1:
        return v
    hint = "give one column, `[rows, 1]`" if axis else "give one row, `[1, cols]`"
    raise wrong_shape(name, f"the vector is {v.type}", hint)


def broadcast(name: str, axis: int) -> Expand:
    """The first element of each row (axis 1) or column (axis 0) repeated."""

    def expand(e: Emit, v: Operand) -> Last:
        rows, cols = matrix(v, name)
        if (rows, cols)[axis] != 1:
            v = _slice(e, v, (0, 0), (rows, 1) if axis else (1, cols))
        return "broadcast_to", (v, *indices(target_shape(e, name))), {}

    return expand


def with_vector(name: str, op: str, axis: int) -> Expand:
    """A tile and one value for each row (axis 1) or column (axis 0)."""

    def expand(e: Emit, x: Operand, v: Operand) -> Last:
        v = _vector(v, axis, name)
        if op == "expdif":
            return "exp", (e("sub", x, v),), {}
        return divide(e, x, v) if op == "div" else (op, (x, v), {})

    return expand


def fill(e: Emit, value: Given) -> Last:
    shape = target_shape(e, "expands")
    dtype = declared_dtype(e)
    assert dtype is not None
    return "full", (e.scalar(value, dtype), *indices(shape)), {}


# -- matrix products --------------------------------------------------------------------------------------------------


def _product(e: Emit, a: Operand, b: Operand, *acc: Operand) -> Last:
    """a @ b + acc; in the operands' own dtype when the destination has it, else in what products are summed in."""
    dtype = a.type.dtype
    narrow = declared_dtype(e) == dtype and dtype.is_float and dtype.bits < 32
    return "dot", (a, b, *acc), {"dtype": dtype} if narrow else {}


def _one_row(a: Operand, name: str) -> None:
    if matrix(a, name)[0] != 1:
        raise wrong_shape(name, f"the left operand is {a.type}", "it has one row; `matmul` takes any number")


def product(name: str) -> Expand:
    def expand(e: Emit, a: Operand, b: Operand) -> Last:
        if name == "gemv":
            _one_row(a, name)
        return _product(e, a, b)

    return expand


def accumulating(name: str) -> Expand:
    """(a, b): dst += a @ b; (acc, a, b): dst = acc + a @ b."""

    def expand(e: Emit, first: Operand, second: Operand, third: Operand | None = None) -> Last:
        acc, a, b = (e.old(), first, second) if third is None else (first, second, third)
        if name == "gemv_acc":
            _one_row(a, name)
        return _product(e, a, b, acc)

    return expand


def biased(name: str) -> Expand:
    def expand(e: Emit, a: Operand, b: Operand, bias: Operand) -> Last:
        if name == "gemv_bias":
            _one_row(a, name)
        op, args, attrs = _product(e, a, b)
        return "add", (e(op, *args, **attrs), _vector(bias, 0, name)), {}

    return expand


# -- layout -----------------------------------------------------------------------------------------------------------


def move(e: Emit, x: Operand) -> Last:
    wanted = declared_dtype(e)
    return ("copy", (x,), {}) if wanted in (None, x.type.dtype) else ("cast", (x,), {"dtype": wanted})


def reshape(e: Emit, x: Operand) -> Last:
    return "reshape", (x, *indices(target_shape(e, "reshape"))), {}


def extract(name: str) -> Expand:
    def expand(e: Emit, x: Operand, row: Operand, col: Operand) -> Last:
        return "tile_slice", (x, row, col, *indices(target_shape(e, name))), {}

    return expand


def insert(e: Emit, x: Operand, row: int, col: int) -> Last:
    """The destination with x at (row, col): the parts around x, and x."""
    old = e.old()
    (rows, cols), (height, width) = matrix(old, "insert"), matrix(x, "insert")
    below, right = row + height, col + width
    if row < 0 or col < 0 or below > rows or right > cols:
        raise wrong_shape("insert", f"{height}x{width} at ({row}, {col}) does not lie in {rows}x{cols}",
                          "the part lies inside the destination")  # fmt: skip
    middle = [x]
    if col:
        middle.insert(0, _slice(e, old, (row, 0), (height, col)))
    if right < cols:
        middle.append(_slice(e, old, (row, right), (height, cols - right)))
    bands = [e("concat", *middle, axis=1) if len(middle) > 1 else x]
    if row:
        bands.insert(0, _slice(e, old, (0, 0), (row, cols)))
    if below < rows:
        bands.append(_slice(e, old, (below, 0), (rows - below, cols)))
    return ("concat", bands, {"axis": 0}) if len(bands) > 1 else ("copy", bands, {})


def interleave(e: Emit, a: Operand, b: Operand) -> list[Last]:
    """The halves of the elements of a and b taken in turns."""
    rows, cols = matrix(a, "interleave")
    turns = e("reshape", e("stack", a, b, axis=2), *indices((rows, 2 * cols)))
    return [("tile_slice", (turns, *indices((0, start, rows, cols))), {}) for start in (0, cols)]


def deinterleave(e: Emit, a: Operand, b: Operand) -> list[Last]:
    """The even and the odd elements of a followed by b."""
    rows, cols = matrix(a, "deinterleave")
    pairs = e("reshape", e("concat", a, b, axis=1), *indices((rows, cols, 2)))
    return [("tile_slice", (pairs, *indices((0, 0, which, rows, cols, 1))), {"drop": (2,)}) for which in (0, 1)]


# -- generated tiles --------------------------------------------------------------------------------------------------


def iota(e: Emit, start: Given, descending: int) -> Last:
    """start, start + 1, ... along the columns, the same in each row."""
    rows, cols = _target_matrix(e, "ci")
    dtype = declared_dtype(e)
    assert dtype is not None
    first = e.scalar(start, dtype)
    if descending and not dtype.is_signed:  # -1 is not a number of it; differences wrap
        line = e("sub", first, e("arange", e.scalar(0, dtype), e.scalar(1, dtype), index(cols)))
    else:
        line = e("arange", first, e.scalar(-1 if descending else 1, dtype), index(cols))
    return "broadcast_to", (e("reshape", line, *indices((1, cols))), *indices((rows, cols))), {}


def triangle(e: Emit, diagonal: int, upper: int) -> Last:
    """1 on one side of a diagonal and on it, 0 on the other."""
    rows, cols = _target_matrix(e, "tri")
    dtype = declared_dtype(e)
    assert dtype is not None
    zero, step = e.scalar(0, i32), e.scalar(1, i32)
    across = e("reshape", e("arange", zero, step, index(cols)), *indices((1, cols)))
    down = e("reshape", e("arange", zero, step, index(rows)), *indices((rows, 1)))
    inside = e("ge" if upper else "le", e("sub", across, down), e.scalar(diagonal, i32))
    return "cast", (inside,), {"dtype": dtype}


def random(op: str) -> Expand:
    return lambda e, seed, offset: (op, (seed, offset, *indices(target_shape(e, op))), {})


def _target_matrix(e: Emit, name: str) -> tuple[int, int]:
    shape = target_shape(e, name)
    if len(shape) != 2:
        raise wrong_shape(name, f"the result has {len(shape)} axes", "it makes tiles of two axes")
    return shape[0], shape[1]


# -- indirect access and order ----------------------------------------------------------------------------------------


def _flat(e: Emit, x: Operand, name: str) -> Operand:
    rows, cols = matrix(x, name)
    return e("reshape", x, index(rows * cols))


def _places(e: Emit, x: Operand) -> Operand:
    """Indices as operations take them: integers other than i32 and i64 are converted."""
    dtype = x.type.dtype
    wanted = place_dtype(dtype) if dtype.is_integer else dtype  # the operation says what else is wrong
    return x if wanted == dtype else e("cast", x, dtype=wanted)


def _flat_memref(e: Emit, x: Operand) -> Operand:
    total = e("mul", e("dim", x, axis=0), e("dim", x, axis=1))
    return e("tensor_reshape", x, total)


def gather(name: str) -> Expand:
    """Elements of a tile by their places in row-major order (`gatherb`: by byte offsets)."""

    def expand(e: Emit, x: Operand, places: Operand) -> Last:
        shape = matrix(places, name)
        flat = _places(e, _flat(e, places, name))
        if name == "gatherb":
            flat = e("floordiv", flat, e.scalar(x.type.dtype.bytes, flat.type.dtype))
        return "reshape", (e("gather", _flat(e, x, name), flat, axis=0), *indices(shape)), {}

    return expand


def gather_memory(e: Emit, x: Operand, places: Operand) -> Last:
    return "take", (_flat_memref(e, x), _places(e, places)), {"axis": 0}


def scatter_memory(e: Emit, x: Operand, value: Operand, places: Operand) -> Last:
    where = _places(e, _flat(e, places, "mscatter"))
    return "put", (_flat(e, value, "mscatter"), where, _flat_memref(e, x)), {"axis": 0}


def histogram(e: Emit, x: Operand, bins: int) -> Last:
    return "reshape", (e("histogram", _flat(e, x, "histogram"), bins=bins), *indices((1, bins))), {}


def ordered(op: str) -> Expand:
    return lambda e, x, descending: (op, (x,), {"descending": bool(descending)})


_REDUCED = {"sum": "the sum", "max": "the maximum", "min": "the minimum", "prod": "the product",
            "argmax": "the place of the first maximum", "argmin": "the place of the first minimum"}  # fmt: skip
_COMBINED = {"add": "x + v", "sub": "x - v", "mul": "x * v", "div": "x / v", "max": "the larger of x and v",
             "min": "the smaller of x and v", "expdif": "exp(x - v)"}  # fmt: skip
_AXES: tuple[tuple[str, int, str, Callable[[str], str]], ...] = (
    ("row", 1, "row", lambda doc: f"dst = {doc}, v one value for each row"),
    ("col", 0, "column", lambda doc: f"dst = {doc}, v one value for each column"),
)

ROWS: tuple[Instruction, ...] = (
    *(instruction(f"{prefix}{op}", "reduction", "T:dst t:x", reduction(op, axis), f"dst = {doc} of each {what}")
      for prefix, axis, what, _ in _AXES for op, doc in _REDUCED.items()),
    instruction("pairreducesum", "reduction", "T:dst t:x", pair_sum, "dst = the sums of neighbouring columns"),
    instruction("expands", "broadcast", "T:dst s:value", fill, "dst = a tile of one value"),
    *(instruction(f"{prefix}expand", "broadcast", "T:dst t:v", broadcast(f"{prefix}expand", axis),
                  f"dst = the first element of each {what} repeated") for prefix, axis, what, _ in _AXES),
    *(instruction(f"{prefix}expand{op}", "broadcast", "T:dst t:x t:v", with_vector(f"{prefix}expand{op}", op, axis),
                  describe(doc)) for prefix, axis, _, describe in _AXES for op, doc in _COMBINED.items()),
    instruction("matmul", "matrix", "T:dst t:a t:b", product("matmul"), "dst = a @ b"),
    instruction("matmul_acc", "matrix", "T:dst t:a t:b t:c=", accumulating("matmul_acc"),
                "dst = dst + a @ b; with four operands dst = a + b @ c"),
    instruction("matmul_bias", "matrix", "T:dst t:a t:b t:bias", biased("matmul_bias"),
                "dst = a @ b + bias, one value for each column"),
    instruction("gemv", "matrix", "T:dst t:a t:b", product("gemv"), "dst = a @ b, a of one row"),
    instruction("gemv_acc", "matrix", "T:dst t:a t:b t:c=", accumulating("gemv_acc"),
                "dst = dst + a @ b, a of one row; with four operands dst = a + b @ c"),
    instruction("gemv_bias", "matrix", "T:dst t:a t:b t:bias", biased("gemv_bias"), "dst = a @ b + bias, a of one row"),
    instruction("mov", "layout", "T:dst t:x", move, "dst = x, in the dtype of dst"),
    instruction("trans", "layout", "T:dst t:x", one("transpose", axes=(1, 0)), "dst = x transposed"),
    instruction("reshape", "layout", "T:dst t:x", reshape, "dst = the elements of x in row-major order"),
    instruction("extract", "layout", "T:dst t:x i:row=0 i:col=0", extract("extract"),
                "dst = the part of x that begins at (row, col)"),
    instruction("subview", "layout", "T:dst t:x i:row=0 i:col=0", extract("subview"),
                "dst = the part of x that begins at (row, col)"),
    instruction("insert", "layout", "T:dst t:x n:row=0 n:col=0", insert, "dst = dst with x at (row, col)"),
    instruction("concat", "layout", "T:dst t:a t:b", one("concat", axis=1), "dst = the columns of a, then those of b"),
    instruction("interleave", "layout", "T:dst0 T:dst1 t:a t:b", interleave,
                "dst0, dst1 = the halves of a and b taken element by element in turns"),
    instruction("deinterleave", "layout", "T:dst0 T:dst1 t:a t:b", deinterleave,
                "dst0, dst1 = the even and the odd elements of a followed by b"),
    instruction("ci", "generated", "T:dst s:start=0 n:descending=0", iota,
                "dst = start, start + 1, ... along the columns (start - 1, ... when descending)"),
    instruction("tri", "generated", "T:dst n:diagonal=0 n:upper=0", triangle,
                "dst = 1 on and below a diagonal (above it when upper), 0 elsewhere"),
    instruction("rand", "generated", "T:dst i:seed i:offset=0", random("rand"),
                "dst = uniform f32 in [0, 1): element k uses the counter offset + k (Philox 4x32-10)"),
    instruction("randn", "generated", "T:dst i:seed i:offset=0", random("randn"),
                "dst = normally distributed f32, counters as in rand"),
    instruction("gather", "indirect", "T:dst t:x t:index", gather("gather"),
                "dst = the elements of x at the places index in row-major order"),
    instruction("gatherb", "indirect", "T:dst t:x t:offset", gather("gatherb"),
                "dst = the elements of x at the byte offsets offset"),
    instruction("mgather", "indirect", "T:dst x:memref t:index", gather_memory,
                "dst = the elements of a contiguous memref at the places index in row-major order"),
    instruction("mscatter", "indirect", "x:memref t:x t:index", scatter_memory,
                "the elements of a contiguous memref at the places index = x"),
    instruction("sort", "order", "T:dst t:x n:descending=0", ordered("sort"), "dst = each row in order, NaN last"),
    instruction("argsort", "order", "T:dst t:x n:descending=0", ordered("argsort"),
                "dst = the i32 places of each row's sorted elements"),
    instruction("topk", "order", "T:dst T:places t:x n:k", lambda e, x, k: ("topk", (x,), {"k": k}),
                "dst, places = the k largest of each row, descending, and their i32 places"),
    instruction("histogram", "order", "T:dst t:x n:bins", histogram,
                "dst = i32 counts of the integers 0 to bins - 1, in one row"),
    instruction("getval", "scalar", "D:dst t:x i:row=0 i:col=0", lambda e, x, row, col: ("extract", (x, row, col), {}),
                "the scalar dst = one element of a tile"),
    instruction("print", "scalar", "o:value", print_value,
                "prints a tile or a scalar"),
)  # fmt: skip

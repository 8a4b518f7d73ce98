# SPDX-License-Identifier: MIT
"""The checks that typing rules consist of; each has one message.

Every function raises TypeMismatchError or ShapeError without a location, which the caller adds.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.dtypes import DType, i64
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.ir.nodes import Attr, Const, Operand
from pto_jit.ir.types import Extent, ScalarType, TensorType, TileType, Type, format_shape

KINDS = {
    "f": "floating-point",
    "fiu": "numeric",
    "iu": "integer",
    "iub": "integer or bool_",
    "b": "bool_",
    "fiub": "any",
}


def describe(type: Type) -> str:
    """A type in the words of a message."""
    if isinstance(type, ScalarType):
        return f"a scalar of {type.dtype}"
    if isinstance(type, TileType):
        return f"a tile of {type.dtype} with shape {shape_text(type.shape)}"
    return f"a tensor of {type.dtype} with shape {shape_text(type.shape)}"


def shape_text(shape: Sequence[Extent]) -> str:
    return f"({format_shape(tuple(shape)).replace('x', ', ')}{',' if len(shape) == 1 else ''})"


def same(a: DType, b: DType) -> bool:
    return a is b or a == b


# -- kinds of operands ------------------------------------------------------------------------------------------


def tile(op: str, arg: Operand, what: str = "operand") -> TileType:
    """The type of an operand that must be a tile."""
    if isinstance(arg.type, TileType):
        return arg.type
    hint = "load it first" if isinstance(arg.type, TensorType) else "make a tile of it with `pl.full(shape, value)`"
    raise TypeMismatchError(
        f"`{op}`: the {what} must be a tile, not {describe(arg.type)}", code="PTO-T101", hint=hint
    )


def tensor(op: str, arg: Operand, what: str = "operand") -> TensorType:
    """The type of an operand that must be a tensor."""
    if isinstance(arg.type, TensorType):
        return arg.type
    raise TypeMismatchError(
        f"`{op}`: the {what} must be a tensor, not {describe(arg.type)}",
        code="PTO-T102",
        hint="pass an argument of the kernel, a view of one, or what `pl.empty` made",
    )


def scalar(op: str, arg: Operand, what: str, dtype: DType | None = None) -> ScalarType:
    """The type of an operand that must be a scalar (of `dtype`)."""
    if not isinstance(arg.type, ScalarType):
        raise TypeMismatchError(
            f"`{op}`: the {what} must be a scalar, not {describe(arg.type)}",
            code="PTO-T103",
            hint="take an element: `t[i, j]`",
        )
    if dtype is not None and not same(arg.type.dtype, dtype):
        raise TypeMismatchError(
            f"`{op}`: the {what} must be {dtype}, not {arg.type.dtype}", code="PTO-T104", hint=f"cast it to {dtype}"
        )
    return arg.type


def kind(op: str, dtype: DType, kinds: str) -> None:
    """`dtype` must be one of the kinds the operation is defined for."""
    if dtype.kind not in kinds:
        if dtype.kind == "b":
            hint = "cast it first, e.g. `x.to(pl.i32)`, or use a logical operation"
        elif kinds == "f":
            hint = "cast it first, e.g. `x.to(pl.f32)`"
        else:
            hint = "compare it, or cast it first"
        raise TypeMismatchError(f"`{op}` takes {KINDS[kinds]} operands, not {dtype}", code="PTO-T105", hint=hint)


def one_dtype(op: str, args: Sequence[Operand]) -> DType:
    """The dtype that all operands share."""
    first = args[0].type.dtype
    for arg in args:
        if not same(arg.type.dtype, first):
            raise TypeMismatchError(
                f"`{op}` takes operands of one dtype, got {' and '.join(str(a.type.dtype) for a in args)}",
                code="PTO-T106",
                hint=f"cast one of them, e.g. `x.to(pl.{first})`",
            )
    return first


def value_dtype(op: str, value: Type, target: Type, what: str) -> None:
    """A value that goes into `target` must have its dtype."""
    if not same(value.dtype, target.dtype):
        raise TypeMismatchError(
            f"`{op}`: a value of {value.dtype} into {what} of {target.dtype}",
            code="PTO-T107",
            hint=f"cast the value: `x.to(pl.{target.dtype})`",
        )


# -- indices and extents ----------------------------------------------------------------------------------------


def constant(arg: Operand) -> int | None:
    """The value of an i64 operand when it is known."""
    return int(arg.value) if isinstance(arg, Const) else None


def extents(op: str, args: Sequence[Operand]) -> tuple[Extent, ...]:
    """Declared extents from their operands: i64 and not negative."""
    shape: list[Extent] = []
    for arg in args:
        scalar(op, arg, "extent", i64)
        value = constant(arg)
        if value is not None and value < 0:
            raise ShapeError(f"`{op}`: the extent {value} is negative", code="PTO-H113", hint="extents are at least 0")
        shape.append(value)
    return tuple(shape)


def offsets(op: str, args: Sequence[Operand]) -> None:
    """Offsets: i64 and, when known, not negative."""
    for arg in args:
        scalar(op, arg, "offset", i64)
        value = constant(arg)
        if value is not None and value < 0:
            raise ShapeError(
                f"`{op}`: the offset {value} is negative", code="PTO-H102", hint="offsets count from the first element"
            )


def indices(op: str, args: Sequence[Operand], shape: Sequence[Extent]) -> None:
    """Element indices: one per axis, i64 and, when known, inside."""
    count(op, len(args), len(shape), "indices")
    for axis, (arg, extent) in enumerate(zip(args, shape, strict=True)):
        scalar(op, arg, "index", i64)
        value = constant(arg)
        if value is not None and (value < 0 or (extent is not None and value >= extent)):
            raise ShapeError(
                f"`{op}`: index {value} is outside axis {axis} of shape {shape_text(shape)}",
                code="PTO-H103",
                hint="the indices of an axis run from 0 to its extent - 1",
            )


def count(op: str, given: int, wanted: int, what: str) -> None:
    """As many offsets, extents or indices as the rank asks for."""
    if given != wanted:
        raise ShapeError(
            f"`{op}` takes {wanted} {what} here, got {given}",
            code="PTO-H104",
            hint="give one for each axis",
        )


def broadcast(op: str, a: tuple[Extent, ...], b: tuple[Extent, ...]) -> tuple[Extent, ...]:
    """The joint declared shape: an axis follows the other operand where its extent is the constant 1."""
    if len(a) != len(b):
        raise ShapeError(
            f"`{op}`: tiles of shape {shape_text(a)} and {shape_text(b)} have different ranks",
            code="PTO-H105",
            hint="insert axes with `pl.reshape` or `pl.expand_dims`",
        )
    shape: list[Extent] = []
    for axis, (left, right) in enumerate(zip(a, b, strict=True)):
        if left == right or right == 1:
            shape.append(left)
        elif left == 1 or left is None:
            shape.append(right)
        elif right is None:
            shape.append(left)
        else:
            raise ShapeError(
                f"`{op}`: tiles of shape {shape_text(a)} and {shape_text(b)} do not broadcast: axis {axis} has extents "
                f"{left} and {right}",
                code="PTO-H106",
                hint="an axis broadcasts when its declared extent is the constant 1; otherwise they must be equal",
            )
    return tuple(shape)


def equal_extents(op: str, a: Extent, b: Extent, what: str) -> Extent:
    """The extent that two axes share, without broadcasting."""
    if a is None or a == b:
        return b
    if b is None:
        return a
    raise ShapeError(
        f"`{op}`: {what} are {a} and {b}", code="PTO-H107", hint="make these extents equal: slice or load equal parts"
    )


def same_size(op: str, old: tuple[Extent, ...], new: tuple[Extent, ...]) -> None:
    """Equal numbers of elements, where both are known."""
    before = after = 1
    for extent in old:
        if extent is None:
            return
        before *= extent
    for extent in new:
        if extent is None:
            return
        after *= extent
    if before != after:
        raise ShapeError(
            f"`{op}`: {shape_text(old)} has {before} elements, {shape_text(new)} has {after}",
            code="PTO-H108",
            hint="the numbers of elements must be equal",
        )


def rank_at_least(op: str, shape: tuple[Extent, ...], rank: int) -> None:
    if len(shape) < rank:
        raise ShapeError(
            f"`{op}` takes at least {rank} {'axis' if rank == 1 else 'axes'}, got shape {shape_text(shape)}",
            code="PTO-H109",
            hint="insert axes with `pl.reshape`; a single element is a scalar",
        )


# -- attributes -------------------------------------------------------------------------------------------------


def axis(op: str, value: Attr, rank: int, name: str = "axis") -> int:
    """An axis, counted from 0."""
    if type(value) is not int:
        raise TypeMismatchError(f"`{op}`: {name} must be an int, not {value!r}", code="PTO-T110", hint="give one axis")
    if not 0 <= value < rank:
        raise ShapeError(
            f"`{op}`: axis {value} does not exist, the rank is {rank}",
            code="PTO-H110",
            hint=f"the axes are 0 to {rank - 1}",
        )
    return value


def axes(op: str, value: Attr, rank: int, name: str = "axes") -> tuple[int, ...]:
    """Axes in ascending order, each once."""
    if not isinstance(value, tuple):
        raise TypeMismatchError(
            f"`{op}`: {name} must be a tuple of ints, not {value!r}", code="PTO-T111", hint="e.g. `(0, 1)`"
        )
    result: list[int] = []
    for one in value:
        number = axis(op, one, rank, name)
        if result and number <= result[-1]:
            raise ShapeError(
                f"`{op}`: {name} {value!r} are not in ascending order", code="PTO-H111", hint="name each axis once"
            )
        result.append(number)
    return tuple(result)


def permutation(op: str, value: Attr, rank: int) -> tuple[int, ...]:
    """A permutation of all axes."""
    if not isinstance(value, tuple):
        raise TypeMismatchError(
            f"`{op}`: axes must be a tuple of ints, not {value!r}", code="PTO-T111", hint="e.g. `(1, 0)`"
        )
    result = tuple(axis(op, one, rank, "axes") for one in value)
    if len(result) != rank or len(set(result)) != rank:
        raise ShapeError(
            f"`{op}`: {value!r} is not a permutation of {rank} axes", code="PTO-H112", hint="name each axis once"
        )
    return result


def kept_axes(op: str, value: Attr, old: tuple[Extent, ...], new: tuple[Extent, ...]) -> None:
    """Per axis of a tile, which axis of another one it is, in their order, or -1: others have the extent 1."""
    whole = isinstance(value, tuple) and len(value) == len(new) and all(type(k) is int and k < len(old) for k in value)
    kept = [(k, at) for at, k in enumerate(value) if k >= 0] if whole else []  # type: ignore
    ones = [old[k] for k in range(len(old)) if k not in dict(kept)]
    ones += [n for at, n in enumerate(new) if at not in {at for _, at in kept}]
    alike = all(a is None or b is None or a == b for a, b in ((old[k], new[at]) for k, at in kept))
    if not whole or kept != sorted(kept) or len(dict(kept)) < len(kept) or not alike or any(n != 1 for n in ones):
        raise ShapeError(
            f"`{op}`: axes={value!r} does not make {shape_text(new)} of {shape_text(old)}",
            code="PTO-H112",
            hint="name the axes that stay in their order, and -1 for each new one",
        )


def flag(op: str, attrs: dict[str, Attr], name: str) -> bool:
    """A bool attribute, False by default."""
    value = attrs.get(name, False)
    if value is not True and value is not False:
        raise TypeMismatchError(f"`{op}`: {name} must be a bool, not {value!r}", code="PTO-T112", hint="True or False")
    return value


def dtype_attr(op: str, attrs: dict[str, Attr]) -> DType:
    value = attrs["dtype"]
    if not isinstance(value, DType):
        raise TypeMismatchError(f"`{op}`: dtype must be a dtype, not {value!r}", code="PTO-T113", hint="e.g. `pl.f32`")
    return value


def positive(op: str, value: Attr, name: str) -> int:
    """An int attribute of at least 1."""
    if type(value) is not int or value < 1:
        raise TypeMismatchError(
            f"`{op}`: {name} must be an int of at least 1, not {value!r}", code="PTO-T114", hint=f"give {name} >= 1"
        )
    return value

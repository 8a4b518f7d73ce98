# SPDX-License-Identifier: MIT
"""Where paths of control flow meet: one value out of several, kept in a mutable variable.

`combine` walks values of one structure (numbers, tiles, tuples, lists, dicts, dataclasses of them) and makes a `Phi`
for every leaf that differs.  `copies` writes a path's values into the variables, as one parallel assignment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pto_jit import dtypes
from pto_jit.codegen.builtins.promote import quoted
from pto_jit.codegen.emit import Emitter
from pto_jit.codegen.values import Scalar, Tensor, Tile, is_runtime
from pto_jit.dtypes import DType, bool_, f64, i64
from pto_jit.errors import Loc, Note
from pto_jit.ir.nodes import Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType, Type
from pto_jit.semantic.checks import describe as type_text
from pto_jit.slotted import mutable


class Disagreement(Exception):
    """Values that have no common run-time type; the message completes "`x` is ..."."""

    def __init__(self, message: str, hint: str | None = None, wide: Tile | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.wide = wide  # of tiles of two dtypes the one that has both


@mutable(eq=False)
class Phi:
    """A mutable variable and the value that each path gives it (None: the path leaves it as it is)."""

    var: Var
    sources: list[Any]
    weak: bool = False

    def holds(self, value: Any) -> bool:
        """Whether a value is that variable: what it holds where it is read."""
        operand = value.operand if isinstance(value, Scalar) else value.var if isinstance(value, Tile) else None
        return isinstance(operand, Var) and operand.name == self.var.name


def is_number(value: object) -> bool:
    """A compile-time number that may become a run-time scalar."""
    return isinstance(value, (bool, int, float, np.generic)) and not isinstance(value, (np.str_, np.bytes_))


def same_constant(a: Any, b: Any) -> bool:
    """Whether two compile-time values are one: by identity, or equal with equal types (numbers by their text)."""
    if a is b:
        return True
    if type(a) is not type(b) or is_runtime(a):
        return False
    if is_number(a):
        return repr(a) == repr(b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(same_constant(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_constant(a[k], b[k]) for k in a)
    if isinstance(a, (str, bytes, DType, slice, range, frozenset)):
        return bool(a == b)
    return False


def describe(value: object) -> str:
    """A value as messages about meeting paths name it."""
    if isinstance(value, Scalar):
        names = {i64: "run-time integer", f64: "run-time float", bool_: "run-time bool"}
        return f"a {names[value.dtype]}" if value.weak and value.dtype in names else f"a run-time {value.dtype}"
    if isinstance(value, Tile):
        return type_text(value.type)
    if isinstance(value, Tensor):
        return "a tensor"
    if value is None:
        return "None"
    if isinstance(value, (bool, int, float, str)):
        return f"the compile-time {type(value).__name__} {quoted(value, 40)}"
    return f"a compile-time {type(value).__name__}"


def both(a: Type, b: Type) -> str:
    """Two types that do not go together, as messages about meeting paths name them."""
    return f"{type_text(a)} and {type_text(b)}"


Leaf = Callable[[Sequence[Any]], Any]
_INSTEAD_OF_NONE = "start with a number instead of None, as `-1`, or with a bool beside it that says whether it was set"


def combine(values: Sequence[Any], leaf: Leaf, *, every: bool = False) -> Any:
    """One value of the common structure of `values`; `leaf` joins the numbers, tiles and tensors that differ.

    `every`: run-time values go to `leaf` even where all agree.
    """
    first = values[0]
    if all(v is first for v in values[1:]) and len(values) > 1 and not every:
        return first
    if every and all(is_runtime(v) for v in values):
        return leaf(values)
    if all(is_runtime(v) or is_number(v) for v in values):
        return first if len(values) > 1 and all(same_constant(first, v) for v in values[1:]) else leaf(values)
    if any(type(v) is not type(first) for v in values):
        told = " and ".join(dict.fromkeys(describe(v) for v in values))
        is_number_or_none = all(v is None or is_number(v) or isinstance(v, Scalar) for v in values)
        raise Disagreement(told, _INSTEAD_OF_NONE if is_number_or_none else None)
    if isinstance(first, (tuple, list)):
        if any(len(v) != len(first) for v in values):
            lengths = " and ".join(str(len(v)) for v in values)
            raise Disagreement(f"a {type(first).__name__} of {lengths} items")
        items = [combine([v[k] for v in values], leaf, every=every) for k in range(len(first))]
        return rebuilt(first, items)
    if isinstance(first, dict):
        if any(list(v) != list(first) for v in values):
            raise Disagreement("a dict with different keys")
        return rebuilt(first, [combine([v[k] for v in values], leaf, every=every) for k in first])
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = attributes(first)
        if any(attributes(v) != names for v in values):
            raise Disagreement(f"a {type(first).__name__} with different attributes")
        items = [combine([getattr(v, n) for v in values], leaf, every=every) for n in names]
        if all(p is getattr(first, n) for p, n in zip(items, names, strict=True)):
            return first
        return rebuilt(first, items)
    if all(same_constant(first, v) for v in values[1:]):
        return first
    raise Disagreement(f"{describe(first)} that differs")


def rebuilt(template: Any, items: Sequence[Any]) -> Any:
    """A container like `template` with other items."""
    if isinstance(template, tuple):
        return template._make(items) if hasattr(template, "_make") else tuple(items)  # type: ignore[attr-defined]
    if isinstance(template, list):
        return list(items)
    if isinstance(template, dict):
        return dict(zip(template, items, strict=True))
    clone = object.__new__(type(template))
    for name, item in zip(attributes(template), items, strict=True):
        object.__setattr__(clone, name, item)
    return clone


def parts(value: Any) -> list[Any] | None:
    """The items of a container that `combine` looks into, None for anything else."""
    if isinstance(value, (tuple, list)):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not is_runtime(value):
        return [getattr(value, n) for n in attributes(value)]
    return None


def attributes(value: Any) -> list[str]:
    """The names of a dataclass instance's attributes, those that are not fields too."""
    names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
    return names + [n for n in getattr(value, "__dict__", ()) if n not in names]


def joined_dtype(values: Sequence[Any]) -> tuple[DType, bool]:
    """The dtype that scalars and numbers have in common, and whether it is weak."""
    strong: DType | None = None
    weak: list[DType] = []
    for value in values:
        dtype, is_weak = scalar_dtype(value)
        if is_weak:
            weak.append(dtype)
        elif strong is None:
            strong = dtype
        elif strong != dtype:
            raise Disagreement(
                f"{strong} and {dtype}", f"convert one of them, e.g. `.to(pl.{dtypes.promote(strong, dtype)})`"
            )
    if strong is None:
        floats = any(t.is_float for t in weak)
        return (f64 if floats else i64 if any(t.is_integer for t in weak) else bool_), True
    for dtype in weak:
        if (dtype.is_float and not strong.is_float) or (dtype.is_integer and strong.kind == "b"):
            names = "float" if dtype.is_float else "int"
            raise Disagreement(f"{strong} and a Python {names}", f"convert the number: `pl.{strong}(...)`")
    return strong, False


def scalar_dtype(value: Any) -> tuple[DType, bool]:
    if isinstance(value, Scalar):
        return value.dtype, value.weak
    if isinstance(value, bool):
        return bool_, True
    if isinstance(value, (int, float)):
        return (i64 if isinstance(value, int) else f64), True
    dtype = dtypes.from_numpy(value.dtype)
    if dtype is None:
        raise Disagreement(f"a NumPy {value.dtype}")
    return dtype, False


def joined_type(values: Sequence[Any]) -> tuple[Type, bool]:
    """The type of the variable that can hold each of `values`, and whether it is a weak number."""
    kinds = {Tile if isinstance(v, Tile) else Tensor if isinstance(v, Tensor) else Scalar for v in values}
    if Tensor in kinds:
        raise Disagreement(
            "a tensor chosen at run time" if len(kinds) == 1 else " and ".join(describe(v) for v in values),
            "a tensor or view cannot be chosen at run time: load from it, or store to it, inside the branch",
        )
    if len(kinds) > 1:
        tile = next(v for v in values if isinstance(v, Tile))
        shape = ", ".join("?" if e is None else str(e) for e in tile.type.shape)
        raise Disagreement(
            " and ".join(dict.fromkeys(describe(v) for v in values)),
            f"start with a tile of the same shape, e.g. `pl.zeros([{shape}], pl.{tile.dtype})`",
        )
    if kinds == {Scalar}:
        dtype, weak = joined_dtype(values)
        return ScalarType(dtype), weak
    first = values[0].type
    shape = list(first.shape)
    for value in values[1:]:
        other = value.type
        if other.dtype != first.dtype:
            common = dtypes.promote(first.dtype, other.dtype)
            wide = next((v for v in values if v.dtype == common), None)
            ways = " or ".join(dict.fromkeys(f"`.to(pl.{d})`" for d in (first.dtype, common)))
            raise Disagreement(both(first, other), f"convert one of them with {ways}", wide)
        if len(other.shape) != len(shape):
            raise Disagreement(both(first, other), "tiles that meet have one rank")
        for axis, extent in enumerate(other.shape):
            if shape[axis] is not None and extent is not None and shape[axis] != extent:
                raise Disagreement(both(first, other), "tiles that meet have one shape")
            if extent is None:
                shape[axis] = None
    return TileType(first.dtype, tuple(shape)), False


def widened(definitions: dict[str, Op], wide: Tile) -> list[Note]:
    """Where the tiles that a tile is computed from first have its dtype, if that is a conversion.

    Of several places one where integers are converted: floats are because they meet what is wider already.
    """
    found: list[Op] = []
    seen: set[str] = set()
    work: list[Operand] = [wide.var]
    while work:
        var = work.pop()
        op = definitions.get(var.name) if isinstance(var, Var) and var.name not in seen else None
        if op is None:
            continue
        seen.add(op.results[0].name)
        tiles = [a for a in op.args if isinstance(a.type, TileType)]
        same = [a for a in tiles if a.type.dtype == wide.dtype]  # type: ignore[union-attr]
        work += reversed(same)
        if tiles and not same:
            found.append(op)
    if not found:
        return []
    integers = [op for op in found if op.args[0].type.dtype.is_integer]  # type: ignore[union-attr]
    origin = (integers or found)[0]
    before = origin.args[0].type.dtype  # type: ignore[union-attr]
    why = f": as in NumPy, {before} and fractions are {wide.dtype}" if integers and wide.dtype.is_float else ""
    return [Note(f"tiles of {wide.dtype} begin here{why}", origin.loc)]


def operand_of(e: Emitter, value: Any, type: Type) -> Operand:
    """`value` as an operand of `type`; emits a cast where the dtype differs."""
    if isinstance(value, Tile):
        return value.var
    assert isinstance(type, ScalarType)
    if isinstance(value, np.generic):
        value = value.item()
    return e.cast(value, type.dtype).operand


def copies(e: Emitter, phis: Sequence[Phi], path: int, loc: Loc) -> None:
    """Append the assignments of one path to the open block, as if they happened at once."""
    pending: list[tuple[Var, Operand]] = []
    for phi in phis:
        value = phi.sources[path]
        if value is None:
            continue
        operand = operand_of(e, value, phi.var.type)
        if not (isinstance(operand, Var) and operand.name == phi.var.name):
            pending.append((phi.var, operand))
    written: set[str] = set()
    late = {}
    for var, operand in pending:
        if isinstance(operand, Var) and operand.name in written and operand.name not in late:
            saved = e.fresh(f"{operand.name}_old", operand.type)
            e.append(Op("copy", (saved,), (operand,), (), (), loc))
            late[operand.name] = saved
        written.add(var.name)
    for var, operand in pending:
        source = late.get(operand.name, operand) if isinstance(operand, Var) else operand
        e.append(Op("copy", (var,), (source,), (), (), loc))


class Exit:
    """A place in an unfinished loop body where the copies of one exit go; replaced when the loop is complete."""

    __slots__ = ("path", "statements")

    def __init__(self) -> None:
        self.path = -1
        self.statements: list[Stmt] = []

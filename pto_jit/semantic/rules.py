# SPDX-License-Identifier: MIT
"""Typing of operations.

`infer` is called once for every operation that is built, parsed or verified: a dictionary look-up, a few comparisons
and the rule of the row.
"""

from __future__ import annotations

from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.ir.nodes import Attr, Operand, Region
from pto_jit.ir.types import Type
from pto_jit.semantic.row import OpRow
from pto_jit.semantic.table import REDUCTIONS, TABLE, effects, is_elementwise, is_generator, rows, tensor_arg

__all__ = ["effects", "infer", "is_elementwise", "is_generator", "rows", "tensor_arg"]


def infer(
    op: str, args: tuple[Operand, ...], attrs: dict[str, Attr], regions: tuple[Region, ...] = ()
) -> tuple[Type, ...]:
    """The types of the results of an operation.

    Raises TypeMismatchError or ShapeError, without a location, for anything that does not fit the operation's row:
    an unknown name, the number of operands, attributes or regions, dtypes, ranks, axes, declared extents.  Extents
    that are only known at run time are accepted and give None.
    """
    count = len(args)
    entry = REDUCTIONS.get(op) if count == 1 else None
    if entry is None:
        entry = TABLE.get(op)
        if entry is None:
            raise TypeMismatchError(f"there is no operation `{op}`", code="PTO-T180", hint=_similar(op))
    too_many = entry.max_args is not None and count > entry.max_args
    if count < entry.min_args or too_many or len(regions) != entry.regions:
        raise _wrong_count(entry, count, len(regions))
    if attrs or entry.required:
        _check_names(entry, attrs)
    return entry.infer(op, args, attrs, regions)


def _check_names(entry: OpRow, attrs: dict[str, Attr]) -> None:
    for name in entry.required:
        if name not in attrs:
            raise TypeMismatchError(
                f"`{entry.name}`: the attribute {name} is missing", code="PTO-T181", hint=f"{entry.signature}"
            )
    if len(attrs) > len(entry.required) or entry.optional:
        for name in attrs:
            if name not in entry.required and name not in entry.optional:
                raise TypeMismatchError(
                    f"`{entry.name}` has no attribute {name}", code="PTO-T182", hint=f"{entry.signature}"
                )


def _wrong_count(entry: OpRow, count: int, regions: int) -> CompilationError:
    low, high = entry.arity
    if regions != entry.regions:
        wanted, got = f"{entry.regions} function{'' if entry.regions == 1 else 's'}", str(regions)
    else:
        wanted = f"{low}" if low == high else f"at least {low}" if high is None else f"{low} to {high}"
        wanted, got = f"{wanted} operand{'' if wanted.endswith(' 1') or wanted == '1' else 's'}", str(count)
    return TypeMismatchError(f"`{entry.name}` takes {wanted}, got {got}", code="PTO-T183", hint=entry.signature)


def _similar(op: str) -> str:
    from difflib import get_close_matches

    found = get_close_matches(op, TABLE, n=3)
    return f"similar: {', '.join(found)}" if found else "see docs/pto-assembly.md for the operations"

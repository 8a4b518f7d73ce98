# SPDX-License-Identifier: MIT
"""One method for each instruction, made from the table in `pto_jit.ir.isa`.

The table is the source: it says what an instruction takes and means, for these methods and for the text form.  Type
checkers and editors read `methods.pyi`, which `python -m pto_jit.builder.stubs` writes from the same table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pto_jit.ir.isa import ROWS, Instruction, Parameter


class Methods:
    """The instructions as methods; each returns the builder."""

    def _instruction(self, row: Instruction, arguments: dict[str, Any]) -> Any:
        raise NotImplementedError


def _parameter(parameter: Parameter) -> inspect.Parameter:
    default = parameter.default if parameter.optional else inspect.Parameter.empty
    return inspect.Parameter(parameter.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def _method(row: Instruction) -> Callable[..., Any]:
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    signature = inspect.Signature([me, *map(_parameter, row.parameters)])

    def method(self: Methods, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{row.name}(): {error}") from None
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        arguments.pop("self")
        return self._instruction(row, arguments)

    method.__name__ = row.name
    method.__qualname__ = f"PTOFunctionBuilder.{row.name}"
    method.__doc__ = f"{row.doc[0].upper()}{row.doc[1:]}." if not row.doc.startswith("dst") else f"{row.doc}."
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


for _row in ROWS:
    setattr(Methods, _row.name, _method(_row))

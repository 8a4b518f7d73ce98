# SPDX-License-Identifier: MIT
"""Write `methods.pyi`, what type checkers know of the instructions: `python -m pto_jit.builder.stubs`."""

from __future__ import annotations

import textwrap
from pathlib import Path

from pto_jit.builder.methods import Methods
from pto_jit.ir.isa import ROWS, Parameter

PATH = Path(__file__).with_name("methods.pyi")
_TYPES = {"T": "str", "D": "str", "t": "str", "x": "str", "s": "str | Number", "o": "str | Number", "i": "str | int",
          "w": "str", "n": "int"}  # fmt: skip
_HEAD = '''\
# SPDX-License-Identifier: MIT
"""Written from the table of instructions by `python -m pto_jit.builder.stubs`."""

from typing import Any, Self

from pto_jit.ir.isa import Instruction

Number = int | float | bool

class Methods:
    def _instruction(self, row: Instruction, arguments: dict[str, Any]) -> Self: ...
'''


def _parameter(parameter: Parameter) -> str:
    kind = _TYPES[parameter.role]
    if not parameter.optional:
        return f"{parameter.name}: {kind}"
    kind = f"{kind} | None" if parameter.default is None else kind
    default = f'"{parameter.default}"' if isinstance(parameter.default, str) else str(parameter.default)
    return f"{parameter.name}: {kind} = {default}"


def stubs() -> str:
    """The text of the stub file."""
    lines = [_HEAD.rstrip("\n")]
    for row in ROWS:
        doc = (getattr(Methods, row.name).__doc__ or "").replace('"', "'")
        lines.append(f"    def {row.name}(self, {', '.join(map(_parameter, row.parameters))}) -> Self:")
        lines += textwrap.wrap(f'"""{doc}"""', 112, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PATH.write_text(stubs(), encoding="utf-8")

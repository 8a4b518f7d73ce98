# SPDX-License-Identifier: MIT
"""Give a program and its functions another name, so that several specialisations or closures of one function can be in
one directory and in one program.

Before, of a program `scale`::

    func @scale(%x: !pto.memref<gm,?x64,f32>) {
      CALL @scale_incore_0(%x)
      CALL @rows(%x)
    }

After, as `twice`::

    func @twice(%x: !pto.memref<gm,?x64,f32>) {
      CALL @twice_incore_0(%x)
      CALL @twice_rows(%x)
    }
"""

from __future__ import annotations

from collections import Counter

from pto_jit.ir.nodes import Call, Func, Module, Stmt
from pto_jit.ir.walk import map_statements
from pto_jit.slotted import replace


def new_names(module: Module, name: str) -> dict[str, str]:
    """What each function is called, by its name, if the program is called `name`."""
    entry = module.entry
    names, taken = {entry: name}, Counter[str]()
    for func in module.funcs:
        if func.name != entry:
            wish = f"{name}_{func.name.removeprefix(f'{entry}_')}"
            taken[wish] += 1
            names[func.name] = wish if taken[wish] == 1 else f"{wish}_{taken[wish]}"
    return names


def called(module: Module, name: str) -> Module:
    """The program under another name."""
    names = new_names(module, name)

    def visit(stmt: Stmt) -> Stmt:
        return replace(stmt, callee=names[stmt.callee]) if isinstance(stmt, Call) else stmt

    def of(func: Func) -> Func:
        return replace(func, name=names[func.name], body=map_statements(func.body, visit))

    return Module(name, tuple([of(func) for func in module.funcs]), names[module.entry])

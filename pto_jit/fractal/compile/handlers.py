# SPDX-License-Identifier: MIT
"""What the names of `pto_jit.fractal` mean inside a kernel; imported by the first one that uses them."""

from __future__ import annotations

from pto_jit.codegen.builtins.registry import builtin
from pto_jit.fractal.compile import access, functions, parts, strided, tables, windows

PARALLEL = {
    "map": functions.map_,
    "reduce": functions.reduce,
    "fold": functions.fold,
    "foldl": functions.fold,
    "foldr": functions.foldr,
    "scan": functions.scan,
    "scanl": functions.scan,
    "scanr": functions.scanr,
    "filter": tables.filter_,
    "dilated_map": strided.dilated_map,
}

for _name, _handler in {**PARALLEL, **access.HANDLERS, **windows.HANDLERS, **parts.HANDLERS}.items():
    builtin(f"ft.{_name}")(_handler)

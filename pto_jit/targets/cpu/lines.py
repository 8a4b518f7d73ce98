# SPDX-License-Identifier: MIT
"""Line tables of machine code, so that gdb and perf show the lines of the kernel (`pto.config.debug_info`).

Every instruction gets the place of the statement that it is written for.  A helper that the front end compiled into its
caller is an inlined function in the table, with the place of the call; what the writers split off (pieces of a parallel
loop, say) are functions that start where they were split off.  Nothing here is imported without the setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from pto_jit.errors import NOWHERE, Loc
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import I32
from pto_jit.tracebacks import function_at

DWARF = 4  # what every gdb and perf in use reads


class Lines:
    """The debug metadata of one LLVM module; `here` is the place being written."""

    def __init__(self, module: ir.Module, filename: str) -> None:
        self.module = module
        self.here = NOWHERE
        self._files: dict[str, Any] = {}
        self._subprograms: dict[Any, Any] = {}
        self._locations: dict[Any, Any] = {}
        self._unit = module.add_debug_info(
            "DICompileUnit",
            {
                "language": ir.DIToken("DW_LANG_Python"),
                "file": self._file(filename),
                "producer": "pto_jit",
                "isOptimized": True,
                "runtimeVersion": 0,
                "emissionKind": ir.DIToken("LineTablesOnly"),
            },
            is_distinct=True,
        )
        self._type = module.add_debug_info("DISubroutineType", {"types": module.add_metadata([None])})
        module.add_named_metadata("llvm.dbg.cu", self._unit)
        for behaviour, key, value in ((7, "Dwarf Version", DWARF), (2, "Debug Info Version", 3)):
            module.add_named_metadata(
                "llvm.module.flags", [ir.Constant(I32, behaviour), key, ir.Constant(I32, value)]
            )

    # -- while code is written --

    def begin(self, code: Code) -> None:
        """A function that starts at the present place."""
        code.function.set_metadata("dbg", self._function(code.function))
        self.place(code, self.here)
        code.at_entry_lines(code.b.debug_metadata)

    def place(self, code: Code, loc: Loc) -> None:
        """What is written from now on belongs to `loc`."""
        if loc.lineno or code.b.debug_metadata is None:
            code.b.debug_metadata = self._location(loc, code.function)

    @contextmanager
    def statement(self, code: Code, loc: Loc) -> Iterator[None]:
        """What is written inside belongs to `loc`."""
        before, self.here = self.here, loc if loc.lineno else self.here
        self.place(code, self.here)
        yield
        self.here = before
        self.place(code, before)

    # -- metadata --

    def _file(self, filename: str) -> Any:
        if filename not in self._files:
            self._files[filename] = self.module.add_debug_info("DIFile", {"filename": filename, "directory": "."})
        return self._files[filename]

    def _function(self, function: ir.Function) -> Any:
        """The debug entry of a function of the LLVM module."""
        key = function.name
        if key not in self._subprograms:
            first = function_at(self.here.filename, (self.here.lineno, 0))[1] if self.here.lineno else 0
            self._subprograms[key] = self._subprogram(function.name, self.here.filename, min(first, self.here.lineno))
        return self._subprograms[key]

    def _inlined(self, loc: Loc) -> Any:
        """The debug entry of a Python function that was compiled into its caller."""
        name, first = function_at(loc.filename, (loc.lineno, loc.col_offset))
        key = loc.filename, name, first
        if key not in self._subprograms:
            self._subprograms[key] = self._subprogram(name, loc.filename, first)
        return self._subprograms[key]

    def _subprogram(self, name: str, filename: str, line: int) -> Any:
        file = self._file(filename)
        return self.module.add_debug_info(
            "DISubprogram",
            {
                "name": name, "linkageName": name, "scope": file, "file": file, "line": line, "scopeLine": line,
                "type": self._type, "isLocal": True, "isDefinition": True, "isOptimized": True, "unit": self._unit,
            },
            is_distinct=True,
        )  # fmt: skip

    def _location(self, loc: Loc, function: ir.Function) -> Any:
        key = loc, function.name
        known = self._locations.get(key)
        if known is not None:
            return known
        named: dict[str, Any] = {"line": loc.lineno, "column": loc.col_offset + 1}
        if loc.caller is not None and loc.caller.lineno:
            named |= {"scope": self._inlined(loc), "inlinedAt": self._location(loc.caller, function)}
        else:
            named["scope"] = self._scope(loc, function)
        made = self._locations[key] = self.module.add_debug_info("DILocation", named, is_distinct="inlinedAt" in named)
        return made

    def _scope(self, loc: Loc, function: ir.Function) -> Any:
        """The function itself, in the file of the place."""
        own = self._function(function)
        file = self._file(loc.filename)
        if not loc.lineno or dict(own.operands)["file"] is file:
            return own
        return self.module.add_debug_info("DILexicalBlockFile", {"scope": own, "file": file, "discriminator": 0})

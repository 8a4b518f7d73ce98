# SPDX-License-Identifier: MIT
"""Machine code of an optimised module, and what LLVM's code generator is told about it.

On x86 three of its habits are switched off.  LLVM can be told so for the whole process only, so it is told the
opposite afterwards: other users of LLVM in the process get what they are used to.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import llvmlite.binding as llvm

X86_OPTIONS = {
    # Branches in place of conditional moves that a loop waits for, as if data were foreseeable: an alignment of two
    # sequences or a binary search takes twice to three times as long with them.
    "x86-cmov-converter": False,
    # Loop strength reduction takes a third of the time of code generation.  An address of x86 holds a base, an index
    # times the size of an element and a constant; loops are as fast without it, those with many bases faster.
    "disable-lsr": True,
    # Scheduling after registers are assigned, a twelfth of the time: these processors reorder instructions themselves.
    "disable-post-ra": True,
}
"""LLVM's boolean options while it generates code for x86; each is the opposite of its default."""

_OPTIONS_LOCK = threading.RLock()  # signal handlers and finalizers may compile while their thread does
_holders: list[None] = []


def object_code(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    """The object code of an optimised module."""
    with _options_for(machine):
        return machine.emit_object(module)


def assembly(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> str:
    """What `object_code` makes, as text."""
    with _options_for(machine):
        return machine.emit_assembly(module)


@contextmanager
def _options_for(machine: llvm.TargetMachine) -> Iterator[None]:
    if not machine.triple.startswith(("x86", "i386", "i686")):
        yield
        return
    with _OPTIONS_LOCK:
        if not _holders:
            _tell(X86_OPTIONS)
        _holders.append(None)
        try:
            yield
        finally:
            _holders.pop()
            if not _holders:
                _tell({name: not value for name, value in X86_OPTIONS.items()})


def _tell(options: dict[str, bool]) -> None:
    for name, value in options.items():
        llvm.set_option("", f"-{name}={str(value).lower()}")

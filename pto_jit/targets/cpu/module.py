# SPDX-License-Identifier: MIT
"""What the functions of one compiled module share: sites of failure, options, plans."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pto_jit.dtypes import bool_, i64
from pto_jit.errors import NOWHERE, BoundsError, KernelAssertionError, LaunchError, Loc
from pto_jit.ir.nodes import Block, Call, For, Fuse, Module, Op, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import statements
from pto_jit.slotted import field, frozen, mutable
from pto_jit.targets.cpu.analysis import Aliasing, decides_once
from pto_jit.targets.cpu.loading import Host, PrintSite, TaskSite
from pto_jit.targets.cpu.optimising import with_scalar_loops
from pto_jit.targets.cpu.vector import TargetModule

ErrorClass = type[LaunchError]
_ELEMENTS = ("getelem", "setelem", "extract")  # loops around these are worth the optimiser's loop passes


@frozen
class Site:
    """A place that can fail while running: the error, its message (a template over {0} {1} {2}) and where it is."""

    error: ErrorClass
    message: str
    loc: Loc = NOWHERE


@mutable
class ModuleWriter:
    """One LLVM module under construction."""

    llvm: TargetModule
    host: Host
    debug: bool
    fast: bool
    program: Module
    sites: list[Site] = field(default_factory=list)
    print_sites: list[PrintSite] = field(default_factory=list)
    task_sites: list[TaskSite] = field(default_factory=list)
    loops: set[str] = field(default_factory=set)
    """Names of functions that contain scalar loops of the user, worth the optimiser's loop passes."""
    index_loops: set[str] = field(default_factory=set)
    """Names of functions with loops over i64 alone: beside tiles, these are tables of where something lies."""
    decided_once: bool = False
    """Whether a scalar loop takes the same branch in all iterations, which is worth two loops."""
    noting: bool = True
    """Whether the loops that are written now may be noted in these; those of operations on tiles are not."""
    tiles: bool = False
    """Whether a function works on tiles."""
    unordered: set[str] = field(default_factory=set)
    """Names of functions that leave it to their callers to order what they store past the caches."""
    plans: dict[tuple[str, int], tuple[For, Any]] = field(default_factory=dict)
    """How loops are written lane-wise, if at all (`spmd.Plan`), by function and the identity of the loop."""
    repeated: dict[int, Op] = field(default_factory=dict)
    """Matrix products that are computed again and again, by identity: packed operands may be worth keeping."""
    _known: dict[tuple[ErrorClass, str, Loc], int] = field(default_factory=dict)
    _aliasing: Aliasing | None = None

    @property
    def aliasing(self) -> Aliasing:
        """Which tensors of the program may share memory."""
        if self._aliasing is None:
            self._aliasing = Aliasing(self.program)
        return self._aliasing

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector register; 0 where no vectors are written."""
        return self.host.width

    def site(self, error: ErrorClass, message: str, loc: Loc) -> int:
        """The number of a place of failure."""
        site = self._known.setdefault((error, message, loc), len(self.sites))
        if site == len(self.sites):
            self.sites.append(Site(error, message, loc))
        return site

    def print_site(self, fmt: str, kinds: tuple[str, ...], loc: Loc) -> int:
        self.print_sites.append(PrintSite(fmt, kinds, loc))
        return len(self.print_sites) - 1

    def note_loop(
        self, function: ir.Function, body: Block = (), var: Var | None = None, *, of_indices: bool = False
    ) -> None:
        """`function` gets a scalar loop over `body`, `var` its variable."""
        if self.noting:
            (self.index_loops if of_indices else self.loops).add(function.name)
            self.decided_once = self.decided_once or decides_once(body, var)

    def note_elements(self, function: ir.Function, loop: For) -> None:
        """`function` gets a loop, which counts where it works on elements, or on numbers alone, and on nothing else."""
        types: set[Any] = set()
        elements, alone = False, True
        for stmt in statements(loop.body):
            if isinstance(stmt, (Call, Fuse)):
                return
            if isinstance(stmt, Op):
                operands = (*stmt.args, *stmt.results)
                if any(isinstance(v.type, TileType) for v in operands) and stmt.op != "extract":
                    return
                elements = elements or stmt.op in _ELEMENTS
                alone = alone and all(isinstance(v.type, ScalarType) for v in operands)
                types.update(v.type.dtype for v in operands)
        if elements or (alone and types):
            self.note_loop(function, loop.body, loop.var, of_indices=types <= {i64, bool_})

    def text(self) -> str:
        """The module as text, with the names of functions with scalar loops."""
        names = sorted(self.loops if self.tiles else self.loops | self.index_loops)
        return with_scalar_loops(str(self.llvm), names, decided_once=self.decided_once)

    def unique(self, name: str) -> str:
        return self.llvm.get_unique_name(in_ascii(name))


def in_ascii(name: str) -> str:
    """A name as linkers and C take it."""
    return name if name.isascii() else "".join(c if c.isascii() else f"_{ord(c):x}" for c in name)


__all__ = ["BoundsError", "Host", "KernelAssertionError", "LaunchError", "ModuleWriter", "PrintSite", "Site",
           "in_ascii"]  # fmt: skip

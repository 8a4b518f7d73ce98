# SPDX-License-Identifier: MIT
"""What the functions of one compiled module share: sites, options, small service functions."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pto_jit.errors import NOWHERE, BoundsError, KernelAssertionError, LaunchError, Loc
from pto_jit.ir.nodes import For, Module, Op
from pto_jit.slotted import field, frozen, mutable
from pto_jit.targets.cpu.analysis import Aliasing
from pto_jit.targets.cpu.code import I8, I64, PTR, VOID, Code, number
from pto_jit.targets.cpu.loading import Host, PrintSite, TaskSite
from pto_jit.targets.cpu.optimising import with_scalar_loops
from pto_jit.targets.cpu.vector import TargetModule

ErrorClass = type[LaunchError]


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
    """Names of functions that contain scalar loops, worth the optimiser's loop passes."""
    index_loops: set[str] = field(default_factory=set)
    """Names of functions with loops over i64 alone: beside tiles, these are tables of where something lies."""
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

    def text(self) -> str:
        """The module as text, with the names of functions with scalar loops."""
        return with_scalar_loops(str(self.llvm), sorted(self.loops if self.tiles else self.loops | self.index_loops))

    def unique(self, name: str) -> str:
        return self.llvm.get_unique_name(name)

    def copy_function(self, rank: int, size: int) -> ir.Function:
        """`void copy(to, from, extents..., strides to..., strides from...)`: a strided copy, `size` bytes an element.

        A service of the module: regions that overlap or are clipped, values that are kept.  Runs of the last axis
        that lie side by side on both ends are moved at once, and so is all of it where all of it does.
        """
        name = f"pto.copy.{rank}.{size}"
        known = self.llvm.globals.get(name)
        if known is not None:
            return known
        function = ir.Function(self.llvm, ir.FunctionType(VOID, [PTR, PTR] + [I64] * (3 * rank)), name)
        function.linkage = "internal"
        for attribute in ("cold", "noinline", "nounwind"):
            function.attributes.add(attribute)
        to, source, *rest = function.args
        extents, out, into = rest[:rank], rest[rank : 2 * rank], rest[2 * rank :]
        code = Code(function, number(I64, 0))

        def element(target, origin) -> None:
            code.b.store(code.b.load(origin, typ=ir.IntType(8 * size), align=size), target, align=size)

        def run(target, origin, count) -> None:
            memcpy = code.module.globals.get("llvm.memcpy.p0.p0.i64") or ir.Function(
                code.module, ir.FunctionType(VOID, [PTR, PTR, I64, ir.IntType(1)]), "llvm.memcpy.p0.p0.i64"
            )
            code.b.call(memcpy, [target, origin, code.mul(count, size), number(ir.IntType(1), False)])

        def axis(k: int, target, origin) -> None:
            if k == rank:
                element(target, origin)
                return
            if k == rank - 1:
                dense = code.all_of([code.compare("==", out[k], size), code.compare("==", into[k], size)])

                def runs() -> list:
                    run(target, origin, code.max(extents[k], 0))
                    return []

                def elements() -> list:
                    def body(i, _):
                        element(code.offset(target, code.mul(i, out[k])), code.offset(origin, code.mul(i, into[k])))
                        return ()

                    code.loop(0, extents[k], body=body, name=f"axis{k}")
                    return []

                code.choose(dense, runs, elements)
                return

            def body(i, _):
                axis(k + 1, code.offset(target, code.mul(i, out[k])), code.offset(origin, code.mul(i, into[k])))
                return ()

            code.loop(0, extents[k], body=body, name=f"axis{k}")

        def each() -> list:
            axis(0, to, source)
            return []

        def together() -> list:
            run(to, source, code.mul(*(code.max(n, 0) for n in extents)))
            return []

        distances = [code.mul(size, *extents[k + 1 :]) for k in range(rank)]
        packed = [code.compare("==", s, d) for strides in (out, into) for s, d in zip(strides, distances, strict=True)]
        code.choose(code.all_of(packed), together, each) if rank > 1 else each()
        code.b.branch(code.leave)
        code.at(code.leave)
        code.b.ret_void()
        code.finish()
        return function


__all__ = ["I8", "BoundsError", "Host", "KernelAssertionError", "LaunchError", "ModuleWriter", "PrintSite", "Site"]

# SPDX-License-Identifier: MIT
"""What the functions of one compiled module share: sites, options, small service functions."""

from __future__ import annotations

import re

from llvmlite import ir

from pto_jit.errors import NOWHERE, BoundsError, KernelAssertionError, LaunchError, Loc
from pto_jit.slotted import field, frozen, mutable
from pto_jit.targets.cpu.code import I8, I64, PTR, VOID, Code, number
from pto_jit.targets.cpu.loading import Host, PrintSite, TaskSite
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
    sites: list[Site] = field(default_factory=list)
    print_sites: list[PrintSite] = field(default_factory=list)
    task_sites: list[TaskSite] = field(default_factory=list)
    loops: set[str] = field(default_factory=set)
    """Names of functions that contain scalar loops, worth the optimiser's loop passes."""
    _known: dict[tuple[ErrorClass, str, Loc], int] = field(default_factory=dict)

    def site(self, error: ErrorClass, message: str, loc: Loc) -> int:
        """The number of a place of failure."""
        key = (error, message, loc)
        if key not in self._known:
            self._known[key] = len(self.sites)
            self.sites.append(Site(error, message, loc))
        return self._known[key]

    def print_site(self, fmt: str, kinds: tuple[str, ...], loc: Loc) -> int:
        self.print_sites.append(PrintSite(fmt, kinds, loc))
        return len(self.print_sites) - 1

    def text(self) -> str:
        """The module as text, in which LLVM vectorises scalar loops only.

        Other functions hold vectors of our own and their remainders, in which its vectoriser finds nothing to do, and
        now and then aborts the process: LLVM 22 with assertions, as llvmlite has it, on "VPlan cost model and legacy
        cost model disagreed".
        """
        text = str(self.llvm)
        return text if not self.loops else f"{_scalar_loops_apart(text, self.loops)}; ;loops\n"

    def unique(self, name: str) -> str:
        return self.llvm.get_unique_name(name)

    def copy_function(self, rank: int) -> ir.Function:
        """`void copy(to, from, bytes of an element, extents..., strides to..., strides from...)`: a strided copy.

        A service of the module: regions that overlap or are clipped, values that are kept.  Runs of the last axis
        that lie side by side on both ends are moved at once.
        """
        name = f"pto.copy.{rank}"
        known = self.llvm.globals.get(name)
        if known is not None:
            return known
        function = ir.Function(self.llvm, ir.FunctionType(VOID, [PTR, PTR, I64] + [I64] * (3 * rank)), name)
        function.linkage = "internal"
        for attribute in ("cold", "noinline", "nounwind"):
            function.attributes.add(attribute)
        to, source, size, *rest = function.args
        extents, out, into = rest[:rank], rest[rank : 2 * rank], rest[2 * rank :]
        code = Code(function, number(I64, 0))

        def move(target, origin, size) -> None:
            memcpy = code.module.globals.get("llvm.memcpy.p0.p0.i64") or ir.Function(
                code.module, ir.FunctionType(VOID, [PTR, PTR, I64, ir.IntType(1)]), "llvm.memcpy.p0.p0.i64"
            )
            code.b.call(memcpy, [target, origin, size, number(ir.IntType(1), False)])

        def axis(k: int, target, origin) -> None:
            if k == rank:
                move(target, origin, size)
                return
            if k == rank - 1:
                dense = code.all_of([code.compare("==", out[k], size), code.compare("==", into[k], size)])

                def runs() -> list:
                    move(target, origin, code.mul(code.max(extents[k], 0), size))
                    return []

                def elements() -> list:
                    def body(i, _):
                        move(code.offset(target, code.mul(i, out[k])), code.offset(origin, code.mul(i, into[k])), size)
                        return ()

                    code.loop(0, extents[k], body=body, name=f"axis{k}")
                    return []

                code.choose(dense, runs, elements)
                return

            def body(i, _):
                axis(k + 1, code.offset(target, code.mul(i, out[k])), code.offset(origin, code.mul(i, into[k])))
                return ()

            code.loop(0, extents[k], body=body, name=f"axis{k}")

        axis(0, to, source)
        code.b.branch(code.leave)
        code.at(code.leave)
        code.b.ret_void()
        code.finish()
        return function


__all__ = ["I8", "BoundsError", "Host", "KernelAssertionError", "LaunchError", "ModuleWriter", "PrintSite", "Site"]


_DEFINED, _LABEL, _TARGET, _NODE = (
    re.compile(p) for p in (r'.*?@"?([^"(]+)"?\(', r'"?([^"\s;]+)"?:', r'label %"?([^",]+)"?', r"!(\d+) = ")
)


def _scalar_loops_apart(text: str, scalar: set[str]) -> str:
    """Mark the loops of all functions but `scalar` as not to be vectorised, at their branches back."""
    lines = text.split("\n")
    off = free = 1 + max((int(m[1]) for m in map(_NODE.match, lines) if m), default=-1)
    name, above = "", set[str]()
    for k, line in enumerate(lines):
        if line.startswith("define"):
            found = _DEFINED.match(line)
            assert found is not None
            name, above = found[1], set[str]()
        elif label := _LABEL.match(line):
            above.add(label[1])
        elif line.startswith("  br ") and name not in scalar and not above.isdisjoint(_TARGET.findall(line)):
            free += 1
            lines[k] = f"{line}, !llvm.loop !{free}"
    lines.append(f'!{off} = !{{!"llvm.loop.vectorize.enable", i1 false}}')
    lines += [f"!{k} = distinct !{{!{k}, !{off}}}" for k in range(off + 1, free + 1)]
    return "\n".join([*lines, ""])

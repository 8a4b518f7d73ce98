# SPDX-License-Identifier: MIT
"""What a failed launch raises, and what `pl.print` prints."""

from __future__ import annotations

import ctypes
import re
import struct
from typing import TYPE_CHECKING, Any

from pto_jit import errors
from pto_jit.errors import LaunchError, Loc, PtoError

if TYPE_CHECKING:
    from pto_jit.kernel import Kernel

_CODES = {"KernelAssertionError": "PTO-N900"}
"""Of failures whose text is made elsewhere; that of the others begins with their code (`semantic.failures`)."""
_CODED = re.compile(r"(PTO-[A-Z]\d{3}): (.*)", re.DOTALL)


def fail(kernel: Kernel, site: int, v0: int, v1: int, v2: int, args: tuple[Any, ...],
         more: tuple[int, ...] = (), task: int = -1, graph: int = 0) -> None:  # fmt: skip
    """Raise the error of the failure site with that number; negative ones are the runtime's.

    `task`: the number of the task that failed, in the task graph at the address `graph`; -1: it was none.
    """
    if task >= 0 and (text := _failed_task(kernel, graph, task)):
        try:
            fail(kernel, site, v0, v1, v2, args, more)
        except Exception as error:
            raise _error("TaskError", text, "PTO-A040", None) from error
    if site == -1:
        raise MemoryError(f"{kernel.name}: {v0} bytes could not be had")
    if site < 0:
        raise errors.InternalError(f"{kernel.name}: the runtime reported failure {site} ({v0})")
    from pto_jit.tracebacks import point_at

    error, template, _ = kernel.built.program.sites[site]
    if error == "RaceError":
        raise point_at(_race(kernel, site, (v1, v0), more), _place(kernel, site))
    reason, action = template.format(v0, v1, v2), ""
    code = _CODES.get(error, "PTO-A900")
    if error != "KernelAssertionError":  # that is the user's text
        if found := _CODED.fullmatch(reason):
            code, reason = found.groups()
        reason, _, action = reason.partition("; ")
    lines = [f"{code}: {kernel.name}: {reason}"]
    loc: Loc | None = _place(kernel, site)
    if loc is not None and loc.lineno:
        lines += errors.excerpt(loc) or [f"  --> {loc}"]
        lines += errors.callers(loc)
    if action:
        lines.append(f"help: {action}")
    raise point_at(_error(error, "\n".join(lines), code, loc), loc)


def _failed_task(kernel: Kernel, graph: int, task: int) -> str:
    """What there is to say of a failed task of a named function; "" for a scope without a name."""
    from pto_jit.runtime.graph import task_at

    kind, facts = task_at(graph, task)
    site = kernel.built.program.task_site(kind)
    if site is None or not site.named:
        return ""
    lines = [f"PTO-A040: {kernel.name}: task {task}, `{site.function}`, failed"]
    told = [f"{name} = {_scalar(dtype, where, at, facts.slots)}" for name, dtype, where, at in site.scalars]
    if told:
        lines.append(f"  with {', '.join(told)}")
    for name, region in zip(site.tensors, facts.regions, strict=True):
        box = ", ".join(f"{at}:{at + size}" for at, size in zip(region.offsets, region.extents, strict=True))
        lines.append(f"  {region.access}: {name}[{box}]")
    lines.append("help: tasks before it have run, tasks after it were not started; the cause is above")
    return "\n".join(lines)


def _scalar(dtype: str, where: str, at: int | str, slots: tuple[int, ...]) -> int | float | bool | str:
    """A scalar argument of a task: a constant, or 64 bits of the frame that all tasks share or of its own slots."""
    if isinstance(at, str):
        return at
    bits = ctypes.c_int64.from_address(slots[0] + 8 * at).value if where == "frame" else slots[at]
    if dtype == "f64":
        return struct.unpack("<d", struct.pack("<q", bits))[0]
    if dtype[0] in "fb" and dtype != "bool_":  # f32, and f16 and bf16, which registers hold as f32
        return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]
    if dtype == "bool_":
        return bool(bits)
    width = int(dtype[1:])
    value = bits & ((1 << width) - 1)
    return value - (1 << width) if dtype[0] == "i" and value >> (width - 1) else value


def _race(kernel: Kernel, site: int, iterations: tuple[int, int], more: tuple[int, ...]) -> PtoError:
    """`more`: the sites of the loop and of the earlier access, and the indices of the element where they are known."""
    from pto_jit.semantic.races import Access, race_error

    loop, first, *element = more

    def access(number: int) -> Access:
        verb, _, tensor = kernel.built.program.sites[number][1].partition(" ")
        return Access(verb, tensor, _place(kernel, number))  # type: ignore[arg-type]

    variable = kernel.built.program.sites[loop][1]
    return race_error(
        kernel.name, variable, _place(kernel, loop), access(site), access(first), iterations,
        tuple(element) if element else None,
    )  # fmt: skip


def _error(name: str, text: str, code: str, loc: Loc | None) -> Exception:
    found = getattr(errors, name, None)
    if not (isinstance(found, type) and issubclass(found, PtoError)):
        return errors.InternalError(f"a failure site has the unknown error class {name}: {text}")
    made = found(text)
    if isinstance(made, LaunchError):
        made.code, made.loc = code, loc
    return made


def _place(kernel: Kernel, site: int) -> Loc:
    """Where the site is in the source.

    Code from the disk cache may have been made when the function stood elsewhere: its content is the same, so its
    sites are too, and compiling it up to them tells where they are now.
    """
    stored = kernel.built.program.sites[site][2]
    if kernel.built.stages is not None:
        return stored
    if kernel.places is None:
        try:
            kernel.places = kernel.find_places()
        except PtoError:  # the source is gone or was edited since: the stored place is the best there is
            kernel.places = []
    return kernel.places[site] if len(kernel.places) == len(kernel.built.program.sites) else stored


def show(kernel: Kernel, site: int, values: tuple[int, ...]) -> None:
    """Print what a `pl.print` of the kernel says; the values arrive as 64-bit slots."""
    print(kernel.built.program.format_print(site, values))

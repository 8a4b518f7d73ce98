# SPDX-License-Identifier: MIT
"""What a failed launch raises, and what `pl.print` prints."""

from __future__ import annotations

import ctypes
import re
import struct
from typing import TYPE_CHECKING, Any

from pto_jit import errors
from pto_jit.errors import LaunchError, Loc, PtoError
from pto_jit.semantic.failures import filled
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.kernel import Kernel

_CODES = {"KernelAssertionError": "PTO-N900"}
"""Of failures whose text is made elsewhere; that of the others begins with their code (`semantic.failures`)."""
_SIZE = re.compile(r"\b([A-Za-z_]\w*)\.shape\[(\d+)\]")
_CODED = re.compile(r"(PTO-[A-Z]\d{3}): (.*)", re.DOTALL)


def fail(kernel: Kernel, site: int, v0: int, v1: int, v2: int, args: tuple[Any, ...],
         more: tuple[int, ...] = (), task: int = -1, graph: int = 0, called: Loc | None = None) -> None:  # fmt: skip
    """Raise the error of the failure site with that number; negative ones are the runtime's.

    `task`: the number of the task that failed, in the task graph at the address `graph`; -1: it was none.  `called`:
    where the function was called, if that is known.
    """
    __tracebackhide__ = True
    if task >= 0 and (told := _failed_task(kernel, graph, task)):
        text, place = told
        try:
            fail(kernel, site, v0, v1, v2, args, more, called=place)
        except Exception as error:
            from pto_jit.tracebacks import point_at

            raise point_at(_error("TaskError", text, "PTO-A040", place), place) from error
    if site == -1:
        raise MemoryError(f"{kernel.name}: {v0} bytes could not be had")
    if site < 0:
        raise errors.InternalError(f"{kernel.name}: the runtime reported failure {site} ({v0})")
    from pto_jit.tracebacks import point_at

    error, template, _ = kernel.built.program.sites[site]
    if error == "RaceError":
        raise point_at(_race(kernel, site, (v1, v0), more), _place(kernel, site))
    reason, action = filled(template, v0, v1, v2), ""
    code = _CODES.get(error, "PTO-A900")
    if error == "KernelAssertionError":  # its text is the user's
        action = "do what the assertion says; it is checked with `debug=True` only"
    else:
        if found := _CODED.fullmatch(reason):
            code, reason = found.groups()
        reason, _, action = reason.partition("; ")
    if error == "ShapeError":
        reason += _sizes(kernel, reason, args)
    lines = [f"{code}: {kernel.name}: {reason}"]
    loc = _called_at(_place(kernel, site), called)
    lines += _told(loc)
    if action:
        lines.append(f"help: {action}")
    kind = getattr(errors, error, None)
    if isinstance(kind, type) and issubclass(kind, errors.CompilationError):  # its text has all but the words already
        raise point_at(kind(f"{kernel.name}: {reason}", loc, code=code, hint=action or None), loc)
    raise point_at(_error(error, "\n".join(lines), code, loc), loc)


def _sizes(kernel: Kernel, text: str, args: tuple[Any, ...]) -> str:
    """` (x.shape[0] = 3)` for the sizes of arguments that a text speaks of; nothing when it speaks of none."""
    if len(args) != len(kernel.params):
        return ""
    shapes = {p.name: getattr(a, "shape", ()) for p, a in zip(kernel.params, args, strict=True)}
    named = dict.fromkeys((name, int(axis)) for name, axis in _SIZE.findall(text))
    values = [f"{n}.shape[{k}] = {shapes[n][k]}" for n, k in named if n in shapes and k < len(shapes[n])]
    return f" ({', '.join(values)})" if values else ""


def _told(loc: Loc) -> list[str]:
    """A place with its source, and the calls that led there."""
    return [*(errors.excerpt(loc) or [f"  --> {loc}"]), *errors.callers(loc)] if loc.lineno else []


def _called_at(loc: Loc, called: Loc | None) -> Loc:
    """`loc` in a function that is called there: code that several calls share does not know by which one it runs."""
    if called is None or loc == called:
        return loc
    return replace(loc, caller=called if loc.caller is None else _called_at(loc.caller, called))


def _failed_task(kernel: Kernel, graph: int, task: int) -> tuple[str, Loc] | None:
    """What there is to say of a failed task of a named function, and where that is called; None for another scope."""
    from pto_jit.runtime.graph import task_at

    kind, facts = task_at(graph, task)
    program = kernel.built.program
    site = program.task_site(kind)
    if site is None or not site.named:
        return None
    place = _now(kernel, len(program.sites) + program.task_sites.index(site), site.loc)
    lines = [f"PTO-A040: {kernel.name}: task {task}, `{site.function}`, failed", *_told(place)]
    told = [f"{name} = {_scalar(dtype, where, at, facts.slots)}" for name, dtype, where, at in site.scalars]
    if told:
        lines.append(f"  with {', '.join(told)}")
    for name, region in zip(site.tensors, facts.regions, strict=True):
        box = ", ".join(f"{at}:{at + size}" for at, size in zip(region.offsets, region.extents, strict=True))
        lines.append(f"  {region.access}: " + (f"{name}[{box}]" if region.tensor >= 0 else f"nothing of {name}"))
    lines.append("help: tasks before it have run, tasks after it were not started; the cause is above")
    return "\n".join(lines), place


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
    return _now(kernel, site, kernel.built.program.sites[site][2])


def _now(kernel: Kernel, index: int, stored: Loc) -> Loc:
    """A place that is `stored` with the code: the one of that number among those of failure sites, then of tasks."""
    if kernel.built.stages is not None:
        return stored
    if kernel.places is None:
        try:
            kernel.places = kernel.find_places()
        except PtoError:  # the source is gone or was edited since: the stored place is the best there is
            kernel.places = []
    count = len(kernel.built.program.sites) + len(kernel.built.program.task_sites)
    return kernel.places[index] if len(kernel.places) == count else stored


def show(kernel: Kernel, site: int, values: tuple[int, ...]) -> None:
    """Print what a `pl.print` of the kernel says; the values arrive as 64-bit slots."""
    print(kernel.built.program.format_print(site, values))

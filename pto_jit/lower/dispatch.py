# SPDX-License-Identifier: MIT
"""Whether an orchestration runs its in-core calls one after the other or as a task graph.

One call at a time is best when loops divide the work: a parallel or chunk loop gives its iterations to the workers
without a task for each, and a single large call divides its own loops.  A sequential loop around calls of named in-core
functions is what task graphs are for: every call becomes a task, and those without a common element run side by side.
"""

from __future__ import annotations

from pto_jit.ir.nodes import Block, Call, For, If, Module, Scope, While
from pto_jit.ir.walk import statements
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import source_name
from pto_jit.slotted import mutable


@mutable
class _Calls:
    """In-core calls of an orchestration: the names of those in sequential loops only, and whether one is shared out."""

    looped: dict[str, str]
    divided: str = ""
    results: str = ""


def task_functions(module: Module, decisions: list[Decision], *, debug: bool) -> frozenset[str] | None:
    """The named in-core functions that the entry calls, when its calls become tasks; else None.

    `module` is the program after placement, before scopes are outlined.  Code for debugging runs in order: what it
    checks is what another order would change.  The choice is a "dispatch" decision.
    """
    entry = module.func(module.entry)
    if entry.kind != "orchestration":
        return None
    found = _Calls({})
    _walk(entry.body, "", found)
    if not found.looped:
        return None
    name, loop = next(iter(found.looped.items()))
    applied = not (found.divided or found.results or debug)
    if debug:
        reason = "code for debugging makes its calls in order"
    elif found.divided:
        reason = f"the loop over `{found.divided}` is divided over the workers directly, without a task per call"
    elif found.results:
        reason = f"the host waits for the scalar that `{found.results}` returns"
    else:
        reason = f"calls of `{name}` in a loop are tasks, ordered by the regions that they read and write"
    decisions.append(Decision("dispatch", (loop,) if loop else (), applied, f"task graph: {reason}", entry.loc))
    return named_functions(module) if applied else None


def named_functions(module: Module) -> frozenset[str]:
    """The in-core functions of the user (and not scopes without a name) that the entry calls."""
    found = {s.callee if isinstance(s, Call) else s.name for s in statements(module.func(module.entry).body)
             if isinstance(s, Call) or (isinstance(s, Scope) and s.named)}  # fmt: skip
    return frozenset(found)


def _walk(body: Block, loop: str, found: _Calls) -> None:
    """`loop`: the variable of the innermost sequential loop around, "while" for one without, "" for none."""
    for stmt in body:
        match stmt:
            case Call():
                if loop:
                    found.looped.setdefault(stmt.callee, "" if loop == "while" else loop)
                if stmt.results:
                    found.results = found.results or stmt.callee
            case Scope():
                if loop and stmt.named:
                    found.looped.setdefault(stmt.name, "" if loop == "while" else loop)
            case For():
                name = source_name(stmt.var.name)
                if stmt.kind in ("parallel", "chunk") and _has_calls(stmt.body):
                    found.divided = found.divided or name
                _walk(stmt.body, name if stmt.kind in ("sequential", "in_chunk", "combine") else loop, found)
            case While():
                _walk((*stmt.before, *stmt.body), "while", found)
            case If():
                _walk((*stmt.then, *stmt.orelse), loop, found)
            case _:
                pass


def _has_calls(body: Block) -> bool:
    found = _Calls({})
    _walk(body, "while", found)
    return bool(found.looped) or any(isinstance(s, Scope) for s in body)

# SPDX-License-Identifier: MIT
"""`fn.task_graph(...)`: the host code of a function that only records its in-core calls, as tasks of a graph.

It is compiled once per version of a function, when it is asked for, from the stages that the version has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pto_jit.building import Built, making
from pto_jit.cache import disk_cache
from pto_jit.compiler import Stages, compile_stages
from pto_jit.errors import PtoError
from pto_jit.failures import fail
from pto_jit.kernel import runtime_for
from pto_jit.lower.dispatch import named_functions
from pto_jit.lower.pipeline import PLACED
from pto_jit.options import Options
from pto_jit.results import leaf_items, result_plan
from pto_jit.runtime import Entry
from pto_jit.runtime.graph import TaskFailure, TaskGraph
from pto_jit.slotted import field, mutable
from pto_jit.targets import cpu


@mutable(eq=False)
class Recorder:
    """Code that records, and what the runtime gives back when it fails."""

    name: str
    built: Built
    options: Options
    entry: Entry = field(init=False)

    def __post_init__(self) -> None:
        items = leaf_items(self.built.program.result_plan)
        plan = self.built.program.result_plan if self.built.results is None else result_plan(self.built.results, items)
        self.entry = Entry(runtime_for(self.options), self.built.program.entry_address, plan, holder=self,
                           on_failure=fail)  # fmt: skip

    def explain(self, failure: TaskFailure) -> BaseException | None:
        """The error of a task of the graph: of a named function as a call raises it, else what it failed with."""
        if failure.site < 0:
            return None
        try:
            fail(self, failure.site, *failure.values, (), (), failure.task, failure.graph)  # type: ignore[arg-type]
        except PtoError as error:
            return error


def recorder_of(built: Built, name: str, options: Options, stages: Callable[[], Stages]) -> Recorder:
    """The recording code that belongs to a version; `stages` makes its stages again when it came from disk."""
    if built.recorder is None:
        with making:
            if built.recorder is None:  # nor another thread has made it meanwhile
                made = built.stages or stages()
                tasks = cpu.Tasks(named_functions(made.modules[PLACED]), recorded=True)
                program, _ = compile_stages(made, options, disk_cache() if options.cache else None, tasks)
                built.recorder = Recorder(name, Built(program, built.results, 0, "compiled", 0.0, made), options)
    return built.recorder


def record(
    recorder: Recorder, slots: Sequence[int | float], values: tuple[Any, ...], elements: int, keep: Iterable[Any] = ()
) -> TaskGraph:
    """The graph of the in-core calls that the function makes for these arguments; none is run."""
    results: list[Any] = []

    def build(address: int) -> int:
        results.append(recorder.entry.launch([*slots, address], values, elements))
        return 0

    return TaskGraph.record(
        build, runtime_for(recorder.options), explain=recorder.explain, keep=(recorder, values, results, *keep)
    )

# SPDX-License-Identifier: MIT
"""An orchestration whose in-core calls are tasks of a graph, as C on the run-time library.

The orchestration opens the graph, calls a function that submits the tasks, and closes the graph.  A task is a function
of slots: the address of the *frame*, a structure of what all tasks share, and the values that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pto_jit.ir.nodes import Call, Func, Op, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import variables
from pto_jit.lower.names import source_name
from pto_jit.slotted import replace
from pto_jit.targets.c.function import CFunctionWriter
from pto_jit.targets.c.module import CModule
from pto_jit.targets.c.tidy import Line, names_in, tidy
from pto_jit.targets.c.values import CSlot, CValue, lift
from pto_jit.targets.cpu.constants import I64, Index
from pto_jit.targets.cpu.loading import TaskSite
from pto_jit.targets.cpu.task_kinds import tile_bytes
from pto_jit.targets.cpu.task_regions import Root, TaskRegions
from pto_jit.targets.cpu.values import Tensor
from pto_jit.targets.source.identifiers import Identifiers
from pto_jit.targets.source.text import wrapped

_ACCESS = {0: "0", 1: "PTO_READ", 2: "PTO_WRITE", 3: "PTO_READ_WRITE"}


class CTaskWriter(TaskRegions, CFunctionWriter):
    """Writes the function that submits the tasks of an orchestration.

    named: the in-core functions of the user; scopes without a name are the others.
    """

    def __init__(self, module: CModule, func: Func, name: str, names: Identifiers, funcs: dict[str, Func],
                 named: frozenset[str]) -> None:  # fmt: skip
        super().__init__(module, func, name, names, parallel=True)
        self.begin_tasks(func, funcs)
        self.callees = funcs
        self.named = named
        self.fields: dict[str, int] = {}  # names in the frame, with their places
        self.graph, self.frame, *_ = (names.fresh(n) for n in ("graph", "frame", "slots", "done"))
        self.submit = module.names.fresh(f"{name}_tasks")
        self.frame_type = module.names.fresh(f"{name}_frame")
        self.release = ""  # the kind of task that gives memory back
        self.used: set[str] = set()  # names of the frame that tasks read
        self._shares: list[tuple[str, Line]] = []

    # -- the function as a whole ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """The parameters have their values: tasks find them in the frame, tensors in the graph."""
        code = self.code
        code.need_status()
        code.declared[self.graph] = "pto_graph *"
        self._make_frame = [
            Line(1, f"struct {self.frame_type} *const {self.frame} = "
                    f"pto_graph_buffer({self.graph}, (int64_t)sizeof *{self.frame});"),
            Line(1, f"if ({self.frame} == NULL) return PTO_NO_MEMORY;"),
        ]  # fmt: skip
        code.output += self._make_frame
        for p in self.func.params:
            value = self.env.get(p.name)
            if p.name not in self.mutable:
                self.share_value(p.name, value)
            if isinstance(value, Tensor):
                self.places[p.name] = self.registered(value, p.name)

    def finished(self) -> list[Line]:
        dropped = {id(line) for name, line in self._shares if name not in self.used}
        if not self.used:
            dropped |= {id(line) for line in self._make_frame}
        return [line for line in super().finished() if id(line) not in dropped]

    def leaving(self, depth: int) -> list[Line]:
        lines = super().leaving(depth)
        if not self.heap:
            return lines
        self.module.calls.add("pto_graph_wait")  # tasks use what is given back
        return [Line(depth, f"if ((status = pto_graph_wait({self.graph})) != PTO_OK) return status;"), *lines]

    def frame_text(self) -> str:
        """The structure of what tasks share, as far as they read it."""
        if not self.used:
            return ""
        lines = [f"// What the tasks of {self.code.function.name} share.", f"struct {self.frame_type} {{"]
        for name in self.fields:
            if name in self.used:
                ctype = _slot_ctype(self.code.declared[name])
                lines.append(f"  {ctype}{'' if ctype.endswith('*') else ' '}{name};")
        return "\n".join([*lines, "};"])

    def wrapping(self, parameters: Sequence[str], body: str) -> str:
        """The function that submits the tasks gets the statements; the orchestration opens and closes the graph."""
        graph = self.graph
        self.module.calls.update(("pto_graph_open", "pto_graph_close"))
        self.module.task_sites[:] = self._placed(self.module.task_sites)
        head = f"static int32_t {self.submit}({', '.join([parameters[0], f'pto_graph *{graph}', *parameters[1:]])}) {{"
        texts = [text for owner, text in self.module.functions if owner == self.func.name]
        others = [(owner, text) for owner, text in self.module.functions if owner != self.func.name]
        submit = f"{wrapped(head, head.index('(') + 1)}\n{body}\n}}"
        shared = [self.frame_text()] if self.used else []
        self.module.functions[:] = [*others, *((self.func.name, t) for t in (*shared, *texts, submit))]
        names = [p.rsplit(" ", 1)[1].lstrip("*") for p in parameters[1:]]
        call = f"  const int32_t status = {self.submit}({', '.join(['worker', graph, *names])});"
        return "\n".join([
            f"  pto_graph *const {graph} = pto_graph_open(worker, 0);",
            f"  if ({graph} == NULL) return PTO_NO_MEMORY;", wrapped(call, 6),
            f"  const int32_t done = pto_graph_close(worker, {graph});", "  return status == PTO_OK ? done : status;",
        ])  # fmt: skip

    # -- what tasks know ------------------------------------------------------------------------------------------

    def share_value(self, name: str, value: Any) -> None:
        self.shared[name] = value
        for n in _names_of(value):
            if n in self.code.declared and n not in self.fields:
                self.fields[n] = len(self.fields)
                ctype = self.code.declared[n]
                bits = n if ctype.endswith("*") else _to_slot(n, ctype)
                line = Line(self.code.depth, f"{self.frame}->{n} = {bits};")
                self.code.output.append(line)
                self._shares.append((n, line))

    def registered(self, tensor: Tensor, name: str) -> Root:
        code, rank = self.code, len(tensor.extents)
        made = code.variable(f"{source_name(name)}_tensor", "int32_t", here=True)
        pointer = lift(tensor.pointer)
        extents, strides = _array(tensor.extents), _array(tensor.strides)
        code.module.calls.add("pto_graph_tensor")
        code.line(f"if ((status = pto_graph_tensor({self.graph}, {pointer.text}, {tensor.dtype.bytes}, {rank}, "
                  f"{extents}, {strides}, &{made.variable})) != PTO_OK) return status;")  # fmt: skip
        number = CValue(I64, made.variable)
        return Root(number, source_name(name), tensor.extents, (0,) * rank, tuple(range(rank)))

    def wait(self, access: int, region: list[Index], stmt: Call | Op) -> None:
        self.code.module.calls.add("pto_graph_wait_region")
        self.code.line(f"if ((status = pto_graph_wait_region({self.graph}, {_ACCESS[access]}, {_array(region)})) "
                       "!= PTO_OK) return status;")  # fmt: skip

    def hold(self, name: str, root: Root) -> None:
        held = self.held[name]
        self.code.line(f"memcpy({held}, {_array((root.number, *root.offsets, *root.extents))}, sizeof {held});")

    # -- calls ----------------------------------------------------------------------------------------------------

    def submit_call(
        self, stmt: Call, name: str, ops: list[Op], given: dict[Var, Any], accesses: list[int], regions: list[Index]
    ) -> tuple[str, list[str]]:
        function = self.module.names.fresh(f"{self.code.function.name}_{self.module.function_names[stmt.callee]}")
        slots = self._task(stmt, function, ops, given)
        kind = self._kind(function, name, function, tile_bytes(self.funcs[stmt.callee]), len(slots), accesses)
        values = [_to_slot(n, "void *" if n == self.frame else self.code.declared[n]) for n in slots]
        self._submit(kind, _array(values), _array(regions))
        return kind, slots

    def _submit(self, kind: str, slots: str, regions: str) -> None:
        self.code.module.calls.add("pto_task")
        self.code.line(f"if ((status = pto_task({self.graph}, &{kind}, {slots}, {regions})) != PTO_OK) return status;")

    def _task(self, stmt: Call, function: str, ops: list[Op], given: dict[Var, Any]) -> list[str]:
        """Write the function of a task; the names whose values are its slots."""
        alone = replace(self.func, body=tuple(ops))  # of the whole function a writer would count every variable
        inner = CFunctionWriter(self.module, alone, function, self.code.names, parallel=True)
        inner.callees = self.callees
        for leaf, value in given.items():
            dict.__setitem__(inner.env, leaf.name, value)
        for op in ops:
            inner.statement(op)
        inner.place(stmt.loc)
        inner.code.line(f"return {inner.called(stmt, [])};")
        body = tidy(inner.finished())
        own = set(inner.code.declared) | {"worker"}
        found = dict.fromkeys(n for line in body for n in names_in(line.text) if n in self.code.declared)
        outer = [n for n in found if n not in own]
        self.used.update(n for n in outer if n in self.fields)
        slots = [n for n in outer if n not in self.fields]
        from_frame = [n for n in outer if n in self.fields]
        lines = [f"static int32_t {function}(pto_worker *worker, const int64_t *slots) {{"]
        if from_frame:
            slots = [self.frame, *slots]
            kind = f"const struct {self.frame_type} *"
            lines.append(f"  {kind}const {self.frame} = ({kind})(uintptr_t)slots[0];")
        elif not slots:
            lines.append("  (void)slots;")
        for n in outer:
            ctype = self.code.declared[n]
            bits = f"{self.frame}->{n}" if n in self.fields else f"slots[{slots.index(n)}]"
            value = _from_slot(bits, ctype, n in self.fields)
            lines.append(f"  {ctype}const {n} = {value};" if ctype.endswith("*") else f"  const {ctype} {n} = {value};")
        self.module.functions.append((self.func.name, "\n".join([*lines, *(str(line) for line in body), "}"])))
        return slots

    def _kind(self, wish: str, name: str, function: str, size: int, slots: int, accesses: list[int]) -> str:
        """The constant `pto_task_kind` of a call; its name."""
        kind = self.module.names.fresh(f"{wish}_kind")
        table, lines = "NULL", []
        if accesses:
            table = self.module.names.fresh(f"{wish}_accesses")
            lines.append(f"static const int32_t {table}[] = {{{', '.join(_ACCESS[a] for a in accesses)}}};")
        fields = f'"{name}", {function}, {size}, {slots}, {len(accesses)}, {table}'
        lines.append(f"static const pto_task_kind {kind} = {{{fields}}};")
        self.module.functions.append((self.func.name, "\n".join(wrapped(line, 4) for line in lines)))
        return kind

    def _scalars(self, given: dict[Var, Any], places: list[str]) -> tuple[tuple[str, str, str, int | str], ...]:
        """Where the scalars that a task depends on are, for whoever has to tell of it."""
        found: list[tuple[str, str, str, int | str]] = []
        for leaf, value in given.items():
            if not isinstance(leaf.type, ScalarType):
                continue
            text = lift(value).text
            where: str
            at: int | str
            if text in places:
                where, at = "slot", places.index(text)
            elif text in self.fields:
                where, at = "frame", text  # its place is known when all fields are
            elif names_in(text):
                continue
            else:
                where, at = "const", text
            found.append((source_name(leaf.name), leaf.type.dtype.name, where, at))
        return tuple(found)

    def _placed(self, sites: Iterable[TaskSite]) -> list[TaskSite]:
        """Task sites with the places of their scalars in the frame as it was written."""
        order = [n for n in self.fields if n in self.used]
        return [replace(site, scalars=tuple(
            (name, dtype, where, order.index(str(at))) if where == "frame" else (name, dtype, where, at)
            for name, dtype, where, at in site.scalars if where != "frame" or at in order
        )) for site in sites]  # fmt: skip

    # -- memory ---------------------------------------------------------------------------------------------------

    def release_tensor(self, name: str, pointer: Any) -> None:
        """A task gives the memory of a tensor that is made again back, after all tasks that use it."""
        assert isinstance(pointer, CSlot)
        if name not in self.held:
            rank = next(v.type.rank for v in variables(self.func.body)
                        if v.name == name and isinstance(v.type, TensorType))  # fmt: skip
            held = self.code.names.fresh(f"{name}_held")
            self.code.declared[held] = "int64_t *"
            with self.code.at_entry():
                self.code.line(f"int64_t {held}[{1 + 2 * rank}];")
            self.held[name] = held
        if not self.release:
            function = self.module.names.fresh(f"{self.code.function.name}_release")
            self.module.calls.add("pto_buffer_free")
            lines = [f"static int32_t {function}(pto_worker *worker, const int64_t *slots) {{",
                     "  pto_buffer_free(worker, (void *)(uintptr_t)slots[0]);", "  return PTO_OK;", "}"]  # fmt: skip
            self.module.functions.append((self.func.name, "\n".join(lines)))
            self.release = self._kind(function, "release", function, 0, 1, [2])
        with self.code.braces(f"if ({pointer.variable} != NULL)"):
            self._submit(self.release, _array([_to_slot(pointer.variable, "void *")]), self.held[name])
            self.code.line(f"{pointer.variable} = NULL;")


def _array(values: Iterable[Any]) -> str:
    """An array of 64-bit numbers in place; one without elements has a 0."""
    texts = [v if isinstance(v, str) else lift(v).text for v in values]
    return f"(const int64_t[]){{{', '.join(texts) or '0'}}}"


def _names_of(value: Any) -> list[str]:
    """The names that a variable's value is made of."""
    parts = [value.pointer, *value.extents, *value.strides] if isinstance(value, Tensor) else [value]
    return [n for part in parts if not isinstance(part, int) for n in names_in(lift(part).text)]


def _slot_ctype(ctype: str) -> str:
    """How a value of a C type lies in the frame: in 64 bits, as the run-time library's tools read it."""
    return ctype if ctype.endswith("*") or ctype == "int64_t" else "int64_t"


def _to_slot(name: str, ctype: str) -> str:
    """A value as 64 bits."""
    if ctype == "int64_t":
        return name
    if ctype.endswith("*"):
        return f"(int64_t)(uintptr_t){name}"
    if ctype == "double":
        return f"pto_bits_f64({name})"
    return f"pto_bits_f32({name})" if ctype == "float" else f"(int64_t){name}"


def _from_slot(bits: str, ctype: str, in_frame: bool) -> str:
    if ctype == "int64_t" or (ctype.endswith("*") and in_frame):
        return bits
    if ctype.endswith("*"):
        return f"({ctype})(uintptr_t){bits}"
    if ctype == "double":
        return f"pto_from_bits_f64({bits})"
    if ctype == "float":
        return f"pto_from_bits_f32((int32_t){bits})"
    return f"{bits} != 0" if ctype == "bool" else f"({ctype}){bits}"

# SPDX-License-Identifier: MIT
"""A comprehension as the text of a `@pto.jit` function.

The function takes the comprehension's parameters, makes its outputs and returns them; with `given` it takes the outputs
as parameters behind the others.  Outputs of rank 0 have one element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pto_jit.comprehensions.lowering import elements, rows, scans
from pto_jit.comprehensions.lowering.checks import Check, checks
from pto_jit.comprehensions.lowering.naming import Lines, Names, is_simple
from pto_jit.comprehensions.lowering.plan import groups
from pto_jit.comprehensions.program import Analysis
from pto_jit.comprehensions.symbolic import Expr, name
from pto_jit.comprehensions.typing import Tensor
from pto_jit.slotted import frozen


@frozen
class Program:
    """`text`: the function with its decorator; `header`: imports and named sizes; `name`: what it defines.

    `values`: what its globals must hold besides (functions of the user); `results`: stored names of what it returns,
    in order.
    """

    name: str
    header: str
    text: str
    values: dict[str, Any]
    results: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.header}\n\n\n{self.text}"


Checked = Callable[[Check], Callable[[Any], None]]  # what the program calls with a condition


class Kernel:
    """What the writers of groups share: names, lines, sizes."""

    def __init__(self, analysis: Analysis, given: bool, checked: Checked | None = None, device: bool = False) -> None:
        self.analysis = analysis
        self.given = given
        self.device = device
        self.checked = checked
        self.names = Names()
        self.lines = Lines()
        self.stored: dict[str, str] = {}
        self.sizes: dict[str, str] = {}
        self.extents: dict[Expr, str] = {}
        self.used_sizes: set[str] = set()
        self.loaded: set[str] = set()  # tensors that are read from memory
        self.stores: list[tuple[int, str]] = []  # (line, tensor)

    # -- sizes ----------------------------------------------------------------------------------------------------

    def size(self, e: Expr) -> str:
        """An expression over sizes, scalars and loop variables."""
        self.used_sizes |= e.names() & self.sizes.keys()
        renamed = {n: t for n, t in self.sizes.items() if n != t}
        return str(e.replace(lambda n: name(renamed[n]) if n in renamed else None)) if renamed else str(e)

    def extent(self, e: Expr, wanted: str) -> str:
        """The name or number of an extent; one that has to be computed is computed once, at the start."""
        if is_simple(e):
            return self.size(e)
        if e not in self.extents:
            self.extents[e] = self.names.fresh(f"{wanted}_size")
        return self.extents[e]

    def store(self, text: str, tensor: str) -> None:
        """A line that writes a tensor and nothing else."""
        self.stores.append((len(self.lines.lines), tensor))
        self.lines.add(text)

    # -- the function ---------------------------------------------------------------------------------------------

    def write(self) -> Program:
        analysis, names = self.analysis, self.names
        definition = analysis.definition
        function = names.fresh(definition.name)
        parameters = [p for p in definition.parameters if p.dtype is not None]
        for p in parameters:
            self.stored[p.name] = names.fresh(p.name)
        for size in analysis.scope.sizes:
            self.sizes[size] = names.fresh(size)
        made = [t for t in analysis.tensors.values() if t.role in ("output", "local") and t.extents is not None]
        for t in made:
            self.stored[t.name] = names.fresh(t.name)
        for scalar, known in analysis.scope.scalars.items():
            if self.stored[scalar] != scalar:
                analysis.scope.scalars[scalar] = type(known)(self.stored[scalar], known.dtype)
        for group in groups(analysis, self.device):
            if group.scan is not None:
                scans.write(self, group.statements[0], group.scan)
            elif group.form == "loops":
                elements.write(self, group)
            else:
                rows.write(self, group)
        body = self._without_unread(made)
        kept = [t for t in made if t.role == "output" or t.name in self.loaded]
        return self._assembled(function, parameters, kept, body)

    def _without_unread(self, made: Iterable[Tensor]) -> list[str]:
        """The lines without stores to local tensors that nothing reads from memory."""
        dropped = {t.name for t in made if t.role == "local"} - self.loaded
        gone = {line for line, tensor in self.stores if tensor in dropped}
        return [text for k, text in enumerate(self.lines.lines) if k not in gone]

    def _assembled(self, function: str, parameters: list[Any], kept: list[Tensor], body: list[str]) -> Program:
        analysis = self.analysis
        outputs = [analysis.tensors[n] for n in analysis.returned if analysis.tensors[n].role == "output"]
        results = tuple(t.name for t in outputs)
        allocated: list[str] = []
        for t in kept:
            if self.given and t.name in results:
                continue
            allocated.append(f"    {self.stored[t.name]} = pl.empty({self._shape(t)}, pl.{t.dtype})")
        computed = [*self._checks(), *(f"    {text} = {self.size(e)}" for e, text in self.extents.items())]
        dims, reads = self._reads(parameters)
        given = [self._output(analysis.tensors[n], dims) for n in results] if self.given else []
        signature = ", ".join([*(self._parameter(p, dims) for p in parameters), *given])
        lines = ["@pto.jit", f"def {function}({signature}):"]
        if analysis.definition.doc:
            lines.append(f"    {analysis.definition.doc.strip().splitlines()[0]!r}")
        lines += reads
        for text, dtype in sorted((s.text, s.dtype.name) for s in analysis.scope.scalars.values()):
            if any(text in line for line in body):
                lines.append(f"    {text} = pl.{dtype}({text})")
        lines += computed + allocated + body
        if results and not self.given:
            lines.append(f"    return {', '.join(self.stored[n] for n in results)}")
        header = ["import pto_jit as pto", "import pto_jit.language as pl"]
        if dims:
            header += ["", *(f'{d} = pl.dynamic("{n}")' for n, d in dims.items())]
        return Program(function, "\n".join(header), "\n".join(lines) + "\n", self.names.callables, results)

    def _checks(self) -> list[str]:
        """The lines that check sizes, when the program does it."""
        lines: list[str] = []
        for check in () if self.checked is None else checks(self.analysis, self.size):
            called = self.names.fresh("check")
            self.names.callables[called] = self.checked(check)  # type: ignore[misc]
            lines.append(f"    {called}({check.condition})")
        return lines

    def _shape(self, t: Tensor) -> str:
        shape = [self.extents.get(e) or self.size(e) for e in t.extents or ()] or ["1"]
        return f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"

    def _reads(self, parameters: list[Any]) -> tuple[dict[str, str], list[str]]:
        """Sizes as named extents of annotations, and the lines that read those that are used."""
        dims: dict[str, str] = {}
        lines: list[str] = []
        for p in parameters:
            for axis, size in enumerate(p.sizes):
                if isinstance(size, str) and size in self.sizes and size not in dims:
                    dims[size] = self.sizes[size]
                    if size in self.used_sizes:
                        lines.append(f"    {self.sizes[size]} = {self.stored[p.name]}.shape[{axis}]")
        return dims, lines

    def _output(self, t: Tensor, dims: dict[str, str]) -> str:
        """An output as a parameter, with the extents that have names."""
        known = [str(e) if is_simple(e) and (e.value is not None or str(e) in dims) else None for e in t.extents or ()]
        extents = ", ".join(dims.get(e, e) if e is not None else "None" for e in known) or "1"
        return f"{self.stored[t.name]}: pl.Tensor[[{extents}], pl.{t.dtype}]"

    def _parameter(self, p: Any, dims: dict[str, str]) -> str:
        text = self.stored[p.name]
        if not p.sizes:
            return text if p.name in self.analysis.scope.scalars else f"{text}: pl.Tensor"
        scope = self.analysis.scope
        extents = [str(dims.get(s, scope.host.get(s, s))) if isinstance(s, str) else str(s) for s in p.sizes]
        return f"{text}: pl.Tensor[[{', '.join(extents)}], pl.{p.dtype}]"


def identity(op: str, dtype: Any) -> str:
    """What a reduction starts from."""
    if op in ("sum", "prod"):
        return f"pl.{dtype.name}({0 if op == 'sum' else 1})"
    if dtype.is_float:
        return f'pl.{dtype.name}({"-" if op == "max" else ""}float("inf"))'
    if dtype.kind == "b":
        return f"pl.bool_({op == 'min'})"
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
    high = low + (1 << dtype.bits) - 1
    return f"pl.{dtype.name}({low if op == 'max' else high})"


def combined(op: str, a: str, b: str) -> str:
    """One step of a reduction."""
    if op in ("sum", "prod"):
        return f"{a} {'+' if op == 'sum' else '*'} {b}"
    return f"pl.{'maximum' if op == 'max' else 'minimum'}({a}, {b})"


def lowered(analysis: Analysis, given: bool = False, checked: Checked | None = None, device: bool = False) -> Program:
    """The program of an analysed comprehension; `given`: the outputs are parameters; `checked`: it checks its sizes
    itself, by calls of what this makes of each `Check`; `device`: for a GPU, where all elements are computed in
    parallel loops and tiles have two axes at most."""
    return Kernel(analysis, given, checked, device).write()

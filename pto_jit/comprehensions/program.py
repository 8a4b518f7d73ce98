# SPDX-License-Identifier: MIT
"""A definition analysed: its statements in order, calls of others in their places, with ranges, types and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pto_jit import dtypes
from pto_jit.comprehensions import nodes
from pto_jit.comprehensions.forms import symbolic
from pto_jit.comprehensions.inference import Inferred, Precondition, infer
from pto_jit.comprehensions.nodes import CallStatement, Definition, Parameter, Read, Statement, names_in, walk
from pto_jit.comprehensions.spelling import spelled
from pto_jit.comprehensions.symbolic import ZERO, Expr, at_least_zero, constant, name
from pto_jit.comprehensions.typing import Scalar, Scope, Tensor, Typing, checked, common, width
from pto_jit.dtypes import DType
from pto_jit.errors import CompilationError, Loc, Note, ShapeError, TypeMismatchError
from pto_jit.slotted import field, frozen, mutable

_LARGEST = 20_000  # nodes of a statement, with names of expressions replaced


@frozen(eq=False)
class Memory:
    """Where a tensor lies: `base` tells arrays that may be parts of one another; `own`: nothing else lies there."""

    base: str
    own: bool


@mutable(eq=False)
class Analysis:
    """What is known of a definition without sizes.

    statements: in order, of called definitions too; tensors: by the name they are stored under; sizes: names of
    extents, with where each is read from; hosts: values of compile-time parameters that it was made for; memory: of
    tensors that may be one array, by name (a comprehension's own are all different).
    """

    definition: Definition
    scope: Scope
    statements: list[Inferred] = field(default_factory=list)
    typings: dict[int, Typing] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    preconditions: list[Precondition] = field(default_factory=list)
    hosts: Mapping[str, Any] = field(default_factory=dict)
    returned: list[str] = field(default_factory=list)
    memory: Mapping[str, Memory] = field(default_factory=dict)

    def typing(self, scope: Scope) -> Typing:
        return self.typings.setdefault(id(scope), Typing(scope))


def check_parts(definition: Definition) -> None:
    """Whether there is something to compute and to return.  Raises CompilationError (PTO-R063)."""
    scope = Scope(definition)
    for found, what, hint in (
        (definition.returns, "returns", "return the tensors that it makes"),
        (definition.body, "computes", "write a statement: `A(i) = B(i)`, or `A[i] = B[i]` in Python"),
    ):
        if not found:
            message = f"`{definition.name}` {what} nothing"
            raise scope.error(CompilationError, "PTO-R063", message, definition.loc, hint)


def analyse(definition: Definition, hosts: Mapping[str, Any] | None = None,
            memory: Mapping[str, Memory] | None = None) -> Analysis:  # fmt: skip
    """Check and infer a definition; `hosts`: values of its compile-time parameters; `memory`: of its tensors.

    Raises the errors of `docs/comprehensions.md`.
    """
    scope = Scope(definition)
    analysis = Analysis(definition, scope, hosts=dict(hosts or {}), memory=memory or {})
    _parameters(analysis, scope)
    _Body(analysis, scope, "").run()
    _results(analysis, scope)
    return analysis


def _parameters(analysis: Analysis, scope: Scope) -> None:
    definition = scope.definition
    returned = {r.name for r in definition.returns}
    names: dict[str, Parameter] = {}
    for p in definition.parameters:
        if p.name in names:
            raise _twice(scope, p.name, p.loc, names[p.name].loc)
        names[p.name] = p
    for p in definition.parameters:
        if p.dtype is None:
            scope.host[p.name] = analysis.hosts.get(p.name)
            continue
        if not p.sizes and p.name not in returned:
            scope.scalars[p.name] = Scalar(p.name, p.dtype)
            continue
        for size in p.sizes:
            if isinstance(size, str):
                if size in names and names[size].dtype is not None:
                    raise _twice(scope, size, p.loc, names[size].loc)
                if size in names:  # a compile-time parameter as a size
                    continue
                scope.sizes.setdefault(size, name(size))
        extents = tuple(_size(s, scope) for s in p.sizes)
        role = "inout" if p.name in returned else "input"
        tensor = Tensor(p.name, p.dtype, p.rank, role, extents, (ZERO,) * p.rank, p.loc)
        scope.tensors[p.name] = analysis.tensors[p.name] = tensor


def _size(size: str | int, scope: Scope) -> Expr:
    if isinstance(size, int):
        return constant(size)
    value = scope.host.get(size)
    return constant(value) if isinstance(value, int) else scope.sizes.setdefault(size, name(size))


def _twice(scope: Scope, text: str, loc: Loc, first: Loc) -> CompilationError:
    return scope.error(
        CompilationError, "PTO-R026",
        f"`{text}` is used for two things: sizes, tensors and scalars share one set of names",
        loc, "use another name", Note("the other one", first),
    )  # fmt: skip


def _results(analysis: Analysis, scope: Scope) -> None:
    seen: set[str] = set()
    for r in scope.definition.returns:
        tensor = scope.tensors.get(r.name)
        if tensor is None or tensor.extents is None:
            raise scope.error(
                CompilationError, "PTO-R025", f"`{r.name}` is returned, but no statement writes it", r.loc,
                f"write `{r.name}`, or remove it from the results",
            )  # fmt: skip
        if r.name in seen:
            raise _twice(scope, r.name, r.loc, r.loc)
        seen.add(r.name)
        analysis.returned.append(tensor.name)
        if r.sizes is None:
            continue
        if len(r.sizes) != tensor.rank:
            raise scope.error(
                ShapeError, "PTO-R043", f"`{r.name}` is declared with {len(r.sizes)} dimensions, but has {tensor.rank}",
                r.loc, "declare one size per index",
            )  # fmt: skip
        for axis, size in enumerate(r.sizes):
            if isinstance(size, str) and size not in scope.sizes and size not in scope.host:
                continue  # names the extent, and says nothing of it
            _equal(analysis, scope, tensor.extents[axis], _size(size, scope), f"{r.name}.{axis}", r.loc)


def _equal(analysis: Analysis, scope: Scope, found: Expr, wanted: Expr, access: str, loc: Loc) -> None:
    """Two extents that have to be equal: proven, or a precondition."""
    gap = found - wanted
    if gap.value == 0:
        return
    if gap.value is not None:
        raise scope.error(ShapeError, "PTO-R044", f"{access} is {found}, {wanted} is declared", loc, "make them equal")
    analysis.preconditions.append(
        Precondition("shape", f"{access}: {found} == {wanted}", access, loc, gap, True, str(wanted))
    )


class _Body:
    """Goes through the statements of one definition, or of one call of it."""

    def __init__(self, analysis: Analysis, scope: Scope, prefix: str) -> None:
        self.analysis, self.scope, self.prefix = analysis, scope, prefix
        self.typing = analysis.typing(scope)
        self.returned = {r.name: r for r in scope.definition.returns}

    def run(self) -> None:
        for s in self.scope.definition.body:
            if isinstance(s, CallStatement):
                self.call(s)
            else:
                self.statement(s)

    # -- calls ----------------------------------------------------------------------------------------------------

    def call(self, s: CallStatement) -> None:
        scope, callee = self.scope, s.definition
        if len(s.arguments) != len(callee.parameters) or len(s.targets) != len(callee.returns):
            raise scope.error(
                TypeMismatchError, "PTO-R045", f"`{callee.name}` takes {len(callee.parameters)} arguments and gives "
                f"{len(callee.returns)} results, found {len(s.arguments)} and {len(s.targets)}", s.loc,
                "give one name for each",
            )  # fmt: skip
        callee = _without_clashes(callee, {*self.analysis.scope.sizes, *self.analysis.scope.scalars})
        inner = Scope(callee)
        outer = {p.name for p in callee.parameters}
        for r in callee.returns:
            if r.name in outer:
                raise scope.error(
                    CompilationError, "PTO-R047",
                    f"`{callee.name}` writes its argument `{r.name}`, so it cannot be called "
                    "here", s.loc, "call a definition that makes its results",
                )  # fmt: skip
        for p, argument in zip(callee.parameters, s.arguments, strict=True):
            self.bind(s, inner, p, argument)
        for target in s.targets:
            self.check_target(target, s.loc, None)
            if target in scope.tensors:
                raise scope.error(
                    CompilationError, "PTO-R046", f"`{target}` is written already: a call makes new tensors", s.loc,
                    "use another name",
                )  # fmt: skip
        body = _Body(self.analysis, inner, f"{self.prefix}{callee.name}{len(self.analysis.statements)}_")
        body.named = {r.name: t for r, t in zip(callee.returns, s.targets, strict=True)}
        body.run()
        for r, target in zip(callee.returns, s.targets, strict=True):
            made = inner.tensors.get(r.name)
            if made is None or made.extents is None:
                raise scope.error(
                    CompilationError, "PTO-R025", f"`{r.name}` is returned, but no statement writes it", r.loc,
                    f"write `{r.name}`, or remove it from the results",
                )  # fmt: skip
            made.role = "output" if target in self.returned and not self.prefix else made.role
            # As the result of a call it starts at 0.
            scope.tensors[target] = Tensor(made.name, made.dtype, made.rank, made.role, made.extents,
                                           (ZERO,) * made.rank, s.loc, made.written)  # fmt: skip

    named: Mapping[str, str] = {}  # results of a called definition: what its caller calls them

    def bind(self, s: CallStatement, inner: Scope, p: Parameter, argument: str) -> None:
        scope = self.scope
        tensor = scope.tensors.get(argument)
        if tensor is None or tensor.extents is None:
            scalar = scope.scalars.get(argument)
            if scalar is None or p.sizes or p.dtype != scalar.dtype:
                raise scope.error(
                    CompilationError, "PTO-R015", f"`{argument}` is used here, but nothing defines such a "
                    f"{'tensor' if p.sizes else f'number of {p.dtype}'}", s.loc, "make it a parameter",
                )  # fmt: skip
            inner.scalars[p.name] = scalar
            return
        if tensor.rank != p.rank or tensor.dtype != p.dtype:
            raise scope.error(
                TypeMismatchError, "PTO-R048",
                f"`{s.definition.name}` takes {p.dtype} of rank {p.rank} for `{p.name}`, "
                f"`{argument}` is {tensor.dtype} of rank {tensor.rank}", s.loc, "pass a tensor of that kind",
            )  # fmt: skip
        for axis, size in enumerate(p.sizes):
            extent = tensor.extents[axis]
            if isinstance(size, str) and size not in inner.sizes:
                inner.sizes[size] = extent
            else:
                wanted = inner.sizes[size] if isinstance(size, str) else constant(size)
                _equal(self.analysis, scope, extent, wanted, f"{argument}.{axis}", s.loc)
        inner.tensors[p.name] = Tensor(tensor.name, tensor.dtype, tensor.rank, "input", tensor.extents,
                                       (ZERO,) * tensor.rank, p.loc)  # fmt: skip

    # -- statements -----------------------------------------------------------------------------------------------

    def statement(self, s: Statement) -> None:
        scope, typing = self.scope, self.typing
        self.check_size(s)
        floor = scope.definition.floor
        value = checked(s.value, typing, floor)
        exists = tuple(checked(e, typing, floor) for e in s.exists)
        ranges = tuple(
            nodes.Range(r.name, checked(r.low, typing, floor), checked(r.high, typing, floor), r.loc) for r in s.ranges
        )
        s = Statement(s.target, s.indices, s.op, s.fresh, value, ranges, exists, s.loc, s.target_loc)
        self.check_target(s.target, s.target_loc, s)
        self.check_indices(s)
        inferred = infer(s, scope, typing)
        self.write(s, inferred)
        self.analysis.statements.append(inferred)
        self.analysis.preconditions += inferred.preconditions

    def check_size(self, s: Statement) -> None:
        counts: dict[int, int] = {}

        def count(e: nodes.Expression) -> int:
            if id(e) not in counts:
                counts[id(e)] = 1 + sum(map(count, nodes.children(e)))
            return counts[id(e)]

        ends = [e for r in s.ranges for e in (r.low, r.high)]
        if sum(count(e) for e in (s.value, *s.exists, *ends)) > _LARGEST:
            raise self.scope.error(
                CompilationError, "PTO-R049", f"the statement of `{s.target}` has more than {_LARGEST} parts", s.loc,
                "compute what is used many times in a statement of its own",
            )  # fmt: skip

    def check_target(self, target: str, loc: Loc, s: Statement | None) -> None:
        scope = self.scope
        tensor = scope.tensors.get(target)
        if target in scope.scalars or target in scope.host or (tensor is not None and tensor.role == "input"):
            raise scope.error(
                CompilationError, "PTO-R014", f"`{target}` is an input: inputs are immutable", loc,
                f"return `{target}` to write it in place, or write another tensor",
            )  # fmt: skip
        if target in scope.sizes:
            raise _twice(scope, target, loc, loc)
        if s is not None and tensor is None and s.op is not None and not s.fresh:
            raise scope.error(
                CompilationError, "PTO-R019", f"`{target}` is accumulated into, but nothing has initialised it", loc,
                "start anew: `+=!` (`= pl.sum(...)` in Python), or make it a parameter that is returned",
            )  # fmt: skip

    def check_indices(self, s: Statement) -> None:
        scope = self.scope
        tensor = scope.tensors.get(s.target)
        if tensor is not None and tensor.rank != len(s.indices):
            raise scope.error(
                ShapeError, "PTO-R016", f"`{s.target}` has {tensor.rank} dimension{'s' * (tensor.rank != 1)}, found "
                f"{len(s.indices)}", s.target_loc, "give one subscript for each dimension",
            )  # fmt: skip
        for k, index in enumerate(s.indices):
            if not scope.is_index(index):
                raise scope.error(
                    CompilationError, "PTO-R035", f"`{index}` is a size or a parameter, not an index", s.target_loc,
                    "subscripts on the left are indices: plain names of their own",
                )  # fmt: skip
            if index in s.indices[:k]:
                raise scope.error(
                    CompilationError, "PTO-R034", f"`{index}` stands twice on the left", s.target_loc,
                    "give each dimension an index of its own",
                )  # fmt: skip

    def write(self, s: Statement, inferred: Inferred) -> None:
        """Define the target, or check that what is written lies in it."""
        scope = self.scope
        kind = self.typing.of(s.value)
        self.check_own(s)
        lows = tuple(inferred.ranges[i][0] for i in s.indices)
        extents = tuple(inferred.ranges[i][1] - inferred.ranges[i][0] for i in s.indices)
        tensor = scope.tensors.get(s.target)
        if tensor is None:
            outer = self.named.get(s.target)
            stored = f"{self.prefix}{s.target}" if self.prefix and not outer else outer or s.target
            role = "output" if s.target in self.returned and not self.prefix else "local"
            declared = self.returned[s.target].dtype if s.target in self.returned else None
            counted = kind == dtypes.bool_ and s.op in ("sum", "prod")
            dtype = declared or (dtypes.i32 if counted else width(kind))
            self.check_narrow(s, kind, dtype, "declared")
            tensor = Tensor(stored, dtype, len(s.indices), role, extents, lows, s.target_loc, s)
            scope.tensors[s.target] = self.analysis.tensors[stored] = tensor
            return
        assert tensor.dtype is not None
        self.check_narrow(s, kind, tensor.dtype, "has")
        tensor.written = tensor.written or s
        for axis, index in enumerate(s.indices):
            self.contained(s, tensor, axis, index, inferred)

    def check_narrow(self, s: Statement, kind: Any, dtype: DType, verb: str) -> None:
        found = width(kind)
        literal = isinstance(kind, str) and (dtype.is_float or kind == "int")
        if found == dtype or literal or common(found, dtype) == dtype:
            return
        raise self.scope.error(
            TypeMismatchError, "PTO-R020",
            f"`{s.target}` {verb} {dtype}, and {found} does not become the narrower type "
            "without an explicit cast", s.value.loc, f"convert the value: `{dtype}(...)`",
        )  # fmt: skip

    def contained(self, s: Statement, tensor: Tensor, axis: int, index: str, inferred: Inferred) -> None:
        """A later statement writes what the first one does, or a part of it."""
        assert tensor.extents is not None
        low, high = inferred.ranges[index]
        first, extent = tensor.lows[axis], tensor.extents[axis]
        for gap in (low - first, first + extent - high):
            if at_least_zero(gap):
                continue
            text = f"`{index}` in {low}:{high} of `{s.target}` lies in {first}:{first + extent}"
            if gap.value is not None or at_least_zero(-gap - 1):
                raise self.scope.error(
                    ShapeError, "PTO-R027", f"the range {low}:{high} of `{index}` is not contained in the bounds of "
                    f"`{s.target}`, {first}:{first + extent}", s.target_loc,
                    f"narrow it: `where {index} in {first}:{first + extent}`",
                )  # fmt: skip
            self.analysis.preconditions.append(
                Precondition("shape", text, f"{s.target}({', '.join(s.indices)})", s.target_loc, gap, size=str(extent))
            )

    def check_own(self, s: Statement) -> None:
        """A statement reads of its target only the element that it writes, and not what it reduces into."""
        scope = self.scope
        for e in (e for part in (s.value,) for e in walk(part)):
            if not isinstance(e, Read) or e.tensor != s.target:
                continue
            plain = tuple(x.name if isinstance(x, nodes.Name) else None for x in e.subscripts) == s.indices
            reduces = s.op is not None and any(
                n.name not in s.indices and scope.is_index(n.name) for n in names_in(s.value)
            )
            if not plain or reduces or (s.op is not None and s.fresh):
                raise scope.error(
                    CompilationError, "PTO-R029", f"`{spelled(e)}` is read while `{s.target}` is written: the order of "
                    "the elements is not defined", e.loc, "write another tensor",
                )  # fmt: skip


def _without_clashes(callee: Definition, taken: set[str]) -> Definition:
    """The definition with other names for indices that are sizes of the caller."""
    own = {p.name for p in callee.parameters} | {s for p in callee.parameters for s in p.sizes if isinstance(s, str)}
    statements = [s for s in callee.body if isinstance(s, Statement)]
    found = {n.name for s in statements for e in (s.value, *s.exists) for n in names_in(e)}
    found |= {i for s in statements for i in (*s.indices, *(r.name for r in s.ranges))}
    clashing = (found & taken) - own
    if not clashing:
        return callee

    def other(text: str) -> str:
        return f"{text}_" if text in clashing else text

    def change(e: nodes.Expression) -> nodes.Expression:
        return nodes.Name(other(e.name), e.loc) if isinstance(e, nodes.Name) else nodes.rebuilt(e, change)

    body = tuple(
        s if isinstance(s, CallStatement) else Statement(
            s.target, tuple(map(other, s.indices)), s.op, s.fresh, change(s.value),
            tuple(nodes.Range(other(r.name), change(r.low), change(r.high), r.loc) for r in s.ranges),
            tuple(map(change, s.exists)), s.loc, s.target_loc,
        )
        for s in callee.body
    )  # fmt: skip
    d = callee
    return Definition(d.name, d.parameters, d.returns, body, d.floor, d.doc, d.loc, d.origin)


def bind_scalars(analysis: Analysis) -> frozenset[str]:
    """Integer parameters that ranges or subscripts use."""
    used: set[str] = set()
    for i in analysis.statements:
        for low, high in i.ranges.values():
            used |= low.names() | high.names()
        for e in walk(i.statement.value):
            if isinstance(e, Read):
                for x in e.subscripts:
                    used |= symbolic(x, i.scope).names()
    return frozenset(used & analysis.scope.scalars.keys())

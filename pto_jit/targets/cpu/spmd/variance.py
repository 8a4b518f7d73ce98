# SPDX-License-Identifier: MIT
"""What all lanes have in common, and what it costs to write a form lane by lane.

A value is *uniform* when all lanes that are active where it is computed have the same.  That is a fixed point: start
with everything uniform but what differs by definition, and follow the operations, the assignments that only some of
the lanes make, and the loops that lanes leave at different times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.dtypes import DType, i64
from pto_jit.ir.nodes import Const, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.lower.packs import PACK
from pto_jit.lower.scans import BEFORE, PREFIX
from pto_jit.slotted import field, mutable
from pto_jit.targets.cpu.spmd.form import Branch, Compute, Form, Leave, Node, Path, Repeat, inner_path
from pto_jit.targets.vecmath import RECIPES

Step = int | None
"""By how much an index grows from lane to lane: 0 uniform, None neither known nor constant."""

MATH = frozenset(RECIPES) - {"sqrt", "reciprocal"} | {"pow", "fmod", "gelu", "rand_at", "randn_at"}
INTEGER_DIVISIONS = frozenset(["floordiv", "mod", "fmod"])
DIVISIONS = INTEGER_DIVISIONS | {"pow"}

_INSIDE = 8  # how often a loop inside is taken to run
_MATH, _PARTED, _CARRIED = 9, 1, 3  # cycles that a lane saves: exp and the like, branches, waiting for the last result
_COLLECTED, _SCATTERED = 2, 3  # cycles that it costs a lane to read and to write an element apart
_SINGLE = frozenset("sin cos tan fmod".split())  # what the loop vectoriser does not take


@mutable
class Traits:
    """What the choice between this and scalar code depends on."""

    control: bool = False
    """Lanes take different ways."""
    repeats: bool = False
    """There are loops."""
    math: bool = False
    unit: int = 0
    """Accesses to consecutive elements, and to any others (`apart`; in loops inside: `apart_inside`)."""
    apart: int = 0
    apart_inside: int = 0
    floats: int = 0
    """Bytes of the widest float and of the widest integer in registers and in memory."""
    integers: int = 0
    operations: int = 0
    operations_inside: int = 0
    """Operations, those in loops inside, and whether lanes part in one of these that they leave at different times."""
    branches_inside: bool = False
    gain_inside: int = 0
    """In loops inside: what lanes save and what their accesses apart cost, in cycles for a lane."""
    loss_inside: int = 0
    waits: bool = False
    """A loop inside carries a float, which no compiler may sum in another order."""
    divisions: int = 0
    """In loops that lanes leave at different times: divisions of integers, which no processor does in vectors, and of
    integers of 64 bits by constants (`divisions_wide`), for which few have the products."""
    divisions_wide: int = 0


@mutable
class _Frame:
    """A loop around the place of the walk: how deep its inside is, and whether lanes have left the iteration."""

    depth: int
    loop: Repeat | None
    continued: bool = False


@mutable
class Variance:
    """Marks the nodes of a form; `varying` are the names that are not uniform."""

    form: Form
    varying: set[str]
    steps: dict[str, Step] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    """Variables that lanes keep from one group to the next: a lane without an iteration must not change them."""
    along: frozenset[str] = frozenset()
    """The variables of loops inside that the loop vectoriser takes where a single iteration is written."""
    squares: frozenset[int] = frozenset()
    """Accesses (by `id`) to rows that are transposed (`squares`)."""
    root_leaves: bool = False
    _narrow: list[bool] = field(default_factory=list)
    _frames: list[_Frame] = field(default_factory=list)

    def settle(self) -> Variance:
        """Follow everything until nothing changes."""
        while True:
            before = self._state()
            self._narrow, self._frames = [], [_Frame(0, None)]
            self._block(self.form.nodes, ())
            if self._state() == before:
                return self

    def _state(self) -> object:
        return len(self.varying), [*_flags(self.form.nodes)], self.root_leaves

    def uniform(self, operand: Operand) -> bool:
        return isinstance(operand, Const) or operand.name not in self.varying

    # -- the walk ---------------------------------------------------------------------------------------------------

    def _masked(self, name: str) -> bool:
        """Whether lanes that are not active here will read this variable."""
        if name in self.kept:
            return True
        depth = len(self.form.home[name])
        return any(self._narrow[depth:]) or any(f.continued and f.depth >= depth for f in self._frames)

    def _assign(self, name: str, uniform: bool) -> bool:
        masked = name in self.form.slots and self._masked(name)
        if masked or not uniform:
            self.varying.add(name)
        return masked

    def _block(self, nodes: list[Node], path: Path) -> bool:
        """Gives whether some lanes may have left the iteration before the others."""
        leaves = False
        for node in nodes:
            match node:
                case Compute():
                    self._compute(node)
                case Branch():
                    leaves |= self._branch(node, path)
                case Repeat():
                    self._repeat(node, path)
                case Leave():
                    leaves |= self._leave(node)
        return leaves

    def _compute(self, node: Compute) -> None:
        op = node.op
        if op.op in ("dim", PREFIX, BEFORE):
            uniform = op.op == "dim"
        elif op.op in ("getelem", "setelem"):
            uniform = all(self.uniform(a) for a in op.args if isinstance(a.type, ScalarType))
        else:
            uniform = all(self.uniform(a) for a in op.args)
        for r in op.results:
            node.masked |= self._assign(r.name, uniform)

    def _branch(self, node: Branch, path: Path) -> bool:
        node.varying |= not self.uniform(node.cond)
        leaves = False
        for side, block in enumerate((node.then, node.orelse)):
            self._narrow.append(node.varying)
            leaves |= self._block(block, inner_path(path, node, side))
            self._narrow.pop()
        node.leaves |= leaves
        return leaves

    def _leave(self, node: Leave) -> bool:
        frame = self._frames[-1]
        node.varying |= any(self._narrow[frame.depth :]) or frame.continued
        if not node.varying:
            return False
        if node.again:
            frame.continued = True
        if node.loop is None:
            self.root_leaves = True
        else:
            node.loop.leaves = True
            node.loop.varying |= not node.again
        return True

    def _repeat(self, node: Repeat, path: Path) -> None:
        node.masked = [node.masked[k] if node.masked else False for k in range(len(node.captures))]
        outside = [self._masked(outer.name) for outer, _ in node.captures]
        if node.bounds is not None:
            start, stop, _ = node.bounds
            node.varying |= not (self.uniform(start) and self.uniform(stop))
            assert node.counter is not None
            if not self.uniform(start):
                self.varying.add(node.counter.name)
        inside = inner_path(path, node, 2)
        for mine, outer in node.entries:
            if not self.uniform(outer):
                self.varying.add(mine.name)
        self._narrow.append(node.varying)
        self._frames.append(_Frame(len(self._narrow), node))
        self._block(node.before, inside)
        node.varying |= not all(self.uniform(c) for c in node.conds)
        self._block(node.body, inside)
        self._frames.pop()
        self._narrow.pop()
        for k, (outer, mine) in enumerate(node.captures):
            node.masked[k] |= node.varying or outside[k]
            if node.masked[k] or not self.uniform(mine):
                self.varying.add(outer.name)

    # -- costs --------------------------------------------------------------------------------------------------------

    def traits(self) -> Traits:
        """What the form consists of."""
        out = Traits()
        self._measure(self.form.nodes, out, 0)
        return out

    def _measure(
        self, nodes: list[Node], out: Traits, depth: int, *, along: bool = False, ragged: bool = False
    ) -> None:
        for node in nodes:
            match node:
                case Compute():
                    self._measure_op(node.op, out, depth, along=along)
                    if ragged:
                        self._measure_division(node.op, out)
                    if node.op.op == "select" and not self.uniform(node.op.args[0]):  # it was a branch
                        out.branches_inside |= ragged
                        out.gain_inside += _PARTED * _often(depth) * (not along)
                case Branch():
                    out.control |= node.varying
                    out.branches_inside |= node.varying and ragged
                    out.gain_inside += _PARTED * _often(depth) * (node.varying and not along)
                    self._measure(node.then, out, depth, along=along, ragged=ragged)
                    self._measure(node.orelse, out, depth, along=along, ragged=ragged)
                case Repeat():
                    out.repeats = True
                    out.control |= node.varying or node.leaves
                    out.gain_inside += _CARRIED * _often(depth + 1) * bool(node.entries)
                    out.waits |= any(_is_float(mine) for mine, _ in node.entries)
                    inside = node.counter is not None and node.counter.name in self.along
                    parted = ragged or node.varying
                    self._measure(node.before, out, depth + 1, along=inside, ragged=parted)
                    self._measure(node.body, out, depth + 1, along=inside, ragged=parted)
                case Leave():
                    out.control |= node.varying

    def _measure_op(self, op: Op, out: Traits, depth: int, *, along: bool) -> None:
        if op.op == PACK:
            tensor = op.args[1].type
            assert isinstance(tensor, TensorType)
            _widen(out, tensor.dtype)
            out.unit += 1
        elif op.op in ("getelem", "setelem"):
            at = 1 if op.op == "getelem" else 2
            tensor = op.args[at - 1].type
            assert isinstance(tensor, TensorType)
            step = access_step(tensor, op.args[at:], self.step)
            if op.op == "setelem" or step != 0:
                _widen(out, tensor.dtype)
                apart = step not in (0, 1) and id(op) not in self.squares
                out.unit += step == 1
                out.apart += apart
                out.apart_inside += apart and depth > 0
                if apart:
                    out.loss_inside += (_COLLECTED if op.op == "getelem" else _SCATTERED) * _often(depth)
        elif op.op != "dim" and not all(self.uniform(a) for a in op.args):
            out.operations += 1
            out.operations_inside += depth > 0
            out.math |= op.op in MATH
            out.gain_inside += _MATH * _often(depth) * (op.op in MATH and not (along and op.op not in _SINGLE))
        for r in op.results:
            assert isinstance(r.type, ScalarType)
            if r.name not in self.varying:
                continue
            self.steps[r.name] = self._step(op)
            if r.type.dtype.kind == "f" or op.op == PREFIX:
                _widen(out, r.type.dtype)

    def _measure_division(self, op: Op, out: Traits) -> None:
        result = op.results[0].type if op.results else None
        if op.op not in INTEGER_DIVISIONS or not isinstance(result, ScalarType) or result.dtype.kind not in "iu":
            return
        by = op.args[1]
        if not isinstance(by, Const):
            out.divisions += not all(map(self.uniform, op.args))
        elif result.dtype.bits == 64 and int(by.value) & (int(by.value) - 1):
            out.divisions_wide += not self.uniform(op.args[0])

    def step(self, operand: Operand) -> Step:
        if self.uniform(operand):
            return 0
        assert isinstance(operand, Var)
        return self.steps.get(operand.name)

    def _step(self, op: Op) -> Step:
        return None if op.results[0].name in self.form.slots else result_step(op, self.step)


def result_step(op: Op, step: Callable[[Operand], Step]) -> Step:
    """By how much the result of an operation moves, where its operands move by `step`."""
    if op.results[0].type != ScalarType(i64) or (x := step(op.args[0])) is None:
        return None
    if op.op == "copy":
        return x
    if len(op.args) != 2 or (y := step(op.args[1])) is None:
        return None
    match op.op:
        case "add":
            return x + y
        case "sub":
            return x - y
        case "mul":
            if x == y == 0:
                return 0
            for factor, other in ((op.args[0], y), (op.args[1], x)):
                if isinstance(factor, Const):
                    return int(factor.value) * other
    return None


def access_step(tensor: TensorType, indices: Sequence[Operand], step: Callable[[Operand], Step]) -> Step:
    """By how many elements an access moves, where its indices move by `step` and as far as that is known."""
    steps = [step(i) for i in indices]
    if all(s == 0 for s in steps):
        return 0
    if tensor.layout == "strided" or any(s != 0 for s in steps[:-1]):
        return None
    return steps[-1]


def _is_float(var: Var) -> bool:
    return isinstance(var.type, ScalarType) and var.type.dtype.kind == "f"


def _often(depth: int) -> int:
    """How often what stands in so many loops inside is taken to run; 0 outside of them."""
    return _INSIDE**depth if depth else 0


def _flags(nodes: list[Node]) -> list[object]:
    out: list[object] = []
    for node in nodes:
        match node:
            case Compute():
                out.append(node.masked)
            case Branch():
                out += [node.varying, node.leaves, *_flags(node.then), *_flags(node.orelse)]
            case Repeat():
                out += [node.varying, node.leaves, *node.masked, *_flags(node.before), *_flags(node.body)]
            case Leave():
                out.append(node.varying)
    return out


def _widen(out: Traits, dtype: DType) -> None:
    if dtype.kind == "f":
        out.floats = max(out.floats, 4, dtype.bytes)
    else:
        out.integers = max(out.integers, dtype.bytes)

# SPDX-License-Identifier: MIT
"""The main loop of a stage in vectors of 16 bytes, a few of them at a time; what is left is done one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import BY_NAME, DType
from pto_jit.ir.nodes import Const
from pto_jit.targets.c.values import CSlot, CValue, lift, memory_ctype, register_ctype
from pto_jit.targets.cpu.constants import I64, register_type
from pto_jit.targets.cpu.folds import reduce_identity
from pto_jit.targets.loops.form import (
    Accumulate,
    Arg,
    Compute,
    Fold,
    Kept,
    Place,
    Places,
    Position,
    Read,
    RowBuffer,
    Segment,
    Write,
)
from pto_jit.targets.loops.schedule import arguments
from pto_jit.targets.neon import products, vectors
from pto_jit.targets.neon.recipes import Names, NeonRecipes
from pto_jit.targets.source.recipes import FloatName
from pto_jit.targets.source.text import files_in, text_of
from pto_jit.targets.vecmath import RECIPES

if TYPE_CHECKING:
    from pto_jit.targets.c.nest import CNest

_OF_CTYPE = {register_ctype(d): d for d in BY_NAME.values() if not (d.kind == "f" and d.bits == 16)}
"""The dtype of a C expression; of 16-bit floats it is f32."""
_LIGHT = 6  # operations up to which four vectors are done at a time, not two


class Neon:
    """What the c target's writer asks of vector instructions."""

    headers = ('#include "pto_neon.h"',)
    include = Path(__file__).parent / "include"
    name = "neon"
    compiler = "aarch64-linux-gnu-gcc"
    machine = "-march=armv8.2-a"

    def files(self) -> dict[str, str]:
        """The headers by name."""
        return {p.name: text_of(p) for p in files_in(self.include, "*.h")}

    def product(self, a: DType, b: DType, c: DType) -> products.Inner | None:
        """The inner loop of products of elements a and b that sum in c; None: the c target's serves."""
        return products.inner(a, b, c)

    def stage(self, nest: CNest, steps: Segment) -> tuple[str, dict[Fold, list[CSlot]]] | None:
        """Write the main loop of a stage; the index where the rest begins ("" where nothing is left), and the
        accumulators so far.

        None: the stage has no vector form.
        """
        return VectorStage(nest, steps).write()


class VectorStage:
    """One stage in vectors."""

    def __init__(self, nest: CNest, steps: Segment) -> None:
        self.n = nest
        self.code = nest.code
        self.steps = steps
        self.inner = {s.dst for s in steps if isinstance(s, (Read, Compute, Position))}
        bits = vectors.common_width(self._dtypes())
        self.v = vectors.Vectors(bits or 32, NeonRecipes(nest.w.module.recipes))
        self.splats: dict[Any, str] = {}
        known = nest.count if isinstance(nest.count, int) else None
        heavy = sum(isinstance(s, Compute) and s.op in RECIPES for s in steps)
        computes = sum(isinstance(s, Compute) for s in steps)
        self.unroll = 4 if computes <= _LIGHT and not heavy else 2
        while known is not None and self.unroll > 1 and self._better_half(known, self.v.lanes * self.unroll):
            self.unroll //= 2
        self.possible = bits is not None and (known is None or known >= self.v.lanes)

    @staticmethod
    def _better_half(count: int, width: int) -> bool:
        """Whether half as many vectors at a time are better for so many elements: all are too many, or leave a rest
        that half of them do not."""
        return count < width or (count % width != 0 and count % (width // 2) == 0)

    # -- whether --------------------------------------------------------------------------------------------------

    def _dtypes(self) -> Iterator[DType]:
        """The dtypes of everything in the stage."""
        for step in self.steps:
            for name in ("dtype", "operand"):
                found = getattr(step, name, None)
                if found is not None:
                    yield found
            for arg in arguments(step):
                if not (isinstance(arg, int) and arg in self.inner):
                    yield self._dtype(arg)

    def _fits(self) -> bool:
        """Whether every step has a vector form."""
        if not self.possible or not any(isinstance(s, (Compute, Fold, Write, Accumulate)) for s in self.steps):
            return False
        for step in self.steps:
            match step:
                case Read() | Write() | Accumulate():
                    place = Kept(step.name) if isinstance(step, Accumulate) else step.place
                    if not self.v.in_memory(step.dtype) or not self._dense(place, step.axes, step.dtype):
                        return False
                    if isinstance(step, Accumulate) and self.v.fold(step.op, step.dtype, "x", "y") is None:
                        return False
                case Position():
                    if step.axis != self.n.inner or self.v.indices(step.dtype, "0") is None:
                        return False
                case Compute():
                    form, _ = _form_of(
                        self.v.bits, step.op, len(step.args), step.operand.name, step.attrs, step.dtype.name
                    )
                    if form is None:
                        return False
                case Fold():
                    if self.v.reduced(step.op, step.operand, "x") is None or step.operand != step.dtype:
                        return False
                    if self.v.fold(step.op, step.operand, "x", "y") is None:
                        return False
        return True

    def _dense(self, place: Place, axes: Places, dtype: DType) -> bool:
        """Whether neighbours along the inner axis are neighbours in memory."""
        if isinstance(place, RowBuffer):
            return True
        if self.n.inner not in axes:
            return False
        stride = self.n.inputs.memory[place].strides[axes.index(self.n.inner)]
        return isinstance(stride, int) and stride == dtype.bytes

    def _dtype(self, arg: Arg) -> DType:
        """The dtype of an operand that is the same in all lanes."""
        if isinstance(arg, Const):
            return arg.type.dtype
        if isinstance(arg, int):
            return _OF_CTYPE[self.n.values[arg].ctype]
        return arg.type.dtype  # pyright: ignore[reportAttributeAccessIssue]

    # -- writing --------------------------------------------------------------------------------------------------

    def write(self) -> tuple[str, dict[Fold, list[CSlot]]] | None:
        if not self._fits():
            return None
        code = self.code
        self._prepare()
        folds = {s: self._accumulators(s) for s in self.steps if isinstance(s, Fold)}
        count = self.n.count if isinstance(self.n.count, int) else code.named(lift(self.n.count))
        self.n.count = count
        width = self.v.lanes * self.unroll
        rest = not isinstance(count, int) or count % width != 0
        if rest:
            j = code.variable("j", "int64_t", "0", here=True).variable
            # GCC warns of `j + width <= n`, from which it does not see how far the loop over the rest can go
            whole = count // width * width if isinstance(count, int) else f"{lift(count).text} / {width} * {width}"
            head = f"for (; {j} < {whole}; {j} += {width})"
        else:
            j = code.names.fresh("j")
            code.declared[j] = "int64_t"
            head = f"for (int64_t {j} = 0; {j} < {count}; {j} += {width})"
        with code.braces(head):
            envs: list[dict[Any, str]] = [dict(self.splats) for _ in range(self.unroll)]
            at = [CValue(I64, poly={(j,): 1, **({(): self.v.lanes * u} if u else {})}) for u in range(self.unroll)]
            for step in self.steps:  # the same step of all vectors side by side: they do not wait for each other
                self._step(step, envs, at, folds)
        return j if rest else "", {fold: self._joined(fold, names) for fold, names in folds.items()}

    def _prepare(self) -> None:
        """What is the same in all lanes, before the loop."""
        for step in self.steps:
            for arg in arguments(step):
                if (isinstance(arg, int) and arg in self.inner) or arg in self.splats:
                    continue
                dtype = self._dtype(arg)
                scalar = self.n.scalar(arg)
                text = self.v.splat(dtype, scalar.text)
                wish = f"{scalar.name}_{self.v.lanes}" if scalar.name else "c"
                self.splats[arg] = self._let(wish, self.v.type(dtype), text)

    def _let(self, wish: str, ctype: str, text: str, kind: str = "pure") -> str:
        return self.code.declare(wish, ctype, text, kind=kind)

    def _accumulators(self, fold: Fold) -> list[str]:
        ctype = self.v.type(fold.operand)
        first = lift(reduce_identity(fold.op, fold.operand, register_type(fold.operand))).text
        start = self.v.splat(fold.operand, first)
        return [self.code.variable(f"{fold.op}_{u}", ctype, start, here=True).variable for u in range(self.unroll)]

    def _step(self, step: Any, envs: list[dict[Any, str]], at: list[CValue], folds: dict[Fold, list[str]]) -> None:
        """A step of all vectors; `envs`: of each of them, the names of what is known; `at`: where they begin."""
        code = self.code
        match step:
            case Read():
                ctype = self.v.type(step.dtype)
                for env, place in zip(envs, self._addresses(step.place, step.axes, step.dtype, at), strict=True):
                    env[step.dst] = self._let("v", ctype, self.v.load(step.dtype, place), "read")
            case Position():
                ctype = self.v.type(step.dtype)
                for env, j in zip(envs, at, strict=True):
                    text = self.v.indices(step.dtype, j.text)
                    assert text is not None
                    env[step.dst] = self._let("at", ctype, text, "read")
            case Compute():
                ctype, form = self.v.type(step.dtype), self._form(step)
                assert form is not None
                for env in envs:
                    env[step.dst] = self._let(step.op, ctype, form.format(*[env[a] for a in step.args]))
            case Fold():
                for env, name in zip(envs, folds[step], strict=True):
                    text = self.v.fold(step.op, step.operand, name, env[step.arg])
                    assert text is not None
                    code.line(f"{name} = {text};")
            case Write():
                for env, place in zip(envs, self._addresses(step.place, step.axes, step.dtype, at), strict=True):
                    code.line(f"{self.v.store(step.dtype, place, env[step.arg])};")
            case Accumulate():
                places = self._addresses(Kept(step.name), step.axes, step.dtype, at)
                for env, place in zip(envs, places, strict=True):
                    out = self.v.fold(step.op, step.dtype, self.v.load(step.dtype, place), env[step.arg])
                    assert out is not None
                    code.line(f"{self.v.store(step.dtype, place, out)};")

    def _form(self, step: Compute) -> str | None:
        """An operation as an expression with holes for its operands; the functions that it calls are written."""
        form, calls = _form_of(self.v.bits, step.op, len(step.args), step.operand.name, step.attrs, step.dtype.name)
        for name, dtype in calls if form is not None else ():
            self.v.recipes.call(name, ("",), dtype)
        return form

    def _addresses(self, place: Place, axes: Places, dtype: DType, at: list[CValue]) -> list[str]:
        """Where the vectors that begin at these elements of the row lie."""
        row, stride = self.n.row_of(place, axes)
        element = memory_ctype(dtype)
        found = [self.n._typed(self.n.along(row, stride, j), dtype) for j in at]
        return [p.text if p.element == element else f"({element} *)({p.text})" for p in found]

    def _joined(self, fold: Fold, names: list[str]) -> list[CSlot]:
        """The accumulators of the main loop as one number, which the loop over the rest goes on from."""
        while len(names) > 1:
            pairs = zip(names[::2], names[1::2], strict=True)
            names = [self.v.fold(fold.op, fold.operand, a, b) or "" for a, b in pairs]
        first = self.v.reduced(fold.op, fold.operand, names[0])
        assert first is not None
        return [self.code.variable(fold.op, register_ctype(fold.operand), first, here=True)]


class _Called(Names):
    """Names of vector functions, and which were asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, FloatName]] = []

    def call(self, name: str, arguments: Sequence[str], dtype: FloatName) -> str:
        self.calls.append((name, dtype))
        return super().call(name, arguments, dtype)


@lru_cache(1024)  # an expression depends on these alone, and programs have few different ones
def _form_of(
    bits: int, op: str, count: int, operand: str, attrs: tuple[tuple[str, Any], ...], dtype: str
) -> tuple[str | None, tuple[tuple[str, FloatName], ...]]:
    """`Vectors.apply` with holes for `count` operands, and the vector functions that it calls."""
    called = _Called()
    holes = [f"{{{k}}}" for k in range(count)]
    form = vectors.Vectors(bits, called).apply(op, holes, BY_NAME[operand], dict(attrs), BY_NAME[dtype])
    return form, tuple(called.calls)

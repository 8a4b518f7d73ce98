# SPDX-License-Identifier: MIT
"""The main loop of a stage in vectors of four lanes, a few of them at a time; what is left is done one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import DType
from pto_jit.ir.nodes import Const
from pto_jit.targets.c.values import CPointer, CSlot, CValue, lift, memory_ctype, register_ctype
from pto_jit.targets.cpu.code import I64, register_type
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
from pto_jit.targets.neon.recipes import NeonRecipes
from pto_jit.targets.vecmath import RECIPES

if TYPE_CHECKING:
    from pto_jit.targets.c.nest import CNest

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
        return {p.name: p.read_text(encoding="utf-8") for p in sorted(self.include.glob("*.h"))}

    def product(self, dtype: DType) -> products.Inner | None:
        """The inner loop of matrix products that sum in a dtype; None: the c target's serves."""
        return products.F32 if dtype.name == "f32" else None

    def stage(self, nest: CNest, steps: Segment) -> tuple[str, dict[Fold, list[CSlot]]] | None:
        """Write the main loop of a stage; the index where the rest begins, and the accumulators so far.

        None: the stage has no vector form.
        """
        return VectorStage(nest, steps).write()


class VectorStage:
    """One stage in vectors."""

    def __init__(self, nest: CNest, steps: Segment) -> None:
        self.n = nest
        self.code = nest.code
        self.steps = steps
        self.recipes = NeonRecipes(nest.w.module.recipes)
        self.inner = {s.dst for s in steps if isinstance(s, (Read, Compute, Position))}
        self.splats: dict[Any, str] = {}
        known = nest.count if isinstance(nest.count, int) else None
        heavy = sum(isinstance(s, Compute) and s.op in RECIPES for s in steps)
        computes = sum(isinstance(s, Compute) for s in steps)
        self.unroll = 4 if computes <= _LIGHT and not heavy else 2
        while known is not None and self.unroll > 1 and known < vectors.LANES * self.unroll:
            self.unroll //= 2
        self.possible = known is None or known >= vectors.LANES

    # -- whether --------------------------------------------------------------------------------------------------

    def _fits(self) -> bool:
        """Whether every step has a vector form."""
        if not self.possible or not any(isinstance(s, (Compute, Fold, Write, Accumulate)) for s in self.steps):
            return False
        for step in self.steps:
            for arg in arguments(step):
                if not (isinstance(arg, int) and arg in self.inner) and not vectors.supported(self._dtype(arg, step)):
                    return False
            match step:
                case Read() | Write() | Accumulate():
                    place = Kept(step.name) if isinstance(step, Accumulate) else step.place
                    if not vectors.memory(step.dtype) or not self._dense(place, step.axes, step.dtype):
                        return False
                    if isinstance(step, Accumulate) and self._combined(step.op, step.dtype, "x", "y") is None:
                        return False
                case Position():
                    if step.dtype.name not in ("f32", "i32") or step.axis != self.n.inner:
                        return False
                case Compute():
                    names = tuple("xyzw"[: len(step.args)])
                    before = dict(self.recipes.texts)
                    found = vectors.apply(self.recipes, step.op, names, step.operand, dict(step.attrs), step.dtype)
                    self.recipes.texts.clear()
                    self.recipes.texts.update(before)
                    if found is None:
                        return False
                case Fold():
                    if vectors.reduced(step.op, step.operand, "x") is None or step.operand != step.dtype:
                        return False
                    if vectors.fold(step.op, step.operand, "x", "y") is None:
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

    def _combined(self, op: str, dtype: DType, x: str, y: str) -> str | None:
        return vectors.fold(op, dtype, x, y)

    def _dtype(self, arg: Arg, step: Any) -> DType:
        """The dtype of an operand that is the same in all lanes."""
        if isinstance(arg, Const):
            return arg.type.dtype
        if isinstance(arg, int):
            value = self.n.values[arg]
            kinds = {"float": "f32", "int32_t": "i32", "uint32_t": "u32", "bool": "bool_"}
            from pto_jit.dtypes import BY_NAME

            return BY_NAME[kinds.get(value.ctype, "i64")]
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
        width = vectors.LANES * self.unroll
        j = code.variable("j", "int64_t", "0", here=True).variable
        with code.braces(f"for (; {j} + {width} <= {lift(count).text}; {j} += {width})"):
            envs: list[dict[int, str]] = [{} for _ in range(self.unroll)]
            for step in self.steps:  # the same step of all vectors side by side: they do not wait for each other
                for u in range(self.unroll):
                    at = CValue(I64, poly={(j,): 1, **({(): vectors.LANES * u} if u else {})})
                    self._step(step, envs[u], at, folds, u)
        return j, {fold: self._joined(fold, names) for fold, names in folds.items()}

    def _prepare(self) -> None:
        """What is the same in all lanes, before the loop."""
        for step in self.steps:
            for arg in arguments(step):
                if (isinstance(arg, int) and arg in self.inner) or arg in self.splats:
                    continue
                dtype = self._dtype(arg, step)
                scalar = self.n.scalar(arg)
                text = vectors.splat(dtype, scalar.text)
                wish = f"{scalar.name}_4" if scalar.name else "c"
                self.splats[arg] = self._let(wish, vectors.vector_type(dtype), text)

    def _let(self, wish: str, ctype: str, text: str, kind: str = "pure") -> str:
        return self.code.declare(wish, ctype, text, kind=kind)

    def _accumulators(self, fold: Fold) -> list[str]:
        ctype = vectors.vector_type(fold.operand)
        first = lift(reduce_identity(fold.op, fold.operand, register_type(fold.operand))).text
        start = vectors.splat(fold.operand, first)
        return [self.code.variable(f"{fold.op}_{u}", ctype, start, here=True).variable for u in range(self.unroll)]

    def _step(self, step: Any, env: dict[int, str], j: CValue, folds: dict[Fold, list[str]], u: int) -> None:
        code = self.code

        def get(arg: Arg) -> str:
            return env[arg] if isinstance(arg, int) and arg in env else self.splats[arg]

        match step:
            case Read():
                text = vectors.load(step.dtype, self._address(step.place, step.axes, step.dtype, j))
                env[step.dst] = self._let("v", vectors.vector_type(step.dtype), text, "read")
            case Position():
                text = f"pto_indices_i32x4({j.text})"
                text = text if step.dtype.name == "i32" else f"vcvtq_f32_s32({text})"
                env[step.dst] = self._let("at", vectors.vector_type(step.dtype), text, "read")
            case Compute():
                args = [get(a) for a in step.args]
                text = vectors.apply(self.recipes, step.op, args, step.operand, dict(step.attrs), step.dtype)
                assert text is not None
                env[step.dst] = self._let(step.op, vectors.vector_type(step.dtype), text)
            case Fold():
                name = folds[step][u]
                text = vectors.fold(step.op, step.operand, name, get(step.arg))
                code.line(f"{name} = {text};")
            case Write():
                place = self._address(step.place, step.axes, step.dtype, j)
                code.line(f"{vectors.store(step.dtype, place, get(step.arg))};")
            case Accumulate():
                place = self._address(Kept(step.name), step.axes, step.dtype, j)
                out = self._combined(step.op, step.dtype, vectors.load(step.dtype, place), get(step.arg))
                assert out is not None
                code.line(f"{vectors.store(step.dtype, place, out)};")

    def _address(self, place: Place, axes: Places, dtype: DType, j: CValue) -> str:
        address = self.n._typed(self.n._address(place, axes, j), dtype)
        assert isinstance(address, CPointer)
        element = memory_ctype(dtype)
        return address.text if address.element == element else f"({element} *)({address.text})"

    def _joined(self, fold: Fold, names: list[str]) -> list[CSlot]:
        """The accumulators of the main loop as one number, which the loop over the rest goes on from."""
        combine: Callable[[str, str], str | None] = lambda x, y: vectors.fold(fold.op, fold.operand, x, y)  # noqa: E731
        while len(names) > 1:
            names = [combine(a, b) or "" for a, b in zip(names[::2], names[1::2], strict=True)]
        first = vectors.reduced(fold.op, fold.operand, names[0])
        assert first is not None
        return [self.code.variable(fold.op, register_ctype(fold.operand), first, here=True)]

# SPDX-License-Identifier: MIT
"""Tensors of host code: views, memory, and launches of kernels that are given them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import DType
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Call, Const, Op, Operand, Var
from pto_jit.lower.names import source_name
from pto_jit.semantic.failures import EXTENT
from pto_jit.targets.ascend.fills import repeated_byte
from pto_jit.targets.ascend.form import KernelForm, Parameter
from pto_jit.targets.ascend.host_numbers import HostNumbers, HostTensor
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.c.tidy import wrapped
from pto_jit.targets.cuda.facts import gather, lost_axes

_RELATION = re.compile(r" (<=|==) ")


class HostTensors(HostNumbers):
    """Writes views, new tensors and launches."""

    def view(self, op: Op) -> None:
        x = self.tensors[op.args[0].name]  # type: ignore[union-attr]
        name = self.names.of(op.results[0].name)
        rank = len(x.extents)
        pointer = x.pointer
        if op.op == "view":
            offsets, extents = op.args[1 : 1 + rank], op.args[1 + rank :]
            drop = op.attr("drop") or ()
            kept = [a for a in range(rank) if a not in drop]  # type: ignore[operator]
            self._inside(op, x, offsets)
            parts = [f"{self._atom(self.read(o))} * {s}" for o, s in zip(offsets, x.strides, strict=True)
                     if not (isinstance(o, Const) and o.value == 0)]  # fmt: skip
            if parts:
                self.text.line(
                    f"void *{name} = (char *){x.pointer} + ({' + '.join(parts)}) * {x.dtype.bytes};"
                )
                pointer = name
            shape = [self._clipped(name, a, x.extents[a], offsets[a], extents[a]) for a in kept]
            strides = [x.strides[a] for a in kept]
        elif op.op == "tensor_transpose":
            axes = op.attr("axes")
            assert isinstance(axes, tuple)
            shape, strides = [x.extents[int(a)] for a in axes], [x.strides[int(a)] for a in axes]  # type: ignore
        elif op.op == "tensor_step":
            steps: Any = op.attr("steps")
            shape = [_in_steps(self._atom(n), s) for n, s in zip(x.extents, steps, strict=True)]
            strides = [_times(self._atom(n), s) for n, s in zip(x.strides, steps, strict=True)]
        else:
            shape = [self.read(a) for a in op.args[1:]]
            strides = packed(shape)
        self.tensors[op.results[0].name] = HostTensor(pointer, x.dtype, tuple(shape), tuple(strides))

    def _inside(self, view: Op, x: HostTensor, offsets: Sequence[Operand]) -> None:
        """Check that a view begins in its tensor, and that a row or plane is there."""
        if self.known is None:
            self.known = gather(self.entry, {}, threads=False)
        lost = lost_axes(view, self.known.is_below)
        for axis, offset in enumerate(offsets):
            at = self._atom(self.read(offset))
            conditions = [] if self.known.is_natural(offset) else [f"{at} < 0"]
            conditions += [f"{at} >= {self._atom(x.extents[axis])}"] if axis in lost else []
            if conditions:
                name = source_name(view.args[0].name)  # type: ignore[union-attr]
                problem = f"a view of `{name}` begins outside of its axis {axis}"
                self.text.line(wrapped(f"if ({' || '.join(conditions)}) {self.leave(problem)}", 6))

    def _clipped(self, name: str, axis: int, limit: str, offset: Operand, extent: Operand) -> str:
        wanted = self.read(extent)
        if isinstance(offset, Const) and offset.value == 0 and wanted == limit:
            return limit
        out = self.names.fresh(f"{name}_d{axis}")
        rest = f"{limit} - {self._atom(self.read(offset))}"
        self.text.line(f"const int64_t {out} = larger(0, smaller({wanted}, {rest}));")
        return out

    def alloc(self, op: Op) -> None:
        dtype = op.attr("dtype")
        assert isinstance(dtype, DType)
        filled = bool(op.attr("filled"))
        byte = self._byte(op.args[-1], op.loc) if filled else "-1"
        extents = [self.read(a) for a in (op.args[:-1] if filled else op.args)]
        for axis, extent in enumerate(extents):
            if not op.attr("checked") or isinstance(op.args[axis], Const):
                continue
            problem = EXTENT.text(axis=axis).format(extent)  # by its name, for words of C are not formatted here
            self.text.line(f"if ({self._atom(extent)} < 0) {self.leave(problem)}")
        name = self.names.of(op.results[0].name)
        size = " * ".join([*(self._atom(e) for e in extents), str(dtype.bytes)])
        if op.results[0].name in self.repeated:
            room = self.names.of(f"{op.results[0].name}_room")
            self.text.line(f"{name} = again(&memory, {name}, &{room}, {size}, {byte});")
        else:
            self.text.line(f"void *{name} = take(&memory, {size}, {byte});")
        self.text.line(f"if ({name} == NULL) {self.leave(f'there is no memory for `{op.results[0].name}`')}")
        self.tensors[op.results[0].name] = HostTensor(name, dtype, tuple(extents), tuple(packed(extents)))
        self.made.add(name)

    def _byte(self, value: Operand, loc: Loc) -> str:
        """What all bytes of a new tensor are."""
        known = repeated_byte(value)
        if known is not None:
            return str(known)
        dtype = value.type.dtype  # type: ignore[union-attr]
        if dtype.bits > 8:
            raise unsupported(f"a new tensor of {dtype} that is filled with this number", loc,
                              "fill it with 0, use another type, or pass it as an argument")  # fmt: skip
        return self.read(value) if dtype.kind == "b" else f"(uint8_t){self._atom(self.read(value))}"

    # -- launches -------------------------------------------------------------------------------------------------

    def launch(self, call: Call) -> None:
        kernel = self.kernels[call.callee]
        given: dict[str, str] = {}
        cores = "VECTOR_CORES" if kernel.core == "vector" and kernel.partner is None else "CUBE_CORES"
        cores = "1" if kernel.alone else cores
        for p in kernel.parameters:
            kind, k, *axis = p.origin
            if kind == "slot":
                given[p.name] = self._slots(kernel, p, int(k), cores)
                continue
            operand = call.args[int(k)]
            if kind == "argument":
                known = self.tensors.get(operand.name) if isinstance(operand, Var) else None
                bits = p.type == "uint64_t" and not p.tensor  # of a number of f64
                number = "" if known is not None else self.read(operand)
                given[p.name] = known.pointer if known is not None else f"bits_of({number})" if bits else number
                continue
            tensor = self.tensors[operand.name]  # type: ignore[union-attr]
            given[p.name] = (tensor.extents if kind == "extent" else tensor.strides)[int(axis[0])]
        for words, (condition, meaning) in zip(self.conditions[kernel.name], kernel.checks, strict=True):
            told = "".join([given.get(word, word) for word in words])
            left, relation, right = _RELATION.split(told)
            if left != right and not (left.isdigit() and right.isdigit() and _holds(left, relation, right)):
                self._check(kernel, told, f"{meaning}: {condition}")
        for name, bound in kernel.limits.items():
            value = given[name]
            if value.isdigit() and 1 <= int(value) <= bound:
                continue
            self._check(kernel, f"1 <= {value} && {value} <= {bound}", f"{name} is at most {bound}, and not 0")
        arguments = ", ".join([cores, "stream", *(given[p.name] for p in kernel.parameters)])
        line = f"launch_{kernel.name}({arguments})"
        if kernel.partner is not None:
            line = f"if ({line} != 0) {self.leave(f'{kernel.name}: there are no flags between cores')[:-1]}"
        self.text.line(wrapped(f"{line};", 6))

    def _slots(self, kernel: KernelForm, parameter: Parameter, size: int, cores: str) -> str:
        """Memory that each core, or the cores of each group, pass values through: the same for all launches."""
        key = kernel.name, parameter.name
        if key not in self.slots:
            self.slots[key] = self.names.fresh(parameter.name), f"{cores} * {size}"
        return self.slots[key][0]

    def _check(self, kernel: KernelForm, condition: str, meaning: str) -> None:
        with self.text.block(f"if (!({condition}))"):
            self.text.line(self.leave(f"{kernel.name}: {meaning}"))


def _holds(left: str, relation: str, right: str) -> bool:
    return int(left) <= int(right) if relation == "<=" else int(left) == int(right)


def _in_steps(extent: str, step: int) -> str:
    """How many elements of an axis are every step-th one, from the first one on."""
    if step == 1:
        return extent
    return str(-(-int(extent) // step)) if extent.isdigit() else f"(({extent} + {step - 1}) / {step})"


def _times(stride: str, step: int) -> str:
    if step == 1:
        return stride
    return str(int(stride) * step) if stride.isdigit() else f"({stride} * {step})"


def packed(extents: Sequence[str]) -> list[str]:
    """Strides, in elements, of a contiguous tensor."""
    out: list[str] = []
    for axis in range(len(extents)):
        rest = extents[axis + 1 :]
        out.append(" * ".join(rest) if rest else "1")
    return [f"({s})" if " " in s else s for s in out]

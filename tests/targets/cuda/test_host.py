# SPDX-License-Identifier: MIT
"""The host side of programs that are launched from Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.dtypes import bool_, i64
from pto_jit.errors import LaunchError
from pto_jit.ir.nodes import Const, For, Func, Op, Return, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.semantic.evaluation import Context, argument, evaluate
from pto_jit.targets.cuda.devices import EmulatedDevice, HostMemory
from pto_jit.targets.cuda.hostcode import host_function
from pto_jit.targets.cuda.regions import apart_in
from pto_jit.targets.cuda.tensors import DeviceTensor
from tests.targets.bench_kernels import SPECS, kernel
from tests.targets.cuda.harness import needs_compiler

INDEX, TRUTH = ScalarType(i64), ScalarType(bool_)
LEAST, MOST = -(1 << 63), (1 << 63) - 1
NUMBERS = (LEAST, LEAST + 1, -7, -1, 0, 1, 3, 1 << 32, MOST)


def on_host(op: Op) -> Any:
    func = Func("f", "orchestration", tuple(a for a in op.args if isinstance(a, Var)), (), (op, Return(op.results)))
    return host_function(func, lambda call: None)


@pytest.mark.parametrize("name", "add sub mul min max eq ne lt le gt ge floordiv mod and or xor".split())
def test_integers_of_the_host_are_those_of_the_semantic_table(name: str) -> None:
    a, b = Var("a", INDEX), Var("b", INDEX)
    kind = TRUTH if name in ("eq", "ne", "lt", "le", "gt", "ge") else INDEX
    run = on_host(Op(name, (Var("c", kind),), (a, b)))
    for x in NUMBERS:
        for y in NUMBERS:
            by = on_host(Op(name, (Var("c", kind),), (a, Const(y, INDEX))))
            (want,) = evaluate(Op(name, (Var("c", kind),), (a, b)), [argument(v, i64) for v in (x, y)],
                               Context(False, lambda region, arrays: []))  # fmt: skip
            for (found,) in (run(None, x, y), by(None, x)):
                assert (type(found), found) == (bool if kind is TRUTH else int, want.item()), (x, y)


@pytest.mark.parametrize("name", ["and", "or", "not", "eq"])
def test_truths_of_the_host_are_those_of_the_semantic_table(name: str) -> None:
    variables = (Var("a", TRUTH), Var("b", TRUTH))[: 1 if name == "not" else 2]
    op = Op(name, (Var("c", TRUTH),), variables)
    for given in np.ndindex(*[2] * len(variables)):
        (want,) = evaluate(op, [np.bool_(x) for x in given], Context(False, lambda region, arrays: []))
        (found,) = on_host(op)(None, *map(bool, given))
        assert found is bool(want)


def test_more_loops_than_python_nests_are_an_error() -> None:
    loop: Any = Op("add", (Var("c", INDEX),), (Const(1, INDEX), Const(1, INDEX)))
    for k in range(21):
        loop = For("sequential", Var(f"i{k}", INDEX), Const(0, INDEX), Const(2, INDEX), Const(1, INDEX), (loop,))
    with pytest.raises(LaunchError, match="f on the host: too many statically nested blocks\nhelp: nest fewer loops"):
        host_function(Func("f", "orchestration", (), (), (loop,)), lambda call: None)


def test_a_step_of_zero_is_an_error() -> None:
    step = Var("s", INDEX)
    loop = For("sequential", Var("i", INDEX), Const(0, INDEX), Const(2, INDEX), step, ())
    run = host_function(Func("f", "orchestration", (step,), (), (loop,)), lambda call: None)
    assert run(None, 1) == ()
    with pytest.raises(LaunchError, match="the step of a loop is 0"):
        run(None, 0)


def test_what_a_program_makes_is_apart_from_all_else() -> None:
    kind = TensorType(i64, (4,))
    x, y, own, other, part, either = (Var(n, kind) for n in ("x", "y", "own", "other", "part", "either"))
    zero, four = Const(0, INDEX), Const(4, INDEX)
    body = (
        Op("alloc", (own,), (four,), (("dtype", i64),)), Op("alloc", (other,), (four,), (("dtype", i64),)),
        Op("view", (part,), (own, zero, four)), Op("copy", (either,), (own,)), Op("copy", (either,), (x,)),
    )  # fmt: skip
    apart = apart_in(Func("f", "orchestration", (x, y), (), body))
    assert apart(x, own) and apart(own, other) and apart(part, other) and apart(part, y)
    assert not any(apart(a, b) for a, b in ((x, y), (own, part), (either, own), (either, other), (x, either)))


class Recorder(EmulatedDevice):
    """Prepares nothing and launches nothing, but counts."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared, self.launched = [], 0

    def prepare(self, kernel: Any, spread: Any, shared: int) -> Any:
        self.prepared.append(spread.defines)

    def launch(self, version: Any, grid: Any, block: Any, shared: int, arguments: Any, stream: int) -> None:
        self.launched += 1


def test_a_size_is_prepared_once_for_a_device() -> None:
    host = kernel("rows.softmax").compile(*SPECS["rows.softmax"], target="cuda")._kernel.built.program.host
    device, memory = Recorder(), HostMemory(1 << 16)

    def call(columns: int) -> None:
        given = [DeviceTensor(memory.pointer + k * 8192, (2, columns), (4 * columns, 4), pl.f32) for k in range(2)]
        host.run(given, device, 0)

    for columns in (512, 512, 1024, 512):
        call(columns)
    assert (len(device.prepared), device.launched) == (2, 4)
    other = Recorder()
    device, _ = other, device
    call(512)
    assert len(other.prepared) == 1


@needs_compiler
def test_inner_loops_without_iterations_need_no_offsets() -> None:
    def program(x: Any, ws: Any) -> Any:
        def layer(xs: Any, w: Any) -> Any:
            return ft.reverse(ft.scan(lambda s, e: s + e * w, ft.reverse(xs), initializer=ft.zeros(1, 4)))

        return ft.scan(layer, ws, initializer=x)

    x = ft.from_flat(np.zeros((0, 1, 4), np.float32))
    ws = ft.from_flat(np.ones((2, 1, 4), np.float32))
    compiled = pto.jit(program).compile(x, ws, target="cuda")
    assert emulate(compiled, x, ws).leaves.shape == program(x, ws).leaves.shape == (0, 1, 4)


@pto.jit
def twice(x: pl.Tensor[[None, 64], pl.f32], y: pl.Tensor[[None, 64], pl.f32]):
    n, _ = x.shape
    between = pl.full([n, 64], 0.0, pl.f32)
    for i in pl.range(n, parallel=True):
        pl.store(pl.load(x, [i, 0], [1, 64]) * 2.0, [i, 0], between)
    for i in pl.range(n, parallel=True):
        pl.store(pl.load(between, [n - 1 - i, 0], [1, 64]) + pl.load(x, [i, 0], [1, 64]), [i, 0], y)


def test_written_hosts_look_at_arguments_alone_for_shared_memory() -> None:
    spec = pto.spec((None, 64), pl.f32)
    sources = twice.compile(spec, spec, target="cuda").sources
    assert "between" in sources["twice_incore_0_1.cu"]
    text = sources["twice_orchestration.c"]
    assert text.count("if (pto_clash(") + text.count("if (pto_overlap(") == 1

# SPDX-License-Identifier: MIT
"""What the writers of machine code believe or know of regions, and what they do not write because of it."""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.errors import LaunchError
from pto_jit.semantic.interpreter import run
from pto_jit.targets.cpu import machine_code
from pto_jit.targets.cpu.loading import LLVM_LOCK, target_machine
from pto_jit.targets.cpu.optimising import optimised
from tests.targets.cpu_programs import Compiled, Failed, module

PART = """
func @part(%x: !pto.memref<gm,?x64,f32>, %y: !pto.memref<gm,?x64,f32>, %n: i64) {{
  %part = tview %x[%n, 0] [2, 64]{said} : !pto.memref<gm,?x64,f32>
  %t = tload %part[0, 0] [2, 64] : !pto.tile<2x64xf32>
  tstore %t, %y[%n, 0]{said}
  return
}}
"""
INSIDE = " {inside=true}"


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(256, dtype=np.float32).reshape(4, 64), np.zeros((4, 64), np.float32)


@pytest.mark.parametrize("said", ["", INSIDE, " {inside=true, reused=true}"])
def test_a_region_inside_of_its_tensor_is_what_it_is(said: str) -> None:
    if "reused" in said:
        said_of_views = PART.format(said=INSIDE).replace("%y[%n, 0]" + INSIDE, "%y[%n, 0]" + said)
    else:
        said_of_views = PART.format(said=said)
    x, y = arrays()
    Compiled(module(said_of_views))(x, y, 1)
    np.testing.assert_array_equal(y[1:3], x[1:3])
    assert not y[[0, 3]].any()


def test_a_promise_leaves_no_checks() -> None:
    text = Compiled(module(PART.format(said=""))).program.llvm_ir
    promised = Compiled(module(PART.format(said=INSIDE))).program.llvm_ir
    assert "pto_fail" in text and "pto_fail" not in promised
    assert len(promised.splitlines()) < 0.8 * len(text.splitlines())


@pytest.mark.parametrize("n", [3, -1])
def test_a_broken_promise_is_found_by_debugging_and_by_the_interpreter(n: int) -> None:
    broken = module(PART.format(said=INSIDE))
    with pytest.raises((Failed, LaunchError), match=r"BoundsError|said to lie inside of its tensor"):
        Compiled(broken, debug=True)(*arrays(), n)
    with pytest.raises(LaunchError, match=r"region at \(-?\d, 0\) of \(2, 64\) elements is not inside"):
        run(broken, (*arrays(), n))


@pto.jit(cache=False)
def through(x: pl.Tensor, out: pl.Tensor):
    a = pl.empty([x.shape[0], 64], pl.f32)
    with pl.incore():
        pl.store(pl.load(x) * 2, [0, 0], a)
    with pl.incore():
        pl.store(pl.load(a) + 1, [0, 0], out)


def test_memory_of_its_own_is_not_compared_with_that_of_arguments() -> None:
    x = np.ones((8, 64), np.float32)
    out = np.zeros_like(x)
    through(x, out)
    np.testing.assert_array_equal(out, x * 2 + 1)
    again = np.ones((8, 64), np.float32)
    through(again, again)
    np.testing.assert_array_equal(again, out)
    # x and a, a and out are never one memory: no store is ever diverted because of what it may overlap
    assert "icmp ult" not in through.compile(x, out).ir("llvm")


@pto.jit(cache=False)
def moved(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        pl.store(pl.load(x) + 1, [0, 0], out)


def test_arguments_that_may_overlap_are_compared() -> None:
    memory = np.zeros((9, 64), np.float32)
    assert "icmp ult" in moved.compile(memory[:8], memory[1:]).ir("llvm")
    moved(memory[:8], memory[1:])
    np.testing.assert_array_equal(memory[1:], np.ones((8, 64), np.float32))


def functions(text: str) -> dict[str, str]:
    """The functions of a module that were optimised, by name."""
    with LLVM_LOCK:
        found = optimised(text, target_machine(2))
        return {f.name: str(f) for f in found.functions if not f.is_declaration}


ADDS = "\n".join(f"  %v{k + 1} = add i64 %v{k}, %n" for k in range(300))
ENTRY = """define i64 @entry(i64 %v0, i64 %n) nounwind
{{
first:
  br label %body
body:
{adds}
  %more = icmp slt i64 %v300, %n
  br i1 %more, label %{back}, label %end
end:
  ret i64 %v300
}}
"""


def test_an_entry_without_loops_is_not_optimised() -> None:
    # `%more` leads forwards alone in the first, back in the second
    straight = ENTRY.format(adds=ADDS, back="end")
    assert functions(straight)["entry"].count(" add ") == 300
    loop = ENTRY.format(adds=ADDS, back="body")
    assert functions(loop)["entry"].count(" add ") < 300
    internal = straight.replace("define i64", "define internal i64")
    assert functions(internal).get("entry", "").count(" add ") < 300


def test_the_same_code_is_compiled_once() -> None:
    one = """define internal i64 @f{k}(ptr %p, i64 %n) nounwind
{{
first:
  %a = load i64, ptr %p
  %b = mul i64 %a, %n
  %c = xor i64 %b, 77
  %d = mul i64 %c, %b
  %e = xor i64 %d, %n
  store i64 %e, ptr %p
  ret i64 %e
}}
"""
    table = "@table = global [10 x ptr] [" + ", ".join(f"ptr @f{k}" for k in range(10)) + "]\n"
    found = functions(table + "".join(one.format(k=k) for k in range(10)))
    assert sum(text.count(" mul ") for text in found.values()) == 2


def test_programs_whose_functions_are_the_same_code() -> None:
    def program(x: Any, y: Any) -> Any:
        rows = ft.map(lambda r: ft.fold(lambda s, v: s * 2 + v, r, init=ft.zeros(1, 4)), x)
        return rows, ft.map(lambda r: ft.fold(lambda s, v: s * 2 + v, r, init=ft.zeros(1, 4)), y)

    lists = [ft.from_list([[np.full((1, 4), k + 1, np.float32)] * n for n in (2, 0, 3)]) for k in range(2)]
    for got, want in zip(pto.jit(program)(*lists), program(*lists), strict=True):
        np.testing.assert_array_equal(got.leaves, want.leaves)


STRIDES = """
define void @fill(ptr %to, i64 %stride, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %far = mul i64 %i, %stride
  %at = getelementptr double, ptr %to, i64 %far
  store double 1.0, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the options are those of x86")
def test_other_users_of_llvm_get_their_options_back() -> None:
    machine = target_machine(2)
    with LLVM_LOCK:
        before = machine.emit_assembly(llvm.parse_assembly(STRIDES))
        ours = machine_code.assembly(llvm.parse_assembly(STRIDES), machine)
        after = machine.emit_assembly(llvm.parse_assembly(STRIDES))
    assert ours != before  # the multiplication stays in the loop: loop strength reduction is off
    assert after == before

# SPDX-License-Identifier: MIT
"""Compiled programs as objects: failures with places, debugging, printing, loading again, several threads at once."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest

from pto_jit.targets.cpu import CpuProgram
from tests.targets.cpu_programs import Compiled, Failed, array, check, module

ELEMENTS = """
func @f(%x: !pto.memref<gm,?x?,f32>, %i: i64, %j: i64) -> (f32) {
  %v = sgetelem %x[%i, %j] : f32
  %w = sadd %v, 1.0:f32 : f32
  ssetelem %w, %x[%j, %i]
  return %w
}
"""


def test_element_bounds_are_checked_when_debugging() -> None:
    for i, j in [(0, 0), (3, 2), (-1, 0), (0, 4), (4, 0), (0, 3)]:
        check(ELEMENTS, array("f32", (4, 4)), i, j, debug=True)
        if 0 <= i < 4 and 0 <= j < 4:
            check(ELEMENTS, array("f32", (4, 4)), i, j)


def test_a_failure_tells_the_place_and_the_numbers() -> None:
    text = """
func @f(%x: !pto.memref<gm,?,f32>, %i: i64) {
  %t = tload %x[%i] [8] : !pto.tile<8xf32>
  %e = texp %t : !pto.tile<8xf32>
  tstore %e, %x[%i]
  return
}
"""
    compiled = Compiled(module(text))
    with pytest.raises(Failed, match="BoundsError: PTO-B001: offset -3 along axis 0 is negative"):
        compiled(array("f32", (9,)), -3)
    kind, _, loc = next(s for s in compiled.program.sites if s[0] == "BoundsError")
    assert kind == "BoundsError" and loc.lineno == 3


def test_negative_extents_are_an_error() -> None:
    text = """
func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
  %t = tload %x[0] [%n] : !pto.tile<?xf32>
  %z = tfull 1.0:f32, [%n] : !pto.tile<?xf32>
  %e = tadd %t, %z : !pto.tile<?xf32>
  tstore %e, %x[0]
  return
}
"""
    for n in (4, 0, -1):
        check(text, array("f32", (9,)), n)


@pytest.mark.parametrize("debug", [False, True])
def test_assertions_run_when_debugging_or_always(debug: bool) -> None:
    for line in ('{message="no {} braces"}', '{always=true, error="LaunchError", message="no"}'):
        text = f"func @f(%n: i64) {{\n  %b = sgt %n, 3 : bool_\n  sassert %b {line}\n  return\n}}\n"
        for n in (5, 2):
            check(text, n, debug=debug)


def test_print_gives_scalars_and_tiles_to_the_format() -> None:
    text = """
func @f(%x: !pto.memref<gm,?x?,f16>, %n: i64, %f: f32, %b: bool_) {
  %t = tload %x[0, 0] [2, 3] : !pto.tile<2x3xf16>
  tprint %t, %n, %f, %b {fmt="{} | {!r} | {:.2f} | {!r}"}
  return
}
"""
    compiled = Compiled(module(text))
    seen: list[str] = []
    compiled.runtime.on_print = lambda holder, site, values: seen.append(holder.program.format_print(site, values))
    try:
        x = np.array([[1, 2], [3.5, -4]], np.float16)
        compiled(x, -7, 2.25, True)
    finally:
        compiled.runtime.on_print = None
    assert seen == [f"{x} | -7 | 2.25 | True"]


def test_a_program_is_loaded_again_from_its_object_code() -> None:
    first = Compiled(module(ELEMENTS))
    metadata = json.loads(json.dumps(first.program.metadata()))
    again = CpuProgram.load(metadata, first.program.object_bytes)
    assert again.sites == first.program.sites and again.result_plan == "float" and again.written == {0}
    first.program = again
    from pto_jit.runtime import Entry

    entry = Entry(first.runtime, again.entry_address, again.result_plan, holder=first, on_failure=first._fail)
    x = array("f32", (4, 4))
    expected = x[1, 2] + 1
    assert entry.launch(first.slots([x, 1, 2])) == expected
    assert x[2, 1] == expected


def test_written_arguments_are_known_through_views_and_calls() -> None:
    text = """
// Entry: @f
// Function Type: InCore
func @g(%p: !pto.memref<gm,?x?,f32>, %q: !pto.memref<gm,?x?,f32>) {
  %v = sgetelem %p[0, 0] : f32
  ssetelem %v, %q[0, 0]
  return
}

// Function Type: Orchestration
func @f(%n: i64, %a: !pto.memref<gm,?x?,f32>, %b: !pto.memref<gm,?x?,f32>, %c: !pto.memref<gm,?x?,f32>) {
  %w = ttensor_transpose %b {axes=(1, 0)} : !pto.memref<gm,?x?,f32,strided>
  ssetelem 1.0:f32, %w[0, 0]
  CALL @g(%a, %c)
  return
}
"""
    assert Compiled(module(text)).program.written == {1, 2}


def test_programs_can_be_compiled_in_several_threads() -> None:
    texts = [ELEMENTS.replace("1.0:f32", f"{k}.0:f32") for k in range(8)]
    results: dict[int, Any] = {}

    def work(k: int) -> None:
        x = array("f32", (4, 4))
        results[k] = (Compiled(module(texts[k]))(x, 1, 2), array("f32", (4, 4))[1, 2] + np.float32(k))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 8 and all(a == b for a, b in results.values())


def test_the_machine_code_can_be_read() -> None:
    assert "pto_entry_f" in Compiled(module(ELEMENTS)).program.assembly()

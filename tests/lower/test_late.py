# SPDX-License-Identifier: MIT
"""Extremes in loops take last what the iteration before has to give, and are the same to the last bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pto_jit.ir.nodes import Module, Op, Var
from pto_jit.ir.parse import parse
from pto_jit.ir.verify import verify
from pto_jit.ir.walk import statements
from pto_jit.lower.late import wait_last
from pto_jit.semantic.interpreter import run
from pto_jit.semantic.rules import infer

LOOP = """
// Function Type: InCore
func @f(%a: !pto.memref<gm,?,{t}>, %b: !pto.memref<gm,?,{t}>, %c: !pto.memref<gm,?,{t}>, %d: !pto.memref<gm,?,{t}>,
        %n: i64) {{
  FOR %i:idx, 1:idx, %n:idx, 1:idx
    %back = ssub %i, 1 : i64
    %w = sgetelem %d[{read}] : {t}
    %x = sgetelem %a[%i] : {t}
    %y = sgetelem %b[%i] : {t}
    %z = sgetelem %c[%i] : {t}
    %p = s{op} {first}, {second} : {t}
    %q = s{op} %p, {third} : {t}
    %r = s{op} %q, {fourth} : {t}
    ssetelem %r, %d[%i]
  ENDFOR
  return
}}
"""
ORDERS = tuple(itertools.permutations(("%w", "%x", "%y", "%z")))


def _text(order: tuple[str, ...], op: str, t: str, read: str = "%back") -> str:
    first, second, third, fourth = order
    return LOOP.format(t=t, op=op, read=read, first=first, second=second, third=third, fourth=fourth)


def _last_operands(module: Module, op: str) -> list[str]:
    """The operands of the extreme that is stored."""
    ops = [s for f in module.funcs for s in statements(f.body) if isinstance(s, Op)]
    (last,) = (s for s in ops if s.op == op and s.results[0].name == "r")
    return [a.name for a in last.args if isinstance(a, Var)]


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("order", ORDERS)
def test_integers_take_last_what_is_waited_for(order: tuple[str, ...], op: str) -> None:
    module = parse(_text(order, op, "i32"))
    new = wait_last(module)
    verify(new, infer)
    assert _last_operands(new, op)[1] == "w"


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("order", ORDERS)
def test_floats_are_grouped_and_keep_their_order(order: tuple[str, ...], op: str) -> None:
    module = parse(_text(order, op, "f32"))
    new = wait_last(module)
    verify(new, infer)
    some = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], np.float32)
    rng = np.random.default_rng(0)
    for _ in range(8):
        start = [rng.choice(some[rng.integers(0, 3) :], 60) for _ in range(4)]
        one, other = ([a.copy() for a in start] for _ in range(2))
        run(module, [*one, 60])
        run(new, [*other, 60])
        np.testing.assert_array_equal(one[3].view(np.uint32), other[3].view(np.uint32))
    if order[0] == "%w":
        assert _last_operands(new, op)[0] == "w", "the others are there before it"


@pytest.mark.parametrize(("read", "waits"), [("%i", False), ("%back", True), ("0", True), ("%n", True)])
def test_what_no_iteration_before_may_have_stored_is_not_waited_for(read: str, waits: bool) -> None:
    module = parse(_text(("%x", "%w", "%y", "%z"), "min", "i64", read))
    assert (wait_last(module) is not module) == waits


def test_variables_that_are_assigned_meanwhile_are_taken_before() -> None:
    module = parse("""
// Function Type: InCore
func @f(%x: !pto.memref<gm,?,i64>, %y: !pto.memref<gm,?,i64>, %n: i64) {
  %m = scopy -5 : i64
  FOR %i:idx, 0:idx, %n:idx, 1:idx
    %a = sgetelem %x[%i] : i64
    %b = sadd %a, 3 : i64
    %p = smin %m, %a : i64
    %q = smin %p, %b : i64
    %m = scopy 40 : i64
    %r = smin %q, 30 : i64
    %s = smin %r, %i : i64
    ssetelem %s, %y[%i]
    %m = scopy %b : i64
  ENDFOR
  return
}
""")
    x = np.random.default_rng(1).integers(-50, 50, 40)
    one, other = np.zeros((2, 40), np.int64)
    run(module, [x, one, 40])
    run(wait_last(module), [x, other, 40])
    np.testing.assert_array_equal(one, other)

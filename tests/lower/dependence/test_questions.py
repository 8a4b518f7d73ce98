# SPDX-License-Identifier: MIT
"""May two loops be exchanged, may a loop run in parallel, is something a reduction: named cases with known answers."""

from __future__ import annotations

import pytest

from pto_jit.ir.parse import parse
from pto_jit.ir.verify import verify
from pto_jit.lower.dependence import Answer, Dependences, Loop
from pto_jit.semantic.rules import infer

HEAD = "func @f(%x: !pto.memref<gm,?x?,{t}>, %y: !pto.memref<gm,?x?,{t}>, %n: i64, %m: i64) {{\n"
NEST = """  FOR %i:idx, 1:idx, %n:idx, 1:idx {outer}
    FOR %j:idx, 1:idx, %m:idx, 1:idx {inner}
      %i1 = ssub %i, 1 : i64
      %j1 = ssub %j, 1 : i64
      %j2 = sadd %j, 1 : i64
      %k = sadd %i, %m : i64
      {body}
    ENDFOR
  ENDFOR
  return
}}
"""


def nest(body: str, outer: str = "", inner: str = "", dtype: str = "i64") -> tuple[Dependences, Loop, Loop]:
    text = HEAD.format(t=dtype) + NEST.format(body="\n      ".join(body.split("; ")), outer=outer, inner=inner)
    module = parse(text)
    verify(module, infer)
    dependences = Dependences(module.func("f"))
    i, j = dependences.found.loops
    return dependences, i, j


READ = "%v = sgetelem %x[{}] : i64; ssetelem %v, %x[%i, %j]"


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        ("%i, %j", "yes"),
        ("%i1, %j", "yes"),  # distance (1, 0)
        ("%i, %j1", "yes"),  # (0, 1)
        ("%i1, %j1", "yes"),  # (1, 1)
        ("%i1, %j2", "no"),  # (1, -1) would run backwards
        ("%i, 0", "yes"),  # j is at least 1
        ("%j, %i", "no"),
        ("%k, %j", "yes"),  # written m iterations later: (m, 0)
        ("%k, %j1", "no"),  # (m, -1)
        ("%k, %j2", "yes"),  # (m, 1)
    ],
)
def test_sequential_loops_are_exchanged_when_no_direction_becomes_negative(read: str, verdict: str) -> None:
    dependences, i, j = nest(READ.format(read))
    assert dependences.may_exchange(i, j, []).verdict == verdict


def test_a_refusal_names_both_accesses_and_the_direction() -> None:
    dependences, i, j = nest(READ.format("%i1, %j2"))
    answer = dependences.may_exchange(i, j, [])
    assert answer.witness is not None
    assert "`x[i, j]`" in answer.reason and "`x[i - 1, j + 1]`" in answer.reason
    assert "direction (<, >) over i, j" in answer.reason


def test_different_arguments_may_share_memory() -> None:
    dependences, i, j = nest("%v = sgetelem %y[%i, %j] : i64; ssetelem %v, %x[%i, %j]")
    answer = dependences.may_exchange(i, j, [])
    assert answer.verdict == "unknown" and "may share memory" in answer.reason


def test_a_promise_makes_the_exchange_free() -> None:
    dependences, i, j = nest(READ.format("%j, %i"), outer="{kind=parallel}")
    assert dependences.may_exchange(i, j, []).proven


def test_a_parallel_loop_leaves_a_sequential_one_only_without_any_dependence_between_its_iterations() -> None:
    for read, proven in (("%i1, %j", True), ("%i1, %j1", False), ("%i1, %j2", False)):
        dependences, i, j = nest(READ.format(read), inner="{kind=parallel}")
        assert dependences.may_exchange(i, j, []).proven == proven, read


@pytest.mark.parametrize(("dtype", "constant", "proven"), [("i64", "5", True), ("f32", "5.0:f32", False)])
def test_reductions_may_be_reordered_where_that_is_exact(dtype: str, constant: str, proven: bool) -> None:
    update = f"%v = sgetelem %x[0, 0] : {dtype}; %s = sadd %v, {constant} : {dtype}; ssetelem %s, %x[0, 0]"
    dependences, i, j = nest(update, dtype=dtype)
    (reduction,) = dependences.reductions(j)
    assert (reduction.op, reduction.exact) == ("add", proven)
    assert dependences.may_exchange(i, j, []).proven == proven


def test_an_update_whose_old_value_is_used_elsewhere_is_no_reduction() -> None:
    update = "%v = sgetelem %x[0, 0] : i64; %s = sadd %v, 5 : i64; ssetelem %s, %x[0, 0]; ssetelem %v, %y[%i, %j]"
    dependences, _, j = nest(update)
    assert dependences.reductions(j) == []


def parallel(body: str) -> tuple[Answer, Answer]:
    dependences, i, j = nest(body)
    return dependences.may_run_parallel(i), dependences.may_run_parallel(j)


def test_which_loop_may_run_in_parallel() -> None:
    assert [a.verdict for a in parallel("ssetelem 1, %x[%i, %j]")] == ["yes", "yes"]
    assert [a.verdict for a in parallel(READ.format("%i1, %j"))] == ["no", "yes"]
    assert [a.verdict for a in parallel(READ.format("%i, %j1"))] == ["yes", "no"]
    assert [a.verdict for a in parallel("ssetelem 1, %x[%i, 0]")] == ["yes", "no"]
    assert [a.verdict for a in parallel("ssetelem 1, %x[%k, 0]")] == ["yes", "no"]


def test_reductions_are_found_over_the_loops_that_their_place_does_not_depend_on() -> None:
    body = "%v = sgetelem %x[%i, 0] : i64; %s = smul %v, %j : i64; ssetelem %s, %x[%i, 0]"
    dependences, i, j = nest(body)
    assert dependences.reductions(i) == []
    assert [r.op for r in dependences.reductions(j)] == ["mul"]
    dependences, i, j = nest(body + "; ssetelem 0, %x[%i, %j1]")  # writes there when j is 1
    assert dependences.reductions(j) == []


def test_unknown_subscripts_are_unknown() -> None:
    dependences, i, _ = nest("%q = sgetelem %x[%i, %j] : i64; ssetelem 1, %y[%q, %j]")
    assert dependences.may_run_parallel(i).verdict == "unknown"


@pytest.mark.parametrize(
    "step",
    [
        "%{1} = smul %{0}, %{0} : i64",
        "%s{k} = sadd %{0}, %n : i64; %p{k} = smul %s{k}, %{0} : i64; %{1} = sadd %p{k}, %{0} : i64",
        "%p{k} = sfloordiv %{0}, 3 : i64; %q{k} = sfloordiv %{0}, 5 : i64; %{1} = sadd %p{k}, %q{k} : i64",
        "%p{k} = smod %{0}, 7 : i64; %q{k} = smod %{0}, 5 : i64; %{1} = smul %p{k}, %q{k} : i64",
        "%p{k} = sadd %{0}, 1 : i64; %q{k} = smul %{0}, 2 : i64; %{1} = smin %p{k}, %q{k} : i64",
    ],
)
def test_arithmetic_that_doubles_with_every_statement_stays_small(step: str) -> None:
    count = 12
    lines = [step.replace("{0}", f"a{k}").replace("{1}", f"a{k + 1}").replace("{k}", str(k)) for k in range(count)]
    body = "; ".join(["%a0 = sadd %i, %j : i64", *lines, f"ssetelem 1, %x[%a{count}, %j]"])
    dependences, _, _ = nest(body)
    values = dependences.found.values
    assert all(len(form.terms) <= 64 for form in values.known.values())
    assert all(len(atom.text) <= 200 for atom in values.atoms) and len(values.atoms) < 100 * count
    assert values.known["a0"].terms != values.known[f"a{count}"].terms


def test_accesses_that_are_apart_along_one_axis_are_not_compared_two_by_two() -> None:
    """Each iteration of the outer loop has a row of its own, whatever the loops inside do with it."""
    loop = """    FOR %j.{0}:idx, 0:idx, %m:idx, 1:idx
      %v.{0} = sgetelem %x[%i, %j.{0}] : i64
      ssetelem %v.{0}, %x[%i, %j.{0}]
    ENDFOR
"""
    inside = "".join(map(loop.format, range(20)))
    text = f"{HEAD.format(t='i64')}  FOR %i:idx, 0:idx, %n:idx, 1:idx\n{inside}  ENDFOR\n  return\n}}\n"
    dependences = Dependences(parse(text).func("f"))
    found = dependences.found
    assert len(found.accesses) == 40
    assert dependences.may_run_parallel(found.loops[0]).proven
    assert len(found.answers) < 40

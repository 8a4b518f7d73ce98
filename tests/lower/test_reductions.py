# SPDX-License-Identifier: MIT
"""Reductions in parallel loops: what is one, what the split program looks like, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import CompilationError, ScheduleError
from pto_jit.ir.nodes import For, Module, Op
from pto_jit.ir.parse import parse
from pto_jit.ir.text import to_text
from pto_jit.ir.verify import verify
from pto_jit.ir.walk import statements
from pto_jit.lower.decisions import Decision
from pto_jit.lower.reductions import split_reductions
from pto_jit.semantic import interpreter
from pto_jit.semantic.rules import infer

X = np.arange(1, 13, dtype=np.float32)


def column_split(combine: str) -> Callable[..., None]:
    def kernel(x, y):
        with pl.incore():
            total = pl.zeros([8], pl.f32)
            for t in pl.range(0, 64, 4, chunk=4, combine=combine):
                total += pl.sum(pl.load(x, [0, t], [8, 4]), axis=1)
            pl.store(total, [0], y)

    return kernel


def row_split(x, y):
    with pl.incore():
        for r in pl.range(0, 64, 8, chunk=2):
            total = pl.zeros([8], pl.f32)
            for t in pl.range(0, 64, 4):
                total += pl.sum(pl.load(x, [r, t], [8, 4]), axis=1)
            pl.store(total, [r], y)


OPTIONS = {
    "a": column_split("sequential"), "b": column_split("tree"), "c": column_split("loop"), "d": row_split,
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_the_options_of_the_combine_phase(option: str, golden: Callable[[str, str], None]) -> None:
    spec = pto.spec((64 if option == "d" else 8, 64), pl.f32)
    compiled = pto.jit(OPTIONS[option]).compile(spec, pto.spec((64,), pl.f32))
    drawn = "".join(f"// {line}\n" for node in compiled.loop_nest() for line in str(node).splitlines())
    golden(f"option_{option}.pto", drawn + compiled.ir("trimmed"))


def kinds(nodes: list[Any]) -> list[str]:
    return [kind for node in nodes for kind in (node.kind, *kinds(node.children))]


def test_a_tree_over_a_run_time_number_of_chunks_is_a_loop_of_levels() -> None:
    def kernel(x, y):
        s = 0.0
        for i in pl.range(x.shape[0], chunk=2, combine="tree"):
            s += x[i]
        y[0] = s

    nest = pto.jit(kernel).compile(X, X).loop_nest()
    assert kinds(nest) == ["chunk", "incore", "in_chunk", "incore", "while", "combine"]


@pytest.mark.parametrize(("size", "divided"), [(32, False), (256, True)])
def test_the_merges_of_a_level_are_divided_when_they_are_large(size: int, divided: bool) -> None:
    def kernel(a, b, c):
        with pl.incore():
            acc = pl.zeros([size, size], pl.f32)
            for k in pl.range(0, 64, 8, chunk=1, combine="tree"):
                acc += pl.dot(pl.load(a, [0, k], [size, 8]), pl.load(b, [k, 0], [8, size]))
            pl.store(acc, [0, 0], c)

    a = np.ones((size, 64), np.float32)
    compiled = pto.jit(kernel).compile(a, a.T.copy(), np.zeros((size, size), np.float32))
    levels = [line for line in compiled.ir("reduced").splitlines() if "combine=tree" in line]
    assert len(levels) == 3 and all(("grain=" in line) == divided for line in levels)
    results = []
    for workers in (1, 3):
        c = np.zeros((size, size), np.float32)
        pto.jit(kernel, num_threads=workers)(a, a.T.copy(), c)
        results.append(c)
    assert np.array_equal(results[0], results[1]) and (results[0] == 64).all()


# -- programs as text -----------------------------------------------------------------------------------------------


def split(text: str) -> tuple[Module, list[Decision]]:
    decisions: list[Decision] = []
    before = parse(text)
    verify(before, infer)
    after = split_reductions(before, decisions)
    verify(after, infer, properties=["reduced"])
    assert parse(to_text(after)) == after
    return after, decisions


def loops(module: Module) -> list[For]:
    return [s for s in statements(module.func(module.entry).body) if isinstance(s, For)]


def loop(body: str, *, before: str = "", after: str = "", options: str = "kind=parallel, chunk=3") -> str:
    return f"""
func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>, %n: i64) {{
  {before}
  FOR %i:idx, 0:idx, %n:idx, 1:idx {{{options}}}
    %e = sgetelem %x[%i] : f32
    {body}
  ENDFOR
  {after}
}}
"""


S = "%s = scopy 2.0:f32 : f32"
OUT = "ssetelem %s, %y[0]"
FORMS: dict[str, tuple[str, Callable[[Any], float]]] = {
    "sum": ("%s = sadd %s, %e : f32", lambda e: 2 + e.sum()),
    "other order": ("%s = sadd %e, %s : f32", lambda e: 2 + e.sum()),
    "difference": ("%s = ssub %s, %e : f32", lambda e: 2 - e.sum()),
    "multiply-add": ("%s = sfma %e, %e, %s : f32", lambda e: 2 + (e * e).sum()),
    "product": ("%s = smul %s, %e : f32", lambda e: 2 * e.prod()),
    "maximum": ("%s = smax %s, %e : f32", lambda e: max(2, e.max())),
    "minimum": ("%s = smin %e, %s : f32", lambda e: min(2, e.min())),
    "through copies": ("%a = scopy %s : f32\n%b = sadd %a, %e : f32\n%s = scopy %b : f32", lambda e: 2 + e.sum()),
    "twice": ("%s = sadd %s, %e : f32\n%s = ssub %s, 1.0:f32 : f32", lambda e: 2 + e.sum() - e.size),
    "selected": ("%c = sgt %e, 3.0:f32 : bool_\n%t = sadd %s, %e : f32\n%s = sselect %c, %t, %s : f32",
                 lambda e: 2 + e[e > 3].sum()),
    "under a condition": ("%c = sgt %e, 3.0:f32 : bool_\nIF %c\n%s = sadd %s, %e : f32\nENDIF",
                          lambda e: 2 + e[e > 3].sum()),
    "in a loop": ("FOR %j:idx, 0:idx, 3:idx, 1:idx\n%s = sadd %s, %e : f32\nENDFOR", lambda e: 2 + 3 * e.sum()),
    "after continue": ("%c = sgt %e, 3.0:f32 : bool_\nIF %c\nCONTINUE\nENDIF\n%s = sadd %s, %e : f32",
                       lambda e: 2 + e[e <= 3].sum()),
}  # fmt: skip


@pytest.mark.parametrize("combine", ["sequential", "tree", "loop"])
@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_reduction_is_split_and_means_the_same(form: str, combine: str) -> None:
    body, meaning = FORMS[form]
    text = loop(body, before=S, after=OUT, options=f"kind=parallel, chunk=3, combine={combine}")
    after, decisions = split(text)
    assert {"chunk", "in_chunk", "combine"} <= {one.kind for one in loops(after)}
    assert [d.applied for d in decisions if d.kind == "reduction"] == [True]
    for n in (0, 1, 3, 7, 12):
        y = np.zeros(1, np.float32)
        interpreter.run(after, [X, y, n])
        assert y[0] == (meaning(X[:n]) if n else 2), (form, n)


READ, WRITE = "%r = sgetelem %y[1] : f32\n", "ssetelem %w, %y[1]\n"
PLACES: dict[str, tuple[str, Callable[[Any], float]]] = {
    "sum": (f"{READ}%w = sadd %e, %r : f32\n{WRITE}", lambda e: 2 + e.sum()),
    "minimum": (f"{READ}%w = smin %r, %e : f32\n{WRITE}", lambda e: min(2, e.min())),
    "two updates": (
        f"{READ}%w = sadd %r, %e : f32\n{WRITE}%q = sgetelem %y[1] : f32\n%v = ssub %q, 1.0:f32 : f32\nssetelem %v, %y[1]",
        lambda e: 2 + e.sum() - e.size,
    ),
    "an index computed inside": (
        "%k = ssub 2, 1 : i64\n%r = sgetelem %y[%k] : f32\n%w = sadd %r, %e : f32\nssetelem %w, %y[%k]",
        lambda e: 2 + e.sum(),
    ),
    "a view": (
        "%v = tview %y[1] [1] : !pto.memref<gm,?,f32>\n%r = sgetelem %v[0] : f32\n%w = sadd %r, %e : f32\n"
        "ssetelem %w, %v[0]",
        lambda e: 2 + e.sum(),
    ),
    "under a condition": (
        f"%c = sgt %e, 3.0:f32 : bool_\nIF %c\n{READ}%w = sadd %r, %e : f32\n{WRITE}ENDIF",
        lambda e: 2 + e[e > 3].sum(),
    ),
    "in a loop": (
        f"FOR %j:idx, 0:idx, 3:idx, 1:idx\n{READ}%w = sadd %r, %e : f32\n{WRITE}ENDFOR", lambda e: 2 + 3 * e.sum()
    ),
}  # fmt: skip


@pytest.mark.parametrize("combine", ["sequential", "tree", "loop"])
@pytest.mark.parametrize("form", PLACES)
def test_a_place_in_memory_is_reduced_like_a_variable(form: str, combine: str) -> None:
    body, meaning = PLACES[form]
    after, _ = split(loop(body, options=f"kind=parallel, chunk=3, combine={combine}"))
    assert "combine" in {one.kind for one in loops(after)}
    for n in (0, 1, 3, 12):
        y = np.array([9, 2], np.float32)
        interpreter.run(after, [X, y, n])
        assert y.tolist() == [9, meaning(X[:n]) if n else 2], (form, n)


def test_a_loop_that_runs_no_iteration_does_not_touch_the_place() -> None:
    after, _ = split(loop("%r = sgetelem %y[%n] : f32\n%w = sadd %r, %e : f32\nssetelem %w, %y[%n]"))
    interpreter.run(after, [X, np.zeros(0, np.float32), 0])
    guarded = "IF %ok\n%r = sgetelem %y[%n] : f32\n%w = sadd %r, %e : f32\nssetelem %w, %y[%n]\nENDIF"
    after, _ = split(loop(guarded, before="%ok = slt %n, 2 : bool_"))
    interpreter.run(after, [X, np.zeros(1, np.float32), 12])
    y = np.zeros(2, np.float32)
    interpreter.run(after, [X, y, 1])
    assert y[1] == X[0]


def test_several_reductions_of_one_loop_share_its_chunks() -> None:
    body = """%s = sadd %s, %e : f32
    %r = sgetelem %y[1] : f32
    %w = smax %r, %e : f32
    ssetelem %w, %y[1]
    %q = sgetelem %y[2] : f32
    %v = smul %q, 2.0:f32 : f32
    ssetelem %v, %y[2]"""
    after, decisions = split(loop(body, before=S, after=OUT))
    assert [one.kind for one in loops(after)] == ["chunk", "in_chunk", "combine"]
    assert len([d for d in decisions if d.kind == "reduction" and d.applied]) == 3
    y = np.ones(3, np.float32)
    interpreter.run(after, [X, y, 5])
    assert y.tolist() == [17, 5, 32]


def test_what_depends_on_the_iteration_is_no_reduction() -> None:
    text = loop("%r = sgetelem %y[%i] : f32\n%w = sadd %r, %e : f32\nssetelem %w, %y[%i]")
    before = parse(text)
    assert split_reductions(before, []) is before


def test_a_parallel_loop_without_a_chunk_gets_one_from_its_extent() -> None:
    text = loop("%s = sadd %s, %e : f32", before=S, after=OUT, options="kind=parallel").replace(
        "%n:idx", "10000000:idx"
    )
    after, decisions = split(text)
    chunk, in_chunk, combine = loops(after)
    assert chunk.stop.value == combine.stop.value == 64  # type: ignore[union-attr]
    assert [r.combine for r in in_chunk.reductions] == ["add"]
    assert any("no chunk is given" in d.reason for d in decisions)
    heavy = "FOR %j:idx, 0:idx, 9:idx, 1:idx\n%s = sadd %s, %e : f32\nENDFOR"
    after, _ = split(loop(heavy, before=S, after=OUT, options="kind=parallel").replace("%n:idx", "100:idx"))
    assert loops(after)[0].stop.value == 50  # type: ignore[union-attr]


@pytest.mark.parametrize(("start", "stop", "step"), [(9, -1, -1), (11, 0, -3), (0, 12, 5), (5, 5, -1), (0, 9, -2)])
@pytest.mark.parametrize("constant", [True, False])
def test_a_parallel_loop_may_count_down(start: int, stop: int, step: int, constant: bool) -> None:
    where = (start, stop, step) if constant else ("%a", "%b", "%c")
    text = f"""
func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>, %a: i64, %b: i64, %c: i64) {{
  %s = scopy 0.0:f32 : f32
  FOR %i:idx, {where[0]}:idx, {where[1]}:idx, {where[2]}:idx {{kind=parallel}}
    %e = sgetelem %x[%i] : f32
    %s = sadd %s, %e : f32
  ENDFOR
  ssetelem %s, %y[0]
}}
"""
    after, _ = split(text)
    y = np.zeros(1, np.float32)
    interpreter.run(after, [X, y, start, stop, step])
    assert y[0] == sum(X[i] for i in range(start, stop, step))


# -- nests ----------------------------------------------------------------------------------------------------------

NEST = """
func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?,f32>, %n: i64, %m: i64) {{
  FOR %i:idx, 0:idx, %n:idx, 1:idx {{{outer}}}
    {between}
    FOR %j:idx, {low}:idx, %m:idx, 1:idx {{{inner}}}
      %e = sgetelem %x[%i, %j] : f32
      %r = sgetelem %y[{place}] : f32
      %w = sadd %r, %e : f32
      ssetelem %w, %y[{place}]
    ENDFOR
  ENDFOR
}}
"""


def nest(outer: str, inner: str, *, place: str = "0", low: str = "0", between: str = "") -> tuple[list[str], float]:
    after, _ = split(NEST.format(outer=outer, inner=inner, place=place, low=low, between=between))
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    y = np.zeros(8, np.float32)
    interpreter.run(after, [x, y, 5, 7])
    expected = np.zeros(8, np.float32)
    for i in range(5):
        for j in range(i if low == "%i" else 0, 7):
            expected[i if place == "%i" else 0] += x[i, j]
    assert np.array_equal(y, expected)
    return [one.kind for one in loops(after)], float(y[0])


def test_a_reduction_over_a_nest_is_split_as_a_whole() -> None:
    both = ["chunk", "chunk", "in_chunk", "in_chunk", "combine"]
    assert nest("kind=parallel, chunk=2", "kind=parallel, chunk=3")[0] == both
    assert nest("kind=parallel", "kind=parallel")[0] == both
    arithmetic = "%k = smul %i, 2 : i64"
    assert nest("kind=parallel, chunk=2", "kind=parallel, chunk=3", between=arithmetic)[0] == both


def test_a_nest_whose_inner_bounds_depend_on_the_outer_variable_is_split_outside_only() -> None:
    found, _ = nest("kind=parallel, chunk=2", "kind=parallel", low="%i")
    assert found == ["chunk", "in_chunk", "in_chunk", "combine"]


def test_a_reduction_inside_each_iteration_needs_no_partial_results() -> None:
    found, _ = nest("kind=parallel, chunk=2", "kind=parallel", place="%i")
    assert found == ["parallel", "in_chunk"]
    found, _ = nest("kind=parallel, chunk=2", "kind=parallel, chunk=3", place="%i")
    assert found == ["parallel", "chunk", "in_chunk", "combine"]


def columns(outer: str = "kind=parallel", stop: str = "%m") -> str:
    text = NEST.format(outer=outer, inner="kind=parallel", place="%j", low="0", between="")
    return text.replace("%m:idx", f"{stop}:idx")


@pytest.mark.parametrize("combine", ["sequential", "tree", "loop"])
@pytest.mark.parametrize("stop", ["%m", "%i"])
def test_an_array_that_all_iterations_accumulate_into_has_a_copy_per_chunk(stop: str, combine: str) -> None:
    after, decisions = split(columns(f"kind=parallel, chunk=2, combine={combine}", stop))
    assert {"chunk", "sequential", "parallel", "combine"} == {one.kind for one in loops(after)}  # one copy for a chunk
    assert [d.applied for d in decisions if d.kind == "reduction"] == [True]
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    for n in (0, 1, 5):
        y = np.ones(9, np.float32)
        interpreter.run(after, [x, y, n, 7])
        expected = np.ones(9, np.float32)
        for i in range(n):
            expected[: 7 if stop == "%m" else i] += x[i, : 7 if stop == "%m" else i]
        assert np.array_equal(y, expected)


def test_copies_of_a_tensor_are_few_when_it_is_large() -> None:
    for extent, parts in ((100, 50), (1 << 20, 4), (1 << 30, 1)):
        text = columns().replace("%y: !pto.memref<gm,?,f32>", f"%y: !pto.memref<gm,{extent},f32>")
        after, _ = split(text.replace("%n:idx", "100:idx"))
        assert loops(after)[0].stop.value == parts  # type: ignore[union-attr]


def test_disjoint_blocks_and_other_updates_of_an_array_are_no_reduction() -> None:
    blocks = NEST.format(outer="kind=parallel", inner="kind=parallel", place="%j", low="%i", between="")
    assert [one.kind for one in loops(split(blocks)[0])] == ["parallel", "parallel"]
    weighted = columns().replace("sadd %r, %e", "ssub %e, %r")
    assert [one.kind for one in loops(split(weighted)[0])] == ["parallel", "parallel"]


def test_an_array_is_updated_in_order_inside_a_loop_that_is_divided_already() -> None:
    text = columns().replace("%y: !pto.memref<gm,?,f32>", "%y: !pto.memref<gm,?x?,f32>").replace("%y[%j]", "%y[%k, %j]")
    at, end = text.index("  FOR"), text.rindex("}")
    around = f"  FOR %k:idx, 0:idx, 3:idx, 1:idx {{kind=parallel}}\n{text[at:end]}  ENDFOR\n"
    after, decisions = split(text[:at] + around + text[end:])
    assert [one.kind for one in loops(after)] == ["parallel", "sequential", "parallel"]
    assert any("in order" in d.reason and not d.applied for d in decisions)
    alone, _ = split(text.replace("%k", "2"))  # one row of it: a copy per chunk is a row
    (memory,) = [s for s in statements(alone.func(alone.entry).body) if isinstance(s, Op) and s.op == "alloc"]
    assert len(memory.args) == 2
    x, y = np.arange(35, dtype=np.float32).reshape(5, 7), np.zeros((3, 7), np.float32)
    interpreter.run(alone, [x, y, 5, 7])
    assert np.array_equal(y[2], x.sum(0)) and not y[:2].any()


def test_memory_for_partial_results_is_taken_before_a_sequential_loop() -> None:
    after, _ = split(
        NEST.format(outer="kind=sequential", inner="kind=parallel, chunk=3", place="%i", low="0", between="")
    )
    body = after.func(after.entry).body
    assert any(isinstance(s, Op) and s.op == "alloc" for s in body)


# -- what is refused ------------------------------------------------------------------------------------------------


def used_elsewhere(x, y, n):
    s = 0.0
    for i in pl.range(n, parallel=True):  # note
        s += x[i]
        y[i] = s  # error: PTO-L004


def two_kinds(x, y, n):
    s = 1.0
    for i in pl.range(n, parallel=True):  # note
        s += x[i]
        s *= x[i]  # error: PTO-L004
    y[0] = s


def weighted(x, y, n):
    s = 0.0
    for i in pl.range(n, chunk=4):  # note
        s = s * 0.5 + x[i]  # error: PTO-L004
    y[0] = s


def decides(x, y, n):
    m = 0.0
    for i in pl.range(n, parallel=True):  # note
        if x[i] > m:  # error: PTO-L004
            m = x[i]
    y[0] = m


def in_two_sums(x, y, n):
    a = 0.0
    b = 0.0
    for i in pl.range(n, parallel=True):  # note
        a += x[i]
        b += a  # error: PTO-L004
    y[0] = a + b


def place_weighted(x, y, n):
    for i in pl.range(n, parallel=True):  # note
        y[0] = y[0] * 2.0 + x[i]  # error: PTO-L005


def place_read_elsewhere(x, y, n):
    for i in pl.range(n, parallel=True):  # note
        y[0] += x[i] * y[i]  # error: PTO-L005


def place_of_another_kind(x, y, n):
    for i in pl.range(n, parallel=True):  # note
        y[0] += x[i]
        y[0] = pl.maximum(y[0], x[i])  # error: PTO-L005


def test_a_sum_in_a_wider_dtype_than_its_place_says_what_to_convert() -> None:
    def total(x, y):
        for i in pl.range(x.shape[0], parallel=True):
            y[0] += x[i]

    def converted(x, y):
        for i in pl.range(x.shape[0], parallel=True):
            y[0] += x[i].to(y.dtype)

    for wide, narrow in ((np.float32, np.float16), (np.int64, np.int32), (np.float64, np.float32)):
        x, y = np.arange(40).astype(wide), np.zeros(1, narrow)
        with pytest.raises(ScheduleError, match=r"not a reduction: it is of .* and combined in .* here") as caught:
            pto.jit(total)(x, y)
        assert caught.value.hint is not None and "`.to(pl." in caught.value.hint
        pto.jit(converted)(x, y)
        assert y[0] == 780


REFUSED = [
    used_elsewhere, two_kinds, weighted, decides, in_two_sums, place_weighted, place_read_elsewhere,
    place_of_another_kind,
]  # fmt: skip


@pytest.mark.parametrize("fn", REFUSED, ids=[fn.__name__ for fn in REFUSED])
def test_what_is_no_reduction_is_refused_with_both_places(fn: Callable[..., None]) -> None:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    first = fn.__code__.co_firstlineno
    marks = {k + 1: line.split("# ", 1)[1] for k, line in enumerate(lines[first : first + 9], first) if "  # " in line}
    own = sorted(k for k in marks if k <= max(line or 0 for _, _, line in fn.__code__.co_lines()))
    with pytest.raises(ScheduleError) as caught:
        pto.jit(fn).compile(X, X.copy(), 8)
    error = caught.value
    (at,) = [k for k in own if marks[k].startswith("error")]
    (note,) = [k for k in own if marks[k] == "note"]
    assert error.code == marks[at].split()[1]
    assert error.lineno == at and note in [n.loc.lineno for n in error.notes if n.loc is not None]
    assert error.hint and "loop sequential" in error.hint


def test_a_last_value_is_refused() -> None:
    text = loop("%s = scopy %e : f32", before=S, after=OUT)
    with pytest.raises(CompilationError, match="no particular iteration"):
        split_reductions(parse(text), [])


def test_numbers_of_devices_are_merged_in_one_loop_over_variables() -> None:
    """Whatever `combine` says; an element of a tensor is read and written once, after it."""
    text = """
func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
  %n = sdim %x {axis=0} : i64
  FOR %i:idx, 0:idx, %n:idx, 1:idx {kind=parallel, chunk=16, combine=tree}
    %e = sgetelem %x[%i] : f32
    %o = sgetelem %y[0] : f32
    %t = sadd %o, %e : f32
    ssetelem %t, %y[0]
  ENDFOR
  return
}
"""
    after = split_reductions(parse(text), [], device=True)
    verify(after, infer, properties=["reduced"])
    merged = [one for one in loops(after) if one.kind == "combine"]
    assert [one.combine for one in merged] == ["sequential"]
    assert not any(isinstance(s, Op) and s.op == "setelem" for s in merged[0].body)
    last = after.func(after.entry).body
    assert sum(isinstance(s, Op) and s.op == "setelem" for s in last) == 1
    plain = [one for one in loops(split(text)[0]) if one.kind == "combine"]
    assert [one.combine for one in plain] == ["tree"]


@pytest.mark.parametrize("chunk", ["", ", chunk=3"])
def test_a_device_folds_chunks_inside_a_divided_loop_in_order(chunk: str) -> None:
    text = NEST.format(outer="kind=parallel, chunk=2", inner=f"kind=parallel{chunk}", place="%i", low="0", between="")
    after = split_reductions(parse(text), [], device=True)
    verify(after, infer, properties=["reduced"])
    assert [one.kind for one in loops(after)] == ["parallel", "in_chunk"]
    run_time = split_reductions(parse(text.replace("chunk=3", "chunk=%m")), [], device=True)
    assert ("chunk" in [one.kind for one in loops(run_time)]) == bool(chunk)


def test_a_loop_of_no_iterations_inside_a_divided_one_is_none() -> None:
    text = NEST.format(outer="kind=parallel, chunk=2", inner="kind=parallel", place="%i", low="0", between="")
    after = split_reductions(parse(text.replace("0:idx, %m:idx", "0:idx, 0:idx")), [], device=True)
    verify(after, infer)
    assert len(loops(after)) <= 1

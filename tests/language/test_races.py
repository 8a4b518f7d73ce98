# SPDX-License-Identifier: MIT
"""Interpret mode finds iterations of a parallel loop that touch one element, and memory that nothing wrote."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit.language as pl
from pto_jit.errors import LaunchError, RaceError
from pto_jit.language._interpret import run


def race(kernel: Callable[..., Any], *args: Any) -> str:
    """The message of the race that `kernel` must have under every order."""
    messages = []
    for seed in range(3):
        with pytest.raises(RaceError) as caught:
            run(kernel, args, {}, seed=seed)
        messages.append(str(caught.value))
    return messages[0]


def fine(kernel: Callable[..., Any], *args: Any) -> None:
    for seed in range(3):
        run(kernel, args, {}, seed=seed)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def test_the_message_names_iterations_element_and_both_places() -> None:
    def kernel(x: Any) -> None:
        for i in pl.range(1, 8, parallel=True):
            x[i] = x[i - 1] + 1

    text = race(kernel, zeros(8))
    head = re.match(
        r"PTO-L900: kernel: iteration (\d) of the loop over `i` (\w+) `x\[(\d)\]`, which iteration (\d) (\w+)\n", text)
    assert head is not None, text
    second, does, at, first, did = head.groups()
    writer, reader = (first, second) if did == "writes" else (second, first)
    assert {did, does} == {"writes", "reads"} and writer == at and int(reader) == int(writer) + 1
    assert "x[i] = x[i - 1] + 1" in text and "note: the loop over `i`" in text and "help:" in text
    here = kernel.__code__.co_firstlineno
    assert text.count(f"test_races.py:{here + 2}:") == 2 and f"test_races.py:{here + 1}:" in text
    assert {"^^^^", "^^^^^^^^"} <= set(re.findall(r"\| +(\^+)\n", text)), "the exact range of each access is underlined"


def test_two_iterations_write_one_element() -> None:
    def kernel(x: Any) -> None:
        for i in pl.range(6, chunk=2):
            x[i // 2] = 1.0

    assert re.search(r"iterations \d and \d of the loop over `i` both write `x\[\d\]`", race(kernel, zeros(3)))


def test_tiles_that_overlap_in_part() -> None:
    def kernel(x: Any, y: Any) -> None:
        for i in pl.range(0, 12, 3, parallel=True):
            pl.store(pl.load(x, [i, 0], [4, 2]), [i, 0], y)

    assert re.search(r"both write `y\[\d+, 0\]`", race(kernel, zeros(12, 2), zeros(12, 2)))


def test_clipped_tiles_do_not_overlap() -> None:
    def kernel(x: Any, y: Any) -> None:
        for i in pl.range(0, 10, 4, parallel=True):
            pl.store(pl.load(x, [i], [4]), [i], y)
            y[i : i + 4] = x[i : i + 4] * 2

    fine(kernel, zeros(10), zeros(10))


def test_a_view_and_its_tensor_and_arguments_that_share_memory() -> None:
    def kernel(a: Any, b: Any) -> None:
        column = a[:, 1]
        for i in pl.range(4, parallel=True):
            column[i] = b[i]

    memory = zeros(4, 4)
    assert "`a[" in race(kernel, memory, memory[2])
    fine(kernel, memory, memory[:, 0])
    shared = np.zeros(32, np.uint8)

    def bytewise(a: Any, b: Any) -> None:
        for i in pl.range(8, parallel=True):
            a[i] = b[4 * i + 4] if i < 7 else b[0]

    race(bytewise, shared.view(np.int32), shared)

    def same(a: Any, b: Any) -> None:
        for i in pl.range(8, parallel=True):
            a[i] = b[4 * i + 3]

    fine(same, shared.view(np.int32), shared)


def test_inner_loops_are_checked_for_themselves_and_for_the_outer_ones() -> None:
    def outer_only(x: Any) -> None:
        for i in pl.range(3, parallel=True):
            for j in pl.range(4, parallel=True):
                x[j] = i

    def inner_only(x: Any) -> None:
        for i in pl.range(3):
            for j in pl.range(4, parallel=True):
                x[i] = j

    def none(x: Any, y: Any) -> None:
        for i in pl.range(3):
            for j in pl.range(4, parallel=True):
                x[j] = y[j] + i
            for j in pl.range(4, parallel=True):
                y[3 - j] = x[j]

    assert "of the loop over `i`" in race(outer_only, zeros(4)).splitlines()[0]
    assert "of the loop over `j`" in race(inner_only, zeros(4)).splitlines()[0]
    fine(none, zeros(4), zeros(4))


def test_reductions_are_no_races_but_mixing_them_is() -> None:
    def good(x: Any, y: Any, z: Any) -> None:
        for i in pl.range(8, parallel=True):
            y[0] += x[i]
            y[1] = y[1] * 2
            y[2] = pl.maximum(y[2], x[i])
            if x[i] > 0:
                y[3] = min(x[i], y[3])
            z[0:4] += x[i]
            z[4:8] = pl.maximum(z[4:8], pl.load(x, [0], [4]))
            pl.store(pl.load(z, [8], [4]) + 1, [8], z)
            pl.atomic_add(z, [12], pl.load(x, [0], [4]))

    def also_read(x: Any, y: Any) -> None:
        for i in pl.range(8, parallel=True):
            y[0] += x[i]
            x[i] = y[0]

    def two_operations(x: Any, y: Any) -> None:
        for i in pl.range(8, parallel=True):
            if i % 2:
                y[0] += x[i]
            else:
                y[0] *= 2

    def inside(x: Any, y: Any) -> None:
        for i in pl.range(8, parallel=True):
            y[0] += y[i % 2]

    fine(good, np.arange(8, dtype=np.float32), zeros(4), zeros(16))
    race(also_read, zeros(8), zeros(1))
    race(two_operations, zeros(8), zeros(1))
    race(inside, zeros(8), zeros(2))


def test_atomics_with_each_other_are_fine_and_with_reads_are_not() -> None:
    def counts(x: Any, y: Any) -> None:
        for i in pl.range(8, parallel=True):
            pl.atomic_add(y, [x[i]], pl.ones([1], pl.i32))

    def reads(x: Any, y: Any) -> None:
        for i in pl.range(8, parallel=True):
            pl.atomic_add(y, [0], pl.ones([1], pl.i32))
            x[i] = y[0]

    x, y = np.arange(8, dtype=np.int32) % 3, np.zeros(3, np.int32)
    fine(counts, x, y)
    np.testing.assert_array_equal(y, np.bincount(x) * 3)
    assert "updates" in race(reads, x, y).splitlines()[0]


def test_scatter_and_indirect_reads_are_looked_at_element_by_element() -> None:
    def scatter(index: Any, x: Any) -> None:
        for i in pl.range(4, parallel=True):
            pl.scatter(pl.ones([2], pl.f32), pl.load(index, [2 * i], [2]), 0, x)

    def take(index: Any, x: Any) -> None:
        for i in pl.range(4, parallel=True):
            t = x[pl.load(index, [i], [1]), :]
            pl.store(t, [i, 0], x)

    order = np.random.default_rng(0).permutation(8).astype(np.int32)
    fine(scatter, order, zeros(8))
    race(scatter, np.array([0, 1, 2, 3, 4, 0, 6, 7], np.int32), zeros(8))
    fine(take, np.arange(4, dtype=np.int32), zeros(4, 2))
    race(take, np.array([1, 1, 2, 3], np.int32), zeros(4, 2))


def test_what_an_iteration_makes_for_itself_is_its_own() -> None:
    def kernel(x: Any) -> None:
        for i in pl.range(6, parallel=True):
            t = pl.zeros([4], pl.f32)
            t[0] = i
            t += 1
            for j in pl.range(4, parallel=True):
                t[j] = t[j] + j
            x[i] = t[0]

    fine(kernel, zeros(6))


def test_a_temporary_that_the_iterations_share_is_checked() -> None:
    def kernel(x: Any) -> None:
        t = pl.zeros([4], pl.f32)
        for i in pl.range(6, parallel=True):
            t[0] = i
            x[i] = t[0]

    assert "`t`" in race(kernel, zeros(6))


def test_sequential_loops_and_later_loops_are_not_compared() -> None:
    def kernel(x: Any) -> None:
        for i in pl.range(1, 8):
            x[i] = x[i - 1] + 1
        for i in pl.range(8, parallel=True):
            x[i] += 1
        for i in pl.range(8, parallel=True):
            x[7 - i] += 1

    fine(kernel, zeros(8))


def test_the_run_after_a_race_is_a_new_one() -> None:
    def kernel(x: Any, stride: int) -> None:
        for i in pl.range(4, parallel=True):
            x[i * stride] = i

    race(kernel, zeros(8), 0)
    fine(kernel, zeros(8), 2)


def test_an_element_that_was_never_written_is_not_read() -> None:
    def kernel(n: int, i: int) -> Any:
        t = pl.empty([8], pl.i32)
        t[0] = 5
        t[2:4] = 1
        pl.store(pl.ones([n], pl.i32), [4], t)
        return t[i]

    assert [run(kernel, (3, i), {}) for i in (0, 2, 3, 4, 6)] == [5, 1, 1, 1, 1]
    for i in (1, 7):
        with pytest.raises(LaunchError, match=r"never written(.|\n)*return t\[i\](.|\n)*help: "):
            run(kernel, (3, i), {})


def test_tiles_of_memory_that_was_never_written_show_it() -> None:
    def kernel(dtype: Any) -> Any:
        return pl.load(pl.empty([2], dtype)) + 0

    assert np.isnan(run(kernel, (pl.f32,), {})).all()
    assert (run(kernel, (pl.i32,), {}) == np.int32(-1515870811)).all()


def written(rng: random.Random) -> tuple[str, Callable[[int, int], list[tuple[str, bool, tuple[int, ...]]]]]:
    """The body of a nest over i and j as text, and what it does: (tensor, writes, elements) of each iteration."""
    lines: list[str] = []
    does: list[Callable[[int, int], tuple[str, bool, tuple[int, ...]]]] = []
    for _ in range(rng.randint(1, 3)):
        a, b, c = rng.choice([0, 1, 2, 3, 4]), rng.choice([0, 0, 1, 2, 4]), rng.randint(0, 3)
        width, name, kind = rng.choice([1, 1, 2, 3]), rng.choice("xy"), rng.choice(["load", "store", "get", "set"])
        at = f"{a} * i + {b} * j + {c}"
        width = width if kind in ("load", "store") else 1
        lines.append({
            "load": f"pl.load({name}, [{at}], [{width}])", "get": f"{name}[{at}]", "set": f"{name}[{at}] = 1.0",
            "store": f"pl.store(pl.ones([{width}], pl.f32), [{at}], {name})",
        }[kind])  # fmt: skip

        def access(i: int, j: int, a=a, b=b, c=c, w=width, n=name, k=kind) -> tuple[str, bool, tuple[int, ...]]:
            first = a * i + b * j + c
            return n, k in ("store", "set"), tuple(range(first, first + w))

        does.append(access)
    return "\n            ".join(lines), lambda i, j: [access(i, j) for access in does]


@pytest.mark.parametrize("block", range(6))
def test_random_nests_race_exactly_when_two_iterations_conflict(block: int) -> None:
    found = 0
    for seed in range(block * 40, block * 40 + 40):
        rng = random.Random(seed)
        body, does = written(rng)
        kinds = rng.choice([("parallel=True", ""), ("", "parallel=True"), ("parallel=True", "chunk=2")])
        outer, inner = (f", {k}" if k else "" for k in kinds)
        text = f"def kernel(x, y):\n    for i in pl.range(4{outer}):\n        for j in pl.range(3{inner}):\n            {body}\n"
        scope: dict[str, Any] = {"pl": pl}
        exec(text, scope)
        expected = False
        if kinds[0]:
            each = [list(itertools.chain(*(does(i, j) for j in range(3)))) for i in range(4)]
            expected |= conflicts(each)
        if kinds[1]:
            expected |= any(conflicts([does(i, j) for j in range(3)]) for i in range(4))
        try:
            run(scope["kernel"], (zeros(40), zeros(40)), {}, seed=seed)
            raced = False
        except RaceError:
            raced = True
        assert raced == expected, f"seed {seed}\n{text}"
        found += raced
    assert 5 < found < 35, "both kinds are among them"


def conflicts(iterations: list[list[tuple[str, bool, tuple[int, ...]]]]) -> bool:
    """Whether two iterations touch one element, at least one writing: by comparing everything with everything."""
    for one, two in itertools.combinations(iterations, 2):
        for (name, writes, elements), (other, rewrites, others) in itertools.product(one, two):
            if name == other and (writes or rewrites) and set(elements) & set(others):
                return True
    return False


def test_the_error_says_for_programs_what_the_message_says_for_people() -> None:
    def kernel(x: Any) -> None:
        for i in pl.range(4, parallel=True):
            x[i, 0] = x[3 - i, 0]

    with pytest.raises(RaceError) as caught:
        run(kernel, (zeros(4, 2),), {})
    error: Any = caught.value
    assert error.code == "PTO-L900" and error.loop == "i" and error.tensor == "x"
    assert sum(error.iterations) == 3 and error.element[1] == 0 and error.element[0] in error.iterations
    assert {place.col_offset for place in error.places} == {12, 22}


def test_an_update_of_a_place_that_differs_among_iterations_is_no_reduction() -> None:
    def counted(x: Any, y: Any) -> None:
        for i in pl.range(8, parallel=True):
            y[x[i]] += 1

    def named(x: Any, y: Any) -> None:
        for i in pl.range(8, parallel=True):
            k = x[i]
            y[k] = y[k] + 1

    def of_a_view(x: Any, y: Any) -> None:
        for i in pl.range(8, parallel=True):
            part = y[i // 2 : i // 2 + 2]
            part += 1

    def shifted(x: Any, y: Any) -> None:
        for i in pl.range(8, parallel=True):
            for j in range(i, i + 2):
                y[j] += 1

    def fixed(x: Any, y: Any) -> None:
        for i in pl.range(8, parallel=True):
            some = y[0:2]
            some += x[i]
            for j in range(i % 3):
                y[j] += 1
            y[x.shape[0] - 1] += 1

    for kernel in (counted, named, of_a_view, shifted):
        told = race(kernel, (np.arange(8) // 3).astype(np.int32), np.zeros(16, np.int32))
        assert "help: use `pl.atomic_add`" in told
    fine(fixed, np.arange(8, dtype=np.int32), np.zeros(16, np.int32))

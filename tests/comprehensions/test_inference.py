# SPDX-License-Identifier: MIT
"""Inferred ranges: the examples of the literature, and random comprehensions against enumeration."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.comprehensions import Comprehension
from pto_jit.comprehensions.inference import Inferred
from pto_jit.comprehensions.program import analyse
from pto_jit.comprehensions.text import parse

EXAMPLES = [
    # (parameters, statement, ranges)
    ("float(I) B", "A(i) = B(i)", {"i": "0:I"}),
    ("float(I) B, float(J) C", "A(i) = B(i) + C(i - 2)", {"i": "2:min(I, J + 2)"}),
    ("float(I) B, float(I) C", "A(i) = B(i) + C(i - 2)", {"i": "2:I"}),
    ("float(M, K) A_, float(K, N) B", "A(m, n) +=! A_(m, k) * B(k, n)", {"m": "0:M", "n": "0:N", "k": "0:K"}),
    ("float(M, K) A_, float(L, N) B", "A(m, n) +=! A_(m, k) * B(k, n)", {"k": "0:min(K, L)"}),
    ("float(N) B, float(K) C", "A(i) +=! B(i + k) * C(k)", {"i": "0:N - K + 1", "k": "0:K"}),
    ("float(I) B", "A(i) = B(10 - i)", {"i": "11 - I:11"}),
    ("float(I) B", "A(i) = B(2*i)", {"i": "0:(I + 1)//2"}),
    ("float(I) B", "A(i) = B(123*i)", {"i": "0:(I + 122)//123"}),
    ("float(I) B", "A(i) = B(2*i) + B(2*i + 1)", {"i": "0:I//2"}),
    ("float(I) B", "A(i) +=! B(2*i + k) where k in 0:2", {"i": "0:I//2", "k": "0:2"}),
    ("float(I) B", "A(i) +=! B(3*i - k) where k in 0:2", {"i": "1:(I + 2)//3", "k": "0:2"}),
    ("float(I) B", "A(i) = B(i / 2)", {"i": "0:2*I"}),
    ("float(I) B", "A(i) = B((i + 1) / 3)", {"i": "-1:3*I - 1"}),
    ("float(I) B", "A(i) = B(I - 1 - i)", {"i": "0:I"}),
    ("float(I) B", "A(i) = B(i - 1)", {"i": "1:I + 1"}),
    ("float(I) B, float(J) C", "A(i, j) = B(i) + C(j + 3)", {"i": "0:I", "j": "-3:J - 3"}),
    ("float(N) A_, float c", "A(i) = c where exists A_(i)", {"i": "0:N"}),
    ("float(J) B, int32(I) C", "A(i) = B(C(i))", {"i": "0:I"}),
    ("float(N) B", "A(i) = B(i) where i in 2:N - 1", {"i": "2:N - 1"}),
    ("float(N) B, int32 S", "A(i) = B(i) where i in S:S + 2", {"i": "S:S + 2"}),
    ("float(N, M) B", "A(i) = B(i, i)", {"i": "0:min(M, N)"}),
    ("float(N) B", "A(i) = B(i + i)", {"i": "0:(N + 1)//2"}),
    ("float(N) B, float(M) C", "A(i) = B(min(i, 3)) * C(i)", {"i": "0:M"}),
]


def comprehension(parameters: str, statement: str) -> Comprehension:
    return pto.comprehension(f"def f({parameters}) -> (A) {{ {statement} }}")


@pytest.mark.parametrize(("parameters", "statement", "ranges"), EXAMPLES, ids=[e[1] for e in EXAMPLES])
def test_an_example(parameters: str, statement: str, ranges: dict[str, str]) -> None:
    found = comprehension(parameters, statement).infer().ranges
    assert {i: f"{low}:{high}" for i, (low, high) in found.items() if i in ranges} == ranges


def test_rounds_say_what_was_solved_from_what() -> None:
    rounds = comprehension("float(N) B, float(K) C", "A(i) +=! B(i + k) * C(k)").infer().rounds
    assert [list(r.solved) for r in rounds] == [["k"], ["i"]]
    assert rounds[0].solved["k"].accesses == ("C(k)",) and rounds[1].solved["i"].accesses == ("B(i + k)",)


def test_sizes_make_numbers() -> None:
    found = comprehension("float(M, K) X, float(K, N) Y", "A(m, n) +=! X(m, k) * Y(k, n)").infer(X=(3, 4), Y=(4, 5))
    assert found.ranges == {"m": (0, 3), "n": (0, 5), "k": (0, 4)}
    assert found.shapes == {"A": (3, 5)} and found.origins == {"A": (0, 0)} and not found.preconditions
    (only,) = found.statements
    assert only.ranges == found.ranges and "Expr" not in repr(only) and "Scope" not in repr(only)


def test_each_statement_has_its_own_ranges_and_rounds() -> None:
    c = pto.comprehension("""def f(float(N) X, float(M) Y, int32 s) -> (A, B) {
        A(i) = X(i)
        B(i) = Y(i + k) where k in s:s + 1
    }""".replace("B(i) =", "B(i) +=!"))
    found = c.infer()
    first, second = found.statements
    assert (first.target, second.target) == ("A", "B") and first.ranges.keys() == {"i"}
    assert str(first.ranges["i"][1]) == "N" and str(second.ranges["i"][1]) == "M - s"
    assert found.ranges == {**first.ranges, **second.ranges}  # of the last statement that has the index
    assert [list(r.solved) for r in second.rounds] == [["i"]] and found.rounds == [*first.rounds, *second.rounds]
    known = c.infer(X=(5,), Y=(9,), s=2)
    assert known.ranges == {"i": (-2, 7), "k": (2, 3)} and known.origins == {"A": (0,), "B": (-2,)}
    assert known.shapes == {"A": (5,), "B": (9,)}
    with pytest.raises(pto.ArgumentError, match="nothing says how large `s` is"):
        c.infer(X=(5,), Y=(9,))
    assert c.infer().ranges["i"][1].evaluate(M=9, s=2) == 7


def test_a_precondition_on_shapes_is_proven_or_checked() -> None:
    c = comprehension("float(I) B, float(J) D, float(L) C", "A(i, j) = B(i) * C(i + j) * D(j)")
    (condition,) = c.infer().preconditions
    assert condition.kind == "shape" and str(condition) == "C(i + j): i + j < L for all indices, so I + J <= L + 1"
    assert c.infer(B=(3,), D=(4,), C=(6,)).shapes == {"A": (3, 4)}
    with pytest.raises(pto.ShapeError, match=r"`?C\(i \+ j\).*I = 3, J = 4, L = 5") as caught:
        c.infer(B=(3,), D=(4,), C=(5,))
    assert caught.value.code == "PTO-R024"
    assert not comprehension("float(3) B, float(4) D, float(6) C", "A(i, j) = B(i) * C(i + j) * D(j)").infer().preconditions


def test_a_guard_discharges_a_precondition() -> None:
    with pytest.raises(pto.ShapeError, match="i - 2 >= 0` does not hold for all indices"):
        comprehension("float(N) X", "A(i) = X(i - 2) where i in 0:N")
    guarded = comprehension("float(N) X", "A(i) = (i >= 2) ? X(i - 2) : 0.0 where i in 0:N").infer()
    assert not guarded.preconditions
    # A guard by another size leaves a condition on sizes, one by the element itself none.
    either = comprehension("float(N) X, float(M) Y", "A(i) = (i < M) ? X(i) : 0.0 where i in 0:9").infer().preconditions
    assert [str(p) for p in either] == ["X(i): i < N for all indices, so 9 <= N or M <= N"]
    c = comprehension("float(N) X, int32(K) C", "A(i) = (C(i) < N && C(i) >= 0) ? X(C(i)) : 0.5")
    assert not c.infer().preconditions
    half = comprehension("float(N) X, int32(K) C", "A(i) = (C(i) < N) ? X(C(i)) : 0.5").infer().preconditions
    assert [str(p) for p in half] == ["X(C(i)): C(i) >= 0"]
    wrapping = comprehension("float(N) X, int32(K) C", "A(i) = (C(i)*2 < N && C(i) >= 0) ? X(C(i)*2) : 0.5").infer()
    assert len(wrapping.preconditions) == 2  # in 32 bits the product may be small again


def test_values_are_not_checked_unless_clamped() -> None:
    found = comprehension("float(J) B, int32(I) C", "A(i) = B(C(i))").infer()
    assert [p.kind for p in found.preconditions] == ["value", "value"] and len(found.warnings) == 2
    clamped = comprehension("float(J) B, int32(I) C", "A(i) = B(max(min(C(i), J - 1), 0))").infer()
    assert not clamped.warnings and [str(p) for p in clamped.preconditions] == [
        "B(maximum(minimum(C(i), J - 1), 0)): J is not 0"
    ]


def test_empty_ranges() -> None:
    c = comprehension("float(N) B, float(K) C", "A(i) +=! B(i + k) * C(k)")
    assert c.infer(B=(0,), C=(1,)).shapes == {"A": (0,)}
    assert c.infer(B=(4,), C=(4,)).ranges["i"] == (0, 1)
    for sizes in ((3, 4), (2, 9)):
        with pytest.raises(pto.ShapeError, match="empty for these sizes"):
            c.infer(B=(sizes[0],), C=(sizes[1],))
    assert comprehension("float(N) B", "A(i) = B(i) where i in 2:2").infer().ranges["i"] == (2, 2)


def test_a_later_statement_writes_a_part() -> None:
    text = "def f(float(N) X) -> (A) { A(i) = X(i) A(i) = 0.0 where i in 1:%s }"
    assert pto.comprehension(text % "3").infer().shapes["A"][0].evaluate(N=9) == 9
    with pytest.raises(pto.ShapeError, match="lies in"):
        pto.comprehension(text % "3").infer(X=(2,))
    with pytest.raises(pto.ShapeError, match="not contained") as caught:
        pto.comprehension(text % "N + 1")
    assert caught.value.code == "PTO-R027"


# -- random comprehensions ----------------------------------------------------------------------------------------


def random_statement(rng: random.Random) -> tuple[str, str, list[list[tuple[dict[str, int], int, str]]]]:
    """Parameters, a statement, and its reads as linear forms with the size of the axis."""
    indices = ["i", "j", "k"][: rng.randint(1, 3)]
    reads: list[list[tuple[dict[str, int], int, str]]] = []
    count = itertools.count()
    for _ in range(rng.randint(1, 3)):
        axes = []
        for _ in range(rng.randint(1, 2)):
            used = rng.sample(indices, rng.randint(1, min(2, len(indices))))
            axes.append(({i: rng.choice((1, 1, 1, 2, 3, -1, -2)) for i in used}, rng.randint(-3, 3), f"N{next(count)}"))
        reads.append(axes)
    parameters = ", ".join(f"float({', '.join(a[2] for a in axes)}) T{k}" for k, axes in enumerate(reads))
    texts = [
        f"T{k}({', '.join(' + '.join([*(f'{c}*{i}' if c >= 0 else f'(0-{-c})*{i}' for i, c in f.items()), f'({o})' if o >= 0 else f'(0-{-o})']) for f, o, _ in axes)})"
        for k, axes in enumerate(reads)
    ]
    used = {i for axes in reads for form, _, _ in axes for i in form}
    left = [i for i in indices if i in used and rng.random() < 0.6]
    return parameters, f"A({', '.join(left)}) +=! {' * '.join(texts)}", reads


def enumerate_rounds(reads: list[list[tuple[dict[str, int], int, str]]], sizes: dict[str, int]) -> dict[str, range] | None:
    """The rounds of the algorithm by trying all values in a window; None when a round solves nothing."""
    window = range(-40, 41)
    accesses = [axis for axes in reads for axis in axes]
    names = {i for form, _, _ in accesses for i in form}
    solved: dict[str, range] = {}
    while len(solved) < len(names):
        new: dict[str, range] = {}
        for v in sorted(names - solved.keys()):
            mine = [(f, o, sizes[s]) for f, o, s in accesses if v in f and all(i == v or i in solved for i in f)]
            if not mine:
                continue
            fine = [
                x for x in window
                if all(
                    0 <= o + f[v] * x + sum(f[i] * y for i, y in zip(others, point, strict=True)) < extent
                    for f, o, extent in mine
                    for others in [[i for i in f if i != v]]
                    for point in itertools.product(*(solved[i] for i in others))
                )
            ]  # fmt: skip
            if not fine:
                return None
            new[v] = range(fine[0], fine[-1] + 1)
        if not new:
            return None
        solved.update(new)
    return solved


def inside(reads: list[list[tuple[dict[str, int], int, str]]], ranges: dict[str, range] | None, sizes: dict[str, int]) -> bool:
    """Whether all reads stay inside their tensors over these ranges."""
    return ranges is not None and all(
        0 <= offset + sum(c * x for c, x in zip(form.values(), point, strict=True)) < sizes[size]
        for axes in reads
        for form, offset, size in axes
        for point in itertools.product(*(ranges[i] for i in form))
    )


def test_random_comprehensions_have_the_ranges_of_enumeration() -> None:
    rng = random.Random(11)
    solved = 0
    for _ in range(250):
        parameters, statement, reads = random_statement(rng)
        sizes = {s: rng.randint(1, 9) for axes in reads for _, _, s in axes}
        wanted = enumerate_rounds(reads, sizes)
        shapes = {f"T{k}": tuple(sizes[s] for _, _, s in axes) for k, axes in enumerate(reads)}
        try:
            c = comprehension(parameters, statement)
        except pto.RangeInferenceError:
            assert wanted is None, statement
            continue
        except pto.ShapeError as error:  # a read that is not part of the rounds leaves its tensor
            assert error.code == "PTO-R042" and not inside(reads, wanted, sizes), statement
            continue
        symbolic = c.infer().ranges
        evaluated = {i: (low.evaluate(sizes), high.evaluate(sizes)) for i, (low, high) in symbolic.items()}
        if wanted is not None:
            solved += 1
            assert evaluated == {i: (r.start, r.stop) for i, r in wanted.items()}, (statement, sizes)
        else:
            assert any(low >= high for low, high in evaluated.values()), statement
        try:
            assert c.infer(**shapes).ranges == evaluated
        except pto.ShapeError as error:
            # What enumeration finds fits, unless some read is not part of the rounds.
            assert wanted is None or (error.code == "PTO-R024" and not inside(reads, wanted, sizes)), statement
        else:
            assert wanted is None or inside(reads, wanted, sizes), statement
    assert solved > 60


def rounds_of_numbers(
    reads: list[list[tuple[dict[str, int], int, str]]], sizes: dict[str, np.ndarray]
) -> dict[str, tuple[np.ndarray, np.ndarray]] | None:
    """The rounds with interval arithmetic on numbers, for many sizes at once; None when a round solves nothing."""
    accesses = [axis for axes in reads for axis in axes]
    names = {i for form, _, _ in accesses for i in form}
    solved: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # lowest and highest value
    while len(solved) < len(names):
        new: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for v in sorted(names - solved.keys()):
            lows: list[np.ndarray] = []
            highs: list[np.ndarray] = []
            for f, offset, size in accesses:
                if v not in f or any(i != v and i not in solved for i in f):
                    continue
                ends = [(c * solved[i][0], c * solved[i][1]) for i, c in f.items() if i != v]
                least = offset + sum((np.minimum(*e) for e in ends), np.zeros_like(sizes[size]))
                most = offset + sum((np.maximum(*e) for e in ends), np.zeros_like(sizes[size]))
                below, above, c = -least, sizes[size] - 1 - most, f[v]  # below <= c * v <= above
                lows.append(-((-below) // c) if c > 0 else -(above // -c))
                highs.append(above // c if c > 0 else (-below) // -c)
            if lows:
                new[v] = np.maximum.reduce(lows), np.minimum.reduce(highs)
        if not new:
            return None
        solved.update(new)
    return solved


def analysed(parameters: str, statement: str) -> Inferred:
    """The only statement of a definition, without a program."""
    (definition,) = parse(f"def f({parameters}) -> (A) {{ {statement} }}", "<test>")
    return analyse(definition).statements[0]


def test_symbolic_ranges_at_sizes_are_those_of_numbers() -> None:
    rng, compared = random.Random(13), 0
    draw = np.random.default_rng(13)
    for _ in range(300):
        parameters, statement, reads = random_statement(rng)
        try:
            ranges = analysed(parameters, statement).ranges
        except (pto.RangeInferenceError, pto.ShapeError):
            continue
        names = sorted({s for axes in reads for _, _, s in axes})
        sizes = {s: draw.integers(1, 40, 30) for s in names}
        wanted = rounds_of_numbers(reads, sizes)
        assert wanted is not None and wanted.keys() == ranges.keys(), statement
        for k in range(30):
            if any(low[k] > high[k] for low, high in wanted.values()):
                continue  # no element: an error, whatever the numbers
            here = {s: int(sizes[s][k]) for s in names}
            for index, (low, high) in ranges.items():
                numbers = low.evaluate(here), high.evaluate(here) - 1
                assert numbers == (wanted[index][0][k], wanted[index][1][k]), (statement, index, here)
            compared += 1
    assert compared > 2000


def test_symbolic_ranges_at_sizes_are_those_of_constant_sizes() -> None:
    rng, compared = random.Random(17), 0
    for _ in range(60):
        parameters, statement, reads = random_statement(rng)
        try:
            symbolic = analysed(parameters, statement).ranges
        except (pto.RangeInferenceError, pto.ShapeError):
            continue
        for _ in range(8):
            sizes = {s: rng.randint(1, 30) for axes in reads for _, _, s in axes}
            fixed = re.sub(r"N\d+", lambda m: str(sizes[m.group()]), parameters)
            here = {i: (low.evaluate(sizes), high.evaluate(sizes)) for i, (low, high) in symbolic.items()}
            try:
                constant = analysed(fixed, statement).ranges
            except (pto.RangeInferenceError, pto.ShapeError):
                continue
            assert {i: (low.value, high.value) for i, (low, high) in constant.items()} == here, (statement, sizes)
            compared += 1
    assert compared > 60

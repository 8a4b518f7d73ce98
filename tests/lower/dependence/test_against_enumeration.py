# SPDX-License-Identifier: MIT
"""The analysis against brute force: every pair of iterations of random nests with small constant bounds.

A dependence that exists must be found; one that is claimed must exist; a violation that is proven must happen.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

from pto_jit.lower.dependence import Access, Accesses, Dependences
from pto_jit.lower.dependence.violations import violation
from tests.lower.dependence.nests import Nest, Touch, random_nest, record
from tests.lower.dependence.vectors import common_loops, vectors

COUNT = int(os.environ.get("PTO_TEST_NESTS", "60"))
Directions = tuple[str, ...]


def true_vectors(found: Accesses, touched: dict[int, list[Touch]]) -> dict[tuple[int, int], set[Directions]]:
    """The direction vectors of all pairs of touches of one address, by the two accesses."""
    order = {id(a.op): a for a in found.accesses}
    out: dict[tuple[int, int], set[Directions]] = {}
    for touches in touched.values():
        for one, other in product(touches, touches):
            a, b = order[id(one.op)], order[id(other.op)]
            if a.order > b.order or not (a.write or b.write):
                continue
            common = [
                (i, j) for (loop, i), (same, j) in zip(one.loops, other.loops, strict=False) if loop == same
            ]
            directions = tuple("<" if i < j else ">" if i > j else "=" for i, j in common)
            out.setdefault((a.order, b.order), set()).add(directions)
    return out


def pairs(accesses: Sequence[Access]) -> Iterator[tuple[Access, Access]]:
    """All pairs of accesses, in the order of the text, of which one writes; a write is paired with itself."""
    for k, a in enumerate(accesses):
        for b in accesses[k:]:
            if a.write if a is b else a.write or b.write:
                yield a, b


def check(nest: Nest, tally: Counter[str]) -> None:
    func = nest.module.func("f")
    dependences = Dependences(func)
    found = dependences.found
    truth = true_vectors(found, record(nest))
    for a, b in pairs(found.accesses):
        if a.root != b.root:
            continue
        real = truth.get((a.order, b.order), set())
        by = vectors(found, a, b)
        where = f"{found.text(a)} {found.text(b)}\n{nest.text}"
        for directions in real:
            assert directions in by, f"missed {directions}: {where}"
        for directions in product("<=>", repeat=len(common_loops(found, a, b))):
            verdict = by.get(directions, "no")
            tally[verdict] += 1
            if verdict == "yes":
                assert directions in real, f"invented {directions}: {where}"
    for loop in found.loops:
        depth = len(loop.outer) - 1
        for a, b in pairs(found.inside(loop)):
            if a.root == b.root:
                races = _races(truth.get((a.order, b.order), set()), depth)
                proven = violation(found, loop, a, b)
                where = f"{loop.name}: {found.text(a)} {found.text(b)}\n{nest.text}"
                assert proven is None or races, f"there is no race over {where}"
                tally["race proven" if proven else "race" if races else "no race"] += 1
        answer = dependences.may_run_parallel(loop)
        same = [(a, b) for a, b in pairs(found.inside(loop)) if a.root == b.root]
        racing = any(_races(truth.get((a.order, b.order), set()), depth) for a, b in same)
        assert not (racing and answer.verdict == "yes"), f"parallel {loop.name}\n{nest.text}"


def _races(real: set[Directions], depth: int) -> bool:
    return any(set(d[:depth]) <= {"="} and d[depth] != "=" for d in real)


def test_every_answer_is_right_on_random_nests() -> None:
    tally: Counter[str] = Counter()
    for seed in range(COUNT):
        check(random_nest(seed), tally)
    vectors_asked = tally["yes"] + tally["no"] + tally["unknown"]
    races = tally["race"] + tally["race proven"]
    print(f"{COUNT} nests, {vectors_asked} direction vectors: {1 - tally['unknown'] / vectors_asked:.2%} exact; "
          f"{tally['race proven']} of {races} races proven")  # fmt: skip
    assert tally["unknown"] <= 0.01 * vectors_asked, tally
    assert tally["race proven"] >= 0.9 * races, tally


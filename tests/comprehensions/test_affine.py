# SPDX-License-Identifier: MIT
"""Random affine comprehensions in both forms against enumeration, and random texts of any kind."""

from __future__ import annotations

import os
import random
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from tests.comprehensions.affine import disagreement
from tests.comprehensions.oracle import check
from tests.comprehensions.texts import random_text

ROUNDS = int(os.environ.get("PTO_TEST_PROGRAMS", "60"))


def test_random_affine_comprehensions_are_what_enumeration_finds() -> None:
    seen: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for seed in range(20_000, 20_000 + ROUNDS):
            wrong = disagreement(seed, seed % 8 == 0, seen)
            assert wrong is None, f"seed {seed}: {wrong}"
    assert seen["fine"] > ROUNDS // 4 and seen["compiled"] > 0 and seen["empty"] and seen["outside"]


@pytest.mark.parametrize("statement", ["A(j) min=! X(j - 2, (0 - i + 3) / 3)", "A(j) +=! X(j, (i + 3) / 3)"])
def test_a_quotient_is_no_rectangle(statement: str) -> None:
    c = pto.comprehension(f"def f(float(N, M) X) -> (A) {{ {statement} }}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(c, {"X": np.arange(12, dtype=np.float32).reshape(4, 3)})


def test_any_text_that_fits_the_grammar_is_a_definition_or_our_error() -> None:
    rng, seen = random.Random(4), Counter()
    for _ in range(10 * ROUNDS):
        text = random_text(rng)
        try:
            c: Any = pto.comprehension(text)
            assert str(c.infer()) and c.explain() and c.loops()
            names = sorted({s for p in c.definition.parameters for s in p.sizes if isinstance(s, str)})
            sizes = {s: rng.randint(1, 5) for s in names}
            shapes = {p.name: tuple(sizes.get(s, s) for s in p.sizes) for p in c.definition.parameters if p.sizes}
            numbers = {p.name: 2 for p in c.definition.parameters if not p.sizes}
            c.infer(**shapes, **numbers)
        except pto.InternalError:
            raise
        except pto.PtoError as error:
            assert str(error) and getattr(error, "code", "PTO-A000"), text
            seen[type(error).__name__] += 1
            continue
        seen["accepted"] += 1
    assert seen["accepted"] > ROUNDS // 4, seen


def test_stores_that_llvm_once_could_not_compare_are_compiled() -> None:
    text = """def f(float(N0) T0, float(N1) T1, float(N2) T2) -> (A) {
        A(k, j, i) = pad(T0(3*j + 1), 2) - T1(2*i) + T2(0 - 2*j + k - 1) where k in -1:1
    }"""
    numbers = {f"T{k}": np.arange(12, dtype=np.float32) + k for k in range(3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(pto.comprehension(text), numbers)

# SPDX-License-Identifier: MIT
# ruff: noqa: E741
"""Integer expressions over sizes: values, equal spellings, proofs, and how they print."""

from __future__ import annotations

import random

import pytest

from pto_jit.comprehensions.symbolic import (
    Expr,
    at_least_zero,
    ceil_div,
    constant,
    floor_div,
    maximum,
    minimum,
    name,
)

I, J, K = name("I"), name("J"), name("K")
S = name("s", signed=True)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (constant(11) - I, "11 - I"),
        (I - K + 1, "I - K + 1"),
        (-I, "-I"),
        (-I - 3, "-I - 3"),
        (floor_div(I + 122, 123), "(I + 122)//123"),
        (floor_div(I - 1, 2) + 1, "(I + 1)//2"),
        (floor_div(I - 1, 2), "(I - 1)//2"),
        (floor_div(I + 9, 2), "(I + 9)//2"),
        (ceil_div(I, 2), "(I + 1)//2"),
        (floor_div(4 * I + 6, 2), "2*I + 3"),
        (floor_div(2 * I + 1, 4), "I//2"),
        (floor_div(floor_div(I, 2), 3), "I//6"),
        (minimum([I, I + 1]), "I"),
        (minimum([I, K]), "min(I, K)"),
        (minimum([floor_div(I + 1, 2), floor_div(I, 2)]), "I//2"),
        (maximum([constant(0), I]), "I"),
        (maximum([constant(0), I - K]), "max(0, I - K)"),
        (minimum([I, minimum([K, I])]), "min(I, K)"),
        (2 * floor_div(I + 1, 2), "2*((I + 1)//2)"),
        (floor_div(minimum([2 * I, constant(4)]) + 1, 2), "min(2, I)"),
        (I * K * 2 - 3, "2*I*K - 3"),
        (constant(0), "0"),
    ],
)
def test_it_prints_as_a_person_would_write_it(expression: Expr, text: str) -> None:
    assert str(expression) == text
    assert eval(text, {"I": 7, "K": 5}) == expression.evaluate(I=7, K=5)


def random_expression(rng: random.Random, depth: int) -> tuple[Expr, str]:
    """An expression, and Python text of the same that nothing has simplified."""
    kind = rng.randrange(7) if depth else rng.randrange(2)
    if kind == 0:
        value = rng.randint(-6, 6)
        return constant(value), f"({value})"
    if kind == 1:
        chosen = rng.choice((I, J, K, S))
        return chosen, str(chosen)
    a, b = random_expression(rng, depth - 1), random_expression(rng, depth - 1)
    if kind == 2:
        return a[0] + b[0], f"({a[1]} + {b[1]})"
    if kind == 3:
        return a[0] - b[0], f"({a[1]} - {b[1]})"
    if kind == 4:
        factor = rng.randint(-3, 3)
        return a[0] * factor, f"({a[1]} * {factor})"
    if kind == 5:
        divisor = rng.choice((-3, -2, 1, 2, 3, 4, 6))
        return floor_div(a[0], divisor), f"({a[1]} // {divisor})"
    least = rng.random() < 0.5
    return (minimum if least else maximum)([a[0], b[0]]), f"{'min' if least else 'max'}({a[1]}, {b[1]})"


def test_random_expressions_have_the_value_of_their_text_and_proofs_are_right() -> None:
    rng = random.Random(7)
    proven = 0
    for _ in range(1000):
        e, text = random_expression(rng, 4)
        certain = at_least_zero(e)
        proven += certain
        printed = str(e)
        for _ in range(4):
            values = {n: rng.randint(0, 9) for n in "IJK"} | {"s": rng.randint(-9, 9)}
            wanted = eval(text, dict(values))
            assert e.evaluate(values) == wanted, text
            assert eval(printed, dict(values)) == wanted, printed
            assert not certain or wanted >= 0, text
    assert proven > 100


def test_a_missing_size_is_named() -> None:
    with pytest.raises(KeyError, match="K"):
        (I + K).evaluate(I=1)


def test_a_difference_of_equals_is_zero_in_many_spellings() -> None:
    assert floor_div(I + 1, 2) - (floor_div(I - 1, 2) + 1) == 0
    assert maximum([I, K]) - maximum([K, I]) == 0
    assert (I + K) * (I - K) - (I * I - K * K) == 0
    assert hash(I + K) == hash(K + I)

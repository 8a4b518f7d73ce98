# SPDX-License-Identifier: MIT
"""Amounts as arithmetic: against whole numbers of any size, and how little arithmetic that is."""

from __future__ import annotations

import random

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Const, Func, Op, Operand, Var
from pto_jit.lower.amount import CAP, FACTOR_BITS, Amount
from pto_jit.lower.names import I64, Names, Scalars, fold

LOC = Loc("k.py", 1, 0, 1, 1)
VARS = tuple(Var(name, I64) for name in ("n", "m", "k", "cost"))
BITS = {"cost": CAP.bit_length()}


def scalars() -> Scalars:
    return Scalars(Names(Func("f", "incore", VARS, (), (), LOC)), LOC)


def evaluate(operand: Operand, out: Scalars, values: dict[str, int]) -> int:
    known = dict(values)

    def value(x: Operand) -> int:
        return int(x.value) if isinstance(x, Const) else known[x.name]

    for op in out.block:
        assert isinstance(op, Op)
        result = fold(op.op, *(value(a) for a in op.args))
        assert result is not None, f"{op.op} leaves 64 bits"
        known[op.results[0].name] = result
    return value(operand)


def exact(amount: Amount, values: dict[str, int]) -> int:
    total = 0
    for product, factor in amount.terms.items():
        for var in product:
            factor *= values[var.name]
        total += factor
    return total


def test_random_amounts_are_what_whole_numbers_give_up_to_the_cap() -> None:
    rng = random.Random(4)
    for _ in range(2000):
        amount = Amount({})
        for _ in range(rng.randrange(1, 5)):
            part = Amount.of(rng.choice([1, 60, 30_000, rng.randrange(1 << 30)]))
            for _ in range(rng.randrange(5)):
                part = part * Amount.of(rng.choice(VARS)) if rng.random() < 0.7 else part + Amount.of(rng.choice(VARS))
            amount += part
        out = scalars()
        operand = amount.operand(out, BITS)
        for _ in range(3):
            most = rng.choice([4, 1000, (1 << FACTOR_BITS) - 1])
            values = {v.name: rng.randrange(most + 1) for v in VARS}
            values["cost"] = rng.randrange(CAP + 1)
            want, have = exact(amount, values), evaluate(operand, out, values)
            assert have == want if want <= CAP else have == CAP, (amount.terms, values)


def test_a_sum_over_many_operations_is_one_product_and_one_sum() -> None:
    n = Amount.of(VARS[0])
    total = sum((Amount.of(30_000) + n * Amount.of(60 * k) for k in range(1, 9)), start=Amount({}))
    out = scalars()
    total.operand(out, {})
    assert [op.op for op in out.block if isinstance(op, Op)] == ["mul", "add"]


def test_what_covers_what() -> None:
    n, m = Amount.of(VARS[0]), Amount.of(VARS[1])
    assert (n * m).covers(n) and (n * m).covers(m) and not n.covers(n * m)
    assert (n + Amount.of(5)).covers(n) and not n.covers(n + Amount.of(5))
    assert not (n + n).covers(n * Amount.of(3)) and (n * Amount.of(3)).covers(n + n)
    assert not n.covers(m)


def test_nothing_is_computed_twice() -> None:
    out = scalars()
    first = out.op("max", VARS[0], VARS[1])
    assert out.op("max", VARS[0], VARS[1]) == first and len(out.block) == 1

# SPDX-License-Identifier: MIT
"""`match` of run-time numbers, alone and inside of tuples, dicts and objects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from tests.codegen.harness import check, count, ir

X = np.array([-50, 7, 3, 0, 15, -3, 4, 5, 30, 21, -8, 11, 2], np.int32)
Y = np.zeros(13, np.float32)


class Way(IntEnum):
    UP = 1
    DOWN = 2


@dataclass
class Pair:
    a: float
    b: float


def numbers(x, y):
    for i in range(len(x)):
        match x[i] % 4:
            case 0:
                y[i] = 1
            case 1 | 2:
                y[i] = 10
            case _:
                y[i] = 100


def pairs(x, y):
    for i in range(len(x)):
        match (x[i] % 3, x[i] % 5):
            case (0, 0):
                y[i] = 15
            case (0, _):
                y[i] = 3
            case (a, 0) if a > 1:
                y[i] = 50 + a
            case (_, 0):
                y[i] = 5
            case (a, b):
                y[i] = -a - b


def names_guards_and_other_kinds(x, y):
    s = 0
    for i in range(len(x)):
        match x[i] % 4:
            case Way.UP:
                s += i
            case Way.DOWN:
                s -= i
            case k if k > 2:
                continue
            case "word":
                s = 1000
            case None:
                s = 2000
            case int(n):
                s += 2 * n + 1
        y[i] = s


def kept_name_of_a_guard_that_fails(x, y):
    for i in range(len(x)):
        k = -1
        match x[i]:
            case k if k > 100:
                y[i] = 1000
        y[i] += k


def helper(n):
    match n:
        case 1:
            return 10
        case 2:
            return 20
    return 30


def in_a_helper(x, y):
    for i in range(len(x)):
        y[i] = helper(x[i] % 4)
        match x[i]:
            case -3:
                break


def leaves_a_loop(x, y):
    n = 0
    while True:
        match x[n]:
            case 30:
                break
            case _ if n == len(x) - 1:
                break
        n += 1
    y[0] = n


def dicts(x, y):
    for i in range(len(x)):
        match {"k": x[i] % 2, "w": 3.0}:
            case {"k": 1, **rest}:
                y[i] = rest["w"]
            case {"missing": 1}:
                y[i] = 1000
            case {"k": k}:
                y[i] = k + 5


def lists(x, y):
    for i in range(len(x)):
        match [x[i] % 2, 1, 2, x[i] % 3]:
            case [1, *between, 2]:
                y[i] = len(between)
            case [0, *rest]:
                y[i] = rest[-1] + 10
            case other:
                y[i] = other[0] + 20


def objects(x, y):
    for i in range(len(x)):
        match Pair(x[i] % 2, x[i] % 3):
            case Pair(0, b):
                y[i] = b
            case Pair(a=1, b=2):
                y[i] = 100
            case Pair():
                y[i] = 200


KERNELS = [numbers, pairs, names_guards_and_other_kinds, kept_name_of_a_guard_that_fails, in_a_helper, leaves_a_loop,
           dicts, lists, objects]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda f: f.__name__)
def test_cases_of_run_time_numbers(kernel: Any) -> None:
    check(kernel, X, Y)
    got, wanted = Y.copy(), Y.copy()
    pto.jit(kernel)(X, got)
    kernel(X, wanted)
    np.testing.assert_array_equal(got, wanted)


def test_what_is_known_is_decided() -> None:
    def kernel(x, y):
        match (x.ndim, x[0]):
            case (2, 1):
                y[0] = 1
            case (1, _):
                y[0] = 2

    assert count(ir(kernel, X, Y), "setelem") == 1

# SPDX-License-Identifier: MIT
"""Coroutines and generators are refused by name wherever a kernel could meet one; nothing runs, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import UnsupportedSyntaxError


async def coroutine(x):
    x[0] = 1


async def async_generator(x):
    yield x


async def reading(x):
    async for v in x:
        x[0] = v


async def waiting(x):
    await x


def generator(x):
    yield x


def delegating(x):
    yield from generator(x)


class Holder:
    @pto.jit
    async def kernel(self, x):
        x[0] = 1


ASYNC = [coroutine, async_generator, reading, waiting]
WAYS: dict[str, Callable[..., Any]] = {
    "call": lambda fn, x: pto.jit(fn)(x),
    "interpret": lambda fn, x: pto.jit(fn).interpret(x),
    "compile": lambda fn, x: pto.jit(fn).compile(x),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fn", ASYNC)
def test_an_async_kernel_is_refused_with_the_plain_form(fn: Any, way: str) -> None:
    with pytest.raises(UnsupportedSyntaxError, match="`async def`") as caught:
        WAYS[way](fn, np.zeros(3))
    assert "parallel=True" in (caught.value.hint or "")
    assert caught.value.lineno == fn.__code__.co_firstlineno


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fn", [generator, delegating])
def test_a_generator_kernel_is_refused_with_the_plain_form(fn: Any, way: str) -> None:
    with pytest.raises(UnsupportedSyntaxError, match="`yield") as caught:
        WAYS[way](fn, np.zeros(3))
    assert "return a tuple" in (caught.value.hint or "")


def test_an_async_method_is_refused() -> None:
    with pytest.raises(UnsupportedSyntaxError, match="`async def`"):
        Holder().kernel(np.zeros(3))


@pytest.mark.parametrize("decorate", [lambda fn: fn, pto.incore], ids=["helper", "incore"])
@pytest.mark.parametrize(
    ("fn", "name"), [(coroutine, "async def"), (async_generator, "async def"), (generator, "yield")]
)
def test_a_function_that_a_kernel_calls_is_refused_too(fn: Any, name: str, decorate: Any) -> None:
    helper = decorate(fn)

    @pto.jit
    def kernel(x):
        with pl.incore():
            pl.store(helper(pl.load(x)), [0], x)

    with pytest.raises(UnsupportedSyntaxError, match=name) as caught:
        kernel(np.zeros(3))
    assert fn.__name__ in caught.value.message and caught.value.hint

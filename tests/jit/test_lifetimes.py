# SPDX-License-Identifier: MIT
"""What is no longer used is freed: kernels that a program has made, and what kernels were called with."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


class Array(np.ndarray):
    """Arrays that weak references can be made to."""


def array(value: float = 1.0) -> np.ndarray:
    return np.full((4, 8), value, np.float32).view(Array)


def freed(*references: weakref.ref[Any]) -> bool:
    gc.collect()
    return all(reference() is None for reference in references)


@pto.incore
def add_one(x, i):
    pl.store(pl.load(x, [i, 0], [1, 8]) + 1, [i, 0], x)


def closure() -> Any:
    scale = 3.0

    @pto.jit
    def kernel(x):
        x[...] = pl.load(x) * scale

    return kernel


def tasks() -> Any:
    @pto.jit
    def kernel(x):
        for i in pl.range(4):
            add_one(x, i)

    kernel.task_graph(array()).run()
    return kernel


def recursive() -> Any:
    """One whose own name is among what its helper captures."""

    def helper(t):
        return t * 2 if kernel is not None else t

    @pto.jit
    def kernel(x):
        x[...] = helper(pl.load(x))

    return kernel


def source() -> Any:
    @pto.jit(target="c")
    def kernel(x):
        with pl.incore():
            x[...] = pl.load(x) * 2

    return kernel


@pytest.mark.parametrize("make", [closure, tasks, recursive, source])
def test_kernels_that_nobody_has_any_more_are_freed(make: Any) -> None:
    references = []
    for _ in range(3):
        kernel, x = make(), array()
        kernel(x)
        kernel(x)
        references += [weakref.ref(kernel), weakref.ref(kernel.__pto_jit__), weakref.ref(kernel.compile(x))]
    del kernel, x
    assert freed(*references)


@dataclass
class Weights:
    w: Any
    scale: int = 2


class Pair(NamedTuple):
    a: Any
    b: Any


class Layer:
    def __init__(self) -> None:
        self.inner = Weights(array())
        self.names = ("w",)

    @pto.jit
    def forward(self, y):
        y[...] = pl.load(self.inner.w) * self.inner.scale


@pto.jit
def of_list(weights, y):
    y[...] = pl.load(weights[0]) + pl.load(weights[1])


@pto.jit
def of_dict(weights, y):
    y[...] = pl.load(weights["a"]) * weights["n"]


@pto.jit
def of_pair(weights, y):
    y[...] = pl.load(weights.a) - pl.load(weights.b)


@pto.jit
def of_weights(weights, y):
    y[...] = pl.load(weights.w) * weights.scale


CONTAINERS = {
    of_list: (lambda: [array(2), array(3)], lambda c: [*c], 5),
    of_dict: (lambda: {"a": array(2), "n": 4}, lambda c: [c["a"]], 8),
    of_pair: (lambda: Pair(array(7), array(3)), lambda c: [*c], 4),
    of_weights: (lambda: Weights(array(3)), lambda c: [c, c.w], 6),
    Layer.forward: (Layer, lambda c: [c, c.inner, c.inner.w], 2),
}


@pytest.mark.parametrize("kernel", CONTAINERS, ids=lambda kernel: kernel.__name__)
def test_a_kernel_keeps_nothing_of_the_containers_it_is_called_with(kernel: Any) -> None:
    make, parts, expected = CONTAINERS[kernel]
    container, y = make(), array(0)
    kernel(container, y)
    compiled = kernel.compile(container, y)
    references = [weakref.ref(part) for part in parts(container)]
    del container
    assert freed(*references) and (y == expected).all()
    other = make()
    kernel(other, y)
    compiled(other, y)  # what is left of the first one says enough to run others, and to be looked at
    assert kernel.__name__ in compiled.ir("source") and (y == expected).all()


@pytest.mark.parametrize("frozen", [False, True])
def test_the_collector_has_little_to_look_at_after_the_first_compilation(tmp_path: Path, frozen: bool) -> None:
    """What it made is old, unless the program keeps objects of its own frozen.  (About 10,000 objects are not.)"""
    script = tmp_path / "first.py"
    script.write_text(
        "import gc\n"
        "import numpy as np\n"
        "import pto_jit as pto\n"
        "@pto.jit\n"
        "def doubled(x):\n"
        "    x[...] = x * 2\n"
        f"if {frozen}: gc.freeze()\n"
        "doubled(np.ones(3))\n"
        "print(sum(len(gc.get_objects(generation)) for generation in (0, 1)), gc.get_freeze_count() > 1000)\n"
    )
    environment = os.environ | {"PTO_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    young, kept = done.stdout.split()
    assert kept == str(frozen) and (frozen or int(young) < 3000)

# SPDX-License-Identifier: MIT
"""Random programs of tasks on overlapping slices of NumPy arrays: with any number of workers and random delays the result
is that of the same statements in order; the edges are those of a model that keeps the last accesses of each element."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pto_jit.runtime import Runtime
from pto_jit.runtime.graph import TaskGraph

SHAPE = (12, 16)
RUNTIMES = {count: Runtime(count, spin_microseconds=count % 2 * 50) for count in (1, 2, 3, 4)}


def random_boxes(rng: random.Random) -> tuple[list[int], list[int], list[int]]:
    """Two offsets and the extents of both boxes; one program in three works mostly on tiles."""
    if rng.random() < 0.4:
        extents = [4, 4]
        return ([4 * rng.randrange(3), 4 * rng.randrange(4)], [4 * rng.randrange(3), 4 * rng.randrange(4)], extents)
    extents = [rng.randint(1, 8), rng.randint(1, 9)]
    offsets = [[rng.randint(0, limit - e) for limit, e in zip(SHAPE, extents, strict=True)] for _ in range(2)]
    return offsets[0], offsets[1], extents


class Model:
    """For every element of every array its last writer and the readers since."""

    def __init__(self, count: int) -> None:
        self.writers = [np.full(SHAPE, -1) for _ in range(count)]
        self.readers = [np.frompyfunc(lambda _: frozenset(), 1, 1)(np.zeros(SHAPE)) for _ in range(count)]

    def read(self, task: int, array: int, box: tuple[slice, ...]) -> set[int]:
        found = set(np.unique(self.writers[array][box]).tolist()) - {-1}
        self.readers[array][box] = np.frompyfunc(lambda old: old | {task}, 1, 1)(self.readers[array][box])
        return found

    def write(self, task: int, array: int, box: tuple[slice, ...]) -> set[int]:
        readers = self.readers[array][box]
        found = set().union(*readers.ravel().tolist())
        unread = np.vectorize(lambda old: not old, otypes=[bool])(readers)
        found |= set(np.unique(self.writers[array][box][unread]).tolist()) - {-1}
        self.readers[array][box] = np.frompyfunc(lambda _: frozenset(), 1, 1)(readers)
        self.writers[array][box] = task
        return found - {task}


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_equal_their_serial_meaning(seed: int, kernels: Any) -> None:
    rng = random.Random(seed)
    axpy = kernels.address("task_axpy")
    pitch = SHAPE[1]
    for _ in range(60):
        arrays = [
            np.round(np.array([[rng.random() for _ in range(pitch)] for _ in range(SHAPE[0])]) * 8) for _ in range(3)
        ]
        expected = [array.copy() for array in arrays]
        start = [array.copy() for array in arrays]
        runtime = RUNTIMES[rng.choice(list(RUNTIMES))]
        graph, model = TaskGraph(runtime), Model(len(arrays))
        numbers = [graph.tensor(array) for array in arrays]
        edges: set[tuple[int, int]] = set()
        for number in range(rng.randint(1, 30)):
            to, source = rng.sample(range(3), 2)
            at, from_, extents = random_boxes(rng)
            box = tuple(slice(o, o + e) for o, e in zip(at, extents, strict=True))
            read = tuple(slice(o, o + e) for o, e in zip(from_, extents, strict=True))
            scale = rng.choice((0, 1, -1))
            delay = rng.choice((0, 0, 0, 1, 30000))
            slots = (arrays[to][box].ctypes.data, arrays[source][read].ctypes.data, *extents, pitch, scale, delay)
            graph.add("axpy", axpy, slots=slots, reads=[(numbers[source], from_, extents)],
                      updates=[(numbers[to], at, extents)])  # fmt: skip
            expected[to][box] = expected[to][box] * scale + expected[source][read]
            before = model.read(number, source, read) | model.read(number, to, box) | model.write(number, to, box)
            edges |= {(other, number) for other in before if other != number}
        assert set(graph.edges) == edges
        for threads in (None, 1):
            for array, values in zip(arrays, start, strict=True):
                array[...] = values
            graph.run(threads, trace=False)
            for array, wanted in zip(arrays, expected, strict=True):
                np.testing.assert_array_equal(array, wanted)

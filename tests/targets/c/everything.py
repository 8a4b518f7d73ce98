# SPDX-License-Identifier: MIT
"""Operations, every kernel of the benchmarks, tasks, and products, as programs that run without Python."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import dtypes
from pto_jit.bench.checking import check, poison
from pto_jit.bench.implementation import Case
from pto_jit.bench.worker import resolve
from pto_jit.bench.workload import aligned_empty, dtype_named

from .cases import cases
from .harness import close
from .standalone import Programs
from .task_programs import cases as task_cases
from .test_tasks import interpreted
from .test_workloads import CASES


class Everything:
    """All of them, added to `programs`; `compare` looks at their arguments after they have run."""

    def __init__(self, programs: Programs, dtypes: Collection[str]) -> None:
        self.operations: list[tuple[str, list[Any], list[Any], float]] = []
        self.workloads: list[tuple[Any, str, dict[str, Any], Any]] = []
        self.tasks: list[tuple[str, Any, Any]] = []
        for name, kernel, args, tolerance in cases():
            if name.split()[1] not in dtypes:
                continue
            expected = [a.copy() for a in args]
            with np.errstate(all="ignore"):
                kernel.interpret(*expected)  # type: ignore[attr-defined]
            programs.add(kernel, *args)
            self.operations.append((name, args, expected, tolerance))
        for workload, path in CASES:
            size = tuple(21 + 7 * place for place in range(len(workload.axes)))
            inputs = workload.make(size, np.random.default_rng(0))
            outputs = {n: aligned_empty(o.shape, dtype_named(o.dtype)) for n, o in workload.outputs(size).items()}
            for array in outputs.values():
                poison(array) if array.dtype.kind == "f" else array.fill(0)
            programs.add(resolve(path), *Case(workload, size, 1, inputs, outputs).arguments)
            self.workloads.append((workload, path, outputs, workload.reference(inputs)))
        for kernel, args in task_cases():
            self.tasks.append((kernel.__name__, args, interpreted(kernel, args)[0]))
            programs.add(kernel, *args)

    def compare(self) -> None:
        """Fail where a program gave other numbers than NumPy or the interpreter."""
        for name, args, expected, tolerance in self.operations:
            for k, (one, two) in enumerate(zip(args, expected, strict=True)):
                close(one, two, tolerance, f"{name}, argument {k}")
        for workload, path, outputs, expected in self.workloads:
            found = check(list(outputs.values()), expected, workload.tolerance)
            assert found.passed, f"{path}: {found.message}"
        for name, args, expected in self.tasks:
            for one, two in zip(args, expected, strict=True):
                np.testing.assert_array_equal(one, two, err_msg=name)


SUMS = {"f64": "f64", "i32": "i32", "i8": "i32", "u8": "i32"}


@pto.jit
def product(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    """c and two times c, of which one is added to what is there."""
    n = b.shape[1]
    c[:, :n] = pl.dot(a, b)
    with pl.incore():
        t = pl.load(a)
        pl.store(pl.dot(t, pl.load(b), pl.dot(t, pl.load(b))), [0, n], c)


class Products:
    """Products of extents that fill no block, of more than one slice of the contraction."""

    def __init__(self, programs: Programs, names: Iterable[str]) -> None:
        rng = np.random.default_rng(2)
        self.wanted: list[tuple[str, Any, Any]] = []
        for name in names:
            kinds = [dtypes.BY_NAME[n].numpy for n in (name, SUMS[name])]
            low, high = (0, 255) if name == "u8" else (-128, 127)
            a, b = (rng.integers(low, high, s, endpoint=True).astype(kinds[0]) for s in ((9, 263), (263, 14)))
            c = np.zeros((9, 28), kinds[1])
            programs.add(product, a, b, c)
            self.wanted.append((name, c, a.astype(kinds[1]) @ b.astype(kinds[1])))

    def compare(self) -> None:
        """Fail where a product is not the exact one."""
        for name, c, expected in self.wanted:
            np.testing.assert_array_equal(c, np.concatenate([expected, 2 * expected], axis=1), err_msg=name)

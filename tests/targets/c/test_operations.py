# SPDX-License-Identifier: MIT
"""Every elementwise operation, conversion and reduction for each dtype as C, against the interpreter on NumPy."""

from __future__ import annotations

import numpy as np

from .cases import cases
from .harness import Batch, close, needs_compiler


@needs_compiler
def test_operations_agree_with_numpy() -> None:
    batch, wanted = Batch(), []
    for name, kernel, args, tolerance in cases():
        expected = [a.copy() for a in args]
        with np.errstate(all="ignore"):
            kernel.interpret(*expected)  # type: ignore[attr-defined]
        batch.add(kernel, *args)
        wanted.append((name, args, expected, tolerance))
    batch.run()
    for name, args, expected, tolerance in wanted:
        for k, (one, two) in enumerate(zip(args, expected, strict=True)):
            close(one, two, tolerance, f"{name}, argument {k}")

# SPDX-License-Identifier: MIT
"""Libraries that work, lie, crash or refuse: one table with a variant for each."""

from __future__ import annotations

import os
import time

import numpy as np

from pto_jit.bench.implementation import Case, Implementation, Table, Unsupported

TABLE = Table()


@TABLE.row("double")
def right(case: Case) -> Implementation:
    x, out = case.arguments
    return Implementation(lambda: np.multiply(x, np.float32(2.0), out=out), note=os.environ.get("FAKE_NOTE", ""))


@TABLE.row("double", "returned")
def returned(case: Case) -> Implementation:
    x = case.inputs["x"]
    return Implementation(lambda: 2 * x, lambda result: [result])


@TABLE.row("double", "wrong")
def wrong(case: Case) -> Implementation:
    x, out = case.arguments
    return Implementation(lambda: np.multiply(x, np.float32(2.1), out=out))


@TABLE.row("double", "partial")
def partial(case: Case) -> Implementation:
    x, out = case.arguments
    return Implementation(lambda: np.multiply(x[1:], np.float32(2.0), out=out[1:]))


@TABLE.row("double", "drifting")
def drifting(case: Case) -> Implementation:
    x, out = case.arguments

    def call() -> None:
        np.multiply(x, np.float32(2.0), out=out)
        x.__iadd__(np.float32(1.0))

    return Implementation(call)


@TABLE.row("double", "raising")
def raising(case: Case) -> Implementation:
    raise RuntimeError("no such kernel")


@TABLE.row("double", "refusing")
def refusing(case: Case) -> Implementation:
    raise Unsupported("only on Tuesdays")


@TABLE.row("double", "crashing")
def crashing(case: Case) -> Implementation:
    print("about to crash", flush=True)
    os._exit(3)


@TABLE.row("double", "crashing later")
def crashing_later(case: Case) -> Implementation:
    x, out = case.arguments
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        # The check and the calibration pass; the first timed batch does not.
        if calls == 4:
            os.abort()
        np.multiply(x, np.float32(2.0), out=out)
        time.sleep(0.01)

    return Implementation(call)

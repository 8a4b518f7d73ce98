# SPDX-License-Identifier: MIT
"""Each thing that can fail while a kernel runs has a code of its own and says where it is, also from the disk cache."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.semantic import failures
from pto_jit.semantic.failures import Failure

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def negative_offset(x, n):
    pl.store(pl.load(x, [n - 3, 0], [2, 6]), [0, 0], x)  # here


def element_index(x, n):
    with pl.incore():
        x[0, 0] = x[n + 4, 0]  # here


def index_tile(x, n):
    pl.store(x[pl.arange(n, n + 6), :], [0, 0], x)  # here


def tile_slice(x, n):
    t = pl.load(x) * 2
    pl.store(t[n - 2 : n, :], [0, 0], x)  # here


def tile_element(x, n):
    t = pl.load(x)
    x[0, 0] = t[n + 4, 0]  # here


def hole(x, n):
    t = pl.load(x, [n + 1, 0], [4, 6])
    pl.store(pl.reshape(t, [6, 4]), [0, 0], x)  # here


def empty_unit(x, n):
    t = pl.load(x, [n + 4, 0], [1, 6]) * 2
    pl.store(pl.reshape(t, [6, 1]), [0, 0], x)  # here


def empty_fold(x, n):
    t = pl.load(x, [n + 4, 0], [2, 6])
    pl.store(pl.reduce(t, 0, lambda a, b: a * b + a), [0], x[0])  # here


def step(x, n):
    for i in pl.range(0, 4, n - 2):  # here
        x[i, 0] = 0


def parallel_step(x, n):
    for i in pl.range(0, 4, n - 2, parallel=True):  # here
        x[i, 0] = 0


def chunk(x, n):
    for i in pl.range(0, 4, chunk=n - 2):  # here
        x[i, 0] = 0


def far(x, n):
    for i in pl.range(n, 2**60 + n, n, chunk=n):  # here
        x[0, i] = 0


def valid(x, n):
    a, b = pl.load(x, [n, 0], [4, 6]), pl.load(x)
    pl.store(a + b, [0, 0], x)  # here


def declared(x, n):
    a, b = pl.load(x, [0, 0], [n, 6]), pl.load(x, [0, 0], [n + 1, 6])
    pl.store(a + b, [0, 0], x)  # here


def extent(x, n):
    pl.store(pl.load(x, [0, 0], [n - 3, 6]), [0, 0], x)  # here


def reshaped(x, n):
    pl.store(pl.reshape(pl.load(x), [n, 6]), [0, 0], x)  # here


def view(x, n):
    pl.store(pl.load(pl.reshape(x, [n, 6])), [0, 0], x)  # here


def scattered(x, n):
    t = pl.zeros([4, n + 6], pl.f32)
    pl.scatter(t, pl.zeros([4, n + 6], pl.i32), 0, x)  # here


def most(x, n):
    pl.store(pl.topk(pl.load(x, [0, 0], [4, n]), 3)[0], [0, 0], x)  # here


def places(x, n):
    x[0, 0] = pl.argmax(pl.load(x, [0, 0], [4, n * 2**30]))  # here


def split(x, n):
    first, _ = pl.split(pl.load(x, [0, 0], [4, n + 1]), 2, axis=1)  # here
    pl.store(first, [0, 0], x)


def asserted(x, n):
    assert n != 2, "two; {0} is not allowed"  # here
    x[0, 0] = n


CASES: dict[Callable[..., Any], Failure | None] = {
    negative_offset: failures.OFFSET, element_index: failures.INDEX, index_tile: failures.PICK,
    tile_slice: failures.SLICE, tile_element: failures.ELEMENT, hole: failures.HOLE, empty_unit: failures.UNIT,
    empty_fold: failures.EMPTY, step: failures.STEP, parallel_step: failures.STEP, chunk: failures.CHUNK,
    far: failures.FAR, valid: failures.VALID, declared: failures.DECLARED, extent: failures.EXTENT,
    reshaped: failures.RESHAPE, view: failures.VIEW, scattered: failures.SCATTER, most: failures.TOPK,
    places: failures.PLACES, split: failures.SPLIT, asserted: None,
}  # fmt: skip
ARGUMENT = {tile_slice: 1}
DEBUG = (element_index, asserted)


def fails(fn: Any, compiled: Any) -> tuple[pto.LaunchError, list[str]]:
    with pytest.raises(pto.LaunchError) as caught:
        compiled(X.copy(), ARGUMENT.get(fn, 2))
    return caught.value, str(caught.value).splitlines()


@pytest.mark.parametrize("fn", CASES)
def test_a_failure_has_its_code_its_place_and_a_way_out(fn: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(pto.config, "cache_dir", str(tmp_path))
    lines, first = inspect.getsourcelines(fn)
    line = first + next(k for k, text in enumerate(lines) if text.endswith("# here\n"))
    expected = CASES[fn]
    shown = []
    for _ in range(2):  # compiled, then from the disk
        kernel = pto.jit(fn, debug=fn in DEBUG)
        error, text = fails(fn, kernel)
        shown.append(text)
        code = "PTO-N900" if expected is None else expected.code
        assert text[0].startswith(f"{code}: {fn.__name__}: ")
        assert error.code == code and error.loc is not None and error.loc.lineno == line
        assert re.search(rf"{re.escape(__file__)}:{line}:\d+", text[1])
        if expected is not None:
            assert type(error) is expected.error
            assert text[-1] == f"help: {expected.help}"
    assert shown[0] == shown[1]
    assert [s.origin for s in kernel.specializations()] == ["disk"]


def test_the_text_of_an_assertion_is_the_users_and_the_help_says_when_it_is_checked() -> None:
    _, text = fails(asserted, pto.jit(asserted, debug=True))
    assert text[0] == "PTO-N900: asserted: two; {0} is not allowed"
    assert text[-1] == "help: do what the assertion says; it is checked with `debug=True` only"


def test_every_failure_has_a_code_of_its_own_and_a_case() -> None:
    known = [f for f in vars(failures).values() if isinstance(f, Failure)]
    assert len({f.code for f in known}) == len(known)
    assert {f.code for f in known} == {f.code for f in CASES.values() if f is not None}


def test_codes_of_failures_are_not_used_for_other_messages() -> None:
    known = {f.code for f in vars(failures).values() if isinstance(f, Failure)}
    # Operations that Python does (eagerly, in the interpreter) fail with the codes of compiled ones.
    same = {"failures.py", "evaluation.py", "_memory_ops.py", "_tile_ops.py", "_tile_value.py"}
    package = Path(pto.__file__).parent
    for path in package.rglob("*.py"):
        if path.name not in same:
            found = known & set(re.findall(r'"(PTO-[A-Z]\d{3})[":]', path.read_text(encoding="utf-8")))
            assert not found, f"{path}: {found}"

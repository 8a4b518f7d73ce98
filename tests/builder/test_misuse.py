# SPDX-License-Identifier: MIT
"""Calls of a builder in any order with any arguments: accepted, or refused on the user's line; never anything else."""

from __future__ import annotations

import inspect
import random
import re
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule
from pto_jit.ir.isa import ROWS
from tests.builder.test_errors import core, host, module

F, G = ElementType.F32, MemorySpace.GLOBAL
JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3, 2**70, -(2**63), 1.5, float("nan"), float("inf"), "", "x", "y", "m", "n", "f", "s", "i",
    "nope", "a b", "copy", "host", "eq", "rint", ("m", 0, 0), ("m", "i", 0), ("m", 0), ("nope", "n", 1), (), [], {},
    {"input": "m", "output": "m"}, {"output": ("t", "i", 0), "value": 1}, {"x": 1}, object(), np.float32(1),
    np.int64(2), np.zeros(3), b"x", F, G, ElementType.I32, "f32", "i32", "gm", len, (8, 8), (None, 8), [4, None],
)  # fmt: skip
LIKELY = ("x", "y", "m", "s", "n", "i", 1, 0, F)
CONTROL = ("memref", "tile", "scalar", "load", "store", "for_loop", "end_for", "if_then", "else_branch", "end_if",
           "call", "build", "in_core", "not_in_core")  # fmt: skip
METHODS = [row.name for row in ROWS] + list(CONTROL) * 8


@pytest.mark.parametrize("seed", range(6))
def test_any_calls_with_any_arguments(seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(60):
        builder = PTOFunctionBuilder("f", module=module())
        (core if rng.random() < 0.6 else host)(builder)
        for _ in range(rng.randint(1, 14)):
            name = rng.choice(METHODS)
            method = getattr(builder, name)
            parameters = inspect.signature(method).parameters.values()
            given = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
            least = sum(p.default is p.empty for p in given)
            args = [rng.choice(JUNK if rng.random() < 0.6 else LIKELY) for _ in range(rng.randint(least, len(given)))]
            named = {p.name: rng.choice(JUNK) for p in parameters if p.kind is p.KEYWORD_ONLY and rng.random() < 0.3}
            try:
                method(*args, **named)
            except pto.errors.InternalError:
                raise
            except pto.CompilationError as error:
                refused += 1
                assert error.filename == __file__ and error.lineno and error.hint, (name, args, named)
                assert re.match(r"PTO-[A-Z]\d{3}$", error.code)
            if name == "build":
                break
    assert refused > 50


def test_a_number_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    made = PTOModule("m")
    b = PTOFunctionBuilder("f", made).in_core().memref("x", G, F).tile("t", 8, 8, F)
    b.load("t", "x").print(3).print(2.5).print(True).build()
    assert pto.parse_pto(str(made)) == made
    made.compile().f(np.zeros((8, 8), np.float32))
    assert capsys.readouterr().out == "3\n2.5\nTrue\n"


def test_what_is_no_program_or_module() -> None:
    with pytest.raises(TypeError, match="the text of a program is a string, not bytes"):
        pto.parse_pto(b"func")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the name of a module is a string, not 3"):
        PTOModule(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the module of a function is a PTOModule, not 3"):
        PTOFunctionBuilder("f", module=3)  # type: ignore[arg-type]
    made = module()
    assert 3 not in made and [] not in made and "copy" in made
    with pytest.raises(KeyError, match="has no function"):
        made[[]]  # type: ignore[index]


@pytest.mark.parametrize(
    ("target", "options", "code"),
    [
        ([], {}, "PTO-X001"), ({}, {}, "PTO-X001"), (np.zeros(2), {}, "PTO-X001"),
        ("cpu", {"debug": []}, "PTO-A021"), ("cpu", {"fastmath": "y"}, "PTO-A021"), ("cpu", {"nope": {}}, "PTO-A020"),
        ("cpu", {"num_threads": []}, "PTO-A022"), ("c", {"num_threads": 1.0}, "PTO-A022"),
    ],
)  # fmt: skip
def test_options_that_are_none(target: Any, options: dict[str, Any], code: str) -> None:
    made = module()
    for compiled in (made, made["copy"]):
        with pytest.raises(pto.errors.PtoError, match=code):
            compiled.compile(target, **options)


def test_a_name_that_is_none_does_not_enter_the_module() -> None:
    def fill(x: pl.Tensor[[8, 8], pl.f32]) -> None:
        x[...] = pl.full([8, 8], 1.0, pl.f32)

    made = module()
    text = str(made)
    for name in (3, "", [], b"x"):
        with pytest.raises(pto.CompilationError, match="PTO-T210") as caught:
            made.register(fill, name=name)  # type: ignore[arg-type]
        assert caught.value.filename == __file__
    for wrong in (3, None, "copy"):
        with pytest.raises(TypeError, match="a function of loop IR is wanted"):
            made.add(wrong, ())  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a program of loop IR is wanted"):
            PTOModule.of(wrong)  # type: ignore[arg-type]
    assert str(made) == text
    compiled = made.compile()
    for key in (3, [], None, "nope"):
        with pytest.raises(KeyError, match="has no function"):
            compiled[key]  # type: ignore[index]
    with pytest.raises(AttributeError, match="has no function `coppy`; did you mean `copy`"):
        _ = compiled.coppy

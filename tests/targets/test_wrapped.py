# SPDX-License-Identifier: MIT
"""Long lines of generated C are broken where a reader would break them."""

from __future__ import annotations

import pytest

from pto_jit.targets.source.text import LIMIT, wrapped

A, B, C = (letter * 50 for letter in "abc")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"  f({A}, {B}, g({C}, 1));", f"  f({A}, {B},\n      g({C}, 1));"),
        (f"  {A}<{B}>({C}, {C});", f"  {A}<{B}>(\n      {C}, {C});"),
        (f"  x = ({A} + {B}) * {C};", f"  x = ({A} + {B})\n      * {C};"),
        (f"  if ({A} && {B}) f({C});", f"  if ({A} && {B})\n      f({C});"),
        (f'  f("{A}, {B}", {C});', f'  f("{A}, {B}",\n      {C});'),
        (f"  {A} = {B} ? {C} : 1;", f"  {A} = {B}\n      ? {C} : 1;"),
    ],
)
def test_a_long_line_is_broken_in_few_brackets(line: str, expected: str) -> None:
    assert wrapped(line, 6) == expected


def test_lines_that_cannot_be_broken_stay() -> None:
    long = ", ".join("x" * 10 for _ in range(20))
    for line in (f"// {long}", f"#define X {long}", f"int {long} \\", f'"{long}",'):
        assert wrapped(line, 4) == line
    text = f"int x = {'y' * 90};"
    assert len(text) <= LIMIT and wrapped(text, 4) == text

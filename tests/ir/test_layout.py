# SPDX-License-Identifier: MIT
"""The layout of `.pto` text."""

from __future__ import annotations

import random

import pytest

from pto_jit.assembly import parse_pto
from pto_jit.ir.layout import lay_out
from pto_jit.ir.text import to_text
from tests.ir.generate import random_module
from tests.ir.test_documentation import EXAMPLES

UNTIDY = """\


// PTO Module: m
func @f(%x: !pto.memref<gm, 8x8 ,f32>,%n: i64)   {   // a comment
%t=tload   %x[0,0]  : !pto.tile<8x8xf32>
      IF 	true
  sprint {fmt="a  ,b"}
ELSE
// nothing
ENDIF
%u = tmap %t : !pto.tile<8x8xf32> WITH (%v: f32)
YIELD %v
ENDWITH



tstore %u, %x[0,
0]
return
}
func @g() {
}
"""

TIDY = """\
// PTO Module: m
func @f(%x: !pto.memref<gm, 8x8 ,f32>, %n: i64) { // a comment
  %t=tload %x[0, 0] : !pto.tile<8x8xf32>
  IF true
    sprint {fmt="a  ,b"}
  ELSE
    // nothing
  ENDIF
  %u = tmap %t : !pto.tile<8x8xf32> WITH (%v: f32)
    YIELD %v
  ENDWITH

  tstore %u, %x[0,
      0]
  return
}

func @g() {
}
"""


def test_untidy_text_is_laid_out_and_keeps_its_words_and_comments() -> None:
    assert lay_out(UNTIDY) == TIDY
    assert lay_out(TIDY) == TIDY
    assert parse_pto(UNTIDY) == parse_pto(TIDY)


@pytest.mark.parametrize("seed", range(30))
def test_printed_text_is_laid_out_already(seed: int) -> None:
    rng = random.Random(seed)
    text = to_text(random_module(seed))
    assert lay_out(text) == text
    shaken = "\n".join(" " * rng.randrange(5) + line for line in text.split("\n"))
    assert lay_out(shaken) == text


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_of_the_documentation_are_laid_out(number: int) -> None:
    assert lay_out(EXAMPLES[number]) == EXAMPLES[number]

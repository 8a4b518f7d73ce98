# SPDX-License-Identifier: MIT
"""Damaged text: always an error of ours with a place, or a program that survives its text; never anything else."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pto_jit as pto
from pto_jit.compiler import lower_module
from pto_jit.errors import CompilationError, InternalError, ParseError
from pto_jit.ir.isa import ROWS, Instruction
from pto_jit.modules import CompiledFunction
from pto_jit.options import Options
from tests.builder.test_programs import softmax_module
from tests.ir.test_documentation import EXAMPLES
from tests.ir.test_text import CONSTRUCTS, SEED

_TOKEN = re.compile(r"!pto\.\w+\s*<[^<>\n]*>|[%@][\w.]+|\d+(?:\.\d+)?|\w+|->|\n|[^\S\n]+|.")
_TYPES = {"T": "!pto.tile<8x8xf32>", "D": "f32"}
_OPERANDS = {"t": "%a", "x": "%m", "s": "2.0", "o": "%a", "i": "1"}


def spelled(row: Instruction) -> str:
    """A function with one instruction, its types right for most."""
    operands = ", ".join(_OPERANDS[p.role] for p in row.operands if p.role in _OPERANDS)
    attrs = ", ".join(f"{p.name}={p.default or 3}" for p in row.operands if p.role == "n")
    targets = ", ".join(f"%d{k}" for k, _ in enumerate(row.destinations))
    types = ", ".join(_TYPES[p.role] for p in row.destinations)
    line = f"{targets + ' = ' if targets else ''}{row.spelling} {operands}{f' {{{attrs}}}' if attrs else ''}"
    return (
        "func @f(%m: !pto.memref<gm,8x8,f32>) {\n  %a = tload %m[0, 0] : !pto.tile<8x8xf32>\n"
        f"  %d0 = tmov %a : !pto.tile<8x8xf32>\n  {line}{' : ' + types if types else ''}\n}}\n"
    )


CALLS = (
    str(softmax_module())
    + """
func @more(%input: !pto.memref, %n: i32) {
  FOR %i:idx, 0:idx, %n:idx, 1:idx
    CALL @rowmax(%input -> (%input, %i, 0), %output -> (%temp, %i, 0))
    CALL @elem_exp(%input -> (%input, %i, 0), %output -> (%input, 0, 0))
  ENDFOR
  ADD %k:i32, %n:i32, %1
  IF %k:u1
    CALL @rowsum(%output -> %temp, %input -> %input)
  ENDIF
}
"""
)
TEXTS = [CONSTRUCTS, SEED, CALLS, *EXAMPLES, *map(spelled, ROWS)]
WORDS = sorted({word for text in TEXTS for word in _TOKEN.findall(text) if not word.isspace()})


def damaged(text: str, rng: random.Random) -> str:
    """Words or lines dropped, doubled, swapped, or replaced by words of other programs."""
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.4:
            lines = text.split("\n")
            a, b, kind = rng.randrange(len(lines)), rng.randrange(len(lines)), rng.randrange(3)
            if kind == 0:
                del lines[a]
            elif kind == 1:
                lines.insert(b, lines[a])
            else:
                lines[a], lines[b] = lines[b], lines[a]
            text = "\n".join(lines)
            continue
        words = _TOKEN.findall(text)
        places = [k for k, word in enumerate(words) if not word.isspace()]
        if not places:
            return text
        at, kind = rng.choice(places), rng.randrange(4)
        words[at] = [rng.choice(WORDS), words[rng.choice(places)], "", f"{words[at]} {rng.choice(WORDS)}"][kind]
        text = "".join(words)
    return text


def read(text: str) -> pto.PTOModule | None:
    """The program, or None when it is refused as it should be."""
    try:
        module = pto.parse_pto(text)
    except InternalError:
        raise
    except ParseError as error:
        lines = text.split("\n")
        assert 1 <= error.lineno <= len(lines)
        assert 0 <= error.col_offset <= len(lines[error.lineno - 1])
        return None
    except CompilationError as error:
        assert error.lineno is not None and 1 <= error.lineno <= text.count("\n") + 1
        assert error.hint
        return None
    assert pto.parse_pto(str(module)) == module
    return module


@pytest.mark.parametrize("seed", range(30))
def test_damaged_programs_are_refused_with_a_place_or_are_programs(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        read(damaged(rng.choice(TEXTS), rng))


def test_what_is_not_refused_can_be_lowered() -> None:
    rng = random.Random(1)
    found = 0
    for _ in range(350):
        module = read(damaged(rng.choice([CONSTRUCTS, SEED, CALLS, *EXAMPLES]), rng))
        if module is None:
            continue
        found += 1
        try:
            lower_module(CompiledFunction._callable(module.ir), Options())
        except InternalError:
            raise
        except CompilationError as error:  # what only passes find, a step of 0 for instance
            assert error.lineno
    assert found > 10


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60), st.sampled_from([CALLS, SEED]), st.integers(0, 2000))
def test_any_text_anywhere_in_a_program(piece: str, text: str, at: int) -> None:
    at %= len(text)
    read(text[:at] + piece + text[at:])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    read(" ".join(words))


def test_a_cycle_of_calls_is_an_error_at_a_call_in_it() -> None:
    text = "func @a(%n: i64) {\n  CALL @b(%n -> %n)\n}\nfunc @b(%n: i64) {\n  CALL @a(%n -> %n)\n}\n"
    with pytest.raises(CompilationError, match="the calls form a cycle: @a -> @b -> @a") as caught:
        pto.parse_pto(text)
    assert caught.value.lineno == 5

# SPDX-License-Identifier: MIT
"""The text form: spellings, precedence, and that any text is a definition or one of our errors, soon."""

from __future__ import annotations

import random
import time

import pytest

import pto_jit as pto
from pto_jit.comprehensions.spelling import spelled
from pto_jit.comprehensions.text import TYPES, parse
from tests.comprehensions.operators import OPERATORS


def value(text: str) -> str:
    return spelled(pto.comprehension(f"def f(float(N) X, float(N) Y) -> (A) {{ A(i) = {text} }}").definition.body[0].value)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("X(i) + X(i) * Y(i) - 1", "X(i) + X(i)*Y(i) - 1"),
        ("(X(i) + 1) * 2", "(X(i) + 1)*2"),
        ("X(i) - (Y(i) - 1)", "X(i) - (Y(i) - 1)"),
        ("X(i) < Y(i) || X(i) > 1 && Y(i) > 1 ? 1 : X(i)", "X(i) < Y(i) || X(i) > 1 && Y(i) > 1 ? 1 : X(i)"),
        ("X(i) > 0 ? 1 : Y(i) > 0 ? 2 : 3 + X(i)", "X(i) > 0 ? 1 : Y(i) > 0 ? 2 : 3 + X(i)"),
        ("-X(i) * 2", "-X(i)*2"),
        ("!(X(i) > 0) ? 1.5e3 : .5", "!(X(i) > 0) ? 1500.0 : 0.5"),
        ("max(min(X(i), 1), 0)", "maximum(minimum(X(i), 1), 0)"),
        ("float(N) + X.0 + X(i)", "f32(N) + X.0 + X(i)"),
        ("X(i) / 2 % 3 * Y(i)", "X(i)/2%3*Y(i)"),
        ("X(i) / (2 % 3)", "X(i)/(2%3)"),
        ("1 - X(i) - Y(i)", "1 - X(i) - Y(i)"),
        ("!X(i) == -Y(i)", "!X(i) == -Y(i)"),
        ("1e3 * X(i) + 1.", "1000.0*X(i) + 1.0"),
        ("(X(i) > 0 ? 1 : 2) > 0 ? 3 : 4", "(X(i) > 0 ? 1 : 2) > 0 ? 3 : 4"),
    ],
)
def test_operators_bind_as_in_c(text: str, same: str) -> None:
    assert value(text) == same


def test_types_and_literals_are_read_as_their_dtypes() -> None:
    for name, dtype in TYPES.items():
        (definition,) = parse(f"def f({name}(N) X, {name} s) -> ({name}(N) A) {{ A(i) = {name}(X(i)) }}", "<types>")
        assert [p.dtype for p in definition.parameters] == [dtype, dtype] and definition.returns[0].dtype == dtype
    for text, kind in (("7", int), ("7.", float), (".5", float), ("7e2", float), ("1.5e-2", float)):
        (definition,) = parse(f"def f(float(N) X) -> (A) {{ A(i) = X(i) + {text} }}", "<literals>")
        assert type(definition.body[0].value.right.value) is kind and definition.body[0].value.right.value == float(text)


def test_lenient_spellings_and_comments() -> None:
    a = pto.comprehension("def f(float(N) X, int(1) S) -> A { A(i) = X(i) + S(0) }")
    b = pto.comprehension("def f(float32(N) X, # sizes are names\n int32(1) S)\n->(A){A(i)=X(i)+S(0)}")
    assert a.definition == b.definition
    c = pto.comprehension("def f(float(N) X) -> (A) { A(i) = t * t <=> square(X(i)) where t = X(i) + 1 }")
    assert spelled(c.definition.body[0].value) == "(X(i) + 1)*(X(i) + 1)"


def test_names_of_expressions_that_grow_are_refused_in_time() -> None:
    lets = ", ".join(f"t{k + 1} = t{k} * t{k}" for k in range(60))
    start = time.perf_counter()
    with pytest.raises(pto.CompilationError, match="more than 20000 parts"):
        pto.comprehension(f"def f(float(N) X) -> (A) {{ A(i) = t60 where t0 = X(i), {lets} }}")
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("text", ["(" * 5000, "-" * 5000 + "1", "1" + "+1" * 5000, "x ? " * 5000, "min(" * 5000, "9" * 5000])
def test_deep_text_is_refused(text: str) -> None:
    with pytest.raises(pto.ParseError):
        pto.comprehension(f"def f(float(N) X) -> (A) {{ A(i) = {text} }}")


def test_any_text_is_a_definition_or_our_error() -> None:
    rng = random.Random(5)
    texts = [text for _, text, _, _ in OPERATORS]
    tokens = sorted({t for text in texts for t in text.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()})
    accepted = 0
    start = time.perf_counter()
    for _ in range(1200):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            kind = rng.randrange(5)
            if kind == 0:
                text = text[:at] + text[at + rng.randint(1, 9) :]
            elif kind == 1:
                text = text[:at] + f" {rng.choice(tokens)} " + text[at:]
            elif kind == 2:
                text = text[:at] + rng.choice("(){}+-*/%<>=!?:,.#0129eINxi \n\0é") + text[at + 1 :]
            elif kind == 3:
                other = rng.choice(texts)
                text = text[:at] + other[rng.randrange(len(other)) :]
            else:
                end = rng.randrange(at, min(len(text), at + 30))
                text = text[:end] + text[at:end] + text[end:]
            if not text:
                break
        try:
            made = pto.comprehension(text)
            accepted += 1
            for one in made.__dict__.values() if not hasattr(made, "loops") else [made]:
                if not one._special:
                    one.loops()
        except pto.InternalError:
            raise
        except pto.PtoError as error:
            assert str(error)
    assert accepted > 20 and time.perf_counter() - start < 60

# SPDX-License-Identifier: MIT
"""Typing of every operation: what each row accepts, and what it refuses with which message."""

from __future__ import annotations

import pytest

from pto_jit.dtypes import f32, i64
from pto_jit.errors import CompilationError, ShapeError, TypeMismatchError
from pto_jit.ir import instruction_text
from pto_jit.ir.nodes import Const, Var
from pto_jit.ir.parse import parse
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.semantic import table
from pto_jit.semantic.rules import effects, infer, is_elementwise, is_generator, rows, tensor_arg
from tests.semantic.op_cases import ACCEPTED, REJECTED, parsed, program

GOOD = [(name, line) for name, lines in ACCEPTED.items() for line in lines]
BAD = [(name, line, message) for name, lines in REJECTED.items() for line, message in lines]


@pytest.fixture
def operations_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text without the instructions of the PTO ISA, some of which have the names of operations and rules of their own."""
    monkeypatch.setattr(instruction_text, "SPELLINGS", {})


def test_every_row_has_accepted_and_rejected_cases() -> None:
    assert set(ACCEPTED) == set(table.NAMES)
    assert set(REJECTED) == set(table.NAMES)


@pytest.mark.parametrize(("name", "line"), GOOD, ids=[line.split("\n")[0] for _, line in GOOD])
def test_the_rule_gives_the_types_written_in_the_line(name: str, line: str) -> None:
    _, op = parsed(line)
    assert op.op == name
    types = infer(op.op, op.args, dict(op.attrs), op.regions)
    declared = tuple(result.type for result in op.results)
    if line != "%o = tcopy %t : !pto.tile<?x8xf32>":  # the one line that forgets an extent
        assert types == declared
    parse(program(line), ops=table.NAMES, infer=infer)


@pytest.mark.parametrize(("name", "line", "message"), BAD, ids=[line.split("\n")[0] for _, line, _ in BAD])
@pytest.mark.usefixtures("operations_alone")
def test_the_rule_refuses_the_line_with_a_hint_at_its_place(name: str, line: str, message: str) -> None:
    with pytest.raises(CompilationError) as caught:
        parse(program(line), "case.pto", ops=table.NAMES, infer=infer)
    error = caught.value
    assert message in error.message
    assert isinstance(error, (TypeMismatchError, ShapeError))
    assert error.hint
    assert error.lineno == program("@@").split("@@")[0].count("\n") + 1
    assert error.code.startswith("PTO-T" if isinstance(error, TypeMismatchError) else "PTO-H")


@pytest.mark.usefixtures("operations_alone")
def test_a_code_belongs_to_one_class() -> None:
    seen: dict[str, set[str]] = {}
    for _, line, _ in BAD:
        with pytest.raises(CompilationError) as caught:
            parse(program(line), ops=table.NAMES, infer=infer)
        seen.setdefault(caught.value.code, set()).add(type(caught.value).__name__)
    assert all(len(classes) == 1 for classes in seen.values()), seen


def test_an_unknown_operation_is_named_with_similar_ones() -> None:
    with pytest.raises(TypeMismatchError, match="there is no operation `sqr`") as caught:
        infer("sqr", (), {})
    assert "sqrt" in (caught.value.hint or "")


def test_run_time_extents_are_accepted() -> None:
    a = Var("a", TileType(f32, (None, 8)))
    b = Var("b", TileType(f32, (4, None)))
    assert infer("add", (a, b), {}) == (TileType(f32, (4, 8)),)


def test_an_axis_of_extent_one_follows_a_run_time_extent() -> None:
    a = Var("a", TileType(f32, (None,)))
    b = Var("b", TileType(f32, (1,)))
    assert infer("add", (a, b), {}) == (TileType(f32, (None,)),)
    assert infer("add", (b, a), {}) == (TileType(f32, (None,)),)


def test_a_view_of_whole_rows_of_known_width_stays_contiguous() -> None:
    x = Var("x", TensorType(f32, (None, 8), "c"))
    n, zero, eight = Var("n", ScalarType(i64)), Const(0, ScalarType(i64)), Const(8, ScalarType(i64))
    assert infer("view", (x, n, zero, n, eight), {}) == (TensorType(f32, (None, 8), "c"),)
    assert infer("view", (x, n, zero, n, n), {}) == (TensorType(f32, (None, None), "inner"),)


def test_effects_name_the_tensor_they_are_on() -> None:
    assert (effects("load"), tensor_arg("load")) == ("reads", 0)
    assert (effects("store"), tensor_arg("store")) == ("writes", 1)
    assert (effects("put"), tensor_arg("put")) == ("writes", 2)
    assert (effects("print"), tensor_arg("print")) == ("writes", None)
    assert effects("alloc") == effects("view") == effects("add") == "none"
    for row in rows():
        for line in ACCEPTED[row.name]:
            _, op = parsed(line)
            if row.tensor is not None and table.row(op.op, len(op.args)) is row:
                assert isinstance(op.args[row.tensor].type, TensorType), row.name


def test_max_of_one_operand_is_a_reduction_and_of_two_elementwise() -> None:
    assert is_elementwise("max")
    assert not is_elementwise("max", 1)
    assert is_elementwise("exp", 1)


def test_generators_take_no_tile() -> None:
    assert {row.name for row in rows() if row.generator} == {"full", "arange", "rand", "randn"}
    assert is_generator("full")
    assert not is_generator("rand_at")

# SPDX-License-Identifier: MIT
"""What a builder refuses: at the call that is wrong, on the user's line."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import pto_jit as pto
from pto_jit import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule

F, G = ElementType.F32, MemorySpace.GLOBAL
Step = Callable[[PTOFunctionBuilder], object]


def module() -> PTOModule:
    """Functions to call: copy(input, output) of an 8x8 tile, fill(output, value) and host(x)."""
    made = PTOModule("m")
    (PTOFunctionBuilder("copy", made).in_core().memref("input", G, F).memref("output", G, F).tile("x", 8, 8, F)
     .load("x", "input").store("output", "x").build())  # fmt: skip
    (PTOFunctionBuilder("fill", made).in_core().memref("output", G, F).scalar("value", F).tile("x", 8, 8, F)
     .expands("x", "value").store("output", "x").build())  # fmt: skip
    PTOFunctionBuilder("host", made).not_in_core().memref("x", G, F).call("fill", {"output": "x", "value": 1}).build()
    return made


def core(b: PTOFunctionBuilder) -> PTOFunctionBuilder:
    return b.in_core().memref("m", G, F).tile("x", 8, 8, F).tile("y", 8, 4, F).scalar("s", F).load("x", "m")


def host(b: PTOFunctionBuilder) -> PTOFunctionBuilder:
    return b.not_in_core().memref("m", G, F).scalar("n", ElementType.I32).scalar("f", F)


WRONG: list[tuple[str, type[Exception], Step]] = [
    # what belongs where
    ("`.tile` in the orchestration function", pto.CompilationError, lambda b: host(b).tile("x", 8, 8, F)),
    ("`.exp` in the orchestration function", pto.CompilationError, lambda b: host(b).exp("y", "x")),
    ("`.load` in the orchestration function", pto.CompilationError, lambda b: host(b).load("x", "m")),
    ("`.store` in the orchestration function", pto.CompilationError, lambda b: host(b).store("m", "x")),
    ("`.matmul` in the orchestration function", pto.CompilationError, lambda b: host(b).matmul("c", "a", "b")),
    ("belongs in an in-core function", pto.CompilationError, lambda b: core(b).not_in_core()),
    ("an in-core function passes whole memrefs", pto.CompilationError,
     lambda b: core(b).call("copy", {"input": ("m", 0, 0), "output": "m"})),
    ("in-core code calls the orchestration function `host`", pto.CompilationError, lambda b: core(b).call("host", {"x": "m"})),
    # unknown names
    ("there is no function `copi`", pto.CompilationError, lambda b: host(b).call("copi", {})),
    ("the calls form a cycle", pto.CompilationError, lambda b: host(b).call("f", {})),
    ("there is no tile `z`", pto.CompilationError, lambda b: core(b).exp("y", "z")),
    ("there is no memref `mm`", pto.CompilationError, lambda b: core(b).load("x", "mm")),
    ("the tile `t` is not declared", pto.CompilationError, lambda b: core(b).load("t", "m")),
    ("there is no scalar `k`", pto.CompilationError, lambda b: host(b).for_loop("i", 0, "k", 1)),
    ("there is no memref `t`", pto.CompilationError, lambda b: core(b).call("copy", {"input": "m", "output": "t"})),
    ("there is no tensor %temp", pto.CompilationError,
     lambda b: host(b).call("copy", {"input": "temp", "output": "m"}).build()),
    ("the tile `y` is read before anything is assigned", pto.CompilationError, lambda b: core(b).exp("z", "y")),
    ("`x` is a tile, a memref is wanted", pto.TypeMismatchError, lambda b: core(b).store("x", "x")),
    ("the memref stands first", pto.CompilationError, lambda b: core(b).store("x", "m")),
    ("`m` is a memref, not a tile", pto.TypeMismatchError, lambda b: core(b).exp("m", "x")),
    ("`x` is already declared", pto.CompilationError, lambda b: core(b).scalar("x", F)),
    ("the module already has a function `copy`", pto.CompilationError, lambda b: PTOFunctionBuilder("copy", module())),
    # shapes and types
    ("the result is !pto.tile<8x8xf32>, `y` is !pto.tile<8x4xf32>", pto.ShapeError, lambda b: core(b).exp("y", "x")),
    ("cannot be broadcast", pto.ShapeError, lambda b: core(b).expands("y", 0).add("z", "x", "y")),
    ("the contracted extents", pto.ShapeError, lambda b: core(b).expands("y", 0).matmul("z", "y", "x")),
    ("`rowexpandsub`: the vector is !pto.tile<8x4xf32>", pto.ShapeError,
     lambda b: core(b).expands("y", 0).rowexpandsub("z", "x", "y")),
    ("a tile of 0 x 8 elements", pto.ShapeError, lambda b: b.tile("t", 0, 8, F)),
    ("is not a shape of a memref", pto.ShapeError, lambda b: b.memref("t", G, F, (8,))),
    ("is not an element type", pto.TypeMismatchError, lambda b: b.tile("t", 8, 8, "f31")),
    ("a memref cannot lie in", pto.CompilationError, lambda b: b.memref("t", "ub", F)),
    ("operands of one dtype", pto.TypeMismatchError, lambda b: core(b).tile("i", 8, 8, "i32").expands("i", 1).add("z", "x", "i")),
    ("1.5 is not a number of i32", pto.TypeMismatchError, lambda b: core(b).tile("i", 8, 8, "i32").expands("i", 1.5)),
    ("needs f", pto.TypeMismatchError, lambda b: core(b).tile("i", 8, 8, "i32").expands("i", 1).exp("j", "i")),
    ("there is no mode 'above'", pto.TypeMismatchError, lambda b: core(b).cmp("z", "x", "x", "above")),
    ("the shape of the result is not known", pto.ShapeError, lambda b: core(b).expands("z", 0)),
    ("`f` is f32, not an integer", pto.TypeMismatchError, lambda b: host(b).for_loop("i", 0, "f", 1)),
    ("1.5", pto.TypeMismatchError, lambda b: host(b).for_loop("i", 0, 1.5, 1)),  # type: ignore[arg-type]
    ("the step of a loop is 0", pto.ScheduleError, lambda b: host(b).for_loop("i", 0, 4, 0)),
    ("accessed with rows of 8 and of 4 elements", pto.ShapeError,
     lambda b: core(b).load("y", "m")),
    # control flow
    ("`.end_for()` without `.for_loop(...)`", pto.CompilationError, lambda b: host(b).end_for()),
    ("`.end_if()` without `.if_then(...)`", pto.CompilationError, lambda b: host(b).for_loop("i", 0, 1, 1).end_if()),
    ("`.end_for()` without", pto.CompilationError, lambda b: host(b).for_loop("i", 0, 1, 1).if_then("n").end_for()),
    ("`.else_branch()`", pto.CompilationError, lambda b: host(b).else_branch()),
    ("the branch has an else part", pto.CompilationError, lambda b: host(b).if_then("n").else_branch().else_branch()),
    ("`.for_loop(...)` is not closed", pto.CompilationError, lambda b: host(b).for_loop("i", 0, 1, 1).build()),
    ("`.if_then(...)` is not closed", pto.CompilationError, lambda b: host(b).if_then("n").build()),
    ("a loop of `i` is open", pto.CompilationError, lambda b: host(b).for_loop("i", 0, 1, 1).for_loop("i", 0, 1, 1)),
    ("the loop variable `i` is assigned", pto.CompilationError, lambda b: host(b).for_loop("i", 0, 1, 1).scalar_li("i", 3)),
    # calls
    ("`copy` needs an argument for `output`", pto.TypeMismatchError, lambda b: host(b).call("copy", {"input": "m"})),
    ("`copy` has no parameter `out`", pto.TypeMismatchError,
     lambda b: host(b).call("copy", {"input": "m", "output": "m", "out": "m"})),
    ("`value` is f32, `n` is i32", pto.TypeMismatchError, lambda b: host(b).call("fill", {"output": "m", "value": "n"})),
    ("`output` holds f32, `k` i32", pto.TypeMismatchError,
     lambda b: host(b).memref("k", G, "i32").call("fill", {"output": "k", "value": 1})),
    ("does not select a tile", pto.TypeMismatchError,
     lambda b: host(b).call("fill", {"output": ("m", 0), "value": 1})),  # type: ignore[dict-item]
    ("'f' is not a row or column of tiles", pto.TypeMismatchError,
     lambda b: host(b).call("fill", {"output": ("m", "f", 0), "value": 1})),
    ("is given !pto.memref<gm,64x16,f32>", pto.ShapeError,
     lambda b: host(b).memref("w", G, F, (64, 16)).call("fill", {"output": "w", "value": 1}).build()),
    ("its row is computed from run-time data", pto.ShapeError,
     lambda b: host(b).memref("k", G, "i32").for_loop("i", 0, "n").scalar_load("r", "k", "i")
     .call("fill", {"output": ("t", "r", 0), "value": 1}).end_for().build()),
]  # fmt: skip


@pytest.mark.parametrize(("message", "kind", "step"), WRONG, ids=[w[0] for w in WRONG])
def test_a_wrong_call_is_an_error_at_its_line(message: str, kind: type[Exception], step: Step) -> None:
    builder = PTOFunctionBuilder("f", module=module())
    with pytest.raises(kind, match=re.escape(message)) as caught:
        step(builder)
    error = caught.value
    assert isinstance(error, pto.CompilationError)
    code = step.__code__
    last = max(line for _, _, line in code.co_lines() if line is not None)
    assert error.filename == code.co_filename
    assert error.lineno is not None and code.co_firstlineno <= error.lineno <= last
    assert error.hint and re.match(r"PTO-[A-Z]\d{3}$", error.code)


def test_the_error_of_a_chained_call_points_at_that_call() -> None:
    with pytest.raises(pto.CompilationError) as caught:
        (PTOFunctionBuilder("f").in_core()
         .memref("m", G, F)
         .tile("x", 8, 8, F)
         .load("x", "m")
         .exp("y", "q")
         .store("m", "y"))  # fmt: skip
    text = str(caught.value)
    assert '         .exp("y", "q")' in text and "^^^" in text
    assert "did you mean" not in text and "help: declare it" in text


def test_what_a_branch_may_leave_unassigned_is_an_error_where_it_is_read() -> None:
    b = core(PTOFunctionBuilder("f")).scalar("n", "i32")
    b.if_then("n").mov("z", "x").end_if()
    b.exp("w", "z")
    with pytest.raises(pto.CompilationError, match="may be read before it is assigned"):
        b.build()


def test_a_builder_is_done_after_build() -> None:
    b = core(PTOFunctionBuilder("f"))
    b.build()
    with pytest.raises(pto.CompilationError, match="is built already"):
        b.exp("y", "x")


def test_a_function_that_was_refused_can_be_completed_and_built_again() -> None:
    module = PTOModule()
    b = core(PTOFunctionBuilder("f", module)).for_loop("i", 0, 3)
    with pytest.raises(pto.CompilationError, match="is not closed"):
        b.build()
    b.end_for().scalar("n", "i32").if_then("n").mov("z", "x").end_if().exp("w", "z")
    for _ in range(2):  # it is refused for what it is, not as one that is built
        with pytest.raises(pto.CompilationError, match="may be read before it is assigned"):
            b.build()
    assert "f" not in module


def test_python_checks_the_number_of_operands() -> None:
    with pytest.raises(TypeError, match=r"exp\(\): missing a required argument: 'x'"):
        core(PTOFunctionBuilder("f")).exp("y")  # type: ignore[call-arg]


def test_calls_of_compiled_functions_check_their_arguments() -> None:
    m = module().compile()
    x, y = np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32)
    for kind, match, call in [
        (pto.ArgumentError, "missing the argument `output`", lambda: m.copy(x)),
        (pto.ArgumentError, "has dtype f64, f32 is wanted", lambda: m.copy(x.astype(np.float64), y)),
        (pto.ArgumentError, "has rank 1, 2 is wanted", lambda: m.copy(x[0], y)),
        (pto.ArgumentError, "a tensor is wanted", lambda: m.copy(1.0, y)),
        (pto.ShapeError, "has shape 8x16, ?x8 is wanted", lambda: m.copy(np.zeros((8, 16), np.float32), y)),
        (pto.ArgumentError, "a number of f32 is wanted", lambda: m.fill(y, "a")),
        (pto.ArgumentError, "is read-only", lambda: m.copy(x, _frozen(y))),
        (AttributeError, "has no function `copi`; did you mean `copy`", lambda: m.copi),
        (KeyError, "has no function `nothing`", lambda: m["nothing"]),
        (pto.TargetError, "unknown target", lambda: module().compile("tpu")),
    ]:
        with pytest.raises(kind, match=re.escape(match)):
            call()


def _frozen(array: np.ndarray) -> np.ndarray:
    other = array.copy()
    other.flags.writeable = False
    return other

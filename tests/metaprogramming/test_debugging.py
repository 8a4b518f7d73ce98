# SPDX-License-Identifier: MIT
"""Python's own tools on kernels: breakpoints, stepping, coverage, print and tracebacks in interpret mode; and what the
compiler shows while it compiles."""

from __future__ import annotations

import bdb
import io
import pdb
import sys
import traceback
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.metaprogramming.agreement import agree


@pto.jit
def stopping(x, y):
    total = 0.0
    for i in pl.range(x.shape[0]):
        total += x[i]
        if i == 1:
            breakpoint()
        y[i] = total


def test_breakpoint_stops_in_the_function_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, dict[str, Any]]] = []

    def hook() -> None:
        frame = sys._getframe(1)
        seen.append((frame.f_code.co_name, frame.f_lineno, dict(frame.f_locals)))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    y = np.zeros(3, np.float32)
    stopping.interpret(np.array([1, 2, 4], np.float32), y)
    ((name, line, variables),) = seen
    assert name == "stopping" and line == stopping.__wrapped__.__code__.co_firstlineno + 6
    assert variables["i"] == 1 and float(variables["total"]) == 3.0 and variables["y"][0] == 1.0
    assert y.tolist() == [1, 3, 7]


def test_a_kernel_with_a_breakpoint_does_not_compile_and_says_what_to_do() -> None:
    with pytest.raises(pto.CompilationError, match="interpret") as caught:
        stopping(np.ones(3, np.float32), np.ones(3, np.float32))
    assert caught.value.code == "PTO-N033"


def test_pdb_steps_through_the_lines_and_prints_values() -> None:
    @pto.jit
    def kernel(x):
        t = pl.load(x) + 1
        n = pl.max(t)
        return n * 2

    lines = kernel.__wrapped__.__code__.co_firstlineno
    commands = f"break {__file__}:{lines + 4}\ncontinue\np n, t.shape\nnext\nclear 1\ncontinue\n"
    out = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO(commands), stdout=out, nosigint=True, readrc=False)
    debugger.use_rawinput = False
    x = np.array([1.5, 2.5], np.float32)
    assert debugger.runcall(kernel.interpret, x) == 7.0
    text = out.getvalue()
    assert "(f32(3.5), (2,))" in text and "return n * 2" in text


def test_line_tracing_sees_the_lines_that_ran_as_coverage_does() -> None:
    @pto.jit
    def kernel(x, n):
        if n > 2:
            s = pl.sum(x)
        else:
            s = 0.0
        return s + 1

    ran: set[int] = set()
    code = kernel.__wrapped__.__code__

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code is code and event == "line":
            ran.add(frame.f_lineno - code.co_firstlineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        kernel.interpret(np.ones(3), 5)
    finally:
        sys.settrace(before)
    assert ran == {2, 3, 6}


def test_print_shows_values_when_interpreted_and_is_refused_when_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    @pto.jit
    def kernel(x, n):
        print("extent", x.shape[0], "n", n, "first", x[0], f"{x[0]:.2f}")
        return x[0] * n

    x = np.array([0.5, 1], np.float32)
    assert kernel.interpret(x, 3) == 1.5
    assert capsys.readouterr().out == "extent 2 n 3 first 0.5 0.50\n"
    with pytest.raises(pto.CompilationError, match=r"(f-string|print)"):
        kernel(x, 3)


def test_a_traceback_has_the_lines_of_the_user() -> None:
    def helper(v):
        if v > 2:
            raise ValueError("too large")
        return v

    @pto.jit
    def kernel(x):
        for i in pl.range(4, parallel=True):
            x[i] = helper(x[i])

    with pytest.raises(ValueError, match="too large") as caught:
        kernel.interpret(np.arange(4.0))
    frames = [f.line for f in traceback.extract_tb(caught.value.__traceback__) if f.filename == __file__]
    assert frames[-2:] == ["x[i] = helper(x[i])", 'raise ValueError("too large")']


def test_interpret_mode_runs_the_function_object_with_its_captures() -> None:
    calls: list[int] = []

    def make(k):
        @pto.jit
        def kernel(x):
            calls.append(k)
            return x * k

        return kernel

    np.testing.assert_array_equal(make(3).interpret(np.ones(2)), [3, 3])
    np.testing.assert_array_equal(make(4).interpret(np.ones(2)), [4, 4])
    assert calls == [3, 4]


# -- numbers round and wrap as in compiled code -----------------------------------------------------------------


def test_numbers_wrap_round_and_divide_as_compiled() -> None:
    @pto.jit
    def whole(n, z):
        return (n * 2**62 * 4, (n + 2**62) + 2**62, n // z, n % z, divmod(n, z), n << (n + 70), n >> (n + 70),
                (-n) >> (n + 70), abs(n - 7), -n, ~n, n ^ 3, n / 2, n // 2 * 2.5, 7 - n, 2**n, -7 // n, -7 % n)  # fmt: skip

    @pto.jit
    def real(f, z):
        return (f / z, -f / z, z / z, f // z, f**1000, f * 1e308 * 1e10, int(f * 1e30), int(z / z), round(f), int(-f),
                f % 1.5, -f % 1.5, (-f) ** 0.5, 1 / z, f - z > 2, max(f, z))  # fmt: skip

    agree(whole, 5, 0)
    agree(real, 2.5, 0.0)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u32", "f16", "bf16", "f32", "bool_"])
def test_elements_compute_in_their_dtype_as_compiled(dtype: str) -> None:
    numbers = dtype.lstrip("uif") != dtype and dtype != "bool_" and dtype[0] in "ui"

    @pto.jit
    def kernel(x, n):
        a, b = x[0], x[1]
        common = (a + b, a * b, a / (b + b), a > b, a == b, a + n, a * n, a.to(pl.i8), int(a) + 1000, float(b) / 4)
        if numbers:
            return (*common, a - b, a // b, a % b, a & b, ~a, a << 3, a // (b - b), -b, abs(b - a - a))
        return common

    x = np.array([100, 7], getattr(pl, dtype).numpy) if dtype != "bool_" else np.array([True, False])
    agree(kernel, x, 300, tolerance=0)


def test_the_documented_differences_of_interpret_mode() -> None:
    """What CPython does itself cannot be changed from outside: these are said in docs/language.md."""

    @pto.jit
    def smaller(x):
        return min(x[0], x[1])

    x = np.array([-3.5, np.nan], np.float32)
    assert np.isnan(smaller(x)) and smaller.interpret(x) == -3.5


# -- compile time -----------------------------------------------------------------------------------------------


def test_static_print_shows_phases_and_types_once_per_specialisation(capsys: pytest.CaptureFixture[str]) -> None:
    @pto.jit
    def kernel(x, n, k: pl.constexpr):
        for i in range(n):
            t = pl.load(x, [i, 0], [1, 4])
            pl.static_print("in the loop:", i, t, x, n, k, [n, 2], t.dtype)
        return pl.sum(x)

    x = np.zeros((3, 4), np.float32)
    kernel(x, 3, 8)
    kernel(x, 2, 8)
    first = capsys.readouterr().out
    assert first == "in the loop: <run-time i64> <f32 tile [1, 4]> <f32 tensor [?, ?]> <run-time i64> 8 [<run-time i64>, 2] f32\n"
    kernel(x.astype(np.float64), 3, 8)
    assert "f64" in capsys.readouterr().out


def test_breakpoint_static_stops_the_compiler_with_the_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stops: list[str] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append("stop"))

    @pto.jit
    def kernel(x, n):
        block = 16
        t = pl.load(x)
        pl.breakpoint_static()
        return t * n + block

    kernel(np.ones(3, np.float32), 2)
    kernel(np.ones(3, np.float32), 3)
    out = capsys.readouterr().out
    assert stops == ["stop"]
    here = kernel.__wrapped__.__code__.co_firstlineno + 4
    assert f"test_debugging.py:{here}:" in out
    for part in ("block = 16", "t: ", "n: ", "x: "):
        assert part in out, out
    assert kernel.interpret(np.ones(3, np.float32), 2).tolist() == [18, 18, 18], "nothing to see when interpreted"


def test_leaving_the_debugger_at_breakpoint_static_leaves_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def quits() -> None:
        raise bdb.BdbQuit

    monkeypatch.setattr(sys, "breakpointhook", quits)

    @pto.jit
    def kernel(x):
        pl.breakpoint_static()
        return pl.load(x) + 1

    with pytest.raises(bdb.BdbQuit):
        kernel(np.ones(3, np.float32))
    monkeypatch.setattr(sys, "breakpointhook", lambda: None)
    assert kernel(np.ones(3, np.float32)).tolist() == [2, 2, 2]


def test_pl_print_without_a_format_prints_its_values(capfd: pytest.CaptureFixture[str]) -> None:
    @pto.jit
    def kernel(x, n):
        pl.print(n, x[0], 2.5)
        pl.print(x[1])

    for run in (kernel, kernel.interpret):
        run(np.array([1.5, -2.0], np.float32), 3)
        assert capfd.readouterr().out.split() == ["3", "1.5", "2.5", "-2.0"]


def test_the_ir_is_shown_with_source_lines_as_comments() -> None:
    @pto.jit
    def kernel(x, y):
        for i in pl.range(0, 8, 4):
            y[i : i + 4] = x[i : i + 4] * 2

    compiled = kernel.compile(np.ones(8, np.float32), np.ones(8, np.float32))
    stage = compiled.stages[0]
    plain, noted = compiled.ir(stage), compiled.ir(stage, source=True)
    here = kernel.__wrapped__.__code__.co_firstlineno
    assert "// " not in plain.split("func", 1)[1]
    for offset, text in ((2, "for i in pl.range(0, 8, 4):"), (3, "y[i : i + 4] = x[i : i + 4] * 2")):
        assert f"// {here + offset}: {text}" in noted, noted
    assert pto.parse_pto(noted) == pto.parse_pto(plain)
    with pytest.raises(ValueError, match="no stage"):
        compiled.ir("nothing", source=True)

# SPDX-License-Identifier: MIT
"""`compile`, `bind`, what a compiled specialisation shows, and options."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl


@pto.jit
def scale(x: pl.Tensor, y: pl.Tensor, factor: float = 2.0):
    with pl.incore():
        for i in pl.range(0, x.shape[0], chunk=4):
            pl.store(pl.load(x, [i], [1]) * factor, [i], y)


def arrays(n: int = 10) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(n, dtype=np.float32), np.zeros(n, np.float32)


def test_compile_does_not_run_and_the_result_does() -> None:
    x, y = arrays()
    compiled = scale.compile(x, y)
    assert isinstance(compiled, pto.Compiled) and not y.any()
    compiled(x, y, factor=3.0)
    np.testing.assert_array_equal(y, x * 3)
    assert "f32[?]" in repr(compiled)


def test_a_bound_launch_runs_again_on_the_same_memory() -> None:
    x, y = arrays()
    bound = scale.compile(x, y).bind(x, y, 5.0)
    del y
    x[0] = 4
    assert bound() is None
    x[1] = 7
    bound()
    np.testing.assert_array_equal(bound.args[1], x * 5)
    with pytest.raises(TypeError):
        bound(x)


def test_a_spec_stands_for_an_array_and_a_call_finds_what_was_compiled() -> None:
    kernel = pto.jit(lambda x, n: x * n)
    compiled = kernel.compile(pto.spec((None, 4), np.float32), 3)
    x = np.ones((2, 4), np.float32)
    fixed = kernel.compile(pto.spec((None, 4), pl.f32), 3)
    np.testing.assert_array_equal(compiled(x, 2), x * 2)
    np.testing.assert_array_equal(fixed(x, 2), x * 2)
    assert len(kernel.specializations()) == 1
    open_ = kernel.compile(pto.spec((None, None), "float32"), 3)
    np.testing.assert_array_equal(kernel(x, 5), x * 5)
    assert len(kernel.specializations()) == 2
    np.testing.assert_array_equal(open_(np.ones((3, 3), np.float32), 2), np.full((3, 3), 2))


def test_arguments_of_other_kinds_are_refused_with_both_kinds() -> None:
    x, y = arrays()
    compiled = scale.compile(x, y)
    for args, reason in (
        ((x.astype(np.float64), y), r"`x` is f64\[10\], f32\[\?\] is wanted"),
        ((x.reshape(2, 5), y), r"`x` is f32\[2x5\], f32\[\?\] is wanted"),
        ((x[::2], y), r"`x` is f32\[5\] strided, f32\[\?\] is wanted"),
        ((x, y, 3), r"`factor` is i64, f64 is wanted"),
        ((x, 3.0), "`y` must be a tensor, got the float 3.0"),
    ):
        for use in (compiled, compiled.bind):
            with pytest.raises(pto.ArgumentError, match=reason):
                use(*args)
    with pytest.raises(pto.ArgumentError, match="missing the argument"):
        compiled(x)
    fixed = pto.jit(lambda t: t + 1).compile(pto.spec((4,), pl.f32))
    with pytest.raises(pto.ArgumentError, match=r"`t` is f32\[5\], f32\[4\] is wanted"):
        fixed(np.zeros(5, np.float32))


def test_code_for_any_strides_takes_a_contiguous_array() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    compiled = pto.jit(lambda t: t + 1).compile(x[:, ::-1])
    for y in (x, x.T, x[1:, 1:], x, x.T):
        np.testing.assert_array_equal(compiled(y), y + 1)


def test_a_compiled_kernel_checks_that_outputs_are_writable() -> None:
    x, y = arrays()
    compiled = scale.compile(x, y)
    compiled(x, y)
    y.flags.writeable = False
    for use in (compiled, compiled.bind):
        with pytest.raises(pto.ArgumentError, match="`y` is written"):
            use(x, y)


@dataclass
class Settings:
    times: float


def read_once(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to describe arguments from here on."""

    def refused(*args: Any) -> None:
        raise AssertionError("the arguments are described again")

    monkeypatch.setattr(compiled, "_matching", refused)


def test_later_calls_do_not_describe_their_arguments_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (np.full((2, 3), v, np.float32) for v in (1, 2))
    lists = ft.from_flat(np.ones((3, 1, 4), np.float32), [[0, 1, 3]])
    weights = np.eye(4, dtype=np.float32)
    programs: list[tuple[Any, tuple[Any, ...]]] = [
        (lambda x, n: x * n, (one, 3)),
        (lambda p: p[0] + p[1], ((one, two),)),
        (lambda s, x: x * s.times, (Settings(2.0), one)),
        (lambda xs, w: ft.map(lambda x: ft.map(lambda e: e @ w, x), xs), (lists, weights)),
    ]
    for program, given in programs:
        compiled = pto.jit(program).compile(*given)
        first = compiled(*given)
        with monkeypatch.context() as patch:
            read_once(compiled, patch)
            again = compiled(*given)
        arrays = [made.leaves if isinstance(made, ft.FractalTensor) else made for made in (first, again)]
        np.testing.assert_array_equal(arrays[0], arrays[1])


def test_extents_that_a_version_was_made_for_are_checked_in_later_calls_too() -> None:
    def arrays(*shape: int) -> np.ndarray:
        return np.ones(shape, np.float32)

    spec, of = pto.spec, ft.from_flat(arrays(3, 1, 4))
    apply = lambda xs, w: ft.map(lambda e: e @ w, xs)  # noqa: E731
    cases: list[tuple[Any, tuple[Any, ...], tuple[Any, ...], list[tuple[Any, ...]]]] = [
        (lambda x: x + 1, (spec((2, 3), pl.f32),), (arrays(2, 3),), [(arrays(2, 4),), (arrays(4, 3),)]),
        (lambda x, p: x + p[0], (spec((2,), pl.f32), (arrays(2),)), (arrays(2), (arrays(2),)), [(arrays(3), (arrays(3),))]),
        (apply, (of, spec((4, 4), pl.f32)), (of, arrays(4, 4)), [(of, arrays(5, 4)), (of, arrays(4, 5))]),
        (apply, (of, arrays(4, 4)), (of, arrays(4, 4)), [(of, arrays(4, 5)), (ft.from_flat(arrays(3, 1, 5)), arrays(4, 4))]),
    ]  # fmt: skip
    for program, made_for, fits, others in cases:
        compiled = pto.jit(program).compile(*made_for)
        for _ in range(3):
            compiled(*fits)
            for other in others:
                with pytest.raises((pto.ArgumentError, pto.LaunchError, pto.ShapeError)):
                    compiled(*other)


def test_a_compiled_version_sees_that_an_object_has_changed() -> None:
    x, settings = np.ones(3, np.float32), Settings(2.0)
    compiled = pto.jit(lambda s, x: x * s.times).compile(settings, x)
    for _ in range(2):
        np.testing.assert_array_equal(compiled(settings, x), x * 2)
    settings.times = 3.0
    for _ in range(2):
        with pytest.raises(pto.ArgumentError, match="PTO-A013"):
            compiled(settings, x)
    settings.times = 2.0
    np.testing.assert_array_equal(compiled(settings, x), x * 2)


@pytest.mark.parametrize("origin", ["compiled", "disk"])
def test_every_stage_can_be_read(origin: str, tmp_path: Path) -> None:
    x, y = arrays()
    kernel = pto.jit(scale.__pto_jit__)
    if origin == "disk":
        pto.jit(scale.__pto_jit__).compile(x, y)
    compiled = kernel.compile(x, y)
    assert kernel.specializations()[0].origin == origin
    assert compiled.stages[0] == "source" and compiled.stages[-2:] == ["llvm", "assembly"]
    for stage in compiled.stages:
        text = compiled.ir(stage)
        assert "scale" in text, stage
    assert pto.parse_pto(compiled.ir("source")).name == "scale"
    with pytest.raises(ValueError, match="there is no stage 'nonsense'; the stages are source"):
        compiled.ir("nonsense")
    kinds: list[str] = []

    def walk(nodes: list[Any]) -> None:
        for node in nodes:
            kinds.append(f"{node.kind} {node.var}")
            walk(node.children)

    walk(compiled.loop_nest())
    assert "chunk i" in kinds and "in_chunk i" in kinds
    assert "chunk i" in str(compiled.loop_nest()[0])
    assert any(d.kind == "placement" or d.kind == "chunk" for d in compiled.decisions)
    assert all(isinstance(d, pto.Decision) for d in compiled.decisions)
    assert compiled.timings["source"] > 0
    paths = compiled.write(tmp_path / "out")
    assert {p.name for p in paths} == set(compiled.sources) == {p.name for p in (tmp_path / "out").iterdir()}
    assert all(p.read_text() == compiled.sources[p.name] for p in paths)


def test_options_are_checked_by_name_and_kind() -> None:
    for options, reason in (
        ({"speed": 3}, r"no option `speed`\nhelp: the options are target, debug, fastmath, num_threads, cache"),
        ({"debug": "yes"}, "debug='yes'"),
        ({"num_threads": 0}, "num_threads=0"),
        ({"num_threads": True}, "num_threads=True"),
        ({"num_threads": 2.0}, "num_threads=2.0"),
        ({"num_threads": 1025}, "num_threads=1025\nhelp: give an integer from 1 to 1024"),
    ):
        with pytest.raises(pto.ArgumentError, match=reason):
            pto.jit(**options)
    with pytest.raises(pto.TargetError, match="unknown target 'abacus'"):
        pto.jit(target="abacus")
    as_usual = pto.jit(target=None)(scale.__pto_jit__)  # None is what was not said
    assert as_usual.compile(*arrays(), target=None).stages == scale.compile(*arrays()).stages
    with pytest.raises(pto.ArgumentError, match="takes a function"):
        pto.jit(3)  # type: ignore[call-overload]
    with pytest.raises(pto.TargetError):
        scale.compile(*arrays(), target="abacus")


def test_compile_overrides_the_decorators_options_unless_they_are_parameters() -> None:
    kernel = pto.jit(debug=False)(lambda x, i: x[i])
    x, _ = arrays()
    with pytest.raises(pto.BoundsError):
        kernel.compile(x, 3, debug=True)(x, 10)
    assert kernel(x, 3) == 3
    assert len(kernel.specializations()) == 2

    @pto.jit
    def named(x, debug: int):
        return x[0] + debug

    assert named.compile(x, debug=3)(x, debug=4) == 4
    with pytest.raises(pto.TargetError, match="abacus"):  # of a parameter that has its value, the option is meant
        pto.jit(lambda x, target: x[target]).compile(x, 3, target="abacus")
    with pytest.raises(pto.TargetError, match="abacus"):
        pto.comprehension("def f(float(N) target) -> (y) { y(i) = target(i) }").compile(x, target="abacus")


def test_debug_fastmath_and_the_cache_option_change_what_is_made(settings: Path) -> None:
    x, _ = arrays()
    kernel = pto.jit(lambda x, i: x[i])
    kernel.compile(x, 1, cache=False)
    assert not list(settings.rglob("*.pto"))
    texts = [kernel.compile(x, 1, **o).ir("llvm") for o in ({}, {"debug": True}, {"fastmath": True})]
    assert texts[0] != texts[1]
    assert len(list(settings.rglob("*.pto"))) == 3


def test_specializations_say_what_was_made_and_why(caplog: pytest.LogCaptureFixture) -> None:
    kernel = pto.jit(lambda x, n: x * n)
    pto.config.log = "specialize"
    with caplog.at_level(logging.INFO, logger="pto_jit"):
        kernel(np.ones(3, np.float32), 2)
        kernel(np.ones(3), 2)
        kernel(np.ones(3), 2.0)
        kernel(np.ones(3), 4.0)
    made = kernel.specializations()
    assert [s.signature for s in made] == ["x: f32[?], n: i64", "x: f64[?], n: i64", "x: f64[?], n: f64"]
    assert [s.reason for s in made] == [
        "the first call",
        "argument kinds changed: x: f32[?] -> x: f64[?]",
        "argument kinds changed: n: i64 -> n: f64",
    ]
    assert all(s.origin == "compiled" and s.seconds > 0 for s in made)
    assert len([r for r in caplog.records if "<lambda>: compiled" in r.getMessage()]) == 3


def test_a_dump_dir_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    pto.config.dump_dir = tmp_path / "file"
    x, y = arrays()
    kernel = pto.jit(scale.__pto_jit__)
    with pytest.warns(RuntimeWarning, match=r"the dump directory .*file cannot be used \(Not a directory\)"):
        kernel(x, y)
    expected = arrays()[1]
    scale.interpret(x, expected)
    np.testing.assert_array_equal(y, expected)


def test_dump_dir_gets_every_stage(tmp_path: Path) -> None:
    pto.config.dump_dir = tmp_path
    x, y = arrays()
    kernel = pto.jit(scale.__pto_jit__)
    for given in (x, x.astype(np.float64)):  # each compilation has a directory of its own, also one that is on the disk
        compiled = kernel.compile(given, y)
    first, second = sorted(tmp_path.iterdir(), key=lambda p: p.stat().st_mtime_ns)
    assert first.name.startswith("scale") and second.name.startswith("scale.")
    for directory in (first, second):
        assert [p.stem.split("_", 1)[1] for p in sorted(directory.iterdir())] == compiled.stages
    (assembly,) = second.glob("*_assembly.s")
    assert assembly.read_text() == compiled.ir("assembly")


def test_reasons_name_lines_not_temporaries_of_the_compiler() -> None:
    @pto.jit
    def spread(x, y):
        with pl.incore():
            tile = pl.load(x, [0], [4])
            tile = tile * 2
            for i in pl.range(0, 16, 4, chunk=2):
                pl.store(tile, [i], y)

    x = np.arange(16, dtype=np.float32)
    placement = next(d for d in spread.compile(x, np.zeros_like(x)).decisions if d.kind == "placement")
    line = spread.__pto_jit__.__code__.co_firstlineno + 4
    assert placement.reason == f"the tile that line {line} makes would cross the scope's boundary"

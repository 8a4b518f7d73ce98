# SPDX-License-Identifier: MIT
# ruff: noqa: F821
"""Comprehension statements inside kernels: compiled, interpreted, and the same as a comprehension."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
import warnings
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.comprehensions.examples import OPERATORS
from tests.comprehensions.test_operators import arguments


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def kernel_of(fn: Any, text: str) -> tuple[Any, list[str]]:
    """The statements of a comprehension's Python form as the body of a kernel that takes all it writes as well, and
    the names of what it writes."""
    c = pto.comprehension(text)
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    node = next(n for n in tree.body if isinstance(n, ast.FunctionDef))
    parameters = [p.name for p in c.definition.parameters]
    written = [n for n, t in c._versions[()].analysis.tensors.items() if t.role != "input" and n not in parameters]
    declared = {t.id for s in node.body if isinstance(s, ast.Assign) for t in ast.walk(s.targets[0])
                if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)}  # fmt: skip
    used = {n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)}
    lines = [f"def {node.name}({', '.join([*parameters, *written])}):"]
    sizes: dict[str, str] = {}
    for p in c.definition.parameters:
        sizes.update({s: f"{p.name}.shape[{k}]" for k, s in enumerate(p.sizes) if isinstance(s, str) and s not in sizes})
    lines += [f"    {s} = {e}" for s, e in sizes.items() if s in used]
    indices = sorted(used - declared - {*parameters, *written, *sizes, "pl", "min", "max", "abs"})
    lines += [f"    {i} = pl.axis()" for i in indices]
    lines += ["    " + ast.unparse(s).replace("\n", "\n    ") for s in node.body if not isinstance(s, ast.Return)]
    source = "\n".join(["import pto_jit as pto", "import pto_jit.language as pl", "@pto.jit", *lines]) + "\n"
    filename = f"<statements of {node.name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"__name__": "statements"}
    exec(compile(source, filename, "exec"), space)
    return space[node.name], written


@pytest.mark.parametrize(("name", "text", "fn", "given"), OPERATORS, ids=[o[0] for o in OPERATORS])
def test_an_operator_written_as_statements(name: str, text: str, fn: Any, given: dict[str, Any]) -> None:
    c = pto.comprehension(text)
    data = arguments(c.definition, given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = c.infer(**{p.name: data[p.name].shape for p in c.definition.parameters if p.sizes})
        if any(any(o) for o in found.origins.values()):
            pytest.skip("what is written in a kernel starts at 0")
        kernel, written = kernel_of(fn, text)
        tensors = c._versions[()].analysis.tensors
        wanted = c(**{n: v.copy() if isinstance(v, np.ndarray) else v for n, v in data.items()})
        results = dict(zip([r.name for r in c.definition.returns], wanted if isinstance(wanted, tuple) else (wanted,),
                           strict=True))  # fmt: skip
        sizes = [np.prod([high - low for low, high in s.ranges.values()]) for s in found.statements]
        few = sum(sizes) < 1500  # elements one by one in Python, each access noted
        for run in (kernel, kernel.interpret) if few else (kernel,):
            out = [np.full(found.shapes[w], 7, tensors[w].dtype.numpy) for w in written]
            run(*data.values(), *out)
            for w, o in zip(written, out, strict=True):
                if w in results:
                    np.testing.assert_allclose(o, results[w], rtol=3e-5, atol=3e-5, err_msg=w)


def both(kernel: Any, *args: Any) -> list[np.ndarray]:
    """The last argument after a call and after `interpret`."""
    found: list[np.ndarray] = []
    for run in (kernel, kernel.interpret):
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        run(*given)
        found.append(given[-1])
    return found


@pto.jit
def softmax(X: pl.Tensor, out: pl.Tensor):
    n, d = pl.axis(), pl.axis()
    mx, total = pl.empty((X.shape[0],), pl.f32), pl.empty((X.shape[0],), pl.f32)
    mx[n] = pl.max(X[n, d])
    e = pl.exp(X[n, d] - mx[n])
    total[n] = pl.sum(e)
    out[n, d] = e / total[n]


def test_statements_share_loops_and_compute_what_they_have_in_common_once() -> None:
    x = array(6, 40)
    wanted = np.exp(x - x.max(1, keepdims=True))
    wanted /= wanted.sum(1, keepdims=True)
    for found in both(softmax, x, np.zeros_like(x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    text = softmax.compile(x, x).ir("source")
    assert text.count("FOR ") == 1 and text.count("texp") == 1 and text.count("tload") == 1
    softmax(x, x)  # in place: every row is read before it is written
    np.testing.assert_allclose(x, wanted, rtol=1e-5)


def test_an_array_of_two_names_is_what_the_order_of_statements_makes_it() -> None:
    @pto.jit
    def backwards(X: pl.Tensor, Y: pl.Tensor, A: pl.Tensor, end: pl.constexpr):
        i = pl.axis(0, end)
        A[i] = X[end - 1 - i]
        Y[i] = pl.f32(i)

    @pto.jit
    def doubled(X: pl.Tensor, Y: pl.Tensor, A: pl.Tensor):
        i = pl.axis()
        Y[i] = X[i] * 2
        A[i] = X[i] + 1

    @pto.jit
    def parts(X: pl.Tensor, A: pl.Tensor):
        i = pl.axis(0, 4)
        high = X[1:]
        high[i] = A[i] * 0
        A[i] = X[i]

    x = np.arange(1.0, 6, dtype=np.float32)
    for run in (backwards, backwards.interpret):
        same, a = x.copy(), np.zeros_like(x)
        run(same, same, a, 5)
        np.testing.assert_array_equal(a, x[::-1])
    for run in (doubled, doubled.interpret):
        same, a = x.copy(), np.zeros_like(x)
        run(same, same, a)
        np.testing.assert_array_equal(a, x * 2 + 1)
    for run in (parts, parts.interpret):
        a = np.ones(4, np.float32)
        run(x.copy(), a)
        np.testing.assert_array_equal(a, [1, 0, 0, 0])


def test_ranges_padding_existence_and_numbers() -> None:
    @pto.jit
    def kernel(X: pl.Tensor, total: pl.Tensor, scale, count, out: pl.Tensor):
        i, k = pl.axis(), pl.axis(0, count)
        with pl.exists(X[i]):
            out[i] = pl.sum(pl.pad(X[i + k - 1], 0.0) * scale)
        total[()] = pl.sum(X[i] if X[i] > 0 else pl.f32(0))
        whole, place = total[()] * X[i] / X[i], pl.f32(i)
        out[i] += whole + place
        out[i] = pl.max(pl.pad(X[i - k], -1.0), init=out[i])

    x = array(9)
    wanted = np.convolve(np.pad(x, 1), np.full(3, 2.5), "valid") + x[x > 0].sum() + np.arange(9)
    for k in range(3):
        wanted = np.maximum(wanted, np.concatenate([np.full(k, -1.0), x[: 9 - k]]))
    for found in both(kernel, x, np.zeros((), np.float32), 2.5, 3, np.zeros_like(x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_sizes_are_checked_where_the_statements_stand() -> None:
    @pto.jit
    def kernel(B: pl.Tensor, K: pl.Tensor, out: pl.Tensor):
        i, k = pl.axis(), pl.axis()
        out[i] = pl.sum(B[i + k] * K[k])

    b, k = array(9), np.ones(3, np.float32)
    for found in both(kernel, b, k, np.zeros(7, np.float32)):
        np.testing.assert_allclose(found, np.convolve(b, k, "valid"), rtol=1e-4, atol=1e-5)
    for found in both(kernel, b, k, np.full(8, 5, np.float32)):  # more than is written
        assert found[7] == 5
    for run in (kernel, kernel.interpret):
        with pytest.raises(pto.ShapeError, match="of `out`") as caught:
            run(b, k, np.zeros(6, np.float32))
        assert caught.value.code in ("PTO-R024", "PTO-R027") and "out[i] = pl.sum" in str(caught.value)
        with pytest.raises(pto.ShapeError, match="range") as caught:
            run(k, b, np.zeros(6, np.float32))
        assert caught.value.code in ("PTO-R023", "PTO-R011")
    with pytest.raises(pto.ShapeError, match=r"\(B.shape\[0\] = 9, K.shape\[0\] = 3, out.shape\[0\] = 6\)"):
        kernel(b, k, np.zeros(6, np.float32))
    run = kernel.compile(b, k, b).ir("source")
    assert run.count("sassert") == 2

    @pto.jit
    def proven(X: pl.Tensor, W: pl.Tensor[[8, 8], pl.f32]):
        i, j = pl.axis(), pl.axis()
        made = pl.empty(X.shape, pl.f32)
        made[i] = X[i]
        W[i, j] = W[i, j] + 1

    assert "sassert" not in proven.compile(b, pto.spec((8, 8), pl.f32)).ir("source")


def test_statements_stand_in_loops_branches_and_helpers() -> None:
    def scaled(row: Any, by: Any, i: Any) -> None:
        t = row[i] * by
        row[i] = t + 1

    @pto.jit
    def kernel(X: pl.Tensor, twice: pl.constexpr, out: pl.Tensor):
        i = pl.axis()
        with pl.incore():
            for step in pl.range(out.shape[0]):
                out[step, :] = pl.load(X)
                if step > 1:
                    row = out[step, :]
                    row[i] = X[i] * 3
                    if twice:
                        row[i] *= 2
                        scaled(row, X.shape[0], pl.axis())

    x = array(5)
    wanted = np.stack([x, x, x * 30 + 1, x * 30 + 1])
    for found in both(kernel, x, True, np.zeros((4, 5), np.float32)):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_what_a_tensor_holds_is_a_warning_or_checked() -> None:
    def look_up(table: pl.Tensor, where: pl.Tensor, out: pl.Tensor):
        i = pl.axis()
        out[i] = table[where[i]]

    table, good, bad = array(4), np.array([3, 0], np.int32), np.array([4, 0], np.int32)
    out = np.zeros(2, np.float32)
    for run in (pto.jit(look_up), pto.jit(look_up).interpret):
        with pytest.warns(UserWarning, match=r"look_up: not checked: table\(where\(i\)\): where\(i\) < table.shape\[0\]|< 4"):
            run(table, good, out)
        np.testing.assert_array_equal(out, table[good])
    checked = pto.jit(debug=True)(look_up)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked(table, good, out)
    with pytest.raises(pto.BoundsError):
        checked(table, bad, out)


def test_every_error_of_several_statements_is_reported() -> None:
    @pto.jit
    def kernel(A: pl.Tensor, C: pl.Tensor):
        m, k = pl.axis(), pl.axis()
        C[m] = pl.sum(A[m, q])
        C[m] = A[m, k]
        C[m] = A[m]

    with pytest.raises(pto.CompilationError, match="name `q` is not defined") as caught:
        kernel(array(3, 4), array(3))
    assert [e.code for e in caught.value.others] == ["PTO-R013", "PTO-R016"]
    assert "1 dimension" not in str(caught.value.others[0]) and "`k` is not on the left" in str(caught.value)

    @pto.jit
    def renamed(A: pl.Tensor, C: pl.Tensor, s):
        m = pl.axis()
        t = A[m] * s
        s = s + 1
        C[m] = t

    with pytest.raises(pto.CompilationError, match="`t` names an expression of `s`"):
        renamed(array(3), array(3), 2.0)

    @pto.jit
    def tiles(A: pl.Tensor, C: pl.Tensor):
        m = pl.axis()
        t = pl.load(A)
        C[m] = t[m] * 2

    for run in (tiles, tiles.interpret):
        with pytest.raises(pto.CompilationError, match="PTO-R093"):
            run(array(3), array(3))


def test_axes_have_no_values_elsewhere() -> None:
    def outside(x: pl.Tensor, y: pl.Tensor):
        y[0] = pl.exp(x[pl.axis()])

    for run in (pto.jit(outside), pto.jit(outside).interpret):
        with pytest.raises(pto.PtoError):
            run(array(3), array(3))
    with pytest.raises(pto.CompilationError, match="PTO-R090"):
        pl.pad(3.0, 0.0)

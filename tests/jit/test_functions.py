# SPDX-License-Identifier: MIT
"""A compiled function as a Python object: metadata, pickling, threads, processes, where its source may be."""

from __future__ import annotations

import copy
import doctest
import inspect
import io
import linecache
import marshal
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

X = np.arange(5, dtype=np.float32)


@pto.jit
def documented(x: pl.Tensor, /, factor: float = 2.0, *, shift: int = 0) -> Any:
    """Scale and shift."""
    return x * factor + shift


@pto.incore
def core(x: Any) -> Any:
    """A core function."""
    return x + 1


def test_the_function_keeps_its_name_docstring_signature_and_module() -> None:
    assert documented.__name__ == "documented" and documented.__qualname__ == "documented"
    assert documented.__doc__ == "Scale and shift." and documented.__module__ == __name__
    assert inspect.signature(documented) == inspect.signature(documented.__wrapped__)  # type: ignore[attr-defined]
    assert list(inspect.signature(documented).parameters) == ["x", "factor", "shift"]
    assert inspect.unwrap(documented).__code__.co_name == "documented"
    assert "documented" in repr(documented)
    assert core.__name__ == "core" and core.__doc__ == "A core function."


def test_pickling_and_copying_give_the_function_itself() -> None:
    for value in (documented, core):
        assert pickle.loads(pickle.dumps(value)) is value
        assert copy.copy(value) is value and copy.deepcopy(value) is value
    with pytest.raises((pickle.PicklingError, AttributeError), match="local"):
        pickle.dumps(pto.jit(lambda x: x))


def test_functions_are_kept_in_sets_and_freed() -> None:
    import gc
    import weakref

    def make() -> weakref.ref:
        kernel = pto.jit(lambda x: x + 1)
        kernel(X)
        assert len({kernel, kernel, documented}) == 2
        return weakref.ref(kernel)

    reference = make()
    gc.collect()
    assert reference() is None


def test_a_decorated_function_can_be_decorated_again_with_other_options() -> None:
    checked = pto.jit(debug=True)(documented)
    np.testing.assert_array_equal(checked(X, 3.0), X * 3)


def test_many_threads_that_call_a_cold_kernel_compile_it_once() -> None:
    kernel = pto.jit(lambda x, n: pl.exp(x) * n)
    start = threading.Barrier(8)

    def call(n: int) -> np.ndarray:
        start.wait()
        return kernel(X, n)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(call, range(8)))
    for n, result in enumerate(results):
        np.testing.assert_allclose(result, np.exp(X) * n, rtol=1e-6)
    assert len(kernel.specializations()) == 1


def test_threads_run_long_kernels_without_holding_the_interpreter() -> None:
    @pto.jit
    def spin(x, n: int):
        for i in pl.range(n):
            x[0] = x[0] * 0.5 + i

    x = np.zeros(1)
    spin(x, 10)
    ticks = 0
    done = threading.Event()

    def run() -> None:
        spin(x, 200_000_000)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 60
    while not done.is_set() and time.monotonic() < deadline:
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 20


def test_settings_changed_by_one_thread_while_others_call_do_no_harm() -> None:
    kernel = pto.jit(lambda x, n: x * n)
    kernel(X, 1)
    stop = threading.Event()
    errors: list[BaseException] = []

    def call() -> None:
        try:
            while not stop.is_set():
                np.testing.assert_array_equal(kernel(X, 3), X * 3)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for k in range(40):
        pto.config.num_threads = 1 + k % 3
        pto.config.debug = k % 2 == 0
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_uses_and_compiles_kernels() -> None:
    @pto.jit
    def kernel(x, y):
        for i in pl.range(x.shape[0], parallel=True):
            y[i] = x[i] * 2

    x, y = np.arange(200_000.0), np.zeros(200_000)
    kernel(x, y)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            y[:] = 0
            kernel(x, y)
            fresh = pto.jit(lambda t: t + 1)
            status = 0 if (y == x * 2).all() and (fresh(X) == X + 1).all() else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    kernel(x, y)
    np.testing.assert_array_equal(y, x * 2)


def test_a_function_made_by_exec_needs_its_source() -> None:
    text = "def kernel(x):\n    return x * 2\n"
    space: dict[str, Any] = {}
    exec(compile(text, "<made up>", "exec"), space)
    with pytest.raises(pto.CompilationError) as caught:
        pto.jit(space["kernel"])(X)
    assert "PTO-S001" in str(caught.value) and "linecache" in str(caught.value)
    modules = [entry.frame.f_globals["__name__"] for entry in caught.traceback]
    assert set(modules) == {__name__, "pto_jit.jit"}, "no frames of the compiler"
    linecache.cache["<given>"] = (len(text), None, text.splitlines(True), "<given>")
    exec(compile(text, "<given>", "exec"), space)
    np.testing.assert_array_equal(pto.jit(space["kernel"])(X), X * 2)


def test_a_doctest_defines_and_calls_kernels() -> None:
    module = types.ModuleType("documented_module")
    module.__doc__ = """
    >>> import numpy as np, pto_jit as pto
    >>> @pto.jit
    ... def double(x):
    ...     return x * 2
    >>> double(np.arange(3.0))
    array([0., 2., 4.])
    >>> [pto.jit(lambda x: x + n)(np.zeros(1))[0].item() for n in (1, 2)]
    [1.0, 2.0]
    """
    results = doctest.testmod(module)
    assert results.attempted == 4 and results.failed == 0


def test_the_packages_own_example_runs() -> None:
    for module in (pto, sys.modules["pto_jit.jit"]):
        results = doctest.testmod(module)
        assert results.attempted > 2 and results.failed == 0


def test_a_kernel_in_a_script_read_from_standard_input_says_where_source_may_be(tmp_path: Path) -> None:
    script = "import numpy as np, pto_jit as pto\nprint(pto.jit(lambda x: x + 1)(np.zeros(1)))\n"
    root = str(Path(pto.__file__).parents[1])
    variables = {**os.environ, "PYTHONPATH": root, "PTO_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-"], input=script, env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 or "PTO-S001" in done.stderr


def test_kernels_call_each_other_and_see_each_others_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    @pto.jit
    def caller(x):
        return documented(x, 3.0) + 1

    np.testing.assert_array_equal(caller(X), X * 3 + 1)
    monkeypatch.setitem(globals(), "documented", pto.jit(lambda x, factor: x - factor))
    np.testing.assert_array_equal(caller(X), X - 3 + 1)


class Shipping(pickle.Pickler):
    """Stores functions that have no name in a module with their code, as cloudpickle does."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.FunctionType) and "<" in value.__qualname__:
            state = value.__defaults__, value.__annotations__, value.__dict__
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            return shipped, (marshal.dumps(value.__code__), value.__name__, value.__qualname__, cells, *state)
        return NotImplemented


def shipped(code: bytes, name: str, qualname: str, cells: list[Any], defaults: Any, notes: Any, own: Any) -> Any:
    closure = tuple(types.CellType(held) for held in cells)
    made = types.FunctionType(marshal.loads(code), {"pl": pl}, name, defaults, closure)
    made.__qualname__, made.__annotations__ = qualname, notes
    made.__dict__.update(own)
    return made


FACTORY = """
import pto_jit as pto
import pto_jit.language as pl

def factory(factor):
    @pto.incore
    def shifted(t):
        return t + 1

    @pto.jit(cache=False, debug=True)
    def scaled(x, twice: "pl.constexpr" = False):
        return shifted(x) * (factor * 2 if twice else factor)

    return scaled
"""


def test_picklers_that_ship_code_ship_kernels_with_their_source() -> None:
    name, space = "<a module that is not there later>", {"__name__": __name__}
    linecache.cache[name] = (len(FACTORY), None, FACTORY.splitlines(keepends=True), name)
    exec(compile(FACTORY, name, "exec"), space)
    made: Any = space["factory"]
    buffer = io.BytesIO()
    Shipping(buffer).dump([made(3.0), made(5.0)])
    del linecache.cache[name]
    x = np.arange(3.0)
    for kernel, factor in zip(pickle.loads(buffer.getvalue()), (3.0, 5.0), strict=True):
        np.testing.assert_array_equal(kernel(x), (x + 1) * factor)
        np.testing.assert_array_equal(kernel(x, True), (x + 1) * factor * 2)
        assert kernel._options.debug and kernel.__qualname__ == "factory.<locals>.scaled"


def test_a_kernel_of_the_main_module_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = pto.jit(lambda x: x)
    kernel.__module__, kernel.__qualname__ = "__main__", "some_kernel"
    kernel.__pto_jit__.__module__, kernel.__pto_jit__.__qualname__ = "__main__", "some_kernel"
    monkeypatch.setattr(sys.modules["__main__"], "some_kernel", kernel, raising=False)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(kernel, protocol)) is kernel
    assert copy.deepcopy([kernel])[0] is kernel


def test_a_compiled_version_is_not_pickled() -> None:
    compiled = pto.jit(lambda x: x + 1).compile(np.arange(3.0))
    assert copy.deepcopy(compiled) is compiled
    with pytest.raises(TypeError, match="pickle the function"):
        pickle.dumps(compiled)


def test_a_thread_that_compiles_may_compile_another_kernel_in_between() -> None:
    """As signal handlers and finalizers do, which run between any two steps of Python."""
    x, inside, results = np.ones((4, 4)), [], []

    def kernel(addend: int) -> Any:
        return pto.jit(cache=False)(lambda a: a @ a + addend)

    def step(frame: types.FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_name
        if event == "call" and name in ("emit_object", "finalize_object", "set_option", "link") and name not in inside:
            inside.append(name)
            results.append(kernel(len(inside))(x))

    def give_up(*_: Any) -> None:
        raise TimeoutError("the thread waits for itself")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    sys.setprofile(step)
    try:
        results.append(kernel(0)(x))
    finally:
        sys.setprofile(None)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert {"emit_object", "finalize_object"} <= set(inside)
    for k, result in enumerate(results[:-1], 1):
        np.testing.assert_array_equal(result, np.full((4, 4), 4.0 + k))
    np.testing.assert_array_equal(results[-1], np.full((4, 4), 4.0))


def test_names_may_have_letters_beyond_ascii() -> None:
    @pto.incore
    def größe(ξ, i, out):
        pl.store(pl.load(ξ, [i], [4]) * 2, [i], out)

    @pto.jit
    def σ(α, out, first):
        for i in range(first, 8, 4):
            größe(α, i, out)

    x, y = np.arange(8.0), np.zeros(8)
    σ(x, y, 0)
    np.testing.assert_array_equal(y, x * 2)
    with pytest.raises(pto.TaskError, match="größe"):
        σ(x, y, -4)
    assert "pto_entry__3c3" in σ.compile(x, y, 0).ir("assembly")

# SPDX-License-Identifier: MIT
"""Launches through the driver API, with a driver that runs emulated kernels in this process."""

from __future__ import annotations

import ctypes
import gc
import itertools
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import device_kernel
from pto_jit.bench.kernels import matrix, reductions, rows
from pto_jit.targets.cuda import api, devices, driver
from pto_jit.targets.cuda.tensors import DeviceTensor

from .test_warpgroups import turned_product

pytestmark = pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="needs gcc and g++")


class OnDevice:
    """An array as another library shows memory of the device."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, False),
            "strides": array.strides, "version": 3,
        }  # fmt: skip


_BUILT: dict[tuple[str, ...], bytes] = {}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("fake") / "libcuda.so.1"
    source = Path(__file__).parent / "fake_driver.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{source.parent / 'include'}", "-o",
                    path, source, "-ldl"], check=True)  # fmt: skip
    loaded = ctypes.CDLL(str(path))
    loaded.fake_record.restype = ctypes.c_char_p
    loaded.architectures, loaded.releases = [], []
    return loaded


@pytest.fixture
def fake(library: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    numbers = itertools.count()

    def compile_kernel(kernel: Any, spread: Any, arch: str, release: int) -> bytes:
        assert arch == ("sm_90a" if dict(spread.defines).get("WARPGROUPS") else "sm_90")
        library.architectures.append(arch)
        library.releases.append(release)
        defines = [f"-D{name}={value}" for name, value in spread.defines]
        path = tmp_path / f"{kernel.name}-{next(numbers)}.so"  # a file that is loaded stays as it is
        key = (kernel.source, *defines)
        if key not in _BUILT:
            _BUILT[key] = devices.emulated_code(kernel, spread)
        path.write_bytes(_BUILT[key])
        return str(path).encode()

    monkeypatch.setattr(api.ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(driver, "compile_kernel", compile_kernel)
    api.library.cache_clear()
    driver.device.cache_clear()
    library.fake_forget()
    yield library
    api.library.cache_clear()
    driver.device.cache_clear()


def test_tensors_of_the_device_go_to_a_kernel_as_they_are(fake: Any) -> None:
    x = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    y = np.zeros_like(x)
    compiled = rows.softmax.compile(OnDevice(x), OnDevice(y), target="cuda")
    compiled(OnDevice(x), OnDevice(y))
    compiled(OnDevice(x), OnDevice(y))
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    said = fake.fake_record().decode()
    assert said.count("launch on stream 0") == 2 and said.count("softmax_incore_0 1") == 1
    assert "synchronise" not in said and "pinned 2" in said and "context 1" in said


def test_code_is_made_for_the_driver(fake: Any) -> None:
    x = OnDevice(np.ones((5, 40), np.float32))
    for version in (12040, 13010):
        driver.device.cache_clear()
        fake.fake_version(version)
        rows.softmax.compile(x, x, target="cuda")(x, x)
        assert fake.releases[-1] == version // 1000


def test_large_shared_memory_is_asked_for_and_temporaries_are_freed(fake: Any) -> None:
    rng = np.random.default_rng(1)
    x, gate, up, down = (rng.standard_normal(s).astype(np.float32) for s in ((5, 30), (30, 20), (30, 20), (20, 30)))
    out = np.zeros((5, 30), np.float32)
    matrix.swiglu.compile(*map(OnDevice, (x, gate, up, down, out)), target="cuda")(
        *map(OnDevice, (x, gate, up, down, out))
    )
    g = x @ gate
    np.testing.assert_allclose(out, (g / (1 + np.exp(-g)) * (x @ up)) @ down, rtol=1e-3, atol=1e-3)
    gc.collect()
    said = fake.fake_record().decode()
    assert "shared 1" in said and said.count("allocate 400;") == said.count("free 1;") == 2


def test_shared_memory_that_a_kernel_has_of_its_own_counts(fake: Any) -> None:
    x = np.ones((5, 40), np.float32)
    compiled = rows.softmax.compile(OnDevice(x), OnDevice(x), target="cuda")

    def said(own: int) -> str:
        fake.fake_forget()
        driver.device.cache_clear()
        fake.fake_static(own)
        compiled(OnDevice(x), OnDevice(x))
        return fake.fake_record().decode()

    assert "shared " not in said(48 * 1024) and "shared 0;" in said(48 * 1024 + 1)
    with pytest.raises(pto.LaunchError, match=r"PTO-X144: .* 232449 bytes of shared memory of 232448"):
        said(227 * 1024 + 1)


@pytest.mark.parametrize("asked", [False, True])
def test_a_product_of_warpgroups_is_asked_for_and_compiled_for_the_very_device(
    fake: Any, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    monkeypatch.setattr(pto.config, "warpgroups", asked)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in range(2))
    c, product = np.zeros((64, 64), np.float32), turned_product(64, 64, False, False)
    product.compile(*map(OnDevice, (a, b, c)), target="cuda")(*map(OnDevice, (a, b, c)))
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-4)
    assert fake.architectures[-1] == ("sm_90a" if asked else "sm_90")


@pto.jit(target="cuda")
def doubled(x):
    n, m = x.shape
    y = pl.empty([n, m], pl.f32)
    with pl.incore():
        for r in pl.range(n, parallel=True):
            pl.store(pl.load(x, [r, 0], [1, m]) * 2.0, [r, 0], y)
    return y, y[0, 0]


def test_results_are_memory_of_the_device_and_numbers(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_kernel, "_streams", lambda call, ordinal: [7])
    x = np.arange(12, dtype=np.float32).reshape(3, 4) + 1
    y, first = doubled(OnDevice(x))
    interface = y.__cuda_array_interface__
    assert first == 2 and interface["shape"] == (3, 4) and interface["stream"] == 7
    raw = ctypes.string_at(interface["data"][0], 48)
    np.testing.assert_array_equal(np.frombuffer(raw, np.float32).reshape(3, 4), x * 2)
    said = fake.fake_record().decode()
    assert "launch on stream 7" in said and "synchronise 7" in said


def test_an_error_of_the_driver_is_a_launch_error(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_kernel, "_streams", lambda call, ordinal: [666])
    with pytest.raises(pto.LaunchError, match=r"PTO-X146: cuLaunchKernel failed: an illegal address \(CUDA_ERROR_ILLEGAL_ADDRESS\)"):
        doubled(OnDevice(np.zeros((3, 4), np.float32)))


@pto.jit(target="cuda")
def shifted(x, out, at):
    for r in pl.range(x.shape[0], parallel=True):
        pl.store(pl.load(x, [r, at], [1, 4]), [r, 0], out)


def test_a_failure_of_a_kernel_is_raised_by_a_later_call_and_then_forgotten(fake: Any) -> None:
    x, out = OnDevice(np.ones((3, 4), np.float32)), OnDevice(np.zeros((3, 4), np.float32))
    shifted(x, out, -2)
    with pytest.raises(pto.BoundsError, match="a negative offset: -2 along axis 1"):
        shifted(x, out, 0)
    shifted(x, out, 0)
    assert (out.array == 1).all()


def test_programs_record_failures_apart(fake: Any) -> None:
    """What a kernel of one program found is not what another program's call says."""
    x, out = OnDevice(np.ones((3, 4), np.float32)), OnDevice(np.zeros((3, 4), np.float32))
    shifted(x, out, -1)
    rows.softmax.compile(x, out, target="cuda")(x, out)
    with pytest.raises(pto.BoundsError, match="a negative offset: -1 along axis 1"):
        shifted(x, out, 0)


def test_a_launch_goes_to_the_device_that_its_tensors_are_on(fake: Any) -> None:
    x, y, other = (np.ones((3, 8), np.float32) for _ in range(3))
    compiled = rows.softmax.compile(OnDevice(x), OnDevice(x), target="cuda")
    fake.fake_two_devices(ctypes.c_void_p(x.ctypes.data))
    compiled(OnDevice(x), OnDevice(x))
    compiled(OnDevice(y), OnDevice(y))
    compiled(OnDevice(x), OnDevice(x))
    said = fake.fake_record().decode().split(";")
    assert [word for word in said if "of device" in word] == ["of device 1", "of device 0", "of device 1"]
    assert sum("softmax_incore_0" in word for word in said) == 2  # loaded once for each
    with pytest.raises(pto.ArgumentError, match="PTO-X134: tensors on the devices 0, 1"):
        compiled(OnDevice(x), OnDevice(other))


@pto.jit(target="cuda")
def scaled_copy(x):
    n, m = x.shape
    y = pl.full([n, m], 3.0, pl.f32)
    with pl.incore():
        for r in pl.range(n, parallel=True):
            pl.store(pl.load(x, [r, 0], [1, m]) * 2.0, [r, 0], y)
    return y[0, 0]


def test_arrays_of_the_cpu_are_copied_to_the_device_and_back(fake: Any) -> None:
    """What tests do on a GPU: layouts and overlaps are kept, results are arrays."""
    memory = np.random.default_rng(3).standard_normal((6, 41)).astype(np.float32)
    x = memory[1:5, 1:33:2]
    expected = x * 2
    result, first = device_kernel.on_gpu(doubled.compile(x, target="cuda"), x)
    np.testing.assert_array_equal(result, expected)
    assert first == expected[0, 0]
    y = memory[:, 1:]
    device_kernel.on_gpu(rows.softmax.compile(y, y, target="cuda"), y, y)
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-6)
    crossing = memory.ravel()[:160].reshape(4, 40), memory.ravel()[8:168].reshape(4, 40)
    with pytest.raises(pto.LaunchError, match="PTO-X131"):  # each has what the other lacks
        device_kernel.on_gpu(rows.softmax.compile(*crossing, target="cuda"), *crossing)
    out = np.zeros((3, 4), np.float32)
    with pytest.raises(pto.BoundsError, match="a negative offset"):
        device_kernel.on_gpu(shifted.compile(out, out, -1, target="cuda"), np.ones_like(out), out, -1)


_CALLS = """cuInit cuDriverGetVersion cuDeviceGetCount cuDeviceGet cuDevicePrimaryCtxRetain cuPointerGetAttribute
cuDeviceGetAttribute
cuCtxGetCurrent cuCtxSetCurrent cuMemHostAlloc cuMemHostGetDevicePointer_v2 cuModuleLoadData cuModuleGetFunction cuFuncGetAttribute
cuLaunchKernel cuMemPoolCreate cuMemPoolSetAttribute cuMemAllocFromPoolAsync cuMemcpyDtoHAsync_v2 cuMemsetD32Async
cuStreamSynchronize""".split()


def test_errors_of_every_call_of_the_driver_are_launch_errors_that_name_it(fake: Any) -> None:
    x = OnDevice(np.ones((3, 4), np.float32))
    for name in _CALLS:
        fake.fake_forget()
        fake.fake_fail(name.encode())
        api.library.cache_clear()
        driver.device.cache_clear()
        with pytest.raises(pto.LaunchError, match=f"PTO-X146: {name} failed: fake"):
            scaled_copy(x)
    fake.fake_forget()
    assert scaled_copy(x) == 2
    fake.fake_fail(b"no device")
    api.library.cache_clear()
    with pytest.raises(pto.TargetError, match="PTO-X142"):
        scaled_copy(x)


class OtherLibrary(OnDevice):
    """An array of a library that says on which stream it was made."""

    def __init__(self, array: np.ndarray, stream: int) -> None:
        super().__init__(array)
        self.__cuda_array_interface__["stream"] = stream


def test_the_stream_that_an_array_names_is_the_one_of_the_launch(fake: Any) -> None:
    x = np.ones((3, 8), np.float32)
    compiled = rows.softmax.compile(OnDevice(x), OnDevice(x), target="cuda")
    for named, used in ((1, 0), (2, 2), (4096, 4096)):
        fake.fake_forget()
        compiled(OtherLibrary(x, named), OnDevice(x))
        said = fake.fake_record().decode()
        assert f"launch on stream {used};" in said and "waits" not in said


def test_a_launch_and_the_streams_of_all_its_arrays_wait_for_each_other(fake: Any) -> None:
    x, y = np.ones((3, 8), np.float32), np.ones((3, 8), np.float32)
    compiled = rows.softmax.compile(OnDevice(x), OnDevice(x), target="cuda")
    compiled(OtherLibrary(x, 4096), OtherLibrary(y, 8192))
    said = fake.fake_record().decode()
    assert "event on stream 8192;waits 4096;" in said and "launch on stream 4096;" in said
    before, after = said.split("launch on stream 4096;")
    assert before.count("waits") == 1 and "event on stream 4096;waits 8192;" in after and "synchronise" not in said


class OfCupy(OnDevice):
    """An array of cupy's, whose interface names the stream that is current when it is asked."""

    __module__ = "cupy.core"


class Cupy:
    """What launches need of cupy."""

    def __init__(self, stream: int) -> None:
        self.cuda, self.ptr, self.shown = self, stream, []

    def get_current_stream(self, device_id: int) -> Cupy:
        assert device_id == 0
        return self

    def asarray(self, interface: Any) -> Any:
        self.shown.append(interface.__cuda_array_interface__)
        return interface


def test_arrays_of_cupy_go_to_its_current_stream_and_results_wait_for_nothing(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = Cupy(4096)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    y, _ = doubled(OfCupy(np.ones((3, 4), np.float32)))
    assert "launch on stream 4096;" in fake.fake_record().decode()
    (interface,) = cupy.shown
    assert interface["stream"] is None  # with one cupy would wait until all of it is done
    assert y.kept is cupy  # memory is freed on the stream, which lasts no longer than somebody has it
    doubled(OtherLibrary(np.ones((3, 4), np.float32), 8192))
    assert cupy.shown[-1]["stream"] == 8192


def test_results_of_torch_stay_on_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[str] = []

    class Torch:
        @staticmethod
        def as_tensor(data: Any, device: str) -> Any:
            places.append(device)
            return data

    class Second:
        ordinal = 1

    monkeypatch.setitem(sys.modules, "torch", Torch)
    value = DeviceTensor(4096, (2, 2), (8, 4), pl.f32)
    assert device_kernel._returned(value, Second(), True, 0).owner is None  # type: ignore[arg-type]
    assert places == ["cuda:1"]


def test_empty_arrays_need_no_memory_of_a_device(fake: Any) -> None:
    x, y = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
    compiled = shifted.compile(OnDevice(x), OnDevice(y), 0, target="cuda")
    empty = OnDevice(x[:0])
    empty.__cuda_array_interface__["data"] = (256, False)  # one past the end of what is allocated: no device has it
    compiled(empty, OnDevice(y), 0)
    assert "launch" not in fake.fake_record().decode() and (y == 0).all()
    with pytest.raises(pto.LaunchError, match="PTO-X146: cuPointerGetAttribute failed"):
        nowhere = OnDevice(x)
        nowhere.__cuda_array_interface__["data"] = (256, False)
        compiled(nowhere, OnDevice(y), 0)


class _DLTensor(ctypes.Structure):
    """DLManagedTensor of DLPack, whose first member is a DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )  # fmt: skip


class OnlyDLPack:
    """An array of a device that only DLPack tells of."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.tensor = _DLTensor(array.ctypes.data, 2, 0, array.ndim, 2, 32, 1, ctypes.addressof(self.shape))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def test_arrays_of_the_device_come_by_dlpack_too(fake: Any) -> None:
    x, y = np.ones((3, 8), np.float32), np.zeros((3, 8), np.float32)
    compiled = rows.softmax.compile(OnlyDLPack(x), OnDevice(y), target="cuda")
    compiled(OnlyDLPack(x), OnDevice(y))
    np.testing.assert_array_equal(y, x / 8)
    with pytest.raises(pto.ArgumentError, match="not in CPU memory"):
        rows.softmax(OnlyDLPack(x), y)


@pytest.mark.parametrize("dtype", [pl.i8, pl.f16, pl.f32, pl.f64, pl.i64])
@pytest.mark.parametrize("value", [0, 3])
def test_new_tensors_are_filled_on_the_device(fake: Any, dtype: Any, value: int) -> None:
    @pto.jit(target="cuda")
    def filled(x):
        return pl.full([x.shape[0], 100], value, dtype)

    for rows_ in (7, 0):
        y = filled(OnDevice(np.ones((rows_, 1), np.float32)))
        count = 100 * rows_ * dtype.bytes
        found = np.frombuffer(ctypes.string_at(y.__cuda_array_interface__["data"][0], count), dtype.numpy)
        np.testing.assert_array_equal(found, np.full(100 * rows_, value, dtype.numpy))
    sizes = [int(w.split()[1]) for w in fake.fake_record().decode().split(";") if w.startswith("upload")]
    assert all(size <= 8 for size in sizes)  # an element, and nothing like the whole tensor


def test_errors_say_what_to_do(fake: Any) -> None:
    for status, words in ((2, "free tensors"), (3, "fork"), (209, "older than the compiler"), (700, "compute-sanitizer"),
                          (802, "fabricmanager"), (1, "bug of pto_jit")):  # fmt: skip
        with pytest.raises(pto.LaunchError, match=f"PTO-X146: cuX failed: .*\nhelp: .*{words}"):
            api.check(fake, status, "cuX")


TOOLKIT = [d for d in (Path(shutil.which("nvcc") or "/nowhere/nowhere").resolve().parents[1] / "include",
                       Path("/usr/local/cuda/include")) if (d / "cuda.h").exists()]  # fmt: skip
HEADERS = [Path(__file__).parent / "include", *TOOLKIT[:1]]
LETTERS = {api.INT: "i", api.UINT: "i", api.BYTE: "b", api.SHORT: "s", api.SIZE: "q", api.ADDRESS: "q", api.POINTER: "p"}
JUDGE = """
#include <cuda.h>
#include <cstdio>
template <class T> constexpr char letter = sizeof(T) == 8 ? 'q' : sizeof(T) == 4 ? 'i' : sizeof(T) == 2 ? 's' : 'b';
template <class T> constexpr char letter<T *> = 'p';
template <class... A> void tell(const char *name, CUresult (*)(A...)) {
  const char letters[] = {letter<A>..., 0};
  std::printf("%s %s\\n", name, letters);
}
int main() {
  std::printf("pool %d\\n", int(sizeof(CUmemPoolProps)));
"""


@pytest.mark.parametrize("directory", HEADERS, ids=["ours", "nvidia's"][: len(HEADERS)])
def test_calls_have_the_types_of_the_header(directory: Path, tmp_path: Path) -> None:
    """NVIDIA's header is the judge of what is called, and of the driver of these tests."""
    lines = [f'  tell("{name}", static_cast<decltype(&{name})>(nullptr));' for name in api.PROTOTYPES]
    (tmp_path / "judge.cc").write_text("\n".join([JUDGE, *lines, "}"]))
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", f"-I{directory}", "-o", "judge", "judge.cc"], cwd=tmp_path,
                   check=True)  # fmt: skip
    said = subprocess.run([tmp_path / "judge"], capture_output=True, text=True, check=True).stdout.splitlines()
    pool, *rest = said
    assert pool == f"pool {ctypes.sizeof(driver._PoolProps)}"
    assert rest == [f"{name} {''.join(LETTERS[t] for t in types)}" for name, types in api.PROTOTYPES.items()]
    fake_driver = str(Path(__file__).parent / "fake_driver.c")
    subprocess.run(["gcc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{directory}", fake_driver], check=True)


def test_the_kernels_of_a_program_are_compiled_side_by_side(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the host knows what it will launch: each of the two waits here until the other one is compiled, too."""
    both, compile_one = threading.Barrier(2, timeout=60), driver.compile_kernel
    compiled: list[str] = []

    def together(kernel: Any, *args: Any) -> bytes:
        compiled.append(kernel.name)
        both.wait()
        return compile_one(kernel, *args)

    monkeypatch.setattr(driver, "compile_kernel", together)
    x, total = np.arange(100, dtype=np.float32), np.zeros(1, np.float32)
    program = reductions.vector_sum.compile(OnDevice(x), OnDevice(total), target="cuda")
    for _ in range(2):
        program(OnDevice(x), OnDevice(total))
    assert total[0] == x.sum() and sorted(compiled) == ["vector_sum_incore_0", "vector_sum_incore_0_1"]


def test_what_only_the_device_knows_is_waited_for(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is launched, written or read to look ahead, and what fails does so when it runs, with its own words."""

    @pto.jit
    def counted(x: pl.Tensor, n: pl.Tensor, y: pl.Tensor):
        for _ in pl.range(x.shape[0], parallel=True):
            pl.atomic_add(n, [0], 1)
        for k in range(n[0]):
            for i in pl.range(x.shape[0], parallel=True):
                y[i] = x[i] * k

    compile_one = driver.compile_kernel
    compiled: list[tuple[str, bool]] = []

    def watched(kernel: Any, *args: Any) -> bytes:
        ahead = threading.current_thread() is not threading.main_thread()
        compiled.append((kernel.name, ahead))
        if "fails" in kernel.name:
            raise pto.errors.ToolchainError("no compiler")
        return compile_one(kernel, *args)

    monkeypatch.setattr(driver, "compile_kernel", watched)
    x, n, y = np.ones(5, np.float32), np.zeros(1, np.int32), np.zeros(5, np.float32)
    args = [OnDevice(a) for a in (x, n, y)]
    counted.compile(*args, target="cuda")(*args)
    assert n[0] == 5 and (y == 4).all()
    assert [ahead for _, ahead in compiled] == [True, False]

    @pto.jit
    def fails(x: pl.Tensor, n: pl.Tensor, y: pl.Tensor):
        counted(x, n, y)

    with pytest.raises(pto.errors.ToolchainError, match="no compiler"):
        fails.compile(*args, target="cuda")(*args)
    assert n[0] == 5

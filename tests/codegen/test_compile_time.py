# SPDX-License-Identifier: MIT
# ruff: noqa: B007, C416, C417 - kernels are written the way the test needs them
"""Compile-time Python in kernels: callables as values, containers, closures, partial evaluation."""

from __future__ import annotations

import dataclasses
import enum
import functools
import heapq
import itertools
import math
import operator
from collections import defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import CompilationError
from pto_jit.ir.nodes import For, If
from tests.codegen.harness import Static, check, count, ir

X = np.array([3, -1, 4, 1, -5, 9, 2, 6], np.float32)
SCALE = 3
TABLE = {"a": (1, 2.0), "b": (3, 4.0)}


def out(n: int = 8) -> np.ndarray:
    return np.zeros(n, np.float32)


def double(v):
    return v * 2


def make_scale(s):
    def scale(v):
        return v * s

    return scale


def test_two_closures_of_one_factory_are_two_functions():
    def f(x, y, g, h):
        y[0] = g(x[0])
        y[1] = h(x[0])

    check(f, X, out(), make_scale(3), make_scale(5))


def test_several_lambdas_on_one_line():
    def f(x, y, g, h, k):
        y[0] = g(x[0])
        y[1] = h(x[0])
        y[2] = k(x[0])

    a, b, c = lambda v: v + 1, lambda v: v * v, lambda v: -v
    check(f, X, out(), a, b, c)


def test_lambda_partial_bound_method_operator_and_instance_as_arguments():
    class Adder:
        def __init__(self, n: float) -> None:
            self.n = n

        def __call__(self, v: Any) -> Any:
            return v + self.n

        def minus(self, v: Any) -> Any:
            return v - self.n

        @staticmethod
        def twice(v: Any) -> Any:
            return 2 * v

        @classmethod
        def make(cls, v: Any) -> Any:
            return v + 0.5

    def f(x, y, *functions):
        for k, fn in enumerate(functions):
            y[k] = fn(x[k])

    adder = Adder(4.0)
    check(
        f, X, out(), lambda v: pl.exp(v), functools.partial(operator.mul, 3.0), adder, adder.minus, Adder.twice,
        Adder.make, functools.partial(lambda a, b: a - b, b=1.0), double,
    )  # fmt: skip


def test_nested_functions_see_variables_by_reference():
    def f(x, y):
        k = 1.0

        def g(v):
            return v * k

        a = g(x[0])
        k = 2.0
        y[0] = a
        y[1] = g(x[0])
        functions = [lambda v: v + i for i in range(3)]
        y[2] = functions[0](x[0])

    check(f, X, out())


def test_nonlocal_on_compile_time_values():
    def f(y):
        n = 0

        def tick(step=2):
            nonlocal n
            n += step
            return n

        tick()
        y[0] = tick(step=5)
        y[1] = n

    check(f, out())


def test_nonlocal_state_that_a_run_time_branch_changes():
    def f(x, y):
        total = x[0] * 0.0

        def add(v):
            nonlocal total
            total = total + v

        if x[0] > 2:
            add(x[1])
        else:
            add(100.0)
        y[0] = total

    check(f, X, out())


def test_comprehensions_hold_run_time_values_and_have_their_own_scope():
    def f(x, y):
        i = 50
        values = [x[i] * 2 for i in range(4) if i != 2]
        y[0] = sum(values)
        y[1] = i
        pairs = {k: v for k, v in zip("abc", values, strict=True)}
        y[2] = pairs["b"]
        y[3] = max(v for v in values)
        y[4] = sum(x[i] * x[j] for i in range(2) for j in range(i, 2))
        y[5] = len({1, 2})
        y[6] = functools.reduce(lambda a, b: a * b, values)
        y[7] = [*values, 4.5][-1]

    check(f, X, out())


def test_generators_and_map_and_filter():
    def f(x, y):
        y[0] = sum(map(lambda v: v * v, [x[0], x[1]]))
        y[1] = len(list(filter(lambda k: k % 2, range(7))))
        y[2] = any(x[k] > 8 for k in range(8))
        y[3] = all(x[k] > 8 for k in range(8))
        y[4] = next(iter([x[3]]))
        y[5] = sorted([3, 1, 2], key=lambda v: -v)[0]

    check(f, X, out())


@dataclasses.dataclass(frozen=True)
class Config:
    block: int = 4
    scale: float = 2.0

    @property
    def half(self) -> int:
        return self.block // 2

    def apply(self, v: Any) -> Any:
        return v * self.scale if self.block > 2 else v


@dataclasses.dataclass
class State:
    m: Any
    l: Any = 0.0  # noqa: E741

    def __post_init__(self) -> None:
        self.both = self.m + self.l

    def __add__(self, other: State) -> State:
        return State(self.m + other.m, self.l + other.l)


Pair = namedtuple("Pair", "first second")


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


def test_dataclasses_enums_and_named_tuples():
    def f(x, y, cfg, mode):
        t = pl.load(x, [0], [cfg.block])
        pl.store(t * cfg.scale, [cfg.half], y)
        y[0] = cfg.apply(x[0])
        s = State(x[1], l=x[2]) + State(1.0)
        y[1] = s.m + s.l * 10 + s.both
        p = Pair(x[3], 2)
        y[6] = p.first * p.second + (5 if mode is Mode.FAST else 7)
        y[7] = dataclasses.replace(cfg, block=2).apply(x[0])

    check(f, X, out(), Static(Config()), Static(Mode.FAST))


class Way(enum.IntEnum):
    DOWN = 2
    UP = 3


class Scale(float):
    """A number with a name."""


def test_numbers_of_subclasses_are_numbers():
    def f(x, y, way, scale):
        for i in range(2):
            y[i] = way if x[i] > 1 else Way.UP
            y[i + 2] = scale if x[i] > 1 else Scale(0.25)
            y[i + 4] = x[i] + way
        n = way
        for i in range(3):
            n += i
        y[6] = n
        y[Way.UP + 4] = x[Way.DOWN]

    check(f, X, out(), Static(Way.DOWN), Static(Scale(1.5)))


def test_a_dataclass_of_tiles_carried_through_a_loop():
    def f(x, y, n):
        with pl.incore():
            s = State(pl.zeros([4], pl.f32), pl.load(x, [0], [4]))
            for i in range(n):
                s = State(s.m + s.l, s.l * 0.5)
            pl.store(s.m, [0], y)

    check(f, X, out(4), 3)


def test_globals_mappings_and_math():
    def f(x, y):
        y[0] = x[0] * SCALE
        for name, (k, v) in TABLE.items():
            y[k] = v + len(name)
        y[4] = math.sqrt(16) + math.log2(8)
        y[5] = math.sqrt(x[2]) + math.floor(x[0])
        y[6] = 1 << int(math.log2(5))

    check(f, X, out())


def test_f_strings_and_string_methods():
    def f(x, y, name):
        key = f"{name}_{SCALE:02d}"
        y[0] = x[len(key)]
        y[1] = key.startswith("abc") * 1.0
        y[2] = {"abc_03": 1.5}.get(key, 2.5)
        y[3] = "_".join(["a", "b"]) == "a_b"

    check(f, X, out(), "abc")


def test_mutation_of_lists_and_dicts_made_in_the_kernel():
    def f(x, y):
        tiles = []
        for k in pl.static_range(3):
            tiles.append(x[k] * k)
        tiles[0] = x[7]
        tiles += [x[1]]
        del tiles[1]
        seen = {}
        seen["a"] = tiles.pop()
        seen.setdefault("b", x[2])
        for k, v in enumerate(tiles):
            y[k] = v
        y[4] = seen["a"] + seen["b"]

    check(f, X, out())


def test_star_unpacking_and_swaps():
    def f(x, y):
        a, *rest, b = x[0], x[1], x[2], x[3]
        (c, d), e = rest, 5
        a, b = b, a
        values = [a, b, c, d, e]
        for k, v in enumerate(values):
            y[k] = v
        y[5] = max(*values[:2])

    check(f, X, out())


def test_defaults_keyword_only_and_variadic_helpers():
    def g(a, /, b=2.0, *rest, c, d=1.0, **named):
        return a + b * 10 + sum(rest) + c * 100 + d + named.get("e", 0.0)

    def f(x, y):
        y[0] = g(x[0], c=x[1])
        y[1] = g(x[0], x[1], x[2], x[3], c=1.0, d=x[4], e=x[5])
        args, kwargs = (x[0], 3.0), {"c": x[1]}
        y[2] = g(*args, **kwargs)

    check(f, X, out())


def test_recursion_that_ends_at_compile_time():
    def power(v, n):
        if n == 0:
            return 1.0
        half = power(v, n // 2)
        return half * half * v if n % 2 else half * half

    def f(x, y):
        y[0] = power(x[0], 5)

    check(f, X, out())


def test_helpers_without_run_time_arguments_that_use_the_language():
    def start():
        return pl.full([4], 2.0, pl.f32)

    def f(x, y):
        with pl.incore():
            pl.store(start() + pl.load(x, [0], [4]), [0], y)

    check(f, X, out())


def test_pure_python_helpers_may_use_any_python():
    def tile_size(n):
        try:
            return {8: 4}[n]
        except KeyError:
            return 1

    def f(x, y, n):
        import_free = tile_size(n)
        pl.store(pl.load(x, [0], [import_free]), [0], y)

    check(f, X, out(), Static(8))


def test_functions_given_to_map_reduce_and_scan():
    def f(x, y, g):
        t = pl.load(x, [0], [8])
        k = x[2]
        u = pl.map(lambda a: a * k if a > 0 else g(a), t)
        pl.store(u, [0], y)
        y[0] = pl.reduce(t, 0, lambda a, b: a + b)
        y[1] = pl.reduce(t, 0, max)

    check(f, X, out(), lambda v: v - 1)


def test_static_forces_and_dynamic_value_gives_up_compile_time():
    def f(x, y, n):
        if pl.static(n > 2):
            y[0] = x[0]
        m = pl.dynamic_value(n)
        if m > 2:
            y[1] = x[1]
        pl.static_assert(n == 3)

    check(f, X, out(), Static(3))
    assert count(ir(f, X, out(), Static(3)), If) == 1


def test_isinstance_getattr_and_len_at_compile_time():
    def f(x, y, n):
        y[0] = isinstance(n, int)
        y[1] = getattr(x, "ndim", 0)
        y[2] = len(x)
        y[3] = hasattr(x, "shape") and not hasattr(x, "banana")
        y[4] = x.shape[0] == 8

    check(f, X, out(), 3)


def test_operators_of_python_objects_on_run_time_values():
    def f(x, y):
        y[0] = operator.add(x[0], x[1])
        y[1] = x[0] in (3, 4)
        y[2] = x[0] not in [3.0]
        y[3] = (x[0], 1) == (3, 1)
        y[4] = abs(x[1]) + round(x[0]) + pow(x[0], 2) + divmod(x[5], 2.0)[0] + int(x[2])
        y[5] = min(x[0], x[1], 7.0) + max([x[0], x[1]])
        y[6] = x[0] is None
        y[7] = bool(x[0]) and not bool(x[0] - x[0])

    check(f, X, out())


def test_run_time_ranges_as_values():
    def f(x, y, n):
        r = pl.range(n)
        for i in r:
            y[i] = x[i]
        for i in range(4):
            y[i] = y[i] + 1

    check(f, X, out(), 8)
    assert count(ir(f, X, out(), 8), For) == 2


def test_keyword_only_parameters_and_defaults_of_the_kernel():
    def f(x, y, k=2.0, *, scale=3.0):
        y[0] = x[0] * k * scale

    check(f, X, out())
    check(f, X, out(), scale=5.0)


def test_containers_of_tensors_as_arguments():
    def f(pair, y):
        a, b = pair
        y[0] = a[0] + b[1]

    check(f, (X, X * 2), out())


def test_super_and_methods_of_objects_with_state():
    class Base:
        def act(self, v):
            return v * self.k

    class Derived(Base):
        def __init__(self, k):
            self.k = k

        def act(self, v):
            return super().act(v) + 1

    def f(x, y, obj):
        y[0] = obj.act(x[0])

    check(f, X, out(), Static(Derived(4)))


def test_an_object_made_in_the_kernel_may_change_its_attributes():
    class Box:
        def __init__(self, v):
            self.v = v
            self.n = 0

        def add(self, w):
            self.v = self.v + w
            self.n += 1

    def f(x, y):
        b = Box(x[0])
        b.add(x[1])
        b.add(2.0)
        y[0] = b.v
        y[1] = b.n

    check(f, X, out())


def test_a_kernel_may_change_all_that_its_objects_hold_alone():
    """Whether Python makes them or `__init__` is compiled, as it is where it gets run-time values."""

    @dataclasses.dataclass
    class Queue:
        scale: Any
        items: list[Any] = dataclasses.field(default_factory=list)
        names: dict[str, Any] = dataclasses.field(default_factory=dict)

    class Ring:
        def __init__(self, *items):
            self.itself = self
            self.rows = [list(items), list(items)]

        def __setitem__(self, k, v):
            self.rows[0][k % 2] = v

        def __getitem__(self, k):
            return self.rows[0][k % 2]

    def f(x, y):
        for at, scale in enumerate((2.0, x[6])):
            q = Queue(scale)
            for k in pl.static_range(3):
                q.items.append(x[k])
            q.names["last"] = q.items.pop() * q.scale
            y[at] = q.items[0] + q.items[1] + q.names["last"]
        for at, first in enumerate((0.0, x[2])):
            r = Ring(first, 1.0)
            r[3] = x[1]
            r[0] += 2.0
            y[2 + at] = r[0] - r[1] * len(r.itself.rows)

    check(f, X, out())


def test_functions_and_methods_change_objects_of_the_kernel_where_it_is_known_how_often():
    class Queue:
        def __init__(self):
            self.items, self.count = [], np.zeros(2)

        def add(self, item):
            self.items.append(item)
            self.count[0] += 1

    def f(x, y):
        q, heap, numbers = Queue(), [3.0, 5.0], [4.0]
        for k in pl.static_range(3):
            q.add(k)
            heapq.heappush(heap, 4.0 - k)
            list.append(numbers, k)
        numbers.__setitem__(0, 1.0)
        operator.iadd(numbers, [2.0])
        q.count.fill(q.count[0] + 1)
        for i in range(x.shape[0]):
            mine = Queue()  # of each iteration
            mine.add(5.0)
            y[i] = x[i] + len(mine.items) + len(q.items) + mine.count[0] + q.count[1] + heap[0]
        y[0] = len(numbers) + numbers[0] + max(sorted(numbers))

    check(f, X, out())


def test_iterators_are_read_once():
    def f(x, y):
        items = iter([1.0, 2.0, 3.0, 4.0])
        y[0] = next(items)
        for v in items:
            y[1] += v
            if v > 2.5:
                break
        y[2] = sum(items) + len(list(items))
        pairs = zip(iter([1.0, 2.0]), [3.0, 4.0])  # noqa: B905
        for i in range(x.shape[0]):
            own = iter([x[i], 2.0])  # of each iteration
            y[3] += next(own)
            y[3] += sum(own)
        for a, b in pairs:
            y[4] += a * b

    check(f, X, out())


def test_dicts_with_defaults_and_metaclasses():
    class Noted(type):
        def __call__(cls, *args):
            made = super().__call__(*args)
            made.note = 5
            return made

    class Number(metaclass=Noted):
        def __init__(self, v):
            self.v = v

    def f(x, y):
        groups = defaultdict(list)
        for k in pl.static_range(4):
            groups[k % 2].append(x[k])
        y[0] = sum(groups[0]) + len(groups[7])
        y[1] = groups[1][1] + len(groups)
        number = Number(x[0])
        y[2] = number.v + number.note

    check(f, X, out())


@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
def test_ranges_of_run_time_bounds_are_reversed(n):
    def f(x, y, n):
        for k in reversed(range(n)):
            y[0] = y[0] * 2.0 + x[k] * k
        for k in reversed(range(1, n, 3)):
            y[1] = y[1] * 2.0 + x[k] * k
        for k in reversed(range(n, 0, -2)):
            y[2] = y[2] * 2.0 + x[k - 1] * k
        for k in reversed(range(n - 1, -1, -1)):
            y[3] = y[3] * 2.0 + x[k] * k
        for k in reversed(range(3)):
            y[4] = y[4] * 2.0 + x[k] * k

    check(f, X, out(), n)


def test_attributes_are_deleted():
    class Box:
        pass

    def f(x, y):
        b = Box()
        b.v, b.w = x[0], 2
        del b.w
        y[0] = b.v if not hasattr(b, "w") else 5.0

    check(f, X, out())


def test_decorators_of_functions_in_kernels():
    def twice(fn):
        @functools.wraps(fn)
        def called(*args):
            return fn(*args) * 2

        return called

    def f(x, y):
        @twice
        @twice
        def more(v):
            """Of one."""
            return v + 1

        y[0] = more(x[0])
        y[1] = len(more.__name__) + len(more.__doc__)

    check(f, X, out())


def test_what_patterns_match():
    @dataclasses.dataclass
    class Config:
        block: int
        scale: float = 2.0

    @dataclasses.dataclass
    class Other:
        block: int

    class Pair:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    def pick(c, v):
        match c:
            case Config(4, s):
                return s
            case Config(block=8, scale=s):
                return s * v
            case Config(b):
                return b
            case Other(b) if b > 100:
                return 1
            case Other(block=5):
                return 55
            case Pair(3, 5):
                return 7
            case Pair(a, b=4):
                return a + v
            case Pair(missing=1):
                return 8
            case int(n):
                return n + 1000
            case str():
                return 5
            case {"k": 1, **rest}:
                return len(rest) + 2000
            case {"k": 2}:
                return 2001
            case [1, *_, 9]:
                return 3000
            case [first, *middle]:
                return first + len(middle)
            case _:
                return -1

    def f(x, y):
        values = [Config(4, 3.0), Config(8, 3.0), Config(5), Other(101), Other(5), Other(6), Pair(3, 5), Pair(1, 4),
                  Pair(1, 2), 4, "a", {"k": 1, "z": 2}, {"k": 2}, {"k": 3}, [1, 2, 9], [1, 2], 2.5]  # fmt: skip
        for at, value in enumerate(values):
            y[at] = pick(value, x[0])

    check(f, X, out(17))


def test_a_pattern_with_more_parts_than_a_class_tells_is_an_error():
    class Plain:
        pass

    def f(x, y):
        match Plain():
            case Plain(1):
                y[0] = 1

    with pytest.raises(pto.CompilationError, match="PTO-N049: Plain has 0 positional sub-patterns"):
        ir(f, X, out())


def test_types_of_numpy_convert_run_time_values():
    def f(x, y):
        for i in range(4):
            y[i] = np.float32(x[i]) * 2 + np.int64(x[i] * 0.7) + np.bool_(x[i])

    check(f, X, out())


def test_the_dtype_of_a_tensor_is_that_of_numpy_too():
    def kernel(x, y):
        if x.dtype == np.float32 and np.dtype("float32") == x.dtype and x.dtype != np.float64:
            y[0] = 1.0
        if x.dtype in (np.int32, np.float16):
            y[1] = 1.0

    y = out()
    check(kernel, X, y)
    module = ir(kernel, X, y)
    assert count(module, If) == 0 and count(module, "setelem") == 1
    assert pl.f32 == np.float32 and pl.bf16 != np.float16 and pl.i8 != "i8"


@pytest.mark.parametrize(
    "bounds",
    [
        lambda b, n: (b + 2, b + 18),
        lambda b, n: (b * 16, (b + 1) * 16),
        lambda b, n: (16 * b, b * 16 + 16),
        lambda b, n: (n // 2 + b * n, b * n + 16 + n // 2),
        lambda b, n: ((b - n) * 4, 16 - n * 4 + b * 4),
    ],
)
def test_the_length_of_a_slice_is_known_where_both_bounds_are_the_same_sum(bounds: Any) -> None:
    @pto.jit
    def kernel(x: pl.Tensor, n: int) -> None:
        for b in pl.range(4):
            low, high = bounds(b, n)
            pl.static_assert(pl.load(x[low:high]).shape == (16,))

    kernel.compile(pto.spec((None,), pl.f32), 1)


def test_the_length_of_a_slice_is_that_of_the_values_its_bounds_have() -> None:
    """A variable that was assigned in between is another number."""

    @pto.jit
    def kernel(x: pl.Tensor, y: pl.Tensor, k: int) -> None:
        n = k
        for i in pl.range(5):
            low = n * 2
            if x[i] > 1.0:
                n = n + 5
            y[low : n * 2 + 3] = x[low : n * 2 + 3]

    x = np.arange(64, dtype=np.float32)
    y, wanted = np.zeros_like(x), np.zeros_like(x)
    kernel(x, y, 2)
    kernel.interpret(x, wanted, 2)
    np.testing.assert_array_equal(y, wanted)


def test_iterators_of_itertools_with_run_time_items():
    def f(x, y):
        y[0] = sum(itertools.chain((x[0], x[1]), [x[2]]))
        y[1] = min(itertools.chain((x[0], x[1]), [x[2]]))
        y[2] = sum(itertools.islice((x[k] for k in range(8)), 2, 5))
        y[3] = math.prod(itertools.chain((x[0], x[1]), [x[2]]))
        for k, v in enumerate(itertools.accumulate(x[i] for i in range(3))):
            y[4 + k] = v
        y[7] = sum(itertools.accumulate((x[0], x[1]), lambda a, b: a * b - 1, initial=2.0))

    check(f, X + 1, out())


def test_the_best_by_a_key():
    def f(x, y):
        for i in range(5):
            y[i] = min(x[i], x[i + 1], x[i + 2], key=lambda v: (v - 1) ** 2) + max(range(3), key=lambda k: x[i + k] % 3)
        place, value = max([(k, x[k]) for k in range(4)], key=lambda pair: -pair[1])
        y[5] = place + value
        y[6] = max((x[k] for k in range(4)), key=abs) + max([x[0]], default=3.0) + min([], default=-1.0)
        y[7] = len(max(["a", "bbb"], key=len))

    check(f, X - 3, out())


def test_arguments_of_min_and_max_that_python_refuses():
    for kernel in (lambda x: max(x[0], x[1], default=3), lambda x: max([], key=lambda v: x[v])):
        with pytest.raises(CompilationError, match="PTO-N004"):
            ir(kernel, X)
    with pytest.raises(CompilationError, match="PTO-T017"):
        ir(lambda x: max(x[0], x[1], other=3), X)

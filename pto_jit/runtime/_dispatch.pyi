# SPDX-License-Identifier: MIT
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, final

class _HasAddress(Protocol):
    @property
    def address(self) -> int: ...

_Guard = tuple[Any, Any, Any]

ABSENT: object

@final
class Buffer: ...

@final
class Bound:
    @property
    def entry(self) -> Entry: ...
    @property
    def args(self) -> tuple[Any, ...]: ...
    def __call__(self) -> Any: ...

@final
class Entry:
    def __new__(
        cls,
        runtime: _HasAddress,
        address: int,
        results: Any,
        *,
        holder: Any,
        on_failure: Callable[[Any, int, int, int, int, tuple[Any, ...]], object],
        keep_gil_below: int = 0,
        max_threads: int = 0,
    ) -> Entry: ...
    @property
    def runtime(self) -> Any: ...
    @property
    def address(self) -> int: ...
    @property
    def holder(self) -> Any: ...
    @property
    def results(self) -> Any: ...
    @property
    def num_result_slots(self) -> int: ...
    @property
    def keep_gil_below(self) -> int: ...
    @property
    def max_threads(self) -> int: ...
    def launch(self, slots: Sequence[int | float], args: Iterable[Any] = (), elements: int = -1, /) -> Any: ...
    def bind(self, slots: Sequence[int | float], args: Iterable[Any] = (), elements: int = -1, /) -> Bound: ...

class Dispatcher:
    slow_path: Callable[[tuple[Any, ...], dict[str, Any] | None], Any]
    def __init__(
        self,
        parameters: Iterable[str],
        slow_path: Callable[[tuple[Any, ...], dict[str, Any] | None], Any],
        *,
        positional: int | None = None,
        positional_only: int = 0,
        varargs: bool = False,
        defaults: Mapping[str, Any] | None = None,
        static: Iterable[str] | None = None,
        limit: int = 1024,
        into: Dispatcher | None = None,
    ) -> None: ...
    @property
    def parameters(self) -> tuple[str, ...]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: type | None = None, /) -> Any: ...
    def register(
        self,
        args: tuple[Any, ...],
        entry: Entry,
        plan: Sequence[str],
        guards: Iterable[_Guard] = (),
        convert: Callable[[Any], Any] | None = None,
        extents: Iterable[tuple[int, ...]] = (),
    ) -> bool: ...
    def clear(self) -> None: ...
    def entries(self) -> list[tuple[Entry, tuple[_Guard, ...]]]: ...

def connect(symbols: dict[str, int], bfloat16: Any) -> int: ...
def key_of(argument: Any, static: bool = False) -> tuple[Any, ...] | None: ...
def read_dlpack(capsule: Any, /) -> tuple[int, tuple[int, ...], tuple[int, ...], int | None, bool | None, int, str]: ...

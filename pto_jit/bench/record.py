# SPDX-License-Identifier: MIT
"""What a run keeps, and its JSON form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pto_jit.bench.machine import Cache, Machine
from pto_jit.bench.summary import median, spread
from pto_jit.bench.workload import Work

FORMAT = "pto-bench"
VERSION = 1

Status = Literal["ok", "wrong", "unsupported", "missing", "timeout", "died", "error"]


@dataclass(frozen=True, slots=True)
class Result:
    """One implementation in one case.

    `seconds` holds the time of one call in every round.  `worst` is the largest error found by the check, in units of
    the workload's tolerance.  Where the status is not `"ok"`, `message` says why and nothing was timed.
    """

    peer: str
    variant: str
    threads: int
    status: Status
    message: str = ""
    seconds: tuple[float, ...] = ()
    calls: int = 0
    output: str = ""
    note: str = ""
    first_seconds: float = 0.0
    worst: float = 0.0

    @property
    def label(self) -> str:
        """How tables name it."""
        return f"{self.peer} {self.variant}".strip()

    @property
    def median(self) -> float:
        """Seconds of one call: the median over the rounds."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """`(max - min) / median` over the rounds."""
        return spread(self.seconds)


@dataclass(frozen=True, slots=True)
class Row:
    """One workload at one size and number of threads, with everybody who took part.

    `limit_seconds` is the least time that the measured limits of this machine allow for it; None if not measured.
    """

    workload: str
    size: tuple[int, ...]
    dtype: str
    unit: str
    threads: int
    work: Work
    results: tuple[Result, ...]
    limit_seconds: float | None = None
    foreign_cores: float | None = None

    @property
    def key(self) -> tuple[str, tuple[int, ...], int]:
        """What identifies the row in another run."""
        return self.workload, self.size, self.threads

    def ok(self) -> list[Result]:
        """The results that were checked and timed."""
        return [result for result in self.results if result.status == "ok"]


@dataclass(frozen=True, slots=True)
class FirstCall:
    """What a new process pays until its first result: seconds, median of `repeats` processes."""

    peer: str
    status: Status
    message: str = ""
    import_seconds: float = 0.0
    cold_first: float = 0.0
    cold_total: float = 0.0
    warm_first: float = 0.0
    warm_total: float = 0.0
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured limit: `rate` is the best of the repetitions; the lowest and the median say how steady it was."""

    name: str
    unit: str
    threads: int
    rate: float
    low: float
    median: float
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """A run of `pto-bench`."""

    created: str
    machine: Machine
    versions: Mapping[str, str]
    dropped_environment: Mapping[str, str]
    set_environment: Mapping[str, str]
    settings: Mapping[str, Any]
    limits: tuple[Reading, ...] = ()
    rows: tuple[Row, ...] = ()
    first_calls: tuple[FirstCall, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict[str, str])


def to_json(record: Record) -> str:
    """The record as JSON text."""
    return json.dumps({"format": FORMAT, "version": VERSION, **asdict(record)}, indent=1) + "\n"


def from_json(text: str) -> Record:
    """The record that `to_json` wrote.

    Raises:
        ValueError: the text is not JSON, not of `pto-bench`, or of another version of the format.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError:
        data = None
    if not isinstance(data, dict) or data.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise ValueError("not a file written by pto-bench run --json")
    if data.get("version") != VERSION:  # pyright: ignore[reportUnknownMemberType]
        raise ValueError(f"written by another version of pto-bench (format {data.get('version')}, not {VERSION})")  # pyright: ignore[reportUnknownMemberType]
    try:
        return _record(data)  # pyright: ignore[reportUnknownArgumentType]
    except (KeyError, TypeError) as error:
        raise ValueError(f"damaged: {error}") from error


def load(path: Path) -> Record:
    """Read a record from a file; ValueError, which names the file, when that cannot be."""
    try:
        return from_json(path.read_text())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def check_writable(path: Path) -> None:
    """ValueError for a file that cannot be written: better known before a long run than after it."""
    _write(path, "", mode="a")


def save(path: Path, text: str) -> None:
    """Write what was measured; ValueError, which names the file, when that cannot be."""
    _write(path, text, mode="w")


def _write(path: Path, text: str, mode: Literal["w", "a"]) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error


def _record(data: dict[str, Any]) -> Record:
    machine = dict(data["machine"])
    machine["caches"] = tuple(Cache(**cache) for cache in machine["caches"])
    return Record(
        created=data["created"],
        machine=Machine(**machine),
        versions=data["versions"],
        dropped_environment=data["dropped_environment"],
        set_environment=data["set_environment"],
        settings=data["settings"],
        limits=tuple(Reading(**reading) for reading in data["limits"]),
        rows=tuple(_row(row) for row in data["rows"]),
        first_calls=tuple(FirstCall(**entry) for entry in data["first_calls"]),
        missing=data["missing"],
    )


def _row(data: dict[str, Any]) -> Row:
    results = tuple(Result(**{**entry, "seconds": tuple(entry["seconds"])}) for entry in data["results"])
    return Row(**{**data, "size": tuple(data["size"]), "work": Work(**data["work"]), "results": results})

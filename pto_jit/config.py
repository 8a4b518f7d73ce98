# SPDX-License-Identifier: MIT
"""Settings of the process: the only place that reads the environment.

Each field has an environment variable that is read once, at import; assigning the field afterwards takes effect at
the next call.  A value that a setting cannot have is a ValueError, in both places.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pto_jit.slotted import field, mutable

logger = logging.getLogger("pto_jit")

MOST_THREADS = 1024  # that a runtime of the C library takes
_FLAGS = {"": False, "0": False, "false": False, "1": True, "true": True}
TOPICS = {"specialize", "cache", "passes"}  # of `log`
_TOPICS_WANTED = f"a string of {', '.join(sorted(TOPICS))}, separated by commas,"


def _cache_dir() -> Path:
    chosen = os.environ.get("PTO_CACHE_DIR")
    if chosen:
        return _home() / chosen[2:] if chosen.startswith("~/") else Path(chosen)
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (root if root.is_absolute() else _home() / ".cache") / "pto_jit"  # others the specification has ignored


def _home() -> Path:
    """The user's home; for one without any (a number that a container was given), a place where nothing can be kept.

    A directory that all users share is no substitute: who writes there first would choose the code that runs.
    """
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)


def _num_threads() -> int | None:
    text = os.environ.get("PTO_NUM_THREADS")
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= MOST_THREADS:
        raise ValueError(f"PTO_NUM_THREADS={text!r}: an integer from 1 to {MOST_THREADS} is wanted")
    return int(text)


def _flag(name: str) -> bool:
    text = os.environ.get(name, "")
    if text.lower() not in _FLAGS:
        raise ValueError(f"{name}={text!r}: 1 or 0 is wanted")
    return _FLAGS[text.lower()]


def _log() -> str:
    text = os.environ.get("PTO_LOG", "")
    if not _are_topics(text):
        raise ValueError(f"PTO_LOG={text!r}: {_TOPICS_WANTED} is wanted")
    return text


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_topics(value: Any) -> bool:
    return isinstance(value, str) and _topics(value) <= TOPICS


def _topics(text: str) -> set[str]:
    return {topic.strip() for topic in text.split(",")} - {""}


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike)) and str(value) != ""


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "num_threads": (
        f"an integer from 1 to {MOST_THREADS} or None",
        lambda v: v is None or (isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= MOST_THREADS),
    ),
    "cache_dir": ("a path", _is_path),
    "interpret": ("True or False", _is_flag),
    "debug": ("True or False", _is_flag),
    "debug_info": ("True or False", _is_flag),
    "log": (_TOPICS_WANTED, _are_topics),
    "dump_dir": ("a path or None", lambda v: v is None or _is_path(v)),
    "warpgroups": ("True or False", _is_flag),
}


@mutable
class Config:
    """`pto.config`.

    num_threads: workers of kernels that do not say otherwise (`PTO_NUM_THREADS`; None: the CPUs this process may use).
    cache_dir: where compiled kernels are kept between processes (`PTO_CACHE_DIR`).
    interpret: every call runs the original Python function on NumPy (`PTO_INTERPRET`).
    debug: bounds, races and assertions are checked, the verifier runs between passes (`PTO_DEBUG`).
    debug_info: machine code carries line tables, for gdb and perf; nothing is taken from the disk (`PTO_DEBUG_INFO`).
    log: comma-separated topics written to the `pto_jit` logger: `specialize`, `cache`, `passes` (`PTO_LOG`).
    dump_dir: every stage of every compilation is written there (`PTO_DUMP_DIR`).
    warpgroups: products on GPUs of compute capability 9.0 run by `wgmma`, which has been tried in the emulation alone
        (`PTO_WARPGROUPS`).
    """

    num_threads: int | None = field(default_factory=_num_threads)
    cache_dir: Path | str = field(default_factory=_cache_dir)
    interpret: bool = field(default_factory=lambda: _flag("PTO_INTERPRET"))
    debug: bool = field(default_factory=lambda: _flag("PTO_DEBUG"))
    debug_info: bool = field(default_factory=lambda: _flag("PTO_DEBUG_INFO"))
    log: str = field(default_factory=_log)
    dump_dir: Path | str | None = field(default_factory=lambda: os.environ.get("PTO_DUMP_DIR") or None)
    warpgroups: bool = field(default_factory=lambda: _flag("PTO_WARPGROUPS"))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field; ValueError for a value that it cannot have."""
        wanted, fits = _KINDS.get(name, ("", lambda _: True))
        if not fits(value):
            raise ValueError(f"pto.config.{name} = {value!r}: {wanted} is wanted")
        object.__setattr__(self, name, value)
        for listener in _listeners:
            listener()

    def logs(self, topic: str) -> bool:
        return bool(self.log) and topic in _topics(self.log)


_listeners: list[Callable[[], None]] = []
config = Config()


def on_change(listener: Callable[[], None]) -> None:
    """Call `listener` after every assignment to a setting."""
    _listeners.append(listener)


def log(topic: str, message: str, *args: object) -> None:
    """Write one line to the `pto_jit` logger when its topic is switched on."""
    if not config.logs(topic):
        return
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    logger.info(message, *args)

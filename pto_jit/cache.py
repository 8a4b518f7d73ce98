# SPDX-License-Identifier: MIT
"""The disk cache of compiled kernels.

One file per kernel, named by the SHA-256 of everything that went into it.  A file is written beside its place and
renamed, so readers see whole files or none; it starts with the SHA-256 of its name and the rest, so a damaged one, or
one that stands under the name of another, is noticed and counts as absent.  Several processes may use one directory.
A directory that cannot be used is reported once and then left alone: kernels are compiled in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from pto_jit.config import config, log

_MAGIC = b"PTO2"


class DiskCache:
    """Entries are (metadata, object code): a JSON value and bytes."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._unusable = False

    def load(self, key: str) -> tuple[Any, bytes] | None:
        """The entry of `key`, or None when there is none that is whole."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if len(data) < 44 or data[:4] != _MAGIC or _checksum(key, data[36:]) != data[4:36]:
            log("cache", "%s is damaged; compiling again", path)
            self._remove(path)
            return None
        size = int.from_bytes(data[36:44], "little")
        return json.loads(data[44 : 44 + size]), data[44 + size :]

    def store(self, key: str, metadata: Any, code: bytes) -> None:
        """Write an entry; failure is a warning, once."""
        if self._unusable:
            return
        text = json.dumps(metadata, separators=(",", ":")).encode()
        body = len(text).to_bytes(8, "little") + text + code
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + _checksum(key, body) + body)
                Path(temporary).replace(path)
            except BaseException:
                self._remove(Path(temporary))
                raise
        except OSError as error:
            self._unusable = True
            warnings.warn(
                f"the kernel cache directory {self.directory} cannot be used ({error.strerror or error}); kernels are "
                "compiled in memory. Set PTO_CACHE_DIR to a writable directory.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.pto"

    @staticmethod
    def _remove(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()


def _checksum(key: str, body: bytes) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(body)
    return digest.digest()


_OPEN: dict[str, DiskCache] = {}


def disk_cache() -> DiskCache:
    """The cache in `pto.config.cache_dir`."""
    directory = str(config.cache_dir)
    found = _OPEN.get(directory)
    if found is None:
        found = _OPEN[directory] = DiskCache(directory)
    return found


@cache
def build_id() -> str:
    """Identity of this compiler: its version, its files' sizes and times, the interpreter.

    Times are in seconds: images of containers keep no more, and kernels compiled while one is made are to be found in
    it.
    """
    digest = hashlib.sha256(sys.version.encode())
    root = str(Path(__file__).parent)
    for directory, _, names in sorted(os.walk(root)):
        for name in sorted(names):
            if name.endswith((".py", ".so")):
                status = os.stat(f"{directory}/{name}")  # noqa: PTH116 - Path takes twice the time of a warm start
                seconds = status.st_mtime_ns // 10**9
                digest.update(f"{directory[len(root) :]}/{name}:{status.st_size}:{seconds};".encode())
    return digest.hexdigest()

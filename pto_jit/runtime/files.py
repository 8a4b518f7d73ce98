# SPDX-License-Identifier: MIT
"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def written(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that replaces `path` when the block ends; until then, and if the block fails, `path` is unchanged.

    Anything that is not a regular file (a pipe, a terminal) is written directly.  Raises OSError that names `path`.
    """
    target = Path(os.path.realpath(path))  # a link stays, what it leads to is replaced
    mode = _mode(target)
    if mode is not None and not stat.S_ISREG(mode):
        with Path(path).open("wb") as file:
            yield file
        return
    beside = target.with_name(f".{secrets.token_hex(8)}.new")  # a name that no other writer, ended or alive, has
    try:
        file = beside.open("xb")
    except OSError as error:
        if error.filename == str(beside):
            error.filename = str(path)
        raise
    try:
        with file:
            yield file
        if mode is not None:
            beside.chmod(stat.S_IMODE(mode))
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def _mode(path: Path) -> int | None:
    """The mode of what is there; None: nothing."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def write_text(path: str | Path, text: str) -> None:
    """Write text in UTF-8, lines ending in "\\n", as `written`."""
    data = text.encode("utf-8")
    with written(path) as file:
        file.write(data)

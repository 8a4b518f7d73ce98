# SPDX-License-Identifier: MIT
"""Where the user's code called the builder."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

from pto_jit.errors import Loc

_HERE = str(Path(__file__).parent)


def user_place() -> Loc:
    """The place of the innermost call outside this package: of a chained call its own line, `.name(...)`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    code = frame.f_code
    position = next(islice(code.co_positions(), frame.f_lasti // 2, None), (None, None, None, None))
    line, end_line, col, end_col = position
    if line is None or end_line is None or col is None or end_col is None:
        return Loc(code.co_filename, frame.f_lineno, 0, frame.f_lineno, 0)
    return Loc(code.co_filename, line, col, end_line, end_col)

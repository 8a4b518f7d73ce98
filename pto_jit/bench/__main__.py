# SPDX-License-Identifier: MIT
"""`python -m pto_jit.bench`, and the entry point of `pto-bench`."""

from __future__ import annotations

import sys

from pto_jit.bench.command import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())

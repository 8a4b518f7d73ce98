# SPDX-License-Identifier: MIT
"""A library that never comes back, and starts a process besides."""

from __future__ import annotations

import subprocess

from pto_jit.bench.implementation import Case, Implementation, Table

TABLE = Table()


@TABLE.row("double")
def hanging(case: Case) -> Implementation:
    subprocess.run(["sleep", "60"], check=True)
    raise AssertionError("not reached")

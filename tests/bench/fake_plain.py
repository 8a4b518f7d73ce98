# SPDX-License-Identifier: MIT
"""A library that just works."""

from __future__ import annotations

from pto_jit.bench.implementation import Table
from tests.bench.fake_peers import right

TABLE = Table()
TABLE.add("double", right)

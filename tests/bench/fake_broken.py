# SPDX-License-Identifier: MIT
"""A library whose import fails."""

raise ImportError("libfake.so.1: cannot open shared object file")

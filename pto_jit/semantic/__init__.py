# SPDX-License-Identifier: MIT
"""What operations mean: their table, their types, the reference interpreter."""

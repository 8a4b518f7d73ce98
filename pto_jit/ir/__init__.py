# SPDX-License-Identifier: MIT
"""The loop IR."""

# SPDX-License-Identifier: MIT
"""Transformations of the loop IR, one file each; `pipeline.py` is their order."""

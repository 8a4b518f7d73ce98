# SPDX-License-Identifier: MIT
"""The workloads by family."""

# SPDX-License-Identifier: MIT
"""The c target: readable C11 on the run-time library, from the CPU target's writers."""

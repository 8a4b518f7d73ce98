# SPDX-License-Identifier: MIT
"""The ascend target: C++17 for the Ascend 910B on the pto-isa tile library."""

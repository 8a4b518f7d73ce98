# SPDX-License-Identifier: MIT
"""The neon target: the c target's writer with intrinsics of `arm_neon.h` in loops over f32 and 32-bit integers."""

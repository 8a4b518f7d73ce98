# SPDX-License-Identifier: MIT
"""The pto kernels that are measured, written as a user would write them."""

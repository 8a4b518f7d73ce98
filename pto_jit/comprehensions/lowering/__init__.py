# SPDX-License-Identifier: MIT
"""From an analysed comprehension to the text of a `@pto.jit` function: the same front end and targets as everything."""

# SPDX-License-Identifier: MIT
"""Groups of tile operations that run as one nest of loops.

* `fuse`, `axes`: the groups, and which axes of their tiles are one axis
* `views`, `viewed`: numbers and views moved out of their way, and made once
* `rows`, `recompute`: what all rows of a group share, computed before it, and tiles that are computed again, not kept
* `fitting`, `units`: generated tiles, and axes of extent 1 that may be empty
"""

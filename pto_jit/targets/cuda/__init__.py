# SPDX-License-Identifier: MIT
"""The cuda target: kernels as CUDA C++ sources, launched where there is a GPU, emulated where there is none."""

"""Kernels that are written as loops directly: sort, scan, scatter and their kin."""

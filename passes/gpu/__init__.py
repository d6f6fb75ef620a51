"""Kernels of GPUs: emitters from the linalg level to `gpu.module`s (docs/contracts.md, section 11)."""

"""Loops on GPUs: `emit_gpu_loops` is the pass; rows, reductions and elements each have a file."""

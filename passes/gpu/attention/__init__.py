"""Attention on GPUs: `emit_gpu_attention` is the pass, `problem` what it computes."""

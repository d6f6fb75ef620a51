"""Matrix products on GPUs: `emit_gpu_matmul` is the pass, `problem` what it computes."""

"""Loop nests on flat buffers for pointwise, row, reduction and gather kernels, and the kernel ABI."""
